//! The agents that are part of the program.

use std::path::Path;

use include_dir::{Dir, include_dir};

use super::manifest::{PROFILE_FILE, ProfileManifest};

static FOLDER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/src/profiles/built_in");

/// The source of built-in profiles.
pub(super) const BUILT_IN: &str = "built-in";

/// Names of the agents of other systems, and the built-in agents that replace them.
pub(super) const FOREIGN_AGENT_NAMES: [(&str, &str); 6] = [
    ("mainagent", "assistant"),
    ("code_analyzer", "reviewer"),
    ("code_explorer", "explorer"),
    ("programmer", "coder"),
    ("refactor_master", "coder"),
    ("test_expert", "tester"),
];

/// Returns the built-in profiles by name, each with its folder.
pub(super) fn built_in_profiles() -> Vec<(ProfileManifest, &'static Path)> {
    let mut profiles = Vec::new();
    for folder in FOLDER.dirs() {
        let text = |name: &str| FOLDER.get_file(folder.path().join(name)).and_then(|file| file.contents_utf8());
        let manifest = text(PROFILE_FILE).ok_or_else(|| (None, "has no skill.yaml".to_owned()));
        match manifest.and_then(|text| ProfileManifest::parse(text.as_bytes())) {
            Ok(manifest) => profiles.push((manifest, folder.path())),
            // A test parses all of them, so this cannot happen.
            Err((line, reason)) => {
                tracing::error!(folder = %folder.path().display(), ?line, reason, "a built-in profile is broken");
            }
        }
    }
    profiles.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    profiles
}

/// Returns the text of a file in the folder of a built-in profile.
pub(super) fn built_in_text(folder: &Path, file: &str) -> Option<&'static str> {
    FOLDER.get_file(folder.join(file)).and_then(|file| file.contents_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_built_in_profiles_are_valid() {
        let names: Vec<_> = built_in_profiles().into_iter().map(|(manifest, _)| manifest.name).collect();
        assert_eq!(names, ["assistant", "coder", "explorer", "researcher", "reviewer", "tester", "translator"]);
        assert_eq!(names.len(), FOLDER.dirs().count());
        assert!(FOREIGN_AGENT_NAMES.iter().all(|(_, name)| names.iter().any(|known| known == name)));
    }
}
