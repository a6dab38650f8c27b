//! Parses the output of Maven: the summary of the Surefire plugin, and errors of the compiler.

use super::report::{TestFailure, TestReport, number};
use crate::text::pattern;

// The pattern matches the total of a module. The line of a class continues with its time.
pattern!(TOTAL, r"(?m)^\[\w+\]\s+Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$");
pattern!(
    FAILURE,
    r"(?m)^\[ERROR\] {2,}([\w$]+(?:\.[\w$]+)*)\.([\w$]+)(?:\[.*\])?(?:\(.*?\))?(?:->[\w$.<>]+)?(?::(\d+))?(?:->\S+)? (.+)$"
);
pattern!(COMPILE_ERROR, r"(?m)^\[ERROR\] (/?\S+\.(?:java|kt|scala)):\[(\d+),\d+\] (.+)$");

pub(super) fn parse(text: &str) -> TestReport {
    let mut report = TestReport::default();
    for total in TOTAL.captures_iter(text) {
        let [run, failures, errors, skipped] = [1, 2, 3, 4].map(|at| number(&total[at]));
        let failed = failures.saturating_add(errors);
        report.add(run.saturating_sub(failed).saturating_sub(skipped), failed, skipped);
    }
    if !report.is_empty() {
        for found in FAILURE.captures_iter(text) {
            let class = found[1].rsplit('.').next().unwrap_or_default();
            let outer = class.split('$').next().unwrap_or_default();
            let line = found.get(3).map(|line| number(line.as_str()));
            let name = format!("{}.{}", &found[1], &found[2]);
            let mut failure = TestFailure::new(&name, None, &found[4]);
            (failure.file, failure.line) = (Some(format!("{outer}.java")), line);
            if !report.failures.iter().any(|known| known.name == failure.name) {
                report.push(failure);
            }
        }
        return report;
    }
    for found in COMPILE_ERROR.captures_iter(text) {
        let failure = TestFailure::new(&found[3], Some((found[1].to_owned(), number(&found[2]))), "");
        // Maven repeats failures at the end.
        if !report.failures.contains(&failure) {
            report.push(failure);
        }
    }
    report.is_build_error = !report.failures.is_empty();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
[INFO] Running org.example.CalcTest
[ERROR] Tests run: 3, Failures: 1, Errors: 1, Skipped: 0, Time elapsed: 0.05 s <<< FAILURE! - in org.example.CalcTest
[ERROR] org.example.CalcTest.adds -- Time elapsed: 0.01 s <<< FAILURE!
org.opentest4j.AssertionFailedError: expected: <3> but was: <2>
\tat org.example.CalcTest.adds(CalcTest.java:12)
[INFO] Results:
[INFO]
[ERROR] Failures:
[ERROR]   CalcTest.adds:12 expected: <3> but was: <2>
[ERROR] Errors:
[ERROR]   CalcTest.divides:20 » Arithmetic / by zero
[INFO]
[ERROR] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1
[INFO]
[ERROR] Failed to execute goal org.apache.maven.plugins:maven-surefire-plugin:3.2.5:test (default-test) on project calc
";

    #[test]
    fn the_summary_and_errors_of_the_compiler_are_read() {
        let report = parse(RUN);
        assert_eq!((report.passed, report.failed, report.skipped), (2, 2, 1));
        let found: Vec<_> = report.failures.iter().map(|f| (f.name.as_str(), f.line, f.message.as_str())).collect();
        let expected = [
            ("CalcTest.adds", Some(12), "expected: <3> but was: <2>"),
            ("CalcTest.divides", Some(20), "» Arithmetic / by zero"),
        ];
        assert_eq!(found, expected);
        assert_eq!(report.failures[0].file.as_deref(), Some("CalcTest.java"));
        let compile = "[ERROR] COMPILATION ERROR :\n[ERROR] /w/src/A.java:[3,5] cannot find symbol\n[INFO] 1 error\n\
                       [ERROR] /w/src/A.java:[3,5] cannot find symbol\n";
        let report = parse(compile);
        assert!(report.is_build_error && report.failures.len() == 1, "{report:?}");
        assert_eq!(report.failures[0].line, Some(3));
    }
}
