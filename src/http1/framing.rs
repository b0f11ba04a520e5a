//! Message body framing (RFC 9112 section 6): every smuggling rule.
//!
//! What two readers may understand differently is refused, not repaired.

use crate::error::ErrorKind;
use crate::http::head::list_members;
use crate::http::{BodyFraming, Field, Known, RequestHead, ResponseHead, Version};
use crate::limits::BODY_BYTES_MAX;

/// How a response's body ends, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFraming {
    /// How the end of the body is found.
    pub body: BodyFraming,
    /// Whether the upstream connection may carry another request afterwards. After an interim
    /// response it says whether the origin can be believed at all.
    pub reusable: bool,
    /// Content-Length must not be passed on: Transfer-Encoding overrides it (RFC 9112 section 6.3),
    /// or the status forbids it (RFC 9110 section 8.6).
    pub drop_content_length: bool,
}

/// How the end of a request's body is found.
///
/// # Errors
/// `FramingAmbiguous`; `CodingUnknown` for codings before a final `chunked`.
pub fn request_framing(head: &RequestHead) -> Result<BodyFraming, ErrorKind> {
    let bytes = head.bytes.filled();
    let lengths = Values::of(bytes, &head.fields, Known::ContentLength);
    let codings = Values::of(bytes, &head.fields, Known::TransferEncoding);
    match (lengths, codings) {
        // RFC 9112 section 6.3 item 7: neither means no body; a request never ends with the
        // connection.
        (Values::None, Values::None) => Ok(BodyFraming::None),
        // Section 6.3 item 6, with item 5 for everything that is not one plain number.
        (Values::One(value), Values::None) => {
            content_length(value).map(BodyFraming::Length).ok_or(ErrorKind::FramingAmbiguous)
        }
        // Section 6.3 item 5: a server may also take identical values for one; we do not.
        (Values::Many, Values::None) => Err(ErrorKind::FramingAmbiguous),
        // Section 6.3 item 3: a message with both might be an attempt at smuggling.
        (Values::One(_) | Values::Many, Values::One(_) | Values::Many) => {
            Err(ErrorKind::FramingAmbiguous)
        }
        // Section 6.1: in HTTP/1.0 Transfer-Encoding is faulty framing.
        (Values::None, _) if head.version == Version::Http10 => Err(ErrorKind::FramingAmbiguous),
        (Values::None, Values::One(value)) if is_chunked(value) => Ok(BodyFraming::Chunked),
        (Values::None, _) => Err(coding_error(head)),
    }
}

/// How the end of a response's body is found; `request_is_head` says that HEAD was asked.
///
/// # Errors
/// `ResponseMalformed`
pub fn response_framing(
    head: &ResponseHead,
    request_is_head: bool,
) -> Result<ResponseFraming, ErrorKind> {
    let bytes = head.bytes.filled();
    // Both are checked before anything else: a response without a body may carry them too, and
    // they are passed on.
    let length = match Values::of(bytes, &head.fields, Known::ContentLength) {
        Values::None => None,
        // RFC 9112 section 6.3 item 5: a proxy must answer 502 and close that connection.
        Values::One(value) => Some(content_length(value).ok_or(ErrorKind::ResponseMalformed)?),
        Values::Many => return Err(ErrorKind::ResponseMalformed),
    };
    let chunked = match Values::of(bytes, &head.fields, Known::TransferEncoding) {
        Values::None => false,
        // Section 6.1: in HTTP/1.0 Transfer-Encoding is faulty framing. Section 6.3 item 4.2 would
        // let other codings run until the close; we asked for none (no TE is sent, section 7.4).
        Values::One(value) if is_chunked(value) && head.version == Version::Http11 => true,
        _ => return Err(ErrorKind::ResponseMalformed),
    };
    let keep_alive = keep_alive_response(head);
    let framing = |body, reusable| ResponseFraming {
        body,
        reusable: reusable && keep_alive,
        drop_content_length: chunked && length.is_some(),
    };
    Ok(match (head.status, chunked, length) {
        // Section 6.3 item 1; RFC 9110 section 8.6 forbids Content-Length and RFC 9112 section 6.1
        // Transfer-Encoding here: whoever sends one may send a body as well.
        (100..=199 | 204, _, _) => ResponseFraming {
            drop_content_length: length.is_some(),
            ..framing(BodyFraming::None, !chunked && length.unwrap_or(0) == 0)
        },
        // Section 6.3 item 1: here both describe the body that is not sent.
        (304, _, _) => framing(BodyFraming::None, !(chunked && length.is_some())),
        _ if request_is_head => framing(BodyFraming::None, !(chunked && length.is_some())),
        // Section 6.3 item 3: Transfer-Encoding overrides, Content-Length is not forwarded.
        (_, true, length) => framing(BodyFraming::Chunked, length.is_none()),
        // Section 6.3 item 6.
        (_, false, Some(length)) => framing(BodyFraming::Length(length), true),
        // Section 6.3 item 8.
        (_, false, None) => framing(BodyFraming::UntilClose, false),
    })
}

/// Whether the client wants the connection kept (RFC 9112 section 9.3).
pub fn keep_alive_request(head: &RequestHead) -> bool {
    keep_alive(head.bytes.filled(), &head.fields, head.version)
}

/// Whether the upstream keeps the connection (RFC 9112 section 9.3).
pub fn keep_alive_response(head: &ResponseHead) -> bool {
    keep_alive(head.bytes.filled(), &head.fields, head.version)
}

/// Section 9.3: `close` wins; else 1.1 persists, and 1.0 with `keep-alive`.
fn keep_alive(bytes: &[u8], fields: &[Field], version: Version) -> bool {
    let mut keep = version == Version::Http11;
    for field in fields.iter().filter(|field| field.known == Known::Connection) {
        for option in list_members(field.value.of(bytes)) {
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keep |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    keep
}

/// The field lines of one name.
enum Values<'a> {
    None,
    One(&'a [u8]),
    Many,
}

impl<'a> Values<'a> {
    fn of(bytes: &'a [u8], fields: &[Field], known: Known) -> Values<'a> {
        let mut values = fields.iter().filter(|field| field.known == known);
        match (values.next(), values.next()) {
            (None, _) => Values::None,
            (Some(field), None) => Values::One(field.value.of(bytes)),
            (Some(_), Some(_)) => Values::Many,
        }
    }
}

/// RFC 9110 section 8.6: 1*DIGIT and nothing else; none where it does not fit 64 bits.
fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    let length = value.iter().try_fold(0u64, |length, byte| match byte {
        b'0'..=b'9' => length.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    });
    length.filter(|length| *length <= BODY_BYTES_MAX)
}

/// RFC 9112 section 7: names of codings are case-insensitive; `chunked` has no parameters.
fn is_chunked(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"chunked")
}

/// RFC 9112 section 6.1: 501 for codings that we do not know, as long as a final `chunked` frames
/// the body; section 6.3 item 4.3: else the end cannot be found, 400.
fn coding_error(head: &RequestHead) -> ErrorKind {
    let mut members = head
        .values(Known::TransferEncoding)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    let mut last_chunked = false;
    let ambiguous = members.any(|member| {
        // Nothing may follow `chunked`, and an empty member is no coding.
        let follows = std::mem::replace(&mut last_chunked, is_chunked(member));
        member.is_empty() || follows
    });
    match !ambiguous && last_chunked {
        true => ErrorKind::CodingUnknown,
        false => ErrorKind::FramingAmbiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Buf;
    use crate::http::HeadLimits;
    use crate::http1::head::{RequestParser, ResponseParser};
    use ErrorKind::*;

    fn request(version: &str, fields: &str) -> RequestHead {
        let text = format!("POST / {version}\r\n{fields}\r\n");
        let mut head = RequestHead { bytes: Buf::from(text.as_bytes()), ..RequestHead::default() };
        assert_eq!(RequestParser::default().parse(&mut head, &HeadLimits::default()), Ok(true));
        head
    }

    fn response(line: &str, fields: &str) -> ResponseHead {
        let text = format!("{line}\r\n{fields}\r\n");
        let mut head =
            ResponseHead { bytes: Buf::from(text.as_bytes()), ..ResponseHead::default() };
        assert_eq!(ResponseParser::default().parse(&mut head, &HeadLimits::default()), Ok(true));
        head
    }

    /// RFC 9112 sections 6.1 to 6.3
    #[test]
    fn requests_are_framed_or_refused() {
        let cases: &[(&str, Result<BodyFraming, ErrorKind>)] = &[
            ("", Ok(BodyFraming::None)),
            ("Content-Length: 0\r\n", Ok(BodyFraming::Length(0))),
            ("content-length:\t0010 \r\n", Ok(BodyFraming::Length(10))),
            ("Content-Length: 9223372036854775807\r\n", Ok(BodyFraming::Length(BODY_BYTES_MAX))),
            ("Content-Length: 9223372036854775808\r\n", Err(FramingAmbiguous)),
            ("Content-Length: 18446744073709551616\r\n", Err(FramingAmbiguous)),
            ("Content-Length: +5\r\n", Err(FramingAmbiguous)),
            ("Content-Length: -5\r\n", Err(FramingAmbiguous)),
            ("Content-Length: 0x5\r\n", Err(FramingAmbiguous)),
            ("Content-Length: 1 2\r\n", Err(FramingAmbiguous)),
            ("Content-Length: 5, 5\r\n", Err(FramingAmbiguous)),
            ("Content-Length:\r\n", Err(FramingAmbiguous)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: chunked\r\n", Ok(BodyFraming::Chunked)),
            ("transfer-encoding: Chunked\t\r\n", Ok(BodyFraming::Chunked)),
            ("Transfer_Encoding: chunked\r\n", Ok(BodyFraming::None)),
            ("Transfer-Encoding:\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: chunked,\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: xchunked\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: \"chunked\"\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: chunked;a=b\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: gzip\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: chunked, identity\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: chunked, chunked\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: chunked, gzip, chunked\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(CodingUnknown)),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Err(CodingUnknown)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", Err(FramingAmbiguous)),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(FramingAmbiguous)),
            ("Content-Length: 5\r\nTransfer-Encoding: x\r\n", Err(FramingAmbiguous)),
        ];
        for (fields, expected) in cases {
            assert_eq!(request_framing(&request("HTTP/1.1", fields)), *expected, "{fields:?}");
        }
    }

    /// RFC 9112 section 6.1
    #[test]
    fn transfer_encoding_in_http_1_0_is_faulty() {
        let fields = "Transfer-Encoding: chunked\r\n";
        assert_eq!(request_framing(&request("HTTP/1.0", fields)), Err(FramingAmbiguous));
        let head = response("HTTP/1.0 200 OK", fields);
        assert_eq!(response_framing(&head, false), Err(ResponseMalformed));
    }

    /// RFC 9112 section 6.3: body, reusable, Content-Length dropped.
    #[test]
    fn responses_are_framed() {
        use BodyFraming::{Chunked, Length, None, UntilClose};
        const CL: &str = "Content-Length: 5\r\n";
        const TE: &str = "Transfer-Encoding: chunked\r\n";
        let both = format!("{TE}{CL}");
        let cases = [
            ("200", CL, false, (Length(5), true, false)),
            ("200", TE, false, (Chunked, true, false)),
            ("200", &both, false, (Chunked, false, true)),
            ("200", "", false, (UntilClose, false, false)),
            ("200", CL, true, (None, true, false)),
            ("200", TE, true, (None, true, false)),
            ("200", "", true, (None, true, false)),
            ("200", &both, true, (None, false, true)),
            ("304", CL, false, (None, true, false)),
            ("304", "", false, (None, true, false)),
            ("204", "", false, (None, true, false)),
            ("204", "Content-Length: 0\r\n", false, (None, true, true)),
            ("204", CL, false, (None, false, true)),
            ("204", TE, false, (None, false, false)),
            ("103", CL, false, (None, false, true)),
            ("101", "", false, (None, true, false)),
        ];
        for (status, fields, is_head, (body, reusable, length)) in cases {
            let framing =
                response_framing(&response(&format!("HTTP/1.1 {status} x"), fields), is_head);
            let expected = ResponseFraming { body, reusable, drop_content_length: length };
            assert_eq!(framing, Ok(expected), "{status} {fields:?} {is_head}");
        }
    }

    #[test]
    fn a_response_with_doubtful_framing_is_malformed() {
        let cases = [
            "Content-Length: 5\r\nContent-Length: 3\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5, 5\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\r\n",
        ];
        for fields in cases {
            for status in ["200", "204", "304"] {
                let head = response(&format!("HTTP/1.1 {status} x"), fields);
                assert_eq!(response_framing(&head, false), Err(ResponseMalformed), "{fields:?}");
            }
        }
    }

    /// RFC 9112 section 9.3
    #[test]
    fn close_wins_over_keep_alive() {
        let cases = [
            ("HTTP/1.1", "", true),
            ("HTTP/1.1", "Connection: Close\r\n", false),
            ("HTTP/1.1", "Connection: upgrade\r\nConnection: x, close\r\n", false),
            ("HTTP/1.0", "", false),
            ("HTTP/1.0", "Connection: Keep-Alive\r\n", true),
            ("HTTP/1.0", "Connection: keep-alive, close\r\n", false),
            ("HTTP/1.0", "Proxy-Connection: keep-alive\r\n", false),
        ];
        for (version, fields, expected) in cases {
            assert_eq!(keep_alive_request(&request(version, fields)), expected, "{fields:?}");
            let line = format!("{version} 200 OK");
            let head = response(&line, &format!("{fields}Content-Length: 0\r\n"));
            assert_eq!(keep_alive_response(&head), expected, "{fields:?}");
            assert_eq!(response_framing(&head, false).map(|f| f.reusable), Ok(expected));
        }
    }
}
