//! The part of a session's log that goes into a request: whole turns, within limits of messages and tokens. The messages of recently
//! used sessions stay in memory, so that a turn reads and parses only what was added since the last one.

use std::sync::Arc;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::chat::ChatMessage;
use crate::llm::estimate_tokens;
use crate::store::messages::{self, MessageRow, SessionHead};
use crate::store::{Connection, StoreError, turn_steps};
use crate::turn::progress::ContextStep;

/// The limits of the history in a request.
#[derive(Clone, Copy, Debug)]
pub struct HistoryWindow {
    /// The maximum number of messages.
    pub messages: u32,
    /// The maximum number of estimated tokens.
    pub tokens: usize,
    /// The maximum number of messages of people, each with the messages that follow it; `None` means no limit.
    pub rounds: Option<u32>,
}

/// The messages of a session that a turn sends.
pub struct HistorySlice {
    /// The seq of the first of `messages`.
    pub from: i64,
    pub messages: Vec<Arc<LoggedMessage>>,
    /// The messages fill the space, or nearly; older messages should be summarised.
    pub is_full: bool,
}

/// Chooses the newest whole turns of the session within the window. The start stays the same as in the turn before, so that
/// consecutive requests share their beginning. When the space is full, one cut removes so many messages that the new start stays for
/// many turns. The limit of messages moves the start in steps of a quarter of the window.
///
/// # Errors
/// The store cannot be read, or a message in the window of messages cannot, even if the limit of tokens leaves it out.
pub fn choose(
    cache: &HistoryCache,
    connection: &Connection,
    session: &str,
    head: &SessionHead,
    window: HistoryWindow,
) -> Result<HistorySlice, StoreError> {
    let size = i64::from(window.messages.max(1));
    let step = (size / 4).max(1);
    let earliest = (head.next_seq - size).max(head.first_seq);
    let from = if earliest == head.first_seq { earliest } else { round_up(earliest, step) };
    let mut log = cache.since(connection, (session, head), from)?;
    let turns: Vec<(usize, bool)> = log.iter().map(|message| (message.tokens, message.is_of_user())).collect();
    // Most sessions are so short that nothing is cut.
    let (cut, is_full) = if turns.iter().map(|(tokens, _)| tokens).sum::<usize>() <= share(window.tokens, REFILLED) {
        (0, false)
    } else {
        let before = previous_window_start(connection, &log)?;
        let before = before.and_then(|before| log.iter().position(|message| message.seq >= before)).unwrap_or(0);
        cut_at(&turns, before, window.tokens)
    };
    // A turn begins with the user's message; half a turn would leave a tool result without its call. If the newest turn alone is too
    // long, its end is sent, so that the model can continue after "go on".
    let whole = (cut..log.len()).find(|at| log[*at].is_of_user());
    let end = || (cut + 1..log.len()).find(|at| matches!(*log[*at].message, ChatMessage::Assistant { .. }));
    log.drain(..whole.or_else(end).unwrap_or(log.len()));
    if let Some(rounds) = window.rounds.and_then(|rounds| usize::try_from(rounds).ok()) {
        let begins: Vec<usize> = (0..log.len()).filter(|at| log[*at].is_of_user()).collect();
        let first = begins.len().checked_sub(rounds).and_then(|at| begins.get(at));
        log.drain(..first.copied().unwrap_or(0));
    }
    let from = log.first().map_or(head.next_seq, |message| message.seq);
    Ok(HistorySlice { from, messages: with_question(connection, session, log)?, is_full })
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
    let share = |percent: usize| share(room, percent);
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

/// Returns `percent` of `room`.
fn share(room: usize, percent: usize) -> usize {
    room / 100 * percent + room % 100 * percent / 100
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
fn previous_window_start(connection: &Connection, log: &[Arc<LoggedMessage>]) -> Result<Option<i64>, StoreError> {
    let mut turns: Vec<&str> = log.iter().rev().map(|message| message.turn.as_str()).collect();
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
    mut log: Vec<Arc<LoggedMessage>>,
) -> Result<Vec<Arc<LoggedMessage>>, StoreError> {
    if let Some(first) = log.first().filter(|message| !message.is_of_user())
        && let Some(question) = messages::user_before(connection, session, first.seq)?
        && question.turn == first.turn
    {
        log.insert(0, LoggedMessage::parse(question)?);
    }
    Ok(log)
}

/// Returns the messages that the turn sent before a restart.
///
/// # Errors
/// The messages cannot be read from the store.
pub fn choose_again(
    connection: &Connection,
    session: &str,
    context: &ContextStep,
) -> Result<Vec<Arc<LoggedMessage>>, StoreError> {
    with_question(connection, session, read(connection, session, context.from, context.to)?)
}

fn round_up(value: i64, step: i64) -> i64 {
    value + (step - value.rem_euclid(step)) % step
}

/// The maximum memory for the kept messages, in bytes of their JSON and [`ENTRY_BYTES`] for each, and for each session.
const CAPACITY: u64 = 4 << 20;

/// The estimated overhead of one cached message or session, in bytes, in addition to its text.
const ENTRY_BYTES: usize = 200;

/// A message of a session's log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedMessage {
    pub seq: i64,
    pub turn: String,
    /// The length of its JSON in bytes, and an estimate of its tokens.
    pub bytes: usize,
    pub tokens: usize,
    pub message: Arc<ChatMessage>,
}

impl LoggedMessage {
    fn parse(row: MessageRow) -> Result<Arc<Self>, StoreError> {
        let MessageRow { seq, turn, body, .. } = row;
        let (bytes, tokens) = (body.len(), estimate_tokens(&body));
        Ok(Arc::new(Self { seq, turn, bytes, tokens, message: Arc::new(serde_json::from_str(&body)?) }))
    }

    /// Returns true if a person's message begins a turn here.
    pub fn is_of_user(&self) -> bool {
        matches!(*self.message, ChatMessage::User { .. })
    }
}

/// Reads the messages of `from..to` from the store, in order.
fn read(connection: &Connection, session: &str, from: i64, to: i64) -> Result<Vec<Arc<LoggedMessage>>, StoreError> {
    messages::range(connection, session, from, to)?.into_iter().map(LoggedMessage::parse).collect()
}

/// The newest messages of recently used sessions, by session.
pub struct HistoryCache(Cache<String, Arc<KnownMessages>>);

/// All messages of one session in `from..to`.
struct KnownMessages {
    /// The [`SessionHead::edits`] with which they were read: while it stays the same, none of them has been changed or deleted.
    edits: i64,
    from: i64,
    to: i64,
    messages: Vec<Arc<LoggedMessage>>,
}

impl KnownMessages {
    /// Returns about how much memory this and the key of the session take, in bytes.
    fn bytes(&self, session: &str) -> u32 {
        let messages: usize = self.messages.iter().map(|message| message.bytes + ENTRY_BYTES).sum();
        u32::try_from(session.len() + ENTRY_BYTES + messages).unwrap_or(u32::MAX)
    }
}

impl Default for HistoryCache {
    fn default() -> Self {
        let sessions = Cache::builder().max_capacity(CAPACITY).eviction_policy(EvictionPolicy::lru());
        Self(sessions.weigher(|session: &String, known: &Arc<KnownMessages>| known.bytes(session)).build())
    }
}

impl HistoryCache {
    /// Returns the messages from `from` to the end of the session, in order. `head` must come from the same read transaction.
    fn since(
        &self,
        connection: &Connection,
        (session, head): (&str, &SessionHead),
        from: i64,
    ) -> Result<Vec<Arc<LoggedMessage>>, StoreError> {
        let (edits, to) = (head.edits, head.next_seq);
        let is_usable = |known: &Arc<KnownMessages>| known.edits == edits && (known.from..=known.to).contains(&from);
        let known = self.0.get(session).filter(is_usable);
        let (mut messages, next) = match &known {
            // A transaction that began before the newest messages were added does not see them.
            Some(known) => {
                let wanted = known.messages.iter().filter(|message| (from..to).contains(&message.seq));
                (wanted.cloned().collect(), known.to)
            }
            None => (Vec::new(), from),
        };
        if next < to || known.is_none() {
            messages.extend(read(connection, session, next, to)?);
            let known = KnownMessages { edits, from, to, messages: messages.clone() };
            self.0.insert(session.to_owned(), Arc::new(known));
        }
        Ok(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store, forgetting, retention};
    use uuid::Uuid;

    #[tokio::test]
    async fn the_window_holds_whole_turns_and_its_start_moves_in_steps() {
        let (_folder, store) = Store::temporary();
        let cache = HistoryCache::default();
        let mut starts = Vec::new();
        for _ in 0..40 {
            store
                .write(Durability::Logged, |connection| {
                    let turn = [ChatMessage::user("hello"), ChatMessage::assistant("hi")];
                    let rows = turn.iter().map(|m| (m.role(), serde_json::to_string(m).unwrap()));
                    messages::append(connection, "cli:direct", Uuid::now_v7(), rows)
                })
                .await
                .unwrap();
            let HistorySlice { from, messages, .. } = store
                .read_here(|connection| {
                    let head = messages::session(connection, "cli:direct")?;
                    let window = HistoryWindow { messages: 16, tokens: 10_000, rounds: None };
                    choose(&cache, connection, "cli:direct", &head, window)
                })
                .unwrap();
            assert!(messages.len() <= 16 && messages[0].is_of_user());
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
        let (head, from, log, again) = store
            .write(Durability::Logged, move |connection| {
                let rows = turn.iter().map(|m| (m.role(), serde_json::to_string(m).unwrap()));
                messages::append(connection, "s", Uuid::now_v7(), rows)?;
                let head = messages::session(connection, "s")?;
                let (cache, window) =
                    (HistoryCache::default(), HistoryWindow { messages: 8, tokens: 10_000, rounds: None });
                let HistorySlice { from, messages, .. } = choose(&cache, connection, "s", &head, window)?;
                let context = ContextStep {
                    system: String::new(),
                    from,
                    to: head.next_seq,
                    user: String::new(),
                    ..ContextStep::default()
                };
                let again = choose_again(connection, "s", &context)?;
                Ok((head, from, messages, again))
            })
            .await
            .unwrap();
        assert_eq!((head.next_seq, from), (42, 35));
        assert_eq!(log, again, "a restart gives the same");
        let mut given: Vec<_> = log.iter().map(|message| ChatMessage::clone(&message.message)).collect();
        assert_eq!((given.len(), &given[0]), (8, &ChatMessage::user("count to twenty")));
        given.push(ChatMessage::user("go on"));
        assert_eq!(crate::llm::check_messages(&given), Ok(()));
    }

    #[tokio::test]
    async fn a_tight_token_budget_drops_the_oldest_turns() {
        let (_folder, store) = Store::temporary();
        let log = store
            .write(Durability::Logged, |connection| {
                for number in 0..20 {
                    let turn =
                        [ChatMessage::user(format!("{number} {}", "word ".repeat(100))), ChatMessage::assistant("hi")];
                    let rows = turn.iter().map(|m| (m.role(), serde_json::to_string(m).unwrap()));
                    messages::append(connection, "s", Uuid::now_v7(), rows)?;
                }
                let head = messages::session(connection, "s")?;
                let (cache, window) =
                    (HistoryCache::default(), HistoryWindow { messages: 100, tokens: 1_000, rounds: None });
                Ok(choose(&cache, connection, "s", &head, window)?.messages)
            })
            .await
            .unwrap();
        let tokens: usize = log.iter().map(|message| message.tokens).sum();
        let is_newest = log.last().is_some_and(|message| message.seq == 39);
        assert!(tokens <= 1_000 && log[0].is_of_user() && is_newest, "{tokens}");
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

    #[tokio::test]
    async fn kept_messages_are_those_of_the_store() {
        let (_folder, store) = Store::temporary();
        let check = |connection: &Connection| {
            let cache = HistoryCache::default();
            let add = |count: usize| {
                let turn = (0..count).map(|n| ("user", format!(r#"{{"role":"user","content":"hello {n}"}}"#)));
                messages::append(connection, "s", Uuid::now_v7(), turn)
            };
            let check = |from: i64, expected: usize| {
                let head = messages::session(connection, "s")?;
                let found = cache.since(connection, ("s", &head), from)?;
                assert_eq!(found, read(connection, "s", from, head.next_seq)?, "from {from}");
                assert_eq!(found.len(), expected, "from {from}");
                Ok::<_, StoreError>(head)
            };
            check(0, 0)?;
            add(3)?;
            let earlier = check(0, 3)?;
            add(2)?;
            for (from, expected) in [(0, 5), (2, 3), (1, 4), (5, 0), (0, 5)] {
                check(from, expected)?;
            }
            assert_eq!(cache.since(connection, ("s", &earlier), 1)?.len(), 2, "an earlier transaction");
            check(0, 5)?;
            forgetting::replace_body(connection, "s", 1, r#"{"role":"user","content":"[forgotten]"}"#)?;
            check(0, 5)?;
            retention::prune_sessions(connection, i64::MAX)?;
            check(0, 0)?;
            Ok(())
        };
        store.write(Durability::Logged, check).await.unwrap();
    }

    #[tokio::test]
    async fn kept_messages_are_not_read_again() {
        let (_folder, store) = Store::temporary();
        let check = |connection: &Connection| {
            let cache = HistoryCache::default();
            let body = r#"{"role":"user","content":"hello"}"#;
            let head = messages::append(connection, "s", Uuid::now_v7(), [("user", body.to_owned())].into_iter())?;
            let before = cache.since(connection, ("s", &head), 0)?;
            connection.execute("UPDATE messages SET body = 'without a new count of edits'", [])?;
            assert_eq!(cache.since(connection, ("s", &head), 0)?, before);
            // Sessions without messages must not fill the memory either.
            let empty = KnownMessages { edits: 0, from: 0, to: 0, messages: Vec::new() };
            assert!(empty.bytes("s") > 1);
            Ok(())
        };
        store.write(Durability::Logged, check).await.unwrap();
    }
}
