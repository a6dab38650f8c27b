//! The tools `git_status`, `git_diff` and `git_log`, which only read.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::run::{GitAccess, GitRunner};
use super::status::WorkTreeStatus;
use crate::guard::quote_controls;
use crate::text::{one_line, shell_quote, truncate};
use crate::tools::{OutputLimit, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments};

/// The maximum number of files that a status shows.
const MAX_FILES: usize = 300;
/// The number of commits of a log: the default and the maximum.
const DEFAULT_COMMITS: u32 = 10;
const MAX_COMMITS: u32 = 200;
/// The maximum lengths of author and subject, in characters.
const AUTHOR_CHARS: usize = 60;
const SUBJECT_CHARS: usize = 200;
/// The size above which a diff begins with its statistics.
const SHORT_DIFF: OutputLimit = OutputLimit { chars: 4_000, lines: 100 };

#[derive(Deserialize, JsonSchema)]
struct GitStatusArgs {
    /// Default: the workspace.
    repo_path: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct GitDiffArgs {
    path: Option<String>,
    /// What the next commit holds.
    staged: Option<bool>,
    /// Default: the workspace.
    repo_path: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct GitLogArgs {
    path: Option<String>,
    #[schemars(range(min = 1, max = 200))]
    max_count: Option<u32>,
    /// Default: the workspace.
    repo_path: Option<String>,
}

/// The view of a repository that a tool shows.
#[derive(Clone, Copy)]
enum GitView {
    Status,
    Diff,
    Log,
}

/// A tool that shows a view of a repository.
pub struct GitReader {
    definition: ToolDefinition,
    git: GitRunner,
    view: GitView,
}

impl GitReader {
    /// Returns one tool for each view.
    pub fn all(git: &GitRunner) -> [Self; 3] {
        let status = "Show the branch and changed files of a git repository.";
        let diff = "Show changes that are not committed.";
        let tools = [
            (GitView::Status, ToolDefinition::reading::<GitStatusArgs>("git_status", status)),
            (GitView::Diff, ToolDefinition::reading::<GitDiffArgs>("git_diff", diff)),
            (GitView::Log, ToolDefinition::reading::<GitLogArgs>("git_log", "List commits, newest first.")),
        ];
        tools.map(|(view, definition)| {
            let definition = ToolDefinition { timeout: Some(git.timeout()), ..definition };
            Self { definition, git: git.clone(), view }
        })
    }

    async fn status(&self, args: GitStatusArgs, context: &ToolContext) -> Result<ToolResult, String> {
        let session = self.git.open(args.repo_path.as_deref(), None, context).await?;
        let script = "git status --porcelain=v2 --branch -z --ignore-submodules=all --untracked-files=normal";
        let output = session.run(script, GitAccess::Reads).await?;
        let mut status = WorkTreeStatus::parse(&output.bytes);
        let folders = session.hidden_folders();
        status.entries.retain(|entry| !folders.iter().any(|folder| entry.is_in(folder)));
        let mut lines = vec![status.branch_line()];
        if status.entries.is_empty() {
            lines.push("Nothing changed.".to_owned());
        }
        lines.extend(status.entries.iter().take(MAX_FILES).map(|entry| {
            let from = entry.origin.as_deref().map(|origin| format!(" (was {})", quote_controls(origin)));
            format!("{} {}{}", entry.code, quote_controls(&entry.path), from.unwrap_or_default())
        }));
        let hidden = status.entries.len().saturating_sub(MAX_FILES);
        if hidden > 0 || !output.is_whole {
            lines.push(format!("[{hidden} more files, or further ones, not shown]"));
        }
        let mut result = ToolResult::ok(lines.join("\n"));
        result.add_sources(session.sources([]));
        let shown = status.entries.iter().take(MAX_FILES);
        let shown = shown.flat_map(|entry| [Some(entry.path.as_str()), entry.origin.as_deref()].into_iter().flatten());
        result.add_sources(session.name_sources(shown));
        let (ahead, behind) = status.ahead_behind.unzip();
        result.metadata = object(json!({
            "branch": status.branch, "upstream": status.upstream, "ahead": ahead, "behind": behind,
            "clean": status.entries.is_empty(),
        }));
        Ok(result)
    }

    async fn diff(&self, args: GitDiffArgs, context: &ToolContext) -> Result<ToolResult, String> {
        let session = self.git.open(args.repo_path.as_deref(), args.path.as_deref(), context).await?;
        let path = args.path.map(|path| session.repository.relative(&session.jail, &path)).transpose()?;
        let staged = args.staged == Some(true);
        let limits = format!(
            "--no-ext-diff --no-textconv --ignore-submodules=all{} -- {}",
            if staged { " --cached" } else { "" },
            session.diff_pathspecs(path.as_deref())
        );
        let script = format!("GIT_LITERAL_PATHSPECS=0 git diff --no-color --stat=100 --patch {limits}");
        let diff = session.run(&script, GitAccess::Reads).await?.text;
        if diff.trim().is_empty() {
            let of = path.map(|path| format!(" in {}", quote_controls(&path))).unwrap_or_default();
            let what = if staged { "staged changes" } else { "changes that are not staged" };
            return Ok(ToolResult::ok(format!("No {what}{of}.")));
        }
        let files =
            diff.lines().filter(|line| line.starts_with("diff --git ") || line.starts_with("diff --cc ")).count();
        let is_short = diff.len() <= SHORT_DIFF.chars && diff.lines().count() <= SHORT_DIFF.lines;
        let patch = diff.find("\n\ndiff --").filter(|_| is_short).map_or(diff.as_str(), |at| &diff[at + 2..]);
        let mut result = ToolResult::ok(patch);
        result.metadata = object(json!({ "files": files }));
        let script = format!("GIT_LITERAL_PATHSPECS=0 git diff --name-only --no-renames -z {limits}");
        let listed = session.run(&script, GitAccess::Reads).await?;
        if !listed.is_whole {
            return Err("too many changed files; name a path".to_owned());
        }
        result.add_sources(session.sources(listed.text.split('\0')));
        Ok(result)
    }

    async fn log(&self, args: GitLogArgs, context: &ToolContext) -> Result<ToolResult, String> {
        let session = self.git.open(args.repo_path.as_deref(), args.path.as_deref(), context).await?;
        let path = args.path.map(|path| session.repository.relative(&session.jail, &path)).transpose()?;
        let count = args.max_count.unwrap_or(DEFAULT_COMMITS).min(MAX_COMMITS);
        let script = format!(
            "git rev-parse --quiet --verify HEAD > /dev/null || exit 0\n\
             git log --max-count={count} -z --no-color --no-show-signature --no-decorate --no-patch \
             --date=format:'%Y-%m-%d %H:%M' --format='%h%n%ad%n%an%n%s' -- {}",
            path.as_deref().map(shell_quote).unwrap_or_default()
        );
        let text = session.run(&script, GitAccess::Reads).await?.text;
        let commits: Vec<Value> = text.split('\0').filter_map(parse_commit).collect();
        if commits.is_empty() {
            let of = path.map(|path| format!(" of {}", quote_controls(&path))).unwrap_or_default();
            return Ok(ToolResult::ok(format!("No commits{of} yet.")));
        }
        let field = |commit: &Value, name: &str| commit[name].as_str().unwrap_or_default().to_owned();
        let lines = commits.iter().map(|commit| {
            let [hash, date, author, subject] = ["hash", "date", "author", "subject"].map(|name| field(commit, name));
            format!("{hash} {date} {author}: {subject}")
        });
        let mut result = ToolResult::ok(lines.collect::<Vec<_>>().join("\n"));
        result.add_sources(session.sources([]));
        result.metadata = object(json!({ "commits": commits }));
        Ok(result)
    }
}

#[async_trait]
impl Tool for GitReader {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn may_taint(&self, arguments: &Value, _: &ToolContext) -> bool {
        // A diff shows the log of summaries only if a path names its folder, or leads to it through a link.
        let [repository, path] = ["repo_path", "path"].map(|key| arguments[key].as_str().unwrap_or_default());
        let paths = [repository.to_owned(), path.to_owned(), format!("{repository}/{path}")];
        self.git.may_show_foreign() || paths.iter().any(|path| self.git.may_be_memory(path))
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        match self.view {
            GitView::Status => with_arguments(arguments, |args| self.status(args, context)).await,
            GitView::Diff => with_arguments(arguments, |args| self.diff(args, context)).await,
            GitView::Log => with_arguments(arguments, |args| self.log(args, context)).await,
        }
    }
}

fn parse_commit(record: &str) -> Option<Value> {
    let mut lines = record.splitn(4, '\n');
    let (hash, date, author) = (lines.next()?, lines.next()?, lines.next()?);
    let subject = truncate(&one_line(lines.next().unwrap_or_default()), SUBJECT_CHARS);
    Some(json!({"hash": hash, "date": date, "author": truncate(&one_line(author), AUTHOR_CHARS), "subject": subject}))
}

/// Returns the fields of a JSON object that are not null.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}
