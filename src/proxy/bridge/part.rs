//! Bodies part by part.

use bytes::Bytes;
use http::HeaderMap;

use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::BodyFraming;
use crate::http1::body::Body;
use crate::http2::Piece;
use crate::http2::trailers::{from_section, passed_on, to_section};
use crate::limits::HEAD_BUFFER_BYTES;

/// One part of a body.
pub(super) enum Part {
    /// Bytes, maybe none, and whether they are the last.
    Data(Bytes, bool),
    /// The trailers, which end it.
    Trailers(HeaderMap),
}

impl Part {
    /// What came on a stream; `last` tells of data whether it was the end.
    pub fn of(piece: Piece, last: bool) -> Part {
        match piece {
            Piece::Data(bytes) => Part::Data(bytes, last),
            Piece::Trailers(trailers) => Part::Trailers(passed_on(trailers)),
            Piece::End => Part::Data(Bytes::new(), true),
        }
    }

    /// Whether nothing follows it.
    pub fn is_last(&self) -> bool {
        match self {
            Part::Data(_, last) => *last,
            Part::Trailers(_) => true,
        }
    }

    /// Bytes of the body in it.
    pub fn len(&self) -> usize {
        match self {
            Part::Data(bytes, _) => bytes.len(),
            Part::Trailers(_) => 0,
        }
    }

    /// Appends it as HTTP/1 has it: in chunks (RFC 9112 section 7.1), or as it is where the head
    /// says how the end is found; trailers have no place there.
    pub fn encode(&self, chunked: bool, out: &mut Buf) {
        match self {
            Part::Data(bytes, last) => {
                if !bytes.is_empty() {
                    if chunked {
                        out.extend(format!("{:x}\r\n", bytes.len()).as_bytes());
                    }
                    out.extend(bytes);
                    if chunked {
                        out.extend(b"\r\n");
                    }
                }
                if chunked && *last {
                    out.extend(b"0\r\n\r\n");
                }
            }
            Part::Trailers(trailers) if chunked => {
                out.extend(b"0\r\n");
                to_section(trailers, out);
                out.extend(b"\r\n");
            }
            Part::Trailers(_) => {}
        }
    }

    /// A buffer that it fits.
    pub fn buffer(&self) -> Buf {
        match self.len() > HEAD_BUFFER_BYTES / 2 {
            true => Buf::for_body(),
            false => Buf::for_head(),
        }
    }
}

/// Takes the coding off the body of an HTTP/1 message.
pub(super) struct Decoder {
    body: Body,
    /// Trailers that came with the last data follow it.
    held: Option<Part>,
}

impl Decoder {
    /// At the beginning of a body.
    pub fn new(framing: BodyFraming) -> Decoder {
        Decoder { body: Body::new(framing), held: None }
    }

    /// A part that is there without reading on.
    pub fn held(&mut self) -> Option<Part> {
        let end = || self.body.is_done().then(|| Part::Data(Bytes::new(), true));
        self.held.take().or_else(end)
    }

    /// Whether the body goes on until its connection ends.
    pub fn is_until_close(&self) -> bool {
        matches!(self.body, Body::UntilClose)
    }

    /// Where the body stands.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Bytes that are still to come, where that is known.
    pub fn left(&self) -> Option<u64> {
        self.body.left()
    }

    /// The part that `bytes` begin with or are, and how many of them belong to the body.
    ///
    /// # Errors
    /// [`ErrorKind::ChunkMalformed`]; whose fault it was depends on who sent it.
    pub fn decode(&mut self, bytes: &mut [u8]) -> Result<(Part, usize), ErrorKind> {
        let stripped = self.body.strip(bytes)?;
        let data = Bytes::copy_from_slice(&bytes[..stripped.data]);
        let tail = self.body.tail();
        if stripped.done && !tail.is_empty() {
            self.held = Some(Part::Trailers(from_section(tail)));
        }
        Ok((Part::Data(data, stripped.done && self.held.is_none()), stripped.consumed))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn encoded(parts: &[Part], chunked: bool) -> Vec<u8> {
        let mut out = Buf::for_head();
        parts.iter().for_each(|part| part.encode(chunked, &mut out));
        out.filled().to_vec()
    }

    #[test]
    fn rfc_9112_7_1_parts_become_chunks() {
        let data = |text: &'static str, last| Part::Data(Bytes::from_static(text.as_bytes()), last);
        let whole = [data("hello, world, hello", false), data("", false), data("a", true)];
        assert_eq!(encoded(&whole, true), b"13\r\nhello, world, hello\r\n1\r\na\r\n0\r\n\r\n");
        assert_eq!(encoded(&whole, false), b"hello, world, helloa");
        assert_eq!(encoded(&[data("", true)], true), b"0\r\n\r\n");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        let with = [data("ab", false), Part::Trailers(trailers)];
        assert_eq!(encoded(&with, true), b"2\r\nab\r\n0\r\nx-sum: 1\r\n\r\n");
        assert_eq!(encoded(&with, false), b"ab");
    }
}
