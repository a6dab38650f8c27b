//! The tool `symbols`, which shows the outline of source files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::scan::{SourceScope, line_starts, source_text};
use super::tags::{Definition, extract_tags};
use crate::guard::{Jail, WalkStop};
use crate::text::truncate;
use crate::tools::files::{CACHED, ReadContext, ReadScope, ReadTool, ShownFiles, files_word, skip_note};
use crate::tools::{OutputLimit, Tool, ToolDefinition, ToolResult};

/// The maximum number of symbols that are shown, and the number of symbols after which no further file is read.
const MAX_SHOWN: usize = 500;
const MAX_READ: usize = 50_000;
/// The longest line of a definition, in characters.
const LINE_CHARS: usize = 160;
/// The maximum indentation.
const MAX_LEVEL: usize = 8;

#[derive(Deserialize, JsonSchema)]
struct SymbolsArgs {
    path: String,
    /// A part of the name.
    query: Option<String>,
}

/// Returns the tool `symbols`, which lists the definitions of source files.
pub fn symbols(scope: ReadScope, timeout: Duration) -> Arc<dyn Tool> {
    let definition = ToolDefinition {
        output_limit: OutputLimit { chars: 24_000, lines: 2 * MAX_SHOWN + 10 },
        cache_ttl: Some(CACHED),
        ..ToolDefinition::reading::<SymbolsArgs>("symbols", "List the definitions in source files.")
    };
    Arc::new(ReadTool::new(definition, scope, timeout, ShownFiles::Below, list))
}

/// The outline of a file.
struct FileOutline {
    lines: Vec<String>,
    /// The number of definitions that match the query.
    found: usize,
}

fn list(jail: &Jail, args: &SymbolsArgs, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { stop, foreign, .. } = context;
    let query = args.query.as_deref().map(str::trim).filter(|query| !query.is_empty()).map(str::to_lowercase);
    let total = AtomicUsize::new(0);
    let scan = SourceScope::open(jail, &args.path, stop)?.scan(stop, &|_, _| true, &|parser, file| {
        let source = file.read()?;
        let text = source_text(&source)?;
        let tags = extract_tags(parser, file.language, text.as_bytes(), stop)?;
        let outline = outline(&tags.definitions, text.as_bytes(), query.as_deref());
        if total.fetch_add(outline.found, Ordering::Relaxed) > MAX_READ {
            stop.stop(WalkStop::Enough);
        }
        Ok((outline.found > 0).then_some(outline))
    })?;
    let mut lines = Vec::new();
    let mut shown = Vec::new();
    for file in &scan.items {
        let of_file = &file.value.lines;
        if lines.len() + of_file.len().min(MAX_SHOWN / 2) > MAX_SHOWN {
            break;
        }
        shown.push(file);
        lines.push(format!("{}:", file.shown));
        let room = MAX_SHOWN.saturating_sub(lines.len());
        lines.extend(of_file.iter().take(room).cloned());
        if of_file.len() > room {
            lines.push(format!("[{} more lines of this file: give a query]", of_file.len() - room));
        }
    }
    let found: usize = scan.items.iter().map(|file| file.value.found).sum();
    if found == 0 {
        lines.push("No definition.".to_owned());
    }
    if shown.len() < scan.items.len() {
        let left: usize = scan.items.iter().skip(shown.len()).map(|file| file.value.found).sum();
        let files = scan.items.len() - shown.len();
        lines.push(format!("[{left} definitions in {files} more {}: name a file, or give a query]", files_word(files)));
    }
    if stop.reason() == Some(WalkStop::Enough) {
        lines.push("[too many definitions, so not all files were read: name a file or a smaller folder]".to_owned());
    }
    lines.extend(context.stop_note());
    lines.push(format!("[read {} source {}{}]", scan.read, files_word(scan.read), skip_note(&scan.skipped)));
    let mut result = ToolResult::ok(lines.join("\n"));
    result.is_partial = matches!(stop.reason(), Some(reason) if reason != WalkStop::Enough);
    result.add_sources(shown.iter().filter_map(|file| foreign.source(file.path.as_deref()?)).collect());
    Ok(result)
}

/// Returns the outline with a line for each definition that `query` matches, and for the definitions that enclose it. `query` is in
/// lower case.
fn outline(definitions: &[Definition], source: &[u8], query: Option<&str>) -> FileOutline {
    let matches = |definition: &Definition| query.is_none_or(|query| definition.name.to_lowercase().contains(query));
    let starts = line_starts(source);
    let mut lines = Vec::new();
    // The definitions that enclose the current one, with their indentation, and whether their line is already in the outline.
    let mut open: Vec<(&Definition, bool)> = Vec::new();
    let mut found = 0;
    for definition in definitions {
        while open.last().is_some_and(|(outer, _)| outer.end < definition.end || outer.end < definition.start) {
            open.pop();
        }
        open.push((definition, false));
        if !matches(definition) {
            continue;
        }
        found += 1;
        for (level, (outer, is_written)) in open.iter_mut().enumerate().filter(|(_, (_, is_written))| !is_written) {
            lines.push(format_definition(outer, level, source, &starts));
            *is_written = true;
        }
    }
    FileOutline { lines, found }
}

fn format_definition(definition: &Definition, level: usize, source: &[u8], starts: &[usize]) -> String {
    let Definition { kind, name, line, start, end } = definition;
    let row = (*line as usize).saturating_sub(1);
    let from = starts.get(row).copied().unwrap_or(source.len());
    let to = starts.get(row + 1).copied().unwrap_or(source.len());
    // A character has up to four bytes.
    let text = source.get(from..to.min(from + 4 * LINE_CHARS + 400)).unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let text: String = text.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let indent = "  ".repeat(level.min(MAX_LEVEL) + 1);
    let place = if start == end { start.to_string() } else { format!("{start}-{end}") };
    format!("{indent}{kind} {name} ({place}): {}", truncate(&text, LINE_CHARS))
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::language::CodeLanguage;
    use super::super::parser::SourceParser;
    use super::*;
    use crate::guard::StopSignal;

    #[test]
    fn an_outline_shows_what_is_in_what() {
        let source = "/// Docs.\npub struct A {\n    x: u8,\n}\n\nimpl A {\n    pub fn one(&self) {}\n\n    fn two() {\n        fn inner() {}\n    }\n}\n";
        let stop = StopSignal::new(Duration::from_secs(9), CancellationToken::new());
        let tags = extract_tags(&mut SourceParser::new(), CodeLanguage::Rust, source.as_bytes(), &stop).unwrap();
        for (query, expected, count) in [
            (
                None,
                &[
                    "  struct A (2-4): pub struct A {",
                    "  impl A (6-12): impl A {",
                    "    method one (7): pub fn one(&self) {}",
                    "    method two (9-11): fn two() {",
                    "      function inner (10): fn inner() {}",
                ][..],
                5,
            ),
            (
                Some("inn"),
                &[
                    "  impl A (6-12): impl A {",
                    "    method two (9-11): fn two() {",
                    "      function inner (10): fn inner() {}",
                ],
                1,
            ),
            (Some("nothing"), &[], 0),
        ] {
            let FileOutline { lines, found } = outline(&tags.definitions, source.as_bytes(), query);
            assert_eq!(
                (lines.as_slice(), found),
                (expected.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>().as_slice(), count),
                "{query:?}"
            );
        }
    }
}
