//! The blocks: what one worker counts of one thing.
//!
//! Each begins on a cache line of its own, so that no other thread's data shares a line with what a
//! worker writes. What is not counted for every request stands behind what is.

use std::sync::Arc;

use super::histogram::Histogram;
use super::proxy_protocol::ProxyProtocolResult;
use super::worker::Finished;
use crate::observe::{Counter, Gauge};

/// Classes of answers: 1xx to 5xx.
pub const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Answers by class.
pub type Answers = [Counter; CLASSES.len()];

/// What is counted of a route.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RouteSeries {
    /// Answers by class.
    pub answers: Answers,
    /// Body bytes from clients.
    pub request_body_bytes: Counter,
    /// Body bytes to clients.
    pub response_body_bytes: Counter,
    /// From the whole head of a request to the last byte of its answer.
    pub duration: Histogram,
}

/// What is counted of an upstream.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct UpstreamSeries {
    /// Answers by class to requests that were sent here, those that the gateway made included.
    pub answers: Answers,
    /// Requests in flight.
    pub in_flight: Gauge,
    /// From asking for a connection, the last time, to the head of the final answer.
    pub duration: Histogram,
    /// Requests that were not tried again because the budget was spent.
    pub retries_denied: Counter,
    /// Requests that wait for a place.
    pub queue: Gauge,
    /// Requests that have waited for one, whether they got it or not.
    pub queued: Counter,
    /// Milliseconds that they have waited.
    pub queue_ms: Counter,
    /// Requests that may be in flight, where that follows how long answers take.
    pub limit: Gauge,
    /// Requests that a second endpoint was asked for while the first had no answer.
    pub hedges: Counter,
    /// How many of those the second one answered.
    pub hedges_won: Counter,
}

/// What is counted of an endpoint.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EndpointSeries {
    /// Answers by class to requests that this endpoint was the last to get.
    pub answers: Answers,
    /// Requests in flight.
    pub in_flight: Gauge,
    /// Connections that could not be made.
    pub connect_failures: Counter,
    /// Requests that were tried again after a try here.
    pub retries: Counter,
}

/// What is counted of a filter. One that lets a request pass counts nothing.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct FilterSeries {
    /// Requests that it answered itself.
    pub answered: Counter,
    /// Times that it gave no verdict because of an error.
    pub failed: Counter,
    /// Times that it gave no verdict in time.
    pub timed_out: Counter,
    /// How many of those went on without it, as its `on_error` says.
    pub skipped: Counter,
    /// Requests that a limiter let pass.
    pub allowed: Counter,
    /// Requests that a limiter refused.
    pub limited: Counter,
}

/// What is counted of a listener.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ListenerSeries {
    /// Connections taken.
    pub accepted: Counter,
    /// Connections open.
    pub open: Gauge,
    /// How connections began where `proxy_protocol` is on, in the order of
    /// [`ProxyProtocolResult::ALL`].
    pub proxy_protocol: [Counter; ProxyProtocolResult::ALL.len()],
    /// TLS handshakes by [`HANDSHAKES`].
    pub handshakes: [Counter; HANDSHAKES.len()],
}

/// How a client's TLS handshake ended: it succeeded, in full or by a ticket, or why it did not.
pub const HANDSHAKES: [&str; 17] = [
    "full",
    "resumed",
    "closed",
    "timeout",
    "plain_http",
    "no_shared_version",
    "no_shared_cipher",
    "no_alpn",
    "unknown_name",
    "certificate_missing",
    "certificate_refused",
    "certificate_expired",
    "name_mismatch",
    "peer_alert",
    "malformed",
    "io",
    "other",
];

impl RouteSeries {
    /// Counts an exchange. One without an answer has no duration: it stands among the errors.
    #[inline]
    pub fn finish(&self, done: &Finished) {
        if count(&self.answers, done.status) {
            self.duration.record(done.total_us);
        }
        self.request_body_bytes.add(done.request_body_bytes);
        self.response_body_bytes.add(done.response_body_bytes);
    }
}

impl UpstreamSeries {
    /// Counts an exchange.
    #[inline]
    pub fn finish(&self, done: &Finished) {
        count(&self.answers, done.status);
        if let Some(us) = done.upstream_head_us {
            self.duration.record(us);
        }
    }
}

impl EndpointSeries {
    /// Counts an exchange.
    #[inline]
    pub fn finish(&self, done: &Finished) {
        count(&self.answers, done.status);
    }
}

/// Counts an answer; says whether there was one.
#[inline]
fn count(answers: &Answers, status: u16) -> bool {
    let class = answers.get(usize::from(status / 100).wrapping_sub(1));
    if let Some(class) = class {
        class.increment();
    }
    class.is_some()
}

/// A kind of block. Five kinds are kept in the same way: hence the one generic here.
pub(super) trait Block: Default {
    /// Which bound it counts to.
    const ROOM: Room = Room::BesideRoutes;

    /// Whether nothing in it will be taken back, so that it may be let go.
    fn is_idle(&self) -> bool;

    /// What tells the control thread of a new one.
    fn birth(id: u32, block: Arc<Self>) -> Birth;
}

/// What blocks are bounded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Routes,
    BesideRoutes,
}

/// How many rooms there are.
pub(super) const ROOMS: usize = 2;

/// A block that a worker has made.
#[derive(Debug)]
pub(super) enum Birth {
    Route(u32, Arc<RouteSeries>),
    Upstream(u32, Arc<UpstreamSeries>),
    Endpoint(u32, Arc<EndpointSeries>),
    Filter(u32, Arc<FilterSeries>),
    Listener(u32, Arc<ListenerSeries>),
}

impl Block for RouteSeries {
    const ROOM: Room = Room::Routes;

    fn is_idle(&self) -> bool {
        true
    }

    fn birth(id: u32, block: Arc<Self>) -> Birth {
        Birth::Route(id, block)
    }
}

impl Block for UpstreamSeries {
    fn is_idle(&self) -> bool {
        self.in_flight.get() + self.queue.get() == 0
    }

    fn birth(id: u32, block: Arc<Self>) -> Birth {
        Birth::Upstream(id, block)
    }
}

impl Block for EndpointSeries {
    fn is_idle(&self) -> bool {
        self.in_flight.get() == 0
    }

    fn birth(id: u32, block: Arc<Self>) -> Birth {
        Birth::Endpoint(id, block)
    }
}

impl Block for FilterSeries {
    fn is_idle(&self) -> bool {
        true
    }

    fn birth(id: u32, block: Arc<Self>) -> Birth {
        Birth::Filter(id, block)
    }
}

impl Block for ListenerSeries {
    fn is_idle(&self) -> bool {
        self.open.get() == 0
    }

    fn birth(id: u32, block: Arc<Self>) -> Birth {
        Birth::Listener(id, block)
    }
}

// What every request writes of an endpoint is one cache line; of a route and an upstream, three. What
// few requests write of an upstream stands on a fourth.
const _: () = assert!(size_of::<EndpointSeries>() == 64);
const _: () = assert!(size_of::<RouteSeries>() == 192 && size_of::<UpstreamSeries>() == 256);
const _: () = assert!(std::mem::offset_of!(UpstreamSeries, retries_denied) < 192);
