//! Threads that do for the control thread what blocks: compiling, freeing, resolving, and waiting
//! for the workers' reports.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tokio::sync::mpsc;

use super::Series;
use super::access_log::{self, Sink};
use super::certificates::Watch;
use super::discovery::{self, Answered, Asked};
use super::listen::{self, Bound};
use super::names;
use super::outcome::{Caller, Reason, Refusal};
use super::source::{self, Loaded, Rejected, Source, Taken};
use crate::config::Sources;
use crate::limits::{ADDRESSES_PER_NAME_MAX, RESOLVE_AT_START_MS, SNAPSHOT_SWEEP_MS};
use crate::observe::Gauge;
use crate::observe::access_log::AccessLogPlan;
use crate::snapshot::{Discovered, Ids, Snapshot};
use crate::tls::files::Stamp;
use crate::upstream::EndpointId;
use crate::worker::Report;

/// A name and the port that goes with it.
pub type HostPort = (Box<str>, u16);

/// What other threads tell the control thread.
#[derive(Debug)]
pub enum Event {
    /// A worker reports.
    Report(Report),
    /// Somebody asks for the configuration to be read again.
    Reload(Caller),
    /// Files of certificates have changed.
    CertificatesChanged,
    /// A configuration was compiled, or refused.
    Compiled(Result<Compiled, Refusal>),
    /// A name was looked up.
    Resolved(HostPort, Result<Vec<SocketAddr>, String>),
    /// So were all that were asked for.
    ResolvedAll,
    /// An endpoint was checked; a failure says why.
    Checked(EndpointId, Result<(), Box<str>>),
    /// Endpoints were looked for.
    Discovered(Answered),
}

/// A configuration that can take force.
#[derive(Debug)]
pub struct Compiled {
    /// Plans and texts.
    pub taken: Taken,
    /// What is odd about it, rendered.
    pub warnings: String,
    /// Addresses of the names that it brings in, as far as they were found in time.
    pub addresses: Vec<(HostPort, Vec<SocketAddr>)>,
    /// The endpoints that it brings in, as far as they were found in time.
    pub discovered: Vec<Answered>,
    /// The sockets of the listeners that it brings in.
    pub bound: Bound,
    /// The access log's target, where it is another one than before.
    pub log: Option<Sink>,
}

/// What to compile.
#[derive(Debug)]
pub enum Wanted {
    /// The source, read again.
    Source,
    /// What is in force, with the certificates that it names as they stand now.
    Certificates(Arc<Sources>),
    /// What is in force, with the endpoints that are known now.
    Endpoints(Arc<Sources>),
}

/// What the compiler is to do.
#[derive(Debug)]
struct Job {
    wanted: Wanted,
    version: u64,
    current: Arc<Snapshot>,
    discovered: Discovered,
    workers: usize,
}

/// The helper threads, as the control thread holds them.
#[derive(Debug)]
pub struct Helpers {
    compile: Sender<Job>,
    resolve: Sender<Vec<HostPort>>,
    discover: mpsc::Sender<Asked>,
    /// Snapshots that are still held by somebody, the one in force included.
    pub alive: Arc<Gauge>,
    /// Where workers report to.
    pub reports: Sender<Report>,
}

impl Helpers {
    /// Starts them; `first` is the configuration in force and `ids` the identities that it was
    /// compiled with. `series` are freed of what it does not name any more.
    ///
    /// # Errors
    /// A thread could not be made.
    pub fn start(
        source: Source,
        ids: Ids,
        first: Taken,
        series: Series,
        events: &mpsc::Sender<Event>,
    ) -> std::io::Result<Helpers> {
        // One job at a time each: the control thread asks again only after the answer.
        let (compile, jobs) = crossbeam_channel::bounded(1);
        let (resolve, names) = crossbeam_channel::bounded(1);
        let (reports, reported) = crossbeam_channel::bounded(REPORTS);
        let alive = Arc::new(Gauge::default());
        alive.set(1);
        let compiler = Compiler {
            source,
            ids,
            held: vec![first],
            watch: Watch::default(),
            series,
            alive: alive.clone(),
            events: events.clone(),
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("helper").spawn(move || compiler.run(&jobs))?;
        let answers = events.clone();
        // Apart from the compiler, so that a dead name server holds up no reload that brings in no
        // name, and one that does for no longer than `RESOLVE_AT_START_MS`.
        thread("resolver").spawn(move || resolve_all(&names, &answers))?;
        let discover = discovery::start(events)?;
        let relayed = events.clone();
        // A crossbeam channel cannot wake the control thread's runtime.
        thread("reports").spawn(move || {
            for report in reported {
                if relayed.blocking_send(Event::Report(report)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Helpers { compile, resolve, discover, alive, reports })
    }

    /// Asks for a compilation, as `version`, to replace `current` on so many workers, with the endpoints
    /// that are known.
    pub fn compile(
        &self,
        wanted: Wanted,
        version: u64,
        current: Arc<Snapshot>,
        discovered: Discovered,
        workers: usize,
    ) -> bool {
        self.compile.try_send(Job { wanted, version, current, discovered, workers }).is_ok()
    }

    /// Asks for endpoints to be looked for; false where too many wait already.
    pub fn discover(&self, asked: Asked) -> bool {
        self.discover.try_send(asked).is_ok()
    }

    /// Asks for names to be looked up.
    pub fn resolve(&self, names: Vec<HostPort>) -> bool {
        self.resolve.try_send(names).is_ok()
    }
}

/// Compiles snapshots, and frees them: workers and the control thread only ever let go of one,
/// because freeing 50,000 routes takes tens of milliseconds. Texts go with their snapshots.
struct Compiler {
    source: Source,
    ids: Ids,
    /// The newest last.
    held: Vec<Taken>,
    watch: Watch,
    series: Series,
    alive: Arc<Gauge>,
    events: mpsc::Sender<Event>,
}

impl Compiler {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let job = match self.next_wake(Instant::now()) {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wake) => jobs.recv_deadline(wake),
            };
            let mut changed = job.is_ok();
            match job {
                Ok(job) => {
                    // The control thread waits for an answer: it gets one even from a bug.
                    let compiled = catch_unwind(AssertUnwindSafe(|| self.compile(&job)))
                        .unwrap_or_else(|_| Err(rejected(Rejected::internal())));
                    drop(job);
                    if self.events.blocking_send(Event::Compiled(compiled)).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let files = self.held.last().map_or(&[][..], |held| &held.snapshot.watched);
                    if self.watch.look(files, Instant::now(), Stamp::of)
                        && self.events.blocking_send(Event::CertificatesChanged).is_err()
                    {
                        return;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // The control thread holds the one in force; the event above holds a new one.
            let before = self.held.len();
            self.held.retain(|held| Arc::strong_count(&held.snapshot) > 1);
            self.alive.set(self.held.len() as u64);
            changed |= self.held.len() < before;
            if changed {
                self.settle();
            }
        }
    }

    /// When to look at old snapshots, or at the files of the newest; none is never.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let sweep = Duration::from_millis(SNAPSHOT_SWEEP_MS);
        let sweep = (self.held.len() > 1).then(|| now + sweep);
        let files = self.held.last().map_or(&[][..], |held| &held.snapshot.watched);
        sweep.into_iter().chain(self.watch.due(files, now)).min()
    }

    /// Has the series freed of what workers have let go of. Here, because a scrape of many routes
    /// holds them for longer than the control thread may wait.
    fn settle(&self) {
        if let Some(newest) = self.held.last() {
            let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
            series.settle(&newest.snapshot.names);
        }
    }

    fn compile(&mut self, job: &Job) -> Result<Compiled, Refusal> {
        let current = &*job.current;
        self.ids.keep_only(&current.names);
        self.ids.discovered = job.discovered.clone();
        let loaded = match &job.wanted {
            Wanted::Source => self.source.load(&mut self.ids, job.version),
            Wanted::Certificates(sources) => {
                source::load_again(sources, &mut self.ids, job.version)
            }
            Wanted::Endpoints(sources) => return Ok(self.rediscover(job, sources.clone())),
        };
        let Loaded { taken, warnings } = loaded.map_err(rejected)?;
        let (taken, discovered) = discovery::complete(taken, &mut self.ids);
        let snapshot = &*taken.snapshot;
        if let Some(text) = needs_restart(current, snapshot) {
            return Err(Refusal { reason: Reason::NeedsRestart, text });
        }
        let addresses = resolve_new(snapshot, current);
        let log = new_log(current.access_log.as_ref(), snapshot.access_log.as_ref())
            .map_err(|text| Refusal { reason: Reason::LogUnopened, text })?;
        // Last, because from then on connections come that somebody has to accept.
        let bound = listen::bind_new(&snapshot.listeners, &current.listeners, job.workers)
            .map_err(|unbound| Refusal { reason: Reason::Unbound, text: unbound.text })?;
        self.held.push(taken.clone());
        Ok(Compiled { taken, warnings, addresses, discovered, bound, log })
    }

    /// The configuration in force with other endpoints; nothing else of it is compiled.
    fn rediscover(&mut self, job: &Job, sources: Arc<Sources>) -> Compiled {
        let snapshot = Arc::new(job.current.rediscovered(&mut self.ids));
        let addresses = resolve_new(&snapshot, &job.current);
        let taken = Taken { snapshot, sources };
        self.held.push(taken.clone());
        Compiled {
            taken,
            warnings: String::new(),
            addresses,
            discovered: Vec::new(),
            bound: Bound::none(job.workers),
            log: None,
        }
    }
}

/// Opens the target of an access log, where that is another one than before.
///
/// # Errors
/// A sentence that names it.
pub fn new_log(
    old: Option<&AccessLogPlan>,
    new: Option<&AccessLogPlan>,
) -> Result<Option<Sink>, String> {
    let Some(target) = new.map(|plan| &plan.target) else { return Ok(None) };
    if old.is_some_and(|old| old.target == *target) {
        return Ok(None);
    }
    let opened = access_log::open(target);
    opened.map(Some).map_err(|error| format!("access log: cannot open {target}: {error}"))
}

fn rejected(rejected: Rejected) -> Refusal {
    Refusal { reason: Reason::Rejected, text: rejected.rendered }
}

/// What a reload may not change, if it does: threads and the admin API are set up once.
fn needs_restart(old: &Snapshot, new: &Snapshot) -> Option<String> {
    let changed: Vec<_> = [
        ("`workers` of [runtime]", old.runtime.workers != new.runtime.workers),
        ("`driver` of [runtime]", old.runtime.driver != new.runtime.driver),
        ("[admin]", old.admin != new.admin),
    ]
    .into_iter()
    .filter_map(|(what, changed)| changed.then_some(what))
    .collect();
    match changed.is_empty() {
        true => listen::ipv4_changed(&new.listeners, &old.listeners),
        false => Some(format!("it changes {}: that needs a restart", changed.join(", "))),
    }
}

/// Looks up the names that `snapshot` brings in, so that it takes force with their addresses: for no
/// longer than a start would wait.
fn resolve_new(snapshot: &Snapshot, current: &Snapshot) -> Vec<(HostPort, Vec<SocketAddr>)> {
    let of = |snapshot| names::wanted(snapshot).map(|(_, name)| name).collect::<BTreeSet<_>>();
    let before = of(current);
    let new: Vec<HostPort> = of(snapshot).into_iter().filter(|it| !before.contains(it)).collect();
    if new.is_empty() {
        return Vec::new();
    }
    let (answers, answered) = crossbeam_channel::bounded(new.len());
    // Left behind when it takes too long: a look-up cannot be called off.
    let looking = std::thread::Builder::new().name("resolver-new".to_owned()).spawn(move || {
        for name in new {
            if let Ok(addresses) = look_up(&name) {
                let _ = answers.send((name, addresses));
            }
        }
    });
    if looking.is_err() {
        return Vec::new();
    }
    let until = Instant::now() + Duration::from_millis(RESOLVE_AT_START_MS);
    std::iter::from_fn(|| answered.recv_deadline(until).ok()).collect()
}

fn look_up((host, port): &HostPort) -> Result<Vec<SocketAddr>, String> {
    let answer = (&**host, *port).to_socket_addrs();
    match answer.map(|all| all.take(ADDRESSES_PER_NAME_MAX).collect::<Vec<_>>()) {
        Ok(none) if none.is_empty() => Err("it has no address".to_owned()),
        answer => answer.map_err(|error| error.to_string()),
    }
}

fn resolve_all(jobs: &Receiver<Vec<HostPort>>, events: &mpsc::Sender<Event>) {
    for names in jobs {
        for name in names {
            let answer = look_up(&name);
            if events.blocking_send(Event::Resolved(name, answer)).is_err() {
                return;
            }
        }
        if events.blocking_send(Event::ResolvedAll).is_err() {
            return;
        }
    }
}

/// Reports that wait to be relayed; a worker blocks only if the relay has fallen this far behind.
const REPORTS: usize = 4 * crate::limits::WORKERS_MAX;
