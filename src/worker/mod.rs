//! Workers: one thread a core, each with its own runtime, sockets and accept loops.

pub mod inbox;

mod accept;
mod conn;
mod drain;
mod http2;
mod open;
mod sweeper;

pub use inbox::{Change, Inbox, InboxSender, Message, Opened, Report};

/// A connection and the sweep without their runtime: tests/sim and fuzz/ poll the one over streams
/// in memory and call the other with a time of their own.
pub mod simulation {
    pub use super::conn::{busy, parked};
    pub use super::http2::{Stream, run as http2};
    pub use super::sweeper::sweep;
}

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;

use crate::io::driver::probe;
use crate::io::runtime::{catch_panic, run};
use crate::io::{Wake, spawn as spawn_task};
use crate::limits::SERVICE_PANICS_MAX;
use crate::observe::access_log::LogBuffer;
use crate::observe::{WorkerCounters, WorkerSeries};
use crate::snapshot::Snapshot;
use crate::state::Core;
use accept::Accepting;

/// What a worker starts with.
pub struct Setup {
    /// Which worker, from 0.
    pub index: usize,
    /// How many there are.
    pub workers: usize,
    /// The processor to pin it to, where it is pinned.
    pub cpu: Option<usize>,
    /// The listeners of the snapshot.
    pub opened: Vec<Opened>,
    /// The configuration in force.
    pub snapshot: Arc<Snapshot>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// Its end of the access log.
    pub log: LogBuffer,
    /// What it counts of routes, upstreams, endpoints, filters and listeners.
    pub series: WorkerSeries,
    /// Its inbox.
    pub inbox: Inbox,
    /// Where it reports to.
    pub reports: Sender<Report>,
    /// Client connections that it may hold.
    pub connections_max: usize,
}

/// A running worker, shared by its service loops and connections.
struct Worker {
    index: usize,
    core: Rc<Core>,
    connections_max: Cell<usize>,
    /// Those that accept.
    listeners: RefCell<Vec<Rc<Accepting>>>,
    /// A descriptor to give up when none is left, so that a connection can be taken and closed.
    reserve: RefCell<Option<std::fs::File>>,
    reports: Sender<Report>,
    /// Panics of service loops: since when, and how many.
    panics: Cell<(u64, u32)>,
}

/// Starts a worker. It answers with [`Report::Started`] or [`Report::Failed`].
///
/// # Errors
/// The thread could not be made.
pub fn spawn(setup: Setup) -> std::io::Result<JoinHandle<()>> {
    let name = format!("worker-{}", setup.index);
    std::thread::Builder::new().name(name).spawn(move || {
        let (worker, reports) = (setup.index, setup.reports.clone());
        if let Err(error) = start(setup) {
            // Without a receiver the process is ending.
            let _ = reports.send(Report::Failed { worker, error });
        }
    })
}

fn start(setup: Setup) -> Result<(), String> {
    if let Some(cpu) = setup.cpu {
        pin(cpu).map_err(|error| format!("cannot be pinned to processor {cpu}: {error}"))?;
    }
    let driver = probe(setup.snapshot.runtime.driver)?;
    let report = driver.clone();
    let main = async move {
        let started = Report::Started { worker: setup.index, driver };
        let reports = setup.reports.clone();
        let (worker, wake) = assemble(setup).map_err(|error| error.to_string())?;
        let _ = reports.send(started);
        sweeper::start(&worker);
        inbox_loop(&worker, wake.0, wake.1).await;
        Ok(())
    };
    run(&report, main).map_err(|error| format!("the driver does not start: {error}"))?
}

type Wakeup = (Wake, crossbeam_channel::Receiver<Message>);

fn assemble(setup: Setup) -> std::io::Result<(Rc<Worker>, Wakeup)> {
    let wake = Wake::adopt(setup.inbox.wake)?;
    let worker = Rc::new(Worker {
        index: setup.index,
        core: Core::new(
            setup.snapshot,
            setup.counters,
            setup.log,
            setup.series,
            setup.index,
            setup.workers,
        ),
        connections_max: Cell::new(setup.connections_max),
        listeners: RefCell::default(),
        reserve: RefCell::new(std::fs::File::open("/dev/null").ok()),
        reports: setup.reports,
        panics: Cell::default(),
    });
    setup.opened.into_iter().try_for_each(|opened| accept::open(&worker, opened))?;
    Ok((worker, (wake, setup.inbox.messages)))
}

fn pin(cpu: usize) -> rustix::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}

/// Runs a loop that must not end, in a task of its own.
fn service<F: Future<Output = ()> + 'static>(
    worker: &Rc<Worker>,
    name: &'static str,
    task: impl FnMut() -> F + 'static,
) {
    let worker = worker.clone();
    spawn_task(async move { worker.persist(name, task).await });
}

/// Takes what the control thread sends. A panic while one message is handled does not lose the
/// others.
async fn inbox_loop(
    worker: &Rc<Worker>,
    wake: Wake,
    messages: crossbeam_channel::Receiver<Message>,
) {
    loop {
        while let Ok(message) = messages.try_recv() {
            let handled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                worker.handle(message);
            }));
            if handled.is_err() && worker.panicked("inbox") {
                return;
            }
        }
        if let Err(error) = wake.wait().await {
            return worker.give_up(&format!("its inbox cannot be waited on: {error}"));
        }
    }
}

impl Worker {
    fn handle(self: &Rc<Self>, message: Message) {
        match message {
            Message::Snapshot(change) => self.apply(*change),
            Message::Addresses(resolved) => self.core.set_addresses(&resolved),
            Message::Standings(standings) => self.core.set_standings(&standings),
            Message::Drain { delay_ms, bound_ms } => {
                let worker = self.clone();
                service(self, "drain", move || drain::run(worker.clone(), delay_ms, bound_ms));
            }
        }
    }

    fn apply(self: &Rc<Self>, change: Change) {
        let version = change.snapshot.version;
        self.connections_max.set(change.connections_max);
        for opened in change.opened {
            if let Err(error) = accept::open(self, opened) {
                return self.give_up(&format!("a new listener cannot be taken over: {error}"));
            }
        }
        let gone = accept::follow(self, &change.snapshot);
        self.core.apply(change.snapshot);
        let applied = Report::Applied { worker: self.index, version };
        if gone.is_empty() {
            let _ = self.reports.send(applied);
            return;
        }
        let worker = self.clone();
        spawn_task(async move {
            worker.persist("close", || accept::finish(&worker, &gone)).await;
            let _ = worker.reports.send(applied);
        });
    }

    /// Runs a loop to its end; one that panics is counted and begun again.
    async fn persist<F: Future<Output = ()>>(&self, name: &str, mut task: impl FnMut() -> F) {
        while catch_panic(task()).await.is_none() {
            if self.panicked(name) {
                return;
            }
        }
    }

    /// Counts a panic of a service loop. True when there were too many within a minute: a worker
    /// without its loops looks alive and is not, so that the process is to end.
    fn panicked(&self, name: &str) -> bool {
        self.core.counters.panics.increment();
        let now_ms = self.core.clock_ms();
        let (since_ms, count) = self.panics.get();
        let (since_ms, count) =
            if now_ms - since_ms > 60_000 { (now_ms, 1) } else { (since_ms, count + 1) };
        self.panics.set((since_ms, count));
        tracing::error!("a panic ended the {name} loop of worker {}", self.index);
        let too_many = count >= SERVICE_PANICS_MAX;
        if too_many {
            self.give_up(&format!("its service loops panicked {count} times within a minute"));
        }
        too_many
    }

    /// Tells the control thread that this worker is of no use any more.
    fn give_up(&self, why: &str) {
        let _ = self.reports.send(Report::Failed { worker: self.index, error: why.to_owned() });
    }
}
