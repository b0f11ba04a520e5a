//! The one computed field of a WebSocket handshake (RFC 6455 section 4.2.2).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`.
pub fn accept(key: &[u8]) -> String {
    const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let text = [key, MAGIC].concat();
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_6455_1_3_the_example() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaO9kYGzzhZRbK+xOo=");
    }
}
