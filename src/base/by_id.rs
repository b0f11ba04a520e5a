//! Values by an id out of a counter.

/// Values by id, in pages that are there as long as one of their ids has a value: ids of what is
/// gone are not given out again, and take a pointer for [`PAGE`] of them.
#[derive(Clone, Debug)]
pub struct ById<T>(Vec<Option<Box<Page<T>>>>);

#[derive(Clone, Debug)]
struct Page<T> {
    slots: [Option<T>; PAGE],
    /// How many of them have a value.
    held: usize,
}

impl<T> ById<T> {
    /// Sets the value of an id.
    pub fn set(&mut self, id: u32, value: T) {
        let (page, slot) = place(id);
        if self.0.len() <= page {
            self.0.resize_with(page + 1, || None);
        }
        let page = self.0[page].get_or_insert_with(Box::default);
        page.held += usize::from(page.slots[slot].replace(value).is_none());
    }

    /// The value of an id: two loads.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        let (page, slot) = place(id);
        self.0.get(page)?.as_ref()?.slots[slot].as_ref()
    }

    /// Whether the id has a value.
    #[inline]
    pub fn holds(&self, id: u32) -> bool {
        self.get(id).is_some()
    }

    /// Those that have a value, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let pages = (0..).step_by(PAGE).zip(&self.0);
        let pages = pages.filter_map(|(first, page): (u32, _)| Some((first, page.as_ref()?)));
        let slots = pages.flat_map(|(first, page)| (first..).zip(&page.slots));
        slots.filter_map(|(id, value)| Some((id, value.as_ref()?)))
    }

    /// Takes away the values for which `keep` says no, and the memory that no value is left in.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, &T) -> bool) {
        for (first, place) in (0..).step_by(PAGE).zip(&mut self.0) {
            let Some(page) = place else { continue };
            for (id, slot) in (first..).zip(&mut page.slots) {
                if slot.as_ref().is_some_and(|value| !keep(id, value)) {
                    *slot = None;
                    page.held -= 1;
                }
            }
            if page.held == 0 {
                *place = None;
            }
        }
        let length = self.0.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.0.truncate(length);
        if self.0.capacity() > 2 * length {
            self.0.shrink_to_fit();
        }
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.0.iter().flatten().count()
    }
}

impl<T> Default for ById<T> {
    fn default() -> ById<T> {
        ById(Vec::new())
    }
}

impl<T> Default for Page<T> {
    fn default() -> Page<T> {
        Page { slots: [const { None }; PAGE], held: 0 }
    }
}

#[inline]
fn place(id: u32) -> (usize, usize) {
    let id = id as usize;
    (id / PAGE, id % PAGE)
}

/// Ids of a page. Few enough that one value alone in its page, which is what is left where most came
/// and went, costs a kilobyte at most.
const PAGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_gone_with_its_memory() {
        let mut values = ById::default();
        for id in [0, 2, 63, 64, 10_000] {
            values.set(id, id);
        }
        values.set(2, 2);
        assert_eq!(values.iter().map(|(id, _)| id).collect::<Vec<_>>(), [0, 2, 63, 64, 10_000]);
        assert!(values.iter().all(|(id, value)| id == *value));
        assert!(values.holds(2) && !values.holds(1) && !values.holds(65) && !values.holds(101));
        assert!(!values.holds(u32::MAX));
        assert_eq!(values.pages(), 3);
        values.retain(|id, _| id == 64);
        assert_eq!(values.iter().collect::<Vec<_>>(), [(64, &64)]);
        assert_eq!((values.pages(), values.0.len()), (1, 2));
        assert!(values.0.capacity() < 10);
        values.retain(|_, _| false);
        assert_eq!((values.pages(), values.0.capacity()), (0, 0));
    }

    /// A window that moves over the ids, with one value that stays.
    #[test]
    fn pages_are_bounded_by_what_is_held() {
        let mut values = ById::default();
        values.set(0, ());
        for first in (1..100_000).step_by(100) {
            (first..first + 100).for_each(|id| values.set(id, ()));
            values.retain(|id, ()| id == 0 || id >= first);
            assert!(values.pages() <= 4, "{first}: {}", values.pages());
        }
    }
}
