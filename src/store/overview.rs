//! What waits, what was last done, and how much was used: for `status` and `doctor`.

use rusqlite::{Connection, OptionalExtension, params};

use super::jobs::{self, JobCounts};
use super::losses::{self, Loss};
use super::usage::{self, Scope, Spent};
use super::{StoreError, outbox, space};

/// The newest rows that are looked at for the newest time.
const NEWEST: u32 = 100;

/// A look at the whole store; times are UTC milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Unfinished messages, and how many of them a turn works on.
    pub inbound: usize,
    pub running: usize,
    /// Unfinished messages whose turn waits until a model can be reached.
    pub waiting: usize,
    pub oldest_inbound: Option<i64>,
    /// Undelivered messages of each channel.
    pub outbound: Vec<(String, usize)>,
    pub oldest_outbound: Option<i64>,
    /// Messages out that were given up, or of which nobody knows whether they arrived.
    pub stuck: usize,
    /// Messages in that were given up.
    pub dead: usize,
    /// The newest turns, the newest first.
    pub last: Vec<LastTurn>,
    pub used: Spent,
    /// The newest time in the store.
    pub newest: Option<i64>,
    /// Scheduled jobs, and when the next is due.
    pub jobs: JobCounts,
    pub next_job: Option<i64>,
    /// What is lost and not acknowledged.
    pub losses: Vec<Loss>,
    /// Bytes of the file that are not in use.
    pub free: u64,
}

/// A turn in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTurn {
    pub turn: String,
    pub session: String,
    pub state: String,
    /// The code of the error it was answered with.
    pub error: Option<String>,
    pub received_at: i64,
}

/// Looks; `used` counts from `since`, and `last` holds at most `turns`.
pub fn overview(connection: &Connection, since: i64, turns: u32) -> Result<Overview, StoreError> {
    // Told which index to take: it holds the unfinished rows alone.
    let (inbound, running, waiting, oldest_inbound) = connection
        .prepare_cached(
            "SELECT count(*), count(iif(state = 'running', 1, NULL)), count(iif(state = 'waiting', 1, NULL)),
                min(received_at) FROM inbox INDEXED BY inbox_open
             WHERE state NOT IN ('done', 'dead')",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let oldest_outbound = connection
        .prepare_cached(
            "SELECT min(created_at) FROM outbox INDEXED BY outbox_open WHERE state IN ('pending', 'sending')",
        )?
        .query_row([], |row| row.get(0))?;
    let dead = connection
        .prepare_cached("SELECT count(*) FROM inbox WHERE state = 'dead'")?
        .query_row([], |row| row.get(0))?;
    let newest = connection
        .prepare_cached("SELECT max(received_at) FROM (SELECT received_at FROM inbox ORDER BY seq DESC LIMIT ?)")?
        .query_row([NEWEST], |row| row.get(0))
        .optional()?
        .flatten();
    Ok(Overview {
        inbound,
        running,
        waiting,
        oldest_inbound,
        outbound: outbox::open_by_channel(connection)?,
        oldest_outbound,
        stuck: outbox::stuck(connection)?,
        dead,
        last: last_turns(connection, turns)?,
        used: usage::spent(connection, Scope::Since(since))?,
        newest,
        jobs: jobs::counts(connection)?,
        next_job: jobs::next_due(connection)?,
        losses: losses::open(connection)?,
        free: space::free_bytes(connection)?,
    })
}

fn last_turns(connection: &Connection, limit: u32) -> Result<Vec<LastTurn>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT i.turn, i.session, i.state, json_extract(o.body, '$.error.code'), i.received_at
         FROM inbox i LEFT JOIN outbox o ON o.turn = i.turn AND o.slot = 'reply'
         ORDER BY i.seq DESC LIMIT ?",
    )?;
    let rows = statement.query_map(params![limit], |row| {
        Ok(LastTurn {
            turn: row.get(0)?,
            session: row.get(1)?,
            state: row.get(2)?,
            error: row.get(3)?,
            received_at: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
