//! Parses patches: unified diffs, including those of git, and the `*** Begin Patch` form.
//!
//! Own code: models write wrong line counts and headers without line numbers, which the libraries refuse, and no library reads
//! both forms.

use std::iter::Peekable;
use std::str::Lines;

/// The maximum number of files of a patch.
const MAX_FILES: usize = 200;
const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
/// The start of the first and last line of a Markdown code block.
const FENCE: &str = "```";
const END_OF_FILE: &str = "*** End of File";
/// The name of a missing file in a diff.
const NULL: &str = "/dev/null";
/// The longest part of a line that an error repeats, in characters.
const ECHO_CHARS: usize = 120;

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePatch {
    pub path: String,
    pub change: FileChange,
    /// Whether the file becomes executable; `None` if the patch does not say.
    pub executable: Option<bool>,
}

impl FilePatch {
    /// Returns the paths that the change writes or removes.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let target = match &self.change {
            FileChange::Update { move_to, .. } => move_to.as_deref(),
            FileChange::Add { .. } | FileChange::Delete { .. } => None,
        };
        std::iter::once(self.path.as_str()).chain(target)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    Add {
        content: String,
    },
    /// If there are hunks, the file must contain exactly the lines that they remove.
    Delete {
        hunks: Vec<Hunk>,
    },
    Update {
        move_to: Option<String>,
        hunks: Vec<Hunk>,
    },
}

/// A change of adjacent lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// The line that begins the hunk, as written.
    pub header: String,
    /// The number of the hunk's first line in the file, starting from 1, if the header states it.
    pub start: Option<usize>,
    /// Lines of the file that precede the hunk, in order.
    pub anchors: Vec<String>,
    pub lines: Vec<HunkLine>,
    /// True if the hunk ends at the end of the file.
    pub is_at_end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HunkLine {
    pub kind: PatchLineKind,
    pub text: String,
    /// True for the last line of a file that does not end with a line break.
    pub is_unended: bool,
    /// True for an empty line of the patch without the leading space that a context line has.
    is_bare: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchLineKind {
    Context,
    Removed,
    Added,
}

impl Hunk {
    /// Returns the lines that the file must contain.
    pub(super) fn old_lines(&self) -> Vec<&str> {
        self.lines.iter().filter(|line| line.kind != PatchLineKind::Added).map(|line| line.text.as_str()).collect()
    }

    /// Adds a line of a patch. Returns false if it does not belong to a hunk.
    fn push(&mut self, line: &str) -> bool {
        let kind = match line.chars().next() {
            // Editors and models remove the leading space of an empty context line.
            None | Some(' ') => PatchLineKind::Context,
            Some('-') => PatchLineKind::Removed,
            Some('+') => PatchLineKind::Added,
            Some('\\') => {
                if let Some(last) = self.lines.last_mut() {
                    last.is_unended = true;
                }
                return true;
            }
            Some(_) => return false,
        };
        let text = line.get(1..).unwrap_or_default().to_owned();
        self.lines.push(HunkLine { kind, text, is_unended: false, is_bare: line.is_empty() });
        true
    }
}

/// Parses a patch.
///
/// # Errors
/// States what is wrong with the patch.
pub(super) fn parse_patch(text: &str) -> Result<Vec<FilePatch>, String> {
    let text = without_fence(text);
    let is_envelope = text
        .lines()
        .any(|line| line.trim_end() == BEGIN || [ADD, DELETE, UPDATE].iter().any(|heading| line.starts_with(heading)));
    let files = if is_envelope { parse_envelope(&text)? } else { parse_unified(&text)? };
    match files.len() {
        0 => {
            Err(format!("the patch changes no file; write a unified diff with --- and +++ lines, or the {BEGIN} form"))
        }
        1..=MAX_FILES => Ok(files),
        many => Err(format!("the patch changes {many} files, at most {MAX_FILES}")),
    }
}

/// Removes the fence of a Markdown code block around the patch.
fn without_fence(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let indent = first.len() - first.trim_start().len();
    if !first[indent..].starts_with(FENCE) {
        return text.to_owned();
    }
    // Fences in the content of files have another indentation: the patch puts a character before each line.
    let fence = &first[..indent + FENCE.len()];
    text.lines().filter(|line| !line.starts_with(fence)).collect::<Vec<_>>().join("\n")
}

fn echo(line: &str) -> String {
    format!("{:?}", crate::text::truncate(line, ECHO_CHARS))
}

fn parse_envelope(text: &str) -> Result<Vec<FilePatch>, String> {
    let mut lines = text.lines().peekable();
    let mut files = Vec::new();
    let patch = |path: &str, change| FilePatch { path: path.trim().to_owned(), change, executable: None };
    while let Some(line) = lines.next() {
        if line.trim_end() == END {
            break;
        }
        if let Some(path) = line.strip_prefix(ADD) {
            files.push(patch(path, FileChange::Add { content: added_content(path, &mut lines)? }));
        } else if let Some(path) = line.strip_prefix(DELETE) {
            files.push(patch(path, FileChange::Delete { hunks: Vec::new() }));
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            let move_to = lines.next_if(|line| line.starts_with(MOVE)).map(|line| line[MOVE.len()..].trim().to_owned());
            let hunks = envelope_hunks(path, &mut lines)?;
            files.push(patch(path, FileChange::Update { move_to, hunks }));
        } else if line.trim_end() != BEGIN && !line.trim().is_empty() {
            let line = echo(line);
            return Err(format!("{line} is none of {ADD:?}, {DELETE:?}, {UPDATE:?} and {END:?}; nothing was changed"));
        }
    }
    Ok(files)
}

fn is_heading(line: &str) -> bool {
    line.starts_with("*** ") && line.trim_end() != END_OF_FILE
}

fn added_content(path: &str, lines: &mut Peekable<Lines<'_>>) -> Result<String, String> {
    let mut content = String::new();
    while let Some(line) = lines.next_if(|line| !is_heading(line)) {
        match line.strip_prefix('+') {
            Some(line) => content.extend([line, "\n"]),
            None if line.trim().is_empty() || line.trim_end() == END_OF_FILE => {}
            None => {
                return Err(format!(
                    "{path}: each line of a new file begins with +, not {}; nothing was changed",
                    echo(line)
                ));
            }
        }
    }
    Ok(content)
}

fn envelope_hunks(path: &str, lines: &mut Peekable<Lines<'_>>) -> Result<Vec<Hunk>, String> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut open: Option<Hunk> = None;
    while let Some(line) = lines.next_if(|line| !is_heading(line)) {
        if line.starts_with("@@") {
            // Several headers in a row lead to the place step by step.
            if open.as_ref().is_some_and(|hunk| !hunk.lines.is_empty()) {
                close(path, &mut open, &mut hunks)?;
            }
            let hunk = open.get_or_insert_with(Hunk::default);
            read_header(line, hunk);
        } else if line.trim_end() == END_OF_FILE {
            open.get_or_insert_with(Hunk::default).is_at_end = true;
            close(path, &mut open, &mut hunks)?;
        } else if !line.is_empty() || open.is_some() {
            let hunk = open.get_or_insert_with(Hunk::default);
            if !hunk.push(line) {
                return Err(bad_line(path, hunks.len() + 1, line));
            }
        }
    }
    close(path, &mut open, &mut hunks)?;
    Ok(hunks)
}

fn bad_line(path: &str, number: usize, line: &str) -> String {
    format!("{path}, hunk {number}: {} begins with none of space, + and -; nothing was changed", echo(line))
}

/// Ends a hunk. Bare lines at its end only separate it from the following text.
fn close(path: &str, open: &mut Option<Hunk>, hunks: &mut Vec<Hunk>) -> Result<(), String> {
    let Some(mut hunk) = open.take() else { return Ok(()) };
    while hunk.lines.last().is_some_and(|line| line.is_bare) {
        hunk.lines.pop();
    }
    if hunk.lines.iter().all(|line| line.kind == PatchLineKind::Context) {
        return Err(format!("{path}, hunk {}: has no line with + or -; nothing was changed", hunks.len() + 1));
    }
    hunks.push(hunk);
    Ok(())
}

/// Parses a header: `@@ -1,2 +1,3 @@`, or `@@` with a line of the file that precedes the hunk. Returns the numbers of old and new
/// lines.
fn read_header(line: &str, hunk: &mut Hunk) -> Option<(usize, usize)> {
    if hunk.header.is_empty() {
        hunk.header = line.trim_end().to_owned();
    }
    let rest = line.trim_start_matches('@').trim();
    let numbers = || {
        let (ranges, _) = rest.split_once("@@").unwrap_or((rest, ""));
        let (old, new) = ranges.trim().strip_prefix('-')?.split_once(" +")?;
        let range = |text: &str| {
            let (start, count) = text.trim().split_once(',').unwrap_or((text.trim(), "1"));
            Some((start.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
        };
        Some((range(old)?, range(new)?))
    };
    if let Some(((start, old), (_, new))) = numbers() {
        hunk.start = Some(start);
        return Some((old, new));
    }
    let anchor = rest.trim_end_matches('@').trim();
    if !anchor.is_empty() && anchor != "..." {
        hunk.anchors.push(anchor.to_owned());
    }
    None
}

/// The part of a unified diff about one file.
#[derive(Debug, Default)]
struct DiffSection {
    is_git: bool,
    /// The names in the line `diff --git`.
    git: Option<(String, String)>,
    /// The names in the lines `---` and `+++`.
    names: Option<(String, String)>,
    renamed: (Option<String>, Option<String>),
    is_new: bool,
    is_deleted: bool,
    executable: Option<bool>,
    hunks: Vec<Hunk>,
}

fn parse_unified(text: &str) -> Result<Vec<FilePatch>, String> {
    let mut lines = text.lines().peekable();
    let mut files = Vec::new();
    let mut section = DiffSection::default();
    while let Some(line) = lines.next() {
        let new_name = lines.peek().and_then(|next| next.strip_prefix("+++ "));
        if let Some(names) = line.strip_prefix("diff --git ") {
            files.extend(std::mem::take(&mut section).finish()?);
            (section.is_git, section.git) = (true, git_names(names));
        } else if let (Some(old), Some(new)) = (line.strip_prefix("--- "), new_name) {
            if section.names.is_some() {
                files.extend(std::mem::take(&mut section).finish()?);
            }
            section.names = Some((file_name(old), file_name(new)));
            lines.next();
        } else if line.starts_with("@@") {
            section.read_hunk(line, &mut lines)?;
        } else {
            section.read_extended_header(line)?;
        }
    }
    files.extend(section.finish()?);
    Ok(files)
}

impl DiffSection {
    fn read_extended_header(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with("Binary files ") || line == "GIT binary patch" {
            return Err("the patch changes a binary file, which is not supported; nothing was changed".to_owned());
        }
        // Only git writes these lines, and only before the hunks. Elsewhere they may be the text of a mail.
        if !self.is_git || !self.hunks.is_empty() {
            return Ok(());
        }
        if line.starts_with("copy from ") {
            return Err("copies are not supported; write the new file as an addition; nothing was changed".to_owned());
        }
        if let Some(name) = line.strip_prefix("rename from ") {
            self.renamed.0 = Some(unquoted(name));
        } else if let Some(name) = line.strip_prefix("rename to ") {
            self.renamed.1 = Some(unquoted(name));
        } else if let Some(mode) = line.strip_prefix("new file mode ") {
            self.is_new = true;
            self.executable = executable_of(mode)?.then_some(true);
        } else if line.starts_with("deleted file mode ") {
            self.is_deleted = true;
        } else if let Some(mode) = line.strip_prefix("new mode ") {
            self.executable = Some(executable_of(mode)?);
        }
        Ok(())
    }

    /// Reads the lines of a hunk, up to the next hunk, the next file, or text that does not belong to the diff.
    fn read_hunk(&mut self, header: &str, lines: &mut Peekable<Lines<'_>>) -> Result<(), String> {
        let path = self.old_name().unwrap_or_default();
        if path.is_empty() {
            return Err(format!("{} comes before any --- and +++ lines; nothing was changed", echo(header)));
        }
        let number = self.hunks.len() + 1;
        let mut hunk = Hunk::default();
        let mut left = read_header(header, &mut hunk);
        while let Some(line) = lines.peek().copied() {
            let is_signature = line == "-- " && left == Some((0, 0));
            if line.starts_with("@@") || line.starts_with("diff --git ") || is_signature || is_file_name(lines, left) {
                break;
            }
            if !hunk.push(line) {
                if left.is_none_or(|left| left == (0, 0)) {
                    break;
                }
                return Err(bad_line(&path, number, line));
            }
            let step = |count: &mut usize, is_counted: bool| *count = count.saturating_sub(usize::from(is_counted));
            if let (Some((old, new)), Some(kind)) = (&mut left, line.chars().next())
                && kind != '\\'
            {
                step(old, kind != '+');
                step(new, kind != '-');
            }
            lines.next();
        }
        let mut open = Some(hunk);
        close(&path, &mut open, &mut self.hunks)
    }

    fn old_name(&self) -> Option<String> {
        let (old, new) = self.header_names()?;
        Some(if old == NULL { new } else { old })
    }

    /// Returns the old and the new name, without the prefixes that git adds.
    fn header_names(&self) -> Option<(String, String)> {
        let (old, new) = self.names.as_ref().or(self.git.as_ref())?;
        let has = |name: &str, prefix: &str| name == NULL || name.starts_with(prefix);
        if has(old, "a/") && has(new, "b/") {
            let strip = |name: &str, prefix: &str| name.strip_prefix(prefix).unwrap_or(name).to_owned();
            return Some((strip(old, "a/"), strip(new, "b/")));
        }
        Some((old.clone(), new.clone()))
    }

    /// Returns the change of the file; `None` if the section describes no change.
    fn finish(self) -> Result<Option<FilePatch>, String> {
        let Some((old, new)) = self.header_names().or_else(|| self.renamed.0.clone().zip(self.renamed.1.clone()))
        else {
            return Ok(None);
        };
        let patch = |path, change| Ok(Some(FilePatch { path, change, executable: self.executable }));
        if self.is_new || old == NULL {
            return patch(new.clone(), FileChange::Add { content: content_of(&new, &self.hunks)? });
        }
        if self.is_deleted || new == NULL {
            return patch(old, FileChange::Delete { hunks: self.hunks });
        }
        if let (Some(from), Some(to)) = self.renamed {
            return patch(from, FileChange::Update { move_to: Some(to), hunks: self.hunks });
        }
        if old != new {
            return Err(format!(
                "--- {old} and +++ {new} are two names; write \"rename from\" and \"rename to\" lines below a \"diff --git\" line \
                 to rename a file; nothing was changed"
            ));
        }
        if self.hunks.is_empty() && self.executable.is_none() {
            return Err(format!("{old}: the patch has no hunk for it; nothing was changed"));
        }
        patch(old, FileChange::Update { move_to: None, hunks: self.hunks })
    }
}

/// Returns true if the next lines are the names of the next file. Changed lines that begin with dashes and plus signs look the
/// same. The following line, and the numbers of lines that are `left` in the hunk, distinguish them.
fn is_file_name(lines: &Peekable<Lines<'_>>, left: Option<(usize, usize)>) -> bool {
    let mut ahead = lines.clone();
    let mut begins = |start: &str| ahead.next().is_some_and(|line| line.starts_with(start));
    if !begins("--- ") || !begins("+++ ") {
        return false;
    }
    let is_full = left.is_none_or(|(old, new)| old == 0 || new == 0);
    is_full || (left != Some((1, 1)) && begins("@@"))
}

/// Returns the content of a new file.
fn content_of(path: &str, hunks: &[Hunk]) -> Result<String, String> {
    let lines: Vec<&HunkLine> = hunks.iter().flat_map(|hunk| &hunk.lines).collect();
    if lines.iter().any(|line| line.kind != PatchLineKind::Added) {
        return Err(format!("{path}: a new file has lines with + alone; nothing was changed"));
    }
    Ok(lines.iter().flat_map(|line| [line.text.as_str(), if line.is_unended { "" } else { "\n" }]).collect())
}

fn executable_of(mode: &str) -> Result<bool, String> {
    match mode.trim() {
        "100755" => Ok(true),
        "100644" => Ok(false),
        mode => Err(format!("the patch makes a file of mode {mode:?}, no regular file; nothing was changed")),
    }
}

/// Returns the two names in a line `diff --git`, which must be equal except for their prefixes.
fn git_names(names: &str) -> Option<(String, String)> {
    let names = names.trim_end();
    if let Some(quoted) = names.strip_prefix('"') {
        let end = quoted.find("\" ")? + 2;
        return Some((unquoted(&names[..end]), unquoted(&names[end..])));
    }
    let middle = names.len() / 2;
    let (old, new) = names.split_at_checked(middle)?;
    Some((old.to_owned(), new.strip_prefix(' ')?.to_owned()))
}

/// Returns the name in a line `---` or `+++`, without the time that may follow it.
fn file_name(rest: &str) -> String {
    unquoted(rest.split('\t').next().unwrap_or_default())
}

/// Decodes a name that git has quoted because of special characters.
fn unquoted(name: &str) -> String {
    let name = name.trim();
    let Some(inner) = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut bytes = Vec::new();
    let mut rest = inner.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(digit) = rest.next_if(|byte| (b'0'..=b'7').contains(byte)) else { break };
                    value = value * 8 + u32::from(digit - b'0');
                }
                bytes.push(u8::try_from(value & 0xff).unwrap_or_default());
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[path = "patch_text_tests.rs"]
mod tests;
