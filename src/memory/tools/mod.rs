//! The memory tools of the agent.

mod caller;

mod forget;
mod history;
mod recall;
mod remember;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use super::MemoryService;
use crate::tools::Tool;

/// Returns the tools that work on the memory of `service`. Without a service they can only be listed, and calls fail.
pub fn tools(service: Option<&Arc<MemoryService>>) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(remember::RememberTool::new(service.cloned())),
        Arc::new(recall::RecallTool::new(service.cloned())),
        Arc::new(forget::ForgetTool::new(service.cloned())),
        Arc::new(history::SearchHistoryTool::new(service.cloned())),
    ]
}

/// Returns the names and aliases of these tools, in lower case.
pub fn tool_names() -> &'static [String] {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let names = |tool: &Arc<dyn Tool>| {
            let others = tool.aliases().iter().map(|alias| alias.to_lowercase());
            std::iter::once(tool.spec().name.to_lowercase()).chain(others).collect::<Vec<_>>()
        };
        tools(None).iter().flat_map(names).collect()
    });
    &NAMES
}
