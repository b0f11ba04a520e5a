//! The PROXY header of a connection to an origin that asks for one: whose it is.

use std::net::SocketAddr;

use super::Downstream;
use crate::context::RequestContext;
use crate::proxy_protocol::{Announced, Ends, Ssl, Version, encode};
use crate::tls::TlsFacts;

/// What an origin is told of the client of a request. The client is who it is believed to be: behind
/// a trusted proxy that speaks HTTP nobody knows its port, and it is 0.
pub(super) fn header(version: Version, down: &Downstream, context: &RequestContext) -> Vec<u8> {
    let client = &context.client;
    let port = if client.address == client.peer.ip() { client.peer.port() } else { 0 };
    let source = SocketAddr::new(client.address, port);
    let tls = context.tls.as_deref();
    let text = |text: &str| Some(text).filter(|text| !text.is_empty()).map(bytes);
    encode(
        version,
        &Announced {
            ends: Ends::Inet { source, destination: down.destination() },
            alpn: tls.and_then(|tls| text(&tls.alpn)),
            authority: tls.and_then(|tls| text(&tls.sni)),
            unique_id: Some(context.request_id.text(&context.request).into()),
            netns: None,
            ssl: tls.map(ssl),
        },
    )
}

fn ssl(tls: &TlsFacts) -> Ssl {
    let name = tls.client.as_ref().and_then(|client| client.facts.common_name.as_deref());
    Ssl {
        used: true,
        // There is no other: one that fails ends its handshake.
        verified: tls.client.is_some(),
        resumed: tls.client.is_some() && tls.resumed,
        version: Some(bytes(tls.version)),
        cn: name.map(bytes),
        cipher: Some(bytes(tls.cipher)),
    }
}

fn bytes(text: &str) -> Box<[u8]> {
    text.as_bytes().into()
}
