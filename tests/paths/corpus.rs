//! The corpus of paths for the tools that search, describe, create and delete.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};

use serde_json::json;

use super::{CODE_TOOLS, Harness};
use crate::support::swapper::Swapper;

const OUT: &str = "outside the workspace";
const MISSING: &str = "no such file";
const NO_FOLDER: &str = "is not a folder";
const OFF: &str = "off limits";
const TILDE: &str = "~ is not expanded";
/// The expected result if the tool creates something inside the workspace, or moves something of it into the trash.
const INSIDE: &str = "";

/// The results of `grep`, `glob`, `file_info`, `create_dir` and `delete_file` for a path.
type Row<'a> = (&'a str, [&'a str; 5]);

/// Returns the results of the tools for `path`; calls `delete_file` only if it deletes nothing.
async fn results(harness: &Harness, path: &str, deletes: bool) -> Vec<String> {
    let mut calls = vec![
        ("grep", json!({"pattern": ".", "path": path})),
        ("glob", json!({"pattern": "**/*", "path": path})),
        ("file_info", json!({"path": path})),
        ("create_dir", json!({"path": path})),
    ];
    if !deletes {
        calls.push(("delete_file", json!({"path": path})));
    }
    harness.calls(&calls).await
}

/// Checks the tools for code: they refuse what `grep` refuses, and the tree of folders refuses what `glob` does.
async fn check_code_tools(harness: &Harness, path: &str, expected: &[&str; 5]) {
    let calls = CODE_TOOLS.map(|tool| {
        let arguments = match tool {
            "ast_grep_search" => json!({"pattern": "$A", "lang": "python", "path": path}),
            "ast_grep_replace" => {
                json!({"pattern": "$A", "rewrite": "x", "lang": "python", "path": path, "dry_run": false})
            }
            _ => json!({"path": path}),
        };
        (tool, arguments)
    });
    for ((tool, _), got) in calls.iter().zip(harness.calls(&calls).await) {
        let words = match *tool {
            "repo_structure" => expected[1],
            _ if path == "sparse" => "not a file of a language",
            _ => expected[0],
        };
        let first = got.trim_end().split("\n\n[Please analyze").next().unwrap_or_default();
        let is_refused = got.starts_with("Error: ") && first.lines().count() == 1;
        assert!(is_refused && got.contains(words), "{tool} {path:?}, expected {words:?}: {got}");
    }
}

/// Returns paths with the result of each tool.
fn fixed_rows() -> Vec<Row<'static>> {
    let (special, links, names_none) = ("not a regular file", "links", "it names no entry");
    vec![
        ("../token", [OUT; 5]),
        ("..", [OUT, OUT, OUT, OUT, names_none]),
        ("../", [OUT, OUT, OUT, OUT, names_none]),
        ("../..", [OUT, OUT, OUT, OUT, names_none]),
        ("folder/../../token", [OUT; 5]),
        ("folder//..//..//token", [OUT; 5]),
        ("./../token", [OUT; 5]),
        ("folder/../../../outside/secret", [OUT; 5]),
        ("folder/./.././../outside", [OUT; 5]),
        ("/", [OUT, OUT, OUT, OUT, names_none]),
        ("//etc/passwd", [OUT; 5]),
        ("/etc/passwd", [OUT; 5]),
        ("/proc/self/environ", [OUT; 5]),
        ("/proc/self/fd/0", [OUT; 5]),
        ("/proc/self/cwd", [OUT; 5]),
        ("/proc/1/root/etc/passwd", [OUT; 5]),
        ("/sys/kernel/notes", [OUT; 5]),
        ("/dev/zero", [OUT; 5]),
        ("/dev/stdin", [OUT; 5]),
        ("~", [TILDE; 5]),
        ("~/", [TILDE; 5]),
        ("~/.ssh/id_rsa", [TILDE; 5]),
        ("up/secret", [OUT; 5]),
        ("up/../outside/secret", [OUT; 5]),
        ("up/new", [OUT; 5]),
        ("up/", [OUT, OUT, "up: link to ", OUT, INSIDE]),
        ("folder/root/etc/passwd", [OUT; 5]),
        ("folder/root/proc/self/environ", [OUT; 5]),
        ("folder/root/dev/zero", [OUT; 5]),
        ("link", [OUT, OUT, "link: link to ", OUT, INSIDE]),
        ("link/below", [OUT; 5]),
        ("up", [OUT, OUT, "up: link to ../../outside, not followed", OUT, INSIDE]),
        ("environ", [OUT, OUT, "link to /proc/self/environ", OUT, INSIDE]),
        ("zero", [OUT, OUT, "link to /dev/zero", OUT, INSIDE]),
        ("dangling", [OUT, OUT, "dangling: link to ", OUT, INSIDE]),
        ("loop", [links, links, "loop: link to loop", links, INSIDE]),
        ("loop/x", [links; 5]),
        ("hard", ["hard link", NO_FOLDER, "content not read, 2 hard links", NO_FOLDER, INSIDE]),
        ("pipe", [special, NO_FOLDER, "pipe: pipe", NO_FOLDER, INSIDE]),
        ("pipe/x", [NO_FOLDER; 5]),
        ("socket", [special, NO_FOLDER, "socket: socket", NO_FOLDER, INSIDE]),
        ("sparse", ["10000000000 bytes", NO_FOLDER, "content not read, more than", NO_FOLDER, INSIDE]),
        ("plain/below", [NO_FOLDER; 5]),
        ("plain/../../token", [OUT; 5]),
        ("a\0b", ["NUL"; 5]),
        ("plain\0/../../token", ["NUL"; 5]),
        ("", ["empty"; 5]),
        (" ", ["empty"; 5]),
        ("no\nsuch\u{1b}[31m/../../x\ny", [OUT; 5]),
        (".daoyou", [OFF; 5]),
        (".daoyou/trash", [OFF; 5]),
        (".daoyou/conversations/x", [OFF, OFF, OFF, OFF, OFF]),
        ("folder/../.daoyou", [OFF; 5]),
        (".daoyou/../.daoyou/new", [MISSING, MISSING, OFF, OFF, OFF]),
        // Names that only look like paths out of the workspace.
        ("．．/token", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("..%2ftoken", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("..\\token", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("folder/…/token", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("file:///etc/passwd", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("$HOME/token", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("~root/.ssh", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("\u{202e}nekot", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("-rf", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
        ("e\u{301}\u{200d}/x", [MISSING, MISSING, MISSING, INSIDE, MISSING]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_search_or_deletion_outside() {
    let harness = Harness::start(true).await;
    for folder in ["trash", "conversations/x"] {
        fs::create_dir_all(harness.gateway.workspace().join(".daoyou").join(folder)).unwrap();
    }
    let absolute = harness.outside.join("secret").display().to_string();
    let home = harness.gateway.home().display().to_string();
    let (token, above) = (format!("{home}/token"), format!("{home}/workspace/../token"));
    let (long_name, long_path) = ("n".repeat(300), "d/".repeat(3_000));
    let mut table = fixed_rows();
    table.extend([
        (&absolute, [OUT; 5]),
        (&token, [OUT; 5]),
        (&above, [OUT; 5]),
        (&long_name, ["too long"; 5]),
        (&long_path, ["too long"; 5]),
    ] as [Row<'_>; 5]);
    assert!(table.len() >= 60);
    for (path, expected) in &table {
        check_code_tools(&harness, path, expected).await;
        let creates = expected[3] == INSIDE;
        if creates {
            let calls = [("file_info", json!({"path": path})), ("delete_file", json!({"path": path}))];
            for result in harness.calls(&calls).await {
                assert!(result.starts_with("Error: ") && result.contains(MISSING), "{path:?}: {result}");
            }
        }
        let got = results(&harness, path, creates || expected[4] == INSIDE).await;
        for (number, (got, words)) in got.iter().zip(expected).enumerate() {
            let first = got.trim_end().split("\n\n[Please analyze").next().unwrap_or_default();
            let is_error = got.starts_with("Error: ");
            let may_succeed = *words == INSIDE || words.contains("link to") || words.contains("content not read");
            let may_succeed = may_succeed || words.contains(": pipe") || words.contains(": socket");
            assert!(is_error || may_succeed, "{number} {path:?}, expected {words:?}: {got}");
            assert!(got.contains(words) && first.lines().count() == 1, "{number} {path:?}, expected {words:?}: {got}");
        }
        harness.assert_untouched(path);
    }
    delete_and_restore(&harness, &table).await;
    assert_eq!(harness.model.refused(), Vec::<String>::new());
}

/// Checks that links, pipes and the like go to the trash themselves and are restored as they were.
async fn delete_and_restore(harness: &Harness, table: &[Row<'_>]) {
    let workspace = harness.gateway.workspace();
    let deleted: Vec<_> = table.iter().filter(|(path, row)| row[4] == INSIDE && *path != "up/").collect();
    for (path, _) in &deleted {
        let result = harness.calls(&[("delete_file", json!({"path": path}))]).await.remove(0);
        assert!(result.starts_with(&format!("Moved {path} to the trash")), "{path}: {result}");
        assert!(workspace.join(path).symlink_metadata().is_err(), "{path}");
        harness.assert_untouched(path);
    }
    let listed = harness.gateway.json(&["trash", "list"]).await;
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), deleted.len(), "{listed:?}");
    for entry in listed {
        let ran = harness.gateway.run(&["trash", "restore", entry["id"].as_str().unwrap()]).await;
        assert_eq!(ran.code, Some(0), "{entry}: {ran:?}");
    }
    harness.assert_untouched("restored");
    assert!(workspace.join("pipe").symlink_metadata().unwrap().file_type().is_fifo());
    assert_eq!(fs::read_link(workspace.join("zero")).unwrap().to_str(), Some("/dev/zero"));
    assert_eq!(harness.gateway.json(&["trash", "list"]).await, json!([]));
}

/// A folder alternates with a link out of the workspace during searches, creations and deletions in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_swapped_during_a_search_never_escapes() {
    let harness = Harness::start(true).await;
    let workspace = harness.gateway.workspace();
    for number in 0..50 {
        fs::create_dir_all(workspace.join(format!("fine/{number}"))).unwrap();
        fs::write(workspace.join(format!("fine/{number}/secret")), "inside").unwrap();
    }
    fs::write(workspace.join("fine/secret"), "inside").unwrap();
    symlink("../../outside", workspace.join("swap")).unwrap();
    let swapper = Swapper::start(workspace.join("swap"), workspace.join("fine"));
    let calls = [
        ("grep", json!({"pattern": "inside|canary", "max_results": 5})),
        ("grep", json!({"pattern": "inside|canary", "path": "swap", "max_results": 5})),
        ("grep", json!({"pattern": "inside|canary", "path": "swap/secret"})),
        ("glob", json!({"pattern": "swap/*"})),
        ("glob", json!({"pattern": "*", "path": "swap"})),
        ("repo_structure", json!({"path": "swap"})),
        ("repo_map", json!({"path": "swap"})),
        ("file_info", json!({"path": "swap/secret"})),
        ("create_dir", json!({"path": "swap/new"})),
        ("delete_file", json!({"path": "swap/new"})),
        ("delete_file", json!({"path": "swap/1/secret"})),
    ];
    let calls: Vec<_> = calls.iter().cycle().take(22).cloned().collect();
    let mut good = 0;
    for _ in 0..5 {
        good += harness.calls(&calls).await.iter().filter(|result| !result.starts_with("Error: ")).count();
        harness.assert_untouched("a swap");
    }
    let swaps = swapper.stop();
    assert!(good > 0 && swaps > 100, "{good} calls went through, {swaps} swaps: the race was none");
}
