//! `[memory]`.

use daoyou_channels::settings::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The settings of long-term memory and consolidation.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Consolidate conversations, and show the model what is known. If false, nothing is stored or shown automatically;
    /// tools and commands still work.
    #[default = true]
    pub enabled: bool,
    /// The number of messages without a summary at which the older ones are summarized.
    #[schemars(range(min = 2, max = 10_000))]
    #[default = 50]
    pub consolidate_at: u32,
    /// The number of newest messages that stay verbatim.
    #[schemars(range(min = 1, max = 10_000))]
    #[default = 25]
    pub keep: u32,
    /// The idle time after which the rest of a conversation is summarized as well; `0s` means never.
    #[default(HumanDuration::from_secs(1_800))]
    pub idle: HumanDuration,
    /// The `PROVIDER/MODEL` that writes summaries; empty for the agent's.
    pub model: String,
    /// The longest time for writing a summary.
    #[default(HumanDuration::from_secs(120))]
    pub timeout: HumanDuration,
    /// The maximum number of tokens that summaries use in a day; after that, extracts replace them until the next day.
    #[default = 500_000]
    pub tokens_per_day: u64,
    /// The maximum number of tokens of memories in each prompt of a session.
    #[default = 1_500]
    pub snapshot_tokens: u32,
    /// The maximum number of memories that are attached to a message; 0 for none.
    #[schemars(range(max = 50))]
    #[default = 3]
    pub hits: u32,
    /// The maximum number of tokens of attached memories, estimated.
    #[default = 300]
    pub hit_tokens: u32,
    /// The maximum number of memories of one owner; beyond it, each new one deletes the least used one.
    #[schemars(range(min = 10, max = 1_000_000))]
    #[default = 5_000]
    pub max_entries: u32,
    /// The maximum number of tasks of each owner, the newest.
    #[schemars(range(max = 10_000))]
    #[default = 50]
    pub keep_tasks: u32,
    pub embeddings: EmbeddingsConfig,
}

/// The settings of embeddings, through which searches find texts that say the same in other words.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddingsConfig {
    /// The `PROVIDER/MODEL` of a provider with OpenAI's `/embeddings`; empty to search by words only.
    pub model: String,
    /// The dimensions of a vector, if the model lets one choose; 0 for the model's default.
    #[schemars(range(max = 8_192))]
    pub dimensions: u32,
    /// The maximum number of texts of one request.
    #[schemars(range(min = 1, max = 2_048))]
    #[default = 64]
    pub batch: u32,
    /// The longest time that a turn waits for the embedding of its message.
    #[default(HumanDuration::from_secs(3))]
    pub timeout: HumanDuration,
}
