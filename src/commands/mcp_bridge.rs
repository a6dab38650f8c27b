//! `daoyou mcp serve`: passes the lines of an MCP client to the running gateway, and the gateway's responses back. When the gateway
//! restarts, the bridge reconnects and repeats the handshake, which the client does not notice.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant;
use uuid::Uuid;

use super::CommandExit;
use super::access::find_gateway;
use super::environment::CommandEnvironment;
use super::output;
use crate::control::ControlClient;
use crate::gateway::{BoundedLine, LineReader, MAX_MESSAGE, too_long_error};

/// The longest line of the gateway, in bytes. Its responses are shorter.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// The time that a request waits for a restarting gateway, and the number of its tries.
const RESTART_LIMIT: Duration = Duration::from_secs(10);
const RESTART_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of pending requests of a client. Further ones get no response if the gateway stops.
const MAX_PENDING: usize = 1_000;
/// The error if no gateway runs after [`RESTART_LIMIT`].
const NO_GATEWAY: &str = "no gateway runs any more: start one with `daoyou gateway`, then call again";
/// The error code of JSON-RPC for a server's own errors.
const SERVER_ERROR: i32 = -32_000;

/// Serves MCP until the client closes standard input.
///
/// # Errors
/// No gateway is running at the start, or standard output is closed.
pub async fn run(session: Option<&str>, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let Some(client) = find_gateway(&environment.home).await? else {
        bail!("no gateway runs here: start one with `daoyou gateway`, or `daoyou service install`");
    };
    let connection = connection_name(session)?;
    let stream = client.open_mcp_stream(&connection).await?;
    let (read, write) = tokio::io::split(stream);
    let mut bridge = McpBridge {
        client,
        connection,
        gateway: Some((LineReader::new(read, MAX_LINE), write)),
        handshake: Handshake::default(),
        pending: HashMap::new(),
        out: output::protocol_output(),
    };
    bridge.run(LineReader::new(tokio::io::stdin(), MAX_MESSAGE)).await?;
    Ok(CommandExit::Ok)
}

/// Returns the name of the connection, which is part of its session's key: that of `--session`, or a random one.
fn connection_name(session: Option<&str>) -> anyhow::Result<String> {
    let is_name =
        |name: &str| (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    match session {
        None => Ok(Uuid::new_v4().simple().to_string()[..12].to_owned()),
        Some(name) if is_name(name) => Ok(name.to_owned()),
        Some(_) => bail!("--session: 1 to 64 letters, digits and -; its key is mcp:NAME"),
    }
}

type GatewaySide = (LineReader<ReadHalf<reqwest::Upgraded>>, WriteHalf<reqwest::Upgraded>);

/// The first messages of a client of the protocol's older versions, to be repeated for the next gateway.
#[derive(Default)]
struct Handshake {
    /// The line of `initialize`, and its id.
    initialize: Option<(Vec<u8>, Value)>,
    /// The line of `notifications/initialized`.
    initialized: Option<Vec<u8>>,
}

struct McpBridge<Out> {
    client: ControlClient,
    connection: String,
    /// `None` after the gateway has ended.
    gateway: Option<GatewaySide>,
    handshake: Handshake,
    /// The pending requests with their methods, by the JSON of their ids.
    pending: HashMap<String, (Value, String)>,
    out: Out,
}

impl<Out: AsyncWrite + Unpin> McpBridge<Out> {
    async fn run<In: AsyncRead + Unpin>(&mut self, mut input: LineReader<In>) -> anyhow::Result<()> {
        loop {
            let take_gateway_line = async {
                match &mut self.gateway {
                    Some((read, _)) => read.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = input.next() => match line.context("standard input")? {
                    Some(BoundedLine::Complete(line)) => self.take_client_line(line).await?,
                    Some(BoundedLine::TooLong(start)) => {
                        let answer = too_long_error(&start, |id| {
                            self.pending.contains_key(&id.clone().into_json_value().to_string())
                        });
                        self.answer_with(&answer).await?;
                    }
                    None => return self.finish().await,
                },
                line = take_gateway_line => match line {
                    Ok(Some(BoundedLine::Complete(line))) => self.take_gateway_line(&line).await?,
                    Ok(Some(BoundedLine::TooLong(_))) => output::print_note("an answer of the gateway is too long and was left out"),
                    Ok(None) | Err(_) => self.lose_gateway().await?,
                },
            }
        }
    }

    async fn take_client_line(&mut self, line: Vec<u8>) -> anyhow::Result<()> {
        let message: Value = serde_json::from_slice(&line).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        if self.gateway.is_none()
            && let Some(reason) = self.reconnect(&method).await?
        {
            if let Some(id) = id.filter(|_| !method.is_empty()) {
                self.answer(&id, &reason).await?;
            }
            return Ok(());
        }
        match (&id, method.as_str()) {
            (Some(id), "initialize") => self.handshake.initialize = Some((line.clone(), id.clone())),
            (None, "notifications/initialized") => self.handshake.initialized = Some(line.clone()),
            _ => {}
        }
        if let Some(id) = id.filter(|_| !method.is_empty() && self.pending.len() < MAX_PENDING) {
            self.pending.insert(id.to_string(), (id, method));
        }
        if let Some((_, write)) = &mut self.gateway
            && send(write, &line).await.is_err()
        {
            self.lose_gateway().await?;
        }
        Ok(())
    }

    async fn take_gateway_line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        if message.get("method").is_none() {
            self.pending.remove(&message["id"].to_string());
        }
        send(&mut self.out, line).await.context("standard output")
    }

    /// Answers all pending requests with an error, because the gateway has ended.
    async fn lose_gateway(&mut self) -> anyhow::Result<()> {
        self.gateway = None;
        output::print_note("the gateway ended; the next request waits for its restart");
        let pending: Vec<_> = self.pending.drain().map(|(_, pending)| pending).collect();
        for (id, method) in pending {
            let text = match method.as_str() {
                "tools/call" => format!(
                    "the gateway ended before its answer. What it accepted is kept: an ask is answered after the restart, in session \
                     mcp:{} unless another was named",
                    self.connection
                ),
                _ => "the gateway ended before its answer".to_owned(),
            };
            self.answer(&id, &text).await?;
        }
        Ok(())
    }

    /// Connects to the next gateway and repeats the handshake; returns the reason if that does not succeed in time.
    async fn reconnect(&mut self, method: &str) -> anyhow::Result<Option<String>> {
        let mut reason = NO_GATEWAY.to_owned();
        let until = Instant::now() + RESTART_LIMIT;
        while Instant::now() < until {
            match self.client.open_mcp_stream(&self.connection).await {
                Ok(stream) => {
                    let (read, write) = tokio::io::split(stream);
                    let mut gateway = (LineReader::new(read, MAX_LINE), write);
                    // A client that begins anew makes its own handshake.
                    if method == "initialize" || self.repeat_handshake(&mut gateway).await? {
                        self.gateway = Some(gateway);
                        return Ok(None);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the gateway is not back");
                    // A gateway that refuses the stream says why.
                    reason = if error.is::<reqwest::Error>() { NO_GATEWAY.to_owned() } else { format!("{error:#}") };
                }
            }
            tokio::time::sleep(RESTART_INTERVAL).await;
        }
        Ok(Some(reason))
    }

    async fn repeat_handshake(&self, (read, write): &mut GatewaySide) -> anyhow::Result<bool> {
        let Some((initialize, id)) = &self.handshake.initialize else { return Ok(true) };
        if send(write, initialize).await.is_err() {
            return Ok(false);
        }
        loop {
            let answer = tokio::time::timeout(RESTART_LIMIT, read.next()).await;
            let Ok(Ok(Some(BoundedLine::Complete(line)))) = answer else { return Ok(false) };
            let message: Value = serde_json::from_slice(&line).unwrap_or_default();
            if message["id"] == *id {
                break;
            }
        }
        match &self.handshake.initialized {
            Some(initialized) => Ok(send(write, initialized).await.is_ok()),
            None => Ok(true),
        }
    }

    async fn answer(&mut self, id: &Value, text: &str) -> anyhow::Result<()> {
        self.answer_with(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": SERVER_ERROR, "message": text } }))
            .await
    }

    async fn answer_with(&mut self, answer: &Value) -> anyhow::Result<()> {
        send(&mut self.out, answer.to_string().as_bytes()).await.context("standard output")
    }

    /// Passes on the gateway's remaining responses after the end of the input.
    async fn finish(&mut self) -> anyhow::Result<()> {
        let Some((mut read, mut write)) = self.gateway.take() else { return Ok(()) };
        if write.shutdown().await.is_err() {
            return Ok(());
        }
        while let Ok(Some(line)) = read.next().await {
            if let BoundedLine::Complete(line) = line {
                self.take_gateway_line(&line).await?;
            }
        }
        Ok(())
    }
}

async fn send(to: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> std::io::Result<()> {
    to.write_all(line).await?;
    if !line.ends_with(b"\n") {
        to.write_all(b"\n").await?;
    }
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_session_has_1_to_64_characters() {
        for (name, is_valid) in [("work", true), ("a-1", true), (&*"x".repeat(64), true)].into_iter().chain([
            ("", false),
            ("a b", false),
            ("a:b", false),
            (&*"x".repeat(65), false),
        ]) {
            assert_eq!(connection_name(Some(name)).is_ok(), is_valid, "{name:?}");
        }
        assert_eq!(connection_name(None).unwrap().len(), 12);
    }
}
