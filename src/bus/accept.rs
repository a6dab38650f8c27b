//! Accepts messages: writes the row first, then wakes the consumer. [`BusInbox`] is the interface for channels.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::api::TurnReport;
use daoyou_channels::{
    AcceptExtras, Acceptance, Cursor, ErrorInfo, InboundMessage, Inbox, MessageState, MessageStatus, Refusal, Reply,
    SentMessage, SessionKey, StoredNote, Trust,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::drafts::{InboundDraft, NoticeKind, OutboundBody, OutboundDraft, OutboxSlot, texts_of_turn};
use super::message_bus::{BusSettings, CommandAnswer, ControlCommand, InboundSignal, MessageBus};
use super::notices::{NoticeSettings, write_notice};
use crate::crash;
use crate::store::approvals::{self, ApprovalState};
use crate::store::inbox::{self, InboxRow, NewInboxRow};
use crate::store::usage::{self, UsageScope};
use crate::store::{
    Connection, Durability, StoreError, cursors, messages, notes, outbox, processes, questions, spawns,
};

/// The longest external id, in bytes. A longer one would let a sender fill the index.
const EXTERNAL_ID_LIMIT: usize = 1_024;

/// The maximum number of follow-ups of a message that its sender sees.
const MAX_FOLLOW_UPS: u32 = 100;

/// The channel of terminals. Each terminal belongs to one person and follows a conversation by its session key.
const TERMINAL: &str = "cli";

/// The kind of answer to a message that starts no turn.
enum ImmediateAnswer {
    /// `/stop`, which ends the running turn. `unread` is a remark about the ignored part of the text.
    Stop {
        unread: Option<String>,
    },
    Reply(String),
    /// A command in a session whose turn waits.
    Command(CommandAnswer),
}

impl MessageBus {
    /// Accepts a message, and the `reply` that already answers it, if there is one: one commit holds both and `extras`. Then the bus
    /// wakes the consumer.
    ///
    /// # Errors
    /// The [`Refusal`] for the sender; nothing is stored then.
    async fn publish_inbound(
        self: &Arc<Self>,
        message: InboundMessage,
        reply: Option<String>,
        extras: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        // A separate task, because a caller that hangs up drops its future, and the consumer must be woken for the commit. Boxed,
        // because a spawned future is copied several times.
        let bus = self.clone();
        let accepted = tokio::spawn(Box::pin(async move {
            let channel = bus.metrics.messages.channel(&message.channel);
            let answer = bus.accept(message, reply, extras).await;
            match &answer {
                Ok(Acceptance::Accepted { .. }) => channel.accepted.increment(),
                Ok(Acceptance::Duplicate { .. }) => channel.duplicates.increment(),
                Err(refusal) => channel.refused.get(refusal.code()).increment(),
            }
            answer
        }));
        accepted.await.unwrap_or_else(|error| Err(StoreError::Row(error.to_string()).into()))
    }

    async fn accept(
        &self,
        mut message: InboundMessage,
        reply: Option<String>,
        extras: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        if message.external_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > EXTERNAL_ID_LIMIT) {
            return Err(Refusal::Invalid(format!("the message's id must have 1 to {EXTERNAL_ID_LIMIT} bytes")));
        }
        let settings = self.settings.get();
        let retry_after = settings.drain_timeout;
        if self.draining.load(Ordering::SeqCst) {
            return Err(Refusal::Draining { retry_after });
        }
        self.check_disk()?;
        if settings.by_sender {
            assign_sender_session(&mut message);
        }
        if let Some(reply) = reply {
            return self.accept_answered(&settings, ImmediateAnswer::Reply(reply), message, extras).await;
        }
        match settings.commands.control_command(&message) {
            Some(ControlCommand::Stop) => {
                let unread = settings.commands.unread_remark(&message);
                self.accept_answered(&settings, ImmediateAnswer::Stop { unread }, message, extras).await
            }
            Some(ControlCommand::Status) => {
                let status = append_remark(
                    settings.commands.status_reply(self, &message).await,
                    settings.commands.unread_remark(&message),
                );
                self.accept_answered(&settings, ImmediateAnswer::Reply(status), message, extras).await
            }
            Some(ControlCommand::Command) if self.is_session_waiting(&message).await? => {
                let answer = settings.commands.answer_command(&message).await?;
                let (changes_model, session) = (answer.model.is_some(), message.session_key());
                let accepted = self.accept_answered(&settings, ImmediateAnswer::Command(answer), message, extras).await;
                if changes_model {
                    // The new model may be able to answer the waiting turn.
                    self.signal(InboundSignal::RetrySession(session));
                }
                accepted
            }
            Some(ControlCommand::Command) | None => self.enqueue(&settings, message, extras).await,
        }
    }

    /// Returns true if the current turn of the session waits, or asks the model again that it waits for, so that its lane would answer
    /// no command.
    async fn is_session_waiting(&self, message: &InboundMessage) -> Result<bool, Refusal> {
        let session = message.session_key();
        let read = move |connection: &Connection| {
            let Some(row) = inbox::open_of_session(connection, session.as_str(), 1)?.pop() else { return Ok(false) };
            let is_running = row.state == MessageStatus::Running;
            Ok(row.state == MessageStatus::Waiting || is_running && inbox::waits_for_model(connection, row.id)?)
        };
        Ok(self.store.read(read).await?)
    }

    async fn enqueue(
        &self,
        settings: &BusSettings,
        message: InboundMessage,
        extras: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        let draft = InboundDraft::new(message);
        let (id, message, session) = (draft.id, &draft.message, draft.message.session_key());
        let row = draft.row(MessageStatus::Queued)?;
        let reserved = self.capacity.reserve(settings.capacities, &message.channel, &session);
        let may_answer = !settings.commands.is_command(message);
        if let Err(refusal) = &reserved {
            // A message that was accepted before is a duplicate, and its sender is not refused. An answer starts no turn, so it
            // needs no capacity.
            if let Some(duplicate) = self.find_duplicate(message).await? {
                return Ok(duplicate);
            }
            if !may_answer || !self.is_asked(message).await? {
                return Err(refusal.clone());
            }
        }
        let (has_capacity, notices) = (reserved.is_ok(), self.notice_settings_in(settings));
        let written = self
            .store
            .write(Durability::Synced, move |connection| {
                let inserted = insert_message(connection, row.clone(), may_answer, has_capacity)?;
                let notified = match inserted {
                    InsertedMessage::NoCapacity => None,
                    InsertedMessage::Known => write_extras(connection, &extras.of_duplicate(), notices.as_ref())?,
                    InsertedMessage::Queued | InsertedMessage::Answer(_) => {
                        write_extras(connection, &extras, notices.as_ref())?
                    }
                };
                crash::point("accept_before_commit", &row.content);
                Ok((inserted, notified))
            })
            .await;
        if has_capacity && !matches!(written, Ok((InsertedMessage::Queued, _))) {
            self.capacity.release(&session, 1);
        }
        let (inserted, notified) =
            written.inspect_err(|error| tracing::error!(%session, %error, "a message could not be stored"))?;
        self.wake_for_notice(notified);
        match (inserted, reserved) {
            (InsertedMessage::Queued, _) => {
                crash::point("accept_committed", &message.content);
                tracing::info!(turn = %id, %session, channel = message.channel, "accepted");
                self.signal(InboundSignal::Work(session.clone()));
            }
            (InsertedMessage::Answer(turn), _) => {
                crash::point("answer_committed", &message.content);
                tracing::info!(message = %id, %turn, %session, channel = message.channel, "accepted as an answer");
                self.signal(InboundSignal::Resume(turn, session.clone()));
            }
            (InsertedMessage::NoCapacity, Err(refusal)) => return Err(refusal),
            (InsertedMessage::Known | InsertedMessage::NoCapacity, _) => {
                self.signal(InboundSignal::Work(session));
                return self.known_message(message).await;
            }
        }
        Ok(Acceptance::Accepted { id, session })
    }

    /// Returns true if an open question of the session waits for the sender of this message.
    async fn is_asked(&self, message: &InboundMessage) -> Result<bool, Refusal> {
        let (session, channel, sender) = (message.session_key(), message.channel.clone(), message.sender.clone());
        let find = move |connection: &Connection| {
            Ok(questions::open_to(connection, session.as_str(), (&channel, &sender))?.is_some())
        };
        Ok(self.store.read(find).await?)
    }

    /// Wakes `channel`, if there is one, for a notice to the owner.
    fn wake_for_notice(&self, channel: Option<String>) {
        if let Some(channel) = channel {
            self.outbound_written(&channel, 1);
        }
    }

    /// Writes the row as done and its reply in the same commit. Such messages bypass the inbound capacities, because `/stop` and
    /// `/status` must always work, but not the outbound capacity.
    async fn accept_answered(
        &self,
        settings: &BusSettings,
        with: ImmediateAnswer,
        message: InboundMessage,
        extras: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        if let Err(refusal) = self.capacity.check_channel(settings.capacities, &message.channel) {
            return self.find_duplicate(&message).await?.ok_or(refusal);
        }
        let draft = InboundDraft::new(message.clone());
        let (id, session, row) = (draft.id, message.session_key(), draft.row(MessageStatus::Done)?);
        let (commands, notices) = (settings.commands.clone(), self.notice_settings_in(settings));
        let answer = move |connection: &Connection| {
            if !inbox::insert(connection, &row)? {
                return Ok((write_extras(connection, &extras.of_duplicate(), notices.as_ref())?, None));
            }
            let notified = write_extras(connection, &extras, notices.as_ref())?;
            let mut error = None;
            let (cancelled, content) = match &with {
                ImmediateAnswer::Stop { unread } => {
                    // An untrusted sender can only stop their own turn, and has no sub-agents.
                    let (current, sub_agents, processes) = if draft.message.trust == Trust::Untrusted {
                        (inbox::cancel_of_untrusted(connection, &row)?, Vec::new(), Vec::new())
                    } else {
                        let current = inbox::cancel_current(connection, &row.session)?;
                        let sub_agents = spawns::cancel_below(connection, &row.session)?;
                        (current, sub_agents, processes::open_of_session(connection, &row.session)?)
                    };
                    if let Some(turn) = current {
                        // The next message is no longer an answer to this turn's question.
                        questions::cancel_of_turn(connection, &row.session, turn)?;
                    }
                    let reply = commands.stop_reply(&draft.message, current.is_some(), sub_agents.len(), &processes);
                    let current = current.map(|turn| (turn, row.session.clone()));
                    (current.into_iter().chain(sub_agents).collect(), append_remark(reply, unread.clone()))
                }
                ImmediateAnswer::Reply(content) => (Vec::new(), content.clone()),
                ImmediateAnswer::Command(answer) => {
                    if let Some(model) = &answer.model {
                        messages::set_model(connection, &row.session, model.as_deref())?;
                    }
                    error = answer.error.map(|code| ErrorInfo { code: code.to_owned() });
                    (Vec::new(), answer.reply.clone())
                }
            };
            let inserted = draft.reply(content, error).insert(connection)?;
            Ok((notified, Some((cancelled, inserted))))
        };
        let (notified, written) = self.store.write(Durability::Synced, answer).await?;
        self.wake_for_notice(notified);
        match written {
            Some((cancelled, inserted)) => {
                self.outbound_inserted(&message.channel, inserted);
                self.stop_turns(cancelled);
                Ok(Acceptance::Accepted { id, session })
            }
            None => self.known_message(&message).await,
        }
    }

    /// Returns the first acceptance of a message that is known to be in the store.
    async fn known_message(&self, message: &InboundMessage) -> Result<Acceptance, Refusal> {
        let known = self.find_duplicate(message).await?;
        known.ok_or_else(|| StoreError::Row("a known message is gone".to_owned()).into())
    }

    /// Returns the first acceptance of a message, if there was one.
    async fn find_duplicate(&self, message: &InboundMessage) -> Result<Option<Acceptance>, Refusal> {
        let Some(external_id) = message.external_id.clone() else { return Ok(None) };
        let channel = message.channel.clone();
        let found = self
            .store
            .read(move |connection| {
                let row = inbox::find_external(connection, &channel, &external_id)?;
                row.map(|row| message_state(connection, row)).transpose()
            })
            .await?;
        Ok(found.map(|state| Acceptance::Duplicate { id: state.id, session: state.session, reply: state.reply }))
    }
}

/// Sets the session of the message to `CHANNEL:CHAT:SENDER`, unless it already has a session, comes from a terminal, or has no
/// sender of its own (a sender that equals the channel).
fn assign_sender_session(message: &mut InboundMessage) {
    if message.session.is_some() || message.channel == TERMINAL || message.sender == message.channel {
        return;
    }
    // The part after the last colon is the sender, so two different pairs of chat and sender never get the same key.
    let sender = message.sender.replace('%', "%25").replace(':', "%3A");
    let chat = SessionKey::of_chat(&message.channel, &message.chat_id);
    message.session = Some(SessionKey::from(format!("{chat}:{sender}")));
}

/// The outcome of [`insert_message`].
enum InsertedMessage {
    Queued,
    /// The message answers a question of this turn.
    Answer(Uuid),
    Known,
    /// The message answers no question, and there is no capacity for another turn.
    NoCapacity,
}

/// Inserts the row of a message: done if it answers a question that waits for its sender (`may_answer`), else queued.
fn insert_message(
    connection: &Connection,
    mut row: NewInboxRow,
    may_answer: bool,
    has_capacity: bool,
) -> Result<InsertedMessage, StoreError> {
    let question = match may_answer {
        true => questions::open_to(connection, &row.session, (&row.channel, &row.sender))?,
        false => None,
    };
    // A sender with less trust than the asked person may only use that person's name, and must not answer.
    let question = question.filter(|question| Trust::parse(row.trust) >= Trust::parse(&question.trust));
    if question.is_none() && !has_capacity {
        return Ok(InsertedMessage::NoCapacity);
    }
    if question.is_some() {
        row.state = MessageStatus::Done;
    }
    if !inbox::insert(connection, &row)? {
        return Ok(InsertedMessage::Known);
    }
    let Some(question) = question else { return Ok(InsertedMessage::Queued) };
    questions::answer(connection, &question, row.id)?;
    Ok(InsertedMessage::Answer(question.turn))
}

/// Writes `extras` within the caller's commit. `notices` says where notices for the owner go. Returns the channel that has to
/// deliver such a notice, if one was written.
fn write_extras(
    connection: &Connection,
    extras: &AcceptExtras,
    notices: Option<&NoticeSettings>,
) -> Result<Option<String>, StoreError> {
    if let Some(cursor) = &extras.cursor {
        cursors::set(connection, &cursor.channel, &cursor.source, &cursor.position)?;
    }
    for note in &extras.notes {
        notes::set(connection, &note.channel, note.kind, &note.key, &note.value)?;
    }
    match &extras.notice {
        Some(content) => write_notice(
            connection,
            notices,
            daoyou_channels::new_id(),
            OutboxSlot::notice(NoticeKind::Channel),
            content.clone(),
        ),
        None => Ok(None),
    }
}

/// Returns the state of a row as channels see it.
fn message_state(connection: &Connection, row: InboxRow) -> Result<MessageState, StoreError> {
    let status = row.state;
    let reply = match status {
        MessageStatus::Done | MessageStatus::Dead => outbox::reply(connection, row.turn)?,
        _ => None,
    };
    let body = |found: Option<outbox::OutboxRow>| {
        found.map(|found| serde_json::from_str::<OutboundBody>(&found.body)).transpose()
    };
    let (mut notice, mut awaits_approval, mut question) = (None, false, None);
    // A turn that was parked for a model keeps that notice while it asks the model again.
    let is_open = matches!(status, MessageStatus::Running | MessageStatus::Waiting);
    let asks_model = is_open && inbox::waits_for_model(connection, row.id)?;
    if status == MessageStatus::Waiting || asks_model {
        for found in outbox::of_turn(connection, row.turn)? {
            let is_current = match OutboxSlot::parse(&found.slot) {
                Some(OutboxSlot::Notice { kind: NoticeKind::Waiting, .. }) => asks_model,
                Some(OutboxSlot::Notice { kind: NoticeKind::Approval, about: Some(code) }) if !asks_model => {
                    approvals::find_code(connection, &code)?.is_some_and(|one| one.state == ApprovalState::Pending)
                }
                _ => false,
            };
            if is_current {
                notice = body(Some(found))?;
            }
        }
        awaits_approval = !asks_model && notice.is_some();
        if let Some(asked) = questions::pending(connection, &row.session)?.filter(|asked| asked.turn == row.turn) {
            let slot = OutboxSlot::Question { id: asked.id }.to_column();
            question = body(outbox::find_slot(connection, row.turn, &slot)?)?;
        }
    }
    let reply = body(reply)?;
    let continues = match (status, &reply) {
        // An answer to a question of a turn that is still running.
        (MessageStatus::Done, None) if row.turn != row.id => {
            let rows = inbox::of_turn(connection, row.turn)?;
            rows.iter().rev().find(|other| other.is_open()).map(|other| other.id)
        }
        _ => None,
    };
    Ok(MessageState {
        id: row.id,
        session: row.session.into(),
        status,
        reply: reply.map(|body| Reply { content: body.content, error: body.error }),
        awaits_approval,
        notice: notice.map(|body| body.content),
        question: question.map(|body| body.content),
        continues,
    })
}

fn append_remark(reply: String, unread: Option<String>) -> String {
    match unread {
        Some(unread) => format!("{reply}\n\n{unread}"),
        None => reply,
    }
}

/// Refuses a message because the store cannot be read or written; the sender may retry after 5 s.
impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store { reason: error.to_string(), retry_after: Duration::from_secs(5) }
    }
}

/// The inbox that channels see, backed by the bus.
#[derive(Clone)]
pub struct BusInbox(pub Arc<MessageBus>);

impl BusInbox {
    /// Writes a message of the owner to another chat into the outbox, if the bus accepts messages and the channel has capacity.
    ///
    /// # Errors
    /// The [`Refusal`]; nothing is stored then.
    pub async fn send_for_owner(&self, draft: OutboundDraft) -> Result<Uuid, Refusal> {
        let settings = self.0.settings.get();
        let retry_after = settings.drain_timeout;
        if self.0.draining.load(Ordering::SeqCst) {
            return Err(Refusal::Draining { retry_after });
        }
        self.0.check_disk()?;
        self.0.capacity.check_channel(settings.capacities, &draft.channel)?;
        Ok(self.0.publish_outbound(draft).await?)
    }

    /// Returns the usage of a message's turn, and the texts that the turn sent to this chat before its reply.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn report(&self, message: Uuid, channel: &str, chat_id: &str) -> Result<TurnReport, Refusal> {
        let (channel, chat_id) = (channel.to_owned(), chat_id.to_owned());
        let read = move |connection: &Connection| {
            let Some(row) = inbox::find(connection, message)? else { return Ok(TurnReport::default()) };
            let used = usage::total(connection, UsageScope::Turn(row.turn))?.tokens;
            Ok(TurnReport {
                messages: texts_of_turn(connection, row.turn, &channel, &chat_id)?,
                input_tokens: used.input,
                output_tokens: used.output,
                cached_tokens: used.cached,
            })
        };
        Ok(self.0.store.read(read).await?)
    }
}

#[async_trait]
impl Inbox for BusInbox {
    async fn accept(&self, message: InboundMessage, extras: AcceptExtras) -> Result<Acceptance, Refusal> {
        self.0.publish_inbound(message, None, extras).await
    }

    async fn answer(
        &self,
        message: InboundMessage,
        reply: String,
        extras: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        self.0.publish_inbound(message, Some(reply), extras).await
    }

    async fn skip(&self, extras: AcceptExtras, reason: &str) -> Result<(), Refusal> {
        let reason = reason.to_owned();
        let notices = self.0.notice_settings();
        let write = move |connection: &Connection| {
            let notified = write_extras(connection, &extras, notices.as_ref())?;
            if let Some(Cursor { channel, source, position }) = &extras.cursor {
                cursors::skip(connection, channel, source, position, &reason)?;
            }
            Ok(notified)
        };
        let notified = self.0.store.write(Durability::Synced, write).await?;
        self.0.wake_for_notice(notified);
        Ok(())
    }

    async fn note(&self, channel: &str, kind: &str, key: &str) -> Result<Option<StoredNote>, Refusal> {
        let (channel, kind, key) = (channel.to_owned(), kind.to_owned(), key.to_owned());
        let found = self.0.store.read(move |connection| notes::get(connection, &channel, &kind, &key)).await?;
        Ok(found.map(|(value, at)| StoredNote { value, at: Timestamp::from_millisecond(at).unwrap_or_default() }))
    }

    async fn sent(&self, channel: &str, id: Uuid) -> Result<Option<SentMessage>, Refusal> {
        let found = self.0.store.read(move |connection| outbox::find(connection, id)).await?;
        let row = found.filter(|row| row.channel == channel && row.state == "sent");
        Ok(row.map(|row| SentMessage { is_notice: OutboxSlot::is_notice(&row.slot), chat_id: row.chat_id }))
    }

    async fn cursor(&self, channel: &str, source: &str) -> Result<Option<Cursor>, Refusal> {
        let (channel, source) = (channel.to_owned(), source.to_owned());
        let read = move |connection: &Connection| {
            let position = cursors::get(connection, &channel, &source)?;
            Ok(position.map(|position| Cursor { channel, source, position }))
        };
        Ok(self.0.store.read(read).await?)
    }

    async fn state(&self, channel: &str, id: &str) -> Result<Option<MessageState>, Refusal> {
        let (channel, id) = (channel.to_owned(), id.to_owned());
        let read = move |connection: &Connection| {
            let by_id = match id.parse() {
                Ok(uuid) => inbox::find(connection, uuid)?.filter(|row| row.channel == channel),
                Err(_) => None,
            };
            let row = match by_id {
                Some(row) => Some(row),
                None => inbox::find_external(connection, &channel, &id)?,
            };
            row.map(|row| message_state(connection, row)).transpose()
        };
        Ok(self.0.store.read(read).await?)
    }

    async fn follow_ups(&self, channel: &str, id: Uuid) -> Result<Vec<MessageState>, Refusal> {
        let channel = channel.to_owned();
        let read = move |connection: &Connection| {
            let Some(row) = inbox::find(connection, id)? else { return Ok(Vec::new()) };
            let rows = inbox::follow_ups(connection, &channel, row.turn, MAX_FOLLOW_UPS)?.into_iter();
            rows.map(|row| message_state(connection, row)).collect()
        };
        Ok(self.0.store.read(read).await?)
    }

    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, Refusal> {
        let mut waiter = self.0.waiters.register(id);
        let read = || self.0.store.read(move |connection| find_message_state(connection, id));
        let state = read().await?;
        let is_open = |state: &MessageState| !matches!(state.status, MessageStatus::Done | MessageStatus::Dead);
        if !state.as_ref().is_some_and(is_open) {
            return Ok(state);
        }
        // The store has the state, whether the message ended or the timeout came first.
        let _ = tokio::time::timeout(limit, waiter.ended()).await;
        Ok(read().await?)
    }
}

/// Returns the state of the message with this id.
///
/// # Errors
/// The store cannot be read.
pub fn find_message_state(connection: &Connection, id: Uuid) -> Result<Option<MessageState>, StoreError> {
    inbox::find(connection, id)?.map(|row| message_state(connection, row)).transpose()
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
