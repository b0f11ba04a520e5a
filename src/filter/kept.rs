//! What filters keep over reloads, by identity: a reload refills no bucket.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::FilterId;

/// State of filters, which the configuration compiler hands to the plan of the same filter again.
/// It lives as long as a plan holds it.
#[derive(Debug, Default)]
pub struct Kept(HashMap<FilterId, Weak<dyn Any + Send + Sync>>);

impl Kept {
    /// The state of filter `id` as it stands, or a new one where there is none of this type.
    pub fn state<T: Send + Sync + 'static>(
        &mut self,
        id: FilterId,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let kept = self.0.get(&id).and_then(Weak::upgrade);
        kept.and_then(|state| state.downcast::<T>().ok()).unwrap_or_else(|| {
            let made = Arc::new(make());
            let state: Arc<dyn Any + Send + Sync> = made.clone();
            self.0.insert(id, Arc::downgrade(&state));
            made
        })
    }

    /// Forgets those that no plan holds any more.
    pub fn prune(&mut self) {
        self.0.retain(|_, state| state.strong_count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_filter_gets_its_state_again_and_another_type_a_new_one() {
        let mut kept = Kept::default();
        let first = kept.state(FilterId(1), || 7u32);
        assert!(Arc::ptr_eq(&first, &kept.state(FilterId(1), || 8u32)));
        assert_eq!(*kept.state(FilterId(2), || 8u32), 8);
        assert_eq!(*kept.state(FilterId(2), || "text"), "text");
        drop(first);
        assert_eq!(*kept.state(FilterId(1), || 9u32), 9, "nobody held it");
        kept.prune();
        assert!(kept.0.is_empty());
    }
}
