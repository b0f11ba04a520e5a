//! Thresholds that follow what is usual (B2).
//!
//! Once a window, the error rate and the 99th percentile of the times to the heads of answers are held
//! against their own moving averages.

use super::window::Outcomes;
use crate::limits::*;
use crate::upstream::heads::HeadsView;

/// What is usual of one thing, and by how much its threshold is lowered.
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    usual: Option<Usual>,
    /// Windows above it, in a row.
    above: u32,
    /// How many times the threshold is halved.
    halvings: u32,
}

/// What is usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// The share of requests that fail.
    pub errors: f64,
    /// The time in microseconds that one answer in a hundred takes longer than; none where no window
    /// had enough answers.
    pub tail_us: Option<f64>,
}

impl Adaptive {
    /// Takes in a window that says enough: its outcomes, and how long the heads of its answers took.
    pub fn judge(&mut self, window: Outcomes, heads: &HeadsView) {
        let requests = window.requests();
        if requests == 0 {
            return;
        }
        let errors = window.failed as f64 / requests as f64;
        let answers = heads.count();
        let tail_us = heads.tail_us().filter(|_| answers >= BREAKER_TAIL_ANSWERS_MIN);
        let Some(usual) = &mut self.usual else {
            self.usual = Some(Usual { errors, tail_us });
            return;
        };
        let above = errors > usual.errors + usual.noise(requests)
            || tail_us.is_some() && usual.is_slow(heads, answers);
        // What stays becomes usual in the end, or a threshold would never rise again.
        let weight = if above { WEIGHT_ABOVE } else { WEIGHT };
        usual.errors += weight * (errors - usual.errors);
        usual.tail_us = match (usual.tail_us, tail_us) {
            (Some(usual), Some(us)) => Some(usual + weight * (us - usual)),
            (usual, first) => usual.or(first),
        };
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

    /// What is usual, once a window has said enough.
    pub fn usual(&self) -> Option<Usual> {
        self.usual
    }

    /// The threshold that holds where `configured` is that of a calm time, in percent.
    pub fn percent(&self, configured: u64) -> u64 {
        let least = configured.min(BREAKER_ADAPTIVE_PERCENT_MIN);
        (configured >> self.halvings).max(least)
    }
}

impl Usual {
    /// How far a window of so many requests strays by chance, once in hundreds of windows: three
    /// standard deviations of a binomial share, or half of what is usual.
    fn noise(&self, requests: u64) -> f64 {
        let requests = requests as f64;
        let share = self.errors.clamp(1.0 / requests, 0.5);
        (DEVIATIONS * (share * (1.0 - share) / requests).sqrt()).max(self.errors / 2.0)
    }

    /// Whether more answers are slow than the one in a hundred that always is, by more than chance
    /// explains, of an event so rare.
    fn is_slow(&self, heads: &HeadsView, answers: u64) -> bool {
        self.tail_us.is_some_and(|usual| {
            let expected = answers as f64 / BREAKER_TAIL_PART as f64;
            let slow = heads.beyond(usual * SLOWER + SLOWER_US) as f64;
            slow > expected + DEVIATIONS * expected.sqrt()
        })
    }
}

/// Weight of a new window in the averages, and of one that is above them.
const WEIGHT: f64 = 0.2;
/// See [`WEIGHT`].
const WEIGHT_ABOVE: f64 = 0.02;
/// Standard deviations that are chance. With two, a few of ten thousand calm windows are above in a row:
/// one endpoint in ten would halve its threshold every hour.
const DEVIATIONS: f64 = 3.0;
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
    use crate::upstream::heads::Heads;

    fn window(succeeded: u64, failed: u64) -> Outcomes {
        Outcomes { succeeded, failed }
    }

    /// So many answers each after so many microseconds.
    fn heads(each: &[(u64, u64)]) -> HeadsView {
        let (heads, mut view) = (Heads::default(), HeadsView::default());
        each.iter().for_each(|(count, us)| (0..*count).for_each(|_| heads.record(*us)));
        view.read(&heads);
        view
    }

    fn judge(adaptive: &mut Adaptive, times: u32, each: &[(u64, u64)]) {
        let count = each.iter().map(|it| it.0).sum();
        (0..times).for_each(|_| adaptive.judge(window(count, 0), &heads(each)));
    }

    #[test]
    fn three_windows_above_halve_the_threshold_and_calm_ones_raise_it() {
        let mut adaptive = Adaptive::default();
        let calm = heads(&[(995, 2_000)]);
        let mut times = |times, succeeded, failed| {
            (0..times).for_each(|_| adaptive.judge(window(succeeded, failed), &calm));
            (adaptive.percent(30), adaptive.percent(1), adaptive.percent(100))
        };
        assert_eq!(times(20, 995, 5).0, 30);
        assert_eq!(times(3, 940, 60).0, 15);
        assert_eq!(times(3, 940, 60).0, 7);
        let least = times(9, 700, 300);
        assert_eq!((least.0, least.1), (BREAKER_ADAPTIVE_PERCENT_MIN, 1), "no lower than it was");
        let raised = times(1, 1000, 0).2;
        assert_eq!(times(1, 1000, 0).2, 2 * raised, "step by step");
    }

    #[test]
    fn a_slow_tail_counts_as_errors_do_and_two_windows_are_none() {
        let (calm, slow) = ([(1000, 5_000)], [(970, 5_000), (30, 20_000)]);
        let mut adaptive = Adaptive::default();
        judge(&mut adaptive, 20, &calm);
        let usual = adaptive.usual().expect("twenty windows");
        assert!(usual.tail_us.is_some_and(|us| (4_600.0..5_400.0).contains(&us)), "{usual:?}");
        for slow_now in [true, true, false, true, true, false] {
            judge(&mut adaptive, 1, if slow_now { &slow } else { &calm });
        }
        assert_eq!(adaptive.percent(30), 30);
        judge(&mut adaptive, 3, &slow);
        assert_eq!(adaptive.percent(30), 15);
    }

    /// The mean rises by more than half, and no more than one in a hundred is slow.
    #[test]
    fn what_is_beyond_the_tail_says_nothing() {
        let mut adaptive = Adaptive::default();
        judge(&mut adaptive, 20, &[(1000, 5_000)]);
        judge(&mut adaptive, 9, &[(992, 5_000), (8, 500_000)]);
        assert_eq!(adaptive.percent(30), 30);
    }

    /// With few answers, one or two decide where the tail is.
    #[test]
    fn few_answers_have_no_tail() {
        let mut adaptive = Adaptive::default();
        let few = BREAKER_TAIL_ANSWERS_MIN - 1;
        judge(&mut adaptive, 20, &[(few, 5_000)]);
        assert_eq!(adaptive.usual().expect("they are requests").tail_us, None);
        judge(&mut adaptive, 9, &[(few - 50, 5_000), (50, 500_000)]);
        assert_eq!(adaptive.percent(30), 30);
        // Six of two hundred are three times what is expected, and within what chance explains.
        judge(&mut adaptive, 9, &[(1_000, 5_000)]);
        judge(&mut adaptive, 9, &[(194, 5_000), (6, 500_000)]);
        assert_eq!(adaptive.percent(30), 30);
    }

    #[test]
    fn what_stays_becomes_usual() {
        let mut adaptive = Adaptive::default();
        judge(&mut adaptive, 20, &[(1000, 5_000)]);
        judge(&mut adaptive, 100, &[(1000, 15_000)]);
        assert_eq!(adaptive.percent(30), 30, "slower for good is no failure");
    }
}
