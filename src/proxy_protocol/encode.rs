//! What is written: the header that an origin is sent before anything else.

use std::net::{IpAddr, SocketAddr};

use super::v2::{
    CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, COMMAND_LOCAL, COMMAND_PROXY, SIGNATURE,
    SUBTYPE_SSL_CIPHER, SUBTYPE_SSL_CN, SUBTYPE_SSL_VERSION, TYPE_ALPN, TYPE_AUTHORITY, TYPE_SSL,
    TYPE_UNIQUE_ID,
};
use super::{Announced, Ends, Ssl, Version};
use crate::limits::{PROXY_SENT_TEXT_BYTES_MAX, PROXY_UNIQUE_ID_BYTES_MAX};

/// A header about a client. Version 1 has room for its two ends only.
pub fn encode(version: Version, said: &Announced) -> Vec<u8> {
    match version {
        Version::V1 => line(said.ends),
        Version::V2 => block(said),
    }
}

/// The header of a connection that is made for no client, as that of a health check: `UNKNOWN`, or
/// LOCAL in version 2 (PP 2.1, 2.2).
pub fn encode_own(version: Version) -> Vec<u8> {
    match version {
        Version::V1 => line(Ends::Unknown),
        Version::V2 => [SIGNATURE, &[COMMAND_LOCAL, 0, 0, 0]].concat(),
    }
}

/// PP 2.1.
fn line(ends: Ends) -> Vec<u8> {
    let Ends::Inet { source, destination } = ends else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let (source, destination) = one_family(source, destination);
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    let (from_port, to_port) = (source.port(), destination.port());
    format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

/// PP 2.2.
fn block(said: &Announced) -> Vec<u8> {
    let mut rest = Vec::new();
    let family = match said.ends {
        Ends::Inet { source, destination } => {
            let (source, destination) = one_family(source, destination);
            for ip in [source.ip(), destination.ip()] {
                match ip {
                    IpAddr::V4(ip) => rest.extend(ip.octets()),
                    IpAddr::V6(ip) => rest.extend(ip.octets()),
                }
            }
            rest.extend(source.port().to_be_bytes());
            rest.extend(destination.port().to_be_bytes());
            if source.is_ipv4() { 0x11 } else { 0x21 }
        }
        Ends::Unknown | Ends::Unix => 0x00,
    };
    for (kind, text) in [(TYPE_ALPN, &said.alpn), (TYPE_AUTHORITY, &said.authority)] {
        text_of(&mut rest, kind, text.as_deref());
    }
    let id = said.unique_id.as_deref().filter(|id| id.len() <= PROXY_UNIQUE_ID_BYTES_MAX);
    text_of(&mut rest, TYPE_UNIQUE_ID, id);
    if let Some(ssl) = &said.ssl {
        tlv(&mut rest, TYPE_SSL, &value_of(ssl));
    }
    let length = u16::try_from(rest.len()).expect("addresses and seven short texts");
    let head = [COMMAND_PROXY, family];
    [SIGNATURE, &head, &length.to_be_bytes(), &rest].concat()
}

/// PP 2.2.6.
fn value_of(ssl: &Ssl) -> Vec<u8> {
    let mut client = if ssl.used { CLIENT_SSL } else { 0 };
    if ssl.verified {
        client |= CLIENT_CERT_SESS | if ssl.resumed { 0 } else { CLIENT_CERT_CONN };
    }
    let mut value = vec![client];
    // Zero is a certificate that was verified; there is no other number for none at all.
    value.extend(u32::from(!ssl.verified).to_be_bytes());
    text_of(&mut value, SUBTYPE_SSL_VERSION, ssl.version.as_deref());
    text_of(&mut value, SUBTYPE_SSL_CN, ssl.cn.as_deref());
    text_of(&mut value, SUBTYPE_SSL_CIPHER, ssl.cipher.as_deref());
    value
}

fn text_of(to: &mut Vec<u8>, kind: u8, text: Option<&[u8]>) {
    if let Some(text) = text.filter(|text| text.len() <= PROXY_SENT_TEXT_BYTES_MAX) {
        tlv(to, kind, text);
    }
}

fn tlv(to: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let length = u16::try_from(value.len()).expect("a short text, or three of them");
    to.push(kind);
    to.extend(length.to_be_bytes());
    to.extend(value);
}

/// Both ends in one notation: IPv4 where both are, else IPv6, in which IPv4 has a place too (RFC 4291
/// section 2.5.5.2).
fn one_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let (source, destination) = (super::canonical(source), super::canonical(destination));
    if source.is_ipv4() && destination.is_ipv4() {
        return (source, destination);
    }
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    (mapped(source), mapped(destination))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_protocol::{Found, parse};

    fn inet(source: &str, destination: &str) -> Ends {
        let address = |text: &str| text.parse().expect("an address");
        Ends::Inet { source: address(source), destination: address(destination) }
    }

    /// What the parser makes of a header, which must be all of it.
    fn read(bytes: &[u8]) -> Option<Announced> {
        let Ok(Found::Header(header)) = parse(bytes) else { panic!("{}", bytes.escape_ascii()) };
        assert_eq!(header.length, bytes.len());
        header.announced
    }

    /// PP 2.1: the examples of the specification.
    #[test]
    fn lines_are_those_of_the_specification() {
        for (ends, text) in [
            (
                inet("192.168.0.1:56324", "192.168.0.11:443"),
                "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            ),
            (inet("[2001:db8::1]:1", "[::1]:2"), "PROXY TCP6 2001:db8::1 ::1 1 2\r\n"),
            (
                inet("192.0.2.7:1", "[2001:db8::1]:2"),
                "PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 1 2\r\n",
            ),
            (inet("[::ffff:192.0.2.7]:1", "192.0.2.1:2"), "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n"),
            (Ends::Unknown, "PROXY UNKNOWN\r\n"),
            (Ends::Unix, "PROXY UNKNOWN\r\n"),
        ] {
            let said = Announced { ends, ..Announced::default() };
            assert_eq!(encode(Version::V1, &said), text.as_bytes());
        }
        assert_eq!(encode_own(Version::V1), b"PROXY UNKNOWN\r\n");
    }

    /// PP 2.2, byte for byte.
    #[test]
    fn blocks_have_the_layout_of_the_specification() {
        let ends = inet("192.0.2.7:4711", "198.51.100.1:443");
        let plain = Announced { ends, ..Announced::default() };
        let expected = [
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" as &[u8],
            &[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0x01, 0xbb],
        ];
        assert_eq!(encode(Version::V2, &plain), expected.concat());
        assert_eq!(encode_own(Version::V2), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
        assert_eq!(read(&encode_own(Version::V2)), None, "LOCAL");
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let text = |bytes: &[u8]| Some(Box::from(bytes));
        let ssl = Ssl {
            used: true,
            verified: true,
            resumed: true,
            version: text(b"TLSv1.3"),
            cn: text(b"alice"),
            cipher: text(b"TLS13_AES_128_GCM_SHA256"),
        };
        let none = Ssl { verified: false, resumed: false, cn: None, ..ssl.clone() };
        for ssl in [Some(Ssl { resumed: false, ..ssl.clone() }), Some(ssl), Some(none), None] {
            let said = Announced {
                ends: inet("[2001:db8::7]:4711", "[2001:db8::1]:443"),
                alpn: text(b"h2"),
                authority: text(b"shop.example.com"),
                unique_id: text(&[b'7'; PROXY_UNIQUE_ID_BYTES_MAX]),
                netns: None,
                ssl,
            };
            assert_eq!(read(&encode(Version::V2, &said)), Some(said));
        }
    }

    /// A certificate may name anything; an origin must not refuse the connection for it.
    #[test]
    fn texts_that_are_too_long_are_left_out() {
        let long = |bytes| Some(vec![b'x'; bytes].into());
        let ssl = Ssl { used: true, cn: long(PROXY_SENT_TEXT_BYTES_MAX + 1), ..Ssl::default() };
        let said = Announced {
            ends: inet("192.0.2.7:1", "192.0.2.1:2"),
            authority: long(PROXY_SENT_TEXT_BYTES_MAX),
            unique_id: long(PROXY_UNIQUE_ID_BYTES_MAX + 1),
            alpn: long(PROXY_SENT_TEXT_BYTES_MAX + 1),
            ssl: Some(ssl),
            netns: None,
        };
        let read = read(&encode(Version::V2, &said)).expect("about a client");
        assert_eq!((&read.authority, &read.unique_id, &read.alpn), (&said.authority, &None, &None));
        assert_eq!(read.ssl.map(|ssl| (ssl.used, ssl.cn)), Some((true, None)));
    }
}
