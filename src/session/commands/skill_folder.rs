//! Lists the skills of the workspace: `skills/NAME/SKILL.md`, with `name` and `description` in the front matter.

use std::io;
use std::path::{Path, PathBuf};

use super::history::shorten;
use crate::guard::{Jail, JailError};

/// The folder in the workspace.
const FOLDER: &str = "skills";
const MAX_SKILLS: usize = 200;
/// The bytes of a file that are examined, and the largest file that is read.
const MAX_HEAD: usize = 8 << 10;
const MAX_FILE: u64 = 1_000_000;
const MAX_DESCRIPTION: usize = 200;

/// A skill for the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillName {
    pub name: String,
    pub description: String,
}

/// The folder of skills. The agent's commands write there, so no link is followed and nothing private is read.
pub struct SkillFolder {
    workspace: Jail,
}

impl SkillFolder {
    /// # Errors
    /// When the workspace is not a folder that can be opened.
    pub fn open(workspace: &Path, closed: &[PathBuf]) -> io::Result<Self> {
        Ok(Self { workspace: Jail::open_strict(workspace, Vec::new(), MAX_FILE)?.with_closed(closed) })
    }

    /// Returns the folder's path.
    pub fn path(&self) -> PathBuf {
        self.workspace.root().join(FOLDER)
    }

    /// Returns the skills by name, and why others cannot be read. A skill without front matter is named after its
    /// folder.
    pub fn list(&self) -> (Vec<SkillName>, Vec<JailError>) {
        let (mut skills, mut faults) = (Vec::new(), Vec::new());
        match self.names() {
            Ok(names) => {
                for name in names {
                    match self.workspace.read(&format!("{FOLDER}/{name}/SKILL.md")) {
                        Ok(file) => skills.push(skill_of(&name, &file.bytes)),
                        // This is not a skill.
                        Err(JailError::Missing(_) | JailError::NotFolder(_)) => {}
                        Err(error) => faults.push(error),
                    }
                }
            }
            // A missing folder has no skills.
            Err(JailError::Missing(_)) => {}
            Err(error) => faults.push(error),
        }
        skills.sort_by(|a, b| a.name.cmp(&b.name));
        (skills, faults)
    }

    fn names(&self) -> Result<Vec<String>, JailError> {
        let (folder, shown) = self.workspace.folder(FOLDER)?;
        let failed = |error| JailError::Io { path: shown.clone(), error };
        let entries = folder.entries().map_err(failed)?.take(MAX_SKILLS);
        let names = entries.map(|entry| Ok(entry.map_err(failed)?.file_name().into_string().ok()));
        Ok(names.collect::<Result<Vec<_>, JailError>>()?.into_iter().flatten().collect())
    }
}

fn skill_of(folder: &str, bytes: &[u8]) -> SkillName {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_HEAD)]);
    let name = field(&text, "name").unwrap_or_else(|| folder.to_owned());
    let description = field(&text, "description").unwrap_or_default();
    SkillName { name: shorten(&name, MAX_DESCRIPTION), description: shorten(&description, MAX_DESCRIPTION) }
}

/// Returns a field of the front matter; its text may continue on indented lines.
fn field(text: &str, key: &str) -> Option<String> {
    let head = text.strip_prefix("---")?.split("\n---").next()?;
    let mut lines = head.lines().skip_while(|line| field_text(line, key).is_none());
    let first = field_text(lines.next()?, key)?.trim().trim_matches(['"', '\'']);
    let is_folded = matches!(first, "" | ">" | "|" | ">-" | "|-");
    let more = lines.take_while(|line| line.starts_with([' ', '\t'])).map(str::trim);
    let all: Vec<_> = std::iter::once(first).filter(|_| !is_folded).chain(more).collect();
    Some(all.join(" ")).filter(|text| !text.is_empty())
}

fn field_text<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix(':')
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn skills_are_listed_from_their_front_matter() {
        let workspace = tempfile::tempdir().unwrap();
        let folder = workspace.path().join(FOLDER);
        let skills = SkillFolder::open(workspace.path(), &[]).unwrap();
        assert!(skills.list().0.is_empty() && skills.list().1.is_empty());
        for (name, text) in [
            ("b", "---\nname: brew\ndescription: >\n  Makes tea\n  and coffee.\n---\n# Brew"),
            ("a", "---\ndescription: \"Adds numbers.\"\n---\n"),
            ("c", "no head"),
        ] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
        }
        fs::write(folder.join("README.md"), "no skill").unwrap();
        fs::create_dir(folder.join("empty")).unwrap();
        fs::create_dir(folder.join("link")).unwrap();
        std::os::unix::fs::symlink("../a/SKILL.md", folder.join("link/SKILL.md")).unwrap();
        let (skills, faults) = skills.list();
        let skills: Vec<_> = skills.into_iter().map(|skill| (skill.name, skill.description)).collect();
        let expected = [("a", "Adds numbers."), ("brew", "Makes tea and coffee."), ("c", "")];
        assert_eq!(skills, expected.map(|(name, description)| (name.to_owned(), description.to_owned())));
        assert!(matches!(&faults[..], [JailError::Link(path)] if path == "skills/link/SKILL.md"), "{faults:?}");
    }
}
