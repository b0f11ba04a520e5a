//! Plans that tests of this module begin with.

use std::sync::Arc;

use super::plan::*;
use super::standing::Tallies;
use crate::context::RetryPlan;

/// An upstream with endpoints of these weights, `unix:/0` and so on: no caps, no breaker, no checks.
pub(super) fn plan(weights: &[u32]) -> UpstreamPlan {
    let endpoint = |(index, weight): (usize, &u32)| EndpointPlan {
        id: EndpointId(index as u32),
        tallies: Tallies::default(),
        address: EndpointAddress::Unix("/nowhere".into()),
        tls: None,
        protocol: Protocol::Http1,
        outgoing: Outgoing::default(),
        authority: format!("unix:/{index}").into(),
        weight: *weight,
        zone: None,
        priority: 0,
    };
    UpstreamPlan {
        id: UpstreamId(0),
        name: "app".into(),
        discover: None,
        endpoints: weights.iter().enumerate().map(endpoint).collect(),
        protocol: Protocol::Http1,
        outgoing: Outgoing::default(),
        tls: None,
        connect_timeout_ms: 1,
        response_timeout_ms: 1,
        body_timeout_ms: 1,
        idle_timeout_ms: 1,
        tunnel_timeout_ms: 1,
        tunnel_total_timeout_ms: None,
        in_flight_max: 0,
        concurrency: None,
        queue_length_max: 0,
        queue_timeout_ms: 1,
        idle_connections_max: 1,
        balance: Arc::default(),
        health: None,
        breaker: BreakerPlan::off(),
        slow_start_ms: 0,
        retry: RetryPlan::default(),
        budget_percent: 20,
    }
}

/// The same with endpoints of weight 100, each in the zone that stands at its place; an empty one is
/// none.
pub(super) fn plan_in_zones(zones: &[&str]) -> UpstreamPlan {
    let mut plan = plan(&vec![100; zones.len()]);
    for (endpoint, zone) in plan.endpoints.iter_mut().zip(zones) {
        endpoint.zone = Some(*zone).filter(|zone| !zone.is_empty()).map(Box::from);
    }
    plan
}
