//! How each channel is, for `/readyz` and `status`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// Where a channel's receiving stands.
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
