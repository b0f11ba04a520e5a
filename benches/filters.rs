//! Time of a route's filters: `cargo bench --bench filters`.
//!
//! The budget: ten synchronous filters under 1 microsecond.

use std::sync::Arc;

use divan::{Bencher, black_box};
use ringway::base::random::Random;
use ringway::context::{Matched, RequestContext};
use ringway::filter::{AnswerCall, Call, FilterChain, Passed, Phase, Progress};
use ringway::http::ResponseHead;
use ringway::snapshot::{Ids, load_text};

fn main() {
    divan::main();
}

const HEAD: &[u8] = b"GET /api/v1/app/order/detail?id=20210911 HTTP/1.1\r\n\
    Host: shop.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Cookie: session=9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d; theme=dark; region=eu-west\r\n\
    X-Api-Key: 018f3c2e-6d1a-7c3b-9a55-2f1f0a5b7c11\r\n\
    Origin: https://shop.example.com\r\n\r\n";

/// Lengths of chains.
const LENGTHS: [usize; 5] = [1, 2, 5, 10, 20];

const IP_LIST: &str = "{ kind = \"ip_list\", allow = [\"0.0.0.0/8\", \"10.0.0.0/8\"] }";
const HEADERS: &str = "{ kind = \"headers\", set = { x-env = \"canary\" } }";
const VARIABLES: &str =
    "{ kind = \"headers\", set = { x-who = \"${client.address} ${request.header.x-api-key}\" } }";
const CORS: &str = "{ kind = \"cors\", origins = [\"https://shop.example.com\"] }";
const LIMIT: &str = "{ kind = \"rate_limit\", key = \"header:x-api-key\", rate = \"1000000/s\", \
                     headers = false }";
const WHEN: &str = "{ kind = \"headers\", set = { x-env = \"canary\" }, \
                    when = [{ header = \"x-canary\", present = true }] }";

/// The chain of a route with these filters, in turn, so many in all.
fn chain(filters: &[&str], length: usize) -> Arc<FilterChain> {
    let filters: Vec<&str> = filters.iter().copied().cycle().take(length).collect();
    let text = format!(
        "[listener.a]\naddress = \"127.0.0.1:0\"\n\
         [upstream.u]\nendpoints = [{{ address = \"127.0.0.1:9001\" }}]\n\
         [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\nfilters = [{}]\n",
        filters.join(", ")
    );
    let loaded = load_text("bench", &text, &mut Ids::default(), 1);
    loaded.unwrap_or_else(|refused| panic!("{refused}")).snapshot.chains[0].clone()
}

/// A request through all phases, its answer and its log record, on one context as on a core.
fn run(bencher: Bencher<'_, '_>, filters: &[&str], length: usize) {
    let chain = chain(filters, length);
    let (mut context, _) = RequestContext::of_head(HEAD).expect("valid");
    let mut head = ResponseHead { status: 200, ..ResponseHead::default() };
    let random = Random::new();
    bencher.bench_local(|| {
        context.request.added.clear();
        head.added.clear();
        let mut progress = Progress::default();
        let mut call = Call {
            context: &mut context,
            route: Matched { route: "r", ..Matched::default() },
            listener: "a",
            upstream: "u",
            random: &random,
            worker: (0, 1),
            decision: None,
        };
        let passed = chain.on_request(&mut progress, Phase::Upstream, &mut call, |_, _| ());
        assert!(matches!(black_box(passed), Passed::Through));
        let mut answer = AnswerCall {
            context: &context,
            head: &mut head,
            route: Matched { route: "r", ..Matched::default() },
            listener: "a",
            upstream: "u",
            endpoint: "127.0.0.1:9001",
            upstream_ms: None,
        };
        chain.on_response(&mut progress, &mut answer);
        chain.on_log(&mut progress, &context, 200);
    });
}

/// Lists and fields, half and half.
#[divan::bench(args = LENGTHS)]
fn mixed(bencher: Bencher<'_, '_>, length: usize) {
    run(bencher, &[IP_LIST, HEADERS], length);
}

#[divan::bench(args = LENGTHS)]
fn ip_list(bencher: Bencher<'_, '_>, length: usize) {
    run(bencher, &[IP_LIST], length);
}

#[divan::bench(args = LENGTHS)]
fn headers(bencher: Bencher<'_, '_>, length: usize) {
    run(bencher, &[HEADERS], length);
}

#[divan::bench(args = LENGTHS)]
fn headers_with_variables(bencher: Bencher<'_, '_>, length: usize) {
    run(bencher, &[VARIABLES], length);
}

#[divan::bench(args = LENGTHS)]
fn cors(bencher: Bencher<'_, '_>, length: usize) {
    run(bencher, &[CORS], length);
}

#[divan::bench(args = LENGTHS)]
fn rate_limit(bencher: Bencher<'_, '_>, length: usize) {
    run(bencher, &[LIMIT], length);
}

/// Filters that a condition keeps out.
#[divan::bench(args = LENGTHS)]
fn kept_out(bencher: Bencher<'_, '_>, length: usize) {
    run(bencher, &[WHEN], length);
}

/// One of each of the four.
#[divan::bench]
fn one_of_each(bencher: Bencher<'_, '_>) {
    run(bencher, &[IP_LIST, LIMIT, CORS, HEADERS], 4);
}
