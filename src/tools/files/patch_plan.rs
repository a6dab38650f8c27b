//! Plans a patch: finds the place of each hunk in the current files, and composes the new files. Nothing is written here.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::line_match::{BlockMatch, BlockSearch, IndentShift, line_list};
use super::patch_text::{FileChange, FilePatch, Hunk, PatchLineKind};
use super::text_file::TextFile;
use crate::guard::{FileContent, JailError, JailWriter};
use crate::text::truncate;

/// The maximum size of all files of a patch together, old and new, in bytes.
const MAX_BYTES: usize = 64_000_000;
/// The maximum number of lines of a hunk that an error shows, and of characters of each.
const SHOWN_LINES: usize = 8;
const SHOWN_CHARS: usize = 160;
const EXECUTABLE: u32 = 0o755;
const NOT_EXECUTABLE: u32 = 0o644;

/// The content of a file before and after the patch.
#[derive(Debug, Default)]
pub(in crate::tools) struct PlannedFile {
    /// The old content; `None` if the file does not exist.
    pub old: Option<Vec<u8>>,
    pub new: Option<Vec<u8>>,
    /// The mode of the new file. `None` keeps the old mode, or uses the default for a new file.
    pub mode: Option<u32>,
}

/// A patch whose hunks all fit.
#[derive(Debug, Default)]
pub(in crate::tools) struct PatchPlan {
    /// The files by path.
    pub files: BTreeMap<String, PlannedFile>,
    /// The summary, with a line for each file of the patch.
    pub summary: Vec<String>,
}

/// Plans a patch of the files that `writer` reads.
///
/// # Errors
/// States the file and the hunk that do not fit, and why.
pub(super) fn plan(patch: &[FilePatch], writer: &JailWriter<'_>) -> Result<PatchPlan, String> {
    let mut planner = Planner { writer, plan: PatchPlan::default(), bytes: 0 };
    for file in patch {
        planner.add(file)?;
    }
    Ok(planner.plan)
}

struct Planner<'a> {
    writer: &'a JailWriter<'a>,
    plan: PatchPlan,
    bytes: usize,
}

impl Planner<'_> {
    fn add(&mut self, patch: &FilePatch) -> Result<(), String> {
        let path = plain_path(&patch.path)?;
        let current = self.current(&path)?;
        let mode = patch.executable.map(|on| if on { EXECUTABLE } else { NOT_EXECUTABLE });
        let missing = || format!("{path}: no such file, so it cannot be changed; nothing was changed");
        let summary = match (&patch.change, current) {
            (FileChange::Add { .. }, Some(_)) => {
                return Err(format!("{path}: exists already, so it cannot be added; nothing was changed"));
            }
            (FileChange::Add { content }, None) => {
                self.set(&path, Some(content.clone().into_bytes()), mode)?;
                format!("A {path} (+{})", content.lines().count())
            }
            (_, None) => return Err(missing()),
            (FileChange::Delete { hunks }, Some(opened)) => {
                if !hunks.is_empty() && !apply(&opened, hunks)?.text.is_empty() {
                    return Err(format!(
                        "{path}: holds more than the patch removes, so it is not deleted; nothing was changed"
                    ));
                }
                self.set(&path, None, None)?;
                format!("D {path}")
            }
            (FileChange::Update { move_to, hunks }, Some(opened)) => {
                let patched = apply(&opened, hunks)?;
                let bytes = match hunks.is_empty() {
                    true => opened.bytes.clone(),
                    false => TextFile::decode(&opened)?.encode(&patched.text)?,
                };
                let counts = format!("(+{} -{})", patched.added, patched.removed);
                self.update(&path, move_to.as_deref(), bytes, mode, &counts)?
            }
        };
        self.plan.summary.push(summary);
        Ok(())
    }

    fn update(
        &mut self,
        path: &str,
        move_to: Option<&str>,
        bytes: Vec<u8>,
        mode: Option<u32>,
        counts: &str,
    ) -> Result<String, String> {
        let Some(to) = move_to.map(plain_path).transpose()?.filter(|to| to != path) else {
            self.set(path, Some(bytes), mode)?;
            return Ok(format!("M {path} {counts}"));
        };
        if self.current(&to)?.is_some() {
            return Err(format!("{to}: exists already, so {path} is not moved there; nothing was changed"));
        }
        let mode = mode
            .or(self.plan.files.get(path).and_then(|file| file.mode))
            .map_or_else(|| self.writer.mode(path), |mode| Ok(Some(mode)))
            .map_err(|error| unusable(&error))?;
        self.set(path, None, None)?;
        self.set(&to, Some(bytes), mode)?;
        Ok(format!("R {path} -> {to} {counts}"))
    }

    /// Returns a file in the state after the parts of the patch so far.
    fn current(&mut self, path: &str) -> Result<Option<FileContent>, String> {
        if let Some(file) = self.plan.files.get(path) {
            return Ok(file.new.clone().map(|bytes| FileContent { bytes, shown: path.to_owned() }));
        }
        let opened = match self.writer.read(path) {
            Err(JailError::Missing(_)) => None,
            read => Some(read.map_err(|error| unusable(&error))?),
        };
        let old = opened.as_ref().map(|opened| opened.bytes.clone());
        self.count(old.as_ref())?;
        self.plan.files.insert(path.to_owned(), PlannedFile { new: old.clone(), old, mode: None });
        Ok(opened)
    }

    fn set(&mut self, path: &str, new: Option<Vec<u8>>, mode: Option<u32>) -> Result<(), String> {
        self.count(new.as_ref())?;
        let file = self.plan.files.entry(path.to_owned()).or_default();
        file.new = new;
        file.mode = mode.or(file.mode);
        Ok(())
    }

    fn count(&mut self, bytes: Option<&Vec<u8>>) -> Result<(), String> {
        self.bytes += bytes.map_or(0, Vec::len);
        if self.bytes > MAX_BYTES {
            return Err(format!(
                "the files of the patch have more than {} MB together; nothing was changed",
                MAX_BYTES / 1_000_000
            ));
        }
        Ok(())
    }
}

fn unusable(error: &JailError) -> String {
    format!("{error}; nothing was changed")
}

/// Returns a path without `.`.
fn plain_path(path: &str) -> Result<String, String> {
    let mut plain = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => {}
            // With `..`, one file could have two names, and a separate change for each.
            Component::ParentDir => {
                return Err(format!(
                    "{path:?}: the paths of a patch are in the workspace and have no ..; nothing was changed"
                ));
            }
            other => plain.push(other),
        }
    }
    Ok(plain.display().to_string())
}

/// A text after its hunks were applied.
#[derive(Debug)]
struct PatchedText {
    text: String,
    added: usize,
    removed: usize,
}

/// Applies hunks, which must be in the order of their places.
fn apply(opened: &FileContent, hunks: &[Hunk]) -> Result<PatchedText, String> {
    let mut patched = PatchedText { text: String::new(), added: 0, removed: 0 };
    if hunks.is_empty() {
        return Ok(patched);
    }
    let file = TextFile::decode(opened)?;
    let lines: Vec<&str> = file.text.split_inclusive('\n').collect();
    let bodies: Vec<&str> = lines.iter().map(|line| line.strip_suffix('\n').unwrap_or(line)).collect();
    let mut search = HunkSearch { lines: &bodies, blocks: BlockSearch::new(&bodies), from: 0, drift: 0 };
    // Each line, and whether a line break ends it.
    let mut out: Vec<(String, bool)> = Vec::new();
    let keep = |line: &str| (line.strip_suffix('\n').unwrap_or(line).to_owned(), line.ends_with('\n'));
    for (number, hunk) in hunks.iter().enumerate() {
        let before = search.from;
        let place = search.locate(hunk).map_err(|error| {
            let header = if hunk.header.is_empty() {
                String::new()
            } else {
                format!(" ({})", truncate(&hunk.header, SHOWN_CHARS))
            };
            format!("{}, hunk {}{header}: {error}", opened.shown, number + 1)
        })?;
        out.extend(lines[before..place.line].iter().map(|line| keep(line)));
        let mut at = place.line;
        for line in &hunk.lines {
            match line.kind {
                PatchLineKind::Context => {
                    out.push(keep(lines[at]));
                    at += 1;
                }
                PatchLineKind::Removed => {
                    at += 1;
                    patched.removed += 1;
                }
                PatchLineKind::Added => {
                    out.push((place.shift.apply(&line.text), !line.is_unended));
                    patched.added += 1;
                }
            }
        }
        search.from = at;
    }
    out.extend(lines[search.from..].iter().map(|line| keep(line)));
    let last = out.len().saturating_sub(1);
    for (at, (line, is_ended)) in out.into_iter().enumerate() {
        patched.text.push_str(&line);
        if is_ended || at < last {
            patched.text.push('\n');
        }
    }
    Ok(patched)
}

/// The search for the places of hunks, in order.
struct HunkSearch<'a> {
    lines: &'a [&'a str],
    blocks: BlockSearch<'a>,
    /// The first line after the previous hunk.
    from: usize,
    /// The distance of the previous hunk from the place that its header names.
    drift: isize,
}

impl HunkSearch<'_> {
    fn locate(&mut self, hunk: &Hunk) -> Result<BlockMatch, String> {
        let begin = self.after_anchors(hunk)?;
        let block = hunk.old_lines();
        if block.is_empty() {
            return Ok(BlockMatch { line: self.insertion(hunk, begin), shift: IndentShift::none() });
        }
        let is_possible = |place: &BlockMatch| !hunk.is_at_end || place.line + block.len() == self.lines.len();
        let expected = hunk.start.and_then(|start| start.saturating_sub(1).checked_add_signed(self.drift));
        let mut exact = self.blocks.exact(&block, begin)?;
        exact.retain(is_possible);
        let place = if let Some(at) = exact.iter().position(|place| Some(place.line) == expected) {
            exact.swap_remove(at)
        } else if !exact.is_empty() {
            // Anchors also select a place: the first match after them is the one.
            if hunk.anchors.is_empty() { single_place(exact, "")? } else { exact.swap_remove(0) }
        } else {
            let mut tolerant = self.blocks.tolerant(&block, begin)?;
            tolerant.retain(is_possible);
            if tolerant.is_empty() {
                return Err(self.conflict(&block, begin));
            }
            single_place(tolerant, " if spaces do not count")?
        };
        if let Some(start) = hunk.start {
            self.drift = place.line.cast_signed() - start.saturating_sub(1).cast_signed();
        }
        Ok(place)
    }

    /// Returns the line at which the search for the hunk starts.
    fn after_anchors(&self, hunk: &Hunk) -> Result<usize, String> {
        let mut begin = self.from;
        for (number, anchor) in hunk.anchors.iter().enumerate() {
            let from = begin + usize::from(number > 0);
            let found = self.lines.iter().skip(from).position(|line| line.trim() == anchor);
            let found = found.ok_or_else(|| {
                format!("the line {:?} of @@ was not found; nothing was changed", truncate(anchor, SHOWN_CHARS))
            })?;
            begin = from + found;
        }
        Ok(begin)
    }

    /// Returns where a hunk that only adds lines belongs: after the line that its header names, after its anchors, or at the end.
    fn insertion(&self, hunk: &Hunk, begin: usize) -> usize {
        let end = self.lines.len();
        match hunk.start.and_then(|start| start.checked_add_signed(self.drift)) {
            Some(line) => line.clamp(begin, end),
            None if hunk.anchors.is_empty() => end,
            None => (begin + 1).min(end),
        }
    }

    fn conflict(&self, block: &[&str], begin: usize) -> String {
        let show = |lines: &[&str]| {
            let shown = lines.iter().take(SHOWN_LINES).map(|line| format!("\n  {}", truncate(line, SHOWN_CHARS)));
            let more = if lines.len() > SHOWN_LINES { "\n  …" } else { "" };
            format!("{}{more}", shown.collect::<String>())
        };
        let expected = show(block);
        let actual = match self.blocks.most_similar(block) {
            Some(at) => {
                let place = &self.lines[at..self.lines.len().min(at + block.len())];
                let earlier = if at < begin { ", which is before the previous hunk" } else { "" };
                format!("the file has at line {}{earlier}:{}", at + 1, show(place))
            }
            None => format!("the file has nothing similar in its {} lines", self.lines.len()),
        };
        format!("does not fit; nothing was changed. It expects:{expected}\n{actual}")
    }
}

/// Returns the only place. Fails if there are several.
fn single_place(mut places: Vec<BlockMatch>, how: &str) -> Result<BlockMatch, String> {
    if places.len() == 1 {
        return Ok(places.swap_remove(0));
    }
    Err(format!(
        "fits at {} places{how} (lines {}); nothing was changed. Give more lines around the change, or the right line number",
        places.len(),
        line_list(places.iter().map(|place| place.line + 1))
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;
    use similar::TextDiff;

    use super::super::patch_text::parse_patch;
    use super::*;
    use crate::guard::Jail;

    fn plan_for(text: &str, patch: &str) -> Result<PatchPlan, String> {
        let workspace = tempfile::tempdir().unwrap();
        for (name, text) in [("x", text), ("y", "other\n")] {
            let path = workspace.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        }
        let jail = Jail::open(workspace.path(), true, Vec::new(), 1_000_000).unwrap();
        plan(&parse_patch(patch)?, &jail.writer())
    }

    /// Applies a patch to the file `x`, and returns its new content.
    fn patched(text: &str, patch: &str) -> Result<String, String> {
        let new = plan_for(text, patch)?.files.remove("x").and_then(|file| file.new);
        Ok(new.map_or_else(|| "(gone)".to_owned(), |bytes| String::from_utf8(bytes).unwrap()))
    }

    const HEAD: &str = "--- a/x\n+++ b/x\n";
    const UPDATE: &str = "*** Update File: x\n";

    #[test]
    fn hunks_find_their_places() {
        for (text, head, hunks, expected) in [
            ("a\nb\nc\n", HEAD, "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n"),
            // The header is wrong, but only one place matches.
            ("0\n1\na\nb\nc\n", HEAD, "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "0\n1\na\nB\nc\n"),
            // The header selects one of several equal places.
            ("a\na\na\n", HEAD, "@@ -2 +2 @@\n-a\n+b\n", "a\nb\na\n"),
            // The second hunk has the same distance from its header as the first.
            ("new\nx\na\nb\na\n", HEAD, "@@ -1 +1 @@\n-x\n+X\n@@ -2 +2 @@\n-a\n+A\n", "new\nX\nA\nb\na\n"),
            ("a\nb", HEAD, "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n", "a\nB\n"),
            ("a\nb\n", HEAD, "@@ -2 +2 @@\n-b\n+B\n\\ No newline at end of file\n", "a\nB"),
            ("a\nb", HEAD, "@@ -1,2 +1,3 @@\n a\n b\n+c\n", "a\nb\nc\n"),
            ("a\nb", HEAD, "@@ -1 +1 @@\n-a\n+A\n", "A\nb"),
            ("a\nb\n", HEAD, "@@ -1,0 +2 @@\n+i\n", "a\ni\nb\n"),
            ("", HEAD, "@@ -0,0 +1 @@\n+i\n", "i\n"),
            ("a\r\nb\r\n", HEAD, "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a\r\nc\r\n"),
            // The white space differs.
            ("\tif x {\n\t\ty();  \n\t}\n", UPDATE, "@@\n if x {\n-\ty();\n+\tz();\n }\n", "\tif x {\n\t\tz();\n\t}\n"),
            ("a\nfn f\n  b\nfn g\n  b\n", UPDATE, "@@ fn g\n-  b\n+  c\n", "a\nfn f\n  b\nfn g\n  c\n"),
            ("fn g\n  b\n", UPDATE, "@@ fn g\n fn g\n-  b\n+  c\n", "fn g\n  c\n"),
            ("fn g\n  b\n", UPDATE, "@@ fn g\n+  a\n", "fn g\n  a\n  b\n"),
            ("a\nb\na\n", UPDATE, "@@\n-a\n+c\n*** End of File\n", "a\nb\nc\n"),
            ("a\n", UPDATE, "@@\n+b\n", "a\nb\n"),
        ] {
            assert_eq!(patched(text, &format!("{head}{hunks}")).as_deref(), Ok(expected), "{text:?} {hunks}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_place() {
        for (text, patch, expected) in [
            ("a\na\n", format!("{UPDATE}-a\n+b\n"), "x, hunk 1: fits at 2 places (lines 1, 2)"),
            ("a \na\t\n", format!("{UPDATE}-a\n+b\n"), "fits at 2 places if spaces do not count"),
            (
                "one\ntwo\n",
                format!("{HEAD}@@ -1,2 +1,2 @@\n one\n-too\n+2\n"),
                "x, hunk 1 (@@ -1,2 +1,2 @@): does not fit; nothing was changed. It expects:\n  one\n  too\nthe file has at line 1:\n  one\n  two",
            ),
            (
                "a\nb\n",
                format!("{HEAD}@@ -2 +2 @@\n-b\n+c\n@@ -1 +1 @@\n-a\n+c\n"),
                "hunk 2 (@@ -1 +1 @@): does not fit",
            ),
            ("a\n", format!("{UPDATE}@@ fn q\n-a\n+b\n"), "the line \"fn q\" of @@ was not found"),
            ("a\n", format!("{UPDATE}-a\n+b\n*** Update File: z\n-a\n+b\n"), "z: no such file"),
            ("a\n", "*** Add File: x\n+b\n".to_owned(), "x: exists already"),
            ("a\n", format!("{UPDATE}*** Move to: y\n-a\n+b\n"), "y: exists already, so x is not moved"),
            (
                "a\nb\n",
                "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n".to_owned(),
                "x: holds more than the patch removes",
            ),
            ("a\n", "*** Delete File: ../x\n".to_owned(), "in the workspace and have no .."),
            ("a\n", "*** Add File: sub/../../x\n+a\n".to_owned(), "in the workspace and have no .."),
            ("a\0\n", format!("{UPDATE}-a\n+b\n"), "binary file"),
        ] {
            let error = patched(text, &patch).unwrap_err();
            assert!(error.contains(expected), "{patch}: {error}");
            assert!(error.contains("nothing was changed"), "{error}");
        }
    }

    #[test]
    fn each_file_has_a_line_and_later_parts_see_earlier_ones() {
        let patch = "*** Begin Patch\n*** Update File: x\n-a\n+b\n*** Update File: ./x\n*** Move to: sub/z\n-b\n+c\n+d\n\
                     *** Add File: x\n+anew\n*** Delete File: y\n*** End Patch";
        let plan = plan_for("a\n", patch).unwrap();
        assert_eq!(plan.summary, ["M x (+1 -1)", "R x -> sub/z (+2 -1)", "A x (+1)", "D y"]);
        let files: Vec<_> = plan
            .files
            .iter()
            .map(|(path, file)| {
                (path.as_str(), file.new.as_deref().map(|b| String::from_utf8_lossy(b).into_owned()), file.mode)
            })
            .collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(files, [("sub/z", text("c\nd\n"), Some(0o600)), ("x", text("anew\n"), None), ("y", None, None)]);
        let removed = plan_for("a\n", "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n").unwrap();
        assert_eq!((removed.summary, removed.files["x"].new.clone()), (vec!["D x".to_owned()], None));
        let script =
            plan_for("", "diff --git a/n b/n\nnew file mode 100755\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+#!\n");
        assert_eq!(script.unwrap().files["n"].mode, Some(0o755));
    }

    proptest! {
        #[test]
        fn a_diff_makes_the_new_text_of_the_old_one(old in "([a-c]{0,2}\n){0,12}[a-c]?", new in "([a-c]{0,2}\n){0,12}[a-c]?", context in 0_usize..4) {
            let diff = TextDiff::from_lines(&old, &new).unified_diff().context_radius(context).header("a/x", "b/x").to_string();
            prop_assume!(!diff.is_empty());
            prop_assert_eq!(patched(&old, &diff), Ok(new.clone()), "{}", diff);
            // Lines that were added above move the place; the patch must fit in exactly one place or be refused.
            let moved = format!("z\nz\n{old}");
            if let Ok(text) = patched(&moved, &diff) {
                prop_assert_eq!(text.lines().count(), new.lines().count() + 2, "{}", diff);
            }
        }
    }
}
