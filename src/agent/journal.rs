//! The journal of a running turn: what it has done is in the store before it goes on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_channel::Sender;
use async_trait::async_trait;
use daoyou_channels::OutboundContext;
use daoyou_channels::SessionKey;
use daoyou_channels::backoff::Backoff;
use uuid::Uuid;

use super::progress::StepBody;
use crate::bus::{MessageBus, OutboundBody, OutboundDraft};
use crate::crash;
use crate::store::{Commit, Connection, StoreError, inbox, turn_steps};
use crate::tools::{Effect, Rows};

/// Keeps the steps of a turn. Each call returns when its step is kept; a store that cannot take it holds the turn.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Keeps a step that the process's death must not lose.
    async fn record(&self, step: &StepBody);

    /// Keeps a step that is on the disk itself before the turn goes on.
    async fn record_synced(&self, step: &StepBody);

    /// Keeps a tool's result, together with what the tool does inside daoyou.
    async fn record_result(&self, step: &StepBody, effects: &[Effect]);

    /// Keeps what a call that has no result yet does inside daoyou.
    async fn record_begun(&self, effects: &[Effect]);
}

/// The journal in the store.
pub struct StoreJournal<'a> {
    pub bus: &'a MessageBus,
    pub turn: Uuid,
    pub session: SessionKey,
    /// Told once the turn has got somewhere, for the loop that runs it alone.
    pub proven: Option<Sender<SessionKey>>,
    /// The first step, which needs no commit of its own: until there is a second one, a restart makes the same again.
    pub context: Mutex<Option<String>>,
}

impl StoreJournal<'_> {
    /// The first step, where it is not in the store yet.
    pub fn context(&self) -> Option<String> {
        self.lock_context().clone()
    }

    fn lock_context(&self) -> MutexGuard<'_, Option<String>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn append(&self, commit: Commit, step: &StepBody, effects: Vec<Written>) {
        let (kind, turn) = (step.kind(), self.turn);
        let progressed = matches!(step, StepBody::Response { .. } | StepBody::ToolResult { .. });
        let body = match serde_json::to_string(step) {
            Ok(body) => body,
            Err(error) => {
                // Every field of a step is text, numbers or JSON; there is no way to write it otherwise.
                tracing::error!(%turn, %error, "a step could not be written as JSON");
                return std::future::pending().await;
            }
        };
        if let StepBody::Context(_) = step {
            *self.lock_context() = Some(body);
            return;
        }
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let (body, effects, context) = (body.clone(), effects.clone(), self.lock_context().clone());
            let write = move |connection: &Connection| {
                if let Some(context) = context {
                    turn_steps::append(connection, turn, "context", &context)?;
                }
                let seq = turn_steps::append(connection, turn, kind, &body)?;
                if progressed {
                    inbox::reset_stalled(connection, turn)?;
                }
                for (number, effect) in effects.into_iter().enumerate() {
                    match effect {
                        Written::Message(mut draft) => {
                            draft.slot =
                                if number == 0 { format!("tool:{seq}") } else { format!("tool:{seq}.{number}") };
                            draft.insert(connection)?;
                        }
                        Written::Rows(rows) => rows.0.write(connection)?,
                    }
                }
                Ok(())
            };
            match self.bus.store().write(commit, write).await {
                Ok(()) => break,
                Err(StoreError::Closed) => return std::future::pending().await,
                Err(error) => {
                    tracing::error!(%turn, kind, %error, "a step could not be kept; the turn waits");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
        *self.lock_context() = None;
        if progressed && let Some(proven) = &self.proven {
            // A loop that no longer listens has no need to know.
            let _ = proven.try_send(self.session.clone());
        }
    }
}

#[async_trait]
impl Journal for StoreJournal<'_> {
    async fn record(&self, step: &StepBody) {
        self.append(Commit::Logged, step, Vec::new()).await;
        if let StepBody::Response { response, .. } = step {
            let point = if response.tool_calls.is_empty() { "final_response_committed" } else { "response_committed" };
            crash::point(point, &response.text);
        }
    }

    async fn record_synced(&self, step: &StepBody) {
        self.append(Commit::Synced, step, Vec::new()).await;
        if let StepBody::ToolStarted { name, .. } = step {
            crash::point("tool_started", name);
        }
    }

    async fn record_result(&self, step: &StepBody, effects: &[Effect]) {
        let StepBody::ToolResult { name, .. } = step else { return self.record(step).await };
        crash::point("tool_finished", name);
        let written: Vec<_> =
            effects.iter().filter_map(|effect| written_for(effect, self.turn, &self.session)).collect();
        let commit = if written.is_empty() { Commit::Logged } else { Commit::Synced };
        self.append(commit, step, written.clone()).await;
        crash::point("tool_result_committed", name);
        for effect in written {
            match effect {
                Written::Message(draft) => self.bus.outbound_written(&draft.channel, 1),
                Written::Rows(rows) => rows.0.written(),
            }
        }
    }

    async fn record_begun(&self, effects: &[Effect]) {
        let rows = effects.iter().filter_map(|effect| match effect {
            Effect::Rows(rows) => Some(rows.clone()),
            _ => None,
        });
        let rows: Vec<Rows> = rows.collect();
        if rows.is_empty() {
            return;
        }
        let turn = self.turn;
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let all = rows.clone();
            let write = move |connection: &Connection| all.iter().try_for_each(|rows| rows.0.write(connection));
            match self.bus.store().write(Commit::Synced, write).await {
                Ok(()) => break,
                Err(StoreError::Closed) => return std::future::pending().await,
                Err(error) => {
                    tracing::error!(%turn, %error, "what a tool begins could not be kept; the turn waits");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
        rows.iter().for_each(|rows| rows.0.written());
    }
}

/// An effect as it is written.
#[derive(Clone)]
enum Written {
    Message(Box<OutboundDraft>),
    Rows(Rows),
}

fn written_for(effect: &Effect, turn: Uuid, session: &SessionKey) -> Option<Written> {
    Some(match effect {
        Effect::Message { channel, chat_id, content, attachments, subject } => {
            Written::Message(Box::new(OutboundDraft {
                turn,
                slot: String::new(),
                channel: channel.clone(),
                chat_id: chat_id.clone(),
                body: OutboundBody {
                    content: content.clone(),
                    session: session.clone(),
                    in_reply_to: None,
                    attachments: attachments.clone(),
                    metadata: serde_json::Map::new(),
                    context: OutboundContext { subject: subject.clone(), ..OutboundContext::default() },
                    error: None,
                },
            }))
        }
        Effect::Rows(rows) => Written::Rows(rows.clone()),
        Effect::Await(_) => return None,
    })
}
