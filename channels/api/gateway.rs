//! What the API asks of the gateway, and the names that both know.

use async_trait::async_trait;
use uuid::Uuid;

use crate::inbox::Refusal;
use crate::message::TurnSettings;

/// The channel's name.
pub const NAME: &str = "api";
/// The kind of the notes by which a repeated request is recognized.
pub(super) const REQUEST_NOTE: &str = "request";
/// The kind of the notes with the hash of the body that came with an `Idempotency-Key`.
pub(super) const BODY_NOTE: &str = "body";

/// What the API asks of the gateway.
#[async_trait]
pub trait ApiGateway: Send + Sync {
    /// Returns the names of models to list; the first one is the default.
    fn models(&self) -> Vec<String>;

    /// Returns what a model's name means for a turn.
    ///
    /// # Errors
    /// Says why there is no such model.
    fn settings(&self, model: &str) -> Result<TurnSettings, String>;

    /// Returns what the turn of this message has used, and sent to this chat, so far.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn report(&self, message: Uuid, chat_id: &str) -> Result<TurnReport, Refusal>;
}

/// What a turn has used and sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnReport {
    /// The messages that its tools sent before the reply.
    pub messages: Vec<String>,
    /// The tokens of all its model calls; `cached_tokens` are part of the input.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
}

/// A gateway without models, whose turns have sent these messages.
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
