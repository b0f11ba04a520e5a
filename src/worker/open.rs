//! From accept to the first request: what a connection says before it speaks HTTP.

mod handshake;
mod proxy_header;

use std::rc::Rc;

use super::{conn, http2};
use crate::io::runtime::catch_panic;
use crate::io::spawn;
use crate::proxy::Downstream;
use crate::proxy_protocol::Mode;
use crate::state::Core;

/// Starts to serve a connection that has just been accepted. One that has nothing to say before its
/// first request is served at once.
pub(super) fn start(core: &Rc<Core>, down: Box<Downstream>) {
    let listener = down.listener();
    if listener.proxy_protocol == Mode::Off && listener.tls.is_none() {
        return speak(core, down);
    }
    // A task of its own, so that nobody waits for a slow client.
    let core = core.clone();
    spawn(async move {
        match catch_panic(open(&core, down)).await {
            Some(Some(down)) => speak(&core, down),
            Some(None) => {}
            None => {
                core.counters.panics.increment();
                tracing::error!("a panic ended a connection that was opening; the others go on");
            }
        }
    });
}

/// What stands before HTTP, one step behind the other; none where the connection ends.
async fn open(core: &Core, mut down: Box<Downstream>) -> Option<Box<Downstream>> {
    if !proxy_header::take(core, &mut down).await {
        return None;
    }
    match down.listener().tls.clone() {
        Some(tls) => handshake::secure(core, down, &tls).await,
        None => Some(down),
    }
}

/// Goes on with the version of HTTP that the client speaks.
fn speak(core: &Rc<Core>, down: Box<Downstream>) {
    if speaks_http2(&down) {
        http2::start(core.clone(), down);
    } else if down.listener().h2c && down.tls.is_none() {
        spawn(listen_in(core.clone(), down));
    } else {
        conn::start(core.clone(), down);
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
