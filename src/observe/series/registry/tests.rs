//! Both ends together: births, sums, reloads, the bound.

use super::*;
use crate::limits::{SERIES_BESIDE_ROUTES_MAX, SERIES_MAX};
use crate::observe::series::names::EndpointName;
use crate::observe::series::worker::Finished;

fn names(routes: impl IntoIterator<Item = u32>) -> Names {
    let mut names = Names::default();
    for id in routes {
        names.routes.set(id, format!("route-{id}").into());
    }
    names.upstreams.set(0, "app".into());
    names.endpoints.set(0, EndpointName { upstream: "app".into(), address: "a:1".into() });
    names.filters.set(3, "per-key".into());
    names.listeners.set(0, "public".into());
    names
}

fn hit(route: u32) -> Finished {
    Finished { route: Some(route), status: 200, total_us: 1_000, ..Finished::default() }
}

/// Answers by the name of a route.
fn routes(registry: &mut SeriesRegistry, names: &Names) -> Vec<(String, u64)> {
    let view = registry.collect(names);
    let count =
        |it: &Entry<crate::observe::series::view::RouteView>| it.numbers.answers.iter().sum();
    view.routes.iter().map(|it| (it.name.to_string(), count(it))).collect()
}

fn expect(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn workers_are_summed_by_id() {
    let mut registry = SeriesRegistry::default();
    let workers = [registry.add_worker(), registry.add_worker()];
    for worker in &workers {
        worker.finish(&Finished {
            route: Some(1),
            upstream: Some(0),
            endpoint: Some(0),
            status: 503,
            total_us: 30_000,
            upstream_head_us: Some(6_000),
            request_body_bytes: 10,
            response_body_bytes: 20,
        });
        worker.endpoint(0, |endpoint| endpoint.connect_failures.increment());
        worker.filter(3, |filter| filter.limited.increment());
        worker.connection_opened(0);
    }
    workers[1].connection_closed(0);
    workers[1].finish(&Finished { status: 404, ..Finished::default() });
    let view = registry.collect(&names([1]));
    let route = &view.routes[0];
    assert_eq!((&*route.name, route.numbers.answers), ("route-1", [0, 0, 0, 0, 2]));
    assert_eq!((route.numbers.duration.buckets[3], route.numbers.duration.sum_us), (2, 60_000));
    assert_eq!((route.numbers.request_body_bytes, route.numbers.response_body_bytes), (20, 40));
    assert_eq!((&*view.routes[1].name, view.routes[1].numbers.answers[3]), (UNMATCHED, 1));
    assert_eq!(view.upstreams[0].numbers.duration.buckets[1], 2);
    let endpoint = &view.endpoints[0];
    assert_eq!((endpoint.upstream.as_deref(), &*endpoint.name), (Some("app"), "a:1"));
    assert_eq!((endpoint.numbers.answers[4], endpoint.numbers.connect_failures), (2, 2));
    assert_eq!(view.filters[0].numbers.decisions, [0, 2]);
    assert_eq!((view.listeners[0].numbers.accepted, view.listeners[0].numbers.open), (2, 1));
    assert_eq!((view.made, view.dropped), (vec![5, 5], 0));
}

#[test]
fn without_an_answer_there_is_no_duration() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    for status in [0, 99, 600, u16::MAX] {
        worker.finish(&Finished { status, request_body_bytes: 5, ..hit(0) });
    }
    let numbers = &registry.collect(&names([0])).routes[0].numbers;
    assert_eq!((numbers.answers, numbers.duration.count()), ([0; 5], 0));
    assert_eq!(numbers.request_body_bytes, 20);
}

#[test]
fn in_flight_lasts_as_long_as_its_guard() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    let mut requests = [worker.in_flight(0, 0), worker.in_flight(0, 0)];
    let view = registry.collect(&names([]));
    assert_eq!((view.upstreams[0].numbers.in_flight, view.endpoints[0].numbers.in_flight), (2, 2));
    requests[0].move_to(7);
    let view = registry.collect(&names([]));
    assert_eq!((view.upstreams[0].numbers.in_flight, view.endpoints[0].numbers.in_flight), (2, 1));
    drop(requests);
    let view = registry.collect(&names([]));
    assert_eq!((view.upstreams[0].numbers.in_flight, view.endpoints[0].numbers.in_flight), (0, 0));
}

#[test]
fn a_reload_resets_nothing_that_stays_and_shows_nothing_that_went() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    for route in [0, 1, 1] {
        worker.finish(&hit(route));
    }
    let (before, after) = (names([0, 1]), names([1, 2]));
    let both = expect(&[("route-0", 1), ("route-1", 2), (UNMATCHED, 0)]);
    assert_eq!(routes(&mut registry, &before), both);
    worker.retain(&after);
    assert_eq!(routes(&mut registry, &before), both, "names that lag make no sum go down");
    worker.finish(&hit(1));
    worker.finish(&hit(2));
    let counts = [("route-1", 3), ("route-2", 1), (UNMATCHED, 0)];
    assert_eq!(routes(&mut registry, &after), expect(&counts));
    assert!(!registry.workers[0].routes.holds(0), "its memory is free");
    assert_eq!(registry.collect(&after).made, [2]);
}

#[test]
fn what_is_in_flight_is_counted_down_where_it_was_counted_up() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    let (with, mut without) = (names([]), names([]));
    without.upstreams = ById::default();
    let long = worker.in_flight(0, 0);
    worker.retain(&without);
    assert!(registry.collect(&without).upstreams.is_empty());
    worker.retain(&with);
    assert_eq!(registry.collect(&with).upstreams[0].numbers.in_flight, 1, "it came back");
    worker.retain(&without);
    drop(long);
    worker.retain(&without);
    registry.settle(&without);
    assert!(!registry.workers[0].upstreams.holds(0), "let go once nothing is in flight");
}

#[test]
fn memory_is_flat_over_reloads_even_if_nobody_scrapes() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    for version in 0..3 * SERIES_MAX as u32 {
        worker.finish(&hit(version));
        let names = names([version]);
        worker.retain(&names);
        registry.settle(&names);
    }
    let last = 3 * SERIES_MAX as u32 - 1;
    assert_eq!(registry.workers[0].routes.iter().count(), 1);
    let view = registry.collect(&names([last]));
    assert_eq!((view.made, view.dropped), (vec![1], 0));
}

#[test]
fn routes_beyond_the_bound_are_other_and_take_no_room_of_anything_else() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    let max = SERIES_MAX as u32;
    for route in 0..max + 3 {
        worker.finish(&hit(route));
        worker.finish(&hit(route));
    }
    // After the routes, births that nobody has taken yet included.
    let whole = Finished { upstream: Some(0), endpoint: Some(0), ..hit(max) };
    worker.finish(&whole);
    worker.filter(3, |filter| filter.limited.increment());
    worker.connection_opened(0);
    let mut before = names(0..max + 3);
    let view = registry.collect(&before);
    assert_eq!((view.made, view.dropped), (vec![u64::from(max) + 4], 3), "three routes");
    assert_eq!(view.routes.len(), SERIES_MAX + 2, "and unmatched, and other");
    let other = view.routes.last().expect("there is one");
    assert_eq!((&*other.name, other.numbers.answers[1]), (OTHER, 7));
    assert_eq!((view.upstreams.len(), view.upstreams[0].numbers.answers[1]), (1, 1));
    assert_eq!((view.endpoints.len(), view.endpoints[0].numbers.answers[1]), (1, 1));
    assert_eq!((view.filters.len(), view.filters[0].numbers.decisions[1]), (1, 1));
    assert_eq!((view.listeners.len(), view.listeners[0].numbers.open), (1, 1));

    // Room for two: who was refused asks again at the next hit.
    before.routes.retain(|id, _| id >= 2);
    worker.retain(&before);
    worker.finish(&hit(max));
    let view = registry.collect(&before);
    assert_eq!(view.made, [u64::from(max) - 1 + 4]);
    assert!(view.routes.iter().any(|it| *it.name == *format!("route-{max}")));
}

#[test]
fn what_is_beside_routes_has_a_bound_too() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    let max = SERIES_BESIDE_ROUTES_MAX as u32;
    for endpoint in 0..max {
        worker.endpoint(endpoint, |endpoint| endpoint.retries.increment());
    }
    worker.connection_opened(0);
    worker.finish(&hit(0));
    let mut names = names([0]);
    let view = registry.collect(&names);
    assert_eq!((view.made, view.dropped), (vec![u64::from(max) + 1], 1), "a listener");
    assert_eq!((&*view.listeners[1].name, view.listeners[1].numbers.open), (OTHER, 1));
    assert_eq!(view.routes[0].numbers.answers[1], 1);

    // Room for it: it asks again, but for what is still counted up.
    names.endpoints = ById::default();
    worker.retain(&names);
    worker.connection_closed(0);
    let view = registry.collect(&names);
    assert_eq!(view.listeners[1].numbers.open, 0, "counted down where it was counted up");
    worker.retain(&names);
    worker.connection_opened(0);
    assert_eq!(registry.collect(&names).listeners[0].numbers.open, 1);
}

/// Ever new names of every kind, and one of each that stays.
#[test]
fn pages_are_bounded_over_reloads_with_ever_new_names() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    for version in 1..=300 {
        let ids = || (100 * version..100 * version + 100).chain([0]);
        let mut names = names(ids());
        for id in ids() {
            let at = EndpointName { upstream: "app".into(), address: id.to_string().into() };
            names.endpoints.set(id, at);
        }
        worker.retain(&names);
        for id in ids() {
            worker.finish(&Finished { upstream: Some(0), endpoint: Some(id), ..hit(id) });
        }
        registry.settle(&names);
        let ledger = &registry.workers[0];
        let pages = [names.routes.pages(), ledger.routes.pages(), ledger.endpoints.pages()];
        assert!(pages.iter().all(|pages| *pages <= 6), "{version}: {pages:?}");
        assert!(registry.held() <= 2 * 2 * 101 + 1, "{version}: {}", registry.held());
        let view = registry.collect(&names);
        assert_eq!(view.routes[0].numbers.answers[1], u64::from(version), "what stays counts on");
        assert_eq!(view.upstreams[0].numbers.answers[1], 101 * u64::from(version));
    }
}

#[test]
fn births_that_nobody_takes_are_bounded() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    for version in 0..2 * SERIES_MAX as u32 {
        worker.finish(&hit(version));
        worker.retain(&names([]));
    }
    assert_eq!(registry.workers[0].births[0].len(), SERIES_MAX);
    let view = registry.collect(&names([]));
    assert_eq!(view.dropped, SERIES_MAX as u64);
    worker.finish(&hit(0));
    assert_eq!(routes(&mut registry, &names([0]))[0], ("route-0".to_owned(), 1));
}

#[test]
fn names_of_ours_in_a_configuration_make_no_series_twice() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    let mut names = names([]);
    names.routes.set(0, UNMATCHED.into());
    worker.finish(&hit(0));
    worker.finish(&Finished { status: 200, ..Finished::default() });
    assert_eq!(routes(&mut registry, &names), expect(&[(UNMATCHED, 2)]));
}

#[test]
fn workers_count_while_they_are_read() {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    let counting = std::thread::spawn(move || {
        for route in 0..20_000 {
            worker.finish(&hit(route % 100));
        }
    });
    let names = names(0..100);
    let mut last = 0;
    while last < 20_000 {
        let total = routes(&mut registry, &names).iter().map(|(_, count)| count).sum();
        assert!(total >= last, "{total} after {last}");
        last = total;
    }
    counting.join().expect("it counted");
    assert_eq!(last, 20_000);
}
