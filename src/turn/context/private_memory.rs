//! Removes results of memory tools from messages: from messages that several people may read, and from a turn during which a memory
//! was forgotten.

use std::collections::HashSet;

use serde_json::Value;

use crate::chat::{ChatMessage, ToolCall};
use crate::memory::{FORGOTTEN, tool_names, without_memory};
use crate::tools::is_plan;

const NOT_SHOWN: &str = "(not shown: this conversation has several people, and memory is private)";

/// Removes the results of memory tools, because others may read the messages.
pub fn strip(messages: &mut [ChatMessage]) {
    take_out(messages, NOT_SHOWN);
}

/// Removes the results of memory tools, because one of them may be forgotten; returns true if there was any.
pub fn forget_found(messages: &mut [ChatMessage]) -> bool {
    take_out(messages, FORGOTTEN)
}

/// Replaces the results of memory tools by `instead`. Everything else stays, so the conversation stays valid.
fn take_out(messages: &mut [ChatMessage], instead: &str) -> bool {
    let mut private = HashSet::new();
    let mut has_changed = false;
    for message in messages {
        match message {
            ChatMessage::User { content, .. } => {
                let shown = without_memory(content).len();
                has_changed |= shown < content.len();
                content.truncate(shown);
            }
            ChatMessage::Assistant { tool_calls, .. } => {
                private = tool_calls.iter().filter(|call| reads_memory(call)).map(|call| call.id.clone()).collect();
            }
            ChatMessage::Tool { call_id, content, .. } if private.contains(call_id) => {
                instead.clone_into(content);
                has_changed = true;
            }
            ChatMessage::Tool { .. } => {}
        }
    }
    has_changed
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
            strip(&mut messages);
            assert_eq!(messages[0], ChatMessage::user("where?\n\n[Runtime Context]\nCurrent Time: now"));
            assert_eq!(messages[2] == tool(), is_shown, "{name}");
            assert_eq!(messages[3], ChatMessage::user("[Memory]\nmine"));
            assert_eq!(check_messages(&messages), Ok(()));
            let mut messages = vec![ChatMessage::user("where?"), call(name, arguments), tool()];
            assert_eq!((forget_found(&mut messages), messages[2] == tool()), (!is_shown, is_shown), "{name}");
        }
    }
}
