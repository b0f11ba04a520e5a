//! Serving one request: the table of contents of the product.

use std::rc::Rc;

use super::exchange::Exchange;
use super::forward::{Place, forward};
use super::{Downstream, admit, respond};
use crate::error::ErrorKind;
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

/// Serves the request whose head is in `exchange.context`, from routing to the access record.
pub async fn serve(exchange: &mut Exchange, down: &Downstream, core: &Rc<Core>) -> Next {
    let snapshot = core.snapshot();
    let listener = down.listener();
    core.counters.in_flight.increment();
    let _in_flight = InFlight(core);

    let forwarded = match admit::admit(exchange, down, core, &snapshot) {
        Ok(route) => forward(exchange, &Place { down, core, listener, route }).await,
        Err(kind) => Err(kind),
    };
    down.timer.disarm();
    let next = match forwarded {
        Ok(next) => next,
        Err(kind) => respond::fail(exchange, down, core, listener, kind).await,
    };
    down.mid_answer.set(false);
    record(exchange, core);
    next
}

/// Answers a request whose head was refused, and records it.
pub async fn refuse(
    exchange: &mut Exchange,
    down: &Downstream,
    core: &Rc<Core>,
    kind: ErrorKind,
) -> Next {
    respond::fail(exchange, down, core, down.listener(), kind).await;
    record(exchange, core);
    Next::Close
}

/// The one access record of an exchange.
fn record(exchange: &Exchange, core: &Core) {
    let counters = &core.counters;
    counters.answered(exchange.answer.status);
    counters.request_body_bytes.add(exchange.upload.bytes);
    counters.response_body_bytes.add(exchange.answer.bytes);
    if let Some(kind) = exchange.answer.error {
        counters.failed(kind);
        if kind == ErrorKind::ClientAborted {
            counters.client_aborts.increment();
        }
    }
}

/// Counts a request as long as it is served.
struct InFlight<'a>(&'a Core);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counters.in_flight.decrement();
    }
}
