//! A model without native tool calls that uses tools through ReAct.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::format::{FINAL_ANSWER_NOTE, ReactForm, system_prompt};
use super::reader::{ReactAnswer, ReactPiece, ReactReader};
use crate::chat::{ChatMessage, Reasoning, ToolSpec};
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, LlmError, Provider};
use crate::text::think::{self, ThinkFilter};
use crate::turn::orchestrators::text_form::as_text;

/// Describes the tools to the model in the prompt and parses its calls from its text. Callers see calls and results as
/// with any other model, so the journal, the limits and the session are the same.
pub struct ReactModel(pub Arc<dyn Provider>);

#[async_trait]
impl Provider for ReactModel {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn takes_tools(&self, _: &str) -> bool {
        true
    }

    fn body(&self, request: &ChatRequest) -> Result<Vec<u8>, LlmError> {
        self.0.body(&to_react_request(request))
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let began = Instant::now();
        let react_request = to_react_request(request);
        let watch = ReactSink {
            tools: &request.tools,
            sink,
            state: Mutex::new(AnswerState::new(&request.tools)),
            over: Notify::new(),
        };
        let response = tokio::select! {
            biased;
            response = self.0.chat(&react_request, &watch) => response?,
            // Everything that the model writes from here on is invented, so the request is dropped.
            () = watch.over.notified() => ChatResponse {
                text: watch.state.lock().text.clone(),
                model: request.model.clone(),
                latency_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                ..ChatResponse::default()
            },
        };
        let ReactAnswer { thought, answer, mut calls } = watch.read(&response);
        if response.filtered {
            // The service withdrew this answer, so nothing of it may take effect.
            calls.clear();
        }
        let is_call = !calls.is_empty() || !response.tool_calls.is_empty();
        let mut tool_calls = response.tool_calls;
        tool_calls.append(&mut calls);
        let mut reasoning = response.reasoning;
        if !is_call && reasoning.is_none() && !thought.is_empty() {
            // Without a provider's name, since no service requires this reasoning in later requests.
            reasoning = Some(Reasoning { field: "thought".to_owned(), text: thought.clone(), ..Reasoning::default() });
        }
        let text = if is_call { thought } else { answer };
        Ok(ChatResponse { text, reasoning, tool_calls, ..response })
    }
}

/// Returns the request in the ReAct format.
fn to_react_request(request: &ChatRequest) -> ChatRequest {
    let mut messages = as_text(request.messages.iter().map(Arc::as_ref), &ReactForm { tools: &request.tools });
    if request.tools.is_empty()
        && matches!(request.messages.last().map(Arc::as_ref), Some(ChatMessage::Tool { .. }))
        && let Some(ChatMessage::User { content, .. }) = messages.last_mut()
    {
        content.push_str("\n\n");
        content.push_str(FINAL_ANSWER_NOTE);
    }
    ChatRequest {
        system: system_prompt(&request.system, &request.tools).into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: Arc::default(),
        ..request.clone()
    }
}

/// The parsed state of an answer that is arriving.
#[derive(Default)]
struct AnswerState<'a> {
    /// The text as it arrived.
    text: String,
    filter: ThinkFilter,
    reader: ReactReader<'a>,
    /// A think block came last, so the next thought starts a new line.
    after_block: bool,
}

impl<'a> AnswerState<'a> {
    fn new(tools: &'a [ToolSpec]) -> Self {
        Self { reader: ReactReader::new(tools), ..Self::default() }
    }

    fn read(&mut self, pieces: Vec<think::ThinkPiece>) -> Vec<ReactPiece> {
        let mut read = Vec::new();
        for piece in pieces {
            match piece {
                think::ThinkPiece::Thought(text) => {
                    self.after_block = true;
                    read.push(ReactPiece::Thought(text));
                }
                think::ThinkPiece::Text(text) => {
                    for mut piece in self.reader.push(&text) {
                        if let ReactPiece::Thought(thought) = &mut piece
                            && std::mem::take(&mut self.after_block)
                        {
                            thought.insert(0, '\n');
                        }
                        read.push(piece);
                    }
                }
            }
        }
        read
    }
}

/// A sink that parses an answer while it arrives, and emits its parts.
struct ReactSink<'a> {
    tools: &'a [ToolSpec],
    sink: &'a dyn DeltaSink,
    state: Mutex<AnswerState<'a>>,
    over: Notify,
}

impl ReactSink<'_> {
    /// Returns the whole answer; emits the text that the service did not stream.
    fn read(self, response: &ChatResponse) -> ReactAnswer {
        let text = think::after_unopened_block(&response.text).unwrap_or(&response.text);
        if self.state.lock().text != text {
            if !self.state.lock().text.is_empty() {
                self.delta(Delta::Restart);
            }
            self.delta(Delta::Text(text));
        }
        let mut state = self.state.into_inner();
        let held = state.filter.finish();
        let mut pieces = state.read(held);
        let (read, rest) = state.reader.finish(response.truncated);
        pieces.extend(rest);
        show(&pieces, self.sink);
        read
    }
}

impl DeltaSink for ReactSink<'_> {
    fn delta(&self, delta: Delta<'_>) {
        let Delta::Text(text) = delta else {
            if delta == Delta::Restart {
                *self.state.lock() = AnswerState::new(self.tools);
            }
            return self.sink.delta(delta);
        };
        let (pieces, is_over) = {
            let mut state = self.state.lock();
            state.text.push_str(text);
            let pieces = state.filter.push(text);
            (state.read(pieces), state.reader.is_over())
        };
        show(&pieces, self.sink);
        if is_over {
            self.over.notify_one();
        }
    }
}

fn show(pieces: &[ReactPiece], sink: &dyn DeltaSink) {
    for piece in pieces {
        sink.delta(match piece {
            ReactPiece::Thought(text) => Delta::Reasoning(text),
            ReactPiece::Text(text) => Delta::Text(text),
            ReactPiece::Call { id, name } => Delta::ToolCall { id, name },
            ReactPiece::Void => Delta::Restart,
        });
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
