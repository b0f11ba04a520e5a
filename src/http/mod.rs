//! What every version of HTTP shares: heads, targets, body framing.

pub mod added;
pub mod edit;
pub mod forwarding;
pub mod grpc;
pub mod head;
pub mod host;
pub mod passing;
pub mod trailers;
pub mod uri;
pub mod websocket;

pub use forwarding::Forwarding;
pub use head::{Field, Known, RequestHead, ResponseHead, Span, Version};

/// How the end of a body is found (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks up to the last one and the trailer section.
    Chunked,
    /// Whatever comes until the connection closes; answers only.
    UntilClose,
}

/// Bounds of a head, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the whole head.
    pub head_bytes_max: usize,
    /// Fields.
    pub headers_max: usize,
    /// Bytes of the target.
    pub uri_bytes_max: usize,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            head_bytes_max: crate::limits::HEAD_BYTES_DEFAULT,
            headers_max: crate::limits::HEADERS_DEFAULT,
            uri_bytes_max: crate::limits::URI_BYTES_DEFAULT,
        }
    }
}
