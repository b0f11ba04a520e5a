//! What the configuration says of a route.

use std::fmt;

use super::action::{Action, Directed};
use super::path::Matcher;
use super::rewrite::Rewrite;
use crate::context::condition::all_hold;
use crate::context::{Condition, Matched, RequestContext, RetryPlan, Scope, Template};
use crate::error::ErrorKind;
use crate::http::uri::{Policy, valid_host};
use crate::limits::PRIORITY_DEFAULT;

/// Identity of a route over reloads: its id in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId(pub u32);

/// What may stand in a path and what the upstream then sees.
pub type PathPolicy = Policy;

/// One route (R7). Most routes need little: the rest is in [`Extra`], so that 50,000 are small.
#[derive(Debug)]
pub struct RoutePlan {
    /// Identity over reloads.
    pub number: RouteId,
    /// Its place in the configuration, from 0: what else is compiled for it stands there.
    pub index: usize,
    /// Its name in the configuration.
    pub id: Box<str>,
    /// What it takes.
    pub matcher: Matcher,
    /// What becomes of a request.
    pub action: Action,
    /// Among routes with the same host and path the smaller comes first (R13).
    pub priority: u32,
    /// Leading segments that the upstream does not see (R4).
    pub skip_segments: usize,
    /// `path_policy`
    pub path_policy: PathPolicy,
    /// `body_bytes_max`, where given (A8, A9).
    pub body_bytes_max: Option<u64>,
    /// `timeouts.response`, where it overrides the upstream's (R11).
    pub response_timeout_ms: Option<u64>,
    /// `timeouts.total`, where given (B9).
    pub total_timeout_ms: Option<u64>,
    /// What few routes have.
    pub extra: Option<Box<Extra>>,
}

/// What few routes have.
#[derive(Debug, Default)]
pub struct Extra {
    /// `hosts`; none is any.
    pub hosts: Vec<Host>,
    /// `when`: all must hold.
    pub conditions: Vec<Condition>,
    /// `rewrite`
    pub rewrite: Option<Rewrite>,
    /// `host_rewrite`: the Host that the upstream is sent.
    pub host_rewrite: Option<Template>,
    /// `in_flight_max`, where given (B1).
    pub in_flight_max: Option<usize>,
    /// `retry`, in place of the upstream's.
    pub retry: Option<RetryPlan>,
}

/// One of a route's `hosts`, in the form of [`crate::http::host::HostText`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// `"api.example.com"`
    Name(Box<str>),
    /// `"*.example.com"`: one or more labels before the rest, which is without its dot.
    Wildcard(Box<str>),
}

impl RoutePlan {
    /// A route of these, with the defaults of the rest.
    pub fn new(index: usize, id: impl Into<Box<str>>, matcher: Matcher, action: Action) -> Self {
        RoutePlan {
            number: RouteId::default(),
            index,
            id: id.into(),
            matcher,
            action,
            priority: PRIORITY_DEFAULT,
            skip_segments: 0,
            path_policy: PathPolicy::default(),
            body_bytes_max: None,
            response_timeout_ms: None,
            total_timeout_ms: None,
            extra: None,
        }
    }

    /// `hosts`; none is any.
    pub fn hosts(&self) -> &[Host] {
        self.extra.as_ref().map_or(&[], |extra| &extra.hosts)
    }

    /// `in_flight_max`: requests in flight on this node. Divided by the workers.
    #[inline]
    pub fn in_flight_max(&self) -> Option<usize> {
        self.extra.as_ref().and_then(|extra| extra.in_flight_max)
    }

    /// `when`
    pub fn conditions(&self) -> &[Condition] {
        self.extra.as_ref().map_or(&[], |extra| &extra.conditions)
    }

    /// Whether all conditions hold (R12).
    #[inline]
    pub fn holds(&self, context: &RequestContext) -> bool {
        all_hold(self.conditions(), context)
    }

    /// The endpoint to which one of its targets sends all its requests (R18).
    pub fn directed(&self, target: usize) -> Option<Directed> {
        match &self.action {
            Action::Forward(targets) => targets.all().get(target)?.directed,
            Action::Redirect(_) | Action::Respond(_) => None,
        }
    }

    /// The zone to which one of its targets is limited (R17).
    pub fn zone(&self, target: usize) -> Option<&str> {
        match &self.action {
            Action::Forward(targets) => targets.all().get(target)?.zone.as_deref(),
            Action::Redirect(_) | Action::Respond(_) => None,
        }
    }

    /// What texts and values may ask of it, for a request with this path.
    pub fn matched<'a>(&'a self, path: &'a [u8]) -> Matched<'a> {
        Matched { route: &self.id, params: self.matcher.params(path) }
    }

    /// Whether it changes the Host that the upstream is sent.
    #[inline]
    pub fn rewrites_host(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.host_rewrite.is_some())
    }

    /// Puts the Host that the upstream is sent into `out`, which is cleared. False: the route does
    /// not change it.
    ///
    /// # Errors
    /// `HostInvalid` where variables make it no host.
    pub fn upstream_host(&self, scope: &Scope<'_>, out: &mut Vec<u8>) -> Result<bool, ErrorKind> {
        let template = self.extra.as_ref().and_then(|extra| extra.host_rewrite.as_ref());
        let Some(template) = template else { return Ok(false) };
        out.clear();
        template.expand(scope, out);
        if valid_host(out) { Ok(true) } else { Err(ErrorKind::HostInvalid) }
    }
}

/// As written.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Wildcard(rest) => write!(f, "*.{rest}"),
        }
    }
}
