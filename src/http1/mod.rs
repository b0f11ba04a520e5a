//! HTTP/1.1 (RFC 9112): parsing, framing, encoding; only `conn` does I/O.

pub mod body;
pub mod chunked;
pub mod conn;
pub mod encode;
pub mod framing;
pub mod head;

mod scan;
