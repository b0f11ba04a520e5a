//! Routes: what the configuration says of them, and the table that finds one.

pub mod table;

pub use table::{Matcher, PathPolicy, RoutePlan, RouteTable};
