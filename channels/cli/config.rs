//! `[channels.cli]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CliConfig {
    /// Chat at the terminal that the gateway runs in.
    pub enabled: bool,
    /// How a model's thoughts are shown: `fold`, `show` or `hide`.
    pub thinking: Thinking,
}

/// How a terminal shows a model's thoughts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Thinking {
    /// One line with the duration; `/thinking` prints the thoughts.
    #[default]
    Fold,
    /// All text, as it arrives.
    Show,
    /// Nothing.
    Hide,
}

impl Default for CliConfig {
    fn default() -> Self {
        Self { enabled: true, thinking: Thinking::default() }
    }
}
