//! The text that Prometheus reads.

use super::exposition::Exposition;
use super::{Phase, ProcessView, ReloadResult, series};
use crate::error::ErrorKind;
use crate::observe::WorkerCounters;
use crate::observe::counters::{FLOOD_KINDS, GOAWAY_REASONS};
use crate::observe::series::blocks::CLASSES;

impl ProcessView {
    /// The text format of Prometheus, version 0.0.4.
    pub fn prometheus(&self) -> String {
        // Most of a large scrape are the histograms of routes: about 1,500 bytes each.
        let mut text = Exposition::with_capacity(16 * 1024 + 1536 * self.series.routes.len());
        self.write_process(&mut text);
        self.write_config(&mut text);
        self.write_certificates(&mut text);
        self.write_discovery(&mut text);
        self.write_workers(&mut text);
        series::write(&self.series, &mut text);
        self.standings.write(&mut text);
        text.into_text()
    }

    fn write_process(&self, text: &mut Exposition) {
        text.family("ringway_build_info", "gauge", "The running build.");
        text.sample("ringway_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        text.family("ringway_ready", "gauge", "Whether /v1/ready says yes.");
        text.sample("ringway_ready", &[], u64::from(self.phase == Phase::Ready));
        text.family("ringway_workers", "gauge", "Workers.");
        text.sample("ringway_workers", &[], self.workers.len());
        self.write_logs(text);
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
        let success = "ringway_config_last_reload_success";
        text.family(success, "gauge", "Whether the last change was taken.");
        text.sample(success, &[], u64::from(self.last_reload_success));
        let applied = "ringway_config_last_reload_success_timestamp_seconds";
        text.family(applied, "gauge", "When the configuration in force took force.");
        text.sample(applied, &[], self.config_applied_at_s);
        let alive = "ringway_config_snapshots_alive";
        text.family(alive, "gauge", "Compiled configurations still held.");
        text.sample(alive, &[], self.snapshots_alive);
        text.family("ringway_config_reloads_total", "counter", "Changes by result.");
        for (result, count) in ReloadResult::ALL.iter().zip(self.reloads) {
            text.sample("ringway_config_reloads_total", &[("result", result.name())], count);
        }
    }

    fn write_certificates(&self, text: &mut Exposition) {
        let name = "ringway_tls_cert_not_after";
        text.family(name, "gauge", "Until when a certificate is valid, in seconds since 1970.");
        for it in &self.certificates {
            let labels = [("listener", &*it.listener), ("cert", &*it.path)];
            text.sample(name, &labels, it.not_after_s);
        }
    }

    fn write_discovery(&self, text: &mut Exposition) {
        let endpoints = "ringway_discovery_endpoints";
        text.family(endpoints, "gauge", "Endpoints that an upstream has discovered.");
        for it in &self.discovery {
            text.sample(endpoints, &[("upstream", &*it.upstream)], it.endpoints);
        }
        let failures = "ringway_discovery_failures_total";
        text.family(failures, "counter", "Looks for endpoints that failed or found none.");
        for it in &self.discovery {
            text.sample(failures, &[("upstream", &*it.upstream)], it.failures);
        }
        let success = "ringway_discovery_last_success_timestamp_seconds";
        text.family(success, "gauge", "When a look for endpoints last succeeded.");
        for it in &self.discovery {
            if let Some(at_s) = it.success_at_s {
                text.sample(success, &[("upstream", &*it.upstream)], at_s);
            }
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
        self.write_worker_requests(text);
        text.family("ringway_errors_total", "counter", "Errors by code, see docs/errors.md.");
        for (kind, count) in ErrorKind::ALL.iter().zip(self.errors()) {
            text.sample("ringway_errors_total", &[("code", kind.code())], count);
        }
        self.write_http2(text);
        for row in ROWS {
            let kind = match row.kind {
                Kind::Counter | Kind::CounterByWorker => "counter",
                Kind::Gauge | Kind::GaugeByWorker => "gauge",
            };
            text.family(row.name, kind, row.help);
            let values = self.workers.iter().map(|worker| (row.value)(&worker.counters));
            if matches!(row.kind, Kind::GaugeByWorker | Kind::CounterByWorker) {
                for (index, value) in values.enumerate() {
                    text.sample(row.name, &[("worker", &index.to_string())], value);
                }
            } else {
                text.sample(row.name, &[], values.sum::<u64>());
            }
        }
    }

    fn write_http2(&self, text: &mut Exposition) {
        let goaways = "ringway_http2_goaways_total";
        text.family(goaways, "counter", "GOAWAYs sent to clients by reason.");
        for (index, reason) in GOAWAY_REASONS.iter().enumerate() {
            let counts = self.workers.iter().map(|w| w.counters.http2_goaways[index].get());
            text.sample(goaways, &[("reason", reason)], counts.sum::<u64>());
        }
        let floods = "ringway_http2_floods_total";
        text.family(floods, "counter", "Connections ended for too many frames of a kind.");
        for (index, kind) in FLOOD_KINDS.iter().enumerate() {
            let counts = self.workers.iter().map(|w| w.counters.http2_floods[index].get());
            text.sample(floods, &[("kind", kind)], counts.sum::<u64>());
        }
    }

    fn write_worker_requests(&self, text: &mut Exposition) {
        let name = "ringway_worker_requests_total";
        text.family(name, "counter", "Answers by worker and class.");
        for (index, worker) in self.workers.iter().enumerate() {
            let index = index.to_string();
            for (class, count) in CLASSES.iter().zip(&worker.counters.answers) {
                text.sample(name, &[("worker", &index), ("code_class", class)], count.get());
            }
        }
    }

    fn write_logs(&self, text: &mut Exposition) {
        text.family("ringway_log_dropped_total", "counter", "Log lines dropped.");
        text.sample("ringway_log_dropped_total", &[], self.log_lines_dropped);
        let (records, dropped) =
            ("ringway_access_log_records_total", "ringway_access_log_dropped_total");
        text.family(records, "counter", "Records that the access log took.");
        text.sample(records, &[], self.access_log_records);
        text.family(dropped, "counter", "Records that the access log dropped.");
        text.sample(dropped, &[], self.access_log_dropped);
        let crowded = "ringway_ratelimit_shared_buckets_total";
        text.family(crowded, "counter", "Requests whose key shared a bucket: keys_max is too low.");
        for (policy, count) in &self.crowded {
            text.sample(crowded, &[("policy", policy)], count);
        }
        let waiting = "ringway_access_log_waiting_records";
        text.family(waiting, "gauge", "Access log records that wait to be written.");
        text.sample(waiting, &[], self.access_log_waiting);
    }
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
    /// The same; routes have the sum.
    CounterByWorker,
}

macro_rules! table {
    ($($field:ident $name:literal $kind:ident $help:literal;)*) => {
        const ROWS: &[Row] = &[$(Row {
            name: concat!("ringway_", $name),
            kind: Kind::$kind,
            help: $help,
            value: |counters| counters.$field.get(),
        },)*];

        // A counter without a row does not compile; those by class, code, reason or kind have
        // families of their own.
        const _: fn(&WorkerCounters) = |counters| {
            let WorkerCounters {
                answers: _,
                errors: _,
                http2_goaways: _,
                http2_floods: _,
                $($field: _,)*
            } = counters;
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
    upstream_handshakes "upstream_tls_handshakes_total" Counter "TLS handshakes with upstreams that succeeded.";
    upstream_handshakes_resumed "upstream_tls_resumed_total" Counter "How many of those resumed a session.";
    upstream_handshakes_failed "upstream_tls_failures_total" Counter "TLS handshakes with upstreams that failed.";
    upstream_http2_connections "upstream_http2_connections" Gauge "Upstream connections that speak HTTP/2.";
    upstream_http2_streams "upstream_http2_streams" Gauge "Requests on upstream connections that speak HTTP/2.";
    upstream_http2_goaways "upstream_http2_goaways_total" Counter "GOAWAYs of upstreams.";
    upstream_http2_resets "upstream_http2_resets_total" Counter "Streams that upstreams reset or refused.";
    retries "retries_total" Counter "Requests sent a second time.";
    tunnels "tunnels" Gauge "Tunnels open.";
    request_body_bytes "worker_request_body_bytes_total" CounterByWorker "Body bytes from clients.";
    response_body_bytes "worker_response_body_bytes_total" CounterByWorker "Body bytes to clients.";
    panics "panics_total" Counter "Panics caught.";
    client_aborts "client_aborts_total" Counter "Exchanges whose client had gone away.";
    http2_connections_opened "http2_connections_opened_total" Counter "Connections of clients that speak HTTP/2.";
    http2_connections "http2_connections" Gauge "The same, open now.";
    http2_streams "http2_streams_total" Counter "Streams of clients.";
    http2_streams_open "http2_streams" Gauge "Streams of clients being served.";
    http2_resets_received "http2_resets_received_total" Counter "Streams that their client reset.";
    http2_resets_sent "http2_resets_sent_total" Counter "Streams of clients that Ringway reset.";
    snapshot_version "worker_config_version" GaugeByWorker "Configuration in force on a worker.";
}
