//! The people who read the answer of a turn.

use super::{Identities, MemoryOwner};
use crate::bus::ReplyTarget;
use crate::origin::TurnOrigin;
use crate::store::messages::Ownership;
use crate::store::{Connection, StoreError, ownership};

/// A turn as far as its readers depend on it.
pub struct AnsweredTurn<'a> {
    pub session: &'a str,
    /// Others have written in the session.
    pub is_shared: bool,
    /// The channel of the message.
    pub channel: &'a str,
    /// The chat of the message.
    pub chat_id: &'a str,
    pub origin: &'a TurnOrigin,
}

impl AnsweredTurn<'_> {
    /// Returns true if people other than `person` read the answer, so that it must not show private memories: the channel sends it to
    /// others too, others have written in the session, or the holder of a chat token reads it. A turn of a job or a sub-agent runs in its
    /// own session, but its answer goes to a chat.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn is_read_by_others(
        &self,
        connection: &Connection,
        person: Option<&MemoryOwner>,
        identities: &Identities,
    ) -> Result<bool, StoreError> {
        let is_sent_to_others = self.origin.settings.is_read_by_others;
        if is_sent_to_others || self.is_shared || identities.is_read_by_token(self.session, person) {
            return Ok(true);
        }
        if !self.origin.runs_for_job_or_agent() {
            return Ok(false);
        }
        let chat = ReplyTarget::resolve(connection, self.session, (self.channel, self.chat_id), self.origin)?;
        let Ownership { owner, is_shared } = ownership::of_session(connection, chat.session.as_str())?;
        let is_shared = is_shared || identities.is_read_by_token(chat.session.as_str(), person);
        Ok(is_shared || owner.is_some_and(|owner| person.is_none_or(|person| person.as_str() != owner)))
    }
}

#[cfg(test)]
mod tests {
    use daoyou_channels::{InboundMessage, Trust, TurnSettings};

    use super::*;
    use crate::bus::InboundDraft;
    use crate::origin::{JobTurn, SubAgentTurn, TurnCause};
    use crate::store::inbox::{self, InboxRow};
    use crate::store::{Durability, Store, messages};

    #[tokio::test]
    async fn other_readers_of_a_turn_are_detected() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let turn = uuid::Uuid::now_v7();
            for (session, owners) in [
                ("webhook:in:group", &["sender:webhook:in:ann", "sender:webhook:in:bob"][..]),
                ("webhook:in:ann", &["sender:webhook:in:ann"]),
                ("webhook:in:bob", &["sender:webhook:in:bob"]),
                ("cli:direct", &["owner"]),
            ] {
                messages::append(connection, session, turn, [("user", "{}".to_owned())].into_iter())?;
                for owner in owners {
                    ownership::record_writer(connection, session, owner)?;
                }
            }
            let row_of = |session: &str, origin: TurnOrigin, trust: Trust| -> Result<InboxRow, StoreError> {
                let (channel, chat) = session.rsplit_once(':').unwrap_or(("cli", "direct"));
                let mut message = InboundMessage::text(channel, chat, "ann", trust, "x");
                if origin.cause != TurnCause::Person {
                    message.session = Some("cron:j".into());
                }
                let draft = InboundDraft::with_origin(message, origin);
                draft.insert(connection)?;
                Ok(inbox::find(connection, draft.id)?.unwrap())
            };
            let row = |session: &str, cause: TurnCause, trust: Trust| {
                row_of(session, TurnOrigin { cause, ..TurnOrigin::default() }, trust)
            };
            let settings = TurnSettings { is_read_by_others: true, ..TurnSettings::default() };
            let copied = TurnOrigin { settings, ..TurnOrigin::default() };
            let job =
                |chat: &str| TurnCause::Job(JobTurn { job: "j".into(), due: 1, chat: chat.into(), by_hand: false });
            let run = row("webhook:in:group", job("webhook:in:group"), Trust::Known)?;
            let child = TurnCause::SubAgent(SubAgentTurn {
                session: "cron:j".into(),
                turn: run.turn,
                label: String::new(),
                depth: 1,
                waits: true,
                metadata: serde_json::Map::new(),
                report: Box::default(),
            });
            let (ann, owner) = (MemoryOwner::sender("webhook:in", "ann"), MemoryOwner::gateway());
            for (what, row, owner, expected) in [
                ("a group", row("webhook:in:group", TurnCause::Person, Trust::Known)?, &ann, true),
                ("a copied reply", row_of("webhook:in:ann", copied, Trust::Known)?, &ann, true),
                ("her own chat", row("webhook:in:ann", TurnCause::Person, Trust::Known)?, &ann, false),
                ("a job in a group", run, &ann, true),
                ("its sub-agent", row("webhook:in:group", child, Trust::Known)?, &ann, true),
                ("a job of her own", row("webhook:in:ann", job("webhook:in:ann"), Trust::Known)?, &ann, false),
                ("the owner's job for Bob", row("webhook:in:bob", job("webhook:in:bob"), Trust::Owner)?, &owner, true),
                ("the owner's own", row("cli:direct", job("cli:direct"), Trust::Owner)?, &owner, false),
                ("his job for a token's chat", row("page:bob.1", job("page:bob.1"), Trust::Owner)?, &owner, true),
                ("a heartbeat at home", row("cli:direct", TurnCause::Heartbeat, Trust::Owner)?, &owner, false),
                ("one in a group", row("webhook:in:group", TurnCause::Heartbeat, Trust::Owner)?, &owner, true),
                ("where nobody wrote", row("webhook:in:new", job("webhook:in:new"), Trust::Owner)?, &owner, false),
            ] {
                let origin = &TurnOrigin::parse(&row.origin);
                let is_shared = ownership::of_session(connection, &row.session)?.is_shared;
                let (session, channel, chat_id) = (&*row.session, &*row.channel, &*row.chat_id);
                let turn = AnsweredTurn { session, is_shared, channel, chat_id, origin };
                let is_read = turn.is_read_by_others(connection, Some(owner), &Identities::default())?;
                assert_eq!(is_read, expected, "{what}");
            }
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
