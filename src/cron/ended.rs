//! What follows from the end of a run, within the commit of that end.

use daoyou_channels::SessionKey;
use jiff::Timestamp;
use uuid::Uuid;

use super::rules::fill;
use super::run_message::shown;
use super::words::{called, called_in_shell};
use super::{Deliver, Job, Rules, Schedule, Task};
use crate::bus::{EndedTurn, FollowUps, InboundDraft, OutboundBody, conversations};
use crate::origin::{JobTurn, SessionNote};
use crate::store::job_runs::{self, RunOutcome};
use crate::store::{Connection, StoreError, jobs, outbox};

/// What a model answers that has nothing to tell.
const NO_REPLY: &str = "NO_REPLY";
/// What it may stand in.
const QUOTES: [char; 9] = ['"', '\'', '`', '*', '“', '”', '‘', '’', '「'];
/// Characters of an answer that are kept for the next run.
const KEPT: usize = 4_000;
/// The word for a turn that somebody stopped: no fault of the job.
const STOPPED: &str = "stopped";

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    pub turn: Uuid,
    /// Where it answers.
    pub channel: &'a str,
    pub chat_id: &'a str,
    /// The session that it ran in.
    pub session: &'a SessionKey,
    pub reply: &'a str,
    /// Why it failed.
    pub error: Option<&'a str>,
}

/// Writes how the turn of a run ended, and answers what is delivered and who is told.
pub fn ended(
    connection: &Connection,
    rules: &Rules,
    job_turn: &JobTurn,
    run: &EndedTurn<'_>,
) -> Result<FollowUps, StoreError> {
    let session = SessionKey::from(run.row.session.as_str());
    let end = End {
        turn: run.turn,
        channel: &run.row.channel,
        chat_id: &run.row.chat_id,
        session: &session,
        reply: run.reply,
        error: run.error,
    };
    settle(connection, rules, job_turn, &end)
}

/// As [`ended`], also for runs that need no turn.
pub fn settle(
    connection: &Connection,
    rules: &Rules,
    job_turn: &JobTurn,
    end: &End<'_>,
) -> Result<FollowUps, StoreError> {
    // It may be gone by now, or nobody can read it any more: then what it answers is delivered as usual.
    let job = jobs::find(connection, &job_turn.job)?.and_then(|row| Job::read(row).ok());
    let mut follows = match end.error {
        None => went_well(connection, job_turn, end, job.as_ref())?,
        Some(error) => failed(connection, rules, job_turn, end, (job.as_ref(), error))?,
    };
    if let Some(told) = told(connection, rules, job_turn, end, (job.as_ref(), follows.reply.as_deref()))? {
        for session in who_is_told(connection, job_turn, end)? {
            follows.messages.push(InboundDraft::of_note(&told, session));
        }
    }
    Ok(follows)
}

fn went_well(
    connection: &Connection,
    job_turn: &JobTurn,
    end: &End<'_>,
    job: Option<&Job>,
) -> Result<FollowUps, StoreError> {
    let is_message = job.is_some_and(|job| matches!(job.body.task, Task::Message(_)));
    let has_something = is_message || !is_no_reply(end.reply);
    let result = kept(end.reply);
    let is_news = match job {
        Some(job) if !is_message && job.body.deliver == Deliver::OnChange => job.row.result.as_deref() != Some(result),
        _ => true,
    };
    let sends = has_something && is_news;
    job_runs::end(connection, &job_turn.job, job_turn.due, RunOutcome::Ok, None, sends)?;
    if let Some(job) = job {
        if job.body.delete_after_run && !job_turn.by_hand {
            jobs::remove(connection, &job_turn.job)?;
        } else if has_something {
            jobs::set_result(connection, &job_turn.job, result)?;
        } else {
            jobs::count_success(connection, &job_turn.job)?;
        }
    }
    Ok(FollowUps { reply: sends.then(|| end.reply.to_owned()), ..FollowUps::default() })
}

fn failed(
    connection: &Connection,
    rules: &Rules,
    job_turn: &JobTurn,
    end: &End<'_>,
    (job, error): (Option<&Job>, &str),
) -> Result<FollowUps, StoreError> {
    let is_told = job.is_none_or(|job| job.body.deliver == Deliver::Always);
    let counts = error != STOPPED && !job_turn.by_hand;
    let is_over = |job: &&Job| job.body.delete_after_run && matches!(job.body.schedule, Schedule::At { .. });
    if error == STOPPED && !job_turn.by_hand && job.filter(is_over).is_some() {
        // It was to run once, and somebody has seen to that.
        jobs::remove(connection, &job_turn.job)?;
    }
    let paused = match job.filter(|_| counts) {
        Some(job) => put_by(connection, rules, job, error)?,
        None => None,
    };
    job_runs::end(
        connection,
        &job_turn.job,
        job_turn.due,
        RunOutcome::Error,
        Some(error),
        is_told || paused.is_some(),
    )?;
    let reply = match (&paused, is_told) {
        (Some(paused), true) => Some(format!("{}\n\n{paused}", end.reply)),
        (Some(paused), false) => Some(paused.clone()),
        (None, true) => Some(end.reply.to_owned()),
        (None, false) => None,
    };
    let is_owner = |(channel, chat_id): &(String, String)| channel == end.channel && chat_id == end.chat_id;
    let notice = paused.filter(|_| !rules.owner.as_ref().is_some_and(is_owner));
    Ok(FollowUps { reply, notice, ..FollowUps::default() })
}

/// Counts a failure. A job that fails again and again is disabled: then answers what people are told. One that runs once
/// stays with the reason.
fn put_by(connection: &Connection, rules: &Rules, job: &Job, error: &str) -> Result<Option<String>, StoreError> {
    let row = &job.row;
    let failures = jobs::count_failure(connection, &row.id)?;
    if matches!(job.body.schedule, Schedule::At { .. }) {
        jobs::set_enabled(connection, &row.id, false, None, Some(&format!("its run failed: {error}")))?;
        return Ok(None);
    }
    if failures < rules.pause_after || !row.enabled {
        return Ok(None);
    }
    let reason = format!("{failures} runs in a row failed, the last with: {error}");
    jobs::set_enabled(connection, &row.id, false, None, Some(&reason))?;
    tracing::warn!(job = row.id, name = row.name, failures, error, "a scheduled job is paused");
    Ok(Some(fill(rules.words.paused, &[called(row), &failures.to_string(), error, &called_in_shell(row)])))
}

/// The chat's session; where each sender has his own, those of the chat that were used last.
fn who_is_told(connection: &Connection, job_turn: &JobTurn, end: &End<'_>) -> Result<Vec<SessionKey>, StoreError> {
    if job_turn.chat == SessionKey::of_chat(end.channel, end.chat_id) {
        return conversations(connection, end.channel, end.chat_id);
    }
    Ok(vec![job_turn.chat.clone()])
}

/// What the chat's session is told of what the run sent there, unless it ran in it.
fn told(
    connection: &Connection,
    rules: &Rules,
    job_turn: &JobTurn,
    end: &End<'_>,
    (job, reply): (Option<&Job>, Option<&str>),
) -> Result<Option<SessionNote>, StoreError> {
    if *end.session == job_turn.chat {
        return Ok(None);
    }
    let mut said = Vec::new();
    for row in outbox::of_turn(connection, end.turn)? {
        if row.slot.starts_with("tool:") && row.channel == end.channel && row.chat_id == end.chat_id {
            said.push(serde_json::from_str::<OutboundBody>(&row.body)?.content);
        }
    }
    said.extend(reply.map(str::to_owned));
    if said.is_empty() {
        return Ok(None);
    }
    let name = job.map_or(job_turn.job.as_str(), |job| &job.row.name);
    let due = Timestamp::from_millisecond(job_turn.due).unwrap_or_default();
    let due = shown(due, &rules.zone);
    let note = format!("[The scheduled job {name:?} (id {}), due {due}, sent this to the chat:]", job_turn.job);
    Ok(Some(SessionNote { note, said: said.join("\n\n") }))
}

/// Whether a model says that it has nothing to tell.
fn is_no_reply(reply: &str) -> bool {
    reply.trim_matches(|c: char| c.is_whitespace() || QUOTES.contains(&c)) == NO_REPLY
}

/// What of an answer is kept for the next run.
fn kept(reply: &str) -> &str {
    let reply = reply.trim();
    reply.char_indices().nth(KEPT).map_or(reply, |(at, _)| &reply[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_none_is_known() {
        for (reply, expected) in [
            ("NO_REPLY", true),
            (" `NO_REPLY`\n", true),
            ("\"NO_REPLY\"", true),
            ("**NO_REPLY**", true),
            ("no_reply", false),
            ("NO_REPLY: nothing new", false),
            ("", false),
        ] {
            assert_eq!(is_no_reply(reply), expected, "{reply:?}");
        }
        assert_eq!(kept(&"道".repeat(KEPT + 1)).chars().count(), KEPT);
    }
}
