//! `/metrics`, and the metrics of requests.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use daoyou_channels::HttpError;

use super::state::{AppState, SharedState};
use crate::bus::ChannelState;
use crate::llm::{CircuitState, Models};
use crate::metrics::{self, CircuitSample, Metrics, MetricsPage, QueueDepth, ScrapedState};
use crate::store::queues::{self, QueueBacklog};
use crate::store::{StoreError, approvals, memories};

/// The route label of requests that no route matches.
const UNMATCHED: &str = "unmatched";

/// Returns the route of the metrics. The caller adds authentication.
pub fn metrics_routes(state: Arc<AppState>) -> Router {
    Router::new().route("/metrics", get(page)).with_state(state)
}

/// Middleware that counts requests by the pattern of their route and the status of the response.
pub async fn count_requests(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let answer = next.run(request).await;
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    metrics.http.answered(route, answer.status().as_str(), began.elapsed());
    answer
}

async fn page(State(state): SharedState) -> Result<Response, HttpError> {
    let page = scrape(&state).await?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page.text()).into_response())
}

/// Returns the current samples of all metrics.
///
/// # Errors
/// The store cannot be read.
pub async fn scrape(state: &AppState) -> Result<MetricsPage, StoreError> {
    let store = state.bus.store();
    let path = store.path().to_owned();
    let (inbox, outbox, database_bytes, approvals, memories) = store
        .read(move |connection| {
            let size = |name: &str| std::fs::metadata(path.with_file_name(name)).map_or(0, |metadata| metadata.len());
            let files = [("database", size("daoyou.db")), ("wal", size("daoyou.db-wal"))];
            let (inbox, outbox) = (queues::inbox(connection)?, queues::outbox(connection)?);
            Ok((inbox, outbox, files, approvals::count_by_state(connection)?, memories::count(connection)?))
        })
        .await?;
    let channels = state.channels.all();
    let scraped = ScrapedState {
        channels: channels.into_iter().map(|(name, state)| (name, state == ChannelState::Running)).collect(),
        inbox: inbox.into_iter().map(depth).collect(),
        outbox: outbox.into_iter().map(depth).collect(),
        database_bytes: database_bytes.to_vec(),
        takes_messages: state.bus.intake_fault().is_none(),
        circuits: circuits(&state.directory.models.get().models),
        approvals,
        memories: u64::try_from(memories).unwrap_or_default(),
        mcp_servers: state.mcp.get().all().iter().map(|server| (server.name.clone(), server.is_running())).collect(),
    };
    Ok(state.bus.metrics().page(&scraped))
}

fn circuits(models: &Models) -> Vec<CircuitSample> {
    let circuits = models.services().map(|(name, provider)| {
        let (state, opened) = provider.circuit();
        CircuitSample { provider: name.to_owned(), is_closed: state == CircuitState::Closed, opened }
    });
    circuits.collect()
}

fn depth(depth: QueueBacklog) -> QueueDepth {
    let QueueBacklog { channel, state, messages, oldest_ms } = depth;
    QueueDepth { channel, state, messages, oldest_ms }
}
