//! The end of a sub-agent: who asked for it is told, in the commit of that end.

use daoyou_channels::settings::Span;
use daoyou_channels::text::thousands;
use daoyou_channels::{InboundMessage, SessionKey, Trust, TurnSettings};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::child::SENDER;
use crate::agent::ending::since;
use crate::agent::phrases::{Phrases, fill};
use crate::bus::{Errand, InboundDraft, Links, RunEnd, SubAgentErrand, Told, WhatFollows};
use crate::store::inbox::{self, InboxRow, State};
use crate::store::usage::{self, Scope};
use crate::store::{Connection, StoreError, spawns};
use crate::tools::{OutputLimit, cut};

/// How much of an answer the asking turn gets.
pub(super) const ANSWER: OutputLimit = OutputLimit { chars: 12_000, lines: 600 };

const ABOUT: &str = "The words above are the report of a sub-agent that you started in this conversation; none of them are the \
user's. Tell the user what matters of it.";

/// A turn that waits for a sub-agent which has just ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaiting {
    pub turn: Uuid,
    pub session: SessionKey,
}

/// What follows from the end of a sub-agent. Nothing is delivered to the chat: a turn that waits for the end goes on with
/// it, and without one it comes as a message to the session that asked.
pub fn ended(
    connection: &Connection,
    errand: &SubAgentErrand,
    end: &RunEnd<'_>,
    phrases: &Phrases,
) -> Result<(WhatFollows, Option<Awaiting>), StoreError> {
    let RunEnd { row, reply, error, .. } = *end;
    let answer = cut(reply, ANSWER, None);
    let is_first = spawns::end(connection, row.id, error, &answer)?;
    let asking = inbox::of_turn(connection, errand.turn)?;
    if errand.waits && is_first && asking.iter().any(can_go_on) {
        return Ok((WhatFollows::default(), Some(Awaiting { turn: errand.turn, session: errand.session.clone() })));
    }
    let head = head(connection, errand, end, phrases)?;
    let is_stopped = error == Some("stopped");
    // The end of such a turn was all that anybody waited for: what comes later is noted, and answered by nobody.
    let ran_errand = asking.iter().any(|row| Errand::of(&row.metadata).is_some());
    let draft = if is_stopped || ran_errand {
        Told { note: head, said: answer }.draft(errand.session.clone())
    } else {
        report(errand, row, format!("{head}\n{answer}"))
    };
    Ok((WhatFollows { messages: vec![draft], ..WhatFollows::default() }, None))
}

fn can_go_on(row: &InboxRow) -> bool {
    matches!(row.state, State::Queued | State::Running | State::Waiting) && !row.cancel
}

/// Who it was, how it ended, and what it took.
fn head(
    connection: &Connection,
    errand: &SubAgentErrand,
    end: &RunEnd<'_>,
    phrases: &Phrases,
) -> Result<String, StoreError> {
    let used = usage::spent(connection, Scope::Turn(end.turn))?.tokens;
    let took = Span::from_secs(since(end.row).as_secs().max(1)).to_string();
    let tokens = fill(phrases.tokens, &[&thousands(used.input + used.output)]);
    let label = errand.label.as_str();
    Ok(match end.error {
        None => fill(phrases.sub_agent_finished, &[label, &took, &tokens]),
        Some("stopped") => fill(phrases.sub_agent_stopped, &[label, &took, &tokens]),
        Some(code) => fill(phrases.sub_agent_failed, &[label, &took, &tokens, code]),
    })
}

/// The message that the asking session gets. It is answered in its chat, as far trusted as the task was.
fn report(errand: &SubAgentErrand, row: &InboxRow, content: String) -> InboundDraft {
    let mut metadata = errand.metadata.clone();
    let kept = TurnSettings::of(&Value::Object(metadata.clone()).to_string());
    TurnSettings { about: vec![ABOUT.to_owned()], ..kept }.put(&mut metadata);
    Links::of(&row.metadata).one_more().put(&mut metadata);
    InboundDraft::new(InboundMessage {
        channel: row.channel.clone(),
        external_id: None,
        chat_id: row.chat_id.clone(),
        sender: SENDER.to_owned(),
        trust: Trust::parse(&row.trust),
        content,
        attachments: Vec::new(),
        metadata,
        received_at: Timestamp::now(),
        session: Some(errand.session.clone()),
    })
}
