//! Whose a process is: its session's, and of the chat that this works for.

use crate::bus::ReplyTarget;
use crate::origin::TurnOrigin;
use crate::store::processes::{self, ProcessRow};
use crate::store::{Connection, StoreError};

/// More than a store keeps.
const ALL: u32 = 1_000;

/// Whether a process was started by this session, or for the chat that it is of: by a sub-agent, by the run of a job.
pub(super) fn is_for(connection: &Connection, row: &ProcessRow, session: &str) -> Result<bool, StoreError> {
    if row.session == session {
        return Ok(true);
    }
    let origin = TurnOrigin::parse(&row.origin);
    let chat = ReplyTarget::resolve(connection, &row.session, (&row.channel, &row.chat_id), &origin)?;
    Ok(chat.session.as_str() == session)
}

/// Those of this session, the newest first.
pub(super) fn newest_for(connection: &Connection, session: &str, limit: u32) -> Result<Vec<ProcessRow>, StoreError> {
    let mut found = Vec::new();
    for row in processes::newest(connection, ALL)? {
        if is_for(connection, &row, session)? {
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
    use crate::store::{Commit, Store};

    #[tokio::test]
    async fn what_a_sub_agent_or_a_job_runs_is_of_its_chat() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let look = |connection: &Connection| {
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
                let mut ids: Vec<_> = newest_for(connection, session, 9)?.into_iter().map(|row| row.id).collect();
                ids.sort();
                Ok(ids.join(" "))
            };
            assert_eq!((ids("webhook:in:c")?, ids("spawn:1")?), ("childs jobs own".to_owned(), "childs".to_owned()));
            Ok(())
        };
        store.write(Commit::Logged, look).await.unwrap();
    }
}
