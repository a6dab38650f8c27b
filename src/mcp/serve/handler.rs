//! Handles the requests of one connection.

use std::collections::HashMap;
use std::sync::Arc;

use daoyou_channels::clean::is_display_control;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam, ContentBlock, CustomRequest,
    CustomResult, ErrorCode, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    RequestId, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::AgentAccess;
use super::arguments::{
    ListSessionsArgs, McpAskArgs, McpRecallArgs, McpRememberArgs, ScheduleArgs, SendArgs, ServerTool, parse,
};
use super::ask::{AskEnd, AskSession, ask, session_name_of};
use super::progress::ProgressReporter;
use crate::text::{one_line, truncate};

/// The maximum length of a message of `send`, in characters. It equals that of the tool `message`.
const MAX_SEND: usize = 100_000;
/// The maximum number of sessions in a list, and the number without a limit.
const MAX_LISTED: usize = 100;
const DEFAULT_LISTED: usize = 20;
/// The method that calls a tool.
const CALL_TOOL: &str = "tools/call";
/// The maximum length of a JSON text in a result, in characters.
const MAX_JSON: usize = 200_000;

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServedTransport {
    /// Streamable HTTP. Before 2026-07-28 a connection is a session; since then each request is independent.
    Http,
    /// Lines on a stream.
    Stream,
}

/// The handler of the requests of one connection, or of one independent request.
pub(super) struct McpHandler {
    agent: Arc<dyn AgentAccess>,
    transport: ServedTransport,
    /// The name of the connection, and of its session.
    connection: String,
    stopping: CancellationToken,
    /// The running calls of `ask`, which a notification may cancel.
    running: Mutex<HashMap<RequestId, CancellationToken>>,
}

impl McpHandler {
    /// Creates the handler of one connection, whose name is also that of its session; `stopping` ends its calls.
    pub(super) fn new(
        agent: Arc<dyn AgentAccess>,
        transport: ServedTransport,
        connection: String,
        stopping: CancellationToken,
    ) -> Self {
        Self { agent, transport, connection, stopping, running: Mutex::default() }
    }

    async fn call(
        &self,
        tool: ServerTool,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let arguments = request.arguments.unwrap_or_default();
        match tool {
            ServerTool::Ask => self.ask(&parse(arguments)?, context).await,
            ServerTool::Remember => {
                let McpRememberArgs { content } = parse(arguments)?;
                Ok(as_json(&self.agent.remember(&content).await?))
            }
            ServerTool::Recall => {
                let McpRecallArgs { query, limit } = parse(arguments)?;
                Ok(as_json(&self.agent.recall(&query, limit).await?))
            }
            ServerTool::Schedule => {
                let job: ScheduleArgs = parse(arguments)?;
                let mut job = serde_json::to_value(job).map_err(|error| error.to_string())?;
                if let Value::Object(fields) = &mut job {
                    fields.retain(|_, value| !value.is_null());
                }
                let made = self.agent.schedule(job).await?;
                let fields = ["id", "name", "when", "next_at", "next", "channel", "chat_id"];
                Ok(as_json(&fields.map(|field| (field.to_owned(), made[field].clone())).into_iter().collect()))
            }
            ServerTool::Send => self.send(parse(arguments)?).await,
            ServerTool::ListSessions => {
                let ListSessionsArgs { limit } = parse(arguments)?;
                let limit = limit.unwrap_or(DEFAULT_LISTED);
                if !(1..=MAX_LISTED).contains(&limit) {
                    return Err(format!("limit: {limit} is not allowed; use 1 to {MAX_LISTED}"));
                }
                let sessions = self.agent.sessions().await?;
                Ok(as_json(&sessions.into_iter().take(limit).collect()))
            }
        }
    }

    async fn ask(&self, args: &McpAskArgs, context: &RequestContext<RoleServer>) -> Result<CallToolResult, String> {
        // Without sessions, a client can cancel a request only by ending it.
        let stands_alone = self.transport == ServedTransport::Http
            && context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let session = match &args.session {
            Some(name) => AskSession::named(name)?,
            None if stands_alone => {
                let client = context.client_info();
                AskSession::named(&session_name_of(client.as_ref().map(|client| client.name.as_str())))?
            }
            None => AskSession::named(&self.connection)?,
        };
        let cancelled = CancellationToken::new();
        self.running.lock().insert(context.id.clone(), cancelled.clone());
        scopeguard::defer!(drop(self.running.lock().remove(&context.id)));
        let end = AskEnd {
            cancelled,
            over: context.ct.clone(),
            is_over_cancelled: stands_alone,
            stopping: self.stopping.clone(),
        };
        let progress = ProgressReporter::new(&context.peer, context.meta.get_progress_token());
        ask(&self.agent, args, session, end, progress).await
    }

    async fn send(&self, args: SendArgs) -> Result<CallToolResult, String> {
        let (channel, chat_id) = (args.channel.trim(), args.chat_id.trim());
        if chat_id.is_empty() || chat_id.contains(is_display_control) {
            return Err("chat_id: one line, the chat on the channel".to_owned());
        }
        if args.content.trim().is_empty() {
            return Err("content is empty".to_owned());
        }
        if args.content.chars().count() > MAX_SEND {
            return Err(format!("content is longer than {MAX_SEND} characters; send it in parts"));
        }
        let id = self.agent.send(channel, chat_id, args.content).await?;
        Ok(as_json(&json!({ "id": id, "channel": channel, "chat_id": chat_id, "state": "pending" })))
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("daoyou", env!("CARGO_PKG_VERSION"))
            .with_title("daoyou")
            .with_description("A self-hosted AI assistant with memory, schedules and channels");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(server).with_instructions(
            "daoyou is the user's own assistant, which runs all the time. ask gives it work or a question and waits for its \
             reply; remember and recall use its memory; schedule lets it act later; send delivers a message on one of its \
             channels.",
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ServerTool::list()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        name.parse().ok().map(ServerTool::describe)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Ok(tool) = request.name.parse() else {
            let name = truncate(&one_line(&request.name), 80);
            let text = format!("there is no tool {name:?}; there are {}", ServerTool::names());
            return Err(ErrorData::invalid_params(text, None));
        };
        let result = self.call(tool, request, &context).await;
        Ok(result.unwrap_or_else(|error| CallToolResult::error(vec![ContentBlock::text(error)])).into())
    }

    /// Answers requests of unknown methods, and requests whose params do not fit their method.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method == CALL_TOOL {
            return Err(ErrorData::invalid_params(call_fault(request.params.as_ref()), None));
        }
        let method = truncate(&one_line(&request.method), 80);
        let text = format!("there is no method {method:?} here, or its params do not fit it");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None))
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        let Some(id) = cancelled.request_id else { return };
        if let Some(call) = self.running.lock().get(&id) {
            call.cancel();
        }
    }
}

/// Returns what is wrong in the params of a call of a tool.
fn call_fault(params: Option<&Value>) -> String {
    let Some(params) = params.and_then(Value::as_object) else {
        return "params: a JSON object with name and arguments is needed".to_owned();
    };
    if !params.get("name").is_some_and(Value::is_string) {
        return "params.name: the name of a tool is needed, as a string".to_owned();
    }
    match params.get("arguments") {
        Some(Value::Object(_) | Value::Null) | None => {
            "params: a field besides name and arguments does not fit".to_owned()
        }
        Some(_) => "params.arguments: a JSON object is needed, such as {\"message\": \"hello\"}".to_owned(),
    }
}

/// Returns a result whose text is JSON.
fn as_json(value: &Value) -> CallToolResult {
    let text = value.to_string();
    if text.chars().nth(MAX_JSON).is_some() {
        let error = format!("the result has more than {MAX_JSON} characters; ask for less with limit");
        return CallToolResult::error(vec![ContentBlock::text(error)]);
    }
    CallToolResult::success(vec![ContentBlock::text(text)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_of_a_call_is_named() {
        for (params, expected) in [
            (json!(null), "params: a JSON object"),
            (json!(["ask"]), "params: a JSON object"),
            (json!({"arguments": {}}), "params.name"),
            (json!({"name": 1}), "params.name"),
            (json!({"name": "ask", "arguments": ["x"]}), "params.arguments: a JSON object"),
            (json!({"name": "ask", "arguments": "{}"}), "params.arguments: a JSON object"),
            (json!({"name": "ask", "_meta": 1}), "a field besides"),
        ] {
            let fault = call_fault(Some(&params));
            assert!(fault.starts_with(expected) || fault.contains(expected), "{params}: {fault}");
        }
        assert!(call_fault(None).starts_with("params: a JSON object"));
    }
}
