//! What is shown of a process: Prometheus text and the JSON of `status`.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::WorkerCounters;
use crate::error::ErrorKind;

/// Everything that the admin API shows, as it stood when somebody asked.
#[derive(Clone, Debug, Default)]
pub struct ProcessView {
    /// Starting, ready or draining.
    pub phase: Phase,
    /// Process id.
    pub pid: u32,
    /// When the process started, in seconds since 1970.
    pub started_at_s: f64,
    /// Seconds since then.
    pub uptime_s: f64,
    /// Number of the configuration in force.
    pub config_version: u64,
    /// Where it was read from.
    pub config_source: String,
    /// When it took force, in seconds since 1970.
    pub config_applied_at_s: f64,
    /// Compiled configurations that somebody still holds, the one in force included.
    pub snapshots_alive: u64,
    /// Whether the last change of it was taken; the start counts.
    pub last_reload_success: bool,
    /// Changes by [`ReloadResult`].
    pub reloads: [u64; ReloadResult::ALL.len()],
    /// Where the admin API listens.
    pub admin: String,
    /// Name and address of each listener.
    pub listeners: Vec<(String, String)>,
    /// In the order of their index.
    pub workers: Vec<WorkerView>,
    /// Log lines that were dropped because the log thread fell behind.
    pub log_lines_dropped: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// User and system time in seconds.
    pub cpu_s: f64,
    /// Open descriptors.
    pub open_descriptors: u64,
    /// Descriptors that the process may open.
    pub descriptors_max: u64,
}

/// What the process is doing as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not every worker accepts connections yet.
    #[default]
    Starting,
    /// All do.
    Ready,
    /// It is being stopped.
    Draining,
}

impl Phase {
    /// As `status` and the reasons of `ready` name it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
        }
    }
}

/// How an attempt to change the configuration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadResult {
    /// It is in force on every worker.
    Applied,
    /// It has errors.
    Rejected,
    /// It changes what only a restart can.
    NeedsRestart,
    /// Not every worker acknowledged in time.
    Unacknowledged,
}

impl ReloadResult {
    /// Every result, in the order of [`ProcessView::reloads`].
    pub const ALL: [ReloadResult; 4] = [
        ReloadResult::Applied,
        ReloadResult::Rejected,
        ReloadResult::NeedsRestart,
        ReloadResult::Unacknowledged,
    ];

    /// Value of the label `result`.
    pub fn name(self) -> &'static str {
        match self {
            ReloadResult::Applied => "applied",
            ReloadResult::Rejected => "rejected",
            ReloadResult::NeedsRestart => "needs_restart",
            ReloadResult::Unacknowledged => "unacknowledged",
        }
    }
}

/// One worker.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// `io_uring` or `epoll`; empty until it has started.
    pub driver: String,
    /// Flags of its ring.
    pub flags: String,
    /// Why this driver was taken.
    pub reason: String,
    /// The processor that it is pinned to.
    pub cpu: Option<usize>,
    /// Client connections that it may hold.
    pub connections_max: usize,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
}

/// A metric of the workers.
struct Row {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&WorkerCounters) -> u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    /// Shown worker by worker, because a sum would hide what it is for.
    GaugeByWorker,
}

macro_rules! table {
    ($($field:ident $name:literal $kind:ident $help:literal;)*) => {
        const ROWS: &[Row] = &[$(Row {
            name: concat!("ringway_", $name),
            kind: Kind::$kind,
            help: $help,
            value: |counters| counters.$field.get(),
        },)*];

        // A counter without a row does not compile. `answers` and `errors` have families of their
        // own: ringway_requests_total and ringway_errors_total.
        const _: fn(&WorkerCounters) = |counters| {
            let WorkerCounters { answers: _, errors: _, $($field: _,)* } = counters;
        };
    };
}

// Field of WorkerCounters, name of the metric, kind, help.
table! {
    accepted "connections_accepted_total" Counter "Client connections taken.";
    connections "connections" GaugeByWorker "Client connections open.";
    refused_at_cap "connections_refused_total" Counter "Client connections closed at a cap.";
    descriptors_exhausted "descriptors_exhausted_total" Counter "Times that descriptors ran out.";
    in_flight "requests_in_flight" GaugeByWorker "Requests being served.";
    pool_hits "pool_hits_total" Counter "Upstream connections taken from the pool.";
    pool_misses "pool_misses_total" Counter "Upstream connections made: the pool had none.";
    pool_stale "pool_stale_total" Counter "Pooled connections that turned out to be closed.";
    pool_idle "pool_idle_connections" Gauge "Idle upstream connections in the pools.";
    upstream_connections "upstream_connections" Gauge "Upstream connections open, pools included.";
    retries "retries_total" Counter "Requests sent a second time.";
    tunnels "tunnels" Gauge "Tunnels open.";
    request_body_bytes "request_body_bytes_total" Counter "Body bytes from clients.";
    response_body_bytes "response_body_bytes_total" Counter "Body bytes to clients.";
    panics "panics_total" Counter "Panics caught.";
    client_aborts "client_aborts_total" Counter "Exchanges whose client had gone away.";
    snapshot_version "worker_config_version" GaugeByWorker "Configuration in force on a worker.";
}

impl ProcessView {
    /// The text format of Prometheus, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut text = Exposition::default();
        self.write_process(&mut text);
        self.write_config(&mut text);
        self.write_workers(&mut text);
        text.0
    }

    fn write_process(&self, text: &mut Exposition) {
        text.family("ringway_build_info", "gauge", "The running build.");
        text.sample("ringway_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        text.family("ringway_ready", "gauge", "Whether /v1/ready says yes.");
        text.sample("ringway_ready", &[], u64::from(self.phase == Phase::Ready));
        text.family("ringway_workers", "gauge", "Workers.");
        text.sample("ringway_workers", &[], self.workers.len());
        text.family("ringway_log_dropped_total", "counter", "Log lines dropped.");
        text.sample("ringway_log_dropped_total", &[], self.log_lines_dropped);
        text.family("process_resident_memory_bytes", "gauge", "Resident memory.");
        text.sample("process_resident_memory_bytes", &[], self.resident_bytes);
        text.family("process_cpu_seconds_total", "counter", "User and system time.");
        text.sample("process_cpu_seconds_total", &[], self.cpu_s);
        text.family("process_open_fds", "gauge", "Open descriptors.");
        text.sample("process_open_fds", &[], self.open_descriptors);
        text.family("process_max_fds", "gauge", "Descriptors that may be opened.");
        text.sample("process_max_fds", &[], self.descriptors_max);
        text.family("process_start_time_seconds", "gauge", "When the process started.");
        text.sample("process_start_time_seconds", &[], self.started_at_s);
    }

    fn write_config(&self, text: &mut Exposition) {
        text.family("ringway_config_version", "gauge", "Configuration in force.");
        text.sample("ringway_config_version", &[], self.config_version);
        let applied = "ringway_config_applied_timestamp_seconds";
        text.family(applied, "gauge", "When it took force.");
        text.sample(applied, &[], self.config_applied_at_s);
        let success = "ringway_config_last_reload_success";
        text.family(success, "gauge", "Whether the last change was taken.");
        text.sample(success, &[], u64::from(self.last_reload_success));
        let alive = "ringway_config_snapshots_alive";
        text.family(alive, "gauge", "Compiled configurations still held.");
        text.sample(alive, &[], self.snapshots_alive);
        text.family("ringway_config_reloads_total", "counter", "Changes by result.");
        for (result, count) in ReloadResult::ALL.iter().zip(self.reloads) {
            text.sample("ringway_config_reloads_total", &[("result", result.name())], count);
        }
    }

    fn write_workers(&self, text: &mut Exposition) {
        text.family("ringway_driver_info", "gauge", "The driver of each worker, and why.");
        for (index, worker) in self.workers.iter().enumerate() {
            let index = index.to_string();
            let labels = [
                ("worker", &*index),
                ("driver", &*worker.driver),
                ("flags", &*worker.flags),
                ("reason", &*worker.reason),
            ];
            text.sample("ringway_driver_info", &labels, 1);
        }
        text.family("ringway_requests_total", "counter", "Answers by class.");
        for (class, count) in CLASSES.iter().zip(self.answers()) {
            text.sample("ringway_requests_total", &[("code_class", class)], count);
        }
        text.family("ringway_errors_total", "counter", "Errors by code, see docs/errors.md.");
        for (kind, count) in ErrorKind::ALL.iter().zip(self.errors()) {
            text.sample("ringway_errors_total", &[("code", kind.code())], count);
        }
        for row in ROWS {
            let kind = if row.kind == Kind::Counter { "counter" } else { "gauge" };
            text.family(row.name, kind, row.help);
            let values = self.workers.iter().map(|worker| (row.value)(&worker.counters));
            if row.kind == Kind::GaugeByWorker {
                for (index, value) in values.enumerate() {
                    text.sample(row.name, &[("worker", &index.to_string())], value);
                }
            } else {
                text.sample(row.name, &[], values.sum::<u64>());
            }
        }
    }

    /// The answer of `/v1/status`.
    pub fn status(&self) -> Value {
        let sum = |of: fn(&WorkerCounters) -> u64| -> u64 {
            self.workers.iter().map(|worker| of(&worker.counters)).sum()
        };
        let requests: Map<String, Value> = CLASSES
            .iter()
            .zip(self.answers())
            .map(|(class, n)| ((*class).to_owned(), n.into()))
            .collect();
        let errors: Map<String, Value> = (ErrorKind::ALL.iter().zip(self.errors()))
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| (kind.code().to_owned(), count.into()))
            .collect();
        let reloads: Map<String, Value> = (ReloadResult::ALL.iter().zip(self.reloads))
            .map(|(result, count)| (result.name().to_owned(), count.into()))
            .collect();
        let listeners: Vec<_> = (self.listeners.iter())
            .map(|(name, address)| json!({ "name": name, "address": address }))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": self.pid,
            "state": self.phase.name(),
            "uptime_s": (self.uptime_s * 1000.0).round() / 1000.0,
            "config": {
                "version": self.config_version,
                "source": self.config_source,
                "last_reload_success": self.last_reload_success,
                "reloads": reloads,
            },
            "admin": self.admin,
            "listeners": listeners,
            "workers": self.workers.iter().enumerate().map(worker_status).collect::<Vec<_>>(),
            "connections": sum(|counters| counters.connections.get()),
            "connections_accepted": sum(|counters| counters.accepted.get()),
            "connections_refused": sum(|counters| counters.refused_at_cap.get()),
            "in_flight": sum(|counters| counters.in_flight.get()),
            "tunnels": sum(|counters| counters.tunnels.get()),
            "requests": requests,
            "errors": errors,
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

    /// The answer of `/v1/ready`; 503 unless it says true.
    pub fn ready(&self) -> Value {
        match self.phase {
            Phase::Ready => json!({ "ready": true }),
            phase => json!({ "ready": false, "reasons": [phase.name()] }),
        }
    }

    fn answers(&self) -> [u64; CLASSES.len()] {
        std::array::from_fn(|class| {
            self.workers.iter().map(|worker| worker.counters.answers[class].get()).sum()
        })
    }

    fn errors(&self) -> impl Iterator<Item = u64> {
        (0..ErrorKind::ALL.len())
            .map(|kind| self.workers.iter().map(|worker| worker.counters.errors[kind].get()).sum())
    }
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

/// The text being written.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{}\"", escape(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> ProcessView {
        let worker = || WorkerView {
            driver: "epoll".into(),
            flags: String::new(),
            reason: "said \"no\"\nand\\so".into(),
            cpu: None,
            connections_max: 10,
            counters: Arc::new(WorkerCounters::default()),
        };
        ProcessView { phase: Phase::Ready, workers: vec![worker(), worker()], ..Default::default() }
    }

    #[test]
    fn counters_are_summed_and_gauges_of_workers_kept_apart() {
        let view = view();
        for worker in &view.workers {
            worker.counters.answered(204);
            worker.counters.failed(ErrorKind::RouteMissing);
            worker.counters.accepted.add(3);
        }
        view.workers[1].counters.connections.increment();
        let text = view.prometheus();
        for line in [
            "ringway_requests_total{code_class=\"2xx\"} 2",
            "ringway_errors_total{code=\"route_missing\"} 2",
            "ringway_connections_accepted_total 6",
            "ringway_connections{worker=\"0\"} 0",
            "ringway_connections{worker=\"1\"} 1",
            "ringway_ready 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample_and_every_family_is_announced_once() {
        let text = view().prometheus();
        let mut families = std::collections::HashSet::new();
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let name = family.split(' ').next().expect("a name");
                assert!(families.insert(name.to_owned()), "{name} twice");
            } else if !line.starts_with("# HELP ") {
                let name = line.split(['{', ' ']).next().expect("a name");
                assert!(families.contains(name), "{name} is not announced");
                let value = line.rsplit(' ').next().expect("a value");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(text.contains(r#"reason="said \"no\"\nand\\so""#));
    }

    #[test]
    fn status_shows_only_errors_that_happened() {
        let view = view();
        view.workers[0].counters.failed(ErrorKind::ConnectRefused);
        let status = view.status();
        assert_eq!(status["errors"], json!({ "connect_refused": 1 }));
        assert_eq!(status["workers"][1]["driver"], "epoll");
        assert_eq!(status["requests"]["2xx"], 0);
        assert_eq!(view.ready(), json!({ "ready": true }));
        let draining = ProcessView { phase: Phase::Draining, ..Default::default() };
        assert_eq!(draining.ready(), json!({ "ready": false, "reasons": ["draining"] }));
    }
}
