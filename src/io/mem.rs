//! Streams in memory, for simulation: every split and every error can be scripted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::cancel::Cancel;
use super::stream::{Peek, Shutdown, Stream};
use crate::base::buffer::Buf;

/// One end of a connection in memory.
pub struct End {
    incoming: Rc<Pipe>,
    outgoing: Rc<Pipe>,
    faults: Rc<Faults>,
}

/// What goes wrong with one end, and how its operations are split.
#[derive(Debug, Default)]
pub struct Faults {
    /// Most bytes that one read returns; 0 is no bound.
    pub read_max: Cell<usize>,
    /// Most bytes that one write takes; 0 is no bound.
    pub write_max: Cell<usize>,
    /// Operations until the peer resets the connection, 1 being the next; 0 is never.
    pub fail_in: Cell<usize>,
}

/// Shuts an end down without owning it.
#[derive(Debug)]
pub struct Closer {
    incoming: Rc<Pipe>,
    outgoing: Rc<Pipe>,
}

/// One direction.
#[derive(Debug, Default)]
struct Pipe {
    bytes: RefCell<VecDeque<u8>>,
    ended: Cell<bool>,
    reset: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    room: RefCell<Option<Waker>>,
}

/// Bytes in flight in one direction: as little as a small socket buffer, to show back-pressure.
const PIPE_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static NETWORK: RefCell<Option<VecDeque<End>>> = const { RefCell::new(None) };
}

/// Makes both ends of a connection.
pub fn pair() -> (End, End) {
    let (there, back) = (Rc::new(Pipe::default()), Rc::new(Pipe::default()));
    let near = End { incoming: back.clone(), outgoing: there.clone(), faults: Rc::default() };
    (near, End { incoming: there, outgoing: back, faults: Rc::default() })
}

/// From now on this thread connects to `ends`, in that order, and to nothing else; with none left
/// a connection is refused.
pub fn simulate_network(ends: impl IntoIterator<Item = End>) {
    NETWORK.set(Some(ends.into_iter().collect()));
}

/// The next simulated connection, where a network is simulated.
pub(super) fn connect() -> Option<io::Result<Stream>> {
    NETWORK.with_borrow_mut(|network| {
        let end = network.as_mut()?.pop_front();
        Some(end.map(Stream::Mem).ok_or_else(|| io::ErrorKind::ConnectionRefused.into()))
    })
}

impl End {
    /// Its faults, to be scripted.
    pub fn faults(&self) -> Rc<Faults> {
        self.faults.clone()
    }

    /// Sends bytes without waiting for room.
    pub fn push(&self, bytes: &[u8]) {
        self.outgoing.bytes.borrow_mut().extend(bytes);
        self.outgoing.wake();
    }

    /// Takes what has arrived.
    pub fn take(&self) -> Vec<u8> {
        let taken = self.incoming.bytes.borrow_mut().drain(..).collect();
        wake(&self.incoming.room);
        taken
    }

    /// Whether the peer has ended its direction, by an end or a reset.
    pub fn ended(&self) -> bool {
        self.incoming.ended.get() || self.incoming.reset.get()
    }

    /// Whether the peer has reset the connection.
    pub fn was_reset(&self) -> bool {
        self.incoming.reset.get()
    }

    /// A reset in both directions.
    pub fn reset(&self) {
        for pipe in [&self.outgoing, &self.incoming] {
            pipe.reset.set(true);
            pipe.wake();
            wake(&pipe.room);
        }
    }

    /// Shuts a direction down.
    pub fn shutdown(&self, how: Shutdown) {
        self.closer().shutdown(how);
    }

    pub(super) fn closer(&self) -> Rc<Closer> {
        Rc::new(Closer { incoming: self.incoming.clone(), outgoing: self.outgoing.clone() })
    }

    pub(super) fn peek(&self) -> Peek {
        if !self.incoming.bytes.borrow().is_empty() {
            Peek::Bytes
        } else if self.ended() {
            Peek::Closed
        } else {
            Peek::Nothing
        }
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        std::future::poll_fn(|context| {
            if self.peek() != Peek::Nothing {
                return Poll::Ready(Ok(()));
            }
            self.incoming.waker.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await
    }

    pub(super) async fn read(
        &self,
        mut buf: Buf,
        cancel: Option<&Cancel>,
    ) -> (io::Result<usize>, Buf) {
        if self.faults.strikes() {
            self.reset();
        }
        let result = std::future::poll_fn(|context| {
            let mut bytes = self.incoming.bytes.borrow_mut();
            if self.incoming.reset.get() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if bytes.is_empty() && !self.incoming.ended.get() {
                if let Some(error) = cancel.and_then(|cancel| cancel.poll_mem(context.waker())) {
                    return Poll::Ready(Err(error));
                }
                self.incoming.waker.replace(Some(context.waker().clone()));
                return Poll::Pending;
            }
            let count = bounded(bytes.len().min(buf.spare()), self.faults.read_max.get());
            let taken: Vec<u8> = bytes.drain(..count).collect();
            buf.extend(&taken);
            Poll::Ready(Ok(count))
        })
        .await;
        if let Some(cancel) = cancel {
            cancel.clear_mem();
        }
        wake(&self.incoming.room);
        (result, buf)
    }

    /// Reads without waiting. `None`: nothing is there.
    pub(super) fn read_now(&self, buf: &mut Buf) -> io::Result<Option<usize>> {
        let mut bytes = self.incoming.bytes.borrow_mut();
        if self.incoming.reset.get() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if bytes.is_empty() && !self.incoming.ended.get() {
            return Ok(None);
        }
        let count = bounded(bytes.len().min(buf.spare()), self.faults.read_max.get());
        buf.extend(&bytes.drain(..count).collect::<Vec<u8>>());
        drop(bytes);
        wake(&self.incoming.room);
        Ok(Some(count))
    }

    /// Writes as much as is taken without waiting.
    pub(super) fn write_now(&self, sent: &[u8]) -> io::Result<usize> {
        if self.outgoing.reset.get() || self.outgoing.ended.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut bytes = self.outgoing.bytes.borrow_mut();
        let room = PIPE_BYTES_MAX.saturating_sub(bytes.len());
        let count = bounded(sent.len().min(room), self.faults.write_max.get());
        bytes.extend(&sent[..count]);
        drop(bytes);
        self.outgoing.wake();
        Ok(count)
    }

    pub(super) async fn write(&self, buf: Buf) -> (io::Result<usize>, Buf) {
        if self.faults.strikes() {
            self.reset();
        }
        let result = std::future::poll_fn(|context| {
            if self.outgoing.reset.get() || self.outgoing.ended.get() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let mut bytes = self.outgoing.bytes.borrow_mut();
            let room = PIPE_BYTES_MAX.saturating_sub(bytes.len());
            if room == 0 {
                self.outgoing.room.replace(Some(context.waker().clone()));
                return Poll::Pending;
            }
            let count = bounded(buf.len().min(room), self.faults.write_max.get());
            bytes.extend(&buf.filled()[..count]);
            Poll::Ready(Ok(count))
        })
        .await;
        self.outgoing.wake();
        (result, buf)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.closer().shutdown(Shutdown::Both);
    }
}

impl Closer {
    pub(super) fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Read {
            self.outgoing.ended.set(true);
            self.outgoing.wake();
            wake(&self.outgoing.room);
        }
        if how != Shutdown::Write {
            self.incoming.ended.set(true);
            self.incoming.wake();
            wake(&self.incoming.room);
        }
    }
}

impl Pipe {
    fn wake(&self) {
        wake(&self.waker);
    }
}

impl Faults {
    /// Counts an operation; true where the peer resets the connection at it.
    fn strikes(&self) -> bool {
        match self.fail_in.get() {
            0 => false,
            1 => true,
            left => {
                self.fail_in.set(left - 1);
                false
            }
        }
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn bounded(count: usize, max: usize) -> usize {
    if max == 0 { count } else { count.min(max) }
}
