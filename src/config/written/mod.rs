//! The configuration as it is written, section by section (docs/configuration.md).

pub mod balance;
pub mod health;
pub mod queue;
pub mod retry;
pub mod route;
pub mod tls;
pub mod upstream;

pub use health::{Breaker, Health, HealthKind, Tier};
pub use queue::{Concurrency, Queue};
pub use retry::{Retry, Trigger};
pub use route::{Action, Matcher, PathPolicy, Route, Treatment};
pub use tls::{Alpn, ClientAuth, KeyPair, ListenerTls, TlsVersion, UpstreamTls};
pub use upstream::{
    Discover, Endpoint, Protocol, SendProxy, Upstream, UpstreamTimeouts, endpoints_file,
};

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::decode::{Decode, Decoder, Fields, mismatch, named};
use super::diagnostic::Diagnostic;
use super::read::{
    boolean, choice, duration, integer, keepalive, list, network, size, socket_address,
    socket_path, spanned, string, timeout,
};
use super::tree::{Node, Spanned, Value};
use crate::limits::*;

/// A whole file.
#[derive(Clone, Debug, Default)]
pub struct Config<'t> {
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
    pub routes: Vec<Route<'t>>,
    /// `[filter.NAME]`: a table stays a node until its filter reads it.
    pub filters: Vec<(Spanned<Box<str>>, &'t Node)>,
    /// `[access_log]`
    pub access_log: Option<AccessLog>,
}

/// `[access_log]`
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// `path`; none is standard output.
    pub path: Option<PathBuf>,
    /// `format`
    pub format: LogFormat,
}

/// `access_log.format`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// "combined"
    #[default]
    Combined,
    /// "json"
    Json,
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
    /// `zone`
    pub zone: Option<Box<str>>,
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
    /// `proxy_protocol`
    pub proxy_protocol: Option<Spanned<ProxyProtocol>>,
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
    /// `tls`
    pub tls: Option<ListenerTls>,
    /// `tcp_keepalive`, in milliseconds
    pub tcp_keepalive_ms: Option<u64>,
    /// `h2c`
    pub h2c: bool,
    /// `http2`
    pub http2: Http2,
}

/// `listener.NAME.http2`
#[derive(Clone, Debug, Default)]
pub struct Http2 {
    /// `streams_max`
    pub streams_max: Option<usize>,
    /// `window`, in bytes
    pub window_bytes: Option<u64>,
    /// `connection_window`, in bytes
    pub connection_window_bytes: Option<u64>,
}

/// `listener.NAME.proxy_protocol`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// "off"
    Off,
    /// "optional"
    Optional,
    /// "required"
    Required,
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
    /// `handshake`
    pub handshake_ms: Option<u64>,
}

impl<'t> Config<'t> {
    /// Reads a file, as far as it can be read; what is wrong stands in `decoder`.
    pub fn decode(node: &'t Node, decoder: &mut Decoder) -> Config<'t> {
        let mut config = Config::default();
        let Some(mut f) = Fields::of("", node, decoder) else { return config };
        // Followed before files are decoded.
        f.optional("include", |_, _| Some(()));
        config.runtime = f.optional("runtime", Runtime::decode).unwrap_or_default();
        config.admin = f.optional("admin", Admin::decode);
        let listeners = f.optional("listener", |node, decoder| Some(named(node, decoder)));
        let upstreams = f.optional("upstream", |node, decoder| Some(named(node, decoder)));
        let filters = f.optional("filter", |node, decoder| Some(named(node, decoder)));
        let routes = f.optional("route", routes);
        config.access_log = f.optional("access_log", AccessLog::decode);
        f.finish();
        config.filters = filters.unwrap_or_default();

        for (present, what, example) in [
            (listeners.as_ref().is_some_and(|l| !l.is_empty()), "listener", "[listener.public]"),
            (upstreams.as_ref().is_some_and(|u| !u.is_empty()), "upstream", "[upstream.main]"),
            (routes.is_some_and(|r| !r.is_empty()), "route", "[[route]]"),
        ] {
            // One of the wrong type is there, and what is wrong with it has been said.
            if !present && !is_malformed(node, what) {
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

/// Whether a section is there and is not what it should be: an array of tables for routes, a table
/// for the others.
fn is_malformed(config: &Node, section: &str) -> bool {
    let Value::Table(entries) = &config.value else { return false };
    let found = entries.iter().find(|entry| &*entry.key == section).map(|entry| &entry.value.value);
    match found {
        Some(Value::Array(_)) => section != "route",
        Some(Value::Table(_)) => section == "route",
        Some(_) => true,
        None => false,
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
            zone: f.optional("zone", |node, decoder| identifier(node, NAME_BYTES_MAX, decoder)),
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

impl Decode for AccessLog {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<AccessLog> {
        let mut f = Fields::of("access_log", node, decoder)?;
        let path = f.required("path", "\"/var/log/ringway/access.log\"", log_path);
        let format = f.optional("format", choice(LOG_FORMATS)).unwrap_or_default();
        f.finish();
        Some(AccessLog { path: path?, format })
    }
}

/// A file, or "stdout".
fn log_path(node: &Node, decoder: &mut Decoder) -> Option<Option<PathBuf>> {
    let text = string(node, decoder)?;
    if text == "stdout" {
        return Some(None);
    }
    if text.starts_with('/') && !text.ends_with('/') && !text.contains('\0') {
        return Some(Some(text.into()));
    }
    let message = format!("`{}` is not the path of a log", text.escape_debug());
    let remedy = "write \"stdout\", or an absolute path such as \"/var/log/ringway/access.log\"";
    decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
    None
}

impl Listener {
    fn decode(name: Spanned<Box<str>>, node: &Node, decoder: &mut Decoder) -> Option<Listener> {
        let mut f = Fields::of("listener.NAME", node, decoder)?;
        let address = f.required("address", "\"0.0.0.0:8080\"", spanned(socket_address));
        let proxies = f.optional("trusted_proxies", list(0..=TRUSTED_PROXIES_MAX, network));
        let proxy_protocol = f.optional("proxy_protocol", spanned(choice(PROXY_PROTOCOLS)));
        let head = size(HEAD_BYTES_MIN as u64..=HEAD_BYTES_MAX as u64);
        let uri = size(URI_BYTES_MIN as u64..=HEAD_BYTES_MAX as u64);
        let timeouts = f.optional("timeouts", ListenerTimeouts::decode);
        let head_bytes_max = f.optional("head_bytes_max", spanned(head));
        let headers_max = f.optional("headers_max", integer(1..=HEADERS_MAX));
        let uri_bytes_max = f.optional("uri_bytes_max", spanned(uri));
        let via = f.optional("via", boolean);
        let forwarded = f.optional("forwarded", boolean);
        let tls = f.optional("tls", ListenerTls::decode);
        let tcp_keepalive_ms = f.optional("tcp_keepalive", keepalive);
        let h2c = f.optional("h2c", boolean);
        let http2 = f.optional("http2", Http2::decode);
        f.finish();
        Some(Listener {
            name,
            address: address?,
            trusted_proxies: proxies.unwrap_or_default(),
            proxy_protocol,
            timeouts: timeouts.unwrap_or_default(),
            head_bytes_max,
            headers_max,
            uri_bytes_max,
            via: via.unwrap_or(false),
            forwarded: forwarded.unwrap_or(false),
            tls,
            tcp_keepalive_ms,
            h2c: h2c.unwrap_or(false),
            http2: http2.unwrap_or_default(),
        })
    }
}

impl Decode for Http2 {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Http2> {
        let mut f = Fields::of("listener.NAME.http2", node, decoder)?;
        let (least, most) = HTTP2_WINDOW_BYTES_RANGE;
        let http2 = Http2 {
            streams_max: f.optional("streams_max", integer(1..=HTTP2_STREAMS_MAX)),
            window_bytes: f.optional("window", size(least..=most)),
            connection_window_bytes: f.optional("connection_window", size(least..=most)),
        };
        f.finish();
        Some(http2)
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
            handshake_ms: f.optional("handshake", timeout),
        };
        f.finish();
        Some(timeouts)
    }
}

/// A word for logs and labels: printable ASCII without spaces.
pub(super) fn identifier(node: &Node, bytes_max: usize, decoder: &mut Decoder) -> Option<Box<str>> {
    let text = string(node, decoder)?;
    if (1..=bytes_max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Some(text.into());
    }
    let message = format!("`{}` cannot be used as a name", text.escape_debug());
    let remedy = format!("write 1 to {bytes_max} printable ASCII characters without spaces");
    decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
    None
}

const DRIVERS: &[(&str, Driver)] =
    &[("auto", Driver::Auto), ("io_uring", Driver::IoUring), ("epoll", Driver::Epoll)];
const PROXY_PROTOCOLS: &[(&str, ProxyProtocol)] = &[
    ("off", ProxyProtocol::Off),
    ("optional", ProxyProtocol::Optional),
    ("required", ProxyProtocol::Required),
];
const LOG_FORMATS: &[(&str, LogFormat)] =
    &[("combined", LogFormat::Combined), ("json", LogFormat::Json)];
