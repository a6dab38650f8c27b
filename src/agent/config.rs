//! `[agent]`.

use daoyou_channels::settings::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::llm::Price;
use crate::locale::LocaleSetting;
use crate::session::resets::SessionConfig;
use crate::turn::middleware::{BudgetConfig, CacheConfig, MiddlewareName, RateLimitConfig};
use crate::turn::orchestrators::Orchestrator;

/// What happens to messages that arrive while their session is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueueMode {
    /// Each gets its own turn, in order.
    #[default]
    Followup,
    /// Those waiting from the same sender and chat are joined into one turn.
    Collect,
}

/// How turns run.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// `auto`, or `PROVIDER/MODEL`.
    #[default = "auto"]
    pub model: String,
    /// The fallback models (`PROVIDER/MODEL`), in order, for when the first model cannot answer.
    pub fallback: Vec<String>,
    /// How the model uses tools: `auto`, `tools`, `react` or `plain`.
    pub orchestrator: Orchestrator,
    /// The language of what daoyou itself says: `auto` follows `LC_ALL`, `LC_MESSAGES` and `LANG`.
    pub locale: LocaleSetting,
    /// IANA name, e.g. `Asia/Shanghai`; empty is the system's.
    pub timezone: String,
    /// The agent's own folder; empty is `workspace` in the home.
    pub workspace: String,
    /// How freely the model writes, 0 to 2; left to the model when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// The longest answer in tokens; left to the model when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// Model calls with tools in one turn; then one last call without tools.
    #[schemars(range(min = 1, max = 1_000))]
    #[default = 40]
    pub max_iterations: u32,
    /// Tokens that one turn may use, all its model calls together.
    #[schemars(range(min = 1))]
    #[default = 2_000_000]
    pub max_turn_tokens: u64,
    /// The maximum number of messages of the session that the model is given.
    #[schemars(range(min = 1))]
    #[default = 100]
    pub memory_window: u32,
    /// The maximum number of tokens that the first request of a turn may hold, estimated.
    #[schemars(range(min = 1))]
    #[default = 100_000]
    pub context_tokens: u32,
    /// Active time that a turn may take, across restarts. Waiting does not use it up.
    #[default(HumanDuration::from_secs(600))]
    pub turn_timeout: HumanDuration,
    /// How long a turn waits for a model service that is down, refuses the key or takes no more requests, before its message
    /// becomes a dead letter. 0 is for ever.
    #[default(HumanDuration::from_secs(24 * 60 * 60))]
    pub wait_for_model: HumanDuration,
    /// Turns that run side by side, each of another session.
    #[schemars(range(min = 1))]
    #[default = 64]
    pub max_concurrent_turns: u32,
    pub queue: QueueMode,
    pub session: SessionConfig,
    /// The middleware around turns, model calls and tool calls, the outermost first.
    #[default(MiddlewareName::ALL.to_vec())]
    pub middleware: Vec<MiddlewareName>,
    /// What a million tokens cost of a model whose price is not known; such a model costs nothing when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_price: Option<Price>,
    pub budget: BudgetConfig,
    pub rate_limit: RateLimitConfig,
    pub cache: CacheConfig,
    pub spawn: SpawnConfig,
}

/// How far sub-agents go.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpawnConfig {
    /// The maximum number of sub-agents, over all sessions, that run at the same time, in addition to other turns.
    #[schemars(range(min = 1))]
    #[default = 3]
    pub at_once: u32,
    /// How deep they nest; 1 is: a sub-agent has none, 0: there are none.
    #[schemars(range(max = 8))]
    #[default = 2]
    pub depth: u32,
    /// Unfinished sub-agents of one session.
    #[schemars(range(min = 1, max = 1_000))]
    #[default = 16]
    pub max_children: u32,
    /// Model calls with tools of one sub-agent; then one last call without tools.
    #[schemars(range(min = 1, max = 1_000))]
    #[default = 15]
    pub max_iterations: u32,
    /// How long one may work; waiting for others of its own does not count.
    #[default(HumanDuration::from_secs(300))]
    pub timeout: HumanDuration,
    /// Tokens that one may use, all its model calls together.
    #[schemars(range(min = 1))]
    #[default = 200_000]
    pub max_tokens: u64,
}
