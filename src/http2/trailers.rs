//! Trailers (RFC 9113 section 8.1) between HTTP/2's fields and the trailer section of a chunked body
//! (RFC 9112 section 7.1.2). What has no place in one is dropped either way.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::base::buffer::Buf;
use crate::http::Known;
use crate::http::passing::is_hop_by_hop;
use crate::http::trailers::is_forbidden;
use crate::limits::{TRAILER_BYTES_MAX, TRAILERS_MAX};

/// The fields of a trailer section, with or without its last CRLF.
pub fn from_section(section: &[u8]) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    for line in section.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = &line[..colon];
        if !may_pass(name) {
            continue;
        }
        let name = HeaderName::from_bytes(name);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        // The parser has let nothing else through.
        if let (Ok(name), Ok(value)) = (name, value) {
            trailers.append(name, value);
        }
    }
    trailers
}

/// Appends the lines of a trailer section, without its last CRLF; those beyond
/// [`TRAILER_BYTES_MAX`] and [`TRAILERS_MAX`] are left out, as no HTTP/1 peer has to take them.
pub fn to_section(trailers: &HeaderMap, out: &mut Buf) {
    let mut left = TRAILER_BYTES_MAX;
    for (name, value) in trailers.iter().take(TRAILERS_MAX) {
        let name = name.as_str().as_bytes();
        if !may_pass(name) {
            continue;
        }
        let Some(rest) = left.checked_sub(name.len() + value.len() + 4) else { return };
        left = rest;
        out.extend(name);
        out.extend(b": ");
        out.extend(value.as_bytes().trim_ascii());
        out.extend(b"\r\n");
    }
}

/// The fields that may go on to another stream.
pub fn passed_on(mut trailers: HeaderMap) -> HeaderMap {
    let gone: Vec<HeaderName> =
        trailers.keys().filter(|name| !may_pass(name.as_str().as_bytes())).cloned().collect();
    for name in gone {
        trailers.remove(name);
    }
    trailers
}

fn may_pass(name: &[u8]) -> bool {
    !is_forbidden(name) && !is_hop_by_hop(Known::of(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(trailers: &HeaderMap) -> Vec<u8> {
        let mut out = Buf::for_head();
        to_section(trailers, &mut out);
        out.filled().to_vec()
    }

    /// RFC 9110 section 6.5.1
    #[test]
    fn trailers_go_both_ways_without_what_has_no_place() {
        let map = from_section(
            b"Grpc-Status: 0\r\nContent-Length: 3\r\nX-T:\t\xe9 \r\nx-t:\r\nHost: a\r\n\
              Proxy-X: 1\r\n\r\n",
        );
        assert_eq!(section(&map), b"grpc-status: 0\r\nx-t: \xe9\r\nx-t: \r\n");
        let mut map = HeaderMap::new();
        map.insert("authorization", HeaderValue::from_static("x"));
        map.insert("grpc-message", HeaderValue::from_static("a%20b"));
        map.insert("x-forwarded-for", HeaderValue::from_static("x"));
        assert_eq!(section(&map), b"grpc-message: a%20b\r\n");
        let passed = passed_on(map);
        assert_eq!(passed.keys().collect::<Vec<_>>(), ["grpc-message"]);
        assert!(from_section(b"\r\n").is_empty());
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        let mut map = HeaderMap::new();
        let long = "b".repeat(TRAILER_BYTES_MAX - 5);
        map.insert("a", HeaderValue::from_str(&long).expect("text"));
        assert_eq!(section(&map).len(), TRAILER_BYTES_MAX);
        map.insert("a", HeaderValue::from_str(&(long + "b")).expect("text"));
        assert_eq!(section(&map).len(), 0);
        map.clear();
        for _ in 0..=TRAILERS_MAX {
            map.append("a", HeaderValue::from_static("b"));
        }
        assert_eq!(section(&map).len(), TRAILERS_MAX * b"a: b\r\n".len());
    }

    proptest::proptest! {
        /// There and back nothing changes, but for order among names.
        #[test]
        fn a_section_survives_both_ways(
            fields in proptest::collection::vec(("x-[a-z]{1,8}", "([!-~]([ -~]{0,8}[!-~])?)?"), 0..8)
        ) {
            let mut map = HeaderMap::new();
            for (name, value) in &fields {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
                if may_pass(name.as_str().as_bytes()) {
                    map.append(name, HeaderValue::from_str(value).expect("text"));
                }
            }
            proptest::prop_assert_eq!(from_section(&section(&map)), map);
        }
    }
}
