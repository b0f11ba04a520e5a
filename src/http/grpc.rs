//! What a gateway has to know of gRPC over HTTP/2 (the protocol's "PROTOCOL-HTTP2" page): the time a
//! call is given, and how an error is told to a client that looks at `grpc-status` only.

use crate::error::{ErrorKind, Side};
use crate::limits::TIMEOUT_MS_MAX;

/// Milliseconds that `grpc-timeout` gives a call: at most eight digits and a unit. Rounded up, so
/// that a call is never given less, and at most a day; `None` for anything else.
pub fn timeout_ms(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0u64, |count, digit| count * 10 + u64::from(digit - b'0'));
    let ms = match unit {
        b'H' => count * 3_600_000,
        b'M' => count * 60_000,
        b'S' => count * 1_000,
        b'm' => count,
        b'u' => count.div_ceil(1_000),
        b'n' => count.div_ceil(1_000_000),
        _ => return None,
    };
    Some(ms.min(TIMEOUT_MS_MAX))
}

/// Whether this is the content type of gRPC: `application/grpc`, alone or with a suffix.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let Some((start, rest)) = content_type.split_at_checked(GRPC.len()) else { return false };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

const GRPC: &[u8] = b"application/grpc";

/// `CANCELLED`
const CANCELLED: u8 = 1;
/// `UNKNOWN`
const UNKNOWN: u8 = 2;
/// `INVALID_ARGUMENT`
const INVALID_ARGUMENT: u8 = 3;
/// `DEADLINE_EXCEEDED`
const DEADLINE_EXCEEDED: u8 = 4;
/// `PERMISSION_DENIED`
const PERMISSION_DENIED: u8 = 7;
/// `RESOURCE_EXHAUSTED`
const RESOURCE_EXHAUSTED: u8 = 8;
/// `UNIMPLEMENTED`
const UNIMPLEMENTED: u8 = 12;
/// `INTERNAL`
const INTERNAL: u8 = 13;
/// `UNAVAILABLE`
const UNAVAILABLE: u8 = 14;
/// `UNAUTHENTICATED`
const UNAUTHENTICATED: u8 = 16;

/// The `grpc-status` of an answer that has this kind of error (docs/errors.md). A client may try
/// again after `UNAVAILABLE` only.
pub fn grpc_status_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::TotalTimeout
        | ErrorKind::ResponseTimeout
        | ErrorKind::ResponseBodyTimeout
        | ErrorKind::UpstreamWriteTimeout
        | ErrorKind::FilterTimeout => DEADLINE_EXCEEDED,
        ErrorKind::RateLimited
        | ErrorKind::BodyTooLarge
        | ErrorKind::HeadTooLarge
        | ErrorKind::ResponseHeadTooLarge => RESOURCE_EXHAUSTED,
        // Maybe served already: not to be tried again as if it had not been.
        ErrorKind::ResponseIncomplete
        | ErrorKind::ResponseMalformed
        | ErrorKind::UpgradeUnexpected
        | ErrorKind::UpgradeIgnored
        | ErrorKind::UpstreamReset
        | ErrorKind::Panicked => INTERNAL,
        kind if kind.side() == Side::Client => match kind.status() {
            408 => DEADLINE_EXCEEDED,
            414 | 417 => INVALID_ARGUMENT,
            499 => CANCELLED,
            501 | 505 => UNIMPLEMENTED,
            status => grpc_status_of_http(status),
        },
        _ => UNAVAILABLE,
    }
}

/// The `grpc-status` of an answer with this HTTP status that carries none: gRPC's own table
/// ("http-grpc-status-mapping").
pub fn grpc_status_of_http(status: u16) -> u8 {
    match status {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// `grpc-message` of an error of ours: its sentence and its code.
pub fn message_of(kind: ErrorKind) -> String {
    message(&format!("{} ({})", kind.text(), kind.code()))
}

/// `grpc-message`: percent-encoded but for printable ASCII without the percent sign.
pub fn message(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => {
                out.push('%');
                for digit in [byte >> 4, byte & 0xF] {
                    out.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_and_rounded_up() {
        let cases: &[(&[u8], Option<u64>)] = &[
            (b"1H", Some(3_600_000)),
            (b"2M", Some(120_000)),
            (b"3S", Some(3_000)),
            (b"250m", Some(250)),
            (b"1u", Some(1)),
            (b"1001u", Some(2)),
            (b"1000000n", Some(1)),
            (b"0n", Some(0)),
            (b"99999999H", Some(TIMEOUT_MS_MAX)),
            (b"99999999m", Some(TIMEOUT_MS_MAX)),
            (b"123456789m", None),
            (b"", None),
            (b"S", None),
            (b"1", None),
            (b"1s", None),
            (b"-1S", None),
            (b" 1S", None),
            (b"1.5S", None),
        ];
        for (value, expected) in cases {
            assert_eq!(timeout_ms(value), *expected, "{:?}", value.escape_ascii().to_string());
        }
    }

    #[test]
    fn grpc_is_told_by_its_content_type() {
        for yes in ["application/grpc", "Application/gRPC+proto", "application/grpc;x=y"] {
            assert!(is_grpc(yes.as_bytes()), "{yes}");
        }
        for no in ["application/grpc-web", "application/grpc-web+proto", "application/json", ""] {
            assert!(!is_grpc(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn messages_are_printable() {
        assert_eq!(message("100 % é\n"), "100 %25 %C3%A9%0A");
    }

    #[test]
    fn every_status_stands_in_the_docs() {
        let page = include_str!("../../docs/errors.md");
        for kind in ErrorKind::ALL {
            let status = grpc_status_of(*kind);
            assert!((1..=16).contains(&status));
            let row = format!("| {status} | ");
            let named = page
                .lines()
                .any(|line| line.starts_with(&row) && line.contains(&format!("`{}`", kind.code())));
            assert!(named, "{kind} is {status}");
        }
    }
}
