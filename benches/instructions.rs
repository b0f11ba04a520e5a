//! Instructions of our own code a plain request, under callgrind, against perf/allowances.toml.
//!
//! Run it by perf/instructions.sh. Each case runs twice, the second time with twice the requests,
//! so that starting up cancels out. Exit status 1 where an allowance is exceeded by more than 5 %.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use ringway::base::buffer::Buf;
use ringway::base::random::Random;
use ringway::context::RequestContext;
use ringway::http::uri::{normalise_path, parse_target};
use ringway::http::{HeadLimits, RequestHead, ResponseHead};
use ringway::http1::chunked::ChunkedRelay;
use ringway::http1::framing::{keep_alive_request, request_framing, response_framing};
use ringway::http1::head::{RequestParser, ResponseParser};
use ringway::route::{Action, Matcher, RoutePlan, RouteTable, Target, Targets};
use ringway::upstream::UpstreamId;

/// A name, and what does so many requests of it.
type Case = (&'static str, fn(usize));

const CASES: &[Case] = &[
    ("request_head", request_head),
    ("response_head", response_head),
    ("target_and_route", target_and_route),
    ("chunked_1k", chunked),
    ("lookup_100", lookup_100),
    ("lookup_50k", lookup_50k),
];

const REQUEST: &[u8] = b"GET /api/v1/app/order/detail HTTP/1.1\r\nHost: shop.example.com\r\n\
    User-Agent: load/1.0\r\nAccept: */*\r\nX-Request-Id: 018f3c2e6d1a7c3b\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: application/json\r\nContent-Length: 1024\r\nServer: origin\r\n\r\n";
/// Requests of the first run.
const COUNT: usize = 2_000;
const TOLERANCE: f64 = 1.05;
const LOOKUP_RATIO_MAX: f64 = 1.10;

/// Parse and framing.
fn request_head(count: usize) {
    let mut head = RequestHead { bytes: Buf::from(REQUEST), ..RequestHead::default() };
    let mut parser = RequestParser::default();
    let limits = HeadLimits::default();
    for _ in 0..count {
        assert_eq!(parser.parse(black_box(&mut head), &limits), Ok(true));
        let _ = black_box((request_framing(&head), keep_alive_request(&head)));
    }
}

fn response_head(count: usize) {
    let mut head = ResponseHead { bytes: Buf::from(RESPONSE), ..ResponseHead::default() };
    let mut parser = ResponseParser::default();
    let limits = HeadLimits::default();
    for _ in 0..count {
        assert_eq!(parser.parse(black_box(&mut head), &limits), Ok(true));
        let _ = black_box(response_framing(&head, false));
    }
}

/// So many exact routes that hide three segments.
fn exact_routes(count: usize) -> RouteTable {
    RouteTable::new((0..count).map(|number| {
        let target = Target { upstream: UpstreamId(0), weight: 1, zone: None, directed: None };
        let action = Action::Forward(Targets::One(target));
        let matcher = Matcher::Exact(exact_path(number).into());
        let route = RoutePlan::new(number, format!("r{number}"), matcher, action);
        Arc::new(RoutePlan { skip_segments: 3, ..route })
    }))
}

/// All are of one length, so that hashing costs the same.
fn exact_path(number: usize) -> String {
    format!("/api/v1/app/order/{number:08}")
}

/// Normalise and look up one of 1,000 exact routes.
fn target_and_route(count: usize) {
    let table = exact_routes(1_000);
    let mut out = Vec::new();
    let mut context = RequestContext::default();
    context.target.changed = true;
    let line = format!("{}?x=1", exact_path(617));
    for _ in 0..count {
        let target = parse_target(b"GET", black_box(line.as_bytes())).expect("valid");
        let facts = normalise_path(target.path, &mut out).expect("valid");
        context.target.normalised.clear();
        context.target.normalised.extend_from_slice(target.path);
        let route = table.find(&context).expect("a route");
        assert!(route.path_policy.admit(&facts).is_ok());
        black_box(route.strip(target.path));
    }
}

/// R2: ten look-ups of random keys over a whole table; ten, so that the hash's seed, which decides
/// how tables are built, does not show.
fn lookups(routes: usize, count: usize) {
    let table = exact_routes(routes);
    let random = Random::seeded(1);
    let paths: Vec<String> =
        (0..4_096).map(|_| exact_path(random.below(routes as u64) as usize)).collect();
    let mut context = RequestContext::default();
    context.target.changed = true;
    for path in paths.iter().cycle().take(10 * count) {
        context.target.normalised.clear();
        context.target.normalised.extend_from_slice(path.as_bytes());
        assert!(black_box(table.find(black_box(&context))).is_some());
    }
}

fn lookup_100(count: usize) {
    lookups(100, count);
}

fn lookup_50k(count: usize) {
    lookups(50_000, count);
}

/// A chunk of 1 KiB and the last one.
fn chunked(count: usize) {
    let body = [b"400\r\n".as_slice(), &[b'x'; 1024], b"\r\n0\r\n\r\n"].concat();
    for _ in 0..count {
        assert!(ChunkedRelay::new().step(black_box(&body)).is_ok_and(|step| step.done));
    }
}

/// Instructions that callgrind counts in a run of this program.
fn measure(case: &str, count: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["run", case, &count.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split_once("Collected : "))?.1;
    collected.trim().parse().ok().filter(|_| output.status.success())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [run, name, count] = arguments.as_slice()
        && run == "run"
    {
        let case = CASES.iter().find(|case| case.0 == name).expect("a case of this file");
        case.1(count.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/perf/allowances.toml");
    let text = std::fs::read_to_string(path).expect("perf/allowances.toml");
    let file: BTreeMap<String, BTreeMap<String, u64>> = toml::from_str(&text).expect("TOML");
    let allowances = file.get("instructions").expect("[instructions]");
    let mut exceeded = false;
    let mut counted = BTreeMap::new();
    for (name, _) in CASES {
        let (Some(once), Some(twice)) = (measure(name, COUNT), measure(name, 2 * COUNT)) else {
            println!("{name}: valgrind did not run");
            return ExitCode::FAILURE;
        };
        let each = (twice - once) as f64 / COUNT as f64;
        counted.insert(*name, each);
        let allowed = *allowances.get(*name).expect("an allowance for each case");
        let above = each > allowed as f64 * TOLERANCE;
        exceeded |= above;
        let verdict = if above { "EXCEEDED" } else { "ok" };
        println!("{name:20} {each:8.0} instructions a request, allowed {allowed:6}  {verdict}");
    }
    // R2: 50,000 routes cost no more than 100.
    let ratio = counted["lookup_50k"] / counted["lookup_100"];
    exceeded |= ratio > LOOKUP_RATIO_MAX;
    println!("lookup_50k is {ratio:.3} of lookup_100, allowed {LOOKUP_RATIO_MAX}");
    if exceeded { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
