//! Kinds of waits on connections, and what ends each when its time has passed.

use std::cell::Cell;
use std::rc::Rc;

use super::cancel::Cancel;
use super::stream::{Handle, Shutdown};
use crate::base::deadline::{Deadline, NO_WAIT};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wait {
    /// The next request, with a read pending.
    Idle = 1,
    /// The next request, with nothing pending but a poll.
    Parked,
    /// The rest of a request head.
    Head,
    /// More of a request body.
    RequestBody,
    /// The client to take what is written.
    ClientWrite,
    /// The upstream to take what is written.
    UpstreamWrite,
    /// The head of an answer.
    ResponseHead,
    /// More of an answer's body.
    ResponseBody,
    /// Either side of a tunnel.
    Tunnel,
    /// The client to close after a last answer.
    Linger,
    /// The whole request, of which no answer has been begun.
    Total,
    /// The whole request, of which an answer has been begun.
    TotalBegun,
    /// A filter that waits for something outside.
    Filter,
    /// A client's TLS handshake.
    Handshake,
    /// Not a wait: the client has gone away.
    ClientGone,
    /// The next stream of a connection, with a read pending: a drain ends it at once.
    Streams,
    /// The head of an answer to one try.
    Try,
    /// A place at an upstream.
    Queue,
}

/// What an expiry acts on.
#[derive(Clone, Debug)]
pub struct Target {
    /// The client's connection.
    pub client: Handle,
    /// The upstream's, while there is one.
    pub upstream: Option<Handle>,
    /// The read that an idle connection has pending.
    pub idle_read: Option<Rc<Cancel>>,
    /// Whether the connection is to end as soon as it is idle: shared by all that came by one
    /// listener, which may be removed.
    pub leaving: Rc<Cell<bool>>,
}

impl Wait {
    /// The kind with this number in a deadline slot.
    pub fn of(number: u8) -> Option<Wait> {
        const ALL: [Wait; 18] = [
            Wait::Idle,
            Wait::Parked,
            Wait::Head,
            Wait::RequestBody,
            Wait::ClientWrite,
            Wait::UpstreamWrite,
            Wait::ResponseHead,
            Wait::ResponseBody,
            Wait::Tunnel,
            Wait::Linger,
            Wait::Total,
            Wait::TotalBegun,
            Wait::Filter,
            Wait::Handshake,
            Wait::ClientGone,
            Wait::Streams,
            Wait::Try,
            Wait::Queue,
        ];
        ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }

    /// Whether the client is watched for a reset during it: nothing else would tell.
    pub fn watches_client(self) -> bool {
        matches!(self, Wait::ResponseHead | Wait::ResponseBody | Wait::Filter | Wait::Queue)
    }

    /// Ends the wait, so that whoever waits sees an end or an error and looks for the reason.
    pub fn act(self, target: &Target) {
        let upstream = |how| {
            if let Some(upstream) = &target.upstream {
                upstream.shutdown(how);
            }
        };
        match self {
            // The read ends as if the client had closed, and an answer can still be written.
            Wait::Idle | Wait::Parked | Wait::Head | Wait::RequestBody | Wait::Streams => {
                target.client.shutdown(Shutdown::Read);
            }
            Wait::ClientWrite | Wait::Linger | Wait::Handshake => {
                target.client.shutdown(Shutdown::Both)
            }
            Wait::UpstreamWrite
            | Wait::ResponseHead
            | Wait::ResponseBody
            | Wait::Filter
            | Wait::Try
            | Wait::Queue
            | Wait::ClientGone => {
                upstream(Shutdown::Both);
            }
            Wait::Total => {
                upstream(Shutdown::Both);
                target.client.shutdown(Shutdown::Read);
            }
            Wait::Tunnel | Wait::TotalBegun => {
                upstream(Shutdown::Both);
                target.client.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Deadlines of connections.
pub type Deadlines = crate::base::deadline::Deadlines<Target>;

/// A deadline of one connection.
#[derive(Debug)]
pub struct Timer(Deadline<Target>);

impl Timer {
    /// A timer that acts on `target`.
    pub fn new(deadlines: &Rc<Deadlines>, target: Target) -> Timer {
        let slot = deadlines.slot();
        slot.set_target(target);
        Timer(slot)
    }

    /// Begins a wait.
    #[inline]
    pub fn arm(&self, wait: Wait, timeout_ms: u64) {
        self.0.arm(wait as u8, timeout_ms);
    }

    /// Begins a wait of this kind anew if it is the one that goes on, and nothing else.
    pub fn bound(&self, wait: Wait, timeout_ms: u64) {
        if self.0.waits_for(wait as u8) {
            self.0.arm(wait as u8, timeout_ms);
        }
    }

    /// Goes on as another kind of wait that falls due at the same time.
    pub fn turn(&self, wait: Wait) {
        self.0.turn(wait as u8);
    }

    /// Ends the wait.
    #[inline]
    pub fn disarm(&self) {
        self.0.disarm();
    }

    /// Why the wait was ended by the sweep, if it was.
    pub fn expired(&self) -> Option<Wait> {
        match self.0.expired() {
            NO_WAIT => None,
            number => Wait::of(number),
        }
    }

    /// Whether any wait since the last disarm was ended by the sweep.
    pub fn ever_expired(&self) -> bool {
        self.0.ever_expired()
    }

    /// Time until it falls due, in milliseconds, as of the last sweep.
    pub fn left_ms(&self) -> u64 {
        self.0.left_ms()
    }

    /// Ends a wait in which nothing would tell that the client has gone away.
    pub fn give_up(&self) {
        let watches = |wait| Wait::of(wait).is_some_and(Wait::watches_client);
        if self.0.expire(Wait::ClientGone as u8, watches) {
            self.0.with_target(|target| Wait::ClientGone.act(target));
        }
    }

    /// Names what an expiry acts on in the place of the client's descriptor.
    pub fn set_client(&self, client: Handle) {
        self.0.with_target(|target| target.client = client);
    }

    /// Names the upstream connection that an expiry acts on, or that there is none any more.
    #[inline]
    pub fn set_upstream(&self, upstream: Option<Handle>) {
        self.0.with_target(|target| target.upstream = upstream);
    }

    /// Goes on with the wait of another timer of the same client, and with its upstream connection.
    pub fn take_over(&self, other: &Timer) {
        let mut upstream = None;
        other.0.with_target(|target| upstream = target.upstream.take());
        self.set_upstream(upstream);
        self.0.take_over(&other.0);
    }

    /// Time since the wait began, in milliseconds, as of the last sweep.
    pub fn waited_ms(&self) -> u64 {
        self.0.waited_ms()
    }
}
