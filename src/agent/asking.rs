//! One model call of a turn.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::compact;
use super::context::estimate_tokens;
use super::flight::FlightSlot;
use super::progress::Progress;
use super::turn::Turn;
use super::watch::Watch;
use crate::llm::{ChatMessage, ChatRequest, ChatResponse, Delta, DeltaSink, LlmError, ToolCall, ToolSpec, Usage};

impl Turn<'_> {
    /// One model call; the last one allowed is told of no tools.
    pub(super) async fn ask(&self, progress: &Progress) -> Result<ChatResponse, LlmError> {
        let last_call = progress.tool_rounds >= self.limits.iterations;
        let tools: Arc<[ToolSpec]> = if last_call { Arc::default() } else { self.tools.specs() };
        let mut messages = self.conversation.clone();
        messages.extend(compact::given(progress));
        let mut request = ChatRequest {
            model: String::new(),
            system: self.system.clone(),
            messages,
            tools,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
        };
        let sink = FirstWord { flight: self.flight, watch: self.watch, has_come: AtomicBool::new(false) };
        self.flight.waits();
        let asking = self.meter.ask_model();
        let response = self.model.chat(&mut request, &sink).await;
        drop(asking);
        self.flight.works();
        self.watch.end_response();
        let mut response = response?;
        if last_call {
            response.tool_calls.clear();
        }
        make_ids_unique(&mut response.tool_calls, &progress.messages);
        if response.usage == Usage::default() {
            response.usage = estimate_usage(&request, &response);
        }
        let Usage { input_tokens, output_tokens, cached_tokens } = response.usage;
        let answered = self.model.current();
        self.meter.model_used(answered.provider.name(), &answered.model, input_tokens, output_tokens, cached_tokens);
        Ok(response)
    }
}

/// Tells the flight recorder when the wait for the model is over: from its first word on, this process works.
struct FirstWord<'a> {
    flight: &'a FlightSlot<'a>,
    watch: &'a Watch,
    has_come: AtomicBool,
}

impl DeltaSink for FirstWord<'_> {
    fn delta(&self, delta: Delta<'_>) {
        if delta == Delta::Restart {
            self.has_come.store(false, Ordering::Relaxed);
            self.flight.waits();
        } else if !self.has_come.swap(true, Ordering::Relaxed) {
            self.flight.works();
        }
        self.watch.delta(delta);
    }
}

/// What a response cost, where its service does not say: limits hold all the same.
fn estimate_usage(request: &ChatRequest, response: &ChatResponse) -> Usage {
    let tokens_of = |message: &ChatMessage| match message {
        ChatMessage::User { content } | ChatMessage::Tool { content, .. } => estimate_tokens(content),
        ChatMessage::Assistant { content, tool_calls, .. } => {
            estimate_tokens(content) + tool_calls.iter().map(|call| estimate_tokens(&call.arguments)).sum::<usize>()
        }
    };
    let input = estimate_tokens(&request.system) + request.messages.iter().map(tokens_of).sum::<usize>();
    let calls = response.tool_calls.iter().map(|call| estimate_tokens(&call.arguments)).sum::<usize>();
    let output = estimate_tokens(&response.text) + calls;
    let count = |tokens| u64::try_from(tokens).unwrap_or(u64::MAX);
    Usage { input_tokens: count(input), output_tokens: count(output), cached_tokens: 0 }
}

/// Some services count their call ids anew in each response; in the journal of a turn each id means one call.
fn make_ids_unique(calls: &mut [ToolCall], before: &[ChatMessage]) {
    let mut used: HashSet<String> = before
        .iter()
        .filter_map(|message| match message {
            ChatMessage::Tool { call_id, .. } => Some(call_id.clone()),
            _ => None,
        })
        .collect();
    for call in calls {
        let wanted = if call.id.is_empty() { "call".to_owned() } else { call.id.clone() };
        call.id.clone_from(&wanted);
        let mut number = 2;
        while !used.insert(call.id.clone()) {
            call.id = format!("{wanted}_{number}");
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_means_one_call_of_the_turn() {
        let call = |id: &str| ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: String::new() };
        let before = [ChatMessage::Tool { call_id: "a".to_owned(), name: "x".to_owned(), content: String::new() }];
        let mut calls = [call("a"), call("b"), call("b"), call("")];
        make_ids_unique(&mut calls, &before);
        assert_eq!(calls.map(|call| call.id), ["a_2", "b", "b_2", "call"]);
    }
}
