//! Parses the output of `go test`, as JSON (test2json) or as text.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::report::{TestFailure, TestReport, number, sections};
use crate::text::pattern;

pattern!(PLACE, r"(?m)^\s*([^\s:]+\.go):(\d+): (.*)$");
pattern!(TEXT_END, r"(?m)^\s*--- (PASS|FAIL|SKIP): (\S+).*$");
pattern!(BUILD_ERROR, r"(?m)^(?:vet: )?(?:\./)?([^\s:]+\.go):(\d+):\d+: (.+)$");

/// The maximum size of the stored output of one test, in bytes, and the maximum number of tests.
const OUTPUT_BYTES: usize = 10_000;
const MAX_TESTS: usize = 100_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TestEvent {
    action: String,
    #[serde(default)]
    package: String,
    #[serde(default)]
    test: String,
    #[serde(default)]
    output: String,
}

/// The state of a test.
#[derive(Default)]
struct TestState {
    action: String,
    output: String,
}

/// Parses the output. `module` is the module of go.mod: packages below it correspond to folders.
pub(super) fn parse(text: &str, module: &str) -> TestReport {
    let mut tests: BTreeMap<(String, String), TestState> = BTreeMap::new();
    let mut plain = String::new();
    for line in text.lines() {
        let event = if line.starts_with('{') { serde_json::from_str::<TestEvent>(line).ok() } else { None };
        let Some(event) = event else {
            plain += line;
            plain.push('\n');
            continue;
        };
        if event.test.is_empty() {
            plain += &event.output;
        } else if tests.len() < MAX_TESTS {
            let state = tests.entry((event.package, event.test)).or_default();
            match event.action.as_str() {
                "output" if state.output.len() < OUTPUT_BYTES => state.output += &event.output,
                "pass" | "fail" | "skip" => state.action = event.action,
                _ => {}
            }
        }
    }
    if tests.is_empty() {
        // In the text format, the output of a failed test follows its name.
        for (end, output) in sections(&TEXT_END, &plain) {
            let state = TestState { action: end[1].to_lowercase(), output: output.to_owned() };
            tests.insert((String::new(), end[2].to_owned()), state);
        }
    }
    let mut report = report_of(&tests, module);
    if report.is_empty() {
        for found in BUILD_ERROR.captures_iter(&plain) {
            report.push(TestFailure::new(&found[3], Some((found[1].to_owned(), number(&found[2]))), ""));
        }
        report.is_build_error = !report.failures.is_empty();
    }
    report
}

fn report_of(tests: &BTreeMap<(String, String), TestState>, module: &str) -> TestReport {
    let mut report = TestReport::default();
    // A test with subtests fails and passes with them, so it is not counted itself.
    let parents: BTreeSet<(&str, &str)> =
        tests.keys().filter_map(|(package, test)| Some((package.as_str(), test.rsplit_once('/')?.0))).collect();
    for ((package, test), state) in tests {
        if parents.contains(&(package.as_str(), test.as_str())) {
            continue;
        }
        match state.action.as_str() {
            "pass" => report.add(1, 0, 0),
            "skip" => report.add(0, 0, 1),
            // A test without an end was still running when its program died.
            _ => {
                report.add(0, 1, 0);
                report.push(failure(package, test, &state.output, module));
            }
        }
    }
    report
}

fn failure(package: &str, test: &str, output: &str, module: &str) -> TestFailure {
    let folder =
        package.strip_prefix(module).filter(|_| !module.is_empty()).unwrap_or_default().trim_start_matches('/');
    let place = PLACE.captures(output);
    let file = place.as_ref().map(|place| {
        let is_whole = folder.is_empty() || place[1].contains('/');
        if is_whole { place[1].to_owned() } else { format!("{folder}/{}", &place[1]) }
    });
    let lines = output.lines().map(str::trim).filter(|line| !line.starts_with("=== ") && !line.starts_with("--- "));
    let message = lines.collect::<Vec<_>>().join("\n");
    let place = file.zip(place.map(|place| number(&place[2])));
    TestFailure::new(test, place, &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_text_are_read() {
        let event = |action: &str, test: &str, output: &str| {
            serde_json::json!({"Time": "2026-01-01T00:00:00Z", "Action": action, "Package": "example.org/x/calc",
                "Test": test, "Output": output})
            .to_string()
        };
        let events = [
            event("run", "TestAdds", ""),
            event("pass", "TestAdds", ""),
            event("run", "TestFails/zero", ""),
            event("output", "TestFails/zero", "=== RUN   TestFails/zero\n"),
            event("output", "TestFails/zero", "    calc_test.go:12: got 2, want 3\n"),
            event("output", "TestFails/zero", "    --- FAIL: TestFails/zero (0.00s)\n"),
            event("fail", "TestFails/zero", ""),
            event("fail", "TestFails", ""),
            event("skip", "TestLater", ""),
            event("fail", "", ""),
        ];
        let text = "--- PASS: TestAdds (0.00s)\n--- FAIL: TestFails (0.00s)\n    --- FAIL: TestFails/zero (0.00s)\n        \
                    calc_test.go:12: got 2, want 3\n--- SKIP: TestLater (0.00s)\nFAIL\n";
        for (text, file) in [(events.join("\n"), "calc/calc_test.go"), (text.to_owned(), "calc_test.go")] {
            let report = parse(&text, "example.org/x");
            assert_eq!((report.passed, report.failed, report.skipped), (1, 1, 1), "{text}");
            let failure = &report.failures[0];
            assert_eq!((failure.name.as_str(), failure.line), ("TestFails/zero", Some(12)));
            assert_eq!(failure.file.as_deref(), Some(file));
            assert!(failure.message.starts_with("calc_test.go:12: got 2, want 3"), "{failure:?}");
        }
    }

    #[test]
    fn errors_of_the_compiler_are_found() {
        let text = "# example.org/x [example.org/x.test]\n./calc_test.go:6:2: undefined: foo\nFAIL\texample.org/x [build failed]\n";
        let of_go_1_24 = serde_json::json!({"ImportPath": "example.org/x", "Action": "build-output",
            "Output": "./calc_test.go:6:2: undefined: foo\n"});
        for text in [text.to_owned(), of_go_1_24.to_string()] {
            let report = parse(&text, "");
            assert!(report.is_build_error, "{text}");
            assert_eq!(report.failures[0].file.as_deref(), Some("calc_test.go"));
        }
    }
}
