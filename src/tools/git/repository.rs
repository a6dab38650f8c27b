//! Finds the repository of a call. The repository and all its parts must lie inside the workspace.

use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use crate::guard::{Jail, JailError};

/// The longest `.git` or `commondir` file, in bytes.
const LINK_BYTES: usize = 8_192;
/// The maximum number of folders below the workspace that are searched for repositories, and of repositories that an error names.
const MAX_SEARCHED: usize = 1_000;
const MAX_NAMED: usize = 5;

/// A repository of the workspace. All paths are real.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// The folder that contains `.git`.
    pub work_tree: PathBuf,
    /// The folder with HEAD and the index.
    pub git_dir: PathBuf,
    /// The folder with objects and branches. It differs from `git_dir` in a linked work tree.
    pub common_dir: PathBuf,
}

impl Repository {
    /// Finds the repository that contains `start`, a path relative to the workspace. Without `start`, finds the repository that
    /// contains the workspace, otherwise the one that contains `path`.
    ///
    /// # Errors
    /// There is no repository, or a part of it lies outside the workspace.
    pub(super) fn find(jail: &Jail, start: Option<&str>, path: Option<&str>) -> Result<Self, String> {
        let begin = jail.locate(start.unwrap_or(".")).map_err(|error| error.to_string())?;
        let mut found = Self::above(jail, &begin)?;
        if let (None, None, Some(path)) = (&found, start, path) {
            found = Self::above(jail, &locate_parent(jail, path)?)?;
        }
        found.ok_or_else(|| no_repository(jail, start.unwrap_or(".")))
    }

    /// Searches `folder` and the folders above it, up to the workspace.
    fn above(jail: &Jail, folder: &Path) -> Result<Option<Self>, String> {
        for work_tree in folder.ancestors().take_while(|above| above.starts_with(jail.root())) {
            if work_tree.join(".git").symlink_metadata().is_ok() {
                return Self::open(jail, work_tree).map(Some);
            }
        }
        Ok(None)
    }

    fn open(jail: &Jail, work_tree: &Path) -> Result<Self, String> {
        let dot_git = locate(jail, &work_tree.join(".git"))?;
        let git_dir = if dot_git.is_dir() {
            dot_git
        } else {
            let text = read_link_file(jail, &dot_git)?;
            let target = text.trim_end().strip_prefix("gitdir:").map(str::trim);
            let target = target.ok_or_else(|| format!("{}: not a link to a repository", shown(jail, &dot_git)))?;
            locate(jail, &work_tree.join(target))?
        };
        let common_dir = match git_dir.join("commondir") {
            link if link.symlink_metadata().is_ok() => {
                locate(jail, &git_dir.join(read_link_file(jail, &link)?.trim()))?
            }
            _ => git_dir.clone(),
        };
        // git must not read files outside the workspace through these entries, so all of them must lie inside as well.
        for part in ["objects", "refs", "logs", "packed-refs", "reftable", "shallow", "info", "config"] {
            let part = common_dir.join(part);
            if part.symlink_metadata().is_ok() {
                locate(jail, &part)?;
            }
        }
        for folder in [&git_dir, &common_dir] {
            check_entries(jail, work_tree, folder)?;
        }
        Ok(Self { work_tree: work_tree.to_owned(), git_dir, common_dir })
    }

    /// Converts a path of a call to a path relative to the work tree. The path is relative to the repository, or to the workspace
    /// if it exists only there.
    ///
    /// # Errors
    /// The path lies outside the repository.
    pub(super) fn relative(&self, jail: &Jail, path: &str) -> Result<String, String> {
        if let Err(error @ (JailError::Empty | JailError::Invalid(_))) = jail.locate(path) {
            return Err(error.to_string());
        }
        let prefix = self.work_tree.strip_prefix(jail.root()).unwrap_or(Path::new(""));
        let is_absolute = Path::new(path).is_absolute();
        let of_repository = prefix.join(path).display().to_string();
        let is_there = |path: &str| jail.root().join(path).symlink_metadata().is_ok();
        let of_workspace = is_absolute || !is_there(&of_repository) && Path::new(path).starts_with(prefix);
        let real = locate_parent(jail, if of_workspace { path } else { &of_repository })?;
        let relative = real.strip_prefix(&self.work_tree);
        let relative = relative.map_err(|_| format!("{path}: outside the repository {}", self.shown(jail)))?;
        if relative.components().any(|part| part.as_os_str() == ".git") {
            return Err(format!("{path}: belongs to git itself"));
        }
        let relative = relative.to_str().ok_or_else(|| format!("{path}: not UTF-8"))?;
        Ok(if relative.is_empty() { ".".to_owned() } else { relative.to_owned() })
    }

    /// Returns the work tree as shown to the model.
    pub(super) fn shown(&self, jail: &Jail) -> String {
        shown(jail, &self.work_tree)
    }
}

/// Checks that git can open all entries of `folder`, its own folder in `work_tree`: it would wait at a pipe.
fn check_entries(jail: &Jail, work_tree: &Path, folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", shown(jail, folder));
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // A link without a target is not an obstacle, and neither is a socket, such as that of git's file monitor.
        let may_wait = |kind: std::fs::FileType| kind.is_fifo() || kind.is_char_device() || kind.is_block_device();
        if std::fs::metadata(&path).is_ok_and(|found| may_wait(found.file_type())) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = crate::guard::quote_controls(&name);
            return Err(format!("{}: the {name} of its .git is not a file", shown(jail, work_tree)));
        }
    }
    Ok(())
}

/// Resolves the links of the parents of a path, which need not exist. A link at the end of the path is not resolved.
fn locate_parent(jail: &Jail, path: &str) -> Result<PathBuf, String> {
    match jail.locate(path) {
        Ok(_) | Err(JailError::Missing(_)) => {}
        Err(error) => return Err(error.to_string()),
    }
    let mut missing = Vec::new();
    let mut at = Path::new(path);
    // `..` is resolved together with the component before it.
    while let (Some(Component::Normal(name)), Some(parent)) = (at.components().next_back(), at.parent()) {
        missing.push(name);
        at = parent;
        let text = if at.as_os_str().is_empty() { "." } else { at.to_str().unwrap_or(".") };
        match jail.locate(text) {
            Ok(real) => return Ok(missing.iter().rev().fold(real, |path, part| path.join(part))),
            Err(JailError::Missing(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    jail.locate(path).map_err(|error| error.to_string())
}

/// Returns the real path of a part of a repository.
fn locate(jail: &Jail, path: &Path) -> Result<PathBuf, String> {
    let text = path.to_str().ok_or("a path of the repository is not UTF-8")?;
    jail.locate(text).map_err(|error| format!("the repository is not used: {error}"))
}

/// Reads a small file that contains a path.
fn read_link_file(jail: &Jail, path: &Path) -> Result<String, String> {
    let text = path.to_str().ok_or("a path of the repository is not UTF-8")?;
    let content = jail.read(text).map_err(|error| format!("the repository is not used: {error}"))?;
    if content.bytes.len() > LINK_BYTES {
        return Err(format!("{}: not a link to a repository", content.shown));
    }
    String::from_utf8(content.bytes).map_err(|_| format!("{}: not UTF-8", content.shown))
}

fn shown(jail: &Jail, path: &Path) -> String {
    let relative = path.strip_prefix(jail.root()).unwrap_or(path);
    if relative.as_os_str().is_empty() {
        ".".to_owned()
    } else {
        crate::guard::quote_controls(&relative.display().to_string())
    }
}

/// Returns the error for a call without a repository, which lists the repositories directly below the workspace.
fn no_repository(jail: &Jail, start: &str) -> String {
    let entries = std::fs::read_dir(jail.root()).into_iter().flatten().flatten().take(MAX_SEARCHED);
    let is_repository =
        |name: &String| jail.locate(name).is_ok_and(|folder| folder.join(".git").symlink_metadata().is_ok());
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(is_repository).take(MAX_NAMED).collect();
    names.sort();
    let start = crate::guard::quote_controls(start);
    if names.is_empty() {
        format!("{start}: not in a git repository; exec can make one with `git init`")
    } else {
        format!("{start}: not in a git repository; repo_path may be {}", names.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn jail(root: &Path) -> Jail {
        Jail::open(root, true, Vec::new(), 1_000_000).unwrap()
    }

    #[test]
    fn every_part_of_a_repository_is_in_the_workspace() {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir_all(outside.path().join("git/objects")).unwrap();
        let out = outside.path().join("git").display().to_string();
        for (name, text, expected) in [
            ("link", None, "outside the workspace"),
            ("file", Some(format!("gitdir: {out}\n")), "outside the workspace"),
            ("climbing", Some("gitdir: ../../../x\n".to_owned()), "outside the workspace"),
            ("missing", Some("gitdir: nowhere".to_owned()), "no such file"),
            ("other", Some("hello".to_owned()), "not a link to a repository"),
            ("long", Some(format!("gitdir: {}", "x".repeat(9_000))), "not a link to a repository"),
        ] {
            let workspace = tempfile::tempdir().unwrap();
            let repository = workspace.path().join(name);
            fs::create_dir(&repository).unwrap();
            match text {
                Some(text) => fs::write(repository.join(".git"), text).unwrap(),
                None => symlink(&out, repository.join(".git")).unwrap(),
            }
            let error = Repository::find(&jail(workspace.path()), Some(name), None).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
        for part in ["commondir", "objects", "packed-refs", "config"] {
            let workspace = tempfile::tempdir().unwrap();
            let git = workspace.path().join(".git");
            fs::create_dir(&git).unwrap();
            if part == "commondir" {
                fs::write(git.join(part), &out).unwrap();
            } else {
                symlink(&out, git.join(part)).unwrap();
            }
            let error = Repository::find(&jail(workspace.path()), None, None).unwrap_err();
            assert!(error.contains("outside the workspace"), "{part}: {error}");
        }
    }

    #[test]
    fn a_pipe_in_place_of_a_file_of_git_is_named() {
        for part in ["HEAD", "index", "packed-refs"] {
            let workspace = tempfile::tempdir().unwrap();
            let repository = workspace.path().join("evil");
            fs::create_dir_all(repository.join(".git/refs")).unwrap();
            fs::write(repository.join(".git/config"), "").unwrap();
            symlink("nowhere", repository.join(".git/link")).unwrap();
            Repository::find(&jail(workspace.path()), Some("evil"), None).unwrap();
            let pipe = repository.join(".git").join(part);
            rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            let error = Repository::find(&jail(workspace.path()), Some("evil"), None).unwrap_err();
            assert_eq!(error, format!("evil: the {part} of its .git is not a file"));
        }
    }

    #[test]
    fn a_linked_work_tree_and_paths_are_found() {
        let workspace = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(workspace.path()).unwrap();
        for folder in ["main/.git/worktrees/two", "two/src", "main/sub"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("two/.git"), "gitdir: ../main/.git/worktrees/two\n").unwrap();
        fs::write(root.join("main/.git/worktrees/two/commondir"), "../..\n").unwrap();
        symlink("gone", root.join("two/src/link")).unwrap();
        let jail = jail(&root);
        let found = Repository::find(&jail, None, Some("two/src/a")).unwrap();
        assert_eq!((&found.common_dir, &found.work_tree), (&root.join("main/.git"), &root.join("two")));
        assert_eq!(Repository::find(&jail, Some("two/src"), None).unwrap(), found);
        let absolute = root.join("two/src").display().to_string();
        for (path, expected) in [
            ("src", Ok("src")),
            ("two/src/gone.txt", Ok("src/gone.txt")),
            ("src/../x", Ok("x")),
            (".", Ok(".")),
            (absolute.as_str(), Ok("src")),
            (":(top)*", Ok(":(top)*")),
            ("../main/sub", Err("outside the repository two")),
            ("../../etc", Err("outside the workspace")),
            ("main/sub", Ok("main/sub")),
            (".git/config", Err("is not a folder")),
        ] {
            let got = found.relative(&jail, path);
            match expected {
                Ok(expected) => assert_eq!(got.as_deref(), Ok(expected), "{path}"),
                Err(words) => assert!(got.as_ref().is_err_and(|error| error.contains(words)), "{path}: {got:?}"),
            }
        }
        let error = Repository::find(&jail, None, None).unwrap_err();
        assert!(error.contains("repo_path may be main or two"), "{error}");
    }
}
