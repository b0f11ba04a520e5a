//! Idle connections of one endpoint on one core: a plain list, popped and pushed at its end (P2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::group::Endpoint;
use super::plan::Protocol;
use crate::http2::client::SharedStream;
use crate::io::{Handle, Peek, Stream};
use crate::observe::WorkerCounters;

/// The idle connections of one endpoint.
#[derive(Default)]
pub(super) struct Pool {
    idle: RefCell<Vec<Idle>>,
    /// The endpoint has left the configuration: nothing is kept any more.
    closed: Cell<bool>,
}

struct Idle {
    /// Boxed once per connection, so that a lease is small wherever it is moved.
    stream: Box<Stream>,
    since_ms: u64,
}

/// A connection lent to one exchange. Dropping it closes it, unless it was [released].
///
/// [released]: Lease::release
pub struct Lease {
    link: Option<Link>,
    endpoint: Rc<Endpoint>,
    /// Whether it has carried a request before: it may turn out to be stale.
    pub reused: bool,
}

/// What a lease lends.
enum Link {
    /// A connection of its own.
    Http1(Box<Stream>),
    /// A stream of a connection that others use too.
    Http2(Box<SharedStream>),
}

impl Pool {
    /// Takes the most recently used connection that is alive and silent. Each is looked at: bytes
    /// that came unasked would answer the wrong request (docs/decisions/0006). Half a TLS record is
    /// most likely half a ticket: the connection stays until the rest says what it is.
    fn take(&self, counters: &WorkerCounters) -> Option<Box<Stream>> {
        let mut idle = self.idle.borrow_mut();
        for at in (0..idle.len()).rev() {
            let seen = idle[at].stream.peek();
            if seen == Peek::Part {
                continue;
            }
            let stream = idle.remove(at).stream;
            counters.pool_idle.decrement();
            if seen == Peek::Nothing {
                return Some(stream);
            }
            stream.say_end();
            counters.pool_stale.increment();
            counters.upstream_connections.decrement();
        }
        None
    }

    /// Keeps a connection that has carried nothing yet.
    pub(super) fn put_fresh(&self, stream: Stream, max: usize, counters: &WorkerCounters) {
        counters.upstream_connections.increment();
        // As old as none: its time begins with the first sweep.
        self.put(Idle { stream: Box::new(stream), since_ms: u64::MAX }, max, counters);
    }

    fn put(&self, fresh: Idle, max: usize, counters: &WorkerCounters) {
        let mut idle = self.idle.borrow_mut();
        if self.closed.get() || idle.len() >= max {
            counters.upstream_connections.decrement();
            fresh.stream.say_end();
            return;
        }
        idle.push(fresh);
        counters.pool_idle.increment();
    }

    pub(super) fn sweep(
        &self,
        now_ms: u64,
        timeout_ms: u64,
        peeks_max: usize,
        counters: &WorkerCounters,
    ) -> usize {
        let mut peeks = 0;
        self.retain(counters, |idle| {
            idle.since_ms = idle.since_ms.min(now_ms);
            let age_ms = now_ms - idle.since_ms;
            if age_ms >= timeout_ms {
                return false;
            }
            if age_ms < 1_000 || peeks >= peeks_max {
                return true;
            }
            peeks += 1;
            matches!(idle.stream.peek(), Peek::Nothing | Peek::Part)
        });
        peeks
    }

    pub(super) fn clear(&self, counters: &WorkerCounters) {
        self.retain(counters, |_| false);
    }

    pub(super) fn close(&self, counters: &WorkerCounters) {
        self.closed.set(true);
        self.clear(counters);
    }

    fn retain(&self, counters: &WorkerCounters, keep: impl FnMut(&mut Idle) -> bool) {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        let mut keep = keep;
        idle.retain_mut(|idle| {
            let kept = keep(idle);
            if !kept {
                idle.stream.say_end();
            }
            kept
        });
        for _ in idle.len()..before {
            counters.pool_idle.decrement();
            counters.upstream_connections.decrement();
        }
    }
}

impl Lease {
    /// A pooled connection to `endpoint`, if it has one that is alive.
    pub(super) fn pooled(endpoint: &Rc<Endpoint>) -> Option<Lease> {
        if endpoint.plan.protocol != Protocol::Http1
            && let Some((shared, reused)) = endpoint.shared.take()
        {
            if reused {
                endpoint.counters.pool_hits.increment();
            }
            let link = Some(Link::Http2(Box::new(shared)));
            return Some(Lease { link, endpoint: endpoint.clone(), reused });
        }
        let stream = endpoint.pool.take(&endpoint.counters)?;
        endpoint.counters.pool_hits.increment();
        let link = Some(Link::Http1(stream));
        Some(Lease { link, endpoint: endpoint.clone(), reused: true })
    }

    /// A connection just made.
    pub(super) fn fresh(endpoint: &Rc<Endpoint>, stream: Stream) -> Lease {
        endpoint.counters.upstream_connections.increment();
        let link = Some(Link::Http1(Box::new(stream)));
        Lease { link, endpoint: endpoint.clone(), reused: false }
    }

    /// The connection that speaks HTTP/1.
    ///
    /// # Panics
    /// It speaks HTTP/2.
    #[inline]
    pub fn stream(&self) -> &Stream {
        match &self.link {
            Some(Link::Http1(stream)) => stream,
            _ => unreachable!("HTTP/1 is spoken on a connection of one's own"),
        }
    }

    /// Where a request to an origin that speaks HTTP/2 is begun.
    #[inline]
    pub fn http2(&self) -> Option<&SharedStream> {
        match &self.link {
            Some(Link::Http2(shared)) => Some(shared),
            _ => None,
        }
    }

    /// What a deadline shuts down.
    #[inline]
    pub fn handle(&self) -> Handle {
        match &self.link {
            Some(Link::Http1(stream)) => stream.handle(),
            Some(Link::Http2(shared)) => shared.handle(),
            None => unreachable!("a lease holds its connection until it is dropped"),
        }
    }

    /// Whom it is connected to.
    pub fn endpoint(&self) -> &Rc<Endpoint> {
        &self.endpoint
    }

    /// Gives it back for the next request; `max` is how many idle ones are kept.
    #[inline]
    pub fn release(mut self, now_ms: u64, max: usize) {
        match self.link.take() {
            Some(Link::Http1(stream)) => {
                let idle = Idle { stream, since_ms: now_ms };
                self.endpoint.pool.put(idle, max, &self.endpoint.counters);
            }
            Some(Link::Http2(shared)) => {
                drop(shared);
                self.endpoint.shared.trim(max);
            }
            None => {}
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(Link::Http1(_)) = self.link.take() {
            self.endpoint.counters.upstream_connections.decrement();
        }
    }
}
