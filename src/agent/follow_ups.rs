//! What follows from the end of a turn that runs on an errand, written within the commit of that end.

use daoyou_channels::SessionKey;

use super::sub_agents::{self, AwaitingTurn};
use crate::bus::{EndedTurn, FollowUps, MessageBus, NoticeKind, OutboxSlot};
use crate::origin::TurnCause;
use crate::phrases::Phrases;
use crate::session::retry_scheduler::RetryScheduler;
use crate::store::inbox::InsertOutcome;
use crate::store::{Connection, StoreError};
use crate::{crash, cron};

/// What the commit has written, and what the bus has to wake.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AppliedFollowUps {
    /// The text for the chat of the turn's message, if any.
    pub reply: Option<String>,
    /// Sessions that have a new message.
    pub sessions: Vec<SessionKey>,
    /// The channel that has a notice for the owner.
    pub notice_channel: Option<String>,
    /// The turn that waited for this end.
    pub awaiting: Option<AwaitingTurn>,
    /// The label of the sub-agent that has ended.
    pub sub_agent: Option<String>,
    /// A run of a job has ended with an error.
    pub is_failed_run: bool,
}

/// Writes what follows.
pub(super) fn follow(
    connection: &Connection,
    bus: &MessageBus,
    rules: &cron::CronSettings,
    cause: &TurnCause,
    end: &EndedTurn<'_>,
    phrases: &Phrases,
) -> Result<AppliedFollowUps, StoreError> {
    let (mut awaiting, mut sub_agent) = (None, None);
    let FollowUps { reply, messages, notice } = match cause {
        TurnCause::Job(job) => cron::follow_ups_of(connection, rules, job, end)?,
        TurnCause::Heartbeat => cron::heartbeat::follow_ups_of(connection, end)?,
        TurnCause::SubAgent(task) => {
            let (follow_ups, awaited) = sub_agents::follow_ups_of(connection, task, end, phrases)?;
            (awaiting, sub_agent) = (awaited, Some(task.label.clone()));
            follow_ups
        }
        TurnCause::Person | TurnCause::Note(_) => {
            FollowUps { reply: Some(end.reply.to_owned()), ..FollowUps::default() }
        }
    };
    let mut sessions = Vec::with_capacity(messages.len());
    for mut draft in messages {
        draft.origin.taint.extend(end.taint.iter().cloned());
        if draft.insert(connection)? == InsertOutcome::New {
            sessions.push(draft.message.session_key());
        }
    }
    let notice_channel = match notice {
        Some(notice) => bus.write_owner_notice(
            connection,
            daoyou_channels::new_id(),
            OutboxSlot::notice(NoticeKind::FollowUp),
            notice,
        )?,
        None => None,
    };
    let is_failed_run = matches!(cause, TurnCause::Job(_)) && end.error.is_some();
    Ok(AppliedFollowUps { reply, sessions, notice_channel, awaiting, sub_agent, is_failed_run })
}

/// Wakes everything that the commit gave work to.
pub(super) fn wake(bus: &MessageBus, retries: &RetryScheduler, followed: AppliedFollowUps) {
    if followed.is_failed_run {
        bus.metrics().cron.run_failed();
    }
    if let Some(label) = followed.sub_agent {
        crash::point("child_ended", &label);
    }
    if let Some(AwaitingTurn { turn, session }) = followed.awaiting {
        retries.resume(turn);
        bus.wake_session(session);
    }
    for session in followed.sessions {
        bus.inbound_written(session, 1);
    }
    if let Some(channel) = followed.notice_channel {
        bus.outbound_written(&channel, 1);
    }
}
