//! Which endpoint of an upstream a request goes to.

use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::context::Source;
use crate::error::ErrorKind;
use crate::observe::WorkerCounters;
use crate::upstream::balance::{HashTable, Seat};
use crate::upstream::plan::HashPlan;
use crate::upstream::testing::plan_in_zones;
use crate::upstream::trial::Probe;
use crate::upstream::{EndpointPlan, Outcome, Policy, Standing, Upstream};

/// Endpoints of weight 100, each in the zone that stands at its place.
fn plan(zones: &[&str], change: impl FnOnce(&mut BalancePlan)) -> UpstreamPlan {
    let mut plan = plan_in_zones(zones);
    change(Arc::make_mut(&mut plan.balance));
    plan.breaker.endpoint.consecutive = 3;
    plan
}

/// An upstream on one of so many workers, and its endpoints.
fn start(plan: &UpstreamPlan, worker: (usize, usize)) -> (Rc<Upstream>, Vec<Rc<Endpoint>>) {
    let counters = Arc::new(WorkerCounters::default());
    let endpoint = |plan: &EndpointPlan| Endpoint::new(plan.clone(), counters.clone());
    let endpoints: Vec<_> = plan.endpoints.iter().map(endpoint).collect();
    let upstream = Upstream::new(plan);
    upstream.apply(plan, endpoints.clone(), worker);
    (upstream, endpoints)
}

/// How many of so many requests each endpoint gets.
fn counts(upstream: &Upstream, count: usize, requests: usize, wish: &Wish<'_>) -> Vec<usize> {
    let mut counts = vec![0; count];
    for _ in 0..requests {
        counts[upstream.pick(wish).expect("one is usable").id.0 as usize] += 1;
    }
    counts
}

#[test]
fn standings_change_shares() {
    let plan = plan(&["", "", ""], |_| {});
    let (upstream, endpoints) = start(&plan, (0, 1));
    let any = Wish::default();
    for (standing, wanted) in [
        (Standing::OUT, [100, 0, 100]),
        (Standing::part(50), [98, 5, 98]),
        (Standing::part(500), [80, 40, 80]),
        (Standing::WHOLE, [67, 67, 67]),
    ] {
        endpoints[1].set_standing(standing);
        upstream.refresh();
        let counts = counts(&upstream, 3, 200, &any);
        let near = counts.iter().zip(wanted).all(|(got, wanted)| got.abs_diff(wanted) <= 2);
        assert!(near, "{standing:?}: {counts:?}");
    }
    // Whether enough is left was for the judge to say.
    endpoints[0].set_standing(Standing::OUT);
    endpoints[1].set_standing(Standing::OUT);
    upstream.refresh();
    assert_eq!(counts(&upstream, 3, 30, &any), [0, 0, 30]);
    // What this worker has isolated is in where nobody else is.
    let tally = plan.endpoints[2].tallies.of(0, 1);
    endpoints[0].set_standing(Standing::WHOLE);
    endpoints[1].set_standing(Standing::WHOLE);
    (0..3).for_each(|_| upstream.finish(&endpoints[2], Outcome::Failed, tally, 0));
    assert_eq!(counts(&upstream, 3, 30, &any), [15, 15, 0]);
    endpoints[0].set_standing(Standing::OUT);
    endpoints[1].set_standing(Standing::OUT);
    upstream.refresh();
    assert_eq!(counts(&upstream, 3, 30, &any), [0, 0, 30]);
}

#[test]
fn one_request_at_a_time_probes_an_endpoint() {
    for policy in [Policy::RoundRobin, Policy::LeastRequest, Policy::Ewma, Policy::Random] {
        let plan = plan(&["", "", ""], |balance| balance.policy = policy);
        let (upstream, endpoints) = start(&plan, (0, 1));
        // What began before is no probe.
        let _before = endpoints[1].begin();
        endpoints[1].set_standing(Standing::PROBING);
        upstream.refresh();
        let any = Wish::default();
        let first = (0..1_000).find(|_| upstream.pick(&any).is_ok_and(|it| it.id.0 == 1));
        assert!(first.is_some(), "{policy:?}");
        let probe = Probe::of(&endpoints[1]).expect("it is asked for");
        assert_eq!(counts(&upstream, 3, 300, &any)[1], 0, "{policy:?}");
        probe.settle();
        assert!((0..1_000).any(|_| upstream.pick(&any).is_ok_and(|it| it.id.0 == 1)));
    }
}

#[test]
fn failures_in_a_row_isolate_at_once_and_for_a_time() {
    let plan = plan(&["", "", ""], |_| {});
    let open_ms = plan.breaker.open_ms;
    let (upstream, endpoints) = start(&plan, (0, 1));
    let tally = |index: usize| plan.endpoints[index].tallies.of(0, 1);
    let fail = |index: usize, now_ms| {
        upstream.finish(&endpoints[index], Outcome::Failed, tally(index), now_ms);
    };
    let any = Wish::default();
    fail(1, 0);
    fail(1, 0);
    upstream.finish(&endpoints[1], Outcome::Succeeded(Some(7)), tally(1), 0);
    fail(1, 0);
    upstream.finish(&endpoints[1], Outcome::Neither, tally(1), 0);
    fail(1, 0);
    assert_eq!(counts(&upstream, 3, 30, &any), [10, 10, 10], "two in a row");
    fail(1, 5);
    assert_eq!(counts(&upstream, 3, 30, &any)[1], 0);
    let totals = plan.endpoints[1].tallies.totals();
    assert_eq!((totals.succeeded, totals.failed, totals.isolated), (1, 5, 1));
    assert_eq!(plan.endpoints[1].tallies.heads().count(), 0, "nobody asks how long they took");
    (0..5).for_each(|_| fail(0, 6));
    assert_eq!(counts(&upstream, 3, 30, &any), [15, 0, 15], "a third alone is below the floor");
    upstream.sweep(4 + open_ms);
    assert_eq!(counts(&upstream, 3, 30, &any)[1], 0);
    upstream.sweep(5 + open_ms);
    assert_eq!(counts(&upstream, 3, 30, &any)[1], 10);
    // The next failure is one too many again, until the judge says something.
    fail(1, 20_000);
    assert_eq!(counts(&upstream, 3, 30, &any)[1], 0);
    endpoints[1].set_standing(Standing::WHOLE);
    upstream.refresh();
    assert_eq!(counts(&upstream, 3, 30, &any)[1], 0, "that is what it says of everybody");
    endpoints[1].set_standing(Standing::part(500));
    upstream.refresh();
    assert!(counts(&upstream, 3, 30, &any)[1] > 0);
}

/// The floor is that of the zones that take requests (docs/health.md): what is in a zone that is left
/// neither keeps a dead endpoint in, nor stands in for the last one of the zone that lives.
#[test]
fn a_zone_that_is_left_counts_for_no_floor() {
    let mut plan = plan(&["a", "a", "a", "b", "b"], |_| {});
    plan.breaker.zone_error_percent = 50;
    let (upstream, endpoints) = start(&plan, (0, 1));
    let fail = |index: usize| {
        let tally = plan.endpoints[index].tallies.of(0, 1);
        (0..3).for_each(|_| upstream.finish(&endpoints[index], Outcome::Failed, tally, 0));
        endpoints[index].is_isolated()
    };
    for zone in [Standing::OUT, Standing::PROBING, Standing::part(50)] {
        endpoints[..3].iter().for_each(|it| assert!(it.set_standing(zone)));
        upstream.refresh();
        assert!(fail(3), "{zone:?}: half of the living zone stays");
        assert!(!fail(4), "{zone:?}: nobody else is there");
        upstream.sweep(plan.breaker.open_ms);
        endpoints[..3].iter().for_each(|it| assert!(it.set_standing(Standing::WHOLE)));
    }
    // Where all come back alike, all count.
    endpoints.iter().for_each(|it| assert!(it.set_standing(Standing::part(100))));
    upstream.refresh();
    assert_eq!([fail(3), fail(4), fail(0)], [true, true, false]);
}

/// RFC 2782: who has a higher priority number takes requests only where those of lower ones do not,
/// or where a request has tried them.
#[test]
fn reserves_stand_in() {
    let mut plan = plan(&["", "", "", ""], |_| {});
    (plan.endpoints[2].priority, plan.endpoints[3].priority) = (1, 2);
    let (upstream, endpoints) = start(&plan, (0, 1));
    let any = Wish::default();
    assert_eq!(counts(&upstream, 4, 30, &any), [15, 15, 0, 0]);
    let tried = [EndpointId(0), EndpointId(1)];
    let other = Wish { avoid: Avoid { tried: &tried, ..any.avoid }, ..any };
    assert_eq!(counts(&upstream, 4, 30, &other), [0, 0, 30, 0]);
    let fail = |index: usize| {
        let tally = plan.endpoints[index].tallies.of(0, 1);
        (0..3).for_each(|_| upstream.finish(&endpoints[index], Outcome::Failed, tally, 0));
    };
    fail(0);
    assert_eq!(counts(&upstream, 4, 30, &any), [0, 30, 0, 0], "half of them is enough");
    fail(1);
    assert_eq!(counts(&upstream, 4, 30, &any), [0, 0, 30, 0]);
    fail(2);
    assert_eq!(counts(&upstream, 4, 30, &any), [0, 0, 0, 30]);
    upstream.sweep(plan.breaker.open_ms);
    assert_eq!(counts(&upstream, 4, 30, &any), [15, 15, 0, 0]);
    // What comes back is not drowned: who stood in goes on beside it.
    endpoints[..2].iter().for_each(|it| assert!(it.set_standing(Standing::part(100))));
    upstream.refresh();
    assert_eq!(counts(&upstream, 4, 120, &any), [10, 10, 100, 0]);
}

/// One incident is one failure in a row, however many requests it fails (docs/health.md).
#[test]
fn what_fails_together_is_one_failure_in_a_row() {
    let plan = plan(&["", "", ""], |_| {});
    let (upstream, endpoints) = start(&plan, (0, 1));
    let tally = plan.endpoints[1].tallies.of(0, 1);
    let incident = |now_ms| {
        for first in [true, false, false, false, false] {
            upstream.finish(&endpoints[1], Outcome::FailedTogether { first }, tally, now_ms);
        }
    };
    let failed = || plan.endpoints[1].tallies.totals().failed;
    incident(0);
    assert_eq!((failed(), endpoints[1].is_isolated()), (1, false));
    incident(plan.breaker.window_ms);
    assert_eq!((failed(), endpoints[1].is_isolated()), (2, false), "long after the first");
    incident(plan.breaker.window_ms + 1);
    assert_eq!((failed(), endpoints[1].is_isolated()), (11, true), "the third in a row");
}

#[test]
fn isolation_outlives_a_reload() {
    let plan = plan(&["", "", ""], |_| {});
    let (upstream, endpoints) = start(&plan, (0, 1));
    let tally = plan.endpoints[0].tallies.of(0, 1);
    (0..3).for_each(|_| upstream.finish(&endpoints[0], Outcome::Failed, tally, 0));
    upstream.apply(&plan, endpoints.clone(), (0, 1));
    assert_eq!(counts(&upstream, 3, 30, &Wish::default())[0], 0);
    upstream.sweep(plan.breaker.open_ms);
    assert_eq!(counts(&upstream, 3, 30, &Wish::default())[0], 10);
}

#[test]
fn a_part_of_an_upstreams_requests_is_admitted() {
    let plan = plan(&["", ""], |_| {});
    let (upstream, _) = start(&plan, (0, 1));
    for (permille, wanted) in [(0, 0), (50, 50), (333, 333), (1_000, 1_000)] {
        upstream.set_standing(Standing::part(permille));
        let admitted = (0..1_000).filter(|_| upstream.pass_breaker().is_ok()).count();
        assert!(admitted.abs_diff(wanted) <= 1, "{permille}: {admitted}");
    }
    let _before = upstream.pass_breaker().expect("whole");
    upstream.set_standing(Standing::PROBING);
    let probe = upstream.pass_breaker().expect("nobody probes");
    assert_eq!(upstream.pass_breaker().err(), Some(ErrorKind::BreakerOpen));
    probe.as_ref().expect("a probe").settle();
    let next = upstream.pass_breaker().expect("the head of its answer came");
    drop(probe);
    assert_eq!(upstream.pass_breaker().err(), Some(ErrorKind::BreakerOpen), "settled once");
    drop(next);
    assert!(upstream.pass_breaker().is_ok());
}

#[test]
fn the_own_zone_comes_first_and_spills_over() {
    let zones = ["a", "a", "b", "b", "", "c"];
    for policy in [Policy::RoundRobin, Policy::Random] {
        let plan = plan(&zones, |balance| {
            balance.locality = Some("a".into());
            balance.policy = policy;
        });
        let (upstream, endpoints) = start(&plan, (0, 1));
        let own = |counts: &[usize]| counts[0] + counts[1];
        let any = Wish::default();
        assert_eq!(own(&counts(&upstream, 6, 200, &any)), 200);
        // At 72 % of its weight it still does alone, at 50 % seven tenths stay.
        for (permille, wanted) in [(440, 10_000), (0, 7_000)] {
            endpoints[0].set_standing(Standing::part(permille));
            upstream.refresh();
            let counts = counts(&upstream, 6, 10_000, &any);
            assert!(own(&counts).abs_diff(wanted) <= 230, "{permille}: {counts:?}");
            let others = (10_000 - wanted) / 4;
            assert!(counts[2..].iter().all(|one| one.abs_diff(others) <= 150), "{counts:?}");
        }
        endpoints[1].set_standing(Standing::OUT);
        upstream.refresh();
        assert_eq!(own(&counts(&upstream, 6, 200, &any)), 0);
        let in_zone = Wish { zone: Some("b"), ..any };
        let there = counts(&upstream, 6, 10, &in_zone);
        assert_eq!(there[2] + there[3], 10, "a route's zone goes before");
    }
    let nobody = plan(&zones, |balance| balance.locality = Some("x".into()));
    let (upstream, _) = start(&nobody, (0, 1));
    assert_eq!(counts(&upstream, 6, 60, &Wish::default()), [10; 6]);
}

#[test]
fn subsets_cover_all_evenly() {
    for (endpoints, workers, subset) in [(20, 4, 8), (20, 4, 2), (7, 3, 3), (5, 8, 2)] {
        let plan = plan(&vec![""; endpoints], |balance| balance.subset = subset);
        let mut users = vec![0; endpoints];
        for worker in 0..workers {
            let (upstream, _) = start(&plan, (worker, workers));
            let counts = counts(&upstream, endpoints, 20 * endpoints, &Wish::default());
            let used: Vec<usize> = (0..endpoints).filter(|index| counts[*index] > 0).collect();
            assert_eq!(used.len(), subset.max(endpoints.div_ceil(workers)));
            used.iter().for_each(|index| users[*index] += 1);
        }
        let (least, most) = (users.iter().min(), users.iter().max());
        let spread = most.zip(least).map(|(most, least)| most - least);
        assert!(spread.is_some_and(|spread| spread <= 1) && least > Some(&0), "{users:?}");
    }
}

#[test]
fn where_nobody_of_the_subset_is_usable_others_are() {
    let plan = plan(&["", "", "", ""], |balance| balance.subset = 1);
    let (upstream, endpoints) = start(&plan, (1, 4));
    assert_eq!(counts(&upstream, 4, 10, &Wish::default()), [0, 10, 0, 0]);
    endpoints[1].set_standing(Standing::OUT);
    upstream.refresh();
    let counts = counts(&upstream, 4, 300, &Wish::default());
    assert_eq!(counts[1], 0);
    assert!(counts.iter().filter(|count| **count > 50).count() == 3, "{counts:?}");
}

/// A request that has failed once is no probe: it goes where nothing is in doubt, as long as there is
/// such an endpoint.
#[test]
fn who_has_failed_once_goes_where_nothing_is_in_doubt() {
    let policies = [Policy::RoundRobin, Policy::LeastRequest, Policy::Ewma, Policy::Random];
    for policy in policies {
        let plan = plan(&["", "", "", "", ""], |balance| balance.policy = policy);
        let (upstream, endpoints) = start(&plan, (0, 1));
        endpoints[1].set_standing(Standing::PROBING);
        endpoints[2].set_standing(Standing::part(50));
        upstream.refresh();
        let tried = [EndpointId(0)];
        let avoid = |unsound| Wish { avoid: Avoid { tried: &tried, unsound }, ..Wish::default() };
        let sound = counts(&upstream, 5, 400, &avoid(true));
        assert_eq!(sound[..3], [0, 0, 0], "{policy:?}");
        assert!(counts(&upstream, 5, 400, &avoid(false))[1] > 0, "{policy:?}: a first try may be");
        let tried = [0, 3, 4].map(EndpointId);
        let avoid = Avoid { tried: &tried, unsound: true };
        let left = upstream.pick(&Wish { avoid, ..Wish::default() });
        assert_eq!(left.map(|it| it.id).err(), Some(ErrorKind::NoEndpoint), "{policy:?}");
    }
}

#[test]
fn an_endpoint_is_named_by_a_route_or_a_cookie() {
    let mut plan = plan(&["a", "a", "b", "b"], |balance| {
        balance.sticky = Some(StickyPlan {
            cookie: Source::Cookie("srv".into()),
            name: "srv".into(),
            ttl_s: None,
        });
    });
    plan.endpoints[3].weight = 0;
    let (upstream, endpoints) = start(&plan, (0, 1));
    let id = |wish: &Wish<'_>| upstream.pick(wish).map(|it| it.id.0);
    let directed = Wish { endpoint: Some(EndpointId(3)), ..Wish::default() };
    assert_eq!(id(&directed), Ok(3), "a weight of 0 keeps only the others away");
    let token = |index: usize| Token(StickyPlan::token("app", &plan.endpoints[index].authority));
    let sticky = Wish { token: Some(token(1)), ..Wish::default() };
    assert!((0..9).all(|_| id(&sticky) == Ok(1)));
    assert!(id(&Wish { zone: Some("b"), ..sticky }).is_ok_and(|id| id == 2), "not in the zone");
    let avoid = Avoid { tried: &[EndpointId(1)], unsound: false };
    assert!(id(&Wish { avoid, ..sticky }).is_ok_and(|id| id != 1));
    let unknown = Wish { token: Some(Token(1)), ..Wish::default() };
    assert!(counts(&upstream, 4, 9, &unknown)[..3] == [3, 3, 3]);
    for index in [1, 3] {
        endpoints[index].set_standing(Standing::OUT);
    }
    upstream.refresh();
    assert!(id(&sticky).is_ok_and(|id| id != 1));
    assert_eq!(id(&directed), Err(ErrorKind::NoEndpoint));
    assert!(id(&Wish { fallback: true, ..directed }).is_ok_and(|id| id != 3));
}

#[test]
fn a_key_stays_at_its_endpoint_within_the_bound_of_load() {
    let zones = ["a", "a", "b", "b"];
    let seats = (0..4).map(|index| Seat { name: format!("{index}").into(), weight: 100 });
    let table = Arc::new(HashTable::new(seats.collect()));
    let plan = plan(&zones, |balance| {
        balance.policy = Policy::Hash;
        balance.hash =
            Some(HashPlan { key: Source::Client, max_load_percent: 125, table: table.clone() });
    });
    let (upstream, endpoints) = start(&plan, (0, 1));
    let keyed =
        |key: u64| Wish { key: Some(HashPlan::hash(&key.to_le_bytes())), ..Wish::default() };
    let mut seen = [false; 4];
    for key in 0..40 {
        let own = upstream.pick(&keyed(key)).expect("usable").id;
        assert!((0..5).all(|_| upstream.pick(&keyed(key)).is_ok_and(|it| it.id == own)));
        seen[own.0 as usize] = true;
        let there = upstream.pick(&Wish { zone: Some("b"), ..keyed(key) }).expect("usable").id;
        assert!(there.0 >= 2 && (own.0 < 2 || there == own));
    }
    assert_eq!(seen, [true; 4]);
    assert!(counts(&upstream, 4, 400, &Wish::default()).iter().all(|count| *count > 50));
    // One key only: its endpoint has its part of what is in flight and a quarter more.
    let mut permits = Vec::new();
    let mut busy = Vec::new();
    for _ in 0..40 {
        permits.push(upstream.admit().expect("no cap"));
        let picked = upstream.pick(&keyed(1)).expect("usable").id.0 as usize;
        busy.push(endpoints[picked].begin());
        let bound = (permits.len() as f64 * 1.25 / 4.0).ceil();
        assert!(f64::from(endpoints[picked].in_flight()) <= bound);
    }
    assert!(endpoints.iter().all(|it| it.in_flight() >= 2));
}
