//! The MCP servers: their state, and tests of them.

use std::sync::Arc;
use std::time::Instant;

use daoyou_channels::Finding;
use serde_json::{Value, json};

use super::format_age;
use super::inspector::Inspector;
use crate::agent::prepare_workspace;
use crate::gateway::runtime::mcp_servers;
use crate::mcp::{ListedTool, McpServer, McpServerState, McpServers};
use crate::query::InspectError;
use crate::store::now_ms;

impl Inspector {
    /// Returns the servers of the running gateway, or those that a gateway would have.
    pub(super) fn mcp(&self) -> Result<Arc<McpServers>, String> {
        if let Some(runtime) = &self.runtime {
            return Ok(runtime.mcp.clone());
        }
        let workspace = self.home.workspace(&self.config.agent.workspace);
        if !self.config.mcp.is_empty() {
            prepare_workspace(&workspace).map_err(|error| error.to_string())?;
        }
        let servers = mcp_servers(&self.config, &workspace, &self.home, &self.secrets, Arc::default(), None);
        servers.map_err(|error| format!("{error:#}"))
    }

    fn servers(&self) -> Result<Arc<McpServers>, InspectError> {
        self.mcp().map_err(InspectError::Failed)
    }

    /// Returns each server in the configuration, in order.
    pub(super) fn mcp_rows(&self) -> Result<Value, InspectError> {
        let servers = self.servers()?;
        let row = |name: &String| match (servers.get(name), servers.disabled().get(name)) {
            (Some(server), _) => Some(server_row(server)),
            (None, Some(config)) => {
                Some(json!({"name": name, "enabled": false, "state": "disabled", "transport": config.transport_name()}))
            }
            (None, None) => None,
        };
        Ok(self.config.mcp.keys().filter_map(row).collect())
    }

    /// Returns the tools of a server, under the names that models use.
    pub(super) async fn mcp_tools(&self, name: &str) -> Result<Value, InspectError> {
        let server = self.mcp_server(name)?;
        let listing = match server.listing() {
            Some(listing) => listing,
            None => server.refresh().await.map_err(|error| InspectError::Failed(error.text))?,
        };
        let row = |tool: &ListedTool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "own_name": tool.own_name,
                "available": server.config.has_tool(&tool.own_name),
                "schema": tool.parameters,
            })
        };
        Ok(listing.tools.iter().map(row).collect())
    }

    /// Starts a server if it is not running, and lists its tools, prompts and resources.
    pub(super) async fn test_mcp(&self, name: &str) -> Result<Value, InspectError> {
        let server = self.mcp_server(name)?;
        let begun = Instant::now();
        let was_running = server.status().state == McpServerState::Running;
        let listing = server.test().await.map_err(|error| InspectError::Failed(error.text))?;
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let available = listing.tools.iter().filter(|tool| server.config.has_tool(&tool.own_name)).count();
        Ok(json!({
            "name": server.name,
            "ok": true,
            "took_ms": took,
            "was_running": was_running,
            "transport": server.status().transport,
            "protocol": listing.protocol,
            "title": listing.title,
            "tools": listing.tools.len(),
            "available": available,
            "resources": listing.resources.len() + listing.templates.len(),
            "prompts": listing.prompts.len(),
            "problems": server.problems(&listing),
        }))
    }

    fn mcp_server(&self, name: &str) -> Result<Arc<McpServer>, InspectError> {
        let servers = self.servers()?;
        if let Some(server) = servers.get(name) {
            return Ok(server.clone());
        }
        Err(InspectError::Unknown(match servers.disabled().contains_key(name) {
            true => format!("the MCP server {name} is switched off: set enabled = true in [mcp.{name}]"),
            false if self.config.mcp.is_empty() => {
                format!(
                    "there is no MCP server {name:?}: config.toml has no [mcp.NAME]; docs/mcp.md says how to add one"
                )
            }
            false => {
                let names = self.config.mcp.keys().cloned().collect::<Vec<_>>().join(", ");
                format!("there is no MCP server {name:?}; there are: {names}")
            }
        }))
    }

    /// Reports the servers without starting any.
    pub(super) fn mcp_checks(&self) -> Vec<Finding> {
        let servers = match self.mcp() {
            Ok(servers) => servers,
            Err(error) => return vec![Finding::fail("mcp", error, "see the finding about the workspace")],
        };
        let check = |server: &Arc<McpServer>| {
            let (key, status) = (format!("mcp.{}", server.name), server.status());
            let test = format!("daoyou mcp test {}", server.name);
            match (server.listing(), status.last_error) {
                (_, Some(error)) => Finding::warn(&key, error, test),
                (None, None) => Finding::warn(&key, "its tools were never listed", test),
                (Some(listing), None) => match server.problems(&listing) {
                    problems if problems.is_empty() => Finding::ok(&key, format!("{} tools", listing.tools.len())),
                    problems => Finding::warn(&key, problems.join("; "), test),
                },
            }
        };
        servers.all().iter().map(check).collect()
    }
}

fn server_row(server: &McpServer) -> Value {
    let (status, listing) = (server.status(), server.listing());
    let config = &server.config;
    let transport = status.transport.unwrap_or_else(|| config.transport_name());
    let mut row = json!({
        "name": server.name,
        "enabled": true,
        "state": status.state,
        "transport": transport,
        "trusted": config.trusted,
        "last_error": status.last_error,
        "listed_at": status.listed_at.and_then(|at| jiff::Timestamp::from_millisecond(at).ok()),
        "age": status.listed_at.map(|at| format_age(at, now_ms())),
    });
    if let Some(listing) = listing {
        let available = listing.tools.iter().filter(|tool| config.has_tool(&tool.own_name)).count();
        row["tools"] = json!(available);
        row["resources"] = json!(listing.resources.len() + listing.templates.len());
        let prompts: Vec<_> = listing.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        row["prompts"] = json!(prompts);
        row["protocol"] = json!(listing.protocol);
        row["title"] = json!(listing.title);
        row["problems"] = json!(server.problems(&listing));
    }
    row
}
