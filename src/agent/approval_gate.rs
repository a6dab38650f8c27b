//! Decides about restricted calls by `[approval]`, and asks the owner.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use serde_json::Value;

use crate::bus::{MessageBus, NoticeKind, OutboundBody, OutboundDraft, OutboxSlot};
use crate::chat::ToolCall;
use crate::crash;
use crate::guard::{ApprovalConfig, ApprovalPolicy};
use crate::phrases::{Phrases, fill};
use crate::store::approvals::{self, ApprovalRow, ApprovalState, NewApproval};
use crate::store::{Connection, StoreError, inbox, now_ms};
use crate::text::truncate;
use crate::tools::{Restriction, RowEffect, ToolContext, ToolEffect, ToolOutcome, WriteRows};
use crate::turn::traits::{ApprovalDecision, Approvals};

/// The most calls that wait for the owner's approval at the same time.
const MAX_PENDING: usize = 100;
/// The most characters of the arguments, and of the sources, in a notice; `approvals list` shows all of them.
const SHOWN_ARGUMENTS: usize = 2_000;
const SHOWN_SOURCES: usize = 500;
/// The characters that at least remain of a text in long arguments.
const SHORTEST_TEXT: usize = 20;

/// Asks the owner to approve restricted calls.
pub struct ApprovalGate {
    pub bus: Arc<MessageBus>,
    pub config: ApprovalConfig,
    pub phrases: &'static Phrases,
    pub timezone: TimeZone,
}

/// The rows of an approval request to the owner.
struct ApprovalRequest {
    new: NewApproval,
    /// The text for the owner.
    notice: String,
    /// The text for the chat of the turn; `None` if nobody waits for an answer there.
    answer: Option<OutboundDraft>,
    bus: Arc<MessageBus>,
    expires: Duration,
    /// The channels that have to deliver a notice.
    channels: Mutex<Vec<String>>,
}

#[async_trait]
impl Approvals for ApprovalGate {
    async fn decide(&self, call: &ToolCall, restriction: &Restriction, context: &ToolContext) -> ApprovalDecision {
        let tools = restriction.tools.join(", ");
        let is_tainted = !context.taint.is_empty() || restriction.reads_others;
        match self.config.policy(restriction.tools.iter().map(String::as_str), &context.channel, is_tainted) {
            ApprovalPolicy::Never => return ApprovalDecision::Allowed,
            ApprovalPolicy::Tainted if !is_tainted => return ApprovalDecision::Allowed,
            ApprovalPolicy::Deny => {
                let reason = format!("{tools} is refused here by the owner's configuration (approval)");
                return ApprovalDecision::Refused(format!("{reason}. Do not try another way."));
            }
            ApprovalPolicy::Tainted | ApprovalPolicy::Always => {}
        }
        let (id, session) = (approvals::id_of(context.turn, &call.id), context.session.to_string());
        let names = restriction.tools.clone();
        let known = self.bus.store().read(move |connection| {
            let mut is_granted = true;
            for name in &names {
                is_granted = is_granted && approvals::is_granted(connection, &session, name)?;
            }
            Ok((is_granted, approvals::find(connection, id)?, approvals::count_pending(connection)?))
        });
        match known.await {
            Ok((_, Some(row), _)) => self.decision_of(&row, call, &tools),
            Ok((true, None, _)) => ApprovalDecision::Approved,
            Ok((false, None, pending)) if pending >= MAX_PENDING => ApprovalDecision::Refused(format!(
                "{tools} needs the owner's approval, and {pending} calls wait for one already; try again later"
            )),
            Ok((false, None, _)) => match self.ask(call, &tools, context) {
                Ok(outcome) => ApprovalDecision::Asked(Box::new(outcome)),
                Err(error) => refuse_unasked(&tools, &error),
            },
            Err(error) => refuse_unasked(&tools, &error),
        }
    }
}

/// Returns the arguments for a notice. In long arguments, each text is cut to its share, so that none hides the others. A note says
/// if the end is missing nevertheless.
fn shown_arguments(arguments: &str, phrases: &Phrases) -> String {
    if arguments.len() <= SHOWN_ARGUMENTS {
        return arguments.to_owned();
    }
    let shown = serde_json::from_str(arguments).map(|mut arguments: Value| {
        let mut texts = Vec::new();
        collect_texts(&mut arguments, &mut texts);
        let share = (SHOWN_ARGUMENTS / 2 / texts.len().max(1)).max(SHORTEST_TEXT);
        texts.into_iter().for_each(|text| *text = truncate(text, share));
        arguments.to_string()
    });
    let shown = shown.unwrap_or_else(|_| arguments.to_owned());
    if shown.len() <= SHOWN_ARGUMENTS {
        return shown;
    }
    format!("{}\n[{}]", truncate(&shown, SHOWN_ARGUMENTS), phrases.approval_arguments_cut)
}

fn collect_texts<'a>(value: &'a mut Value, texts: &mut Vec<&'a mut String>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(values) => values.iter_mut().for_each(|value| collect_texts(value, texts)),
        Value::Object(fields) => fields.values_mut().for_each(|value| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Refuses the call, because the owner cannot be asked.
fn refuse_unasked(tools: &str, error: &StoreError) -> ApprovalDecision {
    tracing::error!(%error, "the owner could not be asked about a call");
    ApprovalDecision::Refused(format!("{tools} needs the owner's approval, and the owner could not be asked"))
}

impl ApprovalGate {
    fn decision_of(&self, row: &ApprovalRow, call: &ToolCall, tools: &str) -> ApprovalDecision {
        match row.state {
            // The owner approved exactly these arguments.
            ApprovalState::Approved if row.tool == tools && row.arguments == call.arguments => {
                ApprovalDecision::Approved
            }
            ApprovalState::Pending => {
                let left = Duration::from_millis(u64::try_from(row.expires_at - now_ms()).unwrap_or(0));
                self.bus.expire_requests_after(left);
                ApprovalDecision::Asked(Box::new(ToolOutcome::asked(row.id, Vec::new())))
            }
            ApprovalState::Denied if row.reason.is_empty() => {
                ApprovalDecision::Refused(format!("The owner denied {tools}. Do not try another way."))
            }
            ApprovalState::Denied => ApprovalDecision::Refused(format!(
                "The owner denied {tools}: {}. Do not try another way.",
                row.reason.trim_end_matches('.')
            )),
            ApprovalState::Expired => ApprovalDecision::Refused(format!(
                "{tools} needed the owner's approval, and none came within {}. Do not try another way.",
                self.config.expires
            )),
            ApprovalState::Approved | ApprovalState::Cancelled => {
                ApprovalDecision::Refused(format!("{tools} was not approved with these arguments"))
            }
        }
    }

    fn ask(&self, call: &ToolCall, tools: &str, context: &ToolContext) -> Result<ToolOutcome, StoreError> {
        let id = approvals::id_of(context.turn, &call.id);
        let expires_at = now_ms().saturating_add(i64::try_from(self.config.expires.0.as_millis()).unwrap_or(i64::MAX));
        let sources = context.taint.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let read = if sources.is_empty() { String::new() } else { fill(self.phrases.approval_sources, &[&sources]) };
        let until = Timestamp::from_millisecond(expires_at).unwrap_or(Timestamp::MAX).to_zoned(self.timezone.clone());
        let (code, arguments) = (approvals::code_of(id), shown_arguments(&call.arguments, self.phrases));
        let notice = fill(
            self.phrases.approval_ask,
            &[
                tools,
                &code,
                &arguments,
                context.session.as_str(),
                &truncate(&read, SHOWN_SOURCES),
                &code,
                &code,
                &code,
                &until.strftime("%Y-%m-%d %H:%M").to_string(),
            ],
        );
        let new = NewApproval {
            turn: context.turn,
            call_id: call.id.clone(),
            session: context.session.to_string(),
            tool: tools.to_owned(),
            arguments: call.arguments.clone(),
            taint: context.taint.as_ref().clone(),
            expires_at,
        };
        let request = ApprovalRequest {
            new,
            notice,
            answer: self.answer(context, tools)?,
            bus: self.bus.clone(),
            expires: self.config.expires.0,
            channels: Mutex::default(),
        };
        tracing::info!(turn = %context.turn, session = %context.session, tools, code, "a call waits for the owner's approval");
        Ok(ToolOutcome::asked(id, vec![ToolEffect::Rows(RowEffect(Arc::new(request)))]))
    }

    /// Returns the notice for the chat of the turn, unless nobody waits for an answer there.
    fn answer(&self, context: &ToolContext, tools: &str) -> Result<Option<OutboundDraft>, StoreError> {
        if context.origin.runs_for_job_or_agent() {
            return Ok(None);
        }
        Ok(Some(OutboundDraft {
            turn: context.turn,
            slot: OutboxSlot::notice_about(
                NoticeKind::Approval,
                approvals::code_of(approvals::id_of(context.turn, &context.call_id)),
            ),
            channel: context.channel.clone(),
            chat_id: context.chat_id.clone(),
            body: OutboundBody {
                metadata: serde_json::from_str(&context.metadata)?,
                context: context.origin.reply.clone().notice("approval"),
                ..OutboundBody::new(fill(self.phrases.approval_waiting, &[tools]), context.session.clone())
            },
        }))
    }
}

impl fmt::Debug for ApprovalRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalRequest").field("new", &self.new).finish_non_exhaustive()
    }
}

impl WriteRows for ApprovalRequest {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        // A turn that was stopped meanwhile asks for no approval.
        if inbox::is_cancelled(connection, self.new.turn)? || !approvals::insert(connection, &self.new)? {
            return Ok(());
        }
        let code = approvals::code_of(approvals::id_of(self.new.turn, &self.new.call_id));
        let slot = OutboxSlot::notice_about(NoticeKind::OwnerApproval, code);
        let mut channels = Vec::new();
        channels.extend(self.bus.write_owner_notice(connection, self.new.turn, slot, self.notice.clone())?);
        if let Some(answer) = &self.answer
            && !self.bus.is_owner_chat(&answer.channel, &answer.chat_id)
        {
            answer.insert(connection)?;
            channels.push(answer.channel.clone());
        }
        // Replaces the channels of a failed commit.
        *self.channels.lock() = channels;
        Ok(())
    }

    fn committed(&self) {
        crash::point("approval_asked", &self.new.tool);
        let channels = std::mem::take(&mut *self.channels.lock());
        channels.iter().for_each(|channel| self.bus.outbound_written(channel, 1));
        self.bus.expire_requests_after(self.expires);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bus::testing;
    use crate::store::inbox::NewInboxRow;
    use crate::store::{Durability, Store, outbox};
    use crate::text::Language;

    #[test]
    fn a_long_argument_hides_no_other() {
        let arguments = serde_json::json!({"calls": [
            {"tool": "write_file", "arguments": {"path": "a", "content": "x".repeat(5_000)}},
            {"tool": "message", "arguments": {"attachments": ["private.txt"]}},
        ]});
        let shown_arguments = |arguments: &str| shown_arguments(arguments, Phrases::of(Language::En));
        let shown = shown_arguments(&arguments.to_string());
        assert!(shown.contains("private.txt") && shown.len() < SHOWN_ARGUMENTS, "{shown}");
        let read = serde_json::json!({"tool": "read_file", "arguments": {"path": "p".repeat(200)}});
        let mut calls = vec![read; 12];
        calls.push(arguments["calls"][1].clone());
        let shown = shown_arguments(&serde_json::json!({ "calls": calls }).to_string());
        assert!(shown.contains("private.txt"), "{shown}");
        let shown = shown_arguments(&serde_json::json!({ "calls": vec![calls[0].clone(); 64] }).to_string());
        assert!(shown.ends_with("the end is not shown: see `daoyou approvals list`]"), "{shown}");
        assert_eq!(shown_arguments("{\"a\":1}"), "{\"a\":1}");
    }

    #[tokio::test]
    async fn a_stopped_turn_asks_for_no_approval() {
        let (_folder, store) = Store::temporary();
        let bus = testing::notifying_bus(store.clone(), 10);
        for (is_stopped, notices) in [(false, 1), (true, 0)] {
            let turn = daoyou_channels::new_id();
            let text = str::to_owned;
            let new = NewApproval {
                turn,
                call_id: text("a"),
                session: text("s"),
                tool: text("exec"),
                arguments: text("{}"),
                taint: BTreeSet::new(),
                expires_at: now_ms() + 60_000,
            };
            let (notice, expires, channels) = (text("exec?"), Duration::from_secs(60), Mutex::default());
            let request = ApprovalRequest { new, notice, answer: None, bus: bus.clone(), expires, channels };
            let write = move |connection: &Connection| {
                inbox::insert(connection, &NewInboxRow::sample(turn, "s"))?;
                if is_stopped {
                    inbox::cancel_turn(connection, turn)?;
                }
                request.write(connection)?;
                Ok((outbox::of_turn(connection, turn)?.len(), approvals::count_pending(connection)?))
            };
            assert_eq!(store.write(Durability::Logged, write).await.unwrap(), (notices, 1), "{is_stopped}");
        }
    }
}
