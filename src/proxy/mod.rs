//! The request path. Begin with `serve`.

pub mod serve;

pub mod admit;
pub mod forward;

mod answer;
mod duplex;
mod respond;
mod tunnel;

pub mod downstream;
pub mod exchange;

pub use downstream::{Downstream, ListenerState};
pub use exchange::Exchange;
pub use serve::{Next, refuse, serve};
