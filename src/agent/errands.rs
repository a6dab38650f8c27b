//! What follows from the end of a turn that runs on an errand, written within the commit of that end.

use std::sync::Arc;

use daoyou_channels::SessionKey;

use super::phrases::Phrases;
use super::sub_agents::{self, Awaiting};
use super::waiting::WaitingRoom;
use crate::bus::{EndedTurn, FollowUps, MessageBus};
use crate::crash;
use crate::cron;
use crate::origin::TurnCause;
use crate::store::inbox::Inserted;
use crate::store::{Connection, StoreError};

/// What holds for errands.
#[derive(Clone, Debug)]
pub struct ErrandRules {
    pub jobs: Arc<cron::CronSettings>,
}

/// What stands in the store after the commit, and whom the bus is to wake.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Followed {
    /// What is delivered to the chat of the turn's message, if anything.
    pub reply: Option<String>,
    /// Sessions that have a new message.
    pub sessions: Vec<SessionKey>,
    /// The channel on which the owner is told something.
    pub told: Option<String>,
    /// The turn that waited for this end.
    pub awaiting: Option<Awaiting>,
    /// The sub-agent that has ended, by its label.
    pub sub_agent: Option<String>,
}

/// Writes what follows.
pub(super) fn follow(
    connection: &Connection,
    bus: &MessageBus,
    rules: &ErrandRules,
    cause: &TurnCause,
    end: &EndedTurn<'_>,
    phrases: &Phrases,
) -> Result<Followed, StoreError> {
    let (mut awaiting, mut sub_agent) = (None, None);
    let FollowUps { reply, messages, notice } = match cause {
        TurnCause::Job(job) => {
            if end.error.is_some() {
                bus.metrics().cron.run_failed();
            }
            cron::ended(connection, &rules.jobs, job, end)?
        }
        TurnCause::Heartbeat => cron::heartbeat::ended(connection, end)?,
        TurnCause::SubAgent(task) => {
            let (follow_ups, awaited) = sub_agents::ended(connection, task, end, phrases)?;
            (awaiting, sub_agent) = (awaited, Some(task.label.clone()));
            follow_ups
        }
        TurnCause::Person | TurnCause::Note(_) => {
            FollowUps { reply: Some(end.reply.to_owned()), ..FollowUps::default() }
        }
    };
    let mut sessions = Vec::with_capacity(messages.len());
    for draft in messages {
        if draft.insert(connection)? == Inserted::New {
            sessions.push(draft.message.session_key());
        }
    }
    let told = match notice {
        Some(notice) => bus.tell_owner(connection, daoyou_channels::new_id(), "notice:errand", notice)?,
        None => None,
    };
    Ok(Followed { reply, sessions, told, awaiting, sub_agent })
}

/// Wakes whom the commit gave something to do.
pub(super) fn wake(bus: &MessageBus, room: &WaitingRoom, followed: Followed) {
    if let Some(label) = followed.sub_agent {
        crash::point("child_ended", &label);
    }
    if let Some(Awaiting { turn, session }) = followed.awaiting {
        room.rouse(turn);
        bus.nudge(session);
    }
    for session in followed.sessions {
        bus.inbound_written(session, 1);
    }
    if let Some(channel) = followed.told {
        bus.outbound_written(&channel, 1);
    }
}
