//! A connection to a server: its start in both eras of the protocol, its requests, and its lists.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use reqwest::Client;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, GetPromptRequest, GetPromptRequestParams,
    ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest, PaginatedRequestParams,
    PingRequest, ProtocolVersion, ReadResourceRequest, ReadResourceRequestParams, SubscriptionFilter,
};
use rmcp::service::{ClientInitializeError, PeerRequestOptions, RunningService};
use rmcp::transport::IntoTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::auth::BearerTokens;
use super::events::ClientEvents;
use super::{McpError, McpErrorKind, ServerLabel, http, short_chain, sse, stdio};
use crate::mcp::config::{McpServerConfig, McpTransport};
use crate::mcp::listing::{ListKind, MAX_ENTRIES};
use crate::text::{one_line, truncate};
use crate::tools::{ServerProcess, ServerSocket};

/// How long a server that did not answer may take to show that it is alive.
const PING_LIMIT: Duration = Duration::from_secs(5);
/// How long a closing connection may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// The maximum length of the message in a server's error, in characters.
const MAX_MESSAGE_CHARS: usize = 1_000;

/// How a connection begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::mcp) enum ProtocolEra {
    /// By `initialize` (2024-11-05 to 2025-11-25), which nearly all servers know.
    #[default]
    Initialize,
    /// By `server/discover` (2026-07-28), for a server that rejects `initialize`. A server that does not know this method may
    /// answer it in any way, or end.
    Discover,
}

/// A request to a server.
#[derive(Clone, Debug)]
pub(in crate::mcp) enum McpRequest {
    CallTool { name: String, arguments: Map<String, Value> },
    ReadResource { uri: String },
    GetPrompt { name: String, arguments: Map<String, Value> },
}

impl From<McpRequest> for ClientRequest {
    fn from(request: McpRequest) -> Self {
        match request {
            McpRequest::CallTool { name, arguments } => {
                let params = CallToolRequestParams::new(name).with_arguments(arguments);
                Self::CallToolRequest(CallToolRequest::new(params))
            }
            McpRequest::ReadResource { uri } => {
                Self::ReadResourceRequest(ReadResourceRequest::new(ReadResourceRequestParams::new(uri)))
            }
            McpRequest::GetPrompt { name, arguments } => {
                let params = GetPromptRequestParams::new(name).with_arguments(arguments);
                Self::GetPromptRequest(GetPromptRequest::new(params))
            }
        }
    }
}

/// A running connection. Dropping it ends the connection, and the server's program.
pub(in crate::mcp) struct McpConnection {
    server: ServerLabel,
    service: RunningService<RoleClient, ClientEvents>,
    /// How the server ended, once it has.
    ended: watch::Receiver<Option<String>>,
    /// Notified when one of the server's lists has changed.
    pub changed: Arc<Notify>,
    /// `stdio`, `http` or `sse`.
    pub transport: &'static str,
    _subscription: Option<AbortOnDropHandle<()>>,
    /// Ends the streams of a connection by HTTP.
    _streams: Option<DropGuard>,
}

/// The maximum size of all pages of a list together, as JSON in bytes.
const MAX_LIST: usize = 4 << 20;

impl McpConnection {
    /// Connects to a program that was started, and negotiates the version of the protocol. `root` is the address of the
    /// workspace. `ended` gets how the program ended, and is dropped once all its processes are gone.
    ///
    /// # Errors
    /// The program ends, or does not answer as an MCP server does.
    pub(in crate::mcp) async fn by_stdio(
        server: &ServerLabel,
        era: ProtocolEra,
        process: ServerProcess,
        socket: ServerSocket,
        root: String,
        ended: watch::Sender<Option<String>>,
    ) -> Result<Self, McpError> {
        let receiver = ended.subscribe();
        let transport = stdio::connect(server, process, socket, ended);
        Self::begin(server, era, receiver, transport, "stdio", Some(root)).await
    }

    /// Connects to the address in `config`, and negotiates the version of the protocol. The older transport is tried with
    /// [`ProtocolEra::Discover`], so that it comes after both eras of the newer transport.
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer as an MCP server does.
    pub(in crate::mcp) async fn by_http(
        server: &ServerLabel,
        era: ProtocolEra,
        config: &McpServerConfig,
        client: Client,
        tokens: Arc<BearerTokens>,
    ) -> Result<Self, McpError> {
        let transport = config.transport;
        let (sender, ended) = watch::channel(None);
        let sse_era = if transport == McpTransport::Sse { era } else { ProtocolEra::Initialize };
        let by_sse = || async {
            let opened = sse::connect(server, client.clone(), config, tokens.clone(), sender.clone()).await;
            let opened = opened.map_err(|why| server.redacted_error(McpError::not_sent(why)))?;
            Self::begin(server, sse_era, ended.clone(), opened, "sse", None).await
        };
        if transport == McpTransport::Sse {
            return by_sse().await;
        }
        // The guard also ends the streams of a start that takes too long.
        let dropped = CancellationToken::new();
        let streams = dropped.clone().drop_guard();
        let ends = (sender.clone(), dropped);
        let streamable = http::transport(server, client.clone(), config, tokens.clone(), ends);
        match Self::begin(server, era, ended.clone(), streamable, "http", None).await {
            // Servers of 2024-11-05 do not support the newer transport, and refuse its first message.
            Err(refused)
                if transport == McpTransport::Auto
                    && era == ProtocolEra::Discover
                    && refused.kind == McpErrorKind::Answer =>
            {
                by_sse().await.map_err(|_| refused)
            }
            connected => connected.map(|connection| Self { _streams: Some(streams), ..connection }),
        }
    }

    /// Starts the protocol over a transport with this name.
    async fn begin<T, E, A>(
        server: &ServerLabel,
        era: ProtocolEra,
        ended: watch::Receiver<Option<String>>,
        transport: T,
        name: &'static str,
        root: Option<String>,
    ) -> Result<Self, McpError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let changed = Arc::new(Notify::new());
        let events = ClientEvents {
            server: server.name.clone(),
            root,
            changed: Arc::clone(&changed),
            has_refused: AtomicBool::new(false),
        };
        let lifecycle = match era {
            ProtocolEra::Initialize => ClientLifecycleMode::Initialize,
            ProtocolEra::Discover => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
        };
        let started = events.serve_with_lifecycle(transport, lifecycle).await;
        let service = started.map_err(|error| server.redacted_error(start_error(&server.name, &error, &ended)))?;
        let subscription = subscribe(server, service.peer(), &changed);
        let server = server.clone();
        Ok(Self { server, service, ended, changed, transport: name, _subscription: subscription, _streams: None })
    }

    fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Returns true if the connection has ended.
    pub(in crate::mcp) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed() || self.ended.borrow().is_some()
    }

    /// Returns a text that states how the server ended.
    pub(in crate::mcp) fn end_reason(&self) -> String {
        end_text(&self.server.name, &self.ended)
    }

    /// Returns the negotiated version of the protocol.
    pub(in crate::mcp) fn protocol(&self) -> String {
        self.peer().peer_info().map(|info| info.protocol_version.to_string()).unwrap_or_default()
    }

    /// Returns the name and version that the server gives itself.
    pub(in crate::mcp) fn title(&self) -> String {
        let info = self.peer().peer_info().and_then(|info| info.server_info.clone());
        let title = info.map(|server| format!("{} {}", server.name, server.version));
        self.server.redacted(title.unwrap_or_default())
    }

    /// Sends a request to the server, and returns the response. If the caller gives up, the request is cancelled.
    ///
    /// # Errors
    /// [`McpErrorKind`] states how far the request came.
    pub(in crate::mcp) async fn request(
        &self,
        request: impl Into<ClientRequest>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Value, McpError> {
        if self.is_closed() {
            return Err(McpError::not_sent(self.end_reason()));
        }
        let server = &self.server.name;
        let options = PeerRequestOptions::no_options();
        let sent = self.peer().send_request_with_option(request.into(), options).await;
        let mut handle = sent.map_err(|_| McpError::not_sent(self.end_reason()))?;
        let ended = self.has_ended();
        let answered = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(McpError::new(McpErrorKind::Cancelled, format!("Cancelled; {server} was told so"))),
            answered = &mut handle.rx => return self.read_answer(answered.unwrap_or(Err(ServiceError::TransportClosed))),
            () = ended => {
                // A response that the server sent before its end is still read.
                let last = timeout(Duration::from_millis(200), &mut handle.rx).await;
                return self.read_answer(last.ok().and_then(Result::ok).unwrap_or(Err(ServiceError::TransportClosed)));
            }
            () = sleep(limit) => {
                let seconds = limit.as_secs_f32().ceil();
                let text = format!("{server} did not answer within {seconds} s (mcp.{server}.timeout)");
                Err(McpError::new(McpErrorKind::Timeout, text))
            }
        };
        // The result does not wait for the cancellation, which a server that reads nothing does not get.
        tokio::spawn(timeout(PING_LIMIT, handle.cancel(Some("given up".to_owned()))));
        answered
    }

    /// Waits until the server has ended. Waits forever if the transport does not report the end.
    async fn has_ended(&self) {
        let mut ended = self.ended.clone();
        if ended.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn read_answer(&self, answered: Result<rmcp::model::ServerResult, ServiceError>) -> Result<Value, McpError> {
        let server = &self.server.name;
        let answer_error = |text: String| McpError::new(McpErrorKind::Answer, text);
        match answered {
            Ok(result) => {
                let value = serde_json::to_value(result)
                    .map_err(|error| answer_error(format!("the answer of {server} cannot be read: {error}")))?;
                match value["resultType"].as_str() {
                    None | Some("complete") => Ok(value),
                    Some("input_required") => Err(answer_error(format!(
                        "{server} asks for input of the user or of a model during a call, which daoyou does not give"
                    ))),
                    Some(other) => {
                        let other = truncate(&one_line(&self.server.redacted(other)), 50);
                        Err(answer_error(format!("{server} answers with {other:?}, which daoyou does not understand")))
                    }
                }
            }
            Err(ServiceError::McpError(error)) => {
                let is_unknown = error.code == ErrorCode::METHOD_NOT_FOUND;
                let kind = if is_unknown { McpErrorKind::UnknownMethod } else { McpErrorKind::Answer };
                let message = truncate(&one_line(&self.server.redacted(error.message)), MAX_MESSAGE_CHARS);
                Err(McpError::new(kind, format!("{server} answers: {message} (code {})", error.code.0)))
            }
            Err(ServiceError::TransportSend(error)) => {
                let text = self.server.redacted(http::transport_text(&error));
                Err(McpError::new(McpErrorKind::Lost, format!("{server}: {text}")))
            }
            Err(_) => Err(McpError::new(McpErrorKind::Lost, self.end_reason())),
        }
    }

    /// Returns the entries of a list, and whether there are more than are kept. The list is empty if the server has no such list.
    ///
    /// # Errors
    /// As [`McpConnection::request`].
    pub(in crate::mcp) async fn list(&self, kind: ListKind, limit: Duration) -> Result<(Vec<Value>, bool), McpError> {
        let capabilities = self.peer().peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        let has_list = match kind {
            ListKind::Tools => true,
            ListKind::Resources | ListKind::Templates => capabilities.resources.is_some(),
            ListKind::Prompts => capabilities.prompts.is_some(),
        };
        let (mut entries, mut cursor, mut seen, mut room) = (Vec::new(), None, HashSet::new(), MAX_LIST);
        if !has_list {
            return Ok((entries, false));
        }
        // A page may have a single entry, or none.
        for _ in 0..MAX_ENTRIES {
            let page = self.request(list_request(kind, cursor.take()), limit, &CancellationToken::new()).await;
            let mut page = match page {
                Err(error) if error.kind == McpErrorKind::UnknownMethod => return Ok((entries, false)),
                page => page?,
            };
            if let Some(Value::Array(found)) = page.get_mut(kind.key()).map(Value::take) {
                for mut entry in found {
                    self.server.redact_entry(&mut entry);
                    // In memory, an array of numbers takes many times the size of its text.
                    let size = entry.to_string().len();
                    let Some(left) = room.checked_sub(size) else { return Ok((entries, true)) };
                    room = left;
                    entries.push(entry);
                }
            }
            if entries.len() > MAX_ENTRIES {
                entries.truncate(MAX_ENTRIES);
                return Ok((entries, true));
            }
            match page["nextCursor"].as_str() {
                Some(next) if seen.insert(next.to_owned()) => cursor = Some(next.to_owned()),
                // A cursor that repeats would lead to an endless loop.
                _ => return Ok((entries, false)),
            }
        }
        Ok((entries, true))
    }

    /// Returns true if the server answers at all.
    pub(in crate::mcp) async fn is_alive(&self) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let answered = self.request(ping, PING_LIMIT, &CancellationToken::new()).await;
        // The newest protocol has no ping, but an error is an answer as well.
        match answered {
            Ok(_) => true,
            Err(error) => matches!(error.kind, McpErrorKind::Answer | McpErrorKind::UnknownMethod),
        }
    }

    /// Ends the connection, and the server's program, although others may still wait for answers. Does not wait for the end.
    pub(in crate::mcp) fn stop(&self) {
        self.service.cancellation_token().cancel();
    }

    /// Closes the connection in an orderly way.
    pub(in crate::mcp) async fn close(mut self) {
        drop(self.service.close_with_timeout(CLOSE_LIMIT).await);
    }
}

fn list_request(kind: ListKind, cursor: Option<String>) -> ClientRequest {
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    match kind {
        ListKind::Tools => ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params)),
        ListKind::Resources => ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params)),
        ListKind::Templates => {
            ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest::with_param(params))
        }
        ListKind::Prompts => ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params)),
    }
}

fn end_text(server: &str, ended: &watch::Receiver<Option<String>>) -> String {
    match &*ended.borrow() {
        Some(how) => format!("{server} {how}"),
        None => format!("the connection to {server} has ended"),
    }
}

/// Subscribes to changes of the lists, if the protocol requires a subscription.
fn subscribe(server: &ServerLabel, peer: &Peer<RoleClient>, changed: &Arc<Notify>) -> Option<AbortOnDropHandle<()>> {
    let info = peer.peer_info()?;
    if info.protocol_version.has_initialize() {
        return None;
    }
    let (server, peer, changed) = (server.clone(), peer.clone(), Arc::clone(changed));
    let capabilities = info.capabilities.clone();
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let mut filter = SubscriptionFilter::new();
        filter.tools_list_changed = capabilities.tools.and_then(|tools| tools.list_changed).filter(|is_on| *is_on);
        filter.prompts_list_changed = capabilities.prompts.and_then(|list| list.list_changed).filter(|is_on| *is_on);
        filter.resources_list_changed =
            capabilities.resources.and_then(|list| list.list_changed).filter(|is_on| *is_on);
        if filter == SubscriptionFilter::new() {
            return;
        }
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                while let Ok(Some(_)) = subscription.next().await {
                    changed.notify_one();
                }
            }
            Err(error) => {
                let error = server.redacted(error.to_string());
                tracing::debug!(
                    server = server.name,
                    error,
                    "an MCP server refuses the subscription to changes of its lists"
                );
            }
        }
    })))
}

/// Returns an error that states why a server did not start, and a remedy if one is known.
fn start_error(server: &str, error: &ClientInitializeError, ended: &watch::Receiver<Option<String>>) -> McpError {
    // A server that rejects the first message may end at once. Its answer is the reason, and permits the other era.
    let is_rejected = matches!(error, ClientInitializeError::JsonRpcError(_));
    if let Some(how) = ended.borrow().as_ref().filter(|_| !is_rejected) {
        return McpError::not_sent(format!("{server} {how}"));
    }
    if error.is_authorization_required() {
        let text = format!(
            "{server} wants authorization: set a header in [mcp.{server}.headers], or a token in [mcp.{server}.auth]"
        );
        return McpError::not_sent(text);
    }
    match error {
        ClientInitializeError::ConnectionClosed(_) => McpError::not_sent(end_text(server, ended)),
        ClientInitializeError::TransportError { error, .. } => {
            let text = http::transport_text(error);
            let is_answer = text.contains("unexpected server response")
                || text.contains("the server answered")
                || text.contains("content type")
                || text.contains("HTTP ");
            let kind = if is_answer { McpErrorKind::Answer } else { McpErrorKind::NotSent };
            McpError::new(kind, format!("{server} cannot be reached: {text}"))
        }
        other => McpError::new(
            McpErrorKind::Answer,
            format!("{server} does not answer as an MCP server does: {}", short_chain(other)),
        ),
    }
}
