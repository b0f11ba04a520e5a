//! Counts what a client's frames ask for: frames that cost it nothing and us work are bounded by the
//! useful ones, which `h2` does for some kinds only (RFC 9113 section 10.5).
//!
//! Each kind has a bucket: a frame fills it, time and useful frames empty it. What breaks a rule is
//! judged beside it, and goes no further.

use h2::Reason;

use super::frame::{
    ACK, CONTINUATION, DATA, END_STREAM, FLAGS_AT, Follower, Frame, HEADERS, PING, PREFACE,
    PRIORITY, Part, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use super::judge::{Judge, Wrong};
use crate::limits::{
    HTTP2_CONTINUATIONS, HTTP2_EMPTY_DATA, HTTP2_PINGS, HTTP2_PRIORITIES, HTTP2_RESETS,
    HTTP2_SETTINGS, HTTP2_UNKNOWN, HTTP2_WINDOW_UPDATES,
};

/// A kind of frames of which too many came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Flood {
    /// SETTINGS, acknowledgements included.
    Settings,
    /// PING, answers included.
    Ping,
    /// PRIORITY
    Priority,
    /// RST_STREAM: CVE-2023-44487.
    Reset,
    /// WINDOW_UPDATE
    WindowUpdate,
    /// DATA without content that does not end its stream: CVE-2019-9518.
    EmptyData,
    /// CONTINUATION: CVE-2024-27316.
    Continuation,
    /// Frames of unknown kinds, and GOAWAY, of which one is enough.
    Unknown,
}

/// How many frames of a kind may come.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// At once.
    pub burst: u32,
    /// More of them each second.
    pub per_s: u32,
    /// And for each useful frame, by [`Useful`].
    pub for_useful: [u32; 4],
}

/// Frames that carry requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Useful {
    HeadersIn,
    DataIn,
    HeadersOut,
    DataOut,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There was too much of something.
    Flood(Flood),
    /// A frame broke a rule whose code this is.
    Broken(Reason),
}

impl Verdict {
    /// The code of GOAWAY.
    pub fn reason(self) -> Reason {
        match self {
            Verdict::Flood(_) => Reason::ENHANCE_YOUR_CALM,
            Verdict::Broken(reason) => reason,
        }
    }
}

/// The frames of one connection, as they pass.
#[derive(Debug)]
pub struct Meter {
    judge: Judge,
    incoming: Follower,
    outgoing: Follower,
    /// In thousandths of a frame.
    levels: [u64; KINDS],
    emptied_ms: u64,
    frames: u64,
    sent: u64,
    acknowledged: bool,
    verdict: Option<Verdict>,
}

const KINDS: usize = Flood::ALL.len();

/// The unit of levels: a rate a second empties whole units in milliseconds.
const FRAME: u64 = 1_000;

impl Flood {
    /// Every kind, in the order of the metrics.
    pub const ALL: [Flood; 8] = [
        Flood::Settings,
        Flood::Ping,
        Flood::Priority,
        Flood::Reset,
        Flood::WindowUpdate,
        Flood::EmptyData,
        Flood::Continuation,
        Flood::Unknown,
    ];

    /// How many of them may come.
    pub fn allowance(self) -> Allowance {
        match self {
            Flood::Settings => HTTP2_SETTINGS,
            Flood::Ping => HTTP2_PINGS,
            Flood::Priority => HTTP2_PRIORITIES,
            Flood::Reset => HTTP2_RESETS,
            Flood::WindowUpdate => HTTP2_WINDOW_UPDATES,
            Flood::EmptyData => HTTP2_EMPTY_DATA,
            Flood::Continuation => HTTP2_CONTINUATIONS,
            Flood::Unknown => HTTP2_UNKNOWN,
        }
        .into()
    }
}

impl From<(u32, u32, [u32; 4])> for Allowance {
    fn from((burst, per_s, for_useful): (u32, u32, [u32; 4])) -> Allowance {
        Allowance { burst, per_s, for_useful }
    }
}

impl Meter {
    /// One for a connection of a client, before its preface.
    pub fn new(now_ms: u64) -> Meter {
        Meter {
            judge: Judge::default(),
            incoming: Follower::behind(PREFACE.len()),
            outgoing: Follower::behind(0),
            levels: [0; KINDS],
            emptied_ms: now_ms,
            frames: 0,
            sent: 0,
            acknowledged: false,
            verdict: None,
        }
    }

    /// Looks at what the client has sent; how many bytes of it may go on. Once there is a verdict,
    /// nothing more may.
    pub fn on_read(&mut self, bytes: &mut [u8], now_ms: u64) -> usize {
        self.pass_time(now_ms);
        let (mut incoming, mut spoiled) = (self.incoming, None);
        let followed = incoming.follow(bytes, |part, begins| {
            let wrong = match part {
                Part::Head(frame) => {
                    self.on_frame(frame);
                    self.judge.on_head(frame)
                }
                Part::Payload(payload) => self.judge.on_payload(payload),
            };
            match (wrong, begins) {
                (Ok(()), _) => Ok(()),
                (Err(Wrong::Trailers), Some(at)) if spoiled.is_none() => {
                    spoiled = Some(at);
                    Ok(())
                }
                (Err(wrong), begins) => Err((wrong.reason(), begins.unwrap_or(0))),
            }
        });
        self.incoming = incoming;
        let good = match followed {
            _ if self.verdict.is_some() => 0,
            Ok(()) => bytes.len(),
            Err((reason, good)) => {
                self.verdict = Some(Verdict::Broken(reason));
                good
            }
        };
        if let Some(at) = spoiled.filter(|at| *at < good) {
            // Trailers that do not end their stream are what `h2` refuses the stream for.
            bytes[at + FLAGS_AT] &= !END_STREAM;
        }
        good
    }

    /// Looks at what is sent to the client.
    pub fn on_write(&mut self, bytes: &[u8]) {
        let mut outgoing = self.outgoing;
        let followed: Result<(), std::convert::Infallible> = outgoing.follow(bytes, |part, _| {
            let useful = match part {
                Part::Head(Frame { kind: DATA, .. }) => Useful::DataOut,
                Part::Head(Frame { kind: HEADERS, .. }) => Useful::HeadersOut,
                _ => return Ok(()),
            };
            self.sent += 1;
            self.credit(useful);
            Ok(())
        });
        let Ok(()) = followed;
        self.outgoing = outgoing;
    }

    /// Why the connection has to end, once it has.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Whether the client has acknowledged our SETTINGS (RFC 9113 section 6.5.3).
    pub fn acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Frames that the client has sent.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames of answers that have been sent to the client.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn on_frame(&mut self, frame: Frame) {
        self.frames += 1;
        match frame.kind {
            DATA if frame.length > 0 || frame.has(END_STREAM) => {
                self.credit(Useful::DataIn);
            }
            DATA => self.charge(Flood::EmptyData),
            HEADERS => self.credit(Useful::HeadersIn),
            PRIORITY => self.charge(Flood::Priority),
            RST_STREAM => self.charge(Flood::Reset),
            SETTINGS => {
                self.acknowledged |= frame.has(ACK);
                self.charge(Flood::Settings);
            }
            PING => self.charge(Flood::Ping),
            WINDOW_UPDATE => self.charge(Flood::WindowUpdate),
            CONTINUATION => self.charge(Flood::Continuation),
            _ => self.charge(Flood::Unknown),
        }
    }

    fn charge(&mut self, kind: Flood) {
        let level = &mut self.levels[kind as usize];
        *level += FRAME;
        if *level > u64::from(kind.allowance().burst) * FRAME {
            self.verdict.get_or_insert(Verdict::Flood(kind));
        }
    }

    fn credit(&mut self, useful: Useful) {
        for kind in Flood::ALL {
            let more = u64::from(kind.allowance().for_useful[useful as usize]) * FRAME;
            let level = &mut self.levels[kind as usize];
            *level = level.saturating_sub(more);
        }
    }

    fn pass_time(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.emptied_ms);
        if passed_ms == 0 {
            return;
        }
        self.emptied_ms = now_ms;
        for kind in Flood::ALL {
            let emptied = passed_ms.saturating_mul(u64::from(kind.allowance().per_s));
            let level = &mut self.levels[kind as usize];
            *level = level.saturating_sub(emptied);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::{END_HEADERS, HEAD_BYTES};

    fn head(kind: u8, flags: u8, length: usize) -> Frame {
        Frame { length, kind, flags, stream: 1 }
    }

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len();
        let head = [0, (length >> 8) as u8, length as u8, kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    }

    fn begun() -> Meter {
        let mut meter = Meter::new(0);
        let mut begin = [&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat();
        assert_eq!(meter.on_read(&mut begin, 0), begin.len());
        meter.levels = [0; KINDS];
        meter
    }

    /// Counts a frame alone, whatever the rules say of it.
    fn count(meter: &mut Meter, frame: Frame, now_ms: u64) {
        meter.pass_time(now_ms);
        meter.on_frame(frame);
    }

    /// Frames of one kind until there are too many.
    fn fill(meter: &mut Meter, frames: &[Frame], now_ms: u64) -> u32 {
        let mut rounds = 0;
        while meter.verdict().is_none() {
            frames.iter().for_each(|frame| count(meter, *frame, now_ms));
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn each_kind_is_bounded_on_both_sides() {
        let kinds = [
            (SETTINGS, 6),
            (PING, 8),
            (PRIORITY, 5),
            (RST_STREAM, 4),
            (WINDOW_UPDATE, 4),
            (DATA, 0),
            (CONTINUATION, 10),
            (0x10, 3),
        ];
        for ((kind, length), flood) in kinds.into_iter().zip(Flood::ALL) {
            let one = [head(kind, 0, length)];
            let Allowance { burst, per_s, for_useful } = flood.allowance();
            let full = || {
                let mut meter = begun();
                (0..burst).for_each(|_| count(&mut meter, one[0], 0));
                assert_eq!(meter.verdict(), None, "{flood:?}");
                meter
            };
            let mut meter = begun();
            assert_eq!(fill(&mut meter, &one, 0), burst + 1, "{flood:?}");
            assert_eq!(meter.verdict(), Some(Verdict::Flood(flood)));
            assert_eq!(fill(&mut full(), &one, 1_000), per_s + 1, "{flood:?}");
            let mut meter = full();
            count(&mut meter, head(HEADERS, 4, 30), 0);
            count(&mut meter, head(DATA, 0, 30), 0);
            meter.on_write(&frame(HEADERS, 4, 1, &[0; 30]));
            meter.on_write(&frame(DATA, 0, 1, &[0; 300]));
            let more: u32 = for_useful.iter().sum();
            assert_eq!(fill(&mut meter, &one, 0), more.min(burst) + 1, "{flood:?}");
        }
    }

    #[test]
    fn however_the_bytes_are_cut_the_frames_are_the_same() {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[0; 12]));
        bytes.extend(frame(SETTINGS, ACK, 0, &[]));
        bytes.extend(frame(HEADERS, END_HEADERS, 1, &[0x82; 9]));
        bytes.extend(frame(DATA, 0, 1, &[0xaa; 700]));
        for step in 1..40 {
            let mut meter = Meter::new(0);
            bytes.clone().chunks_mut(step).for_each(|part| {
                assert_eq!(meter.on_read(part, 0), part.len());
            });
            assert_eq!((meter.frames(), meter.acknowledged()), (4, true), "{step}");
        }
    }

    #[test]
    fn frames_of_answers_are_progress_and_others_are_not() {
        let mut meter = begun();
        for (kind, flags, sent) in
            [(SETTINGS, ACK, 0), (HEADERS, 4, 1), (PING, ACK, 1), (DATA, 0, 2), (RST_STREAM, 0, 2)]
        {
            meter.on_write(&frame(kind, flags, 1, &[0; 8]));
            assert_eq!(meter.sent(), sent, "{kind}");
        }
    }

    #[test]
    fn too_much_goes_no_further() {
        let mut meter = begun();
        let mut pings = frame(PING, 0, 0, &[0; 8]).repeat(HTTP2_PINGS.0 as usize + 1);
        assert_eq!(meter.on_read(&mut pings, 0), 0);
        assert_eq!(meter.verdict(), Some(Verdict::Flood(Flood::Ping)));
        assert_eq!(meter.on_read(&mut frame(PING, 0, 0, &[0; 8]), 0), 0);
    }

    /// What stands before a wrong frame is served, and not a whole frame of it goes on.
    #[test]
    fn what_is_wrong_goes_no_further() {
        let (right, wrong) = (frame(PING, 0, 0, &[0; 8]), frame(PING, 0, 0, &[0; 9]));
        let bytes = [right.clone(), wrong.clone(), right.clone()].concat();
        for step in 1..bytes.len() {
            let (mut meter, mut good) = (begun(), 0);
            for part in bytes.clone().chunks_mut(step) {
                good += meter.on_read(part, 0);
            }
            assert!((right.len()..right.len() + HEAD_BYTES).contains(&good), "{good} by {step}");
            let verdict = Verdict::Broken(Reason::FRAME_SIZE_ERROR);
            assert_eq!(meter.verdict(), Some(verdict));
        }
    }

    /// Trailers with a pseudo field lose what makes them trailers, so that their stream is reset.
    #[test]
    fn malformed_trailers_are_spoiled() {
        let open = frame(HEADERS, END_HEADERS, 1, &[0x82; 4]);
        let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x82, 0x90]);
        let mut meter = begun();
        let mut bytes = [open.clone(), trailers.clone()].concat();
        assert_eq!(meter.on_read(&mut bytes, 0), bytes.len());
        assert_eq!(meter.verdict(), None);
        assert_eq!(bytes, [open.clone(), frame(HEADERS, END_HEADERS, 1, &[0x82, 0x90])].concat());
        // Where their head is gone already, the connection ends.
        let mut meter = begun();
        let (first, rest) = trailers.split_at(HEAD_BYTES);
        meter.on_read(&mut [&open[..], first].concat(), 0);
        assert_eq!(meter.on_read(&mut rest.to_vec(), 0), 0);
        assert_eq!(meter.verdict(), Some(Verdict::Broken(Reason::PROTOCOL_ERROR)));
    }

    /// What gRPC does: a small message, a WINDOW_UPDATE of the stream and one of the connection, and
    /// a PING now and then, for hours.
    #[test]
    fn streams_of_small_messages_are_no_flood() {
        let mut meter = begun();
        for message in 0..1_000_000u64 {
            let now_ms = message / 100;
            meter.on_write(&frame(DATA, 0, 1, &[0; 20]));
            count(&mut meter, head(WINDOW_UPDATE, 0, 4), now_ms);
            count(&mut meter, head(WINDOW_UPDATE, 0, 4), now_ms);
            if message % 4 == 0 {
                count(&mut meter, head(PING, 0, 8), now_ms);
            }
            assert_eq!(meter.verdict(), None, "{message}");
        }
        for message in 0..100_000 {
            count(&mut meter, head(DATA, 0, 20), 0);
            if message % 2 == 0 {
                count(&mut meter, head(PING, ACK, 8), 0);
            }
            assert_eq!(meter.verdict(), None, "{message}");
        }
    }

    /// CVE-2023-44487
    #[test]
    fn requests_that_are_reset_at_once_are_a_flood() {
        let mut meter = begun();
        let pair = [head(HEADERS, 5, 20), head(RST_STREAM, 0, 4)];
        assert_eq!(fill(&mut meter, &pair, 0), Flood::Reset.allowance().burst + 1);
        let mut meter = begun();
        for _ in 0..100_000 {
            count(&mut meter, pair[0], 0);
            meter.on_write(&frame(HEADERS, 4, 1, &[0; 20]));
            count(&mut meter, pair[1], 0);
        }
        assert_eq!(meter.verdict(), None, "answers that are cut short are not");
    }
}
