//! The control thread: configuration, sockets, workers, signals and the admin API.
//!
//! It runs on the process's main thread and never blocks for more than 5 ms; what does block runs
//! on the threads of `helper`.

pub mod about;
pub mod access_log;
pub mod admin;
pub mod source;

mod certificates;
mod checks;
mod cores;
mod discovery;
mod fleet;
mod helper;
mod listen;
mod log;
mod names;
mod outcome;
mod process;
mod signals;
mod supervise;

pub use source::Source;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::limits::{ACCESS_LOG_FINISH_MS, EVENTS_MAX, RESOLVE_AT_START_MS, WORKERS_MAX};
use crate::observe::SeriesRegistry;
use crate::observe::access_log::{LogBuffer, LogTallies, log_queue};
use crate::observe::render::{Phase, ProcessView, UpstreamBounds};
use crate::snapshot::{Ids, Snapshot};
use crate::upstream::UpstreamPlan;
use access_log::Writer;
use admin::{Admin, Shown};
use cores::Cores;
use discovery::{Answered, Discovery};
use fleet::{Fleet, Spawn, Start};
use helper::{Event, Helpers};
use names::Names;
use process::Process;
use signals::Registered;
use source::{Loaded, Taken};
use supervise::Supervisor;

/// What `run` is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the configuration comes from.
    pub source: Source,
    /// What to print on standard output when every worker has started.
    pub banner: Option<String>,
}

/// Runs the proxy until it is told to stop. Where workers were started it does not return but
/// leaves the process: a worker's runtime must not be dropped while the kernel holds its buffers.
pub fn run(options: Options) -> ExitCode {
    let process = Process::new();
    let signals = match Registered::take_over() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("error: signals cannot be taken over: {error}"));
            return ExitCode::from(EXIT_FAILED);
        }
    };
    let mut ids = Ids::default();
    let Loaded { taken, warnings } = match options.source.load(&mut ids, 1) {
        Ok(loaded) => loaded,
        Err(rejected) => {
            complain(&rejected.rendered);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let log = log::start();
    let (taken, found) = discovery::complete(taken, &mut ids);
    if !warnings.is_empty() {
        tracing::warn!("the configuration has warnings:\n{warnings}");
    }
    // Two threads at most for what blocks: see `admin::Lanes`.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build();
    let mut socket = None;
    let ran = match runtime {
        Ok(runtime) => {
            let dropped = log.dropped.clone();
            let launch = Launch { options, process, spawn: crate::worker::spawn, dropped };
            let ran = runtime.block_on(launch.serve(signals, (taken, found), ids, &mut socket));
            // Nobody waits for an answer of the admin API that is being rendered.
            runtime.shutdown_background();
            ran
        }
        Err(error) => Err(format!("the control thread cannot start: {error}")),
    };
    let code = ran.unwrap_or_else(|error| {
        tracing::error!("{error}");
        EXIT_FAILED
    });
    if let Some(path) = socket {
        let _ = std::fs::remove_file(path);
    }
    drop(log);
    std::process::exit(i32::from(code))
}

/// Writes to standard error, which may be closed.
pub(crate) fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{}", text.trim_end());
}

/// The workers' series: locked by admin requests and the helper thread, never by a worker, and by the
/// control thread only to start them.
#[allow(clippy::disallowed_types)]
pub type Series = Arc<std::sync::Mutex<SeriesRegistry>>;

struct Launch {
    options: Options,
    process: Process,
    spawn: Spawn,
    dropped: tracing_appender::non_blocking::ErrorCounter,
}

impl Launch {
    /// Binds, starts everything and supervises it. `socket` becomes the file to remove at the end.
    async fn serve(
        self,
        signals: Registered,
        (taken, found): (Taken, Vec<Answered>),
        ids: Ids,
        socket: &mut Option<PathBuf>,
    ) -> Result<u8, String> {
        let cannot = |what: &'static str| move |error| format!("{what}: {error}");
        let snapshot = taken.snapshot.clone();
        let mut signals = signals.receive().map_err(cannot("signals cannot be taken over"))?;
        let descriptors = cores::raise_descriptors();
        let cores = Cores::read();
        let workers = snapshot.runtime.workers.unwrap_or_else(|| cores.usable());
        let workers = workers.clamp(1, WORKERS_MAX);
        let connections_max = snapshot.runtime.connections_max;
        let connections_max = cores::connections_max(connections_max, descriptors, workers);
        let (logs, writer) = start_access_log(&snapshot, workers)?;
        let bound = listen::bind_at_start(&snapshot.listeners, workers).await;
        let bound = bound.map_err(|unbound| unbound.text)?;
        let admin = Admin::bind(&snapshot.admin)?;
        socket.clone_from(&admin.path);

        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let source = self.options.source.clone();
        // Admin requests and the helper thread; workers never.
        let series = Series::default();
        let helpers = Helpers::start(source, ids, taken.clone(), series.clone(), &sender)
            .map_err(cannot("a helper thread cannot start"))?;
        let reports = helpers.reports.clone();
        let (view, shown) = watch::channel(self.view(&snapshot, &admin, descriptors));
        let (in_force, taken) = watch::channel(taken);
        let measure = self.measure(&helpers, &series, writer.tallies(), taken.clone());
        tokio::spawn(admin.serve(Shown { view: shown, taken, measure }, sender.clone()));

        let names = Names::new(&snapshot, Instant::now());
        let discovery = start_discovery(&snapshot, found);
        let banner = self.options.banner.clone();
        let mut supervisor =
            Supervisor::new(in_force, (names, discovery), helpers, bound.addresses, view, banner);
        resolve_first(&mut supervisor, &mut events).await;
        // In a block of its own, because the lock must not be held while it supervises.
        let fleet = {
            let mut registry = series.lock().unwrap_or_else(PoisonError::into_inner);
            Fleet::start(Start {
                spawn: self.spawn,
                snapshot: &snapshot,
                cores: &cores,
                opened: bound.opened,
                connections_max,
                addresses: supervisor.names.take_changed().map(Arc::new),
                logs,
                series: &mut registry,
                reports: &reports,
            })
        };
        let fleet = fleet.map_err(cannot("a worker cannot start"))?;
        drop(snapshot);
        supervisor.access_log = Some(writer);
        supervisor.check_endpoints(sender);
        supervisor.started_with(fleet, Instant::now());
        let code = supervisor.run(&mut signals, &mut events).await;
        if let Some(writer) = supervisor.access_log {
            // Dropped lines are counted, and nobody is left to be shown the count.
            let _ = writer.finish(Duration::from_millis(ACCESS_LOG_FINISH_MS));
        }
        Ok(code)
    }

    /// What is known before the workers start.
    fn view(&self, snapshot: &Snapshot, admin: &Admin, descriptors: u64) -> ProcessView {
        ProcessView {
            phase: Phase::Starting,
            config_version: snapshot.version,
            names: snapshot.names.clone(),
            config_source: self.options.source.to_string(),
            config_applied_at_s: process::unix_time_s(),
            last_reload_success: true,
            admin: admin.address.clone(),
            certificates: certificates::view(snapshot),
            descriptors_max: descriptors,
            ..ProcessView::default()
        }
    }

    fn measure(
        &self,
        helpers: &Helpers,
        series: &Series,
        logged: LogTallies,
        taken: watch::Receiver<Taken>,
    ) -> admin::Measure {
        let series = series.clone();
        let (process, dropped, alive) = (self.process, self.dropped.clone(), helpers.alive.clone());
        Arc::new(move |view| {
            process.measure(view);
            view.series =
                series.lock().unwrap_or_else(PoisonError::into_inner).collect(&view.names);
            view.snapshots_alive = alive.get();
            let snapshot = taken.borrow().snapshot.clone();
            view.crowded = (snapshot.filters.iter())
                .filter_map(|entry| Some((entry.name.to_string(), entry.filter.crowded()?)))
                .collect();
            view.bounds = snapshot.upstreams.iter().filter_map(|it| bounds(it)).collect();
            let logged = logged.sum();
            view.access_log_records = logged.written;
            view.access_log_dropped = logged.dropped_at_queue + logged.dropped_at_target;
            let done = logged.written + logged.dropped_at_target;
            view.access_log_waiting = logged.handed_over.saturating_sub(done);
            view.log_lines_dropped = dropped.dropped_lines() as u64;
        })
    }
}

/// What bounds the requests of an upstream, if anything does.
fn bounds(plan: &UpstreamPlan) -> Option<UpstreamBounds> {
    let bounds = UpstreamBounds {
        upstream: plan.name.clone(),
        in_flight_max: Some(plan.in_flight_max).filter(|max| *max > 0),
        follows: plan.concurrency.is_some(),
        queue_length_max: Some(plan.queue_length_max).filter(|max| *max > 0),
    };
    (bounds.in_flight_max.is_some() || bounds.follows).then_some(bounds)
}

/// What is known of upstreams that discover their endpoints, after the first look.
fn start_discovery(snapshot: &Snapshot, found: Vec<Answered>) -> Discovery {
    let now = Instant::now();
    let mut discovery = Discovery::new(snapshot, now);
    for answered in found {
        if let Some(warning) = discovery.answer(answered, now, process::unix_time_s()) {
            tracing::warn!("{warning}");
        }
    }
    // The snapshot has them already.
    discovery.take_changed();
    discovery
}

/// Opens the access log, where there is one, and starts the thread that writes it.
fn start_access_log(
    snapshot: &Snapshot,
    workers: usize,
) -> Result<(Vec<LogBuffer>, Writer), String> {
    let sink = helper::new_log(None, snapshot.access_log.as_ref())?;
    let (logs, queues) = (0..workers).map(|_| log_queue()).unzip();
    let writer = Writer::start(sink, queues);
    Ok((logs, writer.map_err(|error| format!("the access log cannot start: {error}"))?))
}

/// Looks names up before the workers start, for a bounded time: what is late comes by message.
async fn resolve_first(supervisor: &mut Supervisor, events: &mut mpsc::Receiver<Event>) {
    let until = tokio::time::Instant::now() + Duration::from_millis(RESOLVE_AT_START_MS);
    supervisor.on_time(Instant::now());
    while supervisor.names.asking() {
        match tokio::time::timeout_at(until, events.recv()).await {
            Ok(Some(event)) => supervisor.on_event(event, Instant::now()),
            Ok(None) => return,
            Err(_) => {
                tracing::warn!("not every name was resolved within {RESOLVE_AT_START_MS} ms");
                return;
            }
        }
    }
}

/// Exit code of a failure while running, or of a start that failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit code of wrong usage.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a bad configuration: EX_CONFIG of sysexits.h.
pub const EXIT_CONFIG: u8 = 78;
