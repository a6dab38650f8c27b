//! The interfaces that a turn needs: a model, tools and a journal; and the turn that a call of theirs belongs to.

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

/// Which turn a call belongs to, and what the call is held to and measured by.
#[derive(Clone, Copy)]
pub struct TurnScope<'a> {
    pub session: &'a SessionKey,
    pub turn: Uuid,
    /// When the turn's time is up.
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

    /// Asks the model; shows the answer in `sink` while it arrives. The response holds its usage, its cost and the model that
    /// gave it.
    ///
    /// # Errors
    /// No model answered, or a limit forbids to ask.
    async fn chat(&self, request: ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, TurnError>;
}

/// Decides what a turn does next from its progress alone, in the place of a model.
pub trait Script: Send + Sync {
    /// Returns the next response: the calls to make, or the answer. The same progress always gives the same.
    ///
    /// # Errors
    /// The turn cannot go on.
    fn next(&self, progress: &TurnProgress) -> Result<ChatResponse, TurnError>;
}

/// What leads a turn to its answer.
#[derive(Clone, Copy)]
pub enum TurnLead<'a> {
    Model(&'a dyn Model),
    Script(&'a dyn Script),
}

/// The tools that a turn may use.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Returns the definitions of the tools that the model is offered, with those that it found.
    fn specs(&self, found: &BTreeSet<String>) -> Arc<[ToolSpec]>;

    /// Returns the own name of the tool that `name` or an alias means.
    fn canonical_name(&self, name: &str) -> Option<String>;

    /// Returns the access of a tool; `None` for an unknown one.
    fn access_of(&self, name: &str) -> Option<ToolAccess>;

    /// Returns what may be done with a call that was cut off; `None` for an unknown tool.
    fn replay_of(&self, call: &ToolCall) -> Option<ReplayPolicy>;

    /// Returns why this turn may not make the call, if so.
    fn refusal(&self, call: &ToolCall, context: &ToolContext) -> Option<String>;

    /// Returns what the owner may have to approve before the call runs, if anything.
    fn restriction(&self, call: &ToolCall, context: &ToolContext) -> Option<Restriction>;

    /// Returns how many calls run at the same time at most.
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
    /// It runs within the rights of the turn.
    Allowed,
    /// The owner has approved it.
    Approved,
    /// It does not run; the reason, for the model.
    Refused(String),
    /// The owner is asked; the call has no result yet.
    Asked(Box<ToolOutcome>),
}

/// Keeps the steps of a turn. Each call returns when its step is kept; a store that cannot take it holds the turn.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Keeps a step that the process's death must not lose.
    async fn record(&self, step: &StepBody);

    /// Keeps a step and returns only when it is on the disk itself.
    async fn record_synced(&self, step: &StepBody);

    /// Keeps a tool's result, together with what the tool does inside daoyou.
    async fn record_result(&self, step: &StepBody, effects: &[ToolEffect]);

    /// Keeps what a call that has no result yet does inside daoyou.
    async fn record_begun(&self, effects: &[ToolEffect]);
}
