//! `[upstream.NAME]`

use super::super::decode::{Decode, Decoder, Fields};
use super::super::read::{
    Address, choice, endpoint_address, integer, list, spanned, string, timeout,
};
use super::super::tree::{Node, Spanned};
use super::{Concurrency, Queue, Retry, UpstreamTls, identifier};
use crate::limits::*;

/// `[upstream.NAME]`
#[derive(Clone, Debug)]
pub struct Upstream {
    /// NAME
    pub name: Spanned<Box<str>>,
    /// `protocol`
    pub protocol: Protocol,
    /// `endpoints`, and where they stand.
    pub endpoints: Spanned<Vec<Endpoint>>,
    /// `timeouts`
    pub timeouts: UpstreamTimeouts,
    /// `in_flight_max`
    pub in_flight_max: Option<usize>,
    /// `idle_connections_max`
    pub idle_connections_max: Option<usize>,
    /// `tls`
    pub tls: Option<UpstreamTls>,
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
        f.optional("balance", choice(&[("round_robin", ())]));
        let protocol = f.optional("protocol", choice(PROTOCOLS)).unwrap_or_default();
        let example = "[{ address = \"127.0.0.1:9001\" }]";
        let endpoints =
            f.required("endpoints", example, spanned(list(1..=ENDPOINTS_MAX, Endpoint::decode)));
        let timeouts = f.optional("timeouts", UpstreamTimeouts::decode);
        let in_flight_max = f.optional("in_flight_max", integer(1..=CONNECTIONS_MAX));
        let idle = f.optional("idle_connections_max", integer(0..=POOL_IDLE_MAX));
        let tls = f.optional("tls", UpstreamTls::decode);
        let concurrency = f.optional("concurrency", spanned(Concurrency::decode));
        let queue = f.optional("queue", spanned(Queue::decode));
        let retry = f.optional("retry", Retry::of_upstream);
        f.finish();
        Some(Upstream {
            name,
            protocol,
            endpoints: endpoints?,
            timeouts: timeouts.unwrap_or_default(),
            in_flight_max,
            idle_connections_max: idle,
            tls,
            concurrency,
            queue,
            retry,
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

const PROTOCOLS: &[(&str, Protocol)] =
    &[("http1", Protocol::Http1), ("http2", Protocol::Http2), ("auto", Protocol::Auto)];
