//! Recorded outputs of the program. Such outputs must not change without intent, so they are compared byte for byte with a
//! file of `tests/data/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::{Value, json};

use super::Gateway;

/// The environment variable that replaces recorded files with the current output.
const RECORD: &str = "DAOYOU_RECORD";

/// Compares `text` with the recorded file `name`. With `DAOYOU_RECORD=1` it writes that file instead.
pub fn assert_recorded(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    if std::env::var_os(RECORD).is_some_and(|value| value == "1") {
        std::fs::create_dir_all(file.parent().expect("a folder of recorded files")).expect("the folder can be made");
        std::fs::write(&file, text).expect("the recorded file can be written");
        return;
    }
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    if recorded != text {
        let now = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name.replace('/', "-"));
        std::fs::write(&now, text).expect("the folder of temporary files can be written");
        panic!(
            "{} differs from what the program does now ({}):\n{}\nIf the change is intended, record it anew with \
             {RECORD}=1 and review the difference.",
            file.display(),
            now.display(),
            first_difference(&recorded, text)
        );
    }
}

/// Returns the first line that differs, in both texts.
fn first_difference(recorded: &str, now: &str) -> String {
    let (mut old, mut new) = (recorded.lines(), now.lines());
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => break,
            (old, new) if old == new => {}
            (old, new) => {
                return format!("line {number}\n- {}\n+ {}", old.unwrap_or("(end)"), new.unwrap_or("(end)"));
            }
        }
    }
    "the ends of lines differ".to_owned()
}

/// Replaces values that differ between runs with stable placeholders.
pub struct Placeholders {
    literals: Vec<(String, &'static str)>,
    patterns: Vec<(Regex, &'static str)>,
    id: Regex,
    ids: BTreeMap<String, usize>,
    /// The keys whose values differ between runs or machines, whatever their type. All keys that end in `_ms` or `Ms` count too.
    volatile: &'static [&'static str],
}

impl Placeholders {
    /// Creates placeholders for a home, its ports, ids and times. Values of the keys in `volatile` are replaced entirely.
    pub fn new(gateway: &Gateway, volatile: &'static [&'static str]) -> Self {
        let pattern = |text: &str| Regex::new(text).expect("a pattern of this file");
        let home = gateway.home();
        let folder = home.parent().expect("a home in a temporary folder");
        Self {
            literals: vec![
                (home.display().to_string(), "<home>"),
                (folder.display().to_string(), "<folder>"),
                (env!("CARGO_PKG_VERSION").to_owned(), "<version>"),
            ],
            patterns: vec![
                (pattern(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
                (pattern(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?(\[[^\]]+\])?"), "<time>"),
                (pattern(r"\d{4}-\d\d-\d\d"), "<date>"),
                (pattern(r"\b[0-9a-f]{64}\b"), "<hash>"),
                (pattern(r"\bfork:[0-9a-f]{8}\b"), "fork:<random>"),
            ],
            id: pattern(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
            ids: BTreeMap::new(),
            volatile,
        }
    }

    /// Replaces this literal too.
    pub fn literal(&mut self, literal: &str, placeholder: &'static str) {
        self.literals.push((literal.to_owned(), placeholder));
    }

    /// Replaces values in a text. Equal ids get the same placeholder.
    pub fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (literal, placeholder) in &self.literals {
            text = text.replace(literal, placeholder);
        }
        let ids = &mut self.ids;
        let replaced = self.id.replace_all(&text, |found: &regex::Captures<'_>| {
            let next = ids.len() + 1;
            format!("<id {}>", ids.entry(found[0].to_owned()).or_insert(next))
        });
        let mut text = replaced.into_owned();
        for (pattern, placeholder) in &self.patterns {
            text = pattern.replace_all(&text, *placeholder).into_owned();
        }
        text
    }

    /// Replaces values in all texts of a JSON value, and the values of volatile keys.
    pub fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.text(text)),
            Value::Array(values) => values.iter().map(|value| self.value(value)).collect(),
            Value::Object(fields) => {
                let replaced = fields.iter().map(|(key, value)| {
                    let is_time = key.ends_with("_ms") || key.ends_with("Ms");
                    let is_volatile = (is_time || self.volatile.contains(&key.as_str())) && !value.is_null();
                    let value = if is_volatile { json!(format!("<{}>", kind(value))) } else { self.value(value) };
                    (self.text(key), value)
                });
                Value::Object(replaced.collect())
            }
            _ => value.clone(),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the structure of a value: keys and types; an array becomes the distinct structures of its entries.
pub fn form(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), form(value))).collect(),
        Value::Array(values) => {
            let mut forms: Vec<Value> = values.iter().map(form).collect();
            forms.sort_by_key(ToString::to_string);
            forms.dedup();
            Value::Array(forms)
        }
        _ => json!(kind(value)),
    }
}
