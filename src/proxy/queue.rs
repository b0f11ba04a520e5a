//! A place in flight: on the route, then at the upstream, where a request may have to wait for it.

use std::time::{Duration, Instant};

use super::exchange::{Answer, Exchange};
use super::filters::left_ms;
use super::forward::{Attempt, Place};
use crate::error::ErrorKind;
use crate::io::runtime::until;
use crate::io::{Wait, sleep_ms};
use crate::limits::{SWEEP_MS, TIMEOUT_MS_MAX};
use crate::upstream::Upstream;
use crate::upstream::bulkhead::{Admission, Ticket};

/// Takes a place on the route, where it bounds what is in flight, and one at the upstream. The exchange
/// holds them until it is over. Where there is none at the upstream, one in its queue.
///
/// # Errors
/// All are taken.
pub(super) fn enter(
    exchange: &mut Exchange,
    place: &Place<'_>,
) -> Result<Option<Ticket>, ErrorKind> {
    let matched = &mut exchange.matched;
    if let Some(max) = matched.terms.in_flight_max {
        let route = matched.held.plans().route().map(|route| route.number.0);
        let share = place.core.share(max);
        let passage = route.map(|route| place.core.gates.enter(route, share));
        matched.passage = passage.transpose()?;
    }
    let upstream = matched.upstream.as_ref().ok_or(ErrorKind::NoEndpoint)?;
    matched.trial = upstream.pass_breaker()?;
    match upstream.admit()? {
        Admission::Admitted(permit) => {
            matched.permit = Some(permit);
            Ok(None)
        }
        Admission::Queued(ticket) => Ok(Some(ticket)),
    }
}

/// Tells the upstream how long an answer took, where its places depend on that. An answer that says
/// that it could not serve, or a connection that was not made, says nothing of how long serving takes.
pub(super) fn observe(
    attempt: &Attempt<'_>,
    upstream: &Upstream,
    answer: &Answer,
    failed: Option<ErrorKind>,
) {
    let answered = failed.is_none() && answer.status < 500;
    let came = match answer.head_at {
        Some(came) if answered => came,
        _ if failed == Some(ErrorKind::ResponseTimeout) => Instant::now(),
        _ => return,
    };
    let Some(asked) = answer.asked_at.or(attempt.context.timing.started) else { return };
    let took = came.saturating_duration_since(asked).as_micros();
    let took_us = u64::try_from(took).unwrap_or(u64::MAX);
    if let Some(places) = upstream.bulkhead.observe(attempt.core.now_ms(), took_us) {
        attempt.core.series.upstream(upstream.id.0, |it| it.limit.set(places as u64));
    }
}

/// Waits for a place at the upstream, within its time. The client is watched meanwhile.
///
/// # Errors
/// None came in time, or the client has gone.
pub(super) async fn wait(
    mut ticket: Ticket,
    exchange: &mut Exchange,
    place: &Place<'_>,
) -> Result<(), ErrorKind> {
    let upstream = ticket.upstream().clone();
    let series = &place.core.series;
    series.upstream(upstream.id.0, |it| it.queue.increment());
    let began = Instant::now();
    let total_ms = left_ms(exchange);
    let bound = Duration::from_millis(upstream.bulkhead.timeout_ms().min(total_ms));
    let timer = &place.down.timer;
    timer.arm(Wait::Queue, TIMEOUT_MS_MAX);
    let waited = loop {
        let left = bound.saturating_sub(began.elapsed());
        let pause_ms = u64::try_from(left.as_millis()).unwrap_or(SWEEP_MS).clamp(1, SWEEP_MS);
        if let Some(permit) = until(&mut ticket, sleep_ms(pause_ms)).await {
            break Ok(permit);
        }
        if timer.expired() == Some(Wait::ClientGone) {
            break Err(ErrorKind::ClientAborted);
        }
        if began.elapsed() >= bound {
            let total = total_ms < upstream.bulkhead.timeout_ms();
            break Err(if total { ErrorKind::TotalTimeout } else { ErrorKind::QueueTimeout });
        }
    };
    timer.disarm();
    let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    series.upstream(upstream.id.0, |it| {
        it.queue.decrement();
        it.queued.increment();
        it.queue_ms.add(waited_ms);
    });
    exchange.answer.asked_at = Some(Instant::now());
    exchange.matched.permit = Some(waited?);
    // What opened meanwhile lets nobody through who asked before.
    if exchange.matched.trial.is_none() && upstream.is_shut() {
        return Err(ErrorKind::BreakerOpen);
    }
    Ok(())
}
