//! Taking messages in: a row first, then a wake-up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use daoyou_channels::{AcceptExtras, Acceptance, ErrorInfo, InboundMessage, Refusal, SessionKey, Trust};
use uuid::Uuid;

use super::extras::keep;
use super::message_bus::{CommandAnswer, Inbound, MessageBus, Order};
use super::states::state_of;
use super::{BusSettings, OutboundBody, OutboundDraft, scope};
use crate::crash;
use crate::origin::TurnOrigin;
use crate::store::inbox::{self, Inserted, NewMessage, State};
use crate::store::{Commit, Connection, StoreError, messages, processes, spawns};

/// The longest external id, in bytes; beyond it a sender would fill the index.
const EXTERNAL_ID_LIMIT: usize = 1_024;

/// What a message that starts no turn gets.
enum OnTheSpot {
    /// `/stop`: the running turn ends. With what is said of the rest of the message.
    Stop {
        unread: Option<String>,
    },
    Reply(String),
    /// A command in a session that waits.
    Command(CommandAnswer),
}

impl MessageBus {
    /// Accepts a message: one commit holds its row and what is `alongside`. Then the consumer is woken.
    ///
    /// # Errors
    /// The [`Refusal`] that the sender is to be told; nothing is kept then.
    pub async fn publish_inbound(
        self: &Arc<Self>,
        message: InboundMessage,
        alongside: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        self.take_in(message, None, alongside).await
    }

    /// Accepts a message that is answered already, with `reply`: one commit holds both and what is `alongside`.
    ///
    /// # Errors
    /// As [`MessageBus::publish_inbound`].
    pub async fn publish_answered(
        self: &Arc<Self>,
        message: InboundMessage,
        reply: String,
        alongside: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        self.take_in(message, Some(reply), alongside).await
    }

    async fn take_in(
        self: &Arc<Self>,
        message: InboundMessage,
        reply: Option<String>,
        alongside: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        // A task of its own: a caller who hangs up drops his future, and what is committed must be woken all the same.
        let bus = self.clone();
        let accepted = tokio::spawn(async move {
            let channel = bus.metrics.messages.channel(&message.channel);
            let answer = bus.judge(message, reply, alongside).await;
            match &answer {
                Ok(Acceptance::Accepted { .. }) => channel.accepted.increment(),
                Ok(Acceptance::Duplicate { .. }) => channel.duplicates.increment(),
                Err(refusal) => channel.refused.get(reason_of(refusal)).increment(),
            }
            answer
        });
        accepted.await.unwrap_or_else(|error| Err(refuse(&StoreError::Row(error.to_string()))))
    }

    async fn judge(
        &self,
        mut message: InboundMessage,
        reply: Option<String>,
        alongside: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        if message.external_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > EXTERNAL_ID_LIMIT) {
            return Err(Refusal::Invalid(format!("the message's id must have 1 to {EXTERNAL_ID_LIMIT} bytes")));
        }
        let settings = self.settings.get();
        let retry_after = settings.drain_timeout;
        if self.draining.load(Ordering::SeqCst) {
            return Err(Refusal::Draining { retry_after });
        }
        self.disk.check(settings.reserve).map_err(|reason| Refusal::Store { reason, retry_after })?;
        if settings.by_sender {
            scope::by_sender(&mut message);
        }
        if let Some(reply) = reply {
            return self.answer(&settings, OnTheSpot::Reply(reply), message, alongside).await;
        }
        match settings.commands.order(&message) {
            Some(Order::Stop) => {
                let unread = settings.commands.unread(&message);
                self.answer(&settings, OnTheSpot::Stop { unread }, message, alongside).await
            }
            Some(Order::Status) => {
                let status =
                    with_unread(settings.commands.status(self, &message).await, settings.commands.unread(&message));
                self.answer(&settings, OnTheSpot::Reply(status), message, alongside).await
            }
            Some(Order::Command) if self.waits(&message).await? => {
                let answer = settings.commands.command(&message).await.map_err(|error| refuse(&error))?;
                let (changes_model, session) = (answer.model.is_some(), message.session_key());
                let accepted = self.answer(&settings, OnTheSpot::Command(answer), message, alongside).await;
                if changes_model {
                    // What waits there may be answered by that model.
                    self.ask_session_again(session);
                }
                accepted
            }
            Some(Order::Command) | None => self.queue(&settings, message, alongside).await,
        }
    }

    /// Returns true if the session's current turn waits, so that its lane would answer nothing.
    async fn waits(&self, message: &InboundMessage) -> Result<bool, Refusal> {
        let session = message.session_key();
        let current = self.store.read(move |connection| inbox::open_of_session(connection, session.as_str(), 1)).await;
        let current = current.map_err(|error| refuse(&error))?;
        Ok(current.first().is_some_and(|row| row.state == State::Waiting))
    }

    async fn queue(
        &self,
        settings: &BusSettings,
        message: InboundMessage,
        alongside: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        let session = message.session_key();
        if let Err(refusal) = self.ledger.take(settings.capacities, &message.channel, &session) {
            // What was accepted before is no new message, and its sender is not to be turned away.
            let known = self.known(&message).await?;
            return known.ok_or(refusal);
        }
        let row = new_row(daoyou_channels::new_id(), &message, &origin_of(&message), &session, State::Queued)
            .map_err(|error| refuse(&error))?;
        let id = row.id;
        let notices = self.notices_of(settings);
        let written = self
            .store
            .write(Commit::Synced, move |connection| {
                let inserted = inbox::insert(connection, &row)?;
                let told = keep(connection, &alongside, notices.as_ref())?;
                crash::point("accept_before_commit", &row.content);
                Ok((inserted, told))
            })
            .await;
        match written {
            Ok((Inserted::New, told)) => {
                crash::point("accept_committed", &message.content);
                tracing::info!(turn = %id, %session, channel = message.channel, "accepted");
                self.inbound.wake(Inbound::Work(session.clone()));
                self.told(told);
                Ok(Acceptance::Accepted { id, session })
            }
            Ok((Inserted::Known { .. }, told)) => {
                self.ledger.give_back(&session, 1);
                self.inbound.wake(Inbound::Work(session));
                self.told(told);
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

    /// The owner has something to be told on `channel`.
    pub(super) fn told(&self, channel: Option<String>) {
        if let Some(channel) = channel {
            self.outbound_written(&channel, 1);
        }
    }

    /// The row is done from the start, its reply in the same commit. Such messages pass the inbound bounds, as `/stop` and
    /// `/status` must, but not the outbound one.
    async fn answer(
        &self,
        settings: &BusSettings,
        with: OnTheSpot,
        message: InboundMessage,
        alongside: AcceptExtras,
    ) -> Result<Acceptance, Refusal> {
        let session = message.session_key();
        if let Err(refusal) = self.ledger.may_take(settings.capacities, &message.channel) {
            return self.known(&message).await?.ok_or(refusal);
        }
        let row = new_row(daoyou_channels::new_id(), &message, &origin_of(&message), &session, State::Done)
            .map_err(|error| refuse(&error))?;
        let id = row.id;
        let commands = settings.commands.clone();
        let channel = message.channel.clone();
        let known = message.clone();
        let notices = self.notices_of(settings);
        let answer = move |connection: &Connection| {
            let told = keep(connection, &alongside, notices.as_ref())?;
            if inbox::insert(connection, &row)? != Inserted::New {
                return Ok((told, None));
            }
            let mut error = None;
            let (cancelled, content) = match with {
                OnTheSpot::Stop { unread } => {
                    // A stranger ends no turn but his own, and has no sub-agents.
                    let (current, sub_agents, processes) = if message.trust == Trust::Untrusted {
                        (inbox::cancel_of_stranger(connection, &row)?, Vec::new(), Vec::new())
                    } else {
                        let current = inbox::cancel_current(connection, &row.session)?;
                        let sub_agents = spawns::cancel_below(connection, &row.session)?;
                        (current, sub_agents, processes::open_of_session(connection, &row.session)?)
                    };
                    let told = commands.stopped(&message, current.is_some(), sub_agents.len(), &processes);
                    let current = current.map(|turn| (turn, row.session.clone()));
                    (current.into_iter().chain(sub_agents).collect(), with_unread(told, unread))
                }
                OnTheSpot::Reply(content) => (Vec::new(), content),
                OnTheSpot::Command(answer) => {
                    if let Some(model) = &answer.model {
                        messages::set_model(connection, &row.session, model.as_deref())?;
                    }
                    error = answer.error.map(|code| ErrorInfo { code: code.to_owned() });
                    (Vec::new(), answer.reply)
                }
            };
            let mut reply = reply_to(id, message, content);
            reply.body.error = error;
            reply.insert(connection)?;
            Ok((told, Some(cancelled)))
        };
        let (told, written) = self.store.write(Commit::Synced, answer).await.map_err(|error| refuse(&error))?;
        self.told(told);
        match written {
            Some(cancelled) => {
                self.outbound_written(&channel, 1);
                for (turn, session) in cancelled {
                    tracing::info!(%session, %turn, "asked to stop");
                    self.inbound.wake(Inbound::Cancel(turn));
                    self.inbound.wake(Inbound::Work(session.into()));
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
}

/// Returns the origin of a channel's message: a person wrote it, whatever it says of itself.
pub(super) fn origin_of(message: &InboundMessage) -> TurnOrigin {
    TurnOrigin { settings: message.settings.clone(), reply: message.reply.clone(), ..TurnOrigin::default() }
}

pub(super) fn new_row(
    id: Uuid,
    message: &InboundMessage,
    origin: &TurnOrigin,
    session: &SessionKey,
    state: State,
) -> Result<NewMessage, StoreError> {
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
        origin: origin.to_column(),
        received_at: message.received_at.as_millisecond(),
        state,
    })
}

pub(super) fn reply_to(turn: Uuid, message: InboundMessage, content: String) -> OutboundDraft {
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
            context: message.reply,
            error: None,
        },
    }
}

fn with_unread(reply: String, unread: Option<String>) -> String {
    match unread {
        Some(unread) => format!("{reply}\n\n{unread}"),
        None => reply,
    }
}

/// The stable word for a refusal.
fn reason_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::SessionFull { .. } => "session_full",
        Refusal::InboxFull { .. } => "inbox_full",
        Refusal::OutboxFull { .. } => "outbox_full",
        Refusal::Draining { .. } => "draining",
        Refusal::Store { .. } => "store",
        Refusal::Invalid(_) => "invalid",
    }
}

/// What a sender is told when the store cannot take or tell something.
pub(super) fn refuse(error: &StoreError) -> Refusal {
    Refusal::Store { reason: error.to_string(), retry_after: Duration::from_secs(5) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::bus::testing::bus;
    use crate::store::Store;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// Whatever is sent however often, in any order and at once: each `(channel, external id)` is one message.
        #[test]
        fn the_same_message_is_accepted_once(sent in prop::collection::vec((0u8..2, 0u8..6), 1..40)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let distinct: HashSet<_> = sent.iter().copied().collect();
            let (first, ids) = runtime.block_on(async {
                let bus = bus(Store::open(&folder.path().join("daoyou.db")).unwrap(), 100);
                let accepts = sent.iter().map(|(channel, id)| {
                    let mut message = InboundMessage::text(&format!("c{channel}"), "chat", "ann", Trust::Known, "hi");
                    message.external_id = Some(format!("id{id}"));
                    let bus = bus.clone();
                    async move { bus.publish_inbound(message, AcceptExtras::default()).await }
                });
                let answers = futures_util::future::join_all(accepts).await;
                let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
                let first = answers.iter().filter(|answer| matches!(answer, Acceptance::Accepted { .. })).count();
                let ids: HashSet<_> = answers.iter().map(Acceptance::id).collect();
                assert_eq!(bus.depths().0, ids.len(), "places are given back");
                bus.store().close().await;
                (first, ids.len())
            });
            prop_assert_eq!((first, ids), (distinct.len(), distinct.len()));
        }
    }
}
