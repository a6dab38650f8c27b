//! `[agent.spawn]`.

use daoyou_channels::settings::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far sub-agents go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpawnConfig {
    /// Sub-agents that run side by side, of all sessions, beside the other turns.
    #[schemars(range(min = 1))]
    pub at_once: u32,
    /// How deep they nest; 1 is: a sub-agent has none, 0: there are none.
    #[schemars(range(max = 8))]
    pub depth: u32,
    /// Unfinished sub-agents of one session.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_children: u32,
    /// Model calls with tools of one sub-agent; then one last call without tools.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_iterations: u32,
    /// How long one may work; waiting for others of its own does not count.
    pub timeout: Span,
    /// Tokens that one may use, all its model calls together.
    #[schemars(range(min = 1))]
    pub max_tokens: u64,
}

impl Default for SpawnConfig {
    fn default() -> Self {
        Self {
            at_once: 3,
            depth: 2,
            max_children: 16,
            max_iterations: 15,
            timeout: Span::from_secs(300),
            max_tokens: 200_000,
        }
    }
}
