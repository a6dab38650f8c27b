//! `daoyou restore FILE`: unpacks and checks the archive beside the home, then exchanges the contents. The former contents are moved
//! aside.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use tar::{Archive, EntryType};

use super::manifest::{self, ArchivedFile, DATABASE, FIRST_ENTRY, FORMAT, HashingReader, MANIFEST, Manifest};
use super::temporary_path::TemporaryPath;
use crate::home::{Home, HomeLock};
use crate::store::backup;

/// The largest manifest that is read, in bytes; a file takes a few hundred bytes in it, and at most a few thousand.
const MANIFEST_LIMIT: u64 = 1 << 32;

/// Files of the former gateway, besides the database itself.
const RUNTIME_FILES: [&str; 4] = ["daoyou.db-wal", "daoyou.db-shm", "daoyou.flight", "daoyou.suspect"];

/// The beginning of the name of a folder into which a restore unpacks; its pid follows.
const STAGING: &str = "daoyou.restoring-";

/// The error text for a file that `daoyou backup` did not write.
const NO_BACKUP: &str = "it is not a backup of daoyou";

/// The result of a restore.
#[derive(Debug)]
pub struct RestoreSummary {
    pub files: usize,
    /// When the backup was made, RFC 3339.
    pub created_at: String,
    /// The folder that contains the former contents of the home.
    pub kept: Option<PathBuf>,
    /// A description of the messages that were accepted after the backup and are missing from it.
    pub missing: Option<String>,
}

/// Replaces the contents of `home` by the backup in `file`.
///
/// # Errors
/// The archive is incomplete, damaged, newer than this program, or no backup; nothing was changed then. Or the home cannot be
/// written.
pub fn restore(home: &Home, _lock: &HomeLock, file: &Path) -> anyhow::Result<RestoreSummary> {
    // The restore starts over.
    let removed = staging_folders(home).and_then(|folders| folders.iter().try_for_each(fs::remove_dir_all));
    removed.with_context(|| format!("{} cannot be cleared", home.dir().display()))?;
    let folder = TemporaryPath::folder(home.dir().join(format!("{STAGING}{}", std::process::id())));
    let staging = folder.path.as_path();
    DirBuilder::new().mode(0o700).create(staging).with_context(|| format!("{} cannot be made", staging.display()))?;
    let no_backup = || format!("{} cannot be restored, and nothing was changed", file.display());
    let manifest = unpack(file, staging).with_context(no_backup)?;
    let copy = staging.join(DATABASE);
    let (has_database, mut missing) = (copy.exists(), None);
    if has_database {
        let facts = backup::verify(&copy).with_context(no_backup)?;
        if manifest.database.as_ref() != Some(&facts) {
            return Err(anyhow!("its database is not the one that its manifest describes").context(no_backup()));
        }
        missing = backup::prepare(&copy, &home.database())?.map(|loss| loss.description);
    }
    let kept = exchange_contents(home, staging).with_context(|| {
        format!("the restore was interrupted; run it again: the former contents are in {}", home.dir().display())
    })?;
    if has_database {
        backup::reset_mark(&home.database())?;
    }
    fs::remove_file(unfinished_marker(home))?;
    Ok(RestoreSummary { files: manifest.files.len(), created_at: manifest.created_at, kept, missing })
}

/// Returns the folders of interrupted restores that changed nothing in the home. If a restore was interrupted while it exchanged the
/// contents, these are still needed.
pub fn interrupted_restores(home: &Home) -> Vec<PathBuf> {
    if unfinished_marker(home).exists() { Vec::new() } else { staging_folders(home).unwrap_or_default() }
}

/// Returns the folders into which restores have unpacked files.
fn staging_folders(home: &Home) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(home.dir())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(STAGING) {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

/// Returns the path of the marker file, which exists while a restore is incomplete.
fn unfinished_marker(home: &Home) -> PathBuf {
    home.dir().join("daoyou.restoring")
}

/// Unpacks `file` into `folder`, verifies its contents, and returns its manifest.
fn unpack(file: &Path, folder: &Path) -> anyhow::Result<Manifest> {
    let opened = File::open(file)?;
    if !opened.metadata()?.is_file() {
        bail!("{NO_BACKUP} (it is not a file)");
    }
    let mut archive = Archive::new(BufReader::with_capacity(1 << 18, opened));
    let (mut found, mut links, mut manifest, mut is_empty) = (BTreeMap::new(), Vec::new(), None, true);
    for (number, entry) in archive.entries()?.enumerate() {
        let mut entry = match entry {
            Ok(entry) => entry,
            // The tar reader's error message for another kind of file would quote bytes of that file.
            Err(_) if number == 0 => bail!("{NO_BACKUP} (it is not a tar archive)"),
            Err(error) => return Err(error).context("it is damaged"),
        };
        is_empty = false;
        let name = entry.path()?.into_owned();
        if manifest.is_some() {
            bail!("an entry follows its manifest: {}", name.display());
        }
        match (number, name.to_str()) {
            (0, Some(FIRST_ENTRY)) => check_format(&mut entry)?,
            (0, _) => bail!(NO_BACKUP),
            (_, Some(MANIFEST)) => {
                let list: Manifest =
                    serde_json::from_reader(entry.take(MANIFEST_LIMIT)).context("its manifest is damaged")?;
                manifest = Some(list);
            }
            _ => {
                let path =
                    manifest::in_home(&name).ok_or_else(|| anyhow!("{} leads out of the home", name.display()))?;
                match entry.header().entry_type() {
                    EntryType::Directory => make_folder(folder, &path)?,
                    EntryType::Regular => {
                        let unpacked = unpack_file(&mut entry, folder, &path);
                        let sum = unpacked.with_context(|| format!("{} cannot be unpacked", path.display()))?;
                        found.insert(path, sum);
                    }
                    EntryType::Symlink => {
                        let target = entry.link_name()?.map(std::borrow::Cow::into_owned).unwrap_or_default();
                        if !manifest::link_stays(&path, &target) {
                            bail!("the link {} leads out of the home, to {}", path.display(), target.display());
                        }
                        links.push((path, target));
                    }
                    other => bail!("{} is neither a file, a folder nor a link ({other:?})", path.display()),
                }
            }
        }
    }
    let Some(manifest) = manifest else {
        bail!("{}", if is_empty { NO_BACKUP } else { "it ends too early: its manifest is missing" });
    };
    check_files(&manifest.files, &found)?;
    // Links come last, so that no file is written through a link.
    for (path, target) in links {
        make_folder(folder, path.parent().unwrap_or(Path::new("")))?;
        symlink(target, folder.join(&path)).with_context(|| format!("the link {} cannot be made", path.display()))?;
    }
    Ok(manifest)
}

fn check_format(entry: &mut impl Read) -> anyhow::Result<()> {
    let mut text = String::new();
    entry.take(100).read_to_string(&mut text)?;
    let format: u32 = text.split_whitespace().next().and_then(|word| word.parse().ok()).context(NO_BACKUP)?;
    if format > FORMAT {
        bail!("it was made by a newer daoyou (format {format}; this version reads up to {FORMAT}): update daoyou");
    }
    Ok(())
}

fn check_files(listed: &[ArchivedFile], found: &BTreeMap<PathBuf, (u64, String)>) -> anyhow::Result<()> {
    for ArchivedFile { path, size, sha256 } in listed {
        match found.get(path) {
            None => bail!("{} is missing from it", path.display()),
            Some((length, sum)) if (length, sum) != (size, sha256) => bail!("{} is damaged in it", path.display()),
            Some(_) => {}
        }
    }
    if listed.len() != found.len() {
        bail!("it holds files that its manifest does not list");
    }
    Ok(())
}

/// Unpacks one file with private permissions; returns its length and its SHA-256.
fn unpack_file<R: Read>(entry: &mut tar::Entry<'_, R>, folder: &Path, path: &Path) -> io::Result<(u64, String)> {
    make_folder(folder, path.parent().unwrap_or(Path::new("")))?;
    let mode = entry.header().mode()? & 0o700 | 0o600;
    let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(entry.header().mtime()?));
    // If the file exists, the archive contains it twice.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(folder.join(path))?;
    let mut content = HashingReader::new(entry);
    io::copy(&mut content, &mut file)?;
    if let Some(modified) = modified {
        file.set_modified(modified)?;
    }
    file.sync_all()?;
    Ok((content.length, content.finish()))
}

fn make_folder(folder: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder.join(path))
}

/// Moves the former contents aside and the unpacked ones into their place; returns the folder of the former contents.
fn exchange_contents(home: &Home, staging: &Path) -> io::Result<Option<PathBuf>> {
    let names = fs::read_dir(staging)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let first = home.dir().join(format!("daoyou.before-restore-{stamp}"));
    let later = (2..).map(|number| home.dir().join(format!("daoyou.before-restore-{stamp}-{number}")));
    let mut folders = std::iter::once(first.clone()).chain(later);
    let kept = folders.find(|folder| !folder.exists()).unwrap_or(first);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(unfinished_marker(home))?.sync_all()?;
    let runtime_files = RUNTIME_FILES.iter().map(Into::into);
    let mut has_kept = false;
    // The database moves first, so that no program takes it for complete without its log.
    let mut in_the_way: Vec<_> = names.iter().cloned().chain(runtime_files).collect();
    in_the_way.sort_by_key(|name| name != DATABASE);
    for name in in_the_way {
        let from = home.dir().join(&name);
        if fs::symlink_metadata(&from).is_err() {
            continue;
        }
        if !has_kept {
            DirBuilder::new().mode(0o700).create(&kept)?;
            has_kept = true;
        }
        fs::rename(&from, kept.join(&name))?;
    }
    for name in &names {
        fs::rename(staging.join(name), home.dir().join(name))?;
    }
    File::open(home.dir())?.sync_all()?;
    Ok(has_kept.then_some(kept))
}
