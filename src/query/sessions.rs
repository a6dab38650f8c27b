//! Sessions: their messages, transcripts, search, export and import.

use std::collections::{BTreeMap, BTreeSet};

use daoyou_channels::Attachment;
use daoyou_channels::text::{one_line, truncate};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::rows::{self, LIST_LIMIT, timestamp};
use crate::bus::OutboundBody;
use crate::chat::{ChatMessage, without_notes};
use crate::llm::costs_in_words;
use crate::memory::session_file::{self, SessionFile};
use crate::memory::{self, MemoryError, MemoryOwner, MemorySettings};
use crate::store::checkpoints::{self, CheckpointError};
use crate::store::inbox::{self, InboxRow};
use crate::store::messages::{self, MessageRow, Ownership, SessionHead, SessionSummary};
use crate::store::ownership;
use crate::store::usage::{self, UsageScope};
use crate::store::{Connection, StoreError, approvals, memories, now_ms, outbox, session_import, session_memory};

/// The channel of the page.
const PAGE: &str = "page";
/// The length of a preview, in characters, and the number of messages that are searched for one.
const PREVIEW_LENGTH: usize = 120;
const PREVIEW_MESSAGES: i64 = 20;
/// The longest title that is taken from a message, in characters.
const TITLE_LENGTH: usize = 60;

/// The source of an imported conversation that may hold foreign content.
const IMPORT_SOURCE: &str = "import";
/// The maximum number of faults of an import that its error lists.
pub(super) const MAX_LISTED_FAULTS: usize = 20;

/// Lists sessions whose keys begin with `prefix`, the most recently used first. Chats that are not in the history yet come before
/// them.
///
/// # Errors
/// The sessions or their usage cannot be read from the store.
pub fn list(connection: &Connection, prefix: &str) -> Result<Value, StoreError> {
    let rows = messages::list_of(connection, prefix, LIST_LIMIT)?;
    let running: BTreeMap<String, i64> =
        inbox::open_sessions(connection)?.into_iter().map(|(session, _, seq)| (session, seq)).collect();
    let known: BTreeSet<_> = rows.iter().map(|row| row.session.clone()).collect();
    let mut new = new_sessions(connection, &running)?;
    new.retain(|session, _| session.starts_with(prefix) && !known.contains(session));
    let new = new.into_iter().map(|(session, row)| {
        let at = row.map_or_else(now_ms, |row| row.received_at);
        SessionSummary { session, epoch: 0, messages: 0, model: None, title: None, created_at: at, updated_at: at }
    });
    new.chain(rows)
        .map(|row| {
            let spent = usage::total(connection, UsageScope::Session(&row.session))?;
            Ok(json!({
                "session": row.session,
                "title": title(connection, &row.session, row.title)?,
                "channel": channel_of(&row.session),
                "preview": preview(connection, &row.session)?,
                "running": running.contains_key(&row.session),
                "messages": row.messages,
                "epoch": row.epoch,
                "model": row.model,
                "created_at": timestamp(row.created_at),
                "updated_at": timestamp(row.updated_at),
                "tokens": spent.tokens.input + spent.tokens.output,
                "cost": costs_in_words(&spent.costs),
            }))
        })
        .collect()
}

/// Returns the sessions without a history that have an unfinished message (also returned) or a message on the page.
fn new_sessions(
    connection: &Connection,
    open: &BTreeMap<String, i64>,
) -> Result<BTreeMap<String, Option<InboxRow>>, StoreError> {
    let mut new = BTreeMap::new();
    for chat in outbox::page_chats(connection, LIST_LIMIT)? {
        let session = session_of_page_chat(&chat);
        let is_new = messages::session(connection, &session)?.next_seq == 0;
        if is_new && !deliveries(connection, &session, &[])?.is_empty() {
            new.insert(session, None);
        }
    }
    for session in open.keys() {
        new.insert(session.clone(), inbox::open_of_session(connection, session, 1)?.pop());
    }
    Ok(new)
}

/// Returns the session of a chat of the page. If the chat shows a session of another channel, its name is the key of that session.
pub fn session_of_page_chat(chat: &str) -> String {
    if chat.contains(':') { chat.to_owned() } else { format!("{PAGE}:{chat}") }
}

/// Returns the chat of the page that shows a session.
pub fn page_chat_of_session(session: &str) -> &str {
    let chat = session.strip_prefix(PAGE).and_then(|rest| rest.strip_prefix(':'));
    chat.filter(|chat| !chat.contains(':')).unwrap_or(session)
}

/// Returns true if a key names a channel and a chat, so that a message can go to the session.
pub fn is_chat_key(key: &str) -> bool {
    key.split_once(':').is_some_and(|(channel, chat)| !channel.is_empty() && !chat.is_empty())
}

/// Returns the channel in the key of a session.
fn channel_of(session: &str) -> &str {
    let mut parts = session.match_indices(':').map(|(at, _)| at);
    let end = if session.starts_with("webhook:") { parts.nth(1) } else { parts.next() };
    end.map_or(session, |end| &session[..end])
}

/// Returns the title of a session: the title that a person chose, or else the beginning of the first message; null without either.
fn title(connection: &Connection, session: &str, given: Option<String>) -> Result<Value, StoreError> {
    if let Some(title) = given {
        return Ok(json!(title));
    }
    let head = messages::session(connection, session)?;
    let first = messages::range(connection, session, head.first_seq, head.first_seq + 1)?.pop();
    let text = first.filter(|row| row.role == "user").and_then(|row| memory::spoken_text(&row.body));
    Ok(text.map_or(Value::Null, |text| json!(truncate(&one_line(&text), TITLE_LENGTH))))
}

/// Returns the beginning of the last text that the person or the agent wrote in a session; null if there is none.
fn preview(connection: &Connection, session: &str) -> Result<Value, StoreError> {
    let head = messages::session(connection, session)?;
    let from = head.first_seq.max(head.next_seq - PREVIEW_MESSAGES);
    let rows = messages::range(connection, session, from, head.next_seq)?;
    let spoken = rows.iter().rev().find_map(|row| memory::spoken_text(&row.body));
    let text = match spoken {
        Some(text) => Some(text),
        None => inbox::open_of_session(connection, session, 1)?.pop().map(|row| row.content),
    };
    Ok(text.map_or(Value::Null, |text| json!(truncate(&one_line(&text), PREVIEW_LENGTH))))
}

/// Returns true if a session can be shown: it has messages or settings, an unfinished message, or a message on the page.
///
/// # Errors
/// The store cannot be read.
pub fn is_known(connection: &Connection, key: &str) -> Result<bool, StoreError> {
    Ok(messages::session(connection, key)? != SessionHead::default()
        || !inbox::open_of_session(connection, key, 1)?.is_empty()
        || !deliveries(connection, key, &[])?.is_empty())
}

/// Returns the messages of a session since its last `/new`, and the other messages sent to its chat on the page; `None` if the
/// session is not known.
pub(super) fn show(connection: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
    if !is_known(connection, key)? {
        return Ok(None);
    }
    let head = messages::session(connection, key)?;
    let rows = messages::range(connection, key, head.first_seq, head.next_seq)?;
    let deliveries = deliveries(connection, key, &rows)?;
    let messages = rows.iter().map(|row| message(connection, row)).collect::<Result<Vec<_>, StoreError>>()?;
    let used = rows::usage(&usage::total(connection, UsageScope::Session(key))?);
    let ownership = ownership::of_session(connection, key)?;
    Ok(Some(json!({
        "session": key,
        "owner": ownership.owner.map(|owner| memory::owner_label(&MemoryOwner::from_stored(&owner)).to_owned()),
        "shared": ownership.is_shared,
        "tainted": !approvals::taint_of_epoch(connection, key, head.epoch)?.is_empty(),
        "epoch": head.epoch,
        "model": head.model,
        "agent": head.agent,
        "title": title(connection, key, messages::title(connection, key)?)?,
        "summary": summary(connection, key, &head)?,
        "messages": messages,
        "deliveries": deliveries,
        "used": used,
    })))
}

/// Returns the summary of the older part of a session, and the turn before which that part ends; null if there is no summary.
fn summary(connection: &Connection, key: &str, head: &SessionHead) -> Result<Value, StoreError> {
    let state = session_memory::get(connection, key, head.epoch)?;
    let text = state.summary.map(|id| memories::find(connection, id)).transpose()?.flatten().map(|row| row.text);
    let Some(text) = text else { return Ok(Value::Null) };
    Ok(json!({ "text": text, "turn": messages::turn_of(connection, key, state.cursor)? }))
}

/// Returns a message of the history. A person's message has its files, and its text without the additions for the model.
fn message(connection: &Connection, row: &MessageRow) -> Result<Value, StoreError> {
    let message: Value = serde_json::from_str(&row.body)?;
    let mut view = json!({ "seq": row.seq, "at": timestamp(row.at), "turn": row.turn, "role": row.role });
    if row.role == "user" {
        view["text"] = json!(message["content"].as_str().map(memory::written).unwrap_or_default());
        let asked = asked(connection, row)?;
        view["at"] = json!(timestamp(received_at(row, &asked)));
        let mut files = Vec::new();
        for asked in &asked {
            files.extend(inbound_files(asked)?);
        }
        if !files.is_empty() {
            view["attachments"] = Value::Array(files);
        }
    }
    view["message"] = message;
    Ok(view)
}

/// Returns the accepted messages that a person's message of the history is made of. An imported one has none.
fn asked(connection: &Connection, row: &MessageRow) -> Result<Vec<InboxRow>, StoreError> {
    let turn = row.turn.parse().ok();
    Ok(turn.map(|turn| inbox::of_turn(connection, turn)).transpose()?.unwrap_or_default())
}

/// Returns when a person's message was received. All rows of a turn have the time of its end, because forgetting needs the time of
/// the memories that a row quotes.
fn received_at(row: &MessageRow, asked: &[InboxRow]) -> i64 {
    asked.first().map_or(row.at, |first| first.received_at)
}

/// Returns the files of an accepted message.
///
/// # Errors
/// The row cannot be read.
pub fn inbound_files(row: &InboxRow) -> Result<Vec<Value>, StoreError> {
    let attachments: Vec<Attachment> = serde_json::from_str(&row.attachments)?;
    Ok(page_files("in", row.id, &attachments))
}

/// Returns the files of a message, with the ids under which the page loads them.
fn page_files(kind: &str, message: Uuid, files: &[Attachment]) -> Vec<Value> {
    let file = |(number, file): (usize, &Attachment)| {
        let id = format!("{kind}.{message}.{number}");
        json!({ "id": id, "name": file.name, "mime": file.media_type, "size": file.size })
    };
    files.iter().enumerate().map(file).collect()
}

/// Returns the messages that were sent to a session's chat on the page since its last `/new` and are not in the history: messages of
/// jobs and tools, questions, notices, and replies to commands.
fn deliveries(connection: &Connection, key: &str, history: &[MessageRow]) -> Result<Vec<Value>, StoreError> {
    let since = messages::epoch_start(connection, key)?;
    let rows = outbox::of_page_chat(connection, page_chat_of_session(key), since, LIST_LIMIT)?;
    let turns: BTreeSet<_> = history.iter().map(|row| row.turn.as_str()).collect();
    let spoken: BTreeSet<_> = history
        .iter()
        .filter(|row| row.role == "assistant" && !rows.is_empty())
        .filter_map(|row| memory::spoken_text(&row.body))
        .collect();
    let mut found = Vec::new();
    for row in rows {
        let body: OutboundBody = serde_json::from_str(&row.body)?;
        let is_reply = row.slot == "reply";
        // A job's message is in the history of its chat as well.
        let is_in_history =
            (is_reply && turns.contains(row.turn.to_string().as_str())) || spoken.contains(body.content.trim());
        if is_in_history && body.attachments.is_empty() || body.context.is_picked_up {
            continue;
        }
        let asked = match body.in_reply_to.filter(|_| is_reply && !is_in_history) {
            Some(id) => inbox::find(connection, id)?.map(|row| row.content),
            None => None,
        };
        let kind = if is_reply { "reply" } else { row.slot.split(':').next().unwrap_or_default() };
        found.push(json!({
            "id": row.id,
            "at": timestamp(row.created_at),
            "turn": row.turn,
            "kind": if kind == "tool" { "message" } else { kind },
            "in_reply_to": asked,
            "text": body.content,
            "in_history": is_in_history,
            "job": body.context.job,
            "notice": body.context.notice,
            "error": body.error.map(|error| error.code),
            "attachments": page_files("out", row.id, &body.attachments),
        }));
    }
    Ok(found)
}

/// Starts a new epoch of a session in a home without a running gateway; `None` if the session does not exist. In a running gateway,
/// the session's lane does this.
///
/// # Errors
/// The session has unfinished messages, which would land in the new epoch.
pub(super) fn clear(connection: &Connection, key: &str) -> Result<Option<Value>, CheckpointError> {
    if !inbox::open_of_session(connection, key, 1)?.is_empty() {
        return Err(CheckpointError::Busy(key.to_owned()));
    }
    if !is_known(connection, key)? {
        return Ok(None);
    }
    messages::new_epoch(connection, key)?;
    Ok(Some(cleared(key)))
}

/// Returns the response to a request that has cleared a session.
pub fn cleared(session: &str) -> Value {
    json!({ "session": session, "cleared": true })
}

/// Returns the turn before the last turn of a session, or `Some(None)` if the last turn is the first one of the conversation. Returns
/// `None` if the last turn is not in the history, so that there is nothing to go back from.
///
/// # Errors
/// `last` is not the last turn of the session, the session is busy, or it cannot go back to the turn before.
pub fn turn_before(
    connection: &Connection,
    session: &str,
    last: Uuid,
) -> Result<Option<Option<Uuid>>, CheckpointError> {
    if !inbox::open_of_session(connection, session, 1)?.is_empty() {
        return Err(CheckpointError::Busy(session.to_owned()));
    }
    if checkpoints::current_turn(connection, session)? == Some(last) {
        let before = checkpoints::turn_before(connection, session, last)?;
        let point = before.map(|turn| checkpoints::find(connection, session, turn)).transpose()?;
        return Ok(Some(point.map(|point| point.turn)));
    }
    if checkpoints::has_messages(connection, session, last)? {
        return Err(CheckpointError::NotLast(last));
    }
    if inbox::of_turn(connection, last)?.iter().any(|row| row.session == session) {
        return Ok(None);
    }
    Err(CheckpointError::Unknown(last.to_string()))
}

/// Searches the messages of one session, or of all sessions of all owners; the best match comes first.
///
/// # Errors
/// The text is empty, the session does not exist, or the store cannot be read.
pub fn search(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    since: Option<i64>,
    limit: usize,
) -> Result<Value, MemoryError> {
    check_search_text(text)?;
    if let Some(session) = session
        && !is_known(connection, session)?
    {
        return Err(unknown(session));
    }
    let lines = memory::search_messages(connection, text.trim(), session, since, limit)?;
    let view = |line: memory::HistoryHit| {
        json!({
            "similarity": (line.similarity * 1_000.0).round() / 1_000.0,
            "session": line.session,
            "seq": line.seq,
            "role": line.role,
            "owner": memory::owner_label(&MemoryOwner::from_stored(&line.owner)),
            "at": timestamp(line.at),
            "text": line.excerpt,
        })
    };
    Ok(lines.into_iter().map(view).collect())
}

/// Returns the error of a search in a session that does not exist.
pub fn unknown(session: &str) -> MemoryError {
    MemoryError::Wrong(format!("there is no session {session}"))
}

/// Rejects an empty search text.
pub(super) fn check_search_text(text: &str) -> Result<(), MemoryError> {
    let nothing = || MemoryError::Wrong("there is nothing to look for: the query is empty".to_owned());
    if text.trim().is_empty() { Err(nothing()) } else { Ok(()) }
}

/// Returns a session since its last `/new` as text for people, with the calls of each response and their results; `None` if the
/// session does not exist.
pub(super) fn transcript(connection: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
    if !is_known(connection, key)? {
        return Ok(None);
    }
    let head = messages::session(connection, key)?;
    let mut transcript: Vec<Value> = Vec::new();
    for row in messages::range(connection, key, head.first_seq, head.next_seq)? {
        match serde_json::from_str(&row.body)? {
            ChatMessage::User { content, images } => {
                let images: Vec<_> = images.iter().map(|image| json!(image)).collect();
                let at = timestamp(received_at(&row, &asked(connection, &row)?));
                transcript
                    .push(json!({ "at": at, "role": "user", "text": memory::written(&content), "images": images }));
            }
            ChatMessage::Assistant { content, tool_calls, .. } => {
                let calls = tool_calls.iter().map(
                    |call| json!({ "id": call.id, "name": call.name, "arguments": call.arguments, "result": null }),
                );
                let calls: Vec<_> = calls.collect();
                transcript
                    .push(json!({ "at": timestamp(row.at), "role": "assistant", "text": content, "calls": calls }));
            }
            ChatMessage::Tool { call_id, content, .. } => {
                let calls = transcript.iter_mut().rev().find_map(|message| message["calls"].as_array_mut());
                let call = calls.into_iter().flatten().find(|call| call["id"] == call_id.as_str());
                if let Some(call) = call {
                    call["result"] = json!(without_notes(&content));
                }
            }
        }
    }
    let stored = show(connection, key)?.unwrap_or_default();
    let import = session_file::as_comment(&export_lines(&stored));
    Ok(Some(json!({ "session": key, "epoch": head.epoch, "messages": transcript, "import": import })))
}

/// Returns the messages of a response to [`StoreQuery::Session`](super::StoreQuery::Session) as the lines of an export: each names
/// its session and owner.
pub fn export_lines(session: &Value) -> Vec<Value> {
    let messages = session["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |message: &Value| {
        let mut line = message.clone();
        // These fields are only for the page.
        if let Some(fields) = line.as_object_mut() {
            fields.retain(|key, _| !matches!(key.as_str(), "text" | "attachments"));
        }
        for key in ["session", "owner", "shared", "tainted"] {
            // False and unknown values are omitted.
            if !matches!(session[key], Value::Null | Value::Bool(false)) {
                line[key] = session[key].clone();
            }
        }
        line
    };
    messages.iter().map(line).collect()
}

/// Imports a conversation as a new session, completely or not at all.
///
/// # Errors
/// The text is not an export; no key or an invalid one is given; the session exists; the owner is unknown; or the store
/// cannot be written.
pub fn import(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    owner: Option<&str>,
    settings: &MemorySettings,
) -> Result<Value, MemoryError> {
    let SessionFile { conversation, messages } = session_file::read(text, &settings.zone, Timestamp::now())
        .map_err(|faults| MemoryError::Wrong(import_faults(&faults, faults.len())))?;
    let Some(session) = session.or(conversation.key.as_deref()) else {
        let wrong = "the file names no session; say what it is to be called with --session KEY, such as cli:old";
        return Err(MemoryError::Wrong(wrong.to_owned()));
    };
    // Under its own key the session keeps the owner that the file names; under another key it belongs to the importing user.
    let keeps_key = owner.is_none() && conversation.key.as_deref() == Some(session);
    let is_shared = keeps_key && conversation.is_shared;
    let owner = match owner.or(conversation.owner.as_deref().filter(|_| keeps_key)) {
        Some(owner) if keeps_key && owner.starts_with("stranger:") => MemoryOwner::from_stored(owner),
        Some(owner) => memory::parse_owner(owner, &settings.identities).map_err(MemoryError::Wrong)?,
        None => MemoryOwner::gateway(),
    };
    let ownership = Ownership { owner: Some(owner.as_str().to_owned()), is_shared };
    let begun = session_import::begin(connection, session, &ownership, &messages);
    begun.map_err(|error| match error {
        CheckpointError::Store(error) => MemoryError::Store(error),
        other => MemoryError::Wrong(other.to_string()),
    })?;
    if conversation.is_tainted {
        approvals::add_taint(connection, session, 0, &[IMPORT_SOURCE.to_owned()].into())?;
    }
    Ok(json!({ "session": session, "owner": memory::owner_label(&owner), "messages": messages.len() }))
}

/// Returns an error with the first faults of a file, one per line, and the number of the others; it says that nothing was imported.
pub(super) fn import_faults(faults: &[String], count: usize) -> String {
    let more = count.saturating_sub(MAX_LISTED_FAULTS);
    let listed = faults.iter().take(MAX_LISTED_FAULTS).cloned().collect::<Vec<_>>().join("\n");
    let more = if more == 0 { String::new() } else { format!("\nand {more} more") };
    format!("nothing was imported:\n{listed}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::NewInboxRow;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn a_persons_message_has_the_time_of_its_receipt() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let turn = Uuid::from_u128(1);
            inbox::insert(connection, &NewInboxRow { received_at: 5, ..NewInboxRow::sample(turn, "s") })?;
            let messages = [ChatMessage::user("hi"), ChatMessage::assistant("hello")];
            let bodies = messages.iter().map(|message| (message.role(), serde_json::to_string(message).unwrap()));
            messages::append(connection, "s", turn, bodies)?;
            Ok([show(connection, "s")?, transcript(connection, "s")?].map(Option::unwrap))
        };
        for view in store.write(Durability::Logged, work).await.unwrap() {
            let messages = view["messages"].as_array().unwrap();
            assert_eq!(messages[0]["at"], "1970-01-01T00:00:00.005Z", "{view}");
            assert_ne!(messages[1]["at"], messages[0]["at"], "{view}");
        }
    }

    #[test]
    fn the_faults_of_an_import_are_listed_up_to_a_limit() {
        let faults: Vec<String> = (1..=MAX_LISTED_FAULTS + 5).map(|line| format!("line {line}: wrong")).collect();
        for (listed, count, lines, end) in [
            (&faults[..2], 2, 3, "line 2: wrong"),
            (&faults[..MAX_LISTED_FAULTS], 1_000, 22, "and 980 more"),
            (&faults[..], faults.len(), 22, "and 5 more"),
        ] {
            let text = import_faults(listed, count);
            assert!(text.starts_with("nothing was imported:\n") && text.ends_with(end), "{text}");
            assert_eq!(text.lines().count(), lines, "{text}");
        }
    }
}
