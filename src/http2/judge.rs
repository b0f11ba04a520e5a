//! Holds a client's frames against RFC 9113 before `h2` sees them: that ends a connection by
//! PROTOCOL_ERROR where the RFC has another code, and takes pseudo fields in trailers. Fields are for
//! `h2`, which does not tell blocks that do not decode from fields that are malformed.

use h2::Reason;

use super::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PADDED, PING,
    PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY,
};
use crate::limits::HTTP2_FRAME_BYTES_MAX;

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The connection ends by this code.
    Connection(Reason),
    /// The message is malformed: its stream ends by PROTOCOL_ERROR.
    Trailers,
}

impl Wrong {
    /// The code that says so.
    pub fn reason(self) -> Reason {
        match self {
            Wrong::Connection(reason) => reason,
            Wrong::Trailers => Reason::PROTOCOL_ERROR,
        }
    }
}

/// What is known of a connection's streams, and of the frame that is on its way.
#[derive(Debug, Default)]
pub(super) struct Judge {
    begun: bool,
    /// The last stream that the client has opened.
    highest: u32,
    /// Which of the last 128 streams it has opened: bit 0 is `highest`, bit 1 the one before.
    opened: u128,
    /// Which of them it has ended or reset.
    ended: u128,
    /// The stream of a header block that has not ended, or 0.
    block: u32,
    frame: Frame,
    /// The first bytes of its payload, as far as a rule asks for them.
    kept: [u8; KEPT],
    have: usize,
    want: usize,
    /// Whether they are of trailers.
    trailers: bool,
    /// Bytes of SETTINGS that have not been looked at.
    left: usize,
}

/// Padding, priority, a change of the table's size or two, and a field's first byte.
const KEPT: usize = 16;

const PROTOCOL: Wrong = Wrong::Connection(Reason::PROTOCOL_ERROR);
const SIZE: Wrong = Wrong::Connection(Reason::FRAME_SIZE_ERROR);
const CLOSED: Wrong = Wrong::Connection(Reason::STREAM_CLOSED);

impl Judge {
    /// Judges by a frame's head.
    pub fn on_head(&mut self, frame: Frame) -> Result<(), Wrong> {
        (self.frame, self.have, self.want) = (frame, 0, 0);
        let first = !std::mem::replace(&mut self.begun, true);
        // An acknowledgement of ours may overtake the client's: `h2` takes either.
        if first && frame.kind != SETTINGS {
            return Err(PROTOCOL); // RFC 9113 section 3.4
        }
        if self.block != 0 && (frame.kind != CONTINUATION || frame.stream != self.block) {
            return Err(PROTOCOL); // RFC 9113 section 6.10
        }
        placed(&frame)?;
        sized(&frame)?;
        match frame.kind {
            DATA => self.on_data(&frame),
            HEADERS => self.on_headers(&frame),
            RST_STREAM => {
                self.not_idle(frame.stream)?;
                self.end(frame.stream);
                Ok(())
            }
            SETTINGS => {
                (self.left, self.want) = (frame.length, PAIR.min(frame.length));
                Ok(())
            }
            WINDOW_UPDATE => {
                self.want = frame.length;
                if frame.stream == 0 { Ok(()) } else { self.not_idle(frame.stream) }
            }
            CONTINUATION => self.on_continuation(&frame),
            PUSH_PROMISE => Err(PROTOCOL), // RFC 9113 section 8.4
            _ => Ok(()),
        }
    }

    /// Judges by what has come of a frame's payload.
    pub fn on_payload(&mut self, mut bytes: &[u8]) -> Result<(), Wrong> {
        while self.want > 0 && !bytes.is_empty() {
            let taken = (self.want - self.have).min(bytes.len());
            self.kept[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have < self.want {
                return Ok(());
            }
            let kept = self.want;
            (self.have, self.want) = (0, 0);
            self.on_kept(kept)?;
        }
        Ok(())
    }

    fn on_data(&mut self, frame: &Frame) -> Result<(), Wrong> {
        self.not_idle(frame.stream)?;
        if self.is(self.ended, frame.stream) {
            return Err(CLOSED); // RFC 9113 section 5.1
        }
        self.want = usize::from(frame.has(PADDED));
        if frame.has(END_STREAM) {
            self.end(frame.stream);
        }
        Ok(())
    }

    fn on_headers(&mut self, frame: &Frame) -> Result<(), Wrong> {
        if frame.stream.is_multiple_of(2) {
            return Err(PROTOCOL); // RFC 9113 section 5.1.1
        }
        self.want = usize::from(frame.has(PADDED));
        self.trailers = false;
        if frame.stream > self.highest {
            self.open(frame.stream);
        } else if self.is(self.ended, frame.stream) {
            return Err(CLOSED); // RFC 9113 section 5.1
        } else if self.bit(frame.stream).is_some() && !self.is(self.opened, frame.stream) {
            return Err(PROTOCOL); // RFC 9113 section 5.1.1
        } else if frame.has(END_STREAM) {
            (self.want, self.trailers) = (KEPT.min(frame.length), true);
        }
        if frame.has(END_STREAM) {
            self.end(frame.stream);
        }
        self.block = if frame.has(END_HEADERS) { 0 } else { frame.stream };
        Ok(())
    }

    fn on_continuation(&mut self, frame: &Frame) -> Result<(), Wrong> {
        if self.block == 0 {
            return Err(PROTOCOL); // RFC 9113 section 6.10
        }
        if frame.has(END_HEADERS) {
            self.block = 0;
        }
        Ok(())
    }

    fn on_kept(&mut self, count: usize) -> Result<(), Wrong> {
        let Frame { kind, length, .. } = self.frame;
        let [a, b, c, d, e, f, ..] = self.kept;
        match kind {
            // RFC 9113 section 6.1
            DATA if usize::from(a) >= length => Err(PROTOCOL),
            HEADERS => self.on_block(count),
            // RFC 9113 section 6.9
            WINDOW_UPDATE if u32::from_be_bytes([a & 0x7f, b, c, d]) == 0 => Err(PROTOCOL),
            SETTINGS => {
                self.left -= count;
                self.want = PAIR.min(self.left);
                setting(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
            }
            _ => Ok(()),
        }
    }

    /// The first bytes of HEADERS: their padding, and the first field of trailers.
    fn on_block(&self, count: usize) -> Result<(), Wrong> {
        let frame = &self.frame;
        let (padded, priority) = (frame.has(PADDED), frame.has(WITH_PRIORITY));
        let begins = usize::from(padded) + 5 * usize::from(priority);
        let padding = if padded { usize::from(self.kept[0]) } else { 0 };
        if begins + padding > frame.length {
            return Err(PROTOCOL); // RFC 9113 section 6.2
        }
        let end = count.min(frame.length - padding);
        let fields = self.kept.get(begins..end).unwrap_or_default();
        // RFC 9113 section 8.1: `h2` refuses a pseudo field behind others itself.
        let refused = self.trailers && begins_with_pseudo(fields);
        if refused { Err(Wrong::Trailers) } else { Ok(()) }
    }

    fn not_idle(&self, stream: u32) -> Result<(), Wrong> {
        let idle = stream > self.highest || stream.is_multiple_of(2);
        if idle { Err(PROTOCOL) } else { Ok(()) } // RFC 9113 section 5.1
    }

    /// The bit of one of the last streams.
    fn bit(&self, stream: u32) -> Option<u128> {
        1u128.checked_shl((self.highest - stream) / 2).filter(|_| stream % 2 == 1)
    }

    fn is(&self, set: u128, stream: u32) -> bool {
        self.bit(stream).is_some_and(|bit| set & bit != 0)
    }

    fn open(&mut self, stream: u32) {
        let by = (stream - self.highest) / 2;
        let moved = |set: u128| set.checked_shl(by).unwrap_or(0);
        (self.opened, self.ended) = (moved(self.opened) | 1, moved(self.ended));
        self.highest = stream;
    }

    fn end(&mut self, stream: u32) {
        self.ended |= self.bit(stream).unwrap_or(0);
    }
}

/// Bytes of one setting.
const PAIR: usize = 6;

/// Which frames are of the connection, and which of a stream: RFC 9113 section 6.
fn placed(frame: &Frame) -> Result<(), Wrong> {
    let right = match frame.kind {
        SETTINGS | PING | GOAWAY => frame.stream == 0,
        DATA | HEADERS | PRIORITY | RST_STREAM | PUSH_PROMISE | CONTINUATION => frame.stream != 0,
        _ => true,
    };
    if right { Ok(()) } else { Err(PROTOCOL) }
}

/// The sizes that RFC 9113 sections 4.2 and 6 ask for.
fn sized(frame: &Frame) -> Result<(), Wrong> {
    let padded = usize::from(frame.has(PADDED));
    let right = match frame.kind {
        _ if frame.length > HTTP2_FRAME_BYTES_MAX => false,
        DATA => frame.length >= padded,
        HEADERS => frame.length >= padded + 5 * usize::from(frame.has(WITH_PRIORITY)),
        PRIORITY => frame.length == 5,
        RST_STREAM | WINDOW_UPDATE => frame.length == 4,
        SETTINGS if frame.has(ACK) => frame.length == 0,
        SETTINGS => frame.length.is_multiple_of(PAIR),
        PING => frame.length == 8,
        GOAWAY => frame.length >= 8,
        _ => true,
    };
    if right { Ok(()) } else { Err(SIZE) }
}

/// RFC 9113 section 6.5.2, RFC 8441 section 3
fn setting(id: u16, value: u32) -> Result<(), Wrong> {
    match (id, value) {
        (2 | 8, 2..) => Err(PROTOCOL),
        (4, 0x8000_0000..) => Err(Wrong::Connection(Reason::FLOW_CONTROL_ERROR)),
        (5, ..0x4000 | 0x100_0000..) => Err(PROTOCOL),
        _ => Ok(()),
    }
}

/// Whether the first field is a pseudo field, as far as its bytes say so: by the static table, or
/// by a literal name (RFC 7541 section 6).
fn begins_with_pseudo(mut block: &[u8]) -> bool {
    while let [0x20..0x40, rest @ ..] = block {
        let long = block[0] == 0x3f;
        let more = rest.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        block = if long { rest.get(more..).unwrap_or_default() } else { rest };
    }
    let Some(&first) = block.first() else { return false };
    let index = match first {
        0x80.. => first & 0x7f,
        0x40.. => first & 0x3f,
        _ => first & 0x0f,
    };
    match (index, block) {
        (1..=PSEUDO_LAST, _) => true,
        // A colon takes seven bits in the Huffman code.
        (0, [_, length, name, ..]) if *length > 0x80 => name >> 1 == 0x5c,
        (0, [_, length, name, ..]) => *length > 0 && *name == b':',
        _ => false,
    }
}

/// The static table begins with the pseudo fields: RFC 7541 appendix A.
const PSEUDO_LAST: u8 = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::{Follower, Part};

    const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn settings(id: u16, value: u32) -> Vec<u8> {
        let pair = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &[&[0, 9, 0, 0, 0, 0], &pair[..]].concat())
    }

    /// A request whose content has not ended.
    fn open(stream: u32) -> Vec<u8> {
        frame(HEADERS, END_HEADERS, stream, GET)
    }

    fn whole(stream: u32) -> Vec<u8> {
        frame(HEADERS, END_HEADERS | END_STREAM, stream, GET)
    }

    fn trailers(flags: u8, fields: &[u8]) -> Vec<u8> {
        frame(HEADERS, END_HEADERS | END_STREAM | flags, 1, fields)
    }

    /// What the first wrong one of the frames is, behind SETTINGS; the same however they are cut.
    fn judged(frames: &[Vec<u8>]) -> Result<(), Wrong> {
        let bytes = [frame(SETTINGS, 0, 0, &[]), frames.concat()].concat();
        let cut = |step: usize| {
            let (mut judge, mut follower) = (Judge::default(), Follower::behind(0));
            bytes.chunks(step).try_for_each(|part| {
                follower.follow(part, |part, _| match part {
                    Part::Head(frame) => judge.on_head(frame),
                    Part::Payload(payload) => judge.on_payload(payload),
                })
            })
        };
        let all = cut(bytes.len());
        for step in 1..20 {
            assert_eq!(cut(step), all, "in pieces of {step}");
        }
        all
    }

    const FLOW: Wrong = Wrong::Connection(Reason::FLOW_CONTROL_ERROR);

    #[test]
    fn sizes_are_those_of_the_kinds() {
        let right = [
            frame(PRIORITY, 0, 3, &[0; 5]),
            frame(PING, 0, 0, &[0; 8]),
            frame(GOAWAY, 0, 0, &[0; 30]),
            frame(SETTINGS, ACK, 0, &[]),
            frame(0x42, 0, 9, &[0; HTTP2_FRAME_BYTES_MAX]),
            open(1),
            frame(DATA, 0, 1, &[0; HTTP2_FRAME_BYTES_MAX]),
            frame(DATA, PADDED, 1, &[0]),
            frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
            frame(RST_STREAM, 0, 1, &[0; 4]),
        ];
        assert_eq!(judged(&right), Ok(()));
        let wrong = [
            frame(PRIORITY, 0, 1, &[0; 4]),
            frame(PRIORITY, 0, 1, &[0; 6]),
            frame(RST_STREAM, 0, 1, &[0; 3]),
            frame(RST_STREAM, 0, 1, &[0; 5]),
            frame(SETTINGS, 0, 0, &[0; 5]),
            frame(SETTINGS, ACK, 0, &[0; 6]),
            frame(PING, 0, 0, &[0; 7]),
            frame(PING, ACK, 0, &[0; 9]),
            frame(GOAWAY, 0, 0, &[0; 7]),
            frame(WINDOW_UPDATE, 0, 0, &[1; 3]),
            frame(WINDOW_UPDATE, 0, 1, &[1; 5]),
            frame(DATA, PADDED, 1, &[]),
            frame(HEADERS, WITH_PRIORITY | PADDED, 3, &[0; 5]),
            frame(DATA, 0, 1, &[0; HTTP2_FRAME_BYTES_MAX + 1]),
            frame(0x42, 0, 0, &[0; HTTP2_FRAME_BYTES_MAX + 1]),
        ];
        for one in wrong {
            assert_eq!(judged(&[open(1), one.clone()]), Err(SIZE), "{one:02x?}");
        }
    }

    #[test]
    fn kinds_have_their_place() {
        for (kind, length) in [(SETTINGS, 6), (PING, 8), (GOAWAY, 8)] {
            let one = frame(kind, 0, 1, &vec![0; length]);
            assert_eq!(judged(&[open(1), one]), Err(PROTOCOL), "{kind}");
        }
        for (kind, length) in [(DATA, 1), (HEADERS, 1), (PRIORITY, 5), (RST_STREAM, 4)] {
            assert_eq!(judged(&[frame(kind, 0, 0, &vec![0; length])]), Err(PROTOCOL), "{kind}");
        }
        for kind in [PUSH_PROMISE, CONTINUATION] {
            assert_eq!(judged(&[open(1), frame(kind, 4, 1, &[0; 4])]), Err(PROTOCOL), "{kind}");
        }
        let mut judge = Judge::default();
        let first = Frame { length: 8, kind: PING, flags: 0, stream: 0 };
        assert_eq!(judge.on_head(first), Err(PROTOCOL));
    }

    #[test]
    fn a_header_block_is_not_interrupted() {
        let begun = || frame(HEADERS, END_STREAM, 1, GET);
        let goes_on = |flags, stream| frame(CONTINUATION, flags, stream, &[]);
        let right = [begun(), goes_on(0, 1), goes_on(END_HEADERS, 1), whole(3)];
        assert_eq!(judged(&right), Ok(()));
        for other in [goes_on(0, 3), whole(3), frame(PING, 0, 0, &[0; 8]), frame(9, 0, 0, &[])] {
            assert_eq!(judged(&[begun(), other]), Err(PROTOCOL));
        }
        assert_eq!(judged(&[begun(), goes_on(END_HEADERS, 1), goes_on(0, 1)]), Err(PROTOCOL));
    }

    #[test]
    fn a_stream_takes_nothing_behind_its_end() {
        let data = |stream| frame(DATA, 0, stream, b"x");
        let end = || frame(DATA, END_STREAM, 1, b"x");
        let reset = || frame(RST_STREAM, 0, 1, &[0; 4]);
        for ended in [vec![whole(1)], vec![open(1), end()], vec![open(1), reset()]] {
            for late in [data(1), whole(1), open(1)] {
                let frames = [ended.clone(), vec![whole(3), late]].concat();
                assert_eq!(judged(&frames), Err(CLOSED), "{frames:02x?}");
            }
            let crossing = [reset(), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])];
            let frames = [ended, crossing.to_vec(), vec![frame(PRIORITY, 0, 1, &[0; 5])]].concat();
            assert_eq!(judged(&frames), Ok(()));
        }
        let others = [open(1), open(3), whole(5), data(1), data(3), end(), data(3)];
        assert_eq!(judged(&others), Ok(()));
    }

    #[test]
    fn idle_streams_take_requests_and_priority_alone() {
        for stream in [1, 2, 7, 0x7fff_ffff] {
            let reset = frame(RST_STREAM, 0, stream, &[0; 4]);
            let update = frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]);
            for one in [frame(DATA, 0, stream, b"x"), reset, update] {
                let before = if stream == 1 { Vec::new() } else { whole(5) };
                assert_eq!(judged(&[before, one.clone()]), Err(PROTOCOL), "{one:02x?}");
            }
            assert_eq!(judged(&[whole(5), frame(PRIORITY, 0, stream, &[0; 5])]), Ok(()));
        }
        for numbers in [&[2][..], &[5, 4], &[5, 3]] {
            let frames: Vec<_> = numbers.iter().map(|stream| whole(*stream)).collect();
            assert_eq!(judged(&frames), Err(PROTOCOL), "{numbers:?}");
        }
    }

    /// The streams that are remembered end at 128 before the last one; what is older is for `h2`.
    #[test]
    fn the_last_128_streams_are_known() {
        let behind = |stream| judged(&[whole(1), open(stream), frame(DATA, 0, 1, b"x")]);
        assert_eq!((behind(255), behind(257)), (Err(CLOSED), Ok(())));
        assert_eq!((behind(0x7fff_ffff), behind(3)), (Ok(()), Err(CLOSED)));
        let (old, next) = (open(1), whole(0x7fff_ffff));
        assert_eq!(judged(&[old, next, frame(DATA, END_STREAM, 1, b"x")]), Ok(()));
    }

    #[test]
    fn settings_windows_and_padding_keep_their_bounds() {
        let right = [(2, 1), (4, 0x7fff_ffff), (5, 0x4000), (5, 0xff_ffff), (8, 1), (1, u32::MAX)];
        for (id, value) in right {
            assert_eq!(judged(&[settings(id, value)]), Ok(()), "{id} = {value}");
        }
        for (id, value) in [(2, 2), (5, 0x3fff), (5, 0x100_0000), (8, 2)] {
            assert_eq!(judged(&[settings(id, value)]), Err(PROTOCOL), "{id} = {value}");
        }
        assert_eq!(judged(&[settings(4, 0x8000_0000)]), Err(FLOW));
        for stream in [0, 1] {
            let update =
                |bytes: &[u8]| judged(&[open(1), frame(WINDOW_UPDATE, 0, stream, bytes), whole(3)]);
            assert_eq!(update(&[0x80, 0, 0, 0]), Err(PROTOCOL));
            assert_eq!(update(&[0x80, 0, 0, 1]), Ok(()));
        }
        let padded = |payload: &[u8]| judged(&[open(1), frame(DATA, PADDED, 1, payload)]);
        assert_eq!((padded(&[1]), padded(&[2, 0])), (Err(PROTOCOL), Err(PROTOCOL)));
        assert_eq!((padded(&[0]), padded(&[2, 0, 0])), (Ok(()), Ok(())));
        let padded = |payload: &[u8]| judged(&[frame(HEADERS, PADDED | 0x24, 1, payload)]);
        assert_eq!(padded(&[1, 0, 0, 0, 0, 9]), Err(PROTOCOL));
        assert_eq!(padded(&[1, 0, 0, 0, 0, 9, 0]), Ok(()));
    }

    #[test]
    fn trailers_begin_with_no_pseudo_field() {
        let pseudo: [&[u8]; 9] = [
            &[0x82],
            &[0x8e],
            &[0x42, 3, b'2', b'0', b'0'],
            &[0x04, 1, b'/'],
            &[0x14, 1, b'/'],
            &[0x00, 2, b':', b'x', 1, b'1'],
            &[0x40, 0x86, 0xb9, 0, 0, 0, 0, 0, 0],
            &[0x20, 0x82],
            &[0x3f, 0xe1, 0x1f, 0x20, 0x82],
        ];
        for fields in pseudo {
            assert_eq!(judged(&[open(1), trailers(0, fields)]), Err(Wrong::Trailers), "{fields:?}");
            let padded = [&[2], fields, &[0, 0]].concat();
            let padded = trailers(PADDED, &padded);
            assert_eq!(judged(&[open(1), padded]), Err(Wrong::Trailers), "{fields:?}");
        }
        let regular: [&[u8]; 7] = [
            &[],
            &[0x8f],
            &[0xbe],
            &[0x0f, 0x2f, 1, b'1'],
            &[0x00, 1, b'x', 1, b':'],
            &[0x00, 0],
            &[0x20],
        ];
        for fields in regular {
            assert_eq!(judged(&[open(1), trailers(0, fields)]), Ok(()), "{fields:?}");
        }
        // Padding is no field.
        assert_eq!(judged(&[open(1), trailers(PADDED, &[1, 0x82])]), Ok(()));
    }
}
