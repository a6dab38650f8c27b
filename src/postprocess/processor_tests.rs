//! Tests of results and questions, with the expected outputs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::postprocess::config::{BasicConfig, ToolFilterConfig};

/// Processes a result with settings; `None` if it stays as it is.
fn process_with(
    config: PostprocessConfig,
    tool: &str,
    arguments: &Value,
    text: &str,
    question: &str,
) -> Option<FilteredResult> {
    let raw = RawResult { tool, arguments, text, limit: 12_000 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let processor = Postprocessor::new(config, None, None);
    runtime.block_on(processor.process(&raw, &Question::new(question), None, &mut Vec::new()))
}

pub(super) fn process(tool: &str, arguments: &Value, text: &str, question: &str) -> Option<FilteredResult> {
    process_with(PostprocessConfig::default(), tool, arguments, text, question)
}

/// Returns lines as `read_file` shows them.
pub(super) fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(at, line)| format!("{}\t{line}", at + 1)).collect::<Vec<_>>().join("\n")
}

/// Forty functions, one of which reads the retry limit.
fn source() -> String {
    let function = |at: usize| {
        let (name, body) = if at == 17 {
            ("retry_limit".to_owned(), "self.retries.min(MAX_RETRIES)".to_owned())
        } else {
            (format!("part_{at}"), format!("self.values[{at}]"))
        };
        format!("/// Returns something.\npub fn {name}(&self) -> usize {{\n    let value = {body};\n    value\n}}\n")
    };
    numbered(&(0..40).map(function).collect::<Vec<_>>().join("\n"))
}

fn matches(count: usize) -> String {
    let line = |at: usize| {
        format!(
            "src/file_{at}.rs:{}: let value_{at} = {};",
            at + 1,
            if at % 7 == 3 { "open_database(path)" } else { "compute(path)" }
        )
    };
    (0..count).map(line).collect::<Vec<_>>().join("\n") + "\n[searched 60 files]"
}

#[test]
fn the_only_matching_entry_of_a_list_is_enough_wherever_it_is() {
    for place in [0, 150, 299] {
        let name = |at: usize| if at == place { "tax.md".to_owned() } else { format!("photo_{at}.jpeg") };
        let list: Vec<String> = (0..300).map(name).collect();
        let result = process("list_dir", &json!({}), &list.join("\n"), "Where is the file tax.md?");
        let rendered = result.map(|result| result.render(None)).unwrap_or_default();
        assert!(rendered.contains("tax.md") && !rendered.contains("photo_7.jpeg"), "{place}: {rendered}");
        assert!(rendered.contains("1 of 300 entries"), "{place}: {rendered}");
    }
}

#[test]
fn every_failing_test_is_named_whatever_the_question_is_about() {
    let failure = |at: usize| format!("FAILED tests/test_time.py::test_parse[{at}] - assert {at} == 0");
    let passed = |at: usize| format!("tests/test_zone.py::test_zone_{at} PASSED");
    let lines: Vec<String> = (0..60).map(passed).chain((0..20).map(failure)).chain((60..90).map(passed)).collect();
    for question in ["which tests are failing?", "did test_zone_7 pass?", "时区的测试通过了吗"] {
        let done = process("exec", &json!({"command": "pytest"}), &lines.join("\n"), question).unwrap();
        let shown = done.render(None);
        for at in 0..20 {
            assert!(shown.contains(&format!("test_parse[{at}]")), "{question}: {shown}");
        }
    }
}

#[test]
fn a_file_keeps_what_the_question_asks_for_with_true_line_numbers() {
    let (path, source) = (json!({"path": "src/a.rs"}), source());
    let done = process("read_file", &path, &source, "Where is retry_limit computed?").unwrap();
    let shown = done.render(Some("the whole output: .daoyou/x.txt"));
    assert!(shown.contains("pub fn retry_limit(&self)") && shown.contains("MAX_RETRIES"), "{shown}");
    assert!(
        shown.lines().filter(|line| line.contains('\t')).all(|line| source.lines().any(|whole| whole == line)),
        "{shown}"
    );
    assert!(shown.len() < source.len() / 2);
    assert_eq!((done.intent, done.mode, done.output.unit), (Intent::General, PostprocessMode::Basic, "lines"));
    assert_eq!(done.keywords, ["retry_limit", "computed"]);
    assert!(shown.ends_with(&format!(
        "[filtered for the question: {} of {} lines; the whole output: .daoyou/x.txt]",
        done.output.kept, done.output.original
    )));
    let outline = process("read_file", &path, &source, "Show me the structure").unwrap().render(None);
    assert!((0..40).filter(|at| *at != 17).all(|at| outline.contains(&format!("fn part_{at}("))), "{outline}");
    assert!(!outline.contains("self.values[3]"), "{outline}");
    let outline = process("read_file", &path, &source, "结构和 zebras").map(|done| done.render(None));
    assert!(outline.as_ref().is_some_and(|outline| outline.contains("fn part_39(")), "{outline:?}");
}

#[test]
fn a_search_keeps_at_most_ten_relevant_matches_once_each() {
    let done = process("grep", &json!({"pattern": "let"}), &matches(60), "where is the database opened?").unwrap();
    let shown = done.render(None);
    assert_eq!((done.output.original, done.output.kept, done.output.unit), (60, 9, "matches"));
    assert!((0..60).filter(|at| at % 7 == 3).all(|at| shown.contains(&format!("src/file_{at}.rs:"))), "{shown}");
    assert!(shown.contains("[searched 60 files]"));
    let repeated = (0..40).map(|at| format!("a_{at}.rs:1: open_database();")).collect::<Vec<_>>().join("\n");
    let text = format!("{repeated}\n{}", matches(30));
    let shown = process("grep", &json!({}), &text, "where is the database opened?").unwrap().render(None);
    let places = "a_0.rs:1: open_database(); [also at a_1.rs:1, a_2.rs:1, a_3.rs:1, a_4.rs:1, a_5.rs:1 and 34 more]";
    assert!(shown.contains(places), "{shown}");
    let once = format!("a.rs:1: open_database();\nb.rs:9: open_database();\n{}", matches(30));
    let done = process("grep", &json!({}), &once, "where is the database opened?").unwrap();
    let shown = done.render(None);
    assert!(shown.contains("a.rs:1: open_database(); [also at b.rs:9]\n"), "{shown}");
    // The output shows both places, and four matches of another text.
    assert_eq!((done.output.original, done.output.kept), (32, 6), "{shown}");
    // The place that the question names comes first.
    let places = ["util/a.rs:1", "util/b.rs:2", "store/open.rs:9", "util/c.rs:3"];
    let repeated = places.map(|place| format!("{place}: open_database();")).join("\n");
    let text = format!("{repeated}\n{}", matches(30));
    let shown = process("grep", &json!({}), &text, "where does the store open the database?").unwrap().render(None);
    let line = "store/open.rs:9: open_database(); [also at util/a.rs:1, util/b.rs:2, util/c.rs:3]";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn an_output_keeps_failures_and_places_and_counts_what_passed() {
    let passed = (0..200).map(|at| format!("test parser::case_{at} ... ok")).collect::<Vec<_>>().join("\n");
    let text = format!(
        "   Compiling parser v0.1.0\nrunning 202 tests\n{passed}\ntest net::reconnects ... FAILED\n\nfailures:\n\n---- net::reconnects stdout ----\n\
         thread 'net::reconnects' panicked at src/net.rs:48:9:\nassertion `left == right` failed\n  left: 1\n right: 2\n\nfailures:\n    net::reconnects\n\n\
         test result: FAILED. 201 passed; 1 failed; 0 ignored; finished in 0.4s\n"
    );
    let done = process("exec", &json!({"command": "cargo test"}), &text, "why do the tests fail").unwrap();
    let shown = done.render(None);
    for expected in
        ["net::reconnects ... FAILED", "src/net.rs:48:9", "left: 1", "201 passed; 1 failed", "of progress or success"]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!shown.contains("case_100") && shown.len() * 10 < text.len() * 3, "{shown}");
}

#[test]
fn data_stays_data() {
    let records: Vec<Value> = (0..60).map(|at| json!({"name": format!("part-{at}"), "price": at * 3, "tags": ["a", "b"], "colour": if at == 31 { "crimson" } else { "grey" }})).collect();
    let text = serde_json::to_string_pretty(&json!({ "items": records, "total": 60 })).unwrap();
    for text in [text.clone(), numbered(&text)] {
        let done = process("read_file", &json!({"path": "parts.json"}), &text, "which part is crimson?").unwrap();
        let left: Value = serde_json::from_str(done.render(None).rsplit_once('\n').unwrap().0).unwrap();
        assert_eq!(left["items"][0]["name"], "part-31", "{left}");
        assert!(left["items"].as_array().unwrap().len() < 5, "{left}");
    }
    let rows = (0..120)
        .map(|at| format!("{at},person {at},{}", if at == 77 { "Lisbon" } else { "Oslo" }))
        .collect::<Vec<_>>()
        .join("\n");
    let table = numbered(&format!("id,name,city\n{rows}"));
    let done = process("read_file", &json!({"path": "people.csv"}), &table, "who lives in Lisbon?").unwrap();
    assert!(
        done.render(None).starts_with("1\tid,name,city\n...\n79\t77,person 77,Lisbon\n..."),
        "{}",
        done.render(None)
    );
    assert_eq!((done.output.original, done.output.kept, done.output.unit), (120, 1, "rows"));
    assert_eq!(process("read_file", &json!({"path": "people.csv"}), &table, "how many people live in Lisbon?"), None);
}

#[test]
fn a_result_stays_as_it_is_where_a_filter_would_harm() {
    let source = source();
    let diff = format!("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n{}", "+ retry_limit\n".repeat(200));
    let path = json!({"path": "src/a.rs"});
    for (why, tool, arguments, text, question) in [
        ("short", "read_file", path.clone(), "retry_limit", "retry_limit?"),
        ("no question", "read_file", path.clone(), source.as_str(), ""),
        ("no keyword", "read_file", path.clone(), source.as_str(), "what is it?"),
        (
            "the question is about something else",
            "read_file",
            path.clone(),
            source.as_str(),
            "weather in Paris tomorrow",
        ),
        (
            "a question about the whole",
            "read_file",
            path.clone(),
            source.as_str(),
            "summarise what retry_limit does here",
        ),
        ("a tool without a filter", "git_diff", json!({}), source.as_str(), "retry_limit"),
        ("an unknown tool", "weather_today", json!({}), source.as_str(), "retry_limit"),
        ("a diff", "exec", json!({"command": "git diff"}), diff.as_str(), "retry_limit"),
        ("an exact part", "read_file", json!({"path": "src/a.rs", "offset": 40}), source.as_str(), "retry_limit"),
        (
            "a result that was kept whole",
            "read_file",
            json!({"path": ".daoyou/conversations/a/spill/b.txt"}),
            source.as_str(),
            "retry_limit",
        ),
        ("few matches", "grep", json!({}), matches(10).as_str(), "database"),
    ] {
        assert_eq!(process(tool, &arguments, text, question), None, "{why}");
    }
    let shown = process("read_file", &path, &source, "retry_limit?").unwrap().render(Some("x"));
    assert_eq!(process("read_file", &path, &shown, "retry_limit?"), None, "a second time");
}

#[test]
fn each_setting_has_an_effect() {
    let path = json!({"path": "src/a.rs"});
    let with_tool = |tool: &str, set: ToolFilterConfig| PostprocessConfig {
        tools: BTreeMap::from([(tool.to_owned(), set)]),
        ..PostprocessConfig::default()
    };
    let source = source();
    let off = PostprocessConfig { enabled: false, ..PostprocessConfig::default() };
    assert_eq!(process_with(off, "read_file", &path, &source, "retry_limit?"), None);
    let no_words = PostprocessConfig {
        basic: BasicConfig { keyword_extraction: false, ..BasicConfig::default() },
        ..PostprocessConfig::default()
    };
    assert_eq!(process_with(no_words, "read_file", &path, &source, "retry_limit?"), None);
    let few = PostprocessConfig {
        basic: BasicConfig { max_keywords: 1, ..BasicConfig::default() },
        ..PostprocessConfig::default()
    };
    assert_eq!(
        process_with(few, "read_file", &path, &source, "retry_limit and retries?").unwrap().keywords,
        ["retry_limit"]
    );
    for set in [
        ToolFilterConfig { enabled: Some(false), ..ToolFilterConfig::default() },
        ToolFilterConfig { extract_relevant_sections: Some(false), ..ToolFilterConfig::default() },
    ] {
        assert_eq!(process_with(with_tool("read_file", set), "read_file", &path, &source, "retry_limit?"), None);
    }
    let lines = |most| {
        let set = ToolFilterConfig { max_lines: Some(most), ..ToolFilterConfig::default() };
        process_with(with_tool("read_file", set), "read_file", &path, &source, "retry_limit?").unwrap().output.kept
    };
    assert!(lines(12) <= 12 && lines(12) < lines(200));
    let kept = |set| {
        process_with(with_tool("grep", set), "grep", &json!({}), &matches(60), "where is the database opened?").unwrap()
    };
    assert_eq!(kept(ToolFilterConfig { max_results: Some(4), ..ToolFilterConfig::default() }).output.kept, 4);
    let repeated = (0..60)
        .map(|at| format!("a_{at}.rs:1: open_database();\nb_{at}.rs:2: other_{at}();"))
        .collect::<Vec<_>>()
        .join("\n");
    let all = ToolFilterConfig { deduplicate: Some(false), ..ToolFilterConfig::default() };
    let all =
        process_with(with_tool("grep", all), "grep", &json!({}), &repeated, "where is the database opened?").unwrap();
    assert!(!all.render(None).contains("also at"));
    let list = (0..60)
        .map(|at| format!("src/module_{at}/database_{at}.rs\nsrc/module_{at}/other.rs"))
        .collect::<Vec<_>>()
        .join("\n");
    let files = |set| {
        process_with(with_tool("glob", set), "glob", &json!({}), &list, "database files of module_7")
            .map(|done| done.output.kept)
    };
    assert!(files(ToolFilterConfig { max_files: Some(3), ..ToolFilterConfig::default() }).unwrap() <= 3);
    assert_eq!(files(ToolFilterConfig { filter_by_keywords: Some(false), ..ToolFilterConfig::default() }), None);
    // A lower threshold keeps more.
    let threshold = |share| {
        let basic = BasicConfig { relevance_threshold: share, ..BasicConfig::default() };
        let config = PostprocessConfig { basic, ..PostprocessConfig::default() };
        process_with(config, "exec", &json!({"command": "x"}), &log(), "database timeout in worker 7")
            .unwrap()
            .output
            .kept
    };
    assert!(threshold(0.2) > threshold(0.95));
}

/// A log in which some lines are about a database.
pub(super) fn log() -> String {
    let line = |at: usize| match at % 9 {
        0 => format!("step {at} a the database answered alpha{at}"),
        4 if at % 45 == 4 => format!("step {at} b worker 7 met a timeout of the database beta{at}"),
        _ => format!("step {at} c idle gamma{at} delta{at}"),
    };
    (0..300).map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn matches_stand_among_the_lines_around_them() {
    struct OneFile;
    #[async_trait::async_trait]
    impl FileLines for OneFile {
        async fn lines(&self, path: &str, first: usize, last: usize) -> Option<Vec<String>> {
            (!path.contains("file_3.")).then(|| {
                (first..=last)
                    .map(|line| {
                        if line % 7 == 4 {
                            format!("    let value_{} = open_database(path);", line - 1)
                        } else {
                            format!("line {line}")
                        }
                    })
                    .collect()
            })
        }
    }
    let text = matches(60);
    let raw = RawResult { tool: "grep", arguments: &json!({}), text: &text, limit: 12_000 };
    let question = Question::new("where is the database opened?");
    let shown = |config| async {
        let processor = Postprocessor::new(config, None, None);
        processor.process(&raw, &question, Some(&OneFile), &mut Vec::new()).await.unwrap().render(None)
    };
    let done = shown(PostprocessConfig::default()).await;
    assert!(done.contains("  9- line 9\n  10- line 10\nsrc/file_10.rs:11: let value_10 = open_database(path);\n  12- line 12\n  13- line 13\n"), "{done}");
    assert!(done.contains("src/file_3.rs:4: let value_3") && !done.contains("  5- line 5"), "{done}");
    let set = ToolFilterConfig { add_context_lines: Some(0), ..ToolFilterConfig::default() };
    let done =
        shown(PostprocessConfig { tools: BTreeMap::from([("grep".to_owned(), set)]), ..PostprocessConfig::default() })
            .await;
    assert!(!done.contains("10- line 10"), "{done}");
}

/// Two hundred lines, some of which are about the retry limit.
fn changed_lines() -> String {
    let line = |at: usize| if at % 40 == 3 { format!("+ retry_limit {at}") } else { format!("- value {at} of others") };
    (0..200).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_diff_stays_whole_in_every_form_and_with_numbered_lines() {
    let body = changed_lines();
    let plain = (0..60).map(|at| format!("{at}c{at},{}\n< retry_limit {at}\n---\n> part_{at}\n", at + 1));
    for (form, text) in [
        ("git", format!("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n{body}")),
        ("log", format!("commit 1a2b3c\n\n    Bound it\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n{body}")),
        ("mode", format!("notes\ndiff --git a/x b/x\nold mode 100644\nnew mode 100755\n{body}")),
        ("merge", format!("diff --cc x\nindex 1a,2b..3c\n--- a/x\n+++ b/x\n@@@ -1,3 -1,3 +1,3 @@@\n{body}")),
        ("part of a merge", format!("@@@ -1,3 -1,3 +1,3 @@@\n{body}")),
        ("unified", format!("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n{body}")),
        ("two names", format!("--- a/x\n+++ b/x\n{body}")),
        ("plain", plain.collect::<String>()),
        ("context", format!("*** a/x\n--- b/x\n***************\n*** 1,3 ****\n{body}")),
        ("patch", format!("*** Begin Patch\n*** Update File: x\n@@\n{body}")),
    ] {
        for (tool, text) in [("read_file", numbered(&text)), ("exec", text)] {
            assert_eq!(process(tool, &json!({"path": "x"}), &text, "where is retry_limit?"), None, "{form} {tool}");
        }
    }
    for text in [body.clone(), format!("from 1c2\n{body}\n--- a rule\ntext"), format!("@@ is a sign\n{body}")] {
        let done = process("read_file", &json!({"path": "x"}), &numbered(&text), "where is retry_limit?");
        assert!(done.is_some(), "{text}");
    }
}

#[test]
fn a_log_that_says_failed_often_keeps_what_the_question_asks_for() {
    let line = |at: usize| match at % 97 {
        50 => format!("2024-05-01T10:{:02}:{:02}Z info alice paid for order {}", at / 60 % 60, at % 60, 4_000 + at),
        _ => format!("2024-05-01T10:{:02}:{:02}Z warn FAILED to renew the lease of {at}", at / 60 % 60, at % 60),
    };
    let text = (0..800).map(line).collect::<Vec<_>>().join("\n");
    for (tool, text) in [("read_file", numbered(&text)), ("exec", text)] {
        let done = process(tool, &json!({"path": "app.log"}), &text, "what did alice pay for?").unwrap();
        let shown = done.render(None);
        for at in (50..800).step_by(97) {
            assert!(shown.contains(&format!("order {}", 4_000 + at)), "{tool}: {shown}");
        }
        assert!(shown.matches("FAILED").count() < 60, "{tool}: {shown}");
    }
}

#[test]
fn names_of_failed_tests_leave_room_for_what_the_question_asks_for() {
    let line = |at: usize| match at {
        400 => "cache directory: /var/cache/app".to_owned(),
        _ => format!("FAILED tests/test_time.py::test_parse_{} - assert {at} == 0", "x".repeat(60)),
    };
    let text = (0..800).map(line).collect::<Vec<_>>().join("\n");
    let shown = |question: &str| process("exec", &json!({"command": "pytest"}), &text, question).unwrap().render(None);
    let about_other = shown("which cache directory is used?");
    assert!(about_other.contains("/var/cache/app"), "{about_other}");
    let failed = |text: &str| text.matches("FAILED").count();
    let about_failures = shown("fix the error in test_parse");
    assert!(failed(&about_other) > 20 && failed(&about_failures) > failed(&about_other) * 3 / 2);
}

#[test]
fn a_question_about_all_of_something_leaves_nothing_out() {
    let (source, list) = (source(), matches(60));
    let map = (0..40)
        .map(|at| format!("src/part_{at}.rs:\n    fn retry_limit_{at}()\n    fn other_{at}()"))
        .collect::<Vec<_>>();
    let files =
        (0..60).map(|at| format!("src/module_{at}/database_{at}.rs\nsrc/module_{at}/other.rs")).collect::<Vec<_>>();
    let results = [
        ("read_file", json!({"path": "src/a.rs"}), source.as_str()),
        ("grep", json!({}), list.as_str()),
        ("repo_map", json!({}), &map.join("\n")),
        ("glob", json!({}), &files.join("\n")),
    ];
    for question in [
        "how many functions use retry_limit or open a database in module_7?",
        "list all places of retry_limit, database and module_7",
        "what is every error of retry_limit, database, module_7",
        "All definitions of retry_limit, database, module_7",
        "the structure of everything: all of retry_limit, database, module_7",
        "所有用到 retry_limit、database、module_7 的地方是什么",
        "全部 retry_limit、database、module_7 的错误",
        "有多少处用到 retry_limit、database、module_7",
        "每个 retry_limit、database、module_7 的定义",
        "列出 retry_limit、database、module_7",
    ] {
        for (tool, arguments, text) in &results {
            assert_eq!(process(tool, arguments, text, question), None, "{tool}: {question}");
        }
    }
    for (question, filtered) in [
        ("how does retry_limit work?", &["read_file"][..]),
        ("how does other_7 work?", &["repo_map", "glob"]),
        ("where is the database opened, overall?", &["grep"]),
        ("module_7 的 database 是多少？", &["glob"]),
    ] {
        for (tool, arguments, text) in &results {
            let is_filtered = process(tool, arguments, text, question).is_some();
            assert_eq!(is_filtered, filtered.contains(tool), "{tool}: {question}");
        }
    }
}

#[test]
fn an_output_loses_only_noise_for_a_question_about_all_of_it() {
    let line = |at: usize| match at % 3 {
        0 => {
            format!("worker {} reports database {}", ["red", "green", "blue"][at % 5 % 3], "abcdefghij".repeat(at % 7))
        }
        _ => format!("test parser::case_{at} ... ok"),
    };
    let text = (0..240).map(line).collect::<Vec<_>>().join("\n");
    let shown = process("exec", &json!({"command": "x"}), &text, "how many reports of the red worker?").unwrap();
    let shown = shown.render(None);
    for line in text.lines().filter(|line| line.starts_with("worker")) {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("case_100 "), "{shown}");
    // An output that is longer than the limit would be cut: its failures come before other lines.
    let line = |at: usize| match at % 9 {
        4 => format!("FAILED tests/test_time.py::test_{at} - assert"),
        _ => format!("the suite reports {} for {at}", "abcdefghij".repeat(at % 7)),
    };
    let text = (0..600).map(line).collect::<Vec<_>>().join("\n");
    let shown = process("exec", &json!({"command": "x"}), &text, "list every failing test").unwrap().render(None);
    for at in (4..600).step_by(9) {
        assert!(shown.contains(&format!("::test_{at} ")), "{at}: {shown}");
    }
    let table = (0..200).map(|at| format!("{at}\tperson {at}\tLisbon")).collect::<Vec<_>>().join("\n");
    let records: Vec<Value> = (0..60).map(|at| json!({"name": format!("part-{at}"), "price": at})).collect();
    for text in [table, serde_json::to_string_pretty(&records).unwrap()] {
        assert_eq!(process("exec", &json!({"command": "x"}), &text, "how many are person 7 or part-7?"), None);
    }
}

#[test]
fn one_huge_line_does_not_take_the_room_of_failures() {
    let middle = |at: usize| format!("step {at} does something else {}", "abc".repeat(at % 5));
    let middle = (0..200).map(middle).collect::<Vec<_>>().join("\n");
    let failure = "error: the lease is gone\n  --> src/lease.rs:48:9";
    for word in ["x1 ", "error x1 "] {
        let huge = word.repeat(40_000);
        for text in [
            format!("{huge}\n{middle}\n{failure}\n{middle}"),
            format!("{middle}\n{failure}\n{middle}\n{huge}"),
            format!("{middle}\n{huge}\n{failure}\n{middle}"),
        ] {
            let shown = process("exec", &json!({"command": "make"}), &text, "why the error?").unwrap().render(None);
            assert!(shown.contains(failure) && shown.chars().count() <= 12_000, "{}", &shown[..2_000]);
        }
    }
    // A huge line that answers the question is better cut than left out.
    let text = format!("{middle}\n{} retry_limit\n{middle}", "x1 ".repeat(40_000));
    assert_eq!(process("exec", &json!({"command": "make"}), &text, "what is retry_limit?"), None);
}

#[test]
fn the_best_section_keeps_its_heading_and_best_lines_if_it_is_larger_than_the_room() {
    let filler = |at: usize| format!("\n\n## Part {at}\n\nNothing of interest is here, number {at}.");
    let others = (0..40).map(filler).collect::<String>();
    let long = "Words about many other things fill this line. ".repeat(160);
    for section in [
        format!("{long}\nThe retry_limit is 5.\n{long}\n{long}"),
        format!("{long}{long}\nThe retry_limit is 5."),
        format!("The retry_limit is 5.\n{long}{long}"),
    ] {
        let text = format!("# Guide{others}\n\n## Limits\n\n{section}{others}");
        let done = process("web_fetch", &json!({"url": "https://a.example/x"}), &text, "what is retry_limit?").unwrap();
        let shown = done.render(None);
        assert!(shown.contains("## Limits\n") && shown.contains("The retry_limit is 5."), "{shown}");
        assert!(shown.chars().count() <= 12_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_text_gets_longer_and_nothing_panics(
        lines in prop::collection::vec("(\\PC{0,80}|[a-z_]{1,12}\\.rs:[0-9]{1,3}: [a-z ]{0,40}|(fn|def|class|#|##) [a-z_]{1,10}|error: [a-z ]{0,30}|\\{|\\}|\"[a-z]{1,8}\": [0-9]{1,4},)", 1..160),
        question in "(\\PC{0,40}|[a-z_ ]{0,40}|[一-龥]{0,12}|what is [a-z]{1,6}|结构)",
        tool in prop::sample::select(vec!["read_file", "grep", "exec", "web_fetch", "list_dir", "repo_map", "web_search", "run_test"]),
        ending in prop::sample::select(vec!["rs", "md", "csv", "json", "log", "txt"]),
        is_numbered in any::<bool>(),
    ) {
        let text = lines.join("\n");
        let text = if is_numbered { numbered(&text) } else { text };
        let arguments = json!({ "path": format!("a.{ending}") });
        if let Some(done) = process(tool, &arguments, &text, &question) {
            let shown = done.render(Some("the whole output: .daoyou/conversations/0123456789abcdef/spill/0123456789abcdef-call_1.txt"));
            prop_assert!(shown.chars().count() <= text.chars().count());
            prop_assert!(done.output.kept <= done.output.original && done.output.kept > 0);
            prop_assert_eq!(process(tool, &arguments, &shown, &question), None);
            if is_numbered && done.output.unit == "lines" {
                for line in shown.lines().filter(|line| line.contains('\t')) {
                    prop_assert!(text.lines().any(|whole| whole == line), "{}", line);
                }
            }
        }
    }
}
