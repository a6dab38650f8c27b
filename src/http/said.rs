//! What was said: found, shown to be read, and taken over from files.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::memories::{faults_in_words, hit};
use super::views::time;
use crate::llm::ChatMessage;
use crate::memory::{self, Ask, MemoryError, Owner, Terms, Whose, session_file};
use crate::store::points::PointError;
use crate::store::{Connection, StoreError, messages, session_import};

/// The most that is found.
const HITS_LIMIT: u32 = 100;
const HITS: u32 = 10;

/// What was said, the best first: in all sessions, whosever they are, or in one.
pub fn search(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    since: Option<i64>,
    limit: Option<u32>,
    vector: Option<&[f32]>,
) -> Result<Value, MemoryError> {
    if text.trim().is_empty() {
        return Err(MemoryError::Wrong("there is nothing to look for: the query is empty".to_owned()));
    }
    let ask = Ask {
        text: text.to_owned(),
        owners: Whose::Everybodys.owners(connection)?,
        kinds: Vec::new(),
        messages: true,
        session: session.map(str::to_owned),
        since,
        until: None,
        least: 0.0,
        limit: usize::try_from(limit.unwrap_or(HITS).clamp(1, HITS_LIMIT)).unwrap_or(1),
    };
    Ok(memory::recall(connection, &ask, vector)?.iter().map(hit).collect())
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
                said.push(json!({ "at": time(row.at), "role": "user", "text": written(&content), "images": images }));
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
                    call["result"] = json!(content);
                }
            }
        }
    }
    Ok(Some(json!({ "session": key, "epoch": head.epoch, "messages": said })))
}

/// A message without what the gateway added to it.
fn written(text: &str) -> &str {
    const ADDED: [&str; 2] = ["\n\n[Runtime Context]\n", "\n\n[Memory]\n"];
    ADDED.into_iter().fold(text, |text, added| text.rsplit_once(added).map_or(text, |(written, _)| written))
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
    let owner = match owner {
        Some(owner) => memory::owner_called(owner, &terms.identities).map_err(MemoryError::Wrong)?,
        None => Owner::gateway(),
    };
    let begun = session_import::begin(connection, session, owner.as_str(), &file.messages);
    begun.map_err(|error| match error {
        PointError::Store(error) => MemoryError::Store(error),
        other => MemoryError::Wrong(other.to_string()),
    })?;
    Ok(json!({ "session": session, "owner": memory::called(&owner), "messages": file.messages.len() }))
}
