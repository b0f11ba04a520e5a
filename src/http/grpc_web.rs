//! gRPC-Web: what browsers can send and read of gRPC, turned into gRPC and back.
//!
//! Written from PROTOCOL-WEB.md of the gRPC project. Sans-IO: bodies come in any pieces, and come out
//! the same whatever the pieces were. Trailers, which browsers cannot read, go into a last frame of the
//! body; the `-text` forms carry bodies as base64.

use super::grpc::{grpc_status_of, message_of};
use super::head::{RequestHead, ResponseHead};
use crate::base::buffer::Buf;
use crate::error::ErrorKind;

/// A call by gRPC-Web, from its request's head to its trailers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcWeb {
    /// Whether the request's body is base64.
    text_request: bool,
    /// Whether the answer's body is to be.
    text_answer: bool,
    decoder: Decoder,
    encoder: Encoder,
    frames: Frames,
}

impl GrpcWeb {
    /// The call that a request begins, if it is one: POST with `application/grpc-web` or
    /// `application/grpc-web-text` as Content-Type, each with or without a suffix such as `+proto`.
    ///
    /// The answer takes the form that Accept names, or else that of the request.
    pub fn of_request(head: &RequestHead) -> Option<GrpcWeb> {
        if head.text(head.method) != b"POST" {
            return None;
        }
        let mut types = head.values_named("content-type");
        let (text_request, _) = web_type(types.next()?)?;
        if types.next().is_some() {
            return None;
        }
        let accepted = head
            .values_named("accept")
            .flat_map(|list| list.split(|byte| *byte == b','))
            .find_map(web_type);
        Some(GrpcWeb {
            text_request,
            text_answer: accepted.map_or(text_request, |(text, _)| text),
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            frames: Frames::default(),
        })
    }

    /// Content-Type of an answer that is made for the call without one of gRPC.
    pub fn answer_type(&self) -> &'static str {
        if self.text_answer {
            "application/grpc-web-text+proto"
        } else {
            "application/grpc-web+proto"
        }
    }

    /// Whether the request's body changes its length, so that a Content-Length no longer holds.
    pub fn changes_request_length(&self) -> bool {
        self.text_request
    }

    /// Makes the head that of gRPC: Content-Type with the same suffix, and `TE: trailers`. How the
    /// body is framed is left to the caller.
    pub fn edit_request(&self, head: &mut RequestHead) {
        let given = head.values_named("content-type").next().and_then(web_type);
        let suffix = given.map(|(_, suffix)| suffix).unwrap_or_default();
        let value = [GRPC, suffix].concat();
        head.set("content-type", &value);
        head.set("te", b"trailers");
        // Told to gRPC-Web's servers only.
        head.remove("x-grpc-web");
    }

    /// Turns the next piece of the request's body into gRPC, behind `out`.
    ///
    /// # Errors
    /// [`ErrorKind::GrpcWebMalformed`] where it is not base64 and should be.
    pub fn request(&mut self, bytes: &[u8], out: &mut Buf) -> Result<(), ErrorKind> {
        if !self.text_request {
            out.extend(bytes);
            return Ok(());
        }
        self.decoder.push(bytes, out).ok_or(ErrorKind::GrpcWebMalformed)
    }

    /// Says whether the request's body may end here.
    ///
    /// # Errors
    /// [`ErrorKind::GrpcWebMalformed`] inside four characters of base64.
    pub fn request_end(&self) -> Result<(), ErrorKind> {
        match self.decoder.count {
            0 => Ok(()),
            _ => Err(ErrorKind::GrpcWebMalformed),
        }
    }

    /// Makes the head of a gRPC answer that of gRPC-Web. False, and nothing changed, for any other
    /// answer, whose body is to be passed on as it is. The body changes its length: Content-Length
    /// is removed.
    pub fn edit_answer(&self, head: &mut ResponseHead) -> bool {
        let suffix = head.values_named("content-type").next().and_then(grpc_suffix);
        let Some(suffix) = suffix else { return false };
        let value = [if self.text_answer { WEB_TEXT } else { WEB }, suffix].concat();
        head.set("content-type", &value);
        head.remove("content-length");
        head.remove("trailer");
        true
    }

    /// Turns the next piece of the answer's body into gRPC-Web, behind `out`. A message that has come
    /// whole goes out whole: base64 is padded behind it, so that none waits for the next.
    pub fn answer(&mut self, bytes: &[u8], out: &mut Buf) {
        if !self.text_answer {
            out.extend(bytes);
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (count, ends) = self.frames.advance(rest);
            self.encoder.push(&rest[..count], out);
            if ends {
                self.encoder.flush(out);
            }
            rest = &rest[count..];
        }
    }

    /// Ends the answer's body: the trailers, in one frame.
    pub fn finish(&mut self, trailers: &[(&[u8], &[u8])], out: &mut Buf) {
        let mut frame = vec![TRAILER_FRAME, 0, 0, 0, 0];
        for (name, value) in trailers {
            frame.extend(name.iter().map(u8::to_ascii_lowercase));
            frame.push(b':');
            // A line's end in a value would be one more line.
            frame.extend(value.iter().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
            frame.extend_from_slice(b"\r\n");
        }
        let length = u32::try_from(frame.len() - FRAME_HEAD_BYTES).expect("trailers are bounded");
        frame[1..FRAME_HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
        if !self.text_answer {
            return out.extend(&frame);
        }
        self.encoder.push(&frame, out);
        self.encoder.flush(out);
    }

    /// Ends the answer's body without trailers: what is held of it goes out.
    pub fn finish_plain(&mut self, out: &mut Buf) {
        self.encoder.flush(out);
    }

    /// Ends the answer's body where trailers were to come and did not: the client is told what is wrong.
    pub fn finish_error(&mut self, kind: ErrorKind, out: &mut Buf) {
        let status = grpc_status_of(kind).to_string();
        let message = message_of(kind);
        let told = [(STATUS_FIELDS[0], status), (STATUS_FIELDS[1], message)];
        let fields = told.each_ref().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        self.finish(&fields, out);
    }

    /// Ends an answer of trailers only, whose status stands in its head: it moves from there into
    /// the body, where pages may read it without the permission of CORS. False, and nothing done,
    /// where the head has no status, so that a body and trailers are still to come.
    pub fn trailers_only(&mut self, head: &mut ResponseHead, out: &mut Buf) -> bool {
        if head.values_named(STATUS_FIELDS[0]).next().is_none() {
            return false;
        }
        let moved: Vec<(&[u8], &[u8])> = STATUS_FIELDS
            .iter()
            .filter_map(|name| Some((name.as_bytes(), head.values_named(name).next()?)))
            .collect();
        self.finish(&moved, out);
        for name in STATUS_FIELDS {
            head.remove(name);
        }
        true
    }
}

const GRPC: &[u8] = b"application/grpc";
const WEB: &[u8] = b"application/grpc-web";
const WEB_TEXT: &[u8] = b"application/grpc-web-text";

/// What a head says of a call that has ended with it; the status first.
const STATUS_FIELDS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];

/// First byte of the frame that holds trailers; that of a message is 0, or 1 where it is compressed.
const TRAILER_FRAME: u8 = 0x80;
/// Bytes of a frame before its message: flags, and the length in four bytes.
const FRAME_HEAD_BYTES: usize = 5;

/// Whether a media type of gRPC-Web is that of base64, and its suffix.
fn web_type(value: &[u8]) -> Option<(bool, &[u8])> {
    let text = suffix(value, WEB_TEXT).map(|suffix| (true, suffix));
    text.or_else(|| suffix(value, WEB).map(|suffix| (false, suffix)))
}

/// The suffix of gRPC's own media type.
fn grpc_suffix(value: &[u8]) -> Option<&[u8]> {
    suffix(value, GRPC)
}

/// What stands behind `name` in a media type without its parameters: nothing, or `+` and a word.
fn suffix<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let bare = value.split(|byte| *byte == b';').next()?.trim_ascii();
    let (start, suffix) = bare.split_at_checked(name.len())?;
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
    let fits = match suffix {
        [] => true,
        [b'+', rest @ ..] => !rest.is_empty() && rest.iter().all(word),
        _ => false,
    };
    (fits && start.eq_ignore_ascii_case(name)).then_some(suffix)
}

/// Where an answer stands in its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Frames {
    head: [u8; FRAME_HEAD_BYTES],
    /// Bytes of the head that have come.
    have: usize,
    /// Bytes of the message that have not.
    left: u64,
}

impl Frames {
    /// How many of `bytes` belong to the message that they begin with or go on with, and whether it
    /// ends with them.
    fn advance(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut count = 0;
        if self.have < FRAME_HEAD_BYTES {
            count = bytes.len().min(FRAME_HEAD_BYTES - self.have);
            self.head[self.have..self.have + count].copy_from_slice(&bytes[..count]);
            self.have += count;
            if self.have < FRAME_HEAD_BYTES {
                return (count, false);
            }
            let [_, length @ ..] = self.head;
            self.left = u64::from(u32::from_be_bytes(length));
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let message = room.min(bytes.len() - count);
        self.left -= message as u64;
        let ends = self.left == 0;
        if ends {
            self.have = 0;
        }
        (count + message, ends)
    }
}

/// Base64 (RFC 4648 section 4) out of pieces. Padding may stand anywhere behind four characters: pages
/// encode one message after the other and send them as one body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Decoder {
    bits: u32,
    /// Characters of the four that have come, padding included.
    count: u8,
    padding: u8,
}

impl Decoder {
    /// None where it is not base64.
    fn push(&mut self, bytes: &[u8], out: &mut Buf) -> Option<()> {
        out.reserve(bytes.len() / 4 * 3 + 3);
        for byte in bytes {
            self.count += 1;
            let value = match DIGITS[usize::from(*byte)] {
                NO_DIGIT if *byte == b'=' && self.count > 2 => {
                    self.padding += 1;
                    0
                }
                value if value != NO_DIGIT && self.padding == 0 => value,
                _ => return None,
            };
            self.bits = self.bits << 6 | u32::from(value);
            if self.count == 4 {
                self.take(out)?;
            }
        }
        Some(())
    }

    fn take(&mut self, out: &mut Buf) -> Option<()> {
        // Section 3.5: what the padding leaves over is zero, so that a text has one form.
        let kept = 3 - usize::from(self.padding);
        let [_, bytes @ ..] = self.bits.to_be_bytes();
        if bytes[kept..].iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend(&bytes[..kept]);
        *self = Decoder::default();
        Some(())
    }
}

/// Base64 into pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Encoder {
    /// Bytes that wait for more: at most two.
    held: [u8; 3],
    count: usize,
}

impl Encoder {
    fn push(&mut self, bytes: &[u8], out: &mut Buf) {
        out.reserve((self.count + bytes.len()) / 3 * 4 + 4);
        let mut rest = bytes;
        while self.count > 0 && self.count < 3 && !rest.is_empty() {
            self.held[self.count] = rest[0];
            self.count += 1;
            rest = &rest[1..];
        }
        if self.count == 3 {
            out.extend(&characters(self.held));
            self.count = 0;
        }
        if rest.is_empty() {
            return;
        }
        let (threes, rest) = rest.as_chunks::<3>();
        threes.iter().for_each(|three| out.extend(&characters(*three)));
        self.held[..rest.len()].copy_from_slice(rest);
        self.count = rest.len();
    }

    /// Writes what waits, padded.
    fn flush(&mut self, out: &mut Buf) {
        if self.count == 0 {
            return;
        }
        self.held[self.count..].fill(0);
        let mut padded = characters(self.held);
        padded[self.count + 1..].fill(b'=');
        out.extend(&padded);
        self.count = 0;
    }
}

fn characters([a, b, c]: [u8; 3]) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, a, b, c]);
    [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 0x3f) as usize])
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const NO_DIGIT: u8 = 0xff;

/// Value of each character.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        digits[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

#[cfg(test)]
mod tests;
