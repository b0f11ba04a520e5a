//! Version 1: one line of text (PP 2.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Announced, Ends, Found, Header, Malformed, Version};
use crate::limits::PROXY_V1_BYTES_MAX;

/// What no other protocol begins with.
pub(super) const SIGNATURE: &[u8] = b"PROXY ";

/// Parses a line that begins with the signature.
///
/// # Errors
/// It is longer than [`PROXY_V1_BYTES_MAX`], or does not follow the grammar.
pub(super) fn parse(bytes: &[u8]) -> Result<Found, Malformed> {
    let window = &bytes[..bytes.len().min(PROXY_V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        let full = window.len() == PROXY_V1_BYTES_MAX;
        return if full { Err(Malformed::TooLong) } else { Ok(Found::More) };
    };
    // A bare line feed is not taken: PP 2.1 ends the line by both.
    let line = window[..end].strip_suffix(b"\r").ok_or(Malformed::V1)?;
    let text = std::str::from_utf8(&line[SIGNATURE.len()..]).map_err(|_| Malformed::V1)?;
    let ends = ends(text).ok_or(Malformed::V1)?;
    Ok(Found::Header(Header {
        length: end + 1,
        version: Version::V1,
        announced: Some(Announced { ends, ..Announced::default() }),
    }))
}

fn ends(text: &str) -> Option<Ends> {
    let (family, rest) = text.split_once(' ').unwrap_or((text, ""));
    match family {
        "TCP4" => addresses::<Ipv4Addr>(rest),
        "TCP6" => addresses::<Ipv6Addr>(rest),
        // PP 2.1: whatever follows is ignored, as far as it is text.
        "UNKNOWN" if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) => Some(Ends::Unknown),
        _ => None,
    }
}

/// Source address, destination address, source port, destination port, one space between two.
fn addresses<A: FromStr + Into<IpAddr>>(text: &str) -> Option<Ends> {
    let mut words = text.split(' ');
    let source: A = words.next()?.parse().ok()?;
    let destination: A = words.next()?.parse().ok()?;
    let (from, to) = (port(words.next()?)?, port(words.next()?)?);
    if words.next().is_some() {
        return None;
    }
    Some(Ends::Inet {
        source: SocketAddr::new(source.into(), from),
        destination: SocketAddr::new(destination.into(), to),
    })
}

/// Decimal without leading zeros, at most 65,535.
fn port(word: &str) -> Option<u16> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let padded = word.len() > 1 && word.starts_with('0');
    word.parse().ok().filter(|_| digits && !padded)
}
