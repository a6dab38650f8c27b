//! `[store]`.

use daoyou_channels::settings::{ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the store keeps what it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    pub retain: RetainConfig,
    /// Free disk space below which no new message is accepted, so that those accepted can still be answered.
    pub reserve: Reserve,
    /// How often what was deleted is given back to the disk; "0s" is never.
    pub vacuum: Span,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { retain: RetainConfig::default(), reserve: Reserve::default(), vacuum: Span::from_secs(7 * 86_400) }
    }
}

/// [`StoreConfig::reserve`], with its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Reserve(pub ByteSize);

impl Default for Reserve {
    fn default() -> Self {
        Self(ByteSize(100_000_000))
    }
}

/// How long finished things are kept; absent is for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetainConfig {
    /// Messages of a session that has not been used for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Span>,
    /// The steps of finished turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<Span>,
    /// Delivered and dead outbound messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbox: Option<Span>,
}

impl Default for RetainConfig {
    fn default() -> Self {
        Self { sessions: None, turns: Some(Span::from_secs(90 * 86_400)), outbox: None }
    }
}
