//! Heads (RFC 9112 sections 2 to 5): httparse does the work where a head arrives whole and is well
//! formed; `scan` follows those that come in pieces and names the errors.

use std::mem::MaybeUninit;

use httparse::{Header, Request, Response, Status};

use super::scan::{Message, Scan};
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::{Field, HeadLimits, Known, RequestHead, ResponseHead, Span, Version};
use crate::limits::{HEADERS_MAX, LEADING_EMPTY_LINES_MAX, METHOD_BYTES_MAX};

/// Parses request heads, one after the other.
#[derive(Debug)]
pub struct RequestParser {
    scan: Scan,
    empty_lines: usize,
}

/// Parses response heads, one after the other.
#[derive(Debug)]
pub struct ResponseParser {
    scan: Scan,
}

impl RequestParser {
    /// Forgets a head that was begun; a head that was parsed whole is forgotten by itself.
    pub fn reset(&mut self) {
        *self = RequestParser::default();
    }

    /// Looks at `head.bytes`. True: the head is complete and `head` is filled in. False: more bytes
    /// are needed; the next call looks only at those. Empty lines before the request line are
    /// consumed, so that spans and `head_len` begin with the method.
    ///
    /// An error is returned with the first byte that proves it, however the bytes came in.
    pub fn parse(
        &mut self,
        head: &mut RequestHead,
        limits: &HeadLimits,
    ) -> Result<bool, ErrorKind> {
        if self.scan.is_fresh() {
            if !self.skip_empty_lines(&mut head.bytes)? {
                return Ok(false);
            }
            if fill_request(head, limits) {
                self.reset();
                return Ok(true);
            }
        }
        if !self.scan.advance(head.bytes.filled(), limits)? {
            return Ok(false);
        }
        // What the scan accepts httparse accepts too: fuzz/ holds one against the other.
        let filled = fill_request(head, limits);
        self.reset();
        if filled { Ok(true) } else { Err(ErrorKind::HeadMalformed) }
    }

    /// RFC 9112 section 2.2: a server skips at least one empty line before a request line. True
    /// where a request line begins.
    fn skip_empty_lines(&mut self, bytes: &mut Buf) -> Result<bool, ErrorKind> {
        loop {
            match bytes.filled() {
                [b'\r', b'\n', ..] if self.empty_lines < LEADING_EMPTY_LINES_MAX => {
                    bytes.consume(2);
                    self.empty_lines += 1;
                }
                [] => return Ok(false),
                [b'\r'] if self.empty_lines < LEADING_EMPTY_LINES_MAX => return Ok(false),
                [b'\r' | b'\n', ..] => return Err(ErrorKind::HeadMalformed),
                _ => return Ok(true),
            }
        }
    }
}

impl ResponseParser {
    /// Forgets a head that was begun; a head that was parsed whole is forgotten by itself.
    pub fn reset(&mut self) {
        *self = ResponseParser::default();
    }

    /// The same as [`RequestParser::parse`]; no empty line may stand before a status line. Errors
    /// are `ResponseMalformed` and `ResponseHeadTooLarge`.
    pub fn parse(
        &mut self,
        head: &mut ResponseHead,
        limits: &HeadLimits,
    ) -> Result<bool, ErrorKind> {
        if self.scan.is_fresh() && fill_response(head, limits) {
            return Ok(true);
        }
        match self.scan.advance(head.bytes.filled(), limits) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(ErrorKind::HeadTooLarge) => return Err(ErrorKind::ResponseHeadTooLarge),
            Err(_) => return Err(ErrorKind::ResponseMalformed),
        }
        let filled = fill_response(head, limits);
        self.reset();
        if filled { Ok(true) } else { Err(ErrorKind::ResponseMalformed) }
    }
}

impl Default for RequestParser {
    fn default() -> RequestParser {
        RequestParser { scan: Scan::new(Message::Request), empty_lines: 0 }
    }
}

impl Default for ResponseParser {
    fn default() -> ResponseParser {
        ResponseParser { scan: Scan::new(Message::Response) }
    }
}

/// False where the head is incomplete or anything is wrong with it: `scan` says what.
fn fill_request(head: &mut RequestHead, limits: &HeadLimits) -> bool {
    let RequestHead { bytes, fields, .. } = head;
    let bytes = window(bytes.filled(), limits);
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let slots = &mut slots[..limits.headers_max.min(HEADERS_MAX)];
    let mut request = Request::new(&mut []);
    let Ok(Status::Complete(head_len)) = request.parse_with_uninit_headers(bytes, slots) else {
        return false;
    };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return false;
    };
    // httparse takes UTF-8 in a target and knows no bounds.
    if method.len() > METHOD_BYTES_MAX || target.len() > limits.uri_bytes_max || !target.is_ascii()
    {
        return false;
    }
    let Some(fields_start) = copy_fields(bytes, request.headers, head_len, fields) else {
        return false;
    };
    head.method = Span::new(0, method.len());
    head.target = Span::new(method.len() + 1, method.len() + 1 + target.len());
    head.version = if version == 0 { Version::Http10 } else { Version::Http11 };
    head.fields_start = fields_start;
    head.head_len = head_len;
    true
}

/// The same for a response.
fn fill_response(head: &mut ResponseHead, limits: &HeadLimits) -> bool {
    let ResponseHead { bytes, fields, .. } = head;
    let bytes = window(bytes.filled(), limits);
    // httparse would skip empty lines.
    if bytes.first() != Some(&b'H') {
        return false;
    }
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let slots = &mut slots[..limits.headers_max.min(HEADERS_MAX)];
    let mut response = Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        slots,
    );
    let (Ok(Status::Complete(head_len)), Some(status), Some(version)) =
        (parsed, response.code, response.version)
    else {
        return false;
    };
    let Some(fields_start) = copy_fields(bytes, response.headers, head_len, fields) else {
        return false;
    };
    if status < 100 {
        return false;
    }
    // httparse drops reasons with bytes above 0x7F: taken from the line itself.
    let line_end = fields_start - 2;
    head.status = status;
    head.reason = Span::new((STATUS_LINE_BYTES + 1).min(line_end), line_end);
    head.version = if version == 0 { Version::Http10 } else { Version::Http11 };
    head.fields_start = fields_start;
    head.head_len = head_len;
    true
}

fn window<'a>(bytes: &'a [u8], limits: &HeadLimits) -> &'a [u8] {
    &bytes[..bytes.len().min(limits.head_bytes_max)]
}

/// Turns httparse's slices into spans and returns where the fields begin; nothing where a line ends
/// with a bare LF, which httparse takes. A field's line ends where the next one begins.
fn copy_fields(
    bytes: &[u8],
    headers: &[Header<'_>],
    head_len: usize,
    fields: &mut Vec<Field>,
) -> Option<usize> {
    fields.clear();
    fields.reserve(headers.len());
    let fields_end = head_len - 2;
    let mut strict = bytes[fields_end] == b'\r' && bytes[fields_end - 2] == b'\r';
    for header in headers {
        let start = offset(bytes, header.name.as_bytes());
        // A CR cannot stand inside a value, so that one before the LF belongs to the line's end.
        strict &= bytes[start - 2] == b'\r';
        if let Some(last) = fields.last_mut() {
            last.line_end = start as u32;
        }
        let name = Span::new(start, start + header.name.len());
        let value = match header.value {
            [] => Span::new(name.end as usize + 1, name.end as usize + 1),
            value => {
                let value_start = offset(bytes, value);
                Span::new(value_start, value_start + value.len())
            }
        };
        let known = Known::of(header.name.as_bytes());
        fields.push(Field { name, value, line_end: fields_end as u32, known });
    }
    let start = fields.first().map_or(fields_end, |field| field.name.start as usize);
    strict.then_some(start)
}

/// Where `part` lies in `bytes`.
#[inline]
fn offset(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - bytes.as_ptr().addr()
}

/// `HTTP/1.1 200`
const STATUS_LINE_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::*;

    const LIMITS: HeadLimits =
        HeadLimits { head_bytes_max: 200, headers_max: 4, uri_bytes_max: 20 };

    fn whole(bytes: &[u8]) -> (RequestHead, Result<bool, ErrorKind>) {
        let mut head = RequestHead { bytes: Buf::from(bytes), ..RequestHead::default() };
        let verdict = RequestParser::default().parse(&mut head, &LIMITS);
        (head, verdict)
    }

    /// The verdict, and how many bytes it took.
    fn bytewise(bytes: &[u8]) -> (Result<bool, ErrorKind>, usize) {
        let mut head = RequestHead::default();
        let mut parser = RequestParser::default();
        for (at, byte) in bytes.iter().enumerate() {
            head.bytes.extend(&[*byte]);
            match parser.parse(&mut head, &LIMITS) {
                Ok(false) => {}
                verdict => return (verdict, at + 1),
            }
        }
        (Ok(false), bytes.len())
    }

    fn response(bytes: &[u8]) -> (ResponseHead, Result<bool, ErrorKind>) {
        let mut head = ResponseHead { bytes: Buf::from(bytes), ..ResponseHead::default() };
        let verdict = ResponseParser::default().parse(&mut head, &LIMITS);
        (head, verdict)
    }

    #[test]
    fn a_request_becomes_spans() {
        let text = b"\r\nPUT /a?b HTTP/1.0\r\nHost: x\r\nA:\t b c \t\r\nEmpty:  \r\n\r\nrest";
        let (head, verdict) = whole(text);
        assert_eq!(verdict, Ok(true));
        assert_eq!(head.text(head.method), b"PUT");
        assert_eq!(head.text(head.target), b"/a?b");
        assert_eq!(head.version, Version::Http10);
        assert_eq!(head.fields_start, 19);
        assert_eq!(head.rest(), b"rest");
        let values: Vec<_> = head.fields.iter().map(|field| head.text(field.value)).collect();
        assert_eq!(values, [b"x".as_slice(), b"b c", b""]);
        let lines: Vec<_> = head
            .fields
            .iter()
            .map(|field| &head.bytes.filled()[field.name.start as usize..field.line_end as usize])
            .collect();
        assert_eq!(lines, [b"Host: x\r\n".as_slice(), b"A:\t b c \t\r\n", b"Empty:  \r\n"]);
        assert_eq!(head.fields[0].known, Known::Host);
    }

    #[test]
    fn bytes_above_ascii_pass_in_values_only() {
        let (head, verdict) = whole(b"GET / HTTP/1.1\r\nA: \xff\x80\r\n\r\n");
        assert_eq!(verdict, Ok(true));
        assert_eq!(head.text(head.fields[0].value), b"\xff\x80");
        assert_eq!(whole("GET /é HTTP/1.1\r\n\r\n".as_bytes()).1, Err(TargetInvalid));
        assert_eq!(whole(b"GET / HTTP/1.1\r\nA\xe9: b\r\n\r\n").1, Err(HeadMalformed));
    }

    /// RFC 9112 sections 2.2, 3, 5, 5.1, 5.2: each with the number of bytes that prove it.
    #[test]
    fn errors_come_with_the_first_byte_that_proves_them() {
        let cases: &[(&[u8], ErrorKind, usize)] = &[
            (b"GET / HTTP/1.1\nHost: x\r\n\r\n", HeadMalformed, 15),
            (b"GET / HTTP/1.1\r\nHost: x\n\r\n", HeadMalformed, 24),
            (b"GET / HTTP/1.1\r\nHost: x\r\n\n", HeadMalformed, 26),
            (b"GET / HTTP/1.1\r\nHost: x\ry\r\n\r\n", HeadMalformed, 25),
            (b"GET / HTTP/1.1\r\nHost: x\r\n y\r\n\r\n", HeadMalformed, 26),
            (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", HeadMalformed, 17),
            (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", HeadMalformed, 21),
            (b"GET / HTTP/1.1\r\n: x\r\n\r\n", HeadMalformed, 17),
            (b"GET / HTTP/1.1\r\nA: \0\r\n\r\n", HeadMalformed, 20),
            (b"GET / HTTP/1.1\r\nA: \x7f\r\n\r\n", HeadMalformed, 20),
            (b"GET / HTTP/1.1\r\nA\r\n\r\n", HeadMalformed, 18),
            (b"GET  / HTTP/1.1\r\n\r\n", HeadMalformed, 5),
            (b"GET /  HTTP/1.1\r\n\r\n", HeadMalformed, 7),
            (b"GET / HTTP/1.1 \r\n\r\n", HeadMalformed, 15),
            (b" GET / HTTP/1.1\r\n\r\n", HeadMalformed, 1),
            (b"G(T / HTTP/1.1\r\n\r\n", HeadMalformed, 2),
            (b"GET /\r\n\r\n", HeadMalformed, 6),
            (b"GET / http/1.1\r\n\r\n", HeadMalformed, 7),
            (b"GET / HTTP/1.10\r\n\r\n", HeadMalformed, 15),
            (b"GET / HTTP/1.2\r\n\r\n", VersionUnsupported, 15),
            (b"GET / HTTP/0.9\r\n\r\n", VersionUnsupported, 15),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VersionUnsupported, 15),
            (b"\nGET / HTTP/1.1\r\n\r\n", HeadMalformed, 1),
            (b"\rGET / HTTP/1.1\r\n\r\n", HeadMalformed, 2),
            (b"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", HeadMalformed, 9),
            (b"GET /23456789012345678901 HTTP/1.1\r\n\r\n", UriTooLong, 25),
            (b"GET / HTTP/1.1\r\na:\r\nb:\r\nc:\r\nd:\r\ne:\r\n\r\n", HeadTooLarge, 33),
        ];
        for (bytes, kind, proved) in cases {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(whole(bytes).1, Err(*kind), "{text:?}");
            assert_eq!(bytewise(bytes), (Err(*kind), *proved), "{text:?}");
            assert_eq!(whole(&bytes[..*proved]).1, Err(*kind), "{text:?}");
            assert_eq!(whole(&bytes[..*proved - 1]).1, Ok(false), "{text:?}");
        }
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        let method = |bytes| format!("{} / HTTP/1.1\r\n\r\n", "M".repeat(bytes)).into_bytes();
        assert_eq!(whole(&method(METHOD_BYTES_MAX)).1, Ok(true));
        assert_eq!(whole(&method(METHOD_BYTES_MAX + 1)).1, Err(MethodRefused));
        let target = |bytes| format!("GET {} HTTP/1.1\r\n\r\n", "/".repeat(bytes)).into_bytes();
        assert_eq!(whole(&target(LIMITS.uri_bytes_max)).1, Ok(true));
        assert_eq!(whole(&target(LIMITS.uri_bytes_max + 1)).1, Err(UriTooLong));
        let fields =
            |count| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count)).into_bytes();
        assert_eq!(whole(&fields(LIMITS.headers_max)).1, Ok(true));
        assert_eq!(whole(&fields(LIMITS.headers_max + 1)).1, Err(HeadTooLarge));
        let head = |bytes: usize| {
            format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(bytes - 23)).into_bytes()
        };
        assert_eq!(head(LIMITS.head_bytes_max).len(), LIMITS.head_bytes_max);
        assert_eq!(whole(&head(LIMITS.head_bytes_max)).1, Ok(true));
        let too_large = head(LIMITS.head_bytes_max + 1);
        assert_eq!(whole(&too_large).1, Err(HeadTooLarge));
        assert_eq!(bytewise(&too_large), (Err(HeadTooLarge), LIMITS.head_bytes_max));
        let lines = |count| [b"\r\n".repeat(count), b"GET / HTTP/1.1\r\n\r\n".to_vec()].concat();
        assert_eq!(whole(&lines(LEADING_EMPTY_LINES_MAX)).1, Ok(true));
        assert_eq!(whole(&lines(LEADING_EMPTY_LINES_MAX + 1)).1, Err(HeadMalformed));
    }

    #[test]
    fn one_parser_serves_one_head_after_the_other() {
        let text = b"GET /1 HTTP/1.1\r\n\r\n\r\nGET /2 HTTP/1.1\r\nA: b\r\n\r\n";
        for split in 0..text.len() {
            let mut head =
                RequestHead { bytes: Buf::from(&text[..split]), ..RequestHead::default() };
            let mut parser = RequestParser::default();
            let mut targets = Vec::new();
            let mut fed = false;
            while targets.len() < 2 {
                if parser.parse(&mut head, &LIMITS).expect("well formed") {
                    targets.push(head.text(head.target).to_vec());
                    head.bytes.consume(head.head_len);
                } else {
                    assert!(!fed, "split at {split}");
                    fed = true;
                    head.bytes.extend(&text[split..]);
                }
            }
            assert_eq!(targets, [b"/1", b"/2"]);
        }
    }

    #[test]
    fn a_response_becomes_spans() {
        let (head, verdict) = response(b"HTTP/1.1 404 Not \xe9 Found\r\nDate: x\r\n\r\nrest");
        assert_eq!(verdict, Ok(true));
        assert_eq!((head.status, head.version), (404, Version::Http11));
        assert_eq!(head.text(head.reason), b"Not \xe9 Found");
        assert_eq!(head.rest(), b"rest");
        for text in [b"HTTP/1.0 200 \r\n\r\n".as_slice(), b"HTTP/1.0 200\r\n\r\n"] {
            let (head, verdict) = response(text);
            assert_eq!((verdict, head.status, head.reason.len()), (Ok(true), 200, 0));
        }
    }

    /// RFC 9112 section 4
    #[test]
    fn a_malformed_response_is_refused() {
        let cases: &[&[u8]] = &[
            b"HTTP/1.1 99 x\r\n\r\n",
            b"HTTP/1.1 099 x\r\n\r\n",
            b"HTTP/1.1 2000 x\r\n\r\n",
            b"HTTP/1.1  200 x\r\n\r\n",
            b"HTTP/2.0 200 x\r\n\r\n",
            b"HTTP/1.1 200 x\n\r\n",
            b"HTTP/1.1 200\n\r\n",
            b"HTTP/1.1 200 \x07\r\n\r\n",
            b"\r\nHTTP/1.1 200 x\r\n\r\n",
            b"SSH-2.0-x\r\n",
            b"HTTP/1.1 200 x\r\nA: b\r\n c\r\n\r\n",
            b"HTTP/1.1 200 x\r\nA : b\r\n\r\n",
        ];
        for bytes in cases {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(response(bytes).1, Err(ResponseMalformed), "{text:?}");
        }
        let long = [b"HTTP/1.1 200 ".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(response(&long).1, Err(ResponseHeadTooLarge));
    }
}
