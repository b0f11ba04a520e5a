//! A client's connection that speaks HTTP/2: its streams, each served in a task of its own.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;

use super::conn;
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http2::meter::{Meter, Verdict};
use crate::http2::server::Metered;
use crate::http2::{PREFACE, ServerStream, read_request};
use crate::io::runtime::catch_panic;
use crate::io::signal::Signal;
use crate::io::wait::Timer;
use crate::io::{Handle, Poller, Wait, spawn};
use crate::limits::{HTTP2_GOAWAY_MS, LINGER_BYTES_MAX, LINGER_MS, TIMEOUT_MS_MAX};
use crate::proxy::exchange::Pooled;
use crate::proxy::{Downstream, Exchange, Next, refuse, serve};
use crate::state::Core;

/// Starts to serve a connection; what has been read of it is in `down.behind`.
pub(super) fn start(core: Rc<Core>, down: Box<Downstream>) {
    spawn(async move {
        run(&core, down, |stream| spawn(stream.run())).await;
    });
}

/// Serves a connection until it ends, and survives its panics. Its streams go to `start`.
pub async fn run(core: &Rc<Core>, down: Box<Downstream>, start: impl Fn(Stream)) {
    let _open = Open::new(core);
    if catch_panic(connection(core, down, start)).await.is_none() {
        core.counters.panics.increment();
        tracing::error!("a panic ended a connection of HTTP/2; the others go on");
    }
}

/// What a client begins with that comes by a listener with `h2c`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// The preface of HTTP/2 (RFC 9113 section 3.3).
    Http2,
    /// Anything else.
    Http1,
    /// Nothing: it has closed, or said nothing for too long.
    Nothing,
}

/// Reads until it is clear what a client speaks, into `down.behind`. No buffer is held before the
/// first byte.
pub(super) async fn listen_in(down: &mut Downstream) -> Speaks {
    let mut bytes = std::mem::take(&mut down.behind);
    if bytes.is_empty() {
        down.timer.arm(Wait::Parked, down.listener().idle_timeout_ms);
        // Whatever ended the wait shows in the read that follows.
        let _ = down.stream().readable().await;
        bytes = Buf::for_head();
    } else {
        down.timer.arm(Wait::Head, down.listener().head_timeout_ms);
    }
    let speaks = loop {
        let begun = bytes.len().min(PREFACE.len());
        match bytes.filled()[..begun] == PREFACE[..begun] {
            true if begun == PREFACE.len() => break Speaks::Http2,
            true => {}
            false => break Speaks::Http1,
        }
        let (result, back) = down.stream().read(bytes).await;
        let first = back.len() == result.as_ref().copied().unwrap_or(0);
        bytes = back;
        match result {
            Ok(count) if count > 0 && first => {
                down.timer.arm(Wait::Head, down.listener().head_timeout_ms);
            }
            Ok(count) if count > 0 => {}
            _ if bytes.is_empty() => break Speaks::Nothing,
            // The parser of HTTP/1 says what is wrong with it.
            _ => break Speaks::Http1,
        }
    };
    down.timer.disarm();
    down.behind = bytes;
    speaks
}

/// Goes on with what a client speaks.
pub(super) async fn open_cleartext(core: Rc<Core>, mut down: Box<Downstream>) {
    match listen_in(&mut down).await {
        Speaks::Http2 => start(core, down),
        Speaks::Http1 => conn::start(core, down),
        Speaks::Nothing => {}
    }
}

/// Counts a connection as long as it is open.
struct Open<'a>(&'a Core);

impl<'a> Open<'a> {
    fn new(core: &'a Core) -> Open<'a> {
        core.counters.http2_connections_opened.increment();
        core.counters.http2_connections.increment();
        Open(core)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.counters.http2_connections.decrement();
    }
}

async fn connection(core: &Rc<Core>, mut down: Box<Downstream>, start: impl Fn(Stream)) {
    let early = std::mem::take(&mut down.behind);
    down.refresh();
    let signal: Rc<Signal> = Rc::default();
    // Deadlines end waits of this task, not the descriptor: GOAWAY is to be sent first.
    down.timer.set_client(Handle::Signal(signal.clone()));
    let mut target = down.target(None);
    target.client = Handle::Signal(signal.clone());
    let writes = Timer::new(&core.deadlines, target);
    let poller = Poller::new(down.stream(), down.idle_read.clone());
    poller.push_back(early);
    let meter = Rc::new(RefCell::new(Meter::new(core.deadlines.now_ms())));
    let io = Metered::new(poller.io(), meter.clone(), core.deadlines.clone());

    let listener = down.listener();
    down.timer.arm(Wait::Head, listener.head_timeout_ms);
    let shake = async {
        let mut shake = pin!(listener.http2.builder(&listener.head).handshake(io));
        poll_fn(|context| poller.turn(context, |context| shake.as_mut().poll(context))).await
    };
    let Ok(Ok(engine)) = signal.reading(Box::pin(shake)).await else { return };
    let mut serving = Serving {
        core,
        down: &down,
        poller: poller.clone(),
        engine,
        meter,
        live: Live::new(&signal),
        writes,
        stuck_at: None,
        phase: Phase::Begins,
        abrupt: false,
        refuses_from_ms: u64::MAX,
        progress: 0,
    };
    serving.until_told(&signal, &start).await;
    serving.until_closed(&signal, &start).await;
    let stuck = [serving.writes.expired(), down.timer.expired()].contains(&Some(Wait::ClientWrite));
    drop(serving);
    if stuck {
        // Nothing more can be said to a client that takes nothing.
        down.stream().reset();
    }
    if signal.writing_ended() {
        return;
    }
    down.timer.arm(Wait::Linger, LINGER_MS);
    let _ = signal.writing(Box::pin(poller.discard(LINGER_BYTES_MAX))).await;
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's acknowledgement of our settings.
    Begins,
    /// The next stream; none is open.
    Idle,
    /// Streams that are open, or more of them.
    Streams,
    /// The client to take the rest of streams that have been served.
    Rest,
    /// The last streams, after GOAWAY.
    LastStreams,
    /// The rest of them.
    LastRest,
    /// The client's end, after GOAWAY.
    Leaves,
    /// It has ended.
    Ended,
}

/// A connection whose streams are served.
struct Serving<'a> {
    core: &'a Rc<Core>,
    down: &'a Downstream,
    poller: Rc<Poller<'a>>,
    engine: Connection<Metered<'a>, Bytes>,
    meter: Rc<RefCell<Meter>>,
    live: Rc<Live>,
    /// Bounds SENDs that make no progress.
    writes: Timer,
    /// The SEND that was in flight when it was last armed.
    stuck_at: Option<u64>,
    phase: Phase,
    /// Whether it ends with all its streams.
    abrupt: bool,
    /// From when on streams are refused, after GOAWAY.
    refuses_from_ms: u64,
    /// Frames that had come, or been sent, when the timer was last armed.
    progress: u64,
}

/// The streams of a connection that are being served.
struct Live {
    count: Cell<usize>,
    connection: Rc<Signal>,
}

impl Live {
    fn new(connection: &Rc<Signal>) -> Rc<Live> {
        Rc::new(Live { count: Cell::new(0), connection: connection.clone() })
    }

    fn enter(&self) {
        self.count.set(self.count.get() + 1);
    }

    /// The connection looks at what is left once there is none.
    fn leave(&self) {
        self.count.set(self.count.get() - 1);
        if self.count.get() == 0 {
            self.connection.wake();
        }
    }
}

/// A stream that has come.
type Came = Option<Result<(Request<RecvStream>, SendResponse<Bytes>), h2::Error>>;

impl Serving<'_> {
    /// Serves streams until a deadline, a drain or the client ends that.
    async fn until_told(&mut self, signal: &Signal, start: &impl Fn(Stream)) {
        while let Ok(came) = signal.reading(poll_fn(|context| self.poll(context))).await {
            if !self.take(came, start) {
                return;
            }
        }
        match self.down.timer.expired() {
            _ if signal.writing_ended() => return,
            Some(Wait::Head) => self.calm_down(Reason::SETTINGS_TIMEOUT),
            _ => self.go_away(),
        }
        self.turn_to(Phase::LastStreams);
    }

    /// Serves the streams that were still under way.
    async fn until_closed(&mut self, signal: &Signal, start: &impl Fn(Stream)) {
        while self.phase != Phase::Ended
            && let Ok(came) = signal.writing(poll_fn(|context| self.poll(context))).await
        {
            self.take(came, start);
        }
    }

    /// Takes a stream, or the end; true for a stream.
    fn take(&mut self, came: Came, start: &impl Fn(Stream)) -> bool {
        match came {
            // RFC 9113 section 8.7: the client may try it again elsewhere.
            Some(Ok((_, mut reply))) if self.refuses() => {
                reply.send_reset(Reason::REFUSED_STREAM);
                self.core.counters.http2_resets_sent.increment();
                return true;
            }
            Some(Ok((request, reply))) => {
                start(Stream::begin(self.core, self.down, (request, reply), &self.live));
                return true;
            }
            Some(Err(error)) if error.is_go_away() && error.is_library() => {
                self.count_go_away(error.reason().unwrap_or(Reason::INTERNAL_ERROR));
            }
            Some(Err(_)) | None => {}
        }
        self.phase = Phase::Ended;
        false
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Came> {
        let engine = &mut self.engine;
        let mut came = self.poller.turn(context, |context| engine.poll_accept(context));
        let ended = matches!(came, Poll::Ready(None | Some(Err(_))));
        let verdict = self.meter.borrow().verdict();
        if let Some(verdict) = verdict.filter(|_| !self.abrupt && !ended) {
            if let Verdict::Flood(flood) = verdict {
                self.core.counters.http2_floods[flood as usize].increment();
            }
            self.calm_down(verdict.reason());
            let engine = &mut self.engine;
            came = self.poller.turn(context, |context| engine.poll_accept(context));
        }
        // A stream that has come is served first; then there is another turn.
        if came.is_pending() {
            self.keep_time();
        }
        came
    }

    /// Ends the connection and all its streams once GOAWAY has been sent.
    fn calm_down(&mut self, reason: Reason) {
        self.count_go_away(reason);
        self.engine.abrupt_shutdown(reason);
        self.abrupt = true;
    }

    /// Takes no more streams, and lets those under way end (RFC 9113 section 6.8).
    fn go_away(&mut self) {
        self.count_go_away(Reason::NO_ERROR);
        self.engine.graceful_shutdown();
        self.refuses_from_ms = self.core.deadlines.now_ms() + HTTP2_GOAWAY_MS;
    }

    /// Whether a stream that comes now did not cross our GOAWAY. Where the client has answered the
    /// PING behind it, the engine knows which did and ignores the others; one that does not answer
    /// is not served for ever.
    fn refuses(&self) -> bool {
        self.core.deadlines.now_ms() >= self.refuses_from_ms
    }

    fn count_go_away(&self, reason: Reason) {
        let goaways = &self.core.counters.http2_goaways;
        let index = usize::try_from(u32::from(reason)).unwrap_or(usize::MAX);
        goaways[index.min(goaways.len() - 1)].increment();
    }

    /// Arms the deadlines of what is waited for now.
    fn keep_time(&mut self) {
        let sending = self.poller.sending();
        if sending != self.stuck_at {
            self.stuck_at = sending;
            match sending {
                Some(_) => self.writes.arm(Wait::ClientWrite, self.write_timeout_ms()),
                None => self.writes.disarm(),
            }
        }
        let next = self.next_phase();
        let meter = self.meter.borrow();
        let progress = match next {
            Phase::Streams => meter.frames(),
            Phase::Rest | Phase::LastRest => meter.sent(),
            _ => 0,
        };
        drop(meter);
        if next != self.phase || progress != self.progress {
            self.progress = progress;
            self.turn_to(next);
        }
    }

    fn next_phase(&self) -> Phase {
        let (streams, served) = (self.engine.has_streams(), self.live.count.get() == 0);
        match self.phase {
            Phase::Ended => Phase::Ended,
            _ if self.abrupt => Phase::Leaves,
            Phase::Begins if !self.meter.borrow().acknowledged() => Phase::Begins,
            Phase::Begins | Phase::Idle | Phase::Streams | Phase::Rest => match streams {
                true if served => Phase::Rest,
                true => Phase::Streams,
                false => Phase::Idle,
            },
            // What is refused holds up nothing.
            Phase::Leaves if self.refuses() => Phase::Leaves,
            // A stream may cross our GOAWAY, and is served.
            Phase::LastStreams | Phase::LastRest | Phase::Leaves => match streams {
                true if served => Phase::LastRest,
                true => Phase::LastStreams,
                false => Phase::Leaves,
            },
        }
    }

    fn turn_to(&mut self, phase: Phase) {
        self.phase = phase;
        let timer = &self.down.timer;
        match phase {
            Phase::Begins | Phase::Ended => {}
            Phase::Idle => {
                timer.arm(Wait::Streams, self.down.in_force(|listener| listener.idle_timeout_ms));
            }
            Phase::Streams => timer.arm(Wait::Streams, TIMEOUT_MS_MAX),
            // Nothing else bounds what no window lets through (RFC 9113 section 6.9.2).
            Phase::Rest | Phase::LastRest => {
                timer.arm(Wait::ClientWrite, self.write_timeout_ms());
            }
            Phase::LastStreams => timer.disarm(),
            Phase::Leaves => timer.arm(Wait::Linger, LINGER_MS),
        }
    }

    fn write_timeout_ms(&self) -> u64 {
        self.down.in_force(|listener| listener.write_timeout_ms)
    }
}

/// A request that has come by a stream, and all that serves it.
pub struct Stream {
    core: Rc<Core>,
    down: Box<Downstream>,
    exchange: Pooled,
    read: Result<(), ErrorKind>,
    gone: Cell<bool>,
    live: Rc<Live>,
}

impl Stream {
    fn begin(
        core: &Rc<Core>,
        connection: &Downstream,
        (request, reply): (Request<RecvStream>, SendResponse<Bytes>),
        live: &Rc<Live>,
    ) -> Stream {
        let (parts, body) = request.into_parts();
        let down = connection.for_stream(ServerStream::new(body, reply), core);
        let mut exchange = Exchange::take(core);
        let read = read_request(&parts, &mut exchange.context.request, &down.listener().head);
        core.counters.http2_streams.increment();
        core.counters.http2_streams_open.increment();
        live.enter();
        let (gone, live) = (Cell::new(false), live.clone());
        Stream { core: core.clone(), down, exchange, read, gone, live }
    }

    /// Serves it to its end; a panic ends this stream only.
    pub async fn run(mut self) {
        let next = catch_panic(self.serve()).await;
        if next.is_none() {
            self.core.counters.panics.increment();
            tracing::error!("a panic ended a stream; its connection goes on");
        }
        match next {
            Some(Next::KeepAlive | Next::Close) => {}
            Some(Next::Reset) | None => {
                if !self.gone.get() {
                    self.core.counters.http2_resets_sent.increment();
                }
                // What is dropped inside an answer is reset.
                self.down.mid_answer.set(true);
            }
        }
    }

    async fn serve(&mut self) -> Next {
        if self.is_taken_back().await {
            self.read = Err(ErrorKind::ClientAborted);
        }
        let Stream { core, down, exchange, read, gone, .. } = self;
        let (core, down, gone) = (&*core, &**down, &*gone);
        let serving = async {
            match *read {
                Ok(()) => {
                    exchange.context.request.failpoint("parse");
                    serve(exchange, down, core).await
                }
                Err(kind) => Box::pin(refuse(exchange, down, core, kind)).await,
            }
        };
        let mut serving = pin!(serving);
        poll_fn(|context| {
            let mut reset = || down.http2().is_some_and(|s| s.poll_reset(context).is_ready());
            if !gone.get() && reset() {
                gone.set(true);
                core.counters.http2_resets_received.increment();
            }
            let served = serving.as_mut().poll(context);
            // Again after each turn: the wait that has to end may have begun just now.
            if gone.get() && served.is_pending() {
                down.timer.give_up();
            }
            served
        })
        .await
    }

    /// Whether the client has reset it before anybody looked at it: nobody waits for an answer, so
    /// that no upstream is to work on one.
    async fn is_taken_back(&self) -> bool {
        let Some(stream) = self.down.http2() else { return false };
        let reset = poll_fn(|context| Poll::Ready(stream.poll_reset(context).is_ready())).await;
        if reset {
            self.gone.set(true);
            self.core.counters.http2_resets_received.increment();
        }
        reset
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.core.counters.http2_streams_open.decrement();
        self.live.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection is one heap block as large as the largest state of this future, beside
    /// what the engine holds: two coroutines, and its buffers of 16 and 8 KiB.
    #[test]
    fn connections_and_streams_are_small() {
        fn size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        fn size_of_stream<A, F>(_: impl Fn(A) -> F) -> usize {
            size_of::<F>()
        }
        type Start = fn(Stream);
        let connection = size(|core: &'static Rc<Core>, down, start: Start| run(core, down, start));
        let stream = size_of_stream(Stream::run);
        assert!(connection < 2 * 1024, "{connection} bytes a connection");
        assert!(stream < 1024 + 128, "{stream} bytes a stream");
    }
}
