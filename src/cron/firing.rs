//! Fires due jobs: a plan is made in a read transaction, and one commit carries it out.

use std::ops::RangeInclusive;
use std::time::Duration;

use daoyou_channels::settings::size;
use daoyou_channels::text::fill;
use daoyou_channels::{ErrorInfo, SessionKey};
use jiff::Timestamp;

use super::job_text::{display_name, shell_name};
use super::jobs::invalid;
use super::misfire::{MisfireDecision, MisfireRules, ON_TIME, choose_runs};
use super::run_end::{JobRunEnd, record_end};
use super::run_message::{self, RunSlot, RunWork};
use super::run_times::RunTimes;
use super::{CronSettings, Job, JobBody, JobError, JobTask, MisfirePolicy, Schedule};
use crate::bus::{FollowUps, InboundDraft, MessageBus, NoticeKind, OutboxSlot};
use crate::store::job_runs::{self, JobRunOutcome, NewJobRun};
use crate::store::jobs::{self, JobRow};
use crate::store::{Connection, StoreError, meta, usage};

/// A job that is due.
#[derive(Clone, Debug)]
pub enum DueJob {
    Job(Box<PlannedRuns>),
    /// The job cannot be read: it is set aside, so that it does not delay others.
    Unreadable {
        id: String,
        reason: String,
    },
    /// Nobody would read the job's output: the job is paused, and the owner is informed.
    Unreachable {
        job: Box<Job>,
        reason: String,
    },
}

/// The plan for a due job.
#[derive(Clone, Debug)]
pub struct PlannedRuns {
    job: Job,
    decision: MisfireDecision,
    runs: Vec<(RunSlot, RunWork)>,
    next: Option<Timestamp>,
    /// The last midnight, if jobs have used up their daily tokens since then.
    over_budget_since: Option<Timestamp>,
}

/// The effects of a commit, and the sessions and channels to wake after it.
#[derive(Clone, Debug, Default)]
pub struct FiringReport {
    /// Sessions with a new message.
    sessions: Vec<SessionKey>,
    /// Channels with an outbound message.
    channels: Vec<String>,
    /// Notices for the owner; the committer passes them to the bus.
    notices: Vec<String>,
    pub started: u64,
    pub skipped: u64,
    pub missed: u64,
    pub failed: u64,
    /// The delay with which each started run began.
    pub lateness: Vec<Duration>,
}

impl FiringReport {
    /// Wakes the sessions and channels that have work. The caller calls this after the commit.
    pub fn wake(self, bus: &MessageBus) {
        for session in self.sessions {
            bus.inbound_written(session, 1);
        }
        for channel in self.channels {
            bus.outbound_written(&channel, 1);
        }
    }

    /// Passes the owner's notices to the bus, within the commit.
    pub(super) fn notify_owner(&mut self, connection: &Connection, bus: &MessageBus) -> Result<(), StoreError> {
        for notice in std::mem::take(&mut self.notices) {
            let channel = bus.write_owner_notice(
                connection,
                daoyou_channels::new_id(),
                OutboxSlot::notice(NoticeKind::FollowUp),
                notice,
            )?;
            self.channels.extend(channel);
        }
        Ok(())
    }
}

/// Plans the runs of the due jobs, at most `limit` jobs.
///
/// # Errors
/// The due jobs cannot be read. A job that cannot be read is not an error: it is planned as unreadable.
pub fn plan(
    connection: &Connection,
    settings: &CronSettings,
    deferred: Option<&RangeInclusive<Timestamp>>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<DueJob>, StoreError> {
    let rows = jobs::due(connection, now.as_millisecond(), limit)?;
    rows.into_iter().map(|row| plan_one(connection, row, settings, deferred, now)).collect()
}

fn plan_one(
    connection: &Connection,
    row: JobRow,
    settings: &CronSettings,
    deferred: Option<&RangeInclusive<Timestamp>>,
    now: Timestamp,
) -> Result<DueJob, StoreError> {
    let (id, first) = (row.id.clone(), row.next_at.and_then(|next| Timestamp::from_millisecond(next).ok()));
    let (job, first) = match (Job::read(row), first) {
        (Ok(job), Some(first)) => (job, first),
        (Err(error), _) => return Ok(DueJob::Unreadable { id, reason: unreadable(&error) }),
        (_, None) => return Ok(DueJob::Unreadable { id, reason: "its next time is none".to_owned() }),
    };
    if let Some(reason) = settings.channels.why_unreachable(&job.body.target.channel) {
        return Ok(DueJob::Unreachable { job: Box::new(job), reason });
    }
    let slots = RunTimes::of(&job);
    let policy = MisfireRules {
        misfire: job.body.misfire,
        stale_after: job.body.stale_after.unwrap_or(settings.config.stale_after).0,
        catch_up: size(settings.config.catch_up),
        deferred: deferred.cloned(),
    };
    let decision = choose_runs(&slots, first, now, &policy);
    let next = slots.next_after(now);
    let stands_for = if job.body.misfire == MisfirePolicy::Once { decision.passed_over } else { 0 };
    let mut runs = Vec::with_capacity(decision.runs.len());
    for due in &decision.runs {
        let slot = RunSlot { due: *due, passed_over: stands_for, by_hand: false };
        runs.push((slot, run_message::work(connection, &job, settings, slot, now)?));
    }
    let asks = runs.iter().any(|(_, work)| matches!(work, RunWork::Ask(_)));
    let over_budget_since = if asks { token_budget_spent_since(connection, settings, now)? } else { None };
    Ok(DueJob::Job(Box::new(PlannedRuns { job, decision, runs, next, over_budget_since })))
}

/// Returns the last midnight if jobs have used their daily tokens since then.
fn token_budget_spent_since(
    connection: &Connection,
    settings: &CronSettings,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    if settings.config.tokens_per_day == 0 {
        return Ok(None);
    }
    let midnight = now.to_zoned(settings.zone.clone()).start_of_day().map_or(now, |midnight| midnight.timestamp());
    let used = usage::tokens_of_jobs(connection, run_message::SENDER, midnight.as_millisecond())?;
    Ok((used >= settings.config.tokens_per_day).then_some(midnight))
}

/// Explains why a job cannot be read.
pub fn unreadable(error: &StoreError) -> String {
    format!("daoyou cannot read this job ({error}); remove it and create it again")
}

/// Carries out the plan within the caller's commit. A job that was changed meanwhile is left for the next poll.
///
/// # Errors
/// A run, or the state of a job, cannot be written.
pub fn commit(
    connection: &Connection,
    settings: &CronSettings,
    due: &[DueJob],
    now: Timestamp,
) -> Result<FiringReport, StoreError> {
    let mut fired = FiringReport::default();
    for due in due {
        match due {
            DueJob::Job(planned) => planned.commit(connection, settings, now, &mut fired)?,
            DueJob::Unreadable { id, reason } => jobs::set_aside(connection, id, reason)?,
            DueJob::Unreachable { job, reason } => {
                if is_unchanged(connection, &job.row)? {
                    jobs::set_enabled(connection, &job.row.id, false, None, Some(reason))?;
                    tracing::warn!(job = job.row.id, name = job.row.name, reason, "a scheduled job is paused");
                    let values = [display_name(&job.row), reason, &shell_name(&job.row)];
                    fired.notices.push(fill(settings.phrases.job_unreachable, &values));
                }
            }
        }
    }
    Ok(fired)
}

/// Checks a run that the model starts: a person must be able to read its output, and jobs must have tokens left today. A run
/// that a person starts by hand needs no tokens left.
///
/// # Errors
/// Explains why the job does not run.
pub(super) fn check_run(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    now: Timestamp,
) -> Result<(), JobError> {
    if let Some(reason) = settings.channels.why_unreachable(&job.body.target.channel) {
        return invalid(reason);
    }
    if matches!(job.body.task, JobTask::Prompt(_)) && token_budget_spent_since(connection, settings, now)?.is_some() {
        return invalid(format!(
            "scheduled prompts have used the tokens of this day (cron.tokens_per_day = {}); it can run after midnight",
            settings.config.tokens_per_day
        ));
    }
    Ok(())
}

/// Runs a job now, outside its schedule, within the caller's commit, even if it is disabled. After the commit, the caller
/// passes the report to [`FiringReport::wake`].
///
/// # Errors
/// The last run is not done, or the prompt cannot be rendered.
pub fn run_now(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    now: Timestamp,
) -> Result<FiringReport, JobError> {
    if job_runs::unfinished(connection, &job.row.id)?.is_some() {
        return invalid(format!("the last run of {:?} is not done yet", job.row.name));
    }
    // Two runs within the same millisecond need two slots.
    let mut due = now.as_millisecond();
    while job_runs::is_taken(connection, &job.row.id, due)? {
        due += 1;
    }
    if let Some(reason) = settings.channels.why_unreachable(&job.body.target.channel) {
        return invalid(reason);
    }
    let slot = RunSlot { due: Timestamp::from_millisecond(due).unwrap_or(now), passed_over: 0, by_hand: true };
    let work = run_message::work(connection, job, settings, slot, now)?;
    if let RunWork::Fail(_, reason) = work {
        return invalid(reason);
    }
    let mut fired = FiringReport::default();
    start_run(connection, job, settings, slot, &work, &mut fired)?;
    Ok(fired)
}

impl PlannedRuns {
    pub fn name(&self) -> &str {
        &self.job.row.name
    }

    fn commit(
        &self,
        connection: &Connection,
        settings: &CronSettings,
        now: Timestamp,
        fired: &mut FiringReport,
    ) -> Result<(), StoreError> {
        let row = &self.job.row;
        if !is_unchanged(connection, row)? {
            return Ok(());
        }
        // This precedes the runs: a run that needs no turn ends at once, and its end may remove or pause the job.
        self.schedule_next(connection)?;
        self.record_missed_slots(connection, fired)?;
        let busy = job_runs::unfinished(connection, &row.id)?.is_some();
        for (slot, work) in &self.runs {
            let late = Duration::try_from(now.duration_since(slot.due)).unwrap_or_default();
            // Several late runs wait in the session's lane one after the other, and so does the only run of a job of one time.
            let is_made_up_for = self.job.body.misfire == MisfirePolicy::All && (self.runs.len() > 1 || late > ON_TIME);
            let queues = is_made_up_for || matches!(self.job.body.schedule, Schedule::At { .. });
            if let (Some(midnight), RunWork::Ask(_)) = (self.over_budget_since, work) {
                self.skip_over_budget(connection, settings, (slot.due, midnight), fired)?;
            } else if busy && !queues {
                let reason = "the run before it was not done";
                if job_runs::insert(connection, &self.run_row(slot.due, JobRunOutcome::Skipped, reason))? {
                    fired.skipped += 1;
                }
            } else if start_run(connection, &self.job, settings, *slot, work, fired)? {
                fired.lateness.push(late);
            }
        }
        job_runs::prune(connection, &row.id, settings.config.keep_runs)
    }

    /// Skips a run because jobs may use no more tokens today. A one-time job is postponed to the next midnight, unless its policy is
    /// `skip`; another job without a next slot is disabled with that reason. The owner is informed once a day.
    fn skip_over_budget(
        &self,
        connection: &Connection,
        settings: &CronSettings,
        (due, midnight): (Timestamp, Timestamp),
        fired: &mut FiringReport,
    ) -> Result<(), StoreError> {
        /// The key in `meta` of the day of the last notice.
        const NOTICE_KEY: &str = "cron_braked";
        let row = &self.job.row;
        let postponed = self.postponed(settings, midnight);
        let reason = match postponed {
            Some(_) => "the tokens of cron.tokens_per_day were used up; it is postponed to midnight",
            None => "the tokens of cron.tokens_per_day were used up",
        };
        if job_runs::insert(connection, &self.run_row(due, JobRunOutcome::Skipped, reason))? {
            fired.skipped += 1;
        }
        if let Some((body, next)) = postponed {
            let (body, next) = (serde_json::to_string(&body)?, Some(next.as_millisecond()));
            jobs::update(connection, &row.id, &row.name, &body, next)?;
            jobs::set_enabled(connection, &row.id, true, next, None)?;
        } else if self.next.is_none() {
            jobs::set_enabled(connection, &row.id, false, None, Some(reason))?;
        }
        let day = midnight.as_millisecond().to_string();
        if meta::get(connection, NOTICE_KEY)?.as_deref() != Some(&day) {
            meta::set(connection, NOTICE_KEY, &day)?;
            tracing::warn!(
                limit = settings.config.tokens_per_day,
                "jobs have used their tokens of the day; prompts do not run until midnight"
            );
            fired.notices.push(fill(
                settings.phrases.jobs_over_budget,
                &[display_name(row), &settings.config.tokens_per_day.to_string()],
            ));
        }
        Ok(())
    }

    /// Returns the one-time job postponed to the midnight after `midnight`, and its run time then; `None` for a job that is skipped.
    fn postponed(&self, settings: &CronSettings, midnight: Timestamp) -> Option<(JobBody, Timestamp)> {
        let Job { body, .. } = &self.job;
        if !matches!(body.schedule, Schedule::At { .. }) || body.misfire == MisfirePolicy::Skip {
            return None;
        }
        let tomorrow = midnight.to_zoned(settings.zone.clone()).tomorrow().ok()?;
        let body = JobBody { schedule: Schedule::At { at: tomorrow.start_of_day().ok()?.timestamp() }, ..body.clone() };
        let mut run_times = RunTimes::of(&self.job);
        run_times.schedule = &body.schedule;
        let next = run_times.next_after(midnight)?;
        Some((body, next))
    }

    /// Sets the job's next slot, or disables a job without one.
    fn schedule_next(&self, connection: &Connection) -> Result<(), StoreError> {
        let id = &self.job.row.id;
        if let Some(next) = self.next {
            return jobs::set_next(connection, id, Some(next.as_millisecond()));
        }
        let reason = self.runs.is_empty().then_some("its time passed while daoyou did not run");
        jobs::set_enabled(connection, id, false, None, reason).map(drop)
    }

    fn record_missed_slots(&self, connection: &Connection, fired: &mut FiringReport) -> Result<(), StoreError> {
        let MisfireDecision { missed, passed_over, .. } = &self.decision;
        let mut reason = "daoyou did not run, or the clock was set forward".to_owned();
        if *passed_over > missed.len() {
            reason = format!("{reason}; it is one of {passed_over}");
        }
        for due in missed {
            job_runs::insert(connection, &self.run_row(*due, JobRunOutcome::Missed, &reason))?;
        }
        fired.missed += u64::try_from(*passed_over).unwrap_or(u64::MAX);
        Ok(())
    }

    fn run_row<'a>(&'a self, due: Timestamp, outcome: JobRunOutcome, reason: &'a str) -> NewJobRun<'a> {
        let row = &self.job.row;
        let (due, reason) = (due.as_millisecond(), Some(reason));
        NewJobRun { job: &row.id, name: &row.name, due, turn: None, outcome, reason }
    }
}

/// Returns true if a job has not changed since `row` was read.
fn is_unchanged(connection: &Connection, row: &JobRow) -> Result<bool, StoreError> {
    let is_same = |now: JobRow| now.enabled && now.next_at == row.next_at && now.body == row.body;
    Ok(jobs::find(connection, &row.id)?.is_some_and(is_same))
}

/// Claims the slot and starts the run; returns false if the slot has a run already.
fn start_run(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    slot: RunSlot,
    work: &RunWork,
    fired: &mut FiringReport,
) -> Result<bool, StoreError> {
    let row = &job.row;
    let (RunWork::Ask(draft) | RunWork::Say(draft, _) | RunWork::Fail(draft, _)) = work;
    let due = slot.due.as_millisecond();
    let outcome = JobRunOutcome::Started;
    let run = NewJobRun { job: &row.id, name: &row.name, due, turn: Some(draft.id), outcome, reason: None };
    if !job_runs::insert(connection, &run)? {
        return Ok(false);
    }
    match work {
        RunWork::Ask(draft) => {
            if draft.insert(connection)? {
                fired.sessions.push(draft.message.session_key());
            }
        }
        RunWork::Say(draft, text) => finish_run(connection, job, settings, slot, (draft, text, None), fired)?,
        RunWork::Fail(draft, reason) => {
            let text = fill(settings.phrases.job_failed, &[&row.name, reason]);
            finish_run(connection, job, settings, slot, (draft, &text, Some(reason)), fired)?;
            fired.failed += 1;
        }
    }
    fired.started += 1;
    Ok(true)
}

/// Ends a run that needs no turn. `reply` is its output; `failed` is the reason if the run failed.
fn finish_run(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    slot: RunSlot,
    (draft, reply, failed): (&InboundDraft, &str, Option<&str>),
    fired: &mut FiringReport,
) -> Result<(), StoreError> {
    let job_turn = run_message::job_turn(job, slot);
    let session = draft.message.session_key();
    let end = JobRunEnd {
        turn: draft.id,
        channel: &draft.message.channel,
        chat_id: &draft.message.chat_id,
        session: &session,
        reply,
        error: failed,
        taint: &draft.origin.taint,
    };
    let FollowUps { reply, messages, notice } = record_end(connection, settings, &job_turn, &end)?;
    let error = failed.map(|_| ErrorInfo { code: "job_prompt".to_owned() });
    if reply.is_some() {
        fired.channels.push(draft.message.channel.clone());
    }
    draft.insert_answered(connection, reply, error)?;
    for message in messages {
        if message.insert(connection)? {
            fired.sessions.push(message.message.session_key());
        }
    }
    fired.notices.extend(notice);
    Ok(())
}
