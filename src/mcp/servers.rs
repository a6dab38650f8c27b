//! All servers of a configuration, and the tools that models get from them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use daoyou_channels::backoff::{Backoff, jittered};
use indexmap::IndexMap;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::config::McpServerConfig;
use super::server::{McpHost, McpServer};
use super::tools::{McpRead, McpTool};
use crate::guard::KnownSecrets;
use crate::llm::estimate_tokens;
use crate::tools::Tool;

/// The maximum number of tokens of all MCP tools in a request. The other tools are found with `find_tools`.
const OFFERED_TOKENS: usize = 4_000;
/// Permits for the servers that are listed at the same time.
static LISTING_PERMITS: Semaphore = Semaphore::const_new(4);
/// The shortest and the longest wait between attempts to list a server for the first time.
const FIRST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The servers of one configuration. A later configuration takes over running servers whose settings are the same.
#[derive(Default)]
pub struct McpServers {
    /// The enabled servers, in the order of the configuration.
    servers: Vec<Arc<McpServer>>,
    /// The disabled servers.
    disabled: BTreeMap<String, McpServerConfig>,
}

impl McpServers {
    /// Creates the servers of `config`, without starting any. Servers of `previous` with the same settings are taken over.
    pub fn new(config: &IndexMap<String, McpServerConfig>, host: McpHost, previous: Option<&Self>) -> Self {
        let host = Arc::new(host);
        let known = |name: &str, config: &McpServerConfig| {
            let servers = previous.map(|previous| previous.servers.as_slice()).unwrap_or_default();
            let server = servers.iter().find(|server| server.name == name)?;
            let is_same = server.config == *config
                && server.host.exec == host.exec
                && server.host.workspace == host.workspace
                && server.host.runner.skill_folders == host.runner.skill_folders;
            is_same.then(|| Arc::clone(server))
        };
        let (enabled, disabled): (Vec<_>, Vec<_>) = config.iter().partition(|(_, config)| config.enabled);
        let server = |(name, config): (&String, &McpServerConfig)| {
            known(name, config).unwrap_or_else(|| Arc::new(McpServer::new(name, config.clone(), Arc::clone(&host))))
        };
        Self {
            servers: enabled.into_iter().map(server).collect(),
            disabled: disabled.into_iter().map(|(name, config)| (name.clone(), config.clone())).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the enabled servers, in the order of the configuration.
    pub fn all(&self) -> &[Arc<McpServer>] {
        &self.servers
    }

    /// Returns the disabled servers.
    pub fn disabled(&self) -> &BTreeMap<String, McpServerConfig> {
        &self.disabled
    }

    pub fn get(&self, name: &str) -> Option<&Arc<McpServer>> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Replaces the secrets that are removed from the texts of the servers, also of those that were taken over.
    pub fn set_secrets(&self, secrets: &Arc<KnownSecrets>) {
        for server in &self.servers {
            server.host.secrets.set(Arc::clone(secrets));
        }
    }

    /// Returns the tools of all servers according to their last lists, and `mcp_read`. Returns none if there are no servers.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        let mut left = OFFERED_TOKENS;
        for server in &self.servers {
            let Some(listing) = server.listing() else { continue };
            for listed in listing.tools.iter().filter(|tool| server.config.has_tool(&tool.own_name)) {
                let tokens = estimate_tokens(&format!("{} {} {}", listed.name, listed.description, listed.parameters));
                let is_offered = tokens <= left;
                // The first tool that does not fit ends the budget, so that the order of the configuration decides.
                left = if is_offered { left - tokens } else { 0 };
                tools.push(Arc::new(McpTool::new(server, listed, is_offered)));
            }
        }
        if !self.servers.is_empty() {
            tools.push(Arc::new(McpRead::new(self.servers.clone())));
        }
        tools
    }

    /// Lists, in the background, the servers that were never listed. A server that cannot be listed is retried until it succeeds.
    pub fn list_missing(&self) {
        for server in self.servers.iter().filter(|server| server.listing().is_none()) {
            if server.begin_first_listing() {
                tokio::spawn(list_first(Arc::downgrade(server)));
            }
        }
    }

    /// Waits, at most for `limit`, until every server is listed or has failed. Returns false if there was no server to list.
    pub async fn wait_for_lists(&self, limit: Duration) -> bool {
        let missing: Vec<_> = self.servers.iter().filter(|server| server.listing().is_none()).collect();
        let each = missing.iter().map(|server| async move { drop(server.refresh().await) });
        drop(timeout(limit, futures_util::future::join_all(each)).await);
        !missing.is_empty()
    }

    /// Closes all connections in an orderly way, within `limit`.
    pub async fn close(&self, limit: Duration) {
        let each = self.servers.iter().map(|server| server.close());
        drop(timeout(limit, futures_util::future::join_all(each)).await);
    }
}

/// Lists a server until it succeeds, or the server is no longer in the configuration.
async fn list_first(server: Weak<McpServer>) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        {
            let Some(server) = server.upgrade() else { return };
            let Ok(_permit) = LISTING_PERMITS.acquire().await else { return };
            if server.listing().is_some() || server.refresh().await.is_ok() {
                return;
            }
        }
        sleep(jittered(backoff.next_wait())).await;
    }
}
