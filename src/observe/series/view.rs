//! Series as they stood when somebody asked, summed over the workers.

use std::sync::Arc;

use super::blocks::{
    Answers, CLASSES, EndpointSeries, FilterSeries, HANDSHAKES, ListenerSeries, RouteSeries,
    UpstreamSeries,
};
use super::histogram::HistogramView;
use super::proxy_protocol::ProxyProtocolResult;

/// All series. Routes only if they were hit; of the rest everything that is configured.
#[derive(Clone, Debug, Default)]
pub struct SeriesView {
    /// Routes, with `unmatched` and, where blocks were refused, `other`.
    pub routes: Vec<Entry<RouteView>>,
    /// Upstreams.
    pub upstreams: Vec<Entry<UpstreamView>>,
    /// Endpoints.
    pub endpoints: Vec<Entry<EndpointView>>,
    /// Filters.
    pub filters: Vec<Entry<FilterView>>,
    /// Listeners.
    pub listeners: Vec<Entry<ListenerView>>,
    /// Blocks by worker.
    pub made: Vec<u64>,
    /// Blocks that were not made.
    pub dropped: u64,
}

/// One series.
#[derive(Clone, Debug)]
pub struct Entry<T> {
    /// The upstream of an endpoint.
    pub upstream: Option<Arc<str>>,
    /// The label.
    pub name: Arc<str>,
    /// The numbers.
    pub numbers: T,
}

/// Answers by class.
pub type AnswersView = [u64; CLASSES.len()];

/// A [`RouteSeries`].
#[derive(Clone, Debug, Default)]
pub struct RouteView {
    /// See [`RouteSeries::answers`].
    pub answers: AnswersView,
    /// See [`RouteSeries::duration`].
    pub duration: HistogramView,
    /// See [`RouteSeries::request_body_bytes`].
    pub request_body_bytes: u64,
    /// See [`RouteSeries::response_body_bytes`].
    pub response_body_bytes: u64,
}

/// An [`UpstreamSeries`].
#[derive(Clone, Debug, Default)]
pub struct UpstreamView {
    /// See [`UpstreamSeries::answers`].
    pub answers: AnswersView,
    /// See [`UpstreamSeries::duration`].
    pub duration: HistogramView,
    /// See [`UpstreamSeries::in_flight`].
    pub in_flight: u64,
    /// See [`UpstreamSeries::retries_denied`].
    pub retries_denied: u64,
    /// See [`UpstreamSeries::queue`].
    pub queue: u64,
    /// See [`UpstreamSeries::queued`].
    pub queued: u64,
    /// See [`UpstreamSeries::queue_ms`].
    pub queue_ms: u64,
    /// See [`UpstreamSeries::limit`].
    pub limit: u64,
    /// See [`UpstreamSeries::hedges`].
    pub hedges: u64,
    /// See [`UpstreamSeries::hedges_won`].
    pub hedges_won: u64,
}

/// An [`EndpointSeries`].
#[derive(Clone, Debug, Default)]
pub struct EndpointView {
    /// See [`EndpointSeries::answers`].
    pub answers: AnswersView,
    /// See [`EndpointSeries::in_flight`].
    pub in_flight: u64,
    /// See [`EndpointSeries::connect_failures`].
    pub connect_failures: u64,
    /// See [`EndpointSeries::retries`].
    pub retries: u64,
}

/// A [`FilterSeries`].
#[derive(Clone, Debug, Default)]
pub struct FilterView {
    /// By [`VERDICTS`].
    pub verdicts: [u64; VERDICTS.len()],
    /// By [`DECISIONS`].
    pub decisions: [u64; DECISIONS.len()],
}

/// A [`ListenerSeries`].
#[derive(Clone, Debug, Default)]
pub struct ListenerView {
    /// See [`ListenerSeries::accepted`].
    pub accepted: u64,
    /// See [`ListenerSeries::open`].
    pub open: u64,
    /// See [`ListenerSeries::proxy_protocol`].
    pub proxy_protocol: [u64; ProxyProtocolResult::ALL.len()],
    /// By [`HANDSHAKES`].
    pub handshakes: [u64; HANDSHAKES.len()],
}

/// Values of the label `verdict`.
pub const VERDICTS: [&str; 4] = ["answered", "failed", "timed_out", "skipped"];

/// Values of the label `decision`.
pub const DECISIONS: [&str; 2] = ["allowed", "limited"];

/// What sums blocks of one kind.
pub(super) trait Sum<T>: Default {
    /// Adds a block.
    fn add(&mut self, block: &T);

    /// Whether anything was counted.
    fn is_touched(&self) -> bool;
}

impl Sum<RouteSeries> for RouteView {
    fn add(&mut self, block: &RouteSeries) {
        add_answers(&mut self.answers, &block.answers);
        self.duration.add(&block.duration);
        self.request_body_bytes += block.request_body_bytes.get();
        self.response_body_bytes += block.response_body_bytes.get();
    }

    fn is_touched(&self) -> bool {
        total(&self.answers) + self.request_body_bytes > 0
    }
}

impl Sum<UpstreamSeries> for UpstreamView {
    fn add(&mut self, block: &UpstreamSeries) {
        add_answers(&mut self.answers, &block.answers);
        self.duration.add(&block.duration);
        self.in_flight += block.in_flight.get();
        self.retries_denied += block.retries_denied.get();
        self.queue += block.queue.get();
        self.queued += block.queued.get();
        self.queue_ms += block.queue_ms.get();
        self.limit += block.limit.get();
        self.hedges += block.hedges.get();
        self.hedges_won += block.hedges_won.get();
    }

    fn is_touched(&self) -> bool {
        total(&self.answers) + self.in_flight > 0
    }
}

impl Sum<EndpointSeries> for EndpointView {
    fn add(&mut self, block: &EndpointSeries) {
        add_answers(&mut self.answers, &block.answers);
        self.in_flight += block.in_flight.get();
        self.connect_failures += block.connect_failures.get();
        self.retries += block.retries.get();
    }

    fn is_touched(&self) -> bool {
        total(&self.answers) + self.in_flight + self.connect_failures + self.retries > 0
    }
}

impl Sum<FilterSeries> for FilterView {
    fn add(&mut self, block: &FilterSeries) {
        let verdicts = [&block.answered, &block.failed, &block.timed_out, &block.skipped];
        for (sum, verdict) in self.verdicts.iter_mut().zip(verdicts) {
            *sum += verdict.get();
        }
        for (sum, decision) in self.decisions.iter_mut().zip([&block.allowed, &block.limited]) {
            *sum += decision.get();
        }
    }

    fn is_touched(&self) -> bool {
        self.verdicts.iter().chain(&self.decisions).any(|count| *count > 0)
    }
}

impl Sum<ListenerSeries> for ListenerView {
    fn add(&mut self, block: &ListenerSeries) {
        self.accepted += block.accepted.get();
        self.open += block.open.get();
        for (sum, result) in self.proxy_protocol.iter_mut().zip(&block.proxy_protocol) {
            *sum += result.get();
        }
        for (sum, count) in self.handshakes.iter_mut().zip(&block.handshakes) {
            *sum += count.get();
        }
    }

    fn is_touched(&self) -> bool {
        self.accepted > 0
    }
}

/// Answers of all classes.
pub fn total(answers: &AnswersView) -> u64 {
    answers.iter().sum()
}

fn add_answers(sums: &mut AnswersView, answers: &Answers) {
    for (sum, answer) in sums.iter_mut().zip(answers) {
        *sum += answer.get();
    }
}
