//! The configuration that git gets instead of the repository's own: the settings that only describe the repository, and daoyou's
//! settings. Every other key is left out, because many of them name programs or further files: filters, hooks, pagers, editors,
//! helpers, diff drivers, file system monitors, included configuration.

/// The sections and keys that are copied. `*` stands for any subsection.
const COPIED_KEYS: &[(&str, &str, &[&str])] = &[
    ("user", "", &["name", "email"]),
    ("author", "", &["name", "email"]),
    ("committer", "", &["name", "email"]),
    (
        "core",
        "",
        &[
            "autocrlf", "checkstat", "eol", "filemode", "ignorecase", "logallrefupdates", "precomposeunicode",
            "repositoryformatversion", "safecrlf", "sparsecheckout", "sparsecheckoutcone", "symlinks", "trustctime",
        ],
    ),
    ("i18n", "", &["commitencoding"]),
    ("branch", "*", &["merge", "remote"]),
    ("remote", "*", &["fetch"]),
];
/// Extensions of the repository's format that would read further configuration, or contact a server.
const DROPPED_EXTENSIONS: [&str; 2] = ["partialclone", "worktreeconfig"];
/// daoyou's settings. They come last, so that they take precedence. The hooks folder contains no hook.
const OVERRIDES: &str = "[core]
\thooksPath = /dev/null
\tfsmonitor = false
\tuntrackedCache = keep
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tpager = cat
\teditor = false
\taskPass = false
\tsshCommand = false
\tquotePath = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[commit]
\tgpgSign = false
[log]
\tshowSignature = false
[color]
\tui = false
[submodule]
\trecurse = false
[diff]
\tignoreSubmodules = all
[protocol]
\tallow = never
";
/// The author of commits in a repository without one.
const AUTHOR: (&str, &str) = ("daoyou", "daoyou@localhost");
/// The maximum size of the copied configuration, in bytes. The rest is left out, but daoyou's settings are always included.
const MAX_BYTES: usize = 40_000;

/// Composes the configuration from the output of `git config --list -z`.
pub(super) fn compose(listed: &[u8]) -> String {
    let listed = String::from_utf8_lossy(listed);
    let mut text = String::new();
    let (mut has_name, mut has_email) = (false, false);
    for entry in listed.split('\0').filter(|entry| !entry.is_empty()) {
        let (key, value) = entry.split_once('\n').map_or((entry, None), |(key, value)| (key, Some(value)));
        let Some((section, subsection, name)) = split_key(key).filter(|key| is_copied(*key)) else { continue };
        let before = text.len();
        push(&mut text, section, subsection, name, value);
        if text.len() > MAX_BYTES {
            text.truncate(before);
            continue;
        }
        let is_set = value.is_some_and(|value| !value.trim().is_empty());
        has_name |= section == "user" && name == "name" && is_set;
        has_email |= section == "user" && name == "email" && is_set;
        if section == "remote" {
            // A remote without an address does not count as a remote, so it gets one that leads nowhere.
            push(&mut text, section, subsection, "url", Some("/dev/null"));
        }
    }
    for (is_there, name, value) in [(has_name, "name", AUTHOR.0), (has_email, "email", AUTHOR.1)] {
        if !is_there {
            push(&mut text, "user", "", name, Some(value));
        }
    }
    text + OVERRIDES
}

/// Splits `section.subsection.name`; the subsection may contain dots.
fn split_key(key: &str) -> Option<(&str, &str, &str)> {
    let (section, rest) = key.split_once('.')?;
    let (subsection, name) = rest.rsplit_once('.').unwrap_or(("", rest));
    Some((section, subsection, name))
}

fn is_copied((section, subsection, name): (&str, &str, &str)) -> bool {
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if !is_plain(section) || !is_plain(name) || subsection.contains(char::is_control) {
        return false;
    }
    // Git must see all extensions, so that it refuses a repository with an unknown one.
    if section == "extensions" {
        return subsection.is_empty() && !DROPPED_EXTENSIONS.contains(&name);
    }
    COPIED_KEYS
        .iter()
        .any(|(taken, of, names)| *taken == section && (*of == "*") != subsection.is_empty() && names.contains(&name))
}

fn push(text: &mut String, section: &str, subsection: &str, name: &str, value: Option<&str>) {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let head = match subsection {
        "" => format!("[{section}]\n"),
        _ => format!("[{section} \"{}\"]\n", escape(subsection)),
    };
    // A key without a value means true.
    let value = value.map(|value| format!(" = \"{}\"", escape(value).replace('\n', "\\n"))).unwrap_or_default();
    *text += &format!("{head}\t{name}{value}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_describe_the_repository_are_taken_over() {
        let listed = "core.repositoryformatversion\n1\0core.bare\nfalse\0core.worktree\n/etc\0core.fsmonitor\nx.sh\0\
                      core.hookspath\nh\0core.sshcommand\nx\0core.pager\nx\0include.path\nx\0includeif.a.b.path\nx\0\
                      alias.status\n!x\0filter.lfs.clean\nx\0diff.external\nx\0diff.a.textconv\nx\0gpg.program\nx\0\
                      hook.a.command\nx\0extensions.objectformat\nsha256\0extensions.worktreeconfig\ntrue\0\
                      branch.a.b.remote\nori\"gin\0remote.origin.url\next::sh\0remote.origin.fetch\n+a:b\0\
                      remote.origin.uploadpack\nx\0user.name\nA \\ \"B\"\nC\0core.filemode\0";
        let text = compose(listed.as_bytes());
        let expected = "[core]\n\trepositoryformatversion = \"1\"\n[extensions]\n\tobjectformat = \"sha256\"\n\
                        [branch \"a.b\"]\n\tremote = \"ori\\\"gin\"\n[remote \"origin\"]\n\tfetch = \"+a:b\"\n\
                        [remote \"origin\"]\n\turl = \"/dev/null\"\n[user]\n\tname = \"A \\\\ \\\"B\\\"\\nC\"\n\
                        [core]\n\tfilemode\n[user]\n\temail = \"daoyou@localhost\"\n";
        assert_eq!(text, format!("{expected}{OVERRIDES}"));
    }

    #[test]
    fn a_huge_configuration_is_bounded_and_ends_with_ours() {
        let listed: String = (0..5_000).map(|n| format!("branch.b{n}.merge\nrefs/heads/{n}\0")).collect();
        let text = compose(listed.as_bytes());
        assert!(text.len() < MAX_BYTES + 2_000 && text.ends_with(OVERRIDES), "{}", text.len());
    }
}
