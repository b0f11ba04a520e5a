//! The control thread's loop: signals, reports, reloads and the drain.
//!
//! [`Supervisor`] does no I/O of its own: it takes events and `now`, and its messages go into
//! inboxes that never block.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::Series;
use super::fleet::Fleet;
use super::helper::{Compiled, Event, Helpers};
use super::names::Names;
use super::process::unix_time_s;
use super::signals::{Signal, Signals};
use super::source::Rejected;
use crate::io::DriverReport;
use crate::limits::{ACKNOWLEDGE_MS, DRAIN_MARGIN_MS, INBOX_RETRY_MS, START_MS};
use crate::observe::render::{Phase, ProcessView, ReloadResult};
use crate::snapshot::Snapshot;
use crate::worker::{Message, Report};

/// What the control thread knows and decides.
#[derive(Debug)]
pub struct Supervisor {
    /// The workers.
    pub fleet: Fleet,
    /// Names and their addresses.
    pub names: Names,
    /// What the workers count, summed when somebody asks.
    pub series: Series,
    helpers: Helpers,
    current: Arc<Snapshot>,
    view: watch::Sender<ProcessView>,
    /// Printed on standard output when every worker has started.
    banner: Option<String>,
    /// Workers that have not started yet, and until when they may.
    starting: Option<Waiting>,
    compiling: Option<Compiling>,
    applying: Option<Waiting>,
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

#[derive(Debug)]
struct Compiling {
    since: Instant,
    /// HUP came again meanwhile: what is being compiled may be old.
    again: bool,
}

impl Supervisor {
    /// Waits for the start of a fleet that [`Supervisor::started_with`] brings.
    pub fn new(
        current: Arc<Snapshot>,
        names: Names,
        helpers: Helpers,
        view: watch::Sender<ProcessView>,
        banner: Option<String>,
    ) -> Supervisor {
        Supervisor {
            fleet: Fleet::default(),
            names,
            series: Series::default(),
            helpers,
            current,
            view,
            banner,
            starting: None,
            compiling: None,
            applying: None,
            draining: None,
            exit: None,
        }
    }

    /// Takes charge of workers that have just been spawned.
    pub fn started_with(&mut self, fleet: Fleet, now: Instant) {
        self.fleet = fleet;
        self.starting = Some(self.wait(now, START_MS));
        self.publish(|_| {});
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
            Signal::Reload if self.draining.is_some() => tracing::warn!("no reload while draining"),
            Signal::Reload => self.reload(now),
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
            Event::Compiled(compiled) => self.on_compiled(compiled, now),
            Event::Resolved(name, answer) => {
                if let Some(warning) = self.names.answer(name, answer) {
                    tracing::warn!("{warning}");
                }
            }
            Event::ResolvedAll => self.names.answered_all(),
        }
    }

    /// Does what is due: look-ups, messages that found an inbox full, and bounds that passed.
    pub fn on_time(&mut self, now: Instant) {
        if let Some(names) = self.names.ask(now)
            && !self.helpers.resolve(names)
        {
            self.names.answered_all();
        }
        self.broadcast_addresses();
        self.fleet.retry();
        if let Some(late) = self.starting.take_if(|waiting| waiting.until <= now) {
            tracing::error!("{} did not start within {START_MS} ms", late.names());
            self.exit = Some(1);
        }
        if let Some(late) = self.applying.take_if(|waiting| waiting.until <= now) {
            let version = self.current.version;
            tracing::error!(
                "configuration {version}: {} did not acknowledge it within {ACKNOWLEDGE_MS} ms",
                late.names()
            );
            self.count(ReloadResult::Unacknowledged);
        }
        if let Some(late) = self.draining.as_ref().filter(|waiting| waiting.until <= now) {
            tracing::warn!("leaving without the word of {}", late.names());
            self.exit = Some(0);
        }
    }

    /// When [`Supervisor::on_time`] has something to do again.
    pub fn next_wake(&self, now: Instant) -> Instant {
        let retry = Duration::from_millis(INBOX_RETRY_MS);
        let waiting = [&self.starting, &self.applying, &self.draining];
        waiting
            .into_iter()
            .flatten()
            .map(|waiting| waiting.until)
            .chain(self.names.due())
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

    fn reload(&mut self, now: Instant) {
        match &mut self.compiling {
            Some(compiling) => compiling.again = true,
            None => {
                let next = self.current.version + 1;
                if self.helpers.compile(next, self.current.clone()) {
                    self.compiling = Some(Compiling { since: now, again: false });
                } else {
                    tracing::error!("reload: the helper thread is gone; a restart is needed");
                    self.count(ReloadResult::Rejected);
                }
            }
        }
    }

    fn on_compiled(&mut self, compiled: Result<Compiled, Rejected>, now: Instant) {
        let Some(done) = self.compiling.take() else { return };
        match compiled {
            Ok(compiled) => self.apply(compiled, done.since, now),
            Err(rejected) => {
                // Diagnostics have lines of their own.
                self.refuse(&format!("\n{}", rejected.rendered), ReloadResult::Rejected);
            }
        }
        // Only now, because the next job carries the configuration in force.
        if done.again && self.draining.is_none() {
            self.reload(now);
        }
    }

    fn apply(&mut self, compiled: Compiled, since: Instant, now: Instant) {
        if self.draining.is_some() {
            return;
        }
        if let Some(what) = needs_restart(&self.current, &compiled.snapshot) {
            let why = format!("it changes {what}, which needs a restart");
            return self.refuse(&why, ReloadResult::NeedsRestart);
        }
        if !compiled.warnings.is_empty() {
            tracing::warn!("the new configuration has warnings:\n{}", compiled.warnings);
        }
        self.current = compiled.snapshot;
        self.applying = Some(Waiting { since, ..self.wait(now, ACKNOWLEDGE_MS) });
        self.names.follow(&self.current, now);
        for (name, addresses) in compiled.addresses {
            self.names.answer(name, Ok(addresses));
        }
        // Before the snapshot, so that an endpoint that it brings in has its addresses at once.
        self.broadcast_addresses();
        self.fleet.broadcast(&Message::Snapshot(self.current.clone()));
        let (version, names) = (self.current.version, self.current.names.clone());
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.settle(&names);
        drop(series);
        self.publish(|view| {
            view.names = names;
            view.config_version = version;
            view.config_applied_at_s = unix_time_s();
        });
    }

    fn broadcast_addresses(&mut self) {
        if !self.fleet.is_empty()
            && let Some(addresses) = self.names.take_changed()
        {
            self.fleet.broadcast(&Message::Addresses(Arc::new(addresses)));
        }
    }

    fn refuse(&mut self, why: &str, result: ReloadResult) {
        let version = self.current.version;
        tracing::error!("reload refused, configuration {version} stays in force: {why}");
        self.count(result);
    }

    fn on_applied(&mut self, worker: usize, version: u64, now: Instant) {
        let Some(waiting) = &mut self.applying else { return };
        if version != self.current.version {
            return;
        }
        waiting.workers.remove(&worker);
        if waiting.workers.is_empty() {
            let ms = now.duration_since(waiting.since).as_secs_f64() * 1000.0;
            self.applying = None;
            tracing::info!("configuration {version} is in force on every worker after {ms:.1} ms");
            self.count(ReloadResult::Applied);
        }
    }

    fn drain(&mut self, now: Instant) {
        let runtime = &self.current.runtime;
        let (delay_ms, bound_ms) = (runtime.drain_delay_ms, runtime.drain_ms);
        tracing::info!("draining for at most {} ms", delay_ms + bound_ms);
        self.publish(|view| view.phase = Phase::Draining);
        self.fleet.broadcast(&Message::Drain { delay_ms, bound_ms });
        self.draining = Some(self.wait(now, delay_ms + bound_ms + DRAIN_MARGIN_MS));
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

    fn count(&mut self, result: ReloadResult) {
        self.publish(|view| {
            view.reloads[result as usize] += 1;
            view.last_reload_success = result == ReloadResult::Applied;
        });
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

/// What a reload may not change, if it does: threads, sockets and the admin API are set up once.
fn needs_restart(old: &Snapshot, new: &Snapshot) -> Option<&'static str> {
    let addresses = |snapshot: &Snapshot| {
        let listeners = snapshot.listeners.iter();
        listeners.map(|plan| (plan.name.clone(), plan.address)).collect::<BTreeSet<_>>()
    };
    if old.runtime != new.runtime {
        return Some("[runtime]");
    }
    if old.admin != new.admin {
        return Some("[admin]");
    }
    (addresses(old) != addresses(new)).then_some("the listeners or their addresses")
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
