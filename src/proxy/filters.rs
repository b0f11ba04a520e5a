//! The filters of a route, run over one request.

use std::time::{Duration, Instant};

use super::exchange::{Answer, Exchange, Matched};
use super::forward::Place;
use super::serve::Ended;
use crate::context::RequestContext;
use crate::error::ErrorKind;
use crate::filter::{
    AnswerCall, Call, Decision, FilterId, OnError, Passed, Pending, Phase, Resume, Verdict,
};
use crate::io::runtime::until;
use crate::io::{Wait, sleep_ms};
use crate::limits::{SWEEP_MS, TIMEOUT_MS_MAX};
use crate::route::RoutePlan;

/// Lets the request pass the filters of the phases up to `last` that it has not passed yet.
///
/// # Errors
/// It ends here: with a filter's answer, or with an error.
pub(super) async fn pass(
    exchange: &mut Exchange,
    place: &Place<'_>,
    last: Phase,
) -> Result<(), Ended> {
    loop {
        match run(exchange, place, last) {
            Step::Passed => return Ok(()),
            Step::Ended(ended) => return Err(ended),
            Step::Waits(wait) => Box::pin(wait_for(exchange, place, wait)).await?,
        }
    }
}

/// Where the filters of a request have got to.
enum Step {
    Passed,
    Ended(Ended),
    Waits(Pending),
}

/// Runs filters until one ends the request or waits.
fn run(exchange: &mut Exchange, place: &Place<'_>, last: Phase) -> Step {
    let Exchange { context, matched, .. } = exchange;
    let plans = matched.held.plans();
    let (Some(route), Some(chain)) = (plans.route(), plans.chain()) else { return Step::Passed };
    if chain.is_empty() {
        return Step::Passed;
    }
    let mut progress = matched.progress.get();
    if !progress.has_begun() {
        context.remember_came();
    }
    let mut call = call(context, place, route, matched.upstream_name());
    let passed =
        chain.on_request(&mut progress, last, &mut call, |id, made| decided(place, id, made));
    matched.progress.set(progress);
    match passed {
        Passed::Through => Step::Passed,
        Passed::Answered(id, reply) => {
            place.core.series.filter(id.0, |series| series.answered.increment());
            Step::Ended(Ended::Reply(Box::new(reply)))
        }
        Passed::Waits(pending) => Step::Waits(pending),
    }
}

/// Counts what a limiter decided.
fn decided(place: &Place<'_>, id: FilterId, decision: Decision) {
    place.core.series.filter(id.0, |series| match decision {
        Decision::Allowed => series.allowed.increment(),
        Decision::Limited => series.limited.increment(),
    });
}

fn call<'a>(
    context: &'a mut RequestContext,
    place: &'a Place<'_>,
    route: &'a RoutePlan,
    upstream: &'a str,
) -> Call<'a> {
    Call {
        context,
        // Filters bind it to the path.
        route: route.matched(b""),
        listener: &place.listener().name,
        upstream,
        random: &place.core.random,
        worker: (place.core.index, place.core.workers),
        decision: None,
    }
}

/// Waits for a filter, for a bounded time, and goes on as it says. The client is watched meanwhile.
async fn wait_for(
    exchange: &mut Exchange,
    place: &Place<'_>,
    mut pending: Pending,
) -> Result<(), Ended> {
    let bound_ms = pending.timeout_ms.min(left_ms(exchange));
    let until_at = Instant::now() + Duration::from_millis(bound_ms);
    loop {
        let resumed = match resume_by(&mut pending, place, until_at).await {
            Ok(resumed) => resumed,
            Err(ErrorKind::FilterTimeout) if left_ms(exchange) == 0 => {
                return Err(ErrorKind::TotalTimeout.into());
            }
            Err(kind) => return failed(&pending, place, kind),
        };
        let Resume::With(resume) = resumed else {
            return failed(&pending, place, ErrorKind::FilterFailed);
        };
        let Exchange { context, matched, .. } = &mut *exchange;
        let plans = matched.held.plans();
        let Some(route) = plans.route() else { return Err(ErrorKind::FilterFailed.into()) };
        let mut call = call(context, place, route, matched.upstream_name());
        let verdict = resume(&mut call);
        if let Some(decision) = call.decision {
            decided(place, pending.id, decision);
        }
        match verdict {
            Verdict::Continue => return Ok(()),
            Verdict::Respond(reply) => {
                place.core.series.filter(pending.id.0, |series| series.answered.increment());
                return Err(Ended::Reply(Box::new(reply)));
            }
            Verdict::Wait(waiting) => pending.waiting = waiting,
        }
    }
}

/// What is left of the route's `timeouts.total` (B9).
pub(super) fn left_ms(exchange: &Exchange) -> u64 {
    let Some(total_ms) = exchange.matched.terms.total_timeout_ms else { return TIMEOUT_MS_MAX };
    let spent = exchange.context.timing.started.map_or(0, |started| started.elapsed().as_millis());
    total_ms.saturating_sub(u64::try_from(spent).unwrap_or(u64::MAX))
}

async fn resume_by(
    pending: &mut Pending,
    place: &Place<'_>,
    until_at: Instant,
) -> Result<Resume, ErrorKind> {
    let timer = &place.down.timer;
    timer.arm(Wait::Filter, TIMEOUT_MS_MAX);
    let resumed = loop {
        let left = until_at.saturating_duration_since(Instant::now());
        let pause_ms = u64::try_from(left.as_millis()).unwrap_or(SWEEP_MS).clamp(1, SWEEP_MS);
        if let Some(resumed) = until(&mut pending.waiting, sleep_ms(pause_ms)).await {
            break Ok(resumed);
        }
        if timer.expired() == Some(Wait::ClientGone) {
            break Err(ErrorKind::ClientAborted);
        }
        if until_at <= Instant::now() {
            break Err(ErrorKind::FilterTimeout);
        }
    };
    timer.disarm();
    resumed
}

/// What becomes of a request whose filter did not come to a verdict.
fn failed(pending: &Pending, place: &Place<'_>, kind: ErrorKind) -> Result<(), Ended> {
    let skipped = pending.on_error == OnError::Skip && kind != ErrorKind::ClientAborted;
    place.core.series.filter(pending.id.0, |series| match kind {
        ErrorKind::FilterTimeout => series.timed_out.increment(),
        ErrorKind::FilterFailed => series.failed.increment(),
        _ => {}
    });
    if !skipped {
        return Err(kind.into());
    }
    place.core.series.filter(pending.id.0, |series| series.skipped.increment());
    Ok(())
}

/// Lets the filters on responses change the head of an answer, the gateway's own included (P7).
pub(super) fn on_response(
    matched: &Matched,
    context: &RequestContext,
    listener: &str,
    answer: &mut Answer,
) {
    let plans = matched.held.plans();
    let (Some(route), Some(chain)) = (plans.route(), plans.chain()) else { return };
    if chain.is_empty() {
        return;
    }
    let upstream_ms = upstream_ms(context, answer);
    let mut call = AnswerCall {
        context,
        head: &mut answer.head,
        route: route.matched(b""),
        listener,
        upstream: matched.upstream_name(),
        endpoint: matched.endpoint_name(),
        upstream_ms,
    };
    let mut progress = matched.progress.get();
    chain.on_response(&mut progress, &mut call);
    matched.progress.set(progress);
}

/// How long the upstream took to its head.
fn upstream_ms(context: &RequestContext, answer: &Answer) -> Option<u64> {
    let asked = answer.asked_at.or(context.timing.started)?;
    let took = answer.head_at?.saturating_duration_since(asked);
    u64::try_from(took.as_millis()).ok()
}
