//! From accept to the first request: what a connection says before it speaks HTTP.

use std::rc::Rc;

use super::{conn, handshake};
use crate::io::runtime::catch_panic;
use crate::io::spawn;
use crate::proxy::Downstream;
use crate::state::Core;

/// Starts to serve a connection that has just been accepted. One that has nothing to say before its
/// first request is served at once.
pub(super) fn start(core: &Rc<Core>, down: Box<Downstream>) {
    if down.listener().tls.is_none() {
        return conn::start(core.clone(), down);
    }
    let core = core.clone();
    // A task of its own, so that nobody waits for a slow client.
    spawn(async move {
        match catch_panic(open(&core, down)).await {
            Some(Some(down)) => conn::start(core, down),
            Some(None) => {}
            None => {
                core.counters.panics.increment();
                tracing::error!("a panic ended a handshake; the others go on");
            }
        }
    });
}

/// One step after the other; `None`: the connection has ended.
async fn open(core: &Core, down: Box<Downstream>) -> Option<Box<Downstream>> {
    match down.listener().tls.clone() {
        Some(tls) => handshake::secure(core, down, &tls).await,
        None => Some(down),
    }
}
