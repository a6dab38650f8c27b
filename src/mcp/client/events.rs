//! The client's handling of requests and notifications from a server.
#![expect(deprecated, reason = "servers before 2026-07-28 ask for roots and for answers of the model")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ErrorCode, Implementation, ListRootsResult, ProtocolVersion, Root,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::sync::Notify;

/// The client's answers to a server. Requests for an answer of a model or a person are refused: a server must not address the
/// owner or spend tokens on its own.
pub(super) struct ClientEvents {
    pub server: String,
    /// The address of the workspace, for programs that share this machine's files.
    pub root: Option<String>,
    /// Notified when one of the server's lists has changed.
    pub changed: Arc<Notify>,
    /// True if a refusal was already logged, since a server may repeat its request many times.
    pub has_refused: AtomicBool,
}

impl ClientEvents {
    fn refuse<T>(&self, method: &'static str) -> Result<T, ErrorData> {
        if !self.has_refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = self.server, method, "refused an unsupported request of an MCP server");
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
    }
}

impl ClientHandler for ClientEvents {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.root.is_some() {
            capabilities.roots = Some(Default::default());
        }
        // The version is sent by `initialize`. The library's default is one that has no `initialize`.
        ClientConfig::new(capabilities, Implementation::new("daoyou", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.refuse("sampling/createMessage")
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.refuse("elicitation/create")
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        let root = self.root.iter().map(|root| Root::new(root.clone()).with_name("workspace"));
        Ok(ListRootsResult::new(root.collect()))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
