//! Reads written values against the shape they must have, and notes every fault on the way.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use daoyou_channels::settings::{ByteSize, Secret, Span};
use daoyou_channels::webhook::Rate;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::changes::fingerprint;
use super::fault::{Fault, Place, join, quoted};
use super::secrets::Secrets;
use super::shape::{Shape, alike, nearest_key};

/// No setting needs a longer time, and a century can be added to any clock.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// What environment variables that stand for a key begin with.
const PREFIX: &str = "DAOYOU_";

/// Gathers what file and environment say.
pub(super) struct Reader<'a> {
    secrets: Secrets<'a>,
    /// The values, as far as they are right.
    pub values: Map<String, Value>,
    /// Where each value and table was written, by the path of its key.
    pub places: BTreeMap<String, Place>,
    pub faults: Vec<Fault>,
    /// Secrets that are not where the file or a variable says.
    pub missing: Vec<Fault>,
    pub warnings: Vec<String>,
    /// A fingerprint of each secret, by the path of its key.
    pub prints: BTreeMap<String, u64>,
    /// Each secret that was found, by the path of its key.
    pub found: BTreeMap<String, Secret>,
    /// Some secret stands in the file itself.
    pub literal_secret: bool,
    /// The file is not TOML, so what it means is not known.
    pub broken: bool,
}

impl<'a> Reader<'a> {
    pub fn new(secrets: Secrets<'a>) -> Self {
        Self {
            secrets,
            values: Map::new(),
            places: BTreeMap::new(),
            faults: Vec::new(),
            missing: Vec::new(),
            warnings: Vec::new(),
            prints: BTreeMap::new(),
            found: BTreeMap::new(),
            literal_secret: false,
            broken: false,
        }
    }

    /// Reads the text of a file. Where its syntax is broken, what does not depend on that is still read.
    pub fn file(&mut self, file: &Path, text: &str) {
        let lines = Lines::new(text);
        let place = |line| Place::File { file: file.to_owned(), line: Some(line) };
        let at = |span: Range<usize>| place(lines.of(span.start));
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut values = Map::new();
        self.table(Shape::config(), "", table.get_ref(), &at, &mut values);
        self.values = values;
        // One mistake makes the parser complain more than once about its line.
        let mut broken: BTreeMap<usize, Fault> = BTreeMap::new();
        for error in errors {
            let span = error.span().unwrap_or(text.len()..text.len());
            let line = lines.of(span.start);
            let twice = error.message() == "duplicate key";
            let key = if twice { path_at(text, line, text.get(span).unwrap_or_default()) } else { String::new() };
            let fault = Fault::new(place(line), key, format!("not TOML: {}", error.message()), "");
            broken.entry(line).or_insert(fault);
        }
        // Below the broken head of a table it is not known where keys belong.
        let header =
            |line: &&usize| text.lines().nth(**line - 1).is_some_and(|text| text.trim_start().starts_with('['));
        let known = broken.keys().find(header).map(|line| place(*line));
        let is_sure = |fault: &Fault| {
            known.as_ref().is_none_or(|known| fault.place < *known)
                && !broken.keys().any(|line| fault.place == place(*line))
        };
        self.faults.retain(is_sure);
        self.missing.retain(is_sure);
        self.broken = !broken.is_empty();
        self.faults.extend(broken.into_values());
    }

    /// Reads an environment variable, if it stands for a key: `DAOYOU_AGENT__MODEL` is `agent.model`.
    pub fn variable(&mut self, name: &str, value: &str) {
        let Some((PREFIX, rest)) = name.split_at_checked(PREFIX.len()) else { return };
        let rest = if rest == "LOG" { "LOG__LEVEL" } else { rest };
        if !rest.contains("__") {
            let key = key_with_dots(Shape::config(), "", &rest.to_lowercase());
            let meant = |key: String| {
                let right = key.to_uppercase().replace('.', "__");
                format!("{name} sets nothing: {key} is set by {PREFIX}{right}, with two underscores")
            };
            return self.warnings.extend(key.map(meant));
        }
        let place = Place::Env(name.to_owned());
        let (path, shape) = match self.find(rest, &place) {
            Ok(found) => found,
            Err(fault) => return self.faults.push(fault),
        };
        let key = path.iter().fold(String::new(), |key, name| join(&key, name));
        let at = |_: Range<usize>| place.clone();
        let read = match shape {
            Shape::Table(..) | Shape::Map(_) => {
                let wrong = format!("{key} is a table; name one of its keys, after {name}__");
                return self.faults.push(Fault::new(place, key, wrong, shape.allowed()));
            }
            Shape::Bool | Shape::Int { .. } | Shape::Float { .. } => match DeValue::parse(value.trim()) {
                Ok(written) => self.value(shape, &key, &written, &at),
                Err(_) => self.wrong(place.clone(), &key, format!("{} is no such value", quoted(value)), shape),
            },
            Shape::List(_) | Shape::OneOrMany(_) if value.trim_start().starts_with('[') => {
                match DeValue::parse(value.trim()) {
                    Ok(written) => self.value(shape, &key, &written, &at),
                    Err(error) => self.wrong(place.clone(), &key, format!("not TOML: {}", error.message()), shape),
                }
            }
            Shape::List(_) | Shape::OneOrMany(_) => {
                let items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
                let list = items.map(|item| Spanned::new(0..0, DeValue::String(item.into()))).collect();
                self.value(shape, &key, &Spanned::new(0..0, DeValue::Array(list)), &at)
            }
            _ => self.value(shape, &key, &Spanned::new(0..0, DeValue::String(value.into())), &at),
        };
        if let Some(read) = read {
            insert(&mut self.values, &path, read);
            self.places.insert(key, place);
        }
    }

    /// The key that a variable stands for, and its shape. `name` is without its prefix. Names of the user's choice are
    /// those of the file when they differ only in case or in `-` and `_`, else lower case.
    fn find(&self, name: &str, place: &Place) -> Result<(Vec<String>, &'static Shape), Fault> {
        let mut shape = Shape::config();
        let mut values = Some(&self.values);
        let mut path: Vec<String> = Vec::new();
        for part in name.split("__") {
            let part = part.to_lowercase();
            let key = path.iter().fold(String::new(), |key, name| join(&key, name));
            let (part, inner) = match shape {
                Shape::Table(keys, _) => match keys.get(&part) {
                    Some(inner) => (part, inner),
                    None => return Err(unknown(place.clone(), &key, &part, keys)),
                },
                Shape::Map(each) if !part.is_empty() => {
                    let same = |known: &&String| known.to_lowercase().replace('-', "_") == part.replace('-', "_");
                    let known = values.and_then(|values| values.keys().find(same).cloned());
                    (known.unwrap_or(part), each.as_ref())
                }
                _ => {
                    let wrong = format!("{key:?} is no table, so it has no key {part:?}");
                    return Err(Fault::new(place.clone(), join(&key, &part), wrong, ""));
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
        shape: &Shape,
        path: &str,
        written: &DeTable<'_>,
        at: &dyn Fn(Range<usize>) -> Place,
        into: &mut Map<String, Value>,
    ) {
        for (name, value) in written {
            let key = join(path, name.get_ref());
            let inner = match shape {
                Shape::Table(keys, _) => match keys.get(name.get_ref().as_ref()) {
                    Some(inner) => inner,
                    None => {
                        self.faults.push(unknown(at(name.span()), path, name.get_ref(), keys));
                        continue;
                    }
                },
                Shape::Map(each) => {
                    if let (Shape::Table(keys, _), false) = (each.as_ref(), value.get_ref().is_table())
                        && keys.contains_key(name.get_ref().as_ref())
                    {
                        let allowed = format!("the key in a table with a name of your choice: [{path}.NAME]");
                        self.faults.push(Fault::new(at(name.span()), key, "a name is missing before the key", allowed));
                        continue;
                    }
                    each
                }
                _ => continue,
            };
            if let Some(read) = self.value(inner, &key, value, at) {
                self.places.insert(key, at(name.span()));
                into.insert(name.get_ref().to_string(), read);
            }
        }
    }

    /// The value, when it is right; else a fault is noted.
    fn value(
        &mut self,
        shape: &Shape,
        key: &str,
        written: &Spanned<DeValue<'_>>,
        at: &dyn Fn(Range<usize>) -> Place,
    ) -> Option<Value> {
        let place = at(written.span());
        match (shape, written.get_ref()) {
            (Shape::Table(..) | Shape::Map(_), DeValue::Table(inner)) => {
                let mut values = Map::new();
                self.table(shape, key, inner, at, &mut values);
                Some(Value::Object(values))
            }
            (Shape::OneOrMany(item), DeValue::String(text)) => self.text(item, key, text, place),
            (Shape::List(item) | Shape::OneOrMany(item), DeValue::Array(list)) => {
                let each = list.iter().enumerate();
                let read: Vec<_> =
                    each.map(|(index, one)| self.value(item, &format!("{key}[{index}]"), one, at)).collect();
                read.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
            }
            (Shape::Bool, DeValue::Boolean(yes)) => Some(Value::Bool(*yes)),
            (Shape::Int { min, max }, DeValue::Integer(number)) => {
                let read = i128::from_str_radix(number.as_str(), number.radix()).ok();
                match read.filter(|read| (min..=max).contains(&read)).and_then(|read| i64::try_from(read).ok()) {
                    Some(read) => Some(Value::from(read)),
                    None => self.wrong(place, key, format!("{number} is out of range"), shape),
                }
            }
            (Shape::Float { min, max }, DeValue::Integer(_) | DeValue::Float(_)) => {
                let read = match written.get_ref() {
                    DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n as f64),
                    DeValue::Float(n) => n.as_str().parse().ok(),
                    _ => None,
                };
                match read.filter(|read: &f64| read.is_finite() && (min..=max).contains(&read)) {
                    Some(read) => Some(Value::from(read)),
                    None => self.wrong(place, key, "the number is out of range".to_owned(), shape),
                }
            }
            (_, DeValue::String(text)) => self.text(shape, key, text, place),
            (_, other) => self.wrong(place, key, format!("the value is {}", kind(other)), shape),
        }
    }

    /// The value of a key that is written as a text.
    fn text(&mut self, shape: &Shape, key: &str, text: &str, place: Place) -> Option<Value> {
        match shape {
            Shape::Text => Some(Value::from(text)),
            Shape::Choice(names) if names.iter().any(|name| name == text) => Some(Value::from(text)),
            Shape::Choice(names) => {
                let near = alike(names, text).map_or(String::new(), |near| format!("; the nearest known is {near:?}"));
                self.wrong(place, key, format!("{} is not known{near}", quoted(text)), shape)
            }
            Shape::Duration => match text.parse::<Span>() {
                Ok(span) if span.0 <= LONGEST => Some(Value::from(text)),
                Ok(_) => self.wrong(place, key, format!("{} is longer than a century", quoted(text)), shape),
                Err(_) => self.wrong(place, key, format!("{} is no duration", quoted(text)), shape),
            },
            Shape::Size => match text.parse::<ByteSize>() {
                Ok(_) => Some(Value::from(text)),
                Err(_) => self.wrong(place, key, format!("{} is no size", quoted(text)), shape),
            },
            Shape::Rate => match text.parse::<Rate>() {
                Ok(_) => Some(Value::from(text)),
                Err(wrong) => self.wrong(place, key, wrong, shape),
            },
            Shape::Secret => match self.secrets.resolve(text) {
                Ok(found) => {
                    self.literal_secret |= found.literal && matches!(place, Place::File { .. });
                    self.warnings.extend(found.warning.map(|warning| format!("{place}: {key}: {warning}")));
                    self.prints.insert(key.to_owned(), fingerprint(&found.value));
                    self.found.insert(key.to_owned(), Secret::new(found.value.as_str()));
                    Some(Value::from(found.value))
                }
                Err(wrong) if Secrets::is_elsewhere(text) => {
                    self.missing.push(Fault::new(place, key, wrong, shape.allowed()));
                    None
                }
                Err(wrong) => self.wrong(place, key, wrong, shape),
            },
            _ => self.wrong(place, key, "the value is a text".to_owned(), shape),
        }
    }

    fn wrong(&mut self, place: Place, key: &str, wrong: String, shape: &Shape) -> Option<Value> {
        self.faults.push(Fault::new(place, key, wrong, shape.allowed()));
        None
    }
}

fn unknown(place: Place, path: &str, name: &str, keys: &BTreeMap<String, Shape>) -> Fault {
    let near = nearest_key(Shape::config(), path, keys, name);
    let near = near.map_or(String::new(), |near| format!("; the nearest known key is {near}"));
    Fault::new(
        place,
        join(path, name),
        format!("unknown key{near}"),
        keys.keys().cloned().collect::<Vec<_>>().join(", "),
    )
}

/// The path of the key whose name, with underscores for points, is `name`.
fn key_with_dots(shape: &Shape, path: &str, name: &str) -> Option<String> {
    let Shape::Table(keys, _) = shape else {
        return (path.replace('.', "_") == name).then(|| path.to_owned());
    };
    keys.iter().find_map(|(key, inner)| key_with_dots(inner, &join(path, key), name))
}

/// The path of the key that is written on `line`, where the parser names its last part alone.
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

/// Puts `value` at `path`, making the tables on the way.
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

/// TOML's kinds of value, in words.
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

/// The lines of a text, to find the line of a position in it.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// Counted from 1.
    fn of(&self, position: usize) -> usize {
        self.0.partition_point(|end| *end < position) + 1
    }
}
