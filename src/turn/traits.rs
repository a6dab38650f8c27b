//! The interfaces that a turn needs: a model, tools and a journal; and the scope that their calls run in.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use tokio::time::Instant;
use uuid::Uuid;

use super::error::TurnError;
use super::progress::{StepBody, TurnProgress};
use crate::chat::{ToolCall, ToolSpec};
use crate::llm::{ChatRequest, ChatResponse, DeltaSink};
use crate::metrics::TurnMeter;
use crate::phrases::Phrases;
use crate::tools::{ReplayPolicy, Restriction, ToolAccess, ToolContext, ToolEffect, ToolOutcome};

/// The turn that a call belongs to, with its limits and its meter.
#[derive(Clone, Copy)]
pub struct TurnScope<'a> {
    pub session: &'a SessionKey,
    pub turn: Uuid,
    /// The end of the turn's time.
    pub deadline: Instant,
    pub meter: &'a TurnMeter<'a>,
    pub phrases: &'static Phrases,
}

/// The model that answers a turn.
#[async_trait]
pub trait Model: Send + Sync {
    /// Returns the model's name within its provider.
    fn name(&self) -> String;

    /// Returns true if a model that may answer takes images.
    async fn takes_images(&self) -> bool;

    /// Asks the model; passes the answer to `sink` while it arrives. The response contains its usage, its cost and the model that
    /// answered.
    ///
    /// # Errors
    /// No model answered, or a limit forbids to ask.
    async fn chat(&self, request: ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, TurnError>;
}

/// Decides the next step of a turn from its progress alone, instead of a model.
pub trait Script: Send + Sync {
    /// Returns the next response: the calls to make, or the answer. The same progress always yields the same response.
    ///
    /// # Errors
    /// The turn cannot go on.
    fn next(&self, progress: &TurnProgress) -> Result<ChatResponse, TurnError>;
}

/// The source of a turn's responses.
#[derive(Clone, Copy)]
pub enum TurnLead<'a> {
    Model(&'a dyn Model),
    Script(&'a dyn Script),
}

/// The tools that a turn may use.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Returns the definitions of the tools that the model is offered, including the `found` ones.
    fn specs(&self, found: &BTreeSet<String>) -> Arc<[ToolSpec]>;

    /// Returns the tool's own name for `name`, which may be an alias.
    fn canonical_name(&self, name: &str) -> Option<String>;

    /// Gives a call the tool's own name, so that readers of the journal need not know the aliases, and the arguments that the alias
    /// stands for.
    fn use_own_name(&self, call: &mut ToolCall);

    /// Returns the access of a tool; `None` for an unknown one.
    fn access_of(&self, name: &str) -> Option<ToolAccess>;

    /// Returns whether an interrupted call may run again; `None` for an unknown tool.
    fn replay_of(&self, call: &ToolCall) -> Option<ReplayPolicy>;

    /// Returns the reason why this turn may not make the call, if there is one.
    fn refusal(&self, call: &ToolCall, context: &ToolContext) -> Option<String>;

    /// Returns the restriction that the owner may have to approve before the call runs, if there is one.
    fn restriction(&self, call: &ToolCall, context: &ToolContext) -> Option<Restriction>;

    /// Returns the most calls that run in parallel.
    fn parallelism(&self) -> NonZeroUsize;

    /// Runs a call. It yields exactly one outcome: a failure is an outcome as well.
    async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome;
}

/// Decides whether restricted calls of a turn run, and asks the owner.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// Decides about a call; the same call gets the same decision until the owner answers.
    async fn decide(&self, call: &ToolCall, restriction: &Restriction, context: &ToolContext) -> ApprovalDecision;
}

/// The decision about a restricted call.
#[derive(Clone, Debug, PartialEq)]
pub enum ApprovalDecision {
    /// The call runs within the rights of the turn.
    Allowed,
    /// The owner has approved it.
    Approved,
    /// The call does not run; the text is the reason for the model.
    Refused(String),
    /// The owner was asked; the call has no result yet.
    Asked(Box<ToolOutcome>),
}

/// Stores the steps of a turn. Each method returns when its step is stored; a store that cannot accept the step holds the turn.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Records a step that must survive the end of the process.
    async fn record(&self, step: &StepBody);

    /// Records a step and returns only when the step is synced to disk.
    async fn record_synced(&self, step: &StepBody);

    /// Records a tool's result together with the tool's effects inside daoyou.
    async fn record_result(&self, step: &StepBody, effects: &[ToolEffect]);

    /// Records the effects inside daoyou of a call that has no result yet.
    async fn record_begun(&self, effects: &[ToolEffect]);
}
