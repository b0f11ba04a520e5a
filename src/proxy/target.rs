//! What a route does with a request: one of its upstreams, or an answer of its own.

use std::rc::Rc;

use super::balance;
use super::exchange::Exchange;
use super::forward::Place;
use super::serve::Ended;
use crate::context::Scope;
use crate::error::ErrorKind;
use crate::filter::Reply;
use crate::route::{Action, Respond};
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
    if !route.rewrites_host() {
        return Ok(endpoint);
    }
    let mut host = std::mem::take(&mut context.target.host_rewritten);
    let mut scope = Scope::of_request(context, route.matched(context.path()));
    scope.listener = &place.listener().name;
    scope.upstream = &upstream.name;
    scope.endpoint = endpoint.plan.host();
    let rewritten = route.upstream_host(&scope, &mut host);
    if !matches!(rewritten, Ok(true)) {
        host.clear();
    }
    context.target.host_rewritten = host;
    rewritten.map(|_| endpoint)
}
