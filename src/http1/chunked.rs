//! Chunked transfer coding (RFC 9112 section 7.1).
