//! The three kinds of values. None of them takes a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Only ever grows, until the process ends.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn one(&self) {
        self.add(1);
    }

    /// `count` more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are at the moment.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Counts one until what is answered is dropped.
    pub fn hold(&self) -> Held {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(self.clone())
    }

    /// Says how many there are, for one that nothing else holds.
    pub fn set(&self, count: i64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One that a [`Gauge`] counts.
#[derive(Debug)]
pub struct Held(Gauge);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many observations fell below each bound, and their sum.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds, growing; what is above all of them is counted last.
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    /// The bits of an `f64`.
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
        // The closure always has an answer, so the update always succeeds.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// In seconds.
    pub fn time(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// The bounds, each with the number of observations up to it; the last bound is infinite.
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
    fn an_observation_counts_in_every_bucket_that_reaches_it() {
        let histogram = Histogram::new(&[1.0, 10.0]);
        for value in [0.5, 1.0, 1.5, 100.0] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(1.0, 2), (10.0, 3), (f64::INFINITY, 4)]);
        assert_eq!(histogram.sum(), 103.0);
    }

    #[test]
    fn a_gauge_counts_what_is_held() {
        let gauge = Gauge::default();
        let (one, two) = (gauge.hold(), gauge.hold());
        assert_eq!(gauge.get(), 2);
        drop((one, two));
        assert_eq!(gauge.get(), 0);
    }
}
