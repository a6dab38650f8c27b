//! A conversation as a model without tools reads it: calls and their results are text, and the two take turns.

use crate::chat::{ChatMessage, ToolCall};

/// How calls, results and answers are written.
pub trait Form {
    /// What the model said, with the calls that it made.
    fn said(&self, content: &str, calls: &[ToolCall]) -> String;

    /// What came of a call, one of `count` that were made together.
    fn result(&self, call: Option<&ToolCall>, name: &str, content: &str, count: usize) -> String;
}

/// `messages` with their calls as text. They are valid; so is what comes of them, which has no calls at all.
pub fn as_text(messages: &[ChatMessage], form: &dyn Form) -> Vec<ChatMessage> {
    let mut told: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    let mut calls: &[ToolCall] = &[];
    for message in messages {
        let next = match message {
            ChatMessage::User { .. } => message.clone(),
            ChatMessage::Assistant { content, tool_calls, .. } => {
                calls = tool_calls;
                ChatMessage::assistant(form.said(content, tool_calls))
            }
            ChatMessage::Tool { call_id, name, content } => {
                let call = calls.iter().find(|call| call.id == *call_id);
                ChatMessage::user(form.result(call, name, content, calls.len()))
            }
        };
        // The templates of such models often take no two messages of one side in a row.
        match (told.last_mut(), next) {
            (Some(ChatMessage::User { content: before, images: seen }), ChatMessage::User { content, images }) => {
                before.push_str("\n\n");
                before.push_str(&content);
                seen.extend(images);
            }
            (Some(ChatMessage::Assistant { content: before, .. }), ChatMessage::Assistant { content, .. }) => {
                before.push_str("\n\n");
                before.push_str(&content);
            }
            (_, next) => told.push(next),
        }
    }
    told
}

/// Whether the conversation ends with results that nothing was made of yet.
pub fn ends_with_results(messages: &[ChatMessage]) -> bool {
    matches!(messages.last(), Some(ChatMessage::Tool { .. }))
}
