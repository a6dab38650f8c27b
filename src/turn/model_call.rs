//! The next response of a turn: from its model, or from its script.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::context::compaction;
use super::context::images::{images_of, with_images_of_results};
use super::error::TurnError;
use super::event_emitter::EventEmitter;
use super::flight_recorder::FlightSlot;
use super::progress::TurnProgress;
use super::traits::{Model, Script, TurnLead};
use super::turn_loop::Turn;
use crate::chat::{ChatMessage, ToolCall, ToolSpec};
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, Images, repair_messages};
use crate::text::think;
use crate::tools::ToolContext;

impl Turn<'_> {
    fn ask_script(&self, script: &dyn Script, progress: &TurnProgress) -> Result<ChatResponse, TurnError> {
        let mut response = script.next(progress)?;
        CallIds::after(&[&self.conversation[..], &progress.messages[..]].concat()).settle(&mut response.tool_calls);
        response.tool_calls.iter_mut().for_each(|call| self.tools.use_own_name(call));
        if response.tool_calls.is_empty() {
            self.events.delta(Delta::Text(&response.text));
        }
        self.events.end_response();
        Ok(response)
    }

    /// Returns the next response. The last allowed model call offers no tools.
    pub(super) async fn ask(&self, progress: &TurnProgress) -> Result<ChatResponse, TurnError> {
        let model = match self.lead {
            TurnLead::Model(model) => model,
            TurnLead::Script(script) => return self.ask_script(script, progress),
        };
        let last_call = progress.tool_rounds >= self.limits.iterations;
        let tools: Arc<[ToolSpec]> = if last_call { Arc::default() } else { self.tools.specs(&progress.found_tools) };
        let mut messages = self.conversation.clone();
        messages.extend(compaction::messages_to_send(progress));
        if let Some(flaw) = repair_messages(&mut messages) {
            let ToolContext { turn, session, .. } = &self.tool_context;
            tracing::warn!(%turn, %session, %flaw, "the conversation was invalid for model services and was repaired");
        }
        let images = self.images(model, &messages).await;
        if !images.is_empty() {
            messages = with_images_of_results(messages);
        }
        let request = ChatRequest {
            model: model.name(),
            system: self.system.clone(),
            images,
            messages,
            tools,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
        };
        let sink = ResponseSink {
            flight: self.flight,
            events: self.events,
            has_come: AtomicBool::new(false),
            ids: CallIds::after(&request.messages),
        };
        self.flight.mark_waiting();
        let response = model.chat(request, &sink).await;
        self.flight.mark_working();
        if let Some(answer) = response.as_ref().ok().and_then(|response| think::after_unopened_block(&response.text)) {
            // Listeners have seen the thinking as text.
            self.events.delta(Delta::Restart);
            self.events.delta(Delta::Text(answer));
        }
        self.events.end_response();
        let mut response = response?;
        if last_call {
            response.tool_calls.clear();
        }
        sink.ids.settle(&mut response.tool_calls);
        response.tool_calls.iter_mut().for_each(|call| self.tools.use_own_name(call));
        self.events.used(response.usage);
        Ok(response)
    }

    /// Returns the images that the messages name; none if no model that may answer accepts images.
    async fn images(&self, model: &dyn Model, messages: &[ChatMessage]) -> Images {
        let has_images = messages.iter().any(|message| !images_of(message).is_empty());
        if !has_images || !model.takes_images().await {
            return Images::default();
        }
        self.image_loader.load(messages, &self.images).await
    }
}

/// A sink that records the end of the wait for the model: from the first delta on, this process works.
struct ResponseSink<'a> {
    flight: &'a FlightSlot<'a>,
    events: &'a EventEmitter,
    has_come: AtomicBool,
    ids: CallIds,
}

impl DeltaSink for ResponseSink<'_> {
    fn delta(&self, delta: Delta<'_>) {
        if delta == Delta::Restart {
            self.has_come.store(false, Ordering::Relaxed);
            self.flight.mark_waiting();
            self.ids.restart();
        } else if !self.has_come.swap(true, Ordering::Relaxed) {
            self.flight.mark_working();
        }
        match delta {
            Delta::ToolCall { id, name } => self.events.delta(Delta::ToolCall { id: &self.ids.show(id), name }),
            other => self.events.delta(other),
        }
    }
}

/// Assigns unique ids to tool calls. Some services restart their call ids with each response, and others reject a conversation that
/// contains an id twice. A call keeps the id under which listeners saw it while its arguments were still arriving.
pub(super) struct CallIds {
    /// The ids of the earlier responses.
    before: HashSet<String>,
    now: Mutex<ResponseIds>,
}

/// Ids of the current response.
#[derive(Default)]
struct ResponseIds {
    taken: HashSet<String>,
    /// Our ids of the calls that listeners have seen, by the service's ids.
    shown: HashMap<String, String>,
}

impl CallIds {
    /// Prepares the ids for the response to `messages`.
    pub(super) fn after(messages: &[ChatMessage]) -> Self {
        // A call whose result was lost still occupies its id.
        let ids = |message: &ChatMessage| match message {
            ChatMessage::Tool { call_id, .. } => vec![call_id.clone()],
            ChatMessage::Assistant { tool_calls, .. } => tool_calls.iter().map(|call| call.id.clone()).collect(),
            ChatMessage::User { .. } => Vec::new(),
        };
        Self { before: messages.iter().flat_map(ids).collect(), now: Mutex::default() }
    }

    /// Returns our id for a call whose text has begun to arrive.
    pub(super) fn show(&self, sent: &str) -> String {
        let mut now = self.now.lock();
        let id = self.take(&mut now, sent);
        now.shown.insert(sent.to_owned(), id.clone());
        id
    }

    /// Clears the ids of a response that restarts.
    pub(super) fn restart(&self) {
        *self.now.lock() = ResponseIds::default();
    }

    /// Assigns the final ids to the calls of a complete response.
    pub(super) fn settle(&self, calls: &mut [ToolCall]) {
        let mut now = self.now.lock();
        for call in calls {
            let shown = now.shown.remove(&call.id);
            call.id = shown.unwrap_or_else(|| self.take(&mut now, &call.id));
        }
    }

    fn take(&self, now: &mut ResponseIds, sent: &str) -> String {
        let wanted = if sent.is_empty() { "call" } else { sent };
        let mut id = wanted.to_owned();
        let mut number = 2;
        while self.before.contains(&id) || !now.taken.insert(id.clone()) {
            id = format!("{wanted}_{number}");
            number += 1;
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(sent: [&str; 4], settle: impl FnOnce(&mut [ToolCall])) -> [String; 4] {
        let mut calls = sent.map(|id| ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: String::new() });
        settle(&mut calls);
        calls.map(|call| call.id)
    }

    #[test]
    fn each_id_means_one_call() {
        let before = [ChatMessage::Tool {
            call_id: "a".to_owned(),
            name: "x".to_owned(),
            content: String::new(),
            images: Vec::new(),
        }];
        let expected = ["a_2", "b", "b_2", "call"];
        let fresh = CallIds::after(&before);
        assert_eq!(ids(["a", "b", "b", ""], |calls| fresh.settle(calls)), expected);
        // Shown in another order than in the response, and after a discarded attempt.
        let shown = CallIds::after(&before);
        assert_eq!((shown.show("b"), shown.show("a")), ("b".to_owned(), "a_2".to_owned()));
        shown.restart();
        assert_eq!((shown.show("b"), shown.show("a")), ("b".to_owned(), "a_2".to_owned()));
        assert_eq!(ids(["a", "b", "b", ""], |calls| shown.settle(calls)), expected);
    }
}
