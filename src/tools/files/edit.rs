//! The tool `edit_file`: replaces text that occurs exactly once, or every occurrence on request. It never reports a
//! change that it did not make.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::scope::{WorkspaceJail, run_on_jail};
use crate::chat::ToolSpec;
use crate::guard::FileContent;
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolOutcome, tool_spec};

/// The lines, and characters per line, that the search for similar text compares.
const NEAR_LINES: usize = 5_000;
const NEAR_CHARS: usize = 200;
/// The least similarity (1 is equal) for a suggestion.
const MIN_SIMILARITY: f64 = 0.6;
/// The most line numbers that an error names.
const MAX_NAMED_LINES: usize = 10;

#[derive(Deserialize, JsonSchema)]
struct EditFileArgs {
    path: String,
    /// Exact text, unique in the file.
    old_text: String,
    new_text: String,
    /// Replace every occurrence.
    replace_all: Option<bool>,
}

/// Replaces text in a file.
pub struct EditFile {
    spec: ToolSpec,
    files: WorkspaceJail,
}

impl EditFile {
    pub fn new(files: WorkspaceJail) -> Self {
        Self { spec: tool_spec::<EditFileArgs>("edit_file", "Replace text in a file."), files }
    }
}

#[async_trait]
impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Once
    }

    /// Text from a file or page must not choose the file that is overwritten.
    fn literal_arguments(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let text = |name| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("old_text").is_empty() {
            return Err("old_text is empty; use write_file for a whole file".to_owned());
        }
        if text("old_text") == text("new_text") {
            return Err("old_text and new_text are the same; nothing was changed".to_owned());
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        run_on_jail(self.files.for_turn(context), arguments, |jail, args: EditFileArgs| {
            jail.edit(&args.path, |opened| replace_text(opened, &args))
        })
        .await
    }
}

fn replace_text(opened: &FileContent, args: &EditFileArgs) -> Result<(Vec<u8>, String), String> {
    let shown = &opened.shown;
    let text =
        std::str::from_utf8(&opened.bytes).map_err(|_| format!("{shown}: not UTF-8 text; nothing was changed"))?;
    // Models write LF even if the file has CRLF.
    let is_crlf = text.contains("\r\n") && !text.contains(&args.old_text) && !args.old_text.contains('\r');
    let (old, new) = match is_crlf {
        true => (args.old_text.replace('\n', "\r\n"), args.new_text.replace("\r\n", "\n").replace('\n', "\r\n")),
        false => (args.old_text.clone(), args.new_text.clone()),
    };
    let at: Vec<usize> = text.match_indices(&old).map(|(at, _)| at).collect();
    let line = |at: &usize| text[..*at].matches('\n').count() + 1;
    let all = args.replace_all.unwrap_or(false);
    match at.as_slice() {
        [] => Err(format!(
            "old_text was not found in {shown}; nothing was changed{}",
            similar_line_hint(text, &args.old_text)
        )),
        [only] => Ok((replaced(text, &old, &new), format!("Replaced 1 occurrence in {shown}, line {}", line(only)))),
        many if all => Ok((replaced(text, &old, &new), format!("Replaced {} occurrences in {shown}", many.len()))),
        many => {
            let lines: Vec<_> = many.iter().take(MAX_NAMED_LINES).map(|at| line(at).to_string()).collect();
            let more = if many.len() > MAX_NAMED_LINES { ", …" } else { "" };
            Err(format!(
                "old_text occurs {} times in {shown} (lines {}{more}); nothing was changed. Give more of the text around \
                 it, or replace_all=true",
                many.len(),
                lines.join(", "),
            ))
        }
    }
}

fn replaced(text: &str, old: &str, new: &str) -> Vec<u8> {
    text.replace(old, new).into_bytes()
}

/// Returns a hint to the line that is most similar to the text.
fn similar_line_hint(text: &str, old: &str) -> String {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let clip = |line: &str| line.chars().take(NEAR_CHARS).collect::<String>();
    let wanted = clip(wanted);
    let similarity = |line: &str| strsim::normalized_levenshtein(&clip(line.trim()), &wanted);
    let lines = text.lines().take(NEAR_LINES).enumerate().map(|(at, line)| (similarity(line), at + 1, line));
    let best = lines.max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    match best {
        Some((similarity, at, line)) if similarity >= 1.0 => {
            format!(". Line {at} is the same but for its spaces or what follows: {:?}", clip(line))
        }
        Some((similarity, at, line)) if similarity >= MIN_SIMILARITY => {
            format!(". Line {at} comes near: {:?}", clip(line))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_or_missing_text_is_refused() {
        for (text, old, new, all, expected) in [
            ("one two", "two", "2", false, Ok(("one 2", "Replaced 1 occurrence in f, line 1"))),
            ("a\nb\na\n", "a\n", "c\n", true, Ok(("c\nb\nc\n", "Replaced 2 occurrences in f"))),
            ("a\r\nb\r\nc", "a\nb", "x\ny", false, Ok(("x\r\ny\r\nc", "Replaced 1 occurrence in f, line 1"))),
            ("k = 1", "k = 1", "", false, Ok(("", "Replaced 1 occurrence in f, line 1"))),
            ("a\nb\na", "a", "c", false, Err("occurs 2 times in f (lines 1, 3); nothing was changed")),
            ("a", "x", "y", false, Err("was not found in f; nothing was changed")),
            ("a\n  let x = 1;\n", "\tlet x = 1;", "y", false, Err("Line 2 is the same but for its spaces")),
            ("let value = 10;", "let value = 11;", "y", false, Err("Line 1 comes near: \"let value = 10;\"")),
        ] {
            let opened = FileContent { bytes: text.as_bytes().to_vec(), shown: "f".to_owned() };
            let args = EditFileArgs {
                path: "f".to_owned(),
                old_text: old.to_owned(),
                new_text: new.to_owned(),
                replace_all: Some(all),
            };
            match (replace_text(&opened, &args), expected) {
                (Ok((bytes, report)), Ok((wanted, expected_text))) => {
                    assert_eq!((String::from_utf8(bytes).unwrap().as_str(), report.as_str()), (wanted, expected_text));
                }
                (Err(error), Err(expected_text)) => assert!(error.contains(expected_text), "{error}"),
                (got, _) => panic!("{text:?} {old:?}: {got:?}"),
            }
        }
    }
}
