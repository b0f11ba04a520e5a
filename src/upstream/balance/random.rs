//! Random by weight: no state, so that many gateways and workers cannot fall into step.

use super::{Alias, View};
use crate::base::random::Random;

/// The endpoint for a request.
pub fn pick(alias: &Alias, view: &impl View, random: &Random) -> Option<usize> {
    alias.pick(random, |index| view.is_usable(index))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;

    #[test]
    fn shares_follow_the_weights_also_of_what_is_left() {
        let (alias, random) = (Alias::new(&[100, 300, 0, 600]), Random::seeded(7));
        for (out, wanted) in [(vec![], [0.1, 0.3, 0.0, 0.6]), (vec![3], [0.25, 0.75, 0.0, 0.0])] {
            let view = Fake { out, ..Fake::default() };
            let mut counts = [0u32; 4];
            for _ in 0..40_000 {
                counts[pick(&alias, &view, &random).expect("some are usable")] += 1;
            }
            for (count, wanted) in counts.iter().zip(wanted) {
                // Standard deviation of 0.0025 at most: four of them.
                assert!((f64::from(*count) / 40_000.0 - wanted).abs() < 0.01, "{counts:?}");
            }
        }
        let nobody = Fake { out: vec![0, 1, 3], ..Fake::default() };
        assert_eq!(pick(&alias, &nobody, &random), None);
    }
}
