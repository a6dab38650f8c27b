//! Reads the source files below a folder with several threads, through the walk of the path jail, as `grep` does.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::language::CodeLanguage;
use super::parser::{MAX_SOURCE, SkipReason, SourceParser};
use crate::guard::{EntryKind, Jail, JailError, OpenFile, StopSignal, Walk, WalkSelection, WalkStop, WalkedEntry};
use crate::tools::encoding::TextEncoding;

/// The maximum number of source files of one call.
const MAX_FILES: usize = 25_000;
/// The maximum number of different file extensions that are counted.
const MAX_ENDINGS: usize = 200;

/// An open source file that the call may read.
pub(super) struct SourceFile {
    pub language: CodeLanguage,
    /// The path as shown to the model.
    pub shown: String,
    /// Relative to the workspace, if the file lies there.
    pub path: Option<PathBuf>,
    /// The path without links.
    pub real: PathBuf,
    file: File,
}

impl SourceFile {
    /// Returns the metadata that change when the file does; `None` if they cannot be read.
    pub(super) fn metadata(&self) -> Option<std::fs::Metadata> {
        self.file.metadata().ok()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// The reason why the file is left out.
    pub(super) fn read(&mut self) -> Result<Vec<u8>, SkipReason> {
        let mut bytes = Vec::new();
        let mut file = (&mut self.file).take(MAX_SOURCE + 1);
        file.read_to_end(&mut bytes).map_err(|_| SkipReason::Unreadable)?;
        if bytes.len() as u64 > MAX_SOURCE { Err(SkipReason::TooLarge) } else { Ok(bytes) }
    }
}

/// Decodes a source file, in any encoding that `read_file` reads. Invalid bytes become replacement characters.
///
/// # Errors
/// The file is not a text.
pub(super) fn source_text(source: &[u8]) -> Result<Cow<'_, str>, SkipReason> {
    TextEncoding::detect(source, true).map(|encoding| encoding.decode_lossy(source)).ok_or(SkipReason::Binary)
}

/// Returns the byte offset of each line.
pub(super) fn line_starts(source: &[u8]) -> Vec<usize> {
    let ends = source.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect()
}

/// A source file with the value that a call has obtained from it.
pub(super) struct ScannedFile<T> {
    /// The paths and the language of the [`SourceFile`].
    pub shown: String,
    pub path: Option<PathBuf>,
    pub real: PathBuf,
    pub language: CodeLanguage,
    pub value: T,
}

/// The results for the source files, and the numbers of files that were left out.
pub(super) struct ScanResult<T> {
    /// The files with a value, sorted by the path as shown to the model.
    pub items: Vec<ScannedFile<T>>,
    /// The number of files that were read.
    pub read: usize,
    /// The numbers of files of other kinds, by extension.
    pub others: BTreeMap<String, usize>,
    /// The numbers of files that were left out, by reason.
    pub skipped: Vec<(usize, &'static str)>,
}

/// The state of a scan, which several threads share.
struct Scan<'a, T> {
    stop: &'a StopSignal,
    wants: &'a (dyn Fn(CodeLanguage, &Path) -> bool + Sync),
    visit: &'a SourceVisit<'a, T>,
    items: Mutex<Vec<ScannedFile<T>>>,
    others: Mutex<BTreeMap<String, usize>>,
    seen: AtomicUsize,
    read: AtomicUsize,
    skips: Mutex<BTreeMap<SkipReason, usize>>,
}

/// A function that obtains a value from a file; `None` if there is none.
pub(super) type SourceVisit<'a, T> =
    dyn Fn(&mut SourceParser, &mut SourceFile) -> Result<Option<T>, SkipReason> + Sync + 'a;

/// The scope of a scan: a file, or a folder whose source files are read.
pub(super) enum SourceScope<'a> {
    Folder(Walk<'a>),
    File { opened: OpenFile, inside: Option<PathBuf> },
}

impl<'a> SourceScope<'a> {
    /// Opens `path`.
    ///
    /// # Errors
    /// The path is not served.
    pub(super) fn open(jail: &'a Jail, path: &str, stop: &'a StopSignal) -> Result<Self, String> {
        match Walk::new(jail, path, stop) {
            Ok(walk) => Ok(Self::Folder(walk)),
            Err(JailError::NotFolder(_)) => {
                let opened = jail.open_file(path).map_err(|error| error.to_string())?;
                let inside = opened.real.strip_prefix(jail.root()).ok().map(Path::to_owned);
                Ok(Self::File { opened, inside })
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the path without links.
    pub(super) fn real(&self) -> &Path {
        match self {
            Self::Folder(walk) => walk.folder(),
            Self::File { opened, .. } => &opened.real,
        }
    }

    /// Calls `visit` for each source file whose language `wants` accepts.
    ///
    /// # Errors
    /// The scope is a single file of another language.
    pub(super) fn scan<T: Send>(
        self,
        stop: &StopSignal,
        wants: &(dyn Fn(CodeLanguage, &Path) -> bool + Sync),
        visit: &SourceVisit<'_, T>,
    ) -> Result<ScanResult<T>, String> {
        let scan = Scan {
            stop,
            wants,
            visit,
            items: Mutex::default(),
            others: Mutex::default(),
            seen: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            skips: Mutex::default(),
        };
        match self {
            Self::Folder(walk) => {
                let worker = || {
                    let mut parser = SourceParser::new();
                    let (scan, folder) = (&scan, walk.folder());
                    move |entry: &WalkedEntry<'_>| scan.visit_entry(&mut parser, folder, entry)
                };
                walk.run(&|_, _| WalkSelection::Usual, worker);
                let skipped = walk.skipped.list();
                Ok(scan.finish(skipped))
            }
            Self::File { opened, inside } => {
                let OpenFile { real, shown, file, .. } = opened;
                let language = CodeLanguage::of_path(&real).filter(|known| wants(*known, &real));
                let language =
                    language.ok_or_else(|| format!("{shown}: not a file of a language that is read here"))?;
                scan.work(&mut SourceParser::new(), SourceFile { language, shown, path: inside, real, file });
                Ok(scan.finish(Vec::new()))
            }
        }
    }
}

impl<T> Scan<'_, T> {
    fn work(&self, parser: &mut SourceParser, mut file: SourceFile) {
        match (self.visit)(parser, &mut file) {
            Ok(value) => {
                let SourceFile { shown, path, real, language, .. } = file;
                self.items.lock().extend(value.map(|value| ScannedFile { shown, path, real, language, value }));
                self.read.fetch_add(1, Ordering::Relaxed);
            }
            Err(reason) => *self.skips.lock().entry(reason).or_default() += 1,
        }
    }

    /// Reads an entry of a walk below `folder` if it is a wanted source file.
    fn visit_entry(&self, parser: &mut SourceParser, folder: &Path, entry: &WalkedEntry<'_>) {
        if entry.kind != EntryKind::File {
            return;
        }
        let path = entry.path();
        let Some(language) = CodeLanguage::of_path(&path) else { return self.count_other(&path) };
        if !(self.wants)(language, &path) {
            return;
        }
        if self.seen.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
            return self.stop.stop(WalkStop::TooMany);
        }
        let Some(file) = entry.open() else { return };
        let (shown, real) = (entry.shown(), folder.join(path));
        self.work(parser, SourceFile { language, shown, path: entry.workspace_path(), real, file });
    }

    /// Counts a file of another kind.
    fn count_other(&self, path: &Path) {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("").to_ascii_lowercase();
        let is_word = ending.len() <= 12 && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut others = self.others.lock();
        let is_known = is_word && (others.len() < MAX_ENDINGS || others.contains_key(&ending));
        *others.entry(if is_known { ending } else { String::new() }).or_default() += 1;
    }

    fn finish(self, skipped: Vec<(usize, &'static str)>) -> ScanResult<T> {
        let own = self.skips.into_inner().into_iter().filter_map(|(reason, count)| Some((count, reason.text()?)));
        let mut items = self.items.into_inner();
        items.sort_unstable_by(|one, other| one.shown.cmp(&other.shown));
        ScanResult {
            items,
            read: self.read.into_inner(),
            others: self.others.into_inner(),
            skipped: own.chain(skipped).collect(),
        }
    }
}
