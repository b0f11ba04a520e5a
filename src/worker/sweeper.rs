//! The sweep of a core: deadlines, idle connections, clients that have gone away, pools.

use std::rc::Rc;

use super::{Worker, service};
use crate::base::buffer;
use crate::io::stream::reset_by_peer;
use crate::io::{Handle, Wait, sleep_ms};
use crate::limits::{DRAIN_IDLE_MS, SWEEP_MS, TRIM_MS};
use crate::state::Core;

/// What has waited for a whole sweep at least: a wait is as old as the sweep before it, so that one
/// that has just begun looks a sweep old at the next.
const LONG_MS: u64 = 2 * SWEEP_MS;

/// Starts the sweeps of a core.
pub(super) fn start(worker: &Rc<Worker>) {
    let core = worker.core.clone();
    service(worker, "sweep", move || run(core.clone()));
}

async fn run(core: Rc<Core>) {
    let (mut coarse_ms, mut trimmed_ms) = (0, 0);
    loop {
        sleep_ms(core.deadlines.pause_ms()).await;
        let now_ms = core.clock_ms();
        let coarse = now_ms >= coarse_ms + SWEEP_MS;
        if coarse {
            coarse_ms = now_ms;
        }
        sweep(&core, now_ms, coarse);
        if now_ms >= trimmed_ms + TRIM_MS {
            trimmed_ms = now_ms;
            buffer::trim();
        }
    }
}

/// One sweep; a coarse one looks at clients and pools too.
pub fn sweep(core: &Core, now_ms: u64, coarse: bool) {
    expire(core, now_ms);
    if coarse {
        give_up_on_gone_clients(core);
        core.sweep(now_ms);
    }
}

/// Ends the waits whose time has passed, and takes the buffers of connections that are idle.
fn expire(core: &Core, now_ms: u64) {
    let fine = core.snapshot().fine_timeouts;
    let draining = core.draining.get();
    core.deadlines.sweep(now_ms, fine, |armed| {
        let Some(wait) = Wait::of(armed.wait) else { return };
        if armed.expired {
            return wait.act(armed.target);
        }
        if !matches!(wait, Wait::Idle | Wait::Parked | Wait::Streams) {
            return;
        }
        // Streams end by themselves: their connection is told at once to take no more.
        let told = wait == Wait::Streams || armed.since_ms >= DRAIN_IDLE_MS;
        if (draining || armed.target.leaving.get()) && told {
            armed.expire(wait as u8);
            return wait.act(armed.target);
        }
        if let Some(read) = &armed.target.idle_read
            && wait != Wait::Parked
            && armed.since_ms >= LONG_MS
        {
            read.cancel();
        }
    });
}

/// Exchanges that have waited for longer than a sweep: whose client has reset its connection is
/// told by one system call over all of them, and their upstreams are let go.
fn give_up_on_gone_clients(core: &Core) {
    let mut watched: Vec<Handle> = Vec::new();
    let waits_long = |wait: u8, since_ms: u64| {
        since_ms >= LONG_MS && Wait::of(wait).is_some_and(Wait::watches_client)
    };
    core.deadlines.visit(|armed| {
        if waits_long(armed.wait, armed.since_ms) {
            watched.push(armed.target.client.clone());
        }
    });
    if watched.is_empty() {
        return;
    }
    let gone = reset_by_peer(&watched);
    let mut index = 0;
    core.deadlines.visit(|mut armed| {
        if !waits_long(armed.wait, armed.since_ms) {
            return;
        }
        if gone.binary_search(&index).is_ok() {
            armed.expire(Wait::ClientGone as u8);
            Wait::ClientGone.act(armed.target);
        }
        index += 1;
    });
}
