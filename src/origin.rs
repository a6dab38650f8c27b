//! The origin of a turn: its cause, its settings, and the context of each message that it sends. It is one typed column of the
//! inbox. Channels fill [`TurnSettings`] and [`OutboundContext`]; this module never sees the text of a sender.

use std::collections::BTreeSet;

use daoyou_channels::{OutboundContext, SessionKey, TurnSettings, email};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The origin of a turn, stored as JSON in `inbox.origin` and `processes.origin`. A person's plain message has the
/// default, `{}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnOrigin {
    #[serde(skip_serializing_if = "TurnCause::is_person")]
    pub cause: TurnCause,
    #[serde(skip_serializing_if = "FollowUpCount::is_zero")]
    pub follow_ups: FollowUpCount,
    /// The sender on whose behalf a message of daoyou itself acts; a sender of the message's channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// The sender whose entry in `owner.identities` gives the turn the trust of the owner; `None` at the owner's own
    /// terminal and page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_identity: Option<OwnerIdentity>,
    /// The sources of the text in the message, other than the owner and the sender of the message.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<String>,
    #[serde(skip_serializing_if = "TurnSettings::is_default")]
    pub settings: TurnSettings,
    #[serde(skip_serializing_if = "OutboundContext::is_default")]
    pub reply: OutboundContext,
}

/// A sender on a channel that has lists of trusted senders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerIdentity {
    pub channel: String,
    pub sender: String,
}

impl OwnerIdentity {
    /// Returns the sender as an identity; `None` on a channel whose messages of the owner need no entry in `owner.identities`.
    pub fn of(channel: &str, sender: &str) -> Option<Self> {
        let has_lists = channel == email::NAME || channel.starts_with("webhook:");
        has_lists.then(|| Self { channel: channel.to_owned(), sender: sender.to_owned() })
    }
}

/// The cause of a turn. It decides what the end of the turn does in addition to the reply, or in place of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TurnCause {
    /// A message of a person, or a follow-up message of a turn that is answered in the same way.
    #[default]
    Person,
    /// The run of a scheduled job.
    Job(JobTurn),
    /// A check of HEARTBEAT.md.
    Heartbeat,
    /// A task that another turn gave to a sub-agent.
    SubAgent(SubAgentTurn),
    /// A text for a session's history; no turn runs for it.
    Note(SessionNote),
}

/// The run of a job that starts a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTurn {
    /// The id of the job.
    pub job: String,
    /// The slot, in UTC milliseconds: with `job` it names the run.
    pub due: i64,
    /// The session of the chat that receives the output.
    pub chat: SessionKey,
    /// A person asked for this run, outside the schedule.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
}

/// The task of a sub-agent that starts a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubAgentTurn {
    /// The session of the parent, which gave the task.
    pub session: SessionKey,
    /// The turn of the parent that gave the task.
    pub turn: Uuid,
    /// A short name of the task, for people and for the report.
    pub label: String,
    /// 1 for a sub-agent of a chat.
    pub depth: u32,
    /// The parent turn waits for the end of the task; otherwise a message reports the end.
    pub waits: bool,
    /// The channel metadata of the message that the parent turn answers; the report needs it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The origin of the report.
    #[serde(default, skip_serializing_if = "TurnOrigin::is_default")]
    pub report: Box<TurnOrigin>,
}

/// An exchange that a session's history records without a turn: `note` as the user's message, `reply` as the agent's
/// answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// The source of the text, e.g. `The scheduled job "news" ran at 09:00 and sent this to the chat:`.
    pub note: String,
    /// Rows that were written before format 30 of the store have the name `said`.
    #[serde(alias = "said")]
    pub reply: String,
}

impl TurnOrigin {
    /// Reads the column of a row. An unreadable column, which this program never writes, is logged and counts as a person's
    /// message: the column grants no rights, because those come from the row's `trust`.
    pub fn parse(column: &str) -> Self {
        if column == "{}" {
            return Self::default();
        }
        serde_json::from_str(column).unwrap_or_else(|error| {
            tracing::error!(%error, "the origin of a stored message cannot be read; it is treated as a person's message");
            Self::default()
        })
    }

    /// Returns the column's JSON.
    pub fn to_column(&self) -> String {
        if self.is_default() {
            return "{}".to_owned();
        }
        serde_json::json!(self).to_string()
    }

    /// Returns true for a person's plain message without any settings.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the turn runs for a job, a heartbeat or a sub-agent's task, in a session of its own.
    pub fn runs_for_job_or_agent(&self) -> bool {
        matches!(self.cause, TurnCause::Job(_) | TurnCause::Heartbeat | TurnCause::SubAgent(_))
    }

    /// Returns true if a person wrote the message, and not daoyou for a job, a sub-agent or a background process.
    pub fn is_from_person(&self) -> bool {
        self.cause.is_person() && self.follow_ups.is_zero()
    }

    /// Returns the note if no turn answers this row.
    pub fn note(&self) -> Option<&SessionNote> {
        match &self.cause {
            TurnCause::Note(note) => Some(note),
            _ => None,
        }
    }

    /// Returns how deep the turn is below a chat: 0 in the chat itself.
    pub fn depth(&self) -> u32 {
        match &self.cause {
            TurnCause::SubAgent(task) => task.depth,
            _ => 0,
        }
    }

    /// Returns the origin of another message to the same chat that follows from this turn. It keeps the settings of the chat's
    /// turns, and drops the cause and all that describes only this message.
    #[must_use]
    pub fn for_follow_up(&self) -> Self {
        let settings = match self.cause {
            // A heartbeat's settings hold for that one check.
            TurnCause::Heartbeat => {
                TurnSettings { requested_model: self.settings.requested_model.clone(), ..TurnSettings::default() }
            }
            _ => TurnSettings {
                about: Vec::new(),
                history: None,
                sender_prompt: None,
                fresh: false,
                ..self.settings.clone()
            },
        };
        // A caller that waits for the reply to that message does not wait for this one.
        let reply = OutboundContext { is_picked_up: false, ..self.reply.clone() };
        Self { cause: TurnCause::Person, settings, reply, ..self.clone() }
    }
}

impl TurnCause {
    fn is_person(&self) -> bool {
        matches!(self, Self::Person)
    }
}

/// Most messages from daoyou itself that may follow from each other without a person's message.
const MAX_FOLLOW_UPS: u32 = 10;

/// Number of messages from daoyou itself (reports of sub-agents, ends of background processes) that led to a turn since a
/// person wrote. Its limit ends a chain of messages that would otherwise run for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FollowUpCount(u32);

impl FollowUpCount {
    /// Returns true if the turn answers a person, a job or a task directly.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Returns the count for a message that this turn causes.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Checks that the turn may start something whose end is another message.
    ///
    /// # Errors
    /// The limit is reached; the text is for the model.
    pub fn check(self) -> Result<(), String> {
        if self.0 < MAX_FOLLOW_UPS {
            return Ok(());
        }
        Err(format!(
            "Nothing was started: {MAX_FOLLOW_UPS} reports and ends of commands have followed from each other here without a message \
             from a person; tell the user how things stand, and go on when somebody writes"
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn origins_survive_the_column_and_unreadable_ones_are_a_persons() {
        let job = JobTurn { job: "a1b2c3d4".to_owned(), due: 7, chat: "cli:direct".into(), by_hand: false };
        let note = SessionNote { note: "note".to_owned(), reply: "hello".to_owned() };
        for cause in [TurnCause::Person, TurnCause::Job(job), TurnCause::Heartbeat, TurnCause::Note(note)] {
            let origin = TurnOrigin {
                cause,
                follow_ups: FollowUpCount(2),
                on_behalf_of: Some("ann".to_owned()),
                owner_identity: OwnerIdentity::of("webhook:in", "ann"),
                taint: BTreeSet::from(["web:https://example.org/".to_owned()]),
                settings: TurnSettings { model: Some("a/b".to_owned()), ..TurnSettings::default() },
                reply: OutboundContext { job: Some("news".to_owned()), ..OutboundContext::default() },
            };
            assert_eq!(TurnOrigin::parse(&origin.to_column()), origin);
        }
        assert_eq!(TurnOrigin::default().to_column(), "{}");
        for column in ["{}", r#"{"cause":{"kind":"other"}}"#, "no JSON"] {
            assert_eq!(TurnOrigin::parse(column), TurnOrigin::default(), "{column}");
        }
    }

    #[test]
    fn notes_under_earlier_names_are_read() {
        let origin = TurnOrigin::parse(r#"{"cause":{"kind":"note","note":"a job ran","said":"hello"}}"#);
        assert_eq!(origin.note().map(|note| (note.note.as_str(), note.reply.as_str())), Some(("a job ran", "hello")));
    }

    #[test]
    fn a_follow_up_keeps_what_holds_for_the_chat() {
        for (origin, expected) in [
            (json!({}), json!({})),
            (
                json!({"settings": {"about": ["Subject: x"], "fresh": true, "prompt": "Be kind.", "tools": ["exec"]}}),
                json!({"settings": {"prompt": "Be kind.", "tools": ["exec"]}}),
            ),
            (json!({"cause": {"kind": "heartbeat"}, "settings": {"prompt": "Look."}}), json!({})),
            (
                json!({"cause": {"kind": "job", "job": "j", "due": 1, "chat": "c"}, "follow_ups": 3, "on_behalf_of": "ann"}),
                json!({"follow_ups": 3, "on_behalf_of": "ann"}),
            ),
        ] {
            let origin: TurnOrigin = serde_json::from_value(origin).expect("an origin");
            assert_eq!(json!(origin.for_follow_up()), expected);
        }
    }

    #[test]
    fn a_chain_of_follow_ups_is_bounded() {
        let mut count = FollowUpCount::default();
        for _ in 0..MAX_FOLLOW_UPS {
            assert_eq!(count.check(), Ok(()));
            count = count.next();
        }
        assert!(count.check().is_err_and(|error| error.contains("without a message from a person")));
    }
}
