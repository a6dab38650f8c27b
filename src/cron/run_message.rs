//! The message of a run: a prompt for the model, or a text that is delivered without one.

use std::time::Duration;

use daoyou_channels::settings::Span;
use daoyou_channels::{InboundMessage, OutboundContext, TurnSettings};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::job_text::display_name;
use super::prompt::{self, PromptNames};
use super::{CronSettings, DeliveryMode, Job, JobTask};
use crate::bus::InboundDraft;
use crate::origin::{JobTurn, TurnCause, TurnOrigin};
use crate::store::{Connection, StoreError, job_runs};

/// The sender of the message.
pub const SENDER: &str = "cron";

/// A slot that runs.
#[derive(Clone, Copy, Debug)]
pub struct RunSlot {
    pub due: Timestamp,
    /// The number of missed slots before this one, which the run replaces.
    pub passed_over: usize,
    /// A person started the run by hand, outside the schedule.
    pub by_hand: bool,
}

/// The work of a run.
#[derive(Clone, Debug)]
pub enum RunWork {
    /// A turn answers the message.
    Ask(InboundDraft),
    /// The text is delivered unchanged.
    Say(InboundDraft, String),
    /// The prompt cannot be rendered, for this reason.
    Fail(InboundDraft, String),
}

/// Returns the work of the run of `job` for `slot`, at the time `now`.
pub fn work(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    slot: RunSlot,
    now: Timestamp,
) -> Result<RunWork, StoreError> {
    let draft = |content: String| draft(job, settings, slot, now, content);
    Ok(match &job.body.task {
        JobTask::Message(text) => RunWork::Say(draft(text.clone()), text.clone()),
        JobTask::Prompt(template) => match prompt::render(template, &names(connection, job, settings, now)?) {
            Ok(content) => RunWork::Ask(draft(content)),
            Err(reason) => RunWork::Fail(draft(template.clone()), reason),
        },
    })
}

/// Returns the origin data that identifies the run of `job` for `slot`.
pub fn job_turn(job: &Job, slot: RunSlot) -> JobTurn {
    JobTurn {
        job: job.row.id.clone(),
        due: slot.due.as_millisecond(),
        chat: job.body.target.session.clone(),
        by_hand: slot.by_hand,
    }
}

fn draft(job: &Job, settings: &CronSettings, slot: RunSlot, now: Timestamp, content: String) -> InboundDraft {
    let body = &job.body;
    // The row of the run already makes the slot unique, so the message needs no id for deduplication.
    let mut message =
        InboundMessage::text(&body.target.channel, &body.target.chat_id, SENDER, body.maker.trust, content);
    message.metadata.clone_from(&body.target.metadata);
    (message.received_at, message.session) = (now, Some(job.session()));
    // This turn uses the settings of the chat's turns, or those of the turn that created the job there.
    let TurnOrigin { settings: kept, reply, follow_ups, on_behalf_of, taint, .. } = body.target.origin.clone();
    let about = about(job, settings, slot, now);
    let settings = TurnSettings {
        model: body.model.clone().or(kept.model),
        prompt: kept.prompt,
        tools: kept.tools,
        agent: body.agent.clone().or(kept.agent),
        within: kept.within,
        about,
        fresh: body.session.is_none(),
        ..TurnSettings::default()
    };
    let reply = OutboundContext { job: Some(display_name(&job.row).to_owned()), ..reply };
    let cause = TurnCause::Job(job_turn(job, slot));
    InboundDraft::with_origin(message, TurnOrigin { cause, follow_ups, on_behalf_of, taint, settings, reply })
}

/// Returns the lines that tell the model about the run.
fn about(job: &Job, settings: &CronSettings, slot: RunSlot, now: Timestamp) -> Vec<String> {
    let Job { row, body } = job;
    let due = shown(slot.due, &job.zone(&settings.zone));
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
        DeliveryMode::Always => {}
        DeliveryMode::OnChange => {
            lines.push("Your answer is sent to the chat only when it is another than the last one.".to_owned());
        }
        DeliveryMode::WhenAsked => lines.push(
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

fn names(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    now: Timestamp,
) -> Result<PromptNames, StoreError> {
    let zone = job.zone(&settings.zone);
    let last = job_runs::last_run_at(connection, &job.row.id)?.and_then(|at| Timestamp::from_millisecond(at).ok());
    Ok(PromptNames {
        time: shown(now, &zone),
        last_run: last.map(|at| shown(at, &zone)).unwrap_or_default(),
        last_result: job.row.result.clone().unwrap_or_default(),
        name: job.row.name.clone(),
    })
}

/// `2026-03-08 09:00 (Asia/Shanghai)`.
pub fn shown(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    let zone = zone.iana_name().map_or_else(|| at.strftime("%Z").to_string(), str::to_owned);
    format!("{} ({zone})", at.strftime("%Y-%m-%d %H:%M"))
}
