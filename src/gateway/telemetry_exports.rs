//! The tasks that send telemetry while a gateway is running.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::memory_workers::log_join_error;
use crate::http::{self, AppState};
use crate::telemetry::{self, OtelConfig, OtlpClient};

/// The tasks that send traces and metrics; none if telemetry is off.
#[derive(Default)]
pub(super) struct TelemetryExports {
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl TelemetryExports {
    /// Starts the tasks.
    ///
    /// # Errors
    /// The client cannot be created.
    pub(super) fn start(config: &OtelConfig, state: &Arc<AppState>) -> anyhow::Result<Self> {
        let mut exports = Self::default();
        let client = OtlpClient::new(config).context("[otel]: the client of the collector cannot be made")?;
        let Some(client) = client else { return Ok(exports) };
        if let Some(ended) = state.bus.watch_turn_ends().filter(|_| config.traces) {
            let (store, stop) = (state.bus.store().clone(), exports.stop.clone());
            exports.tasks.push(tokio::spawn(telemetry::export_traces(client.clone(), store, ended, stop)));
        }
        if config.metrics {
            let state = state.clone();
            let scrape = move || {
                let state = state.clone();
                async move {
                    let page = http::scrape(&state).await;
                    page.inspect_err(|error| tracing::warn!(%error, "the metrics could not be read")).ok()
                }
            };
            let sending = telemetry::export_metrics(client, config.interval.0, exports.stop.clone(), scrape);
            exports.tasks.push(tokio::spawn(sending));
        }
        Ok(exports)
    }

    /// Makes the tasks send the remaining telemetry and end.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the tasks to end, at most for `limit`.
    pub(super) async fn end(self, limit: Duration) {
        let until = tokio::time::Instant::now() + limit;
        for task in self.tasks {
            match tokio::time::timeout_at(until, task).await {
                Ok(result) => log_join_error("telemetry", result),
                Err(_) => tracing::warn!("the last telemetry could not be sent in time"),
            }
        }
    }
}
