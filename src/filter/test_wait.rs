//! `kind = "test_wait"`: waits, fails, answers or never ends, on request; in test builds only.

use std::sync::Arc;

use super::{Build, Call, Filter, Hooks, Key, Kind, Phase, Reply, Resume, Verdict};
use crate::config::decode::Fields;
use crate::config::read::{choice, integer};
use crate::io::sleep_ms;

/// A wait and its outcome.
pub const KIND: Kind = Kind {
    name: "test_wait",
    phase: Phase::Access,
    waits: true,
    about: "Waits, and then continues, fails, answers, changes the request or panics.",
    example: "[filter.slow]\nkind = \"test_wait\"\non_error = \"skip\"\nms = 10\n\
              outcome = \"continue\"\n",
    keys: &[
        Key::of("filter.test_wait", "ms", "number", "0", "how long to wait, in milliseconds"),
        Key::of("filter.test_wait", "outcome", "word", "\"continue\"", "`continue`, `fail`, `answer`, `change`, `again` or `panic`"),
    ],
    decode,
};

#[derive(Clone, Copy, Debug, Default)]
enum Outcome {
    #[default]
    Continue,
    Fail,
    Answer,
    Change,
    Again,
    Panic,
}

const OUTCOMES: &[(&str, Outcome)] = &[
    ("continue", Outcome::Continue),
    ("fail", Outcome::Fail),
    ("answer", Outcome::Answer),
    ("change", Outcome::Change),
    ("again", Outcome::Again),
    ("panic", Outcome::Panic),
];

#[derive(Debug)]
struct TestWait {
    ms: u64,
    outcome: Outcome,
}

fn decode(f: &mut Fields<'_, '_>, _build: &mut Build<'_>) -> Option<Arc<dyn Filter>> {
    let ms = f.optional("ms", integer(0..=3_600_000)).unwrap_or(0) as u64;
    let outcome = f.optional("outcome", choice(OUTCOMES)).unwrap_or_default();
    Some(Arc::new(TestWait { ms, outcome }))
}

impl Filter for TestWait {
    fn hooks(&self) -> Hooks {
        Hooks { request: true, ..Hooks::default() }
    }

    fn on_request(&self, _call: &mut Call<'_>) -> Verdict {
        wait(self.ms, self.outcome)
    }
}

fn wait(ms: u64, outcome: Outcome) -> Verdict {
    Verdict::Wait(Box::pin(async move {
        sleep_ms(ms).await;
        match outcome {
            Outcome::Fail => Resume::Failed,
            Outcome::Panic => panic!("fail point filter"),
            outcome => Resume::With(Box::new(move |call| resume(call, ms, outcome))),
        }
    }))
}

fn resume(call: &mut Call<'_>, ms: u64, outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Answer => Verdict::Respond(Reply::of(204).field("x-waited", "yes")),
        Outcome::Change => {
            call.context.request.set("x-waited", b"yes");
            Verdict::Continue
        }
        Outcome::Again => wait(ms, Outcome::Change),
        _ => Verdict::Continue,
    }
}
