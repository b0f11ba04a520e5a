//! One connection of the proxy on streams in memory: an executor and a clock of its own, scripts of
//! exchanges, and what must hold of what both peers got. Used by tests/simulation.rs and fuzz/.

#![allow(dead_code, reason = "every crate that includes this uses a part of it")]

pub mod peers;
pub mod scripts;
pub mod world;
