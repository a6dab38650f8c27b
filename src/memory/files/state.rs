//! Reads and writes the memory files, and tracks their last known state.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::guard::{Jail, JailError};
use crate::store::memory_queries::OwnerFacts;
use crate::tools::MEMORY_FOLDER;

/// The path of the facts in the workspace, which people may edit.
pub const MEMORY_FILE: &str = "memory/MEMORY.md";
/// The largest file that is read, in bytes.
pub const MEMORY_FILE_LIMIT: u64 = 4_000_000;

/// The modification time and the length of a file; `None` if there is none.
pub type MemoryFileStamp = Option<(SystemTime, u64)>;

/// The last known state of the memory files. Only one task works on the files at a time.
#[derive(Debug, Default)]
pub struct MemoryFileState {
    pub(super) working: tokio::sync::Mutex<()>,
    seen: Mutex<Option<MemoryFileStamp>>,
    /// The facts that MEMORY.md contains.
    written_facts: Mutex<Option<Vec<OwnerFacts>>>,
    /// The last logged reason why a file was unusable, by file.
    logged: Mutex<Vec<(&'static str, String)>>,
}

impl MemoryFileState {
    /// Returns true if MEMORY.md has changed since it was last seen.
    pub(super) fn is_edited(&self, workspace: &Path) -> bool {
        *self.seen.lock() != Some(stamp(workspace))
    }

    pub(super) fn set_seen(&self, stamp: Option<MemoryFileStamp>) {
        *self.seen.lock() = stamp;
    }

    /// Returns true if MEMORY.md contains exactly these facts.
    pub(super) fn is_written(&self, facts: &[OwnerFacts]) -> bool {
        self.written_facts.lock().as_deref() == Some(facts)
    }

    pub(super) fn set_written_facts(&self, facts: Vec<OwnerFacts>) {
        *self.written_facts.lock() = Some(facts);
    }

    /// Logs once why a file is unusable.
    pub(super) fn log_once(&self, file: &'static str, reason: Option<&str>) {
        let mut logged = self.logged.lock();
        let known = logged.iter().find(|(name, _)| *name == file).map(|(_, reason)| reason.as_str());
        if known == reason {
            return;
        }
        if let Some(reason) = reason {
            tracing::warn!(file, reason, "a memory file is unusable; the memories are safe in the store");
        }
        logged.retain(|(name, _)| *name != file);
        logged.extend(reason.map(|reason| (file, reason.to_owned())));
    }
}

/// Returns the stamp of MEMORY.md.
pub fn stamp(workspace: &Path) -> MemoryFileStamp {
    let metadata = workspace.join(MEMORY_FILE).symlink_metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// The result of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRead {
    Missing,
    Text {
        text: String,
        /// The file was written a moment ago, maybe not completely.
        is_fresh: bool,
        stamp: MemoryFileStamp,
    },
    /// The file must not be read or replaced, for this reason.
    Unusable(String),
}

/// The maximum number of older history files of one second.
const MAX_HISTORIES_PER_SECOND: usize = 20;

/// The age from which a file counts as completely written, so that missing bullets count as removed.
const SETTLE_AGE: Duration = Duration::from_secs(2);

/// Reads a file of the workspace.
pub fn read(workspace: &Path, file: &str) -> FileRead {
    let jail = match jail(workspace) {
        Ok(jail) => jail,
        Err(error) => return FileRead::Unusable(error.to_string()),
    };
    let stamp = stamp(workspace);
    let mut opened = jail.read(file);
    if matches!(opened, Err(JailError::Missing(_))) {
        // Not even a dangling link has the name.
        if workspace.join(file).symlink_metadata().is_err() {
            return FileRead::Missing;
        }
        // Another program has created the file meanwhile, or the file is a dangling link.
        opened = jail.read(file);
    }
    match opened {
        Ok(opened) => match String::from_utf8(opened.bytes) {
            Ok(text) => {
                let age = stamp.and_then(|(changed, _)| changed.elapsed().ok());
                FileRead::Text { text, is_fresh: age.is_none_or(|age| age < SETTLE_AGE), stamp }
            }
            Err(_) => FileRead::Unusable(format!("{file} is not UTF-8 text")),
        },
        Err(error) => FileRead::Unusable(error.to_string()),
    }
}

/// Returns the paths of older history files, sorted by name.
pub fn older_histories(workspace: &Path) -> Vec<String> {
    let folder = jail(workspace).ok().and_then(|jail| jail.folder(MEMORY_FOLDER).ok());
    let names = folder.into_iter().filter_map(|(folder, _)| folder.entries().ok()).flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_older = |name: &String| name.starts_with("HISTORY-") && name.ends_with(".md");
    let mut files: Vec<String> = names.filter(is_older).map(|name| format!("{MEMORY_FOLDER}/{name}")).collect();
    files.sort();
    files
}

/// Writes `text` if the file still contains `before`. Returns the stamp of the new file, taken before anybody can edit it;
/// `None` if the file has changed.
///
/// # Errors
/// The file cannot be written; the error is a text.
pub fn replace(
    workspace: &Path,
    file: &str,
    before: Option<&str>,
    text: &str,
) -> Result<Option<MemoryFileStamp>, String> {
    let jail = jail(workspace).map_err(|error| error.to_string())?;
    let mut unusable = None;
    let is_unchanged = || match read(workspace, file) {
        FileRead::Missing => before.is_none(),
        FileRead::Text { text, .. } => before == Some(text.as_str()),
        FileRead::Unusable(reason) => {
            unusable = Some(reason);
            false
        }
    };
    let written = jail.write_private_if(file, text.as_bytes(), is_unchanged).map_err(|error| error.to_string())?;
    match unusable {
        Some(reason) => Err(reason),
        None => Ok(written.map(|written| Some((written, text.len() as u64)))),
    }
}

/// Writes a log to a new older history file. Returns false if all names of this second are taken.
///
/// # Errors
/// The file cannot be written; the error is a text.
pub fn write_older_history(workspace: &Path, log: &str) -> Result<bool, String> {
    let time = Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    for number in 1..=MAX_HISTORIES_PER_SECOND {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        if replace(workspace, &format!("{MEMORY_FOLDER}/HISTORY-{time}{suffix}.md"), None, log)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn jail(workspace: &Path) -> std::io::Result<Jail> {
    Jail::open_strict(workspace, Vec::new(), MEMORY_FILE_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_histories_of_one_second_are_all_kept() {
        let workspace = tempfile::tempdir().unwrap();
        let logs = ["one", "two", "three"];
        for log in logs {
            assert_eq!(write_older_history(workspace.path(), log), Ok(true));
        }
        let kept = older_histories(workspace.path()).into_iter();
        let kept: Vec<String> =
            kept.map(|file| std::fs::read_to_string(workspace.path().join(file)).unwrap()).collect();
        assert!(kept.len() == logs.len() && logs.iter().all(|log| kept.iter().any(|text| text == log)), "{kept:?}");
    }

    /// A person creates the page while the gateway does.
    #[test]
    fn an_edit_during_a_write_is_kept() {
        let mut kept = 0;
        for round in 0..200_u64 {
            let workspace = tempfile::tempdir().unwrap();
            let page = workspace.path().join(MEMORY_FILE);
            std::fs::create_dir(page.parent().unwrap()).unwrap();
            let editor = std::thread::spawn({
                let page = page.clone();
                move || {
                    for _ in 0..round * 100 {
                        std::hint::spin_loop();
                    }
                    std::fs::write(&page, "- by hand\n").unwrap();
                }
            });
            let written = replace(workspace.path(), MEMORY_FILE, None, "- template\n").unwrap();
            editor.join().unwrap();
            let text = std::fs::read_to_string(&page).unwrap();
            assert_eq!(text, "- by hand\n", "round {round}, {written:?}");
            let names = std::fs::read_dir(page.parent().unwrap()).unwrap().count();
            assert_eq!(names, 1, "round {round}: a file was left");
            kept += usize::from(written.is_none());
        }
        assert!(kept > 0, "no write was interrupted by an edit");
    }

    /// A person edits the page the moment it appears.
    #[test]
    fn an_edit_right_after_a_write_is_detected() {
        let workspace = tempfile::tempdir().unwrap();
        let page = workspace.path().join(MEMORY_FILE);
        for round in 0..100 {
            let text = format!("- fact {round}\n");
            let editor = std::thread::spawn({
                let (page, text) = (page.clone(), text.clone());
                move || {
                    while std::fs::read_to_string(&page).ok().as_ref() != Some(&text) {
                        std::hint::spin_loop();
                    }
                    std::fs::write(&page, "- edited by hand, with more words\n").unwrap();
                }
            });
            let before = std::fs::read_to_string(&page).ok();
            let stamped = replace(workspace.path(), MEMORY_FILE, before.as_deref(), &text).unwrap().unwrap();
            editor.join().unwrap();
            assert_ne!(stamped, stamp(workspace.path()), "round {round}");
        }
    }
}
