//! Rate limits for wrong tokens, by client and by the prefix of the token.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use daoyou_channels::{ClientAddr, Quota, RateLimiter};

const WINDOW: Duration = Duration::from_secs(60);

/// The failures of one client with tokens of one prefix that get 401; further ones get 429.
const PREFIX_QUOTA: Quota = Quota::Window { count: 10, period: WINDOW };
/// The failures of one client with all tokens that get 401; further ones get 429.
const CLIENT_QUOTA: Quota = Quota::Window { count: 40, period: WINDOW };
/// The quota of warnings about one client.
const WARNING_QUOTA: Quota = Quota::Window { count: 1, period: WINDOW };

/// The length of a prefix, in bytes.
const PREFIX_BYTES: usize = 4;

/// The maximum number of clients, and clients with a prefix, that are counted separately.
const MAX_ENTRIES: usize = 4_096;

/// Counts the failures of each client.
///
/// The failures decide only the response to a wrong token. The right token is never limited, so a client that shares the owner's
/// address (behind a proxy, or on this machine) cannot lock the owner out.
#[derive(Debug)]
pub struct LoginAttempts {
    failures: RateLimiter<FailureKey>,
    warnings: RateLimiter<IpAddr>,
    /// Random for each process, so that the hashes reveal nothing about the tokens.
    hasher: RandomState,
}

/// The key of a count: a client and the hash of a token's prefix, or `None` for all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FailureKey {
    client: IpAddr,
    prefix: Option<u64>,
}

impl Default for LoginAttempts {
    fn default() -> Self {
        Self {
            failures: RateLimiter::new(MAX_ENTRIES),
            warnings: RateLimiter::new(MAX_ENTRIES),
            hasher: RandomState::default(),
        }
    }
}

impl LoginAttempts {
    /// Counts a wrong `token` of `client`.
    ///
    /// # Errors
    /// A limit is exceeded; the error is the time until the next failure gets 401 again.
    pub fn record_failure(&self, client: ClientAddr, token: &[u8]) -> Result<(), Duration> {
        let client = client.bucket();
        let prefix = self.hasher.hash_one(&token[..token.len().min(PREFIX_BYTES)]);
        let all = self.failures.take(&FailureKey { client, prefix: None }, CLIENT_QUOTA);
        let counted = all.and_then(|()| self.failures.take(&FailureKey { client, prefix: Some(prefix) }, PREFIX_QUOTA));
        if counted.is_err() && self.warnings.take(&client, WARNING_QUOTA).is_ok() {
            tracing::warn!(%client, "too many wrong tokens; further ones are answered 429 for a while");
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> ClientAddr {
        ClientAddr(address.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn repeating_one_wrong_token_is_limited_for_a_minute() {
        let attempts = LoginAttempts::default();
        for n in 0..10 {
            let from = client(&format!("2001:db8::{n:x}"));
            assert_eq!(attempts.record_failure(from, format!("abcd{n}").as_bytes()), Ok(()), "{n}");
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(attempts.record_failure(client("2001:db8::ffff"), b"abcd"), Err(Duration::from_secs(40)));
        assert_eq!(attempts.record_failure(client("2001:db8::ffff"), b"abc"), Ok(()), "another token");
        assert_eq!(attempts.record_failure(client("2001:db8:0:1::1"), b"abcd"), Ok(()), "the next network");
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(attempts.record_failure(client("2001:db8::1"), b"abcd"), Ok(()), "a new minute");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_different_tokens_is_limited() {
        let attempts = LoginAttempts::default();
        let passed =
            (0..1_000).filter(|n| attempts.record_failure(client("192.0.2.1"), format!("{n:04}").as_bytes()).is_ok());
        assert_eq!(passed.count(), 40);
        assert_eq!(attempts.failures.key_count(), 1 + 40, "refused tokens have no entries");
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded() {
        let attempts = LoginAttempts::default();
        for n in 0..20_000_u32 {
            attempts.record_failure(ClientAddr(IpAddr::from(n.to_be_bytes())), &n.to_be_bytes()).ok();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let kept = attempts.failures.key_count();
        assert!((MAX_ENTRIES / 2..=MAX_ENTRIES).contains(&kept), "{kept}");
    }
}
