//! Thresholds that follow what is usual (B2).
//!
//! Once a window, the error rate and the mean time to the head of an answer are held against their
//! own moving averages. Workers count sums, so the mean stands for the tail: what is slow for one
//! request in a hundred shows in it where it is slow enough to matter.

use super::window::Outcomes;
use crate::limits::{BREAKER_ADAPTIVE_PERCENT_MIN, BREAKER_ADAPTIVE_WINDOWS};

/// What is usual of one thing, and by how much its threshold is lowered.
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    usual: Option<Usual>,
    /// Windows above it, in a row.
    above: u32,
    /// How many times the threshold is halved.
    halvings: u32,
}

#[derive(Clone, Copy, Debug)]
struct Usual {
    errors: f64,
    head_us: f64,
}

impl Adaptive {
    /// Takes in the outcomes of a window that says enough.
    pub fn judge(&mut self, window: Outcomes) {
        let requests = window.requests();
        if requests == 0 {
            return;
        }
        let errors = window.failed as f64 / requests as f64;
        let head_us =
            (window.succeeded > 0).then(|| window.head_us as f64 / window.succeeded as f64);
        let Some(usual) = &mut self.usual else {
            self.usual = Some(Usual { errors, head_us: head_us.unwrap_or(0.0) });
            return;
        };
        let above = errors > usual.errors + usual.noise(requests)
            || head_us.is_some_and(|us| us > usual.head_us * SLOWER + SLOWER_US);
        // What stays becomes usual in the end, or a threshold would never rise again.
        let weight = if above { WEIGHT_ABOVE } else { WEIGHT };
        usual.errors += weight * (errors - usual.errors);
        if let Some(us) = head_us {
            usual.head_us += weight * (us - usual.head_us);
        }
        if !above {
            self.above = 0;
            self.halvings = self.halvings.saturating_sub(1);
            return;
        }
        self.above += 1;
        if self.above == BREAKER_ADAPTIVE_WINDOWS {
            self.above = 0;
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
        }
    }

    /// The threshold that holds where `configured` is that of a calm time, in percent.
    pub fn percent(&self, configured: u64) -> u64 {
        let least = configured.min(BREAKER_ADAPTIVE_PERCENT_MIN);
        (configured >> self.halvings).max(least)
    }
}

impl Usual {
    /// How far a window of so many requests strays by chance, in two of three cases of a hundred at
    /// most: two standard deviations of a binomial share, or half of what is usual.
    fn noise(&self, requests: u64) -> f64 {
        let requests = requests as f64;
        let share = self.errors.clamp(1.0 / requests, 0.5);
        (2.0 * (share * (1.0 - share) / requests).sqrt()).max(self.errors / 2.0)
    }
}

/// Weight of a new window in the averages, and of one that is above them.
const WEIGHT: f64 = 0.2;
/// See [`WEIGHT`].
const WEIGHT_ABOVE: f64 = 0.02;
/// How many times the usual time, and how much beyond it, is slow.
const SLOWER: f64 = 1.5;
/// See [`SLOWER`].
const SLOWER_US: f64 = 1_000.0;
/// 100 % halved so often is below the least threshold.
const HALVINGS_MAX: u32 = 6;

const _: () = assert!(100 >> HALVINGS_MAX < BREAKER_ADAPTIVE_PERCENT_MIN);

#[cfg(test)]
mod tests {
    use super::*;

    fn window(succeeded: u64, failed: u64, mean_us: u64) -> Outcomes {
        Outcomes { succeeded, failed, head_us: succeeded * mean_us }
    }

    #[test]
    fn three_windows_above_halve_the_threshold_and_calm_ones_raise_it() {
        let mut adaptive = Adaptive::default();
        (0..20).for_each(|_| adaptive.judge(window(995, 5, 2_000)));
        assert_eq!(adaptive.percent(30), 30);
        let bad =
            |adaptive: &mut Adaptive| (0..3).for_each(|_| adaptive.judge(window(940, 60, 2_000)));
        bad(&mut adaptive);
        assert_eq!(adaptive.percent(30), 15);
        bad(&mut adaptive);
        assert_eq!(adaptive.percent(30), 7);
        (0..9).for_each(|_| adaptive.judge(window(700, 300, 2_000)));
        assert_eq!(adaptive.percent(30), BREAKER_ADAPTIVE_PERCENT_MIN, "no lower");
        assert_eq!(adaptive.percent(1), 1, "nor lower than it was");
        adaptive.judge(window(1000, 0, 2_000));
        let raised = adaptive.percent(100);
        adaptive.judge(window(1000, 0, 2_000));
        assert_eq!(adaptive.percent(100), 2 * raised, "step by step");
    }

    #[test]
    fn slowness_counts_as_errors_do_and_two_windows_are_none() {
        let mut adaptive = Adaptive::default();
        (0..20).for_each(|_| adaptive.judge(window(1000, 0, 5_000)));
        for slow in [true, true, false, true, true, false] {
            adaptive.judge(window(1000, 0, if slow { 20_000 } else { 5_000 }));
        }
        assert_eq!(adaptive.percent(30), 30);
        (0..3).for_each(|_| adaptive.judge(window(1000, 0, 20_000)));
        assert_eq!(adaptive.percent(30), 15);
    }

    #[test]
    fn what_stays_becomes_usual() {
        let mut adaptive = Adaptive::default();
        (0..20).for_each(|_| adaptive.judge(window(1000, 0, 5_000)));
        (0..100).for_each(|_| adaptive.judge(window(1000, 0, 15_000)));
        assert_eq!(adaptive.percent(30), 30, "slower for good is no failure");
    }
}
