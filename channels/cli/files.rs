//! Files that the user adds to a conversation. The next message contains their text, so that an accepted message is
//! complete whatever happens to the file later.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::texts::TerminalTexts;
use crate::clean::clean_line;
use crate::text::{Language, fill};

/// The largest file, in bytes.
const MAX_FILE: u64 = 256 << 10;
/// The maximum size of all file text in one message, in bytes.
const MAX_TOTAL: usize = 512 << 10;
const MAX_FILES: usize = 50;

/// The files of a conversation, in the order of adding.
#[derive(Debug, Default)]
pub struct ConversationFiles {
    list: Vec<AddedFile>,
}

#[derive(Debug)]
struct AddedFile {
    /// The name that the user gave.
    name: String,
    /// The canonical path.
    path: PathBuf,
    text: String,
    is_sent: bool,
}

/// The reason why a file was not added.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text(TerminalTexts::of(Language::En)))]
pub enum FileFault {
    Missing(String),
    Unreadable(String, io::Error),
    /// Not a regular file: a folder, a pipe, a device.
    NoFile(String),
    TooLarge(String, u64),
    /// Not UTF-8 text.
    Binary(String),
    TooMany,
    /// Together with the waiting files, it would be too large for one message.
    TooMuch(String),
}

impl FileFault {
    /// Describes the fault and its remedy.
    pub(super) fn text(&self, texts: &TerminalTexts) -> String {
        match self {
            Self::Missing(file) => fill(texts.file_missing, &[&clean_line(file)]),
            Self::Unreadable(file, error) => fill(texts.file_unreadable, &[&clean_line(file), &error.to_string()]),
            Self::NoFile(file) => fill(texts.file_irregular, &[&clean_line(file)]),
            Self::TooLarge(file, bytes) => {
                fill(texts.file_too_large, &[&clean_line(file), &size(*bytes), &size(MAX_FILE)])
            }
            Self::Binary(file) => fill(texts.file_binary, &[&clean_line(file)]),
            Self::TooMany => fill(texts.too_many_files, &[&MAX_FILES.to_string()]),
            Self::TooMuch(file) => fill(texts.files_too_large, &[&clean_line(file), &size(MAX_TOTAL as u64)]),
        }
    }
}

impl ConversationFiles {
    /// Reads a file. The path is relative to the working directory; `~/` stands for the home. A file that was added before is read again.
    ///
    /// # Errors
    /// The path is not a text file, or the file does not fit into a message.
    pub fn add(&mut self, path: &str) -> Result<(), FileFault> {
        let (name, path) = (path.to_owned(), expand(path));
        let text = read(&name, &path)?;
        // Two paths of one file count as the same file.
        let path = path.canonicalize().unwrap_or(path);
        let others = self.list.iter().filter(|file| file.path != path);
        let waiting: usize = others.clone().filter(|file| !file.is_sent).map(|file| file.text.len()).sum();
        if others.count() >= MAX_FILES {
            return Err(FileFault::TooMany);
        }
        if waiting + text.len() > MAX_TOTAL {
            return Err(FileFault::TooMuch(name));
        }
        self.list.retain(|file| file.path != path);
        self.list.push(AddedFile { name, path, text, is_sent: false });
        Ok(())
    }

    /// Returns the number of files.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the size of the last added file for display.
    pub(super) fn last_size(&self) -> String {
        size(self.list.last().map_or(0, |file| file.text.len()) as u64)
    }

    /// Removes a file by its path or by the name under which it was added.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let before = self.list.len();
        let path = expand(name);
        let path = path.canonicalize().unwrap_or(path);
        self.list.retain(|file| file.name != name && file.path != path);
        self.list.len() < before
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.list.iter().map(|file| file.name.clone()).collect()
    }

    /// Returns the list for display.
    pub(super) fn lines(&self, texts: &TerminalTexts) -> Vec<String> {
        if self.list.is_empty() {
            return vec![texts.no_files.to_owned()];
        }
        let line = |file: &AddedFile| {
            let state = if file.is_sent { texts.is_sent } else { texts.is_waiting };
            format!("  {}  {}  {state}", clean_line(&file.name), size(file.text.len() as u64))
        };
        std::iter::once(texts.files.to_owned()).chain(self.list.iter().map(line)).collect()
    }

    /// Returns `text` followed by the waiting files.
    pub(super) fn join_to(&self, text: &str) -> String {
        let mut joined = text.to_owned();
        for file in self.list.iter().filter(|file| !file.is_sent) {
            let longest_run = file.text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest_run.max(2) + 1);
            let name = clean_line(&file.name);
            let end = if file.text.is_empty() || file.text.ends_with('\n') { "" } else { "\n" };
            let head = format!("\n\n[File: {name}, {} bytes]\n{fence}\n", file.text.len());
            joined.push_str(&format!("{head}{}{end}{fence}", file.text));
        }
        joined
    }

    /// Marks the waiting files as sent, after a message with them was accepted.
    pub(super) fn mark_sent(&mut self) {
        for file in &mut self.list {
            file.is_sent = true;
        }
    }

    /// Removes the sent files when another conversation begins.
    pub(super) fn forget_sent(&mut self) {
        self.list.retain(|file| !file.is_sent);
    }
}

fn read(name: &str, path: &Path) -> Result<String, FileFault> {
    let fault = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileFault::Missing(name.to_owned()),
        _ => FileFault::Unreadable(name.to_owned(), error),
    };
    // Checked before opening: opening a pipe would wait for its other end.
    let metadata = fs::metadata(path).map_err(fault)?;
    if !metadata.is_file() {
        return Err(FileFault::NoFile(name.to_owned()));
    }
    if metadata.len() > MAX_FILE {
        return Err(FileFault::TooLarge(name.to_owned(), metadata.len()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(fault)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(FileFault::TooLarge(name.to_owned(), bytes.len() as u64));
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        _ => Err(FileFault::Binary(name.to_owned())),
    }
}

fn expand(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// Returns the file name in the argument of `/add`: quoted, or with the escaped spaces that completion writes.
pub(super) fn unquote(argument: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inner) = argument.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner.to_owned();
        }
    }
    let mut name = String::new();
    let mut chars = argument.chars();
    while let Some(c) = chars.next() {
        name.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    name
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_files_are_added_and_others_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        write("a.txt", b"one\ntwo");
        write("b.md", b"a ```` b\n");
        write("zero", b"x\0y");
        write("latin", b"\xff\xfe");
        write("large", &vec![b'x'; MAX_FILE as usize + 1]);
        write("fits", &vec![b'x'; MAX_FILE as usize]);
        write("fits too", &vec![b'x'; MAX_FILE as usize - 10]);
        let mut files = ConversationFiles::default();
        for (name, words) in [
            ("a.txt", ""),
            ("b.md", ""),
            ("a.txt", ""),
            ("no such", "there is no file"),
            (".", "is not a regular file"),
            ("zero", "is not UTF-8 text"),
            ("latin", "is not UTF-8 text"),
            ("large", "256.0 KB; at most 256.0 KB"),
            ("fits", ""),
            ("fits too", "would exceed 512.0 KB"),
        ] {
            match files.add(&path(name)) {
                Ok(()) => assert_eq!(words, "", "{name}"),
                Err(fault) => {
                    let message = fault.to_string();
                    assert!(
                        !words.is_empty() && message.contains(words) && !message.contains('\n'),
                        "{name}: {message}"
                    );
                    assert_ne!(fault.text(TerminalTexts::of(Language::Zh)), message);
                }
            }
        }
        assert!(files.remove(&path("fits")) && !files.remove(&path("fits")));
        let joined = files.join_to("look");
        let (b, a) = (path("b.md"), path("a.txt"));
        assert_eq!(
            joined,
            format!("look\n\n[File: {b}, 9 bytes]\n`````\na ```` b\n`````\n\n[File: {a}, 7 bytes]\n```\none\ntwo\n```")
        );
        files.mark_sent();
        assert_eq!(files.join_to("more"), "more");
        assert_eq!((files.lines(TerminalTexts::of(Language::En)).len(), files.count()), (3, 2));
        files.add(&a).unwrap();
        assert!(files.join_to("again").contains("one\ntwo") && !files.join_to("again").contains("````"));
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for (argument, name) in
            [("a b.txt", "a b.txt"), (r"a\ b.txt", "a b.txt"), ("\"a b\"", "a b"), ("'x'", "x"), ("\\", "\\")]
        {
            assert_eq!(unquote(argument), name);
        }
    }
}
