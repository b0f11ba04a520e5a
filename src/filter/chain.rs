//! The filters of one route, phase by phase.

use std::sync::Arc;

use super::{AnswerCall, Call, Filter, FilterId, Phase, Verdict};
use crate::context::RequestContext;
use crate::context::condition::{Condition, all_hold};

/// What becomes of a request whose filter failed or did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is answered with an error.
    Reject,
    /// It goes on as if the filter were not there (B8, C21).
    Skip,
}

/// A filter on a route.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Identity over reloads.
    pub id: FilterId,
    /// Name in metrics and messages.
    pub name: Box<str>,
    /// When its hook on the request runs.
    pub phase: Phase,
    /// What must hold of a request to pass it at all.
    pub when: Arc<[Condition]>,
    /// For filters that wait.
    pub on_error: OnError,
    /// How long it may wait.
    pub timeout_ms: u64,
    /// The filter.
    pub filter: Arc<dyn Filter>,
}

/// All filters of a route.
#[derive(Debug, Default)]
pub struct FilterChain {
    request: Vec<Entry>,
    response: Vec<Entry>,
    log: Vec<Entry>,
}

impl FilterChain {
    /// A chain of `entries`, which stand in the order of the configuration.
    pub fn new(entries: Vec<Entry>) -> FilterChain {
        let with = |hook: fn(&Entry) -> bool| -> Vec<Entry> {
            entries.iter().filter(|entry| hook(entry)).cloned().collect()
        };
        let mut request = with(|entry| entry.filter.hooks().request);
        // Stable: inside a phase the order of the configuration holds.
        request.sort_by_key(|entry| entry.phase);
        FilterChain {
            request,
            response: with(|entry| entry.filter.hooks().response),
            log: with(|entry| entry.filter.hooks().log),
        }
    }

    /// Its filters, some of them more than once.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.request.iter().chain(&self.response).chain(&self.log)
    }

    /// Whether there are none: then nothing of it costs anything (C16).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty() && self.log.is_empty()
    }

    /// The filters on requests, phase by phase.
    #[inline]
    pub fn request(&self) -> &[Entry] {
        &self.request
    }

    /// Lets every filter on responses change an answer's head.
    pub fn on_response(&self, answer: &mut AnswerCall<'_>) {
        for entry in &self.response {
            if entry.applies(answer.context) {
                entry.filter.on_response(answer);
            }
        }
    }

    /// Tells every filter on logs how it ended.
    pub fn on_log(&self, context: &RequestContext, status: u16) {
        for entry in &self.log {
            if entry.applies(context) {
                entry.filter.on_log(context, status);
            }
        }
    }

    /// Names and phases in the order in which requests pass them.
    pub fn names(&self) -> impl Iterator<Item = (&str, Phase)> {
        self.request.iter().map(|entry| (&*entry.name, entry.phase))
    }
}

impl Entry {
    /// Whether its conditions hold.
    #[inline]
    pub fn applies(&self, context: &RequestContext) -> bool {
        self.when.is_empty() || all_hold(&self.when, context)
    }

    /// Its hook on the request.
    #[inline]
    pub fn on_request(&self, call: &mut Call<'_>) -> Verdict {
        if self.applies(call.context) { self.filter.on_request(call) } else { Verdict::Continue }
    }
}
