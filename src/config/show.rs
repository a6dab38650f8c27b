//! The configuration as it is in force, each value with where it comes from.

use serde_json::Value;

use super::fault::{Place, join};
use super::load::Loaded;
use super::shape::Shape;

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its path, e.g. `agent.model`.
    pub key: String,
    /// Its value, `(hidden)` when it is a secret; absent when it is not set and has no default.
    pub value: Option<Value>,
    pub place: Place,
}

impl Loaded {
    /// Every setting, in the order of its key's path.
    pub fn settings(&self) -> Vec<Setting> {
        let values = self.masked();
        let mut settings = Vec::new();
        self.gather(Shape::config(), "", Some(&values), &mut settings);
        settings
    }

    /// All values as nested tables, without secrets.
    pub fn masked(&self) -> Value {
        let mut values = serde_json::to_value(&self.config).unwrap_or_default();
        mask(&mut values);
        values
    }

    fn gather(&self, shape: &Shape, path: &str, value: Option<&Value>, into: &mut Vec<Setting>) {
        match shape {
            Shape::Table(keys) => {
                for (name, inner) in keys {
                    self.gather(inner, &join(path, name), value.and_then(|table| table.get(name)), into);
                }
            }
            Shape::Map(each) => {
                for (name, inner) in value.and_then(Value::as_object).into_iter().flatten() {
                    self.gather(each, &join(path, name), Some(inner), into);
                }
            }
            _ => into.push(Setting { key: path.to_owned(), value: value.cloned(), place: self.place(path) }),
        }
    }
}

/// Secrets hide themselves; what is left are passwords and tokens inside web addresses.
fn mask(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(masked) = without_secrets(text) {
                *text = masked;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::Object(table) => table.values_mut().for_each(mask),
        _ => {}
    }
}

/// A web address without its user and password, and without what its query says; `None` for any other text.
fn without_secrets(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    if text.contains(char::is_whitespace) || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, place) = rest.split_at(end);
    let authority = authority.rfind('@').map_or(authority.to_owned(), |at| format!("(hidden){}", &authority[at..]));
    let place = place.find(['?', '#']).map_or(place.to_owned(), |at| format!("{}(hidden)", &place[..=at]));
    Some(format!("{scheme}://{authority}{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_addresses_are_shown_without_what_opens_them() {
        for (address, shown) in [
            ("https://example.org/replies", None),
            ("https://example.org/r?token=canary&x=1#top", Some("https://example.org/r?(hidden)")),
            ("https://ann:canary@example.org:8443/r", Some("https://(hidden)@example.org:8443/r")),
            ("https://a@b@example.org?canary", Some("https://(hidden)@example.org?(hidden)")),
            ("https://example.org/@ann#canary", Some("https://example.org/@ann#(hidden)")),
            ("socks5h://u:canary@[::1]:1080", Some("socks5h://(hidden)@[::1]:1080")),
            ("see https://example.org/?a for more", None),
            ("{{ body.url }}://x?y", None),
            ("cli:direct", None),
        ] {
            let mut value = serde_json::json!({ "list": [address] });
            mask(&mut value);
            assert_eq!(value["list"][0], shown.unwrap_or(address));
        }
    }
}
