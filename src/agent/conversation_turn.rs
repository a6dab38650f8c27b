//! The conversation of a started turn with its model, until it answers, is stopped, times out, or is parked.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use daoyou_channels::Trust;
use daoyou_channels::settings::HumanDuration;

use super::approval_gate::ApprovalGate;
use super::parking::{ModelOutage, Parking};
use super::store_journal::StoreJournal;
use super::turn_agent::{TurnAgent, TurnTools};
use super::turn_start::StartedTurn;
use super::workflow_script::WorkflowScript;
use crate::chat::ChatMessage;
use crate::guard::Taint;
use crate::llm::{FallbackChain, LlmErrorKind, ModelError, SerializedText};
use crate::memory::written;
use crate::origin::TurnOrigin;
use crate::postprocess::ModelUse;
use crate::profiles::AgentDirectory;
use crate::tools::{ToolContext, ToolExecutor};
use crate::turn::context::attachments;
use crate::turn::context::compaction::compact;
use crate::turn::context::conversation_context::{ContextBuilder, ConversationContext, PromptParts, wanted_model};
use crate::turn::context::images::{ImageLoader, LoadedImages};
use crate::turn::context::relevant_memories::relevant_memories;
use crate::turn::context::system_prompt::SystemText;
use crate::turn::context::user_message::least_trust;
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::event_emitter::EventEmitter;
use crate::turn::flight_recorder::FlightSlot;
use crate::turn::middleware::{LayeredModel, LayeredTools, MiddlewareStack};
use crate::turn::orchestrators::ModelChains;
use crate::turn::progress::{ContextStep, StepBody, TurnProgress, UnreadableJournal};
use crate::turn::turn_loop::{Journal, LoopOutcome, ResponseSource, Turn, TurnLimits, TurnRunOutcome, TurnScope};

/// The shared parts that the conversations of all turns use.
pub struct ConversationDeps {
    pub contexts: ContextBuilder,
    pub chains: ModelChains,
    pub tools: TurnTools,
    pub agents: Arc<AgentDirectory>,
    pub images: ImageLoader,
    pub middleware: Arc<MiddlewareStack>,
    pub parking: Parking,
    pub approvals: ApprovalGate,
    pub limits: TurnLimits,
    /// `agent.temperature`.
    pub temperature: Option<f64>,
}

impl ConversationDeps {
    /// Returns the agent that answers. If the turn resumes from `context`, that is the agent with which it began.
    ///
    /// # Errors
    /// The agent does not exist any more.
    pub fn agent_of(&self, started: &StartedTurn, context: Option<&ContextStep>) -> Result<TurnAgent, TurnError> {
        match context {
            Some(context) => TurnAgent::resumed(&self.agents, &started.origin, context.agent.as_deref()),
            None => TurnAgent::of_turn(&self.agents, started),
        }
    }

    /// Returns the tools of a turn with the middleware around them.
    pub fn layered_tools<'t>(&'t self, executor: &'t ToolExecutor, scope: TurnScope<'t>) -> LayeredTools<'t> {
        let Self { contexts, middleware, .. } = self;
        LayeredTools { executor, middleware, skills: contexts.system.skill_catalog(), scope }
    }

    /// Returns the turn that runs `input`; its `tools` get `tool_context`.
    pub fn turn<'t>(
        &'t self,
        input: LoopInput<'t>,
        tools: &'t LayeredTools<'t>,
        tool_context: ToolContext,
        journal: &'t dyn Journal,
        observers: TurnObservers<'t>,
    ) -> Turn<'t> {
        let LoopInput { agent, source, system, conversation, .. } = input;
        let limits = self.limits.of_agent(agent.profile.max_iterations).within(tool_context.origin.settings.bounds);
        // The number of its steps limits a workflow.
        let iterations = if let ResponseSource::Script(_) = source { u32::MAX } else { limits.iterations };
        Turn {
            scope: tools.scope,
            system,
            conversation,
            source,
            tools,
            tool_context,
            image_loader: &self.images,
            images: LoadedImages::default(),
            temperature: agent.profile.temperature.or(self.temperature),
            max_tokens: agent.profile.max_tokens.or(self.contexts.settings.max_tokens),
            limits: TurnLimits { iterations, ..limits },
            journal,
            approvals: &self.approvals,
            events: observers.events,
            flight: observers.flight,
        }
    }
}

/// The input of one run of the turn loop: a prompt, the source of the responses, and the tools that they may call.
pub struct LoopInput<'a> {
    pub agent: &'a TurnAgent,
    pub executor: &'a ToolExecutor,
    pub source: ResponseSource<'a>,
    pub system: SerializedText,
    pub conversation: Vec<Arc<ChatMessage>>,
}

/// The listeners of a running turn.
#[derive(Clone, Copy)]
pub struct TurnObservers<'a> {
    pub events: &'a EventEmitter,
    pub flight: &'a FlightSlot<'a>,
}

/// The state of a running turn; it survives a panic of the turn.
#[derive(Debug, Default)]
pub struct RunState {
    /// The event for the start of the turn was emitted.
    pub has_begun: bool,
    pub progress: TurnProgress,
    /// The agent that answers, once it is known.
    pub agent: Option<TurnAgent>,
    /// People other than the sender read the answer, so that no tool may show private memories.
    pub is_read_by_others: bool,
    /// The model as `PROVIDER/MODEL`, once one was asked.
    pub model: String,
    /// The usage of the model call that chose the agent, until it is recorded.
    pub choice: Option<ModelUse>,
}

/// The prompt and the message of a turn, as its [`ContextStep`] records them.
struct RecordedPrompt {
    system_hash: String,
    /// The hash of the workflow that the turn follows.
    workflow_hash: Option<String>,
    /// The user's message as the model reads it.
    user: String,
    /// The message as the session stores it, if that differs from `user`.
    stored_text: Option<String>,
}

/// The conversation of one turn, within its middleware.
pub struct ConversationTurn<'a> {
    pub conversations: &'a ConversationDeps,
    pub started: &'a StartedTurn,
    /// The names of the foreign content in the message's own text; see [`Taint`].
    pub taint: Taint,
    pub scope: TurnScope<'a>,
    pub journal: &'a StoreJournal<'a>,
    pub observers: TurnObservers<'a>,
    pub state: &'a mut RunState,
    /// The reason why the turn cannot continue from its journal.
    pub damaged: Option<UnreadableJournal>,
}

impl<'a> ConversationTurn<'a> {
    /// Composes the context and runs the turn. `text` is the message as the model reads it.
    ///
    /// # Errors
    /// The journal is damaged, the agent or its workflow cannot be used, the store fails, or the model does not answer.
    pub async fn answer(mut self, text: String) -> Result<TurnRunOutcome, TurnError> {
        if let Some(damaged) = self.damaged.take() {
            return Err(TurnError::new(ErrorCode::StateCorrupted, "journal").caused_by(damaged));
        }
        let ConversationDeps { contexts, chains, parking, .. } = self.conversations;
        let StartedTurn { session, last, origin, rows, found_tools, .. } = self.started;
        if self.state.progress.context.is_none() {
            contexts.memory.import_by_hand().await;
        }
        let mut agent = self.conversations.agent_of(self.started, self.state.progress.context.as_ref())?;
        if agent.is_undecided() {
            agent = match self.choose_agent(agent, written(&text)).await? {
                ControlFlow::Continue(agent) => agent,
                ControlFlow::Break(parked) => return Ok(parked),
            };
        }
        self.state.agent = Some(agent.clone());
        let script = WorkflowScript::of(&agent, self.state.progress.context.as_ref())?;
        let tools = self.conversations.tools.of_turn(origin, &agent);
        let trust = least_trust(rows);
        let system = contexts.system.current(trust, contexts.system.skills(trust).await, agent.prompt());
        self.state.progress.found_tools.extend(found_tools.iter().chain(&system.tools).cloned());
        let specs = tools.specs(&self.state.progress.found_tools);
        let parts = PromptParts { system: &system, tools: &specs, agent: agent.context() };
        let context = contexts.load(session, last, origin, parts, self.state.progress.context.as_ref())?;
        self.state.is_read_by_others = context.is_read_by_others;
        let with_memory = contexts.system_texts.add_memory(system.clone(), &context.memory);
        if let Some(script) = &script {
            let SystemText { hash, text: system, .. } = with_memory;
            let prompt = RecordedPrompt {
                system_hash: hash.to_string(),
                workflow_hash: Some(script.hash().to_owned()),
                user: text,
                stored_text: None,
            };
            let source = ResponseSource::Script(script);
            let input = LoopInput { agent: &agent, executor: &tools, source, system, conversation: Vec::new() };
            return self.follow(input, context, prompt).await;
        }
        let configured = parts.agent.model.unwrap_or(&contexts.settings.model);
        let wanted = wanted_model(&origin.settings, context.head.model.as_deref(), configured);
        // Taken before any model is asked, so that an answer which arrives meanwhile is not missed.
        let answer_count = parking.retries.answer_count();
        let orchestrator = agent.profile.orchestrator.of_model();
        let answered = self.state.progress.provider();
        let chain = match chains.open(orchestrator, &wanted, answered, parking.on_answer()).await {
            Ok(chain) => chain,
            Err(error) => return self.without_model(wanted, error, answer_count).await,
        };
        self.state.model = chain.current().to_string();
        if self.state.progress.context.is_none() {
            self.begin_with_memories(&agent, text, &context, &with_memory).await?;
        }
        let mut history = context.messages;
        let outcome = loop {
            history.extend(self.state.progress.context.as_ref().map(|context| Arc::new(context.message())));
            let model = self.layered(&chain);
            let (conversation, system) = (std::mem::take(&mut history), with_memory.text.clone());
            let source = ResponseSource::Model(&model);
            let input = LoopInput { agent: &agent, executor: &tools, source, system, conversation };
            let outcome = self.run_loop(input).await;
            self.state.model = chain.current().to_string();
            let is_model_error = matches!(&outcome, Err(TurnError { code: ErrorCode::Model(_), .. }));
            match chain.failure().filter(|_| is_model_error) {
                Some(error) if error.kind == LlmErrorKind::ContextTooLong => {
                    contexts.tokens.learn_limit(&chain.asked_last(), &error.message);
                    let Some(smaller) = compact(&contexts.store, session, &self.state.progress)? else {
                        break outcome;
                    };
                    self.note(smaller).await;
                    let context = self.state.progress.context.as_ref();
                    history = contexts.load(session, last, origin, parts, context)?.messages;
                }
                Some(error) if error.is_service_condition() && self.may_wait() => {
                    return self.park(ModelOutage::of_chain(&chain, error, answer_count)).await;
                }
                _ => break outcome,
            }
        };
        self.end_or_park(outcome?).await
    }

    /// Returns the model `chain` with the middleware around it.
    pub(super) fn layered<'c>(&self, chain: &'c FallbackChain) -> LayeredModel<'c>
    where
        'a: 'c,
    {
        let ConversationDeps { contexts, chains, middleware, .. } = self.conversations;
        LayeredModel { chain, middleware, tokens: &contexts.tokens, models: &chains.models, scope: self.scope }
    }

    /// Runs a turn whose steps a workflow decides; `input` has no conversation yet.
    async fn follow(
        &mut self,
        input: LoopInput<'_>,
        context: ConversationContext,
        prompt: RecordedPrompt,
    ) -> Result<TurnRunOutcome, TurnError> {
        if self.state.progress.context.is_none() {
            self.begin(&context, prompt).await;
        }
        let mut conversation = context.messages;
        conversation.extend(self.state.progress.context.as_ref().map(|context| Arc::new(context.message())));
        let outcome = self.run_loop(LoopInput { conversation, ..input }).await;
        self.end_or_park(outcome?).await
    }

    /// Adds the relevant memories to the message `text`, and records the context.
    async fn begin_with_memories(
        &mut self,
        agent: &TurnAgent,
        text: String,
        context: &ConversationContext,
        system: &SystemText,
    ) -> Result<(), TurnError> {
        let (contexts, rows) = (&self.conversations.contexts, &self.started.rows);
        let read = agent.message_text(&text, &contexts.store, context, rows)?;
        let memories = relevant_memories(&contexts.memory, rows, context).await;
        // The session keeps the message itself if the agent's template makes another text for the model.
        let (user, stored_text) = match read {
            Some(read) => (read + &memories, Some(text + &memories)),
            None => (text + &memories, None),
        };
        let system_hash = system.hash.to_string();
        self.begin(context, RecordedPrompt { system_hash, workflow_hash: None, user, stored_text }).await;
        Ok(())
    }

    async fn end_or_park(&self, outcome: LoopOutcome) -> Result<TurnRunOutcome, TurnError> {
        match outcome {
            LoopOutcome::Answered(reply) => Ok(TurnRunOutcome::Answered(reply)),
            LoopOutcome::AwaitsTurns(turns) => {
                let parking = &self.conversations.parking;
                let must_recheck = parking.park_for_turns(self.started, self.journal.context(), turns).await?;
                Ok(TurnRunOutcome::Parked { must_recheck })
            }
        }
    }

    /// Ends, or parks, a turn whose `wanted` model cannot be asked.
    pub(super) async fn without_model(
        &mut self,
        wanted: String,
        error: ModelError,
        answer_count: u64,
    ) -> Result<TurnRunOutcome, TurnError> {
        if let Some(outage) = error.outage().filter(|_| self.may_wait()) {
            let (providers, failures) = (vec![outage.provider.clone()], vec![outage.clone()]);
            return self.park(ModelOutage { error: outage, failures, providers, answer_count }).await;
        }
        let values = [wanted, error.to_public(self.conversations.parking.phrases)];
        Err(TurnError::new(ErrorCode::NoModel, "turn").with(values).caused_by(error))
    }

    pub(super) async fn park(&self, outage: ModelOutage) -> Result<TurnRunOutcome, TurnError> {
        let (parking, context) = (&self.conversations.parking, self.journal.context());
        let must_recheck =
            parking.park_for_model(self.started, self.state.progress.waiting_since, context, outage).await?;
        Ok(TurnRunOutcome::Parked { must_recheck })
    }

    /// Records the context, so that the turn uses the same one if it resumes in another process.
    async fn begin(&mut self, context: &ConversationContext, prompt: RecordedPrompt) {
        let (contexts, rows) = (&self.conversations.contexts, &self.started.rows);
        contexts.keep_snapshot(&self.started.session, context).await;
        let RecordedPrompt { system_hash, workflow_hash, user, stored_text } = prompt;
        let step = ContextStep {
            system: system_hash,
            from: context.from,
            to: context.head.next_seq,
            user,
            stored_text,
            images: attachments::images(rows),
            model: self.state.model.clone(),
            agent: self.state.agent.as_ref().and_then(TurnAgent::recorded_name).map(str::to_owned),
            workflow: workflow_hash,
            choice: self.state.choice.take(),
            compactions: 0,
            snapshot: context.memory.snapshot.as_ref().map(|snapshot| snapshot.hash.clone()),
            summary: context.memory.summary.as_ref().map(|(id, _)| *id),
            is_context_full: context.is_full,
            forget_count: context.forget_count,
            taint: self.taint_at_start(context),
        };
        let is_chosen = step.choice.is_some();
        self.note(step).await;
        if is_chosen {
            // A context alone is written only with the next step. This note writes it now, so that the choice is not made twice.
            let note = StepBody::Note { text: "a model chose the agent".to_owned() };
            self.journal.record(&note).await;
        }
    }

    /// Returns the names of the foreign content in the conversation and the messages; see [`Taint`].
    fn taint_at_start(&self, context: &ConversationContext) -> Taint {
        let mut taint = context.taint.clone();
        taint.extend(self.taint.iter().cloned());
        for row in &self.started.rows {
            taint.extend(TurnOrigin::parse(&row.origin).taint);
            if Trust::parse(&row.trust) == Trust::Untrusted {
                taint.insert(format!("sender:{}:{}", row.channel, row.sender));
            }
        }
        taint
    }

    async fn note(&mut self, context: ContextStep) {
        let step = StepBody::Context(context);
        self.journal.record(&step).await;
        self.state.progress.apply(step);
    }

    /// Returns true if the turn may wait for a model. A turn that has waited before may always wait.
    pub(super) fn may_wait(&self) -> bool {
        self.conversations.parking.retries.is_open() || self.state.progress.waiting_since.is_some()
    }

    /// Runs the turn until it ends, is stopped, or times out.
    async fn run_loop(&mut self, input: LoopInput<'_>) -> Result<LoopOutcome, TurnError> {
        let (conversations, scope, cancel) = (self.conversations, self.scope, &self.started.cancel);
        let tools = conversations.layered_tools(input.executor, scope);
        let secrets = conversations.middleware.secrets.as_ref();
        let tool_context = self.started.tool_context(input.agent.scope(), self.state.is_read_by_others, secrets);
        let turn = conversations.turn(input, &tools, tool_context, self.journal, self.observers);
        let (limits, events) = (turn.limits, self.observers.events);
        let mut running = pin!(turn.run(&mut self.state.progress));
        let cut_off = tokio::select! {
            biased;
            () = cancel.cancelled() => ErrorCode::Stopped,
            () = tokio::time::sleep_until(scope.deadline) => ErrorCode::TurnTimeout,
            outcome = &mut running => {
                return outcome.unwrap_or_else(|| Err(cut_off_error(ErrorCode::Stopped, limits, events)));
            }
        };
        // The model call is dropped at once. A running tool is asked to end, and may report within its grace period.
        cancel.cancel();
        running.await.unwrap_or_else(|| Err(cut_off_error(cut_off, limits, events)))
    }
}

/// Returns the error of a turn that was stopped or timed out.
fn cut_off_error(code: ErrorCode, limits: TurnLimits, events: &EventEmitter) -> TurnError {
    let error = TurnError::new(code, "turn");
    match code {
        ErrorCode::TurnTimeout => error.with([HumanDuration(limits.time).to_string()]),
        _ => error.with_partial(&events.partial_text()),
    }
}
