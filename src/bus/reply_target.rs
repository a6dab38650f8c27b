//! Resolves the chat for the output of a turn that has no chat of its own.

use daoyou_channels::SessionKey;

use crate::origin::{TurnCause, TurnOrigin};
use crate::store::inbox::{self, InboxRow};
use crate::store::{Connection, StoreError, ownership};

/// The deepest nesting of sub-agents that the resolution follows.
const DEPTH: usize = 8;
/// The maximum number of conversations of one chat that receive a note, if each sender has their own conversation.
const CONVERSATIONS: u32 = 3;

/// The chat that a turn works for.
#[derive(Clone, Debug)]
pub struct ReplyTarget {
    pub session: SessionKey,
    pub channel: String,
    pub chat_id: String,
    /// The message whose turn works in this chat; `None` is the given message.
    pub message: Option<InboxRow>,
}

impl ReplyTarget {
    /// Returns the chat of a turn in `session` that answers a message of `(channel, chat_id)` with this origin. For a
    /// sub-agent, it is the chat of the turn that gave the task.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn resolve(
        connection: &Connection,
        session: &str,
        (channel, chat_id): (&str, &str),
        origin: &TurnOrigin,
    ) -> Result<Self, StoreError> {
        let text = str::to_owned;
        let mut target =
            Self { session: session.into(), channel: text(channel), chat_id: text(chat_id), message: None };
        let mut origin = origin.clone();
        for _ in 0..DEPTH {
            match origin.cause {
                TurnCause::Person | TurnCause::Note(_) => break,
                TurnCause::Job(job) => {
                    target.session = job.chat;
                    break;
                }
                TurnCause::Heartbeat => {
                    target.session = conversations(connection, &target.channel, &target.chat_id)?.remove(0);
                    break;
                }
                TurnCause::SubAgent(task) => {
                    target.session = task.session;
                    // The inbox never deletes rows, but a repaired store may lack some.
                    let Some(row) = inbox::of_turn(connection, task.turn)?.pop() else { break };
                    target.session = SessionKey::from(row.session.as_str());
                    (target.channel, target.chat_id) = (row.channel.clone(), row.chat_id.clone());
                    origin = TurnOrigin::parse(&row.origin);
                    target.message = Some(row);
                }
            }
        }
        Ok(target)
    }
}

/// Returns the conversations of people in a chat, the most recent first: the chat's own, or some of its senders' conversations if
/// each sender has one. Never empty.
///
/// # Errors
/// The store cannot be read.
pub fn conversations(connection: &Connection, channel: &str, chat_id: &str) -> Result<Vec<SessionKey>, StoreError> {
    let own = SessionKey::of_chat(channel, chat_id);
    if ownership::of_session(connection, own.as_str())?.owner.is_some() {
        return Ok(vec![own]);
    }
    let found = ownership::sessions_of_senders(connection, channel, chat_id, CONVERSATIONS)?;
    Ok(if found.is_empty() { vec![own] } else { found.into_iter().map(SessionKey::from).collect() })
}

#[cfg(test)]
mod tests {
    use daoyou_channels::{InboundMessage, Trust};
    use uuid::Uuid;

    use super::*;
    use crate::bus::InboundDraft;
    use crate::origin::{JobTurn, SessionNote, SubAgentTurn};
    use crate::store::{Durability, Store, messages};

    /// Inserts a row into a session, with this cause.
    fn row(connection: &Connection, session: &str, cause: TurnCause) -> Result<(Uuid, TurnOrigin), StoreError> {
        let mut message = InboundMessage::text("webhook:in", "group", "ann", Trust::Known, "x");
        message.session = Some(SessionKey::from(session));
        let draft = InboundDraft::with_origin(message, TurnOrigin { cause, ..TurnOrigin::default() });
        draft.insert(connection)?;
        Ok((draft.id, draft.origin))
    }

    fn sub_agent(session: &str, turn: Uuid) -> TurnCause {
        TurnCause::SubAgent(SubAgentTurn {
            session: session.into(),
            turn,
            label: String::new(),
            depth: 1,
            waits: true,
            metadata: serde_json::Map::new(),
            report: Box::default(),
        })
    }

    #[tokio::test]
    async fn each_cause_resolves_to_its_chat() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let job = TurnCause::Job(JobTurn { job: "j".into(), due: 1, chat: "mail:7".into(), by_hand: false });
            let (asked, plain) = row(connection, "webhook:in:group", TurnCause::Person)?;
            let (child, in_child) = row(connection, "spawn:1", sub_agent("webhook:in:group", asked))?;
            let (_, in_grandchild) = row(connection, "spawn:2", sub_agent("spawn:1", child))?;
            let (run, in_job) = row(connection, "cron:j", job)?;
            let (_, in_jobs_child) = row(connection, "spawn:3", sub_agent("cron:j", run))?;
            let (_, in_orphan) = row(connection, "spawn:4", sub_agent("webhook:in:gone", Uuid::nil()))?;
            let (_, in_heartbeat) = row(connection, "heartbeat", TurnCause::Heartbeat)?;
            for (session, origin, expected, message) in [
                ("webhook:in:group", plain, "webhook:in:group", None),
                ("spawn:1", in_child, "webhook:in:group", Some(asked)),
                ("spawn:2", in_grandchild, "webhook:in:group", Some(asked)),
                ("cron:j", in_job, "mail:7", None),
                ("spawn:3", in_jobs_child, "mail:7", Some(run)),
                ("spawn:4", in_orphan, "webhook:in:gone", None),
                ("heartbeat", in_heartbeat, "webhook:in:group", None),
            ] {
                let chat = ReplyTarget::resolve(connection, session, ("webhook:in", "group"), &origin)?;
                assert_eq!((chat.session.as_str(), chat.message.map(|row| row.id)), (expected, message), "{session}");
            }
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }

    #[tokio::test]
    async fn a_chat_without_a_session_of_its_own_resolves_to_its_senders_sessions() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let target = |connection: &Connection| -> Result<String, StoreError> {
                let found = conversations(connection, "webhook:in", "group")?;
                Ok(found.iter().map(SessionKey::as_str).collect::<Vec<_>>().join(" "))
            };
            assert_eq!(target(connection)?, "webhook:in:group");
            for (chat, session) in [
                ("group", "webhook:in:group:ann"),
                ("group:x", "webhook:in:group:x"),
                ("group", "webhook:in:group:bob"),
                ("groups", "webhook:in:groups"),
            ] {
                let mut message = InboundMessage::text("webhook:in", chat, "ann", Trust::Known, "x");
                message.session = Some(SessionKey::from(session));
                let draft = InboundDraft::new(message);
                draft.insert(connection)?;
                messages::append(connection, session, draft.id, [("user", "{}".to_owned())].into_iter())?;
            }
            // A session note belongs to no channel and does not affect the result.
            let note = SessionNote { note: "n".to_owned(), reply: "s".to_owned() };
            let note = InboundDraft::of_note(&note, "webhook:in:group:ann".into());
            note.insert(connection)?;
            messages::append(connection, "webhook:in:group:ann", note.id, [("user", "{}".to_owned())].into_iter())?;
            connection.execute("UPDATE sessions SET updated_at = 1 WHERE session LIKE '%:ann'", [])?;
            assert_eq!(target(connection)?, "webhook:in:group:bob webhook:in:group:ann");
            messages::append(connection, "webhook:in:group", Uuid::nil(), [("user", "{}".to_owned())].into_iter())?;
            ownership::record_writer(connection, "webhook:in:group", "owner")?;
            assert_eq!(target(connection)?, "webhook:in:group", "people talk there");
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
