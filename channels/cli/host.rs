//! The gateway as a terminal sees it: the one in its own process, or one behind the control socket.

use std::time::Duration;

use async_trait::async_trait;

use super::screens::{NAME, ScreenDelivery, ScreenHandle};
use crate::channel::StartError;
use crate::event::SessionEvent;
use crate::message::SessionKey;

/// Which conversation a terminal is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalConversation {
    /// The chat on the channel `cli`; `direct` is the owner's.
    pub chat_id: String,
    /// The session, when it is not the chat's own.
    pub session: Option<SessionKey>,
    /// The model of what is written here, when it is not the session's.
    pub model: Option<String>,
}

impl TerminalConversation {
    /// The conversation of a session's key; without one, the owner's own.
    pub fn of(session: Option<&str>) -> Self {
        let chat_id = session.and_then(|key| key.strip_prefix("cli:")).unwrap_or("direct").to_owned();
        Self { chat_id, session: session.map(SessionKey::from), model: None }
    }

    /// The session that is written to.
    pub fn key(&self) -> SessionKey {
        self.session.clone().unwrap_or_else(|| SessionKey::of_chat(NAME, &self.chat_id))
    }
}

/// What can be completed at the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionNames {
    /// Session keys, the last used first.
    pub sessions: Vec<String>,
    /// `PROVIDER/MODEL`.
    pub models: Vec<String>,
}

/// Knows sessions and models.
#[async_trait]
pub trait NameDirectory: Send + Sync {
    async fn names(&self) -> CompletionNames;

    /// The model that answers there, as `PROVIDER/MODEL`, or in words why none does.
    async fn model(&self, conversation: &TerminalConversation) -> Result<String, String>;
}

/// A conversation that is followed. The channels are closed when the gateway goes.
pub struct ConversationFeed {
    pub deliveries: async_channel::Receiver<ScreenDelivery>,
    pub events: async_channel::Receiver<SessionEvent>,
    /// What keeps it followed, where that is not the stream itself.
    pub attachment: Option<ScreenHandle>,
}

/// Lets a terminal follow conversations.
#[async_trait]
pub trait TerminalHost: NameDirectory {
    /// Follows a conversation from now on, until what is answered is dropped.
    ///
    /// # Errors
    /// The gateway is gone, or refuses.
    async fn follow(&self, conversation: &TerminalConversation) -> Result<ConversationFeed, StartError>;

    /// How long a terminal looks for the gateway after it has gone; zero where it cannot come back.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}
