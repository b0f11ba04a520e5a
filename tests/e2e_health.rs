//! Endpoints that fail and come back, through the binary: checks, breakers, what is shown of them, and
//! that readiness says nothing of it. Two workers, on both drivers.

mod harness;

use std::net::TcpListener;

use harness::client::{Client, ask, plain_get};
use harness::proxy::{endpoint, free_address, scratch, upstream};
use harness::{DRIVERS, Op, Origin, PATIENCE, Proxy, Settings, poll};
use serde_json::Value;

const CHECKED: &str = "health = { path = \"/healthz\", interval = \"100ms\", fall = 2, rise = 2 }\n\
                       breaker = { endpoint = false }";

fn settings(driver: &'static str, origins: &[&Origin], more: &str) -> Settings {
    let endpoints: Vec<_> = origins.iter().map(|origin| endpoint(&origin.address, 1)).collect();
    Settings::new(driver, "").workers(2).upstreams(upstream("main", &endpoints, more))
}

/// What `/v1/status` says of an endpoint.
fn of(proxy: &Proxy, origin: &str) -> Value {
    let status = proxy.status();
    let endpoints = status["upstreams"][0]["endpoints"].as_array().expect("endpoints").clone();
    let found = endpoints.into_iter().find(|it| it["address"] == origin);
    found.unwrap_or_else(|| panic!("{origin} in {status}"))
}

fn becomes(proxy: &Proxy, origin: &Origin, standing: &str) {
    let reached = poll(PATIENCE, || of(proxy, &origin.address)["standing"] == standing);
    assert!(reached, "{standing}: {} {}", of(proxy, &origin.address), proxy.log());
}

fn events(proxy: &Proxy) -> Vec<Value> {
    let (status, body) = proxy.admin_get("/v1/events").expect("the admin interface answers");
    assert_eq!(status, 200);
    let answer: Value = serde_json::from_slice(&body).expect("JSON");
    answer["events"].as_array().expect("a list").clone()
}

fn answer(status: &str) -> Vec<Op> {
    vec![Op::Body, Op::Send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))]
}

/// A check that fails takes an endpoint out, and one that passes brings it back.
#[test]
fn checks_take_endpoints_out_and_bring_them_back() {
    for driver in DRIVERS {
        let (good, bad) = (Origin::start(), Origin::start());
        let proxy = Proxy::start(settings(driver, &[&good, &bad], CHECKED));
        let up = |value: f64| {
            let labels = format!("endpoint=\"{}\"", bad.address);
            poll(PATIENCE, || proxy.metric("ringway_upstream_endpoint_up", &labels) == value)
        };
        assert!(up(1.0), "checked at once: {}", proxy.status());
        bad.script("/healthz", answer("503 Broken"));
        becomes(&proxy, &bad, "out");
        assert!(up(0.0));
        let shown = of(&proxy, &bad.address);
        assert_eq!((&shown["reason"], &shown["up"]), (&"down: status 503".into(), &false.into()));
        assert_eq!(of(&proxy, &good.address)["standing"], "in");
        bad.reset([]);
        becomes(&proxy, &bad, "in");
        let told = events(&proxy);
        let words: Vec<_> = told.iter().map(|it| (it["tier"].clone(), it["to"].clone())).collect();
        assert_eq!(words, [("health".into(), "down".into()), ("health".into(), "up".into())]);
        assert!(proxy.log().contains("is down: status 503"), "{}", proxy.log());
        assert!(proxy.metric("ringway_health_checks_total", "result=\"failed\"") >= 2.0);
        assert!(proxy.metric("ringway_health_checks_total", "result=\"passed\"") >= 3.0);
    }
}

/// B11: readiness is about this node.
#[test]
fn readiness_does_not_depend_on_upstreams() {
    for driver in DRIVERS {
        let origin = Origin::start();
        let nobody = free_address().to_string();
        let more = "health = { kind = \"tcp\", interval = \"100ms\" }\n\
                    breaker = { floor_percent = 0 }";
        let endpoints = [endpoint(&nobody, 1)];
        let settings = settings(driver, &[&origin], "");
        let mut proxy =
            Proxy::start(settings.clone().upstreams(upstream("main", &endpoints, more)));
        let out = poll(PATIENCE, || of(&proxy, &nobody)["standing"] == "out");
        assert!(out, "{}", proxy.status());
        let ready = |proxy: &Proxy| proxy.admin_get("/v1/ready").expect("an answer").0;
        assert_eq!(ready(&proxy), 200, "{}", proxy.status());
        // Somebody listens there from now on.
        let listener = TcpListener::bind(&nobody).expect("the address is free");
        let is_in = poll(PATIENCE, || of(&proxy, &nobody)["standing"] == "in");
        assert!(is_in, "{}", proxy.status());
        drop(listener);
        // A reload to another endpoint forgets the first, and checks the new one at once.
        let next = settings.upstreams(upstream("main", &[endpoint(&origin.address, 1)], more));
        proxy.rewrite(next);
        assert_eq!(proxy.reload().0, 200, "{}", proxy.log());
        let up = poll(PATIENCE, || of(&proxy, &origin.address)["up"] == true);
        assert!(up, "{}", proxy.status());
        assert_eq!(ready(&proxy), 200);
    }
}

/// Without breakers and checks nothing is judged, and nothing is shown of it.
#[test]
fn upstreams_without_breakers_are_whole() {
    let origin = Origin::start();
    let proxy = Proxy::start(settings("epoll", &[&origin], ""));
    proxy.probe("/probe").expect("a plain GET");
    let shown = of(&proxy, &origin.address);
    assert!(shown["standing"].is_null() && shown["breaker"].is_null(), "{shown}");
    assert_eq!(proxy.metric("ringway_breaker_state", ""), 0.0);
    assert!(events(&proxy).is_empty());
}

/// Short times, so that a test sees all of a breaker's states.
const QUICK: &str = "open = \"1s\", trickle = \"1s\", trickle_percent = 50, requests_min = 10";

/// Statuses of so many requests, each on a connection of its own, so that every worker gets some.
fn statuses(proxy: &Proxy, count: usize) -> Vec<u16> {
    let get = || ask(proxy.address, &plain_get("/work"), PATIENCE).expect("an answer");
    (0..count).map(|_| get().finals.first().map_or(0, |answer| answer.status)).collect()
}

/// Sends requests until an endpoint stands like this.
fn driven_to(proxy: &Proxy, origin: &Origin, standing: &str) {
    let reached = poll(PATIENCE, || {
        statuses(proxy, 4);
        of(proxy, &origin.address)["standing"] == standing
    });
    assert!(reached, "{standing}: {} {}", of(proxy, &origin.address), proxy.log());
}

/// The states that the breakers of a tier entered.
fn states(proxy: &Proxy, tier: &str) -> Vec<String> {
    let told = events(proxy).into_iter().filter(|event| event["tier"] == tier);
    told.map(|event| event["to"].as_str().expect("a word").to_owned()).collect()
}

/// An endpoint that fails is isolated, by failures in a row and by their share, and comes back by
/// probes and a trickle.
#[test]
fn a_breaker_opens_probes_trickles_and_closes() {
    for (driver, tier) in DRIVERS.into_iter().zip([
        "endpoint = { consecutive = 5, error_percent = 0 }",
        "endpoint = { consecutive = 0, error_percent = 30 }",
    ]) {
        let (good, bad, other) = (Origin::start(), Origin::start(), Origin::start());
        let more = format!("breaker = {{ {QUICK}, {tier} }}");
        let proxy = Proxy::start(settings(driver, &[&good, &bad, &other], &more));
        bad.otherwise(answer("503 Broken"));
        driven_to(&proxy, &bad, "out");
        let labels = format!("endpoint=\"{}\"", bad.address);
        let state = || proxy.metric("ringway_breaker_state", &labels);
        assert!([1.0, 2.0].contains(&state()), "{}", proxy.status());
        bad.reset([]);
        driven_to(&proxy, &bad, "in");
        assert_eq!(state(), 0.0);
        let states = states(&proxy, "endpoint");
        assert_eq!(states.first().map(String::as_str), Some("open"), "{states:?}");
        assert!(states.ends_with(&["probing".into(), "trickle".into(), "closed".into()]));
        let transitions = proxy.metric("ringway_breaker_transitions_total", &labels);
        assert_eq!(transitions, states.len() as f64);
        assert!(proxy.log().contains("closed -> open"), "{}", proxy.log());
        assert!(statuses(&proxy, 20).iter().all(|status| *status == 200));
    }
}

/// A service that fails as a whole is asked no more, which its users are told at once, and comes back.
#[test]
fn a_service_that_fails_is_left_alone() {
    for driver in DRIVERS {
        let (one, two) = (Origin::start(), Origin::start());
        let more = format!(
            "breaker = {{ {QUICK}, endpoint = false, service = {{ error_percent = 10 }} }}"
        );
        let proxy = Proxy::start(settings(driver, &[&one, &two], &more));
        [&one, &two].iter().for_each(|origin| origin.otherwise(answer("503 Broken")));
        let open = poll(PATIENCE, || {
            statuses(&proxy, 4);
            states(&proxy, "service").contains(&"open".to_owned())
        });
        assert!(open, "{}", proxy.log());
        let refused = poll(PATIENCE, || {
            statuses(&proxy, 4);
            proxy.errors("breaker_open") > 0.0
        });
        assert!(refused, "{}", proxy.status());
        [&one, &two].iter().for_each(|origin| origin.reset([]));
        let closed = poll(PATIENCE, || {
            statuses(&proxy, 4);
            states(&proxy, "service").last().is_some_and(|state| state == "closed")
        });
        assert!(closed, "{:?} {}", states(&proxy, "service"), proxy.log());
        let whole = poll(PATIENCE, || statuses(&proxy, 8).iter().all(|status| *status == 200));
        assert!(whole, "{}", proxy.status());
        assert_eq!(proxy.metric("ringway_breaker_state", "tier=\"service\""), 0.0);
    }
}

/// Whoever is to show that an upstream has recovered has shown it with the head of its answer: a
/// tunnel keeps nobody else out for as long as it lasts.
#[test]
fn a_tunnel_shows_that_a_service_has_recovered() {
    let upgrade =
        b"GET /tunnel HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    for driver in DRIVERS {
        let origin = Origin::start();
        let more = format!("breaker = {{ {QUICK}, service = {{ error_percent = 10 }} }}");
        let proxy = Proxy::start(settings(driver, &[&origin], &more));
        origin.otherwise(answer("503 Broken"));
        let open = poll(PATIENCE, || {
            statuses(&proxy, 4);
            states(&proxy, "service").contains(&"open".to_owned())
        });
        assert!(open, "{}", proxy.log());
        let switched = "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        origin.otherwise(vec![Op::Tunnel(switched.into())]);
        let mut tunnels = Vec::new();
        // Nothing but tunnels comes, until a worker each holds one and they have shown enough.
        let closed = poll(PATIENCE, || {
            let client = Client::open(proxy.address).expect("a connection");
            client.send(upgrade);
            client.wait_any(PATIENCE);
            if client.raw().starts_with(b"HTTP/1.1 101") {
                tunnels.push(client);
            }
            states(&proxy, "service").last().is_some_and(|state| state == "trickle")
        });
        assert!(closed, "{} tunnels, {:?}", tunnels.len(), states(&proxy, "service"));
    }
}

/// A zone whose endpoints are dead is left to the other, however much of the weight it has.
#[test]
fn a_dead_zone_is_left_to_the_other() {
    for driver in DRIVERS {
        let origin = Origin::start();
        let place =
            |address: &str, zone: &str| format!("{{ address = \"{address}\", zone = \"{zone}\" }}");
        let dead: Vec<_> = (0..2).map(|_| place(&free_address().to_string(), "a")).collect();
        let endpoints = [&dead[..], &[place(&origin.address, "b")]].concat();
        let more = format!("breaker = {{ {QUICK}, zone = {{ error_percent = 50 }} }}");
        let settings = settings(driver, &[&origin], "");
        let proxy = Proxy::start(settings.upstreams(upstream("main", &endpoints, &more)));
        let zone = || proxy.metric("ringway_breaker_state", "zone=\"a\"");
        let left = poll(PATIENCE, || {
            statuses(&proxy, 8);
            zone() > 0.0
        });
        assert!(left, "{} {}", proxy.status(), proxy.log());
        let settled = poll(PATIENCE, || statuses(&proxy, 20).iter().all(|status| *status == 200));
        assert!(settled, "{} {}", proxy.status(), proxy.log());
        assert_eq!(of(&proxy, &origin.address)["standing"], "in");
        assert_eq!(proxy.metric("ringway_breaker_state", "zone=\"b\""), 0.0);
    }
}

/// Where a breaker is, in `status`.
type Shown = fn(&Value) -> &Value;

/// What the endpoints whose breaker it is take, in a word: `out`, `probing`, `part`, `in`.
type Takes = fn(&Value) -> String;

/// Each state that a breaker goes through, from open to closed, is shown by `status` and the metrics
/// while it lasts, and told by the events.
fn each_state_is_shown(
    (proxy, tier): (&Proxy, &str),
    failing: &[&Origin],
    (shown, takes): (Shown, Takes),
) {
    let labels = format!("tier=\"{tier}\"");
    let metric = |name: &str, labels: &str| proxy.metric(name, labels);
    // The others of its tier stay closed, so that the sum over them is its own.
    let becomes = |name: &str, number: f64, word: &str, asks: usize| {
        let reached = poll(2 * PATIENCE, || {
            statuses(proxy, asks);
            shown(&proxy.status())["state"] == name
        });
        let status = proxy.status();
        assert!(reached, "{tier} {name}: {status} {}", proxy.log());
        assert_eq!(metric("ringway_breaker_state", &labels), number, "{tier} {name}");
        assert_eq!(takes(&status), word, "{tier} {name}: {status}");
        let told = states(proxy, tier);
        assert_eq!(told.last().map(String::as_str), Some(name), "{tier}: {told:?}");
        let transitions = metric("ringway_breaker_transitions_total", &labels);
        assert_eq!(transitions, told.len() as f64, "{tier} {name}");
    };
    failing.iter().for_each(|origin| origin.otherwise(answer("503 Broken")));
    becomes("open", 1.0, "out", 4);
    failing.iter().for_each(|origin| origin.reset([]));
    becomes("probing", 2.0, "probing", 0);
    becomes("trickle", 3.0, "part", 4);
    becomes("closed", 0.0, "in", 4);
    let told = states(proxy, tier);
    let end = ["open", "probing", "trickle", "closed"].map(str::to_owned);
    assert!(told.ends_with(&end), "{tier}: {told:?}");
    assert_eq!(shown(&proxy.status())["reason"], "");
}

/// Times that leave room to look at every state.
const SEEN: &str = "open = \"2s\", trickle = \"3s\", trickle_percent = 50, requests_min = 10";

#[test]
fn each_state_of_an_endpoint_is_shown() {
    for driver in DRIVERS {
        let origins = [Origin::start(), Origin::start(), Origin::start()];
        let more = format!("breaker = {{ {SEEN} }}");
        let proxy = Proxy::start(settings(driver, &origins.each_ref(), &more));
        let shown: Shown = |status| &status["upstreams"][0]["endpoints"][1]["breaker"];
        let takes: Takes = |status| {
            let endpoint = &status["upstreams"][0]["endpoints"][1];
            assert_eq!(endpoint["probing"], endpoint["standing"] == "probing");
            endpoint["standing"].as_str().expect("a word").to_owned()
        };
        each_state_is_shown((&proxy, "endpoint"), &[&origins[1]], (shown, takes));
    }
}

#[test]
fn each_state_of_a_service_is_shown() {
    for driver in DRIVERS {
        let origins = [Origin::start(), Origin::start()];
        let more = format!("breaker = {{ {SEEN}, endpoint = false, service = {{}} }}");
        let proxy = Proxy::start(settings(driver, &origins.each_ref(), &more));
        let shown: Shown = |status| &status["upstreams"][0]["breaker"];
        let takes: Takes = |status| {
            let upstream = &status["upstreams"][0];
            let word = match (upstream["share_percent"].as_u64(), &upstream["breaker"]["state"]) {
                (Some(0), state) if state == "probing" => "probing",
                (Some(0), _) => "out",
                (Some(50), _) => "part",
                _ => "in",
            };
            word.to_owned()
        };
        let all = [&origins[0], &origins[1]];
        each_state_is_shown((&proxy, "service"), &all, (shown, takes));
    }
}

#[test]
fn each_state_of_a_zone_is_shown() {
    for driver in DRIVERS {
        let origins = [Origin::start(), Origin::start(), Origin::start()];
        let place = |origin: &Origin, zone: &str| {
            format!("{{ address = \"{}\", zone = \"{zone}\" }}", origin.address)
        };
        let endpoints = [place(&origins[0], "a"), place(&origins[1], "a"), place(&origins[2], "b")];
        let more = format!("breaker = {{ {SEEN}, endpoint = false, zone = {{}} }}");
        let settings = settings(driver, &[], "").upstreams(upstream("main", &endpoints, &more));
        let proxy = Proxy::start(settings);
        let shown: Shown = |status| &status["upstreams"][0]["zones"]["a"];
        let takes: Takes = |status| {
            let endpoints = status["upstreams"][0]["endpoints"].as_array().expect("a list");
            let word = |index: usize| endpoints[index]["standing"].as_str().expect("a word");
            assert_eq!((word(1), word(2)), (word(0), "in"), "the zone, and the other one");
            word(0).to_owned()
        };
        let dead = [&origins[0], &origins[1]];
        each_state_is_shown((&proxy, "zone"), &dead, (shown, takes));
    }
}

/// What was sent before an opening and fails after it says nothing of whether a service has
/// recovered.
#[test]
fn stragglers_from_before_an_opening_do_not_count() {
    for (driver, told_in) in
        [("io_uring", "probing"), ("io_uring", "trickle"), ("epoll", "trickle")]
    {
        let origin = Origin::start();
        let more =
            format!("timeouts = {{ response = \"60s\" }}\nbreaker = {{ {QUICK}, service = {{}} }}");
        let proxy = Proxy::start(settings(driver, &[&origin], &more));
        origin.script("/held", vec![Op::Hang]);
        let held: Vec<_> = (0..20)
            .map(|_| {
                let client = Client::open(proxy.address).expect("a connection");
                client.send(b"GET /held HTTP/1.1\r\nHost: a.test\r\n\r\n");
                client
            })
            .collect();
        assert!(origin.wait(PATIENCE, |record| record.in_flight.0 == 20), "they are under way");
        origin.otherwise(answer("503 Broken"));
        let is_last = |name: &str| states(&proxy, "service").last().is_some_and(|it| it == name);
        let open = poll(PATIENCE, || {
            statuses(&proxy, 4);
            is_last("open")
        });
        assert!(open && poll(PATIENCE, || is_last("probing")), "{}", proxy.log());
        if told_in == "trickle" {
            origin.otherwise(vec![Op::Body, Op::Ok]);
            let trickles = poll(PATIENCE, || {
                statuses(&proxy, 4);
                is_last("trickle")
            });
            assert!(trickles, "{}", proxy.log());
        }
        let before = states(&proxy, "service");
        origin.hang_up();
        assert!(held.iter().all(|client| client.wait_responses(1, PATIENCE)), "they have failed");
        origin.reset([]);
        let closed = poll(PATIENCE, || {
            statuses(&proxy, 4);
            is_last("closed")
        });
        let after = states(&proxy, "service").split_off(before.len());
        let wanted = if told_in == "trickle" { &["closed"][..] } else { &["trickle", "closed"] };
        assert!(closed && after == wanted, "{after:?} {}", proxy.log());
    }
}

/// A service whose checks pass again is probed at once, not when it would have been otherwise.
#[test]
fn checks_that_pass_again_end_an_outage() {
    for driver in DRIVERS {
        let (one, two) = (Origin::start(), Origin::start());
        let more = "health = { path = \"/healthz\", interval = \"100ms\", fall = 2, rise = 2 }\n\
                    breaker = { open = \"1h\", trickle = \"1s\", requests_min = 10, service = {} }";
        let proxy = Proxy::start(settings(driver, &[&one, &two], more));
        [&one, &two].iter().for_each(|origin| {
            origin.otherwise(answer("503 Broken"));
        });
        let is_last = |name: &str| states(&proxy, "service").last().is_some_and(|it| it == name);
        let open = poll(PATIENCE, || {
            statuses(&proxy, 4);
            is_last("open")
        });
        assert!(open, "{}", proxy.log());
        let up = |value: bool| {
            let all = [&one, &two];
            poll(PATIENCE, || all.iter().all(|it| of(&proxy, &it.address)["up"] == value))
        };
        assert!(up(false), "{}", proxy.status());
        [&one, &two].iter().for_each(|origin| origin.reset([]));
        assert!(up(true) && poll(PATIENCE, || is_last("probing")), "{}", proxy.log());
        let closed = poll(PATIENCE, || {
            statuses(&proxy, 4);
            is_last("closed")
        });
        assert!(closed, "{} {}", proxy.status(), proxy.log());
        assert!(proxy.log().contains("checks pass again"), "{}", proxy.log());
    }
}

/// Endpoints that are found are judged as those that are written, and what is known of them stays
/// when others come and go.
#[test]
fn endpoints_that_are_found_have_breakers() {
    for driver in DRIVERS {
        let (good, bad, later) = (Origin::start(), Origin::start(), Origin::start());
        let folder = scratch();
        let file = folder.join("main.toml");
        let write = |origins: &[&Origin]| {
            let places: Vec<_> =
                origins.iter().map(|it| format!("{{ address = \"{}\" }}", it.address)).collect();
            let text = format!("endpoints = [{}]\n", places.join(", "));
            let new = folder.join("new");
            let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file));
            written.expect("written");
        };
        write(&[&good, &bad]);
        let section = format!(
            "[upstream.main]\ndiscover = {{ file = \"{}\" }}\nbreaker = {{ {SEEN} }}\n",
            file.display()
        );
        let proxy = Proxy::start(Settings::new(driver, "").workers(2).upstreams(section));
        bad.otherwise(answer("503 Broken"));
        driven_to(&proxy, &bad, "out");
        write(&[&later, &good, &bad]);
        let found = poll(PATIENCE, || proxy.status()["discovery"][0]["endpoints"] == 3);
        assert!(found, "{}", proxy.log());
        let shown = of(&proxy, &bad.address);
        assert!(["open", "probing"].iter().any(|it| shown["breaker"]["state"] == *it), "{shown}");
        assert_eq!(of(&proxy, &later.address)["standing"], "in");
        bad.reset([]);
        driven_to(&proxy, &bad, "in");
        let states = states(&proxy, "endpoint");
        let end = ["probing", "trickle", "closed"].map(str::to_owned);
        assert!(states.ends_with(&end), "{states:?}");
        drop(std::fs::remove_dir_all(&folder));
    }
}

/// B2: what an adaptive threshold takes for usual is shown beside the threshold.
#[test]
fn what_is_usual_is_shown() {
    for driver in DRIVERS {
        let (one, two) = (Origin::start(), Origin::start());
        let more = "breaker = { adaptive = true, window = \"2s\", service = {} }";
        let proxy = Proxy::start(settings(driver, &[&one, &two], more));
        let usual = |breaker: &Value| {
            let (errors, p99) =
                (&breaker["usual"]["error_percent"], &breaker["usual"]["head_p99_ms"]);
            errors == 0.0 && p99.as_f64().is_some_and(|ms| ms > 0.0 && ms < 1_000.0)
        };
        let shown = poll(2 * PATIENCE, || {
            statuses(&proxy, 50);
            let upstream = &proxy.status()["upstreams"][0];
            usual(&upstream["breaker"]) && usual(&upstream["endpoints"][0]["breaker"])
        });
        assert!(shown, "{}", proxy.status());
        let upstream = &proxy.status()["upstreams"][0];
        assert_eq!(upstream["breaker"]["error_percent"], 10, "{upstream}");
    }
}
