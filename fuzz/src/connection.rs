//! A whole connection: what the client and the origins send, in which pieces, and what goes wrong.
#![allow(dead_code, reason = "tests that include this crate use a part of it")]

use super::sim::peers::{answers, methods, requests};
use super::sim::world::{Ended, Knobs, Step, World};

/// `data` is four bytes of bounds and faults, then steps: each begins with 0xFF and a letter.
pub fn connection(data: &[u8]) {
    let Some((knobs, rest)) = data.split_at_checked(4) else { return };
    let knobs = read_knobs(knobs);
    let steps = read_steps(rest);
    let mut world = World::new(knobs);
    for step in &steps {
        world.step(step);
    }
    world.end();
    assert!(world.is_over(), "the connection outlives both peers");
    check_client(&world, &steps);
    check_origins(&world, &steps, &knobs);
    world.check_rest();
}

/// Steps as `connection` reads them back, where they hold no 0xFF.
pub fn write(steps: &[Step]) -> Vec<u8> {
    let mut data = vec![0; 4];
    for step in steps {
        let (letter, bytes) = match step {
            Step::Client(bytes) => (b'C', bytes.clone()),
            Step::ClientEnd => (b'c', Vec::new()),
            Step::ClientReset => (b'x', Vec::new()),
            Step::Origin(bytes) => (b'O', bytes.clone()),
            Step::OriginEnd => (b'o', Vec::new()),
            Step::OriginReset => (b'X', Vec::new()),
            Step::Pass(ms) => (b'P', vec![u8::try_from(ms / 100).unwrap_or(u8::MAX - 1)]),
        };
        data.extend_from_slice(&[0xff, letter]);
        data.extend(bytes);
    }
    data
}

/// The bounds and faults at the beginning of an input.
pub fn read_knobs(bytes: &[u8]) -> Knobs {
    Knobs {
        read_max: usize::from(bytes[0] & 0x7f),
        write_max: usize::from(bytes[1] & 0x7f),
        client_fault: usize::from(bytes[2]),
        origin_fault: usize::from(bytes[3]),
        client_stalls: bytes[0] & 0x80 != 0,
        origin_stalls: bytes[1] & 0x80 != 0,
    }
}

/// The steps behind them.
pub fn read_steps(bytes: &[u8]) -> Vec<Step> {
    const STEPS_MAX: usize = 64;
    let parts = bytes.split(|byte| *byte == 0xff).skip(1).take(STEPS_MAX);
    parts
        .filter_map(|part| {
            let (letter, bytes) = part.split_first()?;
            Some(match letter {
                b'C' => Step::Client(bytes.to_vec()),
                b'c' => Step::ClientEnd,
                b'x' => Step::ClientReset,
                b'o' => Step::OriginEnd,
                b'X' => Step::OriginReset,
                b'P' => Step::Pass(100 * u64::from(*bytes.first()?)),
                _ => Step::Origin(bytes.to_vec()),
            })
        })
        .collect()
}

/// The client gets well formed answers, whatever the origins sent, and no more of them than it
/// asked for.
fn check_client(world: &World, steps: &[Step]) {
    let mut sent = Vec::new();
    for step in steps {
        if let Step::Client(bytes) = step {
            sent.extend_from_slice(bytes);
        }
    }
    let got = answers(&world.got, &methods(&sent), world.client_saw());
    let got = got.unwrap_or_else(|error| panic!("the client got {error}"));
    let finals = got.messages.iter().filter(|answer| answer.status >= 200 || answer.status == 101);
    let heads = sent.windows(4).filter(|bytes| bytes == b"\r\n\r\n").count();
    assert!(finals.count() <= heads + 1, "answers to nothing");
    if got.cut_head > 0 {
        assert_ne!(world.client_saw(), Ended::Cleanly, "half a head, and a clean end");
    }
}

/// Origins get requests that are well formed, one for each that was forwarded: a strict reader sees
/// no request that the proxy took for a part of another.
fn check_origins(world: &World, steps: &[Step], knobs: &Knobs) {
    let counters = &world.core.counters;
    let switched = counters.answers[0].get() > 0;
    let mut begun = 0;
    for origin in &world.origins {
        let got = requests(&origin.got, switched);
        let got = got.unwrap_or_else(|error| panic!("an origin got {error}"));
        begun += got.messages.len() as u64 + u64::from(got.cut_head > 0);
    }
    let forwarded = counters.pool_hits.get() + counters.pool_misses.get();
    assert!(begun <= forwarded, "{begun} requests of {forwarded}: one was smuggled");
    let resets = |step: &Step| matches!(step, Step::OriginReset | Step::ClientReset);
    let undisturbed = !switched
        && knobs.origin_fault == 0
        && !knobs.origin_stalls
        && !steps.iter().any(resets)
        && counters.errors.iter().all(|errors| errors.get() == 0);
    assert!(!undisturbed || begun == forwarded, "{begun} requests of {forwarded}: one was lost");
}
