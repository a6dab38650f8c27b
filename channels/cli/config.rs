//! `[channels.cli]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CliConfig {
    /// Chat at the terminal that the gateway runs in.
    pub enabled: bool,
}

impl Default for CliConfig {
    fn default() -> Self {
        Self { enabled: true }
    }
}
