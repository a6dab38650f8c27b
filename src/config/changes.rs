//! How two configurations differ.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use serde_json::Value;

use super::load::Loaded;

/// A changed setting.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingChange {
    /// Its path, e.g. `agent.model`.
    pub key: String,
    /// As [`super::Setting::value`]: absent when it was not set.
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// `agent.max_iterations 40 → 3`. Of a secret it says only that it is another one.
impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.before == self.after {
            return write!(f, "{} (another secret)", self.key);
        }
        let shown = |value: &Option<Value>| value.as_ref().map_or("(not set)".to_owned(), Value::to_string);
        write!(f, "{} {} → {}", self.key, shown(&self.before), shown(&self.after))
    }
}

impl Loaded {
    /// What is not the same in `newer`, in the order of the keys.
    pub fn changes(&self, newer: &Self) -> Vec<SettingChange> {
        let values = |loaded: &Self| -> BTreeMap<String, Option<Value>> {
            loaded.settings().into_iter().map(|setting| (setting.key, setting.value)).collect()
        };
        let (before, mut after) = (values(self), values(newer));
        let mut changes: Vec<SettingChange> = Vec::new();
        for (key, before) in before {
            let after = after.remove(&key).flatten();
            if before != after || self.prints.get(&key) != newer.prints.get(&key) {
                changes.push(SettingChange { key, before, after });
            }
        }
        let new = after.into_iter().filter(|(_, value)| value.is_some());
        changes.extend(new.map(|(key, after)| SettingChange { key, before: None, after }));
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        changes
    }
}

/// Tells two secrets apart without holding them: a hash of each, with a key that is this process's own.
pub(super) fn fingerprint(secret: &str) -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    KEY.get_or_init(RandomState::new).hash_one(secret)
}
