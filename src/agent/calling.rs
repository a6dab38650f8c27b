//! The tool calls of one response. Those that only look run together, those that may change something alone, in the order
//! asked; so a look behind a change sees it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use daoyou_channels::TurnEvent;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use uuid::Uuid;

use super::progress::{INTERRUPTED, OpenCall, Progress, StepBody};
use super::turn::{Clock, Turn};
use crate::chat::{ToolCall, without_notes};
use crate::tools::{Access, Replay, ToolContext, ToolOutcome, ToolResult};

/// What a turn has done so far, for calls that run at the same time.
struct Shared<'a> {
    progress: Mutex<&'a mut Progress>,
    awaited: &'a Mutex<Awaited>,
}

/// Calls that have no result yet, and the turns whose ends they wait for.
#[derive(Default)]
struct Awaited {
    calls: HashSet<String>,
    turns: Vec<Uuid>,
}

impl Shared<'_> {
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
    /// Runs what the last response asked for; each call is answered exactly once. Those that run when the turn is
    /// cancelled still say what they had done; those behind them stay open. So do those that wait for other turns: these are
    /// answered.
    pub(super) async fn run_open_calls(&self, progress: &mut Progress, clock: &Clock) -> Vec<Uuid> {
        let awaited = Mutex::default();
        while !self.tool_context.cancel.is_cancelled() {
            let group = {
                let awaited: &Awaited = &awaited.lock().unwrap_or_else(PoisonError::into_inner);
                let open = progress.open_calls.iter().filter(|open| !awaited.calls.contains(&open.call.id));
                self.next_group(&open.cloned().collect::<Vec<_>>())
            };
            if group.is_empty() {
                break;
            }
            let shared = Shared { progress: Mutex::new(progress), awaited: &awaited };
            let run = |open: OpenCall| -> BoxFuture<'_, ()> { Box::pin(self.run_call(open, &shared, clock)) };
            let calls: Vec<_> = group.into_iter().map(run).collect();
            stream::iter(calls).buffer_unordered(self.tools.limits().at_once.get()).collect::<()>().await;
        }
        awaited.into_inner().unwrap_or_else(PoisonError::into_inner).turns
    }

    /// The calls that run next: all that only look up to one that may change something, or that one alone.
    fn next_group(&self, open: &[OpenCall]) -> Vec<OpenCall> {
        let looks = |open: &&OpenCall| {
            // An unknown tool does nothing.
            self.tools.access_of(&open.call.name).is_none_or(|access| access == Access::Reads)
        };
        let group: Vec<_> = open.iter().take_while(looks).cloned().collect();
        if group.is_empty() { open.iter().take(1).cloned().collect() } else { group }
    }

    async fn run_call(&self, open: OpenCall, progress: &Shared<'_>, clock: &Clock) {
        if self.tool_context.cancel.is_cancelled() {
            return;
        }
        let OpenCall { call, interrupted } = open;
        self.watch.calls(std::iter::once(&call));
        let began = Instant::now();
        let outcome = self.outcome_of(&call, interrupted, progress).await;
        let awaited = outcome.awaited();
        if !awaited.is_empty() {
            let ToolContext { turn, session, .. } = &self.tool_context;
            tracing::info!(%turn, %session, tool = call.name, turns = awaited.len(), "a call waits for other turns");
            self.journal.record_begun(&outcome.effects).await;
            return progress.waits(call.id, awaited);
        }
        let took = began.elapsed();
        // Only registered names are counted: models write what they like.
        let tool = self.tools.registry().get(&call.name).map_or("unknown", |tool| tool.spec().name.as_str());
        self.meter.tool_ran(tool, outcome.result.success, took);
        let ToolCall { id, name, .. } = call;
        let ToolContext { turn, session, .. } = &self.tool_context;
        let ToolResult { success, duration_ms: ms, .. } = outcome.result;
        tracing::info!(%turn, %session, tool = name, success, ms, "tool ran");
        self.watch.emit(|| TurnEvent::ToolResult {
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

    async fn outcome_of(&self, call: &ToolCall, interrupted: bool, progress: &Shared<'_>) -> ToolOutcome {
        // Before anything is noted of it: it is not started, and no result that was kept is given instead.
        if let Some(error) = self.tools.refusal(call, &self.tool_context) {
            return ToolResult::failed(error).into();
        }
        let once = self.tools.replay_of(call) == Some(Replay::Once);
        if once && interrupted {
            return ToolResult::failed(INTERRUPTED).into();
        }
        if once {
            let step = StepBody::ToolStarted { call_id: call.id.clone(), name: call.name.clone() };
            self.journal.record_synced(&step).await;
            progress.apply(step);
        }
        let context = ToolContext { call_id: call.id.clone(), ..self.tool_context.clone() };
        self.call_tool(call, &context).await
    }
}
