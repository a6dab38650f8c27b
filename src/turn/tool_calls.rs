//! The tool calls of one response. Calls that only read run in parallel; calls that may change something run alone and in order, so
//! that a later read sees the change.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daoyou_channels::TurnEvent;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use uuid::Uuid;

use super::progress::{INTERRUPTED, OpenCall, StepBody, TurnProgress};
use super::turn_loop::{ActiveClock, ApprovalDecision, ResponseSource, Turn};
use crate::chat::{ChatMessage, ToolCall, without_notes};
use crate::postprocess::Question;
use crate::tools::{
    PlannedCallState, ReplayPolicy, Restriction, ToolAccess, ToolContext, ToolOutcome, ToolResult, is_known_address,
};

/// The progress of a turn, shared by its parallel calls.
struct SharedProgress<'a> {
    progress: Mutex<&'a mut TurnProgress>,
    awaited: &'a Mutex<AwaitedCalls>,
}

/// The calls that wait for other turns, and those turns.
#[derive(Default)]
struct AwaitedCalls {
    calls: HashSet<String>,
    turns: Vec<Uuid>,
    /// A call waits for a person, and later ones may depend on it.
    is_person_asked: bool,
}

impl SharedProgress<'_> {
    fn apply(&self, step: StepBody) {
        self.progress.lock().apply(step);
    }

    fn waits(&self, call: String, outcome: &ToolOutcome) {
        let mut awaited = self.awaited.lock();
        awaited.calls.insert(call);
        awaited.turns.extend(outcome.awaited());
        awaited.is_person_asked |= outcome.awaits_person();
    }
}

impl Turn<'_> {
    /// Runs the open calls; each call gets exactly one result. When the turn is cancelled, running calls still report their result,
    /// and later calls stay open. Calls that wait for other turns stay open as well; the function returns those turns.
    pub(super) async fn run_open_calls(&self, progress: &mut TurnProgress, clock: &ActiveClock) -> Vec<Uuid> {
        let awaited = Mutex::default();
        while !self.tool_context.cancel.is_cancelled() {
            let group = {
                let awaited: &AwaitedCalls = &awaited.lock();
                let open = progress.open_calls.iter().filter(|open| !awaited.calls.contains(&open.call.id));
                self.next_group(&open.cloned().collect::<Vec<_>>())
            };
            if group.is_empty() || awaited.lock().is_person_asked {
                break;
            }
            let shared = SharedProgress { progress: Mutex::new(progress), awaited: &awaited };
            let run = |open: OpenCall| -> BoxFuture<'_, ()> { Box::pin(self.run_call(open, &shared, clock)) };
            let calls: Vec<_> = group.into_iter().map(run).collect();
            stream::iter(calls).buffer_unordered(self.tools.parallelism().get()).collect::<()>().await;
        }
        awaited.into_inner().turns
    }

    /// Returns the calls that run next: all reads up to the first call that may change something, or that call alone.
    fn next_group(&self, open: &[OpenCall]) -> Vec<OpenCall> {
        let only_reads = |open: &&OpenCall| {
            // An unknown tool does nothing.
            self.tools.access_of(&open.call.name).is_none_or(|access| access == ToolAccess::Reads)
        };
        let group: Vec<_> = open.iter().take_while(only_reads).cloned().collect();
        if group.is_empty() { open.iter().take(1).cloned().collect() } else { group }
    }

    async fn run_call(&self, open: OpenCall, progress: &SharedProgress<'_>, clock: &ActiveClock) {
        if self.tool_context.cancel.is_cancelled() {
            return;
        }
        let OpenCall { call, interrupted } = open;
        let began = Instant::now();
        let outcome = self.outcome_of(&call, interrupted, progress).await;
        if outcome.is_pending() {
            let ToolContext { turn, session, .. } = &self.tool_context;
            tracing::info!(%turn, %session, tool = call.name, "a call waits for other turns or for a person");
            self.journal.record_begun(&outcome.effects).await;
            return progress.waits(call.id, &outcome);
        }
        let took = began.elapsed();
        let counted = self.counted_name(&call.name);
        self.scope.meter.tool_ran(&counted, outcome.result.success, took);
        self.scope.meter.tool_result(&counted, outcome.result.content.len(), outcome.result.left_out_bytes);
        self.count_planned_calls(&outcome.result);
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
        self.journal.record_with_effects(&step, &effects).await;
        progress.apply(step);
    }

    /// Returns the tool name for the metrics. Unregistered names count as `unknown`, since models invent names.
    fn counted_name(&self, called: &str) -> String {
        self.tools.canonical_name(called).unwrap_or_else(|| "unknown".to_owned())
    }

    /// Counts the calls that a plan has run, as listed in its result.
    fn count_planned_calls(&self, plan: &ToolResult) {
        for call in &plan.planned_calls {
            if let Some(ms) = call.duration_ms {
                let is_ok = call.state == PlannedCallState::Done;
                self.scope.meter.nested_tool_ran(&self.counted_name(&call.tool), is_ok, Duration::from_millis(ms));
            }
        }
    }

    /// Returns the context of a call: with what the turn has read from others, the tools that its skills allow, and the text that the
    /// model wrote together with its last calls.
    fn context_of(&self, call: &ToolCall, progress: &TurnProgress) -> ToolContext {
        let aim = progress.messages.iter().rev().find_map(|message| match message {
            ChatMessage::Assistant { content, .. } => Some(content.clone()),
            _ => None,
        });
        let question = match self.source {
            ResponseSource::Model(_) => {
                Arc::new(Question { aim: aim.unwrap_or_default(), ..(*self.tool_context.question).clone() })
            }
            // A script reads whole results, so nothing is left out of them.
            ResponseSource::Script(_) => Arc::default(),
        };
        ToolContext {
            call_id: call.id.clone(),
            taint: Arc::new(progress.taint.clone()),
            allow_lists: progress.allow_lists.as_slice().into(),
            question,
            ..self.tool_context.clone()
        }
    }

    async fn outcome_of(&self, call: &ToolCall, interrupted: bool, progress: &SharedProgress<'_>) -> ToolOutcome {
        let mut context = self.context_of(call, &progress.progress.lock());
        // This check comes first: a refused call is neither recorded as started nor answered from the cache.
        if let Some(restriction) = self.restriction(call, &context, progress) {
            match self.approvals.decide(call, &restriction, &context).await {
                ApprovalDecision::Allowed => {}
                ApprovalDecision::Approved => context.is_approved = true,
                ApprovalDecision::Refused(error) => return ToolResult::failed_for_good(error).into(),
                ApprovalDecision::Asked(outcome) => return *outcome,
            }
        }
        if let Some(error) = self.tools.refusal(call, &context) {
            return ToolResult::failed_for_good(error).into();
        }
        let once = self.tools.replay_of(call) == Some(ReplayPolicy::Once);
        if once && interrupted {
            return ToolResult::failed_for_good(INTERRUPTED).into();
        }
        if once {
            let step = StepBody::ToolStarted { call_id: call.id.clone(), name: call.name.clone() };
            // Synced to disk before the tool runs: after a crash, the call counts as interrupted and does not run twice.
            self.journal.record(&step).await;
            progress.apply(step);
        }
        self.tools.run(call, &context).await
    }

    /// Returns the restriction that the owner may have to approve. A known address needs no approval, and no address needs one
    /// while the turn has read nothing from others.
    fn restriction(
        &self,
        call: &ToolCall,
        context: &ToolContext,
        progress: &SharedProgress<'_>,
    ) -> Option<Restriction> {
        let restriction = self.tools.restriction(call, context)?;
        restriction.with_known_urls(context.trust, |url| {
            let progress = progress.progress.lock();
            context.taint.is_empty() || is_known_address(url, context, &self.past(&progress))
        })
    }
}
