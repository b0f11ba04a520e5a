//! Trailer sections: which fields may stand in one, in any version (RFC 9110 section 6.5.1).

/// Whether a field has no place in a trailer section: no trailers for framing, routing, request
/// modifiers, authentication, response control data or the content's format; nor what a gateway
/// vouches for.
pub fn is_forbidden(name: &[u8]) -> bool {
    let is = |text: &&str| name.eq_ignore_ascii_case(text.as_bytes());
    let begins = |text: &&str| {
        name.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes()))
    };
    FORBIDDEN.iter().any(is) || FORBIDDEN_PREFIXES.iter().any(begins)
}

const FORBIDDEN: &[&str] = &[
    // Framing and the connection.
    "transfer-encoding",
    "content-length",
    "trailer",
    "connection",
    "keep-alive",
    "te",
    "upgrade",
    "http2-settings",
    // Routing and who is asking.
    "host",
    "forwarded",
    "via",
    "x-real-ip",
    "x-request-id",
    // Request modifiers.
    "expect",
    "max-forwards",
    "range",
    "cache-control",
    "pragma",
    // Authentication and cookies.
    "authorization",
    "www-authenticate",
    "authentication-info",
    "cookie",
    "set-cookie",
    // Response control data.
    "age",
    "date",
    "expires",
    "location",
    "retry-after",
    "vary",
    "warning",
    // The content's format.
    "content-encoding",
    "content-type",
    "content-range",
];

const FORBIDDEN_PREFIXES: &[&str] = &["proxy-", "x-forwarded-", "if-"];
