//! The data that a terminal shows and completes, in the gateway's process or attached to it.

use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::cli::{CompletionNames, NameDirectory, TerminalConversation};
use daoyou_channels::{OutboundMessage, SessionEvent};
use serde::{Deserialize, Serialize};

use crate::live::LivePart;
use crate::llm::Models;
use crate::store::{Store, messages};

/// The maximum number of sessions that a terminal completes.
const SESSIONS: u32 = 200;

/// The model of a conversation, and the names that a terminal completes.
#[derive(Serialize, Deserialize)]
pub struct TerminalInfo {
    pub model: String,
    pub sessions: Vec<String>,
    pub models: Vec<String>,
}

/// A message of the event stream that an attached terminal follows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminalFrame {
    /// The terminal is attached and receives all messages from now on.
    Attached,
    Delivery(OutboundMessage),
    Event(SessionEvent),
}

/// The models of a gateway.
pub struct ModelSelection {
    pub models: Arc<Models>,
    /// `agent.model`.
    pub configured: String,
}

/// The sessions and models of a gateway.
pub struct GatewayDirectory {
    pub store: Store,
    pub models: LivePart<ModelSelection>,
}

#[async_trait]
impl NameDirectory for GatewayDirectory {
    async fn names(&self) -> CompletionNames {
        let sessions =
            self.store.read(|connection| messages::list(connection, SESSIONS)).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the sessions could not be listed");
                Vec::new()
            });
        let models = self.models.get().models.list().await.into_iter();
        let name = |(provider, model): (String, String)| {
            if model.is_empty() || provider == model { provider } else { format!("{provider}/{model}") }
        };
        CompletionNames {
            sessions: sessions.into_iter().map(|row| row.session).collect(),
            models: models.map(name).collect(),
        }
    }

    async fn model(&self, conversation: &TerminalConversation) -> Result<String, String> {
        let key = conversation.key().to_string();
        let head = self.store.read(move |connection| messages::session(connection, &key)).await;
        let chosen = head.map_err(|error| error.to_string())?.model;
        let selection = self.models.get();
        let wanted = conversation.model.clone().or(chosen).unwrap_or_else(|| selection.configured.clone());
        selection.models.resolve(&wanted).await.map(|choice| choice.to_string()).map_err(|error| error.to_string())
    }
}
