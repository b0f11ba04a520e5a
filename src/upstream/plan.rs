//! What the configuration says of an upstream.

pub mod balance;
pub mod health;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub use balance::{BalancePlan, HashPlan, ShardPlan, StickyPlan, Token};
pub use health::{BreakerPlan, Check, EndpointBreaker, HealthPlan, HttpCheck};

use super::discover::Discover;
use super::standing::Tallies;
use crate::context::RetryPlan;
use crate::io::connect::SocketOptions;
use crate::proxy_protocol::Version;
use crate::tls::{ClientSettings, ClientTls};

/// Identity of an upstream over reloads: its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub u32);

/// Identity of an endpoint over reloads: upstream, address, protocol, TLS settings with the name that
/// its certificate is for, and how connections to it are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u32);

/// A group of endpoints that serve the same.
#[derive(Clone, Debug)]
pub struct UpstreamPlan {
    /// Identity over reloads.
    pub id: UpstreamId,
    /// Name in the configuration, for metrics and messages.
    pub name: Box<str>,
    /// Where they are found, if they are not written in the configuration.
    pub discover: Option<Discover>,
    /// At least one, unless they are to be found and none has been yet.
    pub endpoints: Vec<EndpointPlan>,
    /// What is spoken to them.
    pub protocol: Protocol,
    /// How connections to them are made.
    pub outgoing: Outgoing,
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
    /// `balance` and what goes with it.
    pub balance: Arc<BalancePlan>,
    /// `health`: active checks, where there are any.
    pub health: Option<HealthPlan>,
    /// `breaker`
    pub breaker: BreakerPlan,
    /// `slow_start`: how long what comes back takes to its whole share; 0 is no time.
    pub slow_start_ms: u64,
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
    /// How connections to it are made.
    pub outgoing: Outgoing,
    /// As written, for metrics and messages; see [`EndpointPlan::host`].
    pub authority: Box<str>,
    /// Share of the traffic.
    pub weight: u32,
    /// `zone`, where given.
    pub zone: Option<Box<str>>,
    /// That of its SRV record, else 0: it stands in for endpoints with lower numbers (RFC 2782).
    pub priority: u16,
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

/// How connections to an endpoint are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// `send_proxy`: the header that each begins with. It names one client, so that such a connection is
    /// never lent to another (docs/decisions/0019).
    pub send_proxy: Option<Version>,
    /// `source_address`, `tcp_keepalive`
    pub socket: SocketOptions,
}

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
