//! Connecting to addresses; names never get here.
#![allow(unsafe_code)] // One socket option that no library sets; see `bind_without_a_port`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use monoio::net::{TcpStream, UnixStream};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::mem;
use super::runtime::{on_epoll, sleep_ms};
use super::stream::{Shared, Stream};

/// How the sockets of outgoing connections are set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SocketOptions {
    /// The address that they come from; none is what the system's routes say.
    pub source: Option<IpAddr>,
    /// How long a silent peer is left in peace before the kernel asks whether it is still there.
    pub keepalive_ms: Option<u64>,
}

/// Connects over TCP, without delay for small writes.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after `timeout_ms`, or what the system says.
pub async fn connect_tcp(
    address: SocketAddr,
    options: &SocketOptions,
    timeout_ms: u64,
) -> io::Result<Stream> {
    if let Some(simulated) = mem::connect() {
        return simulated;
    }
    let stream = match options.source {
        None => Shared::new(bounded(timeout_ms, TcpStream::connect_addr(address)).await?),
        Some(source) => bounded(timeout_ms, Box::pin(connect_from(source, address))).await?,
    };
    stream.get().set_nodelay(true)?;
    let stream = Stream::Tcp(stream);
    if let Some(idle_ms) = options.keepalive_ms {
        stream.set_keepalive(idle_ms)?;
    }
    Ok(stream)
}

/// Connects from an address of this machine. The runtime connects no socket that is bound already, so
/// the connect is begun here and its end is a wait until the socket takes writes.
async fn connect_from(source: IpAddr, address: SocketAddr) -> io::Result<Shared<TcpStream>> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    bind_without_a_port(&socket, source)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    let stream = Shared::new(TcpStream::from_std(socket.into())?);
    stream.get().writable(false).await?;
    let socket = SockRef::from(&stream);
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    if !on_epoll() {
        // With io_uring it would make operations fail early that are to wait.
        socket.set_nonblocking(false)?;
    }
    Ok(stream)
}

/// Binds to an address and leaves the port to the connect, which may then use one that connections to
/// other peers use too. A bind that chooses one takes it for itself: 28,000 in all.
fn bind_without_a_port(socket: &Socket, source: IpAddr) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).expect("four bytes");
    // SAFETY: the socket is open, and the option reads `length` bytes of `on`, which outlives the call.
    let set = unsafe {
        let value = std::ptr::from_ref(&on).cast();
        let option = libc::IP_BIND_ADDRESS_NO_PORT;
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, option, value, length)
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    socket.bind(&SocketAddr::new(source, 0).into())
}

/// Connects to a Unix socket.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after `timeout_ms`, or what the system says.
pub async fn connect_unix(path: &Path, timeout_ms: u64) -> io::Result<Stream> {
    if let Some(simulated) = mem::connect() {
        return simulated;
    }
    let connecting = async {
        loop {
            match UnixStream::connect(path).await {
                // A full backlog: a blocking connect would wait in the kernel, and so do we.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sleep_ms(BACKLOG_PAUSE_MS).await;
                }
                connected => return connected,
            }
        }
    };
    Ok(Stream::unix(bounded(timeout_ms, connecting).await?))
}

/// Pause between two tries on a Unix socket whose backlog is full.
const BACKLOG_PAUSE_MS: u64 = 10;

async fn bounded<T>(
    timeout_ms: u64,
    connecting: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match monoio::time::timeout(Duration::from_millis(timeout_ms), connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
