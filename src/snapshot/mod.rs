//! What runs: the configuration compiled into plans.
//!
//! A snapshot holds plans only and is shared by all threads; what changes while they run lives in
//! `state`.

pub mod compile;
pub mod explain;
pub mod ids;
pub mod load;

mod filters;
mod rivals;
mod routes;
mod tls;
mod upstreams;

pub use compile::{compile, compile_tree};
pub use ids::{Ids, ListenerId};
pub use load::{Loaded, Rejected, effective, load, load_again, load_source, load_text};

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;

use crate::filter::{Entry, FilterChain};
use crate::http::HeadLimits;
pub use crate::http2::Http2Plan;
pub use crate::io::driver::DriverChoice;
use crate::observe::Names;
use crate::observe::access_log::AccessLogPlan;
use crate::proxy_protocol::Mode;
use crate::route::{RoutePlan, RouteTable};
use crate::tls::{ServerTls, Watched};
use crate::upstream::UpstreamPlan;

/// One compiled configuration.
#[derive(Debug)]
pub struct Snapshot {
    /// Number of this configuration within the process, from 1.
    pub version: u64,
    /// Which threads run, on which driver.
    pub runtime: RuntimePlan,
    /// Where the admin API listens.
    pub admin: AdminPlan,
    /// Where a line for each request goes, if anywhere.
    pub access_log: Option<AccessLogPlan>,
    /// Where clients connect.
    pub listeners: Vec<Arc<ListenerPlan>>,
    /// Where requests go.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// Which request goes where.
    pub routes: RouteTable,
    /// The routes in the order of the configuration: [`RoutePlan::index`].
    pub plans: Vec<Arc<RoutePlan>>,
    /// Their filters, in the same order.
    pub chains: Vec<Arc<FilterChain>>,
    /// Every filter that a route has, once.
    pub filters: Vec<Entry>,
    /// What metrics call its parts.
    pub names: Arc<Names>,
    /// The files of its certificates, as they stood when they were read.
    pub watched: Vec<Watched>,
    /// Whether any timeout is below a second, so that sweeps must be fine.
    pub fine_timeouts: bool,
}

/// `[runtime]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimePlan {
    /// `workers`: none is one for each core that the process may use.
    pub workers: Option<usize>,
    /// `driver`
    pub driver: DriverChoice,
    /// `connections_max`: of the whole process; none is what the descriptors allow.
    pub connections_max: Option<usize>,
    /// `drain`: how long a drain may last.
    pub drain_ms: u64,
    /// `drain_delay`: how long to go on accepting while `ready` says no.
    pub drain_delay_ms: u64,
}

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminPlan {
    /// `listen = "address"`
    Tcp(SocketAddr),
    /// `socket = "path"`
    Unix(PathBuf),
    /// Not given: a socket named by process id.
    Default,
}

/// `[listener.NAME]`
#[derive(Clone, Debug)]
pub struct ListenerPlan {
    /// Its identity, which outlives reloads.
    pub id: ListenerId,
    /// Name in the configuration.
    pub name: Box<str>,
    /// Where it listens.
    pub address: SocketAddr,
    /// Peers whose forwarding fields are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// `proxy_protocol`
    pub proxy_protocol: Mode,
    /// `head_bytes_max`, `headers_max`, `uri_bytes_max`
    pub head: HeadLimits,
    /// `timeouts.head`
    pub head_timeout_ms: u64,
    /// `timeouts.body`
    pub body_timeout_ms: u64,
    /// `timeouts.idle`
    pub idle_timeout_ms: u64,
    /// `timeouts.write`
    pub write_timeout_ms: u64,
    /// `timeouts.handshake`
    pub handshake_timeout_ms: u64,
    /// `tls`, for listeners whose clients speak it.
    pub tls: Option<Arc<ServerTls>>,
    /// `via`: whether to add Via (RFC 9110 section 7.6.3).
    pub via: bool,
    /// `forwarded`: whether to add Forwarded (RFC 7239).
    pub forwarded: bool,
    /// `h2c`: whether HTTP/2 is understood without TLS, by its preface.
    pub h2c: bool,
    /// `http2`
    pub http2: Http2Plan,
}

impl ListenerPlan {
    /// Whether the sockets of this listener serve for `other` too, so that nobody who connects
    /// notices: they have the same address, and no system chose its port.
    pub fn hands_over_to(&self, other: &ListenerPlan) -> bool {
        self.address == other.address && self.address.port() != 0
    }

    /// Whether it lets in whom it let in as it was `before`: asks of clients what it asked then, and
    /// understands what they may have begun to speak.
    pub fn lets_in_whom(&self, before: &ListenerPlan) -> bool {
        let asks = |plan: &ListenerPlan| plan.tls.as_ref().map(|tls| *tls.asks());
        asks(self) == asks(before) && (self.h2c || !before.h2c)
    }

    /// Whether forwarding fields from this peer are believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted_proxies.iter().any(|net| net.contains(&peer))
    }
}
