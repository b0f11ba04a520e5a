//! Accepting: wait until the listener is readable, then take a bounded run of connections.
//!
//! A dropped accept operation would leak the descriptor it had taken, and this way is also the
//! fastest one measured.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use monoio::net::TcpListener;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{SockFilter, SockRef};

use super::runtime::on_epoll;
use super::stream::{Shared, Stream};

/// A listening socket of this core.
pub struct Listener {
    inner: Shared<TcpListener>,
}

impl Listener {
    /// Takes a listening, non-blocking socket over.
    ///
    /// # Errors
    /// It could not be registered with the driver.
    pub fn adopt(socket: std::net::TcpListener) -> io::Result<Listener> {
        Ok(Listener { inner: Shared::new(TcpListener::from_std(socket)?) })
    }

    /// Waits for a connection, but no longer than `timeout_ms`. May be dropped.
    ///
    /// # Errors
    /// What the driver says.
    pub async fn readable_within(&self, timeout_ms: u64) -> io::Result<()> {
        let readable = self.inner.get().readable(false);
        match monoio::time::timeout(Duration::from_millis(timeout_ms), readable).await {
            Ok(ready) => ready,
            Err(_) => Ok(()),
        }
    }

    /// Takes a connection where one waits.
    ///
    /// # Errors
    /// No descriptor is left, or what else the system says.
    pub fn accept(&self) -> io::Result<Option<(Stream, SocketAddr)>> {
        // Only epoll needs a non-blocking socket; with io_uring it would make writes fail early.
        let mode = if on_epoll() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
        loop {
            match rustix::net::acceptfrom_with(&self.inner, SocketFlags::CLOEXEC | mode) {
                Ok((descriptor, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    let Some(peer) = peer else { continue };
                    return Ok(Some((adopt(descriptor)?, peer)));
                }
                Err(Errno::WOULDBLOCK) => return Ok(None),
                // The peer gave up between its connect and our accept.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Listener {
    /// Stops listening without losing a connection: the kernel queues no more, `take` gets what it
    /// has queued, and the port is free when this returns.
    pub fn finish(&self, mut take: impl FnMut(Stream, SocketAddr)) {
        let socket = SockRef::from(&self.inner);
        // Every packet for the listener is dropped from here on. Without it a connection that comes
        // between the last accept and the end, whose client takes it for accepted, would be reset.
        // Those in the queue have sockets of their own; where the filter is refused nothing is worse
        // than before.
        let _ = socket.attach_filter(&[SockFilter::new(BPF_RETURN_CONSTANT, 0, 0, 0)]);
        while let Ok(Some((stream, peer))) = self.accept() {
            take(stream, peer);
        }
        // Not only a close: a poll that is pending holds the socket open, and this ends it.
        let _ = socket.shutdown(std::net::Shutdown::Read);
    }
}

/// The classic BPF instruction that ends a filter: 0 bytes of the packet are let through.
const BPF_RETURN_CONSTANT: u16 = 0x06;

fn adopt(descriptor: OwnedFd) -> io::Result<Stream> {
    monoio::net::TcpStream::from_std(std::net::TcpStream::from(descriptor)).map(Stream::tcp)
}

/// Whether an error of [`Listener::accept`] says that descriptors or memory ran out.
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
