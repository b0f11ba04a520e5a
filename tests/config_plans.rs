//! What the keys of a configuration come to.

use std::sync::Arc;

use ringway::context::RequestContext;
use ringway::http::uri::{Allow, Deny};
use ringway::route::{Directed, RoutePlan};
use ringway::snapshot::{AdminPlan, Ids, Snapshot, compile};
use ringway::upstream::{BalancePlan, EndpointAddress, Policy};

fn found<'a>(snapshot: &'a Snapshot, path: &str) -> &'a Arc<RoutePlan> {
    let mut context = RequestContext::default();
    context.target.normalised = path.into();
    context.target.changed = true;
    snapshot.routes.find(&context).expect("a route")
}

const FULL: &str = include_str!("../configs/full.toml");

const MINIMAL: &str = include_str!("../configs/minimal.toml");

fn full() -> String {
    FULL.replace("\"tls/", "\"configs/tls/")
}

/// The snapshot of a text that must be taken without a warning.
fn taken(text: &str) -> Snapshot {
    match compile(text, &mut Ids::default(), 1) {
        Ok((snapshot, warnings)) => {
            assert!(warnings.is_empty(), "{warnings:?}");
            snapshot
        }
        Err(errors) => panic!("{errors:?}"),
    }
}

#[test]
fn every_key_reaches_the_plan() {
    let snapshot = taken(&full());
    assert_eq!(snapshot.runtime.workers, None);
    assert_eq!(snapshot.runtime.connections_max, Some(100_000));
    assert_eq!(snapshot.admin, AdminPlan::Tcp("127.0.0.1:9901".parse().expect("an address")));
    let public = &snapshot.listeners[0];
    assert_eq!((&*public.name, public.trusted_proxies.len()), ("public", 3));
    assert!(public.trusts("10.1.2.3".parse().expect("an address")));
    assert!(!public.trusts("192.0.2.8".parse().expect("an address")));
    let orders = &snapshot.upstreams[0];
    assert_eq!((orders.in_flight_max, orders.tunnel_timeout_ms), (10_000, 3_600_000));
    assert_eq!(orders.endpoints[0].zone.as_deref(), Some("a"));
    assert_eq!(orders.endpoints[2].address, EndpointAddress::Name("orders.example".into(), 9003));
    assert_eq!(orders.endpoints[2].weight, 0);
    let BalancePlan { policy, sticky, subset, locality, .. } = &*orders.balance;
    let sticky = sticky.as_ref().map(|sticky| (&*sticky.name, sticky.ttl_s));
    assert_eq!((policy, sticky), (&Policy::RoundRobin, Some(("srv", Some(3_600)))));
    assert_eq!((*subset, locality.as_deref()), (16, Some("a")));
    let breaker = &orders.breaker;
    assert_eq!((breaker.open_ms, breaker.open_max_ms, breaker.adaptive), (10_000, 60_000, true));
    let carts = snapshot.upstreams.iter().find(|it| &*it.name == "carts").expect("it is there");
    let hash = carts.balance.hash.as_ref().expect("given");
    assert_eq!((hash.key.to_string(), hash.max_load_percent), ("header:x-user-id".into(), 125));
    let shard = carts.balance.shard.as_ref().expect("given");
    assert_eq!(
        (shard.key.to_string(), shard.zone(499), shard.zone(500)),
        ("cookie:uid".into(), "a", "b")
    );
    let node = snapshot.plans.iter().find(|plan| &*plan.id == "node").and_then(|it| it.directed(0));
    let wanted = Directed { endpoint: carts.endpoints[1].id, fallback: false };
    assert_eq!(node, Some(wanted));
    let secure = &snapshot.upstreams[1].endpoints[0];
    assert_eq!(
        format!("{:?}", secure.tls.as_ref().expect("TLS").name),
        "DnsName(\"secure.example\")"
    );
    let served = snapshot.listeners.iter().find_map(|listener| listener.tls.as_ref());
    assert_eq!(served.expect("one").certificates()[0].hosts.len(), 2);
    assert_eq!(snapshot.watched.len(), 6, "each file once");
    let [by_dns, service, listed, local, _] = &snapshot.upstreams[2..] else { panic!("seven") };
    assert_eq!(local.endpoints[0].host(), "localhost");
    let sources: Vec<String> = [by_dns, service, listed]
        .map(|it| it.discover.as_ref().map(ToString::to_string))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(
        sources,
        [
            "dns orders.internal:8080 at 127.0.0.1:53",
            "srv _http._tcp.orders.internal",
            "file orders.toml",
        ]
    );
    assert_eq!(by_dns.breaker.endpoint.consecutive, 5, "what is found is isolated like others");
    assert_eq!(by_dns.outgoing.socket.source, "10.0.0.5".parse().ok());
    assert_eq!(by_dns.outgoing.socket.keepalive_ms, Some(60_000));
    assert_eq!(service.outgoing.send_proxy, Some(ringway::proxy_protocol::Version::V2));
    let internal = snapshot.listeners.iter().find(|listener| &*listener.name == "internal");
    assert_eq!(internal.expect("one").tcp_keepalive_ms, Some(60_000));
    let route = found(&snapshot, "/api/v1/app/order/detail");
    assert_eq!((route.skip_segments, route.body_bytes_max), (3, Some(10 << 20)));
    assert_eq!(route.response_timeout_ms, Some(10_000));
    assert_eq!(route.total_timeout_ms, Some(30_000));
    let all = found(&snapshot, "/");
    assert_eq!(all.path_policy, Default::default());
}

#[test]
fn values_that_are_not_defaults_reach_the_plan() {
    let text = MINIMAL
        .replace(
            "workers = 1",
            "workers = 3\ndriver = \"epoll\"\ndrain = \"0s\"\ndrain_delay = \"5s\"",
        )
        .replace("8080\"", "8080\"\nvia = true\nforwarded = true\nheaders_max = 7")
        .replace("prefix", "path_policy = { encoded_slash = \"refuse\", nul = \"keep\" }\nprefix");
    let snapshot = taken(&(text + "timeouts = { total = \"999ms\" }\n"));
    assert_eq!(snapshot.runtime.workers, Some(3));
    assert_eq!(snapshot.runtime.driver, ringway::snapshot::DriverChoice::Epoll);
    assert_eq!((snapshot.runtime.drain_ms, snapshot.runtime.drain_delay_ms), (0, 5_000));
    let listener = &snapshot.listeners[0];
    assert!(listener.via && listener.forwarded && listener.head.headers_max == 7);
    let policy = found(&snapshot, "/").path_policy;
    assert_eq!((policy.encoded_slash, policy.nul), (Allow::Refuse, Deny::Keep));
    assert!(snapshot.fine_timeouts, "a timeout below a second");
}
