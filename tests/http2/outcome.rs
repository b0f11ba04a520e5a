//! What may come of a case: outcomes, of which one must hold. tests/README.md explains the words.

use super::frame::{CODES, name_of, number_of};
use super::peer::State;
use super::step::{expand, hex};
use super::watch::{Stream, value};
use crate::harness::origin::{Origin, latin1};
use crate::harness::show;

/// Facts that hold together.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As the case says it.
    pub text: String,
    checks: Vec<Check>,
}

/// One fact.
#[derive(Clone, Debug)]
enum Check {
    /// GOAWAY with one of these codes, or the end of the connection.
    Connection(Vec<u32>),
    /// GOAWAY with one of these codes.
    Goaway(Vec<u32>),
    /// The last stream that the last GOAWAY names, at least.
    Last(u32),
    /// RST_STREAM with one of these codes, or the end of the whole connection.
    Stream(u32, Vec<u32>),
    /// The same, or an answer 4xx.
    Refused(u32, Vec<u32>),
    /// RST_STREAM with one of these codes, and nothing else.
    Reset(u32, Vec<u32>),
    /// A response that ended, with one of these statuses.
    Status(u32, Vec<String>),
    /// The head of a response.
    Head(u32, Vec<String>),
    /// An interim response.
    Interim(u32, u16),
    /// Nothing came on a stream.
    Silent(u32),
    /// A PING is answered behind all that.
    Alive,
    /// A request on a new stream is answered.
    Next,
    /// The connection ended.
    Ended,
    /// At least so many acknowledgements of SETTINGS.
    Acks(usize),
    /// A PING with these bytes was answered.
    Pong(Vec<u8>),
    /// Exactly so many bytes of content came.
    Data(u32, usize),
    /// This content came.
    Body(u32, Vec<u8>),
    /// A field of the response.
    Field(u32, String, Vec<u8>),
    /// No such field in the response.
    Lacks(u32, String),
    /// A trailer.
    Trailer(u32, String, Vec<u8>),
    /// Window was given for a stream, or for the connection.
    Window(u32),
    /// The other side's setting is at least so much.
    Setting(u16, u32),
    /// What the origin saw.
    Origin(Seen),
}

#[derive(Clone, Debug)]
enum Seen {
    /// So many requests at most.
    Requests(usize),
    /// So many whole ones exactly.
    Whole(usize),
    Method(Vec<u8>),
    Target(Vec<u8>),
    Body(Vec<u8>),
    BodyBytes(u64),
    /// Exactly one field of this name, with this value.
    Field(String, Vec<u8>),
    Lacks(String),
    Trailer(String, Vec<u8>),
}

impl Outcome {
    /// Reads facts between `&`.
    pub fn parse(text: &str, id: &str) -> Outcome {
        let checks = text.split(" & ").map(|part| Check::parse(&expand(part, id))).collect();
        Outcome { text: text.to_owned(), checks }
    }

    /// Whether a PING has to be sent behind the steps.
    pub fn wants_ping(&self) -> bool {
        self.checks.iter().any(|check| matches!(check, Check::Alive | Check::Next))
    }

    /// Whether a request has to be sent behind the steps.
    pub fn wants_next(&self) -> bool {
        self.checks.iter().any(|check| matches!(check, Check::Next))
    }

    /// What does not hold of it.
    pub fn missing(
        &self,
        state: &State,
        origin: Option<(&Origin, &str)>,
        next: u32,
    ) -> Option<String> {
        let lacking = self.checks.iter().find(|check| match check {
            Check::Origin(seen) => !origin.is_none_or(|(origin, case)| seen.holds(origin, case)),
            Check::Next => !status_is(state.watch.streams.get(&next), &["200".into()], true),
            other => !other.holds(state),
        });
        lacking.map(|check| format!("{check:?}"))
    }
}

impl Check {
    fn parse(text: &str) -> Check {
        let words: Vec<&str> = text.split_whitespace().collect();
        let rest = |count: usize| {
            let mut parts = text.trim().splitn(count + 1, ' ');
            parts.nth(count).unwrap_or_default()
        };
        let number = |at: usize| -> u32 {
            let word = words.get(at).unwrap_or_else(|| panic!("{text:?} lacks a number"));
            word.parse().unwrap_or_else(|_| panic!("{text:?}: {word} is no number"))
        };
        let count = |at: usize| usize::try_from(number(at)).expect("a small number");
        let list = |from: usize| words[from..].iter().map(|&word| word.to_owned()).collect();
        let pair = |from: usize| {
            let (name, value) = rest(from).split_once('=').expect("NAME=VALUE");
            (name.to_owned(), latin1(value))
        };
        match words[0] {
            "connection" => Check::Connection(codes(&words[1..])),
            "goaway" => Check::Goaway(codes(&words[1..])),
            "last" => Check::Last(number(1)),
            "stream" => Check::Stream(number(1), codes(&words[2..])),
            "refused" => Check::Refused(number(1), codes(&words[2..])),
            "reset" => Check::Reset(number(1), codes(&words[2..])),
            "status" => Check::Status(number(1), list(2)),
            "head" => Check::Head(number(1), list(2)),
            "interim" => Check::Interim(number(1), number(2).try_into().expect("a status")),
            "silent" => Check::Silent(number(1)),
            "alive" => Check::Alive,
            "next" => Check::Next,
            "ended" => Check::Ended,
            "acks" => Check::Acks(count(1)),
            "pong" => Check::Pong(hex(rest(1))),
            "data" => Check::Data(number(1), count(2)),
            "body" => Check::Body(number(1), latin1(rest(2))),
            "field" => Check::Field(number(1), pair(2).0, pair(2).1),
            "lacks" => Check::Lacks(number(1), rest(2).to_owned()),
            "trailer" => Check::Trailer(number(1), pair(2).0, pair(2).1),
            "window" => Check::Window(number(1)),
            "setting" => Check::Setting(number(1).try_into().expect("a setting"), number(2)),
            "sees" => Check::Origin(Seen::parse(rest(1))),
            other => panic!("nobody knows the outcome {other}"),
        }
    }

    fn holds(&self, state: &State) -> bool {
        let watch = &state.watch;
        let stream = |number: &u32| watch.streams.get(number);
        let gone = |codes: &[u32]| {
            let said = watch.goaways.iter().any(|(_, code)| codes.contains(code));
            said || state.end.is_some() && watch.goaways.iter().all(|(_, code)| *code == 0)
        };
        let reset = |number: &u32, codes: &[u32]| {
            stream(number).is_some_and(|s| s.reset.is_some_and(|code| codes.contains(&code)))
        };
        match self {
            Check::Connection(codes) => gone(codes),
            Check::Goaway(codes) => watch.goaways.iter().any(|(_, code)| codes.contains(code)),
            Check::Last(last) => watch.goaways.last().is_some_and(|(named, _)| named >= last),
            Check::Stream(number, codes) => reset(number, codes) || gone(codes),
            Check::Refused(number, codes) => {
                let refused = status_is(stream(number), &["4xx".into(), "501".into()], true);
                refused || reset(number, codes) || gone(codes)
            }
            Check::Reset(number, codes) => reset(number, codes),
            Check::Status(number, wanted) => status_is(stream(number), wanted, true),
            Check::Head(number, wanted) => status_is(stream(number), wanted, false),
            Check::Interim(number, status) => stream(number).is_some_and(|s| {
                let wanted = status.to_string();
                s.heads.iter().any(|head| value(head, ":status") == Some(wanted.as_bytes()))
            }),
            Check::Silent(number) => stream(number)
                .is_none_or(|s| s.heads.is_empty() && s.data_frames == 0 && s.reset.is_none()),
            Check::Alive => watch.pongs.iter().any(|pong| pong == MARK),
            Check::Next => false,
            Check::Ended => state.end.is_some(),
            Check::Acks(count) => watch.acks >= *count,
            Check::Pong(bytes) => watch.pongs.contains(bytes),
            Check::Data(number, count) => stream(number).map_or(0, |s| s.data.len()) == *count,
            Check::Body(number, body) => stream(number).is_some_and(|s| s.data == *body && s.ended),
            Check::Field(number, name, wanted) => stream(number)
                .and_then(|s| value(s.head()?, name))
                .is_some_and(|got| got == wanted || wanted == b"*"),
            Check::Lacks(number, name) => stream(number)
                .and_then(Stream::head)
                .is_some_and(|head| value(head, name).is_none()),
            Check::Trailer(number, name, wanted) => {
                stream(number).and_then(|s| value(s.trailers()?, name)) == Some(&wanted[..])
            }
            Check::Window(0) => watch.window_added > 0,
            Check::Window(number) => stream(number).is_some_and(|s| s.window_added > 0),
            Check::Setting(id, least) => watch.settings.get(id).is_some_and(|got| got >= least),
            // Asked of the origin.
            Check::Origin(_) => true,
        }
    }
}

impl Seen {
    fn parse(text: &str) -> Seen {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let pair = || {
            let (name, value) = rest.split_once('=').expect("NAME=VALUE");
            (name.to_owned(), latin1(value))
        };
        match word {
            "requests" => Seen::Requests(rest.parse().expect("a number")),
            "whole" => Seen::Whole(rest.parse().expect("a number")),
            "nothing" => Seen::Requests(0),
            "method" => Seen::Method(latin1(rest)),
            "target" => Seen::Target(latin1(rest)),
            "body" => Seen::Body(latin1(rest)),
            "body_bytes" => Seen::BodyBytes(rest.parse().expect("a number")),
            "field" => Seen::Field(pair().0, pair().1),
            "lacks" => Seen::Lacks(rest.to_owned()),
            "trailer" => Seen::Trailer(pair().0, pair().1),
            other => panic!("nobody knows what {other} of the origin is"),
        }
    }

    /// `case` is the word of the case: a request of the one before may still be on its way.
    fn holds(&self, origin: &Origin, case: &str) -> bool {
        origin.look(|record| {
            let late = |target: &[u8]| {
                let numbered = target.get(2..5).is_some_and(|id| id.iter().all(u8::is_ascii_digit));
                target.starts_with(b"/h") && numbered && !target[1..].starts_with(case.as_bytes())
            };
            let requests: Vec<_> = record.seen().filter(|seen| !late(&seen.target)).collect();
            let whole = requests.iter().filter(|request| request.complete).count();
            match self {
                Seen::Requests(most) => return requests.len() <= *most,
                Seen::Whole(count) => return whole == *count,
                _ => {}
            }
            let Some(first) = requests.first() else { return false };
            let trailers = |name: &str| crate::harness::grammar::values(&first.trailers, name);
            match self {
                Seen::Requests(_) | Seen::Whole(_) => true,
                Seen::Method(method) => first.method == *method,
                Seen::Target(target) => first.target == *target,
                Seen::Body(body) => first.body == *body && first.complete,
                Seen::BodyBytes(count) => first.body_bytes == *count,
                Seen::Field(name, value) => first.all(name) == [&value[..]],
                Seen::Lacks(name) => first.get(name).is_none(),
                Seen::Trailer(name, value) => trailers(name) == [&value[..]],
            }
        })
    }
}

fn status_is(stream: Option<&Stream>, wanted: &[String], ended: bool) -> bool {
    let Some(status) = stream.filter(|s| s.ended || !ended).and_then(Stream::status) else {
        return false;
    };
    let text = status.to_string();
    wanted.iter().any(|one| *one == text || one.ends_with("xx") && one[..1] == text[..1])
}

fn codes(words: &[&str]) -> Vec<u32> {
    let all: Vec<u32> = words
        .iter()
        .map(|word| number_of(CODES, word).unwrap_or_else(|| panic!("nobody knows {word}")))
        .collect();
    assert!(!all.is_empty(), "an error names its codes");
    all
}

/// What came, in a line or two.
pub fn tell(state: &State) -> String {
    let watch = &state.watch;
    let mut out = Vec::new();
    for (number, stream) in &watch.streams {
        let statuses: Vec<String> = stream
            .heads
            .iter()
            .map(|head| show(value(head, ":status").unwrap_or(b"trailers")))
            .collect();
        let reset = stream.reset.map(|code| name_of(CODES, code));
        let (bytes, ended) = (stream.data.len(), stream.ended);
        out.push(format!("{number}: {statuses:?} {bytes} bytes ended={ended} reset={reset:?}"));
    }
    let goaways: Vec<_> =
        watch.goaways.iter().map(|(last, code)| (last, name_of(CODES, *code))).collect();
    let (acks, pongs, end) = (watch.acks, watch.pongs.len(), state.end);
    out.truncate(6);
    let faults = watch.faults.first();
    format!(
        "streams {out:?}, goaway {goaways:?}, {acks} acks, {pongs} pongs, end {end:?}, {faults:?}"
    )
}

/// The PING behind the steps.
pub const MARK: &[u8; 8] = b"behind!!";
