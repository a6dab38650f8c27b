//! Tools' arguments and results, and numbers, in few words.

use std::time::Duration;

use serde_json::Value;

use super::layout::cut;
use super::spinner::span;
use super::words::{Words, fill};

/// What is shown of a result, not what is kept.
const MAX_RESULT_LINES: usize = 3;

/// Arguments as `key=value, …`.
pub(super) fn brief(arguments: &Value) -> String {
    match arguments {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
        }
        // No JSON: as the model wrote it.
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The first lines of a result, and how many more there are.
pub(super) fn fold(text: &str, columns: usize, words: &Words) -> Vec<String> {
    let room = columns.saturating_sub(4).max(4);
    let mut lines = text.trim().lines();
    let mut folded =
        vec![format!("  └ {}", lines.next().map_or_else(|| cut(words.no_output, room), |line| cut(line, room)))];
    folded.extend(lines.by_ref().take(MAX_RESULT_LINES - 1).map(|line| format!("    {}", cut(line, room))));
    match lines.count() {
        0 => {}
        more => folded.push(format!("    {}", cut(&fill(words.more_lines, &[&more.to_string()]), room))),
    }
    folded
}

/// Nothing in the first second: what is quick needs no clock.
pub(super) fn whole_seconds(elapsed: Duration) -> String {
    if elapsed.as_secs() == 0 { String::new() } else { span(Duration::from_secs(elapsed.as_secs())).replace(".0", "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_are_left_out() {
        for (ms, words) in [(900, ""), (1_900, "1s"), (61_000, "1m01s")] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), words);
        }
    }
}
