//! Floods over HTTP/2, and slow clients: each is cut off, bounded in what it makes the origin and the
//! memory do, and counted, while another client of the same worker is answered as if nothing were.

mod harness;
mod http2;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::origin::Op;
use harness::proxy::{endpoint, route, upstream};
use harness::{DRIVERS, Origin, Proxy, ms, pause, poll};
use http2::flood::{FLOODS, Flood};
use http2::frame::{CODES, DATA, END_HEADERS, Frame, HEADERS, PING, number_of};
use http2::hpack::block;
use http2::outcome::tell;
use http2::peer::Peer;
use http2::server::{self, get};

/// A proxy with one worker before an origin that never answers `/hang`. What others ask for has an
/// origin of its own: it is the proxy that must go on, not the queue of a flooded origin.
struct Scene {
    origin: Origin,
    proxy: Proxy,
    _calm: Origin,
}

fn started(driver: &'static str) -> Scene {
    let (origin, calm) = (Origin::start(), Origin::start());
    origin.script("/hang", vec![Op::Hang]);
    let mut settings = server::settings(driver, &origin.address);
    settings.upstreams += &upstream("calm", &[endpoint(&calm.address, 1)], "");
    settings.routes += &route("probe", "prefix = \"/probe\"", "calm", "");
    Scene { proxy: Proxy::start(settings), origin, _calm: calm }
}

fn floods(driver: &'static str) {
    let only = std::env::var("HTTP2_ONLY").unwrap_or_default();
    let Scene { origin, proxy, _calm } = started(driver);
    let mut failed = Vec::new();
    for flood in FLOODS.iter().filter(|flood| flood.id.starts_with(&only)) {
        if let Err(why) = one(flood, &proxy, &origin) {
            failed.push(format!("http2:{} {} ({}): {why}", flood.id, flood.what, flood.source));
        }
    }
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
    settled(&proxy);
}

fn one(flood: &Flood, proxy: &Proxy, origin: &Origin) -> Result<(), String> {
    let counted = |proxy: &Proxy| match flood.kind {
        Some(kind) => proxy.metric("ringway_http2_floods_total", &format!("kind=\"{kind}\"")),
        None => proxy.metric("ringway_http2_goaways_total", ""),
    };
    let (before, memory) = (counted(proxy), proxy.process().anonymous_kib());
    origin.reset([("/hang".to_owned(), vec![vec![Op::Hang]])]);
    let worst = beside(proxy, || pour(flood, proxy))?;
    if worst > WAIT_MAX {
        return Err(format!("another client waited {worst:?}"));
    }
    let grown = proxy.process().anonymous_kib().saturating_sub(memory);
    if grown > GROWTH_KIB_MAX {
        return Err(format!("{grown} KiB more of memory"));
    }
    let at_once = origin.look(|record| record.in_flight.1);
    if at_once > IN_FLIGHT_MAX {
        return Err(format!("{at_once} requests at the origin at one time"));
    }
    if !poll(ms(2_000), || counted(proxy) > before) {
        return Err("nobody counted it".into());
    }
    if !poll(ms(4_000), || origin.look(|record| record.in_flight.0) == 0) {
        return Err("the origin was not let go".into());
    }
    Ok(())
}

/// Floods until the connection ends, and looks at how it did.
fn pour(flood: &Flood, proxy: &Proxy) -> Result<(), String> {
    let peer = Peer::open(proxy.address, &[]).map_err(|error| error.to_string())?;
    for step in flood.steps() {
        step.play(&peer);
    }
    let (mut at, began) = (0, Instant::now());
    while at < flood.rounds && peer.look(|state| state.end.is_none()) {
        if !peer.frames(&flood.frames(at..at + flood.at_once)) {
            break;
        }
        at += flood.at_once;
        // A client that sends one by one waits for what comes of it.
        if flood.at_once == 1 {
            peer.wait_end(ms(1));
        }
    }
    let took = began.elapsed();
    let codes: Vec<u32> = flood.codes.iter().filter_map(|code| number_of(CODES, code)).collect();
    let ended = peer.wait_end(ms(3_000));
    let said = peer.look(|state| state.watch.goaways.iter().any(|(_, code)| codes.contains(code)));
    let told = peer.look(tell);
    if !ended {
        return Err(format!("the connection is open after {at} rounds in {took:?}: {told}"));
    }
    // What was under way when it closed may take the GOAWAY with it: then the count says it.
    let lost = at < flood.rounds && peer.look(|state| state.watch.goaways.is_empty());
    if !said && !lost {
        return Err(format!("no GOAWAY as wanted after {at} rounds in {took:?}: {told}"));
    }
    Ok(())
}

/// Does something while another client asks on a connection of its own; its longest wait.
fn beside(
    proxy: &Proxy,
    act: impl FnOnce() -> Result<(), String> + Send,
) -> Result<Duration, String> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| ask_until(proxy, &stop));
        let acted = act();
        pause(ms(50));
        stop.store(true, Ordering::Relaxed);
        let asked = other.join().expect("the other client ends well");
        acted.and(asked)
    })
}

fn ask_until(proxy: &Proxy, stop: &AtomicBool) -> Result<Duration, String> {
    let mut worst = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let peer = Peer::open(proxy.address, &[]).map_err(|error| error.to_string())?;
        for round in 0..100 {
            let (stream, began) = (2 * round + 1, Instant::now());
            peer.frame(&get(stream, "/probe"));
            let answered = peer.wait(ms(5_000), |state| {
                let stream = state.watch.streams.get(&stream);
                stream.is_some_and(|s| s.ended && s.status() == Some(200))
            });
            if !answered {
                return Err(format!("another client is not answered: {}", peer.look(tell)));
            }
            worst = worst.max(began.elapsed());
            if stop.load(Ordering::Relaxed) {
                break;
            }
            pause(ms(2));
        }
    }
    Ok(worst)
}

/// Nothing of it is left.
fn settled(proxy: &Proxy) {
    let gone = poll(ms(4_000), || {
        proxy.metric("ringway_http2_connections", "") == 0.0
            && proxy.metric("ringway_requests_in_flight", "") == 0.0
    });
    assert!(gone, "connections or requests are left");
}

/// Windows that are never opened: write timeout, although the client is alive and says so.
fn windows_that_stay_shut(driver: &'static str) {
    for lively in [false, true] {
        let Scene { origin, proxy, _calm } = started(driver);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        origin.script("/large", vec![Op::Send(head.into()), Op::Fill(1_000_000)]);
        let worst = beside(&proxy, || {
            let peer = Peer::open(proxy.address, &[(4, 0)]).map_err(|error| error.to_string())?;
            let frames: Vec<_> = (0..50).map(|round| get(2 * round + 1, "/large")).collect();
            peer.frames(&frames);
            let over = |state: &http2::peer::State| {
                let streams = &state.watch.streams;
                state.end.is_some()
                    || streams.len() == 50 && streams.values().all(|s| s.reset.is_some())
            };
            let end = Instant::now() + ms(6_000);
            while Instant::now() < end && !peer.look(over) {
                if lively {
                    peer.frame(&Frame::new(PING, 0, 0, [1; 8]));
                }
                peer.wait(ms(200), over);
            }
            if !peer.look(over) {
                return Err(format!("lively={lively}: {}", peer.look(tell)));
            }
            if !poll(ms(3_000), || origin.look(|record| record.in_flight.0) == 0) {
                return Err("the origin is not let go".into());
            }
            Ok(())
        });
        assert!(worst.expect("the streams end") < WAIT_MAX, "another client waited");
    }
}

/// A head that trickles in, one CONTINUATION after the other: the timeout of heads.
fn a_head_that_trickles(driver: &'static str) {
    let Scene { origin, proxy, _calm } = started(driver);
    let worst = beside(&proxy, || {
        let peer = Peer::open(proxy.address, &[]).map_err(|error| error.to_string())?;
        let mut head = get(1, "/slow");
        head.flags = 1;
        peer.frame(&head);
        let began = Instant::now();
        while began.elapsed() < ms(6_000) && !peer.wait_end(ms(200)) {
            peer.frame(&Frame::new(9, 0, 1, block(&[("x-a", "1")])));
        }
        let ended = peer.look(|state| state.end.is_some());
        ended.then_some(()).ok_or_else(|| format!("still open: {}", peer.look(tell)))
    });
    assert!(worst.expect("the connection ends") < WAIT_MAX, "another client waited");
    assert!(origin.look(|record| record.seen().all(|request| request.target != b"/slow")));
}

/// A body that stops: the timeout of bodies, and the connection goes on.
fn a_body_that_stops(driver: &'static str) {
    let Scene { origin, proxy, _calm } = started(driver);
    let worst = beside(&proxy, || {
        let peer = Peer::open(proxy.address, &[]).map_err(|error| error.to_string())?;
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a.test"),
            (":path", "/stop"),
        ];
        peer.frame(&Frame::new(HEADERS, END_HEADERS, 1, block(&fields)));
        peer.frame(&Frame::new(DATA, 0, 1, *b"x"));
        let over = |state: &http2::peer::State| {
            let stream = state.watch.streams.get(&1);
            stream.is_some_and(|s| s.status() == Some(408) || s.reset.is_some())
        };
        if !peer.wait(ms(5_000), over) {
            return Err(peer.look(tell));
        }
        peer.frame(&get(3, "/probe"));
        let answered = |state: &http2::peer::State| {
            state.watch.streams.get(&3).is_some_and(|s| s.ended && s.status() == Some(200))
        };
        peer.wait(ms(3_000), answered).then_some(()).ok_or_else(|| peer.look(tell))
    });
    assert!(worst.expect("the stream ends alone") < WAIT_MAX, "another client waited");
    origin.look(|record| {
        let stopped = record.seen().find(|request| request.target == b"/stop");
        assert!(stopped.is_none_or(|request| !request.complete), "the origin saw it whole");
    });
}

/// A client that sends PINGs and takes no answer: what waits for it is bounded.
fn a_client_that_takes_nothing(driver: &'static str) {
    let Scene { origin: _origin, proxy, _calm } = started(driver);
    let memory = proxy.process().anonymous_kib();
    let worst = beside(&proxy, || {
        let peer =
            Peer::connect_with(proxy.address, Some(4_096)).map_err(|error| error.to_string())?;
        peer.set_paused(true);
        peer.begin(&[]);
        let frames: Vec<_> = (0..500_u32).map(|_| Frame::new(PING, 0, 0, [1; 8])).collect();
        for _ in 0..400 {
            if !peer.frames(&frames) {
                break;
            }
        }
        // It never acknowledged anything, either.
        peer.set_paused(false);
        peer.wait_end(ms(5_000)).then_some(()).ok_or_else(|| peer.look(tell))
    });
    assert!(worst.expect("the connection ends") < WAIT_MAX, "another client waited");
    let grown = proxy.process().anonymous_kib().saturating_sub(memory);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more");
}

/// DATA beyond the window that the proxy gave, while the origin takes nothing: an error, and the
/// window was not given back for what nobody read.
fn content_beyond_the_window(driver: &'static str) {
    let Scene { origin, proxy, _calm } = started(driver);
    let peer = Peer::open(proxy.address, &[]).expect("a connection");
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":authority", "a.test"), (":path", "/hang")];
    peer.frame(&Frame::new(HEADERS, END_HEADERS, 1, block(&fields)));
    assert!(origin.wait(ms(3_000), |record| record.seen().count() == 1), "it goes on at once");
    let window = peer.look(|state| state.watch.settings.get(&4).copied().unwrap_or(65_535));
    let mut sent = 0;
    while peer.look(|state| state.end.is_none()) && sent < 64 << 20 {
        if !peer.frame(&Frame::new(DATA, 0, 1, vec![b'x'; 16_384])) {
            break;
        }
        sent += 16_384;
    }
    let flow = 3;
    let over = peer.wait(ms(3_000), |state| {
        let reset = state.watch.streams.get(&1).and_then(|s| s.reset);
        reset == Some(flow) || state.watch.goaways.iter().any(|(_, code)| *code == flow)
    });
    let ended = peer.look(|state| state.end.is_some());
    assert!(over || ended, "{sent} bytes in a window of {window}: {}", peer.look(tell));
    let given = peer.look(|state| state.watch.streams.get(&1).map_or(0, |s| s.window_added));
    assert!(given < GIVEN_MAX, "{given} bytes of window for what nobody took");
    server::fresh(proxy.address, "/probe").expect("others are served");
}

/// A drain tells of itself by GOAWAY, in one step or two, and what is under way ends well.
fn a_drain_in_frames(driver: &'static str) {
    let Scene { origin, mut proxy, _calm } = started(driver);
    origin.script("/later", vec![Op::Sleep(600), Op::Ok]);
    let peer = Peer::open(proxy.address, &[]).expect("a connection");
    peer.frame(&get(1, "/later"));
    assert!(origin.wait(ms(3_000), |record| record.seen().count() == 1), "it is under way");
    proxy.signal(rustix::process::Signal::TERM);
    assert!(peer.wait(ms(3_000), |state| !state.watch.goaways.is_empty()), "it tells");
    let answered = peer.wait(ms(3_000), |state| {
        state.watch.streams.get(&1).is_some_and(|s| s.ended && s.status() == Some(200))
    });
    assert!(answered, "{}", peer.look(tell));
    assert!(peer.wait_end(ms(4_000)), "and closes");
    peer.look(|state| {
        let goaways = &state.watch.goaways;
        assert!(goaways.iter().all(|(last, code)| *last >= 1 && *code == 0), "{goaways:?}");
        assert!(state.watch.faults.is_empty(), "{:?}", state.watch.faults);
    });
    assert!(proxy.wait_exit(ms(8_000)).is_some(), "and ends");
}

/// Ids are given once, and docs/http2-conformance.md names every flood.
#[test]
fn floods_are_in_the_page() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/http2-conformance.md");
    let page = std::fs::read_to_string(path).expect("the page");
    for (number, flood) in FLOODS.iter().enumerate() {
        assert_eq!(flood.id, format!("F{:02}", number + 1));
        let row = format!("| {} | {} | {} |", flood.id, flood.source, flood.what);
        assert!(page.contains(&row), "docs/http2-conformance.md lacks: {row}");
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name(super::DRIVERS[0]); })* }
        mod epoll { $(#[test] fn $name() { super::$name(super::DRIVERS[1]); })* }
    };
}

on_both! {
    floods windows_that_stay_shut a_head_that_trickles a_body_that_stops
    a_client_that_takes_nothing content_beyond_the_window a_drain_in_frames
}

/// The longest wait of another client; the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// What a flood may add to the memory, in KiB.
const GROWTH_KIB_MAX: u64 = 24 * 1024;
/// Requests of one connection that the origin may have at one time.
const IN_FLIGHT_MAX: usize = 200;
/// Window that may be given before the origin has read anything: what sockets and buffers hold.
const GIVEN_MAX: u64 = 16 << 20;
