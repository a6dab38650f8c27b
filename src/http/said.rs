//! What was said: found, shown to be read, and taken over from files.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::memories::faults_in_words;
use super::views::{self, time};
use crate::chat::{ChatMessage, without_notes};
use crate::memory::{self, MemoryError, Owner, Terms, session_file};
use crate::store::ownership::Ownership;
use crate::store::points::PointError;
use crate::store::{Connection, StoreError, messages, session_import};

/// What was said, the best first: in all sessions, whosever they are, or in one.
pub fn search(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    since: Option<i64>,
    limit: usize,
) -> Result<Value, MemoryError> {
    check(text)?;
    let lines = memory::search(connection, text.trim(), session, since, limit)?;
    let view = |line: memory::Line| {
        json!({
            "similarity": (line.similarity * 1_000.0).round() / 1_000.0,
            "session": line.session,
            "seq": line.seq,
            "role": line.role,
            "owner": memory::called(&Owner::from_stored(&line.owner)),
            "at": time(line.at),
            "text": line.excerpt,
        })
    };
    Ok(lines.into_iter().map(view).collect())
}

/// Whether there is something to look for.
pub fn check(text: &str) -> Result<(), MemoryError> {
    let nothing = || MemoryError::Wrong("there is nothing to look for: the query is empty".to_owned());
    if text.trim().is_empty() { Err(nothing()) } else { Ok(()) }
}

/// A session since its last `/new`, to be read: what people and the agent said, and the calls of each answer with their
/// results; `None` when there is no such session.
pub fn transcript(connection: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
    let head = messages::session(connection, key)?;
    if head.next_seq == 0 {
        return Ok(None);
    }
    let mut said: Vec<Value> = Vec::new();
    for row in messages::range(connection, key, head.first_seq, head.next_seq)? {
        match serde_json::from_str(&row.body)? {
            ChatMessage::User { content, images } => {
                let images: Vec<_> = images.iter().map(|image| json!(image)).collect();
                said.push(
                    json!({ "at": time(row.at), "role": "user", "text": memory::written(&content), "images": images }),
                );
            }
            ChatMessage::Assistant { content, tool_calls, .. } => {
                let calls = tool_calls.iter().map(
                    |call| json!({ "id": call.id, "name": call.name, "arguments": call.arguments, "result": null }),
                );
                let calls: Vec<_> = calls.collect();
                said.push(json!({ "at": time(row.at), "role": "assistant", "text": content, "calls": calls }));
            }
            ChatMessage::Tool { call_id, content, .. } => {
                let calls = said.iter_mut().rev().find_map(|message| message["calls"].as_array_mut());
                let call = calls.into_iter().flatten().find(|call| call["id"] == call_id.as_str());
                if let Some(call) = call {
                    call["result"] = json!(without_notes(&content));
                }
            }
        }
    }
    let whole = views::session(connection, key)?.unwrap_or_default();
    let import = session_file::as_comment(&exported(&whole));
    Ok(Some(json!({ "session": key, "epoch": head.epoch, "messages": said, "import": import })))
}

/// The messages of a session's view as they stand in an export, one a line: each names its session and whose it is.
pub fn exported(session: &Value) -> Vec<Value> {
    let messages = session["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |message: &Value| {
        let mut line = message.clone();
        for key in ["session", "owner", "shared"] {
            // What is false or not known is left out.
            if !matches!(session[key], Value::Null | Value::Bool(false)) {
                line[key] = session[key].clone();
            }
        }
        line
    };
    messages.iter().map(line).collect()
}

/// Takes a conversation over as a new session, all of it or nothing.
pub fn import(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    owner: Option<&str>,
    terms: &Terms,
) -> Result<Value, MemoryError> {
    let file = session_file::read(text, &terms.zone, Timestamp::now())
        .map_err(|faults| MemoryError::Wrong(faults_in_words(&faults)))?;
    let Some(session) = session.or(file.key.as_deref()) else {
        let wrong = "the file names no session; say what it is to be called with --session KEY, such as cli:old";
        return Err(MemoryError::Wrong(wrong.to_owned()));
    };
    // Under its own name it is whose the file says; under another it is a conversation of whoever imports it.
    let is_as_it_was = owner.is_none() && file.key.as_deref() == Some(session);
    let is_shared = is_as_it_was && file.is_shared;
    let owner = match owner.or(file.owner.as_deref().filter(|_| is_as_it_was)) {
        Some(stranger) if is_as_it_was && stranger.starts_with("stranger:") => Owner::from_stored(stranger),
        Some(owner) => memory::owner_called(owner, &terms.identities).map_err(MemoryError::Wrong)?,
        None => Owner::gateway(),
    };
    let ownership = Ownership { owner: Some(owner.as_str().to_owned()), is_shared };
    let begun = session_import::begin(connection, session, &ownership, &file.messages);
    begun.map_err(|error| match error {
        PointError::Store(error) => MemoryError::Store(error),
        other => MemoryError::Wrong(other.to_string()),
    })?;
    Ok(json!({ "session": session, "owner": memory::called(&owner), "messages": file.messages.len() }))
}
