//! A client's connection: waiting for a request, reading its head, serving it, and again.

use std::rc::Rc;

use super::Worker;
use crate::base::buffer::Buf;
use crate::http1::conn::{NoHead, read_request_head};
use crate::io::runtime::catch_panic;
use crate::io::{Cancel, Wait, spawn};
use crate::limits::DRAIN_IDLE_MS;
use crate::observe::WorkerCounters;
use crate::proxy::{Downstream, Exchange, Next, refuse, serve};
use crate::state::Core;

/// Starts to serve a connection, in a task that survives its panics.
pub(super) fn start(worker: &Rc<Worker>, down: Downstream) {
    let core = worker.core.clone();
    core.counters.connections.increment();
    spawn(async move {
        let _open = Open(&core.counters);
        if catch_panic(run(&core, down)).await.is_none() {
            core.counters.panics.increment();
            tracing::error!("a panic ended a connection; the others go on");
        }
    });
}

/// Serves requests until the connection ends.
pub async fn run(core: &Rc<Core>, down: Downstream) {
    let mut behind = Buf::empty();
    loop {
        if behind.is_empty() {
            match next_bytes(core, &down, behind).await {
                Some(bytes) => behind = bytes,
                None => return,
            }
        }
        let mut exchange = Exchange::take();
        exchange.context.request.bytes = std::mem::take(&mut behind);
        let next = match read_head(core, &down, &mut exchange).await {
            Ok(()) => serve(&mut exchange, &down, core).await,
            Err(NoHead::Closed) => return,
            Err(NoHead::Refused(kind)) => Box::pin(refuse(&mut exchange, &down, core, kind)).await,
        };
        match next {
            Next::KeepAlive => behind = exchange.take_behind(),
            Next::Close => {
                drop(exchange);
                return Box::pin(down.close()).await;
            }
            Next::Reset => return down.reset(),
        }
    }
}

async fn read_head(
    core: &Rc<Core>,
    down: &Downstream,
    exchange: &mut Exchange,
) -> Result<(), NoHead> {
    let snapshot = core.snapshot();
    let listener = &snapshot.listeners[down.listener];
    down.timer.arm(Wait::Head, listener.head_timeout_ms);
    let Exchange { context, parser, .. } = exchange;
    let request = &mut context.request;
    let read = read_request_head(&down.stream, request, parser, &listener.head, &down.timer).await;
    down.timer.disarm();
    read
}

/// Waits for the first bytes of a request; `None` when the client is done or has been idle too
/// long. `spare` is a buffer to use again.
///
/// A busy connection waits in a read: four operations a request. After a sweep or two the sweeper
/// cancels that read, and the connection waits without a buffer.
async fn next_bytes(core: &Core, down: &Downstream, spare: Buf) -> Option<Buf> {
    let mut idle_ms = {
        let snapshot = core.snapshot();
        snapshot.listeners[down.listener].idle_timeout_ms
    };
    if core.draining.get() {
        idle_ms = idle_ms.min(DRAIN_IDLE_MS);
    }
    let mut buf = if spare.capacity() > 0 { spare } else { Buf::for_head() };
    buf.compact();
    down.timer.arm(Wait::Idle, idle_ms);
    let (result, back) = down.stream.read_cancelable(buf, &down.idle_read).await;
    let (result, back) = match result {
        Err(error) if Cancel::is_canceled(&error) => {
            drop(back);
            down.timer.arm(Wait::Parked, idle_ms.saturating_sub(down.timer.waited_ms()));
            down.stream.readable().await.ok()?;
            down.stream.read(Buf::for_head()).await
        }
        other => (other, back),
    };
    match result {
        Ok(count) if count > 0 => Some(back),
        _ => None,
    }
}

/// Counts a connection as long as it is open.
struct Open<'a>(&'a WorkerCounters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.decrement();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F>(_: impl Fn(&'static Rc<Core>, Downstream) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    /// Design: an idle connection is one heap block as large as the largest state of this future.
    #[test]
    fn the_connection_future_stays_below_a_kibibyte() {
        let bytes = size(run);
        assert!(bytes < 1024, "{bytes} bytes");
    }
}
