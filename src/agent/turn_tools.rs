//! The tools of a turn, which its message may restrict.

use std::sync::Arc;

use super::sub_agents::SPAWN;
use crate::origin::TurnOrigin;
use crate::store::inbox::InboxRow;
use crate::tools::ToolExecutor;

/// All tools, from which each turn gets its own.
pub struct TurnTools {
    pub all: Arc<ToolExecutor>,
    /// `agent.spawn.depth`.
    pub spawn_depth: u32,
}

impl TurnTools {
    /// Returns the tools that the turn of this message has.
    pub fn of_message(&self, row: &InboxRow) -> Arc<ToolExecutor> {
        let origin = TurnOrigin::parse(&row.origin);
        let is_deep = origin.depth() >= self.spawn_depth;
        match (origin.settings.tools, is_deep) {
            (None, false) => self.all.clone(),
            (None, true) => Arc::new(self.all.filtered(|name| name != SPAWN)),
            (Some(listed), _) => {
                let listed = only(&self.all, &listed);
                Arc::new(if is_deep { listed.filtered(|name| name != SPAWN) } else { listed })
            }
        }
    }
}

/// Returns the tools that are `listed`, by name or alias.
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
    use crate::tools::testing::{ToolWorld, context};

    #[tokio::test]
    async fn a_turn_has_only_the_listed_tools_also_in_a_plan() {
        let world = ToolWorld::new(&ToolsConfig::default());
        std::fs::write(world.path("a.txt"), "one").unwrap();
        let listed = ["READ_FILE", "parallel", "no_such"].map(str::to_owned);
        let tools = only(&world.executor, &listed);
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
            let told = tools.run(&call, &context()).await.result.render();
            assert!(told.contains(expected), "{name} {arguments}: {told}");
        }
        assert!(only(&world.executor, &[]).specs(&BTreeSet::new()).is_empty());
    }
}
