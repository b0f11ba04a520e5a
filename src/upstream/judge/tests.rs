//! The judge over virtual time: what workers would count goes in, look by look.

use proptest::prelude::*;

use super::*;
use crate::limits::*;
use crate::upstream::plan::{BreakerPlan, Check, EndpointBreaker, HealthPlan};
use crate::upstream::standing::Standing;
use crate::upstream::testing::plan_in_zones;

/// An upstream with these zones, one endpoint each; an empty one is none.
fn plan(zones: &[&str], breaker: BreakerPlan) -> UpstreamPlan {
    UpstreamPlan { breaker, ..plan_in_zones(zones) }
}

fn usual() -> BreakerPlan {
    BreakerPlan { endpoint: EndpointBreaker::USUAL, ..BreakerPlan::off() }
}

fn checked() -> Option<HealthPlan> {
    Some(HealthPlan { check: Check::Tcp, interval_ms: 1, timeout_ms: 1, rise: 2, fall: 3 })
}

struct Bench {
    plan: Arc<UpstreamPlan>,
    judge: Judge,
    now_ms: u64,
    standings: Standings,
    events: Vec<(u64, Event)>,
}

impl Bench {
    fn new(plan: UpstreamPlan) -> Bench {
        let plan = Arc::new(plan);
        let mut judge = Judge::default();
        judge.follow(std::slice::from_ref(&plan), 0);
        Bench { plan, judge, now_ms: 0, standings: Standings::default(), events: Vec::new() }
    }

    fn of(&self, endpoint: usize) -> Standing {
        let id = EndpointId(endpoint as u32);
        let found = self.standings.endpoints.iter().find(|it| it.0 == id);
        found.map_or(Standing::WHOLE, |it| it.1)
    }

    fn service(&self) -> Standing {
        self.standings.upstreams.first().map_or(Standing::WHOLE, |it| it.1)
    }

    /// Lets so much time pass, in which `requests` of each look at each endpoint that is in end as
    /// `percent` says: so many in a hundred fail. One that is probed gets one request.
    fn run(&mut self, ms: u64, requests: u64, percent: impl Fn(usize) -> u64) {
        for _ in 0..ms / JUDGE_MS {
            for index in 0..self.plan.endpoints.len() {
                let service = self.service();
                let standing = self.of(index);
                let share = |it: Standing| u64::from(it.share_permille);
                let mut count = requests * share(standing) * share(service) / 1_000_000;
                let asked = standing != Standing::OUT && service != Standing::OUT;
                if count == 0 && asked && requests > 0 {
                    count = 1;
                }
                let failed = (count * percent(index)).div_ceil(100);
                let tally = self.plan.endpoints[index].tallies.of(0, 1);
                tally.failed.add(failed);
                tally.succeeded.add(count - failed);
            }
            self.look();
        }
    }

    fn look(&mut self) {
        self.now_ms += JUDGE_MS;
        self.judge.tick(self.now_ms);
        if let Some(standings) = self.judge.take_changed() {
            self.standings = standings;
        }
        let events = self.judge.take_events();
        self.events.extend(events.into_iter().map(|event| (self.now_ms, event)));
    }

    fn check(&mut self, endpoint: u32, passed: bool) {
        let result = if passed { Ok(()) } else { Err("refused".into()) };
        self.judge.on_check(EndpointId(endpoint), result, self.now_ms);
        self.look();
    }

    /// The states that a breaker entered, with the times.
    fn states(&self, tier: Tier, subject: &str) -> Vec<(u64, State)> {
        let events = self.events.iter().filter(|(_, event)| &*event.subject == subject);
        let states = events.filter_map(|(at_ms, event)| match event.what {
            What::Breaker(of, _, to) if of == tier => Some((*at_ms, to)),
            _ => None,
        });
        states.collect()
    }
}

#[test]
fn a_failing_endpoint_opens_probes_trickles_and_closes() {
    let mut bench = Bench::new(plan(&[""; 5], usual()));
    bench.run(1_000, 10, |_| 0);
    assert_eq!(bench.standings, Standings::default());
    bench.run(3_000, 10, |it| if it == 2 { 100 } else { 0 });
    let opened = bench.states(Tier::Endpoint, "unix:/2");
    assert_eq!(opened.len(), 1, "{opened:?}");
    assert!(opened[0].0 <= 1_600, "30 % of a window of a second and a half: {opened:?}");
    assert_eq!((bench.of(2), bench.of(1)), (Standing::OUT, Standing::WHOLE));
    bench.run(30_000, 10, |_| 0);
    let states = bench.states(Tier::Endpoint, "unix:/2");
    let names: Vec<_> = states.iter().map(|it| it.1).collect();
    assert_eq!(names, [State::Open, State::Probing, State::Trickle, State::Closed]);
    assert_eq!(states[1].0 - states[0].0, BREAKER_OPEN_MS);
    assert_eq!(states[3].0 - states[2].0, BREAKER_TRICKLE_MS);
    assert_eq!(bench.standings, Standings::default());
}

#[test]
fn fewer_requests_than_the_least_say_nothing() {
    let mut bench = Bench::new(plan(&[""; 2], usual()));
    for _ in 0..30 {
        bench.run(100, 1, |_| 100);
        bench.run(900, 0, |_| 0);
    }
    assert_eq!(bench.events, [], "ten in a window");
}

#[test]
fn failures_in_a_row_on_a_worker_isolate_at_once() {
    let mut bench = Bench::new(plan(&[""; 5], usual()));
    bench.plan.endpoints[3].tallies.of(0, 1).isolated.increment();
    bench.look();
    assert_eq!(bench.of(3), Standing::OUT);
    assert!(bench.events[0].1.to_string().contains("5 failures in a row"), "{:?}", bench.events);
    let off = EndpointBreaker { consecutive: 0, ..EndpointBreaker::USUAL };
    let mut bench = Bench::new(plan(&[""; 5], BreakerPlan { endpoint: off, ..usual() }));
    bench.plan.endpoints[3].tallies.of(0, 1).isolated.increment();
    bench.look();
    assert_eq!(bench.of(3), Standing::WHOLE);
}

#[test]
fn what_fails_again_stays_open_longer_up_to_a_bound() {
    let mut bench = Bench::new(plan(&[""; 5], usual()));
    bench.run(600_000, 10, |it| if it == 0 { 100 } else { 0 });
    let states = bench.states(Tier::Endpoint, "unix:/0");
    let open = states.windows(2).filter(|it| it[0].1 == State::Open);
    let lengths: Vec<_> = open.map(|it| it[1].0 - it[0].0).collect();
    assert_eq!(lengths[..6], [10_000, 20_000, 40_000, 80_000, 100_000, 100_000]);
}

#[test]
fn one_of_five_that_fails_does_not_stop_its_service() {
    let breaker = BreakerPlan { service_error_percent: 10, ..usual() };
    for requests in [1, 50] {
        let mut bench = Bench::new(plan(&[""; 5], breaker.clone()));
        bench.run(120_000, requests, |it| if it == 2 { 100 } else { 0 });
        assert_eq!(bench.states(Tier::Service, ""), [], "{requests} a look");
        assert!(!bench.states(Tier::Endpoint, "unix:/2").is_empty());
    }
}

#[test]
fn a_failing_service_is_probed_at_once_then_opens() {
    let breaker = BreakerPlan { service_error_percent: 10, ..usual() };
    let mut bench = Bench::new(plan(&[""; 5], breaker));
    bench.run(5_000, 10, |_| 20);
    let states = bench.states(Tier::Service, "");
    assert_eq!((states[0].1, states[1].1), (State::Probing, State::Open), "{states:?}");
    assert!(states[1].0 - states[0].0 <= 2 * BREAKER_SETTLE_MS, "{states:?}");
    assert_eq!(bench.service(), Standing::OUT);
    bench.run(9_000, 10, |_| 0);
    let open = bench.states(Tier::Service, "");
    assert_eq!(open[2].0 - open[1].0, BREAKER_OPEN_MS, "{open:?}");
    bench.run(20_000, 10, |_| 0);
    let names: Vec<_> = bench.states(Tier::Service, "").iter().map(|it| it.1).collect();
    assert_eq!(names[2..], [State::Probing, State::Trickle, State::Closed]);
    assert_eq!(bench.standings, Standings::default());
}

#[test]
fn a_dead_zone_loses_its_requests_and_gets_them_back_slowly() {
    let breaker = BreakerPlan { zone_error_percent: 50, ..usual() };
    let zones = ["a", "a", "a", "b", "b"];
    let mut slow = plan(&zones, breaker);
    slow.slow_start_ms = 30_000;
    let mut bench = Bench::new(slow);
    bench.run(60_000, 20, |it| if it < 3 { 100 } else { 0 });
    let zone = bench.states(Tier::Zone, "a");
    assert!(zone[0].1 == State::Open && zone[0].0 <= 2_000, "{zone:?}");
    // Three of five are below the floor, which a zone that others stand in for does not touch.
    assert!((0..3).all(|it| bench.of(it).share_permille == 0), "{:?}", bench.standings);
    assert!((3..5).all(|it| bench.of(it) == Standing::WHOLE), "{:?}", bench.standings);
    let mut shares = Vec::new();
    for _ in 0..2_000 {
        bench.run(100, 20, |_| 0);
        shares.push(bench.of(0).share_permille);
    }
    assert_eq!(bench.standings, Standings::default());
    let in_trickle = shares.iter().filter(|share| **share == 50).count();
    assert!(in_trickle >= 100, "ten seconds of a trickle: {in_trickle} looks");
    let first = shares.iter().position(|share| *share > 50).expect("it comes back");
    let whole = shares.iter().position(|share| *share == WHOLE).expect("as a whole");
    assert_eq!(shares[first], SLOW_START_FIRST_PERMILLE);
    assert!((whole - first) as u64 * JUDGE_MS >= 29_000, "over half a minute");
    assert!(shares[first..].is_sorted(), "ever more");
}

#[test]
fn a_zone_stays_in_where_nobody_could_take_over() {
    let breaker = BreakerPlan { zone_error_percent: 50, ..usual() };
    let mut bench = Bench::new(plan(&["a", "a", "b", "b"], breaker));
    bench.run(120_000, 20, |_| 100);
    assert!((0..4).all(|it| bench.of(it) == Standing::WHOLE), "{:?}", bench.standings);
    let floors = bench.events.iter().filter(|it| matches!(it.1.what, What::Floor(true))).count();
    assert_eq!(floors, 1, "{:?}", bench.events);
}

#[test]
fn below_the_floor_all_are_whole_again() {
    let mut bench = Bench::new(plan(&[""; 5], usual()));
    bench.run(60_000, 10, |it| if it < 2 { 100 } else { 0 });
    assert_eq!(bench.of(0).share_permille, 0, "three of five are left");
    bench.run(60_000, 10, |it| if it < 3 { 100 } else { 0 });
    assert!((0..5).all(|it| bench.of(it) == Standing::WHOLE), "{:?}", bench.standings);
    assert!(bench.events.iter().any(|it| it.1.what == What::Floor(true)));
    bench.run(200_000, 10, |_| 0);
    assert!(bench.events.iter().any(|it| it.1.what == What::Floor(false)));
    assert_eq!(bench.standings, Standings::default());

    let mut bench = Bench::new(plan(&[""; 5], BreakerPlan { floor_percent: 0, ..usual() }));
    bench.run(30_000, 10, |_| 100);
    assert!((0..5).all(|it| bench.of(it).share_permille == 0), "no floor: {:?}", bench.standings);
}

#[test]
fn checks_count_up_and_down_and_the_first_decides() {
    let mut bench = Bench::new(UpstreamPlan {
        health: checked(),
        slow_start_ms: 10_000,
        ..plan(&[""; 3], BreakerPlan::off())
    });
    let whole = |bench: &Bench| bench.of(1) == Standing::WHOLE;
    bench.check(1, true);
    assert!(whole(&bench) && bench.events.is_empty(), "it was in before it was checked");
    for passed in [false, false, true, false, false] {
        bench.check(1, passed);
        assert!(whole(&bench), "not three in a row");
    }
    bench.check(1, false);
    assert_eq!(bench.of(1), Standing::OUT);
    bench.check(1, true);
    bench.check(1, false);
    bench.check(1, true);
    assert_eq!(bench.of(1), Standing::OUT, "not two in a row");
    bench.check(1, true);
    assert_eq!(bench.of(1), Standing::part(SLOW_START_FIRST_PERMILLE), "a slow start");
    bench.run(5_000, 0, |_| 0);
    assert!((500..600).contains(&bench.of(1).share_permille), "{:?}", bench.of(1));
    bench.run(5_000, 0, |_| 0);
    assert!(whole(&bench));
    bench.check(2, false);
    assert_eq!(bench.of(2), Standing::OUT, "the first check of all");
    let said: Vec<_> = bench.events.iter().map(|it| it.1.to_string()).collect();
    assert_eq!(said[0], "upstream app: endpoint unix:/1 is down: refused");
}

#[test]
fn a_single_endpoint_is_never_isolated_by_checks_either() {
    let mut bench =
        Bench::new(UpstreamPlan { health: checked(), ..plan(&[""], BreakerPlan::off()) });
    bench.check(0, false);
    assert_eq!(bench.of(0), Standing::WHOLE);
    let view = bench.judge.view(bench.now_ms);
    assert!(view[0].floor && view[0].endpoints[0].up == Some(false), "{view:?}");
}

/// A plan with a tier of each kind on, whose endpoints are checked, two in a row to be up again.
fn checked_tiers(endpoint: EndpointBreaker, zones: &[&str]) -> UpstreamPlan {
    let breaker = BreakerPlan {
        endpoint,
        service_error_percent: 10,
        zone_error_percent: 50,
        ..BreakerPlan::off()
    };
    UpstreamPlan { health: checked(), ..plan(zones, breaker) }
}

/// However long a breaker of any tier is open: checks that failed and pass again bring the next
/// probe at the next look.
#[test]
fn checks_that_pass_again_make_a_probe_due() {
    let alone = EndpointBreaker::OFF;
    for (tier, subject, endpoint, zones, bad) in [
        (Tier::Endpoint, "unix:/1", EndpointBreaker::USUAL, &["", "", "", "", ""][..], 1..2),
        (Tier::Service, "", alone, &["", "", "", "", ""][..], 0..5),
        (Tier::Zone, "a", alone, &["a", "a", "b", "b", "b"][..], 0..2),
    ] {
        let mut bench = Bench::new(checked_tiers(endpoint, zones));
        bench.plan = Arc::new(UpstreamPlan {
            breaker: BreakerPlan {
                service_error_percent: if tier == Tier::Service { 10 } else { 0 },
                ..bench.plan.breaker.clone()
            },
            ..(*bench.plan).clone()
        });
        bench.judge.follow(std::slice::from_ref(&bench.plan), 0);
        (0..5).for_each(|it| bench.check(it, true));
        let failing = bad.clone();
        bench.run(120_000, 10, |it| if failing.contains(&it) { 100 } else { 0 });
        let state = |bench: &Bench| bench.states(tier, subject).last().map(|it| it.1);
        // It has just opened again, for longer than the rest of this test.
        while state(&bench) != Some(State::Open) {
            bench.run(JUDGE_MS, 10, |it| if failing.contains(&it) { 100 } else { 0 });
        }
        bad.clone().for_each(|it| bench.check(it as u32, false));
        bad.clone().for_each(|it| bench.check(it as u32, true));
        assert_eq!(state(&bench), Some(State::Open), "{tier:?}: once is not twice");
        let mut last = bad.clone();
        bench.check(last.next().expect("one at least") as u32, true);
        assert_eq!(state(&bench), Some(State::Probing), "{tier:?}: {:?}", bench.events.last());
        let said = bench.events.last().expect("an event").1.to_string();
        assert!(said.ends_with("; checks pass again"), "{said}");
        bench.run(30_000, 10, |_| 0);
        assert_eq!(bench.standings, Standings::default(), "{tier:?}");
    }
}

/// Checks that never failed have not seen the outage, and so not its end either; where too little of
/// an upstream is up, probes would find what is down.
#[test]
fn checks_that_saw_nothing_end_nothing() {
    let mut bench = Bench::new(checked_tiers(EndpointBreaker::OFF, &[""; 5]));
    bench.plan = Arc::new(UpstreamPlan {
        breaker: BreakerPlan { zone_error_percent: 0, ..bench.plan.breaker.clone() },
        ..(*bench.plan).clone()
    });
    bench.judge.follow(std::slice::from_ref(&bench.plan), 0);
    (0..5).for_each(|it| bench.check(it, true));
    bench.run(60_000, 10, |_| 100);
    while bench.states(Tier::Service, "").last().map(|it| it.1) != Some(State::Open) {
        bench.run(JUDGE_MS, 10, |_| 100);
    }
    let before = bench.states(Tier::Service, "").len();
    for _ in 0..3 {
        (0..5).for_each(|it| bench.check(it, true));
    }
    assert_eq!(bench.states(Tier::Service, "").len(), before, "they always passed");
    for _ in 0..3 {
        (0..5).for_each(|it| bench.check(it, false));
    }
    for _ in 0..2 {
        (0..2).for_each(|it| bench.check(it, true));
    }
    assert_eq!(bench.states(Tier::Service, "").len(), before, "two of five are up");
    (0..2).for_each(|_| bench.check(2, true));
    let last = bench.states(Tier::Service, "").last().map(|it| it.1);
    assert_eq!(last, Some(State::Probing), "three are above the floor");
}

/// What checks promise in vain is believed later, each time.
#[test]
fn checks_that_lie_are_believed_less_and_less() {
    let mut bench = Bench::new(checked_tiers(EndpointBreaker::OFF, &[""]));
    let rise = HealthPlan { rise: 1, fall: 1_000, ..checked().expect("some") };
    let breaker = BreakerPlan { zone_error_percent: 0, ..bench.plan.breaker.clone() };
    let made = UpstreamPlan { health: Some(rise), breaker, ..(*bench.plan).clone() };
    bench = Bench::new(made);
    for step in 0..6_000 {
        bench.judge.on_check(EndpointId(0), Err("refused".into()), bench.now_ms);
        let passed = if step % 2 == 0 { Ok(()) } else { Err("refused".into()) };
        bench.judge.on_check(EndpointId(0), passed, bench.now_ms);
        bench.run(JUDGE_MS, 10, |_| 100);
    }
    let mut probed = bench.states(Tier::Service, "");
    probed.retain(|it| it.1 == State::Probing);
    let pauses: Vec<_> = probed.windows(2).map(|it| (it[1].0 - it[0].0) / 1_000).collect();
    assert!(pauses[..6].is_sorted() && pauses[5] >= 80, "{pauses:?}");
    assert!(pauses.iter().skip(5).all(|pause| (80..=102).contains(pause)), "{pauses:?}");
}

/// `open_max` bounds the doubling.
#[test]
fn nothing_is_open_for_longer_than_the_most() {
    for (open_max_ms, wanted) in [(30_000, [10, 20, 30, 30]), (10_000, [10, 10, 10, 10])] {
        let mut bench = Bench::new(plan(&[""; 5], BreakerPlan { open_max_ms, ..usual() }));
        bench.run(200_000, 10, |it| if it == 0 { 100 } else { 0 });
        let states = bench.states(Tier::Endpoint, "unix:/0");
        let open = states.windows(2).filter(|it| it[0].1 == State::Open);
        let lengths: Vec<_> = open.map(|it| (it[1].0 - it[0].0) / 1_000).collect();
        assert_eq!(lengths[..4], wanted);
    }
}

/// More counters than one look may read: endpoints take turns, and nothing is lost or late for long.
#[test]
fn endpoints_take_turns_where_they_are_too_many_for_a_look() {
    let workers = JUDGE_TALLIES_MAX.div_ceil(1_000) + 1;
    let made = plan(&[""; 2_000], BreakerPlan { service_error_percent: 100, ..usual() });
    let mut bench = Bench::new(made);
    let count = |bench: &Bench, failed| {
        for endpoint in &bench.plan.endpoints {
            endpoint.tallies.of(workers - 1, workers).succeeded.add(30);
            endpoint.tallies.of(0, workers).failed.add(failed);
        }
    };
    count(&bench, 0);
    bench.look();
    count(&bench, 0);
    for endpoint in [7, 8, 9] {
        bench.plan.endpoints[endpoint].tallies.of(3, workers).failed.add(100);
    }
    let opened: Vec<_> = (0..3)
        .map(|_| {
            bench.look();
            bench.standings.endpoints.len()
        })
        .collect();
    assert!(opened[0] < 3 && opened[2] == 3, "{opened:?}");
    let group = &bench.judge.groups[0];
    let seen: u64 = group.members.iter().map(|it| it.window.sum().succeeded).sum();
    assert_eq!(seen, 2_000 * 60 - 3 * 60, "but for those whose windows began anew");
}

#[test]
fn a_reload_keeps_what_is_known_of_what_stays() {
    let mut bench = Bench::new(plan(&[""; 5], usual()));
    bench.run(3_000, 10, |it| if it == 2 { 100 } else { 0 });
    let mut next = (*bench.plan).clone();
    next.endpoints.remove(0);
    bench.plan = Arc::new(next);
    bench.judge.follow(std::slice::from_ref(&bench.plan), bench.now_ms);
    assert!(bench.judge.take_changed().is_some(), "it is told again");
    bench.look();
    assert_eq!(bench.of(2), Standing::OUT);
    let off = UpstreamPlan { breaker: BreakerPlan::off(), ..(*bench.plan).clone() };
    bench.judge.follow(&[Arc::new(off)], bench.now_ms);
    assert_eq!(bench.judge.take_changed(), Some(Standings::default()));
    assert!(bench.judge.is_idle());
}

/// Thresholds are approached from below and from above: whatever the error rate is, a breaker changes
/// its state a few times an hour, and not with every window.
#[test]
fn no_error_rate_makes_a_breaker_flap() {
    let breaker = BreakerPlan { service_error_percent: 10, zone_error_percent: 50, ..usual() };
    for percent in [5, 9, 10, 12, 20, 29, 30, 31, 40, 50, 60, 90, 100] {
        for bad in [1, 2, 5] {
            let mut bench = Bench::new(plan(&["a", "a", "a", "b", "b"], breaker.clone()));
            bench.run(3_600_000, 7, |it| if it < bad { percent } else { 0 });
            let mut each = HashMap::new();
            for (_, event) in &bench.events {
                *each.entry((event.subject.clone(), event.words().0)).or_insert(0) += 1;
            }
            let most = each.iter().max_by_key(|it| it.1);
            assert!(
                most.is_none_or(|it| *it.1 <= TRANSITIONS_AN_HOUR),
                "{percent} % of {bad}: {most:?}"
            );
        }
    }
}

/// Four for each time that it opens, of which the first few are short and the rest 100 s.
const TRANSITIONS_AN_HOUR: u32 = 180;

const WHOLE: u16 = crate::upstream::standing::WHOLE_PERMILLE;

/// One with a configuration that takes force in a slow start, the endpoint tier being off: it goes on.
#[test]
fn a_slow_start_goes_on_over_a_new_snapshot() {
    let mut bench = Bench::new(UpstreamPlan {
        health: checked(),
        slow_start_ms: 10_000,
        ..plan(&[""; 3], BreakerPlan::off())
    });
    bench.check(1, false);
    (0..2).for_each(|_| bench.check(1, true));
    bench.run(4_000, 0, |_| 0);
    let before = bench.of(1).share_permille;
    assert!((400..500).contains(&before), "{before}");
    let mut next = (*bench.plan).clone();
    next.endpoints.remove(0);
    bench.plan = Arc::new(next);
    bench.judge.follow(std::slice::from_ref(&bench.plan), bench.now_ms);
    bench.look();
    let after = bench.of(1).share_permille;
    assert!((before..before + 60).contains(&after), "{before} and then {after}");
    bench.run(6_000, 0, |_| 0);
    assert_eq!(bench.of(1), Standing::WHOLE);
}

/// A zone whose endpoints all have a weight of 0 is being drained: nobody is to leave it, and its
/// return is no recovery.
#[test]
fn a_zone_without_weight_is_no_dead_one() {
    let breaker = BreakerPlan { zone_error_percent: 50, ..usual() };
    let mut drained = plan(&["a", "a", "b", "b"], breaker);
    drained.endpoints[..2].iter_mut().for_each(|it| it.weight = 0);
    let mut bench = Bench::new(drained);
    bench.run(30_000, 10, |_| 0);
    assert_eq!((&bench.events[..], &bench.standings), (&[][..], &Standings::default()));
    let mut back = (*bench.plan).clone();
    back.endpoints[..2].iter_mut().for_each(|it| it.weight = 100);
    bench.plan = Arc::new(back);
    bench.judge.follow(std::slice::from_ref(&bench.plan), bench.now_ms);
    bench.run(1_000, 10, |_| 0);
    assert_eq!(bench.standings, Standings::default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever fails: of the weight in zones that are in, no less than the floor takes requests;
    /// and when nothing fails any more, everything is whole again within a bound.
    #[test]
    fn never_more_out_than_the_floor_allows_and_all_comes_back(
        floor in 0u64..=100,
        phases in proptest::collection::vec((1_000u64..20_000, proptest::collection::vec(0u64..=100, 6)), 1..8),
        zone_tier: bool,
        service_tier: bool,
        checks in proptest::collection::vec((0u32..6, any::<bool>()), 0..20),
    ) {
        let breaker = BreakerPlan {
            floor_percent: floor,
            zone_error_percent: if zone_tier { 50 } else { 0 },
            service_error_percent: if service_tier { 10 } else { 0 },
            ..usual()
        };
        let zones = ["a", "a", "b", "b", "c", "c"];
        let made = UpstreamPlan { health: checked(), slow_start_ms: 5_000, ..plan(&zones, breaker) };
        let mut bench = Bench::new(made);
        let mut checks = checks.into_iter();
        for (ms, percent) in phases {
            for (endpoint, passed) in checks.by_ref().take(3) {
                bench.check(endpoint, passed);
            }
            for _ in 0..ms / JUDGE_MS {
                bench.run(JUDGE_MS, 5, |it| percent[it]);
                let view = &bench.judge.view(bench.now_ms)[0];
                let out = |it: usize| bench.of(it).share_permille == 0;
                let left = |zone: &str| view.zones.iter()
                    .any(|(name, it)| **name == *zone && [1, 2].contains(&it.state));
                let among: Vec<usize> = (0..6).filter(|it| !left(zones[*it])).collect();
                if floor > 0 {
                    let inside = among.iter().filter(|it| !out(**it)).count();
                    prop_assert!(inside * 100 >= floor as usize * among.len(), "{view:?}");
                    prop_assert!((0..6).any(|it| !out(it)), "{view:?}");
                }
            }
        }
        for endpoint in 0..6 {
            bench.check(endpoint, true);
            bench.check(endpoint, true);
        }
        // Open for 100 s, and then at worst the zone, and then the service.
        bench.run(400_000, 5, |_| 0);
        prop_assert_eq!(&bench.standings, &Standings::default());
    }
}
