//! What a route does with a request: one of its upstreams, or an answer of its own.

use super::exchange::Exchange;
use super::forward::Place;
use super::serve::Ended;
use crate::error::ErrorKind;
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
            matched.target = 0;
            let upstream = place.core.upstream(targets[matched.target].upstream);
            let upstream = upstream.ok_or(ErrorKind::NoEndpoint)?;
            matched.settings = Some(upstream.settings());
            matched.upstream = Some(upstream);
        }
    }
    Ok(())
}
