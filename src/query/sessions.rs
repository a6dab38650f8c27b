//! Sessions: their messages, transcripts, search, export and import.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::rows::{self, LIST_LIMIT, timestamp};
use crate::chat::{ChatMessage, without_notes};
use crate::llm::costs_in_words;
use crate::memory::{self, MemoryError, MemorySettings, Owner, session_file};
use crate::store::checkpoints::CheckpointError;
use crate::store::ownership::{self, Ownership};
use crate::store::usage::{self, UsageScope};
use crate::store::{Connection, StoreError, messages, session_import};

/// The most faults of an import that its error lists.
const MAX_LISTED_FAULTS: usize = 20;

/// Lists sessions, the last used first.
pub(super) fn list(connection: &Connection) -> Result<Value, StoreError> {
    let rows = messages::list(connection, LIST_LIMIT)?;
    rows.into_iter()
        .map(|row| {
            let spent = usage::total(connection, UsageScope::Session(&row.session))?;
            Ok(json!({
                "session": row.session,
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

/// Returns the messages of a session since its last `/new`; `None` if the session does not exist.
pub(super) fn show(connection: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
    let head = messages::session(connection, key)?;
    if head.next_seq == 0 {
        return Ok(None);
    }
    let messages = messages::range(connection, key, head.first_seq, head.next_seq)?
        .into_iter()
        .map(|row| {
            let message: Value = serde_json::from_str(&row.body)?;
            Ok(json!({ "seq": row.seq, "at": timestamp(row.at), "turn": row.turn, "role": row.role, "message": message }))
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let used = rows::usage(&usage::total(connection, UsageScope::Session(key))?);
    let ownership = ownership::of_session(connection, key)?;
    Ok(Some(json!({
        "session": key,
        "owner": ownership.owner.map(|owner| memory::owner_label(&Owner::from_stored(&owner)).to_owned()),
        "shared": ownership.is_shared,
        "epoch": head.epoch,
        "model": head.model,
        "messages": messages,
        "used": used,
    })))
}

/// Starts a new epoch of a session. For a home without a running gateway: in a running one the session's lane does so.
pub(super) fn clear(connection: &Connection, key: &str) -> Result<Value, StoreError> {
    let exists = messages::session(connection, key)?.next_seq > 0;
    if exists {
        messages::new_epoch(connection, key)?;
    }
    Ok(cleared(key, exists))
}

/// The answer to a request to clear a session; `cleared` is false if the session does not exist.
pub fn cleared(session: &str, cleared: bool) -> Value {
    json!({ "session": session, "cleared": cleared })
}

/// Searches the messages of one session or of all sessions of all owners; best match first.
pub fn search(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    since: Option<i64>,
    limit: usize,
) -> Result<Value, MemoryError> {
    check_search_text(text)?;
    let lines = memory::search_messages(connection, text.trim(), session, since, limit)?;
    let view = |line: memory::HistoryHit| {
        json!({
            "similarity": (line.similarity * 1_000.0).round() / 1_000.0,
            "session": line.session,
            "seq": line.seq,
            "role": line.role,
            "owner": memory::owner_label(&Owner::from_stored(&line.owner)),
            "at": timestamp(line.at),
            "text": line.excerpt,
        })
    };
    Ok(lines.into_iter().map(view).collect())
}

/// Refuses an empty search text.
pub(super) fn check_search_text(text: &str) -> Result<(), MemoryError> {
    let nothing = || MemoryError::Wrong("there is nothing to look for: the query is empty".to_owned());
    if text.trim().is_empty() { Err(nothing()) } else { Ok(()) }
}

/// Returns a session since its last `/new` as text for people, with the calls of each answer and their results; `None` if the
/// session does not exist.
pub(super) fn transcript(connection: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
    let head = messages::session(connection, key)?;
    if head.next_seq == 0 {
        return Ok(None);
    }
    let mut transcript: Vec<Value> = Vec::new();
    for row in messages::range(connection, key, head.first_seq, head.next_seq)? {
        match serde_json::from_str(&row.body)? {
            ChatMessage::User { content, images } => {
                let images: Vec<_> = images.iter().map(|image| json!(image)).collect();
                transcript.push(
                    json!({ "at": timestamp(row.at), "role": "user", "text": memory::written(&content), "images": images }),
                );
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

/// Returns the messages of an answer to [`StoreQuery::Session`](super::StoreQuery::Session) as the lines of an export: each names
/// its session and owner.
pub fn export_lines(session: &Value) -> Vec<Value> {
    let messages = session["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |message: &Value| {
        let mut line = message.clone();
        for key in ["session", "owner", "shared"] {
            // False and unknown values are left out.
            if !matches!(session[key], Value::Null | Value::Bool(false)) {
                line[key] = session[key].clone();
            }
        }
        line
    };
    messages.iter().map(line).collect()
}

/// Imports a conversation as a new session, completely or not at all.
pub fn import(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    owner: Option<&str>,
    settings: &MemorySettings,
) -> Result<Value, MemoryError> {
    let file = session_file::read(text, &settings.zone, Timestamp::now())
        .map_err(|faults| MemoryError::Wrong(import_faults(&faults)))?;
    let Some(session) = session.or(file.key.as_deref()) else {
        let wrong = "the file names no session; say what it is to be called with --session KEY, such as cli:old";
        return Err(MemoryError::Wrong(wrong.to_owned()));
    };
    // Under its own key it keeps the owner that the file names; under another key it belongs to whoever imports it.
    let keeps_key = owner.is_none() && file.key.as_deref() == Some(session);
    let is_shared = keeps_key && file.is_shared;
    let owner = match owner.or(file.owner.as_deref().filter(|_| keeps_key)) {
        Some(stranger) if keeps_key && stranger.starts_with("stranger:") => Owner::from_stored(stranger),
        Some(owner) => memory::parse_owner(owner, &settings.identities).map_err(MemoryError::Wrong)?,
        None => Owner::gateway(),
    };
    let ownership = Ownership { owner: Some(owner.as_str().to_owned()), is_shared };
    let begun = session_import::begin(connection, session, &ownership, &file.messages);
    begun.map_err(|error| match error {
        CheckpointError::Store(error) => MemoryError::Store(error),
        other => MemoryError::Wrong(other.to_string()),
    })?;
    Ok(json!({ "session": session, "owner": memory::owner_label(&owner), "messages": file.messages.len() }))
}

/// Formats the faults of a file, one a line, in an error that says that nothing was imported.
pub(super) fn import_faults(faults: &[String]) -> String {
    let more = faults.len().saturating_sub(MAX_LISTED_FAULTS);
    let listed = faults.iter().take(MAX_LISTED_FAULTS).cloned().collect::<Vec<_>>().join("\n");
    let more = if more == 0 { String::new() } else { format!("\nand {more} more") };
    format!("nothing was imported:\n{listed}{more}")
}
