//! Time of a look-up and of building and freeing a table: `cargo bench --bench routes`.

use std::sync::Arc;

use divan::{Bencher, black_box};
use ringway::base::random::Random;
use ringway::config::decode::Decoder;
use ringway::config::tree::Node;
use ringway::context::{Condition, RequestContext};
use ringway::route::{Action, Extra, Host, Matcher, RoutePlan, RouteTable, Target, Targets};
use ringway::snapshot::{Ids, compile};
use ringway::upstream::UpstreamId;

fn main() {
    divan::main();
}

fn route(index: usize, matcher: Matcher) -> RoutePlan {
    let target = Target { upstream: UpstreamId(0), weight: 1, zone: None, directed: None };
    RoutePlan::new(index, format!("r{index}"), matcher, Action::Forward(Targets::One(target)))
}

fn table(count: usize, of: fn(usize) -> RoutePlan) -> RouteTable {
    RouteTable::new((0..count).map(|index| Arc::new(of(index))))
}

fn exact(index: usize) -> RoutePlan {
    route(index, Matcher::Exact(path(index).into()))
}

fn prefix(index: usize) -> RoutePlan {
    route(index, Matcher::Prefix(format!("{}/", path(index)).into()))
}

fn parameter(index: usize) -> RoutePlan {
    let path = format!("/api/{{version}}/service-{index:07}/{{id}}");
    route(index, Matcher::of_path(&path).expect("valid"))
}

fn of_host(index: usize) -> RoutePlan {
    let host = Host::Name(format!("tenant-{index:07}.example.com").into());
    let extra = Extra { hosts: vec![host], ..Extra::default() };
    let route = route(index, Matcher::Prefix("/".into()));
    RoutePlan { extra: Some(Box::new(extra)), ..route }
}

fn path(index: usize) -> String {
    format!("/api/v1/service-{index:07}/detail")
}

/// Requests for random routes: more than any cache of the processor holds.
fn contexts(count: usize, head: impl Fn(usize) -> String) -> Vec<RequestContext> {
    let random = Random::seeded(7);
    let context = |_| {
        let head = head(random.below(count as u64) as usize);
        RequestContext::of_head(head.as_bytes()).expect("valid").0
    };
    (0..4_096).map(context).collect()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: shop.example.com\r\n\r\n")
}

fn look_up(bencher: Bencher<'_, '_>, table: &RouteTable, contexts: &[RequestContext]) {
    let mut next = 0;
    bencher.bench_local(|| {
        next = (next + 1) % contexts.len();
        let found = table.find(black_box(&contexts[next]));
        assert!(found.is_some());
    });
}

#[divan::bench_group(min_time = 1)]
mod lookup {
    use super::*;

    #[divan::bench(args = [100, 50_000, 1_000_000])]
    fn exact_paths(bencher: Bencher<'_, '_>, count: usize) {
        let contexts = contexts(count, |index| get(&path(index)));
        look_up(bencher, &table(count, exact), &contexts);
    }

    #[divan::bench(args = [100, 50_000])]
    fn prefixes(bencher: Bencher<'_, '_>, count: usize) {
        let contexts = contexts(count, |index| get(&format!("{}/x/y", path(index))));
        look_up(bencher, &table(count, prefix), &contexts);
    }

    #[divan::bench(args = [100, 50_000])]
    fn parameters(bencher: Bencher<'_, '_>, count: usize) {
        let contexts = contexts(count, |index| get(&format!("/api/v2/service-{index:07}/17")));
        look_up(bencher, &table(count, parameter), &contexts);
    }

    #[divan::bench(args = [100, 50_000])]
    fn hosts(bencher: Bencher<'_, '_>, count: usize) {
        let head = |index| format!("GET / HTTP/1.1\r\nHost: tenant-{index:07}.example.com\r\n\r\n");
        look_up(bencher, &table(count, of_host), &contexts(count, head));
    }
}

#[divan::bench_group(sample_count = 20)]
mod table_of_50k {
    use super::*;

    const COUNT: usize = 50_000;

    #[divan::bench]
    fn built(bencher: Bencher<'_, '_>) {
        let plans = || (0..COUNT).map(|index| Arc::new(exact(index))).collect::<Vec<_>>();
        bencher.with_inputs(plans).bench_local_values(RouteTable::new);
    }

    #[divan::bench]
    fn freed(bencher: Bencher<'_, '_>) {
        bencher.with_inputs(|| table(COUNT, exact)).bench_local_values(drop);
    }

    /// From text to snapshot.
    #[divan::bench]
    fn compiled(bencher: Bencher<'_, '_>) {
        let mut text = String::from(
            "[listener.a]\naddress = \"127.0.0.1:0\"\n\
             [upstream.u]\nendpoints = [{ address = \"127.0.0.1:9001\" }]\n",
        );
        for index in 0..COUNT {
            let path = path(index);
            text += &format!("[[route]]\nid = \"r{index}\"\npath = \"{path}\"\nupstream = \"u\"\n");
        }
        bencher.bench_local(|| compile(black_box(&text), &mut Ids::default(), 1).is_ok());
    }
}

#[divan::bench_group]
mod conditions {
    use super::*;

    const HEAD: &[u8] = b"GET /?a=1&uid=u-17 HTTP/1.1\r\nHost: shop.example.com\r\n\
        Cookie: session=9b1deb4d3b7d4bad; theme=dark; uid=u-17\r\nX-Canary: true\r\n\r\n";

    #[divan::bench(args = [
        "header = 'x-canary', equals = 'true'",
        "cookie = 'uid', prefix = 'u-'",
        "query = 'uid', matches = '^u-[0-9]+$'",
        "hash = 'cookie:uid', salt = 's', slots = [0, 10000]",
        "client = ['10.0.0.0/8', '0.0.0.0/8']",
    ])]
    fn one(bencher: Bencher<'_, '_>, written: &str) {
        let text = format!("when = {{ {written} }}");
        let mut decoder = Decoder::default();
        let tree = Node::parse_toml(&text, &mut decoder.found).expect("TOML");
        let ringway::config::tree::Value::Table(entries) = &tree.value else { return };
        let condition = Condition::decode(&entries[0].value, &mut decoder).expect("valid");
        let (context, _) = RequestContext::of_head(HEAD).expect("valid");
        bencher.bench_local(|| assert!(condition.holds(black_box(&context))));
    }
}
