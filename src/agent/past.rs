//! What of the past a turn is given: the window of its session, the summary of what stands before it, and what is known of
//! whoever writes.

use std::sync::Arc;

use daoyou_channels::SessionKey;
use sha2::{Digest, Sha256};

use super::context::{self, Chosen, Window, estimate_tokens};
use super::lane::LaneRunner;
use super::progress::ContextStep;
use super::shared_view;
use super::slash::wanted_model;
use crate::bus::ReplyTarget;
use crate::chat::ChatMessage;
use crate::memory::{self, MemorySettings, Owner};
use crate::origin::TurnOrigin;
use crate::store::inbox::InboxRow;
use crate::store::messages::{self, MessageRow, Session};
use crate::store::ownership::Ownership;
use crate::store::session_memory::{self, SessionMemory};
use crate::store::turn_steps::hex;
use crate::store::{Commit, Connection, StoreError, forgetting, memories, ownership};

/// What a turn is given.
pub(super) struct Past {
    pub head: Session,
    pub messages: Vec<ChatMessage>,
    /// The seq of the first of them.
    pub from: i64,
    /// There is no room for more, or hardly any.
    pub is_tight: bool,
    pub given: Given,
    /// Whose memory may be given beside, best known first; nobody's to a stranger.
    pub owners: Vec<Owner>,
    /// How often something had been forgotten when this was read.
    pub forgets: i64,
}

/// What stands in the system prompt of what is remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Given {
    pub snapshot: Option<Snapshot>,
    /// The memory that tells what was said before the window, and its text.
    pub summary: Option<(i64, String)>,
}

/// What is known, as it stands in all prompts of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    pub hash: String,
    pub owner: String,
    /// Empty where nothing is known.
    pub text: String,
    /// It is in the store, and stands in the prompts of its epoch.
    pub is_kept: bool,
    /// It takes the place of the one before: where each turn begins anew, what is known may be new as well.
    pub is_anew: bool,
}

impl Snapshot {
    fn new(owner: &str, text: String) -> Self {
        let hash = hash_of(owner, &text);
        Self { hash, owner: owner.to_owned(), text, is_kept: false, is_anew: false }
    }

    /// Writes it into the prompts of an epoch, unless something was forgotten since it was taken: that may stand in it.
    fn keep(&self, connection: &Connection, (session, epoch): (&str, i64), forgets: i64) -> Result<(), StoreError> {
        if forgetting::count(connection)? != forgets {
            return Ok(());
        }
        if self.is_anew {
            session_memory::release_snapshot(connection, session, epoch)?;
        }
        session_memory::keep_snapshot(connection, &self.hash, &self.owner, &self.text)?;
        session_memory::set_snapshot(connection, session, epoch, &self.hash)
    }
}

impl Given {
    /// What it costs in a prompt, estimated.
    fn tokens(&self) -> usize {
        let known = self.snapshot.as_ref().map_or(0, |snapshot| estimate_tokens(&snapshot.text));
        known + self.summary.as_ref().map_or(0, |(_, text)| estimate_tokens(text))
    }

    /// The system prompt with it, and its hash.
    pub fn in_prompt(&self, system: &Arc<str>, hash: &Arc<str>) -> (Arc<str>, Arc<str>) {
        let known = self.snapshot.as_ref().map_or("", |snapshot| snapshot.text.as_str());
        let summary = self.summary.as_ref().map_or("", |(_, text)| text.as_str());
        if known.is_empty() && summary.is_empty() {
            return (system.clone(), hash.clone());
        }
        let text = context::with_memory(system, known, summary);
        let hash = hex(&Sha256::digest(text.as_bytes()));
        (text.into(), hash.into())
    }
}

impl LaneRunner {
    /// What a turn is given, the same again for one that goes on.
    pub(super) fn past(
        &self,
        session: &SessionKey,
        last: &InboxRow,
        context: Option<&ContextStep>,
    ) -> Result<Past, StoreError> {
        let key = session.to_string();
        let terms = self.memory.settings.get();
        let owner = terms.identities.owner_of_row(last);
        let is_fresh = TurnOrigin::parse(&last.origin).settings.fresh;
        let (mut past, rows) = self.bus.store().read_here(|connection| {
            let head = messages::session(connection, &key)?;
            let is_shared =
                ownership::of(connection, &key)?.is_shared || others_read(connection, last, owner.as_ref())?;
            let state = session_memory::get(connection, &key, head.epoch)?;
            let about = About { connection, key: &key, terms: &terms, owner: owner.as_ref(), is_shared };
            let given = match context {
                Some(context) => about.given_again(context)?,
                None => about.given(&state, is_fresh)?,
            };
            let memory = given.tokens() + usize::try_from(terms.config.hit_tokens).unwrap_or(usize::MAX);
            let (from, rows, is_tight) = match context {
                Some(context) => (context.from, context::choose_again(connection, &key, context)?, false),
                None if is_fresh => (head.next_seq, Vec::new(), false),
                None => self.window(connection, &key, &head, &state, (last, terms.config.enabled), memory)?,
            };
            let (owners, forgets) = (about.owners(), forgetting::count(connection)?);
            let past = Past { head, messages: Vec::new(), from, is_tight, given, owners, forgets };
            Ok((past, (rows, is_shared)))
        })?;
        let (rows, is_shared) = rows;
        past.messages = context::read_messages(&rows)?;
        if is_shared {
            shared_view::strip(&mut past.messages);
        }
        Ok(past)
    }

    /// The session's window: from what the summary does not tell on, or as much of it as fits.
    fn window(
        &self,
        connection: &Connection,
        key: &str,
        head: &Session,
        state: &SessionMemory,
        (last, is_enabled): (&InboxRow, bool),
        memory: usize,
    ) -> Result<(i64, Vec<MessageRow>, bool), StoreError> {
        let wanted = wanted_model(last, head.model.as_deref(), &self.config.model);
        let tokens = self.tokens_left(&wanted, last, memory);
        let window = Window { messages: self.config.memory_window, tokens };
        let told = if is_enabled { state.cursor - state.overlap } else { 0 };
        let first_seq = told.clamp(head.first_seq, head.next_seq);
        let rest = Session { first_seq, ..head.clone() };
        let Chosen { from, rows, is_full } = context::choose(connection, key, &rest, window)?;
        Ok((from, rows, is_full))
    }

    /// Keeps the snapshot that was just taken, for all later turns of its epoch. Nobody waits for one that holds nothing.
    pub(super) async fn keep_snapshot(&self, session: &SessionKey, past: &Past) {
        let Some(snapshot) = past.given.snapshot.clone().filter(|snapshot| !snapshot.is_kept) else { return };
        let (key, store, is_empty) = (session.to_string(), self.bus.store().clone(), snapshot.text.is_empty());
        let (epoch, forgets) = (past.head.epoch, past.forgets);
        let write = async move {
            let write = move |connection: &Connection| snapshot.keep(connection, (&key, epoch), forgets);
            match store.write(Commit::Logged, write).await {
                Ok(()) | Err(StoreError::Closed) => {}
                // The next turn takes it again, and finds the same unless something was learned meanwhile.
                Err(error) => tracing::warn!(%error, "what a prompt holds of the memory could not be kept"),
            }
        };
        if is_empty {
            tokio::spawn(write);
        } else {
            write.await;
        }
    }
}

/// Whether others than `owner` read what the turn of this message does for a chat: what it answers on an errand goes there, though
/// it runs in a session of its own.
fn others_read(connection: &Connection, last: &InboxRow, owner: Option<&Owner>) -> Result<bool, StoreError> {
    let origin = TurnOrigin::parse(&last.origin);
    if !origin.is_errand() {
        return Ok(false);
    }
    let place = (last.channel.as_str(), last.chat_id.as_str());
    let chat = ReplyTarget::resolve(connection, &last.session, place, &origin)?;
    let Ownership { owner: first, is_shared } = ownership::of(connection, chat.session.as_str())?;
    Ok(is_shared || first.is_some_and(|first| owner.is_none_or(|owner| owner.as_str() != first)))
}

/// For whom what is remembered is looked up.
struct About<'a> {
    connection: &'a Connection,
    key: &'a str,
    terms: &'a MemorySettings,
    owner: Option<&'a Owner>,
    is_shared: bool,
}

impl About<'_> {
    /// Whose private memory may be given: nobody's where others read along.
    fn private(&self) -> Option<&Owner> {
        self.owner.filter(|_| !self.is_shared)
    }

    fn owners(&self) -> Vec<Owner> {
        if self.owner.is_none() || !self.terms.config.enabled {
            return Vec::new();
        }
        self.private().cloned().into_iter().chain([Owner::everyone()]).collect()
    }

    fn given(&self, state: &SessionMemory, is_fresh: bool) -> Result<Given, StoreError> {
        if !self.terms.config.enabled {
            return Ok(Given::default());
        }
        let summary = if is_fresh { None } else { state.summary };
        let snapshot = match self.owner {
            Some(_) if is_fresh => {
                let taken = self.snapshot(None)?;
                Some(Snapshot { is_kept: state.snapshot.as_ref() == Some(&taken.hash), is_anew: true, ..taken })
            }
            Some(_) => Some(self.snapshot(state.snapshot.as_deref())?),
            None => None,
        };
        Ok(Given { snapshot, summary: self.summary(summary)? })
    }

    fn given_again(&self, context: &ContextStep) -> Result<Given, StoreError> {
        let snapshot = match &context.snapshot {
            // It may have gone with a consolidation while the turn waited.
            Some(hash) => Some(self.snapshot(Some(hash))?),
            None => None,
        };
        Ok(Given { snapshot, summary: self.summary(context.summary)? })
    }

    fn snapshot(&self, kept: Option<&str>) -> Result<Snapshot, StoreError> {
        if let Some(hash) = kept
            && let Some(snapshot) = self.kept(hash)?
        {
            return Ok(snapshot);
        }
        let MemorySettings { config, zone, .. } = self.terms;
        let tokens = usize::try_from(config.snapshot_tokens).unwrap_or(usize::MAX);
        let text = memory::prompt_snapshot(self.connection, self.private(), tokens, zone, estimate_tokens)?;
        Ok(Snapshot::new(self.whose(), text))
    }

    /// A snapshot of the store, if it is of the same owner's memory.
    fn kept(&self, hash: &str) -> Result<Option<Snapshot>, StoreError> {
        let text = session_memory::snapshot(self.connection, hash)?;
        let owner = self.whose();
        let snapshot = text.filter(|text| hash_of(owner, text) == hash);
        Ok(snapshot.map(|text| Snapshot { is_kept: true, ..Snapshot::new(owner, text) }))
    }

    fn whose(&self) -> &str {
        self.private().map_or("everyone", Owner::as_str)
    }

    fn summary(&self, id: Option<i64>) -> Result<Option<(i64, String)>, StoreError> {
        let Some(id) = id else { return Ok(None) };
        let row = memories::get(self.connection, id)?;
        if row.is_none() {
            tracing::debug!(session = self.key, id, "the summary of a conversation was forgotten");
        }
        Ok(row.map(|row| (id, row.text)))
    }
}

fn hash_of(owner: &str, text: &str) -> String {
    hex(&Sha256::digest(format!("{owner}\n{text}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use daoyou_channels::{InboundMessage, Trust};

    use super::*;
    use crate::bus::InboundDraft;
    use crate::origin::{JobTurn, SubAgentTurn, TurnCause};
    use crate::store::{Store, inbox};

    #[tokio::test]
    async fn what_was_forgotten_since_it_was_read_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let look = |connection: &Connection| {
            let mut kept = Vec::new();
            for is_forgotten in [false, true] {
                let snapshot = Snapshot::new("owner", format!("- my cat is Momo {is_forgotten}"));
                let read = forgetting::count(connection)?;
                if is_forgotten {
                    forgetting::note(connection)?;
                }
                let epoch = i64::from(is_forgotten);
                snapshot.keep(connection, ("s", epoch), read)?;
                let named = session_memory::get(connection, "s", epoch)?.snapshot.is_some();
                kept.push((session_memory::snapshot(connection, &snapshot.hash)?.is_some(), named));
            }
            Ok(kept)
        };
        assert_eq!(store.write(Commit::Logged, look).await.unwrap(), [(true, true), (false, false)]);
    }

    #[tokio::test]
    async fn who_reads_along_with_a_turn_on_an_errand() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let look = |connection: &Connection| {
            let turn = uuid::Uuid::now_v7();
            for (session, owners) in [
                ("webhook:in:group", &["sender:webhook:in:ann", "sender:webhook:in:bob"][..]),
                ("webhook:in:ann", &["sender:webhook:in:ann"]),
                ("webhook:in:bob", &["sender:webhook:in:bob"]),
                ("cli:direct", &["owner"]),
            ] {
                messages::append(connection, session, turn, [("user", "{}".to_owned())].into_iter())?;
                for owner in owners {
                    ownership::write_there(connection, session, owner)?;
                }
            }
            let row = |session: &str, cause: TurnCause, trust: Trust| -> Result<InboxRow, StoreError> {
                let (channel, chat) = session.rsplit_once(':').unwrap_or(("cli", "direct"));
                let mut message = InboundMessage::text(channel, chat, "ann", trust, "x");
                if cause != TurnCause::Person {
                    message.session = Some("cron:j".into());
                }
                let draft = InboundDraft::with_origin(message, TurnOrigin { cause, ..TurnOrigin::default() });
                draft.insert(connection)?;
                Ok(inbox::find(connection, draft.id)?.unwrap())
            };
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
            let (ann, owner) = (Owner::sender("webhook:in", "ann"), Owner::gateway());
            for (what, row, owner, expected) in [
                ("no errand", row("webhook:in:group", TurnCause::Person, Trust::Known)?, &ann, false),
                ("a job in a group", run, &ann, true),
                ("its sub-agent", row("webhook:in:group", child, Trust::Known)?, &ann, true),
                ("a job of her own", row("webhook:in:ann", job("webhook:in:ann"), Trust::Known)?, &ann, false),
                ("the owner's job for Bob", row("webhook:in:bob", job("webhook:in:bob"), Trust::Owner)?, &owner, true),
                ("the owner's own", row("cli:direct", job("cli:direct"), Trust::Owner)?, &owner, false),
                ("a heartbeat at home", row("cli:direct", TurnCause::Heartbeat, Trust::Owner)?, &owner, false),
                ("one in a group", row("webhook:in:group", TurnCause::Heartbeat, Trust::Owner)?, &owner, true),
                ("where nobody wrote", row("webhook:in:new", job("webhook:in:new"), Trust::Owner)?, &owner, false),
            ] {
                assert_eq!(others_read(connection, &row, Some(owner))?, expected, "{what}");
            }
            Ok(())
        };
        store.write(Commit::Logged, look).await.unwrap();
    }
}
