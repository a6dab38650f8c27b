//! The open tool calls of a turn, and short forms of arguments and results.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::layout::cut;
use super::spinner::span;
use super::texts::TerminalTexts;
use crate::clean::{clean, clean_line};
use crate::text::fill;

/// The maximum number of columns for a call's arguments.
const MAX_ARGUMENT_COLUMNS: usize = 100;
/// The maximum number of lines of a result that are shown.
const MAX_RESULT_LINES: usize = 3;
/// Arguments that contain whole texts; they are shown last.
const LONG_ARGUMENTS: [&str; 5] = ["content", "new_text", "old_text", "patch", "prompt"];

/// A tool call, shown on one row however often it is reported.
pub(super) struct DisplayedCall {
    pub id: String,
    /// `name(arguments)`; `name(…)` until the arguments are complete.
    pub line: String,
    pub began: Instant,
    /// The arguments are complete.
    is_complete: bool,
    /// The call was printed on a screen without cursor movement.
    is_drawn: bool,
}

/// The open calls, in the order of their first report.
#[derive(Default)]
pub(super) struct OpenCalls(Vec<DisplayedCall>);

/// Formats a call as `name(arguments)`.
pub(super) fn line(name: &str, arguments: Option<&Value>) -> String {
    let brief = arguments.map(|arguments| cut(&clean(&brief(arguments)), MAX_ARGUMENT_COLUMNS));
    format!("{}({})", clean_line(name), brief.as_deref().unwrap_or("…"))
}

impl OpenCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a report of a call, the first or a later one.
    pub(super) fn note(&mut self, id: &str, line: String, is_complete: bool) {
        match self.0.iter_mut().find(|call| call.id == id) {
            Some(call) if call.is_complete && !is_complete => {}
            // A second report of a complete call means that the call starts now.
            Some(call) if call.is_complete => call.began = Instant::now(),
            Some(call) => {
                call.line = line;
                call.is_complete = is_complete;
            }
            None => {
                let (id, began) = (id.to_owned(), Instant::now());
                self.0.push(DisplayedCall { id, line, began, is_complete, is_drawn: false });
            }
        }
    }

    /// Returns the oldest call, and the number of others. If calls run one at a time, the oldest is the running one.
    pub(super) fn oldest(&self) -> Option<(&DisplayedCall, usize)> {
        self.0.first().map(|call| (call, self.0.len() - 1))
    }

    /// Returns the next call to print on a screen without cursor movement. Calls are printed one at a time, so that a
    /// result usually follows right below its call.
    pub(super) fn next_to_draw(&mut self) -> Option<&DisplayedCall> {
        if self.0.iter().any(|call| call.is_drawn) {
            return None;
        }
        let call = self.0.iter_mut().find(|call| call.is_complete)?;
        call.is_drawn = true;
        Some(call)
    }

    /// Removes a call that has its result.
    pub(super) fn end(&mut self, id: &str) -> Option<DisplayedCall> {
        let at = self.0.iter().position(|call| call.id == id)?;
        Some(self.0.remove(at))
    }

    /// Removes incomplete calls after their response was restarted.
    pub(super) fn forget_incomplete(&mut self) {
        self.0.retain(|call| call.is_complete);
    }

    /// Removes and returns all calls.
    pub(super) fn take(&mut self) -> Vec<DisplayedCall> {
        std::mem::take(&mut self.0)
    }
}

/// Formats arguments as `key=value, …`.
fn brief(arguments: &Value) -> String {
    match arguments {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            // The path says more than the text, which may fill the row.
            fields.sort_by_key(|(key, _)| (key.as_str() != "path", LONG_ARGUMENTS.contains(&key.as_str())));
            fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
        }
        // The arguments are not JSON but the model's raw text.
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the first lines of a result, and the number of further lines.
pub(super) fn fold(text: &str, columns: usize, texts: &TerminalTexts) -> Vec<String> {
    let room = columns.saturating_sub(4).max(4);
    let mut lines = text.trim().lines();
    let mut folded =
        vec![format!("  └ {}", lines.next().map_or_else(|| cut(texts.no_output, room), |line| cut(line, room)))];
    folded.extend(lines.by_ref().take(MAX_RESULT_LINES - 1).map(|line| format!("    {}", cut(line, room))));
    let more = lines.count();
    if more > 0 {
        let text = if more == 1 { texts.one_more_line } else { texts.more_lines };
        folded.push(format!("    {}", cut(&fill(text, &[&more.to_string()]), room)));
    }
    folded
}

/// Formats whole seconds; returns an empty text in the first second.
pub(super) fn whole_seconds(elapsed: Duration) -> String {
    if elapsed.as_secs() == 0 { String::new() } else { span(Duration::from_secs(elapsed.as_secs())).replace(".0", "") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_path_is_shown_before_the_text() {
        for (arguments, expected) in [
            (json!({"content": "hi", "path": "a.txt"}), r#"path="a.txt", content="hi""#),
            (
                json!({"new_text": "b", "old_text": "a", "path": "x", "replace_all": true}),
                r#"path="x", replace_all=true, new_text="b", old_text="a""#,
            ),
            (json!({"command": "ls", "timeout": 5}), r#"command="ls", timeout=5"#),
            (json!("{\"path\": "), r#"{"path": "#),
        ] {
            assert_eq!(brief(&arguments), expected);
        }
    }

    #[test]
    fn short_times_are_left_out() {
        for (ms, words) in [(900, ""), (1_900, "1s"), (61_000, "1m01s")] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), words);
        }
    }
}
