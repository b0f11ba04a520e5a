//! Routes and the table that finds the one of a request.

pub mod action;
pub mod build;
pub mod explain;
pub mod path;
pub mod plan;
pub mod rewrite;
pub mod table;

pub use action::{Action, Directed, Redirect, Respond, Target, Targets};
pub use explain::{Explanation, NearMiss, Step};
pub use path::{Matcher, PathPattern};
pub use plan::{Extra, Host, PathPolicy, RouteId, RoutePlan};
pub use rewrite::Rewrite;
pub use table::RouteTable;
