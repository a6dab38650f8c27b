//! `/mcp`: the MCP servers, and their prompts.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::history::shorten;
use super::slash_command::{CommandReply, ModelPrompt, SessionChange};
use crate::mcp::{ListedPrompt, McpServer, McpServerState, McpServers, PromptArgument, prompt_text};
use crate::phrases::{Phrases, fill};
use crate::text::{plain_line, truncate};

/// The maximum number of characters of a prompt's description, of a repeated name, and of an error.
const MAX_DESCRIPTION: usize = 120;
const MAX_NAME: usize = 60;
const MAX_ERROR: usize = 300;
/// The maximum number of prompts that are listed.
const LISTED_PROMPTS: usize = 50;
/// The maximum length, in characters, of a prompt.
const MAX_PROMPT: usize = 50_000;

/// Returns true if the argument of `/mcp` requests a prompt, whose text is for the model.
pub(super) fn is_prompt(argument: &str) -> bool {
    argument.split_whitespace().nth(1).is_some()
}

/// Answers `/mcp`, `/mcp NAME` or `/mcp NAME PROMPT [key=value …]`.
pub(super) async fn answer(servers: &McpServers, argument: &str, phrases: &Phrases) -> CommandReply {
    if servers.is_empty() {
        return phrases.no_mcp.to_owned().into();
    }
    let (name, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
    if name.is_empty() {
        let lines = servers.all().iter().map(|server| server_line(server, phrases));
        return format!("{}\n{}", phrases.mcp_are, lines.collect::<Vec<_>>().join("\n")).into();
    }
    let Some(server) = servers.get(name) else {
        let names = servers.all().iter().map(|server| format!("`{}`", server.name)).collect::<Vec<_>>().join(", ");
        return fill(phrases.unknown_mcp, &[&shorten(name, MAX_NAME), &names]).into();
    };
    let (prompt, arguments) = split_name(rest.trim());
    if prompt.is_empty() {
        return describe(server, phrases).into();
    }
    match ask(server, prompt, arguments, phrases).await {
        Ok(prompt) => CommandReply::changing(String::new(), SessionChange::Ask(prompt)),
        Err(error) => truncate(&error, MAX_ERROR).into(),
    }
}

/// Splits the name of a prompt from its arguments. A name with spaces needs double quotes.
fn split_name(text: &str) -> (&str, &str) {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    quoted
        .filter(|(_, rest)| rest.is_empty() || rest.starts_with(char::is_whitespace))
        .or_else(|| text.split_once(char::is_whitespace))
        .unwrap_or((text, ""))
}

fn server_line(server: &McpServer, phrases: &Phrases) -> String {
    let status = server.status();
    let count = server
        .listing()
        .map_or(0, |listing| listing.tools.iter().filter(|tool| server.config.has_tool(&tool.own_name)).count());
    let state = match status.state {
        McpServerState::Idle => phrases.mcp_idle,
        McpServerState::Starting => phrases.mcp_starting,
        McpServerState::Running => phrases.mcp_running,
        McpServerState::Failed => phrases.mcp_failed,
    };
    let error = status.last_error.map(|error| format!(": {}", shorten(&error, MAX_ERROR))).unwrap_or_default();
    fill(phrases.mcp_line, &[&server.name, &format!("{state}{error}"), &count.to_string()])
}

/// Describes a server and its prompts.
fn describe(server: &McpServer, phrases: &Phrases) -> String {
    let line = server_line(server, phrases);
    let listing = server.listing();
    let prompts = listing.as_ref().map(|listing| listing.prompts.as_slice()).unwrap_or_default();
    if prompts.is_empty() {
        return format!("{line}\n{}", phrases.no_mcp_prompts);
    }
    let prompt_line = |prompt: &ListedPrompt| {
        let arguments = prompt.arguments.iter().map(|PromptArgument { name, required, .. }| match required {
            true => format!(" {}=…", displayed_name(name)),
            false => format!(" [{}=…]", displayed_name(name)),
        });
        let usage = format!("/mcp {} {}{}", server.name, displayed_name(&prompt.name), arguments.collect::<String>());
        format!("- `{usage}` - {}", shorten(&plain_line(&prompt.description), MAX_DESCRIPTION))
    };
    let lines = prompts.iter().take(LISTED_PROMPTS).map(prompt_line).collect::<Vec<_>>().join("\n");
    format!("{line}\n\n{}\n{lines}", phrases.mcp_prompts_are)
}

/// Returns a name that the server supplies on one line, without control characters and Markdown. A name with spaces has the quotes
/// with which it is written in a command.
fn displayed_name(name: &str) -> String {
    let shown = shorten(&plain_line(name), MAX_NAME);
    if name.contains(char::is_whitespace) { format!("\"{shown}\"") } else { shown }
}

/// Gets the text of a prompt from its server.
///
/// # Errors
/// A text for the sender: there is no such prompt, its arguments are invalid, or the server does not return it.
async fn ask(server: &Arc<McpServer>, name: &str, arguments: &str, phrases: &Phrases) -> Result<ModelPrompt, String> {
    let listing = match server.listing() {
        Some(listing) => listing,
        None => server.refresh().await.map_err(|error| error.text)?,
    };
    let Some(prompt) = listing.prompts.iter().find(|prompt| prompt.name == name) else {
        let names = listing.prompts.iter().take(LISTED_PROMPTS);
        let names = names.map(|prompt| format!("`{}`", displayed_name(&prompt.name))).collect::<Vec<_>>().join(", ");
        return Err(fill(phrases.unknown_mcp_prompt, &[&server.name, &shorten(name, MAX_NAME), &names]));
    };
    let arguments = read_arguments(arguments);
    let known =
        || prompt.arguments.iter().map(|argument| displayed_name(&argument.name)).collect::<Vec<_>>().join(", ");
    let arguments = arguments.map_err(|error| match error {
        ArgumentError::NoPair(part) => fill(phrases.wrong_mcp_argument, &[&shorten(&part, MAX_NAME), &known()]),
        ArgumentError::Duplicate(name) => fill(phrases.double_mcp_argument, &[&shorten(&name, MAX_NAME)]),
    })?;
    let is_known = |name: &String| prompt.arguments.iter().any(|argument| argument.name == *name);
    if let Some(unknown) = arguments.keys().find(|name| !is_known(name)) {
        return Err(fill(phrases.wrong_mcp_argument, &[&shorten(unknown, MAX_NAME), &known()]));
    }
    let missing = prompt.arguments.iter().find(|argument| argument.required && !arguments.contains_key(&argument.name));
    if let Some(missing) = missing {
        return Err(fill(phrases.missing_mcp_argument, &[&displayed_name(&missing.name)]));
    }
    let (text, taint) = prompt_text(server, name, arguments).await.map_err(|error| error.text)?;
    Ok(ModelPrompt { text: truncate(&text, MAX_PROMPT), taint })
}

/// A fault in the arguments of a prompt.
#[derive(Debug, PartialEq, Eq)]
enum ArgumentError {
    /// The text from here on does not begin with a pair.
    NoPair(String),
    /// The argument is given more than once.
    Duplicate(String),
}

/// Parses `key=value` pairs; a key or value with spaces needs double quotes.
///
/// # Errors
/// A part is not a pair, or a key occurs twice.
fn read_arguments(text: &str) -> Result<Map<String, Value>, ArgumentError> {
    let (mut arguments, mut rest) = (Map::new(), text.trim());
    while !rest.is_empty() {
        let no_pair = || ArgumentError::NoPair(rest.to_owned());
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once("\"=").ok_or_else(no_pair)?,
            None => rest.split_once('=').filter(|(key, _)| !key.contains(char::is_whitespace)).ok_or_else(no_pair)?,
        };
        if key.is_empty() {
            return Err(no_pair());
        }
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or_else(no_pair)?,
            None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
        };
        if arguments.insert(key.to_owned(), Value::String(value.to_owned())).is_some() {
            return Err(ArgumentError::Duplicate(key.to_owned()));
        }
        rest = next.trim_start();
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_pairs() {
        let no_pair = |part: &str| Err(ArgumentError::NoPair(part.to_owned()));
        for (text, expected) in [
            ("", Ok(json!({}))),
            ("city=Paris  style=\"very short\" x=", Ok(json!({"city": "Paris", "style": "very short", "x": ""}))),
            ("\"home city\"=\"New York\" x=a=b", Ok(json!({"home city": "New York", "x": "a=b"}))),
            ("city", no_pair("city")),
            ("a=1 city = Paris", no_pair("city = Paris")),
            ("a=\"open", no_pair("a=\"open")),
            ("\"a b=1", no_pair("\"a b=1")),
            ("who=a x=1 who=b", Err(ArgumentError::Duplicate("who".to_owned()))),
            ("who=a \"who\"=a", Err(ArgumentError::Duplicate("who".to_owned()))),
        ] {
            assert_eq!(read_arguments(text).map(Value::Object), expected, "{text}");
        }
        assert!(is_prompt("a b") && !is_prompt("a ") && !is_prompt(""));
    }

    #[test]
    fn a_name_with_spaces_is_written_in_quotes() {
        for (text, expected) in [
            ("greet", ("greet", "")),
            ("greet whom=Ann", ("greet", "whom=Ann")),
            ("\"say hello\" whom=Ann", ("say hello", " whom=Ann")),
            ("\"say hello\"", ("say hello", "")),
            ("\"quote whom=Ann", ("\"quote", "whom=Ann")),
            ("\"a\"b c", ("\"a\"b", "c")),
        ] {
            assert_eq!(split_name(text), expected, "{text}");
        }
        assert_eq!(displayed_name("say hello"), "\"say hello\"");
    }

    #[test]
    fn names_from_a_server_are_one_plain_line() {
        assert_eq!(displayed_name("a`b*\n\u{7}c"), "\"ab c\"");
        assert!(displayed_name(&"x".repeat(1_000)).chars().count() <= MAX_NAME + 1);
    }
}
