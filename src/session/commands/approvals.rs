//! `/approve` and `/deny`.

use daoyou_channels::Trust;

use super::slash_command::{CommandContext, CommandReply};
use crate::bus::InboundSignal;
use crate::phrases::fill;
use crate::store::approvals::{self, ApprovalRow, ApprovalState};
use crate::store::inbox::InboxRow;
use crate::store::{Connection, Durability, StoreError};

/// The maximum number of open approvals that a reply lists.
const LISTED: u32 = 20;
/// The argument that approves the tool for the rest of the conversation as well.
const FOR_SESSION: &str = "session";

/// The outcome of the owner's answer to an approval request.
enum AnswerOutcome {
    Unknown,
    /// The request was answered before.
    Over(ApprovalState),
    /// This conversation may not answer the request.
    Elsewhere,
    Done(Box<ApprovalRow>),
}

/// Runs `/approve ID`, `/approve ID session` or `/deny ID [reason]`; `row` is the message with the command.
pub(super) async fn answer(
    context: &CommandContext,
    argument: &str,
    row: &InboxRow,
    is_approved: bool,
) -> Result<CommandReply, StoreError> {
    let phrases = context.phrases;
    if Trust::parse(&row.trust) != Trust::Owner {
        return Ok(phrases.approval_owner_only.to_owned().into());
    }
    let (code, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
    let rest = rest.trim();
    let for_session = is_approved && rest.eq_ignore_ascii_case(FOR_SESSION);
    if code.is_empty() || (is_approved && !rest.is_empty() && !for_session) {
        return Ok(usage(context).await?.into());
    }
    let (state, reason) =
        if is_approved { (ApprovalState::Approved, String::new()) } else { (ApprovalState::Denied, rest.to_owned()) };
    // The terminal belongs to the owner, and so does the chat where the owner is asked.
    let bus = context.bus.get();
    let is_own_chat =
        row.channel == "cli" || bus.as_ref().is_some_and(|bus| bus.is_owner_chat(&row.channel, &row.chat_id));
    let (wanted, session) = (code.to_owned(), row.session.clone());
    let write = move |connection: &Connection| {
        let Some(known) = approvals::find_code(connection, &wanted)? else { return Ok(AnswerOutcome::Unknown) };
        if known.state != ApprovalState::Pending {
            return Ok(AnswerOutcome::Over(known.state));
        }
        if known.session == session && !known.taint.is_empty() && !is_own_chat {
            return Ok(AnswerOutcome::Elsewhere);
        }
        approvals::answer(connection, known.id, state, &reason)?;
        if for_session {
            approvals::grant(connection, &known)?;
        }
        Ok(AnswerOutcome::Done(Box::new(known)))
    };
    let known = match context.store.write(Durability::Synced, write).await? {
        AnswerOutcome::Unknown => {
            return Ok(CommandReply::failed(fill(phrases.approval_unknown, &[code]), "no_such_approval"));
        }
        AnswerOutcome::Over(state) => {
            return Ok(CommandReply::failed(fill(phrases.approval_over, &[code, state.as_str()]), "approval_over"));
        }
        AnswerOutcome::Elsewhere => return Ok(phrases.approval_elsewhere.to_owned().into()),
        AnswerOutcome::Done(known) => known,
    };
    if let Some(bus) = bus {
        bus.signal(InboundSignal::Resume(known.turn, known.session.as_str().into()));
    }
    let template = match (is_approved, for_session) {
        (true, false) => phrases.approval_given,
        (true, true) => phrases.approval_given_for_session,
        (false, _) => phrases.approval_denied,
    };
    Ok(fill(template, &[&known.tool, &known.code]).into())
}

/// Returns the usage of the command, and the waiting requests.
async fn usage(context: &CommandContext) -> Result<String, StoreError> {
    let waiting = context.store.read(|connection| approvals::pending(connection, LISTED)).await?;
    let names: Vec<_> = waiting.iter().map(|row| format!("`{}` ({})", row.code, row.tool)).collect();
    let listed = if names.is_empty() { "–".to_owned() } else { names.join(", ") };
    Ok(fill(context.phrases.approval_usage, &[&listed]))
}
