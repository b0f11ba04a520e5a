//! Routing through the binary: hosts, conditions, targets, zones, rewrites, redirects and answers of
//! the gateway's own.

mod harness;

use harness::client::{ask, plain_get};
use harness::grammar::values;
use harness::proxy::{endpoint, route, upstream};
use harness::{Client, Origin, Proxy, Response, Settings, ms, poll};
use rustix::process::Signal;

fn send(proxy: &Proxy, request: &str) -> Response {
    let received = ask(proxy.address, request.as_bytes(), ms(5_000)).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

fn get(proxy: &Proxy, path: &str, fields: &str) -> Response {
    send(proxy, &format!("GET {path} HTTP/1.1\r\nHost: A.test:80\r\n{fields}\r\n"))
}

/// The target that the origin was sent; empty where no origin was asked.
fn seen(answer: &Response) -> String {
    let seen = answer.get("x-seen").unwrap_or_default();
    String::from_utf8_lossy(seen).replace("GET ", "")
}

/// R12, R13: rules by header, cookie, query and method, the smaller priority first.
fn conditions(driver: &'static str) {
    let origins = [Origin::start(), Origin::start()];
    let sections = format!(
        "{}{}",
        upstream("main", &[endpoint(&origins[0].address, 1)], ""),
        upstream("canary", &[endpoint(&origins[1].address, 1)], "")
    );
    let canary = |id: &str, when: &str| {
        let more = format!("priority = 10\nwhen = [{when}]");
        route(id, "prefix = \"/user/\"", "canary", &more)
    };
    let routes = [
        route("main", "prefix = \"/user/\"", "main", ""),
        canary("header", "{ header = \"x-canary\", equals = \"true\" }"),
        canary("cookie", "{ cookie = \"uid\", in = [\"7\", \"8\"] }, { method = \"GET\" }"),
        canary("query", "{ query = \"v\", matches = \"^2\" }"),
        canary(
            "client",
            "{ client = [\"127.0.0.0/8\"] }, { header = \"x-inside\", present = true }",
        ),
    ];
    let settings = Settings::new(driver, "127.0.0.1:1").upstreams(sections).routes(routes.concat());
    let proxy = Proxy::start(settings);
    let asked = |origin: &Origin| origin.look(|record| record.requests.len());
    for (path, fields, canary) in [
        ("/user/1", "", false),
        ("/user/1", "X-Canary: true\r\n", true),
        ("/user/1", "X-Canary: TRUE\r\n", false),
        ("/user/1", "Cookie: a=b; uid=7\r\n", true),
        ("/user/1", "Cookie: uid=9\r\n", false),
        ("/user/1?v=2.1", "", true),
        ("/user/1?v=1", "", false),
        ("/user/1", "X-Inside: yes\r\n", true),
    ] {
        let before = asked(&origins[1]);
        assert_eq!(get(&proxy, path, fields).status, 200, "{path} {fields}");
        assert_eq!(asked(&origins[1]) > before, canary, "{path} {fields}");
    }
}

/// R17: targets by weight, none for weight 0; a zone limits the endpoints, retries included.
fn targets_and_zones(driver: &'static str) {
    let origins = [Origin::start(), Origin::start(), Origin::start()];
    let zoned = |address: &str, zone: &str| {
        format!("{{ address = \"{address}\", zone = \"{zone}\", weight = 1 }}")
    };
    let sections = format!(
        "{}{}",
        upstream(
            "main",
            // Nobody listens at the first address of zone b.
            &[
                zoned(&origins[0].address, "a"),
                zoned("127.0.0.1:1", "b"),
                zoned(&origins[1].address, "b"),
            ],
            ""
        ),
        upstream("canary", &[endpoint(&origins[2].address, 1)], "")
    );
    let weighted = "[[route]]\nid = \"weighted\"\nprefix = \"/w\"\ntargets = [\n\
        { upstream = \"main\", weight = 80, zone = \"a\" },\n\
        { upstream = \"canary\", weight = 20 },\n\
        { upstream = \"main\", weight = 0 },\n]\n";
    let zone = route("zone", "prefix = \"/z\"", "main", "zone = \"b\"");
    let settings = Settings::new(driver, "127.0.0.1:1");
    let proxy = Proxy::start(settings.upstreams(sections).routes(format!("{weighted}{zone}")));
    let counts = || origins.each_ref().map(|origin| origin.look(|record| record.requests.len()));
    let client = Client::open(proxy.address).expect("a connection");
    for number in 1..=400 {
        client.send(b"GET /w HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(client.wait_responses(number, ms(2_000)), "answer {number}");
    }
    let [main, other, canary] = counts();
    assert_eq!((other, main + canary), (0, 400));
    // Mean 80, standard deviation 8: five of them on each side.
    assert!((40..=120).contains(&canary), "about a fifth: {canary}");
    for _ in 0..10 {
        assert_eq!(get(&proxy, "/z", "").status, 200, "tried again inside the zone");
    }
    assert_eq!(counts(), [main, 10, canary]);
}

/// R4: what the upstream sees of path, query and host.
fn rewrites(driver: &'static str) {
    let origin = Origin::start();
    let routes = [
        route("whole", "path = \"/old\"", "main", "rewrite = \"/new/place\""),
        route("prefix", "prefix = \"/shop/\"", "main", "rewrite = \"/v2/shop\""),
        route("param", "path = \"/u/{id}/{*rest}\"", "main", "rewrite = \"/{rest}/of/{id}\""),
        route("regex", "regex = '/r(?<n>[0-9]*)/(?<s>.*)'", "main", "rewrite = \"/{n}/{s}\""),
        route("host", "prefix = \"/h\"", "main", "host_rewrite = \"internal.test:81\""),
        route("own", "prefix = \"/e\"", "main", "host_rewrite = \"${endpoint.address}\""),
        route(
            "tenant",
            "path = \"/t/{name}\"",
            "main",
            "host_rewrite = \"${path.name}${request.header.x-tail}.test\"",
        ),
    ];
    let settings = Settings::new(driver, &origin.address).routes(routes.concat());
    let proxy = Proxy::start(settings);
    for (path, target) in [
        ("/old?a=b", "/new/place?a=b"),
        ("/shop/x/", "/v2/shop/x/"),
        ("/shop", "/v2/shop"),
        ("/u/7/a/b?q", "/a/b/of/7?q"),
        ("/r12/x", "/12/x"),
        ("/r//x", "/x"),
    ] {
        assert_eq!(seen(&get(&proxy, path, "")), target, "{path}");
    }
    let host = |request: &str| {
        assert_eq!(send(&proxy, request).status, 200, "{request}");
        origin.look(|record| {
            let fields = &record.requests.last().expect("one came").fields;
            let text =
                |name: &str| String::from_utf8_lossy(&values(fields, name).concat()).into_owned();
            (text("host"), text("x-forwarded-host"))
        })
    };
    let pair = |sent: &str, named: &str| (sent.to_owned(), named.to_owned());
    let plain = "GET /h HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(host(plain), pair("internal.test:81", "a.test"));
    let absolute = "GET http://b.test/h HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(host(absolute).0, "internal.test:81", "an absolute target does not win");
    let own = "GET /e HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(host(own).0, origin.address);
    let tenant = "GET /t/acme HTTP/1.1\r\nHost: a.test\r\nX-Tail: -1\r\n\r\n";
    assert_eq!(host(tenant).0, "acme-1.test");
    let bad = get(&proxy, "/t/acme", "X-Tail: a b\r\n");
    assert_eq!((bad.status, bad.code()), (400, Some("host_invalid".to_owned())));
}

/// What the guards refuse in a client's path no rewrite makes of another, and refusals name the
/// route.
fn paths_are_guarded(driver: &'static str) {
    let origin = Origin::start();
    let strict = "path_policy = { dot_dot_semicolon = \"refuse\" }";
    let routes = [
        route("regex", "regex = '/v(?<rest>.*)'", "main", "rewrite = \"/{rest}\""),
        route("strict", "prefix = \"/s/\"", "main", strict),
    ];
    let settings = Settings::new(driver, &origin.address).routes(routes.concat());
    let proxy = Proxy::start(settings);
    assert_eq!(seen(&get(&proxy, "/v1/a", "")), "/1/a");
    let refused =
        ["/v..%2fadmin", "/v..;/manager", "/v../x", "/s/..%3b/a", "/s/..%3B/a", "/s/..;/a"];
    for path in refused {
        let answer = get(&proxy, path, "");
        assert_eq!((answer.status, answer.code()), (400, Some("path_refused".into())), "{path}");
    }
    assert_eq!(origin.look(|record| record.requests.len()), 1);
    for id in ["regex", "strict"] {
        let labels = format!("route=\"{id}\",code_class=\"4xx\"");
        let counted = poll(ms(2_000), || proxy.metric("ringway_requests_total", &labels) == 3.0);
        assert!(counted, "refusals of {id} are counted as its own");
    }
}

/// Answers that no upstream gives.
fn redirects_and_answers(driver: &'static str) {
    let origin = Origin::start();
    let routes = "[[route]]\nid = \"https\"\nprefix = \"/\"\nhosts = [\"a.test\"]\n\
        redirect = { to = \"https://${request.host}${request.uri}\" }\n\
        [[route]]\nid = \"see\"\npath = \"/see/{id}\"\n\
        redirect = { to = \"/items?id=${path.id}&by=${request.header.x-by}\", status = 303 }\n\
        [[route]]\nid = \"alive\"\npath = \"/alive\"\n\
        respond = { status = 200, body = \"yes\", content_type = \"text/x-yes\" }\n\
        [[route]]\nid = \"gone\"\nprefix = \"/gone\"\nrespond = { status = 410 }\n\
        [[route]]\nid = \"rest\"\npath = \"/rest\"\nupstream = \"main\"\n";
    let proxy = Proxy::start(Settings::new(driver, &origin.address).routes(routes));
    let moved = get(&proxy, "/x/../a?b=c", "");
    assert_eq!((moved.status, moved.get("location")), (308, Some(&b"https://a.test/a?b=c"[..])));
    let other = |path: &str, fields: &str| {
        send(&proxy, &format!("GET {path} HTTP/1.1\r\nHost: b.test\r\n{fields}\r\n"))
    };
    let see = other("/see/7", "X-By: a b\"\r\n");
    assert_eq!((see.status, see.get("location")), (303, Some(&b"/items?id=7&by=a%20b%22"[..])));
    let alive = other("/alive", "");
    assert_eq!((alive.status, &*alive.body), (200, &b"yes"[..]));
    assert_eq!(alive.get("content-type"), Some(&b"text/x-yes"[..]));
    let gone = other("/gone/x", "");
    assert_eq!((gone.status, gone.body.len()), (410, 0));
    assert_eq!(origin.look(|record| record.requests.len()), 0, "no upstream was asked");
    // The connection goes on behind each of them.
    let client = Client::open(proxy.address).expect("a connection");
    for number in 1..=3 {
        client.send(b"GET /alive HTTP/1.1\r\nHost: b.test\r\n\r\n");
        assert!(client.wait_responses(number, ms(2_000)), "answer {number}");
    }
}

/// R6: routes come, change and go while the process runs.
fn routes_change_at_run_time(driver: &'static str) {
    let origin = Origin::start();
    let answer = |status: u16| {
        format!("[[route]]\nid = \"r\"\npath = \"/r\"\nrespond = {{ status = {status} }}\n")
    };
    let rest = route("rest", "path = \"/rest\"", "main", "");
    let settings =
        |status| Settings::new(driver, &origin.address).routes(format!("{}{rest}", answer(status)));
    let mut proxy = Proxy::start(settings(201));
    let status = |proxy: &Proxy| {
        let received = ask(proxy.address, &plain_get("/r"), ms(5_000)).expect("an answer");
        received.finals[0].status
    };
    assert_eq!(status(&proxy), 201);
    for wanted in [202, 203] {
        proxy.rewrite(settings(wanted));
        proxy.signal(Signal::HUP);
        assert!(poll(ms(5_000), || status(&proxy) == wanted), "{wanted} after the reload");
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    conditions targets_and_zones rewrites paths_are_guarded redirects_and_answers routes_change_at_run_time
}
