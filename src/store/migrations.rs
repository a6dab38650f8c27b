//! Numbered migrations; `PRAGMA user_version` is the number of the last one.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

const MIGRATIONS: [&str; 29] = [
    include_str!("migrations/0001_spine.sql"),
    include_str!("migrations/0002_cost.sql"),
    include_str!("migrations/0003_open.sql"),
    include_str!("migrations/0004_notes.sql"),
    include_str!("migrations/0005_jobs.sql"),
    include_str!("migrations/0006_spawns.sql"),
    include_str!("migrations/0007_processes.sql"),
    include_str!("migrations/0008_memory.sql"),
    include_str!("migrations/0009_words.sql"),
    include_str!("migrations/0010_consolidation.sql"),
    include_str!("migrations/0011_vectors.sql"),
    include_str!("migrations/0012_lines.sql"),
    include_str!("migrations/0013_said_vectors.sql"),
    include_str!("migrations/0014_sections.sql"),
    include_str!("migrations/0015_inbox_session.sql"),
    include_str!("migrations/0016_standing.sql"),
    include_str!("migrations/0017_job_names.sql"),
    include_str!("migrations/0018_vector_codes.sql"),
    include_str!("migrations/0019_message_digests.sql"),
    include_str!("migrations/0020_words_removed.sql"),
    include_str!("migrations/0021_forgotten_outputs.sql"),
    include_str!("migrations/0022_origin.sql"),
    include_str!("migrations/0023_approvals.sql"),
    include_str!("migrations/0024_session_tools.sql"),
    include_str!("migrations/0025_questions.sql"),
    include_str!("migrations/0026_session_agent.sql"),
    include_str!("migrations/0027_page.sql"),
    include_str!("migrations/0028_access.sql"),
    include_str!("migrations/0029_state_checks.sql"),
];

/// A query for a table that every version of this program has.
const OURS: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'inbox')";

/// Rejects a file of a newer version or of another program, without writing anything.
pub fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let (found, known) = formats(connection)?;
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    let holds = |sql| connection.query_row(sql, [], |row| row.get::<_, bool>(0));
    let is_empty = found == 0 && !holds("SELECT EXISTS (SELECT 1 FROM sqlite_schema)")?;
    if is_empty || (found > 0 && holds(OURS)?) {
        return Ok(());
    }
    Err(StoreError::Foreign { path: path.to_owned() })
}

/// Returns the file's format, and the newest format that this program knows.
pub fn formats(connection: &Connection) -> Result<(i64, i64), StoreError> {
    Ok((version(connection)?, i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)))
}

/// Migrates the file to this program's format, each step in one transaction.
pub fn run(connection: &mut Connection) -> Result<(), StoreError> {
    let found = version(connection)?;
    for (number, sql) in (1..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::usage::{UsageScope, total};

    #[test]
    fn usage_counted_by_the_first_version_is_kept() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(MIGRATIONS[0]).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        connection
            .execute_batch(
                "INSERT INTO usage VALUES ('t1', 's', 'openai/gpt-4o', 100, 20, 60, 5);
                 INSERT INTO usage VALUES ('t2', 's', 'offline/offline', 7, 3, 0, 6);",
            )
            .unwrap();
        run(&mut connection).unwrap();
        let (found, known) = formats(&connection).unwrap();
        assert_eq!(found, known);
        let spent = total(&connection, UsageScope::Session("s")).unwrap();
        assert_eq!((spent.tokens.turns, spent.tokens.input, spent.tokens.cached), (2, 107, 60));
        let models: Vec<_> = spent.models.iter().map(|model| (model.provider.as_str(), model.costs.len())).collect();
        assert_eq!(models, [("offline", 0), ("openai", 0)], "no price was known then, so none is made up");
        run(&mut connection).unwrap();
    }

    #[test]
    fn writes_of_an_older_store_check_their_states_without_a_temporary_table() {
        let mut connection = Connection::open_in_memory().unwrap();
        for sql in &MIGRATIONS[..28] {
            connection.execute_batch(sql).unwrap();
        }
        connection.pragma_update(None, "user_version", 28).unwrap();
        let message = "INSERT INTO inbox (id, channel, external_id, session, chat_id, sender, trust, content, attachments, metadata,
                           received_at, turn, state) VALUES (?1, '', ?1, '', '', '', '', '', '[]', '{}', 0, ?1, ?2)";
        let reply = "INSERT INTO outbox (id, turn, slot, attempt, channel, chat_id, body, state, created_at)
                         VALUES (?1, ?1, '', 0, '', '', '{}', ?2, 0)";
        let builds_table = |connection: &Connection, sql: &str| {
            let mut plan = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
            let steps = plan.query_map(["a", "done"], |row| row.get::<_, String>("opcode")).unwrap();
            steps.map(Result::unwrap).any(|step| step == "OpenEphemeral")
        };
        assert!(builds_table(&connection, message) && builds_table(&connection, reply));
        run(&mut connection).unwrap();
        assert!(!builds_table(&connection, message) && !builds_table(&connection, reply));
        for (sql, states) in [
            (message, ["queued", "running", "waiting", "done", "dead"]),
            (reply, ["pending", "sending", "sent", "unknown", "dead"]),
        ] {
            for state in states {
                connection.execute(sql, [state, state]).unwrap();
            }
            assert!(connection.execute(sql, ["x", "x"]).unwrap_err().to_string().contains("CHECK"));
        }
    }
}
