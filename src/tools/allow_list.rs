//! The tools that a loaded skill allows (`allowed-tools`, as Claude Code reads it): the turn's other calls are refused. The limit keeps a model to
//! its task; it is no fence around programs that start others, such as `git -c alias.x=!sh`, which is what the sandbox is for.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names::{EXEC, FIND_TOOLS, canonical_name};
use crate::text::truncate;

/// Tools that every skill allows: they do nothing but prepare other calls, whose own calls are checked, or ask the user.
const ALWAYS_ALLOWED: &[&str] = &[FIND_TOOLS, "load_skill", "find_skills", "ask_user", "parallel"];
/// The tool for the background commands that `exec` starts.
const PROCESS: &str = "process";
/// Tools that start turns of their own, which no list would limit.
const STARTS_TURNS: &[&str] = &["spawn", "cron"];
/// What separates, combines, redirects, substitutes or expands in a shell.
const SHELL_OPERATORS: &[char] = &[';', '&', '|', '<', '>', '`', '$', '\n', '\r'];
/// The most characters of the list in an error.
const MAX_SHOWN: usize = 300;

/// What one skill allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAllowList {
    /// The name of the skill.
    pub skill: String,
    /// As the skill writes them: `NAME` or `NAME(PATTERN)`, names of other systems included.
    pub entries: Vec<String>,
}

impl ToolAllowList {
    /// Returns why a call of the tool with this name and these aliases is refused, in words for the model, or `None` if it is allowed.
    pub(super) fn refusal(&self, name: &str, aliases: &[&str], arguments: &Value) -> Option<String> {
        if ALWAYS_ALLOWED.contains(&name) {
            return None;
        }
        if STARTS_TURNS.contains(&name) {
            return Some(format!(
                "{name} is refused: the skill {:?}, which this turn has loaded, limits the tools of this turn, and those of another turn would be \
                 unlimited",
                self.skill
            ));
        }
        let rules: Vec<AllowRule<'_>> = self.entries.iter().map(|entry| AllowRule::parse(entry)).collect();
        if rules.iter().any(|rule| rule.allows(name, aliases, arguments)) {
            return None;
        }
        let list = truncate(&self.entries.join(", "), MAX_SHOWN);
        let has_commands = name == EXEC && rules.iter().any(|rule| rule.names(name, aliases));
        let hint = if has_commands {
            "; a command has to be one plain command without ; & | < > ` $ or line breaks"
        } else {
            ""
        };
        Some(format!(
            "{name} is refused: the skill {:?}, which this turn has loaded, allows only {list}{hint}. Say so if the task needs more.",
            self.skill
        ))
    }
}

/// Returns why an entry allows nothing, or `None` if it can be used.
pub fn allow_rule_fault(entry: &str) -> Option<String> {
    let rule = AllowRule::parse(entry);
    let pattern = rule.pattern.filter(|pattern| *pattern != "*")?;
    let is_command = canonical_name(rule.name).is_some_and(|tool| tool == EXEC);
    (!is_command).then(|| format!("allowed-tools: {entry} allows nothing: a pattern ({pattern}) is known for commands alone, as in Bash(git:*)"))
}

/// An entry of a list.
struct AllowRule<'a> {
    name: &'a str,
    pattern: Option<&'a str>,
}

impl<'a> AllowRule<'a> {
    fn parse(entry: &'a str) -> Self {
        match entry.split_once('(') {
            Some((name, pattern)) => {
                Self { name: name.trim(), pattern: Some(pattern.strip_suffix(')').unwrap_or(pattern).trim()) }
            }
            None => Self { name: entry.trim(), pattern: None },
        }
    }

    fn allows(&self, tool: &str, aliases: &[&str], arguments: &Value) -> bool {
        // Whoever may start commands may wait for them and end them.
        if tool == PROCESS && canonical_name(self.name) == Some(EXEC) {
            return true;
        }
        self.names(tool, aliases)
            && match self.pattern {
                None | Some("*") => true,
                Some(pattern) => tool == EXEC && fits(pattern, arguments["command"].as_str().unwrap_or_default()),
            }
    }

    /// Returns true if the entry names the tool, in the spelling of any known system.
    fn names(&self, tool: &str, aliases: &[&str]) -> bool {
        let wanted = plain_name(self.name.strip_prefix("mcp__").unwrap_or(self.name));
        self.name == "*" || plain_name(tool) == wanted || aliases.iter().any(|alias| plain_name(alias) == wanted)
    }
}

/// `WebFetch`, `web_fetch` and `web-fetch` are the same.
fn plain_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns true if a command fits a pattern: `git:*` and `git *` are all commands that begin with the word `git`, others are one command.
fn fits(pattern: &str, command: &str) -> bool {
    let command = command.trim();
    if command.contains(SHELL_OPERATORS) {
        return false;
    }
    match pattern.strip_suffix(":*").or_else(|| pattern.strip_suffix(" *")) {
        Some(prefix) => {
            let rest = command.strip_prefix(prefix.trim());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        }
        None => command == pattern,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tools::testing::{ToolWorld, context};
    use crate::tools::{ToolContext, ToolsConfig};

    #[tokio::test]
    async fn a_loaded_skill_allows_its_tools_alone() {
        let world = ToolWorld::new(&ToolsConfig::default());
        std::fs::write(world.path("a.txt"), "one").unwrap();
        let read = json!({"path": "a.txt"});
        let exec = |command: &str| json!({ "command": command });
        let plan = json!({"calls": [{"tool": "list_dir", "arguments": {}}]});
        for (entries, tool, arguments, is_allowed) in [
            (&["Read"][..], "read_file", read.clone(), true),
            (&["Read"], "cat", read.clone(), true),
            (&["Read"], "list_dir", json!({}), false),
            (&["Read"], "parallel", plan, false),
            (&["Read"], "find_tools", json!({"query": "glob"}), true),
            (&["Write", "LS"], "list_dir", json!({}), true),
            (&["*"], "list_dir", json!({}), true),
            (&["Read(docs/**)"], "read_file", read.clone(), false),
            (&["Read(*)"], "read_file", read, true),
            (&["Bash(echo:*)"], "exec", exec("echo one"), true),
            (&["Bash(echo *)"], "exec", exec("echo"), true),
            (&["Bash(echo:*)"], "exec", exec("echoes"), false),
            (&["Bash(echo:*)"], "exec", exec("echo one; id"), false),
            (&["Bash(echo:*)"], "exec", exec("echo $(id)"), false),
            (&["Bash(echo:*)"], "exec", exec("echo ${x@P}"), false),
            (&["Bash(echo:*)"], "exec", exec("echo one\nid"), false),
            (&["Bash(echo one)"], "exec", exec("echo one"), true),
            (&["Bash(echo one)"], "exec", exec("echo two"), false),
            (&["Bash(git:*)"], "process", json!({"action": "list"}), true),
            (&["WebFetch"], "web_fetch", json!({"url": "http://127.0.0.1:1/"}), true),
        ] {
            let list =
                ToolAllowList { skill: "tea".to_owned(), entries: entries.iter().map(|e| (*e).to_owned()).collect() };
            let context = ToolContext { allow_lists: Arc::new([list]), ..context() };
            let told = world.run(tool, &arguments, &context).await.result.render();
            assert_eq!(
                !told.contains("\"tea\", which this turn has loaded, allows only"),
                is_allowed,
                "{entries:?} {tool}: {told}"
            );
        }
    }

    #[test]
    fn patterns_of_other_tools_are_named() {
        for (entry, is_usable) in
            [("Read", true), ("Read(*)", true), ("Bash(git:*)", true), ("shell(ls)", true), ("Read(./x/**)", false)]
        {
            assert_eq!(allow_rule_fault(entry).is_none(), is_usable, "{entry}");
        }
    }
}
