//! `health`, `breaker` and `slow_start` of an upstream, compiled.

use std::collections::HashSet;

use crate::config::written::{Breaker, HealthKind, Tier, Upstream};
use crate::config::{Diagnostic, Diagnostics};
use crate::limits::*;
use crate::upstream::{BreakerPlan, Check, EndpointBreaker, HealthPlan, HttpCheck};

/// Keys fit the kind of check, a check ends before the next begins, and a zone tier has zones.
pub(super) fn check(upstream: &Upstream, found: &mut Diagnostics) {
    if let Some(health) = &upstream.health {
        let http = [
            ("path", health.path.as_ref().map(|it| it.span())),
            ("statuses", health.statuses.as_ref().map(|it| it.span())),
            ("body", health.body.as_ref().map(|it| it.span())),
        ];
        let host = ("host", health.host.as_ref().map(|it| it.span()));
        let service = ("service", health.service.as_ref().map(|it| it.span()));
        let (wrong, kind) = match health.kind {
            HealthKind::Http => (vec![service], "http"),
            HealthKind::Tcp => (http.into_iter().chain([host, service]).collect(), "tcp"),
            HealthKind::Grpc => (http.into_iter().collect(), "grpc"),
        };
        for (key, span) in wrong {
            if let Some(span) = span {
                let message = format!("a check of kind \"{kind}\" has no `{key}`");
                let error = Diagnostic::error(span, message).label("means nothing here");
                found.push(error.remedy("leave it out, or give another `kind`"));
            }
        }
        let interval_ms = health.interval_ms.unwrap_or(HEALTH_INTERVAL_MS);
        if let Some(timeout) = health.timeout_ms.as_ref().filter(|it| it.value > interval_ms) {
            let message = "`timeout` of a check is longer than its `interval`";
            let label = format!("longer than {interval_ms} ms");
            let error = Diagnostic::error(timeout.span(), message).label(label);
            found.push(error.remedy("lower `timeout` or raise `interval`"));
        }
    }
    let breaker = upstream.breaker.as_ref();
    let open_ms = breaker.and_then(|breaker| breaker.open_ms).unwrap_or(BREAKER_OPEN_MS);
    let open_max = breaker.and_then(|breaker| breaker.open_max_ms.as_ref());
    if let Some(open_max) = open_max.filter(|it| it.value < open_ms) {
        let message = "`open_max` of a breaker is shorter than its `open`";
        let label = format!("shorter than {open_ms} ms");
        let error = Diagnostic::error(open_max.span(), message).label(label);
        found.push(error.remedy("raise `open_max` or lower `open`"));
    }
    let zone = breaker.and_then(|breaker| breaker.zone.as_ref());
    // Zones of endpoints that are yet to be found are not known.
    if let Some(zone) = zone.filter(|zone| !zone.value.off && upstream.discover.is_none()) {
        let endpoints = upstream.endpoints.value.iter();
        let zones: HashSet<_> = endpoints.map(|it| it.zone.as_deref()).collect();
        if !(2..=ZONES_MAX).contains(&zones.len()) {
            let message =
                format!("the endpoints of `{}` are not in several zones", upstream.name.value);
            let label = format!("zones: {}", zones.len());
            let remedy = format!("give the endpoints a `zone`, 2 to {ZONES_MAX} different ones");
            found.push(Diagnostic::error(zone.span(), message).label(label).remedy(remedy));
        }
    }
}

/// Everything has been checked: this cannot fail.
pub(super) fn health(upstream: &Upstream) -> Option<HealthPlan> {
    let written = upstream.health.as_ref()?;
    let interval_ms = written.interval_ms.unwrap_or(HEALTH_INTERVAL_MS);
    let text = |it: &Option<crate::config::tree::Spanned<Box<str>>>| {
        it.as_ref().map(|it| it.value.clone())
    };
    let host = text(&written.host);
    let count =
        |given: Option<usize>, usual| given.and_then(|it| u32::try_from(it).ok()).unwrap_or(usual);
    Some(HealthPlan {
        check: match written.kind {
            HealthKind::Tcp => Check::Tcp,
            HealthKind::Grpc => {
                Check::Grpc { service: text(&written.service).unwrap_or_default(), host }
            }
            HealthKind::Http => Check::Http(HttpCheck {
                path: text(&written.path).unwrap_or_else(|| "/".into()),
                host,
                statuses: match &written.statuses {
                    Some(statuses) => statuses.value.clone(),
                    None => vec![200..=399],
                },
                body: text(&written.body),
            }),
        },
        interval_ms,
        timeout_ms: match &written.timeout_ms {
            Some(timeout) => timeout.value,
            None => HEALTH_TIMEOUT_MS.min(interval_ms),
        },
        rise: count(written.rise, HEALTH_RISE),
        fall: count(written.fall, HEALTH_FALL),
    })
}

/// What holds where nothing is said: an upstream with several endpoints isolates those that fail.
pub(super) fn breaker(upstream: &Upstream) -> BreakerPlan {
    let usual = BreakerPlan::off();
    let unwritten = Breaker::default();
    let written = upstream.breaker.as_ref().unwrap_or(&unwritten);
    let number = |given: Option<usize>, usual: u64| given.map_or(usual, |it| it as u64);
    let tier = |tier: Option<Tier>, usual| match tier.filter(|tier| !tier.off) {
        Some(tier) => number(tier.error_percent, usual),
        None => 0,
    };
    let floor_percent = number(written.floor_percent, BREAKER_FLOOR_PERCENT);
    // How many are found changes; the floor keeps the only one in.
    let weighted = match upstream.discover {
        Some(_) => usize::MAX,
        None => upstream.endpoints.value.iter().filter(|it| it.weight != Some(0)).count(),
    };
    let open_ms = written.open_ms.unwrap_or(usual.open_ms);
    let trickle_percent = written.trickle_percent.and_then(|it| u16::try_from(it).ok());
    BreakerPlan {
        window_ms: written.window_ms.unwrap_or(usual.window_ms),
        requests_min: number(written.requests_min, usual.requests_min),
        open_ms,
        open_max_ms: match &written.open_max_ms {
            Some(open_max) => open_max.value,
            None => open_ms * BREAKER_OPEN_FACTOR_MAX,
        },
        probes: number(written.probes, usual.probes),
        trickle_permille: 10 * trickle_percent.unwrap_or(BREAKER_TRICKLE_PERCENT),
        trickle_ms: written.trickle_ms.unwrap_or(usual.trickle_ms),
        floor_percent,
        adaptive: written.adaptive,
        // The only one is never isolated while there is a floor.
        endpoint: match written.endpoint {
            _ if weighted < 2 && floor_percent > 0 => EndpointBreaker::OFF,
            None if weighted < 2 => EndpointBreaker::OFF,
            None => EndpointBreaker::USUAL,
            Some(tier) if tier.off => EndpointBreaker::OFF,
            Some(tier) => EndpointBreaker {
                consecutive: (tier.consecutive.and_then(|it| u32::try_from(it).ok()))
                    .unwrap_or(BREAKER_CONSECUTIVE),
                error_percent: number(tier.error_percent, BREAKER_ENDPOINT_PERCENT),
            },
        },
        service_error_percent: tier(written.service, BREAKER_SERVICE_PERCENT),
        zone_error_percent: tier(written.zone.as_ref().map(|it| it.value), BREAKER_ZONE_PERCENT),
    }
}
