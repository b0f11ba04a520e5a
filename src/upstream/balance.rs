//! Smooth weighted round robin: every endpoint gets its share, and heavy ones do not come in runs.

/// The state of one balancer: nginx's algorithm, each pick raises every endpoint by its weight and
/// lowers the chosen one by the sum.
#[derive(Debug, Default)]
pub struct RoundRobin {
    entries: Vec<Entry>,
    total: i64,
}

#[derive(Debug)]
struct Entry {
    weight: i64,
    current: i64,
}

impl RoundRobin {
    /// A balancer over endpoints with these weights.
    pub fn new(weights: impl Iterator<Item = u32>) -> RoundRobin {
        let entry = |weight: u32| Entry { weight: i64::from(weight), current: 0 };
        let entries: Vec<Entry> = weights.map(entry).collect();
        let total = entries.iter().map(|entry| entry.weight).sum();
        RoundRobin { entries, total }
    }

    /// Whether it is one over endpoints with these weights.
    pub fn has_weights(&self, weights: impl Iterator<Item = u32>) -> bool {
        self.entries.iter().map(|entry| entry.weight).eq(weights.map(i64::from))
    }

    /// The next endpoint among those that `usable` lets through; weight 0 is never chosen.
    pub fn pick(&mut self, usable: impl Fn(usize) -> bool) -> Option<usize> {
        if let [only] = self.entries.as_slice() {
            return (only.weight > 0 && usable(0)).then_some(0);
        }
        let mut best: Option<usize> = None;
        let mut total = 0;
        for index in 0..self.entries.len() {
            if self.entries[index].weight == 0 || !usable(index) {
                continue;
            }
            total += self.entries[index].weight;
            self.entries[index].current += self.entries[index].weight;
            if best.is_none_or(|best| self.entries[index].current > self.entries[best].current) {
                best = Some(index);
            }
        }
        let best = best?;
        self.entries[best].current -= total;
        debug_assert!(total <= self.total, "no more than all of them");
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights_without_runs() {
        let mut balance = RoundRobin::new([5, 1, 1].into_iter());
        let picks: Vec<_> = (0..7).filter_map(|_| balance.pick(|_| true)).collect();
        assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn an_unusable_or_weightless_endpoint_is_never_chosen() {
        let mut balance = RoundRobin::new([1, 0, 1].into_iter());
        for _ in 0..10 {
            assert_eq!(balance.pick(|index| index != 0), Some(2));
        }
        assert_eq!(balance.pick(|_| false), None);
        assert_eq!(RoundRobin::new([0].into_iter()).pick(|_| true), None);
    }

    proptest::proptest! {
        /// Over one whole turn each endpoint is chosen exactly as often as its weight says.
        #[test]
        fn one_turn_is_exact(weights in proptest::collection::vec(0u32..20, 1..8)) {
            let turn: u32 = weights.iter().sum();
            let mut balance = RoundRobin::new(weights.iter().copied());
            let mut picked = vec![0; weights.len()];
            for _ in 0..turn {
                picked[balance.pick(|_| true).expect("some weight")] += 1;
            }
            proptest::prop_assert_eq!(picked, weights);
        }
    }
}
