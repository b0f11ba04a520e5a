//! What the ids of a configuration stand for.

use std::sync::Arc;

/// Values by a dense id.
#[derive(Clone, Debug)]
pub struct ById<T>(Vec<Option<T>>);

impl<T> ById<T> {
    /// Sets the value of an id.
    pub fn set(&mut self, id: u32, value: T) {
        let index = id as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(value);
    }

    /// The value of an id.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.0.get(id as usize)?.as_ref()
    }

    /// Whether the id has a value.
    pub fn holds(&self, id: u32) -> bool {
        self.get(id).is_some()
    }

    /// Those that have a value, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.0).filter_map(|(id, value)| Some((id, value.as_ref()?)))
    }

    /// Takes away the values for which `keep` says no, and the memory behind the last that is left.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, &T) -> bool) {
        for (id, slot) in (0..).zip(&mut self.0) {
            if slot.as_ref().is_some_and(|value| !keep(id, value)) {
                *slot = None;
            }
        }
        let length = self.0.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.0.truncate(length);
        if self.0.capacity() > 2 * length {
            self.0.shrink_to_fit();
        }
    }
}

impl<T> Default for ById<T> {
    fn default() -> ById<T> {
        ById(Vec::new())
    }
}

/// The labels of one configuration: each id that it gives out, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Route ids.
    pub routes: ById<Arc<str>>,
    /// Names of upstreams.
    pub upstreams: ById<Arc<str>>,
    /// Endpoints.
    pub endpoints: ById<EndpointName>,
    /// Names of filters; a limiter's is that of its policy.
    pub filters: ById<Arc<str>>,
    /// Names of listeners.
    pub listeners: ById<Arc<str>>,
}

/// An endpoint's labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointName {
    /// Name of its upstream.
    pub upstream: Arc<str>,
    /// Its address as written.
    pub address: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_gone_with_the_memory_behind_it() {
        let mut values = ById::default();
        for id in [0, 2, 100] {
            values.set(id, id);
        }
        assert_eq!(values.iter().map(|(id, _)| id).collect::<Vec<_>>(), [0, 2, 100]);
        assert!(values.holds(2) && !values.holds(1) && !values.holds(101));
        values.retain(|id, _| id == 2);
        assert_eq!(values.iter().collect::<Vec<_>>(), [(2, &2)]);
        assert!(values.0.capacity() < 10);
        values.retain(|_, _| false);
        assert_eq!(values.0.capacity(), 0);
    }
}
