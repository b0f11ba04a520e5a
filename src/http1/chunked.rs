//! Chunked transfer coding (RFC 9112 section 7.1), checked byte by byte and passed on as it came.
//!
//! Extensions are relayed within bounds; a trailer section is held until its end, so that the
//! fields that RFC 9110 section 6.5.1 keeps out of trailers can be left out.

use super::scan::{is_text, is_token};
use crate::error::{ErrorKind, Side};
use crate::http::trailers::is_forbidden;
use crate::limits::{
    BODY_BYTES_MAX, CHUNK_EXTENSION_BYTES_MAX, CHUNK_EXTENSIONS_TOTAL_BYTES_MAX,
    CHUNK_SIZE_DIGITS_MAX, TRAILER_BYTES_MAX, TRAILERS_MAX,
};

/// Follows one chunked body. Counters are small, since bodies lie in the futures of connections.
#[derive(Debug)]
pub struct ChunkedRelay {
    state: State,
    /// The chunk size so far, then what is left of the chunk.
    remaining: u64,
    digits: u16,
    extension_bytes: u16,
    extensions_total: u16,
    trailer_bytes: u16,
    trailers: u16,
    /// The trailer section without forbidden fields, its last line maybe unfinished.
    tail: Vec<u8>,
    /// Where the last line of `tail` begins.
    line_start: u16,
}

/// What [`ChunkedRelay::step`] made of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes looked at; those behind belong to the next message.
    pub consumed: usize,
    /// Leading bytes that may be passed on as they are; the rest of `consumed` is held.
    pub relay: usize,
    /// How many of them are data, without the coding: what `body_bytes_max` counts.
    pub data: usize,
    /// Whether the body ends here; then [`ChunkedRelay::tail`] is to be sent.
    pub done: bool,
}

/// What [`ChunkedRelay::strip`] made of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stripped {
    /// Bytes looked at; those behind belong to the next message.
    pub consumed: usize,
    /// Bytes of data, now at the front.
    pub data: usize,
    /// Whether the body ends here.
    pub done: bool,
}

/// What is wrong with a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// It does not follow the grammar.
    Malformed,
    /// Extensions above `CHUNK_EXTENSION_BYTES_MAX` or `CHUNK_EXTENSIONS_TOTAL_BYTES_MAX`.
    ExtensionsTooLarge,
    /// A trailer section above `TRAILER_BYTES_MAX` or `TRAILERS_MAX`.
    TrailersTooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Done,
    Failed,
}

impl ChunkError {
    /// The error of a request's body (400), or of a response's (502 as long as its head is unsent).
    pub fn kind(self, side: Side) -> ErrorKind {
        match side {
            Side::Client => ErrorKind::ChunkMalformed,
            Side::Upstream | Side::Gateway => ErrorKind::ResponseMalformed,
        }
    }
}

impl ChunkedRelay {
    /// At the start of a body. Allocates only for a trailer section.
    pub const fn new() -> ChunkedRelay {
        ChunkedRelay {
            state: State::Size,
            remaining: 0,
            digits: 0,
            extension_bytes: 0,
            extensions_total: 0,
            trailer_bytes: 0,
            trailers: 0,
            tail: Vec::new(),
            line_start: 0,
        }
    }

    /// Looks at the next bytes, wherever they were split. Nothing of a step that failed may be
    /// passed on, and every step after it fails.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, ChunkError> {
        let mut step = Step::default();
        while step.consumed < bytes.len() && self.state != State::Done {
            let piece = self.piece(&bytes[step.consumed..])?;
            step.consumed += piece.bytes;
            step.data += if piece.is_data { piece.bytes } else { 0 };
            if self.trailers == 0 {
                step.relay = step.consumed;
            }
        }
        step.done = self.state == State::Done;
        Ok(step)
    }

    /// Looks at the next bytes and moves the data among them to the front, for a recipient that
    /// does not know the coding (RFC 9112 section 7.1.3). Trailers are dropped.
    pub fn strip(&mut self, bytes: &mut [u8]) -> Result<Stripped, ChunkError> {
        let mut stripped = Stripped::default();
        while stripped.consumed < bytes.len() && self.state != State::Done {
            let start = stripped.consumed;
            let piece = self.piece(&bytes[start..])?;
            stripped.consumed += piece.bytes;
            if piece.is_data {
                bytes.copy_within(start..stripped.consumed, stripped.data);
                stripped.data += piece.bytes;
            }
        }
        stripped.done = self.state == State::Done;
        Ok(stripped)
    }

    /// What is to be sent behind the relayed bytes once the body is done: the trailer section that
    /// was held and its last CRLF; empty where everything could be relayed.
    pub fn tail(&self) -> &[u8] {
        if self.state == State::Done { &self.tail } else { &[] }
    }

    /// A run of data or one byte of the coding; `bytes` holds at least one.
    fn piece(&mut self, bytes: &[u8]) -> Result<Piece, ChunkError> {
        if self.state == State::Data {
            let run = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(bytes.len());
            self.remaining -= run as u64;
            if self.remaining == 0 {
                self.state = State::DataReturn;
            }
            return Ok(Piece { bytes: run, is_data: true });
        }
        let next = match self.state {
            State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLineFeed
            | State::LastLineFeed => self.next_in_trailers(bytes[0]),
            _ => self.next_in_chunk(bytes[0]),
        };
        self.state = *next.as_ref().unwrap_or(&State::Failed);
        next.map(|_| Piece { bytes: 1, is_data: false })
    }

    fn next_in_chunk(&mut self, byte: u8) -> Result<State, ChunkError> {
        match (self.state, byte) {
            // RFC 9112 section 7.1: chunk-size = 1*HEXDIG. No sign, no prefix, no white space; not
            // even the BWS before an extension, since what is relayed must mean the same to all.
            // A next hop with signed sizes would take a larger one for a negative one.
            (State::Size, b'\r' | b';') if self.remaining > BODY_BYTES_MAX => {
                Err(ChunkError::Malformed)
            }
            (State::Size, b'\r') if self.digits > 0 => Ok(State::SizeLineFeed),
            (State::Size, b';') if self.digits > 0 => self.count_extension(),
            (State::Size, byte) => match char::from(byte).to_digit(16) {
                Some(digit) if usize::from(self.digits) < CHUNK_SIZE_DIGITS_MAX => {
                    self.digits += 1;
                    // As many digits as fit 64 bits: nothing is shifted out.
                    self.remaining = self.remaining << 4 | u64::from(digit);
                    Ok(State::Size)
                }
                _ => Err(ChunkError::Malformed),
            },
            // Section 7.1.1: unknown extensions are ignored, so that their grammar does not matter
            // beyond where the line ends; a lone semicolon is none.
            (State::Extension, b'\r') if self.extension_bytes > 1 => Ok(State::SizeLineFeed),
            (State::Extension, byte) if is_text(byte) => self.count_extension(),
            (State::SizeLineFeed, b'\n') => {
                self.digits = 0;
                self.extension_bytes = 0;
                Ok(if self.remaining == 0 { State::TrailerStart } else { State::Data })
            }
            (State::DataReturn, b'\r') => Ok(State::DataLineFeed),
            (State::DataLineFeed, b'\n') => Ok(State::Size),
            _ => Err(ChunkError::Malformed),
        }
    }

    fn count_extension(&mut self) -> Result<State, ChunkError> {
        self.extension_bytes += 1;
        self.extensions_total += 1;
        if usize::from(self.extension_bytes) > CHUNK_EXTENSION_BYTES_MAX
            || usize::from(self.extensions_total) > CHUNK_EXTENSIONS_TOTAL_BYTES_MAX
        {
            return Err(ChunkError::ExtensionsTooLarge);
        }
        Ok(State::Extension)
    }

    /// RFC 9112 section 7.1.2: a trailer section is field lines, as strict as in a head.
    fn next_in_trailers(&mut self, byte: u8) -> Result<State, ChunkError> {
        let next = match (self.state, byte) {
            (State::TrailerStart, b'\r') => State::LastLineFeed,
            (State::TrailerStart, byte) if is_token(byte) => {
                self.trailers += 1;
                State::TrailerName
            }
            (State::TrailerName, byte) if is_token(byte) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, byte) if is_text(byte) => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLineFeed,
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::LastLineFeed, b'\n') => State::Done,
            _ => return Err(ChunkError::Malformed),
        };
        if self.trailers == 0 {
            return Ok(next);
        }
        self.trailer_bytes += 1;
        if usize::from(self.trailers) > TRAILERS_MAX
            || usize::from(self.trailer_bytes) > TRAILER_BYTES_MAX
        {
            return Err(ChunkError::TrailersTooLarge);
        }
        self.tail.push(byte);
        if next == State::TrailerStart {
            self.finish_line();
        }
        Ok(next)
    }

    /// Drops the line that just ended if its field has no place in a trailer section.
    fn finish_line(&mut self) {
        let start = usize::from(self.line_start);
        let line = &self.tail[start..];
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
        if is_forbidden(name) {
            self.tail.truncate(start);
        }
        // At most TRAILER_BYTES_MAX.
        self.line_start = self.tail.len() as u16;
    }
}

impl Default for ChunkedRelay {
    fn default() -> ChunkedRelay {
        ChunkedRelay::new()
    }
}

struct Piece {
    bytes: usize,
    is_data: bool,
}

const fn fits(bound: usize) -> bool {
    bound < u16::MAX as usize
}

// Counters are 16 bits and go one above their bound.
const _: () = assert!(fits(CHUNK_EXTENSION_BYTES_MAX) && fits(CHUNK_EXTENSIONS_TOTAL_BYTES_MAX));
const _: () = assert!(fits(TRAILER_BYTES_MAX) && fits(TRAILERS_MAX) && fits(CHUNK_SIZE_DIGITS_MAX));

#[cfg(test)]
mod tests {
    use super::*;
    use ChunkError::*;

    /// Relayed bytes with the tail, and the bytes consumed.
    fn relay(bytes: &[u8], split: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let mut relay = ChunkedRelay::new();
        let (mut out, mut consumed, mut done) = (Vec::new(), 0, false);
        for part in bytes.chunks(split) {
            let step = relay.step(part)?;
            assert!(step.relay <= step.consumed && (step.done || step.consumed == part.len()));
            out.extend_from_slice(&part[..step.relay]);
            consumed += step.consumed;
            done = step.done;
            if done {
                break;
            }
        }
        out.extend_from_slice(relay.tail());
        Ok((out, consumed, done))
    }

    fn strip(bytes: &[u8], split: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let mut relay = ChunkedRelay::new();
        let (mut out, mut consumed, mut done) = (Vec::new(), 0, false);
        for part in bytes.chunks(split) {
            let mut part = part.to_vec();
            let stripped = relay.strip(&mut part)?;
            out.extend_from_slice(&part[..stripped.data]);
            consumed += stripped.consumed;
            done = stripped.done;
            if done {
                break;
            }
        }
        Ok((out, consumed, done))
    }

    #[test]
    fn a_body_without_trailers_is_relayed_as_it_came() {
        let body = b"5\r\nhello\r\n0A;x=\"y\r\r\n";
        assert_eq!(relay(body, 64), Err(Malformed));
        let body = b"5\r\nhello\r\n0a;x=\"\xe9;\"\r\n0123456789\r\n000;last\r\n\r\n";
        let message = [body.as_slice(), b"GET /"].concat();
        for split in 1..message.len() {
            assert_eq!(relay(&message, split), Ok((body.to_vec(), body.len(), true)));
            let data = b"hello0123456789".to_vec();
            assert_eq!(strip(&message, split), Ok((data, body.len(), true)));
        }
        assert_eq!(ChunkedRelay::new().step(body).map(|step| step.data), Ok(15));
    }

    /// RFC 9110 section 6.5.1
    #[test]
    fn trailers_are_held_and_filtered() {
        let body =
            b"1\r\na\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\nhost:x\r\nx-forwarded-for: y\r\n\
            Proxy-X: 1\r\ngrpc-status:0 \r\nIf-Match: *\r\n\r\n";
        let expected = b"1\r\na\r\n0\r\nX-T: 1\r\ngrpc-status:0 \r\n\r\n".to_vec();
        for split in 1..=body.len() {
            assert_eq!(relay(body, split), Ok((expected.clone(), body.len(), true)));
            assert_eq!(strip(body, split), Ok((b"a".to_vec(), body.len(), true)));
        }
        let body = b"0\r\nHost: x\r\n\r\n";
        let step = ChunkedRelay::new().step(body);
        assert_eq!(step, Ok(Step { consumed: body.len(), relay: 3, data: 0, done: true }));
        assert_eq!(relay(body, 64), Ok((b"0\r\n\r\n".to_vec(), body.len(), true)));
    }

    /// RFC 9112 section 7.1
    #[test]
    fn malformed_chunks_are_refused() {
        let cases: &[&[u8]] = &[
            b"\r\n\r\n",
            b"+5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b" 5\r\n",
            b"5 \r\n",
            b"5 ;a\r\n",
            b"5\nhello",
            b"5\r\rhello",
            b"g\r\n",
            b";a\r\n",
            b"5;a\nhello",
            b"5;\0\r\n",
            b"5;\r\nhello\r\n",
            b"5;\x7f\r\n",
            b"5\r\nhello\n0\r\n",
            b"5\r\nhelloXX0\r\n",
            b"5\r\nhello!\r\n",
            b"0\r\n\n",
            b"0\r\n\rX",
            b"0\r\nA: b\n\r\n",
            b"0\r\nA : b\r\n\r\n",
            b"0\r\nA\r\n\r\n",
            b"0\r\n: b\r\n\r\n",
            b"0\r\n A: b\r\n\r\n",
            b"0\r\nA: b\r\n c\r\n\r\n",
            b"0\r\nA: \0\r\n\r\n",
            b"10000000000000005\r\n",
            b"00000000000000005\r\n",
        ];
        for bytes in cases {
            let text = String::from_utf8_lossy(bytes);
            for split in [1, 2, 64] {
                assert_eq!(relay(bytes, split), Err(Malformed), "{text:?}");
                assert_eq!(strip(bytes, split), Err(Malformed), "{text:?}");
            }
        }
        let mut failed = ChunkedRelay::new();
        assert_eq!(failed.step(b"x"), Err(Malformed));
        assert_eq!(failed.step(b"0\r\n\r\n"), Err(Malformed));
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        assert!(size_of::<ChunkedRelay>() <= 48);
        let size =
            |digits: usize| relay(format!("{}1\r\na\r\n", "0".repeat(digits - 1)).as_bytes(), 9);
        assert!(size(CHUNK_SIZE_DIGITS_MAX).is_ok());
        assert_eq!(size(CHUNK_SIZE_DIGITS_MAX + 1), Err(Malformed));
        let mut largest = ChunkedRelay::new();
        assert!(largest.step(b"7fffffffffffffff\r\nabc").is_ok_and(|step| step.data == 3));

        let extension = |bytes: usize| format!("1;{}\r\na\r\n", "x".repeat(bytes - 1));
        assert!(relay(extension(CHUNK_EXTENSION_BYTES_MAX).as_bytes(), 64).is_ok());
        let above = extension(CHUNK_EXTENSION_BYTES_MAX + 1);
        assert_eq!(relay(above.as_bytes(), 64), Err(ExtensionsTooLarge));
        let full = CHUNK_EXTENSIONS_TOTAL_BYTES_MAX / CHUNK_EXTENSION_BYTES_MAX;
        let all = extension(CHUNK_EXTENSION_BYTES_MAX).repeat(full);
        assert!(relay(all.as_bytes(), 64).is_ok());
        let above = all + &extension(2);
        assert_eq!(relay(above.as_bytes(), 64), Err(ExtensionsTooLarge));

        let trailers = |count: usize| format!("0\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert!(relay(trailers(TRAILERS_MAX).as_bytes(), 64).is_ok());
        assert_eq!(relay(trailers(TRAILERS_MAX + 1).as_bytes(), 64), Err(TrailersTooLarge));
        let trailer = |bytes: usize| format!("0\r\na:{}\r\n\r\n", "b".repeat(bytes - 6));
        assert!(relay(trailer(TRAILER_BYTES_MAX).as_bytes(), 64).is_ok());
        let above = trailer(TRAILER_BYTES_MAX + 1);
        assert_eq!(relay(above.as_bytes(), 64), Err(TrailersTooLarge));
        assert_eq!(TrailersTooLarge.kind(Side::Client), ErrorKind::ChunkMalformed);
    }
}
