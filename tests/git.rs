//! The git tools, through the real program and the real git, in repositories of a workspace.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::invariants::open;
use crate::support::requirements::{bubblewrap_is_missing, is_missing};
use crate::support::{Gateway, Model, Setup, write_file};

/// A gateway whose model calls the tools that a message names.
struct Harness {
    model: Model,
    gateway: Gateway,
}

impl Harness {
    /// Starts a harness; if there is no git or no sandbox, skips the story and returns `None`.
    async fn start() -> Option<Self> {
        if bubblewrap_is_missing() || is_missing("git", "git") {
            return None;
        }
        let model = Model::start().await;
        model.call_named_tools();
        let gateway = Gateway::start(Setup::scripted(&model)).await;
        Some(Self { model, gateway })
    }

    /// Runs a shell script that must succeed.
    async fn exec(&self, script: &str) -> String {
        let result = self.gateway.call_tool("exec", &json!({ "command": format!("set -e\n{script}") })).await;
        assert!(!result.starts_with("Error: "), "{script}: {result}");
        result
    }

    async fn check(&self, tool: &str, arguments: Value, expected: &[&str]) -> String {
        let result = self.gateway.call_tool(tool, &arguments).await;
        for words in expected {
            assert!(result.contains(words), "{tool} {arguments}, expected {words:?}: {result}");
        }
        result
    }
}

/// Adds the repository to the arguments of a tool.
fn in_repository(path: &str, mut arguments: Value) -> Value {
    arguments["repo_path"] = json!(path);
    arguments
}

const INIT: &str = "git init -q -b main . && git config user.name Ann && git config user.email ann@example.org\n";

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_shown_and_committed() {
    let Some(harness) = Harness::start().await else { return };
    harness.check("git_status", json!({}), &["Error: .: not in a git repository", "git init"]).await;
    harness.exec(&format!("mkdir proj; cd proj; {INIT} printf 'one\\n' > a.txt; printf 'x\\n' > -b.txt")).await;
    harness.check("git_status", json!({}), &["not in a git repository; repo_path may be proj"]).await;
    let proj = |arguments: Value| in_repository("proj", arguments);
    harness.check("git_status", proj(json!({})), &["On branch main, no commits yet\n?? -b.txt\n?? a.txt"]).await;
    harness.check("git_log", proj(json!({})), &["No commits yet."]).await;
    let new = ["Error: nothing to commit but new files; name them in files: -b.txt, a.txt"];
    harness.check("git_commit", proj(json!({"message": "first"})), &new).await;

    // A path may be relative to the repository or to the workspace.
    let first = json!({"message": "-first: it's $HOME\n\nbody", "files": ["a.txt", "proj/-b.txt"]});
    let result =
        harness.check("git_commit", proj(first), &["Committed on main: ", " -first: it's $HOME\n2 files"]).await;
    assert!(result.ends_with("\nA -b.txt\nA a.txt"), "{result}");
    harness.check("git_status", proj(json!({})), &["On branch main\nNothing changed."]).await;
    let log = harness.check("git_log", json!({"repo_path": "proj/"}), &[" Ann: -first: it's $HOME"]).await;
    assert_eq!(log.lines().count(), 1, "{log}");
    harness.check("git_commit", proj(json!({"message": "x"})), &["Error: nothing to commit: no file is changed"]).await;
    let unchanged = json!({"message": "x", "files": ["a.txt"]});
    harness.check("git_commit", proj(unchanged), &["Error: a.txt: nothing to commit"]).await;
    harness.check("git_commit", proj(json!({"message": " "})), &["Error: message is empty"]).await;

    // Of several changes, only those that are staged or named are committed.
    harness
        .exec("cd proj; echo two >> a.txt; echo y >> -b.txt; rm -f none; git add -- -b.txt; mkdir d; echo 1 > d/n")
        .await;
    harness.check("git_status", proj(json!({})), &["M  -b.txt", " M a.txt", "?? d/"]).await;
    let diff =
        harness.check("git_diff", proj(json!({"path": "a.txt"})), &["diff --git a/a.txt b/a.txt", "\n+two"]).await;
    assert!(diff.starts_with("diff --git") && !diff.contains("-b.txt"), "{diff}");
    harness.check("git_diff", proj(json!({"staged": true})), &["a/-b.txt", "\n+y"]).await;
    harness.check("git_diff", json!({"path": "proj/-b.txt"}), &["No changes that are not staged in -b.txt."]).await;
    harness.check("git_commit", proj(json!({"message": "staged"})), &["1 file changed\nM -b.txt"]).await;
    harness.exec("cd proj; git rm -q -- -b.txt; echo z > c.txt; git add c.txt").await;
    let named = proj(json!({"message": "named", "files": ["d", "-b.txt"]}));
    harness.check("git_commit", named, &["2 files changed\nD -b.txt\nA d/n"]).await;
    harness.check("git_status", proj(json!({})), &["On branch main\n M a.txt\nA  c.txt"]).await;
    let all = proj(json!({"message": "all", "all_files": true}));
    harness.check("git_commit", all, &["2 files changed\nM a.txt\nA c.txt"]).await;
    let two = harness.check("git_log", json!({"path": "proj/a.txt", "max_count": 1}), &[" Ann: all"]).await;
    assert_eq!(two.lines().count(), 1, "{two}");

    // A long diff begins with its statistics.
    harness.exec("cd proj; seq 500 > a.txt").await;
    let long = harness.gateway.call_tool("git_diff", &proj(json!({}))).await;
    assert!(long.starts_with(" a.txt | ") && long.contains("1 file changed, 500 insertions(+)"), "{long}");
    assert_eq!(harness.model.refused(), Vec::<String>::new());
}

/// Git and the file system take any bytes as a name. A result shows the bytes that are not UTF-8 as U+FFFD.
#[tokio::test(flavor = "multi_thread")]
async fn files_whose_names_are_not_utf8_are_committed() {
    let Some(harness) = Harness::start().await else { return };
    let files = r#"one=$(printf 'caf\351.txt'); two='a\nb\0351'; echo 1 > "$one"; echo 2 > "$two""#;
    harness.exec(&format!("mkdir odd; cd odd; {INIT} {files}")).await;
    let commit = |message: &str| in_repository("odd", json!({"message": message, "all_files": true}));
    let added = ["2 files changed\n", "A caf\u{fffd}.txt", r"A a\nb\0351"];
    harness.check("git_commit", commit("new"), &added).await;
    harness.check("git_status", in_repository("odd", json!({})), &["Nothing changed."]).await;
    harness.exec(r#"cd odd; rm "$(printf 'caf\351.txt')""#).await;
    harness.check("git_commit", commit("gone"), &["1 file changed\nD caf\u{fffd}.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_about_a_broken_configuration_does_not_repeat_it() {
    let Some(harness) = Harness::start().await else { return };
    let remote = "git remote add origin https://ann:canary@example.org/a.git";
    harness.exec(&format!("mkdir proj; cd proj; {INIT} {remote}; echo '[broken' >> .git/config")).await;
    let result =
        harness.check("git_status", in_repository("proj", json!({})), &["Error: git: ", "bad config line"]).await;
    assert!(!result.contains("canary") && !result.contains("ann@example.org"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_of_files_of_others_taints_the_conversation() {
    let Some(harness) = Harness::start().await else { return };
    let write = |name: &str, text: &str| write_file(harness.gateway.workspace().join(name), text);
    for name in ["mail/a b.txt", "notes.txt"] {
        write(name, "one\n");
    }
    // One command makes both repositories: it names foreign folders, so a second one would need approval.
    harness
        .exec(&format!(
            "{INIT} git add notes.txt mail; git commit -q -m first\n\
             mkdir -p scratch/theirs; cd scratch/theirs; {INIT} echo 1 > f; git add f; git commit -qm x"
        ))
        .await;
    for name in ["mail/a b.txt", "notes.txt"] {
        write(name, "two\n");
    }
    let taint = |chat: &'static str| {
        let sql = format!("SELECT source FROM session_taints WHERE session = 'webhook:in:{chat}'");
        let store = open(&harness.gateway.database()).unwrap();
        let mut statement = store.prepare(&sql).unwrap();
        let sources = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        sources.map(Result::unwrap).collect::<Vec<_>>()
    };
    for (chat, arguments, expected) in [
        ("clean", json!({"path": "notes.txt"}), &[][..]),
        ("all", json!({}), &["file:mail/a b.txt"]),
        ("named", json!({"path": "mail"}), &["file:mail/a b.txt"]),
    ] {
        let reply = harness.gateway.ask("in", chat, &json!([["git_diff", arguments]]).to_string()).await;
        assert!(reply.contains("diff --git"), "{arguments}: {reply}");
        assert_eq!(taint(chat), expected, "{arguments}: {reply}");
    }
    // Others may have written everything in a repository of their folder.
    for (chat, tool) in [("log", "git_log"), ("status", "git_status")] {
        let call = json!([[tool, {"repo_path": "scratch/theirs"}]]);
        let reply = harness.gateway.ask("in", chat, &call.to_string()).await;
        assert_eq!(taint(chat), ["file:scratch/theirs"], "{tool}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_others_are_committed_only_by_name() {
    let Some(harness) = Harness::start().await else { return };
    harness.exec(INIT).await;
    for name in ["mail/ab/x.txt", "scratch/y.txt", "own.txt"] {
        write_file(harness.gateway.workspace().join(name), "x\n");
    }
    let all = json!({"message": "all", "all_files": true});
    let left_out =
        "because it is memory or others may have written it: mail/, scratch/; to commit it, name it in files]";
    let result = harness.check("git_commit", all, &["\nA own.txt", left_out]).await;
    assert!(!result.contains("x.txt") && !result.contains("y.txt"), "{result}");
    let tracked = harness.exec("git ls-files").await;
    assert!(tracked.contains("own.txt") && !tracked.contains("x.txt") && !tracked.contains("y.txt"), "{tracked}");
    let named = json!({"message": "named", "files": ["mail"]});
    harness.check("git_commit", named, &["1 file changed\nA mail/ab/x.txt"]).await;
}

/// Memory files that are in the index or the history are not shown to other senders, nor in a diff without their path.
#[tokio::test(flavor = "multi_thread")]
async fn tracked_memory_is_shown_to_the_owner_alone() {
    let Some(harness) = Harness::start().await else { return };
    let gateway = &harness.gateway;
    let calls = async |trust: &str, chat: &str, calls: Value| {
        let message = json!({
            "channel": "webhook:in", "external_id": chat, "chat_id": chat, "sender": trust, "trust": trust,
            "content": calls.to_string(), "attachments": [], "received_at": jiff::Timestamp::now(),
        });
        let id = gateway.deliver(&message).await;
        let reply = gateway.wait_done("in", &id).await.text("reply").to_owned();
        serde_json::from_str::<Vec<String>>(&reply).unwrap_or_else(|_| panic!("{trust}: {reply}"))
    };
    let write = |pin: &str| {
        write_file(gateway.workspace().join("memory/pin.txt"), &format!("the PIN is {pin}\n"));
        write_file(gateway.workspace().join("own.txt"), &format!("{pin} own\n"));
    };
    write("4711");
    let commit = format!("{INIT} git add own.txt memory/pin.txt && git commit -q -m one && echo committed");
    let results = calls("owner", "setup", json!([["exec", {"command": commit}]])).await;
    assert!(results[0].contains("committed"), "{results:?}");
    // Longer than before: git compares only whole seconds and sizes of a file that was hidden when the index was written.
    write("47120");
    let asked = json!([
        ["git_diff", {}], ["git_status", {}], ["git_diff", {"path": "memory/pin.txt"}],
        ["git_commit", {"message": "x", "all_files": true}],
    ]);
    for (trust, is_shown) in [("known", false), ("owner", true)] {
        write_file(gateway.workspace().join("own.txt"), &format!("{trust} own\n"));
        let results = calls(trust, trust, asked.clone()).await;
        assert!(results[0].contains(&format!("+{trust} own")) && !results[0].contains("PIN"), "{trust}: {results:?}");
        assert_eq!(results[1].contains("pin.txt"), is_shown, "{trust}: {results:?}");
        assert_eq!(results[2].contains("47120"), is_shown, "{trust}: {results:?}");
        assert!(
            results[3].contains("own.txt") && results[3].contains("it: memory/; to commit it"),
            "{trust}: {results:?}"
        );
        assert!(!results[3].contains("pin.txt"), "{trust}: {results:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_and_states_of_a_repository_are_reported() {
    let Some(harness) = Harness::start().await else { return };
    harness
        .exec(&format!(
            "mkdir up; cd up; {INIT} echo 1 > f; git add f; git commit -q -m one; cd ..; git clone -q up down\n\
             cd up; echo 2 > f; git commit -qam two; cd ../down; git fetch -q; echo 3 > g; git add g\n\
             git -c user.name=B -c user.email=b@x commit -qm three"
        ))
        .await;
    let down = json!({"repo_path": "down"});
    harness.check("git_status", down.clone(), &["On branch main, ahead 1, behind 1 of origin/main"]).await;
    // A repository without an author gets one.
    harness.exec("cd down; echo 4 > g").await;
    harness.check("git_commit", json!({"repo_path": "down", "message": "four"}), &["M g"]).await;
    assert_eq!(harness.exec("cd down; git log -1 --format='%an <%ae>'").await, "daoyou <daoyou@localhost>\n");
    // Covers a linked work tree and a detached HEAD.
    harness.exec("cd up; git worktree add -q --detach ../tree HEAD; cd ../tree; echo 5 > f").await;
    harness.check("git_commit", json!({"repo_path": "tree", "message": "five"}), &["Committed: ", "M f"]).await;
    harness.check("git_status", json!({"repo_path": "tree"}), &["HEAD detached at "]).await;
    assert_eq!(harness.exec("cd tree; git log -1 --format=%s; git log -1 --format=%s main").await, "five\ntwo\n");
    harness.check("git_status", json!({"repo_path": "up"}), &["On branch main\nNothing changed."]).await;
    // A merge with a conflict.
    harness
        .exec("cd up; git checkout -q -b other HEAD^; echo 6 > f; git commit -qam six; git merge main || true")
        .await;
    harness.check("git_status", json!({"repo_path": "up"}), &["UU f"]).await;
    harness.check("git_commit", json!({"repo_path": "up", "message": "x"}), &["Error: f: has a conflict"]).await;
    harness.exec("cd up; echo 7 > f; git add f").await;
    harness.check("git_commit", json!({"repo_path": "up", "message": "merged"}), &["Committed on other: "]).await;
    assert_eq!(harness.exec("cd up; git log -1 --format='%p' | wc -w").await.trim(), "2");
    // Files of a filter are not committed if the filter is missing.
    harness.exec("cd up; echo '*.bin filter=lfs' > .gitattributes; echo x > big.bin").await;
    let filtered = json!({"repo_path": "up", "message": "x", "files": ["big.bin"]});
    harness.check("git_commit", filtered, &["Error: big.bin: its .gitattributes ask for the filter lfs"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_out_of_the_repository_or_the_workspace() {
    let Some(harness) = Harness::start().await else { return };
    harness
        .exec(&format!(
            "mkdir -p r other; cd r; {INIT} echo 1 > a; git add a; git commit -qm one; echo 2 > a; echo 3 > b"
        ))
        .await;
    let outside = harness.gateway.home().join("outside");
    fs::create_dir_all(outside.join("objects")).unwrap();
    let workspace = harness.gateway.workspace();
    for (name, text) in
        [("file", format!("gitdir: {}\n", outside.display())), ("up", "gitdir: ../../outside\n".to_owned())]
    {
        fs::create_dir(workspace.join(name)).unwrap();
        fs::write(workspace.join(name).join(".git"), text).unwrap();
    }
    std::os::unix::fs::symlink(&outside, workspace.join("link")).unwrap();
    let out = "outside the workspace";
    for (tool, arguments, expected) in [
        ("git_status", json!({"repo_path": "../outside"}), out),
        ("git_status", json!({"repo_path": "/etc"}), out),
        ("git_status", json!({"repo_path": "link"}), out),
        ("git_status", json!({"repo_path": "file"}), out),
        ("git_status", json!({"repo_path": "up"}), out),
        ("git_status", json!({"repo_path": "~"}), "~ is not expanded"),
        ("git_status", json!({"repo_path": "gone"}), "no such file"),
        ("git_diff", json!({"repo_path": "r", "path": "../other"}), "outside the repository r"),
        ("git_diff", json!({"repo_path": "r", "path": "../../outside"}), out),
        ("git_diff", json!({"repo_path": "r", "path": ""}), "the path is empty"),
        ("git_log", json!({"repo_path": "r", "path": "/etc/passwd"}), out),
        ("git_log", json!({"repo_path": "r", "max_count": 0}), "at least 1"),
        ("git_commit", json!({"repo_path": "r", "message": "x", "files": [".git/config"]}), "belongs to git itself"),
        ("git_commit", json!({"repo_path": "r", "message": "x", "files": ["../other"]}), "outside the repository r"),
        // Neither a pattern nor an option is accepted as a file.
        ("git_commit", json!({"repo_path": "r", "message": "x", "files": [":(top)*"]}), "nothing to commit"),
        ("git_commit", json!({"repo_path": "r", "message": "x", "files": ["*"]}), "nothing to commit"),
        ("git_commit", json!({"repo_path": "r", "message": "x", "files": ["--amend"]}), "nothing to commit"),
        ("git_diff", json!({"repo_path": "r", "path": ":(exclude)b"}), "No changes"),
        ("git_diff", json!({"repo_path": "r", "path": "--output=x"}), "No changes"),
    ] {
        let result = harness.check(tool, arguments.clone(), &[expected]).await;
        assert!(result.starts_with("Error: ") || expected == "No changes", "{tool} {arguments}: {result}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(harness.exec("cd r; git log --format=%s; git status --short").await, "one\n M a\n?? b\n");
}

/// The programs that a repository can make git run. Each trap leaves its own file.
const TRAPS: &str = r#"
cat > trap.sh <<'END'
#!/bin/sh
echo "$@" > "$(dirname "$0")/canary-$1"
[ "$1" = filter ] && cat
exit 0
END
chmod +x trap.sh; T=$PWD/trap.sh
mkdir r; cd r
git init -q -b main .; mkdir -p .git/info .git/hooks; git config user.name Ann; git config user.email ann@example.org
mkdir sub; cd sub; git init -q -b main .; mkdir -p .git/info; git config user.name S; git config user.email s@x
echo s > s.txt; git add s.txt; git commit -qm sub; git config core.fsmonitor "$T submodule"
git config filter.f.clean "$T filter"; echo '* filter=f' > .git/info/attributes; cd ..
echo one > a.txt; echo one > b.md; echo one > c.ext; git add a.txt b.md c.ext sub 2> /dev/null; git commit -qm one
printf '*.txt filter=f diff=d\n*.ext diff=e\n' > .gitattributes
printf '* filter=i\n' > .git/info/attributes
for hook in pre-commit prepare-commit-msg commit-msg post-commit post-index-change reference-transaction pre-auto-gc; do
  printf '#!/bin/sh\n%s hook-%s\n' "$T" $hook > .git/hooks/$hook; chmod +x .git/hooks/$hook
done
git config filter.f.clean "$T filter"; git config filter.f.smudge "$T filter"
git config filter.i.clean "$T filter"; git config filter.i.smudge "$T filter"; git config filter.i.required true
git config diff.d.textconv "$T textconv"; git config diff.e.command "$T command"; git config diff.external "$T external"
git config core.pager "$T pager"; git config pager.log "$T pager-log"; git config core.editor "$T editor"
printf '#!/bin/sh\n%s gpg\n' "$T" > ../gpg.sh; chmod +x ../gpg.sh; git config gpg.program "${T%trap.sh}gpg.sh"; git config commit.gpgSign true; git config log.showSignature true
git config core.sshCommand "$T ssh"; git config credential.helper "$T credential"; git config core.askPass "$T askpass"
git config alias.status "!$T alias"; git config alias.commit "!$T alias"; git config core.alternateRefsCommand "$T refs"
git config trailer.t.command "$T trailer"; git config commit.template /etc/passwd; git config gc.auto 1
git config hook.h.command "$T config-hook"; git config --add hook.h.event pre-commit
printf '[filter "f"]\n\tprocess = %s process\n[core]\n\tfsmonitor = %s included\n' "$T" "$T" > ../included
git config include.path ../../included; git config includeIf.gitdir:/.path ../../included
git config extensions.worktreeConfig true; printf '[core]\n\tfsmonitor = %s worktree\n' "$T" > .git/config.worktree
git config core.fsmonitor "$T fsmonitor"
echo two >> a.txt; echo two >> b.md; echo two >> c.ext; echo two >> sub/s.txt; echo n > new.md
rm -f ../canary-*
"#;

fn canaries(workspace: &Path) -> Vec<String> {
    let names = fs::read_dir(workspace).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_prefix("canary-")?.to_owned())).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_named_by_a_repository_are_never_run() {
    let Some(harness) = Harness::start().await else { return };
    let workspace = harness.gateway.workspace();
    harness.exec(TRAPS).await;
    let repo = |arguments: Value| in_repository("r", arguments);
    let commit = |files: Value| repo(json!({"message": "x", "files": files}));
    harness.check("git_status", repo(json!({})), &["On branch main", " M a.txt", " M b.md", "?? new.md"]).await;
    harness.check("git_diff", repo(json!({})), &["+two"]).await;
    harness.check("git_diff", repo(json!({"staged": true})), &["No staged changes."]).await;
    harness.check("git_diff", repo(json!({"path": "c.ext"})), &["+two"]).await;
    harness.check("git_log", repo(json!({})), &[" Ann: one"]).await;
    harness.check("git_commit", commit(json!(["b.md", "new.md"])), &["2 files changed\nM b.md\nA new.md"]).await;
    harness.check("git_commit", commit(json!(["a.txt"])), &["ask for the filter f"]).await;
    harness.check("git_commit", commit(json!(["sub"])), &["sub: nothing to commit"]).await;
    harness.check("git_commit", commit(json!([".gitattributes", "c.ext"])), &["2 files changed"]).await;
    harness.check("git_log", repo(json!({"path": "b.md"})), &[" Ann: x"]).await;
    let whole = ["Error: a.txt: its .gitattributes ask for the filter f"];
    harness.check("git_commit", repo(json!({"message": "x", "all_files": true})), &whole).await;
    assert_eq!(canaries(&workspace), Vec::<String>::new());
    assert!(!fs::read_to_string(workspace.join("r/.git/HEAD")).unwrap().is_empty());

    // The traps work: plain git runs them.
    harness
        .exec(
            "cd r; (git status; git diff --no-ext-diff -- a.txt; git diff; git -c commit.gpgSign=false commit -qam y; \
             git commit --allow-empty -qm z; git --paginate log -1) > /dev/null 2>&1 || true",
        )
        .await;
    let found = canaries(&workspace);
    for trap in ["filter", "hook-pre-commit", "hook-post-index-change", "textconv", "gpg"] {
        assert!(found.iter().any(|name| name == trap), "{trap}: {found:?}");
    }
    assert!(found.len() >= 8, "{found:?}");
}
