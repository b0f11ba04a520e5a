//! `retry` of an upstream or a route

use super::super::decode::{Decoder, Fields};
use super::super::read::{boolean, choice, integer, list, size, timeout};
use super::super::tree::Node;
use crate::limits::{RETRY_BODY_BYTES_MAX, RETRY_TRIES_MAX};

/// `retry`
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// `on`
    pub on: Option<Vec<Trigger>>,
    /// `tries`
    pub tries: Option<u8>,
    /// `per_try_timeout`, in milliseconds
    pub per_try_ms: Option<u64>,
    /// `budget_percent`: of upstreams only.
    pub budget_percent: Option<u32>,
    /// `methods`
    pub methods: Option<Vec<&'static str>>,
    /// `body_bytes_max`
    pub body_bytes_max: Option<usize>,
    /// `other_endpoint`
    pub other_endpoint: Option<bool>,
}

/// One of `retry.on`: why a request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Trigger {
    /// "connect": no connection could be made.
    Connect,
    /// "stale": a connection that was used before ended without a byte.
    Stale,
    /// "refused_stream": the origin says that it has not looked at the request.
    RefusedStream,
    /// "reset": the connection or the stream ended before the head of an answer.
    Reset,
    /// "timeout": no head of an answer in time.
    Timeout,
    /// "502"
    BadGateway,
    /// "503"
    Unavailable,
    /// "504"
    GatewayTimeout,
}

impl Retry {
    /// Reads that of an upstream.
    pub(super) fn of_upstream(node: &Node, decoder: &mut Decoder) -> Option<Retry> {
        Retry::decode("upstream.NAME.retry", node, decoder)
    }

    /// Reads that of a route, which has the budget of its upstream.
    pub(super) fn of_route(node: &Node, decoder: &mut Decoder) -> Option<Retry> {
        Retry::decode("route.retry", node, decoder)
    }

    fn decode(section: &'static str, node: &Node, decoder: &mut Decoder) -> Option<Retry> {
        let mut f = Fields::of(section, node, decoder)?;
        let percent = match section {
            "route.retry" => None,
            _ => f.optional("budget_percent", integer(0..=100)),
        };
        let retry = Retry {
            on: f.optional(
                "on",
                list(0..=TRIGGERS.len(), |node, decoder| choice(TRIGGERS)(node, decoder)),
            ),
            tries: f
                .optional("tries", integer(1..=RETRY_TRIES_MAX))
                .and_then(|tries| u8::try_from(tries).ok()),
            per_try_ms: f.optional("per_try_timeout", timeout),
            budget_percent: percent.and_then(|percent| u32::try_from(percent).ok()),
            methods: f.optional(
                "methods",
                list(1..=METHODS.len(), |node, decoder| choice(METHODS)(node, decoder)),
            ),
            body_bytes_max: f
                .optional("body_bytes_max", size(0..=RETRY_BODY_BYTES_MAX))
                .and_then(|bytes| usize::try_from(bytes).ok()),
            other_endpoint: f.optional("other_endpoint", boolean),
        };
        f.finish();
        Some(retry)
    }
}

const TRIGGERS: &[(&str, Trigger)] = &[
    ("connect", Trigger::Connect),
    ("stale", Trigger::Stale),
    ("refused_stream", Trigger::RefusedStream),
    ("reset", Trigger::Reset),
    ("timeout", Trigger::Timeout),
    ("502", Trigger::BadGateway),
    ("503", Trigger::Unavailable),
    ("504", Trigger::GatewayTimeout),
];

const METHODS: &[(&str, &str)] = &[
    ("GET", "GET"),
    ("HEAD", "HEAD"),
    ("OPTIONS", "OPTIONS"),
    ("TRACE", "TRACE"),
    ("PUT", "PUT"),
    ("DELETE", "DELETE"),
    ("POST", "POST"),
    ("PATCH", "PATCH"),
];
