//! Streamable HTTP, with a token for each request.

use std::collections::HashMap;
use std::error::Error;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
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
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::auth::BearerTokens;
use super::{MAX_MESSAGE, MessageCount, ServerLabel, short_chain};
use crate::llm::secret_headers;
use crate::mcp::config::McpServerConfig;

/// How often a broken event stream is opened again, and the first wait, which doubles each time.
const RECONNECTS: usize = 4;
const FIRST_RECONNECT: Duration = Duration::from_millis(500);
/// The maximum size of an error's body that is read, in bytes.
const MAX_ERROR_BODY: usize = 16_384;

type HttpResult<T> = Result<T, StreamableHttpError<reqwest::Error>>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// A client that sends the current token with each request, and gets a new one when the server refuses it. It ends the connection
/// of a server that floods it.
#[derive(Clone)]
pub(super) struct TokenClient {
    client: Client,
    tokens: Arc<BearerTokens>,
    server: String,
    count: Arc<MessageCount>,
    /// Gets why the connection was ended.
    ended: watch::Sender<Option<String>>,
    /// Cancelled when the connection is gone. During the start of a connection, the library reads a stream to its end.
    dropped: CancellationToken,
}

impl TokenClient {
    /// Returns the stream up to its end, the end of the connection, or the first message that is too many.
    fn bounded(&self, stream: BoxStream<'static, Result<Sse, SseError>>) -> BoxStream<'static, Result<Sse, SseError>> {
        let Self { server, count, ended, .. } = self.clone();
        let is_allowed = move |_: &Result<Sse, SseError>| {
            let counted = count.add();
            if let Err(fault) = &counted {
                tracing::info!(server, fault, "the connection to an MCP server is ended");
                ended.send_replace(Some(format!("was disconnected: {fault}")));
            }
            ready(counted.is_ok())
        };
        stream.take_while(is_allowed).take_until(self.dropped.clone().cancelled_owned()).boxed()
    }

    /// Runs `send` with the current token. If the server refuses the token, runs `send` once more with a new one.
    async fn with_token<T, F: Future<Output = HttpResult<T>> + Send>(
        &self,
        send: impl Fn(Option<String>) -> F + Send + Sync,
    ) -> HttpResult<T> {
        let unavailable = |why: String| StreamableHttpError::Io(io::Error::other(why));
        if let Some(how) = &*self.ended.borrow() {
            return Err(unavailable(how.clone()));
        }
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
        Ok(match self.with_token(send).await? {
            StreamableHttpPostResponse::Sse(stream, session) => {
                StreamableHttpPostResponse::Sse(self.bounded(stream), session)
            }
            answer => answer,
        })
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
        Ok(self.bounded(self.with_token(send).await?))
    }
}

/// Creates the transport to the address in `config`. Nothing is sent yet. `ended` gets why the connection was ended. `dropped`
/// ends its streams.
pub(super) fn transport(
    server: &ServerLabel,
    client: Client,
    config: &McpServerConfig,
    tokens: Arc<BearerTokens>,
    (ended, dropped): (watch::Sender<Option<String>>, CancellationToken),
) -> WorkerTransport<StreamableHttpClientWorker<TokenClient>> {
    // A response whose stream breaks can be resumed for some seconds. After that its call fails, and the next call connects anew.
    let mut retries = ExponentialBackoff::default();
    (retries.base_duration, retries.max_times) = (FIRST_RECONNECT, Some(RECONNECTS));
    let mut settings = StreamableHttpClientTransportConfig::with_uri(config.url.as_str())
        .custom_headers(secret_headers(&config.headers).collect())
        .max_sse_event_size(MAX_MESSAGE)
        .max_json_response_size(MAX_MESSAGE)
        .max_error_response_size(MAX_ERROR_BODY);
    settings.retry_config = Arc::new(retries);
    let (server, count) = (server.name.clone(), Arc::new(MessageCount::new()));
    let client = TokenClient { client, tokens, server, count, ended, dropped };
    StreamableHttpClientTransport::with_client(client, settings)
}

/// Returns a text that states why a message was not sent. The library's own text contains type names.
pub(super) fn transport_text(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        // The error's own text repeats the address, which may contain a key.
        Some(StreamableHttpError::Client(error)) => match (error.status(), error.source()) {
            (Some(status), _) => format!("the server answered {status}"),
            (None, Some(source)) => short_chain(source),
            (None, None) => "the request failed".to_owned(),
        },
        Some(StreamableHttpError::Io(error)) => short_chain(error),
        _ => short_chain(&*error.error),
    }
}

/// Builds the client for `url`. It follows only redirects within the same server, such as those that frameworks send for a
/// missing slash, so that a token goes nowhere else.
///
/// # Errors
/// The machine's certificate authorities cannot be loaded.
pub(in crate::mcp) fn http_client(url: &str) -> Result<Client, reqwest::Error> {
    const MAX_REDIRECTS: usize = 3;
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
    crate::llm::client_builder(is_loopback, !url.starts_with("http:"))
        .connect_timeout(Duration::from_secs(10))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .redirect(policy)
        .build()
}
