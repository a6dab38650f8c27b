//! The file tools through the real program: pages, encodings, large files, edits and patches.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::processes::peak_bytes;
use crate::support::{Gateway, Model, Setup, until};

/// A gateway whose model makes the calls that a message names.
struct Harness {
    gateway: Gateway,
    model: Model,
}

impl Harness {
    async fn start() -> Self {
        let model = Model::start().await;
        model.call_named_tools();
        let gateway = Gateway::start(Setup::scripted(&model)).await;
        Self { gateway, model }
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.gateway.workspace().join(name), content).unwrap();
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.gateway.workspace().join(name)).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_are_numbered_paged_and_decoded() {
    let harness = Harness::start().await;
    harness.put("n", (1..=300).map(|n| format!("line {n}\n")).collect::<String>());
    harness.put("long", format!("{}\nlast\n", "界".repeat(30_000)));
    let utf_16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    harness.put("wide", utf_16("\u{feff}one\r\n道友\r\n"));
    harness.put("gbk", encoding_rs::GBK.encode("道友，今天的天气很好，我们去山上喝茶吧。").0);
    harness.put("mostly", [&"道友，今天的天气很好。".repeat(9).into_bytes()[..], b"\xff\n"].concat());
    let page = harness.gateway.call_tool("read_file", &json!({"path": "n"})).await;
    assert!(page.starts_with("1\tline 1\n2\tline 2\n"), "{page}");
    assert!(page.ends_with("200\tline 200\n[lines 1-200 of 300; continue with offset=201]"), "{page}");
    for (arguments, expected) in [
        (json!({"path": "n", "offset": 299}), "299\tline 299\n300\tline 300\n[lines 299-300 of 300]"),
        (json!({"path": "n", "offset": 2, "limit": 1}), "2\tline 2\n[lines 2-2 of 300; continue with offset=3]"),
        (json!({"path": "n", "offset": 301}), "offset 301 is past the end: the file has 300 lines"),
        (json!({"path": "long"}), "界\n[line 1 of 2, characters 1-4998; continue with offset=1, column=4999]"),
        (json!({"path": "long", "column": 29_999}), "1\t界界\n2\tlast\n[lines 1-2 of 2]"),
        (json!({"path": "long", "column": 30_001}), "column 30001 is past the end of line 1"),
        (json!({"path": "wide"}), "1\tone\n2\t道友\n[encoding: UTF-16LE]"),
        (json!({"path": "gbk"}), "我们去山上喝茶吧。\n[encoding: GBK]"),
        (json!({"path": "mostly"}), "\u{fffd}\n[not UTF-8 throughout: what could not be read is shown as \u{fffd}]"),
    ] {
        let result = harness.gateway.call_tool("read_file", &arguments).await;
        assert!(result.contains(expected), "{arguments}: {result}");
    }
    assert_eq!(harness.model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_large_file_takes_no_more_memory() {
    let harness = Harness::start().await;
    let path = harness.gateway.workspace().join("large.log");
    let mut large = fs::File::create(&path).unwrap();
    let lines: String = (1..=400).map(|n| format!("line {n}, with some words to read\n")).collect();
    large.write_all(lines.as_bytes()).unwrap();
    large.seek(SeekFrom::Start(1_000_000_000)).unwrap();
    large.write_all("\nthe last line\n".as_bytes()).unwrap();
    drop(large);
    harness.gateway.call_tool("read_file", &json!({"path": "AGENTS.md"})).await;
    let before = peak_bytes(harness.gateway.pid());
    let first = harness.gateway.call_tool("read_file", &json!({"path": "large.log", "limit": 2})).await;
    assert_eq!(
        first,
        "1\tline 1, with some words to read\n2\tline 2, with some words to read\n\
         [lines 1-2 of 1000 MB; continue with offset=3]"
    );
    let last = harness.gateway.call_tool("read_file", &json!({"path": "large.log", "offset": 402})).await;
    assert_eq!(last, "402\tthe last line\n[lines 402-402 of 402]");
    let grown = peak_bytes(harness.gateway.pid()).saturating_sub(before);
    assert!(grown < 24 << 20, "a page of 1 GB took {grown} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_keep_the_form_of_a_file_and_show_the_difference() {
    let harness = Harness::start().await;
    harness.put("a.py", "def f():\r\n    if x:\r\n        y()\r\n    return 1\r\n");
    fs::set_permissions(harness.gateway.workspace().join("a.py"), PermissionsExt::from_mode(0o750)).unwrap();
    let edit = json!({"path": "a.py", "old_text": "if x:\n    y()  ", "new_text": "if w:\n    y()\n    z()"});
    let result = harness.gateway.call_tool("edit_file", &edit).await;
    assert_eq!(
        result,
        "Replaced 1 occurrence in a.py (spaces differed)\n@@ -1,4 +1,5 @@\n def f():\n-    if x:\n+    if w:\n         y()\n\
         +        z()\n     return 1"
    );
    assert_eq!(harness.text("a.py"), "def f():\r\n    if w:\r\n        y()\r\n        z()\r\n    return 1\r\n");
    let mode = fs::metadata(harness.gateway.workspace().join("a.py")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);

    let gbk = |text: &str| encoding_rs::GBK.encode(text).0.into_owned();
    harness.put("g.txt", gbk("今天的天气很好，我们去山上喝茶吧。"));
    let edits = json!([{"old_text": "今天", "new_text": "明天"}, {"old_text": "喝茶", "new_text": "看海"}]);
    let result = harness.gateway.call_tool("edit_file", &json!({"path": "g.txt", "edits": edits})).await;
    assert!(result.contains("Replaced 2 occurrences") && result.contains("+明天的天气"), "{result}");
    assert_eq!(harness.bytes("g.txt"), gbk("明天的天气很好，我们去山上看海吧。"));

    harness.put("b.txt", "one\ntwo\none\n");
    for (arguments, expected) in [
        (json!({"old_text": "one", "new_text": "1"}), "occurs 2 times in b.txt (lines 1, 3)"),
        (json!({"old_text": "tow", "new_text": "1"}), "was not found in b.txt"),
        (
            json!({"edits": [{"old_text": "two", "new_text": "2"}, {"old_text": "six", "new_text": "6"}]}),
            "edit 2: old_text was not found",
        ),
        (json!({"old_text": "two"}), "give both old_text and new_text"),
        (json!({}), "give old_text and new_text, or edits"),
        (json!({"edits": []}), "give old_text and new_text, or edits"),
    ] {
        let mut arguments = arguments;
        arguments["path"] = "b.txt".into();
        let result = harness.gateway.call_tool("edit_file", &arguments).await;
        assert!(result.starts_with("Error: ") && result.contains(expected), "{arguments}: {result}");
        assert_eq!(harness.text("b.txt"), "one\ntwo\none\n");
    }
    assert_eq!(
        harness.gateway.call_tool("write_file", &json!({"path": "b.txt", "content": "x\n"})).await,
        "Replaced b.txt: 1 line, 2 bytes"
    );
    assert_eq!(
        harness.gateway.call_tool("write_file", &json!({"path": "d/e", "content": ""})).await,
        "Created d/e: 0 lines, 0 bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_of_either_form_changes_all_its_files_or_none() {
    let harness = Harness::start().await;
    let reset = || {
        harness.put("a.txt", "one\ntwo\nthree\n");
        harness.put("b.txt", "b\n");
        harness.put("c.txt", "c\n");
        let _ = fs::remove_file(harness.gateway.workspace().join("sub/d.txt"));
        let _ = fs::remove_file(harness.gateway.workspace().join("new.txt"));
    };
    let unified = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -2,2 +2,2 @@\n two\n-three\n+3\n\
        diff --git a/b.txt b/sub/d.txt\nsimilarity index 50%\nrename from b.txt\nrename to sub/d.txt\n--- a/b.txt\n+++ b/sub/d.txt\n\
        @@ -1 +1 @@\n-b\n+d\n--- a/c.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-c\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n";
    let envelope = "*** Begin Patch\n*** Update File: a.txt\n@@ two\n-three\n+3\n*** Update File: b.txt\n*** Move to: sub/d.txt\n\
        @@\n-b\n+d\n*** Delete File: c.txt\n*** Add File: new.txt\n+new\n*** End Patch\n";
    for patch in [unified, envelope] {
        reset();
        let result = harness.gateway.call_tool("apply_patch", &json!({"patch": patch})).await;
        assert_eq!(
            result, "Changed 4 files:\nM a.txt (+1 -1)\nR b.txt -> sub/d.txt (+1 -1)\nD c.txt\nA new.txt (+1)",
            "{patch}"
        );
        assert_eq!(
            harness.text("a.txt") + &harness.text("sub/d.txt") + &harness.text("new.txt"),
            "one\ntwo\n3\nd\nnew\n"
        );
        for gone in ["b.txt", "c.txt"] {
            assert!(!harness.gateway.workspace().join(gone).exists(), "{gone}");
        }
    }
    reset();
    for (patch, expected) in [
        (
            unified.replace("-c\n", "-see\n"),
            "c.txt, hunk 1 (@@ -1 +0,0 @@): does not fit; nothing was changed. It expects:\n  see\nthe file has",
        ),
        (envelope.replace("*** Delete File: c.txt", "*** Delete File: gone.txt"), "gone.txt: no such file"),
        (envelope.replace("Add File: new.txt", "Add File: ../new.txt"), "have no .."),
        (envelope.replace("Add File: new.txt", "Add File: /etc/daoyou-new"), "outside the workspace"),
        (envelope.replace("Move to: sub/d.txt", "Move to: .daoyou/d.txt"), "off limits"),
        (unified.replace("b/new.txt", "b/../../new.txt"), "have no .."),
        ("change a.txt, please".to_owned(), "the patch changes no file"),
    ] {
        let result = harness.gateway.call_tool("apply_patch", &json!({ "patch": patch })).await;
        assert!(result.starts_with("Error: ") && result.contains(expected), "{expected}: {result}");
        assert_eq!(harness.text("a.txt") + &harness.text("b.txt") + &harness.text("c.txt"), "one\ntwo\nthree\nb\nc\n");
        assert!(
            !harness.gateway.workspace().join("new.txt").exists()
                && !harness.gateway.workspace().join("sub/d.txt").exists()
        );
    }
    assert_eq!(harness.model.refused(), Vec::<String>::new());
}

/// A repeated search of many files is served from the cache while none of them changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_search_is_answered_from_the_cache_until_a_file_changes() {
    let gateway = Gateway::start(Setup::new()).await;
    let folder = gateway.workspace().join("many");
    fs::create_dir(&folder).unwrap();
    for number in 0..1_100 {
        fs::write(folder.join(format!("{number}.txt")), "tea\n").unwrap();
    }
    let arguments = json!({"pattern": "oolong", "path": "many", "glob": "*7.txt"});
    let wide = json!({"pattern": "oolong", "path": "many"});
    let search = async |arguments: &Value| gateway.json(&["tools", "run", "grep", &arguments.to_string()]).await;
    let is_cached = |found: &Value| found["metadata"]["cached"] == true;
    let no_match = "No match.\n[searched 1100 files]";
    let first = search(&wide).await;
    assert!(!is_cached(&first) && first["content"].as_str().unwrap().ends_with(no_match), "{first}");
    // A file changed just before may change again unnoticed, so such results are not cached.
    let again = until("a cached result", async || Some(search(&wide).await).filter(is_cached)).await;
    assert_eq!((&again["content"], again["metadata"]["age_seconds"].is_u64()), (&first["content"], true));
    assert!(
        !is_cached(&search(&arguments).await) && !is_cached(&search(&arguments).await),
        "few files are searched anew"
    );
    let hits = gateway.json(&["status"]).await["caches"]["tools"]["hits"].as_u64().unwrap();
    fs::write(folder.join("7.txt"), "oolong\n").unwrap();
    let changed = search(&wide).await;
    assert!(!is_cached(&changed) && changed["content"].as_str().unwrap().contains("7.txt:1: oolong"), "{changed}");
    assert_eq!(gateway.json(&["status"]).await["caches"]["tools"]["hits"], json!(hits));
}

/// By its alias `text_search`, `grep` searches a plain text, in a turn and by hand.
#[tokio::test(flavor = "multi_thread")]
async fn text_search_searches_a_plain_text_in_a_turn_and_by_hand() {
    let harness = Harness::start().await;
    harness.put("a.c", "foo(1)\nFOO(2)\na.b\naxb\n");
    for (arguments, expected) in [
        (json!({"query": "foo(", "path": "a.c"}), "a.c:1: foo(1)\na.c:2: FOO(2)\n[searched 1 file]"),
        (json!({"query": "A.B", "path": "a.c"}), "a.c:3: a.b\n[searched 1 file]"),
    ] {
        assert_eq!(harness.gateway.call_tool("text_search", &arguments).await, expected, "{arguments}");
        let by_hand = harness.gateway.run_tool("text_search", &arguments).await;
        assert_eq!(by_hand["content"], expected, "{by_hand}");
    }
    assert_eq!(harness.model.refused(), Vec::<String>::new());
}
