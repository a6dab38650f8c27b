//! The names of the tools, known before any tool is built: the configuration names tools, and is checked without a
//! workspace. A test holds them against the tools themselves.

use crate::text::nearest;

/// Each tool, and its other names.
pub const TOOLS: &[(&str, &[&str])] = &[
    ("read_file", &["read", "cat", "view", "view_file", "open_file", "get_file"]),
    ("write_file", &["write", "create_file", "save_file"]),
    ("edit_file", &["edit", "search_replace", "str_replace", "replace", "replace_in_file"]),
    ("list_dir", &["ls", "list_files", "list_directory", "list"]),
    (
        "exec",
        &["bash", "run_command", "shell", "sh", "execute", "execute_command", "run_shell_command", "run", "terminal"],
    ),
    ("process", &["processes", "background"]),
    ("message", &["send_message", "reply", "notify"]),
    ("parallel", &["multi_tool_use.parallel", "multi_tool_use", "batch"]),
    (
        "cron",
        &["schedule", "scheduler", "reminder", "remind", "remind_me", "set_reminder", "schedule_task", "cron_job"],
    ),
    ("spawn", &["subagent", "sub_agent", "delegate", "task"]),
    ("remember", &["save_memory", "add_memory", "memorize", "store_memory"]),
    ("recall", &["search_memory", "memory_search", "recall_memory"]),
    ("forget", &["delete_memory", "remove_memory", "forget_memory"]),
    ("search_history", &["search_conversations", "conversation_search", "search_messages"]),
];

/// How alike (1 is the same) a name must be to be taken for what was meant.
const ALIKE: f64 = 0.5;

/// Returns true if a tool has this name, whatever its case, also as one of its other names.
pub fn is_tool(name: &str) -> bool {
    names().any(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// Returns the tool that `name` was most likely meant to be, if one is much alike.
pub fn nearest_tool(name: &str) -> Option<&'static str> {
    nearest::nearest(&name.to_lowercase(), names(), nearest::BY_EDITS, ALIKE)
}

/// Every name, with the tool that it means.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TOOLS
        .iter()
        .flat_map(|(tool, others)| std::iter::once((*tool, *tool)).chain(others.iter().map(|name| (*name, *tool))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_tool_is_named() {
        for (name, is_known, nearest) in [
            ("exec", true, Some("exec")),
            ("Bash", true, Some("exec")),
            ("exce", false, Some("exec")),
            ("readfile", false, Some("read_file")),
            ("list_fles", false, Some("list_dir")),
            ("xyzzy plugh", false, None),
        ] {
            assert_eq!((is_tool(name), nearest_tool(name)), (is_known, nearest), "{name}");
        }
    }
}
