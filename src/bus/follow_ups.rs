//! How a turn that nobody asked for in a chat ended, and what follows from that.

use uuid::Uuid;

use super::InboundDraft;
use crate::store::inbox::InboxRow;

/// End of a turn that ran for a job, a heartbeat or a sub-agent's task.
#[derive(Clone, Copy, Debug)]
pub struct EndedTurn<'a> {
    /// The message that it answers.
    pub row: &'a InboxRow,
    pub turn: Uuid,
    pub reply: &'a str,
    /// The error's stable code if it failed.
    pub error: Option<&'static str>,
}

/// What follows from an [`EndedTurn`]; all of it is in the commit of that end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FollowUps {
    /// What is delivered to the chat of the turn's message, if anything.
    pub reply: Option<String>,
    /// Messages for other sessions.
    pub messages: Vec<InboundDraft>,
    /// Notice for the owner, Markdown.
    pub notice: Option<String>,
}
