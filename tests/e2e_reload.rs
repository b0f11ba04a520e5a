//! Reload and drain under load lose no request (R6, C6, C7, X3).

mod harness;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::origin::Op;
use harness::proxy::{endpoint, route, upstream};
use harness::{Client, Origin, Proxy, Settings, ms, pause, poll};
use rustix::process::Signal;

/// What became of the requests of a load.
#[derive(Default)]
struct Tally {
    answered: AtomicU64,
    lost: AtomicU64,
    /// Requests on a connection that the proxy had closed for being idle before it saw them: the
    /// race of RFC 9112 section 9.5, after which a client sends again.
    raced: AtomicU64,
    stop: AtomicBool,
}

/// Asks over and over on keep-alive connections until told to stop or nobody listens any more.
fn ask_until_stopped(proxy: &Proxy, tally: &Tally) {
    while !tally.stop.load(Ordering::Relaxed) {
        // A connection that is not accepted carries no request.
        let Ok(client) = Client::open(proxy.address) else {
            pause(ms(5));
            continue;
        };
        for number in 1..=20 {
            if tally.stop.load(Ordering::Relaxed) || client.end().is_some() {
                break;
            }
            client.send(b"GET /load HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let answered = client.wait_responses(number, ms(5_000));
            let received = client.received();
            let last = received.finals.last();
            if answered && last.is_some_and(|last| last.status == 200) {
                tally.answered.fetch_add(1, Ordering::Relaxed);
                if last.is_some_and(|last| last.closes()) {
                    break;
                }
            } else if number > 1 && received.finals.len() + 1 == number && client.end().is_some() {
                tally.raced.fetch_add(1, Ordering::Relaxed);
                break;
            } else {
                tally.lost.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
}

/// Runs `act` while eight clients ask, and checks that none lost a request.
fn under_load(proxy: &Proxy, act: impl FnOnce(&Tally)) -> u64 {
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| ask_until_stopped(proxy, &tally));
        }
        let warm = poll(ms(5_000), || tally.answered.load(Ordering::Relaxed) > 50);
        act(&tally);
        tally.stop.store(true, Ordering::Relaxed);
        assert!(warm, "the load gets answers");
    });
    let (answered, lost) = (tally.answered.into_inner(), tally.lost.into_inner());
    assert_eq!(lost, 0, "lost requests, beside {answered} answered");
    answered
}

fn version(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_config_version", "")
}

/// SIGHUP with another file, five times, under load: nothing is lost, and the new routes count.
fn reload_under_load(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/load", vec![Op::Sleep(5), Op::Ok]);
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    // The file is written before the load begins, since the load borrows the proxy.
    let two = format!(
        "{}{}",
        route("all", "prefix = \"/\"", "main", ""),
        route("new", "path = \"/gateway/new\"", "main", "skip_segments = 1")
    );
    proxy.rewrite(settings.routes(two));
    let before = version(&proxy);
    under_load(&proxy, |_| {
        for number in 1..=5 {
            proxy.signal(Signal::HUP);
            let done = poll(ms(5_000), || version(&proxy) >= before + f64::from(number));
            // A file that did not change may keep its version: then one is enough.
            assert!(done || number > 1, "the reload counts");
            pause(ms(50));
        }
    });
    let seen = |record: &harness::origin::Record| {
        record.requests.iter().any(|request| request.target == b"/new")
    };
    proxy.probe("/probe").expect("a plain GET");
    let answer =
        harness::client::ask(proxy.address, &harness::client::plain_get("/gateway/new"), ms(3_000));
    assert_eq!(answer.expect("an answer").finals[0].status, 200, "the new route");
    assert!(origin.look(seen), "the new route skips a segment (R4)");
}

/// A file with an error changes nothing and says so (C6).
fn bad_reload(driver: &'static str) {
    let origin = Origin::start();
    let proxy = Proxy::start(Settings::new(driver, &origin.address));
    let before = version(&proxy);
    proxy.rewrite_raw("[listener.main]\naddress = \"nonsense\"\nno_such_key = 1\n");
    proxy.signal(Signal::HUP);
    let told = poll(ms(5_000), || proxy.log().contains("no_such_key"));
    assert!(told, "the log names the key: {}", proxy.log());
    proxy.probe("/probe").expect("a plain GET");
    assert_eq!(version(&proxy), before, "the old version stays in force");
    let success = proxy.metric("ringway_config_last_reload_success", "");
    assert_eq!(success, 0.0, "the metric says that it failed");
}

/// A reload that changes an endpoint: old requests end where they began, new ones go on.
fn reload_moves_traffic(driver: &'static str) {
    let (old, new) = (Origin::start(), Origin::start());
    old.script("/slow", vec![Op::Sleep(700), Op::Ok]);
    let settings = Settings::new(driver, &old.address);
    let mut proxy = Proxy::start(settings.clone());
    let slow = Client::open(proxy.address).expect("a connection");
    slow.send(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(old.wait(ms(2_000), |record| record.requests.len() == 1), "the slow one is there");
    proxy.rewrite(settings.upstreams(upstream("main", &[endpoint(&new.address, 1)], "")));
    proxy.signal(Signal::HUP);
    let moved = poll(ms(5_000), || {
        proxy.probe("/probe").expect("a plain GET");
        new.look(|record| !record.requests.is_empty())
    });
    assert!(moved, "new requests go to the new endpoint");
    assert!(slow.wait_responses(1, ms(3_000)), "the old one is answered");
    assert_eq!(slow.received().finals[0].status, 200, "by whom it was sent to");
    let closed = poll(ms(5_000), || old.open() == 0);
    assert!(closed, "connections to an endpoint that is gone are closed");
}

/// A drain under load, with two workers: every request on an accepted connection is answered, the
/// process ends by itself with 0.
fn drain(driver: &'static str, signal: Signal) {
    let origin = Origin::start();
    origin.script("/load", vec![Op::Sleep(20), Op::Ok]);
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address).workers(2));
    let slow = Client::open(proxy.address).expect("a connection");
    origin.script("/slow", vec![Op::Sleep(800), Op::Ok]);
    slow.send(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    under_load(&proxy, |_| {
        proxy.signal(signal);
        let refused = poll(ms(5_000), || std::net::TcpStream::connect(proxy.address).is_err());
        assert!(refused, "the listeners close");
        pause(ms(100));
    });
    assert!(slow.wait_responses(1, ms(3_000)), "a request that was under way is answered");
    assert!(slow.received().finals[0].closes(), "and told that the connection ends");
    let began = Instant::now();
    let status = proxy.wait_exit(Duration::from_secs(8));
    assert!(status.is_some(), "still there after {:?}: {}", began.elapsed(), proxy.log());
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", proxy.log());
}

fn drain_by_term(driver: &'static str) {
    drain(driver, Signal::TERM);
}

fn drain_by_quit(driver: &'static str) {
    drain(driver, Signal::QUIT);
}

/// A client that keeps asking on one connection is told to go, and leaves no request behind.
fn drain_of_one_connection(driver: &'static str) {
    let origin = Origin::start();
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address));
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /one HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_responses(1, ms(2_000)), "an answer");
    proxy.signal(Signal::TERM);
    poll(ms(3_000), || std::net::TcpStream::connect(proxy.address).is_err());
    client.send(b"GET /two HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_responses(2, ms(2_000)), "a request on an open connection is answered");
    assert!(client.received().finals[1].closes(), "with the word that it ends");
    assert!(client.wait_end(ms(2_000)), "and it ends");
    assert_eq!(proxy.wait_exit(ms(5_000)).and_then(|status| status.code()), Some(0), "exit code");
}

/// INT drains; a second INT ends the process although a request is still under way.
fn second_interrupt(driver: &'static str) {
    let origin = Origin::start();
    let timeouts = "timeouts = { connect = \"1s\", response = \"30s\", body = \"30s\" }";
    let section = upstream("main", &[endpoint(&origin.address, 1)], timeouts);
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address).upstreams(section));
    origin.script("/hang", vec![Op::Hang]);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /hang HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(origin.wait(ms(2_000), |record| record.requests.len() == 1), "it is under way");
    proxy.signal(Signal::INT);
    let refused = poll(ms(5_000), || std::net::TcpStream::connect(proxy.address).is_err());
    assert!(refused, "the listeners close");
    assert!(proxy.wait_exit(ms(300)).is_none(), "the request holds the drain");
    proxy.signal(Signal::INT);
    assert!(proxy.wait_exit(ms(3_000)).is_some(), "the second signal ends it: {}", proxy.log());
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    reload_under_load bad_reload reload_moves_traffic drain_by_term drain_by_quit
    drain_of_one_connection second_interrupt
}
