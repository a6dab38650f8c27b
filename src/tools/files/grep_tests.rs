//! Tests of the tool `grep`.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use daoyou_channels::Trust;
use daoyou_channels::settings::{ByteSize, HumanDuration};
use rustix::fs::{CWD, FileType, mknodat};
use serde_json::json;

use crate::tools::testing::{ToolFixture, context};
use crate::tools::{PrivateFolders, ToolContext, ToolsConfig};

fn fixture() -> ToolFixture {
    let fixture = ToolFixture::with_private(&ToolsConfig::default(), PrivateFolders::new(&["memory"]));
    fixture.write(&[
        ("a.rs", "fn one() {}\nfn two() {}\n"),
        ("b.txt", "One\r\ntwo ones\r\n"),
        ("src/c.rs", "// one\n"),
        ("src/gen/d.rs", "one\n"),
        (".hidden", "one\n"),
        (".git/config", "one\n"),
        ("target/e.rs", "one\n"),
        ("memory/m.md", "one secret\n"),
        (".daoyou/x", "one\n"),
        (".gitignore", "target/\n*.log\n"),
        (".x.log", "one\n"),
        ("y.log", "one\n"),
        ("target/z.log", "one\n"),
        ("src/.gitignore", "gen\n"),
    ]);
    fixture
}

#[tokio::test]
async fn lines_are_found_as_ripgrep_finds_them() {
    let fixture = fixture();
    for (arguments, expected) in [
        (
            json!({"pattern": "one"}),
            "a.rs:1: fn one() {}\nb.txt:2: two ones\nmemory/m.md:1: one secret\nsrc/c.rs:1: // one\n[searched 4 files]",
        ),
        (json!({"pattern": "^one$", "path": "src/gen"}), "src/gen/d.rs:1: one\n[searched 1 file]"),
        (json!({"pattern": "one", "path": "src/c.rs"}), "src/c.rs:1: // one\n[searched 1 file]"),
        (json!({"pattern": "one", "path": ".hidden"}), ".hidden:1: one\n[searched 1 file]"),
        (
            json!({"query": "ONE", "directory": "src", "file_pattern": "*.rs", "case_sensitive": false}),
            "src/c.rs:1: // one\n[searched 1 file]",
        ),
        (
            json!({"pattern": "one", "glob": "!*.rs", "ignore_case": true}),
            "b.txt:1: One\nb.txt:2: two ones\nmemory/m.md:1: one secret\n[searched 2 files]",
        ),
        (json!({"pattern": "ONE", "glob": "*.{rs,txt}", "case_sensitive": "true"}), "No match.\n[searched 3 files]"),
        (json!({"pattern": "one", "glob": ".hid*"}), ".hidden:1: one\n[searched 1 file]"),
        // As with ripgrep, a glob takes precedence over the rules for hidden and ignored files, but not for folders.
        (json!({"pattern": "one", "glob": "*.log"}), ".x.log:1: one\ny.log:1: one\n[searched 2 files]"),
        (
            json!({"pattern": "fn", "max_results": 1}),
            "a.rs:1: fn one() {}\n[the first 1 matches; there are more: narrow the search, or raise max_results (at most \
             500)]\n[searched 1 file]",
        ),
        (json!({"pattern": r"\bt\w+o\b", "path": "b.txt"}), "b.txt:2: two ones\n[searched 1 file]"),
    ] {
        let rendered = fixture.rendered("grep", arguments.clone()).await;
        let rendered: Vec<_> = rendered.lines().collect();
        // The number of files that were searched before the search ended depends on the threads, so it is not compared.
        let expected: Vec<_> = expected.lines().collect();
        let compared = if arguments["max_results"] == 1 { 2 } else { expected.len() };
        assert_eq!(rendered[..compared], expected[..compared], "{arguments}");
        assert!(rendered.len() <= expected.len(), "{arguments}: {rendered:?}");
    }
}

#[tokio::test]
async fn text_search_searches_a_text_without_regard_to_case() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    fixture.write(&[("a.c", "foo(1)\nFOO(2)\na.b\naxb\n")]);
    for (tool, arguments, expected) in [
        ("text_search", json!({"query": "foo("}), "a.c:1: foo(1)\na.c:2: FOO(2)\n[searched 1 file]"),
        (
            "Text_Search",
            json!({"query": "foo(", "case_sensitive": false}),
            "a.c:1: foo(1)\na.c:2: FOO(2)\n[searched 1 file]",
        ),
        ("text_search", json!({"query": "FOO(", "case_sensitive": true}), "a.c:2: FOO(2)\n[searched 1 file]"),
        ("text_search", json!({"pattern": "a.b", "directory": "."}), "a.c:3: a.b\n[searched 1 file]"),
        ("grep", json!({"pattern": "a.b"}), "a.c:3: a.b\na.c:4: axb\n[searched 1 file]"),
        ("regex_search", json!({"pattern": "foo\\(", "flags": "i"}), "a.c:1: foo(1)\na.c:2: FOO(2)\n[searched 1 file]"),
        ("regex_search", json!({"pattern": "foo\\(", "flags": 2}), "a.c:1: foo(1)\na.c:2: FOO(2)\n[searched 1 file]"),
        ("regex_search", json!({"pattern": "foo\\(", "flags": 0}), "a.c:1: foo(1)\n[searched 1 file]"),
    ] {
        assert_eq!(fixture.rendered(tool, arguments.clone()).await, expected, "{tool} {arguments}");
    }
    let plan = json!({"calls": [{"tool": "text_search", "arguments": {"query": "A.B"}}]});
    let rendered = fixture.rendered("parallel", plan).await;
    assert!(rendered.contains("a.c:3: a.b\n[searched"), "{rendered}");
    for (tool, arguments, expected) in [
        ("regex_search", json!({"pattern": "a", "flags": "x"}), "unknown: flags (known: "),
        ("grep", json!({"pattern": "a", "max_results": -3}), "max_results: must be at least 1"),
        ("grep", json!({"pattern": "a", "max_results": 0}), "max_results: must be at least 1"),
        ("grep", json!({"pattern": "foo("}), "the pattern is not a regex"),
    ] {
        let rendered = fixture.rendered(tool, arguments).await;
        assert!(rendered.starts_with("Error: ") && rendered.contains(expected), "{rendered}");
    }
}

#[tokio::test]
async fn texts_of_other_encodings_are_searched() {
    const CHINESE: &str = "# 道友，今天的天气很好，我们去山上喝茶吧。\n茶馆在山脚下，走路十分钟就到了。\n";
    const TRADITIONAL: &str = "道友，今天的天氣很好，我們去山上喝茶吧。\n茶館在山腳下，走路十分鐘就到了。\n";
    let fixture = ToolFixture::new(&ToolsConfig::default());
    let utf_16: Vec<u8> = "one 1\ntwo 2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let late = [b"x = 1\n".repeat(20_000), encoding_rs::GBK.encode(CHINESE).0.into_owned()].concat();
    let files: [(&str, &[u8]); 6] = [
        ("gbk.txt", &encoding_rs::GBK.encode(CHINESE).0),
        ("big5.txt", &encoding_rs::BIG5.encode(TRADITIONAL).0),
        ("late.py", &late),
        ("utf16.txt", &utf_16),
        ("utf8.txt", CHINESE.as_bytes()),
        ("jpeg", b"\xff\xd8\xff\xe0\xf1\xe2 JFIF without zero"),
    ];
    for (name, bytes) in files {
        fs::write(fixture.path(name), bytes).unwrap();
    }
    for (pattern, expected) in [
        (
            "十分钟",
            "gbk.txt:2: 茶馆在山脚下，走路十分钟就到了。\nlate.py:20002: 茶馆在山脚下，走路十分钟就到了。\nutf8.txt:2: 茶馆在山脚下，走路十分钟就到了。",
        ),
        ("十分鐘", "big5.txt:2: 茶館在山腳下，走路十分鐘就到了。"),
        ("^two", "utf16.txt:2: two 2"),
    ] {
        let rendered = fixture.rendered("grep", json!({ "pattern": pattern })).await;
        assert_eq!(rendered, format!("{expected}\n[searched 6 files]"), "{pattern}");
    }
    let tool = fixture.executor.registry().get("grep").unwrap();
    let lines = tool.file_lines(&context()).unwrap();
    assert_eq!(lines.lines("gbk.txt", 2, 3).await.unwrap(), ["茶馆在山脚下，走路十分钟就到了。"]);
    let rendered = fixture.rendered("grep", json!({"pattern": "茶馆", "path": "gbk.txt"})).await;
    assert!(rendered.starts_with("gbk.txt:2: 茶馆在"), "{rendered}");
}

#[tokio::test]
async fn what_is_not_searched_is_named() {
    let config = ToolsConfig { max_file_size: ByteSize(3_000_000), ..ToolsConfig::default() };
    let fixture = ToolFixture::new(&config);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "needle").unwrap();
    fs::write(fixture.path("text"), "needle\n").unwrap();
    fs::write(fixture.path("binary"), b"\0needle\0\n").unwrap();
    fs::write(fixture.path("large"), "needle\n".repeat(500_000)).unwrap();
    fs::write(fixture.path("long"), format!("x{}needle\n", "y".repeat(2_000_000))).unwrap();
    fs::write(fixture.path("latin"), b"needle M\xfcller\n").unwrap();
    let utf16: Vec<u8> = "\u{feff}a needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(fixture.path("utf16"), utf16).unwrap();
    fs::hard_link(outside.path().join("secret"), fixture.path("hard")).unwrap();
    symlink(outside.path().join("secret"), fixture.path("link")).unwrap();
    symlink(outside.path(), fixture.path("way")).unwrap();
    mknodat(CWD, fixture.path("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir(fixture.path("odd\nname")).unwrap();
    fs::write(fixture.path("odd\nname/f"), "needle\n").unwrap();
    let rendered = fixture.rendered("grep", json!({"pattern": "needle"})).await;
    let expected = "\"odd\\nname/f\":1: needle\nlatin:1: needle Müller\ntext:1: needle\nutf16:1: a needle\n\
        [searched 4 files; skipped: 1 binary, 1 with too long lines, 1 special, 1 with several hard links, 1 too large]";
    assert_eq!(rendered, expected);
    for (glob, counts_pipe) in [("text", false), ("{text,pipe}", true), ("!pipe", false)] {
        let rendered = fixture.rendered("grep", json!({"pattern": "^no$", "glob": glob})).await;
        assert_eq!(rendered.contains("1 special"), counts_pipe, "{glob}: {rendered}");
    }
    for (path, expected) in [
        ("pipe", "not a regular file"),
        ("hard", "hard link"),
        ("link", "outside the workspace"),
        ("way", "outside the workspace"),
        ("way/secret", "outside the workspace"),
        ("large", "more than the limit"),
        ("none", "no such file"),
    ] {
        let rendered = fixture.rendered("grep", json!({"pattern": "needle", "path": path})).await;
        let first = rendered.lines().next().unwrap_or_default();
        assert!(first.starts_with("Error: ") && first.contains(expected), "{path}: {rendered}");
    }
    for (arguments, expected) in [
        (json!({"pattern": "a("}), "the pattern is not a regex: unclosed group, at character 2"),
        (json!({"pattern": "a", "glob": "{a"}), "glob \"{a\": "),
        (json!({"glob": "*.rs"}), "missing: pattern"),
    ] {
        let rendered = fixture.rendered("grep", arguments).await;
        assert!(rendered.starts_with("Error: ") && rendered.contains(expected), "{rendered}");
    }
}

#[tokio::test]
async fn private_folders_are_not_searched_for_others() {
    let fixture = fixture();
    symlink("../memory", fixture.path("src/way")).unwrap();
    let known = ToolContext { trust: Trust::Known, ..context() };
    for arguments in [
        json!({"pattern": "one"}),
        json!({"pattern": "one", "glob": "**/*"}),
        json!({"pattern": "one", "glob": "memory/**"}),
        json!({"pattern": "one", "glob": ".daoyou/**"}),
    ] {
        let rendered = fixture.run("grep", &arguments, &known).await.result.render();
        assert!(!rendered.contains("secret") && !rendered.contains(".daoyou"), "{arguments}: {rendered}");
        let rendered = fixture.run("grep", &arguments, &context()).await.result.render();
        assert!(!rendered.contains(".daoyou"), "{arguments}: {rendered}");
    }
    for path in ["memory", "memory/m.md", "src/way", ".daoyou"] {
        let rendered = fixture.run("grep", &json!({"pattern": "one", "path": path}), &known).await.result.render();
        assert!(rendered.contains("off limits"), "{path}: {rendered}");
    }
    // The folder gets another name, and another path leads to it.
    fs::rename(fixture.path("memory"), fixture.path("notes")).unwrap();
    symlink("notes", fixture.path("memory")).unwrap();
    let rendered = fixture.run("grep", &json!({"pattern": "one"}), &known).await.result.render();
    assert!(!rendered.contains("secret"), "{rendered}");
}

#[tokio::test]
async fn lines_of_mails_are_marked() {
    let fixture = fixture();
    fixture.write(&[("mail/own.txt", "one\n"), ("mail/other.txt", "one\n")]);
    fixture.write(&[("memory/HISTORY-20260101-000000.md", "a summary\n")]);
    let context = ToolContext { files: ["mail/own.txt".to_owned()].into(), ..context() };
    for (arguments, expected) in [
        (json!({"pattern": "one"}), &["file:mail/other.txt"][..]),
        (json!({"pattern": "one", "path": "src"}), &[]),
        (json!({"pattern": "none of them"}), &[]),
        (json!({"pattern": "one", "path": "mail/own.txt"}), &[]),
        (json!({"pattern": "one", "path": "src/../mail/other.txt"}), &["file:mail/other.txt"]),
        (json!({"pattern": "one", "path": "mail"}), &["file:mail/other.txt"]),
        (json!({"pattern": "a summary", "path": "memory"}), &["file:memory/HISTORY-20260101-000000.md"]),
    ] {
        let result = fixture.run("grep", &arguments, &context).await.result;
        let sources: Vec<_> = result.taint.iter().cloned().collect();
        assert_eq!(sources, expected, "{arguments}: {}", result.render());
        let tool = fixture.executor.registry().get("grep").unwrap();
        let arguments = crate::tools::parse_arguments(tool.spec(), &arguments.to_string()).unwrap();
        assert!(expected.is_empty() || tool.may_taint(&arguments, &context), "{arguments}");
    }
}

/// Patterns that backtracking engines would need years for, over lines of the maximum length.
#[tokio::test]
async fn no_pattern_takes_long() {
    // The search gives up after five seconds, before the limit of the call.
    let config = ToolsConfig { timeout: HumanDuration::from_secs(6), ..ToolsConfig::default() };
    let fixture = ToolFixture::new(&config);
    let long = "a".repeat(200_000);
    for number in 0..4 {
        fs::write(fixture.path(&format!("{number}.txt")), format!("{long}\n{long}é\n{long}Z\n")).unwrap();
    }
    for pattern in [
        "(a+)+$b",
        "(a|a)*b",
        "(a*)*b",
        "^(([a-z])+.)+[A-Y]([a-z])+$",
        ".*[^A-Z]|[A-Z]",
        "(x+x+)+y",
        "(?i)(a?){50}a{50}b",
        "[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*9",
        r"(\w{1,20}\s?){1,20}\d",
        r"(?:\pL{0,30}){1,10}Q",
        ".*.*.*.*=.*",
        "a{500}b|a{499}c",
    ] {
        let rendered = fixture.rendered("grep", json!({"pattern": pattern})).await;
        assert!(!rendered.contains("timed out"), "{pattern}: {rendered}");
    }
}

#[tokio::test]
async fn a_cancelled_search_ends() {
    let fixture = fixture();
    let context = context();
    let stop = crate::guard::StopSignal::new(Duration::from_secs(60), context.cancel.clone());
    assert!(!stop.is_stopped());
    context.cancel.cancel();
    assert!(stop.is_stopped());
    assert_eq!(stop.reason(), Some(crate::guard::WalkStop::Cancelled));
    let rendered = fixture.run("grep", &json!({"pattern": "one"}), &context).await.result.render();
    assert!(rendered.starts_with("Error: Cancelled"), "{rendered}");
}
