//! The request path. Begin with `serve`.

pub mod serve;

pub mod admit;
pub mod forward;

mod announce;
mod answer;
mod balance;
mod bridge;
mod duplex;
mod filters;
mod hedge;
mod kept;
mod queue;
mod record;
mod respond;
mod retry;
mod target;
mod tunnel;

pub mod downstream;
pub mod exchange;

pub use downstream::{Downstream, ListenerState};
pub use exchange::Exchange;
pub use serve::{Next, refuse, serve};
