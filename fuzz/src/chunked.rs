//! Chunked bodies.

use ringway::http1::chunked::{ChunkError, ChunkedRelay};

use super::outline;
use super::reference::FieldLine;
use super::reference::body::{self, Chunked};

/// `data` is what follows a head with a chunked body.
pub fn chunked(data: &[u8]) {
    let expected = body::chunked(data);
    let whole = relay(data, data.len());
    assert_eq!(outline(&whole), expected.as_ref().map(|_| ()).map_err(|stop| *stop));
    let stripped = strip(data, data.len());
    assert_eq!(outline(&stripped), outline(&whole));
    for split in [1, 3, 16] {
        assert_eq!(relay(data, split), whole, "in pieces of {split}");
        assert_eq!(strip(data, split), stripped, "in pieces of {split}");
    }
    let (Ok(Some((relayed, consumed, counted))), Ok(Some((bare, bare_consumed))), Ok(expected)) =
        (whole, stripped, expected)
    else {
        return;
    };
    assert_eq!((consumed, bare_consumed, counted), (expected.len, expected.len, bare.len()));
    assert_eq!(bare, expected.data);
    passed_on(data, &relayed, &expected);
    elsewhere(data, &expected);
}

/// Chunks are relayed verbatim; of the trailer fields some, in their order, none of them framing.
fn passed_on(data: &[u8], relayed: &[u8], expected: &Chunked) {
    let chunks = &data[..expected.chunks_len];
    assert_eq!(relayed.get(..expected.chunks_len), Some(chunks));
    let again = body::chunked(relayed);
    assert!(again.as_ref().is_ok_and(|again| again.len == relayed.len()), "{again:?}");
    let Ok(again) = again else { return };
    let mut left = expected.trailers.iter();
    for trailer in &again.trailers {
        assert!(left.any(|sent| sent == trailer), "trailers keep their order");
    }
    let is = |field: &FieldLine, name: &str| field.0.eq_ignore_ascii_case(name.as_bytes());
    for name in ["content-length", "transfer-encoding", "host", "trailer", "authorization"] {
        assert!(!again.trailers.iter().any(|field| is(field, name)), "{name}");
    }
    let harmless = |field: &&FieldLine| is(field, "x-checksum");
    let sent = expected.trailers.iter().filter(harmless).count();
    assert_eq!(again.trailers.iter().filter(harmless).count(), sent);
}

/// Relayed bytes with the tail, bytes consumed, bytes of data.
type Relayed = (Vec<u8>, usize, usize);

fn relay(data: &[u8], split: usize) -> Result<Option<Relayed>, ChunkError> {
    let mut relay = ChunkedRelay::new();
    let (mut out, mut consumed, mut counted) = (Vec::new(), 0, 0);
    for piece in data.chunks(split.max(1)) {
        let step = relay.step(piece)?;
        assert!(step.relay <= step.consumed && step.data <= step.relay);
        out.extend_from_slice(&piece[..step.relay]);
        consumed += step.consumed;
        counted += step.data;
        if step.done {
            out.extend_from_slice(relay.tail());
            return Ok(Some((out, consumed, counted)));
        }
        assert!(step.consumed == piece.len() && relay.tail().is_empty());
    }
    Ok(None)
}

fn strip(data: &[u8], split: usize) -> Result<Option<(Vec<u8>, usize)>, ChunkError> {
    let mut relay = ChunkedRelay::new();
    let (mut out, mut consumed) = (Vec::new(), 0);
    for piece in data.chunks(split.max(1)) {
        let mut piece = piece.to_vec();
        let stripped = relay.strip(&mut piece)?;
        out.extend_from_slice(&piece[..stripped.data]);
        consumed += stripped.consumed;
        if stripped.done {
            return Ok(Some((out, consumed)));
        }
        assert_eq!(stripped.consumed, piece.len());
    }
    Ok(None)
}

/// httparse reads the same sizes at the same places.
fn elsewhere(data: &[u8], expected: &Chunked) {
    let mut at = 0;
    loop {
        match httparse::parse_chunk_size(&data[at..]) {
            Ok(httparse::Status::Complete((line, 0))) => {
                at += line;
                break;
            }
            Ok(httparse::Status::Complete((line, size))) => at += line + size as usize + 2,
            other => panic!("httparse at byte {at}: {other:?}"),
        }
    }
    assert_eq!(at, expected.chunks_len);
    #[cfg(feature = "demo")]
    monoio::chunked(data, expected);
}

/// monoio-http's decoder, compared only where both accept. Known to differ: extensions and trailers
/// are errors there, and an empty size line counts as the end.
#[cfg(feature = "demo")]
mod monoio {
    use std::panic::catch_unwind;

    use bytes::BytesMut;
    use monoio_codec::{Decoded, Decoder};
    use monoio_http::h1::codec::decoder::ChunkedBodyDecoder;

    use super::Chunked;

    pub fn chunked(data: &[u8], expected: &Chunked) {
        let decoded = catch_unwind(|| {
            let mut rest = BytesMut::from(data);
            let mut decoder = ChunkedBodyDecoder::default();
            let mut body = Vec::new();
            loop {
                match decoder.decode(&mut rest) {
                    Ok(Decoded::Some(Some(chunk))) => body.extend_from_slice(&chunk),
                    Ok(Decoded::Some(None)) => return Some((body, data.len() - rest.len())),
                    _ => return None,
                }
            }
        });
        if let Ok(Some((body, consumed))) = decoded {
            assert_eq!((body, consumed), (expected.data.clone(), expected.len));
        }
    }
}
