//! Whole connections over streams in memory: every split, every bound, a reset at every operation,
//! and a stall at every byte.

use ringway::error::ErrorKind;

mod reference;
mod sim;

use sim::peers::{Answer, Asked, Got, answers, methods, requests};
use sim::scripts::{ANY, Script, all};
use sim::world::{Ended, Knobs, LONG_MS, Step, World};

/// What the peers got in one run.
struct Outcome {
    answers: Got<Answer>,
    asked: Vec<Got<Asked>>,
    saw: Ended,
}

/// Runs steps to the end of the connection.
fn run(steps: &[Step], knobs: Knobs) -> (World, Outcome) {
    let mut world = World::new(knobs);
    for step in steps {
        world.step(step);
    }
    world.end();
    let outcome = observe(&world, steps);
    (world, outcome)
}

/// Reads what the peers got, strictly.
fn observe(world: &World, steps: &[Step]) -> Outcome {
    let sent: Vec<u8> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Client(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
        .collect::<Vec<_>>()
        .concat();
    let answers = answers(&world.got, &methods(&sent), world.client_saw());
    let answers = answers.unwrap_or_else(|error| panic!("the client got {error}"));
    let switched = answers.tunnel.is_some();
    let asked = world.origins.iter().map(|origin| {
        let read = requests(&origin.got, switched);
        read.unwrap_or_else(|error| panic!("an origin got {error}"))
    });
    let asked = asked.filter(|got| !got.messages.is_empty() || got.cut_head > 0).collect();
    Outcome { answers, asked, saw: world.client_saw() }
}

/// Runs a check and says where it was if it fails.
fn at(place: &str, check: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
        println!("in {place}");
        std::panic::resume_unwind(panic);
    }
}

/// The outcome that the script names, exactly.
fn check_whole(script: &Script, outcome: &Outcome) {
    let got: Vec<_> = outcome.answers.messages.iter().map(|it| (it.status, it.whole)).collect();
    let expected: Vec<_> = script.answers.iter().map(|(status, _)| (*status, true)).collect();
    assert_eq!(got, expected);
    for (answer, (_, text)) in outcome.answers.messages.iter().zip(script.answers) {
        assert!(*text == ANY || answer.body == text.as_bytes(), "{answer:?}");
        assert_eq!(answer.made_here, *text == ANY, "{answer:?}");
    }
    assert_eq!(outcome.answers.cut_head, 0);
    assert_eq!(outcome.saw, Ended::Cleanly);
    assert_eq!(outcome.asked.len(), script.asked.len(), "{:?}", outcome.asked);
    for (got, expected) in outcome.asked.iter().zip(script.asked) {
        assert_eq!(got.messages.len(), expected.len(), "{got:?}");
        for (asked, expected) in got.messages.iter().zip(*expected) {
            check_asked(asked, expected);
        }
    }
    if let Some((to_client, to_origin)) = script.tunnel {
        assert_eq!(outcome.answers.tunnel.as_deref(), Some(to_client.as_bytes()));
        assert_eq!(outcome.asked[0].tunnel.as_deref(), Some(to_origin.as_bytes()));
    }
}

/// A request that an origin got, whole or cut: never another one.
fn check_asked(asked: &Asked, (method, target, body): &(&str, &str, &str)) {
    assert_eq!((&asked.method[..], &asked.target[..]), (method.as_bytes(), target.as_bytes()));
    assert!(!asked.whole || asked.body == body.as_bytes(), "{asked:?}");
    let (short, long) = (asked.body.len().min(body.len()), body.as_bytes());
    assert_eq!(asked.body[..short], long[..short]);
}

/// What holds whatever went wrong: whole answers are those of the script, in its order; what is cut
/// is the beginning of one; in the place of any the proxy's own error may stand, as the last.
fn check_part(script: &Script, outcome: &Outcome) {
    let mut expected = script.answers.iter();
    for answer in &outcome.answers.messages {
        if answer.made_here {
            assert!(answer.status >= 400, "{answer:?}");
            expected.next();
            continue;
        }
        let rest = expected.by_ref();
        let Some((_, text)) = rest.into_iter().find(|(status, _)| *status == answer.status) else {
            panic!("an answer of nobody: {answer:?}");
        };
        assert!(text.as_bytes().starts_with(&answer.body), "{answer:?}");
        assert!(!answer.whole || answer.body == text.as_bytes(), "cut, and taken for whole");
    }
    let scripted: Vec<_> = script.asked.iter().flat_map(|asked| asked.iter()).collect();
    for asked in outcome.asked.iter().flat_map(|got| &got.messages) {
        let same = scripted.iter().find(|it| it.1.as_bytes() == asked.target);
        check_asked(asked, same.expect("a request of nobody"));
    }
}

/// Every way to cut one step of one kind in two.
fn cuts(steps: &[Step], of_client: bool) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let (bytes, make): (_, fn(Vec<u8>) -> Step) = match step {
            Step::Client(bytes) if of_client => (bytes, Step::Client),
            Step::Origin(bytes) if !of_client => (bytes, Step::Origin),
            _ => continue,
        };
        for cut in 1..bytes.len() {
            let halves = [make(bytes[..cut].to_vec()), make(bytes[cut..].to_vec())];
            all.push([&steps[..index], &halves, &steps[index + 1..]].concat());
        }
    }
    all
}

fn check_script(script: &Script, steps: &[Step], knobs: Knobs) {
    at(&format!("{}: {steps:?} {knobs:?}", script.name), || {
        let (mut world, outcome) = run(steps, knobs);
        check_whole(script, &outcome);
        world.check_rest();
    });
}

#[test]
fn every_script_has_the_outcome_that_it_names() {
    for script in all() {
        check_script(&script, &script.steps, Knobs::default());
    }
}

#[test]
fn it_makes_no_difference_where_the_clients_bytes_are_split() {
    for script in all() {
        for steps in cuts(&script.steps, true) {
            check_script(&script, &steps, Knobs::default());
        }
    }
}

#[test]
fn it_makes_no_difference_where_the_origins_bytes_are_split() {
    for script in all() {
        for steps in cuts(&script.steps, false) {
            check_script(&script, &steps, Knobs::default());
        }
    }
}

#[test]
fn it_makes_no_difference_how_much_one_operation_takes() {
    for script in all() {
        for (read_max, write_max) in [(1, 0), (0, 1), (1, 1), (3, 2)] {
            let knobs = Knobs { read_max, write_max, ..Knobs::default() };
            check_script(&script, &script.steps, knobs);
        }
    }
}

#[test]
fn a_reset_at_any_operation_leaves_nothing_behind() {
    for script in all() {
        let (world, _) = run(&script.steps, Knobs::default());
        let of_client = (1..=world.client_operations() + 1)
            .map(|fault| Knobs { client_fault: fault, ..Knobs::default() });
        let of_origin = (1..=world.origin_operations() + 1)
            .map(|fault| Knobs { origin_fault: fault, ..Knobs::default() });
        for knobs in of_client.chain(of_origin) {
            at(&format!("{}: {knobs:?}", script.name), || {
                let (mut world, outcome) = run(&script.steps, knobs);
                check_part(&script, &outcome);
                world.check_rest();
            });
        }
    }
}

/// Stops after every byte of either side and lets all deadlines pass.
#[test]
fn a_stall_at_any_byte_ends_by_a_deadline() {
    for script in all() {
        for steps in cuts(&script.steps, true).into_iter().chain(cuts(&script.steps, false)) {
            let kept = steps.len() - kept_behind(&script.steps, &steps);
            at(&format!("{}: {:?}", script.name, &steps[..kept]), || {
                stall(&script, &steps[..kept], Knobs::default());
            });
        }
        for kept in 0..=script.steps.len() {
            at(&format!("{}: {kept} steps", script.name), || {
                stall(&script, &script.steps[..kept], Knobs::default());
            });
        }
    }
}

/// Steps behind the first half of the one that was cut.
fn kept_behind(whole: &[Step], cut: &[Step]) -> usize {
    let same = whole.iter().zip(cut).take_while(|(a, b)| a == b).count();
    cut.len() - same - 1
}

fn stall(script: &Script, steps: &[Step], knobs: Knobs) {
    let mut world = World::new(knobs);
    for step in steps {
        world.step(step);
    }
    world.pass(LONG_MS);
    assert!(world.is_over(), "a deadline ended it");
    check_part(script, &observe(&world, &script.steps));
    world.check_rest();
}

fn client(text: &str) -> Step {
    Step::Client(text.as_bytes().to_vec())
}

fn origin(text: &str) -> Step {
    Step::Origin(text.as_bytes().to_vec())
}

const UPLOAD: &str =
    "POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";

/// An answer without a length ends with its connection, so that one that is cut must not end
/// cleanly, whoever cut it.
#[test]
fn an_answer_without_a_length_that_is_cut_ends_by_a_reset() {
    let endless = origin("HTTP/1.1 200 OK\r\n\r\nsome");
    let cases = [
        ("a malformed chunk", UPLOAD, vec![client("x")]),
        ("too large a body", UPLOAD, vec![client("9\r\n012345678\r\n")]),
        ("a stalled upload", UPLOAD, vec![Step::Pass(3_000)]),
        ("the end of an upload", UPLOAD, vec![Step::ClientEnd]),
        (
            "the total timeout",
            "GET /total HTTP/1.1\r\nHost: x\r\n\r\n",
            vec![Step::Pass(1_900), origin("."), Step::Pass(1_900)],
        ),
        ("a stalled origin", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", vec![Step::Pass(3_000)]),
        ("a reset", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", vec![Step::OriginReset]),
    ];
    for (name, request, then) in cases {
        let steps = [vec![client(request), endless.clone()], then].concat();
        at(name, || {
            let (mut world, outcome) = run(&steps, Knobs::default());
            assert_eq!(outcome.answers.messages[0].status, 200);
            assert_eq!(outcome.saw, Ended::Reset);
            world.check_rest();
        });
    }
}

/// An upstream that takes nothing of an upload has timed out, it has not closed.
#[test]
fn an_upload_that_the_upstream_does_not_take_is_its_timeout() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    let mut steps = vec![client(head)];
    steps.extend((0..4).map(|_| Step::Client(vec![b'x'; 32 * 1024])));
    steps.push(Step::Pass(3_000));
    let (mut world, outcome) = run(&steps, Knobs { origin_stalls: true, ..Knobs::default() });
    assert_eq!(outcome.answers.messages[0].status, 504);
    let kind = ErrorKind::UpstreamWriteTimeout;
    assert_eq!(world.core.counters.errors[kind as usize].get(), 1);
    world.check_rest();
}

#[test]
fn a_client_that_takes_nothing_is_cut() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}", "x".repeat(300_000));
    let steps = [client("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), origin(&head), Step::Pass(3_000)];
    let (mut world, outcome) = run(&steps, Knobs { client_stalls: true, ..Knobs::default() });
    assert_eq!(outcome.saw, Ended::Reset);
    let kind = ErrorKind::ClientWriteTimeout;
    assert_eq!(world.core.counters.errors[kind as usize].get(), 1);
    world.check_rest();
}

/// The answer to a head that was refused says nothing of the request before it, whose exchange it
/// uses again: it has an identity of its own, for whoever reads the log.
#[test]
fn a_refused_head_has_a_request_id_of_its_own() {
    for given in ["", "X-Request-Id: given-by-a-peer-that-is-believed\r\n"] {
        let first = format!("GET / HTTP/1.1\r\n{given}Host: x\r\n\r\n");
        let ok = "HTTP/1.1 204 No Content\r\n\r\n";
        let steps = [client(&first), origin(ok), client("x y\r\n\r\n")];
        let (mut world, outcome) = run(&steps, Knobs::default());
        assert_eq!(outcome.answers.messages[1].status, 400);
        let text = String::from_utf8_lossy(&world.got).to_lowercase();
        let ids: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("x-request-id: ")).collect();
        assert!(ids.len() == 2 && ids[0] != ids[1], "{text}");
        world.check_rest();
    }
}

#[test]
fn the_largest_length_is_one_like_any_other() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nx";
    let steps = [client("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), origin(head)];
    let (mut world, outcome) = run(&steps, Knobs::default());
    assert_eq!(
        (outcome.answers.messages[0].body.as_slice(), outcome.saw),
        (&b"x"[..], Ended::Reset)
    );
    world.check_rest();
}

/// Bodies larger than any buffer, in both directions at once, however little one operation takes.
#[test]
fn large_bodies_pass_unchanged() {
    let text: String = (0..60_000u32).map(|number| format!("{number:05}")).collect();
    let half = text.len() / 2;
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", text.len());
    let chunks = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
    let steps = [
        client(&head),
        client(&text[..half]),
        client(&text[half..]),
        origin("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"),
        origin(&chunks(&text[..half])),
        origin(&(chunks(&text[half..]) + "0\r\nX-Sum: 1\r\n\r\n")),
    ];
    for (read_max, write_max) in [(0, 0), (1_000, 0), (0, 777), (16_384, 0), (131_072, 131_072)] {
        let knobs = Knobs { read_max, write_max, ..Knobs::default() };
        let (mut world, outcome) = run(&steps, knobs);
        assert!(outcome.answers.messages[0].body == text.as_bytes(), "{knobs:?}");
        assert!(outcome.asked[0].messages[0].body == text.as_bytes(), "{knobs:?}");
        assert_eq!(outcome.answers.messages[0].trailers.len(), 1);
        world.check_rest();
    }
}
