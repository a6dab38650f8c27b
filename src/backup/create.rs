//! `daoyou backup FILE`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use tar::{Builder, EntryType, Header};

use super::contents::{self, HomeContents, HomeEntry};
use super::manifest::{ArchivedFile, DATABASE, FIRST_ENTRY, FORMAT, HashingReader, MANIFEST, Manifest, ROOT};
use crate::home::Home;
use crate::store::backup::{self, DatabaseFacts};

/// The result of a backup.
#[derive(Debug)]
pub struct BackupSummary {
    pub files: usize,
    /// The size of the archive in bytes.
    pub size: u64,
    pub database: Option<DatabaseFacts>,
    /// Descriptions of what the archive omits.
    pub left_out: Vec<String>,
}

/// A file that is removed on drop, unless it was renamed.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "a temporary file could not be removed");
        }
    }
}

/// Writes a complete backup of `home` to `file`, or no file at all. A gateway may be running meanwhile and need not wait.
///
/// # Errors
/// `file` is one of the home's own files, or exists and must not be overwritten, or a file cannot be read or written.
pub fn create(home: &Home, file: &Path, overwrite: bool) -> anyhow::Result<BackupSummary> {
    let file = check_target(home, file, overwrite)?;
    let beside = |end: &str| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        TemporaryFile(file.with_file_name(format!(".{name}.{}.{end}", std::process::id())))
    };
    let (copy, draft) = (beside("db"), beside("tmp"));
    let database = copy_database(home, &copy.0)?;
    let cannot = || format!("{} cannot be written", file.display());
    let mut options = OpenOptions::new();
    let archive = options.write(true).create_new(true).mode(0o600).open(&draft.0).with_context(cannot)?;
    let mut contents =
        contents::list(home.dir()).with_context(|| format!("{} cannot be read", home.dir().display()))?;
    // If the backup is written into the home, these files are in the list.
    let own = [copy.0.file_name(), draft.0.file_name()];
    contents.items.retain(|(path, _)| !own.contains(&path.file_name()));
    let copied = database.is_some().then_some(copy.0.as_path());
    let mut writer = ArchiveWriter { builder: Builder::new(BufWriter::new(archive)), files: Vec::new() };
    let files = writer.fill(home, &contents, copied)?;
    let archive = writer.finish(database.clone()).with_context(cannot)?;
    archive.sync_all().with_context(cannot)?;
    let size = archive.metadata().with_context(cannot)?.len();
    fs::rename(&draft.0, &file).with_context(cannot)?;
    drop(copy);
    if let Some(folder) = file.parent() {
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)?;
    }
    Ok(BackupSummary { files, size, database, left_out: contents.left_out })
}

/// Checks that the archive may be written to `file`; returns its absolute path.
fn check_target(home: &Home, file: &Path, overwrite: bool) -> anyhow::Result<PathBuf> {
    if file == Path::new("-") {
        bail!("a backup is written to a file and not to standard output: name one, such as daoyou.tar");
    }
    let file = std::path::absolute(file)?;
    if contents::is_own(home.dir(), &file).with_context(|| format!("{} cannot be read", file.display()))? {
        bail!(
            "{} is one of the home's own files, which a backup never overwrites: choose another name",
            file.display()
        );
    }
    if fs::symlink_metadata(&file).is_ok() && !overwrite {
        bail!("{} already exists: choose another name, or overwrite it with --force", file.display());
    }
    if let Some(folder) = file.parent().filter(|folder| !folder.is_dir()) {
        bail!("there is no folder {0}: make it with `mkdir -p {0}`", folder.display());
    }
    Ok(file)
}

/// Copies the database to `to`; returns `None` if there is none yet.
fn copy_database(home: &Home, to: &Path) -> anyhow::Result<Option<DatabaseFacts>> {
    let database = home.database();
    if !database.exists() {
        return Ok(None);
    }
    // A running gateway has checked the database at its start.
    if let Ok(_lock) = home.lock() {
        backup::check_source(&database)?;
    }
    // Created here so that the file is private from the beginning; SQLite accepts an empty file.
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .with_context(|| format!("{} cannot be written", to.display()))?;
    Ok(Some(backup::copy(&database, to)?))
}

struct ArchiveWriter {
    builder: Builder<BufWriter<File>>,
    files: Vec<ArchivedFile>,
}

impl ArchiveWriter {
    /// Adds everything but the manifest; returns the number of files.
    fn fill(&mut self, home: &Home, contents: &HomeContents, database: Option<&Path>) -> anyhow::Result<usize> {
        self.text(FIRST_ENTRY, format!("{FORMAT} {}\n", env!("CARGO_PKG_VERSION")).as_bytes())?;
        if let Some(database) = database {
            self.file(Path::new(DATABASE), database)?;
        }
        for (path, item) in &contents.items {
            let full = home.dir().join(path);
            match item {
                HomeEntry::Folder => self.folder(path)?,
                HomeEntry::File => {
                    self.file(path, &full).with_context(|| format!("{} cannot be backed up", full.display()))?;
                }
                HomeEntry::Link(target) => {
                    let mut header = header(EntryType::Symlink, 0, 0o777);
                    self.builder.append_link(&mut header, Path::new(ROOT).join(path), target)?;
                }
            }
        }
        Ok(self.files.len())
    }

    fn folder(&mut self, path: &Path) -> io::Result<()> {
        let mut header = header(EntryType::Directory, 0, 0o700);
        self.builder.append_data(&mut header, Path::new(ROOT).join(path), io::empty())
    }

    fn file(&mut self, path: &Path, full: &Path) -> io::Result<()> {
        // It was a regular file when the folder was read. If a pipe or a link has replaced it meanwhile, these flags prevent a wait
        // and do not follow the link.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(full)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it was changed during the backup; run the backup again"));
        }
        let size = metadata.len();
        let mut header = header(EntryType::Regular, size, metadata.permissions().mode() & 0o700);
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        // A file that grows is archived up to its former length; a file that shrinks is an error.
        let mut content = HashingReader::new(file.take(size));
        self.builder.append_data(&mut header, Path::new(ROOT).join(path), &mut content)?;
        if content.length != size {
            return Err(io::Error::other("it was changed during the backup; run the backup again"));
        }
        self.files.push(ArchivedFile { path: path.to_owned(), size, sha256: content.finish() });
        Ok(())
    }

    fn text(&mut self, name: &str, text: &[u8]) -> io::Result<()> {
        self.builder.append_data(&mut header(EntryType::Regular, text.len() as u64, 0o600), name, text)
    }

    fn finish(mut self, database: Option<DatabaseFacts>) -> io::Result<File> {
        let manifest = Manifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: jiff::Timestamp::now().to_string(),
            database,
            files: std::mem::take(&mut self.files),
        };
        self.text(MANIFEST, &serde_json::to_vec_pretty(&manifest)?)?;
        let mut writer = self.builder.into_inner()?;
        writer.flush()?;
        writer.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn a_backup_in_the_home_contains_no_part_of_itself() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        Store::open(&home.database()).unwrap().close().await;
        fs::write(home.config(), "").unwrap();
        let file = home.dir().join("b.tar");
        for overwrite in [false, true] {
            create(&home, &file, overwrite).unwrap();
            let mut archive = tar::Archive::new(File::open(&file).unwrap());
            let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned());
            let mut names: Vec<String> = names.map(|name| name.display().to_string()).collect();
            names.sort_unstable();
            assert_eq!(names, [FIRST_ENTRY, "home/config.toml", "home/daoyou.db", MANIFEST]);
        }
    }

    #[tokio::test]
    async fn a_backup_never_overwrites_a_file_of_the_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        Store::open(&home.database()).unwrap().close().await;
        let _lock = home.lock().unwrap();
        home.token().unwrap();
        let (inside, outside) = (|name: &str| home.dir().join(name), |name: &str| folder.path().join(name));
        fs::create_dir_all(inside("workspace/a")).unwrap();
        for name in ["config.toml", "workspace/a/note.md"] {
            fs::write(inside(name), "as it was").unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(home.socket()).unwrap();
        std::os::unix::fs::symlink(home.dir(), outside("linked")).unwrap();
        std::os::unix::fs::symlink(home.database(), outside("link.tar")).unwrap();
        std::os::unix::fs::symlink("/nowhere", inside("workspace/link")).unwrap();
        fs::hard_link(home.lock_file(), outside("lock.tar")).unwrap();
        fs::hard_link(inside("workspace/a/note.md"), outside("note.tar")).unwrap();
        let mut own = vec![outside("linked/daoyou.db"), outside("linked/workspace/../token")];
        own.extend(["link.tar", "lock.tar", "note.tar"].map(outside));
        let names = ["daoyou.db", "daoyou.lock", "daoyou.sock", "daoyou.flight", "config.toml", "token", "history"];
        own.extend(names.map(inside));
        own.extend(["workspace", "workspace/a/note.md", "workspace/link", "."].map(inside));
        let inode = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.ino()).ok();
        for file in own {
            let before = inode(&file);
            for overwrite in [false, true] {
                let error = create(&home, &file, overwrite).unwrap_err().to_string();
                assert!(error.contains("is one of the home's own files"), "{}: {error}", file.display());
            }
            assert_eq!(inode(&file), before, "{}", file.display());
        }
        assert_eq!(fs::read_to_string(inside("workspace/a/note.md")).unwrap(), "as it was");
        let error = create(&home, Path::new("-"), true).unwrap_err().to_string();
        assert!(error.contains("not to standard output"), "{error}");
        // A backup in the home may be replaced, and so may a file elsewhere.
        fs::write(outside("b.tar"), "").unwrap();
        create(&home, &inside("workspace/a/b.tar"), false).unwrap();
        for file in [inside("workspace/a/b.tar"), outside("b.tar")] {
            create(&home, &file, true).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_restored_is_left_out_with_the_true_reason() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let workspace = home.dir().join("workspace");
        let bytes = |name: &[u8]| workspace.join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir_all(bytes(b"z\xff")).unwrap();
        fs::write(bytes(b"z\xff/inner"), "").unwrap();
        fs::write(bytes(b"a\xff"), "").unwrap();
        fs::write(workspace.join("note.md"), "").unwrap();
        std::os::unix::fs::symlink(workspace.join("note.md"), workspace.join("link")).unwrap();
        std::os::unix::fs::symlink("../../x", workspace.join("out")).unwrap();
        let made = create(&home, &folder.path().join("b.tar"), false).unwrap();
        assert_eq!(made.files, 1, "{made:?}");
        let target = workspace.join("note.md");
        let expected = [
            "\"workspace/a\\xFF\": its name is not UTF-8".to_owned(),
            format!("workspace/link: the link is absolute, to {}", target.display()),
            "workspace/out: the link points outside of the home, to ../../x".to_owned(),
            "\"workspace/z\\xFF\": the folder, with all that is in it: its name is not UTF-8".to_owned(),
        ];
        assert_eq!(made.left_out, expected);
    }
}
