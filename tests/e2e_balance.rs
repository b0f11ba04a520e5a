//! Balancing over real sockets: shares of each policy, keys, cookies, named endpoints, zones, shards,
//! isolation and probes.

mod harness;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crossbeam_channel::Receiver;
use harness::client::ask;
use harness::proxy::route;
use harness::{Client, Op, Origin, Proxy, Response, Settings, ms, poll};
use ringway::observe::WorkerCounters;
use ringway::snapshot::{Ids, Snapshot, load_text};
use ringway::upstream::{Standing, Standings};
use ringway::worker::{Change, Message};
use ringway::worker::{InboxSender, Opened, Report, Setup, inbox, spawn};

const TIMEOUTS: &str = "timeouts = { connect = \"1s\", response = \"2s\", body = \"1s\" }";

fn origins(count: usize) -> Vec<Origin> {
    (0..count).map(|_| Origin::start()).collect()
}

/// One element of `endpoints`.
fn in_zone(origin: &Origin, weight: u32, zone: &str) -> String {
    let address = &origin.address;
    format!("{{ address = \"{address}\", weight = {weight}, zone = \"{zone}\" }}")
}

/// `[upstream.main]` with weights and zones; `more` are further keys.
fn upstream(origins: &[Origin], weights: &[u32], zones: &[&str], more: &str) -> String {
    let endpoints: Vec<String> = (origins.iter().zip(weights.iter().zip(zones)))
        .map(|(origin, (weight, zone))| in_zone(origin, *weight, zone))
        .collect();
    format!("[upstream.main]\nendpoints = [{}]\n{TIMEOUTS}\n{more}\n\n", endpoints.join(", "))
}

fn start(driver: &'static str, upstream: String) -> Proxy {
    Proxy::start(Settings::new(driver, "127.0.0.1:1").workers(2).upstreams(upstream))
}

fn get(address: SocketAddr, path: &str, fields: &str) -> Response {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n{fields}\r\n");
    let received = ask(address, request.as_bytes(), ms(5_000)).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

/// Ends an origin, and waits until its port refuses connections.
fn stop(origin: Origin) {
    let address: SocketAddr = origin.address.parse().expect("an address");
    drop(origin);
    assert!(poll(ms(5_000), || TcpStream::connect(address).is_err()));
}

/// Requests that each origin has got, those of the readiness check left out.
fn counts(origins: &[Origin]) -> Vec<usize> {
    origins.iter().map(|origin| origin.look(|record| record.seen().count())).collect()
}

/// The origin that a request went to.
fn asked(origins: &[Origin], act: impl FnOnce() -> Response) -> usize {
    let before = counts(origins);
    assert_eq!(act().status, 200);
    let after = counts(origins);
    let more = |index: &usize| after[*index] > before[*index];
    (0..origins.len()).find(more).expect("one was asked")
}

/// Each policy gives each endpoint its share.
fn shares(driver: &'static str) {
    for (policy, deviation) in [("round_robin", 8), ("random", 60), ("least_request", 60)] {
        let origins = origins(3);
        let keys = format!("balance = \"{policy}\"");
        let proxy = start(driver, upstream(&origins, &[100, 200, 100], &["a"; 3], &keys));
        for _ in 0..400 {
            assert_eq!(get(proxy.address, "/", "").status, 200);
        }
        let counts = counts(&origins);
        let near = counts.iter().zip([100, 200, 100]).all(|(a, b)| a.abs_diff(b) <= deviation);
        assert!(near, "{policy}: {counts:?}");
    }
}

/// Least requests spare the endpoint that is busy, latencies the one that is slow.
fn busy_and_slow_endpoints(driver: &'static str) {
    for policy in ["least_request", "ewma"] {
        let origins = origins(3);
        origins[1].otherwise(vec![Op::Body, Op::Sleep(60), Op::Ok]);
        let keys = format!("balance = \"{policy}\"");
        let proxy = start(driver, upstream(&origins, &[100; 3], &["a"; 3], &keys));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let client = Client::open(proxy.address).expect("a connection");
                    for number in 1..=60 {
                        client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
                        assert!(client.wait_responses(number, ms(5_000)), "answer {number}");
                    }
                });
            }
        });
        let counts = counts(&origins);
        assert_eq!(counts.iter().sum::<usize>(), 360);
        assert!(counts[1] < 70, "a fifth at most: {policy} {counts:?}");
    }
}

/// The same key goes to the same endpoint on every worker; keys spread; without one anything goes.
fn keys(driver: &'static str) {
    let origins = origins(3);
    let hash = "balance = \"hash\"\nhash = { key = \"header:x-user-id\" }";
    let proxy = start(driver, upstream(&origins, &[100; 3], &["a"; 3], hash));
    let mut own = Vec::new();
    for user in 0..12 {
        let field = format!("X-User-Id: u{user}\r\n");
        let ask = || asked(&origins, || get(proxy.address, "/", &field));
        let first = ask();
        assert!((0..6).all(|_| ask() == first), "u{user}");
        own.push(first);
    }
    own.sort_unstable();
    own.dedup();
    assert!(own.len() > 1, "keys are spread");
    let before = counts(&origins);
    (0..60).for_each(|_| assert_eq!(get(proxy.address, "/", "").status, 200));
    let after = counts(&origins);
    assert!(before.iter().zip(&after).all(|(before, after)| after > before));
}

/// A cookie keeps a client at its endpoint, and names another one when that is gone.
fn sticky(driver: &'static str) {
    let mut origins = origins(3);
    let keys = "sticky = { cookie = \"srv\", ttl = \"1h\" }";
    let proxy = start(driver, upstream(&origins, &[100; 3], &["a"; 3], keys));
    let cookie = |answer: &Response| {
        answer.get("set-cookie").map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let first = cookie(&get(proxy.address, "/", "")).expect("a cookie");
    let (value, attributes) = first.split_once(';').expect("attributes");
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax; Max-Age=3600");
    let token = value.strip_prefix("srv=").expect("its name");
    assert!(token.len() == 16 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    let field = format!("Cookie: other=1; {value}\r\n");
    let own = asked(&origins, || get(proxy.address, "/", &field));
    for _ in 0..10 {
        let again = asked(&origins, || {
            let answer = get(proxy.address, "/", &field);
            assert_eq!(cookie(&answer), None, "it has it already");
            answer
        });
        assert_eq!(again, own);
    }
    let forged = get(proxy.address, "/", "Cookie: srv=0000000000000001\r\n");
    assert!(cookie(&forged).is_some(), "nobody is called that");
    stop(origins.remove(own));
    let answer = get(proxy.address, "/", &field);
    assert_eq!(answer.status, 200);
    let other = cookie(&answer).expect("another one");
    assert!(!other.starts_with(value), "{other}");
}

/// A tunnel's answer names its endpoint as others do: the next one of the client goes there too.
fn sticky_tunnels(driver: &'static str) {
    let origins = origins(3);
    let switched = "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    origins.iter().for_each(|origin| origin.otherwise(vec![Op::Tunnel(switched.into())]));
    let keys = "sticky = { cookie = \"srv\" }";
    let proxy = start(driver, upstream(&origins, &[100; 3], &["a"; 3], keys));
    let open = |field: &str| {
        let before = counts(&origins);
        let upgrade = "Connection: upgrade\r\nUpgrade: echo\r\n";
        let client = Client::open(proxy.address).expect("a connection");
        client.send(format!("GET / HTTP/1.1\r\nHost: a.test\r\n{upgrade}{field}\r\n").as_bytes());
        assert!(client.wait_responses(1, ms(5_000)));
        let answer = client.received().finals.remove(0);
        assert_eq!(answer.status, 101);
        let after = counts(&origins);
        let to = (0..3).find(|index| after[*index] > before[*index]).expect("one was asked");
        (to, answer.get("set-cookie").map(|value| String::from_utf8_lossy(value).into_owned()))
    };
    let (own, cookie) = open("");
    let cookie = cookie.expect("a cookie");
    let (value, _) = cookie.split_once(';').expect("attributes");
    for _ in 0..6 {
        assert_eq!(open(&format!("Cookie: {value}\r\n")), (own, None));
    }
}

/// R18: requests with certain features go to one endpoint.
fn named_endpoints(driver: &'static str) {
    let mut origins = origins(3);
    let address = origins[1].address.clone();
    let directed = |id: &str, fallback: bool| {
        let when = format!("priority = 10\nwhen = [{{ header = \"x-node\", equals = \"{id}\" }}]");
        let more = format!("{when}\nendpoint = \"{address}\"\nfallback = {fallback}");
        route(id, "prefix = \"/\"", "main", &more)
    };
    let routes = [
        route("all", "prefix = \"/\"", "main", ""),
        directed("only", false),
        directed("first", true),
    ];
    let settings = Settings::new(driver, "127.0.0.1:1")
        .workers(2)
        .upstreams(upstream(&origins, &[100, 0, 100], &["a"; 3], ""))
        .routes(routes.concat());
    let proxy = Proxy::start(settings);
    for _ in 0..20 {
        for (field, own) in [("X-Node: only\r\n", true), ("X-Node: first\r\n", true), ("", false)] {
            let to = asked(&origins, || get(proxy.address, "/", field));
            assert_eq!(to == 1, own, "{field}");
        }
    }
    stop(origins.remove(1));
    for _ in 0..20 {
        assert_eq!(get(proxy.address, "/", "X-Node: first\r\n").status, 200);
        assert_eq!(get(proxy.address, "/", "").status, 200);
    }
    // It fails, and then is isolated on each worker.
    let gone = poll(ms(5_000), || {
        let answer = get(proxy.address, "/", "X-Node: only\r\n");
        assert!(answer.status == 502 || answer.status == 503);
        answer.code().as_deref() == Some("no_endpoint")
    });
    assert!(gone);
}

/// The own zone comes first; where it is gone the others take its requests.
fn locality(driver: &'static str) {
    let mut origins = origins(3);
    let main = upstream(&origins, &[100; 3], &["a", "b", "b"], "locality = true");
    let settings = Settings::new(driver, "127.0.0.1:1").workers(2).runtime("zone = \"a\"");
    let proxy = Proxy::start(settings.upstreams(main));
    (0..40).for_each(|_| assert_eq!(get(proxy.address, "/", "").status, 200));
    assert_eq!(counts(&origins), [40, 0, 0]);
    stop(origins.remove(0));
    (0..40).for_each(|_| assert_eq!(get(proxy.address, "/", "").status, 200));
    let counts = counts(&origins);
    assert!(counts.iter().sum::<usize>() == 40 && counts.iter().all(|count| *count > 5));
}

/// G14: a key decides the zone, and never splits; `explain` says which.
fn shards(driver: &'static str) {
    let origins = origins(4);
    let shard = "shard = { key = \"header:x-uid\", zones = { a = \"0-800\", b = \"801-999\" } }";
    let proxy = start(driver, upstream(&origins, &[100; 4], &["a", "a", "b", "b"], shard));
    for (key, bucket, zone) in [("alice", 753, "a"), ("1", 873, "b"), ("42", 907, "b")] {
        let field = format!("X-Uid: {key}\r\n");
        for _ in 0..12 {
            let to = asked(&origins, || get(proxy.address, "/", &field));
            assert_eq!(to < 2, zone == "a", "{key}");
        }
        let path = format!("/v1/explain?url=/&header=X-Uid:{key}");
        let (status, body) = proxy.admin_get(&path).expect("an answer");
        assert_eq!(status, 200);
        let answer: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let target = &answer["targets"][0];
        assert_eq!(target["shard"], serde_json::json!({ "bucket": bucket, "zone": zone }));
        assert_eq!(target["endpoints"].as_array().map(Vec::len), Some(2));
    }
    let before = counts(&origins);
    (0..60).for_each(|_| assert_eq!(get(proxy.address, "/", "").status, 200));
    assert!(counts(&origins).iter().zip(before).all(|(after, before)| *after > before));
}

/// Failures in a row isolate an endpoint at once, on each worker that sees them.
fn isolation(driver: &'static str) {
    let origins = origins(3);
    let failing = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    origins[1].otherwise(vec![Op::Body, Op::Send(failing.into())]);
    let proxy = start(driver, upstream(&origins, &[100; 3], &["a"; 3], ""));
    let failed = (0..200).filter(|_| get(proxy.address, "/", "").status == 503).count();
    assert!((5..=10).contains(&failed), "five on each of two workers: {failed}");
    assert_eq!(counts(&origins)[1], failed);
}

/// A worker of this process, which is told of standings by hand.
struct Told {
    address: SocketAddr,
    snapshot: Arc<Snapshot>,
    inbox: InboxSender,
    reports: Receiver<Report>,
}

impl Told {
    fn start(driver: &str, origins: &[Origin]) -> Told {
        let main = upstream(origins, &[100; 3], &["a"; 3], "");
        let text = format!(
            "[runtime]\nworkers = 1\ndriver = \"{driver}\"\n[listener.public]\n\
             address = \"127.0.0.1:0\"\n{main}{}",
            route("all", "prefix = \"/\"", "main", "")
        );
        let loaded = load_text("test", &text, &mut Ids::default(), 1).expect("it is right");
        let snapshot = Arc::new(loaded.snapshot);
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        socket.set_nonblocking(true).expect("a socket");
        let address = socket.local_addr().expect("it is bound");
        let (sender, inbox) = inbox::inbox().expect("a descriptor is left");
        let (reports, reported) = crossbeam_channel::unbounded();
        let setup = Setup {
            index: 0,
            workers: 1,
            cpu: None,
            opened: vec![Opened { plan: snapshot.listeners[0].clone(), socket }],
            snapshot: snapshot.clone(),
            counters: Arc::new(WorkerCounters::default()),
            log: ringway::observe::access_log::log_queue().0,
            series: ringway::observe::SeriesRegistry::default().add_worker(),
            inbox,
            reports,
            connections_max: 100,
        };
        spawn(setup).expect("a thread");
        assert!(matches!(reported.recv(), Ok(Report::Started { .. })));
        Told { address, snapshot, inbox: sender, reports: reported }
    }

    /// Tells the worker, and waits until it knows: what follows is taken after it, and reported.
    fn tell(&self, upstream: Standing, first: Standing) {
        let main = &self.snapshot.upstreams[0];
        let standings = Standings {
            upstreams: vec![(main.id, upstream)],
            endpoints: vec![(main.endpoints[0].id, first)],
        };
        let change =
            Change { snapshot: self.snapshot.clone(), opened: Vec::new(), connections_max: 100 };
        self.inbox.send(Message::Standings(Arc::new(standings))).expect("it has room");
        self.inbox.send(Message::Snapshot(Box::new(change))).expect("it has room");
        assert!(matches!(self.reports.recv(), Ok(Report::Applied { .. })));
    }
}

/// What the control thread says of endpoints and of the whole upstream is done.
fn standings(driver: &'static str) {
    let origins = origins(3);
    let told = Told::start(driver, &origins);
    told.tell(Standing::WHOLE, Standing::OUT);
    (0..30).for_each(|_| assert_eq!(get(told.address, "/", "").status, 200));
    assert_eq!(counts(&origins), [0, 15, 15]);

    // One request at a time, and the others go elsewhere meanwhile.
    told.tell(Standing::WHOLE, Standing::PROBING);
    origins[0].otherwise(vec![Op::Body, Op::Sleep(1_500), Op::Ok]);
    let clients: Vec<Client> = (0..12)
        .map(|_| {
            let client = Client::open(told.address).expect("a connection");
            client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
            client
        })
        .collect();
    assert!(clients.iter().all(|client| client.wait_responses(1, ms(5_000))));
    assert_eq!(counts(&origins)[0], 1, "one probe");

    // Half of the requests of an upstream, and none.
    told.tell(Standing::part(500), Standing::OUT);
    let answers: Vec<Response> = (0..20).map(|_| get(told.address, "/", "")).collect();
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 10);
    let refused = answers.iter().find(|answer| answer.status != 200).expect("ten");
    assert_eq!((refused.status, refused.code()), (503, Some("breaker_open".into())));
    told.tell(Standing::OUT, Standing::WHOLE);
    assert!((0..10).all(|_| get(told.address, "/", "").status == 503));
    told.tell(Standing::WHOLE, Standing::WHOLE);
    assert_eq!(get(told.address, "/", "").status, 200);
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    shares busy_and_slow_endpoints keys sticky sticky_tunnels named_endpoints locality shards isolation standings
}
