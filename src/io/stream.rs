//! Byte streams: TCP, Unix sockets, TLS over either, and memory for simulation.
#![allow(unsafe_code)] // Two pumps share one descriptor; see `Shared`.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use monoio::io::{AsyncReadRent, AsyncWriteRent, CancelableAsyncReadRent};
use monoio::net::{TcpStream, UnixStream};
use rustix::net::{RecvFlags, SendFlags};

use super::cancel::Cancel;
use super::mem::{Closer, End};
use super::signal::Signal;
use super::tls::TlsStream;
use crate::base::buffer::Buf;

/// A connection. Reading and writing take `&self`, so that two pumps may share it; at most one read
/// and one write at a time.
pub enum Stream {
    /// Over TCP.
    Tcp(Shared<TcpStream>),
    /// Over a Unix socket.
    Unix(Shared<UnixStream>),
    /// In memory.
    Mem(End),
    /// TLS over one of the others.
    Tls(Box<TlsStream>),
}

/// Which direction is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Reading: a pending read ends, writing goes on.
    Read,
    /// Writing: the peer sees the end.
    Write,
    /// Both: pending operations end.
    Both,
}

/// What waits on an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// Nothing: it is alive as far as one can tell.
    Nothing,
    /// Bytes.
    Bytes,
    /// The beginning of a TLS record: of bytes, or of something that no reader sees, as tickets are.
    Part,
    /// The end, or an error.
    Closed,
}

/// Stands for a stream where only shutting it down matters; must not outlive it.
#[derive(Clone, Debug)]
pub enum Handle {
    /// A descriptor.
    Fd(RawFd),
    /// A stream in memory.
    Mem(Rc<Closer>),
    /// One stream of a shared connection.
    Signal(Rc<Signal>),
}

/// A runtime stream of which reader and writer hold the same one.
pub struct Shared<T> {
    inner: UnsafeCell<T>,
    fd: RawFd,
}

impl<T: AsRawFd> Shared<T> {
    pub(super) fn new(stream: T) -> Shared<T> {
        let fd = stream.as_raw_fd();
        Shared { inner: UnsafeCell::new(stream), fd }
    }

    /// The runtime wants `&mut` although it only clones the reference-counted descriptor before its
    /// first suspension (its own `split` rests on the same fact).
    #[allow(clippy::mut_from_ref)]
    pub(super) fn get(&self) -> &mut T {
        // SAFETY: a core is one thread, and no reference is used across a suspension: each
        // operation owns a clone of the descriptor and its buffer.
        unsafe { &mut *self.inner.get() }
    }
}

impl Stream {
    pub(super) fn tcp(stream: TcpStream) -> Stream {
        Stream::Tcp(Shared::new(stream))
    }

    pub(super) fn unix(stream: UnixStream) -> Stream {
        Stream::Unix(Shared::new(stream))
    }

    /// Reads into the spare room of `buf`; 0 is the end.
    #[inline]
    pub async fn read(&self, buf: Buf) -> (io::Result<usize>, Buf) {
        assert!(buf.spare() > 0, "a read needs room, or it looks like the end");
        match self {
            Stream::Tcp(stream) => stream.get().read(buf).await,
            Stream::Unix(stream) => stream.get().read(buf).await,
            Stream::Mem(end) => end.read(buf, None).await,
            Stream::Tls(tls) => tls.read(buf, None).await,
        }
    }

    /// The same, ended early by `cancel`.
    pub async fn read_cancelable(&self, buf: Buf, cancel: &Cancel) -> (io::Result<usize>, Buf) {
        assert!(buf.spare() > 0, "a read needs room, or it looks like the end");
        match self {
            Stream::Tcp(stream) => stream.get().cancelable_read(buf, cancel.handle()).await,
            Stream::Unix(stream) => stream.get().cancelable_read(buf, cancel.handle()).await,
            Stream::Mem(end) => end.read(buf, Some(cancel)).await,
            Stream::Tls(tls) => tls.read(buf, Some(cancel)).await,
        }
    }

    /// Writes some of what is queued and returns how much; nothing is consumed.
    #[inline]
    pub async fn write(&self, buf: Buf) -> (io::Result<usize>, Buf) {
        match self {
            Stream::Tcp(stream) => stream.get().write(buf).await,
            Stream::Unix(stream) => stream.get().write(buf).await,
            Stream::Mem(end) => end.write(buf).await,
            Stream::Tls(tls) => tls.write(buf).await,
        }
    }

    /// Waits until a read would return. May be dropped.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.get().readable(false).await,
            Stream::Unix(stream) => stream.get().readable(false).await,
            Stream::Mem(end) => end.readable().await,
            Stream::Tls(tls) => tls.readable().await,
        }
    }

    /// Shuts one direction or both down, at once. To a peer that speaks TLS an end without
    /// [`Stream::finish`] looks like a cut.
    pub fn shutdown(&self, how: Shutdown) {
        self.handle().shutdown(how);
    }

    /// Ends the writing direction so that the peer knows that nothing was cut. It is a write.
    pub async fn finish(&self) {
        match self {
            Stream::Tls(tls) => tls.finish().await,
            _ => self.shutdown(Shutdown::Write),
        }
    }

    /// Tells a peer that speaks TLS that nothing was cut, before a close that does not wait; others
    /// need not be told.
    pub fn say_end(&self) {
        if let Stream::Tls(tls) = self {
            tls.say_end();
        }
    }

    /// What TLS knows of this connection, where it is one.
    pub fn tls(&self) -> Option<&TlsStream> {
        match self {
            Stream::Tls(tls) => Some(tls),
            _ => None,
        }
    }

    /// Has the close, which is to follow, reset the connection, so that the peer cannot take what it
    /// got for the whole.
    pub fn reset(&self) {
        match self {
            Stream::Tcp(stream) => {
                let socket = socket2::SockRef::from(stream);
                // A socket that is gone already needs no reset.
                let _ = socket.set_linger(Some(Duration::ZERO));
            }
            // A Unix socket has no reset: its peer sees the end, and framing has to tell.
            Stream::Unix(_) => {}
            Stream::Mem(end) => end.reset(),
            Stream::Tls(tls) => tls.inner().reset(),
        }
    }

    /// Looks at what waits, without waiting.
    pub fn peek(&self) -> Peek {
        let fd = match self {
            Stream::Tcp(stream) => stream.fd,
            Stream::Unix(stream) => stream.fd,
            Stream::Mem(end) => return end.peek(),
            Stream::Tls(tls) => return tls.peek(),
        };
        let mut byte = [0u8; 1];
        // SAFETY: the stream is borrowed, so its descriptor is open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        match rustix::net::recv(fd, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Peek::Closed,
            Ok(_) => Peek::Bytes,
            Err(rustix::io::Errno::WOULDBLOCK) => Peek::Nothing,
            Err(_) => Peek::Closed,
        }
    }

    /// A handle to shut it down by.
    pub fn handle(&self) -> Handle {
        match self {
            Stream::Tcp(stream) => Handle::Fd(stream.fd),
            Stream::Unix(stream) => Handle::Fd(stream.fd),
            Stream::Mem(end) => Handle::Mem(end.closer()),
            Stream::Tls(tls) => tls.inner().handle(),
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stream::Tcp(stream) => write!(f, "Tcp({})", stream.fd),
            Stream::Unix(stream) => write!(f, "Unix({})", stream.fd),
            Stream::Mem(_) => f.write_str("Mem"),
            Stream::Tls(tls) => tls.fmt(f),
        }
    }
}

/// The same without TLS, for what TLS itself reads and writes: records.
impl Stream {
    pub(super) async fn read_bare(
        &self,
        buf: Buf,
        cancel: Option<&Cancel>,
    ) -> (io::Result<usize>, Buf) {
        match (self, cancel) {
            (Stream::Tcp(stream), None) => stream.get().read(buf).await,
            (Stream::Unix(stream), None) => stream.get().read(buf).await,
            (Stream::Tcp(stream), Some(cancel)) => {
                stream.get().cancelable_read(buf, cancel.handle()).await
            }
            (Stream::Unix(stream), Some(cancel)) => {
                stream.get().cancelable_read(buf, cancel.handle()).await
            }
            (Stream::Mem(end), cancel) => end.read(buf, cancel).await,
            (Stream::Tls(_), _) => (Err(nested()), buf),
        }
    }

    pub(super) async fn write_bare(&self, buf: Buf) -> (io::Result<usize>, Buf) {
        match self {
            Stream::Tcp(stream) => stream.get().write(buf).await,
            Stream::Unix(stream) => stream.get().write(buf).await,
            Stream::Mem(end) => end.write(buf).await,
            Stream::Tls(_) => (Err(nested()), buf),
        }
    }

    pub(super) async fn readable_bare(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.get().readable(false).await,
            Stream::Unix(stream) => stream.get().readable(false).await,
            Stream::Mem(end) => end.readable().await,
            Stream::Tls(_) => Err(nested()),
        }
    }

    /// Reads without waiting. `None`: nothing is there.
    pub(super) fn read_now(&self, buf: &mut Buf) -> io::Result<Option<usize>> {
        let fd = match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Mem(end) => return end.read_now(buf),
            Stream::Tls(_) => return Err(nested()),
        };
        let spare = rustix::buffer::spare_capacity(buf.vec_mut());
        match rustix::net::recv(fd, spare, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Ok(Some(count)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes as much as is taken without waiting.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let fd = match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Mem(end) => return end.write_now(bytes),
            Stream::Tls(_) => return Err(nested()),
        };
        match rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(0),
            sent => sent.map_err(Into::into),
        }
    }
}

/// TLS in TLS, which nothing builds.
fn nested() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl<T> AsFd for Shared<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the stream, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Handle {
    /// Shuts one direction or both down, at once.
    pub fn shutdown(&self, how: Shutdown) {
        match self {
            Handle::Fd(fd) => {
                // SAFETY: a handle never outlives its stream (see the type).
                let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
                let how = match how {
                    Shutdown::Read => rustix::net::Shutdown::Read,
                    Shutdown::Write => rustix::net::Shutdown::Write,
                    Shutdown::Both => rustix::net::Shutdown::Both,
                };
                // A peer that is gone already needs no shutdown.
                let _ = rustix::net::shutdown(fd, how);
            }
            Handle::Mem(closer) => closer.shutdown(how),
            Handle::Signal(signal) => signal.shutdown(how),
        }
    }
}

/// Which of `handles` were reset by their peer, by one system call that reads nothing.
pub fn reset_by_peer(handles: &[Handle]) -> Vec<usize> {
    let descriptors: Vec<(usize, RawFd)> = handles
        .iter()
        .enumerate()
        .filter_map(|(index, handle)| match handle {
            Handle::Fd(fd) => Some((index, *fd)),
            Handle::Mem(_) | Handle::Signal(_) => None,
        })
        .collect();
    let mut polled: Vec<rustix::event::PollFd<'_>> = descriptors
        .iter()
        .map(|(_, fd)| {
            // SAFETY: the handles are those of live streams, as the type asks.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::empty())
        })
        .collect();
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if polled.is_empty() || rustix::event::poll(&mut polled, Some(&now)).is_err() {
        return Vec::new();
    }
    let reset = rustix::event::PollFlags::ERR;
    let hits = polled.iter().zip(&descriptors).filter(|(poll, _)| poll.revents().contains(reset));
    hits.map(|(_, (index, _))| *index).collect()
}
