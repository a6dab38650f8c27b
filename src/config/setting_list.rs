//! The list of all settings with their origins, and the differences between two configurations.

use std::collections::BTreeMap;
use std::fmt;

use daoyou_channels::settings::{Secret, join_key};
use serde_json::Value;

use super::fault::SettingOrigin;
use super::load::LoadedConfig;
use super::shape::SettingShape;
use crate::guard::mask_url;

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The path of the key, such as `agent.model`.
    pub key: String,
    /// The value, or `(hidden)` for a secret; absent if it is unset and has no default.
    pub value: Option<Value>,
    pub origin: SettingOrigin,
}

/// A changed setting.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingChange {
    /// The path of the key, such as `agent.model`.
    pub key: String,
    /// The old value, as in [`Setting::value`]; absent if it was unset.
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Formats a change as `agent.max_iterations 40 → 3`. For a secret, it says only that the value changed.
impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.before == self.after {
            return write!(f, "{} (another secret)", self.key);
        }
        let shown = |value: &Option<Value>| value.as_ref().map_or("(not set)".to_owned(), Value::to_string);
        write!(f, "{} {} → {}", self.key, shown(&self.before), shown(&self.after))
    }
}

impl LoadedConfig {
    /// Returns every setting, in the order of the key paths.
    pub fn settings(&self) -> Vec<Setting> {
        let values = self.masked();
        let mut settings = Vec::new();
        self.gather(SettingShape::config(), "", Some(&values), &mut settings);
        settings
    }

    /// Returns all values as nested tables, without secrets.
    pub fn masked(&self) -> Value {
        let mut values = serde_json::to_value(&self.config).unwrap_or_default();
        mask(&mut values);
        values
    }

    fn gather(&self, shape: &SettingShape, path: &str, value: Option<&Value>, into: &mut Vec<Setting>) {
        match shape {
            SettingShape::Table(keys, _) => {
                for (name, inner) in keys {
                    self.gather(inner, &join_key(path, name), value.and_then(|table| table.get(name)), into);
                }
            }
            SettingShape::Map(each) => {
                for (name, inner) in value.and_then(Value::as_object).into_iter().flatten() {
                    self.gather(each, &join_key(path, name), Some(inner), into);
                }
            }
            _ => into.push(Setting { key: path.to_owned(), value: value.cloned(), origin: self.origin(path) }),
        }
    }

    fn secret(&self, key: &str) -> Option<&Secret> {
        self.secrets.get(key).map(|secret| &secret.value)
    }

    /// Returns the settings that differ in `newer`, in the order of their keys.
    pub fn changes(&self, newer: &Self) -> Vec<SettingChange> {
        let values = |loaded: &Self| -> BTreeMap<String, Option<Value>> {
            loaded.settings().into_iter().map(|setting| (setting.key, setting.value)).collect()
        };
        let (before, mut after) = (values(self), values(newer));
        let mut changes: Vec<SettingChange> = Vec::new();
        for (key, before) in before {
            let after = after.remove(&key).flatten();
            if before != after || self.secret(&key) != newer.secret(&key) {
                changes.push(SettingChange { key, before, after });
            }
        }
        let new = after.into_iter().filter(|(_, value)| value.is_some());
        changes.extend(new.map(|(key, after)| SettingChange { key, before: None, after }));
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        changes
    }
}

/// Masks passwords and keys in web addresses. Values of the type `Secret` mask themselves.
fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask_url(text),
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::Object(table) => table.values_mut().for_each(mask),
        _ => {}
    }
}
