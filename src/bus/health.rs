//! The health of each channel and each model service, for `/readyz`, `status` and `doctor`.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::store::{Connection, StoreError, meta};

/// The state of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum ChannelState {
    Starting,
    Running,
    /// The channel does not receive, or not from everywhere, or cannot send. It is restarted, or tries again itself.
    Failed {
        error: String,
    },
    /// The channel was stopped, or has nothing more to receive.
    Stopped,
}

/// The states by channel name.
#[derive(Debug, Default)]
pub struct ChannelHealth(Mutex<BTreeMap<String, ChannelState>>);

impl ChannelHealth {
    /// Sets a state and returns the previous one.
    pub fn set(&self, channel: &str, state: ChannelState) -> Option<ChannelState> {
        self.0.lock().insert(channel.to_owned(), state)
    }

    /// Sets a state if the current one is `from`.
    pub fn compare_and_set(&self, channel: &str, from: &ChannelState, to: ChannelState) {
        let mut states = self.0.lock();
        if let Some(state) = states.get_mut(channel).filter(|state| *state == from) {
            *state = to;
        }
    }

    pub fn all(&self) -> BTreeMap<String, ChannelState> {
        self.0.lock().clone()
    }
}

/// The reason why a model service does not answer. It is stored as long as messages wait for a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderFault {
    /// The stable error code, e.g. `llm_auth`.
    pub code: String,
    /// The description for the owner.
    pub message: String,
    /// The start of the fault, in UTC milliseconds.
    pub since: i64,
    /// A notice has reached the owner, not only the log.
    #[serde(default)]
    pub is_reported: bool,
    /// The service has answered since the last failure, so the fault is not shown.
    #[serde(default)]
    is_over: bool,
    /// The service has answered since a message began to wait because of the fault.
    #[serde(default)]
    has_answered: bool,
    /// Only the owner can end the fault: a refused key, or an empty account.
    #[serde(default)]
    must_act: bool,
    /// The time of the last failure, in UTC milliseconds.
    #[serde(default)]
    last: i64,
    /// The time of the last notice of this process, even if it went only to the log, in UTC milliseconds.
    #[serde(skip)]
    noticed: Option<i64>,
}

/// A service that has answered, and fails again within this time of its last failure, is still in the same outage. In milliseconds.
const SAME_OUTAGE: i64 = 10 * 60_000;

impl ProviderFault {
    /// Creates a fault that begins at `since`, in UTC milliseconds, and is not reported yet. `must_act`: only the owner can end it.
    pub fn new(code: &str, message: String, since: i64, must_act: bool) -> Self {
        Self { code: code.to_owned(), message, since, must_act, last: since, ..Self::default() }
    }
}

/// The faults of the services that messages wait for, by the provider's name. The store has a copy, so that the owner gets one
/// notice even if the gateway restarts.
#[derive(Debug, Default)]
pub struct ProviderHealth(Mutex<BTreeMap<String, ProviderFault>>);

impl ProviderHealth {
    /// Records the fault of a service. `is_retry` is true if the failed message waited before. Returns true if the owner needs a
    /// notice: the fault is new, or the fault has changed and the owner must act, or no notice reached the owner for
    /// [`SAME_OUTAGE`]. If the service has answered meanwhile, a message that waits for the first time makes the fault new after
    /// that time; a retry of a message does not. While the owner must act, another fault does not hide the reason.
    pub fn record_fault(&self, provider: &str, fault: ProviderFault, is_retry: bool) -> bool {
        let mut faults = self.0.lock();
        let is_later = |at: i64| fault.since.abs_diff(at) >= SAME_OUTAGE.unsigned_abs();
        let known = match faults.get_mut(provider) {
            Some(known) if known.must_act && !known.is_over && !fault.must_act => {
                known.last = fault.last;
                return false;
            }
            Some(known) => known,
            None => faults.entry(provider.to_owned()).or_insert_with(|| fault.clone()),
        };
        let has_answered = known.has_answered && is_retry;
        let is_changed = fault.must_act && known.code != fault.code;
        let is_news = is_changed || (known.has_answered && !is_retry && is_later(known.last));
        let (since, is_reported, noticed) =
            if is_news { (fault.since, false, None) } else { (known.since, known.is_reported, known.noticed) };
        let must_notify = !is_reported && noticed.is_none_or(is_later);
        let noticed = if must_notify { Some(fault.since) } else { noticed };
        *known = ProviderFault { since, is_reported, has_answered, noticed, ..fault };
        must_notify
    }

    /// Records that a notice of the fault reached the owner.
    pub fn mark_reported(&self, provider: &str) {
        let mut faults = self.0.lock();
        faults.entry(provider.to_owned()).and_modify(|fault| fault.is_reported = true);
    }

    /// Records that a service answers again. Returns true if that ends a fault. The fault is not removed, because a message that
    /// waits may fail again, and the owner has a notice of that.
    pub fn record_answer(&self, provider: &str) -> bool {
        let mut faults = self.0.lock();
        let Some(fault) = faults.get_mut(provider).filter(|fault| !fault.is_over) else { return false };
        (fault.is_over, fault.has_answered) = (true, true);
        true
    }

    /// Removes all faults. Returns true if there was one.
    pub fn clear_all(&self) -> bool {
        !std::mem::take(&mut *self.0.lock()).is_empty()
    }

    /// Returns true if no fault is recorded, not even one that is over.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns the faults that are not over.
    pub fn all(&self) -> BTreeMap<String, ProviderFault> {
        self.0
            .lock()
            .iter()
            .filter(|(_, fault)| !fault.is_over)
            .map(|(name, fault)| (name.clone(), fault.clone()))
            .collect()
    }

    /// Writes the copy into the store, with the faults of the `reported` providers marked as reported. The caller marks them in
    /// memory after its commit.
    ///
    /// # Errors
    /// The stored copy cannot be read, or the new one cannot be written. A copy in an unknown format is not an error.
    pub fn write(&self, connection: &Connection, reported: &[String]) -> Result<(), StoreError> {
        let mut faults = self.0.lock().clone();
        let stored = stored_faults(connection)?;
        for (provider, fault) in &mut faults {
            fault.is_reported |= reported.contains(provider) || is_reported_in(&stored, provider, fault);
        }
        meta::set(connection, meta::SERVICE_FAULTS, &serde_json::to_string(&faults)?)
    }

    /// Returns true if a committed notice of the provider's fault reaches the owner. The fault may not be marked in memory yet.
    ///
    /// # Errors
    /// The stored copy cannot be read.
    pub fn has_notice(&self, connection: &Connection, provider: &str) -> Result<bool, StoreError> {
        let stored = stored_faults(connection)?;
        Ok(self.0.lock().get(provider).is_some_and(|fault| is_reported_in(&stored, provider, fault)))
    }

    /// Replaces the faults by the copy from the store.
    pub(super) fn restore(&self, faults: BTreeMap<String, ProviderFault>) {
        *self.0.lock() = faults;
    }
}

/// Returns true if the copy in the store marks this fault as reported.
fn is_reported_in(stored: &BTreeMap<String, ProviderFault>, provider: &str, fault: &ProviderFault) -> bool {
    stored.get(provider).is_some_and(|stored| {
        stored.is_reported && (stored.since, stored.code.as_str()) == (fault.since, fault.code.as_str())
    })
}

/// Reads the faults that are not over from the copy in the store.
///
/// # Errors
/// The stored copy cannot be read. A copy in an unknown format counts as empty.
pub fn stored_service_faults(connection: &Connection) -> Result<BTreeMap<String, ProviderFault>, StoreError> {
    Ok(stored_faults(connection)?.into_iter().filter(|(_, fault)| !fault.is_over).collect())
}

/// Reads the copy in the store.
pub(super) fn stored_faults(connection: &Connection) -> Result<BTreeMap<String, ProviderFault>, StoreError> {
    let stored = meta::get(connection, meta::SERVICE_FAULTS)?.unwrap_or_default();
    // A copy in the format of another version counts as empty; the next failure replaces it.
    Ok(serde_json::from_str(&stored).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_fault_is_reported_once_after_a_notice_reached_the_owner() {
        let services = ProviderHealth::default();
        let fail = |code: &str, at| {
            services.record_fault("p", ProviderFault::new(code, "HTTP 401".to_owned(), at, code == "llm_auth"), false)
        };
        assert!(fail("llm_unreachable", 7) && !fail("llm_unreachable", 8));
        assert!(fail("llm_unreachable", 7 + SAME_OUTAGE), "it went to the log alone");
        services.mark_reported("p");
        services.mark_reported("q");
        assert!(!fail("llm_unreachable", 9 + 2 * SAME_OUTAGE) && services.all().len() == 1);
        assert!(fail("llm_auth", 10 + 2 * SAME_OUTAGE), "now there is something to do");
        services.mark_reported("p");
        assert!(!fail("llm_auth", 11 + 2 * SAME_OUTAGE));
        // A call that began before fails for another reason.
        assert!(!fail("llm_server_error", 12 + 2 * SAME_OUTAGE) && services.all()["p"].code == "llm_auth");
        assert!(!fail("llm_auth", 13 + 2 * SAME_OUTAGE));
    }

    /// The service answers others and rejects one message again and again, or answers now and then.
    #[test]
    fn an_answer_between_two_failures_does_not_end_an_outage() {
        let services = ProviderHealth::default();
        let fail = |is_retry, at| {
            let fault = ProviderFault::new("llm_server_error", "HTTP 500".to_owned(), at, false);
            services.record_fault("p", fault, is_retry)
        };
        assert!(fail(false, 0));
        services.mark_reported("p");
        for at in [1, SAME_OUTAGE, 3 * SAME_OUTAGE] {
            assert!(services.record_answer("p") && !services.record_answer("p") && services.all().is_empty());
            assert!(!fail(true, at) && services.all().len() == 1);
        }
        for at in [1, 2, SAME_OUTAGE].map(|at| at + 3 * SAME_OUTAGE) {
            assert!(services.record_answer("p") && !fail(false, at), "{at}: the service has too many requests");
        }
        assert!(services.record_answer("p") && fail(false, 5 * SAME_OUTAGE), "a new outage");
        services.mark_reported("p");
        assert!(!fail(false, 5 * SAME_OUTAGE) && !fail(true, 7 * SAME_OUTAGE) && services.clear_all());
        assert!(services.is_empty());
    }
}
