//! What the API needs from the gateway, and the names that both sides use.

use async_trait::async_trait;
use uuid::Uuid;

use crate::inbox::Refusal;
use crate::message::TurnSettings;

/// The channel's name.
pub const NAME: &str = "api";
/// The kind of the notes that identify a repeated request.
pub(super) const REQUEST_NOTE: &str = "request";
/// The kind of the notes with the hash of the body that came with an `Idempotency-Key`.
pub(super) const BODY_NOTE: &str = "body";

/// The functions of the gateway that the API calls.
#[async_trait]
pub trait ApiGateway: Send + Sync {
    /// Returns the names of the models to list, the default first.
    fn models(&self) -> Vec<String>;

    /// Returns the turn settings that a model's name stands for.
    ///
    /// # Errors
    /// The reason why no such model exists.
    fn settings(&self, model: &str) -> Result<TurnSettings, String>;

    /// Returns what the turn of `message` has used so far, and what it has sent to `chat_id`.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn report(&self, message: Uuid, chat_id: &str) -> Result<TurnReport, Refusal>;
}

/// The usage and the messages of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnReport {
    /// The messages that its tools sent before the reply.
    pub messages: Vec<String>,
    /// The tokens of all its model calls; `input_tokens` includes `cached_tokens`.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
}

/// A gateway without models, whose turns have sent the given messages.
#[cfg(test)]
pub(super) struct ScriptedGateway(pub Vec<String>);

#[cfg(test)]
#[async_trait]
impl ApiGateway for ScriptedGateway {
    fn models(&self) -> Vec<String> {
        Vec::new()
    }

    fn settings(&self, _: &str) -> Result<TurnSettings, String> {
        Ok(TurnSettings::default())
    }

    async fn report(&self, _: Uuid, _: &str) -> Result<TurnReport, Refusal> {
        Ok(TurnReport { messages: self.0.clone(), ..TurnReport::default() })
    }
}
