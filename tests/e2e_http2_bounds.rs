//! HTTP/2 from clients that are slow, take back what they asked for, or do not heed a goodbye: what one
//! of them holds is bounded in room and in time, and the others of its connection go on, on both drivers.

mod harness;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use h2::Reason;
use harness::http2::{Frame, GET, Http2, Raw, block_on, frame, send};
use harness::origin::Op;
use harness::proxy::{endpoint, route, scratch, upstream};
use harness::{Origin, Proxy, Settings, ms, pause, poll};
use rustix::process::Signal;

const LISTENER: &str = "h2c = true\n\
    timeouts = { head = \"1s\", body = \"1s\", idle = \"1s\", write = \"1s\" }\n";

fn settings(driver: &'static str, origin: &Origin) -> Settings {
    Settings::new(driver, &origin.address).listener(LISTENER)
}

fn started(driver: &'static str) -> (Origin, Proxy) {
    let origin = Origin::start();
    let proxy = Proxy::start(settings(driver, &origin));
    (origin, proxy)
}

/// Uploads that their origin does not take hold up no other of their connection.
fn stalled_uploads_hold_up_no_other(driver: &'static str) {
    let origin = Origin::start();
    // Connections to it are made, and nobody ever reads from them.
    let stuck = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = stuck.local_addr().expect("an address").to_string();
    let patient = "timeouts = { connect = \"1s\", response = \"60s\", body = \"60s\" }";
    let listener = "h2c = true\ntimeouts = { body = \"60s\", write = \"60s\" }\n";
    let mut settings = settings(driver, &origin).listener(listener);
    settings.upstreams += &upstream("stuck", &[endpoint(&address, 1)], patient);
    settings.routes += &route("stall", "prefix = \"/stall\"", "stuck", "");
    let proxy = Proxy::start(settings);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let sent = Rc::new(Cell::new(0_u64));
        let mut held = Vec::new();
        let local = tokio::task::LocalSet::new();
        for _ in 0..STALLED {
            let (response, mut stream) =
                client.begin("POST", "/stall", false).await.expect("begun");
            held.push(response);
            let sent = sent.clone();
            local.spawn_local(async move {
                while send(&mut stream, &[b'x'; 16 * 1024], false).await.is_ok() {
                    sent.set(sent.get() + 1);
                }
            });
        }
        local
            .run_until(async {
                // Until the sockets to the origin are full, and then the windows.
                let mut before = 0;
                while before == 0 || sent.get() != before {
                    before = sent.get();
                    tokio::time::sleep(ms(500)).await;
                }
                let body = vec![b'y'; 1024 * 1024];
                let answer = client.post("/up", &body, None).await.expect("an answer");
                assert_eq!(answer.status, 200);
            })
            .await;
    });
    origin.look(|record| {
        let done = record.seen().find(|request| request.target == b"/up").expect("it came");
        assert_eq!(done.body_bytes, 1024 * 1024);
    });
}

/// As many as a connection window of a MiB would not have had room for.
const STALLED: usize = 20;

/// What has come for a stream that is over gives its room back to the connection: of uploads that are
/// answered early, and of those that are reset.
fn uploads_that_end_early_leave_the_window_as_it_was(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/hang", vec![Op::Hang]);
    let early = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    origin.script("/early", vec![Op::Send(early.into()), Op::Hang]);
    let listener = format!("{LISTENER}http2 = {{ connection_window = \"64KiB\" }}\n");
    let proxy = Proxy::start(settings(driver, &origin).listener(&listener));
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let part = vec![b'x'; 60_000];
        for _ in 0..10 {
            let (response, mut stream) = client.begin("POST", "/hang", false).await.expect("begun");
            send(&mut stream, &part, false).await.expect("there is room");
            stream.send_reset(Reason::CANCEL);
            drop(response);
            let (response, mut stream) =
                client.begin("POST", "/early", false).await.expect("begun");
            // The answer may end it before all is sent.
            let _ = send(&mut stream, &part, false).await;
            assert_eq!(response.await.expect("an answer").status(), 403);
        }
        let answer = client.post("/up", &vec![b'y'; 1024 * 1024], None).await.expect("an answer");
        assert_eq!(answer.status, 200);
    });
}

/// A request that its client took back before anybody looked at it is on record, and is not for the
/// origin.
fn a_request_that_is_taken_back_at_once_goes_nowhere(driver: &'static str) {
    let origin = Origin::start();
    let settings = settings(driver, &origin);
    let folder = scratch();
    let path = folder.join("access.log");
    let log = format!("[access_log]\npath = \"{}\"\nformat = \"json\"\n", path.display());
    let routes = format!("{}{log}", settings.routes);
    let mut proxy = Proxy::start(settings.routes(routes));
    let mut raw = Raw::begin(proxy.address);
    let reset = [frame(1, 5, 1, GET), frame(3, 0, 1, &8u32.to_be_bytes())].concat();
    raw.send(&[reset, frame(1, 5, 3, GET)].concat());
    while raw.next().is_some_and(|frame| (frame.stream, frame.flags & 1) != (3, 1)) {}
    assert_eq!(origin.look(|record| record.seen().count()), 1, "it sees the second only");
    assert_eq!(proxy.errors("client_aborted"), 1.0);
    assert_eq!(proxy.metric("ringway_http2_resets_received_total", ""), 1.0);
    proxy.signal(Signal::TERM);
    assert!(proxy.wait_exit(ms(5_000)).is_some());
    let log = std::fs::read_to_string(&path).expect("a log");
    drop(std::fs::remove_dir_all(folder));
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines.iter().any(|line| line.contains("client_aborted")), "{log}");
}

/// The fields of `GET /small`, as those of [`GET`].
const SMALL: &[u8] = b"\x82\x86\x04\x06/small\x01\x06a.test";
const SMALL_ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";

/// The rest of an answer that is shut in by a window that shrank: no task waits for it, and the
/// connection ends when the client lets nothing through for too long (RFC 9113 section 6.9.2).
fn what_no_window_lets_through_is_bounded(driver: &'static str) {
    let origin = Origin::start();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", HUGE);
    origin.script("/", vec![Op::Send(head), Op::Fill(HUGE)]);
    origin.script("/small", vec![Op::Send(SMALL_ANSWER.into())]);
    let listener = "h2c = true\ntimeouts = { idle = \"1s\", write = \"2s\" }\n";
    let proxy = Proxy::start(settings(driver, &origin).listener(listener));
    let mut raw = Raw::begin(proxy.address);
    raw.frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    raw.frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes());
    raw.frame(1, 5, 1, GET);
    // Until the socket is full; were it not, the small answer would come at once, which fails.
    assert!(poll(ms(3_000), || origin.look(|record| record.seen().count() == 1)));
    pause(ms(500));
    raw.frame(1, 5, 3, SMALL);
    let streams = |name: &str| proxy.metric(name, "");
    assert!(poll(ms(3_000), || streams("ringway_http2_streams_total") == 2.0));
    assert!(poll(ms(3_000), || streams("ringway_http2_streams") == 1.0), "it has been served");
    let reset = frame(3, 0, 1, &8_u32.to_be_bytes());
    raw.send(&[reset, frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat());
    assert!(poll(ms(3_000), || streams("ringway_http2_resets_received_total") == 1.0));
    while raw.next().is_some_and(|frame| (frame.stream, frame.kind) != (3, 1)) {}
    // Slowly, for longer than the timeout: progress is progress.
    for byte in b"01234" {
        pause(ms(600));
        raw.frame(8, 0, 3, &1_u32.to_be_bytes());
        let came = std::iter::from_fn(|| raw.next()).find(|frame| frame.kind == 0);
        assert_eq!(came.expect("a byte").payload, [*byte]);
    }
    let began = Instant::now();
    while raw.next().is_some() {}
    assert!((ms(1_900)..ms(4_000)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(poll(ms(2_000), || streams("ringway_http2_connections") == 0.0));
}

/// What comes next on a connection of which frames about the connection are of no interest.
fn next_of_stream(raw: &mut Raw, stream: u32) -> Option<Frame> {
    std::iter::from_fn(|| raw.next()).find(|frame| frame.stream == stream)
}

/// RFC 9113 section 6.8: streams above the last one of a GOAWAY are ignored, those below it end well.
fn streams_above_the_last_one_are_ignored(driver: &'static str) {
    let (origin, mut proxy) = started(driver);
    origin.script("/", vec![Op::Sleep(800), Op::Ok]);
    let mut raw = Raw::begin(proxy.address);
    raw.frame(1, 5, 1, GET);
    assert!(poll(ms(3_000), || origin.look(|record| record.seen().count() == 1)));
    proxy.signal(Signal::TERM);
    let ping = std::iter::from_fn(|| raw.next()).find(|frame| (frame.kind, frame.flags) == (6, 0));
    raw.frame(6, 1, 0, &ping.expect("a PING behind the first GOAWAY").payload);
    let last = std::iter::from_fn(|| raw.next()).find(|frame| frame.kind == 7);
    assert_eq!(last.expect("the last GOAWAY").payload[..8], [0, 0, 0, 1, 0, 0, 0, 0]);
    raw.frame(1, 5, 3, SMALL);
    let rest: Vec<_> = std::iter::from_fn(|| raw.next()).collect();
    assert!(rest.iter().any(|frame| (frame.stream, frame.flags & 1) == (1, 1)), "{rest:?}");
    assert!(rest.iter().all(|frame| frame.stream != 3), "{rest:?}");
    assert!(proxy.wait_exit(ms(5_000)).is_some());
    assert_eq!(origin.look(|record| record.seen().count()), 1);
}

/// A client that neither answers the PING behind GOAWAY nor heeds it: what crossed it is served, what
/// comes later is refused, and the connection ends with the last stream that was not.
fn a_client_that_ignores_goaway_is_not_served_for_ever(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/", vec![Op::Sleep(3_500), Op::Ok]);
    let patient = "timeouts = { connect = \"1s\", response = \"9s\", body = \"9s\" }";
    let section = upstream("main", &[endpoint(&origin.address, 1)], patient);
    let mut proxy = Proxy::start(settings(driver, &origin).upstreams(section));
    let mut raw = Raw::begin(proxy.address);
    raw.frame(1, 5, 1, GET);
    assert!(poll(ms(3_000), || origin.look(|record| record.seen().count() == 1)));
    proxy.signal(Signal::TERM);
    let goaway = std::iter::from_fn(|| raw.next()).find(|frame| frame.kind == 7);
    assert_eq!(goaway.expect("a GOAWAY").payload[..4], [0x7f, 0xff, 0xff, 0xff]);
    let (mut served, mut refused, mut whole) = (0, 0, false);
    for id in (3..).step_by(2) {
        raw.frame(1, 5, id, SMALL);
        let came = std::iter::from_fn(|| raw.next()).find(|frame| {
            whole |= (frame.stream, frame.flags & 1) == (1, 1);
            frame.stream == id
        });
        match came {
            Some(Frame { kind: 1, .. }) => {
                assert_eq!(refused, 0, "none is served behind one that was refused");
                served += 1;
            }
            Some(Frame { kind: 3, payload, .. }) => {
                assert_eq!(payload, u32::from(Reason::REFUSED_STREAM).to_be_bytes());
                refused += 1;
            }
            _ => break,
        }
        pause(ms(20));
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    assert!(whole, "the stream that was under way ended well");
    assert!(proxy.wait_exit(ms(6_000)).is_some(), "long before the drain's bound");
    assert_eq!(origin.look(|record| record.seen().count()), 1 + served);
}

/// Timeouts of the listener hold from the next wait on, and one that no longer takes HTTP/2 on clear
/// text says goodbye.
fn reloads_reach_open_connections(driver: &'static str) {
    let origin = Origin::start();
    let with = |lines: &str| settings(driver, &origin).listener(lines);
    let mut proxy = Proxy::start(with("h2c = true\ntimeouts = { idle = \"60s\" }\n"));
    let mut raw = Raw::begin(proxy.address);
    raw.frame(1, 5, 1, GET);
    assert!(next_of_stream(&mut raw, 1).is_some(), "an answer");
    proxy.rewrite(with("h2c = true\ntimeouts = { idle = \"1s\" }\n"));
    assert_eq!(proxy.reload().0, 200);
    raw.frame(1, 5, 3, GET);
    assert!(next_of_stream(&mut raw, 3).is_some(), "an answer");
    let began = Instant::now();
    assert_eq!(raw.goaway(), Some(u32::from(Reason::NO_ERROR)));
    assert!(began.elapsed() >= ms(900), "by the idle timeout, not by the reload");

    proxy.rewrite(with("h2c = true\ntimeouts = { idle = \"60s\" }\n"));
    assert_eq!(proxy.reload().0, 200);
    let mut raw = Raw::begin(proxy.address);
    raw.frame(1, 5, 1, GET);
    assert!(next_of_stream(&mut raw, 1).is_some(), "an answer");
    proxy.rewrite(with("timeouts = { idle = \"60s\" }\n"));
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(raw.goaway(), Some(u32::from(Reason::NO_ERROR)));
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

/// More than the buffers of all sockets on the way.
const HUGE: u64 = 512 * 1024 * 1024;

on_both! {
    stalled_uploads_hold_up_no_other uploads_that_end_early_leave_the_window_as_it_was
    a_request_that_is_taken_back_at_once_goes_nowhere what_no_window_lets_through_is_bounded
    streams_above_the_last_one_are_ignored a_client_that_ignores_goaway_is_not_served_for_ever
    reloads_reach_open_connections
}
