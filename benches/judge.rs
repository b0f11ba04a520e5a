//! What a look of the judge costs the control thread: `cargo bench --bench judge`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use divan::{Bencher, black_box};
use ringway::limits::JUDGE_MS;
use ringway::snapshot::{Ids, compile};
use ringway::upstream::{Judge, UpstreamPlan};

fn main() {
    divan::main();
}

const UPSTREAMS: usize = 16;
const ENDPOINTS: usize = 256;
const WORKERS: usize = 64;

/// Upstreams with all tiers on, each in two zones.
fn plans(more: &str) -> Vec<Arc<UpstreamPlan>> {
    let mut text = "[listener.a]\naddress = \"127.0.0.1:9000\"\n".to_owned();
    for upstream in 0..UPSTREAMS {
        let endpoint = |port| {
            let zone = if port % 2 == 0 { "a" } else { "b" };
            format!("{{ address = \"127.0.{upstream}.1:{port}\", zone = \"{zone}\" }}")
        };
        let endpoints: Vec<_> = (1..=ENDPOINTS).map(endpoint).collect();
        text += &format!(
            "[upstream.u{upstream}]\nendpoints = [{}]\n\
             breaker = {{ service = {{}}, zone = {{}}, {more} }}\n\
             [[route]]\nid = \"r{upstream}\"\nprefix = \"/{upstream}/\"\nupstream = \"u{upstream}\"\n",
            endpoints.join(", ")
        );
    }
    let (snapshot, _) = compile(&text, &mut Ids::default(), 1).expect("a configuration");
    snapshot.upstreams.clone()
}

/// A few requests to every endpoint on every worker.
fn traffic(plans: &[Arc<UpstreamPlan>], failed: u64, timed: bool) {
    for endpoint in plans.iter().flat_map(|plan| &plan.endpoints) {
        for worker in 0..WORKERS {
            let tally = endpoint.tallies.of(worker, WORKERS);
            tally.succeeded.add(3);
            tally.failed.add(failed);
            if timed {
                tally.head_took(3_000);
            }
        }
    }
}

/// 64 workers, 4,096 endpoints, requests everywhere between any two looks.
#[divan::bench(args = ["plain", "failing", "adaptive"], sample_count = 100, sample_size = 1)]
fn look(bencher: Bencher<'_, '_>, kind: &str) {
    let adaptive = kind == "adaptive";
    let plans = plans(if adaptive { "adaptive = true" } else { "" });
    let failed = u64::from(kind == "failing");
    let mut judge = Judge::default();
    judge.follow(&plans, 0);
    traffic(&plans, 0, adaptive);
    let mut now_ms = 0;
    bencher
        .with_inputs(|| {
            traffic(&plans, failed, adaptive);
            now_ms += JUDGE_MS;
            now_ms
        })
        .bench_local_values(|now_ms| {
            judge.tick(now_ms);
            black_box(judge.take_changed());
            black_box(judge.take_events());
            judge.take_news().then(|| black_box(judge.view(now_ms)))
        });
}

/// The longest of a hundred looks, each of which is the quickest of its kind in ten rounds, so that
/// others on the machine do not count: windows end at different looks.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn longest_adaptive_look(bencher: Bencher<'_, '_>) {
    let plans = plans("adaptive = true");
    let mut judge = Judge::default();
    judge.follow(&plans, 0);
    let mut now_ms = 0;
    bencher.bench_local(|| {
        let mut quickest = [Duration::MAX; 100];
        for _ in 0..10 {
            for quickest in &mut quickest {
                traffic(&plans, 0, true);
                now_ms += JUDGE_MS;
                let began = Instant::now();
                judge.tick(now_ms);
                *quickest = began.elapsed().min(*quickest);
            }
        }
        println!("longest look: {:?}", quickest.iter().max());
    });
}
