//! Transports that are driven by a separate task. The transport in this file is for a program that uses its standard input and
//! output, one message per line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::message::messages_in;
use super::{MAX_MESSAGE, MessageCount, ServerLabel};
use crate::text::{format_size, one_line, truncate};
use crate::tools::{ServerProcess, ServerSocket};

/// How long a server may take to read a message.
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// How long a server may take to end after its input was closed.
const END_LIMIT: Duration = Duration::from_secs(2);
/// The maximum number of messages that wait in each direction.
const QUEUE: usize = 64;
/// The size of one read, in bytes.
const CHUNK: usize = 64 * 1_024;
/// The maximum amount of text that is not a message, in lines and in bytes.
const MAX_NOISE_LINES: usize = 10_000;
const MAX_NOISE_BYTES: usize = 4_000_000;
/// The number of such lines that go to the log.
const LOGGED_NOISE: usize = 5;
/// The maximum number of requests of a server that may wait for their answers.
const MAX_REQUESTS: usize = 100;

/// Why a message was not sent.
#[derive(Debug, Error)]
pub(super) enum McpSendError {
    #[error("the connection has ended")]
    Ended,
    #[error("the server reads nothing that is sent to it")]
    Stuck,
    #[error("the message cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// The library's end of a connection. Dropping it tells the task of the connection to end.
pub(super) struct TaskTransport {
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    /// The number of requests of the server that have no answer yet.
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
    _drop_guard: DropGuard,
}

/// The queue to which a task adds the messages of the server.
pub(super) struct IncomingMessages {
    to_library: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    requests: Arc<AtomicUsize>,
    server: ServerLabel,
    count: MessageCount,
    noise_lines: usize,
    noise_bytes: usize,
}

impl IncomingMessages {
    /// Passes on a text of the server.
    ///
    /// # Errors
    /// The connection must end, for this reason; `None` if the receiver is gone.
    pub(super) async fn pass(&mut self, bytes: &[u8]) -> Result<(), Option<String>> {
        self.count.add()?;
        let Some(messages) = messages_in(bytes, &self.server) else { return self.count_noise(bytes) };
        for message in messages {
            let is_request = matches!(message, JsonRpcMessage::Request(_));
            if is_request && self.requests.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
                return Err(Some(format!("it asked more than {MAX_REQUESTS} things without reading the answers")));
            }
            self.to_library.send(message).await.map_err(|_| None)?;
        }
        Ok(())
    }

    fn count_noise(&mut self, bytes: &[u8]) -> Result<(), Option<String>> {
        if self.noise_lines < LOGGED_NOISE && !bytes.trim_ascii().is_empty() {
            let text = truncate(&one_line(&self.server.redacted(String::from_utf8_lossy(bytes))), 200);
            tracing::debug!(server = self.server.name, text, "an MCP server printed something that is not a message");
        }
        self.noise_lines += 1;
        self.noise_bytes += bytes.len();
        if self.noise_lines > MAX_NOISE_LINES || self.noise_bytes > MAX_NOISE_BYTES {
            return Err(Some("it prints too much to its standard output that is not a message".to_owned()));
        }
        Ok(())
    }
}

impl TaskTransport {
    /// Starts the task that `run` creates from its ends of both queues, and from a token that is cancelled when the library has
    /// dropped its ends. The library drops them without closing them if the start fails.
    pub(super) fn start<F>(
        server: &ServerLabel,
        run: impl FnOnce(IncomingMessages, mpsc::Receiver<Vec<u8>>, CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (to_library, incoming) = mpsc::channel(QUEUE);
        let (outgoing, to_server) = mpsc::channel(QUEUE);
        let requests = Arc::new(AtomicUsize::new(0));
        let messages = IncomingMessages {
            to_library,
            requests: Arc::clone(&requests),
            server: server.clone(),
            count: MessageCount::new(),
            noise_lines: 0,
            noise_bytes: 0,
        };
        let dropped = CancellationToken::new();
        let drop_guard = dropped.clone().drop_guard();
        let task = tokio::spawn(run(messages, to_server, dropped));
        Self { incoming, outgoing: Some(outgoing), requests, task, _drop_guard: drop_guard }
    }
}

impl Transport<RoleClient> for TaskTransport {
    type Error = McpSendError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (outgoing, requests) = (self.outgoing.clone(), Arc::clone(&self.requests));
        async move {
            if matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
                let _ = requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
            }
            let message = serde_json::to_vec(&item)?;
            match timeout(SEND_LIMIT, outgoing.ok_or(McpSendError::Ended)?.send(message)).await {
                Ok(sent) => sent.map_err(|_| McpSendError::Ended),
                Err(_) => Err(McpSendError::Stuck),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // Closing its input asks a server to end. Its further output is not needed.
        self.outgoing = None;
        self.incoming.close();
        drop(timeout(END_LIMIT + END_LIMIT, &mut self.task).await);
        Ok(())
    }
}

/// Connects to a program that was started. `ended` gets how the program ended, and is dropped once all its processes are gone.
pub(super) fn connect(
    server: &ServerLabel,
    process: ServerProcess,
    socket: ServerSocket,
    ended: watch::Sender<Option<String>>,
) -> TaskTransport {
    let ServerLabel { name, secrets } = server.clone();
    TaskTransport::start(server, move |mut incoming, outgoing, dropped| async move {
        let ServerSocket { mut reader, writer } = socket;
        let work = async {
            let writing = write_messages(writer, outgoing);
            tokio::pin!(writing);
            tokio::select! {
                fault = read_messages(&mut reader, &mut incoming) => fault,
                () = &mut writing => None,
                () = dropped.cancelled() => None,
            }
        };
        let log = |line: &str| {
            if !line.is_empty() {
                tracing::debug!(server = name, line, "an MCP server says");
            }
        };
        let note_end = |how: &str| {
            tracing::info!(server = name, how, "an MCP server ended");
            ended.send_replace(Some(how.to_owned()));
        };
        process.run(work, &secrets, log, note_end).await;
    })
}

/// Reads messages. Returns why the server must be stopped, or `None` at the end of its output.
async fn read_messages(reader: &mut OwnedReadHalf, incoming: &mut IncomingMessages) -> Option<String> {
    let (mut received, mut chunk, mut searched) = (Vec::new(), vec![0; CHUNK], 0);
    loop {
        let mut begin = 0;
        while let Some(end) = received[searched..].iter().position(|byte| *byte == b'\n') {
            let end = searched + end;
            if let Err(fault) = incoming.pass(&received[begin..=end]).await {
                return fault;
            }
            (begin, searched) = (end + 1, end + 1);
        }
        drop(received.drain(..begin));
        searched = received.len();
        tokio::task::consume_budget().await;
        if received.len() > MAX_MESSAGE {
            return Some(format!("it sent a message of more than {}", format_size(MAX_MESSAGE as u64)));
        }
        match reader.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => received.extend_from_slice(&chunk[..read]),
        }
    }
}

/// Writes messages. After the last one, closes the server's input, and waits a while for the server to end by itself.
async fn write_messages(mut writer: OwnedWriteHalf, mut outgoing: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut message) = outgoing.recv().await {
        message.push(b'\n');
        if writer.write_all(&message).await.is_err() {
            return;
        }
    }
    if writer.shutdown().await.is_ok() {
        tokio::time::sleep(END_LIMIT).await;
    }
}
