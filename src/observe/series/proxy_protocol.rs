//! How connections of a listener with `proxy_protocol` began.

/// What came of the wait for a PROXY header. All but the first four end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProxyProtocolResult {
    /// A header of version 1.
    V1,
    /// A header of version 2 about a client.
    V2,
    /// A header of version 2 by which the proxy speaks for itself.
    Local,
    /// No header, where one is optional.
    None,
    /// The peer is not in `trusted_proxies`, and a header is required.
    Untrusted,
    /// No header, where one is required.
    Missing,
    /// The connection ended before its first byte.
    Empty,
    /// It ended inside the header.
    Incomplete,
    /// The header did not come in time.
    Timeout,
    /// A line that does not follow the grammar of version 1.
    MalformedV1,
    /// A block that does not follow the layout of version 2.
    MalformedV2,
    /// A header that is longer than its bound.
    TooLong,
    /// A checksum that does not fit the header.
    Checksum,
}

impl ProxyProtocolResult {
    /// Every result, in the order of their numbers.
    pub const ALL: [ProxyProtocolResult; 13] = [
        ProxyProtocolResult::V1,
        ProxyProtocolResult::V2,
        ProxyProtocolResult::Local,
        ProxyProtocolResult::None,
        ProxyProtocolResult::Untrusted,
        ProxyProtocolResult::Missing,
        ProxyProtocolResult::Empty,
        ProxyProtocolResult::Incomplete,
        ProxyProtocolResult::Timeout,
        ProxyProtocolResult::MalformedV1,
        ProxyProtocolResult::MalformedV2,
        ProxyProtocolResult::TooLong,
        ProxyProtocolResult::Checksum,
    ];

    /// Values of the label `result`, in the same order.
    pub const NAMES: [&str; ProxyProtocolResult::ALL.len()] = [
        "v1",
        "v2",
        "local",
        "none",
        "untrusted",
        "missing",
        "empty",
        "incomplete",
        "timeout",
        "malformed_v1",
        "malformed_v2",
        "too_long",
        "checksum",
    ];

    /// Value of the label `result`.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_numbered_in_order() {
        for (number, result) in ProxyProtocolResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, number, "{result:?}");
        }
    }
}
