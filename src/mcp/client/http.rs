//! Streamable HTTP, with a token for each request.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::Secret;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Url};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpClientWorker, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use rmcp::transport::worker::WorkerTransport;
use rmcp::transport::{DynamicTransportError, StreamableHttpClientTransport};
use sse_stream::{Error as SseError, Sse};

use super::auth::BearerTokens;
use super::{MAX_MESSAGE, error_chain};

/// How often a broken event stream is opened again, and the first wait, which doubles each time.
const RECONNECTS: usize = 4;
const FIRST_RECONNECT: Duration = Duration::from_millis(500);
/// The maximum size of an error's body that is read, in bytes.
const MAX_ERROR_BODY: usize = 16_384;

type HttpResult<T> = Result<T, StreamableHttpError<reqwest::Error>>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// A client that sends the current token with each request, and gets a new one when the server refuses it.
#[derive(Clone)]
pub(super) struct TokenClient {
    client: Client,
    tokens: BearerTokens,
}

impl TokenClient {
    /// Runs `send` with the current token. If the server refuses the token, runs `send` once more with a new one.
    async fn with_token<T, F: Future<Output = HttpResult<T>> + Send>(
        &self,
        send: impl Fn(Option<String>) -> F + Send + Sync,
    ) -> HttpResult<T> {
        let unavailable = |why: String| StreamableHttpError::Io(io::Error::other(why));
        let token = self.tokens.token(None).await.map_err(unavailable)?;
        match send(token.clone()).await {
            Err(StreamableHttpError::AuthRequired(_)) if self.tokens.is_set() => {
                let fresh = self.tokens.token(token.as_deref()).await.map_err(unavailable)?;
                send(fresh).await
            }
            done => done,
        }
    }
}

impl StreamableHttpClient for TokenClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, auth, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let send = |token| {
            let (uri, message, session) = (uri.clone(), message.clone(), session.clone());
            self.client.post_message_with_response_limits(uri, message, session, token, headers.clone(), limits)
        };
        self.with_token(send).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> HttpResult<()> {
        self.with_token(|token| self.client.delete_session(uri.clone(), session.clone(), token, headers.clone())).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        self.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, MAX_MESSAGE).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: Headers,
        max: usize,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        let send = |token| {
            let (uri, session, last_event) = (uri.clone(), session.clone(), last_event.clone());
            self.client.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers.clone(), max)
        };
        self.with_token(send).await
    }
}

/// Creates the transport to `url`. Nothing is sent yet.
pub(super) fn transport(
    client: Client,
    url: &str,
    headers: &BTreeMap<String, Secret>,
    tokens: BearerTokens,
) -> WorkerTransport<StreamableHttpClientWorker<TokenClient>> {
    // A response whose stream breaks can be resumed for some seconds. After that its call fails, and the next call connects anew.
    let mut retries = ExponentialBackoff::default();
    (retries.base_duration, retries.max_times) = (FIRST_RECONNECT, Some(RECONNECTS));
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(header_map(headers).collect())
        .max_sse_event_size(MAX_MESSAGE)
        .max_json_response_size(MAX_MESSAGE)
        .max_error_response_size(MAX_ERROR_BODY);
    config.retry_config = Arc::new(retries);
    StreamableHttpClientTransport::with_client(TokenClient { client, tokens }, config)
}

/// Returns a text that states why a message was not sent. The library's own text contains type names.
pub(super) fn transport_text(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        // The error's own text repeats the address, which may contain a key.
        Some(StreamableHttpError::Client(error)) => match (error.status(), error.source()) {
            (Some(status), _) => format!("the server answered {status}"),
            (None, Some(source)) => error_chain(source),
            (None, None) => "the request failed".to_owned(),
        },
        Some(StreamableHttpError::Io(error)) => error_chain(error),
        _ => error_chain(&*error.error),
    }
}

/// Returns the configured headers. The configuration check has already refused headers that cannot be sent.
pub(super) fn header_map(headers: &BTreeMap<String, Secret>) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    headers.iter().filter_map(|(name, value)| {
        let mut value = HeaderValue::from_str(value.expose()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    })
}

/// Builds the client for `url`. It follows only redirects within the same server, such as those that frameworks send for a
/// missing slash, so that a token goes nowhere else.
///
/// # Errors
/// The machine's certificate authorities cannot be loaded.
pub(in crate::mcp) fn http_client(url: &str) -> Result<Client, reqwest::Error> {
    const MAX_REDIRECTS: usize = 3;
    crate::llm::install_crypto();
    let first = Url::parse(url).ok();
    let origin = first.as_ref().map(Url::origin);
    let is_loopback = first.as_ref().is_some_and(crate::llm::is_loopback);
    let policy = reqwest::redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > MAX_REDIRECTS || Some(attempt.url().origin()) != origin {
            return attempt
                .error("the server redirects elsewhere, which is not followed: set the final address as url");
        }
        attempt.follow()
    });
    let mut builder = Client::builder()
        .user_agent(concat!("daoyou/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .redirect(policy)
        .retry(reqwest::retry::never());
    if is_loopback {
        builder = builder.no_proxy();
        if url.starts_with("http:") {
            builder = builder.tls_certs_only(std::iter::empty());
        }
    }
    builder.build()
}
