//! The rules of `.gitignore`, `.ignore` and `.git/info/exclude`.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, OFlags};

use crate::guard::beneath::open_beneath;

/// The rule files, in order of precedence: the first file with a rule for a name decides.
const FILES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];
/// The maximum size of a rule file, in bytes, and its maximum number of rules. Further rules are ignored.
const MAX_BYTES: u64 = 256 << 10;
const MAX_RULES: usize = 2_000;

/// The rules of a folder and of those above it.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    own: Vec<Gitignore>,
    above: Option<Arc<IgnoreRules>>,
}

impl IgnoreRules {
    /// Reads the rules of the open `folder`, which lies at `path` below the top of the walk.
    pub(super) fn load(folder: BorrowedFd<'_>, path: &Path, above: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let own: Vec<_> = FILES.iter().filter_map(|name| read(folder, Path::new(name), path)).collect();
        if own.is_empty() {
            return above.cloned();
        }
        Some(Arc::new(Self { own, above: above.cloned() }))
    }

    /// Returns true if the rules ignore `path`, which is relative to the top of the walk.
    pub(super) fn is_ignored(&self, path: &Path, is_folder: bool) -> bool {
        let mut rules = Some(self);
        while let Some(level) = rules {
            for own in &level.own {
                match own.matched(path, is_folder) {
                    Match::None => {}
                    found => return found.is_ignore(),
                }
            }
            rules = level.above.as_deref();
        }
        false
    }
}

/// Reads one rule file. A file that is not a regular file with one name has no rules.
fn read(folder: BorrowedFd<'_>, name: &Path, path: &Path) -> Option<Gitignore> {
    // The type is checked first, so that no pipe or device is opened.
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_plain = |found: &rustix::fs::Stat| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_nlink == 1
    };
    if !is_plain(&found) {
        return None;
    }
    let file = File::from(open_beneath(folder, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?);
    if !is_plain(&rustix::fs::fstat(&file).ok()?) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let mut rules = GitignoreBuilder::new(path);
    for line in String::from_utf8_lossy(&bytes).lines().take(MAX_RULES) {
        // An invalid rule is ignored, as in Git.
        let _ = rules.add_line(None, line);
    }
    rules.build().ok().filter(|rules| !rules.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_nearest_rule_decides() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/.git/info")).unwrap();
        fs::write(root.path().join(".gitignore"), "*.log\n/build/\nx[\n# comment\n").unwrap();
        fs::write(root.path().join("a/.gitignore"), "!keep.log\nlocal\n").unwrap();
        fs::write(root.path().join("a/.ignore"), "!local\n").unwrap();
        fs::write(root.path().join("a/.git/info/exclude"), "excluded\n").unwrap();
        let (top, inner) = (File::open(root.path()).unwrap(), File::open(root.path().join("a")).unwrap());
        let above = IgnoreRules::load(top.as_fd(), Path::new(""), None).unwrap();
        let rules = IgnoreRules::load(inner.as_fd(), Path::new("a"), Some(&above)).unwrap();
        for (path, is_folder, in_top, in_a) in [
            ("x.log", false, true, true),
            ("a/y.log", false, true, true),
            ("a/keep.log", false, true, false),
            ("build", true, true, true),
            ("build", false, false, false),
            ("a/build", true, false, false),
            ("a/local", false, false, false),
            ("a/excluded", false, false, true),
            ("a/other", false, false, false),
        ] {
            let got = (above.is_ignored(Path::new(path), is_folder), rules.is_ignored(Path::new(path), is_folder));
            assert_eq!(got, (in_top, in_a), "{path}");
        }
    }

    #[test]
    fn a_pipe_or_link_has_no_rules() {
        let root = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, root.path().join(".gitignore"), FileType::Fifo, 0o600.into(), 0).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join(".ignore")).unwrap();
        let top = File::open(root.path()).unwrap();
        assert!(IgnoreRules::load(top.as_fd(), Path::new(""), None).is_none());
    }
}
