//! Forwarding: an endpoint, a connection, the request there and the answer back.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Instant;

use super::announce;
use super::answer;
use super::balance;
use super::bridge;
use super::duplex;
use super::exchange::{Answer, Exchange, Matched, Upload};
use super::filters::left_ms;
use super::hedge::{self, Hedged, Runner};
use super::queue;
use super::retry::{self, Failed};
use super::target;
use super::tunnel;
use super::{Downstream, Next};
use crate::base::buffer::Buf;
use crate::context::RequestContext;
use crate::error::ErrorKind;
use crate::http::BodyFraming;
use crate::http1::conn::write_all;
use crate::http1::encode::{RequestEdit, encode_request};
use crate::http2::OriginStream;
use crate::io::wait::Timer;
use crate::io::{Handle, Shutdown, Stream, Wait};
use crate::limits::TIMEOUT_MS_MIN;
use crate::observe::series::EndpointSeries;
use crate::snapshot::ListenerPlan;
use crate::state::Core;
use crate::upstream::connect::{acquire, connect};
use crate::upstream::{Avoid, Endpoint, Lease, Settings};

/// Where a request is and where it goes: what stays the same over its tries.
pub(super) struct Place<'a> {
    pub down: &'a Downstream,
    pub core: &'a Rc<Core>,
}

impl<'a> Place<'a> {
    /// Where a request of this connection is; it counts as in flight as long as the value lives.
    pub fn enter(down: &'a Downstream, core: &'a Rc<Core>) -> Place<'a> {
        core.counters.in_flight.increment();
        Place { down, core }
    }

    /// The listener that the connection came by.
    pub fn listener(&self) -> &ListenerPlan {
        self.down.listener()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.core.counters.in_flight.decrement();
    }
}

/// One try on one endpoint.
pub(super) struct Attempt<'a> {
    pub place: &'a Place<'a>,
    pub endpoint: &'a Rc<Endpoint>,
    pub context: &'a RequestContext,
    pub matched: &'a Matched,
    /// Bounds the whole request, where the route asks for it (B9).
    pub total: Option<&'a Timer>,
    /// Which of two tries it is, where there may be two at once.
    pub runner: Option<&'a Runner<'a>>,
}

impl<'a> std::ops::Deref for Attempt<'a> {
    type Target = Place<'a>;

    fn deref(&self) -> &Place<'a> {
        self.place
    }
}

/// One try on one connection: what its pumps share.
pub(super) struct Job<'a> {
    pub attempt: &'a Attempt<'a>,
    pub lease: &'a Lease,
    /// The stream of an origin that speaks HTTP/2, once the request has been begun.
    pub origin: OnceCell<Box<OriginStream>>,
    /// Bounds the try up to the head of its answer, where that is asked for.
    pub try_bound: Option<Box<Timer>>,
    /// Bounds the upload, where the body did not come with the head.
    pub upload: OnceCell<Box<Timer>>,
    /// Whether the request has been sent to its end.
    pub request_done: Cell<bool>,
    /// Whether the answer is over.
    pub answer_done: Cell<bool>,
    /// Whether the upstream's connection was shut down from here.
    pub stopped: Cell<bool>,
    /// Whether the body can be sent from its beginning once more.
    pub replayable: Cell<bool>,
    /// Whether an origin that speaks HTTP/2 was asked for a tunnel.
    pub tunnel_begun: Cell<bool>,
}

impl<'a> std::ops::Deref for Job<'a> {
    type Target = Attempt<'a>;

    fn deref(&self) -> &Attempt<'a> {
        self.attempt
    }
}

/// Sends the request to an endpoint and relays the answer, trying again where that is safe.
///
/// # Errors
/// What went wrong; whether an answer has been begun stands in the exchange.
pub(super) async fn forward(exchange: &mut Exchange, place: &Place<'_>) -> Result<Next, ErrorKind> {
    if let Some(ticket) = queue::enter(exchange, place)? {
        Box::pin(queue::wait(ticket, exchange, place)).await?;
    }
    let total = total_timer(exchange, place);
    let (mut endpoint, mut in_flight) = {
        let upstream = exchange.matched.upstream.clone().ok_or(ErrorKind::NoEndpoint)?;
        let endpoint = target::pick(exchange, place, &upstream, Avoid::default())?;
        retry::begin(exchange, place, &upstream);
        let in_flight = place.core.series.in_flight(upstream.id.0, endpoint.id.0);
        (endpoint, in_flight)
    };
    loop {
        exchange.matched.endpoint = Some(endpoint.clone());
        exchange.matched.begin_try(&endpoint);
        let tried = match hedge::after_ms(exchange, &endpoint) {
            None => {
                let attempt = Attempt {
                    place,
                    endpoint: &endpoint,
                    context: &exchange.context,
                    matched: &exchange.matched,
                    total: total.as_ref(),
                    runner: None,
                };
                let tried = attempt.run(&mut exchange.upload, &mut exchange.answer).await;
                attempt.finish(&exchange.upload, &exchange.answer, tried.as_ref().err());
                tried
            }
            Some(after_ms) => {
                let run = Hedged { place, total: total.as_ref(), in_flight: &mut in_flight };
                Box::pin(run.run(exchange, &mut endpoint, after_ms)).await
            }
        };
        let failed = match tried {
            Ok(next) => return Ok(next),
            Err(_) if has_expired(total.as_ref()) => return Err(ErrorKind::TotalTimeout),
            Err(failed) => failed,
        };
        // Once more, rather than all the time: every request in flight would be larger by it.
        let upstream = exchange.matched.upstream.clone().ok_or(ErrorKind::NoEndpoint)?;
        endpoint = retry::next(exchange, place, &upstream, &endpoint, &failed)?;
        in_flight.move_to(endpoint.id.0);
        // After a stale connection its neighbours are no better: a new one.
        exchange.matched.anew = !failed.given_up;
    }
}

fn total_timer(exchange: &Exchange, place: &Place<'_>) -> Option<Timer> {
    exchange.matched.terms.total_timeout_ms?;
    let total_ms = left_ms(exchange);
    let timer = Timer::new(&place.core.deadlines, place.down.target(None));
    timer.arm(Wait::Total, total_ms);
    Some(timer)
}

fn has_expired(total: Option<&Timer>) -> bool {
    total.is_some_and(|total| total.expired().is_some())
}

impl Attempt<'_> {
    /// Sends the request and relays the answer.
    ///
    /// # Errors
    /// Why no answer was relayed to its end.
    pub async fn run(&self, upload: &mut Upload, answer: &mut Answer) -> Result<Next, Failed> {
        let _busy = self.endpoint.begin();
        let mut attached = Attached { lease: None, attempt: self };
        // A first try begins with the request, as far as microseconds go.
        let begins = !self.matched.progress.get().has_begun() && self.context.timing.retries == 0;
        if !begins || self.is_hedge() {
            answer.asked_at = Some(Instant::now());
        }
        match self.connection(answer).await {
            Ok(lease) => attached.attach(lease),
            Err(failed) => {
                let count = |it: &EndpointSeries| it.connect_failures.increment();
                self.core.series.endpoint(self.endpoint.id.0, count);
                return Err(failed);
            }
        }
        // It passed while nothing was connected that it could have acted on.
        if has_expired(self.total) {
            return Err(Failed::of(ErrorKind::TotalTimeout));
        }
        let job = Job {
            attempt: self,
            lease: attached.lease(),
            origin: OnceCell::new(),
            try_bound: self.try_bound(answer, &attached),
            upload: OnceCell::new(),
            request_done: Cell::new(upload.whole),
            answer_done: Cell::new(false),
            stopped: Cell::new(false),
            replayable: Cell::new(upload.whole || upload.is_kept()),
            tunnel_begun: Cell::new(false),
        };
        let failed = |kind| job.failed(kind);
        self.context.request.failpoint("pool");
        let relayed = if job.is_across() {
            Box::pin(bridge::run(upload, answer, &job)).await
        } else if upload.whole {
            encode(&mut answer.scratch, &job);
            let rest = self.context.request.rest();
            answer.scratch.extend(&rest[..upload.relay]);
            answer.scratch.extend(upload.body.tail());
            match send(&mut answer.scratch, &job).await {
                Ok(()) => answer::relay(answer, &job).await,
                Err(kind) => Err(kind),
            }
        } else {
            encode(&mut answer.scratch, &job);
            Box::pin(duplex::run(upload, answer, &job)).await
        };
        let relayed = match relayed {
            Ok(relayed) if relayed.tunnel => {
                let tunnel = Box::pin(tunnel::run(upload, answer, &job)).await;
                return tunnel.map_err(failed);
            }
            Ok(relayed) => relayed,
            Err(kind) => return Err(failed(kind)),
        };
        if relayed.reusable && job.request_done.get() && !job.was_cut() {
            let idle_max = job.settings().idle_connections_max;
            attached.release(self.core.now_ms(), idle_max);
        }
        relayed.next()
    }

    /// Counts what became of it.
    pub fn finish(&self, upload: &Upload, answer: &Answer, failed: Option<&Failed>) {
        let Some(upstream) = &self.matched.upstream else { return };
        balance::finish(self, upload, answer, failed);
        if upstream.bulkhead.is_adaptive() {
            queue::observe(self, upstream, answer, failed.map(|failed| failed.kind));
        }
    }

    /// The bound of the try; what connecting took is no longer in it.
    fn try_bound(&self, answer: &Answer, attached: &Attached<'_>) -> Option<Box<Timer>> {
        let bound_ms = retry::plan(self.matched).per_try_timeout_ms?;
        let spent_ms = answer.connect_us.map_or(0, |us| us / 1_000);
        let target = self.down.target(Some(attached.lease().handle()));
        let timer = Timer::new(&self.core.deadlines, target);
        timer.arm(Wait::Try, bound_ms.saturating_sub(spent_ms).max(TIMEOUT_MS_MIN));
        Some(Box::new(timer))
    }

    async fn connection(&self, answer: &mut Answer) -> Result<Lease, Failed> {
        if !self.matched.anew
            && let Some(lease) = acquire(self.endpoint)
        {
            return Ok(lease);
        }
        let left_ms = self.total.map_or(u64::MAX, Timer::left_ms);
        let began = Instant::now();
        let connect_ms = self.matched.settings().connect_timeout_ms;
        let try_ms = retry::plan(self.matched).per_try_timeout_ms.unwrap_or(u64::MAX);
        let bound_ms = connect_ms.min(left_ms).min(try_ms);
        let version = self.endpoint.plan.outgoing.send_proxy;
        let header = version
            .map(|version| announce::header(version, self.down, self.context))
            .unwrap_or_default();
        let connected = Box::pin(connect(self.endpoint, connect_ms, bound_ms, header)).await;
        // Where the request had less time left than a connection may take, it is not the endpoint's.
        let lease = connected.map_err(|failed| {
            let kind = match failed.kind {
                ErrorKind::ConnectTimeout if left_ms < connect_ms.min(try_ms) => {
                    ErrorKind::TotalTimeout
                }
                kind => kind,
            };
            Failed { incident: failed.incident, ..Failed::of(kind) }
        })?;
        answer.connect_us = u64::try_from(began.elapsed().as_micros()).ok();
        Ok(lease)
    }

    /// The deadline of its waits.
    #[inline]
    pub fn timer(&self) -> &Timer {
        match self.runner {
            None => &self.down.timer,
            Some(runner) => runner.timer(),
        }
    }

    /// Names the connection that its deadlines act on, or that there is none any more.
    fn set_upstream(&self, handle: Option<Handle>) {
        if let Some(total) = self.total.filter(|_| self.runner.is_none_or(Runner::leads)) {
            total.set_upstream(handle.clone());
        }
        if let Some(runner) = self.runner {
            runner.set_upstream(handle.clone());
        }
        self.timer().set_upstream(handle);
    }
}

/// Sends a request that is whole in hand. A failed write is told by the read that follows: an
/// answer may have come before it.
pub(super) async fn send(out: &mut Buf, job: &Job<'_>) -> Result<(), ErrorKind> {
    let progress = || job.timer().arm(Wait::UpstreamWrite, job.settings().body_timeout_ms);
    let _ = write_all(job.stream(), out, progress).await;
    out.clear();
    match job.timer().expired() {
        Some(_) => Err(ErrorKind::UpstreamWriteTimeout),
        None => Ok(()),
    }
}

/// Encodes the request's head into `out`.
pub(super) fn encode(out: &mut Buf, job: &Job<'_>) {
    if out.capacity() == 0 {
        *out = Buf::for_head();
    }
    out.clear();
    encode_request(out, &job.context.request, &request_edit(job));
}

/// What changes in the request's head on its way to the origin.
pub(super) fn request_edit<'a>(job: &'a Job<'_>) -> RequestEdit<'a> {
    let context = job.context;
    let bytes = context.request.bytes.filled();
    let authority = context.target.authority.map(|authority| authority.of(bytes));
    let host_named = context.host();
    let host = match authority {
        _ if !job.host_rewritten().is_empty() => Some(job.host_rewritten()),
        Some(authority) => Some(authority),
        None if host_named.is_none() => Some(job.lease.endpoint().plan.host().as_bytes()),
        None => None,
    };
    RequestEdit {
        path: context.sent_path(),
        query: context.target.query.map(|query| query.of(bytes)),
        host,
        host_named,
        framing: job.sent_framing(),
        forwarding: &job.down.forwarding,
        request_id: context.request_id.text(&context.request),
        upgrade: context.facts.upgrade.as_deref(),
        via: job.listener().via,
        forwarded: job.listener().forwarded,
    }
}

impl Job<'_> {
    /// The upstream's connection.
    pub(super) fn stream(&self) -> &Stream {
        self.lease.stream()
    }

    /// Scheme of what the origin is asked for.
    pub(super) fn scheme(&self) -> &'static str {
        if self.endpoint().plan.tls.is_some() { "https" } else { "http" }
    }

    /// Whether a side speaks HTTP/2, or bodies are turned on their way.
    pub(super) fn is_across(&self) -> bool {
        self.down.http2().is_some()
            || self.lease.http2().is_some()
            || self.context.facts.grpc_web.is_some()
    }

    /// How the origin finds the end of the body.
    pub(super) fn sent_framing(&self) -> BodyFraming {
        let facts = &self.context.facts;
        let resized = facts.grpc_web.as_ref().is_some_and(|web| web.changes_request_length());
        match facts.framing {
            BodyFraming::Length(1..) if resized => BodyFraming::Chunked,
            framing => framing,
        }
    }

    /// The numbers of the upstream.
    pub(super) fn settings(&self) -> &Settings {
        self.matched.settings()
    }

    /// The endpoint.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.lease.endpoint()
    }

    /// The timeout for the head of the answer (R11).
    pub(super) fn response_timeout_ms(&self) -> u64 {
        self.matched.terms.response_timeout_ms.unwrap_or(self.settings().response_timeout_ms)
    }

    /// Whether an answer may be about the connection and not about this request.
    pub(super) fn may_be_stale(&self) -> bool {
        self.lease.reused
            && self.origin.get().is_none()
            && self.may_be_repeated()
            && self.context.facts.framing == BodyFraming::None
    }

    /// The head of the final answer has come: the try has kept to its bound, or not.
    pub(super) fn head_came(&self) -> Result<(), ErrorKind> {
        match &self.try_bound {
            Some(bound) if bound.expired().is_some() => Err(ErrorKind::ResponseTimeout),
            Some(bound) => {
                bound.disarm();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Stops both directions of the upstream's connection.
    pub(super) fn stop_upstream(&self) {
        self.stopped.set(true);
        self.lease.handle().shutdown(Shutdown::Both);
    }

    /// Whether the end of the upstream's connection, if one was seen, was made here: by a failed
    /// upload or by a deadline.
    pub(super) fn was_cut(&self) -> bool {
        let expired = |timer: &Timer| timer.ever_expired();
        self.stopped.get()
            || expired(self.timer())
            || self.total.is_some_and(expired)
            || self.try_bound.as_deref().is_some_and(expired)
            || self.upload.get().is_some_and(|timer| expired(timer))
    }

    /// Why this try failed. Whether its connection may have been stale is asked here; whether the
    /// body can be sent again shows when the try is over.
    fn failed(&self, kind: ErrorKind) -> Failed {
        Failed {
            stale: self.lease.reused && self.may_be_repeated(),
            reused: self.lease.reused,
            by_client: !self.request_done.get() && has_expired(self.try_bound.as_deref()),
            incident: self.origin.get().and_then(|stream| stream.incident()),
            ..Failed::of(self.reason(kind))
        }
    }

    /// What an error really was: a deadline that ended the wait, or what it looked like.
    pub(super) fn reason(&self, kind: ErrorKind) -> ErrorKind {
        if has_expired(self.total) {
            return ErrorKind::TotalTimeout;
        }
        if has_expired(self.try_bound.as_deref()) {
            return ErrorKind::ResponseTimeout;
        }
        match self.timer().expired() {
            Some(Wait::ResponseHead) => ErrorKind::ResponseTimeout,
            Some(Wait::ResponseBody) => ErrorKind::ResponseBodyTimeout,
            Some(Wait::UpstreamWrite) => ErrorKind::UpstreamWriteTimeout,
            Some(Wait::ClientWrite) => ErrorKind::ClientWriteTimeout,
            Some(Wait::ClientGone) => ErrorKind::ClientAborted,
            _ => kind,
        }
    }
}

/// A lease that the deadlines of the exchange know of. They forget it before it is closed.
struct Attached<'a> {
    lease: Option<Lease>,
    attempt: &'a Attempt<'a>,
}

impl Attached<'_> {
    fn attach(&mut self, lease: Lease) {
        self.attempt.set_upstream(Some(lease.handle()));
        self.lease = Some(lease);
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("attached until it is released")
    }

    fn release(&mut self, now_ms: u64, idle_max: usize) {
        self.attempt.set_upstream(None);
        if let Some(lease) = self.lease.take() {
            lease.release(now_ms, idle_max);
        }
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.attempt.set_upstream(None);
    }
}
