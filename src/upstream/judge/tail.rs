//! How long heads of an endpoint's answers took, window by window.

use crate::limits::JUDGE_MS;
use crate::upstream::heads::HeadsView;
use crate::upstream::plan::EndpointPlan;

/// The times of the last window that has ended.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    due_ms: u64,
    /// None before its first turn, and after what is under way says nothing. Made by turns, too:
    /// memory for thousands at a time takes milliseconds.
    seen: Option<Box<Seen>>,
}

#[derive(Clone, Debug)]
struct Seen {
    /// What was read last.
    read: HeadsView,
    window: HeadsView,
}

impl Tail {
    /// One that says nothing before its second turn.
    pub fn new(endpoint: &EndpointPlan, now_ms: u64, window_ms: u64) -> Tail {
        Tail { due_ms: next_turn_ms(endpoint.id.0, now_ms, window_ms), seen: None }
    }

    /// Reads what the workers have counted where a window has ended; true where it has.
    pub fn look(&mut self, endpoint: &EndpointPlan, now_ms: u64, window_ms: u64) -> bool {
        if now_ms < self.due_ms {
            return false;
        }
        self.due_ms = next_turn_ms(endpoint.id.0, now_ms, window_ms);
        let read = endpoint.tallies.heads();
        match &mut self.seen {
            Some(seen) => {
                seen.window = read.since(&seen.read);
                seen.read = read;
            }
            none => *none = Some(Box::new(Seen { read, window: HeadsView::default() })),
        }
        true
    }

    /// Forgets everything, what is under way in this window included.
    pub fn clear(&mut self) {
        self.seen = None;
    }

    /// The times of the last window, once there was one.
    pub fn window(&self) -> Option<&HeadsView> {
        self.seen.as_ref().map(|seen| &seen.window)
    }
}

/// The next time after `now_ms` that is this one's turn, which comes once a window, so that not all are
/// read at once.
pub(super) fn next_turn_ms(number: u32, now_ms: u64, window_ms: u64) -> u64 {
    let turn_ms = u64::from(number) * JUDGE_MS % window_ms;
    now_ms + window_ms - (now_ms + window_ms - turn_ms) % window_ms
}
