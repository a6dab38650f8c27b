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

/// What a rule permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessPermission {
    Allow,
    /// The owner is asked before each command; only for `execute`.
    Ask,
    #[default]
    Deny,
}

/// A glob pattern, and the permission of the paths or commands that match it.
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
/// The order of the patterns does not matter: `deny` takes precedence over `ask`, and `ask` over `allow`. What no pattern matches is
/// allowed, unless the list has an `allow` pattern (then it is denied), or an `ask` pattern (then the owner is asked). The pattern `*`
/// overrides this default.
#[derive(Debug)]
pub struct AccessRules {
    read: PatternRules,
    write: PatternRules,
    execute: PatternRules,
}

#[derive(Debug)]
struct PatternRules {
    allow: GlobSet,
    ask: GlobSet,
    deny: GlobSet,
    /// The permission for what no pattern matches.
    rest: AccessPermission,
}

impl AccessRules {
    /// Compiles the rules.
    ///
    /// # Errors
    /// Returns the list with an invalid pattern (`read`, `write` or `execute`), and what is wrong with the pattern.
    pub fn new(settings: &AccessSettings) -> Result<Self, (&'static str, String)> {
        let compile =
            |name: &'static str, rules: &[AccessRule], build: fn(&str) -> Result<Vec<Glob>, globset::Error>| {
                let asks = rules.iter().any(|rule| rule.permission == AccessPermission::Ask);
                if asks && name != "execute" {
                    return Err((
                        name,
                        "\"ask\" is for the commands of execute alone; write \"allow\" or \"deny\"".to_owned(),
                    ));
                }
                PatternRules::new(rules, build).map_err(|wrong| (name, wrong))
            };
        Ok(Self {
            read: compile("read", &settings.read, path_globs)?,
            write: compile("write", &settings.write, path_globs)?,
            execute: compile("execute", &settings.execute, |pattern| Ok(vec![Glob::new(&without_quotes(pattern))?]))?,
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

    /// Returns true if no command runs that the rules do not name, unless the owner is asked about it.
    pub fn names_commands(&self) -> bool {
        self.execute.rest != AccessPermission::Allow
    }

    /// Returns true if the owner is asked before this command of `exec`, which [`Self::check_command`] lets pass.
    pub fn asks_about(&self, command: &str) -> bool {
        self.command_permission(command) == Ok(AccessPermission::Ask)
    }

    /// Checks a command of `exec`.
    ///
    /// # Errors
    /// The command is not allowed; the text is for the model. If the agent has command rules, only a single command passes: a
    /// pattern cannot check a second command that follows the first.
    pub fn check_command(&self, command: &str) -> Result<(), &'static str> {
        match self.command_permission(command)? {
            AccessPermission::Deny => {
                Err("this agent's permissions do not allow this command; do it another way, or say that you cannot")
            }
            AccessPermission::Allow | AccessPermission::Ask => Ok(()),
        }
    }

    /// Returns the permission for a command: the strictest one for the ways to write it. An error if it is not a single command whose
    /// words are known before the shell runs it.
    fn command_permission(&self, command: &str) -> Result<AccessPermission, &'static str> {
        if !self.execute.is_limit() {
            return Ok(AccessPermission::Allow);
        }
        let command = command.trim();
        if command.contains(SHELL_OPERATORS) {
            return Err("this agent runs single commands only, without ; & | < > $ ` ( ) { } and line breaks");
        }
        let Some(forms) = written_forms(command) else {
            return Err(
                "this agent runs commands only with closed quotes, and without * ? [ ~ and spaces in the program's name",
            );
        };
        let permissions = forms.iter().map(|form| self.execute.permission(Path::new(form)));
        Ok(permissions.max().unwrap_or(AccessPermission::Deny))
    }
}

impl PatternRules {
    fn new(rules: &[AccessRule], build: fn(&str) -> Result<Vec<Glob>, globset::Error>) -> Result<Self, String> {
        if rules.len() > MAX_RULES {
            return Err(format!("has {} patterns, more than {MAX_RULES}", rules.len()));
        }
        let [mut allow, mut ask, mut deny] = [(); 3].map(|()| GlobSetBuilder::new());
        let mut rest = None;
        for AccessRule { pattern, permission } in rules {
            let pattern = pattern.trim();
            if pattern.is_empty() || pattern.len() > MAX_PATTERN {
                return Err(format!("a pattern has 1 to {MAX_PATTERN} bytes"));
            }
            if CATCH_ALL.contains(&pattern) {
                // If the list has several catch-all patterns, the strictest one holds.
                rest = rest.max(Some(*permission));
                continue;
            }
            let globs = build(pattern).map_err(|error| format!("{pattern:?} is not a pattern: {}", error.kind()))?;
            let set = match permission {
                AccessPermission::Allow => &mut allow,
                AccessPermission::Ask => &mut ask,
                AccessPermission::Deny => &mut deny,
            };
            for glob in globs {
                set.add(glob);
            }
        }
        let set = |builder: GlobSetBuilder| builder.build().map_err(|error| error.to_string());
        let (allow, ask, deny) = (set(allow)?, set(ask)?, set(deny)?);
        let unmatched = match (allow.is_empty(), ask.is_empty()) {
            (false, _) => AccessPermission::Deny,
            // A command can be written in many ways, so one that must not run unasked is easily missed by its pattern.
            (true, false) => AccessPermission::Ask,
            (true, true) => AccessPermission::Allow,
        };
        Ok(Self { allow, ask, deny, rest: rest.unwrap_or(unmatched) })
    }

    /// Returns true if the rules forbid something, or if the owner is asked about something.
    fn is_limit(&self) -> bool {
        self.rest != AccessPermission::Allow || !self.ask.is_empty() || !self.deny.is_empty()
    }

    /// Returns the strictest permission of the globs that match.
    fn permission(&self, path: &Path) -> AccessPermission {
        if self.deny.is_match(path) {
            AccessPermission::Deny
        } else if self.ask.is_match(path) {
            AccessPermission::Ask
        } else if self.allow.is_match(path) {
            AccessPermission::Allow
        } else {
            self.rest
        }
    }

    fn allows(&self, path: &Path) -> bool {
        self.permission(path) != AccessPermission::Deny
    }
}

/// Returns a command as its words, without quotes and with single spaces between them, and the same with the program's name without
/// its folder, both without assignments of variables and `!` before the program. Returns `None` if a quote is not closed, if the
/// shell expands the program's name, or if the name has a space.
fn written_forms(command: &str) -> Option<[String; 3]> {
    let words = shlex::split(command)?;
    let is_prefix = |word: &&String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        *word == "!" || !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let whole = words.join(" ");
    let mut rest = words.iter().skip_while(is_prefix);
    let program = rest.next().map_or("", String::as_str);
    let arguments: Vec<&str> = rest.map(String::as_str).collect();
    // A name with a space would look like a program and its argument.
    if program.contains(|c: char| c.is_whitespace() || matches!(c, '*' | '?' | '[' | '~')) {
        return None;
    }
    let name = program.rsplit('/').next().unwrap_or_default();
    let [of_program, of_name] = [program, name].map(|program| [&[program], &arguments[..]].concat().join(" "));
    Some([whole, of_program, of_name])
}

/// Returns a pattern for commands without its quotes, as [`written_forms`] writes a command.
fn without_quotes(pattern: &str) -> String {
    let words = shlex::split(pattern).filter(|_| pattern.contains(['"', '\'']));
    words.map_or_else(|| pattern.to_owned(), |words| words.join(" "))
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
            ("git  push x", false),
            ("git\tpush x", false),
            ("git \"push\" x", false),
            ("git pus\\h x", false),
            ("GIT_DIR=/x git push x", false),
            ("GIT_DIR=/x git log", false),
            ("! git log", false),
            ("/bin/git log", false),
            ("git log 'x", false),
            ("g?t log", false),
            ("git\\ log", false),
            ("'git log' x", false),
            ("", false),
        ] {
            assert_eq!(git.check_command(command).is_ok(), expected, "{command}");
        }
        let no_cat = rules(&json!({"execute": [
            {"pattern": "cat *", "permission": "deny"}, {"pattern": "rm 'a b'*", "permission": "deny"},
        ]}));
        for command in [
            "\"cat\" x", "c''at x", "\\cat x", "cat\tx", "X=1 cat x", "! cat x", "/bin/cat x", "/bin/c?t x",
            "rm  \"a b\"", "rm a\\ b/c",
        ] {
            assert!(no_cat.check_command(command).is_err(), "{command}");
        }
        for command in ["ls cat", "dog 'cat x'", "./a=b cat x", "rm ab"] {
            assert!(no_cat.check_command(command).is_ok(), "{command}");
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

    #[test]
    fn the_owner_is_asked_about_commands_alone() {
        let rule = |pattern: &str, permission: &str| json!({"pattern": pattern, "permission": permission});
        for (list, command, is_allowed, is_asked) in [
            (json!([rule("git *", "allow"), rule("git push*", "ask")]), " git push x ", true, true),
            (json!([rule("git *", "allow"), rule("git push*", "ask")]), "git log", true, false),
            (json!([rule("git *", "allow"), rule("git push*", "ask")]), "ls", false, false),
            (json!([rule("git push*", "ask")]), "ls", true, true),
            (json!([rule("git push*", "ask")]), "\"git\" push", true, true),
            (json!([rule("git push*", "ask")]), "git -C . push", true, true),
            (json!([rule("git push*", "ask")]), "sh -c 'git push'", true, true),
            (json!([rule("git push*", "ask"), rule("rm *", "deny")]), "ls", true, true),
            (json!([rule("git push*", "ask"), rule("*", "allow")]), "ls", true, false),
            (json!([rule("git push*", "ask"), rule("*", "allow")]), "git push", true, true),
            (json!([rule("git push*", "ask"), rule("*", "allow")]), "/usr/bin/git 'push'", true, true),
            (json!([rule("git push*", "ask"), rule("*", "deny")]), "ls", false, false),
            (json!([rule("git push*", "ask")]), "ls; git push", false, false),
            (json!([rule("git push*", "ask"), rule("git push -f*", "deny")]), "git push -f", false, false),
            (json!([rule("*", "ask"), rule("ls", "allow")]), "rm x", true, true),
            (json!([rule("*", "ask"), rule("ls", "allow")]), "ls", true, false),
            (json!([rule("*", "allow"), rule("*", "ask")]), "ls", true, true),
        ] {
            let rules = rules(&json!({ "execute": list }));
            let found = (rules.check_command(command).is_ok(), rules.asks_about(command) && rules.limits_commands());
            assert_eq!(found, (is_allowed, is_asked), "{list} {command}");
        }
        for list in ["read", "write"] {
            let settings: AccessSettings = serde_json::from_value(json!({ list: [rule("a", "ask")] })).unwrap();
            let fault = AccessRules::new(&settings).unwrap_err();
            assert!(fault.0 == list && fault.1.contains("for the commands of execute alone"), "{fault:?}");
        }
    }
}
