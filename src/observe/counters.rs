//! Counters with one writer.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ErrorKind;

/// A number that only grows; written by one thread, read by any.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only its owner may.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`. Only its owner may.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// What it has reached.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down; written by one thread, read by any.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one. Only its owner may.
    #[inline]
    pub fn increment(&self) {
        self.set(self.get() + 1);
    }

    /// Takes one away. Only its owner may.
    #[inline]
    pub fn decrement(&self) {
        let value = self.get();
        debug_assert!(value > 0, "a gauge never goes below zero");
        self.set(value.saturating_sub(1));
    }

    /// Sets it. Only its owner may.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it stands at.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one worker counts. Aligned so that no two workers share a cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Client connections taken.
    pub accepted: Counter,
    /// Client connections open now.
    pub connections: Gauge,
    /// Client connections closed at once because a cap was reached.
    pub refused_at_cap: Counter,
    /// Times that the descriptors ran out.
    pub descriptors_exhausted: Counter,
    /// Requests being served now.
    pub in_flight: Gauge,
    /// Answers by class: 1xx to 5xx; [`WorkerCounters::answered`] counts one.
    pub answers: [Counter; 5],
    /// Errors by kind, in the order of [`ErrorKind::ALL`].
    pub errors: [Counter; ErrorKind::ALL.len()],
    /// Upstream connections taken from the pool.
    pub pool_hits: Counter,
    /// Upstream connections made because the pool had none.
    pub pool_misses: Counter,
    /// Pooled connections that turned out to be closed.
    pub pool_stale: Counter,
    /// Upstream connections open now, those in the pool included.
    pub upstream_connections: Gauge,
    /// Idle upstream connections in the pool now.
    pub pool_idle: Gauge,
    /// Those of them that speak HTTP/2.
    pub upstream_http2_connections: Gauge,
    /// Streams on them that carry a request now.
    pub upstream_http2_streams: Gauge,
    /// Those on which the origin announced its end.
    pub upstream_http2_goaways: Counter,
    /// Streams on them that the origin reset or refused.
    pub upstream_http2_resets: Counter,
    /// Requests sent a second time.
    pub retries: Counter,
    /// Tunnels open now.
    pub tunnels: Gauge,
    /// Body bytes from clients, in bytes.
    pub request_body_bytes: Counter,
    /// Body bytes to clients, in bytes.
    pub response_body_bytes: Counter,
    /// Panics caught.
    pub panics: Counter,
    /// Version of the snapshot in force.
    pub snapshot_version: Gauge,
    /// Exchanges given up because the client had gone away.
    pub client_aborts: Counter,
    /// Client connections of HTTP/2 taken.
    pub http2_connections_opened: Counter,
    /// Client connections of HTTP/2 open now.
    pub http2_connections: Gauge,
    /// Streams of clients taken.
    pub http2_streams: Counter,
    /// Streams of clients being served now.
    pub http2_streams_open: Gauge,
    /// Streams that their client reset.
    pub http2_resets_received: Counter,
    /// Streams of clients that Ringway reset.
    pub http2_resets_sent: Counter,
    /// GOAWAYs to clients by reason, in the order of [`GOAWAY_REASONS`].
    pub http2_goaways: [Counter; GOAWAY_REASONS.len()],
    /// Connections ended because of too many frames of a kind, in the order of [`FLOOD_KINDS`].
    pub http2_floods: [Counter; FLOOD_KINDS.len()],
}

/// Error codes by their number (RFC 9113 section 7).
pub const GOAWAY_REASONS: [&str; 14] = [
    "no_error",
    "protocol_error",
    "internal_error",
    "flow_control_error",
    "settings_timeout",
    "stream_closed",
    "frame_size_error",
    "refused_stream",
    "cancel",
    "compression_error",
    "connect_error",
    "enhance_your_calm",
    "inadequate_security",
    "http_1_1_required",
];

/// Kinds of frames in the order of `http2::meter::Flood`.
pub const FLOOD_KINDS: [&str; 8] = [
    "settings",
    "ping",
    "priority",
    "rst_stream",
    "window_update",
    "empty_data",
    "continuation",
    "unknown",
];

impl Default for WorkerCounters {
    fn default() -> WorkerCounters {
        WorkerCounters {
            accepted: Counter::default(),
            connections: Gauge::default(),
            refused_at_cap: Counter::default(),
            descriptors_exhausted: Counter::default(),
            in_flight: Gauge::default(),
            answers: Default::default(),
            errors: std::array::from_fn(|_| Counter::default()),
            pool_hits: Counter::default(),
            pool_misses: Counter::default(),
            pool_stale: Counter::default(),
            upstream_connections: Gauge::default(),
            pool_idle: Gauge::default(),
            upstream_http2_connections: Gauge::default(),
            upstream_http2_streams: Gauge::default(),
            upstream_http2_goaways: Counter::default(),
            upstream_http2_resets: Counter::default(),
            retries: Counter::default(),
            tunnels: Gauge::default(),
            request_body_bytes: Counter::default(),
            response_body_bytes: Counter::default(),
            panics: Counter::default(),
            snapshot_version: Gauge::default(),
            client_aborts: Counter::default(),
            http2_connections_opened: Counter::default(),
            http2_connections: Gauge::default(),
            http2_streams: Counter::default(),
            http2_streams_open: Gauge::default(),
            http2_resets_received: Counter::default(),
            http2_resets_sent: Counter::default(),
            http2_goaways: Default::default(),
            http2_floods: Default::default(),
        }
    }
}

impl WorkerCounters {
    /// Counts an answer with this status.
    #[inline]
    pub fn answered(&self, status: u16) {
        if let Some(class) = self.answers.get(usize::from(status / 100).wrapping_sub(1)) {
            class.increment();
        }
    }

    /// Counts an error.
    pub fn failed(&self, kind: ErrorKind) {
        self.errors[kind as usize].increment();
    }
}
