//! Upstreams: endpoints, balancing, pools, connecting.

pub mod plan;

pub use plan::{EndpointAddress, EndpointId, EndpointPlan, UpstreamId, UpstreamPlan};
