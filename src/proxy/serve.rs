//! Serving one request: the table of contents of the product.

use std::rc::Rc;

use super::exchange::Exchange;
use super::forward::{Place, forward};
use super::{Downstream, admit, filters, record, respond, target};
use crate::error::ErrorKind;
use crate::filter::{Phase, Reply};
use crate::io::runtime::catch_panic;
use crate::state::Core;

/// What becomes of the client's connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request.
    KeepAlive,
    /// It ends, and the last answer must not be lost.
    Close,
    /// It is cut, so that nobody takes the answer for whole.
    Reset,
}

/// Why a request is not answered by an upstream.
#[derive(Debug)]
pub(super) enum Ended {
    /// By an error.
    Error(ErrorKind),
    /// By an answer of a filter or a route.
    Reply(Box<Reply>),
}

impl From<ErrorKind> for Ended {
    fn from(kind: ErrorKind) -> Ended {
        Ended::Error(kind)
    }
}

/// Serves the request whose head is in `exchange.context`, from routing to the access record.
pub fn serve<'a>(
    exchange: &'a mut Exchange,
    down: &'a Downstream,
    core: &'a Rc<Core>,
) -> impl Future<Output = Next> + 'a {
    // Outside of the future, which would keep both references beside it.
    let place = Place::enter(down, core);
    async move {
        let served = catch_panic(run(exchange, &place)).await;
        place.down.timer.disarm();
        exchange.matched.leave();
        let next = match served {
            Some(Ok(next)) => next,
            Some(Err(ended)) => Box::pin(respond::answer(exchange, &place, ended)).await,
            None => respond::panicked(exchange, &place),
        };
        place.down.mid_answer.set(false);
        record::record(exchange, &place);
        next
    }
}

/// From the head to the last byte of an upstream's answer.
async fn run(exchange: &mut Exchange, place: &Place<'_>) -> Result<Next, Ended> {
    admit::admit(exchange, place)?;
    filters::pass(exchange, place, Phase::Transform).await?;
    target::choose(exchange, place)?;
    filters::pass(exchange, place, Phase::Upstream).await?;
    Ok(forward(exchange, place).await?)
}

/// Answers a request whose head was refused, and records it.
pub async fn refuse(
    exchange: &mut Exchange,
    down: &Downstream,
    core: &Rc<Core>,
    kind: ErrorKind,
) -> Next {
    let place = Place::enter(down, core);
    admit::introduce(exchange, &place);
    respond::answer(exchange, &place, kind.into()).await;
    record::record(exchange, &place);
    Next::Close
}
