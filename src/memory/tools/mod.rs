//! The agent's own way to its memory.

mod caller;

mod forget;
mod history;
mod recall;
mod remember;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::Desk;
use crate::tools::Tool;

/// The tools that work on the memory of `desk`; without one they are only shown, and their calls fail.
pub fn tools(desk: Option<&Arc<Desk>>) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(remember::RememberTool::new(desk.cloned())),
        Arc::new(recall::RecallTool::new(desk.cloned())),
        Arc::new(forget::ForgetTool::new(desk.cloned())),
        Arc::new(history::SearchHistoryTool::new(desk.cloned())),
    ]
}
