//! The one-time codes that log the owner in to the page.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::query::access::{encode_secret, secret_hash};
use crate::store::access::SecretHash;

/// How long a one-time code is valid.
pub(super) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// How long a code must at least be valid to be shown again.
pub(super) const MIN_SHOWN: Duration = Duration::from_secs(30);
/// The maximum number of valid one-time codes; a further one replaces the oldest.
pub(super) const MAX_CODES: usize = 16;

/// A code that logs the owner in once.
pub struct LoginCode {
    pub code: String,
    /// How long it is still valid.
    pub expires_in: Duration,
}

/// The valid one-time codes.
#[derive(Default)]
pub struct LoginCodes {
    since: HashMap<SecretHash, Instant>,
    /// The last code of [`LoginCodes::show`].
    shown: Option<[u8; 32]>,
}

impl LoginCodes {
    /// Adds a new code, in place of the oldest if there are too many.
    pub fn add(&mut self, code: [u8; 32]) -> LoginCode {
        let now = Instant::now();
        self.since.retain(|_, since| now.duration_since(*since) < CODE_LIFETIME);
        if self.since.len() >= MAX_CODES
            && let Some(oldest) = self.since.iter().min_by_key(|(_, since)| **since).map(|(hash, _)| *hash)
        {
            self.since.remove(&oldest);
        }
        self.since.insert(secret_hash(&code), now);
        LoginCode { code: encode_secret(&code), expires_in: CODE_LIFETIME }
    }

    /// Adds a new code that may be shown again.
    pub fn show(&mut self, code: [u8; 32]) -> LoginCode {
        self.shown = Some(code);
        self.add(code)
    }

    /// Removes a used code. Returns true if it was valid.
    pub fn take(&mut self, code: &SecretHash) -> bool {
        self.since.remove(code).is_some_and(|since| since.elapsed() < CODE_LIFETIME)
    }

    /// Returns the code that was shown last, if it is unused and valid long enough.
    pub fn shown_again(&self) -> Option<LoginCode> {
        let code = self.shown?;
        let expires_in = CODE_LIFETIME.checked_sub(self.since.get(&secret_hash(&code))?.elapsed())?;
        (expires_in >= MIN_SHOWN).then(|| LoginCode { code: encode_secret(&code), expires_in })
    }
}
