//! Workers: one thread a core, each with its own runtime, sockets and accept loops.

pub mod inbox;

pub use inbox::{Inbox, InboxSender, Message, Report};

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;

use crate::observe::WorkerCounters;
use crate::snapshot::Snapshot;

/// What a worker starts with.
pub struct Setup {
    /// Which worker, from 0.
    pub index: usize,
    /// How many there are.
    pub workers: usize,
    /// The processor to pin it to, where it is pinned.
    pub cpu: Option<usize>,
    /// Its socket of each listener of the snapshot, in that order; bound with SO_REUSEPORT and
    /// TCP_NODELAY, listening, non-blocking.
    pub sockets: Vec<TcpListener>,
    /// The configuration in force.
    pub snapshot: Arc<Snapshot>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// Its inbox.
    pub inbox: Inbox,
    /// Where it reports to.
    pub reports: Sender<Report>,
    /// Client connections that it may hold.
    pub connections_max: usize,
}

/// Starts a worker. It answers with [`Report::Started`] or [`Report::Failed`].
///
/// # Errors
/// The thread could not be made.
pub fn spawn(setup: Setup) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("worker-{}", setup.index)).spawn(move || {
        // Replaced by the worker itself; until then every start fails with the reason.
        let error = "the worker is not built yet".to_owned();
        let _ = setup.reports.send(Report::Failed { worker: setup.index, error });
    })
}
