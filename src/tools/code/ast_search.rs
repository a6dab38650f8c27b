//! The tool `ast_grep_search`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::ast_grep::CodePattern;
use super::scan::{SourceScope, line_starts, source_text};
use crate::guard::{Jail, WalkStop};
use crate::text::truncate;
use crate::tools::files::{ReadContext, ReadScope, ReadTool, ShownFiles, files_word, skip_note};
use crate::tools::{OutputLimit, Tool, ToolDefinition, ToolResult};

/// The maximum number of matches that are shown.
const MAX_SHOWN: usize = 100;
/// The maximum number of lines that are shown of a match, and of characters of each line.
const MATCH_LINES: usize = 5;
const LINE_CHARS: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct AstGrepSearchArgs {
    /// Code, such as f($A, $$$B).
    pattern: String,
    lang: String,
    path: Option<String>,
}

/// Returns the tool `ast_grep_search`, which searches code by patterns.
pub fn ast_grep_search(scope: ReadScope, timeout: Duration) -> Arc<dyn Tool> {
    let definition = ToolDefinition {
        output_limit: OutputLimit { chars: 16_000, lines: MAX_SHOWN * (MATCH_LINES + 1) + 10 },
        ..ToolDefinition::reading::<AstGrepSearchArgs>("ast_grep_search", "Search code by its syntax.")
    };
    Arc::new(ReadTool::new(definition, scope, timeout, ShownFiles::Below, search))
}

/// The matches in a file.
struct FileMatches {
    /// The lines of each match.
    lines: Vec<Vec<String>>,
    /// The number of further matches, which are not shown.
    more: usize,
}

fn search(jail: &Jail, args: &AstGrepSearchArgs, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { stop, foreign, .. } = context;
    let pattern = CodePattern::new(&args.pattern, &args.lang)?;
    let total = AtomicUsize::new(0);
    let scope = SourceScope::open(jail, args.path.as_deref().unwrap_or("."), stop)?;
    let scan = scope.scan(stop, &|of, path| pattern.language.searches(of, path), &|parser, file| {
        let source = file.read()?;
        let text = source_text(&source)?;
        let places = pattern.find(parser, &text, stop)?;
        if places.is_empty() {
            return Ok(None);
        }
        if total.fetch_add(places.len(), Ordering::Relaxed) > 10 * MAX_SHOWN {
            stop.stop(WalkStop::Enough);
        }
        let starts = line_starts(text.as_bytes());
        let shown = places.iter().take(MAX_SHOWN);
        let lines = shown.map(|place| match_lines(&file.shown, &text, &starts, place)).collect();
        Ok(Some(FileMatches { lines, more: places.len().saturating_sub(MAX_SHOWN) }))
    })?;
    let found: usize = scan.items.iter().map(|file| file.value.lines.len() + file.value.more).sum();
    let (mut lines, mut shown) = (Vec::new(), 0);
    let mut result = ToolResult::ok(String::new());
    for file in &scan.items {
        let matches = &file.value.lines;
        let of_file = &matches[..matches.len().min(MAX_SHOWN - shown)];
        if of_file.is_empty() {
            break;
        }
        shown += of_file.len();
        lines.extend(of_file.iter().flatten().cloned());
        result.add_sources(file.path.as_deref().and_then(|path| foreign.source(path)).into_iter().collect());
    }
    if found == 0 {
        lines.push("No match.".to_owned());
    }
    let is_enough = stop.reason() == Some(WalkStop::Enough);
    if shown < found || is_enough {
        let more = if is_enough { "more".to_owned() } else { (found - shown).to_string() };
        lines.push(format!("[the first {shown} matches; there are {more} others: narrow the search]"));
    }
    lines.extend(context.stop_note());
    let language = pattern.language.name();
    let read = scan.read;
    lines.push(format!("[searched {read} {language} {}{}]", files_word(read), skip_note(&scan.skipped)));
    result.content = lines.join("\n");
    Ok(result)
}

/// Returns the lines of the match at `place` with their line numbers. `starts` are the byte offsets of the lines of `text`.
fn match_lines(file: &str, text: &str, starts: &[usize], place: &Range<usize>) -> Vec<String> {
    let first = starts.partition_point(|at| *at <= place.start);
    let from = starts.get(first - 1).copied().unwrap_or_default();
    // The last line is shown to its end.
    let rest = text.get(place.end..).unwrap_or_default();
    let to = place.end + rest.find('\n').unwrap_or(rest.len());
    let whole = text.get(from..to).unwrap_or_default();
    let column = place.start - from;
    let show = |(number, line): (usize, &str)| {
        // The last line has no line break, which would include the CR.
        let line = line.trim_end_matches('\r');
        // Of a long line, the part around the match is shown.
        let cut = if number == 0 && column > LINE_CHARS / 2 && line.len() > LINE_CHARS {
            format!("…{}", line.get(line.floor_char_boundary(column)..).unwrap_or_default())
        } else {
            line.to_owned()
        };
        let clean: String =
            cut.chars().map(|char| if char.is_control() && char != '\t' { '\u{fffd}' } else { char }).collect();
        format!("{file}:{}: {}", first + number, truncate(&clean, LINE_CHARS))
    };
    let mut lines: Vec<_> = whole.lines().take(MATCH_LINES).enumerate().map(show).collect();
    let more = whole.lines().count().saturating_sub(MATCH_LINES);
    if more > 0 {
        lines.push(format!("[{more} more lines of this match]"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_is_shown_with_its_lines() {
        let text =
            format!("a\n  f(1,\n    2) // x\nb\n{}g(3){}\n1\n2\n3\n4\n5\n6\n7", "x".repeat(300), "y".repeat(300));
        let show = |text: &str, start, end| match_lines("p", text, &line_starts(text.as_bytes()), &(start..end));
        assert_eq!(show(&text, 4, 14), ["p:2:   f(1,", "p:3:     2) // x"]);
        let long = show(&text, text.find("g(3)").unwrap(), text.find("g(3)").unwrap() + 4);
        assert!(long[0].starts_with("p:5: …g(3)yyy") && long[0].len() < 300, "{long:?}");
        let last = show(&text, text.find("\n1").unwrap() + 1, text.len());
        let carriage = "f(1,\r\n  2)\r\ng(3)\r\n";
        assert_eq!(show(carriage, 0, 9), ["p:1: f(1,", "p:2:   2)"]);
        assert_eq!(show(carriage, 12, 16), ["p:3: g(3)"]);
        assert_eq!(last, ["p:6: 1", "p:7: 2", "p:8: 3", "p:9: 4", "p:10: 5", "[2 more lines of this match]"]);
    }
}
