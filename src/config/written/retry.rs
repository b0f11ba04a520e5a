//! `retry` of an upstream or a route

use super::super::decode::{Decoder, Fields};
use super::super::diagnostic::{Diagnostic, Span};
use super::super::read::{boolean, choice, duration, integer, list, size, spanned, timeout};
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
    /// `hedge_after`, in milliseconds
    pub hedge_after_ms: Option<u64>,
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
        let hedge_after = f.optional("hedge_after", spanned(hedge_after));
        let retry = Retry {
            on: f.optional(
                "on",
                list(0..=TRIGGERS.len(), |node, decoder| choice(TRIGGERS)(node, decoder)),
            ),
            tries: f
                .optional("tries", integer(1..=RETRY_TRIES_MAX))
                .and_then(|tries| u8::try_from(tries).ok()),
            per_try_ms: f.optional("per_try_timeout", timeout),
            hedge_after_ms: hedge_after.as_ref().map(|after| after.value),
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
        if let Some(after) = hedge_after {
            retry.check_hedge(after.span(), decoder);
        }
        Some(retry)
    }

    /// Says why no request would ever be hedged, where that is so.
    fn check_hedge(&self, span: Span, decoder: &mut Decoder) {
        let after_ms = self.hedge_after_ms.unwrap_or(0);
        let not_idempotent =
            |methods: &Vec<&str>| methods.iter().all(|it| ["POST", "PATCH"].contains(it));
        let (why, remedy) = if self.tries == Some(1) {
            ("a hedge is a second try, and `tries` is 1", "write tries = 2")
        } else if self.budget_percent == Some(0) {
            (
                "a hedge is paid for like a retry, and `budget_percent` is 0",
                "write what it may cost",
            )
        } else if self.methods.as_ref().is_some_and(not_idempotent) {
            ("only idempotent methods are hedged, and `methods` has none", "add \"GET\"")
        } else if self.per_try_ms.is_some_and(|per_try_ms| per_try_ms <= after_ms) {
            ("a try has ended before: `per_try_timeout` is no longer than this", "write less")
        } else {
            return;
        };
        let found = Diagnostic::error(span, why).label("never comes to it");
        decoder.found.push(found.remedy(remedy));
    }
}

/// A time after which a try is hedged. It is no deadline: the sweep has no part in it.
fn hedge_after(node: &Node, decoder: &mut Decoder) -> Option<u64> {
    let ms = duration(node, decoder)?;
    if ms > 0 {
        return Some(ms);
    }
    let found = Diagnostic::error(node.span.clone(), "every request would be sent twice");
    let found = found
        .label("no time to answer")
        .remedy("write about the 95th percentile of the time to an answer's head");
    decoder.found.push(found);
    None
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
