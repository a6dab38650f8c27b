//! The tool `git_commit`.

use std::collections::BTreeSet;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::read::object;
use super::run::{GitAccess, GitRunner, GitSession};
use super::status::{StatusEntry, WorkTreeStatus, is_below};
use crate::guard::quote_controls;
use crate::text::{one_line, plural, shell_quote};
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments};

/// The longest message, in bytes.
const MESSAGE_BYTES: usize = 20_000;
/// The maximum number of files that a result or an error names.
const MAX_NAMED: usize = 50;

#[derive(Deserialize, JsonSchema)]
struct GitCommitArgs {
    message: String,
    /// Default: what is staged, else every changed file.
    files: Option<Vec<String>>,
    /// New files, too.
    all_files: Option<bool>,
    /// Default: the workspace.
    repo_path: Option<String>,
}

/// The tool `git_commit`.
pub struct GitCommit {
    definition: ToolDefinition,
    git: GitRunner,
}

/// What a call asks for. Paths are relative to the work tree.
#[derive(Default)]
struct CommitRequest {
    files: Option<Vec<String>>,
    all: bool,
    /// The folders with foreign content, and the folder of the memory. A file in them is committed only if `files` names it, or a
    /// folder in them.
    by_name: Vec<String>,
}

/// The files of a commit, as git's paths relative to the work tree.
#[derive(Debug, Default, PartialEq, Eq)]
struct CommitFiles {
    all: Vec<Vec<u8>>,
    /// The files that differ from the index.
    unstaged: Vec<Vec<u8>>,
}

impl GitCommit {
    pub fn new(git: GitRunner) -> Self {
        let (name, description) = ("git_commit", "Commit changes in a git repository.");
        let definition = ToolDefinition {
            timeout: Some(git.timeout()),
            // Text from a file or page must not determine what is committed.
            literal_arguments: &["files", "all_files", "repo_path"],
            ..ToolDefinition::changing::<GitCommitArgs>(name, description, ReplayPolicy::Once)
        };
        Self { definition, git }
    }

    async fn run(&self, args: GitCommitArgs, context: &ToolContext) -> Result<ToolResult, String> {
        let first = args.files.as_ref().and_then(|files| files.first()).map(String::as_str);
        let session = self.git.open(args.repo_path.as_deref(), first, context).await?;
        let files = args.files.filter(|files| !files.is_empty()).map(|files| {
            files.iter().map(|file| session.repository.relative(&session.jail, file)).collect::<Result<Vec<_>, _>>()
        });
        let all = args.all_files == Some(true);
        let request = CommitRequest { files: files.transpose()?, all, by_name: session.folders_by_name() };
        let status = read_status(&session, &request).await?;
        let files = files_of(&status, &request)?;
        let mut left_out = None;
        if let Some(files) = &files {
            left_out = request.left_out_note(&status);
            if files.all.is_empty() {
                return Err(left_out.map_or_else(
                    || "nothing to commit: the new folders are git repositories of their own".to_owned(),
                    |note| format!("nothing to commit: {note}"),
                ));
            }
            refuse_filtered(&session, &files.all).await?;
        }
        session.run(&commit_script(files.as_ref(), &args.message), GitAccess::Writes).await?;
        let mut result = describe_commit(&session, status.branch.as_deref()).await?;
        if let Some(note) = left_out {
            result.content += &format!("\n[{note}]");
        }
        Ok(result)
    }
}

impl CommitRequest {
    /// Returns the folder of [`Self::by_name`] because of which the commit leaves out an entry.
    fn leaves_out(&self, entry: &StatusEntry) -> Option<&str> {
        let folder = self.by_name.iter().find(|folder| is_below(&entry.path, folder))?;
        let names = |file: &String| is_below(file, folder) && is_below(&entry.path, file);
        let is_named = self.files.as_ref().is_some_and(|files| files.iter().any(names));
        (!is_named).then_some(folder)
    }

    /// Returns the note about the folders that the commit leaves out.
    fn left_out_note(&self, status: &WorkTreeStatus) -> Option<String> {
        // Without `all` and `files`, no new file is committed.
        let takes_new = self.all || self.files.is_some();
        let changed = status.entries.iter().filter(|entry| takes_new || !entry.is_untracked());
        let folders: BTreeSet<_> = changed.filter_map(|entry| self.leaves_out(entry)).collect();
        let folders: Vec<_> = folders.into_iter().map(|folder| format!("{folder}/")).collect();
        (!folders.is_empty()).then(|| {
            let folders = folders.join(", ");
            format!(
                "left out, because it is memory or others may have written it: {folders}; to commit it, name it in files"
            )
        })
    }
}

async fn read_status(session: &GitSession<'_>, request: &CommitRequest) -> Result<WorkTreeStatus, String> {
    let CommitRequest { files, all, .. } = request;
    // Without `all`, git lists a folder of untracked files as one entry. Every file is needed if `files` are searched for, or if
    // `all` commits the new ones. Otherwise the folder is enough for the hint in an error.
    let untracked = if *all || files.is_some() { "all" } else { "normal" };
    let paths: Vec<String> = files.iter().flatten().map(|path| shell_quote(path)).collect();
    let script = format!(
        "git --no-optional-locks status --porcelain=v2 --branch -z --no-renames --ignore-submodules=all \
         --untracked-files={untracked} -- {}",
        paths.join(" ")
    );
    let output = session.run(&script, GitAccess::Reads).await?;
    if !output.is_whole {
        return Err("too many changed files for one commit: name some in files".to_owned());
    }
    Ok(WorkTreeStatus::parse(&output.bytes))
}

/// Returns the files of the commit, which it takes alone, whatever is staged; `None` for the staged changes.
///
/// # Errors
/// There is nothing to commit, or what is there must not be committed.
fn files_of(status: &WorkTreeStatus, request: &CommitRequest) -> Result<Option<CommitFiles>, String> {
    let entries = &status.entries;
    let taken = || entries.iter().filter(|entry| request.leaves_out(entry).is_none());
    if let Some(files) = &request.files {
        for file in files {
            if !entries.iter().any(|entry| is_below(&entry.path, file)) {
                return Err(format!(
                    "{}: nothing to commit: it is unchanged, ignored, or does not exist",
                    quote_controls(file)
                ));
            }
        }
        return Ok(Some(CommitFiles::of(taken())));
    }
    if let Some(conflict) = entries.iter().find(|entry| entry.is_conflict()) {
        return Err(format!("{}: has a conflict; resolve it and stage it first", quote_controls(&conflict.path)));
    }
    if request.all && !entries.is_empty() {
        return Ok(Some(CommitFiles::of(taken())));
    }
    if let Some(entry) = entries.iter().find(|entry| entry.is_staged() && request.leaves_out(entry).is_some()) {
        return Err(format!(
            "{}: is staged, and is memory or others may have written it; name it in files, or unstage it",
            quote_controls(&entry.path)
        ));
    }
    if entries.iter().any(StatusEntry::is_staged) {
        return Ok(None);
    }
    let changed = CommitFiles::of(taken().filter(|entry| !entry.is_untracked()));
    if !changed.all.is_empty() {
        return Ok(Some(changed));
    }
    let new: Vec<_> = taken().take(MAX_NAMED).map(|entry| quote_controls(&entry.path)).collect();
    Err(match (new.is_empty(), request.left_out_note(status)) {
        (true, None) => "nothing to commit: no file is changed".to_owned(),
        (true, Some(note)) => format!("nothing to commit: {note}"),
        (false, _) => format!("nothing to commit but new files; name them in files: {}", new.join(", ")),
    })
}

impl CommitFiles {
    /// Returns the files of these entries. A path that ends with `/` is a nested repository.
    fn of<'a>(entries: impl Iterator<Item = &'a StatusEntry>) -> Self {
        let mut files = Self::default();
        for entry in entries.filter(|entry| !entry.path.ends_with('/')) {
            files.all.push(entry.raw_path.clone());
            if !entry.code.ends_with(' ') {
                files.unstaged.push(entry.raw_path.clone());
            }
        }
        files
    }
}

/// Refuses files that a filter would change, such as those of Git LFS. Filters do not run here, so the commit would contain the
/// wrong bytes.
async fn refuse_filtered(session: &GitSession<'_>, paths: &[Vec<u8>]) -> Result<(), String> {
    let script = format!("{} | git check-attr -z --stdin filter", print_paths(paths));
    let output = session.run(&script, GitAccess::Reads).await?;
    let words: Vec<&str> = output.text.split('\0').collect();
    let filtered = words.chunks_exact(3).find(|words| !matches!(words[2], "unspecified" | "unset" | "set"));
    match filtered {
        Some(words) => Err(format!(
            "{}: its .gitattributes ask for the filter {}, which does not run here; commit it with git in exec",
            quote_controls(words[0]),
            quote_controls(words[2])
        )),
        None => Ok(()),
    }
}

/// Returns a command that prints paths, each followed by a NUL. A command is text, so bytes that are not UTF-8 are
/// written as the octal numbers that `%b` reads (POSIX, printf).
fn print_paths(paths: &[Vec<u8>]) -> String {
    let quoted = paths.iter().map(|path| {
        let parts = path.utf8_chunks().map(|chunk| {
            let bytes: String = chunk.invalid().iter().map(|byte| format!("\\0{byte:03o}")).collect();
            chunk.valid().replace('\\', "\\\\") + &bytes
        });
        shell_quote(&parts.collect::<String>())
    });
    format!("printf '%b\\0' {}", quoted.collect::<Vec<_>>().join(" "))
}

/// Returns the script that commits these files, or the staged changes.
fn commit_script(files: Option<&CommitFiles>, message: &str) -> String {
    let commit = format!(
        "git commit --quiet --no-verify --no-gpg-sign --no-post-rewrite --no-status --cleanup=whitespace --message={}",
        shell_quote(message)
    );
    let Some(CommitFiles { all, unstaged }) = files else { return commit };
    let from = "--pathspec-from-file=- --pathspec-file-nul";
    let add = match unstaged.as_slice() {
        [] => String::new(),
        paths => format!("{} | git add --all {from} && ", print_paths(paths)),
    };
    format!("{add}{} | {commit} --only {from}", print_paths(all))
}

async fn describe_commit(session: &GitSession<'_>, branch: Option<&str>) -> Result<ToolResult, String> {
    let script = "git rev-parse HEAD && git log -1 --no-show-signature --no-color --no-patch --format='%h %s' && \
                  git diff-tree --root --no-commit-id -r -z --no-renames --name-status --no-ext-diff HEAD";
    let output = session.run(script, GitAccess::Reads).await?;
    let mut lines = output.text.splitn(3, '\n');
    let [hash, head, changed] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let words: Vec<&str> = changed.split('\0').collect();
    let changed: Vec<(&str, &str)> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let on = branch.map(|branch| format!(" on {branch}")).unwrap_or_default();
    let mut text = format!("Committed{on}: {}\n{} changed", one_line(head), plural(changed.len(), "file"));
    for (code, path) in changed.iter().take(MAX_NAMED) {
        text += &format!("\n{code} {}", quote_controls(path));
    }
    if changed.len() > MAX_NAMED {
        text += &format!("\n[{} more files, not shown]", changed.len() - MAX_NAMED);
    }
    let mut result = ToolResult::ok(text);
    result.add_sources(session.name_sources(changed.iter().map(|(_, path)| *path)));
    let paths: Vec<&str> = changed.iter().take(MAX_NAMED).map(|(_, path)| *path).collect();
    result.metadata = object(json!({ "hash": hash, "files_changed": changed.len(), "files": paths }));
    Ok(result)
}

#[async_trait]
impl Tool for GitCommit {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let message = arguments.get("message").and_then(Value::as_str).unwrap_or_default();
        if message.trim().is_empty() {
            return Err("message is empty".to_owned());
        }
        if message.len() > MESSAGE_BYTES || message.contains('\0') {
            return Err(format!("a message has at most {MESSAGE_BYTES} bytes and no NUL"));
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        with_arguments(arguments, |args| self.run(args, context)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(entries: &[(&str, &str)]) -> WorkTreeStatus {
        let entry = |(code, path): &(&str, &str)| StatusEntry::new((*code).to_owned(), path.as_bytes(), None);
        WorkTreeStatus { entries: entries.iter().map(entry).collect(), ..WorkTreeStatus::default() }
    }

    #[test]
    fn the_content_of_a_commit_is_what_was_asked_for() {
        let paths = |paths: &[&str]| paths.iter().map(|path| path.as_bytes().to_owned()).collect::<Vec<_>>();
        let files = |names: &[&str]| Some(CommitFiles { all: paths(names), unstaged: paths(names) });
        let (tracked, new): (&[_], &[_]) = (&[(" M", "b"), (" D", "a"), ("??", "c")], &[("??", "c"), ("??", "sub/")]);
        for (entries, asked, all, expected) in [
            (tracked, None, false, Ok(files(&["b", "a"]))),
            (tracked, None, true, Ok(files(&["b", "a", "c"]))),
            (&[("M ", "a"), (" M", "b")][..], None, false, Ok(None)),
            (&[("UU", "a"), ("M ", "b")], None, false, Err("a: has a conflict")),
            (&[], None, false, Err("no file is changed")),
            (new, None, false, Err("name them in files: c, sub/")),
            (new, None, true, Ok(files(&["c"]))),
            (&[(" M", "src/a")], Some("src"), false, Ok(files(&["src/a"]))),
            (&[(" M", "src2/a")], Some("src"), false, Err("src: nothing to commit")),
            (&[(" M", "a")], Some("."), false, Ok(files(&["a"]))),
            (&[("D ", "a")], Some("a"), false, Ok(Some(CommitFiles { all: paths(&["a"]), unstaged: Vec::new() }))),
        ] {
            let asked = asked.map(|path: &str| vec![path.to_owned()]);
            let got = files_of(&status(entries), &CommitRequest { files: asked, all, by_name: Vec::new() });
            match expected {
                Ok(expected) => assert_eq!(got, Ok(expected)),
                Err(words) => assert!(got.as_ref().is_err_and(|error| error.contains(words)), "{words}: {got:?}"),
            }
        }
    }

    #[test]
    fn what_others_may_have_written_is_committed_only_by_name() {
        let entries = &[("??", "mail/a"), (" M", "mail/b"), ("??", "scratch/c"), (" M", "own"), (" M", "mails")];
        let both = "others may have written it: mail/, scratch/;";
        for (asked, all, expected, note) in [
            (None, true, &["own", "mails"][..], both),
            (None, false, &["own", "mails"], "others may have written it: mail/;"),
            (Some("."), false, &["own", "mails"], both),
            (Some("mail"), false, &["mail/a", "mail/b"], ""),
            (Some("mail/b"), false, &["mail/b"], ""),
        ] {
            let files = asked.map(|path: &str| vec![path.to_owned()]);
            let request = CommitRequest { files, all, by_name: vec!["mail".to_owned(), "scratch".to_owned()] };
            // git lists only what is asked for.
            let mut entries = status(entries);
            entries.entries.retain(|entry| asked.is_none_or(|file| is_below(&entry.path, file)));
            let Ok(Some(files)) = files_of(&entries, &request) else { panic!("{asked:?}") };
            let expected: Vec<_> = expected.iter().map(|path| path.as_bytes().to_owned()).collect();
            assert_eq!(files.all, expected, "{asked:?} {all}");
            let got = request.left_out_note(&entries).unwrap_or_default();
            assert!(got.contains(note), "{asked:?} {all}: {got}");
        }
        let staged = status(&[("M ", "mail/b"), ("M ", "own")]);
        let request = CommitRequest { by_name: vec!["mail".to_owned()], ..CommitRequest::default() };
        assert!(files_of(&staged, &request).is_err_and(|error| error.starts_with("mail/b: is staged")));
        let only = status(&[(" M", "mail/b")]);
        let request = CommitRequest { by_name: vec!["mail".to_owned()], ..CommitRequest::default() };
        assert!(files_of(&only, &request).is_err_and(|error| error.contains("written it: mail/; to commit it")));
    }
}
