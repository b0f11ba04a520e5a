//! The head of an origin's answer (RFC 9113 section 8.3.2) in the form of HTTP/1, so that filters,
//! logs and the encoders of both versions work on it alike.

use http::response::Parts;

use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::{Field, HeadLimits, Known, ResponseHead, Span, Version};
use crate::limits::{BODY_BYTES_MAX, HEADERS_MAX};

/// Writes an answer's head into `head.bytes`, which is emptied before.
///
/// # Errors
/// `ResponseHeadTooLarge`; `UpgradeUnexpected` for 101 (RFC 9113 section 8.6); `ResponseMalformed`
/// for fields of a connection, a length that is none, and values that HTTP/1 could not tell.
pub fn read_response(
    parts: &Parts,
    head: &mut ResponseHead,
    limits: &HeadLimits,
) -> Result<(), ErrorKind> {
    if parts.status == http::StatusCode::SWITCHING_PROTOCOLS {
        return Err(ErrorKind::UpgradeUnexpected);
    }
    let headers_max = limits.headers_max.min(HEADERS_MAX);
    if parts.headers.len() > headers_max || length(parts) > limits.head_bytes_max {
        return Err(ErrorKind::ResponseHeadTooLarge);
    }
    if head.bytes.capacity() == 0 {
        head.bytes = Buf::for_head();
    }
    let ResponseHead { bytes, fields, .. } = head;
    bytes.clear();
    fields.clear();
    bytes.extend(STATUS_LINE);
    bytes.extend(parts.status.as_str().as_bytes());
    bytes.extend(b" ");
    bytes.extend(reason(parts).as_bytes());
    head.reason = Span::new(STATUS_LINE.len() + 4, bytes.len());
    bytes.extend(b"\r\n");
    head.fields_start = bytes.len();
    let mut lengths = 0;
    for (name, value) in &parts.headers {
        let known = Known::of(name.as_str().as_bytes());
        if is_of_connection(known) || !is_trimmed(value.as_bytes()) {
            return Err(ErrorKind::ResponseMalformed);
        }
        if known == Known::ContentLength {
            lengths += 1;
            if lengths > 1 || !is_length(value.as_bytes()) {
                return Err(ErrorKind::ResponseMalformed);
            }
        }
        let start = bytes.len();
        bytes.extend(name.as_str().as_bytes());
        let name = Span::new(start, bytes.len());
        bytes.extend(b": ");
        let start = bytes.len();
        bytes.extend(value.as_bytes());
        let value = Span::new(start, bytes.len());
        bytes.extend(b"\r\n");
        fields.push(Field { name, value, line_end: bytes.len() as u32, known });
    }
    bytes.extend(b"\r\n");
    head.head_len = bytes.len();
    head.status = parts.status.as_u16();
    head.version = Version::Http2;
    Ok(())
}

/// As HTTP/1 has it: a head is the same, whichever way it came.
const STATUS_LINE: &[u8] = b"HTTP/1.1 ";

/// HTTP/2 has no reason phrases; HTTP/1 clients are told the usual one.
fn reason(parts: &Parts) -> &'static str {
    parts.status.canonical_reason().unwrap_or_default()
}

/// Bytes of the head.
fn length(parts: &Parts) -> usize {
    let line = STATUS_LINE.len() + 4 + reason(parts).len() + 2;
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + 2 + value.len() + 2
    };
    line + parts.headers.iter().map(field).sum::<usize>() + 2
}

/// RFC 9113 section 8.2.2: such a field makes a message malformed.
fn is_of_connection(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade
            | Known::Te
    )
}

/// RFC 9113 section 8.2.1: no white space at either end.
fn is_trimmed(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    !blank(value.first()) && !blank(value.last())
}

/// RFC 9110 section 8.6
fn is_length(value: &[u8]) -> bool {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    digits && number.is_some_and(|length| length <= BODY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn read(
        status: u16,
        fields: &[(&str, &[u8])],
        limits: &HeadLimits,
    ) -> Result<ResponseHead, ErrorKind> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let parts = response.body(()).expect("well formed").into_parts().0;
        let mut head = ResponseHead::default();
        read_response(&parts, &mut head, limits).map(|()| head)
    }

    #[test]
    fn an_answer_becomes_text_with_spans() {
        let fields: &[(&str, &[u8])] =
            &[("content-length", b"5"), ("x-a", b"\xe9 b"), ("x-a", b""), ("date", b"now")];
        let head = read(404, fields, &HeadLimits::default()).expect("it can be said");
        let text = b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\nx-a: \xe9 b\r\nx-a: \r\n\
            date: now\r\n\r\n";
        assert_eq!(head.bytes.filled(), text);
        assert_eq!((head.status, head.version), (404, Version::Http2));
        assert_eq!((head.text(head.reason), head.rest()), (&b"Not Found"[..], &b""[..]));
        assert_eq!(head.value(Known::ContentLength), Some(&b"5"[..]));
        let values: Vec<_> = head.values_named("x-a").collect();
        assert_eq!(values, [b"\xe9 b".as_slice(), b""]);
        assert_eq!(head.fields_start, 24);
        let unknown = read(299, &[], &HeadLimits::default()).expect("it can be said");
        assert_eq!(unknown.bytes.filled(), b"HTTP/1.1 299 \r\n\r\n");
    }

    /// RFC 9113 sections 8.1.1, 8.2.1, 8.2.2 and 8.6
    #[test]
    fn what_cannot_be_is_refused() {
        let cases: &[(&str, &[u8])] = &[
            ("connection", b"close"),
            ("keep-alive", b"5"),
            ("proxy-connection", b"close"),
            ("transfer-encoding", b"chunked"),
            ("upgrade", b"x"),
            ("te", b"trailers"),
            ("content-length", b"+5"),
            ("content-length", b""),
            ("content-length", b"9223372036854775808"),
            ("x", b" a"),
            ("x", b"a\t"),
        ];
        for field in cases {
            let verdict = read(200, &[*field], &HeadLimits::default());
            assert_eq!(verdict.err(), Some(ErrorKind::ResponseMalformed), "{field:?}");
        }
        let twice: &[(&str, &[u8])] = &[("content-length", b"5"), ("content-length", b"5")];
        let verdict = read(200, twice, &HeadLimits::default());
        assert_eq!(verdict.err(), Some(ErrorKind::ResponseMalformed));
        let verdict = read(101, &[], &HeadLimits::default());
        assert_eq!(verdict.err(), Some(ErrorKind::UpgradeUnexpected));
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        let limits = HeadLimits { head_bytes_max: 30, headers_max: 2, uri_bytes_max: 1 };
        // HTTP/1.1 200 OK and its line end are 17 bytes, the last line 2, the field 5 and its value.
        assert!(read(200, &[("a", b"123456")], &limits).is_ok());
        let above = read(200, &[("a", b"1234567")], &limits);
        assert_eq!(above.err(), Some(ErrorKind::ResponseHeadTooLarge));
        let limits = HeadLimits { head_bytes_max: 100, ..limits };
        assert!(read(200, &[("a", b"1"), ("b", b"2")], &limits).is_ok());
        let above = read(200, &[("a", b"1"), ("b", b"2"), ("a", b"3")], &limits);
        assert_eq!(above.err(), Some(ErrorKind::ResponseHeadTooLarge));
    }
}
