//! A panic while a request is served ends that exchange and nothing else (test builds only):
//! `cargo test --features failpoint --test e2e_failpoint`.
#![cfg(feature = "failpoint")]

mod harness;

use harness::client::{ask, plain_get};
use harness::origin::Op;
use harness::{Client, Origin, Proxy, Settings, ms, poll};

/// Panics at a point while another exchange is half done; says how that one went.
fn survive(driver: &'static str, point: &str) {
    let origin = Origin::start();
    let mut proxy = Proxy::start(Settings::new(driver, &origin.address));
    proxy.may_panic = true;
    let halves = vec![
        Op::Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ".into()),
        Op::Sleep(400),
        Op::Send("whole".into()),
    ];
    origin.script("/other", halves);
    let other = Client::open(proxy.address).expect("a connection");
    other.send(b"GET /other HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(other.wait_text(b"half "), "the other exchange has begun");
    let request = format!(
        "POST /panic HTTP/1.1\r\nHost: a.test\r\nx-ringway-failpoint: {point}\r\n\
         Content-Length: 5\r\n\r\nhello"
    );
    for round in 1..=5 {
        let client = Client::open(proxy.address).expect("a connection");
        client.send(request.as_bytes());
        assert!(client.wait_end(ms(3_000)), "{point}: the connection of round {round} ends");
        for answer in client.received().finals.iter().filter(|answer| answer.complete) {
            assert!(answer.status >= 500, "{point}: nobody says that it went well");
        }
        let counted =
            poll(ms(2_000), || proxy.metric("ringway_panics_total", "") >= f64::from(round));
        assert!(counted, "{point}: the panic of round {round} is counted");
    }
    if point != "parse" {
        // One that was being served has its record.
        assert!(proxy.errors("panicked") >= 5.0, "{point}: the panics are errors of requests");
    }
    assert!(other.wait_responses(1, ms(3_000)), "{point}: the other exchange ends");
    assert_eq!(other.received().finals[0].body, b"half whole", "{point}: whole");
    for number in 0..10 {
        proxy.probe(&format!("/probe-{number}")).expect("a plain GET");
    }
    let settled = poll(ms(3_000), || proxy.metric("ringway_requests_in_flight", "") == 0.0);
    assert!(settled, "{point}: permits and counts came back");
    let answer = ask(proxy.address, &plain_get("/last"), ms(3_000)).expect("an answer");
    assert_eq!(answer.finals[0].status, 200, "{point}: it serves as before");
}

fn in_the_parser(driver: &'static str) {
    survive(driver, "parse");
}

fn in_a_pump(driver: &'static str) {
    survive(driver, "pump");
}

fn in_the_pool(driver: &'static str) {
    survive(driver, "pool");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! { in_the_parser in_a_pump in_the_pool }
