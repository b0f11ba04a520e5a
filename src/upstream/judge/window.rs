//! What became of requests within a sliding window of time.

use std::ops::AddAssign;

use crate::limits::BREAKER_WINDOW_PARTS;

/// What became of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Those that did not fail.
    pub succeeded: u64,
    /// Those that failed.
    pub failed: u64,
}

impl Outcomes {
    /// How many there were.
    pub fn requests(&self) -> u64 {
        self.succeeded + self.failed
    }

    /// Whether so many in a hundred failed, or more.
    pub fn fails(&self, percent: u64) -> bool {
        self.failed > 0 && self.failed * 100 >= percent * self.requests()
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Outcomes) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }
}

/// The outcomes of the last so many milliseconds; the oldest part of them leaves at once.
#[derive(Clone, Debug)]
pub struct Window {
    parts: [Outcomes; BREAKER_WINDOW_PARTS],
    sum: Outcomes,
    part_ms: u64,
    /// Number of the newest part since time began.
    newest: u64,
}

impl Window {
    /// An empty one.
    pub fn new(window_ms: u64) -> Window {
        let part_ms = (window_ms / BREAKER_WINDOW_PARTS as u64).max(1);
        let parts = [Outcomes::default(); BREAKER_WINDOW_PARTS];
        Window { parts, sum: Outcomes::default(), part_ms, newest: 0 }
    }

    /// Takes in what became of requests since the last call; `now_ms` never goes back.
    pub fn add(&mut self, now_ms: u64, outcomes: Outcomes) {
        let part = now_ms / self.part_ms;
        let gone = part.saturating_sub(self.newest).min(BREAKER_WINDOW_PARTS as u64);
        self.newest = part.max(self.newest);
        if gone > 0 && self.sum != Outcomes::default() {
            for age in 0..gone {
                self.parts[slot(self.newest - age)] = Outcomes::default();
            }
            self.sum = Outcomes::default();
            self.parts.iter().for_each(|part| self.sum += *part);
        }
        if outcomes != Outcomes::default() {
            self.parts[slot(self.newest)] += outcomes;
            self.sum += outcomes;
        }
    }

    /// All that is in it.
    pub fn sum(&self) -> Outcomes {
        self.sum
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.parts = Default::default();
        self.sum = Outcomes::default();
    }
}

fn slot(part: u64) -> usize {
    (part % BREAKER_WINDOW_PARTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(failed: u64) -> Outcomes {
        Outcomes { succeeded: 0, failed }
    }

    #[test]
    fn what_is_older_than_the_window_leaves_it() {
        let mut window = Window::new(10_000);
        window.add(500, failed(3));
        window.add(1_500, failed(4));
        window.add(9_900, failed(0));
        assert_eq!(window.sum().failed, 7);
        window.add(10_000, failed(0));
        assert_eq!(window.sum().failed, 4, "the first second has left");
        window.add(11_000, failed(1));
        assert_eq!(window.sum().failed, 1);
        window.add(1_000_000, failed(0));
        assert_eq!(window.sum(), Outcomes::default(), "however long nobody looked");
    }

    proptest::proptest! {
        /// Whatever comes when: the sum is that of the last ten parts.
        #[test]
        fn the_sum_is_that_of_its_parts(steps in proptest::collection::vec((0u64..4_000, 0u64..5), 1..200)) {
            let (mut window, mut now, mut all) = (Window::new(10_000), 0, Vec::new());
            for (pause, count) in steps {
                now += pause;
                window.add(now, failed(count));
                all.push((now / 1_000, count));
                let oldest = (now / 1_000).saturating_sub(9);
                let expected: u64 = all.iter().filter(|it| it.0 >= oldest).map(|it| it.1).sum();
                proptest::prop_assert_eq!(window.sum().failed, expected);
            }
        }
    }

    #[test]
    fn a_ratio_is_reached_by_failures_alone() {
        let outcomes = |succeeded, failed| Outcomes { succeeded, failed };
        for (succeeded, bad, percent, fails) in [
            (7, 3, 30, true),
            (71, 29, 30, false),
            (0, 1, 100, true),
            (9, 0, 0, false),
            (0, 0, 1, false),
        ] {
            assert_eq!(
                outcomes(succeeded, bad).fails(percent),
                fails,
                "{succeeded} {bad} {percent}"
            );
        }
    }
}
