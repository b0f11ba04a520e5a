//! What balancing on each worker's own view costs against one view of the whole node: a discrete-event
//! simulation in virtual time, seeded, with the product's balancers. docs/balancing.md has its tables;
//! `cargo test --test balance_simulation -- --nocapture` prints them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ringway::base::random::Random;
use ringway::upstream::Policy;
use ringway::upstream::balance::ewma::PeakEwma;
use ringway::upstream::balance::{Balancer, View};

const ENDPOINTS: usize = 10;
const REQUESTS: usize = 60_000;
/// The first are not counted: queues are empty when it begins.
const WARM_UP: usize = 5_000;
/// Mean time that an endpoint needs for a request, in microseconds.
const SERVICE_US: f64 = 10_000.0;
/// Of the time that an endpoint is busy.
const UTILISATION: f64 = 0.7;
const WORKERS: [usize; 4] = [1, 4, 16, 64];
const POLICIES: [Policy; 4] =
    [Policy::RoundRobin, Policy::Random, Policy::LeastRequest, Policy::Ewma];

/// What one worker knows.
struct Worker {
    balancer: Balancer,
    seen: Seen,
}

struct Seen {
    in_flight: Vec<u32>,
    latency: Vec<PeakEwma>,
    now_ms: u64,
}

impl View for Seen {
    fn is_usable(&self, _: usize) -> bool {
        true
    }

    fn in_flight(&self, index: usize) -> u32 {
        self.in_flight[index]
    }

    fn latency_us(&self, index: usize) -> f64 {
        self.latency[index].at(self.now_ms)
    }
}

#[derive(Debug)]
struct Figures {
    mean_ms: f64,
    p99_ms: f64,
    /// Requests at the longest queue, less the mean over all, averaged over arrivals.
    imbalance: f64,
    /// Of the requests, those that went to the last endpoint.
    last_share: f64,
}

/// Requests come by chance (Poisson) to workers by chance; each endpoint serves one at a time, in
/// order, for an exponential time, the last one `slow` times as long.
fn simulate(policy: Policy, workers: usize, slow: f64) -> Figures {
    let random = Random::seeded(42);
    let exponential = |mean: f64| -mean * (1.0 - random.next() as f64 / 2f64.powi(64)).ln();
    let gap_us = SERVICE_US / (ENDPOINTS as f64 * UTILISATION);
    let worker = || Worker {
        balancer: Balancer::new(policy, &[100; ENDPOINTS]),
        seen: Seen {
            in_flight: vec![0; ENDPOINTS],
            latency: vec![PeakEwma::default(); ENDPOINTS],
            now_ms: 0,
        },
    };
    let mut all: Vec<Worker> = (0..workers).map(|_| worker()).collect();
    let mut free_at = [0.0f64; ENDPOINTS];
    let mut queued: Vec<VecDeque<u64>> = vec![VecDeque::new(); ENDPOINTS];
    let mut running: BinaryHeap<Reverse<(u64, usize, usize, u64)>> = BinaryHeap::new();
    let (mut now, mut taken, mut imbalance, mut last) = (0.0f64, Vec::new(), 0.0, 0);
    for number in 0..REQUESTS {
        now += exponential(gap_us);
        while let Some(Reverse((end, by, index, began))) = running.peek().copied() {
            if end as f64 > now {
                break;
            }
            running.pop();
            queued[index].pop_front();
            let seen = &mut all[by].seen;
            seen.in_flight[index] -= 1;
            seen.latency[index].observe(end - began, end / 1_000);
        }
        let by = random.below(workers as u64) as usize;
        let Worker { balancer, seen } = &mut all[by];
        seen.now_ms = now as u64 / 1_000;
        let index = balancer.pick(seen, &random).expect("all are usable");
        seen.in_flight[index] += 1;
        let factor = if index == ENDPOINTS - 1 { slow } else { 1.0 };
        free_at[index] = free_at[index].max(now) + exponential(SERVICE_US * factor);
        let end = free_at[index] as u64 + 1;
        queued[index].push_back(end);
        running.push(Reverse((end, by, index, now as u64)));
        if number >= WARM_UP {
            taken.push(free_at[index] - now);
            last += usize::from(index == ENDPOINTS - 1);
            let lengths = queued.iter().map(VecDeque::len);
            let longest = lengths.clone().max().unwrap_or(0);
            imbalance += longest as f64 - lengths.sum::<usize>() as f64 / ENDPOINTS as f64;
        }
    }
    taken.sort_unstable_by(f64::total_cmp);
    let count = taken.len() as f64;
    Figures {
        mean_ms: taken.iter().sum::<f64>() / count / 1_000.0,
        p99_ms: taken[taken.len() * 99 / 100] / 1_000.0,
        imbalance: imbalance / count,
        last_share: last as f64 / count,
    }
}

#[test]
fn own_views_against_one_view() {
    println!("| policy | workers | mean | p99 | imbalance |\n|---|---|---|---|---|");
    let mut p99 = Vec::new();
    for policy in POLICIES {
        for workers in WORKERS {
            let Figures { mean_ms, p99_ms, imbalance, .. } = simulate(policy, workers, 1.0);
            let name = policy.name();
            println!("| {name} | {workers} | {mean_ms:.1} ms | {p99_ms:.0} ms | {imbalance:.2} |");
            p99.push(p99_ms);
        }
    }
    let [turns, chance, least, ewma] = [0, 1, 2, 3].map(|row| &p99[row * 4..row * 4 + 4]);
    // Chance has no view, so that it loses none.
    assert!(chance.iter().all(|one| (one / chance[0] - 1.0).abs() < 0.15), "{chance:?}");
    // One view: two choices halve the tail of chance; turns are in between.
    assert!(least[0] < chance[0] * 0.5 && ewma[0] < chance[0] * 0.6, "{least:?} {ewma:?}");
    assert!(turns[0] < chance[0] && turns[0] > least[0]);
    // Own views lose that step by step, and never do worse than chance.
    assert!(least[1] < chance[1] * 0.8, "{least:?}");
    for (own, chance) in turns.iter().chain(least).zip(chance.iter().chain(chance)) {
        assert!(*own < chance * 1.15, "{turns:?} {least:?} {chance}");
    }
}

#[test]
fn a_slow_endpoint_is_spared() {
    println!("| policy | workers | share of the slow one | p99 |\n|---|---|---|---|");
    for policy in POLICIES {
        for workers in [1, 16] {
            let Figures { last_share, p99_ms, .. } = simulate(policy, workers, 3.0);
            let (name, percent) = (policy.name(), 100.0 * last_share);
            println!("| {name} | {workers} | {percent:.1} % | {p99_ms:.0} ms |");
            match policy {
                // A third of its speed, and the same share: its queue only grows.
                Policy::RoundRobin | Policy::Random => assert!(percent > 9.0 && p99_ms > 1_000.0),
                // What it can do is 4 %.
                _ => assert!(percent < 6.0 && p99_ms < 1_000.0, "{name} {percent} {p99_ms}"),
            }
        }
    }
}
