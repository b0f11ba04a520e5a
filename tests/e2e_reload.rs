//! Reload and drain under load lose no request (R6, C6, C7, X3).

mod harness;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use harness::load::under_load;
use harness::origin::Op;
use harness::proxy::{endpoint, route, upstream};
use harness::{Client, Origin, Proxy, Settings, contains, ms, pause, poll};
use rustix::process::Signal;
use serde_json::json;

/// Whether a new connection is turned away; while listeners are being closed it is left waiting.
fn refused(proxy: &Proxy) -> bool {
    TcpStream::connect_timeout(&proxy.address, ms(100)).is_err()
}

fn version(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_config_version", "")
}

/// SIGHUP with another file, five times, under load: nothing is lost, and the new routes count.
fn reload_under_load(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/load", vec![Op::Sleep(5), Op::Ok]);
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    // The file is written before the load begins, since the load borrows the proxy.
    let two = format!(
        "{}{}",
        route("all", "prefix = \"/\"", "main", ""),
        route("new", "path = \"/gateway/new\"", "main", "skip_segments = 1")
    );
    proxy.rewrite(settings.routes(two));
    let before = version(&proxy);
    under_load(proxy.address, |tally| {
        assert!(tally.more(50), "the load gets answers");
        for number in 1..=5 {
            proxy.signal(Signal::HUP);
            let done = poll(ms(5_000), || version(&proxy) >= before + f64::from(number));
            // A file that did not change may keep its version: then one is enough.
            assert!(done || number > 1, "the reload counts");
            pause(ms(50));
        }
    });
    let seen = |record: &harness::origin::Record| {
        record.requests.iter().any(|request| request.target == b"/new")
    };
    proxy.probe("/probe").expect("a plain GET");
    let answer =
        harness::client::ask(proxy.address, &harness::client::plain_get("/gateway/new"), ms(3_000));
    assert_eq!(answer.expect("an answer").finals[0].status, 200, "the new route");
    assert!(origin.look(seen), "the new route skips a segment (R4)");
}

/// A file with an error changes nothing and says so (C6).
fn bad_reload(driver: &'static str) {
    let origin = Origin::start();
    let proxy = Proxy::start(Settings::new(driver, &origin.address));
    let before = version(&proxy);
    proxy.rewrite_raw("[listener.main]\naddress = \"nonsense\"\nno_such_key = 1\n");
    proxy.signal(Signal::HUP);
    let told = poll(ms(5_000), || proxy.log().contains("no_such_key"));
    assert!(told, "the log names the key: {}", proxy.log());
    proxy.probe("/probe").expect("a plain GET");
    assert_eq!(version(&proxy), before, "the old version stays in force");
    let success = proxy.metric("ringway_config_last_reload_success", "");
    assert_eq!(success, 0.0, "the metric says that it failed");
}

/// A reload that changes an endpoint: old requests end where they began, new ones go on.
fn reload_moves_traffic(driver: &'static str) {
    let (old, new) = (Origin::start(), Origin::start());
    old.script("/slow", vec![Op::Sleep(700), Op::Ok]);
    let settings = Settings::new(driver, &old.address);
    let mut proxy = Proxy::start(settings.clone());
    let slow = Client::open(proxy.address).expect("a connection");
    slow.send(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(old.wait(ms(2_000), |record| record.requests.len() == 1), "the slow one is there");
    proxy.rewrite(settings.upstreams(upstream("main", &[endpoint(&new.address, 1)], "")));
    proxy.signal(Signal::HUP);
    let moved = poll(ms(5_000), || {
        proxy.probe("/probe").expect("a plain GET");
        new.look(|record| !record.requests.is_empty())
    });
    assert!(moved, "new requests go to the new endpoint");
    assert!(slow.wait_responses(1, ms(3_000)), "the old one is answered");
    assert_eq!(slow.received().finals[0].status, 200, "by whom it was sent to");
    let closed = poll(ms(5_000), || old.open() == 0);
    assert!(closed, "connections to an endpoint that is gone are closed");
}

/// What a reload says of an endpoint that stays holds: its zone, and how its address is written.
fn endpoints_are_renewed(driver: &'static str) {
    let origins = [Origin::start(), Origin::start()];
    let zones = |zones: [&str; 2], zone: &str| {
        let endpoints: Vec<String> = origins
            .iter()
            .zip(zones)
            .map(|(origin, zone)| {
                format!("{{ address = \"{}\", zone = \"{zone}\" }}", origin.address)
            })
            .collect();
        let host = "host_rewrite = \"${endpoint.address}\"";
        Settings::new(driver, "127.0.0.1:1")
            .upstreams(upstream("main", &endpoints, ""))
            .routes(route("all", "prefix = \"/\"", "main", &format!("zone = \"{zone}\"\n{host}")))
    };
    let mut proxy = Proxy::start(zones(["a", "b"], "a"));
    let counts = || origins.each_ref().map(|origin| origin.look(|record| record.requests.len()));
    let ask = |proxy: &Proxy| proxy.probe("/probe").expect("no 503");
    ask(&proxy);
    assert_eq!(counts(), [1, 0]);
    for (settings, wanted) in [
        (zones(["b", "a"], "a"), [1, 1]),
        (zones(["b", "c"], "c"), [1, 2]),
        (zones(["c", "b"], "c"), [2, 2]),
    ] {
        proxy.rewrite(settings);
        assert_eq!(proxy.reload().0, 200);
        ask(&proxy);
        assert_eq!(counts(), wanted);
    }

    let port = origins[0].address.rsplit(':').next().expect("a port");
    for name in ["localhost", "LOCALHOST"] {
        let address = format!("{name}:{port}");
        let host = "host_rewrite = \"${endpoint.address}\"";
        let named = Settings::new(driver, "127.0.0.1:1")
            .upstreams(upstream("main", &[endpoint(&address, 1)], ""))
            .routes(route("all", "prefix = \"/\"", "main", host));
        proxy.rewrite(named);
        assert_eq!(proxy.reload().0, 200);
        ask(&proxy);
        let host = origins[0].look(|record| {
            record.requests.last().and_then(|request| request.get("host").map(<[u8]>::to_vec))
        });
        assert_eq!(host.as_deref(), Some(address.as_bytes()), "as it is written now");
    }
}

/// A drain under load, with two workers: every request on an accepted connection is answered, the
/// process ends by itself with 0.
fn drain(driver: &'static str, signal: Signal) {
    let origin = Origin::start();
    origin.script("/load", vec![Op::Sleep(20), Op::Ok]);
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address).workers(2));
    let slow = Client::open(proxy.address).expect("a connection");
    origin.script("/slow", vec![Op::Sleep(800), Op::Ok]);
    slow.send(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    under_load(proxy.address, |tally| {
        assert!(tally.more(50), "the load gets answers");
        proxy.signal(signal);
        let refused = poll(ms(5_000), || refused(&proxy));
        assert!(refused, "the listeners close");
        pause(ms(100));
    });
    assert!(slow.wait_responses(1, ms(3_000)), "a request that was under way is answered");
    assert!(slow.received().finals[0].closes(), "and told that the connection ends");
    let began = Instant::now();
    let status = proxy.wait_exit(Duration::from_secs(8));
    assert!(status.is_some(), "still there after {:?}: {}", began.elapsed(), proxy.log());
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", proxy.log());
}

fn drain_by_term(driver: &'static str) {
    drain(driver, Signal::TERM);
}

fn drain_by_quit(driver: &'static str) {
    drain(driver, Signal::QUIT);
}

/// A client that keeps asking on one connection is told to go, and leaves no request behind.
fn drain_of_one_connection(driver: &'static str) {
    let origin = Origin::start();
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address));
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /one HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_responses(1, ms(2_000)), "an answer");
    proxy.signal(Signal::TERM);
    poll(ms(3_000), || refused(&proxy));
    client.send(b"GET /two HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.wait_responses(2, ms(2_000)), "a request on an open connection is answered");
    assert!(client.received().finals[1].closes(), "with the word that it ends");
    assert!(client.wait_end(ms(2_000)), "and it ends");
    assert_eq!(proxy.wait_exit(ms(5_000)).and_then(|status| status.code()), Some(0), "exit code");
}

/// INT drains; a second INT ends the process although a request is still under way.
fn second_interrupt(driver: &'static str) {
    let origin = Origin::start();
    let timeouts = "timeouts = { connect = \"1s\", response = \"30s\", body = \"30s\" }";
    let section = upstream("main", &[endpoint(&origin.address, 1)], timeouts);
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address).upstreams(section));
    origin.script("/hang", vec![Op::Hang]);
    let client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /hang HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(origin.wait(ms(2_000), |record| record.requests.len() == 1), "it is under way");
    proxy.signal(Signal::INT);
    let refused = poll(ms(5_000), || refused(&proxy));
    assert!(refused, "the listeners close");
    assert!(proxy.wait_exit(ms(300)).is_none(), "the request holds the drain");
    proxy.signal(Signal::INT);
    assert!(proxy.wait_exit(ms(3_000)).is_some(), "the second signal ends it: {}", proxy.log());
}

/// `POST /v1/reload` answers when it is decided: with what is in force on every worker, or why
/// nothing has changed.
fn reload_is_answered(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let one = route("all", "prefix = \"/\"", "main", "");
    let odd = upstream("odd", &[endpoint("127.0.0.1:9", 1)], "");
    let two =
        format!("{one}{odd}{}", route("new", "path = \"/x/new\"", "main", "skip_segments = 1"));
    proxy.rewrite(settings.clone().routes(two));
    let (status, answer) = proxy.reload();
    assert_eq!((status, &answer["version"], &answer["workers"]), (200, &json!(2), &json!(2)));
    assert!(answer["ms"].as_f64().is_some_and(|ms| ms > 0.0), "{answer}");
    assert!(answer["warnings"].as_str().is_some_and(|text| text.contains("`odd`")), "{answer}");
    for worker in ["0", "1"] {
        let labels = format!("worker=\"{worker}\"");
        assert_eq!(proxy.metric("ringway_worker_config_version", &labels), 2.0, "no worker lags");
    }

    proxy.rewrite_raw("[listener.main]\nno_such_key = 1\n");
    let (status, answer) = proxy.reload();
    assert_eq!(
        (status, &answer["error"], &answer["version"]),
        (422, &json!("rejected"), &json!(2))
    );
    let text = answer["diagnostics"].as_str().expect("text");
    assert!(text.contains("no_such_key") && text.contains("ringway.toml:2"), "{text}");

    proxy.rewrite(settings.clone().workers(1));
    let (status, answer) = proxy.reload();
    assert_eq!((status, &answer["error"]), (409, &json!("needs_restart")));
    assert!(answer["diagnostics"].as_str().is_some_and(|text| text.contains("`workers`")));
    assert_eq!(version(&proxy), 2.0, "the old one stays in force");
    proxy.probe("/probe").expect("a plain GET");
    assert_eq!(proxy.metric("ringway_config_last_reload_success", ""), 0.0);

    // Bounds of the runtime may change.
    proxy.rewrite(settings.runtime("drain = \"1s\"\ndrain_delay = \"10ms\"\nconnections_max = 2"));
    let (status, answer) = proxy.reload();
    assert_eq!((status, &answer["version"]), (200, &json!(3)), "{answer}");
    let alive = poll(ms(5_000), || proxy.metric("ringway_config_snapshots_alive", "") == 1.0);
    assert!(alive, "only the one in force is left");
}

/// Two callers at a time: each hears of a configuration that was read after it had asked.
fn reloads_at_the_same_time(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    for round in 1..=5 {
        let path = format!("path = \"/round/{round}\"");
        let routes = route("new", &path, "main", "skip_segments = 1");
        proxy.rewrite(settings.clone().routes(routes));
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let (status, answer) = proxy.reload();
                        assert_eq!(status, 200, "{answer}");
                        let get = harness::client::plain_get(&format!("/round/{round}"));
                        let got = harness::client::ask(proxy.address, &get, ms(3_000));
                        assert_eq!(got.expect("an answer").finals[0].status, 200, "{answer}");
                    })
                })
                .collect();
            callers.into_iter().for_each(|caller| caller.join().expect("answered"));
        });
    }
}

/// While it drains nothing is reloaded, and whoever asks is told; the drain goes on.
fn reload_during_a_drain(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/slow", vec![Op::Sleep(900), Op::Ok]);
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address).workers(2));
    let slow = Client::open(proxy.address).expect("a connection");
    slow.send(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(origin.wait(ms(2_000), |record| record.requests.len() == 1), "the slow one is there");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| (0..5).map(|_| proxy.reload().0).collect::<Vec<_>>());
        proxy.signal(Signal::TERM);
        let statuses = asking.join().expect("answers");
        assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    });
    assert!(poll(ms(2_000), || proxy.log().contains("draining for at most")), "it drains");
    let (status, answer) = proxy.reload();
    assert_eq!((status, &answer["error"]), (503, &json!("draining")));
    assert!(slow.wait_responses(1, ms(3_000)), "a request that was under way is answered");
    assert_eq!(proxy.wait_exit(ms(5_000)).and_then(|status| status.code()), Some(0), "exit code");
}

/// A name that a reload brings in is resolved before it takes force: no request finds it without.
fn a_name_that_comes_by_reload(driver: &'static str) {
    let (old, new) = (Origin::start(), Origin::start());
    let settings = Settings::new(driver, &old.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let port = new.address.rsplit(':').next().expect("a port");
    let named = upstream("main", &[endpoint(&format!("localhost:{port}"), 1)], "");
    proxy.rewrite(settings.upstreams(named));
    let (status, answer) = proxy.reload();
    assert_eq!(status, 200, "{answer}");
    // Several connections, so that both workers are asked.
    for number in 0..16 {
        proxy.probe(&format!("/probe-{number}")).expect("no 503");
    }
    assert_eq!(proxy.errors("no_endpoint"), 0.0);
    assert!(new.look(|record| record.requests.len() == 16), "the name's origin is asked");
}

/// A tunnel has bounds of its own: `timeouts.total` is over with the 101, and reloads pass it by.
fn a_tunnel_outlives_total_and_reloads(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/echo", vec![Op::Echo]);
    let routes = route("all", "prefix = \"/\"", "main", "timeouts = { total = \"300ms\" }");
    let settings = Settings::new(driver, &origin.address).routes(routes);
    let mut proxy = Proxy::start(settings.clone());
    let client = Client::open(proxy.address).expect("a connection");
    client.send(
        b"GET /echo HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    assert!(client.wait_text(b"101 "), "it switches");
    for number in 0..4 {
        proxy.rewrite(settings.clone().runtime(&format!("drain = \"{}s\"", 10 + number)));
        assert_eq!(proxy.reload().0, 200);
        // More than the bound in all.
        pause(ms(150));
        let text = format!("word {number}\n");
        client.send(text.as_bytes());
        assert!(client.wait_text(text.as_bytes()), "{}", harness::show(&client.raw()));
    }
    assert!(!contains(&client.raw(), b"504"));
    let alive = poll(ms(5_000), || proxy.metric("ringway_config_snapshots_alive", "") == 1.0);
    assert!(alive, "a tunnel holds no snapshot");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    reload_under_load bad_reload reload_moves_traffic endpoints_are_renewed drain_by_term drain_by_quit
    drain_of_one_connection second_interrupt reload_is_answered reloads_at_the_same_time
    reload_during_a_drain a_name_that_comes_by_reload
    a_tunnel_outlives_total_and_reloads
}
