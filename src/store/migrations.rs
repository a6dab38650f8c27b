//! Numbered migrations; `PRAGMA user_version` is the number of the last one.

use std::path::Path;

use include_dir::{Dir, include_dir};
use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// The migrations, in the order of their names. A new file is embedded when this module is compiled again.
static MIGRATIONS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/src/store/migrations");

/// Returns the number of each migration, with which its name begins, and its SQL.
fn scripts() -> impl Iterator<Item = (i64, &'static str)> {
    MIGRATIONS.files().filter_map(|file| {
        let (number, _) = file.path().to_str()?.strip_suffix(".sql")?.split_once('_')?;
        Some((number.parse().ok()?, file.contents_utf8()?))
    })
}

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
    Ok((version(connection)?, scripts().map(|(number, _)| number).max().unwrap_or_default()))
}

/// Migrates the file to this program's format, each step in one transaction.
pub fn run(connection: &mut Connection) -> Result<(), StoreError> {
    let found = version(connection)?;
    for (number, sql) in scripts().filter(|(number, _)| *number > found) {
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
pub(super) mod tests {
    use super::*;
    use crate::store::meta;
    use crate::store::search_index::{self, SearchCorpus};
    use crate::store::usage::{UsageScope, total};

    /// Returns a database of this format, without rows.
    pub(in crate::store) fn database_of_format(format: usize) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for (_, sql) in scripts().take(format) {
            connection.execute_batch(sql).unwrap();
        }
        connection.pragma_update(None, "user_version", format).unwrap();
        connection
    }

    #[test]
    fn migrations_are_numbered_without_gaps() {
        assert!(scripts().map(|(number, _)| number).eq((1..).take(MIGRATIONS.files().count())));
    }

    #[test]
    fn usage_counted_by_the_first_version_is_kept() {
        let mut connection = database_of_format(1);
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
        let mut connection = database_of_format(28);
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

    #[test]
    fn rows_and_pages_stay_where_they_are_when_tables_get_standard_names() {
        let mut connection = database_of_format(29);
        let pages = "SELECT group_concat(rootpage) FROM (SELECT rootpage FROM sqlite_schema WHERE rootpage > 0 ORDER BY rootpage)";
        let read =
            |connection: &Connection, sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        let before = read(&connection, pages);
        connection
            .execute_batch(
                "INSERT INTO messages VALUES ('s', 0, 7, 'user', '{}', 't', 1, NULL);
                 INSERT INTO said (session, seq, owner, speaker) VALUES ('s', 7, 'owner', 'ann');
                 INSERT INTO said_words (rowid, words) VALUES (1, 'heron');
                 INSERT INTO said_codes (owner, held, codes) VALUES ('owner', 1, zeroblob(72));
                 INSERT INTO said_vectors VALUES (1, x'00', x'00', 256);
                 INSERT INTO skipped VALUES ('email', 'INBOX', '1:1', 'too large', 1);
                 INSERT INTO point_names VALUES ('s', 'draft', 't', 1);
                 INSERT INTO meta VALUES ('clean', 'of clean');",
            )
            .unwrap();
        for (earlier, _) in meta::RENAMED {
            meta::set(&connection, earlier, &format!("of {earlier}")).unwrap();
        }
        run(&mut connection).unwrap();
        assert_eq!(read(&connection, pages), before);
        assert_eq!(read(&connection, "SELECT reason FROM skipped_messages"), "too large");
        assert_eq!(read(&connection, "SELECT name FROM checkpoint_names"), "draft");
        for (earlier, key) in meta::RENAMED {
            assert_eq!(meta::get(&connection, earlier).unwrap(), None);
            assert_eq!(meta::get(&connection, key).unwrap(), Some(format!("of {earlier}")));
        }
        assert_eq!(meta::get(&connection, meta::CLEAN).unwrap().unwrap(), "of clean");
        let found = search_index::find(&connection, SearchCorpus::Messages, "heron", 9).unwrap();
        assert_eq!(search_index::find_message(&connection, found[0]).unwrap().unwrap().seq, 7);
        connection.execute("DELETE FROM messages", []).unwrap();
        let left = "SELECT (SELECT count(*) FROM index_deletions) || (SELECT count(*) FROM indexed_messages)
                        || (SELECT count(*) FROM message_vectors) || (SELECT count(*) FROM message_codes)";
        assert_eq!(read(&connection, left), "1000", "only the terms wait for their removal");
        assert_eq!(read(&connection, "PRAGMA integrity_check"), "ok");
    }
}
