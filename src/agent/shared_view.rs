//! What several people may read of what was said: what the gateway found in one's memory is for him alone.

use std::collections::HashSet;

use super::context::without_memory;
use crate::llm::{ChatMessage, ToolCall};

/// Tools that tell what is in somebody's memory.
const MEMORY_TOOLS: [&str; 4] = ["remember", "recall", "forget", "search_history"];

/// The tool that runs others.
const PLAN: &str = "parallel";

const NOT_SHOWN: &str = "(not shown: this conversation has several people, and memory is private)";

/// Takes out what was found in memory. Nothing else changes, so the conversation stays a valid one.
pub(super) fn strip(messages: &mut [ChatMessage]) {
    let mut private = HashSet::new();
    for message in messages {
        match message {
            ChatMessage::User { content, .. } => {
                let shown = without_memory(content).len();
                content.truncate(shown);
            }
            ChatMessage::Assistant { tool_calls, .. } => {
                private = tool_calls.iter().filter(|call| tells_memory(call)).map(|call| call.id.clone()).collect();
            }
            ChatMessage::Tool { call_id, content, .. } if private.contains(call_id) => NOT_SHOWN.clone_into(content),
            ChatMessage::Tool { .. } => {}
        }
    }
}

/// Whether the result of this call comes out of somebody's memory.
pub(super) fn tells_memory(call: &ToolCall) -> bool {
    let is_one = |name: &str| MEMORY_TOOLS.iter().any(|tool| tool.eq_ignore_ascii_case(name));
    is_one(&call.name) || (call.name == PLAN && MEMORY_TOOLS.iter().any(|tool| call.arguments.contains(tool)))
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
            ("exec", "recall", true),
        ] {
            let mut said =
                vec![ChatMessage::user(asked), call(name, arguments), tool(), ChatMessage::user("[Memory]\nmine")];
            strip(&mut said);
            assert_eq!(said[0], ChatMessage::user("where?\n\n[Runtime Context]\nCurrent Time: now"));
            assert_eq!(said[2] == tool(), is_shown, "{name}");
            assert_eq!(said[3], ChatMessage::user("[Memory]\nmine"));
            assert_eq!(check_messages(&said), Ok(()));
        }
    }
}
