//! The client of the control socket, which commands use while a gateway is running.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use async_channel::Sender;
use async_trait::async_trait;
use daoyou_channels::cli::{
    CompletionNames, ConversationFeed, NameDirectory, ScreenDelivery, TerminalConversation, TerminalHost,
};
use daoyou_channels::{
    AcceptExtras, Acceptance, Cursor, InboundMessage, Inbox, MessageState, Refusal, SentMessage, SessionEvent,
    StartError, StoredNote,
};
use futures_util::StreamExt;
use reqwest::{Client, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::home::SocketPath;
use crate::query::{ControlRequest, GatewayQuery, OTHER_VERSION, TerminalFrame, TerminalInfo};
use crate::sse::{EventTooLong, SseReader};

/// The origin of all URLs; its name is never resolved.
const BASE: &str = "http://daoyou";

/// The error of a request that no gateway answers.
const NO_ANSWER: &str = "the gateway does not answer on its control socket";
/// The error of an answer that ends early.
const CUT_OFF: &str = "the connection to the gateway ended before its answer was complete";

/// The longest wait of one request for the end of a message; the client then asks again.
const WAIT: Duration = Duration::from_secs(30);

/// The time that a terminal waits for a restarting gateway.
const RESTART_PATIENCE: Duration = Duration::from_secs(120);

/// The maximum number of frames that wait for display.
const BACKLOG: usize = 1_024;

/// The largest frame, in bytes: the longest reply of a model (16 MB), each byte of which JSON may escape as six, and its envelope.
const FRAME_LIMIT: usize = 100 * 1024 * 1024;

/// A client of the gateway that serves a home.
#[derive(Clone)]
pub struct ControlClient {
    http: Client,
    /// Keeps the path valid to which `http` connects.
    _socket: SocketPath,
}

impl ControlClient {
    /// Creates a client for the socket at `path`. It sends nothing yet.
    ///
    /// # Errors
    /// The HTTP client cannot be built, or the path is too long for a socket and its folder cannot be opened.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        crate::llm::install_crypto();
        // A Unix socket needs no certificates, and loading them takes time.
        let socket = SocketPath::new(path).with_context(|| format!("{} cannot be reached", path.display()))?;
        let client = Client::builder().unix_socket(socket.as_path()).tls_certs_only(std::iter::empty());
        Ok(Self { http: client.no_proxy().build()?, _socket: socket })
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// No gateway answers, or it returns an error, whose message becomes this error's message.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        parse_answer(self.http.get(format!("{BASE}{path}")).send().await.context(NO_ANSWER)?).await
    }

    /// Sends a POST request without a body.
    ///
    /// # Errors
    /// The errors of [`ControlClient::get`].
    pub async fn post(&self, path: &str) -> anyhow::Result<Value> {
        parse_answer(self.http.post(format!("{BASE}{path}")).send().await.context(NO_ANSWER)?).await
    }

    /// Sends a query or change.
    ///
    /// # Errors
    /// The errors of [`ControlClient::get`].
    pub async fn send<R: ControlRequest>(&self, request: &R) -> anyhow::Result<Value> {
        let sent = self.http.post(format!("{BASE}/control/{}", R::NAME)).json(request).send().await;
        let answer = parse_answer(sent.context(NO_ANSWER)?).await;
        // An earlier version has no such route.
        answer.map_err(|error| match error.to_string().starts_with("there is nothing at ") {
            true => anyhow!(OTHER_VERSION),
            false => error,
        })
    }

    /// Sends a query about the gateway. Its status comes from the API, because a read-only gateway answers nothing else.
    ///
    /// # Errors
    /// The errors of [`ControlClient::get`].
    pub async fn inspect(&self, query: &GatewayQuery) -> anyhow::Result<Value> {
        match query {
            GatewayQuery::Status => self.get("/api/status").await,
            query => self.send(query).await,
        }
    }

    /// Opens a stream of MCP messages, one per line. `connection` names the client's session.
    ///
    /// # Errors
    /// No gateway answers, or it refuses the stream.
    pub async fn open_mcp_stream(&self, connection: &str) -> anyhow::Result<reqwest::Upgraded> {
        let request = self.http.get(format!("{BASE}/mcp/stream")).query(&[("connection", connection)]);
        let request = request.header("connection", "upgrade").header("upgrade", "mcp-lines");
        let response = request.send().await.context(NO_ANSWER)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response.upgrade().await.context(CUT_OFF);
        }
        match parse_answer::<Value>(response).await {
            Ok(_) => bail!(OTHER_VERSION),
            Err(error) => Err(error),
        }
    }

    async fn terminal_info(&self, conversation: &TerminalConversation) -> anyhow::Result<TerminalInfo> {
        let key = conversation.key();
        let mut query = vec![("session", key.as_str())];
        query.extend(conversation.model.as_deref().map(|model| ("model", model)));
        let response = self.http.get(format!("{BASE}/api/terminal")).query(&query).send().await;
        parse_answer(response.context(NO_ANSWER)?).await
    }

    async fn attach(&self, conversation: &TerminalConversation) -> anyhow::Result<ConversationFeed> {
        let mut query = vec![("chat_id", conversation.chat_id.as_str())];
        query.extend(conversation.session.as_ref().map(|session| ("session", session.as_str())));
        let response = self.http.get(format!("{BASE}/api/attach")).query(&query).send().await?;
        if !response.status().is_success() {
            bail!("the gateway does not let this terminal follow the chat: {}", response.status());
        }
        let (deliver, deliveries) = async_channel::bounded(BACKLOG);
        let (show, events) = async_channel::bounded(BACKLOG);
        let (attached, is_attached) = tokio::sync::oneshot::channel();
        tokio::spawn(forward_frames(response, deliver, show, attached));
        is_attached.await.map_err(|_| anyhow!("the gateway closed the connection"))?;
        Ok(ConversationFeed { deliveries, events, attachment: None })
    }

    async fn fetch_state(&self, id: Uuid, wait: Duration) -> Result<Option<MessageState>, Refusal> {
        let url = format!("{BASE}/api/messages/{id}?wait={}", whole_seconds(wait));
        let response = self.http.get(url).send().await.map_err(|error| unreachable(&error))?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        parse_acceptance(response).await
    }
}

#[async_trait]
impl NameDirectory for ControlClient {
    async fn names(&self) -> CompletionNames {
        match self.terminal_info(&TerminalConversation::of(None)).await {
            Ok(TerminalInfo { sessions, models, .. }) => CompletionNames { sessions, models },
            Err(error) => {
                tracing::debug!(%error, "completion names are not available");
                CompletionNames::default()
            }
        }
    }

    async fn model(&self, conversation: &TerminalConversation) -> Result<String, String> {
        self.terminal_info(conversation).await.map(|info| info.model).map_err(|error| format!("{error:#}"))
    }
}

#[async_trait]
impl TerminalHost for ControlClient {
    async fn follow(&self, conversation: &TerminalConversation) -> Result<ConversationFeed, StartError> {
        self.attach(conversation).await.map_err(|error| StartError(format!("{error:#}")))
    }

    fn reconnect_timeout(&self) -> Duration {
        RESTART_PATIENCE
    }
}

/// Forwards the frames of the stream until the stream ends or the receivers are gone.
async fn forward_frames(
    response: Response,
    deliver: Sender<ScreenDelivery>,
    show: Sender<SessionEvent>,
    attached: tokio::sync::oneshot::Sender<()>,
) {
    let mut attached = Some(attached);
    let mut stream = response.bytes_stream();
    let mut frames = SseReader::new(FRAME_LIMIT);
    loop {
        let bytes = tokio::select! {
            bytes = stream.next() => bytes,
            // The terminal now follows another conversation. Closing the connection tells the gateway.
            () = deliver.closed() => return,
        };
        let Some(Ok(bytes)) = bytes else { return };
        frames.push(&bytes);
        loop {
            let data = match frames.next_event() {
                Ok(Some(data)) => data,
                Ok(None) => break,
                Err(EventTooLong) => {
                    tracing::warn!("the gateway sent a frame that is too long; this terminal no longer follows it");
                    return;
                }
            };
            let forwarded = match serde_json::from_str(&data) {
                Ok(TerminalFrame::Attached) => attached.take().is_none_or(|sender| sender.send(()).is_ok()),
                Ok(TerminalFrame::Delivery(message)) => deliver.send(ScreenDelivery::from(message)).await.is_ok(),
                Ok(TerminalFrame::Event(event)) => show.send(event).await.is_ok(),
                Err(error) => {
                    tracing::debug!(%error, "a frame of an unknown version is ignored");
                    true
                }
            };
            if !forwarded {
                return;
            }
        }
    }
}

#[async_trait]
impl Inbox for ControlClient {
    async fn accept(&self, message: InboundMessage, _: AcceptExtras) -> Result<Acceptance, Refusal> {
        let request = self.http.post(format!("{BASE}/api/messages")).json(&message);
        parse_acceptance(request.send().await.map_err(|error| unreachable(&error))?).await
    }

    async fn answer(&self, _: InboundMessage, _: String, _: AcceptExtras) -> Result<Acceptance, Refusal> {
        Err(Refusal::Invalid("a terminal answers nobody itself".to_owned()))
    }

    async fn skip(&self, _: AcceptExtras, _: &str) -> Result<(), Refusal> {
        Err(Refusal::Invalid("a terminal has no cursor".to_owned()))
    }

    async fn note(&self, _: &str, _: &str, _: &str) -> Result<Option<StoredNote>, Refusal> {
        Ok(None)
    }

    async fn sent(&self, _: &str, _: Uuid) -> Result<Option<SentMessage>, Refusal> {
        Ok(None)
    }

    async fn cursor(&self, _: &str, _: &str) -> Result<Option<Cursor>, Refusal> {
        Ok(None)
    }

    async fn state(&self, _: &str, id: &str) -> Result<Option<MessageState>, Refusal> {
        let id: Uuid = id.parse().map_err(|_| Refusal::Invalid(format!("{id} is not a message's id")))?;
        self.fetch_state(id, Duration::ZERO).await
    }

    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, Refusal> {
        self.fetch_state(id, limit.min(WAIT)).await
    }
}

/// Returns a wait in seconds, rounded up: a caller that repeats a wait of less than a second would otherwise never wait.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

async fn parse_answer<T: DeserializeOwned>(response: Response) -> anyhow::Result<T> {
    let status = response.status();
    let body = response.bytes().await.context(CUT_OFF)?;
    if status.is_success() {
        return serde_json::from_slice(&body).context("the gateway's answer cannot be read");
    }
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    match error.pointer("/error/message").and_then(Value::as_str) {
        Some(message) => Err(anyhow!("{message}")),
        None if error["parts"].is_object() => {
            Err(anyhow!("the gateway is not ready: {}", failed_parts(&error["parts"])))
        }
        None => Err(anyhow!("the gateway answered {status}")),
    }
}

/// Returns the parts of an answer of `/readyz` that are not ready, with their states.
fn failed_parts(parts: &Value) -> String {
    let channels = parts["channels"].as_object().into_iter().flatten();
    let channels = channels.map(|(name, state)| (format!("channel {name}"), state));
    let all = [("intake".to_owned(), &parts["intake"])].into_iter().chain(channels);
    let states = all.filter_map(|(name, state)| Some((name, state.as_str()?)));
    let failed = states.filter(|(_, state)| !matches!(*state, "ok" | "stopped"));
    failed.map(|(name, state)| format!("{name}: {state}")).collect::<Vec<_>>().join("; ")
}

/// Parses the answer to a message, or the refusal that it means.
async fn parse_acceptance<T: DeserializeOwned>(response: Response) -> Result<T, Refusal> {
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let (status, retry_after) = (response.status(), Duration::from_secs(retry_after.unwrap_or(5)));
    parse_answer(response).await.map_err(|error| to_refusal(error.to_string(), status, retry_after))
}

/// Returns the refusal that the gateway's answer means. Sending the message again can help only after 429 and 503, and if the answer
/// was lost.
fn to_refusal(reason: String, status: StatusCode, retry_after: Duration) -> Refusal {
    let draining = Refusal::Draining { retry_after };
    match status {
        _ if reason == draining.to_string() => draining,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Refusal::Busy { reason, retry_after },
        _ if status.is_success() => Refusal::Store { reason, retry_after },
        _ => Refusal::Invalid(reason),
    }
}

fn unreachable(error: &reqwest::Error) -> Refusal {
    let reason = format!("{NO_ANSWER} ({error})");
    Refusal::Store { reason, retry_after: Duration::from_secs(5) }
}

#[cfg(test)]
mod tests {
    use daoyou_channels::TurnEvent;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_short_wait_is_not_rounded_to_none() {
        for (millis, seconds) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (2_000, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }

    #[test]
    fn only_temporary_refusals_and_lost_answers_are_worth_another_attempt() {
        let retry_after = Duration::from_secs(2);
        let draining = Refusal::Draining { retry_after };
        let invalid = |reason: &str| Refusal::Invalid(reason.to_owned());
        let busy = |reason: &str| Refusal::Busy { reason: reason.to_owned(), retry_after };
        for (reason, status, expected) in [
            ("no message", 400, invalid("no message")),
            ("no access", 401, invalid("no access")),
            ("the body is too large", 413, invalid("the body is too large")),
            ("the message's id is empty", 422, invalid("the message's id is empty")),
            ("the gateway failed", 500, invalid("the gateway failed")),
            ("session a already has 9 messages waiting", 429, busy("session a already has 9 messages waiting")),
            ("the gateway already has 9 messages waiting", 503, busy("the gateway already has 9 messages waiting")),
            ("cut off", 200, Refusal::Store { reason: "cut off".to_owned(), retry_after }),
            (&draining.to_string(), 503, draining.clone()),
        ] {
            assert_eq!(to_refusal(reason.to_owned(), StatusCode::from_u16(status).unwrap(), retry_after), expected);
        }
    }

    /// A gateway of another version may send events, and fields of events, that this client does not know.
    #[tokio::test]
    async fn unknown_frames_and_fields_are_ignored() {
        let event = |event: Value| {
            json!({"event": {"session": "cli:direct", "turn": Uuid::nil(), "channel": "cli", "chat_id": "direct",
                             "event": event}})
        };
        let frames = [
            json!("attached"),
            event(json!({"type": "text", "delta": "Hel", "colour": "red"})),
            event(json!({"type": "not_yet_invented", "delta": "?"})),
            json!({"not_yet_invented": 1}),
            event(json!({"type": "text", "delta": "lo"})),
        ];
        let body: String = frames.iter().map(|frame| format!("data: {frame}\n\n")).collect();
        let response = Response::from(axum::http::Response::new(body));
        let (deliver, _deliveries) = async_channel::bounded(BACKLOG);
        let (show, events) = async_channel::bounded(BACKLOG);
        let (attached, is_attached) = tokio::sync::oneshot::channel();
        forward_frames(response, deliver, show, attached).await;
        is_attached.await.unwrap();
        let shown: Vec<TurnEvent> = std::iter::from_fn(|| events.try_recv().ok()).map(|shown| shown.event).collect();
        assert_eq!(shown, ["Hel", "lo"].map(|delta| TurnEvent::Text { delta: delta.to_owned() }));
    }
}
