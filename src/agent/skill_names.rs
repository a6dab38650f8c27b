//! The names of the skills in the workspace: `skills/NAME/SKILL.md`, with `name` and `description` between `---` at its
//! head.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::history::shorten;

const MAX_SKILLS: usize = 200;
/// How much of a file is read, in bytes.
const MAX_HEAD: u64 = 8 << 10;
const MAX_DESCRIPTION: usize = 200;

/// A skill, for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillName {
    pub name: String,
    pub description: String,
}

/// The skills in `folder`, by name; one without a head is called as its folder is.
pub fn of(folder: &Path) -> Vec<SkillName> {
    // A folder that is not there has none.
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut skills: Vec<_> = entries.flatten().take(MAX_SKILLS).filter_map(|entry| read(&entry.path())).collect();
    skills.sort_by(|a, b| a.name.cmp(&b.name));
    skills
}

fn read(folder: &Path) -> Option<SkillName> {
    let mut bytes = Vec::new();
    File::open(folder.join("SKILL.md")).ok()?.take(MAX_HEAD).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let name = field(&text, "name").unwrap_or_else(|| folder.file_name().unwrap_or_default().to_string_lossy().into());
    let description = field(&text, "description").unwrap_or_default();
    Some(SkillName { name: shorten(&name, MAX_DESCRIPTION), description: shorten(&description, MAX_DESCRIPTION) })
}

/// A field of the head; its text may go on in indented lines.
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
    use super::*;

    #[test]
    fn skills_are_listed_by_what_their_heads_say() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("b", "---\nname: brew\ndescription: >\n  Makes tea\n  and coffee.\n---\n# Brew"),
            ("a", "---\ndescription: \"Adds numbers.\"\n---\n"),
            ("c", "no head"),
        ] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("SKILL.md"), text).unwrap();
        }
        fs::write(folder.path().join("README.md"), "no skill").unwrap();
        let skills: Vec<_> = of(folder.path()).into_iter().map(|skill| (skill.name, skill.description)).collect();
        let expected = [("a", "Adds numbers."), ("brew", "Makes tea and coffee."), ("c", "")];
        assert_eq!(skills, expected.map(|(name, description)| (name.to_owned(), description.to_owned())));
        assert_eq!(of(&folder.path().join("none")), []);
    }
}
