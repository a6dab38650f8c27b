//! Assembles an answer from the data of its events, in order. No IO.

use serde_json::{Value, json};

use super::wire::{CacheWrites, Count, WireBlock, WireDelta, WireEvent, is_ping, is_unknown};
use crate::chat::{Reasoning, ToolCall, Usage};
use crate::llm::remote::{Assemble, AttemptError, ToolNames, is_json_object, shorten, unique_call_id};
use crate::llm::{ChatResponse, Delta, DeltaSink, LlmErrorKind};

/// The maximum number of blocks, tool calls among them, that one answer may hold.
const BLOCKS_LIMIT: usize = 512;
/// The field under which reasoning is stored.
const THINKING: &str = "thinking";

/// An answer that is being assembled.
pub(super) struct AnthropicAssembler<'a> {
    names: &'a ToolNames,
    sink: &'a dyn DeltaSink,
    /// The maximum size, in bytes, of text, reasoning and input together.
    limit: usize,
    size: usize,
    /// The blocks in order, each with its index.
    blocks: Vec<(u64, PartialBlock)>,
    model: String,
    count: Count,
    stop: Option<StopReason>,
    /// True for an answer that was not streamed, which does not show where a call was cut off.
    is_whole: bool,
    done: bool,
}

/// The reason why the model stopped.
#[derive(Debug, PartialEq)]
enum StopReason {
    End,
    Length,
    Refused(String),
}

enum PartialBlock {
    Text(String),
    Thinking {
        text: String,
        /// The service's signature. Some compatible services send none.
        signature: Option<String>,
    },
    /// Encrypted reasoning.
    Redacted(String),
    Call(PartialToolUse),
    /// A block of a type that the request does not ask for.
    Other,
}

struct PartialToolUse {
    id: String,
    name: String,
    /// The input, from its pieces; without pieces, the input at the beginning of the block.
    input: String,
    first_input: String,
}

impl<'a> AnthropicAssembler<'a> {
    pub(super) fn new(names: &'a ToolNames, limit: usize, sink: &'a dyn DeltaSink) -> Self {
        Self {
            names,
            sink,
            limit,
            size: 0,
            blocks: Vec::new(),
            model: String::new(),
            count: Count::default(),
            stop: None,
            is_whole: false,
            done: false,
        }
    }

    fn take(&mut self, event: WireEvent) -> Result<(), AttemptError> {
        self.add_count(event.usage);
        match event.kind.as_str() {
            "error" => return Err(fault(event.error)),
            "message_start" => {
                let message = event.message.unwrap_or_default();
                self.model = message.model.unwrap_or_default();
                self.add_count(message.usage);
            }
            "content_block_start" => {
                let index = event.index.unwrap_or(self.next_index());
                self.begin(index, event.content_block.unwrap_or_default())?;
            }
            "content_block_delta" => {
                let index = event.index.unwrap_or(self.next_index().saturating_sub(1));
                self.add(index, event.delta.unwrap_or_default())?;
            }
            "message_delta" => {
                let delta = event.delta.unwrap_or_default();
                if let Some(reason) = delta.stop_reason {
                    self.stop = Some(read_stop(&reason, delta.stop_details.and_then(|details| details.explanation)));
                }
            }
            "message_stop" => self.done = true,
            "message" => self.take_whole(event)?,
            // Some compatible services omit the type.
            _ if !event.error.is_null() => return Err(fault(event.error)),
            "" if event.content.is_some() => self.take_whole(event)?,
            _ => {}
        }
        Ok(())
    }

    fn take_whole(&mut self, event: WireEvent) -> Result<(), AttemptError> {
        self.model = event.model.unwrap_or_default();
        for (index, block) in (0..).zip(event.content.unwrap_or_default()) {
            self.begin(index, block)?;
        }
        // An answer that was not streamed has ended, even if it gives no reason.
        let reason = event.stop_reason.unwrap_or_default();
        self.stop = Some(read_stop(&reason, event.stop_details.and_then(|details| details.explanation)));
        self.is_whole = true;
        self.done = true;
        Ok(())
    }

    fn next_index(&self) -> u64 {
        self.blocks.iter().map(|(index, _)| index.saturating_add(1)).max().unwrap_or(0)
    }

    fn begin(&mut self, index: u64, block: WireBlock) -> Result<(), AttemptError> {
        if self.blocks.len() >= BLOCKS_LIMIT {
            return Err(AttemptError::unusable(format!("the answer holds more than {BLOCKS_LIMIT} blocks")));
        }
        let mut first = WireDelta::default();
        let made = match block.kind.as_str() {
            "text" => {
                first.text = block.text;
                PartialBlock::Text(String::new())
            }
            THINKING => {
                (first.thinking, first.signature) = (block.thinking, block.signature);
                PartialBlock::Thinking { text: String::new(), signature: None }
            }
            "redacted_thinking" => {
                let data = block.data.unwrap_or_default();
                self.grow(&data)?;
                PartialBlock::Redacted(data)
            }
            "tool_use" => PartialBlock::Call(self.begin_call(block)?),
            _ => PartialBlock::Other,
        };
        self.blocks.push((index, made));
        self.add(index, first)
    }

    fn begin_call(&mut self, block: WireBlock) -> Result<PartialToolUse, AttemptError> {
        let name = block.name.unwrap_or_default();
        if name.is_empty() {
            return Err(AttemptError::unusable("a tool call came without a name"));
        }
        let input = block.input.unwrap_or_default();
        let first_input = if input.is_empty() { String::new() } else { Value::Object(input).to_string() };
        let is_taken =
            |id: &str| self.blocks.iter().any(|(_, block)| matches!(block, PartialBlock::Call(call) if call.id == id));
        let id = unique_call_id(&block.id.unwrap_or_default(), self.blocks.len() + 1, is_taken);
        for part in [&name, &first_input, &id] {
            self.grow(part)?;
        }
        let call =
            PartialToolUse { id, name: self.names.original_name(&name).to_owned(), input: String::new(), first_input };
        self.sink.delta(Delta::ToolCall { id: &call.id, name: &call.name });
        Ok(call)
    }

    fn add(&mut self, index: u64, delta: WireDelta) -> Result<(), AttemptError> {
        for piece in [&delta.text, &delta.thinking, &delta.signature, &delta.partial_json].into_iter().flatten() {
            self.grow(piece)?;
        }
        let Some((_, block)) = self.blocks.iter_mut().rev().find(|(other, _)| *other == index) else {
            return Err(AttemptError::unusable("a piece came of a block that has not begun"));
        };
        match block {
            PartialBlock::Text(text) => {
                let piece = delta.text.unwrap_or_default();
                text.push_str(&piece);
                if !piece.is_empty() {
                    self.sink.delta(Delta::Text(&piece));
                }
            }
            PartialBlock::Thinking { text, signature } => {
                let piece = delta.thinking.unwrap_or_default();
                text.push_str(&piece);
                if !piece.is_empty() {
                    self.sink.delta(Delta::Reasoning(&piece));
                }
                if let Some(piece) = delta.signature {
                    signature.get_or_insert_default().push_str(&piece);
                }
            }
            PartialBlock::Call(call) => call.input.push_str(&delta.partial_json.unwrap_or_default()),
            PartialBlock::Redacted(_) | PartialBlock::Other => {}
        }
        Ok(())
    }

    fn grow(&mut self, piece: &str) -> Result<(), AttemptError> {
        self.size += piece.len();
        if self.size > self.limit {
            return Err(AttemptError::too_long(self.limit));
        }
        Ok(())
    }

    /// Adds a token count, which covers the whole answer so far. Some services count only in the first event, others only in
    /// the last.
    fn add_count(&mut self, count: Option<Count>) {
        let Some(count) = count else { return };
        self.count = Count {
            input_tokens: self.count.input_tokens.max(count.input_tokens),
            output_tokens: self.count.output_tokens.max(count.output_tokens),
            cache_read_input_tokens: self.count.cache_read_input_tokens.max(count.cache_read_input_tokens),
            cache_creation_input_tokens: self.count.cache_creation_input_tokens.max(count.cache_creation_input_tokens),
            cache_creation: match (self.count.cache_creation, count.cache_creation) {
                (Some(before), Some(now)) => Some(CacheWrites {
                    ephemeral_1h_input_tokens: before.ephemeral_1h_input_tokens.max(now.ephemeral_1h_input_tokens),
                }),
                (before, now) => before.or(now),
            },
        };
    }

    /// Drops the last call, which the length limit may have cut: half a command does harm.
    fn drop_cut_call(&mut self) {
        if let Some((_, PartialBlock::Call(call))) = self.blocks.last()
            && (self.is_whole || !is_json_object(call.written()))
        {
            self.blocks.pop();
        }
        self.blocks.retain(|(_, block)| match block {
            PartialBlock::Call(call) => is_json_object(&call.arguments()),
            _ => true,
        });
    }
}

impl Assemble for AnthropicAssembler<'_> {
    fn push(&mut self, piece: &str) -> Result<(), AttemptError> {
        match serde_json::from_str(piece) {
            Ok(event) => self.take(event),
            Err(_) if is_unknown(piece) => Ok(()),
            Err(error) => Err(AttemptError::unreadable(&error, piece)),
        }
    }

    fn has_data(&self, piece: &str) -> bool {
        !is_ping(piece)
    }

    fn set_done(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done || self.stop.is_some()
    }

    fn into_response(mut self: Box<Self>, asked: &str) -> Result<ChatResponse, AttemptError> {
        let ended = Some(StopReason::End).filter(|_| self.done && !self.blocks.is_empty());
        let Some(stop) = self.stop.take().or(ended) else {
            let (kind, words) = if self.done {
                (LlmErrorKind::Parse, "there is no answer in what the service sent")
            } else {
                (LlmErrorKind::Connection, "the connection ended before the answer was complete")
            };
            return Err(AttemptError::new(kind, words));
        };
        if let StopReason::Refused(words) = stop {
            return Err(AttemptError::new(LlmErrorKind::Refused, words).publicly("the service withheld the answer"));
        }
        let truncated = stop == StopReason::Length;
        if truncated {
            self.drop_cut_call();
        }
        let usage = usage(&self.count);
        let mut response =
            ChatResponse { model: self.model, usage, truncated, reasoning: None, ..ChatResponse::default() };
        if response.model.is_empty() {
            asked.clone_into(&mut response.model);
        }
        for (_, block) in self.blocks {
            add_block(&mut response, block);
        }
        Ok(response)
    }
}

impl PartialToolUse {
    /// Returns the input as the model wrote it, which may be empty.
    fn written(&self) -> &str {
        if self.input.trim().is_empty() { &self.first_input } else { &self.input }
    }

    fn arguments(&self) -> String {
        let written = self.written();
        if written.is_empty() { "{}".to_owned() } else { written.to_owned() }
    }
}

fn add_block(response: &mut ChatResponse, block: PartialBlock) {
    let mut think = |text: &str, block: Value| {
        let empty = || Reasoning { field: THINKING.to_owned(), ..Reasoning::default() };
        let reasoning = response.reasoning.get_or_insert_with(empty);
        if !reasoning.text.is_empty() && !text.is_empty() {
            reasoning.text.push_str("\n\n");
        }
        reasoning.text.push_str(text);
        reasoning.blocks.push(block);
    };
    match block {
        PartialBlock::Text(text) => response.text.push_str(&text),
        PartialBlock::Thinking { text, signature: Some(signature) } => {
            think(&text, json!({"type": THINKING, THINKING: text, "signature": signature}));
        }
        PartialBlock::Thinking { text, signature: None } => think(&text, json!({"type": THINKING, THINKING: text})),
        PartialBlock::Redacted(data) => think("", json!({"type": "redacted_thinking", "data": data})),
        PartialBlock::Call(call) => {
            let arguments = call.arguments();
            response.tool_calls.push(ToolCall { id: call.id, name: call.name, arguments });
        }
        PartialBlock::Other => {}
    }
}

fn usage(count: &Count) -> Usage {
    let cached_tokens = count.cache_read_input_tokens.unwrap_or_default();
    let fresh = [count.input_tokens, count.cache_creation_input_tokens];
    Usage {
        input_tokens: fresh.into_iter().flatten().fold(cached_tokens, u64::saturating_add),
        output_tokens: count.output_tokens.unwrap_or_default(),
        cached_tokens,
        written_tokens: count.cache_creation_input_tokens.unwrap_or_default(),
        written_for_hour_tokens: count
            .cache_creation
            .and_then(|writes| writes.ephemeral_1h_input_tokens)
            .unwrap_or_default(),
    }
}

fn read_stop(reason: &str, explanation: Option<String>) -> StopReason {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => {
            let words = explanation.filter(|words| !words.trim().is_empty());
            let words = words.map_or(String::new(), |words| format!(": {}", shorten(&words)));
            StopReason::Refused(format!("the service withheld the answer{words}"))
        }
        // Other reasons are `end_turn`, `tool_use` and `stop_sequence`, and `pause_turn`, which only the service's own tools
        // cause.
        _ => StopReason::End,
    }
}

/// Converts an error event. An event inside a stream has no HTTP status, so its type replaces the status (Anthropic's API
/// reference, "Errors").
fn fault(mut error: Value) -> AttemptError {
    let status = match error["type"].as_str().unwrap_or_default() {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "timeout_error" => 408,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "overloaded_error" => 529,
        _ => 500,
    };
    if let Some(fields) = error.as_object_mut().filter(|fields| !fields.contains_key("code")) {
        fields.insert("code".to_owned(), status.into());
    }
    AttemptError::from_object(&error)
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
