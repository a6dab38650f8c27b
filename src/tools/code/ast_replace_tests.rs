//! Tests of search and replacement by patterns, through the executor.

use std::os::unix::fs::PermissionsExt;

use daoyou_channels::Trust;
use daoyou_channels::settings::ByteSize;
use serde_json::json;

use crate::chat::ToolCall;
use crate::tools::testing::{ToolFixture, context};
use crate::tools::{PrivateFolders, ToolsConfig};

fn fixture(files: &[(&str, &str)]) -> ToolFixture {
    let fixture = ToolFixture::with_private(&ToolsConfig::default(), PrivateFolders::new(&["memory"]));
    fixture.write(files);
    fixture
}

#[tokio::test]
async fn matches_are_shown_with_their_lines() {
    let fixture = fixture(&[
        ("a.py", "x = 1\nlog('a',\n    x)\nlog('b')\n"),
        ("sub/b.py", "def f():\n    log('道')\n"),
        ("c.js", "log('c')\n"),
        ("memory/d.py", "log('secret')\n"),
        ("h.h", "int f(void) { return g(1); }\n"),
    ]);
    for (trust, arguments, expected) in [
        (
            Trust::Known,
            json!({"pattern": "log($$$A)", "lang": "python"}),
            "a.py:2: log('a',\na.py:3:     x)\na.py:4: log('b')\nsub/b.py:2:     log('道')\n[searched 2 python files]",
        ),
        (
            Trust::Owner,
            json!({"pattern": "log('secret')", "language": "py", "paths": ["memory"]}),
            "memory/d.py:1: log('secret')\n[searched 1 python file]",
        ),
        (
            Trust::Owner,
            json!({"pattern": "g($A)", "lang": "c"}),
            "h.h:1: int f(void) { return g(1); }\n[searched 1 c file]",
        ),
        (Trust::Owner, json!({"pattern": "nothing()", "lang": "js"}), "No match.\n[searched 1 javascript file]"),
        (Trust::Known, json!({"pattern": "x", "lang": "py", "path": "memory"}), "Error: memory: off limits"),
        (
            Trust::Owner,
            json!({"pattern": "x", "lang": "cobol"}),
            "Error: lang \"cobol\" is not known; known are c, cpp",
        ),
        (Trust::Owner, json!({"pattern": "def (", "lang": "py"}), "Error: the pattern \"def (\" is not python code"),
        (Trust::Owner, json!({"pattern": "x", "lang": "py", "path": "c.js"}), "Error: c.js: not a file of a language"),
        (Trust::Owner, json!({"pattern": "x", "lang": "py", "path": "nope"}), "Error: nope: no such file or folder"),
    ] {
        let rendered = fixture.run_as(trust, "ast_grep_search", &arguments).await.render();
        assert!(rendered.starts_with(expected), "{arguments}: {rendered}");
    }
}

#[tokio::test]
async fn nothing_is_written_before_it_is_asked_for() {
    let files = [("a.py", "log('a')\r\nx = 1\r\n"), ("sub/b.py", "log('b')\n"), ("c.js", "log('c')\n")];
    let fixture = fixture(&files);
    std::fs::set_permissions(fixture.path("a.py"), PermissionsExt::from_mode(0o750)).unwrap();
    let read = |path: &str| std::fs::read_to_string(fixture.path(path)).unwrap();
    let mut arguments = json!({"pattern": "log($A)", "rewrite": "logger.info($A)", "lang": "python"});
    let rendered = fixture.run_as(Trust::Owner, "ast_grep_replace", &arguments).await.render();
    for part in [
        "Would change 2 places in 2 files\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-log('a')",
        "+logger.info('b')",
        "[searched 2 python files]\n[nothing was changed yet: repeat it with dry_run=false]",
    ] {
        assert!(rendered.contains(part), "{part}: {rendered}");
    }
    assert_eq!(read("a.py"), files[0].1);
    arguments["dry_run"] = json!(false);
    let rendered = fixture.run_as(Trust::Owner, "ast_replace", &arguments).await.render();
    assert!(
        rendered.starts_with("Changed 2 places in 2 files\n--- a/a.py") && !rendered.contains("dry_run"),
        "{rendered}"
    );
    assert_eq!(
        (read("a.py").as_str(), read("sub/b.py").as_str()),
        ("logger.info('a')\r\nx = 1\r\n", "logger.info('b')\n")
    );
    assert_eq!(read("c.js"), files[2].1);
    assert_eq!(std::fs::metadata(fixture.path("a.py")).unwrap().permissions().mode() & 0o777, 0o750);
    let rendered = fixture.run_as(Trust::Owner, "ast_grep_replace", &arguments).await.render();
    assert!(rendered.starts_with("No match; nothing was changed."), "{rendered}");
    let lines = json!({"pattern": "logger.info($A)", "rewrite": "log(\r\n$A)", "lang": "python", "dry_run": false});
    fixture.run_as(Trust::Owner, "ast_grep_replace", &lines).await;
    assert_eq!((read("a.py").as_str(), read("sub/b.py").as_str()), ("log(\r\n'a')\r\nx = 1\r\n", "log(\n'b')\n"));
    arguments["rewrite"] = json!("f($B)");
    let rendered = fixture.run_as(Trust::Owner, "ast_grep_replace", &arguments).await.render();
    assert!(rendered.starts_with("Error: rewrite uses $B, which the pattern does not have"), "{rendered}");
}

#[tokio::test]
async fn all_files_change_or_none() {
    let config = ToolsConfig { max_file_size: ByteSize(100), ..ToolsConfig::default() };
    let fixture = ToolFixture::with_private(&config, PrivateFolders::new(&["memory"]));
    std::fs::create_dir(fixture.path("memory")).unwrap();
    // The replacement would make one file longer than the limit.
    let long = format!("log('b')  # {}\n", "x".repeat(85));
    for (path, text) in [("a.py", "log('a')\n"), ("b.py", &long), ("memory/c.py", "log('c')\n")] {
        std::fs::write(fixture.path(path), text).unwrap();
    }
    let read = |path: &str| std::fs::read_to_string(fixture.path(path)).unwrap();
    for (rewrite, is_changed) in [("output_of($A)", false), ("out($A)", true)] {
        let arguments = json!({"pattern": "log($A)", "rewrite": rewrite, "lang": "python", "dry_run": false});
        let result = fixture.run_as(Trust::Known, "ast_grep_replace", &arguments).await;
        assert_eq!(result.success, is_changed, "{}", result.render());
        for path in ["a.py", "b.py"] {
            assert_eq!(read(path).starts_with("out("), is_changed, "{path}");
        }
    }
    assert_eq!(read("memory/c.py"), "log('c')\n", "private");
}

#[tokio::test]
async fn too_many_places_of_one_file_change_no_file() {
    let many = "log(1)\n".repeat(10_001);
    let fixture = fixture(&[("a.py", "log(1)\n"), ("many.py", &many)]);
    for dry_run in [true, false] {
        let arguments = json!({"pattern": "log($A)", "rewrite": "out($A)", "lang": "python", "dry_run": dry_run});
        let rendered = fixture.run_as(Trust::Owner, "ast_grep_replace", &arguments).await.render();
        assert!(
            rendered.starts_with("Error: more than 500 files, 10000 places of a file, or 64 MB would change"),
            "{rendered}"
        );
    }
    assert_eq!(std::fs::read_to_string(fixture.path("a.py")).unwrap(), "log(1)\n");
    std::fs::write(fixture.path("many.py"), "log(1)\n".repeat(10_000)).unwrap();
    let arguments = json!({"pattern": "log($A)", "rewrite": "out($A)", "lang": "python", "dry_run": false});
    let rendered = fixture.run_as(Trust::Owner, "ast_grep_replace", &arguments).await;
    assert!(rendered.success, "{}", rendered.render());
    assert_eq!(std::fs::read_to_string(fixture.path("many.py")).unwrap(), "out(1)\n".repeat(10_000));
}

#[tokio::test]
async fn files_keep_their_encoding() {
    let fixture = fixture(&[("utf.py", "log('道')\n"), ("faulty.py", "")]);
    let code = "def make_tea():\r\n    log('今天的天气很好，我们去山上喝茶')\r\n";
    let wide = |text: &str| format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let faulty = ["log('道道道道道道道道道道')  # ".as_bytes(), b"\xff\n"].concat();
    let latin = |text: &str| encoding_rs::WINDOWS_1252.encode(text).0.into_owned();
    for (path, bytes) in [
        ("gbk.py", encoding_rs::GBK.encode(code).0.into_owned()),
        ("wide.py", wide(code)),
        ("faulty.py", faulty.clone()),
        ("latin.py", latin("log('le café était fermé')\n")),
    ] {
        std::fs::write(fixture.path(path), bytes).unwrap();
    }
    for (name, arguments, expected) in [
        ("symbols", json!({"path": "gbk.py"}), "function make_tea (1-2)"),
        ("symbols", json!({"path": "wide.py"}), "function make_tea (1-2)"),
        ("repo_map", json!({"path": "wide.py"}), "function make_tea (line 1)"),
        (
            "ast_grep_search",
            json!({"pattern": "log($A)", "lang": "py"}),
            "gbk.py:2:     log('今天的天气很好，我们去山上喝茶')",
        ),
        (
            "ast_grep_search",
            json!({"pattern": "log($A)", "lang": "py"}),
            "wide.py:2:     log('今天的天气很好，我们去山上喝茶')",
        ),
        ("ast_grep_search", json!({"pattern": "log($A)", "lang": "py"}), "latin.py:1: log('le café était fermé')"),
    ] {
        let rendered = fixture.rendered(name, arguments).await;
        assert!(rendered.contains(expected), "{name}: {rendered}");
    }
    let replace = |rewrite: &str| json!({"pattern": "log($A)", "rewrite": rewrite, "lang": "py", "dry_run": false});
    let rendered = fixture.rendered("ast_grep_replace", replace("茶($A)")).await;
    let lacking = "Error: latin.py: its encoding windows-1252 has no '茶'; nothing was changed";
    assert!(rendered.starts_with(lacking), "{rendered}");
    assert_eq!(std::fs::read(fixture.path("utf.py")).unwrap(), "log('道')\n".as_bytes());
    let rendered = fixture.rendered("ast_grep_replace", replace("out($A)")).await;
    for part in [
        "Changed 4 places in 4 files",
        "+    out('今天的天气很好，我们去山上喝茶')",
        "+out('le café était fermé')",
        "[searched 4 python files; skipped: 1 with bytes that are invalid in their encoding]",
    ] {
        assert!(rendered.contains(part), "{part}: {rendered}");
    }
    let changed = code.replace("log", "out");
    for (path, bytes) in [
        ("gbk.py", encoding_rs::GBK.encode(&changed).0.into_owned()),
        ("wide.py", wide(&changed)),
        ("faulty.py", faulty),
        ("latin.py", latin("out('le café était fermé')\n")),
    ] {
        assert_eq!(std::fs::read(fixture.path(path)).unwrap(), bytes, "{path}");
    }
}

#[tokio::test]
async fn matches_inside_replaced_ones_are_named_until_a_further_call_replaces_them() {
    let fixture = fixture(&[("a.py", "log(log(1))\nlog(log(log(2)))\n")]);
    for (rewrite, dry_run, text, nested) in [
        ("out($A)", true, "log(log(1))\nlog(log(log(2)))\n", Some("3 matches")),
        ("out($A)", false, "out(log(1))\nout(log(log(2)))\n", Some("3 matches")),
        ("out($A)", false, "out(out(1))\nout(out(log(2)))\n", Some("1 match")),
        ("none()", false, "out(out(1))\nout(out(none()))\n", None),
    ] {
        let arguments = json!({"pattern": "log($A)", "rewrite": rewrite, "lang": "python", "dry_run": dry_run});
        let rendered = fixture.rendered("ast_grep_replace", arguments).await;
        assert_eq!(std::fs::read_to_string(fixture.path("a.py")).unwrap(), text, "{rendered}");
        match nested {
            Some(count) => {
                assert!(rendered.contains(&format!("[not replaced: {count} inside replaced ones; ")), "{rendered}");
            }
            None => assert!(!rendered.contains("inside replaced ones"), "{rendered}"),
        }
    }
    // The rewrite leaves out the code with the inner match.
    fixture.write(&[("a.py", "log(log(1))\n")]);
    let arguments = json!({"pattern": "log($A)", "rewrite": "none()", "lang": "python", "dry_run": false});
    let rendered = fixture.rendered("ast_grep_replace", arguments).await;
    assert!(rendered.starts_with("Changed 1 place in 1 file") && !rendered.contains("inside"), "{rendered}");
    // The new text is nested too deeply to be searched.
    fixture.write(&[("a.py", "log(log(1))\n")]);
    let rewrite = format!("{}$A{}", "(".repeat(600), ")".repeat(600));
    let arguments = json!({"pattern": "log($A)", "rewrite": rewrite, "lang": "python", "dry_run": false});
    let rendered = fixture.rendered("ast_grep_replace", arguments).await;
    assert!(rendered.starts_with("Changed 1 place in 1 file") && rendered.contains("1 match inside"), "{rendered}");
}

#[tokio::test]
async fn a_turn_that_read_from_others_writes_to_scratch_alone() {
    let fixture = fixture(&[("a.py", "log('a')\n"), ("scratch/b.py", "log('b')\n")]);
    let restricts = |path: Option<&str>, dry_run: Option<bool>| {
        let mut arguments = json!({"pattern": "log($A)", "rewrite": "out($A)", "lang": "python"});
        arguments["path"] = path.into();
        arguments["dry_run"] = dry_run.into();
        let call =
            ToolCall { id: "1".to_owned(), name: "ast_grep_replace".to_owned(), arguments: arguments.to_string() };
        fixture.executor.restriction(&call, &context()).is_some_and(|found| !found.tools.is_empty())
    };
    for (path, dry_run, is_restricted) in [
        (None, None, false),
        (Some("a.py"), Some(true), false),
        (None, Some(false), true),
        (Some("a.py"), Some(false), true),
        (Some("scratch"), Some(false), false),
        (Some("scratch/../a.py"), Some(false), true),
    ] {
        assert_eq!(restricts(path, dry_run), is_restricted, "{path:?} {dry_run:?}");
    }
}
