//! What the configuration promises: routes, bounds, retries, balancing, kinds of endpoints.

mod harness;

use std::collections::BTreeMap;
use std::time::Instant;

use harness::client::{ask, plain_get};
use harness::grammar::values;
use harness::origin::Op;
use harness::proxy::{endpoint, route, scratch, timeout_bound, upstream};
use harness::{Client, Origin, Proxy, Response, Settings, ms, poll};

fn get(proxy: &Proxy, path: &str) -> Response {
    let received = ask(proxy.address, &plain_get(path), ms(5_000)).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

fn send(proxy: &Proxy, request: &str) -> Response {
    let received = ask(proxy.address, request.as_bytes(), ms(5_000)).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

/// R1: a path without a route is 404 and reaches no upstream. P7: an error ends in an answer and in
/// the one record of the exchange, which counts it.
fn default_deny(driver: &'static str) {
    let origin = Origin::start();
    let routes = format!(
        "{}{}",
        route("one", "path = \"/one\"", "main", ""),
        route("user", "prefix = \"/user/\"", "main", "")
    );
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    for path in ["/", "/two", "/one/", "/one/more", "/users", "/user/../two", "/%75ser/../two"] {
        let answer = get(&proxy, path);
        let wanted = (404, Some("route_missing".to_owned()));
        assert_eq!((answer.status, answer.code()), wanted, "{path}");
    }
    assert_eq!(origin.look(|record| record.requests.len()), 0, "nothing reached the origin");
    for path in ["/one", "/one?q=/two", "/user/", "/user/x", "/%6fne", "/x/../one", "/./user//y"] {
        assert_eq!(get(&proxy, path).status, 200, "{path}");
    }
    assert!(proxy.errors("route_missing") >= 7.0, "misses are counted (R10)");
}

/// R4, R7: the upstream sees the path without the segments that the route skips.
fn skipped_segments(driver: &'static str) {
    let origin = Origin::start();
    let routes = format!(
        "{}{}",
        route("detail", "path = \"/api/v1/app/order/detail\"", "main", "skip_segments = 3"),
        route("shop", "prefix = \"/shop/\"", "main", "skip_segments = 1")
    );
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    let cases = [
        ("/api/v1/app/order/detail?id=7", "/order/detail?id=7"),
        ("/shop/cart/1", "/cart/1"),
        ("/shop/", "/"),
    ];
    for (path, target) in cases {
        let answer = get(&proxy, path);
        let seen = format!("GET {target}");
        assert_eq!(answer.get("x-seen"), Some(seen.as_bytes()), "{path}");
    }
}

/// A8, A9: a body beyond the route's bound is 413, by length at once, by chunks when it passes.
fn body_bound(driver: &'static str) {
    let origin = Origin::start();
    let routes = route("all", "prefix = \"/\"", "main", "body_bytes_max = \"1KiB\"");
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    let fits = format!(
        "POST /fits HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1024\r\n\r\n{}",
        "x".repeat(1024)
    );
    assert_eq!(send(&proxy, &fits).status, 200, "1 KiB fits");
    let long = format!(
        "POST /long HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1025\r\n\r\n{}",
        "x".repeat(1025)
    );
    let answer = send(&proxy, &long);
    assert_eq!((answer.status, answer.code()), (413, Some("body_too_large".into())), "a byte more");
    let chunk = format!("200\r\n{}\r\n", "x".repeat(512));
    let chunked = format!(
        "POST /chunked HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        chunk.repeat(3)
    );
    let answer = send(&proxy, &chunked);
    assert_eq!((answer.status, answer.code()), (413, Some("body_too_large".into())), "chunks");
    let whole = origin.look(|record| {
        record.seen().filter(|request| request.complete && request.target != b"/fits").count()
    });
    assert_eq!(whole, 0, "no long body arrived whole");
}

/// B9, R11: the total time of a request, and a route's own response time.
fn route_timeouts(driver: &'static str) {
    let origin = Origin::start();
    let routes = format!(
        "{}{}{}",
        route("total", "path = \"/total\"", "main", "timeouts = { total = \"400ms\" }"),
        route("quick", "path = \"/quick\"", "main", "timeouts = { response = \"300ms\" }"),
        route("long", "path = \"/long\"", "main", "timeouts = { response = \"3s\" }")
    );
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    origin.script("/total", vec![Op::Hang]);
    origin.script("/quick", vec![Op::Hang]);
    origin.script("/long", vec![Op::Sleep(1_500), Op::Ok]);
    for (path, code) in [("/total", "total_timeout"), ("/quick", "response_timeout")] {
        let began = Instant::now();
        let answer = get(&proxy, path);
        assert_eq!((answer.status, answer.code()), (504, Some(code.to_owned())), "{path}");
        assert!(began.elapsed() < ms(1_000), "{path} took {:?}", began.elapsed());
    }
    let let_go = origin.wait(timeout_bound(), |record| {
        record.connections.iter().all(|connection| connection.closed.is_some())
    });
    assert!(let_go, "the connections of both were dropped");
    assert_eq!(get(&proxy, "/long").status, 200, "a route may allow more than its upstream");
}

/// A total time also ends an answer that never stops coming.
fn total_time_of_a_body(driver: &'static str) {
    let origin = Origin::start();
    let routes = route("all", "prefix = \"/\"", "main", "timeouts = { total = \"500ms\" }");
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    let mut script = vec![Op::Send("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n".into())];
    for _ in 0..30 {
        script.extend([Op::Sleep(100), Op::Send("x".into())]);
    }
    origin.script("/drip", script);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /drip HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_end(ms(2_000)), "the connection ends");
    assert!(!client.received().finals[0].complete, "and the answer is visibly cut");
    assert!(poll(ms(2_000), || proxy.errors("total_timeout") == 1.0), "and counted");
}

/// B7: an upstream that takes requests and never answers costs the users of another one nothing, on
/// the same workers.
fn hanging_upstream(driver: &'static str) {
    let (dead, alive) = (Origin::start(), Origin::start());
    dead.otherwise(vec![Op::Hang]);
    let timeouts = "timeouts = { connect = \"1s\", response = \"20s\" }";
    let upstreams = format!(
        "{}{}",
        upstream("dead", &[endpoint(&dead.address, 1)], timeouts),
        upstream("alive", &[endpoint(&alive.address, 1)], timeouts)
    );
    let routes = format!(
        "{}{}",
        route("dead", "prefix = \"/dead/\"", "dead", ""),
        route("alive", "prefix = \"/\"", "alive", "")
    );
    let proxy =
        Proxy::start(Settings::new(driver, &alive.address).upstreams(upstreams).routes(routes));
    let stuck: Vec<Client> = (0..64)
        .map(|number| {
            let client = Client::open(proxy.address).expect("a connection");
            client.send(&plain_get(&format!("/dead/{number}")));
            client
        })
        .collect();
    assert!(dead.wait(ms(3_000), |record| record.in_flight.0 == 64), "all of them are stuck");
    let began = Instant::now();
    for number in 0..200 {
        assert_eq!(get(&proxy, &format!("/{number}")).status, 200, "request {number}");
    }
    // A stuck loop would wait for a timeout of seconds.
    assert!(began.elapsed() < ms(2_000), "200 requests took {:?}", began.elapsed());
    drop(stuck);
}

/// At `in_flight_max` the next request is refused at once, and room comes back.
fn in_flight_bound(driver: &'static str) {
    let origin = Origin::start();
    let timeouts =
        "timeouts = { connect = \"1s\", response = \"3s\", body = \"1s\", idle = \"5s\" }";
    let section = upstream(
        "main",
        &[endpoint(&origin.address, 1)],
        &format!("{timeouts}\nin_flight_max = 2"),
    );
    let proxy = Proxy::start(Settings::new(driver, &origin.address).upstreams(section));
    origin.script("/slow", vec![Op::Sleep(600), Op::Ok]);
    let slow: Vec<Client> = (0..2)
        .map(|_| {
            let client = Client::open(proxy.address).expect("a connection");
            client.send(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
            client
        })
        .collect();
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 2), "two are under way");
    let began = Instant::now();
    let answer = get(&proxy, "/third");
    assert_eq!((answer.status, answer.code()), (503, Some("at_capacity".into())), "the third");
    assert!(began.elapsed() < ms(300), "at once, not after {:?}", began.elapsed());
    for client in &slow {
        assert!(client.wait_responses(1, ms(2_000)), "the two are answered");
    }
    assert_eq!(get(&proxy, "/fourth").status, 200, "and there is room again");
}

/// A request on a pooled connection that the origin closed is sent again if it can be replayed.
fn stale_connections(driver: &'static str) {
    let origin = Origin::start();
    let proxy = Proxy::start(Settings::new(driver, &origin.address));
    for round in 0..10 {
        assert_eq!(get(&proxy, &format!("/warm-{round}")).status, 200, "a warm connection");
        origin.hang_up();
        let answer = get(&proxy, &format!("/again-{round}"));
        assert_eq!(answer.status, 200, "GET after the origin restarted, round {round}");
    }
    origin.script("/taken", vec![Op::Body, Op::Close]);
    assert_eq!(get(&proxy, "/warm").status, 200, "a warm connection");
    let post = "POST /taken HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(send(&proxy, post).status, 502, "a POST that was taken is not sent twice");
    let count = |path: &str| {
        origin.look(|record| record.seen().filter(|one| one.target == path.as_bytes()).count())
    };
    assert_eq!(count("/taken"), 1, "the origin saw it once");
}

/// Plain requests use one upstream connection over and over (P2).
fn connections_are_reused(driver: &'static str) {
    let origin = Origin::start();
    let proxy = Proxy::start(Settings::new(driver, &origin.address));
    for number in 0..30 {
        assert_eq!(get(&proxy, &format!("/{number}")).status, 200, "request {number}");
    }
    assert_eq!(origin.look(|record| record.connections.len()), 1, "one connection carried all");
    assert_eq!(proxy.metric("ringway_pool_hits_total", ""), 29.0, "hits are counted");
}

/// Smooth weighted round robin: shares follow the weights, and nobody is served in a row.
fn round_robin(driver: &'static str) {
    let origins = [Origin::start(), Origin::start(), Origin::start()];
    let endpoints = [
        endpoint(&origins[0].address, 5),
        endpoint(&origins[1].address, 1),
        endpoint(&origins[2].address, 1),
    ];
    let section = upstream("main", &endpoints, "");
    let proxy = Proxy::start(Settings::new(driver, "127.0.0.1:1").upstreams(section));
    let client = Client::open(proxy.address).expect("a connection");
    for number in 1..=70 {
        client.send(b"GET /share HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(client.wait_responses(number, ms(2_000)), "answer {number}");
    }
    let shares = origins.each_ref().map(|origin| origin.look(|record| record.requests.len()));
    assert_eq!(shares, [50, 10, 10], "5 : 1 : 1");
}

/// Endpoints of every kind carry requests; what does not resolve or listen has its own code. Names
/// are resolved off the worker, which gets their addresses as a message (P4).
fn kinds_of_endpoints(driver: &'static str) {
    let directory = scratch();
    let unix = Origin::unix(&directory.join("origin.sock"));
    let six = Origin::at("[::1]:0".parse().expect("an address"));
    let four = Origin::start();
    let port = four.address.rsplit(':').next().expect("a port").to_owned();
    let kinds: BTreeMap<&str, String> = [
        ("unix", unix.address.clone()),
        ("six", six.address.clone()),
        ("name", format!("localhost:{port}")),
        ("nowhere", "no-such-host.invalid:80".to_owned()),
        ("silent", "127.0.0.1:1".to_owned()),
        ("no-socket", format!("unix:{}", directory.join("none.sock").display())),
    ]
    .into();
    let (mut upstreams, mut routes) = (String::new(), String::new());
    for (name, address) in &kinds {
        upstreams += &upstream(name, &[endpoint(address, 1)], "");
        routes += &route(name, &format!("prefix = \"/{name}/\""), name, "");
    }
    let settings = Settings::new(driver, "").upstreams(upstreams).routes(routes);
    let proxy = Proxy::start(settings);
    for (name, status, code) in [
        ("unix", 200, None),
        ("six", 200, None),
        ("nowhere", 503, Some("no_endpoint")),
        ("silent", 502, Some("connect_refused")),
    ] {
        let answer = get(&proxy, &format!("/{name}/x"));
        let code = code.map(str::to_owned);
        assert_eq!((answer.status, answer.code()), (status, code), "{name}");
    }
    assert_eq!(get(&proxy, "/no-socket/x").status, 502, "no such socket");
    let resolved = poll(ms(5_000), || get(&proxy, "/name/x").status == 200);
    assert!(resolved, "a name is resolved off the workers");
    drop(std::fs::remove_dir_all(directory));
}

/// Forwarding fields of trusted peers are continued; Via and Forwarded come on request.
fn forwarding_fields(driver: &'static str) {
    let origin = Origin::start();
    let listener = "trusted_proxies = [\"127.0.0.0/8\"]\nvia = true\nforwarded = true\n";
    let proxy = Proxy::start(Settings::new(driver, &origin.address).listener(listener));
    let request = "GET /x HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 192.0.2.9\r\n\
        X-Forwarded-Proto: https\r\nX-Request-Id: from-the-edge-1\r\nConnection: close\r\n\r\n";
    assert_eq!(send(&proxy, request).status, 200, "an answer");
    let fields = origin.look(|record| record.requests[0].fields.clone());
    let text = |name: &str| -> Vec<String> {
        let all = values(&fields, name);
        all.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    };
    assert_eq!(text("x-forwarded-for").join(", "), "192.0.2.9, 127.0.0.1", "continued");
    assert_eq!(text("x-forwarded-proto"), ["https"], "believed");
    assert_eq!(text("x-request-id"), ["from-the-edge-1"], "kept");
    assert!(text("via").join(",").contains("1.1 "), "Via: {:?}", text("via"));
    assert!(text("forwarded").join(",").contains("for="), "Forwarded: {:?}", text("forwarded"));
}

/// Bounds of a listener are the configured ones, on both sides of each.
fn listener_bounds(driver: &'static str) {
    let origin = Origin::start();
    let listener = "head_bytes_max = \"2KiB\"\nheaders_max = 10\nuri_bytes_max = 256\n";
    let proxy = Proxy::start(Settings::new(driver, &origin.address).listener(listener));
    let path = |bytes: usize| format!("/{}", "u".repeat(bytes - 1));
    assert_eq!(get(&proxy, &path(256)).status, 200, "a target of 256 bytes");
    let answer = get(&proxy, &path(257));
    assert_eq!((answer.status, answer.code()), (414, Some("uri_too_long".into())), "257 bytes");
    let fields = |count: usize| {
        let lines: String = (0..count).map(|number| format!("x-{number}: 1\r\n")).collect();
        format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n")
    };
    assert_eq!(send(&proxy, &fields(9)).status, 200, "ten fields");
    let answer = send(&proxy, &fields(10));
    assert_eq!((answer.status, answer.code()), (431, Some("head_too_large".into())), "eleven");
    let head = |bytes: usize| {
        let frame = "GET /x HTTP/1.1\r\nHost: a.test\r\nx: \r\n\r\n".len();
        format!("GET /x HTTP/1.1\r\nHost: a.test\r\nx: {}\r\n\r\n", "h".repeat(bytes - frame))
    };
    assert_eq!(send(&proxy, &head(2048)).status, 200, "a head of 2 KiB");
    let answer = send(&proxy, &head(2049));
    assert_eq!((answer.status, answer.code()), (431, Some("head_too_large".into())), "a byte more");
}

/// The admin address says what runs, and does not serve the data path (C14).
fn status_and_metrics(driver: &'static str) {
    let origin = Origin::start();
    let proxy = Proxy::start(Settings::new(driver, &origin.address).workers(2));
    assert_eq!(proxy.driver(), driver, "the driver that was asked for");
    for number in 0..4 {
        assert_eq!(get(&proxy, &format!("/{number}")).status, 200, "request {number}");
    }
    assert_eq!(get(&proxy, "/v1/status").get("x-seen"), Some(&b"GET /v1/status"[..]), "proxied");
    let counted = poll(ms(2_000), || proxy.metric("ringway_requests_total", "2xx") >= 5.0);
    assert!(counted, "answers are counted by class");
    assert_eq!(proxy.metric("ringway_panics_total", ""), 0.0, "no panic");
    assert_eq!(proxy.admin_get("/no/such/page").expect("an answer").0, 404, "an unknown page");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    default_deny skipped_segments body_bound route_timeouts total_time_of_a_body in_flight_bound
    stale_connections connections_are_reused round_robin kinds_of_endpoints forwarding_fields
    listener_bounds status_and_metrics hanging_upstream
}
