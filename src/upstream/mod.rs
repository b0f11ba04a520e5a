//! Upstreams: endpoints, balancing, pools, connecting.

pub mod plan;

pub mod balance;
pub mod connect;
pub mod group;
pub mod pool;

mod shared;

pub use group::{Endpoint, Settings, Upstream};
pub use plan::{EndpointAddress, EndpointId, EndpointPlan, Protocol, UpstreamId, UpstreamPlan};
pub use pool::Lease;
