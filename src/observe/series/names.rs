//! What the ids of a configuration stand for.

use std::sync::Arc;

use crate::base::by_id::ById;

/// The labels of one configuration: each id that it gives out, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Route ids.
    pub routes: ById<Arc<str>>,
    /// Names of upstreams.
    pub upstreams: ById<Arc<str>>,
    /// Endpoints.
    pub endpoints: ById<EndpointName>,
    /// Names of filters; a limiter's is that of its policy.
    pub filters: ById<Arc<str>>,
    /// Names of listeners.
    pub listeners: ById<Arc<str>>,
}

/// An endpoint's labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointName {
    /// Name of its upstream.
    pub upstream: Arc<str>,
    /// Its address as written.
    pub address: Arc<str>,
}
