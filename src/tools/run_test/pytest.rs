//! Parses the output of pytest, with short or long tracebacks.

use super::report::{MAX_FAILURES, TestFailure, TestReport, number, sections};
use crate::text::pattern;

pattern!(COUNTS, r"(?m)^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s");
pattern!(COUNT, r"(\d+) ([a-z]+)");
pattern!(SUMMARY, r"(?m)^(?:FAILED|ERROR) (\S+\.py\S*.*)$");
pattern!(SECTION, r"(?m)^_{3,} (.+) _{3,}$");
pattern!(PLACE, r"(?m)^(\S+\.py):(\d+):");
pattern!(SYNTAX_PLACE, r#"(?m)^E +File "(.+)", line (\d+)"#);
pattern!(ERROR_LINE, r"(?m)^E +(.+)$");

pub(super) fn parse(text: &str) -> TestReport {
    let mut report = TestReport::default();
    let Some(counts) = COUNTS.captures_iter(text).last() else { return report };
    for count in COUNT.captures_iter(&counts[1]) {
        report.add_named(number(&count[1]), &count[2]);
    }
    let sections: Vec<_> =
        sections(&SECTION, text).map(|(head, body)| (head.get(1).map_or("", |name| name.as_str()), body)).collect();
    // Each failure is looked up in all sections, so the number is limited here already.
    for found in SUMMARY.captures_iter(text).take(MAX_FAILURES) {
        let (name, message) = split_summary(&found[1]);
        report.push(failure(name, message, &sections));
    }
    report
}

/// Splits a line of the summary into the test's name and the message. The parameters of a test may contain the separator.
fn split_summary(line: &str) -> (&str, &str) {
    let first = line.find(" - ");
    let in_brackets = line.find('[').filter(|at| first.is_none_or(|first| *at < first));
    let cut = match in_brackets {
        Some(at) => line[at..].find("] - ").map(|end| at + end + 1),
        None => first,
    };
    cut.map_or((line, ""), |cut| (&line[..cut], &line[cut + 3..]))
}

/// Returns a failure, with the place and message from its traceback.
fn failure(name: &str, message: &str, sections: &[(&str, &str)]) -> TestFailure {
    let (file, test) = name.split_once("::").unwrap_or((name, ""));
    let dotted = test.replace("::", ".");
    let is_own = |head: &str| match head.strip_prefix("ERROR ") {
        Some(what) => {
            what == format!("collecting {file}") || !test.is_empty() && what.ends_with(&format!(" of {dotted}"))
        }
        None => head == dotted,
    };
    let own = sections.iter().filter(|(head, _)| is_own(head));
    // Two files may contain tests of the same name.
    let places = |text: &str| -> Option<u64> {
        let all = PLACE.captures_iter(text).chain(SYNTAX_PLACE.captures_iter(text));
        let mut of_file = all.filter(|place| place[1] == *file || place[1].ends_with(&format!("/{file}")));
        of_file.next().map(|place| number(&place[2]))
    };
    let section = own.clone().find(|(_, text)| places(text).is_some()).or_else(|| own.clone().next());
    let line = section.and_then(|(_, text)| places(text));
    let errors = section.map(|(_, text)| ERROR_LINE.captures_iter(text).map(|found| found[1].to_owned()).collect());
    let errors: Vec<String> =
        errors.filter(|errors: &Vec<String>| !errors.is_empty()).unwrap_or(vec![message.to_owned()]);
    let mut failure = TestFailure::new(name, None, &errors.join("\n"));
    (failure.file, failure.line) = (Some(file.to_owned()), line);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: &str = "\
==================================== ERRORS ====================================
_________________________ ERROR at setup of test_error _________________________
t/test_a.py:15: in broken
    def broken(): raise ValueError(\"fixture broke\")
E   ValueError: fixture broke
=================================== FAILURES ===================================
_____________________________ TestA.test_x[p - q] ______________________________
t/test_a.py:11: in test_x
    helper(1)
t/test_a.py:3: in helper
    assert x == 2, \"from helper\"
E   AssertionError: from helper
E   assert 1 == 2
=========================== short test summary info ============================
FAILED t/test_a.py::TestA::test_x[p - q] - AssertionError: from helper
ERROR t/test_a.py::test_error - ValueError: fixture broke
========== 1 failed, 2 passed, 1 skipped, 1 xfailed, 1 error in 0.07s ==========
";

    #[test]
    fn failures_and_errors_are_found_with_their_places() {
        let report = parse(SHORT);
        assert_eq!((report.passed, report.failed, report.skipped), (2, 2, 2));
        let found: Vec<_> = report.failures.iter().map(|f| (f.name.as_str(), f.line, f.message.as_str())).collect();
        let expected = [
            ("t/test_a.py::TestA::test_x[p - q]", Some(11), "AssertionError: from helper\nassert 1 == 2"),
            ("t/test_a.py::test_error", Some(15), "ValueError: fixture broke"),
        ];
        assert_eq!(found, expected);
        assert_eq!(report.failures[0].file.as_deref(), Some("t/test_a.py"));
    }

    #[test]
    fn endless_failures_are_read_in_time() {
        let begun = std::time::Instant::now();
        let sections = "____ test_x ____\nE   x\n".repeat(2_000);
        let text = format!("{sections}{}1 failed in 0.02s\n", "FAILED t.py::test_x - x\n".repeat(2_000));
        assert_eq!(parse(&text).failures.len(), MAX_FAILURES);
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }

    #[test]
    fn long_tracebacks_and_files_that_do_not_load_are_read() {
        let long = "___________ test_fails ___________\n\n    def test_fails():\n>       assert x == 2\nE       assert 1 == 2\n\n\
                    test_a.py:7: AssertionError\n=== short test summary info ===\n\
                    FAILED test_a.py::test_fails - assert 1 == 2\n1 failed in 0.02s\n";
        let failure = &parse(long).failures[0];
        assert_eq!((failure.line, failure.message.as_str()), (Some(7), "assert 1 == 2"));
        let syntax = "___ ERROR collecting test_s.py ___\n/usr/lib/x.py:1: in y\nE     File \"/w/test_s.py\", line 1\n\
                      E   SyntaxError: invalid syntax\n== short test summary info ==\nERROR test_s.py\n== 1 error in 0.36s ==\n";
        let report = parse(syntax);
        assert_eq!((report.failed, report.failures[0].line), (1, Some(1)));
        assert!(parse("=== no tests ran in 0.01s ===\n").is_empty());
    }
}
