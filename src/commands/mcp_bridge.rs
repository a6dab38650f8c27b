//! `daoyou mcp serve`: passes the lines of an MCP client to the running gateway, and the gateway's responses back. When the gateway
//! restarts, the bridge reconnects and repeats the handshake, which the client does not notice.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::time::Instant;
use uuid::Uuid;

use super::CommandExit;
use super::access::GatewayAccess;
use super::environment::CommandEnvironment;
use super::output;
use crate::control::ControlClient;

/// The longest line of either side, in bytes. The gateway accepts shorter lines, and its responses are bounded as well.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// The time that a request waits for a restarting gateway, and the number of its tries.
const RESTART_LIMIT: Duration = Duration::from_secs(10);
const RESTART_INTERVAL: Duration = Duration::from_millis(100);
/// The most pending requests of a client. Further ones get no response if the gateway stops.
const MAX_PENDING: usize = 1_000;
/// The error code of JSON-RPC for a server's own errors.
const SERVER_ERROR: i32 = -32_000;

/// Serves MCP until the client closes standard input.
///
/// # Errors
/// No gateway is running at the start, or standard output is closed.
pub async fn run(session: Option<&str>, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let client = match GatewayAccess::find(&environment.home).await? {
        GatewayAccess::Running(client) => client,
        GatewayAccess::Offline(_) => {
            bail!("no gateway runs here: start one with `daoyou gateway`, or `daoyou service install`")
        }
    };
    let connection = connection_name(session)?;
    let stream = client.open_mcp_stream(&connection).await?;
    let (read, write) = tokio::io::split(stream);
    let mut bridge = McpBridge {
        client,
        connection,
        gateway: Some((LineReader::new(read), write)),
        handshake: Handshake::default(),
        pending: HashMap::new(),
        out: output::protocol_output(),
    };
    bridge.run(LineReader::new(tokio::io::stdin())).await?;
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
                    Some(BridgeLine::Complete(line)) => self.take_client_line(line).await?,
                    Some(BridgeLine::TooLong) => {
                        self.answer(&Value::Null, &format!("a message has more than {MAX_LINE} bytes")).await?;
                    }
                    None => return self.finish().await,
                },
                line = take_gateway_line => match line {
                    Ok(Some(BridgeLine::Complete(line))) => self.take_gateway_line(&line).await?,
                    Ok(Some(BridgeLine::TooLong)) => output::print_note("an answer of the gateway is too long and was left out"),
                    Ok(None) | Err(_) => self.lose_gateway().await?,
                },
            }
        }
    }

    async fn take_client_line(&mut self, line: Vec<u8>) -> anyhow::Result<()> {
        let message: Value = serde_json::from_slice(&line).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        if self.gateway.is_none() && !self.reconnect(&method).await? {
            if let Some(id) = id.filter(|_| !method.is_empty()) {
                let text = "no gateway runs any more: start one with `daoyou gateway`, then call again";
                self.answer(&id, text).await?;
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

    /// Connects to the next gateway and repeats the handshake; returns false if no gateway starts in time.
    async fn reconnect(&mut self, method: &str) -> anyhow::Result<bool> {
        let until = Instant::now() + RESTART_LIMIT;
        while Instant::now() < until {
            match self.client.open_mcp_stream(&self.connection).await {
                Ok(stream) => {
                    let (read, write) = tokio::io::split(stream);
                    let mut gateway = (LineReader::new(read), write);
                    // A client that begins anew makes its own handshake.
                    if method == "initialize" || self.repeat_handshake(&mut gateway).await? {
                        self.gateway = Some(gateway);
                        return Ok(true);
                    }
                }
                Err(error) => tracing::debug!(%error, "the gateway is not back"),
            }
            tokio::time::sleep(RESTART_INTERVAL).await;
        }
        Ok(false)
    }

    async fn repeat_handshake(&self, (read, write): &mut GatewaySide) -> anyhow::Result<bool> {
        let Some((initialize, id)) = &self.handshake.initialize else { return Ok(true) };
        if send(write, initialize).await.is_err() {
            return Ok(false);
        }
        loop {
            let answer = tokio::time::timeout(RESTART_LIMIT, read.next()).await;
            let Ok(Ok(Some(BridgeLine::Complete(line)))) = answer else { return Ok(false) };
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
        let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": SERVER_ERROR, "message": text } });
        send(&mut self.out, error.to_string().as_bytes()).await.context("standard output")
    }

    /// Passes on the gateway's remaining responses after the end of the input.
    async fn finish(&mut self) -> anyhow::Result<()> {
        let Some((mut read, mut write)) = self.gateway.take() else { return Ok(()) };
        if write.shutdown().await.is_err() {
            return Ok(());
        }
        while let Ok(Some(line)) = read.next().await {
            if let BridgeLine::Complete(line) = line {
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

/// A line of one side.
#[derive(Debug, PartialEq, Eq)]
enum BridgeLine {
    /// A line with its line break, if it has one.
    Complete(Vec<u8>),
    /// The line was longer than [`MAX_LINE`] and was dropped.
    TooLong,
}

/// A reader of lines of bounded length. Dropping a pending read loses no data.
struct LineReader<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    /// The rest of a line that is too long is being dropped.
    is_dropping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    fn new(from: R) -> Self {
        Self { from: BufReader::new(from), line: Vec::new(), is_dropping: false }
    }

    /// Returns the next line; `None` at the end.
    async fn next(&mut self) -> std::io::Result<Option<BridgeLine>> {
        loop {
            let available = self.from.fill_buf().await?;
            if available.is_empty() {
                let rest = std::mem::take(&mut self.line);
                return Ok((!rest.is_empty()).then_some(BridgeLine::Complete(rest)));
            }
            let end = available.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let length = end.unwrap_or(available.len());
            self.is_dropping |= self.line.len() + length > MAX_LINE;
            if self.is_dropping {
                self.line.clear();
            } else {
                self.line.extend_from_slice(&available[..length]);
            }
            self.from.consume(length);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Ok(Some(if std::mem::take(&mut self.is_dropping) {
                    BridgeLine::TooLong
                } else {
                    BridgeLine::Complete(line)
                }));
            }
        }
    }
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

    #[tokio::test]
    async fn lines_are_bounded_and_the_next_one_is_read() {
        let mut input = b"a\n".to_vec();
        input.extend(vec![b'x'; MAX_LINE + 1]);
        input.extend(b"\nb\nc");
        let mut lines = LineReader::new(input.as_slice());
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        let complete = |text: &str| BridgeLine::Complete(text.as_bytes().to_vec());
        assert_eq!(found, [complete("a\n"), BridgeLine::TooLong, complete("b\n"), complete("c")]);
    }
}
