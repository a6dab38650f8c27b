//! The tool calls of a turn that have no result yet.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::layout::cut;
use super::spinner::span;
use super::texts::{TerminalTexts, fill};
use crate::clean::{clean, clean_line};

/// What is shown of a call's arguments, not what is kept.
const MAX_ARGUMENT_COLUMNS: usize = 100;
/// What is shown of a result, not what is kept.
const MAX_RESULT_LINES: usize = 3;
/// Arguments that hold whole texts; they come last.
const LONG_ARGUMENTS: [&str; 5] = ["content", "new_text", "old_text", "patch", "prompt"];

/// One call, on one row however often it is told of.
pub(super) struct OpenCall {
    pub id: String,
    /// `name(arguments)`; `name(…)` while they arrive.
    pub line: String,
    pub began: Instant,
    /// Its arguments are all there.
    is_complete: bool,
    /// It stands on a screen where nothing can be drawn over.
    is_drawn: bool,
}

/// The open calls, in the order in which they were first seen.
#[derive(Default)]
pub(super) struct OpenCalls(Vec<OpenCall>);

/// `name(arguments)`.
pub(super) fn line(name: &str, arguments: Option<&Value>) -> String {
    let brief = arguments.map(|arguments| cut(&clean(&brief(arguments)), MAX_ARGUMENT_COLUMNS));
    format!("{}({})", clean_line(name), brief.as_deref().unwrap_or("…"))
}

impl OpenCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A call is told of for the first time, or again.
    pub(super) fn note(&mut self, id: &str, line: String, is_complete: bool) {
        match self.0.iter_mut().find(|call| call.id == id) {
            Some(call) if call.is_complete && !is_complete => {}
            // Told of again: it begins to run now.
            Some(call) if call.is_complete => call.began = Instant::now(),
            Some(call) => {
                call.line = line;
                call.is_complete = is_complete;
            }
            None => {
                let (id, began) = (id.to_owned(), Instant::now());
                self.0.push(OpenCall { id, line, began, is_complete, is_drawn: false });
            }
        }
    }

    /// The oldest, which is the one that runs where they run one by one, and how many there are beside it.
    pub(super) fn oldest(&self) -> Option<(&OpenCall, usize)> {
        self.0.first().map(|call| (call, self.0.len() - 1))
    }

    /// The call to put on a screen where nothing can be drawn over: one at a time, so that its result mostly comes
    /// right below it.
    pub(super) fn next_to_draw(&mut self) -> Option<&OpenCall> {
        if self.0.iter().any(|call| call.is_drawn) {
            return None;
        }
        let call = self.0.iter_mut().find(|call| call.is_complete)?;
        call.is_drawn = true;
        Some(call)
    }

    /// A call has its result.
    pub(super) fn end(&mut self, id: &str) -> Option<OpenCall> {
        let at = self.0.iter().position(|call| call.id == id)?;
        Some(self.0.remove(at))
    }

    /// The response under way is void: calls whose arguments were still to come will not be made.
    pub(super) fn forget_incomplete(&mut self) {
        self.0.retain(|call| call.is_complete);
    }

    /// Takes out all that are left.
    pub(super) fn take(&mut self) -> Vec<OpenCall> {
        std::mem::take(&mut self.0)
    }
}

/// Arguments as `key=value, …`.
fn brief(arguments: &Value) -> String {
    match arguments {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            // What a call works on says more than the text that it writes there, which may fill the row.
            fields.sort_by_key(|(key, _)| (key.as_str() != "path", LONG_ARGUMENTS.contains(&key.as_str())));
            fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
        }
        // No JSON: as the model wrote it.
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The first lines of a result, and how many more there are.
pub(super) fn fold(text: &str, columns: usize, words: &TerminalTexts) -> Vec<String> {
    let room = columns.saturating_sub(4).max(4);
    let mut lines = text.trim().lines();
    let mut folded =
        vec![format!("  └ {}", lines.next().map_or_else(|| cut(words.no_output, room), |line| cut(line, room)))];
    folded.extend(lines.by_ref().take(MAX_RESULT_LINES - 1).map(|line| format!("    {}", cut(line, room))));
    match lines.count() {
        0 => {}
        more => folded
            .push(format!("    {}", cut(&fill(words.more_lines[usize::from(more > 1)], &[&more.to_string()]), room))),
    }
    folded
}

/// Nothing in the first second: what is quick needs no clock.
pub(super) fn whole_seconds(elapsed: Duration) -> String {
    if elapsed.as_secs() == 0 { String::new() } else { span(Duration::from_secs(elapsed.as_secs())).replace(".0", "") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_path_stands_before_the_text() {
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
