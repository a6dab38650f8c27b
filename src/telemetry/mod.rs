//! OpenTelemetry: sends each ended turn as a trace, and the metrics, to a collector by OTLP over HTTP
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>). Nothing runs unless `otel.endpoint` is set.
//!
//! A trace is built from the journal when its turn has ended. A turn that several processes worked on is therefore one trace, and a
//! running turn waits for nothing.

mod client;
mod config;
mod points;
mod spans;
mod traces;

pub use client::OtlpClient;
pub use config::OtelConfig;
pub use traces::export_traces;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::metrics::MetricsPage;

/// Sends the metrics that `scrape` returns every `interval`, and once more at the end. Sums are cumulative, so that a failed request
/// loses no data.
pub async fn export_metrics<Scrape>(
    client: OtlpClient,
    interval: Duration,
    shutdown: CancellationToken,
    scrape: impl Fn() -> Scrape,
) where
    Scrape: Future<Output = Option<MetricsPage>>,
{
    let mut is_ended = false;
    while !is_ended {
        is_ended = shutdown.run_until_cancelled(tokio::time::sleep(interval)).await.is_none();
        if let Some(page) = scrape().await
            && let Err(error) =
                client.send("/v1/metrics", &points::request(page.families(), client.resource.clone())).await
        {
            tracing::warn!(%error, "the metrics could not be sent; the next ones hold the same counts");
        }
    }
}
