//! Rows of the store as JSON.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::llm::costs_in_words;
use crate::store::inbox::InboxRow;
use crate::store::losses::Loss;
use crate::store::outbox::OutboxRow;
use crate::store::usage::{Costs, TokenCounts, UsageTotal};

/// The maximum number of rows of a list.
pub const LIST_LIMIT: u32 = 200;

/// Formats milliseconds since 1970 as RFC 3339 in UTC.
pub fn timestamp(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map(|at| at.to_string()).unwrap_or_default()
}

/// Returns tokens and cost, in total and by model.
pub fn usage(spent: &UsageTotal) -> Value {
    let mut view = used(spent.tokens, &spent.costs);
    let models = spent.models.iter().map(|one| {
        let mut view = used(one.tokens, &one.costs);
        view["model"] = json!(one.model);
        view["provider"] = json!(one.provider);
        view
    });
    view["by_model"] = models.collect();
    view
}

fn used(tokens: TokenCounts, costs: &Costs) -> Value {
    let amount = |(currency, micros): (&String, &u64)| json!({ "currency": currency, "micros": micros });
    json!({
        "turns": tokens.turns,
        "input": tokens.input,
        "output": tokens.output,
        "cached": tokens.cached,
        // Null if no price is known.
        "cost": costs_in_words(costs),
        "costs": costs.iter().map(amount).collect::<Vec<_>>(),
    })
}

/// Returns the data losses as JSON.
pub fn losses(losses: &[Loss]) -> Value {
    let views = losses.iter().map(|loss| {
        json!({
            "at": timestamp(loss.at),
            "kind": loss.kind,
            "messages": loss.messages,
            "seqs": loss.seqs,
            "what": loss.description,
            "whole": loss.is_complete,
            "aside": loss.saved_files,
        })
    });
    views.collect()
}

pub(super) fn inbound(row: &InboxRow) -> Value {
    json!({
        "kind": "inbound",
        "id": row.id,
        "turn": row.turn,
        "state": row.state,
        "session": row.session,
        "channel": row.channel,
        "chat_id": row.chat_id,
        "sender": row.sender,
        "external_id": row.external_id,
        "content": row.content,
        "received_at": timestamp(row.received_at),
    })
}

pub(super) fn outbound(row: &OutboxRow) -> Value {
    let body: Value = serde_json::from_str(&row.body).unwrap_or(Value::Null);
    json!({
        "kind": "outbound",
        "id": row.id,
        "turn": row.turn,
        "slot": row.slot,
        "attempt": row.attempt,
        "state": row.state,
        "channel": row.channel,
        "chat_id": row.chat_id,
        "tries": row.tries,
        "next_at": if row.state == "pending" && row.next_at > 0 { Some(timestamp(row.next_at)) } else { None },
        "last_error": row.last_error,
        "content": body.get("content"),
        "created_at": timestamp(row.created_at),
    })
}
