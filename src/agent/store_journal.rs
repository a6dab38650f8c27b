//! The journal of a running turn, in the store.

use async_channel::Sender;
use async_trait::async_trait;
use daoyou_channels::SessionKey;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::bus::{MessageBus, OutboundBody, OutboundDraft, OutboxSlot};
use crate::crash;
use crate::store::{Connection, Durability, StoreError, inbox, turn_steps};
use crate::tools::{RowEffect, ToolEffect};
use crate::turn::progress::StepBody;
use crate::turn::turn_loop::Journal;

/// Writes each step into the store before the turn continues, except the answer, which the commit of the end writes.
pub struct StoreJournal<'a> {
    bus: &'a MessageBus,
    turn: Uuid,
    session: SessionKey,
    /// Receives the session once the turn has made progress, if the loop runs the turn alone.
    progressed: Option<Sender<SessionKey>>,
    /// A composed context, which is written together with the next step: until then, a restart composes the same one again.
    context: Mutex<Option<String>>,
    /// The error of a step that the store permanently rejects.
    failure: Mutex<Option<StoreError>>,
    has_failed: CancellationToken,
}

impl<'a> StoreJournal<'a> {
    pub fn new(bus: &'a MessageBus, turn: Uuid, session: SessionKey, progressed: Option<Sender<SessionKey>>) -> Self {
        let (context, failure, has_failed) = (Mutex::default(), Mutex::default(), CancellationToken::new());
        Self { bus, turn, session, progressed, context, failure, has_failed }
    }

    /// Waits until the store permanently rejects a step, and returns the error. The call that records that step never returns.
    pub async fn failed(&self) -> StoreError {
        self.has_failed.cancelled().await;
        self.failure.lock().take().unwrap_or(StoreError::Panicked)
    }

    /// Writes a step or the effects of a tool. If the store permanently rejects it, [`Self::failed`] returns and this function does
    /// not.
    async fn write_until<F>(&self, durability: Durability, make: impl FnMut() -> F + Send, what: &str)
    where
        F: FnMut(&Connection) -> Result<(), StoreError> + Send + 'static,
    {
        let turn = self.turn;
        let failed =
            |error: &StoreError| tracing::error!(%turn, what, %error, "a step could not be written; the turn waits");
        let Err(error) = self.bus.store().write_until(durability, make, failed).await else { return };
        if error.is_permanent() {
            tracing::error!(%turn, what, %error, "a step cannot be written; the turn ends");
            *self.failure.lock() = Some(error);
            self.has_failed.cancel();
        }
        std::future::pending::<()>().await;
    }

    /// Returns the first step if it is not in the store yet.
    pub fn context(&self) -> Option<String> {
        self.context.lock().clone()
    }

    async fn append(&self, durability: Durability, step: &StepBody, effects: Vec<WrittenEffect>) {
        let (kind, turn) = (step.kind(), self.turn);
        let is_progress = matches!(step, StepBody::Response { .. } | StepBody::ToolResult { .. });
        let body = match serde_json::to_string(step) {
            Ok(body) => body,
            Err(error) => {
                // Cannot happen: every field of a step is text, a number or JSON.
                tracing::error!(%turn, %error, "a step could not be written as JSON");
                return std::future::pending().await;
            }
        };
        if let StepBody::Context(_) = step {
            *self.context.lock() = Some(body);
            return;
        }
        let make = || {
            // Read for each try: another step may have written the context meanwhile.
            let (body, effects, context) = (body.clone(), effects.clone(), self.context.lock().clone());
            move |connection: &Connection| {
                let context = context.iter().map(|context| ("context", context.as_str()));
                let seq = turn_steps::append_all(connection, turn, context.chain([(kind, body.as_str())]))?;
                if is_progress {
                    inbox::reset_stalled(connection, turn)?;
                }
                let mut effects = effects.iter().cloned().enumerate();
                effects.try_for_each(|(number, effect)| effect.write(connection, seq, number))
            }
        };
        self.write_until(durability, make, kind).await;
        *self.context.lock() = None;
        if is_progress && let Some(progressed) = &self.progressed {
            // The loop may no longer listen, and does not need this signal then.
            let _ = progressed.try_send(self.session.clone());
        }
    }
}

#[async_trait]
impl Journal for StoreJournal<'_> {
    async fn record_with_effects(&self, step: &StepBody, effects: &[ToolEffect]) {
        match step {
            StepBody::Response { response, .. } if step.is_answer() => {
                return crash::point("final_response_received", &response.text);
            }
            StepBody::ToolResult { name, .. } => crash::point("tool_finished", name),
            _ => {}
        }
        let written: Vec<_> =
            effects.iter().filter_map(|effect| written_for(effect, self.turn, &self.session)).collect();
        let must_sync = !written.is_empty() || matches!(step, StepBody::ToolStarted { .. });
        let durability = if must_sync { Durability::Synced } else { Durability::Logged };
        self.append(durability, step, written.clone()).await;
        match step {
            StepBody::Response { response, .. } => crash::point("response_committed", &response.text),
            StepBody::ToolStarted { name, .. } => crash::point("tool_started", name),
            StepBody::ToolResult { name, .. } => crash::point("tool_result_committed", name),
            _ => {}
        }
        written.into_iter().for_each(|effect| effect.committed(self.bus));
    }

    async fn record_begun(&self, effects: &[ToolEffect]) {
        let rows = effects.iter().filter_map(|effect| match effect {
            ToolEffect::Rows(rows) => Some(rows.clone()),
            _ => None,
        });
        let rows: Vec<RowEffect> = rows.collect();
        if rows.is_empty() {
            return;
        }
        let make = || {
            let all = rows.clone();
            move |connection: &Connection| all.iter().try_for_each(|rows| rows.0.write(connection))
        };
        self.write_until(Durability::Synced, make, "effects").await;
        rows.iter().for_each(|rows| rows.0.committed());
    }
}

/// An effect in the form that the store needs.
#[derive(Clone)]
enum WrittenEffect {
    Message(Box<OutboundDraft>),
    Rows(RowEffect),
}

impl WrittenEffect {
    /// Writes the effect as effect `number` of the step `seq`.
    fn write(self, connection: &Connection, seq: i64, number: usize) -> Result<(), StoreError> {
        match self {
            Self::Message(mut draft) => {
                draft.slot = OutboxSlot::Tool { step: seq, number };
                draft.insert(connection)?;
            }
            Self::Rows(rows) => rows.0.write(connection)?,
        }
        Ok(())
    }

    /// Wakes the consumers of the effect.
    fn committed(self, bus: &MessageBus) {
        match self {
            Self::Message(draft) => bus.outbound_written(&draft.channel, 1),
            Self::Rows(rows) => rows.0.committed(),
        }
    }
}

/// Commits the effects of a call that belongs to no journal.
///
/// # Errors
/// The store cannot be written; nothing has happened then.
pub async fn commit_effects(
    bus: &MessageBus,
    turn: Uuid,
    session: &SessionKey,
    effects: &[ToolEffect],
) -> Result<(), StoreError> {
    let written: Vec<_> = effects.iter().filter_map(|effect| written_for(effect, turn, session)).collect();
    if written.is_empty() {
        return Ok(());
    }
    let all = written.clone();
    let write = move |connection: &Connection| {
        all.iter().cloned().enumerate().try_for_each(|(number, effect)| effect.write(connection, 0, number))
    };
    bus.store().write(Durability::Synced, write).await?;
    written.into_iter().for_each(|effect| effect.committed(bus));
    Ok(())
}

fn written_for(effect: &ToolEffect, turn: Uuid, session: &SessionKey) -> Option<WrittenEffect> {
    Some(match effect {
        ToolEffect::Message { channel, chat_id, content, attachments, subject } => {
            let mut body = OutboundBody::new(content.clone(), session.clone());
            body.attachments.clone_from(attachments);
            body.context.subject.clone_from(subject);
            // The commit assigns the step.
            let slot = OutboxSlot::Tool { step: 0, number: 0 };
            let (channel, chat_id) = (channel.clone(), chat_id.clone());
            WrittenEffect::Message(Box::new(OutboundDraft { turn, slot, channel, chat_id, body }))
        }
        ToolEffect::Rows(rows) => WrittenEffect::Rows(rows.clone()),
        ToolEffect::Await(_) | ToolEffect::AwaitPerson(_) => return None,
    })
}
