//! The tool calls of one response.

use std::time::Instant;

use daoyou_channels::TurnEvent;

use super::progress::{INTERRUPTED, OpenCall, Progress, StepBody};
use super::turn::{Clock, Turn};
use crate::llm::ToolCall;
use crate::tools::{Replay, ToolContext, ToolResult};

impl Turn<'_> {
    /// Runs what the last response asked for. A call that runs when the turn is cancelled still says what it had done;
    /// those behind it stay open.
    pub(super) async fn run_open_calls(&self, progress: &mut Progress, clock: &Clock) {
        // The calls of one response run in the order asked for; each is answered exactly once.
        while !self.tool_context.cancel.is_cancelled()
            && let Some(OpenCall { call, interrupted }) = progress.open_calls.first().cloned()
        {
            let replay = self.tools.replay_of(&call.name);
            let arguments = serde_json::from_str(&call.arguments).unwrap_or_default();
            self.watch.emit(|| TurnEvent::ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: Some(arguments),
            });
            let began = Instant::now();
            let mut outcome = if interrupted && replay == Some(Replay::Once) {
                ToolResult::failed(INTERRUPTED).into()
            } else {
                if replay == Some(Replay::Once) {
                    let step = StepBody::ToolStarted { call_id: call.id.clone(), name: call.name.clone() };
                    self.journal.record_synced(&step).await;
                    progress.apply(step);
                }
                let context = ToolContext { call_id: call.id.clone(), ..self.tool_context.clone() };
                self.call_tool(&call, &context).await
            };
            let took = began.elapsed();
            outcome.result.duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
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
                content: outcome.result.render(),
                success: outcome.result.success,
            });
            let result = outcome.result;
            let step = StepBody::ToolResult { call_id: id, name, result, active_ms: clock.active_ms() };
            self.journal.record_result(&step, &outcome.effects).await;
            progress.apply(step);
        }
    }
}
