//! `[providers.NAME]`.

use std::collections::BTreeMap;

use daoyou_channels::settings::{HumanDuration, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::prices::Price;

/// The protocol a provider speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// OpenAI-compatible chat completions.
    #[default]
    Openai,
    /// Anthropic's Messages.
    Anthropic,
    /// The rule-based responder inside this program.
    Offline,
}

/// Decides whether a model's reasoning is sent back to it in later requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningMode {
    /// As the known service wants it, or else back to where it came from, and otherwise once the service refuses.
    #[default]
    Auto,
    /// Sent back, under the name by which it came.
    Echo,
    /// Never sent back.
    Omit,
}

/// The form in which a service gets the definitions of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolMode {
    /// As tools, or otherwise once the service refuses them.
    #[default]
    Auto,
    /// As tools, the form of today.
    Tools,
    /// As functions, the form of 2023, with one call an answer.
    Functions,
    /// Not at all.
    None,
}

/// One model service.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderConfig {
    /// Not set: what the known service of this name speaks, else `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ProviderKind>,
    /// The key; without one none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// Where the service is, as people have it: with or without `/v1` or a slash at its end, or the whole path of a request,
    /// which is taken as it is. A known provider's name needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// More headers to send with each request.
    pub headers: BTreeMap<String, Secret>,
    /// Ask for the answer as it is written.
    #[default = true]
    pub stream: bool,
    /// The maximum number of tokens that a model may think before it answers, for `kind = "anthropic"`: at least 1024,
    /// or 0 for no thinking. Thinking sets the temperature aside.
    pub thinking: u32,
    /// The model that `agent.model = "auto"` takes; empty is the known provider's usual one.
    pub model: String,
    /// Time to connect, TLS included.
    #[default(HumanDuration::from_secs(10))]
    pub connect_timeout: HumanDuration,
    /// Longest deadlines while an answer is awaited or arrives; only data ends it, comments and pings do not.
    /// With `stream = false` nothing can come before the answer is written, and `timeout` alone counts until then.
    #[default(HumanDuration::from_secs(60))]
    pub idle_timeout: HumanDuration,
    /// Longest time for one whole answer.
    #[default(HumanDuration::from_secs(300))]
    pub timeout: HumanDuration,
    /// Tries after the first one, on 429, 5xx, timeouts and broken connections.
    #[schemars(range(max = 100))]
    #[default = 3]
    pub retries: u32,
    /// Whether what a model thought is sent back to it.
    pub reasoning: ReasoningMode,
    /// The form in which the service gets the definitions of tools.
    pub tools: ToolMode,
    /// Whether its models are shown images; known for known models, and no for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// How many tokens a request and its answer may hold; known for known models.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u32>,
    /// What a million tokens cost, for the line below each turn; known for known models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}
