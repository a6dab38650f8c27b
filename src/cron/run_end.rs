//! Records the end of a run, and determines the messages that follow from it, within the commit of that end.

use std::collections::BTreeSet;

use daoyou_channels::SessionKey;
use daoyou_channels::text::fill;
use jiff::Timestamp;
use uuid::Uuid;

use super::job_text::{display_name, shell_name};
use super::{CronSettings, DeliveryMode, Job, JobTask, Schedule};
use crate::bus::{EndedTurn, FollowUps, InboundDraft, OutboundBody, OutboxSlot, conversations};
use crate::origin::{JobTurn, SessionNote};
use crate::store::job_runs::{self, JobRunOutcome};
use crate::store::{Connection, StoreError, jobs, outbox};
use crate::text::minute_in_zone;

/// The answer of a model that has nothing to report.
const NO_REPLY: &str = "NO_REPLY";
/// The part of an answer that is kept for the next run, in characters.
const KEPT: usize = 4_000;
/// The error of a turn that a person stopped, which does not count as a failure of the job.
const STOPPED: &str = "stopped";

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub struct JobRunEnd<'a> {
    pub turn: Uuid,
    /// The channel of the output.
    pub channel: &'a str,
    pub chat_id: &'a str,
    /// The session of the run.
    pub session: &'a SessionKey,
    pub reply: &'a str,
    /// The reason why the run failed; `None` after a success.
    pub error: Option<&'a str>,
    /// The names of the foreign content that the run has read.
    pub taint: &'a BTreeSet<String>,
}

/// Records the end of a run's turn; returns the messages to deliver and the notices to send.
///
/// # Errors
/// Those of [`record_end`].
pub fn follow_ups_of(
    connection: &Connection,
    settings: &CronSettings,
    job_turn: &JobTurn,
    run: &EndedTurn<'_>,
) -> Result<FollowUps, StoreError> {
    let session = SessionKey::from(run.row.session.as_str());
    let end = JobRunEnd {
        turn: run.turn,
        channel: &run.row.channel,
        chat_id: &run.row.chat_id,
        session: &session,
        reply: run.reply,
        error: run.error,
        taint: &run.taint,
    };
    record_end(connection, settings, job_turn, &end)
}

/// Records the end of a run with or without a turn; returns the messages to deliver and the notices to send.
///
/// # Errors
/// The job or the sessions of its chat cannot be read, or the end cannot be written.
pub fn record_end(
    connection: &Connection,
    settings: &CronSettings,
    job_turn: &JobTurn,
    end: &JobRunEnd<'_>,
) -> Result<FollowUps, StoreError> {
    // The job may be removed or unreadable by now. Its output is then delivered as usual.
    let job = jobs::find(connection, &job_turn.job)?.and_then(|row| Job::read(row).ok());
    let mut follows = match end.error {
        None => record_success(connection, job_turn, end, job.as_ref())?,
        Some(error) => record_failure(connection, settings, job_turn, end, (job.as_ref(), error))?,
    };
    if let Some(note) = session_note(connection, settings, job_turn, end, (job.as_ref(), follows.reply.as_deref()))? {
        let sessions = notified_sessions(connection, job_turn, end)?.into_iter();
        follows.messages.extend(sessions.map(|session| InboundDraft::of_note(&note, session)));
    }
    Ok(follows)
}

fn record_success(
    connection: &Connection,
    job_turn: &JobTurn,
    end: &JobRunEnd<'_>,
    job: Option<&Job>,
) -> Result<FollowUps, StoreError> {
    let is_message = job.is_some_and(|job| matches!(job.body.task, JobTask::Message(_)));
    let has_something = is_message || !is_marker_alone(end.reply, NO_REPLY);
    let result = remembered_part(end.reply);
    let is_news = match job {
        Some(job) if !is_message && job.body.deliver == DeliveryMode::OnChange => {
            job.row.result.as_deref() != Some(result)
        }
        _ => true,
    };
    let sends = has_something && is_news;
    job_runs::end(connection, &job_turn.job, job_turn.due, JobRunOutcome::Ok, None, sends)?;
    if let Some(job) = job {
        if job.body.delete_after_run && !job_turn.by_hand {
            jobs::remove(connection, &job_turn.job)?;
        } else if has_something {
            jobs::set_result(connection, &job_turn.job, result, end.taint)?;
        } else {
            jobs::count_success(connection, &job_turn.job)?;
        }
    }
    Ok(FollowUps { reply: sends.then(|| end.reply.to_owned()), ..FollowUps::default() })
}

fn record_failure(
    connection: &Connection,
    settings: &CronSettings,
    job_turn: &JobTurn,
    end: &JobRunEnd<'_>,
    (job, error): (Option<&Job>, &str),
) -> Result<FollowUps, StoreError> {
    let is_delivered = job.is_none_or(|job| job.body.deliver == DeliveryMode::Always);
    let counts = error != STOPPED && !job_turn.by_hand;
    let is_over = |job: &&Job| job.body.delete_after_run && matches!(job.body.schedule, Schedule::At { .. });
    if error == STOPPED && !job_turn.by_hand && job.filter(is_over).is_some() {
        // A job of one time whose run a person stopped does not run again.
        jobs::remove(connection, &job_turn.job)?;
    }
    let paused = match job.filter(|_| counts) {
        Some(job) => count_failure(connection, settings, job, error)?,
        None => None,
    };
    job_runs::end(
        connection,
        &job_turn.job,
        job_turn.due,
        JobRunOutcome::Error,
        Some(error),
        is_delivered || paused.is_some(),
    )?;
    let reply = match (&paused, is_delivered) {
        (Some(paused), true) => Some(format!("{}\n\n{paused}", end.reply)),
        (Some(paused), false) => Some(paused.clone()),
        (None, true) => Some(end.reply.to_owned()),
        (None, false) => None,
    };
    let (channel, chat_id) = &settings.owner;
    let notice = paused.filter(|_| channel != end.channel || chat_id != end.chat_id);
    Ok(FollowUps { reply, notice, ..FollowUps::default() })
}

/// Counts a failure. If the job fails repeatedly, disables it and returns a notice. A job of one time is disabled at once, with
/// the reason.
fn count_failure(
    connection: &Connection,
    settings: &CronSettings,
    job: &Job,
    error: &str,
) -> Result<Option<String>, StoreError> {
    let row = &job.row;
    let failures = jobs::count_failure(connection, &row.id)?;
    if matches!(job.body.schedule, Schedule::At { .. }) {
        jobs::set_enabled(connection, &row.id, false, None, Some(&format!("its run failed: {error}")))?;
        return Ok(None);
    }
    if failures < settings.config.pause_after || !row.enabled {
        return Ok(None);
    }
    let reason = format!("{failures} runs in a row failed, the last with: {error}");
    jobs::set_enabled(connection, &row.id, false, None, Some(&reason))?;
    tracing::warn!(job = row.id, name = row.name, failures, error, "a scheduled job is paused");
    Ok(Some(fill(settings.phrases.job_paused, &[display_name(row), &failures.to_string(), error, &shell_name(row)])))
}

/// Returns the chat's session, or its most recently used ones if each sender has an own session.
fn notified_sessions(
    connection: &Connection,
    job_turn: &JobTurn,
    end: &JobRunEnd<'_>,
) -> Result<Vec<SessionKey>, StoreError> {
    if job_turn.chat == SessionKey::of_chat(end.channel, end.chat_id) {
        return conversations(connection, end.channel, end.chat_id);
    }
    Ok(vec![job_turn.chat.clone()])
}

/// Returns the note for the session of the chat that received the output of a run; `None` if the run was in that session.
fn session_note(
    connection: &Connection,
    settings: &CronSettings,
    job_turn: &JobTurn,
    end: &JobRunEnd<'_>,
    (job, reply): (Option<&Job>, Option<&str>),
) -> Result<Option<SessionNote>, StoreError> {
    if *end.session == job_turn.chat {
        return Ok(None);
    }
    let mut sent = Vec::new();
    for row in outbox::of_turn(connection, end.turn)? {
        if matches!(OutboxSlot::parse(&row.slot), Some(OutboxSlot::Tool { .. }))
            && row.channel == end.channel
            && row.chat_id == end.chat_id
        {
            sent.push(serde_json::from_str::<OutboundBody>(&row.body)?.content);
        }
    }
    sent.extend(reply.map(str::to_owned));
    if sent.is_empty() {
        return Ok(None);
    }
    let name = job.map_or(job_turn.job.as_str(), |job| &job.row.name);
    let due = Timestamp::from_millisecond(job_turn.due).unwrap_or_default();
    let due = minute_in_zone(due, &settings.zone);
    let note = format!("[The scheduled job {name:?} (id {}), due {due}, sent this to the chat:]", job_turn.job);
    Ok(Some(SessionNote { note, reply: sent.join("\n\n") }))
}

/// Returns true if an answer is the marker alone. Quotation marks, emphasis and punctuation around it do not count.
pub(super) fn is_marker_alone(reply: &str, marker: &str) -> bool {
    reply.trim_matches(|c: char| !c.is_alphanumeric()) == marker
}

/// Returns the part of an answer that is kept for the next run.
fn remembered_part(reply: &str) -> &str {
    let reply = reply.trim();
    reply.char_indices().nth(KEPT).map_or(reply, |(at, _)| &reply[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reply_is_recognised_in_its_forms() {
        for (reply, expected) in [
            ("NO_REPLY", true),
            (" `NO_REPLY`\n", true),
            ("\"NO_REPLY\"", true),
            ("**NO_REPLY**", true),
            ("NO_REPLY.", true),
            ("**NO_REPLY**.", true),
            ("__NO_REPLY__", true),
            ("「NO_REPLY」。", true),
            ("```\nNO_REPLY\n```", true),
            ("> NO_REPLY!", true),
            ("no_reply", false),
            ("NO_REPLY. Nothing is new.", false),
            ("I answer NO_REPLY", false),
            ("NO_REPLY: nothing new", false),
            ("", false),
        ] {
            assert_eq!(is_marker_alone(reply, NO_REPLY), expected, "{reply:?}");
        }
        assert_eq!(remembered_part(&"道".repeat(KEPT + 1)).chars().count(), KEPT);
    }
}
