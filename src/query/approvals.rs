//! Calls that wait for the owner's approval, and the owner's answers.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::queue::{AfterCommit, AppliedChange};
use super::rows::{LIST_LIMIT, timestamp};
use crate::store::approvals::{self, ApprovalRow, ApprovalState};
use crate::store::{Connection, StoreError};
use crate::text::visible::{quote_visibly, visible_json};

/// An answer of the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApprovalAnswer {
    /// The call runs once, with exactly its arguments. With `for_session`, further calls of the tool in that conversation run
    /// without approval.
    Approve {
        for_session: bool,
    },
    Deny {
        reason: String,
    },
}

/// Lists the pending requests, the oldest first.
pub(super) fn list(connection: &Connection) -> Result<Value, StoreError> {
    Ok(approvals::pending(connection, LIST_LIMIT)?.iter().map(view).collect())
}

/// Answers a pending request; `None` if there is none with this id.
pub(super) fn answer(
    connection: &Connection,
    code: &str,
    answer: &ApprovalAnswer,
) -> Result<Option<AppliedChange>, StoreError> {
    let Some(row) = approvals::find_code(connection, code)? else { return Ok(None) };
    let (state, reason) = match answer {
        ApprovalAnswer::Approve { .. } => (ApprovalState::Approved, ""),
        ApprovalAnswer::Deny { reason } => (ApprovalState::Denied, reason.as_str()),
    };
    if !approvals::answer(connection, row.id, state, reason)? {
        return Ok(None);
    }
    if *answer == (ApprovalAnswer::Approve { for_session: true }) {
        approvals::grant(connection, &row)?;
    }
    let mut answered = view(&row);
    answered["state"] = json!(state.as_str());
    Ok(Some(AppliedChange { answer: answered, after: AfterCommit::Resume { turn: row.turn, session: row.session } }))
}

/// Returns a request as data, and under `shown` the texts that the owner decides about, as `daoyou approvals list` shows them.
fn view(row: &ApprovalRow) -> Value {
    let arguments = serde_json::from_str(&row.arguments).unwrap_or_else(|_| json!(row.arguments));
    let shown = json!({
        "arguments": visible_json(arguments.clone()),
        "session": quote_visibly(&row.session),
        "taint": row.taint.iter().map(|source| quote_visibly(source)).collect::<Vec<_>>(),
    });
    json!({
        "id": row.code,
        "tool": row.tool,
        "arguments": arguments,
        "session": row.session,
        "turn": row.turn,
        "taint": row.taint,
        "created": timestamp(row.created_at),
        "expires": timestamp(row.expires_at),
        "shown": shown,
    })
}
