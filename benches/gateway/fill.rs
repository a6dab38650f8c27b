//! Puts a past into a store: sessions with many messages, as if they had been said.

use std::path::Path;

use rusqlite::{Connection, params};

/// Writes `sessions` sessions of `each` messages into the store at `database`, which a gateway has created and left.
/// Session `n` is that of chat `past-n` on the webhook `in`. Two messages, an inbox row and an outbox row are one turn.
///
/// What was said is told by a summary but for the newest, and can be found: so nothing else is to be done about it while turns
/// are measured.
///
/// This knows the store's tables (migrations 1, 2, 8 and 9) and changes with them.
pub fn fill(database: &Path, sessions: usize, each: usize) -> rusqlite::Result<()> {
    const TURN: &str = "printf('%08x-0000-7000-8000-%012x', s.n, t.n)";
    const NUMBERS: &str = "WITH RECURSIVE
        s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n + 1 < ?1),
        t(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n + 1 < ?2)";
    // 2026-01-01, and one message a second.
    const AT: &str = "1767225600000 + (s.n * ?2 + t.n) * 1000";
    let store = Connection::open(database)?;
    store.execute_batch("PRAGMA synchronous = OFF; BEGIN")?;
    let number = |n: usize| i64::try_from(n).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()));
    let (sessions, turns) = (number(sessions)?, number(each / 2)?);
    let fill = |sql: String| store.execute(&sql, params![sessions, turns]);
    store.execute(
        "WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n + 1 < ?1)
         INSERT INTO sessions (session, epoch, first_seq, next_seq, created_at, updated_at)
         SELECT 'webhook:in:past-' || s.n, 0, 0, ?2, 1767225600000, 1767225600000 + s.n FROM s",
        params![sessions, turns * 2],
    )?;
    for (role, offset) in [("user", 0), ("assistant", 1)] {
        fill(format!(
            "{NUMBERS} INSERT INTO messages (session, epoch, seq, role, body, turn, at)
             SELECT 'webhook:in:past-' || s.n, 0, t.n * 2 + {offset}, '{role}',
                json_object('role', '{role}', 'content', 'What was said in message ' || t.n || ' of the past, which is
                neither very short nor very long.'), {TURN}, {AT} FROM s, t"
        ))?;
    }
    fill(format!(
        "{NUMBERS} INSERT INTO inbox (id, channel, external_id, session, chat_id, sender, trust, content, attachments,
            metadata, received_at, turn, state)
         SELECT {TURN}, 'webhook:in', 'past-' || s.n || '-' || t.n, 'webhook:in:past-' || s.n, 'past-' || s.n, '',
            'known', 'What was said', '[]', '{{}}', {AT}, {TURN}, 'done' FROM s, t"
    ))?;
    fill(format!(
        "{NUMBERS} INSERT INTO outbox (id, turn, slot, attempt, channel, chat_id, body, state, tries, created_at)
         SELECT {TURN}, {TURN}, 'reply', 0, 'webhook:in', 'past-' || s.n, '{{}}', 'sent', 1, {AT} FROM s, t"
    ))?;
    store.execute_batch(
        "INSERT OR IGNORE INTO indexed (session, seq) SELECT session, next_seq FROM sessions;
         INSERT OR IGNORE INTO session_memory (session, epoch, cursor, updated_at)
         SELECT session, epoch, max(0, next_seq - 30), updated_at FROM sessions;",
    )?;
    store.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}
