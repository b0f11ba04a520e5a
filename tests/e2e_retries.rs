//! Requests that are tried again: what for, where, with which body, and what an outage costs.

mod harness;

use std::time::Instant;

use harness::client::{ask, plain_get};
use harness::http2::block_on;
use harness::http2_origin::{Http2Origin, Seen};
use harness::origin::Op;
use harness::proxy::{endpoint, route, upstream};
use harness::{Client, Origin, Proxy, Response, Settings, ms, poll};

const TIMEOUTS: &str =
    "timeouts = { connect = \"1s\", response = \"2s\", body = \"1s\", idle = \"5s\" }";

/// A proxy in front of these origins, in turn, with these keys of `retry`.
fn proxy(driver: &'static str, origins: &[&str], retry: &str) -> Proxy {
    let endpoints: Vec<String> = origins.iter().map(|address| endpoint(address, 1)).collect();
    // What is tried is counted here: nobody is to be isolated meanwhile.
    let more = format!("{TIMEOUTS}\nretry = {{ {retry} }}\nbreaker = {{ endpoint = false }}");
    let section = upstream("main", &endpoints, &more);
    Proxy::start(Settings::new(driver, "127.0.0.1:1").upstreams(section))
}

fn send(proxy: &Proxy, request: &str) -> Response {
    let received = ask(proxy.address, request.as_bytes(), ms(5_000)).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

fn get(proxy: &Proxy, path: &str) -> Response {
    send(proxy, &String::from_utf8(plain_get(path)).expect("text"))
}

fn unavailable() -> Vec<Op> {
    vec![Op::Body, Op::Send("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy".into())]
}

fn count(origin: &Origin) -> usize {
    origin.look(|record| record.seen().count())
}

/// An answer that is given up goes to nobody; the next endpoint's does.
fn statuses_are_tried_at_another_endpoint(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    bad.otherwise(unavailable());
    let proxy = proxy(driver, &[&bad.address, &good.address], "on = [\"503\"], tries = 2");
    for number in 0..10 {
        let answer = get(&proxy, &format!("/{number}"));
        assert_eq!(answer.status, 200, "request {number}");
    }
    assert_eq!((count(&bad), count(&good)), (5, 10), "half of them were tried twice");
    assert_eq!(
        bad.look(|record| record.connections.len()),
        1,
        "a small answer was read to its end"
    );
    let retries = "ringway_upstream_endpoint_retries_total";
    assert_eq!(proxy.metric(retries, &bad.address), 5.0, "they are counted");
    let post = "POST /post HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi";
    let statuses: Vec<u16> = (0..2).map(|_| send(&proxy, post).status).collect();
    assert!(statuses.contains(&503), "a POST is never sent twice: {statuses:?}");
    assert_eq!(count(&bad) + count(&good), 17, "each once");
}

/// Without the key, an answer is an answer.
fn statuses_are_passed_on_unasked(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    bad.otherwise(unavailable());
    let proxy = proxy(driver, &[&bad.address, &good.address], "");
    let statuses: Vec<u16> = (0..4).map(|n| get(&proxy, &format!("/{n}")).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 2, "{statuses:?}");
    assert_eq!(proxy.metric("ringway_retries_total", ""), 0.0);
}

/// The last try's answer is the client's, however it looks.
fn tries_are_bounded(driver: &'static str) {
    let origin = Origin::start();
    origin.otherwise(unavailable());
    let proxy = proxy(driver, &[&origin.address], "on = [\"503\"], tries = 3");
    let answer = get(&proxy, "/x");
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (503, &b"busy"[..]),
        "passed on as it came"
    );
    assert_eq!(count(&origin), 3, "three tries");
}

/// A connection that is cut before, or in, the head of an answer.
fn resets_are_tried_again(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    let proxy = proxy(driver, &[&bad.address, &good.address], "on = [\"reset\"], tries = 2");
    let ends = [
        vec![Op::Body, Op::Close],
        vec![Op::Body, Op::Reset],
        vec![Op::Body, Op::Send("HTTP/1.1 200 O".into()), Op::Close],
    ];
    for (number, end) in ends.into_iter().enumerate() {
        bad.otherwise(end);
        for turn in 0..2 {
            let answer = get(&proxy, &format!("/{number}/{turn}"));
            assert_eq!(answer.status, 200, "end {number}, turn {turn}");
        }
    }
    // Once the client has seen a head, there is no second try.
    bad.otherwise(vec![
        Op::Body,
        Op::Send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".into()),
        Op::Close,
    ]);
    let before = count(&bad) + count(&good);
    for turn in 0..2 {
        drop(ask(proxy.address, &plain_get(&format!("/late/{turn}")), ms(5_000)));
    }
    assert_eq!(count(&bad) + count(&good), before + 2, "each was sent once");
}

/// A 1xx that the client was told is the first of its answer.
fn interim_answers_end_the_tries(driver: &'static str) {
    let origin = Origin::start();
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    origin.otherwise(vec![Op::Body, Op::Send(hint.into()), Op::Send(busy.into())]);
    let proxy = proxy(driver, &[&origin.address], "on = [\"503\", \"reset\"], tries = 3");
    assert_eq!(get(&proxy, "/x").status, 503);
    assert_eq!(count(&origin), 1, "it was told of a 103");
}

/// A try that hangs gives way to the next; `timeouts.total` holds over all of them.
fn a_try_has_a_time_of_its_own(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    bad.otherwise(vec![Op::Hang]);
    let keys = "on = [\"timeout\"], tries = 4, per_try_timeout = \"200ms\"";
    let retry = format!("{TIMEOUTS}\nretry = {{ {keys} }}");
    let sections =
        upstream("main", &[endpoint(&bad.address, 1), endpoint(&good.address, 1)], &retry)
            + &upstream("hung", &[endpoint(&bad.address, 1)], &retry);
    let routes = route("all", "prefix = \"/\"", "main", "")
        + &route("total", "path = \"/total\"", "hung", "timeouts = { total = \"300ms\" }")
        + &route("hung", "path = \"/hung\"", "hung", "");
    let settings = Settings::new(driver, "").upstreams(sections).routes(routes);
    let proxy = Proxy::start(settings);
    for number in 0..4 {
        let began = Instant::now();
        assert_eq!(get(&proxy, &format!("/{number}")).status, 200, "request {number}");
        assert!(began.elapsed() < ms(1_500), "the upstream's own timeout is 2 s");
    }
    let seen = count(&bad);
    let answer = get(&proxy, "/total");
    assert_eq!((answer.status, answer.code()), (504, Some("total_timeout".into())));
    assert_eq!(count(&bad), seen + 2, "there was no time for a third try");
    let answer = get(&proxy, "/hung");
    assert_eq!((answer.status, answer.code()), (504, Some("response_timeout".into())));
    assert_eq!(count(&bad), seen + 6, "four tries");
    let let_go = bad.wait(ms(2_000), |record| record.in_flight.0 == 0);
    assert!(let_go, "what hung was let go");
}

/// A body is sent from its beginning again, whatever came with the head, in chunks or not.
fn bodies_are_sent_again(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    let keys = "on = [\"503\", \"reset\"], tries = 2, methods = [\"GET\", \"PUT\", \"POST\"], \
                body_bytes_max = \"32KiB\"";
    let proxy = proxy(driver, &[&bad.address, &good.address], keys);
    let body: String = (0..20_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    for (number, end) in [unavailable(), vec![Op::Body, Op::Close]].into_iter().enumerate() {
        bad.otherwise(end);
        for turn in 0..2 {
            let head = format!("POST /length-{number}-{turn} HTTP/1.1\r\nHost: a.test\r\n");
            let client = Client::open(proxy.address).expect("a connection");
            client.send(format!("{head}Content-Length: 20000\r\n\r\n{}", &body[..10]).as_bytes());
            let has_begun = |origin: &Origin| origin.look(|record| record.in_flight.0 > 0);
            assert!(poll(ms(2_000), || has_begun(&bad) || has_begun(&good)), "it streams");
            client.send(&body.as_bytes()[10..]);
            assert!(client.wait_responses(1, ms(3_000)), "an answer");
            assert_eq!(client.received().finals[0].status, 200, "{head}");
            let head = format!("PUT /chunks-{number}-{turn} HTTP/1.1\r\nHost: a.test\r\n");
            let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
            body.as_bytes().chunks(1_700).for_each(|piece| {
                client.send(chunk(std::str::from_utf8(piece).expect("ASCII")).as_bytes());
            });
            client.send(b"0\r\n\r\nGET /next HTTP/1.1\r\nHost: a.test\r\n\r\n");
            assert!(client.wait_responses(3, ms(3_000)), "answers, that to what follows included");
            let statuses: Vec<u16> =
                client.received().finals.iter().map(|answer| answer.status).collect();
            assert_eq!(statuses, [200; 3], "{head}");
        }
    }
    good.look(|record| {
        for request in record.seen().filter(|request| request.target != b"/next") {
            assert!(request.complete && request.body == body.as_bytes(), "{:?}", request.line());
        }
    });
    let seen = |origin: &Origin| {
        origin.look(|record| record.seen().filter(|r| r.target.starts_with(b"/length")).count())
    };
    assert!(seen(&bad) > 0 && seen(&good) == 4, "all of them ended there");
}

/// An answer that comes before the body has: what was sent is sent again, then the rest follows.
fn early_answers_leave_a_body_whole(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    let busy = "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    bad.otherwise(vec![Op::BodyBytes(4), Op::Send(busy.into()), Op::Close]);
    let keys = "on = [\"503\"], tries = 2, methods = [\"PUT\"]";
    let proxy = proxy(driver, &[&bad.address, &good.address], keys);
    for turn in 0..2 {
        let client = Client::open(proxy.address).expect("a connection");
        let head = "Host: a.test\r\nContent-Length: 12\r\n\r\n";
        client.send(format!("PUT /{turn} HTTP/1.1\r\n{head}abcd").as_bytes());
        let target = format!("/{turn}");
        let here = good.wait(ms(3_000), |record| {
            record.seen().any(|request| request.target == target.as_bytes())
        });
        assert!(here, "it got to the good one");
        client.send(b"efghijkl");
        assert!(client.wait_responses(1, ms(3_000)), "an answer");
        assert_eq!(client.received().finals[0].status, 200);
    }
    good.look(|record| {
        assert!(record.seen().all(|request| request.body == b"abcdefghijkl"), "whole bodies");
    });
    assert!(count(&bad) > 0, "the other was tried first");
}

/// A body beyond the bound is passed on as ever, and is not sent again.
fn long_bodies_are_sent_once(driver: &'static str) {
    let origin = Origin::start();
    origin.otherwise(unavailable());
    let keys =
        "on = [\"503\", \"reset\"], tries = 3, methods = [\"PUT\"], body_bytes_max = \"1KiB\"";
    let proxy = proxy(driver, &[&origin.address], keys);
    let body = "x".repeat(40_000);
    let long = format!("PUT /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 40000\r\n\r\n{body}");
    assert_eq!(send(&proxy, &long).status, 503);
    assert_eq!(count(&origin), 1, "sent once");
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunks = chunk.repeat(60);
    let head = "PUT /b HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(send(&proxy, &format!("{head}{chunks}0\r\n\r\n")).status, 503);
    assert_eq!(count(&origin), 2, "sent once");
}

/// A full outage costs an origin a fifth more and not a request beyond it, whatever fails: answers,
/// or connections. Two workers, each with a budget of its own.
fn an_outage_is_not_multiplied(driver: &'static str) {
    for (reason, script) in [("503", unavailable()), ("reset", vec![Op::Body, Op::Close])] {
        let origin = Origin::start();
        origin.otherwise(script);
        let section = upstream(
            "main",
            &[endpoint(&origin.address, 1)],
            &format!("{TIMEOUTS}\nretry = {{ on = [\"stale\", \"{reason}\"], tries = 5 }}"),
        );
        let settings = Settings::new(driver, "").workers(2).upstreams(section);
        let proxy = Proxy::start(settings);
        std::thread::scope(|scope| {
            for thread in 0..10 {
                let proxy = &proxy;
                scope.spawn(move || {
                    for part in 0..10 {
                        let client = Client::open(proxy.address).expect("a connection");
                        for number in 1..=REQUESTS / 100 {
                            let path = format!("/{thread}/{part}/{number}");
                            client.send(
                                format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes(),
                            );
                            assert!(client.wait_responses(number, ms(5_000)), "answer {number}");
                        }
                    }
                });
            }
        });
        let seen = count(&origin);
        assert!(seen <= REQUESTS * 120 / 100, "{reason}: {seen} of {REQUESTS}");
        assert!(seen > REQUESTS * 115 / 100, "{reason}: the budget is used, {seen}");
        assert_eq!(proxy.metric("ringway_retries_total", ""), (seen - REQUESTS) as f64);
        let denied = proxy.metric("ringway_retries_denied_total", "main");
        assert!(denied >= (REQUESTS * 80 / 100) as f64, "{reason}: {denied} were denied");
    }
}

const REQUESTS: usize = 5_000;

/// Refused connections cost the endpoint that still lives a fifth at most.
fn refusals_are_not_multiplied(driver: &'static str) {
    let gone = harness::proxy::free_address().to_string();
    let gone_too = harness::proxy::free_address().to_string();
    let proxy = proxy(driver, &[&gone, &gone_too], "on = [\"connect\"], tries = 3");
    let client = Client::open(proxy.address).expect("a connection");
    for number in 1..=1_000 {
        client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(client.wait_responses(number, ms(5_000)), "answer {number}");
    }
    assert!(client.received().finals.iter().all(|answer| answer.status == 502));
    let failures = proxy.metric("ringway_upstream_endpoint_connect_failures_total", &gone)
        + proxy.metric("ringway_upstream_endpoint_connect_failures_total", &gone_too);
    assert_eq!(failures, 1_200.0, "a fifth was tried again");
}

/// A route's word holds in the place of its upstream's.
fn routes_say_otherwise(driver: &'static str) {
    let origin = Origin::start();
    origin.otherwise(unavailable());
    let section = upstream(
        "main",
        &[endpoint(&origin.address, 1)],
        &format!("{TIMEOUTS}\nretry = {{ on = [\"503\"], tries = 2 }}"),
    );
    let routes = route("all", "prefix = \"/\"", "main", "")
        + &route("once", "path = \"/once\"", "main", "retry = { tries = 1, on = [\"503\"] }")
        + &route("four", "path = \"/four\"", "main", "retry = { tries = 4, on = [\"503\"] }");
    let settings = Settings::new(driver, "").upstreams(section).routes(routes);
    let proxy = Proxy::start(settings);
    for (path, tries) in [("/once", 1), ("/x", 2), ("/four", 4)] {
        let before = count(&origin);
        assert_eq!(get(&proxy, path).status, 503, "{path}");
        assert_eq!(count(&origin) - before, tries, "{path}");
    }
}

/// The same between versions: a client and an origin of HTTP/2, with a body whose trailers stay.
fn http2_bodies_are_sent_again(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    bad.otherwise(unavailable());
    let keys = "on = [\"503\"], tries = 2, methods = [\"PUT\"]";
    let endpoints = [endpoint(&bad.address, 1), endpoint(&good.address, 1)];
    let section = upstream("main", &endpoints, &format!("{TIMEOUTS}\nretry = {{ {keys} }}"));
    let settings = Settings::new(driver, "").listener("h2c = true\n").upstreams(section);
    let proxy = Proxy::start(settings);
    block_on(async {
        let socket = tokio::net::TcpStream::connect(proxy.address).await.expect("a connection");
        let (mut sender, connection) = h2::client::handshake(socket).await.expect("a handshake");
        tokio::spawn(connection);
        for turn in 0..4 {
            sender = sender.ready().await.expect("ready");
            let request = http::Request::put(format!("http://a.test/{turn}"));
            let request = request.body(()).expect("a request");
            let (answer, mut body) = sender.send_request(request, false).expect("sent");
            for piece in 0..30_u8 {
                let data = vec![b'a' + piece % 26; 1_000];
                body.send_data(data.into(), false).expect("sent");
            }
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-sum", http::HeaderValue::from_static("7"));
            body.send_trailers(trailers).expect("sent");
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.status(), 200, "turn {turn}");
            let mut body = answer.into_body();
            while let Some(data) = body.data().await {
                data.expect("data");
            }
        }
    });
    let whole: Vec<u8> = (0..30_u8).flat_map(|piece| vec![b'a' + piece % 26; 1_000]).collect();
    good.look(|record| {
        assert_eq!(record.seen().count(), 4, "all ended there");
        assert!(record.seen().all(|request| request.complete && request.body == whole));
    });
    assert_eq!(count(&bad), 2, "half of them were tried there first");
}

/// An origin that speaks HTTP/2 and does not answer: its stream is given up, and the next try has the
/// whole body again, from clients of either version.
fn http2_upstreams_get_bodies_again(driver: &'static str) {
    let origin = Http2Origin::start();
    let keys = "on = [\"timeout\"], tries = 2, methods = [\"PUT\"], per_try_timeout = \"300ms\"";
    let section = upstream(
        "main",
        &[endpoint(&origin.address, 1)],
        &format!("{TIMEOUTS}\nprotocol = \"http2\"\nretry = {{ {keys} }}"),
    );
    let settings = Settings::new(driver, "").listener("h2c = true\n").upstreams(section);
    let proxy = Proxy::start(settings);
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1_000));
    let head = "PUT /sleep/5000 HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = send(&proxy, &format!("{head}{}0\r\n\r\n", chunk.repeat(30)));
    assert_eq!((answer.status, answer.code()), (504, Some("response_timeout".into())));
    let whole = || {
        origin.look(|record| {
            let right = |seen: &&Seen| seen.whole && seen.body == vec![b'x'; 30_000];
            record.requests.iter().filter(right).count()
        })
    };
    assert_eq!((origin.count(), whole()), (2, 2), "both tries had all of it");
    block_on(async {
        let socket = tokio::net::TcpStream::connect(proxy.address).await.expect("a connection");
        let (sender, connection) = h2::client::handshake(socket).await.expect("a handshake");
        tokio::spawn(connection);
        let mut sender = sender.ready().await.expect("ready");
        let request = http::Request::put("http://a.test/sleep/5000").body(()).expect("a request");
        let (answer, mut body) = sender.send_request(request, false).expect("sent");
        for piece in 1..=30 {
            body.send_data(vec![b'x'; 1_000].into(), piece == 30).expect("sent");
        }
        assert_eq!(answer.await.expect("an answer").status(), 504);
    });
    assert_eq!((origin.count(), whole()), (4, 4), "both tries had all of it");
    assert_eq!(origin.look(|record| record.connections), 1, "only streams were given up");
    assert!(poll(ms(2_000), || proxy.metric("ringway_upstream_http2_streams", "") == 0.0));
}

/// A client that takes its time with its body uses up the time of the try: that is nothing that its
/// endpoint has done, and isolates nobody.
fn slow_uploads_isolate_nobody(driver: &'static str) {
    let origins = [Origin::start(), Origin::start()];
    let endpoints = origins.each_ref().map(|origin| endpoint(&origin.address, 1));
    let keys = "retry = { on = [\"timeout\"], tries = 1, per_try_timeout = \"100ms\" }\n\
                breaker = { endpoint = { consecutive = 3, error_percent = 0 } }";
    let section = upstream("main", &endpoints, &format!("{TIMEOUTS}\n{keys}"));
    let proxy = Proxy::start(Settings::new(driver, "").upstreams(section));
    for _ in 0..8 {
        let head = "PUT /slow HTTP/1.1\r\nHost: a.test\r\nContent-Length: 12\r\n\r\nabcd";
        let answer = send(&proxy, head);
        assert_eq!((answer.status, answer.code()), (504, Some("response_timeout".into())));
    }
    let before = origins.each_ref().map(count);
    (0..8).for_each(|number| assert_eq!(get(&proxy, &format!("/{number}")).status, 200));
    let after = origins.each_ref().map(count);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [4, 4], "both are in");
    // An origin that has the whole request and says nothing is another matter.
    origins[0].script("/silent", vec![Op::Body, Op::Hang]);
    let statuses: Vec<u16> = (0..8).map(|_| get(&proxy, "/silent").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 504).count(), 3, "{statuses:?}");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    statuses_are_tried_at_another_endpoint statuses_are_passed_on_unasked tries_are_bounded
    resets_are_tried_again interim_answers_end_the_tries a_try_has_a_time_of_its_own
    bodies_are_sent_again early_answers_leave_a_body_whole long_bodies_are_sent_once
    an_outage_is_not_multiplied refusals_are_not_multiplied routes_say_otherwise
    http2_bodies_are_sent_again http2_upstreams_get_bodies_again slow_uploads_isolate_nobody
}
