//! The client's side of a connection.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::http::Forwarding;
use crate::http2::{Reason, ServerStream};
use crate::io::wait::Timer;
use crate::io::{Cancel, Handle, Stream, Target, Wait};
use crate::limits::{LINGER_BYTES_MAX, LINGER_MS};
use crate::proxy_protocol::Announced;
use crate::snapshot::{ListenerId, ListenerPlan};
use crate::state::Core;
use crate::tls::TlsFacts;

use crate::base::buffer::Buf;

/// A listener on one core, as the connections that came by it see it.
pub struct ListenerState {
    /// As the snapshot in force has it; the last one for a listener that has been removed.
    plan: RefCell<Arc<ListenerPlan>>,
    /// The port that clients connect to: that of the plan may be 0.
    port: u16,
    /// Tells connections to end: those that have come since their clients had to prove something else.
    leaving: RefCell<Rc<Cell<bool>>>,
}

impl ListenerState {
    /// One that has just been opened, at this port.
    pub fn new(plan: Arc<ListenerPlan>, port: u16) -> Rc<ListenerState> {
        Rc::new(ListenerState { plan: RefCell::new(plan), port, leaving: RefCell::default() })
    }

    /// Which one it is.
    pub fn id(&self) -> ListenerId {
        self.plan.borrow().id
    }

    /// Whether its socket serves for another listener too, which differs from it only in name.
    pub fn hands_over_to(&self, other: &ListenerPlan) -> bool {
        self.plan.borrow().hands_over_to(other)
    }

    /// Takes a new plan: open connections follow with their next request. Where it lets in others than
    /// before, they end as if the listener had been removed, and those that come from now on stay.
    pub fn apply(&self, plan: Arc<ListenerPlan>) {
        let before = self.plan.replace(plan.clone());
        if !plan.lets_in_whom(&before) {
            self.leaving.replace(Rc::default()).set(true);
        }
    }

    /// It has been removed: its connections end with their next answer, or when they have been idle
    /// for a while, as in a drain.
    pub fn leave(&self) {
        self.leaving.borrow().set(true);
    }
}

/// A client's connection, from accept to close.
pub struct Downstream {
    /// Its one deadline while requests are served one step after the other. Before `stream`, so
    /// that it is gone when the descriptor is closed.
    pub timer: Timer,
    /// The connection, or one stream of it.
    pub client: Client,
    /// Ends the read of an idle connection.
    pub idle_read: Rc<Cancel>,
    /// The listener that it came by.
    state: Rc<ListenerState>,
    /// Whether it is to end: its listener is gone, or has become stricter since.
    leaving: Rc<Cell<bool>>,
    /// The listener's plan, as of [`Downstream::refresh`].
    plan: Arc<ListenerPlan>,
    /// The other end; behind a PROXY header the client that it announces.
    pub peer: SocketAddr,
    /// What a PROXY header said of the client, if one came.
    pub announced: Option<Rc<Announced>>,
    /// What upstreams are told about it.
    pub forwarding: Forwarding,
    /// What is known of its TLS, where it speaks it.
    pub tls: Option<Rc<TlsFacts>>,
    /// What has been read of the next request; else a buffer to read it into.
    pub behind: Buf,
    /// Whether an answer has been begun and not ended.
    pub mid_answer: Cell<bool>,
    /// Counts it as long as it is open; a stream is no connection.
    _open: Option<Open>,
}

/// What requests of a client come by.
pub enum Client {
    /// A connection that carries one request after the other, or that has not yet said what it
    /// speaks; all of it for a connection of which the streams are served.
    Http1(Stream),
    /// One stream of an HTTP/2 connection.
    Http2(ServerStream),
    /// Nothing: its handshake goes on.
    Opening,
}

/// Counts a connection from accept to close.
struct Open {
    core: Rc<Core>,
    listener: ListenerId,
}

impl Open {
    fn new(core: &Rc<Core>, listener: ListenerId) -> Open {
        core.counters.connections.increment();
        core.series.connection_opened(listener.0);
        Open { core: core.clone(), listener }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.core.counters.connections.decrement();
        self.core.series.connection_closed(self.listener.0);
    }
}

impl Downstream {
    /// A connection that a listener has just accepted.
    pub fn new(
        stream: Stream,
        peer: SocketAddr,
        listener: &Rc<ListenerState>,
        core: &Rc<Core>,
    ) -> Downstream {
        let idle_read = Rc::new(Cancel::default());
        let leaving = listener.leaving.borrow().clone();
        let target = Target {
            client: stream.handle(),
            upstream: None,
            idle_read: Some(idle_read.clone()),
            leaving: leaving.clone(),
        };
        let plan = listener.plan.borrow().clone();
        Downstream {
            timer: Timer::new(&core.deadlines, target),
            client: Client::Http1(stream),
            idle_read,
            forwarding: Forwarding::new(peer, listener.port, plan.trusts(peer.ip())),
            peer,
            announced: None,
            tls: None,
            state: listener.clone(),
            leaving,
            plan,
            behind: Buf::empty(),
            mid_answer: Cell::new(false),
            _open: Some(Open::new(core, listener.id())),
        }
    }

    /// One stream of this connection, which is served like a connection of its own.
    pub fn for_stream(&self, stream: ServerStream, core: &Core) -> Box<Downstream> {
        let target = Target {
            client: stream.handle(),
            upstream: None,
            idle_read: None,
            leaving: self.leaving.clone(),
        };
        let mut down = Box::new(Downstream {
            timer: Timer::new(&core.deadlines, target),
            client: Client::Http2(stream),
            idle_read: self.idle_read.clone(),
            forwarding: self.forwarding.clone(),
            peer: self.peer,
            announced: self.announced.clone(),
            tls: self.tls.clone(),
            state: self.state.clone(),
            leaving: self.leaving.clone(),
            plan: self.plan.clone(),
            behind: Buf::empty(),
            mid_answer: Cell::new(false),
            _open: None,
        });
        down.refresh();
        down
    }

    /// The connection of a client that speaks HTTP/1.
    ///
    /// # Panics
    /// It is a stream of HTTP/2.
    #[inline]
    pub fn stream(&self) -> &Stream {
        match &self.client {
            Client::Http1(stream) => stream,
            Client::Http2(_) | Client::Opening => unreachable!("HTTP/1 is spoken on a connection"),
        }
    }

    /// The stream of a client that speaks HTTP/2.
    #[inline]
    pub fn http2(&self) -> Option<&ServerStream> {
        match &self.client {
            Client::Http2(stream) => Some(stream),
            Client::Http1(_) | Client::Opening => None,
        }
    }

    /// What a deadline shuts down.
    pub fn handle(&self) -> Handle {
        match &self.client {
            Client::Http1(stream) => stream.handle(),
            Client::Http2(stream) => stream.handle(),
            Client::Opening => unreachable!("nothing is served before it is open"),
        }
    }

    /// Takes the connection for its handshake; [`Downstream::put`] gives it back.
    pub fn take(&mut self) -> Stream {
        match std::mem::replace(&mut self.client, Client::Opening) {
            Client::Http1(stream) => stream,
            Client::Http2(_) | Client::Opening => unreachable!("taken once, before anything else"),
        }
    }

    /// Gives the connection back after its handshake.
    pub fn put(&mut self, stream: Stream) {
        self.client = Client::Http1(stream);
    }

    /// The plan of the listener that it came by. It does not change while a request is served, and
    /// holds no snapshot.
    #[inline]
    pub fn listener(&self) -> &ListenerPlan {
        &self.plan
    }

    /// Follows what a reload has changed of its listener: between requests, one comparison each.
    #[inline]
    pub fn refresh(&mut self) {
        if !Arc::ptr_eq(&self.plan, &self.state.plan.borrow()) {
            self.follow();
        }
    }

    /// What the listener's plan in force says, for a connection that outlives the one it began with.
    pub fn in_force<T>(&self, says: impl FnOnce(&ListenerPlan) -> T) -> T {
        says(&self.state.plan.borrow())
    }

    #[cold]
    fn follow(&mut self) {
        self.plan = self.state.plan.borrow().clone();
        self.forwarding.trusted = self.believes();
    }

    /// Whether the client's forwarding fields are believed. Of one that a PROXY header leaves unknown
    /// nobody can say (docs/decisions/0013).
    fn believes(&self) -> bool {
        let unknown = self.announced.as_ref().is_some_and(|it| it.source().is_none());
        !unknown && self.plan.trusts(self.peer.ip())
    }

    /// Takes what a trusted peer announces: from here on its client is the client.
    pub fn announce(&mut self, announced: Announced) {
        self.peer = announced.source().unwrap_or(self.peer);
        let port = announced.destination().map_or(self.forwarding.port, |to| to.port());
        self.announced = Some(Rc::new(announced));
        self.forwarding = Forwarding::new(self.peer, port, self.believes());
    }

    /// Whether it ends with its next answer: the core drains, its listener is gone, or would not have
    /// let it in today.
    #[inline]
    pub fn ends(&self, core: &Core) -> bool {
        core.draining.get() || self.leaving.get()
    }

    /// What a second timer for the same connection acts on.
    pub fn target(&self, upstream: Option<Handle>) -> Target {
        Target { client: self.handle(), upstream, idle_read: None, leaving: self.leaving.clone() }
    }

    /// Ends the connection so that the last answer is not lost: the end is sent, and what the
    /// client is still sending is read and discarded for a while (RFC 9112 section 9.6).
    pub async fn close(self: Box<Self>) {
        self.timer.arm(Wait::Linger, LINGER_MS);
        self.stream().finish().await;
        let mut buf = Buf::for_head();
        let mut discarded = 0;
        while discarded < LINGER_BYTES_MAX {
            buf.clear();
            let (result, back) = self.stream().read(buf).await;
            buf = back;
            match result {
                Ok(count) if count > 0 => discarded += count as u64,
                _ => break,
            }
        }
    }

    /// Ends the connection so that the client cannot take what it got for a whole answer.
    pub fn reset(self: Box<Self>) {
        self.mid_answer.set(true);
    }
}

impl Drop for Downstream {
    /// Whatever ends a connection inside an answer, a panic included, must not look like its end.
    fn drop(&mut self) {
        if !self.mid_answer.get() {
            return;
        }
        match &self.client {
            Client::Http1(stream) => stream.reset(),
            Client::Http2(stream) => stream.reset(Reason::INTERNAL_ERROR),
            Client::Opening => {}
        }
    }
}
