//! What the configuration says of a route.

use crate::http::uri::Policy;
use crate::upstream::UpstreamId;

/// Identity of a route over reloads: its id in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId(pub u32);

/// What may stand in a path and what the upstream then sees.
pub type PathPolicy = Policy;

/// What a request's path must look like to take a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Matcher {
    /// `path = "..."`: this very path (R2).
    Exact(Box<str>),
    /// `prefix = "..."`: paths below it, on a segment boundary (R5).
    Prefix(Box<str>),
}

/// One route (R7).
#[derive(Clone, Debug)]
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
}

/// What becomes of a request that takes a route.
#[derive(Clone, Debug)]
pub enum Action {
    /// It goes to one of these upstreams, by weight; at least one has a weight.
    Forward(Vec<Target>),
}

/// One upstream of a route (R17).
#[derive(Clone, Debug)]
pub struct Target {
    /// Where to.
    pub upstream: UpstreamId,
    /// Share of the requests.
    pub weight: u32,
    /// Only endpoints of this zone, where given.
    pub zone: Option<Box<str>>,
}
