//! The beginning of a TLS connection.

use std::cell::{Cell, RefCell};
use std::io;

use rustls::{CipherSuite, HandshakeKind, ProtocolVersion};

use super::engine::{Engine, Turn};
use super::failure::{HandshakeError, HandshakeFailure};
use super::hello::{Hello, Opening};
use super::{Facts, Session, TlsStream, write_all};
use crate::base::buffer::Buf;
use crate::io::stream::Stream;

/// Shakes hands over `stream`; `early` are bytes that were read from it already. A deadline ends it
/// by shutting the stream down.
///
/// # Errors
/// See [`HandshakeFailure`]; the peer has been told.
pub async fn handshake(
    stream: Stream,
    session: Session,
    early: Buf,
) -> Result<Stream, HandshakeError> {
    let server = matches!(session, Session::Server(_));
    let mut shaking = Shaking { engine: Engine::new(session, early), server_name: None };
    let greeted = if server { shaking.greet(&stream).await } else { Ok(()) };
    let shaken = match greeted {
        Ok(()) => shaking.shake(&stream).await,
        Err(failed) => Err(failed),
    };
    match shaken {
        Ok(()) => Ok(Stream::Tls(Box::new(shaking.stream(stream)))),
        Err((reason, detail)) => Err(HandshakeError::new(reason, detail, stream)),
    }
}

/// A handshake in progress.
struct Shaking {
    engine: Engine,
    server_name: Option<Box<str>>,
}

type Failed = (HandshakeFailure, String);

impl Shaking {
    /// Reads a client's first message, as far as it must be seen whole.
    async fn greet(&mut self, stream: &Stream) -> Result<(), Failed> {
        let mut opening = Opening::default();
        loop {
            match opening.look(self.engine.incoming()) {
                Hello::Whole(name) => {
                    self.server_name = name;
                    return Ok(());
                }
                Hello::Other => return Ok(()),
                Hello::PlainHttp => {
                    return Err((HandshakeFailure::PlainHttp, "a request without TLS".into()));
                }
                Hello::Partial => self.receive(stream).await?,
            }
        }
    }

    async fn shake(&mut self, stream: &Stream) -> Result<(), Failed> {
        loop {
            let turn = self.engine.shake();
            if turn == Turn::Again || turn == Turn::Data {
                continue;
            }
            let owed = self.engine.take_owed();
            let sent = write_all(stream, owed).await;
            if let Some(error) = self.engine.failed() {
                return Err((HandshakeFailure::of_session(error), error.to_string()));
            }
            sent.map_err(failed)?;
            match turn {
                Turn::Ready => return Ok(()),
                Turn::Ended => return Err(closed()),
                _ => self.receive(stream).await?,
            }
        }
    }

    async fn receive(&mut self, stream: &Stream) -> Result<(), Failed> {
        let malformed = |error: io::Error| (HandshakeFailure::Malformed, error.to_string());
        let room = self.engine.room(0).map_err(malformed)?;
        let (result, received) = stream.read_bare(room, None).await;
        if result.map_err(failed)? == 0 {
            return Err(closed());
        }
        self.engine.arrived(received);
        Ok(())
    }

    fn stream(self, inner: Stream) -> TlsStream {
        let common = self.engine.session().common();
        let facts = Facts {
            version: version(common.protocol_version()),
            cipher: common
                .negotiated_cipher_suite()
                .map_or("unknown", |suite| cipher(suite.suite())),
            alpn: common.alpn_protocol().map(Into::into),
            server_name: self.server_name,
            resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
        };
        TlsStream {
            inner,
            engine: RefCell::new(self.engine),
            facts,
            receiving: Cell::new(false),
            sending: Cell::new(false),
            broken: Cell::new(false),
        }
    }
}

fn closed() -> Failed {
    (HandshakeFailure::Closed, "the connection ended within the handshake".into())
}

fn failed(error: io::Error) -> Failed {
    (HandshakeFailure::of_io(&error), error.to_string())
}

fn version(version: Option<ProtocolVersion>) -> &'static str {
    match version {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "unknown",
    }
}

/// The library writes `TLS13` where the registry has `TLS`.
fn cipher(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}
