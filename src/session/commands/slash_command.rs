//! Slash commands: their syntax and their replies.

use std::sync::Arc;

use jiff::tz::TimeZone;
use uuid::Uuid;

use super::history::shorten;
use crate::bus::WeakBus;
use crate::guard::Taint;
use crate::memory::MemoryService;
use crate::phrases::{Phrases, fill};
use crate::store::Store;
use crate::store::checkpoints::Checkpoint;
use crate::text::nearest;

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// The name in lower case, without the slash.
    pub name: String,
    pub argument: String,
    /// The ignored text below the command's line, without a signature.
    pub below: String,
}

impl SlashCommand {
    /// Parses `/name argument` in the first line. Any other text, such as a path, is for the model, and so is a text of several
    /// lines whose first word is not a known command.
    pub fn parse(content: &str) -> Option<Self> {
        let content = content.trim();
        let (line, below) = content.split_once('\n').unwrap_or((content, ""));
        let rest = line.strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_' || c == '-');
        let (name, below) = (name.to_ascii_lowercase(), without_signature(below));
        let is_command = is_name && (below.is_empty() || COMMANDS.contains(&name.as_str()));
        is_command.then(|| Self { name, argument: argument.trim().to_owned(), below: below.to_owned() })
    }

    /// Returns the remark that the text below the command was ignored.
    pub fn ignored_text_remark(&self, phrases: &Phrases) -> Option<String> {
        let text = Some(&self.below).filter(|below| !below.is_empty())?;
        Some(fill(phrases.below_command, &[&shorten(text, MAX_BELOW)]))
    }
}

/// Returns the trimmed text before a signature (RFC 3676, section 4.3; some programs omit the space).
fn without_signature(text: &str) -> &str {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "--" {
            break;
        }
        end += line.len();
    }
    text[..end].trim()
}

/// All commands, including those of the terminal.
pub const COMMANDS: [&str; 19] = [
    "agent", "approve", "checkpoint", "cost", "cron", "deny", "forget", "help", "history", "mcp", "memory", "model",
    "new", "restore", "session", "skills", "status", "stop", "tools",
];
/// Commands that only a terminal has. The terminal runs some of them itself.
pub const TERMINAL_COMMANDS: [&str; 8] = ["add", "clear", "drop", "exit", "files", "history", "quit", "thinking"];

/// Returns the command that `name` most likely means; the nearest one, however different it is.
pub fn nearest_command(name: &str, in_terminal: bool) -> Option<&'static str> {
    let here = |known: &&str| in_terminal || !TERMINAL_COMMANDS.contains(known);
    let known = COMMANDS.into_iter().filter(here).chain(TERMINAL_COMMANDS.into_iter().filter(here));
    nearest::nearest(name, known.map(|known| (known, known)), nearest::BY_BEGINNING, 0.0)
}

/// The maximum number of characters of the ignored text that the reply repeats.
const MAX_BELOW: usize = 200;

/// The change that a command makes to its session, in the commit of its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    None,
    /// `/new`.
    NewEpoch,
    /// `/model NAME`; `None` is the configured model.
    Model(Option<String>),
    /// `/agent NAME`; `None` is the agent of the chat.
    Agent(Option<String>),
    /// `/checkpoint NAME`.
    NameCheckpoint {
        turn: Uuid,
        name: String,
    },
    /// `/restore ID`.
    Restore(Checkpoint),
    /// `/forget`, with the id of the memory.
    Forget(i64),
    /// `/mcp NAME PROMPT`. It changes nothing; the turn sends this text to the model instead of the message.
    Ask(ModelPrompt),
}

/// A text for the model, and the names of the foreign content in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPrompt {
    pub text: String,
    pub taint: Taint,
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReply {
    pub reply: String,
    pub change: SessionChange,
    /// The stable error code if the command failed.
    pub error: Option<&'static str>,
}

impl CommandReply {
    /// Creates the reply to a command that changes something.
    pub fn changing(reply: String, change: SessionChange) -> Self {
        Self { reply, change, error: None }
    }

    /// Creates the reply to a command that failed, with its stable error code.
    pub fn failed(reply: String, code: &'static str) -> Self {
        Self { reply, change: SessionChange::None, error: Some(code) }
    }
}

impl From<String> for CommandReply {
    fn from(reply: String) -> Self {
        Self::changing(reply, SessionChange::None)
    }
}

/// The shared parts that commands use.
pub struct CommandContext {
    pub phrases: &'static Phrases,
    pub store: Store,
    pub memory: Arc<MemoryService>,
    pub timezone: TimeZone,
    /// The bus of the running gateway.
    pub bus: WeakBus,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_behind_a_slash_is_a_command() {
        for (content, expected) in [
            ("/help", Some(("help", "", ""))),
            ("  /Model  openai/gpt-4o ", Some(("model", "openai/gpt-4o", ""))),
            ("/new\nand more", Some(("new", "", "and more"))),
            ("/stop\r\n\r\n-- \r\nAnn\r\nACME Ltd.\r\n", Some(("stop", "", ""))),
            ("/model a/b\n--\nAnn", Some(("model", "a/b", ""))),
            ("/status please\n\nthanks\n-- \nAnn", Some(("status", "please", "thanks"))),
            ("/nonsense", Some(("nonsense", "", ""))),
            ("/nonsense\n-- \nAnn", Some(("nonsense", "", ""))),
            ("/todo\n- eggs\n- milk", None),
            ("/etc/hosts is missing", None),
            ("/", None),
            ("/\nhelp", None),
            ("hello /help", None),
            ("hello\n/help", None),
            ("/1st", None),
        ] {
            let parsed = SlashCommand::parse(content);
            let parsed = parsed.as_ref();
            let parsed = parsed.map(|slash| (slash.name.as_str(), slash.argument.as_str(), slash.below.as_str()));
            assert_eq!(parsed, expected, "{content:?}");
        }
    }

    #[test]
    fn an_unknown_command_names_the_nearest() {
        for (name, in_terminal, expected) in [
            ("hepl", false, Some("help")),
            ("modle", false, Some("model")),
            ("stat", false, Some("status")),
            ("checkpiont", false, Some("checkpoint")),
            ("histroy", true, Some("history")),
            ("qiut", true, Some("quit")),
        ] {
            assert_eq!(nearest_command(name, in_terminal), expected, "{name}");
        }
        for name in ["nosuch", "nonsense", "xyz", "qiut"] {
            let near = nearest_command(name, false).unwrap();
            assert!(COMMANDS.contains(&near) && near != "history", "{name}: {near}");
        }
    }

    #[test]
    fn help_in_the_terminal_names_every_command() {
        let phrases = Phrases::of(crate::text::Language::En);
        let help = format!("{}{}", phrases.help, phrases.help_terminal);
        assert!(COMMANDS.iter().all(|name| help.contains(&format!("`/{name}"))), "{help}");
    }

    #[test]
    fn every_command_that_help_names_is_known() {
        for language in [crate::text::Language::En, crate::text::Language::Zh] {
            let named = Phrases::of(language).help.lines().filter_map(|line| line.trim_start().strip_prefix("- `/"));
            let named: Vec<_> = named.filter_map(|line| line.split([' ', '`']).next()).collect();
            assert!(named.len() >= 10 && named.iter().all(|name| COMMANDS.contains(name)), "{named:?}");
        }
    }
}
