//! The one access record of an exchange: counters, logs and the filters that want to know.

use super::exchange::Exchange;
use super::forward::Place;
use crate::error::ErrorKind;

/// Records how an exchange ended.
pub(super) fn record(exchange: &Exchange, place: &Place<'_>) {
    let counters = &place.core.counters;
    counters.answered(exchange.answer.status);
    counters.request_body_bytes.add(exchange.upload.bytes);
    counters.response_body_bytes.add(exchange.answer.bytes);
    if let Some(kind) = exchange.answer.error {
        counters.failed(kind);
        if kind == ErrorKind::ClientAborted {
            counters.client_aborts.increment();
        }
    }
    let matched = &exchange.matched;
    if let Some(chain) = matched.held.plans().chain().filter(|chain| !chain.is_empty()) {
        let mut progress = matched.progress.get();
        chain.on_log(&mut progress, &exchange.context, exchange.answer.status);
    }
}
