//! The folders with foreign content (content from anyone but the owner), and the commands that read them.
//!
//! The output of a command does not show which files it comes from. Such a folder therefore appears empty to a command that does
//! not name it. The output of a command that names it counts as foreign content. A command that names only files in it that came
//! with the message sees only these files.
//!
//! The folder of the conversation in `.daoyou/` follows the same rule, since it may hold long outputs with foreign content, also some
//! that other turns store while the command runs. A command that names only files without that mark sees only these files.
//!
//! `memory/` appears empty as well, also to a turn that has read foreign content: its log holds summaries of conversations with such
//! content, and the names in a command show whether later writers in the conversation may see the output.

use std::path::{Path, PathBuf};

use daoyou_channels::Trust;

use crate::guard::Taint;
use crate::tools::ToolContext;
use crate::tools::files::FOREIGN_FOLDERS;
use crate::tools::private_folders::{
    CONVERSATIONS, ConversationFolder, FolderVisibility, GATEWAY_FOLDER, HISTORY, MEMORY_FOLDER,
};
use crate::tools::spill::is_foreign;

/// Returns the folders that appear empty to the command besides those of [`PrivateFolders`], and what it sees of all of them, relative
/// to the workspace. A turn that has read foreign content sees `mail/` and `scratch/` in any case. A folder that does not exist is
/// hidden as well, since others may create it while the command runs.
///
/// [`PrivateFolders`]: crate::tools::private_folders::PrivateFolders
pub(in crate::tools) fn visibility(command: &str, context: &ToolContext) -> FolderVisibility {
    let memory = (!sees_memory(command, context)).then(|| PathBuf::from(MEMORY_FOLDER));
    let rest = without_own_files(command, context);
    let is_hidden = |name: &str| context.taint.is_empty() && !is_named(name, &rest);
    let unnamed = folders().filter(|folder| folder.to_str().is_some_and(is_hidden));
    let hidden: Vec<_> = unnamed.chain(memory).collect();
    let named = own_files(context).iter().filter(|own| command.contains(own.as_str())).map(PathBuf::from);
    let mut shown: Vec<_> = named.filter(|own| hidden.iter().any(|folder| own.starts_with(folder))).collect();
    if is_named(GATEWAY_FOLDER, &rest) {
        shown.extend(ConversationFolder::of(context).visible());
    } else {
        shown.extend(own_outputs(command, context).into_iter().map(PathBuf::from));
    }
    FolderVisibility { hidden, shown }
}

/// Returns all folders with foreign content, relative to the workspace.
pub(super) fn folders() -> impl Iterator<Item = PathBuf> {
    FOREIGN_FOLDERS.iter().map(PathBuf::from)
}

/// Returns the sources of the output of a command: the folders that the command names, and the log of summaries if it names `memory/`
/// or the log. A folder does not count if the command names only files in it that came with the message of the owner or of a known
/// sender, or outputs of the conversation that are not marked as foreign. The command of a turn that has read foreign content may
/// contain such content itself, so its output has the sources of the turn as well.
pub(super) fn sources(command: &str, context: &ToolContext) -> Taint {
    let rest = without_own_files(command, context);
    let named = FOREIGN_FOLDERS.iter().filter(|folder| is_named(folder, &rest));
    let history = sees_memory(command, context).then_some(HISTORY);
    let outputs = is_named(GATEWAY_FOLDER, &rest).then_some(CONVERSATIONS);
    let sources = named.copied().chain(history).chain(outputs).map(|source| format!("file:{source}"));
    sources.chain(context.taint.iter().cloned()).collect()
}

/// Returns the files that came with the message of the owner or of a known sender.
fn own_files(context: &ToolContext) -> &[String] {
    if context.trust == Trust::Untrusted { &[] } else { &context.files }
}

/// Returns the stored outputs and images of the conversation that the command names by their whole paths, without those that are
/// marked as foreign.
fn own_outputs<'c>(command: &'c str, context: &ToolContext) -> Vec<&'c str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let mut found = Vec::new();
    for folder in ConversationFolder::of(context).visible() {
        let folder = format!("{}/", folder.display());
        for (at, _) in command.match_indices(&folder) {
            let path = command[at..].split(|c| !is_plain(c)).next().unwrap_or_default();
            // A pattern such as `…/spill/a*` has no extension.
            let is_file = Path::new(path).extension().is_some() && !path.contains("..");
            if is_file && !is_foreign(Path::new(path)) {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the command without the paths of the sender's own files and of the conversation's own outputs. This text alone decides
/// which folders the command sees and whether its output counts as foreign content.
fn without_own_files(command: &str, context: &ToolContext) -> String {
    let files = own_files(context).iter().map(String::as_str);
    files.chain(own_outputs(command, context)).fold(command.to_owned(), |rest, own| rest.replace(own, ""))
}

/// Returns true if the command sees `memory/`: it is the owner's, and names it.
fn sees_memory(command: &str, context: &ToolContext) -> bool {
    context.trust == Trust::Owner && names_memory(command)
}

/// Returns true if the command names the log of summaries, or `memory/` in the workspace. The word "memory" alone does not count,
/// since it is common in commands; neither does a folder of this name in another one, such as `src/memory/`, since that is visible.
fn names_memory(command: &str) -> bool {
    let is_in_workspace = |at: usize| {
        let before = &command[..at];
        let path =
            before.rsplit(|c: char| c.is_whitespace() || "\"'`=:<>|&;(){},".contains(c)).next().unwrap_or_default();
        path.is_empty() || path.ends_with('/') && path.starts_with(['.', '/', '~', '$', '*', '?', '['])
    };
    let log = HISTORY.rsplit('/').next().unwrap_or(HISTORY);
    is_named(log, command) || command.match_indices("memory/").any(|(at, _)| is_in_workspace(at))
}

/// Returns true if the name is a word of the text.
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
        let all = &["mail", "scratch", "memory"][..];
        let no_mail = &["scratch", "memory"][..];
        for (command, hidden, shown, sources_of) in [
            ("ls", all, &[][..], &[][..]),
            ("grep -r x .", all, &[], &[]),
            ("sendmail x; cat email mails my_mail", all, &[], &[]),
            ("cat mail/ab/x.txt", no_mail, &[], &["file:mail"]),
            ("cat ./mail/*", no_mail, &[], &["file:mail"]),
            ("cd mail && cat x", no_mail, &[], &["file:mail"]),
            ("cat \"mail/ab/own.txt\"", all, &[OWN, "mail/ab/own"], &[]),
            ("cat $(dirname mail/ab/own.txt)/../*/*", all, &[OWN, "mail/ab/own"], &[]),
            ("cat mail/ab/own/../x.txt", all, &["mail/ab/own"], &[]),
            ("cat mail/ab/own.txt mail/ab/x.txt", no_mail, &[], &["file:mail"]),
            ("cat mamail/ab/own.txtil/*", no_mail, &[], &["file:mail"]),
            ("cp mail/ab/own.txt scratch/", &["mail", "memory"], &[OWN, "mail/ab/own"], &["file:scratch"]),
            ("free memory; ls memory src/memory/mod.rs my_memory/x in-memory/x CHANGES-HISTORY.md", all, &[], &[]),
            ("cat memory/*", &["mail", "scratch"], &[], &["file:memory/HISTORY.md"]),
            ("cat \"$PWD\"/memory/MEMORY.md", &["mail", "scratch"], &[], &["file:memory/HISTORY.md"]),
            ("cat<./memory/MEMORY.md", &["mail", "scratch"], &[], &["file:memory/HISTORY.md"]),
            ("cd memory && cat HISTORY.md", &["mail", "scratch"], &[], &["file:memory/HISTORY.md"]),
        ] {
            let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
            let seen = FolderVisibility { hidden: paths(hidden), shown: paths(shown) };
            assert_eq!(visibility(command, &clean), seen, "{command}");
            let hides_memory = hidden.contains(&"memory");
            let seen =
                FolderVisibility { hidden: paths(if hides_memory { &["memory"] } else { &[] }), shown: Vec::new() };
            assert_eq!(visibility(command, &tainted), seen, "{command}");
            let mut expected: Taint = sources_of.iter().map(|source| (*source).to_owned()).collect();
            assert_eq!(sources(command, &clean), expected, "{command}");
            expected.insert("web:x".to_owned());
            assert_eq!(sources(command, &tainted), expected, "{command}");
        }
        let known = ToolContext { trust: Trust::Known, ..clean.clone() };
        let hidden = sources("cat memory/MEMORY.md", &known);
        assert_eq!(hidden, Taint::new(), "the folder is empty for this sender");
        let command = "cat mail/ab/own.txt";
        assert_eq!(visibility(command, &untrusted).shown, Vec::<PathBuf>::new());
        assert_eq!(sources(command, &untrusted), ["file:mail".to_owned()].into());
    }

    #[test]
    fn a_command_sees_the_stored_outputs_of_its_conversation_by_name_only() {
        let (clean, known) = (context(), ToolContext { trust: Trust::Known, ..context() });
        let tainted = ToolContext { taint: Taint::from(["web:x".to_owned()]).into(), ..context() };
        let [own, marked] = ["a.txt", "b-others.txt"].map(|name| ConversationFolder::of(&clean).file("spill", name));
        let of_known = ConversationFolder::of(&known).file("spill", "c.png");
        let folder = own.strip_suffix("/spill/a.txt").unwrap();
        let whole = [folder, folder.strip_suffix("-owner").unwrap()];
        let absolute = format!("head -n 3 '/home/ws/{own}' {of_known}>x");
        let climbing = format!("cat {folder}/spill/../../*/*/a.txt");
        let rows = [
            ("grep -rh x .; cat .d*/*/*/* .daoyou-own/x src/x.daoyou", &[][..], false),
            (&format!("cat {own}"), &[own.as_str()], false),
            (&absolute, &[&own, &of_known], false),
            (&format!("cat $(dirname {own})/*"), &[&own], false),
            (&format!("cat {marked}"), &whole, true),
            (&format!("cat {own} {marked}"), &whole, true),
            (&format!("cat {folder}/spill/a*"), &whole, true),
            (&climbing, &whole, true),
            ("ls .daoyou", &whole, true),
        ];
        for (command, shown, is_foreign) in rows {
            let shown: Vec<_> = shown.iter().map(PathBuf::from).collect();
            for context in [&clean, &tainted] {
                assert_eq!(visibility(command, context).shown, shown, "{command}");
            }
            let expected = Taint::from_iter(is_foreign.then(|| "file:.daoyou/conversations".to_owned()));
            assert_eq!(sources(command, &clean), expected, "{command}");
        }
        assert!(visibility(&format!("cat {own}"), &known).shown.iter().all(|shown| shown != Path::new(&own)));
    }
}
