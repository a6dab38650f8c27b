//! `[memory]`.

use daoyou_channels::settings::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is kept of conversations, and given to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Consolidate conversations, and give the model what is known. Off, nothing is written or given by itself; tools and
    /// commands go on working.
    pub enabled: bool,
    /// Messages of a session that no summary tells, from which on the older ones are put into one.
    #[schemars(range(min = 2, max = 10_000))]
    pub consolidate_at: u32,
    /// The newest of them, which stay as they were said.
    #[schemars(range(min = 1, max = 10_000))]
    pub keep: u32,
    /// After so long without a message what is left of a conversation is consolidated, too; `0s`: never.
    pub idle: Span,
    /// `PROVIDER/MODEL` that writes summaries; empty is the agent's.
    pub model: String,
    /// How long writing one may take.
    pub timeout: Span,
    /// Tokens that summaries may use in one day; then they are plain extracts until the next.
    pub tokens_per_day: u64,
    /// Of what is known, the most that stands in each prompt of a session, in tokens.
    pub snapshot_tokens: u32,
    /// What fits the message best is given along with it: so many entries at most, 0 for none.
    #[schemars(range(max = 50))]
    pub hits: u32,
    /// And so many tokens of them, estimated.
    pub hit_tokens: u32,
    /// Entries of one owner at most; beyond it the one that was of least use goes for each new one.
    #[schemars(range(min = 10, max = 1_000_000))]
    pub max_entries: u32,
    /// Tasks that are kept of each owner, the newest.
    #[schemars(range(max = 10_000))]
    pub keep_tasks: u32,
    pub embeddings: EmbeddingsConfig,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            consolidate_at: 50,
            keep: 25,
            idle: Span::from_secs(1_800),
            model: String::new(),
            timeout: Span::from_secs(120),
            tokens_per_day: 500_000,
            snapshot_tokens: 1_500,
            hits: 3,
            hit_tokens: 300,
            max_entries: 5_000,
            keep_tasks: 50,
            embeddings: EmbeddingsConfig::default(),
        }
    }
}

/// Vectors, by which also what is said in other words is found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddingsConfig {
    /// `PROVIDER/MODEL` of a provider that speaks OpenAI's `/embeddings`; empty: only words are looked for.
    pub model: String,
    /// Numbers of a vector, where the model lets one choose; 0 is the model's own.
    #[schemars(range(max = 8_192))]
    pub dimensions: u32,
    /// Texts of one request.
    #[schemars(range(min = 1, max = 2_048))]
    pub batch: u32,
    /// The longest that a turn waits for the vector of its message.
    pub timeout: Span,
}

impl Default for EmbeddingsConfig {
    fn default() -> Self {
        Self { model: String::new(), dimensions: 0, batch: 64, timeout: Span::from_secs(3) }
    }
}
