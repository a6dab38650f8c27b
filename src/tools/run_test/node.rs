//! Parses the output of JavaScript test runners: the TAP and default formats of `node --test`, jest, vitest and mocha.

use regex::{Captures, Regex};

use super::report::{MAX_FAILURES, TestFailure, TestReport, number};
use crate::text::pattern;

pattern!(NODE_COUNT, r"(?m)^(?:#|ℹ) (pass|fail|cancelled|skipped|todo) (\d+)$");
pattern!(TAP_FAILURE, r"(?m)^( *)not ok \d+ - (.+)\n +---\n((?:.*\n)*?) +\.\.\.$");
pattern!(TAP_PLACE, r"(?m)^ *location: '(.+):(\d+):\d+'$");
pattern!(TAP_ERROR, r"(?m)^ *error: (?:'(.*)'|\|-\n((?: {4,}.*\n|\s*\n)+))");
pattern!(SPEC_FAILURE, r"(?m)^test at (.+):(\d+):\d+\n✖ (.+?)(?: \([\d.]+m?s\))?$");
pattern!(JEST_COUNTS, r"(?m)^Tests:\s+(.*\d+ total)$");
pattern!(JEST_FAILURE, r"(?m)^ {2}● (.+)$");
pattern!(VITEST_COUNTS, r"(?m)^\s+Tests\s+(\d+ .*)\(\d+\)$");
pattern!(VITEST_FAILURE, r"(?m)^ FAIL  (.+)$");
pattern!(MOCHA_COUNT, r"(?m)^ {2}(\d+) (passing|failing|pending)\b");
pattern!(MOCHA_FAILURE, r"(?m)^ {2}\d+\) (.+)\n((?: {5,}.+\n)*)");
pattern!(COUNT, r"(\d+) (passed|failed|skipped|todo|pending)");
pattern!(FRAME, r"(?:file://)?([^\s():]+\.[cm]?[jt]sx?):(\d+):\d+");

/// The maximum number of lines that belong to one failure.
const FAILURE_LINES: usize = 60;

pub(super) fn parse(text: &str) -> TestReport {
    for parse in [node_report, jest_report, vitest_report, mocha_report] {
        let report = parse(text);
        if !report.is_empty() {
            return report;
        }
    }
    TestReport::default()
}

fn node_report(text: &str) -> TestReport {
    let mut report = TestReport::default();
    for count in NODE_COUNT.captures_iter(text) {
        report.add_named(number(&count[2]), &count[1]);
    }
    for found in TAP_FAILURE.captures_iter(text) {
        let (name, body) = (&found[2], &found[3]);
        // A suite fails because of its tests, which are reported separately.
        if body.contains("failureType: 'subtestsFailed'") || name.contains("# TODO") {
            continue;
        }
        let error = TAP_ERROR.captures(body);
        let message = error.as_ref().and_then(|error| error.get(1).or_else(|| error.get(2)));
        let message: Vec<&str> = message.map_or("", |text| text.as_str()).lines().map(str::trim).collect();
        let place = TAP_PLACE.captures(body).map(|place| (place[1].to_owned(), number(&place[2])));
        let frames = body.split_once("stack:").map_or("", |(_, stack)| stack);
        let place = frame_in(frames, place.as_ref().map(|(file, _)| file.as_str())).or(place);
        report.push(TestFailure::new(name, place, &message.join("\n")));
    }
    for (found, body) in failures(&SPEC_FAILURE, text, "\ntest at ").take(MAX_FAILURES) {
        let place = (found[1].to_owned(), number(&found[2]));
        let place = frame_in(body, Some(&place.0)).unwrap_or(place);
        report.push(TestFailure::new(&found[3], Some(place), message_of(body)));
    }
    report
}

fn jest_report(text: &str) -> TestReport {
    let mut report = TestReport::default();
    let Some(counts) = JEST_COUNTS.captures_iter(text).last() else { return report };
    add_counts(&mut report, &counts[1]);
    for (found, body) in failures(&JEST_FAILURE, text, "\n  ● ") {
        let failure = TestFailure::new(found[1].trim(), frame_in(body, None), message_of(body));
        let is_known = report.failures.iter().any(|known| known.name == failure.name);
        // A long run repeats its failures at the end. Console output has the same marker.
        if !is_known && !found[1].starts_with("Console") {
            report.push(failure);
        }
    }
    report
}

fn vitest_report(text: &str) -> TestReport {
    let mut report = TestReport::default();
    if let Some(counts) = VITEST_COUNTS.captures_iter(text).last() {
        add_counts(&mut report, &counts[1]);
    }
    for (found, body) in failures(&VITEST_FAILURE, text, "\n FAIL  ").take(MAX_FAILURES) {
        let name = found[1].trim();
        let file = name.split_once(" > ").map_or(name, |(file, _)| file);
        let place = frame_in(body, Some(file)).or_else(|| frame_in(body, None));
        report.push(TestFailure::new(name, place, message_of(body)));
    }
    report
}

fn mocha_report(text: &str) -> TestReport {
    let mut report = TestReport::default();
    for count in MOCHA_COUNT.captures_iter(text) {
        report.add_named(number(&count[1]), &count[2]);
    }
    let epilogue = text.find(" failing\n").map_or("", |at| &text[at..]);
    // A failure extends up to the next repetition of the list, so the number is limited here already.
    for (found, body) in failures(&MOCHA_FAILURE, epilogue, "\n  1) ").take(MAX_FAILURES) {
        let titles = std::iter::once(&found[1]).chain(found[2].lines()).map(str::trim);
        let name = titles.collect::<Vec<_>>().join(" ");
        let body = body.split("\n\n  ").next().filter(|part| part.contains("at ")).unwrap_or(body);
        report.push(TestFailure::new(name.trim_end_matches(':'), frame_in(body, None), message_of(body)));
    }
    report
}

fn add_counts(report: &mut TestReport, counts: &str) {
    for count in COUNT.captures_iter(counts) {
        report.add_named(number(&count[1]), &count[2]);
    }
}

/// Returns the matches of a failure's pattern, each with the text up to the next failure, which begins with `next`.
fn failures<'a>(pattern: &Regex, text: &'a str, next: &str) -> impl Iterator<Item = (Captures<'a>, &'a str)> {
    pattern.captures_iter(text).map(move |found| {
        let rest = &text[found.get_match().end()..];
        let rest = rest.find(next).map_or(rest, |end| &rest[..end]);
        let end = rest.match_indices('\n').nth(FAILURE_LINES).map_or(rest.len(), |(end, _)| end);
        (found, &rest[..end])
    })
}

/// Returns the first stack frame outside of libraries. With `file`, returns only a frame in that file.
fn frame_in(stack: &str, file: Option<&str>) -> Option<(String, u64)> {
    let mut frames = FRAME.captures_iter(stack).filter(|frame| {
        let is_own = file.is_none_or(|file| frame[1].ends_with(file) || file.ends_with(&frame[1]));
        is_own && !frame[1].contains("node_modules") && !frame[1].starts_with("node:")
    });
    frames.next().map(|frame| (frame[1].to_owned(), number(&frame[2])))
}

/// Returns the part of a failure that precedes the stack trace.
fn message_of(body: &str) -> &str {
    let is_frame = |line: &str| {
        let frame = line.trim_start();
        frame.len() < line.len() && (frame.starts_with("at ") || frame.starts_with("❯ "))
    };
    let message = body.split_inclusive('\n').take_while(|line| !is_frame(line));
    &body[..message.map(str::len).sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAP: &str = "TAP version 13
# Subtest: fails
not ok 2 - fails
  ---
  duration_ms: 3.388278
  location: '/w/a.test.js:4:1'
  failureType: 'testCodeFailure'
  error: |-
    Expected values to be strictly equal:
    
    2 !== 3
    
  code: 'ERR_ASSERTION'
  stack: |-
    TestContext.<anonymous> (/w/a.test.js:5:10)
    Test.runInAsyncScope (node:async_hooks:206:9)
  ...
# Subtest: suite
    not ok 1 - inner
      ---
      location: '/w/a.test.js:8:27'
      failureType: 'testCodeFailure'
      error: 'inner broke'
      stack: |-
        helper (/w/lib.js:8:53)
      ...
    1..2
not ok 4 - suite
  ---
  type: 'suite'
  location: '/w/a.test.js:8:1'
  failureType: 'subtestsFailed'
  ...
# tests 5
# pass 2
# fail 2
# cancelled 0
# skipped 1
# todo 0
";
    const SPEC: &str = "✔ adds (6.079184ms)
✖ fails (1.887456ms)
ℹ pass 2
ℹ fail 2
ℹ skipped 1

✖ failing tests:

test at a.test.js:4:1
✖ fails (1.887456ms)
  AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:
  
  2 !== 3
  
      at TestContext.<anonymous> (/w/a.test.js:5:10)
      at Test.runInAsyncScope (node:async_hooks:206:9)

test at a.test.js:8:27
✖ inner (0.269564ms)
  Error: inner broke
      at TestContext.<anonymous> (/w/lib.js:8:53)
";
    const JEST: &str = "FAIL jest/a.test.js
  suite
    ✕ fails (8 ms)

  ● Console

    console.log

  ● suite › fails

    expect(received).toBe(expected) // Object.is equality

    Expected: 3
    Received: 2

    > 4 |     expect(1 + 1).toBe(3);

      at Object.toBe (a.test.js:4:19)

Test Suites: 1 failed, 1 total
Tests:       1 failed, 1 skipped, 2 passed, 4 total
";
    const VITEST: &str = "
⎯⎯⎯⎯⎯⎯⎯ Failed Tests 1 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  a.test.js > suite > fails
AssertionError: expected 2 to be 3 // Object.is equality

- 3
+ 2

 ❯ a.test.js:5:19
      5|     expect(1 + 1).toBe(3);

 Test Files  1 failed (1)
      Tests  1 failed | 2 passed | 1 skipped (4)
";
    const MOCHA: &str = "
  suite
    ✔ adds
    1) fails
    - later


  2 passing (19ms)
  1 pending
  1 failing

  1) suite
       fails:

      AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:

2 !== 3

      + expected - actual

      at Context.<anonymous> (mocha/a.js:5:12)
      at process.processImmediate (node:internal/timers:483:21)
";

    #[test]
    fn each_form_is_read() {
        let line = |line: u64, file: &str| Some((file.to_owned(), line));
        let fails = |file: &str| ("fails", line(5, file), "2 !== 3");
        for (text, counts, expected) in [
            (TAP, (2, 2, 1), vec![fails("/w/a.test.js"), ("inner", line(8, "/w/a.test.js"), "inner broke")]),
            (SPEC, (2, 2, 1), vec![fails("/w/a.test.js"), ("inner", line(8, "a.test.js"), "Error: inner broke")]),
            (JEST, (2, 1, 1), vec![("suite › fails", line(4, "a.test.js"), "Received: 2")]),
            (VITEST, (2, 1, 1), vec![("a.test.js > suite > fails", line(5, "a.test.js"), "expected 2 to be 3")]),
            (MOCHA, (2, 1, 1), vec![("suite fails", line(5, "mocha/a.js"), "2 !== 3")]),
        ] {
            let report = parse(text);
            assert_eq!((report.passed, report.failed, report.skipped), counts, "{text}");
            assert_eq!(report.failures.len(), expected.len(), "{report:?}");
            for (failure, (name, place, message)) in report.failures.iter().zip(expected) {
                let got = failure.file.clone().zip(failure.line);
                assert!(failure.name == name && got == place && failure.message.contains(message), "{failure:?}");
                assert!(!failure.message.contains(" at "), "{failure:?}");
            }
        }
        assert!(parse("nothing to see").is_empty());
    }

    #[test]
    fn endless_failures_are_read_in_time() {
        let begun = std::time::Instant::now();
        let mocha = format!("  2 failing\n{}", "  2) x\n".repeat(20_000));
        let spec = format!("ℹ fail 1\n{}", "test at a.js:1:1\n✖ x\n".repeat(20_000));
        let vitest = format!("{}   Tests  1 failed (1)\n", " FAIL  a.js > x\n".repeat(20_000));
        for text in [mocha, spec, vitest, format!("  1 failing\n\n  1) x\n{}", "at ".repeat(100_000))] {
            let failures = parse(&text).failures.len();
            assert!(failures == MAX_FAILURES || failures == 1, "{failures}");
        }
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
