//! Deadlines of a core: one contiguous slab, looked through by one sweep.
//!
//! Arming is a store, not a timer. A slot says when it falls due, which kind of wait it bounds and
//! what to act on; the sweep marks what has expired and hands it to the caller to act upon. Time is
//! in milliseconds of a monotonic clock that the sweep advances, so that no request reads a clock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::limits::{SWEEP_FINE_MS, SWEEP_MS};

/// The deadlines of one core. `T` is what an expiry acts on.
pub struct Deadlines<T> {
    slots: RefCell<Vec<Slot<T>>>,
    free: RefCell<Vec<u32>>,
    now_ms: Cell<u64>,
    fine: Cell<bool>,
}

/// One slot; given back on drop, which must come before the descriptor it acts on is closed.
pub struct Deadline<T> {
    owner: Rc<Deadlines<T>>,
    index: u32,
}

/// A slot's contents.
struct Slot<T> {
    due_ms: u64,
    armed_ms: u64,
    wait: u8,
    expired: u8,
    /// Whether an expiry was overtaken by the next wait since the last disarm.
    overtaken: bool,
    target: Option<T>,
}

/// What a sweep found in one slot.
pub struct Armed<'a, T> {
    /// Kind of wait, as given to [`Deadline::arm`].
    pub wait: u8,
    /// How long it has been armed.
    pub since_ms: u64,
    /// Whether its time has passed; told once.
    pub expired: bool,
    /// What to act on.
    pub target: &'a T,
    due_ms: &'a mut u64,
    reason: &'a mut u8,
}

impl<T> Armed<'_, T> {
    /// Ends the wait early: the waiter sees `reason` from [`Deadline::expired`].
    pub fn expire(&mut self, reason: u8) {
        *self.reason = reason;
        *self.due_ms = NEVER;
    }

    /// Lets it fall due no later than `now_ms`.
    pub fn due_by(&mut self, now_ms: u64) {
        *self.due_ms = (*self.due_ms).min(now_ms);
    }
}

/// No wait.
pub const NO_WAIT: u8 = 0;
const NEVER: u64 = u64::MAX;

impl<T> Deadlines<T> {
    /// An empty slab at time 0.
    pub fn new() -> Rc<Deadlines<T>> {
        Rc::new(Deadlines {
            slots: RefCell::default(),
            free: RefCell::default(),
            now_ms: Cell::new(0),
            fine: Cell::new(false),
        })
    }

    /// A free slot, not armed.
    pub fn slot(self: &Rc<Self>) -> Deadline<T> {
        let free = self.free.borrow_mut().pop();
        let index = free.unwrap_or_else(|| {
            let mut slots = self.slots.borrow_mut();
            slots.push(Slot {
                due_ms: NEVER,
                armed_ms: 0,
                wait: NO_WAIT,
                expired: NO_WAIT,
                overtaken: false,
                target: None,
            });
            u32::try_from(slots.len() - 1).expect("fewer slots than descriptors")
        });
        Deadline { owner: self.clone(), index }
    }

    /// Slots that are taken.
    pub fn in_use(&self) -> usize {
        self.slots.borrow().len() - self.free.borrow().len()
    }

    /// The time of the last sweep.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// How long to wait for the next sweep.
    pub fn pause_ms(&self) -> u64 {
        if self.fine.get() { SWEEP_FINE_MS } else { SWEEP_MS }
    }

    /// Advances the clock and shows every armed slot to `visit`. `fine` asks for short pauses even
    /// where nothing is about to fall due, because shorter timeouts may be armed at any moment.
    pub fn sweep(&self, now_ms: u64, fine: bool, mut visit: impl FnMut(&mut Armed<'_, T>)) {
        assert!(now_ms >= self.now_ms.get(), "the clock is monotonic");
        self.now_ms.set(now_ms);
        let mut next_ms = NEVER;
        self.visit(|mut armed| {
            visit(&mut armed);
            next_ms = next_ms.min(*armed.due_ms);
        });
        self.fine.set(fine || next_ms.saturating_sub(now_ms) < 1_000);
    }

    /// Shows every armed slot, marking those whose time has passed.
    pub fn visit(&self, mut visit: impl FnMut(Armed<'_, T>)) {
        let now_ms = self.now_ms.get();
        for slot in self.slots.borrow_mut().iter_mut() {
            let Some(target) = &slot.target else { continue };
            if slot.wait == NO_WAIT {
                continue;
            }
            let expired = slot.due_ms <= now_ms && slot.expired == NO_WAIT;
            if expired {
                slot.expired = slot.wait;
                slot.due_ms = NEVER;
            }
            visit(Armed {
                wait: slot.wait,
                since_ms: now_ms - slot.armed_ms,
                expired,
                target,
                due_ms: &mut slot.due_ms,
                reason: &mut slot.expired,
            });
        }
    }
}

impl<T> Deadline<T> {
    /// Bounds the wait of kind `wait` that begins now. Never falls due early; late by a sweep.
    #[inline]
    pub fn arm(&self, wait: u8, timeout_ms: u64) {
        debug_assert!(wait != NO_WAIT, "a kind of wait");
        let now_ms = self.owner.now_ms.get();
        let mut slots = self.owner.slots.borrow_mut();
        let slot = &mut slots[self.index as usize];
        slot.armed_ms = now_ms;
        slot.due_ms = now_ms + self.owner.pause_ms() + timeout_ms;
        slot.wait = wait;
        slot.overtaken |= slot.expired != NO_WAIT;
        slot.expired = NO_WAIT;
    }

    /// Ends the wait that goes on, as a sweep would, where `ends` says so of its kind: the waiter sees
    /// `reason`. Whether it did.
    pub fn expire(&self, reason: u8, ends: impl Fn(u8) -> bool) -> bool {
        let slot = &mut self.owner.slots.borrow_mut()[self.index as usize];
        let ended = slot.wait != NO_WAIT && slot.expired == NO_WAIT && ends(slot.wait);
        if ended {
            slot.expired = reason;
            slot.due_ms = NEVER;
        }
        ended
    }

    /// Names what an expiry acts on.
    pub fn set_target(&self, target: T) {
        self.owner.slots.borrow_mut()[self.index as usize].target = Some(target);
    }

    /// Changes what an expiry acts on.
    #[inline]
    pub fn with_target(&self, change: impl FnOnce(&mut T)) {
        if let Some(target) = &mut self.owner.slots.borrow_mut()[self.index as usize].target {
            change(target);
        }
    }

    /// Time since the wait began, as of the last sweep.
    pub fn waited_ms(&self) -> u64 {
        self.owner.now_ms.get() - self.owner.slots.borrow()[self.index as usize].armed_ms
    }

    /// Ends the wait. Returns the kind that had expired, or [`NO_WAIT`].
    #[inline]
    pub fn disarm(&self) -> u8 {
        let mut slots = self.owner.slots.borrow_mut();
        let slot = &mut slots[self.index as usize];
        slot.due_ms = NEVER;
        slot.wait = NO_WAIT;
        slot.overtaken = false;
        std::mem::replace(&mut slot.expired, NO_WAIT)
    }

    /// Whether any wait has expired since the last disarm: a read that ended in the same turn as its
    /// time may have been followed by another wait, and what the expiry shut stays shut.
    pub fn ever_expired(&self) -> bool {
        let slot = &self.owner.slots.borrow()[self.index as usize];
        slot.overtaken || slot.expired != NO_WAIT
    }

    /// Time until it falls due, as of the last sweep.
    pub fn left_ms(&self) -> u64 {
        let due_ms = self.owner.slots.borrow()[self.index as usize].due_ms;
        due_ms.saturating_sub(self.owner.now_ms.get())
    }

    /// Changes the kind of the wait that goes on, not when it falls due.
    pub fn turn(&self, wait: u8) {
        self.owner.slots.borrow_mut()[self.index as usize].wait = wait;
    }

    /// Whether this kind of wait goes on and has not expired.
    pub fn waits_for(&self, wait: u8) -> bool {
        let slot = &self.owner.slots.borrow()[self.index as usize];
        slot.wait == wait && slot.expired == NO_WAIT
    }

    /// Goes on with the wait of another slot of the same slab, which is left without one. Each still acts
    /// on what it acted on.
    pub fn take_over(&self, other: &Deadline<T>) {
        let mut slots = self.owner.slots.borrow_mut();
        let from = &mut slots[other.index as usize];
        let (due_ms, armed_ms, wait) = (from.due_ms, from.armed_ms, from.wait);
        let (expired, overtaken) = (from.expired, from.overtaken);
        (from.due_ms, from.wait, from.expired, from.overtaken) = (NEVER, NO_WAIT, NO_WAIT, false);
        let to = &mut slots[self.index as usize];
        (to.due_ms, to.armed_ms, to.wait) = (due_ms, armed_ms, wait);
        (to.expired, to.overtaken) = (expired, overtaken);
    }

    /// The kind that has expired since it was armed, or [`NO_WAIT`].
    pub fn expired(&self) -> u8 {
        self.owner.slots.borrow()[self.index as usize].expired
    }

    /// Time of the last sweep.
    pub fn now_ms(&self) -> u64 {
        self.owner.now_ms.get()
    }
}

impl<T> std::fmt::Debug for Deadline<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Deadline({})", self.index)
    }
}

impl<T> Drop for Deadline<T> {
    fn drop(&mut self) {
        self.disarm();
        self.owner.slots.borrow_mut()[self.index as usize].target = None;
        self.owner.free.borrow_mut().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_due_once_never_early_and_at_most_a_sweep_late() {
        let deadlines = Deadlines::new();
        let slot = deadlines.slot();
        slot.set_target("x");
        slot.arm(7, 1_000);
        let mut seen = Vec::new();
        for now in (0..2_000).step_by(100) {
            deadlines.sweep(now, false, |armed| {
                if armed.expired {
                    seen.push((now, armed.wait));
                }
            });
        }
        assert_eq!(seen, [(1_100, 7)]);
        assert_eq!(slot.disarm(), 7);
        assert_eq!(slot.disarm(), NO_WAIT);
    }

    #[test]
    fn a_disarmed_or_dropped_slot_is_not_shown() {
        let deadlines = Deadlines::new();
        let slot = deadlines.slot();
        slot.set_target(1);
        slot.arm(1, 10);
        slot.disarm();
        deadlines.sweep(1_000, false, |_| panic!("disarmed"));
        slot.arm(1, 10);
        drop(slot);
        deadlines.sweep(2_000, false, |_| panic!("dropped"));
        assert_eq!(deadlines.slot().index, 0, "the slot is used again");
    }

    #[test]
    fn a_wait_that_is_taken_over_falls_due_when_it_would_have() {
        let deadlines = Deadlines::new();
        let (first, second) = (deadlines.slot(), deadlines.slot());
        first.set_target("first");
        second.set_target("second");
        first.arm(1, 10);
        second.arm(2, 1_000);
        first.take_over(&second);
        let mut seen = Vec::new();
        for now in (0..2_000).step_by(100) {
            deadlines.sweep(now, false, |armed| {
                if armed.expired {
                    seen.push((now, armed.wait, *armed.target));
                }
            });
        }
        assert_eq!(seen, [(1_100, 2, "first")]);
        assert_eq!((first.disarm(), second.disarm()), (2, NO_WAIT));
    }

    #[test]
    fn the_pause_is_short_while_something_is_about_to_fall_due() {
        let deadlines = Deadlines::new();
        let slot = deadlines.slot();
        slot.set_target(());
        slot.arm(1, 5_000);
        deadlines.sweep(0, false, |_| ());
        assert_eq!(deadlines.pause_ms(), SWEEP_MS);
        deadlines.sweep(4_500, false, |_| ());
        assert_eq!(deadlines.pause_ms(), SWEEP_FINE_MS);
    }
}
