//! What filters keep over reloads, by identity: a reload refills no bucket.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::FilterId;

/// State of filters, which the configuration compiler hands to the plan of the same filter again.
/// It lives as long as a plan holds it.
///
/// What a compilation makes counts once its configuration is taken ([`Kept::take_over`]): a refused
/// one changes nothing. One that is refused after that, since it cannot listen where it wants to,
/// takes its state with it, and the one before is still there.
#[derive(Debug, Default)]
pub struct Kept {
    /// The newest last.
    taken: HashMap<FilterId, Vec<State>>,
    made: HashMap<FilterId, State>,
}

type State = Weak<dyn Any + Send + Sync>;

impl Kept {
    /// The state of filter `id` as it stands, or a new one where there is none of this type.
    pub fn state<T: Send + Sync + 'static>(
        &mut self,
        id: FilterId,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        self.renew(id, |kept| kept.unwrap_or_else(|| Arc::new(make())))
    }

    /// The state that `make` makes of the one that filter `id` has, if it has one of this type.
    pub fn renew<T: Send + Sync + 'static>(
        &mut self,
        id: FilterId,
        make: impl FnOnce(Option<Arc<T>>) -> Arc<T>,
    ) -> Arc<T> {
        let kept =
            self.taken.get(&id).and_then(|states| states.iter().rev().find_map(State::upgrade));
        let state = make(kept.and_then(|state| state.downcast::<T>().ok()));
        let any: Arc<dyn Any + Send + Sync> = state.clone();
        self.made.insert(id, Arc::downgrade(&any));
        state
    }

    /// The configuration was taken: what was made for it counts, and what no plan holds any more is
    /// forgotten.
    pub fn take_over(&mut self) {
        for (id, made) in self.made.drain() {
            let states = self.taken.entry(id).or_default();
            states.retain(|state| !state.ptr_eq(&made));
            states.push(made);
        }
        self.taken.retain(|_, states| {
            states.retain(|state| state.strong_count() > 0);
            !states.is_empty()
        });
    }

    /// The configuration was refused: what was made for it never was.
    pub fn forget_made(&mut self) {
        self.made.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_filter_gets_its_state_again_and_another_type_a_new_one() {
        let mut kept = Kept::default();
        let first = kept.state(FilterId(1), || 7u32);
        kept.take_over();
        assert!(Arc::ptr_eq(&first, &kept.state(FilterId(1), || 8u32)));
        assert_eq!(*kept.state(FilterId(2), || 8u32), 8);
        assert_eq!(*kept.state(FilterId(2), || "text"), "text");
        kept.take_over();
        drop(first);
        assert_eq!(*kept.state(FilterId(1), || 9u32), 9, "nobody held it");
        kept.take_over();
        assert!(kept.taken.is_empty());
    }

    #[test]
    fn a_refused_configuration_changes_nothing() {
        let mut kept = Kept::default();
        let first = kept.state(FilterId(1), || 7u32);
        kept.take_over();
        let refused =
            kept.renew(FilterId(1), |held: Option<Arc<u32>>| Arc::new(*held.expect("held") + 1));
        assert_eq!(*refused, 8);
        drop(refused);
        kept.forget_made();
        assert!(Arc::ptr_eq(&first, &kept.state(FilterId(1), || 9u32)));
        let late = kept.renew(FilterId(1), |held: Option<Arc<u32>>| Arc::new(*held.expect("held")));
        kept.take_over();
        assert!(Arc::ptr_eq(&late, &kept.state(FilterId(1), || 9u32)), "the newest");
        drop(late);
        assert!(Arc::ptr_eq(&first, &kept.state(FilterId(1), || 9u32)), "the one that runs");
    }
}
