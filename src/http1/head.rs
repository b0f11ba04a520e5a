//! Heads (RFC 9112 sections 2 to 5).
