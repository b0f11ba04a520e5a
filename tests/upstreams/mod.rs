//! A world of virtual time: workers with views of their own, endpoints that fail as told, requests
//! that arrive by chance, and the judge, which looks every 100 ms. The same seed gives the same hour.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ringway::base::random::Random;
use ringway::limits::{JUDGE_MS, WEIGHT_DEFAULT};
use ringway::snapshot::{Ids, compile};
use ringway::upstream::{Judge, JudgeEvent, Standing, UpstreamPlan};

/// How an endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mood {
    /// Answers after so long; of a thousand requests so many fail.
    Answers { ms: u64, failing_permille: u64 },
    /// Refuses connections.
    Refuses,
    /// Takes requests and never answers: they fail at the timeout.
    Hangs,
    /// Answers after so many microseconds; of a thousand requests so many take longer.
    Tails { us: u64, slow_us: u64, slow_permille: u64 },
}

/// What active checks find, where the upstream has any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Checks {
    /// That endpoints that answer are up, and others are not.
    Honest,
    /// Now this, now that, whatever becomes of requests.
    Alternating,
    /// That all is well, whatever becomes of requests.
    Blind,
}

/// Answers after 5 ms, always.
pub const WELL: Mood = Mood::Answers { ms: 5, failing_permille: 0 };

/// The timeout of requests.
const TIMEOUT_MS: u64 = 1_000;

/// What a user saw of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// Those that were answered.
    pub well: u64,
    /// Microseconds that those took together.
    pub well_us: u64,
    /// Those that failed at an endpoint.
    pub failed: u64,
    /// Those that were refused at once, the upstream being given less.
    pub refused: u64,
    /// Those that arrived, by endpoint.
    pub arrived: [u64; ENDPOINTS_MAX],
}

/// Endpoints of a world.
pub const ENDPOINTS_MAX: usize = 8;

/// One worker's view.
struct Worker {
    standings: Vec<Standing>,
    service: Standing,
    /// Failures in a row, by endpoint.
    in_a_row: Vec<u32>,
    isolated_until_us: Vec<u64>,
    probing: Vec<bool>,
    service_probing: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Arrival,
    Look,
    Done(Tried),
    Check(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tried {
    worker: usize,
    endpoint: usize,
    well: bool,
    took_us: u64,
    service_probe: bool,
}

/// The world.
pub struct World {
    /// The upstream.
    pub plan: Arc<UpstreamPlan>,
    /// What decides.
    pub judge: Judge,
    /// How each endpoint behaves now.
    pub moods: Vec<Mood>,
    /// What checks find.
    pub checks: Checks,
    /// An endpoint that had no requests for 10 s is cold: it takes so many in a second, an eighth
    /// more each second that it is asked, and fails the others.
    pub cold_per_s: Option<u64>,
    /// What happened, with the millisecond.
    pub events: Vec<(u64, JudgeEvent)>,
    /// What users saw, second by second.
    pub seconds: Vec<Second>,
    workers: Vec<Worker>,
    queue: BinaryHeap<Reverse<(u64, u64, Next)>>,
    order: u64,
    now_us: u64,
    per_s: u64,
    random: Random,
    warmth: Vec<Warmth>,
    /// Checks that were made.
    checked: u64,
}

/// What an endpoint that was cold takes.
#[derive(Clone, Copy, Default)]
struct Warmth {
    second: u64,
    asked: u64,
    takes: u64,
}

impl World {
    /// Endpoints in these zones, so many workers and requests a second; `more` are lines of the
    /// upstream.
    pub fn new(zones: &[&str], workers: usize, per_s: u64, more: &str, seed: u64) -> World {
        let endpoint = |(port, zone): (usize, &&str)| match zone.is_empty() {
            true => format!("{{ address = \"127.0.0.1:{}\" }}", port + 1),
            false => format!("{{ address = \"127.0.0.1:{}\", zone = \"{zone}\" }}", port + 1),
        };
        let endpoints: Vec<_> = zones.iter().enumerate().map(endpoint).collect();
        let text = format!(
            "[listener.a]\naddress = \"127.0.0.1:9000\"\n[upstream.u]\nendpoints = [{}]\n{more}\n\
             [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n",
            endpoints.join(", ")
        );
        let (snapshot, _) = compile(&text, &mut Ids::default(), 1).expect("a configuration");
        let plan = snapshot.upstreams[0].clone();
        let mut judge = Judge::default();
        judge.follow(std::slice::from_ref(&plan), 0);
        let count = zones.len();
        let worker = || Worker {
            standings: vec![Standing::WHOLE; count],
            service: Standing::WHOLE,
            in_a_row: vec![0; count],
            isolated_until_us: vec![0; count],
            probing: vec![false; count],
            service_probing: false,
        };
        let mut world = World {
            plan,
            judge,
            moods: vec![WELL; count],
            checks: Checks::Honest,
            checked: 0,
            cold_per_s: None,
            events: Vec::new(),
            seconds: Vec::new(),
            workers: (0..workers).map(|_| worker()).collect(),
            queue: BinaryHeap::new(),
            order: 0,
            now_us: 0,
            per_s,
            random: Random::seeded(seed),
            warmth: vec![Warmth { takes: u64::MAX, ..Warmth::default() }; count],
        };
        world.push(0, Next::Arrival);
        world.push(JUDGE_MS * 1_000, Next::Look);
        if let Some(health) = &world.plan.health {
            let between_us = health.interval_ms * 1_000 / count as u64;
            (0..count).for_each(|it| world.push(between_us * it as u64, Next::Check(it)));
        }
        world
    }

    /// The time.
    pub fn now_s(&self) -> u64 {
        self.now_us / 1_000_000
    }

    /// Lets so many seconds pass.
    pub fn run(&mut self, seconds: u64) {
        let end_us = self.now_us + seconds * 1_000_000;
        while let Some(Reverse((at_us, _, next))) = self.queue.pop() {
            if at_us > end_us {
                self.push(at_us, next);
                break;
            }
            self.now_us = at_us;
            match next {
                Next::Arrival => {
                    self.arrive();
                    let pause_us = self.exponential_us();
                    self.push(at_us + pause_us, Next::Arrival);
                }
                Next::Look => {
                    self.look();
                    self.push(at_us + JUDGE_MS * 1_000, Next::Look);
                }
                Next::Done(tried) => self.done(tried),
                Next::Check(endpoint) => self.check(endpoint),
            }
        }
        self.now_us = end_us;
    }

    /// What users saw in these seconds.
    pub fn seen(&self, from_s: u64, to_s: u64) -> Second {
        let mut sum = Second::default();
        let seconds = self.seconds.iter().skip(from_s as usize);
        for second in seconds.take((to_s - from_s) as usize) {
            sum.well += second.well;
            sum.well_us += second.well_us;
            sum.failed += second.failed;
            sum.refused += second.refused;
            sum.arrived.iter_mut().zip(second.arrived).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    fn push(&mut self, at_us: u64, next: Next) {
        self.order += 1;
        self.queue.push(Reverse((at_us, self.order, next)));
    }

    /// A pause between two arrivals of a Poisson process.
    fn exponential_us(&self) -> u64 {
        let share = (self.random.below(1 << 32) + 1) as f64 / (1u64 << 32) as f64;
        (-share.ln() * 1_000_000.0 / self.per_s as f64) as u64
    }

    fn second(&mut self) -> &mut Second {
        let second = (self.now_us / 1_000_000) as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, Second::default());
        }
        &mut self.seconds[second]
    }

    fn arrive(&mut self) {
        let worker = self.random.below(self.workers.len() as u64) as usize;
        let service = self.workers[worker].service;
        let service_probe = service.probing;
        let chance = self.random.below(1_000) < u64::from(service.share_permille);
        if !(chance || service_probe && !self.workers[worker].service_probing) {
            self.second().refused += 1;
            return;
        }
        let endpoint = self.pick(worker);
        let state = &mut self.workers[worker];
        state.service_probing |= service_probe;
        state.probing[endpoint] |= state.standings[endpoint].probing;
        let (well, took_us) = self.outcome(endpoint);
        self.second().arrived[endpoint] += 1;
        let tried = Tried { worker, endpoint, well, took_us, service_probe };
        self.push(self.now_us + took_us, Next::Done(tried));
    }

    /// As a worker picks: by weight and share, those that it has isolated left out while others are
    /// there.
    fn pick(&mut self, worker: usize) -> usize {
        let state = &self.workers[worker];
        let weight = |index: usize| -> u64 {
            let standing = state.standings[index];
            let isolated = state.isolated_until_us[index] > self.now_us;
            match standing.probing {
                true if state.probing[index] => 0,
                true => u64::from(WEIGHT_DEFAULT) * 1_000,
                false if isolated => 0,
                false => u64::from(WEIGHT_DEFAULT) * u64::from(standing.share_permille),
            }
        };
        let weights: Vec<u64> = (0..state.standings.len()).map(weight).collect();
        let total: u64 = weights.iter().sum();
        if total == 0 {
            return self.random.below(weights.len() as u64) as usize;
        }
        let mut left = self.random.below(total);
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("less than the sum of the weights")
    }

    fn outcome(&mut self, endpoint: usize) -> (bool, u64) {
        if let Some(cold) = self.cold_per_s {
            let second = self.now_us / 1_000_000;
            let warmth = &mut self.warmth[endpoint];
            if second != warmth.second {
                warmth.takes = match second - warmth.second {
                    11.. => cold,
                    _ => warmth.takes.saturating_add(warmth.takes / 8 + 1),
                };
                (warmth.second, warmth.asked) = (second, 0);
            }
            warmth.asked += 1;
            if warmth.asked > warmth.takes && answers(self.moods[endpoint]) {
                return (false, 50_000);
            }
        }
        // Half as long to half as long again.
        let about = |us: u64| us / 2 + self.random.below(us + 1);
        match self.moods[endpoint] {
            Mood::Refuses => (false, 200),
            Mood::Hangs => (false, TIMEOUT_MS * 1_000),
            Mood::Answers { ms, failing_permille } => {
                let took_us = about(ms * 1_000);
                (self.random.below(1_000) >= failing_permille, took_us)
            }
            Mood::Tails { us, slow_us, slow_permille } => {
                let slow = self.random.below(1_000) < slow_permille;
                (true, about(if slow { slow_us } else { us }))
            }
        }
    }

    /// Checks an endpoint, at once, and again after the interval.
    fn check(&mut self, endpoint: usize) {
        self.checked += 1;
        let passes = match self.checks {
            Checks::Honest => answers(self.moods[endpoint]),
            Checks::Alternating => self.checked.is_multiple_of(2),
            Checks::Blind => true,
        };
        let result = if passes { Ok(()) } else { Err("refused".into()) };
        self.judge.on_check(self.plan.endpoints[endpoint].id, result, self.now_us / 1_000);
        let interval_ms = self.plan.health.as_ref().map(|health| health.interval_ms);
        let interval_us = interval_ms.expect("it is checked") * 1_000;
        self.push(self.now_us + interval_us, Next::Check(endpoint));
    }

    fn done(&mut self, tried: Tried) {
        let Tried { worker, endpoint, well, took_us, service_probe } = tried;
        let workers = self.workers.len();
        let terms = &self.plan.breaker;
        let tally = self.plan.endpoints[endpoint].tallies.of(worker, workers);
        let state = &mut self.workers[worker];
        state.probing[endpoint] = false;
        state.service_probing &= !service_probe;
        if well {
            tally.succeeded.increment();
            if terms.adaptive {
                tally.head_took(took_us);
            }
            state.in_a_row[endpoint] = 0;
            let second = self.second();
            second.well += 1;
            second.well_us += took_us;
            return;
        }
        tally.failed.increment();
        state.in_a_row[endpoint] += 1;
        let enough = terms.endpoint.consecutive;
        if enough > 0 && state.in_a_row[endpoint] == enough {
            state.in_a_row[endpoint] = 0;
            state.isolated_until_us[endpoint] = self.now_us + terms.open_ms * 1_000;
            tally.isolated.increment();
        }
        self.second().failed += 1;
    }

    fn look(&mut self) {
        let now_ms = self.now_us / 1_000;
        self.judge.tick(now_ms);
        let events = self.judge.take_events();
        self.events.extend(events.into_iter().map(|event| (now_ms, event)));
        let Some(standings) = self.judge.take_changed() else { return };
        for worker in &mut self.workers {
            worker.service = standings.upstreams.first().map_or(Standing::WHOLE, |it| it.1);
            worker.standings.fill(Standing::WHOLE);
            for (id, standing) in &standings.endpoints {
                let at = self.plan.endpoints.iter().position(|it| it.id == *id);
                worker.standings[at.expect("an endpoint of the plan")] = *standing;
            }
        }
    }
}

/// Whether requests are answered as a rule.
fn answers(mood: Mood) -> bool {
    matches!(mood, Mood::Answers { .. } | Mood::Tails { .. })
}
