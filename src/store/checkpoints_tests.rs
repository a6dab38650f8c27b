//! Restores, forks and the errors of both.

use super::*;
use crate::store::inbox::NewInboxRow;
use crate::store::{Durability, Store};

const SESSION: &str = "cli:direct";

/// Accepts and finishes a turn whose message is `text`, with a step in its journal.
fn complete_turn(connection: &Connection, number: u32, text: &str) -> Result<Uuid, StoreError> {
    // Ids in a known order with a common beginning.
    let id = Uuid::from_u128(0x019a_2b3c_4d50_7000_8000_0000_0000_0000 + (u128::from(number) << 80));
    accept(connection, id, text)?;
    inbox::mark_running(connection, inbox::last_seq(connection)?)?;
    turn_steps::append(connection, id, "note", &format!(r#"{{"step":"note","text":"{text}"}}"#))?;
    let message = |role, text: &str| (role, format!(r#"{{"role":"{role}","content":"{text}"}}"#));
    messages::append(connection, SESSION, id, [message("user", text), message("assistant", text)].into_iter())?;
    inbox::finish(connection, id, MessageStatus::Done)?;
    Ok(id)
}

fn accept(connection: &Connection, id: Uuid, text: &str) -> Result<(), StoreError> {
    let message = NewInboxRow { content: text.to_owned(), ..NewInboxRow::sample(id, SESSION) };
    inbox::insert(connection, &message).map(drop)
}

/// Returns the conversation that the model would receive: the first word of each message.
fn view(connection: &Connection, session: &str) -> Result<String, StoreError> {
    let head = messages::session(connection, session)?;
    let rows = messages::range(connection, session, head.first_seq, head.next_seq)?;
    assert!(rows.iter().all(|row| row.epoch == head.epoch), "one epoch is one piece");
    let words = rows.iter().map(|row| {
        let body: serde_json::Value = serde_json::from_str(&row.body).unwrap();
        body["content"].as_str().unwrap().to_owned()
    });
    Ok(words.collect::<Vec<_>>().join(" "))
}

async fn with_store<T: Send + 'static>(work: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static) -> T {
    let (_folder, store) = Store::temporary();
    store.write(Durability::Logged, work).await.unwrap()
}

#[tokio::test]
async fn a_session_is_restored_backwards_and_forwards_without_deletions() {
    with_store(|connection| {
        let turns = [
            complete_turn(connection, 1, "a")?,
            complete_turn(connection, 2, "b")?,
            complete_turn(connection, 3, "c")?,
        ];
        let back = |turn: Uuid| -> Result<String, StoreError> {
            restore(connection, &of_turn(connection, turn).unwrap())?;
            view(connection, SESSION)
        };
        assert_eq!(back(turns[0])?, "a a");
        let fourth = complete_turn(connection, 4, "d")?;
        assert_eq!(view(connection, SESSION)?, "a a d d");
        assert_eq!(current_turn(connection, SESSION)?, Some(fourth));
        // Forward again: the messages that were left behind are still there.
        assert_eq!(back(turns[2])?, "a a b b c c");
        assert_eq!(back(fourth)?, "a a d d");
        assert_eq!(back(turns[1])?, "a a b b");
        messages::new_epoch(connection, SESSION)?;
        assert_eq!((view(connection, SESSION)?.as_str(), current_turn(connection, SESSION)?), ("", None));
        assert_eq!(back(fourth)?, "a a d d");
        let lines = list(connection, SESSION, 3)?;
        let shown: Vec<_> = lines.iter().map(|line| line.turn).collect();
        assert_eq!(shown, [fourth, turns[2], turns[1]], "each turn once, however often it was copied");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_fork_is_a_separate_session() {
    with_store(|connection| {
        let (one, two) = (complete_turn(connection, 1, "a")?, complete_turn(connection, 2, "b")?);
        messages::set_model(connection, SESSION, Some("x/y"))?;
        let point = of_turn(connection, one).unwrap();
        assert_eq!(fork(connection, &point, "fork:1").unwrap(), 2);
        assert_eq!((view(connection, "fork:1")?, view(connection, SESSION)?), ("a a".into(), "a a b b".into()));
        assert_eq!(messages::session(connection, "fork:1")?.model.as_deref(), Some("x/y"));
        for taken in ["fork:1", SESSION] {
            assert_eq!(fork(connection, &point, taken).unwrap_err().code(), "exists");
        }
        for bad in ["", "a ", "a\nb", &"x".repeat(1_201)] {
            assert_eq!(fork(connection, &point, bad).unwrap_err().code(), "invalid", "{bad:?}");
        }
        // A copied turn is a checkpoint of the fork; a turn that was not copied is none.
        assert_eq!(find(connection, "fork:1", one).unwrap().to, 2);
        assert_eq!(find_turn_in_session(connection, "fork:1", &two.to_string()).unwrap_err().code(), "not_found");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_turn_is_found_by_a_short_id_or_a_name() {
    with_store(|connection| {
        let turns = [complete_turn(connection, 1, "a")?, complete_turn(connection, 2, "b")?];
        let whole = turns[1].to_string();
        for (id, expected) in [
            (whole.as_str(), Ok(turns[1])),
            (&whole.to_uppercase(), Ok(turns[1])),
            (&whole[..13], Ok(turns[1])),
            (&whole[..8], Err("ambiguous")),
            ("019", Err("invalid")),
            ("what?", Err("invalid")),
            ("019a2b3c-ffff", Err("not_found")),
        ] {
            assert_eq!(find_turn(connection, id).map_err(|error| error.code()), expected, "{id}");
            let in_session = find_turn_in_session(connection, SESSION, id).map_err(|error| error.code());
            let expected = expected.map_err(|code| if code == "invalid" { "not_found" } else { code });
            assert_eq!(in_session, expected, "{id} in its session");
        }
        set_name(connection, SESSION, turns[0], "before the move")?;
        assert_eq!(find_turn_in_session(connection, SESSION, "before the move").unwrap(), turns[0]);
        assert_eq!(find_turn_in_session(connection, "cli:other", "before the move").unwrap_err().code(), "not_found");
        assert_eq!(list(connection, SESSION, 9)?[1].name.as_deref(), Some("before the move"));
        for number in 0..MAX_NAMES {
            set_name(connection, SESSION, turns[1], &format!("name {number}"))?;
        }
        let names: u32 = connection.query_row("SELECT count(*) FROM checkpoint_names", [], |row| row.get(0))?;
        assert_eq!(names, MAX_NAMES);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_restore_that_is_impossible_says_why() {
    with_store(|connection| {
        let turns = [
            complete_turn(connection, 1, "a")?,
            complete_turn(connection, 2, "b")?,
            complete_turn(connection, 3, "c")?,
        ];
        connection.execute("UPDATE turn_steps SET body = '{}' WHERE turn = ?", [turns[1].to_string()])?;
        let (command, running) = (Uuid::now_v7(), Uuid::now_v7());
        accept(connection, command, "/help")?;
        inbox::finish(connection, command, MessageStatus::Done)?;
        accept(connection, running, "slow")?;
        assert!(!is_busy(connection, SESSION)?);
        inbox::mark_running(connection, inbox::last_seq(connection)?)?;
        assert!(is_busy(connection, SESSION)?);
        let why = |turn: Uuid| of_turn(connection, turn).map(|point| (point.from, point.to)).map_err(|e| e.code());
        assert_eq!(why(turns[0]), Ok((0, 2)));
        assert_eq!(why(turns[1]), Err("state_corrupted"));
        assert_eq!(why(command), Err("no_checkpoint"));
        assert_eq!(why(running), Err("running"));
        assert_eq!(why(Uuid::now_v7()), Err("not_found"));
        // Without the steps, the messages are enough.
        connection.execute("DELETE FROM turn_steps WHERE turn = ?", [turns[0].to_string()])?;
        assert_eq!(why(turns[0]), Ok((0, 2)));
        connection.execute("UPDATE messages SET body = '{\"role' WHERE seq = 0", [])?;
        assert_eq!(why(turns[0]), Err("state_corrupted"), "a message that cannot be read");
        connection.execute("DELETE FROM messages", [])?;
        assert_eq!(why(turns[2]), Err("gone"));
        Ok(())
    })
    .await;
}

/// A summary is carried over if it covers nothing after the checkpoint.
#[tokio::test]
async fn summaries_are_carried_over_if_they_cover_nothing_later() {
    use crate::store::memories::{self, NewMemory};
    use crate::store::messages::SessionHead;
    use crate::store::session_memory::{self, SessionMemory};

    let found = with_store(|connection| {
        let turns = (0..12).map(|n| complete_turn(connection, n, &n.to_string())).collect::<Result<Vec<_>, _>>()?;
        let summarize = |to: i64| {
            let (text, detail) = (format!("up to {to}"), format!(r#"{{"epoch":0,"from":0,"to":{to}}}"#));
            let (owner, kind, name, origin) = ("owner", "summary", SESSION, "noticed");
            let (session, seq, turn, confidence) = (Some(SESSION), None, None, 1.0);
            let new =
                NewMemory { owner, kind, name, text: &text, detail: &detail, origin, session, seq, turn, confidence };
            memories::insert(connection, &new)
        };
        let mut summary = None;
        for to in [6, 12, 18] {
            let id = summarize(to)?;
            summary.map_or(Ok(()), |old| memories::replace(connection, old, id))?;
            summary = Some(id);
        }
        session_memory::put(connection, SESSION, 0, &SessionMemory { cursor: 18, summary, ..Default::default() })?;
        let mut found = Vec::new();
        for (place, turn) in [11, 8, 6, 5, 1].into_iter().enumerate() {
            let session = format!("cli:{place}");
            let point = find(connection, SESSION, turns[turn]).map_err(|error| StoreError::Row(error.to_string()))?;
            fork(connection, &point, &session).map_err(|error| StoreError::Row(error.to_string()))?;
            let state = session_memory::get(connection, &session, 0)?;
            let text =
                state.summary.map(|id| memories::find(connection, id)).transpose()?.flatten().map(|row| row.text);
            found.push((state.cursor, state.overlap, text.unwrap_or_default()));
        }
        // A restore of the session itself does the same, behind the later messages.
        let point = find(connection, SESSION, turns[8]).map_err(|error| StoreError::Row(error.to_string()))?;
        restore(connection, &point)?;
        let state = session_memory::get(connection, SESSION, 1)?;
        found.push((state.cursor, state.overlap, String::new()));
        // The seqs of a carried summary belong to another session; a copy of the copy uses its own seqs.
        for (place, turn, of) in [("cli:again", 8, SESSION), ("cli:fork", 11, "cli:0"), ("cli:early", 6, "cli:0")] {
            let last: i64 = connection.query_row(
                "SELECT max(seq) + 1 FROM messages WHERE session = ? AND turn = ?",
                [of, &turns[turn].to_string()],
                |row| row.get(0),
            )?;
            let SessionHead { epoch, first_seq: from, .. } = messages::session(connection, of)?;
            let point = Checkpoint { turn: turns[turn], session: of.to_owned(), epoch, from, to: last };
            fork(connection, &point, place).map_err(|error| StoreError::Row(error.to_string()))?;
            let state = session_memory::get(connection, place, 0)?;
            let uncovered = messages::session(connection, place)?.next_seq - state.cursor;
            found.push((state.cursor, uncovered, place.to_owned()));
        }
        Ok(found)
    })
    .await;
    let text = |to: i64| format!("up to {to}");
    assert_eq!(
        found,
        [
            (18, 2, text(18)),
            (18, 8, text(18)),
            (12, 6, text(12)),
            (12, 8, text(12)),
            (0, 0, String::new()),
            (42, 8, String::new()),
            (18, 0, "cli:again".to_owned()),
            (18, 6, "cli:fork".to_owned()),
            (0, 14, "cli:early".to_owned())
        ]
    );
}

/// The copied messages may contain foreign content, so their taint comes with them.
#[tokio::test]
async fn a_restored_or_forked_conversation_keeps_its_taint() {
    with_store(|connection| {
        let one = complete_turn(connection, 1, "a")?;
        let sources = std::collections::BTreeSet::from(["web:https://example.org/".to_owned()]);
        approvals::add_taint(connection, SESSION, 0, &sources)?;
        let point = of_turn(connection, one).unwrap();
        messages::new_epoch(connection, SESSION)?;
        assert!(approvals::taint_of_session(connection, SESSION)?.is_empty(), "a new conversation has none");
        restore(connection, &point)?;
        assert_eq!(approvals::taint_of_session(connection, SESSION)?, sources);
        fork(connection, &point, "fork:1").unwrap();
        assert_eq!(approvals::taint_of_session(connection, "fork:1")?, sources);
        Ok(())
    })
    .await;
}
