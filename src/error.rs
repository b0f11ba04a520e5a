//! What can go wrong with a request: kind, whose fault, whether to try again, and the status.

use std::fmt;

/// Who caused an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client: 4xx, or nobody is left to answer.
    Client,
    /// The upstream: 502, 503 or 504.
    Upstream,
    /// Ringway itself.
    Gateway,
}

/// Whether the same request may be sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never.
    No,
    /// The connection was stale: yes, where the request can be replayed (RFC 9110 section 9.2.2).
    Stale,
    /// Nothing was sent: always, at another endpoint.
    Unsent,
    /// The origin has not looked at it: always, at the same endpoint too where there is no other.
    Unseen,
}

/// What becomes of the client's connection after the answer to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It may go on: the request was understood.
    Keep,
    /// It ends: nobody knows where the next request begins, or nobody is left.
    Close,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident $code:literal $status:literal $side:ident $retry:ident
       $after:ident $proxy:literal $text:literal;)*) => {
        /// Kind of an error. Its code is stable: metrics, logs and `Proxy-Status` carry it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum ErrorKind { $($(#[doc = $doc])* $name,)* }

        impl ErrorKind {
            /// Every kind, in the order of docs/errors.md.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name,)*];

            const TABLE: &'static [Row] = &[$(Row {
                code: $code, status: $status, side: Side::$side, retry: Retry::$retry, after: After::$after,
                proxy_status: $proxy, text: $text,
            },)*];
        }
    };
}

struct Row {
    code: &'static str,
    status: u16,
    side: Side,
    retry: Retry,
    after: After,
    proxy_status: &'static str,
    text: &'static str,
}

kinds! {
    /// The head does not follow the grammar of RFC 9112.
    HeadMalformed "head_malformed" 400 Client No Close "http_request_error" "The request head is malformed.";
    /// Host missing, repeated or invalid (RFC 9112 section 3.2).
    HostInvalid "host_invalid" 400 Client No Close "http_request_error" "The Host field is missing, repeated or invalid.";
    /// The target is not one that a gateway takes (RFC 9112 section 3.2).
    TargetInvalid "target_invalid" 400 Client No Close "http_request_error" "The request target is invalid.";
    /// Content-Length and Transfer-Encoding leave the body's end in doubt (RFC 9112 section 6.3).
    FramingAmbiguous "framing_ambiguous" 400 Client No Close "http_request_error" "The length of the request body is ambiguous.";
    /// A chunk does not follow RFC 9112 section 7.1.
    ChunkMalformed "chunk_malformed" 400 Client No Close "http_request_error" "The chunked request body is malformed.";
    /// The body of a gRPC-Web request in text is not base64.
    GrpcWebMalformed "grpc_web_malformed" 400 Client No Close "http_request_error" "The gRPC-Web request body is malformed.";
    /// The path holds what the route's policy refuses.
    PathRefused "path_refused" 400 Client No Close "http_request_denied" "The path holds characters that are refused here.";
    /// An `ip_list` keeps the client out.
    AddressDenied "address_denied" 403 Client No Keep "http_request_denied" "This address is not allowed here.";
    /// No route: default deny (R1).
    RouteMissing "route_missing" 404 Client No Keep "destination_not_found" "No route for this request.";
    /// The head did not arrive in time.
    HeadTimeout "head_timeout" 408 Client No Close "http_request_error" "The request head did not arrive in time.";
    /// The body did not arrive in time.
    BodyTimeout "body_timeout" 408 Client No Close "http_request_error" "The request body did not arrive in time.";
    /// The body is larger than the route's `body_bytes_max` (A8, A9).
    BodyTooLarge "body_too_large" 413 Client No Close "http_request_error" "The request body is too large.";
    /// The target is longer than `uri_bytes_max` (A8).
    UriTooLong "uri_too_long" 414 Client No Close "http_request_error" "The request target is too long.";
    /// An expectation other than 100-continue (RFC 9110 section 10.1.1).
    ExpectationFailed "expectation_failed" 417 Client No Close "http_request_error" "The expectation cannot be met.";
    /// A `rate_limit` has no place left for the request.
    RateLimited "rate_limited" 429 Client No Keep "http_request_denied" "Too many requests.";
    /// The head is larger than `head_bytes_max`, or holds more than `headers_max` fields.
    HeadTooLarge "head_too_large" 431 Client No Close "http_request_error" "The request head is too large.";
    /// The client went away before its answer was whole.
    ClientAborted "client_aborted" 499 Client No Close "http_request_error" "The client closed the connection.";
    /// The client did not take its answer in time.
    ClientWriteTimeout "client_write_timeout" 499 Client No Close "connection_write_timeout" "The client did not read its answer in time.";
    /// A panic while the request was served.
    Panicked "panicked" 500 Gateway No Close "proxy_internal_error" "An internal error.";
    /// A filter failed and its `on_error` says reject.
    FilterFailed "filter_failed" 503 Gateway No Keep "proxy_internal_error" "A check of the request failed.";
    /// A filter did not answer in time and its `on_error` says reject.
    FilterTimeout "filter_timeout" 504 Gateway No Keep "proxy_internal_error" "A check of the request took too long.";
    /// A transfer coding that is not understood (RFC 9112 section 6.1).
    CodingUnknown "coding_unknown" 501 Client No Close "http_request_error" "The transfer coding is not supported.";
    /// CONNECT, or a method longer than any that exists.
    MethodRefused "method_refused" 501 Client No Close "http_request_denied" "The method is not supported.";
    /// A version other than 1.0 and 1.1.
    VersionUnsupported "version_unsupported" 505 Client No Close "http_request_error" "The HTTP version is not supported.";
    /// The endpoint refused the connection.
    ConnectRefused "connect_refused" 502 Upstream Unsent Keep "connection_refused" "The upstream refused the connection.";
    /// Connecting failed for another reason.
    ConnectFailed "connect_failed" 502 Upstream Unsent Keep "destination_unavailable" "The upstream could not be reached.";
    /// Connecting took too long.
    ConnectTimeout "connect_timeout" 504 Upstream Unsent Keep "connection_timeout" "Connecting to the upstream took too long.";
    /// No TLS could be agreed on with the endpoint, or what came was none.
    UpstreamTlsFailed "upstream_tls_failed" 502 Upstream Unsent Keep "tls_protocol_error" "No secure connection to the upstream could be made.";
    /// The endpoint's certificate could not be verified, or ours was refused.
    UpstreamCertificate "upstream_certificate" 502 Upstream No Keep "tls_certificate_error" "The upstream's certificate could not be verified.";
    /// The connection ended before the first byte of an answer.
    UpstreamClosed "upstream_closed" 502 Upstream Stale Keep "connection_terminated" "The upstream closed the connection without an answer.";
    /// The origin says that it has not looked at the request (RFC 9113 section 8.7).
    StreamRefused "stream_refused" 502 Upstream Unseen Keep "destination_unavailable" "The upstream refused the request.";
    /// The origin broke the request's HTTP/2 stream off.
    UpstreamReset "upstream_reset" 502 Upstream No Keep "http_protocol_error" "The upstream broke the request off.";
    /// The origin does not speak HTTP/2, which its upstream asks for.
    ProtocolMismatch "protocol_mismatch" 502 Upstream Unsent Keep "http_protocol_error" "The upstream does not speak HTTP/2.";
    /// The connection ended inside the answer's head.
    ResponseIncomplete "response_incomplete" 502 Upstream No Keep "http_response_incomplete" "The upstream's answer broke off.";
    /// The answer's head does not follow RFC 9112, or its framing is ambiguous.
    ResponseMalformed "response_malformed" 502 Upstream No Keep "http_protocol_error" "The upstream's answer is malformed.";
    /// The answer's head is larger than `head_bytes_max`.
    ResponseHeadTooLarge "response_head_too_large" 502 Upstream No Keep "http_response_header_section_size" "The head of the upstream's answer is too large.";
    /// 101 that nobody asked for, or to another protocol.
    UpgradeUnexpected "upgrade_unexpected" 502 Upstream No Keep "http_upgrade_failed" "The upstream switched protocols unasked.";
    /// A success that opened no tunnel, to a client of HTTP/2 that would take it for one (RFC 8441).
    UpgradeIgnored "upgrade_ignored" 502 Upstream No Keep "http_upgrade_failed" "The upstream did not switch protocols.";
    /// The answer's head did not arrive in time.
    ResponseTimeout "response_timeout" 504 Upstream No Keep "http_response_timeout" "The upstream did not answer in time.";
    /// The answer's body stopped coming.
    ResponseBodyTimeout "response_body_timeout" 504 Upstream No Close "connection_read_timeout" "The upstream's answer stopped coming.";
    /// The upstream did not take the request in time.
    UpstreamWriteTimeout "upstream_write_timeout" 504 Upstream No Keep "connection_write_timeout" "The upstream did not take the request in time.";
    /// The route's `timeouts.total` passed (B9).
    TotalTimeout "total_timeout" 504 Gateway No Close "http_response_timeout" "The request took too long.";
    /// No endpoint that the request may go to is usable: names do not resolve, or the one that it is
    /// sent to is out.
    NoEndpoint "no_endpoint" 503 Upstream No Keep "dns_error" "The upstream has no endpoint.";
    /// A breaker lets only a part of the upstream's requests through, or none (B4).
    BreakerOpen "breaker_open" 503 Upstream No Keep "destination_unavailable" "The upstream is given a rest after failures.";
    /// The upstream's `in_flight_max` was reached (B1).
    AtCapacity "at_capacity" 503 Gateway No Keep "connection_limit_reached" "The upstream is at its limit.";
    /// The route's `in_flight_max` was reached (B1).
    RouteAtCapacity "route_at_capacity" 503 Gateway No Keep "connection_limit_reached" "The route is at its limit.";
    /// As many requests wait for the upstream as may (B1).
    QueueFull "queue_full" 503 Gateway No Keep "connection_limit_reached" "Too many requests wait for the upstream.";
    /// The upstream had no place for the request in the time that it may wait (B1).
    QueueTimeout "queue_timeout" 503 Gateway No Keep "connection_limit_reached" "The upstream had no place in time.";
}

impl ErrorKind {
    /// Stable name, as metrics, logs and docs/errors.md carry it.
    pub fn code(self) -> &'static str {
        self.row().code
    }

    /// Status of the answer, where one can still be sent; 499 is only ever logged.
    pub fn status(self) -> u16 {
        self.row().status
    }

    /// Who caused it.
    pub fn side(self) -> Side {
        self.row().side
    }

    /// Whether the request may be sent once more.
    pub fn retry(self) -> Retry {
        self.row().retry
    }

    /// Whether the request was understood, so that another may follow it on its connection.
    pub fn keeps_connection(self) -> bool {
        self.row().after == After::Keep
    }

    /// Error type of RFC 9209 section 2.3.
    pub fn proxy_status(self) -> &'static str {
        self.row().proxy_status
    }

    /// One sentence for the body of the answer.
    pub fn text(self) -> &'static str {
        self.row().text
    }

    fn row(self) -> &'static Row {
        &Self::TABLE[self as usize]
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl std::error::Error for ErrorKind {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_statuses_fit_the_side() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|k| k.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        for kind in ErrorKind::ALL {
            assert_eq!(
                kind.side() == Side::Upstream,
                (502..=504).contains(&kind.status()) && kind.side() != Side::Gateway,
                "{kind}"
            );
        }
    }

    #[test]
    fn every_code_stands_in_the_docs() {
        let page = include_str!("../docs/errors.md");
        for kind in ErrorKind::ALL {
            assert!(page.contains(&format!("| `{}` | {} |", kind.code(), kind.status())), "{kind}");
        }
    }
}
