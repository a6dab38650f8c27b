//! The client of a collector. Own code, because the exporter of the opentelemetry crates brings another version of the HTTP client.

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};

use super::OtelConfig;
use crate::llm::{client_builder, is_loopback, read_capped, secret_headers};
use crate::text::{one_line, truncate};

const LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of characters of a response that an error shows.
const MAX_SHOWN: usize = 200;
/// The maximum number of bytes that are read of the response to a rejected request.
const MAX_ANSWER: usize = 4_096;
/// The longest wait that a collector may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Sends requests to a collector.
#[derive(Clone)]
pub struct OtlpClient {
    http: Client,
    endpoint: String,
    headers: HeaderMap,
    /// The description of this gateway.
    pub(super) resource: Resource,
}

/// The error of a request that the collector did not accept.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct OtlpError {
    reason: String,
    /// The time until another try, if one may succeed.
    pub retry_after: Option<Duration>,
}

impl OtlpClient {
    /// Creates a client; `None` if telemetry is off.
    ///
    /// # Errors
    /// The machine's certificate authorities cannot be loaded.
    pub fn new(config: &OtelConfig) -> Result<Option<Self>, reqwest::Error> {
        let Ok(url) = Url::parse(&config.endpoint) else { return Ok(None) };
        let builder = client_builder(is_loopback(&url), url.scheme() != "http")
            .timeout(LIMIT)
            .redirect(reqwest::redirect::Policy::none());
        let resource = Resource {
            attributes: vec![
                text("service.name", config.service_name.as_str()),
                text("service.version", env!("CARGO_PKG_VERSION")),
            ],
            ..Resource::default()
        };
        let headers = secret_headers(&config.headers).collect();
        let endpoint = config.endpoint.trim_end_matches('/').to_owned();
        Ok(Some(Self { http: builder.build()?, endpoint, headers, resource }))
    }

    /// Sends a request to a path of the collector.
    pub(super) async fn send(&self, path: &str, request: &impl Message) -> Result<(), OtlpError> {
        let url = format!("{}{path}", self.endpoint);
        let body = request.encode_to_vec();
        let request = self.http.post(&url).headers(self.headers.clone());
        let request = request.header(CONTENT_TYPE, "application/x-protobuf").body(body);
        let response = request.send().await.map_err(|error| {
            let reason = format!("{url} cannot be reached: {}", error.without_url());
            OtlpError { reason, retry_after: Some(Duration::ZERO) }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        // The specification lists these statuses; other errors are permanent.
        let may_pass = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        let seconds = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
        let retry_after = Duration::from_secs(seconds.unwrap_or(0)).min(LONGEST_WAIT);
        let answer = read_capped(response, MAX_ANSWER).await;
        let answer = String::from_utf8_lossy(&answer);
        let reason = format!("{url} answered {status}: {}", truncate(&one_line(&answer), MAX_SHOWN));
        Err(OtlpError { reason, retry_after: may_pass.then_some(retry_after) })
    }
}

/// Returns the instrumentation scope of daoyou; there is only one.
pub(super) fn scope() -> InstrumentationScope {
    let (name, version) = ("daoyou".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}

pub(super) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.into()))
}

pub(super) fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
