//! Listeners that come, go and change with a reload lose no request (R6, C6, C7).

mod harness;

use std::net::{SocketAddr, TcpListener, TcpStream};

use harness::client::{ask, plain_get};
use harness::load::under_load;
use harness::origin::Op;
use harness::proxy::{free_address, route};
use harness::{Client, Origin, Proxy, Settings, ms, poll};
use serde_json::{Value, json};

const GET: &[u8] = b"GET /one HTTP/1.1\r\nHost: a.test\r\n\r\n";
/// Nothing ends by itself while a test looks.
const PATIENT: &str =
    "timeouts = { head = \"30s\", body = \"30s\", idle = \"30s\", write = \"30s\" }\n";

/// The settings with one more listener.
fn with_listener(settings: &Settings, name: &str, address: SocketAddr) -> Settings {
    let more = format!("[listener.{name}]\naddress = \"{address}\"\n{PATIENT}\n");
    let routes = format!("{}{more}", settings.routes);
    settings.clone().routes(routes)
}

fn reloaded(proxy: &mut Proxy, settings: &Settings) -> Value {
    proxy.rewrite(settings.clone());
    let (status, answer) = proxy.reload();
    assert_eq!(status, 200, "{answer}");
    answer
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

/// Added, removed and added again while eight clients ask: no request on a connection that was made
/// is lost, and a removed listener is closed on every worker when the reload is answered.
fn come_and_go_under_load(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/load", vec![Op::Sleep(2), Op::Ok]);
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let extra = free_address();
    let both = with_listener(&settings, "extra", extra);
    assert!(!listens(extra), "not yet");
    let answered = under_load(extra, |tally| {
        for _ in 0..5 {
            reloaded(&mut proxy, &both);
            assert!(tally.more(40), "the new listener serves");
            reloaded(&mut proxy, &settings);
            assert!(!listens(extra), "closed on every worker");
        }
    });
    assert!(answered >= 200, "{answered}");
    proxy.probe("/probe").expect("the other listener serves as before");
    let alive = poll(ms(5_000), || proxy.metric("ringway_config_snapshots_alive", "") == 1.0);
    assert!(alive, "snapshots are let go");
}

/// A listener that is renamed keeps its address all the time, and its connections.
fn renamed_under_load(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let extra = free_address();
    reloaded(&mut proxy, &with_listener(&settings, "name-0", extra));
    let kept = Client::open(extra).expect("a connection");
    kept.send(GET);
    assert!(kept.wait_responses(1, ms(2_000)), "an answer");
    under_load(extra, |tally| {
        for number in 1..=5 {
            assert!(tally.more(40), "it serves under its name");
            let name = format!("name-{number}");
            reloaded(&mut proxy, &with_listener(&settings, &name, extra));
            let shown = proxy.status()["listeners"].to_string();
            assert!(shown.contains(&name) && shown.contains(&extra.to_string()), "{shown}");
            kept.send(GET);
            let answers = 1 + number;
            assert!(kept.wait_responses(answers, ms(2_000)), "an open connection goes on");
            assert!(!kept.received().finals[number].closes(), "and on");
        }
    });
}

/// Connections that came by a removed listener: what is under way and what comes next is answered
/// with the word that the connection ends, and idle ones are closed.
fn connections_of_a_removed_listener(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/slow", vec![Op::Sleep(600), Op::Ok]);
    let settings = Settings::new(driver, &origin.address).workers(2).listener(PATIENT);
    let extra = free_address();
    let mut proxy = Proxy::start(settings.clone());
    reloaded(&mut proxy, &with_listener(&settings, "extra", extra));
    let open = |address, request: &[u8]| {
        let client = Client::open(address).expect("a connection");
        client.send(request);
        client
    };
    let kept: Vec<_> = (0..4).map(|_| open(extra, GET)).collect();
    let (idle, elsewhere) = (open(extra, GET), open(proxy.address, GET));
    for client in kept.iter().chain([&idle, &elsewhere]) {
        assert!(client.wait_responses(1, ms(2_000)), "an answer");
        assert!(!client.received().finals[0].closes(), "that keeps the connection");
    }
    let slow = open(extra, b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let under_way = |record: &harness::origin::Record| record.requests.len() == 7;
    assert!(origin.wait(ms(2_000), under_way), "the slow one is there");

    reloaded(&mut proxy, &settings);
    assert!(!listens(extra), "closed");
    for client in &kept {
        client.send(GET);
        assert!(client.wait_responses(2, ms(2_000)), "a request on an open connection is answered");
        assert!(client.received().finals[1].closes(), "with the word that it ends");
        assert!(client.wait_end(ms(2_000)), "and it ends");
    }
    assert!(slow.wait_responses(1, ms(3_000)), "what was under way is answered");
    assert!(slow.received().finals[0].closes(), "with the word that it ends");
    assert!(idle.wait_end(ms(3_000)), "an idle one is closed");
    elsewhere.send(GET);
    assert!(elsewhere.wait_responses(2, ms(2_000)), "the other listener's goes on");
    assert!(!elsewhere.received().finals[1].closes(), "and on");
    let alive = poll(ms(5_000), || proxy.metric("ringway_config_snapshots_alive", "") == 1.0);
    assert!(alive, "an idle connection holds no snapshot");
}

/// One of two new listeners cannot be bound: nothing changes, and the other one is not left open.
fn a_failed_bind_changes_nothing(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let kept = Client::open(proxy.address).expect("a connection");
    kept.send(GET);
    assert!(kept.wait_responses(1, ms(2_000)), "an answer");
    let (free, taken) = (free_address(), free_address());
    let somebody = TcpListener::bind(taken).expect("a free address");
    let asked = with_listener(&with_listener(&settings, "aaa", free), "bbb", taken);
    let more = route("new", "path = \"/gateway/new\"", "main", "skip_segments = 1");
    let asked = asked.clone().routes(format!("{more}{}", asked.routes));
    proxy.rewrite(asked.clone());
    let (status, answer) = proxy.reload();
    assert_eq!(
        (status, &answer["error"], &answer["version"]),
        (409, &json!("bind_failed"), &json!(1))
    );
    let says = format!("listener bbb: somebody else already listens on {taken}");
    assert_eq!(answer["diagnostics"], json!(says));
    assert!(!listens(free), "the other one is not left open");
    kept.send(GET);
    assert!(kept.wait_responses(2, ms(2_000)), "connections go on");
    let seen = |record: &harness::origin::Record| {
        record.requests.iter().any(|request| request.target == b"/gateway/new")
    };
    ask(proxy.address, &plain_get("/gateway/new"), ms(2_000)).expect("an answer");
    assert!(origin.look(seen), "its routes do not count either");

    drop(somebody);
    reloaded(&mut proxy, &asked);
    assert!(listens(free) && listens(taken), "now both are there");
}

/// What a reload changes of a listener counts for the next request of an open connection.
fn changed_settings_reach_open_connections(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).listener(PATIENT);
    let mut proxy = Proxy::start(settings.clone());
    let client = Client::open(proxy.address).expect("a connection");
    let forwarded = b"GET /one HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n";
    client.send(forwarded);
    assert!(client.wait_responses(1, ms(2_000)), "an answer");
    let short = "trusted_proxies = [\"127.0.0.0/8\"]\n\
                 timeouts = { head = \"300ms\", body = \"30s\", idle = \"30s\", write = \"30s\" }\n";
    reloaded(&mut proxy, &settings.listener(short));
    client.send(forwarded);
    assert!(client.wait_responses(2, ms(2_000)), "the connection goes on");
    let believed = |index: usize| {
        origin.look(|record: &harness::origin::Record| {
            let fields = &record.requests[index].fields;
            harness::grammar::values(fields, "x-forwarded-for")
                .iter()
                .any(|value| value.starts_with(b"192.0.2.9"))
        })
    };
    assert_eq!((believed(0), believed(1)), (false, true), "the peer is believed from then on");
    client.send(b"GET /half HTTP/1.1\r\nHost:");
    assert!(client.wait_responses(3, ms(3_000)), "the new timeout counts");
    assert_eq!(client.received().finals[2].status, 408);
}

/// A listener whose port the system chose keeps it, and upstreams are told which it is.
fn port_0_stays_and_is_told(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let any = with_listener(&settings, "any", "127.0.0.1:0".parse().expect("an address"));
    reloaded(&mut proxy, &any);
    let shown = |proxy: &Proxy| {
        let status = proxy.status();
        let listeners = status["listeners"].as_array().cloned().unwrap_or_default();
        let any = listeners.into_iter().find(|it| it["name"] == "any").expect("it is shown");
        any["address"]
            .as_str()
            .and_then(|text| text.parse::<SocketAddr>().ok())
            .expect("an address")
    };
    let address = shown(&proxy);
    assert_ne!(address.port(), 0);
    reloaded(&mut proxy, &any.runtime("drain = \"9s\""));
    assert_eq!(shown(&proxy), address, "it stays");
    ask(address, &plain_get("/one"), ms(2_000)).expect("an answer");
    let port = origin.look(|record: &harness::origin::Record| {
        let request = record.requests.last().expect("one request");
        let values = harness::grammar::values(&request.fields, "x-forwarded-port");
        String::from_utf8_lossy(values.first().expect("it is told")).into_owned()
    });
    assert_eq!(port, address.port().to_string());
}

/// `connections_max` may change: what is open stays open.
fn the_cap_changes(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).listener(PATIENT);
    let mut proxy = Proxy::start(settings.clone());
    let first = Client::open(proxy.address).expect("a connection");
    first.send(GET);
    assert!(first.wait_responses(1, ms(2_000)), "an answer");
    reloaded(&mut proxy, &settings.clone().runtime("connections_max = 1"));
    let refused = Client::open(proxy.address).expect("a connection");
    assert!(refused.wait_end(ms(2_000)), "closed at the cap");
    first.send(GET);
    assert!(first.wait_responses(2, ms(2_000)), "the open one goes on");
    reloaded(&mut proxy, &settings.runtime("connections_max = 10"));
    proxy.probe("/probe").expect("room again");
}

/// A listener on `[::]` has IPv4 or has it not for as long as it is bound: a reload that would change
/// that says so and changes nothing, in both directions.
fn ipv4_beside_ipv6_needs_a_restart(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let four = free_address();
    let port = four.port();
    let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port));
    let six = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    let one = with_listener(&settings, "six", any);
    let both = with_listener(&one, "four", four);
    let refused = |proxy: &mut Proxy, asked: &Settings| {
        proxy.rewrite(asked.clone());
        let (status, answer) = proxy.reload();
        assert_eq!((status, &answer["error"]), (409, &json!("needs_restart")), "{answer}");
        let text = answer["diagnostics"].as_str().expect("text").to_owned();
        assert!(text.contains(&format!("listener six on {any}")), "{text}");
        assert!(text.contains(&format!("listener four on {four}")), "{text}");
        assert!(listens(four) && listens(six), "nothing has changed");
    };
    reloaded(&mut proxy, &one);
    refused(&mut proxy, &both);
    reloaded(&mut proxy, &settings);
    reloaded(&mut proxy, &both);
    refused(&mut proxy, &one);
    // The way that the text tells.
    reloaded(&mut proxy, &with_listener(&settings, "four", four));
    assert!(listens(four) && !listens(six));
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    come_and_go_under_load renamed_under_load connections_of_a_removed_listener
    a_failed_bind_changes_nothing changed_settings_reach_open_connections
    port_0_stays_and_is_told the_cap_changes ipv4_beside_ipv6_needs_a_restart
}
