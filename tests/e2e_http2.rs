//! HTTP/2 from clients: requests, bodies and trailers both ways, resets, floods, timeouts, reload and
//! drain, on both drivers.

mod harness;

use h2::Reason;
use harness::http2::{Answer, GET, Http2, PREFACE, Raw, block_on, frame, read, send};
use harness::origin::Op;
use harness::proxy::{endpoint, route, upstream};
use harness::{Client, Origin, Proxy, Settings, ms, pause, poll};
use http::HeaderMap;
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

fn requests(driver: &'static str) {
    let (origin, proxy) = started(driver);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let answer = client.get("/one?a=b").await.expect("an answer");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        assert_eq!(answer.fields["x-seen"], "GET /one?a=b");
        assert!(!answer.fields.contains_key("connection"));
        for name in ["date", "x-request-id"] {
            assert!(answer.fields.contains_key(name), "{name}");
        }
        let answer = client.post("/two", b"body", None).await.expect("an answer");
        assert_eq!(answer.status, 200);
        let answer = client.get("/three").await.expect("an answer");
        assert_eq!(answer.status, 200);
    });
    origin.look(|record| {
        let seen: Vec<_> = record.seen().collect();
        assert_eq!(seen.len(), 3);
        assert_eq!(seen[1].body, b"body");
    });
    assert_eq!(proxy.metric("ringway_http2_streams_total", ""), 3.0);
    assert_eq!(proxy.metric("ringway_http2_connections_opened_total", ""), 1.0);
    let http1 = harness::client::ask(proxy.address, &harness::client::plain_get("/x"), ms(3_000));
    assert_eq!(http1.expect("an answer").finals[0].status, 200, "HTTP/1.1 beside it");
}

/// A client whose first bytes come one by one, of either version.
fn byte_by_byte(driver: &'static str) {
    let (_origin, proxy) = started(driver);
    let mut raw = Raw::open(proxy.address);
    for byte in PREFACE {
        raw.send(&[*byte]);
        pause(ms(2));
    }
    raw.frame(4, 1, 0, b"");
    raw.frame(1, 5, 1, GET);
    let mut status = None;
    while status.is_none() {
        let frame = raw.next().expect("an answer");
        status = (frame.kind == 1).then(|| frame.payload[0]);
    }
    assert_eq!(status, Some(0x88), "200 by the static table");
    let client = Client::open(proxy.address).expect("a connection");
    for byte in b"PRI / HTTP/1.1\r\nHost: a.test\r\n\r\n" {
        client.send(&[*byte]);
        pause(ms(2));
    }
    assert!(client.wait_responses(1, ms(3_000)));
    assert_eq!(client.received().finals[0].status, 200, "a method that begins like the preface");
}

/// RFC 9113 section 5.1.2: as many as are allowed, at once.
fn many_streams(driver: &'static str) {
    let (origin, proxy) = started(driver);
    origin.otherwise(vec![Op::Sleep(200), Op::Ok]);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let mut streams = Vec::new();
        for number in 0..100 {
            let (response, _) =
                client.begin("GET", &format!("/{number}"), true).await.expect("begun");
            streams.push(tokio::spawn(async move { read(response.await?).await }));
        }
        for (number, stream) in streams.into_iter().enumerate() {
            let answer = stream.await.expect("a task").expect("an answer");
            let seen = format!("GET /{number}");
            assert_eq!((answer.status, answer.fields["x-seen"].as_bytes()), (200, seen.as_bytes()));
        }
    });
    assert!(origin.look(|record| record.in_flight.1) > 50, "they are served side by side");
    assert!(poll(ms(2_000), || proxy.metric("ringway_http2_streams", "") == 0.0));
}

const LARGE: usize = 8 * 1024 * 1024;

/// Bodies of megabytes either way, and a reader that lets them wait: memory stays bounded.
fn large_bodies(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
    origin.script("/down", vec![Op::Send(head), Op::Fill(LARGE as u64)]);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let before = proxy.process().anonymous_kib();
        let (response, _) = client.begin("GET", "/down", true).await.expect("begun");
        let response = response.await.expect("a head");
        // Nothing is read for a while.
        tokio::time::sleep(ms(400)).await;
        let grown = proxy.process().anonymous_kib().saturating_sub(before);
        assert!(grown < 2 * 1024, "{grown} KiB of an answer that nobody reads");
        let answer = read(response).await.expect("an answer");
        assert_eq!(answer.body.len(), LARGE);
        let body: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
        let answer = client.post("/up", &body, None).await.expect("an answer");
        assert_eq!(answer.status, 200);
        origin.look(|record| {
            let request = record.seen().last().expect("a request");
            assert_eq!(request.body_bytes, LARGE as u64);
            assert!(body.starts_with(&request.body), "what was sent came");
        });
    });
}

fn trailers(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let chunks =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n";
    origin.script("/t", vec![Op::Body, Op::Send(chunks.into())]);
    block_on(async {
        let client = Http2::connect(proxy.address).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-up", "2".parse().expect("a value"));
        let (response, mut stream) = {
            let request = http::Request::builder().method("POST").uri("http://a.test/t");
            let request = request.header("te", "trailers").body(()).expect("a request");
            let mut ready = client.sender.clone().ready().await.expect("ready");
            ready.send_request(request, false).expect("begun")
        };
        send(&mut stream, b"body", false).await.expect("sent");
        stream.send_trailers(trailers).expect("sent");
        let answer = read(response.await.expect("a head")).await.expect("an answer");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ab"[..]));
        assert_eq!(answer.trailers.expect("trailers")["x-sum"], "1");
    });
    origin.look(|record| {
        let request = record.seen().last().expect("a request");
        assert_eq!(request.body, b"body");
        let up = request.trailers.iter().any(|field| field.name.eq_ignore_ascii_case(b"x-up"));
        assert!(up, "{:?}", request.trailers);
    });
}

/// A client that resets its stream lets the upstream go, and the connection goes on.
fn a_reset_lets_the_upstream_go(driver: &'static str) {
    let (origin, proxy) = started(driver);
    origin.script("/hang", vec![Op::Hang]);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let (response, mut stream) = client.begin("GET", "/hang", true).await.expect("begun");
        let there = || origin.look(|record| record.seen().count() == 1);
        assert!(poll_async(there).await, "it is under way");
        stream.send_reset(Reason::CANCEL);
        drop(response);
        let gone = || origin.look(|record| record.connections[0].by_proxy);
        assert!(poll_async(gone).await, "the upstream is let go");
        assert_eq!(client.get("/next").await.expect("an answer").status, 200);
    });
    assert_eq!(proxy.metric("ringway_http2_resets_received_total", ""), 1.0);
    assert_eq!(proxy.errors("client_aborted"), 1.0);
}

async fn poll_async(mut ready: impl FnMut() -> bool) -> bool {
    for _ in 0..1_000 {
        if ready() {
            return true;
        }
        tokio::time::sleep(ms(5)).await;
    }
    false
}

/// What is refused is answered where it can be, and counted under its code.
fn refusals(driver: &'static str) {
    let (_origin, proxy) = started(driver);
    let status = |request: http::request::Builder| {
        block_on(async {
            let client = Http2::connect(proxy.address).await;
            let request = request.body(()).expect("a request");
            let mut ready = client.sender.ready().await.expect("ready");
            let (response, _) = ready.send_request(request, true).expect("begun");
            read(response.await.expect("a head")).await.map(|Answer { status, .. }| status)
        })
        .expect("an answer")
    };
    let get = |uri: &str| http::Request::builder().uri(uri);
    let long = "x".repeat(9_000);
    let cases = [
        (get(&format!("http://a.test/{long}")), 414, "uri_too_long"),
        (get("http://a.test/").header("x-long", "x".repeat(16 * 1024)), 431, "head_too_large"),
        (get("http://a.test/").header("host", "b.test"), 400, "host_invalid"),
        (get("http://u:p@a.test/"), 400, "host_invalid"),
        (get("http://a.test/").method("CONNECT"), 501, "method_refused"),
    ];
    for (request, expected, code) in cases {
        let request = match code {
            "method_refused" => request.uri("a.test:80"),
            _ => request,
        };
        assert_eq!((status(request), proxy.errors(code) >= 1.0), (expected, true), "{code}");
    }
}

/// Each flood ends the connection with ENHANCE_YOUR_CALM, and is counted by its kind.
fn floods(driver: &'static str) {
    let (origin, proxy) = started(driver);
    origin.otherwise(vec![Op::Hang]);
    let reset = |number: u32| {
        let id = 2 * number + 1;
        [frame(1, 5, id, GET), frame(3, 0, id, &8u32.to_be_bytes())].concat()
    };
    let open = frame(1, 4, 1, GET);
    type Make<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    let kinds: [(&str, Vec<u8>, Make<'_>); 6] = [
        ("settings", Vec::new(), &|_| frame(4, 0, 0, b"")),
        ("ping", Vec::new(), &|_| frame(6, 0, 0, &[7; 8])),
        ("priority", Vec::new(), &|_| frame(2, 0, 3, &[0, 0, 0, 0, 1])),
        ("window_update", open, &|_| frame(8, 0, 1, &1u32.to_be_bytes())),
        ("unknown", Vec::new(), &|_| frame(0x42, 0, 0, b"x")),
        ("rst_stream", Vec::new(), &reset),
    ];
    for (kind, before, make) in kinds {
        let mut raw = Raw::begin(proxy.address);
        raw.send(&before);
        for number in 0..3_000 {
            if !raw.send(&make(number)) {
                break;
            }
            // One at a time, so that a burst of resets is looked at as it comes.
            if kind == "rst_stream" {
                pause(ms(1));
            }
        }
        assert_eq!(raw.goaway(), Some(u32::from(Reason::ENHANCE_YOUR_CALM)), "{kind}");
        let counted = proxy.metric("ringway_http2_floods_total", &format!("kind=\"{kind}\""));
        assert_eq!(counted, 1.0, "{kind}");
    }
    let calm = proxy.metric("ringway_http2_goaways_total", "reason=\"enhance_your_calm\"");
    assert_eq!(calm, 6.0);
    assert!(poll(ms(3_000), || proxy.metric("ringway_http2_connections", "") == 0.0));
}

/// Half a preface, no acknowledgement, no stream for too long: each ends in its time.
fn timeouts(driver: &'static str) {
    let (_origin, proxy) = started(driver);
    let mut half = Raw::open(proxy.address);
    half.send(&PREFACE[..10]);
    let mut silent = Raw::open(proxy.address);
    silent.send(PREFACE);
    let mut idle = Raw::begin(proxy.address);
    assert!(silent.goaway() == Some(u32::from(Reason::SETTINGS_TIMEOUT)));
    assert_eq!(idle.goaway(), Some(u32::from(Reason::NO_ERROR)));
    while half.next().is_some() {}
    assert!(poll(ms(4_000), || proxy.metric("ringway_connections", "") == 0.0), "all are gone");
}

/// A client that takes nothing is cut, and so is its upstream.
fn a_stuck_client_is_cut(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 * LARGE);
    origin.script("/", vec![Op::Send(head), Op::Fill(64 * LARGE as u64)]);
    let mut raw = Raw::begin(proxy.address);
    // Windows as large as they get, and nothing is read.
    raw.frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    raw.frame(8, 0, 0, &0x7000_0000u32.to_be_bytes());
    raw.frame(1, 5, 1, GET);
    assert!(poll(ms(6_000), || proxy.metric("ringway_connections", "") == 0.0), "it is cut");
    assert!(poll(ms(2_000), || origin.open() == 0), "so is the upstream");
}

/// GOAWAY, the stream that is under way to its end, and none is lost.
fn drain(driver: &'static str) {
    let (origin, mut proxy) = started(driver);
    origin.script("/slow", vec![Op::Sleep(800), Op::Ok]);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let (response, _) = client.begin("GET", "/slow", true).await.expect("begun");
        assert!(poll_async(|| origin.look(|record| record.seen().count() == 1)).await);
        proxy.signal(Signal::TERM);
        let answer = read(response.await.expect("a head")).await.expect("an answer");
        assert_eq!(answer.status, 200);
        let Http2 { sender, driver } = client;
        drop(sender);
        driver.await.expect("a task").expect("a clean end");
    });
    let status = proxy.wait_exit(ms(5_000));
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", proxy.log());
}

/// A client that goes on asking on one connection while the process drains loses nothing: what was
/// not taken it is told of.
fn drain_under_load(driver: &'static str) {
    let (origin, mut proxy) = started(driver);
    origin.otherwise(vec![Op::Sleep(5), Op::Ok]);
    let answered = block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let mut answered = 0;
        loop {
            if answered == 20 {
                proxy.signal(Signal::TERM);
            }
            match client.get("/load").await {
                Ok(answer) => assert_eq!(answer.status, 200),
                Err(error) => {
                    // After GOAWAY the client begins none, and says so.
                    assert!(!error.is_reset(), "{error}");
                    break;
                }
            }
            answered += 1;
        }
        answered
    });
    assert!(answered >= 20);
    assert!(proxy.wait_exit(ms(5_000)).is_some());
    let asked = origin.look(|record| record.seen().count());
    assert_eq!(asked, answered, "each request that was forwarded was answered");
}

/// A reload in the middle: what is under way goes on, the next stream has the new routes.
fn reload(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/slow", vec![Op::Sleep(500), Op::Ok]);
    let settings = settings(driver, &origin);
    let mut proxy = Proxy::start(settings.clone());
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let (response, _) = client.begin("GET", "/slow", true).await.expect("begun");
        assert!(poll_async(|| origin.look(|record| record.seen().count() == 1)).await);
        let routes = route("new", "prefix = \"/new\"", "main", "");
        let section = upstream("main", &[endpoint(&origin.address, 1)], "");
        proxy.rewrite(settings.upstreams(section).routes(routes));
        assert_eq!(proxy.reload().0, 200);
        assert_eq!(client.get("/new").await.expect("an answer").status, 200);
        assert_eq!(client.get("/old").await.expect("an answer").status, 404);
        assert_eq!(read(response.await.expect("a head")).await.expect("an answer").status, 200);
    });
}

/// An origin that breaks off inside an answer: the stream is reset, the connection is not.
fn a_cut_answer_is_reset(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf";
    origin.script("/cut", vec![Op::Send(cut.into()), Op::Close]);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let error = client.get("/cut").await.expect_err("not taken for whole");
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{error}");
        assert_eq!(client.get("/next").await.expect("an answer").status, 200);
    });
    assert_eq!(proxy.metric("ringway_http2_resets_sent_total", ""), 1.0);
}

/// Data behind END_STREAM, a stream that is 0, a frame that is too large: errors of the protocol end
/// the connection with their code.
fn errors_of_the_protocol(driver: &'static str) {
    let (_origin, proxy) = started(driver);
    let cases = [
        (frame(0, 0, 0, b"x"), Reason::PROTOCOL_ERROR),
        (frame(6, 0, 0, b"x"), Reason::FRAME_SIZE_ERROR),
        (frame(8, 0, 0, &0u32.to_be_bytes()), Reason::PROTOCOL_ERROR),
        (frame(0, 0, 1, &[0; 16_385]), Reason::FRAME_SIZE_ERROR),
        // A known deviation: docs/http2-conformance.md.
        (frame(1, 5, 1, b"\xff\xff\xff\xff\xff"), Reason::PROTOCOL_ERROR),
    ];
    for (bytes, reason) in cases {
        let mut raw = Raw::begin(proxy.address);
        raw.send(&bytes);
        let code = raw.goaway().expect("a GOAWAY");
        assert_eq!(code, u32::from(reason), "{reason:?}");
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    requests byte_by_byte many_streams large_bodies trailers a_reset_lets_the_upstream_go refusals
    floods timeouts a_stuck_client_is_cut drain drain_under_load reload a_cut_answer_is_reset
    errors_of_the_protocol
}
