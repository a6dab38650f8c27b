//! `/metrics`, and the count of requests.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use daoyou_channels::HttpError;

use super::Hub;
use crate::bus::ChannelState;
use crate::llm::{CircuitState, Models};
use crate::metrics::{self, Circuit, Metrics, QueueDepth, Scraped};
use crate::store::queues::{self, Depth};

/// What requests that no route matches are counted under.
const UNMATCHED: &str = "unmatched";

/// `GET /metrics`. Whoever mounts it sees to it that the caller has proved himself.
pub fn metrics_routes(hub: Arc<Hub>) -> Router {
    Router::new().route("/metrics", get(page)).with_state(hub)
}

/// Counts requests by their route's pattern and the answer's status. A layer for a whole router.
pub async fn count_requests(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let answer = next.run(request).await;
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    metrics.http.answered(route, answer.status().as_str(), began.elapsed());
    answer
}

async fn page(State(hub): State<Arc<Hub>>) -> Result<Response, HttpError> {
    let store = hub.bus.store();
    let path = store.path().to_owned();
    let (inbox, outbox, database_bytes) = store
        .read(move |connection| {
            let size = |name: &str| std::fs::metadata(path.with_file_name(name)).map_or(0, |metadata| metadata.len());
            let files = [("database", size("daoyou.db")), ("wal", size("daoyou.db-wal"))];
            Ok((queues::inbox(connection)?, queues::outbox(connection)?, files))
        })
        .await?;
    let channels = hub.channels.all();
    let scraped = Scraped {
        channels: channels.into_iter().map(|(name, state)| (name, state == ChannelState::Running)).collect(),
        inbox: inbox.into_iter().map(depth).collect(),
        outbox: outbox.into_iter().map(depth).collect(),
        database_bytes: database_bytes.to_vec(),
        takes_messages: hub.bus.intake_fault().is_none(),
        circuits: circuits(&hub.directory.models.get()),
    };
    let page = hub.bus.metrics().render(&scraped);
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response())
}

fn circuits(models: &Models) -> Vec<Circuit> {
    let each = models.services().map(|(name, provider)| {
        let (state, opened) = provider.circuit();
        Circuit { provider: name.to_owned(), is_closed: state == CircuitState::Closed, opened }
    });
    each.collect()
}

fn depth(depth: Depth) -> QueueDepth {
    let Depth { channel, state, messages, oldest_ms } = depth;
    QueueDepth { channel, state, messages, oldest_ms }
}
