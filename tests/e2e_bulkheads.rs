//! Places in flight of upstreams and routes, and queues for them (B1).

mod harness;

use std::time::Instant;

use harness::client::{ask, plain_get};
use harness::origin::Op;
use harness::proxy::{endpoint, route, upstream};
use harness::{Client, Origin, Proxy, Response, Settings, ms, poll};
use rustix::process::Signal;

const TIMEOUTS: &str =
    "timeouts = { connect = \"1s\", response = \"20s\", body = \"5s\", idle = \"5s\" }";

/// A proxy with one worker in front of one origin, with these keys of the upstream.
fn proxy(driver: &'static str, origin: &Origin, keys: &str) -> Proxy {
    let section = upstream("main", &[endpoint(&origin.address, 1)], &format!("{TIMEOUTS}\n{keys}"));
    Proxy::start(Settings::new(driver, "").upstreams(section))
}

fn get(proxy: &Proxy, path: &str) -> Response {
    let received = ask(proxy.address, &plain_get(path), ms(5_000)).expect("an answer");
    received.finals.into_iter().next().expect("a final answer")
}

/// Sends a request and does not wait.
fn asked(proxy: &Proxy, path: &str) -> Client {
    let client = Client::open(proxy.address).expect("a connection");
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes());
    client
}

/// An origin whose requests to `/held` hang until [`release`].
fn holding() -> Origin {
    let origin = Origin::start();
    origin.script("/held", vec![Op::Hang]);
    origin
}

/// Lets the requests that hang fail, which gives their places back.
fn release(origin: &Origin) {
    origin.hang_up();
}

fn waiting(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_upstream_queue_length", "main")
}

/// A place that comes back goes to whoever waits longest.
fn a_queue_is_served_in_order(driver: &'static str) {
    let origin = holding();
    let proxy =
        proxy(driver, &origin, "in_flight_max = 1\nqueue = { length_max = 8, timeout = \"5s\" }");
    let held = asked(&proxy, "/held");
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 1), "the place is taken");
    let queued: Vec<Client> = (0..5)
        .map(|number| {
            let client = asked(&proxy, &format!("/{number}"));
            let length = f64::from(number + 1);
            assert!(poll(ms(2_000), || waiting(&proxy) == length), "{number} waits");
            client
        })
        .collect();
    assert_eq!(origin.look(|record| record.seen().count()), 1, "none of them got through");
    release(&origin);
    for (number, client) in queued.iter().enumerate() {
        assert!(client.wait_responses(1, ms(3_000)), "answer {number}");
        assert_eq!(client.received().finals[0].status, 200, "answer {number}");
    }
    let targets: Vec<Vec<u8>> =
        origin.look(|record| record.seen().map(|request| request.target.clone()).collect());
    assert_eq!(targets[1..], ["/0", "/1", "/2", "/3", "/4"].map(|text| text.as_bytes().to_vec()));
    assert_eq!(proxy.metric("ringway_upstream_queued_total", "main"), 5.0);
    assert_eq!((waiting(&proxy), proxy.errors("at_capacity")), (0.0, 0.0));
    drop(held);
}

/// A full queue refuses at once; who waits too long is told so; each has its own code.
fn a_queue_is_bounded(driver: &'static str) {
    let origin = holding();
    let keys = "in_flight_max = 1\nqueue = { length_max = 1, timeout = \"300ms\" }";
    let proxy = proxy(driver, &origin, keys);
    let held = asked(&proxy, "/held");
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 1), "the place is taken");
    let waits = asked(&proxy, "/waits");
    assert!(poll(ms(2_000), || waiting(&proxy) == 1.0), "one waits");
    let answer = get(&proxy, "/full");
    assert_eq!((answer.status, answer.code()), (503, Some("queue_full".into())));
    assert!(waits.wait_responses(1, ms(2_000)), "it is answered");
    let answer = waits.received().finals[0].clone();
    assert_eq!((answer.status, answer.code()), (503, Some("queue_timeout".into())));
    assert_eq!(waiting(&proxy), 0.0, "nobody waits");
    let waited = proxy.metric("ringway_upstream_queue_wait_milliseconds_total", "main");
    assert!(waited >= 300.0, "{waited} ms");
    release(&origin);
    assert!(held.wait_responses(1, ms(2_000)), "what was held ends");
    assert!(poll(ms(3_000), || get(&proxy, "/again").status == 200), "and there is room again");
}

/// A client that leaves leaves the queue, and takes no place with it.
fn who_leaves_waits_no_longer(driver: &'static str) {
    let origin = holding();
    let keys = "in_flight_max = 1\nqueue = { length_max = 1, timeout = \"20s\" }";
    let proxy = proxy(driver, &origin, keys);
    let held = asked(&proxy, "/held");
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 1), "the place is taken");
    let mut leaves = asked(&proxy, "/leaves");
    assert!(poll(ms(2_000), || waiting(&proxy) == 1.0), "it waits");
    leaves.reset();
    assert!(poll(ms(2_000), || waiting(&proxy) == 0.0), "it waits no longer");
    let stays = asked(&proxy, "/stays");
    assert!(poll(ms(2_000), || waiting(&proxy) == 1.0), "there is room in the queue");
    release(&origin);
    assert!(stays.wait_responses(1, ms(2_000)), "and a place");
    assert!(!origin.look(|record| record.seen().any(|request| request.target == b"/leaves")));
    assert_eq!(proxy.errors("client_aborted"), 1.0, "it is counted");
    drop(held);
}

/// The route's total time goes on in the queue.
fn the_total_time_holds_in_a_queue(driver: &'static str) {
    let origin = holding();
    let keys = "in_flight_max = 1\nqueue = { length_max = 4, timeout = \"20s\" }";
    let section = upstream("main", &[endpoint(&origin.address, 1)], &format!("{TIMEOUTS}\n{keys}"));
    let routes = route("all", "prefix = \"/\"", "main", "")
        + &route("total", "path = \"/total\"", "main", "timeouts = { total = \"300ms\" }");
    let proxy = Proxy::start(Settings::new(driver, "").upstreams(section).routes(routes));
    let held = asked(&proxy, "/held");
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 1), "the place is taken");
    let answer = get(&proxy, "/total");
    assert_eq!((answer.status, answer.code()), (504, Some("total_timeout".into())));
    drop(held);
}

/// A drain serves those who wait, and then the process ends.
fn a_drain_empties_the_queue(driver: &'static str) {
    let origin = holding();
    let keys = "in_flight_max = 1\nqueue = { length_max = 4, timeout = \"10s\" }";
    let mut proxy = proxy(driver, &origin, keys);
    let held = asked(&proxy, "/held");
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 1), "the place is taken");
    let waits = asked(&proxy, "/waits");
    assert!(poll(ms(2_000), || waiting(&proxy) == 1.0), "it waits");
    proxy.signal(Signal::TERM);
    assert!(poll(ms(3_000), || proxy.admin_get("/v1/ready").is_ok_and(|(code, _)| code != 200)));
    release(&origin);
    assert!(waits.wait_responses(1, ms(3_000)), "it is served");
    assert_eq!(waits.received().finals[0].status, 200);
    assert!(held.wait_responses(1, ms(3_000)), "so is the other");
    assert!(proxy.wait_exit(ms(5_000)).is_some_and(|status| status.success()), "it ends");
}

/// A route has places of its own, with a code of their own; other routes have theirs.
fn routes_have_places_of_their_own(driver: &'static str) {
    let origin = holding();
    let section = upstream("main", &[endpoint(&origin.address, 1)], TIMEOUTS);
    let routes = route("held", "path = \"/held\"", "main", "in_flight_max = 2")
        + &route("all", "prefix = \"/\"", "main", "");
    let proxy = Proxy::start(Settings::new(driver, "").upstreams(section).routes(routes));
    let held = [asked(&proxy, "/held"), asked(&proxy, "/held")];
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 2), "both places are taken");
    let answer = get(&proxy, "/held");
    assert_eq!((answer.status, answer.code()), (503, Some("route_at_capacity".into())));
    assert_eq!(get(&proxy, "/other").status, 200, "another route");
    assert_eq!(proxy.reload().0, 200, "a reload forgets nobody");
    assert_eq!(get(&proxy, "/held").code(), Some("route_at_capacity".into()));
    release(&origin);
    assert!(held.iter().all(|client| client.wait_responses(1, ms(3_000))), "both end");
    let again = asked(&proxy, "/held");
    assert!(origin.wait(ms(2_000), |record| record.in_flight.0 == 1), "there is room again");
    drop(again);
}

/// All workers together have what is configured, and not one place more.
fn places_of_a_node_are_exact(driver: &'static str) {
    let origin = holding();
    let section = upstream(
        "main",
        &[endpoint(&origin.address, 1)],
        &format!("{TIMEOUTS}\nin_flight_max = 5"),
    );
    let proxy = Proxy::start(Settings::new(driver, "").workers(2).upstreams(section));
    let held: Vec<Client> = (0..64).map(|_| asked(&proxy, "/held")).collect();
    let refused = || held.iter().filter(|client| !client.received().finals.is_empty()).count();
    assert!(poll(ms(3_000), || refused() == 59), "{} were refused", refused());
    assert_eq!(origin.look(|record| record.in_flight.0), 5);
}

/// One upstream that hangs entirely changes nothing for another on the same workers: every request
/// to that is served meanwhile, with nothing in its way but its own service.
fn a_hanging_upstream_costs_another_nothing(driver: &'static str) {
    let (dead, alive) = (Origin::start(), Origin::start());
    dead.otherwise(vec![Op::Hang]);
    let keys = "in_flight_max = 20\nqueue = { length_max = 20, timeout = \"20s\" }";
    let sections = upstream("dead", &[endpoint(&dead.address, 1)], &format!("{TIMEOUTS}\n{keys}"))
        + &upstream("alive", &[endpoint(&alive.address, 1)], TIMEOUTS);
    let routes = route("dead", "prefix = \"/dead/\"", "dead", "")
        + &route("alive", "prefix = \"/\"", "alive", "");
    let settings = Settings::new(driver, "").workers(2).upstreams(sections).routes(routes);
    let proxy = Proxy::start(settings);
    let stuck: Vec<Client> = (0..120).map(|n| asked(&proxy, &format!("/dead/{n}"))).collect();
    let refused = || stuck.iter().filter(|client| !client.received().finals.is_empty()).count();
    assert!(poll(ms(5_000), || refused() == 80), "20 hang, 20 wait, {} failed", refused());
    let clients: Vec<Client> =
        (0..16).map(|_| Client::open(proxy.address).expect("a connection")).collect();
    let (rounds, mut slowest) = (50, ms(0));
    for round in 1..=rounds {
        for client in &clients {
            client.send(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
        }
        let began = Instant::now();
        for client in &clients {
            assert!(client.wait_responses(round, ms(2_000)), "round {round}");
        }
        slowest = slowest.max(began.elapsed());
    }
    let served = |client: &Client| client.received().finals.iter().all(|it| it.status == 200);
    assert!(clients.iter().all(served), "every one of them was served");
    assert_eq!(alive.look(|record| record.seen().count()), rounds * clients.len(), "each once");
    // Whatever hangs or waits ends after 20 s: nothing waited for any of it.
    assert!(slowest < ms(2_000), "the slowest round took {slowest:?}");
    assert_eq!((dead.look(|record| record.in_flight.0), refused()), (20, 80), "they still do");
}

/// A cap that nobody gave follows how long answers take, down and up again, and is kept.
fn concurrency_follows_the_answers(driver: &'static str) {
    let origin = Origin::start();
    origin.otherwise(vec![Op::Body, Op::Sleep(20), Op::Ok]);
    let proxy = proxy(driver, &origin, "concurrency = { min = 3, max = 40 }");
    let clients: Vec<Client> =
        (0..24).map(|_| Client::open(proxy.address).expect("a connection")).collect();
    let mut rounds = 0;
    let mut round_until = |ready: &dyn Fn(f64) -> bool| {
        let began = Instant::now();
        while began.elapsed() < ms(20_000) {
            rounds += 1;
            clients.iter().for_each(|client| {
                client.send(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
            });
            let answered = |client: &Client| client.wait_responses(rounds, ms(5_000));
            assert!(clients.iter().all(answered), "round {rounds}");
            if ready(proxy.metric("ringway_upstream_concurrency_limit", "main")) {
                return true;
            }
        }
        false
    };
    assert!(round_until(&|limit| limit >= 24.0), "it rises while answers take as long as at rest");
    origin.otherwise(vec![Op::Body, Op::Sleep(300), Op::Ok]);
    assert!(round_until(&|limit| (3.0..=8.0).contains(&limit)), "it falls while they take longer");
    origin.look(|record| assert!(record.in_flight.1 <= 40, "never more than the most"));
    assert!(proxy.errors("at_capacity") > 0.0, "what finds no place fails at once");
    origin.otherwise(vec![Op::Body, Op::Sleep(20), Op::Ok]);
    assert!(round_until(&|limit| limit >= 16.0), "and rises again");
}

/// `status` says what bounds an upstream and how much of it is used, over all workers, as the metrics do.
fn status_shows_places_and_queues(driver: &'static str) {
    let origin = holding();
    let endpoints = [endpoint(&origin.address, 1)];
    let keys = "in_flight_max = 6\nqueue = { length_max = 4, timeout = \"20s\" }";
    let sections = upstream("main", &endpoints, &format!("{TIMEOUTS}\n{keys}"))
        + &upstream(
            "local",
            &endpoints,
            &format!("{TIMEOUTS}\nconcurrency = {{ min = 4, max = 40 }}"),
        )
        + &upstream("open", &endpoints, TIMEOUTS);
    let routes = route("local", "prefix = \"/local/\"", "local", "")
        + &route("open", "prefix = \"/open/\"", "open", "")
        + &route("all", "prefix = \"/\"", "main", "");
    let settings = Settings::new(driver, "").workers(2).upstreams(sections).routes(routes);
    let proxy = Proxy::start(settings);
    let of = |name: &str| {
        let status = proxy.status();
        let upstreams = status["upstreams"].as_array().expect("a list").clone();
        upstreams.into_iter().find(|it| it["name"] == name).expect("it is there")
    };
    let held: Vec<Client> = (0..64).map(|_| asked(&proxy, "/held")).collect();
    let refused = || held.iter().filter(|client| !client.received().finals.is_empty()).count();
    assert!(poll(ms(5_000), || refused() == 54), "{} were refused", refused());
    let shown = of("main");
    assert_eq!((&shown["in_flight"], &shown["in_flight_max"]), (&6.into(), &6.into()), "{shown}");
    let queue = (&shown["queue_length"], &shown["queue_length_max"]);
    assert_eq!(queue, (&4.into(), &4.into()), "{shown}");
    assert!(shown["concurrency_limit"].is_null(), "nothing follows the answers: {shown}");
    assert_eq!(
        (waiting(&proxy), proxy.metric("ringway_upstream_requests_in_flight", "main")),
        (4.0, 6.0)
    );
    let served = poll(ms(8_000), || {
        (0..8).for_each(|number| assert_eq!(get(&proxy, &format!("/local/{number}")).status, 200));
        of("local")["concurrency_limit"].as_u64().is_some_and(|limit| limit >= 4)
    });
    let shown = of("local");
    assert!(served && shown["in_flight_max"].is_null(), "{shown}");
    let limit = proxy.metric("ringway_upstream_concurrency_limit", "local");
    assert_eq!(shown["concurrency_limit"].as_f64(), Some(limit));
    let shown = of("open");
    let bounds = ["in_flight_max", "concurrency_limit", "queue_length_max"];
    assert!(bounds.iter().all(|key| shown[key].is_null()), "nothing bounds it: {shown}");
    assert_eq!(shown["queue_length"], 0);
}

/// Whoever waits while a breaker opens is told so, and is not sent to what it stands for.
fn a_breaker_that_opens_fails_those_who_wait(driver: &'static str) {
    let origin = holding();
    origin.script("/bad", vec![Op::Body, Op::Send(BROKEN.into()), Op::Close]);
    let keys = "in_flight_max = 1\nqueue = { length_max = 4, timeout = \"20s\" }\n\
                breaker = { requests_min = 10, service = { error_percent = 10 } }";
    let proxy = proxy(driver, &origin, keys);
    for _ in 0..9 {
        assert_eq!(get(&proxy, "/bad").status, 503);
    }
    let tenth = asked(&proxy, "/held");
    let held = |count| origin.wait(ms(2_000), move |record| record.seen().count() == count);
    assert!(held(10), "the place is taken");
    let next = asked(&proxy, "/held");
    assert!(poll(ms(2_000), || waiting(&proxy) == 1.0), "it waits");
    let last = asked(&proxy, "/last");
    assert!(poll(ms(2_000), || waiting(&proxy) == 2.0), "both wait");
    // One failure too many; the next one has the place before anybody has judged that.
    release(&origin);
    assert!(tenth.wait_responses(1, ms(2_000)) && held(11), "the place is given on");
    let state = || proxy.metric("ringway_breaker_state", "tier=\"service\"");
    assert!(poll(ms(3_000), || state() > 0.0), "{}", proxy.log());
    release(&origin);
    assert!(next.wait_responses(1, ms(2_000)) && last.wait_responses(1, ms(2_000)));
    let answer = last.received().finals[0].clone();
    assert_eq!((answer.status, answer.code()), (503, Some("breaker_open".into())));
    assert_eq!(origin.look(|record| record.seen().count()), 11, "the last was not sent");
}

/// It ends its connection: what is sent next is on a new one, and so is not sent again when that ends.
const BROKEN: &str = "HTTP/1.1 503 Broken\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    a_queue_is_served_in_order a_queue_is_bounded who_leaves_waits_no_longer
    the_total_time_holds_in_a_queue a_drain_empties_the_queue routes_have_places_of_their_own
    places_of_a_node_are_exact concurrency_follows_the_answers
    a_hanging_upstream_costs_another_nothing status_shows_places_and_queues
    a_breaker_that_opens_fails_those_who_wait
}
