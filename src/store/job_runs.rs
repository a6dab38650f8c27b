//! The outcome of each slot of each job. A slot is taken only once.

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::sql::{
    StoredRow, execute, find_row, read_optional_uuid, read_uuid, select_optional, select_optional_parsed,
    select_parsed, select_value, stored_row,
};
use super::{StoreError, now_ms};

/// The outcome of a run: decided at the time of the slot, or after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum JobRunOutcome {
    Started,
    Ok,
    Error,
    /// The previous run was not finished.
    Skipped,
    /// The gateway was not running at that time, and the slot is not run later.
    Missed,
}

impl JobRunOutcome {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A run that takes a slot.
#[derive(Clone, Debug)]
pub struct NewJobRun<'a> {
    pub job: &'a str,
    pub name: &'a str,
    /// UTC milliseconds.
    pub due: i64,
    /// The turn of the inbox row in the same commit.
    pub turn: Option<Uuid>,
    pub outcome: JobRunOutcome,
    pub reason: Option<&'a str>,
}

/// A run, with the state of its message and its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRunRow {
    pub job: String,
    pub name: String,
    pub due: i64,
    pub at: i64,
    pub ended_at: Option<i64>,
    pub turn: Option<Uuid>,
    pub outcome: String,
    pub reason: Option<String>,
    pub sends: bool,
    /// The state of the inbox row: `queued`, `running`, `waiting`, `done`, `dead`.
    pub state: Option<String>,
    /// The state of the outbox row, its attempts and its last error; the last known state if the row was deleted.
    pub delivery: Option<String>,
    pub tries: u32,
    pub last_error: Option<String>,
    pub input_tokens: i64,
    pub output_tokens: i64,
    /// The cost in millionths of the currency. If the models were paid in several currencies, this is the largest amount: amounts in
    /// different currencies cannot be added.
    pub cost: Option<i64>,
    pub currency: Option<String>,
}

stored_row! {
    JobRunRow: job, name, due, at, ended_at, turn by read_optional_uuid, outcome, reason, sends, state, delivery,
        tries, last_error, input_tokens, output_tokens, cost, currency
}

/// Takes a slot; returns whether it was free.
pub fn insert(connection: &Connection, run: &NewJobRun<'_>) -> Result<bool, StoreError> {
    let now = now_ms();
    let ended_at = (run.outcome != JobRunOutcome::Started).then_some(now);
    let sql = "INSERT INTO job_runs (job, name, due, at, turn, outcome, reason, ended_at, sends)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job, due) DO NOTHING";
    let turn = run.turn.map(|turn| turn.to_string());
    let (outcome, sends) = (run.outcome.as_str(), run.turn.is_some());
    let parameters = params![run.job, run.name, run.due, now, turn, outcome, run.reason, ended_at, sends];
    Ok(execute(connection, sql, parameters)? == 1)
}

/// Records the end of a run's turn. `sends` says whether its reply goes to the chat.
pub fn end(
    connection: &Connection,
    job: &str,
    due: i64,
    outcome: JobRunOutcome,
    reason: Option<&str>,
    sends: bool,
) -> Result<(), StoreError> {
    let sql = "UPDATE job_runs SET outcome = ?, reason = ?, sends = ?, ended_at = ? WHERE job = ? AND due = ?";
    execute(connection, sql, params![outcome.as_str(), reason, sends, now_ms(), job, due]).map(drop)
}

/// Returns when the job last ran, with any outcome.
pub fn last_run_at(connection: &Connection, job: &str) -> Result<Option<i64>, StoreError> {
    let sql =
        "SELECT at FROM job_runs WHERE job = ? AND outcome IN ('started', 'ok', 'error') ORDER BY due DESC LIMIT 1";
    select_optional(connection, sql, [job], |row| row.get(0))
}

/// Deletes the runs of a job except the `keep` newest; unfinished ones stay.
pub fn prune(connection: &Connection, job: &str, keep: u32) -> Result<(), StoreError> {
    let sql = "DELETE FROM job_runs WHERE job = ?1 AND outcome <> 'started'
               AND due <= (SELECT due FROM job_runs WHERE job = ?1 ORDER BY due DESC LIMIT 1 OFFSET ?2)";
    execute(connection, sql, params![job, keep]).map(drop)
}

/// Returns true if the slot is taken.
pub fn is_taken(connection: &Connection, job: &str, due: i64) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM job_runs WHERE job = ? AND due = ?)";
    select_value(connection, sql, params![job, due])
}

/// Returns the message of an unfinished run of the job.
pub fn unfinished(connection: &Connection, job: &str) -> Result<Option<Uuid>, StoreError> {
    let sql = "SELECT r.turn FROM job_runs r INDEXED BY job_runs_started CROSS JOIN inbox i ON i.id = r.turn
               WHERE r.job = ? AND r.outcome = 'started' AND i.state NOT IN ('done', 'dead') LIMIT 1";
    select_optional_parsed(connection, sql, [job], |row| read_uuid(row, 0))
}

/// The last run of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRun {
    pub at: i64,
    pub outcome: String,
    pub reason: Option<String>,
}

stored_row! { LastRun: at, outcome, reason }

/// Returns the run of a job's newest slot.
pub fn newest_run(connection: &Connection, job: &str) -> Result<Option<LastRun>, StoreError> {
    find_row(connection, "job_runs WHERE job = ? ORDER BY due DESC LIMIT 1", [job])
}

/// Returns the newest runs of a job, the newest first, found by its id or its name, even if the job was deleted.
pub fn of_job(connection: &Connection, id_or_name: &str, limit: u32) -> Result<Vec<JobRunRow>, StoreError> {
    let sql = "SELECT r.job, r.name, r.due, r.at, r.ended_at, r.turn, r.outcome, r.reason, r.sends, i.state,
                   coalesce(o.state, r.delivery), coalesce(o.tries, 0), o.last_error,
                   (SELECT coalesce(sum(u.input_tokens), 0) FROM usage u WHERE u.turn = r.turn),
                   (SELECT coalesce(sum(u.output_tokens), 0) FROM usage u WHERE u.turn = r.turn),
                   (SELECT sum(u.cost) AS most FROM usage u WHERE u.turn = r.turn AND u.cost IS NOT NULL
                       GROUP BY u.currency ORDER BY most DESC, u.currency LIMIT 1),
                   (SELECT u.currency FROM usage u WHERE u.turn = r.turn AND u.cost IS NOT NULL
                       GROUP BY u.currency ORDER BY sum(u.cost) DESC, u.currency LIMIT 1)
               FROM (SELECT seq FROM job_runs WHERE job = ?1
                     UNION ALL SELECT seq FROM job_runs WHERE name = ?1 AND job <> ?1
                     ORDER BY seq DESC LIMIT ?2) found
               JOIN job_runs r ON r.seq = found.seq
               LEFT JOIN inbox i ON i.id = r.turn
               LEFT JOIN outbox o ON o.turn = i.turn AND o.slot = 'reply'
               ORDER BY r.seq DESC";
    select_parsed(connection, sql, params![id_or_name, limit], JobRunRow::read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::usage::{self, TokenCounts};
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn a_history_is_found_by_id_or_name_and_has_the_cost_in_one_currency() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let turn = Uuid::now_v7();
            for (job, name, due, turn) in
                [("a", "news", 1, None), ("b", "news", 2, None), ("a", "news", 3, Some(turn)), ("news", "c", 4, None)]
            {
                let (outcome, reason) = (JobRunOutcome::Ok, None);
                insert(connection, &NewJobRun { job, name, due, turn, outcome, reason })?;
            }
            let used = TokenCounts { turns: 1, input: 1, output: 1, cached: 0 };
            for (model, cost) in [("a/x", ("USD", 40)), ("a/y", ("USD", 30)), ("b/z", ("CNY", 60)), ("c/c", ("ZAR", 1))]
            {
                usage::add(connection, turn, "s", model, used, Some(cost))?;
            }
            usage::add(connection, turn, "s", "d/free", used, None)?;
            Ok(["a", "news", "none"].map(|asked| of_job(connection, asked, 3)))
        };
        let [by_id, by_name, none] = store.write(Durability::Logged, work).await.unwrap().map(Result::unwrap);
        let due = |rows: &[JobRunRow]| rows.iter().map(|row| row.due).collect::<Vec<_>>();
        assert_eq!((due(&by_id), due(&by_name), none), (vec![3, 1], vec![4, 3, 2], Vec::new()));
        assert_eq!((by_id[0].cost, by_id[0].currency.as_deref(), by_id[0].input_tokens), (Some(70), Some("USD"), 5));
        assert_eq!((by_id[1].cost, by_id[1].currency.as_deref()), (None, None));
    }
}
