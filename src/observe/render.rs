//! What is shown of a process: Prometheus text and the JSON of `status`.

mod exposition;
mod prometheus;
mod series;
mod standings;
mod status;

pub use standings::{
    BreakerView, EndpointStanding, EventView, StandingsView, UpstreamStanding, UsualView,
};

use std::sync::Arc;

use super::WorkerCounters;
use super::access_log::DateText;
use super::series::{Names, SeriesView};
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
    /// How the last attempt to change it ended; none before the first.
    pub last_reload: Option<LastReload>,
    /// Changes by [`ReloadResult`].
    pub reloads: [u64; ReloadResult::ALL.len()],
    /// Where the admin API listens.
    pub admin: String,
    /// Name and address of each listener.
    pub listeners: Vec<(String, String)>,
    /// The certificates of each listener.
    pub certificates: Vec<CertificateView>,
    /// The upstreams that discover their endpoints.
    pub discovery: Vec<DiscoveryView>,
    /// In the order of their index.
    pub workers: Vec<WorkerView>,
    /// The labels of the configuration in force.
    pub names: Arc<Names>,
    /// What is said of upstreams and their endpoints.
    pub standings: StandingsView,
    /// What bounds the requests of each upstream that has a bound.
    pub bounds: Vec<UpstreamBounds>,
    /// What is counted of routes, upstreams, endpoints, filters and listeners.
    pub series: SeriesView,
    /// Records that the access log took.
    pub access_log_records: u64,
    /// Records that it dropped because its disk fell behind.
    pub access_log_dropped: u64,
    /// For each limiter, how often a key shared the bucket of others.
    pub crowded: Vec<(String, u64)>,
    /// Access log records that wait to be written.
    pub access_log_waiting: u64,
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

/// What bounds the requests of an upstream, on all workers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamBounds {
    /// Its name.
    pub upstream: Box<str>,
    /// Requests that may be in flight, where their number is given.
    pub in_flight_max: Option<usize>,
    /// Whether their number follows how long answers take.
    pub follows: bool,
    /// Requests that may wait for a place.
    pub queue_length_max: Option<usize>,
}

/// A certificate of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateView {
    /// Name of the listener.
    pub listener: String,
    /// The file that it was read from.
    pub path: String,
    /// Its subject.
    pub subject: String,
    /// The hosts that it is for.
    pub hosts: Vec<String>,
    /// Until when it is valid, in seconds since 1970.
    pub not_after_s: i64,
}

/// An upstream that discovers its endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiscoveryView {
    /// Name of the upstream.
    pub upstream: String,
    /// Where they are looked for.
    pub source: String,
    /// How many there are.
    pub endpoints: usize,
    /// Looks that failed, or found none.
    pub failures: u64,
    /// When a look last succeeded, in seconds since 1970.
    pub success_at_s: Option<f64>,
    /// Why the last one did not, if it did not.
    pub error: Option<String>,
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

/// The last attempt to change the configuration.
#[derive(Clone, Debug)]
pub struct LastReload {
    /// How it ended.
    pub result: ReloadResult,
    /// When, in seconds since 1970.
    pub at_s: f64,
    /// For people: why it was refused, or what is in force.
    pub message: String,
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

/// Seconds since 1970 as RFC 3339, in UTC with microseconds.
pub fn time_text(at_s: f64) -> String {
    // A negative time becomes 0.
    let mut dates = DateText::new();
    String::from_utf8_lossy(dates.rfc3339((at_s * 1e6) as u64)).into_owned()
}

impl ProcessView {
    /// Answers of all workers by class.
    fn answers(&self) -> [u64; 5] {
        std::array::from_fn(|class| {
            self.workers.iter().map(|worker| worker.counters.answers[class].get()).sum()
        })
    }

    /// Errors of all workers, in the order of [`ErrorKind::ALL`].
    fn errors(&self) -> impl Iterator<Item = u64> {
        (0..ErrorKind::ALL.len())
            .map(|kind| self.workers.iter().map(|worker| worker.counters.errors[kind].get()).sum())
    }
}

#[cfg(test)]
mod tests;
