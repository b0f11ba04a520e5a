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
    /// Lets no new handshake begin, so that the queue can be emptied for good: a connection that came
    /// between the last accept and the close would be reset, and its client takes it for accepted.
    /// Handshakes that are under way still end, and those who come too late ask again after a second
    /// and are refused then. Where the filter is refused nothing is worse than without.
    pub fn refuse_new(&self) {
        let _ = SockRef::from(&self.inner).attach_filter(&NO_SYN);
    }

    /// Takes what the kernel has queued and stops listening: the port is free when this returns.
    pub fn finish(&self, mut take: impl FnMut(Stream, SocketAddr)) {
        while let Ok(Some((stream, peer))) = self.accept() {
            take(stream, peer);
        }
        // Not only a close: a poll that is pending holds the socket open, and this ends it.
        let _ = SockRef::from(&self.inner).shutdown(std::net::Shutdown::Read);
    }
}

/// Classic BPF, which sees a packet from its TCP header on: where the flags in byte 13 have SYN
/// (RFC 9293 section 3.1), nothing of it is let through, else everything.
const NO_SYN: [SockFilter; 4] = [
    SockFilter::new(LOAD_BYTE, 0, 0, 13),
    SockFilter::new(JUMP_IF_ANY_BIT, 0, 1, 0x02),
    SockFilter::new(RETURN, 0, 0, 0),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
];
const LOAD_BYTE: u16 = 0x30;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

fn adopt(descriptor: OwnedFd) -> io::Result<Stream> {
    monoio::net::TcpStream::from_std(std::net::TcpStream::from(descriptor)).map(Stream::tcp)
}

/// Whether an error of [`Listener::accept`] says that descriptors or memory ran out.
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener as StdListener, TcpStream};

    use super::*;
    use crate::io::driver::{DriverChoice, probe};
    use crate::io::runtime::run;

    /// Also while a poll is pending, which keeps the socket open on io_uring.
    #[test]
    fn a_listener_ends_with_its_queue_served_and_its_port_free() {
        for choice in [DriverChoice::Epoll, DriverChoice::Auto] {
            let report = probe(choice).expect("a driver");
            let ran = run(&report, async {
                let socket = StdListener::bind("127.0.0.1:0").expect("bound");
                socket.set_nonblocking(true).expect("set");
                let address = socket.local_addr().expect("an address");
                let listener = std::rc::Rc::new(Listener::adopt(socket).expect("adopted"));
                let waiting = listener.clone();
                crate::io::spawn(async move {
                    let _ = waiting.readable_within(60_000).await;
                });
                crate::io::sleep_ms(1).await;
                let queued: Vec<_> =
                    (0..3).map(|_| TcpStream::connect(address).expect("connected")).collect();
                listener.refuse_new();
                let late = TcpStream::connect_timeout(&address, Duration::from_millis(50));
                let late = late.map_err(|error| error.kind());
                let mut taken = Vec::new();
                listener.finish(|stream, _| taken.push(stream));
                let gone = TcpStream::connect(address).map_err(|error| error.kind());
                let again = StdListener::bind(address).is_ok();
                drop(queued);
                (late.map(drop), taken.len(), gone.map(drop), again)
            });
            let late = Err(io::ErrorKind::TimedOut);
            let gone = Err(io::ErrorKind::ConnectionRefused);
            assert_eq!(ran.expect("runs"), (late, 3, gone, true), "{report}");
        }
    }
}
