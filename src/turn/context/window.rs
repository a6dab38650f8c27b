//! The part of a session's log that goes into a request: whole turns, within limits of messages and tokens.

use crate::chat::ChatMessage;
use crate::llm::estimate_tokens;
use crate::store::messages::{self, MessageRow, SessionHead};
use crate::store::{Connection, StoreError, turn_steps};
use crate::turn::progress::ContextStep;

/// The limits of the history in a request.
#[derive(Clone, Copy, Debug)]
pub struct HistoryWindow {
    /// The most messages.
    pub messages: u32,
    /// The most estimated tokens.
    pub tokens: usize,
    /// The most messages of people, each with the messages that follow it; `None` is no limit.
    pub rounds: Option<u32>,
}

/// The messages of a session that a turn sends.
pub struct HistorySlice {
    /// The seq of the first of `rows`.
    pub from: i64,
    pub rows: Vec<MessageRow>,
    /// The messages fill the space, or nearly; older messages should be summarised.
    pub is_full: bool,
}

/// Chooses the newest whole turns of the session within the window. The start stays the same as in the turn before, so that
/// consecutive requests share their beginning. When the space is full, one cut removes so many messages that the new start stays for
/// many turns. The limit of messages moves the start in steps of a quarter of the window.
pub fn choose(
    connection: &Connection,
    session: &str,
    head: &SessionHead,
    window: HistoryWindow,
) -> Result<HistorySlice, StoreError> {
    let size = i64::from(window.messages.max(1));
    let step = (size / 4).max(1);
    let earliest = (head.next_seq - size).max(head.first_seq);
    let from = if earliest == head.first_seq { earliest } else { round_up(earliest, step) };
    let mut rows = messages::range(connection, session, from, head.next_seq)?;
    let bytes: usize = rows.iter().map(|row| row.body.len()).sum();
    // No token is shorter than a byte, so most sessions need not be counted.
    let (cut, is_full) = if bytes <= window.tokens * REFILLED / 100 {
        (0, false)
    } else {
        let turns: Vec<(usize, bool)> =
            rows.iter().map(|row| (estimate_tokens(&row.body), row.role == "user")).collect();
        let before = previous_window_start(connection, &rows)?;
        let before = before.and_then(|before| rows.iter().position(|row| row.seq >= before)).unwrap_or(0);
        cut_at(&turns, before, window.tokens)
    };
    // A turn begins with the user's message; half a turn would leave a tool result without its call. If the newest turn alone is too
    // long, its end is sent, so that the model can continue after "go on".
    let whole = (cut..rows.len()).find(|at| rows[*at].role == "user");
    let end = || (cut + 1..rows.len()).find(|at| rows[*at].role == "assistant");
    rows.drain(..whole.or_else(end).unwrap_or(rows.len()));
    if let Some(rounds) = window.rounds.and_then(|rounds| usize::try_from(rounds).ok()) {
        let begins: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].role == "user").collect();
        let first = begins.len().checked_sub(rounds).and_then(|at| begins.get(at));
        rows.drain(..first.copied().unwrap_or(0));
    }
    let from = rows.first().map_or(head.next_seq, |row| row.seq);
    Ok(HistorySlice { from, rows: with_question(connection, session, rows)?, is_full })
}

/// Returns the index of the first message that is sent, and whether the sent messages fill the space. `messages` has the tokens of
/// each message and whether it begins a turn, `before` is the index in the turn before, `room` is the number of available tokens.
fn cut_at(messages: &[(usize, bool)], before: usize, room: usize) -> (usize, bool) {
    let mut behind: Vec<usize> = messages
        .iter()
        .rev()
        .scan(0, |sum, (tokens, _)| {
            *sum += tokens;
            Some(*sum)
        })
        .collect();
    behind.reverse();
    let share = |percent: usize| room / 100 * percent + room % 100 * percent / 100;
    let tokens = |from: usize| behind.get(from).copied().unwrap_or(0);
    // The available space has grown, so older messages fit again.
    let start = if tokens(0) <= share(REFILLED) { 0 } else { before };
    if tokens(start) <= room {
        return (start, tokens(start) > share(FULL));
    }
    let begins = || (start..messages.len()).filter(|at| messages[*at].1);
    let mean = tokens(start) / begins().count().max(1);
    let target = share(REFILLED).min(room.saturating_sub(mean * TURNS_OF_A_CUT)).max(share(LEAST_KEPT));
    let cut = begins().find(|at| tokens(*at) <= target);
    let last_turn = || begins().rev().find(|at| tokens(*at) <= room);
    let part_of_turn = || (start..messages.len()).find(|at| tokens(*at) <= room);
    (cut.or_else(last_turn).or_else(part_of_turn).unwrap_or(messages.len()), true)
}

/// The target of a cut is at most this share of the space, in percent. A last turn that is longer stays whole if it fits.
const REFILLED: usize = 60;
/// The target is so small that this many turns of average size fit before the next cut.
const TURNS_OF_A_CUT: usize = 10;
/// The target of a cut is at least this share of the space, in percent.
const LEAST_KEPT: usize = 20;
/// From this share on, in percent, the space counts as full, because a summary takes time.
const FULL: usize = 90;
/// How many turns back to look for an earlier context. Some have none: notes that are written into a session.
const LOOKED_BACK: usize = 8;

/// Returns the seq at which the window of the last turn began.
fn previous_window_start(connection: &Connection, rows: &[MessageRow]) -> Result<Option<i64>, StoreError> {
    let mut turns: Vec<&str> = rows.iter().rev().map(|row| row.turn.as_str()).collect();
    turns.dedup();
    for turn in turns.into_iter().take(LOOKED_BACK) {
        let Some(body) = turn_steps::last_of_kind(connection, turn, "context")? else { continue };
        return Ok(serde_json::from_str::<ContextStep>(&body).ok().map(|context| context.from));
    }
    Ok(None)
}

/// Adds the question of a turn in front of the turn's last messages.
fn with_question(
    connection: &Connection,
    session: &str,
    mut rows: Vec<MessageRow>,
) -> Result<Vec<MessageRow>, StoreError> {
    if let Some(first) = rows.first().filter(|row| row.role != "user")
        && let Some(question) = messages::user_before(connection, session, first.seq)?
        && question.turn == first.turn
    {
        rows.insert(0, question);
    }
    Ok(rows)
}

/// Returns the messages that the turn sent before a restart.
pub fn choose_again(
    connection: &Connection,
    session: &str,
    context: &ContextStep,
) -> Result<Vec<MessageRow>, StoreError> {
    with_question(connection, session, messages::range(connection, session, context.from, context.to)?)
}

/// Parses rows into messages.
pub fn read_messages(rows: &[MessageRow]) -> Result<Vec<ChatMessage>, StoreError> {
    rows.iter().map(|row| serde_json::from_str(&row.body).map_err(StoreError::from)).collect()
}

fn round_up(value: i64, step: i64) -> i64 {
    value + (step - value.rem_euclid(step)) % step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use uuid::Uuid;

    #[tokio::test]
    async fn the_window_holds_whole_turns_and_its_start_moves_in_steps() {
        let (_folder, store) = Store::temporary();
        let mut starts = Vec::new();
        for _ in 0..40 {
            store
                .write(crate::store::Durability::Logged, |connection| {
                    let turn = [ChatMessage::user("hello"), ChatMessage::assistant("hi")];
                    let rows = turn.iter().map(|m| (m.role(), serde_json::to_string(m).unwrap()));
                    messages::append(connection, "cli:direct", Uuid::now_v7(), rows)
                })
                .await
                .unwrap();
            let HistorySlice { from, rows, .. } = store
                .read(|connection| {
                    let head = messages::session(connection, "cli:direct")?;
                    choose(
                        connection,
                        "cli:direct",
                        &head,
                        HistoryWindow { messages: 16, tokens: 10_000, rounds: None },
                    )
                })
                .await
                .unwrap();
            assert!(rows.len() <= 16 && rows[0].role == "user");
            starts.push(from);
        }
        starts.dedup();
        assert_eq!(starts, (0..=64).step_by(4).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_turn_longer_than_the_window_is_given_as_its_end_and_its_question() {
        let (_folder, store) = Store::temporary();
        let call = |n: usize| crate::chat::ToolCall { id: n.to_string(), name: "x".into(), arguments: "{}".into() };
        let mut turn = vec![ChatMessage::user("count to twenty")];
        for n in 1..=20 {
            turn.push(ChatMessage::Assistant { content: String::new(), reasoning: None, tool_calls: vec![call(n)] });
            turn.push(ChatMessage::Tool {
                call_id: n.to_string(),
                name: "x".into(),
                content: n.to_string(),
                images: Vec::new(),
            });
        }
        turn.push(ChatMessage::assistant("I stopped at the limit"));
        let (head, from, rows, again) = store
            .write(crate::store::Durability::Logged, move |connection| {
                let rows = turn.iter().map(|m| (m.role(), serde_json::to_string(m).unwrap()));
                messages::append(connection, "s", Uuid::now_v7(), rows)?;
                let head = messages::session(connection, "s")?;
                let HistorySlice { from, rows, .. } =
                    choose(connection, "s", &head, HistoryWindow { messages: 8, tokens: 10_000, rounds: None })?;
                let context = ContextStep {
                    system: String::new(),
                    from,
                    to: head.next_seq,
                    user: String::new(),
                    ..ContextStep::default()
                };
                let again = choose_again(connection, "s", &context)?;
                Ok((head, from, rows, again))
            })
            .await
            .unwrap();
        assert_eq!((head.next_seq, from), (42, 35));
        assert_eq!(rows, again, "a restart gives the same");
        let mut given = read_messages(&rows).unwrap();
        assert_eq!((given.len(), &given[0]), (8, &ChatMessage::user("count to twenty")));
        given.push(ChatMessage::user("go on"));
        assert_eq!(crate::llm::check_messages(&given), Ok(()));
    }

    #[tokio::test]
    async fn a_tight_token_budget_drops_the_oldest_turns() {
        let (_folder, store) = Store::temporary();
        let rows = store
            .write(crate::store::Durability::Logged, |connection| {
                for number in 0..20 {
                    let turn =
                        [ChatMessage::user(format!("{number} {}", "word ".repeat(100))), ChatMessage::assistant("hi")];
                    let rows = turn.iter().map(|m| (m.role(), serde_json::to_string(m).unwrap()));
                    messages::append(connection, "s", Uuid::now_v7(), rows)?;
                }
                let head = messages::session(connection, "s")?;
                Ok(choose(connection, "s", &head, HistoryWindow { messages: 100, tokens: 1_000, rounds: None })?.rows)
            })
            .await
            .unwrap();
        let tokens: usize = rows.iter().map(|row| estimate_tokens(&row.body)).sum();
        assert!(tokens <= 1_000 && rows[0].role == "user" && rows.last().is_some_and(|row| row.seq == 39), "{tokens}");
    }

    /// Input: the tokens of each turn, the start before the cut, and the room. Expected: the start after the cut, in turns, and
    /// whether the room is full.
    #[test]
    fn a_cut_leaves_room_for_many_turns_and_stays() {
        let turn = |tokens: usize| [(tokens / 2, true), (tokens - tokens / 2, false)];
        for (turns, before, room, begins, is_full) in [
            (&[100; 5][..], 0, 1_000, 0, false),
            (&[100; 10], 0, 1_000, 0, true),
            (&[10; 101], 0, 1_000, 41, true),
            // Long turns: as many as fit.
            (&[100; 11], 0, 1_000, 9, true),
            (&[100; 15], 9, 1_000, 9, false),
            // The last turn stays whole if it fits.
            (&[100, 100, 900], 0, 1_000, 2, true),
            // The room has grown.
            (&[100; 10], 5, 2_000, 0, false),
        ] {
            let messages: Vec<_> = turns.iter().flat_map(|tokens| turn(*tokens)).collect();
            let (at, full) = cut_at(&messages, before * 2, room);
            assert_eq!((at, full), (begins * 2, is_full), "{turns:?} {before} {room}");
        }
        // Of a turn that alone is too long, the end is kept.
        assert_eq!(cut_at(&[(500, true), (400, false), (400, false)], 0, 500), (2, true));
        assert_eq!(cut_at(&[], 0, 0), (0, false));
    }
}
