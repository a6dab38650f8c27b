//! The connection to a language server, which runs below a supervisor like a command. Its standard input and output are one
//! socket. Dropping the connection ends the server, and so does the death of the gateway.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lsp_types::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::client_state::ClientState;
use super::framing::{FrameDecoder, frame};
use crate::guard::{ExecRequest, KnownSecrets};
use crate::live::Live;
use crate::tools::ToolResult;
use crate::tools::exec::{ServerError, ServerProcess, ServerSocket};

/// How long a server may take to read a message.
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of messages that wait to be written.
const QUEUE: usize = 256;
/// The size of one read, in bytes.
const CHUNK: usize = 64 * 1_024;

impl From<ServerError> for ToolResult {
    fn from(error: ServerError) -> Self {
        if error.is_temporary { Self::failed_for_now(error.text) } else { Self::failed(error.text) }
    }
}

/// A running language server.
pub(super) struct LspConnection {
    /// The name of the server, as shown in texts.
    pub name: String,
    pub state: Arc<ClientState>,
    outgoing: mpsc::Sender<Vec<u8>>,
    next_id: AtomicI64,
    _running: AbortOnDropHandle<()>,
}

impl LspConnection {
    /// Starts the server of the project in the folder `root`. `exe` is the path of this program, which runs as the supervisor.
    ///
    /// # Errors
    /// The server cannot be started.
    pub(super) async fn start(
        exe: &Path,
        environment: &[(String, String)],
        request: &ExecRequest,
        name: String,
        root: Url,
    ) -> Result<Self, ServerError> {
        let started = ServerProcess::start(exe, environment, request).await;
        let (process, socket) = started
            .map_err(|error| ServerError { text: format!("{name} was not started: {}", error.text), ..error })?;
        let state = Arc::new(ClientState::new(root));
        let (outgoing, to_write) = mpsc::channel(QUEUE);
        let streams = ServerStreams { socket, to_write, answers: outgoing.downgrade() };
        let running = tokio::spawn(streams.run(process, Arc::clone(&state), name.clone()));
        Ok(Self { name, state, outgoing, next_id: AtomicI64::new(1), _running: AbortOnDropHandle::new(running) })
    }

    /// Returns the error of a server that has ended.
    pub(super) fn ended(&self) -> Option<ServerError> {
        self.state.ended().map(ServerError::for_now)
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// The server has ended, or reads nothing.
    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), ServerError> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    async fn send(&self, message: &Value) -> Result<(), ServerError> {
        match timeout(SEND_LIMIT, self.outgoing.send(frame(message))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.ended().unwrap_or_else(|| ServerError::for_now(format!("{} has ended", self.name)))),
            Err(_) => Err(ServerError::for_now(format!("{} reads nothing that is sent to it", self.name))),
        }
    }

    /// Sends a request, and returns the answer. Dropping the future cancels the request.
    ///
    /// # Errors
    /// The server has ended, answers with an error, or does not answer within `limit`; or the turn is cancelled.
    pub(super) async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Value, ServerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let answer = self.state.expect_answer(id).map_err(ServerError::for_now)?;
        scopeguard::defer! {
            if self.state.forget_request(id) {
                let message = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}});
                // If the queue is full, the server reads nothing, and the cancellation is not sent.
                drop(self.outgoing.try_send(frame(&message)));
            }
        }
        let name = &self.name;
        let asked = async {
            self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
            match answer.await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(fault)) => {
                    let text = format!("{name} answers: {}", fault.message);
                    Err(ServerError { text, is_temporary: fault.is_temporary })
                }
                Err(_) => Err(self.ended().unwrap_or_else(|| ServerError::for_now(format!("{name} has ended")))),
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ServerError::lasting(format!("Cancelled; {name} was told so"))),
            answered = timeout(limit, asked) => answered.unwrap_or_else(|_| {
                let seconds = limit.as_secs_f32().ceil();
                Err(ServerError::lasting(format!("{name} did not answer {method} within {seconds} seconds")))
            }),
        }
    }
}

/// The gateway's side of a server's streams.
struct ServerStreams {
    socket: ServerSocket,
    to_write: mpsc::Receiver<Vec<u8>>,
    answers: mpsc::WeakSender<Vec<u8>>,
}

impl ServerStreams {
    /// Passes messages on until the server ends, or sends something unreadable.
    async fn run(self, process: ServerProcess, state: Arc<ClientState>, name: String) {
        let Self { socket: ServerSocket { mut reader, mut writer }, mut to_write, answers } = self;
        let work = async {
            tokio::select! {
                fault = read_messages(&mut reader, &answers, &state) => fault,
                fault = write_messages(&mut writer, &mut to_write) => fault,
            }
        };
        let note_end = |end: &str| {
            let reason = format!("{name} {end}");
            tracing::info!(server = name, reason, "a language server ended");
            state.end(&reason);
        };
        process.run(work, &Live::<KnownSecrets>::default(), |_| {}, note_end).await;
    }
}

/// Reads messages. Returns what is wrong with them, or `None` at the end of the stream.
async fn read_messages(
    reader: &mut OwnedReadHalf,
    answers: &mpsc::WeakSender<Vec<u8>>,
    state: &ClientState,
) -> Option<String> {
    let (mut decoder, mut chunk) = (FrameDecoder::default(), vec![0; CHUNK]);
    loop {
        let read = match reader.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => read,
        };
        decoder.push(&chunk[..read]);
        if let Err(fault) = handle_messages(&mut decoder, answers, state) {
            return Some(fault);
        }
    }
}

/// Handles the messages that have arrived as a whole.
fn handle_messages(
    decoder: &mut FrameDecoder,
    answers: &mpsc::WeakSender<Vec<u8>>,
    state: &ClientState,
) -> Result<(), String> {
    while let Some(message) = decoder.next_message()? {
        let Some(answer) = state.handle(&message)? else { continue };
        let sent = answers.upgrade().map(|answers| answers.try_send(frame(&answer)));
        if let Some(Err(mpsc::error::TrySendError::Full(_))) = sent {
            return Err("it asks without reading the answers".to_owned());
        }
    }
    Ok(())
}

/// Writes messages. Returns `None` when the server stops reading.
async fn write_messages(writer: &mut OwnedWriteHalf, to_write: &mut mpsc::Receiver<Vec<u8>>) -> Option<String> {
    while let Some(message) = to_write.recv().await {
        if writer.write_all(&message).await.is_err() {
            break;
        }
    }
    None
}
