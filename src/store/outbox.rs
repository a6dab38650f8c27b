//! What is to be delivered: `pending → sending → sent | unknown | dead`, `unknown → pending | dead`.
//!
//! A condition such as `state = 'pending' AND state IN ('pending', 'sending')` says the same twice: SQLite uses a
//! partial index only where the index's own condition stands in the query.

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::{StoreError, now_ms};

/// The namespace of outbox ids (UUIDv5, RFC 9562).
const NAMESPACE: Uuid = Uuid::from_u128(0x9d0e_6a52_7c1b_5f43_8a1e_3d5b_60f2_c7a4);

/// A thing to deliver.
#[derive(Clone, Debug)]
pub struct NewOutbound {
    pub turn: Uuid,
    /// `reply`, `tool:<step>` or `notice:<kind>`: one row each a turn.
    pub slot: String,
    pub channel: String,
    pub chat_id: String,
    /// JSON.
    pub body: String,
}

/// A row as it stands.
#[derive(Clone, Debug, serde::Serialize)]
pub struct OutboxRow {
    pub seq: i64,
    pub id: Uuid,
    pub turn: Uuid,
    pub slot: String,
    pub attempt: i64,
    pub channel: String,
    pub chat_id: String,
    pub body: String,
    pub state: String,
    pub tries: u32,
    pub next_at: i64,
    pub provider_id: Option<String>,
    pub last_error: Option<String>,
    pub created_at: i64,
}

/// What the deliverer keeps of a pending row in memory.
#[derive(Clone, Debug)]
pub struct Pending {
    pub seq: i64,
    pub id: Uuid,
    pub chat_id: String,
    pub tries: u32,
    pub next_at: i64,
}

const COLUMNS: &str = "seq, id, turn, slot, attempt, channel, chat_id, body, state, tries, next_at, provider_id,
    last_error, created_at";

/// The id of one delivery: the same turn, attempt and slot give the same id, whatever happened in between.
pub fn id_of(turn: Uuid, attempt: i64, slot: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{turn}/{attempt}/{slot}").as_bytes())
}

/// Adds a row as `pending`; answers its id. A slot that stands already (a turn that was revived) is written anew as
/// its next attempt, under a new id.
pub fn insert(connection: &Connection, new: &NewOutbound) -> Result<Uuid, StoreError> {
    let turn = new.turn.to_string();
    let before: Option<i64> = connection
        .prepare_cached("SELECT attempt FROM outbox WHERE turn = ? AND slot = ?")?
        .query_row(params![turn, new.slot], |row| row.get(0))
        .optional()?;
    let attempt = before.map_or(0, |attempt| attempt + 1);
    let id = id_of(new.turn, attempt, &new.slot);
    if before.is_some() {
        connection
            .prepare_cached("DELETE FROM outbox WHERE turn = ? AND slot = ?")?
            .execute(params![turn, new.slot])?;
    }
    connection
        .prepare_cached(
            "INSERT INTO outbox (id, turn, slot, attempt, channel, chat_id, body, state, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?)",
        )?
        .execute(params![id.to_string(), turn, new.slot, attempt, new.channel, new.chat_id, new.body, now_ms()])?;
    Ok(id)
}

/// `pending → sending`, counted as a try; answers the row, or `None` when it is no longer pending. `resend` is what
/// this delivery gets if it is cut off.
pub fn claim(connection: &Connection, id: Uuid, resend: &str) -> Result<Option<OutboxRow>, StoreError> {
    // Two plain statements: RETURNING makes SQLite gather what it returns in a table of its own.
    let claimed = connection
        .prepare_cached(
            "UPDATE outbox SET state = 'sending', tries = tries + 1, resend = ? WHERE id = ? AND state = 'pending'",
        )?
        .execute(params![resend, id.to_string()])?;
    if claimed == 0 { Ok(None) } else { find(connection, id) }
}

/// The body of a row that is delivered or given up: of what was forgotten meanwhile the words go.
const WITHOUT_FORGOTTEN: &str = "iif(instr(body, '\"forget\":true'), json_set(body, '$.content', '[forgotten]'), body)";

/// `sending → sent`. Of what was forgotten meanwhile the words go.
pub fn mark_sent(connection: &Connection, id: Uuid, provider_id: Option<&str>) -> Result<(), StoreError> {
    connection
        .prepare_cached(&format!(
            "UPDATE outbox SET state = 'sent', provider_id = ?, last_error = NULL, body = {WITHOUT_FORGOTTEN}
             WHERE id = ? AND state = 'sending'"
        ))?
        .execute(params![provider_id, id.to_string()])?;
    Ok(())
}

/// `sending → pending`, due at `next_at`.
pub fn mark_retry(connection: &Connection, id: Uuid, next_at: i64, error: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE outbox SET state = 'pending', next_at = ?, last_error = ? WHERE id = ? AND state = 'sending'",
        )?
        .execute(params![next_at, error, id.to_string()])?;
    Ok(())
}

/// `sending → pending` as if it had not been tried: nobody was there.
pub fn mark_away(connection: &Connection, id: Uuid) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE outbox SET state = 'pending', tries = tries - 1 WHERE id = ? AND state = 'sending'")?
        .execute([id.to_string()])?;
    Ok(())
}

/// `sending → pending`, due at `next_at`, as if it had not been tried: its channel cannot send.
pub fn mark_held(connection: &Connection, id: Uuid, next_at: i64, error: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE outbox SET state = 'pending', tries = tries - 1, next_at = ?, last_error = ?
             WHERE id = ? AND state = 'sending'",
        )?
        .execute(params![next_at, error, id.to_string()])?;
    Ok(())
}

/// A row that waits for its next try is due at once; answers its channel, or `None` when it waits for none.
pub fn hasten(connection: &Connection, id: Uuid) -> Result<Option<String>, StoreError> {
    let sql = "UPDATE outbox SET next_at = 0 WHERE id = ? AND state = 'pending'";
    let is_there = connection.prepare_cached(sql)?.execute([id.to_string()])? == 1;
    Ok(if is_there { find(connection, id)?.map(|row| row.channel) } else { None })
}

/// The ids of rows that were tried and wait for the next try, the oldest first.
pub fn put_off(connection: &Connection, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    // The first condition is that of the index of what is open, the sign keeps the order from choosing another one.
    let tried =
        "state IN ('pending', 'sending') AND state = 'pending' AND last_error IS NOT NULL ORDER BY +seq LIMIT ?1";
    Ok(many(connection, tried, params![limit])?.into_iter().map(|row| row.id).collect())
}

/// The seqs of a channel's rows that [`hasten`] made due and that were tried before.
pub fn hastened(connection: &Connection, channel: &str) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM outbox WHERE channel = ? AND state IN ('pending', 'sending') AND state = 'pending'
            AND next_at = 0 AND last_error IS NOT NULL",
    )?;
    let rows = statement.query_map([channel], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// `sending → unknown` for good, or `→ dead`.
pub fn mark_ended(connection: &Connection, id: Uuid, state: &str, error: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(&format!(
            "UPDATE outbox SET state = ?, last_error = ?, body = {WITHOUT_FORGOTTEN}
             WHERE id = ? AND state IN ('sending', 'pending')"
        ))?
        .execute(params![state, error, id.to_string()])?;
    Ok(())
}

/// What was being sent when the process died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutOff {
    pub channel: String,
    /// It is `pending` again; else nobody knows whether it arrived, and it stays `unknown`.
    pub is_sent_again: bool,
}

/// After a start: what was `sending` when the process died is `unknown`, and then by the rule written in the row
/// `pending` again or not. With a `channel` only what that one had out.
pub fn recover(connection: &Connection, channel: Option<&str>) -> Result<Vec<CutOff>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "UPDATE outbox SET next_at = 0, last_error = ?1,
            state = iif(coalesce(resend, '') IN ('same_id', 'again'), 'pending', 'unknown'),
            body = iif(coalesce(resend, '') IN ('same_id', 'again'), body, {WITHOUT_FORGOTTEN})
         WHERE state = 'sending' AND state IN ('pending', 'sending') AND (?2 IS NULL OR channel = ?2)
         RETURNING channel, state = 'pending'"
    ))?;
    let reason = "sending broke off, or the gateway stopped; whether it arrived is unknown";
    let rows = statement
        .query_map(params![reason, channel], |row| Ok(CutOff { channel: row.get(0)?, is_sent_again: row.get(1)? }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The bodies of messages with copies of files that may still be sent.
pub fn bodies_with_files(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut statement = connection
        .prepare_cached(r#"SELECT body FROM outbox WHERE state <> 'sent' AND instr(body, '"digest":') > 0"#)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// No row waits longer than `longest_ms` from now: the clock may have jumped.
pub fn bound_waits(connection: &Connection, longest_ms: i64) -> Result<(), StoreError> {
    let latest = now_ms() + longest_ms;
    connection
        .prepare_cached("UPDATE outbox SET next_at = ?1 WHERE state IN ('pending', 'sending') AND next_at > ?1")?
        .execute([latest])?;
    Ok(())
}

/// The channel's pending rows after `seq`, in order.
pub fn pending_after(connection: &Connection, channel: &str, seq: i64, limit: u32) -> Result<Vec<Pending>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, id, chat_id, tries, next_at FROM outbox
         WHERE channel = ? AND seq > ? AND state = 'pending' AND state IN ('pending', 'sending') ORDER BY seq LIMIT ?",
    )?;
    let mut rows = statement.query(params![channel, seq, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Pending {
            seq: row.get(0)?,
            id: uuid(row, 1)?,
            chat_id: row.get(2)?,
            tries: row.get(3)?,
            next_at: row.get(4)?,
        });
    }
    Ok(found)
}

/// Channels with undelivered rows, and how many.
pub fn open_by_channel(connection: &Connection) -> Result<Vec<(String, usize)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT channel, count(*) FROM outbox WHERE state IN ('pending', 'sending') GROUP BY channel",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub fn find(connection: &Connection, id: Uuid) -> Result<Option<OutboxRow>, StoreError> {
    Ok(many(connection, "id = ?1", params![id.to_string()])?.into_iter().next())
}

/// The rows that a turn produced, in order.
pub fn of_turn(connection: &Connection, turn: Uuid) -> Result<Vec<OutboxRow>, StoreError> {
    many(connection, "turn = ?1 ORDER BY seq", params![turn.to_string()])
}

/// The turn's reply.
pub fn reply(connection: &Connection, turn: Uuid) -> Result<Option<OutboxRow>, StoreError> {
    Ok(many(connection, "turn = ?1 AND slot = 'reply'", params![turn.to_string()])?.into_iter().next())
}

/// What a turn has in a slot.
pub fn of_slot(connection: &Connection, turn: Uuid, slot: &str) -> Result<Option<OutboxRow>, StoreError> {
    Ok(many(connection, "turn = ?1 AND slot = ?2", params![turn.to_string(), slot])?.into_iter().next())
}

/// What is not delivered: pending, sending, unknown, dead; the oldest first.
pub fn undelivered(connection: &Connection, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
    // Told by `+` not to go by seq, which would read everything that was ever sent.
    let mut rows = many(connection, "state IN ('pending', 'sending') ORDER BY +seq LIMIT ?1", params![limit])?;
    rows.extend(many(connection, "state IN ('unknown', 'dead') ORDER BY +seq LIMIT ?1", params![limit])?);
    rows.sort_by_key(|row| row.seq);
    Ok(rows)
}

/// How many rows there are in `unknown` and `dead`.
pub fn stuck(connection: &Connection) -> Result<usize, StoreError> {
    let sql = "SELECT count(*) FROM outbox WHERE state IN ('unknown', 'dead')";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// A dead or unknown row is sent again as its next attempt, under a new id; answers it, or `None` when it is neither.
pub fn retry(connection: &Connection, id: Uuid) -> Result<Option<OutboxRow>, StoreError> {
    let Some(row) = find(connection, id)?.filter(|row| matches!(row.state.as_str(), "dead" | "unknown")) else {
        return Ok(None);
    };
    // Written anew rather than moved: its seq comes after every other that was ever given.
    let new = NewOutbound {
        turn: row.turn,
        slot: row.slot.clone(),
        channel: row.channel,
        chat_id: row.chat_id,
        body: row.body,
    };
    let new_id = insert(connection, &new)?;
    find(connection, new_id)
}

/// The ids of rows that are `dead` or `unknown`, the oldest first.
pub fn in_state(connection: &Connection, state: &str, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    let stuck = "state = ?1 AND state IN ('unknown', 'dead') ORDER BY +seq LIMIT ?2";
    Ok(many(connection, stuck, params![state, limit])?.into_iter().map(|row| row.id).collect())
}

/// A row that is not delivered is given up for good; answers whether there was one.
pub fn remove(connection: &Connection, id: Uuid) -> Result<bool, StoreError> {
    let sql = "DELETE FROM outbox WHERE id = ? AND state IN ('pending', 'unknown', 'dead')";
    Ok(connection.prepare_cached(sql)?.execute([id.to_string()])? == 1)
}

fn many(
    connection: &Connection,
    filter: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<OutboxRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM outbox WHERE {filter}"))?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read_row(row)?);
    }
    Ok(found)
}

fn read_row(row: &Row<'_>) -> Result<OutboxRow, StoreError> {
    Ok(OutboxRow {
        seq: row.get(0)?,
        id: uuid(row, 1)?,
        turn: uuid(row, 2)?,
        slot: row.get(3)?,
        attempt: row.get(4)?,
        channel: row.get(5)?,
        chat_id: row.get(6)?,
        body: row.get(7)?,
        state: row.get(8)?,
        tries: row.get(9)?,
        next_at: row.get(10)?,
        provider_id: row.get(11)?,
        last_error: row.get(12)?,
        created_at: row.get(13)?,
    })
}

fn uuid(row: &Row<'_>, at: usize) -> Result<Uuid, StoreError> {
    Ok(row.get_ref(at)?.as_str().map_err(rusqlite::Error::from)?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::opening;

    fn store() -> (tempfile::TempDir, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let connection = opening::open(&folder.path().join("daoyou.db")).unwrap().connection;
        (folder, connection)
    }

    fn add(connection: &Connection, channel: &str) -> Uuid {
        let (turn, slot) = (Uuid::now_v7(), "reply".to_owned());
        let (channel, chat_id, body) = (channel.to_owned(), "c".to_owned(), "{}".to_owned());
        insert(connection, &NewOutbound { turn, slot, channel, chat_id, body }).unwrap()
    }

    fn state(connection: &Connection, id: Uuid) -> String {
        find(connection, id).unwrap().map(|row| row.state).unwrap_or_default()
    }

    #[test]
    fn what_was_cut_off_goes_by_the_rule_in_its_row() {
        type Done = fn(&Connection, Uuid) -> Result<(), StoreError>;
        let table: &[(&str, Option<&str>, Done, &str)] = &[
            ("never tried", None, |_, _| Ok(()), "pending"),
            ("cut off, known by its id", Some("same_id"), |_, _| Ok(()), "pending"),
            ("cut off, better twice than never", Some("again"), |_, _| Ok(()), "pending"),
            ("cut off, better never than twice", Some("never"), |_, _| Ok(()), "unknown"),
            ("cut off, a rule of another version", Some("perhaps"), |_, _| Ok(()), "unknown"),
            ("sent", Some("same_id"), |connection, id| mark_sent(connection, id, None), "sent"),
            ("given up", Some("same_id"), |connection, id| mark_ended(connection, id, "dead", "no"), "dead"),
            (
                "in doubt before",
                Some("same_id"),
                |connection, id| mark_ended(connection, id, "unknown", "?"),
                "unknown",
            ),
            ("to be tried again", Some("same_id"), |connection, id| mark_retry(connection, id, 7, "busy"), "pending"),
            ("nobody was there", Some("never"), mark_away, "pending"),
        ];
        let (_folder, connection) = store();
        let ids: Vec<Uuid> = table.iter().map(|(name, ..)| add(&connection, name)).collect();
        for ((name, resend, done, _), id) in table.iter().zip(&ids) {
            if let Some(resend) = resend {
                assert!(claim(&connection, *id, resend).unwrap().is_some(), "{name}");
                assert!(claim(&connection, *id, resend).unwrap().is_none(), "{name}: it is out already");
            }
            done(&connection, *id).unwrap();
        }
        let cut_off = recover(&connection, None).unwrap();
        for ((name, .., expected), id) in table.iter().zip(&ids) {
            assert_eq!(state(&connection, *id), *expected, "{name}");
            let told = cut_off.iter().find(|row| row.channel == *name).map(|row| row.is_sent_again);
            assert_eq!(told, name.starts_with("cut off").then_some(*expected == "pending"), "{name}");
        }
        let waits: Vec<i64> = table
            .iter()
            .flat_map(|(name, ..)| pending_after(&connection, name, 0, 9).unwrap())
            .map(|pending| pending.next_at)
            .collect();
        assert_eq!(waits, [0, 0, 0, 7, 0], "its own wait holds, what was cut off is due at once");
        assert_eq!(recover(&connection, None).unwrap(), [], "once is enough");

        let [one, other] = ["one", "other"].map(|channel| add(&connection, channel));
        for id in [one, other] {
            claim(&connection, id, "again").unwrap();
        }
        assert_eq!(recover(&connection, Some("one")).unwrap().len(), 1);
        assert_eq!([one, other].map(|id| state(&connection, id)), ["pending", "sending"]);
    }

    #[test]
    fn only_what_is_given_up_or_in_doubt_is_tried_again_and_what_is_out_is_not_dropped() {
        let (_folder, connection) = store();
        let table: &[(&str, bool, bool)] = &[
            ("pending", false, true),
            ("sending", false, false),
            ("sent", false, false),
            ("unknown", true, true),
            ("dead", true, true),
        ];
        for (word, is_retried, is_dropped) in table {
            let put = |id: Uuid| {
                let sql = "UPDATE outbox SET state = ?, tries = 3, next_at = 5, last_error = 'no' WHERE id = ?";
                connection.execute(sql, params![word, id.to_string()]).unwrap();
            };
            let id = add(&connection, "x");
            put(id);
            let again = retry(&connection, id).unwrap();
            assert_eq!(again.is_some(), *is_retried, "{word}");
            if let Some(row) = again {
                assert_eq!(
                    (row.id, row.attempt, row.tries, row.next_at),
                    (id_of(row.turn, 1, "reply"), 1, 0, 0),
                    "{word}"
                );
                assert!(row.state == "pending" && row.last_error.is_none() && row.id != id, "{row:?}");
                let newer = add(&connection, "x");
                assert!(find(&connection, newer).unwrap().unwrap().seq > row.seq, "places are never given twice");
            }
            let id = add(&connection, "x");
            put(id);
            assert_eq!(remove(&connection, id).unwrap(), *is_dropped, "{word}");
        }
    }
}
