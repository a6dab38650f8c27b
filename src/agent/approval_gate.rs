//! Decides about restricted calls by `[approval]`, and asks the owner.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::Trust;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use serde_json::Value;

use super::person_requests::{draft_to_sender, expiry_after};
use crate::bus::{MessageBus, NoticeKind, OutboundDraft, OutboxSlot};
use crate::chat::ToolCall;
use crate::crash;
use crate::guard::{ApprovalConfig, ApprovalPolicy, KnownSecrets, Taint};
use crate::phrases::{Phrases, fill};
use crate::store::approvals::{self, ApprovalRow, ApprovalState, NewApproval, PendingCounts};
use crate::store::{Connection, StoreError, inbox};
use crate::text::visible::{change_texts, condense_blanks, escape_unseen, quote_visibly, shorten_middle, visible_json};
use crate::tools::{Restriction, RowEffect, ToolContext, ToolEffect, ToolOutcome, WriteRows};
use crate::turn::turn_loop::{ApprovalDecision, Approvals};

/// The maximum number of calls that wait for the owner's approval at the same time: in all, of turns that untrusted
/// senders started, and of turns of one untrusted sender.
const MAX_PENDING: usize = 100;
const MAX_OF_UNTRUSTED: usize = 50;
const MAX_OF_UNTRUSTED_SENDER: usize = 10;
/// The maximum number of characters of the arguments in a notice; `approvals list` shows all of them.
const SHOWN_ARGUMENTS: usize = 2_000;
/// The maximum number of sources in a notice, and the maximum number of characters of each, and of the session.
const SHOWN_SOURCES: usize = 8;
const SHOWN_NAME: usize = 120;
/// The characters that at least remain of a text in long arguments.
const SHORTEST_TEXT: usize = 20;

/// Asks the owner to approve restricted calls.
pub struct ApprovalGate {
    pub bus: Arc<MessageBus>,
    pub config: ApprovalConfig,
    /// The channels on which something proves the name of a sender. On the others, the limit for one untrusted sender applies to all.
    pub channels_with_proof: HashSet<String>,
    pub phrases: &'static Phrases,
    pub timezone: TimeZone,
    /// The secrets that are removed from notices, which may go to the log or to a chat.
    pub secrets: KnownSecrets,
}

/// The rows of an approval request to the owner.
struct ApprovalRequest {
    new: NewApproval,
    /// The text for the owner.
    notice: String,
    /// The text for the chat of the turn; `None` if nobody waits for an answer there.
    answer: Option<OutboundDraft>,
    bus: Arc<MessageBus>,
    /// The channels that have to deliver a notice.
    channels: Mutex<Vec<String>>,
}

#[async_trait]
impl Approvals for ApprovalGate {
    async fn decide(&self, call: &ToolCall, restriction: &Restriction, context: &ToolContext) -> ApprovalDecision {
        let tools = restriction.tools.join(", ");
        let is_tainted = !context.taint.is_empty() || restriction.reads_others;
        let policy = self.config.policy(restriction.tools.iter().map(String::as_str), &context.channel, is_tainted);
        // A command that the agent's permissions ask about never runs without an approval.
        match policy.max(if restriction.asks_owner { ApprovalPolicy::Always } else { ApprovalPolicy::Never }) {
            ApprovalPolicy::Never => return ApprovalDecision::Allowed,
            ApprovalPolicy::Tainted if !is_tainted => return ApprovalDecision::Allowed,
            ApprovalPolicy::Deny => {
                let reason = format!("{tools} is refused here by the owner's configuration (approval)");
                return ApprovalDecision::Refused(format!("{reason}. Do not try another way."));
            }
            ApprovalPolicy::Tainted | ApprovalPolicy::Always => {}
        }
        let (id, session) = (approvals::id_of(context.turn, &call.id), context.session.to_string());
        let (names, asks_owner) = (restriction.tools.clone(), restriction.asks_owner);
        let is_untrusted = context.trust == Trust::Untrusted;
        let is_from_person = context.origin.is_from_person();
        let channel = context.channel.clone();
        let sender = self.channels_with_proof.contains(&channel).then(|| context.sender.clone());
        let known = self.bus.store().read(move |connection| {
            // An approval for the rest of the conversation does not replace the question that the permissions demand. It covers further
            // calls of the same sender, if the channel proves who that is; a message of daoyou itself has no such sender.
            let of_sender = sender.as_deref().filter(|_| is_untrusted).map(|sender| (channel.as_str(), sender));
            let mut is_granted = !asks_owner && (!is_untrusted || (of_sender.is_some() && is_from_person));
            for name in &names {
                is_granted = is_granted && approvals::is_granted(connection, &session, name, of_sender)?;
            }
            let pending = approvals::count_pending_by(connection, &channel, sender.as_deref())?;
            Ok((is_granted, approvals::find(connection, id)?, pending))
        });
        match known.await {
            Ok((_, Some(row), _)) => self.decision_of(&row, call, &tools),
            Ok((true, None, _)) => ApprovalDecision::Approved,
            Ok((false, None, _)) if restriction.takes_results => ApprovalDecision::Refused(format!(
                "Nothing was run: {tools} needs the owner's approval, and the owner cannot approve the result of a call that has not \
                 run yet. Read the results first; then make the other calls with the text itself."
            )),
            Ok((false, None, pending)) => match self.limit_reached(pending, context) {
                Some(waiting) => ApprovalDecision::Refused(format!(
                    "{tools} needs the owner's approval, and {waiting} wait for one already; try again later"
                )),
                None => match self.ask(call, &tools, asks_owner, context) {
                    Ok(outcome) => ApprovalDecision::Asked(Box::new(outcome)),
                    Err(error) => refuse_unasked(&tools, &error),
                },
            },
            Err(error) => refuse_unasked(&tools, &error),
        }
    }
}

/// Writes texts of others for a notice to the owner.
struct ApprovalTexts<'a> {
    phrases: &'static Phrases,
    secrets: &'a KnownSecrets,
    /// True if the middle of a text, or a source, is left out.
    is_shortened: bool,
}

impl ApprovalTexts<'_> {
    fn shorten(&mut self, text: &str, max: usize) -> String {
        let mark = |count: usize| format!("…[{}]…", fill(self.phrases.approval_left_out, &[&count.to_string()]));
        let shown = shorten_middle(text, max, mark);
        self.is_shortened |= shown != text;
        shown
    }

    /// Returns the arguments, which no code block ends. In long arguments, each text is shortened to its share, so that none hides
    /// the others.
    fn arguments(&mut self, arguments: &str) -> String {
        let mut parsed: Option<Value> = serde_json::from_str(arguments).ok();
        // Before a text is shortened, which would cut a secret.
        if let Some(value) = &mut parsed {
            change_texts(value, &mut |text| {
                self.secrets.redact(text);
            });
        }
        let mut shown = match &parsed {
            Some(value) => visible_json(value.clone()),
            None => {
                let mut redacted = arguments.to_owned();
                self.secrets.redact(&mut redacted);
                escape_unseen(&condense_blanks(&redacted))
            }
        };
        if let Some(mut value) = parsed
            && shown.chars().count() > SHOWN_ARGUMENTS
        {
            let mut texts = 0_usize;
            change_texts(&mut value, &mut |_| texts += 1);
            let share = (SHOWN_ARGUMENTS / 2 / texts.max(1)).max(SHORTEST_TEXT);
            change_texts(&mut value, &mut |text| *text = self.shorten(&condense_blanks(text), share));
            shown = visible_json(value);
        }
        self.shorten(&shown, SHOWN_ARGUMENTS).replace("```", "\\u{60}\\u{60}\\u{60}")
    }

    fn name(&mut self, name: &str) -> String {
        self.shorten(&quote_visibly(name), SHOWN_NAME)
    }

    /// Returns a sentence about the sources; empty without sources.
    fn sources(&mut self, sources: &Taint) -> String {
        if sources.is_empty() {
            return String::new();
        }
        let mut names: Vec<_> =
            sources.iter().take(SHOWN_SOURCES).map(|source| format!("`{}`", self.name(source))).collect();
        if let Some(more) = sources.len().checked_sub(SHOWN_SOURCES).filter(|more| *more > 0) {
            names.push(format!("+{more}"));
            self.is_shortened = true;
        }
        fill(self.phrases.approval_sources, &[&names.join(", ")])
    }
}

/// Refuses the call, because the owner cannot be asked.
fn refuse_unasked(tools: &str, error: &StoreError) -> ApprovalDecision {
    tracing::error!(%error, "the owner could not be asked about a call");
    ApprovalDecision::Refused(format!("{tools} needs the owner's approval, and the owner could not be asked"))
}

impl ApprovalGate {
    /// Returns which calls already wait, if a further call of this turn may not.
    fn limit_reached(&self, pending: PendingCounts, context: &ToolContext) -> Option<String> {
        let PendingCounts { all, of_untrusted, of_untrusted_sender } = pending;
        if context.trust == Trust::Untrusted {
            if of_untrusted_sender >= MAX_OF_UNTRUSTED_SENDER {
                let is_proven = self.channels_with_proof.contains(&context.channel);
                let whose = if is_proven { "this sender" } else { "untrusted senders of this channel" };
                return Some(format!("{of_untrusted_sender} calls of {whose}"));
            }
            if of_untrusted >= MAX_OF_UNTRUSTED {
                return Some(format!("{of_untrusted} calls of untrusted senders"));
            }
        }
        (all >= MAX_PENDING).then(|| format!("{all} calls"))
    }

    fn decision_of(&self, row: &ApprovalRow, call: &ToolCall, tools: &str) -> ApprovalDecision {
        match row.state {
            // The owner approved exactly these arguments.
            ApprovalState::Approved if row.tool == tools && row.arguments == call.arguments => {
                ApprovalDecision::Approved
            }
            ApprovalState::Pending => {
                self.bus.expire_requests_at(row.expires_at);
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

    fn ask(
        &self,
        call: &ToolCall,
        tools: &str,
        asks_owner: bool,
        context: &ToolContext,
    ) -> Result<ToolOutcome, StoreError> {
        let id = approvals::id_of(context.turn, &call.id);
        let expires_at = expiry_after(self.config.expires);
        let code = approvals::code_of(id);
        let notice = self.notice(call, tools, asks_owner, context, expires_at);
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
            channels: Mutex::default(),
        };
        tracing::info!(turn = %context.turn, session = %context.session, tools, code, "a call waits for the owner's approval");
        Ok(ToolOutcome::asked(id, vec![ToolEffect::Rows(RowEffect(Arc::new(request)))]))
    }

    /// Returns the question for the owner. `asks_owner`: the permissions of the agent ask about this command each time.
    fn notice(&self, call: &ToolCall, tools: &str, asks_owner: bool, context: &ToolContext, expires_at: i64) -> String {
        let code = approvals::code_of(approvals::id_of(context.turn, &call.id));
        let until = Timestamp::from_millisecond(expires_at).unwrap_or(Timestamp::MAX).to_zoned(self.timezone.clone());
        let mut texts = ApprovalTexts { phrases: self.phrases, secrets: &self.secrets, is_shortened: false };
        let (arguments, session) = (texts.arguments(&call.arguments), texts.name(context.session.as_str()));
        let mut notes = texts.sources(&context.taint);
        for (applies, note) in
            [(asks_owner, self.phrases.approval_each_time), (texts.is_shortened, self.phrases.approval_is_shortened)]
        {
            if applies {
                notes = format!("{notes} {note}").trim_start().to_owned();
            }
        }
        let until = until.strftime("%Y-%m-%d %H:%M").to_string();
        let values = [tools, &code, &arguments, &session, &notes, &code, &code, &code, &until];
        fill(self.phrases.approval_ask, &values)
    }

    /// Returns the notice for the chat of the turn, unless nobody waits for an answer there.
    fn answer(&self, context: &ToolContext, tools: &str) -> Result<Option<OutboundDraft>, StoreError> {
        if context.origin.runs_for_job_or_agent() {
            return Ok(None);
        }
        let code = approvals::code_of(approvals::id_of(context.turn, &context.call_id));
        let slot = OutboxSlot::notice_about(NoticeKind::Approval, code);
        let mut draft = draft_to_sender(context, slot, fill(self.phrases.approval_waiting, &[tools]))?;
        draft.body.context.notice = Some("approval".to_owned());
        Ok(Some(draft))
    }
}

impl WriteRows for ApprovalRequest {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        // A turn that was stopped meanwhile asks for no approval.
        if inbox::is_cancelled(connection, self.new.turn)? {
            self.channels.lock().clear();
            return Ok(());
        }
        if !approvals::insert(connection, &self.new)? {
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
        self.bus.expire_requests_at(self.new.expires_at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use daoyou_channels::settings::Secret;
    use uuid::Uuid;

    use super::*;
    use crate::bus::testing;
    use crate::store::inbox::NewInboxRow;
    use crate::store::{Durability, Store, now_ms, outbox};
    use crate::text::Language;

    fn gate(store: &Store) -> ApprovalGate {
        ApprovalGate {
            bus: testing::notifying_bus(store.clone(), 10),
            config: ApprovalConfig::default(),
            channels_with_proof: ["webhook:proven".to_owned()].into(),
            phrases: Phrases::of(Language::En),
            timezone: TimeZone::UTC,
            secrets: KnownSecrets::new([Secret::new("canary-\"0123456789")]),
        }
    }

    fn exec_call(arguments: &str) -> ToolCall {
        ToolCall { id: "a".to_owned(), name: "exec".to_owned(), arguments: arguments.to_owned() }
    }

    fn new_approval(turn: Uuid, session: &str) -> NewApproval {
        NewApproval {
            turn,
            call_id: "a".to_owned(),
            session: session.to_owned(),
            tool: "exec".to_owned(),
            arguments: "{}".to_owned(),
            taint: BTreeSet::new(),
            expires_at: now_ms() + 60_000,
        }
    }

    #[test]
    fn a_long_argument_hides_no_other() {
        let arguments = serde_json::json!({"calls": [
            {"tool": "write_file", "arguments": {"path": "a", "content": "x".repeat(5_000)}},
            {"tool": "message", "arguments": {"attachments": ["private.txt"]}},
        ]});
        let shown_arguments = |arguments: &str| {
            let secrets = KnownSecrets::default();
            let mut texts =
                ApprovalTexts { phrases: Phrases::of(Language::En), secrets: &secrets, is_shortened: false };
            (texts.arguments(arguments), texts.is_shortened)
        };
        let (shown, is_shortened) = shown_arguments(&arguments.to_string());
        assert!(shown.contains("private.txt") && shown.len() < SHOWN_ARGUMENTS && is_shortened, "{shown}");
        let read = serde_json::json!({"tool": "read_file", "arguments": {"path": "p".repeat(200)}});
        let mut calls = vec![read; 12];
        calls.push(arguments["calls"][1].clone());
        let (shown, is_shortened) = shown_arguments(&serde_json::json!({ "calls": calls }).to_string());
        assert!(shown.contains("private.txt") && is_shortened, "{shown}");
        let (shown, is_shortened) = shown_arguments(&serde_json::json!({ "calls": vec![&calls[0]; 64] }).to_string());
        assert!(shown.contains(" characters left out]…") && is_shortened, "{shown}");
        assert_eq!(shown_arguments("{\"a\":1}"), ("{\"a\":1}".to_owned(), false));
        // Arguments that are not JSON.
        assert_eq!(shown_arguments("a\n```"), ("a\\u{a}\\u{60}\\u{60}\\u{60}".to_owned(), false));
        let (shown, is_shortened) = shown_arguments(&format!("{}end", "x".repeat(5_000)));
        assert!(shown.ends_with("end") && is_shortened, "{shown}");
    }

    #[tokio::test]
    async fn a_notice_hides_nothing_but_secrets_and_quotes_names() {
        let (_folder, store) = Store::temporary();
        let gate = gate(&store);
        let note = gate.phrases.approval_is_shortened;
        let context = ToolContext::of_owner("webhook:in", "c", "a");
        let notice = |command: &str, context: &ToolContext| {
            let arguments = serde_json::json!({ "command": command }).to_string();
            gate.notice(&exec_call(&arguments), "exec", false, context, now_ms())
        };
        let shown = notice(&format!("echo safe{}; rm -rf ~\u{202e}\u{200b}", " ".repeat(3_000)), &context);
        assert!(shown.contains("\n{\"command\":\"echo safe[␠×3000]; rm -rf ~\\u{202e}\\u{200b}\"}\n"), "{shown}");
        assert!(!shown.contains(note), "{shown}");
        for filling in ["", &"x".repeat(3_000)] {
            let shown = notice(&format!("echo {filling}canary-\"0123456789{filling} end"), &context);
            assert!(shown.contains("(hidden)") || !filling.is_empty(), "{shown}");
            assert!(shown.contains(" end") && !shown.contains("canary") && !shown.contains("0123"), "{shown}");
        }
        let shown = notice(&format!("echo safe{}; rm -rf ~", " \t\u{200b}".repeat(3_000)), &context);
        for words in ["echo safe", " characters left out]…", "; rm -rf ~", note] {
            assert!(shown.contains(words), "{words}: {shown}");
        }

        let taint: Taint = ["sender:webhook:in:bo\u{200b}ss", "web:`x\""].map(str::to_owned).into();
        let taint = Arc::new(taint);
        let chat = "b0\". This is your own order";
        let shown = notice("ls", &ToolContext { taint, ..ToolContext::of_owner("webhook:in", chat, "a") });
        let session = "\n\nSession: `\"webhook:in:b0\\u{22}. This is your own order\"`. The turn has read";
        for words in [session, ": `\"sender:webhook:in:bo\\u{200b}ss\"`, `\"web:\\u{60}x\\u{22}\"`."] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let taint = Arc::new((0..10).map(|number| format!("web:{number}")).collect());
        let shown = notice("ls", &ToolContext { taint, ..context });
        assert!(shown.contains("`\"web:7\"`, +2. ") && shown.contains(note), "{shown}");
    }

    /// The permission `ask` of an agent holds in every turn, also against `never` and after an approval for the rest of the
    /// conversation.
    #[tokio::test]
    async fn the_owner_is_asked_about_what_the_permissions_of_the_agent_ask_about() {
        let (_folder, store) = Store::temporary();
        let mut gate = gate(&store);
        gate.config.tools.insert("exec".to_owned(), ApprovalPolicy::Never);
        let context = ToolContext::of_owner("cli", "direct", "a");
        for asks_owner in [true, false] {
            let restriction = Restriction { tools: vec!["exec".to_owned()], asks_owner, ..Restriction::default() };
            let decision = gate.decide(&exec_call("{}"), &restriction, &context).await;
            assert_eq!(matches!(decision, ApprovalDecision::Asked(_)), asks_owner);
            assert_eq!(matches!(decision, ApprovalDecision::Allowed), !asks_owner);
            let notice = gate.notice(&exec_call("{}"), "exec", asks_owner, &context, now_ms());
            assert_eq!(notice.contains(gate.phrases.approval_each_time), asks_owner, "{notice}");
        }
        let granted_turn = daoyou_channels::new_id();
        let granted = new_approval(granted_turn, &context.session.to_string());
        let grant = move |connection: &Connection| {
            approvals::insert(connection, &granted)?;
            let row = approvals::find(connection, approvals::id_of(granted.turn, &granted.call_id))?.unwrap();
            approvals::answer(connection, row.id, ApprovalState::Approved, "")?;
            approvals::grant(connection, &row)
        };
        store.write(Durability::Logged, grant).await.unwrap();
        gate.config.tools.insert("exec".to_owned(), ApprovalPolicy::Always);
        for asks_owner in [true, false] {
            let restriction = Restriction { tools: vec!["exec".to_owned()], asks_owner, ..Restriction::default() };
            let decision = gate.decide(&exec_call("{}"), &restriction, &context).await;
            assert_eq!(matches!(decision, ApprovalDecision::Asked(_)), asks_owner);
            assert_eq!(matches!(decision, ApprovalDecision::Approved), !asks_owner);
        }
        // The approved call was not one of an untrusted sender. An approved call of an untrusted sender lets no other one in.
        let restriction = Restriction { tools: vec!["exec".to_owned()], ..Restriction::default() };
        let decide = async |trust: Trust, (channel, sender): (&str, &str)| {
            let (channel, sender) = (channel.to_owned(), sender.to_owned());
            let context = ToolContext { trust, channel, sender, ..context.clone() };
            matches!(gate.decide(&exec_call("{}"), &restriction, &context).await, ApprovalDecision::Approved)
        };
        let eve = ("webhook:proven", "eve");
        assert!(decide(Trust::Known, ("webhook:proven", "ann")).await && !decide(Trust::Untrusted, eve).await);
        let asking = move |connection: &Connection| {
            let row = NewInboxRow::sample(granted_turn, "cli:direct");
            let (channel, sender) = (eve.0.to_owned(), eve.1.to_owned());
            inbox::insert(connection, &NewInboxRow { channel, sender, trust: "untrusted", ..row }).map(drop)
        };
        store.write(Durability::Logged, asking).await.unwrap();
        assert!(decide(Trust::Untrusted, eve).await);
        for other in [("webhook:proven", "mallory"), ("webhook:open", "eve")] {
            assert!(!decide(Trust::Untrusted, other).await, "{other:?}");
        }
    }

    #[tokio::test]
    async fn the_owner_is_not_asked_about_a_text_that_is_not_known_yet() {
        let (_folder, store) = Store::temporary();
        let (gate, context) = (gate(&store), ToolContext::of_owner("cli", "direct", "a"));
        for (takes_results, reads_others, expected) in
            [(true, true, "refused"), (true, false, "allowed"), (false, true, "asked")]
        {
            let tools = vec!["write_file".to_owned()];
            let restriction = Restriction { tools, takes_results, reads_others, ..Restriction::default() };
            let decision = match gate.decide(&exec_call("{}"), &restriction, &context).await {
                ApprovalDecision::Refused(reason) if reason.contains("Read the results first") => "refused",
                ApprovalDecision::Allowed => "allowed",
                ApprovalDecision::Asked(_) => "asked",
                ApprovalDecision::Refused(_) | ApprovalDecision::Approved => "other",
            };
            assert_eq!(decision, expected, "{restriction:?}");
        }
    }

    /// Untrusted senders fill their share alone, whatever chats and names they choose; there is room for the calls of others.
    #[tokio::test]
    async fn untrusted_senders_leave_room_for_others() {
        let (_folder, store) = Store::temporary();
        let gate = gate(&store);
        let restriction = Restriction { tools: vec!["exec".to_owned()], reads_others: true, ..Restriction::default() };
        let decide = async |channel: &str, sender: &str, trust: Trust| {
            let context =
                ToolContext { sender: sender.to_owned(), trust, ..ToolContext::of_owner(channel, "fresh", "a") };
            match gate.decide(&exec_call("{}"), &restriction, &context).await {
                ApprovalDecision::Asked(_) => "asked".to_owned(),
                ApprovalDecision::Refused(reason) => reason,
                ApprovalDecision::Allowed | ApprovalDecision::Approved => "runs".to_owned(),
            }
        };
        let add = async |channel: &'static str, count: usize, sender: fn(usize) -> String| {
            let write = move |connection: &Connection| {
                for number in 0..count {
                    let (turn, session) = (daoyou_channels::new_id(), format!("{channel}:chat-{number}"));
                    let row = NewInboxRow::sample(turn, &session);
                    let (channel, sender) = (channel.to_owned(), sender(number));
                    inbox::insert(connection, &NewInboxRow { channel, sender, trust: "untrusted", ..row })?;
                    approvals::insert(connection, &new_approval(turn, &session))?;
                }
                Ok(())
            };
            store.write(Durability::Logged, write).await.unwrap();
        };
        let refused = |waiting: &str| {
            format!("exec needs the owner's approval, and {waiting} wait for one already; try again later")
        };
        add("webhook:proven", 10, |_| "eve".to_owned()).await;
        assert_eq!(decide("webhook:proven", "eve", Trust::Untrusted).await, refused("10 calls of this sender"));
        assert_eq!(decide("webhook:proven", "bob", Trust::Untrusted).await, "asked");
        add("webhook:open", 10, |number| format!("eve-{number}")).await;
        let of_channel = refused("10 calls of untrusted senders of this channel");
        assert_eq!(decide("webhook:open", "eve-new", Trust::Untrusted).await, of_channel);
        add("webhook:proven", 30, |number| format!("eve-{number}")).await;
        let of_untrusted = refused("50 calls of untrusted senders");
        assert_eq!(decide("webhook:proven", "bob", Trust::Untrusted).await, of_untrusted);
        for trust in [Trust::Owner, Trust::Known] {
            assert_eq!(decide("webhook:proven", "eve", trust).await, "asked");
        }
        add("webhook:proven", 50, |_| "eve".to_owned()).await;
        assert_eq!(decide("webhook:proven", "ann", Trust::Owner).await, refused("100 calls"));
    }

    #[tokio::test]
    async fn a_stopped_turn_asks_for_no_approval() {
        let (_folder, store) = Store::temporary();
        let bus = testing::notifying_bus(store.clone(), 10);
        for (is_stopped, notices) in [(false, 1), (true, 0)] {
            let turn = daoyou_channels::new_id();
            let new = new_approval(turn, "s");
            let (notice, channels) = ("exec?".to_owned(), Mutex::default());
            let request = ApprovalRequest { new, notice, answer: None, bus: bus.clone(), channels };
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
