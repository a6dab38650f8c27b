//! The line editor's helper: completes words, shows hints, and decides whether a message is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};
use std::borrow::Cow;

use super::host::CompletionNames;
use super::layout::TextStyle;
use crate::clean::is_display_control;

/// The commands and their arguments.
const COMMANDS: [(&str, &str); 26] = [
    ("/help", ""),
    ("/new", ""),
    ("/stop", ""),
    ("/status", ""),
    ("/model", " [NAME]"),
    ("/agent", " [NAME]"),
    ("/approve", " ID [session]"),
    ("/deny", " ID [REASON]"),
    ("/session", " [KEY]"),
    ("/cost", ""),
    ("/cron", ""),
    ("/checkpoint", " [NAME]"),
    ("/restore", " ID"),
    ("/memory", ""),
    ("/forget", " ID"),
    ("/history", " [COUNT]"),
    ("/add", " FILE"),
    ("/drop", " FILE"),
    ("/files", ""),
    ("/skills", ""),
    ("/mcp", " [NAME]"),
    ("/thinking", " [show|fold|hide]"),
    ("/tools", ""),
    ("/clear", ""),
    ("/exit", ""),
    ("/quit", ""),
];

/// The maximum number of completions offered.
const MAX_OFFERED: usize = 100;

/// The names for completion. The conversation keeps them up to date.
#[derive(Clone, Default)]
pub(super) struct CompletionSource(Arc<Mutex<CompletionLists>>);

#[derive(Default)]
struct CompletionLists {
    names: CompletionNames,
    files: Vec<String>,
}

impl CompletionSource {
    pub(super) fn set_names(&self, names: CompletionNames) {
        self.0.lock().names = names;
    }

    pub(super) fn set_files(&self, files: Vec<String>) {
        self.0.lock().files = files;
    }

    fn of_command(&self, command: &str) -> Vec<String> {
        let lists = self.0.lock();
        match command {
            "/session" => lists.names.sessions.clone(),
            "/model" => lists.names.models.clone(),
            "/drop" => lists.files.clone(),
            _ => Vec::new(),
        }
    }
}

/// The line editor's helper.
#[derive(Helper)]
pub(super) struct PromptHelper {
    known: CompletionSource,
    files: FilenameCompleter,
    in_colour: bool,
    /// True while the line is empty.
    pub is_blank: Arc<AtomicBool>,
}

impl PromptHelper {
    pub(super) fn new(known: CompletionSource, in_colour: bool) -> Self {
        Self { known, files: FilenameCompleter::new(), in_colour, is_blank: Arc::new(AtomicBool::new(true)) }
    }
}

impl Completer for PromptHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..pos];
        if !typed.starts_with('/') || typed.contains('\n') {
            return Ok((pos, Vec::new()));
        }
        match typed.split_once(' ') {
            None => Ok((0, commands(typed))),
            Some(("/add", _)) => self.files.complete_path(line, pos),
            Some((command, argument)) => {
                Ok((pos - argument.len(), matching_names(self.known.of_command(command), argument)))
            }
        }
    }
}

fn commands(typed: &str) -> Vec<Pair> {
    let offered = COMMANDS.iter().filter(|(name, _)| name.starts_with(typed));
    let pair = |(name, argument): &(&str, &str)| {
        let space = if argument.is_empty() { "" } else { " " };
        Pair { display: format!("{name}{argument}"), replacement: format!("{name}{space}") }
    };
    offered.map(pair).collect()
}

/// Completes names. Names may come from outside, so those with control characters are not offered.
fn matching_names(known: Vec<String>, typed: &str) -> Vec<Pair> {
    let fits = |name: &String| name.starts_with(typed) && !name.contains(is_display_control);
    let pair = |name: String| Pair { display: name.clone(), replacement: name };
    known.into_iter().filter(fits).take(MAX_OFFERED).map(pair).collect()
}

/// A hint of the rest of the command that is being typed.
pub(super) struct CommandHint {
    shown: String,
    /// The length of the part that the right arrow inserts.
    taken: usize,
}

impl Hint for CommandHint {
    fn display(&self) -> &str {
        &self.shown
    }

    fn completion(&self) -> Option<&str> {
        Some(&self.shown[..self.taken]).filter(|taken| !taken.is_empty())
    }
}

impl Hinter for PromptHelper {
    type Hint = CommandHint;

    fn hint(&self, line: &str, pos: usize, _: &Context<'_>) -> Option<CommandHint> {
        self.is_blank.store(line.is_empty(), Ordering::SeqCst);
        // Without colours the hint would look like typed text.
        if !self.in_colour || pos < line.len() { None } else { command_hint(line) }
    }
}

fn command_hint(line: &str) -> Option<CommandHint> {
    if line.len() < 2 || !line.starts_with('/') {
        return None;
    }
    let (name, argument) = COMMANDS.iter().find(|(name, _)| name.starts_with(line))?;
    let rest = &name[line.len()..];
    let hint = CommandHint { shown: format!("{rest}{argument}"), taken: rest.len() };
    (!hint.shown.is_empty()).then_some(hint)
}

impl Highlighter for PromptHelper {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.in_colour { TextStyle::DIM.paint(hint).into() } else { hint.into() }
    }
}

impl Validator for PromptHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_open = goes_on(context.input());
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Returns true if the message continues: its last line ends with a backslash, or a code fence is open.
pub(super) fn goes_on(input: &str) -> bool {
    if input.starts_with('/') {
        return false;
    }
    let is_open = input.lines().filter(|line| is_fence(line)).count() % 2 == 1;
    is_open || ends_with_continuation(input)
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// Returns true if a text ends with a backslash that no other backslash escapes.
fn ends_with_continuation(text: &str) -> bool {
    text.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

/// Returns the typed message without the backslashes that continued its lines. Code keeps its own.
pub(super) fn joined(input: &str) -> String {
    if input.starts_with('/') {
        return input.to_owned();
    }
    let (mut message, mut is_code) = (String::with_capacity(input.len()), false);
    for line in input.split_inclusive('\n') {
        is_code ^= is_fence(line);
        match line.strip_suffix('\n') {
            Some(text) if !is_code && ends_with_continuation(text) => {
                message.push_str(&text[..text.len() - 1]);
                message.push('\n');
            }
            _ => message.push_str(line),
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use rustyline::history::DefaultHistory;

    use super::*;

    fn offers(line: &str) -> (usize, Vec<String>) {
        let known = CompletionSource::default();
        let sessions = ["cli:direct", "cli:work", "webhook:x:\x1b[2J"].map(str::to_owned).to_vec();
        known.set_names(CompletionNames { sessions, models: vec!["openai/gpt".into()] });
        known.set_files(vec!["a.txt".into()]);
        let helper = PromptHelper::new(known, true);
        let history = DefaultHistory::new();
        let (at, pairs) = helper.complete(line, line.len(), &Context::new(&history)).unwrap();
        (at, pairs.into_iter().map(|pair| pair.replacement).collect())
    }

    #[test]
    fn commands_and_their_arguments_are_completed() {
        let table: &[(&str, usize, &[&str])] = &[
            ("/he", 0, &["/help"]),
            ("/mo", 0, &["/model "]),
            ("/a", 0, &["/agent ", "/approve ", "/add "]),
            ("/s", 0, &["/stop", "/status", "/session ", "/skills"]),
            ("/session cli:w", 9, &["cli:work"]),
            ("/session ", 9, &["cli:direct", "cli:work"]),
            ("/model o", 7, &["openai/gpt"]),
            ("/drop ", 6, &["a.txt"]),
            ("/help x", 6, &[]),
            ("hello", 5, &[]),
        ];
        for (line, at, expected) in table {
            assert_eq!(offers(line), (*at, expected.iter().map(ToString::to_string).collect()), "{line:?}");
        }
    }

    #[test]
    fn hints_show_possible_arguments() {
        let table =
            [("/mo", Some(("del [NAME]", "del"))), ("/add", Some((" FILE", ""))), ("/help", None), ("hi", None)];
        for (line, expected) in table {
            let hint = command_hint(line);
            let hint = hint.as_ref().map(|hint| (hint.display(), hint.completion().unwrap_or("")));
            assert_eq!(hint, expected, "{line:?}");
        }
    }

    #[test]
    fn a_message_continues_after_a_backslash_and_in_a_fence() {
        for (input, more) in [
            ("text", false),
            ("text \\", true),
            ("text \\\\", false),
            ("text \\\nmore", false),
            ("```rust\nfn a", true),
            ("```rust\nfn a\n```", false),
            ("/add C:\\", false),
            ("", false),
        ] {
            assert_eq!(goes_on(input), more, "{input:?}");
        }
        for (input, expected) in [
            ("a\\\nb", "a\nb"),
            ("a\\\\\nb", "a\\\\\nb"),
            ("a\n```sh\nls \\\n  -l\n```\nb\\\nc", "a\n```sh\nls \\\n  -l\n```\nb\nc"),
            ("/add a\\ b", "/add a\\ b"),
        ] {
            assert_eq!(joined(input), expected, "{input:?}");
        }
    }
}
