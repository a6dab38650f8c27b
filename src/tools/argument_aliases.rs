//! Names of arguments that other systems use, and arguments that tools accept in addition to those of their schemas.

use serde_json::{Map, Value};

use crate::chat::ToolSpec;
use crate::text::shell_quote;

/// daoyou's argument names, each with the names that models use. An alias applies if a tool has the first name and not the alias.
const ALIASES: &[(&str, &[&str])] = &[
    ("path", &["file_path", "filepath", "filePath", "file", "filename"]),
    ("path", &["directory", "dir", "dir_path", "test_path", "repo_path", "paths"]),
    ("framework", &["test_framework"]),
    ("name", &["skill_name"]),
    ("files", &["chat_files"]),
    ("idents", &["mentioned_idents"]),
    ("max_tokens", &["maxTokens"]),
    ("max_depth", &["maxDepth", "depth"]),
    ("lang", &["language"]),
    ("rewrite", &["replacement"]),
    ("dry_run", &["dryRun"]),
    ("repo_path", &["repoPath", "repository"]),
    ("max_count", &["maxCount"]),
    ("staged", &["cached"]),
    ("old_text", &["oldStr", "old_str", "old_string", "oldString", "oldText", "search"]),
    ("new_text", &["newStr", "new_str", "new_string", "newString", "newText", "replace"]),
    ("replace_all", &["replaceAll"]),
    ("pattern", &["regex", "query", "search_term"]),
    ("glob", &["file_pattern", "filePattern", "include", "include_pattern", "includePattern"]),
    ("ignore_case", &["-i", "case_insensitive", "ignoreCase"]),
    ("max_results", &["maxResults", "max_matches", "max_count", "head_limit", "limit"]),
    ("command", &["cmd", "script"]),
    ("content", &["text", "message", "contents"]),
    ("chat_id", &["chatId"]),
    ("query", &["q"]),
    ("message", &["prompt", "task", "text", "content"]),
    ("at", &["at_time", "atTime"]),
    ("every_seconds", &["everySeconds"]),
    ("every", &["interval"]),
    ("cron_expr", &["cron", "cronExpr", "cron_expression"]),
    ("tz", &["timezone"]),
    ("job_id", &["jobId", "id"]),
];

/// Argument names whose values mean the opposite of daoyou's arguments.
const OPPOSITES: &[(&str, &str)] = &[("case_sensitive", "ignore_case"), ("caseSensitive", "ignore_case")];

/// An argument of other systems that a tool takes without a use for it.
struct NeedlessArgument {
    tool: &'static str,
    name: &'static str,
    /// The values that ask for what the tool does anyway; empty for any value.
    values: &'static [&'static str],
    /// Why other values are refused.
    why: &'static str,
}

/// Creates a row of [`NEEDLESS`].
const fn needless(
    tool: &'static str,
    name: &'static str,
    values: &'static [&'static str],
    why: &'static str,
) -> NeedlessArgument {
    NeedlessArgument { tool, name, values, why }
}

const UTF_8: &[&str] = &["utf-8", "utf8"];
const NEEDLESS: &[NeedlessArgument] = &[
    needless("read_file", "encoding", UTF_8, "other encodings are recognized, not chosen"),
    needless("write_file", "encoding", UTF_8, "edit_file keeps the encoding of a file"),
    needless("write_file", "create_dirs", &["true"], "missing folders are always created"),
    needless("create_dir", "exist_ok", &["true"], "an existing folder is never an error"),
    needless("delete_file", "force", &[], ""),
    needless("list_dir", "recursive", &["false"], "repo_structure shows a tree, glob finds files at any depth"),
    needless("list_dir", "max_depth", &[], ""),
    needless("repo_structure", "show_files", &["true"], "files are always shown"),
    needless("exec", "shell", &["true"], "a shell runs every command"),
    needless("ast_grep_search", "context", &["0"], "read_file shows the lines around a match"),
    needless("lsp_diagnostics", "severity", &["all"], "every severity is shown"),
    needless("lsp_symbols", "scope", &["document", "file"], "for the symbols of a project, path is a folder"),
];

/// An argument that a tool accepts although its schema, which every request contains, does not list it.
pub(super) struct UnlistedArgument {
    tool: &'static str,
    pub name: &'static str,
    /// Other names of the same argument.
    aliases: &'static [&'static str],
    /// The type in JSON Schema.
    pub kind: &'static str,
}

const FOLDER_NAMES: &[&str] = &["workdir", "working_dir", "working_directory"];
const UNLISTED: &[UnlistedArgument] = &[
    UnlistedArgument { tool: "create_dir", name: "parents", aliases: &["recursive"], kind: "boolean" },
    UnlistedArgument { tool: "delete_file", name: "recursive", aliases: &[], kind: "boolean" },
    UnlistedArgument { tool: "list_dir", name: "pattern", aliases: &["glob", "file_pattern"], kind: "string" },
    UnlistedArgument { tool: "exec", name: "cwd", aliases: FOLDER_NAMES, kind: "string" },
    UnlistedArgument { tool: "run_test", name: "cwd", aliases: FOLDER_NAMES, kind: "string" },
];

/// The alias of `grep` that searches for a text instead of a regex, without regard to case by default.
const TEXT_SEARCH: &str = "text_search";
/// The flags of regexes that `grep` accepts. Those except `i` have no effect on a search in single lines.
const FLAG_LETTERS: &str = "gimsu";
/// The same flags as numbers, as in Python's `re`.
const FLAG_BITS: u64 = 2 | 8 | 16 | 32;
const IGNORE_CASE_BIT: u64 = 2;

/// Gives arguments the tool's canonical names. A schema that permits further names, as those of MCP servers do, makes an alias an
/// argument like any other, unless the argument that it means is required.
pub(super) fn rename(spec: &ToolSpec, arguments: &mut Map<String, Value>) {
    let none = Map::new();
    let properties = spec.parameters.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let is_closed = spec.parameters.get("additionalProperties") == Some(&Value::Bool(false));
    let required = spec.parameters.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (alias, name) in aliases() {
        if is_alias(properties, alias, name)
            && (is_closed || required.iter().any(|required| required == name))
            && !arguments.contains_key(name)
            && let Some(value) = arguments.remove(alias)
        {
            arguments.insert(name.to_owned(), value);
        }
    }
    if !is_closed {
        return;
    }
    for (opposite, name) in OPPOSITES {
        if is_alias(properties, opposite, name)
            && !arguments.contains_key(*name)
            && let Some(value) = arguments.get(*opposite).and_then(parse_bool)
        {
            arguments.remove(*opposite);
            arguments.insert((*name).to_owned(), Value::Bool(!value));
        }
    }
    if is_alias(properties, "flags", "ignore_case")
        && let Some(ignores_case) = arguments.get("flags").and_then(ignores_case)
    {
        arguments.remove("flags");
        if ignores_case {
            arguments.entry("ignore_case").or_insert(Value::Bool(true));
        }
    }
}

/// Returns the tool's canonical name for the argument that a model calls `word`.
pub(super) fn argument_name<'a>(spec: &ToolSpec, word: &'a str) -> &'a str {
    let unlisted = UNLISTED.iter().find(|known| known.tool == spec.name && known.aliases.contains(&word));
    if let Some(unlisted) = unlisted {
        return unlisted.name;
    }
    let Some(properties) = spec.parameters.get("properties").and_then(Value::as_object) else { return word };
    let found = aliases().find(|(alias, name)| *alias == word && is_alias(properties, alias, name));
    found.map_or(word, |(_, name)| name)
}

/// Removes the arguments that ask for what the tool does anyway. Adds a fault for one that asks for something else.
pub(super) fn take_needless(spec: &ToolSpec, arguments: &mut Map<String, Value>, faults: &mut Vec<String>) {
    for NeedlessArgument { name, values, why, .. } in NEEDLESS.iter().filter(|known| known.tool == spec.name) {
        let Some(value) = arguments.remove(*name) else { continue };
        let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_lowercase());
        if !value.is_null() && !values.is_empty() && !values.contains(&text.as_str()) {
            faults.push(format!("{name}: only {} is possible: {why}", values[0]));
        }
    }
}

/// Removes and returns the arguments that the schema does not list.
pub(super) fn take_unlisted(
    spec: &ToolSpec,
    arguments: &mut Map<String, Value>,
) -> Vec<(&'static UnlistedArgument, Value)> {
    let of_tool = UNLISTED.iter().filter(|known| known.tool == spec.name);
    let taken = of_tool.filter_map(|known| {
        let name = std::iter::once(&known.name).chain(known.aliases).find(|name| arguments.contains_key(**name))?;
        Some((known, arguments.remove(*name).filter(|value| !value.is_null())?))
    });
    taken.collect()
}

/// Returns true if a call by the name `called` means something else than the same call by the tool's canonical name.
pub(super) fn changes_arguments(spec: &ToolSpec, called: &str) -> bool {
    spec.name == "grep" && called.trim().eq_ignore_ascii_case(TEXT_SEARCH)
}

/// Applies what a call by the name `called` means beyond the schema. `unlisted` are the arguments of [`take_unlisted`].
pub(super) fn apply(
    spec: &ToolSpec,
    called: &str,
    arguments: &mut Map<String, Value>,
    unlisted: Vec<(&UnlistedArgument, Value)>,
) {
    for (UnlistedArgument { tool, name, .. }, value) in unlisted {
        match (*tool, *name, value.as_str().unwrap_or_default().trim()) {
            (_, "cwd", "" | ".") => {}
            ("exec", "cwd", folder) => enter(arguments, folder),
            ("run_test", "cwd", folder) => {
                let path = arguments.get("path").and_then(Value::as_str).map_or_else(
                    || folder.to_owned(),
                    |path| std::path::Path::new(folder).join(path).to_string_lossy().into_owned(),
                );
                arguments.insert("path".to_owned(), Value::String(path));
            }
            _ => {
                arguments.insert((*name).to_owned(), value);
            }
        }
    }
    if changes_arguments(spec, called) {
        if let Some(Value::String(pattern)) = arguments.get_mut("pattern") {
            *pattern = regex::escape(pattern);
        }
        arguments.entry("ignore_case").or_insert(Value::Bool(true));
    }
}

/// Makes a command run in `folder`. The command itself names the folder, so that every rule about commands also sees the folder.
fn enter(arguments: &mut Map<String, Value>, folder: &str) {
    let Some(Value::String(command)) = arguments.get_mut("command") else { return };
    if !command.trim().is_empty() {
        // `cd -` has another meaning.
        let folder = if folder.starts_with('-') { format!("./{folder}") } else { folder.to_owned() };
        *command = format!("cd {} || exit\n{command}", shell_quote(&folder));
    }
}

/// Returns whether the flags of a regex ignore case; `None` for unknown flags.
fn ignores_case(flags: &Value) -> Option<bool> {
    match flags {
        Value::Null => Some(false),
        Value::String(letters) if letters.chars().all(|letter| FLAG_LETTERS.contains(letter)) => {
            Some(letters.contains('i'))
        }
        Value::Number(bits) => {
            bits.as_u64().filter(|bits| bits & !FLAG_BITS == 0).map(|bits| bits & IGNORE_CASE_BIT != 0)
        }
        _ => None,
    }
}

/// Returns the value of a boolean, even if it is written as a string.
pub(super) fn parse_bool(value: &Value) -> Option<bool> {
    match value {
        Value::String(text) => text.trim().to_ascii_lowercase().parse().ok(),
        other => other.as_bool(),
    }
}

/// Returns every alias with daoyou's name.
fn aliases() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALIASES.iter().flat_map(|(name, aliases)| aliases.iter().map(|alias| (*alias, *name)))
}

fn is_alias(properties: &Map<String, Value>, alias: &str, name: &str) -> bool {
    properties.contains_key(name) && !properties.contains_key(alias)
}
