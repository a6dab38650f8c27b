//! What an agent may read, write and execute: patterns that only narrow what its turns may do anyway.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum number of patterns in one list.
const MAX_RULES: usize = 200;
/// The maximum length of a pattern, in bytes.
const MAX_PATTERN: usize = 500;
/// The patterns that match everything, and so set the default permission for what no other pattern matches.
const CATCH_ALL: [&str; 3] = ["*", "**", "**/*"];
/// The characters by which a shell joins commands, substitutes, or redirects.
const SHELL_OPERATORS: [char; 12] = [';', '&', '|', '<', '>', '$', '`', '(', ')', '{', '}', '\n'];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessPermission {
    Allow,
    #[default]
    Deny,
}

/// A pattern, and what holds for what it fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessRule {
    pub pattern: String,
    pub permission: AccessPermission,
}

/// The rules of an agent, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSettings {
    /// Paths of files that file tools read.
    pub read: Vec<AccessRule>,
    /// Paths of files that file tools write or delete.
    pub write: Vec<AccessRule>,
    /// Commands of `exec`.
    pub execute: Vec<AccessRule>,
}

/// The kind of access to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    Read,
    /// A change; the tool also reads the file.
    Write,
}

/// The compiled access rules of an agent.
///
/// The order of the patterns does not matter: `deny` takes precedence over `allow`. What no pattern matches is allowed, unless
/// the list has an `allow` pattern. The pattern `*` overrides this default.
#[derive(Debug)]
pub struct AccessRules {
    read: PatternRules,
    write: PatternRules,
    execute: PatternRules,
}

#[derive(Debug)]
struct PatternRules {
    allow: GlobSet,
    deny: GlobSet,
    /// The permission for what no pattern matches.
    is_rest_allowed: bool,
}

impl AccessRules {
    /// Compiles the rules.
    ///
    /// # Errors
    /// Returns the list with an invalid pattern (`read`, `write` or `execute`), and what is wrong with the pattern.
    pub fn new(settings: &AccessSettings) -> Result<Self, (&'static str, String)> {
        let compile =
            |name: &'static str, rules: &[AccessRule], build: fn(&str) -> Result<Vec<Glob>, globset::Error>| {
                PatternRules::new(rules, build).map_err(|wrong| (name, wrong))
            };
        Ok(Self {
            read: compile("read", &settings.read, path_globs)?,
            write: compile("write", &settings.write, path_globs)?,
            execute: compile("execute", &settings.execute, |pattern| Ok(vec![Glob::new(pattern)?]))?,
        })
    }

    /// Returns true if a file may be used. `path` is relative to the workspace, or absolute if the file is elsewhere.
    pub fn allows_path(&self, path: &Path, kind: AccessKind) -> bool {
        self.read.allows(path) && (kind == AccessKind::Read || self.write.allows(path))
    }

    /// Returns true if the rules forbid some paths. Commands cannot be held to path rules.
    pub fn limits_paths(&self) -> bool {
        self.read.is_limit() || self.write.is_limit()
    }

    /// Returns true if the rules forbid some commands.
    pub fn limits_commands(&self) -> bool {
        self.execute.is_limit()
    }

    /// Checks a command of `exec`.
    ///
    /// # Errors
    /// The command is not allowed; the text is for the model. If the agent has command rules, only a single command passes: a
    /// pattern cannot check a second command that follows the first.
    pub fn check_command(&self, command: &str) -> Result<(), String> {
        if !self.execute.is_limit() {
            return Ok(());
        }
        let command = command.trim();
        if command.contains(SHELL_OPERATORS) {
            return Err(
                "this agent runs single commands only, without ; & | < > $ ` ( ) { } and line breaks".to_owned()
            );
        }
        if self.execute.allows(Path::new(command)) {
            return Ok(());
        }
        Err("this agent's permissions do not allow this command; do it another way, or say that you cannot".to_owned())
    }
}

impl PatternRules {
    fn new(rules: &[AccessRule], build: fn(&str) -> Result<Vec<Glob>, globset::Error>) -> Result<Self, String> {
        if rules.len() > MAX_RULES {
            return Err(format!("has {} patterns, more than {MAX_RULES}", rules.len()));
        }
        let (mut allow, mut deny) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let (mut has_allow, mut rest) = (false, None);
        for AccessRule { pattern, permission } in rules {
            let pattern = pattern.trim();
            if pattern.is_empty() || pattern.len() > MAX_PATTERN {
                return Err(format!("a pattern has 1 to {MAX_PATTERN} bytes"));
            }
            let is_allowed = *permission == AccessPermission::Allow;
            if CATCH_ALL.contains(&pattern) {
                // If the list has several catch-all patterns, the strictest one holds.
                rest = Some(rest.unwrap_or(true) && is_allowed);
                continue;
            }
            let globs = build(pattern).map_err(|error| format!("{pattern:?} is no pattern: {}", error.kind()))?;
            has_allow |= is_allowed;
            let set = if is_allowed { &mut allow } else { &mut deny };
            for glob in globs {
                set.add(glob);
            }
        }
        let set = |builder: GlobSetBuilder| builder.build().map_err(|error| error.to_string());
        let (allow, deny) = (set(allow)?, set(deny)?);
        Ok(Self { allow, deny, is_rest_allowed: rest.unwrap_or(!has_allow) })
    }

    /// Returns true if the rules forbid something.
    fn is_limit(&self) -> bool {
        !self.is_rest_allowed || !self.deny.is_empty()
    }

    fn allows(&self, path: &Path) -> bool {
        !self.deny.is_match(path) && (self.is_rest_allowed || self.allow.is_match(path))
    }
}

/// Returns the globs of a path pattern. A pattern without a slash matches a name at any depth, and a folder's pattern matches
/// everything in the folder.
fn path_globs(pattern: &str) -> Result<Vec<Glob>, globset::Error> {
    let glob = |pattern: &str| GlobBuilder::new(pattern).literal_separator(true).build();
    let plain = pattern.strip_prefix("./").unwrap_or(pattern).trim_end_matches('/');
    let plain = if plain.contains('/') { plain.to_owned() } else { format!("**/{plain}") };
    Ok(vec![glob(&plain)?, glob(&format!("{plain}/**"))?])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(settings: &Value) -> AccessRules {
        let settings: AccessSettings = serde_json::from_value(settings.clone()).unwrap();
        AccessRules::new(&settings).unwrap()
    }

    #[test]
    fn paths_are_allowed_by_patterns_in_any_order() {
        let allow = |pattern: &str| json!({"pattern": pattern, "permission": "allow"});
        let deny = |pattern: &str| json!({"pattern": pattern, "permission": "deny"});
        for (list, path, expected) in [
            (json!([]), "a/b", true),
            (json!([deny("*.env")]), "a/.env", false),
            (json!([deny("*.env")]), "a/env", true),
            (json!([deny("*.env")]), "a/x.env", false),
            (json!([deny("*.env"), allow("*")]), "x.env", false),
            (json!([allow("*"), deny("*.env")]), "x.env", false),
            (json!([allow("docs/**")]), "docs/a/b.md", true),
            (json!([allow("docs")]), "docs/a/b.md", true),
            (json!([allow("docs/")]), "src/a.rs", false),
            (json!([deny("*"), allow("src/**")]), "src/a.rs", true),
            (json!([deny("*"), allow("src/**")]), "Cargo.toml", false),
            (json!([allow("src/*.rs")]), "src/a/b.rs", false),
            (json!([allow("src"), deny("secret")]), "src/a/secret/x", false),
            (json!([allow("./src")]), "src/x", true),
            (json!([allow("src")]), "/etc/passwd", false),
        ] {
            let read = rules(&json!({ "read": list }));
            assert_eq!(read.allows_path(Path::new(path), AccessKind::Read), expected, "{list} {path}");
            assert_eq!(
                read.allows_path(Path::new(path), AccessKind::Write),
                expected,
                "what cannot be read is not changed"
            );
            let write = rules(&json!({ "write": list }));
            assert!(write.allows_path(Path::new(path), AccessKind::Read));
            assert_eq!(write.allows_path(Path::new(path), AccessKind::Write), expected, "{list} {path}");
        }
    }

    #[test]
    fn commands_are_allowed_by_patterns_and_never_joined() {
        let git = rules(&json!({"execute": [
            {"pattern": "git *", "permission": "allow"}, {"pattern": "git push*", "permission": "deny"},
        ]}));
        for (command, expected) in [
            ("git status", true),
            (" git log a/b ", true),
            ("git push origin", false),
            ("ls", false),
            ("git status; rm -rf x", false),
            ("git status\nrm x", false),
            ("git $(rm x)", false),
        ] {
            assert_eq!(git.check_command(command).is_ok(), expected, "{command}");
        }
        assert!(rules(&json!({})).check_command("a; b").is_ok());
        for (settings, limits) in [
            (json!({"read": [{"pattern": "*", "permission": "allow"}]}), [false, false]),
            (json!({"read": [{"pattern": "*.env", "permission": "deny"}]}), [true, false]),
            (json!({"write": [{"pattern": "docs", "permission": "allow"}]}), [true, false]),
            (json!({"execute": [{"pattern": "*", "permission": "deny"}]}), [false, true]),
            (json!({"execute": [{"pattern": "*", "permission": "allow"}]}), [false, false]),
        ] {
            let rules = rules(&settings);
            assert_eq!([rules.limits_paths(), rules.limits_commands()], limits, "{settings}");
        }
        for pattern in ["", "a[", &"x".repeat(501)] {
            let settings = AccessSettings {
                read: vec![AccessRule { pattern: pattern.to_owned(), ..AccessRule::default() }],
                ..AccessSettings::default()
            };
            assert!(AccessRules::new(&settings).is_err_and(|(list, _)| list == "read"), "{pattern:?}");
        }
    }
}
