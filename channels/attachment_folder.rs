//! Saves the files of inbound messages in the workspace.
//!
//! The agent's commands write into the same folder and may change it at any time. Therefore no symbolic link is followed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{Mode, OFlags};

use crate::message::{Attachment, SessionKey};
use crate::sanitize::sanitize_line;
use crate::text::sha256_hex;

/// The file with the part that was removed from a mail's text.
const QUOTED: &str = "quoted.md";
/// The longest file name, in bytes. File systems allow 255.
const MAX_NAME: usize = 120;
const MAX_ENDING: usize = 16;

/// A file that arrived with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingFile {
    /// The name that the sender chose; not safe as a file name.
    pub name: String,
    /// The media type, e.g. `image/png`.
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// The folder in a workspace for the files of one channel's messages. Its functions block.
pub struct AttachmentFolder {
    path: PathBuf,
    /// The folder's name in the workspace.
    name: &'static str,
}

/// The result of saving a message's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedFiles {
    pub attachments: Vec<Attachment>,
    /// The path of the file with the removed text, relative to the workspace.
    pub cut: Option<String>,
}

impl AttachmentFolder {
    /// Checks a workspace, which need not exist yet (before the first start). Each use opens it anew, since it may be replaced.
    ///
    /// # Errors
    /// The path is not a folder, or cannot be read.
    pub fn open(workspace: &Path, name: &'static str) -> io::Result<Self> {
        let files = Self { path: workspace.to_owned(), name };
        match files.workspace() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(files),
        }
    }

    fn workspace(&self) -> io::Result<Dir> {
        // A folder opened by cap-std cannot be synced.
        let flags = OFlags::DIRECTORY.bits() as i32;
        let folder = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&self.path)?;
        Ok(Dir::from_std_file(folder))
    }

    /// Saves the files of a message as `FOLDER/SESSION/MESSAGE/NAME`, and the removed part of its text, `cut`, beside them.
    /// Everything is on disk when the function returns. Saving the same message again gives the same paths and completes a
    /// save that a crash interrupted.
    ///
    /// # Errors
    /// A write fails, or another object occupies the path; the error names it.
    pub fn save(&self, session: &SessionKey, key: &str, files: &[IncomingFile], cut: &str) -> io::Result<SavedFiles> {
        if files.is_empty() && cut.is_empty() {
            return Ok(SavedFiles::default());
        }
        let names = [self.name.to_owned(), hash(session.as_str(), 16), hash(key, 12)];
        let mut folder = self.workspace()?;
        for name in &names {
            folder = open_subfolder(&folder, name)?;
        }
        let path = names.join("/");
        let mut saved = SavedFiles::default();
        let mut taken = vec![QUOTED.to_owned()];
        for enclosed in files {
            let name = free_name(&safe_name(&enclosed.name), &mut taken);
            write_file(&folder, &name, &enclosed.bytes)?;
            saved.attachments.push(Attachment {
                path: format!("{path}/{name}"),
                name,
                media_type: enclosed.media_type.clone(),
                size: enclosed.bytes.len() as u64,
                digest: String::new(),
            });
        }
        if !cut.is_empty() {
            write_file(&folder, QUOTED, cut.as_bytes())?;
            saved.cut = Some(format!("{path}/{QUOTED}"));
        }
        rustix::fs::fsync(&folder)?;
        Ok(saved)
    }
}

/// Returns the first hexadecimal digits of the SHA-256 of a text.
fn hash(text: &str, digits: usize) -> String {
    let mut hash = sha256_hex(&[text.as_bytes()]);
    hash.truncate(digits);
    hash
}

/// Opens a folder and creates it if it is missing. Always syncs the parent, because a crash may have followed an earlier creation.
fn open_subfolder(parent: &Dir, name: &str) -> io::Result<Dir> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(fault) => return Err(fault.into()),
    }
    rustix::fs::fsync(parent)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(folder) => Ok(Dir::from_std_file(File::from(folder))),
        Err(fault @ (rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP)) => {
            let fault = io::Error::from(fault);
            let message = format!(
                "{name:?} in the workspace is not a folder ({fault}); the files of messages go there: move it away"
            );
            Err(io::Error::new(fault.kind(), message))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// Writes a file atomically and replaces any object of that name.
fn write_file(folder: &Dir, name: &str, bytes: &[u8]) -> io::Result<()> {
    if is_same(folder, name, bytes)? {
        return Ok(());
    }
    let part = format!(".{name}.part");
    match folder.remove_file(&part) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(fault),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = folder.open_with(&part, &options)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    folder.rename(&part, folder, name)
}

/// Returns true if a file holds exactly these bytes and they are on disk.
fn is_same(folder: &Dir, name: &str, bytes: &[u8]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(folder, name, flags, Mode::empty()) else { return Ok(false) };
    let file = File::from(file);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let mut held = Vec::with_capacity(bytes.len());
    (&file).take(metadata.len()).read_to_end(&mut held)?;
    let is_same = held == bytes;
    if is_same {
        file.sync_all()?;
    }
    Ok(is_same)
}

/// Makes a sender's file name safe: no folders, no characters that a shell or a file system interprets, no leading dots or dashes.
fn safe_name(name: &str) -> String {
    const RESERVED: &[&str] = &["con", "prn", "aux", "nul"];
    let name = sanitize_line(name);
    let name = name
        .rsplit(['/', '\\', '\u{2044}', '\u{2215}', '\u{29f8}', '\u{ff0f}'])
        .find(|part| !part.trim().is_empty())
        .unwrap_or_default();
    let odd = |c: char| "<>:\"|?*`$;&!#%{}'~".contains(c);
    let name: String = name.chars().map(|c| if odd(c) { '_' } else { c }).collect();
    let name = name.trim_matches(|c: char| c == '.' || c.is_whitespace()).trim_start_matches('-');
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() && (1..=MAX_ENDING).contains(&ending.len()) => {
            (stem, format!(".{ending}"))
        }
        _ => (name, String::new()),
    };
    let stem = stem[..stem.floor_char_boundary(MAX_NAME - ending.len())].trim_end_matches(['.', ' ']);
    let first = stem.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_port = first.len() == 4
        && (first.starts_with("com") || first.starts_with("lpt"))
        && first.ends_with(|c: char| c.is_ascii_digit());
    match stem {
        "" => format!("file{ending}"),
        stem if RESERVED.contains(&first.as_str()) || is_port => format!("_{stem}{ending}"),
        stem => format!("{stem}{ending}"),
    }
}

/// Returns the name, with a number appended if it is taken. Ignores case, as some file systems do.
fn free_name(name: &str, taken: &mut Vec<String>) -> String {
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) => (stem, format!(".{ending}")),
        None => (name, String::new()),
    };
    let mut free = name.to_owned();
    let mut number = 2;
    while taken.contains(&free.to_lowercase()) {
        free = format!("{stem}-{number}{ending}");
        number += 1;
    }
    taken.push(free.to_lowercase());
    free
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn incoming(files: &[(&str, &[u8])]) -> Vec<IncomingFile> {
        let enclosed = |(name, bytes): &(&str, &[u8])| IncomingFile {
            name: (*name).to_owned(),
            media_type: "text/plain".to_owned(),
            bytes: bytes.to_vec(),
        };
        files.iter().map(enclosed).collect()
    }

    #[test]
    fn names_are_safe() {
        let table = [
            ("report.pdf", "report.pdf"),
            ("年度 报告（终）.docx", "年度 报告（终）.docx"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\me\\a.doc", "a.doc"),
            ("/", "file"),
            ("...", "file"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("a\0b\n$(rm x);`y`.sh", "a b _(rm x)__y_.sh"),
            ("photo\u{202e}gpj.exe", "photogpj.exe"),
            ("con", "_con"),
            ("NUL.txt", "_NUL.txt"),
            ("com1", "_com1"),
            ("a. . ", "a"),
            ("archive.tar.gz", "archive.tar.gz"),
            ("", "file"),
        ];
        for (name, expected) in table {
            assert_eq!(safe_name(name), expected, "{name:?}");
        }
        let long = safe_name(&("长".repeat(300) + ".pdf"));
        assert!(long.len() <= MAX_NAME && long.ends_with("长.pdf"), "{long}");
    }

    #[test]
    fn attachments_are_saved_once_into_private_folders() {
        let home = tempfile::tempdir().unwrap();
        let files = AttachmentFolder::open(home.path(), "mail").unwrap();
        let session = SessionKey::from("email:<a@b>");
        let mail = incoming(&[("a.txt", b"one"), ("A.TXT", b"two"), ("quoted.md", b"three"), ("a.txt", b"one")]);
        let saved = files.save(&session, "<1@x> a@x.org", &mail, "> old").unwrap();
        let paths: Vec<_> =
            saved.attachments.iter().map(|file| file.path.rsplit('/').next().unwrap().to_owned()).collect();
        assert_eq!(paths, ["a.txt", "A-2.TXT", "quoted-2.md", "a-3.txt"]);
        let folder = saved.attachments[0].path.trim_end_matches("/a.txt").to_owned();
        assert!(folder.starts_with("mail/") && folder.len() == "mail/".len() + 16 + 1 + 12, "{folder}");
        assert_eq!(saved.cut, Some(format!("{folder}/quoted.md")));
        assert_eq!(fs::read(home.path().join(&folder).join("a-3.txt")).unwrap(), b"one");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.path().join(&folder)), 0o700);
        assert_eq!(mode(&home.path().join("mail")), 0o700);
        assert_eq!(mode(&home.path().join(&folder).join("a.txt")), 0o600);

        // As after a crash in the middle of saving.
        fs::write(home.path().join(&folder).join("a.txt"), b"on").unwrap();
        fs::write(home.path().join(&folder).join(".a.txt.part"), b"o").unwrap();
        assert_eq!(files.save(&session, "<1@x> a@x.org", &mail, "> old").unwrap(), saved);
        assert_eq!(fs::read(home.path().join(&folder).join("a.txt")).unwrap(), b"one");
        assert_eq!(fs::read_dir(home.path().join(&folder)).unwrap().count(), 5);
        assert_ne!(files.save(&session, "<2@x> a@x.org", &mail, "> old").unwrap(), saved);
        assert_eq!(files.save(&session, "none", &[], "").unwrap(), SavedFiles::default());

        // A workspace that was replaced meanwhile gets the next files.
        let workspace = home.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let files = AttachmentFolder::open(&workspace, "mail").unwrap();
        fs::rename(&workspace, home.path().join("old")).unwrap();
        fs::create_dir(&workspace).unwrap();
        let saved = files.save(&session, "<3@x> a@x.org", &mail, "").unwrap();
        assert_eq!(fs::read(workspace.join(&saved.attachments[0].path)).unwrap(), b"one");
    }

    #[test]
    fn links_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        let files = AttachmentFolder::open(home.path(), "mail").unwrap();
        let session = SessionKey::from("email:<a@b>");
        let mail = incoming(&[("a.txt", b"one")]);
        let saved = files.save(&session, "1", &mail, "").unwrap();
        let path = home.path().join(&saved.attachments[0].path);

        // The new file replaces a link in its place; the link is not followed.
        fs::remove_file(&path).unwrap();
        symlink(outside.path().join("secret"), &path).unwrap();
        files.save(&session, "1", &mail, "").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"s");

        // A link in place of the folder is an error.
        fs::remove_dir_all(home.path().join("mail")).unwrap();
        symlink(outside.path(), home.path().join("mail")).unwrap();
        let fault = files.save(&session, "1", &mail, "").unwrap_err().to_string();
        assert!(fault.contains("\"mail\"") && fault.contains("not a folder"), "{fault}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
