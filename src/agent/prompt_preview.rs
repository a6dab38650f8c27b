//! Previews the next request of a session, exactly as a turn would send it, without sending it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conversation_turn::{ConversationDeps, LoopInput, TurnObservers};
use super::turn_runner::TurnRunner;
use super::turn_start::StartedTurn;
use crate::bus::EventHub;
use crate::chat::ChatMessage;
use crate::llm::{
    ChatRequest, ChatResponse, DeltaSink, FallbackChain, LlmError, LlmErrorKind, Provider, estimate_tokens,
};
use crate::metrics::Metrics;
use crate::origin::TurnOrigin;
use crate::store::inbox::InboxRow;
use crate::store::messages::{self, SessionHead};
use crate::store::session_tools;
use crate::tools::ToolEffect;
use crate::turn::context::conversation_context::{PromptParts, wanted_model};
use crate::turn::context::relevant_memories::relevant_memories;
use crate::turn::context::user_message::{least_trust, user_text};
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::event_emitter::EventEmitter;
use crate::turn::flight_recorder::FlightRecorder;
use crate::turn::progress::{StepBody, TurnProgress};
use crate::turn::turn_loop::{Journal, Model, ResponseSource, TurnScope};

/// The time limit for preparing a request. No model answers it.
const TIME: Duration = Duration::from_secs(60);

/// A request that was not sent.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptPreview {
    /// The agent that would answer.
    pub agent: String,
    /// `PROVIDER/MODEL`.
    pub model: String,
    /// The body, as the provider would send it.
    pub body: Value,
    pub bytes: usize,
    pub parts: Vec<PromptPart>,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptPart {
    pub name: String,
    /// The part's bytes in the body. The bytes of all parts add up to the whole body.
    pub bytes: usize,
    /// The part's estimated tokens.
    pub tokens: usize,
}

impl TurnRunner {
    /// Composes the first request of the turn of the message `row`, which is not stored.
    ///
    /// # Errors
    /// No model can be chosen, or the store cannot be read.
    pub async fn preview(&self, row: InboxRow) -> Result<PromptPreview, TurnError> {
        let ConversationDeps { contexts, chains, tools, .. } = &self.conversations;
        let session = SessionKey::from(row.session.as_str());
        let (agent, found_tools) = contexts.store.read_here(|connection| {
            let SessionHead { epoch, agent, .. } = messages::session(connection, session.as_str())?;
            Ok((agent, session_tools::found(connection, session.as_str(), epoch)?))
        })?;
        let (turn, rows, steps, cancel) = (row.turn, vec![row.clone()], Vec::new(), CancellationToken::new());
        let origin = TurnOrigin::parse(&row.origin);
        let started = StartedTurn { turn, session, rows, last: row, origin, steps, agent, found_tools, cancel };
        let StartedTurn { session, rows, last, origin, found_tools, .. } = &started;
        let mut agent = self.conversations.agent_of(&started, None)?;
        // A preview asks no model.
        if let Some(last) =
            agent.profile.options().last().map(|option| option.agent.clone()).filter(|_| agent.is_undecided())
        {
            agent = agent.replaced_by(&self.conversations.agents, &last)?;
        }
        if agent.profile.workflow.is_some() {
            let reason = format!("agent {} follows its steps, and asks no model itself", agent.profile.name);
            return Err(TurnError::new(ErrorCode::Workflow, "prompt").with([reason]));
        }
        let tools = tools.of_turn(origin, &agent);
        let trust = least_trust(rows);
        let skills = contexts.system.skills(trust).await;
        let system = contexts.system.current(trust, skills.clone(), agent.prompt());
        let found: BTreeSet<String> = found_tools.iter().chain(&system.tools).cloned().collect();
        let specs = tools.specs(&found);
        let parts = PromptParts { system: &system, tools: &specs, agent: agent.context() };
        let context = contexts.load(session, last, origin, parts, None)?;
        let configured = parts.agent.model.unwrap_or(&contexts.settings.model);
        let wanted = wanted_model(&origin.settings, context.head.model.as_deref(), configured);
        let orchestrator = agent.profile.orchestrator.of_model();
        let chain = chains.open(orchestrator, &wanted, "", |_, _| {}).await.map_err(|error| {
            let values = [wanted.clone(), error.to_public(self.phrases)];
            TurnError::new(ErrorCode::NoModel, "prompt").with(values).caused_by(error)
        })?;
        let written = user_text(rows, &self.timezone);
        let mut text = agent.message_text(&written, &contexts.store, &context, rows)?.unwrap_or(written);
        text.push_str(&relevant_memories(&contexts.memory, rows, &context).await);
        let with_memory = contexts.system_texts.add_memory(system.clone(), &context.memory);
        let mut conversation = context.messages;
        conversation.push(ChatMessage::user(text).into());
        let model = CapturingModel { chain: &chain, request: Mutex::default() };
        let input = LoopInput {
            agent: &agent,
            executor: &tools,
            source: ResponseSource::Model(&model),
            system: with_memory.text,
            conversation,
        };
        self.run_captured(&started, input, found).await;
        let Some(request) = model.request.into_inner() else {
            return Err(TurnError::new(ErrorCode::Internal, "prompt"));
        };
        let choice = orchestrator.unwrap_or(chains.orchestrator).over(chain.current());
        let sections = contexts.system.parts(trust, skills, agent.prompt());
        let provider = choice.provider.as_ref();
        let body = body_of(provider, &request)?;
        Ok(PromptPreview {
            agent: agent.profile.name.clone(),
            model: chain.current().to_string(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            bytes: body.len(),
            parts: parts_of(provider, &request, body.len(), &sections, &system.text)?,
        })
    }

    /// Runs a turn whose model captures the request and does not answer.
    async fn run_captured(&self, started: &StartedTurn, input: LoopInput<'_>, found_tools: BTreeSet<String>) {
        // No listener gets events, and nothing is counted.
        let (metrics, recorder) = (Metrics::default(), FlightRecorder::none());
        let (meter, flight) = (metrics.turns.meter(), recorder.take_slot(started.turn));
        let (turn, session, last) = (started.turn, &started.session, &started.last);
        let events =
            EventEmitter::new(Arc::new(EventHub::default()), session.clone(), turn, &last.channel, &last.chat_id);
        let scope = TurnScope { session, turn, deadline: Instant::now() + TIME, meter: &meter, phrases: self.phrases };
        let tools = self.conversations.layered_tools(input.executor, scope);
        let tool_context = started.tool_context(input.agent.scope(), false, None);
        let observers = TurnObservers { events: &events, flight: &flight };
        let turn = self.conversations.turn(input, &tools, tool_context, &NoJournal, observers);
        let mut progress = TurnProgress::default();
        progress.found_tools.extend(found_tools);
        // The capturing model fails each call.
        drop(turn.run(&mut progress).await);
        meter.end();
    }
}

/// A model that captures the request instead of sending it.
struct CapturingModel<'a> {
    chain: &'a FallbackChain,
    request: Mutex<Option<ChatRequest>>,
}

#[async_trait]
impl Model for CapturingModel<'_> {
    fn name(&self) -> String {
        self.chain.current().model
    }

    async fn takes_images(&self) -> bool {
        self.chain.takes_images().await
    }

    async fn chat(&self, request: ChatRequest, _: &dyn DeltaSink) -> Result<ChatResponse, TurnError> {
        *self.request.lock() = Some(request);
        Err(TurnError::new(ErrorCode::Stopped, "prompt"))
    }
}

/// A journal that discards all steps, since the turn does not really run.
struct NoJournal;

#[async_trait]
impl Journal for NoJournal {
    async fn record_with_effects(&self, _: &StepBody, _: &[ToolEffect]) {}

    async fn record_begun(&self, _: &[ToolEffect]) {}
}

/// Returns the body of a request as `provider` sends it.
fn body_of(provider: &dyn Provider, request: &ChatRequest) -> Result<Vec<u8>, TurnError> {
    let failed =
        |error: LlmError| TurnError::new(ErrorCode::Model(LlmErrorKind::BadRequest), "prompt").caused_by(error);
    provider.body(request).map_err(failed)
}

/// Measures the parts of a request: by how much its body of `whole` bytes shrinks without each part. `sections` are those of the
/// system prompt `system`; the text after them is memory.
fn parts_of(
    provider: &dyn Provider,
    request: &ChatRequest,
    whole: usize,
    sections: &[(String, String)],
    system: &str,
) -> Result<Vec<PromptPart>, TurnError> {
    let mut parts = Vec::new();
    let mut add = |name: &str, text: &str, without: ChatRequest| -> Result<(), TurnError> {
        let bytes = whole.saturating_sub(body_of(provider, &without)?.len());
        parts.push(PromptPart { name: name.to_owned(), bytes, tokens: estimate_tokens(text) });
        Ok(())
    };
    let without_text =
        |text: &str| ChatRequest { system: request.system.replacen(text, "", 1).into(), ..request.clone() };
    for (name, text) in sections {
        add(name, text, without_text(text))?;
    }
    let memory = request.system.strip_prefix(system).unwrap_or_default();
    if !memory.is_empty() {
        add("memory", memory, without_text(memory))?;
    }
    for (at, tool) in request.tools.iter().enumerate() {
        let mut others = request.tools.to_vec();
        others.remove(at);
        let text = format!("{} {} {}", tool.name, tool.description, tool.parameters);
        add(&format!("tool {}", tool.name), &text, ChatRequest { tools: others.into(), ..request.clone() })?;
    }
    if let Some((last, history)) = request.messages.split_last() {
        if !history.is_empty() {
            let text: String = history.iter().map(|message| text_of(message)).collect();
            add("history", &text, ChatRequest { messages: vec![last.clone()], ..request.clone() })?;
        }
        let messages = [history, &[ChatMessage::user("").into()]].concat();
        add("message", &text_of(last), ChatRequest { messages, ..request.clone() })?;
    }
    let known: usize = parts.iter().map(|part| part.bytes).sum();
    parts.push(PromptPart { name: "envelope".to_owned(), bytes: whole.saturating_sub(known), tokens: 0 });
    Ok(parts)
}

fn text_of(message: &ChatMessage) -> String {
    match message {
        ChatMessage::User { content, .. } | ChatMessage::Tool { content, .. } => content.clone(),
        ChatMessage::Assistant { content, tool_calls, .. } => {
            let calls = tool_calls.iter().map(|call| format!("{}{}", call.name, call.arguments));
            std::iter::once(content.clone()).chain(calls).collect()
        }
    }
}
