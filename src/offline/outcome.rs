//! What a tool gave, in words for the user.

use serde_json::Value;

use super::memory;
use super::phrases::{Phrases, fill};
use super::plan::{FIND, GREP};
use super::reminder::{self, CRON};
use super::rules::Intent;
use super::understand::Wish;
use crate::chat::{ToolCall, without_notes};

/// The most of a result that is passed on, in characters.
const MAX_CHARS: usize = 4_000;

/// What a tool result starts with when it failed, and what it is when there is nothing to tell; see
/// `ToolResult::render`.
const ERROR: &str = "Error: ";
const SILENT: &str = "(done, no output)";

/// Tells the result of one call. `wish` is the message's first, for its language and what it was after.
pub(super) fn tell(call: &ToolCall, result: &str, wish: &Wish) -> String {
    let phrases = wish.language.phrases();
    let result = without_notes(result);
    if let Some(error) = result.strip_prefix(ERROR) {
        let template = if error.starts_with("interrupted") { phrases.interrupted } else { phrases.failed };
        return fill(template, &[("tool", &call.name), ("error", &bounded(error, phrases))]);
    }
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    if call.name == CRON {
        return reminder::tell(&arguments, &bounded(result, phrases), phrases);
    }
    let recalled = (call.name == "recall").then(|| memory::recalled(result));
    if let Some(told) = (call.name == "remember").then(|| memory::remembered(result, phrases)).flatten() {
        return bounded(&told, phrases);
    }
    let (result, found_nothing) = match &recalled {
        Some(Some(lines)) => (lines.as_str(), false),
        Some(None) => ("", true),
        None => (result, false),
    };
    let command = argument("command");
    let path = Some(argument("path")).filter(|path| *path != ".").unwrap_or(phrases.workspace);
    let is_silent = found_nothing || result.trim().is_empty() || result == SILENT;
    let template = match (call.name.as_str(), is_silent) {
        ("list_dir", _) => phrases.list_dir,
        ("read_file", false) => phrases.read_file,
        ("read_file", true) => phrases.empty_file,
        ("write_file", _) => phrases.write_file,
        ("grep" | "glob", false) => phrases.found,
        ("grep" | "glob", true) => phrases.found_none,
        ("exec", false) if is_search(command) => phrases.found,
        ("exec", true) if is_search(command) => phrases.found_none,
        ("exec", false) => phrases.exec,
        ("exec", true) => phrases.exec_silent,
        ("message", _) => phrases.message,
        ("remember", _) => phrases.remember,
        ("recall", true) => phrases.recall_none,
        ("recall", false) if wish.intent == Intent::ForgetWhich => phrases.forget_which,
        ("recall", false) => phrases.recall,
        ("forget", _) => phrases.forget,
        (_, false) => phrases.other,
        (_, true) => phrases.other_silent,
    };
    let result = if result == SILENT { String::new() } else { bounded(result, phrases) };
    let values = [("tool", call.name.as_str()), ("path", path), ("command", command), ("result", &result)];
    fill(template, &values).trim_end().to_owned()
}

fn is_search(command: &str) -> bool {
    command.starts_with(GREP) || command.starts_with(FIND)
}

/// The head of a long text, and how much is left out.
fn bounded(text: &str, phrases: &Phrases) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => {
            let more = text[end..].chars().count().to_string();
            text[..end].to_owned() + &fill(phrases.more, &[("count", &more)])
        }
        None => text.to_owned(),
    }
}
