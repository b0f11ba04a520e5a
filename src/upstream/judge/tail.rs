//! How long heads of an endpoint's answers took, window by window.

use crate::limits::JUDGE_MS;
use crate::upstream::heads::HeadsView;
use crate::upstream::plan::EndpointPlan;

/// The times of the last window that has ended.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    /// What was read last.
    read: HeadsView,
    /// The next window begins before it, and so says nothing.
    skip: bool,
    window: HeadsView,
    due_ms: u64,
}

impl Tail {
    /// One that says nothing before its second turn.
    pub fn new(endpoint: &EndpointPlan, now_ms: u64, window_ms: u64) -> Tail {
        Tail {
            read: HeadsView::default(),
            skip: true,
            window: HeadsView::default(),
            due_ms: next_turn_ms(endpoint.id.0, now_ms, window_ms),
        }
    }

    /// Reads what the workers have counted where a window has ended; true where it says something new.
    pub fn look(&mut self, endpoint: &EndpointPlan, now_ms: u64, window_ms: u64) -> bool {
        if now_ms < self.due_ms {
            return false;
        }
        self.due_ms = next_turn_ms(endpoint.id.0, now_ms, window_ms);
        let read = endpoint.tallies.heads();
        self.window = match std::mem::take(&mut self.skip) {
            true => HeadsView::default(),
            false => read.since(&self.read),
        };
        self.read = read;
        true
    }

    /// Forgets everything, what is under way in this window included.
    pub fn clear(&mut self) {
        self.window = HeadsView::default();
        self.skip = true;
    }

    /// The times of the last window.
    pub fn window(&self) -> &HeadsView {
        &self.window
    }
}

/// The next time after `now_ms` that is this one's turn, which comes once a window, so that not all are
/// read at once.
pub(super) fn next_turn_ms(number: u32, now_ms: u64, window_ms: u64) -> u64 {
    let turn_ms = u64::from(number) * JUDGE_MS % window_ms;
    now_ms + window_ms - (now_ms + window_ms - turn_ms) % window_ms
}
