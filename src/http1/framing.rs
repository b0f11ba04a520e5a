//! Message body framing (RFC 9112 section 6): every smuggling rule.
