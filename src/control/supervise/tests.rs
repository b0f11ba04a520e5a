//! The supervisor with workers that are doubles: threads that answer messages and serve nobody.

use super::*;
use crate::control::cores::Cores;
use crate::control::fleet::{Spawn, Start};
use crate::control::listen;
use crate::control::source::Source;
use crate::io::DriverKind;
use crate::snapshot::Ids;
use crate::worker::Setup;
use std::path::PathBuf;

/// Starts, acknowledges every snapshot, and ends when it is told to drain.
fn obedient(setup: Setup) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().spawn(move || {
        let worker = setup.index;
        let report = |report| setup.reports.send(report).expect("somebody listens");
        report(started(worker));
        while let Ok(message) = setup.inbox.messages.recv() {
            match message {
                Message::Snapshot(snapshot) => {
                    report(Report::Applied { worker, version: snapshot.version });
                }
                Message::Addresses(_) => {}
                Message::Drain { .. } => return report(Report::Drained { worker, cut: 0 }),
            }
        }
    })
}

/// Starts, and answers nothing after that.
fn deaf(setup: Setup) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().spawn(move || {
        setup.reports.send(started(setup.index)).expect("somebody listens");
        while setup.inbox.messages.recv().is_ok() {}
    })
}

fn failing(setup: Setup) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().spawn(move || {
        let report = Report::Failed { worker: setup.index, error: "no ring".to_owned() };
        setup.reports.send(report).expect("somebody listens");
    })
}

fn started(worker: usize) -> Report {
    let driver = DriverReport { kind: DriverKind::Epoll, reason: "a double".to_owned() };
    Report::Started { worker, driver }
}

struct Bench {
    supervisor: Supervisor,
    events: mpsc::Receiver<Event>,
    view: watch::Receiver<ProcessView>,
    file: PathBuf,
    /// Kept bound, so that its address stays free.
    address: std::net::SocketAddr,
}

impl Bench {
    fn new(name: &str, spawn: Spawn) -> Bench {
        let file = std::env::temp_dir().join(format!("ringway-{}-{name}.toml", std::process::id()));
        let address = "127.0.0.1:0".parse().expect("an address");
        std::fs::write(&file, config(address, "127.0.0.1:1")).expect("written");
        let source = Source::File(file.clone());
        let mut ids = Ids::default();
        let snapshot = Arc::new(source.load(&mut ids, 1).expect("valid").snapshot);
        let (sender, events) = mpsc::channel(64);
        let helpers = Helpers::start(source, ids, snapshot.clone(), &sender).expect("threads");
        let reports = helpers.reports.clone();
        let first = ProcessView { config_version: 1, ..ProcessView::default() };
        let (publish, view) = watch::channel(first);
        let now = Instant::now();
        let names = Names::new(&snapshot, now);
        let mut supervisor = Supervisor::new(snapshot.clone(), names, helpers, publish, None);
        let bound = listen::bind(&snapshot.listeners, 2).expect("bound");
        let start = Start {
            spawn,
            snapshot: &snapshot,
            cores: &Cores { mask: Vec::new(), quota: None },
            sockets: bound.sockets,
            connections_max: 10,
            addresses: None,
            series: &mut Default::default(),
            reports: &reports,
        };
        supervisor.started_with(Fleet::start(start).expect("threads"), now);
        Bench { supervisor, events, view, file, address }
    }

    /// Takes events until `done`.
    fn until(&mut self, done: impl Fn(&Supervisor, &ProcessView) -> bool) {
        while !done(&self.supervisor, &self.view.borrow()) {
            let event = self.events.blocking_recv().expect("an event");
            self.supervisor.on_event(event, Instant::now());
            self.supervisor.on_time(Instant::now());
        }
    }

    fn ready(&mut self) {
        self.until(|_, view| view.phase == Phase::Ready);
    }

    fn reload(&mut self, text: &str, result: ReloadResult) {
        std::fs::write(&self.file, text).expect("written");
        self.supervisor.on_signal(Signal::Reload, Instant::now());
        let before = self.view.borrow().reloads[result as usize];
        self.until(|_, view| view.reloads[result as usize] == before + 1);
    }
}

fn config(address: std::net::SocketAddr, endpoint: &str) -> String {
    format!(
        "[runtime]\nworkers = 2\n[listener.a]\naddress = \"{address}\"\n[upstream.u]\n\
         endpoints = [{{ address = \"{endpoint}\" }}]\n\
         [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n"
    )
}

#[test]
fn it_is_ready_when_every_worker_has_started_and_ends_when_all_are_drained() {
    let mut bench = Bench::new("drain", obedient);
    assert_eq!(bench.view.borrow().phase, Phase::Starting);
    bench.ready();
    assert_eq!(bench.view.borrow().workers[1].driver, "epoll");
    bench.supervisor.on_signal(Signal::Drain, Instant::now());
    assert_eq!(bench.view.borrow().phase, Phase::Draining);
    bench.until(|supervisor, _| supervisor.exit.is_some());
    assert_eq!(bench.supervisor.exit, Some(0));
}

#[test]
fn a_worker_that_fails_ends_the_process_with_code_1() {
    let mut bench = Bench::new("failing", failing);
    bench.until(|supervisor, _| supervisor.exit.is_some());
    assert_eq!(bench.supervisor.exit, Some(1));
}

#[test]
fn a_reload_is_in_force_once_every_worker_says_so() {
    let mut bench = Bench::new("reload", obedient);
    bench.ready();
    bench.reload(&config(bench.address, "127.0.0.1:2"), ReloadResult::Applied);
    let view = bench.view.borrow().clone();
    assert_eq!((view.config_version, view.last_reload_success), (2, true));
    assert!(bench.supervisor.applying.is_none());
}

#[test]
fn a_bad_file_and_one_that_needs_a_restart_leave_the_old_in_force() {
    let mut bench = Bench::new("bad", obedient);
    bench.ready();
    bench.reload("[listener", ReloadResult::Rejected);
    let view = bench.view.borrow().clone();
    assert_eq!((view.config_version, view.last_reload_success), (1, false));
    let good = config(bench.address, "127.0.0.1:2");
    for changed in [
        good.replace("workers = 2", "workers = 1"),
        good.replace("[runtime]", "[admin]\nlisten = \"127.0.0.1:9\"\n[runtime]"),
        good.replace("127.0.0.1:0", "127.0.0.2:0"),
        good.replace("[listener.a]", "[listener.b]"),
    ] {
        bench.reload(&changed, ReloadResult::NeedsRestart);
        assert_eq!(bench.view.borrow().config_version, 1);
    }
    bench.reload(&good, ReloadResult::Applied);
    assert!(bench.view.borrow().last_reload_success);
}

/// A file that changes again while it is compiled is read again.
#[test]
fn a_second_hup_during_a_reload_is_not_lost() {
    let mut bench = Bench::new("again", obedient);
    bench.ready();
    let now = Instant::now();
    for _ in 0..3 {
        bench.supervisor.on_signal(Signal::Reload, now);
    }
    bench.until(|supervisor, view| view.config_version == 3 && supervisor.applying.is_none());
    assert!(bench.supervisor.compiling.is_none(), "two, not three");
}

#[test]
fn bounds_end_what_deaf_workers_keep_waiting() {
    let mut bench = Bench::new("deaf", deaf);
    bench.ready();
    let now = Instant::now();
    bench.supervisor.on_signal(Signal::Reload, now);
    bench.until(|_, view| view.config_version == 2);
    let late = now + Duration::from_millis(ACKNOWLEDGE_MS + 60_000);
    bench.supervisor.on_time(late);
    assert_eq!(bench.view.borrow().reloads[ReloadResult::Unacknowledged as usize], 1);

    bench.supervisor.on_signal(Signal::Stop, now);
    bench.supervisor.on_signal(Signal::Drain, now);
    assert_eq!(bench.supervisor.exit, None);
    bench.supervisor.on_time(late);
    assert_eq!(bench.supervisor.exit, Some(0));
}

#[test]
fn a_second_stop_leaves_at_once() {
    let mut bench = Bench::new("stop", deaf);
    bench.ready();
    let now = Instant::now();
    bench.supervisor.on_signal(Signal::Stop, now);
    assert_eq!(bench.supervisor.exit, None);
    bench.supervisor.on_signal(Signal::Stop, now);
    assert_eq!(bench.supervisor.exit, Some(0));
}
