//! Publish and consume, inbound and outbound.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender, TrySendError};
use async_trait::async_trait;
use daoyou_channels::{
    Acceptance, Cursor, InboundMessage, Inbox, MessageState, MessageStatus, Refusal, Reply, SessionKey, Trust,
};
use uuid::Uuid;

use super::capacity::Ledger;
use super::disk::DiskReserve;
use super::waiters::Waiters;
use super::{BusSettings, EventHub, Notices, OutboundBody, OutboundDraft};
use crate::crash;
use crate::store::inbox::{self, InboxRow, Inserted, NewMessage, State};
use crate::store::{Commit, Connection, Store, StoreError, cursors, outbox};

/// The longest external id, in bytes; beyond it a sender would fill the index.
const EXTERNAL_ID_LIMIT: usize = 1_024;

/// Where the consumer of inbound messages is to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// This session has an unfinished message.
    Work(SessionKey),
    /// This turn is to stop.
    Cancel(Uuid),
    /// Some wake-ups were dropped: look at everything unfinished.
    Rescan,
}

/// An order that is carried out at accept, past the session's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Stop,
    Status,
}

/// Knows which messages are such orders, and the words to answer them with.
#[async_trait]
pub trait PastLane: Send + Sync {
    fn order(&self, message: &InboundMessage) -> Option<Order>;

    /// What the sender of `/stop` is told.
    fn stopped(&self, something_ran: bool) -> String;

    /// What the sender of `/status` is told.
    async fn status(&self, bus: &MessageBus) -> String;
}

/// The bus. Everything published is a row before anybody is woken.
pub struct MessageBus {
    store: Store,
    past_lane: Arc<dyn PastLane>,
    owners: HashSet<String>,
    notices: Option<Notices>,
    ledger: Ledger,
    disk: DiskReserve,
    waiters: Waiters,
    events: Arc<EventHub>,
    draining: AtomicBool,
    drain_for: Duration,
    inbound: Wake<Inbound>,
    outbound: Wake<String>,
}

/// A bounded queue of wake-ups that loses none for good: an overflow asks the consumer to look everywhere.
struct Wake<T> {
    send: Sender<T>,
    receive: Receiver<T>,
    overflowed: AtomicBool,
}

impl<T> Wake<T> {
    fn new(bound: usize) -> Self {
        let (send, receive) = async_channel::bounded(bound.max(1));
        Self { send, receive, overflowed: AtomicBool::new(false) }
    }

    fn wake(&self, item: T) {
        if let Err(TrySendError::Full(_)) = self.send.try_send(item) {
            self.overflowed.store(true, Ordering::SeqCst);
        }
    }

    /// The next wake-up; `None` stands for an overflow.
    async fn next(&self) -> Option<T> {
        if self.receive.is_empty() && self.overflowed.swap(false, Ordering::SeqCst) {
            return None;
        }
        // The bus holds the sending side itself, so the channel is never closed while somebody can be here.
        match self.receive.recv().await {
            Ok(item) => Some(item),
            Err(_) => std::future::pending().await,
        }
    }
}

impl MessageBus {
    /// Builds the bus over `store`.
    pub fn new(store: Store, settings: BusSettings, past_lane: Arc<dyn PastLane>) -> Self {
        let folder = store.path().parent().unwrap_or(store.path()).to_owned();
        let BusSettings { capacities, reserve, drain_timeout, owners, notices } = settings;
        Self {
            store,
            past_lane,
            owners,
            notices,
            ledger: Ledger::new(capacities),
            disk: DiskReserve::new(folder, reserve),
            waiters: Waiters::default(),
            events: Arc::default(),
            draining: AtomicBool::new(false),
            drain_for: drain_timeout,
            inbound: Wake::new(capacities.inbound),
            outbound: Wake::new(1_024),
        }
    }

    /// Counts what stands in the store, so that capacities hold across restarts.
    pub async fn recount(&self) -> Result<(), StoreError> {
        let (inbound, outbound) = self
            .store
            .read(|connection| Ok((inbox::open_sessions(connection)?, outbox::open_by_channel(connection)?)))
            .await?;
        for (session, messages, _) in inbound {
            self.ledger.add(&SessionKey::from(session), messages);
        }
        for (channel, messages) in outbound {
            self.ledger.add_outbound(&channel, messages);
        }
        Ok(())
    }

    /// Accepts a message: one commit holds its row and, with a cursor, the cursor. Then the consumer is woken.
    ///
    /// # Errors
    /// The [`Refusal`] that the sender is to be told; nothing is kept then.
    pub async fn publish_inbound(
        &self,
        mut message: InboundMessage,
        cursor: Option<Cursor>,
    ) -> Result<Acceptance, Refusal> {
        if message.external_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > EXTERNAL_ID_LIMIT) {
            return Err(Refusal::Invalid(format!("the message's id must have 1 to {EXTERNAL_ID_LIMIT} bytes")));
        }
        if self.draining.load(Ordering::SeqCst) {
            return Err(Refusal::Draining { retry_after: self.drain_for });
        }
        self.disk.check().map_err(|reason| Refusal::Store { reason, retry_after: self.drain_for })?;
        if self.owners.contains(&format!("{}:{}", message.channel, message.sender)) {
            message.trust = Trust::Owner;
        }
        match self.past_lane.order(&message) {
            Some(order) => self.carry_out(order, message).await,
            None => self.queue(message, cursor).await,
        }
    }

    async fn queue(&self, message: InboundMessage, cursor: Option<Cursor>) -> Result<Acceptance, Refusal> {
        let session = message.session_key();
        if let Err(refusal) = self.ledger.take(&message.channel, &session) {
            // What was accepted before is no new message, and its sender is not to be turned away.
            let known = self.known(&message).await?;
            return known.ok_or(refusal);
        }
        let row = new_row(&message, &session, State::Queued).map_err(|error| refuse(&error))?;
        let id = row.id;
        let written = self
            .store
            .write(Commit::Synced, move |connection| {
                let inserted = inbox::insert(connection, &row)?;
                if let Some(cursor) = cursor {
                    cursors::set(connection, &cursor.channel, &cursor.source, &cursor.position)?;
                }
                crash::point("accept_before_commit", &row.content);
                Ok(inserted)
            })
            .await;
        match written {
            Ok(Inserted::New) => {
                crash::point("accept_committed", &message.content);
                tracing::info!(turn = %id, %session, channel = message.channel, "accepted");
                self.inbound.wake(Inbound::Work(session.clone()));
                Ok(Acceptance::Accepted { id, session })
            }
            Ok(Inserted::Known { .. }) => {
                self.ledger.give_back(&session, 1);
                let known = self.known(&message).await?;
                known.ok_or_else(|| refuse(&StoreError::Row("a known message is gone".to_owned())))
            }
            Err(error) => {
                self.ledger.give_back(&session, 1);
                tracing::error!(%session, %error, "a message could not be accepted");
                Err(refuse(&error))
            }
        }
    }

    /// `/stop` and `/status`: the row is done from the start, its reply in the same commit.
    async fn carry_out(&self, order: Order, message: InboundMessage) -> Result<Acceptance, Refusal> {
        let session = message.session_key();
        let row = new_row(&message, &session, State::Done).map_err(|error| refuse(&error))?;
        let id = row.id;
        let status = match order {
            Order::Status => Some(self.past_lane.status(self).await),
            Order::Stop => None,
        };
        let past_lane = self.past_lane.clone();
        let channel = message.channel.clone();
        let known = message.clone();
        let answer = move |connection: &Connection| {
            if inbox::insert(connection, &row)? != Inserted::New {
                return Ok(None);
            }
            let cancelled = match order {
                Order::Stop => inbox::cancel_current(connection, &row.session)?,
                Order::Status => None,
            };
            let content = status.unwrap_or_else(|| past_lane.stopped(cancelled.is_some()));
            reply_to(id, message, content).insert(connection)?;
            Ok(Some(cancelled))
        };
        match self.store.write(Commit::Synced, answer).await.map_err(|error| refuse(&error))? {
            Some(cancelled) => {
                self.outbound_written(&channel, 1);
                if let Some(turn) = cancelled {
                    tracing::info!(%session, %turn, "asked to stop");
                    self.inbound.wake(Inbound::Cancel(turn));
                    self.inbound.wake(Inbound::Work(session.clone()));
                }
                Ok(Acceptance::Accepted { id, session })
            }
            None => {
                let known = self.known(&known).await?;
                known.ok_or_else(|| refuse(&StoreError::Row("a known message is gone".to_owned())))
            }
        }
    }

    /// The first acceptance of a message, if there was one.
    async fn known(&self, message: &InboundMessage) -> Result<Option<Acceptance>, Refusal> {
        let Some(external_id) = message.external_id.clone() else { return Ok(None) };
        let channel = message.channel.clone();
        let found = self
            .store
            .read(move |connection| {
                let row = inbox::find_external(connection, &channel, &external_id)?;
                row.map(|row| state_of(connection, row)).transpose()
            })
            .await
            .map_err(|error| refuse(&error))?;
        Ok(found.map(|state| Acceptance::Duplicate { id: state.id, session: state.session, reply: state.reply }))
    }

    /// Waits for the next place to look at. For the one consumer of inbound messages.
    pub async fn consume_inbound(&self) -> Inbound {
        self.inbound.next().await.unwrap_or(Inbound::Rescan)
    }

    /// Puts a message into the outbox outside of any turn's commit, and wakes the consumer.
    pub async fn publish_outbound(&self, draft: OutboundDraft) -> Result<Uuid, StoreError> {
        let channel = draft.channel.clone();
        let id = self.store.write(Commit::Synced, move |connection| draft.insert(connection)).await?;
        self.outbound_written(&channel, 1);
        Ok(id)
    }

    /// Tells the owner that a message to `channel` was given up, where he wants to be told. A notice that is given up
    /// itself, or that would go the same way, is in the log alone.
    pub async fn notify_dead_letter(&self, turn: Uuid, slot: &str, channel: &str, id: Uuid, reason: &str) {
        let Some(notices) = self.notices.as_ref().filter(|to| to.channel != channel && !slot.starts_with("notice:"))
        else {
            return;
        };
        let mut content = notices.dead_letter.to_owned();
        for value in [channel, &id.to_string(), reason] {
            content = content.replacen("{}", value, 1);
        }
        let body = OutboundBody {
            content,
            session: SessionKey::of_chat(&notices.channel, &notices.chat_id),
            in_reply_to: None,
            attachments: Vec::new(),
            metadata: serde_json::Map::new(),
            error: None,
        };
        let (channel, chat_id) = (notices.channel.clone(), notices.chat_id.clone());
        let draft = OutboundDraft { turn, slot: format!("notice:dead:{id}"), channel, chat_id, body };
        if let Err(error) = self.publish_outbound(draft).await {
            tracing::error!(%id, %error, "the owner could not be told of a dead letter");
        }
    }

    /// Waits for the next channel with something to deliver; `None` asks to look at all. For the one consumer.
    pub async fn consume_outbound(&self) -> Option<String> {
        self.outbound.next().await
    }

    /// Outbox rows were committed along with something else.
    pub fn outbound_written(&self, channel: &str, messages: usize) {
        self.ledger.add_outbound(channel, messages);
        self.outbound.wake(channel.to_owned());
    }

    /// An outbox row is sent, or given up.
    pub fn outbound_ended(&self, channel: &str) {
        self.ledger.remove_outbound(channel);
    }

    /// A session's messages have ended: their places are free, and who waits for them is told.
    pub fn inbound_ended(&self, session: &SessionKey, messages: &[Uuid]) {
        self.ledger.give_back(session, messages.len());
        self.waiters.wake(messages);
    }

    /// A dead message was revived by hand.
    pub fn inbound_revived(&self, session: SessionKey) {
        self.ledger.add(&session, 1);
        self.inbound.wake(Inbound::Work(session));
    }

    /// From now on new messages are refused: the gateway stops.
    pub fn close_intake(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Unfinished inbound and undelivered outbound messages.
    pub fn depths(&self) -> (usize, usize) {
        (self.ledger.inbound(), self.ledger.outbound())
    }

    /// Why nothing is accepted at the moment, if so.
    pub fn intake_fault(&self) -> Option<String> {
        if self.draining.load(Ordering::SeqCst) {
            return Some("the gateway is stopping".to_owned());
        }
        self.disk.check().err()
    }

    pub fn events(&self) -> &Arc<EventHub> {
        &self.events
    }

    pub fn store(&self) -> &Store {
        &self.store
    }
}

#[async_trait]
impl Inbox for MessageBus {
    async fn accept(&self, message: InboundMessage, cursor: Option<Cursor>) -> Result<Acceptance, Refusal> {
        self.publish_inbound(message, cursor).await
    }

    async fn skip(&self, cursor: Cursor, reason: &str) -> Result<(), Refusal> {
        let reason = reason.to_owned();
        let Cursor { channel, source, position } = cursor;
        self.store
            .write(Commit::Synced, move |connection| cursors::skip(connection, &channel, &source, &position, &reason))
            .await
            .map_err(|error| refuse(&error))
    }

    async fn cursor(&self, channel: &str, source: &str) -> Result<Option<Cursor>, Refusal> {
        let (channel, source) = (channel.to_owned(), source.to_owned());
        self.store
            .read(move |connection| {
                let position = cursors::get(connection, &channel, &source)?;
                Ok(position.map(|position| Cursor { channel, source, position }))
            })
            .await
            .map_err(|error| refuse(&error))
    }

    async fn state(&self, channel: &str, id: &str) -> Result<Option<MessageState>, Refusal> {
        let (channel, id) = (channel.to_owned(), id.to_owned());
        self.store
            .read(move |connection| {
                let by_id = match id.parse() {
                    Ok(uuid) => inbox::find(connection, uuid)?.filter(|row| row.channel == channel),
                    Err(_) => None,
                };
                let row = match by_id {
                    Some(row) => Some(row),
                    None => inbox::find_external(connection, &channel, &id)?,
                };
                row.map(|row| state_of(connection, row)).transpose()
            })
            .await
            .map_err(|error| refuse(&error))
    }

    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, Refusal> {
        let ended = self.waiters.register(id);
        let look = || {
            self.store
                .read(move |connection| inbox::find(connection, id)?.map(|row| state_of(connection, row)).transpose())
        };
        let state = look().await.map_err(|error| refuse(&error))?;
        let open = |state: &MessageState| !matches!(state.status, MessageStatus::Done | MessageStatus::Dead);
        if !state.as_ref().is_some_and(open) {
            return Ok(state);
        }
        // Whether it ended or the time is up, the store says how it stands.
        let _ = tokio::time::timeout(limit, ended).await;
        self.waiters.forget_gone(id);
        look().await.map_err(|error| refuse(&error))
    }
}

fn new_row(message: &InboundMessage, session: &SessionKey, state: State) -> Result<NewMessage, StoreError> {
    let id = Uuid::now_v7();
    Ok(NewMessage {
        id,
        channel: message.channel.clone(),
        external_id: message.external_id.clone().unwrap_or_else(|| id.to_string()),
        session: session.to_string(),
        chat_id: message.chat_id.clone(),
        sender: message.sender.clone(),
        trust: message.trust.as_str(),
        content: message.content.clone(),
        attachments: serde_json::to_string(&message.attachments)?,
        metadata: serde_json::to_string(&message.metadata)?,
        received_at: message.received_at.as_millisecond(),
        state,
    })
}

fn reply_to(turn: Uuid, message: InboundMessage, content: String) -> OutboundDraft {
    let session = message.session_key();
    OutboundDraft {
        turn,
        slot: "reply".to_owned(),
        channel: message.channel,
        chat_id: message.chat_id,
        body: OutboundBody {
            content,
            session,
            in_reply_to: Some(turn),
            attachments: Vec::new(),
            metadata: message.metadata,
            error: None,
        },
    }
}

fn state_of(connection: &Connection, row: InboxRow) -> Result<MessageState, StoreError> {
    let status = match row.state {
        State::Queued => MessageStatus::Queued,
        State::Running => MessageStatus::Running,
        State::Waiting => MessageStatus::Waiting,
        State::Done => MessageStatus::Done,
        State::Dead => MessageStatus::Dead,
    };
    let reply = match status {
        MessageStatus::Done | MessageStatus::Dead => outbox::reply(connection, row.turn)?,
        _ => None,
    };
    let reply = reply.map(|reply| serde_json::from_str::<OutboundBody>(&reply.body)).transpose()?;
    Ok(MessageState {
        id: row.id,
        session: row.session.into(),
        status,
        reply: reply.map(|body| Reply { content: body.content, error: body.error }),
    })
}

fn refuse(error: &StoreError) -> Refusal {
    Refusal::Store { reason: error.to_string(), retry_after: Duration::from_secs(5) }
}
