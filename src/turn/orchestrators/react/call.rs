//! Parses the text after `Action:`.

use super::input::{JsonInput, arguments, read_json};
use crate::chat::{ToolCall, ToolSpec};

/// The longest name of a tool, in characters.
const NAME_CHARS: usize = 64;

/// A call that is being parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenCall {
    pub id: String,
    pub name: String,
    pub input: String,
    /// The answer was cut off within the input.
    pub is_cut: bool,
}

impl WrittenCall {
    /// Returns the call that a line after `Action:` names; its input follows.
    pub fn of_line(action: &str, tools: &[ToolSpec]) -> Self {
        let action = action.trim();
        let (word, _) = split(action);
        let name = match known(word, tools).or_else(|| mentioned(action, tools)) {
            Some(tool) => tool.name.clone(),
            None if is_name(word) => word.to_owned(),
            None => action.chars().take(NAME_CHARS).collect(),
        };
        Self { name, ..Self::default() }
    }

    /// Returns the call of an action without an input, if the action is a call.
    pub fn alone(action: &str, tools: &[ToolSpec]) -> Option<Self> {
        if let Some(call) = named(action, tools) {
            return Some(call);
        }
        if let JsonInput::Whole(object) = read_json(action) {
            let field = |names: &[&str]| names.iter().find_map(|name| object.get(name));
            let name = field(&["action", "name", "tool", "tool_name"])?.as_str()?;
            let input = field(&["action_input", "arguments", "parameters", "input", "args"]);
            let input = input.map(|input| input.as_str().map_or_else(|| input.to_string(), str::to_owned));
            return Some(Self { input: input.unwrap_or_default(), ..Self::of_line(name, tools) });
        }
        let (word, input) = split(action.trim());
        (is_name(word) && (input.is_empty() || input.starts_with(['(', '[', '{']))).then(|| Self {
            name: word.to_owned(),
            input: unwrapped(input).to_owned(),
            ..Self::default()
        })
    }

    /// Returns the call with its final arguments.
    pub fn finish(self, tools: &[ToolSpec]) -> ToolCall {
        let Self { id, name, input, is_cut } = self;
        let arguments = match read_json(&input) {
            // No tool accepts this as arguments, so a truncated command never runs.
            JsonInput::Cut | JsonInput::No if is_cut => format!("{} (cut off)", input.trim()),
            _ => arguments(&input, tools.iter().find(|tool| tool.name == name)),
        };
        ToolCall { id, name, arguments }
    }
}

/// Returns the call if the text after `Action:` names a known tool.
pub fn named(action: &str, tools: &[ToolSpec]) -> Option<WrittenCall> {
    let (word, input) = split(action.trim());
    let tool = known(word, tools).or_else(|| known(action.trim(), tools))?;
    let input = if input.starts_with(['(', '[', '{']) { unwrapped(input).to_owned() } else { String::new() };
    Some(WrittenCall { name: tool.name.clone(), input, ..WrittenCall::default() })
}

/// Splits an action into its name and the rest.
fn split(action: &str) -> (&str, &str) {
    let action = action.trim_start_matches(['`', '"', '\'', '*', '<', '[', ' ']);
    let end = action.find(|c: char| c.is_whitespace() || "`\"'*>()[]{}=:,;".contains(c)).unwrap_or(action.len());
    let (word, rest) = action.split_at(end);
    (word.trim_end_matches(['.', '。']), rest.trim_start_matches(['`', '"', '\'', '*', '>', ' ', ':', '=']).trim())
}

/// Removes the brackets of `("x")` and `[x]`.
fn unwrapped(input: &str) -> &str {
    for (open, close) in [('(', ')'), ('[', ']')] {
        if let Some(inside) = input.strip_prefix(open) {
            return inside.trim_end().strip_suffix(close).unwrap_or(inside).trim();
        }
    }
    input
}

fn known<'a>(name: &str, tools: &'a [ToolSpec]) -> Option<&'a ToolSpec> {
    let plain = |name: &str| name.to_lowercase().replace([' ', '-'], "_");
    tools.iter().find(|tool| tool.name == name).or_else(|| {
        let wanted = plain(name);
        tools.iter().find(|tool| plain(&tool.name) == wanted)
    })
}

/// Returns the tool that a sentence mentions, if it mentions exactly one.
fn mentioned<'a>(sentence: &str, tools: &'a [ToolSpec]) -> Option<&'a ToolSpec> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut found = tools.iter().filter(|tool| sentence.split(|c| !is_word(c)).any(|word| word == tool.name));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

fn is_name(word: &str) -> bool {
    (1..=NAME_CHARS).contains(&word.len()) && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}
