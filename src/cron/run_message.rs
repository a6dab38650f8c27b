//! The message that a run is: what the model is asked, or what is said without one.

use std::time::Duration;

use daoyou_channels::message::{JOB_KEY, MODEL_KEY};
use daoyou_channels::settings::Span;
use daoyou_channels::{InboundMessage, TurnSettings};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::prompt::{self, Names};
use super::words::called;
use super::{Deliver, Job, Rules, Schedule, Task, time_zone};
use crate::bus::{Errand, InboundDraft, JobErrand};
use crate::store::{Connection, StoreError, job_runs};

/// Who writes it.
pub const SENDER: &str = "cron";

/// What of a message's metadata was of that message alone.
const OF_ONE_MESSAGE: [&str; 5] = ["turn", "errand", "told", MODEL_KEY, JOB_KEY];

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
    let draft = |content: String| InboundDraft::new(message(job, rules, slot, now, content));
    Ok(match &job.body.task {
        Task::Message(text) => Work::Say(draft(text.clone()), text.clone()),
        Task::Prompt(template) => match prompt::render(template, &names(connection, job, rules, now)?) {
            Ok(content) => Work::Ask(draft(content)),
            Err(reason) => Work::Fail(draft(template.clone()), reason),
        },
    })
}

/// On whose errand the run is.
pub fn errand(job: &Job, slot: Slot) -> JobErrand {
    JobErrand {
        job: job.row.id.clone(),
        due: slot.due.as_millisecond(),
        chat: job.body.target.session.clone(),
        by_hand: slot.by_hand,
    }
}

fn message(job: &Job, rules: &Rules, slot: Slot, now: Timestamp, content: String) -> InboundMessage {
    let body = &job.body;
    InboundMessage {
        channel: body.target.channel.clone(),
        // The slot is unique by its run, whatever a sender calls his messages.
        external_id: None,
        chat_id: body.target.chat_id.clone(),
        sender: SENDER.to_owned(),
        trust: body.maker.trust,
        content,
        attachments: Vec::new(),
        metadata: metadata(job, rules, slot, now),
        received_at: now,
        session: Some(job.session()),
    }
}

fn metadata(job: &Job, rules: &Rules, slot: Slot, now: Timestamp) -> Map<String, Value> {
    let mut metadata = job.body.target.metadata.clone();
    // What holds for the turns of the chat, or of whoever made the job there, holds for this one.
    let kept = serde_json::to_string(&metadata).map(|text| TurnSettings::of(&text)).unwrap_or_default();
    for key in OF_ONE_MESSAGE {
        metadata.remove(key);
    }
    let settings = TurnSettings {
        model: job.body.model.clone().or(kept.model),
        prompt: kept.prompt,
        tools: kept.tools,
        about: about(job, rules, slot, now),
        fresh: job.body.session.is_none(),
        ..TurnSettings::default()
    };
    settings.put(&mut metadata);
    Errand::Job(errand(job, slot)).put(&mut metadata);
    metadata.insert(JOB_KEY.to_owned(), called(&job.row).into());
    metadata
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
