//! Upstreams: endpoints, balancing, pools, connecting.

pub mod plan;

pub mod balance;
pub mod budget;
pub mod bulkhead;
pub mod connect;
pub mod gradient;
pub mod group;
pub mod pool;
pub mod standing;

mod shared;

pub use group::{Endpoint, Settings, Upstream};
pub use plan::{EndpointAddress, EndpointId, EndpointPlan, Protocol, UpstreamId, UpstreamPlan};
pub use pool::Lease;
pub use standing::{Standing, Standings, Tallies, Tally, Totals};
