//! What the configuration says of an upstream.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::standing::Tallies;
use crate::context::RetryPlan;
use crate::tls::{ClientSettings, ClientTls};

/// Identity of an upstream over reloads: its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub u32);

/// Identity of an endpoint over reloads: upstream, address, protocol and TLS settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u32);

/// A group of endpoints that serve the same.
#[derive(Clone, Debug)]
pub struct UpstreamPlan {
    /// Identity over reloads.
    pub id: UpstreamId,
    /// Name in the configuration, for metrics and messages.
    pub name: Box<str>,
    /// At least one.
    pub endpoints: Vec<EndpointPlan>,
    /// `tls`, where it is spoken.
    pub tls: Option<Arc<ClientTls>>,
    /// `timeouts.connect`
    pub connect_timeout_ms: u64,
    /// `timeouts.response`; a route may override it.
    pub response_timeout_ms: u64,
    /// `timeouts.body`
    pub body_timeout_ms: u64,
    /// `timeouts.idle`: how long an unused connection is kept.
    pub idle_timeout_ms: u64,
    /// `timeouts.tunnel`: how long a tunnel may carry nothing.
    pub tunnel_timeout_ms: u64,
    /// `timeouts.tunnel_total`: how long a tunnel may last.
    pub tunnel_total_timeout_ms: Option<u64>,
    /// `in_flight_max`: requests in flight on this node, none when 0. Divided by the workers.
    pub in_flight_max: usize,
    /// `concurrency`: the least and most of a limit that follows how long answers take; divided too.
    pub concurrency: Option<(usize, usize)>,
    /// `queue.length_max`: requests that may wait beyond them, in the same way.
    pub queue_length_max: usize,
    /// `queue.timeout`
    pub queue_timeout_ms: u64,
    /// `idle_connections_max`: unused connections kept per endpoint and core.
    pub idle_connections_max: usize,
    /// `retry`: what may be tried again.
    pub retry: RetryPlan,
    /// `retry.budget_percent`: retries that a hundred requests pay for.
    pub budget_percent: u32,
}

/// One address of an upstream.
#[derive(Clone, Debug)]
pub struct EndpointPlan {
    /// Identity over reloads.
    pub id: EndpointId,
    /// What the workers count of it, over reloads too.
    pub tallies: Tallies,
    /// Where it is.
    pub address: EndpointAddress,
    /// How TLS is spoken to it, if it is.
    pub tls: Option<ClientSettings>,
    /// What is spoken to it.
    pub protocol: Protocol,
    /// As written, for metrics and messages; see [`EndpointPlan::host`].
    pub authority: Box<str>,
    /// Share of the traffic.
    pub weight: u32,
    /// `zone`, where given.
    pub zone: Option<Box<str>>,
}

impl EndpointPlan {
    /// The Host of requests that came without one; a socket's path is not a host.
    pub fn host(&self) -> &str {
        match self.address {
            EndpointAddress::Unix(_) => "localhost",
            EndpointAddress::Socket(_) | EndpointAddress::Name(..) => &self.authority,
        }
    }
}

/// What is spoken to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1
    #[default]
    Http1,
    /// HTTP/2, without asking on clear text (RFC 9113 section 3.3).
    Http2,
    /// Over TLS what the endpoint chooses (ALPN), HTTP/1.1 on clear text.
    Auto,
}

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndpointAddress {
    /// An address.
    Socket(SocketAddr),
    /// A name, resolved off the workers and refreshed.
    Name(Box<str>, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointAddress::Socket(address) => write!(f, "{address}"),
            EndpointAddress::Name(host, port) => write!(f, "{host}:{port}"),
            EndpointAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
