//! Questions that turns ask the people whose messages they answer, and the messages that answered. The text of a question is in the
//! call and in the outbox, the text of an answer in the inbox.

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::sql::{execute, find_row, read_optional_uuid, read_uuid, select_parsed, stored_row};
use super::{StoreError, inbox, now_ms};

/// The state of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum QuestionState {
    Pending,
    Answered,
    /// Nobody answered in time.
    Expired,
    /// The turn ended before an answer.
    Cancelled,
}

/// A question to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQuestion {
    pub id: Uuid,
    pub turn: Uuid,
    pub session: String,
    /// The channel, the sender and the trust of the message that the turn answers.
    pub channel: String,
    pub sender: String,
    pub trust: &'static str,
    /// UTC milliseconds, like all times here.
    pub expires_at: i64,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionRow {
    pub id: Uuid,
    pub turn: Uuid,
    pub trust: String,
    pub state: QuestionState,
    /// The id of the message that answered the question.
    pub answer: Option<Uuid>,
    pub expires_at: i64,
}

stored_row! {
    QuestionRow: id by read_uuid, turn by read_uuid, trust, state by read_state, answer by read_optional_uuid,
        expires_at
}

/// Returns the id of a call's question. The same call always gives the same id.
pub fn id_of(turn: Uuid, call_id: &str) -> Uuid {
    Uuid::new_v5(&turn, format!("question:{call_id}").as_bytes())
}

/// Inserts a pending question; returns whether it is new. A session with a pending question gets no second one.
pub fn insert(connection: &Connection, new: &NewQuestion) -> Result<bool, StoreError> {
    let sql =
        "INSERT OR IGNORE INTO questions (id, turn, session, channel, sender, trust, state, created_at, expires_at)
               VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?)";
    let (id, turn) = (new.id.to_string(), new.turn.to_string());
    let values = params![id, turn, new.session, new.channel, new.sender, new.trust, now_ms(), new.expires_at];
    Ok(execute(connection, sql, values)? == 1)
}

pub fn find(connection: &Connection, id: Uuid) -> Result<Option<QuestionRow>, StoreError> {
    find_row(connection, "questions WHERE id = ?", [id.to_string()])
}

/// Returns the pending question of a session.
pub fn pending(connection: &Connection, session: &str) -> Result<Option<QuestionRow>, StoreError> {
    find_row(connection, "questions WHERE session = ? AND state = 'pending'", [session])
}

/// Returns the question that the next message of this sender answers: it has not expired, and its turn has not ended.
pub fn open_to(
    connection: &Connection,
    session: &str,
    (channel, sender): (&str, &str),
) -> Result<Option<QuestionRow>, StoreError> {
    let open = "questions WHERE session = ? AND state = 'pending' AND channel = ? AND sender = ? AND expires_at > ?";
    let row: Option<QuestionRow> = find_row(connection, open, params![session, channel, sender, now_ms()])?;
    let Some(row) = row else { return Ok(None) };
    let rows = inbox::of_turn(connection, row.turn)?;
    let goes_on = rows.iter().any(inbox::InboxRow::is_open) && !rows.iter().any(|row| row.cancel);
    Ok(goes_on.then_some(row))
}

/// Records that a message in the inbox answers the question: the message now belongs to the asking turn.
pub fn answer(connection: &Connection, question: &QuestionRow, message: Uuid) -> Result<(), StoreError> {
    let sql = "UPDATE questions SET state = 'answered', answer = ?, ended_at = ? WHERE id = ? AND state = 'pending'";
    execute(connection, sql, params![message.to_string(), now_ms(), question.id.to_string()])?;
    let sql = "UPDATE inbox SET turn = ? WHERE id = ?";
    execute(connection, sql, params![question.turn.to_string(), message.to_string()]).map(drop)
}

/// Marks pending questions that expired by `now`; returns the turns and sessions that continue.
pub fn expire(connection: &Connection, now: i64) -> Result<Vec<(Uuid, String)>, StoreError> {
    let sql = "UPDATE questions SET state = 'expired', ended_at = ?1 WHERE state = 'pending' AND expires_at <= ?1
               RETURNING turn, session";
    select_parsed(connection, sql, [now], |row| Ok((read_uuid(row, 0)?, row.get(1)?)))
}

/// Cancels the pending questions of a turn of this session, because the turn ends.
pub fn cancel_of_turn(connection: &Connection, session: &str, turn: Uuid) -> Result<(), StoreError> {
    let sql =
        "UPDATE questions SET state = 'cancelled', ended_at = ? WHERE session = ? AND state = 'pending' AND turn = ?";
    execute(connection, sql, params![now_ms(), session, turn.to_string()]).map(drop)
}

/// Reads a state. This program writes no other word; an unknown one is a question that can no longer be answered.
fn read_state(row: &Row<'_>, at: usize) -> Result<QuestionState, StoreError> {
    Ok(row.get::<_, String>(at)?.parse().unwrap_or(QuestionState::Cancelled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::{MessageStatus, NewInboxRow};
    use crate::store::{Durability, Store, retention};

    fn message(id: u128, session: &str, state: MessageStatus) -> NewInboxRow {
        NewInboxRow { state, ..NewInboxRow::sample(Uuid::from_u128(id), session) }
    }

    fn question(turn: u128, call: &str, session: &str, expires_at: i64) -> NewQuestion {
        let turn = Uuid::from_u128(turn);
        let (channel, sender) = ("webhook:in".to_owned(), "ann".to_owned());
        NewQuestion {
            id: id_of(turn, call),
            turn,
            session: session.to_owned(),
            channel,
            sender,
            trust: "known",
            expires_at,
        }
    }

    #[tokio::test]
    async fn a_question_has_one_answer_of_the_sender_who_was_asked() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let later = now_ms() + 60_000;
            inbox::insert(connection, &message(1, "s", MessageStatus::Waiting))?;
            let asked = question(1, "a", "s", later);
            assert!(insert(connection, &asked)? && !insert(connection, &asked)?);
            assert!(!insert(connection, &question(1, "b", "s", later))?, "one at a time");
            for (session, channel, sender, expected) in [
                ("s", "webhook:in", "ann", true),
                ("s", "webhook:in", "bob", false),
                ("s", "webhook:other", "ann", false),
                ("other", "webhook:in", "ann", false),
            ] {
                let found = open_to(connection, session, (channel, sender))?.is_some();
                assert_eq!(found, expected, "{session} {channel} {sender}");
            }
            let open = open_to(connection, "s", ("webhook:in", "ann"))?.unwrap();
            inbox::insert(connection, &message(2, "s", MessageStatus::Done))?;
            answer(connection, &open, Uuid::from_u128(2))?;
            assert!(pending(connection, "s")?.is_none());
            let row = find(connection, asked.id)?.unwrap();
            assert_eq!((row.state, row.answer), (QuestionState::Answered, Some(Uuid::from_u128(2))));
            assert_eq!(inbox::of_turn(connection, Uuid::from_u128(1))?.len(), 2, "it belongs to the turn");
            assert!(insert(connection, &question(1, "b", "s", later))?, "the next one");
            cancel_of_turn(connection, "s", Uuid::from_u128(1))?;
            assert_eq!(find(connection, id_of(Uuid::from_u128(1), "b"))?.unwrap().state, QuestionState::Cancelled);
            inbox::finish(connection, Uuid::from_u128(1), MessageStatus::Done)?;
            assert_eq!(retention::prune_questions(connection, now_ms() - 1_000)?, 0, "they are young");
            assert_eq!(retention::prune_questions(connection, now_ms() + 1_000)?, 2);
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }

    #[tokio::test]
    async fn questions_expire_and_those_of_a_stopped_turn_take_no_answer() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            inbox::insert(connection, &message(1, "s", MessageStatus::Waiting))?;
            insert(connection, &question(1, "a", "s", now_ms() - 1))?;
            assert!(open_to(connection, "s", ("webhook:in", "ann"))?.is_none());
            assert_eq!(expire(connection, now_ms())?, [(Uuid::from_u128(1), "s".to_owned())]);
            assert_eq!(expire(connection, now_ms())?, []);
            insert(connection, &question(1, "b", "s", now_ms() + 60_000))?;
            inbox::cancel_current(connection, "s")?;
            assert!(pending(connection, "s")?.is_some() && open_to(connection, "s", ("webhook:in", "ann"))?.is_none());
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
