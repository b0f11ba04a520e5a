//! PROXY headers: one verdict in whatever pieces they come, and what they announce comes back.
#![allow(dead_code, reason = "tests that include this crate use a part of it")]

use ringway::limits::PROXY_V2_BYTES_MAX;
use ringway::proxy_protocol::{Announced, Ends, Found, Header, Malformed, Ssl, parse};

use super::reference::proxy_protocol as written;

/// `data` is the start of a connection; where a block of version 2 lacks only a length that fits, it
/// gets one, so that what stands behind it is reached.
pub fn proxy_protocol(data: &[u8]) {
    pieces(data);
    let start = written::SIGNATURE.len() + 2;
    if data.starts_with(written::SIGNATURE) && data.len() >= start + 2 {
        let length = u16::try_from(data.len() - start - 2).unwrap_or(u16::MAX);
        let fitting = [&data[..start], &length.to_be_bytes(), &data[start + 2..]].concat();
        pieces(&fitting);
    }
}

/// Feeds every beginning; a verdict stands once it is given.
fn pieces(data: &[u8]) {
    let whole = parse(data);
    let mut verdict = Ok(Found::More);
    for end in 0..=data.len() {
        let found = parse(&data[..end]);
        if verdict == Ok(Found::More) {
            verdict = found;
        } else {
            assert_eq!(verdict, found, "another verdict after {end} bytes");
        }
        if let Ok(Found::Header(header)) = &verdict {
            assert!(header.length <= end, "{} of {end} bytes", header.length);
        }
    }
    assert_eq!(verdict, whole);
    if let Ok(Found::Header(Header { length, announced: Some(announced), .. })) = whole {
        assert!(length <= 16 + PROXY_V2_BYTES_MAX);
        again(&announced);
    }
}

/// Writes what was announced in every way that can say it, and reads it back.
fn again(announced: &Announced) {
    let ends = match announced.ends {
        Ends::Inet { source, destination } => Some((source, destination)),
        Ends::Unknown | Ends::Unix => None,
    };
    let (family, addresses) = match announced.ends {
        Ends::Unix => (0x31, vec![0; 216]),
        _ => written::addresses(ends),
    };
    let payload = [addresses, tlvs(announced)].concat();
    let plain = read(&written::block(1, family, &payload));
    assert_eq!(plain.as_ref(), Ok(announced));
    // The checksum takes seven bytes more.
    if payload.len() + 7 <= PROXY_V2_BYTES_MAX {
        let checked = written::checked(family, &payload);
        assert_eq!(read(&checked).as_ref(), Ok(announced));
        let mut wrong = checked;
        let last = wrong.len() - 1;
        wrong[last] ^= 1;
        assert_eq!(read(&wrong), Err(Malformed::Checksum));
    }
    if announced.ends != Ends::Unix {
        let line = read(&written::line(ends)).expect("a line says as much");
        assert_eq!(line, Announced { ends: announced.ends, ..Announced::default() });
    }
}

fn tlvs(announced: &Announced) -> Vec<u8> {
    let Announced { alpn, authority, unique_id, netns, ssl, .. } = announced;
    let texts = [(0x01, alpn), (0x02, authority), (0x05, unique_id), (0x30, netns)];
    let mut all = parts(&texts);
    if let Some(Ssl { used, verified, resumed, version, cn, cipher }) = ssl {
        let client = u8::from(*used)
            | match (verified, resumed) {
                (true, true) => 0x04,
                (true, false) => 0x02,
                (false, _) => 0,
            };
        let parts = parts(&[(0x21, version), (0x22, cn), (0x23, cipher)]);
        all.push(written::tlv(0x20, &written::ssl(client, !verified, &parts)));
    }
    all.concat()
}

fn parts(texts: &[(u8, &Option<Box<[u8]>>)]) -> Vec<Vec<u8>> {
    let told = texts.iter().filter_map(|(kind, text)| Some((*kind, text.as_deref()?)));
    told.map(|(kind, text)| written::tlv(kind, text)).collect()
}

/// What a whole header announces.
fn read(bytes: &[u8]) -> Result<Announced, Malformed> {
    match parse(bytes)? {
        Found::Header(Header { length, announced: Some(announced), .. }) => {
            assert_eq!(length, bytes.len());
            Ok(announced)
        }
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    }
}
