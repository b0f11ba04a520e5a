//! Endpoints that are found by DNS, as a service or in a file: what comes and goes, what stays when
//! nothing is found, and that no request is lost over it. The name server is `harness/dns.rs`.

mod harness;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use harness::client::{ask, plain_get};
use harness::dns::{A, Mood, NameServer, SRV};
use harness::load::under_load;
use harness::proxy::{free_address, route, scratch};
use harness::tls::{Authority, TlsOrigin, Wanted, put};
use harness::{Client, Op, Origin, Proxy, Settings, ms, poll};
use serde_json::Value;

const TIMEOUTS: &str =
    "timeouts = { connect = \"1s\", response = \"5s\", body = \"5s\", idle = \"5s\" }\n";

/// An upstream that discovers its endpoints, and the only route to it.
fn settings(driver: &'static str, discover: &str, more: &str) -> Settings {
    let upstream = format!("[upstream.main]\ndiscover = {{ {discover} }}\n{TIMEOUTS}{more}\n");
    Settings::new(driver, "127.0.0.1:1").workers(2).upstreams(upstream)
}

/// An origin on a loopback address of its own, which says its name in its answers.
fn origin(ip: &str, port: u16) -> Origin {
    let address = if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
    let origin = Origin::at(address.parse().expect("an address"));
    let answer = format!("HTTP/1.1 200 OK\r\nX-From: {ip}\r\nContent-Length: 2\r\n\r\nok");
    origin.otherwise(vec![Op::Body, Op::Send(answer)]);
    origin
}

/// Who answers a request on a connection of its own; the status where nobody does.
fn who(proxy: &Proxy) -> String {
    let received = ask(proxy.address, &plain_get("/who"), ms(5_000)).expect("an answer");
    let answer = &received.finals[0];
    let from = answer.get("x-from").map(|from| String::from_utf8_lossy(from).into_owned());
    from.unwrap_or_else(|| answer.status.to_string())
}

/// Waits until just these answer, on both workers: in a run of requests, which balancing spreads.
fn served_by(proxy: &Proxy, expected: &[&str]) {
    let mut seen = Vec::new();
    let all = poll(ms(8_000), || {
        seen = (0..8 * expected.len().max(1)).map(|_| who(proxy)).collect();
        seen.sort();
        seen.dedup();
        seen == expected
    });
    assert!(all, "{expected:?} are to answer, and {seen:?} do: {}", proxy.log());
}

/// The entry of the only upstream in `/v1/status`.
fn discovery(proxy: &Proxy) -> Value {
    proxy.status()["discovery"][0].clone()
}

fn failures(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_discovery_failures_total", "upstream=\"main\"")
}

/// Every address is an endpoint, of either family and behind an alias, and comes and goes with its
/// record when the TTL has passed.
fn addresses_come_and_go(driver: &'static str) {
    let (dns, port) = (NameServer::start(), free_address().port());
    let ips = ["127.0.0.2", "127.0.0.3", "::1"];
    let _origins = ips.map(|ip| origin(ip, port));
    dns.set("orders.test", 1, &ips[..1]);
    let discover = format!("dns = \"Orders.test:{port}\", resolver = \"{}\"", dns.address);
    let proxy = Proxy::start(settings(driver, &discover, ""));
    assert_eq!(who(&proxy), ips[0], "found before the start");
    dns.set("orders.test", 1, &ips);
    served_by(&proxy, &ips);
    let endpoints = proxy.metric("ringway_discovery_endpoints", "upstream=\"main\"");
    assert_eq!((endpoints, failures(&proxy)), (3.0, 0.0));
    let entry = discovery(&proxy);
    let source = format!("dns orders.test:{port} at {}", dns.address);
    assert_eq!((&entry["source"], &entry["endpoints"]), (&source.into(), &3.into()));
    assert!(entry["age_s"].as_f64().is_some_and(|age| age < 5.0), "{entry}");
    let shown = proxy.status()["upstreams"][0]["endpoints"].as_array().map(Vec::len);
    assert_eq!(shown, Some(3));
    let stamp = proxy.metric("ringway_discovery_last_success_timestamp_seconds", "main");
    assert!(stamp > 1.0e9, "{stamp}");
    dns.set("orders.test", 1, &[]);
    dns.set("real.test", 1, &ips[1..2]);
    dns.alias("orders.test", 1, "real.test");
    served_by(&proxy, &ips[1..2]);
    assert!(proxy.log().contains("upstream main has 1 endpoints"), "{}", proxy.log());
    assert_eq!(proxy.status()["config"]["version"], 1, "no version of the configuration");
    assert_eq!(proxy.metric("ringway_config_reloads_total", ""), 0.0);
}

/// A long TTL is kept: the name server is not asked before.
fn a_ttl_is_kept(driver: &'static str) {
    let (dns, port) = (NameServer::start(), free_address().port());
    let _origin = origin("127.0.0.2", port);
    dns.set("orders.test", 600, &["127.0.0.2"]);
    let discover = format!("dns = \"orders.test:{port}\", resolver = \"{}\"", dns.address);
    let proxy = Proxy::start(settings(driver, &discover, ""));
    assert!(!dns.wait_queries("orders.test", A, 1, ms(2_500)), "asked again within 600 s");
    assert_eq!(who(&proxy), "127.0.0.2");
    dns.set("other.test", 0, &["127.0.0.2"]);
    let other = discover.replace("orders.test", "other.test");
    let mut proxy = proxy;
    proxy.rewrite(settings(driver, &other, ""));
    assert_eq!(proxy.reload().0, 200);
    // A TTL of 0 is one of a second.
    let began = Instant::now();
    assert!(dns.wait_queries("other.test", A, 3, ms(8_000)));
    assert!(began.elapsed() > Duration::from_millis(1_500), "asked in a loop");
}

/// Whatever becomes of the name server, what was found last stays.
fn the_last_good_answer_stays(driver: &'static str) {
    let (dns, port) = (NameServer::start(), free_address().port());
    let _origins = ["127.0.0.2", "127.0.0.3"].map(|ip| origin(ip, port));
    dns.set("orders.test", 1, &["127.0.0.2"]);
    let discover = format!("dns = \"orders.test:{port}\", resolver = \"{}\"", dns.address);
    let mut proxy = Proxy::start(settings(driver, &discover, ""));
    for (mood, gone) in [(Mood::Fails, false), (Mood::Answers, true), (Mood::Silent, false)] {
        let before = failures(&proxy);
        if gone {
            dns.set("orders.test", 1, &[]);
        }
        dns.set_mood(mood);
        assert!(poll(ms(15_000), || failures(&proxy) > before), "{mood:?}: {}", proxy.log());
        assert_eq!(who(&proxy), "127.0.0.2", "{mood:?}");
        let entry = discovery(&proxy);
        assert!(entry["error"].is_string() && entry["endpoints"] == 1, "{entry}");
    }
    let log = proxy.log();
    assert!(log.contains("NXDOMAIN") && log.contains("its last endpoint stay"), "{log}");
    // A reload, one that is refused, and one that changes certificates or routes, keep it too.
    let more = route("more", "path = \"/more\"", "main", "");
    let reloaded = proxy.settings().clone();
    let routes = reloaded.routes.clone() + &more;
    proxy.rewrite(reloaded.routes(routes));
    let began = Instant::now();
    assert_eq!(proxy.reload().0, 200);
    assert!(began.elapsed() < ms(1_500), "nobody waits for a name that is known");
    assert_eq!(who(&proxy), "127.0.0.2");
    proxy.rewrite_raw("nonsense");
    assert_ne!(proxy.reload().0, 200);
    dns.set_mood(Mood::Answers);
    dns.set("orders.test", 1, &["127.0.0.3"]);
    served_by(&proxy, &["127.0.0.3"]);
    assert_eq!(discovery(&proxy)["error"], Value::Null);
}

/// Only one family is lost: its addresses stay, the other's are new. A start without any is served
/// as soon as there are some.
fn families_are_lost_apart(driver: &'static str) {
    let (dns, port) = (NameServer::start(), free_address().port());
    let _origins = ["127.0.0.2", "127.0.0.3", "::1"].map(|ip| origin(ip, port));
    let discover = format!("dns = \"orders.test:{port}\", resolver = \"{}\"", dns.address);
    let proxy = Proxy::start(settings(driver, &discover, ""));
    assert_eq!(who(&proxy), "503", "nothing is found");
    assert_eq!(proxy.errors("no_endpoint"), 1.0);
    dns.set("orders.test", 1, &["127.0.0.2", "::1"]);
    served_by(&proxy, &["127.0.0.2", "::1"]);
    dns.set_mood(Mood::FailsForAaaa);
    dns.set("orders.test", 1, &["127.0.0.3"]);
    served_by(&proxy, &["127.0.0.3", "::1"]);
    assert!(failures(&proxy) > 0.0);
}

/// A service: the targets of the lowest priority number, with their ports and weights; over TCP where
/// the answer has no room.
fn a_service(driver: &'static str) {
    let dns = NameServer::start();
    let ports = [(); 3].map(|()| free_address().port());
    let _origins = [
        origin("127.0.0.2", ports[0]),
        origin("127.0.0.3", ports[1]),
        origin("127.0.0.4", ports[2]),
    ];
    for (host, ip) in [("a.test", "127.0.0.2"), ("b.test", "127.0.0.3"), ("c.test", "127.0.0.4")] {
        dns.set(host, 1, &[ip]);
    }
    let name = "_http._tcp.orders.test";
    let targets =
        [(10, 30, ports[0], "a.test"), (10, 10, ports[1], "b.test"), (20, 99, ports[2], "c.test")];
    dns.set_mood(Mood::Truncates);
    dns.service(name, 1, &targets);
    let discover = format!("srv = \"{name}\", resolver = \"{}\"", dns.address);
    let proxy = Proxy::start(settings(driver, &discover, "").workers(1));
    assert!(dns.over_tcp() > 0);
    let mut answers: Vec<String> = (0..40).map(|_| who(&proxy)).collect();
    answers.sort();
    let share = answers.iter().filter(|from| *from == "127.0.0.2").count();
    assert_eq!((share, answers.last().map(String::as_str)), (30, Some("127.0.0.3")), "{answers:?}");
    dns.set_mood(Mood::Answers);
    dns.service(name, 1, &targets[2..]);
    served_by(&proxy, &["127.0.0.4"]);
    let before = failures(&proxy);
    dns.service(name, 1, &[(0, 0, 0, ".")]);
    assert!(dns.wait_queries(name, SRV, 1, ms(8_000)));
    assert!(poll(ms(8_000), || failures(&proxy) > before), "not there, says the service");
    assert_eq!(who(&proxy), "127.0.0.4");
}

/// RFC 2782: targets of a higher priority number take requests where those of lower ones cannot be
/// reached, from the first request on, and only then. One whose name is not known is no matter.
fn a_service_with_reserves(driver: &'static str) {
    let dns = NameServer::start();
    let port = free_address().port();
    let first = ["127.0.0.2", "127.0.0.3", "127.0.0.5"];
    let origins = first.map(|ip| origin(ip, port));
    let _reserve = origin("127.0.0.4", port);
    dns.set("a.test", 60, &first);
    dns.set("c.test", 60, &["127.0.0.4"]);
    let name = "_http._tcp.orders.test";
    let targets = [(30, 1, port, "nowhere.test"), (20, 1, port, "c.test"), (10, 1, port, "a.test")];
    dns.service(name, 60, &targets);
    let discover = format!("srv = \"{name}\", resolver = \"{}\"", dns.address);
    let quick = "breaker = { open = \"1s\", trickle = \"1s\", requests_min = 10 }\n\
                 retry = { on = [\"connect\", \"stale\"], tries = 4, budget_percent = 100 }\n";
    // One worker, whose budget has room for the retries of five requests.
    let proxy = Proxy::start(settings(driver, &discover, quick).workers(1));
    served_by(&proxy, &first);
    drop(origins);
    let refuses = |ip: &str| TcpStream::connect(format!("{ip}:{port}")).is_err();
    assert!(poll(ms(5_000), || first.iter().all(|ip| refuses(ip))), "they are gone");
    let answers: Vec<String> = (0..30).map(|_| who(&proxy)).collect();
    let all = answers.iter().all(|from| from == "127.0.0.4");
    assert!(all, "{answers:?} {}", proxy.log());
    let is_out = |it: &Value| ["out", "probing"].contains(&it["standing"].as_str().unwrap_or(""));
    let out = || {
        who(&proxy);
        let status = proxy.status();
        let endpoints = status["upstreams"][0]["endpoints"].as_array().expect("endpoints").clone();
        endpoints.iter().filter(|it| is_out(it)).count() == first.len()
    };
    assert!(poll(ms(8_000), out), "{}", proxy.status());
    assert_eq!(proxy.metric("ringway_upstream_floor", ""), 0.0, "who stands in is enough");
    let _origins = first.map(|ip| origin(ip, port));
    served_by(&proxy, &first);
}

/// A file takes force when it changes; one with mistakes is refused with its place and a remedy.
fn a_file(driver: &'static str) {
    let folder = scratch();
    let file = folder.join("main.toml");
    let write = |text: &str| {
        let new = folder.join("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file)).expect("written");
    };
    let port = free_address().port();
    let _origins = ["127.0.0.2", "127.0.0.3"].map(|ip| origin(ip, port));
    let line = |ip: &str| format!("endpoints = [{{ address = \"{ip}:{port}\" }}]\n");
    write(&line("127.0.0.2"));
    let proxy = Proxy::start(settings(driver, &format!("file = \"{}\"", file.display()), ""));
    assert_eq!(who(&proxy), "127.0.0.2");
    for (broken, said) in [
        (
            "# none\nendpoints = [{ adress = \"a:1\" }]\n",
            ["main.toml:2:", "did you mean `address`?"],
        ),
        ("endpoints = []\n", ["main.toml:1:", "list 1 to 4096 items"]),
        (
            "endpoints = [{ address = \"a:1\" }, { address = \"a:1\" }]\n",
            ["stands twice", "leave one out"],
        ),
        ("endpoints = [", ["main.toml:1:", "endpoints"]),
        ("[upstream.main]\n", ["unknown key `upstream`", "add endpoints ="]),
    ] {
        let before = failures(&proxy);
        write(broken);
        assert!(poll(ms(5_000), || failures(&proxy) > before), "{broken}");
        let log = proxy.log();
        assert!(said.iter().all(|said| log.contains(said)), "{said:?} in {log}");
        assert_eq!(who(&proxy), "127.0.0.2");
    }
    let counted = failures(&proxy);
    std::fs::remove_file(&file).expect("it is there");
    assert!(poll(ms(5_000), || failures(&proxy) > counted));
    assert_eq!(who(&proxy), "127.0.0.2");
    write(&line("127.0.0.3"));
    served_by(&proxy, &["127.0.0.3"]);
    // What has a name in it is looked up as the names of a configuration are.
    write(&format!(
        "endpoints = [{{ address = \"localhost:{port}\", weight = 0 }}, {{ address = \"127.0.0.2:{port}\" }}]\n"
    ));
    served_by(&proxy, &["127.0.0.2"]);
    drop(std::fs::remove_dir_all(&folder));
}

/// Endpoints come and go under load: no request is lost, and one that is served by an endpoint that
/// goes ends in its own time.
fn no_request_is_lost(driver: &'static str) {
    let (dns, port) = (NameServer::start(), free_address().port());
    let ips = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];
    let origins = ips.map(|ip| origin(ip, port));
    for origin in &origins {
        origin.script("/slow", vec![Op::Body, Op::Sleep(4_000), Op::Ok]);
    }
    dns.set("orders.test", 0, &ips);
    let discover = format!("dns = \"orders.test:{port}\", resolver = \"{}\"", dns.address);
    let proxy = Proxy::start(settings(driver, &discover, ""));
    let endpoints = |count| {
        let now = || proxy.metric("ringway_discovery_endpoints", "upstream=\"main\"");
        assert!(poll(ms(8_000), || now() == f64::from(count)), "{count} endpoints");
    };
    let answered = under_load(proxy.address, |tally| {
        let slow = Client::open(proxy.address).expect("a connection");
        slow.send(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let holds = || {
            origins
                .iter()
                .position(|origin| origin.look(|r| r.seen().any(|it| it.path() == "/slow")))
        };
        assert!(poll(ms(5_000), || holds().is_some()), "an origin has it");
        let gone = holds().expect("just seen");
        let left: Vec<&str> =
            ips.iter().enumerate().filter(|it| it.0 != gone).map(|it| *it.1).collect();
        dns.set("orders.test", 0, &left);
        endpoints(2);
        let seen = origins[gone].look(|record| record.seen().count());
        assert!(tally.more(200));
        let since = origins[gone].look(|record| record.seen().count());
        // The gauge is set before the last worker has heard of it.
        assert!(since - seen < 100, "{since} and {seen}: it gets no more requests");
        assert!(slow.wait_responses(1, ms(8_000)), "it was served to its end");
        dns.set("orders.test", 0, &ips[..1]);
        endpoints(1);
        assert!(tally.more(200));
        dns.set("orders.test", 0, &ips);
        endpoints(3);
        assert!(tally.more(200));
    });
    assert!(answered > 600);
    assert!(poll(ms(8_000), || proxy.metric("ringway_config_snapshots_alive", "") == 1.0), "freed");
}

/// Over TLS the certificate is that of the name, whatever the address.
fn certificates_are_for_the_name(driver: &'static str) {
    let dns = NameServer::start();
    let authority = Authority::new("Test CA");
    let folder = scratch();
    let ca = put(&folder, "ca.pem", &authority.pem());
    let ca = ca.display();
    let origin = TlsOrigin::start(&authority.issue(&Wanted::of(&["orders.test"], 1)), None);
    let port = origin.address.port();
    dns.set("orders.test", 1, &["127.0.0.1"]);
    dns.set("other.test", 1, &["127.0.0.1"]);
    dns.service("_https._tcp.test", 1, &[(0, 0, port, "orders.test")]);
    let tls = format!("tls = {{ ca = \"{ca}\" }}\n");
    let resolver = format!("resolver = \"{}\"", dns.address);
    let mut proxy =
        Proxy::start(settings(driver, &format!("dns = \"orders.test:{port}\", {resolver}"), &tls));
    assert_eq!(who(&proxy), "200");
    proxy.rewrite(settings(driver, &format!("srv = \"_https._tcp.test\", {resolver}"), &tls));
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(who(&proxy), "200");
    proxy.rewrite(settings(driver, &format!("dns = \"other.test:{port}\", {resolver}"), &tls));
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(who(&proxy), "502", "the certificate names another");
    drop(std::fs::remove_dir_all(&folder));
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    addresses_come_and_go a_ttl_is_kept the_last_good_answer_stays families_are_lost_apart
    a_service a_service_with_reserves a_file no_request_is_lost certificates_are_for_the_name
}
