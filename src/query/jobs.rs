//! Jobs and their runs.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rows::timestamp;
use crate::cron::{
    self, FiringReport, Job, JobContext, JobError, JobOrigin, JobRequest, JobScope, JobTask, Schedule, UnreadableJob,
};
use crate::llm::costs_in_words;
use crate::store::job_runs::{self, JobRunRow};
use crate::store::usage::Costs;
use crate::store::{Connection, Durability, Store, StoreError};

/// The maximum number of runs that a history contains.
pub const HISTORY_LIMIT: u32 = 1_000;
/// The number of past runs and of future run times in the view of one job.
const VIEW_RUNS: u32 = 5;
const VIEW_TIMES: usize = 5;

/// A query about jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobQuery {
    List,
    /// One job, by id or name; the same applies to the queries below.
    Show(String),
    History {
        job: String,
        limit: u32,
    },
    /// All jobs as a `cron.json`.
    Export,
}

/// A change of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobChange {
    /// JSON with the fields of [`JobRequest`].
    Add(Value),
    /// Changes a job, which keeps its id. The fields are those of [`JobChange::Add`]; those that are not given stay.
    Edit {
        job: String,
        fields: Value,
    },
    Remove(String),
    Enable(String),
    Disable(String),
    Run(String),
    /// The text of a `cron.json`.
    Import(String),
}

/// A committed change.
pub struct AppliedJobChange {
    pub answer: Value,
    /// The message of a run that was started manually.
    pub fired: Option<FiringReport>,
}

/// Answers a query.
///
/// # Errors
/// The job does not exist, or the store cannot be read.
pub async fn read(store: &Store, query: JobQuery, context: Arc<JobContext>) -> Result<Value, JobError> {
    store.read(move |connection| separate_store_errors(answer(connection, &query, &context))).await?
}

/// Makes a change in one synced commit. The caller then wakes the cron service.
///
/// # Errors
/// The job does not exist, the change is invalid, or the store cannot be written.
pub async fn apply(store: &Store, change: JobChange, context: Arc<JobContext>) -> Result<AppliedJobChange, JobError> {
    let now = Timestamp::now();
    store
        .write(Durability::Synced, move |connection| separate_store_errors(write(connection, &change, &context, now)))
        .await?
}

/// Separates errors of the store, which roll the transaction back, from all other errors.
fn separate_store_errors<T>(result: Result<T, JobError>) -> Result<Result<T, JobError>, StoreError> {
    match result {
        Err(JobError::Store(error)) => Err(error),
        settled => Ok(settled),
    }
}

fn answer(connection: &Connection, query: &JobQuery, context: &JobContext) -> Result<Value, JobError> {
    match query {
        JobQuery::List => {
            let jobs = cron::list(connection, &JobScope::All)?;
            jobs.iter()
                .map(|job| match job {
                    Ok(job) => {
                        let mut view = view(job, context);
                        view["last"] = job_runs::of_job(connection, &job.row.id, 1)?.first().map_or(Value::Null, run);
                        Ok(view)
                    }
                    Err(row) => Ok(unreadable(row)),
                })
                .collect()
        }
        JobQuery::Show(job) => show(connection, job, context),
        JobQuery::History { job, limit } => {
            let runs = job_runs::of_job(connection, job, (*limit).min(HISTORY_LIMIT))?;
            if runs.is_empty() {
                // A job that has not run yet has an empty history; an unknown job is an error.
                cron::find(connection, job)?;
            }
            Ok(runs.iter().map(run).collect())
        }
        JobQuery::Export => Ok(cron::export(connection)?),
    }
}

fn write(
    connection: &Connection,
    change: &JobChange,
    context: &JobContext,
    now: Timestamp,
) -> Result<AppliedJobChange, JobError> {
    let answer = match change {
        JobChange::Add(fields) => {
            let new = JobRequest::from_json(fields)?.into_new_job(&JobOrigin::terminal(), context, now)?;
            view(&cron::add(connection, &new, context.settings.config.max_jobs, now)?, context)
        }
        JobChange::Edit { job, fields } => {
            let old = cron::find(connection, job)?;
            let new = JobRequest::edit(&old.body, fields, context, now)?;
            view(&cron::replace(connection, job, &new, now)?, context)
        }
        JobChange::Remove(job) => {
            let (id, name) = cron::remove(connection, job)?;
            json!({ "id": id, "name": name, "removed": true })
        }
        JobChange::Enable(job) => view(&cron::set_enabled(connection, job, true, now)?, context),
        JobChange::Disable(job) => view(&cron::set_enabled(connection, job, false, now)?, context),
        JobChange::Import(text) => json!(cron::import(connection, text, context, now)?),
        JobChange::Run(job) => {
            let job = cron::find(connection, job)?;
            let fired = cron::run_now(connection, &job, &context.settings, now)?;
            let answer = json!({ "id": job.row.id, "name": job.row.name, "due": timestamp(now.as_millisecond()) });
            return Ok(AppliedJobChange { answer, fired: Some(fired) });
        }
    };
    Ok(AppliedJobChange { answer, fired: None })
}

/// Returns the next run times of a job that does not exist yet.
///
/// # Errors
/// The request is invalid.
pub fn preview(fields: &Value, context: &JobContext, now: Timestamp) -> Result<Value, JobError> {
    let mut request = JobRequest::from_json(fields)?;
    if request.prompt.is_none() && request.message.is_none() {
        // The run times do not depend on the text.
        request.message = Some("preview".to_owned());
    }
    let schedule = request.into_new_job(&JobOrigin::terminal(), context, now)?.body.schedule;
    let when = schedule.describe(context.language, context.zone());
    Ok(json!({ "job": fields, "when": when, "next": schedule.upcoming(now, VIEW_TIMES) }))
}

fn show(connection: &Connection, job: &str, context: &JobContext) -> Result<Value, JobError> {
    let job = cron::find(connection, job)?;
    let mut view = view(&job, context);
    let upcoming = job.row.enabled.then(|| job.body.schedule.upcoming(Timestamp::now(), VIEW_TIMES));
    view["upcoming"] = upcoming.unwrap_or_default().iter().map(|at| json!(at)).collect();
    let runs = job_runs::of_job(connection, &job.row.id, VIEW_RUNS)?;
    view["runs"] = runs.iter().map(run).collect();
    view["maker"] = json!(job.body.maker);
    view["result"] = json!(job.row.result);
    Ok(view)
}

fn view(job: &Job, context: &JobContext) -> Value {
    let Job { row, body } = job;
    let (kind, text) = match &body.task {
        JobTask::Prompt(text) => ("prompt", text),
        JobTask::Message(text) => ("message", text),
    };
    let state = match (&row.pause_reason, row.enabled) {
        (Some(_), _) => "paused",
        (None, true) => "enabled",
        (None, false) => "disabled",
    };
    let mut view = json!({
        "id": row.id,
        "name": row.name,
        "state": state,
        "enabled": row.enabled,
        "paused": row.pause_reason,
        "failures": row.failures,
        "when": job.when(context),
        "next_at": row.next_at.filter(|_| row.enabled).map(timestamp),
        "next": job.next_in_words(context).filter(|_| row.enabled),
        "schedule": schedule(&body.schedule),
        "kind": kind,
        "text": text,
        "channel": body.target.channel,
        "chat_id": body.target.chat_id,
        "session": job.session(),
        "model": body.model,
        "agent": body.agent,
        "deliver": body.deliver,
        "misfire": body.misfire,
        "stale_after": body.stale_after.map(|span| span.to_string()),
        "jitter": body.jitter.map(|span| span.to_string()),
        "delete_after_run": body.delete_after_run,
        "created_at": timestamp(row.created_at),
        "updated_at": timestamp(row.updated_at),
    });
    if body.maker.is_unrecorded() {
        view["maker_unrecorded"] = json!(true);
    }
    view
}

fn unreadable(UnreadableJob { row, error }: &UnreadableJob) -> Value {
    json!({
        "id": row.id,
        "name": row.name,
        "state": "unreadable",
        "enabled": row.enabled,
        "error": format!("its row cannot be read: {error}; it can only be removed"),
        "created_at": timestamp(row.created_at),
    })
}

fn schedule(schedule: &Schedule) -> Value {
    match schedule {
        Schedule::At { at } => json!({ "at": at }),
        Schedule::Every { every, anchor } => json!({ "every": every.to_string(), "anchor": anchor }),
        Schedule::Days { days, anchor, tz } => json!({ "every": format!("{days}d"), "anchor": anchor, "tz": tz }),
        Schedule::Cron { expr, tz } => json!({ "cron": expr, "tz": tz }),
    }
}

fn run(run: &JobRunRow) -> Value {
    let costs: Costs = match (run.cost.and_then(|cost| u64::try_from(cost).ok()), &run.currency) {
        (Some(cost), Some(currency)) => Costs::from([(currency.clone(), cost)]),
        _ => Costs::default(),
    };
    let outcome = cron::outcome(run);
    let has_started = run.turn.is_some() && outcome != "queued";
    json!({
        "job": run.job,
        "name": run.name,
        "due": timestamp(run.due),
        "started": has_started.then(|| timestamp(run.at)),
        "ended": run.ended_at.map(timestamp),
        "late_ms": has_started.then(|| (run.at - run.due).max(0)),
        "outcome": outcome,
        "delivery": cron::delivery(run),
        "reason": run.reason,
        "delivery_error": run.last_error,
        "turn": run.turn,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "tokens": run.input_tokens + run.output_tokens,
        "cost": costs_in_words(&costs),
    })
}
