//! Version 2: a binary block (PP 2.2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::crc32c::crc32c;
use super::{Announced, Ends, Found, Header, Malformed, Ssl, Version};
use crate::limits::{PROXY_UNIQUE_ID_BYTES_MAX, PROXY_V2_BYTES_MAX};

/// What no other protocol begins with.
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of the signature, version and command, family, and length.
const FIXED_BYTES: usize = 16;

pub(super) const COMMAND_LOCAL: u8 = 0x20;
pub(super) const COMMAND_PROXY: u8 = 0x21;

pub(super) const TYPE_ALPN: u8 = 0x01;
pub(super) const TYPE_AUTHORITY: u8 = 0x02;
const TYPE_CRC32C: u8 = 0x03;
pub(super) const TYPE_UNIQUE_ID: u8 = 0x05;
pub(super) const TYPE_SSL: u8 = 0x20;
pub(super) const SUBTYPE_SSL_VERSION: u8 = 0x21;
pub(super) const SUBTYPE_SSL_CN: u8 = 0x22;
pub(super) const SUBTYPE_SSL_CIPHER: u8 = 0x23;
const TYPE_NETNS: u8 = 0x30;

pub(super) const CLIENT_SSL: u8 = 0x01;
pub(super) const CLIENT_CERT_CONN: u8 = 0x02;
pub(super) const CLIENT_CERT_SESS: u8 = 0x04;

/// Bytes of a type and a length.
const TLV_HEAD_BYTES: usize = 3;

/// Parses a block that begins with the signature. What is wrong is said with the first byte that
/// proves it; addresses and what follows them are looked at when all have come.
///
/// # Errors
/// It does not follow the layout, is longer than [`PROXY_V2_BYTES_MAX`], or its checksum does not fit.
pub(super) fn parse(bytes: &[u8]) -> Result<Found, Malformed> {
    let Some(&command) = bytes.get(SIGNATURE.len()) else { return Ok(Found::More) };
    if !matches!(command, COMMAND_LOCAL | COMMAND_PROXY) {
        return Err(Malformed::V2);
    }
    let Some(&family) = bytes.get(SIGNATURE.len() + 1) else { return Ok(Found::More) };
    let address_bytes = match command {
        // PP 2.2: the family is ignored and the block discarded.
        COMMAND_LOCAL => 0,
        _ => address_bytes(family).ok_or(Malformed::V2)?,
    };
    let Some(&[high, low]) = bytes.get(FIXED_BYTES - 2..FIXED_BYTES) else {
        return Ok(Found::More);
    };
    let payload_bytes = usize::from(u16::from_be_bytes([high, low]));
    if payload_bytes < address_bytes {
        return Err(Malformed::V2);
    }
    if payload_bytes > PROXY_V2_BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    let length = FIXED_BYTES + payload_bytes;
    let Some(block) = bytes.get(..length) else { return Ok(Found::More) };
    let announced = match command {
        COMMAND_LOCAL => None,
        _ => {
            let (addresses, _) = block[FIXED_BYTES..].split_at(address_bytes);
            let ends = ends(family, addresses).ok_or(Malformed::V2)?;
            Some(announced(ends, block, FIXED_BYTES + address_bytes)?)
        }
    };
    Ok(Found::Header(Header { length, version: Version::V2, announced }))
}

/// Bytes of the addresses of a family; none of one that PP 2.2 does not name. A datagram's addresses
/// are those of a client that reached the proxy over QUIC.
fn address_bytes(family: u8) -> Option<usize> {
    match family {
        0x00 => Some(0),
        0x11 | 0x12 => Some(12),
        0x21 | 0x22 => Some(36),
        0x31 | 0x32 => Some(216),
        _ => None,
    }
}

/// Reads the addresses of a family, which are as long as [`address_bytes`] says.
fn ends(family: u8, bytes: &[u8]) -> Option<Ends> {
    match family >> 4 {
        0 => Some(Ends::Unknown),
        1 => {
            let (source, rest) = bytes.split_first_chunk::<4>()?;
            let (destination, ports) = rest.split_first_chunk::<4>()?;
            inet(Ipv4Addr::from(*source), Ipv4Addr::from(*destination), ports)
        }
        2 => {
            let (source, rest) = bytes.split_first_chunk::<16>()?;
            let (destination, ports) = rest.split_first_chunk::<16>()?;
            inet(Ipv6Addr::from(*source), Ipv6Addr::from(*destination), ports)
        }
        _ => Some(Ends::Unix),
    }
}

fn inet<A: Into<std::net::IpAddr>>(source: A, destination: A, ports: &[u8]) -> Option<Ends> {
    let &[a, b, c, d] = ports else { return None };
    Some(Ends::Inet {
        source: SocketAddr::new(source.into(), u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(destination.into(), u16::from_be_bytes([c, d])),
    })
}

/// Reads what stands behind the addresses, at `start` of the block.
fn announced(ends: Ends, block: &[u8], start: usize) -> Result<Announced, Malformed> {
    let mut announced = Announced { ends, ..Announced::default() };
    let mut checksum = None;
    for tlv in Tlvs::of(block, start) {
        let Tlv { kind, value, at } = tlv?;
        match kind {
            TYPE_ALPN => once(&mut announced.alpn, value)?,
            TYPE_AUTHORITY => once(&mut announced.authority, value)?,
            TYPE_UNIQUE_ID if value.len() > PROXY_UNIQUE_ID_BYTES_MAX => {
                return Err(Malformed::TooLong);
            }
            TYPE_UNIQUE_ID => once(&mut announced.unique_id, value)?,
            TYPE_NETNS => once(&mut announced.netns, value)?,
            TYPE_SSL if announced.ssl.is_some() => return Err(Malformed::V2),
            TYPE_SSL => announced.ssl = Some(ssl(value)?),
            TYPE_CRC32C => {
                let sum: [u8; 4] = value.try_into().map_err(|_| Malformed::V2)?;
                if checksum.replace((u32::from_be_bytes(sum), at)).is_some() {
                    return Err(Malformed::V2);
                }
            }
            // NOOP, and what others have come up with.
            _ => {}
        }
    }
    match checksum {
        Some((sum, at)) if sum_without(block, at) != sum => Err(Malformed::Checksum),
        _ => Ok(announced),
    }
}

/// Keeps a value that may stand once: of two nobody knows which one counts.
fn once(slot: &mut Option<Box<[u8]>>, value: &[u8]) -> Result<(), Malformed> {
    match slot.replace(value.into()) {
        Some(_) => Err(Malformed::V2),
        None => Ok(()),
    }
}

/// PP 2.2.6.
fn ssl(value: &[u8]) -> Result<Ssl, Malformed> {
    let (&[client, a, b, c, d], _) = value.split_first_chunk::<5>().ok_or(Malformed::V2)?;
    let presented = client & (CLIENT_CERT_CONN | CLIENT_CERT_SESS) != 0;
    // Zero is the verdict of a verification that succeeded.
    let verified = presented && u32::from_be_bytes([a, b, c, d]) == 0;
    let mut ssl = Ssl {
        used: client & CLIENT_SSL != 0,
        verified,
        resumed: verified && client & CLIENT_CERT_CONN == 0,
        ..Ssl::default()
    };
    for tlv in Tlvs::of(value, 5) {
        let Tlv { kind, value, .. } = tlv?;
        match kind {
            SUBTYPE_SSL_VERSION => once(&mut ssl.version, value)?,
            SUBTYPE_SSL_CN => once(&mut ssl.cn, value)?,
            SUBTYPE_SSL_CIPHER => once(&mut ssl.cipher, value)?,
            _ => {}
        }
    }
    Ok(ssl)
}

/// PP 2.2.3: the sum of the block in which the four bytes at `at` are zero.
fn sum_without(block: &[u8], at: usize) -> u32 {
    let rest = &block[at + 4..];
    crc32c(&[&block[..at], &[0; 4], rest])
}

/// A type, a length and so many bytes.
struct Tlv<'a> {
    kind: u8,
    value: &'a [u8],
    /// Where in the whole the value begins.
    at: usize,
}

/// The rest of a block, one by one; ends with what does not fit.
struct Tlvs<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Tlvs<'a> {
    fn of(whole: &'a [u8], start: usize) -> Tlvs<'a> {
        Tlvs { whole, at: start }
    }

    fn take(&mut self) -> Option<Tlv<'a>> {
        let (&[kind, high, low], _) =
            self.whole[self.at..].split_first_chunk::<TLV_HEAD_BYTES>()?;
        let start = self.at + TLV_HEAD_BYTES;
        let end = start + usize::from(u16::from_be_bytes([high, low]));
        let value = self.whole.get(start..end)?;
        self.at = end;
        Some(Tlv { kind, value, at: start })
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, Malformed>;

    fn next(&mut self) -> Option<Result<Tlv<'a>, Malformed>> {
        if self.at == self.whole.len() {
            return None;
        }
        let taken = self.take();
        if taken.is_none() {
            self.at = self.whole.len();
        }
        Some(taken.ok_or(Malformed::V2))
    }
}
