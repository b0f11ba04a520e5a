//! Plays a wire case and says what is wrong with what came of it.

use std::time::{Duration, Instant};

use super::case::{Allow, Case, Like, Seen, Step};
use super::grammar::{Request, values};
use super::origin::{Connection, Origin, latin1};
use super::response::Received;
use super::{Client, PATIENCE, Proxy, contains, ms, pause, show};

/// What came of a case.
struct Outcome {
    requests: Vec<Request>,
    connections: Vec<Connection>,
    client: Side,
    second: Option<Side>,
    began: Instant,
}

/// What one client got.
struct Side {
    received: Received,
    raw: Vec<u8>,
    closed: bool,
    last_byte: Duration,
    took: Duration,
}

/// Plays a case; says what is wrong, if anything is.
pub fn play(case: &Case, proxy: &Proxy, origin: &Origin) -> Result<(), String> {
    origin.reset(case.scripts());
    let began = Instant::now();
    let client = run(case, &case.client, proxy, origin, true)?;
    let second = match &case.second[..] {
        [] => None,
        steps => Some(run(case, steps, proxy, origin, false)?),
    };
    wait_for_let_go(case, origin, began);
    let (requests, connections) = origin.look(|record| {
        let requests: Vec<Request> = record.seen().cloned().collect();
        (requests, record.connections.clone())
    });
    let outcome = Outcome { requests, connections, client, second, began };
    judge(case, &outcome)?;
    proxy.probe(&format!("/probe{}", case.path()))
}

/// Plays the steps of one client.
fn run(
    case: &Case,
    steps: &[Step],
    proxy: &Proxy,
    origin: &Origin,
    first: bool,
) -> Result<Side, String> {
    let mut client = Client::open_with(proxy.address, case.receive_buffer)
        .map_err(|error| format!("cannot connect: {error}"))?;
    if first {
        client.methods = case.methods.iter().map(|method| latin1(method)).collect();
    }
    for step in steps {
        act(case, step, &mut client, origin);
    }
    finish(case, &client, first);
    Ok(Side {
        received: client.received(),
        raw: client.raw(),
        closed: client.end().is_some(),
        last_byte: client.last_byte(),
        took: client.took(),
    })
}

fn act(case: &Case, step: &Step, client: &mut Client, origin: &Origin) {
    match step {
        Step::Send(text) => drop(client.send(&case.bytes(text))),
        Step::Fill(count) => drop(client.pour(*count, PATIENCE)),
        Step::Pause(time) => pause(ms(*time)),
        Step::Responses(count) => drop(client.wait_responses(*count, ms(3_000))),
        Step::End(time) => drop(client.wait_end(ms(*time))),
        Step::On100(text) => {
            let received = client.wait_any(ms(2_000));
            if received.interims.iter().any(|interim| interim.status == 100) {
                client.send(&case.bytes(text));
            }
        }
        Step::Seen(count) => {
            origin.wait(ms(3_000), |record| record.seen().count() >= *count);
        }
        Step::Drip(text, every) => client.drip(&case.bytes(text), ms(*every)),
        Step::NoRead(time) => {
            client.set_paused(true);
            pause(ms(*time));
            client.set_paused(false);
        }
        Step::HalfClose => client.half_close(),
        Step::Reset => client.reset(),
        Step::Close => client.close(),
    }
}

/// Waits for what is still to come: the end of the connection where it must or will come, else a
/// short silence.
fn finish(case: &Case, client: &Client, first: bool) {
    if first && case.allow.iter().all(|allow| closes(allow) == Some(true)) {
        client.wait_end(ms(3_000));
        return;
    }
    if client.bytes() == 0 {
        client.wait_bytes(1, ms(300));
    }
    client.settle(QUIET);
    if client.received().finals.last().is_some_and(|last| last.complete && last.closes()) {
        client.wait_end(ms(2_000));
    }
}

fn closes(allow: &Allow) -> Option<bool> {
    let refused = matches!(allow.like, Some(Like::Refused | Like::Refused400 | Like::RefusedBody));
    allow.closed.or(refused.then_some(true))
}

/// Where the proxy has to let the origin go, gives it the time that it may take.
fn wait_for_let_go(case: &Case, origin: &Origin, began: Instant) {
    let bound = case.allow.iter().filter_map(|allow| allow.upstream_closed_ms).max();
    if let Some(bound) = bound {
        let left = ms(bound).saturating_sub(began.elapsed());
        origin.wait(left, |record| record.seen().all(|request| gone(request, &record.connections)));
    }
}

fn gone(request: &Request, connections: &[Connection]) -> bool {
    request.served || connections[request.connection].closed.is_some()
}

/// The outcome against what the case allows.
fn judge(case: &Case, outcome: &Outcome) -> Result<(), String> {
    sane(case, outcome)?;
    let mut wrong = Vec::new();
    for allow in &case.allow {
        match permits(case, allow, outcome) {
            Ok(()) => return Ok(()),
            Err(text) if !wrong.contains(&text) => wrong.push(text),
            Err(_) => {}
        }
    }
    Err(wrong.join(" | "))
}

/// What holds in every case: the grammar towards both sides, and that nothing was smuggled.
fn sane(case: &Case, outcome: &Outcome) -> Result<(), String> {
    for request in &outcome.requests {
        let line = show(&request.line());
        if let Some(fault) = request.lint.faults.first() {
            return Err(format!("malformed towards the origin ({line}): {fault}"));
        }
        let hidden = contains(&request.target, b"/hidden");
        let openly = case.hidden_openly && request.get("x-forwarded-for").is_some();
        if hidden && !openly {
            return Err(format!("SMUGGLED: the origin saw {line}"));
        }
    }
    let sides = [Some(&outcome.client), outcome.second.as_ref()];
    for side in sides.into_iter().flatten().filter(|_| !case.lax) {
        let Received { finals, interims, rest } = &side.received;
        let faults = finals.iter().chain(interims).flat_map(|one| &one.lint.faults);
        if let Some(fault) = faults.into_iter().next() {
            return Err(format!("malformed towards the client: {fault}"));
        }
        let tunnel = finals.last().is_some_and(|last| last.status == 101);
        let open = finals.last().is_some_and(|last| !last.complete);
        if !rest.is_empty() && !tunnel && !open && !finals.is_empty() {
            return Err(format!("bytes behind the last answer: {}", show(rest)));
        }
        if contains(&side.raw, b"poison") {
            return Err("an answer that nobody asked for reached a client".into());
        }
    }
    Ok(())
}

fn permits(case: &Case, allow: &Allow, outcome: &Outcome) -> Result<(), String> {
    let client = &outcome.client;
    if let Some(like) = allow.like {
        named(like, allow, outcome)?;
    }
    if let Some(statuses) = &allow.statuses {
        check_statuses(statuses, client)?;
    }
    check_upstream(case, allow, outcome)?;
    check_answers(case, allow, client)?;
    check_ends(allow, client)?;
    check_tunnel(case, allow, outcome)?;
    if let Some(second) = &outcome.second {
        if let Some(statuses) = &allow.second_statuses {
            check_statuses(statuses, second).map_err(|text| format!("second client: {text}"))?;
        }
        check_seen_by(case, &allow.second_answers, second)?;
    }
    Ok(())
}

/// The named outcomes.
fn named(like: Like, allow: &Allow, outcome: &Outcome) -> Result<(), String> {
    let client = &outcome.client;
    let statuses: &[u16] = match like {
        Like::Refused => &REFUSALS,
        Like::Refused400 => &[400],
        Like::RefusedBody => &[&REFUSALS[..], &[0, 502]].concat(),
        Like::Served => &[200],
        Like::BadGateway => &[502],
        Like::Redirected => &[301, 302, 307, 308],
    };
    if allow.statuses.is_none() {
        check_statuses(&[statuses.to_vec()], client)?;
    }
    let whole = outcome.requests.iter().filter(|request| request.complete).count();
    let (seen, closed) = (outcome.requests.len(), client.closed);
    match like {
        Like::Refused | Like::Refused400 | Like::Redirected if seen > 0 => {
            Err(format!("refused, but the origin saw {seen} requests"))
        }
        Like::RefusedBody if whole > 0 => Err("the origin saw a whole request".into()),
        Like::Refused | Like::Refused400 | Like::RefusedBody
            if !closed && allow.closed != Some(false) =>
        {
            Err("refused, but the connection stays open".into())
        }
        Like::Served if seen != 1 && allow.upstream.is_none() => {
            Err(format!("the origin saw {seen} requests"))
        }
        _ => Ok(()),
    }
}

fn check_statuses(wanted: &[Vec<u16>], side: &Side) -> Result<(), String> {
    let finals = &side.received.finals;
    let got: Vec<u16> = finals.iter().map(|one| one.status).collect();
    for (index, set) in wanted.iter().enumerate() {
        let none = index >= got.len() && set.contains(&0) && side.closed;
        if !none && !got.get(index).is_some_and(|status| set.contains(status)) {
            let codes: Vec<_> = finals.iter().filter_map(|one| one.code()).collect();
            let end = if side.closed { "closed" } else { "open" };
            return Err(format!("statuses {got:?} {codes:?}, {end}; wanted {wanted:?}"));
        }
    }
    if got.len() > wanted.len() {
        return Err(format!("statuses {got:?}; wanted no more than {wanted:?}"));
    }
    Ok(())
}

fn check_upstream(case: &Case, allow: &Allow, outcome: &Outcome) -> Result<(), String> {
    let requests = &outcome.requests;
    let within = |count: usize, bounds: Option<[usize; 2]>, what: &str| match bounds {
        Some([least, most]) if !(least..=most).contains(&count) => {
            let lines: Vec<_> = requests.iter().map(|request| show(&request.line())).collect();
            Err(format!("the origin saw {count} {what}: {lines:?}"))
        }
        _ => Ok(()),
    };
    within(requests.len(), allow.upstream, "requests")?;
    let whole = requests.iter().filter(|request| request.complete).count();
    within(whole, allow.upstream_whole, "whole requests")?;
    for (index, seen) in allow.requests.iter().enumerate() {
        let Some(request) = requests.get(index) else {
            return Err(format!("the origin saw only {} requests", requests.len()));
        };
        check_request(case, seen, request, &outcome.connections)?;
    }
    let on_first = |request: &&Request| request.connection == requests[0].connection;
    if allow.own_connection && requests.iter().skip(1).any(|request| on_first(&request)) {
        return Err("a connection that had to be dropped was used again".into());
    }
    if let Some(bound) = allow.upstream_closed_ms {
        for request in requests.iter().filter(|request| !request.served) {
            let closed = outcome.connections[request.connection].closed;
            let took = closed.map(|at| at.saturating_duration_since(outcome.began));
            if took.is_none_or(|took| took > ms(bound)) {
                return Err(format!("the origin was not let go in {bound} ms but in {took:?}"));
            }
        }
    }
    Ok(())
}

fn check_request(
    case: &Case,
    seen: &Seen,
    request: &Request,
    connections: &[Connection],
) -> Result<(), String> {
    let targets: Vec<_> = seen.targets.iter().map(|target| case.bytes(target)).collect();
    if !targets.is_empty() && !targets.contains(&request.target) {
        return Err(format!("the origin saw the target {}", show(&request.target)));
    }
    let same = |wanted: &Option<String>, got: &[u8]| {
        wanted.as_ref().is_none_or(|wanted| case.bytes(wanted) == got)
    };
    if !same(&seen.method, &request.method) || !same(&seen.body, &request.body) {
        let (method, body) = (show(&request.method), show(&request.body));
        return Err(format!("the origin saw the method {method} and the body {body}"));
    }
    if seen.body_bytes.is_some_and(|bytes| bytes != request.body_bytes) {
        return Err(format!("the origin saw a body of {} bytes", request.body_bytes));
    }
    check_fields(case, seen, request)?;
    let raw = connections[request.connection].raw_bytes;
    match seen.raw_max {
        Some(most) if raw > most => Err(format!("the origin got {raw} bytes")),
        _ => Ok(()),
    }
}

fn check_fields(case: &Case, seen: &Seen, request: &Request) -> Result<(), String> {
    for (name, wanted) in &seen.has {
        let got = request.all(name);
        if got.is_empty() || wanted != "*" && !got.contains(&&case.bytes(wanted)[..]) {
            return Err(format!("the origin saw {name}: {got:?}, wanted {wanted:?}"));
        }
    }
    for name in &seen.lacks {
        if let Some(value) = request.get(name) {
            return Err(format!("the origin saw {name}: {}", show(value)));
        }
    }
    for (name, value) in &seen.not_value {
        if request.all(name).iter().any(|got| got.eq_ignore_ascii_case(&case.bytes(value))) {
            return Err(format!("the origin saw {name}: {value}"));
        }
    }
    for (name, count) in &seen.count {
        if request.all(name).len() != *count {
            return Err(format!("the origin saw {} {name} fields", request.all(name).len()));
        }
    }
    for (name, value) in &seen.trailers {
        if !values(&request.trailers, name).contains(&&case.bytes(value)[..]) {
            return Err(format!("the origin missed the trailer {name}"));
        }
    }
    match seen.lacks_trailers.iter().find(|name| !values(&request.trailers, name).is_empty()) {
        Some(name) => Err(format!("the origin saw the trailer {name}")),
        None => Ok(()),
    }
}

fn check_answers(case: &Case, allow: &Allow, side: &Side) -> Result<(), String> {
    let Received { finals, interims, .. } = &side.received;
    let (first, last) = (finals.first(), finals.last());
    for (name, wanted) in &allow.fields {
        let got = first.and_then(|first| first.get(name));
        if got.is_none_or(|got| wanted != "*" && got != case.bytes(wanted)) {
            return Err(format!("the client saw {name}: {:?}", got.map(show)));
        }
    }
    let there = |name: &&String| first.is_some_and(|first| first.get(name).is_some());
    if let Some(name) = allow.lacks.iter().find(there) {
        return Err(format!("the client saw {name}"));
    }
    let body = last.map_or(&[][..], |last| &last.body[..]);
    if allow.body.as_ref().is_some_and(|wanted| case.bytes(wanted) != body) {
        return Err(format!("the client got the body {}", show(body)));
    }
    if allow.body_bytes.is_some_and(|wanted| wanted != body.len()) {
        return Err(format!("the client got a body of {} bytes", body.len()));
    }
    for (name, wanted) in &allow.trailers {
        let got = last.map(|last| values(&last.trailers, name)).unwrap_or_default();
        if !got.contains(&&case.bytes(wanted)[..]) {
            return Err(format!("the client missed the trailer {name}"));
        }
    }
    let statuses: Vec<u16> = interims.iter().map(|interim| interim.status).collect();
    if allow.interims.as_ref().is_some_and(|wanted| *wanted != statuses) {
        return Err(format!("interim answers {statuses:?}"));
    }
    let code = last.and_then(|last| last.code());
    if let (Some(wanted), Some(got)) = (&allow.code, &code)
        && wanted != got
    {
        return Err(format!("code {got}, wanted {wanted}"));
    }
    check_seen_by(case, &allow.answers, side)
}

fn check_seen_by(case: &Case, wanted: &[String], side: &Side) -> Result<(), String> {
    for (index, wanted) in wanted.iter().enumerate().filter(|(_, wanted)| !wanted.is_empty()) {
        let answer = side.received.finals.get(index);
        let got = answer.and_then(|answer| answer.get("x-seen"));
        if got != Some(&case.bytes(wanted)[..]) {
            return Err(format!("answer {index} belongs to {:?}", got.map(show)));
        }
    }
    Ok(())
}

fn check_ends(allow: &Allow, side: &Side) -> Result<(), String> {
    let last = side.received.finals.last();
    if allow.cut && last.is_none_or(|last| last.complete) {
        return Err("a broken answer looks whole to the client".into());
    }
    match allow.closed {
        Some(true) if !side.closed => return Err("the connection stays open".into()),
        Some(false) if side.closed => return Err("the connection ended".into()),
        _ => {}
    }
    let took = if allow.closed == Some(true) { side.took } else { side.last_byte };
    match allow.within_ms {
        Some(bound) if took > ms(bound) => Err(format!("took {took:?}")),
        _ => Ok(()),
    }
}

fn check_tunnel(case: &Case, allow: &Allow, outcome: &Outcome) -> Result<(), String> {
    let tunnel: Vec<u8> =
        outcome.connections.iter().flat_map(|one| one.tunnel.iter().copied()).collect();
    let has = |text: &String| contains(&tunnel, &case.bytes(text));
    if allow.tunnel_has.as_ref().is_some_and(|text| !has(text))
        || allow.tunnel_lacks.as_ref().is_some_and(has)
    {
        return Err(format!("the tunnel carried {}", show(&tunnel)));
    }
    let raw = &outcome.client.raw;
    let got = |text: &String| contains(raw, &case.bytes(text));
    if allow.client_has.as_ref().is_some_and(|text| !got(text))
        || allow.client_lacks.as_ref().is_some_and(got)
    {
        return Err(format!("the client got {}", show(raw)));
    }
    Ok(())
}

/// Statuses with which the proxy refuses.
pub const REFUSALS: [u16; 11] = [400, 403, 405, 411, 413, 414, 417, 422, 431, 501, 505];

/// A silence after which nothing more is expected.
const QUIET: Duration = Duration::from_millis(60);
