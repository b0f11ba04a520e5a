//! What an upstream or a route says of requests that are tried again.

use crate::config::written::{Retry, Trigger};
use crate::limits::{RETRY_BODY_BYTES, RETRY_TRIES_DEFAULT, TRIES_MAX};

/// `retry`: compiled, and small enough to be copied for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPlan {
    /// `on`, a bit for each [`Trigger`].
    on: u16,
    /// `methods`, a bit for each of [`RETRY_METHODS`].
    methods: u16,
    /// `tries`: how many there are, the first included.
    pub tries: u8,
    /// `other_endpoint`: whether a try goes to another endpoint than the last, where there is one.
    pub other_endpoint: bool,
    /// `body_bytes_max`: bytes of a body that are kept for another try.
    pub body_bytes_max: usize,
    /// `per_try_timeout`: bounds a try up to the head of its answer.
    pub per_try_timeout_ms: Option<u64>,
    /// `hedge_after`: how long a try is waited for before another one is begun beside it.
    pub hedge_after_ms: Option<u64>,
}

/// Methods that may be named, those that RFC 9110 section 9.2.2 calls idempotent first.
pub const RETRY_METHODS: [&str; 8] =
    ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH"];

/// GET to DELETE.
const IDEMPOTENT: u16 = (1 << 6) - 1;

/// What is tried again unasked: nothing of it has been done by any origin.
const SAFE: [Trigger; 3] = [Trigger::Connect, Trigger::Stale, Trigger::RefusedStream];

impl Default for RetryPlan {
    fn default() -> RetryPlan {
        RetryPlan {
            on: bits(SAFE),
            methods: IDEMPOTENT,
            tries: TRIES_MAX,
            other_endpoint: true,
            body_bytes_max: 0,
            per_try_timeout_ms: None,
            hedge_after_ms: None,
        }
    }
}

impl RetryPlan {
    /// Compiles what is written.
    pub fn of(written: &Retry) -> RetryPlan {
        let default = RetryPlan::default();
        let on = written.on.as_ref().map(|on| bits(on.iter().copied()));
        let methods = written.methods.as_ref().map(|names| {
            names.iter().filter_map(|name| place(name.as_bytes())).fold(0, |all, bit| all | bit)
        });
        RetryPlan {
            on: on.unwrap_or(default.on),
            methods: methods.unwrap_or(default.methods),
            tries: written.tries.unwrap_or(RETRY_TRIES_DEFAULT),
            other_endpoint: written.other_endpoint.unwrap_or(true),
            body_bytes_max: written.body_bytes_max.unwrap_or(RETRY_BODY_BYTES),
            per_try_timeout_ms: written.per_try_ms,
            hedge_after_ms: written.hedge_after_ms,
        }
    }

    /// Whether a request with this method is tried again because of this.
    pub fn allows(&self, trigger: Trigger, method: &[u8]) -> bool {
        let any_method = matches!(trigger, Trigger::Connect | Trigger::RefusedStream);
        self.on & bit(trigger) != 0 && (any_method || self.takes(method))
    }

    /// Whether requests with this method may be sent twice.
    pub fn takes(&self, method: &[u8]) -> bool {
        place(method).is_some_and(|bit| self.methods & bit != 0)
    }

    /// What an answer with this status is a reason of.
    pub fn of_status(status: u16) -> Option<Trigger> {
        match status {
            502 => Some(Trigger::BadGateway),
            503 => Some(Trigger::Unavailable),
            504 => Some(Trigger::GatewayTimeout),
            _ => None,
        }
    }
}

fn bit(trigger: Trigger) -> u16 {
    1 << trigger as u16
}

fn bits(triggers: impl IntoIterator<Item = Trigger>) -> u16 {
    triggers.into_iter().fold(0, |all, one| all | bit(one))
}

fn place(method: &[u8]) -> Option<u16> {
    RETRY_METHODS.iter().position(|name| name.as_bytes() == method).map(|index| 1 << index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_origin_has_seen_is_tried_whatever_its_method() {
        let plan = RetryPlan::default();
        for method in [&b"GET"[..], b"POST", b"BREW"] {
            assert!(plan.allows(Trigger::Connect, method));
            assert!(plan.allows(Trigger::RefusedStream, method));
        }
        assert!(plan.allows(Trigger::Stale, b"DELETE") && !plan.allows(Trigger::Stale, b"POST"));
        assert!(!plan.allows(Trigger::Reset, b"GET") && !plan.allows(Trigger::Unavailable, b"GET"));
    }

    #[test]
    fn methods_and_reasons_are_those_that_are_written() {
        let written = Retry {
            on: Some(vec![Trigger::Unavailable, Trigger::Reset]),
            methods: Some(vec!["GET", "POST"]),
            hedge_after_ms: Some(50),
            ..Retry::default()
        };
        let plan = RetryPlan::of(&written);
        assert!(plan.allows(Trigger::Unavailable, b"POST") && plan.allows(Trigger::Reset, b"GET"));
        assert!(
            !plan.allows(Trigger::Unavailable, b"PUT") && !plan.allows(Trigger::Connect, b"GET")
        );
        assert_eq!((plan.tries, plan.body_bytes_max), (RETRY_TRIES_DEFAULT, RETRY_BODY_BYTES));
        assert_eq!((plan.hedge_after_ms, RetryPlan::default().hedge_after_ms), (Some(50), None));
    }
}
