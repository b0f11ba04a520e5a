//! The client's side of a connection.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::http::Forwarding;
use crate::io::wait::Timer;
use crate::io::{Cancel, Handle, Shutdown, Stream, Target, Wait};
use crate::limits::{LINGER_BYTES_MAX, LINGER_MS};
use crate::observe::WorkerCounters;
use crate::snapshot::ListenerPlan;
use crate::state::Core;

use crate::base::buffer::Buf;

/// A client's connection, from accept to close.
pub struct Downstream {
    /// Its one deadline while requests are served one step after the other. Before `stream`, so
    /// that it is gone when the descriptor is closed.
    pub timer: Timer,
    /// The connection.
    pub stream: Stream,
    /// Ends the read of an idle connection.
    pub idle_read: Rc<Cancel>,
    /// Which listener of the snapshot it came by.
    pub listener: usize,
    /// The other end.
    pub peer: SocketAddr,
    /// What upstreams are told about it.
    pub forwarding: Forwarding,
    /// What has been read of the next request; else a buffer to read it into.
    pub behind: Buf,
    /// Whether an answer has been begun and not ended.
    pub mid_answer: Cell<bool>,
    /// Counts it as long as it is open.
    _open: Open,
}

/// Counts a connection from accept to close.
struct Open(Arc<WorkerCounters>);

impl Open {
    fn new(counters: Arc<WorkerCounters>) -> Open {
        counters.connections.increment();
        Open(counters)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.decrement();
    }
}

impl Downstream {
    /// A connection that was just accepted.
    pub fn new(
        stream: Stream,
        peer: SocketAddr,
        listener: usize,
        plan: &ListenerPlan,
        core: &Core,
    ) -> Downstream {
        let idle_read = Rc::new(Cancel::default());
        let target =
            Target { client: stream.handle(), upstream: None, idle_read: Some(idle_read.clone()) };
        Downstream {
            timer: Timer::new(&core.deadlines, target),
            stream,
            idle_read,
            listener,
            peer,
            forwarding: Forwarding::new(peer, plan.address.port(), plan.trusts(peer.ip())),
            behind: Buf::empty(),
            mid_answer: Cell::new(false),
            _open: Open::new(core.counters.clone()),
        }
    }

    /// What a second timer for the same connection acts on.
    pub fn target(&self, upstream: Option<Handle>) -> Target {
        Target { client: self.stream.handle(), upstream, idle_read: None }
    }

    /// Ends the connection so that the last answer is not lost: the end is sent, and what the
    /// client is still sending is read and discarded for a while (RFC 9112 section 9.6).
    pub async fn close(self: Box<Self>) {
        self.stream.shutdown(Shutdown::Write);
        self.timer.arm(Wait::Linger, LINGER_MS);
        let mut buf = Buf::for_head();
        let mut discarded = 0;
        while discarded < LINGER_BYTES_MAX {
            buf.clear();
            let (result, back) = self.stream.read(buf).await;
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
        if self.mid_answer.get() {
            self.stream.reset();
        }
    }
}
