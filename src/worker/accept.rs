//! The accept loop of one listener on one core.

use std::net::SocketAddr;
use std::rc::Rc;

use super::{Worker, conn};
use crate::io::listener::is_exhausted;
use crate::io::{Listener, Stream, sleep_ms};
use crate::limits::{ACCEPT_BURST_MAX, DESCRIPTOR_PAUSE_MS, SWEEP_MS};
use crate::proxy::Downstream;

/// Accepts until the worker closes its listeners.
pub(super) async fn run(worker: &Rc<Worker>, listener: &Listener, index: usize) {
    let mut pause_ms = DESCRIPTOR_PAUSE_MS.0;
    loop {
        // The pause bounds how long a drain waits for a listener that nobody connects to.
        if listener.readable_within(SWEEP_MS * 5).await.is_err() {
            sleep_ms(pause_ms).await;
        }
        if worker.closing.get() {
            break;
        }
        match burst(worker, listener, index) {
            Ok(()) => pause_ms = DESCRIPTOR_PAUSE_MS.0,
            Err(error) if is_exhausted(&error) => {
                worker.core.counters.descriptors_exhausted.increment();
                shed(worker, listener);
                sleep_ms(pause_ms).await;
                pause_ms = (pause_ms * 2).min(DESCRIPTOR_PAUSE_MS.1);
            }
            Err(error) => {
                tracing::warn!(%error, listener = index, "a connection could not be accepted");
                sleep_ms(DESCRIPTOR_PAUSE_MS.0).await;
            }
        }
    }
}

/// Serves what the kernel has queued, which was accepted as far as its clients know, and closes the
/// listener.
pub(super) fn finish(worker: &Rc<Worker>, listener: Listener, index: usize) {
    while let Ok(Some((stream, peer))) = listener.accept() {
        admit(worker, stream, peer, index);
    }
    drop(listener);
    worker.listeners.set(worker.listeners.get() - 1);
}

fn burst(worker: &Rc<Worker>, listener: &Listener, index: usize) -> std::io::Result<()> {
    for _ in 0..ACCEPT_BURST_MAX {
        match listener.accept()? {
            Some((stream, peer)) => admit(worker, stream, peer, index),
            None => break,
        }
    }
    Ok(())
}

/// Takes a connection, or closes it at once at the cap.
fn admit(worker: &Rc<Worker>, stream: Stream, peer: SocketAddr, index: usize) {
    let counters = &worker.core.counters;
    counters.accepted.increment();
    if counters.connections.get() >= worker.connections_max as u64 {
        counters.refused_at_cap.increment();
        return;
    }
    let snapshot = worker.core.snapshot();
    let plan = &snapshot.listeners[index];
    let down = Downstream::new(stream, peer, index, plan, &worker.core);
    conn::start(worker.core.clone(), Box::new(down));
}

/// With the last descriptor given up a connection can be taken and closed, so that its client need
/// not wait in the queue.
fn shed(worker: &Worker, listener: &Listener) {
    let mut reserve = worker.reserve.borrow_mut();
    *reserve = None;
    if let Ok(Some(refused)) = listener.accept() {
        worker.core.counters.refused_at_cap.increment();
        drop(refused);
    }
    *reserve = std::fs::File::open("/dev/null").ok();
}
