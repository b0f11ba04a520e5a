//! Places for requests in flight on the routes that bound them (B1).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::base::by_id::ById;
use crate::error::ErrorKind;

/// How many requests are in flight on each route that bounds them, on this core.
#[derive(Debug, Default)]
pub struct Gates(RefCell<ById<Rc<Cell<usize>>>>);

/// A place for one request on a route; gives it back on drop.
#[derive(Debug)]
pub struct Passage(Rc<Cell<usize>>);

impl Gates {
    /// A place on a route of which `max` requests may be in flight on this core.
    ///
    /// # Errors
    /// [`ErrorKind::RouteAtCapacity`] when all are taken.
    pub fn enter(&self, route: u32, max: usize) -> Result<Passage, ErrorKind> {
        let known = self.0.borrow().get(route).cloned();
        let taken = known.unwrap_or_else(|| {
            let taken: Rc<Cell<usize>> = Rc::default();
            self.0.borrow_mut().set(route, taken.clone());
            taken
        });
        if taken.get() >= max {
            return Err(ErrorKind::RouteAtCapacity);
        }
        taken.set(taken.get() + 1);
        Ok(Passage(taken))
    }

    /// Forgets the routes for which `stays` says no; who is in flight there counts for nothing.
    pub fn retain(&self, stays: impl Fn(u32) -> bool) {
        self.0.borrow_mut().retain(|route, _| stays(route));
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        assert!(self.0.get() > 0, "a place was taken");
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_routes_do_not_share() {
        let gates = Gates::default();
        let held = gates.enter(7, 1).expect("the first");
        assert_eq!(gates.enter(7, 1).err(), Some(ErrorKind::RouteAtCapacity));
        gates.enter(8, 1).expect("another route");
        gates.enter(7, 2).expect("a reload gave one more");
        drop(held);
        gates.enter(7, 1).expect("it came back");
        gates.retain(|route| route == 8);
        assert_eq!(gates.0.borrow().iter().count(), 1);
    }
}
