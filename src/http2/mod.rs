//! HTTP/2 (RFC 9113) by the `h2` crate: streams, and what is turned into what at their edges.

pub mod client;
pub mod origin;
pub mod request_out;
pub mod response_in;
pub mod stream;
pub mod trailers;

mod greeting;

pub use h2::Reason;
pub use stream::{Broken, OriginHead, OriginStream, Piece, ServerStream};
