//! The routes while the home cannot be written: health with the reason, and a refusal of everything else.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use daoyou_channels::HttpError;
use daoyou_channels::settings::HumanDuration;
use serde_json::{Value, json};

use crate::live::Live;

/// The time after which a refused sender should try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The reason why a gateway is read-only.
pub struct ReadOnlyReason {
    pub home: PathBuf,
    pub listen: String,
    pub since: Instant,
    /// A short text without paths of this machine.
    pub summary: Live<&'static str>,
    /// The reason with the full error.
    pub details: Live<String>,
}

/// Returns the routes. On the control socket (`is_owner`), they include the full reason and the status.
pub fn read_only_routes(reason: Arc<ReadOnlyReason>, is_owner: bool) -> Router {
    let text = {
        let reason = reason.clone();
        move || if is_owner { reason.details.get().to_string() } else { reason.summary.get().to_string() }
    };
    let (alive, ready, refused) = (text.clone(), text.clone(), text);
    let mut router = Router::new()
        .route("/healthz", get(async move || Json(json!({ "status": "read-only", "reason": alive() }))))
        .route(
            "/readyz",
            get(async move || {
                let reason = ready();
                let body = json!({ "status": "read-only", "reason": reason, "parts": { "intake": reason } });
                (StatusCode::SERVICE_UNAVAILABLE, Json(body))
            }),
        )
        .fallback(async move || HttpError {
            retry_after: Some(RETRY_AFTER),
            ..HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "store", format!("nothing can be stored: {}", refused()))
        });
    if is_owner {
        router = router.route("/api/status", get(async move || Json(status(&reason))));
    }
    // An open connection would be closed when the full gateway takes over, perhaps in the middle of a request.
    router.layer(map_response(async |mut response: Response| {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }))
}

/// Returns the status for `daoyou status` and `daoyou doctor`.
fn status(reason: &ReadOnlyReason) -> Value {
    json!({
        "gateway": "up",
        "read_only": true,
        "home": reason.home,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime": HumanDuration::from_secs(reason.since.elapsed().as_secs()).to_string(),
        "listen": reason.listen,
        "ready": false,
        "parts": { "intake": format!("nothing can be stored: {}", reason.details.get()), "channels": {} },
    })
}
