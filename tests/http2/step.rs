//! The words of a case: what is sent, waited for, or left undone. tests/README.md explains them.

use std::time::Duration;

use super::frame::*;
use super::hpack::{Literal, put_literal, put_number};
use super::peer::{Peer, State};
use crate::harness::origin::latin1;
use crate::harness::{ms, pause};

/// One act of a case.
#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing is said by itself; only as the first step.
    Raw,
    /// Preface and these settings; without it, the preface and empty SETTINGS.
    Open(Vec<(u16, u32)>),
    /// Frames in one write.
    Frames(Vec<Frame>),
    /// Any bytes.
    Bytes(Vec<u8>),
    /// Any bytes one by one, with so much time between two.
    Drip(Duration, Vec<u8>),
    /// Waits until something came.
    Wait(Wait, Duration),
    /// Lets time pass.
    Pause(Duration),
    /// SETTINGS and PING are not answered from now on.
    Mute,
    /// Stops reading (true) or goes on.
    Reading(bool),
    /// FIN.
    HalfClose,
    /// FIN, and what comes is refused; or RST.
    Close(bool),
    /// An origin only: answers every request from now on.
    Serve,
}

/// What a case waits for.
#[derive(Clone, Debug)]
pub enum Wait {
    /// A head on a stream.
    Head(u32),
    /// END_STREAM or RST_STREAM on a stream.
    End(u32),
    /// So many bytes of content on a stream.
    Data(u32, usize),
    /// So many acknowledgements of SETTINGS.
    Acks(usize),
    /// So many answered PINGs.
    Pongs(usize),
    /// So many SETTINGS.
    Settings(usize),
    /// A GOAWAY.
    Goaway,
    /// The end of the connection.
    Closed,
    /// So many streams with a head.
    Streams(usize),
}

impl Wait {
    fn parse(words: &[&str]) -> Wait {
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
        let first = number(1).unwrap_or(1);
        let count = usize::try_from(number(words.len() - 1).unwrap_or(1)).expect("a small number");
        match words[0] {
            "head" => Wait::Head(first),
            "end" => Wait::End(first),
            "data" => Wait::Data(first, count),
            "acks" => Wait::Acks(count),
            "pongs" => Wait::Pongs(count),
            "settings" => Wait::Settings(count),
            "goaway" => Wait::Goaway,
            "closed" => Wait::Closed,
            "streams" => Wait::Streams(count),
            other => panic!("nobody can wait for {other}"),
        }
    }

    fn holds(&self, state: &State) -> bool {
        let watch = &state.watch;
        let stream = |number: &u32| watch.streams.get(number);
        match self {
            Wait::Head(number) => stream(number).is_some_and(|s| s.head().is_some()),
            Wait::End(number) => stream(number).is_some_and(|s| s.ended || s.reset.is_some()),
            Wait::Data(number, count) => stream(number).is_some_and(|s| s.data.len() >= *count),
            Wait::Acks(count) => watch.acks >= *count,
            Wait::Pongs(count) => watch.pongs.len() >= *count,
            Wait::Settings(count) => watch.settings_frames >= *count,
            Wait::Goaway => !watch.goaways.is_empty(),
            Wait::Closed => state.end.is_some(),
            Wait::Streams(count) => {
                watch.streams.values().filter(|s| s.head().is_some()).count() >= *count
            }
        }
    }
}

impl Step {
    /// Reads a step; `id` is what `{id}` stands for.
    pub fn parse(text: &str, id: &str) -> Step {
        let text = expand(text, id);
        let (head, payload) = text.split_once(" : ").unwrap_or((&text, ""));
        let words: Vec<&str> = head.split_whitespace().collect();
        let rest = head.split_once(' ').map_or("", |(_, rest)| rest);
        match words[0] {
            "raw" => Step::Raw,
            "open" => Step::Open(words[1..].iter().map(|word| setting(word)).collect()),
            "bytes" => Step::Bytes(items(rest, DATA)),
            "drip" => Step::Drip(time(words[1]), items(payload, DATA)),
            "wait" => {
                // Eight seconds where something must come; a case that expects none says so.
                let at = words.iter().position(|word| *word == "for");
                let limit = at.map_or(ms(8_000), |at| time(words[at + 1]));
                Step::Wait(Wait::parse(&words[1..at.unwrap_or(words.len())]), limit)
            }
            "pause" => Step::Pause(time(words[1])),
            "mute" => Step::Mute,
            "no_read" => Step::Reading(false),
            "read" => Step::Reading(true),
            "half_close" => Step::HalfClose,
            "close" => Step::Close(false),
            "abort" => Step::Close(true),
            "serve" => Step::Serve,
            _ => Step::Frames(frames(&words, payload)),
        }
    }

    /// Does it; false where what was waited for did not come.
    pub fn play(&self, peer: &Peer) -> bool {
        match self {
            Step::Raw | Step::Serve => {}
            Step::Open(settings) => drop(peer.begin(settings)),
            Step::Frames(frames) => drop(peer.frames(frames)),
            Step::Bytes(bytes) => drop(peer.send(bytes)),
            Step::Drip(every, bytes) => {
                for byte in bytes {
                    if peer.wait_end(*every) || !peer.send(&[*byte]) {
                        break;
                    }
                }
            }
            Step::Wait(wait, limit) => return peer.wait(*limit, |state| wait.holds(state)),
            Step::Pause(time) => pause(*time),
            Step::Mute => peer.set_mute(),
            Step::Reading(on) => peer.set_paused(!on),
            Step::HalfClose => peer.half_close(),
            Step::Close(reset) => peer.close(*reset),
        }
        true
    }
}

/// Puts in what stands in braces.
pub fn expand(text: &str, id: &str) -> String {
    let common = ":scheme=http | :authority=a.test | :path=/{id}";
    let next = ":method=GET | :scheme=http | :authority=a.test | :path=/{id}-next";
    text.replace("{get}", &format!(":method=GET | {common}"))
        .replace("{post}", &format!(":method=POST | {common}"))
        .replace("{head}", &format!(":method=HEAD | {common}"))
        .replace("{next}", next)
        .replace("{rest}", common)
        .replace("{ok}", ":status=200 | x-seen=h2")
        .replace("{id}", id)
}

fn time(word: &str) -> Duration {
    ms(word.parse().unwrap_or_else(|_| panic!("{word} is no number of milliseconds")))
}

fn setting(word: &str) -> (u16, u32) {
    let (name, value) = word.split_once('=').unwrap_or_else(|| panic!("{word}: NAME=VALUE"));
    let id = number_of(PARAMETERS, name).and_then(|id| u16::try_from(id).ok());
    let value = value.parse().unwrap_or_else(|_| panic!("{word}: a number"));
    (id.unwrap_or_else(|| panic!("nobody knows the setting {name}")), value)
}

/// `KIND STREAM [end] [more] [ack] [pad=N] ... : PAYLOAD`
fn frames(words: &[&str], payload: &str) -> Vec<Frame> {
    let kind = number_of(KINDS, words[0]).and_then(|kind| u8::try_from(kind).ok());
    let kind = kind.unwrap_or_else(|| panic!("nobody knows the step {words:?}"));
    let stream = words.get(1).and_then(|word| word.parse().ok());
    let stream = stream.unwrap_or_else(|| panic!("{words:?} names no stream"));
    let mut frame = Frame::new(kind, 0, stream, items(payload, kind));
    if matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
        frame.flags |= END_HEADERS;
    }
    let (mut times, mut each) = (1, 0);
    for word in &words[2..] {
        let (name, value) = word.split_once('=').unwrap_or((word, "0"));
        let number: u32 = value.parse().unwrap_or_else(|_| panic!("{word}: a number"));
        match name {
            "times" => times = number,
            "each" => each = number,
            _ => mark(&mut frame, name, number),
        }
    }
    let nth = |turn: u32| Frame { stream: frame.stream + each * turn, ..frame.clone() };
    (0..times).map(nth).collect()
}

fn mark(frame: &mut Frame, name: &str, number: u32) {
    let byte = || u8::try_from(number).expect("a byte");
    match name {
        "end" => frame.flags |= END_STREAM,
        "ack" => frame.flags |= ACK,
        "more" => frame.flags &= !END_HEADERS,
        "flags" => frame.flags |= byte(),
        "reserved" => frame.stream |= 1 << 31,
        "length" => frame.said_length = Some(number),
        // Padding that is there, behind its length.
        "pad" => {
            frame.flags |= PADDED;
            frame.payload.insert(0, byte());
            frame.payload.extend(vec![0; usize::from(byte())]);
        }
        // A length of padding alone.
        "said_pad" => {
            frame.flags |= PADDED;
            frame.payload.insert(0, byte());
        }
        "prio" => {
            frame.flags |= WITH_PRIORITY;
            let block = std::mem::take(&mut frame.payload);
            frame.payload = [&number.to_be_bytes()[..], &[15], &block].concat();
        }
        "promise" => {
            let block = std::mem::take(&mut frame.payload);
            frame.payload = [&number.to_be_bytes()[..], &block].concat();
        }
        other => panic!("nobody knows the mark {other}"),
    }
}

/// The payload of a frame: items between bars.
fn items(text: &str, kind: u8) -> Vec<u8> {
    let mut out = Vec::new();
    if text.trim_matches(' ').is_empty() {
        return out;
    }
    for item in text.split(" | ") {
        let item = item.trim_matches(' ');
        let repeated = item
            .split_once('*')
            .and_then(|(count, what)| Some((count.parse::<usize>().ok()?, what)));
        let (count, what) = repeated.unwrap_or((1, item));
        let mut once = Vec::new();
        put_item(&mut once, what, kind);
        out.extend(once.repeat(count));
    }
    out
}

fn put_item(out: &mut Vec<u8>, item: &str, kind: u8) {
    let (word, rest) = item.split_once(' ').unwrap_or((item, ""));
    let number = || rest.parse::<u32>().unwrap_or_else(|_| panic!("{item}: a number"));
    if let Some(quoted) = item.strip_prefix('\'').and_then(|item| item.strip_suffix('\'')) {
        return out.extend(latin1(quoted));
    }
    match word {
        "hex" => out.extend(hex(rest)),
        "fill" => out.extend(vec![b'x'; usize::try_from(number()).expect("a length")]),
        "u32" => out.extend(number().to_be_bytes()),
        "preface" => out.extend_from_slice(PREFACE),
        _ if matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) => put_field(out, item),
        _ if kind == SETTINGS => {
            let (id, value) = setting(item);
            out.extend(Frame::settings(&[(id, value)]).payload);
        }
        _ if kind == PRIORITY => {
            out.extend(word.parse::<u32>().expect("a stream").to_be_bytes());
            out.push(rest.parse().expect("a weight"));
        }
        _ => {
            let code = number_of(CODES, item);
            out.extend(code.unwrap_or_else(|| panic!("nobody knows {item}")).to_be_bytes());
        }
    }
}

/// One representation of a field, or a change of the table's size.
fn put_field(out: &mut Vec<u8>, item: &str) {
    let (word, rest) = item.split_once(' ').unwrap_or((item, ""));
    if word == "size" {
        return put_number(out, 0x20, 5, rest.parse().expect("a size"));
    }
    if let Some(index) = item.strip_prefix('#') {
        return put_number(out, 0x80, 7, index.parse().expect("an index"));
    }
    let (how, item) = match item.chars().next() {
        Some('+') => (Literal::Indexed, &item[1..]),
        Some('!') => (Literal::Never, &item[1..]),
        Some('~') => (Literal::Coded, &item[1..]),
        _ => (Literal::Plain, item),
    };
    let (name, value) = item.split_once('=').unwrap_or_else(|| panic!("{item}: NAME=VALUE"));
    // `<N>` is a value of so many bytes.
    let long = value.strip_prefix('<').and_then(|value| value.strip_suffix('>'));
    let value = match long.and_then(|count| count.parse().ok()) {
        Some(count) => vec![b'v'; count],
        None => latin1(value),
    };
    put_literal(out, how, &latin1(name), &value);
}

/// Hexadecimal digits as bytes.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("digits are text");
        u8::from_str_radix(text, 16).expect("two digits are a byte")
    };
    digits.chunks(2).map(byte).collect()
}

#[test]
fn steps_are_the_frames_that_they_say() {
    let one = |text: &str| match Step::parse(text, "h1") {
        Step::Frames(frames) => frames[0].bytes(),
        other => panic!("{other:?}"),
    };
    assert_eq!(one("PING 0 : hex 0102030405060708"), hex("000008 06 00 00000000 0102030405060708"));
    assert_eq!(one("RST_STREAM 3 : CANCEL"), hex("000004 03 00 00000003 00000008"));
    assert_eq!(one("DATA 1 end pad=2 : 'a'"), hex("000004 00 09 00000001 02 61 0000"));
    assert_eq!(
        one("SETTINGS 0 : INITIAL_WINDOW_SIZE=1"),
        hex("000006 04 00 00000000 0004 00000001")
    );
    assert_eq!(one("HEADERS 1 more : #2 | size 0"), hex("000002 01 00 00000001 82 20"));
    assert_eq!(
        one("HEADERS 1 prio=3 : a=b"),
        hex("00000a 01 24 00000001 00000003 0f 00 01 61 01 62")
    );
    assert_eq!(one("22 1 reserved length=9"), hex("000009 16 00 80000001"));
}
