//! HTTP with SSE, the transport of 2024-11-05: a stream of events announces the address for messages, and carries the responses.

use std::collections::BTreeMap;
use std::time::Duration;

use daoyou_channels::settings::Secret;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::auth::BearerTokens;
use super::http::header_map;
use super::stdio::{IncomingMessages, TaskEnds, TaskTransport};
use super::{MAX_MESSAGE, error_chain};
use crate::sse::SseReader;

/// How long the server may take to accept a message.
const POST_LIMIT: Duration = Duration::from_secs(30);

/// The state that both directions share.
struct SseClient {
    client: Client,
    headers: HeaderMap,
    tokens: BearerTokens,
}

/// Opens the stream of events. Returns the transport once the server has announced its address for messages.
///
/// # Errors
/// States how the server violates this transport.
pub(super) async fn connect(
    server: &str,
    client: Client,
    url: &str,
    headers: &BTreeMap<String, Secret>,
    tokens: BearerTokens,
    ended: watch::Sender<Option<String>>,
) -> Result<TaskTransport, String> {
    let base = Url::parse(url).map_err(|error| error.to_string())?;
    let sender = SseClient { client, headers: header_map(headers).collect(), tokens };
    let response = sender.open(url).await?;
    let mut events = EventStream { response, reader: SseReader::new(MAX_MESSAGE) };
    let endpoint = events.next().await?.ok_or("the stream of events ended at once")?;
    let endpoint =
        base.join(endpoint.trim()).map_err(|error| format!("the address for messages is invalid: {error}"))?;
    if endpoint.origin() != base.origin() {
        return Err("the server names an address for messages on another server, which is refused".to_owned());
    }
    Ok(TaskTransport::start(server, move |ends| async move {
        let TaskEnds { mut incoming, outgoing } = ends;
        let how = tokio::select! {
            fault = events.pass_all(&mut incoming) => fault.unwrap_or_else(|| "the server closed the connection".to_owned()),
            fault = sender.post_all(&endpoint, outgoing) => fault.unwrap_or_else(|| "closed".to_owned()),
        };
        ended.send_replace(Some(how));
    }))
}

impl SseClient {
    /// Opens the stream of events. If the server refuses the token, tries once more with a new one.
    async fn open(&self, url: &str) -> Result<Response, String> {
        let get = async |token: Option<&str>| {
            let request = self.client.get(url).headers(self.headers.clone()).header(ACCEPT, "text/event-stream");
            let request = with_token(request, token);
            request.send().await.map_err(|error| error_chain(&error.without_url()))
        };
        let token = self.tokens.token(None).await?;
        let mut response = get(token.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.tokens.is_set() {
            let fresh = self.tokens.token(token.as_deref()).await?;
            if fresh != token {
                response = get(fresh.as_deref()).await?;
            }
        }
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
            let token = match self.tokens.token(None).await {
                Ok(token) => token,
                Err(why) => return Some(why),
            };
            let request = self.client.post(endpoint.clone()).headers(self.headers.clone());
            let request = request.header(CONTENT_TYPE, "application/json").body(message);
            match timeout(POST_LIMIT, with_token(request, token.as_deref()).send()).await {
                Ok(Ok(response)) if response.status().is_success() => {}
                Ok(Ok(response)) => return Some(format!("the server answered a message with {}", response.status())),
                Ok(Err(error)) => return Some(error_chain(&error.without_url())),
                Err(_) => return Some("the server did not accept a message in time".to_owned()),
            }
        }
        None
    }
}

fn with_token(request: RequestBuilder, token: Option<&str>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
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
                Err(error) => return Err(error_chain(&error.without_url())),
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
