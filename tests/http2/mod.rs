//! Frames of HTTP/2 sent and read one by one: a strict reader, a writer that also writes what is
//! wrong, and cases as data. Written from RFC 9113 and RFC 7541; shares no code with the product.

#![allow(dead_code, reason = "the words of the cases are more than every case needs")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "threads with locks are right here: this is the outside world, not a worker"
)]

pub mod case;
pub mod flood;
pub mod frame;
pub mod hpack;
pub mod huffman;
pub mod origin;
pub mod outcome;
pub mod peer;
pub mod server;
pub mod step;
pub mod table;
pub mod upstream;
pub mod watch;
