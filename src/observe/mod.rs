//! What is counted, by which thread, and how it is shown.
//!
//! Every worker has counters that only it writes: a load and a store, no locked instruction. The
//! control thread sums them when somebody asks.

pub mod access_log;
pub mod counters;
pub mod render;
pub mod series;

pub use access_log::{AccessLogPlan, AccessRecord, LogBuffer};
pub use counters::{Counter, Gauge, WorkerCounters};
pub use series::{Finished, Names, SeriesRegistry, WorkerSeries};
