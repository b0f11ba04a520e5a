//! HTTP/2 to upstreams: requests, bodies and trailers both ways, refusals, connections that end,
//! WebSocket over either version, gRPC; on both drivers.

mod harness;

use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use bytes::Bytes;
use h2::Reason;
use h2::ext::Protocol;
use harness::client::{ask, plain_get};
use harness::http2::{Answer, Http2, Raw, block_on, frame, read, send};
use harness::http2_origin::{Http2Origin, LARGE, filling};
use harness::origin::Op;
use harness::proxy::{endpoint, free_address, route, upstream};
use harness::{Client, Origin, PATIENCE, Proxy, Response, Settings, ms, pause, poll};
use http::{HeaderMap, Request};

const LISTENER: &str = "h2c = true\n\
    timeouts = { head = \"1s\", body = \"1s\", idle = \"5s\", write = \"1s\" }\n";

const UPSTREAM: &str = "protocol = \"http2\"\n\
    timeouts = { connect = \"1s\", response = \"2s\", body = \"1s\", idle = \"5s\", tunnel = \"2s\" }";

fn settings(driver: &'static str, origin: &str) -> Settings {
    let section = upstream("main", &[endpoint(origin, 1)], UPSTREAM);
    Settings::new(driver, origin).listener(LISTENER).upstreams(section)
}

fn started(driver: &'static str) -> (Http2Origin, Proxy) {
    let origin = Http2Origin::start();
    let proxy = Proxy::start(settings(driver, &origin.address));
    (origin, proxy)
}

/// The answer to a request on a connection of HTTP/1.1 of its own.
fn answer(address: SocketAddr, request: &[u8]) -> Response {
    let received = ask(address, request, ms(5_000)).expect("an answer");
    received.finals.into_iter().next_back().expect("a final answer")
}

fn get(proxy: &Proxy, path: &str) -> Response {
    answer(proxy.address, &plain_get(path))
}

/// A request by HTTP/1.1 with more fields and a body.
fn request(method: &str, path: &str, fields: &str, body: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n{body}").into_bytes()
}

fn connections(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_upstream_http2_connections", "")
}

fn resets(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_upstream_http2_resets_total", "")
}

async fn soon(mut ready: impl FnMut() -> bool) -> bool {
    for _ in 0..1_000 {
        if ready() {
            return true;
        }
        tokio::time::sleep(ms(5)).await;
    }
    false
}

/// RFC 9113 section 8.3: what a request becomes, of clients of both versions, on one connection.
fn requests(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let answered = get(&proxy, "/one?a=b");
    assert_eq!((answered.status, &answered.body[..]), (200, &b"ok"[..]));
    assert_eq!(answered.get("x-seen"), Some(&b"GET /one?a=b"[..]));
    let client = Client::open(proxy.address).expect("a connection");
    client.send(&request("HEAD", "/two", "Connection: close, X-Hop\r\nX-Hop: 1\r\n", ""));
    assert!(client.wait_end(ms(3_000)));
    let raw = client.raw();
    assert!(raw.starts_with(b"HTTP/1.1 200 OK\r\n") && raw.ends_with(b"\r\n\r\n"), "no body");
    assert!(harness::contains(&raw, b"content-length: 2\r\n"));
    let nothing = get(&proxy, "/204");
    assert_eq!((nothing.status, nothing.complete, nothing.body.len()), (204, true, 0));
    assert_eq!(nothing.get("content-length"), None);
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let answer = client.get("/three").await.expect("an answer");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        let answer = client.get("/204").await.expect("an answer");
        assert_eq!((answer.status, answer.body.len()), (204, 0));
    });
    origin.look(|record| {
        assert_eq!((record.requests.len(), record.connections), (5, 1));
        let (scheme, authority, _) = &record.requests[0].pseudo;
        assert_eq!((scheme.as_str(), authority.as_str()), ("http", "a.test"));
        for name in ["connection", "x-hop", "host", "keep-alive"] {
            assert!(record.requests.iter().all(|it| !it.fields.contains_key(name)), "{name}");
        }
        assert!(record.requests[0].fields.contains_key("x-forwarded-for"));
    });
    assert_eq!(connections(&proxy), 1.0);
    assert!(poll(ms(2_000), || proxy.metric("ringway_upstream_http2_streams", "") == 0.0));
}

/// Bodies with a length and in chunks, from clients of both versions; trailers both ways.
fn bodies_and_trailers(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let post = request("POST", "/length", "Content-Length: 4\r\n", "body");
    assert_eq!(answer(proxy.address, &post).status, 200);
    let chunks = "2\r\nbo\r\n2\r\ndy\r\n0\r\nX-Up: 2\r\n\r\n";
    let fields = "Transfer-Encoding: chunked\r\nTE: trailers\r\nConnection: TE\r\n";
    let answered = answer(proxy.address, &request("POST", "/trailers", fields, chunks));
    assert_eq!((answered.status, &answered.body[..]), (200, &b"ab"[..]));
    assert!(answered.complete);
    let sum = answered.trailers.iter().find(|field| field.name.eq_ignore_ascii_case(b"x-sum"));
    assert_eq!(sum.map(|field| &field.value[..]), Some(&b"1"[..]), "the trailers of the answer");
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-up", "3".parse().expect("a value"));
        let answer = client.post("/trailers", b"body", Some(trailers)).await.expect("an answer");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ab"[..]));
        assert_eq!(answer.trailers.expect("trailers")["x-sum"], "1");
    });
    origin.look(|record| {
        let [length, chunked, stream] = &record.requests[..] else { panic!("three requests") };
        assert!(record.requests.iter().all(|seen| seen.body == b"body" && seen.whole));
        assert_eq!(length.fields["content-length"], "4");
        assert!(!chunked.fields.contains_key("content-length"));
        assert!(!chunked.fields.contains_key("transfer-encoding"));
        assert_eq!(chunked.fields["te"], "trailers");
        assert_eq!(chunked.trailers.as_ref().expect("trailers")["x-up"], "2");
        assert_eq!(stream.trailers.as_ref().expect("trailers")["x-up"], "3");
    });
}

/// 1xx is passed on, and an answer before the end of the body ends the exchange.
fn interim_and_early_answers(driver: &'static str) {
    let (_origin, proxy) = started(driver);
    let received = ask(proxy.address, &plain_get("/interim"), ms(3_000)).expect("an answer");
    assert_eq!(received.finals[0].status, 200);
    let interim = received.interims.first().expect("a 1xx answer");
    assert_eq!((interim.status, interim.get("link")), (103, Some(&b"</a>"[..])));
    let early = request("POST", "/early", "Content-Length: 100000\r\n", "begun");
    assert_eq!(answer(proxy.address, &early).status, 413);
    assert_eq!(get(&proxy, "/next").status, 200);
    assert_eq!(connections(&proxy), 1.0, "the connection goes on");
}

/// Megabytes either way with a side that lets them wait: memory stays bounded, others go on.
fn large_bodies(driver: &'static str) {
    let (origin, proxy) = started(driver);
    assert_eq!(get(&proxy, "/warm").status, 200);
    let before = proxy.process().anonymous_kib();
    let grown = || proxy.process().anonymous_kib().saturating_sub(before);
    let slow = Client::open_with(proxy.address, Some(16 * 1024)).expect("a connection");
    slow.set_paused(true);
    slow.send(&plain_get("/large"));
    pause(ms(400));
    assert!(grown() < 2 * 1024, "{} KiB of an answer that nobody reads", grown());
    assert_eq!(get(&proxy, "/beside").status, 200, "others are not held up");
    slow.set_paused(false);
    assert!(slow.wait_responses(1, PATIENCE));
    assert!(slow.received().finals[0].body == filling(), "what was sent came");
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let (response, mut stream) = client.begin("POST", "/slow-up", false).await.expect("begun");
        let body = filling();
        let watch = async {
            tokio::time::sleep(ms(400)).await;
            assert!(grown() < 4 * 1024, "{} KiB of a body that nobody reads", grown());
        };
        let (sent, answered, ()) = tokio::join!(
            send(&mut stream, &body, true),
            async { read(response.await?).await },
            watch
        );
        sent.expect("sent");
        assert_eq!(answered.expect("an answer").status, 200);
        let answer = client.get("/large").await.expect("an answer");
        assert!(answer.body == body, "what was sent came");
    });
    let chunked = Client::open(proxy.address).expect("a connection");
    chunked.send(&request("POST", "/up", &format!("Content-Length: {LARGE}\r\n"), ""));
    chunked.send(&filling());
    assert!(chunked.wait_responses(1, PATIENCE));
    origin.look(|record| {
        let bodies = record.requests.iter().filter(|seen| seen.body.len() == LARGE);
        assert_eq!(bodies.filter(|seen| seen.body == filling()).count(), 2);
    });
}

/// RFC 9113 section 8.7: what the origin says it has not looked at is tried again; nothing else is.
fn refused_and_reset(driver: &'static str) {
    let (origin, proxy) = started(driver);
    assert_eq!(get(&proxy, "/refuse").status, 200);
    assert_eq!(proxy.metric("ringway_retries_total", ""), 1.0);
    assert_eq!(resets(&proxy), 1.0, "RST_STREAM counts");
    let refused = get(&proxy, "/refused");
    assert_eq!((refused.status, refused.code().as_deref()), (502, Some("stream_refused")));
    let before = origin.count();
    let post = request("POST", "/refused", "Content-Length: 4\r\n", "body");
    assert_eq!(answer(proxy.address, &post).status, 502);
    let tries = origin.count() - before;
    let reset = get(&proxy, "/reset");
    assert_eq!((reset.status, reset.code().as_deref()), (502, Some("upstream_reset")));
    let resets = origin
        .look(|record| record.requests.iter().filter(|seen| seen.line == "GET /reset").count());
    assert_eq!(resets, 1, "not tried again");
    assert!(tries <= 3, "{tries}");
    assert_eq!(get(&proxy, "/next").status, 200);
}

/// An origin that announces its end: what is under way ends well, the next request goes elsewhere.
fn a_graceful_goaway(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let clients: Vec<Client> = ["/sleep/500", "/goaway"]
        .into_iter()
        .enumerate()
        .map(|(before, path)| {
            let client = Client::open(proxy.address).expect("a connection");
            client.send(&plain_get(path));
            assert!(poll(ms(2_000), || origin.count() > before), "{path} has come");
            client
        })
        .collect();
    let left = || proxy.metric("ringway_upstream_http2_goaways_total", "") == 1.0;
    assert!(poll(ms(3_000), left), "it is seen to leave");
    assert_eq!(get(&proxy, "/next").status, 200);
    for client in &clients {
        assert!(client.wait_responses(1, ms(3_000)));
        assert_eq!(client.received().finals[0].status, 200);
    }
    origin.look(|record| {
        assert_eq!(record.connections, 2);
        let by = |line: &str| {
            let mut seen = record.requests.iter();
            seen.find(|seen| seen.line == line).map(|seen| seen.connection)
        };
        assert_eq!((by("GET /sleep/500"), by("GET /next")), (Some(1), Some(2)));
    });
    assert!(poll(ms(3_000), || connections(&proxy) == 1.0), "the old one is closed");
}

/// GOAWAY between three streams: those it names end on it, the one above is tried again.
fn streams_above_a_goaway(driver: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let proxy = Proxy::start(settings(driver, &address.to_string()));
    let origin = std::thread::spawn(move || {
        let mut first = accepted(&listener);
        let mut heads = Vec::new();
        while heads.len() < 3 {
            let frame = first.next().expect("a frame");
            heads.extend((frame.kind == 1).then_some(frame.stream));
        }
        assert_eq!(heads, [1, 3, 5]);
        first.frame(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
        let mut second = accepted(&listener);
        while second.next().expect("a frame").kind != 1 {}
        second.frame(1, 5, 1, b"\x88");
        // The others are answered after that one.
        first.frame(1, 5, 3, b"\x88");
        first.frame(1, 5, 1, b"\x88");
        while first.next().is_some() {}
        second
    });
    let clients: Vec<Client> = ["/a", "/b", "/c"]
        .into_iter()
        .map(|path| {
            let client = Client::open(proxy.address).expect("a connection");
            client.send(&request("POST", path, "Connection: close\r\n", ""));
            client
        })
        .collect();
    for client in &clients {
        assert!(client.wait_responses(1, ms(3_000)));
        assert_eq!(client.received().finals[0].status, 200);
    }
    assert_eq!(proxy.metric("ringway_retries_total", ""), 1.0);
    assert_eq!(resets(&proxy), 0.0, "GOAWAY resets nothing");
    drop(origin.join().expect("the origin saw what it waited for"));
}

/// The next connection as an origin sees it, greeted.
fn accepted(listener: &TcpListener) -> Raw {
    let (stream, _) = listener.accept().expect("a connection");
    let mut raw = Raw::accepted(stream);
    raw.send(&frame(4, 0, 0, b""));
    raw
}

/// One stream at a time: requests wait or take connections of their own, and all are served.
fn one_stream_at_a_time(driver: &'static str) {
    let mut only_one = h2::server::Builder::new();
    only_one.max_concurrent_streams(1);
    let origin = Http2Origin::start_with(only_one);
    let proxy = Proxy::start(settings(driver, &origin.address));
    let clients: Vec<Client> = (0..8)
        .map(|_| {
            let client = Client::open(proxy.address).expect("a connection");
            client.send(&plain_get("/sleep/100"));
            client
        })
        .collect();
    for client in &clients {
        assert!(client.wait_responses(1, PATIENCE));
        assert_eq!(client.received().finals[0].status, 200);
    }
    origin.look(|record| {
        assert_eq!(record.requests.len(), 8);
        assert!(record.streams.1 <= record.connections, "{:?}", record.streams);
    });
    assert_eq!(proxy.errors("stream_refused"), 0.0);
}

/// An origin that dies inside a body: no client takes what it got for whole.
fn an_origin_that_dies(driver: &'static str) {
    let (_origin, proxy) = started(driver);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(&plain_get("/cut"));
    assert!(client.wait_end(ms(3_000)));
    assert!(client.raw().ends_with(b"half"), "it is cut");
    block_on(async {
        let mut client = Http2::connect(proxy.address).await;
        let error = client.get("/cut").await.expect_err("not taken for whole");
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{error}");
    });
    assert_eq!(proxy.errors("response_incomplete"), 2.0);
    assert_eq!(get(&proxy, "/next").status, 200, "over a new connection");
}

/// A connection that carries nothing is closed after the upstream's `timeouts.idle`.
fn idle_connections_are_closed(driver: &'static str) {
    let origin = Http2Origin::start();
    let short = UPSTREAM.replace("idle = \"5s\"", "idle = \"2s\"");
    let section = upstream("main", &[endpoint(&origin.address, 1)], &short);
    let proxy = Proxy::start(settings(driver, &origin.address).upstreams(section));
    assert_eq!(get(&proxy, "/one").status, 200);
    // The client has its answer before the stream has been given back.
    let idle = || proxy.metric("ringway_pool_idle_connections", "");
    assert!(poll(ms(2_000), || idle() == 1.0), "it is kept");
    let closed = || origin.look(|record| record.open) == 0 && connections(&proxy) == 0.0;
    assert!(poll(PATIENCE, closed), "it is closed");
    assert_eq!(idle(), 0.0);
    assert_eq!((get(&proxy, "/two").status, origin.look(|it| it.connections)), (200, 2));
}

/// An origin that speaks HTTP/1 only, and one that is not there, are told apart.
fn origins_that_do_not_speak_it(driver: &'static str) {
    let origin = Origin::start();
    let proxy = Proxy::start(settings(driver, &origin.address));
    let began = Instant::now();
    let answered = get(&proxy, "/one");
    assert_eq!((answered.status, answered.code().as_deref()), (502, Some("protocol_mismatch")));
    assert!(began.elapsed() < ms(900), "not by a timeout: {:?}", began.elapsed());
    assert_eq!(connections(&proxy), 0.0);
    drop(proxy);
    let proxy = Proxy::start(settings(driver, &free_address().to_string()));
    assert_eq!(get(&proxy, "/one").code().as_deref(), Some("connect_refused"));
}

/// A reload keeps the connections of each of two workers.
fn a_reload_keeps_connections(driver: &'static str) {
    let origin = Http2Origin::start();
    let settings = settings(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let ask_all = |path: &str| (0..20).for_each(|_| assert_eq!(get(&proxy, path).status, 200));
    ask_all("/before");
    let made = origin.look(|record| record.connections);
    assert!(made <= 2, "{made} connections of two workers");
    let under_way = Client::open(proxy.address).expect("a connection");
    under_way.send(&plain_get("/sleep/600"));
    let section = route("all", "prefix = \"/\"", "main", "timeouts = { total = \"5s\" }");
    proxy.rewrite(settings.routes(section));
    assert_eq!(proxy.reload().0, 200);
    (0..20).for_each(|_| assert_eq!(get(&proxy, "/after").status, 200));
    assert!(under_way.wait_responses(1, ms(3_000)));
    assert_eq!(under_way.received().finals[0].status, 200);
    origin.look(|record| {
        assert!(record.connections <= 2, "{} connections", record.connections);
        assert_eq!(record.open, record.connections, "none was closed");
    });
}

/// A hundred requests at a time share a connection.
fn many_requests_share_connections(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let clients: Vec<Client> = (0..100)
        .map(|number| {
            let client = Client::open(proxy.address).expect("a connection");
            client.send(&plain_get(&format!("/sleep/400?{number}")));
            client
        })
        .collect();
    for (number, client) in clients.iter().enumerate() {
        assert!(client.wait_responses(1, PATIENCE));
        let seen = format!("GET /sleep/400?{number}").into_bytes();
        assert_eq!(client.received().finals[0].get("x-seen"), Some(&seen[..]));
    }
    origin.look(|record| {
        assert!(record.connections <= 2, "{} connections", record.connections);
        assert!(record.streams.1 > 50, "they are served side by side");
    });
}

/// A client that goes away lets its stream go, and the connection goes on.
fn a_client_that_leaves(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let mut client = Client::open(proxy.address).expect("a connection");
    client.send(&plain_get("/sleep/1500"));
    assert!(poll(ms(2_000), || origin.count() == 1));
    client.reset();
    let let_go = || proxy.metric("ringway_upstream_http2_streams", "") == 0.0;
    assert!(poll(ms(1_300), let_go), "before the answer came");
    assert_eq!(get(&proxy, "/next").status, 200);
    assert_eq!(origin.look(|record| record.connections), 1);
}

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// RFC 8441: a handshake of HTTP/1.1 becomes an extended CONNECT; the key is answered by the proxy
/// (RFC 6455 section 1.3 has this one).
fn websocket_to_http2(driver: &'static str) {
    let (origin, proxy) = started(driver);
    let mut client = Client::open(proxy.address).expect("a connection");
    client.send(&request("GET", "/ws", HANDSHAKE, ""));
    assert!(client.wait_responses(1, ms(3_000)));
    let switched = &client.received().finals[0];
    assert_eq!(switched.status, 101);
    let accept = switched.get("sec-websocket-accept");
    assert_eq!(accept, Some(&b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="[..]));
    client.send(b"hello");
    assert!(client.wait_text(b"hello"));
    origin.look(|record| {
        let seen = &record.requests[0];
        assert_eq!((&*seen.line, seen.pseudo.2.as_deref()), ("CONNECT /ws", Some("websocket")));
        assert_eq!(seen.fields["sec-websocket-version"], "13");
        for name in ["sec-websocket-key", "upgrade", "connection"] {
            assert!(!seen.fields.contains_key(name), "{name}");
        }
    });
    assert_eq!(proxy.metric("ringway_tunnels", ""), 1.0);
    client.close();
    assert!(poll(ms(3_000), || origin.look(|record| record.streams.0) == 0), "both ends close");
    assert!(poll(ms(2_000), || proxy.metric("ringway_tunnels", "") == 0.0));
    assert_eq!(get(&proxy, "/next").status, 200);
    assert_eq!(origin.look(|record| record.connections), 1);
}

/// What cannot go over HTTP/2: other upgrades are plain requests, and an origin that takes no extended
/// CONNECT gets a plain request too.
fn upgrades_that_http2_lacks(driver: &'static str) {
    let (_origin, proxy) = started(driver);
    let other = "Connection: close, Upgrade\r\nUpgrade: h2c\r\n";
    let answered = answer(proxy.address, &request("GET", "/other", other, ""));
    assert_eq!((answered.status, &answered.body[..]), (200, &b"ok"[..]));
    let post = HANDSHAKE.replace("Upgrade\r\nUp", "close, Upgrade\r\nUp");
    let answered = answer(proxy.address, &request("POST", "/posted", &post, ""));
    assert_eq!(answered.get("x-seen"), Some(&b"POST /posted"[..]));
    drop(proxy);
    let origin = Http2Origin::start_with(h2::server::Builder::new());
    let proxy = Proxy::start(settings(driver, &origin.address));
    let answered = answer(proxy.address, &request("GET", "/ws", &post, ""));
    assert_eq!(answered.get("x-seen"), Some(&b"GET /ws"[..]), "not by CONNECT");
}

/// An extended CONNECT of a client becomes a handshake for an origin of HTTP/1.1, and goes on as it is
/// to one of HTTP/2.
fn websocket_from_http2(driver: &'static str) {
    let old = Origin::start();
    old.script("/ws", vec![Op::Echo]);
    let new = Http2Origin::start();
    let section = [
        upstream("main", &[endpoint(&old.address, 1)], ""),
        upstream("new", &[endpoint(&new.address, 1)], UPSTREAM),
    ];
    let routes = [
        route("new", "hosts = [\"new.test\"]\nprefix = \"/\"", "new", ""),
        route("old", "hosts = [\"old.test\"]\nprefix = \"/\"", "main", ""),
    ];
    let settings = settings(driver, &old.address).upstreams(section.concat());
    let proxy = Proxy::start(settings.routes(routes.concat()));
    block_on(async {
        let client = Http2::connect(proxy.address).await;
        let enabled = || client.sender.is_extended_connect_protocol_enabled();
        assert!(soon(enabled).await, "the proxy takes extended CONNECT");
        for host in ["old.test", "new.test"] {
            let request = Request::builder()
                .method("CONNECT")
                .uri(format!("http://{host}/ws"))
                .header("sec-websocket-version", "13")
                .extension(Protocol::from_static("websocket"));
            let mut ready = client.sender.clone().ready().await.expect("ready");
            let request = request.body(()).expect("a request");
            let (response, mut stream) = ready.send_request(request, false).expect("begun");
            let response = response.await.expect("a head");
            assert_eq!(response.status(), 200, "{host}");
            assert!(!response.headers().contains_key("sec-websocket-accept"), "{host}");
            let mut body = response.into_body();
            stream.send_data(Bytes::from_static(b"hello"), false).expect("sent");
            let heard = body.data().await.expect("data").expect("no reset");
            assert_eq!(&heard[..], b"hello", "{host}");
            stream.send_data(Bytes::new(), true).expect("sent");
        }
    });
    old.look(|record| {
        let seen = record.seen().next().expect("a request");
        assert!(seen.fields.iter().any(|it| it.name.eq_ignore_ascii_case(b"sec-websocket-key")));
    });
    new.look(|record| assert_eq!(record.requests[0].line, "CONNECT /ws"));
}

/// A gRPC call; `timeout` is its deadline.
async fn call(proxy: &Proxy, path: &str, timeout: &str) -> Answer {
    let client = Http2::connect(proxy.address).await;
    let request = Request::builder()
        .method("POST")
        .uri(format!("http://a.test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout);
    let mut ready = client.sender.ready().await.expect("ready");
    let request = request.body(()).expect("a request");
    let (response, mut stream) = ready.send_request(request, false).expect("begun");
    send(&mut stream, b"\0\0\0\0\x02ab", true).await.expect("sent");
    read(response.await.expect("a head")).await.expect("an answer")
}

/// The status of a call is passed on; errors of the proxy are told as gRPC has them, and counted as
/// what they are.
fn grpc_calls(driver: &'static str) {
    let (origin, proxy) = started(driver);
    block_on(async {
        let answer = call(&proxy, "/grpc", "5S").await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ab"[..]));
        assert_eq!(answer.trailers.expect("trailers")["grpc-status"], "0");
        let answer = call(&proxy, "/grpc-only", "5S").await;
        assert!(answer.trailers.is_none() && answer.body.is_empty(), "trailers only");
        assert_eq!(answer.fields["grpc-status"], "5");
        assert_eq!(answer.fields["grpc-message"], "no%20such");
        let began = Instant::now();
        let answer = call(&proxy, "/sleep/1500", "200m").await;
        assert!(began.elapsed() < ms(1_200), "{:?}", began.elapsed());
        assert_eq!((answer.status, answer.body.len()), (200, 0));
        assert_eq!(answer.fields["grpc-status"], "4");
        assert_eq!(answer.fields["content-type"], "application/grpc");
    });
    origin.look(|record| {
        let fields = &record.requests[0].fields;
        assert_eq!(fields["te"], "trailers");
        assert_eq!(fields["grpc-timeout"], "5S");
    });
    assert_eq!(proxy.errors("total_timeout"), 1.0);
    drop(proxy);
    let proxy = Proxy::start(settings(driver, &free_address().to_string()));
    let answer = block_on(call(&proxy, "/grpc", "5S"));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.fields["grpc-status"], "14");
    assert_eq!(proxy.metric("ringway_requests_total", "code_class=\"5xx\""), 1.0);
    assert_eq!(proxy.errors("connect_refused"), 1.0);
}

/// A client that gives its calls no time isolates no endpoint.
fn calls_without_time_isolate_nobody(driver: &'static str) {
    let origins = [Http2Origin::start(), Http2Origin::start()];
    let endpoints = origins.each_ref().map(|origin| endpoint(&origin.address, 1));
    let section = upstream("main", &endpoints, UPSTREAM);
    let proxy = Proxy::start(settings(driver, "").upstreams(section));
    block_on(async {
        for _ in 0..12 {
            let client = Http2::connect(proxy.address).await;
            let fields = Request::post("http://a.test/sleep/300").header("grpc-timeout", "50m");
            let mut ready = client.sender.ready().await.expect("ready");
            // Whole with its head: whoever is slow is not the client.
            let sent = ready.send_request(fields.body(()).expect("a request"), true);
            assert_eq!(sent.expect("begun").0.await.expect("a head").status(), 504);
        }
    });
    (0..10).for_each(|_| assert_eq!(get(&proxy, "/later").status, 200));
    let all = origins.each_ref().map(|origin| origin.look(|it| it.requests.len()));
    assert_eq!(all, [11, 11], "in turn, to the last");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    requests bodies_and_trailers interim_and_early_answers large_bodies refused_and_reset
    a_graceful_goaway streams_above_a_goaway one_stream_at_a_time an_origin_that_dies
    idle_connections_are_closed origins_that_do_not_speak_it a_reload_keeps_connections
    many_requests_share_connections a_client_that_leaves websocket_to_http2
    upgrades_that_http2_lacks websocket_from_http2 grpc_calls
    calls_without_time_isolate_nobody
}
