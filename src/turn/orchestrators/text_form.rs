//! A conversation for a model without tools: calls and results are text, and the two sides alternate.

use crate::chat::{ChatMessage, ToolCall};

/// The text form of calls, results and answers.
pub trait TextForm {
    /// Returns the text of a model's message with its calls.
    fn assistant_text(&self, content: &str, calls: &[ToolCall]) -> String;

    /// Returns the text of the result of a call, one of `count` that were made together.
    fn result(&self, call: Option<&ToolCall>, name: &str, content: &str, count: usize) -> String;
}

/// Returns `messages` with their calls as text. A valid conversation stays valid.
pub fn as_text<'a>(messages: impl Iterator<Item = &'a ChatMessage>, form: &dyn TextForm) -> Vec<ChatMessage> {
    let mut converted: Vec<ChatMessage> = Vec::new();
    let mut calls: &[ToolCall] = &[];
    for message in messages {
        let next = match message {
            ChatMessage::User { .. } => message.clone(),
            ChatMessage::Assistant { content, tool_calls, .. } => {
                calls = tool_calls;
                ChatMessage::assistant(form.assistant_text(content, tool_calls))
            }
            ChatMessage::Tool { call_id, name, content, images } => {
                let call = calls.iter().find(|call| call.id == *call_id);
                ChatMessage::User { content: form.result(call, name, content, calls.len()), images: images.clone() }
            }
        };
        // The templates of such models often reject two consecutive messages of one side.
        match (converted.last_mut(), next) {
            (Some(ChatMessage::User { content: before, images: seen }), ChatMessage::User { content, images }) => {
                before.push_str("\n\n");
                before.push_str(&content);
                seen.extend(images);
            }
            (Some(ChatMessage::Assistant { content: before, .. }), ChatMessage::Assistant { content, .. }) => {
                before.push_str("\n\n");
                before.push_str(&content);
            }
            (_, next) => converted.push(next),
        }
    }
    converted
}
