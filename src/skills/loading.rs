//! The text that `load_skill` returns for a skill: its instructions, its folder, and the files in it.

use crate::guard::{Jail, JailError, quote_controls};

use super::discovery::join;
use super::frontmatter::{decode, split};
use super::install::{FileDigests, digest_of};
use super::skill::{Skill, SkillLocation};

/// The maximum number of files that are listed, and the maximum depth.
const MAX_FILES: usize = 100;
const MAX_LEVELS: usize = 3;
/// The maximum number of folder entries that are examined.
const MAX_ENTRIES: usize = 5_000;

/// Returns the instructions and files of a skill, as the model reads them. With `pinned`, the instructions must match the pinned
/// digest.
///
/// # Errors
/// The file can no longer be read, or has changed.
pub fn render_skill(skill: &Skill, pinned: Option<&FileDigests>) -> Result<String, String> {
    let (body, files) = match &skill.location {
        SkillLocation::BuiltIn { text, .. } => {
            (body_of(text.as_bytes())?, "The skill is part of daoyou and has no files.".to_owned())
        }
        SkillLocation::File { source, folder, file, .. } => {
            let jail = source.open().map_err(|error| error.to_string())?.ok_or("its folder is gone")?;
            let content = jail.read(&join(folder, file)).map_err(|error| error.to_string())?;
            let is_pinned = |pinned: &FileDigests| {
                let digest = pinned.get(*file).and_then(|digest| digest.split(' ').next());
                digest == Some(digest_of(&content.bytes, false).as_str())
            };
            if pinned.is_some_and(|pinned| !is_pinned(pinned)) {
                return Err("it has just changed".to_owned());
            }
            (body_of(&content.bytes)?, FileListing::of(&jail, folder, file).render())
        }
    };
    // Long instructions may be cut at the end, so the file list comes first.
    let body = if body.is_empty() { "(none)" } else { &body };
    Ok(format!("# Skill: {}\n\n## Files\n\n{files}\n\n## Instructions\n\n{body}", skill.name()))
}

/// Returns the text after the front matter.
fn body_of(bytes: &[u8]) -> Result<String, String> {
    let text = decode(bytes).and_then(split).map_err(|fault| fault.reason)?;
    Ok(text.body.trim().to_owned())
}

/// The files of a skill.
struct FileListing<'a> {
    jail: &'a Jail,
    /// The path of `SKILL.md`, which is not listed.
    skill_file: String,
    folder: String,
    files: Vec<String>,
    entries_left: usize,
    has_more_files: bool,
    has_deeper_folders: bool,
    has_links: bool,
    unread: Vec<String>,
}

impl<'a> FileListing<'a> {
    fn of(jail: &'a Jail, folder: &str, file: &str) -> Self {
        let mut listing = Self {
            jail,
            skill_file: join(folder, file),
            folder: folder.to_owned(),
            files: Vec::new(),
            entries_left: MAX_ENTRIES,
            has_more_files: false,
            has_deeper_folders: false,
            has_links: false,
            unread: Vec::new(),
        };
        listing.add_folder(folder, 1);
        listing
    }

    /// Adds the files of a folder, then those of its subfolders.
    fn add_folder(&mut self, folder: &str, level: usize) {
        if level > MAX_LEVELS {
            self.has_deeper_folders = true;
            return;
        }
        let entries = match self.entries(folder) {
            Ok(entries) => entries,
            Err(error) => return self.unread.push(error.to_string()),
        };
        let (folders, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(_, is_folder)| *is_folder);
        for (name, _) in files {
            let path = join(folder, &name);
            if path == self.skill_file {
                continue;
            }
            if self.files.len() >= MAX_FILES {
                self.has_more_files = true;
                return;
            }
            self.files.push(path);
        }
        for (name, _) in folders {
            self.add_folder(&join(folder, &name), level + 1);
        }
    }

    /// Returns the names of the files and folders in a folder, sorted, and whether they are folders. Hidden entries, links and
    /// special files are left out.
    fn entries(&mut self, folder: &str) -> Result<Vec<(String, bool)>, JailError> {
        let (dir, shown) = self.jail.folder(folder)?;
        let failed = |error| JailError::Io { path: shown.clone(), error };
        let mut names = Vec::new();
        for entry in dir.entries().map_err(failed)? {
            let Some(left) = self.entries_left.checked_sub(1) else {
                self.has_more_files = true;
                break;
            };
            self.entries_left = left;
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            self.has_links |= kind.is_symlink();
            if kind.is_dir() || kind.is_file() {
                names.push((name, kind.is_dir()));
            }
        }
        names.sort();
        Ok(names)
    }

    fn render(&self) -> String {
        let shown = |path: &str| {
            let path = if path == "." { self.jail.root().to_owned() } else { self.jail.root().join(path) };
            quote_controls(&path.display().to_string())
        };
        let mut lines = vec![format!("Folder: {}", shown(&self.folder))];
        lines.extend(self.files.iter().map(|path| format!("- {}", shown(path))));
        if self.files.is_empty() && !self.has_more_files && self.unread.is_empty() {
            lines.push("It has no other files.".to_owned());
        }
        if self.has_more_files {
            lines.push(format!("There are more files; these are the first {}.", self.files.len()));
        }
        if self.has_deeper_folders {
            lines.push(format!("Folders below level {MAX_LEVELS} are not listed."));
        }
        if self.has_links {
            lines.push("Links are not listed.".to_owned());
        }
        lines.extend(self.unread.iter().map(|reason| format!("Not listed: {reason}")));
        lines.join("\n")
    }
}
