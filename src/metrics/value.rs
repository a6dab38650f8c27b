//! Counters, gauges and histograms, all lock-free.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A current number.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Counts one item until the guard is dropped.
    pub fn track(&self) -> GaugeGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self.clone())
    }

    /// Sets the value of a gauge without guards.
    pub fn set(&self, count: i64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One item that a [`Gauge`] counts.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of observations up to each bound, and their sum.
#[derive(Debug)]
pub struct Histogram {
    /// Ascending upper bounds; the last count is for observations above all bounds.
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    /// The sum, as the bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        // The closure always returns a value, so the update always succeeds.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Records a duration in seconds.
    pub fn observe_duration(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// Returns each bound with the number of observations up to it; the last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0, |below, (bound, count)| {
            *below += count.load(Ordering::Relaxed);
            Some((bound, *below))
        })
    }

    pub fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_counts_in_every_bucket_up_from_its_own() {
        let histogram = Histogram::new(&[1.0, 10.0]);
        for value in [0.5, 1.0, 1.5, 100.0] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(1.0, 2), (10.0, 3), (f64::INFINITY, 4)]);
        assert_eq!(histogram.sum(), 103.0);
    }

    #[test]
    fn a_gauge_counts_its_guards() {
        let gauge = Gauge::default();
        let (one, two) = (gauge.track(), gauge.track());
        assert_eq!(gauge.get(), 2);
        drop((one, two));
        assert_eq!(gauge.get(), 0);
    }
}
