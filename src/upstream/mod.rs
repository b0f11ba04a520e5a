//! Upstreams: endpoints, balancing, pools, connecting.

pub mod plan;

pub mod balance;
pub mod connect;
pub mod group;
pub mod judge;
pub mod pool;
pub mod standing;

mod shared;

pub use group::{Endpoint, Settings, Upstream};
pub use judge::{Event as JudgeEvent, Judge};
pub use plan::{
    BreakerPlan, Check, EndpointAddress, EndpointBreaker, EndpointId, EndpointPlan, HealthPlan,
    HttpCheck, Protocol, UpstreamId, UpstreamPlan,
};
pub use pool::Lease;
pub use standing::{Standing, Standings, Tallies, Tally, Totals};
