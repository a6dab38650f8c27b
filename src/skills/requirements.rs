//! The requirements of a skill, and whether this machine meets them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The maximum number of install hints in a reason.
const MAX_HINTS: usize = 3;

/// The requirements of a skill. A skill without an unmet requirement is available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillRequirements {
    /// Programs that must all be installed.
    pub bins: Vec<String>,
    /// Programs of which at least one must be installed.
    pub any_bins: Vec<String>,
    /// Environment variables that must be set.
    pub env: Vec<String>,
    /// The supported operating systems; empty for any.
    pub os: Vec<String>,
}

/// A command that installs programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallHint {
    /// The programs that it installs; empty if the skill does not say.
    pub bins: Vec<String>,
    pub command: String,
}

/// The machine on which skills run.
pub struct SkillHost {
    search_path: Vec<PathBuf>,
    has_variable: Box<dyn Fn(&str) -> bool + Send + Sync>,
    os: String,
}

impl SkillHost {
    /// Returns the machine as this process sees it.
    pub fn of_process() -> Self {
        let search_path = env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
        let has_variable = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        Self::new(search_path, has_variable, env::consts::OS)
    }

    /// Creates a host. `has_variable` returns true for an environment variable that is set; `os` is a name as in
    /// `std::env::consts::OS`.
    pub fn new(
        search_path: Vec<PathBuf>,
        has_variable: impl Fn(&str) -> bool + Send + Sync + 'static,
        os: &str,
    ) -> Self {
        Self { search_path, has_variable: Box::new(has_variable), os: os.to_owned() }
    }

    fn has_program(&self, name: &str) -> bool {
        // A path would reveal whether any file of the machine exists, so only plain names are searched.
        let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
        is_plain
            && self.search_path.iter().filter(|folder| folder.is_absolute()).any(|folder| {
                let found = folder.join(name).metadata();
                found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
            })
    }

    fn is_os(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let known = match name.as_str() {
            "darwin" | "mac" | "osx" => "macos",
            "win32" | "win" => "windows",
            other => other,
        };
        matches!(known, "any" | "all" | "*") || known == self.os
    }
}

/// The programs that were searched for during one scan of the skills. Each is searched for only once.
pub(super) struct ProgramSearch<'a> {
    host: &'a SkillHost,
    found: RefCell<HashMap<String, bool>>,
}

impl<'a> ProgramSearch<'a> {
    pub(super) fn new(host: &'a SkillHost) -> Self {
        Self { host, found: RefCell::default() }
    }

    fn has(&self, name: &str) -> bool {
        *self.found.borrow_mut().entry(name.to_owned()).or_insert_with(|| self.host.has_program(name))
    }

    /// Returns why the skill cannot be used on this machine; `None` if it can be used.
    pub(super) fn unmet(&self, needs: &SkillRequirements, hints: &[InstallHint]) -> Option<String> {
        let mut reasons = Vec::new();
        if !needs.os.is_empty() && !needs.os.iter().any(|os| self.host.is_os(os)) {
            reasons.push(format!("runs on {} only, and this is {}", needs.os.join(", "), self.host.os));
        }
        for bin in needs.bins.iter().filter(|bin| !self.has(bin)) {
            reasons.push(format!("needs the program {bin}{}", hint_for(&[bin], hints)));
        }
        if !needs.any_bins.is_empty() && !needs.any_bins.iter().any(|bin| self.has(bin)) {
            let bins: Vec<&String> = needs.any_bins.iter().collect();
            let one_of = if bins.len() > 1 { "one of the programs" } else { "the program" };
            reasons.push(format!("needs {one_of} {}{}", needs.any_bins.join(", "), hint_for(&bins, hints)));
        }
        for name in needs.env.iter().filter(|name| !(self.host.has_variable)(name)) {
            reasons.push(format!("needs the environment variable {name}"));
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// Returns `: COMMAND | COMMAND` for the hints that install one of `bins`.
fn hint_for(bins: &[&String], hints: &[InstallHint]) -> String {
    let fits = |hint: &&InstallHint| hint.bins.is_empty() || bins.iter().any(|bin| hint.bins.contains(bin));
    let commands: Vec<_> = hints.iter().filter(fits).take(MAX_HINTS).map(|hint| hint.command.as_str()).collect();
    if commands.is_empty() { String::new() } else { format!(": {}", commands.join(" | ")) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn unmet_needs_are_named_with_their_remedy() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("git", 0o755), ("notes", 0o644)] {
            fs::write(folder.path().join(name), "").unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(folder.path().join("folder")).unwrap();
        let host = SkillHost::new(vec![folder.path().to_owned(), "relative".into()], |name| name == "SET", "linux");
        let search = ProgramSearch::new(&host);
        let hints = [("gh", "brew install gh"), ("gh", "apt install gh"), ("jq", "apt install jq")]
            .map(|(bin, command)| InstallHint { bins: list(&[bin]), command: command.to_owned() });
        for (bins, any_bins, env, os, expected) in [
            (&[][..], &[][..], &[][..], &[][..], None),
            (&["git"], &["gh", "git"], &["SET"], &["darwin", "Linux"], None),
            (&["gh"], &[], &[], &[], Some("needs the program gh: brew install gh | apt install gh")),
            (&["notes"], &[], &[], &[], Some("needs the program notes")),
            (&["folder"], &[], &[], &[], Some("needs the program folder")),
            (&["../git"], &[], &[], &[], Some("needs the program ../git")),
            (&[], &["jq", "yq"], &[], &[], Some("needs one of the programs jq, yq: apt install jq")),
            (&[], &["yq"], &[], &[], Some("needs the program yq")),
            (&[], &[], &["SET", "UNSET"], &[], Some("needs the environment variable UNSET")),
            (&[], &[], &[], &["darwin", "win32"], Some("runs on darwin, win32 only, and this is linux")),
            (&["yq"], &[], &["UNSET"], &[], Some("needs the program yq; needs the environment variable UNSET")),
        ] {
            let needs = SkillRequirements { bins: list(bins), any_bins: list(any_bins), env: list(env), os: list(os) };
            assert_eq!(search.unmet(&needs, &hints).as_deref(), expected, "{needs:?}");
        }
    }
}
