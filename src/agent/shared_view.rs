//! What the gateway found in somebody's memory is for him alone, and no more than what is still known: so it is taken out of
//! what several people may read, and of a turn during which something was forgotten.

use std::collections::HashSet;

use super::context::without_memory;
use crate::chat::{ChatMessage, ToolCall};
use crate::memory::{FORGOTTEN, tool_names};
use crate::tools::is_plan;

const NOT_SHOWN: &str = "(not shown: this conversation has several people, and memory is private)";

/// Takes out what was found in memory, as others may read it.
pub(super) fn strip(messages: &mut [ChatMessage]) {
    take_out(messages, NOT_SHOWN);
}

/// Takes out what was found in memory, as something of it may be forgotten; answers whether there was anything.
pub(super) fn forget_found(messages: &mut [ChatMessage]) -> bool {
    take_out(messages, FORGOTTEN)
}

/// Puts `instead` in the place of what was found. Nothing else changes, so the conversation stays a valid one.
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
                private = tool_calls.iter().filter(|call| tells_memory(call)).map(|call| call.id.clone()).collect();
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

/// Whether the result of this call comes out of somebody's memory, by whatever name the tool was called.
pub(super) fn tells_memory(call: &ToolCall) -> bool {
    let name = call.name.trim().to_lowercase();
    if is_plan(&name) {
        // Read and written again, as a name may stand there in escapes.
        let plan = serde_json::from_str::<serde_json::Value>(&call.arguments).map(|plan| plan.to_string());
        let plan = plan.unwrap_or_else(|_| call.arguments.clone()).to_lowercase();
        return tool_names().iter().any(|tool| plan.contains(tool.as_str()));
    }
    tool_names().contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::check_messages;

    #[test]
    fn what_was_found_in_memory_is_not_shown_to_others() {
        let tool = || ChatMessage::Tool { call_id: "1".into(), name: "any".into(), content: "secret".into() };
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
            // By the other names of the same tools.
            ("search_memory", "{}", false),
            (" Memory_Search", "{}", false),
            ("conversation_search", "{}", false),
            ("save_memory", "{}", false),
            ("batch", r#"{"calls":[{"tool":"recall"}]}"#, false),
            ("multi_tool_use.parallel", r#"{"calls":[{"tool":"Search_Messages"}]}"#, false),
            ("parallel", r#"{"calls":[{"tool":"rec\u0061ll_memory"}]}"#, false),
            ("batch", r#"{"calls":[{"tool":"exec"}]}"#, true),
            ("exec", "recall", true),
        ] {
            let mut said =
                vec![ChatMessage::user(asked), call(name, arguments), tool(), ChatMessage::user("[Memory]\nmine")];
            strip(&mut said);
            assert_eq!(said[0], ChatMessage::user("where?\n\n[Runtime Context]\nCurrent Time: now"));
            assert_eq!(said[2] == tool(), is_shown, "{name}");
            assert_eq!(said[3], ChatMessage::user("[Memory]\nmine"));
            assert_eq!(check_messages(&said), Ok(()));
            let mut said = vec![ChatMessage::user("where?"), call(name, arguments), tool()];
            assert_eq!((forget_found(&mut said), said[2] == tool()), (!is_shown, is_shown), "{name}");
        }
    }
}
