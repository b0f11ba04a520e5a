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
    pub fn new(weights: impl Iterator<Item = u64>) -> RoundRobin {
        let entry = |weight: u64| Entry { weight: signed(weight), current: 0 };
        let entries: Vec<Entry> = weights.map(entry).collect();
        let total = entries.iter().map(|entry| entry.weight).sum();
        RoundRobin { entries, total }
    }

    /// Gives the same endpoints other weights, and the turn goes on where it stood.
    pub fn set_weights(&mut self, weights: &[u64]) {
        assert_eq!(self.entries.len(), weights.len(), "the same endpoints");
        self.total = weights.iter().map(|weight| signed(*weight)).sum();
        for (entry, weight) in self.entries.iter_mut().zip(weights) {
            entry.weight = signed(*weight);
            // What was owed by larger weights would take long to be paid back by smaller ones.
            entry.current = entry.current.clamp(-self.total, entry.weight);
        }
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

fn signed(weight: u64) -> i64 {
    i64::try_from(weight).expect("a weight times a thousand fits")
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

    #[test]
    fn a_weight_that_comes_back_slowly_gets_its_share_at_once() {
        let mut balance = RoundRobin::new([1_000, 1_000].into_iter());
        balance.pick(|_| true);
        for (permille, wanted) in [(0, 0), (50, 5), (500, 33)] {
            balance.set_weights(&[1_000, permille]);
            let picked = (0..100).filter(|_| balance.pick(|_| true) == Some(1)).count();
            assert!(picked.abs_diff(wanted) <= 1, "{permille}: {picked}");
        }
    }

    proptest::proptest! {
        /// Over one whole turn each endpoint is chosen exactly as often as its weight says.
        #[test]
        fn one_turn_is_exact(weights in proptest::collection::vec(0u64..20, 1..8)) {
            let turn: u64 = weights.iter().sum();
            let mut balance = RoundRobin::new(weights.iter().copied());
            let mut picked = vec![0; weights.len()];
            for _ in 0..turn {
                picked[balance.pick(|_| true).expect("some weight")] += 1;
            }
            proptest::prop_assert_eq!(picked, weights);
        }
    }
}
