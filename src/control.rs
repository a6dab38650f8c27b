//! The control socket's client: what the commands use when a gateway runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use async_channel::Receiver;
use async_trait::async_trait;
use daoyou_channels::cli::Delivery;
use daoyou_channels::{Acceptance, Cursor, InboundMessage, Inbox, MessageState, Refusal, SessionEvent};
use futures_util::StreamExt;
use reqwest::{Client, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::http::attach::Frame;
use crate::llm::SseReader;

/// What stands before the path; nobody resolves the name.
const BASE: &str = "http://daoyou";

/// How long one request waits for a message to end; then it asks again.
const WAIT: Duration = Duration::from_secs(30);

/// Frames that may wait to be shown.
const BACKLOG: usize = 1_024;

/// The largest frame, in bytes: a reply as long as a model can write, and more.
const FRAME_LIMIT: usize = 16 * 1024 * 1024;

/// Speaks to the gateway of a home.
#[derive(Clone)]
pub struct ControlClient {
    http: Client,
}

/// A chat that is followed from here.
pub struct Followed {
    /// The model that answers, as the gateway named it.
    pub model: String,
    pub deliveries: Receiver<Delivery>,
    pub events: Receiver<SessionEvent>,
}

impl ControlClient {
    /// A client for the socket at `path`. Nothing is sent yet.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        crate::llm::install_crypto();
        // No certificates are needed on a Unix socket, and loading them takes time.
        let http = Client::builder().unix_socket(path).tls_certs_only(std::iter::empty()).no_proxy().build()?;
        Ok(Self { http })
    }

    /// Asks for data.
    ///
    /// # Errors
    /// No gateway answers, or it says no; in its words.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.request(Method::GET, path).await
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// As [`ControlClient::get`].
    pub async fn request(&self, method: Method, path: &str) -> anyhow::Result<Value> {
        let response = self.http.request(method, format!("{BASE}{path}")).send().await;
        read(response.context("the gateway does not answer on its control socket")?).await
    }

    /// Follows a chat of the channel `cli` until the stream is dropped or the gateway goes.
    pub async fn follow(&self, chat_id: &str, session: Option<&str>) -> anyhow::Result<Followed> {
        let mut query = vec![("chat_id", chat_id)];
        query.extend(session.map(|session| ("session", session)));
        let response = self.http.get(format!("{BASE}/api/attach")).query(&query).send().await?;
        if !response.status().is_success() {
            bail!("the gateway does not let this terminal follow the chat: {}", response.status());
        }
        let (deliver, deliveries) = async_channel::bounded(BACKLOG);
        let (show, events) = async_channel::bounded(BACKLOG);
        let (attached, model) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut attached = Some(attached);
            let mut stream = response.bytes_stream();
            let mut frames = SseReader::new(FRAME_LIMIT);
            while let Some(Ok(bytes)) = stream.next().await {
                frames.push(&bytes);
                while let Ok(Some(data)) = frames.next_event() {
                    let handed_on = match serde_json::from_str(&data) {
                        Ok(Frame::Attached { model }) => attached.take().is_none_or(|told| told.send(model).is_ok()),
                        Ok(Frame::Delivery(message)) => deliver.send(Delivery::from(message)).await.is_ok(),
                        Ok(Frame::Event(event)) => show.send(event).await.is_ok(),
                        Err(error) => {
                            tracing::debug!(%error, "a frame of another version");
                            true
                        }
                    };
                    if !handed_on {
                        return;
                    }
                }
            }
        });
        let model = model.await.map_err(|_| anyhow!("the gateway closed the connection"))?;
        Ok(Followed { model, deliveries, events })
    }
}

#[async_trait]
impl Inbox for ControlClient {
    async fn accept(&self, message: InboundMessage, _: Option<Cursor>) -> Result<Acceptance, Refusal> {
        let request = self.http.post(format!("{BASE}/api/messages")).json(&message);
        let response = request.send().await.map_err(|error| gone(&error))?;
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        match read(response).await {
            Ok(acceptance) => Ok(acceptance),
            Err(error) => {
                let retry_after = Duration::from_secs(retry_after.unwrap_or(5));
                Err(Refusal::Store { reason: error.to_string(), retry_after })
            }
        }
    }

    async fn skip(&self, _: Cursor, _: &str) -> Result<(), Refusal> {
        Err(Refusal::Invalid("a terminal has no cursor".to_owned()))
    }

    async fn cursor(&self, _: &str, _: &str) -> Result<Option<Cursor>, Refusal> {
        Ok(None)
    }

    async fn state(&self, _: &str, id: &str) -> Result<Option<MessageState>, Refusal> {
        let id: Uuid = id.parse().map_err(|_| Refusal::Invalid(format!("{id} is no message's id")))?;
        self.look(id, Duration::ZERO).await
    }

    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, Refusal> {
        self.look(id, limit.min(WAIT)).await
    }
}

impl ControlClient {
    async fn look(&self, id: Uuid, wait: Duration) -> Result<Option<MessageState>, Refusal> {
        let url = format!("{BASE}/api/messages/{id}?wait={}", wait.as_secs());
        let response = self.http.get(url).send().await.map_err(|error| gone(&error))?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let retry_after = Duration::from_secs(5);
        read(response).await.map_err(|error| Refusal::Store { reason: error.to_string(), retry_after })
    }
}

async fn read<T: DeserializeOwned>(response: Response) -> anyhow::Result<T> {
    let status = response.status();
    let body = response.bytes().await.context("the gateway broke off its answer")?;
    if status.is_success() {
        return serde_json::from_slice(&body).context("the gateway's answer cannot be read");
    }
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    match error.pointer("/error/message").and_then(Value::as_str) {
        Some(message) => Err(anyhow!("{message}")),
        None => Err(anyhow!("the gateway answered {status}")),
    }
}

fn gone(error: &reqwest::Error) -> Refusal {
    let reason = format!("the gateway does not answer on its control socket ({error})");
    Refusal::Store { reason, retry_after: Duration::from_secs(5) }
}
