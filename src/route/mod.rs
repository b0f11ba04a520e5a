//! Routes and the table that finds the one of a request.

pub mod plan;
pub mod table;

pub use plan::{Action, Matcher, PathPolicy, RouteId, RoutePlan, Target};
pub use table::RouteTable;
