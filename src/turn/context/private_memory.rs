//! Removes results that show memories from messages: from messages that several people may read, and from a turn during which a
//! memory was forgotten. These are the results of memory tools, of other tools that read the memory files, and of later calls that
//! show an earlier result again: the output of a background command, or a stored long output. The earlier call must be among the
//! messages.

use std::collections::HashSet;

use serde_json::Value;

use crate::chat::{ChatMessage, ToolCall};
use crate::memory::{FORGOTTEN, tool_names, without_memory};
use crate::tools::{CONVERSATIONS, GATEWAY_FOLDER, MEMORY_FOLDER, PROCESS, canonical_name, is_plan};

/// The note at the end of the answer of a sub-agent that has read memories.
pub const HAS_READ_MEMORY: &str = "[This sub-agent has read private memories.]";

const NOT_SHOWN: &str = "(not shown: this conversation has several people, and memory is private)";

/// Removes the results that show memories, because others may read the messages.
pub fn strip<'a>(messages: impl Iterator<Item = &'a mut ChatMessage>) {
    take_out(messages, NOT_SHOWN);
}

/// Removes the results that show memories, because one of them may be forgotten; returns true if there was any.
pub fn forget_found(messages: &mut [ChatMessage]) -> bool {
    take_out(messages.iter_mut(), FORGOTTEN)
}

/// Replaces the results that show memories by `instead`. Everything else stays, so the conversation stays valid.
fn take_out<'a>(messages: impl Iterator<Item = &'a mut ChatMessage>, instead: &str) -> bool {
    let mut private = HashSet::new();
    // A command prints memories only if it reads their files, or the stored result of an earlier call.
    let (mut has_changed, mut has_read, mut may_print) = (false, false, false);
    for message in messages {
        match message {
            ChatMessage::User { content, .. } => {
                let mut shown = without_memory(content).len();
                // The end of a background command is a message that names the file of the output and repeats its end.
                if may_print && content.contains(CONVERSATIONS) {
                    shown = content.find('\n').map_or(shown, |line| line.min(shown));
                }
                // The report of a sub-agent begins with a line about it.
                if content.contains(HAS_READ_MEMORY) {
                    shown = content.find('\n').map_or(0, |line| line.min(shown));
                }
                has_changed |= shown < content.len();
                content.truncate(shown);
            }
            ChatMessage::Assistant { content, tool_calls, .. } => {
                // The report to a turn that has ended is a note.
                if content.contains(HAS_READ_MEMORY) {
                    instead.clone_into(content);
                    has_changed = true;
                }
                has_read |= tool_calls.iter().any(reads_private);
                let reads_stored = |call: &ToolCall| has_read && call.arguments.contains(GATEWAY_FOLDER);
                may_print |= tool_calls.iter().any(|call| names_memory_file(&call.arguments) || reads_stored(call));
                let is_private =
                    |call: &&ToolCall| reads_private(call) || reads_stored(call) || may_print && uses_process(call);
                private = tool_calls.iter().filter(is_private).map(|call| call.id.clone()).collect();
            }
            ChatMessage::Tool { call_id, content, .. }
                if private.contains(call_id) || shows_memory_file(content) || content.contains(HAS_READ_MEMORY) =>
            {
                instead.clone_into(content);
                has_changed = true;
            }
            ChatMessage::Tool { .. } => {}
        }
    }
    has_changed
}

/// Returns true if a turn with these messages has read memories, itself or by a sub-agent.
pub fn has_read(messages: &[ChatMessage]) -> bool {
    messages.iter().any(|message| match message {
        ChatMessage::Assistant { tool_calls, .. } => tool_calls.iter().any(reads_private),
        ChatMessage::Tool { content, .. } => shows_memory_file(content) || content.contains(HAS_READ_MEMORY),
        ChatMessage::User { .. } => false,
    })
}

/// Returns true if the result of a call comes from memory or from a memory file.
fn reads_private(call: &ToolCall) -> bool {
    reads_memory(call) || names_memory_file(&call.arguments)
}

/// Returns true if a call shows the output of a background command.
fn uses_process(call: &ToolCall) -> bool {
    let tools = if is_plan(&call.name) { planned_tools(&call.arguments) } else { Some(vec![call.name.clone()]) };
    let is_process = |tool: &String| canonical_name(tool.trim()) == Some(PROCESS);
    tools.is_none_or(|tools| tools.iter().any(is_process))
}

/// Returns true if the arguments of a call name a memory file or its folder. The arguments of a plan hold those of its calls.
fn names_memory_file(arguments: &str) -> bool {
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => has_memory_path(&value),
        Err(_) => is_memory_path(arguments),
    }
}

/// Returns true if a text of a JSON value names a memory file or its folder. A text may be JSON again.
fn has_memory_path(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let inner = serde_json::from_str::<Value>(text).ok().filter(|inner| inner.is_array() || inner.is_object());
            is_memory_path(text) || inner.is_some_and(|inner| has_memory_path(&inner))
        }
        Value::Array(items) => items.iter().any(has_memory_path),
        Value::Object(fields) => fields.values().any(has_memory_path),
        _ => false,
    }
}

/// Returns true if a text names a memory file or its folder. The word "memory" in a longer text is not a path.
fn is_memory_path(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    ["memory/", "memory.md", "history.md"].iter().any(|name| text.contains(name))
        || text == MEMORY_FOLDER
        || text.ends_with(&format!("/{MEMORY_FOLDER}"))
}

/// Returns true if a result shows lines of a memory file, with its path: a search of the workspace, or a diff.
fn shows_memory_file(result: &str) -> bool {
    let result = result.to_lowercase();
    let begins = |line: &str| {
        ["", "./", "diff --git a/", "+++ b/"]
            .iter()
            .any(|before| line.trim_start().strip_prefix(before).is_some_and(|path| path.starts_with("memory/")))
    };
    ["memory/memory.md", "memory/history"].iter().any(|path| result.contains(path)) || result.lines().any(begins)
}

/// Returns true if the result of this call comes from a person's memory, whatever alias the call uses.
pub fn reads_memory(call: &ToolCall) -> bool {
    let name = call.name.trim().to_lowercase();
    if !is_plan(&name) {
        return tool_names().contains(&name);
    }
    match planned_tools(&call.arguments) {
        Some(tools) => tools.iter().any(|tool| tool_names().contains(tool)),
        // The plan cannot be parsed, so the tools that it has run are unknown.
        None => {
            let plan = serde_json::from_str::<Value>(&call.arguments).map(|plan| plan.to_string());
            let plan = plan.unwrap_or_else(|_| call.arguments.clone()).to_lowercase();
            tool_names().iter().any(|tool| plan.contains(tool.as_str()))
        }
    }
}

/// Returns the names of the tools that a plan calls, in lower case; `None` if the plan does not have the usual form.
fn planned_tools(arguments: &str) -> Option<Vec<String>> {
    let plan: Value = serde_json::from_str(arguments).ok()?;
    let tools = plan.get("calls")?.as_array()?.iter().map(|call| call.get("tool")?.as_str());
    tools.map(|tool| Some(tool?.trim().to_lowercase()).filter(|tool| !is_plan(tool))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::check_messages;

    #[test]
    fn recalled_memories_are_removed_for_others() {
        let tool = || ChatMessage::Tool {
            call_id: "1".into(),
            name: "any".into(),
            content: "secret".into(),
            images: Vec::new(),
        };
        let call = |name: &str, arguments: &str| ChatMessage::Assistant {
            content: String::new(),
            reasoning: None,
            tool_calls: vec![ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() }],
        };
        let asked = "where?\n\n[Runtime Context]\nCurrent Time: now\n\n[Memory]\nfound:\n- secret";
        for (name, arguments, is_shown) in [
            ("recall", "{}", false),
            ("Search_History", "{}", false),
            ("parallel", r#"{"calls":[{"tool":"recall"}]}"#, false),
            ("parallel", r#"{"calls":[{"tool":"read_file"}]}"#, true),
            // Aliases of the same tools.
            ("search_memory", "{}", false),
            (" Memory_Search", "{}", false),
            ("conversation_search", "{}", false),
            ("save_memory", "{}", false),
            ("batch", r#"{"calls":[{"tool":"recall"}]}"#, false),
            ("multi_tool_use.parallel", r#"{"calls":[{"tool":"Search_Messages"}]}"#, false),
            ("parallel", r#"{"calls":[{"tool":"rec\u0061ll_memory"}]}"#, false),
            ("batch", r#"{"calls":[{"tool":"exec"}]}"#, true),
            ("parallel", r#"{"calls":[{"tool":"write_file","arguments":{"content":"recall"}}]}"#, true),
            ("parallel", r#"{"calls":[{"tool":"recall""#, false),
            ("parallel", r#"{"calls":"[{\"tool\":\"rec\u0061ll\"}]"}"#, false),
            ("parallel", r#"{"calls":[{"tool":"exec"},{"name":"recall"}]}"#, false),
            ("parallel", r#"{"calls":[{"tool":"batch","arguments":{"calls":[{"tool":"recall"}]}}]}"#, false),
            ("exec", "recall", true),
        ] {
            let mut messages =
                vec![ChatMessage::user(asked), call(name, arguments), tool(), ChatMessage::user("[Memory]\nmine")];
            strip(messages.iter_mut());
            assert_eq!(messages[0], ChatMessage::user("where?\n\n[Runtime Context]\nCurrent Time: now"));
            assert_eq!(messages[2] == tool(), is_shown, "{name}");
            assert_eq!(messages[3], ChatMessage::user("[Memory]\nmine"));
            assert_eq!(check_messages(&messages), Ok(()));
            let mut messages = vec![ChatMessage::user("where?"), call(name, arguments), tool()];
            assert_eq!((forget_found(&mut messages), messages[2] == tool()), (!is_shown, is_shown), "{name}");
        }
    }

    #[test]
    fn results_that_show_a_memory_file_again_are_removed_for_others() {
        let call = |id: &str, name: &str, arguments: &str| ChatMessage::Assistant {
            content: String::new(),
            reasoning: None,
            tool_calls: vec![ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }],
        };
        let result = |id: &str, name: &str, content: &str| ChatMessage::Tool {
            call_id: id.into(),
            name: name.into(),
            content: content.into(),
            images: Vec::new(),
        };
        let background = r#"{"command":"sleep 1; cat memory/MEMORY.md","background":true}"#;
        let mut messages = vec![ChatMessage::user("go"), call("1", "recall", "{}"), result("1", "recall", "secret")];
        messages.extend([call("2", "process", "{}"), result("2", "process", "built")]);
        strip(messages.iter_mut());
        assert_eq!(messages[4], result("2", "process", "built"));
        for (first, name, arguments, is_shown) in [
            (background, "process", r#"{"action":"output","id":"p1"}"#, false),
            (background, "parallel", r#"{"calls":[{"tool":"process","arguments":{"action":"list"}}]}"#, false),
            (background, "read_file", r#"{"path":".daoyou/conversations/1-owner/2.txt"}"#, false),
            (background, "exec", r#"{"command":"tail .daoyou/conversations/*/*"}"#, false),
            (background, "read_file", r#"{"path":"notes.txt"}"#, true),
            (r#"{"command":"make","background":true}"#, "process", r#"{"action":"output","id":"p1"}"#, true),
        ] {
            let mut messages = vec![ChatMessage::user("go"), call("1", "exec", first), result("1", "exec", "p1")];
            messages.extend([ChatMessage::user("and?"), call("2", name, arguments), result("2", name, "secret")]);
            strip(messages.iter_mut());
            assert_eq!(messages[5] == result("2", name, "secret"), is_shown, "{first} {name} {arguments}");
            assert_eq!(check_messages(&messages), Ok(()));
            let announced = "[background process p1 ended]\nThe end (.daoyou/conversations/1-owner/p1.txt):\nsecret";
            let mut messages = vec![ChatMessage::user("go"), call("1", "exec", first), result("1", "exec", "p1")];
            messages.push(ChatMessage::user(announced));
            strip(messages.iter_mut());
            let has_read = first == background;
            let expected = if has_read { "[background process p1 ended]" } else { announced };
            assert_eq!(messages[3], ChatMessage::user(expected));
        }
    }

    #[test]
    fn what_a_sub_agent_read_of_memories_is_removed_for_others() {
        let answer = |mark: &str| format!("[sub-agent a finished in 1s, 9 tokens]\nsecret\n\n{mark}");
        let tool = |content: String| ChatMessage::Tool {
            call_id: "1".into(),
            name: "spawn".into(),
            content,
            images: Vec::new(),
        };
        for (mark, is_private) in [(HAS_READ_MEMORY, true), ("", false)] {
            let mut messages =
                vec![ChatMessage::user(answer(mark)), ChatMessage::assistant(answer(mark)), tool(answer(mark))];
            let calls = messages.clone();
            assert_eq!(has_read(&calls), is_private);
            strip(messages.iter_mut());
            assert_eq!(format!("{messages:?}").contains("secret"), !is_private);
            assert!(messages != calls || !is_private);
        }
        let tool_calls = vec![ToolCall { id: "1".into(), name: "recall".into(), arguments: "{}".into() }];
        assert!(has_read(&[ChatMessage::Assistant { content: String::new(), reasoning: None, tool_calls }]));
    }

    #[test]
    fn results_that_show_memory_files_are_removed_for_others() {
        for (name, arguments, result, is_shown) in [
            ("read_file", r#"{"path":"memory/MEMORY.md"}"#, "secret", false),
            ("read_file", r#"{"path":"link/Memory.md"}"#, "secret", false),
            ("read_file", r#"{"path":"m\u0065mory/older"}"#, "secret", false),
            ("grep", r#"{"pattern":"x","path":"./memory"}"#, "MEMORY.md:3: secret", false),
            ("grep", r#"{"pattern":"x"}"#, "notes.txt:1: x\nmemory/HISTORY-20260101-000000.md:3: secret", false),
            ("grep", r#"{"pattern":"x"}"#, "notes.txt:1: x\nmemory/diary.md:3: secret", false),
            ("grep", r#"{"pattern":"x"}"#, "src/memory/mod.rs:3: x", true),
            ("git_diff", "{}", "diff --git a/memory/MEMORY.md b/memory/MEMORY.md\n-secret", false),
            ("exec", r#"{"command":"cat memory/*"}"#, "secret", false),
            ("exec", r#"{"command":"cd memory; cat HISTORY.md"}"#, "secret", false),
            ("exec", r#"{"command":"cat *","cwd":"memory"}"#, "secret", false),
            ("exec", r#"{"command":"cat memory/*""#, "secret", false),
            ("parallel", r#"{"calls":[{"tool":"read_file","arguments":{"path":"memory/x"}}]}"#, "secret", false),
            (
                "parallel",
                r#"{"calls":"[{\"tool\":\"exec\",\"arguments\":{\"command\":\"cat m\\u0065mory/x\"}}]"}"#,
                "secret",
                false,
            ),
            ("exec", r#"{"command":"free; echo memory"}"#, "memory: 4 GB", true),
            ("read_file", r#"{"path":"notes.txt"}"#, "from memory", true),
        ] {
            let tool_calls = vec![ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() }];
            let call = ChatMessage::Assistant { content: String::new(), reasoning: None, tool_calls };
            let tool = ChatMessage::Tool {
                call_id: "1".into(),
                name: name.into(),
                content: result.into(),
                images: Vec::new(),
            };
            let mut messages = [ChatMessage::user("go"), call, tool.clone()];
            strip(messages.iter_mut());
            assert_eq!(messages[2] == tool, is_shown, "{name} {arguments}");
        }
    }
}
