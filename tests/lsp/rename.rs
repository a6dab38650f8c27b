//! Renames change all files of a project or none, and only what the server knows for certain.

use serde_json::json;

use super::{FILES, Harness};
use crate::support::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_changes_all_files_or_none() {
    let rename = |name: &str| json!({"path": "a.go", "line": 2, "character": 7, "new_name": name});
    let Some(harness) = Harness::scripted("works") else { return };
    let result = harness.says("lsp_rename", rename("新")).await;
    let expected = "Changed 4 places in 2 files:\n--- a/a.go\n+++ b/a.go\n@@ -1,3 +1,3 @@\n func 道友() {}\n-func old() {}\n\
                    -// TODO old 😀 TODO\n+func 新() {}\n+// TODO 新 😀 TODO\n--- a/sub/b.go\n+++ b/sub/b.go\n@@ -1,2 +1,2 @@\n\
                    -/* 😀道 */ old(old)\n+/* 😀道 */ 新(新)\n 道友()";
    assert_eq!(result, expected);
    assert_eq!(harness.text("sub/b.go"), "/* 😀道 */ 新(新)\r\n道友()\r\n");
    // The server is notified of written files.
    assert_eq!(
        harness.says("lsp_definition", json!({"path": "sub/b.go", "line": 1, "character": 10})).await,
        "a.go:2:6: func 新() {}"
    );
    assert_eq!(harness.noted("changes"), [json!([["a.go", 2], ["b.go", 2]])]);
    for (arguments, expected) in [
        (
            json!({"path": "a.go", "line": 3, "character": 1, "new_name": "x"}),
            "nothing to rename is at line 3, character 1; nothing was changed",
        ),
        (rename(" "), "new_name: a name of 1 to 200 characters"),
        (rename("a\nb"), "new_name: a name of 1 to 200 characters"),
    ] {
        let result = harness.says("lsp_rename", arguments).await;
        assert!(result.contains(expected), "{result}");
    }
    for (mode, expected) in [
        ("outside", "Error: the server would change /etc/hosts, which is not for it; nothing was changed"),
        ("linked", "link/a.go, which is not for it; nothing was changed"),
        ("other", "c.txt, which is not for it; nothing was changed"),
        ("elsewhere", "a.go, which is not for it; nothing was changed"),
        ("overlap", "Error: a.go: two edits overlap; nothing was changed"),
        ("moves", "Error: the server would also create, move or delete files, which is not done; nothing was changed"),
        ("poor", "Error: python3 cannot do this: it renames nothing"),
    ] {
        let Some(harness) = Harness::scripted(mode) else { return };
        // A path inside the workspace that leads to a folder which servers do not see.
        harness.write("mail/a.go", "of others\n");
        std::os::unix::fs::symlink("mail", harness.path("link")).unwrap();
        let result = harness.says("lsp_rename", rename("new")).await;
        assert!(
            result.starts_with("Error: ") && result.ends_with(expected.trim_start_matches("Error: ")),
            "{mode}: {result}"
        );
        assert_eq!(harness.text("mail/a.go"), "of others\n", "{mode}");
        for (name, text) in FILES {
            assert_eq!(harness.text(name), text, "{mode}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_of_a_text_that_changed_meanwhile_is_refused() {
    let Some(harness) = Harness::scripted("late") else { return };
    let new = "func 道友() {}\n\nfunc old() {}\n";
    let renamed = harness.says("lsp_rename", json!({"path": "a.go", "line": 2, "character": 7, "new_name": "new"}));
    let changed = async {
        until("the rename", async || (!harness.noted("renaming").is_empty()).then_some(())).await;
        harness.write("a.go", new);
        harness.says("lsp_symbols", json!({"path": "a.go"})).await
    };
    let (result, symbols) = tokio::join!(renamed, changed);
    assert_eq!(result, "Error: files changed meanwhile; nothing was changed. Try again");
    assert_eq!((symbols.as_str(), harness.text("a.go").as_str()), ("1: function 道友\n3: function old", new));
}

/// Servers read folders that are not watched for changes, and packages next to the one in which they started.
#[tokio::test(flavor = "multi_thread")]
async fn a_rename_reaches_unwatched_folders_and_all_packages_of_a_project() {
    let Some(harness) = Harness::scripted("works") else { return };
    let rename = |path: &str| json!({"path": path, "line": 2, "character": 7, "new_name": "new"});
    harness.write("build/gen.go", "old()\n");
    harness.write(".hidden/x.go", "func x() { old() }\n");
    let result = harness.says("lsp_rename", rename("a.go")).await;
    assert!(result.starts_with("Changed 6 places in 4 files:\n"), "{result}");
    assert_eq!(
        (harness.text("build/gen.go").as_str(), harness.text(".hidden/x.go").as_str()),
        ("new()\n", "func x() { new() }\n")
    );
    // More files than can be opened.
    (0..25).for_each(|at| harness.write(&format!("build/gen{at}.go"), "new()\n"));
    let result = harness.says("lsp_rename", rename("a.go")).await;
    assert!(
        result.starts_with("Error: 25 of the files, such as ") && result.ends_with("; nothing was changed"),
        "{result}"
    );
    assert_eq!(harness.text("build/gen3.go"), "new()\n");
    for is_one_project in [true, false] {
        let Some(harness) = Harness::scripted("packages") else { return };
        for (path, text) in
            [("p/go.mod", "module p\n"), ("p/a.go", FILES[1].1), ("q/go.mod", "module q\n"), ("q/b.go", "old()\n")]
        {
            harness.write(path, text);
        }
        if !is_one_project {
            std::fs::remove_file(harness.path("go.mod")).unwrap();
        }
        let result = harness.says("lsp_rename", rename("p/a.go")).await;
        let is_refused = result.ends_with("which is not for it; nothing was changed");
        let is_whole = result.contains("+++ b/p/a.go") && result.contains("+++ b/q/b.go");
        assert_eq!((is_whole, is_refused), (is_one_project, !is_one_project), "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_goes_on_when_another_call_opens_a_file_that_did_not_change() {
    let Some(harness) = Harness::scripted("opens") else { return };
    let renamed = harness.says("lsp_rename", json!({"path": "a.go", "line": 2, "character": 7, "new_name": "new"}));
    let opened = async {
        until("the rename", async || (!harness.noted("renaming").is_empty()).then_some(())).await;
        harness.says("lsp_symbols", json!({"path": "sub/b.go"})).await
    };
    let (text, symbols) = tokio::join!(renamed, opened);
    assert_eq!(symbols, "No symbol found.");
    assert!(text.starts_with("Changed 4 places in 2 files:\n"), "{text}");
}
