//! Which sessions may see a process: the session that started it, and the session of the chat that it works for.

use crate::bus::ReplyTarget;
use crate::origin::TurnOrigin;
use crate::store::processes::{self, ProcessRow};
use crate::store::{Connection, StoreError};

/// A limit above the number of rows that the store keeps.
const ALL: u32 = 1_000;

/// Returns true if the process was started by this session, or for its chat by a sub-agent or a job's run.
pub(super) fn belongs_to(connection: &Connection, row: &ProcessRow, session: &str) -> Result<bool, StoreError> {
    if row.session == session {
        return Ok(true);
    }
    let origin = TurnOrigin::parse(&row.origin);
    let chat = ReplyTarget::resolve(connection, &row.session, (&row.channel, &row.chat_id), &origin)?;
    Ok(chat.session.as_str() == session)
}

/// Returns the processes of this session, newest first.
pub(super) fn newest_of_session(
    connection: &Connection,
    session: &str,
    limit: u32,
) -> Result<Vec<ProcessRow>, StoreError> {
    let mut found = Vec::new();
    for row in processes::newest(connection, ALL)? {
        if belongs_to(connection, &row, session)? {
            found.push(row);
        }
    }
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use daoyou_channels::{InboundMessage, Trust};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::bus::InboundDraft;
    use crate::store::processes::NewProcess;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn processes_of_sub_agents_and_jobs_belong_to_their_chat() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let work = |connection: &Connection| {
            let asked = InboundDraft::new(InboundMessage::text("webhook:in", "c", "ann", Trust::Known, "x"));
            asked.insert(connection)?;
            let origin = |cause: serde_json::Value| json!({ "cause": cause }).to_string();
            let of_job = json!({"kind": "job", "job": "j", "due": 1, "chat": "webhook:in:c"});
            let (kind, turn) = ("sub_agent", asked.id);
            let of_child =
                json!({"kind": kind, "session": "webhook:in:c", "turn": turn, "label": "", "depth": 1, "waits": true});
            for (id, session, origin) in [
                ("own", "webhook:in:c", "{}".to_owned()),
                ("jobs", "cron:j", origin(of_job)),
                ("childs", "spawn:1", origin(of_child)),
                ("other", "webhook:in:d", "{}".to_owned()),
            ] {
                let text = str::to_owned;
                let process = NewProcess {
                    id: text(id),
                    turn: Uuid::now_v7(),
                    session: text(session),
                    channel: text("webhook:in"),
                    chat_id: text("c"),
                    trust: "known",
                    metadata: text("{}"),
                    origin,
                    label: None,
                    command: text("sleep 1"),
                    detached: false,
                };
                processes::insert(connection, &process, 9)?;
            }
            let ids = |session: &str| -> Result<String, StoreError> {
                let mut ids: Vec<_> =
                    newest_of_session(connection, session, 9)?.into_iter().map(|row| row.id).collect();
                ids.sort();
                Ok(ids.join(" "))
            };
            assert_eq!((ids("webhook:in:c")?, ids("spawn:1")?), ("childs jobs own".to_owned(), "childs".to_owned()));
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
