//! Limits how many requests a customer may send: a token bucket per customer, kept in memory.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Customers that have sent nothing for so long are forgotten.
const IDLE: Duration = Duration::from_secs(600);
/// Every so many requests, idle customers are looked for.
const SWEEP_EVERY: u32 = 4_096;

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    Allowed { remaining: u32 },
    /// Too many requests. The next is allowed after this time.
    Refused { retry_after: Duration },
}

/// The parameters of all buckets.
#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    pub per_minute: u32,
    /// How many requests may come at once after a pause.
    pub burst: u32,
    /// Addresses of the office and of the monitoring are not limited.
    pub exempt_internal: bool,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self { per_minute: 120, burst: 20, exempt_internal: true }
    }
}

impl LimitConfig {
    /// Reads `RATE_LIMIT_PER_MINUTE`; an unset or wrong value gives the default.
    pub fn from_env() -> Self {
        let default = Self::default();
        let per_minute = std::env::var("RATE_LIMIT_PER_MINUTE")
            .ok()
            .and_then(|value| value.trim().parse().ok())
            .filter(|number| *number > 0)
            .unwrap_or(default.per_minute);
        // A burst is a sixth of a minute's requests, but some always.
        let burst = (per_minute / 6).max(5);
        Self { per_minute, burst, ..default }
    }

    fn refill_per_second(&self) -> f64 {
        f64::from(self.per_minute) / 60.0
    }
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    updated: Instant,
}

impl Bucket {
    fn full(config: &LimitConfig, now: Instant) -> Self {
        Self { tokens: f64::from(config.burst), updated: now }
    }

    /// Adds what has come in since the last request.
    fn refill(&mut self, config: &LimitConfig, now: Instant) {
        let passed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.tokens = (self.tokens + passed * config.refill_per_second()).min(f64::from(config.burst));
        self.updated = now;
    }

    fn take(&mut self, cost: f64, config: &LimitConfig) -> Decision {
        if self.tokens >= cost {
            self.tokens -= cost;
            return Decision::Allowed { remaining: self.tokens as u32 };
        }
        let missing = cost - self.tokens;
        let seconds = missing / config.refill_per_second();
        Decision::Refused { retry_after: Duration::from_secs_f64(seconds.ceil()) }
    }
}

/// The buckets of all customers.
#[derive(Debug)]
pub struct Limiter {
    config: LimitConfig,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    buckets: HashMap<String, Bucket>,
    since_sweep: u32,
}

impl Limiter {
    pub fn new(config: LimitConfig) -> Self {
        Self { config, state: Mutex::default() }
    }

    /// Decides on a request of `customer`. Exports cost as much as ten other requests.
    pub fn check(&self, customer: &str, path: &str, now: Instant) -> Decision {
        if self.config.exempt_internal && customer.starts_with("internal:") {
            return Decision::Allowed { remaining: self.config.burst };
        }
        let cost = cost_of(path);
        let mut state = match self.state.lock() {
            Ok(state) => state,
            // A thread that panicked has left at worst one wrong number.
            Err(poisoned) => poisoned.into_inner(),
        };
        state.since_sweep += 1;
        if state.since_sweep >= SWEEP_EVERY {
            state.since_sweep = 0;
            state.buckets.retain(|_, bucket| now.saturating_duration_since(bucket.updated) < IDLE);
        }
        let bucket = state
            .buckets
            .entry(customer.to_owned())
            .or_insert_with(|| Bucket::full(&self.config, now));
        bucket.refill(&self.config, now);
        bucket.take(cost, &self.config)
    }

    /// Returns the number of customers that are remembered.
    pub fn len(&self) -> usize {
        self.state.lock().map_or(0, |state| state.buckets.len())
    }
}

/// Returns the headers of an answer.
pub fn headers(decision: Decision, config: &LimitConfig) -> Vec<(&'static str, String)> {
    let mut headers = vec![("X-RateLimit-Limit", config.per_minute.to_string())];
    match decision {
        Decision::Allowed { remaining } => headers.push(("X-RateLimit-Remaining", remaining.to_string())),
        Decision::Refused { retry_after } => {
            headers.push(("X-RateLimit-Remaining", "0".to_owned()));
            headers.push(("Retry-After", retry_after.as_secs().to_string()));
        }
    }
    headers
}

fn cost_of(path: &str) -> f64 {
    match path {
        "/healthz" | "/readyz" | "/metrics" => 0.0,
        path if path.starts_with("/api/export/") => 10.0,
        path if path.starts_with("/api/search") => 2.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(per_minute: u32, burst: u32) -> Limiter {
        Limiter::new(LimitConfig { per_minute, burst, exempt_internal: true })
    }

    #[test]
    fn a_burst_is_followed_by_a_refusal() {
        let (limiter, now) = (limiter(60, 3), Instant::now());
        for remaining in [2, 1, 0] {
            assert_eq!(limiter.check("c1", "/api/cart", now), Decision::Allowed { remaining });
        }
        let refused = Decision::Refused { retry_after: Duration::from_secs(1) };
        assert_eq!(limiter.check("c1", "/api/cart", now), refused);
        assert_eq!(limiter.check("c2", "/api/cart", now), Decision::Allowed { remaining: 2 });
    }

    #[test]
    fn an_export_is_dear() {
        let (limiter, now) = (limiter(60, 10), Instant::now());
        assert_eq!(limiter.check("c1", "/api/export/orders", now), Decision::Allowed { remaining: 0 });
    }

    #[test]
    fn health_checks_are_free() {
        let (limiter, now) = (limiter(60, 1), Instant::now());
        for _ in 0..100 {
            assert!(matches!(limiter.check("c1", "/healthz", now), Decision::Allowed { .. }));
        }
    }
}
