//! Whether a request is tried again, and where.

use std::rc::Rc;

use super::answer::Relayed;
use super::exchange::{Answer, Exchange, Matched, Upload};
use super::forward::{Job, Place};
use super::kept::Kept;
use super::serve::Next;
use super::target;
use crate::config::written::Trigger;
use crate::context::{RequestContext, RetryPlan};
use crate::error::{ErrorKind, Retry};
use crate::http::BodyFraming;
use crate::http1::head::ResponseParser;
use crate::http2::Incident;
use crate::upstream::{Avoid, Endpoint, Upstream};

/// Why a try ended without an answer to its client.
pub(super) struct Failed {
    /// What went wrong.
    pub kind: ErrorKind,
    /// Whether the connection may have been stale.
    pub stale: bool,
    /// An answer came and was given up for another try, which is paid for.
    pub given_up: bool,
    /// Whether its connection had carried a request before: it may have ended while it was idle.
    pub reused: bool,
    /// Whether the time passed while the client was still sending.
    pub by_client: bool,
    /// What failed others at once with it.
    pub incident: Option<Incident>,
}

impl Failed {
    /// A try that failed on a connection of its own.
    pub fn of(kind: ErrorKind) -> Failed {
        Failed {
            kind,
            stale: false,
            given_up: false,
            reused: false,
            by_client: false,
            incident: None,
        }
    }

    fn trigger(&self) -> Option<Trigger> {
        match (self.kind.retry(), self.kind) {
            (Retry::Unsent, _) => Some(Trigger::Connect),
            (Retry::Unseen, _) => Some(Trigger::RefusedStream),
            (Retry::Stale, _) if self.stale => Some(Trigger::Stale),
            (
                _,
                ErrorKind::UpstreamClosed
                | ErrorKind::UpstreamReset
                | ErrorKind::ResponseIncomplete,
            ) => Some(Trigger::Reset),
            (_, ErrorKind::ResponseTimeout | ErrorKind::UpstreamWriteTimeout) => {
                Some(Trigger::Timeout)
            }
            _ => None,
        }
    }
}

/// The first try is about to begin: it pays for later ones, and its body may be kept for them.
pub(super) fn begin(exchange: &mut Exchange, place: &Place<'_>, upstream: &Upstream) {
    upstream.budget.pay(place.core.now_ms());
    if exchange.upload.whole {
        return;
    }
    let plan = plan(&exchange.matched);
    let fits = match exchange.context.facts.framing {
        BodyFraming::Length(length) => length <= plan.body_bytes_max as u64,
        _ => true,
    };
    if plan.body_bytes_max > 0 && plan.tries > 1 && fits {
        exchange.upload.kept = Some(Kept::new(plan.body_bytes_max));
    }
}

/// Where the next try goes after one that failed; what it costs has been taken out of the budget.
///
/// # Errors
/// What the client is told: nothing is tried again.
pub(super) fn next(
    exchange: &mut Exchange,
    place: &Place<'_>,
    upstream: &Upstream,
    last: &Rc<Endpoint>,
    failed: &Failed,
) -> Result<Rc<Endpoint>, ErrorKind> {
    if !failed.given_up && !allows(exchange, failed) {
        return Err(failed.kind);
    }
    let endpoint = other(exchange, place, upstream, last, failed)?;
    // An origin that goes away in good order (GOAWAY) has done nothing for it, and loses nobody.
    let free = failed.kind.retry() == Retry::Unseen && exchange.context.timing.retries == 0;
    if !failed.given_up && !free && !pays(place, upstream) {
        return Err(failed.kind);
    }
    place.core.series.endpoint(last.id.0, |it| it.retries.increment());
    place.core.counters.retries.increment();
    exchange.context.timing.retries += 1;
    exchange.context.timing.raced_at = None;
    exchange.answer.begin_anew();
    if let Some(kept) = &mut exchange.upload.kept {
        kept.rewind();
    }
    // What ended the last try must not be seen in this one.
    place.down.timer.disarm();
    Ok(endpoint)
}

/// Nothing is tried again once the client has been told anything, or where its body is gone.
fn allows(exchange: &Exchange, failed: &Failed) -> bool {
    let Some(trigger) = failed.trigger() else { return false };
    let plan = plan(&exchange.matched);
    !exchange.answer.is_begun()
        && exchange.upload.can_begin_anew()
        && has_tries_left(plan, &exchange.context, exchange.context.timing.hedge.is_some())
        && allows_for(plan, trigger, method(&exchange.context))
}

/// A connection that may have been stale may as well have been reset.
fn allows_for(plan: &RetryPlan, trigger: Trigger, method: &[u8]) -> bool {
    plan.allows(trigger, method) || trigger == Trigger::Stale && plan.allows(Trigger::Reset, method)
}

/// Another endpoint, where that is asked for: one that was not tried and is whole, else one that was
/// not tried, else another than the last; else the same, unless it cannot even be reached.
fn other(
    exchange: &mut Exchange,
    place: &Place<'_>,
    upstream: &Upstream,
    last: &Rc<Endpoint>,
    failed: &Failed,
) -> Result<Rc<Endpoint>, ErrorKind> {
    let plan = *plan(&exchange.matched);
    let stale = failed.trigger() == Some(Trigger::Stale);
    if stale && plan.allows(Trigger::Stale, method(&exchange.context)) {
        return Ok(last.clone());
    }
    let mut tried = std::mem::take(&mut exchange.matched.tried);
    tried.push(last.id);
    let all = if plan.other_endpoint { &tried[..] } else { &[] };
    let last_only = &all[all.len().saturating_sub(1)..];
    let found = [(all, true), (all, false), (last_only, false)].iter().find_map(|ways| {
        let avoid = Avoid { tried: ways.0, unsound: ways.1 };
        target::pick(exchange, place, upstream, avoid).ok()
    });
    exchange.matched.tried = tried;
    match found {
        Some(endpoint) => Ok(endpoint),
        None if !failed.given_up && failed.kind.retry() == Retry::Unsent => Err(failed.kind),
        None => Ok(last.clone()),
    }
}

/// Takes a retry out of the upstream's budget.
pub(super) fn pays(place: &Place<'_>, upstream: &Upstream) -> bool {
    let paid = upstream.budget.take();
    if !paid {
        place.core.series.upstream(upstream.id.0, |it| it.retries_denied.increment());
    }
    paid
}

/// Whether another try may be begun beside those that were; one that was begun as a hedge is one.
pub(super) fn has_tries_left(plan: &RetryPlan, context: &RequestContext, hedged: bool) -> bool {
    context.timing.retries + u32::from(hedged) + 1 < u32::from(plan.tries)
}

pub(super) fn method(context: &RequestContext) -> &[u8] {
    context.request.text(context.request.method)
}

/// What holds for a request: its route's word, or its upstream's.
pub(super) fn plan(matched: &Matched) -> &RetryPlan {
    matched.terms.retry.as_ref().unwrap_or(&matched.settings().retry)
}

impl Upload {
    /// Whether the body can be sent from its beginning once more.
    pub(super) fn can_begin_anew(&self) -> bool {
        !self.spent || self.is_kept()
    }

    /// Whether all of it that is read is kept.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.is_whole())
    }
}

impl Relayed {
    /// What becomes of the client's connection, or that another try is due.
    pub(super) fn next(self) -> Result<Next, Failed> {
        match self {
            Relayed { given_up: true, .. } => {
                Err(Failed { given_up: true, ..Failed::of(ErrorKind::ResponseIncomplete) })
            }
            Relayed { close: true, .. } => Ok(Next::Close),
            _ => Ok(Next::KeepAlive),
        }
    }
}

impl Answer {
    /// Whether the client has been told anything.
    pub(super) fn is_begun(&self) -> bool {
        self.status != 0 || self.interim
    }

    /// Forgets what came of a try.
    fn begin_anew(&mut self) {
        self.head.reset();
        self.parser = ResponseParser::default();
        self.scratch.clear();
        self.connect_us = None;
    }
}

impl Job<'_> {
    /// Whether an answer with this head is given up for another try: for one that goes on, or for a
    /// new one, which is paid for then.
    pub(super) fn gives_up(&self, answer: &Answer) -> bool {
        let Some(trigger) = RetryPlan::of_status(answer.head.status) else { return false };
        let plan = plan(self.matched);
        let Some(upstream) = &self.matched.upstream else { return false };
        let tries_left = || has_tries_left(plan, self.context, self.was_hedged());
        !answer.is_begun()
            && self.replayable.get()
            && plan.allows(trigger, method(self.context))
            && (self.has_rival() || tries_left() && pays(self.place, upstream))
    }

    /// Whether this is tried again where its connection turns out to be stale.
    pub(super) fn may_be_repeated(&self) -> bool {
        allows_for(plan(self.matched), Trigger::Stale, method(self.context))
    }
}
