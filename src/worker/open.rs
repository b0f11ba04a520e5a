//! From accept to the first request: what a connection says before it speaks HTTP.

use std::rc::Rc;

use super::{conn, http2};
use crate::io::runtime::catch_panic;
use crate::io::spawn;
use crate::proxy::Downstream;
use crate::state::Core;

/// Starts to serve a connection that has just been accepted. One that has nothing to say before its
/// first request is served at once.
pub(super) fn start(core: &Rc<Core>, down: Box<Downstream>) {
    if speaks_http2(&down) {
        http2::start(core.clone(), down);
    } else if down.listener().h2c {
        spawn(listen_in(core.clone(), down));
    } else {
        conn::start(core.clone(), down);
    }
}

/// Whether the handshake has settled on HTTP/2 (RFC 9113 section 3.2).
pub(super) fn speaks_http2(_down: &Downstream) -> bool {
    false
}

/// Finds out by its first bytes what a client speaks.
async fn listen_in(core: Rc<Core>, down: Box<Downstream>) {
    if catch_panic(http2::open_cleartext(core.clone(), down)).await.is_none() {
        core.counters.panics.increment();
        tracing::error!("a panic ended a connection; the others go on");
    }
}
