//! The facts of one request, in owned sections: what filters and logs see, never handles.

pub mod condition;
mod groups;
pub mod pattern;
pub mod retry;
pub mod source;
pub mod target;
pub mod template;

pub use condition::Condition;
pub use retry::RetryPlan;
pub use source::{Matched, Source};
pub use template::{Scope, Template};

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use crate::base::random::Random;
use crate::http::grpc_web::GrpcWeb;
use crate::http::{BodyFraming, Known, RequestHead, Span};
use crate::proxy_protocol::{Announced, Fact};
use crate::tls::{TlsFact, TlsFacts};

/// The facts of one request, from its head to its log record.
#[derive(Debug, Default)]
pub struct RequestContext {
    /// Its head, as it came.
    pub request: RequestHead,
    /// What its head says.
    pub facts: RequestFacts,
    /// Where it goes.
    pub target: TargetFacts,
    /// Its identity: from a believed peer, or made here.
    pub request_id: RequestId,
    /// Who sent it.
    pub client: ClientFacts,
    /// What a PROXY header said of the client, if one came.
    pub announced: Option<Rc<Announced>>,
    /// What is known of the TLS connection that it came by, if it came by one.
    pub tls: Option<Rc<TlsFacts>>,
    /// When what happened.
    pub timing: Timing,
    /// What filters tell later stages and each other (P12).
    pub attributes: Attributes,
    /// For texts while they are put together; empty in between, memory is reused.
    pub scratch: Vec<u8>,
}

/// What a request's head says beyond its fields.
#[derive(Debug)]
pub struct RequestFacts {
    /// How the body is framed.
    pub framing: BodyFraming,
    /// Whether the client wants the connection to go on (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Whether it is HEAD: the answer has no body.
    pub is_head: bool,
    /// Whether sending it twice does what sending it once does (RFC 9110 section 9.2.2).
    pub idempotent: bool,
    /// The protocols it offers to switch to, of those that are passed on.
    pub upgrade: Option<Vec<u8>>,
    /// The call by gRPC-Web that it begins, where a filter turns those into gRPC.
    pub grpc_web: Option<Box<GrpcWeb>>,
    /// Fields as they came, where filters may have changed them since.
    pub came: Option<CameFields>,
}

impl Default for RequestFacts {
    fn default() -> RequestFacts {
        RequestFacts {
            framing: BodyFraming::None,
            keep_alive: false,
            is_head: false,
            idempotent: false,
            upgrade: None,
            grpc_web: None,
            came: None,
        }
    }
}

/// What the log and the gateway's own answers go by, whatever filters make of it. Empty where a field
/// is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct CameFields {
    /// Whether an Accept asks for JSON rather than text.
    pub prefers_json: bool,
    /// Referer.
    pub referer: Span,
    /// User-Agent.
    pub user_agent: Span,
}

/// A request's target, normalised.
#[derive(Debug, Default)]
pub struct TargetFacts {
    /// The path as it came, in the request's bytes.
    pub path: Span,
    /// The query as it came, without its question mark.
    pub query: Option<Span>,
    /// The authority of an absolute target, which stands for Host (RFC 9112 section 3.2.2).
    pub authority: Option<Span>,
    /// Whether it is `*`.
    pub asterisk: bool,
    /// The normalised path where it differs from the one that came; memory is reused.
    pub normalised: Vec<u8>,
    /// Whether it differs.
    pub changed: bool,
    /// What the upstream is sent for it.
    pub sent: SentPath,
    /// The path of a rewrite; memory is reused.
    pub rewritten: Vec<u8>,
    /// The host of a rewrite; empty where there is none, memory is reused.
    pub host_rewritten: Vec<u8>,
}

/// The path that an upstream is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SentPath {
    /// The one that was matched, from this byte on.
    From(usize),
    /// `/`: every segment was skipped.
    #[default]
    Root,
    /// [`TargetFacts::rewritten`]
    Rewritten,
}

/// Who sent a request.
#[derive(Clone, Copy, Debug)]
pub struct ClientFacts {
    /// The address behind the proxies that are believed: what rules and logs speak of.
    pub address: IpAddr,
    /// The other end of the connection; behind a PROXY header the client that it announces.
    pub peer: SocketAddr,
    /// Whether the peer's forwarding fields are believed.
    pub trusted: bool,
}

impl Default for ClientFacts {
    fn default() -> ClientFacts {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        ClientFacts { address: nobody, peer: SocketAddr::new(nobody, 0), trusted: false }
    }
}

/// When what happened to a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Its head was complete.
    pub started: Option<Instant>,
    /// Times that it was sent again.
    pub retries: u32,
    /// What became of the try that was begun beside another, if one was.
    pub hedge: Option<Hedge>,
    /// When the other one of them was begun, where that one answered.
    pub raced_at: Option<Instant>,
}

/// What became of a try that was begun while another went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hedge {
    /// Its answer was passed on.
    Won,
    /// Its answer was not.
    Lost,
}

impl Hedge {
    /// As the access log has it.
    pub fn name(self) -> &'static str {
        match self {
            Hedge::Won => "won",
            Hedge::Lost => "lost",
        }
    }
}

/// What filters tell later stages: few names with short values. Its memory is reused.
#[derive(Debug, Default)]
pub struct Attributes {
    bytes: Vec<u8>,
    /// Names and values; one that was replaced is left in `bytes`.
    entries: Vec<(Span, Span)>,
}

impl Attributes {
    /// The value under `name`.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let same = |(known, _): &&(Span, Span)| known.of(&self.bytes) == name.as_bytes();
        self.entries.iter().find(same).map(|(_, value)| value.of(&self.bytes))
    }

    /// Puts a value under `name`, in place of the one that was there.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.set_with(name, |bytes| bytes.extend_from_slice(value));
    }

    /// The same with a value that `write` appends.
    pub fn set_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
        let value = Span::new(start, end);
        let same = |(known, _): &&mut (Span, Span)| known.of(&self.bytes) == name.as_bytes();
        if let Some((_, held)) = self.entries.iter_mut().find(same) {
            *held = value;
            return;
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.entries.push((Span::new(end, self.bytes.len()), value));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<(Span, Span)>()
    }
}

impl RequestContext {
    /// Remembers fields as they came, because filters may change the head from here on.
    pub fn remember_came(&mut self) {
        let request = &self.request;
        let first = |known| request.fields.iter().find(|field| field.known == known);
        let span = |known| first(known).map_or_else(Span::default, |field| field.value);
        self.facts.came = Some(CameFields {
            prefers_json: self.prefers_json(),
            referer: span(Known::Referer),
            user_agent: span(Known::UserAgent),
        });
    }

    /// `https` where the client speaks TLS, else `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// A fact of the client's TLS connection; without one, what holds then.
    pub fn tls_fact(&self, fact: TlsFact) -> Option<&str> {
        match &self.tls {
            Some(tls) => tls.get(fact),
            None => fact.without(),
        }
    }

    /// Whether an Accept, as it came, asks for JSON rather than text.
    pub fn prefers_json(&self) -> bool {
        let now = || self.request.values(Known::Accept).any(prefers_json);
        self.facts.came.map_or_else(now, |came| came.prefers_json)
    }

    /// Referer as it came; empty where it is missing.
    pub fn referer(&self) -> &[u8] {
        let now = || self.request.value(Known::Referer).unwrap_or_default();
        self.facts.came.map_or_else(now, |came| self.request.text(came.referer))
    }

    /// User-Agent as it came; empty where it is missing.
    pub fn user_agent(&self) -> &[u8] {
        let now = || self.request.value(Known::UserAgent).unwrap_or_default();
        self.facts.came.map_or_else(now, |came| self.request.text(came.user_agent))
    }

    /// A fact that a PROXY header told of the client.
    pub fn announced(&self, fact: Fact) -> Option<&[u8]> {
        self.announced.as_ref()?.fact(fact)
    }

    /// The path that routes are matched against and that the upstream is sent.
    pub fn path(&self) -> &[u8] {
        if self.target.asterisk {
            b"/"
        } else if self.target.changed {
            &self.target.normalised
        } else {
            self.target.path.of(self.request.bytes.filled())
        }
    }

    /// The path that the upstream is sent.
    pub fn sent_path(&self) -> &[u8] {
        match self.target.sent {
            _ if self.target.asterisk => b"*",
            SentPath::From(start) => &self.path()[start..],
            SentPath::Root => b"/",
            SentPath::Rewritten => &self.target.rewritten,
        }
    }

    /// The host that the client named, by its target or its Host field.
    pub fn host(&self) -> Option<&[u8]> {
        match self.target.authority {
            Some(authority) => Some(authority.of(self.request.bytes.filled())),
            None => self.request.value(Known::Host),
        }
    }

    /// Bytes of memory that stay behind for the next request.
    pub fn memory(&self) -> usize {
        let TargetFacts { normalised, rewritten, host_rewritten, .. } = &self.target;
        let texts = [normalised, rewritten, host_rewritten, &self.scratch];
        texts.iter().map(|text| text.capacity()).sum::<usize>()
            + self.attributes.memory()
            + self.request.added.memory()
    }

    /// Forgets the request; memory stays.
    pub fn reset(&mut self) {
        self.request.reset();
        self.facts = RequestFacts::default();
        let TargetFacts { normalised, rewritten, host_rewritten, .. } =
            std::mem::take(&mut self.target);
        self.target =
            TargetFacts { normalised, rewritten, host_rewritten, ..TargetFacts::default() };
        self.request_id = RequestId::default();
        self.client = ClientFacts::default();
        self.announced = None;
        self.tls = None;
        self.timing = Timing::default();
        self.attributes.clear();
    }
}

/// Whether JSON stands before any text in an Accept.
fn prefers_json(accept: &[u8]) -> bool {
    let find =
        |word: &[u8]| accept.windows(word.len()).position(|at| at.eq_ignore_ascii_case(word));
    find(b"json").is_some_and(|json| find(b"text/").is_none_or(|text| json < text))
}

/// Identity of a request: 128 random bits in hexadecimal, or what a believed peer sent.
#[derive(Clone, Debug, Default)]
pub struct RequestId {
    hex: [u8; 32],
    given: Option<Span>,
}

impl RequestId {
    /// A new one.
    pub fn make(random: &Random) -> RequestId {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (half, chunk) in [random.next(), random.next()].into_iter().zip(hex.chunks_mut(16)) {
            for (index, digit) in chunk.iter_mut().enumerate() {
                *digit = DIGITS[(half >> (index * 4) & 15) as usize];
            }
        }
        RequestId { hex, given: None }
    }

    /// The one that came with the request.
    pub fn given(value: Span) -> RequestId {
        RequestId { hex: [0; 32], given: Some(value) }
    }

    /// As sent; `request` is the head that it may have come with.
    pub fn text<'a>(&'a self, request: &'a RequestHead) -> &'a [u8] {
        match self.given {
            Some(span) => request.text(span),
            None => &self.hex,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_holds_whatever_filters_make_of_the_head() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nAccept: image/png\r\n\
            Accept: application/problem+JSON, text/html\r\nUser-Agent: me\r\n\r\n";
        let (mut context, _) = RequestContext::of_head(head).expect("valid");
        let seen = |context: &RequestContext| {
            let texts = [context.user_agent(), context.referer()].map(<[u8]>::to_vec);
            (context.prefers_json(), texts)
        };
        let before = seen(&context);
        assert_eq!(before, (true, [b"me".to_vec(), Vec::new()]));
        context.remember_came();
        assert!(context.request.remove("accept") && context.request.remove("user-agent"));
        context.request.add("referer", b"made up");
        assert_eq!(seen(&context), before);
    }

    #[test]
    fn json_is_preferred_where_it_stands_before_text() {
        for (accept, json) in [
            ("application/json", true),
            ("text/html, application/json", false),
            ("application/jso", false),
            ("*/*", false),
            ("jjson", true),
            ("", false),
        ] {
            assert_eq!(prefers_json(accept.as_bytes()), json, "{accept}");
        }
    }
}
