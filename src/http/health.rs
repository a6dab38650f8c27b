//! `/healthz` and `/readyz`. They need no token and contain no secrets.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};

use super::state::AppState;
use crate::bus::ChannelState;

pub fn routes(state: Arc<AppState>) -> Router {
    let ready = move || {
        let state = state.clone();
        async move {
            let (ready, parts) = readiness(&state);
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, Json(json!({ "status": if ready { "ready" } else { "degraded" }, "parts": parts })))
        }
    };
    Router::new().route("/healthz", get(async || Json(json!({ "status": "ok" })))).route("/readyz", get(ready))
}

/// Returns true if all parts work, and the state of each part.
pub fn readiness(state: &AppState) -> (bool, Value) {
    let mut ready = true;
    let mut channels = serde_json::Map::new();
    for (name, channel) in state.channels.all() {
        ready &= !matches!(channel, ChannelState::Starting | ChannelState::Failed { .. });
        let word = match channel {
            ChannelState::Running => "ok",
            ChannelState::Stopped => "stopped",
            ChannelState::Starting => "starting",
            // The error may contain addresses, so it is only in the log and in `daoyou status`.
            ChannelState::Failed { .. } => "failed",
        };
        channels.insert(name, word.into());
    }
    // A failed service does not make the gateway unready: messages are accepted and wait.
    let services: serde_json::Map<String, Value> =
        state.bus.services().all().into_iter().map(|(name, fault)| (name, fault.code.into())).collect();
    let intake = state.bus.intake_fault();
    ready &= intake.is_none();
    let (inbound, outbound) = state.bus.depths();
    let parts = json!({
        "intake": intake.unwrap_or_else(|| "ok".to_owned()),
        "channels": channels,
        "services": services,
        "inbound": inbound,
        "outbound": outbound,
    });
    (ready, parts)
}
