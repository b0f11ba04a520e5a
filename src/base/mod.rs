//! Buffers, clock, deadlines and random numbers: no word of HTTP in here.

pub mod buffer;
pub mod deadline;
pub mod memory;
pub mod random;
