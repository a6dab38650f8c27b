//! Reads of a session's log what can be found of it, and by which words.

use std::collections::HashMap;

use daoyou_channels::Trust;
use uuid::Uuid;

use super::written::said;
use super::{Identities, sender_of, words as terms};
use crate::origin::TurnOrigin;
use crate::store::words::{self, NewSaid};
use crate::store::{Connection, StoreError, inbox};

/// Messages of one write: some milliseconds of the writer's time at most.
const PIECE: usize = 32;

/// Sessions of one look.
const SESSIONS: usize = 32;

/// Some messages of a session that come next.
pub(super) struct Piece {
    session: String,
    range: (i64, i64),
    messages: Vec<NewSaid>,
}

impl Piece {
    pub(super) fn put(&self, connection: &Connection) -> Result<(), StoreError> {
        match words::put_said(connection, &self.session, self.range, &self.messages) {
            Err(error) if error.is_of_index() => terms::distrust(connection),
            other => other.map(drop),
        }
    }
}

/// Pieces of several sessions go into one write as long as they are small.
pub(super) fn in_writes(pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    let mut writes: Vec<Vec<Piece>> = Vec::new();
    let mut count = 0;
    for piece in pieces {
        count += piece.messages.len();
        match writes.last_mut() {
            Some(last) if count <= PIECE => last.push(piece),
            _ => {
                count = piece.messages.len();
                writes.push(vec![piece]);
            }
        }
    }
    writes
}

/// Indexes some of what is not indexed yet; answers whether there was anything.
pub(super) fn index_here(connection: &Connection, identities: &Identities) -> Result<bool, StoreError> {
    let pieces = read_some(connection, identities, 0)?;
    pieces.iter().try_for_each(|piece| piece.put(connection))?;
    Ok(!pieces.is_empty())
}

pub(super) fn read_some(
    connection: &Connection,
    identities: &Identities,
    since: i64,
) -> Result<Vec<Piece>, StoreError> {
    let behind = words::behind(connection, since, SESSIONS)?;
    behind.into_iter().map(|(session, from, end)| read_piece(connection, identities, session, from, end)).collect()
}

fn read_piece(
    connection: &Connection,
    identities: &Identities,
    session: String,
    from: i64,
    end: i64,
) -> Result<Piece, StoreError> {
    let unread = words::unread(connection, &session, (from, end), PIECE)?;
    let to = unread.last().filter(|_| unread.len() >= PIECE).map_or(end, |last| last.seq + 1);
    let mut speakers = HashMap::new();
    let mut messages = Vec::new();
    for unread in unread {
        let Some(text) = said(&unread.body) else { continue };
        let Speaker { owner, name } = match speakers.get(&unread.turn) {
            Some(known) => known,
            None => {
                let speaker = speaker_of(connection, identities, &session, &unread.turn)?;
                speakers.entry(unread.turn.clone()).or_insert(speaker)
            }
        };
        let speaker = if unread.role == "user" { name.clone() } else { String::new() };
        let words = terms::said_words(&text, &session, owner, &speaker);
        messages.push(NewSaid { seq: unread.seq, body: unread.body, owner: owner.clone(), speaker, words });
    }
    Ok(Piece { session, range: (from, to), messages })
}

/// Who was spoken with.
struct Speaker {
    /// Empty is nobody.
    owner: String,
    /// Among others, by which name; the gateway's owner has none.
    name: String,
}

fn speaker_of(
    connection: &Connection,
    identities: &Identities,
    session: &str,
    turn: &str,
) -> Result<Speaker, StoreError> {
    let rows = match turn.parse::<Uuid>() {
        Ok(turn) => inbox::of_turn(connection, turn)?,
        Err(_) => Vec::new(),
    };
    let least = rows.iter().min_by_key(|row| Trust::parse(&row.trust).rank());
    // What is told to a session, or was imported, is of whoever the session belongs to.
    let Some(row) = least.filter(|row| TurnOrigin::parse(&row.origin).note().is_none()) else {
        let owner = words::session_owner(connection, session)?.unwrap_or_default();
        return Ok(Speaker { owner, name: String::new() });
    };
    let owner = identities.owner_of_row(row);
    let name = match (Trust::parse(&row.trust), owner.as_ref().and_then(|owner| owner.as_str().strip_prefix("name:"))) {
        (Trust::Owner, _) => String::new(),
        (_, Some(name)) => format!("{name} {}", sender_of(row)),
        (_, None) => sender_of(row),
    };
    Ok(Speaker { owner: owner.map_or(String::new(), |owner| owner.as_str().to_owned()), name })
}
