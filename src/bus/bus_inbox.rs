//! The bus as the inbox of channels: accepts messages, and returns the state of accepted messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::api::TurnReport;
use daoyou_channels::{
    AcceptExtras, Acceptance, Cursor, InboundMessage, Inbox, MessageState, MessageStatus, Refusal, SentMessage,
    StoredNote,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::accept::{message_state, write_extras};
use super::message_bus::MessageBus;
use super::outbound::{OutboundDraft, OutboxSlot, texts_of_turn};
use crate::store::usage::{self, UsageScope};
use crate::store::{Connection, Durability, StoreError, cursors, inbox, notes, outbox};

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
        Ok(row.map(|row| SentMessage { is_notice: OutboxSlot::is_notice(&row.slot) }))
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
