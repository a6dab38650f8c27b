//! The sessions of HTTP clients.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Weak};

use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};

use super::requests::OpenRequests;

/// rmcp's sessions, with a number for each request instead of the client's id: rmcp finds the call and the stream of a request by
/// its session and id alone. See [`OpenRequests`].
pub(super) struct NumberedSessions {
    /// rmcp's own sessions.
    pub(super) local: LocalSessionManager,
    requests: Mutex<HashMap<SessionId, Arc<Mutex<SessionRequests>>>>,
}

/// The requests of one session.
#[derive(Default)]
struct SessionRequests {
    /// Gives responses the client's ids. A request whose client has left is open until its call ends.
    open: OpenRequests,
    /// Refuses a second request with the id of one whose client still reads. A client that has left may repeat its request.
    active: HashMap<RequestId, Weak<()>>,
}

impl NumberedSessions {
    pub(super) fn new(config: SessionConfig) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config = config;
        Self { local, requests: Mutex::default() }
    }

    /// Makes a request active until the returned guard is dropped, or until its client cancels it; `None` if a request of the session
    /// with this id is active.
    pub(super) fn activate(&self, session: &str, id: &RequestId) -> Option<Arc<()>> {
        let guard = Arc::new(());
        // rmcp refuses the request of an unknown session.
        let Some(requests) = self.requests_of(session) else { return Some(guard) };
        let mut requests = requests.lock();
        requests.active.retain(|_, request| request.strong_count() > 0);
        if requests.active.contains_key(id) {
            return None;
        }
        requests.active.insert(id.clone(), Arc::downgrade(&guard));
        Some(guard)
    }

    fn requests_of(&self, session: &str) -> Option<Arc<Mutex<SessionRequests>>> {
        self.requests.lock().get(session).cloned()
    }

    fn session_requests(&self, session: &SessionId) -> Result<Arc<Mutex<SessionRequests>>, LocalSessionManagerError> {
        self.requests_of(session).ok_or_else(|| LocalSessionManagerError::SessionNotFound(session.clone()))
    }
}

impl SessionManager for NumberedSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        self.requests.lock().insert(id.clone(), Arc::default());
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.requests.lock().remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let requests = self.session_requests(id)?;
        if let JsonRpcMessage::Request(request) = &mut message {
            request.id = requests.lock().open.add(&request.id);
        }
        let stream = self.local.create_stream(id, message).await?;
        Ok(with_client_ids(stream, requests))
    }

    async fn accept_message(&self, id: &SessionId, mut message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        if let JsonRpcMessage::Notification(notification) = &mut message
            && let ClientNotification::CancelledNotification(cancelled) = &mut notification.notification
            && let Some(request) = &mut cancelled.params.request_id
        {
            let requests = self.session_requests(id)?;
            let mut requests = requests.lock();
            requests.active.remove(&*request);
            let Some(number) = requests.open.cancel(&*request) else { return Ok(()) };
            *request = number;
        }
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let requests = self.session_requests(id)?;
        let stream = self.local.create_standalone_stream(id).await?;
        Ok(with_client_ids(stream, requests))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let requests = self.session_requests(id)?;
        let stream = self.local.resume(id, last_event_id).await?;
        Ok(with_client_ids(stream, requests))
    }
}

/// Gives the responses of a stream the ids that the client knows. The response to a cancelled request is left out.
fn with_client_ids(
    stream: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    requests: Arc<Mutex<SessionRequests>>,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    stream.filter_map(move |mut event| {
        let is_response =
            |message: &&mut Arc<_>| matches!(***message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        // rmcp keeps its messages for resumed streams, so only those that change are copied.
        let message = event.message.as_mut().filter(is_response);
        let is_due = message.is_none_or(|message| requests.lock().open.restore_id(Arc::make_mut(message)));
        ready(is_due.then_some(event))
    })
}
