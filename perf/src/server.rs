//! A listener and its accept loop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use monoio::net::{TcpListener, TcpStream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections that may wait to be accepted: more than any case opens at once.
const BACKLOG: i32 = 4096;

/// Listens at `address`. What is accepted inherits TCP_NODELAY.
pub fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Accepts for ever and spawns `serve` for every connection.
///
/// `readable` and then accept4 until nothing is left: a dropped accept operation would leak its
/// descriptor, and this is the cheapest of the ways that were tried.
pub async fn accept_loop<S, F>(listener: std::net::TcpListener, serve: S) -> io::Result<()>
where
    S: Fn(TcpStream) -> F,
    F: Future<Output = ()> + 'static,
{
    let ready = TcpListener::from_std(listener.try_clone()?)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        ready.readable(false).await?;
        loop {
            match rustix::net::accept_with(&listener, flags) {
                Ok(accepted) => {
                    monoio::spawn(serve(TcpStream::from_std(accepted.into())?));
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Whether an error that ended a connection is worth a line: a peer that just went away is not,
/// since every measurement ends so.
pub fn worth_saying(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
