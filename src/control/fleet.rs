//! The workers, as the control thread sees them.

use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::cores::Cores;
use crate::observe::access_log::LogBuffer;
use crate::observe::render::WorkerView;
use crate::observe::{SeriesRegistry, WorkerCounters};
use crate::snapshot::Snapshot;
use crate::upstream::{EndpointId, Standings};
use crate::worker::inbox::inbox;
use crate::worker::{Change, InboxSender, Message, Opened, Report, Setup};

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
    /// For each worker its listeners; their number is that of the workers.
    pub opened: Vec<Vec<Opened>>,
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

/// What a full inbox did not take: of each kind only the newest is worth sending, with the listeners
/// of all.
#[derive(Debug, Default)]
struct Unsent {
    snapshot: Option<Message>,
    addresses: Option<Message>,
    standings: Option<Message>,
    drain: Option<Message>,
}

impl Fleet {
    /// Starts the workers; each reports on its own when it accepts connections.
    ///
    /// # Errors
    /// No thread or no descriptor was left.
    pub fn start(start: Start<'_>) -> std::io::Result<Fleet> {
        let workers = start.opened.len();
        let placement = start.cores.placement(workers);
        let mut fleet = Fleet::default();
        let each = start.opened.into_iter().zip(placement).zip(start.logs);
        for (index, ((opened, cpu), log)) in each.enumerate() {
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
                opened,
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

    /// Has a snapshot take force on every worker, with each one's sockets of the listeners that it
    /// brings in. Where an inbox is full this waits for [`Fleet::retry`], as do the others.
    pub fn change(
        &mut self,
        snapshot: &Arc<Snapshot>,
        opened: Vec<Vec<Opened>>,
        connections_max: usize,
    ) {
        assert_eq!(opened.len(), self.workers.len(), "sockets are bound for each worker");
        for (worker, mut opened) in self.workers.iter_mut().zip(opened) {
            worker.view.connections_max = connections_max;
            if let Some(Message::Snapshot(skipped)) = worker.unsent.snapshot.take() {
                // Clients may have connected already: only a worker may close a listener.
                opened.splice(0..0, skipped.opened);
            }
            let change = Change { snapshot: snapshot.clone(), opened, connections_max };
            worker.unsent.snapshot = Some(Message::Snapshot(Box::new(change)));
            worker.flush();
        }
    }

    /// Tells every worker what names resolved to.
    pub fn addresses(&mut self, addresses: &Addresses) {
        for worker in &mut self.workers {
            worker.unsent.addresses = Some(Message::Addresses(addresses.clone()));
            worker.flush();
        }
    }

    /// Tells every worker how much of their shares upstreams and endpoints take.
    pub fn standings(&mut self, standings: &Arc<Standings>) {
        for worker in &mut self.workers {
            worker.unsent.standings = Some(Message::Standings(standings.clone()));
            worker.flush();
        }
    }

    /// Has every worker drain.
    pub fn drain(&mut self, delay_ms: u64, bound_ms: u64) {
        for worker in &mut self.workers {
            worker.unsent.drain = Some(Message::Drain { delay_ms, bound_ms });
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
        let Unsent { snapshot, addresses, standings, drain } = &mut self.unsent;
        for slot in [snapshot, addresses, standings, drain] {
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
        let Unsent { snapshot, addresses, standings, drain } = self;
        [snapshot, addresses, standings, drain].iter().all(|slot| slot.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::listen::{self, tests::plan};
    use crate::limits::INBOX_MESSAGES;
    use crate::snapshot::{Ids, load_text};
    use crate::upstream::Standing;
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

    fn addresses(id: u32) -> Addresses {
        Arc::new(vec![(EndpointId(id), Vec::new())])
    }

    #[test]
    fn a_full_inbox_gets_the_newest_of_each_kind_later() {
        let (mut fleet, inbox) = fleet();
        for id in 0..INBOX_MESSAGES as u32 {
            fleet.addresses(&addresses(id));
        }
        assert!(!fleet.has_unsent());
        fleet.drain(0, 1);
        fleet.addresses(&addresses(1000));
        fleet.addresses(&addresses(1001));
        let out = |id| Standings {
            endpoints: vec![(EndpointId(id), Standing::OUT)],
            ..Standings::default()
        };
        fleet.standings(&Arc::new(out(1)));
        fleet.standings(&Arc::new(out(2)));
        assert!(fleet.retry(), "still full");
        let first: Vec<_> = inbox.messages.try_iter().collect();
        assert_eq!(first.len(), INBOX_MESSAGES);
        assert!(!fleet.retry(), "all sent");
        let rest: Vec<_> = inbox.messages.try_iter().collect();
        let [Message::Addresses(newest), Message::Standings(standings), Message::Drain { .. }] =
            &*rest
        else {
            panic!("the newest of each: {rest:?}");
        };
        assert_eq!(newest[0].0, EndpointId(1001));
        assert_eq!(**standings, out(2));
    }

    #[test]
    fn the_sockets_of_a_skipped_snapshot_come_with_the_next() {
        let (mut fleet, inbox) = fleet();
        for id in 0..INBOX_MESSAGES as u32 {
            fleet.addresses(&addresses(id));
        }
        let mut ids = Ids::default();
        for version in 2..=4 {
            let name = format!("v{version}");
            let opened = listen::bind(&[plan(version, &name, "127.0.0.1:0")], 1).expect("bound");
            let text = "[listener.a]\naddress = \"127.0.0.1:0\"\n[upstream.u]\n\
                        endpoints = [{ address = \"127.0.0.1:1\" }]\n\
                        [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n";
            let loaded = load_text("test", text, &mut ids, u64::from(version)).expect("valid");
            fleet.change(&Arc::new(loaded.snapshot), opened.opened, 7);
        }
        assert_eq!(inbox.messages.try_iter().count(), INBOX_MESSAGES);
        assert!(!fleet.retry(), "all sent");
        let rest: Vec<_> = inbox.messages.try_iter().collect();
        let [Message::Snapshot(change)] = &*rest else { panic!("one change: {rest:?}") };
        let names: Vec<_> = change.opened.iter().map(|opened| &*opened.plan.name).collect();
        assert_eq!((change.snapshot.version, names), (4, vec!["v2", "v3", "v4"]));
        assert_eq!(fleet.views()[0].connections_max, 7);
    }
}
