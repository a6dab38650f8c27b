//! The tool calls of one response. Calls that only read run together; calls that may change something run alone, in
//! order, so that a later read sees the change.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use daoyou_channels::TurnEvent;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use uuid::Uuid;

use super::progress::{INTERRUPTED, OpenCall, StepBody, TurnProgress};
use super::turn_loop::{ActiveClock, Turn};
use crate::chat::{ToolCall, without_notes};
use crate::tools::{ReplayPolicy, ToolAccess, ToolContext, ToolOutcome, ToolResult};

/// The progress of a turn, shared by calls that run at the same time.
struct SharedProgress<'a> {
    progress: Mutex<&'a mut TurnProgress>,
    awaited: &'a Mutex<AwaitedCalls>,
}

/// Calls that wait for other turns, and those turns.
#[derive(Default)]
struct AwaitedCalls {
    calls: HashSet<String>,
    turns: Vec<Uuid>,
}

impl SharedProgress<'_> {
    fn apply(&self, step: StepBody) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).apply(step);
    }

    fn waits(&self, call: String, turns: Vec<Uuid>) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.calls.insert(call);
        awaited.turns.extend(turns);
    }
}

impl Turn<'_> {
    /// Runs the open calls; each call gets exactly one result. Calls that run when the turn is cancelled still report
    /// what they did; later ones stay open. Calls that wait for other turns stay open as well, and those turns are
    /// returned.
    pub(super) async fn run_open_calls(&self, progress: &mut TurnProgress, clock: &ActiveClock) -> Vec<Uuid> {
        let awaited = Mutex::default();
        while !self.tool_context.cancel.is_cancelled() {
            let group = {
                let awaited: &AwaitedCalls = &awaited.lock().unwrap_or_else(PoisonError::into_inner);
                let open = progress.open_calls.iter().filter(|open| !awaited.calls.contains(&open.call.id));
                self.next_group(&open.cloned().collect::<Vec<_>>())
            };
            if group.is_empty() {
                break;
            }
            let shared = SharedProgress { progress: Mutex::new(progress), awaited: &awaited };
            let run = |open: OpenCall| -> BoxFuture<'_, ()> { Box::pin(self.run_call(open, &shared, clock)) };
            let calls: Vec<_> = group.into_iter().map(run).collect();
            stream::iter(calls).buffer_unordered(self.tools.parallelism().get()).collect::<()>().await;
        }
        awaited.into_inner().unwrap_or_else(PoisonError::into_inner).turns
    }

    /// Returns the calls that run next: all reads up to the first call that may change something, or that call alone.
    fn next_group(&self, open: &[OpenCall]) -> Vec<OpenCall> {
        let looks = |open: &&OpenCall| {
            // An unknown tool does nothing.
            self.tools.access_of(&open.call.name).is_none_or(|access| access == ToolAccess::Reads)
        };
        let group: Vec<_> = open.iter().take_while(looks).cloned().collect();
        if group.is_empty() { open.iter().take(1).cloned().collect() } else { group }
    }

    async fn run_call(&self, open: OpenCall, progress: &SharedProgress<'_>, clock: &ActiveClock) {
        if self.tool_context.cancel.is_cancelled() {
            return;
        }
        let OpenCall { call, interrupted } = open;
        self.events.calls(std::iter::once(&call));
        let began = Instant::now();
        let outcome = self.outcome_of(&call, interrupted, progress).await;
        let awaited = outcome.awaited_turns();
        if !awaited.is_empty() {
            let ToolContext { turn, session, .. } = &self.tool_context;
            tracing::info!(%turn, %session, tool = call.name, turns = awaited.len(), "a call waits for other turns");
            self.journal.record_begun(&outcome.effects).await;
            return progress.waits(call.id, awaited);
        }
        let took = began.elapsed();
        // Only registered names are counted, since models make names up.
        let tool = self.tools.canonical_name(&call.name).unwrap_or_else(|| "unknown".to_owned());
        self.scope.meter.tool_ran(&tool, outcome.result.success, took);
        let ToolCall { id, name, .. } = call;
        let ToolContext { turn, session, .. } = &self.tool_context;
        let ToolResult { success, duration_ms: ms, .. } = outcome.result;
        tracing::info!(%turn, %session, tool = name, success, ms, "tool ran");
        self.events.emit(|| TurnEvent::ToolResult {
            id: id.clone(),
            name: name.clone(),
            content: without_notes(&outcome.result.render()).to_owned(),
            success,
            duration_ms: ms,
        });
        let ToolOutcome { result, effects } = outcome;
        let step = StepBody::ToolResult { call_id: id, name, result, active_ms: clock.active_ms() };
        self.journal.record_result(&step, &effects).await;
        progress.apply(step);
    }

    async fn outcome_of(&self, call: &ToolCall, interrupted: bool, progress: &SharedProgress<'_>) -> ToolOutcome {
        // Checked first: a refused call is not recorded as started, and is not answered from the cache.
        if let Some(error) = self.tools.refusal(call, &self.tool_context) {
            return ToolResult::failed(error).into();
        }
        let once = self.tools.replay_of(call) == Some(ReplayPolicy::Once);
        if once && interrupted {
            return ToolResult::failed(INTERRUPTED).into();
        }
        if once {
            let step = StepBody::ToolStarted { call_id: call.id.clone(), name: call.name.clone() };
            self.journal.record_synced(&step).await;
            progress.apply(step);
        }
        let context = ToolContext { call_id: call.id.clone(), ..self.tool_context.clone() };
        self.tools.run(call, &context).await
    }
}
