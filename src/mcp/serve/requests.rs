//! The open requests of a client, each with a number of its own.

use std::collections::HashMap;

use rmcp::RoleServer;
use rmcp::model::{JsonRpcMessage, RequestId};
use rmcp::service::TxJsonRpcMessage;

/// The maximum number of open requests of a client. A client that leaves its requests unanswered loses the oldest ones.
const MAX_OPEN: i64 = 1_000;

/// The requests without a response. rmcp gets a number of its own for each of them: the id of a cancelled request may be used
/// again before rmcp has ended the call, and the response to that call must not answer the new request.
#[derive(Default)]
pub(super) struct OpenRequests {
    numbers: HashMap<RequestId, i64>,
    ids: HashMap<i64, RequestId>,
    last: i64,
}

impl OpenRequests {
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        self.numbers.contains_key(id)
    }

    /// Adds a request, and returns its number. An open request with the same id gets no response any more.
    pub(super) fn add(&mut self, id: &RequestId) -> RequestId {
        self.last += 1;
        if let Some(earlier) = self.numbers.insert(id.clone(), self.last) {
            self.ids.remove(&earlier);
        }
        self.ids.insert(self.last, id.clone());
        let oldest = self.last - MAX_OPEN;
        if let Some(id) = self.ids.remove(&oldest) {
            self.numbers.remove(&id);
        }
        RequestId::Number(self.last)
    }

    /// Removes a request that its client cancels, and returns its number.
    pub(super) fn cancel(&mut self, id: &RequestId) -> Option<RequestId> {
        let number = self.numbers.remove(id)?;
        self.ids.remove(&number);
        Some(RequestId::Number(number))
    }

    /// Gives a response the id of its request, which ends with it. Returns false for the response to a cancelled request, which
    /// nobody gets, and true for other messages.
    pub(super) fn restore_id(&mut self, message: &mut TxJsonRpcMessage<RoleServer>) -> bool {
        let answered = match message {
            JsonRpcMessage::Response(response) => Some(&mut response.id),
            JsonRpcMessage::Error(error) => error.id.as_mut(),
            _ => None,
        };
        let Some(answered) = answered else { return true };
        let RequestId::Number(number) = *answered else { return false };
        let Some(id) = self.ids.remove(&number) else { return false };
        self.numbers.remove(&id);
        *answered = id;
        true
    }
}
