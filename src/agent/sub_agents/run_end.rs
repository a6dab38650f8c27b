//! The end of a sub-agent, which informs the asking turn in the same commit.

use daoyou_channels::settings::Span;
use daoyou_channels::text::thousands;
use daoyou_channels::{InboundMessage, OutboundContext, SessionKey, Trust, TurnSettings};
use jiff::Timestamp;
use uuid::Uuid;

use super::child::SENDER;
use crate::bus::{EndedTurn, FollowUps, InboundDraft};
use crate::origin::{SessionNote, SubAgentTurn, TurnOrigin};
use crate::phrases::{Phrases, fill};
use crate::store::inbox::{self, InboxRow};
use crate::store::usage::{self, UsageScope};
use crate::store::{Connection, StoreError, spawns};
use crate::tools::{OutputLimit, truncate_middle};

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
pub fn follow_ups_of(
    connection: &Connection,
    task: &SubAgentTurn,
    end: &EndedTurn<'_>,
    phrases: &Phrases,
) -> Result<(FollowUps, Option<AwaitingTurn>), StoreError> {
    let EndedTurn { row, reply, error, .. } = end;
    let error = *error;
    let answer = truncate_middle(reply, ANSWER, None);
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
        InboundDraft::of_note(&SessionNote { note: head, said: answer }, task.session.clone())
    } else {
        report(task, row, format!("{head}\n{answer}"))
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
    let elapsed = Span::from_secs(end.row.age().as_secs().max(1)).to_string();
    let tokens = fill(phrases.tokens, &[&thousands(used.input + used.output)]);
    let label = task.label.as_str();
    Ok(match end.error {
        None => fill(phrases.sub_agent_finished, &[label, &elapsed, &tokens]),
        Some("stopped") => fill(phrases.sub_agent_stopped, &[label, &elapsed, &tokens]),
        Some(code) => fill(phrases.sub_agent_failed, &[label, &elapsed, &tokens, code]),
    })
}

/// Returns the message for the asking session. Its reply goes to that session's chat, and it has the trust of the task.
fn report(task: &SubAgentTurn, row: &InboxRow, content: String) -> InboundDraft {
    let mut origin =
        TurnOrigin { follow_ups: TurnOrigin::parse(&row.origin).follow_ups.next(), ..*task.report.clone() };
    origin.settings.about = vec![ABOUT.to_owned()];
    let message = InboundMessage {
        channel: row.channel.clone(),
        external_id: None,
        chat_id: row.chat_id.clone(),
        sender: SENDER.to_owned(),
        trust: Trust::parse(&row.trust),
        content,
        attachments: Vec::new(),
        metadata: task.metadata.clone(),
        settings: TurnSettings::default(),
        reply: OutboundContext::default(),
        received_at: Timestamp::now(),
        session: Some(task.session.clone()),
    };
    InboundDraft::with_origin(message, origin)
}
