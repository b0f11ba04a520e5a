//! Places for requests in flight to one upstream on one worker, and the queue for them (B1).
//!
//! Without a queue a request that finds no place fails at once. With one it waits, first come first
//! served, for a bounded time: a place that is given back goes to whoever waits longest and is never
//! free in between, so that nobody overtakes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::gradient::Gradient;
use super::group::Upstream;
use super::plan::UpstreamPlan;
use crate::error::ErrorKind;

/// The places of an upstream.
#[derive(Default)]
pub struct Bulkhead {
    taken: Cell<usize>,
    /// None are counted when 0.
    places: Cell<usize>,
    queue: RefCell<VecDeque<Rc<Waiter>>>,
    /// How many may wait; none when 0.
    length_max: Cell<usize>,
    timeout_ms: Cell<u64>,
    /// What decides how many places there are, where their number is not given.
    gradient: RefCell<Option<Box<Gradient>>>,
    adaptive: Cell<bool>,
}

/// A place for one request; gives it back on drop.
pub struct Permit(Rc<Upstream>);

/// A request's place in the queue; leaves it on drop.
#[must_use = "whoever drops it leaves the queue"]
pub struct Ticket {
    upstream: Rc<Upstream>,
    waiter: Rc<Waiter>,
}

/// What asking for a place comes to.
pub enum Admission {
    /// There is one.
    Admitted(Permit),
    /// One will come, maybe.
    Queued(Ticket),
}

#[derive(Default)]
struct Waiter {
    /// Whether a place has been given to it.
    admitted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Bulkhead {
    /// Takes a plan over, for one of `workers`. Places are split so that all workers together have
    /// what is configured, but no worker less than one.
    pub fn configure(&self, plan: &UpstreamPlan, worker: usize, workers: usize) {
        self.places.set(share(plan.in_flight_max, worker, workers));
        self.adapt(
            plan.concurrency
                .map(|(min, max)| (share(min, worker, workers), share(max, worker, workers))),
        );
        self.length_max.set(share(plan.queue_length_max, worker, workers));
        self.timeout_ms.set(plan.queue_timeout_ms);
        self.let_in();
        self.check();
    }

    /// Lets a gradient between these bounds decide, or none.
    fn adapt(&self, bounds: Option<(usize, usize)>) {
        let mut gradient = self.gradient.borrow_mut();
        self.adaptive.set(bounds.is_some());
        let Some((min, max)) = bounds else {
            *gradient = None;
            return;
        };
        if !gradient.as_ref().is_some_and(|known| known.is_between(min, max)) {
            *gradient = Some(Box::new(Gradient::new(min, max)));
        }
        if let Some(gradient) = &*gradient {
            self.places.set(gradient.limit());
        }
    }

    /// Whether the number of places follows how long answers take.
    #[inline]
    pub fn is_adaptive(&self) -> bool {
        self.adaptive.get()
    }

    /// An answer took so long. The places that there are now, if they are others.
    pub fn observe(&self, now_ms: u64, took_us: u64) -> Option<usize> {
        let mut gradient = self.gradient.borrow_mut();
        let gradient = gradient.as_mut()?;
        if !gradient.observe(now_ms, took_us, self.taken.get()) {
            return None;
        }
        self.places.set(gradient.limit());
        self.let_in();
        self.check();
        Some(gradient.limit())
    }

    /// How many places there are; 0 where they are not counted.
    pub fn places(&self) -> usize {
        self.places.get()
    }

    /// How long a request may wait, in milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.get()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Places that are taken: its requests in flight.
    pub fn taken(&self) -> usize {
        self.taken.get()
    }

    fn has_room(&self) -> bool {
        self.places.get() == 0 || self.taken.get() < self.places.get()
    }

    /// Gives free places to those who wait.
    fn let_in(&self) {
        while self.has_room() {
            let Some(first) = self.queue.borrow_mut().pop_front() else { return };
            self.taken.set(self.taken.get() + 1);
            first.admit();
        }
    }

    fn give_back(&self) {
        assert!(self.taken.get() > 0, "a place was taken");
        self.taken.set(self.taken.get() - 1);
        self.let_in();
        self.check();
    }

    /// Nobody waits while there is room.
    fn check(&self) {
        debug_assert!(self.waiting() == 0 || !self.has_room(), "nobody waits beside a free place");
    }
}

impl Upstream {
    /// A place for one request, or one in the queue.
    ///
    /// # Errors
    /// [`ErrorKind::AtCapacity`] when all places are taken and there is no queue,
    /// [`ErrorKind::QueueFull`] when as many wait as may.
    #[inline]
    pub fn admit(self: &Rc<Self>) -> Result<Admission, ErrorKind> {
        let bulkhead = &self.bulkhead;
        if bulkhead.has_room() {
            bulkhead.taken.set(bulkhead.taken.get() + 1);
            return Ok(Admission::Admitted(Permit(self.clone())));
        }
        match bulkhead.length_max.get() {
            0 => Err(ErrorKind::AtCapacity),
            most if bulkhead.waiting() >= most => Err(ErrorKind::QueueFull),
            _ => {
                let waiter = Rc::new(Waiter::default());
                bulkhead.queue.borrow_mut().push_back(waiter.clone());
                Ok(Admission::Queued(Ticket { upstream: self.clone(), waiter }))
            }
        }
    }
}

impl Ticket {
    /// Whose place is waited for.
    pub fn upstream(&self) -> &Rc<Upstream> {
        &self.upstream
    }
}

impl Waiter {
    fn admit(&self) {
        self.admitted.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Future for Ticket {
    type Output = Permit;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        if self.waiter.admitted.replace(false) {
            return Poll::Ready(Permit(self.upstream.clone()));
        }
        self.waiter.waker.replace(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let bulkhead = &self.upstream.bulkhead;
        if self.waiter.admitted.get() {
            // It was let in and does not come.
            bulkhead.give_back();
            return;
        }
        bulkhead.queue.borrow_mut().retain(|waiter| !Rc::ptr_eq(waiter, &self.waiter));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.bulkhead.give_back();
    }
}

/// What one of `workers` has of a number for all of them.
pub fn share(all: usize, worker: usize, workers: usize) -> usize {
    match all {
        0 => 0,
        _ => (all / workers + usize::from(worker < all % workers)).max(1),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::upstream::testing::plan;

    fn upstream(places: usize, length_max: usize) -> Rc<Upstream> {
        let mut plan = plan(&[1]);
        (plan.in_flight_max, plan.queue_length_max) = (places, length_max);
        let upstream = Upstream::new(&plan);
        upstream.bulkhead.configure(&plan, 0, 1);
        upstream
    }

    fn taken(upstream: &Rc<Upstream>) -> Permit {
        match upstream.admit() {
            Ok(Admission::Admitted(permit)) => permit,
            _ => panic!("there is room"),
        }
    }

    fn queued(upstream: &Rc<Upstream>) -> Ticket {
        match upstream.admit() {
            Ok(Admission::Queued(ticket)) => ticket,
            _ => panic!("there is room in the queue"),
        }
    }

    fn poll(ticket: &mut Ticket) -> Option<Permit> {
        match Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn places_of_all_workers_are_what_is_configured() {
        for (all, workers) in [(10, 4), (4, 4), (1_000, 3), (7, 1), (0, 3)] {
            let sum: usize = (0..workers).map(|worker| share(all, worker, workers)).sum();
            assert_eq!(sum, all, "{all} over {workers}");
        }
        assert_eq!((0..4).map(|worker| share(2, worker, 4)).sum::<usize>(), 4, "one each");
    }

    #[test]
    fn without_a_queue_it_fails_at_once() {
        let upstream = upstream(2, 0);
        let held = [taken(&upstream), taken(&upstream)];
        assert_eq!(upstream.admit().err(), Some(ErrorKind::AtCapacity));
        drop(held);
        drop([taken(&upstream), taken(&upstream)]);
    }

    #[test]
    fn who_waits_longest_is_next_and_nobody_overtakes() {
        let upstream = upstream(1, 2);
        let first = taken(&upstream);
        let (mut one, mut two) = (queued(&upstream), queued(&upstream));
        assert_eq!(upstream.admit().err(), Some(ErrorKind::QueueFull));
        assert!(poll(&mut one).is_none() && poll(&mut two).is_none());
        drop(first);
        assert!(poll(&mut two).is_none(), "it is the first one's turn");
        let mut three = queued(&upstream);
        let second = poll(&mut one).expect("its turn");
        drop((one, second));
        let third = poll(&mut two).expect("its turn");
        assert!(poll(&mut three).is_none());
        drop((two, third));
        let last = poll(&mut three).expect("its turn");
        drop((three, last));
        assert_eq!((upstream.bulkhead.waiting(), upstream.bulkhead.taken.get()), (0, 0));
    }

    #[test]
    fn who_leaves_takes_no_place_with_it() {
        let upstream = upstream(1, 4);
        let held = taken(&upstream);
        let (gone, mut stays) = (queued(&upstream), queued(&upstream));
        drop(gone);
        assert_eq!(upstream.bulkhead.waiting(), 1);
        let let_in_and_gone = queued(&upstream);
        drop(held);
        drop(poll(&mut stays).expect("its turn"));
        drop(stays);
        assert!(let_in_and_gone.waiter.admitted.get());
        drop(let_in_and_gone);
        assert_eq!((upstream.bulkhead.waiting(), upstream.bulkhead.taken.get()), (0, 0));
    }

    #[test]
    fn a_reload_that_gives_more_places_lets_in() {
        let upstream = upstream(1, 4);
        let _held = taken(&upstream);
        let (mut one, mut two) = (queued(&upstream), queued(&upstream));
        let mut plan = plan(&[1]);
        (plan.in_flight_max, plan.queue_length_max) = (2, 4);
        upstream.bulkhead.configure(&plan, 0, 1);
        assert!(poll(&mut one).is_some_and(|permit| poll(&mut two).is_none() && drop_it(permit)));
        assert!(poll(&mut two).is_some());
    }

    /// What is in flight beyond a limit that fell keeps its place; nobody new comes in.
    #[test]
    fn a_limit_that_follows_the_answers() {
        let mut plan = plan(&[1]);
        (plan.concurrency, plan.queue_length_max) = (Some((2, 100)), 4);
        let upstream = Upstream::new(&plan);
        upstream.bulkhead.configure(&plan, 0, 1);
        let places = upstream.bulkhead.places();
        let held: Vec<Permit> = (0..places).map(|_| taken(&upstream)).collect();
        let mut waits = queued(&upstream);
        upstream.bulkhead.observe(0, 1_000);
        let take = |samples: std::ops::Range<u64>, took_us| {
            for sample in samples {
                upstream.bulkhead.observe(sample * 20, took_us);
            }
        };
        take(1..200, 50_000);
        let fewer = upstream.bulkhead.places();
        assert!((2..places / 2).contains(&fewer), "{places}, then {fewer}");
        let kept: Vec<Permit> = held.into_iter().take(fewer).collect();
        assert!(poll(&mut waits).is_none(), "there are as many as may be");
        take(200..400, 1_000);
        assert!(upstream.bulkhead.places() > fewer && poll(&mut waits).is_some());
        drop(kept);
        upstream.bulkhead.configure(&crate::upstream::testing::plan(&[1]), 0, 1);
        assert!(!upstream.bulkhead.is_adaptive() && upstream.bulkhead.places() == 0);
    }

    fn drop_it(permit: Permit) -> bool {
        drop(permit);
        true
    }
}
