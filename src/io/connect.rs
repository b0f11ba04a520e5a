//! Connecting to addresses; names never get here.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use monoio::net::{TcpStream, UnixStream};

use super::mem;
use super::stream::Stream;

/// Connects over TCP, without delay for small writes.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after `timeout_ms`, or what the system says.
pub async fn connect_tcp(address: SocketAddr, timeout_ms: u64) -> io::Result<Stream> {
    if let Some(simulated) = mem::connect() {
        return simulated;
    }
    let stream = bounded(timeout_ms, TcpStream::connect_addr(address)).await?;
    stream.set_nodelay(true)?;
    Ok(Stream::tcp(stream))
}

/// Connects to a Unix socket.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after `timeout_ms`, or what the system says.
pub async fn connect_unix(path: &Path, timeout_ms: u64) -> io::Result<Stream> {
    if let Some(simulated) = mem::connect() {
        return simulated;
    }
    Ok(Stream::unix(bounded(timeout_ms, UnixStream::connect(path)).await?))
}

async fn bounded<T>(
    timeout_ms: u64,
    connecting: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match monoio::time::timeout(Duration::from_millis(timeout_ms), connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
