//! A look at what a client sends first: whether it is TLS at all, and the name that it asks for,
//! which the session hands to the certificate resolver only.

use rustls::pki_types::DnsName;

use crate::limits::{TLS_HELLO_BYTES_MAX, TLS_RECORD_PLAIN_BYTES_MAX};

/// What a client sent first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// HTTP without TLS.
    PlainHttp,
    /// The beginning of a ClientHello.
    Partial,
    /// A ClientHello, and the name in it.
    Whole(Option<Box<str>>),
    /// Something else, which is for the session to refuse.
    Other,
}

/// The first bytes of a connection, as they come: each record is looked at once, however many there
/// are.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// Bytes of the records that were looked at.
    seen: usize,
    /// What they carried: a hello may take several, as large key shares make it.
    message: Vec<u8>,
}

impl Opening {
    /// Looks at the first bytes of a connection: all that have come so far. To be called before the
    /// session sees them: it moves what it is given.
    pub fn look(&mut self, bytes: &[u8]) -> Hello {
        match bytes.first() {
            None => return Hello::Partial,
            Some(&HANDSHAKE) => {}
            // A method is a token, in practice of letters; no record type is one.
            Some(first) if first.is_ascii_alphabetic() => return Hello::PlainHttp,
            Some(_) => return Hello::Other,
        }
        let mut records = Fields(&bytes[self.seen..]);
        while let Some(part) = record(&mut records) {
            self.message.extend_from_slice(part);
            self.seen = bytes.len() - records.0.len();
            if let Some(verdict) = whole(&self.message) {
                return verdict;
            }
        }
        unfinished(records.0)
    }
}

/// The verdict on the beginning of a handshake message, where it is long enough for one.
fn whole(message: &[u8]) -> Option<Hello> {
    let [kind, high, middle, low] = *message.first_chunk()?;
    let bytes = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
    if kind != CLIENT_HELLO || bytes > TLS_HELLO_BYTES_MAX {
        return Some(Hello::Other);
    }
    message.get(..bytes).map(|hello| Hello::Whole(name(hello)))
}

/// The payload of the next record, if it is a whole one of a handshake.
fn record<'a>(records: &mut Fields<'a>) -> Option<&'a [u8]> {
    let mut rest = Fields(records.0);
    let kind = rest.byte()?;
    rest.take(2)?;
    let length = rest.short()?;
    let payload = rest.take(length)?;
    let right = kind == HANDSHAKE && (1..=TLS_RECORD_PLAIN_BYTES_MAX).contains(&length);
    if !right {
        return None;
    }
    *records = rest;
    Some(payload)
}

/// What bytes are that do not begin with a whole handshake record.
fn unfinished(bytes: &[u8]) -> Hello {
    let kind = bytes.first().is_none_or(|kind| *kind == HANDSHAKE);
    let length = match bytes {
        [_, _, _, high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 1,
    };
    let right = kind && (1..=TLS_RECORD_PLAIN_BYTES_MAX).contains(&length);
    if right { Hello::Partial } else { Hello::Other }
}

/// The host name of a ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3).
fn name(hello: &[u8]) -> Option<Box<str>> {
    let mut hello = Fields(hello);
    // Message header, version, random.
    hello.take(4 + 2 + 32)?;
    hello.vector8()?;
    hello.vector16()?;
    hello.vector8()?;
    let mut extensions = Fields(hello.vector16()?);
    loop {
        let kind = extensions.short()?;
        let data = extensions.vector16()?;
        if kind == SERVER_NAME {
            let mut names = Fields(Fields(data).vector16()?);
            let host = (names.byte()? == HOST_NAME).then_some(names.vector16()?)?;
            let host = DnsName::try_from(host).ok()?;
            return Some(host.as_ref().to_ascii_lowercase().into());
        }
    }
}

/// Bytes read from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn short(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_be_bytes(*self.take(2)?.first_chunk()?)))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.short()?;
        self.take(length)
    }
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: usize = 0;
const HOST_NAME: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello in the smallest records, byte by byte: no record is looked at twice.
    #[test]
    fn what_was_looked_at_is_done() {
        let mut hello = vec![CLIENT_HELLO, 0, 8, 0];
        hello.resize(4 + 8 * 256, 0);
        let records: Vec<u8> =
            hello.iter().flat_map(|byte| [HANDSHAKE, 3, 1, 0, 1, *byte]).collect();
        let mut opening = Opening::default();
        for end in 0..records.len() {
            assert_eq!(opening.look(&records[..end]), Hello::Partial, "{end}");
            assert_eq!(opening.seen, end - end % 6, "{end}");
            assert_eq!(opening.message.len(), end / 6, "{end}");
        }
        assert_eq!(opening.look(&records), Hello::Whole(None));
    }
}
