//! Least requests by two random choices: of two endpoints that are drawn by weight the one with fewer
//! requests in flight, for its weight.
//!
//! Both are drawn by weight and compared by requests / weight. A comparison of (requests + 1) / weight
//! would count weights twice: while nothing is in flight the heavier of two would always win, and an
//! endpoint in its slow start would get a fraction of its share, or by uniform draws many times of it.

use super::{Alias, View, of_two};
use crate::base::random::Random;

/// The endpoint for a request.
pub fn pick(alias: &Alias, view: &impl View, random: &Random) -> Option<usize> {
    let cost = |index| f64::from(view.in_flight(index)) / alias.weight(index) as f64;
    of_two(alias, view, random, cost)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::testing::Fake;
    use super::*;

    /// Shares where each request lasts until `width` more have come.
    pub fn shares(weights: &[u64], width: usize) -> Vec<f64> {
        let (alias, random) = (Alias::new(weights), Random::seeded(3));
        let mut view = Fake { in_flight: vec![0; weights.len()], ..Fake::default() };
        let mut running = VecDeque::new();
        let mut counts = vec![0u32; weights.len()];
        for _ in 0..50_000 {
            let index = pick(&alias, &view, &random).expect("all are usable");
            counts[index] += 1;
            view.in_flight[index] += 1;
            running.push_back(index);
            if running.len() > width {
                view.in_flight[running.pop_front().expect("not empty")] -= 1;
            }
        }
        counts.iter().map(|count| f64::from(*count) / 50_000.0).collect()
    }

    /// Also for one in its slow start, and whether nothing is in flight or much.
    #[test]
    fn shares_follow_the_weights() {
        for weights in [&[100, 100, 100][..], &[100, 200, 700], &[5, 100, 100, 100, 100]] {
            let total: u64 = weights.iter().sum();
            for width in [0, 10, 100] {
                let shares = shares(weights, width);
                for (weight, share) in weights.iter().zip(&shares) {
                    let wanted = *weight as f64 / total as f64;
                    assert!(*share < 2.0 * wanted && *share > 0.75 * wanted, "{width} {shares:?}");
                }
            }
        }
    }

    #[test]
    fn a_busy_endpoint_is_spared() {
        let (alias, random) = (Alias::new(&[1, 1, 1]), Random::seeded(5));
        let view = Fake { in_flight: vec![9, 0, 0], ..Fake::default() };
        let count = (0..1_000).filter(|_| pick(&alias, &view, &random) == Some(0)).count();
        // Only where three draws found no other: one in 27 of a third.
        assert!(count < 40, "{count}");
        let alone = Fake { out: vec![1, 2], in_flight: vec![9, 0, 0], ..Fake::default() };
        assert_eq!(pick(&alias, &alone, &random), Some(0));
    }
}
