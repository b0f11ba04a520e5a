//! Requests that a second endpoint is asked for while the first has no answer: which are, who wins,
//! what becomes of the other, and what it costs.

mod harness;

use std::time::{Duration, Instant};

use harness::client::{ask, plain_get};
use harness::http2::{Http2, block_on};
use harness::origin::{Op, Script};
use harness::proxy::{Folder, endpoint, route, upstream};
use harness::{Client, Origin, PATIENCE, Proxy, Response, Settings, ms, poll};

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

/// A proxy in front of two origins, with these keys of `retry`.
fn proxy(driver: &'static str, first: &str, second: &str, retry: &str) -> Proxy {
    let more = format!("{TIMEOUTS}\nbreaker = {{ endpoint = false }}\nretry = {{ {retry} }}");
    start(driver, two(first, second, &more))
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

fn count(origin: &Origin) -> usize {
    origin.look(|record| record.seen().count())
}

fn is_let_go(origin: &Origin) -> bool {
    origin.wait(PATIENCE, |record| record.in_flight.0 == 0)
}

/// Begun, and won by the second.
fn hedges(proxy: &Proxy) -> (f64, f64) {
    let total = |name| proxy.metric(name, "upstream=\"main\"");
    (total("ringway_hedges_total"), total("ringway_hedges_won_total"))
}

fn after(time: u64, then: Script) -> Script {
    [vec![Op::Body, Op::Sleep(time)], then].concat()
}

fn busy() -> Op {
    Op::Send("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy".into())
}

/// The second answers for a first that hangs, whose connection is closed and carries nothing more.
fn a_slow_endpoint_gives_way(driver: &'static str) {
    let (slow, good) = (Origin::start(), Origin::start());
    slow.otherwise(vec![Op::Hang]);
    let proxy = proxy(driver, &slow.address, &good.address, PLAIN);
    let client = Client::open(proxy.address).expect("a connection");
    for number in 1..=3 {
        let began = Instant::now();
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes());
        assert!(client.wait_responses(number, PATIENCE), "answer {number}");
        assert!(began.elapsed() >= ms(50), "the first had its time");
        assert!(is_let_go(&slow), "the other is let go");
    }
    let answers = client.received().finals;
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body == b"ok"));
    assert_eq!((count(&slow), count(&good)), (3, 3), "both were asked, each once");
    let closed = slow.wait(PATIENCE, |record| {
        record.connections.iter().filter(|connection| connection.by_proxy).count() == 3
    });
    let made = slow.look(|record| record.connections.len());
    assert!(closed && made == 3, "none of them was used again, and all are closed: {made}");
    assert_eq!(good.look(|record| record.connections.len()), 1, "that of the answer was");
    assert_eq!(hedges(&proxy), (3.0, 3.0));
    assert_eq!(proxy.metric("ringway_retries_total", ""), 0.0, "nothing was tried again");
    let answered = proxy.metric("ringway_upstream_requests_total", &good.address);
    assert_eq!(answered, 3.0, "by whom they were answered");
    let in_flight = proxy.metric("ringway_upstream_endpoint_requests_in_flight", "");
    assert_eq!(in_flight, 0.0, "nothing is left");
}

/// The first is asked alone where it answers in time; where it answers after all, the second is let go.
fn the_first_may_still_win(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    second.otherwise(vec![Op::Hang]);
    let proxy = proxy(driver, &first.address, &second.address, "hedge_after = \"300ms\"");
    (0..20).for_each(|number| assert_eq!(get(&proxy, &format!("/quick/{number}")).status, 200));
    assert_eq!((count(&second), hedges(&proxy)), (0, (0.0, 0.0)), "nobody else was asked");
    first.otherwise(after(600, vec![Op::Ok]));
    assert_eq!(get(&proxy, "/slow").status, 200);
    assert!(is_let_go(&second) && count(&second) == 1, "it was asked, and let go");
    assert_eq!(hedges(&proxy), (1.0, 0.0));
    first.otherwise(vec![Op::Body, Op::Ok]);
    assert_eq!(get(&proxy, "/next").status, 200);
    assert_eq!(first.look(|record| record.connections.len()), 1, "its connection goes on");
}

/// A balancer by latency learns from a try that lost how slow its endpoint is at least.
fn who_has_lost_looks_slow(driver: &'static str) {
    let (slow, good) = (Origin::start(), Origin::start());
    slow.otherwise(after(500, vec![Op::Ok]));
    let endpoints = [endpoint(&slow.address, 1), endpoint(&good.address, 1)];
    let retry = "retry = { tries = 2, hedge_after = \"50ms\", budget_percent = 100 }";
    let more = format!("{TIMEOUTS}\nbalance = \"ewma\"\n{retry}");
    let proxy = start(driver, upstream("main", &endpoints, &more));
    (0..20).for_each(|number| assert_eq!(get(&proxy, &format!("/{number}")).status, 200));
    // One of eight choices of two is none.
    assert!(count(&slow) <= 10, "{} of 20 were sent there", count(&slow));
}

/// An endpoint that hangs is found: behind five tries that were cut off one is waited for, and once that
/// has failed as many as it takes.
fn who_hangs_is_isolated(driver: &'static str) {
    let (hung, good) = (Origin::start(), Origin::start());
    hung.otherwise(vec![Op::Hang]);
    let more = "timeouts = { response = \"300ms\" }\nretry = { tries = 2, hedge_after = \"20ms\" }\n\
         breaker = { open = \"60s\", endpoint = { consecutive = 2 }, floor_percent = 0 }";
    let proxy = start(driver, two(&hung.address, &good.address, more));
    let statuses: Vec<u16> = (0..5).map(|_| get(&proxy, "/").status).collect();
    assert_eq!((statuses, hedges(&proxy)), (vec![200; 5], (5.0, 5.0)));
    assert_eq!(get(&proxy, "/alone").status, 504, "it is waited for");
    assert_eq!((get(&proxy, "/alone").status, hedges(&proxy).0), (504, 5.0));
    (0..5).for_each(|_| assert_eq!(get(&proxy, "/").status, 200));
    assert_eq!((count(&hung), hedges(&proxy).0), (7, 5.0), "it is isolated, and is not asked");
}

/// One that is only slow shows it once in six times, and is not isolated for it.
fn who_is_slow_is_not(driver: &'static str) {
    let (slow, good) = (Origin::start(), Origin::start());
    slow.otherwise(after(200, vec![Op::Ok]));
    let more = format!(
        "{TIMEOUTS}\nretry = {{ tries = 2, hedge_after = \"20ms\", budget_percent = 100 }}\n\
         breaker = {{ endpoint = {{ consecutive = 1 }}, floor_percent = 0 }}"
    );
    let proxy = start(driver, two(&slow.address, &good.address, &more));
    (0..18).for_each(|_| assert_eq!(get(&proxy, "/").status, 200));
    assert_eq!((count(&slow), count(&good), hedges(&proxy)), (18, 15, (15.0, 15.0)));
}

/// Bodies that are in hand are sent twice, as they came; answers come back whole, however long.
fn bodies_are_whole(driver: &'static str) {
    let (slow, good) = (Origin::start(), Origin::start());
    slow.otherwise(vec![Op::Hang]);
    let length = 4 * 1024 * 1024;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    good.otherwise(vec![Op::Body, Op::Send(head), Op::Fill(length)]);
    let proxy = proxy(driver, &slow.address, &good.address, PLAIN);
    for body in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let answer = send(&proxy, &format!("PUT /a HTTP/1.1\r\nHost: a.test\r\n{body}"));
        assert_eq!((answer.status, answer.body.len() as u64), (200, length), "{body}");
        assert!(answer.complete && answer.body.iter().all(|byte| *byte == b'x'));
    }
    good.look(|record| {
        assert!(record.seen().all(|request| request.complete && request.body == b"hello"));
    });
    assert_eq!(hedges(&proxy), (2.0, 2.0));
    assert_eq!(good.look(|record| record.connections.len()), 1, "they were read to their ends");
}

/// What may do more when it is done twice, what is not whole, what opens a tunnel, and what has nobody
/// else to go to.
fn what_is_not_hedged(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    first.otherwise(after(250, vec![Op::Ok]));
    let keys = "tries = 3, hedge_after = \"50ms\", methods = [\"GET\", \"POST\", \"PATCH\"]";
    let sections =
        two(&first.address, &second.address, &format!("{TIMEOUTS}\nretry = {{ {keys} }}"))
            + &upstream(
                "alone",
                &[endpoint(&first.address, 1)],
                &format!("{TIMEOUTS}\nretry = {{ {keys} }}"),
            );
    let routes = route("all", "prefix = \"/\"", "main", "")
        + &route("alone", "path = \"/alone\"", "alone", "")
        + &route("once", "path = \"/once\"", "main", "retry = { tries = 2 }");
    let settings = Settings::new(driver, "").listener(LISTENER).upstreams(sections);
    let proxy = Proxy::start(settings.routes(routes));
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    for (line, rest) in [
        ("POST /", "Content-Length: 2\r\n\r\nhi"),
        ("PATCH /", "Content-Length: 2\r\n\r\nhi"),
        // It is idempotent, and not one of `methods`.
        ("PUT /", "Content-Length: 2\r\n\r\nhi"),
        ("GET /ws", upgrade),
        ("GET /alone", "\r\n"),
        ("GET /once", "\r\n"),
    ] {
        let answer = send(&proxy, &format!("{line} HTTP/1.1\r\nHost: a.test\r\n{rest}"));
        assert_eq!(answer.status, 200, "{line}");
    }
    // One whose body is still coming when it is sent.
    first.script("/later", vec![Op::BodyBytes(2), Op::Sleep(250), Op::Body, Op::Ok]);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /later HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbo");
    let came = first.wait(PATIENCE, |record| record.seen().any(|it| it.target == b"/later"));
    assert!(came && client.send(b"dy") && client.wait_responses(1, PATIENCE));
    assert_eq!((count(&first), count(&second)), (7, 0));
    assert_eq!(proxy.metric("ringway_hedges_total", ""), 0.0);
}

/// A hedge is paid for like a retry.
fn a_budget_that_is_spent_pays_for_none(driver: &'static str) {
    let (slow, good) = (Origin::start(), Origin::start());
    slow.otherwise(after(400, vec![Op::Ok]));
    let keys = "tries = 2, hedge_after = \"50ms\", budget_percent = 1";
    let proxy = proxy(driver, &slow.address, &good.address, keys);
    // Behind five that lose one is waited for.
    (0..14).for_each(|number| assert_eq!(get(&proxy, &format!("/{number}")).status, 200));
    assert_eq!((count(&slow), count(&good)), (14, 10), "ten are lent");
    assert_eq!(hedges(&proxy), (10.0, 10.0));
    assert_eq!(proxy.metric("ringway_retries_denied_total", "main"), 2.0);
}

/// One hedge a request, and one answer, however many tries there may be.
fn both_are_slow(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    first.otherwise(after(800, vec![Op::Ok]));
    second.otherwise(after(300, vec![Op::Ok]));
    let proxy = proxy(driver, &first.address, &second.address, "tries = 5, hedge_after = \"50ms\"");
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_responses(1, PATIENCE) && is_let_go(&first));
    client.send(b"GET /b HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    assert!(client.wait_end(PATIENCE));
    assert_eq!(client.received().complete(), 2, "one answer each");
    assert!(client.received().rest.is_empty());
    assert_eq!((count(&first), count(&second)), (2, 2), "two tries each");
}

/// A first that fails while the second goes on is not tried again: the second's answer is awaited. The
/// same of one whose answer would be given up.
fn the_other_is_awaited(driver: &'static str) {
    let ends = [
        ("reset", vec![Op::Close]),
        ("reset", vec![Op::Send("HTTP/1.1 200 O".into()), Op::Reset]),
        ("503", vec![busy()]),
    ];
    for (on, end) in ends {
        for bad_first in [true, false] {
            let (bad, good) = (Origin::start(), Origin::start());
            // The second is asked after 50 ms.
            bad.otherwise(after(if bad_first { 200 } else { 50 }, end.clone()));
            good.otherwise(after(500, vec![Op::Ok]));
            let addresses = match bad_first {
                true => [&bad.address, &good.address],
                false => [&good.address, &bad.address],
            };
            let keys = format!("tries = 4, hedge_after = \"50ms\", on = [\"{on}\"]");
            let proxy = proxy(driver, addresses[0], addresses[1], &keys);
            assert_eq!(get(&proxy, "/").status, 200, "{on}: {end:?}");
            assert_eq!((count(&bad), count(&good)), (1, 1), "{on}: {end:?}");
            let won = f64::from(u8::from(bad_first));
            assert_eq!(hedges(&proxy), (1.0, won), "{on}: {end:?}");
            assert_eq!(proxy.metric("ringway_retries_total", ""), 0.0);
        }
    }
}

/// An answer that is no reason for another try wins, whatever its status.
fn a_status_that_is_not_listed_wins(driver: &'static str) {
    let (bad, good) = (Origin::start(), Origin::start());
    bad.otherwise(after(150, vec![busy()]));
    good.otherwise(vec![Op::Hang]);
    let proxy = proxy(driver, &bad.address, &good.address, PLAIN);
    let answer = get(&proxy, "/");
    assert_eq!((answer.status, answer.body.as_slice()), (503, &b"busy"[..]));
    assert!(is_let_go(&good));
}

/// Once both have failed, it is tried again as ever, or the client is told of the last failure. The
/// last answer is the client's, even one that would be given up.
fn both_fail(driver: &'static str) {
    for (tries, on, first_end, end, told) in [
        (2, "reset", vec![busy()], vec![Op::Close], 502),
        (3, "reset", vec![Op::Close], vec![Op::Close], 502),
        (2, "503", vec![Op::Close], vec![busy()], 503),
        (3, "503", vec![busy()], vec![busy()], 503),
    ] {
        let (first, second) = (Origin::start(), Origin::start());
        first.otherwise(after(200, first_end));
        second.otherwise(after(400, end));
        let keys = format!("tries = {tries}, hedge_after = \"50ms\", on = [\"{on}\", \"503\"]");
        let proxy = proxy(driver, &first.address, &second.address, &keys);
        let answer = get(&proxy, "/");
        assert_eq!(answer.status, told, "{tries} {on}");
        if told == 502 {
            assert!(answer.code().is_some_and(|code| code.starts_with("upstream_")), "{answer:?}");
        }
        assert_eq!(count(&first) + count(&second), tries, "{tries} {on}");
        let won = f64::from(u8::from((tries, told) == (2, 503)));
        assert_eq!(hedges(&proxy), (1.0, won), "{tries} {on}");
        let retries = proxy.metric("ringway_retries_total", "");
        assert_eq!(retries, (tries - 2) as f64, "{tries} {on}");
    }
}

/// What is tried after both have failed is neither of them, where there is a third.
fn a_third_is_tried_where_both_fail(driver: &'static str) {
    let origins = [Origin::start(), Origin::start(), Origin::start()];
    for (first_fails_at, second_fails_at) in [(200, 300), (500, 50)] {
        let fails = |at| after(at, vec![Op::Send("HTTP/1.1 200 O".into()), Op::Close]);
        origins[0].otherwise(fails(first_fails_at));
        origins[1].otherwise(fails(second_fails_at));
        let endpoints = [(0, 65_535), (1, 65_535), (2, 1)]
            .map(|(at, weight): (usize, u32)| endpoint(&origins[at].address, weight));
        let keys = "tries = 3, hedge_after = \"50ms\", on = [\"reset\"]";
        let more = format!("{TIMEOUTS}\nbreaker = {{ endpoint = false }}\nretry = {{ {keys} }}");
        let proxy = start(driver, upstream("main", &endpoints, &more));
        let before = origins.each_ref().map(count);
        assert_eq!(get(&proxy, "/").status, 200);
        let asked = origins.each_ref().map(count);
        assert!((0..3).all(|at| asked[at] == before[at] + 1), "each once: {before:?} {asked:?}");
    }
}

/// One that is let go has shown nothing; one that has failed has, and is isolated by it: then there is
/// nobody whole to be asked as well.
fn only_failures_count_as_such(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    first.otherwise(vec![Op::Hang]);
    let more = format!(
        "{TIMEOUTS}\nretry = {{ {PLAIN} }}\n\
         breaker = {{ endpoint = {{ consecutive = 1 }}, floor_percent = 0 }}"
    );
    let proxy = start(driver, two(&first.address, &second.address, &more));
    (0..3).for_each(|number| assert_eq!(get(&proxy, &format!("/{number}")).status, 200));
    assert_eq!((count(&first), hedges(&proxy)), (3, (3.0, 3.0)), "it was asked each time");
    first.otherwise(after(300, vec![Op::Ok]));
    second.otherwise(after(50, vec![Op::Send("HTTP/1.1 200 O".into()), Op::Close]));
    assert_eq!((get(&proxy, "/fails").status, hedges(&proxy)), (200, (4.0, 3.0)));
    assert_eq!((get(&proxy, "/alone").status, hedges(&proxy)), (200, (4.0, 3.0)));
    assert_eq!(count(&second), 4, "it is isolated, and is not asked");
}

/// A try that is to show whether its endpoint has recovered is waited for, and an upstream whose breaker
/// lets only some requests through is not sent more.
fn what_has_to_recover_is_not_hedged(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    let quick = "open = \"1s\", trickle = \"1s\", trickle_percent = 50, requests_min = 5";
    let with = |breaker: &str| {
        let breaker = format!("breaker = {{ {quick}, floor_percent = 0, {breaker} }}");
        let more = format!("{TIMEOUTS}\nretry = {{ {PLAIN} }}\n{breaker}");
        start(driver, two(&first.address, &second.address, &more))
    };
    let slow = after(300, vec![Op::Ok]);
    let proxy = with("endpoint = { consecutive = 1, error_percent = 0 }");
    first.otherwise(vec![Op::Body, Op::Send("HTTP/1.1 200 O".into()), Op::Close]);
    assert_eq!(get(&proxy, "/fails").status, 502);
    first.otherwise(slow.clone());
    let probed = poll(PATIENCE, || {
        assert_eq!(get(&proxy, "/work").status, 200);
        count(&first) == 2
    });
    assert!(probed && hedges(&proxy).0 == 0.0, "{}", proxy.status());
    drop(proxy);

    let proxy = with("endpoint = false, service = { error_percent = 10 }");
    let state = || proxy.metric("ringway_breaker_state", "tier=\"service\"");
    first.otherwise(vec![Op::Body, busy()]);
    assert!(poll(PATIENCE, || get(&proxy, "/fails").status == 503 && state() == 1.0));
    first.otherwise(slow);
    let mut alone = 0;
    let closed = poll(PATIENCE, || {
        let (began, status) = (state(), get(&proxy, "/work").status);
        let ended = state();
        if status == 200 && began > 1.0 && ended > 1.0 {
            assert_eq!(hedges(&proxy).0, 0.0, "{began} {ended}");
            alone += 1;
        }
        ended == 0.0
    });
    assert!(closed && alone > 0, "{alone} while it recovered: {}", proxy.status());
    let again = poll(PATIENCE, || get(&proxy, "/work").status == 200 && hedges(&proxy).0 > 0.0);
    assert!(again, "one that has is hedged");
}

/// A client that goes away takes both tries with it, in either version; the same where the second is all
/// that is left, or has won.
fn clients_that_leave(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    let proxy = proxy(driver, &first.address, &second.address, PLAIN);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx";
    for (won, failed) in [(false, false), (false, true), (true, false)] {
        let hangs = if won { vec![Op::Send(head.into()), Op::Hang] } else { vec![Op::Hang] };
        first.otherwise(if failed { after(150, vec![Op::Close]) } else { vec![Op::Hang] });
        second.otherwise(hangs);
        let are_asked = || {
            let asked = |origin: &Origin| origin.look(|record| record.in_flight.0 > 0);
            asked(&second) && asked(&first) != (won || failed)
        };
        let mut client = Client::open(proxy.address).expect("a connection");
        client.send(b"GET /one HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(poll(PATIENCE, are_asked) && (!won || client.wait_text(b"\r\n\r\nx")));
        client.reset();
        assert!(is_let_go(&first) && is_let_go(&second), "won {won}, failed {failed}");
        block_on(async {
            let mut client = Http2::connect(proxy.address).await;
            let (response, stream) = client.begin("GET", "/two", true).await.expect("begun");
            // The driver of the client runs while this waits.
            while !are_asked() {
                tokio::time::sleep(ms(1)).await;
            }
            match won {
                true => drop((stream, response.await.expect("a head"))),
                false => drop((stream, response)),
            }
            let gone = |origin: &Origin| origin.look(|record| record.in_flight.0 == 0);
            let began = Instant::now();
            while !(gone(&first) && gone(&second)) {
                assert!(began.elapsed() < PATIENCE, "won {won}, failed {failed}: both are let go");
                tokio::time::sleep(ms(1)).await;
            }
        });
    }
    assert!(poll(PATIENCE, || proxy.metric("ringway_client_aborts_total", "") == 6.0));
}

/// Each try has the time of a try; the time of the request holds over both.
fn times_hold_for_both(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    first.otherwise(vec![Op::Hang]);
    second.otherwise(vec![Op::Hang]);
    let tried =
        "tries = 2, hedge_after = \"50ms\", per_try_timeout = \"300ms\", on = [\"timeout\"]";
    let keys = |retry: &str| {
        format!("{TIMEOUTS}\nretry = {{ {retry} }}\nbreaker = {{ endpoint = false }}")
    };
    let routes = route("all", "prefix = \"/\"", "main", &format!("retry = {{ {tried} }}"))
        + &route("total", "path = \"/total\"", "main", "timeouts = { total = \"300ms\" }");
    let settings = Settings::new(driver, "").listener(LISTENER).routes(routes);
    let proxy =
        Proxy::start(settings.upstreams(two(&first.address, &second.address, &keys(PLAIN))));
    for (path, code) in [("/try", "response_timeout"), ("/total", "total_timeout")] {
        let began = Instant::now();
        let answer = get(&proxy, path);
        assert_eq!((answer.status, answer.code().as_deref()), (504, Some(code)));
        assert!(began.elapsed() < Duration::from_secs(5), "no other time had passed");
        assert!(is_let_go(&first) && is_let_go(&second), "{path}");
    }
    assert_eq!((count(&first), count(&second)), (2, 2), "each was tried once");
    // Once the second leads, what is left of the time of the request is its own.
    first.otherwise(after(150, vec![Op::Close]));
    assert_eq!(get(&proxy, "/total").code().as_deref(), Some("total_timeout"));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx";
    first.otherwise(vec![Op::Hang]);
    second.otherwise(vec![Op::Send(head.into()), Op::Hang]);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /total HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_end(Duration::from_secs(5)) && !client.received().finals[0].complete);
    assert!(is_let_go(&first) && is_let_go(&second));
}

/// Whoever says anything first has won, be it only a hint.
fn interim_answers_win(driver: &'static str) {
    let (first, second) = (Origin::start(), Origin::start());
    first.otherwise(after(400, vec![Op::Ok]));
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    second.otherwise(vec![Op::Body, Op::Send(hint.into()), Op::Sleep(800), Op::Ok]);
    let proxy = proxy(driver, &first.address, &second.address, PLAIN);
    let received = ask(proxy.address, &plain_get("/"), PATIENCE).expect("an answer");
    assert_eq!((received.interims.len(), received.finals[0].status), (1, 200));
    assert_eq!(hedges(&proxy), (1.0, 1.0));
}

/// A reload in the middle: both go on by what they began with.
fn a_reload_in_the_middle(driver: &'static str) {
    let (slow, good, new) = (Origin::start(), Origin::start(), Origin::start());
    slow.otherwise(vec![Op::Hang]);
    good.otherwise(after(700, vec![Op::Ok]));
    let mut proxy = proxy(driver, &slow.address, &good.address, PLAIN);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(good.wait(PATIENCE, |record| record.in_flight.0 == 1), "both are asked");
    proxy.rewrite(Settings::new(driver, &new.address).listener(LISTENER));
    assert_eq!(proxy.reload().0, 200);
    assert!(client.wait_responses(1, PATIENCE) && is_let_go(&slow));
    client.send(b"GET /b HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_responses(2, PATIENCE));
    assert!(client.received().finals.iter().all(|answer| answer.status == 200));
    assert_eq!((count(&good), count(&new)), (1, 1));
}

/// A client without a cookie stays where its answer came from, one with a cookie where it was. The
/// endpoint is sent its own Host. The log tells who has won.
fn what_is_told_of_it(driver: &'static str) {
    let (slow, good) = (Origin::start(), Origin::start());
    slow.otherwise(vec![Op::Hang]);
    slow.script("/here", vec![Op::Body, Op::Ok]);
    let more = format!("{TIMEOUTS}\nretry = {{ {PLAIN} }}\nsticky = {{ cookie = \"srv\" }}");
    let folder = Folder::new();
    let path = folder.0.join("access.log");
    let log = format!("[access_log]\npath = \"{}\"\nformat = \"json\"\n", path.display());
    let host = "host_rewrite = \"${endpoint.address}\"";
    let routes = route("all", "prefix = \"/\"", "main", host) + &log;
    let settings = Settings::new(driver, "").upstreams(two(&slow.address, &good.address, &more));
    let proxy = Proxy::start(settings.routes(routes));
    let cookie = |answer: &Response| {
        let field = answer.get("set-cookie").map(|it| String::from_utf8_lossy(it).into_owned());
        field.and_then(|field| Some(field.split(';').next()?.to_owned()))
    };
    let with = |path: &str, cookie: &str| {
        send(&proxy, &format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nCookie: {cookie}\r\n\r\n"))
    };
    let stays = cookie(&get(&proxy, "/here")).expect("a cookie");
    let won = cookie(&get(&proxy, "/first")).expect("a cookie");
    assert_eq!(cookie(&with("/second", &won)), None);
    assert_eq!(hedges(&proxy).0, 1.0, "it went to the one that had answered");
    assert_eq!(cookie(&with("/third", &stays)), None, "it is not moved");
    assert_eq!(cookie(&with("/here", &stays)), None);
    assert_eq!((count(&slow), count(&good), hedges(&proxy)), (4, 3, (2.0, 2.0)));
    for origin in [&slow, &good] {
        origin.look(|record| {
            assert!(record.seen().all(|it| it.get("host") == Some(origin.address.as_bytes())));
        });
    }
    let log = || std::fs::read_to_string(&path).unwrap_or_default();
    assert!(poll(PATIENCE, || log().lines().count() == 5), "{}", log());
    let told: Vec<(bool, bool)> = log()
        .lines()
        .map(|line| (line.contains("\"hedge\":\"won\""), line.contains(&good.address)))
        .collect();
    let (alone, hedged) = ((false, false), (true, true));
    assert_eq!(told, [alone, hedged, (false, true), hedged, alone]);
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    a_slow_endpoint_gives_way the_first_may_still_win who_has_lost_looks_slow who_hangs_is_isolated
    who_is_slow_is_not bodies_are_whole what_is_not_hedged
    a_budget_that_is_spent_pays_for_none both_are_slow the_other_is_awaited
    a_status_that_is_not_listed_wins both_fail a_third_is_tried_where_both_fail
    only_failures_count_as_such what_has_to_recover_is_not_hedged clients_that_leave
    times_hold_for_both interim_answers_win a_reload_in_the_middle what_is_told_of_it
}
