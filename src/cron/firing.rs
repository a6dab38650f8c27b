//! Jobs that are due: what is done about each is thought out beside the writer, and written in one commit.

use std::ops::RangeInclusive;
use std::time::Duration;

use daoyou_channels::{ErrorInfo, SessionKey};
use jiff::Timestamp;

use super::ended::{End, settle};
use super::misfire::{Decision, ON_TIME, Policy, decide};
use super::moments::Moments;
use super::rules::fill;
use super::run_message::{self, Slot, Work};
use super::words::{called, called_in_shell};
use super::{Job, JobError, Misfire, Rules, Schedule, Task};
use crate::bus::{FollowUps, InboundDraft, MessageBus};
use crate::store::inbox::Inserted;
use crate::store::job_runs::{self, NewRun, RunOutcome};
use crate::store::jobs::{self, JobRow};
use crate::store::{Connection, StoreError, meta, usage};

/// A job that is due.
#[derive(Clone, Debug)]
pub enum Due {
    Job(Box<Planned>),
    /// Nobody can read it: it is set aside, so that it never holds up others.
    Unreadable {
        id: String,
        reason: String,
    },
    /// Nobody would read what it sends: it pauses, and the owner is told.
    Unreachable {
        job: Box<Job>,
        reason: String,
    },
}

/// What is to be done about a job.
#[derive(Clone, Debug)]
pub struct Planned {
    job: Job,
    decision: Decision,
    runs: Vec<(Slot, Work)>,
    next: Option<Timestamp>,
    /// Jobs have used their tokens of the day: since when that day is.
    braked: Option<Timestamp>,
}

/// What a commit has done, and whom it gave something to do.
#[derive(Clone, Debug, Default)]
pub struct Fired {
    /// Sessions with a new message.
    sessions: Vec<SessionKey>,
    /// Channels with something to deliver.
    channels: Vec<String>,
    /// What the owner is told; whoever commits hands it to the bus.
    notices: Vec<String>,
    pub started: u64,
    pub skipped: u64,
    pub missed: u64,
    pub failed: u64,
    /// Of the runs that began.
    pub lateness: Vec<Duration>,
}

impl Fired {
    /// Wakes those who have something to do; after the commit.
    pub fn wake(self, bus: &MessageBus) {
        for session in self.sessions {
            bus.inbound_written(session, 1);
        }
        for channel in self.channels {
            bus.outbound_written(&channel, 1);
        }
    }

    /// Hands what the owner is told to the bus, within the commit.
    pub(super) fn tell_owner(&mut self, connection: &Connection, bus: &MessageBus) -> Result<(), StoreError> {
        for notice in std::mem::take(&mut self.notices) {
            let told = bus.tell_owner(connection, daoyou_channels::new_id(), "notice:errand", notice)?;
            self.channels.extend(told);
        }
        Ok(())
    }
}

/// Thinks out what is done about the jobs that are due, at most `limit`.
pub fn plan(
    connection: &Connection,
    rules: &Rules,
    deferred: Option<&RangeInclusive<Timestamp>>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Due>, StoreError> {
    let rows = jobs::due(connection, now.as_millisecond(), limit)?;
    rows.into_iter().map(|row| plan_one(connection, row, rules, deferred, now)).collect()
}

fn plan_one(
    connection: &Connection,
    row: JobRow,
    rules: &Rules,
    deferred: Option<&RangeInclusive<Timestamp>>,
    now: Timestamp,
) -> Result<Due, StoreError> {
    let (id, first) = (row.id.clone(), row.next_at.and_then(|next| Timestamp::from_millisecond(next).ok()));
    let (job, first) = match (Job::read(row), first) {
        (Ok(job), Some(first)) => (job, first),
        (Err(error), _) => return Ok(Due::Unreadable { id, reason: unreadable(&error) }),
        (_, None) => return Ok(Due::Unreadable { id, reason: "its next time is none".to_owned() }),
    };
    if let Some(reason) = rules.why_unreachable(&job.body.target.channel) {
        return Ok(Due::Unreachable { job: Box::new(job), reason });
    }
    let slots = Moments::of(&job);
    let policy = Policy {
        misfire: job.body.misfire,
        stale_after: job.body.stale_after.map_or(rules.stale_after, |stale_after| stale_after.0),
        catch_up: rules.catch_up,
        deferred: deferred.cloned(),
    };
    let decision = decide(&slots, first, now, &policy);
    let next = slots.next_after(now);
    let stands_for = if job.body.misfire == Misfire::Once { decision.passed_over } else { 0 };
    let mut runs = Vec::with_capacity(decision.runs.len());
    for due in &decision.runs {
        let slot = Slot { due: *due, passed_over: stands_for, by_hand: false };
        runs.push((slot, run_message::work(connection, &job, rules, slot, now)?));
    }
    let asks = runs.iter().any(|(_, work)| matches!(work, Work::Ask(_)));
    let braked = if asks { brake(connection, rules, now)? } else { None };
    Ok(Due::Job(Box::new(Planned { job, decision, runs, next, braked })))
}

/// The midnight since which jobs have used as many tokens as they may in a day, if they have.
fn brake(connection: &Connection, rules: &Rules, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    if rules.tokens_per_day == 0 {
        return Ok(None);
    }
    let midnight = now.to_zoned(rules.zone.clone()).start_of_day().map_or(now, |midnight| midnight.timestamp());
    let used = usage::tokens_of_jobs(connection, run_message::SENDER, midnight.as_millisecond())?;
    Ok((used >= rules.tokens_per_day).then_some(midnight))
}

/// Why a job's row cannot be read, for whoever looks at it.
pub fn unreadable(error: &StoreError) -> String {
    format!("daoyou cannot read this job ({error}); remove it and make it anew")
}

/// Writes it, within the caller's commit. A job that was changed since is left for the next look.
pub fn commit(connection: &Connection, rules: &Rules, due: &[Due], now: Timestamp) -> Result<Fired, StoreError> {
    let mut fired = Fired::default();
    for due in due {
        match due {
            Due::Job(planned) => planned.commit(connection, rules, now, &mut fired)?,
            Due::Unreadable { id, reason } => jobs::set_aside(connection, id, reason)?,
            Due::Unreachable { job, reason } => {
                if is_unchanged(connection, &job.row)? {
                    jobs::set_enabled(connection, &job.row.id, false, None, Some(reason))?;
                    tracing::warn!(job = job.row.id, name = job.row.name, reason, "a scheduled job is paused");
                    let told = [called(&job.row), reason, &called_in_shell(&job.row)];
                    fired.notices.push(fill(rules.words.unreachable, &told));
                }
            }
        }
    }
    Ok(fired)
}

/// Refuses a run by the model that would reach nobody, or that spends what jobs may no longer spend today. A person who runs a
/// job by hand is not held by the latter.
///
/// # Errors
/// Why it does not run.
pub(super) fn check_run(connection: &Connection, job: &Job, rules: &Rules, now: Timestamp) -> Result<(), JobError> {
    if let Some(reason) = rules.why_unreachable(&job.body.target.channel) {
        return Err(JobError::Wrong(reason));
    }
    if matches!(job.body.task, Task::Prompt(_)) && brake(connection, rules, now)?.is_some() {
        return Err(JobError::Wrong(format!(
            "scheduled prompts have used the tokens of this day (cron.tokens_per_day = {}); it can run after midnight",
            rules.tokens_per_day
        )));
    }
    Ok(())
}

/// Runs a job now, beside its schedule, within the caller's commit; who has something to do is then woken by what is
/// answered. A job that is disabled runs, too.
///
/// # Errors
/// Its last run is not done, or its prompt cannot be made.
pub fn run_now(connection: &Connection, job: &Job, rules: &Rules, now: Timestamp) -> Result<Fired, JobError> {
    if job_runs::unfinished(connection, &job.row.id)?.is_some() {
        return Err(JobError::Wrong(format!("the last run of {:?} is not done yet", job.row.name)));
    }
    // Two runs within a millisecond are two.
    let free = (0..1_000).map(|ms| now.as_millisecond() + ms);
    let mut due = now;
    for ms in free {
        if !job_runs::is_taken(connection, &job.row.id, ms)? {
            due = Timestamp::from_millisecond(ms).unwrap_or(now);
            break;
        }
    }
    if let Some(reason) = rules.why_unreachable(&job.body.target.channel) {
        return Err(JobError::Wrong(reason));
    }
    let slot = Slot { due, passed_over: 0, by_hand: true };
    let work = run_message::work(connection, job, rules, slot, now)?;
    if let Work::Fail(_, reason) = work {
        return Err(JobError::Wrong(reason));
    }
    let mut fired = Fired::default();
    begin(connection, job, rules, slot, &work, &mut fired)?;
    Ok(fired)
}

impl Planned {
    pub fn name(&self) -> &str {
        &self.job.row.name
    }

    fn commit(
        &self,
        connection: &Connection,
        rules: &Rules,
        now: Timestamp,
        fired: &mut Fired,
    ) -> Result<(), StoreError> {
        let row = &self.job.row;
        if !is_unchanged(connection, row)? {
            return Ok(());
        }
        // Before the runs: the end of one that needs no turn may remove or pause the job.
        self.go_on(connection)?;
        self.put_down_missed(connection, fired)?;
        let busy = job_runs::unfinished(connection, &row.id)?.is_some();
        for (slot, work) in &self.runs {
            let late = Duration::try_from(now.duration_since(slot.due)).unwrap_or_default();
            // What is made up for waits in the session's lane, each in its turn; so does the only slot of a job.
            let is_made_up_for = self.job.body.misfire == Misfire::All && (self.runs.len() > 1 || late > ON_TIME);
            let queues = is_made_up_for || matches!(self.job.body.schedule, Schedule::At { .. });
            if let (Some(midnight), Work::Ask(_)) = (self.braked, work) {
                self.skip_braked(connection, rules, (slot.due, midnight), fired)?;
            } else if busy && !queues {
                let reason = "the run before it was not done";
                if job_runs::insert(connection, &self.run(slot.due, RunOutcome::Skipped, reason))? {
                    fired.skipped += 1;
                }
            } else if begin(connection, &self.job, rules, *slot, work, fired)? {
                fired.lateness.push(late);
            }
        }
        job_runs::prune(connection, &row.id, rules.keep_runs)
    }

    /// Puts a run off for good, as jobs may use no more tokens today; one that was to run once says so. The owner is told once a day.
    fn skip_braked(
        &self,
        connection: &Connection,
        rules: &Rules,
        (due, midnight): (Timestamp, Timestamp),
        fired: &mut Fired,
    ) -> Result<(), StoreError> {
        const TOLD: &str = "cron_braked";
        let (row, reason) = (&self.job.row, "the tokens of cron.tokens_per_day were used up");
        if job_runs::insert(connection, &self.run(due, RunOutcome::Skipped, reason))? {
            fired.skipped += 1;
        }
        if self.next.is_none() {
            jobs::set_enabled(connection, &row.id, false, None, Some(reason))?;
        }
        let day = midnight.as_millisecond().to_string();
        if meta::get(connection, TOLD)?.as_deref() != Some(&day) {
            meta::set(connection, TOLD, &day)?;
            tracing::warn!(
                limit = rules.tokens_per_day,
                "jobs have used their tokens of the day; prompts are skipped until midnight"
            );
            fired.notices.push(fill(rules.words.braked, &[called(row), &rules.tokens_per_day.to_string()]));
        }
        Ok(())
    }

    /// The job's next slot; one without is disabled.
    fn go_on(&self, connection: &Connection) -> Result<(), StoreError> {
        let id = &self.job.row.id;
        if let Some(next) = self.next {
            return jobs::set_next(connection, id, Some(next.as_millisecond()));
        }
        let reason = self.runs.is_empty().then_some("its time passed while daoyou did not run");
        jobs::set_enabled(connection, id, false, None, reason).map(drop)
    }

    fn put_down_missed(&self, connection: &Connection, fired: &mut Fired) -> Result<(), StoreError> {
        let Decision { missed, passed_over, .. } = &self.decision;
        let mut reason = "daoyou did not run, or the clock was set forward".to_owned();
        if *passed_over > missed.len() {
            reason = format!("{reason}; it is one of {passed_over}");
        }
        for due in missed {
            job_runs::insert(connection, &self.run(*due, RunOutcome::Missed, &reason))?;
        }
        fired.missed += u64::try_from(*passed_over).unwrap_or(u64::MAX);
        Ok(())
    }

    fn run<'a>(&'a self, due: Timestamp, outcome: RunOutcome, reason: &'a str) -> NewRun<'a> {
        let row = &self.job.row;
        let (due, reason) = (due.as_millisecond(), Some(reason));
        NewRun { job: &row.id, name: &row.name, due, turn: None, outcome, reason }
    }
}

/// Whether a job stands as it was read.
fn is_unchanged(connection: &Connection, row: &JobRow) -> Result<bool, StoreError> {
    let is_same = |now: JobRow| now.enabled && now.next_at == row.next_at && now.body == row.body;
    Ok(jobs::find(connection, &row.id)?.is_some_and(is_same))
}

/// Takes the slot and does what is to be done in it; answers whether it was free.
fn begin(
    connection: &Connection,
    job: &Job,
    rules: &Rules,
    slot: Slot,
    work: &Work,
    fired: &mut Fired,
) -> Result<bool, StoreError> {
    let row = &job.row;
    let (Work::Ask(draft) | Work::Say(draft, _) | Work::Fail(draft, _)) = work;
    let due = slot.due.as_millisecond();
    let outcome = RunOutcome::Started;
    let run = NewRun { job: &row.id, name: &row.name, due, turn: Some(draft.id), outcome, reason: None };
    if !job_runs::insert(connection, &run)? {
        return Ok(false);
    }
    match work {
        Work::Ask(draft) => {
            if draft.insert(connection)? == Inserted::New {
                fired.sessions.push(draft.message.session_key());
            }
        }
        Work::Say(draft, text) => finish(connection, job, rules, slot, (draft, text, None), fired)?,
        Work::Fail(draft, reason) => {
            let told = fill(rules.words.failed, &[&row.name, reason]);
            finish(connection, job, rules, slot, (draft, &told, Some(reason)), fired)?;
            fired.failed += 1;
        }
    }
    fired.started += 1;
    Ok(true)
}

/// A run that needs no turn is over at once: `said` is what it answers, with the reason when it failed.
fn finish(
    connection: &Connection,
    job: &Job,
    rules: &Rules,
    slot: Slot,
    (draft, said, failed): (&InboundDraft, &str, Option<&str>),
    fired: &mut Fired,
) -> Result<(), StoreError> {
    let job_turn = run_message::job_turn(job, slot);
    let session = draft.message.session_key();
    let end = End {
        turn: draft.id,
        channel: &draft.message.channel,
        chat_id: &draft.message.chat_id,
        session: &session,
        reply: said,
        error: failed,
    };
    let FollowUps { reply, messages, notice } = settle(connection, rules, &job_turn, &end)?;
    let error = failed.map(|_| ErrorInfo { code: "job_prompt".to_owned() });
    if reply.is_some() {
        fired.channels.push(draft.message.channel.clone());
    }
    draft.insert_answered(connection, reply, error)?;
    for message in messages {
        if message.insert(connection)? == Inserted::New {
            fired.sessions.push(message.message.session_key());
        }
    }
    fired.notices.extend(notice);
    Ok(())
}
