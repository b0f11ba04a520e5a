//! Counts what a client's frames ask for: frames that cost it nothing and us work are bounded by the
//! useful ones, which `h2` does for some kinds only (RFC 9113 section 10.5).
//!
//! Each kind has a bucket: a frame fills it, time and useful frames empty it.

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

/// The frames of one connection, as they pass.
#[derive(Debug)]
pub struct Meter {
    incoming: Follower,
    outgoing: Follower,
    /// In thousandths of a frame.
    levels: [u64; KINDS],
    emptied_ms: u64,
    frames: u64,
    sent: u64,
    acknowledged: bool,
    flood: Option<Flood>,
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
            incoming: Follower::behind(PREFACE.len()),
            outgoing: Follower::behind(0),
            levels: [0; KINDS],
            emptied_ms: now_ms,
            frames: 0,
            sent: 0,
            acknowledged: false,
            flood: None,
        }
    }

    /// Looks at what the client has sent.
    pub fn on_read(&mut self, bytes: &[u8], now_ms: u64) {
        self.pass_time(now_ms);
        let mut incoming = self.incoming;
        incoming.follow(bytes, |frame| self.on_frame(frame));
        self.incoming = incoming;
    }

    /// Looks at what is sent to the client.
    pub fn on_write(&mut self, bytes: &[u8]) {
        let mut outgoing = self.outgoing;
        outgoing.follow(bytes, |frame| {
            let useful = match frame.kind {
                DATA => Useful::DataOut,
                HEADERS => Useful::HeadersOut,
                _ => return,
            };
            self.sent += 1;
            self.credit(useful);
        });
        self.outgoing = outgoing;
    }

    /// What there was too much of, once there was.
    pub fn flood(&self) -> Option<Flood> {
        self.flood
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
            DATA if frame.length > 0 || frame.flags & END_STREAM != 0 => {
                self.credit(Useful::DataIn);
            }
            DATA => self.charge(Flood::EmptyData),
            HEADERS => self.credit(Useful::HeadersIn),
            PRIORITY => self.charge(Flood::Priority),
            RST_STREAM => self.charge(Flood::Reset),
            SETTINGS => {
                self.acknowledged |= frame.flags & ACK != 0;
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
            self.flood.get_or_insert(kind);
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

/// What a client sends first (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// RFC 9113 section 6
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;

/// What the head of a frame says (RFC 9113 section 4.1).
#[derive(Clone, Copy, Debug)]
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
}

/// Finds the heads of frames in bytes, however they are cut.
#[derive(Clone, Copy, Debug)]
struct Follower {
    head: [u8; 9],
    have: usize,
    skip: usize,
}

impl Follower {
    /// Frames begin behind so many bytes.
    fn behind(skip: usize) -> Follower {
        Follower { head: [0; 9], have: 0, skip }
    }

    fn follow(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return;
            }
            let taken = (self.head.len() - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have < self.head.len() {
                return;
            }
            let [a, b, c, kind, flags, ..] = self.head;
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            (self.have, self.skip) = (0, length);
            found(Frame { length, kind, flags });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut frame = vec![0, (length >> 8) as u8, length as u8, kind, flags, 0, 0, 0, 1];
        frame.resize(9 + length, 0xaa);
        frame
    }

    fn begun() -> Meter {
        let mut meter = Meter::new(0);
        meter.on_read(PREFACE, 0);
        meter
    }

    /// Frames of one kind until there are too many.
    fn fill(meter: &mut Meter, frame: &[u8], now_ms: u64) -> u32 {
        let mut count = 0;
        while meter.flood().is_none() {
            meter.on_read(frame, now_ms);
            count += 1;
        }
        count
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
            let bytes = frame(kind, 0, length);
            let Allowance { burst, per_s, for_useful } = flood.allowance();
            let mut meter = begun();
            assert_eq!(fill(&mut meter, &bytes, 0), burst + 1, "{flood:?}");
            assert_eq!(meter.flood(), Some(flood));
            let mut meter = begun();
            for _ in 0..burst {
                meter.on_read(&bytes, 0);
            }
            assert_eq!(meter.flood(), None, "{flood:?}");
            assert_eq!(fill(&mut meter, &bytes, 1_000), per_s + 1, "{flood:?}");
            let mut meter = begun();
            for _ in 0..burst {
                meter.on_read(&bytes, 0);
            }
            meter.on_read(&frame(HEADERS, 4, 30), 0);
            meter.on_read(&frame(DATA, 0, 30), 0);
            meter.on_write(&frame(HEADERS, 4, 30));
            meter.on_write(&frame(DATA, 0, 300));
            let more: u32 = for_useful.iter().sum();
            assert_eq!(fill(&mut meter, &bytes, 0), more.min(burst) + 1, "{flood:?}");
        }
    }

    #[test]
    fn however_the_bytes_are_cut_the_frames_are_the_same() {
        let mut bytes = PREFACE.to_vec();
        for (kind, flags, length) in [(SETTINGS, 0, 12), (SETTINGS, ACK, 0), (DATA, 0, 700)] {
            bytes.extend(frame(kind, flags, length));
        }
        for step in 1..40 {
            let mut meter = Meter::new(0);
            bytes.chunks(step).for_each(|part| meter.on_read(part, 0));
            assert_eq!((meter.frames(), meter.acknowledged()), (3, true), "{step}");
        }
    }

    #[test]
    fn frames_of_answers_are_progress_and_others_are_not() {
        let mut meter = begun();
        for (kind, flags, sent) in
            [(SETTINGS, ACK, 0), (HEADERS, 4, 1), (PING, ACK, 1), (DATA, 0, 2), (RST_STREAM, 0, 2)]
        {
            meter.on_write(&frame(kind, flags, 8));
            assert_eq!(meter.sent(), sent, "{kind}");
        }
    }

    /// What gRPC does: a small message, a WINDOW_UPDATE of the stream and one of the connection, and
    /// a PING now and then, for hours.
    #[test]
    fn streams_of_small_messages_are_no_flood() {
        let mut meter = begun();
        for message in 0..1_000_000u64 {
            let now_ms = message / 100;
            meter.on_write(&frame(DATA, 0, 20));
            meter.on_read(&frame(WINDOW_UPDATE, 0, 4), now_ms);
            meter.on_read(&frame(WINDOW_UPDATE, 0, 4), now_ms);
            if message % 4 == 0 {
                meter.on_read(&frame(PING, 0, 8), now_ms);
            }
            assert_eq!(meter.flood(), None, "{message}");
        }
        for message in 0..100_000 {
            meter.on_read(&frame(DATA, 0, 20), 0);
            if message % 2 == 0 {
                meter.on_read(&frame(PING, ACK, 8), 0);
            }
            assert_eq!(meter.flood(), None, "{message}");
        }
    }

    /// CVE-2023-44487
    #[test]
    fn requests_that_are_reset_at_once_are_a_flood() {
        let mut meter = begun();
        let pair = [frame(HEADERS, 5, 20), frame(RST_STREAM, 0, 4)].concat();
        assert_eq!(fill(&mut meter, &pair, 0), Flood::Reset.allowance().burst + 1);
        let mut meter = begun();
        for _ in 0..100_000 {
            meter.on_read(&frame(HEADERS, 5, 20), 0);
            meter.on_write(&frame(HEADERS, 4, 20));
            meter.on_read(&frame(RST_STREAM, 0, 4), 0);
        }
        assert_eq!(meter.flood(), None, "answers that are cut short are not");
    }
}
