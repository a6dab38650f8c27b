//! `daoyou backup FILE`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tar::{Builder, EntryType, Header};

use super::contents::{self, Contents, Item};
use super::manifest::{DATABASE, Entry, FIRST, FORMAT, MANIFEST, Manifest, ROOT, Summing};
use crate::home::Home;
use crate::store::backup::{self, Facts};

/// What was written.
#[derive(Debug)]
pub struct Created {
    pub files: usize,
    /// Bytes of the archive.
    pub size: u64,
    pub database: Option<Facts>,
    /// What of the home is not in it, in words.
    pub left_out: Vec<String>,
}

/// A file that is removed again unless it is kept.
struct Draft(Option<PathBuf>);

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(path) = self.0.take()
            && let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a temporary file stays");
        }
    }
}

/// Writes a backup of `home` to `file`, whole or not at all. A gateway may run meanwhile; it does not wait.
///
/// # Errors
/// `file` is there and not to be overwritten, or something cannot be read or written.
pub fn create(home: &Home, file: &Path, overwrite: bool) -> anyhow::Result<Created> {
    let file = std::path::absolute(file)?;
    if fs::symlink_metadata(&file).is_ok() && !overwrite {
        bail!("{} is there already: choose another name, or overwrite it with --force", file.display());
    }
    let beside = |end: &str| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        file.with_file_name(format!(".{name}.{}.{end}", std::process::id()))
    };
    let (copy, mut draft) = (Draft(Some(beside("db"))), Draft(Some(beside("tmp"))));
    let (copy_path, draft_path) = (beside("db"), beside("tmp"));
    let database = copy_database(home, &copy_path)?;
    let cannot = || format!("{} cannot be written", file.display());
    let mut options = OpenOptions::new();
    let archive = options.write(true).create_new(true).mode(0o600).open(&draft_path).with_context(cannot)?;
    let contents = contents::of(home.dir()).with_context(|| format!("{} cannot be read", home.dir().display()))?;
    let copied = database.is_some().then_some(copy_path.as_path());
    let mut writer = Archive { builder: Builder::new(BufWriter::new(archive)), files: Vec::new() };
    let files = writer.fill(home, &contents, copied)?;
    let archive = writer.finish(database.clone()).with_context(cannot)?;
    archive.sync_all().with_context(cannot)?;
    let size = archive.metadata().with_context(cannot)?.len();
    fs::rename(&draft_path, &file).with_context(cannot)?;
    draft.0 = None;
    drop(copy);
    if let Some(folder) = file.parent() {
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)?;
    }
    Ok(Created { files, size, database, left_out: contents.left_out })
}

/// A copy of the database at `to`; `None` where there is none yet.
fn copy_database(home: &Home, to: &Path) -> anyhow::Result<Option<Facts>> {
    let database = home.database();
    if !database.exists() {
        return Ok(None);
    }
    // Whoever runs has looked at it when he started.
    if let Ok(_lock) = home.lock() {
        backup::inspect(&database)?;
    }
    // Made here so that it is private from the beginning; SQLite takes an empty file.
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .with_context(|| format!("{} cannot be written", to.display()))?;
    Ok(Some(backup::copy(&database, to)?))
}

struct Archive {
    builder: Builder<BufWriter<File>>,
    files: Vec<Entry>,
}

impl Archive {
    /// Everything but the manifest; answers how many files.
    fn fill(&mut self, home: &Home, contents: &Contents, database: Option<&Path>) -> anyhow::Result<usize> {
        self.text(FIRST, format!("{FORMAT} {}\n", env!("CARGO_PKG_VERSION")).as_bytes())?;
        if let Some(database) = database {
            self.file(Path::new(DATABASE), database)?;
        }
        for (path, item) in &contents.items {
            let full = home.dir().join(path);
            match item {
                Item::Folder => self.folder(path)?,
                Item::File => {
                    self.file(path, &full).with_context(|| format!("{} cannot be backed up", full.display()))?;
                }
                Item::Link(target) => {
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
        let file = File::open(full)?;
        let metadata = file.metadata()?;
        let size = metadata.len();
        let mut header = header(EntryType::Regular, size, metadata.permissions().mode() & 0o700);
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        // A file that grows is taken as long as it was; one that shrinks cannot be.
        let mut content = Summing::new(file.take(size));
        self.builder.append_data(&mut header, Path::new(ROOT).join(path), &mut content)?;
        if content.length != size {
            return Err(io::Error::other("it was changed meanwhile; run the backup again"));
        }
        self.files.push(Entry { path: path.to_owned(), size, sha256: content.finish() });
        Ok(())
    }

    fn text(&mut self, name: &str, text: &[u8]) -> io::Result<()> {
        self.builder.append_data(&mut header(EntryType::Regular, text.len() as u64, 0o600), name, text)
    }

    fn finish(mut self, database: Option<Facts>) -> io::Result<File> {
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
