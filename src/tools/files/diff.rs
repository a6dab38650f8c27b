//! Shows a tool's changes of files as unified diffs of limited size.

use std::borrow::Cow;
use std::time::Duration;

use similar::TextDiff;

use crate::text::{plural, truncate};
use crate::tools::OutputLimit;

/// The maximum number of characters of a line.
const LINE_CHARS: usize = 300;
/// The number of unchanged lines around a change.
const CONTEXT: usize = 2;
/// How long the search for the smallest diff of a file may take. After that, a larger one is shown.
const TIME: Duration = Duration::from_millis(200);

/// The size limits of the diffs of a call that changes one file, and of a call that changes many files.
pub(super) const DIFF_OF_ONE_FILE: OutputLimit = OutputLimit { lines: 120, chars: 6_000 };
pub(in crate::tools) const DIFFS_OF_MANY_FILES: OutputLimit = OutputLimit { lines: 400, chars: 14_000 };

/// A file before and after a change.
pub(in crate::tools) struct FileDiff<'a> {
    /// The path in the header of the diff. Without one, the diff has no header.
    pub shown: Option<Cow<'a, str>>,
    pub old: Cow<'a, str>,
    pub new: Cow<'a, str>,
}

/// Returns the lines of the diffs, and notes about the parts that are not shown.
pub(in crate::tools) fn render_diffs<'a>(
    files: impl ExactSizeIterator<Item = FileDiff<'a>>,
    limits: OutputLimit,
) -> Vec<String> {
    let (mut lines, mut chars) = (Vec::new(), 0);
    let count = files.len();
    for (number, FileDiff { shown, old, new }) in files.enumerate() {
        if lines.len() >= limits.lines || chars >= limits.chars {
            lines.push(format!("[{}, not shown]", plural(count - number, "more file")));
            break;
        }
        let diff = TextDiff::configure().timeout(TIME).diff_lines(&*old, &*new);
        let mut unified = diff.unified_diff();
        unified.context_radius(CONTEXT);
        match &shown {
            Some(path) => unified.header(&format!("a/{path}"), &format!("b/{path}")),
            None => unified.missing_newline_hint(false),
        };
        let unified = unified.to_string();
        let mut rest = unified.lines();
        while lines.len() < limits.lines && chars < limits.chars {
            let Some(line) = rest.next() else { break };
            let line = truncate(line, LINE_CHARS);
            chars += line.chars().count() + 1;
            lines.push(line);
        }
        let left = rest.count();
        if left > 0 {
            let of = shown.as_deref().unwrap_or("the difference");
            lines.push(format!("[{left} more lines of {of}]"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown_within_their_bounds() {
        let many = |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}{n}\n")).collect::<String>();
        let show = |count: usize, files: usize, limits: OutputLimit| {
            let (old, new) = (many("a", count), many("b", count));
            let change = |_| FileDiff { shown: Some("f".into()), old: (&*old).into(), new: (&*new).into() };
            render_diffs((0..files).map(change), limits)
        };
        assert_eq!(show(1, 1, DIFF_OF_ONE_FILE), ["--- a/f", "+++ b/f", "@@ -1 +1 @@", "-a0", "+b0"]);
        let cut = show(300, 3, DIFFS_OF_MANY_FILES);
        assert_eq!((cut.len(), &*cut[400], &*cut[401]), (402, "[203 more lines of f]", "[2 more files, not shown]"));
        let line = "x".repeat(1_000);
        let change = FileDiff { shown: None, old: "".into(), new: (&*line).into() };
        let lines = render_diffs([change].into_iter(), OutputLimit { lines: 9, chars: 100 });
        assert_eq!((lines.len(), lines[1].chars().count()), (2, LINE_CHARS));
    }
}
