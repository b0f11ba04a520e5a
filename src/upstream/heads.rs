//! Times to the heads of answers, counted by size: what tells how the tail of them changes (B2).
//!
//! A bucket is an eighth of a power of two wide, so that what it says is wrong by a sixteenth at most.
//! The histograms of the metrics have OpenTelemetry's few bounds: a tail doubles between two of them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::limits::BREAKER_TAIL_PART;

/// What one worker counts; only it writes, and what overflows begins again at 0.
#[derive(Debug)]
pub struct Heads([AtomicU32; BUCKETS]);

/// The same as it was read, of one worker or of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadsView([u32; BUCKETS]);

impl Heads {
    /// Counts a time in microseconds. Only its owner may.
    #[inline]
    pub fn record(&self, us: u64) {
        let bucket = &self.0[bucket(us)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

impl Default for Heads {
    fn default() -> Heads {
        Heads(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Default for HeadsView {
    fn default() -> HeadsView {
        HeadsView([0; BUCKETS])
    }
}

impl HeadsView {
    /// Adds what a worker has counted.
    pub fn read(&mut self, heads: &Heads) {
        for (sum, bucket) in self.0.iter_mut().zip(&heads.0) {
            *sum = sum.wrapping_add(bucket.load(Ordering::Relaxed));
        }
    }

    /// Adds what another one holds.
    pub fn add(&mut self, other: &HeadsView) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, count)| *sum = sum.wrapping_add(*count));
    }

    /// What has been counted since `before` was read.
    pub fn since(&self, before: &HeadsView) -> HeadsView {
        HeadsView(std::array::from_fn(|at| self.0[at].wrapping_sub(before.0[at])))
    }

    /// How many it holds.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// The time in microseconds that one in [`BREAKER_TAIL_PART`] takes longer than, if it holds any.
    pub fn tail_us(&self) -> Option<f64> {
        let count = self.count();
        let mut beyond = count / BREAKER_TAIL_PART;
        for (at, of) in self.0.iter().enumerate().rev() {
            if u64::from(*of) > beyond {
                return Some((least_us(at) + least_us(at + 1)) as f64 / 2.0);
            }
            beyond -= u64::from(*of);
        }
        None
    }

    /// How many took at least so long, those not counted that share a bucket with what is less.
    pub fn beyond(&self, us: f64) -> u64 {
        let buckets = self.0.iter().enumerate();
        let beyond = buckets.filter(|(at, _)| least_us(*at) as f64 >= us);
        beyond.map(|(_, count)| u64::from(*count)).sum()
    }
}

/// The bucket of a time.
#[inline]
fn bucket(us: u64) -> usize {
    let us = us.clamp(FIRST_US / 2, LAST_US);
    let power = us.ilog2();
    let eighth = (us >> (power - 3)) & 7;
    let at = (power + 1 - FIRST_US.ilog2()) as usize * 8 + eighth as usize;
    // All eighths below the first bound are one bucket.
    at.saturating_sub(7)
}

/// The least time of a bucket.
fn least_us(at: usize) -> u64 {
    match at.checked_sub(1) {
        None => 0,
        Some(at) => (8 + at as u64 % 8) << (FIRST_US.ilog2() as usize - 3 + at / 8),
    }
}

/// Below this, times are alike: a tail that short is nobody's trouble.
const FIRST_US: u64 = 256;
/// From this on too: half a minute.
const LAST_US: u64 = FIRST_US << 17;
const BUCKETS: usize = 17 * 8 + 2;

const _: () = assert!(LAST_US.is_power_of_two() && LAST_US > 30_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_an_eighth_wide_and_holds_what_lies_between_its_bounds() {
        assert_eq!((bucket(0), bucket(FIRST_US - 1), bucket(FIRST_US)), (0, 0, 1));
        assert_eq!((bucket(LAST_US), bucket(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
        assert_eq!(bucket(LAST_US - 1), BUCKETS - 2);
        for at in 1..BUCKETS {
            let (least, next) = (least_us(at), least_us(at + 1));
            assert_eq!((bucket(least), bucket(next - 1)), (at, at));
            assert!((next - least) * 8 <= least, "{least} to {next}");
        }
        assert_eq!(least_us(1), FIRST_US);
        assert_eq!(least_us(BUCKETS - 1), LAST_US);
    }

    /// One in a hundred is longer than the tail, within a sixteenth.
    #[test]
    fn the_tail_is_what_one_in_a_hundred_is_longer_than() {
        let heads = Heads::default();
        let mut view = HeadsView::default();
        assert_eq!((view.tail_us(), view.count()), (None, 0));
        (1..=10_000).for_each(|us| heads.record(us * 10));
        view.read(&heads);
        let tail = view.tail_us().expect("there are some");
        assert!((tail / 99_000.0 - 1.0).abs() <= 1.0 / 16.0, "{tail}");
        assert!(view.beyond(50_000.0).abs_diff(5_000) <= 625, "{}", view.beyond(50_000.0));
        assert_eq!((view.beyond(200_000.0), view.beyond(0.0)), (0, 10_000));
    }

    #[test]
    fn what_overflows_is_still_a_difference() {
        let heads = Heads::default();
        heads.0[bucket(5_000)].store(u32::MAX, Ordering::Relaxed);
        let (mut before, mut after) = (HeadsView::default(), HeadsView::default());
        before.read(&heads);
        (0..3).for_each(|_| heads.record(5_000));
        after.read(&heads);
        let mut twice = after.since(&before);
        twice.add(&after.since(&before));
        assert_eq!((after.since(&before).count(), twice.count()), (3, 6));
    }
}
