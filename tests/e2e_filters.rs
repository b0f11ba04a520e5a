//! Filters through the binary: what upstreams and clients get to see of them.

mod harness;

use harness::client::{ask, plain_get};
use harness::grammar::values;
use harness::origin::Op;
use harness::proxy::{route, upstream};
use harness::{Client, Origin, Proxy, Response, Settings, ms};
use rustix::process::Signal;

fn get(proxy: &Proxy, path: &str) -> Response {
    send(proxy, &String::from_utf8_lossy(&plain_get(path)))
}

fn send(proxy: &Proxy, request: &str) -> Response {
    let received = ask(proxy.address, request.as_bytes(), ms(5_000)).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

/// A request of its own connection with these lines behind Host.
fn with(proxy: &Proxy, line: &str, fields: &str) -> Response {
    send(proxy, &format!("{line} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n{fields}\r\n"))
}

fn text(answer: &Response, name: &str) -> String {
    let all = values(&answer.fields, name);
    all.iter().map(|value| String::from_utf8_lossy(value)).collect::<Vec<_>>().join(" | ")
}

/// A route called `id` for what begins with `/id`, with these filters.
fn filtered(id: &str, filters: &str) -> String {
    route(id, &format!("prefix = \"/{id}\""), "main", &format!("filters = [{filters}]"))
}

/// The last request's values of a field, as the origin saw them.
fn seen(origin: &Origin, name: &str) -> String {
    origin.look(|record| {
        let all = record.requests.last().expect("a request").all(name);
        all.iter().map(|value| String::from_utf8_lossy(value)).collect::<Vec<_>>().join(" | ")
    })
}

/// P17: fields of requests and answers are set, added and removed, and nothing of it is left for the
/// next request on the same connection.
fn fields_are_edited(driver: &'static str) {
    let origin = Origin::start();
    let routes = [
        filtered(
            "edit",
            "{ kind = \"headers\", set = { x-env = \"canary\", \
             x-who = \"${client.address} ${request.header.x-old} ${upstream.name}\" }, \
             add = { cookie = \"b=2\" }, remove = [\"x-old\", \"authorization\"], \
             response = { set = { x-by = \"${route.id} ${upstream.name} ${response.status}\" }, \
             add = { set-cookie = \"c=3\" }, remove = [\"x-seen\"] } }",
        ),
        filtered("plain", ""),
    ];
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes.concat()));
    let fields = "X-Old: 1\r\nAuthorization: secret\r\nCookie: a=1\r\nX-Env: evil\r\n";
    let request = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
    let client = Client::open(proxy.address).expect("a connection");
    for (round, path) in ["edit", "plain", "edit"].into_iter().enumerate() {
        client.send(request(path).as_bytes());
        assert!(client.wait_responses(round + 1, ms(3_000)), "{path}");
        let answer = &client.received().finals[round];
        assert_eq!(answer.status, 200, "{path}");
        let edited = path == "edit";
        let is = |edits: &'static str, plain: &'static str| if edited { edits } else { plain };
        assert_eq!(seen(&origin, "x-env"), is("canary", "evil"));
        assert_eq!(seen(&origin, "x-who"), is("127.0.0.1 1 main", ""));
        assert_eq!(seen(&origin, "x-old"), is("", "1"));
        assert_eq!(seen(&origin, "authorization"), is("", "secret"));
        assert_eq!(seen(&origin, "cookie"), is("a=1; b=2", "a=1"));
        assert_eq!(text(answer, "x-by"), is("edit main 200", ""));
        assert_eq!(text(answer, "set-cookie"), is("c=3", ""));
        assert_eq!(answer.get("x-seen").is_some(), !edited);
        assert!(answer.lint.faults.is_empty(), "{:?}", answer.lint);
    }
}

/// P7: what the gateway answers itself passes the filters on answers too: an upstream that refuses
/// the connection, a filter that says no, a body that is too large.
fn own_answers_are_edited(driver: &'static str) {
    let origin = Origin::start();
    let gone = "[upstream.gone]\nendpoints = [{ address = \"127.0.0.1:1\" }]\n";
    let by = "response = { set = { x-by = \"${route.id} ${response.status}\" } }";
    let edit = format!("{{ kind = \"headers\", {by} }}");
    let routes = [
        format!("[filter.by]\nkind = \"headers\"\n{by}\n"),
        route("gone", "prefix = \"/gone\"", "gone", &format!("filters = [{edit}]")),
        filtered("no", "{ kind = \"ip_list\", deny = [\"0.0.0.0/0\"] }, \"by\""),
        route(
            "small",
            "prefix = \"/small\"",
            "main",
            "filters = [\"by\"]\nbody_bytes_max = \"1KiB\"",
        ),
    ];
    let upstreams = upstream("main", &[harness::proxy::endpoint(&origin.address, 1)], "") + gone;
    let settings = Settings::new(driver, &origin.address).upstreams(upstreams);
    let proxy = Proxy::start(settings.routes(routes.concat()));
    for (path, code) in [("/gone", "connect_refused"), ("/no", "address_denied")] {
        let answer = get(&proxy, path);
        let wanted = format!("{} {}", &path[1..], answer.status);
        assert_eq!((answer.code(), text(&answer, "x-by")), (Some(code.into()), wanted));
    }
    let large = with(&proxy, "POST /small", "Content-Length: 5000\r\n");
    assert_eq!((large.status, text(&large, "x-by")), (413, "small 413".into()));
    let missing = get(&proxy, "/other");
    assert_eq!(
        (missing.status, text(&missing, "x-by")),
        (404, String::new()),
        "no route, no filter"
    );
}

/// `when` is asked once: what it said when the request came holds for the answer.
fn conditions_keep_filters_out(driver: &'static str) {
    let origin = Origin::start();
    let tests = "{ kind = \"headers\", when = [{ header = \"x-test\", equals = \"1\" }], \
                 set = { x-was = \"there\" }, remove = [\"x-test\"], \
                 response = { set = { x-was = \"there\" } } }";
    let posts = "{ kind = \"ip_list\", when = [{ method = \"POST\" }], deny = [\"0.0.0.0/0\"] }";
    let routes = filtered("a", &format!("{tests}, {posts}"));
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    for (field, was) in [("X-Test: 1\r\n", "there"), ("X-Test: 2\r\n", ""), ("", "")] {
        let answer = with(&proxy, "GET /a", field);
        assert_eq!((answer.status, text(&answer, "x-was")), (200, was.into()), "{field}");
        assert_eq!(seen(&origin, "x-was"), was, "{field}");
    }
    assert_eq!(with(&proxy, "POST /a", "Content-Length: 0\r\n").status, 403);
}

/// Preflights reach no upstream; answers get the fields in place of those of the upstream.
fn cors(driver: &'static str) {
    let origin = Origin::start();
    let cors = "{ kind = \"cors\", origins = [\"https://shop.example\"], methods = [\"PUT\"], \
                headers = [\"x-key\"], credentials = true, max_age = \"1h\" }";
    let routes = [
        filtered("a", cors),
        route("gone", "prefix = \"/gone\"", "gone", &format!("filters = [{cors}]")),
    ];
    let gone = "[upstream.gone]\nendpoints = [{ address = \"127.0.0.1:1\" }]\n";
    let upstreams = upstream("main", &[harness::proxy::endpoint(&origin.address, 1)], "") + gone;
    let settings = Settings::new(driver, &origin.address).upstreams(upstreams);
    let proxy = Proxy::start(settings.routes(routes.concat()));
    let own = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept\r\n\
               Content-Length: 0\r\n\r\n";
    origin.script("/a", vec![Op::Body, Op::Send(own.into())]);

    let asks = "Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-key\r\n";
    let shop = "Origin: https://shop.example\r\n";
    let preflight = with(&proxy, "OPTIONS /a", &format!("{shop}{asks}"));
    assert_eq!((preflight.status, preflight.body.len()), (204, 0));
    assert_eq!(preflight.get("content-length"), None, "RFC 9110 section 8.6");
    for (name, value) in [
        ("access-control-allow-origin", "https://shop.example"),
        ("access-control-allow-methods", "PUT"),
        ("access-control-allow-headers", "x-key"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "3600"),
        ("vary", "Access-Control-Request-Method | Access-Control-Request-Headers | Origin"),
    ] {
        assert_eq!(text(&preflight, name), value, "{name}");
    }
    let evil = with(&proxy, "OPTIONS /a", &format!("Origin: https://evil.example\r\n{asks}"));
    assert_eq!((evil.status, evil.get("access-control-allow-origin")), (204, None));
    assert_eq!(origin.look(|record| record.requests.len()), 0, "no preflight reached the origin");

    let answer = with(&proxy, "GET /a", shop);
    assert_eq!(text(&answer, "access-control-allow-origin"), "https://shop.example");
    assert_eq!(text(&answer, "vary"), "Accept | Origin");
    let plain = get(&proxy, "/a");
    assert_eq!(plain.get("access-control-allow-origin"), None);
    assert_eq!(text(&plain, "vary"), "Accept | Origin", "for shared caches");
    let options = with(&proxy, "OPTIONS /a", shop);
    assert_eq!((options.status, seen(&origin, "origin").as_str()), (200, "https://shop.example"));
    let failed = with(&proxy, "GET /gone", shop);
    assert_eq!(failed.status, 502);
    assert_eq!(text(&failed, "access-control-allow-origin"), "https://shop.example");
}

/// CORS goes by the Origin that the client sent, whatever other filters make of it.
fn cors_goes_by_what_came(driver: &'static str) {
    let origin = Origin::start();
    let cors = "{ kind = \"cors\", origins = [\"https://a.example\"], credentials = true }";
    let set = "{ kind = \"headers\", set = { origin = \"https://a.example\" } }";
    let remove = "{ kind = \"headers\", remove = [\"origin\"] }";
    let routes = [("set", set), ("remove", remove)]
        .map(|(id, edit)| filtered(id, &format!("{edit}, {cors}")))
        .concat();
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    for (path, upstream) in [("set", "https://a.example"), ("remove", "")] {
        for (sent, allowed) in [("https://evil.example", ""), ("https://a.example", "true")] {
            let answer = with(&proxy, &format!("GET /{path}"), &format!("Origin: {sent}\r\n"));
            assert_eq!(answer.status, 200);
            assert_eq!(seen(&origin, "origin"), upstream, "{path}");
            let fields = text(&answer, "access-control-allow-credentials");
            assert_eq!(fields, allowed, "{path} {sent}");
        }
        let none = with(&proxy, &format!("GET /{path}"), "");
        assert_eq!(none.get("access-control-allow-origin"), None, "{path}");
    }
}

/// Conditions and variables see what the upstream sees: the host of an absolute target (RFC 9112
/// section 3.2.2), cookies of earlier filters, and forwarding fields of believed peers only.
fn values_are_those_of_the_upstream(driver: &'static str) {
    let origin = Origin::start();
    let filters = "{ kind = \"headers\", add = { cookie = \"seen=1\" } }, \
         { kind = \"headers\", when = [{ cookie = \"seen\", equals = \"1\" }, \
         { header = \"host\", equals = \"a.test\" }], set = { x-host = \"${request.header.host}\", \
         x-cookie = \"${request.cookie.seen}\", x-id = \"${request.header.x-request-id}\", \
         x-proto = \"${request.header.x-forwarded-proto}\" } }, \
         { kind = \"ip_list\", deny = [\"0.0.0.0/0\"], \
         when = [{ header = \"x-forwarded-for\", present = true }] }";
    for trusted in [false, true] {
        let listener = if trusted { "trusted_proxies = [\"127.0.0.0/8\"]\n" } else { "" };
        let settings = Settings::new(driver, &origin.address).listener(listener);
        let proxy = Proxy::start(settings.routes(filtered("a", filters)));
        let fields = "X-Forwarded-Proto: https\r\nX-Request-Id: mine\r\n";
        let line = "GET http://a.test/a HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n";
        assert_eq!(send(&proxy, &format!("{line}{fields}\r\n")).status, 200);
        assert_eq!(
            (seen(&origin, "x-host"), seen(&origin, "x-cookie")),
            ("a.test".into(), "1".into())
        );
        assert_eq!(seen(&origin, "x-proto"), if trusted { "https" } else { "" });
        assert_eq!(seen(&origin, "x-id"), seen(&origin, "x-request-id"));
        assert_eq!(seen(&origin, "x-id") == "mine", trusted);
        let claim = with(&proxy, "GET /a", "X-Forwarded-For: 192.0.2.1\r\n");
        assert_eq!(claim.status, if trusted { 403 } else { 200 });
    }
}

/// L1: a burst passes, then 429 with what the client has to know, on a connection that goes on. P12:
/// what the limiter noted with the request reaches the answer, and other filters.
fn limits(driver: &'static str) {
    let origin = Origin::start();
    let routes = [
        "[filter.per-key]\nkind = \"rate_limit\"\nkey = \"header:x-key\"\nrate = \"10/h\"\n\
         burst = 2\n"
            .to_owned(),
        filtered(
            "a",
            "\"per-key\", { kind = \"headers\", \
             response = { set = { x-left = \"${attribute.ratelimit.per-key}\" } } }",
        ),
        filtered("b", "\"per-key\""),
    ];
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes.concat()));
    let request = |path: &str, key: &str| {
        format!("GET /{path} HTTP/1.1\r\nHost: a.test\r\nX-Key: {key}\r\n\r\n")
    };
    let client = Client::open(proxy.address).expect("a connection");
    for (round, (path, key, status)) in
        [("a", "k", 200), ("b", "k", 200), ("a", "k", 429), ("b", "k", 429), ("a", "other", 200)]
            .into_iter()
            .enumerate()
    {
        client.send(request(path, key).as_bytes());
        assert!(client.wait_responses(round + 1, ms(3_000)), "round {round}");
        let answer = &client.received().finals[round];
        assert_eq!(answer.status, status, "round {round}");
        assert_eq!(text(answer, "ratelimit-policy"), "\"per-key\";q=10;w=3600");
        let state = text(answer, "ratelimit");
        assert!(state.starts_with("\"per-key\";r="), "{state}");
        assert_eq!(text(answer, "x-left"), if path == "a" { state } else { String::new() });
        if status == 429 {
            assert_eq!(answer.code(), Some("rate_limited".into()));
            let wait: u64 = text(answer, "retry-after").parse().expect("seconds");
            assert!((355..=360).contains(&wait), "{wait}");
        }
    }
    let body = "x".repeat(100_000);
    let post = format!(
        "POST /a HTTP/1.1\r\nHost: a.test\r\nX-Key: k\r\nContent-Length: 100000\r\n\r\n{body}"
    );
    let client = Client::open(proxy.address).expect("a connection");
    client.send(post.as_bytes());
    assert!(client.wait_responses(1, ms(3_000)), "an early answer");
    assert_eq!(client.received().finals[0].status, 429);
    assert_eq!(origin.look(|record| record.requests.len()), 3);
}

/// A reload refills no bucket: also one that changes the burst, the size of the table or what stands
/// beside the filter.
fn reloads_refill_nothing(driver: &'static str) {
    let origin = Origin::start();
    let limit = "kind = \"rate_limit\", key = \"client\", rate = \"1/h\"";
    let variants = [
        format!("{{ {limit} }}"),
        format!("{{ {limit}, keys_max = 1000 }}"),
        format!("{{ kind = \"headers\", set = {{ x-a = \"b\" }} }}, {{ {limit} }}"),
        format!("{{ {limit}, burst = 2 }}"),
    ];
    let settings = |filters: &str| {
        Settings::new(driver, &origin.address).routes(filtered("a", filters)).workers(2)
    };
    let mut proxy = Proxy::start(settings(&variants[0]));
    assert_eq!(get(&proxy, "/a").status, 200);
    assert_eq!(get(&proxy, "/a").status, 429);
    for (round, variant) in variants.iter().enumerate().skip(1) {
        proxy.rewrite(settings(variant));
        proxy.signal(Signal::HUP);
        // The sum over both workers.
        let versions = 2.0 * (round + 1) as f64;
        let taken = harness::poll(ms(5_000), || {
            proxy.metric("ringway_worker_config_version", "") >= versions
        });
        assert!(taken, "reload {round}");
        let (first, second) = (get(&proxy, "/a").status, get(&proxy, "/a").status);
        // A larger burst is one more request, not two.
        let larger = variant.contains("burst");
        assert_eq!((first, second), (if larger { 200 } else { 429 }, 429), "{variant}");
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    fields_are_edited own_answers_are_edited conditions_keep_filters_out cors
    cors_goes_by_what_came values_are_those_of_the_upstream limits reloads_refill_nothing
}
