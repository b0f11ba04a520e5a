//! Between HTTP versions: tunnels that were not opened, slow takers, tries before a body was read,
//! early answers, gRPC-Web, many small parts; on both drivers.

mod harness;

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use h2::ext::Protocol;
use harness::client::plain_get;
use harness::http2::{Answer, Http2, block_on, read, send};
use harness::http2_origin::Http2Origin;
use harness::origin::Op;
use harness::proxy::{endpoint, free_address, route, upstream};
use harness::{Client, Origin, PATIENCE, Proxy, Response, Settings, ms, poll};
use http::Request;

const LISTENER: &str = "h2c = true\n\
    timeouts = { head = \"1s\", body = \"1s\", idle = \"5s\", write = \"500ms\" }\n";

const HTTP2: &str = "protocol = \"http2\"\n\
    timeouts = { connect = \"1s\", response = \"2s\", body = \"1s\", idle = \"5s\" }";

/// Asks for a WebSocket by an extended CONNECT; the stream is left open.
async fn connect(client: &Http2, host: &str, path: &str, content_type: &str) -> Answer {
    let request = Request::builder()
        .method("CONNECT")
        .uri(format!("http://{host}{path}"))
        .header("sec-websocket-version", "13")
        .header("content-type", content_type)
        .extension(Protocol::from_static("websocket"));
    let mut ready = client.sender.clone().ready().await.expect("ready");
    let request = request.body(()).expect("a request");
    let (response, _stream) = ready.send_request(request, false).expect("begun");
    read(response.await.expect("a head")).await.expect("an answer")
}

/// The code of an error of the proxy.
fn code(answer: &Answer) -> Option<&str> {
    let text = answer.fields.get("proxy-status")?.to_str().ok()?;
    text.split_once("details=\"")?.1.strip_suffix('"')
}

/// RFC 8441 section 5: a success says that the tunnel is open, so none is told that is not.
fn tunnels_that_were_not_opened(driver: &'static str) {
    let old = Origin::start();
    old.script("/ws", vec![Op::Ok]);
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    old.script("/forbidden", vec![Op::Send(forbidden.into())]);
    let moved = "HTTP/1.1 302 Found\r\nLocation: /ws\r\nContent-Length: 0\r\n\r\n";
    old.script("/moved", vec![Op::Send(moved.into())]);
    let new = Http2Origin::start_with(h2::server::Builder::new());
    let upstreams = [
        upstream("main", &[endpoint(&old.address, 1)], ""),
        upstream("new", &[endpoint(&new.address, 1)], HTTP2),
        upstream("down", &[endpoint(&free_address().to_string(), 1)], ""),
    ];
    let routes = [
        route("new", "hosts = [\"new.test\"]\nprefix = \"/\"", "new", ""),
        route("down", "hosts = [\"down.test\"]\nprefix = \"/\"", "down", ""),
        "[[route]]\nid = \"yes\"\npath = \"/yes\"\nrespond = { status = 200, body = \"yes\" }\n\
         [[route]]\nid = \"no\"\npath = \"/no\"\nrespond = { status = 410 }\n"
            .to_owned(),
        route("old", "prefix = \"/\"", "main", ""),
    ];
    let settings = Settings::new(driver, &old.address).listener(LISTENER);
    let proxy = Proxy::start(settings.upstreams(upstreams.concat()).routes(routes.concat()));
    block_on(async {
        let client = Http2::connect(proxy.address).await;
        while !client.sender.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        for (host, path, status, expected) in [
            ("old.test", "/ws", 502, Some("upgrade_ignored")),
            ("new.test", "/ws", 502, Some("upgrade_ignored")),
            ("old.test", "/yes", 501, Some("method_refused")),
            ("old.test", "/no", 410, None),
            ("old.test", "/forbidden", 403, None),
            ("old.test", "/moved", 302, None),
        ] {
            let answer = connect(&client, host, path, "text/plain").await;
            assert_eq!((answer.status, code(&answer)), (status, expected), "{host}{path}");
        }
        // A gRPC error is told by a success; here that would be a tunnel.
        let answer = connect(&client, "down.test", "/ws", "application/grpc").await;
        assert_eq!((answer.status, code(&answer)), (502, Some("connect_refused")));
    });
    assert_eq!(proxy.errors("upgrade_ignored"), 2.0);
    assert_eq!(proxy.metric("ringway_tunnels", ""), 0.0);
}

/// A body that its client takes slowly; each grant of room is 4 KiB.
async fn taken(proxy: &Proxy, path: &str, grants: usize) -> Result<usize, h2::Error> {
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(4 * 1024);
    let mut client = Http2::connect_with(proxy.address, &settings).await;
    let (response, _) = client.begin("GET", path, true).await?;
    let mut stream = response.await?.into_body();
    let (mut length, mut owed, mut granted) = (0, 0, 0);
    while let Some(data) = stream.data().await {
        owed += data?.len();
        while owed >= 4 * 1024 && granted < grants {
            // The pace is what is tested.
            tokio::time::sleep(ms(100)).await;
            stream.flow_control().release_capacity(4 * 1024)?;
            owed -= 4 * 1024;
            length += 4 * 1024;
            granted += 1;
        }
    }
    Ok(length + owed)
}

/// `timeouts.write` bounds how long a client takes nothing, not how long it takes a part: of origins of
/// both versions, and of the proxy itself.
fn slow_but_alive(driver: &'static str) {
    let old = Origin::start();
    let body = format!("HTTP/1.1 200 OK\r\nContent-Length: {SLOW}\r\n\r\n");
    old.script("/old", vec![Op::Send(body), Op::Fill(SLOW as u64)]);
    let new = Http2Origin::start();
    let upstreams = [
        upstream("main", &[endpoint(&old.address, 1)], ""),
        upstream("new", &[endpoint(&new.address, 1)], HTTP2),
    ];
    let own = "x".repeat(32 * 1024);
    let routes = [
        route("new", "prefix = \"/bytes\"", "new", ""),
        format!(
            "[[route]]\nid = \"own\"\npath = \"/own\"\nrespond = {{ status = 200, body = \"{own}\" }}\n"
        ),
        route("old", "prefix = \"/\"", "main", ""),
    ];
    let settings = Settings::new(driver, &old.address).listener(LISTENER);
    let proxy = Proxy::start(settings.upstreams(upstreams.concat()).routes(routes.concat()));
    block_on(async {
        let new = format!("/bytes/{SLOW}");
        let (old, new, own) = tokio::join!(
            taken(&proxy, "/old", usize::MAX),
            taken(&proxy, &new, usize::MAX),
            taken(&proxy, "/own", usize::MAX),
        );
        assert_eq!(old.expect("whole"), SLOW);
        assert_eq!(new.expect("whole"), SLOW);
        assert_eq!(own.expect("whole"), 32 * 1024);
        let began = Instant::now();
        let error = taken(&proxy, "/old", 2).await.expect_err("it is cut");
        assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR), "{error}");
        assert!(began.elapsed() >= ms(600) && began.elapsed() < ms(3_000), "{:?}", began.elapsed());
    });
    assert_eq!(proxy.errors("client_write_timeout"), 1.0);
}

/// Bytes of a body that is taken slowly.
const SLOW: usize = 200 * 1024;

/// RFC 9113 section 8.7, RFC 9110 section 9.2.2: a request of whose body nothing has been read is tried
/// again, and its body goes whole with the second try.
fn tries_before_a_body_was_read(driver: &'static str) {
    let origin = Http2Origin::start();
    let old = Origin::start();
    old.script("/close", vec![Op::Close]);
    old.script("/close", vec![Op::Body, Op::Ok]);
    let upstreams = [
        upstream("main", &[endpoint(&origin.address, 1)], HTTP2),
        upstream("old", &[endpoint(&old.address, 1)], ""),
    ];
    let routes = [
        route("old", "hosts = [\"old.test\"]\nprefix = \"/\"", "old", ""),
        route("new", "prefix = \"/\"", "main", ""),
    ];
    let settings = Settings::new(driver, &origin.address).listener(LISTENER);
    let proxy = Proxy::start(settings.upstreams(upstreams.concat()).routes(routes.concat()));
    let retries = |count: f64| proxy.metric("ringway_retries_total", "") == count;
    block_on(async {
        let client = Http2::connect(proxy.address).await;
        let calls = [
            ("POST", "http://a.test/refuse-unread"),
            ("PUT", "http://a.test/die-unread"),
            ("PUT", "http://old.test/close"),
        ];
        for (tries, (method, uri)) in calls.into_iter().enumerate() {
            let warm = uri.rsplit_once('/').map_or("", |(host, _)| host);
            let (response, _) = begin(&client, "GET", &format!("{warm}/warm"), true).await;
            // From here on there is a connection that is kept.
            assert_eq!(read(response.await.expect("a head")).await.expect("an answer").status, 200);
            let (response, mut stream) = begin(&client, method, uri, false).await;
            let answered = tokio::spawn(async move { read(response.await?).await });
            assert!(soon(|| retries(tries as f64 + 1.0)).await, "{uri} is tried again");
            send(&mut stream, b"body", true).await.expect("sent");
            let answer = answered.await.expect("a task").expect("an answer");
            assert_eq!(answer.status, 200, "{uri}");
        }
        let (response, _stream) = begin(&client, "POST", "http://a.test/die-unread", false).await;
        let answer = read(response.await.expect("a head")).await.expect("an answer");
        assert_eq!(code(&answer), Some("upstream_closed"), "nobody knows what a POST has done");
    });
    for (tries, line) in [(4.0, "PATCH /refuse-unread"), (5.0, "DELETE /die-unread")] {
        assert_eq!(ask(&proxy, &plain_get("/warm")).status, 200);
        let client = Client::open(proxy.address).expect("a connection");
        let head = format!("{line} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\n");
        client.send(head.as_bytes());
        assert!(poll(PATIENCE, || retries(tries)), "{line} is tried again");
        client.send(b"body");
        assert!(client.wait_responses(1, PATIENCE));
        assert_eq!(client.received().finals[0].status, 200, "{line}");
    }
    origin.look(|record| {
        let whole = record.requests.iter().filter(|seen| seen.whole && seen.body == b"body");
        assert_eq!(whole.count(), 4);
    });
    old.look(|record| assert_eq!(record.seen().last().expect("a request").body, b"body"));
}

/// The last frame of a gRPC-Web body, as text.
fn last_frame(body: &[u8]) -> String {
    let at = body.windows(5).position(|it| it[0] == 0x80).expect("a frame of trailers");
    assert_eq!(
        u32::from_be_bytes(body[at + 1..at + 5].try_into().expect("four")) as usize,
        body.len() - at - 5
    );
    String::from_utf8(body[at + 5..].to_vec()).expect("text")
}

/// A gRPC answer without a status at its end: the page is told so, and gets all of what came, from
/// origins of both versions, in both forms.
fn grpc_web_without_trailers(driver: &'static str) {
    let new = Http2Origin::start();
    let old = Origin::start();
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/grpc\r\n";
    // Two bytes of three wait in base64 for the rest of a message that never comes.
    let broken = format!("{head}Content-Length: 8\r\n\r\n\0\0\0\0\x09abc");
    old.script("/broken", vec![Op::Body, Op::Send(broken)]);
    let told = format!("{head}grpc-status: 0\r\nContent-Length: 8\r\n\r\n\0\0\0\0\x03abc");
    old.script("/told", vec![Op::Body, Op::Send(told)]);
    old.script("/none", vec![Op::Body, Op::Send(format!("{head}Content-Length: 0\r\n\r\n"))]);
    let upstreams = [
        upstream("main", &[endpoint(&old.address, 1)], ""),
        upstream("new", &[endpoint(&new.address, 1)], HTTP2),
    ];
    let filter = "filters = [\"web\"]";
    let routes = [
        "[filter.web]\nkind = \"grpc_web\"\n".to_owned(),
        route("new", "path = \"/grpc-untold\"", "new", filter),
        route("old", "prefix = \"/\"", "main", filter),
    ];
    let settings = Settings::new(driver, &old.address).listener(LISTENER);
    let proxy = Proxy::start(settings.upstreams(upstreams.concat()).routes(routes.concat()));
    let call = |path: &str, kind: &str| {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Type: {kind}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        let answer = ask(&proxy, request.as_bytes());
        assert_eq!((answer.status, answer.complete), (200, true), "{path}");
        assert_eq!(answer.code(), None, "{path}");
        match kind.contains("text") {
            true => decoded(&answer.body),
            false => answer.body.clone(),
        }
    };
    for kind in ["application/grpc-web+proto", "application/grpc-web-text+proto"] {
        for path in ["/broken", "/none", "/grpc-untold"] {
            let body = call(path, kind);
            let told = last_frame(&body);
            assert!(told.starts_with("grpc-status:13\r\ngrpc-message:"), "{path}: {told}");
            let messages: &[u8] = match path {
                "/broken" => b"\0\0\0\0\x09abc",
                "/none" => b"",
                _ => b"\0\0\0\0\x02ab",
            };
            assert!(body.starts_with(messages), "{path}: all that came");
        }
        assert_eq!(call("/told", kind), b"\0\0\0\0\x03abc", "the head has told the status");
    }
}

/// An origin that answers early and reads nothing of a body that came with the head: the exchange ends
/// with the answer, and not when the time to take the body is over.
fn early_answers_to_bodies_in_hand(driver: &'static str) {
    let mut shut = h2::server::Builder::new();
    shut.initial_window_size(0);
    let new = Http2Origin::start_with(shut);
    let old = Origin::start();
    let early = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    old.script("/early", vec![Op::Send(early.into()), Op::Hang]);
    let slow = "timeouts = { connect = \"1s\", response = \"8s\", body = \"8s\" }";
    let upstreams = [
        upstream("main", &[endpoint(&old.address, 1)], slow),
        upstream("new", &[endpoint(&new.address, 1)], &format!("protocol = \"http2\"\n{slow}")),
    ];
    let routes = [
        route("new", "path = \"/early-held\"", "new", ""),
        route("old", "prefix = \"/\"", "main", ""),
    ];
    let settings = Settings::new(driver, &old.address).listener(LISTENER);
    let proxy = Proxy::start(settings.upstreams(upstreams.concat()).routes(routes.concat()));
    let over = || proxy.metric("ringway_requests_in_flight", "") == 0.0;
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"POST /early-held HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody");
    assert!(client.wait_responses(1, ms(4_000)));
    assert_eq!(client.received().finals[0].status, 413);
    assert!(client.wait_end(ms(4_000)) && over(), "HTTP/1 to HTTP/2");
    block_on(async {
        let client = Http2::connect(proxy.address).await;
        for path in ["/early", "/early-held"] {
            let (response, mut stream) =
                begin(&client, "POST", &format!("http://a.test{path}"), false).await;
            // More than a socket takes, so that it is being sent when the answer comes.
            let body = vec![b'x'; 8 * 1024 * 1024];
            let sending = tokio::spawn(async move { send(&mut stream, &body, true).await });
            let answer = read(response.await.expect("a head")).await.expect("an answer");
            assert_eq!(answer.status, 413);
            assert!(soon(over).await, "HTTP/2 to {path}");
            sending.abort();
        }
    });
}

/// Many small parts come as they were sent, in their order, with their trailers; both ways, and to a
/// client that grants little.
fn many_small_parts(driver: &'static str) {
    let mut patient = h2::server::Builder::new();
    patient.data_frame_budget(16 * 1024 * 1024);
    let origin = Http2Origin::start_with(patient);
    let main = upstream("main", &[endpoint(&origin.address, 1)], HTTP2);
    let settings = Settings::new(driver, &origin.address).listener(LISTENER).upstreams(main);
    let proxy = Proxy::start(settings);
    let expected: Vec<u8> = (0..5_000).flat_map(|it| format!("{it};").into_bytes()).collect();
    block_on(async {
        for window in [100, 1024 * 1024] {
            let mut settings = h2::client::Builder::new();
            settings.initial_window_size(window).data_frame_budget(16 * 1024 * 1024);
            let client = Http2::connect_with(proxy.address, &settings).await;
            let (response, _) = begin(&client, "GET", "http://a.test/parts/5000", true).await;
            let answer = read(response.await.expect("a head")).await.expect("an answer");
            assert!(answer.body == expected, "{} bytes", answer.body.len());
            assert_eq!(answer.trailers.expect("trailers")["grpc-status"], "0");
        }
        let client = Http2::connect(proxy.address).await;
        let (response, mut stream) = begin(&client, "POST", "http://a.test/up", false).await;
        for part in expected.split_inclusive(|byte| *byte == b';') {
            send(&mut stream, part, false).await.expect("sent");
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-up", http::HeaderValue::from_static("1"));
        stream.send_trailers(trailers).expect("sent");
        assert_eq!(read(response.await.expect("a head")).await.expect("an answer").status, 200);
    });
    origin.look(|record| {
        let seen = record.requests.last().expect("a request");
        assert!(seen.whole && seen.body == expected, "{} bytes", seen.body.len());
        assert_eq!(seen.trailers.as_ref().expect("trailers")["x-up"], "1");
    });
}

/// Base64 in pieces, each maybe padded.
fn decoded(text: &[u8]) -> Vec<u8> {
    let fours = text.chunks(4);
    fours.flat_map(|four| STANDARD.decode(four).expect("base64")).collect()
}

async fn begin(
    client: &Http2,
    method: &str,
    uri: &str,
    end: bool,
) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::builder().method(method).uri(uri).body(()).expect("a request");
    let mut ready = client.sender.clone().ready().await.expect("ready");
    ready.send_request(request, end).expect("begun")
}

async fn soon(mut ready: impl FnMut() -> bool) -> bool {
    for _ in 0..200 {
        if ready() {
            return true;
        }
        tokio::time::sleep(ms(5)).await;
    }
    false
}

fn ask(proxy: &Proxy, request: &[u8]) -> Response {
    let received = harness::client::ask(proxy.address, request, PATIENCE).expect("an answer");
    received.finals.into_iter().next_back().expect("a final answer")
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    tunnels_that_were_not_opened slow_but_alive tries_before_a_body_was_read grpc_web_without_trailers early_answers_to_bodies_in_hand
    many_small_parts
}
