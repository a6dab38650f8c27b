//! The tool `grep`.

use std::io::Read;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ignore::overrides::{Override, OverrideBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::file_tool::{CACHED, ReadContext, files_word, search_limit, skip_note};
use super::read::{START_BYTES, text_encoding};
use super::scope::{ReadScope, run_on_jail};
use super::search::{MAX_MATCHES, Search};
use crate::guard::{EntryKind, Jail, JailError, KnownSecrets, Walk, WalkSelection, WalkStop};
use crate::postprocess::FileLines;
use crate::text::one_line;
use crate::tools::{OutputLimit, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult};

/// The number of matches that are shown if the call sets none.
const DEFAULT_MATCHES: usize = 100;
/// The longest accepted glob, in bytes.
const MAX_GLOB: usize = 1_000;
/// How much later a search with a slow pattern may end, since a search stops only between two buffers.
const GRACE: Duration = Duration::from_secs(2);
/// The maximum number of searches that run at the same time, each with several threads.
const AT_ONCE: usize = 4;

#[derive(Deserialize, JsonSchema)]
struct GrepArgs {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    ignore_case: Option<bool>,
    max_results: Option<NonZeroU32>,
}

/// The tool `grep`, which searches the lines of files.
pub struct Grep {
    definition: ToolDefinition,
    scope: ReadScope,
    limit: Duration,
    places: Arc<Semaphore>,
    /// The secrets that are removed from lines before the lines are cut.
    secrets: KnownSecrets,
}

impl Grep {
    /// Creates the tool. `timeout` is the time limit of a call. `secrets` are removed from lines before the lines are cut, since
    /// a cut could leave an unrecognizable part of a secret.
    pub fn new(scope: ReadScope, timeout: Duration, secrets: KnownSecrets) -> Self {
        let definition = ToolDefinition {
            output_limit: OutputLimit { chars: 16_000, lines: MAX_MATCHES + 10 },
            cache_ttl: Some(CACHED),
            ..ToolDefinition::reading::<GrepArgs>("grep", "Search files by regex.")
        };
        let limit = search_limit(timeout);
        Self { definition, scope, limit, places: Arc::new(Semaphore::new(AT_ONCE)), secrets }
    }
}

#[async_trait]
impl Tool for Grep {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns true if an untrusted sender may search the files: the sender's own files, and public ones.
    fn allows_untrusted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.allows_untrusted(arguments, context)
    }

    fn file_lines(&self, context: &ToolContext) -> Option<Box<dyn FileLines>> {
        Some(Box::new(JailLines { jail: self.scope.for_turn(context) }))
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.may_hold_foreign(arguments, context) || self.scope.may_hold_history(arguments)
    }

    async fn cache_stamp(&self, arguments: &Value, context: &ToolContext) -> Option<String> {
        let args = GrepArgs::deserialize(arguments).ok()?;
        let globs = args.glob.as_deref().map(overrides).transpose().ok()?;
        let path = args.path.unwrap_or_else(|| ".".to_owned());
        self.scope.tree_stamp(path, move |path, kind| selection(globs.as_ref(), path, kind), context).await
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let jail = self.scope.for_turn(context);
        let (limit, secrets, turn) = (self.limit, self.secrets.clone(), context.clone());
        let search = async {
            // The work keeps its permit until it ends, even if the caller no longer waits.
            let place = Arc::clone(&self.places).acquire_owned().await;
            run_on_jail(jail, arguments, move |jail, args: GrepArgs| {
                let _place = place;
                // The time limit does not include the wait for a thread.
                grep(jail, &args, &secrets, &ReadContext::new(limit, &turn))
            })
            .await
        };
        tokio::time::timeout(self.limit + GRACE, search).await.unwrap_or_else(|_| {
            let seconds = (self.limit + GRACE).as_secs();
            ToolResult::failed(format!(
                "stopped after {seconds} s: the pattern is too slow for lines this long, or other searches still run; use a \
                 simpler pattern, or name a folder"
            ))
            .into()
        })
    }
}

/// A reader of lines from the files that a turn may read.
struct JailLines {
    jail: Arc<Jail>,
}

#[async_trait]
impl FileLines for JailLines {
    async fn lines(&self, path: &str, first: usize, last: usize) -> Option<Vec<String>> {
        let (jail, path) = (Arc::clone(&self.jail), path.to_owned());
        let read = move || {
            let opened = jail.open_file(&path).ok().filter(|opened| opened.size <= jail.max_bytes())?;
            let mut bytes = Vec::new();
            opened.file.take(jail.max_bytes()).read_to_end(&mut bytes).ok()?;
            let start = &bytes[..usize::try_from(START_BYTES).map_or(bytes.len(), |most| bytes.len().min(most))];
            // A file that has become binary since has no lines.
            let found = text_encoding(start, bytes.len() as u64)?;
            let (text, _) = found.encoding.decode_without_bom_handling(&bytes[found.mark..]);
            let wanted = text.lines().skip(first.saturating_sub(1)).take((last + 1).saturating_sub(first));
            Some(wanted.map(str::to_owned).collect())
        };
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }
}

fn grep(jail: &Jail, args: &GrepArgs, secrets: &KnownSecrets, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { limit, stop, foreign } = context;
    let wanted = args.max_results.map_or(DEFAULT_MATCHES, |wanted| wanted.get() as usize).min(MAX_MATCHES);
    let search = Search::new(&args.pattern, args.ignore_case.unwrap_or(false), wanted, stop, secrets)?;
    let globs = args.glob.as_deref().map(overrides).transpose()?;
    let path = args.path.as_deref().unwrap_or(".");
    let skipped = match Walk::new(jail, path, stop) {
        Ok(walk) => {
            walk.run(&|path, kind| selection(globs.as_ref(), path, kind), || search.visitor());
            walk.skipped.list()
        }
        Err(JailError::NotFolder(_)) => {
            let opened = jail.open_file(path).map_err(|error| error.to_string())?;
            if opened.size > jail.max_bytes() {
                let (path, size, limit) = (opened.shown, opened.size, jail.max_bytes());
                return Err(JailError::TooLarge { path, size, limit }.to_string());
            }
            search.search_file(opened.file, &opened.shown, opened.real.strip_prefix(jail.root()).ok());
            Vec::new()
        }
        Err(error) => return Err(error.to_string()),
    };
    let found = search.finish();
    let mut result = ToolResult::ok(String::new());
    result.add_sources(found.files.iter().filter_map(|file| foreign.source(file.path.as_deref()?)).collect());
    result.is_partial = matches!(stop.reason(), Some(reason) if reason != WalkStop::Enough);
    let mut lines: Vec<String> = Vec::new();
    for file in &found.files {
        lines.extend(file.lines.iter().map(|(number, text)| format!("{}:{number}: {text}", file.shown)));
    }
    let shown = lines.len();
    if shown == 0 {
        lines.push("No match.".to_owned());
    }
    lines.extend(match stop.reason() {
        Some(WalkStop::Enough) if wanted < MAX_MATCHES => Some(format!(
            "[the first {shown} matches; there are more: narrow the search, or raise max_results (at most {MAX_MATCHES})]"
        )),
        Some(WalkStop::Enough) => Some(format!("[the first {shown} matches; there are more: narrow the search]")),
        Some(WalkStop::Deadline) => {
            Some(format!("[stopped after {} s, before all was searched: narrow the search]", limit.as_secs()))
        }
        Some(WalkStop::TooMany) => Some("[too many files, so not all was searched: narrow the search]".to_owned()),
        Some(WalkStop::Cancelled) => Some("[cancelled before all was searched]".to_owned()),
        None => None,
    });
    let skipped: Vec<_> = found.skipped().chain(skipped).collect();
    lines.push(format!("[searched {} {}{}]", found.searched, files_word(found.searched), skip_note(&skipped)));
    result.content = lines.join("\n");
    Ok(result)
}

/// Decides whether a search with these globs visits an entry.
fn selection(globs: Option<&Override>, path: &Path, kind: EntryKind) -> WalkSelection {
    match globs.map(|globs| globs.matched(path, kind == EntryKind::Folder)) {
        None | Some(ignore::Match::None) => WalkSelection::Usual,
        Some(ignore::Match::Ignore(_)) => WalkSelection::Never,
        Some(ignore::Match::Whitelist(_)) => WalkSelection::Always,
    }
}

/// Parses `glob`: file names, or paths below the searched folder. `!` excludes what the glob matches.
fn overrides(glob: &str) -> Result<Override, String> {
    let invalid = |error: &dyn std::fmt::Display| format!("glob {glob:?}: {}", one_line(&error.to_string()));
    if glob.len() > MAX_GLOB {
        return Err(format!("glob: longer than {MAX_GLOB} bytes"));
    }
    let mut builder = OverrideBuilder::new("");
    builder.add(glob).map_err(|error| invalid(&error))?;
    builder.build().map_err(|error| invalid(&error))
}
