//! The folders with foreign content (content from anyone but the owner), and the commands that read them.
//!
//! The output of a command does not show which files it comes from. Such a folder therefore appears empty to a command that does
//! not name it. The output of a command that names it counts as foreign content.

use std::path::{Path, PathBuf};

use daoyou_channels::Trust;

use crate::guard::Taint;
use crate::tools::ToolContext;
use crate::tools::files::FOREIGN_FOLDERS;

/// Returns the folders that appear empty to the command, relative to the workspace. A turn that has read foreign content sees all
/// of them.
pub(super) fn hidden_folders(workspace: &Path, command: &str, context: &ToolContext) -> Vec<PathBuf> {
    if !context.taint.is_empty() {
        return Vec::new();
    }
    // A folder that does not exist is left out, since hiding it would create it.
    let is_folder = |folder: &Path| workspace.join(folder).symlink_metadata().is_ok_and(|found| found.is_dir());
    let hidden = FOREIGN_FOLDERS.iter().filter(|folder| !is_named(folder, command)).map(PathBuf::from);
    hidden.filter(|folder| is_folder(folder)).collect()
}

/// Returns all folders with foreign content, relative to the workspace.
pub(super) fn folders() -> impl Iterator<Item = PathBuf> {
    FOREIGN_FOLDERS.iter().map(PathBuf::from)
}

/// Returns the sources of the command's output: the folders that the command names. A folder does not count if the command names
/// only files in it that came with the message of the owner or of a known sender. The command of a turn that has read foreign
/// content sees all folders and may contain such content itself, so its output has the sources of the turn as well.
pub(super) fn sources(command: &str, context: &ToolContext) -> Taint {
    let mut command = command.to_owned();
    if context.trust != Trust::Untrusted {
        context.files.iter().for_each(|own| command = command.replace(own, ""));
    }
    let named = FOREIGN_FOLDERS.iter().filter(|folder| is_named(folder, &command));
    named.map(|folder| format!("file:{folder}")).chain(context.taint.iter().cloned()).collect()
}

/// Returns true if the folder's name is a word of the text.
fn is_named(folder: &str, text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(folder).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + folder.len()..].chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::context;

    #[test]
    fn a_command_sees_the_folders_that_it_names() {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::create_dir(workspace.path().join("mail")).unwrap();
        let clean = ToolContext { files: ["mail/ab/own.txt".to_owned()].into(), ..context() };
        let tainted = ToolContext { taint: Taint::from(["web:x".to_owned()]).into(), ..clean.clone() };
        for (command, is_hidden, sources_of) in [
            ("ls", true, &[][..]),
            ("grep -r x .", true, &[]),
            ("sendmail x; cat email mails my_mail", true, &[]),
            ("cat mail/ab/x.txt", false, &["file:mail"]),
            ("cat ./mail/*", false, &["file:mail"]),
            ("cd mail && cat x", false, &["file:mail"]),
            ("cat \"mail/ab/own.txt\"", false, &[]),
            ("cat mail/ab/own.txt mail/ab/x.txt", false, &["file:mail"]),
            ("cp x scratch/", true, &["file:scratch"]),
        ] {
            let hidden = hidden_folders(workspace.path(), command, &clean);
            assert_eq!(hidden, if is_hidden { vec![PathBuf::from("mail")] } else { Vec::new() }, "{command}");
            assert_eq!(hidden_folders(workspace.path(), command, &tainted), Vec::<PathBuf>::new(), "{command}");
            let mut expected: Taint = sources_of.iter().map(|source| (*source).to_owned()).collect();
            assert_eq!(sources(command, &clean), expected, "{command}");
            expected.insert("web:x".to_owned());
            assert_eq!(sources(command, &tainted), expected, "{command}");
        }
    }
}
