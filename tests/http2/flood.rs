//! Floods: frames that cost a client little, over and over. A case is cited as `http2:F01`.

use super::frame::*;
use super::hpack::{Literal, put_literal, put_number};
use super::server::get;
use super::step::Step;

/// One flood, and how it has to end.
pub struct Flood {
    /// Cited as `http2:F01`.
    pub id: &'static str,
    /// Advisory or section.
    pub source: &'static str,
    /// What the client does.
    pub what: &'static str,
    /// Steps before it, as in the cases.
    pub before: &'static [&'static str],
    /// The frames of each round.
    pub round: fn(u32) -> Vec<Frame>,
    /// Rounds at most; it has to end before.
    pub rounds: u32,
    /// Rounds in one write.
    pub at_once: u32,
    /// Codes of GOAWAY with which it may end.
    pub codes: &'static [&'static str],
    /// `kind` of `ringway_http2_floods_total`, where only the meter may have ended it.
    pub kind: Option<&'static str>,
}

impl Flood {
    /// What is done before the first round.
    pub fn steps(&self) -> Vec<Step> {
        self.before.iter().map(|text| Step::parse(text, "flood")).collect()
    }

    /// The frames of some rounds.
    pub fn frames(&self, rounds: std::ops::Range<u32>) -> Vec<Frame> {
        rounds.flat_map(self.round).collect()
    }
}

/// The stream of a round.
fn id(round: u32) -> u32 {
    2 * round + 1
}

fn reset(round: u32) -> Vec<Frame> {
    vec![get(id(round), "/hang"), Frame::number(RST_STREAM, id(round), 8)]
}

/// A request whose content has not ended, and behind it frames that make the server reset it.
fn spoiled(round: u32, by: Frame) -> Vec<Frame> {
    let mut head = get(id(round), "/hang");
    head.flags = END_HEADERS;
    vec![head, by]
}

fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_literal(&mut out, Literal::Plain, name, value);
    out
}

/// A head whose one large entry of the table is named again and again.
fn bomb(round: u32) -> Vec<Frame> {
    let mut frame = get(id(round), "/hang");
    put_literal(&mut frame.payload, Literal::Indexed, b"x-bomb", &[b'v'; 3_900]);
    for _ in 0..10_000 {
        put_number(&mut frame.payload, 0x80, 7, 62);
    }
    vec![frame]
}

const CALM: &[&str] = &["ENHANCE_YOUR_CALM"];
/// Where the frames break a rule, too, and the server may say that instead.
const WRONG: &[&str] = &["ENHANCE_YOUR_CALM", "PROTOCOL_ERROR", "STREAM_CLOSED"];
/// What the block would have become is over all bounds as well.
const LARGE: &[&str] = &["ENHANCE_YOUR_CALM", "COMPRESSION_ERROR", "PROTOCOL_ERROR"];

/// A flood of which only the meter knows.
const fn metered(
    names: [&'static str; 4],
    before: &'static [&'static str],
    round: fn(u32) -> Vec<Frame>,
) -> Flood {
    let [id, kind, source, what] = names;
    let (rounds, at_once, kind) = (20_000, 20, Some(kind));
    Flood { id, source, what, before, round, rounds, at_once, codes: CALM, kind }
}

/// A flood that one of several bounds may end.
const fn bounded(
    names: [&'static str; 3],
    round: fn(u32) -> Vec<Frame>,
    codes: &'static [&'static str],
    at_once: u32,
) -> Flood {
    let [id, source, what] = names;
    Flood { id, source, what, before: &[], round, rounds: 6_000, at_once, codes, kind: None }
}

const POST: &[&str] = &["HEADERS 1 : {post}"];
const BLOCK: &[&str] = &["HEADERS 1 end more : {get}"];

/// Every flood.
pub const FLOODS: &[Flood] = &[
    bounded(["F01", "CVE-2023-44487", "requests and resets, hundreds at once"], reset, CALM, 100),
    bounded(["F02", "CVE-2023-44487", "requests and resets, one by one"], reset, CALM, 1),
    // h2 has a bound of its own here, and whichever is met first ends it.
    Flood {
        kind: None,
        ..metered(
            ["F03", "continuation", "CVE-2024-27316", "CONTINUATION without an end and a byte"],
            BLOCK,
            |_| vec![Frame::new(CONTINUATION, 0, 1, [])],
        )
    },
    Flood {
        codes: LARGE,
        kind: None,
        ..metered(
            ["F04", "continuation", "CVE-2024-27316", "CONTINUATION without end, full of fields"],
            BLOCK,
            |_| vec![Frame::new(CONTINUATION, 0, 1, literal(b"x-a", &[b'v'; 1_000]))],
        )
    },
    metered(["F05", "settings", "CVE-2019-9515", "SETTINGS"], &[], |_| vec![Frame::settings(&[])]),
    metered(
        ["F06", "settings", "9113 10.5", "SETTINGS that move the windows of open streams"],
        POST,
        |round| vec![Frame::settings(&[(4, round % 2), (1, round % 2 * 4_096)])],
    ),
    metered(["F07", "ping", "CVE-2019-9512", "PING"], &[], |_| {
        vec![Frame::new(PING, 0, 0, [7; 8])]
    }),
    metered(["F08", "ping", "9113 10.5", "answers to PINGs that nobody sent"], &[], |_| {
        vec![Frame::new(PING, ACK, 0, [7; 8])]
    }),
    metered(["F09", "empty_data", "CVE-2019-9518", "DATA without a byte"], POST, |_| {
        vec![Frame::new(DATA, 0, 1, [])]
    }),
    Flood {
        kind: None,
        ..metered(["F10", "empty_data", "CVE-2019-9518", "DATA of padding alone"], POST, |_| {
            vec![Frame::new(DATA, PADDED, 1, [0])]
        })
    },
    metered(["F11", "priority", "CVE-2019-9513", "PRIORITY"], &[], |round| {
        vec![Frame::new(PRIORITY, 0, id(round % 50), [0, 0, 0, 0, 1])]
    }),
    metered(
        ["F12", "window_update", "9113 10.5", "WINDOW_UPDATE of the connection, byte by byte"],
        &[],
        |_| vec![Frame::number(WINDOW_UPDATE, 0, 1)],
    ),
    metered(
        ["F13", "window_update", "9113 10.5", "WINDOW_UPDATE of a stream, byte by byte"],
        POST,
        |_| vec![Frame::number(WINDOW_UPDATE, 1, 1)],
    ),
    metered(["F14", "unknown", "9113 5.5", "frames of a type that nobody knows"], &[], |_| {
        vec![Frame::new(0x42, 0, 0, *b"x")]
    }),
    Flood {
        kind: None,
        ..metered(["F15", "unknown", "9113 6.8", "GOAWAY again and again"], POST, |_| {
            vec![Frame::new(GOAWAY, 0, 0, [0; 8])]
        })
    },
    bounded(
        ["F16", "CVE-2025-8671", "requests that WINDOW_UPDATE of nothing makes the server reset"],
        |round| spoiled(round, Frame::number(WINDOW_UPDATE, id(round), 0)),
        WRONG,
        10,
    ),
    bounded(
        ["F17", "CVE-2025-8671", "requests whose window grows over the largest"],
        |round| spoiled(round, Frame::number(WINDOW_UPDATE, id(round), 0x7fff_ffff)),
        WRONG,
        10,
    ),
    bounded(
        ["F18", "CVE-2025-8671", "requests with DATA behind their end"],
        |round| vec![get(id(round), "/hang"), Frame::new(DATA, END_STREAM, id(round), *b"x")],
        WRONG,
        10,
    ),
    bounded(
        ["F19", "CVE-2025-8671", "requests with HEADERS behind their end"],
        |round| vec![get(id(round), "/hang"), get(id(round), "/hang")],
        WRONG,
        10,
    ),
    bounded(
        ["F20", "CVE-2025-8671", "requests that depend on themselves"],
        |round| {
            let on_itself = [&id(round).to_be_bytes()[..], &[1]].concat();
            spoiled(round, Frame::new(PRIORITY, 0, id(round), on_itself))
        },
        WRONG,
        10,
    ),
    bounded(
        ["F21", "CVE-2025-8671", "requests with more content than their length"],
        |round| {
            let mut head = get(id(round), "/hang");
            head.flags = END_HEADERS;
            head.payload.extend(literal(b"content-length", b"1"));
            vec![head, Frame::new(DATA, 0, id(round), *b"more")]
        },
        WRONG,
        10,
    ),
    bounded(
        ["F22", "CVE-2025-8671", "requests with a field that makes them malformed"],
        |round| {
            let mut head = get(id(round), "/hang");
            head.payload.extend(literal(b"X-Capital", b"1"));
            vec![head]
        },
        WRONG,
        10,
    ),
    bounded(
        ["F23", "9113 5.1.2", "requests over the limit of streams, without end"],
        |round| {
            let mut head = get(id(round), "/hang");
            head.flags = END_HEADERS;
            vec![head]
        },
        WRONG,
        50,
    ),
    bounded(["F24", "CVE-2016-1544", "heads that unpack to 40 MB each"], bomb, LARGE, 1),
];
