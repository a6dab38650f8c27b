//! An overview of queues, last turns and usage, for `status` and `doctor`.

use rusqlite::Connection;

use super::jobs::{self, JobCounts};
use super::losses::{self, Loss};
use super::sql::{StoredRow, select_one, select_optional, select_parsed, select_value, stored_row};
use super::usage::{self, UsageScope, UsageTotal};
use super::{StoreError, disk_usage, outbox};

/// The number of newest rows that are searched for the newest time.
const NEWEST: u32 = 100;

/// The state of the whole store; times are UTC milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOverview {
    /// The number of unfinished messages, and how many of them have a running turn.
    pub inbound: usize,
    pub running: usize,
    /// The number of unfinished messages whose turn waits for a reachable model.
    pub waiting: usize,
    pub oldest_inbound: Option<i64>,
    /// The number of undelivered messages of each channel.
    pub outbound: Vec<(String, usize)>,
    pub oldest_outbound: Option<i64>,
    /// The number of outbound messages that were given up or may not have arrived.
    pub stuck: usize,
    /// The number of inbound messages that were given up.
    pub dead: usize,
    /// The last turns, the newest first.
    pub last: Vec<LastTurn>,
    pub used: UsageTotal,
    /// The newest time in the store.
    pub newest: Option<i64>,
    /// The numbers of scheduled jobs, and the time when the next one is due.
    pub jobs: JobCounts,
    pub next_job: Option<i64>,
    /// Losses that are not acknowledged.
    pub losses: Vec<Loss>,
    /// Unused bytes of the file.
    pub free: u64,
}

/// A turn in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTurn {
    pub turn: String,
    pub session: String,
    pub state: String,
    /// The error code of its reply.
    pub error: Option<String>,
    pub received_at: i64,
}

stored_row! { LastTurn: turn, session, state, error, received_at }

const LAST_TURNS: &str = "SELECT i.turn, i.session, i.state, json_extract(o.body, '$.error.code'), i.received_at
    FROM inbox i LEFT JOIN outbox o ON o.turn = i.turn AND o.slot = 'reply' ORDER BY i.seq DESC LIMIT ?";

/// Reads the overview. `used` counts usage from `since` on, and `last` has at most `turns` entries.
pub fn overview(connection: &Connection, since: i64, turns: u32) -> Result<StoreOverview, StoreError> {
    // The query names the index, which contains only the unfinished rows.
    let sql = "SELECT count(*), count(iif(state = 'running', 1, NULL)), count(iif(state = 'waiting', 1, NULL)),
                min(received_at) FROM inbox INDEXED BY inbox_open
             WHERE state NOT IN ('done', 'dead')";
    let (inbound, running, waiting, oldest_inbound) =
        select_one(connection, sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let sql = "SELECT min(created_at) FROM outbox INDEXED BY outbox_open WHERE state IN ('pending', 'sending')";
    let oldest_outbound = select_value(connection, sql, [])?;
    let dead = select_value(connection, "SELECT count(*) FROM inbox WHERE state = 'dead'", [])?;
    let sql = "SELECT max(received_at) FROM (SELECT received_at FROM inbox ORDER BY seq DESC LIMIT ?)";
    let newest = select_optional(connection, sql, [NEWEST], |row| row.get(0))?.flatten();
    Ok(StoreOverview {
        inbound,
        running,
        waiting,
        oldest_inbound,
        outbound: outbox::open_by_channel(connection)?,
        oldest_outbound,
        stuck: outbox::count_stuck(connection)?,
        dead,
        last: select_parsed(connection, LAST_TURNS, [turns], LastTurn::read)?,
        used: usage::total(connection, UsageScope::Since(since))?,
        newest,
        jobs: jobs::counts(connection)?,
        next_job: jobs::next_due(connection)?,
        losses: losses::unacknowledged(connection)?,
        free: disk_usage::free_bytes(connection)?,
    })
}
