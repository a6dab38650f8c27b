//! Making, finding and changing jobs: the same rules for the tool, the command line and an import. Each function works
//! within its caller's commit; whoever makes a change wakes the service after it.

use daoyou_channels::Trust;
use jiff::Timestamp;
use uuid::Uuid;

use super::moments::Moments;
use super::{CronConfig, Job, JobBody, Maker, Task, prompt};
use crate::store::{Connection, StoreError, jobs};
use crate::text::one_line;

/// The characters of an id.
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// The longest name, in characters.
const MAX_NAME: usize = 100;
/// The characters of its task that a job without a name is called by.
const NAME_OF_TASK: usize = 30;

/// What is asked for cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// What is wrong and what would be right.
    #[error("{0}")]
    Wrong(String),
    #[error("there is no job {0:?}")]
    NotFound(String),
    #[error("a job is called {name:?} already: {id}; give this one another name, or remove that one first")]
    NameTaken { name: String, id: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whose jobs are seen and changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The owner's: all.
    All,
    /// Somebody else's: those made in his chat.
    Chat { channel: String, chat_id: String },
}

impl Scope {
    /// What whoever writes in a chat may see.
    pub fn of(trust: Trust, channel: &str, chat_id: &str) -> Self {
        match trust {
            Trust::Owner => Self::All,
            Trust::Known | Trust::Untrusted => Self::Chat { channel: channel.to_owned(), chat_id: chat_id.to_owned() },
        }
    }

    fn sees(&self, maker: &Maker) -> bool {
        match self {
            Self::All => true,
            Self::Chat { channel, chat_id } => *channel == maker.channel && *chat_id == maker.chat_id,
        }
    }
}

/// A row that is no job that this program knows.
#[derive(Debug)]
pub struct Unreadable {
    pub row: jobs::JobRow,
    pub error: StoreError,
}

/// A job, or what stands in its place.
pub type Listed = Result<Job, Box<Unreadable>>;

/// A job that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Given where the id must be the same again: for a call that is repeated, for an import.
    pub id: Option<String>,
    /// Empty: the beginning of its task.
    pub name: String,
    pub body: JobBody,
}

/// What holds for all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub max_jobs: u32,
}

impl From<&CronConfig> for Settings {
    fn from(config: &CronConfig) -> Self {
        Self { max_jobs: config.max_jobs }
    }
}

/// Adds a job.
///
/// # Errors
/// As [`preview`].
pub fn add(connection: &Connection, new: &NewJob, settings: Settings, now: Timestamp) -> Result<Job, JobError> {
    let Job { row, .. } = preview(connection, new, settings, now)?;
    if !jobs::insert(connection, &row.id, &row.name, &row.body, true, row.next_at)? {
        return Err(taken(&row.id));
    }
    find(connection, &Scope::All, &row.id)
}

/// The job as [`add`] would make it; nothing is written.
///
/// # Errors
/// It is never due, its prompt is no template, its id or its name is taken, or there are too many.
pub fn preview(connection: &Connection, new: &NewJob, settings: Settings, now: Timestamp) -> Result<Job, JobError> {
    if jobs::count(connection)? >= usize::try_from(settings.max_jobs).unwrap_or(usize::MAX) {
        return Err(JobError::Wrong(format!(
            "there are {} jobs already, as many as cron.max_jobs allows; remove some",
            settings.max_jobs
        )));
    }
    if let Task::Prompt(template) = &new.body.task {
        prompt::check(template).map_err(JobError::Wrong)?;
    }
    let id = new.id.clone().unwrap_or_else(new_id);
    let moments = Moments { job: &id, schedule: &new.body.schedule, jitter: new.body.jitter, made: now };
    moments.check_jitter(now).map_err(JobError::Wrong)?;
    let next = next_slot(&moments, now)?;
    if jobs::find(connection, &id)?.is_some() {
        return Err(taken(&id));
    }
    let name = free_name(connection, new)?;
    let row = jobs::JobRow {
        id,
        name,
        body: serde_json::to_string(&new.body).map_err(StoreError::from)?,
        enabled: true,
        next_at: Some(next.as_millisecond()),
        failures: 0,
        paused: None,
        result: None,
        created_at: now.as_millisecond(),
        updated_at: now.as_millisecond(),
    };
    Ok(Job { row, body: new.body.clone() })
}

fn taken(id: &str) -> JobError {
    JobError::Wrong(format!("a job with the id {id:?} is there already"))
}

/// The job with this id, or the one with this name.
///
/// # Errors
/// There is none, or several have the name.
pub fn find(connection: &Connection, scope: &Scope, id_or_name: &str) -> Result<Job, JobError> {
    Ok(Job::read(find_row(connection, scope, id_or_name)?)?)
}

/// As [`find`], also a job that cannot be read.
///
/// # Errors
/// As [`find`].
pub(super) fn find_row(connection: &Connection, scope: &Scope, id_or_name: &str) -> Result<jobs::JobRow, JobError> {
    let not_found = || JobError::NotFound(id_or_name.to_owned());
    let mut rows = match jobs::find(connection, id_or_name)? {
        Some(row) => vec![row],
        None => jobs::named(connection, id_or_name)?,
    };
    // A row that cannot be read is the owner's to see and to remove.
    rows.retain(|row| match serde_json::from_str::<JobBody>(&row.body) {
        Ok(body) => scope.sees(&body.maker),
        Err(_) => *scope == Scope::All,
    });
    match rows.len() {
        0 => Err(not_found()),
        1 => Ok(rows.remove(0)),
        _ => {
            let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
            Err(JobError::Wrong(format!(
                "{} jobs are called {id_or_name:?}; say which id: {}",
                ids.len(),
                ids.join(", ")
            )))
        }
    }
}

/// All jobs in `scope`, the next due first; one that cannot be read stands as its row with the reason.
pub fn list(connection: &Connection, scope: &Scope) -> Result<Vec<Listed>, StoreError> {
    let read = |row: jobs::JobRow| Job::read(row.clone()).map_err(|error| Box::new(Unreadable { row, error }));
    let seen = |job: &Listed| match job {
        Ok(Job { body, .. }) => scope.sees(&body.maker),
        Err(_) => *scope == Scope::All,
    };
    Ok(jobs::all(connection)?.into_iter().map(read).filter(seen).collect())
}

/// Removes a job, also one that cannot be read; answers its id and name. Its runs stay.
///
/// # Errors
/// As [`find`].
pub fn remove(connection: &Connection, scope: &Scope, id_or_name: &str) -> Result<(String, String), JobError> {
    let row = find_row(connection, scope, id_or_name)?;
    jobs::remove(connection, &row.id)?;
    Ok((row.id, row.name))
}

/// Enables or disables a job; enabled, it goes on with its next slot from now.
///
/// # Errors
/// As [`find`]; or it is never due again.
pub fn set_enabled(
    connection: &Connection,
    scope: &Scope,
    id_or_name: &str,
    enabled: bool,
    now: Timestamp,
) -> Result<Job, JobError> {
    let job = find(connection, scope, id_or_name)?;
    let next = if enabled { Some(next_slot(&Moments::of(&job), now)?.as_millisecond()) } else { None };
    jobs::set_enabled(connection, &job.row.id, enabled, next, None)?;
    find(connection, &Scope::All, &job.row.id)
}

/// The first slot after `now`.
///
/// # Errors
/// There is none.
pub(super) fn next_slot(slots: &Moments<'_>, now: Timestamp) -> Result<Timestamp, JobError> {
    slots.next_after(now).ok_or_else(|| JobError::Wrong("it is never due: its time is past".to_owned()))
}

/// The job's name, under which it is found: no two jobs have the same one. A name made of its task gets a number where the
/// same task is there already.
///
/// # Errors
/// The name that it was given is that of another job.
fn free_name(connection: &Connection, new: &NewJob) -> Result<String, JobError> {
    let given: String = one_line(&new.name).chars().take(MAX_NAME).collect();
    if !given.is_empty() {
        return match jobs::named(connection, &given)?.into_iter().next() {
            Some(other) => Err(JobError::NameTaken { name: given, id: other.id }),
            None => Ok(given),
        };
    }
    let (Task::Prompt(text) | Task::Message(text)) = &new.body.task;
    let task: String = one_line(text).chars().take(NAME_OF_TASK).collect();
    numbered(connection, &task)
}

/// `name`, or the first of `name 2`, `name 3` and so on that no job has.
pub(super) fn numbered(connection: &Connection, name: &str) -> Result<String, JobError> {
    let mut free = name.to_owned();
    let mut number = 1_u32;
    while !jobs::named(connection, &free)?.is_empty() {
        number += 1;
        free = format!("{name} {number}");
    }
    Ok(free)
}

fn new_id() -> String {
    id_of(Uuid::new_v4())
}

/// The id of the job that a call makes: the same again when the call is repeated.
pub(super) fn id_from(turn: Uuid, call_id: &str) -> String {
    id_of(Uuid::new_v5(&turn, call_id.as_bytes()))
}

/// Eight characters, of which two alike are not to be expected among all that a store holds.
fn id_of(random: Uuid) -> String {
    let mut random = random.as_u128();
    let mut id = String::with_capacity(8);
    for _ in 0..8 {
        // The remainder is less than the alphabet is long.
        let at = usize::try_from(random % 36).unwrap_or(0);
        id.push(char::from(ALPHABET[at]));
        random /= 36;
    }
    id
}
