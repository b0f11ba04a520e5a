//! What a route does with a request: one of its upstreams, or an answer of its own.

use std::rc::Rc;

use super::balance;
use super::exchange::Exchange;
use super::forward::{Attempt, Place};
use super::serve::Ended;
use crate::context::{RequestContext, Scope};
use crate::error::ErrorKind;
use crate::filter::Reply;
use crate::route::{Action, Respond, RoutePlan};
use crate::upstream::{Avoid, Endpoint, Upstream, Wish};

/// Chooses the upstream.
///
/// # Errors
/// The route answers by itself, or its upstream is gone.
pub(super) fn choose(exchange: &mut Exchange, place: &Place<'_>) -> Result<(), Ended> {
    let Exchange { matched, context, .. } = exchange;
    let plans = matched.held.plans();
    let route = plans.route().ok_or(ErrorKind::RouteMissing)?;
    match &route.action {
        Action::Forward(targets) => {
            matched.target = targets.choose_index(place.core.random.next());
            let id = targets.all()[matched.target].upstream;
            // A reload may have removed it while a filter waited.
            let upstream = place.core.upstream(id).or_else(|| plans.upstream(id).cloned());
            let upstream = upstream.ok_or(ErrorKind::NoEndpoint)?;
            matched.settings = Some(upstream.settings());
            matched.upstream = Some(upstream);
            Ok(())
        }
        Action::Respond(respond) => Err(Ended::Reply(Box::new(answer(respond)))),
        Action::Redirect(redirect) => {
            let mut location = Vec::new();
            let mut scope = Scope::of_request(context, route.matched(context.path()));
            scope.listener = &place.listener().name;
            redirect.location(&scope, &mut location)?;
            let reply = Reply::of(redirect.status).field("Location", location);
            Err(Ended::Reply(Box::new(reply)))
        }
    }
}

fn answer(respond: &Respond) -> Reply {
    let reply = Reply { body: respond.body.to_vec(), ..Reply::of(respond.status) };
    match respond.body.is_empty() {
        true => reply,
        false => reply.field("Content-Type", respond.content_type.as_bytes()),
    }
}

/// Picks an endpoint as the route and the request ask for, none of those to `avoid`, and writes down
/// what it is sent as Host.
///
/// # Errors
/// There is none, or its Host would be none.
pub(super) fn pick(
    exchange: &mut Exchange,
    place: &Place<'_>,
    upstream: &Upstream,
    avoid: Avoid<'_>,
) -> Result<Rc<Endpoint>, ErrorKind> {
    let Exchange { matched, context, .. } = exchange;
    let plans = matched.held.plans();
    let route = plans.route().ok_or(ErrorKind::RouteMissing)?;
    let settings = matched.settings.as_ref().ok_or(ErrorKind::NoEndpoint)?;
    let wish = Wish {
        avoid,
        now_ms: place.core.now_ms(),
        ..balance::wish(route, matched.target, &settings.balance, context)
    };
    let endpoint = upstream.pick(&wish)?;
    matched.names_endpoint =
        balance::wants_cookie(&settings.balance, &wish, &upstream.name, &endpoint);
    let mut host = std::mem::take(&mut context.target.host_rewritten);
    let written = write_host(route, context, place, upstream, &endpoint, &mut host);
    context.target.host_rewritten = host;
    written.map(|()| endpoint)
}

/// Picks an endpoint for a second try beside the first one: another that is sound, and what it is sent
/// as Host where the route writes that. None where there is none, or its Host would be none.
pub(super) fn pick_beside(
    first: &Attempt<'_>,
    upstream: &Upstream,
) -> Option<(Rc<Endpoint>, Option<Vec<u8>>)> {
    let Attempt { place, matched, context, .. } = *first;
    let plans = matched.held.plans();
    let route = plans.route()?;
    let balance = &matched.settings().balance;
    let mut tried = matched.tried.clone();
    tried.push(first.endpoint.id);
    let wish = Wish {
        avoid: Avoid { tried: &tried, unsound: true },
        now_ms: place.core.now_ms(),
        ..balance::wish(route, matched.target, balance, context)
    };
    let endpoint = upstream.pick(&wish).ok()?;
    let mut host = Vec::new();
    write_host(route, context, place, upstream, &endpoint, &mut host).ok()?;
    Some((endpoint, route.rewrites_host().then_some(host)))
}

/// Writes down what an endpoint is sent as Host, where the route says so.
fn write_host(
    route: &RoutePlan,
    context: &RequestContext,
    place: &Place<'_>,
    upstream: &Upstream,
    endpoint: &Endpoint,
    host: &mut Vec<u8>,
) -> Result<(), ErrorKind> {
    if !route.rewrites_host() {
        return Ok(());
    }
    let mut scope = Scope::of_request(context, route.matched(context.path()));
    scope.listener = &place.listener().name;
    scope.upstream = &upstream.name;
    scope.endpoint = endpoint.plan.host();
    let rewritten = route.upstream_host(&scope, host);
    if !matches!(rewritten, Ok(true)) {
        host.clear();
    }
    rewritten.map(|_| ())
}
