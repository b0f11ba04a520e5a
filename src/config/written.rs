//! The configuration as it is written, section by section (docs/configuration.md).

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::decode::{Decode, Decoder, Fields, mismatch, named};
use super::diagnostic::Diagnostic;
use super::read::{
    Address, boolean, choice, duration, endpoint_address, integer, list, network, size,
    socket_address, socket_path, spanned, string, timeout,
};
use super::tree::{Node, Spanned, Value};
use crate::limits::*;

/// A whole file.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `[runtime]`
    pub runtime: Runtime,
    /// `[admin]`
    pub admin: Option<Admin>,
    /// `[listener.NAME]`, those that could be read.
    pub listeners: Vec<Listener>,
    /// `[upstream.NAME]`, those that could be read.
    pub upstreams: Vec<Upstream>,
    /// The names of all upstreams: a broken one is not a missing one.
    pub upstream_names: Vec<Box<str>>,
    /// `[[route]]`, those that could be read, in the order of the file.
    pub routes: Vec<Route>,
}

/// `[runtime]`
#[derive(Clone, Debug, Default)]
pub struct Runtime {
    /// `workers`; none is "auto".
    pub workers: Option<usize>,
    /// `driver`
    pub driver: Driver,
    /// `connections_max`
    pub connections_max: Option<usize>,
    /// `drain`
    pub drain_ms: Option<u64>,
    /// `drain_delay`
    pub drain_delay_ms: Option<u64>,
}

/// `runtime.driver`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// "auto"
    #[default]
    Auto,
    /// "io_uring"
    IoUring,
    /// "epoll"
    Epoll,
}

/// `[admin]`: one of its two keys.
#[derive(Clone, Debug)]
pub enum Admin {
    /// `listen`
    Listen(Spanned<SocketAddr>),
    /// `socket`
    Socket(PathBuf),
}

/// `[listener.NAME]`
#[derive(Clone, Debug)]
pub struct Listener {
    /// NAME
    pub name: Spanned<Box<str>>,
    /// `address`
    pub address: Spanned<SocketAddr>,
    /// `trusted_proxies`
    pub trusted_proxies: Vec<IpNet>,
    /// `timeouts`
    pub timeouts: ListenerTimeouts,
    /// `head_bytes_max`
    pub head_bytes_max: Option<Spanned<u64>>,
    /// `headers_max`
    pub headers_max: Option<usize>,
    /// `uri_bytes_max`
    pub uri_bytes_max: Option<Spanned<u64>>,
    /// `via`
    pub via: bool,
    /// `forwarded`
    pub forwarded: bool,
}

/// `listener.NAME.timeouts`, in milliseconds
#[derive(Clone, Debug, Default)]
pub struct ListenerTimeouts {
    /// `head`
    pub head_ms: Option<u64>,
    /// `body`
    pub body_ms: Option<u64>,
    /// `idle`
    pub idle_ms: Option<u64>,
    /// `write`
    pub write_ms: Option<u64>,
}

/// `[upstream.NAME]`
#[derive(Clone, Debug)]
pub struct Upstream {
    /// NAME
    pub name: Spanned<Box<str>>,
    /// `endpoints`, and where they stand.
    pub endpoints: Spanned<Vec<Endpoint>>,
    /// `timeouts`
    pub timeouts: UpstreamTimeouts,
    /// `in_flight_max`
    pub in_flight_max: Option<usize>,
    /// `idle_connections_max`
    pub idle_connections_max: Option<usize>,
}

/// `upstream.NAME.timeouts`, in milliseconds
#[derive(Clone, Debug, Default)]
pub struct UpstreamTimeouts {
    /// `connect`
    pub connect_ms: Option<u64>,
    /// `response`
    pub response_ms: Option<u64>,
    /// `body`
    pub body_ms: Option<u64>,
    /// `idle`
    pub idle_ms: Option<u64>,
    /// `tunnel`
    pub tunnel_ms: Option<u64>,
}

/// One of `upstream.NAME.endpoints`
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `address`
    pub address: Spanned<Address>,
    /// `address`, as written.
    pub written: Box<str>,
    /// `weight`
    pub weight: Option<usize>,
    /// `zone`
    pub zone: Option<Box<str>>,
}

/// `[[route]]`
#[derive(Clone, Debug)]
pub struct Route {
    /// `id`
    pub id: Spanned<Box<str>>,
    /// `path` or `prefix`
    pub matcher: Spanned<Matcher>,
    /// `upstream`
    pub upstream: Spanned<Box<str>>,
    /// `skip_segments`
    pub skip_segments: usize,
    /// `body_bytes_max`
    pub body_bytes_max: Option<u64>,
    /// `timeouts.response`
    pub response_ms: Option<u64>,
    /// `timeouts.total`
    pub total_ms: Option<u64>,
    /// `path_policy`
    pub path_policy: PathPolicy,
}

/// `path` or `prefix` of a route
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// `path`
    Path(Box<str>),
    /// `prefix`
    Prefix(Box<str>),
}

/// `route.path_policy`
#[derive(Clone, Copy, Debug, Default)]
pub struct PathPolicy {
    /// `encoded_slash`
    pub encoded_slash: Option<Treatment>,
    /// `backslash`
    pub backslash: Option<Treatment>,
    /// `dot_dot_semicolon`
    pub dot_dot_semicolon: Option<Treatment>,
    /// `nul`
    pub nul: Option<Treatment>,
}

/// "keep" or "refuse"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Passed as sent.
    Keep,
    /// 400.
    Refuse,
}

impl Config {
    /// Reads a file, as far as it can be read; what is wrong stands in `decoder`.
    pub fn decode(node: &Node, decoder: &mut Decoder) -> Config {
        let mut config = Config::default();
        let Some(mut f) = Fields::of("", node, decoder) else { return config };
        // Followed before files are decoded.
        f.optional("include", |_, _| Some(()));
        config.runtime = f.optional("runtime", Runtime::decode).unwrap_or_default();
        config.admin = f.optional("admin", Admin::decode);
        let listeners = f.optional("listener", |node, decoder| Some(named(node, decoder)));
        let upstreams = f.optional("upstream", |node, decoder| Some(named(node, decoder)));
        let routes = f.optional("route", routes);
        f.finish();

        for (present, what, example) in [
            (listeners.as_ref().is_some_and(|l| !l.is_empty()), "listener", "[listener.public]"),
            (upstreams.as_ref().is_some_and(|u| !u.is_empty()), "upstream", "[upstream.main]"),
            (routes.is_some_and(|r| !r.is_empty()), "route", "[[route]]"),
        ] {
            if !present {
                let message = format!("there is no {what}: nothing could be served");
                let remedy = format!("add {example}");
                decoder.found.push(Diagnostic::whole_file(message).remedy(remedy));
            }
        }
        for (name, node) in listeners.unwrap_or_default() {
            config.listeners.extend(Listener::decode(name, node, decoder));
        }
        for (name, node) in upstreams.unwrap_or_default() {
            config.upstream_names.push(name.value.clone());
            config.upstreams.extend(Upstream::decode(name, node, decoder));
        }
        for node in routes.unwrap_or_default() {
            config.routes.extend(Route::decode(node, decoder));
        }
        config
    }
}

fn routes<'a>(node: &'a Node, decoder: &mut Decoder) -> Option<&'a [Node]> {
    if let Value::Array(nodes) = &node.value {
        return Some(nodes);
    }
    decoder.found.push(mismatch(node, "an array of tables").remedy("write [[route]]"));
    None
}

impl Decode for Runtime {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Runtime> {
        let mut f = Fields::of("runtime", node, decoder)?;
        let runtime = Runtime {
            workers: f.optional("workers", workers).flatten(),
            driver: f.optional("driver", choice(DRIVERS)).unwrap_or_default(),
            connections_max: f.optional("connections_max", integer(1..=CONNECTIONS_MAX)),
            drain_ms: f.optional("drain", duration),
            drain_delay_ms: f.optional("drain_delay", duration),
        };
        f.finish();
        Some(runtime)
    }
}

fn workers(node: &Node, decoder: &mut Decoder) -> Option<Option<usize>> {
    match &node.value {
        Value::String(text) if &**text == "auto" => Some(None),
        Value::Integer(_) => integer(1..=WORKERS_MAX)(node, decoder).map(Some),
        Value::String(_) if node.written.is_some() => {
            integer(1..=WORKERS_MAX)(node, decoder).map(Some)
        }
        _ => {
            let remedy = format!("write \"auto\" or a number from 1 to {WORKERS_MAX}, unquoted");
            decoder.found.push(mismatch(node, "\"auto\" or a number").remedy(remedy));
            None
        }
    }
}

impl Decode for Admin {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Admin> {
        let mut f = Fields::of("admin", node, decoder)?;
        let admin = f.either("listen", "socket", |key, node, decoder| match key {
            "listen" => spanned(socket_address)(node, decoder).map(Admin::Listen),
            _ => socket_path(node, decoder).map(Admin::Socket),
        });
        f.finish();
        admin
    }
}

impl Listener {
    fn decode(name: Spanned<Box<str>>, node: &Node, decoder: &mut Decoder) -> Option<Listener> {
        let mut f = Fields::of("listener.NAME", node, decoder)?;
        let address = f.required("address", "\"0.0.0.0:8080\"", spanned(socket_address));
        let proxies = f.optional("trusted_proxies", list(0..=TRUSTED_PROXIES_MAX, network));
        let head = size(HEAD_BYTES_MIN as u64..=HEAD_BYTES_MAX as u64);
        let uri = size(URI_BYTES_MIN as u64..=HEAD_BYTES_MAX as u64);
        let timeouts = f.optional("timeouts", ListenerTimeouts::decode);
        let head_bytes_max = f.optional("head_bytes_max", spanned(head));
        let headers_max = f.optional("headers_max", integer(1..=HEADERS_MAX));
        let uri_bytes_max = f.optional("uri_bytes_max", spanned(uri));
        let via = f.optional("via", boolean);
        let forwarded = f.optional("forwarded", boolean);
        f.finish();
        Some(Listener {
            name,
            address: address?,
            trusted_proxies: proxies.unwrap_or_default(),
            timeouts: timeouts.unwrap_or_default(),
            head_bytes_max,
            headers_max,
            uri_bytes_max,
            via: via.unwrap_or(false),
            forwarded: forwarded.unwrap_or(false),
        })
    }
}

impl Decode for ListenerTimeouts {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<ListenerTimeouts> {
        let mut f = Fields::of("listener.NAME.timeouts", node, decoder)?;
        let timeouts = ListenerTimeouts {
            head_ms: f.optional("head", timeout),
            body_ms: f.optional("body", timeout),
            idle_ms: f.optional("idle", timeout),
            write_ms: f.optional("write", timeout),
        };
        f.finish();
        Some(timeouts)
    }
}

impl Upstream {
    fn decode(name: Spanned<Box<str>>, node: &Node, decoder: &mut Decoder) -> Option<Upstream> {
        let mut f = Fields::of("upstream.NAME", node, decoder)?;
        f.optional("balance", choice(&[("round_robin", ())]));
        let example = "[{ address = \"127.0.0.1:9001\" }]";
        let endpoints =
            f.required("endpoints", example, spanned(list(1..=ENDPOINTS_MAX, Endpoint::decode)));
        let timeouts = f.optional("timeouts", UpstreamTimeouts::decode);
        let in_flight_max = f.optional("in_flight_max", integer(1..=CONNECTIONS_MAX));
        let idle = f.optional("idle_connections_max", integer(0..=POOL_IDLE_MAX));
        f.finish();
        Some(Upstream {
            name,
            endpoints: endpoints?,
            timeouts: timeouts.unwrap_or_default(),
            in_flight_max,
            idle_connections_max: idle,
        })
    }
}

impl Decode for UpstreamTimeouts {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<UpstreamTimeouts> {
        let mut f = Fields::of("upstream.NAME.timeouts", node, decoder)?;
        let timeouts = UpstreamTimeouts {
            connect_ms: f.optional("connect", timeout),
            response_ms: f.optional("response", timeout),
            body_ms: f.optional("body", timeout),
            idle_ms: f.optional("idle", timeout),
            tunnel_ms: f.optional("tunnel", timeout),
        };
        f.finish();
        Some(timeouts)
    }
}

impl Decode for Endpoint {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Endpoint> {
        let mut f = Fields::of("upstream.NAME.endpoints", node, decoder)?;
        let address = f.required("address", "\"127.0.0.1:9001\"", |node, decoder| {
            let address = spanned(endpoint_address)(node, decoder)?;
            Some((address, string(node, decoder)?))
        });
        let weight = f.optional("weight", integer(0..=WEIGHT_MAX as usize));
        let zone = f.optional("zone", |node, decoder| identifier(node, NAME_BYTES_MAX, decoder));
        f.finish();
        let (address, written) = address?;
        Some(Endpoint { address, written: written.into(), weight, zone })
    }
}

impl Decode for Route {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Route> {
        let mut f = Fields::of("route", node, decoder)?;
        let id = f.required(
            "id",
            "\"NAME\"",
            spanned(|node, decoder| identifier(node, ROUTE_ID_BYTES_MAX, decoder)),
        );
        let matcher = f.either("path", "prefix", |key, node, decoder| {
            let path = path(node, decoder)?;
            let kind = if key == "path" { Matcher::Path } else { Matcher::Prefix };
            Some(Spanned::new(kind(path), &node.span))
        });
        let upstream = f.required("upstream", "\"NAME\"", |node, decoder| {
            Some(Spanned::new(Box::from(string(node, decoder)?), &node.span))
        });
        let skip_segments = f.optional("skip_segments", integer(0..=SKIP_SEGMENTS_MAX));
        let body_bytes_max = f.optional("body_bytes_max", size(0..=i64::MAX as u64));
        let timeouts = f.optional("timeouts", route_timeouts);
        let path_policy = f.optional("path_policy", PathPolicy::decode);
        f.finish();
        let (response_ms, total_ms) = timeouts.unwrap_or_default();
        Some(Route {
            id: id?,
            matcher: matcher?,
            upstream: upstream?,
            skip_segments: skip_segments.unwrap_or(0),
            body_bytes_max,
            response_ms,
            total_ms,
            path_policy: path_policy.unwrap_or_default(),
        })
    }
}

fn route_timeouts(node: &Node, decoder: &mut Decoder) -> Option<(Option<u64>, Option<u64>)> {
    let mut f = Fields::of("route.timeouts", node, decoder)?;
    let timeouts = (f.optional("response", timeout), f.optional("total", timeout));
    f.finish();
    Some(timeouts)
}

impl Decode for PathPolicy {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<PathPolicy> {
        let mut f = Fields::of("route.path_policy", node, decoder)?;
        let policy = PathPolicy {
            encoded_slash: f.optional("encoded_slash", choice(TREATMENTS)),
            backslash: f.optional("backslash", choice(TREATMENTS)),
            dot_dot_semicolon: f.optional("dot_dot_semicolon", choice(TREATMENTS)),
            nul: f.optional("nul", choice(TREATMENTS)),
        };
        f.finish();
        Some(policy)
    }
}

/// A word for logs and labels: printable ASCII without spaces.
fn identifier(node: &Node, bytes_max: usize, decoder: &mut Decoder) -> Option<Box<str>> {
    let text = string(node, decoder)?;
    if (1..=bytes_max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Some(text.into());
    }
    let message = format!("`{}` cannot be used as a name", text.escape_debug());
    let remedy = format!("write 1 to {bytes_max} printable ASCII characters without spaces");
    decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
    None
}

/// A path in the form that requests have after normalisation: any other would never match.
fn path(node: &Node, decoder: &mut Decoder) -> Option<Box<str>> {
    let text = string(node, decoder)?;
    let odd = |b: u8| !b.is_ascii_graphic() || b"%?#\\".contains(&b);
    let remedy = if !text.starts_with('/') {
        "begin with \"/\""
    } else if text.contains("//") {
        "write one slash: requests are normalised before they are routed"
    } else if text.split('/').any(|segment| segment == "." || segment == "..") {
        "leave out the dot segments: requests are normalised before they are routed"
    } else if text.bytes().any(odd) {
        "write printable ASCII without spaces, \"%\", \"?\", \"#\" and \"\\\""
    } else {
        return Some(text.into());
    };
    let message = format!("no request has the path `{}`", text.escape_debug());
    decoder.found.push(
        Diagnostic::error(node.span.clone(), message).label("not in normal form").remedy(remedy),
    );
    None
}

const DRIVERS: &[(&str, Driver)] =
    &[("auto", Driver::Auto), ("io_uring", Driver::IoUring), ("epoll", Driver::Epoll)];
const TREATMENTS: &[(&str, Treatment)] =
    &[("keep", Treatment::Keep), ("refuse", Treatment::Refuse)];
