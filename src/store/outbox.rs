//! Messages to deliver: `pending → sending → sent | unknown | dead`, `unknown → pending | dead`.
//!
//! A condition such as `state = 'pending' AND state IN ('pending', 'sending')` is redundant on purpose: SQLite uses a partial
//! index only if the query contains the index's own condition.

use rusqlite::{Connection, ToSql, params};
use uuid::Uuid;

use super::sql::{
    execute, find_row, find_rows, read_uuid, select, select_optional, select_parsed, select_value, stored_row,
};
use super::{StoreError, log_purge, now_ms};

/// The namespace of outbox ids (UUIDv5, RFC 9562).
const NAMESPACE: Uuid = Uuid::from_u128(0x9d0e_6a52_7c1b_5f43_8a1e_3d5b_60f2_c7a4);

/// A message to insert.
#[derive(Clone, Debug)]
pub struct NewOutbound {
    pub turn: Uuid,
    /// `reply`, `tool:<step>` or `notice:<kind>`. A turn has one row for each slot.
    pub slot: String,
    pub channel: String,
    pub chat_id: String,
    /// JSON.
    pub body: String,
}

/// A row of the outbox.
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

/// The part of a pending row that the delivery worker keeps in memory.
#[derive(Clone, Debug)]
pub struct PendingDelivery {
    pub seq: i64,
    pub id: Uuid,
    pub chat_id: String,
    pub tries: u32,
    pub next_at: i64,
}

stored_row! { PendingDelivery: seq, id by read_uuid, chat_id, tries, next_at }

stored_row! {
    OutboxRow: seq, id by read_uuid, turn by read_uuid, slot, attempt, channel, chat_id, body, state, tries,
        next_at, provider_id, last_error, created_at
}

/// Returns the id of a delivery. The same turn, attempt and slot always give the same id.
pub fn id_of(turn: Uuid, attempt: i64, slot: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{turn}/{attempt}/{slot}").as_bytes())
}

/// A row that was inserted.
#[derive(Clone, Copy, Debug)]
pub struct InsertedOutbound {
    pub id: Uuid,
    /// It took the place of a pending row.
    pub replaces_pending: bool,
}

/// Inserts a row as `pending`. If the slot exists, because the turn was revived, the new row is its next attempt under a new id.
pub fn insert(connection: &Connection, new: &NewOutbound) -> Result<InsertedOutbound, StoreError> {
    let turn = new.turn.to_string();
    let sql = "SELECT attempt, state = 'pending' FROM outbox WHERE turn = ? AND slot = ?";
    let before: Option<(i64, bool)> =
        select_optional(connection, sql, params![turn, new.slot], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if before.is_some() {
        execute(connection, "DELETE FROM outbox WHERE turn = ? AND slot = ?", params![turn, new.slot])?;
    }
    let (attempt, replaces_pending) = before.map_or((0, false), |(attempt, is_pending)| (attempt + 1, is_pending));
    let id = insert_attempt(connection, new, attempt, now_ms())?;
    Ok(InsertedOutbound { id, replaces_pending })
}

fn insert_attempt(
    connection: &Connection,
    new: &NewOutbound,
    attempt: i64,
    created_at: i64,
) -> Result<Uuid, StoreError> {
    let (id, turn) = (id_of(new.turn, attempt, &new.slot), new.turn.to_string());
    let sql = "INSERT INTO outbox (id, turn, slot, attempt, channel, chat_id, body, state, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?)";
    let values = params![id.to_string(), turn, new.slot, attempt, new.channel, new.chat_id, new.body, created_at];
    execute(connection, sql, values)?;
    Ok(id)
}

/// Marks a row as `sending` and counts the attempt; returns the row, or `None` if it is no longer pending. `resend` says what to do
/// with an interrupted delivery.
pub fn claim(connection: &Connection, id: Uuid, resend: &str) -> Result<Option<OutboxRow>, StoreError> {
    // Two plain statements, because SQLite collects the result of RETURNING in a temporary table.
    let sql = "UPDATE outbox SET state = 'sending', tries = tries + 1, resend = ? WHERE id = ? AND state = 'pending'";
    let claimed = execute(connection, sql, params![resend, id.to_string()])?;
    if claimed == 0 { Ok(None) } else { find(connection, id) }
}

/// The body of a row that was delivered or given up, without text that was forgotten meanwhile.
const WITHOUT_FORGOTTEN: &str = "iif(instr(body, '\"forget\":true'),
    json_remove(json_set(body, '$.content', '[forgotten]'), '$.context.subject'), body)";

/// `sending → sent`. Removes text that was forgotten meanwhile.
pub fn mark_sent(connection: &Connection, id: Uuid, provider_id: Option<&str>) -> Result<(), StoreError> {
    let set = "state = 'sent', provider_id = ?2, last_error = NULL";
    end(connection, set, "state = 'sending'", params![id.to_string(), provider_id])
}

/// Changes a row that ends, as `set` says. A text that was forgotten meanwhile leaves the row, and the write-ahead log too.
fn end(connection: &Connection, set: &str, condition: &str, parameters: &[&dyn ToSql]) -> Result<(), StoreError> {
    let rows = format!("WHERE id = ?1 AND {condition}");
    let sql = format!("UPDATE outbox SET {set} {rows} AND instr(body, '\"forget\":true') = 0");
    if execute(connection, &sql, parameters)? > 0 {
        return Ok(());
    }
    let sql = format!("UPDATE outbox SET {set}, body = {WITHOUT_FORGOTTEN} {rows}");
    if execute(connection, &sql, parameters)? > 0 {
        log_purge::request();
    }
    Ok(())
}

/// `sending → pending`, due at `next_at`.
pub fn mark_retry(connection: &Connection, id: Uuid, next_at: i64, error: &str) -> Result<(), StoreError> {
    let sql = "UPDATE outbox SET state = 'pending', next_at = ?, last_error = ? WHERE id = ? AND state = 'sending'";
    execute(connection, sql, params![next_at, error, id.to_string()]).map(drop)
}

/// `sending → pending`, without counting the attempt, because no receiver was connected.
pub fn mark_absent(connection: &Connection, id: Uuid) -> Result<(), StoreError> {
    let sql = "UPDATE outbox SET state = 'pending', tries = tries - 1 WHERE id = ? AND state = 'sending'";
    execute(connection, sql, [id.to_string()]).map(drop)
}

/// `sending → pending`, due at `next_at`, without counting the attempt, because the channel cannot send.
pub fn mark_held(connection: &Connection, id: Uuid, next_at: i64, error: &str) -> Result<(), StoreError> {
    let sql = "UPDATE outbox SET state = 'pending', tries = tries - 1, next_at = ?, last_error = ?
             WHERE id = ? AND state = 'sending'";
    execute(connection, sql, params![next_at, error, id.to_string()]).map(drop)
}

/// Makes a row that waits for its next attempt due now; returns its channel, or `None` if it does not wait.
pub fn make_due(connection: &Connection, id: Uuid) -> Result<Option<String>, StoreError> {
    let sql = "UPDATE outbox SET next_at = 0 WHERE id = ? AND state = 'pending'";
    let is_there = execute(connection, sql, [id.to_string()])? == 1;
    Ok(if is_there { find(connection, id)?.map(|row| row.channel) } else { None })
}

/// Returns the ids of rows that wait for their next attempt, the oldest first.
pub fn waiting_for_retry(connection: &Connection, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    // The first condition is that of the index of open rows; the `+` keeps SQLite from choosing another index for the order.
    let sql =
        "SELECT id FROM outbox WHERE state IN ('pending', 'sending') AND state = 'pending' AND last_error IS NOT NULL
             ORDER BY +seq LIMIT ?1";
    select_parsed(connection, sql, [limit], |row| read_uuid(row, 0))
}

/// Returns the seqs of a channel's rows that [`make_due`] has made due.
pub fn made_due(connection: &Connection, channel: &str) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT seq FROM outbox WHERE channel = ? AND state IN ('pending', 'sending') AND state = 'pending'
            AND next_at = 0 AND last_error IS NOT NULL";
    select(connection, sql, [channel], |row| row.get(0))
}

/// Ends a row as `unknown` or `dead`.
pub fn mark_ended(connection: &Connection, id: Uuid, state: &str, error: &str) -> Result<(), StoreError> {
    let set = "state = ?2, last_error = ?3";
    end(connection, set, "state IN ('sending', 'pending')", params![id.to_string(), state, error])
}

/// A delivery that the end of the process interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptedDelivery {
    pub channel: String,
    /// True if the delivery is `pending` again. Otherwise it stays `unknown`, because the message may have arrived.
    pub is_sent_again: bool,
}

/// Recovers interrupted deliveries after a start: `sending` rows become `pending` or `unknown`, as the row's `resend` says. With a
/// `channel`, only the rows of that channel.
pub fn recover(connection: &Connection, channel: Option<&str>) -> Result<Vec<InterruptedDelivery>, StoreError> {
    let sql = format!(
        "UPDATE outbox SET next_at = 0, last_error = ?1,
            state = iif(coalesce(resend, '') IN ('same_id', 'again'), 'pending', 'unknown'),
            body = iif(coalesce(resend, '') IN ('same_id', 'again'), body, {WITHOUT_FORGOTTEN})
         WHERE state = 'sending' AND state IN ('pending', 'sending') AND (?2 IS NULL OR channel = ?2)
         RETURNING channel, state = 'pending'"
    );
    let reason = "sending broke off, or the gateway stopped; whether it arrived is unknown";
    select(connection, &sql, params![reason, channel], |row| {
        Ok(InterruptedDelivery { channel: row.get(0)?, is_sent_again: row.get(1)? })
    })
}

/// Returns the bodies of messages with copies of files that may still be sent, or that the page shows.
pub fn bodies_with_files(connection: &Connection) -> Result<Vec<String>, StoreError> {
    select(
        connection,
        r#"SELECT body FROM outbox WHERE (state <> 'sent' OR channel = 'page') AND instr(body, '"digest":') > 0"#,
        [],
        |row| row.get(0),
    )
}

/// Limits all waits to `longest_ms` from now, because the clock may have changed.
pub fn bound_waits(connection: &Connection, longest_ms: i64) -> Result<(), StoreError> {
    let latest = now_ms() + longest_ms;
    let sql = "UPDATE outbox SET next_at = ?1 WHERE state IN ('pending', 'sending') AND next_at > ?1";
    execute(connection, sql, [latest]).map(drop)
}

/// Returns the channel's pending rows after `seq`, in order.
pub fn pending_after(
    connection: &Connection,
    channel: &str,
    seq: i64,
    limit: u32,
) -> Result<Vec<PendingDelivery>, StoreError> {
    let pending = "outbox WHERE channel = ? AND seq > ? AND state = 'pending' AND state IN ('pending', 'sending')
                   ORDER BY seq LIMIT ?";
    find_rows(connection, pending, params![channel, seq, limit])
}

/// Returns the channels with undelivered rows, and their numbers.
pub fn open_by_channel(connection: &Connection) -> Result<Vec<(String, usize)>, StoreError> {
    let sql = "SELECT channel, count(*) FROM outbox WHERE state IN ('pending', 'sending') GROUP BY channel";
    select(connection, sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

pub fn find(connection: &Connection, id: Uuid) -> Result<Option<OutboxRow>, StoreError> {
    find_row(connection, "outbox WHERE id = ?1", [id.to_string()])
}

/// Returns the rows of a turn, in order.
pub fn of_turn(connection: &Connection, turn: Uuid) -> Result<Vec<OutboxRow>, StoreError> {
    find_rows(connection, "outbox WHERE turn = ?1 ORDER BY seq", [turn.to_string()])
}

/// Returns the reply of a turn.
pub fn reply(connection: &Connection, turn: Uuid) -> Result<Option<OutboxRow>, StoreError> {
    find_row(connection, "outbox WHERE turn = ?1 AND slot = 'reply'", [turn.to_string()])
}

/// Returns the row in a slot of a turn.
pub fn find_slot(connection: &Connection, turn: Uuid, slot: &str) -> Result<Option<OutboxRow>, StoreError> {
    find_row(connection, "outbox WHERE turn = ?1 AND slot = ?2", [turn.to_string().as_str(), slot])
}

/// Returns the newest messages to a chat of the page since a time (UTC milliseconds), in order.
pub fn of_page_chat(connection: &Connection, chat: &str, since: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
    let newest = "outbox WHERE channel = 'page' AND chat_id = ?1 AND created_at >= ?2 ORDER BY seq DESC LIMIT ?3";
    let mut rows: Vec<OutboxRow> = find_rows(connection, newest, params![chat, since, limit])?;
    rows.reverse();
    Ok(rows)
}

/// Returns the chats of the page that have messages.
pub fn page_chats(connection: &Connection, limit: u32) -> Result<Vec<String>, StoreError> {
    select(connection, "SELECT DISTINCT chat_id FROM outbox WHERE channel = 'page' LIMIT ?", [limit], |row| row.get(0))
}

/// Returns undelivered rows (pending, sending, unknown, dead), the oldest first.
pub fn undelivered(connection: &Connection, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
    // The `+` keeps SQLite from using the order of seq, which would read every sent row.
    let open = "outbox WHERE state IN ('pending', 'sending') ORDER BY +seq LIMIT ?1";
    let mut rows: Vec<OutboxRow> = find_rows(connection, open, [limit])?;
    rows.extend(find_rows(connection, "outbox WHERE state IN ('unknown', 'dead') ORDER BY +seq LIMIT ?1", [limit])?);
    rows.sort_by_key(|row| row.seq);
    Ok(rows)
}

/// Returns the number of `unknown` and `dead` rows.
pub fn count_stuck(connection: &Connection) -> Result<usize, StoreError> {
    let sql = "SELECT count(*) FROM outbox WHERE state IN ('unknown', 'dead')";
    select_value(connection, sql, [])
}

/// Queues a dead or unknown row again under the same id, by which a receiver knows what it has already, and with the same time of
/// creation; returns the new row, or `None` if the row is in another state.
pub fn retry(connection: &Connection, id: Uuid) -> Result<Option<OutboxRow>, StoreError> {
    let Some(row) = find(connection, id)?.filter(|row| matches!(row.state.as_str(), "dead" | "unknown")) else {
        return Ok(None);
    };
    // A new row instead of a changed one, so that its seq is the highest.
    let new = NewOutbound {
        turn: row.turn,
        slot: row.slot.clone(),
        channel: row.channel,
        chat_id: row.chat_id,
        body: row.body,
    };
    execute(connection, "DELETE FROM outbox WHERE id = ?", [id.to_string()])?;
    insert_attempt(connection, &new, row.attempt, row.created_at)?;
    find(connection, id)
}

/// Returns the ids of rows in `state`, which is `dead` or `unknown`, the oldest first.
pub fn ids_in_state(connection: &Connection, state: &str, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    let sql = "SELECT id FROM outbox WHERE state = ?1 AND state IN ('unknown', 'dead') ORDER BY +seq LIMIT ?2";
    select_parsed(connection, sql, params![state, limit], |row| read_uuid(row, 0))
}

/// Deletes an undelivered row that is not being sent; returns whether there was one.
pub fn remove(connection: &Connection, id: Uuid) -> Result<bool, StoreError> {
    let sql = "DELETE FROM outbox WHERE id = ? AND state IN ('pending', 'unknown', 'dead')";
    Ok(execute(connection, sql, [id.to_string()])? == 1)
}

#[cfg(test)]
mod tests {
    use daoyou_channels::Resend;

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
        insert(connection, &NewOutbound { turn, slot, channel, chat_id, body }).unwrap().id
    }

    fn state(connection: &Connection, id: Uuid) -> String {
        find(connection, id).unwrap().map(|row| row.state).unwrap_or_default()
    }

    #[test]
    fn interrupted_deliveries_are_recovered_by_the_rule_in_their_row() {
        type Done = fn(&Connection, Uuid) -> Result<(), StoreError>;
        let [same_id, again, never] = [Resend::SameId, Resend::Again, Resend::Never].map(<&str>::from);
        let table: &[(&str, Option<&str>, Done, &str)] = &[
            ("never tried", None, |_, _| Ok(()), "pending"),
            ("cut off, known by its id", Some(same_id), |_, _| Ok(()), "pending"),
            ("cut off, better twice than never", Some(again), |_, _| Ok(()), "pending"),
            ("cut off, better never than twice", Some(never), |_, _| Ok(()), "unknown"),
            ("cut off, a rule of another version", Some("perhaps"), |_, _| Ok(()), "unknown"),
            ("sent", Some(same_id), |connection, id| mark_sent(connection, id, None), "sent"),
            ("given up", Some(same_id), |connection, id| mark_ended(connection, id, "dead", "no"), "dead"),
            ("in doubt before", Some(same_id), |connection, id| mark_ended(connection, id, "unknown", "?"), "unknown"),
            ("to be tried again", Some(same_id), |connection, id| mark_retry(connection, id, 7, "busy"), "pending"),
            ("nobody was there", Some(never), mark_absent, "pending"),
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
            let recovered = cut_off.iter().find(|row| row.channel == *name).map(|row| row.is_sent_again);
            assert_eq!(recovered, name.starts_with("cut off").then_some(*expected == "pending"), "{name}");
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
            claim(&connection, id, again).unwrap();
        }
        assert_eq!(recover(&connection, Some("one")).unwrap().len(), 1);
        assert_eq!([one, other].map(|id| state(&connection, id)), ["pending", "sending"]);
    }

    #[test]
    fn only_dead_and_unknown_rows_are_retried_and_rows_in_delivery_are_not_removed() {
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
                let sql = "UPDATE outbox SET state = ?, tries = 3, next_at = 5, last_error = 'no', created_at = 7 WHERE id = ?";
                connection.execute(sql, params![word, id.to_string()]).unwrap();
            };
            let id = add(&connection, "x");
            put(id);
            let again = retry(&connection, id).unwrap();
            assert_eq!(again.is_some(), *is_retried, "{word}");
            if let Some(row) = again {
                assert_eq!((row.id, row.attempt, row.tries, row.next_at), (id, 0, 0, 0), "{word}");
                assert!(row.state == "pending" && row.last_error.is_none() && row.created_at == 7, "{row:?}");
                let newer = add(&connection, "x");
                assert!(find(&connection, newer).unwrap().unwrap().seq > row.seq, "places are never given twice");
            }
            let id = add(&connection, "x");
            put(id);
            assert_eq!(remove(&connection, id).unwrap(), *is_dropped, "{word}");
        }
    }
}
