//! HTTP/2 (RFC 9113) by the `h2` crate: streams, and what is turned into what at their edges.

pub mod client;
pub mod stream;

pub use h2::Reason;
pub use stream::{Broken, OriginHead, OriginStream, Piece, ServerStream};
