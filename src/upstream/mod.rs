//! Upstreams: endpoints, balancing, pools, connecting.

pub mod plan;

pub mod balance;
pub mod budget;
pub mod bulkhead;
pub mod connect;
pub mod discover;
pub mod gradient;
pub mod group;
pub mod heads;
pub mod judge;
pub mod members;
pub mod pool;
pub mod standing;
pub mod trial;

mod incident;
mod reserve;
mod shared;
#[cfg(test)]
mod testing;

pub use balance::Policy;
pub use discover::{Discover, Found};
pub use group::{Busy, Endpoint, Outcome, Settings, Upstream};
pub use judge::{Event as JudgeEvent, Judge};
pub use members::{Avoid, Wish};
pub use plan::{
    BalancePlan, BreakerPlan, Check, EndpointAddress, EndpointBreaker, EndpointId, EndpointPlan,
    HashPlan, HealthPlan, HttpCheck, Outgoing, Protocol, ShardPlan, StickyPlan, Token, UpstreamId,
    UpstreamPlan,
};
pub use pool::Lease;
pub use standing::{Standing, Standings, Tallies, Tally, Totals};
