//! The names and aliases of all tools. They are known before any tool is built, because the configuration names tools and is
//! checked without a workspace. A test compares the names with the built tools.

use ToolOffer::{Always, Search, SearchWithHint};

use crate::text::nearest;

/// When requests contain a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOffer {
    Always,
    /// After `find_tools` has found the tool. Its name states its purpose.
    Search,
    /// As [`ToolOffer::Search`], with a hint about the purpose, which the name does not state.
    SearchWithHint(&'static str),
}

/// Each tool with its offer and its aliases.
pub const TOOL_NAMES: &[(&str, ToolOffer, &[&str])] = &[
    ("read_file", Always, &["read", "cat", "view", "view_file", "open_file", "get_file"]),
    ("write_file", Always, &["write", "create_file", "save_file"]),
    ("edit_file", Always, &["edit", "search_replace", "str_replace", "replace", "replace_in_file"]),
    ("apply_patch", SearchWithHint("diffs"), &["patch", "apply_diff", "patch_file"]),
    ("list_dir", Always, &["ls", "list_files", "list_directory", "list"]),
    (
        "grep",
        Always,
        &[
            "text_search", "regex_search", "search_files", "search_text", "search_code", "search_in_files",
            "search_file_content", "grep_search", "code_search", "ripgrep", "rg",
        ],
    ),
    ("glob", Search, &["find_files", "find_file", "file_search", "glob_search", "glob_files", "find"]),
    ("repo_map", SearchWithHint("code overview"), &["get_repo_map", "code_map", "repository_map"]),
    (
        "repo_structure",
        SearchWithHint("file tree"),
        &["get_repo_structure", "directory_tree", "tree", "project_structure"],
    ),
    (
        "symbols",
        SearchWithHint("code outline"),
        &["get_file_symbols", "file_symbols", "document_symbols", "get_symbols", "outline"],
    ),
    ("ast_grep_search", Search, &["ast_grep", "ast_search", "structural_search"]),
    ("ast_grep_replace", SearchWithHint("code rewrites"), &["ast_replace", "ast_grep_rewrite", "structural_replace"]),
    ("file_info", Search, &["get_file_info", "get_file_metadata", "file_metadata", "file_stat", "stat"]),
    ("create_dir", Search, &["create_directory", "create_folder", "make_directory", "make_dir", "mkdir"]),
    (
        "delete_file",
        Search,
        &[
            "delete", "delete_path", "delete_directory", "delete_folder", "remove", "remove_file", "remove_directory",
            "rm", "rmdir", "unlink",
        ],
    ),
    (
        "exec",
        Always,
        &["bash", "run_command", "shell", "sh", "execute", "execute_command", "run_shell_command", "run", "terminal"],
    ),
    ("process", SearchWithHint("background commands"), &["processes", "background"]),
    ("run_test", Search, &["run_tests", "test", "tests", "pytest"]),
    ("git_status", Search, &[]),
    ("git_diff", Search, &[]),
    ("git_log", Search, &[]),
    ("git_commit", Search, &[]),
    ("message", SearchWithHint("other chats, mails, files"), &["send_message", "reply", "notify"]),
    (
        "web_fetch",
        SearchWithHint("web pages"),
        &["fetch", "fetch_url", "web_get", "read_url", "open_url", "browse", "http_get"],
    ),
    ("web_search", Search, &["search_web", "internet_search", "google", "google_search", "brave_search"]),
    (FIND_TOOLS, Always, &["tool_search", "search_tools", "list_tools"]),
    ("parallel", Search, &["multi_tool_use.parallel", "multi_tool_use", "batch"]),
    ("lsp_diagnostics", SearchWithHint("errors in code"), &["diagnostics", "get_diagnostics"]),
    ("lsp_definition", Search, &["lsp_goto_definition", "goto_definition", "go_to_definition", "find_definition"]),
    ("lsp_references", Search, &["lsp_find_references", "find_references", "find_usages"]),
    (
        "lsp_symbols",
        Search,
        &["lsp_document_symbols", "lsp_workspace_symbols", "document_symbols", "workspace_symbols"],
    ),
    ("lsp_code_actions", SearchWithHint("quick fixes"), &["lsp_code_action", "code_actions"]),
    ("lsp_rename", Search, &["lsp_rename_symbol", "rename_symbol"]),
    ("ask_user", Search, &["ask", "question", "ask_question", "ask_followup_question", "ask_human", "request_input"]),
    (
        "cron",
        SearchWithHint("reminders, schedules"),
        &["schedule", "scheduler", "reminder", "remind", "remind_me", "set_reminder", "schedule_task", "cron_job"],
    ),
    ("spawn", SearchWithHint("sub-agents"), &["subagent", "sub_agent", "delegate", "task"]),
    // Offered if there are skills.
    ("load_skill", SearchWithHint("instructions"), &["skill", "use_skill", "read_skill"]),
    ("find_skills", Search, &["search_skills", "list_skills"]),
    ("remember", Always, &["save_memory", "add_memory", "memorize", "store_memory"]),
    ("recall", Always, &["search_memory", "memory_search", "recall_memory"]),
    ("forget", Search, &["delete_memory", "remove_memory", "forget_memory"]),
    ("search_history", Search, &["search_conversations", "conversation_search", "search_messages"]),
    // Exists if there are MCP servers.
    (
        "mcp_read",
        SearchWithHint("resources of MCP servers"),
        &["read_mcp_resource", "list_mcp_resources", "mcp_resource", "read_resource"],
    ),
];

/// The tool that runs commands. Restrictions that the owner sets for it also apply to tools that run the project's own code.
pub(super) const EXEC: &str = "exec";

/// The name of the tool that manages the background commands of `exec`.
pub const PROCESS: &str = "process";

/// The name of the tool that finds the others.
pub const FIND_TOOLS: &str = "find_tools";

/// The minimum similarity for a suggestion; 1 means equal.
const MIN_SIMILARITY: f64 = 0.5;

/// Returns true if `name` is the name or an alias of a tool, ignoring case.
pub fn is_tool(name: &str) -> bool {
    names().any(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// Returns the tool that `name` most likely means, if a similar name exists.
pub fn nearest_tool(name: &str) -> Option<&'static str> {
    nearest::nearest(&name.to_lowercase(), names(), nearest::BY_EDITS, MIN_SIMILARITY)
}

/// Returns the tool's canonical name for a name or alias, ignoring case.
pub fn canonical_name(name: &str) -> Option<&'static str> {
    names().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, tool)| tool)
}

/// Returns the aliases of a tool.
pub(super) fn aliases_of(tool: &str) -> &'static [&'static str] {
    TOOL_NAMES.iter().find(|(name, ..)| *name == tool).map_or(&[], |(_, _, aliases)| aliases)
}

/// Returns when requests contain a tool: always if the tool is not daoyou's own.
pub(super) fn offer_of(tool: &str) -> ToolOffer {
    TOOL_NAMES.iter().find(|(name, ..)| *name == tool).map_or(Always, |(_, offer, _)| *offer)
}

/// Returns every name and alias with its tool.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TOOL_NAMES
        .iter()
        .flat_map(|(tool, _, others)| std::iter::once((*tool, *tool)).chain(others.iter().map(|name| (*name, *tool))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_tool_is_found() {
        for (name, is_known, nearest) in [
            ("exec", true, Some("exec")),
            ("Bash", true, Some("exec")),
            ("exce", false, Some("exec")),
            ("readfile", false, Some("read_file")),
            ("list_fles", false, Some("list_dir")),
            ("text_serch", false, Some("grep")),
            ("xyzzy plugh", false, None),
        ] {
            assert_eq!((is_tool(name), nearest_tool(name)), (is_known, nearest), "{name}");
        }
    }
}
