//! The parser against every split, and both sides of every bound.

use proptest::prelude::*;

use super::crc32c::crc32c;
use super::*;
use crate::limits::{PROXY_UNIQUE_ID_BYTES_MAX, PROXY_V1_BYTES_MAX, PROXY_V2_BYTES_MAX};

/// A block of version 2.
fn block(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("fits its field");
    let fixed = [v2::SIGNATURE, &[command, family], &length.to_be_bytes()].concat();
    [&fixed[..], payload].concat()
}

/// A block about an IPv4 client with these TLVs behind its addresses.
fn with_tlvs(tlvs: &[u8]) -> Vec<u8> {
    block(0x21, 0x11, &[&[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 1, 187], tlvs].concat())
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("fits its field");
    [&[kind][..], &length.to_be_bytes(), value].concat()
}

/// Parses the whole and every beginning of it: a verdict never changes, and is given as soon as it
/// is clear.
fn parsed(bytes: &[u8]) -> Result<Found, Malformed> {
    let mut first = Ok(Found::More);
    for end in 0..=bytes.len() {
        let found = parse(&bytes[..end]);
        match &first {
            Ok(Found::More) => first = found,
            decided => assert_eq!(*decided, found, "{end} of {}", bytes.escape_ascii()),
        }
        if let Ok(Found::Header(header)) = &first {
            assert!(header.length <= end, "no more than there is");
        }
    }
    first
}

fn header(bytes: &[u8]) -> Header {
    match parsed(bytes) {
        Ok(Found::Header(header)) => header,
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    }
}

fn announced(bytes: &[u8]) -> Announced {
    header(bytes).announced.expect("a client")
}

fn inet(source: &str, destination: &str) -> Ends {
    let address = |text: &str| text.parse().expect("an address");
    Ends::Inet { source: address(source), destination: address(destination) }
}

/// PP 2.1.
#[test]
fn lines_of_version_1_are_taken() {
    for (line, ends) in [
        ("TCP4 192.0.2.7 198.51.100.1 4711 443", inet("192.0.2.7:4711", "198.51.100.1:443")),
        ("TCP4 255.255.255.255 0.0.0.0 65535 0", inet("255.255.255.255:65535", "0.0.0.0:0")),
        ("TCP6 2001:db8::1 ::1 1 80", inet("[2001:db8::1]:1", "[::1]:80")),
        ("TCP6 ::ffff:192.0.2.7 ::1 1 80", inet("[::ffff:192.0.2.7]:1", "[::1]:80")),
        ("UNKNOWN", Ends::Unknown),
        ("UNKNOWN ", Ends::Unknown),
        ("UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535", Ends::Unknown),
    ] {
        let bytes = format!("PROXY {line}\r\nGET / HTTP/1.1\r\n");
        let header = header(bytes.as_bytes());
        assert_eq!(header.length, line.len() + 8, "{line}");
        assert_eq!(header.version, Version::V1);
        assert_eq!(header.announced.expect("a client").ends, ends, "{line}");
    }
}

/// PP 2.1: one space, decimal ports without zeros in front, both bytes of the line end.
#[test]
fn other_lines_are_refused() {
    for line in [
        "TCP4 192.0.2.7 198.51.100.1 4711 443\n",
        "TCP4 192.0.2.7 198.51.100.1 4711 443 \r\n",
        "TCP4 192.0.2.7 198.51.100.1 4711  443\r\n",
        " TCP4 192.0.2.7 198.51.100.1 4711 443\r\n",
        "TCP4\t192.0.2.7 198.51.100.1 4711 443\r\n",
        "TCP4 192.0.2.7 198.51.100.1 4711 443\r\r\n",
        "TCP4 192.0.2.7 198.51.100.1 4711\r\n",
        "TCP4 192.0.2.7 198.51.100.1 4711 443 1\r\n",
        "TCP4 192.0.2.7 198.51.100.1 04711 443\r\n",
        "TCP4 192.0.2.7 198.51.100.1 +4711 443\r\n",
        "TCP4 192.0.2.7 198.51.100.1 65536 443\r\n",
        "TCP4 192.0.2.7 198.51.100.1 -1 443\r\n",
        "TCP4 192.0.2.256 198.51.100.1 1 443\r\n",
        "TCP4 192.0.02.7 198.51.100.1 1 443\r\n",
        "TCP4 192.0.2 198.51.100.1 1 443\r\n",
        "TCP4 2001:db8::1 ::1 1 443\r\n",
        "TCP6 192.0.2.7 198.51.100.1 1 443\r\n",
        "TCP6 fe80::1%eth0 ::1 1 443\r\n",
        "TCP6 [::1] ::1 1 443\r\n",
        "TCP5 192.0.2.7 198.51.100.1 1 443\r\n",
        "tcp4 192.0.2.7 198.51.100.1 1 443\r\n",
        "UDP4 192.0.2.7 198.51.100.1 1 443\r\n",
        "UNKNOWNS\r\n",
        "UNKNOWN \u{1}\r\n",
        "UNKNOWN \r \r\n",
        "UNKNOWN ü\r\n",
        "\r\n",
    ] {
        let bytes = format!("PROXY {line}");
        assert_eq!(parsed(bytes.as_bytes()), Err(Malformed::V1), "{line:?}");
    }
}

#[test]
fn a_line_has_a_bound() {
    let line = |bytes: usize| {
        let start = "PROXY UNKNOWN ";
        format!("{start}{}\r\n", "x".repeat(bytes - start.len() - 2)).into_bytes()
    };
    assert_eq!(header(&line(PROXY_V1_BYTES_MAX)).length, PROXY_V1_BYTES_MAX);
    assert_eq!(parsed(&line(PROXY_V1_BYTES_MAX + 1)), Err(Malformed::TooLong));
    assert_eq!(parse(&line(PROXY_V1_BYTES_MAX)[..PROXY_V1_BYTES_MAX - 1]), Ok(Found::More));
}

#[test]
fn what_is_no_header_is_plain_as_soon_as_it_is_clear() {
    for (bytes, undecided) in [
        (&b"GET / HTTP/1.1\r\n"[..], 0),
        (b"PROPFIND / HTTP/1.1\r\n", 3),
        (b"PROXYX / HTTP/1.1\r\n", 5),
        (b"proxy TCP4", 0),
        (b"\r\nGET /", 2),
        (b"\r\n\r\nGET /", 4),
        (b"\r\n\r\n\0\r\nQUIT\r", 11),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 2),
        (b"\x16\x03\x01", 0),
    ] {
        assert_eq!(parsed(bytes), Ok(Found::Plain), "{}", bytes.escape_ascii());
        assert_eq!(parse(&bytes[..undecided]), Ok(Found::More), "{}", bytes.escape_ascii());
        assert_eq!(parse(&bytes[..=undecided]), Ok(Found::Plain), "{}", bytes.escape_ascii());
    }
}

/// PP 2.2.
#[test]
fn blocks_of_version_2_are_taken() {
    let v4 = [192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 1, 187];
    let mut v6 = [0; 36];
    (v6[0], v6[1], v6[15], v6[31]) = (0x20, 0x01, 1, 1);
    (v6[33], v6[35]) = (5, 80);
    let in_v4 = inet("192.0.2.7:4711", "198.51.100.1:443");
    let in_v6 = inet("[2001::1]:5", "[::1]:80");
    for (family, addresses, ends) in [
        (0x00, &[][..], Ends::Unknown),
        (0x11, &v4, in_v4),
        (0x12, &v4, in_v4),
        (0x21, &v6, in_v6),
        (0x22, &v6, in_v6),
        (0x31, &[b'/'; 216], Ends::Unix),
        (0x32, &[0; 216], Ends::Unix),
    ] {
        let bytes = block(0x21, family, addresses);
        let followed = [&bytes[..], b"GET / HTTP/1.1\r\n"].concat();
        let header = header(&followed);
        assert_eq!((header.length, header.version), (bytes.len(), Version::V2), "{family:#x}");
        let announced = header.announced.expect("a client");
        assert_eq!(announced, Announced { ends, ..Announced::default() }, "{family:#x}");
        // PP 2.2: the block of LOCAL is discarded, whatever it holds.
        let local = Header { length: bytes.len(), version: Version::V2, announced: None };
        assert_eq!(parsed(&block(0x20, family, addresses)), Ok(Found::Header(local)));
        if !addresses.is_empty() {
            let cut = block(0x21, family, &addresses[1..]);
            assert_eq!(parsed(&cut), Err(Malformed::V2), "{family:#x}: too short");
        }
    }
    assert_eq!(header(&block(0x20, 0xff, b"whatever")).announced, None);
}

#[test]
fn other_commands_versions_and_families_are_refused() {
    for command in (0..=0xff).filter(|command| !matches!(command, 0x20 | 0x21)) {
        assert_eq!(parsed(&block(command, 0x11, &[0; 12])), Err(Malformed::V2), "{command:#x}");
    }
    let known = [0x00, 0x11, 0x12, 0x21, 0x22, 0x31, 0x32];
    for family in (0..=0xff).filter(|family| !known.contains(family)) {
        assert_eq!(parsed(&block(0x21, family, &[0; 216])), Err(Malformed::V2), "{family:#x}");
    }
}

#[test]
fn a_block_has_a_bound() {
    let filled = |bytes: usize| with_tlvs(&tlv(0x04, &vec![0; bytes - 12 - 3]));
    assert_eq!(header(&filled(PROXY_V2_BYTES_MAX)).length, 16 + PROXY_V2_BYTES_MAX);
    assert_eq!(parse(&filled(PROXY_V2_BYTES_MAX + 1)[..16]), Err(Malformed::TooLong));
    assert_eq!(parse(&block(0x20, 0, &[0; PROXY_V2_BYTES_MAX + 1])), Err(Malformed::TooLong));
}

#[test]
fn what_stands_behind_the_addresses_is_read() {
    let parts = [tlv(0x21, b"TLSv1.3"), tlv(0x22, b"alice"), tlv(0x23, b"AES"), tlv(0x24, b"RSA")];
    let ssl = [&[0x07, 0, 0, 0, 0][..], &parts.concat()].concat();
    let tlvs = [
        tlv(0x01, b"h2"),
        tlv(0x02, b"shop.example.com"),
        tlv(0x04, b""),
        tlv(0x05, &[0xab; PROXY_UNIQUE_ID_BYTES_MAX]),
        tlv(0x20, &ssl),
        tlv(0x30, b"blue"),
        tlv(0xea, b"an unknown one"),
    ];
    let announced = announced(&with_tlvs(&tlvs.concat()));
    let text = |bytes: &[u8]| Some(Box::from(bytes));
    let ssl = Ssl {
        used: true,
        verified: true,
        resumed: false,
        version: text(b"TLSv1.3"),
        cn: text(b"alice"),
        cipher: text(b"AES"),
    };
    let all = Announced {
        ends: inet("192.0.2.7:4711", "198.51.100.1:443"),
        alpn: text(b"h2"),
        authority: text(b"shop.example.com"),
        unique_id: text(&[0xab; PROXY_UNIQUE_ID_BYTES_MAX]),
        netns: text(b"blue"),
        ssl: Some(ssl),
    };
    assert_eq!(announced, all);
    assert_eq!(announced.fact(Fact::SslCn), Some(&b"alice"[..]));
}

/// A name in a certificate that nobody verified says nothing.
#[test]
fn an_identity_counts_where_it_was_verified() {
    for (client, verdict, verified) in [
        (0x03, 0, true),
        (0x05, 0, true),
        (0x01, 0, false),
        (0x03, 1, false),
        (0x03, 0x0100_0000, false),
    ] {
        let verdict = u32::to_be_bytes(verdict);
        let ssl = [&[client][..], &verdict, &tlv(0x22, b"alice")].concat();
        let announced = announced(&with_tlvs(&tlv(0x20, &ssl)));
        let cn = verified.then_some(&b"alice"[..]);
        assert_eq!(announced.fact(Fact::SslCn), cn, "{client} {verdict:?}");
    }
}

#[test]
fn malformed_tlvs_are_refused() {
    let ssl = |value: &[u8]| tlv(0x20, value);
    for tlvs in [
        vec![0x04],
        vec![0x04, 0],
        vec![0x04, 0, 1],
        [tlv(0x04, b"x"), vec![0xff, 0xff, 0xff]].concat(),
        [tlv(0x02, b"a"), tlv(0x02, b"b")].concat(),
        [tlv(0x05, b"a"), tlv(0x05, b"a")].concat(),
        ssl(&[1, 0, 0, 0]),
        ssl(&[1, 0, 0, 0, 0, 0x21, 0, 1]),
        ssl(&[&[1, 0, 0, 0, 0][..], &tlv(0x22, b"a"), &tlv(0x22, b"b")].concat()),
        [ssl(&[0; 5]), ssl(&[0; 5])].concat(),
        tlv(0x03, &[0; 3]),
        tlv(0x03, &[0; 5]),
        [tlv(0x03, &[0; 4]), tlv(0x03, &[0; 4])].concat(),
    ] {
        assert_eq!(parsed(&with_tlvs(&tlvs)), Err(Malformed::V2), "{}", tlvs.escape_ascii());
    }
    let long = tlv(0x05, &[1; PROXY_UNIQUE_ID_BYTES_MAX + 1]);
    assert_eq!(parsed(&with_tlvs(&long)), Err(Malformed::TooLong));
}

/// PP 2.2.3.
#[test]
fn a_checksum_is_verified() {
    let tlvs = [tlv(0x02, b"a.test"), tlv(0x03, &[0; 4]), tlv(0x01, b"h2")].concat();
    let mut bytes = with_tlvs(&tlvs);
    let at = 16 + 12 + 9 + 3;
    let sum = crc32c(&[&bytes]);
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(announced(&bytes).fact(Fact::Alpn), Some(&b"h2"[..]));
    // With another type there is no checksum.
    for wrong in (16..bytes.len()).filter(|wrong| *wrong != at - 3) {
        let mut bytes = bytes.clone();
        bytes[wrong] ^= 0x40;
        assert!(parsed(&bytes).is_err(), "byte {wrong}");
    }
    bytes[at] ^= 1;
    assert_eq!(parsed(&bytes), Err(Malformed::Checksum));
}

#[test]
fn mapped_addresses_are_those_of_ipv4() {
    let announced = announced(b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:192.0.2.1 1 80\r\n");
    assert_eq!(announced.source(), "192.0.2.7:1".parse().ok());
    assert_eq!(announced.destination(), "192.0.2.1:80".parse().ok());
}

proptest! {
    /// Whatever comes, in whatever pieces, the verdict is one.
    #[test]
    fn any_bytes_have_one_verdict(
        start in prop_oneof![
            Just(v1::SIGNATURE.to_vec()),
            Just(v2::SIGNATURE.to_vec()),
            Just(with_tlvs(&[])[..16].to_vec()),
        ],
        rest in proptest::collection::vec(any::<u8>(), 0..160),
    ) {
        let _ = parsed(&[start, rest].concat());
    }

    #[test]
    fn any_addresses_come_back(
        v6 in any::<bool>(),
        source in any::<u128>(),
        destination in any::<u128>(),
        ports in any::<(u16, u16)>(),
    ) {
        let address = |bits: u128, port| match v6 {
            true => SocketAddr::from((std::net::Ipv6Addr::from(bits), port)),
            false => SocketAddr::from((std::net::Ipv4Addr::from(bits as u32), port)),
        };
        let (source, destination) = (address(source, ports.0), address(destination, ports.1));
        let ends = Ends::Inet { source, destination };
        let family = if v6 { "TCP6" } else { "TCP4" };
        let (from, to) = (source.ip(), destination.ip());
        let line = format!("PROXY {family} {from} {to} {} {}\r\n", ports.0, ports.1);
        prop_assert!(line.len() <= PROXY_V1_BYTES_MAX);
        prop_assert_eq!(announced(line.as_bytes()).ends, ends);
        let octets = |ip| match ip {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let (from_port, to_port) = (ports.0.to_be_bytes(), ports.1.to_be_bytes());
        let addresses = [&octets(from)[..], &octets(to), &from_port, &to_port].concat();
        prop_assert_eq!(announced(&block(0x21, if v6 { 0x21 } else { 0x11 }, &addresses)).ends, ends);
    }
}
