//! Plays a case in which the proxy is the client of an HTTP/2 origin: clients of HTTP/1.1 in front,
//! frames behind.

use std::time::Instant;

use super::case::Case;
use super::origin::FrameOrigin;
use super::outcome::{Outcome, tell};
use super::step::expand;
use crate::harness::client::ask;
use crate::harness::origin::latin1;
use crate::harness::proxy::{endpoint, upstream};
use crate::harness::{Client, PATIENCE, Proxy, Response, Settings, ms, pause, show};

/// The proxy before an origin that speaks HTTP/2 on clear text.
pub fn settings(driver: &'static str, origin: &str) -> Settings {
    let lines = "protocol = \"http2\"\ntimeouts = { connect = \"2500ms\", response = \"1500ms\", \
                 body = \"1s\", idle = \"5s\", tunnel = \"2s\" }";
    Settings::new(driver, origin).upstreams(upstream("main", &[endpoint(origin, 1)], lines))
}

/// Plays a case; says what is wrong, if anything is.
pub fn play(case: &Case, proxy: &Proxy, origin: &FrameOrigin) -> Result<(), String> {
    let mut scripts = vec![case.steps()];
    scripts.extend(case.again.iter().map(|steps| case.with_opening(steps)));
    origin.reset(scripts);
    let clients: Vec<Client> = case
        .requests
        .iter()
        .map(|request| {
            let client = Client::open(proxy.address).map_err(|error| error.to_string())?;
            client.send(&request_bytes(case, request));
            pause(ms(20));
            Ok(client)
        })
        .collect::<Result<_, String>>()?;
    let outcome = judge(case, &clients, origin);
    let told: Vec<String> = origin.taken().iter().map(|peer| peer.look(tell)).collect();
    let outcome = outcome.map_err(|why| format!("{why}; origin {told:?}; {:?}", origin.stuck()));
    drop(clients);
    origin.reset(Vec::new());
    outcome?;
    afterwards(proxy)
}

fn judge(case: &Case, clients: &[Client], origin: &FrameOrigin) -> Result<(), String> {
    for (number, (client, wanted)) in clients.iter().zip(&case.clients).enumerate() {
        client_got(client, wanted).map_err(|why| format!("client {}: {why}", number + 1))?;
    }
    let (outcomes, end) = (case.outcomes(), Instant::now() + case.limit());
    let deviation = case.deviation();
    let wanted = deviation.as_ref().map_or(&outcomes[..], std::slice::from_ref);
    loop {
        let taken = origin.taken();
        let mut missing = Vec::new();
        let holds = |outcomes: &[Outcome], missing: &mut Vec<String>| {
            taken.first().is_some_and(|first| {
                first.look(|state| {
                    outcomes.iter().any(|outcome| {
                        let lacks = outcome.missing(state, None, 0);
                        missing.extend(lacks.clone());
                        lacks.is_none()
                    })
                })
            })
        };
        if holds(wanted, &mut missing) {
            if deviation.is_some() && holds(&outcomes, &mut missing) {
                return Err("it no longer deviates".into());
            }
            break;
        }
        if Instant::now() >= end {
            return Err(format!("lacking towards the origin: {}", missing.join(" | ")));
        }
        pause(ms(10));
    }
    let taken = origin.taken();
    for (number, peer) in taken.iter().enumerate() {
        let faults = peer.look(|state| state.watch.faults.clone());
        if let Some(fault) = faults.first() {
            return Err(format!("malformed on connection {}: {fault}", number + 1));
        }
    }
    let [least, most] = case.connections.unwrap_or([1, 8]);
    if !(least..=most).contains(&taken.len()) {
        return Err(format!("{} connections, wanted {least} to {most}", taken.len()));
    }
    Ok(())
}

/// The bytes of a request: `METHOD [PATH-SUFFIX] [| field | field ...] [|| body]`.
fn request_bytes(case: &Case, text: &str) -> Vec<u8> {
    let text = expand(text, &case.word());
    let (head, body) = text.split_once(" || ").unwrap_or((&text, ""));
    let mut parts = head.split(" | ");
    let line: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
    let suffix = line.get(1).copied().unwrap_or_default();
    let mut out = format!("{} /{}{suffix} HTTP/1.1\r\nHost: a.test\r\n", line[0], case.word());
    for field in parts {
        out.push_str(&format!("{field}\r\n"));
    }
    out.push_str("\r\n");
    [latin1(&out), latin1(body)].concat()
}

/// What a client must have got: facts between `&`.
fn client_got(client: &Client, wanted: &str) -> Result<(), String> {
    let cut = wanted.contains("cut");
    if cut {
        client.wait_end(PATIENCE);
    } else {
        client.wait_responses(1, PATIENCE);
    }
    let received = client.received();
    let last = received.finals.last();
    let told = || {
        let answers = received.finals.iter().map(|one| (one.status, one.code(), show(&one.body)));
        format!("{:?}", answers.collect::<Vec<_>>())
    };
    if let Some(fault) = received.finals.iter().flat_map(|one| &one.lint.faults).next() {
        return Err(format!("malformed: {fault}"));
    }
    for fact in wanted.split(" & ") {
        let (word, rest) = fact.split_once(' ').unwrap_or((fact, ""));
        let holds = match (word, last) {
            ("interim", _) => received.interims.iter().any(|one| one.status.to_string() == rest),
            ("cut", Some(last)) => !last.complete && client.end().is_some(),
            ("cut", None) => client.end().is_some(),
            (_, Some(last)) => fact_of(last, word, rest),
            (_, None) => false,
        };
        if !holds {
            return Err(format!("wanted {fact:?}, got {} {:?}", told(), client.end()));
        }
    }
    Ok(())
}

fn fact_of(answer: &Response, word: &str, rest: &str) -> bool {
    let pair = || rest.split_once('=').expect("NAME=VALUE");
    match word {
        "status" => answer.complete && rest.split(' ').any(|one| one == answer.status.to_string()),
        "body" => answer.body == latin1(rest) && answer.complete,
        "bytes" => answer.body.len().to_string() == rest && answer.complete,
        "field" => answer.get(pair().0) == Some(&latin1(pair().1)),
        "lacks" => answer.get(rest).is_none(),
        "trailer" => {
            let trailers = crate::harness::grammar::values(&answer.trailers, pair().0);
            trailers == [&latin1(pair().1)[..]]
        }
        "code" => rest.split(' ').any(|one| answer.code().as_deref() == Some(one)),
        other => panic!("nobody knows the fact {other}"),
    }
}

/// The proxy goes on serving, on a connection of its own choice.
fn afterwards(proxy: &Proxy) -> Result<(), String> {
    let request = b"GET /probe HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let received = ask(proxy.address, request, ms(5_000)).map_err(|error| error.to_string())?;
    match &received.finals[..] {
        [one] if one.status == 200 && one.body == b"ok" => Ok(()),
        other => {
            Err(format!("afterwards: {:?}", other.iter().map(|o| o.status).collect::<Vec<_>>()))
        }
    }
}
