//! The chat behind a turn that nobody asked for in one: there belongs what it brings about.

use daoyou_channels::{SessionKey, TurnSettings};
use serde_json::{Map, Value};

use super::Errand;
use crate::store::inbox::{self, InboxRow};
use crate::store::{Connection, StoreError, conversations as own_conversations, ownership};

/// Turns on errands of turns on errands that are looked through.
const DEPTH: usize = 8;
/// Conversations of one chat that are told of something, where each sender has his own.
const CONVERSATIONS: u32 = 3;

/// Where a turn works for.
#[derive(Clone, Debug)]
pub struct ChatBehind {
    pub session: SessionKey,
    pub channel: String,
    pub chat_id: String,
    /// The message whose turn works there; absent is the one that was asked about.
    pub message: Option<InboxRow>,
}

impl ChatBehind {
    /// The chat behind a turn in `session` that answers a message of `(channel, chat_id)` with this metadata, written as JSON:
    /// for a sub-agent the one that its maker works for.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn of(
        connection: &Connection,
        session: &str,
        (channel, chat_id): (&str, &str),
        metadata: &str,
    ) -> Result<Self, StoreError> {
        let text = str::to_owned;
        let mut chat = Self { session: session.into(), channel: text(channel), chat_id: text(chat_id), message: None };
        for _ in 0..DEPTH {
            let metadata = chat.message.as_ref().map_or(metadata, |row| &row.metadata);
            match Errand::of(metadata) {
                None => break,
                Some(Errand::Job(errand)) => {
                    chat.session = errand.chat;
                    break;
                }
                Some(Errand::Heartbeat) => {
                    chat.session = conversations(connection, &chat.channel, &chat.chat_id)?.remove(0);
                    break;
                }
                Some(Errand::SubAgent(errand)) => {
                    chat.session = errand.session;
                    // Rows of the inbox stay; a store that was mended may lack some.
                    let Some(row) = inbox::of_turn(connection, errand.turn)?.pop() else { break };
                    chat.session = SessionKey::from(row.session.as_str());
                    (chat.channel, chat.chat_id) = (row.channel.clone(), row.chat_id.clone());
                    chat.message = Some(row);
                }
            }
        }
        Ok(chat)
    }
}

/// The conversations of a chat in which people talk, the one used last first: the chat's own, or where each sender has his own,
/// some of those. Never none.
///
/// # Errors
/// The store cannot be read.
pub fn conversations(connection: &Connection, channel: &str, chat_id: &str) -> Result<Vec<SessionKey>, StoreError> {
    let own = SessionKey::of_chat(channel, chat_id);
    if ownership::of(connection, own.as_str())?.owner.is_some() {
        return Ok(vec![own]);
    }
    let found = own_conversations::of_senders(connection, channel, chat_id, CONVERSATIONS)?;
    Ok(if found.is_empty() { vec![own] } else { found.into_iter().map(SessionKey::from).collect() })
}

/// What of a message's metadata another message to its chat needs, that follows from its turn: what its channel put there, and
/// what holds for its turns; not what was said about that one message, nor on whose errand it ran.
pub fn metadata_for_answer(metadata: &str) -> Map<String, Value> {
    let settings = match Errand::of(metadata) {
        // They are of that look alone.
        Some(Errand::Heartbeat) => TurnSettings::default(),
        _ => TurnSettings { about: Vec::new(), fresh: false, ..TurnSettings::of(metadata) },
    };
    let Ok(Value::Object(mut metadata)) = serde_json::from_str(metadata) else { return Map::new() };
    for key in ["errand", "told", "turn"] {
        metadata.remove(key);
    }
    settings.put(&mut metadata);
    metadata
}

#[cfg(test)]
mod tests {
    use daoyou_channels::{InboundMessage, Trust};
    use uuid::Uuid;

    use super::*;
    use crate::bus::Told;
    use crate::bus::{InboundDraft, JobErrand, SubAgentErrand};
    use crate::store::{Commit, Store, messages};

    /// A row of a session, with an errand.
    fn row(connection: &Connection, session: &str, errand: Option<&Errand>) -> Result<(Uuid, String), StoreError> {
        let mut message = InboundMessage::text("webhook:in", "group", "ann", Trust::Known, "x");
        message.session = Some(SessionKey::from(session));
        if let Some(errand) = errand {
            errand.put(&mut message.metadata);
        }
        let metadata = Value::Object(message.metadata.clone()).to_string();
        let draft = InboundDraft::new(message);
        draft.insert(connection)?;
        Ok((draft.id, metadata))
    }

    fn sub_agent(session: &str, turn: Uuid) -> Errand {
        Errand::SubAgent(SubAgentErrand {
            session: session.into(),
            turn,
            label: String::new(),
            depth: 1,
            waits: true,
            metadata: Map::new(),
        })
    }

    #[tokio::test]
    async fn behind_each_errand_stands_a_chat() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let look = |connection: &Connection| {
            let job = Errand::Job(JobErrand { job: "j".into(), due: 1, chat: "mail:7".into(), by_hand: false });
            let (asked, plain) = row(connection, "webhook:in:group", None)?;
            let (child, in_child) = row(connection, "spawn:1", Some(&sub_agent("webhook:in:group", asked)))?;
            let (_, in_grandchild) = row(connection, "spawn:2", Some(&sub_agent("spawn:1", child)))?;
            let (run, in_job) = row(connection, "cron:j", Some(&job))?;
            let (_, in_jobs_child) = row(connection, "spawn:3", Some(&sub_agent("cron:j", run)))?;
            let (_, in_orphan) = row(connection, "spawn:4", Some(&sub_agent("webhook:in:gone", Uuid::nil())))?;
            let (_, in_heartbeat) = row(connection, "heartbeat", Some(&Errand::Heartbeat))?;
            for (session, metadata, expected, message) in [
                ("webhook:in:group", plain, "webhook:in:group", None),
                ("spawn:1", in_child, "webhook:in:group", Some(asked)),
                ("spawn:2", in_grandchild, "webhook:in:group", Some(asked)),
                ("cron:j", in_job, "mail:7", None),
                ("spawn:3", in_jobs_child, "mail:7", Some(run)),
                ("spawn:4", in_orphan, "webhook:in:gone", None),
                ("heartbeat", in_heartbeat, "webhook:in:group", None),
            ] {
                let chat = ChatBehind::of(connection, session, ("webhook:in", "group"), &metadata)?;
                assert_eq!((chat.session.as_str(), chat.message.map(|row| row.id)), (expected, message), "{session}");
            }
            Ok(())
        };
        store.write(Commit::Logged, look).await.unwrap();
    }

    #[tokio::test]
    async fn where_each_sender_has_his_own_conversation_those_are_the_chats() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let look = |connection: &Connection| {
            let told = |connection: &Connection| -> Result<String, StoreError> {
                let found = conversations(connection, "webhook:in", "group")?;
                Ok(found.iter().map(SessionKey::as_str).collect::<Vec<_>>().join(" "))
            };
            assert_eq!(told(connection)?, "webhook:in:group");
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
            // What it was only told is of no channel, and changes nothing.
            let note = Told { note: "n".to_owned(), said: "s".to_owned() }.draft("webhook:in:group:ann".into());
            note.insert(connection)?;
            messages::append(connection, "webhook:in:group:ann", note.id, [("user", "{}".to_owned())].into_iter())?;
            connection.execute("UPDATE sessions SET updated_at = 1 WHERE session LIKE '%:ann'", [])?;
            assert_eq!(told(connection)?, "webhook:in:group:bob webhook:in:group:ann");
            messages::append(connection, "webhook:in:group", Uuid::nil(), [("user", "{}".to_owned())].into_iter())?;
            ownership::write_there(connection, "webhook:in:group", "owner")?;
            assert_eq!(told(connection)?, "webhook:in:group", "people talk there");
            Ok(())
        };
        store.write(Commit::Logged, look).await.unwrap();
    }

    #[test]
    fn the_answer_gets_the_channels_metadata_and_no_errand() {
        for (metadata, expected) in [
            ("{}", "{}"),
            ("no JSON", "{}"),
            (
                r#"{"thread":"<1@x>","errand":{"kind":"heartbeat"},"told":{"note":"a","said":"b"},"turn":{"prompt":"Look."}}"#,
                r#"{"thread":"<1@x>"}"#,
            ),
            (
                r#"{"turn":{"about":["Subject: x"],"fresh":true,"prompt":"Be kind.","tools":["exec"]}}"#,
                r#"{"turn":{"prompt":"Be kind.","tools":["exec"]}}"#,
            ),
        ] {
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(Value::Object(metadata_for_answer(metadata)), expected, "{metadata}");
        }
    }
}
