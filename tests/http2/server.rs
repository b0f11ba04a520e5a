//! Plays a case against a server: the proxy, or whatever answers at HTTP2_TARGET.

use std::net::SocketAddr;
use std::time::Instant;

use super::case::Case;
use super::frame::{END_HEADERS, END_STREAM, Frame, HEADERS, PING};
use super::hpack::block;
use super::outcome::{MARK, Outcome, tell};
use super::peer::Peer;
use crate::harness::origin::Origin;
use crate::harness::{Settings, ms, pause};

/// Whom the cases are played against.
pub struct Target<'a> {
    /// Where it listens.
    pub address: SocketAddr,
    /// The origin behind it, where it is ours.
    pub origin: Option<&'a Origin>,
    /// Whether it is the proxy, whose deviations are known.
    pub ours: bool,
}

/// Plays a case; says what is wrong, if anything is.
pub fn play(case: &Case, target: &Target<'_>) -> Result<(), String> {
    if let Some(origin) = target.origin {
        let script = case.script();
        origin.reset([]);
        if !script.is_empty() {
            origin.otherwise(script);
        }
    }
    let peer = Peer::connect(target.address).map_err(|error| format!("no connection: {error}"))?;
    let mut lacking = Vec::new();
    for (number, step) in case.steps().iter().enumerate() {
        if !step.play(&peer) {
            lacking.push(format!("step {} waited in vain: {step:?}", number + 1));
        }
    }
    let outcomes = case.outcomes();
    let next = ask_behind(&peer, &outcomes);
    let judged = judge(case, &outcomes, &peer, target, next);
    let told = peer.look(tell);
    drop(peer);
    judged.map_err(|why| format!("{why}; {told}; {lacking:?}"))?;
    fresh(target.address, "/probe").map_err(|why| format!("afterwards: {why}"))
}

/// Sends what the outcomes ask for behind the steps; the stream of the request.
fn ask_behind(peer: &Peer, outcomes: &[Outcome]) -> u32 {
    let highest = peer.look(|state| state.watch.streams.keys().next_back().copied().unwrap_or(0));
    let next = (highest + 1) | 1;
    let mut frames = Vec::new();
    if outcomes.iter().any(Outcome::wants_next) {
        frames.push(get(next, "/probe-next"));
    }
    if outcomes.iter().any(Outcome::wants_ping) {
        frames.push(Frame::new(PING, 0, 0, *MARK));
    }
    if !frames.is_empty() {
        peer.frames(&frames);
    }
    next
}

fn judge(
    case: &Case,
    outcomes: &[Outcome],
    peer: &Peer,
    target: &Target<'_>,
    next: u32,
) -> Result<(), String> {
    let (end, word) = (Instant::now() + case.limit(), case.word());
    let deviation = case.deviation().filter(|_| target.ours);
    let wanted = deviation.as_ref().map_or(outcomes, std::slice::from_ref);
    let found = loop {
        let mut missing = Vec::new();
        let holds = |outcomes: &[Outcome], missing: &mut Vec<String>| {
            peer.look(|state| {
                outcomes.iter().any(|outcome| {
                    let lacks =
                        outcome.missing(state, target.origin.map(|origin| (origin, &*word)), next);
                    missing.extend(lacks.clone());
                    lacks.is_none()
                })
            })
        };
        if holds(wanted, &mut missing) {
            if deviation.is_some() && holds(outcomes, &mut missing) {
                break Err("it no longer deviates".into());
            }
            break Ok(());
        }
        if Instant::now() >= end {
            break Err(format!("lacking: {}", missing.join(" | ")));
        }
        // What the origin sees wakes nobody here.
        peer.wait(ms(10), |_| false);
        pause(ms(2));
    };
    found?;
    let faults = peer.look(|state| state.watch.faults.clone());
    if let Some(fault) = faults.first().filter(|_| !case.lax) {
        return Err(format!("malformed: {fault}"));
    }
    sane(target)
}

/// What holds of every case: the grammar towards the origin, and nothing hidden arrives there.
fn sane(target: &Target<'_>) -> Result<(), String> {
    let Some(origin) = target.origin else { return Ok(()) };
    origin.look(|record| {
        for request in record.seen() {
            let line = String::from_utf8_lossy(&request.line()).into_owned();
            if let Some(fault) = request.lint.faults.first() {
                return Err(format!("malformed towards the origin ({line}): {fault}"));
            }
            if line.contains("hidden") {
                return Err(format!("SMUGGLED: the origin saw {line}"));
            }
        }
        Ok(())
    })
}

/// A GET as one frame.
pub fn get(stream: u32, path: &str) -> Frame {
    let fields =
        [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", path)];
    Frame::new(HEADERS, END_STREAM | END_HEADERS, stream, block(&fields))
}

/// A GET on a connection of its own; says what is wrong with the answer.
pub fn fresh(address: SocketAddr, path: &str) -> Result<(), String> {
    let peer = Peer::open(address, &[]).map_err(|error| error.to_string())?;
    peer.frame(&get(1, path));
    let done = |s: &super::watch::Stream| s.ended && s.status() == Some(200);
    if peer.wait(ms(3_000), |state| state.watch.streams.get(&1).is_some_and(done)) {
        return Ok(());
    }
    Err(format!("a plain GET is not answered: {}", peer.look(tell)))
}

/// The proxy with HTTP/2 on clear text before an origin of HTTP/1.1.
pub fn settings(driver: &'static str, origin: &str) -> Settings {
    let short =
        "h2c = true\ntimeouts = { head = \"1s\", body = \"1s\", idle = \"1s\", write = \"1s\" }\n";
    Settings::new(driver, origin).listener(short)
}
