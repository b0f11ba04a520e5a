//! A wire case as data: what tests/wire/*.toml may say. tests/README.md explains the words.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::origin::{Op, Script, latin1};

/// A file of cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// First letter of the ids in this file.
    pub group: char,
    /// What the group is about.
    pub about: String,
    /// The cases.
    pub case: Vec<Case>,
}

/// How binding a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// An RFC says MUST, or an advisory was published.
    Must,
    /// An RFC says SHOULD, or operators filed it as a bug.
    Should,
    /// A choice of ours, documented.
    Ours,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Letter and number; cited as `wire:S01`.
    pub id: String,
    /// How binding it is.
    pub level: Level,
    /// RFC section or public advisory.
    pub source: String,
    /// What happens and what must follow.
    pub what: String,
    /// What the client does.
    pub client: Vec<Step>,
    /// What a second client does afterwards.
    #[serde(default)]
    pub second: Vec<Step>,
    /// What the origin does on the path `/{id}`; by default it reads the body and says 200.
    #[serde(default)]
    pub origin: Script,
    /// What it does the second time.
    #[serde(default)]
    pub origin_again: Script,
    /// What it does on other paths.
    #[serde(default)]
    pub origin_on: BTreeMap<String, Script>,
    /// Methods of the client's requests, where an answer depends on them.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Receive buffer of the client, in bytes.
    #[serde(default)]
    pub receive_buffer: Option<usize>,
    /// The hidden request may arrive if the proxy itself understood it as a request.
    #[serde(default)]
    pub hidden_openly: bool,
    /// Answers need not be HTTP/1.1 at all.
    #[serde(default)]
    pub lax: bool,
    /// Outcomes of which one must hold.
    pub allow: Vec<Allow>,
}

/// One act of a client.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Sends bytes.
    Send(String),
    /// Sends this many bytes of filling, as far as the proxy takes them.
    Fill(u64),
    /// Lets milliseconds pass.
    Pause(u64),
    /// Waits for so many whole answers in all.
    Responses(usize),
    /// Waits for the end of the connection, at most so many milliseconds.
    End(u64),
    /// Waits for an answer; if it is 100, sends these bytes.
    #[serde(rename = "on_100")]
    On100(String),
    /// Waits until the origin has seen so many requests.
    Seen(usize),
    /// Sends byte by byte, with so many milliseconds between two.
    Drip(String, u64),
    /// Reads nothing for so many milliseconds.
    NoRead(u64),
    /// Sends FIN.
    HalfClose,
    /// Sends RST.
    Reset,
    /// Closes.
    Close,
}

/// Outcomes that many cases share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Like {
    /// A 4xx or 5xx of the proxy's own, nothing reaches the origin, the connection ends.
    Refused,
    /// The same with 400.
    #[serde(rename = "refused_400")]
    Refused400,
    /// The head may have gone on, but the origin never sees a whole request; the connection ends.
    RefusedBody,
    /// 200 from the origin, which saw one request.
    Served,
    /// 502 of the proxy's own.
    BadGateway,
    /// A redirect of the proxy's own.
    Redirected,
}

/// One outcome. What is not named is free, but for the grammar of what the origin and the client
/// see, and hidden requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Allow {
    /// A named outcome, which the other keys refine.
    pub like: Option<Like>,
    /// Statuses of each answer; 0 is the end of the connection without one.
    pub statuses: Option<Vec<Vec<u16>>>,
    /// Our own code in the last answer, if it is one of ours.
    pub code: Option<String>,
    /// How many requests the origin sees, at least and at most.
    pub upstream: Option<[usize; 2]>,
    /// How many of them are whole.
    pub upstream_whole: Option<[usize; 2]>,
    /// What they look like, in order.
    pub requests: Vec<Seen>,
    /// Whether the connection ended.
    pub closed: Option<bool>,
    /// Milliseconds within which the last byte, or the end where it must come, is there.
    pub within_ms: Option<u64>,
    /// Milliseconds after the client began within which the proxy lets the origin go.
    pub upstream_closed_ms: Option<u64>,
    /// Fields of the first answer.
    pub fields: BTreeMap<String, String>,
    /// Fields that the first answer has not.
    pub lacks: Vec<String>,
    /// Body of the last answer.
    pub body: Option<String>,
    /// Bytes of the body of the last answer.
    pub body_bytes: Option<usize>,
    /// Trailers of the last answer.
    pub trailers: BTreeMap<String, String>,
    /// The last answer is visibly cut off.
    pub cut: bool,
    /// Interim answers.
    pub interims: Option<Vec<u16>>,
    /// `X-Seen` of the answers, in order; empty where it does not matter.
    pub answers: Vec<String>,
    /// Statuses of the second client's answers.
    pub second_statuses: Option<Vec<Vec<u16>>>,
    /// `X-Seen` of the second client's answers.
    pub second_answers: Vec<String>,
    /// What came through the origin's tunnel.
    pub tunnel_has: Option<String>,
    /// What must not have come through it.
    pub tunnel_lacks: Option<String>,
    /// What the client got behind the 101.
    pub client_has: Option<String>,
    /// What nobody may send to the client.
    pub client_lacks: Option<String>,
    /// The next request came on another connection than the first.
    pub own_connection: bool,
}

/// A request as the origin must have seen it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Seen {
    /// Targets of which it has one.
    pub targets: Vec<String>,
    /// Method.
    pub method: Option<String>,
    /// Body.
    pub body: Option<String>,
    /// Bytes of the body.
    pub body_bytes: Option<u64>,
    /// Fields; "*" is any value.
    pub has: BTreeMap<String, String>,
    /// Fields that are not there.
    pub lacks: Vec<String>,
    /// Fields that have not this value.
    pub not_value: BTreeMap<String, String>,
    /// How often a field is there.
    pub count: BTreeMap<String, usize>,
    /// Trailers.
    pub trailers: BTreeMap<String, String>,
    /// Trailers that are not there.
    pub lacks_trailers: Vec<String>,
    /// Most bytes that its connection carried.
    pub raw_max: Option<u64>,
}

impl Case {
    /// The path of the case.
    pub fn path(&self) -> String {
        format!("/{}", self.id.to_lowercase())
    }

    /// The scripts of the origin, expanded.
    pub fn scripts(&self) -> BTreeMap<String, Vec<Script>> {
        let mut scripts = BTreeMap::new();
        let mut first = vec![self.origin.clone(), self.origin_again.clone()];
        first.retain(|script| !script.is_empty());
        if !first.is_empty() {
            // One script for every time, two for the first and the second.
            let first = first.into_iter().map(|script| self.expand_script(script)).collect();
            scripts.insert(self.path(), first);
        }
        for (path, script) in &self.origin_on {
            scripts.insert(self.expand(path), vec![self.expand_script(script.clone())]);
        }
        scripts
    }

    fn expand_script(&self, script: Script) -> Script {
        let expand = |op| match op {
            Op::Send(text) => Op::Send(self.expand(&text)),
            Op::Tunnel(text) => Op::Tunnel(self.expand(&text)),
            other => other,
        };
        script.into_iter().map(expand).collect()
    }

    /// The bytes that a text of the case stands for.
    pub fn bytes(&self, text: &str) -> Vec<u8> {
        latin1(&self.expand(text))
    }

    /// Puts in what stands in braces.
    pub fn expand(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (word, after) = after.split_once('}').unwrap_or_else(|| {
                panic!("{}: an open brace without its end in {text:?}", self.id);
            });
            out.push_str(before);
            out.push_str(&self.word(word));
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn word(&self, word: &str) -> String {
        let path = self.path();
        let hidden = || format!("GET /hidden{path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        match word {
            "id" => path[1..].to_owned(),
            "get" => format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n"),
            "post" => format!("POST {path} HTTP/1.1\r\nHost: a.test\r\n"),
            "next" => format!("GET {path}-next HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            "close" => "Connection: close\r\n".into(),
            "chunked" => "Transfer-Encoding: chunked\r\n".into(),
            "websocket" => WEBSOCKET.into(),
            "101" => SWITCH.into(),
            "hidden" => hidden(),
            "hidden.len" => hidden().len().to_string(),
            "hidden.hex" => format!("{:x}", hidden().len()),
            // A last chunk, behind which the hidden request stands.
            "cover" => format!("0\r\n\r\n{}", hidden()),
            "cover.len" => (hidden().len() + 5).to_string(),
            "hello" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".into(),
            "poison" => POISON.into(),
            "poison.len" => POISON.len().to_string(),
            other => self.parameter(other),
        }
    }

    /// `{NUMBER*TEXT}` repeats a text; `{fields NUMBER}` makes numbered fields.
    fn parameter(&self, word: &str) -> String {
        if let Some(count) = word.strip_prefix("fields ") {
            let count: usize = count.parse().expect("{fields NUMBER}");
            return (0..count).map(|number| format!("x{number}: 1\r\n")).collect();
        }
        let repeat = word.split_once('*').and_then(|(count, text)| {
            Some(text.replace("\\r\\n", "\r\n").repeat(count.parse().ok()?))
        });
        repeat.unwrap_or_else(|| panic!("{}: nobody knows {{{word}}}", self.id))
    }
}

impl File {
    /// Reads and checks a file.
    pub fn read(text: &str) -> File {
        let file: File = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
        assert!(!file.about.is_empty(), "a group says what it is about");
        for case in &file.case {
            case.check(file.group);
        }
        file
    }
}

impl Case {
    fn check(&self, group: char) {
        let Case { id, .. } = self;
        assert!(id.starts_with(group) && id.len() == 3, "{id} belongs to another group");
        assert!(!self.source.is_empty() && !self.what.is_empty(), "{id} says whence and what");
        assert!(
            !self.client.is_empty() && !self.allow.is_empty(),
            "{id} does and allows something"
        );
        let second = self.allow.iter().any(|allow| allow.second_statuses.is_some());
        assert!(self.second.is_empty() != second, "{id}: a second client and what it may get");
        for step in self.client.iter().chain(&self.second) {
            if let Step::Send(text) | Step::On100(text) | Step::Drip(text, _) = step {
                self.bytes(text);
            }
        }
        self.scripts();
    }
}

/// A WebSocket handshake, behind the request line and Host.
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: cmluZ3dheS1yaW5nd2F5IQ==\r\n";

/// Its answer.
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: bm9ib2R5IGxvb2tzIGF0IGl0IQ==\r\n\r\n";

/// An answer that nobody asked for.
const POISON: &str = "HTTP/1.1 200 OK\r\nX-Seen: POISON\r\nContent-Length: 6\r\n\r\npoison";
