//! Buffers, clock, deadlines, random numbers and values by id: no word of HTTP in here.

pub mod buffer;
pub mod by_id;
pub mod deadline;
pub mod memory;
pub mod random;
