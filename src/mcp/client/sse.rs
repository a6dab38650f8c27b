//! HTTP with SSE, the transport of 2024-11-05: a stream of events announces the address for messages, and carries the responses.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use tokio::sync::{mpsc, watch};

use super::auth::BearerTokens;
use super::stdio::{IncomingMessages, TaskTransport};
use super::{MAX_MESSAGE, ServerLabel, short_chain};
use crate::llm::secret_headers;
use crate::mcp::config::McpServerConfig;
use crate::sse::SseReader;

/// How long the server may take to accept a message.
const POST_LIMIT: Duration = Duration::from_secs(30);

/// The state that both directions share.
struct SseClient {
    client: Client,
    headers: HeaderMap,
    tokens: Arc<BearerTokens>,
}

/// Opens the stream of events. Returns the transport once the server has announced its address for messages.
///
/// # Errors
/// States how the server violates this transport.
pub(super) async fn connect(
    server: &ServerLabel,
    client: Client,
    config: &McpServerConfig,
    tokens: Arc<BearerTokens>,
    ended: watch::Sender<Option<String>>,
) -> Result<TaskTransport, String> {
    let McpServerConfig { url, headers, .. } = config;
    let base = Url::parse(url).map_err(|error| error.to_string())?;
    let sender = SseClient { client, headers: secret_headers(headers).collect(), tokens };
    let response = sender.open(url).await?;
    let mut events = EventStream { response, reader: SseReader::new(MAX_MESSAGE) };
    let endpoint = events.next().await?.ok_or("the stream of events ended at once")?;
    let endpoint =
        base.join(endpoint.trim()).map_err(|error| format!("the address for messages is invalid: {error}"))?;
    if endpoint.origin() != base.origin() {
        return Err("the server names an address for messages on another server, which is refused".to_owned());
    }
    let label = server.clone();
    Ok(TaskTransport::start(server, move |mut incoming, outgoing, dropped| async move {
        let fault = tokio::select! {
            fault = events.pass_all(&mut incoming) => fault.or_else(|| Some("the server closed the connection".to_owned())),
            fault = sender.post_all(&endpoint, outgoing) => fault,
            () = dropped.cancelled() => None,
        };
        let how = fault.map_or_else(|| "was disconnected".to_owned(), |fault| format!("was disconnected: {fault}"));
        ended.send_replace(Some(label.redacted(how)));
    }))
}

impl SseClient {
    /// Opens the stream of events.
    async fn open(&self, url: &str) -> Result<Response, String> {
        let response = self.send(self.client.get(url).header(ACCEPT, "text/event-stream")).await?;
        if !response.status().is_success() {
            return Err(format!("the server answered {}", response.status()));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err("the server answered with no stream of events".to_owned());
        }
        Ok(response)
    }

    /// Sends messages until one cannot be sent. Returns the reason.
    async fn post_all(&self, endpoint: &Url, mut outgoing: mpsc::Receiver<Vec<u8>>) -> Option<String> {
        while let Some(message) = outgoing.recv().await {
            let request = self.client.post(endpoint.clone()).timeout(POST_LIMIT);
            match self.send(request.header(CONTENT_TYPE, "application/json").body(message)).await {
                Ok(response) if response.status().is_success() => {}
                Ok(response) => return Some(format!("the server answered a message with {}", response.status())),
                Err(why) => return Some(why),
            }
        }
        None
    }

    /// Sends a request with the headers and the token. If the server refuses the token, sends it once more with a new one.
    async fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        let request = request.headers(self.headers.clone());
        let again = request.try_clone().filter(|_| self.tokens.is_set());
        let token = self.tokens.token(None).await?;
        let response = send_with_token(request, token.as_deref()).await?;
        let Some(again) = again.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else { return Ok(response) };
        let fresh = self.tokens.token(token.as_deref()).await?;
        if fresh == token { Ok(response) } else { send_with_token(again, fresh.as_deref()).await }
    }
}

async fn send_with_token(request: RequestBuilder, token: Option<&str>) -> Result<Response, String> {
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    request.send().await.map_err(|error| match error.is_timeout() {
        true => "the server did not accept a request in time".to_owned(),
        false => short_chain(&error.without_url()),
    })
}

struct EventStream {
    response: Response,
    reader: SseReader,
}

impl EventStream {
    /// Returns the data of the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<String>, String> {
        loop {
            match self.reader.next_event() {
                Ok(Some(event)) => return Ok(Some(event.into_owned())),
                Ok(None) => {}
                Err(_) => return Err("it sent an event that is too long".to_owned()),
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.reader.push(&bytes),
                Ok(None) => return Ok(None),
                Err(error) => return Err(short_chain(&error.without_url())),
            }
        }
    }

    /// Passes on all messages. Returns why the connection ended, unless the server ended it.
    async fn pass_all(&mut self, incoming: &mut IncomingMessages) -> Option<String> {
        loop {
            match self.next().await {
                Ok(Some(event)) => {
                    if let Err(fault) = incoming.pass(event.as_bytes()).await {
                        return fault;
                    }
                }
                Ok(None) => return None,
                Err(fault) => return Some(fault),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::State;
    use axum::http::HeaderMap as RequestHeaders;
    use axum::routing::post;
    use parking_lot::Mutex;

    use super::*;
    use crate::mcp::client::http_client;
    use crate::mcp::config::McpAuthConfig;

    /// The bodies and the tokens that a server received, in order.
    type Received = Arc<Mutex<Vec<(String, String)>>>;

    /// Accepts a message unless it is the first one with the current token, which has expired.
    async fn accept(State(received): State<Received>, headers: RequestHeaders, body: String) -> StatusCode {
        let token = headers["authorization"].to_str().unwrap_or_default().to_owned();
        let mut received = received.lock();
        let is_first = received.is_empty();
        received.push((body, token));
        if is_first { StatusCode::UNAUTHORIZED } else { StatusCode::ACCEPTED }
    }

    #[tokio::test]
    async fn a_refused_token_is_renewed_for_messages() {
        let received = Received::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/messages", listener.local_addr().unwrap())).unwrap();
        let router = Router::new().route("/messages", post(accept)).with_state(received.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        let token_command = ["cat", "/proc/sys/kernel/random/uuid"].map(str::to_owned).to_vec();
        let client = http_client(url.as_str()).unwrap();
        let config = McpAuthConfig { token_command, ..McpAuthConfig::default() };
        let tokens = Arc::new(BearerTokens::new(config, client.clone()));
        let sender = SseClient { client, headers: HeaderMap::new(), tokens };
        let (messages, outgoing) = mpsc::channel(2);
        for message in ["one", "two"] {
            messages.send(message.as_bytes().to_vec()).await.unwrap();
        }
        drop(messages);
        assert_eq!(sender.post_all(&url, outgoing).await, None);
        let received = received.lock();
        let bodies: Vec<_> = received.iter().map(|(body, _)| body.as_str()).collect();
        assert_eq!(bodies, ["one", "one", "two"]);
        assert!(received[0].1 != received[1].1 && received[1].1 == received[2].1, "{received:?}");
    }
}
