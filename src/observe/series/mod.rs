//! What is counted of each route, upstream, endpoint, filter and listener.
//!
//! Blocks with one writer, made when their thing is first hit: the worker makes one, keeps it by id
//! and hands a second reference to the control thread, which sums the workers when it is scraped.
//! Names come in only there, from the configuration, so no label ever comes from a request.

pub mod blocks;
pub mod histogram;
pub mod names;
pub mod proxy_protocol;
pub mod registry;
pub mod view;
pub mod worker;

pub use blocks::{EndpointSeries, FilterSeries, ListenerSeries, RouteSeries, UpstreamSeries};
pub use histogram::Histogram;
pub use names::{EndpointName, Names};
pub use proxy_protocol::ProxyProtocolResult;
pub use registry::SeriesRegistry;
pub use view::SeriesView;
pub use worker::{Finished, InFlight, WorkerSeries};
