//! Making, finding and changing jobs: the same rules for the tool, the command line and an import. Each function works
//! within its caller's commit; whoever makes a change wakes the service after it.

use daoyou_channels::Trust;
use jiff::Timestamp;
use uuid::Uuid;

use super::{CronConfig, Job, JobBody, Maker, Schedule};
use crate::store::{Connection, StoreError, jobs};

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
            Trust::Known | Trust::Untrusted => {
                Self::Chat { channel: channel.to_owned(), chat_id: chat_id.to_owned() }
            }
        }
    }

    fn sees(&self, maker: &Maker) -> bool {
        match self {
            Self::All => true,
            Self::Chat { channel, chat_id } => *channel == maker.channel && *chat_id == maker.chat_id,
        }
    }
}

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
/// It is never due, its id is taken, or there are too many.
pub fn add(connection: &Connection, new: &NewJob, settings: Settings, now: Timestamp) -> Result<Job, JobError> {
    if jobs::count(connection)? >= usize::try_from(settings.max_jobs).unwrap_or(usize::MAX) {
        return Err(JobError::Wrong(format!(
            "there are {} jobs already, as many as cron.max_jobs allows; remove some",
            settings.max_jobs
        )));
    }
    let next = next_slot(&new.body.schedule, now)?;
    let (id, name) = (new.id.clone().unwrap_or_else(new_id), name_of(new));
    let body = serde_json::to_string(&new.body).map_err(StoreError::from)?;
    if !jobs::insert(connection, &id, &name, &body, true, Some(next.as_millisecond()))? {
        return Err(JobError::Wrong(format!("a job with the id {id:?} is there already")));
    }
    find(connection, &Scope::All, &id)
}

/// The job with this id, or the one with this name.
///
/// # Errors
/// There is none, or several have the name.
pub fn find(connection: &Connection, scope: &Scope, id_or_name: &str) -> Result<Job, JobError> {
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
        1 => Ok(Job::read(rows.remove(0))?),
        _ => {
            let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
            Err(JobError::Wrong(format!("{} jobs are called {id_or_name:?}; say which id: {}", ids.len(), ids.join(", "))))
        }
    }
}

/// All jobs in `scope`, the next due first; one that cannot be read stands as its row with the reason.
pub fn list(
    connection: &Connection,
    scope: &Scope,
) -> Result<Vec<Result<Job, (jobs::JobRow, StoreError)>>, StoreError> {
    let read = jobs::all(connection)?.into_iter().map(|row| Job::read(row.clone()).map_err(|error| (row, error)));
    let seen = |job: &Result<Job, _>| match job {
        Ok(Job { body, .. }) => scope.sees(&body.maker),
        Err(_) => *scope == Scope::All,
    };
    Ok(read.filter(seen).collect())
}

/// Removes a job, also one that cannot be read; answers its id and name. Its runs stay.
///
/// # Errors
/// As [`find`].
pub fn remove(connection: &Connection, scope: &Scope, id_or_name: &str) -> Result<(String, String), JobError> {
    let (id, name) = match find(connection, scope, id_or_name) {
        Ok(job) => (job.row.id, job.row.name),
        Err(JobError::Store(StoreError::Row(_))) => (id_or_name.to_owned(), id_or_name.to_owned()),
        Err(error) => return Err(error),
    };
    if jobs::remove(connection, &id)? { Ok((id, name)) } else { Err(JobError::NotFound(id_or_name.to_owned())) }
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
    let next = if enabled { Some(next_slot(&job.body.schedule, now)?.as_millisecond()) } else { None };
    jobs::set_enabled(connection, &job.row.id, enabled, next, None)?;
    find(connection, &Scope::All, &job.row.id)
}

fn next_slot(schedule: &Schedule, now: Timestamp) -> Result<Timestamp, JobError> {
    schedule.next_after(now).ok_or_else(|| JobError::Wrong("it is never due: its time is past".to_owned()))
}

fn name_of(new: &NewJob) -> String {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = words(&new.name);
    if !named.is_empty() {
        return named.chars().take(MAX_NAME).collect();
    }
    let (super::Task::Prompt(text) | super::Task::Message(text)) = &new.body.task;
    words(text).chars().take(NAME_OF_TASK).collect()
}

/// Eight characters, of which two alike are not to be expected among all that a store holds.
fn new_id() -> String {
    let mut random = Uuid::new_v4().as_u128();
    let mut id = String::with_capacity(8);
    for _ in 0..8 {
        // The remainder is less than the alphabet is long.
        let at = usize::try_from(random % 36).unwrap_or(0);
        id.push(char::from(ALPHABET[at]));
        random /= 36;
    }
    id
}
