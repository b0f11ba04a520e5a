//! Peak EWMA by two random choices: a moving average of the time to the head of an answer that jumps
//! up at once and comes down slowly, times the requests in flight.
//!
//! The cost is latency x (requests / weight + 1), weights taken relative to their mean: endpoints are
//! drawn by weight, so that weights decide while latencies are the same, as for least requests.

use super::{Alias, View, of_two};
use crate::base::random::Random;
use crate::limits::{EWMA_DECAY_MS, EWMA_UNKNOWN_US};

/// What one endpoint's latency has been.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeakEwma {
    us: f64,
    stamp_ms: u64,
}

impl PeakEwma {
    /// Takes a measurement in: a higher one holds at once, a lower one pulls the average down.
    pub fn observe(&mut self, us: u64, now_ms: u64) {
        let us = us as f64;
        let kept = self.kept(now_ms);
        let average = self.us * kept + us * (1.0 - kept);
        self.us = if us > self.us { us } else { average };
        self.stamp_ms = now_ms;
    }

    /// What it stands at: without new measurements it comes down, so that a slow endpoint is tried
    /// again; 0 before the first.
    pub fn at(&self, now_ms: u64) -> f64 {
        if self.us == 0.0 { 0.0 } else { self.us * self.kept(now_ms) }
    }

    fn kept(&self, now_ms: u64) -> f64 {
        let passed = now_ms.saturating_sub(self.stamp_ms) as f64;
        (-passed / EWMA_DECAY_MS as f64).exp()
    }
}

/// The endpoint for a request.
pub fn pick(alias: &Alias, view: &impl View, random: &Random) -> Option<usize> {
    let cost = |index: usize| {
        let in_flight = f64::from(view.in_flight(index));
        let latency = match view.latency_us(index) {
            // One that nobody has heard of is tried, but not by everybody at once.
            0.0 if in_flight > 0.0 => EWMA_UNKNOWN_US as f64,
            known => known,
        };
        latency * (in_flight * alias.mean() / alias.weight(index) as f64 + 1.0)
    };
    of_two(alias, view, random, cost)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;

    #[test]
    fn a_peak_holds_at_once_and_fades() {
        let mut ewma = PeakEwma::default();
        assert_eq!(ewma.at(5), 0.0);
        ewma.observe(1_000, 0);
        ewma.observe(50_000, 10);
        assert_eq!(ewma.at(10), 50_000.0);
        ewma.observe(1_000, 20);
        assert!(ewma.at(20) > 49_000.0, "one answer that is quick says little");
        let later = ewma.at(20 + EWMA_DECAY_MS) / ewma.at(20);
        assert!((later - 1.0 / std::f64::consts::E).abs() < 1e-9);
        for now in (20..60_000).step_by(100) {
            ewma.observe(1_000, now);
        }
        assert!(ewma.at(60_000) < 1_200.0);
    }

    #[test]
    fn a_slow_endpoint_gets_little_and_an_unknown_one_is_tried() {
        let (alias, random) = (Alias::new(&[1, 1, 1, 1]), Random::seeded(9));
        let latency_us = vec![1_000.0, 1_000.0, 30_000.0, 1_000.0];
        let mut view = Fake { latency_us, ..Fake::default() };
        let mut counts = [0; 4];
        for _ in 0..4_000 {
            counts[pick(&alias, &view, &random).expect("all are usable")] += 1;
        }
        assert!(counts[2] < 40 && counts.iter().sum::<i32>() == 4_000, "{counts:?}");
        view.latency_us[2] = 0.0;
        let tried =
            |view: &Fake| (0..1_000).filter(|_| pick(&alias, view, &random) == Some(2)).count();
        assert!(tried(&view) > 350, "whenever it is one of the two");
        view.in_flight = vec![0, 0, 1, 0];
        assert!(tried(&view) < 40, "what it does with the first is waited for");
    }

    #[test]
    fn weights_decide_while_latencies_are_the_same() {
        let (alias, random) = (Alias::new(&[100, 300]), Random::seeded(2));
        let view = Fake { latency_us: vec![500.0; 2], ..Fake::default() };
        let light = (0..10_000).filter(|_| pick(&alias, &view, &random) == Some(0)).count();
        assert!((2_200..2_800).contains(&light), "{light}");
    }
}
