//! Tools whose code is one function over the files of the turn.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::scope::{ForeignFiles, ReadScope, WriteScope, run_on_jail};
use crate::guard::{Jail, StopSignal, WalkStop};
use crate::tools::{Tool, ToolContext, ToolDefinition, ToolOutcome};

/// The longest search. With a short `tools.timeout`, half of that.
const LONGEST_SEARCH: Duration = Duration::from_secs(20);
/// How long a result is given again if no file has changed.
pub(in crate::tools) const CACHED: Duration = Duration::from_secs(300);

/// Returns how long a search may take within calls that may take `timeout`.
pub(in crate::tools) fn search_limit(timeout: Duration) -> Duration {
    LONGEST_SEARCH.min(timeout / 2)
}

/// What a function that reads files knows of its call.
pub(in crate::tools) struct ReadContext {
    pub limit: Duration,
    /// Stops the work after `limit`, or when the call is cancelled.
    pub stop: StopSignal,
    pub foreign: ForeignFiles,
}

impl ReadContext {
    pub(in crate::tools) fn new(limit: Duration, cancel: CancellationToken, foreign: ForeignFiles) -> Self {
        Self { limit, stop: StopSignal::new(limit, cancel), foreign }
    }

    /// Returns the note that the work was stopped before all was read.
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

/// The work of a tool on its jail.
type Work<Args, Context> = dyn Fn(&Jail, Args, &Context) -> ToolOutcome + Send + Sync;

/// A tool that reads files.
pub(in crate::tools) struct ReadTool<Args> {
    definition: ToolDefinition,
    scope: ReadScope,
    limit: Duration,
    shows_content: bool,
    /// The calls that run at the same time; `None`: any number.
    places: Option<Arc<Semaphore>>,
    work: Arc<Work<Args, ReadContext>>,
}

impl<Args> ReadTool<Args> {
    /// `timeout` is the time limit of a call.
    pub(in crate::tools) fn new<Done: Into<ToolOutcome>>(
        definition: ToolDefinition,
        scope: ReadScope,
        timeout: Duration,
        work: impl Fn(&Jail, Args, &ReadContext) -> Done + Send + Sync + 'static,
    ) -> Self {
        let work = Arc::new(move |jail: &Jail, args, context: &ReadContext| work(jail, args, context).into());
        Self { definition, scope, limit: search_limit(timeout), shows_content: false, places: None, work }
    }

    /// Returns the same tool, whose results show what is in files.
    pub(in crate::tools) fn showing_content(self) -> Self {
        Self { shows_content: true, ..self }
    }

    /// Returns the same tool, of which at most `number` calls run at the same time.
    pub(in crate::tools) fn at_once(self, number: usize) -> Self {
        Self { places: Some(Arc::new(Semaphore::new(number))), ..self }
    }
}

#[async_trait]
impl<Args: DeserializeOwned + Send + 'static> Tool for ReadTool<Args> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// An untrusted sender sees the sender's own files, and public ones.
    fn allows_untrusted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.allows_untrusted(arguments, context)
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.shows_content && self.scope.may_hold_foreign(arguments, context)
    }

    async fn cache_stamp(&self, arguments: &Value, context: &ToolContext) -> Option<String> {
        self.scope.stamp_of_all(arguments["path"].as_str().unwrap_or("."), context).await
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let (limit, foreign, cancel) = (self.limit, ForeignFiles::of(context), context.cancel.clone());
        let work = Arc::clone(&self.work);
        // The work keeps its place until it ends, also if nobody waits for it any more.
        let place = match &self.places {
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
            None => None,
        };
        run_on_jail(self.scope.for_turn(context), arguments, move |jail, args| {
            let _place = place;
            work(jail, args, &ReadContext::new(limit, cancel, foreign))
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

/// A tool that changes the file or folder at the argument `path`.
pub(super) struct WriteTool<Args> {
    definition: ToolDefinition,
    scope: WriteScope,
    work: Arc<Work<Args, ToolContext>>,
}

impl<Args> WriteTool<Args> {
    pub(super) fn new<Done: Into<ToolOutcome>>(
        definition: ToolDefinition,
        scope: WriteScope,
        work: impl Fn(&Jail, Args, &ToolContext) -> Done + Send + Sync + 'static,
    ) -> Self {
        // Text from a file or page must not choose what is changed.
        let definition = ToolDefinition { literal_arguments: &["path"], ..definition };
        Self { definition, scope, work: Arc::new(move |jail, args, context| work(jail, args, context).into()) }
    }
}

#[async_trait]
impl<Args: DeserializeOwned + Send + 'static> Tool for WriteTool<Args> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn is_restricted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.is_path_restricted(arguments, context)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let (work, jail, context) = (Arc::clone(&self.work), self.scope.for_turn(context), context.clone());
        run_on_jail(jail, arguments, move |jail, args| work(jail, args, &context)).await
    }
}
