//! The tools of a turn, which its message may restrict.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sub_agents::SPAWN;
use super::turn_agent::TurnAgent;
use crate::origin::TurnOrigin;
use crate::profiles::AgentProfile;
use crate::store::inbox::InboxRow;
use crate::tools::ToolExecutor;
use crate::turn::context::conversation_context::AgentMemory;

/// The tools that run commands. Path rules do not restrict them.
const RUNS_COMMANDS: [&str; 2] = ["exec", "process"];
/// The tools that run Git, which reads files itself.
const READS_BY_GIT: [&str; 4] = ["git_status", "git_diff", "git_log", "git_commit"];
/// The tools that run code of the project. No rules restrict that code.
const RUNS_PROJECT: [&str; 7] = [
    "run_test",
    "lsp_diagnostics",
    "lsp_definition",
    "lsp_references",
    "lsp_symbols",
    "lsp_rename",
    "lsp_code_actions",
];
const MCP_READ: &str = "mcp_read";
const MEMORY_TOOLS: [&str; 4] = ["remember", "recall", "forget", "search_history"];

/// All tools, from which each turn gets a selection.
pub struct TurnTools {
    pub all: Arc<ToolExecutor>,
    /// The tools for each agent folder other than the workspace.
    pub elsewhere: HashMap<PathBuf, Arc<ToolExecutor>>,
    /// `agent.spawn.depth`.
    pub spawn_depth: u32,
}

impl TurnTools {
    /// Returns the tools of the turn of this message for its agent.
    pub fn of_message(&self, row: &InboxRow, agent: &TurnAgent) -> Arc<ToolExecutor> {
        let origin = TurnOrigin::parse(&row.origin);
        let is_deep = origin.depth() >= self.spawn_depth;
        let mut tools = self.in_workspace(agent.profile.workspace.as_deref());
        for listed in agent.all().filter_map(|agent| agent.tools.as_ref()).chain(&origin.settings.tools) {
            tools = Arc::new(only(&tools, listed));
        }
        let rules = || agent.all().filter_map(|agent| agent.access.as_ref()).map(|(_, rules)| rules);
        let (limits_paths, limits_commands) =
            (rules().any(|rules| rules.limits_paths()), rules().any(|rules| rules.limits_commands()));
        let withheld: [(bool, &[&str]); 5] = [
            (is_deep, &[SPAWN]),
            (agent.memory() == AgentMemory::None, &MEMORY_TOOLS),
            // Rules that name the commands are the owner's decision about what `exec` may run.
            (rules().any(|rules| rules.limits_paths() && !rules.names_commands()), &RUNS_COMMANDS),
            (limits_paths, &READS_BY_GIT),
            (limits_paths || limits_commands, &RUNS_PROJECT),
        ];
        for (_, names) in withheld.into_iter().filter(|(is_withheld, _)| *is_withheld) {
            tools = Arc::new(tools.filtered(|name| !names.contains(&name)));
        }
        let without_servers: Vec<_> = agent.all().filter(|agent| agent.is_bound_to_files()).collect();
        if !without_servers.is_empty() {
            // MCP servers are not restricted by an agent's rules: an agent with such rules has only the server tools that it names.
            let names_it = |agent: &Arc<AgentProfile>, tool: &str| {
                agent.tools.as_ref().is_some_and(|tools| tools.iter().any(|named| named == tool))
            };
            let is_kept = |name: &str| !is_of_server(name) || without_servers.iter().all(|agent| names_it(agent, name));
            tools = Arc::new(tools.filtered(is_kept));
        }
        tools
    }

    /// Returns the tools for the folder of an agent; `None` is the workspace.
    fn in_workspace(&self, workspace: Option<&Path>) -> Arc<ToolExecutor> {
        // The tools of all agent folders are created at the start.
        workspace.and_then(|path| self.elsewhere.get(path)).unwrap_or(&self.all).clone()
    }
}

/// Returns true for a tool that reaches an MCP server.
fn is_of_server(name: &str) -> bool {
    name == MCP_READ || name.contains("__")
}

/// Returns the tools that `listed` names, by name or alias.
fn only(tools: &ToolExecutor, listed: &[String]) -> ToolExecutor {
    let names = listed.iter().filter_map(|name| Some(tools.registry().get(name)?.spec().name.clone()));
    let names: Vec<_> = names.collect();
    tools.filtered(|name| names.iter().any(|listed| listed == name)).offering_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::{ToolFixture, context};

    #[tokio::test]
    async fn a_turn_has_only_the_listed_tools_also_in_a_plan() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        std::fs::write(fixture.path("a.txt"), "one").unwrap();
        let listed = ["READ_FILE", "parallel", "no_such"].map(str::to_owned);
        let tools = only(&fixture.executor, &listed);
        let names: Vec<_> = tools.specs(&BTreeSet::new()).iter().map(|spec| spec.name.clone()).collect();
        assert_eq!(names, ["read_file", "parallel"]);
        let plan = |tool: &str| json!({"calls": [{"tool": tool, "arguments": {"path": "a.txt"}}]});
        for (name, arguments, expected) in [
            ("read_file", json!({"path": "a.txt"}), "one"),
            ("cat", json!({"path": "a.txt"}), "one"),
            (
                "exec",
                json!({"command": "id"}),
                "\"exec\" is not available in this turn. Available tools: read_file, parallel",
            ),
            ("shell", json!({"command": "id"}), "is not available in this turn"),
            ("no_such", json!({}), "not found"),
            ("parallel", plan("read_file"), "one"),
            ("parallel", plan("list_dir"), "\"list_dir\" is not available in this turn"),
        ] {
            let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
            let rendered = tools.run(&call, &context()).await.result.render();
            assert!(rendered.contains(expected), "{name} {arguments}: {rendered}");
        }
        assert!(only(&fixture.executor, &[]).specs(&BTreeSet::new()).is_empty());
    }
}
