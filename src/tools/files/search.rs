//! The search for a pattern in the lines of files, with ripgrep's searcher.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Encoding, Searcher, SearcherBuilder, Sink, SinkMatch};
use parking_lot::Mutex;
use regex_syntax::ParserBuilder;

use super::read::{START_BYTES, text_encoding};
use crate::guard::{EntryKind, KnownSecrets, StopSignal, WalkStop, WalkedEntry};
use crate::text::{one_line, truncate};

/// The maximum number of matches of a search.
pub(super) const MAX_MATCHES: usize = 500;
/// The maximum length of the shown part of a line, in characters, and how much of it precedes the match.
const LINE_CHARS: usize = 300;
const CHARS_BEFORE: usize = 100;
/// The maximum length of a pattern, in bytes, and the size limits of its automata. The limits matter because a search of one
/// buffer cannot be interrupted.
const MAX_PATTERN: usize = 4_096;
const MAX_PROGRAM_BYTES: usize = 512 << 10;
const MAX_CACHE_BYTES: usize = 8 << 20;
/// The maximum length of a searched line, in bytes. A file with a longer line is searched up to that line.
const MAX_LINE: usize = 1 << 20;

/// A search that several threads share.
pub(super) struct Search<'a> {
    matcher: RegexMatcher,
    stop: &'a StopSignal,
    wanted: usize,
    /// The number of matches so far, including those that are not wanted any more.
    found: AtomicUsize,
    result: Mutex<SearchResult>,
    secrets: &'a KnownSecrets,
}

/// A file with matches.
pub(super) struct MatchedFile {
    pub shown: String,
    /// The path relative to the workspace, if the file lies there.
    pub path: Option<PathBuf>,
    /// The line numbers and texts.
    pub lines: Vec<(u64, String)>,
}

/// The result of a search.
#[derive(Default)]
pub(super) struct SearchResult {
    /// The files with matches, sorted by path when the search has ended.
    pub files: Vec<MatchedFile>,
    pub searched: usize,
    binary: usize,
    long_lines: usize,
    unreadable: usize,
}

impl SearchResult {
    /// Returns the numbers of files that were not searched, or not to their end, by reason.
    pub(super) fn skipped(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let all = [(self.binary, "binary"), (self.long_lines, "with too long lines"), (self.unreadable, "unreadable")];
        all.into_iter().filter(|(count, _)| *count > 0)
    }
}

impl<'a> Search<'a> {
    /// Prepares a search for up to `wanted` matches, which ends early at `stop`. `secrets` are removed from the lines that it finds.
    ///
    /// # Errors
    /// The pattern is not a valid regex; the error names the position.
    pub(super) fn new(
        pattern: &str,
        ignore_case: bool,
        wanted: usize,
        stop: &'a StopSignal,
        secrets: &'a KnownSecrets,
    ) -> Result<Self, String> {
        let (matcher, found) = (compile(pattern, ignore_case)?, AtomicUsize::new(0));
        Ok(Self { matcher, stop, wanted, found, result: Mutex::default(), secrets })
    }

    /// Returns a visitor for one thread of a walk.
    pub(super) fn visitor(&self) -> impl FnMut(&WalkedEntry<'_>) {
        let (mut searcher, mut start) = (searcher(None), Vec::new());
        move |entry| {
            if entry.kind != EntryKind::File {
                return;
            }
            let Some(file) = entry.open() else { return };
            let lines = self.lines_of(&mut searcher, &mut start, file);
            self.add(lines, || (entry.shown(), entry.workspace_path()));
        }
    }

    /// Searches one file.
    pub(super) fn search_file(&self, file: File, shown: &str, path: Option<&Path>) {
        let lines = self.lines_of(&mut searcher(None), &mut Vec::new(), file);
        self.add(lines, || (shown.to_owned(), path.map(Path::to_owned)));
    }

    /// Returns the matches. A stopped search has not seen all files.
    pub(super) fn finish(self) -> SearchResult {
        let mut result = self.result.into_inner();
        result.files.sort_by(|one, other| one.shown.cmp(&other.shown));
        result
    }

    /// Returns a matching line as text. Of a long line, returns the part around the match. Secrets are removed before the line is
    /// cut, since a part of a secret would not be recognized.
    fn excerpt(&self, line: &[u8]) -> String {
        let begin = |line: &[u8]| self.matcher.find(line).ok().flatten().map_or(0, |found| found.start());
        if !self.secrets.is_empty() {
            let mut text = String::from_utf8_lossy(line).into_owned();
            if self.secrets.redact(&mut text) {
                return excerpt(text.as_bytes(), begin(text.as_bytes()));
            }
        }
        excerpt(line, begin(line))
    }

    fn add(&self, lines: Vec<(u64, String)>, name: impl FnOnce() -> (String, Option<PathBuf>)) {
        if !lines.is_empty() {
            let (shown, path) = name();
            self.result.lock().files.push(MatchedFile { shown, path, lines });
        }
    }

    /// Searches one file with `searcher`, or with one for the encoding of the file. `start` is a buffer.
    fn lines_of(&self, searcher: &mut Searcher, start: &mut Vec<u8>, file: File) -> Vec<(u64, String)> {
        let mut sink = LineSink { search: self, lines: Vec::new(), is_binary: false };
        let mut reader = StoppableReader { file, stop: self.stop };
        start.clear();
        let done = reader.by_ref().take(START_BYTES).read_to_end(start).and_then(|_| {
            let encoding = encoding_of(start, &reader.file);
            let whole = start.as_slice().chain(reader);
            match encoding {
                None => searcher.search_reader(&self.matcher, whole, &mut sink),
                encoding => self::searcher(encoding).search_reader(&self.matcher, whole, &mut sink),
            }
        });
        let LineSink { lines, is_binary, .. } = sink;
        let mut result = self.result.lock();
        let counter = match done {
            _ if is_binary => &mut result.binary,
            Ok(()) => &mut result.searched,
            Err(_) if self.stop.is_stopped() => return lines,
            // The searcher has no error type for this case.
            Err(error) if error.to_string().contains("allocation limit") => &mut result.long_lines,
            Err(_) => &mut result.unreadable,
        };
        *counter += 1;
        lines
    }
}

/// Returns the encoding by which a file is decoded, as `read_file` does; `None` for UTF-8, for a file with a byte order mark, which
/// the searcher follows by itself, and for a file that is not text.
fn encoding_of(start: &[u8], file: &File) -> Option<Encoding> {
    // The last character of a part may be cut.
    let is_utf_8 = std::str::from_utf8(start).is_ok_and(|text| !text.contains('\0'));
    if is_utf_8 {
        return None;
    }
    let found = text_encoding(start, file.metadata().ok()?.len())?;
    found.name().filter(|_| found.mark == 0).and_then(|name| Encoding::new(name).ok())
}

fn searcher(encoding: Option<Encoding>) -> Searcher {
    SearcherBuilder::new()
        .encoding(encoding)
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE))
        .build()
}

/// A reader of a file that ends early when the search is stopped.
struct StoppableReader<'a> {
    file: File,
    stop: &'a StopSignal,
}

impl Read for StoppableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_stopped() {
            return Err(io::Error::other("the search was stopped"));
        }
        self.file.read(buffer)
    }
}

/// A sink for the matching lines of one file.
struct LineSink<'a> {
    search: &'a Search<'a>,
    lines: Vec<(u64, String)>,
    is_binary: bool,
}

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let search = self.search;
        if search.stop.is_stopped() {
            return Ok(false);
        }
        if search.found.fetch_add(1, Ordering::Relaxed) >= search.wanted {
            search.stop.stop(WalkStop::Enough);
            return Ok(false);
        }
        self.lines.push((found.line_number().unwrap_or(0), search.excerpt(found.bytes())));
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.is_binary = true;
        Ok(false)
    }
}

/// Returns a line as text. Of a long line, returns the part around the match, which begins at byte `at`.
fn excerpt(line: &[u8], at: usize) -> String {
    // A character has up to four bytes. A character that is cut becomes a replacement character, which is removed.
    let from = at.saturating_sub(4 * CHARS_BEFORE).min(line.len());
    let to = (at + 4 * LINE_CHARS).min(line.len());
    let before: Vec<char> = String::from_utf8_lossy(&line[from..at.min(to)]).chars().collect();
    let skip = if from > 0 || before.len() > LINE_CHARS { before.len().saturating_sub(CHARS_BEFORE) } else { 0 };
    let behind = String::from_utf8_lossy(&line[at.min(to)..to]).trim_end_matches(['\n', '\r']).to_owned();
    let text: Vec<char> = before[skip..].iter().copied().chain(behind.chars()).collect();
    let is_cut_before = from > 0 || skip > 0;
    let is_cut_behind = text.len() > LINE_CHARS || to < line.len();
    let clean = |c: &char| if c.is_control() && *c != '\t' { char::REPLACEMENT_CHARACTER } else { *c };
    let shown: String = text.iter().take(LINE_CHARS).map(clean).collect();
    format!("{}{shown}{}", if is_cut_before { "…" } else { "" }, if is_cut_behind { "…" } else { "" })
}

fn compile(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, String> {
    if pattern.is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    if pattern.len() > MAX_PATTERN {
        return Err(format!("the pattern has {} bytes, more than the limit of {MAX_PATTERN}", pattern.len()));
    }
    check_syntax(pattern)?;
    RegexMatcherBuilder::new()
        .case_insensitive(ignore_case)
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_PROGRAM_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES)
        .build(pattern)
        .map_err(|error| {
            let error = one_line(&error.to_string());
            if error.contains("size limit") {
                return "the pattern is too large: shorten its repetitions, such as {1,1000}".to_owned();
            }
            format!("the pattern cannot be used, as each line is searched alone: {}", truncate(&error, LINE_CHARS))
        })
}

/// Finds the error in a pattern, and states its position.
fn check_syntax(pattern: &str) -> Result<(), String> {
    let (what, at) = match ParserBuilder::new().utf8(false).build().parse(pattern) {
        Ok(_) => return Ok(()),
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(other) => (one_line(&other.to_string()), 0),
    };
    let place = pattern.get(..at).map_or(0, |before| before.chars().count()) + 1;
    let rest: String = pattern.get(at..).unwrap_or_default().chars().take(20).collect();
    let hint = if pattern.starts_with('*') { "; for names of files use glob" } else { "" };
    Err(format!("the pattern is not a regex: {what}, at character {place} ({rest:?}){hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_around_the_match() {
        let long = format!("{}needle{}", "a".repeat(1_000), "b".repeat(1_000));
        let cut = format!("…{}needle{}…", "a".repeat(100), "b".repeat(194));
        let early = format!("needle{}…", "b".repeat(294));
        let wide = format!("…{}needle\t\u{fffd}x", "界".repeat(100));
        for (line, at, expected) in [
            ("short\r\n".to_owned(), 0, "short"),
            (long.clone(), 1_000, cut.as_str()),
            (long[1_000..].to_owned(), 0, &early),
            (format!("{}needle\t\u{1b}x\n", "界".repeat(500)), 1_500, &wide),
        ] {
            assert_eq!(excerpt(line.as_bytes(), at), expected, "{at}");
        }
        assert_eq!(excerpt(b"\xffa\xfe\n", 1), "\u{fffd}a\u{fffd}");
    }

    #[test]
    fn a_fault_of_a_pattern_is_named_with_its_place() {
        for (pattern, expected) in [
            ("a(b", "unclosed group, at character 2 (\"(b\")"),
            ("界[a", "unclosed character class, at character 2 (\"[a\")"),
            ("*.rs", "repetition operator missing expression, at character 1 (\"*.rs\"); for names of files use glob"),
            ("(?=a)", "look-around, including look-ahead and look-behind, is not supported, at character 1"),
            (r"(a)\1", "backreferences are not supported, at character 4"),
            (r"\p{Nope}", "Unicode property not found, at character 1"),
            ("a\\nb", "each line is searched alone"),
            ("(a{1,1000}){1,1000}", "too large"),
            ("", "is empty"),
        ] {
            let error = compile(pattern, false).unwrap_err();
            assert!(error.contains(expected) && error.lines().count() == 1, "{pattern}: {error}");
        }
        assert!(compile(&"a".repeat(5_000), false).unwrap_err().contains("more than the limit"));
    }
}
