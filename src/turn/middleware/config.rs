//! `agent.middleware`, and the settings of the middleware that has settings.

use daoyou_channels::settings::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The middleware there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MiddlewareName {
    /// Sizes and ids of every call in the log, at debug level.
    Logging,
    /// How long model calls take, for `/metrics`.
    Timing,
    /// Secrets of the configuration are struck out of what the model reads of tools, and of replies.
    Redaction,
    /// `[agent.budget]`.
    Budget,
    /// `[agent.rate_limit]`.
    RateLimit,
    /// `[agent.cache]`, and the results of tools that may be given again.
    Cache,
}

impl MiddlewareName {
    /// All middleware, in the default order: middleware that changes a request precedes middleware that counts or caches it.
    pub const ALL: [Self; 6] =
        [Self::Logging, Self::Timing, Self::Redaction, Self::Budget, Self::RateLimit, Self::Cache];

    /// Returns the name in the configuration.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// `[agent.budget]`: when no further model call is made. Absent means no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Tokens of one session and its sub-agents, since its last `/new`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub session_tokens: Option<u64>,
    /// Tokens of all sessions together, since midnight in `agent.timezone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub day_tokens: Option<u64>,
    /// Money for one turn and its sub-agents, in the currency of the prices: a turn that has used it asks no more, and says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.000_001))]
    pub turn_cost: Option<f64>,
    /// Money for one session and its sub-agents, in the currency of the prices; services in different currencies are counted apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.000_001))]
    pub session_cost: Option<f64>,
    /// Money for all sessions together, since midnight.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.000_001))]
    pub day_cost: Option<f64>,
}

/// `[agent.rate_limit]`: beyond it, turns wait for their next model call. Absent means no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitConfig {
    /// Model calls of one session in any minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub session_per_minute: Option<u32>,
    /// Model calls of all sessions in any minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub per_minute: Option<u32>,
}

/// `[agent.cache]`.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Give a model's response again when it is asked the same with `temperature = 0`.
    pub responses: bool,
    /// Also with any other temperature, or none.
    pub any_temperature: bool,
    /// How long a response is given again.
    #[default(HumanDuration::from_secs(300))]
    pub ttl: HumanDuration,
    /// Responses that are kept, and as many results of tools, large ones counted several times.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[default = 1_000]
    pub capacity: u32,
}
