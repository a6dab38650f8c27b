//! The offline responder as a [`Provider`].

use async_trait::async_trait;

use super::{ChatRequest, ChatResponse, Delta, DeltaSink, LlmError, Provider};
use crate::chat::{ChatMessage, Usage};
use crate::offline::{OfflineAnswer, respond};

/// Name of the offline provider and of its model.
pub const OFFLINE: &str = "offline";

/// The approximate limit of the number of pieces in which a text is streamed.
const MAX_PIECES: usize = 64;

/// The rule-based responder inside this program: no account, no network, no model. It never fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfflineProvider;

#[async_trait]
impl Provider for OfflineProvider {
    fn name(&self) -> &'static str {
        OFFLINE
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let OfflineAnswer { text, tool_calls } = respond(&request.messages, &request.tools);
        for piece in pieces(&text) {
            sink.delta(Delta::Text(piece));
        }
        for call in &tool_calls {
            sink.delta(Delta::ToolCall { id: &call.id, name: &call.name });
        }
        let output_tokens = tool_calls.iter().fold(tokens(&text), |sum, call| sum + tokens(&call.arguments));
        let usage = Usage { input_tokens: input_tokens(request), output_tokens, ..Usage::default() };
        Ok(ChatResponse { text, tool_calls, model: OFFLINE.to_owned(), usage, ..ChatResponse::default() })
    }
}

/// Splits a text into pieces of about a word, or larger ones if it is long.
fn pieces(text: &str) -> Vec<&str> {
    let size = (text.chars().count() / MAX_PIECES).max(6);
    let mut pieces = Vec::new();
    let (mut start, mut chars) = (0, 0);
    for (at, c) in text.char_indices() {
        chars += 1;
        if chars >= size && (c == ' ' || !c.is_ascii() || chars >= 2 * size) {
            let end = at + c.len_utf8();
            pieces.push(&text[start..end]);
            (start, chars) = (end, 0);
        }
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}

fn input_tokens(request: &ChatRequest) -> u64 {
    let of_messages = request.messages.iter().map(|message| match &**message {
        ChatMessage::User { content, .. } | ChatMessage::Tool { content, .. } => tokens(content),
        ChatMessage::Assistant { content, tool_calls, .. } => {
            tool_calls.iter().fold(tokens(content), |sum, call| sum + tokens(&call.arguments))
        }
    });
    tokens(&request.system) + of_messages.sum::<u64>()
}

/// Estimates the tokens of a text: one for four ASCII characters, and one for any other character.
fn tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    let others = text.chars().filter(|c| !c.is_ascii()).count() as u64;
    ascii.div_ceil(4) + others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ToolSpec;
    use crate::llm::provider::DeltaRecorder;

    #[tokio::test]
    async fn the_streamed_pieces_make_the_response() {
        let list_dir =
            ToolSpec { name: "list_dir".into(), description: String::new(), parameters: serde_json::json!({}) };
        for text in ["hello", "你能做什么", "list files", "2 + 3\nlist files"] {
            let request = ChatRequest {
                messages: vec![ChatMessage::user(text).into()],
                tools: vec![list_dir.clone()].into(),
                ..ChatRequest::default()
            };
            let seen = DeltaRecorder::default();
            let response = OfflineProvider.chat(&request, &seen).await.expect("it never fails");
            let calls = response.tool_calls.iter().map(|call| format!("<{} {}>", call.name, call.id));
            let expected = response.text.clone() + &calls.collect::<String>();
            let deltas = seen.0.into_inner();
            assert_eq!(deltas.concat(), expected);
            assert!(response.text.len() < 40 || deltas.len() > 3, "{text}: streamed in {} pieces", deltas.len());
            assert!(deltas.len() <= MAX_PIECES + 2);
            let usage = response.usage;
            assert!(usage.input_tokens > 0 && usage.output_tokens > 0, "{usage:?}");
        }
    }

    #[test]
    fn usage_is_an_estimate() {
        assert_eq!((tokens(""), tokens("abcde"), tokens("你好ab")), (0, 2, 3));
    }
}
