//! Reads values, checks them against the schema, and collects all faults.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use daoyou_channels::settings::{ByteSize, HumanDuration, join_key, quoted};
use daoyou_channels::webhook::Rate;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{ConfigFault, SettingOrigin, inside};
use super::secrets::{FoundSecret, NO_CREDENTIALS, SecretResolver};
use super::shape::{SettingShape, nearest_choice, nearest_key};

/// The longest duration: a century, which can be added to any clock.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The prefix of environment variables that set a key.
const PREFIX: &str = "DAOYOU_";

/// Collects the settings from file and environment.
pub(super) struct ConfigReader<'a> {
    secrets: SecretResolver<'a>,
    /// The valid values.
    pub values: Map<String, Value>,
    /// The origin of each value and table, by key path.
    pub origins: BTreeMap<String, SettingOrigin>,
    pub faults: Vec<ConfigFault>,
    /// The faults of missing secrets.
    pub missing: Vec<ConfigFault>,
    pub warnings: Vec<String>,
    /// The secrets that were found, by key path.
    pub found: BTreeMap<String, FoundSecret>,
    /// The environment variables that secrets refer to, by key path.
    pub variables: BTreeMap<String, String>,
    /// True if the file itself contains a secret.
    pub literal_secret: bool,
    /// True if the file is not valid TOML, so that its meaning is unknown.
    pub broken: bool,
}

impl<'a> ConfigReader<'a> {
    pub fn new(secrets: SecretResolver<'a>) -> Self {
        Self {
            secrets,
            values: Map::new(),
            origins: BTreeMap::new(),
            faults: Vec::new(),
            missing: Vec::new(),
            warnings: Vec::new(),
            found: BTreeMap::new(),
            variables: BTreeMap::new(),
            literal_secret: false,
            broken: false,
        }
    }

    /// Reads the text of a file. Settings that a syntax error does not affect are still read.
    pub fn file(&mut self, file: &Path, text: &str) {
        let lines = LineIndex::new(text);
        let origin = |line| SettingOrigin::File { file: file.to_owned(), line: Some(line) };
        let at = |span: Range<usize>| origin(lines.of(span.start));
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut values = Map::new();
        self.table(SettingShape::config(), "", table.get_ref(), &at, &mut values);
        self.values = values;
        // The parser may report one mistake several times for the same line.
        let mut broken: BTreeMap<usize, ConfigFault> = BTreeMap::new();
        for error in errors {
            let span = error.span().unwrap_or(text.len()..text.len());
            let line = lines.of(span.start);
            let twice = error.message() == "duplicate key";
            let key = if twice { path_at(text, line, text.get(span).unwrap_or_default()) } else { String::new() };
            let fault = ConfigFault::new(origin(line), key, format!("not TOML: {}", error.message()), "");
            broken.entry(line).or_insert(fault);
        }
        // After a broken table header, the table of a key is unknown.
        let header =
            |line: &&usize| text.lines().nth(**line - 1).is_some_and(|text| text.trim_start().starts_with('['));
        let known = broken.keys().find(header).map(|line| origin(*line));
        let is_sure = |fault: &ConfigFault| {
            known.as_ref().is_none_or(|known| fault.origin < *known)
                && !broken.keys().any(|line| fault.origin == origin(*line))
        };
        self.faults.retain(is_sure);
        self.missing.retain(is_sure);
        self.broken = !broken.is_empty();
        self.faults.extend(broken.into_values());
    }

    /// Reads an environment variable if it sets a key: `DAOYOU_AGENT__MODEL` is `agent.model`. Lists and tables are written as TOML.
    pub fn variable(&mut self, name: &str, value: &str) {
        let Some((PREFIX, rest)) = name.split_at_checked(PREFIX.len()) else { return };
        let rest = match rest {
            // An empty variable counts as unset, as DAOYOU_HOME and DAOYOU_CONFIG do.
            "LOG" if value.is_empty() => return,
            "LOG" => "LOG__LEVEL",
            rest => rest,
        };
        if !rest.contains("__") && !is_first_level(rest) {
            let key = key_with_dots(SettingShape::config(), "", &rest.to_lowercase());
            let meant = |key: String| {
                let right = key.to_uppercase().replace('.', "__");
                format!("{name} sets nothing: {key} is set by {PREFIX}{right}, with two underscores")
            };
            return self.warnings.extend(key.map(meant));
        }
        let origin = SettingOrigin::Env(name.to_owned());
        let (path, shape) = match self.find(rest, &origin) {
            Ok(found) => found,
            Err(fault) => return self.faults.push(fault),
        };
        let key = path.iter().fold(String::new(), |key, name| join_key(&key, name));
        let at = |_: Range<usize>| origin.clone();
        let read = match shape {
            _ if is_toml(shape, value) => {
                // The value replaces that of the file.
                self.origins.retain(|known, _| !inside(known, &key));
                self.faults.retain(|fault| !inside(&fault.key, &key));
                self.missing.retain(|fault| !inside(&fault.key, &key));
                self.variables.retain(|known, _| !inside(known, &key));
                match DeValue::parse(value.trim()) {
                    Ok(written) => self.value(shape, &key, &written, &at),
                    Err(error) => self.wrong(origin.clone(), &key, format!("not TOML: {}", error.message()), shape),
                }
            }
            SettingShape::Table(..) | SettingShape::Map(_) => {
                let wrong = format!("{key} is a table; name one of its keys, after {name}__");
                return self.faults.push(ConfigFault::new(origin, key, wrong, shape.allowed()));
            }
            SettingShape::Bool | SettingShape::Int { .. } | SettingShape::Float { .. } => {
                match DeValue::parse(value.trim()) {
                    Ok(written) => self.value(shape, &key, &written, &at),
                    Err(_) => {
                        let wrong = format!("{} is not a valid value", quoted(value));
                        self.wrong(origin.clone(), &key, wrong, shape)
                    }
                }
            }
            SettingShape::List(_) | SettingShape::OneOrMany(_) => {
                let items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
                let list = items.map(|item| Spanned::new(0..0, DeValue::String(item.into()))).collect();
                self.value(shape, &key, &Spanned::new(0..0, DeValue::Array(list)), &at)
            }
            _ => self.value(shape, &key, &Spanned::new(0..0, DeValue::String(value.into())), &at),
        };
        if let Some(read) = read {
            insert(&mut self.values, &path, read);
            self.origins.insert(key, origin);
        }
    }

    /// Returns the key that a variable sets, and its shape. `name` is without the prefix. A name that the user chose is spelled as
    /// in the file if they differ only in case or in `-` and `_`; otherwise it is lower case, and the variable is the origin of
    /// the table that it creates.
    fn find(
        &mut self,
        name: &str,
        origin: &SettingOrigin,
    ) -> Result<(Vec<String>, &'static SettingShape), ConfigFault> {
        let mut shape = SettingShape::config();
        let mut values = Some(&self.values);
        let mut path: Vec<String> = Vec::new();
        for part in name.split("__") {
            let part = part.to_lowercase();
            let key = path.iter().fold(String::new(), |key, name| join_key(&key, name));
            let (part, inner) = match shape {
                SettingShape::Table(keys, _) => match keys.get(&part) {
                    Some(inner) => (part, inner),
                    None => return Err(unknown(origin.clone(), &key, &part, keys)),
                },
                SettingShape::Map(each) if !part.is_empty() => {
                    let same = |known: &&String| known.to_lowercase().replace('-', "_") == part.replace('-', "_");
                    let known = values.and_then(|values| values.keys().find(same).cloned());
                    let part = known.unwrap_or(part);
                    self.origins.entry(join_key(&key, &part)).or_insert_with(|| origin.clone());
                    (part, each.as_ref())
                }
                _ => {
                    let wrong = format!("{key:?} is not a table, so it has no key {part:?}");
                    return Err(ConfigFault::new(origin.clone(), join_key(&key, &part), wrong, ""));
                }
            };
            values = values.and_then(|values| values.get(&part)).and_then(Value::as_object);
            path.push(part);
            shape = inner;
        }
        Ok((path, shape))
    }

    fn table(
        &mut self,
        shape: &SettingShape,
        path: &str,
        written: &DeTable<'_>,
        at: &dyn Fn(Range<usize>) -> SettingOrigin,
        into: &mut Map<String, Value>,
    ) {
        for (name, value) in written {
            let key = join_key(path, name.get_ref());
            let inner = match shape {
                SettingShape::Table(keys, _) => match keys.get(name.get_ref().as_ref()) {
                    Some(inner) => inner,
                    None => {
                        self.faults.push(unknown(at(name.span()), path, name.get_ref(), keys));
                        continue;
                    }
                },
                SettingShape::Map(each) => {
                    if let (SettingShape::Table(keys, _), false) = (each.as_ref(), value.get_ref().is_table())
                        && keys.contains_key(name.get_ref().as_ref())
                    {
                        let allowed = format!("the key in a table with a name of your choice: [{path}.NAME]");
                        self.faults.push(ConfigFault::new(
                            at(name.span()),
                            key,
                            "a name is missing before the key",
                            allowed,
                        ));
                        continue;
                    }
                    each
                }
                _ => continue,
            };
            if let Some(read) = self.value(inner, &key, value, at) {
                self.origins.insert(key, at(name.span()));
                into.insert(name.get_ref().to_string(), read);
            }
        }
    }

    /// Returns the value if it is valid; otherwise adds a fault.
    fn value(
        &mut self,
        shape: &SettingShape,
        key: &str,
        written: &Spanned<DeValue<'_>>,
        at: &dyn Fn(Range<usize>) -> SettingOrigin,
    ) -> Option<Value> {
        let origin = at(written.span());
        match (shape, written.get_ref()) {
            (SettingShape::Table(..) | SettingShape::Map(_), DeValue::Table(inner)) => {
                let mut values = Map::new();
                self.table(shape, key, inner, at, &mut values);
                Some(Value::Object(values))
            }
            (SettingShape::OneOrMany(item), DeValue::String(text)) => self.text(item, key, text, origin),
            (SettingShape::List(item) | SettingShape::OneOrMany(item), DeValue::Array(list)) => {
                let each = list.iter().enumerate().map(|(index, one)| {
                    let key = format!("{key}[{index}]");
                    if one.get_ref().is_table() {
                        self.origins.insert(key.clone(), at(one.span()));
                    }
                    self.value(item, &key, one, at)
                });
                let read: Vec<_> = each.collect();
                read.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
            }
            (SettingShape::Bool, DeValue::Boolean(yes)) => Some(Value::Bool(*yes)),
            (SettingShape::Int { min, max }, DeValue::Integer(number)) => {
                let read = i128::from_str_radix(number.as_str(), number.radix()).ok();
                match read.filter(|read| (min..=max).contains(&read)).and_then(|read| i64::try_from(read).ok()) {
                    Some(read) => Some(Value::from(read)),
                    None => self.wrong(origin, key, format!("{number} is out of range"), shape),
                }
            }
            (SettingShape::Float { min, max }, DeValue::Integer(_) | DeValue::Float(_)) => {
                let read = match written.get_ref() {
                    DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n as f64),
                    DeValue::Float(n) => n.as_str().parse().ok(),
                    _ => None,
                };
                match read.filter(|read: &f64| read.is_finite() && (min..=max).contains(&read)) {
                    Some(read) => Some(Value::from(read)),
                    None => self.wrong(origin, key, "the number is out of range".to_owned(), shape),
                }
            }
            (_, DeValue::String(text)) => self.text(shape, key, text, origin),
            (_, other) => self.wrong(origin, key, format!("the value is {}", kind(other)), shape),
        }
    }

    /// Returns the value of a key that is written as a string.
    fn text(&mut self, shape: &SettingShape, key: &str, text: &str, origin: SettingOrigin) -> Option<Value> {
        match shape {
            SettingShape::Text => Some(Value::from(text)),
            SettingShape::Choice(names) if names.iter().any(|name| name == text) => Some(Value::from(text)),
            SettingShape::Choice(names) => {
                let near = nearest_choice(names, text)
                    .map_or(String::new(), |near| format!("; the nearest known is {near:?}"));
                self.wrong(origin, key, format!("{} is not known{near}", quoted(text)), shape)
            }
            SettingShape::Duration => match text.parse::<HumanDuration>() {
                Ok(span) if span.0 <= LONGEST => Some(Value::from(text)),
                Ok(_) => self.wrong(origin, key, format!("{} is longer than a century", quoted(text)), shape),
                Err(_) => self.wrong(origin, key, format!("{} is not a duration", quoted(text)), shape),
            },
            SettingShape::Size => match text.parse::<ByteSize>() {
                Ok(_) => Some(Value::from(text)),
                Err(_) => self.wrong(origin, key, format!("{} is not a size", quoted(text)), shape),
            },
            SettingShape::Rate => match text.parse::<Rate>() {
                Ok(_) => Some(Value::from(text)),
                Err(wrong) => self.wrong(origin, key, wrong, shape),
            },
            SettingShape::Secret => self.secret(shape, key, text, origin),
            _ => self.wrong(origin, key, "the value is a text".to_owned(), shape),
        }
    }

    /// Returns the secret that a text is or refers to.
    fn secret(&mut self, shape: &SettingShape, key: &str, text: &str, origin: SettingOrigin) -> Option<Value> {
        match text.strip_prefix("env:") {
            Some(name) => drop(self.variables.insert(key.to_owned(), name.to_owned())),
            None => drop(self.variables.remove(key)),
        }
        match self.secrets.resolve(text) {
            Ok((found, warning)) => {
                self.literal_secret |= found.is_literal && matches!(origin, SettingOrigin::File { .. });
                self.warnings.extend(warning.map(|warning| format!("{origin}: {key}: {warning}")));
                let value = Value::from(found.value.expose());
                self.found.insert(key.to_owned(), found);
                Some(value)
            }
            Err(wrong) if SecretResolver::is_elsewhere(text) => {
                // Another form would not help a credential that the service can read.
                let allowed = if wrong == NO_CREDENTIALS { String::new() } else { shape.allowed() };
                self.missing.push(ConfigFault::new(origin, key, wrong, allowed));
                None
            }
            Err(wrong) => self.wrong(origin, key, wrong, shape),
        }
    }

    fn wrong(&mut self, origin: SettingOrigin, key: &str, wrong: String, shape: &SettingShape) -> Option<Value> {
        self.faults.push(ConfigFault::new(origin, key, wrong, shape.allowed()));
        None
    }
}

fn unknown(origin: SettingOrigin, path: &str, name: &str, keys: &BTreeMap<String, SettingShape>) -> ConfigFault {
    let near = nearest_key(SettingShape::config(), path, keys, name);
    let near = near.map_or(String::new(), |near| format!("; the nearest known key is {near}"));
    ConfigFault::new(
        origin,
        join_key(path, name),
        format!("unknown key{near}"),
        keys.keys().cloned().collect::<Vec<_>>().join(", "),
    )
}

/// Returns true if a variable is named after a key of the first level. `name` is without the prefix.
fn is_first_level(name: &str) -> bool {
    matches!(SettingShape::config(), SettingShape::Table(keys, _) if keys.contains_key(&name.to_lowercase()))
}

/// Returns true if the value of a variable is a list or a table in TOML, as the key expects.
fn is_toml(shape: &SettingShape, value: &str) -> bool {
    match shape {
        SettingShape::Table(..) | SettingShape::Map(_) => value.trim_start().starts_with('{'),
        SettingShape::List(_) | SettingShape::OneOrMany(_) => value.trim_start().starts_with('['),
        _ => false,
    }
}

/// Returns the path of the key that equals `name` if its dots are replaced by underscores.
fn key_with_dots(shape: &SettingShape, path: &str, name: &str) -> Option<String> {
    let SettingShape::Table(keys, _) = shape else {
        return (path.replace('.', "_") == name).then(|| path.to_owned());
    };
    keys.iter().find_map(|(key, inner)| key_with_dots(inner, &join_key(path, key), name))
}

/// Returns the path of the key on `line`; the parser reports only the last part of it.
fn path_at(text: &str, line: usize, key: &str) -> String {
    let head = |line: &str| Some(line.trim().strip_prefix('[')?.split(']').next()?.trim().to_owned());
    let written: Vec<&str> = text.lines().take(line).collect();
    match written.split_last() {
        Some((last, _)) if head(last).is_some() => head(last).unwrap_or_default(),
        Some((_, before)) => {
            let table = before.iter().rev().find_map(|line| head(line));
            table.map_or(key.to_owned(), |table| format!("{table}.{key}"))
        }
        None => key.to_owned(),
    }
}

/// Inserts `value` at `path`, and creates the tables in between.
fn insert(values: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            values.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let table = values.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(table) = table {
                insert(table, rest, value);
            }
        }
    }
}

/// Returns the name of a value's TOML type.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(true) => "true",
        DeValue::Boolean(false) => "false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The ends of a text's lines.
struct LineIndex(Vec<usize>);

impl LineIndex {
    fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// Returns the line of a position, counted from 1.
    fn of(&self, position: usize) -> usize {
        self.0.partition_point(|end| *end < position) + 1
    }
}
