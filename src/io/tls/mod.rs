//! TLS over another stream: records in, plain text out, and back.
//!
//! `engine` holds the session and its buffers and does no I/O; this file moves bytes between it and
//! the stream below; `handshake` begins a connection. The engine is borrowed only between two
//! suspensions, so that a reader and a writer of one task may share it.

mod engine;
mod failure;
mod handshake;
mod hello;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;

use self::engine::Engine;
use super::cancel::Cancel;
use super::stream::{Peek, Shutdown, Stream};
use crate::base::buffer::Buf;
use crate::limits::TLS_LOOKS_MAX;

pub use failure::{HandshakeError, HandshakeFailure};
pub use handshake::handshake;

/// Which side of TLS we are, before the handshake.
pub enum Session {
    /// A client connects to us.
    Server(UnbufferedServerConnection),
    /// We connect to an origin.
    Client(UnbufferedClientConnection),
}

/// A TLS connection after its handshake. It holds no buffer while nothing is half read or written.
pub struct TlsStream {
    inner: Stream,
    engine: RefCell<Engine>,
    facts: Facts,
    /// A read has the kernel's next bytes to come.
    receiving: Cell<bool>,
    /// A write is in flight; what must not be torn by another waits for its end.
    sending: Cell<bool>,
    /// A write failed or was dropped: records behind it would be noise to the peer.
    broken: Cell<bool>,
}

/// What the handshake settled.
#[derive(Debug)]
struct Facts {
    version: &'static str,
    cipher: &'static str,
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    resumed: bool,
}

impl TlsStream {
    /// The protocol version: `TLSv1.2` or `TLSv1.3`.
    pub fn version(&self) -> &'static str {
        self.facts.version
    }

    /// The cipher suite by its IANA name.
    pub fn cipher(&self) -> &'static str {
        self.facts.cipher
    }

    /// The protocol agreed upon by ALPN (RFC 7301).
    pub fn alpn(&self) -> Option<&[u8]> {
        self.facts.alpn.as_deref()
    }

    /// The name that the client asked for by SNI (RFC 6066 section 3), in lower case; none on
    /// connections that we made.
    pub fn server_name(&self) -> Option<&str> {
        self.facts.server_name.as_deref()
    }

    /// Whether the session was resumed, so that no certificate was sent.
    pub fn resumed(&self) -> bool {
        self.facts.resumed
    }

    /// The peer's certificates, its own first, as DER; empty where it sent none. A copy.
    pub fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        self.engine.borrow().session().peer_certificates()
    }

    /// Reads plain text into the spare room of `buf`; 0 is the peer's close_notify. On a connection
    /// that we made, an end without one is `UnexpectedEof`: the answer may have been cut.
    pub(super) async fn read(
        &self,
        mut buf: Buf,
        cancel: Option<&Cancel>,
    ) -> (io::Result<usize>, Buf) {
        match self.pull(&mut buf) {
            Some(result) => (result, buf),
            // Boxed, so that connections without TLS do not carry its state.
            None => Box::pin(self.receive(buf, cancel)).await,
        }
    }

    /// Writes up to [`crate::limits::TLS_WRITE_BYTES_MAX`] of what is queued, in as few operations
    /// as the stream below takes it.
    pub(super) async fn write(&self, buf: Buf) -> (io::Result<usize>, Buf) {
        if self.broken.get() {
            return (Err(io::ErrorKind::BrokenPipe.into()), buf);
        }
        let sealed = self.engine.borrow_mut().seal(buf.filled());
        match sealed {
            Ok((count, records)) => (Box::pin(self.send(records)).await.map(|()| count), buf),
            Err(error) => (Err(error), buf),
        }
    }

    /// Waits until a read would return. What carries no plain text, as tickets do, is taken on the
    /// way. May be dropped.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.engine.borrow().has_something() {
            return Ok(());
        }
        loop {
            self.inner.readable_bare().await?;
            if self.look() != Peek::Nothing {
                return Ok(());
            }
        }
    }

    /// Looks at what waits, without waiting. Bytes are plain text; half a record may become some, or
    /// a ticket.
    pub(super) fn peek(&self) -> Peek {
        let looked = self.engine.borrow_mut().look();
        match looked {
            Peek::Nothing if self.receiving.get() => Peek::Nothing,
            Peek::Nothing => self.look(),
            known => known,
        }
    }

    /// Sends close_notify (RFC 8446 section 6.1), so that the peer knows that nothing was cut, and
    /// ends the writing direction.
    pub(super) async fn finish(&self) {
        let notify = self.engine.borrow_mut().close_notify();
        if let Some(notify) = notify.filter(|_| !self.broken.get()) {
            // A peer that is gone need not be told.
            let _ = self.send(notify).await;
        }
        self.inner.shutdown(Shutdown::Write);
    }

    /// The same close_notify, as far as that needs no waiting. Nothing can be written behind it.
    pub(super) fn say_end(&self) {
        if self.sending.get() || self.broken.replace(true) {
            return;
        }
        if let Some(notify) = self.engine.borrow_mut().close_notify() {
            // A peer that takes nothing sees the end of the connection only.
            let _ = self.inner.write_now(notify.filled());
        }
    }

    /// The stream below.
    pub(super) fn inner(&self) -> &Stream {
        &self.inner
    }

    /// Takes what has arrived, without waiting, until there is plain text or nothing more.
    fn look(&self) -> Peek {
        for _ in 0..TLS_LOOKS_MAX {
            let Ok(mut room) = self.engine.borrow().room(0) else { return Peek::Closed };
            match self.inner.read_now(&mut room) {
                Ok(Some(0)) | Err(_) => return Peek::Closed,
                Ok(Some(_)) => self.engine.borrow_mut().arrived(room),
                Ok(None) if self.engine.borrow().has_part() => return Peek::Part,
                Ok(None) => return Peek::Nothing,
            }
            let looked = self.engine.borrow_mut().look();
            self.pay();
            if looked != Peek::Nothing {
                return looked;
            }
        }
        // A peer that sends nothing but control records is not to hold the core.
        Peek::Bytes
    }

    /// Plain text that needs no receiving, or the end.
    fn pull(&self, buf: &mut Buf) -> Option<io::Result<usize>> {
        let pulled = self.engine.borrow_mut().pull(buf);
        self.pay();
        pulled
    }

    async fn receive(&self, mut buf: Buf, cancel: Option<&Cancel>) -> (io::Result<usize>, Buf) {
        loop {
            let room = self.engine.borrow().room(buf.spare());
            let room = match room {
                Ok(room) => room,
                Err(error) => return (Err(error), buf),
            };
            let receiving = Held::set(&self.receiving);
            let (result, received) = self.inner.read_bare(room, cancel).await;
            drop(receiving);
            match result {
                Ok(0) => return (self.cut(), buf),
                Ok(_) => self.engine.borrow_mut().arrived(received),
                Err(error) => return (Err(error), buf),
            }
            if let Some(result) = self.pull(&mut buf) {
                return (result, buf);
            }
        }
    }

    /// What the end of the stream below means where no close_notify came before it.
    fn cut(&self) -> io::Result<usize> {
        match self.engine.borrow().session() {
            // Browsers close like this, and a request has its own framing.
            Session::Server(_) => Ok(0),
            Session::Client(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    async fn send(&self, records: Buf) -> io::Result<()> {
        let _sending = Held::set(&self.sending);
        self.broken.set(true);
        let mut records = records;
        while !records.is_empty() {
            write_all(&self.inner, records).await?;
            // What a reader came to owe meanwhile could not go in between.
            records = self.engine.borrow_mut().take_owed();
        }
        self.broken.set(false);
        Ok(())
    }

    /// Sends what the session owes, alerts above all, as far as that needs no waiting. While a write
    /// is in flight it stays, and follows that.
    fn pay(&self) {
        let mut engine = self.engine.borrow_mut();
        if engine.owed().is_empty() || self.sending.get() || self.broken.get() {
            return;
        }
        match self.inner.write_now(engine.owed().filled()) {
            Ok(count) => engine.paid(count),
            // The read or write that follows meets the same error.
            Err(_) => self.broken.set(true),
        }
    }
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsStream").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A flag that is set as long as this lives, a dropped future included.
struct Held<'a>(&'a Cell<bool>);

impl<'a> Held<'a> {
    fn set(flag: &'a Cell<bool>) -> Held<'a> {
        debug_assert!(!flag.get(), "one read and one write at a time");
        flag.set(true);
        Held(flag)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

async fn write_all(stream: &Stream, mut records: Buf) -> io::Result<()> {
    while !records.is_empty() {
        let (result, back) = stream.write_bare(records).await;
        records = back;
        match result? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => records.consume(count),
        }
    }
    Ok(())
}
