//! Invariants that must hold in every case. They are checked on the database and on the observations from outside, after
//! all work is done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::Value;

use super::sink::Sink;
use super::{signing, until};

/// The tools that may run twice; turn.md calls them idempotent.
const IDEMPOTENT: &[&str] = &["read_file", "list_dir", "grep", "glob", "recall", "load_skill", "ask_user"];

/// A row of `inbox`.
#[derive(Clone, Debug)]
pub struct InboxRow {
    pub seq: i64,
    pub id: String,
    pub channel: String,
    pub external_id: Option<String>,
    pub session: String,
    pub chat_id: String,
    pub content: String,
    pub turn: Option<String>,
    pub state: String,
    /// daoyou wrote the message to itself, so its end may need more or less than a reply.
    pub is_own: bool,
}

/// A row of `turn_steps`.
#[derive(Clone, Debug)]
pub struct Step {
    pub turn: String,
    pub seq: i64,
    pub kind: String,
    /// The body as stored, which is the input of the hash.
    pub raw: String,
    pub body: Value,
    pub hash: String,
}

/// A row of `messages`.
#[derive(Clone, Debug)]
pub struct MessageRow {
    pub session: String,
    pub epoch: i64,
    pub seq: i64,
    pub role: String,
    pub body: Value,
    pub turn: Option<String>,
}

/// A row of `outbox`.
#[derive(Clone, Debug)]
pub struct OutboxRow {
    pub seq: i64,
    pub id: String,
    pub turn: String,
    pub slot: String,
    pub attempt: i64,
    pub channel: String,
    pub chat_id: String,
    pub body: Value,
    pub state: String,
    pub tries: i64,
}

/// All data that the checks read.
#[derive(Clone, Debug)]
pub struct Journal {
    pub inbox: Vec<InboxRow>,
    pub steps: Vec<Step>,
    pub messages: Vec<MessageRow>,
    pub outbox: Vec<OutboxRow>,
    /// The ids of job runs whose output was kept and not sent.
    pub kept: BTreeSet<String>,
}

/// Opens the store read-only, next to other users of it.
pub fn open(database: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(super::PATIENCE)?;
    Ok(connection)
}

/// Opens the store for changes, next to other users of it.
pub fn open_to_change(database: &Path) -> Connection {
    let connection = Connection::open(database).expect("the store is there");
    connection.busy_timeout(super::PATIENCE).expect("a time to wait");
    connection
}

/// Returns a column as text. Ids have the same form whether they are stored as text or as 16 bytes; other bytes become hexadecimal.
fn text(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => {
            Some(uuid::Uuid::from_slice(bytes).map_or_else(|_| signing::hex(bytes), |id| id.to_string()))
        }
    })
}

fn string(row: &Row<'_>, column: &str) -> rusqlite::Result<String> {
    Ok(text(row, column)?.unwrap_or_default())
}

/// Returns a body both as stored and as JSON.
fn body(row: &Row<'_>) -> rusqlite::Result<(String, Value)> {
    let raw = match row.get_ref("body")? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let parsed = serde_json::from_str(&raw).unwrap_or(Value::Null);
    Ok((raw, parsed))
}

impl Journal {
    /// Reads the tables in one snapshot.
    pub fn read(database: &Path) -> rusqlite::Result<Self> {
        let mut connection = open(database)?;
        let snapshot = connection.transaction()?;
        let inbox = rows(&snapshot, "SELECT * FROM inbox ORDER BY seq", |row| {
            Ok(InboxRow {
                seq: row.get("seq")?,
                id: string(row, "id")?,
                channel: string(row, "channel")?,
                external_id: text(row, "external_id")?,
                session: string(row, "session")?,
                chat_id: string(row, "chat_id")?,
                content: string(row, "content")?,
                turn: text(row, "turn")?,
                state: string(row, "state")?,
                is_own: is_own(&string(row, "origin")?),
            })
        })?;
        let steps = rows(&snapshot, "SELECT * FROM turn_steps ORDER BY turn, seq", |row| {
            let (turn, kind, hash, (raw, body)) =
                (string(row, "turn")?, string(row, "kind")?, string(row, "hash")?, body(row)?);
            Ok(Step { turn, seq: row.get("seq")?, kind, raw, body, hash })
        })?;
        let messages = rows(&snapshot, "SELECT * FROM messages ORDER BY session, epoch, seq", |row| {
            let (session, role, turn) = (string(row, "session")?, string(row, "role")?, text(row, "turn")?);
            Ok(MessageRow { session, epoch: row.get("epoch")?, seq: row.get("seq")?, role, body: body(row)?.1, turn })
        })?;
        let outbox = rows(&snapshot, "SELECT * FROM outbox ORDER BY seq", |row| {
            Ok(OutboxRow {
                seq: row.get("seq")?,
                id: string(row, "id")?,
                turn: string(row, "turn")?,
                slot: string(row, "slot")?,
                attempt: row.get("attempt")?,
                channel: string(row, "channel")?,
                chat_id: string(row, "chat_id")?,
                body: body(row)?.1,
                state: string(row, "state")?,
                tries: row.get("tries")?,
            })
        })?;
        let kept = "SELECT turn FROM job_runs WHERE sends = 0 AND turn IS NOT NULL";
        let kept = rows(&snapshot, kept, |row| string(row, "turn"))?.into_iter().collect();
        Ok(Self { inbox, steps, messages, outbox, kept })
    }

    /// Returns the turn that answers an accepted message.
    fn turn_of(row: &InboxRow) -> &str {
        row.turn.as_deref().unwrap_or(&row.id)
    }

    /// Returns the steps of one turn.
    pub fn steps_of(&self, turn: &str) -> Vec<&Step> {
        self.steps.iter().filter(|step| step.turn == turn).collect()
    }
}

fn rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map([], read)?.collect()
}

/// Returns true if a row's origin permits an end without a reply.
fn is_own(origin: &str) -> bool {
    let origin = serde_json::from_str(origin).unwrap_or(Value::Null);
    matches!(origin["cause"]["kind"].as_str(), Some("sub_agent" | "heartbeat" | "note"))
}

/// Returns the hash of a step: SHA-256 in hexadecimal over the previous hash (empty for the first step) and the body, both as stored.
pub fn step_hash(previous: &str, body: &str) -> String {
    use sha2::{Digest, Sha256};
    signing::hex(&Sha256::new().chain_update(previous).chain_update(body).finalize())
}

/// Returns the id of a delivery: UUIDv5 of turn, attempt and slot, so that it is the same for every try.
pub fn outbox_id(turn: &str, attempt: i64, slot: &str) -> String {
    const NAMESPACE: uuid::Uuid = uuid::uuid!("9d0e6a52-7c1b-5f43-8a1e-3d5b60f2c7a4");
    uuid::Uuid::new_v5(&NAMESPACE, format!("{turn}/{attempt}/{slot}").as_bytes()).to_string()
}

/// Returns the tool call of a step of kind `tool_started` or `tool_result`.
pub fn call_id(body: &Value) -> &str {
    ["call_id", "call", "id"].iter().find_map(|key| body[*key].as_str()).unwrap_or_default()
}

/// Returns the tool of a step.
fn tool_name(body: &Value) -> &str {
    ["name", "tool"].iter().find_map(|key| body[*key].as_str()).unwrap_or_default()
}

/// Waits until no message waits or runs, and no reply is pending.
pub async fn wait_settled(database: &Path) {
    until("all work to be done", async || {
        const OPEN: &str = "SELECT (SELECT count(*) FROM inbox WHERE state NOT IN ('done', 'dead'))
            + (SELECT count(*) FROM outbox WHERE state NOT IN ('sent', 'dead'))";
        let open: rusqlite::Result<i64> = open(database).and_then(|store| store.query_row(OPEN, [], |row| row.get(0)));
        (open == Ok(0)).then_some(())
    })
    .await;
}

/// Observations from outside, with which the store is compared.
#[derive(Default)]
pub struct Witness<'a> {
    /// The ids of all messages answered with 202.
    pub accepted: &'a [String],
    /// The receiver of the replies.
    pub sink: Option<&'a Sink>,
    /// No callback failed, so the order of arrival within a chat must be the order of acceptance.
    pub strict_order: bool,
}

/// Checks all invariants and panics with every violation. Call it after all work is done.
pub fn check(database: &Path, witness: &Witness<'_>) -> Journal {
    let journal = Journal::read(database).expect("the store can be read");
    let faults = faults(&journal, witness);
    assert!(faults.is_empty(), "{} invariants do not hold:\n  {}", faults.len(), faults.join("\n  "));
    journal
}

/// Returns all violations.
fn faults(journal: &Journal, witness: &Witness<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    accepted(journal, witness.accepted, &mut faults);
    replies(journal, &mut faults);
    sessions(journal, &mut faults);
    tools(journal, &mut faults);
    chain(journal, &mut faults);
    if let Some(sink) = witness.sink {
        callbacks(journal, witness, sink, &mut faults);
    }
    faults
}

/// Checks that every accepted message exists once and is finished.
fn accepted(journal: &Journal, accepted: &[String], faults: &mut Vec<String>) {
    let stored: BTreeSet<&str> = journal.inbox.iter().map(|row| row.id.as_str()).collect();
    for id in accepted.iter().filter(|id| !stored.contains(id.as_str())) {
        faults.push(format!("lost: {id} was accepted and is not in the inbox"));
    }
    let mut known = BTreeSet::new();
    for row in &journal.inbox {
        if !matches!(row.state.as_str(), "done" | "dead") {
            faults.push(format!("unfinished: {} is {}", row.id, row.state));
        }
        if let Some(external) = &row.external_id
            && !known.insert((&row.channel, external))
        {
            faults.push(format!("twice in the inbox: {} {external}", row.channel));
        }
    }
}

/// Checks that each turn has exactly one reply for each attempt, and each attempt its own id.
fn replies(journal: &Journal, faults: &mut Vec<String>) {
    let mut ids = BTreeSet::new();
    let mut count: BTreeMap<(&str, &str, i64), usize> = BTreeMap::new();
    for row in &journal.outbox {
        if !ids.insert(&row.id) {
            faults.push(format!("outbox id twice: {}", row.id));
        }
        *count.entry((&row.turn, &row.slot, row.attempt)).or_default() += 1;
    }
    for ((turn, slot, attempt), n) in count.iter().filter(|(_, n)| **n > 1) {
        faults.push(format!("{n} rows in slot {slot} of turn {turn}, attempt {attempt}"));
    }
    // Notes to a session get no reply, and the output of a job run may be kept.
    let is_answered = |row: &&InboxRow| !row.is_own && !journal.kept.contains(&row.id);
    for row in journal.inbox.iter().filter(is_answered) {
        let turn = Journal::turn_of(row);
        let is_reply = |outbound: &&OutboxRow| {
            let notice = row.state == "dead" && outbound.slot.starts_with("notice:");
            outbound.turn == turn && (outbound.slot == "reply" || notice)
        };
        if !journal.outbox.iter().any(|outbound| is_reply(&outbound)) {
            faults.push(format!("no reply: message {} of turn {turn} ({})", row.id, row.state));
        }
    }
}

/// Checks that the turns of a session are contiguous and in the order of acceptance, with one user message each.
fn sessions(journal: &Journal, faults: &mut Vec<String>) {
    let mut rows_of: BTreeMap<&str, Vec<&InboxRow>> = BTreeMap::new();
    for row in &journal.inbox {
        rows_of.entry(Journal::turn_of(row)).or_default().push(row);
    }
    let mut by_session: BTreeMap<(&str, i64), Vec<&MessageRow>> = BTreeMap::new();
    for message in &journal.messages {
        by_session.entry((&message.session, message.epoch)).or_default().push(message);
    }
    for ((session, epoch), messages) in by_session {
        let mut turns: Vec<&str> = messages.iter().filter_map(|message| message.turn.as_deref()).collect();
        turns.dedup();
        if turns.iter().collect::<BTreeSet<_>>().len() != turns.len() {
            faults.push(format!("session {session}/{epoch}: the messages of a turn are not in one piece: {turns:?}"));
        }
        let order: Vec<i64> = turns.iter().filter_map(|turn| rows_of.get(turn).map(|rows| rows[0].seq)).collect();
        if !order.is_sorted() {
            faults.push(format!("session {session}/{epoch}: turns are out of order: {order:?}"));
        }
        for turn in turns {
            let of_turn = messages.iter().filter(|message| message.turn.as_deref() == Some(turn));
            let users = of_turn.filter(|message| message.role == "user").count();
            let rows = rows_of.get(turn).map_or(1, Vec::len);
            if users == 0 || users > rows {
                faults.push(format!("turn {turn}: {users} user messages for {rows} accepted ones"));
            }
        }
    }
}

/// Checks that no call has two results, and that only idempotent calls were started twice.
fn tools(journal: &Journal, faults: &mut Vec<String>) {
    let mut seen: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for step in &journal.steps {
        let harmless = step.kind == "tool_started" && IDEMPOTENT.contains(&tool_name(&step.body));
        if matches!(step.kind.as_str(), "tool_started" | "tool_result") && !harmless {
            *seen.entry((&step.turn, &step.kind, call_id(&step.body))).or_default() += 1;
        }
    }
    for ((turn, kind, call), n) in seen {
        if call.is_empty() {
            faults.push(format!("turn {turn}: a {kind} step names no call"));
        } else if n > 1 {
            faults.push(format!("turn {turn}: {n} steps {kind} for call {call}"));
        }
    }
}

/// Checks that each step's hash covers its body and the previous hash.
fn chain(journal: &Journal, faults: &mut Vec<String>) {
    let mut last: Option<&Step> = None;
    for step in &journal.steps {
        let previous = last.filter(|last| last.turn == step.turn).map_or("", |last| last.hash.as_str());
        if step_hash(previous, &step.raw) != step.hash {
            faults.push(format!("turn {} step {} ({}): the hash does not cover it", step.turn, step.seq, step.kind));
        }
        last = Some(step);
    }
}

/// Checks that every reply arrived in the right form, always under the same id, and in order.
fn callbacks(journal: &Journal, witness: &Witness<'_>, sink: &Sink, faults: &mut Vec<String>) {
    let posts = sink.posts();
    let mut by_id: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut by_message: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for post in &posts {
        for fault in &post.faults {
            faults.push(format!("callback {}: not so: {fault}", post.id()));
        }
        let answer = (post.answered_id(), post.data("content"));
        if *by_id.entry(post.id()).or_insert(answer) != answer {
            faults.push(format!("callback {}: the same id with another content", post.id()));
        }
        by_message.entry(post.answered_id()).or_default().insert(post.id());
    }
    // A row that the owner retries becomes the next attempt; earlier sends had earlier ids.
    let ids =
        |row: &OutboxRow| (0..=row.attempt).map(|attempt| outbox_id(&row.turn, attempt, &row.slot)).collect::<Vec<_>>();
    let outbox: BTreeSet<String> = journal.outbox.iter().flat_map(ids).collect();
    for id in by_id.keys().filter(|id| !outbox.contains(**id)) {
        faults.push(format!("callback {id} is not in the outbox"));
    }
    let mut turns_answered = BTreeSet::new();
    for row in &journal.inbox {
        if by_message.contains_key(row.id.as_str()) {
            turns_answered.insert(Journal::turn_of(row));
        }
    }
    for row in journal.inbox.iter().filter(|row| witness.accepted.contains(&row.id)) {
        let turn = Journal::turn_of(row);
        if !turns_answered.contains(turn) {
            faults.push(format!("no callback for message {}", row.id));
        }
        let attempts = |out: &OutboxRow| usize::try_from(out.attempt + 1).expect("attempts count from 0");
        let of_turn = journal.outbox.iter().filter(|out| out.turn == turn);
        let (attempts, ids) = (of_turn.map(attempts).sum::<usize>(), by_message.get(row.id.as_str()));
        if ids.is_some_and(|ids| ids.len() > attempts) {
            faults.push(format!("message {}: {ids:?} came, {attempts} were written", row.id));
        }
    }
    if witness.strict_order {
        order(journal, &posts, faults);
    }
}

/// Checks that the first arrivals within a chat are in the order of acceptance.
fn order(journal: &Journal, posts: &[super::sink::Post], faults: &mut Vec<String>) {
    let seq: BTreeMap<&str, &InboxRow> = journal.inbox.iter().map(|row| (row.id.as_str(), row)).collect();
    let mut last: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for post in posts.iter().filter(|post| seen.insert(post.id())) {
        let Some(row) = seq.get(post.answered_id()) else { continue };
        let newest = last.entry((&row.channel, &row.chat_id)).or_insert(row.seq);
        if *newest > row.seq {
            faults.push(format!("chat {}: the reply to {} came after a younger one", row.chat_id, row.id));
        }
        *newest = (*newest).max(row.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valid store with two finished messages of one session, the first of which ran a tool.
    const VALID_STORE: &str = "
        CREATE TABLE inbox (seq INTEGER PRIMARY KEY, id, channel, external_id, session, chat_id, content, origin, turn, state);
        CREATE TABLE turn_steps (turn, seq, kind, v, body, hash, at);
        CREATE TABLE messages (session, epoch, seq, role, body, turn, at);
        CREATE TABLE outbox (seq INTEGER PRIMARY KEY, id, turn, slot, attempt, channel, chat_id, body, state, tries);
        CREATE TABLE job_runs (turn, sends);
        INSERT INTO inbox VALUES (1, 'a', 'webhook:in', 'x', 's', 'c', 'hi', '{}', 'a', 'done'),
            (2, 'b', 'webhook:in', 'y', 's', 'c', 'ho', '{}', 'b', 'done');
        INSERT INTO messages VALUES ('s', 0, 1, 'user', '{}', 'a', 0), ('s', 0, 2, 'assistant', '{}', 'a', 0),
            ('s', 0, 3, 'user', '{}', 'b', 0), ('s', 0, 4, 'assistant', '{}', 'b', 0);
        INSERT INTO outbox VALUES (1, 'oa', 'a', 'reply', 0, 'webhook:in', 'c', '{}', 'sent', 1),
            (2, 'ob', 'b', 'reply', 0, 'webhook:in', 'c', '{}', 'sent', 1);";

    /// Returns the violations after `change` is applied to a valid store.
    fn found(change: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("daoyou.db");
        let store = Connection::open(&database).unwrap();
        store.execute_batch(VALID_STORE).unwrap();
        let mut previous = String::new();
        for (seq, kind) in ["response", "tool_started", "tool_result", "response"].into_iter().enumerate() {
            let body = r#"{"call_id":"call_1","name":"exec"}"#;
            previous = step_hash(&previous, body);
            let row = (i64::try_from(seq).unwrap(), kind, body, &previous);
            store.execute("INSERT INTO turn_steps VALUES ('a', ?1, ?2, 1, ?3, ?4, 0)", row).unwrap();
        }
        store.execute_batch(change).unwrap();
        let accepted = ["a".to_owned(), "b".to_owned()];
        let journal = Journal::read(&database).unwrap();
        faults(&journal, &Witness { accepted: &accepted, ..Witness::default() }).join("; ")
    }

    #[test]
    fn a_valid_store_passes_and_each_fault_is_found() {
        assert_eq!(found(""), "");
        for (change, fault) in [
            ("DELETE FROM inbox WHERE id = 'b'", "lost: b"),
            ("UPDATE inbox SET state = 'running' WHERE id = 'b'", "unfinished: b"),
            ("UPDATE inbox SET external_id = 'x'", "twice in the inbox"),
            ("DELETE FROM outbox WHERE turn = 'b'", "no reply: message b"),
            ("UPDATE outbox SET turn = 'a'", "2 rows in slot reply"),
            ("UPDATE outbox SET id = 'oa'", "outbox id twice"),
            ("UPDATE messages SET seq = seq + 10 WHERE turn = 'a'", "out of order"),
            ("UPDATE messages SET seq = 9 WHERE seq = 2", "not in one piece"),
            ("INSERT INTO messages VALUES ('s', 0, 5, 'user', '{}', 'b', 0)", "2 user messages for 1"),
            ("UPDATE turn_steps SET kind = 'tool_result'", "4 steps tool_result"),
            ("UPDATE turn_steps SET kind = 'tool_started'", "4 steps tool_started"),
            ("UPDATE turn_steps SET body = '{}' WHERE seq = 0", "hash"),
        ] {
            assert!(found(change).contains(fault), "{change} -> {:?}", found(change));
        }
    }
}
