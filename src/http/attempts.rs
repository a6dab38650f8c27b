//! Failed tries to log in, counted by client, so that nobody can try on and on.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daoyou_channels::ClientAddr;
use tokio::time::Instant;

/// Failures within [`WINDOW`] after which a client is not listened to for the rest of it.
const MOST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Clients that are remembered. Beyond it the one whose window began first is forgotten.
const CLIENTS: usize = 4_096;

/// Who failed how often.
#[derive(Debug, Default)]
pub struct Attempts {
    clients: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Attempts {
    /// Whether `client` may try.
    ///
    /// # Errors
    /// It has failed too often; for so long it may not.
    pub fn admit(&self, client: ClientAddr) -> Result<(), Duration> {
        let clients = self.lock();
        let Some(failures) = clients.get(&client.bucket()) else { return Ok(()) };
        match WINDOW.checked_sub(failures.since.elapsed()) {
            Some(left) if failures.count >= MOST && !left.is_zero() => Err(left),
            _ => Ok(()),
        }
    }

    /// Notes that `client` has failed.
    pub fn failed(&self, client: ClientAddr) {
        let now = Instant::now();
        let mut clients = self.lock();
        let bucket = client.bucket();
        if clients.len() >= CLIENTS && !clients.contains_key(&bucket) {
            clients.retain(|_, failures| failures.since.elapsed() < WINDOW);
            let first = clients.iter().min_by_key(|(_, failures)| failures.since).map(|(bucket, _)| *bucket);
            if let Some(first) = first.filter(|_| clients.len() >= CLIENTS) {
                clients.remove(&first);
            }
        }
        let failures = clients.entry(bucket).or_insert(Failures { since: now, count: 0 });
        if failures.since.elapsed() >= WINDOW {
            *failures = Failures { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        if failures.count == MOST {
            tracing::warn!(client = %client.0, "too many wrong tokens; the client is refused for a while");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> ClientAddr {
        ClientAddr(address.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_fails_too_often_waits_out_its_minute() {
        let attempts = Attempts::default();
        for n in 0..MOST {
            assert!(attempts.admit(client("2001:db8::1")).is_ok(), "{n}");
            attempts.failed(client(&format!("2001:db8::{n:x}")));
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(attempts.admit(client("2001:db8::ffff")), Err(Duration::from_secs(40)));
        assert!(attempts.admit(client("2001:db8:0:1::1")).is_ok(), "the next network");
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(attempts.admit(client("2001:db8::1")).is_ok());
        attempts.failed(client("2001:db8::1"));
        assert!(attempts.admit(client("2001:db8::1")).is_ok(), "a new minute");
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_does_not_grow_without_end() {
        let attempts = Attempts::default();
        for n in 0..20_000_u32 {
            attempts.failed(ClientAddr(IpAddr::from(n.to_be_bytes())));
        }
        assert_eq!(attempts.lock().len(), CLIENTS);
    }
}
