//! Assembles an answer from the data of its events, in order. No IO.

use serde_json::Value;

use super::quirks::ReasoningField;
use super::wire::{OpenaiWireMessage, WireAnswer, WireCall, WireFunction, call_block};
use crate::chat::{Reasoning, ToolCall, Usage, read_token_count};
use crate::llm::remote::{Assemble, AttemptError, ToolNames, is_json_object, unique_call_id};
use crate::llm::{ChatResponse, Delta, DeltaSink, LlmErrorKind};

/// The maximum number of calls that one answer may hold.
const CALLS_LIMIT: usize = 256;

/// An answer that is being assembled.
pub(super) struct OpenaiAssembler<'a> {
    names: &'a ToolNames,
    sink: &'a dyn DeltaSink,
    /// The maximum size, in bytes, of text, reasoning and arguments together.
    limit: usize,
    size: usize,
    text: String,
    reasoning: Option<Reasoning>,
    calls: Vec<PartialCall>,
    model: String,
    usage: Usage,
    has_choice: bool,
    finish: Option<FinishReason>,
    done: bool,
}

/// The reason why the model stopped.
#[derive(Clone, Copy, PartialEq)]
enum FinishReason {
    Stop,
    Length,
    Filter,
}

/// The meaning of a list of calls.
#[derive(Clone, Copy, PartialEq)]
enum CallPieces {
    /// Each entry is a part of a call.
    Parts,
    /// Each entry is a whole call.
    Whole,
}

struct PartialCall {
    /// The index that the service gave, if any.
    index: Option<u64>,
    /// The service's id; empty if it gave none.
    sent_id: String,
    /// The call's id in this program, unique in the answer.
    id: String,
    name: String,
    arguments: String,
    /// The service's own block for the call; `null` if none came.
    extra_content: Value,
}

impl<'a> OpenaiAssembler<'a> {
    pub(super) fn new(names: &'a ToolNames, limit: usize, sink: &'a dyn DeltaSink) -> Self {
        Self {
            names,
            sink,
            limit,
            size: 0,
            text: String::new(),
            reasoning: None,
            calls: Vec::new(),
            model: String::new(),
            usage: Usage::default(),
            has_choice: false,
            finish: None,
            done: false,
        }
    }

    fn add(&mut self, message: &OpenaiWireMessage, pieces: CallPieces) -> Result<(), AttemptError> {
        // Some services send the same reasoning in both fields.
        let fields =
            [(ReasoningField::Content, &message.reasoning_content), (ReasoningField::Plain, &message.reasoning)];
        for (field, text) in fields {
            self.push_reasoning(field, text.as_str())?;
        }
        for block in message.reasoning_details.as_array().into_iter().flatten() {
            self.add_block(block)?;
        }
        // A refusal by the model counts as its answer.
        for text in [&message.content, &message.refusal].into_iter().filter(|text| !text.is_empty()) {
            self.grow(text.as_str().len())?;
            self.text.push_str(text.as_str());
            self.sink.delta(Delta::Text(text.as_str()));
        }
        for call in message.tool_calls.iter().flatten() {
            self.add_call(call, pieces)?;
        }
        if let Some(function) = &message.function_call
            && message.tool_calls.as_ref().is_none_or(Vec::is_empty)
        {
            self.add_function_call(function)?;
        }
        Ok(())
    }

    /// Adds reasoning from one field. Reasoning in another field repeats the same text, and is skipped.
    fn push_reasoning(&mut self, field: ReasoningField, text: &str) -> Result<(), AttemptError> {
        let is_other = |reasoning: &Reasoning| reasoning.field != field.name();
        if text.is_empty() || self.reasoning.as_ref().is_some_and(is_other) {
            return Ok(());
        }
        self.grow(text.len())?;
        self.reasoning(field).text.push_str(text);
        self.sink.delta(Delta::Reasoning(text));
        Ok(())
    }

    /// Adds a block of reasoning. Pieces of one text become one block; all other blocks are kept unchanged.
    fn add_block(&mut self, block: &Value) -> Result<(), AttemptError> {
        self.grow(block.to_string().len())?;
        let text = ["text", "summary"].iter().find_map(|name| block[*name].as_str()).unwrap_or_default();
        self.push_reasoning(ReasoningField::Details, text)?;
        let blocks = &mut self.reasoning(ReasoningField::Details).blocks;
        let is_text = matches!(block["type"].as_str(), Some("reasoning.text" | "reasoning.summary"));
        match (blocks.last_mut(), block.as_object()) {
            (Some(last), Some(fields))
                if is_text && last["type"] == block["type"] && last["index"] == block["index"] =>
            {
                for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                    match (&mut last[name.as_str()], value) {
                        (Value::String(before), Value::String(more)) if matches!(name.as_str(), "text" | "summary") => {
                            before.push_str(more);
                        }
                        (before, value) => *before = value.clone(),
                    }
                }
            }
            _ => blocks.push(block.clone()),
        }
        Ok(())
    }

    /// Returns the reasoning so far; if there is none, begins it with this field.
    fn reasoning(&mut self, field: ReasoningField) -> &mut Reasoning {
        self.reasoning.get_or_insert_with(|| Reasoning { field: field.name().to_owned(), ..Reasoning::default() })
    }

    fn add_function_call(&mut self, function: &WireFunction) -> Result<(), AttemptError> {
        let (name, arguments) = (function.name.as_str(), function.arguments.as_str());
        if name.is_empty() && self.calls.is_empty() {
            return Ok(());
        }
        self.grow(name.len() + arguments.len())?;
        let place = if self.calls.is_empty() { self.begin_call(None, "")? } else { 0 };
        self.add_to_call(place, name, arguments);
        Ok(())
    }

    fn add_call(&mut self, piece: &WireCall, pieces: CallPieces) -> Result<(), AttemptError> {
        let (name, arguments) =
            piece.function.as_ref().map_or(("", ""), |function| (function.name.as_str(), function.arguments.as_str()));
        self.grow(name.len() + arguments.len())?;
        let (index, id) = (piece.index.as_u64(), piece.id.as_str());
        let place = match self.place_of(index, id, name, arguments) {
            Some(place) if pieces == CallPieces::Parts => place,
            _ => self.begin_call(index, id)?,
        };
        if !piece.extra_content.is_null() {
            self.grow(piece.extra_content.to_string().len())?;
            self.calls[place].extra_content = piece.extra_content.clone();
        }
        self.add_to_call(place, name, arguments);
        Ok(())
    }

    fn add_to_call(&mut self, place: usize, name: &str, arguments: &str) {
        let call = &mut self.calls[place];
        call.arguments.push_str(arguments);
        if call.name.is_empty() && !name.is_empty() {
            self.names.original_name(name).clone_into(&mut call.name);
            self.sink.delta(Delta::ToolCall { id: &call.id, name: &call.name });
        }
    }

    /// Returns the call that a piece belongs to; `None` if it begins a new one. The index identifies the call; without an
    /// index, the id does; without both, it is the last call. Some services give all calls the same index (Gemini) or the same
    /// id: then a name with arguments begins a new call if the previous call is complete.
    fn place_of(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        let place = match index {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index))?,
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.sent_id == id)?,
            None => self.calls.len().checked_sub(1)?,
        };
        let call = &self.calls[place];
        if name.is_empty() || call.name.is_empty() {
            return Some(place);
        }
        let is_other = (!id.is_empty() && !call.sent_id.is_empty() && id != call.sent_id)
            || self.names.original_name(name) != call.name
            || (!arguments.is_empty() && is_json_object(&call.arguments));
        (!is_other).then_some(place)
    }

    fn begin_call(&mut self, index: Option<u64>, sent_id: &str) -> Result<usize, AttemptError> {
        if self.calls.len() >= CALLS_LIMIT {
            return Err(AttemptError::unusable(format!("the answer holds more than {CALLS_LIMIT} tool calls")));
        }
        let is_taken = |id: &str| self.calls.iter().any(|call| call.id == id);
        let id = unique_call_id(sent_id, self.calls.len() + 1, is_taken);
        self.calls.push(PartialCall {
            index,
            sent_id: sent_id.to_owned(),
            id,
            name: String::new(),
            arguments: String::new(),
            extra_content: Value::Null,
        });
        Ok(self.calls.len() - 1)
    }

    fn grow(&mut self, bytes: usize) -> Result<(), AttemptError> {
        self.size += bytes;
        if self.size > self.limit {
            return Err(AttemptError::too_long(self.limit));
        }
        Ok(())
    }

    /// Takes a token count. Some services send a count with every piece; the last one is valid. An empty count is ignored.
    fn count(&mut self, usage: &Value) {
        // Most pieces have no count.
        if usage.is_null() {
            return;
        }
        let first = |names: &[&str]| names.iter().find_map(|name| read_token_count(usage.get(*name)?));
        let detailed =
            usage.get("prompt_tokens_details").and_then(|details| read_token_count(details.get("cached_tokens")?));
        let input_tokens = first(&["prompt_tokens", "input_tokens"]).unwrap_or_default();
        let output_tokens = first(&["completion_tokens", "output_tokens"]).unwrap_or_default();
        // Some services count reasoning only in the total, and charge for it as output.
        let rest = first(&["total_tokens"]).unwrap_or_default().saturating_sub(input_tokens);
        let counted = Usage {
            input_tokens,
            output_tokens: output_tokens.max(rest),
            cached_tokens: detailed
                .or_else(|| first(&["prompt_cache_hit_tokens", "cached_tokens"]))
                .unwrap_or_default(),
            ..Usage::default()
        };
        if counted != Usage::default() {
            self.usage = counted;
        }
    }
}

impl Assemble for OpenaiAssembler<'_> {
    fn push(&mut self, piece: &str) -> Result<(), AttemptError> {
        if piece.trim() == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let answer: WireAnswer =
            serde_json::from_str(piece).map_err(|error| AttemptError::unreadable(&error, piece))?;
        check_error(&answer, piece)?;
        if self.model.is_empty() && !answer.model.is_empty() {
            answer.model.as_str().clone_into(&mut self.model);
        }
        self.count(&answer.usage);
        // The request asks for one choice, so further ones are ignored.
        let choices = answer.choices.unwrap_or_default().into_iter();
        for choice in choices.filter(|choice| choice.index.as_u64().is_none_or(|index| index == 0)) {
            self.has_choice = true;
            self.count(&choice.usage);
            if let Some(message) = &choice.delta {
                self.add(message, CallPieces::Parts)?;
            } else if let Some(message) = &choice.message {
                self.add(message, CallPieces::Whole)?;
            }
            if !choice.finish_reason.is_empty() {
                self.finish = Some(read_finish(choice.finish_reason.as_str())?);
            }
        }
        Ok(())
    }

    fn set_done(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done || self.finish.is_some()
    }

    fn into_response(mut self: Box<Self>, asked: &str) -> Result<ChatResponse, AttemptError> {
        if !self.is_complete() {
            return Err(AttemptError::new(
                LlmErrorKind::Connection,
                "the connection ended before the answer was complete",
            ));
        }
        if !self.has_choice {
            return Err(AttemptError::unusable("there is no answer in what the service sent"));
        }
        let truncated = self.finish == Some(FinishReason::Length);
        if truncated {
            // The length limit may have cut the last call, and half a command does harm.
            self.calls.retain(|call| !call.name.is_empty() && is_json_object(&call.arguments));
        }
        let filtered = self.finish == Some(FinishReason::Filter);
        if filtered {
            // The service withdrew this answer, so nothing of it may take effect.
            self.calls.clear();
        }
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(AttemptError::unusable("a tool call came without a name"));
        }
        if filtered && self.text.is_empty() {
            return Err(AttemptError::new(LlmErrorKind::Refused, "the service's content filter withheld the answer"));
        }
        for (index, call) in self.calls.iter().enumerate().filter(|(_, call)| !call.extra_content.is_null()) {
            let empty = || Reasoning { field: "extra_content".to_owned(), ..Reasoning::default() };
            self.reasoning.get_or_insert_with(empty).blocks.push(call_block(index, &call.extra_content));
        }
        Ok(ChatResponse {
            text: self.text,
            reasoning: self.reasoning,
            tool_calls: self.calls.into_iter().map(PartialCall::finish).collect(),
            model: if self.model.is_empty() { asked.to_owned() } else { self.model },
            usage: self.usage,
            truncated,
            filtered,
            ..ChatResponse::default()
        })
    }
}

impl PartialCall {
    fn finish(self) -> ToolCall {
        let arguments = if self.arguments.trim().is_empty() { "{}".to_owned() } else { self.arguments };
        ToolCall { id: self.id, name: self.name, arguments }
    }
}

fn check_error(answer: &WireAnswer, piece: &str) -> Result<(), AttemptError> {
    let has_error = match &answer.error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    if has_error {
        return Err(AttemptError::from_object(&answer.error));
    }
    if answer.object.as_str() == "error" {
        return Err(AttemptError::from_object(&serde_json::from_str(piece).unwrap_or(Value::Null)));
    }
    Ok(())
}

fn read_finish(reason: &str) -> Result<FinishReason, AttemptError> {
    match reason {
        "length" | "max_tokens" | "model_length" => Ok(FinishReason::Length),
        "content_filter" | "sensitive" => Ok(FinishReason::Filter),
        // These reasons are from OpenRouter, Zhipu and DeepSeek.
        "error" | "network_error" | "insufficient_system_resource" => {
            Err(AttemptError::new(LlmErrorKind::Server, format!("the service broke off: {reason}"))
                .publicly("the service broke off"))
        }
        _ => Ok(FinishReason::Stop),
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
