//! The tool `edit_file`, which replaces text that occurs exactly once, or every occurrence on request. It never reports a change
//! that it did not make.

use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;

use super::diff::{DIFF_OF_ONE_FILE, FileDiff, render_diffs};
use super::file_tool::WriteTool;
use super::line_match::{BlockMatch, BlockSearch, line_list, nearest_lines};
use super::scope::{ReadScope, WriteScope};
use super::text_file::TextFile;
use crate::guard::{FileContent, Jail};
use crate::text::{plural, truncate};
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolDefinition};

/// The maximum number of lines that the search for similar text compares, and the number of characters of each that an error
/// shows.
const NEAR_LINES: usize = 5_000;
const NEAR_CHARS: usize = 200;
/// The maximum number of edits of one call.
const MAX_EDITS: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct EditFileArgs {
    path: String,
    /// Unique in the file.
    old_text: Option<String>,
    new_text: Option<String>,
    replace_all: Option<bool>,
    /// Several {old_text, new_text}.
    #[serde(default)]
    #[schemars(schema_with = "array_of_objects")]
    edits: Option<Vec<TextEdit>>,
}

#[derive(Clone, Deserialize)]
struct TextEdit {
    old_text: String,
    new_text: String,
    replace_all: Option<bool>,
}

/// Returns a schema without fields, to keep it short: every request contains it.
fn array_of_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "object" } })
}

impl EditFileArgs {
    /// Returns all edits in order.
    fn all_edits(&self) -> Result<Vec<TextEdit>, String> {
        let single = match (&self.old_text, &self.new_text) {
            (Some(old_text), Some(new_text)) => {
                Some(TextEdit { old_text: old_text.clone(), new_text: new_text.clone(), replace_all: self.replace_all })
            }
            (None, None) => None,
            _ => return Err("give both old_text and new_text; nothing was changed".to_owned()),
        };
        let several = self.edits.iter().flatten().cloned();
        let edits: Vec<TextEdit> = single.into_iter().chain(several).collect();
        match edits.len() {
            0 => Err("give old_text and new_text, or edits; nothing was changed".to_owned()),
            1..=MAX_EDITS => Ok(edits),
            many => Err(format!("{many} edits, at most {MAX_EDITS} in one call; nothing was changed")),
        }
    }
}

/// Returns the tool `edit_file`. `reads` determines the sources of the files' content, because the result shows a part of it.
pub fn edit_file(files: WriteScope, reads: ReadScope) -> Arc<dyn Tool> {
    let description = "Replace text in a file.";
    let definition = ToolDefinition::changing::<EditFileArgs>("edit_file", description, ReplayPolicy::Once);
    let work = |jail: &Jail, args: &EditFileArgs, _: &ToolContext| {
        let edits = args.all_edits()?;
        jail.edit(&args.path, |opened| apply_edits(opened, &edits))
    };
    Arc::new(WriteTool { reads: Some(reads), check: check_edits, ..WriteTool::new(definition, files, work) })
}

/// Checks that a call has edits, not too many, and that each names a text and another one in its place.
///
/// # Errors
/// The call is invalid; the text is for the model.
fn check_edits(arguments: &Value) -> Result<(), String> {
    let args: EditFileArgs = serde_json::from_value(arguments.clone()).map_err(|error| error.to_string())?;
    for edit in args.all_edits()? {
        if edit.old_text.is_empty() {
            return Err("old_text is empty; use write_file for a whole file".to_owned());
        }
        if edit.old_text == edit.new_text {
            return Err("old_text and new_text are the same; nothing was changed".to_owned());
        }
    }
    Ok(())
}

/// Returns the new content of a file, and the report for the model.
fn apply_edits(opened: &FileContent, edits: &[TextEdit]) -> Result<(Vec<u8>, String), String> {
    let shown = &opened.shown;
    let file = TextFile::decode(opened)?;
    let mut text = file.text.clone();
    let mut count = 0;
    let mut is_tolerant = false;
    for (number, edit) in edits.iter().enumerate() {
        let (old, new) = (file.normalize(&edit.old_text), file.normalize(&edit.new_text));
        let all = edit.replace_all.unwrap_or(false);
        let replaced = replace(&text, &old, &new, all, shown).map_err(|error| match edits.len() {
            1 => error,
            _ => format!("edit {}: {error}", number + 1),
        })?;
        count += replaced.count;
        is_tolerant |= replaced.is_tolerant;
        text = replaced.text;
    }
    if text == file.text {
        return Err(format!("{shown} would be as it was; nothing was changed"));
    }
    let bytes = file.encode(&text)?;
    let note = if is_tolerant { " (spaces differed)" } else { "" };
    Ok((bytes, format!("Replaced {} in {shown}{note}\n{}", plural(count, "occurrence"), diff(&file.text, &text))))
}

/// The text after a replacement.
#[derive(Debug)]
struct ReplacedText {
    text: String,
    count: usize,
    /// True if the white space of the replaced text differed from the request.
    is_tolerant: bool,
}

fn replace(text: &str, old: &str, new: &str, all: bool, shown: &str) -> Result<ReplacedText, String> {
    let at: Vec<usize> = text.match_indices(old).map(|(at, _)| at).collect();
    match at.len() {
        0 => replace_block(text, old, new, all, shown),
        count if count == 1 || all => Ok(ReplacedText { text: text.replace(old, new), count, is_tolerant: false }),
        _ => Err(ambiguous(shown, at.iter().map(|at| text[..*at].matches('\n').count() + 1), "")),
    }
}

fn ambiguous(shown: &str, lines: impl ExactSizeIterator<Item = usize>, how: &str) -> String {
    format!(
        "old_text occurs {} times in {shown}{how} (lines {}); nothing was changed. Give more of the text around it, \
         or replace_all=true",
        lines.len(),
        line_list(lines),
    )
}

/// Replaces whole lines that differ from `old` only in the white space at their ends or in their common indentation.
fn replace_block(text: &str, old: &str, new: &str, all: bool, shown: &str) -> Result<ReplacedText, String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let bodies: Vec<&str> = text.lines().collect();
    let block: Vec<&str> = old.lines().collect();
    let places = BlockSearch::new(&bodies).tolerant(&block, 0)?;
    match places.len() {
        0 => return Err(format!("old_text was not found in {shown}; nothing was changed{}", hint(&bodies, old))),
        count if count == 1 || all => {}
        _ => {
            let lines = places.iter().map(|place| place.line + 1);
            return Err(ambiguous(shown, lines, " if spaces do not count"));
        }
    }
    let mut replaced = String::with_capacity(text.len());
    let (mut at, mut count) = (0, 0);
    for BlockMatch { line, shift } in places {
        if line < at {
            continue;
        }
        replaced.extend(lines[at..line].iter().copied());
        let shifted = new.split_inclusive('\n').map(|line| shift.apply(line)).collect::<String>();
        at = line + block.len();
        replaced.push_str(&shifted);
        // If `old` ends within a line, the line break of that line stays.
        if !old.ends_with('\n') && lines[at - 1].ends_with('\n') {
            replaced.push('\n');
        }
        count += 1;
    }
    replaced.extend(lines[at..].iter().copied());
    Ok(ReplacedText { text: replaced, count, is_tolerant: true })
}

/// Returns a hint about why a text was not found.
fn hint(lines: &[&str], old: &str) -> String {
    let is_numbered = |line: &str| {
        line.split_once('\t')
            .is_some_and(|(number, _)| !number.is_empty() && number.trim().bytes().all(|b| b.is_ascii_digit()))
    };
    if old.lines().all(is_numbered) {
        return ". Leave out the line numbers of read_file".to_owned();
    }
    let wanted = old.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    let nearest = nearest_lines(&lines[..lines.len().min(NEAR_LINES)], wanted);
    let name = |(at, similarity): &(usize, f64)| {
        let shown = truncate(lines[*at], NEAR_CHARS);
        if *similarity >= 1.0 {
            format!(". Line {} is the same but for its spaces or what follows: {shown:?}", at + 1)
        } else {
            format!(". Line {} comes near: {shown:?}", at + 1)
        }
    };
    nearest.iter().map(name).collect()
}

/// Returns the difference of two texts as a unified diff without file names.
fn diff(old: &str, new: &str) -> String {
    let change = FileDiff { shown: None, old: old.into(), new: new.into() };
    render_diffs([change].into_iter(), DIFF_OF_ONE_FILE).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str, all: bool) -> TextEdit {
        TextEdit { old_text: old.to_owned(), new_text: new.to_owned(), replace_all: Some(all) }
    }

    fn apply(text: &str, edits: &[TextEdit]) -> Result<(String, String), String> {
        let opened = FileContent { bytes: text.as_bytes().to_vec(), shown: "f".to_owned() };
        apply_edits(&opened, edits).map(|(bytes, report)| (String::from_utf8(bytes).unwrap(), report))
    }

    #[test]
    fn an_ambiguous_or_missing_text_is_refused() {
        for (text, old, new, all, expected) in [
            ("one two", "two", "2", false, Ok("one 2")),
            ("a\nb\na\n", "a\n", "c\n", true, Ok("c\nb\nc\n")),
            ("a\r\nb\r\nc\r\n", "a\nb", "x\ny", false, Ok("x\r\ny\r\nc\r\n")),
            ("a\r\nb\r\n", "a\r\nb", "x\r\ny", false, Ok("x\r\ny\r\n")),
            ("a\rb\rc\r", "b\n", "x\ny\n", false, Ok("a\rx\ry\rc\r")),
            ("a\rb\rc", "a\rb", "x\r\ny", false, Ok("x\ry\rc")),
            ("k = 1", "k = 1", "", false, Ok("")),
            (
                "  if x:\n      y()  \nz\n",
                "if x:\n    y()",
                "if w:\n    y()\n    z()",
                false,
                Ok("  if w:\n      y()\n      z()\nz\n"),
            ),
            ("if x:\n    y()\nz", "  if x:\n      y()\n", "  if w:\n      y()\n", false, Ok("if w:\n    y()\nz")),
            ("a \nb\na \nb\n", "a\nb", "c", true, Ok("c\nc\n")),
            ("a\n  let x = 1;\n", "\tlet x = 1;", "y", false, Err("Line 2 is the same but for its spaces")),
            ("a\nb\na", "a", "c", false, Err("occurs 2 times in f (lines 1, 3); nothing was changed")),
            ("a \nb\na\t\nb\n", "a\nb", "c", false, Err("2 times in f if spaces do not count (lines 1, 3)")),
            ("a", "x", "y", false, Err("was not found in f; nothing was changed")),
            ("let value = 10;", "let value = 11;", "y", false, Err("Line 1 comes near: \"let value = 10;\"")),
            ("one\ntwo\n", "1\tone\n2\ttwo", "y", false, Err("Leave out the line numbers")),
            ("a\0b", "a", "y", false, Err("binary file")),
        ] {
            match (apply(text, &[edit(old, new, all)]), expected) {
                (Ok((got, _)), Ok(wanted)) => assert_eq!(got, wanted, "{text:?} {old:?}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (got, _) => panic!("{text:?} {old:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn several_edits_are_made_in_order_or_not_at_all() {
        let (text, report) = apply("a\nb\nc\nd\ne\nf\n", &[edit("b", "B", false), edit("B\nc", "x", false)]).unwrap();
        assert_eq!(text, "a\nx\nd\ne\nf\n");
        assert_eq!(report, "Replaced 2 occurrences in f\n@@ -1,5 +1,4 @@\n a\n-b\n-c\n+x\n d\n e");
        let error = apply("a\nb\n", &[edit("a", "x", false), edit("q", "y", false)]).unwrap_err();
        assert!(error.starts_with("edit 2: old_text was not found"), "{error}");
        let error = apply("a", &[edit("a", "b", false), edit("b", "a", false)]).unwrap_err();
        assert!(error.contains("as it was"), "{error}");
        let long = apply(&"a\n".repeat(1_000), &[edit("a", "b", true)]).unwrap().1;
        assert!(long.contains("more lines of the difference]") && long.len() < 10_000, "{long}");
    }
}
