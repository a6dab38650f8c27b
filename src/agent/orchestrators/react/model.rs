//! A model without tools as one that has them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::super::told::{as_text, ends_with_results};
use super::format::{LAST_WORD, ReactForm, system_prompt};
use super::reader::{Piece, Read, Reader};
use crate::agent::think::{self, ThinkFilter};
use crate::chat::{ChatMessage, Reasoning, ToolSpec};
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, LlmError, Provider};

/// Tells the model of its tools in words and reads its calls out of what it writes. Whoever asks sees calls and results
/// as of any other model, so that the journal, the limits and the session are the same.
pub struct ReactModel {
    inner: Arc<dyn Provider>,
}

impl ReactModel {
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl Provider for ReactModel {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn takes_tools(&self, _: &str) -> bool {
        true
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let began = Instant::now();
        let told = tell(request);
        let watch =
            Watched { tools: &request.tools, sink, state: Mutex::new(State::new(&request.tools)), over: Notify::new() };
        let response = tokio::select! {
            biased;
            response = self.inner.chat(&told, &watch) => response?,
            // What the model goes on with is made up; it is left at once.
            () = watch.over.notified() => ChatResponse {
                text: watch.lock().text.clone(),
                model: request.model.clone(),
                latency_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                ..ChatResponse::default()
            },
        };
        let Read { thought, answer, mut calls } = watch.read(&response);
        let is_call = !calls.is_empty() || !response.tool_calls.is_empty();
        let mut tool_calls = response.tool_calls;
        tool_calls.append(&mut calls);
        let mut reasoning = response.reasoning;
        if !is_call && reasoning.is_none() && !thought.is_empty() {
            // Without a provider's name: no service wants it back.
            reasoning = Some(Reasoning { field: "thought".to_owned(), text: thought.clone(), ..Reasoning::default() });
        }
        let text = if is_call { thought } else { answer };
        Ok(ChatResponse { text, reasoning, tool_calls, ..response })
    }
}

/// The request as the model reads it.
fn tell(request: &ChatRequest) -> ChatRequest {
    let mut messages = as_text(&request.messages, &ReactForm { tools: &request.tools });
    if request.tools.is_empty()
        && ends_with_results(&request.messages)
        && let Some(ChatMessage::User { content, .. }) = messages.last_mut()
    {
        content.push_str("\n\n");
        content.push_str(LAST_WORD);
    }
    ChatRequest {
        system: system_prompt(&request.system, &request.tools).into(),
        messages,
        tools: Arc::default(),
        ..request.clone()
    }
}

/// What has come of an answer.
struct State<'a> {
    /// As it came.
    text: String,
    filter: ThinkFilter,
    reader: Reader<'a>,
    /// A think block came last: the thought that follows begins a line of its own.
    after_block: bool,
}

impl<'a> State<'a> {
    fn new(tools: &'a [ToolSpec]) -> Self {
        Self { text: String::new(), filter: ThinkFilter::default(), reader: Reader::new(tools), after_block: false }
    }

    fn read(&mut self, pieces: Vec<think::Piece>) -> Vec<Piece> {
        let mut read = Vec::new();
        for piece in pieces {
            match piece {
                think::Piece::Thought(text) => {
                    self.after_block = true;
                    read.push(Piece::Thought(text));
                }
                think::Piece::Text(text) => {
                    for mut piece in self.reader.push(&text) {
                        if let Piece::Thought(thought) = &mut piece
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

/// Reads an answer while it arrives and shows what it is.
struct Watched<'a> {
    tools: &'a [ToolSpec],
    sink: &'a dyn DeltaSink,
    state: Mutex<State<'a>>,
    over: Notify,
}

impl<'a> Watched<'a> {
    /// The whole answer; what its service did not stream is shown now.
    fn read(self, response: &ChatResponse) -> Read {
        if self.lock().text != response.text {
            if !self.lock().text.is_empty() {
                self.delta(Delta::Restart);
            }
            self.delta(Delta::Text(&response.text));
        }
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let held = state.filter.finish();
        let mut pieces = state.read(held);
        let (read, rest) = state.reader.finish(response.truncated);
        pieces.extend(rest);
        show(&pieces, self.sink);
        read
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeltaSink for Watched<'_> {
    fn delta(&self, delta: Delta<'_>) {
        let Delta::Text(text) = delta else {
            if delta == Delta::Restart {
                *self.lock() = State::new(self.tools);
            }
            return self.sink.delta(delta);
        };
        let (pieces, is_over) = {
            let mut state = self.lock();
            state.text.push_str(text);
            let told_apart = state.filter.push(text);
            (state.read(told_apart), state.reader.is_over())
        };
        show(&pieces, self.sink);
        if is_over {
            self.over.notify_one();
        }
    }
}

fn show(pieces: &[Piece], sink: &dyn DeltaSink) {
    for piece in pieces {
        sink.delta(match piece {
            Piece::Thought(text) => Delta::Reasoning(text),
            Piece::Text(text) => Delta::Text(text),
            Piece::Call { id, name } => Delta::ToolCall { id, name },
            Piece::Void => Delta::Restart,
        });
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
