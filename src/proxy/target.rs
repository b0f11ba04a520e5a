//! What a route does with a request: one of its upstreams, or an answer of its own.

use super::exchange::Exchange;
use super::forward::Place;
use super::serve::Ended;
use crate::context::Scope;
use crate::error::ErrorKind;
use crate::filter::Reply;
use crate::route::Action;

/// Chooses the upstream.
///
/// # Errors
/// The route answers by itself, or its upstream is gone.
pub(super) fn choose(exchange: &mut Exchange, place: &Place<'_>) -> Result<(), Ended> {
    let matched = &mut exchange.matched;
    let plans = matched.held.plans();
    let route = plans.route().ok_or(ErrorKind::RouteMissing)?;
    match &route.action {
        Action::Forward(targets) => {
            let target = targets.choose(place.core.random.next());
            let upstream = place.core.upstream(target.upstream).ok_or(ErrorKind::NoEndpoint)?;
            matched.settings = Some(upstream.settings());
            matched.upstream = Some(upstream);
            Ok(())
        }
        Action::Redirect(redirect) => {
            let context = &exchange.context;
            let scope = Scope::of_request(context, route.matched(context.path()));
            let mut location = Vec::new();
            redirect.location(&scope, &mut location)?;
            Err(Ended::Reply(Box::new(Reply::of(redirect.status).field("Location", location))))
        }
        Action::Respond(respond) => {
            let mut reply = Reply::of(respond.status);
            if !respond.body.is_empty() {
                reply = reply.field("Content-Type", respond.content_type.as_bytes());
                reply.body = respond.body.to_vec();
            }
            Err(Ended::Reply(Box::new(reply)))
        }
    }
}
