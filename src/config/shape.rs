//! The shape of `config.toml`, derived from the schema of [`Config`].

use std::collections::BTreeMap;
use std::sync::OnceLock;

use daoyou_channels::settings::{ByteSize, join_key};
use serde_json::{Map, Value};

use super::settings::Config;
use crate::text::nearest;

/// The minimum similarity (1 is equal) for which a key of the same table is suggested.
const ALIKE: f64 = 0.6;
/// The minimum similarity for which one name counts as a misspelling of the other.
const NEARLY_EQUAL: f64 = 0.75;

/// The shape of a key's value.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingShape {
    /// A table of known keys, and the required ones among them.
    Table(BTreeMap<String, SettingShape>, Vec<String>),
    /// A table whose key names the user chooses; all its values have the same shape.
    Map(Box<SettingShape>),
    List(Box<SettingShape>),
    /// A list, or a single entry without a list.
    OneOrMany(Box<SettingShape>),
    Text,
    Choice(Vec<String>),
    Bool,
    Int {
        min: i128,
        max: i128,
    },
    Float {
        min: f64,
        max: f64,
    },
    Duration,
    Size,
    Rate,
    Secret,
}

impl SettingShape {
    /// Returns the shape of the whole configuration.
    pub fn config() -> &'static Self {
        static SHAPE: OnceLock<SettingShape> = OnceLock::new();
        SHAPE.get_or_init(|| {
            let schema = schemars::schema_for!(Config).to_value();
            Self::read(&schema, &schema).expect("the schema is fixed when the program is built, and a test reads it")
        })
    }

    /// Describes the allowed values.
    pub fn allowed(&self) -> String {
        match self {
            Self::Table(keys, _) => {
                format!("a table with the keys {}", keys.keys().cloned().collect::<Vec<_>>().join(", "))
            }
            Self::Map(_) => "a table with a name of your choice for each entry".to_owned(),
            Self::List(item) => format!("a list, each entry {}", item.allowed()),
            Self::OneOrMany(item) => format!("{}, or a list of such", item.allowed()),
            Self::Text => "a text in quotes".to_owned(),
            Self::Choice(names) => names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
            Self::Bool => "true, false".to_owned(),
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Float { min, max } if min.is_finite() && max.is_finite() => format!("a number from {min} to {max}"),
            Self::Float { min, .. } if min.is_finite() => format!("a number from {min}"),
            Self::Float { .. } => "a number".to_owned(),
            Self::Duration => "a duration such as \"90s\", \"10m\" or \"1h 30m\"".to_owned(),
            Self::Size => ByteSize::ALLOWED.to_owned(),
            Self::Rate => "a rate such as \"10/s\", \"60/m\" or \"1000/h\"".to_owned(),
            Self::Secret => "\"env:NAME\", \"file:PATH\", \"cred:NAME\", or the secret itself in quotes".to_owned(),
        }
    }

    fn read(schema: &Value, root: &Value) -> Result<Self, String> {
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#').ok_or("a $ref that leaves the schema")?;
            return Self::read(root.pointer(pointer).ok_or_else(|| format!("{target} is missing"))?, root);
        }
        if let Some(either) = schema.get("anyOf").and_then(Value::as_array) {
            let mut some = either.iter().filter(|one| one.get("type").and_then(Value::as_str) != Some("null"));
            return match (some.next(), some.next(), some.next()) {
                (Some(only), None, None) => Self::read(only, root),
                (Some(one), Some(many), None) => match (Self::read(one, root)?, Self::read(many, root)?) {
                    (one, Self::List(item)) if one == *item => Ok(Self::OneOrMany(item)),
                    _ => Err(format!("more than one type: {schema}")),
                },
                _ => Err(format!("more than one type: {schema}")),
            };
        }
        if let Some(names) = choices(schema) {
            return Ok(Self::Choice(names));
        }
        let kind = match schema.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(Value::Array(kinds)) => {
                kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default()
            }
            _ => "",
        };
        match (kind, schema.get("format").and_then(Value::as_str)) {
            ("object", _) => Self::read_object(schema, root),
            ("array", _) => Ok(Self::List(Box::new(Self::read(schema.get("items").unwrap_or_default(), root)?))),
            ("boolean", _) => Ok(Self::Bool),
            ("string", None) => Ok(Self::Text),
            ("string", Some("duration")) => Ok(Self::Duration),
            ("string", Some("size")) => Ok(Self::Size),
            ("string", Some("rate")) => Ok(Self::Rate),
            ("string", Some("secret")) => Ok(Self::Secret),
            ("integer", format) => {
                let widest = if format == Some("uint32") { i128::from(u32::MAX) } else { i128::from(i64::MAX) };
                let bound = |name| schema.get(name).and_then(Value::as_i64).map(i128::from);
                let min = bound("minimum").unwrap_or(i128::from(i64::MIN));
                Ok(Self::Int { min, max: bound("maximum").unwrap_or(widest) })
            }
            ("number", _) => {
                let bound = |name| schema.get(name).and_then(Value::as_f64);
                let min = bound("minimum").unwrap_or(f64::NEG_INFINITY);
                Ok(Self::Float { min, max: bound("maximum").unwrap_or(f64::INFINITY) })
            }
            _ => Err(format!("unknown kind of value: {schema}")),
        }
    }

    fn read_object(schema: &Value, root: &Value) -> Result<Self, String> {
        match schema.get("additionalProperties") {
            Some(each @ Value::Object(_)) => Ok(Self::Map(Box::new(Self::read(each, root)?))),
            _ => {
                let empty = Map::new();
                let keys = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
                let keys = keys.iter().map(|(name, key)| Ok((name.clone(), Self::read(key, root)?)));
                let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
                let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
                Ok(Self::Table(keys.collect::<Result<_, String>>()?, required))
            }
        }
    }
}

/// Returns the path of the key that the unknown `name` in the table at `path` probably means: a very similar key of the same table,
/// or its only one that begins with this word, or else a key of the same name elsewhere, or else the most similar key of the table.
pub(super) fn nearest_key(
    root: &SettingShape,
    path: &str,
    keys: &BTreeMap<String, SettingShape>,
    name: &str,
) -> Option<String> {
    let name = name.to_lowercase();
    let best = |least| {
        let known = keys.keys().map(|key| (key.as_str(), key));
        nearest::nearest(&name, known, nearest::BY_EDITS, least).map(|key| join_key(path, key))
    };
    let longer = || {
        let begins = |key: &&String| key.strip_prefix(&name).is_some_and(|rest| rest.starts_with('_'));
        let mut longer = keys.keys().filter(begins);
        longer.next().filter(|_| longer.next().is_none()).map(|key| join_key(path, key))
    };
    best(NEARLY_EQUAL).or_else(longer).or_else(|| elsewhere(root, "", &name)).or_else(|| best(0.0))
}

/// Returns the element of `names` that `text` probably means, if one is similar enough.
pub(super) fn nearest_choice<'a>(names: &'a [String], text: &str) -> Option<&'a str> {
    let known = names.iter().map(|name| (name.as_str(), name.as_str()));
    nearest::nearest(&text.to_lowercase(), known, nearest::BY_EDITS, ALIKE)
}

/// Returns the path of the first key called `name` in any table.
fn elsewhere(shape: &SettingShape, path: &str, name: &str) -> Option<String> {
    match shape {
        SettingShape::Table(keys, _) if keys.contains_key(name) => Some(join_key(path, name)),
        SettingShape::Table(keys, _) => {
            keys.iter().find_map(|(key, inner)| elsewhere(inner, &join_key(path, key), name))
        }
        SettingShape::Map(each) => elsewhere(each, &join_key(path, "NAME"), name),
        _ => None,
    }
}

/// Returns the names of an enumeration. Its schema is a list of names or, with comments, a list of constants.
fn choices(schema: &Value) -> Option<Vec<String>> {
    let names = match (schema.get("enum"), schema.get("oneOf")) {
        (Some(Value::Array(names)), _) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        (_, Some(Value::Array(each))) => {
            let mut names = Vec::new();
            for one in each {
                match (one.get("const"), one.get("enum")) {
                    (Some(Value::String(name)), _) => names.push(name.clone()),
                    (_, Some(Value::Array(some))) => {
                        names.extend(some.iter().filter_map(Value::as_str).map(str::to_owned));
                    }
                    _ => return None,
                }
            }
            names
        }
        _ => return None,
    };
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> &'static SettingShape {
        path.split('.').fold(SettingShape::config(), |shape, name| match shape {
            SettingShape::Table(keys, _) => &keys[name],
            SettingShape::Map(each) => each,
            other => panic!("{path}: {other:?}"),
        })
    }

    #[test]
    fn each_kind_of_setting_is_read_from_the_schema() {
        let uint = |min, max: i128| SettingShape::Int { min, max };
        let table = [
            ("agent.model", SettingShape::Text),
            ("agent.temperature", SettingShape::Float { min: 0.0, max: 2.0 }),
            ("agent.max_tokens", uint(1, u32::MAX.into())),
            ("agent.max_turn_tokens", uint(1, i64::MAX.into())),
            ("agent.queue", SettingShape::Choice(vec!["followup".into(), "collect".into()])),
            ("agent.locale", SettingShape::Choice(vec!["en".into(), "zh".into(), "auto".into()])),
            ("store.reserve", SettingShape::Size),
            ("store.retain.turns", SettingShape::Duration),
            ("gateway.token", SettingShape::Secret),
            ("providers.x.headers.h", SettingShape::Secret),
            ("providers.x.retries", uint(0, 100)),
            ("channels.webhook.x.retry", SettingShape::List(Box::new(SettingShape::Duration))),
            ("channels.webhook.x.rate_limit", SettingShape::Rate),
            ("channels.webhook.x.max_body", SettingShape::Size),
            ("channels.webhook.x.allow_from", SettingShape::List(Box::new(SettingShape::Text))),
            ("channels.email.mailbox", SettingShape::OneOrMany(Box::new(SettingShape::Text))),
            ("channels.email.ca_file", SettingShape::Text),
            ("tools.exec.sandbox", SettingShape::Choice(vec!["auto".into(), "require".into(), "off".into()])),
        ];
        for (path, expected) in table {
            assert_eq!(*at(path), expected, "{path}");
        }
    }

    #[test]
    fn the_nearest_key_is_named() {
        let table = [
            ("agent", "modle", "agent.model"),
            ("agent", "Max_Iteration", "agent.max_iterations"),
            ("", "model", "agent.model"),
            ("", "api_key", "providers.NAME.api_key"),
            ("", "gatway", "gateway"),
            ("agent", "listen", "gateway.listen"),
            ("log", "colour", "log.format"),
        ];
        for (path, name, expected) in table {
            let SettingShape::Table(keys, _) = (if path.is_empty() { SettingShape::config() } else { at(path) }) else {
                panic!("{path} is not a table")
            };
            assert_eq!(
                nearest_key(SettingShape::config(), path, keys, name).as_deref(),
                Some(expected),
                "{path} {name}"
            );
        }
    }
}
