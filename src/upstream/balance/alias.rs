//! Sampling by weight in constant time: the alias method (Walker 1977, Vose 1991).

use crate::base::random::Random;

/// Indices that are drawn as often as their weights say.
#[derive(Debug, Default)]
pub struct Alias {
    columns: Vec<Column>,
    weights: Vec<u64>,
    mean: f64,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// Of 2^32, how often its own index is drawn.
    own: u32,
    /// The index that is drawn otherwise.
    other: u32,
}

impl Alias {
    /// A table over these weights.
    pub fn new(weights: &[u64]) -> Alias {
        let mut alias = Alias::default();
        alias.set_weights(weights);
        alias
    }

    /// Builds the table anew, in time proportional to its size.
    pub fn set_weights(&mut self, weights: &[u64]) {
        if self.weights == weights {
            return;
        }
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        let (count, total) = (weights.len() as u128, sum(weights));
        self.mean = total as f64 / weights.len().max(1) as f64;
        self.columns.clear();
        if total == 0 {
            return;
        }
        self.columns.extend((0..).zip(weights).map(|(index, _)| Column { own: 0, other: index }));
        // Exact: what a column holds is its weight times the number of columns, of the total.
        let mut left: Vec<u128> = weights.iter().map(|w| u128::from(*w) * count).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|index| left[*index] < total);
        while let (Some(low), Some(high)) = (small.pop(), large.last().copied()) {
            let own = (left[low] << 32) / total;
            self.columns[low] = Column {
                own: u32::try_from(own).unwrap_or(u32::MAX),
                other: u32::try_from(high).expect("at most ENDPOINTS_MAX"),
            };
            left[high] -= total - left[low];
            if left[high] < total {
                large.pop();
                small.push(high);
            }
        }
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The weight of one.
    #[inline]
    pub fn weight(&self, index: usize) -> u64 {
        self.weights[index]
    }

    /// One index by weight.
    ///
    /// # Panics
    /// None has a weight.
    #[inline]
    pub fn sample(&self, random: &Random) -> usize {
        let place = random.below((self.columns.len() as u64) << 32);
        let index = (place >> 32) as usize;
        let column = self.columns[index];
        if (place as u32) < column.own { index } else { column.other as usize }
    }

    /// One of those that are usable, by weight: by samples, and where those find nobody by looking
    /// at all of them.
    pub fn pick(&self, random: &Random, usable: impl Fn(usize) -> bool) -> Option<usize> {
        if self.columns.is_empty() {
            return None;
        }
        let sample = |_| Some(self.sample(random)).filter(|index| usable(*index));
        (0..SAMPLES_MAX).find_map(sample).or_else(|| self.scan(random, usable))
    }

    fn scan(&self, random: &Random, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let there = || (0..).zip(&self.weights).filter(|(index, w)| **w > 0 && usable(*index));
        let total: u64 = there().map(|(_, weight)| *weight).sum();
        let mut left = if total == 0 { return None } else { random.below(total) };
        for (index, weight) in there() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return Some(index),
            }
        }
        None
    }
}

fn sum(weights: &[u64]) -> u128 {
    weights.iter().map(|weight| u128::from(*weight)).sum()
}

/// Samples before all endpoints are looked at: where half of them are usable, one pick in 65,536 looks.
const SAMPLES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Each index is drawn as often as its weight says: counted over the whole table.
        #[test]
        fn the_table_holds_the_weights(weights in proptest::collection::vec(0u64..1_000, 1..40)) {
            let total: u64 = weights.iter().sum();
            let alias = Alias::new(&weights);
            let mut drawn = vec![0.0; weights.len()];
            for (index, column) in alias.columns.iter().enumerate() {
                let own = f64::from(column.own) / 2f64.powi(32);
                drawn[index] += own;
                drawn[column.other as usize] += 1.0 - own;
            }
            for (weight, drawn) in weights.iter().zip(drawn) {
                let wanted = *weight as f64 / total.max(1) as f64;
                let got = drawn / weights.len() as f64;
                proptest::prop_assert!((wanted - got).abs() < 1e-6, "{} {}", wanted, got);
            }
        }

        /// Whatever is usable is found, and nothing else.
        #[test]
        fn a_pick_is_usable(
            weights in proptest::collection::vec(0u64..3, 1..20),
            out in proptest::collection::vec(proptest::bool::ANY, 20),
        ) {
            let alias = Alias::new(&weights);
            let usable = |index: usize| !out[index];
            let picked = alias.pick(&Random::seeded(1), usable);
            let any = weights.iter().enumerate().any(|(index, w)| *w > 0 && usable(index));
            proptest::prop_assert_eq!(picked.is_some(), any);
            proptest::prop_assert!(picked.is_none_or(|index| usable(index) && weights[index] > 0));
        }
    }
}
