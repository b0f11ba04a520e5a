//! A second endpoint that is asked while the first has no answer, over HTTP/2 and TLS, and many times
//! at once: what becomes of the streams and connections of those that lose.

mod harness;

use std::net::TcpListener;
use std::sync::mpsc;

use harness::client::{ask, plain_get};
use harness::http2::{Http2, Raw, block_on};
use harness::http2_origin::Http2Origin;
use harness::load::under_load;
use harness::origin::Op;
use harness::proxy::{Folder, endpoint, upstream};
use harness::tls::{Authority, TlsOrigin, Wanted, put};
use harness::{Origin, PATIENCE, Proxy, Response, Settings, ms, poll};

/// Long, so that nothing but a hedge ends a wait.
const TIMEOUTS: &str =
    "timeouts = { connect = \"10s\", response = \"20s\", body = \"20s\", idle = \"20s\" }";

const LISTENER: &str = "h2c = true\n\
    timeouts = { head = \"20s\", body = \"20s\", idle = \"20s\", write = \"20s\" }\n";

/// What all of them have but where the test is about it.
const PLAIN: &str = "tries = 2, hedge_after = \"50ms\"";

/// An upstream of two: a request goes to the first, unless there is a reason to ask the other.
fn two(first: &str, second: &str, more: &str) -> String {
    upstream("main", &[endpoint(first, 65_535), endpoint(second, 1)], more)
}

fn start(driver: &'static str, upstreams: String) -> Proxy {
    Proxy::start(Settings::new(driver, "").listener(LISTENER).upstreams(upstreams))
}

fn send(proxy: &Proxy, request: &str) -> Response {
    let received = ask(proxy.address, request.as_bytes(), PATIENCE).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

fn get(proxy: &Proxy, path: &str) -> Response {
    send(proxy, &String::from_utf8(plain_get(path)).expect("text"))
}

/// Begun, and won by the second.
fn hedges(proxy: &Proxy) -> (f64, f64) {
    let total = |name| proxy.metric(name, "upstream=\"main\"");
    (total("ringway_hedges_total"), total("ringway_hedges_won_total"))
}

/// RFC 9113 section 8.7: a stream that nobody waits for is reset with CANCEL, and its connection goes
/// on; from clients of either version.
fn streams_are_cancelled(driver: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let slow = listener.local_addr().expect("an address").to_string();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut raw = Raw::accepted(listener.accept().expect("a connection").0);
        raw.frame(SETTINGS, 0, 0, b"");
        while let Some(frame) = raw.next() {
            if frame.kind == SETTINGS && frame.flags == 0 {
                raw.frame(SETTINGS, 1, 0, b"");
            }
            if frame.kind == RST_STREAM && tell.send((frame.stream, frame.payload)).is_err() {
                return;
            }
        }
    });
    let good = Http2Origin::start();
    let more = format!("{TIMEOUTS}\nprotocol = \"http2\"\nretry = {{ {PLAIN} }}");
    let proxy = start(driver, two(&slow, &good.address, &more));
    assert_eq!(get(&proxy, "/bytes/300000").body.len(), 300_000);
    let put = send(&proxy, "PUT /put HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(put.status, 200);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let answer = client.get("/parts/50").await.expect("an answer");
        assert_eq!((answer.status, answer.trailers.is_some()), (200, true));
    });
    for stream in [1, 3, 5] {
        let reset = told.recv_timeout(PATIENCE).expect("a reset on the one connection");
        assert_eq!(reset, (stream, 8_u32.to_be_bytes().to_vec()), "CANCEL");
    }
    good.look(|record| {
        let bodies = record.requests.iter().map(|seen| seen.body.len());
        assert_eq!(bodies.collect::<Vec<_>>(), [0, 5, 0]);
        assert_eq!(record.connections, 1);
    });
    assert_eq!(hedges(&proxy), (3.0, 3.0));
    assert!(poll(PATIENCE, || proxy.metric("ringway_upstream_http2_streams", "") == 0.0));
}

/// RFC 9113 section 6.
const RST_STREAM: u8 = 3;

/// RFC 9113 section 6.
const SETTINGS: u8 = 4;

/// Over TLS: a first that does not even shake hands, and one that does and is silent.
fn tls_upstreams(driver: &'static str) {
    let folder = Folder::new();
    let authority = Authority::new("Test CA");
    let leaf = |serial| authority.issue(&Wanted::of(&["127.0.0.1"], serial));
    let (silent, good) = (TlsOrigin::start(&leaf(1), None), TlsOrigin::start(&leaf(2), None));
    silent.hang();
    let deaf = Origin::start();
    deaf.otherwise(vec![Op::Hang]);
    let ca = put(&folder.0, "ca.pem", &authority.pem());
    let more = format!("{TIMEOUTS}\ntls = {{ ca = \"{}\" }}\nretry = {{ {PLAIN} }}", ca.display());
    for first in [deaf.address.clone(), silent.address.to_string()] {
        let proxy = start(driver, two(&first, &good.address.to_string(), &more));
        (0..2).for_each(|_| assert_eq!(get(&proxy, "/").status, 200));
        assert_eq!(hedges(&proxy), (2.0, 2.0), "{first}");
        let open = || proxy.metric("ringway_upstream_connections", "");
        assert!(poll(PATIENCE, || open() == 1.0), "only that of the answers is kept");
    }
    assert!(poll(PATIENCE, || deaf.open() == 0), "what it had is closed");
    assert!(poll(PATIENCE, || silent.ends().len() == 2), "what it had is closed");
    assert_eq!(silent.heads().len(), 2);
}

/// A client of HTTP/2 that resets its stream ends both tries, whatever they wait for: one that connects
/// and one that is silent, two that connect, and one that connects before there is another.
fn clients_that_leave(driver: &'static str) {
    let folder = Folder::new();
    let authority = Authority::new("Test CA");
    let silent = TlsOrigin::start(&authority.issue(&Wanted::of(&["127.0.0.1"], 1)), None);
    silent.hang();
    let (deaf, other) = (Origin::start(), Origin::start());
    [&deaf, &other].iter().for_each(|origin| origin.otherwise(vec![Op::Hang]));
    let ca = put(&folder.0, "ca.pem", &authority.pem());
    let timeouts = TIMEOUTS.replace("10s", "60s");
    let started = |second: &str, after: &str| {
        let keys = PLAIN.replace("50ms", after);
        let tls = format!("tls = {{ ca = \"{}\" }}", ca.display());
        let more = format!("{timeouts}\n{tls}\nretry = {{ {keys} }}");
        start(driver, two(&deaf.address, second, &more))
    };
    let one_waits = started(&silent.address.to_string(), "50ms");
    leave(&one_waits, || deaf.open() == 1 && silent.heads().len() == 1);
    assert!(poll(PATIENCE, || deaf.open() == 0 && silent.ends().len() == 1), "one waits");
    let both_connect = started(&other.address, "50ms");
    leave(&both_connect, || deaf.open() == 1 && other.open() == 1);
    assert!(poll(PATIENCE, || deaf.open() == 0 && other.open() == 0), "both connect");
    let alone = started(&other.address, "1s");
    leave(&alone, || deaf.open() == 1);
    assert!(poll(PATIENCE, || deaf.open() == 0), "alone");
    for (proxy, begun) in [(&one_waits, 1.0), (&both_connect, 1.0), (&alone, 0.0)] {
        assert!(poll(PATIENCE, || proxy.metric("ringway_client_aborts_total", "") == 1.0));
        assert_eq!(hedges(proxy), (begun, 0.0));
        for name in [
            "ringway_upstream_endpoint_requests_in_flight",
            "ringway_upstream_connections",
            "ringway_requests_in_flight",
        ] {
            assert!(poll(PATIENCE, || proxy.metric(name, "") == 0.0), "{name}");
        }
    }
}

/// Begins a request over HTTP/2 and resets it once it is `under_way`; its connection goes on until
/// the proxy has seen that.
fn leave(proxy: &Proxy, under_way: impl Fn() -> bool) {
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let begun = client.begin("GET", "/", true).await.expect("begun");
        // The driver of the client runs while this waits.
        while !under_way() {
            tokio::time::sleep(ms(1)).await;
        }
        drop(begun);
        while proxy.metric("ringway_http2_resets_received_total", "") < 1.0 {
            tokio::time::sleep(ms(1)).await;
        }
    });
}

/// Many at once, where both answer at almost the same time: each gets one whole answer, and nothing is
/// left of the others.
fn a_storm_of_hedges(driver: &'static str) {
    let (one, two, three) = (Origin::start(), Http2Origin::start(), Http2Origin::start());
    let other = Origin::start();
    [&one, &other].iter().for_each(|origin| origin.otherwise(vec![Op::Body, Op::Sleep(2), Op::Ok]));
    for (protocol, addresses) in
        [("http1", [&one.address, &other.address]), ("http2", [&two.address, &three.address])]
    {
        let keys = "tries = 2, hedge_after = \"1ms\", budget_percent = 100";
        let more = format!("{TIMEOUTS}\nprotocol = \"{protocol}\"\nretry = {{ {keys} }}");
        let endpoints = addresses.map(|address| endpoint(address, 1));
        let proxy = start(driver, upstream("main", &endpoints, &more));
        under_load(proxy.address, |tally| assert!(tally.more(2_000)));
        let (begun, won) = hedges(&proxy);
        assert!(protocol == "http2" || begun > 200.0 && won > 0.0, "{begun} {won}");
        let gauge = |name: &str| proxy.metric(name, "");
        assert!(poll(PATIENCE, || gauge("ringway_upstream_connections")
            == gauge("ringway_pool_idle_connections")));
        for name in [
            "ringway_upstream_endpoint_requests_in_flight",
            "ringway_upstream_requests_in_flight",
            "ringway_upstream_http2_streams",
            "ringway_requests_in_flight",
        ] {
            assert!(poll(PATIENCE, || gauge(name) == 0.0), "{protocol}: {name}");
        }
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    streams_are_cancelled tls_upstreams clients_that_leave a_storm_of_hedges
}
