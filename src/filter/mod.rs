//! Filters: what a gateway does to a request and its answer beside forwarding them.
//!
//! A filter is one file with its configuration, code, docs, example and tests, and one line in
//! [`filters!`]. The reference page, `check`, the labels of metrics and the tests over all filters
//! come from that list.

pub mod chain;
pub mod gcra;
pub mod kept;
#[cfg(test)]
pub(crate) mod testing;

pub use chain::{Entry, FilterChain, OnError, Passed, Pending, Progress};
pub use kept::Kept;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::base::random::Random;
use crate::config::Diagnostics;
use crate::config::decode::Fields;
use crate::context::source::Params;
use crate::context::{Matched, RequestContext, Scope};
use crate::error::ErrorKind;
use crate::http::ResponseHead;

macro_rules! filters {
    ($($(#[$when:meta])* $name:ident),* $(,)?) => {
        $($(#[$when])* pub mod $name;)*

        /// Every kind of filter, in the order of the reference.
        pub const KINDS: &[&Kind] = &[$($(#[$when])* &$name::KIND,)*];
    };
}

filters! {
    headers,
    cors,
    rate_limit,
    ip_list,
    grpc_web,
    #[cfg(feature = "failpoint")] test_wait,
}

/// Identity of a filter over reloads: its name, or its place in its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilterId(pub u32);

/// When a filter's hook on the request runs. Inside a phase the order is that of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// May this request come in? (lists, limits, identity)
    Access,
    /// What does the upstream get to see?
    Transform,
    /// The upstream has been chosen, nothing has been sent.
    Upstream,
}

/// A kind of filter.
pub struct Kind {
    /// Value of `kind`.
    pub name: &'static str,
    /// When its hook on the request runs, unless [`Filter::phase`] says otherwise.
    pub phase: Phase,
    /// Whether it may wait for something outside: then `on_error` must be given (B8).
    pub waits: bool,
    /// What it does, for the reference: a few sentences.
    pub about: &'static str,
    /// An example for the reference, which `check` accepts in a file with the smallest rest.
    pub example: &'static str,
    /// Its keys but for those that all filters have: name, type, default, meaning.
    pub keys: &'static [Key],
    /// Reads its table.
    pub decode: DecodeFilter,
}

/// A key of a filter, for the reference.
pub struct Key {
    /// Section, such as `filter.headers`.
    pub section: &'static str,
    /// Name.
    pub name: &'static str,
    /// Type, as the reference names it.
    pub kind: &'static str,
    /// Default, or "required".
    pub default: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

impl Key {
    /// A row of the reference.
    pub const fn of(
        section: &'static str,
        name: &'static str,
        kind: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Key {
        Key { section, name, kind, default, meaning }
    }
}

/// Reads a filter's table. `None` after something was added to what was found.
pub type DecodeFilter = fn(&mut Fields<'_, '_>, &mut Build<'_>) -> Option<Arc<dyn Filter>>;

/// What a filter is made with.
pub struct Build<'a> {
    /// Identity over reloads.
    pub id: FilterId,
    /// Its name in messages, metrics and `RateLimit` fields.
    pub name: &'a str,
    /// How many workers will run, as far as the compiler can tell.
    pub workers: usize,
    /// What outlives reloads, by identity.
    pub kept: &'a mut Kept,
    /// What is hardly meant that way.
    pub warnings: &'a mut Diagnostics,
}

/// A filter as it runs: the same one on all cores, so that what it changes is atomic or in
/// [`Kept`].
pub trait Filter: fmt::Debug + Send + Sync {
    /// Which of its hooks do anything.
    fn hooks(&self) -> Hooks;

    /// When its hook on the request runs, where that is not what its kind says.
    fn phase(&self) -> Option<Phase> {
        None
    }

    /// Looks at the request, may change it, and says how to go on.
    fn on_request(&self, _call: &mut Call<'_>) -> Verdict {
        Verdict::Continue
    }

    /// Looks at an answer's head, the gateway's own included (P7), and may change it (P17).
    fn on_response(&self, _answer: &mut AnswerCall<'_>) {}

    /// Is told how it ended.
    fn on_log(&self, _context: &RequestContext, _status: u16) {}

    /// How often a limiter had no room for a key and let it share with another; none where the
    /// filter has no keys.
    fn crowded(&self) -> Option<u64> {
        None
    }
}

/// Which hooks a filter has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// [`Filter::on_request`]
    pub request: bool,
    /// [`Filter::on_response`]
    pub response: bool,
    /// [`Filter::on_log`]
    pub log: bool,
}

/// What [`Filter::on_request`] sees.
pub struct Call<'a> {
    /// The request: facts in owned sections, to be read and changed.
    pub context: &'a mut RequestContext,
    /// The route. Its parameters are bound to a path by [`Call::matched`].
    pub route: Matched<'a>,
    /// Name of the listener.
    pub listener: &'a str,
    /// Name of the upstream; empty before it is chosen.
    pub upstream: &'a str,
    /// For sampling.
    pub random: &'a Random,
    /// Which worker, and how many there are.
    pub worker: (usize, usize),
    /// What a limiter decided: see [`Call::decide`].
    pub decision: Option<Decision>,
}

/// What a limiter decided about a request, for its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may pass.
    Allowed,
    /// It may not.
    Limited,
}

impl Call<'_> {
    /// Tells the counters of this filter what it decided.
    #[inline]
    pub fn decide(&mut self, allowed: bool) {
        self.decision = Some(if allowed { Decision::Allowed } else { Decision::Limited });
    }

    /// The route's id, and the parameters of the request's path.
    #[inline]
    pub fn matched(&self) -> Matched<'_> {
        at_path(self.route, self.context.path())
    }

    /// What variables of texts stand for.
    #[inline]
    pub fn scope(&self) -> Scope<'_> {
        Scope {
            listener: self.listener,
            upstream: self.upstream,
            ..Scope::of_request(self.context, self.matched())
        }
    }
}

/// What [`Filter::on_response`] sees.
pub struct AnswerCall<'a> {
    /// The request.
    pub context: &'a RequestContext,
    /// The answer's head, to be changed.
    pub head: &'a mut ResponseHead,
    /// The route. Its parameters are bound to a path by [`AnswerCall::scope`].
    pub route: Matched<'a>,
    /// Name of the listener.
    pub listener: &'a str,
    /// Name of the upstream; empty where none was chosen.
    pub upstream: &'a str,
    /// Address of the endpoint; empty where none answered.
    pub endpoint: &'a str,
    /// How long the upstream took to its head, in milliseconds, where it sent one.
    pub upstream_ms: Option<u64>,
}

impl<'a> AnswerCall<'a> {
    /// What variables of texts stand for.
    #[inline]
    pub fn scope(&self) -> Scope<'a> {
        Scope {
            context: self.context,
            matched: at_path(self.route, self.context.path()),
            listener: self.listener,
            upstream: self.upstream,
            endpoint: self.endpoint,
            status: self.head.status,
            upstream_ms: self.upstream_ms,
        }
    }
}

/// The same route, with the parameters of this path.
fn at_path<'b>(route: Matched<'b>, path: &'b [u8]) -> Matched<'b> {
    let params = match route.params {
        Params::None => Params::None,
        Params::Segments(params, _) => Params::Segments(params, path),
        Params::Groups(pattern, _) => Params::Groups(pattern, path),
    };
    Matched { route: route.route, params }
}

/// How a request goes on after a filter.
pub enum Verdict {
    /// To the next filter.
    Continue,
    /// It is answered here.
    Respond(Reply),
    /// The filter waits for something outside, for a bounded time.
    Wait(Waiting),
}

/// A wait of a filter. It may be dropped at any time.
pub type Waiting = Pin<Box<dyn Future<Output = Resume>>>;

/// How a filter goes on after a wait.
pub enum Resume {
    /// By this, which is given the request.
    With(Box<dyn FnOnce(&mut Call<'_>) -> Verdict>),
    /// What it waited for failed; `on_error` decides.
    Failed,
}

/// An answer that the gateway makes itself.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// The error that it tells of, where it is one: then the body tells it too.
    pub error: Option<ErrorKind>,
    /// Fields beside those that every answer has.
    pub fields: Vec<(&'static str, Vec<u8>)>,
    /// Its content.
    pub body: Vec<u8>,
}

impl Reply {
    /// An answer without content.
    pub fn of(status: u16) -> Reply {
        Reply { status, error: None, fields: Vec::new(), body: Vec::new() }
    }

    /// The answer to an error.
    pub fn error(kind: ErrorKind) -> Reply {
        Reply { error: Some(kind), ..Reply::of(kind.status()) }
    }

    /// With one more field.
    pub fn field(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Reply {
        self.fields.push((name, value.into()));
        self
    }
}
