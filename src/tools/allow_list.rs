//! The tools that a loaded skill allows (`allowed-tools`, with the semantics of Claude Code). The turn's other calls are refused.
//!
//! The limit keeps a model to its task. It does not contain programs that start other programs, such as `git -c alias.x=!sh`; the
//! sandbox does that.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names::{EXEC, FIND_TOOLS, PROCESS, canonical_name};
use crate::text::truncate;

/// Tools that every skill allows. They only prepare other calls, which are checked themselves, or ask the user.
const ALWAYS_ALLOWED: &[&str] = &[FIND_TOOLS, "load_skill", "find_skills", "ask_user", "parallel"];
/// Tools that start other turns, to which no list would apply.
const STARTS_TURNS: &[&str] = &["spawn", "cron"];
/// The characters by which a shell separates, combines, redirects, substitutes or expands.
const SHELL_OPERATORS: &[char] = &[';', '&', '|', '<', '>', '`', '$', '\n', '\r'];
/// The maximum length of the list in an error, in characters.
const MAX_SHOWN: usize = 300;

/// The tools that one skill allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAllowList {
    /// The name of the skill.
    pub skill: String,
    /// The entries as the skill writes them: `NAME` or `NAME(PATTERN)`. Names of other systems are possible.
    pub entries: Vec<String>,
}

impl ToolAllowList {
    /// Returns why a call of the tool with this name and these aliases is refused, or `None` if it is allowed. The text is for
    /// the model.
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

/// Returns the fault of an entry, or `None` if it is usable.
pub fn allow_rule_fault(entry: &str) -> Option<String> {
    let rule = AllowRule::parse(entry);
    let pattern = rule.pattern.filter(|pattern| *pattern != "*")?;
    let is_command = canonical_name(rule.name).is_some_and(|tool| tool == EXEC);
    let fault = if !entry.trim_end().ends_with(')') {
        "has no closing parenthesis, as Bash(git:*) has".to_owned()
    } else if !is_command {
        format!("allows nothing: a pattern ({pattern}) is known for commands alone, as in Bash(git:*)")
    } else if pattern.strip_suffix(":*").unwrap_or(pattern).trim().is_empty() {
        "allows nothing: no command is in the parentheses, as in Bash(git:*)".to_owned()
    } else {
        return None;
    };
    Some(format!("allowed-tools: {entry} {fault}"))
}

/// A parsed entry of an allow-list.
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
        // Permission to start commands includes permission to wait for them and to end them.
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

/// Normalizes a name: `WebFetch`, `web_fetch` and `web-fetch` become equal.
fn plain_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns true if a command matches a pattern. `git:*` and `git *` match all commands whose first word is `git`; any other
/// pattern matches one command.
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
    use crate::tools::testing::{ToolFixture, context};
    use crate::tools::{ToolContext, ToolsConfig};

    #[tokio::test]
    async fn a_loaded_skill_allows_its_tools_alone() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        std::fs::write(fixture.path("a.txt"), "one").unwrap();
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
            let rendered = fixture.run(tool, &arguments, &context).await.result.render();
            assert_eq!(
                !rendered.contains("\"tea\", which this turn has loaded, allows only"),
                is_allowed,
                "{entries:?} {tool}: {rendered}"
            );
        }
    }

    #[test]
    fn faulty_patterns_are_named() {
        for (entry, expected) in [
            ("Read", None),
            ("Read(*)", None),
            ("Bash(git:*)", None),
            ("Bash(*)", None),
            ("shell(ls)", None),
            ("Read(./x/**)", Some("for commands alone")),
            ("Bash(", Some("no closing parenthesis")),
            ("Bash(git:* Read", Some("no closing parenthesis")),
            ("Bash()", Some("no command")),
            ("Bash(:*)", Some("no command")),
        ] {
            let fault = allow_rule_fault(entry);
            assert_eq!(fault.is_some(), expected.is_some(), "{entry}: {fault:?}");
            assert!(fault.unwrap_or_default().contains(expected.unwrap_or_default()), "{entry}");
        }
    }
}
