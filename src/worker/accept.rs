//! The listeners of one core and their accept loops.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use super::{Opened, Worker, conn};
use crate::io::listener::is_exhausted;
use crate::io::{Listener, Stream, sleep_ms, spawn};
use crate::limits::{ACCEPT_BURST_MAX, DESCRIPTOR_PAUSE_MS, SWEEP_MS};
use crate::proxy::{Downstream, ListenerState};
use crate::snapshot::Snapshot;

/// A listener that accepts on this core.
pub(super) struct Accepting {
    listener: Listener,
    state: Rc<ListenerState>,
    closed: Cell<bool>,
}

/// Begins to accept on a listener; one of the same identity has given up its port, and ends.
pub(super) fn open(worker: &Rc<Worker>, opened: Opened) -> std::io::Result<()> {
    let id = opened.plan.id;
    let port = opened.socket.local_addr()?.port();
    let accepting = Rc::new(Accepting {
        listener: Listener::adopt(opened.socket)?,
        state: ListenerState::new(opened.plan, port),
        closed: Cell::new(false),
    });
    close(worker, |open| open.state.id() == id);
    worker.listeners.borrow_mut().push(accepting.clone());
    let worker = worker.clone();
    spawn(async move {
        worker.persist("accept", || run(&worker, &accepting)).await;
    });
    Ok(())
}

/// Follows a snapshot: listeners that stay get their new plans, and those that are gone are closed
/// without losing a connection.
pub(super) fn follow(worker: &Rc<Worker>, snapshot: &Snapshot) {
    let plan = |open: &Accepting| {
        let id = open.state.id();
        snapshot.listeners.iter().find(|plan| plan.id == id)
    };
    for open in worker.listeners.borrow().iter() {
        if let Some(plan) = plan(open) {
            open.state.apply(plan.clone());
        }
    }
    close(worker, |open| plan(open).is_none());
}

/// Closes all listeners.
pub(super) fn close_all(worker: &Rc<Worker>) {
    close(worker, |_| true);
}

/// Serves what the kernel has queued, which was accepted as far as its clients know, and closes.
fn close(worker: &Rc<Worker>, which: impl Fn(&Accepting) -> bool) {
    let closing: Vec<_> = worker.listeners.borrow_mut().extract_if(.., |it| which(it)).collect();
    for open in closing {
        open.listener.finish(|stream, peer| admit(worker, stream, peer, &open.state));
        open.state.leave();
        open.closed.set(true);
    }
}

/// Accepts until the listener is closed.
async fn run(worker: &Rc<Worker>, open: &Accepting) {
    let listener = &open.listener;
    let mut pause_ms = DESCRIPTOR_PAUSE_MS.0;
    loop {
        // The close wakes it; the bound is for a kernel that does not.
        let waited = listener.readable_within(SWEEP_MS * 5).await;
        if open.closed.get() {
            break;
        }
        if waited.is_err() {
            sleep_ms(pause_ms).await;
        }
        match burst(worker, open) {
            Ok(()) => pause_ms = DESCRIPTOR_PAUSE_MS.0,
            Err(error) if is_exhausted(&error) => {
                worker.core.counters.descriptors_exhausted.increment();
                shed(worker, listener);
                sleep_ms(pause_ms).await;
                pause_ms = (pause_ms * 2).min(DESCRIPTOR_PAUSE_MS.1);
            }
            Err(_) if open.closed.get() => break,
            Err(error) => {
                tracing::warn!(%error, listener = ?open.state.id(), "a connection could not be accepted");
                sleep_ms(DESCRIPTOR_PAUSE_MS.0).await;
            }
        }
    }
}

fn burst(worker: &Rc<Worker>, open: &Accepting) -> std::io::Result<()> {
    for _ in 0..ACCEPT_BURST_MAX {
        match open.listener.accept()? {
            Some((stream, peer)) => admit(worker, stream, peer, &open.state),
            None => break,
        }
    }
    Ok(())
}

/// Takes a connection, or closes it at once at the cap.
fn admit(worker: &Rc<Worker>, stream: Stream, peer: SocketAddr, listener: &Rc<ListenerState>) {
    let counters = &worker.core.counters;
    counters.accepted.increment();
    if counters.connections.get() >= worker.connections_max.get() as u64 {
        counters.refused_at_cap.increment();
        return;
    }
    let down = Downstream::new(stream, peer, listener, &worker.core);
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
