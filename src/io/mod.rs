//! The only module that names monoio, and the only home of unsafe code.

pub mod driver;

pub use driver::{DriverKind, DriverReport};
