//! Writes PROXY headers as their specification shows them: for tests that send them.

use std::net::{IpAddr, SocketAddr};

/// What no other protocol begins with (section 2.2).
pub const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The family byte and the addresses of a connection over TCP; without ends AF_UNSPEC.
pub fn addresses(ends: Option<(SocketAddr, SocketAddr)>) -> (u8, Vec<u8>) {
    let Some((source, destination)) = ends else { return (0x00, Vec::new()) };
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (0x11, [&from.octets()[..], &to.octets(), &ports].concat())
        }
        (from, to) => {
            let octets = |ip| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            (0x21, [&octets(from)[..], &octets(to), &ports].concat())
        }
    }
}

/// A line of version 1.
pub fn line(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((source, destination)) = ends else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    let (from_port, to_port) = (source.port(), destination.port());
    format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

/// A block of version 2: command, family, and what stands behind the length.
pub fn block(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("fits its field");
    [SIGNATURE, &[0x20 | command, family], &length.to_be_bytes(), payload].concat()
}

/// A type, its length and its value.
pub fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("fits its field");
    [&[kind][..], &length.to_be_bytes(), value].concat()
}

/// The value of an SSL type: what the client did, whether its certificate failed, and what else.
pub fn ssl(client: u8, failed: bool, parts: &[Vec<u8>]) -> Vec<u8> {
    [&[client][..], &u32::from(failed).to_be_bytes(), &parts.concat()].concat()
}

/// A block about a client, with a checksum at its end (section 2.2.3).
pub fn checked(family: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = block(1, family, &[payload, &tlv(0x03, &[0; 4])].concat());
    let sum = castagnoli(&bytes).to_be_bytes();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&sum);
    bytes
}

/// CRC-32C, bit by bit.
fn castagnoli(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !sum
}
