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

fn adopt(descriptor: OwnedFd) -> io::Result<Stream> {
    monoio::net::TcpStream::from_std(std::net::TcpStream::from(descriptor)).map(Stream::tcp)
}

/// Whether an error of [`Listener::accept`] says that descriptors or memory ran out.
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
