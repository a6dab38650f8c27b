//! The cache of parsed source files: `code-cache.db` in the home folder. It holds only derived data: it may be deleted, and is
//! created anew if it is damaged or of another version.
//!
//! The caller has always opened the file before it asks the cache, so an entry never reveals a file that the call may not read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use sha2::{Digest, Sha256};
use strum::VariantArray;

use super::language::CodeLanguage;
use super::queries::query_text;
use super::tags::FileTags;
use crate::store::now_ms;

/// The name of the file in the home.
const FILE: &str = "code-cache.db";
/// The version of the format. Raise it with each change of the tables, or of what `tags.rs` makes of the matches of a query.
const FORMAT: u8 = 2;
/// The maximum number of files, and of bytes of all entries. Beyond them, the least recently used files are removed.
const MAX_FILES: i64 = 100_000;
const MAX_BYTES: i64 = 100_000_000;
/// How long to wait for another process that has locked the file.
const BUSY: Duration = Duration::from_secs(1);
/// The minimum time between two updates of an entry's last use, in milliseconds.
const USE_STEP_MS: i64 = 86_400_000;

const TABLES: &str = "
    CREATE TABLE files (
        path BLOB PRIMARY KEY, modified INTEGER NOT NULL, changed INTEGER NOT NULL, size INTEGER NOT NULL,
        content BLOB NOT NULL, used INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX files_used ON files (used);
    CREATE TABLE parses (content BLOB PRIMARY KEY, tags TEXT NOT NULL) WITHOUT ROWID;
";

/// Selects the number of files, the number of contents, and the used bytes.
const SIZES: &str = "
    SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM parses), (page_count - freelist_count) * page_size
    FROM pragma_page_count, pragma_freelist_count, pragma_page_size
";

/// The metadata of a file that differ after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceStamp {
    modified: i64,
    /// The time of the inode's last change. The modification time can be set by any program.
    changed: i64,
    size: i64,
}

impl SourceStamp {
    pub(super) fn of(metadata: &std::fs::Metadata) -> Self {
        let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        Self {
            modified: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
            size: i64::try_from(metadata.size()).unwrap_or(i64::MAX),
        }
    }
}

/// The key of a content in a language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContentKey([u8; 16]);

impl ContentKey {
    pub(super) fn of(language: CodeLanguage, source: &[u8]) -> Self {
        let digest = Sha256::new().chain_update(language.name()).chain_update([0]).chain_update(source).finalize();
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        Self(key)
    }
}

/// A file that the cache knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownFile {
    pub stamp: SourceStamp,
    pub content: ContentKey,
    used: i64,
}

/// The new entries that a call has produced.
#[derive(Default)]
pub(super) struct CacheUpdate {
    pub files: Vec<(PathBuf, SourceStamp, ContentKey)>,
    pub parses: Vec<(ContentKey, FileTags)>,
    pub gone: Vec<PathBuf>,
}

/// The cache of parsed source files. If its file cannot be used, the cache is empty, and no call fails.
pub struct CodeCache {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl CodeCache {
    /// Returns the cache in `home`. Its file is opened on first use.
    pub fn new(home: &Path) -> Self {
        Self { path: home.join(FILE), connection: Mutex::new(None) }
    }

    /// Returns the known files at or below `folder`.
    pub(super) fn files_below(&self, folder: &Path) -> HashMap<PathBuf, KnownFile> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT path, modified, changed, size, content, used FROM files WHERE path = ?1 OR path >= ?2 AND path < ?3",
            )?;
            let folder = folder.as_os_str().as_bytes();
            let folder = folder.strip_suffix(b"/").unwrap_or(folder);
            let (from, to) = ([folder, b"/"].concat(), [folder, b"0"].concat());
            let rows = statement.query_map(params![folder, from, to], |row| {
                let path: Vec<u8> = row.get(0)?;
                let stamp = SourceStamp { modified: row.get(1)?, changed: row.get(2)?, size: row.get(3)? };
                let known = KnownFile { stamp, content: ContentKey(row.get(4)?), used: row.get(5)? };
                Ok((PathBuf::from(OsStr::from_bytes(&path)), known))
            })?;
            rows.collect()
        })
        .unwrap_or_default()
    }

    /// Returns the cached tags of a content.
    pub(super) fn tags(&self, content: &ContentKey) -> Option<FileTags> {
        let text = self.with(|connection| {
            let mut statement = connection.prepare_cached("SELECT tags FROM parses WHERE content = ?1")?;
            statement.query_row([content.0], |row| row.get::<_, String>(0)).optional()
        });
        serde_json::from_str(&text??).ok()
    }

    /// Stores the new entries of a call, and records the use of `used`.
    pub(super) fn update(&self, update: &CacheUpdate, used: &HashMap<PathBuf, KnownFile>) {
        let now = now_ms();
        let is_old = |known: &&KnownFile| now - known.used > USE_STEP_MS;
        let stale: Vec<_> = used.iter().filter(|(_, known)| is_old(known)).map(|(path, _)| path).collect();
        if update.files.is_empty() && update.gone.is_empty() && stale.is_empty() {
            return;
        }
        self.with(|connection| {
            let transaction = connection.unchecked_transaction()?;
            {
                let mut parse = transaction.prepare_cached("INSERT OR REPLACE INTO parses VALUES (?1, ?2)")?;
                for (content, tags) in &update.parses {
                    if let Ok(tags) = serde_json::to_string(tags) {
                        parse.execute(params![content.0, tags])?;
                    }
                }
                let mut file =
                    transaction.prepare_cached("INSERT OR REPLACE INTO files VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
                for (path, SourceStamp { modified, changed, size }, content) in &update.files {
                    file.execute(params![path.as_os_str().as_bytes(), modified, changed, size, content.0, now])?;
                }
                let mut gone = transaction.prepare_cached("DELETE FROM files WHERE path = ?1")?;
                for path in &update.gone {
                    gone.execute([path.as_os_str().as_bytes()])?;
                }
                let mut use_now = transaction.prepare_cached("UPDATE files SET used = ?2 WHERE path = ?1")?;
                for path in stale {
                    use_now.execute(params![path.as_os_str().as_bytes(), now])?;
                }
            }
            prune(&transaction, MAX_FILES, MAX_BYTES)?;
            transaction.commit()
        });
    }

    /// Runs `work` on the open file; returns `None` if it fails. A damaged file is removed.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        let mut slot = self.connection.lock();
        if slot.is_none() {
            *slot = self.open();
        }
        match work(slot.as_ref()?) {
            Ok(done) => Some(done),
            Err(error) => {
                tracing::debug!(%error, path = %self.path.display(), "the cache of source code failed");
                if is_damage(&error) {
                    *slot = None;
                    self.remove();
                }
                None
            }
        }
    }

    /// Opens the file, or creates it anew.
    fn open(&self) -> Option<Connection> {
        for _ in 0..2 {
            match self.open_existing() {
                Ok(Some(connection)) => return Some(connection),
                Ok(None) => tracing::info!(path = %self.path.display(), "the cache of source code is made anew"),
                Err(error) if is_damage(&error) => {
                    tracing::warn!(%error, path = %self.path.display(), "the cache of source code is damaged, and made anew");
                }
                Err(error) => {
                    tracing::warn!(%error, path = %self.path.display(), "the cache of source code cannot be used");
                    return None;
                }
            }
            self.remove();
        }
        None
    }

    /// Opens the file; `None` if its version differs.
    fn open_existing(&self) -> rusqlite::Result<Option<Connection>> {
        // SQLite keeps the mode of an existing file, and gives the same mode to the files next to it.
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        if let Err(error) = options.open(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the cache of source code cannot be opened");
            return Err(rusqlite::Error::InvalidPath(self.path.clone()));
        }
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let version = version();
        let found: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables == 0 {
            connection.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {version}; COMMIT"))?;
            return Ok(Some(connection));
        }
        if found != version {
            return Ok(None);
        }
        let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((check == "ok").then_some(connection))
    }

    fn remove(&self) {
        for ending in ["", "-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            // A missing file is not a problem. A file that stays is detected at the next open.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Removes the least recently used files until the rest is within the limits, and then the contents that no file has.
fn prune(connection: &Connection, max_files: i64, max_bytes: i64) -> rusqlite::Result<()> {
    let (files, contents, bytes): (i64, i64, i64) = connection.query_row(SIZES, [], |row| row.try_into())?;
    let excess = if files > max_files || bytes > max_bytes { (files / 4).max(files - max_files) } else { 0 };
    if excess > 0 {
        let oldest = "DELETE FROM files WHERE path IN (SELECT path FROM files ORDER BY used LIMIT ?1)";
        connection.execute(oldest, [excess])?;
    }
    // Removes contents of earlier versions of files.
    if excess > 0 || contents > files.saturating_mul(2) + 100 {
        connection.execute("DELETE FROM parses WHERE content NOT IN (SELECT content FROM files)", [])?;
    }
    Ok(())
}

/// Returns a number that changes whenever the cached data would change: it depends on the grammars, the queries, the program and
/// the format.
fn version() -> i32 {
    let mut hash = Sha256::new().chain_update([FORMAT]).chain_update(env!("CARGO_PKG_VERSION"));
    for language in CodeLanguage::VARIANTS.iter().copied() {
        let grammar = language.grammar();
        let sizes =
            [grammar.abi_version(), grammar.node_kind_count(), grammar.field_count(), grammar.parse_state_count()];
        hash.update(sizes.map(usize::to_le_bytes).concat());
        hash.update(query_text(language));
    }
    version_of(&hash.finalize())
}

/// Returns the version that a digest gives. It is positive, since zero is the version of a new file.
fn version_of(digest: &[u8]) -> i32 {
    let first = digest.first_chunk().copied().unwrap_or_default();
    (i32::from_le_bytes(first) & i32::MAX).max(1)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        || matches!(error, rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(cache: &CodeCache, folder: &str) -> Vec<PathBuf> {
        let mut paths: Vec<_> = cache.files_below(Path::new(folder)).into_keys().collect();
        paths.sort();
        paths
    }

    #[test]
    fn versions_are_positive_and_differ_with_their_digests() {
        let digests = [[0xff, 0xff, 0xff, 0xff], [0xfe, 0xff, 0xff, 0xff], [2, 0, 0, 0], [3, 0, 0, 0x80]];
        let versions: std::collections::BTreeSet<i32> = digests.iter().map(|digest| version_of(digest)).collect();
        assert!(versions.len() == digests.len() && versions.iter().all(|version| *version > 0), "{versions:?}");
        assert_eq!(version_of(&[0; 4]), 1, "zero is that of a file without a version");
    }

    fn add(cache: &CodeCache, paths: &[&str]) {
        let stamp = SourceStamp { modified: 1, changed: 2, size: 3 };
        let key = |path: &str| ContentKey::of(CodeLanguage::Rust, path.as_bytes());
        let update = CacheUpdate {
            files: paths.iter().map(|path| (PathBuf::from(path), stamp, key(path))).collect(),
            parses: paths.iter().map(|path| (key(path), FileTags::default())).collect(),
            gone: Vec::new(),
        };
        cache.update(&update, &HashMap::new());
    }

    #[test]
    fn files_are_found_below_their_folder_until_they_are_gone() {
        let home = tempfile::tempdir().unwrap();
        let cache = CodeCache::new(home.path());
        add(&cache, &["/w/a.rs", "/w/b/c.rs", "/wx/d.rs", "/w.rs"]);
        assert_eq!(known(&cache, "/w"), [Path::new("/w/a.rs"), Path::new("/w/b/c.rs")]);
        assert_eq!(known(&cache, "/w/b/c.rs"), [Path::new("/w/b/c.rs")]);
        assert_eq!(known(&cache, "/").len(), 4);
        let update = CacheUpdate { gone: vec![PathBuf::from("/w/a.rs")], ..CacheUpdate::default() };
        cache.update(&update, &HashMap::new());
        assert_eq!(known(&CodeCache::new(home.path()), "/w"), [Path::new("/w/b/c.rs")]);
        let content = ContentKey::of(CodeLanguage::Rust, b"/w/b/c.rs");
        assert_eq!(cache.tags(&content), Some(FileTags::default()));
        assert_eq!(cache.tags(&ContentKey::of(CodeLanguage::Go, b"/w/b/c.rs")), None);
        let mode = std::fs::metadata(home.path().join(FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_or_older_file_is_made_anew() {
        for damage in ["text", "cut", "version", "folder"] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join(FILE);
            add(&CodeCache::new(home.path()), &["/w/a.rs", "/w/b.rs"]);
            match damage {
                "text" => {
                    std::fs::write(&path, "no database at all, but long enough to have a head".repeat(100)).unwrap();
                }
                "cut" => {
                    let bytes = std::fs::read(&path).unwrap();
                    std::fs::write(&path, [&bytes[..4_096], &[0xee; 8_192]].concat()).unwrap();
                }
                "version" => {
                    Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
                }
                _ => {
                    std::fs::remove_file(&path).unwrap();
                    std::fs::create_dir(&path).unwrap();
                }
            }
            let cache = CodeCache::new(home.path());
            assert_eq!(known(&cache, "/w").len(), 0, "{damage}");
            add(&cache, &["/w/a.rs"]);
            assert_eq!(known(&cache, "/w").len(), usize::from(damage != "folder"), "{damage}");
        }
    }

    #[test]
    fn the_files_that_were_not_asked_for_the_longest_go_first() {
        let home = tempfile::tempdir().unwrap();
        let cache = CodeCache::new(home.path());
        let names: Vec<_> = (0..10).map(|number| format!("/w/{number}.rs")).collect();
        add(&cache, &names.iter().map(String::as_str).collect::<Vec<_>>());
        cache.with(|connection| connection.execute("UPDATE files SET used = unicode(substr(path, 4))", [])).unwrap();
        cache.with(|connection| prune(connection, 6, MAX_BYTES)).unwrap();
        assert_eq!(
            known(&cache, "/w"),
            ["/w/4.rs", "/w/5.rs", "/w/6.rs", "/w/7.rs", "/w/8.rs", "/w/9.rs"].map(PathBuf::from)
        );
        let contents =
            |connection: &Connection| connection.query_row("SELECT count(*) FROM parses", [], |row| row.get(0));
        assert_eq!(cache.with(contents), Some(6_i64));
    }
}
