//! What is shown of health, breakers and slow start (docs/health.md).

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::exposition::Exposition;
use super::status::rounded;
use super::time_text;

/// Standings of all upstreams that have a breaker or checks, and what happened lately.
#[derive(Clone, Debug, Default)]
pub struct StandingsView {
    /// In the order of the configuration.
    pub upstreams: Vec<UpstreamStanding>,
    /// The last events, the oldest first.
    pub events: Arc<VecDeque<EventView>>,
    /// How many events there have been.
    pub events_total: u64,
    /// Checks that passed, and that failed.
    pub checks: [u64; 2],
}

/// One upstream.
#[derive(Clone, Debug, Default)]
pub struct UpstreamStanding {
    /// Its name.
    pub name: Box<str>,
    /// Thousandths of its requests that it takes.
    pub share_permille: u16,
    /// The service tier, where it is on.
    pub service: Option<BreakerView>,
    /// Whether too little would be left in, so that its endpoints' standings are not heeded.
    pub floor: bool,
    /// The zone tier, where it is on.
    pub zones: Vec<(Box<str>, BreakerView)>,
    /// Its endpoints.
    pub endpoints: Vec<EndpointStanding>,
}

/// One endpoint.
#[derive(Clone, Debug, Default)]
pub struct EndpointStanding {
    /// As written.
    pub address: Box<str>,
    /// What its checks say; none where nothing has been checked.
    pub up: Option<bool>,
    /// Its breaker, where that tier is on.
    pub breaker: Option<BreakerView>,
    /// Thousandths of its weight that count.
    pub share_permille: u16,
    /// Takes one request at a time on each worker.
    pub probing: bool,
    /// Why not the whole share; empty where it is.
    pub reason: Box<str>,
}

/// One breaker.
#[derive(Clone, Debug, Default)]
pub struct BreakerView {
    /// 0 closed, 1 open, 2 probing, 3 trickle
    pub state: u8,
    /// The same as a word.
    pub name: &'static str,
    /// How many times it changed.
    pub transitions: u64,
    /// The share of failures that opens it, in percent.
    pub error_percent: u64,
    /// What is usual, where the threshold follows that and something is known.
    pub usual: Option<UsualView>,
    /// Why it is not closed.
    pub reason: Box<str>,
}

/// What an adaptive threshold takes for usual.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsualView {
    /// Share of requests that fail, in percent.
    pub error_percent: f64,
    /// The 99th percentile of the times to the heads of answers, in milliseconds; none where too few
    /// answers came to tell.
    pub head_p99_ms: Option<f64>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct EventView {
    /// Its number, from 1.
    pub number: u64,
    /// When, in seconds since 1970.
    pub at_s: f64,
    /// Name of the upstream.
    pub upstream: Box<str>,
    /// `endpoint`, `service`, `zone`, `health` or `floor`
    pub tier: &'static str,
    /// The endpoint or the zone; empty where it is the upstream.
    pub subject: Box<str>,
    /// What it was before, in a word.
    pub from: &'static str,
    /// What it is now.
    pub to: &'static str,
    /// Why.
    pub reason: Box<str>,
}

impl StandingsView {
    /// The answer of `/v1/events`.
    pub fn events(&self) -> Value {
        let events = self.events.iter().map(event_status);
        json!({ "total": self.events_total, "events": events.collect::<Vec<_>>() })
    }

    /// The last events, for `status`.
    pub(super) fn last_events(&self, count: usize) -> Vec<Value> {
        let skipped = self.events.len().saturating_sub(count);
        self.events.iter().skip(skipped).map(event_status).collect()
    }

    /// Adds what is known of an upstream to what `status` says of it.
    pub(super) fn add_status(&self, upstream: &mut Value) {
        let named = |it: &&UpstreamStanding| upstream["name"] == *it.name;
        let Some(standing) = self.upstreams.iter().find(named) else { return };
        upstream["share_percent"] = percent(standing.share_permille);
        upstream["floor"] = standing.floor.into();
        if let Some(service) = &standing.service {
            upstream["breaker"] = breaker_status(service);
        }
        if !standing.zones.is_empty() {
            let zones = standing.zones.iter();
            let zones = zones.map(|(name, it)| (name.to_string(), breaker_status(it)));
            upstream["zones"] = Value::Object(zones.collect::<Map<_, _>>());
        }
        for endpoint in upstream["endpoints"].as_array_mut().into_iter().flatten() {
            let named = |it: &&EndpointStanding| endpoint["address"] == *it.address;
            let Some(standing) = standing.endpoints.iter().find(named) else { continue };
            endpoint["share_percent"] = percent(standing.share_permille);
            endpoint["probing"] = standing.probing.into();
            endpoint["up"] = standing.up.into();
            endpoint["standing"] = standing.word().into();
            endpoint["reason"] = (*standing.reason).into();
            if let Some(breaker) = &standing.breaker {
                endpoint["breaker"] = breaker_status(breaker);
            }
        }
    }

    /// The families of Prometheus.
    pub(super) fn write(&self, text: &mut Exposition) {
        let state = "ringway_breaker_state";
        text.family(state, "gauge", "Breakers: 0 closed, 1 open, 2 probing, 3 trickle.");
        self.each_breaker(|labels, breaker| text.sample(state, labels, breaker.state));
        let transitions = "ringway_breaker_transitions_total";
        text.family(transitions, "counter", "Changes of a breaker's state.");
        self.each_breaker(|labels, it| text.sample(transitions, labels, it.transitions));
        let floor = "ringway_upstream_floor";
        text.family(floor, "gauge", "Whether standings are not heeded, too little being left.");
        for upstream in &self.upstreams {
            text.sample(floor, &[("upstream", &*upstream.name)], u8::from(upstream.floor));
        }
        let up = "ringway_upstream_endpoint_up";
        text.family(up, "gauge", "What active checks say of an endpoint.");
        self.each_endpoint(|labels, it| {
            if let Some(is_up) = it.up {
                text.sample(up, labels, u8::from(is_up));
            }
        });
        let share = "ringway_upstream_endpoint_share";
        text.family(share, "gauge", "Share of its weight that counts, from 0 to 1.");
        self.each_endpoint(|labels, it| {
            text.sample(share, labels, f64::from(it.share_permille) / 1000.0);
        });
        let checks = "ringway_health_checks_total";
        text.family(checks, "counter", "Active checks by result.");
        for (result, count) in ["passed", "failed"].iter().zip(self.checks) {
            text.sample(checks, &[("result", result)], count);
        }
    }

    fn each_breaker(&self, mut each: impl FnMut(&[(&str, &str)], &BreakerView)) {
        for upstream in &self.upstreams {
            let name = ("upstream", &*upstream.name);
            if let Some(service) = &upstream.service {
                each(&[name, ("tier", "service")], service);
            }
            for (zone, breaker) in &upstream.zones {
                each(&[name, ("tier", "zone"), ("zone", zone)], breaker);
            }
            for endpoint in &upstream.endpoints {
                if let Some(breaker) = &endpoint.breaker {
                    let address = ("endpoint", &*endpoint.address);
                    each(&[name, ("tier", "endpoint"), address], breaker);
                }
            }
        }
    }

    fn each_endpoint(&self, mut each: impl FnMut(&[(&str, &str)], &EndpointStanding)) {
        for upstream in &self.upstreams {
            for endpoint in &upstream.endpoints {
                let labels = [("upstream", &*upstream.name), ("endpoint", &*endpoint.address)];
                each(&labels, endpoint);
            }
        }
    }
}

impl EndpointStanding {
    /// How it stands, in a word.
    fn word(&self) -> &'static str {
        match self.share_permille {
            _ if self.probing => "probing",
            0 => "out",
            1000.. => "in",
            _ => "part",
        }
    }
}

fn breaker_status(breaker: &BreakerView) -> Value {
    let mut shown = json!({
        "state": breaker.name,
        "transitions": breaker.transitions,
        "error_percent": breaker.error_percent,
        "reason": &*breaker.reason,
    });
    if let Some(usual) = &breaker.usual {
        shown["usual"] = json!({
            "error_percent": rounded(usual.error_percent),
            "head_p99_ms": usual.head_p99_ms.map(rounded),
        });
    }
    shown
}

fn event_status(event: &EventView) -> Value {
    json!({
        "number": event.number,
        "at": time_text(event.at_s),
        "upstream": &*event.upstream,
        "tier": event.tier,
        "subject": &*event.subject,
        "from": event.from,
        "to": event.to,
        "reason": &*event.reason,
    })
}

fn percent(permille: u16) -> Value {
    match permille % 10 {
        0 => (permille / 10).into(),
        _ => (f64::from(permille) / 10.0).into(),
    }
}
