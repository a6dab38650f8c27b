//! Tools whose code is one function over the files that the turn may access.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::scope::{ForeignFiles, ReadScope, WriteScope, run_on_jail};
use crate::guard::{Jail, StopSignal, Taint, WalkSelection, WalkStop};
use crate::tools::{Tool, ToolContext, ToolDefinition, ToolOutcome};

/// The longest time limit of a search. If `tools.timeout` is short, the limit is half of it.
const LONGEST_SEARCH: Duration = Duration::from_secs(20);
/// How long a cached result may be reused if no file has changed.
pub(in crate::tools) const CACHED: Duration = Duration::from_secs(300);

/// Returns the time limit of a search within calls that may take `timeout`.
pub(in crate::tools) fn search_limit(timeout: Duration) -> Duration {
    LONGEST_SEARCH.min(timeout / 2)
}

/// The context of a call for a function that reads files.
pub(in crate::tools) struct ReadContext {
    pub limit: Duration,
    /// Stops the work after `limit`, or when the call is cancelled.
    pub stop: StopSignal,
    pub foreign: ForeignFiles,
}

impl ReadContext {
    pub(in crate::tools) fn new(limit: Duration, context: &ToolContext) -> Self {
        Self { limit, stop: StopSignal::new(limit, context.cancel.clone()), foreign: ForeignFiles::of(context) }
    }

    /// Returns the note that the work stopped before everything was read.
    pub(in crate::tools) fn stop_note(&self) -> Option<String> {
        match self.stop.reason()? {
            WalkStop::Enough => None,
            WalkStop::Deadline => {
                let seconds = self.limit.as_secs();
                Some(format!("[stopped after {seconds} s, before all was read: name a smaller folder]"))
            }
            WalkStop::TooMany => Some("[too many files, so not all was read: name a smaller folder]".to_owned()),
            WalkStop::Cancelled => Some("[cancelled before all was read]".to_owned()),
        }
    }
}

/// The function that does the work of a tool, with the jail of the turn.
pub(super) type Work<Args, Context> = dyn Fn(&Jail, &Args, &Context) -> ToolOutcome + Send + Sync;

/// Where the names or the content of files lie that a result shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::tools) enum ShownFiles {
    Nowhere,
    /// Only in the folder that the call names; a result for a folder above `mail/` and `scratch/` shows nothing in these.
    InFolder,
    /// Anywhere below the folder that the call names.
    Below,
}

/// A tool that reads files.
pub(in crate::tools) struct ReadTool<Args> {
    definition: ToolDefinition,
    scope: ReadScope,
    limit: Duration,
    shows: ShownFiles,
    /// Permits for calls that run at the same time; `None` for any number.
    places: Option<Arc<Semaphore>>,
    work: Arc<Work<Args, ReadContext>>,
}

impl<Args> ReadTool<Args> {
    /// Creates the tool. `timeout` is the time limit of a call.
    pub(in crate::tools) fn new<Done: Into<ToolOutcome>>(
        definition: ToolDefinition,
        scope: ReadScope,
        timeout: Duration,
        shows: ShownFiles,
        work: impl Fn(&Jail, &Args, &ReadContext) -> Done + Send + Sync + 'static,
    ) -> Self {
        let work = Arc::new(move |jail: &Jail, args: &Args, context: &ReadContext| work(jail, args, context).into());
        Self { definition, scope, limit: search_limit(timeout), shows, places: None, work }
    }

    /// Returns the same tool, with at most `number` calls running at the same time.
    pub(in crate::tools) fn at_once(self, number: usize) -> Self {
        Self { places: Some(Arc::new(Semaphore::new(number))), ..self }
    }
}

#[async_trait]
impl<Args: DeserializeOwned + Send + 'static> Tool for ReadTool<Args> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns true if an untrusted sender may see the files: the sender's own files, and public ones.
    fn allows_untrusted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.allows_untrusted(arguments, context)
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        match self.shows {
            ShownFiles::Nowhere => false,
            ShownFiles::InFolder => !self.scope.sources(arguments, context).is_empty(),
            ShownFiles::Below => self.scope.may_hold_foreign(arguments, context),
        }
    }

    async fn cache_stamp(&self, arguments: &Value, context: &ToolContext) -> Option<String> {
        let path = arguments["path"].as_str().unwrap_or(".").to_owned();
        self.scope.tree_stamp(path, |_, _| WalkSelection::Usual, context).await
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let (work, jail) = (Arc::clone(&self.work), self.scope.for_turn(context));
        // The work keeps its permit until it ends, even if the caller no longer waits.
        let place = match &self.places {
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
            None => None,
        };
        let context = ReadContext::new(self.limit, context);
        run_on_jail(jail, arguments, move |jail, args| {
            let _place = place;
            work(jail, &args, &context)
        })
        .await
    }
}

/// Returns `; skipped: …`, or nothing.
pub(in crate::tools) fn skip_note(skipped: &[(usize, &'static str)]) -> String {
    let listed: Vec<_> = skipped.iter().map(|(count, what)| format!("{count} {what}")).collect();
    if listed.is_empty() { String::new() } else { format!("; skipped: {}", listed.join(", ")) }
}

/// Returns `file` or `files`.
pub(in crate::tools) fn files_word(count: usize) -> &'static str {
    if count == 1 { "file" } else { "files" }
}

/// A tool that changes files or folders.
pub(super) struct WriteTool<Args> {
    pub definition: ToolDefinition,
    pub scope: WriteScope,
    /// Determines the sources of the files' content, for a tool whose results show a part of it.
    pub reads: Option<ReadScope>,
    /// Returns the paths that a call changes.
    pub paths: fn(&Value) -> Vec<String>,
    /// Checks the rules of [`Tool::validate`].
    pub check: fn(&Value) -> Result<(), String>,
    pub work: Arc<Work<Args, ToolContext>>,
}

impl<Args> WriteTool<Args> {
    /// Creates a tool that changes the file or folder at the argument `path`, and whose results show no content.
    pub(super) fn new<Done: Into<ToolOutcome>>(
        definition: ToolDefinition,
        scope: WriteScope,
        work: impl Fn(&Jail, &Args, &ToolContext) -> Done + Send + Sync + 'static,
    ) -> Self {
        let paths = |arguments: &Value| arguments["path"].as_str().map(str::to_owned).into_iter().collect();
        Self::with_paths(definition, scope, &["path"], paths, work)
    }

    /// Creates a tool that changes the files or folders that `paths` returns for a call. `literal_arguments` are the arguments
    /// that name them: text from a file or page must not determine what is changed.
    pub(super) fn with_paths<Done: Into<ToolOutcome>>(
        definition: ToolDefinition,
        scope: WriteScope,
        literal_arguments: &'static [&'static str],
        paths: fn(&Value) -> Vec<String>,
        work: impl Fn(&Jail, &Args, &ToolContext) -> Done + Send + Sync + 'static,
    ) -> Self {
        let definition = ToolDefinition { literal_arguments, ..definition };
        let work = Arc::new(move |jail: &Jail, args: &Args, context: &ToolContext| work(jail, args, context).into());
        Self { definition, scope, reads: None, paths, check: |_| Ok(()), work }
    }

    /// Returns the sources of the content that the result of a call shows.
    fn sources(&self, arguments: &Value, context: &ToolContext) -> Taint {
        let Some(reads) = &self.reads else { return Taint::default() };
        (self.paths)(arguments).iter().flat_map(|path| reads.sources_of(path, context)).collect()
    }
}

#[async_trait]
impl<Args: DeserializeOwned + Send + 'static> Tool for WriteTool<Args> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        (self.check)(arguments)
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        !self.sources(arguments, context).is_empty()
    }

    fn is_restricted(&self, arguments: &Value, context: &ToolContext) -> bool {
        let paths = (self.paths)(arguments);
        paths.is_empty() || self.scope.is_restricted(paths.iter().map(String::as_str), context)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let sources = self.sources(&arguments, context);
        let (work, jail, context) = (Arc::clone(&self.work), self.scope.for_turn(context), context.clone());
        let mut outcome = run_on_jail(jail, arguments, move |jail, args| work(jail, &args, &context)).await;
        outcome.result.add_sources(sources);
        outcome
    }
}
