//! A sub-agent: the rows with which it begins, which contain its task, and its end, which informs the asking turn in the same commit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use daoyou_channels::settings::HumanDuration;
use daoyou_channels::text::thousands;
use daoyou_channels::{InboundMessage, SessionKey, Trust, TurnBounds, TurnSettings};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::agent::config::SpawnConfig;
use crate::bus::{EndedTurn, FollowUps, InboundDraft, MessageBus, metadata_of};
use crate::crash;
use crate::origin::{SessionNote, SubAgentTurn, TurnCause, TurnOrigin};
use crate::phrases::{Phrases, fill};
use crate::store::inbox::{self, InboxRow};
use crate::store::spawns::{self, NewSpawn};
use crate::store::usage::{self, UsageScope};
use crate::store::{Connection, StoreError};
use crate::tools::{OutputLimit, ToolContext, WriteRows, truncate_middle};
use crate::turn::context::private_memory;

/// The sender of messages to sub-agents.
const SENDER: &str = "subagent";

/// A task for a sub-agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SubAgentTask {
    pub task: String,
    pub label: String,
    /// The canonical name of its agent; `None` is the agent of the asking turn.
    pub agent: Option<String>,
    pub model: Option<String>,
    /// The names of its tools; `None` means all tools of the asking turn.
    pub tools: Option<Vec<String>>,
    pub waits: bool,
}

/// Returns the id of the sub-agent of a call. The id is the same each time the call runs, and has the form and the time of the
/// turn's id.
pub(super) fn id_of(turn: Uuid, call_id: &str) -> Uuid {
    let named = Uuid::new_v5(&turn, format!("spawn:{call_id}").as_bytes());
    let mut bytes = *turn.as_bytes();
    bytes[6..].copy_from_slice(&named.as_bytes()[6..]);
    bytes[6] = 0x70 | (bytes[6] & 0x0f);
    Uuid::from_bytes(bytes)
}

/// The rows of a sub-agent, which the asking turn commits.
pub(super) struct NewSubAgent {
    spawn: NewSpawn,
    draft: InboundDraft,
    bus: Arc<MessageBus>,
    is_written: AtomicBool,
    _slot: ChildSlot,
}

impl NewSubAgent {
    pub fn new(
        task: SubAgentTask,
        context: &ToolContext,
        config: &SpawnConfig,
        bus: Arc<MessageBus>,
        slot: ChildSlot,
    ) -> Self {
        let ToolContext { session, turn, call_id, .. } = context;
        let SubAgentTask { task, label, agent, model, tools, waits } = task;
        let (id, depth) = (id_of(*turn, call_id), context.origin.depth() + 1);
        let asking = context.origin.settings.clone();
        let about = format!(
            "You are the sub-agent {label:?}: another agent, in session {session}, gave you this task. Nobody else reads it, and \
             nobody can answer questions. Your last answer is all that this agent gets, so put everything it needs there."
        );
        // A model of the asking turn does not apply to another agent.
        let model = model.or(asking.model.filter(|_| agent.is_none()));
        let mut settings = TurnSettings {
            model,
            about: vec![about],
            // A turn with limited tools must not get other tools through a sub-agent.
            tools: tools.or(asking.tools),
            bounds: Some(bounds(config, asking.bounds)),
            is_read_by_others: asking.is_read_by_others,
            ..TurnSettings::default()
        };
        context.agent.delegate(agent.as_deref(), &mut settings);
        let cause = TurnCause::SubAgent(SubAgentTurn {
            session: session.clone(),
            turn: *turn,
            label: label.clone(),
            depth,
            waits,
            metadata: metadata_of(&context.metadata),
            report: Box::new(context.origin.for_follow_up()),
        });
        let origin = TurnOrigin {
            cause,
            settings,
            follow_ups: context.origin.follow_ups,
            taint: context.taint.as_ref().clone(),
            // The sub-agent uses the memory of the person who started it, and adds to that memory.
            on_behalf_of: (context.trust == Trust::Known).then(|| context.sender.clone()),
            owner_identity: context.origin.owner_identity.clone(),
            ..TurnOrigin::default()
        };
        let ToolContext { channel, chat_id, trust, .. } = context;
        let mut message = InboundMessage::text(channel, chat_id, SENDER, *trust, task);
        message.session = Some(spawns::session_of(id).into());
        Self {
            spawn: NewSpawn { id, session: session.to_string(), turn: *turn, label, depth, waits },
            draft: InboundDraft { id, message, origin },
            bus,
            is_written: AtomicBool::new(false),
            _slot: slot,
        }
    }
}

impl WriteRows for NewSubAgent {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        // A turn that was stopped meanwhile starts no sub-agent.
        if inbox::is_cancelled(connection, self.spawn.turn)? {
            self.is_written.store(false, Ordering::Relaxed);
            return Ok(());
        }
        if spawns::insert(connection, &self.spawn)? && self.draft.insert(connection)? {
            self.is_written.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn committed(&self) {
        crash::point("spawn_committed", &self.spawn.label);
        if self.is_written.swap(false, Ordering::Relaxed) {
            let NewSpawn { id, session, label, depth, .. } = &self.spawn;
            tracing::info!(turn = %id, %session, label, depth, "a sub-agent begins");
            self.bus.inbound_written(self.draft.message.session_key(), 1);
        }
    }
}

/// Returns the smaller of the configured limits and the limits of the asking turn.
fn bounds(config: &SpawnConfig, asking: Option<TurnBounds>) -> TurnBounds {
    let own = TurnBounds {
        iterations: config.max_iterations,
        tokens: config.max_tokens,
        timeout_ms: u64::try_from(config.timeout.0.as_millis()).unwrap_or(u64::MAX),
    };
    match asking {
        None => own,
        Some(asking) => TurnBounds {
            iterations: own.iterations.min(asking.iterations),
            tokens: own.tokens.min(asking.tokens),
            timeout_ms: own.timeout_ms.min(asking.timeout_ms),
        },
    }
}

/// The sub-agents of each session that are about to be written, because parallel calls of one plan may start several.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildSlots(Arc<Mutex<HashMap<SessionKey, HashSet<Uuid>>>>);

/// The slot of one counted sub-agent.
#[derive(Debug)]
pub(super) struct ChildSlot {
    slots: ChildSlots,
    session: SessionKey,
    id: Uuid,
}

impl ChildSlots {
    /// Takes a slot for the sub-agent `id` in addition to the `unfinished` ones, if one is free. A sub-agent that has just been written
    /// counts once, although it may still have its slot.
    pub fn take(&self, session: &SessionKey, unfinished: &[Uuid], id: Uuid, most: usize) -> Option<ChildSlot> {
        let mut taken = self.0.lock();
        let of_session = taken.entry(session.clone()).or_default();
        let is_free = of_session.iter().chain(unfinished).collect::<HashSet<_>>().len() < most;
        if is_free {
            of_session.insert(id);
        } else if of_session.is_empty() {
            taken.remove(session);
        }
        is_free.then(|| ChildSlot { slots: self.clone(), session: session.clone(), id })
    }
}

impl Drop for ChildSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.0.lock();
        if let Some(of_session) = taken.get_mut(&self.session) {
            of_session.remove(&self.id);
            if of_session.is_empty() {
                taken.remove(&self.session);
            }
        }
    }
}

/// The limit of an answer that goes to the asking turn.
pub(super) const ANSWER: OutputLimit = OutputLimit { chars: 11_000, lines: 600 };

const ABOUT: &str = "The words above are the report of a sub-agent that you started in this conversation; none of them are the \
user's. Tell the user what matters of it.";

/// A turn that waits for a sub-agent, which has just ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitingTurn {
    pub turn: Uuid,
    pub session: SessionKey,
}

/// Returns the follow-ups of a sub-agent's end. Nothing is delivered to the chat: a turn that waits for the end resumes with the
/// answer; otherwise the asking session gets a message.
///
/// # Errors
/// The end of the sub-agent cannot be written, or the turn that gave the task cannot be read.
pub fn follow_ups_of(
    connection: &Connection,
    task: &SubAgentTurn,
    end: &EndedTurn<'_>,
    phrases: &Phrases,
) -> Result<(FollowUps, Option<AwaitingTurn>), StoreError> {
    let EndedTurn { row, reply, error, .. } = end;
    let error = *error;
    let mut answer = truncate_middle(reply, ANSWER, None);
    if end.has_read_memory {
        answer.push_str("\n\n");
        answer.push_str(private_memory::HAS_READ_MEMORY);
    }
    let is_first = spawns::end(connection, row.id, error, &answer)?;
    let asking = inbox::of_turn(connection, task.turn)?;
    if task.waits && is_first && asking.iter().any(|row| row.is_open() && !row.cancel) {
        return Ok((FollowUps::default(), Some(AwaitingTurn { turn: task.turn, session: task.session.clone() })));
    }
    let head = head(connection, task, end, phrases)?;
    let is_stopped = error == Some("stopped");
    // The asking turn ran for a job or a sub-agent and has ended, so the report only becomes a note.
    let ran_errand = asking.iter().any(|row| TurnOrigin::parse(&row.origin).runs_for_job_or_agent());
    let draft = if is_stopped || ran_errand {
        InboundDraft::of_note(&SessionNote { note: head, reply: answer }, task.session.clone())
    } else {
        report(connection, task, row, format!("{head}\n{answer}"))?
    };
    Ok((FollowUps { messages: vec![draft], ..FollowUps::default() }, None))
}

/// Describes the sub-agent that ended, its outcome, and its usage.
fn head(
    connection: &Connection,
    task: &SubAgentTurn,
    end: &EndedTurn<'_>,
    phrases: &Phrases,
) -> Result<String, StoreError> {
    let used = usage::total(connection, UsageScope::Turn(end.turn))?.tokens;
    let elapsed = HumanDuration::from_secs(end.row.age().as_secs().max(1)).to_string();
    let tokens = fill(phrases.tokens, &[&thousands(used.input + used.output)]);
    let label = task.label.as_str();
    Ok(match end.error {
        None => fill(phrases.sub_agent_finished, &[label, &elapsed, &tokens]),
        Some("stopped") => fill(phrases.sub_agent_stopped, &[label, &elapsed, &tokens]),
        Some(code) => fill(phrases.sub_agent_failed, &[label, &elapsed, &tokens, code]),
    })
}

/// Returns the message for the asking session. Its reply goes to that session's chat, and it has the trust of the task.
fn report(
    connection: &Connection,
    task: &SubAgentTurn,
    row: &InboxRow,
    content: String,
) -> Result<InboundDraft, StoreError> {
    let mut origin =
        TurnOrigin { follow_ups: TurnOrigin::parse(&row.origin).follow_ups.next(), ..*task.report.clone() };
    origin.settings.about = vec![ABOUT.to_owned()];
    let trust = Trust::parse(&row.trust);
    let mut message = InboundMessage::text(&row.channel, &row.chat_id, SENDER, trust, content);
    (message.metadata, message.session) = (task.metadata.clone(), Some(task.session.clone()));
    InboundDraft::with_origin(message, origin).following(connection, task.turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sub_agents_id_follows_from_its_call_and_keeps_the_turns_time() {
        let turn = Uuid::parse_str("019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b").unwrap();
        let id = id_of(turn, "call_1");
        assert_eq!((id, id.get_version_num()), (id_of(turn, "call_1"), 7));
        assert_eq!(id.as_bytes()[..6], turn.as_bytes()[..6]);
        assert!(id != turn && id != id_of(turn, "call_2") && id != id_of(id, "call_1"));
    }

    #[test]
    fn child_slots_are_bounded_and_released() {
        let (slots, session) = (ChildSlots::default(), SessionKey::from("cli:direct"));
        let [a, b, c, d] = [1, 2, 3, 4].map(Uuid::from_u128);
        let one = slots.take(&session, &[a], b, 3);
        let two = slots.take(&session, &[a], c, 3);
        assert!(one.is_some() && two.is_some() && slots.take(&session, &[a], d, 3).is_none());
        assert!(slots.take(&session, &[b, c], d, 3).is_some(), "written, and not yet released");
        assert!(slots.take(&"cli:other".into(), &[a, b], c, 3).is_some());
        drop(one);
        assert!(slots.take(&session, &[a], d, 3).is_some());
        drop(two);
        assert!(slots.0.lock().is_empty());
    }
}
