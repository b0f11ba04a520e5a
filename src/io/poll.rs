//! A [`Stream`] for an engine that polls: tokio's I/O traits, not its runtime.
//!
//! The runtime's operations own their buffers, an engine lends it some. Between them stand two
//! coroutines, one that reads and one that writes, each one box for the life of a connection: no
//! operation allocates, and what an engine writes in one turn goes out in one SEND.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::cancel::Cancel;
use super::stream::{Shutdown, Stream};
use crate::base::buffer::Buf;
use crate::limits::{BODY_BUFFER_BYTES, HEAD_BUFFER_BYTES};

/// Reads from and writes to a stream on behalf of its [`PollIo`].
pub struct Poller<'a> {
    cells: Rc<Cells>,
    reader: RefCell<Coroutine<'a>>,
    writer: RefCell<Coroutine<'a>>,
}

/// What an engine owns of a [`Poller`]: the stream in tokio's traits.
#[derive(Clone)]
pub struct PollIo<'a>(Rc<Poller<'a>>);

/// None once it has ended.
type Coroutine<'a> = Option<Pin<Box<dyn Future<Output = ()> + 'a>>>;

/// What the coroutines and the engine exchange.
#[derive(Default)]
struct Cells {
    /// What has been read and not handed out.
    incoming: RefCell<Buf>,
    /// Whether the engine waits for more.
    wanted: Cell<bool>,
    /// Why nothing more comes: the end, or an error.
    read_ended: Cell<Option<Result<(), ErrorKind>>>,
    /// What the engine has written and no SEND has taken.
    outgoing: RefCell<Buf>,
    write_failed: Cell<Option<ErrorKind>>,
    /// Whether the end is to be sent once all has been written, and whether it was.
    ending: Cell<bool>,
    ended: Cell<bool>,
    /// Whether the engine was told to wait for room.
    blocked: Cell<bool>,
    /// SENDs begun, and whether one goes on.
    sends: Cell<u64>,
    sending: Cell<bool>,
}

impl<'a> Poller<'a> {
    /// One for `stream`, whose reads end when `idle` is cancelled: the buffer is given back then,
    /// and the next read begins when there is something to read.
    pub fn new(stream: &'a Stream, idle: Rc<Cancel>) -> Rc<Poller<'a>> {
        let cells = Rc::new(Cells::default());
        let (reading, writing) = (cells.clone(), cells.clone());
        let reader: Coroutine<'a> =
            Some(Box::pin(async move { read_on(stream, &idle, &reading).await }));
        let writer: Coroutine<'a> = Some(Box::pin(async move { write_on(stream, &writing).await }));
        Rc::new(Poller { cells, reader: reader.into(), writer: writer.into() })
    }

    /// What an engine reads from and writes to.
    pub fn io(self: &Rc<Self>) -> PollIo<'a> {
        PollIo(self.clone())
    }

    /// Bytes that came before the engine did.
    pub fn push_back(&self, early: Buf) {
        debug_assert!(self.cells.incoming.borrow().is_empty(), "before anything is read");
        self.cells.incoming.replace(early);
    }

    /// Lets the engine take a turn, and sends what it has written. Every poll of the engine has to
    /// come through here.
    pub fn turn<T>(
        &self,
        context: &mut Context<'_>,
        engine: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.cells.blocked.set(false);
        let polled = engine(context);
        resume(&self.writer, context);
        // A SEND that ended at once wakes nobody.
        if self.cells.blocked.get() && self.cells.outgoing.borrow().is_empty() {
            context.waker().wake_by_ref();
        }
        polled
    }

    /// The SEND that goes on, by its number: one that stays the same makes no progress.
    pub fn sending(&self) -> Option<u64> {
        self.cells.sending.get().then(|| self.cells.sends.get())
    }

    /// Reads and discards until the end, an error, or so many bytes.
    pub async fn discard(&self, bytes_max: u64) {
        let mut discarded = 0;
        poll_fn(|context| {
            loop {
                if !self.poll_incoming(context) {
                    return Poll::Pending;
                }
                let incoming = &mut *self.cells.incoming.borrow_mut();
                discarded += incoming.len() as u64;
                if incoming.is_empty() || discarded >= bytes_max {
                    return Poll::Ready(());
                }
                incoming.clear();
            }
        })
        .await;
    }

    /// Whether there is something to hand out, or the end of it.
    fn poll_incoming(&self, context: &mut Context<'_>) -> bool {
        let cells = &self.cells;
        let has = || !cells.incoming.borrow().is_empty() || cells.read_ended.get().is_some();
        if !has() {
            cells.wanted.set(true);
            resume(&self.reader, context);
        }
        has()
    }

    fn poll_read(&self, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.poll_incoming(context) {
            return Poll::Pending;
        }
        let incoming = &mut *self.cells.incoming.borrow_mut();
        if incoming.is_empty()
            && let Some(Err(kind)) = self.cells.read_ended.get()
        {
            return Poll::Ready(Err(kind.into()));
        }
        let count = incoming.len().min(out.remaining());
        out.put_slice(&incoming.filled()[..count]);
        incoming.consume(count);
        Poll::Ready(Ok(()))
    }

    fn poll_write(
        &self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if room(&mut self.cells.outgoing.borrow_mut()) == 0 {
            resume(&self.writer, context);
        }
        if let Some(kind) = self.cells.write_failed.get() {
            return Poll::Ready(Err(kind.into()));
        }
        let outgoing = &mut *self.cells.outgoing.borrow_mut();
        let mut count = 0;
        for part in parts {
            let mut part = &part[..];
            while !part.is_empty() {
                let fits = room(outgoing).min(part.len());
                if fits == 0 {
                    self.cells.blocked.set(count == 0);
                    return if count == 0 { Poll::Pending } else { Poll::Ready(Ok(count)) };
                }
                outgoing.extend(&part[..fits]);
                part = &part[fits..];
                count += fits;
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.cells.ending.set(true);
        resume(&self.writer, context);
        match (self.cells.write_failed.get(), self.cells.ended.get()) {
            (Some(kind), _) => Poll::Ready(Err(kind.into())),
            (None, true) => Poll::Ready(Ok(())),
            (None, false) => Poll::Pending,
        }
    }
}

impl AsyncRead for PollIo<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(context, out)
    }
}

impl AsyncWrite for PollIo<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing to do: what has been written goes out at the end of the [turn](Poller::turn).
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.cells.write_failed.get() {
            Some(kind) => Poll::Ready(Err(kind.into())),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(context)
    }
}

/// Reads whenever more is wanted.
async fn read_on(stream: &Stream, idle: &Cancel, cells: &Cells) {
    let mut large = false;
    loop {
        poll_fn(|_| match cells.wanted.get() && cells.incoming.borrow().is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        let buf = renewed(cells.incoming.take(), large);
        let (result, buf) = stream.read_cancelable(buf, idle).await;
        match result {
            Ok(0) => return cells.read_ended.set(Some(Ok(()))),
            Ok(count) => {
                large = count == HEAD_BUFFER_BYTES || (large && count > HEAD_BUFFER_BYTES);
                cells.wanted.set(false);
                cells.incoming.replace(buf);
            }
            Err(error) if Cancel::is_canceled(&error) => {
                drop(buf);
                // Whatever ends this shows in the read that follows.
                let _ = stream.readable().await;
            }
            Err(error) => return cells.read_ended.set(Some(Err(error.kind()))),
        }
    }
}

/// The buffer of the last read, or another: a body that fills small ones gets a large one.
fn renewed(mut spent: Buf, large: bool) -> Buf {
    let bytes = if large { BODY_BUFFER_BYTES } else { HEAD_BUFFER_BYTES };
    spent.clear();
    match spent.capacity() == bytes {
        true => spent,
        false if large => Buf::for_body(),
        false => Buf::for_head(),
    }
}

/// Writes whatever there is, and the end once it is asked for.
async fn write_on(stream: &Stream, cells: &Cells) {
    loop {
        poll_fn(|_| match cells.outgoing.borrow().is_empty() && !cells.ending.get() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
        let mut buf = cells.outgoing.take();
        if buf.is_empty() {
            stream.shutdown(Shutdown::Write);
            return cells.ended.set(true);
        }
        cells.sending.set(true);
        while !buf.is_empty() {
            cells.sends.set(cells.sends.get() + 1);
            let (result, back) = stream.write(buf).await;
            buf = back;
            match result {
                Ok(count) if count > 0 => buf.consume(count),
                failed => {
                    let kind = failed.map_or_else(|error| error.kind(), |_| ErrorKind::WriteZero);
                    cells.sending.set(false);
                    cells.write_failed.set(Some(kind));
                    // An engine that has nothing to write has to hear of it all the same.
                    return stream.shutdown(Shutdown::Both);
                }
            }
        }
        cells.sending.set(false);
    }
}

/// Room for more, a larger buffer taken where the small one is full. None: a SEND has to end first.
fn room(outgoing: &mut Buf) -> usize {
    if outgoing.capacity() == 0 {
        *outgoing = Buf::for_head();
    } else if outgoing.spare() == 0 && outgoing.capacity() < BODY_BUFFER_BYTES {
        let mut larger = Buf::for_body();
        if larger.capacity() > outgoing.capacity() {
            larger.extend(outgoing.filled());
            *outgoing = larger;
        }
    }
    outgoing.spare()
}

fn resume(coroutine: &RefCell<Coroutine<'_>>, context: &mut Context<'_>) {
    let coroutine = &mut *coroutine.borrow_mut();
    if let Some(running) = coroutine
        && running.as_mut().poll(context).is_ready()
    {
        *coroutine = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::io::driver::{DriverChoice, probe};
    use crate::io::{Listener, mem, runtime};

    /// A client of the standard library and a stream of ours.
    fn connected() -> (std::net::TcpStream, Stream) {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        socket.set_nonblocking(true).expect("set");
        let address = socket.local_addr().expect("an address");
        let client = std::net::TcpStream::connect(address).expect("connected");
        let listener = Listener::adopt(socket).expect("adopted");
        let (stream, _) = listener.accept().expect("accepts").expect("has one");
        (client, stream)
    }

    fn on_both_drivers<F: Future<Output = ()>>(test: impl Fn() -> F) {
        for choice in [DriverChoice::Epoll, DriverChoice::Auto] {
            let report = probe(choice).expect("a driver");
            runtime::run(&report, test()).expect("runs");
        }
    }

    /// Polls a future of the engine in turns.
    async fn in_turns<T>(poller: &Poller<'_>, engine: impl Future<Output = T>) -> T {
        let mut engine = std::pin::pin!(engine);
        poll_fn(|context| poller.turn(context, |context| engine.as_mut().poll(context))).await
    }

    #[test]
    fn a_megabyte_goes_through_and_comes_back() {
        on_both_drivers(|| async {
            let (mut client, stream) = connected();
            let sent: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
            let expected = sent.clone();
            let echo = std::thread::spawn(move || {
                use std::io::{Read, Write};
                let mut writer = client.try_clone().expect("cloned");
                let writing = std::thread::spawn(move || {
                    writer.write_all(&sent).expect("written");
                    writer.shutdown(std::net::Shutdown::Write).expect("ended");
                });
                let mut back = Vec::new();
                client.read_to_end(&mut back).expect("read");
                writing.join().expect("joined");
                back
            });
            let poller = Poller::new(&stream, Rc::default());
            let mut io = poller.io();
            in_turns(&poller, async {
                let mut part = vec![0; 50_000];
                loop {
                    let count = io.read(&mut part).await.expect("reads");
                    if count == 0 {
                        break;
                    }
                    io.write_all(&part[..count]).await.expect("writes");
                }
                io.shutdown().await.expect("ends");
            })
            .await;
            assert!(echo.join().expect("joined") == expected);
            assert_eq!(poller.sending(), None);
        });
    }

    #[test]
    fn an_idle_read_gives_its_buffer_back_and_goes_on() {
        on_both_drivers(|| async {
            use std::io::Write;
            let (mut client, stream) = connected();
            let idle: Rc<Cancel> = Rc::default();
            let poller = Poller::new(&stream, idle.clone());
            let mut io = poller.io();
            let read = async {
                let mut part = [0; 10];
                let count = io.read(&mut part).await.expect("reads");
                part[..count].to_vec()
            };
            let wakes = async {
                runtime::sleep_ms(10).await;
                idle.cancel();
                runtime::sleep_ms(10).await;
                client.write_all(b"late").expect("written");
            };
            let (read, ()) = runtime::join(in_turns(&poller, read), wakes).await;
            assert_eq!(read, b"late");
        });
    }

    #[test]
    fn what_is_written_in_one_turn_goes_out_at_once() {
        let (near, far) = mem::pair();
        let stream = Stream::Mem(near);
        let poller = Poller::new(&stream, Rc::default());
        let mut io = poller.io();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let turned = poller.turn(&mut context, |context| {
            for part in [&b"one"[..], b"two", &[b'x'; 20_000]] {
                let wrote = Pin::new(&mut io).poll_write(context, part);
                assert!(matches!(wrote, Poll::Ready(Ok(count)) if count == part.len()));
            }
            assert!(far.take().is_empty(), "nothing before the turn ends");
            Pin::new(&mut io).poll_flush(context)
        });
        assert!(turned.is_ready());
        assert_eq!((far.take().len(), poller.cells.sends.get()), (20_006, 1));
    }

    #[test]
    fn a_peer_that_takes_nothing_stops_the_engine() {
        let (near, far) = mem::pair();
        let stream = Stream::Mem(near);
        let poller = Poller::new(&stream, Rc::default());
        let mut io = poller.io();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut written = 0;
        while let Poll::Ready(Ok(count)) =
            poller.turn(&mut context, |context| Pin::new(&mut io).poll_write(context, &[7; 10_000]))
        {
            written += count;
            assert!(written < 4 * BODY_BUFFER_BYTES, "bounded");
        }
        let stuck = poller.sending();
        assert!(stuck.is_some());
        let mut taken = 0;
        for _ in 0..20 {
            taken += far.take().len();
            let _ = poller.turn(&mut context, |_| Poll::<()>::Pending);
        }
        assert_eq!((taken, poller.sending()), (written, None));
        far.reset();
        let _ = poller.turn(&mut context, |context| Pin::new(&mut io).poll_write(context, b"x"));
        let failed = Pin::new(&mut io).poll_write(&mut context, b"x");
        assert!(matches!(failed, Poll::Ready(Err(_))));
        let ended = Pin::new(&mut io).poll_shutdown(&mut context);
        assert!(matches!(ended, Poll::Ready(Err(_))));
    }
}
