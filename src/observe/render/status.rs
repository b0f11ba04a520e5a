//! The JSON of `/v1/status` and `/v1/ready`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{LastReload, Phase, ProcessView, ReloadResult, UpstreamBounds, WorkerView, time_text};
use crate::error::ErrorKind;
use crate::limits::{STATUS_EVENTS_MAX, STATUS_ROUTES_MAX, STATUS_SERIES_MAX};
use crate::observe::WorkerCounters;
use crate::observe::series::blocks::CLASSES;
use crate::observe::series::view::{
    AnswersView, DECISIONS, Entry, FilterView, ListenerView, RouteView, SeriesView, VERDICTS, total,
};

impl ProcessView {
    /// The answer of `/v1/status`.
    pub fn status(&self) -> Value {
        let sum = |of: fn(&WorkerCounters) -> u64| -> u64 {
            self.workers.iter().map(|worker| of(&worker.counters)).sum()
        };
        let errors: Map<String, Value> = (ErrorKind::ALL.iter().zip(self.errors()))
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| (kind.code().to_owned(), count.into()))
            .collect();
        let reloads: Map<String, Value> = (ReloadResult::ALL.iter().zip(self.reloads))
            .map(|(result, count)| (result.name().to_owned(), count.into()))
            .collect();
        let listeners: Vec<_> = (self.listeners.iter())
            .map(|(name, address)| self.listener_status(name, address))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": self.pid,
            "state": self.phase.name(),
            "uptime_s": rounded(self.uptime_s),
            "config": {
                "version": self.config_version,
                "source": self.config_source,
                "applied_at": time_text(self.config_applied_at_s),
                "last_reload": self.last_reload.as_ref().map(last_reload),
                "last_reload_success": self.last_reload_success,
                "reloads": reloads,
            },
            "admin": self.admin,
            "listeners": listeners,
            "certificates": self.certificates_status(),
            "discovery": self.discovery_status(),
            "workers": self.workers.iter().enumerate().map(worker_status).collect::<Vec<_>>(),
            "connections": sum(|counters| counters.connections.get()),
            "connections_accepted": sum(|counters| counters.accepted.get()),
            "connections_refused": sum(|counters| counters.refused_at_cap.get()),
            "in_flight": sum(|counters| counters.in_flight.get()),
            "tunnels": sum(|counters| counters.tunnels.get()),
            "requests": by_class(&self.answers()),
            "errors": errors,
            "routes": routes(&self.series.routes),
            "routes_hit": self.series.routes.len(),
            "upstreams": self.upstreams_status(),
            "events": self.standings.last_events(STATUS_EVENTS_MAX),
            "filters": filters(&self.series.filters),
            "series": { "made": self.series.made, "dropped": self.series.dropped },
            "access_log": {
                "records": self.access_log_records,
                "dropped": self.access_log_dropped,
                "waiting": self.access_log_waiting,
            },
            "pool": {
                "hits": sum(|counters| counters.pool_hits.get()),
                "misses": sum(|counters| counters.pool_misses.get()),
                "stale": sum(|counters| counters.pool_stale.get()),
                "idle": sum(|counters| counters.pool_idle.get()),
                "connections": sum(|counters| counters.upstream_connections.get()),
            },
            "retries": sum(|counters| counters.retries.get()),
            "client_aborts": sum(|counters| counters.client_aborts.get()),
            "panics": sum(|counters| counters.panics.get()),
            "resident_bytes": self.resident_bytes,
            "open_descriptors": self.open_descriptors,
        })
    }

    fn upstreams_status(&self) -> Vec<Value> {
        let mut all = upstreams(&self.series, &self.bounds);
        all.iter_mut().for_each(|upstream| self.standings.add_status(upstream));
        all
    }

    fn listener_status(&self, name: &str, address: &str) -> Value {
        let numbers = self.series.listeners.iter().find(|it| &*it.name == name);
        let of = |what: fn(&ListenerView) -> u64| numbers.map(|it| what(&it.numbers));
        json!({
            "name": name,
            "address": address,
            "connections": of(|it| it.open),
            "connections_accepted": of(|it| it.accepted),
        })
    }

    /// The certificates, those that end first at the beginning.
    fn certificates_status(&self) -> Vec<Value> {
        let mut all: Vec<_> = self.certificates.iter().collect();
        all.sort_by_key(|it| it.not_after_s);
        let now_s = self.started_at_s + self.uptime_s;
        let shown = all.into_iter().take(STATUS_SERIES_MAX).map(|it| {
            let not_after = it.not_after_s as f64;
            let days_left = ((not_after - now_s) / 86_400.0).floor() as i64;
            json!({
                "listener": it.listener,
                "cert": it.path,
                "subject": it.subject,
                "hosts": it.hosts,
                "not_after": time_text(not_after),
                "days_left": days_left,
            })
        });
        shown.collect()
    }

    /// Upstreams that discover their endpoints: where, how many, and how long ago.
    fn discovery_status(&self) -> Vec<Value> {
        let now_s = self.started_at_s + self.uptime_s;
        let shown = self.discovery.iter().take(STATUS_SERIES_MAX).map(|it| {
            json!({
                "upstream": it.upstream,
                "source": it.source,
                "endpoints": it.endpoints,
                "age_s": it.success_at_s.map(|at_s| rounded((now_s - at_s).max(0.0))),
                "failures": it.failures,
                "error": it.error,
            })
        });
        shown.collect()
    }

    /// The answer of `/v1/ready`; 503 unless it says true.
    pub fn ready(&self) -> Value {
        match self.phase {
            Phase::Ready => json!({ "ready": true }),
            phase => json!({ "ready": false, "reasons": [phase.name()] }),
        }
    }
}

fn last_reload(last: &LastReload) -> Value {
    let (result, at) = (last.result.name(), time_text(last.at_s));
    json!({ "result": result, "at": at, "message": last.message })
}

fn worker_status((index, worker): (usize, &WorkerView)) -> Value {
    json!({
        "worker": index,
        "cpu": worker.cpu,
        "driver": worker.driver,
        "driver_flags": worker.flags,
        "driver_reason": worker.reason,
        "config_version": worker.counters.snapshot_version.get(),
        "connections": worker.counters.connections.get(),
        "connections_max": worker.connections_max,
        "connections_accepted": worker.counters.accepted.get(),
        "in_flight": worker.counters.in_flight.get(),
    })
}

/// The busiest routes, busiest first.
fn routes(routes: &[Entry<RouteView>]) -> Vec<Value> {
    let mut busy: Vec<_> = routes.iter().map(|it| (total(&it.numbers.answers), it)).collect();
    busy.retain(|(count, _)| *count > 0);
    busy.sort_by_key(|(count, _)| Reverse(*count));
    let shown = busy.iter().take(STATUS_ROUTES_MAX);
    let shown = shown.map(|(count, route)| {
        let numbers = &route.numbers;
        json!({
            "route": &*route.name,
            "requests": count,
            "requests_by_class": by_class(&numbers.answers),
            "duration_mean_ms": numbers.duration.mean_ms().map(rounded),
            "request_body_bytes": numbers.request_body_bytes,
            "response_body_bytes": numbers.response_body_bytes,
        })
    });
    shown.collect()
}

/// The upstreams with their endpoints, as configured.
fn upstreams(series: &SeriesView, bounds: &[UpstreamBounds]) -> Vec<Value> {
    let bounds: BTreeMap<&str, &UpstreamBounds> =
        bounds.iter().map(|it| (&*it.upstream, it)).collect();
    let mut endpoints: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for endpoint in series.endpoints.iter().take(STATUS_SERIES_MAX) {
        let numbers = &endpoint.numbers;
        let of = endpoints.entry(endpoint.upstream.as_deref().unwrap_or_default()).or_default();
        of.push(json!({
            "address": &*endpoint.name,
            "requests": total(&numbers.answers),
            "requests_by_class": by_class(&numbers.answers),
            "in_flight": numbers.in_flight,
            "connect_failures": numbers.connect_failures,
            "retries": numbers.retries,
        }));
    }
    let shown = series.upstreams.iter().take(STATUS_SERIES_MAX);
    let shown = shown.map(|upstream| {
        let numbers = &upstream.numbers;
        let bounds = bounds.get(&*upstream.name);
        json!({
            "name": &*upstream.name,
            "requests": total(&numbers.answers),
            "requests_by_class": by_class(&numbers.answers),
            "in_flight": numbers.in_flight,
            "in_flight_max": bounds.and_then(|it| it.in_flight_max),
            "concurrency_limit": bounds.filter(|it| it.follows).map(|_| numbers.limit),
            "queue_length": numbers.queue,
            "queue_length_max": bounds.and_then(|it| it.queue_length_max),
            "head_mean_ms": numbers.duration.mean_ms().map(rounded),
            "endpoints": endpoints.remove(&*upstream.name).unwrap_or_default(),
        })
    });
    shown.collect()
}

fn filters(filters: &[Entry<FilterView>]) -> Vec<Value> {
    let shown = filters.iter().take(STATUS_SERIES_MAX).map(|filter| {
        let numbers = VERDICTS.iter().zip(filter.numbers.verdicts);
        let numbers = numbers.chain(DECISIONS.iter().zip(filter.numbers.decisions));
        let numbers = numbers.map(|(what, count)| ((*what).to_owned(), count.into()));
        let name = ("name".to_owned(), Value::from(&*filter.name));
        Value::Object([name].into_iter().chain(numbers).collect())
    });
    shown.collect()
}

fn by_class(answers: &AnswersView) -> Map<String, Value> {
    CLASSES.iter().zip(answers).map(|(class, n)| ((*class).to_owned(), (*n).into())).collect()
}

/// To a thousandth, so that nobody reads more into a number than it holds.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
