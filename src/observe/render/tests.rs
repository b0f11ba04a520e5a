//! Both forms of what is shown, and the page that describes them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Value, json};

use super::*;
use crate::observe::series::{EndpointName, Names, ProxyProtocolResult};
use crate::observe::{Finished, SeriesRegistry};

/// Two workers that have counted nothing.
fn view() -> ProcessView {
    let worker = || WorkerView {
        driver: "epoll".into(),
        flags: String::new(),
        reason: "said \"no\"\nand\\so".into(),
        cpu: None,
        connections_max: 10,
        counters: Arc::new(WorkerCounters::default()),
    };
    ProcessView { phase: Phase::Ready, workers: vec![worker(), worker()], ..Default::default() }
}

#[test]
fn counters_are_summed_and_gauges_of_workers_kept_apart() {
    let view = view();
    for worker in &view.workers {
        worker.counters.answered(204);
        worker.counters.failed(ErrorKind::RouteMissing);
        worker.counters.accepted.add(3);
    }
    view.workers[1].counters.connections.increment();
    let text = view.prometheus();
    for line in [
        "ringway_worker_requests_total{worker=\"0\",code_class=\"2xx\"} 1",
        "ringway_errors_total{code=\"route_missing\"} 2",
        "ringway_connections_accepted_total 6",
        "ringway_connections{worker=\"0\"} 0",
        "ringway_connections{worker=\"1\"} 1",
        "ringway_ready 1",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn every_line_is_a_comment_or_a_sample_and_every_family_is_announced_once() {
    let text = busy().prometheus();
    let (mut families, mut seen) = (HashSet::new(), HashSet::new());
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().expect("a name");
            assert!(families.insert(name.to_owned()), "{name} twice");
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().expect("a name");
            assert!(families.contains(family_of(name)), "{name} is not announced");
            let series = line.rsplit_once(' ').expect("a value").0;
            assert!(seen.insert(series.to_owned()), "{series} twice");
            let value = line.rsplit(' ').next().expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.contains(r#"reason="said \"no\"\nand\\so""#));
}

#[test]
fn status_shows_only_errors_that_happened() {
    let view = view();
    view.workers[0].counters.failed(ErrorKind::ConnectRefused);
    let status = view.status();
    assert_eq!(status["errors"], json!({ "connect_refused": 1 }));
    assert_eq!(status["workers"][1]["driver"], "epoll");
    assert_eq!(status["requests"]["2xx"], 0);
    assert_eq!(view.ready(), json!({ "ready": true }));
    let draining = ProcessView { phase: Phase::Draining, ..Default::default() };
    assert_eq!(draining.ready(), json!({ "ready": false, "reasons": ["draining"] }));
}

/// A process in which everything that can be counted was.
fn busy() -> ProcessView {
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    worker.finish(&Finished {
        route: Some(0),
        upstream: Some(0),
        endpoint: Some(0),
        status: 200,
        total_us: 30_000,
        upstream_head_us: Some(7_500_001),
        request_body_bytes: 3,
        response_body_bytes: 4,
    });
    worker.finish(&Finished { status: 404, total_us: 1, ..Finished::default() });
    worker.handshake(0, "full");
    worker.endpoint(0, |endpoint| {
        endpoint.connect_failures.increment();
        endpoint.retries.add(2);
    });
    worker.filter(0, |filter| filter.answered.increment());
    worker.filter(1, |filter| filter.limited.increment());
    worker.connection_opened(0);
    worker.proxy_protocol(0, ProxyProtocolResult::Missing);
    let mut names = Names::default();
    names.routes.set(0, "a\"b".into());
    names.upstreams.set(0, "app".into());
    names.upstreams.set(1, "spare".into());
    names.endpoints.set(0, EndpointName { upstream: "app".into(), address: "a:1".into() });
    names.filters.set(0, "deny".into());
    names.filters.set(1, "per-key".into());
    names.listeners.set(0, "public".into());
    ProcessView {
        certificates: vec![CertificateView { not_after_s: 1, ..CertificateView::default() }],
        discovery: vec![DiscoveryView { success_at_s: Some(1.0), ..DiscoveryView::default() }],
        series: registry.collect(&names),
        standings: standings(),
        access_log_records: 8,
        access_log_dropped: 9,
        access_log_waiting: 7,
        crowded: vec![("per-key".into(), 3)],
        listeners: vec![("public".into(), "127.0.0.1:80".into())],
        ..view()
    }
}

/// One upstream of one endpoint, with breakers of every tier.
fn standings() -> StandingsView {
    let breaker = |state, name| BreakerView {
        state,
        name,
        transitions: 5,
        error_percent: 30,
        usual: None,
        reason: "7 of 20 failed".into(),
    };
    let event = EventView {
        number: 9,
        at_s: 1.5,
        upstream: "app".into(),
        tier: "endpoint",
        subject: "a:1".into(),
        from: "closed",
        to: "open",
        reason: "7 of 20 failed".into(),
    };
    let endpoint = EndpointStanding {
        address: "a:1".into(),
        up: Some(true),
        breaker: Some(breaker(1, "open")),
        share_permille: 0,
        probing: false,
        reason: "open: 7 of 20 failed".into(),
    };
    let upstream = UpstreamStanding {
        name: "app".into(),
        share_permille: 50,
        service: Some(breaker(3, "trickle")),
        floor: false,
        zones: vec![("z".into(), breaker(0, "closed"))],
        endpoints: vec![endpoint],
    };
    StandingsView {
        upstreams: vec![upstream],
        events: Arc::new([event].into()),
        events_total: 9,
        checks: [11, 12],
    }
}

#[test]
fn standings_stand_beside_what_was_counted() {
    let view = busy();
    let status = view.status();
    let app = &status["upstreams"][0];
    assert_eq!((&app["share_percent"], &app["floor"]), (&json!(5), &json!(false)));
    assert_eq!(
        (&app["breaker"]["state"], &app["zones"]["z"]["state"]),
        (&json!("trickle"), &json!("closed"))
    );
    let endpoint = &app["endpoints"][0];
    assert_eq!((&endpoint["standing"], &endpoint["up"]), (&json!("out"), &json!(true)));
    assert_eq!(endpoint["reason"], "open: 7 of 20 failed");
    assert!(status["upstreams"][1]["share_percent"].is_null(), "spare has no breaker");
    let events = view.standings.events();
    assert_eq!(events["total"], 9);
    assert_eq!(events["events"][0]["at"], "1970-01-01T00:00:01.500000Z");
    assert_eq!(events["events"], status["events"]);
    let text = view.prometheus();
    for line in [
        r#"ringway_breaker_state{upstream="app",tier="service"} 3"#,
        r#"ringway_breaker_state{upstream="app",tier="zone",zone="z"} 0"#,
        r#"ringway_breaker_state{upstream="app",tier="endpoint",endpoint="a:1"} 1"#,
        r#"ringway_breaker_transitions_total{upstream="app",tier="service"} 5"#,
        r#"ringway_upstream_floor{upstream="app"} 0"#,
        r#"ringway_upstream_endpoint_up{upstream="app",endpoint="a:1"} 1"#,
        r#"ringway_upstream_endpoint_share{upstream="app",endpoint="a:1"} 0"#,
        r#"ringway_health_checks_total{result="failed"} 12"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
    }
}

/// The family of a sample: parts of a histogram have names of their own.
fn family_of(sample: &str) -> &str {
    let parts = ["_bucket", "_sum", "_count"];
    let stem = parts.iter().find_map(|part| sample.strip_suffix(part));
    stem.filter(|stem| stem.ends_with("_seconds")).unwrap_or(sample)
}

#[test]
fn series_carry_the_labels_of_the_configuration_and_no_zeros() {
    let text = busy().prometheus();
    for line in [
        r#"ringway_requests_total{route="a\"b",code_class="2xx"} 1"#,
        r#"ringway_requests_total{route="unmatched",code_class="4xx"} 1"#,
        r#"ringway_request_duration_seconds_bucket{route="a\"b",le="0.025"} 0"#,
        r#"ringway_request_duration_seconds_bucket{route="a\"b",le="0.05"} 1"#,
        r#"ringway_request_duration_seconds_bucket{route="a\"b",le="+Inf"} 1"#,
        r#"ringway_request_duration_seconds_sum{route="a\"b"} 0.030000"#,
        r#"ringway_request_duration_seconds_count{route="a\"b"} 1"#,
        r#"ringway_request_body_bytes_total{route="a\"b"} 3"#,
        r#"ringway_response_body_bytes_total{route="a\"b"} 4"#,
        r#"ringway_upstream_request_duration_seconds_bucket{upstream="app",le="7.5"} 0"#,
        r#"ringway_upstream_request_duration_seconds_bucket{upstream="app",le="10"} 1"#,
        r#"ringway_upstream_requests_total{upstream="app",endpoint="a:1",code_class="2xx"} 1"#,
        r#"ringway_upstream_requests_in_flight{upstream="spare"} 0"#,
        r#"ringway_upstream_endpoint_connect_failures_total{upstream="app",endpoint="a:1"} 1"#,
        r#"ringway_upstream_endpoint_retries_total{upstream="app",endpoint="a:1"} 2"#,
        r#"ringway_filter_verdicts_total{filter="deny",verdict="answered"} 1"#,
        r#"ringway_ratelimit_decisions_total{policy="per-key",decision="limited"} 1"#,
        r#"ringway_open_connections{listener="public"} 1"#,
        r#"ringway_listener_connections_accepted_total{listener="public"} 1"#,
        r#"ringway_series{worker="0"} 6"#,
        "ringway_series_dropped_total 0",
        "ringway_access_log_records_total 8",
        "ringway_access_log_dropped_total 9",
        "ringway_access_log_waiting_records 7",
        "ringway_ratelimit_shared_buckets_total{policy=\"per-key\"} 3",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
    }
    let of = |family: &str| text.lines().filter(|line| line.starts_with(family)).count();
    assert_eq!(of("ringway_requests_total{"), 2, "no class at zero");
    assert_eq!(of("ringway_filter_verdicts_total{"), 1);
    assert_eq!(of("ringway_ratelimit_decisions_total{"), 1);
    assert_eq!(of("ringway_upstream_request_duration_seconds_bucket{"), 15, "none of spare");
}

#[test]
fn a_family_does_not_vanish_while_nothing_was_counted() {
    let mut names = Names::default();
    names.upstreams.set(0, "app".into());
    names.endpoints.set(0, EndpointName { upstream: "app".into(), address: "a:1".into() });
    names.filters.set(0, "deny".into());
    let series = SeriesRegistry::default().collect(&names);
    let text = ProcessView { series, ..ProcessView::default() }.prometheus();
    for line in [
        r#"ringway_requests_total{route="unmatched",code_class="1xx"} 0"#,
        r#"ringway_request_duration_seconds_count{route="unmatched"} 0"#,
        r#"ringway_upstream_request_duration_seconds_count{upstream="app"} 0"#,
        r#"ringway_upstream_requests_total{upstream="app",endpoint="a:1",code_class="1xx"} 0"#,
        r#"ringway_filter_verdicts_total{filter="deny",verdict="answered"} 0"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn status_shows_the_busiest_routes_and_everything_else_by_name() {
    let status = busy().status();
    let route = &status["routes"][0];
    assert_eq!(route["route"], "a\"b");
    assert_eq!((&route["requests"], &route["duration_mean_ms"]), (&json!(1), &json!(30.0)));
    assert_eq!(status["routes"][1]["requests_by_class"]["4xx"], 1);
    let upstream = &status["upstreams"][0];
    assert_eq!((&upstream["name"], &upstream["requests"]), (&json!("app"), &json!(1)));
    assert_eq!(upstream["endpoints"][0]["connect_failures"], 1);
    assert_eq!(upstream["in_flight_max"], Value::Null, "none is given");
    let spare = &status["upstreams"][1];
    assert_eq!((&spare["endpoints"], &spare["head_mean_ms"]), (&json!([]), &Value::Null));
    assert_eq!(status["filters"][1]["limited"], 1);
    assert_eq!(status["listeners"][0]["connections"], 1);
    assert_eq!(status["access_log"], json!({ "records": 8, "dropped": 9, "waiting": 7 }));
}

#[test]
fn status_is_bounded() {
    use crate::limits::{ADMIN_ANSWER_BYTES_MAX, STATUS_ROUTES_MAX, STATUS_SERIES_MAX};
    let mut registry = SeriesRegistry::default();
    let worker = registry.add_worker();
    let mut names = Names::default();
    for id in 0..2 * STATUS_SERIES_MAX as u32 {
        let name = format!("{id:0>64}");
        names.routes.set(id, name.clone().into());
        names.upstreams.set(id, name.clone().into());
        names.filters.set(id, name.clone().into());
        let address = format!("{id:0>253}:65535").into();
        names.endpoints.set(id, EndpointName { upstream: name.into(), address });
        worker.finish(&Finished { route: Some(id), status: 200, ..Finished::default() });
    }
    worker.finish(&Finished { route: Some(7), status: 200, ..Finished::default() });
    let status = ProcessView { series: registry.collect(&names), ..view() }.status();
    let length = |key: &str| status[key].as_array().map(Vec::len);
    assert_eq!(length("routes"), Some(STATUS_ROUTES_MAX));
    assert_eq!(status["routes"][0]["requests"], 2, "the busiest first");
    assert_eq!(status["routes_hit"], 2 * STATUS_SERIES_MAX + 1);
    assert_eq!((length("upstreams"), length("filters")), (Some(1000), Some(1000)));
    // A worker takes less than 1 KiB of it.
    assert!(status.to_string().len() < ADMIN_ANSWER_BYTES_MAX - 1024 * 1024);
}

/// Name, type and labels of every family.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

fn rendered(text: &str) -> Families {
    let mut families = Families::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            families.insert(name.into(), (kind.into(), BTreeSet::new()));
        } else if let Some((name, labels)) = line.split_once('{').filter(|it| !it.0.contains('#')) {
            let (_, known) = families.get_mut(family_of(name)).expect("announced before");
            // Every label is a word before `="`.
            let words = labels.split("=\"").filter_map(|it| it.rsplit(['"', ',']).next());
            let word = |it: &&str| it.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            known.extend(words.filter(word).filter(|it| !it.is_empty()).map(str::to_owned));
        }
    }
    families
}

fn documented(page: &str) -> Families {
    let quoted = |cell: &str| -> BTreeSet<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, unit, meaning, _] = &*cells else { panic!("{row}") };
        assert!(!unit.is_empty() && !meaning.is_empty(), "{row}");
        (name.trim_matches('`').to_owned(), ((*kind).to_owned(), quoted(labels)))
    });
    rows.collect()
}

#[test]
fn the_page_names_every_family_and_no_other() {
    let rendered = rendered(&busy().prometheus());
    let documented = documented(include_str!("../../../docs/metrics.md"));
    for (name, what) in &rendered {
        assert_eq!(documented.get(name), Some(what), "{name} in docs/metrics.md");
    }
    for name in documented.keys() {
        assert!(rendered.contains_key(name), "{name} stands in docs/metrics.md only");
    }
}
