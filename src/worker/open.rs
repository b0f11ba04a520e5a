//! From accept to the first request: what a connection says before it speaks HTTP.

use std::rc::Rc;

use super::{conn, handshake, http2};
use crate::io::runtime::catch_panic;
use crate::io::spawn;
use crate::proxy::Downstream;
use crate::state::Core;

/// Starts to serve a connection that has just been accepted. One that has nothing to say before its
/// first request is served at once.
pub(super) fn start(core: &Rc<Core>, down: Box<Downstream>) {
    if down.listener().tls.is_some() {
        // A task of its own, so that nobody waits for a slow client.
        spawn(secure(core.clone(), down));
    } else if down.listener().h2c {
        spawn(listen_in(core.clone(), down));
    } else {
        conn::start(core.clone(), down);
    }
}

/// Shakes hands, then serves what was agreed on.
async fn secure(core: Rc<Core>, down: Box<Downstream>) {
    let Some(tls) = down.listener().tls.clone() else { return };
    match catch_panic(handshake::secure(&core, down, &tls)).await {
        Some(Some(down)) if speaks_http2(&down) => http2::start(core, down),
        Some(Some(down)) => conn::start(core, down),
        Some(None) => {}
        None => {
            core.counters.panics.increment();
            tracing::error!("a panic ended a handshake; the others go on");
        }
    }
}

/// Whether the handshake has settled on HTTP/2 (RFC 9113 section 3.2).
pub(super) fn speaks_http2(down: &Downstream) -> bool {
    down.tls.as_ref().is_some_and(|tls| &*tls.alpn == "h2")
}

/// Finds out by its first bytes what a client speaks.
async fn listen_in(core: Rc<Core>, down: Box<Downstream>) {
    if catch_panic(http2::open_cleartext(core.clone(), down)).await.is_none() {
        core.counters.panics.increment();
        tracing::error!("a panic ended a connection; the others go on");
    }
}
