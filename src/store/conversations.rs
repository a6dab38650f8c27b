//! The conversations of a chat, where each of its senders has his own.

use rusqlite::{Connection, params};

use super::StoreError;

/// Sessions used last that are looked through.
const LOOKED_AT: u32 = 20;

/// The sessions `CHANNEL:CHAT:…` that somebody of this chat wrote in last, the one used last first.
pub fn of_senders(
    connection: &Connection,
    channel: &str,
    chat_id: &str,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    // The key of another chat may begin like this one's; what a session was only told came on no channel.
    let sql = "SELECT session FROM (
                   SELECT session, updated_at FROM sessions WHERE session > ?1 || ':' AND session < ?1 || ';'
                   ORDER BY updated_at DESC LIMIT ?5) s
               WHERE (SELECT i.channel = ?2 AND i.chat_id = ?3 FROM messages m CROSS JOIN inbox i ON i.turn = m.turn
                      WHERE m.session = s.session AND i.channel <> 'daoyou' ORDER BY m.seq DESC LIMIT 1)
               ORDER BY updated_at DESC LIMIT ?4";
    let chat = format!("{channel}:{chat_id}");
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![chat, channel, chat_id, limit, LOOKED_AT], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
