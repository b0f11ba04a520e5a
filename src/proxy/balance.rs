//! What a request asks of an upstream's choice of endpoint, what the cookie of a sticky upstream says,
//! and what became of a try.

use super::exchange::{Answer, Matched, Upload};
use super::forward::{Attempt, Job};
use super::retry::Failed;
use crate::context::RequestContext;
use crate::error::{ErrorKind, Retry, Side};
use crate::route::RoutePlan;
use crate::upstream::trial::{Probe, Trial};
use crate::upstream::{
    BalancePlan, Endpoint, HashPlan, Outcome, ShardPlan, StickyPlan, Token, Wish,
};

/// What a request wishes: by its route, its shard, its key and its cookie.
pub(super) fn wish<'a>(
    route: &'a RoutePlan,
    target: usize,
    plan: &'a BalancePlan,
    context: &RequestContext,
) -> Wish<'a> {
    let mut wish = Wish { zone: route.zone(target), ..Wish::default() };
    if let Some(directed) = route.directed(target) {
        wish.endpoint = Some(directed.endpoint);
        wish.fallback = directed.fallback;
    }
    let asks = plan.hash.is_some() || plan.shard.is_some() || plan.sticky.is_some();
    if !asks {
        return wish;
    }
    let matched = route.matched(context.path());
    // An empty key is none.
    let hashed = |hash: fn(&[u8]) -> u64| {
        move |value: &[u8]| Some(value).filter(|value| !value.is_empty()).map(hash)
    };
    if let Some(plan) = &plan.hash {
        wish.key = plan.key.with(context, matched, hashed(HashPlan::hash)).flatten();
    }
    // What a route says of the zone goes before what the key says.
    if let (Some(plan), None) = (&plan.shard, wish.zone) {
        let hash = hashed(|value| ShardPlan::bucket(value) as u64);
        let bucket = plan.key.with(context, matched, hash).flatten();
        wish.zone = bucket.map(|bucket| plan.zone(bucket as usize));
    }
    if let Some(plan) = &plan.sticky {
        wish.token = plan.cookie.with(context, matched, Token::parse).flatten();
    }
    wish
}

/// Whether the answer has to name the endpoint by a cookie: another than the request's is there.
pub(super) fn wants_cookie(
    plan: &BalancePlan,
    wish: &Wish<'_>,
    upstream: &str,
    endpoint: &Endpoint,
) -> bool {
    let token = || StickyPlan::token(upstream, &endpoint.plan.authority);
    plan.sticky.is_some() && wish.token.is_none_or(|named| named.0 != token())
}

/// Puts the cookie of a sticky upstream on an answer that has to name its endpoint.
#[inline]
pub(super) fn name_endpoint(answer: &mut Answer, job: &Job<'_>) {
    if job.matched.names_endpoint {
        write_cookie(answer, job);
    }
}

fn write_cookie(answer: &mut Answer, job: &Job<'_>) {
    let matched = job.matched;
    let Some(plan) = &job.settings().balance.sticky else { return };
    let token = StickyPlan::token(matched.upstream_name(), &job.endpoint().plan.authority);
    let secure = job.context.tls.is_some();
    let write = |out: &mut Vec<u8>| plan.write_cookie(Token(token), secure, out);
    answer.head.added.push_with(b"Set-Cookie", write);
}

/// A head came: whoever was to show that with this request has shown it, however long its body or
/// its tunnel lasts.
#[inline]
pub(super) fn settle(answer: &Answer, job: &Job<'_>) {
    if job.matched.trial.is_some() || job.matched.probe.is_some() {
        settle_probes(answer, job);
    }
}

fn settle_probes(answer: &Answer, job: &Job<'_>) {
    let Matched { trial, probe, upstream, counted, .. } = job.matched;
    trial.iter().for_each(Trial::settle);
    probe.iter().for_each(Probe::settle);
    if let Some(upstream) = upstream.as_ref().filter(|_| !is_failure(answer.head.status)) {
        let endpoint = job.endpoint();
        let tally = endpoint.plan.tallies.of(job.core.index, job.core.workers);
        upstream.finish(endpoint, Outcome::Succeeded(None), tally, job.core.now_ms());
        counted.set(true);
    }
}

/// Statuses by which a gateway says that it got no answer.
fn is_failure(status: u16) -> bool {
    (502..=504).contains(&status)
}

/// Counts what became of a try: `failed` is why it ended without a whole answer.
pub(super) fn finish(
    attempt: &Attempt<'_>,
    upload: &Upload,
    answer: &Answer,
    failed: Option<&Failed>,
) {
    let (Attempt { endpoint, matched, .. }, core) = (attempt, attempt.core);
    let Some(upstream) = &matched.upstream else { return };
    // What was sent before it was given a rest says nothing of whether it has recovered.
    let early = upstream.is_probing() && matched.trial.is_none()
        || endpoint.is_probing() && matched.probe.is_none();
    let began = || answer.asked_at.or(attempt.context.timing.started);
    let rested = |since| endpoint.rested_since(since) || upstream.rested_since(since);
    let settled = match failed {
        None => matched.counted.get(),
        // A probe may fail behind the head by which it was let in.
        Some(_) if matched.trial.is_some() || matched.probe.is_some() => false,
        Some(_) => began().is_some_and(rested),
    };
    if early || settled {
        return;
    }
    let outcome = match failed {
        None if is_failure(answer.status) => Outcome::Failed,
        None if upstream.wants_times() => Outcome::Succeeded(head_us(attempt, answer)),
        None => Outcome::Succeeded(None),
        Some(failed) => outcome(attempt, upload, answer, failed),
    };
    let tally = endpoint.plan.tallies.of(core.index, core.workers);
    upstream.finish(endpoint, outcome, tally, core.now_ms());
}

fn outcome(attempt: &Attempt<'_>, upload: &Upload, answer: &Answer, failed: &Failed) -> Outcome {
    let (kind, terms) = (failed.kind, &attempt.matched.terms);
    let failure = || match &failed.incident {
        Some(incident) => Outcome::FailedTogether { first: incident.count() },
        None => Outcome::Failed,
    };
    match (kind.side(), kind.retry()) {
        // The origin closed the connection while it was idle, or sends us elsewhere in good order.
        (_, Retry::Stale) if (failed.stale || failed.reused) && failed.incident.is_none() => {
            Outcome::Neither
        }
        _ if failed.by_client => Outcome::Neither,
        (_, Retry::Unseen) => Outcome::Neither,
        // A client asked for what this origin does not offer: nobody is to isolate it that way.
        _ if kind == ErrorKind::UpgradeIgnored => Outcome::Neither,
        (Side::Upstream, _) => failure(),
        // The whole request was there, and the route's time passed with the origin, not with a
        // client that takes its answer slowly or gave the request no time.
        (Side::Gateway, _)
            if kind == ErrorKind::TotalTimeout
                && upload.whole
                && answer.status == 0
                && !terms.total_of_client =>
        {
            failure()
        }
        (Side::Gateway | Side::Client, _) => Outcome::Neither,
    }
}

/// Time to the head of the answer, from when its connection was asked for.
fn head_us(attempt: &Attempt<'_>, answer: &Answer) -> Option<u64> {
    let asked = answer.asked_at.or(attempt.context.timing.started)?;
    let took = answer.head_at?.saturating_duration_since(asked);
    u64::try_from(took.as_micros()).ok()
}
