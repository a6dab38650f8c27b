//! The conversation of a started turn with its model, until it answers, is stopped, times out, or is parked.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::settings::Span;
use daoyou_channels::{SessionKey, Trust};

use super::approval_gate::ApprovalGate;
use super::parking::{ModelOutage, Parking};
use super::store_journal::StoreJournal;
use super::turn_agent::TurnAgent;
use super::turn_start::StartedTurn;
use super::turn_tools::TurnTools;
use crate::chat::ChatMessage;
use crate::guard::Taint;
use crate::llm::{FallbackChain, LlmErrorKind, ModelError};
use crate::origin::TurnOrigin;
use crate::profiles::AgentDirectory;
use crate::store::inbox::InboxRow;
use crate::store::{Connection, messages};
use crate::tools::ToolExecutor;
use crate::turn::context::attachments;
use crate::turn::context::compaction::compact;
use crate::turn::context::conversation_context::{ContextBuilder, ConversationContext};
use crate::turn::context::images::{ImageLoader, LoadedImages};
use crate::turn::context::relevant_memories::relevant_memories;
use crate::turn::context::user_message::least_trust;
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::event_emitter::EventEmitter;
use crate::turn::flight_recorder::FlightSlot;
use crate::turn::layered::{LayeredModel, LayeredTools};
use crate::turn::limits::{TurnLimits, wanted_model};
use crate::turn::middleware::{MiddlewareStack, OperationHandler, TurnRequest, TurnRun};
use crate::turn::model_chains::ModelChains;
use crate::turn::progress::{ContextStep, StepBody, TurnProgress, UnreadableJournal};
use crate::turn::scope::TurnScope;
use crate::turn::traits::Journal;
use crate::turn::turn_loop::{ConversationOutcome, LoopOutcome, Turn};

/// What the conversations of turns work with.
pub struct Conversations {
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

impl Conversations {
    /// Returns the agent that answers `last`: the one with which its turn began, if it resumes from `context`.
    ///
    /// # Errors
    /// The store cannot be read, or the agent does not exist any more.
    pub fn agent_of(
        &self,
        session: &SessionKey,
        last: &InboxRow,
        context: Option<&ContextStep>,
    ) -> Result<TurnAgent, TurnError> {
        match context {
            Some(context) => TurnAgent::resumed(&self.agents, last, context.agent.as_deref()),
            None => {
                let head = |connection: &Connection| messages::session(connection, session.as_str());
                let head = self.contexts.store.read_here(head)?;
                TurnAgent::of_message(&self.agents, last, head.agent.as_deref())
            }
        }
    }
}

/// How far a turn came; it survives a panic.
#[derive(Debug, Default)]
pub struct RunState {
    /// The start of the turn was emitted as an event.
    pub has_begun: bool,
    pub progress: TurnProgress,
    /// The agent that answers, once it is known.
    pub agent: Option<TurnAgent>,
    /// `PROVIDER/MODEL`, once one is asked.
    pub model: String,
}

/// The conversation of one turn, within its middleware.
pub struct ConversationTurn<'a> {
    pub conversations: &'a Conversations,
    pub started: &'a StartedTurn,
    /// What the text of the message itself holds from others than the owner.
    pub taint: Taint,
    pub scope: TurnScope<'a>,
    pub journal: &'a StoreJournal<'a>,
    pub events: &'a EventEmitter,
    pub flight: &'a FlightSlot<'a>,
    pub state: &'a mut RunState,
    /// Why the turn cannot go on from its journal.
    pub damaged: Option<UnreadableJournal>,
}

#[async_trait]
impl OperationHandler<TurnRun> for ConversationTurn<'_> {
    async fn handle(&mut self, request: TurnRequest) -> Result<ConversationOutcome, TurnError> {
        if let Some(damaged) = self.damaged.take() {
            return Err(TurnError::new(ErrorCode::StateCorrupted, "journal").caused_by(damaged));
        }
        self.converse(request.text).await
    }
}

impl ConversationTurn<'_> {
    /// Composes the context and runs the turn. `text` is the message as the model reads it.
    async fn converse(&mut self, text: String) -> Result<ConversationOutcome, TurnError> {
        let Conversations { contexts, chains, parking, .. } = self.conversations;
        let StartedTurn { session, last, rows, .. } = self.started;
        if self.state.progress.context.is_none() {
            contexts.memory.import_by_hand().await;
        }
        let agent = self.conversations.agent_of(session, last, self.state.progress.context.as_ref())?;
        self.state.agent = Some(agent.clone());
        let tools = self.conversations.tools.of_message(last, &agent);
        let trust = least_trust(rows);
        let system = contexts.system.current(trust, contexts.system.skills(trust).await, agent.prompt());
        self.state.progress.found_tools.extend(contexts.found_tools(session)?);
        self.state.progress.found_tools.extend(system.tools.iter().cloned());
        let specs = tools.specs(&self.state.progress.found_tools);
        let own = agent.context();
        let context = contexts.load(session, last, (&system, &specs, own), self.state.progress.context.as_ref())?;
        let configured = own.model.unwrap_or(&contexts.settings.model);
        let wanted = wanted_model(last, context.head.model.as_deref(), configured);
        // Taken before any model is asked, so that an answer which comes meanwhile is not missed.
        let mark = parking.retries.answer_count();
        let chains = chains.led_by(agent.profile.orchestrator.of_model());
        let chain = match chains.open(&wanted, self.state.progress.provider(), parking.on_answer()).await {
            Ok(chain) => chain,
            Err(error) => return self.without_model(wanted, error, mark).await,
        };
        self.state.model = chain.current().to_string();
        let with_memory = context.memory.in_prompt(system.clone());
        if self.state.progress.context.is_none() {
            let files = attachments::paths(rows);
            let known = (&contexts.store, &context.owners[..], &context.messages[..], &files[..]);
            let read = agent.message_text(&text, known)?;
            self.begin(&context, (text, read), &with_memory.hash).await;
        }
        let mut history = context.messages;
        let outcome = loop {
            history.extend(self.state.progress.context.as_ref().map(ContextStep::message));
            let outcome =
                self.attend((&chain, &agent), &tools, std::mem::take(&mut history), with_memory.text.clone()).await;
            self.state.model = chain.current().to_string();
            let is_the_models = matches!(&outcome, Err(TurnError { code: ErrorCode::Model(_), .. }));
            match chain.failure().filter(|_| is_the_models) {
                Some(error) if error.kind == LlmErrorKind::ContextTooLong => {
                    contexts.tokens.learn_limit(&chain.asked_last(), &error.message);
                    let Some(smaller) = compact(&contexts.store, session, &self.state.progress)? else {
                        break outcome;
                    };
                    self.note(smaller).await;
                    let context = self.state.progress.context.as_ref();
                    history = contexts.load(session, last, (&system, &specs, own), context)?.messages;
                }
                Some(error) if error.is_service_condition() && self.may_wait() => {
                    let (failures, providers) = (chain.failures(), chain.providers());
                    return self.park(ModelOutage { error, failures, providers, mark }).await;
                }
                _ => break outcome,
            }
        };
        match outcome? {
            LoopOutcome::Answered(reply) => Ok(ConversationOutcome::Answered(reply)),
            LoopOutcome::AwaitsTurns(turns) => {
                let look_again = parking.park_for_turns(self.started, self.journal.context(), turns).await?;
                Ok(ConversationOutcome::Parked { look_again })
            }
        }
    }

    /// Ends, or parks, a turn whose `wanted` model cannot be asked.
    async fn without_model(
        &mut self,
        wanted: String,
        error: ModelError,
        mark: u64,
    ) -> Result<ConversationOutcome, TurnError> {
        if let Some(outage) = error.outage().filter(|_| self.may_wait()) {
            let (providers, failures) = (vec![outage.provider.clone()], vec![outage.clone()]);
            return self.park(ModelOutage { error: outage, failures, providers, mark }).await;
        }
        let values = [wanted, error.to_public()];
        Err(TurnError::new(ErrorCode::NoModel, "turn").with(values).caused_by(error))
    }

    async fn park(&self, outage: ModelOutage) -> Result<ConversationOutcome, TurnError> {
        let (parking, context) = (&self.conversations.parking, self.journal.context());
        let look_again =
            parking.park_for_model(self.started, self.state.progress.waiting_since, context, outage).await?;
        Ok(ConversationOutcome::Parked { look_again })
    }

    /// Records the context, so that the turn gets the same again if it resumes in another process.
    /// `said` is the message as it is written, and what the model reads instead of it, if it does.
    async fn begin(&mut self, context: &ConversationContext, said: (String, Option<String>), system: &str) {
        let (contexts, rows) = (&self.conversations.contexts, &self.started.rows);
        contexts.keep_snapshot(&self.started.session, context).await;
        let memories = relevant_memories(&contexts.memory, rows, context).await;
        let (mut text, read) = said;
        text.push_str(&memories);
        let (user, said) = match read {
            Some(read) => (read + &memories, Some(text)),
            None => (text, None),
        };
        let step = ContextStep {
            system: system.to_owned(),
            from: context.from,
            to: context.head.next_seq,
            user,
            said,
            images: attachments::images(rows),
            model: self.state.model.clone(),
            agent: self.state.agent.as_ref().and_then(TurnAgent::recorded_name).map(str::to_owned),
            squeezed: 0,
            snapshot: context.memory.snapshot.as_ref().map(|snapshot| snapshot.hash.clone()),
            summary: context.memory.summary.as_ref().map(|(id, _)| *id),
            is_tight: context.is_tight,
            forgets: context.forgets,
            taint: self.taint_at_start(context),
        };
        self.note(step).await;
    }

    /// Returns what the conversation and the messages hold from others than the owner.
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

    /// Returns true if the turn may wait for a model; a turn that waited before always may.
    fn may_wait(&self) -> bool {
        self.conversations.parking.retries.is_open() || self.state.progress.waiting_since.is_some()
    }

    /// Runs the turn until it ends, is stopped, or times out.
    async fn attend(
        &mut self,
        (chain, agent): (&FallbackChain, &TurnAgent),
        executor: &ToolExecutor,
        conversation: Vec<ChatMessage>,
        system: Arc<str>,
    ) -> Result<LoopOutcome, TurnError> {
        let Conversations { contexts, chains, middleware, images, temperature, .. } = self.conversations;
        let (scope, cancel) = (self.scope, &self.started.cancel);
        let model = LayeredModel { chain, middleware, tokens: &contexts.tokens, models: &chains.models, scope };
        let tools = LayeredTools { executor, middleware, scope };
        let limits = self.conversations.limits.of_agent(agent.profile.max_iterations).of_message(&self.started.last);
        let turn = Turn {
            scope,
            system,
            conversation,
            model: &model,
            tools: &tools,
            tool_context: self.started.tool_context(agent.scope()),
            image_loader: images,
            images: LoadedImages::default(),
            temperature: agent.profile.temperature.or(*temperature),
            max_tokens: agent.profile.max_tokens.or(contexts.settings.max_tokens),
            limits,
            journal: self.journal,
            approvals: &self.conversations.approvals,
            events: self.events,
            flight: self.flight,
        };
        let events = self.events;
        let mut running = pin!(turn.run(&mut self.state.progress));
        let cut_off = tokio::select! {
            biased;
            () = cancel.cancelled() => ErrorCode::Stopped,
            () = tokio::time::sleep_until(scope.deadline) => ErrorCode::TurnTimeout,
            outcome = &mut running => {
                return outcome.unwrap_or_else(|| Err(cut_off_error(ErrorCode::Stopped, limits, events)));
            }
        };
        // The model call is dropped at once; a running tool is told to end, and may report within its grace period.
        cancel.cancel();
        running.await.unwrap_or_else(|| Err(cut_off_error(cut_off, limits, events)))
    }
}

/// Returns the error of a turn that was stopped, or whose time is up.
fn cut_off_error(code: ErrorCode, limits: TurnLimits, events: &EventEmitter) -> TurnError {
    let error = TurnError::new(code, "turn");
    match code {
        ErrorCode::TurnTimeout => error.with([Span(limits.time).to_string()]),
        _ => error.after_saying(&events.partial_text()),
    }
}
