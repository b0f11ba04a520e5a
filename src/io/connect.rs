//! Connecting to addresses; names never get here.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use monoio::net::{TcpStream, UnixStream};

use super::mem;
use super::runtime::sleep_ms;
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
