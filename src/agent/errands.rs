//! What follows from the end of a turn that runs on an errand, written within the commit of that end.

use daoyou_channels::SessionKey;
use uuid::Uuid;

use crate::bus::{Errand, MessageBus, RunEnd, WhatFollows};
use crate::cron;
use crate::store::inbox::Inserted;
use crate::store::{Connection, StoreError};

/// What stands in the store after the commit, and whom the bus is to wake.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Followed {
    /// What is delivered to the chat of the turn's message, if anything.
    pub reply: Option<String>,
    /// Sessions that have a new message.
    pub sessions: Vec<SessionKey>,
    /// The channel on which the owner is told something.
    pub told: Option<String>,
}

/// Writes what follows.
pub(super) fn follow(
    connection: &Connection,
    bus: &MessageBus,
    errand: &Errand,
    end: &RunEnd<'_>,
) -> Result<Followed, StoreError> {
    let WhatFollows { reply, messages, notice } = match errand {
        Errand::Job(job) => cron::ended(connection, job, end)?,
        Errand::Heartbeat => cron::heartbeat::ended(connection, end)?,
        Errand::SubAgent(_) => WhatFollows { reply: Some(end.reply.to_owned()), ..WhatFollows::default() },
    };
    let mut sessions = Vec::with_capacity(messages.len());
    for draft in messages {
        if draft.insert(connection)? == Inserted::New {
            sessions.push(draft.message.session_key());
        }
    }
    let told = match notice {
        Some(notice) => bus.tell_owner(connection, Uuid::now_v7(), "notice:errand", notice)?,
        None => None,
    };
    Ok(Followed { reply, sessions, told })
}

/// Wakes whom the commit gave something to do.
pub(super) fn wake(bus: &MessageBus, followed: Followed) {
    for session in followed.sessions {
        bus.inbound_written(session, 1);
    }
    if let Some(channel) = followed.told {
        bus.outbound_written(&channel, 1);
    }
}
