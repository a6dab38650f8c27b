//! The result of a call. Typed fields hold what other code reads; the journal and people see them among the metadata.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::allow_list::ToolAllowList;
use crate::chat::{ImageRef, NO_OUTPUT};
use crate::guard::Taint;
use crate::postprocess::ModelUse;

/// The keys of the typed fields in [`ToolResult::shown_metadata`].
const TAINT_KEY: &str = "taint";
const FOUND_KEY: &str = "found";
const ALLOW_KEY: &str = "allowed_tools";
const PRIVATE_KEY: &str = "private";
const SPILL_KEY: &str = "spill";
const SPILL_PART_KEY: &str = "spill_part";
const PLANNED_CALLS_KEY: &str = "calls";

/// The result of a call; a failure is a result as well. The model reads `content` on success, and `error` on failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ToolResult {
    pub success: bool,
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Facts for people and external programs. No code of daoyou reads them, and the keys of typed fields have no effect.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The names of the foreign content in the result (content from anyone but the owner).
    #[serde(skip)]
    pub taint: Taint,
    /// The tools that the call found. The conversation has them from now on.
    #[serde(skip)]
    pub found_tools: BTreeSet<String>,
    /// The allow-lists of the skills that the call loaded. The turn's later calls must conform to them.
    #[serde(skip)]
    pub allow_lists: Vec<ToolAllowList>,
    /// True if the result is for this turn alone, so that no spill file holds it.
    #[serde(skip)]
    pub is_private: bool,
    /// The file that holds the output.
    #[serde(skip)]
    pub spill: Option<StoredOutput>,
    /// The reports of a plan's calls.
    #[serde(skip)]
    pub planned_calls: Vec<PlannedCallReport>,
    /// Images that the call read, for models that accept images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// The tokens of the models that helped to prepare the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_use: Vec<ModelUse>,
    #[serde(default)]
    pub duration_ms: u64,
    /// True if the work ended early, and the same call may give more later. Such a result is not cached.
    #[serde(skip)]
    pub is_partial: bool,
    /// True if the failure may be temporary. The executor tries again if the tool allows it. The model does not see this flag.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// True if the call was refused, or may have taken effect although it failed. Nothing repeats such a call without a new
    /// request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// How many bytes of the result the filter kept from the model.
    #[serde(skip)]
    pub left_out_bytes: usize,
    /// The minimum wait before the next attempt, if the failed service named one.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

/// A file with the output of a call, which the model can read with `read_file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOutput {
    /// The path relative to the workspace.
    pub path: String,
    pub part: StoredPart,
}

/// The part of an output that a file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredPart {
    #[default]
    Whole,
    /// The first `bytes` of an output of `of` bytes.
    Start { bytes: u64, of: u64 },
    /// The start and the end, without the middle.
    Ends,
}

/// Says what the file holds, and where it is.
impl fmt::Display for StoredOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            StoredPart::Whole => write!(f, "the whole output: {}", self.path),
            StoredPart::Start { bytes, of } => write!(f, "the first {bytes} of {of} bytes: {}", self.path),
            StoredPart::Ends => write!(f, "the start and the end of the output: {}", self.path),
        }
    }
}

/// How a call of a plan ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCallReport {
    pub id: String,
    /// The name that the model used.
    pub tool: String,
    pub state: PlannedCallState,
    /// `None` for a call that did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// The state of a planned call when the plan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedCallState {
    Done,
    Waits,
    Failed,
    /// The call depends on a call that failed.
    Skipped,
    /// The plan was stopped before the call.
    NotRun,
}

impl ToolResult {
    pub fn ok(content: impl Into<String>) -> Self {
        Self { success: true, content: content.into(), ..Self::default() }
    }

    pub fn failed(error: impl Into<String>) -> Self {
        Self { success: false, error: Some(error.into()), ..Self::default() }
    }

    /// Returns the failure of a call that was refused, or may have taken effect. Nothing repeats it.
    pub fn failed_for_good(error: impl Into<String>) -> Self {
        Self { is_final: true, ..Self::failed(error) }
    }

    /// Returns a failure that may be temporary, such as a refused connection.
    pub fn failed_for_now(error: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::failed(error) }
    }

    /// Adds names of foreign content in the result.
    pub fn add_sources(&mut self, sources: Taint) {
        self.taint.extend(sources);
    }

    /// Formats the result for the model: a failure starts with `Error: `, followed by the output, if any.
    pub fn render(&self) -> String {
        match &self.error {
            Some(error) if self.content.is_empty() => format!("Error: {error}"),
            Some(error) => format!("Error: {error}\n{}", self.content),
            None if self.content.trim().is_empty() => NO_OUTPUT.to_owned(),
            None => self.content.clone(),
        }
    }

    /// Returns the metadata with the typed fields, as the journal and people see them.
    pub fn shown_metadata(&self) -> Map<String, Value> {
        let mut shown = self.metadata.clone();
        let part = self.spill.as_ref().map_or(StoredPart::Whole, |spill| spill.part);
        for (key, is_set, value) in [
            (TAINT_KEY, !self.taint.is_empty(), json!(self.taint)),
            (FOUND_KEY, !self.found_tools.is_empty(), json!(self.found_tools)),
            (ALLOW_KEY, !self.allow_lists.is_empty(), json!(self.allow_lists)),
            (PRIVATE_KEY, self.is_private, json!(true)),
            (SPILL_KEY, self.spill.is_some(), json!(self.spill.as_ref().map(|spill| &spill.path))),
            (SPILL_PART_KEY, part != StoredPart::Whole, json!(part)),
            (PLANNED_CALLS_KEY, !self.planned_calls.is_empty(), json!(self.planned_calls)),
        ] {
            shown.remove(key);
            if is_set {
                shown.insert(key.to_owned(), value);
            }
        }
        shown
    }
}

impl Serialize for ToolResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(&Self { metadata: self.shown_metadata(), ..self.clone() }, serializer)
    }
}

/// A field that cannot be read becomes empty. Of the taint, the names that are texts are kept.
impl<'de> Deserialize<'de> for ToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut result = Self::deserialize(deserializer)?;
        let mut take = |key: &str| result.metadata.remove(key).unwrap_or_default();
        let names = |value: Value| -> BTreeSet<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        (result.taint, result.found_tools) = (names(take(TAINT_KEY)), names(take(FOUND_KEY)));
        result.allow_lists = match take(ALLOW_KEY) {
            Value::Null => Vec::new(),
            // An unreadable list allows nothing.
            lists => serde_json::from_value(lists).unwrap_or_else(|_| vec![ToolAllowList::default()]),
        };
        result.is_private = take(PRIVATE_KEY) == true;
        let part = serde_json::from_value(take(SPILL_PART_KEY)).unwrap_or_default();
        result.spill = take(SPILL_KEY).as_str().map(|path| StoredOutput { path: path.to_owned(), part });
        result.planned_calls = serde_json::from_value(take(PLANNED_CALLS_KEY)).unwrap_or_default();
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_keeps_the_form_of_earlier_versions() {
        let row = r#"{"success":true,"content":"x","metadata":{"calls":[{"duration_ms":7,"id":"a","state":"done","tool":"exec"},{"id":"b","state":"not_run","tool":"exec"}],"exit_code":0,"found":["cron"],"private":true,"spill":"tool-results/1.txt","taint":["web:https://example.org/"]},"duration_ms":5}"#;
        let read: ToolResult = serde_json::from_str(row).unwrap();
        let call = |id: &str, state, duration_ms| PlannedCallReport {
            id: id.to_owned(),
            tool: "exec".to_owned(),
            state,
            duration_ms,
        };
        let expected = ToolResult {
            metadata: Map::from_iter([("exit_code".to_owned(), json!(0))]),
            taint: ["web:https://example.org/".to_owned()].into(),
            found_tools: ["cron".to_owned()].into(),
            is_private: true,
            spill: Some(StoredOutput { path: "tool-results/1.txt".to_owned(), part: StoredPart::Whole }),
            planned_calls: vec![call("a", PlannedCallState::Done, Some(7)), call("b", PlannedCallState::NotRun, None)],
            duration_ms: 5,
            ..ToolResult::ok("x")
        };
        assert_eq!(read, expected);
        assert_eq!(serde_json::to_string(&read).unwrap(), row);
    }

    #[test]
    fn a_stored_output_says_which_part_it_is() {
        for (part, shown, metadata) in [
            (StoredPart::Whole, "the whole output: a/b.txt", json!({"spill": "a/b.txt"})),
            (
                StoredPart::Start { bytes: 10, of: 25 },
                "the first 10 of 25 bytes: a/b.txt",
                json!({"spill": "a/b.txt", "spill_part": {"start": {"bytes": 10, "of": 25}}}),
            ),
            (
                StoredPart::Ends,
                "the start and the end of the output: a/b.txt",
                json!({"spill": "a/b.txt", "spill_part": "ends"}),
            ),
        ] {
            let stored = StoredOutput { path: "a/b.txt".to_owned(), part };
            assert_eq!(stored.to_string(), shown);
            let result = ToolResult { spill: Some(stored), ..ToolResult::ok("x") };
            assert_eq!(Value::from(result.shown_metadata()), metadata);
            let row = serde_json::to_string(&result).unwrap();
            assert_eq!(serde_json::from_str::<ToolResult>(&row).unwrap(), result, "{row}");
        }
    }

    #[test]
    fn metadata_of_a_tool_set_no_typed_field() {
        let metadata = [("taint", json!([])), ("private", json!(true)), ("spill", json!("/x")), ("a", json!(1))];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        let mut result = ToolResult { metadata, ..ToolResult::ok("") };
        result.add_sources(["web_search:brave".to_owned()].into());
        assert_eq!(Value::from(result.shown_metadata()), json!({"taint": ["web_search:brave"], "a": 1}));
        for (metadata, taint) in [
            (json!({"taint": "x", "found": 1, "private": 1, "spill": 1, "calls": [{}]}), &[][..]),
            (json!({"taint": ["a", 1, null], "allowed_tools": null}), &["a"]),
        ] {
            let row = json!({"success": true, "content": "", "metadata": metadata});
            let read: ToolResult = serde_json::from_value(row).unwrap();
            let taint = taint.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(read, ToolResult { taint, ..ToolResult::ok("") }, "{metadata}");
        }
    }
}
