//! `[upstream.NAME]`, compiled.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Ids, balance, discovered, health, tls};
use crate::config::diagnostic::Span;
use crate::config::read::Address;
use crate::config::tree::Spanned;
use crate::config::written::{self, Config, Route};
use crate::config::{Diagnostic, Diagnostics};
use crate::context::RetryPlan;
use crate::io::connect::SocketOptions;
use crate::limits::*;
use crate::proxy_protocol::Version;
use crate::tls::ClientTls;
use crate::upstream::{
    Discover, EndpointAddress, EndpointPlan, Found, Outgoing, Protocol, UpstreamPlan,
};

/// An endpoint stands once in its upstream, and one at least takes traffic. `owner` is whose they are.
pub(super) fn check_endpoints(
    owner: &str,
    written: &Spanned<Vec<written::Endpoint>>,
    found: &mut Diagnostics,
) {
    let endpoints = &written.value;
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
    let span = written.span();
    if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.weight == Some(0)) {
        let message = format!("every weight of {owner} is 0");
        let remedy = "give one endpoint at least a weight above 0";
        found.push(Diagnostic::error(span, message).label("takes no traffic").remedy(remedy));
    }
}

/// Connections that cannot be made as they are asked for.
pub(super) fn check_outgoing(upstream: &written::Upstream, found: &mut Diagnostics) {
    if let Some(sent) = &upstream.send_proxy
        && upstream.protocol.value != written::Protocol::Http1
    {
        let message = "a PROXY header names one client, and many share a connection of HTTP/2";
        found.push(
            Diagnostic::error(sent.span(), message)
                .label("not with this protocol")
                .other(upstream.protocol.span(), "shared by all clients")
                .remedy("write protocol = \"http1\", or leave `send_proxy` out"),
        );
    }
    let Some(source) = &upstream.source_address else { return };
    for endpoint in &upstream.endpoints.value {
        let Address::Socket(address) = endpoint.address.value else { continue };
        if address.is_ipv4() != source.value.is_ipv4() {
            let message = format!("{} is not reached from {}", endpoint.written, source.value);
            found.push(
                Diagnostic::error(source.span(), message)
                    .label("of the other family")
                    .other(endpoint.address.span(), "this endpoint")
                    .remedy("put endpoints of IPv4 and of IPv6 into upstreams of their own"),
            );
        }
    }
}

/// There is one number of places, and a queue only where there is.
pub(super) fn check_places(upstream: &written::Upstream, found: &mut Diagnostics) {
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
    zone: Option<&str>,
    ids: &mut Ids,
) -> UpstreamPlan {
    let timeouts = &written.timeouts;
    let mut plan = UpstreamPlan {
        id: ids.upstream(&written.name.value),
        name: written.name.value.clone(),
        discover: written.discover.as_ref().map(discover),
        endpoints: Vec::new(),
        protocol: match written.protocol.value {
            written::Protocol::Http1 => Protocol::Http1,
            written::Protocol::Http2 => Protocol::Http2,
            written::Protocol::Auto => Protocol::Auto,
        },
        outgoing: outgoing(written),
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
        balance: balance::plan(written, zone),
        health: health::health(written),
        breaker: health::breaker(written),
        slow_start_ms: written.slow_start_ms.unwrap_or(0),
        retry: written.retry.as_ref().map(RetryPlan::of).unwrap_or_default(),
        budget_percent: (written.retry.as_ref())
            .and_then(|retry| retry.budget_percent)
            .unwrap_or(RETRY_BUDGET_PERCENT),
    };
    let fixed: Vec<Found> = written.endpoints.value.iter().map(found).collect();
    plan.endpoints = match discovered::of(&plan, ids) {
        Some(discovered) => endpoints(&plan, &discovered, ids),
        None => endpoints(&plan, &fixed, ids),
    };
    plan.balance = balance::seated(&plan, ids);
    plan
}

fn outgoing(written: &written::Upstream) -> Outgoing {
    Outgoing {
        send_proxy: written.send_proxy.as_ref().map(|sent| match sent.value {
            written::SendProxy::V1 => Version::V1,
            written::SendProxy::V2 => Version::V2,
        }),
        socket: SocketOptions {
            source: written.source_address.as_ref().map(|source| source.value),
            keepalive_ms: written.tcp_keepalive_ms,
        },
    }
}

fn discover(written: &written::Discover) -> Discover {
    match written.clone() {
        written::Discover::Srv(name, resolver) => Discover::Srv { name, resolver },
        written::Discover::Dns(host, port, resolver) => Discover::Dns { host, port, resolver },
        written::Discover::File(path) => Discover::File(path),
    }
}

/// An endpoint as it is written, in a configuration or in a file of endpoints.
pub(super) fn found(written: &written::Endpoint) -> Found {
    let weight = written.weight.and_then(|weight| u32::try_from(weight).ok());
    Found {
        address: address(written.address.value.clone()),
        authority: written.written.clone(),
        host: tls::host_of(&written.address.value).into(),
        weight: weight.unwrap_or(WEIGHT_DEFAULT),
        zone: written.zone.clone(),
        priority: 0,
    }
}

/// Where an endpoint is.
pub(super) fn address(written: Address) -> EndpointAddress {
    match written {
        Address::Socket(address) => EndpointAddress::Socket(address),
        Address::Name(host, port) => EndpointAddress::Name(host, port),
        Address::Unix(path) => EndpointAddress::Unix(path),
    }
}

/// The endpoints of an upstream: what stays has its id. One whose certificate could not name it is left
/// out, rather than spoken to in clear text; in a configuration it is an error.
pub(super) fn endpoints(plan: &UpstreamPlan, found: &[Found], ids: &mut Ids) -> Vec<EndpointPlan> {
    let identity = plan.tls.as_ref().map(|tls| tls.identity());
    let mut endpoints = Vec::with_capacity(found.len());
    for found in found {
        let tls = plan.tls.as_ref().map(|tls| tls.to(&found.host));
        if matches!(tls, Some(None)) {
            continue;
        }
        let named = identity.map(|identity| (identity, found.host.clone()));
        let spoken = (plan.protocol, named, plan.outgoing);
        let id = ids.endpoint(plan.id, &found.address, spoken);
        endpoints.push(EndpointPlan {
            id,
            tallies: ids.tallies(id),
            tls: tls.flatten(),
            address: found.address.clone(),
            protocol: plan.protocol,
            outgoing: plan.outgoing,
            authority: found.authority.clone(),
            weight: found.weight,
            zone: found.zone.clone(),
            priority: found.priority,
        });
    }
    endpoints
}
