//! HTTP/2 to origins that behave badly: crossing frames, faults, wrong settings, silence; on both
//! drivers. They are made of raw frames.

mod harness;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use harness::client::{ask, plain_get};
use harness::http2::{Frame, Http2, Raw, block_on, frame};
use harness::proxy::{endpoint, upstream};
use harness::{Client, PATIENCE, Proxy, Response, Settings, ms, pause, poll};

const LISTENER: &str = "h2c = true\n\
    timeouts = { head = \"30s\", body = \"30s\", idle = \"30s\", write = \"30s\" }\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200`, by the static table of RFC 7541.
const OK: &[u8] = b"\x88";

/// One connection of the proxy to an origin, and what all of them count.
struct Link {
    raw: Raw,
    number: usize,
    seen: Arc<Seen>,
}

/// What an origin saw, over all its connections.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    closed: AtomicUsize,
    begun: AtomicUsize,
    reset: AtomicUsize,
    pings: AtomicUsize,
    /// Flags of the last HEADERS.
    flags: AtomicUsize,
}

impl Seen {
    fn get(count: &AtomicUsize) -> usize {
        count.load(Ordering::SeqCst)
    }

    fn reaches(count: &AtomicUsize, least: usize) {
        assert!(poll(PATIENCE, || Seen::get(count) >= least), "{} of {least}", Seen::get(count));
    }
}

impl Link {
    /// The next frame of a stream; none at the end.
    fn next(&mut self) -> Option<Frame> {
        let frame = self.raw.next()?;
        match frame.kind {
            HEADERS => {
                self.seen.flags.store(usize::from(frame.flags), Ordering::SeqCst);
                self.seen.begun.fetch_add(1, Ordering::SeqCst);
            }
            RST_STREAM => {
                self.seen.reset.fetch_add(1, Ordering::SeqCst);
            }
            PING if frame.flags & ACK == 0 => {
                self.seen.pings.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        Some(frame)
    }

    /// A whole answer without content.
    fn answer(&mut self, stream: u32) {
        self.raw.frame(HEADERS, END_HEADERS | END_STREAM, stream, OK);
    }
}

/// Serves each connection by `serve` on a thread of its own; they end with the proxy.
fn origin(serve: impl Fn(&mut Link) + Clone + Send + 'static) -> (SocketAddr, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let seen: Arc<Seen> = Arc::default();
    let shared = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
            let (seen, serve) = (shared.clone(), serve.clone());
            let raw = Raw::accepted(stream.expect("a connection"));
            std::thread::spawn(move || {
                let mut link = Link { raw, number, seen };
                serve(&mut link);
                link.seen.closed.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    (address, seen)
}

fn proxy(driver: &'static str, origin: SocketAddr, response: &str) -> Proxy {
    let more = format!(
        "protocol = \"http2\"\ntimeouts = {{ connect = \"2s\", response = \"{response}\", \
         body = \"30s\", idle = \"30s\", tunnel = \"30s\" }}"
    );
    let section = upstream("main", &[endpoint(&origin.to_string(), 1)], &more);
    let settings = Settings::new(driver, &origin.to_string());
    Proxy::start(settings.listener(LISTENER).upstreams(section))
}

fn get(proxy: &Proxy) -> Response {
    let received = ask(proxy.address, &plain_get("/"), PATIENCE).expect("an answer");
    received.finals.into_iter().next_back().expect("a final answer")
}

fn connections(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_upstream_http2_connections", "")
}

/// A request whose body is not whole, and which goes on until the origin has seen its end.
fn under_way(proxy: &Proxy, seen: &Seen) -> Client {
    let before = Seen::get(&seen.begun);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbo");
    Seen::reaches(&seen.begun, before + 1);
    client
}

fn ends_well(client: &Client) {
    client.send(b"dy");
    assert!(client.wait_responses(1, PATIENCE));
    assert_eq!(client.received().finals[0].status, 200);
}

/// RFC 9113 section 5.1: answers cross the resets of five thousand requests that nobody waits for any
/// more, and the connection goes on for all the others.
fn clients_that_leave(driver: &'static str) {
    const CLIENTS: usize = 50;
    const STREAMS: usize = 50;
    const TURNS: usize = 2;
    let (address, seen) = origin(|link| {
        link.raw.frame(SETTINGS, 0, 0, b"");
        while let Some(frame) = link.next() {
            match frame.kind {
                RST_STREAM => {
                    link.raw.frame(HEADERS, END_HEADERS, frame.stream, OK);
                    link.raw.frame(DATA, 0, frame.stream, b"late");
                    link.raw.frame(DATA, END_STREAM, frame.stream, b"");
                }
                DATA | HEADERS if frame.flags & END_STREAM != 0 => link.answer(frame.stream),
                _ => {}
            }
        }
    });
    let proxy = proxy(driver, address, "30s");
    let other = under_way(&proxy, &seen);
    for number in 0..CLIENTS {
        block_on(async {
            let mut client = Http2::connect(proxy.address).await;
            for turn in 1..=TURNS {
                let mut streams = Vec::new();
                let before = Seen::get(&seen.begun);
                for _ in 0..STREAMS {
                    streams.push(client.begin("POST", "/", false).await.expect("begun"));
                }
                // The driver of the client runs while this waits.
                while Seen::get(&seen.begun) < before + STREAMS {
                    tokio::time::sleep(ms(1)).await;
                }
                drop(streams);
                while Seen::get(&seen.reset) < (number * TURNS + turn) * STREAMS {
                    tokio::time::sleep(ms(1)).await;
                }
            }
        });
        assert_eq!(get(&proxy).status, 200, "{number}");
    }
    ends_well(&other);
    assert_eq!(Seen::get(&seen.reset), CLIENTS * STREAMS * TURNS);
    assert_eq!((Seen::get(&seen.connections), connections(&proxy)), (1, 1.0));
    assert_eq!(proxy.metric("ringway_upstream_http2_resets_total", ""), 0.0, "none was received");
}

/// RFC 9113 section 8.1.1: malformed answers cost each request its own stream, and another connection
/// takes over before they cost all streams of this one.
fn an_origin_full_of_faults(driver: &'static str) {
    const REQUESTS: usize = 1_100;
    let (address, seen) = origin(|link| {
        link.raw.frame(SETTINGS, 0, 0, b"");
        while let Some(frame) = link.next() {
            match frame.kind {
                // A field of HTTP/1 (section 8.2.2).
                HEADERS if frame.flags & END_STREAM != 0 => {
                    let head = b"\x88\x00\x0aconnection\x01a";
                    link.raw.frame(HEADERS, END_HEADERS | END_STREAM, frame.stream, head);
                }
                DATA if frame.flags & END_STREAM != 0 => link.answer(frame.stream),
                _ => {}
            }
        }
    });
    let proxy = proxy(driver, address, "30s");
    let other = under_way(&proxy, &seen);
    for number in 0..REQUESTS {
        assert_eq!(get(&proxy).status, 502, "{number}");
    }
    ends_well(&other);
    let made = Seen::get(&seen.connections);
    assert!((2..=3).contains(&made), "{made} connections");
    assert_eq!(Seen::get(&seen.begun), 1 + REQUESTS, "none is tried again");
    assert_eq!(proxy.metric("ringway_upstream_http2_resets_total", ""), 0.0, "none was received");
}

/// What cannot be greeted, and what ends at once, is not connected to again and again.
fn settings_that_are_wrong(driver: &'static str) {
    let window = [0, 4, 0xff, 0xff, 0xff, 0xff];
    let (address, seen) = origin(move |link| {
        // RFC 9113 section 6.5.2: above the largest window.
        link.raw.frame(SETTINGS, 0, 0, &window);
        while link.next().is_some() {}
    });
    let refusing = proxy(driver, address, "30s");
    assert_eq!(get(&refusing).code().as_deref(), Some("connect_failed"));
    let made = Seen::get(&seen.connections);
    assert!(made <= 2, "{made} connections for one request");
    drop(refusing);
    let (address, seen) = origin(|link| {
        let settings = frame(SETTINGS, 0, 0, b"");
        link.raw.send(&[settings, frame(GOAWAY, 0, 0, &[0; 8])].concat());
        while link.next().is_some() {}
    });
    let leaving = proxy(driver, address, "30s");
    let answered = get(&leaving);
    assert_eq!(answered.status, 502, "{:?}", answered.code());
    let made = Seen::get(&seen.connections);
    assert!(made <= 2, "{made} connections for one request");
}

/// RFC 9113 section 6.5.3: the first request goes by settings that came in pieces, as extended
/// CONNECT (RFC 8441).
fn settings_that_come_in_pieces(driver: &'static str) {
    let settings = frame(SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 1]);
    let (address, seen) = origin(move |link| {
        for byte in &settings {
            link.raw.send(&[*byte]);
        }
        while let Some(frame) = link.next() {
            if frame.kind == HEADERS {
                link.answer(frame.stream);
            }
        }
    });
    let proxy = proxy(driver, address, "30s");
    let handshake = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let client = Client::open(proxy.address).expect("a connection");
    client.send(handshake.as_bytes());
    assert!(client.wait_responses(1, PATIENCE));
    let (begun, flags) = (Seen::get(&seen.begun), Seen::get(&seen.flags));
    assert_eq!(
        (begun, flags),
        (1, usize::from(END_HEADERS)),
        "extended CONNECT goes on behind its head"
    );
}

/// RFC 9113 section 6.7: an origin that falls silent is asked by PING; requests go elsewhere before
/// it is given up.
fn an_origin_that_falls_silent(driver: &'static str) {
    let (address, seen) = origin(|link| {
        link.raw.frame(SETTINGS, 0, 0, b"");
        let mut answered = 0;
        while let Some(frame) = link.next() {
            if frame.kind == HEADERS && (link.number > 1 || answered == 0) {
                answered += 1;
                link.answer(frame.stream);
            }
        }
    });
    let proxy = proxy(driver, address, "1s");
    assert_eq!(get(&proxy).status, 200);
    let began = Instant::now();
    assert_eq!(get(&proxy).code().as_deref(), Some("response_timeout"));
    assert!(poll(ms(10_000), || get(&proxy).status == 200), "requests go elsewhere");
    assert!(began.elapsed() < ms(5_000), "after {:?}", began.elapsed());
    assert_eq!(Seen::get(&seen.connections), 2);
    assert!(poll(ms(10_000), || Seen::get(&seen.closed) == 1), "it is given up");
    assert!(began.elapsed() < ms(9_000), "after {:?}", began.elapsed());
    assert!(poll(ms(2_000), || connections(&proxy) == 1.0));
    assert_eq!(get(&proxy).status, 200);
    assert!(proxy.log().contains("does not answer"), "the operator is told");
}

/// One whose requests another answers first is doubted too: it is asked by PING, and given up where it
/// says nothing to that either.
fn origins_that_are_hedged(driver: &'static str) {
    let (other, _) = good_origin();
    // It answers one request only, and PINGs or not.
    let silent = |pongs: bool| {
        origin(move |link| {
            link.raw.frame(SETTINGS, 0, 0, b"");
            let mut answered = 0;
            while let Some(frame) = link.next() {
                if frame.kind == HEADERS && (link.number > 1 || answered == 0) {
                    answered += 1;
                    link.answer(frame.stream);
                }
                if frame.kind == PING && frame.flags == 0 && pongs {
                    link.raw.frame(PING, ACK, 0, &frame.payload);
                }
            }
        })
    };
    let [(slow, slow_seen), (gone, gone_seen)] = [silent(true), silent(false)].map(|it| {
        let (address, seen) = it;
        let proxy = hedging_proxy(driver, address, other);
        let asked = || {
            assert_eq!(get(&proxy).status, 200);
            Seen::get(&seen.pings) > 0
        };
        assert!(poll(PATIENCE, asked), "it is asked by PING");
        (proxy, seen)
    });
    Seen::reaches(&gone_seen.closed, 1);
    assert_eq!(get(&gone).status, 200);
    assert_eq!(Seen::get(&gone_seen.connections), 2);
    assert!(poll(PATIENCE, || connections(&gone) == 2.0), "with that of the other");
    // That of the other goes on, which was asked before.
    let seen = [&slow_seen.pings, &slow_seen.connections, &slow_seen.closed].map(Seen::get);
    assert_eq!((seen, connections(&slow)), ([1, 1, 0], 2.0));
}

/// Asks `first`, and `second` where that takes longer than two sweeps or so.
fn hedging_proxy(driver: &'static str, first: SocketAddr, second: SocketAddr) -> Proxy {
    let more = "protocol = \"http2\"\n\
        retry = { tries = 2, hedge_after = \"150ms\", budget_percent = 100 }\n\
        timeouts = { connect = \"5s\", response = \"30s\", body = \"30s\", idle = \"30s\" }";
    let endpoints = [(first, 65_535), (second, 1)];
    let endpoints = endpoints.map(|(origin, weight)| endpoint(&origin.to_string(), weight));
    Proxy::start(Settings::new(driver, "").upstreams(upstream("main", &endpoints, more)))
}

/// An origin that answers whatever it is asked.
fn good_origin() -> (SocketAddr, Arc<Seen>) {
    origin(|link| {
        link.raw.frame(SETTINGS, 0, 0, b"");
        while let Some(frame) = link.next() {
            if frame.kind == HEADERS {
                link.answer(frame.stream);
            }
        }
    })
}

/// Two origins in turn, with breakers as they are by default.
fn proxy_of_two(driver: &'static str, origins: [SocketAddr; 2]) -> Proxy {
    let more = "protocol = \"http2\"\nretry = { on = [\"connect\", \"stale\"], budget_percent = 100 }\n\
                timeouts = { connect = \"5s\", response = \"5s\", body = \"5s\", idle = \"30s\" }\n\
                breaker = { endpoint = { consecutive = 5, error_percent = 30 } }";
    let endpoints = origins.map(|origin| endpoint(&origin.to_string(), 1));
    Proxy::start(Settings::new(driver, "").upstreams(upstream("main", &endpoints, more)))
}

/// How an endpoint stands.
fn standing(proxy: &Proxy, origin: SocketAddr) -> String {
    let status = proxy.status();
    let endpoints = status["upstreams"][0]["endpoints"].as_array().expect("endpoints");
    let own = endpoints.iter().find(|it| it["address"] == origin.to_string());
    own.expect("it is there")["standing"].as_str().expect("a word").to_owned()
}

fn begin(proxy: &Proxy, count: usize) -> Vec<Client> {
    let client = |_| {
        let client = Client::open(proxy.address).expect("a connection");
        client.send(&plain_get("/"));
        client
    };
    (0..count).map(client).collect()
}

/// How many got a whole answer.
fn served(clients: &[Client]) -> usize {
    let whole = |client: &&Client| {
        assert!(client.wait_end(PATIENCE));
        client.received().finals.iter().any(|answer| answer.status == 200 && answer.complete)
    };
    clients.iter().filter(whole).count()
}

/// The end of one connection is one failure of its endpoint, however many requests it cuts off. What
/// was not answered is asked again over the next one.
fn a_connection_that_is_lost(driver: &'static str) {
    let (address, seen) = origin(|link| {
        link.raw.frame(SETTINGS, 0, 0, b"");
        let mut begun = 0;
        while let Some(frame) = link.next() {
            begun += usize::from(frame.kind == HEADERS);
            match begun {
                _ if frame.kind != HEADERS => {}
                _ if link.number > 1 || begun == 1 => link.answer(frame.stream),
                2..=11 => {
                    link.raw.frame(HEADERS, END_HEADERS, frame.stream, OK);
                    link.raw.frame(DATA, 0, frame.stream, b"half");
                }
                31 => return,
                _ => {}
            }
        }
    });
    let (other, _) = good_origin();
    let proxy = proxy_of_two(driver, [address, other]);
    assert_eq!(served(&begin(&proxy, 2)), 2);
    assert_eq!(served(&begin(&proxy, 60)), 50, "all but those whose answer was cut");
    assert_eq!(proxy.errors("response_incomplete"), 10.0);
    assert_eq!(proxy.metric("ringway_retries_total", ""), 20.0);
    // A few looks of the judge change nothing.
    pause(ms(300));
    assert_eq!(standing(&proxy, address), "in", "{}", proxy.log());
    let before = Seen::get(&seen.begun);
    assert_eq!(served(&begin(&proxy, 20)), 20);
    assert_eq!((Seen::get(&seen.begun) - before, Seen::get(&seen.connections)), (10, 2));
}

/// An origin that loses one connection after the other is isolated, by what its users saw of it.
fn an_origin_that_loses_connections(driver: &'static str) {
    let (address, seen) = origin(|link| {
        link.raw.frame(SETTINGS, 0, 0, b"");
        let mut begun = 0;
        while let Some(frame) = link.next() {
            begun += usize::from(frame.kind == HEADERS);
            match begun {
                _ if frame.kind != HEADERS => {}
                1 => link.answer(frame.stream),
                15 => return,
                _ => {
                    link.raw.frame(HEADERS, END_HEADERS, frame.stream, OK);
                }
            }
        }
    });
    let (other, _) = good_origin();
    let proxy = proxy_of_two(driver, [address, other]);
    assert_eq!(served(&begin(&proxy, 2)), 2);
    served(&begin(&proxy, 28));
    assert_eq!(standing(&proxy, address), "in");
    // The last of them was the first on the next connection.
    served(&begin(&proxy, 28));
    let out = || standing(&proxy, address) == "out";
    assert!(poll(PATIENCE, out), "{} {}", proxy.status(), proxy.log());
    assert!(proxy.log().contains("requests failed, 30 % is too many"), "{}", proxy.log());
    assert_eq!(Seen::get(&seen.connections), 3);
}

/// A connect that fails is one failure, however many requests wait for it; an origin that takes none
/// is isolated with the fifth.
fn connects_that_fail(driver: &'static str) {
    let released = Arc::new(AtomicUsize::new(0));
    let of = released.clone();
    let (address, seen) = origin(move |_| {
        poll(PATIENCE, || Seen::get(&of) > 0);
    });
    let (other, _) = good_origin();
    let proxy = proxy_of_two(driver, [address, other]);
    let clients = begin(&proxy, 20);
    let in_flight = "ringway_upstream_endpoint_requests_in_flight";
    let waiting = || proxy.metric(in_flight, &address.to_string()) == 10.0;
    assert!(poll(PATIENCE, waiting), "they wait for one connect");
    assert_eq!(Seen::get(&seen.connections), 1);
    released.store(1, Ordering::SeqCst);
    assert_eq!(served(&clients), 20, "the others go elsewhere");
    assert_eq!(proxy.errors("connect_failed"), 0.0);
    assert_eq!((Seen::get(&seen.connections), standing(&proxy, address)), (1, "in".to_owned()));
    let mut asked = 0;
    while Seen::get(&seen.connections) < 5 {
        assert_eq!(get(&proxy).status, 200);
        asked += 1;
        assert!(asked <= 10, "every other request goes there");
    }
    assert!(poll(PATIENCE, || standing(&proxy, address) == "out"), "{}", proxy.log());
    assert_eq!(served(&begin(&proxy, 10)), 10);
    assert_eq!(Seen::get(&seen.connections), 5, "nobody asks it any more");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    clients_that_leave an_origin_full_of_faults settings_that_are_wrong
    settings_that_come_in_pieces an_origin_that_falls_silent origins_that_are_hedged
    a_connection_that_is_lost an_origin_that_loses_connections connects_that_fail
}
