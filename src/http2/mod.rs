//! HTTP/2 (RFC 9113) by the `h2` crate: streams, and what is turned into what at their edges.

pub mod batch;
pub mod client;
pub mod meter;
pub mod origin;
pub mod request_in;
pub mod request_out;
pub mod response_in;
pub mod response_out;
pub mod server;
pub mod stream;
pub mod trailers;

mod frame;
mod greeting;
mod incident;
mod judge;
mod pulse;
mod sent;

pub use batch::Batch;
pub use frame::PREFACE;
pub use h2::Reason;
pub use incident::Incident;
pub use request_in::read_request;
pub use response_out::encode_response;
pub use server::Http2Plan;
pub use stream::{Broken, OriginHead, OriginStream, Piece, ServerStream};
