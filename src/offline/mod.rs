//! The built-in responder: answers by rules, in English and Chinese, so that the whole gateway runs on a new machine without a
//! model, an account or a network. The responder is a pure function from a conversation to an answer. Its tool calls go through
//! the same loop and journal as those of a model.

mod context;
mod reminder;
mod reply;
mod request;

#[cfg(test)]
mod sentence_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::chat::{ChatMessage, ToolCall, ToolSpec};
use crate::text::time_expression::{TimeExpression, TimeParseError};
use crate::text::{Language, shell_quote};
use context::MessageTime;
use reminder::Reminder;
use request::UserRequest;

const CALL_ID: &str = "offline_";

/// An answer of the responder: its text, and the tools to call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfflineAnswer {
    pub text: String,
    pub tool_calls: Vec<ToolCall>,
}

/// Splits the text of a reminder into its time and its note.
///
/// # Errors
/// No time was understood. The error has the part of a time that was understood, if there is any.
pub fn split_reminder(text: &str, language: Language) -> Result<(TimeExpression, String), Option<TimeParseError>> {
    match Reminder::read(text, language) {
        Reminder::At { when, note } => Ok((when, note)),
        Reminder::Unclear(misread) => Err(Some(misread)),
        Reminder::NoTime { .. } => Err(None),
    }
}

/// Answers a conversation by rules. The same messages and tools give the same answer.
///
/// The user's last message becomes calls of offered tools, or is answered at once. If results of tools follow the message, the
/// answer reports them. No call ever follows a result, so a turn ends after one round.
pub fn respond(messages: &[Arc<ChatMessage>], tools: &[ToolSpec]) -> OfflineAnswer {
    let last = messages.iter().enumerate().rev().find_map(|(at, message)| match &**message {
        ChatMessage::User { content, .. } => Some((content.as_str(), &messages[at + 1..])),
        _ => None,
    });
    let (content, after) = last.unwrap_or(("", messages));
    let (text, now) = context::split(content);
    let requests = request::read_requests(text);
    if after.iter().any(|message| matches!(**message, ChatMessage::Tool { .. })) {
        return OfflineAnswer { text: report_results(&requests, after), tool_calls: Vec::new() };
    }
    let mut replies = Vec::new();
    let mut tool_calls = Vec::new();
    let first = next_call(messages);
    for (request, language) in requests {
        match plan(&request, language, OfferedTools(tools), now.as_ref()) {
            Ok((name, arguments)) => tool_calls.push(ToolCall {
                id: format!("{CALL_ID}{}", first.saturating_add(tool_calls.len() as u64)),
                name: name.to_owned(),
                arguments: arguments.to_string(),
            }),
            Err(text) => replies.push(text),
        }
    }
    OfflineAnswer { text: replies.join("\n\n"), tool_calls }
}

/// Returns the answer after the tools have run: the text before the calls, then each result.
fn report_results(requests: &[(UserRequest, Language)], after: &[Arc<ChatMessage>]) -> String {
    let to_forget = requests.iter().find(|(request, _)| matches!(request, UserRequest::FindMemory(_)));
    let Some((_, language)) = to_forget.or(requests.first()) else { return String::new() };
    let mut parts: Vec<String> = Vec::new();
    for message in after {
        match &**message {
            ChatMessage::Assistant { content, .. } if !content.trim().is_empty() => parts.push(content.clone()),
            ChatMessage::Tool { call_id, name, content, .. } => {
                let unknown = || ToolCall { id: call_id.clone(), name: name.clone(), arguments: String::new() };
                let call = calls(after).find(|call| call.id == *call_id).cloned().unwrap_or_else(unknown);
                parts.push(reply::tool_result(*language, &call, content, to_forget.is_some()));
            }
            _ => {}
        }
    }
    parts.join("\n\n")
}

fn calls(messages: &[Arc<ChatMessage>]) -> impl Iterator<Item = &ToolCall> {
    messages.iter().flat_map(|message| message.tool_calls())
}

/// Returns the number of the next call, which is higher than that of any call in the conversation.
fn next_call(messages: &[Arc<ChatMessage>]) -> u64 {
    let numbers = calls(messages).filter_map(|call| call.id.strip_prefix(CALL_ID)?.parse::<u64>().ok());
    numbers.max().unwrap_or(0).saturating_add(1)
}

/// A tool and its arguments, or a reply without a tool.
type CallOrReply = Result<(&'static str, Value), String>;

/// Returns the tool call for a request, or the reply without a tool.
fn plan(request: &UserRequest, language: Language, tools: OfferedTools<'_>, now: Option<&MessageTime>) -> CallOrReply {
    let call = |name: &'static str, arguments: Value| tools.call(language, &[name], |_| arguments.clone());
    match request {
        UserRequest::Help => Err(reply::help(language, |name| tools.has(name))),
        UserRequest::Unknown => Err(reply::unknown(language)),
        UserRequest::Time => Err(now.map_or_else(|| reply::no_clock(language), |now| reply::time(language, now))),
        UserRequest::ListFiles(path) => call("list_dir", json!({ "path": path })),
        UserRequest::ReadFile(path) => call("read_file", json!({ "path": path })),
        UserRequest::WriteFile { path, content } => call("write_file", json!({ "path": path, "content": content })),
        UserRequest::FindFiles(pattern) => tools.call(language, &["glob", "exec"], |tool| find_files(tool, pattern)),
        UserRequest::Search { query, path } => {
            tools.call(language, &["grep", "exec"], |tool| search(tool, query, path))
        }
        UserRequest::Remember(content) => call("remember", json!({ "content": content })),
        UserRequest::Recall(query) | UserRequest::FindMemory(query) => call("recall", json!({ "query": query })),
        UserRequest::Forget(id) => call("forget", json!({ "id": tools.id("forget", "id", id) })),
        UserRequest::Remind(reminder) => call("cron", reminder.to_arguments(language, now)?),
        UserRequest::ListReminders => call("cron", json!({ "action": "list" })),
        UserRequest::CancelReminder(job) => call("cron", json!({ "action": "remove", "job_id": reminder::name(job) })),
    }
}

/// The tools that the request offers.
#[derive(Clone, Copy)]
struct OfferedTools<'a>(&'a [ToolSpec]);

impl OfferedTools<'_> {
    fn spec(&self, name: &str) -> Option<&ToolSpec> {
        self.0.iter().find(|spec| spec.name == name)
    }

    /// Returns true if the tool is offered, or if `find_tools` names it: such a tool can be called as well.
    fn has(&self, name: &str) -> bool {
        let is_named = |spec: &ToolSpec| spec.description.split([' ', ',', '.']).any(|word| word == name);
        self.spec(name).is_some() || self.spec("find_tools").is_some_and(is_named)
    }

    /// Returns a call of the first of `names` that is offered, or a reply that names the missing tool.
    fn call(&self, language: Language, names: &[&'static str], arguments: impl Fn(&str) -> Value) -> CallOrReply {
        match names.iter().find(|name| self.has(name)) {
            Some(&name) => Ok((name, arguments(name))),
            None => Err(reply::no_tool(language, names.first().unwrap_or(&""))),
        }
    }

    /// Returns an id in the type that the tool's schema requires. If the schema allows several types, uses the first one that
    /// is not null.
    fn id(&self, tool: &str, argument: &str, id: &str) -> Value {
        let kind =
            self.spec(tool).and_then(|spec| match spec.parameters.get("properties")?.get(argument)?.get("type")? {
                Value::String(name) => Some(name.as_str()),
                Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
                _ => None,
            });
        match (kind, id.parse::<u64>()) {
            (Some("integer" | "number"), Ok(number)) => json!(number),
            _ => json!(id),
        }
    }
}

/// Returns the arguments of a text search with the tool `grep`, or with the shell command `grep`, whose exit code must not
/// report a missing match as an error.
fn search(tool: &str, query: &str, path: &str) -> Value {
    match tool {
        "grep" if path == "." => json!({ "pattern": regex::escape(query) }),
        "grep" => json!({ "pattern": regex::escape(query), "path": path }),
        _ => {
            let (query, path) = (shell_quote(query), shell_quote(path));
            json!({ "command": format!("grep -rnI --exclude-dir=.git -e {query} -F -- {path} || [ $? -eq 1 ]") })
        }
    }
}

/// Returns the arguments of a search for files by name, with the tool `glob` or the shell command `find`.
fn find_files(tool: &str, pattern: &str) -> Value {
    match (tool, pattern.contains('/')) {
        ("glob", false) => json!({ "pattern": format!("**/{pattern}") }),
        ("glob", true) => json!({ "pattern": pattern }),
        (_, false) => json!({ "command": format!("find . -name {}", shell_quote(pattern)) }),
        (_, true) => json!({ "command": format!("find . -path {}", shell_quote(&format!("./{pattern}"))) }),
    }
}
