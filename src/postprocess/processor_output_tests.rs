//! Tests with outputs of commands, tests and programs.

use serde_json::json;

use super::tests::{numbered, process};

/// Processes the output of a command; `None` if it stays as it is.
fn process_output(text: &str, question: &str) -> Option<String> {
    process("exec", &json!({"command": "x"}), text, question).map(|done| done.render(None))
}

fn lines_of(line: impl Fn(usize) -> String, count: usize) -> String {
    (0..count).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_succeeded_stays_if_the_question_is_about_all_of_it() {
    let compiled = lines_of(|at| format!("   Compiling parser_{at} v0.{at}.1 (registry)"), 100);
    let passed = lines_of(|at| format!("test parser::case_{at} ... ok"), 100);
    let ticked = lines_of(|at| format!("  ✓ adds {at} numbers in any order (5 ms)"), 100);
    for (text, question) in [
        (&compiled, "list every crate that was compiled"),
        (&compiled, "列出所有编译过的 crate"),
        (&passed, "list all tests that passed"),
        (&passed, "list all cases of the parser"),
        (&ticked, "list all tests that passed"),
        (&ticked, "列出所有通过的测试"),
        (&ticked, "which of all cases were successful? list every one"),
    ] {
        assert_eq!(process_output(text, question), None, "{question}");
    }
    let failed = "test net::joins ... FAILED\ntest result: FAILED. 100 passed; 1 failed";
    for question in [
        "list all tests that failed",
        "list all tests that did not pass",
        "did all tests pass?",
        "can you check whether all tests pass?",
        "run all tests",
        "所有测试都通过了吗？",
        "所有测试是否都通过",
        "列出所有失败的测试",
        "列出所有未通过的测试",
    ] {
        let shown = process_output(&format!("{passed}\n{failed}"), question).unwrap_or_else(|| panic!("{question}"));
        assert!(shown.contains(failed) && !shown.contains("case_50 "), "{question}: {shown}");
    }
}

#[test]
fn numbered_names_of_failed_tests_are_no_repeats_in_the_forms_of_all_runners() {
    let passed = lines_of(|at| format!("the suite of the parser does step {at} of {}", "x".repeat(at % 7)), 60);
    let passed = format!("{passed}\nthe cache directory is /var/cache/app\n{passed}");
    let forms: [(&str, &dyn Fn(usize) -> String); 5] = [
        ("exec", &|at| format!("[  FAILED  ] Reader.Parses/{at}, where GetParam() = {at}")),
        ("exec", &|at| format!("[  FAILED  ] Reader.Parses{at} (0 ms)")),
        ("exec", &|at| format!("ParserTest > case{at}() FAILED")),
        ("run_test", &|at| format!("FAILED case {at}")),
        ("run_test", &|at| format!("FAILED case {at} (test/parser.spec.js)")),
    ];
    for (tool, form) in forms {
        let failed = lines_of(form, 30);
        let text = format!("{passed}\n{failed}\n{passed}");
        let done = process(tool, &json!({"command": "x"}), &text, "which cache directory is used?");
        let shown = done.unwrap_or_else(|| panic!("{}", form(0))).render(None);
        for line in failed.lines() {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }
}

#[test]
fn a_failure_on_a_huge_line_stays_if_it_is_the_only_one() {
    let noise = lines_of(|at| format!("   Compiling parser_{at} v0.{at}.1 (registry)"), 200);
    let text = format!("{noise}\nError: the bundle is broken {}\n{noise}", "at main.min.js:1:77 ".repeat(700));
    assert_eq!(process_output(&text, "why does it fail with an error?"), None);
    let steps = lines_of(|at| format!("the suite of the parser does step {at} of {}", "x".repeat(at % 7)), 200);
    let text = format!("{steps}\nthe server listens on port 18790\n{text}");
    let shown = process_output(&text, "which port does the server listen on?").unwrap();
    assert!(shown.contains("port 18790"), "{shown}");
}

#[test]
fn how_arguments_are_passed_is_no_question_about_failures() {
    let line = |at: usize| match at {
        700 => "arguments are passed to the hook as JSON, one a line".to_owned(),
        _ => format!("FAILED tests/test_time.py::test_parse_{} - assert {at} == 0", "x".repeat(60)),
    };
    let text = lines_of(line, 800);
    let shown = |question: &str| process_output(&text, question).unwrap();
    let about_other = shown("how are arguments passed to the hook?");
    assert!(about_other.contains("passed to the hook as JSON"), "{about_other}");
    let failed = |text: &str| text.matches("FAILED").count();
    assert!(failed(&shown("why do the tests not pass?")) > failed(&about_other) * 3 / 2);
}

#[test]
fn a_log_keeps_the_lines_of_a_day_that_the_question_names_as_logs_do() {
    let line = |at: usize| format!("2024-05-{:02}T10:00:{:02}Z info served request alpha{at}", at / 30 + 1, at % 30);
    let text = numbered(&lines_of(line, 600));
    let done = process("read_file", &json!({"path": "app.log"}), &text, "what was served on 2024-05-07?").unwrap();
    let shown = done.render(None);
    assert!(shown.contains("2024-05-07T10:00:00Z") && shown.contains("2024-05-07T10:00:29Z"), "{shown}");
    assert!(!shown.contains("2024-05-17T"), "{shown}");
}
