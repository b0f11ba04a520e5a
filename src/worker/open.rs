//! From accept to the first request: what a connection says before it speaks HTTP.

mod proxy_header;

use std::rc::Rc;

use super::conn;
use crate::io::runtime::catch_panic;
use crate::io::spawn;
use crate::proxy::Downstream;
use crate::proxy_protocol::Mode;
use crate::state::Core;

/// Starts to serve a connection that has just been accepted. One that has nothing to say before its
/// first request is served at once.
pub(super) fn start(core: &Rc<Core>, down: Box<Downstream>) {
    let core = core.clone();
    if down.listener().proxy_protocol == Mode::Off {
        return conn::start(core, down);
    }
    spawn(async move {
        match catch_panic(open(&core, down)).await {
            Some(Some(down)) => conn::start(core, down),
            Some(None) => {}
            None => {
                core.counters.panics.increment();
                tracing::error!("a panic ended a connection that was opening; the others go on");
            }
        }
    });
}

/// What stands before the first request, one step behind the other; none where the connection ends.
async fn open(core: &Core, mut down: Box<Downstream>) -> Option<Box<Downstream>> {
    if !proxy_header::take(core, &mut down).await {
        return None;
    }
    Some(down)
}
