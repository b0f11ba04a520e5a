//! Health and breakers over hours of virtual time: how soon a failure is noticed, what users see of
//! it, what a return costs, and whether anything flaps.

mod upstreams;

use ringway::limits::JUDGE_MS;
use ringway::upstream::judge::{State, Tier, What};
use upstreams::{Checks, Mood, WELL, World};

/// The times at which breakers of a tier entered a state, in milliseconds, with their subjects.
fn entered(world: &World, tier: Tier, state: State) -> Vec<(u64, String)> {
    let events = world.events.iter().filter_map(|(at_ms, event)| match event.what {
        What::Breaker(of, _, to) if of == tier && to == state => {
            Some((*at_ms, event.subject.to_string()))
        }
        _ => None,
    });
    events.collect()
}

#[test]
fn one_of_five_that_fails_in_any_way_costs_its_users_little() {
    let half = Mood::Answers { ms: 5, failing_permille: 500 };
    // What it costs in an hour: what is under way until it is noticed, and probes after that.
    for (mood, noticed_ms, lost) in
        [(Mood::Refuses, 400, 600), (Mood::Hangs, 1_600, 600), (half, 1_500, 600)]
    {
        let mut world = World::new(&[""; 5], 4, 500, "", 1);
        world.run(60);
        world.moods[2] = mood;
        world.run(3_540);
        let opened = entered(&world, Tier::Endpoint, State::Open);
        assert!(opened.iter().all(|it| it.1 == "127.0.0.1:3"), "{mood:?}: {opened:?}");
        let first = opened[0].0 - 60_000;
        assert!(first <= noticed_ms, "{mood:?} was noticed after {first} ms");
        let seen = world.seen(0, 3_600);
        assert!(seen.failed <= lost, "{mood:?}: {} of {} failed", seen.failed, seen.well);
        assert_eq!(seen.refused, 0, "{mood:?}");
        assert!(opened.len() <= 45, "{mood:?}: {} times", opened.len());
    }
}

const ZONES: [&str; 6] = ["a", "a", "a", "b", "b", "b"];

/// Done when: a zone's traffic has moved within two windows, and its return is no second outage.
#[test]
fn a_zone_that_dies_loses_its_traffic_and_its_return_is_no_second_outage() {
    let zone = "breaker = { zone = { error_percent = 50 } }\n";
    for mood in [Mood::Refuses, Mood::Hangs, Mood::Answers { ms: 5, failing_permille: 700 }] {
        let more = format!("{zone}slow_start = \"30s\"");
        let mut world = World::new(&ZONES, 4, 600, &more, 2);
        // The return would be an outage if all of it came at once.
        world.cold_per_s = Some(20);
        world.run(60);
        world.moods[..3].fill(mood);
        world.run(300);
        let opened = entered(&world, Tier::Zone, State::Open);
        let first = opened[0].0 - 60_000;
        assert!(opened[0].1 == "a" && first <= 20_000, "{mood:?}: {opened:?}");
        let settled = world.seen(80, 360);
        let late: u64 = settled.arrived[..3].iter().sum();
        assert!(late * 1_000 <= settled.well, "{mood:?}: {late} still went there");
        assert!(settled.failed * 1_000 <= settled.well, "{mood:?}: {settled:?}");
        world.moods[..3].fill(WELL);
        world.run(600);
        let back = world.seen(360, 960);
        assert!(back.failed * 200 <= back.well, "{mood:?}: a second outage: {back:?}");
        let end = world.seen(900, 960);
        let share: u64 = end.arrived[..3].iter().sum();
        assert!(share * 100 >= 40 * end.well, "{mood:?}: it is back: {end:?}");
        let worst = (360..960).map(|at| world.seen(at, at + 1)).max_by_key(|it| it.failed);
        assert!(worst.is_some_and(|it| it.failed <= 120), "{mood:?}: {worst:?}");
    }
}

/// What slow start is for: the same return without it.
#[test]
fn without_a_slow_start_cold_endpoints_fail_when_they_return() {
    let failed = |slow_start: &str| {
        let breaker = "breaker = { endpoint = { consecutive = 0 } }\n";
        let mut world = World::new(&[""; 4], 4, 400, &format!("{breaker}{slow_start}"), 3);
        world.cold_per_s = Some(5);
        world.run(60);
        world.moods[0] = Mood::Refuses;
        world.run(60);
        world.moods[0] = WELL;
        world.run(300);
        world.seen(120, 420).failed
    };
    let (slow, at_once) = (failed("slow_start = \"30s\""), failed(""));
    assert!(slow * 2 <= at_once, "{slow} and {at_once} failed");
}

#[test]
fn an_endpoint_that_flaps_is_left_out_more_and_more() {
    let mut world = World::new(&[""; 5], 4, 500, "", 4);
    for _ in 0..180 {
        world.moods[1] = Mood::Refuses;
        world.run(10);
        world.moods[1] = WELL;
        world.run(10);
    }
    let opened = entered(&world, Tier::Endpoint, State::Open).len();
    assert!((10..=60).contains(&opened), "{opened} times in an hour");
    let seen = world.seen(0, 3_600);
    assert!(seen.failed * 300 <= seen.well, "{seen:?}");
}

/// A service that fails as a whole is asked little, and is back soon after it has recovered.
#[test]
fn a_service_that_hangs_is_left_alone_and_comes_back() {
    let more = "breaker = { service = { error_percent = 10 } }";
    let mut world = World::new(&[""; 5], 4, 500, more, 5);
    world.run(60);
    world.moods.fill(Mood::Hangs);
    world.run(600);
    let outage = world.seen(70, 660);
    let arrived: u64 = outage.arrived.iter().sum();
    assert!(arrived * 20 <= outage.refused, "{outage:?}");
    world.moods.fill(WELL);
    // At worst it has just been opened for the longest time.
    world.run(100 + 10 + 130);
    let end = world.seen(890, 900);
    assert_eq!((end.refused, end.failed), (0, 0), "{end:?}");
}

/// A service whose checks pass again is probed at once, however long it has been open; without checks
/// `open_max` bounds that.
#[test]
fn checks_that_pass_again_end_an_outage_early() {
    let breaker = "breaker = { service = { error_percent = 10 }";
    let checked = "health = { kind = \"tcp\", interval = \"1s\", rise = 2 }";
    for (more, probed_ms) in [
        (format!("{breaker} }}\n{checked}"), 2_000 + 2 * JUDGE_MS),
        (format!("{breaker}, open_max = \"15s\" }}"), 15_000 + 2 * JUDGE_MS),
    ] {
        for mood in [Mood::Hangs, Mood::Refuses] {
            let mut world = World::new(&[""; 5], 4, 500, &more, 5);
            world.run(60);
            world.moods.fill(mood);
            world.run(600);
            // The worst moment: it has just opened, for the longest time.
            let openings = entered(&world, Tier::Service, State::Open).len();
            while entered(&world, Tier::Service, State::Open).len() == openings {
                world.run(1);
            }
            let recovered_ms = world.now_s() * 1_000;
            world.moods.fill(WELL);
            world.run(60);
            let since = |state| {
                let entered = entered(&world, Tier::Service, state);
                let times = entered.iter().map(|it| it.0).filter(|at_ms| *at_ms >= recovered_ms);
                times.map(|at_ms| at_ms - recovered_ms).collect::<Vec<_>>()
            };
            assert!(since(State::Probing)[0] <= probed_ms, "{mood:?}: {:?}", since(State::Probing));
            let closed = since(State::Closed);
            assert!(closed[0] <= probed_ms + 12_000, "{mood:?}: {closed:?}");
            let end = world.seen(world.now_s() - 10, world.now_s());
            assert_eq!((end.refused, end.failed), (0, 0), "{mood:?}: {end:?}");
        }
    }
}

/// Checks that pass while requests fail bring no probe forward; those that fail and pass in turn do
/// so less and less often.
#[test]
fn checks_that_lie_do_not_make_a_breaker_flap() {
    let more = "breaker = { service = { error_percent = 10 } }\n\
                health = { kind = \"tcp\", interval = \"100ms\", rise = 1, fall = 1000 }";
    for checks in [Checks::Honest, Checks::Blind, Checks::Alternating] {
        for bad in [1, 5] {
            let mut world = World::new(&[""; 5], 4, 200, more, 8);
            world.checks = checks;
            world.run(60);
            world.moods[..bad].fill(Mood::Refuses);
            world.run(3_600);
            let tier = if bad == 5 { Tier::Service } else { Tier::Endpoint };
            let mut probed = entered(&world, tier, State::Probing);
            probed.retain(|it| tier == Tier::Service || it.1 == "127.0.0.1:1");
            // Those of the longest time that it is open, and a few shorter ones before; honest checks
            // end that by taking the endpoint out.
            let least = if checks == Checks::Honest && bad == 1 { 3 } else { 30 };
            let count = probed.len();
            assert!((least..=50).contains(&count), "{checks:?} {bad}: {count}");
        }
    }
}

/// Around every threshold: a few changes an hour, however the dice fall.
#[test]
fn stationary_error_rates_do_not_make_it_flap() {
    let more = "breaker = { service = { error_percent = 10 }, zone = { error_percent = 50 } }";
    for failing_permille in [50, 90, 100, 110, 280, 300, 320, 500] {
        for bad in [1, 3, 6] {
            let mut world = World::new(&ZONES, 4, 200, more, 6 + failing_permille);
            world.moods[..bad].fill(Mood::Answers { ms: 5, failing_permille });
            world.run(3_600);
            let mut each = std::collections::BTreeMap::new();
            for (_, event) in &world.events {
                *each.entry((event.words().0, event.subject.to_string())).or_insert(0) += 1;
            }
            let most = each.iter().max_by_key(|it| it.1);
            assert!(most.is_none_or(|it| *it.1 <= 180), "{failing_permille} of {bad}: {most:?}");
        }
    }
}

/// B2: what is usual changes nothing for hours, and what is not is acted on although no fixed
/// threshold would.
#[test]
fn adaptive_thresholds_neither_flap_nor_sleep() {
    let usual = Mood::Answers { ms: 5, failing_permille: 5 };
    let fixed = "endpoint = { consecutive = 0 }";
    let more = &format!("breaker = {{ adaptive = true, {fixed} }}");
    let mut world = World::new(&[""; 5], 4, 500, more, 7);
    world.moods.fill(usual);
    world.run(2 * 3_600);
    let opened = entered(&world, Tier::Endpoint, State::Open);
    assert!(opened.is_empty(), "{opened:?}");
    let lowered = world.events.len();
    assert!(lowered <= 10, "{lowered} changes of thresholds in two calm hours");

    // An eighth of its requests fail: less than the 30 % that isolate an endpoint.
    world.moods[3] = Mood::Answers { ms: 5, failing_permille: 125 };
    world.run(600);
    let opened = entered(&world, Tier::Endpoint, State::Open);
    let first = opened.first().expect("it does not sleep");
    assert!(first.1 == "127.0.0.1:4" && first.0 <= (7_200 + 70) * 1_000, "{opened:?}");
    assert!(opened.iter().all(|it| it.1 == "127.0.0.1:4"), "{opened:?}");
    assert!(opened.len() <= 20, "{} times in ten minutes", opened.len());

    world.moods[3] = usual;
    world.run(1_800);
    let view = world.judge.view((world.now_s()) * 1_000);
    for endpoint in &view[0].endpoints {
        let percent = endpoint.breaker.as_ref().map(|it| it.error_percent);
        assert!(percent.is_some_and(|it| it >= 15), "raised step by step: {endpoint:?}");
        assert_eq!(endpoint.share_permille, 1_000, "{endpoint:?}");
    }
    let mut fixed = World::new(&[""; 5], 4, 500, &format!("breaker = {{ {fixed} }}"), 7);
    fixed.moods.fill(Mood::Answers { ms: 5, failing_permille: 125 });
    fixed.run(600);
    assert!(fixed.events.is_empty(), "without it: {:?}", fixed.events);
}

/// Changes of adaptive thresholds with their times, and of which endpoint.
fn thresholds(world: &World) -> Vec<(u64, String, u64)> {
    let changed = world.events.iter().filter_map(|(at_ms, event)| match event.what {
        What::Threshold(_, _, to) => Some((*at_ms, event.subject.to_string(), to)),
        _ => None,
    });
    changed.collect()
}

/// B2: the tail counts, not the mean, which stays what it was.
#[test]
fn adaptive_thresholds_see_a_tail_that_the_mean_hides() {
    let more = "breaker = { adaptive = true, endpoint = { consecutive = 0 } }";
    let mut world = World::new(&[""; 5], 4, 500, more, 11);
    world.run(1_800);
    assert!(thresholds(&world).is_empty(), "{:?}", thresholds(&world));
    // 3 in 100 take twelve times as long, and the others a third less.
    let tails = Mood::Tails { us: 3_300, slow_us: 60_000, slow_permille: 30 };
    world.moods[3] = tails;
    world.run(120);
    let mean = |from_s, to_s| {
        let seen = world.seen(from_s, to_s);
        seen.well_us as f64 / seen.well as f64
    };
    let (before, now) = (mean(1_600, 1_800), mean(1_800, 1_920));
    assert!((now / before - 1.0).abs() < 0.02, "the mean was {before} and is {now}");
    let lowered = thresholds(&world);
    let first = lowered.first().expect("it does not sleep");
    assert!(first.0 <= 1_845_000 && first.2 == 15, "after three windows: {lowered:?}");
    assert!(lowered.iter().all(|it| it.1 == "127.0.0.1:4"), "{lowered:?}");
    world.moods[3] = WELL;
    world.run(300);
    let last = thresholds(&world).pop();
    assert!(last.is_some_and(|it| it.2 == 30), "it is raised again: {:?}", thresholds(&world));
    assert!(entered(&world, Tier::Endpoint, State::Open).is_empty(), "slow is not broken");
}

/// Where few answers come, where their tail lies is chance; and one in a hundred that is slow is the
/// tail, however slow it is.
#[test]
fn adaptive_thresholds_do_not_take_noise_for_a_tail() {
    let more = "breaker = { adaptive = true }";
    for (per_s, slow_permille, seed) in [(60, 10, 12), (150, 10, 13), (150, 5, 14), (1_500, 7, 15)]
    {
        let mut world = World::new(&[""; 5], 4, per_s, more, seed);
        world.moods.fill(Mood::Tails { us: 5_000, slow_us: 300_000, slow_permille });
        world.run(3_600);
        let changed = thresholds(&world);
        assert!(changed.len() <= 2, "{per_s}/s, {slow_permille} in a thousand: {changed:?}");
        assert!(entered(&world, Tier::Endpoint, State::Open).is_empty());
    }
}

#[test]
fn the_same_seed_gives_the_same_hour() {
    let hour = |seed| {
        let mut world = World::new(&ZONES, 4, 100, "breaker = { zone = {} }", seed);
        world.moods[0] = Mood::Answers { ms: 5, failing_permille: 300 };
        world.run(600);
        (world.seen(0, 600).well, world.events.len())
    };
    assert_eq!(hour(9), hour(9));
    assert_ne!(hour(9).0, hour(10).0);
}
