//! Filters outputs of commands, tests and programs. Failures and their places, the first error, the lines that the question
//! asks for, and the end stay; reports of success are counted, and repeats are folded.

use std::collections::HashMap;

use super::filter::{FilterOutput, FilterQuery, FilterSettings, MIN_EVIDENCE, RawResult};
use super::intent::Intent;
use super::lines::{LineBudget, LineSelection, TextLines};
use super::question::Keyword;
use super::relevance::{KeywordMatcher, Relevance};
use crate::text::pattern;

/// The number of lines at the start and at the end that always stay.
const HEAD_LINES: usize = 3;
const TAIL_LINES: usize = 10;
/// The longest line that stays only because it is at the start or the end, in characters. A longer one would use up the budget.
const LONGEST_EDGE: usize = 500;
/// The share of the model's limit that all kept lines may fill, and the share for lines that are only related to the question.
const MAX_SHARE: f64 = 0.8;
const RELATED_SHARE: f64 = 0.45;
/// The share of the best line's relevance from which a line counts as one of the best.
const NEAR_BEST: f64 = 0.7;
/// The maximum number of lines after a failure that belong to it. An empty line ends them.
const LINES_AFTER_FAILURE: usize = 14;
/// The number of first lines with the same pattern that stay.
const KEPT_REPEATS: usize = 2;
/// The number of lines with the same pattern from which they count as repeats. They may differ in numbers.
const MIN_REPEATS: usize = 4;

pattern!(
    FAILURE,
    r"(?i)(^|[^a-z0-9_])(error|errors|failed|failure|failures|fatal|panicked|panic|exception|traceback|assertionerror|undefined reference|not found|no such file|permission denied|segmentation fault|killed|timed out|cannot|could not|unable to|refused|denied|✕|✗|×|not ok)([^a-z0-9_]|$)|^\s*(E\s{2,}|FAIL\b|ERR!|>\s.*:\d+)|[A-Z][A-Za-z]*(Error|Exception)\b|错误|失败|异常"
);
pattern!(
    /// A place in a file: `path:line`, or `File "path", line 5`.
    PLACE,
    r#"[\w./\\-]+\.\w{1,6}[:(]\d+|File "[^"]+", line \d+|^\s*-->\s"#
);
pattern!(
    /// A line that reports success or progress, or that nothing happened.
    NOISE,
    r"(?i)^\s*(test .* \.\.\. (ok|ignored)|ok \d+|(✓|✔|√)|pass(ed)?\b|compiling |checking |downloading |downloaded |fresh |collecting |using cached |requirement already satisfied|unpacking |selecting |preparing to unpack|get:\d|hit:\d|--- pass|=== run|=== (cont|pause)|\[\s*\d+%\])|\bPASSED\b|\.\.\. ok$|^[.sSx]+(\s+\[\s*\d+%\])?$"
);
pattern!(
    /// A count of zero failures, which is not a failure.
    ZERO,
    r"(?i)\b(0|no) (error|errors|failed|failures|failing)\b|failed[:=]\s*0\b|failures[:=]\s*0\b|errors[:=]\s*0\b"
);
pattern!(
    /// The parts of a line that may differ between repeats: numbers, times, digests, addresses.
    VARYING,
    r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+"
);
pattern!(
    /// A line of a log, which begins with a time.
    STAMP,
    r"^\[?(\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d+ \d\d:\d\d)|^\S+ \S+ \S+ \[\d\d/[A-Z][a-z]{2}/\d{4}"
);
pattern!(
    /// The name of a failed test, as test runners write it: pytest and `run_test`; pytest -v; Go; cargo; jest, mocha and
    /// vitest; TAP; unittest; nextest; googletest; Gradle.
    FAILED_TEST,
    r"^\s*(FAILED (\S*::\S|.*\(\S+:\d+\)$|\S+\.\w+( - |$))|\S+::.* FAILED\b|--- FAIL: \S|test .* \.\.\. FAILED|[✕✗✘×] \S|FAIL\s+[\w@./-]*[./]\S+|not ok \d+|(FAIL|ERROR): \S+ \(\S+\)|FAIL \[\s*[\d.]+m?s\]|\[\s*FAILED\s*\] \S|[\w.$]+ > .* FAILED$)"
);
pattern!(
    /// The name of a failed test in a result of `run_test`, which may lack a place.
    FAILED_IN_REPORT,
    r"^FAILED \S"
);
pattern!(WARNING, r"(?i)\bwarn(ing)?\b|警告");

/// Returns true if the lines are a log: most of them begin with a time.
pub fn is_log(lines: &TextLines<'_>) -> bool {
    let filled: Vec<&&str> = lines.bodies.iter().filter(|line| !line.trim().is_empty()).take(200).collect();
    let stamped = filled.iter().filter(|line| STAMP.is_match(line)).count();
    filled.len() >= 5 && stamped * 10 >= filled.len() * 6
}

/// The class of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineClass {
    Failure,
    Warning,
    Noise,
    Other,
}

fn class_of(line: &str) -> LineClass {
    if FAILURE.is_match(line) && !ZERO.is_match(line) && !NOISE.is_match(line) {
        LineClass::Failure
    } else if NOISE.is_match(line) {
        LineClass::Noise
    } else if WARNING.is_match(line) {
        LineClass::Warning
    } else {
        LineClass::Other
    }
}

/// Filters an output. Returns `None` if it has no failures, no noise, and no lines that the question asks for.
pub fn filter(raw: &RawResult<'_>, query: &FilterQuery, settings: &FilterSettings) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let lines = TextLines::of(body);
    let mut classes: Vec<LineClass> = lines.bodies.iter().map(|line| class_of(line)).collect();
    let relevance = query.rate(&lines.bodies);
    keep_wanted_noise(&lines, query, &mut classes);
    let is_log = is_log(&lines);
    // True for each line that names a failed test.
    let failed_tests: Vec<bool> =
        lines.bodies.iter().map(|line| !is_log && names_failed_test(raw.tool, line)).collect();
    // A question about all of something also asks for each repeat.
    let folded = if query.is_broad { vec![false; lines.len()] } else { fold(&lines, is_log, &failed_tests) };
    let budget = |share: f64| LineBudget {
        chars: (raw.limit.min(body.chars().count()) as f64 * share) as usize,
        lines: (settings.max_lines as f64 * share / MAX_SHARE).round() as usize,
    };
    let mut selection = LineSelection::of_short(&lines, (raw.limit as f64 * MAX_SHARE) as usize);
    keep_edges(&mut selection);
    let for_tests = budget(if query.is_about_failures() { MAX_SHARE } else { RELATED_SHARE });
    selection.keep_within(for_tests, (0..lines.len()).filter(|at| failed_tests[*at]));
    // Lines that the question asks for are kept before failures, which may have nothing to do with the question.
    let is_cut = body.chars().count() > raw.limit;
    let has_relevant = (!query.is_broad || is_cut) && keep_relevant(&relevance, query, &budget, &mut selection)?;
    let is_about_failures = query.intent == Intent::DebugError || !has_relevant;
    let for_failures = budget(if is_about_failures { MAX_SHARE } else { RELATED_SHARE });
    let has_failures = match keep_failures(&classes, &folded, for_failures, &mut selection) {
        None if is_about_failures => return None,
        found => found.unwrap_or(true),
    };
    let budget = budget(MAX_SHARE);
    let noise = classes.iter().filter(|class| **class == LineClass::Noise).count();
    let repeated = folded.iter().filter(|is_repeat| **is_repeat).count();
    let is_answered = !query.is_broad && (has_relevant || (has_failures && query.intent == Intent::DebugError));
    let rest = || (0..lines.len()).filter(|at| classes[*at] != LineClass::Noise && !folded[*at]);
    if !is_answered {
        // The question is about something else or about all, so only noise and repeats are removed. If the rest would be cut,
        // the lines that the question asks for were kept first.
        if (noise + repeated) * 3 < lines.len() && !(query.is_broad && is_cut) {
            return None;
        }
        selection.keep_within(budget, rest());
    } else if rest().map(|at| lines.chars(at..at + 1)).sum::<usize>() <= budget.chars / 3 {
        selection.keep_within(budget, rest());
    }
    let mut filtered = FilterOutput::of_lines(&selection, "lines", &remarks);
    let counted =
        |class: LineClass| (0..lines.len()).filter(|at| classes[*at] == class && !selection.keeps(*at)).count();
    let (passed, warnings) = (counted(LineClass::Noise), counted(LineClass::Warning));
    let counts = [(passed, "of progress or success"), (warnings, "warnings")];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    filtered.remark = (!counts.is_empty()).then(|| format!("left out: {}", counts.join(", ")));
    Some(filtered)
}

/// Keeps the first and the last lines.
fn keep_edges(selection: &mut LineSelection<'_>) {
    let lines = selection.lines;
    let edges = (0..HEAD_LINES.min(lines.len())).chain(lines.len().saturating_sub(TAIL_LINES)..lines.len());
    for at in edges.filter(|at| lines.chars(*at..at + 1) <= LONGEST_EDGE) {
        selection.keep_line(at);
    }
}

/// Reclassifies lines of success and progress that a question about all of something asks for, so that they are not
/// noise.
fn keep_wanted_noise(lines: &TextLines<'_>, query: &FilterQuery, classes: &mut [LineClass]) {
    if !query.is_broad || query.is_about_failures() || query.is_yes_or_no() {
        return;
    }
    // The word "test" does not select, since each line of a test runner is about a test.
    let is_test = |keyword: &Keyword| keyword.words.iter().any(|(word, _)| word == "test");
    let keywords: Vec<Keyword> = query.keywords.iter().filter(|keyword| !is_test(keyword)).cloned().collect();
    let (names_success, matcher) = (query.names_success(), KeywordMatcher::new(&keywords));
    let is_wanted = |line: &str| names_success || matcher.find(line).iter().any(|found| *found > 0.0);
    for (class, line) in classes.iter_mut().zip(&lines.bodies) {
        if *class == LineClass::Noise && is_wanted(line) {
            *class = LineClass::Other;
        }
    }
}

fn names_failed_test(tool: &str, line: &str) -> bool {
    FAILED_TEST.is_match(line) || (tool == "run_test" && FAILED_IN_REPORT.is_match(line))
}

/// Keeps failures with the lines that belong to them; returns true if there are any. Returns `None` if all are too long to
/// keep: a cut of the whole output shows more of them.
fn keep_failures(
    classes: &[LineClass],
    folded: &[bool],
    budget: LineBudget,
    selection: &mut LineSelection<'_>,
) -> Option<bool> {
    let lines = selection.lines;
    let failures: Vec<usize> = (0..lines.len()).filter(|at| classes[*at] == LineClass::Failure).collect();
    if !failures.is_empty() && failures.iter().all(|at| selection.is_too_long(*at)) {
        return None;
    }
    // The names and places of all failures come before the details of any failure.
    selection.keep_within(budget, failures.iter().copied().filter(|at| !folded[*at]));
    let mut is_near = vec![false; lines.len()];
    for at in &failures {
        is_near[at.saturating_sub(LINES_AFTER_FAILURE)..(at + LINES_AFTER_FAILURE + 1).min(lines.len())].fill(true);
    }
    let is_place = |at: &usize| is_near[*at] && !folded[*at] && PLACE.is_match(lines.bodies[*at]);
    selection.keep_within(budget, (0..lines.len()).filter(is_place));
    for at in &failures {
        if folded[*at] || budget.is_full(selection) {
            continue;
        }
        let details = (at + 1..lines.len()).take(LINES_AFTER_FAILURE);
        let end =
            details.take_while(|at| !lines.bodies[*at].trim().is_empty() && classes[*at] != LineClass::Noise).count();
        selection.keep(at.saturating_sub(1)..at + 1 + end);
    }
    Some(!failures.is_empty())
}

/// Keeps lines that the question asks for, the best first; returns true if the question distinguishes lines. Returns `None` if
/// the best ones are too long to keep: a cut of the whole output shows more of them.
fn keep_relevant(
    relevance: &Relevance,
    query: &FilterQuery,
    budget: &dyn Fn(f64) -> LineBudget,
    selection: &mut LineSelection<'_>,
) -> Option<bool> {
    if !query.distinguishes(relevance, MIN_EVIDENCE) {
        return Some(false);
    }
    let is_best = |at: &usize| relevance.scores[*at] >= NEAR_BEST * relevance.best;
    let order = relevance.relevant(query.threshold);
    if order.iter().filter(|at| is_best(at)).all(|at| selection.is_too_long(*at)) {
        return None;
    }
    for at in order {
        let (share, around) = if is_best(&at) { (MAX_SHARE, 2) } else { (RELATED_SHARE, 1) };
        if budget(share).is_full(selection) {
            break;
        }
        if !selection.is_too_long(at) {
            selection.keep_around(at, around);
        }
    }
    Some(true)
}

/// Returns true for each line that repeats others, apart from numbers. The first lines and the last line of each pattern are no
/// repeats.
fn fold(lines: &TextLines<'_>, is_log: bool, failed_tests: &[bool]) -> Vec<bool> {
    let pattern = |line: &str| VARYING.replace_all(line.trim(), "#").into_owned();
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, line) in lines.bodies.iter().enumerate() {
        // Short lines, such as a closing bracket, are part of other text and no repeats. A failing test is never a repeat
        // either.
        if is_log || (line.trim().len() > 12 && !failed_tests[at]) {
            places.entry(pattern(line)).or_default().push(at);
        }
    }
    let mut folded = vec![false; lines.len()];
    for places in places.values().filter(|places| places.len() >= MIN_REPEATS) {
        let rest = &places[KEPT_REPEATS..places.len() - 1];
        rest.iter().for_each(|at| folded[*at] = true);
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_failed_tests_are_seen_in_the_forms_of_runners() {
        for (line, expected) in [
            ("FAILED tests/test_a.py::test_b - assert 1 == 2", true),
            ("tests/test_a.py::test_b[x y] FAILED          [ 50%]", true),
            ("FAILED tests::widths (strsim/src/lib.rs:948)", true),
            ("FAILED braces.compile() should escape (braces/test/compile.js:34)", true),
            ("--- FAIL: TestParse (0.00s)", true),
            ("    --- FAIL: TestParse/empty (0.00s)", true),
            ("FAIL\texample.org/parse\t0.004s", true),
            ("test net::joins ... FAILED", true),
            ("  ✕ adds numbers (5 ms)", true),
            ("  × adds numbers", true),
            ("FAIL src/add.test.js", true),
            ("not ok 3 - adds numbers", true),
            ("FAIL: test_add (tests.test_math.Add)", true),
            ("ERROR: test_add (tests.test_math.Add)", true),
            ("        FAIL [   1.2s] daoyou store::opens", true),
            ("[  FAILED  ] Reader.Parses/7, where GetParam() = 7", true),
            ("ParserTest > case7() FAILED", true),
            ("org.example.ParserTest > handles > nothing FAILED", true),
            ("FAILED to fetch picture (https://cdn.example.org/7.png)", false),
            ("FAILED to open (config/settings.json)", false),
            ("Step 3: cp a > b FAILED", false),
            ("FAILED (failures=2)", false),
            ("[  FAILED  ]", false),
            ("3 > 2 FAILED again", false),
            ("test result: FAILED. 201 passed; 1 failed", false),
            ("FAIL", false),
            ("2024-05-01T10:00:00Z warn FAILED to renew the lease", false),
            ("job 7 FAILED after 3 tries", false),
            ("FAILED to renew the lease", false),
            ("size 3 × 4", false),
            ("ERROR: the disk is full", false),
        ] {
            assert_eq!(FAILED_TEST.is_match(line), expected, "{line}");
        }
    }
}
