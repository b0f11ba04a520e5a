//! The supervisor with workers that are doubles: threads that answer messages and serve nobody.

use super::*;
use crate::control::Series;
use crate::control::cores::Cores;
use crate::control::fleet::{Spawn, Start};
use crate::control::listen;
use crate::control::outcome::{Outcome, Reason, Refusal};
use crate::control::source::Source;
use crate::io::DriverKind;
use crate::limits::{ACKNOWLEDGE_MS, COMPILE_MS, JUDGE_MS};
use crate::observe::access_log::log_queue;
use crate::observe::render::ReloadResult;
use crate::snapshot::Ids;
use crate::worker::{Message, Opened, Setup};
use std::path::PathBuf;
use tokio::sync::oneshot;

/// Starts, acknowledges every snapshot, and ends when it is told to drain.
fn obedient(setup: Setup) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().spawn(move || {
        let worker = setup.index;
        let report = |report| setup.reports.send(report).expect("somebody listens");
        report(started(worker));
        let mut listeners: Vec<Opened> = setup.opened;
        while let Ok(message) = setup.inbox.messages.recv() {
            match message {
                Message::Snapshot(change) => {
                    listeners.extend(change.opened);
                    let stay = &change.snapshot.listeners;
                    listeners.retain(|open| stay.iter().any(|plan| plan.id == open.plan.id));
                    report(Report::Applied { worker, version: change.snapshot.version });
                }
                Message::Addresses(_) | Message::Standings(_) => {}
                Message::Drain { .. } => return report(Report::Drained { worker, cut: 0 }),
            }
        }
    })
}

/// Worker 0 acknowledges, worker 1 keeps silent.
fn half_deaf(setup: Setup) -> std::io::Result<std::thread::JoinHandle<()>> {
    if setup.index == 0 { obedient(setup) } else { deaf(setup) }
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
    series: Series,
    file: PathBuf,
    address: std::net::SocketAddr,
}

impl Bench {
    fn new(name: &str, spawn: Spawn) -> Bench {
        let file = std::env::temp_dir().join(format!("ringway-{}-{name}.toml", std::process::id()));
        let address = "127.0.0.1:0".parse().expect("an address");
        std::fs::write(&file, config(address, "127.0.0.1:1")).expect("written");
        let source = Source::File(file.clone());
        let mut ids = Ids::default();
        let taken = source.load(&mut ids, 1).expect("valid").taken;
        let snapshot = taken.snapshot.clone();
        let (sender, events) = mpsc::channel(64);
        let series = Series::default();
        let helpers = Helpers::start(source, ids, taken.clone(), series.clone(), &sender);
        let helpers = helpers.expect("threads");
        let reports = helpers.reports.clone();
        let first = ProcessView { config_version: 1, ..ProcessView::default() };
        let (publish, view) = watch::channel(first);
        let now = Instant::now();
        let names = Names::new(&snapshot, now);
        let discovery = Discovery::new(&snapshot, now);
        let bound = listen::bind(&snapshot.listeners, 2).expect("bound");
        let (in_force, _) = watch::channel(taken);
        let mut supervisor =
            Supervisor::new(in_force, (names, discovery), helpers, bound.addresses, publish, None);
        let start = Start {
            spawn,
            snapshot: &snapshot,
            cores: &Cores { mask: Vec::new(), quota: None },
            opened: bound.opened,
            connections_max: 10,
            addresses: None,
            logs: (0..2).map(|_| log_queue().0).collect(),
            series: &mut Default::default(),
            reports: &reports,
        };
        supervisor.started_with(Fleet::start(start).expect("threads"), now);
        Bench { supervisor, events, view, series, file, address }
    }

    /// Takes events until `done`.
    fn until(&mut self, done: impl Fn(&Supervisor, &ProcessView) -> bool) {
        while !done(&self.supervisor, &self.view.borrow()) {
            let event = self.events.blocking_recv().expect("an event");
            self.supervisor.on_event(event, Instant::now());
            self.supervisor.on_time(Instant::now());
        }
    }

    /// Asks for a reload as the admin API does.
    fn call(&mut self, text: &str) -> oneshot::Receiver<Outcome> {
        // By renaming: another reload may be reading it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &self.file))
            .expect("written");
        let (caller, outcome) = oneshot::channel();
        self.supervisor.on_event(Event::Reload(caller), Instant::now());
        outcome
    }

    /// Takes events until the caller is answered.
    fn answer(&mut self, mut outcome: oneshot::Receiver<Outcome>) -> Outcome {
        let mut answer = None;
        while answer.is_none() {
            answer = outcome.try_recv().ok();
            if answer.is_none() {
                let event = self.events.blocking_recv().expect("an event");
                self.supervisor.on_event(event, Instant::now());
                self.supervisor.on_time(Instant::now());
            }
        }
        answer.expect("an answer")
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
    assert!(bench.supervisor.reloads.idle());
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
        good.replace("workers = 2", "workers = 2\ndriver = \"epoll\""),
    ] {
        bench.reload(&changed, ReloadResult::NeedsRestart);
        assert_eq!(bench.view.borrow().config_version, 1);
    }
    bench.reload(&good, ReloadResult::Applied);
    assert!(bench.view.borrow().last_reload_success);
}

/// The helper thread does: nobody scrapes, and yet what nothing names any more is freed.
#[test]
fn a_scrape_holds_up_no_reload() {
    let mut bench = Bench::new("scraped", obedient);
    bench.ready();
    let series = bench.series.clone();
    let mut registry = series.lock().expect("no panic");
    let worker = registry.add_worker();
    worker.connection_opened(77);
    worker.connection_closed(77);
    registry.settle(&bench.supervisor.current.names);
    assert_eq!(registry.held(), 1);
    bench.reload(&config(bench.address, "127.0.0.1:2"), ReloadResult::Applied);
    worker.retain(&bench.supervisor.current.names);
    drop(registry);
    let until = Instant::now() + std::time::Duration::from_secs(10);
    while series.lock().expect("no panic").held() > 0 {
        assert!(Instant::now() < until, "it was not freed");
        std::thread::yield_now();
    }
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
    bench.until(|supervisor, view| view.config_version == 3 && supervisor.reloads.idle());
    assert_eq!(bench.view.borrow().reloads[ReloadResult::Applied as usize], 2, "two, not three");
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

#[test]
fn callers_are_told_what_became_of_their_reload() {
    let mut bench = Bench::new("callers", obedient);
    bench.ready();
    let good = config(bench.address, "127.0.0.1:2");
    let asked = bench.call(&good);
    let applied = bench.answer(asked);
    assert!(
        matches!(&applied, Outcome::Applied { version: 2, workers: 2, warnings, .. }
            if warnings.is_empty()),
        "{applied:?}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = taken.local_addr().map(|address| (taken, address)).expect("bound");
    let second = format!("[listener.z]\naddress = \"{}\"\n{good}", taken.1);
    for (text, reason, says) in [
        ("[listener".to_owned(), Reason::Rejected, "error"),
        (good.replace("workers = 2", "workers = 3"), Reason::NeedsRestart, "`workers`"),
        (second, Reason::Unbound, "listener z: somebody else already listens on"),
    ] {
        let asked = bench.call(&text);
        let Outcome::Refused { refusal, version: 2 } = bench.answer(asked) else {
            panic!("{reason:?}")
        };
        assert_eq!(refusal.reason, reason, "{}", refusal.text);
        assert!(refusal.text.contains(says), "{}", refusal.text);
    }
}

/// Each caller gets the outcome of a compilation that began after its request.
#[test]
fn callers_that_come_meanwhile_share_the_next_reload() {
    let mut bench = Bench::new("meanwhile", obedient);
    bench.ready();
    let good = config(bench.address, "127.0.0.1:2");
    let first = bench.call(&good);
    let (second, third) = (bench.call("[listener"), bench.call("[listener"));
    let gone = bench.call("[listener");
    drop(gone);
    // The first may have been compiled from either file: only that it is decided counts.
    bench.answer(first);
    for later in [second, third] {
        let outcome = bench.answer(later);
        let refused = |refusal: &Refusal| refusal.reason == Reason::Rejected;
        assert!(matches!(&outcome, Outcome::Refused { refusal, .. } if refused(refusal)));
    }
    assert!(bench.supervisor.reloads.idle());
}

#[test]
fn a_compiler_that_does_not_answer_is_given_up_until_it_comes_back() {
    let mut bench = Bench::new("late", obedient);
    bench.ready();
    let good = config(bench.address, "127.0.0.1:2");
    // Its answer is there, but nobody has looked.
    let (first, second) = (bench.call(&good), bench.call(&good));
    let late = Instant::now() + Duration::from_millis(COMPILE_MS + 1);
    assert!(bench.supervisor.next_wake(Instant::now()) < late);
    bench.supervisor.on_time(late);
    let third = bench.call(&good);
    for asked in [first, second, third] {
        let mut asked = asked;
        let Ok(Outcome::Refused { refusal, version: 1 }) = asked.try_recv() else {
            panic!("told at once")
        };
        assert_eq!(refusal.reason, Reason::Late);
        assert!(refusal.text.contains("not read and compiled within"), "{}", refusal.text);
    }
    assert_eq!(bench.view.borrow().reloads[ReloadResult::Rejected as usize], 2);
    bench.until(|supervisor, _| supervisor.reloads.idle());
    assert_eq!(bench.view.borrow().config_version, 1, "what was given up is dropped");
    let again = bench.call(&good);
    assert!(matches!(bench.answer(again), Outcome::Applied { version: 2, .. }));
}

#[test]
fn a_caller_waits_for_every_worker_and_learns_which_kept_silent() {
    let mut bench = Bench::new("half", half_deaf);
    bench.ready();
    let good = config(bench.address, "127.0.0.1:2");
    let mut asked = bench.call(&good);
    bench.until(|supervisor, _| supervisor.reloads.awaited() == Some(1));
    assert!(asked.try_recv().is_err(), "one of two is not all");
    let next = bench.call(&good);
    let late = Instant::now() + Duration::from_millis(ACKNOWLEDGE_MS + 1);
    bench.supervisor.on_time(late);
    let outcome = bench.answer(asked);
    assert_eq!(outcome, Outcome::Unacknowledged { version: 2, workers: vec![1] });
    // The other word comes after all.
    bench.until(|supervisor, view| {
        view.config_version == 3 && supervisor.reloads.awaited() == Some(1)
    });
    let report = Report::Applied { worker: 1, version: 3 };
    bench.supervisor.on_event(Event::Report(report), Instant::now());
    assert!(matches!(bench.answer(next), Outcome::Applied { version: 3, .. }));
}

#[test]
fn a_drain_tells_callers_that_nothing_will_come_of_it() {
    let mut bench = Bench::new("called-off", obedient);
    bench.ready();
    let good = config(bench.address, "127.0.0.1:2");
    let (compiling, queued) = (bench.call(&good), bench.call(&good));
    bench.supervisor.on_signal(Signal::Drain, Instant::now());
    let late = bench.call(&good);
    for asked in [queued, late, compiling] {
        assert_eq!(bench.answer(asked), Outcome::Draining);
    }
    assert_eq!(bench.view.borrow().config_version, 1);
}

#[test]
fn listeners_come_and_go_with_their_addresses() {
    let mut bench = Bench::new("listeners", obedient);
    bench.ready();
    let first = bench.view.borrow().listeners.clone();
    let good = config(bench.address, "127.0.0.1:2");
    let two = format!("[listener.b]\naddress = \"127.0.0.1:0\"\n{good}");
    bench.reload(&two, ReloadResult::Applied);
    let listeners = bench.view.borrow().listeners.clone();
    assert_eq!(listeners.len(), 2);
    assert!(listeners.contains(&first[0]), "port 0 stays the port that it got");
    let added = listeners.iter().find(|it| it.0 == "b").expect("named").1.clone();
    assert!(!added.ends_with(":0"), "{added}");
    drop(std::net::TcpStream::connect(&added).expect("it listens"));
    bench.reload(&good, ReloadResult::Applied);
    assert_eq!(bench.view.borrow().listeners, first);
    assert!(std::net::TcpStream::connect(&added).is_err(), "it is gone");
}

/// Where nothing is judged nothing wakes the control thread; where something is, it looks ten times a
/// second, and what it finds is told and shown.
#[test]
fn endpoints_are_judged_where_the_configuration_says_so() {
    let mut bench = Bench::new("judged", obedient);
    bench.ready();
    let pause = |bench: &Bench, now: Instant| bench.supervisor.next_wake(now) - now;
    assert!(pause(&bench, Instant::now()) > Duration::from_secs(60), "one endpoint, no checks");
    let text = config(bench.address, "127.0.0.1:2").replace(
        "endpoints = [",
        "health = { kind = \"tcp\" }\nendpoints = [{ address = \"127.0.0.1:3\" }, ",
    );
    bench.reload(&text, ReloadResult::Applied);
    let now = Instant::now();
    bench.supervisor.on_time(now);
    assert!(pause(&bench, now) <= Duration::from_millis(JUDGE_MS));
    let endpoint = bench.supervisor.current.upstreams[0].endpoints[0].id;
    let refused = Err("connection refused".into());
    bench.supervisor.on_event(Event::Checked(endpoint, refused), now);
    bench.supervisor.on_time(now + Duration::from_millis(JUDGE_MS));
    let standings = bench.view.borrow().standings.clone();
    assert_eq!(standings.checks, [0, 1]);
    assert_eq!(standings.upstreams[0].endpoints[0].share_permille, 0);
    assert_eq!(standings.upstreams[0].endpoints[1].share_permille, 1000);
    let events: Vec<_> = standings.events.iter().map(|it| (it.tier, it.to)).collect();
    assert_eq!(events, [("health", "down")]);

    bench.reload(&config(bench.address, "127.0.0.1:2"), ReloadResult::Applied);
    assert!(bench.view.borrow().standings.upstreams.is_empty(), "it has left the file");
    let refused = Err("connection refused".into());
    bench.supervisor.on_event(Event::Checked(endpoint, refused), Instant::now());
    assert_eq!(bench.view.borrow().standings.checks, [0, 1], "nobody wants to know");
}
