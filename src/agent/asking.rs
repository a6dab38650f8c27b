//! One model call of a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::call_ids::CallIds;
use super::context::estimate_tokens;
use super::error::TurnError;
use super::flight::FlightSlot;
use super::progress::Progress;
use super::spending;
use super::turn::Turn;
use super::watch::Watch;
use super::{budget, compact};
use crate::chat::{ChatMessage, ToolCall, ToolSpec, Usage};
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, Images, mend_messages};
use crate::tools::{Registry, ToolContext};

impl Turn<'_> {
    /// One model call; the last one allowed is told of no tools.
    pub(super) async fn ask(&self, progress: &Progress) -> Result<ChatResponse, TurnError> {
        let last_call = progress.tool_rounds >= self.limits.iterations;
        let tools: Arc<[ToolSpec]> = if last_call { Arc::default() } else { self.tools.specs() };
        let mut messages = self.conversation.clone();
        messages.extend(compact::given(progress));
        if let Some(flaw) = mend_messages(&mut messages) {
            let ToolContext { turn, session, .. } = &self.tool_context;
            tracing::warn!(%turn, %session, %flaw, "the conversation was not as services take it and was mended");
        }
        let request = ChatRequest {
            model: self.model.current().model,
            system: self.system.clone(),
            images: self.images().await,
            messages,
            tools,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
        };
        let sink = FirstWord {
            flight: self.flight,
            watch: self.watch,
            has_come: AtomicBool::new(false),
            ids: CallIds::after(&request.messages),
        };
        self.flight.waits();
        let response = self.call_model(request, &sink).await;
        self.flight.works();
        self.watch.end_response();
        let mut response = response?;
        if last_call {
            response.tool_calls.clear();
        }
        sink.ids.settle(&mut response.tool_calls);
        name_alike(&mut response.tool_calls, self.tools.registry());
        let answered = self.model.current();
        let (provider, model) = (answered.provider.name(), answered.model.as_str());
        spending::price(&mut response, &answered, self.prices);
        if let Some(cost) = &response.cost {
            self.meter.model_cost(provider, model, &cost.currency, cost.micros);
        }
        self.watch.used(response.usage);
        let Usage { input_tokens, output_tokens, cached_tokens, .. } = response.usage;
        self.meter.model_used(provider, model, input_tokens, output_tokens, cached_tokens);
        Ok(response)
    }

    /// The pictures of the conversation, read once; none where nobody who may be asked is shown any.
    async fn images(&self) -> Images {
        let has_images =
            |message: &ChatMessage| matches!(message, ChatMessage::User { images, .. } if !images.is_empty());
        if !self.conversation.iter().any(has_images) {
            return Images::default();
        }
        let load = async {
            if self.model.sees().await { self.gallery.load(&self.conversation).await } else { Images::default() }
        };
        self.images.get_or_init(|| load).await.clone()
    }
}

/// Gives calls the names that their tools have here: whoever reads the journal need not know by which others models call them.
fn name_alike(calls: &mut [ToolCall], tools: &Registry) {
    for call in calls {
        if let Some(tool) = tools.get(&call.name) {
            call.name.clone_from(&tool.spec().name);
        }
    }
}

/// About what a picture costs, in tokens.
const IMAGE_TOKENS: usize = 1_500;

/// What a service writes around each message and call, in tokens.
const AROUND: usize = 4;

/// Tells the flight recorder when the wait for the model is over: from its first word on, this process works.
struct FirstWord<'a> {
    flight: &'a FlightSlot<'a>,
    watch: &'a Watch,
    has_come: AtomicBool,
    ids: CallIds,
}

impl DeltaSink for FirstWord<'_> {
    fn delta(&self, delta: Delta<'_>) {
        if delta == Delta::Restart {
            self.has_come.store(false, Ordering::Relaxed);
            self.flight.waits();
            self.ids.restart();
        } else if !self.has_come.swap(true, Ordering::Relaxed) {
            self.flight.works();
        }
        match delta {
            Delta::ToolCall { id, name } => self.watch.delta(Delta::ToolCall { id: &self.ids.show(id), name }),
            other => self.watch.delta(other),
        }
    }
}

/// About what a message costs, without its pictures: what it says, and what is written around that.
pub(super) fn tokens_of(message: &ChatMessage) -> usize {
    let said = match message {
        ChatMessage::User { content, .. } | ChatMessage::Tool { content, .. } => estimate_tokens(content),
        ChatMessage::Assistant { content, tool_calls, .. } => estimate_tokens(content) + tokens_of_calls(tool_calls),
    };
    AROUND + said
}

fn tokens_of_calls(calls: &[ToolCall]) -> usize {
    calls.iter().map(|call| AROUND + estimate_tokens(&call.name) + estimate_tokens(&call.arguments)).sum()
}

/// What a response cost, where its service does not say: limits hold all the same.
pub(super) fn estimate_usage(request: &ChatRequest, response: &ChatResponse) -> Usage {
    let images = request.images.len() * IMAGE_TOKENS;
    let messages = request.messages.iter().map(tokens_of).sum::<usize>();
    let input = images + estimate_tokens(&request.system) + budget::tokens_of_tools(&request.tools) + messages;
    let thoughts = response.reasoning.as_ref().map_or(0, |reasoning| estimate_tokens(&reasoning.text));
    let output = estimate_tokens(&response.text) + thoughts + tokens_of_calls(&response.tool_calls);
    let count = |tokens| u64::try_from(tokens).unwrap_or(u64::MAX);
    Usage { input_tokens: count(input), output_tokens: count(output), ..Usage::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn an_estimate_counts_tools_and_calls() {
        let tool = |n: usize| ToolSpec {
            name: format!("tool_{n}"),
            description: "does something that takes some words to tell".to_owned(),
            parameters: serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        };
        let request = |tools: usize| ChatRequest {
            model: "m".to_owned(),
            system: "be kind".into(),
            messages: vec![ChatMessage::user("hello")],
            images: Images::default(),
            tools: (0..tools).map(tool).collect(),
            temperature: None,
            max_tokens: None,
        };
        let call = ToolCall { id: "1".to_owned(), name: "write_file".to_owned(), arguments: "{}".to_owned() };
        let response = |calls| ChatResponse { tool_calls: vec![call.clone(); calls], ..ChatResponse::default() };
        let (none, some) = (estimate_usage(&request(0), &response(0)), estimate_usage(&request(10), &response(2)));
        assert!(some.input_tokens > none.input_tokens + 200, "{none:?} {some:?}");
        assert!(none.output_tokens == 0 && some.output_tokens >= 2 * 6, "{none:?} {some:?}");
    }

    #[test]
    fn a_call_has_the_name_of_its_tool() {
        let mut registry = Registry::new(&[]);
        for tool in memory::tools(None) {
            registry.register(tool).unwrap();
        }
        for (name, expected) in [
            ("recall", "recall"),
            ("Search_Memory", "recall"),
            ("search_conversations", "search_history"),
            ("save_memory", "remember"),
            ("unknown", "unknown"),
        ] {
            let mut calls = [ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments: "{}".to_owned() }];
            name_alike(&mut calls, &registry);
            assert_eq!(calls[0].name, expected, "{name}");
        }
    }
}
