//! Draining a core: stop accepting, let requests end, report.

use std::rc::Rc;

use super::{Report, Worker, accept};
use crate::io::sleep_ms;
use crate::limits::SWEEP_FINE_MS;

/// Goes on accepting for `delay_ms`, closes the listeners, and reports when the last connection
/// has ended or `bound_ms` have passed.
pub(super) async fn run(worker: Rc<Worker>, delay_ms: u64, bound_ms: u64) {
    sleep_ms(delay_ms).await;
    worker.core.draining.set(true);
    let end_ms = worker.core.clock_ms() + bound_ms;
    accept::finish_all(&worker).await;
    let counters = &worker.core.counters;
    while counters.connections.get() > 0 && worker.core.clock_ms() < end_ms {
        sleep_ms(SWEEP_FINE_MS).await;
    }
    // The log's thread is waited for next, and what has been recorded since the last sweep is here.
    worker.core.log.borrow_mut().flush();
    let cut = usize::try_from(counters.connections.get()).unwrap_or(usize::MAX);
    let _ = worker.reports.send(Report::Drained { worker: worker.index, cut });
}
