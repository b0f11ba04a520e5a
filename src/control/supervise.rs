//! The control thread's loop: signals, reports, reloads and the drain.
//!
//! [`Supervisor`] does no I/O of its own: it takes events and `now`, and its messages go into
//! inboxes that never block.

mod reload;
mod standings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::access_log::Writer;
use super::discovery::Discovery;
use super::fleet::Fleet;
use super::helper::{Event, Helpers};
use super::names::Names;
use super::signals::{Signal, Signals};
use super::source::Taken;
use crate::io::DriverReport;
use crate::limits::{DRAIN_MARGIN_MS, INBOX_RETRY_MS, START_MS};
use crate::observe::render::{Phase, ProcessView};
use crate::snapshot::{ListenerId, Snapshot};
use crate::worker::Report;
use reload::Reloads;
use standings::Standing;

/// What the control thread knows and decides.
#[derive(Debug)]
pub struct Supervisor {
    /// The workers.
    pub fleet: Fleet,
    /// Names and their addresses.
    pub names: Names,
    /// Upstreams that discover their endpoints, and what is known of those.
    pub discovery: Discovery,
    /// What writes the access log; none in tests.
    pub access_log: Option<Writer>,
    helpers: Helpers,
    current: Arc<Snapshot>,
    /// The same with its texts, for whoever shows it.
    in_force: watch::Sender<Taken>,
    /// Where listeners listen: where a plan has port 0, the one that the system chose.
    bound: BTreeMap<ListenerId, SocketAddr>,
    view: watch::Sender<ProcessView>,
    /// Printed on standard output when every worker has started.
    banner: Option<String>,
    /// Workers that have not started yet, and until when they may.
    starting: Option<Waiting>,
    reloads: Reloads,
    standing: Standing,
    draining: Option<Waiting>,
    exit: Option<u8>,
}

/// Workers whose word is awaited.
#[derive(Debug)]
struct Waiting {
    workers: BTreeSet<usize>,
    since: Instant,
    until: Instant,
}

impl Supervisor {
    /// Waits for the start of a fleet that [`Supervisor::started_with`] brings.
    pub fn new(
        in_force: watch::Sender<Taken>,
        (names, discovery): (Names, Discovery),
        helpers: Helpers,
        bound: BTreeMap<ListenerId, SocketAddr>,
        view: watch::Sender<ProcessView>,
        banner: Option<String>,
    ) -> Supervisor {
        let current = in_force.borrow().snapshot.clone();
        let supervisor = Supervisor {
            fleet: Fleet::default(),
            names,
            discovery,
            access_log: None,
            helpers,
            current,
            in_force,
            bound,
            view,
            banner,
            starting: None,
            reloads: Reloads::default(),
            standing: Standing::new(Instant::now()),
            draining: None,
            exit: None,
        };
        let (listeners, discovery) = (supervisor.listeners(), supervisor.discovery.views());
        supervisor.publish(|view| {
            view.listeners = listeners;
            view.discovery = discovery;
        });
        supervisor
    }

    /// Takes charge of workers that have just been spawned.
    pub fn started_with(&mut self, fleet: Fleet, now: Instant) {
        self.fleet = fleet;
        self.starting = Some(self.wait(now, START_MS));
        self.publish(|_| {});
        self.judge_current(now);
        self.next_reload(now);
    }

    /// Runs until the process is to end, and returns its exit code.
    pub async fn run(&mut self, signals: &mut Signals, events: &mut mpsc::Receiver<Event>) -> u8 {
        loop {
            let wake = tokio::time::Instant::from_std(self.next_wake(Instant::now()));
            tokio::select! {
                signal = signals.next() => self.on_signal(signal, Instant::now()),
                Some(event) = events.recv() => {
                    self.on_event(event, Instant::now());
                    // Together, so that many answers of the resolver are one message.
                    while let Ok(event) = events.try_recv() {
                        self.on_event(event, Instant::now());
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
            self.on_time(Instant::now());
            if let Some(code) = self.exit {
                return code;
            }
        }
    }

    /// Takes a signal.
    pub fn on_signal(&mut self, signal: Signal, now: Instant) {
        match signal {
            Signal::Reload => self.on_reload(None, now),
            Signal::Reopen => self.reopen_logs(),
            Signal::Stop if self.draining.is_some() => {
                tracing::warn!("stopped again: leaving at once");
                self.exit = Some(0);
            }
            Signal::Drain if self.draining.is_some() => {}
            Signal::Drain | Signal::Stop => self.drain(now),
            Signal::Reserved(name) => tracing::info!("signal {name} has no meaning yet: ignored"),
        }
    }

    /// Takes an event.
    pub fn on_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Report(Report::Started { worker, driver }) => self.on_started(worker, &driver),
            Event::Report(Report::Failed { worker, error }) => {
                tracing::error!("worker {worker} failed: {error}");
                self.exit = Some(1);
            }
            Event::Report(Report::Applied { worker, version }) => {
                self.on_applied(worker, version, now);
            }
            Event::Report(Report::Drained { worker, cut }) => self.on_drained(worker, cut, now),
            Event::Reload(caller) => self.on_reload(Some(caller), now),
            Event::CertificatesChanged => self.on_certificates_changed(now),
            Event::Compiled(compiled) => self.on_compiled(compiled, now),
            Event::Resolved(name, answer) => {
                if let Some(warning) = self.names.answer(name, answer) {
                    tracing::warn!("{warning}");
                }
            }
            Event::ResolvedAll => self.names.answered_all(),
            Event::Checked(endpoint, result) => self.on_checked(endpoint, result, now),
            Event::Discovered(answered) => self.on_discovered(answered, now),
        }
    }

    /// Does what is due: look-ups, messages that found an inbox full, and bounds that passed.
    pub fn on_time(&mut self, now: Instant) {
        if let Some(names) = self.names.ask(now)
            && !self.helpers.resolve(names)
        {
            self.names.answered_all();
        }
        for asked in self.discovery.ask(now) {
            let key = asked.key.clone();
            if !self.helpers.discover(asked) {
                self.discovery.not_asked(&key, now);
            }
        }
        self.broadcast_addresses();
        self.on_standing_due(now);
        self.fleet.retry();
        if let Some(late) = self.starting.take_if(|waiting| waiting.until <= now) {
            tracing::error!("{} did not start within {START_MS} ms", late.names());
            self.exit = Some(1);
        }
        self.on_compiler_due(now);
        self.on_acknowledgements_due(now);
        if let Some(late) = self.draining.as_ref().filter(|waiting| waiting.until <= now) {
            tracing::warn!("leaving without the word of {}", late.names());
            self.exit = Some(0);
        }
    }

    /// When [`Supervisor::on_time`] has something to do again.
    pub fn next_wake(&self, now: Instant) -> Instant {
        let retry = Duration::from_millis(INBOX_RETRY_MS);
        let waiting = [&self.starting, &self.draining].into_iter().flatten();
        waiting
            .map(|waiting| waiting.until)
            .chain(self.reloads.due())
            .chain(self.names.due())
            .chain(self.standing.due())
            .chain(self.discovery.due())
            .chain(self.fleet.has_unsent().then(|| now + retry))
            .min()
            .unwrap_or(now + Duration::from_secs(3600))
    }

    fn on_started(&mut self, worker: usize, driver: &DriverReport) {
        if let Some(view) = self.fleet.view_mut(worker) {
            view.driver = driver.kind.name().to_owned();
            view.flags = driver.kind.flags().to_owned();
            view.reason.clone_from(&driver.reason);
        }
        self.publish(|_| {});
        let Some(waiting) = &mut self.starting else { return };
        waiting.workers.remove(&worker);
        if !waiting.workers.is_empty() {
            return;
        }
        self.starting = None;
        if self.draining.is_none() {
            self.publish(|view| view.phase = Phase::Ready);
        }
        tracing::info!("{}", start_line(&self.view.borrow()));
        if let Some(banner) = self.banner.take() {
            use std::io::Write;
            // Nobody may be reading standard output.
            let _ = std::io::stdout().lock().write_all(banner.as_bytes());
        }
    }

    /// USR1: log files have been moved away and are to be opened again.
    fn reopen_logs(&mut self) {
        match self.access_log.as_ref().filter(|_| self.current.access_log.is_some()) {
            None => tracing::info!("USR1: there is no access log to open again"),
            Some(writer) if writer.reopen() => tracing::info!("USR1: opening the access log again"),
            Some(_) => tracing::error!("USR1: the access log is stuck and cannot be opened again"),
        }
    }

    fn broadcast_addresses(&mut self) {
        if !self.fleet.is_empty()
            && let Some(addresses) = self.names.take_changed()
        {
            self.fleet.addresses(&Arc::new(addresses));
        }
    }

    fn drain(&mut self, now: Instant) {
        let runtime = &self.current.runtime;
        let (delay_ms, bound_ms) = (runtime.drain_delay_ms, runtime.drain_ms);
        tracing::info!("draining for at most {} ms", delay_ms + bound_ms);
        self.publish(|view| view.phase = Phase::Draining);
        self.fleet.drain(delay_ms, bound_ms);
        self.draining = Some(self.wait(now, delay_ms + bound_ms + DRAIN_MARGIN_MS));
        self.drop_queued_reload();
    }

    fn on_drained(&mut self, worker: usize, cut: usize, now: Instant) {
        if cut > 0 {
            tracing::warn!("worker {worker} cut {cut} connections at the drain's bound");
        }
        let Some(waiting) = &mut self.draining else { return };
        waiting.workers.remove(&worker);
        if waiting.workers.is_empty() {
            tracing::info!("drained after {} ms", now.duration_since(waiting.since).as_millis());
            self.exit = Some(0);
        }
    }

    fn wait(&self, now: Instant, ms: u64) -> Waiting {
        let until = now + Duration::from_millis(ms);
        Waiting { workers: (0..self.fleet.len()).collect(), since: now, until }
    }

    fn publish(&self, change: impl FnOnce(&mut ProcessView)) {
        self.view.send_modify(|view| {
            view.workers = self.fleet.views();
            change(view);
        });
    }
}

impl Waiting {
    fn names(&self) -> String {
        let names: Vec<_> = self.workers.iter().map(|worker| format!("worker {worker}")).collect();
        names.join(", ")
    }
}

/// Everything about the start in one line: version, workers, driver and why, addresses.
fn start_line(view: &ProcessView) -> String {
    let drivers: BTreeSet<_> = (view.workers.iter())
        .map(|worker| format!("{} ({})", worker.driver, worker.reason))
        .collect();
    let drivers: Vec<_> = drivers.into_iter().collect();
    let listeners: Vec<_> =
        view.listeners.iter().map(|(name, address)| format!("{name} on {address}")).collect();
    format!(
        "ringway {} started: workers {}, driver {}, listening: {}, admin {}",
        env!("CARGO_PKG_VERSION"),
        view.workers.len(),
        drivers.join(" and "),
        listeners.join(", "),
        view.admin
    )
}

#[cfg(test)]
mod tests;
