//! What a request asks of an upstream's choice of endpoint, what the cookie of a sticky upstream says,
//! and what became of a try.

use super::exchange::{Answer, Exchange};
use super::forward::{Job, Place};
use crate::context::RequestContext;
use crate::error::{ErrorKind, Retry, Side};
use crate::route::RoutePlan;
use crate::upstream::{
    BalancePlan, Endpoint, HashPlan, Outcome, ShardPlan, StickyPlan, Token, Upstream, Wish,
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
pub(super) fn name_endpoint(answer: &mut Answer, job: &Job<'_>) {
    let matched = job.matched;
    if !matched.names_endpoint {
        return;
    }
    let Some(plan) = &job.settings().balance.sticky else { return };
    let token = StickyPlan::token(matched.upstream_name(), &job.endpoint().plan.authority);
    let secure = job.context.tls.is_some();
    let write = |out: &mut Vec<u8>| plan.write_cookie(Token(token), secure, out);
    answer.head.added.push_with(b"Set-Cookie", write);
}

/// Counts what became of a try: `failed` is why it ended without a whole answer, and whether its
/// connection may have been stale.
pub(super) fn finish(
    exchange: &Exchange,
    place: &Place<'_>,
    upstream: &Upstream,
    endpoint: &Endpoint,
    failed: Option<(ErrorKind, bool)>,
) {
    let core = place.core;
    let tally = endpoint.plan.tallies.of(core.index, core.workers);
    upstream.finish(endpoint, outcome(exchange, failed), tally, core.now_ms());
}

fn outcome(exchange: &Exchange, failed: Option<(ErrorKind, bool)>) -> Outcome {
    let Some((kind, stale)) = failed else {
        return match exchange.answer.status {
            502..=504 => Outcome::Failed,
            _ => Outcome::Succeeded(head_us(exchange)),
        };
    };
    match (kind.side(), kind.retry()) {
        // The origin closed the connection while it was idle, or sends us elsewhere in good order.
        (_, Retry::Stale) if stale => Outcome::Neither,
        (_, Retry::Unseen) => Outcome::Neither,
        // A client asked for what this origin does not offer: nobody is to isolate it that way.
        _ if kind == ErrorKind::UpgradeIgnored => Outcome::Neither,
        (Side::Upstream, _) => Outcome::Failed,
        // The whole request was there, and the time passed with the origin.
        (Side::Gateway, _) if kind == ErrorKind::TotalTimeout && exchange.upload.whole => {
            Outcome::Failed
        }
        (Side::Gateway | Side::Client, _) => Outcome::Neither,
    }
}

/// Time to the head of the answer, from when its connection was asked for.
fn head_us(exchange: &Exchange) -> Option<u64> {
    let timing = &exchange.context.timing;
    let asked = timing.upstream_started.or(timing.started)?;
    let took = exchange.answer.head_at?.saturating_duration_since(asked);
    u64::try_from(took.as_micros()).ok()
}
