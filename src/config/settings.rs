//! The whole of `config.toml`, as plain data.

use std::collections::BTreeMap;

use daoyou_channels::cli::CliConfig;
use daoyou_channels::settings::{Secret, Span};
use daoyou_channels::webhook::WebhookConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::AgentConfig;
use crate::llm::ProviderConfig;
use crate::store::StoreConfig;
use crate::tools::ToolsConfig;

/// Everything that can be set. An empty file gives exactly the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub agent: AgentConfig,
    pub providers: BTreeMap<String, ProviderConfig>,
    pub gateway: GatewayConfig,
    pub store: StoreConfig,
    pub channels: ChannelsConfig,
    pub owner: OwnerConfig,
    pub tools: ToolsConfig,
    pub log: LogConfig,
}

/// `[gateway]`: the server, and how much may wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Address and port of the HTTP server.
    pub listen: String,
    /// What callers of the API must show; absent is the one in the file `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// How long running turns may go on after SIGTERM.
    pub drain_timeout: Span,
    /// Unfinished messages of one session; one more is answered 429.
    pub session_capacity: u32,
    /// Unfinished messages of all sessions; one more is answered 503.
    pub inbound_capacity: u32,
    /// Undelivered messages of one channel; above it the channel takes no new messages (503).
    pub outbound_capacity: u32,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:18790".to_owned(),
            token: None,
            drain_timeout: Span::from_secs(30),
            session_capacity: 1_000,
            inbound_capacity: 10_000,
            outbound_capacity: 10_000,
        }
    }
}

/// `[channels]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelsConfig {
    pub cli: CliConfig,
    pub webhook: BTreeMap<String, WebhookConfig>,
}

/// `[owner]`: whose gateway this is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OwnerConfig {
    pub name: String,
    /// `CHANNEL:SENDER`, each one the owner.
    pub identities: Vec<String>,
    /// `CHANNEL:CHAT` where notices go; empty is the terminal.
    pub notify: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,daoyou::llm=debug`.
    pub level: String,
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}
