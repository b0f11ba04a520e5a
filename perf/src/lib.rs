//! What the relay and the origin share: the ring, the accept loop, the command line.

pub mod args;
pub mod ring;
pub mod server;
