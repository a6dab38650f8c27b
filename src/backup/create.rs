//! `daoyou backup FILE`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rustix::fs::OFlags;
use tar::{Builder, EntryType, Header};

use super::contents::{self, HomeEntry};
use super::manifest::{ArchivedFile, DATABASE, FIRST_ENTRY, FORMAT, HashingReader, MANIFEST, Manifest, ROOT};
use super::temporary_path::TemporaryPath;
use crate::home::Home;
use crate::store::StoreError;
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

/// The number of times that a file which becomes shorter while it is read is read anew before it is left out.
const READS: usize = 3;
/// Why a file is left out that became shorter each time.
const SHRINKS: &str = "it became shorter each time that it was read; run the backup again";

/// Writes a complete backup of `home` to `file`, or no file at all. A gateway may be running meanwhile and need not wait.
///
/// # Errors
/// `file` is one of the home's own files, or exists and must not be overwritten, or a file cannot be read or written.
pub fn create(home: &Home, file: &Path, overwrite: bool) -> anyhow::Result<BackupSummary> {
    let file = check_target(home, file, overwrite)?;
    let beside = |end: &str| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        TemporaryPath::file(file.with_file_name(format!(".{name}.{}.{end}", std::process::id())))
    };
    remove_drafts(&file);
    let (draft, copy) = (beside("tmp"), beside("db"));
    let cannot = || format!("{} cannot be written", file.display());
    let archive = create_locked(&draft.path).with_context(cannot)?;
    // The temporary files beside the archive need its disk as well.
    let named =
        |error: anyhow::Error| if is_target_full(&error) { anyhow!("{}: its disk is full", cannot()) } else { error };
    let database = copy_database(home, &copy.path).map_err(named)?;
    let cannot_read = || format!("{} cannot be read", home.dir().display());
    let opened = OwnedFd::from(File::open(home.dir()).with_context(cannot_read)?);
    let mut contents = contents::list(&opened).with_context(cannot_read)?;
    // If the backup is written into the home, these files are in the list.
    let own = [copy.path.file_name(), draft.path.file_name()];
    contents.items.retain(|(path, _)| !own.contains(&path.file_name()));
    let copied = database.is_some().then_some(copy.path.as_path());
    let mut writer = ArchiveWriter::new(archive);
    let files = writer.fill(&opened, contents.items, copied).map_err(named)?;
    let left_out = [contents.left_out, std::mem::take(&mut writer.left_out)].concat();
    let archive = writer.finish(database.clone()).with_context(cannot)?;
    archive.sync_all().with_context(cannot)?;
    let size = archive.metadata().with_context(cannot)?.len();
    fs::rename(&draft.path, &file).with_context(cannot)?;
    drop(copy);
    if let Some(folder) = file.parent() {
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)?;
    }
    Ok(BackupSummary { files, size, database, left_out })
}

/// Returns true if a file beside the archive could not be written for lack of space.
fn is_target_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let is_full = |error: &io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        cause.downcast_ref().is_some_and(is_full) || matches!(cause.downcast_ref(), Some(StoreError::CopyFull))
    })
}

/// Removes the drafts of backups to `file` that were killed. A running backup holds the lock of its `.tmp` as long as it has a `.db`;
/// the system ends the lock with the process, whose pid another process may have by then.
fn remove_drafts(file: &Path) {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return };
    let prefix = format!(".{}.", name.to_string_lossy());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, end)) = found.strip_prefix(&prefix).and_then(|rest| rest.split_once('.')) else { continue };
        let is_draft = pid.parse::<u32>().is_ok() && ["tmp", "db", "db-journal"].contains(&end);
        if !is_draft {
            continue;
        }
        let Ok(_lock) = lock_draft(&folder.join(format!("{prefix}{pid}.tmp"))) else { continue };
        if let Err(error) = fs::remove_file(entry.path())
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %entry.path().display(), %error, "the draft of a killed backup could not be removed");
        }
    }
}

/// Creates the file of a draft and locks it. Another backup may remove it before it is locked; it is then created anew.
fn create_locked(draft: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        if let Err(error) = file.lock() {
            tracing::debug!(%error, "the draft of the backup cannot be locked");
        }
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Returns the locked draft if no process writes it, and `None` in it if there is no such file. The lock lasts until the file is
/// closed, so that no process begins to write it meanwhile.
fn lock_draft(draft: &Path) -> io::Result<Option<File>> {
    match File::open(draft) {
        Ok(file) => file.try_lock().map(|()| Some(file)).map_err(io::Error::from),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
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
    match fs::symlink_metadata(&file) {
        Ok(found) if !found.is_file() => {
            bail!(
                "{} is a folder, a link or a device, which a backup never replaces: choose another name",
                file.display()
            );
        }
        Ok(_) if !overwrite => {
            bail!("{} already exists: choose another name, or overwrite it with --force", file.display())
        }
        _ => {}
    }
    if let Some(folder) = file.parent().filter(|folder| !folder.is_dir()) {
        bail!("there is no folder {0}: make it with `mkdir -p {0}`", folder.display());
    }
    Ok(file)
}

/// Copies the database to `to`; returns `None` if there is none yet.
///
/// # Errors
/// The database lacks accepted messages: its file was deleted or replaced. Or it cannot be copied.
fn copy_database(home: &Home, to: &Path) -> anyhow::Result<Option<DatabaseFacts>> {
    let database = home.database();
    let accepted = backup::accepted(&database);
    if accepted > 0 && fs::metadata(&database).map_or(0, |metadata| metadata.len()) == 0 {
        bail!(
            "{} is missing or empty, and {accepted} messages were accepted: no backup was written; see daoyou doctor",
            database.display()
        );
    }
    if !database.exists() {
        if home.is_locked() {
            let holder = match home.temporary_holder() {
                Some(pid) => format!("a daoyou command (pid {pid}) uses the home"),
                None => "a gateway runs".to_owned(),
            };
            bail!("{} is missing, and {holder}: no backup was written; see daoyou doctor", database.display());
        }
        return Ok(None);
    }
    // A running gateway has checked the database at its start.
    if let Ok(_lock) = home.lock_for_command() {
        match backup::check_source(&database) {
            // It is only read then.
            Err(error) if error.is_full() => {}
            checked => checked?,
        }
    }
    // Created here so that the file is private from the beginning; SQLite accepts an empty file.
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .with_context(|| format!("{} cannot be written", to.display()))?;
    let facts = backup::copy(&database, to)?;
    if facts.seq < accepted {
        bail!(
            "{} lacks messages: {accepted} were accepted, and it knows {}: no backup was written; see daoyou doctor",
            database.display(),
            facts.seq
        );
    }
    Ok(Some(facts))
}

struct ArchiveWriter {
    builder: Builder<BufWriter<File>>,
    files: Vec<ArchivedFile>,
    /// Descriptions of files that were listed and could not be opened later.
    left_out: Vec<String>,
}

impl ArchiveWriter {
    fn new(archive: File) -> Self {
        Self { builder: Builder::new(BufWriter::new(archive)), files: Vec::new(), left_out: Vec::new() }
    }

    /// Adds everything but the manifest; returns the number of files.
    fn fill(
        &mut self,
        home: &OwnedFd,
        items: Vec<(PathBuf, HomeEntry)>,
        database: Option<&Path>,
    ) -> anyhow::Result<usize> {
        self.text(FIRST_ENTRY, format!("{FORMAT} {}\n", env!("CARGO_PKG_VERSION")).as_bytes())?;
        if let Some(database) = database {
            let flags = OFlags::NOFOLLOW.bits().cast_signed();
            let file = OpenOptions::new().read(true).custom_flags(flags).open(database)?;
            if !self.file(Path::new(DATABASE), file)? {
                bail!("{} cannot be backed up: {SHRINKS}", database.display());
            }
        }
        for (path, item) in items {
            match item {
                HomeEntry::Folder => self.folder(&path)?,
                HomeEntry::File => {
                    let cannot = || format!("{} of the home cannot be backed up", path.display());
                    match contents::open_file(home, &path) {
                        Ok(file) => {
                            if !self.file(&path, file).with_context(cannot)? {
                                self.left_out.push(contents::describe(&path, SHRINKS));
                            }
                        }
                        // Commands write below the top of the home, where the home's own files are.
                        Err(error) if path.components().nth(1).is_some() => {
                            self.left_out.extend(contents::omission(&error).map(|why| contents::describe(&path, &why)));
                        }
                        Err(error) => return Err(error).with_context(cannot),
                    }
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

    /// Adds a file with the content that it has now; returns false, and adds nothing, if it becomes shorter each time that it is read.
    fn file(&mut self, path: &Path, mut file: File) -> io::Result<bool> {
        for _ in 0..READS {
            let metadata = file.metadata()?;
            let mut header = header(EntryType::Regular, metadata.len(), metadata.permissions().mode() & 0o700);
            header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
            if self.content(path, header, &mut file)? {
                return Ok(true);
            }
            file.rewind()?;
        }
        Ok(false)
    }

    /// Adds as many bytes of `content` as the header says, so that a file that grows is added up to its former length. Returns false,
    /// and adds nothing, if there are fewer.
    fn content(&mut self, path: &Path, mut header: Header, content: impl Read) -> io::Result<bool> {
        let size = header.size()?;
        let start = self.builder.get_mut().stream_position()?;
        let mut content = HashingReader::new(content.take(size));
        self.builder.append_data(&mut header, Path::new(ROOT).join(path), &mut content)?;
        if content.length != size {
            let archive = self.builder.get_mut();
            archive.seek(SeekFrom::Start(start))?;
            archive.get_ref().set_len(start)?;
            return Ok(false);
        }
        self.files.push(ArchivedFile { path: path.to_owned(), size, sha256: content.finish() });
        Ok(true)
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

    #[test]
    fn the_drafts_of_killed_backups_are_removed_by_the_next_one_to_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let path = |name: &str| folder.path().join(name);
        let (killed, other) = ([".b.tar.7.tmp", ".b.tar.7.db", ".b.tar.8.db", ".b.tar.9.tmp"], ".c.tar.7.tmp");
        let (running, foreign) = ([".b.tar.6.tmp", ".b.tar.6.db"], ".b.tar.x.tmp");
        for name in killed.iter().chain(&running).chain([&other, &foreign]) {
            fs::write(path(name), "all secrets").unwrap();
        }
        let lock = File::open(path(running[0])).unwrap();
        lock.try_lock().unwrap();
        create(&home, &path("b.tar"), false).unwrap();
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, [running[1], running[0], foreign, other, "b.tar", "home"]);
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
        std::os::unix::fs::symlink("/nowhere", inside("workspace/link")).unwrap();
        let mut own = vec![outside("linked/daoyou.db"), outside("linked/workspace/../token")];
        let names = ["daoyou.db", "daoyou.lock", "daoyou.sock", "daoyou.flight", "config.toml", "token", "history"];
        own.extend(names.map(inside));
        // None of these exists.
        own.extend(["daoyou.restoring", "daoyou.db-journal", "daoyou.log", "cache"].map(inside));
        own.extend(["workspace", "workspace/a/note.md", "workspace/link"].map(inside));
        let inode = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.ino()).ok();
        for file in own {
            let before = inode(&file);
            for overwrite in [false, true] {
                let error = create(&home, &file, overwrite).unwrap_err().to_string();
                assert!(error.contains("is one of the home's own files"), "{}: {error}", file.display());
            }
            assert_eq!(inode(&file), before, "{}", file.display());
        }
        let error = create(&home, Path::new("-"), true).unwrap_err().to_string();
        assert!(error.contains("not to standard output"), "{error}");
        std::os::unix::fs::symlink(inside("config.toml"), outside("link.tar")).unwrap();
        for file in [inside("."), outside("link.tar"), outside("linked"), PathBuf::from("/dev/null")] {
            let error = create(&home, &file, true).unwrap_err().to_string();
            assert!(error.contains("a folder, a link or a device"), "{}: {error}", file.display());
        }
        // A backup in the home may be replaced, and so may a file elsewhere.
        fs::write(outside("b.tar"), "").unwrap();
        fs::hard_link(inside("workspace/a/note.md"), outside("note.tar")).unwrap();
        create(&home, &inside("workspace/a/b.tar"), false).unwrap();
        for file in [inside("workspace/a/b.tar"), outside("b.tar"), outside("note.tar")] {
            create(&home, &file, true).unwrap();
        }
        for name in ["config.toml", "workspace/a/note.md"] {
            assert_eq!(fs::read_to_string(inside(name)).unwrap(), "as it was");
        }
    }

    #[test]
    fn nothing_is_read_through_a_link_that_replaced_a_listed_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (home, outside) = (folder.path().join("home"), folder.path().join("outside"));
        fs::create_dir_all(home.join("workspace/zz")).unwrap();
        fs::create_dir(&outside).unwrap();
        for (path, text) in [
            (home.join("workspace/gone"), "own"),
            (home.join("workspace/note"), "own"),
            (home.join("workspace/zz/file"), "own"),
            (outside.join("file"), "foreign"),
        ] {
            fs::write(path, text).unwrap();
        }
        let opened = OwnedFd::from(File::open(&home).unwrap());
        let listed = contents::list(&opened).unwrap();
        fs::rename(home.join("workspace/zz"), home.join("workspace/.zz_old")).unwrap();
        fs::remove_file(home.join("workspace/gone")).unwrap();
        std::os::unix::fs::symlink(&outside, home.join("workspace/zz")).unwrap();
        let archive = folder.path().join("b.tar");
        let mut writer = ArchiveWriter::new(File::create(&archive).unwrap());
        assert_eq!(writer.fill(&opened, listed.items, None).unwrap(), 1);
        assert_eq!(writer.left_out, ["workspace/zz/file: it has become a link"]);
        writer.finish(None).unwrap();
        let mut archive = tar::Archive::new(File::open(&archive).unwrap());
        let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned());
        let names: Vec<String> = names.map(|name| name.display().to_string()).collect();
        let folders = ["home/workspace", "home/workspace/zz"];
        assert_eq!(names, [FIRST_ENTRY, folders[0], "home/workspace/note", folders[1], MANIFEST]);
    }

    /// The kernel says 4,096 bytes for a file of `/sys`, and gives fewer.
    #[test]
    fn a_file_that_becomes_shorter_is_left_out_and_the_backup_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("b.tar");
        let mut writer = ArchiveWriter::new(File::create(&archive).unwrap());
        let mut add = |name: &str, size: u64, content: &'static str| {
            let header = header(EntryType::Regular, size, 0o600);
            writer.content(Path::new(name), header, content.as_bytes()).unwrap()
        };
        let long = "d/".repeat(100) + "shrinks";
        assert!(add("whole", 5, "whole"));
        assert!(!add("shrinks", 2_000, "short"));
        assert!(!add(&long, 2_000, "short"));
        assert!(add("grows", 4, "grows and grows"));
        if let Ok(shorter) = File::open("/sys/devices/system/cpu/online") {
            assert!(!writer.file(Path::new("sys"), shorter).unwrap());
        }
        writer.finish(None).unwrap();
        let mut archive = tar::Archive::new(File::open(&archive).unwrap());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let (name, mut text) = (entry.path().unwrap().display().to_string(), String::new());
            entry.read_to_string(&mut text).unwrap();
            found.push((name, text));
        }
        let (name, manifest) = found.pop().unwrap();
        assert!(name == MANIFEST && !manifest.contains("shrinks") && !manifest.contains("sys"), "{name}: {manifest}");
        let [whole, grows] = [("home/whole", "whole"), ("home/grows", "grow")];
        assert_eq!(found, [whole, grows].map(|(name, text)| (name.to_owned(), text.to_owned())));
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
