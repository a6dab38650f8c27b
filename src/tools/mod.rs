//! The tools that models call, their registry, and the executor that runs their calls.

mod agent_scope;
mod allow_list;
mod argument_aliases;
#[cfg(test)]
mod argument_aliases_tests;
mod arguments;
mod build;
mod code;
mod config;
mod documents;
mod encoding;
mod exec;
mod executor;
#[cfg(test)]
mod executor_tests;
mod files;
mod find_tools;
mod git;
mod lsp;
mod message;
mod names;
mod output_limits;
mod parallel;
mod private_folders;
mod process;
mod refusal;
mod registry;
mod result_cache;
mod run_test;
mod schema;
mod spill;
mod supervisor_client;
#[cfg(test)]
pub(crate) mod testing;
mod tool;
mod tool_result;
mod trash;
mod truncation;
mod web;

pub use agent_scope::AgentScope;
pub use allow_list::{ToolAllowList, allow_rule_fault};
pub(crate) use arguments::read_arguments;
pub use arguments::{parse_arguments, with_arguments};
pub use build::{ToolDeps, ToolSetupError, build, command_runner, prepare_temp};
pub use config::{ExecConfig, ToolsConfig};
pub use documents::{EXTRACT_COMMAND, extract_main};
pub use exec::{CommandRunner, ServerCommand, ServerError, ServerProcess, ServerSocket, sandbox_of};
pub use executor::{ExecutorLimits, ToolExecutor};
pub use lsp::LspConfig;
pub use names::{PROCESS, TOOL_NAMES, canonical_name, is_tool, nearest_tool};
pub use output_limits::{OutputConfig, OutputRule};
pub use parallel::is_plan;
pub use private_folders::{CONVERSATIONS, GATEWAY_FOLDER, HISTORY, MEMORY_FOLDER, PrivateFolders};
pub use process::{
    KillRequester, OutputTail, ProcessEnd, ProcessEndAnnouncer, Processes, format_elapsed, is_process_alive,
};
pub use refusal::Restriction;
pub use registry::ToolRegistry;
pub use result_cache::ToolResultCache;
pub use schema::{plain_schema, schema_faults, tool_spec};
pub use spill::{SpillStore, save_image};
pub use tool::{
    CallRunner, NestedCall, OutputLimit, ReplayPolicy, RowEffect, Tool, ToolAccess, ToolContext, ToolDefinition,
    ToolEffect, ToolOutcome, TruncationStrategy, WriteRows,
};
pub use tool_result::{PlannedCallReport, PlannedCallState, StoredOutput, StoredPart, ToolResult};
pub use trash::{Trash, TrashRecord};
pub use truncation::truncate_middle;
pub use web::{WebConfig, is_known_address};
