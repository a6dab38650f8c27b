//! The end of a turn: one commit, with the automatic memories of the turn.

use std::sync::Arc;
use std::time::Instant;

use daoyou_channels::{ErrorInfo, SessionKey};
use uuid::Uuid;

use super::sub_agents::{self, AwaitingTurn};
use crate::bus::{EndedTurn, FollowUps, InboundSignal, MessageBus, NoticeKind, OutboundDraft, OutboxSlot};
use crate::chat::ChatMessage;
use crate::guard::Taint;
use crate::memory::rule_extraction::{FinishedTurn, as_preferences, task_of};
use crate::memory::{MemoryOwner, MemoryService, MemorySource, remember};
use crate::metrics::{TurnOutcome, TurnPhase};
use crate::origin::{SessionNote, TurnCause, TurnOrigin};
use crate::phrases::Phrases;
use crate::session::commands::SessionChange;
use crate::session::retry_scheduler::RetryScheduler;
use crate::session::session_ownership::SessionMemoryUpdate;
use crate::store::inbox::{self, InboxRow, MessageStatus};
use crate::store::messages::SessionHead;
use crate::store::outbox::InsertedOutbound;
use crate::store::usage::{self, TokenCounts};
use crate::store::{
    Connection, Durability, StoreError, approvals, checkpoints, forgetting, messages, meta, questions, turn_steps,
};
use crate::turn::context::conversation_context::AgentMemory;
use crate::turn::context::private_memory;
use crate::turn::progress::{ContextStep, Spending, StepBody, TurnProgress, session_messages};
use crate::{crash, cron, memory};

/// The messages that a turn adds to its session.
#[derive(Debug)]
pub enum SessionAppend {
    Nothing,
    Turn(TurnMessages),
    /// A note for the session, without a reply.
    Note(SessionNote),
}

/// The user's message, the journal's steps with open calls closed by `reason`, and the reply. The commit itself reads the journal, so
/// that no step is missed.
#[derive(Debug)]
pub struct TurnMessages {
    pub user: ChatMessage,
    /// The composed context, which the journal contains only from the first stored step on.
    pub context: Option<Box<ContextStep>>,
    /// The step of the model's answer, which the commit adds to the journal unless an earlier process has done so.
    pub answer: Option<Box<StepBody>>,
    pub reason: &'static str,
}

/// The data that the end commit of a turn writes.
#[derive(Debug)]
pub struct TurnEnd {
    pub turn: Uuid,
    /// The messages that the turn answers; the reply goes to the last one's chat.
    pub rows: Vec<InboxRow>,
    pub reply: String,
    /// The error code if the turn failed.
    pub error: Option<&'static str>,
    /// `Done`, or `Dead` if the message is given up.
    pub state: MessageStatus,
    pub append: SessionAppend,
    pub change: SessionChange,
    /// The change of the session's memory, if the turn is added to the session.
    pub memory_update: Option<SessionMemoryUpdate>,
    /// The automatic memories, if the turn is added to its session.
    pub learning: Option<TurnLearning>,
    /// The model as `PROVIDER/MODEL`; empty if none was asked.
    pub model: String,
    /// The turn ran alone, so that [`meta::ISOLATED_TURN`] may name it.
    pub is_isolated: bool,
    pub phrases: &'static Phrases,
}

impl TurnEnd {
    /// Writes the end and wakes its waiters. Retries until the store accepts the end, and holds the session's lane meanwhile. If the
    /// store permanently rejects the end, an error for the sender replaces it.
    pub async fn write(
        self,
        bus: &Arc<MessageBus>,
        rules: &Arc<cron::CronSettings>,
        retries: &RetryScheduler,
    ) -> EndResult {
        let end = Arc::new(self);
        let Some(last) = end.rows.last() else { return EndResult::default() };
        let session = SessionKey::from(last.session.as_str());
        let ids: Vec<Uuid> = end.rows.iter().map(|row| row.id).collect();
        let begun = Instant::now();
        let failed = |error: &StoreError| {
            tracing::error!(turn = %end.turn, %session, %error, "the end of a turn could not be written; its session waits");
        };
        let (CommittedEnd { written, followed }, outcome) = match end.commit_until(bus, rules, failed).await {
            Ok(committed) => (committed, end.outcome()),
            Err(StoreError::Closed) => return std::future::pending().await,
            Err(error) => (end.write_failure(bus, rules, &error).await, TurnOutcome::Failed("internal")),
        };
        crash::point("end_committed", &last.content);
        let turns = &bus.metrics().turns;
        turns.phase(TurnPhase::End, begun.elapsed());
        turns.ended(outcome, end.rows.first().unwrap_or(last).age());
        bus.turn_ended(end.turn, outcome.error());
        bus.inbound_ended(&session, &ids);
        followed.wake(bus, retries, &last.channel);
        written
    }

    /// Replaces an end that the store permanently rejects because of `error`: the sender gets an error, and nothing else changes. If
    /// the store rejects that as well, the message becomes a dead letter without a reply, so that its session continues.
    async fn write_failure(
        &self,
        bus: &Arc<MessageBus>,
        rules: &Arc<cron::CronSettings>,
        error: &StoreError,
    ) -> CommittedEnd {
        let turn = self.turn;
        tracing::error!(%turn, %error, "the end of a turn cannot be written; its sender gets an error");
        let end = Arc::new(Self {
            reply: self.phrases.internal.to_owned(),
            error: Some("internal"),
            is_isolated: self.is_isolated,
            ..Self::bare(turn, self.rows.clone(), self.phrases)
        });
        let failed = |error: &StoreError| tracing::error!(%turn, %error, "the error of a turn could not be written");
        match end.commit_until(bus, rules, failed).await {
            Ok(committed) => return committed,
            Err(StoreError::Closed) => return std::future::pending().await,
            Err(error) => {
                tracing::error!(%turn, %error, "the error of a turn cannot be written; it ends without a reply");
            }
        }
        let session = self.rows.last().map(|row| row.session.clone()).unwrap_or_default();
        let make = || {
            let session = session.clone();
            move |connection: &Connection| {
                inbox::finish(connection, turn, MessageStatus::Dead)?;
                Ok(!inbox::open_of_session(connection, &session, 1)?.is_empty())
            }
        };
        match bus.store().write_until(Durability::Synced, make, failed).await {
            Ok(more) => CommittedEnd { written: EndResult { more, is_learned: false }, ..CommittedEnd::default() },
            Err(error) => {
                tracing::error!(%turn, %error, "a turn cannot be ended; its session waits for the next start");
                std::future::pending().await
            }
        }
    }

    /// Commits the end, and retries until the store accepts it or permanently rejects it; `failed` gets the error of each try.
    async fn commit_until(
        self: &Arc<Self>,
        bus: &Arc<MessageBus>,
        rules: &Arc<cron::CronSettings>,
        failed: impl Fn(&StoreError) + Send,
    ) -> Result<CommittedEnd, StoreError> {
        let make = || {
            let (end, bus, rules) = (self.clone(), bus.clone(), rules.clone());
            move |connection: &Connection| end.commit(connection, &bus, &rules)
        };
        bus.store().write_until(Durability::Synced, make, failed).await
    }

    /// Returns an end without a reply and without changes.
    pub fn bare(turn: Uuid, rows: Vec<InboxRow>, phrases: &'static Phrases) -> Self {
        Self {
            turn,
            rows,
            reply: String::new(),
            error: None,
            state: MessageStatus::Done,
            append: SessionAppend::Nothing,
            change: SessionChange::None,
            memory_update: None,
            learning: None,
            model: String::new(),
            is_isolated: false,
            phrases,
        }
    }

    fn outcome(&self) -> TurnOutcome {
        match (self.state, self.error) {
            (MessageStatus::Dead, _) => TurnOutcome::Dead,
            (_, None) => TurnOutcome::Done,
            (_, Some("stopped")) => TurnOutcome::Cancelled,
            (_, Some(code)) => TurnOutcome::Failed(code),
        }
    }

    fn commit(
        &self,
        connection: &Connection,
        bus: &MessageBus,
        rules: &cron::CronSettings,
    ) -> Result<CommittedEnd, StoreError> {
        let Some(last) = self.rows.last() else { return Ok(CommittedEnd::default()) };
        let mut ended = CommittedEnd::default();
        if inbox::finish(connection, self.turn, self.state)? == 0 {
            // An earlier commit has written the end, although its success was not reported.
            ended.written.more = !inbox::open_of_session(connection, &last.session, 1)?.is_empty();
            return Ok(ended);
        }
        let mut appended = AppendedTurn::default();
        match &self.append {
            SessionAppend::Nothing => {}
            SessionAppend::Turn(messages) => {
                appended = self.append_messages(connection, &last.session, messages)?;
                ended.written.is_learned = appended.is_learned;
            }
            SessionAppend::Note(note) => {
                let head = append_note(connection, &last.session, self.turn, note)?;
                let taint = TurnOrigin::parse(&last.origin).taint;
                approvals::add_taint(connection, &last.session, head.epoch, &taint)?;
            }
        }
        match &self.change {
            // `Ask` starts a model turn, so no end carries it.
            SessionChange::None | SessionChange::Ask(_) => {}
            SessionChange::NewEpoch => messages::new_epoch(connection, &last.session)?,
            SessionChange::Model(model) => messages::set_model(connection, &last.session, model.as_deref())?,
            SessionChange::Agent(agent) => messages::set_agent(connection, &last.session, agent.as_deref())?,
            SessionChange::NameCheckpoint { turn, name } => {
                checkpoints::set_name(connection, &last.session, *turn, name)?;
            }
            SessionChange::Restore(point) => drop(checkpoints::restore(connection, point)?),
            SessionChange::Forget(id) => {
                memory::forget(connection, &[*id])?;
                ended.written.is_learned = true;
                // The text of the command is removed as well.
                forgetting::replace_inbox_text(connection, &self.turn.to_string(), &format!("/forget {id}"))?;
            }
        }
        approvals::cancel_of_turn(connection, self.turn)?;
        questions::cancel_of_turn(connection, &last.session, self.turn)?;
        let is_redacted = appended.is_redacted;
        ended.followed = self.follow(connection, bus, rules, last, appended)?;
        if let Some(reply) = &ended.followed.reply {
            ended.followed.inserted = Some(self.reply_draft(last, reply).insert(connection)?);
        }
        if is_redacted {
            forgetting::forget_delivered(connection, &self.turn.to_string())?;
        }
        if self.is_isolated {
            meta::end_isolation(connection, self.turn)?;
        }
        ended.written.more = !inbox::open_of_session(connection, &last.session, 1)?.is_empty();
        Ok(ended)
    }

    /// Writes the follow-ups of the turn: messages of a job, a heartbeat or a sub-agent's task, and a notice for the owner. Returns
    /// the text that is delivered to the chat, and what the bus has to wake.
    fn follow(
        &self,
        connection: &Connection,
        bus: &MessageBus,
        rules: &cron::CronSettings,
        last: &InboxRow,
        AppendedTurn { taint, has_read_memory, .. }: AppendedTurn,
    ) -> Result<AppliedFollowUps, StoreError> {
        let cause = TurnOrigin::parse(&last.origin).cause;
        let (turn, reply, error) = (self.turn, &self.reply, self.error);
        let end = EndedTurn { row: last, turn, reply, error, taint, has_read_memory };
        let (mut awaiting, mut sub_agent) = (None, None);
        let FollowUps { reply, messages, notice } = match &cause {
            TurnCause::Job(job) => cron::follow_ups_of(connection, rules, job, &end)?,
            TurnCause::Heartbeat => cron::heartbeat::follow_ups_of(connection, &end)?,
            TurnCause::SubAgent(task) => {
                let (follow_ups, awaited) = sub_agents::follow_ups_of(connection, task, &end, self.phrases)?;
                (awaiting, sub_agent) = (awaited, Some(task.label.clone()));
                follow_ups
            }
            TurnCause::Person => FollowUps { reply: Some(self.reply.clone()), ..FollowUps::default() },
            // A note belongs to no channel.
            TurnCause::Note(_) => FollowUps::default(),
        };
        let mut sessions = Vec::with_capacity(messages.len());
        for mut draft in messages {
            draft.origin.taint.extend(end.taint.iter().cloned());
            if draft.insert(connection)? {
                sessions.push(draft.message.session_key());
            }
        }
        let notice_channel = match notice {
            Some(notice) => {
                let slot = OutboxSlot::notice(NoticeKind::FollowUp);
                bus.write_owner_notice(connection, daoyou_channels::new_id(), slot, notice)?
            }
            None => None,
        };
        let is_failed_run = matches!(cause, TurnCause::Job(_)) && self.error.is_some();
        let inserted = None;
        Ok(AppliedFollowUps { reply, inserted, sessions, notice_channel, awaiting, sub_agent, is_failed_run })
    }

    /// Appends the turn to its session.
    fn append_messages(
        &self,
        connection: &Connection,
        session: &str,
        TurnMessages { user, context, answer, reason }: &TurnMessages,
    ) -> Result<AppendedTurn, StoreError> {
        let context = context.as_deref();
        let steps = turn_steps::of_turn(connection, self.turn)?;
        // With an unreadable journal, only the message and the error are added.
        let mut progress = TurnProgress::read(&steps).unwrap_or_default();
        if let Some(answer) = answer.as_deref().filter(|_| progress.answer.is_none()) {
            let last = steps.last().map(|step| (step.seq, step.hash.clone()));
            self.append_answer(connection, &mut progress, last, context, answer)?;
        }
        let spending = progress.spending.clone();
        let context = context.or(progress.context.as_ref());
        let mut taint = progress.taint.clone();
        taint.extend(context.into_iter().flat_map(|context| context.taint.iter().cloned()));
        let is_context_full = context.is_some_and(|context| context.is_context_full || context.compactions > 0);
        let count_at_start = context.map(|context| context.forget_count);
        let mut messages = session_messages(user, progress, reason, &self.reply);
        let has_read_memory = private_memory::has_read(&messages);
        // If memories were forgotten since the turn used them, neither log nor journal may keep them.
        let turn = self.turn.to_string();
        let is_redacted = memory::redact_ended_turn(connection, &turn, &mut messages)?;
        let forget_count = forgetting::count(connection)?;
        let is_outdated = count_at_start.is_some_and(|count| count != forget_count);
        let is_stale = is_outdated && private_memory::forget_found(&mut messages);
        if is_redacted || is_stale {
            forgetting::forget_steps(connection, &turn)?;
        }
        let bodies = messages.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let roles = messages.iter().map(ChatMessage::role);
        let head = messages::append(connection, session, self.turn, roles.zip(bodies))?;
        approvals::add_taint(connection, session, head.epoch, &taint)?;
        if let Some(memory_update) = &self.memory_update {
            memory_update.write(connection, session, &head, is_context_full)?;
        }
        let is_learned = match &self.learning {
            Some(learning) if !is_redacted => learning.write(connection, session, self, &messages)?,
            _ => false,
        };
        self.count(connection, session, &spending)?;
        Ok(AppendedTurn { is_learned, is_redacted, taint, has_read_memory })
    }

    /// Adds the model's answer to the journal, after its `last` step, and to `progress`. Adds the `context` before it if the journal
    /// does not contain it yet: it may be the first one, or one that was compacted since.
    fn append_answer(
        &self,
        connection: &Connection,
        progress: &mut TurnProgress,
        last: Option<(i64, String)>,
        context: Option<&ContextStep>,
        answer: &StepBody,
    ) -> Result<(), StoreError> {
        let context = context.filter(|context| progress.context.as_ref() != Some(*context));
        let context = context.cloned().map(StepBody::Context);
        let steps: Vec<StepBody> = context.into_iter().chain([answer.clone()]).collect();
        let bodies = steps.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        turn_steps::append_after(
            connection,
            self.turn,
            last,
            steps.iter().zip(&bodies).map(|(step, body)| (step.kind(), body.as_str())),
        )?;
        steps.into_iter().for_each(|step| progress.apply(step));
        Ok(())
    }

    /// Counts usage and cost by model from the journal, even for a turn without an answer.
    fn count(&self, connection: &Connection, session: &str, spending: &Spending) -> Result<(), StoreError> {
        let mut models = spending.models().peekable();
        if models.peek().is_none() && !self.model.is_empty() {
            return usage::add(connection, self.turn, session, &self.model, TokenCounts::default(), None);
        }
        for (model, spending) in models {
            spending.write(connection, self.turn, session, model)?;
        }
        Ok(())
    }

    fn reply_draft(&self, last: &InboxRow, reply: &str) -> OutboundDraft {
        let mut draft = OutboundDraft::to_sender(last, self.turn, OutboxSlot::Reply, reply.to_owned());
        draft.body.in_reply_to = Some(last.id);
        draft.body.error = self.error.map(|code| ErrorInfo { code: code.to_owned() });
        draft
    }
}

/// A turn that was appended to its session.
#[derive(Debug, Default)]
struct AppendedTurn {
    /// Something was remembered.
    is_learned: bool,
    /// A memory that the turn used was forgotten since it began.
    is_redacted: bool,
    /// The names of the foreign content that the turn has read; see [`Taint`].
    taint: Taint,
    /// The turn has read private memories.
    has_read_memory: bool,
}

/// The work that remains after a written end.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndResult {
    /// The session has another message.
    pub more: bool,
    /// A memory was added or forgotten.
    pub is_learned: bool,
}

/// The result of the commit.
#[derive(Default)]
struct CommittedEnd {
    written: EndResult,
    followed: AppliedFollowUps,
}

fn append_note(
    connection: &Connection,
    session: &str,
    turn: Uuid,
    note: &SessionNote,
) -> Result<SessionHead, StoreError> {
    let messages =
        [ChatMessage::User { content: note.note.clone(), images: Vec::new() }, ChatMessage::assistant(&note.reply)];
    let bodies = messages.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    messages::append_note(connection, session, turn, messages.iter().map(ChatMessage::role).zip(bodies))
}

/// The follow-ups that the commit has written, and what the bus has to wake.
#[derive(Default)]
struct AppliedFollowUps {
    /// The text for the chat of the turn's message, if there is one.
    reply: Option<String>,
    /// The row of the reply. It may take the place of one that was not delivered yet: the turn was retried.
    inserted: Option<InsertedOutbound>,
    /// Sessions that have a new message.
    sessions: Vec<SessionKey>,
    /// The channel that has to deliver a notice for the owner.
    notice_channel: Option<String>,
    /// The turn that was waiting for this end.
    awaiting: Option<AwaitingTurn>,
    /// The label of the sub-agent that has ended.
    sub_agent: Option<String>,
    /// The run of a job ended with an error.
    is_failed_run: bool,
}

impl AppliedFollowUps {
    /// Wakes everything that has work after the commit: the `channel` of the reply and others.
    fn wake(self, bus: &MessageBus, retries: &RetryScheduler, channel: &str) {
        if let Some(reply) = self.inserted {
            bus.outbound_inserted(channel, reply);
        }
        if self.is_failed_run {
            bus.metrics().cron.run_failed();
        }
        if let Some(label) = self.sub_agent {
            crash::point("child_ended", &label);
        }
        if let Some(AwaitingTurn { turn, session }) = self.awaiting {
            retries.resume(turn);
            bus.signal(InboundSignal::Work(session));
        }
        for session in self.sessions {
            bus.inbound_written(session, 1);
        }
        if let Some(channel) = self.notice_channel {
            bus.outbound_written(&channel, 1);
        }
    }
}

/// The person for whom a turn runs, and the question of that person.
#[derive(Debug)]
pub struct TurnLearning {
    service: Arc<MemoryService>,
    owner: MemoryOwner,
    asked: String,
    /// A person wrote the message directly.
    is_written: bool,
}

impl TurnLearning {
    /// Returns the learning of a turn; `None` if automatic memories are off, or the sender or the agent has no memory.
    pub fn of(service: &Arc<MemoryService>, rows: &[InboxRow], memory: AgentMemory<'_>) -> Option<Self> {
        let settings = service.settings.clone();
        let last = rows.last().filter(|_| settings.config.enabled)?;
        let owner = memory.owner(settings.identities.owner_of_row(last)?)?;
        let asked = rows.iter().map(|row| row.content.as_str()).collect::<Vec<_>>().join("\n\n");
        Some(Self {
            service: service.clone(),
            owner,
            asked,
            is_written: TurnOrigin::parse(&last.origin).is_from_person(),
        })
    }

    /// Writes the memories of the turn that adds `messages` to its session; returns true if there were any.
    fn write(
        &self,
        connection: &Connection,
        session: &str,
        end: &TurnEnd,
        messages: &[ChatMessage],
    ) -> Result<bool, StoreError> {
        let source = MemorySource { session: session.to_owned(), seq: None, turn: Some(end.turn.to_string()) };
        let success = end.error.is_none();
        let done = FinishedTurn { input: &self.asked, result: &end.reply, success, agent: &end.model };
        let mut all = Vec::new();
        if self.is_written && success {
            all.extend(as_preferences(&self.asked, &self.owner, &source));
        }
        all.extend(task_of(done, tools_of(messages), &self.owner, &source));
        if all.is_empty() {
            return Ok(false);
        }
        let config = &self.service.settings.config;
        for mut new in all {
            self.service.redact_secrets(&mut new);
            match remember(connection, &new, config) {
                // An invalid memory text does not fail the end of the turn.
                Err(StoreError::Row(error)) => {
                    tracing::warn!(turn = %end.turn, error, "a task could not be remembered");
                }
                other => drop(other?),
            }
        }
        Ok(true)
    }
}

fn tools_of(messages: &[ChatMessage]) -> impl Iterator<Item = &str> {
    messages.iter().flat_map(ChatMessage::tool_calls).map(|call| call.name.as_str())
}

#[cfg(test)]
#[path = "turn_end_tests.rs"]
mod tests;
