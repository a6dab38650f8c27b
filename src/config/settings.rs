//! The types of `config.toml`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use daoyou_channels::cli::CliConfig;
use daoyou_channels::email::EmailConfig;
use daoyou_channels::settings::{ByteSize, HumanDuration, Secret};
use daoyou_channels::webhook::WebhookConfig;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::agent::AgentConfig;
use crate::cron::{CronConfig, HeartbeatConfig};
use crate::guard::ApprovalConfig;
use crate::http::TlsConfig;
use crate::llm::ProviderConfig;
use crate::logging::LogConfig;
use crate::mcp::McpServerConfig;
use crate::memory::MemoryConfig;
use crate::profiles::{AgentDefinition, RouteConfig};
use crate::skills::SkillsConfig;
use crate::store::StoreConfig;
use crate::telemetry::OtelConfig;
use crate::tools::ToolsConfig;

/// All settings. An empty file gives exactly the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub agent: AgentConfig,
    /// In the order of the file.
    pub providers: IndexMap<String, ProviderConfig>,
    pub gateway: GatewayConfig,
    pub store: StoreConfig,
    pub channels: ChannelsConfig,
    pub owner: OwnerConfig,
    /// Senders who are one and the same, by a name of yours: each `CHANNEL:SENDER`.
    pub identities: BTreeMap<String, Vec<String>>,
    pub tools: ToolsConfig,
    pub skills: SkillsConfig,
    /// Agents in addition to the built-in ones, by name.
    pub agents: BTreeMap<String, AgentDefinition>,
    /// Which agent answers in which chats: the first that fits.
    pub routes: Vec<RouteConfig>,
    /// MCP servers, in the order of the file.
    pub mcp: IndexMap<String, McpServerConfig>,
    pub approval: ApprovalConfig,
    pub memory: MemoryConfig,
    pub cron: CronConfig,
    pub heartbeat: HeartbeatConfig,
    pub log: LogConfig,
    pub otel: OtelConfig,
}

/// `[gateway]`: the server, and the capacities of the queues.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Address and port of the HTTP server.
    #[default = "127.0.0.1:18790"]
    pub listen: String,
    /// What callers of the API must show; absent is the one in the file `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Names that the server answers to, in addition to those of loopback and its own address.
    pub hosts: Vec<String>,
    /// Connections that may be open at once.
    #[schemars(range(min = 16, max = 1_000_000))]
    #[default = 4_096]
    pub max_connections: u32,
    /// What the bodies of all requests may take of the memory while they arrive.
    #[default(ByteSize(64_000_000))]
    pub body_budget: ByteSize,
    /// Addresses, or ranges such as `10.0.0.0/8`, of proxies whose X-Forwarded-For is believed.
    pub trusted_proxies: Vec<String>,
    pub tls: TlsConfig,
    /// How long running turns may go on after SIGTERM.
    #[default(HumanDuration::from_secs(30))]
    pub drain_timeout: HumanDuration,
    /// Unfinished messages of one session; one more is answered 429.
    #[schemars(range(min = 1))]
    #[default = 1_000]
    pub session_capacity: u32,
    /// Unfinished messages of all sessions; one more is answered 503.
    #[schemars(range(min = 1))]
    #[default = 10_000]
    pub inbound_capacity: u32,
    /// Undelivered messages of one channel; above it the channel takes no new messages (503).
    #[schemars(range(min = 1))]
    #[default = 10_000]
    pub outbound_capacity: u32,
}

impl GatewayConfig {
    /// Returns [`Self::listen`] as an address; `localhost` is 127.0.0.1. Other names are not resolved, so that it is known before
    /// the start whether other machines can reach the server.
    ///
    /// # Errors
    /// The text is not an IP address (or `localhost`) with a port.
    pub fn listen_addr(&self) -> Result<SocketAddr, String> {
        let local = self.listen.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        match local {
            Some(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
            None => self.listen.parse().map_err(|_| format!("{:?} is not an address with a port", self.listen)),
        }
    }
}

/// `[channels]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelsConfig {
    pub cli: CliConfig,
    pub webhook: BTreeMap<String, WebhookConfig>,
    pub email: EmailConfig,
}

/// `[owner]`: whose gateway this is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OwnerConfig {
    /// What the agent calls its owner; empty is nothing.
    pub name: String,
    /// `CHANNEL:SENDER`, each one the owner.
    pub identities: Vec<String>,
    /// `CHANNEL:CHAT` where the owner is told of dead letters and losses; empty: on every terminal that is open.
    pub notify: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_can_be_listened_on() {
        let table = [
            ("127.0.0.1:18790", Some("127.0.0.1:18790")),
            ("[::1]:80", Some("[::1]:80")),
            ("localhost:0", Some("127.0.0.1:0")),
            ("18790", None),
            (":18790", None),
            ("127.0.0.1", None),
            ("127.0.0.1:99999", None),
            ("example.org:80", None),
            ("", None),
        ];
        for (listen, expected) in table {
            let config = GatewayConfig { listen: listen.to_owned(), ..GatewayConfig::default() };
            let got = config.listen_addr().ok().map(|addr| addr.to_string());
            assert_eq!(got.as_deref(), expected, "{listen}");
        }
    }
}
