//! The memory tools of the agent.

mod caller;

mod history;
mod recall;
mod remember;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use daoyou_channels::Trust;
use serde_json::Value;

use super::MemoryService;
use crate::tools::{Tool, ToolAccess, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments};

/// The operation of a memory tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryTask {
    Remember,
    Recall,
    Forget,
    SearchHistory,
}

/// A tool that works on the memory of `service`.
struct MemoryTool {
    definition: ToolDefinition,
    service: Option<Arc<MemoryService>>,
    task: MemoryTask,
}

#[async_trait]
impl Tool for MemoryTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn hint(&self, _: &str) -> Option<&'static str> {
        let hint = "id is the number of a memory: recall it first, which shows the id";
        (self.task == MemoryTask::Forget).then_some(hint)
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        if self.task == MemoryTask::SearchHistory { history::validate(arguments) } else { Ok(()) }
    }

    fn may_taint(&self, _: &Value, _: &ToolContext) -> bool {
        matches!(self.task, MemoryTask::Recall | MemoryTask::SearchHistory)
    }

    /// Returns false for a sender without a memory: the call is refused, and an approval would not change that.
    fn is_restricted(&self, _: &Value, context: &ToolContext) -> bool {
        self.definition.access == ToolAccess::Changes && context.trust != Trust::Untrusted
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let Some(service) = self.service.clone() else { return ToolResult::failed("no gateway runs here").into() };
        match self.task {
            MemoryTask::Remember => with_arguments(arguments, |args| remember::remember(service, args, context)).await,
            MemoryTask::Recall => with_arguments(arguments, |args| recall::search(service, args, context)).await,
            MemoryTask::Forget => with_arguments(arguments, |args| remember::plan_forget(service, args, context)).await,
            MemoryTask::SearchHistory => {
                with_arguments(arguments, |args| history::search(service, args, context)).await
            }
        }
    }
}

/// Returns the tools that work on the memory of `service`. Without a service they can only be listed, and calls fail.
pub fn tools(service: Option<&Arc<MemoryService>>) -> Vec<Arc<dyn Tool>> {
    let tools = [
        (MemoryTask::Remember, remember::definition()),
        (MemoryTask::Recall, recall::definition()),
        (MemoryTask::Forget, remember::forget_definition()),
        (MemoryTask::SearchHistory, history::definition()),
    ];
    let tool = |(task, definition)| Arc::new(MemoryTool { definition, service: service.cloned(), task }) as _;
    tools.map(tool).into()
}

/// Returns the names and aliases of these tools, in lower case.
pub fn tool_names() -> &'static [String] {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let names = |tool: &Arc<dyn Tool>| {
            let others = tool.definition().aliases.iter().map(|alias| alias.to_lowercase());
            std::iter::once(tool.spec().name.to_lowercase()).chain(others).collect::<Vec<_>>()
        };
        tools(None).iter().flat_map(names).collect()
    });
    &NAMES
}
