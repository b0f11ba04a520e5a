//! How many requests an upstream takes at a time, found out by how long it takes for them.
//!
//! Where requests queue in the upstream its answers take longer than they do at rest, and more of them
//! in flight gain nothing. After each window the limit is multiplied by the quotient of the shortest time
//! of the last minute and the mean of the window, and a square root is added for what may wait:
//! `limit x clamp(1.5 x rest / now, 0.5, 1) + sqrt(limit)`. Every half minute the limit is quartered
//! for a window, so that the time at rest is seen again: half of it might still be too much where little
//! is taken, and what waits then would pass for rest.

use crate::limits::{GRADIENT_REST_MS, GRADIENT_SAMPLES_MIN, GRADIENT_START, GRADIENT_WINDOW_MS};

/// The limit of one upstream on one worker.
#[derive(Debug)]
pub struct Gradient {
    min: f64,
    max: f64,
    limit: f64,
    /// The window that goes on.
    window: Window,
    /// Shortest times in this half minute and in the last one.
    rest_us: (u64, u64),
    rest_since_ms: u64,
    /// The limit to go back to, while it is lowered to see the time at rest.
    lowered_from: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since_ms: u64,
    samples: u64,
    sum_us: u64,
    in_flight_most: usize,
}

impl Gradient {
    /// A limit between these two, both above 0.
    pub fn new(min: usize, max: usize) -> Gradient {
        let (min, max) = (min as f64, max.max(min) as f64);
        Gradient {
            min,
            max,
            limit: (GRADIENT_START as f64).clamp(min, max),
            window: Window::default(),
            rest_us: (u64::MAX, u64::MAX),
            rest_since_ms: 0,
            lowered_from: None,
        }
    }

    /// Whether it has these bounds.
    pub fn is_between(&self, min: usize, max: usize) -> bool {
        self.min == min as f64 && self.max == max.max(min) as f64
    }

    /// Requests that may be in flight.
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// An answer took so long, while so many requests were in flight. Whether the limit is another now.
    pub fn observe(&mut self, now_ms: u64, took_us: u64, in_flight: usize) -> bool {
        let window = &mut self.window;
        if window.samples == 0 {
            window.since_ms = now_ms;
        }
        window.samples += 1;
        window.sum_us = window.sum_us.saturating_add(took_us);
        window.in_flight_most = window.in_flight_most.max(in_flight);
        self.rest_us.0 = self.rest_us.0.min(took_us.max(1));
        let long_enough = now_ms.saturating_sub(window.since_ms) >= GRADIENT_WINDOW_MS;
        if window.samples < GRADIENT_SAMPLES_MIN || !long_enough {
            return false;
        }
        let window = std::mem::take(&mut self.window);
        let before = self.limit();
        self.close(now_ms, window);
        assert!((self.min..=self.max).contains(&self.limit), "a limit keeps to its bounds");
        self.limit() != before
    }

    fn close(&mut self, now_ms: u64, window: Window) {
        if let Some(limit) = self.lowered_from.take() {
            self.limit = limit;
            return;
        }
        if now_ms.saturating_sub(self.rest_since_ms) >= GRADIENT_REST_MS {
            self.rest_since_ms = now_ms;
            self.rest_us = (u64::MAX, self.rest_us.0);
            self.lowered_from = Some(self.limit);
            self.limit = (self.limit / 4.0).max(self.min);
            return;
        }
        let rest = self.rest_us.0.min(self.rest_us.1) as f64;
        let mean = (window.sum_us / window.samples).max(1) as f64;
        let gradient = (TOLERANCE * rest / mean).clamp(0.5, 1.0);
        // Where fewer come than may, nothing is learned about more.
        if gradient == 1.0 && (window.in_flight_most as f64) < self.limit / 2.0 {
            return;
        }
        let wanted = self.limit * gradient + self.limit.sqrt();
        let smooth = self.limit + (wanted - self.limit) * SMOOTHING;
        self.limit = smooth.clamp(self.min, self.max);
    }
}

/// How much longer than at rest an answer may take: times scatter.
const TOLERANCE: f64 = 1.5;
/// How much of the way to what is wanted one window goes.
const SMOOTHING: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    /// An upstream that serves `capacity` requests at a time in 10 ms each; the rest wait in it. As
    /// many come as may, up to `offered`. Returns the limit after `seconds`.
    fn run(
        gradient: &mut Gradient,
        now_ms: &mut u64,
        capacity: f64,
        offered: usize,
        seconds: u64,
    ) -> usize {
        let until = *now_ms + seconds * 1_000;
        while *now_ms < until {
            let in_flight = gradient.limit().min(offered).max(1);
            let took_us = (10_000.0 * (in_flight as f64 / capacity).max(1.0)) as u64;
            (0..in_flight).for_each(|_| {
                gradient.observe(*now_ms, took_us, in_flight);
            });
            *now_ms += (took_us / 1_000).max(1);
        }
        gradient.lowered_from.unwrap_or(gradient.limit) as usize
    }

    #[test]
    fn it_settles_near_the_capacity_and_stays_there() {
        for capacity in [10.0, 100.0, 400.0] {
            let (mut gradient, mut now_ms) = (Gradient::new(4, 1_000), 0);
            run(&mut gradient, &mut now_ms, capacity, usize::MAX, 60);
            for _ in 0..20 {
                let limit = run(&mut gradient, &mut now_ms, capacity, usize::MAX, 30);
                let quotient = limit as f64 / capacity;
                assert!((0.75..2.5).contains(&quotient), "{limit} of {capacity}");
            }
        }
    }

    #[test]
    fn it_follows_an_upstream_that_slows_down_and_recovers() {
        let (mut gradient, mut now_ms) = (Gradient::new(4, 1_000), 0);
        let before = run(&mut gradient, &mut now_ms, 200.0, usize::MAX, 60);
        let slow = run(&mut gradient, &mut now_ms, 20.0, usize::MAX, 20);
        assert!(slow < before / 3, "{before} before, {slow} while slow");
        let after = run(&mut gradient, &mut now_ms, 200.0, usize::MAX, 60);
        assert!(after * 10 > before * 8, "{before} before, {after} after");
    }

    #[test]
    fn it_keeps_to_its_bounds_whatever_comes() {
        let mut random = 7_u64;
        let (mut gradient, mut now_ms) = (Gradient::new(4, 50), 0);
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now_ms += random >> 60;
            gradient.observe(now_ms, (random >> 33) % 10_000_000, (random >> 50) as usize % 60);
            assert!((4..=50).contains(&gradient.limit()));
        }
        let slowest = run(&mut gradient, &mut now_ms, 0.1, usize::MAX, 600);
        assert!(slowest >= 4);
    }

    #[test]
    fn a_quiet_upstream_teaches_nothing() {
        let (mut gradient, mut now_ms) = (Gradient::new(4, 1_000), 0);
        let start = gradient.limit();
        let limit = run(&mut gradient, &mut now_ms, 100.0, 3, 20);
        assert_eq!(limit, start, "few requests do not raise it");
    }
}
