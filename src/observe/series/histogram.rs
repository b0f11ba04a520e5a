//! Durations in fixed buckets.

use crate::observe::Counter;

/// Upper bounds of the buckets in microseconds, the bound itself included: those that OpenTelemetry
/// names for the durations of HTTP requests. One more bucket holds what is above them.
pub const BOUNDS_US: [i32; BOUNDS] = [
    5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000, 1_000_000,
    2_500_000, 5_000_000, 7_500_000, 10_000_000,
];

/// The same in seconds, as the label `le` has them.
pub const BOUNDS_S: [&str; BOUNDS] = [
    "0.005", "0.01", "0.025", "0.05", "0.075", "0.1", "0.25", "0.5", "0.75", "1", "2.5", "5",
    "7.5", "10",
];

const BOUNDS: usize = 14;

/// Buckets of a histogram, the unbounded one included.
pub const BUCKETS: usize = BOUNDS + 1;

/// Durations by bucket, and their sum.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Histogram {
    sum_us: Counter,
    buckets: [Counter; BUCKETS],
}

impl Histogram {
    /// Counts a duration in microseconds. Only its owner may.
    #[inline]
    pub fn record(&self, us: u64) {
        self.sum_us.add(us);
        self.buckets[bucket(us)].increment();
    }
}

/// The bucket of a duration: how many bounds lie below it. All are compared, without a branch; 32
/// bits hold the largest bound, and every x86-64 and aarch64 compares four of them at once.
#[inline]
fn bucket(us: u64) -> usize {
    let us = us.min(i32::MAX as u64) as i32;
    let below: i32 = BOUNDS_US.iter().map(|bound| i32::from(us > *bound)).sum();
    below as usize
}

/// A histogram as it was read, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramView {
    /// Durations by bucket, each only in its own.
    pub buckets: [u64; BUCKETS],
    /// Their sum in microseconds.
    pub sum_us: u64,
}

impl HistogramView {
    /// Adds what a histogram holds.
    pub fn add(&mut self, histogram: &Histogram) {
        self.sum_us += histogram.sum_us.get();
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *sum += bucket.get();
        }
    }

    /// How many durations it holds.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their mean in milliseconds, if there are any.
    pub fn mean_ms(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_us as f64 / count as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_a_microsecond_more_to_the_next() {
        assert_eq!(bucket(0), 0);
        for (index, bound) in BOUNDS_US.iter().enumerate() {
            assert_eq!(bucket(*bound as u64), index, "{bound}");
            assert_eq!(bucket(*bound as u64 + 1), index + 1, "{bound} and one");
        }
        for long in [i32::MAX as u64, i32::MAX as u64 + 1, u64::MAX] {
            assert_eq!(bucket(long), BUCKETS - 1);
        }
    }

    #[test]
    fn labels_are_the_bounds_in_seconds() {
        for (bound, label) in BOUNDS_US.iter().zip(BOUNDS_S) {
            let seconds: f64 = label.parse().expect("a number");
            assert_eq!(seconds, f64::from(*bound) / 1e6);
            assert_eq!(label, seconds.to_string(), "as short as it can be written");
        }
    }

    #[test]
    fn views_add_up() {
        let histogram = Histogram::default();
        histogram.record(5_000);
        histogram.record(15_000);
        let mut view = HistogramView::default();
        assert_eq!(view.mean_ms(), None);
        view.add(&histogram);
        view.add(&histogram);
        assert_eq!((view.count(), view.sum_us, view.mean_ms()), (4, 40_000, Some(10.0)));
        assert_eq!((view.buckets[0], view.buckets[2]), (2, 2));
    }
}
