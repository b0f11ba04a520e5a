//! Upstreams: endpoints, balancing, pools, connecting.

pub mod plan;

pub mod balance;
pub mod connect;
pub mod discover;
pub mod group;
pub mod pool;
pub mod standing;

mod shared;

pub use discover::{Discover, Found};
pub use group::{Endpoint, Settings, Upstream};
pub use plan::{
    EndpointAddress, EndpointId, EndpointPlan, Outgoing, Protocol, UpstreamId, UpstreamPlan,
};
pub use pool::Lease;
pub use standing::{Standing, Standings, Tallies, Tally, Totals};
