//! Parses the output of `cargo test`: the format of libtest, and errors of the compiler.

use std::collections::HashSet;

use super::report::{TestFailure, TestReport, number, sections};
use crate::text::pattern;

pattern!(RESULT, r"(?m)^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;");
pattern!(FAILED, r"(?m)^test (.+?)(?: - should panic)? \.\.\. FAILED$");
pattern!(SECTION, r"(?m)^---- (.+) stdout ----$");
// The formats since Rust 1.73, and before.
pattern!(PANIC, r"(?m)panicked at (?:'.*', )?([^\s':]+\.rs):(\d+):\d+:?\n?");
pattern!(PLACE, r"(?m) at ([^\s:]+\.rs):(\d+):\d+$");
pattern!(DOC_TEST, r"^(.+\.rs) - .*\(line (\d+)\)");
pattern!(COMPILE_ERROR, r"(?m)^(error(?:\[E\d+\])?: .+)\n(?:[^\n]*\n){0,2}? *--> ([^\s:]+):(\d+):\d+$");
pattern!(SECTION_END, r"(?m)^(?:failures:$|successes:$|test result: |stack backtrace:$|note: .*RUST_BACKTRACE)");

pub(super) fn parse(text: &str) -> TestReport {
    let mut report = TestReport::default();
    for found in RESULT.captures_iter(text) {
        report.add(number(&found[1]), number(&found[2]), number(&found[3]));
    }
    let mut names = HashSet::new();
    for (head, output) in sections(&SECTION, text) {
        names.insert(head[1].to_owned());
        report.push(failure(&head[1], output));
    }
    // With --nocapture, the output has no sections.
    for found in FAILED.captures_iter(text).filter(|found| !names.contains(&found[1])) {
        report.push(TestFailure::new(&found[1], None, ""));
    }
    if report.is_empty() {
        for found in COMPILE_ERROR.captures_iter(text) {
            report.push(TestFailure::new(&found[1], Some((found[2].to_owned(), number(&found[3]))), ""));
        }
        report.is_build_error = !report.failures.is_empty();
    }
    report
}

/// Parses the output of one failed test.
fn failure(name: &str, output: &str) -> TestFailure {
    let output = SECTION_END
        .find(output)
        .map_or(output, |end| if output[..end.start()].trim().is_empty() { output } else { &output[..end.start()] });
    let panic = PANIC.captures(output);
    let message = panic.as_ref().and_then(|panic| panic.get(0)).map_or(output, |found| &output[found.end()..]);
    let place = DOC_TEST.captures(name).or(panic).or_else(|| PLACE.captures(output));
    let place = place.map(|place| (place[1].to_owned(), number(&place[2])));
    TestFailure::new(name, place, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
     Running unittests src/lib.rs (target/debug/deps/calc-c6626fb655a8d231)

running 4 tests
test tests::adds ... ok
test tests::later ... ignored, slow
test tests::panics - should panic ... FAILED
test tests::fails ... FAILED

failures:

---- tests::panics stdout ----
note: test did not panic as expected at src/lib.rs:18:8
---- tests::fails stdout ----

thread 'tests::fails' (18025) panicked at src/lib.rs:11:9:
assertion `left == right` failed: sum
  left: 2
 right: 3
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    tests::fails
    tests::panics

test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.23s

error: test failed, to rerun pass `--lib`
     Running tests/it.rs (target/debug/deps/it-b462ec70d69dbcd3)

running 1 test
test result ... FAILED

failures:

---- result stdout ----
Error: \"no\"


failures:
    result

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests calc

running 1 test
test src/lib.rs - add (line 1) ... FAILED

failures:

---- src/lib.rs - add (line 1) stdout ----
Test executable failed (exit status: 101).

stderr:

thread 'main' (18053) panicked at src/lib.rs:5:1:
assertion `left == right` failed

failures:
    src/lib.rs - add (line 1)

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.44s
";

    #[test]
    fn failures_of_several_test_programs_are_found() {
        let report = parse(RUN);
        assert_eq!((report.passed, report.failed, report.skipped), (4, 4, 1));
        let found: Vec<_> = report.failures.iter().map(|f| (f.name.as_str(), f.file.as_deref(), f.line)).collect();
        let lib = Some("src/lib.rs");
        let expected = [
            ("tests::panics", lib, Some(18)),
            ("tests::fails", lib, Some(11)),
            ("result", None, None),
            ("src/lib.rs - add (line 1)", lib, Some(1)),
        ];
        assert_eq!(found, expected);
        assert_eq!(report.failures[1].message, "assertion `left == right` failed: sum\n  left: 2\n right: 3");
        assert_eq!(report.failures[2].message, "Error: \"no\"");
    }

    #[test]
    fn older_panics_and_runs_without_captured_output_are_read() {
        let old = "---- t stdout ----\nthread 't' panicked at 'no: 1', src/a.rs:3:5\nnote: run with `RUST_BACKTRACE=1`";
        let report = parse(&format!("test u ... FAILED\n{old}\n"));
        let places: Vec<_> = report.failures.iter().map(|f| (f.name.as_str(), f.line)).collect();
        assert_eq!(places, [("t", Some(3)), ("u", None)]);
    }

    #[test]
    fn errors_of_the_compiler_are_found() {
        let text = "   Compiling calc v0.1.0 (/w)\nerror[E0425]: cannot find value `foo` in this scope\n --> src/lib.rs:5:16\n  |\n\
                    error: expected one of `!`\n  --> src/a.rs:1:2\n   |\nerror: could not compile `calc` (lib) due to 2 previous errors\n";
        let report = parse(text);
        assert!(report.is_build_error && report.counts() == "does not compile: 2 errors", "{report:?}");
        let failure = &report.failures[0];
        assert_eq!(failure.name, "error[E0425]: cannot find value `foo` in this scope");
        assert_eq!((failure.file.as_deref(), failure.line), (Some("src/lib.rs"), Some(5)));
        assert!(parse("error: no test target named `x`\n").is_empty());
    }
}
