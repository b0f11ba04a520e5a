//! The TLS handshake of a client that has just connected.

use std::rc::Rc;

use crate::base::buffer::Buf;
use crate::http1::conn::write_all;
use crate::io::tls::{HandshakeError, HandshakeFailure, Session, handshake};
use crate::io::{Stream, Wait};
use crate::proxy::Downstream;
use crate::state::Core;
use crate::tls::{ServerTls, TlsFacts, files::unix_time_s};

/// Shakes hands with a client, within the listener's `timeouts.handshake`. `None`: it has failed,
/// has been counted, and the connection has ended.
pub(super) async fn secure(
    core: &Core,
    mut down: Box<Downstream>,
    tls: &ServerTls,
) -> Option<Box<Downstream>> {
    let listener = down.listener().id.0;
    let session = match tls.session() {
        Ok(session) => Session::Server(session),
        Err(error) => {
            tracing::error!(%error, "no TLS handshake can be begun");
            core.series.handshake(listener, HandshakeFailure::Io.name());
            return None;
        }
    };
    down.timer.arm(Wait::Handshake, down.listener().handshake_timeout_ms);
    let early = std::mem::take(&mut down.behind);
    let shaken = handshake(down.take(), session, early).await;
    let late = down.timer.expired() == Some(Wait::Handshake);
    down.timer.disarm();
    match shaken {
        Ok(stream) => admit(core, down, stream, listener).await,
        Err(error) => {
            let reason = if late { "timeout" } else { error.reason.name() };
            core.series.handshake(listener, reason);
            let (peer, name) = (down.peer, &down.listener().name);
            tracing::debug!(%peer, listener = %name, reason, detail = %error.detail, "no TLS");
            end(down, error).await;
            None
        }
    }
}

async fn admit(
    core: &Core,
    mut down: Box<Downstream>,
    stream: Stream,
    listener: u32,
) -> Option<Box<Downstream>> {
    let facts = stream.tls().map(TlsFacts::of).unwrap_or_default();
    down.put(stream);
    if facts.resumed && facts.has_expired(unix_time_s()) {
        core.series.handshake(listener, HandshakeFailure::CertificateExpired.name());
        down.close().await;
        return None;
    }
    core.series.handshake(listener, if facts.resumed { "resumed" } else { "full" });
    down.forwarding.secured();
    down.tls = Some(Rc::new(facts));
    Some(down)
}

/// Ends a connection so that the alert, or the answer to who speaks HTTP, is not lost.
async fn end(mut down: Box<Downstream>, error: HandshakeError) {
    let HandshakeError { reason, stream, .. } = error;
    down.put(stream);
    match reason {
        HandshakeFailure::Closed | HandshakeFailure::Io => return,
        HandshakeFailure::PlainHttp => {
            let timeout_ms = down.listener().write_timeout_ms;
            let mut answer = Buf::from(PLAIN_HTTP);
            let progress = || down.timer.arm(Wait::ClientWrite, timeout_ms);
            if write_all(down.stream(), &mut answer, progress).await.is_err() {
                return;
            }
        }
        _ => {}
    }
    down.close().await;
}

/// The answer to a request without TLS.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 54\r\nConnection: close\r\n\r\n\
    400 This port speaks TLS: ask again with https://...\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_length_that_it_says() {
        let text = std::str::from_utf8(PLAIN_HTTP).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
