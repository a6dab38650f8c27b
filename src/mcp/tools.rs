//! The tools of MCP servers for models: `SERVER__tool`, and `mcp_read` for resources.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::client::{McpError, McpErrorKind, McpRequest};
use super::content::ResultText;
use super::images::save_images;
use super::listing::{ListedResource, ListedTool};
use super::server::McpServer;
use crate::chat::ToolSpec;
use crate::guard::Taint;
use crate::text::{plain_line, truncate};
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments};

/// The name of the tool that reads resources.
pub const MCP_READ: &str = "mcp_read";
/// The maximum length of a server's error that a model gets, in characters.
const MAX_ERROR: usize = 2_000;
/// The maximum number of resources in a list.
const MAX_LISTED: usize = 200;
const MAX_LINE: usize = 200;
/// How much longer a call may take than the limits of the start and of the call.
const MARGIN: Duration = Duration::from_secs(15);

/// A tool of a server.
pub(super) struct McpTool {
    definition: ToolDefinition,
    own_name: String,
    server: Arc<McpServer>,
}

impl McpTool {
    pub(super) fn new(server: &Arc<McpServer>, listed: &ListedTool, is_offered: bool) -> Self {
        let spec = ToolSpec {
            name: listed.name.clone(),
            description: listed.description.clone(),
            parameters: listed.parameters.clone(),
        };
        let definition = ToolDefinition {
            is_offered,
            is_own: false,
            timeout: Some(longest_call(server)),
            // A server's own statement that a tool only reads is not trusted.
            ..ToolDefinition::of_spec(spec, ReplayPolicy::Once)
        };
        Self { definition, own_name: listed.own_name.clone(), server: Arc::clone(server) }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(&self, _: &Value, context: &ToolContext) -> Result<(), String> {
        check_sender(&self.server, context)
    }

    fn may_taint(&self, _: &Value, _: &ToolContext) -> bool {
        !self.server.config.trusted
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let Value::Object(arguments) = arguments else {
            return ToolResult::failed("the arguments are not an object").into();
        };
        let request = McpRequest::CallTool { name: self.own_name.clone(), arguments };
        let mut answered = self.server.request(request, &context.cancel).await;
        let mut images = Vec::new();
        if let Ok(answer) = &mut answered {
            images =
                save_images(answer, self.server.host.workspace.clone(), context, !self.server.config.trusted).await;
        }
        let read = |answer: Value| {
            let ResultText { text, is_error } = ResultText::of_call(&answer);
            let result = match is_error {
                false => ToolResult::ok(text),
                true if text.chars().count() <= MAX_ERROR => ToolResult::failed(text),
                // A long error is shortened and stored whole, like a result.
                true => ToolResult { content: text, ..ToolResult::failed("the tool says that it failed") },
            };
            ToolResult { images, ..result }
        };
        tainted(answered.map(read), &self.server).into()
    }
}

/// Refuses turns that are not for the owner alone if folders cannot be hidden from the server's program, which then sees the owner's
/// private folders.
fn check_sender(server: &McpServer, context: &ToolContext) -> Result<(), String> {
    if context.is_for_owner_alone() || !server.sees_private_folders() {
        return Ok(());
    }
    let server = &server.name;
    Err(format!("{server} is for the owner alone here: this machine cannot hide the owner's folders from the program"))
}

#[derive(Deserialize, JsonSchema)]
struct McpReadArgs {
    /// The server; all without it.
    server: Option<String>,
    /// The resource to read; without it, the resources are listed.
    uri: Option<String>,
}

/// The tool `mcp_read`, which reads resources of the servers.
pub(super) struct McpRead {
    definition: ToolDefinition,
    servers: Vec<Arc<McpServer>>,
}

impl McpRead {
    pub(super) fn new(servers: Vec<Arc<McpServer>>) -> Self {
        let description = "Read a resource of an MCP server, or list the resources";
        let definition = ToolDefinition {
            timeout: servers.iter().map(longest_call).max(),
            ..ToolDefinition::reading::<McpReadArgs>(MCP_READ, description)
        };
        Self { definition, servers }
    }

    fn named(&self, name: &str) -> Result<&Arc<McpServer>, String> {
        let found = self.servers.iter().find(|server| server.name == name.trim());
        found.ok_or_else(|| {
            let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
            let name = truncate(&plain_line(name), MAX_LINE);
            format!("there is no MCP server {name:?}; there are: {}", names.join(", "))
        })
    }

    /// Returns the servers that a call refers to.
    fn selected_servers(&self, arguments: &Value) -> Vec<&Arc<McpServer>> {
        match arguments["server"].as_str() {
            Some(name) => self.named(name).into_iter().collect(),
            None => self.servers.iter().collect(),
        }
    }

    /// Reads or lists resources.
    ///
    /// # Errors
    /// The call names no server that may be read; the text is for the model.
    async fn read(&self, args: McpReadArgs, context: &ToolContext) -> Result<ToolResult, String> {
        let named = args.server.as_deref().map(|name| self.named(name)).transpose()?;
        let Some(uri) = args.uri.as_deref().map(str::trim).filter(|uri| !uri.is_empty()) else {
            let servers = named.map_or_else(|| self.servers.iter().collect::<Vec<_>>(), |only| vec![only]);
            return Ok(list(&servers).await);
        };
        let server = match (named, self.servers.as_slice()) {
            (Some(server), _) | (None, [server]) => server,
            (None, _) => self.owner_of(uri)?,
        };
        check_sender(server, context)?;
        let answered = server.request(McpRequest::ReadResource { uri: uri.to_owned() }, &context.cancel).await;
        Ok(tainted(answered.map(|answer| ToolResult::ok(ResultText::of_resource(&answer))), server))
    }

    /// Returns the only server that lists a resource.
    fn owner_of(&self, uri: &str) -> Result<&Arc<McpServer>, String> {
        let lists = |server: &&Arc<McpServer>| {
            server.listing().is_some_and(|listing| listing.resources.iter().any(|resource| resource.uri == uri))
        };
        let mut owners = self.servers.iter().filter(lists);
        match (owners.next(), owners.next()) {
            (Some(only), None) => Ok(only),
            _ => Err("say which server: several, or none, list this resource".to_owned()),
        }
    }
}

/// Lists the resources of servers. A server that was never listed is listed first.
async fn list(servers: &[&Arc<McpServer>]) -> ToolResult {
    let (mut lines, mut taint) = (Vec::new(), Taint::new());
    for server in servers {
        let listing = match server.listing() {
            Some(listing) => listing,
            None => match server.refresh().await {
                Ok(listing) => listing,
                Err(error) => {
                    lines.push(truncate(&plain_line(&error.text), MAX_ERROR));
                    taint.extend(sources(server));
                    continue;
                }
            },
        };
        let kinds = [("resource", &listing.resources), ("template", &listing.templates)];
        let before = lines.len();
        for (kind, resources) in kinds {
            lines.extend(resources.iter().take(MAX_LISTED).map(|resource| resource_line(&server.name, kind, resource)));
            if resources.len() > MAX_LISTED {
                lines.push(format!(
                    "[{} further {kind}s of {} are left out]",
                    resources.len() - MAX_LISTED,
                    server.name
                ));
            }
        }
        if lines.len() > before {
            taint.extend(sources(server));
        }
    }
    let text = if lines.is_empty() { "No resources.".to_owned() } else { lines.join("\n") };
    let mut result = ToolResult::ok(text);
    result.add_sources(taint);
    result
}

fn resource_line(server: &str, kind: &str, resource: &ListedResource) -> String {
    let ListedResource { uri, name, description, media_type } = resource;
    let facts = [name, media_type, description].into_iter().filter(|fact| !fact.is_empty());
    let facts = facts.map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("- {server} {kind} {}: {}", plain_line(uri), truncate(&facts, MAX_LINE))
}

#[async_trait]
impl Tool for McpRead {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns true for an address: a composed address could carry data away. A list comes from the cache.
    fn is_restricted(&self, arguments: &Value, _: &ToolContext) -> bool {
        arguments["uri"].is_string()
    }

    fn may_taint(&self, arguments: &Value, _: &ToolContext) -> bool {
        self.selected_servers(arguments).iter().any(|server| !server.config.trusted)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let read = async |args| self.read(args, context).await.unwrap_or_else(ToolResult::failed);
        with_arguments(arguments, read).await
    }
}

/// Returns the text of a prompt, and the taint of its content.
///
/// # Errors
/// The server cannot be started, or does not give the prompt.
pub async fn prompt_text(
    server: &Arc<McpServer>,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<(String, Taint), McpError> {
    let request = McpRequest::GetPrompt { name: name.to_owned(), arguments };
    let answer = server.request(request, &tokio_util::sync::CancellationToken::new()).await?;
    let text = server.label().redacted(ResultText::of_prompt(&answer));
    if text.trim().is_empty() {
        return Err(McpError::new(McpErrorKind::Answer, format!("the prompt of {} is empty", server.name)));
    }
    Ok((text, sources(server)))
}

/// Returns a result with the server as the source of its content. Error texts come from the server as well.
fn tainted(answered: Result<ToolResult, McpError>, server: &McpServer) -> ToolResult {
    let mut result = answered.unwrap_or_else(|error| {
        let text = truncate(&plain_line(&error.text), MAX_ERROR);
        match error.kind {
            McpErrorKind::NotSent => ToolResult::failed_for_now(text),
            // The call may have taken effect.
            McpErrorKind::Lost | McpErrorKind::Timeout | McpErrorKind::Cancelled => ToolResult::failed_for_good(text),
            _ => ToolResult::failed(text),
        }
    });
    result.add_sources(sources(server));
    result
}

fn sources(server: &McpServer) -> Taint {
    if server.config.trusted { Taint::new() } else { Taint::from([format!("mcp:{}", server.name)]) }
}

fn longest_call(server: &Arc<McpServer>) -> Duration {
    server.config.start_timeout.0 + server.config.timeout.0 + MARGIN
}

#[cfg(test)]
mod tests {
    use daoyou_channels::Trust;
    use serde_json::json;

    use super::*;
    use crate::guard::SandboxMode;
    use crate::mcp::{McpHost, McpServerConfig};
    use crate::tools::testing::context;
    use crate::tools::{CONVERSATIONS, ExecConfig, PrivateFolders, command_runner};

    #[tokio::test]
    async fn resources_of_a_program_that_sees_private_folders_are_for_the_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let exec = ExecConfig { sandbox: SandboxMode::Off, ..ExecConfig::default() };
        let private = PrivateFolders::new(&[CONVERSATIONS]);
        let home = folder.path();
        let runner = command_runner(&exec, home, home, private, 0, "/proc/self/exe".into()).unwrap();
        let (home, workspace) = (home.to_owned(), home.to_owned());
        let host =
            Arc::new(McpHost { home, workspace, runner, exec, secrets: Arc::default(), changed: Arc::default() });
        let command = vec!["/nonexistent/server".to_owned()];
        let config = McpServerConfig { command, ..McpServerConfig::default() };
        let server = Arc::new(McpServer::new("notes", config, host));
        let of = |trust: Trust| ToolContext { trust, ..context() };
        assert_eq!(check_sender(&server, &of(Trust::Owner)), Ok(()));
        let among_others = ToolContext { is_read_by_others: true, ..context() };
        assert!(check_sender(&server, &among_others).is_err());
        let tool = McpRead::new(vec![server]);
        let text = tool.call(json!({"uri": "note://one"}), &of(Trust::Known)).await.result.render();
        assert!(text.contains("notes is for the owner alone here"), "{text}");
    }
}
