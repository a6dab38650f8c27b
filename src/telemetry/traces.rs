//! Sends the traces of ended turns.

use std::time::Duration;

use async_channel::Receiver;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio_util::sync::CancellationToken;

use super::OtlpClient;
use super::spans::{request, spans_of_turn};
use crate::bus::TurnEndNotice;
use crate::store::Store;

/// The maximum number of spans of one request, unless one turn alone has more.
const BATCH: usize = 512;
/// The time that a request waits for further turns.
const GATHER: Duration = Duration::from_secs(2);
/// The number of tries of a request, and the first wait between them, which doubles each time.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Sends the trace of each turn of `ended` until `shutdown`, and then the remaining ones. A trace that the collector does not accept
/// in time is dropped and logged.
pub async fn export_traces(
    client: OtlpClient,
    store: Store,
    ended: Receiver<TurnEndNotice>,
    shutdown: CancellationToken,
) {
    loop {
        let first = shutdown.run_until_cancelled(ended.recv()).await;
        let Some(first) = first.map_or_else(|| ended.try_recv().ok(), Result::ok) else { return };
        let mut spans = spans_of(&store, first).await;
        let until = tokio::time::Instant::now() + GATHER;
        while spans.len() < BATCH {
            let next = match ended.try_recv() {
                Ok(notice) => Some(notice),
                Err(_) if shutdown.is_cancelled() => None,
                Err(_) => {
                    let wait = tokio::time::timeout_at(until, ended.recv());
                    shutdown.run_until_cancelled(wait).await.and_then(Result::ok).and_then(Result::ok)
                }
            };
            let Some(next) = next else { break };
            spans.extend(spans_of(&store, next).await);
        }
        send(&client, spans, &shutdown).await;
    }
}

async fn spans_of(store: &Store, notice: TurnEndNotice) -> Vec<Span> {
    let turn = notice.turn;
    let read = store.read(move |connection| spans_of_turn(connection, &notice)).await;
    read.unwrap_or_else(|error| {
        tracing::warn!(%turn, %error, "the trace of a turn could not be read");
        Vec::new()
    })
}

async fn send(client: &OtlpClient, spans: Vec<Span>, shutdown: &CancellationToken) {
    let count = spans.len();
    if count == 0 {
        return;
    }
    let request = request(spans, client.resource.clone());
    let mut wait = FIRST_WAIT;
    for attempt in 1..=TRIES {
        let error = match client.send("/v1/traces", &request).await {
            Ok(()) => return,
            Err(error) => error,
        };
        let again = error.retry_after.filter(|_| attempt < TRIES && !shutdown.is_cancelled());
        let Some(asked) = again else {
            tracing::warn!(%error, spans = count, "traces could not be sent and are dropped");
            return;
        };
        tracing::debug!(%error, "traces could not be sent; they are sent again");
        // The wait ends with the gateway, and one more try follows.
        shutdown.run_until_cancelled(tokio::time::sleep(wait.max(asked))).await;
        wait *= 2;
    }
}
