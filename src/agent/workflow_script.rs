//! The workflow of an agent, as the script of a turn. The journal is its only state: each step is a tool call with its result.

use std::sync::Arc;

use super::turn_agent::TurnAgent;
use crate::chat::{ChatMessage, NO_OUTPUT, ToolCall, without_notes};
use crate::llm::ChatResponse;
use crate::memory::written;
use crate::profiles::{CallEnd, CallResult, StepCall, Workflow, WorkflowNext, WorkflowStop, next_step};
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::progress::{CallFailure, ContextStep, TurnProgress};
use crate::turn::turn_loop::Script;

const CHANGED: &str = "it was changed while this ran, and its steps may no longer fit what is done; ask again";

/// The script of a turn whose agent is a workflow.
pub(super) struct WorkflowScript(Arc<Workflow>);

impl WorkflowScript {
    /// Returns the script of this agent; `None` for an agent that asks its model. `context` is the context of a turn that resumes.
    ///
    /// # Errors
    /// The turn began with another workflow.
    pub fn of(agent: &TurnAgent, context: Option<&ContextStep>) -> Result<Option<Self>, TurnError> {
        let script = agent.profile.workflow.clone().map(Self);
        let hash = script.as_ref().map(Self::hash);
        if context.is_some_and(|context| context.workflow.as_deref() != hash) {
            return Err(TurnError::new(ErrorCode::Workflow, "turn").with([CHANGED.to_owned()]));
        }
        Ok(script)
    }

    /// Returns the hash of the workflow's file.
    pub fn hash(&self) -> &str {
        &self.0.hash
    }
}

impl Script for WorkflowScript {
    fn next(&self, progress: &TurnProgress) -> Result<ChatResponse, TurnError> {
        let message = progress.context.as_ref().map(|context| written(&context.user)).unwrap_or_default();
        let results = progress.messages.iter().filter_map(|message| match message {
            ChatMessage::Tool { call_id, content, .. } => {
                let end = match progress.failures.get(call_id) {
                    None => CallEnd::Done,
                    Some(CallFailure::Repeatable) => CallEnd::Failed,
                    Some(CallFailure::Final) => CallEnd::FailedForGood,
                };
                // A step without output has an empty result, for which conditions can test.
                let text = Some(without_notes(content)).filter(|text| *text != NO_OUTPUT).unwrap_or_default();
                Some(CallResult { end, text })
            }
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        });
        match next_step(&self.0, message, &results.collect::<Vec<_>>()) {
            Ok(WorkflowNext::Answer(text)) => Ok(ChatResponse { text, ..ChatResponse::default() }),
            Ok(WorkflowNext::Calls(calls)) => Ok(response_of(calls)),
            Err(WorkflowStop::Input(reason)) => Err(TurnError::new(ErrorCode::WorkflowInput, "turn").with([reason])),
            Err(WorkflowStop::Step(reason)) => Err(TurnError::new(ErrorCode::Workflow, "turn").with([reason])),
        }
    }
}

fn response_of(calls: Vec<StepCall>) -> ChatResponse {
    let mut titles = Vec::new();
    let calls = calls.into_iter().map(|StepCall { step, attempt, tool, arguments }| {
        let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
        titles.push(format!("Step {step}{again}"));
        ToolCall { id: format!("{step}_{attempt}"), name: tool, arguments }
    });
    let tool_calls = calls.collect();
    ChatResponse { text: titles.join("; "), tool_calls, ..ChatResponse::default() }
}
