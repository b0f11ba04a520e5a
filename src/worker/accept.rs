//! The listeners of one core and their accept loops.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use super::{Opened, Worker};
use crate::io::listener::is_exhausted;
use crate::io::{Listener, Stream, sleep_ms, spawn};
use crate::limits::{ACCEPT_BURST_MAX, DESCRIPTOR_PAUSE_MS, HANDSHAKE_MS, SWEEP_MS};
use crate::proxy::{Downstream, ListenerState};
use crate::snapshot::Snapshot;

/// A listener that accepts on this core.
pub(super) struct Accepting {
    listener: Listener,
    state: Rc<ListenerState>,
    closed: Cell<bool>,
}

/// Begins to accept on a listener.
pub(super) fn open(worker: &Rc<Worker>, opened: Opened) -> std::io::Result<()> {
    let port = opened.socket.local_addr()?.port();
    let open = Rc::new(Accepting {
        listener: Listener::adopt(opened.socket)?,
        state: ListenerState::new(opened.plan, port),
        closed: Cell::new(false),
    });
    worker.listeners.borrow_mut().push(open.clone());
    let worker = worker.clone();
    spawn(async move {
        worker.persist("accept", || run(&worker, &open)).await;
    });
    Ok(())
}

/// Follows a snapshot. Listeners that stay get their new plans; one that has only got another name
/// keeps its socket and its connections. What is left is to be closed, by [`finish`].
pub(super) fn follow(worker: &Worker, snapshot: &Snapshot) -> Vec<Rc<Accepting>> {
    let plans = &snapshot.listeners;
    let mut gone = Vec::new();
    worker.listeners.borrow_mut().retain(|open| {
        let kept = plans.iter().find(|plan| plan.id == open.state.id());
        match kept {
            Some(plan) => open.state.apply(plan.clone()),
            None => gone.push(open.clone()),
        }
        kept.is_some()
    });
    let mut listeners = worker.listeners.borrow_mut();
    for plan in plans {
        if listeners.iter().any(|open| open.state.id() == plan.id) {
            continue;
        }
        // The control thread opens no socket where one of ours is to be had.
        let takes = |open: &Rc<Accepting>| open.state.hands_over_to(plan);
        if let Some(at) = gone.iter().position(takes) {
            let open = gone.swap_remove(at);
            open.state.apply(plan.clone());
            listeners.push(open);
        }
    }
    gone.iter().for_each(|open| open.state.leave());
    gone
}

/// Closes listeners without losing a connection: those whose handshake has begun are taken, and
/// those that the kernel has queued, since their clients have no way to know.
pub(super) async fn finish(worker: &Rc<Worker>, gone: &[Rc<Accepting>]) {
    gone.iter().for_each(|open| open.listener.refuse_new());
    if !gone.is_empty() {
        sleep_ms(HANDSHAKE_MS).await;
    }
    for open in gone {
        open.listener.finish(|stream, peer| admit(worker, stream, peer, open));
        open.closed.set(true);
    }
}

/// Closes all listeners.
pub(super) async fn finish_all(worker: &Rc<Worker>) {
    let gone = worker.listeners.take();
    finish(worker, &gone).await;
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
            Some((stream, peer)) => admit(worker, stream, peer, open),
            None => break,
        }
    }
    Ok(())
}

/// Takes a connection, or closes it at once at the cap.
fn admit(worker: &Rc<Worker>, stream: Stream, peer: SocketAddr, open: &Accepting) {
    let counters = &worker.core.counters;
    counters.accepted.increment();
    if counters.connections.get() >= worker.connections_max.get() as u64 {
        counters.refused_at_cap.increment();
        return;
    }
    let down = Downstream::new(stream, peer, &open.state, &worker.core);
    super::open::start(&worker.core, Box::new(down));
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
