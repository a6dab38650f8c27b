//! Filters JSON: keeps the paths that fit the question. The output is valid JSON as well.

use std::borrow::Cow;

use indexmap::IndexMap;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::filter::{FilterOutput, FilterQuery, MIN_EVIDENCE, RawResult};
use super::lines::TextLines;

/// The depth below which values stay whole.
const MAX_DEPTH: usize = 64;
/// The maximum number of plain values of a JSON text that is filtered; one with more stays whole.
const MAX_VALUES: usize = 20_000;
/// The end of a path of keys that is compared, in bytes.
const PATH_BYTES: usize = 200;
/// The factor for the minimum share of keywords: a JSON value must hold more of them than a part of a text.
const FOR_VALUES: f64 = 1.7;
/// The number of plain entries above which a record keeps only those that fit.
const WIDE_RECORD: usize = 40;

/// A JSON value, from which parts can be removed.
#[derive(Serialize)]
#[serde(untagged)]
enum JsonValue<'a> {
    Object(IndexMap<String, JsonValue<'a>>),
    Array(Vec<JsonValue<'a>>),
    /// A plain value, or one that is too deep.
    Leaf(&'a RawValue),
}

impl<'a> JsonValue<'a> {
    fn parse(text: &'a str, depth: usize) -> Option<Self> {
        let text = text.trim();
        Some(match text.as_bytes().first()? {
            b'{' if depth < MAX_DEPTH => {
                let entries: IndexMap<String, &'a RawValue> = serde_json::from_str(text).ok()?;
                let parsed = entries.into_iter().map(|(key, value)| Some((key, Self::parse(value.get(), depth + 1)?)));
                Self::Object(parsed.collect::<Option<_>>()?)
            }
            b'[' if depth < MAX_DEPTH => {
                let items: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
                Self::Array(items.into_iter().map(|item| Self::parse(item.get(), depth + 1)).collect::<Option<_>>()?)
            }
            _ => Self::Leaf(serde_json::from_str(text).ok()?),
        })
    }

    fn leaves(&self) -> usize {
        match self {
            Self::Object(entries) => entries.values().map(Self::leaves).sum(),
            Self::Array(items) => items.iter().map(Self::leaves).sum(),
            Self::Leaf(_) => 1,
        }
    }

    /// Appends each plain value, with its path, as a text to `found`.
    fn texts(&self, path: &str, found: &mut Vec<String>) {
        match self {
            Self::Object(entries) => {
                for (key, value) in entries {
                    let path = format!("{path} {key}");
                    value.texts(&path[path.ceil_char_boundary(path.len().saturating_sub(PATH_BYTES))..], found);
                }
            }
            Self::Array(items) => items.iter().for_each(|item| item.texts(path, found)),
            Self::Leaf(text) => found.push(format!("{path} {text}")),
        }
    }

    /// Removes values that do not fit. `scores` are the scores of the leaves, in their order.
    fn prune(self, scores: &mut std::slice::Iter<'_, f64>, least: f64) -> Option<Self> {
        match self {
            Self::Leaf(text) => {
                let score = scores.next().copied().unwrap_or_default();
                (score >= least && score > 0.0).then_some(Self::Leaf(text))
            }
            Self::Array(items) => {
                let left: Vec<Self> = items.into_iter().filter_map(|item| item.prune(scores, least)).collect();
                (!left.is_empty()).then_some(Self::Array(left))
            }
            Self::Object(entries) => {
                let is_wide = entries.values().filter(|value| matches!(value, Self::Leaf(_))).count() > WIDE_RECORD;
                let mut rest: Vec<(usize, String, Self)> = Vec::new();
                let mut left: Vec<(usize, String, Self)> = Vec::new();
                let mut has_plain_match = false;
                for (at, (key, value)) in entries.into_iter().enumerate() {
                    if let Self::Leaf(text) = value {
                        let kept = Self::Leaf(text).prune(scores, least).is_some();
                        has_plain_match |= kept;
                        if kept { &mut left } else { &mut rest }.push((at, key, Self::Leaf(text)));
                    } else if let Some(value) = value.prune(scores, least) {
                        left.push((at, key, value));
                    }
                }
                if left.is_empty() {
                    return None;
                }
                // The plain values of a record stay together, since they say what its other values are about.
                if has_plain_match && !is_wide {
                    left.append(&mut rest);
                } else if !is_wide {
                    left.extend(rest.into_iter().filter(|(_, key, _)| NAMES.contains(&key.to_lowercase().as_str())));
                }
                left.sort_by_key(|(at, ..)| *at);
                Some(Self::Object(left.into_iter().map(|(_, key, value)| (key, value)).collect()))
            }
        }
    }
}

/// Keys that name a record.
const NAMES: &[&str] = &["name", "id", "title", "key", "path", "version"];

/// Returns true if a result is an object or an array of JSON.
pub fn is_json(raw: &RawResult<'_>) -> bool {
    let body = plain_body(raw.body_and_remarks().0);
    body.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(&body).is_ok()
}

/// Returns a text without the line numbers of `read_file`, if it may be JSON.
fn plain_body(body: &str) -> Cow<'_, str> {
    if body.trim_start().starts_with(['{', '[']) {
        return body.into();
    }
    let lines = TextLines::of(body);
    let is_data = lines.bodies.first().is_some_and(|line| line.trim_start().starts_with(['{', '[']));
    if lines.is_numbered && is_data { lines.bodies.join("\n").into() } else { body.into() }
}

/// Filters JSON. Returns `None` if the text is not JSON, or the question does not distinguish its values.
pub fn filter(raw: &RawResult<'_>, query: &FilterQuery) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let body = plain_body(body);
    if !body.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let value = JsonValue::parse(&body, 0)?;
    if matches!(value, JsonValue::Leaf(_)) {
        return None;
    }
    let original = value.leaves();
    if original > MAX_VALUES {
        return None;
    }
    let mut texts = Vec::with_capacity(original);
    value.texts("", &mut texts);
    let relevance = query.rate(texts);
    if !query.distinguishes(&relevance, MIN_EVIDENCE) {
        return None;
    }
    // The keywords of a record are spread over its values: one alone tells little.
    let least = (query.threshold * FOR_VALUES).min(1.0) * relevance.best;
    let pruned = value.prune(&mut relevance.scores.iter(), least)?;
    let kept = pruned.leaves();
    let is_pretty = body.trim_end().contains('\n');
    let text = if is_pretty { serde_json::to_string_pretty(&pruned) } else { serde_json::to_string(&pruned) };
    Some(FilterOutput::new(text.ok()?, "values", original, kept).with_remarks(&remarks))
}
