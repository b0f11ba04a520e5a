//! The workers, as the control thread sees them.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::cores::Cores;
use crate::observe::access_log::LogBuffer;
use crate::observe::render::WorkerView;
use crate::observe::{SeriesRegistry, WorkerCounters};
use crate::snapshot::Snapshot;
use crate::upstream::EndpointId;
use crate::worker::inbox::inbox;
use crate::worker::{InboxSender, Message, Report, Setup};

/// Addresses of endpoints that are known by name.
pub type Addresses = Arc<Vec<(EndpointId, Vec<SocketAddr>)>>;

/// How a worker is started: [`crate::worker::spawn`], or a double in tests.
pub type Spawn = fn(Setup) -> std::io::Result<std::thread::JoinHandle<()>>;

/// What all workers start with.
pub struct Start<'a> {
    /// How to start one.
    pub spawn: Spawn,
    /// The configuration.
    pub snapshot: &'a Arc<Snapshot>,
    /// Which processors there are.
    pub cores: &'a Cores,
    /// For each worker its sockets; their number is that of the workers.
    pub sockets: Vec<Vec<TcpListener>>,
    /// Client connections that each may hold.
    pub connections_max: usize,
    /// What names resolved to.
    pub addresses: Option<Addresses>,
    /// The access log's end of each.
    pub logs: Vec<LogBuffer>,
    /// Where what they count is summed.
    pub series: &'a mut SeriesRegistry,
    /// Where they report to.
    pub reports: &'a Sender<Report>,
}

/// All workers.
#[derive(Debug, Default)]
pub struct Fleet {
    workers: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    inbox: InboxSender,
    view: WorkerView,
    unsent: Unsent,
}

/// What a full inbox did not take: of each kind only the newest is worth sending.
#[derive(Debug, Default)]
struct Unsent {
    snapshot: Option<Message>,
    addresses: Option<Message>,
    drain: Option<Message>,
}

impl Fleet {
    /// Starts the workers; each reports on its own when it accepts connections.
    ///
    /// # Errors
    /// No thread or no descriptor was left.
    pub fn start(start: Start<'_>) -> std::io::Result<Fleet> {
        let workers = start.sockets.len();
        let placement = start.cores.placement(workers);
        let mut fleet = Fleet::default();
        let each = start.sockets.into_iter().zip(placement).zip(start.logs);
        for (index, ((sockets, cpu), log)) in each.enumerate() {
            let (sender, inbox) = inbox()?;
            let counters = Arc::new(WorkerCounters::default());
            if let Some(addresses) = &start.addresses {
                // The inbox is empty: it takes one message.
                let _ = sender.send(Message::Addresses(addresses.clone()));
            }
            (start.spawn)(Setup {
                index,
                workers,
                cpu,
                sockets,
                snapshot: start.snapshot.clone(),
                counters: counters.clone(),
                log,
                series: start.series.add_worker(),
                inbox,
                reports: start.reports.clone(),
                connections_max: start.connections_max,
            })?;
            let view = WorkerView {
                driver: String::new(),
                flags: String::new(),
                reason: String::new(),
                cpu,
                connections_max: start.connections_max,
                counters,
            };
            fleet.workers.push(Member { inbox: sender, view, unsent: Unsent::default() });
        }
        Ok(fleet)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether there are none, as before the start.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// What is shown of each.
    pub fn views(&self) -> Vec<WorkerView> {
        self.workers.iter().map(|worker| worker.view.clone()).collect()
    }

    /// What is shown of one, to be filled in when it has started.
    pub fn view_mut(&mut self, worker: usize) -> Option<&mut WorkerView> {
        self.workers.get_mut(worker).map(|worker| &mut worker.view)
    }

    /// Sends a message to every worker; where an inbox is full, it waits for [`Fleet::retry`].
    pub fn broadcast(&mut self, message: &Message) {
        for worker in &mut self.workers {
            let slot = match message {
                Message::Snapshot(_) => &mut worker.unsent.snapshot,
                Message::Addresses(_) => &mut worker.unsent.addresses,
                Message::Drain { .. } => &mut worker.unsent.drain,
            };
            *slot = Some(message.clone());
            worker.flush();
        }
    }

    /// Tries again what full inboxes did not take; says whether anything is still left.
    pub fn retry(&mut self) -> bool {
        let mut left = false;
        for worker in &mut self.workers {
            left |= !worker.flush();
        }
        left
    }

    /// Whether [`Fleet::retry`] has anything to do.
    pub fn has_unsent(&self) -> bool {
        self.workers.iter().any(|worker| !worker.unsent.is_empty())
    }
}

impl Member {
    /// A snapshot goes before addresses, whose endpoints it may bring. True when nothing is left.
    fn flush(&mut self) -> bool {
        let Unsent { snapshot, addresses, drain } = &mut self.unsent;
        for slot in [snapshot, addresses, drain] {
            if let Some(message) = slot.take()
                && let Err(message) = self.inbox.send(message)
            {
                *slot = Some(message);
                return false;
            }
        }
        true
    }
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.addresses.is_none() && self.drain.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::INBOX_MESSAGES;
    use crate::worker::Inbox;

    fn fleet() -> (Fleet, Inbox) {
        let (sender, receiver) = inbox().expect("descriptors");
        let view = WorkerView {
            driver: String::new(),
            flags: String::new(),
            reason: String::new(),
            cpu: None,
            connections_max: 1,
            counters: Arc::new(WorkerCounters::default()),
        };
        let member = Member { inbox: sender, view, unsent: Unsent::default() };
        (Fleet { workers: vec![member] }, receiver)
    }

    fn addresses(id: u32) -> Message {
        Message::Addresses(Arc::new(vec![(EndpointId(id), Vec::new())]))
    }

    #[test]
    fn a_full_inbox_gets_the_newest_of_each_kind_later() {
        let (mut fleet, inbox) = fleet();
        for id in 0..INBOX_MESSAGES as u32 {
            fleet.broadcast(&addresses(id));
        }
        assert!(!fleet.has_unsent());
        fleet.broadcast(&Message::Drain { delay_ms: 0, bound_ms: 1 });
        fleet.broadcast(&addresses(1000));
        fleet.broadcast(&addresses(1001));
        assert!(fleet.retry(), "still full");
        let first: Vec<_> = inbox.messages.try_iter().collect();
        assert_eq!(first.len(), INBOX_MESSAGES);
        assert!(!fleet.retry(), "all sent");
        let rest: Vec<_> = inbox.messages.try_iter().collect();
        assert!(matches!(&*rest, [Message::Addresses(newest), Message::Drain { .. }]
            if newest[0].0 == EndpointId(1001)));
    }
}
