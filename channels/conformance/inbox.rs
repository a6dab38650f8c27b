//! A scripted inbox in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

use crate::event::{EventSource, SessionEvent, TurnEvent};
use crate::inbox::{
    AcceptExtras, Acceptance, Cursor, Inbox, MessageState, MessageStatus, Note, Refusal, Reply, SentMessage, StoredNote,
};
use crate::message::{ErrorInfo, InboundMessage, OutboundMessage, SessionKey};

/// The reaction of the inbox to one message.
#[derive(Clone, Debug)]
pub enum ScriptedAnswer {
    /// Reply at once.
    Reply(String),
    /// Fail the turn at once.
    Fail(ErrorInfo, String),
    /// Accept the message; [`ScriptedInbox::finish`] answers it later.
    Hold,
    Refuse(Refusal),
}

/// The result of one hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxVerdict {
    Accepted,
    Duplicate,
    Refused,
    /// The channel skipped the message.
    Skipped,
}

type Script = Box<dyn Fn(&InboundMessage) -> ScriptedAnswer + Send + Sync>;

/// An inbox that stores messages in memory and answers them by a script.
pub struct ScriptedInbox {
    script: Script,
    records: Mutex<InboxRecords>,
    changed: watch::Sender<()>,
    outbox: (async_channel::Sender<OutboundMessage>, async_channel::Receiver<OutboundMessage>),
}

#[derive(Default)]
struct InboxRecords {
    messages: Vec<(MessageState, InboundMessage)>,
    cursors: Vec<Cursor>,
    notes: Vec<(Note, Timestamp)>,
    notices: Vec<String>,
    skipped: Vec<String>,
    verdicts: Vec<InboxVerdict>,
    sent: Vec<(String, Uuid, SentMessage)>,
    listeners: Vec<(String, async_channel::Sender<SessionEvent>)>,
}

impl InboxRecords {
    fn store_extras(&mut self, extras: AcceptExtras) {
        self.cursors.extend(extras.cursor);
        self.notes.extend(extras.notes.into_iter().map(|note| (note, Timestamp::now())));
        self.notices.extend(extras.notice);
    }
}

impl ScriptedInbox {
    pub fn new(script: impl Fn(&InboundMessage) -> ScriptedAnswer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            records: Mutex::default(),
            changed: watch::Sender::new(()),
            outbox: async_channel::unbounded(),
        })
    }

    /// Returns the accepted messages in order.
    pub fn accepted(&self) -> Vec<InboundMessage> {
        self.records.lock().messages.iter().map(|(_, message)| message.clone()).collect()
    }

    /// Returns the id of the `index`-th accepted message.
    pub fn id(&self, index: usize) -> Option<Uuid> {
        self.records.lock().messages.get(index).map(|(state, _)| state.id)
    }

    /// Waits until the inbox has accepted `count` messages.
    pub async fn reached(&self, count: usize) {
        let mut changed = self.changed.subscribe();
        while self.records.lock().messages.len() < count {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the results of all hand-overs in order.
    pub fn verdicts(&self) -> Vec<InboxVerdict> {
        self.records.lock().verdicts.clone()
    }

    /// Returns the result of the hand-over that follows the first `count`; waits for it.
    pub async fn verdict_after(&self, count: usize) -> InboxVerdict {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(verdict) = self.records.lock().verdicts.get(count) {
                return *verdict;
            }
            // The sender lives as long as `self`, so the wait cannot fail.
            let _ = changed.changed().await;
        }
    }

    fn record(&self, verdict: InboxVerdict) {
        self.records.lock().verdicts.push(verdict);
        self.changed.send_replace(());
    }

    /// Stores an accepted message.
    fn store(&self, message: InboundMessage, extras: AcceptExtras) -> (Uuid, SessionKey) {
        let (id, session) = (crate::new_id(), message.session_key());
        let state = MessageState {
            id,
            session: session.clone(),
            status: MessageStatus::Queued,
            reply: None,
            notice: None,
            awaits_approval: false,
            question: None,
            continues: None,
        };
        let mut records = self.records.lock();
        records.messages.push((state, message));
        records.store_extras(extras);
        (id, session)
    }

    /// Ends the turn of a held message.
    pub fn finish(&self, id: Uuid, reply: Reply) {
        let mut records = self.records.lock();
        let Some((state, message)) = records.messages.iter_mut().find(|(state, _)| state.id == id) else { return };
        state.status = MessageStatus::Done;
        state.reply = Some(reply.clone());
        let outbound = OutboundMessage {
            turn: id,
            session: state.session.clone(),
            in_reply_to: Some(id),
            metadata: message.metadata.clone(),
            context: message.reply.clone(),
            error: reply.error,
            ..OutboundMessage::text(&message.channel, &message.chat_id, reply.content)
        };
        drop(records);
        // Sending cannot fail: this struct holds both ends, and the queue has no bound.
        let _ = self.outbox.0.try_send(outbound);
        self.changed.send_replace(());
    }

    /// Makes a held message wait for a model service; its sender gets the notice.
    pub fn park(&self, id: Uuid, notice: &str) {
        let mut records = self.records.lock();
        let Some((state, _)) = records.messages.iter_mut().find(|(state, _)| state.id == id) else { return };
        (state.status, state.notice) = (MessageStatus::Waiting, Some(notice.to_owned()));
    }

    /// Makes a parked message run again, as a retry does.
    pub fn run_again(&self, id: Uuid) {
        let mut records = self.records.lock();
        let Some((state, _)) = records.messages.iter_mut().find(|(state, _)| state.id == id) else { return };
        state.status = MessageStatus::Running;
    }

    /// Returns the queue of replies to deliver.
    pub fn outbound(&self) -> async_channel::Receiver<OutboundMessage> {
        self.outbox.1.clone()
    }

    /// Sends `event` of the turn of the message `id` to all subscribers.
    pub fn emit(&self, id: Uuid, event: TurnEvent) {
        let records = self.records.lock();
        let Some((state, message)) = records.messages.iter().find(|(state, _)| state.id == id) else { return };
        let event = SessionEvent {
            session: state.session.clone(),
            turn: id,
            channel: message.channel.clone(),
            chat_id: message.chat_id.clone(),
            event,
        };
        for (_, listener) in records.listeners.iter().filter(|(channel, _)| *channel == message.channel) {
            // A slow or closed subscriber loses events.
            let _ = listener.try_send(event.clone());
        }
    }

    /// Records the message `id` of `channel` as delivered.
    pub fn mark_sent(&self, channel: &str, id: Uuid, message: SentMessage) {
        self.records.lock().sent.push((channel.to_owned(), id, message));
    }

    /// Deletes the notes of the given kinds, as their expiry would.
    pub fn forget_notes(&self, kinds: &[&str]) {
        self.records.lock().notes.retain(|(note, _)| !kinds.contains(&note.kind));
    }

    /// Returns the newest value of a note; empty if there is none.
    pub fn note_of(&self, channel: &str, kind: &str, key: &str) -> String {
        self.newest_note(channel, kind, key).map(|note| note.value).unwrap_or_default()
    }

    fn newest_note(&self, channel: &str, kind: &str, key: &str) -> Option<StoredNote> {
        let records = self.records.lock();
        let found = records.notes.iter().rev().find(|(n, _)| n.channel == channel && n.kind == kind && n.key == key);
        found.map(|(note, at)| StoredNote { value: note.value.clone(), at: *at })
    }

    /// Returns the notices to the owner.
    pub fn notices(&self) -> Vec<String> {
        self.records.lock().notices.clone()
    }

    /// Returns the reasons of all skipped messages.
    pub fn skipped(&self) -> Vec<String> {
        self.records.lock().skipped.clone()
    }

    fn find(&self, wanted: impl Fn(&MessageState, &InboundMessage) -> bool) -> Option<MessageState> {
        self.records
            .lock()
            .messages
            .iter()
            .find(|(state, message)| wanted(state, message))
            .map(|(state, _)| state.clone())
    }
}

#[async_trait]
impl Inbox for ScriptedInbox {
    async fn accept(&self, message: InboundMessage, extras: AcceptExtras) -> Result<Acceptance, Refusal> {
        let known = self.find(|_, first| {
            message.external_id.is_some()
                && first.channel == message.channel
                && first.external_id == message.external_id
        });
        if let Some(MessageState { id, session, reply, .. }) = known {
            self.records.lock().store_extras(extras.of_duplicate());
            self.record(InboxVerdict::Duplicate);
            return Ok(Acceptance::Duplicate { id, session, reply });
        }
        let answer = (self.script)(&message);
        if let ScriptedAnswer::Refuse(refusal) = answer {
            self.record(InboxVerdict::Refused);
            return Err(refusal);
        }
        let (id, session) = self.store(message, extras);
        self.record(InboxVerdict::Accepted);
        match answer {
            ScriptedAnswer::Reply(content) => self.finish(id, Reply { content, error: None }),
            ScriptedAnswer::Fail(error, content) => self.finish(id, Reply { content, error: Some(error) }),
            ScriptedAnswer::Hold | ScriptedAnswer::Refuse(_) => {}
        }
        Ok(Acceptance::Accepted { id, session })
    }

    async fn answer(
        &self,
        message: InboundMessage,
        reply: String,
        extras: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        let (id, session) = self.store(message, extras);
        self.finish(id, Reply { content: reply, error: None });
        Ok(Acceptance::Accepted { id, session })
    }

    async fn skip(&self, extras: AcceptExtras, reason: &str) -> Result<(), Refusal> {
        let mut records = self.records.lock();
        records.skipped.push(reason.to_owned());
        let passes_message = extras.cursor.is_some();
        records.store_extras(extras);
        drop(records);
        if passes_message {
            self.record(InboxVerdict::Skipped);
        }
        Ok(())
    }

    async fn note(&self, channel: &str, kind: &str, key: &str) -> Result<Option<StoredNote>, Refusal> {
        Ok(self.newest_note(channel, kind, key))
    }

    async fn sent(&self, channel: &str, id: Uuid) -> Result<Option<SentMessage>, Refusal> {
        let records = self.records.lock();
        Ok(records
            .sent
            .iter()
            .find(|(name, known, _)| name == channel && *known == id)
            .map(|(_, _, message)| message.clone()))
    }

    async fn cursor(&self, channel: &str, source: &str) -> Result<Option<Cursor>, Refusal> {
        let records = self.records.lock();
        Ok(records.cursors.iter().rev().find(|c| c.channel == channel && c.source == source).cloned())
    }

    async fn state(&self, channel: &str, id: &str) -> Result<Option<MessageState>, Refusal> {
        Ok(self.find(|state, message| {
            message.channel == channel && (state.id.to_string() == id || message.external_id.as_deref() == Some(id))
        }))
    }

    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, Refusal> {
        let mut changed = self.changed.subscribe();
        let ended = async {
            while self.find(|state, _| state.id == id && state.status != MessageStatus::Done).is_some() {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        // After the timeout, the state below tells the progress.
        let _ = tokio::time::timeout(limit, ended).await;
        Ok(self.find(|state, _| state.id == id))
    }
}

impl EventSource for ScriptedInbox {
    fn subscribe(&self, channel: &str) -> async_channel::Receiver<SessionEvent> {
        let (sender, receiver) = async_channel::bounded(1_024);
        self.records.lock().listeners.push((channel.to_owned(), sender));
        receiver
    }
}
