//! How each channel and each model service is, for `/readyz`, `status` and `doctor`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::store::{Connection, StoreError, meta};

/// Where a channel's receiving and sending stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum ChannelState {
    Starting,
    Running,
    /// It failed and is tried again.
    Failed {
        error: String,
    },
    /// It was told to stop, or has no more to receive.
    Stopped,
}

/// The states by channel name.
#[derive(Debug, Default)]
pub struct ChannelHealth(Mutex<BTreeMap<String, ChannelState>>);

impl ChannelHealth {
    pub fn set(&self, channel: &str, state: ChannelState) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(channel.to_owned(), state);
    }

    /// Sets a state; answers what it was before.
    pub fn exchange(&self, channel: &str, state: ChannelState) -> Option<ChannelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(channel.to_owned(), state)
    }

    /// Sets a state where it is still `from`.
    pub fn change(&self, channel: &str, from: &ChannelState, to: ChannelState) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = states.get_mut(channel).filter(|state| *state == from) {
            *state = to;
        }
    }

    pub fn all(&self) -> BTreeMap<String, ChannelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What keeps a model service from answering, for as long as messages wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFault {
    /// The stable word for it, e.g. `llm_auth`.
    pub code: String,
    /// In words, for the owner.
    pub message: String,
    /// UTC milliseconds.
    pub since: i64,
    /// Whether the owner was told of it, and not merely the log.
    #[serde(default)]
    pub is_told: bool,
}

/// The services that messages wait for, by the provider's name. The store has a copy, so that the owner is told once even
/// when the gateway restarts meanwhile.
#[derive(Debug, Default)]
pub struct ServiceHealth(Mutex<BTreeMap<String, ServiceFault>>);

impl ServiceHealth {
    /// Notes what a service failed with. Returns true if the owner is to be told: nothing was known of that service, or now
    /// the owner has to do something (`must_act`) and had not before, or was not reached before.
    pub fn note(&self, provider: &str, fault: ServiceFault, must_act: bool) -> bool {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match faults.get_mut(provider) {
            Some(known) => {
                let is_news = must_act && known.code != fault.code;
                let (since, is_told) = if is_news { (fault.since, false) } else { (known.since, known.is_told) };
                *known = ServiceFault { since, is_told, ..fault };
                !is_told
            }
            None => faults.insert(provider.to_owned(), fault).is_none(),
        }
    }

    /// The owner was told what keeps the service from answering.
    pub fn told(&self, provider: &str) {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.entry(provider.to_owned()).and_modify(|fault| fault.is_told = true);
    }

    /// The service answers again. Returns true if it had a fault.
    pub fn clear(&self, provider: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(provider).is_some()
    }

    /// Nothing is known of any service. Returns true if one had a fault.
    pub fn clear_all(&self) -> bool {
        !std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).is_empty()
    }

    pub fn all(&self) -> BTreeMap<String, ServiceFault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the copy in the store.
    pub fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        meta::set(connection, meta::SERVICE_FAULTS, &serde_json::to_string(&self.all())?)
    }

    /// Reads the copy in the store into this.
    pub(super) fn restore(&self, faults: BTreeMap<String, ServiceFault>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }
}

/// The copy in the store.
pub fn stored_service_faults(connection: &Connection) -> Result<BTreeMap<String, ServiceFault>, StoreError> {
    let stored = meta::get(connection, meta::SERVICE_FAULTS)?.unwrap_or_default();
    // Written by another version it tells nothing, and is written anew with the next failure.
    Ok(serde_json::from_str(&stored).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_told_once_and_not_before_somebody_is_there_to_read_it() {
        let services = ServiceHealth::default();
        let fault = |code: &str| {
            let (code, message) = (code.to_owned(), "HTTP 401".to_owned());
            ServiceFault { code, message, since: 7, is_told: false }
        };
        assert!(services.note("p", fault("llm_unreachable"), false));
        assert!(services.note("p", fault("llm_unreachable"), false), "it went to the log alone");
        services.told("p");
        services.told("q");
        assert!(!services.note("p", fault("llm_unreachable"), false) && services.all().len() == 1);
        assert!(services.note("p", fault("llm_auth"), true), "now there is something to do");
        services.told("p");
        assert!(!services.note("p", fault("llm_auth"), true));
    }
}
