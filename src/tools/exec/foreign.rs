//! The folders with foreign content (content from anyone but the owner), and the commands that read them.
//!
//! The output of a command does not show which files it comes from. Such a folder therefore appears empty to a command that does
//! not name it. The output of a command that names it counts as foreign content. A command that names only files in it that came
//! with the message sees only these files.

use std::path::PathBuf;

use daoyou_channels::Trust;

use crate::guard::Taint;
use crate::tools::ToolContext;
use crate::tools::files::FOREIGN_FOLDERS;
use crate::tools::private_folders::FolderVisibility;

/// Returns the folders that appear empty to the command, and the files in them that it sees, relative to the workspace. A turn that
/// has read foreign content sees all of them. A folder that does not exist is hidden as well, since others may create it while the
/// command runs.
pub(in crate::tools) fn visibility(command: &str, context: &ToolContext) -> FolderVisibility {
    if !context.taint.is_empty() {
        return FolderVisibility::default();
    }
    let rest = without_own_files(command, context);
    let hidden: Vec<_> =
        folders().filter(|folder| !folder.to_str().is_some_and(|name| is_named(name, &rest))).collect();
    let named = own_files(context).iter().filter(|own| command.contains(own.as_str())).map(PathBuf::from);
    let shown = named.filter(|own| hidden.iter().any(|folder| own.starts_with(folder))).collect();
    FolderVisibility { hidden, shown }
}

/// Returns all folders with foreign content, relative to the workspace.
pub(super) fn folders() -> impl Iterator<Item = PathBuf> {
    FOREIGN_FOLDERS.iter().map(PathBuf::from)
}

/// Returns the sources of the command's output: the folders that the command names. A folder does not count if the command names
/// only files in it that came with the message of the owner or of a known sender. The command of a turn that has read foreign
/// content sees all folders and may contain such content itself, so its output has the sources of the turn as well.
pub(super) fn sources(command: &str, context: &ToolContext) -> Taint {
    let rest = without_own_files(command, context);
    let named = FOREIGN_FOLDERS.iter().filter(|folder| is_named(folder, &rest));
    named.map(|folder| format!("file:{folder}")).chain(context.taint.iter().cloned()).collect()
}

/// Returns the files that came with the message of the owner or of a known sender.
fn own_files(context: &ToolContext) -> &[String] {
    if context.trust == Trust::Untrusted { &[] } else { &context.files }
}

/// Returns the command without the paths of the sender's own files. This text alone decides which folders the command sees and whether
/// its output counts as foreign content.
fn without_own_files(command: &str, context: &ToolContext) -> String {
    own_files(context).iter().fold(command.to_owned(), |rest, own| rest.replace(own, ""))
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
    fn a_command_sees_the_folders_and_own_files_that_it_names() {
        const OWN: &str = "mail/ab/own.txt";
        let clean = ToolContext { files: [OWN.to_owned(), "mail/ab/own".to_owned()].into(), ..context() };
        let tainted = ToolContext { taint: Taint::from(["web:x".to_owned()]).into(), ..clean.clone() };
        let untrusted = ToolContext { trust: Trust::Untrusted, ..clean.clone() };
        let all = &["mail", "scratch"][..];
        for (command, hidden, shown, sources_of) in [
            ("ls", all, &[][..], &[][..]),
            ("grep -r x .", all, &[], &[]),
            ("sendmail x; cat email mails my_mail", all, &[], &[]),
            ("cat mail/ab/x.txt", &["scratch"], &[], &["file:mail"]),
            ("cat ./mail/*", &["scratch"], &[], &["file:mail"]),
            ("cd mail && cat x", &["scratch"], &[], &["file:mail"]),
            ("cat \"mail/ab/own.txt\"", all, &[OWN, "mail/ab/own"], &[]),
            ("cat $(dirname mail/ab/own.txt)/../*/*", all, &[OWN, "mail/ab/own"], &[]),
            ("cat mail/ab/own/../x.txt", all, &["mail/ab/own"], &[]),
            ("cat mail/ab/own.txt mail/ab/x.txt", &["scratch"], &[], &["file:mail"]),
            ("cat mamail/ab/own.txtil/*", &["scratch"], &[], &["file:mail"]),
            ("cp mail/ab/own.txt scratch/", &["mail"], &[OWN, "mail/ab/own"], &["file:scratch"]),
        ] {
            let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
            let seen = FolderVisibility { hidden: paths(hidden), shown: paths(shown) };
            assert_eq!(visibility(command, &clean), seen, "{command}");
            assert_eq!(visibility(command, &tainted), FolderVisibility::default(), "{command}");
            let mut expected: Taint = sources_of.iter().map(|source| (*source).to_owned()).collect();
            assert_eq!(sources(command, &clean), expected, "{command}");
            expected.insert("web:x".to_owned());
            assert_eq!(sources(command, &tainted), expected, "{command}");
        }
        let command = "cat mail/ab/own.txt";
        assert_eq!(visibility(command, &untrusted).shown, Vec::<PathBuf>::new());
        assert_eq!(sources(command, &untrusted), ["file:mail".to_owned()].into());
    }
}
