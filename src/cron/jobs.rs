//! Creates, finds and changes jobs, by the same rules for the tool, the command line and an import. Each function works
//! within its caller's commit; after a change, the caller wakes the service.

use daoyou_channels::settings::size;
use daoyou_channels::{Trust, email};
use jiff::Timestamp;
use uuid::Uuid;

use super::run_times::RunTimes;
use super::{DeliveryTarget, Job, JobBody, JobTask, ScheduleError, prompt};
use crate::store::{Connection, StoreError, jobs, notes};
use crate::text::one_line;

/// The characters of an id.
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// The longest name, in characters.
const MAX_NAME: usize = 100;
/// The longest name that is derived from the task, in characters.
const NAME_OF_TASK: usize = 30;
/// The beginnings of reminders that the offline responder makes, which are not part of a name.
const REMINDER_HEADS: [&str; 2] = ["Reminder: ", "提醒："];

/// A request that cannot be fulfilled.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The text explains the fault and the valid values.
    #[error("{0}")]
    Invalid(String),
    #[error("there is no job {0:?}")]
    NotFound(String),
    #[error("a job named {name:?} already exists ({id}); choose another name, or remove that job first")]
    NameTaken { name: String, id: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ScheduleError> for JobError {
    fn from(ScheduleError(reason): ScheduleError) -> Self {
        Self::Invalid(reason)
    }
}

/// Refuses a request; `reason` explains the fault and the valid values.
pub(super) fn invalid<T>(reason: impl Into<String>) -> Result<T, JobError> {
    Err(JobError::Invalid(reason.into()))
}

/// The jobs that a caller may see and change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobScope {
    /// All jobs: for the owner.
    All,
    /// The jobs that this sender created in this chat: for everybody else.
    Sender { channel: String, chat_id: String, sender: String },
}

impl JobScope {
    /// Returns the jobs that the author of a message in a chat may see and change.
    pub fn of(trust: Trust, channel: &str, chat_id: &str, sender: &str) -> Self {
        match trust {
            Trust::Owner => Self::All,
            Trust::Known | Trust::Untrusted => {
                let [channel, chat_id, sender] = [channel, chat_id, sender].map(str::to_owned);
                Self::Sender { channel, chat_id, sender }
            }
        }
    }

    fn includes(&self, JobBody { maker, target, .. }: &JobBody) -> bool {
        let Self::Sender { channel, chat_id, sender } = self else { return true };
        let is_of_sender = match (maker.trust, &maker.identity) {
            // A job of a former owner.
            (Trust::Owner, Some(identity)) => identity.channel == *channel && identity.sender == *sender,
            (Trust::Owner, None) => false,
            // Jobs of earlier versions do not name their senders.
            (Trust::Known | Trust::Untrusted, _) => {
                target.origin.on_behalf_of.as_ref().is_none_or(|maker| maker == sender)
            }
        };
        is_of_sender && *channel == maker.channel && *chat_id == maker.chat_id
    }
}

/// A row that this program cannot read as a job.
#[derive(Debug)]
pub struct UnreadableJob {
    pub row: jobs::JobRow,
    pub error: StoreError,
}

/// A job, or the row that cannot be read.
pub type JobEntry = Result<Job, Box<UnreadableJob>>;

/// A job to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Set if the id must be reproducible, as for a repeated call or an import.
    pub id: Option<String>,
    /// The name; if it is empty, a name is derived from the task.
    pub name: String,
    pub body: JobBody,
}

/// Adds a job.
///
/// # Errors
/// The same as those of [`preview`].
pub fn add(connection: &Connection, new: &NewJob, max_jobs: u32, now: Timestamp) -> Result<Job, JobError> {
    let Job { row, .. } = preview(connection, new, max_jobs, now)?;
    if !jobs::insert(connection, &row.id, &row.name, &row.body, true, row.next_at)? {
        return Err(taken(&row.id));
    }
    find(connection, &row.id)
}

/// Returns the job that [`add`] would create, and writes nothing.
///
/// # Errors
/// The job is never due, its prompt is not a valid template, its id or name is taken, its chat is an unknown thread of
/// mails, or there are too many jobs.
pub fn preview(connection: &Connection, new: &NewJob, max_jobs: u32, now: Timestamp) -> Result<Job, JobError> {
    if jobs::count(connection)? >= size(max_jobs) {
        return invalid(format!("there are {max_jobs} jobs already, as many as cron.max_jobs allows; remove some"));
    }
    check_thread(connection, &new.body.target)?;
    let id = new.id.clone().unwrap_or_else(|| id_of(Uuid::new_v4()));
    let next = first_run(&id, &new.body, now)?;
    if jobs::find(connection, &id)?.is_some() {
        return Err(taken(&id));
    }
    let name = free_name(connection, new, &id)?;
    let row = jobs::JobRow {
        id,
        name,
        body: serde_json::to_string(&new.body).map_err(StoreError::from)?,
        enabled: true,
        next_at: Some(next.as_millisecond()),
        failures: 0,
        pause_reason: None,
        result: None,
        result_taint: None,
        created_at: now.as_millisecond(),
        updated_at: now.as_millisecond(),
    };
    Ok(Job { row, body: new.body.clone() })
}

/// Replaces the content of a job. The job keeps its id, its runs, its maker, its delivery target if the chat is the same, and
/// its name if `new` has none. The maker stays, so that an edit by the owner does not give another person's prompt the owner's
/// rights. A disabled job stays disabled.
///
/// # Errors
/// The same as those of [`find`] and [`preview`].
pub fn replace(connection: &Connection, id_or_name: &str, new: &NewJob, now: Timestamp) -> Result<Job, JobError> {
    let row = find_row(connection, &JobScope::All, id_or_name)?;
    let next = first_run(&row.id, &new.body, now)?.as_millisecond();
    let keeps_name = new.name.is_empty() || new.name == row.name;
    let name = if keeps_name { row.name.clone() } else { free_name(connection, new, &row.id)? };
    let mut body = new.body.clone();
    if let Ok(old) = serde_json::from_str::<JobBody>(&row.body) {
        body.maker = old.maker;
        if (&old.target.channel, &old.target.chat_id) == (&body.target.channel, &body.target.chat_id) {
            body.target = old.target;
        }
    }
    check_thread(connection, &body.target)?;
    let body = serde_json::to_string(&body).map_err(StoreError::from)?;
    jobs::update(connection, &row.id, &name, &body, row.enabled.then_some(next))?;
    find(connection, &row.id)
}

/// Checks the task and the jitter of a new job, and returns its first run after `now`.
fn first_run(id: &str, body: &JobBody, now: Timestamp) -> Result<Timestamp, JobError> {
    if let JobTask::Prompt(template) = &body.task {
        prompt::check(template).map_err(JobError::Invalid)?;
    }
    let run_times = RunTimes { job: id, schedule: &body.schedule, jitter: body.jitter, created: now };
    run_times.check_jitter(now).map_err(JobError::Invalid)?;
    next_slot(&run_times, now)
}

/// Refuses a thread of mails that nobody has written: there would be nobody to send its mails to.
fn check_thread(connection: &Connection, target: &DeliveryTarget) -> Result<(), JobError> {
    let chat = target.chat_id.as_str();
    // The metadata of a job that was made in a thread names the recipients.
    let needs_note = target.channel == email::NAME && email::is_thread(chat) && target.metadata.is_empty();
    if needs_note && notes::get(connection, email::NAME, email::THREAD_NOTE, chat)?.is_none() {
        return invalid(format!("chat: no mail of the thread {} is known; name an address instead", one_line(chat)));
    }
    Ok(())
}

fn taken(id: &str) -> JobError {
    JobError::Invalid(format!("a job with the id {id:?} is there already"))
}

/// Finds a job by its id, or by its name if no job has that id.
///
/// # Errors
/// No job has this id or name, or several jobs have this name.
pub fn find(connection: &Connection, id_or_name: &str) -> Result<Job, JobError> {
    Ok(Job::read(find_row(connection, &JobScope::All, id_or_name)?)?)
}

/// Finds the row of a job in `scope` by its id, or by its name if no job has that id. The owner also finds a row that
/// cannot be read as a job.
///
/// # Errors
/// The same as those of [`find`].
pub(super) fn find_row(connection: &Connection, scope: &JobScope, id_or_name: &str) -> Result<jobs::JobRow, JobError> {
    let mut rows = match jobs::find(connection, id_or_name)? {
        Some(row) => vec![row],
        None => jobs::find_by_name(connection, id_or_name)?,
    };
    // Only the owner sees and removes a row that cannot be read as a job.
    rows.retain(|row| match serde_json::from_str::<JobBody>(&row.body) {
        Ok(body) => scope.includes(&body),
        Err(_) => *scope == JobScope::All,
    });
    match rows.len() {
        0 => Err(JobError::NotFound(id_or_name.to_owned())),
        1 => Ok(rows.remove(0)),
        _ => {
            let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
            invalid(format!("{} jobs are called {id_or_name:?}; say which id: {}", ids.len(), ids.join(", ")))
        }
    }
}

/// Lists all jobs in `scope`, the next due first.
///
/// # Errors
/// The jobs cannot be read from the store. A job that cannot be parsed is an entry of its own.
pub fn list(connection: &Connection, scope: &JobScope) -> Result<Vec<JobEntry>, StoreError> {
    let read = |row: jobs::JobRow| Job::read(row.clone()).map_err(|error| Box::new(UnreadableJob { row, error }));
    let seen = |job: &JobEntry| match job {
        Ok(Job { body, .. }) => scope.includes(body),
        Err(_) => *scope == JobScope::All,
    };
    Ok(jobs::all(connection)?.into_iter().map(read).filter(seen).collect())
}

/// Removes a job, readable or not; returns its id and name. Its runs stay.
///
/// # Errors
/// The same as those of [`find`].
pub fn remove(connection: &Connection, id_or_name: &str) -> Result<(String, String), JobError> {
    let row = find_row(connection, &JobScope::All, id_or_name)?;
    jobs::remove(connection, &row.id)?;
    Ok((row.id, row.name))
}

/// Enables or disables a job. An enabled job continues with its next slot from now.
///
/// # Errors
/// The same as those of [`find`], or the job is never due again.
pub fn set_enabled(connection: &Connection, id_or_name: &str, enabled: bool, now: Timestamp) -> Result<Job, JobError> {
    let job = find(connection, id_or_name)?;
    let next = if enabled { Some(next_slot(&RunTimes::of(&job), now)?.as_millisecond()) } else { None };
    jobs::set_enabled(connection, &job.row.id, enabled, next, None)?;
    find(connection, &job.row.id)
}

/// Returns the first slot after `now`.
///
/// # Errors
/// The job has no further slot.
pub(super) fn next_slot(slots: &RunTimes<'_>, now: Timestamp) -> Result<Timestamp, JobError> {
    slots.next_after(now).ok_or_else(|| JobError::Invalid("it is never due: its time is past".to_owned()))
}

/// Returns the name of the job `id`, which is not another job's name or id. If a name that is derived from the task is
/// taken, it gets a number.
///
/// # Errors
/// The requested name is too long, or is another job's name or id.
fn free_name(connection: &Connection, new: &NewJob, id: &str) -> Result<String, JobError> {
    let given = one_line(&new.name);
    if !given.is_empty() {
        let length = given.chars().count();
        if length > MAX_NAME {
            return invalid(format!("its name has {length} characters; at most {MAX_NAME} are allowed"));
        }
        if given != id
            && let Some(other) = jobs::find(connection, &given)?
        {
            let name = other.name;
            return invalid(format!("{given:?} is the id of another job, {name:?}; give this one another name"));
        }
        return match jobs::find_by_name(connection, &given)?.into_iter().next() {
            Some(other) => Err(JobError::NameTaken { name: given, id: other.id }),
            None => Ok(given),
        };
    }
    let (JobTask::Prompt(text) | JobTask::Message(text)) = &new.body.task;
    let text = one_line(text);
    let rest = REMINDER_HEADS.iter().find_map(|head| text.strip_prefix(head));
    let text = rest.filter(|rest| !rest.is_empty()).unwrap_or(&text);
    let task: String = text.chars().take(NAME_OF_TASK).collect();
    numbered(connection, task.trim_end())
}

/// Returns `name`, or the first free one of `name 2`, `name 3` and so on.
pub(super) fn numbered(connection: &Connection, name: &str) -> Result<String, JobError> {
    let mut free = name.to_owned();
    let mut number = 1_u32;
    while !jobs::find_by_name(connection, &free)?.is_empty() {
        number += 1;
        free = format!("{name} {number}");
    }
    Ok(free)
}

/// Returns the id of the job that a call creates; it is the same when the call is repeated.
pub(super) fn id_from(turn: Uuid, call_id: &str) -> String {
    id_of(Uuid::new_v5(&turn, call_id.as_bytes()))
}

/// Returns eight characters, enough to make a collision among the jobs of a store unlikely.
fn id_of(random: Uuid) -> String {
    let mut random = random.as_u128();
    let mut id = String::with_capacity(8);
    for _ in 0..8 {
        // The remainder is less than the length of the alphabet.
        let at = usize::try_from(random % 36).unwrap_or(0);
        id.push(char::from(ALPHABET[at]));
        random /= 36;
    }
    id
}
