//! `[upstream.NAME]`

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::super::decode::{Decode, Decoder, Fields};
use super::super::diagnostic::Diagnostic;
use super::super::read::{
    Address, choice, dns_name, duration, endpoint_address, integer, ip_address, keepalive, list,
    resolver_address, spanned, string, timeout,
};
use super::super::tree::{Node, Spanned};
use super::balance::Balance;
use super::{Breaker, Concurrency, Health, Queue, Retry, UpstreamTls, identifier};
use crate::limits::*;

/// `[upstream.NAME]`
#[derive(Clone, Debug)]
pub struct Upstream {
    /// NAME
    pub name: Spanned<Box<str>>,
    /// `balance` and what goes with it.
    pub balance: Balance,
    /// `protocol`
    pub protocol: Spanned<Protocol>,
    /// `endpoints`, and where they stand; none where they are to be found.
    pub endpoints: Spanned<Vec<Endpoint>>,
    /// `discover`, in the place of `endpoints`.
    pub discover: Option<Discover>,
    /// `send_proxy`
    pub send_proxy: Option<Spanned<SendProxy>>,
    /// `source_address`
    pub source_address: Option<Spanned<IpAddr>>,
    /// `tcp_keepalive`, in milliseconds
    pub tcp_keepalive_ms: Option<u64>,
    /// `timeouts`
    pub timeouts: UpstreamTimeouts,
    /// `in_flight_max`
    pub in_flight_max: Option<usize>,
    /// `idle_connections_max`
    pub idle_connections_max: Option<usize>,
    /// `tls`
    pub tls: Option<UpstreamTls>,
    /// `health`
    pub health: Option<Health>,
    /// `breaker`
    pub breaker: Option<Breaker>,
    /// `slow_start`, in milliseconds
    pub slow_start_ms: Option<u64>,
    /// `concurrency`, in the place of `in_flight_max`.
    pub concurrency: Option<Spanned<Concurrency>>,
    /// `queue`, which goes with `in_flight_max`.
    pub queue: Option<Spanned<Queue>>,
    /// `retry`
    pub retry: Option<Retry>,
}

/// `upstream.NAME.protocol`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// "http1"
    #[default]
    Http1,
    /// "http2"
    Http2,
    /// "auto"
    Auto,
}

/// `upstream.NAME.discover`
#[derive(Clone, Debug)]
pub enum Discover {
    /// `srv`, `resolver`
    Srv(Box<str>, Option<SocketAddr>),
    /// `dns`, `resolver`
    Dns(Box<str>, u16, Option<SocketAddr>),
    /// `file`
    File(PathBuf),
}

/// `upstream.NAME.send_proxy`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProxy {
    /// "v1"
    V1,
    /// "v2"
    V2,
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
    /// `tunnel_total`
    pub tunnel_total_ms: Option<u64>,
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

impl Upstream {
    /// Reads it.
    pub(super) fn decode(
        name: Spanned<Box<str>>,
        node: &Node,
        decoder: &mut Decoder,
    ) -> Option<Upstream> {
        let mut f = Fields::of("upstream.NAME", node, decoder)?;
        let balance = Balance::decode(&mut f);
        let protocol = f.optional("protocol", spanned(choice(PROTOCOLS)));
        let protocol = protocol.unwrap_or_else(|| Spanned::new(Protocol::default(), &node.span));
        let members = f.either("endpoints", "discover", |key, node, decoder| match key {
            "endpoints" => Some((endpoints(node, decoder)?, None)),
            _ => {
                let discover = Discover::decode(node, decoder)?;
                Some((Spanned::new(Vec::new(), &node.span), Some(discover)))
            }
        });
        let send_proxy = f.optional("send_proxy", spanned(choice(SEND_PROXY)));
        let source_address = f.optional("source_address", spanned(ip_address));
        let tcp_keepalive_ms = f.optional("tcp_keepalive", keepalive);
        let timeouts = f.optional("timeouts", UpstreamTimeouts::decode);
        let in_flight_max = f.optional("in_flight_max", integer(1..=CONNECTIONS_MAX));
        let idle = f.optional("idle_connections_max", integer(0..=POOL_IDLE_MAX));
        let tls = f.optional("tls", UpstreamTls::decode);
        let health = f.optional("health", Health::decode);
        let breaker = f.optional("breaker", Breaker::decode);
        let slow_start_ms = f.optional("slow_start", duration);
        let concurrency = f.optional("concurrency", spanned(Concurrency::decode));
        let queue = f.optional("queue", spanned(Queue::decode));
        let retry = f.optional("retry", Retry::of_upstream);
        f.finish();
        let (endpoints, discover) = members?;
        Some(Upstream {
            name,
            balance,
            protocol,
            endpoints,
            discover,
            send_proxy,
            source_address,
            tcp_keepalive_ms,
            timeouts: timeouts.unwrap_or_default(),
            in_flight_max,
            idle_connections_max: idle,
            tls,
            health,
            breaker,
            slow_start_ms,
            concurrency,
            queue,
            retry,
        })
    }
}

/// A file of endpoints: `endpoints` as in the configuration, and nothing else.
pub fn endpoints_file(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Vec<Endpoint>>> {
    let mut f = Fields::of("upstream.NAME", node, decoder)?;
    let found = f.required("endpoints", "[{ address = \"127.0.0.1:9001\" }]", endpoints);
    f.finish();
    found
}

fn endpoints(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Vec<Endpoint>>> {
    spanned(list(1..=ENDPOINTS_MAX, Endpoint::decode))(node, decoder)
}

impl Decode for Discover {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Discover> {
        let mut f = Fields::of("upstream.NAME.discover", node, decoder)?;
        let resolver = f.optional("resolver", spanned(resolver_address));
        let asked = resolver.as_ref().map(|resolver| resolver.value);
        let discover = f.one_of(&["dns", "srv", "file"], |key, node, decoder| match key {
            "srv" => Some(Discover::Srv(dns_name(node, decoder)?, asked)),
            "dns" => host_port(node, decoder).map(|(host, port)| Discover::Dns(host, port, asked)),
            _ => {
                let path = string(node, decoder)?;
                Some(Discover::File(decoder.resolve(&node.span, path)))
            }
        });
        if let (Some(Discover::File(_)), Some(resolver)) = (&discover, &resolver) {
            let span = resolver.span();
            f.complain(|_| {
                Diagnostic::error(span, "a file is found without a name server")
                    .label("asked for nothing")
                    .remedy("leave `resolver` out, or give `dns` or `srv` instead of `file`")
            });
        }
        f.finish();
        discover
    }
}

/// A name and a port.
fn host_port(node: &Node, decoder: &mut Decoder) -> Option<(Box<str>, u16)> {
    match endpoint_address(node, decoder)? {
        Address::Name(host, port) => Some((host, port)),
        Address::Socket(_) | Address::Unix(_) => {
            let error = Diagnostic::error(node.span.clone(), "an address needs no look-up");
            let remedy = "write a name and a port, or `endpoints` instead of `discover`";
            decoder.found.push(error.label("not a name").remedy(remedy));
            None
        }
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
            tunnel_total_ms: f.optional("tunnel_total", timeout),
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

const SEND_PROXY: &[(&str, SendProxy)] = &[("v1", SendProxy::V1), ("v2", SendProxy::V2)];
const PROTOCOLS: &[(&str, Protocol)] =
    &[("http1", Protocol::Http1), ("http2", Protocol::Http2), ("auto", Protocol::Auto)];
