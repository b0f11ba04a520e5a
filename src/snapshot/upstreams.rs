//! `[upstream.NAME]`, compiled.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Ids, tls};
use crate::config::diagnostic::Span;
use crate::config::read::Address;
use crate::config::written::{self, Config, Route};
use crate::config::{Diagnostic, Diagnostics};
use crate::context::RetryPlan;
use crate::limits::*;
use crate::tls::ClientTls;
use crate::upstream::{EndpointAddress, EndpointPlan, Protocol, UpstreamId, UpstreamPlan};

/// An endpoint stands once in its upstream, and one at least takes traffic.
pub(super) fn check_endpoints(upstream: &written::Upstream, found: &mut Diagnostics) {
    let endpoints = &upstream.endpoints.value;
    let mut seen: HashMap<&Address, Span> = HashMap::new();
    for endpoint in endpoints {
        let span = endpoint.address.span();
        if let Some(first) = seen.insert(&endpoint.address.value, span.clone()) {
            found.push(
                Diagnostic::error(span, format!("endpoint `{}` stands twice", endpoint.written))
                    .label("the second")
                    .other(first, "the first")
                    .remedy("leave one out; `weight` gives an endpoint a larger share"),
            );
        }
    }
    check_places(upstream, found);
    let span = upstream.endpoints.span();
    if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.weight == Some(0)) {
        let message = format!("every weight of upstream `{}` is 0", upstream.name.value);
        let remedy = "give one endpoint at least a weight above 0";
        found.push(Diagnostic::error(span, message).label("takes no traffic").remedy(remedy));
    }
}

/// There is one number of places, and a queue only where there is.
fn check_places(upstream: &written::Upstream, found: &mut Diagnostics) {
    let name = &upstream.name.value;
    match (&upstream.concurrency, upstream.in_flight_max, &upstream.queue) {
        (Some(concurrency), Some(_), _) => {
            let message = format!("upstream `{name}` has `concurrency` and `in_flight_max`");
            let error = Diagnostic::error(concurrency.span(), message);
            found.push(error.label("both bound the same").remedy("keep one of them"));
        }
        (None, None, Some(queue)) => {
            let message = format!("nothing waits in the queue of upstream `{name}`");
            found.push(
                Diagnostic::error(queue.span(), message)
                    .label("there is room for every request")
                    .remedy("give it an `in_flight_max` or a `concurrency`, or remove `queue`"),
            );
        }
        _ => {}
    }
}

/// Upstreams that no route names.
pub(super) fn unused_upstreams(config: &Config<'_>) -> Diagnostics {
    let mut warnings = Diagnostics::default();
    let used: HashSet<&str> =
        config.routes.iter().flat_map(Route::upstreams).map(|name| &*name.value).collect();
    for upstream in config.upstreams.iter().filter(|u| !used.contains(&*u.name.value)) {
        let message = format!("upstream `{}` is used by no route", upstream.name.value);
        warnings.push(
            Diagnostic::warning(upstream.name.span(), message)
                .label("never reached")
                .remedy("name it in a [[route]], or remove it"),
        );
    }
    warnings
}

/// Every timeout of it.
pub(super) fn upstream_timeouts(plan: &UpstreamPlan) -> [u64; 7] {
    [
        plan.connect_timeout_ms,
        plan.response_timeout_ms,
        plan.body_timeout_ms,
        plan.idle_timeout_ms,
        plan.tunnel_timeout_ms,
        plan.tunnel_total_timeout_ms.unwrap_or(TUNNEL_IDLE_TIMEOUT_MS),
        plan.retry.per_try_timeout_ms.unwrap_or(TIMEOUT_MS_MAX),
    ]
}

/// Everything has been checked: this cannot fail.
pub(super) fn upstream(
    written: &written::Upstream,
    tls: Option<Arc<ClientTls>>,
    ids: &mut Ids,
) -> UpstreamPlan {
    let id = ids.upstream(&written.name.value);
    let timeouts = &written.timeouts;
    UpstreamPlan {
        id,
        name: written.name.value.clone(),
        endpoints: (written.endpoints.value.iter())
            .map(|e| endpoint(e, id, (written.protocol, tls.as_ref()), ids))
            .collect(),
        tls,
        connect_timeout_ms: timeouts.connect_ms.unwrap_or(CONNECT_TIMEOUT_MS),
        response_timeout_ms: timeouts.response_ms.unwrap_or(RESPONSE_TIMEOUT_MS),
        body_timeout_ms: timeouts.body_ms.unwrap_or(UPSTREAM_BODY_TIMEOUT_MS),
        idle_timeout_ms: timeouts.idle_ms.unwrap_or(UPSTREAM_IDLE_TIMEOUT_MS),
        tunnel_timeout_ms: timeouts.tunnel_ms.unwrap_or(TUNNEL_IDLE_TIMEOUT_MS),
        tunnel_total_timeout_ms: timeouts.tunnel_total_ms,
        in_flight_max: written.in_flight_max.unwrap_or(0),
        concurrency: (written.concurrency.as_ref())
            .map(|bounds| (bounds.value.min, bounds.value.max)),
        queue_length_max: written.queue.as_ref().map_or(0, |queue| queue.value.length_max),
        queue_timeout_ms: (written.queue.as_ref())
            .map_or(TIMEOUT_MS_MAX, |queue| queue.value.timeout_ms),
        idle_connections_max: written.idle_connections_max.unwrap_or(POOL_IDLE_DEFAULT),
        retry: written.retry.as_ref().map(RetryPlan::of).unwrap_or_default(),
        budget_percent: (written.retry.as_ref())
            .and_then(|retry| retry.budget_percent)
            .unwrap_or(RETRY_BUDGET_PERCENT),
    }
}

fn endpoint(
    written: &written::Endpoint,
    upstream: UpstreamId,
    (protocol, tls): (written::Protocol, Option<&Arc<ClientTls>>),
    ids: &mut Ids,
) -> EndpointPlan {
    let protocol = match protocol {
        written::Protocol::Http1 => Protocol::Http1,
        written::Protocol::Http2 => Protocol::Http2,
        written::Protocol::Auto => Protocol::Auto,
    };
    let address = match written.address.value.clone() {
        Address::Socket(address) => EndpointAddress::Socket(address),
        Address::Name(host, port) => EndpointAddress::Name(host, port),
        Address::Unix(path) => EndpointAddress::Unix(path),
    };
    let weight = written.weight.and_then(|weight| u32::try_from(weight).ok());
    let id = ids.endpoint(upstream, &address, (protocol, tls.map(|tls| tls.identity())));
    EndpointPlan {
        id,
        tallies: ids.tallies(id),
        tls: tls.and_then(|tls| tls.to(&tls::host_of(&written.address.value))),
        address,
        protocol,
        authority: written.written.clone(),
        weight: weight.unwrap_or(WEIGHT_DEFAULT),
        zone: written.zone.clone(),
    }
}
