//! One connection to an origin that speaks HTTP/2: greeting it, driving it, and what a pool has to
//! know of it. Nothing here waits for a stream; each is waited for by the request that began it.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};

use super::client::SharedStream;
use super::greeting::{Heard, Listening};
use super::incident::Incident;
use super::pulse::{Care, Glance, Pulse};
use super::sent::Sent;
use crate::error::ErrorKind;
use crate::io::poll::{PollIo, Poller};
use crate::io::runtime::within;
use crate::io::{Cancel, Stream};
use crate::limits::{
    UPSTREAM_HTTP2_CLOSE_MS, UPSTREAM_HTTP2_CONNECTION_WINDOW_BYTES,
    UPSTREAM_HTTP2_HEADER_LIST_BYTES_MAX, UPSTREAM_HTTP2_LOCAL_RESETS_MAX,
    UPSTREAM_HTTP2_RESET_STREAM_MS, UPSTREAM_HTTP2_RESET_STREAMS_KEPT,
    UPSTREAM_HTTP2_SEND_BUFFER_BYTES, UPSTREAM_HTTP2_STREAM_WINDOW_BYTES,
    UPSTREAM_HTTP2_STREAMS_MAX,
};
use crate::observe::WorkerCounters;

/// What the requests and the pool of a core share of one connection.
pub struct Origin {
    /// None once no stream is begun any more.
    sender: RefCell<Option<SendRequest<Bytes>>>,
    streams: Cell<usize>,
    streams_max: Cell<usize>,
    /// Whether a stream was ever begun, and whether one was since the last sweep.
    used: Cell<bool>,
    used_lately: Cell<bool>,
    /// Whether it was alive since it last began to be used: what was idle before may have been stale.
    alive: Cell<bool>,
    /// Its end, which all streams share that are under way then.
    end: Incident,
    /// Whether it counts among the idle ones.
    counted_idle: Cell<bool>,
    /// Whether it has given up: what is under way ends at once.
    dead: Cell<bool>,
    heard: Rc<Heard>,
    sent: Rc<RefCell<Sent>>,
    pulse: RefCell<Pulse>,
    /// Whether a request has waited in vain since the last sweep.
    doubted: Cell<bool>,
    /// Whether no stream is begun until it is heard of.
    doubtful: Cell<bool>,
    /// What has the driver send a PING.
    ping: Cell<bool>,
    driver: RefCell<Option<Waker>>,
    /// Ends the read of an idle connection, so that it holds no buffer.
    idle_read: Rc<Cancel>,
    counters: Arc<WorkerCounters>,
}

/// A place among the streams of a connection, given back on drop.
pub(super) struct Place(Rc<Origin>);

/// The connection as `h2` has it.
type Driven<'a> = Connection<Listening<PollIo<'a>>, Bytes>;

/// Greets the origin and drives the connection to its end. `greeted` is told once whether it speaks
/// HTTP/2: only after its SETTINGS have come is it known how many streams it takes, and that no
/// request is lost on an origin that speaks something else.
pub async fn drive(
    stream: Stream,
    timeout_ms: u64,
    counters: Arc<WorkerCounters>,
    greeted: impl FnOnce(Result<Rc<Origin>, ErrorKind>),
) {
    let idle_read: Rc<Cancel> = Rc::default();
    let poller = Poller::new(&stream, idle_read.clone());
    let (heard, sent): (Rc<Heard>, Rc<RefCell<Sent>>) = Default::default();
    let greeting = within(timeout_ms, greet(&poller, &heard, &sent)).await;
    let (sender, mut connection) = match greeting {
        Some(Ok(met)) => met,
        Some(Err(kind)) => return greeted(Err(kind)),
        None => return greeted(Err(ErrorKind::ConnectTimeout)),
    };
    let origin = Rc::new(Origin {
        sender: RefCell::new(Some(sender)),
        streams: Cell::new(0),
        streams_max: Cell::new(streams_max(&connection)),
        used: Cell::new(false),
        used_lately: Cell::new(false),
        // It has just been greeted.
        alive: Cell::new(true),
        end: Incident::default(),
        counted_idle: Cell::new(false),
        dead: Cell::new(false),
        heard,
        sent,
        pulse: RefCell::default(),
        doubted: Cell::new(false),
        doubtful: Cell::new(false),
        ping: Cell::new(false),
        driver: RefCell::default(),
        idle_read,
        counters,
    });
    origin.counters.upstream_connections.increment();
    origin.counters.upstream_http2_connections.increment();
    origin.count_idle();
    let ended = Ended(origin.clone());
    let mut pings = connection.ping_pong();
    greeted(Ok(origin.clone()));
    let leaving = poll_fn(|context| {
        origin.driver.replace(Some(context.waker().clone()));
        let polled =
            poller.turn(context, |context| origin.turn(&mut connection, pings.as_mut(), context));
        match origin.is_over() {
            true => Poll::Ready(()),
            false => polled,
        }
    });
    leaving.await;
    if !origin.dead.get() {
        // What is left is the goodbye: GOAWAY and the end.
        let goodbye =
            poll_fn(|context| poller.turn(context, |c| Pin::new(&mut connection).poll(c)));
        let _ = within(UPSTREAM_HTTP2_CLOSE_MS, goodbye).await;
    }
    drop(ended);
}

/// Sends the preface and waits until the origin's SETTINGS hold: that they have come says neither
/// that they are right, nor that the engine knows of them.
async fn greet<'a>(
    poller: &Rc<Poller<'a>>,
    heard: &Rc<Heard>,
    sent: &Rc<RefCell<Sent>>,
) -> Result<(SendRequest<Bytes>, Driven<'a>), ErrorKind> {
    let failed = |_: h2::Error| match heard.is_foreign() {
        true => ErrorKind::ProtocolMismatch,
        false => ErrorKind::ConnectFailed,
    };
    let io = Listening::new(poller.io(), heard.clone(), sent.clone());
    let builder = builder();
    let mut handshake = pin!(builder.handshake::<_, Bytes>(io));
    let met = poll_fn(|context| poller.turn(context, |c| handshake.as_mut().poll(c)));
    let (sender, mut connection) = met.await.map_err(failed)?;
    poll_fn(|context| match poller.turn(context, |c| Pin::new(&mut connection).poll(c)) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(failed(error))),
        Poll::Ready(Ok(())) => Poll::Ready(Err(ErrorKind::ConnectFailed)),
        Poll::Pending if heard.is_foreign() => Poll::Ready(Err(ErrorKind::ProtocolMismatch)),
        Poll::Pending if sent.borrow().has_acknowledged() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((sender, connection))
}

/// Every bound is named: what a library takes for granted may change.
fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(UPSTREAM_HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(UPSTREAM_HTTP2_CONNECTION_WINDOW_BYTES)
        .max_header_list_size(UPSTREAM_HTTP2_HEADER_LIST_BYTES_MAX)
        .max_send_buffer_size(UPSTREAM_HTTP2_SEND_BUFFER_BYTES)
        .data_frame_budget(UPSTREAM_HTTP2_CONNECTION_WINDOW_BYTES as usize / 2)
        .max_concurrent_reset_streams(UPSTREAM_HTTP2_RESET_STREAMS_KEPT)
        .reset_stream_duration(Duration::from_millis(UPSTREAM_HTTP2_RESET_STREAM_MS))
        .max_local_error_reset_streams(Some(UPSTREAM_HTTP2_LOCAL_RESETS_MAX));
    builder
}

/// How many streams may be begun at a time. One that takes none for now still gets one, which waits
/// for its turn inside the engine.
fn streams_max(connection: &Driven<'_>) -> usize {
    connection.max_concurrent_send_streams().clamp(1, UPSTREAM_HTTP2_STREAMS_MAX)
}

impl Origin {
    /// Whether streams may still be begun.
    pub fn is_open(&self) -> bool {
        self.sender.borrow().is_some()
    }

    /// How many streams it takes at a time.
    pub fn streams_max(&self) -> usize {
        self.streams_max.get()
    }

    /// Whether it carries no stream.
    pub fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// A place for one request, and whether the connection was used before; `None` where it has none
    /// left.
    pub fn take(self: &Rc<Self>) -> Option<(SharedStream, bool)> {
        if self.streams.get() >= self.streams_max.get() || self.doubtful.get() {
            return None;
        }
        let sender = self.sender.borrow().clone()?;
        let used = self.used.replace(true);
        if used && self.is_idle() {
            self.alive.set(false);
        }
        self.used_lately.set(true);
        self.streams.set(self.streams.get() + 1);
        self.counters.upstream_http2_streams.increment();
        self.count_idle();
        Some((SharedStream::new(sender, Place(self.clone())), used))
    }

    /// Begins no stream any more; those that are under way end in their own time.
    pub fn close(&self) {
        self.leave();
        self.wake();
    }

    /// A request has waited in vain for what comes on its stream: the origin may be gone.
    pub(super) fn doubt(&self) {
        self.doubted.set(true);
    }

    /// The head of an answer came.
    pub(super) fn answered(&self) {
        self.alive.set(true);
    }

    /// Its end, where that is a failure of the origin: not where it may have come while the connection
    /// was idle.
    pub(super) fn failure(&self) -> Option<Incident> {
        self.alive.get().then(|| self.end.clone())
    }

    /// What counts what happens to its streams.
    pub(super) fn counters(&self) -> &WorkerCounters {
        &self.counters
    }

    /// What a sweep does about it. Returns whether it stays.
    pub fn sweep(&self, now_ms: u64, idle_timeout_ms: u64) -> bool {
        self.sent.borrow_mut().pass_time(now_ms);
        let seen = Glance {
            heard: self.heard.take_anything(),
            idle: self.is_idle(),
            used: self.used_lately.take(),
            doubted: self.doubted.take(),
        };
        let care = self.pulse.borrow_mut().care(now_ms, idle_timeout_ms, seen);
        self.doubtful.set(self.pulse.borrow().is_doubtful(now_ms));
        match care {
            Care::Keep => {}
            Care::Park => self.idle_read.cancel(),
            Care::Ping => {
                self.ping.set(true);
                self.wake();
            }
            Care::Close => self.close(),
            Care::GiveUp => {
                tracing::warn!("an HTTP/2 connection to an upstream does not answer: given up");
                self.dead.set(true);
                self.close();
            }
        }
        self.is_open()
    }

    /// One turn of the driver.
    fn turn(
        &self,
        connection: &mut Driven<'_>,
        pings: Option<&mut PingPong>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<()> {
        let mut pings = pings;
        if let Some(pings) = &mut pings
            && self.ping.take()
        {
            // It fails where one is still unanswered, which serves as well.
            let _ = pings.send_ping(Ping::opaque());
        }
        let polled = Pin::new(&mut *connection).poll(context);
        if let Some(pings) = pings
            && pings.poll_pong(context).is_ready()
        {
            // An answer to a PING does not end the silence: the next one has to wait.
            self.heard.take_anything();
            self.pulse.borrow_mut().answered();
            self.doubtful.set(false);
        }
        self.streams_max.set(streams_max(connection));
        // After a GOAWAY no stream is begun; those that the origin has seen go on.
        let leaves = self
            .sender
            .borrow_mut()
            .as_mut()
            .is_some_and(|sender| matches!(sender.poll_ready(context), Poll::Ready(Err(_))));
        if leaves {
            if polled.is_pending() {
                self.counters.upstream_http2_goaways.increment();
            }
            self.leave();
        } else if self.is_open() && self.sent.borrow().is_worn() {
            tracing::debug!("too many streams to an upstream were reset: another takes over");
            self.leave();
        }
        polled.map(drop)
    }

    fn leave(&self) {
        self.sender.take();
        self.count_idle();
    }

    /// Whether nothing is left to be driven but the goodbye.
    fn is_over(&self) -> bool {
        self.dead.get() || (!self.is_open() && self.is_idle())
    }

    fn count_idle(&self) {
        let idle = self.is_open() && self.is_idle();
        match (self.counted_idle.replace(idle), idle) {
            (false, true) => self.counters.pool_idle.increment(),
            (true, false) => self.counters.pool_idle.decrement(),
            _ => {}
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }
}

impl Place {
    /// The connection that it is a place of.
    pub fn origin(&self) -> &Rc<Origin> {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let origin = &self.0;
        let streams = origin.streams.get();
        assert!(streams > 0, "a place was taken");
        origin.streams.set(streams - 1);
        origin.counters.upstream_http2_streams.decrement();
        origin.count_idle();
        if origin.is_over() {
            origin.wake();
        }
    }
}

/// Counts the end of a connection, however its driver ends.
struct Ended(Rc<Origin>);

impl Drop for Ended {
    fn drop(&mut self) {
        let origin = &self.0;
        origin.leave();
        origin.counters.upstream_connections.decrement();
        origin.counters.upstream_http2_connections.decrement();
    }
}
