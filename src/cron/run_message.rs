//! The message that a run is: what the model is asked, or what is said without one.

use std::time::Duration;

use daoyou_channels::settings::Span;
use daoyou_channels::{InboundMessage, OutboundContext, TurnSettings};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::prompt::{self, Names};
use super::words::called;
use super::{Deliver, Job, Rules, Schedule, Task, time_zone};
use crate::bus::InboundDraft;
use crate::origin::{JobTurn, TurnCause, TurnOrigin};
use crate::store::{Connection, StoreError, job_runs};

/// Who writes it.
pub const SENDER: &str = "cron";

/// A slot that is run.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub due: Timestamp,
    /// Slots before it that were missed, and that this run stands for.
    pub passed_over: usize,
    /// Somebody asked for it, beside the schedule.
    pub by_hand: bool,
}

/// What a run does.
#[derive(Clone, Debug)]
pub enum Work {
    /// A turn answers it.
    Ask(InboundDraft),
    /// It is delivered as it stands.
    Say(InboundDraft, String),
    /// It cannot be asked, for this reason.
    Fail(InboundDraft, String),
}

/// What the run of `job` in `slot` does at `now`.
pub fn work(connection: &Connection, job: &Job, rules: &Rules, slot: Slot, now: Timestamp) -> Result<Work, StoreError> {
    let draft = |content: String| draft(job, rules, slot, now, content);
    Ok(match &job.body.task {
        Task::Message(text) => Work::Say(draft(text.clone()), text.clone()),
        Task::Prompt(template) => match prompt::render(template, &names(connection, job, rules, now)?) {
            Ok(content) => Work::Ask(draft(content)),
            Err(reason) => Work::Fail(draft(template.clone()), reason),
        },
    })
}

/// Returns what names the run of `slot`.
pub fn job_turn(job: &Job, slot: Slot) -> JobTurn {
    JobTurn {
        job: job.row.id.clone(),
        due: slot.due.as_millisecond(),
        chat: job.body.target.session.clone(),
        by_hand: slot.by_hand,
    }
}

fn draft(job: &Job, rules: &Rules, slot: Slot, now: Timestamp, content: String) -> InboundDraft {
    let body = &job.body;
    // The slot is unique by its run: the message has no id of a sender's.
    let mut message =
        InboundMessage::text(&body.target.channel, &body.target.chat_id, SENDER, body.maker.trust, content);
    message.metadata.clone_from(&body.target.metadata);
    (message.received_at, message.session) = (now, Some(job.session()));
    // What holds for the turns of the chat, or of whoever made the job there, holds for this one.
    let TurnOrigin { settings: kept, reply, follow_ups, on_behalf_of, .. } = body.target.origin.clone();
    let settings = TurnSettings {
        model: body.model.clone().or(kept.model),
        prompt: kept.prompt,
        tools: kept.tools,
        about: about(job, rules, slot, now),
        fresh: body.session.is_none(),
        ..TurnSettings::default()
    };
    let reply = OutboundContext { job: Some(called(&job.row).to_owned()), ..reply };
    let cause = TurnCause::Job(job_turn(job, slot));
    InboundDraft::with_origin(message, TurnOrigin { cause, follow_ups, on_behalf_of, settings, reply })
}

/// What the model is told of the run, a line each.
fn about(job: &Job, rules: &Rules, slot: Slot, now: Timestamp) -> Vec<String> {
    let Job { row, body } = job;
    let due = shown(slot.due, &zone_of(job, rules));
    let first = if slot.by_hand {
        format!("This is the scheduled job {:?}, run by hand now.", row.name)
    } else {
        format!("This is the scheduled job {:?}, due {due}{}.", row.name, late(slot.due, now))
    };
    let mut lines = vec![first];
    if slot.passed_over > 0 {
        lines.push(format!(
            "It was also due {} times before that, which were missed; this run stands for them.",
            slot.passed_over
        ));
    }
    match body.deliver {
        Deliver::Always => {}
        Deliver::OnChange => {
            lines.push("Your answer is sent to the chat only when it is another than the last one.".to_owned());
        }
        Deliver::WhenAsked => lines.push(
            "When there is nothing to tell, answer NO_REPLY and nothing else: that is kept and not sent to the chat."
                .to_owned(),
        ),
    }
    lines
}

fn late(due: Timestamp, now: Timestamp) -> String {
    let late = Duration::try_from(now.duration_since(due)).unwrap_or_default();
    let minutes = late.as_secs() / 60;
    if minutes == 0 { String::new() } else { format!(" (late by {})", Span::from_secs(minutes * 60)) }
}

fn names(connection: &Connection, job: &Job, rules: &Rules, now: Timestamp) -> Result<Names, StoreError> {
    let zone = zone_of(job, rules);
    let last = job_runs::last_run(connection, &job.row.id)?.and_then(|at| Timestamp::from_millisecond(at).ok());
    Ok(Names {
        time: shown(now, &zone),
        last_run: last.map(|at| shown(at, &zone)).unwrap_or_default(),
        last_result: job.row.result.clone().unwrap_or_default(),
        name: job.row.name.clone(),
    })
}

/// The job's own zone, or the owner's.
fn zone_of(job: &Job, rules: &Rules) -> TimeZone {
    let own = match &job.body.schedule {
        Schedule::Cron { tz, .. } => time_zone(tz).ok(),
        Schedule::At { .. } | Schedule::Every { .. } => None,
    };
    own.unwrap_or_else(|| rules.zone.clone())
}

/// `2026-03-08 09:00 (Asia/Shanghai)`.
pub fn shown(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    let zone = zone.iana_name().map_or_else(|| at.strftime("%Z").to_string(), str::to_owned);
    format!("{} ({zone})", at.strftime("%Y-%m-%d %H:%M"))
}
