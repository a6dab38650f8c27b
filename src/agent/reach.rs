//! How far a turn reaches: the tools it has and the bounds it is held to, by what its message says.

use std::sync::Arc;
use std::time::Duration;

use super::lane::LaneRunner;
use super::middleware::MiddlewareName;
use super::sub_agents::SPAWN;
use super::turn::TurnLimits;
use crate::origin::TurnOrigin;
use crate::store::inbox::InboxRow;
use crate::tools::Executor;

impl LaneRunner {
    /// How far the turn of this message may go: as far as any, and no further than was set for it.
    pub(super) fn limits_of(&self, row: &InboxRow) -> TurnLimits {
        let all = TurnLimits {
            iterations: self.config.max_iterations,
            tokens: self.config.max_turn_tokens,
            cost: self.config.budget.turn_cost.filter(|_| self.config.middleware.contains(&MiddlewareName::Budget)),
            time: self.config.turn_timeout.0,
        };
        match TurnOrigin::parse(&row.origin).settings.bounds {
            None => all,
            Some(own) => TurnLimits {
                iterations: all.iterations.min(own.iterations),
                tokens: all.tokens.min(own.tokens),
                cost: all.cost,
                time: all.time.min(Duration::from_millis(own.timeout_ms)),
            },
        }
    }

    /// The tools that the turn of this message has.
    pub(super) fn tools_for(&self, row: &InboxRow) -> Arc<Executor> {
        let origin = TurnOrigin::parse(&row.origin);
        let is_deep = origin.depth() >= self.config.spawn.depth;
        match (origin.settings.tools, is_deep) {
            (None, false) => self.tools.clone(),
            (None, true) => Arc::new(self.tools.keeping(|name| name != SPAWN)),
            (Some(listed), _) => {
                let listed = only(&self.tools, &listed);
                Arc::new(if is_deep { listed.keeping(|name| name != SPAWN) } else { listed })
            }
        }
    }
}

/// The tools that are `listed`, by name or alias.
fn only(tools: &Executor, listed: &[String]) -> Executor {
    let names = listed.iter().filter_map(|name| Some(tools.registry().get(name)?.spec().name.clone()));
    let names: Vec<_> = names.collect();
    tools.keeping(|name| names.iter().any(|listed| listed == name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::{World, context};

    #[tokio::test]
    async fn a_turn_has_the_tools_that_are_listed_also_in_a_plan() {
        let world = World::new(&ToolsConfig::default());
        std::fs::write(world.path("a.txt"), "one").unwrap();
        let listed = ["READ_FILE", "parallel", "no_such"].map(str::to_owned);
        let tools = only(&world.executor, &listed);
        let names: Vec<_> = tools.specs().iter().map(|spec| spec.name.clone()).collect();
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
        assert!(only(&world.executor, &[]).specs().is_empty());
    }
}
