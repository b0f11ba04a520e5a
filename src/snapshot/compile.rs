//! The configuration as written, compiled into what runs: the only validation there is.

use std::collections::{HashMap, HashSet};
use std::mem::take;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{
    AdminPlan, DriverChoice, Fixed, Http2Plan, Ids, ListenerPlan, RuntimePlan, Snapshot, balance,
    filters, health, rivals, routes, tls, upstreams,
};
use crate::base::by_id::ById;
use crate::config::decode::Decoder;
use crate::config::diagnostic::Span;
use crate::config::tree::{Node, Spanned};
use crate::config::written::{self, Admin, Config, Driver, LogFormat, ProxyProtocol, Route};
use crate::config::{Diagnostic, Diagnostics, Gathered, Source};
use crate::filter::{Entry, FilterChain};
use crate::http::HeadLimits;
use crate::limits::*;
use crate::observe::Names;
use crate::observe::access_log::{AccessLogPlan, Format, Target as LogTarget};
use crate::observe::series::EndpointName;
use crate::proxy_protocol::Mode;
use crate::route::{RoutePlan, RouteTable};
use crate::tls::ServerTls;
use crate::upstream::UpstreamPlan;

/// Compiles a TOML text: the snapshot and warnings.
///
/// # Errors
/// Everything that is wrong in it.
pub fn compile(
    text: &str,
    ids: &mut Ids,
    version: u64,
) -> Result<(Snapshot, Diagnostics), Diagnostics> {
    let mut gathered =
        Gathered::from_source(Source::toml("", text), &|name| std::env::var_os(name));
    compile_tree(&gathered.tree, gathered.complete, &mut gathered.decoder, ids, version)
}

/// Compiles a tree, of which `decoder` knows what has been found so far; it is taken from there.
/// Where the tree is not `complete`, nothing is said of what is missing.
///
/// # Errors
/// Everything that is wrong in it.
pub fn compile_tree(
    tree: &Node,
    complete: bool,
    decoder: &mut Decoder,
    ids: &mut Ids,
    version: u64,
) -> Result<(Snapshot, Diagnostics), Diagnostics> {
    ids.begin();
    let before = decoder.found.count();
    let config = Config::decode(tree, decoder);
    let rules: Vec<_> =
        config.routes.iter().map(|route| (route, routes::rule(route, decoder))).collect();
    let filters = filters::Named::decode(&config, ids, decoder);
    if !complete {
        decoder.found.retain_placed(before);
        ids.refuse();
        return Err(take(&mut decoder.found));
    }
    let chain = |(route, rule): &(&Route<'_>, Option<routes::Rule>)| {
        let matcher = rule.as_ref().map(|rule| &rule.matcher);
        filters.chain(&route.id.value, matcher, &route.filters, ids, decoder)
    };
    let chains = rules.iter().map(chain).collect();
    let mut found = take(&mut decoder.found);
    check_addresses(&config, &mut found);
    config.listeners.iter().for_each(|listener| {
        check_head(listener, &mut found);
        check_proxy_protocol(listener, &mut found);
    });
    config.upstreams.iter().for_each(|upstream| {
        let owner = format!("upstream `{}`", upstream.name.value);
        upstreams::check_endpoints(&owner, &upstream.endpoints, &mut found);
        upstreams::check_outgoing(upstream, &mut found);
        upstreams::check_places(upstream, &mut found);
        health::check(upstream, &mut found);
    });
    let whole: Vec<_> = rules.iter().filter_map(|(r, rule)| Some((*r, rule.as_ref()?))).collect();
    rivals::check(&config, &whole, &mut found);
    balance::check(&config, &mut found);
    let mut tls = tls::Compiled::new(&config, ids);
    found.append(take(&mut tls.files.errors));
    if !found.is_empty() {
        ids.refuse();
        return Err(found);
    }
    ids.kept.take_over();
    found.append(upstreams::unused_upstreams(&config));
    rivals::warnings(&whole, &mut found);
    balance::warnings(&config, &whole, &mut found);
    filters.warn(&mut found);
    found.append(take(&mut tls.files.warnings));
    Ok((snapshot(&config, (rules, chains), tls, ids, version), found))
}

/// Two sockets cannot listen on one address, nor on all addresses of a port and on one of them.
fn check_addresses(config: &Config<'_>, found: &mut Diagnostics) {
    let mut seen: HashMap<SocketAddr, Span> = HashMap::new();
    // Those on all addresses, by port.
    let mut all: HashMap<u16, Vec<Listens>> = HashMap::new();
    let everything = listens(config);
    for one in &everything {
        let (address, span) = (one.address, one.span.clone());
        if let IpAddr::V6(ip) = address.ip()
            && let Some(v4) = ip.to_ipv4_mapped()
        {
            let message = format!("{address} is an IPv4 address in IPv6's notation");
            let remedy = format!("write \"{}\"", SocketAddr::from((v4, address.port())));
            found.push(Diagnostic::error(span, message).label("mapped").remedy(remedy));
            continue;
        }
        // Port 0 is a free port, another one each time.
        if address.port() == 0 {
            continue;
        }
        if let Some(first) = seen.insert(address, span.clone()) {
            found.push(
                Diagnostic::error(span, format!("{address} is listened on twice"))
                    .label("the second")
                    .other(first, "the first")
                    .remedy("give each listener, and the admin API, an address of its own"),
            );
        } else if address.ip().is_unspecified() {
            all.entry(address.port()).or_default().push(one.clone());
        }
    }
    for one in &everything {
        let wide = all.get(&one.address.port()).into_iter().flatten();
        for wide in wide.filter(|wide| wide.includes(one)) {
            let (narrow, address) = (one.address, wide.address);
            found.push(
                Diagnostic::error(one.span.clone(), format!("{narrow} is a part of {address}"))
                    .label("one of them")
                    .other(wide.span.clone(), "takes every address of the port")
                    .remedy("leave one of the two out, or give it another port"),
            );
        }
    }
}

/// A socket that the configuration asks for.
#[derive(Clone)]
struct Listens {
    address: SocketAddr,
    span: Span,
    /// Whether on `[::]` it takes IPv4 too.
    both_families: bool,
}

impl Listens {
    /// Whether this one, on all addresses of a port, takes what `other` would listen on.
    fn includes(&self, other: &Listens) -> bool {
        let (mine, its) = (self.address, other.address);
        let both = self.both_families && mine.is_ipv6();
        // The same address twice has been said.
        mine != its && mine.port() == its.port() && (mine.is_ipv6() == its.is_ipv6() || both)
    }
}

/// The admin API's socket, where it has an address, and those of the listeners.
fn listens(config: &Config<'_>) -> Vec<Listens> {
    let admin = config.admin.as_ref().and_then(|admin| match admin {
        Admin::Listen(address) => Some(address),
        Admin::Socket(_) => None,
    });
    let listeners = || config.listeners.iter().map(|listener| &listener.address);
    let with_ipv4: HashSet<u16> = listeners()
        .filter(|written| written.value.is_ipv4())
        .map(|written| written.value.port())
        .collect();
    let listens = |both_families, written: &Spanned<SocketAddr>| Listens {
        address: written.value,
        span: written.span(),
        both_families,
    };
    let listener = |written: &Spanned<SocketAddr>| {
        listens(!with_ipv4.contains(&written.value.port()), written)
    };
    let admin = admin.map(|written| listens(true, written));
    admin.into_iter().chain(listeners().map(listener)).collect()
}

/// A longest target must leave room for the rest of the head.
fn check_head(listener: &written::Listener, found: &mut Diagnostics) {
    let limits = head_limits(listener);
    let Some(uri) = &listener.uri_bytes_max else { return };
    if limits.uri_bytes_max < limits.head_bytes_max {
        return;
    }
    let head = limits.head_bytes_max;
    let error = Diagnostic::error(uri.span(), "`uri_bytes_max` must be below `head_bytes_max`")
        .label(format!("a head has at most {head} bytes"))
        .remedy("lower `uri_bytes_max` or raise `head_bytes_max`: the target is part of the head");
    found.push(match &listener.head_bytes_max {
        Some(given) => error.other(given.span(), "the head"),
        None => error,
    });
}

/// A header that anybody may send names anybody: somebody must be trusted.
fn check_proxy_protocol(listener: &written::Listener, found: &mut Diagnostics) {
    let Some(mode) = &listener.proxy_protocol else { return };
    if mode.value != ProxyProtocol::Off && listener.trusted_proxies.is_empty() {
        let remedy = "add `trusted_proxies`, the addresses of the balancers that send the header";
        found.push(
            Diagnostic::error(mode.span(), "`proxy_protocol` needs `trusted_proxies`")
                .label("no header could be believed")
                .remedy(remedy),
        );
    }
}

/// The routes as written, and what they were read as.
type Rules<'c, 't> = Vec<(&'c Route<'t>, Option<routes::Rule>)>;

/// Everything has been checked: this cannot fail.
fn snapshot(
    config: &Config<'_>,
    (rules, chains): (Rules<'_, '_>, Vec<Arc<FilterChain>>),
    tls: tls::Compiled,
    ids: &mut Ids,
    version: u64,
) -> Snapshot {
    let listeners: Vec<_> = (config.listeners.iter().zip(tls.listeners))
        .map(|(written, tls)| Arc::new(listener(written, tls, ids)))
        .collect();
    let zone = config.runtime.zone.as_deref();
    let upstreams: Vec<_> = (config.upstreams.iter().zip(tls.upstreams))
        .map(|(written, tls)| Arc::new(upstreams::upstream(written, tls, zone, ids)))
        .collect();
    let by_name: HashMap<&str, &UpstreamPlan> =
        upstreams.iter().map(|upstream| (&*upstream.name, &**upstream)).collect();
    let rules = rules.into_iter().filter_map(|(written, rule)| Some((written, rule?)));
    let plans: Vec<Arc<RoutePlan>> = (rules.enumerate())
        .map(|(index, (written, rule))| Arc::new(routes::plan(written, rule, index, &by_name, ids)))
        .collect();
    let filters = each_once(&chains);
    let names = Arc::new(names(&listeners, &upstreams, &plans, &filters));
    let routes = RouteTable::new(plans.iter().cloned());
    let fine_timeouts = listeners
        .iter()
        .flat_map(|l| listener_timeouts(l))
        .chain(upstreams.iter().flat_map(|u| upstreams::upstream_timeouts(u)))
        .chain(config.routes.iter().flat_map(routes::timeouts))
        .any(|timeout_ms| timeout_ms < 1_000);
    let fixed = Fixed {
        version,
        runtime: runtime(&config.runtime),
        admin: match &config.admin {
            Some(Admin::Listen(address)) => AdminPlan::Tcp(address.value),
            Some(Admin::Socket(path)) => AdminPlan::Unix(path.clone()),
            None => AdminPlan::Default,
        },
        access_log: config.access_log.as_ref().map(access_log),
        listeners,
        routes,
        plans,
        chains,
        filters,
        watched: tls.files.watched,
        fine_timeouts,
    };
    Snapshot { fixed: Arc::new(fixed), upstreams, names }
}

/// The labels of metrics.
fn names(
    listeners: &[Arc<ListenerPlan>],
    upstreams: &[Arc<UpstreamPlan>],
    routes: &[Arc<RoutePlan>],
    filters: &[Entry],
) -> Names {
    let mut names = Names::default();
    for listener in listeners {
        names.listeners.set(listener.id.0, Arc::from(&*listener.name));
    }
    for upstream in upstreams {
        names.upstreams.set(upstream.id.0, Arc::from(&*upstream.name));
    }
    names.endpoints = endpoint_names(upstreams);
    for route in routes {
        names.routes.set(route.number.0, Arc::from(&*route.id));
    }
    for entry in filters {
        names.filters.set(entry.id.0, Arc::from(&*entry.name));
    }
    names
}

/// The same of endpoints.
pub(super) fn endpoint_names(upstreams: &[Arc<UpstreamPlan>]) -> ById<EndpointName> {
    let mut names = ById::default();
    for upstream in upstreams {
        let name: Arc<str> = Arc::from(&*upstream.name);
        for endpoint in &upstream.endpoints {
            let address = Arc::from(&*endpoint.authority);
            names.set(endpoint.id.0, EndpointName { upstream: name.clone(), address });
        }
    }
    names
}

fn each_once(chains: &[Arc<FilterChain>]) -> Vec<Entry> {
    let mut seen = HashSet::new();
    let entries = chains.iter().flat_map(|chain| chain.entries());
    entries.filter(|entry| seen.insert(entry.id)).cloned().collect()
}

fn listener_timeouts(plan: &ListenerPlan) -> [u64; 5] {
    [
        plan.head_timeout_ms,
        plan.body_timeout_ms,
        plan.idle_timeout_ms,
        plan.write_timeout_ms,
        plan.handshake_timeout_ms,
    ]
}

fn runtime(written: &written::Runtime) -> RuntimePlan {
    RuntimePlan {
        workers: written.workers,
        driver: match written.driver {
            Driver::Auto => DriverChoice::Auto,
            Driver::IoUring => DriverChoice::IoUring,
            Driver::Epoll => DriverChoice::Epoll,
        },
        connections_max: written.connections_max,
        drain_ms: written.drain_ms.unwrap_or(DRAIN_MS),
        drain_delay_ms: written.drain_delay_ms.unwrap_or(0),
        zone: written.zone.clone(),
    }
}

fn access_log(written: &written::AccessLog) -> AccessLogPlan {
    AccessLogPlan {
        target: written.path.clone().map_or(LogTarget::Stdout, LogTarget::Path),
        format: match written.format {
            LogFormat::Combined => Format::Combined,
            LogFormat::Json => Format::Json,
        },
    }
}

fn head_limits(written: &written::Listener) -> HeadLimits {
    let bytes = |bytes: u64| usize::try_from(bytes).expect("at most HEAD_BYTES_MAX");
    let head = written.head_bytes_max.map_or(HEAD_BYTES_DEFAULT, |given| bytes(given.value));
    let uri = written.uri_bytes_max.map(|given| bytes(given.value));
    HeadLimits {
        head_bytes_max: head,
        headers_max: written.headers_max.unwrap_or(HEADERS_DEFAULT),
        // In a small head the target gets half.
        uri_bytes_max: uri.unwrap_or(URI_BYTES_DEFAULT.min(head / 2)),
    }
}

fn listener(
    written: &written::Listener,
    tls: Option<Arc<ServerTls>>,
    ids: &mut Ids,
) -> ListenerPlan {
    let timeouts = &written.timeouts;
    ListenerPlan {
        id: ids.listener(&written.name.value, written.address.value),
        name: written.name.value.clone(),
        address: written.address.value,
        trusted_proxies: written.trusted_proxies.clone(),
        proxy_protocol: match written.proxy_protocol.as_ref().map(|written| written.value) {
            None | Some(ProxyProtocol::Off) => Mode::Off,
            Some(ProxyProtocol::Optional) => Mode::Optional,
            Some(ProxyProtocol::Required) => Mode::Required,
        },
        head: head_limits(written),
        head_timeout_ms: timeouts.head_ms.unwrap_or(HEAD_TIMEOUT_MS),
        body_timeout_ms: timeouts.body_ms.unwrap_or(BODY_TIMEOUT_MS),
        idle_timeout_ms: timeouts.idle_ms.unwrap_or(IDLE_TIMEOUT_MS),
        write_timeout_ms: timeouts.write_ms.unwrap_or(WRITE_TIMEOUT_MS),
        handshake_timeout_ms: timeouts.handshake_ms.unwrap_or(HANDSHAKE_TIMEOUT_MS),
        tls,
        tcp_keepalive_ms: written.tcp_keepalive_ms,
        via: written.via,
        forwarded: written.forwarded,
        h2c: written.h2c,
        http2: http2(&written.http2),
    }
}

fn http2(written: &written::Http2) -> Http2Plan {
    let default = Http2Plan::default();
    let given = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
    let streams_max = written.streams_max.map(|value| value as u64);
    let mut plan = Http2Plan::new(
        given(streams_max).unwrap_or(default.streams_max),
        given(written.window_bytes).unwrap_or(default.window_bytes),
    );
    if let Some(bytes) = given(written.connection_window_bytes) {
        plan.connection_window_bytes = bytes;
    }
    plan
}
