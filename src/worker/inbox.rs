//! How the control thread talks to a worker: a bounded channel and an eventfd that wakes it.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use rustix::event::{EventfdFlags, eventfd};

use crate::io::DriverReport;
use crate::limits::INBOX_MESSAGES;
use crate::snapshot::{ListenerPlan, Snapshot};
use crate::upstream::{EndpointId, Standings};

/// A listener that a worker is to serve.
#[derive(Debug)]
pub struct Opened {
    /// As configured.
    pub plan: Arc<ListenerPlan>,
    /// The worker's own socket of it: bound with SO_REUSEPORT and TCP_NODELAY, listening,
    /// non-blocking.
    pub socket: TcpListener,
}

/// A configuration that takes force on a worker.
#[derive(Debug)]
pub struct Change {
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Listeners that came since the last change which the worker took. One that the snapshot does
    /// not have has gone again: what its queue holds is served all the same.
    pub opened: Vec<Opened>,
    /// Client connections that the worker may hold.
    pub connections_max: usize,
}

/// What the control thread tells a worker.
#[derive(Debug)]
pub enum Message {
    /// A configuration takes force.
    Snapshot(Box<Change>),
    /// Names have been resolved: the addresses of each endpoint, which replace the earlier ones.
    Addresses(Arc<Vec<(EndpointId, Vec<SocketAddr>)>>),
    /// How much of their shares upstreams and endpoints take; replaces what was said before.
    Standings(Arc<Standings>),
    /// Stop accepting after `delay_ms`, let requests end, and report; at `bound_ms` close what is
    /// left.
    Drain {
        /// How long to go on accepting.
        delay_ms: u64,
        /// How long requests may go on after that.
        bound_ms: u64,
    },
}

/// What a worker tells the control thread.
#[derive(Debug)]
pub enum Report {
    /// It accepts connections.
    Started {
        /// Which worker.
        worker: usize,
        /// On which driver.
        driver: DriverReport,
    },
    /// It could not start, or gave up.
    Failed {
        /// Which worker.
        worker: usize,
        /// Why.
        error: String,
    },
    /// The snapshot with this version is in force there; listeners that it does not have are closed.
    Applied {
        /// Which worker.
        worker: usize,
        /// Version of the snapshot.
        version: u64,
    },
    /// Its drain is over.
    Drained {
        /// Which worker.
        worker: usize,
        /// Connections that had to be cut at the bound.
        cut: usize,
    },
}

/// A worker's end.
#[derive(Debug)]
pub struct Inbox {
    /// The messages.
    pub messages: Receiver<Message>,
    /// Becomes readable when there are some.
    pub wake: OwnedFd,
}

/// The control thread's end.
#[derive(Debug)]
pub struct InboxSender {
    messages: Sender<Message>,
    wake: OwnedFd,
}

/// Makes both ends of an inbox.
///
/// # Errors
/// No descriptor was left.
pub fn inbox() -> std::io::Result<(InboxSender, Inbox)> {
    let (sender, receiver) = crossbeam_channel::bounded(INBOX_MESSAGES);
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let woken = wake.try_clone()?;
    Ok((InboxSender { messages: sender, wake }, Inbox { messages: receiver, wake: woken }))
}

impl InboxSender {
    /// Hands a message over and wakes the worker; gives it back when the inbox is full or its
    /// worker gone.
    ///
    /// # Errors
    /// The message, to be sent again later.
    pub fn send(&self, message: Message) -> Result<(), Message> {
        let sent = self.messages.try_send(message);
        // A full counter is readable all the same, so that a failed write loses no wake-up.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        sent.map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        })
    }
}
