//! `cron.json`, the file in which other assistants keep their jobs. The import reads it job by job. Importing an export loses
//! nothing.

use std::collections::BTreeSet;

use daoyou_channels::settings::HumanDuration;
use daoyou_channels::{SessionKey, Trust, TurnSettings};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::job_request::{check_interval, to_millisecond};
use super::jobs::invalid;
use super::schedule::zone_name;
use super::{
    DeliveryMode, DeliveryTarget, Job, JobBody, JobContext, JobError, JobMaker, JobOrigin, JobScope, JobTask,
    MisfirePolicy, NewJob, Schedule, ScheduleError, UnreadableJob, add, list, set_enabled,
};
use crate::origin::{FollowUpCount, TurnOrigin};
use crate::store::job_runs::{self, LastRun};
use crate::store::{Connection, StoreError, jobs};
use crate::text::{time_expression, truncate};

/// The version that is read and written.
const VERSION: u64 = 1;
/// The milliseconds of a day.
const MILLIS_OF_DAY: i64 = 86_400_000;
/// The longest id, in characters.
const MAX_ID: usize = 64;
/// The longest part of an invalid id that an error repeats, in characters.
const MAX_SHOWN: usize = 40;

/// The result of an import, for each row of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    pub imported: Vec<ImportedRow>,
    /// Rows whose jobs exist already.
    pub unchanged: Vec<ImportedRow>,
    pub refused: Vec<RefusedRow>,
}

/// A row whose job is in the store now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportedRow {
    /// The position in the file, from 1.
    pub row: usize,
    pub id: String,
    pub name: String,
    /// A note on a value that was read differently than the file may mean it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// A row that was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedRow {
    pub row: usize,
    /// The id, if the row has one.
    pub id: Option<String>,
    pub name: Option<String>,
    pub reason: String,
}

/// One row of the file. Other fields are ignored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JobFileRow {
    id: Option<String>,
    name: Option<String>,
    enabled: Option<bool>,
    schedule: Value,
    payload: Value,
    state: Value,
    created_at_ms: Option<i64>,
    updated_at_ms: Option<i64>,
    delete_after_run: Option<bool>,
    // Only daoyou writes the following fields.
    session: Option<SessionKey>,
    model: Option<String>,
    agent: Option<String>,
    deliver: Option<DeliveryMode>,
    misfire: Option<MisfirePolicy>,
    stale_after: Option<HumanDuration>,
    jitter: Option<HumanDuration>,
    maker: Option<JobMaker>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FileSchedule {
    kind: Option<FileScheduleKind>,
    at_ms: Option<i64>,
    every_ms: Option<i64>,
    anchor_ms: Option<i64>,
    expr: Option<String>,
    /// The zone of `expr`; for an interval of whole days that keeps its clock time, the zone of the clock.
    tz: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileScheduleKind {
    At,
    Every,
    Cron,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct FilePayload {
    kind: Option<FileKind>,
    message: Option<String>,
    deliver: Option<bool>,
    channel: Option<String>,
    to: Option<String>,
    session: Option<SessionKey>,
    metadata: Map<String, Value>,
    origin: TurnOrigin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileKind {
    AgentTurn,
    SystemEvent,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FileState {
    next_run_at_ms: Option<i64>,
}

/// Reads a file and adds its jobs one by one: a job that is refused is reported, and does not affect the others.
///
/// # Errors
/// The file is not JSON that can be read; the error gives line and column. Or the store cannot be written.
pub fn import(
    connection: &Connection,
    text: &str,
    job_context: &JobContext,
    now: Timestamp,
) -> Result<ImportReport, JobError> {
    let mut found = ImportReport::default();
    let mut seen = BTreeSet::new();
    for (at, value) in rows(text)?.into_iter().enumerate() {
        let row = at + 1;
        let word = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let (id, name) = (word("id"), word("name"));
        let taken = if id.as_ref().is_some_and(|id| !seen.insert(id.clone())) {
            invalid("the file holds two jobs with this id; the first one counts")
        } else {
            import_row(connection, value, job_context, now)
        };
        match taken {
            Ok(AcceptedRow { job, note, is_new }) => {
                let row = ImportedRow { row, id: job.row.id, name: job.row.name, note };
                if is_new { found.imported.push(row) } else { found.unchanged.push(row) }
            }
            Err(JobError::Store(error)) => return Err(error.into()),
            Err(error) => found.refused.push(RefusedRow { row, id, name, reason: error.to_string() }),
        }
    }
    Ok(found)
}

/// Returns all jobs in the form of the file, and lists those that cannot be read.
///
/// # Errors
/// The store cannot be read.
pub fn export(connection: &Connection) -> Result<Value, StoreError> {
    let mut jobs = Vec::new();
    let mut left_out = Vec::new();
    for job in list(connection, &JobScope::All)? {
        match job {
            Ok(job) => jobs.push(written(&job, job_runs::newest_run(connection, &job.row.id)?.as_ref())),
            Err(unreadable) => {
                let UnreadableJob { row, error } = *unreadable;
                left_out.push(json!({ "id": row.id, "name": row.name, "error": error.to_string(), "body": row.body }));
            }
        }
    }
    let mut file = json!({ "version": VERSION, "jobs": jobs });
    if !left_out.is_empty() {
        file["unreadable"] = Value::Array(left_out);
    }
    Ok(file)
}

/// A row of the file whose job exists.
struct AcceptedRow {
    job: Job,
    note: Option<&'static str>,
    is_new: bool,
}

fn rows(text: &str) -> Result<Vec<Value>, JobError> {
    let file = daoyou_channels::json::from_str(text.trim_start_matches('\u{feff}'));
    let mut file = match file.map_err(|error| unreadable(&error))? {
        Value::Array(rows) => return Ok(rows),
        Value::Object(file) => file,
        _ => return invalid("the file holds no jobs: {\"version\": 1, \"jobs\": […]} is expected"),
    };
    if let Some(version) = file.get("version").filter(|version| **version != json!(VERSION)) {
        return invalid(format!("the file has version {version}; version {VERSION} can be read"));
    }
    match file.remove("jobs") {
        Some(Value::Array(rows)) => Ok(rows),
        _ => invalid("the file holds no list \"jobs\": {\"version\": 1, \"jobs\": […]} is expected"),
    }
}

fn unreadable(error: &serde_json::Error) -> JobError {
    JobError::Invalid(format!("the file cannot be read as JSON, so no job is imported: {error}"))
}

fn import_row(
    connection: &Connection,
    value: Value,
    job_context: &JobContext,
    now: Timestamp,
) -> Result<AcceptedRow, JobError> {
    let file: JobFileRow = part("", value)?;
    let schedule: FileSchedule = part("schedule", file.schedule.clone())?;
    let payload: FilePayload = part("payload", file.payload.clone())?;
    let state: FileState = if file.state.is_null() { FileState::default() } else { part("state", file.state.clone())? };
    let here = match &file.id {
        Some(id) => jobs::find(connection, check_id(id)?)?,
        None => None,
    };
    let here = here
        .map(Job::read)
        .transpose()
        .map_err(|_| JobError::Invalid("its id is that of a job here that cannot be read".to_owned()))?;
    let phase = state.next_run_at_ms.map(|ms| ("state.nextRunAtMs", ms));
    let phase = phase.or_else(|| file.created_at_ms.map(|ms| ("createdAtMs", ms)));
    let schedule = schedule.read(phase, here.as_ref(), job_context, now)?;
    let (id, name, is_enabled) = (file.id.clone(), file.name.clone().unwrap_or_default(), file.enabled.unwrap_or(true));
    let (body, note) = file.body(schedule, payload, job_context)?;
    if matches!(body.task, JobTask::Prompt(_)) {
        check_interval(&body.schedule, job_context.settings.config.min_interval.0, now)?;
    }
    let new = NewJob { id, name, body };
    if let Some(job) = here {
        let mut old = job.body.clone();
        // Earlier versions stored a more precise anchor than the file has.
        if let Schedule::Every { anchor, .. } | Schedule::Days { anchor, .. } = &mut old.schedule {
            *anchor = to_millisecond(*anchor);
        }
        let same_name = new.name.trim().is_empty() || new.name.trim() == job.row.name;
        if same_name && old == new.body && job.row.enabled == is_enabled {
            return Ok(AcceptedRow { job, note, is_new: false });
        }
        return invalid("another job has this id; remove that one, or change the id in the file");
    }
    let mut job = add(connection, &new, job_context.settings.config.max_jobs, now)?;
    if !is_enabled {
        job = set_enabled(connection, &job.row.id, false, now)?;
    }
    Ok(AcceptedRow { job, note, is_new: true })
}

/// Reads the job, or the part of it with this name. A value that is not allowed is named with its field.
fn part<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, JobError> {
    let named = if name.is_empty() { "the job" } else { name };
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return invalid(format!("{named}: it is missing")),
        Value::Array(_) => return invalid(format!("{named}: it is a list, not an object")),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return invalid(format!("{named}: it is a single value, not an object"));
        }
    };
    serde_json::from_value(Value::Object(fields.clone())).map_err(|error| {
        let read_alone = |(key, value): &(String, Value)| T::deserialize(json!({ key.as_str(): value }));
        let wrong = fields.into_iter().find_map(|field| read_alone(&field).err().map(|error| (field, error)));
        JobError::Invalid(match wrong {
            Some(((key, value), error)) => {
                let dot = if name.is_empty() { "" } else { "." };
                let shown = truncate(&value.to_string(), MAX_SHOWN);
                format!("{name}{dot}{key}: {shown} is not allowed; {}", allowed(&error.to_string()))
            }
            None => format!("{named}: {error}"),
        })
    })
}

/// Returns the allowed values according to an error of serde.
fn allowed(error: &str) -> String {
    let expected = error.split_once("expected ").map_or(error, |(_, expected)| expected);
    match expected {
        "i64" => "allowed is a whole number of milliseconds".to_owned(),
        "a boolean" => "allowed are true and false".to_owned(),
        "a string" => "allowed is a text".to_owned(),
        expected if expected == error => error.to_owned(),
        expected => format!("allowed is {expected}"),
    }
}

/// Returns the value of a field without which there is no job.
fn required<T>(field: &str, value: Option<T>, meaning: &str) -> Result<T, JobError> {
    value.ok_or_else(|| JobError::Invalid(format!("{field} is missing: {meaning}")))
}

fn check_id(id: &str) -> Result<&str, JobError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !id.is_empty() && id.len() <= MAX_ID && id.chars().all(is_plain) {
        return Ok(id);
    }
    invalid(format!("id: {:?}; ids have 1 to {MAX_ID} letters, digits, -, _ and .", truncate(id, MAX_SHOWN)))
}

fn moment(field: &str, ms: i64) -> Result<Timestamp, JobError> {
    Timestamp::from_millisecond(ms).map_err(|_| {
        let years = "allowed are milliseconds since 1970, up to the year 9999";
        JobError::Invalid(format!("{field}: {ms} is not allowed; {years}"))
    })
}

/// Reads an interval in milliseconds.
fn interval(ms: i64) -> Result<HumanDuration, JobError> {
    const ALLOWED: std::ops::RangeInclusive<u64> = 1_000..=1_000 * time_expression::MAX_SECONDS;
    match u64::try_from(ms) {
        Ok(ms) if ALLOWED.contains(&ms) => Ok(HumanDuration::from_millis(ms)),
        _ => invalid(format!(
            "schedule.everyMs: {ms} is not allowed; allowed are {} (1 second) to {} (100 years)",
            ALLOWED.start(),
            ALLOWED.end()
        )),
    }
}

impl FileSchedule {
    /// Reads the schedule. An interval without an anchor keeps the phase of `phase`: the field of the file's next run or creation
    /// time, and its value.
    fn read(
        self,
        phase: Option<(&str, i64)>,
        here: Option<&Job>,
        job_context: &JobContext,
        now: Timestamp,
    ) -> Result<Schedule, JobError> {
        let zone_of = |tz: Option<&str>| {
            job_context.zone_of(tz).map_err(|error| JobError::Invalid(format!("schedule.tz: {error}")))
        };
        match required("schedule.kind", self.kind, "at, every or cron")? {
            FileScheduleKind::At => {
                let at_ms = required("schedule.atMs", self.at_ms, "the time in milliseconds since 1970")?;
                let at = moment("schedule.atMs", at_ms)?;
                // A job of this time that has run here and was kept counts as unchanged.
                let is_known = here.is_some_and(|job| job.body.schedule == Schedule::At { at });
                if at <= now && !is_known {
                    return invalid(format!("schedule.atMs: its time, {at}, is past (it is {now:.0})"));
                }
                Ok(Schedule::At { at })
            }
            FileScheduleKind::Every => {
                let every = interval(required("schedule.everyMs", self.every_ms, "the interval in milliseconds")?)?;
                let anchor = self.anchor_ms.map(|ms| ("schedule.anchorMs", ms)).or(phase);
                let anchor = match (anchor, here.map(|job| &job.body.schedule)) {
                    (Some((field, ms)), _) => moment(field, ms)?,
                    (None, Some(Schedule::Every { anchor, .. } | Schedule::Days { anchor, .. })) => {
                        to_millisecond(*anchor)
                    }
                    (None, _) => to_millisecond(now),
                };
                Ok(match self.tz {
                    Some(tz) => Schedule::every_from(every, anchor, &zone_of(Some(&tz))?)?,
                    None => Schedule::every(every, anchor)?,
                })
            }
            FileScheduleKind::Cron => {
                let expr = required("schedule.expr", self.expr, "the cron expression")?;
                let zone = zone_of(self.tz.as_deref())?;
                Schedule::cron(&expr, &self.tz.unwrap_or_else(|| zone_name(&zone)))
                    .map_err(|ScheduleError(error)| JobError::Invalid(format!("schedule.expr: {error}")))
            }
        }
    }
}

impl JobFileRow {
    fn body(
        self,
        schedule: Schedule,
        payload: FilePayload,
        job_context: &JobContext,
    ) -> Result<(JobBody, Option<&'static str>), JobError> {
        let kind = required("payload.kind", payload.kind, "agent_turn or system_event")?;
        let text = required("payload.message", payload.message, "the prompt or the text of the job")?;
        if text.trim().is_empty() {
            return invalid("payload.message is empty");
        }
        let task = match kind {
            FileKind::AgentTurn => JobTask::Prompt(text),
            FileKind::SystemEvent => JobTask::Message(text),
        };
        let terminal = JobOrigin::terminal();
        let channel = payload.channel.filter(|channel| !channel.is_empty()).unwrap_or(terminal.target.channel);
        let in_payload = |error: JobError| JobError::Invalid(format!("payload.{error}"));
        job_context.check_channel(&channel, Trust::Owner).map_err(in_payload)?;
        if let Some(model) = &self.model {
            job_context.check_model(model)?;
        }
        let agent = self.agent.as_deref().map(|name| job_context.agent(name)).transpose()?;
        let chat_id = match payload.to.filter(|to| !to.is_empty()) {
            Some(to) => to,
            None if channel == "cli" => terminal.target.chat_id,
            None => return invalid(format!("payload.to is missing: the chat on {channel}")),
        };
        job_context.check_chat(&channel, &chat_id).map_err(in_payload)?;
        let mut target = DeliveryTarget::of_chat(channel, chat_id);
        if let Some(session) = payload.session {
            target.session = session;
        }
        target.metadata = payload.metadata;
        target.origin = payload.origin;
        take_origin(&mut target);
        let is_quiet = payload.deliver == Some(false) && self.deliver.is_none() && matches!(task, JobTask::Prompt(_));
        let note =
            is_quiet.then_some("payload.deliver = false: it is not sent when the answer is NO_REPLY (when_asked)");
        let deliver = if is_quiet { DeliveryMode::WhenAsked } else { self.deliver.unwrap_or_default() };
        let is_once = matches!(schedule, Schedule::At { .. });
        let body = JobBody {
            schedule,
            task,
            target,
            maker: self.maker.unwrap_or(terminal.maker),
            session: self.session,
            model: self.model,
            agent,
            deliver,
            misfire: self.misfire.unwrap_or_default(),
            stale_after: self.stale_after,
            jitter: self.jitter,
            delete_after_run: self.delete_after_run.unwrap_or(is_once),
        };
        Ok((body, note))
    }
}

/// Moves the fields that earlier exports wrote into the metadata back to the origin.
fn take_origin(target: &mut DeliveryTarget) {
    let DeliveryTarget { metadata, origin, .. } = target;
    if let Some(settings) = metadata.remove("turn").and_then(|value| TurnSettings::deserialize(value).ok()) {
        origin.settings = settings;
    }
    if let Some(Value::String(sender)) = metadata.remove("on_behalf_of") {
        origin.on_behalf_of = Some(sender);
    }
    if let Some(count) = metadata.remove("links").and_then(|value| FollowUpCount::deserialize(value).ok()) {
        origin.follow_ups = count;
    }
}

fn written(job: &Job, last: Option<&LastRun>) -> Value {
    let Job { row, body } = job;
    let schedule = match &body.schedule {
        Schedule::At { at } => json!({ "kind": "at", "atMs": at.as_millisecond() }),
        Schedule::Every { every, anchor } => {
            let every = u64::try_from(every.0.as_millis()).unwrap_or(u64::MAX);
            json!({ "kind": "every", "everyMs": every, "anchorMs": anchor.as_millisecond() })
        }
        // Other assistants ignore the zone.
        Schedule::Days { days, anchor, tz } => json!({
            "kind": "every", "everyMs": i64::from(*days) * MILLIS_OF_DAY, "anchorMs": anchor.as_millisecond(), "tz": tz,
        }),
        Schedule::Cron { expr, tz } => json!({ "kind": "cron", "expr": expr, "tz": tz }),
    };
    let (kind, message) = match &body.task {
        JobTask::Prompt(text) => ("agent_turn", text),
        JobTask::Message(text) => ("system_event", text),
    };
    let mut payload = json!({
        "kind": kind,
        "message": message,
        "deliver": body.deliver != DeliveryMode::WhenAsked,
        "channel": body.target.channel,
        "to": body.target.chat_id,
        "session": body.target.session,
    });
    if !body.target.metadata.is_empty() {
        payload["metadata"] = json!(body.target.metadata);
    }
    if !body.target.origin.is_default() {
        payload["origin"] = json!(body.target.origin);
    }
    let status = last.map(|last| match last.outcome.as_str() {
        "ok" | "error" => last.outcome.as_str(),
        "started" => "ok",
        _ => "skipped",
    });
    let state = json!({
        "nextRunAtMs": row.next_at,
        "lastRunAtMs": last.map(|last| last.at),
        "lastStatus": status,
        "lastError": last.and_then(|last| last.reason.as_deref()),
    });
    let file = JobFileRow {
        id: Some(row.id.clone()),
        name: Some(row.name.clone()),
        enabled: Some(row.enabled),
        schedule,
        payload,
        state,
        created_at_ms: Some(row.created_at),
        updated_at_ms: Some(row.updated_at),
        delete_after_run: Some(body.delete_after_run),
        session: body.session.clone(),
        model: body.model.clone(),
        agent: body.agent.clone(),
        deliver: Some(body.deliver),
        misfire: Some(body.misfire),
        stale_after: body.stale_after,
        jitter: body.jitter,
        maker: Some(body.maker.clone()),
    };
    let mut file = json!(file);
    if let Value::Object(fields) = &mut file {
        // Fields that are not set are left out.
        fields.retain(|_, value| !value.is_null());
    }
    file
}
