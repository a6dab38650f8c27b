//! The interface between a terminal and its gateway, which runs in the same process or behind the control socket.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::screens::{NAME, ScreenDelivery, ScreenHandle};
use crate::channel::StartError;
use crate::event::SessionEvent;
use crate::message::SessionKey;
use crate::settings::HumanDuration;

/// The pause between attempts to reconnect to a gateway.
const RECONNECT_PAUSE: Duration = Duration::from_millis(300);

/// The conversation of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalConversation {
    /// The chat on the channel `cli`; `direct` is the owner's chat.
    pub chat_id: String,
    /// The session, if it is not the chat's own.
    pub session: Option<SessionKey>,
    /// The model for messages written in this terminal, if it is not the session's.
    pub model: Option<String>,
}

impl TerminalConversation {
    /// Returns the conversation of a session key, or the owner's own without a key.
    pub fn of(session: Option<&str>) -> Self {
        let chat_id = session.and_then(|key| key.strip_prefix("cli:")).unwrap_or("direct").to_owned();
        Self { chat_id, session: session.map(SessionKey::from), model: None }
    }

    /// Returns the key of the session.
    pub fn key(&self) -> SessionKey {
        self.session.clone().unwrap_or_else(|| SessionKey::of_chat(NAME, &self.chat_id))
    }
}

/// The names that the prompt completes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionNames {
    /// Session keys, the most recently used first.
    pub sessions: Vec<String>,
    /// Models as `PROVIDER/MODEL`.
    pub models: Vec<String>,
}

/// A source of session and model names.
#[async_trait]
pub trait NameDirectory: Send + Sync {
    async fn names(&self) -> CompletionNames;

    /// Returns the model that answers in a conversation as `PROVIDER/MODEL`, or the reason why no model answers.
    async fn model(&self, conversation: &TerminalConversation) -> Result<String, String>;
}

/// The deliveries and events of a conversation. Both queues close when the gateway stops.
pub struct ConversationFeed {
    pub deliveries: async_channel::Receiver<ScreenDelivery>,
    pub events: async_channel::Receiver<SessionEvent>,
    /// Keeps the screen attached if the queues do not.
    pub attachment: Option<ScreenHandle>,
}

/// A gateway whose conversations a terminal can follow.
#[async_trait]
pub trait TerminalHost: Send + Sync {
    /// Follows a conversation until the returned feed is dropped.
    ///
    /// # Errors
    /// The gateway is gone or refuses.
    async fn follow(&self, conversation: &TerminalConversation) -> Result<ConversationFeed, StartError>;

    /// Returns how long a terminal waits for the gateway to return; zero if the gateway cannot return.
    fn reconnect_timeout(&self) -> Duration {
        Duration::ZERO
    }
}

/// Follows the conversation again as soon as the gateway accepts the connection.
pub(super) async fn follow_after_restart(
    host: Arc<dyn TerminalHost>,
    conversation: TerminalConversation,
) -> Result<ConversationFeed, StartError> {
    let timeout = host.reconnect_timeout();
    if timeout.is_zero() {
        return Err(StartError("the gateway is gone".into()));
    }
    let followed = async {
        loop {
            tokio::time::sleep(RECONNECT_PAUSE).await;
            match host.follow(&conversation).await {
                Ok(following) => return following,
                Err(error) => tracing::debug!(%error, "the gateway is not back yet"),
            }
        }
    };
    let waited = tokio::time::timeout(timeout, followed).await;
    waited.map_err(|_| {
        StartError(format!("the gateway has gone and did not come back within {}", HumanDuration(timeout)))
    })
}
