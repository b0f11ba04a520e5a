//! HTTP/1.1 (RFC 9112): parsing, framing, encoding; only `conn` does I/O.

pub mod head;
mod scan;

pub mod framing;

pub mod chunked;
