//! `edit_file`: replaces text that occurs exactly once, or every occurrence when asked to. It never reports a change that
//! it did not make.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Doors, on_disk};
use crate::chat::ToolSpec;
use crate::guard::Opened;
use crate::tools::{Replay, Tool, ToolContext, ToolOutcome, tool_spec};

/// Lines and characters of a line that the search for the nearest text compares.
const NEAR_LINES: usize = 5_000;
const NEAR_CHARS: usize = 200;
/// Below this likeness (1 is equal) nothing is called near.
const NEAR_ENOUGH: f64 = 0.6;
/// Line numbers that an error names.
const NAMED: usize = 10;

#[derive(Deserialize, JsonSchema)]
struct Args {
    path: String,
    /// Exact text, unique in the file.
    old_text: String,
    new_text: String,
    /// Replace every occurrence.
    replace_all: Option<bool>,
}

/// Replaces a piece of a text file.
pub struct EditFile {
    spec: ToolSpec,
    doors: Doors,
}

impl EditFile {
    pub fn new(doors: Doors) -> Self {
        Self { spec: tool_spec::<Args>("edit_file", "Replace text in a file."), doors }
    }
}

#[async_trait]
impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["edit", "search_replace", "str_replace", "replace", "replace_in_file"]
    }

    fn replay(&self) -> Replay {
        Replay::Once
    }

    /// What a file or a page says must not choose what is overwritten.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn check(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
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
        on_disk(self.doors.of(context), arguments, |jail, args: Args| {
            jail.edit(&args.path, |opened| change(opened, &args))
        })
        .await
    }
}

fn change(opened: &Opened, args: &Args) -> Result<(Vec<u8>, String), String> {
    let shown = &opened.shown;
    let text =
        std::str::from_utf8(&opened.bytes).map_err(|_| format!("{shown}: not UTF-8 text; nothing was changed"))?;
    // Models write plain line breaks whatever the file has.
    let dos = text.contains("\r\n") && !text.contains(&args.old_text) && !args.old_text.contains('\r');
    let (old, new) = match dos {
        true => (args.old_text.replace('\n', "\r\n"), args.new_text.replace("\r\n", "\n").replace('\n', "\r\n")),
        false => (args.old_text.clone(), args.new_text.clone()),
    };
    let at: Vec<usize> = text.match_indices(&old).map(|(at, _)| at).collect();
    let line = |at: &usize| text[..*at].matches('\n').count() + 1;
    let all = args.replace_all.unwrap_or(false);
    match at.as_slice() {
        [] => Err(format!("old_text was not found in {shown}; nothing was changed{}", nearest(text, &args.old_text))),
        [only] => Ok((replaced(text, &old, &new), format!("Replaced 1 occurrence in {shown}, line {}", line(only)))),
        many if all => Ok((replaced(text, &old, &new), format!("Replaced {} occurrences in {shown}", many.len()))),
        many => {
            let lines: Vec<_> = many.iter().take(NAMED).map(|at| line(at).to_string()).collect();
            let more = if many.len() > NAMED { ", …" } else { "" };
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

/// Where the text that was meant may stand.
fn nearest(text: &str, old: &str) -> String {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let clip = |line: &str| line.chars().take(NEAR_CHARS).collect::<String>();
    let wanted = clip(wanted);
    let likeness = |line: &str| strsim::normalized_levenshtein(&clip(line.trim()), &wanted);
    let lines = text.lines().take(NEAR_LINES).enumerate().map(|(at, line)| (likeness(line), at + 1, line));
    let best = lines.max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    match best {
        Some((likeness, at, line)) if likeness >= 1.0 => {
            format!(". Line {at} is the same but for its spaces or what follows: {:?}", clip(line))
        }
        Some((likeness, at, line)) if likeness >= NEAR_ENOUGH => format!(". Line {at} comes near: {:?}", clip(line)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_unique_or_asked_for_or_refused() {
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
            let opened = Opened { bytes: text.as_bytes().to_vec(), shown: "f".to_owned() };
            let args = Args {
                path: "f".to_owned(),
                old_text: old.to_owned(),
                new_text: new.to_owned(),
                replace_all: Some(all),
            };
            match (change(&opened, &args), expected) {
                (Ok((bytes, told)), Ok((wanted, words))) => {
                    assert_eq!((String::from_utf8(bytes).unwrap().as_str(), told.as_str()), (wanted, words));
                }
                (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
                (got, _) => panic!("{text:?} {old:?}: {got:?}"),
            }
        }
    }
}
