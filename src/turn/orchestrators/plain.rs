//! A model that only answers: one call, no tools.

use std::sync::Arc;

use async_trait::async_trait;

use super::text_form::{TextForm, as_text};
use crate::chat::ToolCall;
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, LlmError, Provider};

/// Asks the model without tools. Earlier calls of the conversation are written as text.
pub struct PlainModel(pub Arc<dyn Provider>);

#[async_trait]
impl Provider for PlainModel {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn body(&self, request: &ChatRequest) -> Result<Vec<u8>, LlmError> {
        self.0.body(&without_tools(request))
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let mut response = self.0.chat(&without_tools(request), &WithoutCalls(sink)).await?;
        response.tool_calls.clear();
        Ok(response)
    }
}

fn without_tools(request: &ChatRequest) -> ChatRequest {
    let messages = as_text(request.messages.iter().map(Arc::as_ref), &PlainForm).into_iter().map(Arc::new).collect();
    ChatRequest { messages, tools: Arc::default(), ..request.clone() }
}

/// A sink that hides calls of a model that was offered no tools.
struct WithoutCalls<'a>(&'a dyn DeltaSink);

impl DeltaSink for WithoutCalls<'_> {
    fn delta(&self, delta: Delta<'_>) {
        if !matches!(delta, Delta::ToolCall { .. }) {
            self.0.delta(delta);
        }
    }
}

struct PlainForm;

impl TextForm for PlainForm {
    fn assistant_text(&self, content: &str, calls: &[ToolCall]) -> String {
        let calls = calls.iter().map(|call| format!("[I used the tool {} with {}]", call.name, call.arguments));
        let text = [content.trim().to_owned()].into_iter().filter(|content| !content.is_empty());
        text.chain(calls).collect::<Vec<_>>().join("\n")
    }

    fn result(&self, _: Option<&ToolCall>, name: &str, content: &str, _: usize) -> String {
        format!("[The tool {name} answered]\n{content}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatMessage;

    #[test]
    fn earlier_calls_become_text() {
        let call = ToolCall { id: "1".to_owned(), name: "now".to_owned(), arguments: "{}".to_owned() };
        let messages = [
            ChatMessage::user("time?"),
            ChatMessage::Assistant { content: "I look.".to_owned(), reasoning: None, tool_calls: vec![call] },
            ChatMessage::Tool {
                call_id: "1".to_owned(),
                name: "now".to_owned(),
                content: "12:00".to_owned(),
                images: Vec::new(),
            },
            ChatMessage::assistant("Noon."),
            ChatMessage::user("thanks"),
        ];
        let expected = [
            ChatMessage::user("time?"),
            ChatMessage::assistant("I look.\n[I used the tool now with {}]"),
            ChatMessage::user("[The tool now answered]\n12:00"),
            ChatMessage::assistant("Noon."),
            ChatMessage::user("thanks"),
        ];
        assert_eq!(as_text(messages.iter(), &PlainForm), expected);
    }
}
