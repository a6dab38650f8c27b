//! The interface of middleware.

use async_trait::async_trait;

use crate::chat::ToolCall;
use crate::llm::{ChatRequest, ChatResponse};
use crate::tools::ToolOutcome;
use crate::turn::error::TurnError;
use crate::turn::scope::TurnScope;
use crate::turn::turn_loop::ConversationOutcome;

/// An operation that middleware wraps.
pub trait Operation: 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;
    /// The operation's name, as in [`TurnError::operation`].
    const NAME: &'static str;
}

/// A whole turn, from the message to the answer. Turns that failed, were stopped or timed out pass here as well; a
/// turn that the end of the process cut off begins here again.
pub struct TurnRun;

/// One model call.
pub struct ModelCall;

/// One tool call. A failed tool has answered: its failure is a result for the model. The refusal of a middleware is
/// reported to the model in the same way.
pub struct ToolRun;

/// The message that a turn answers.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRequest {
    /// The text as the model reads it. A turn that resumes after a restart keeps the text that the model was given
    /// before.
    pub text: String,
}

/// A request to a provider.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub provider: String,
    pub chat: ChatRequest,
}

impl Operation for TurnRun {
    type Request = TurnRequest;
    type Response = ConversationOutcome;
    const NAME: &'static str = "turn";
}

impl Operation for ModelCall {
    type Request = ModelRequest;
    type Response = ChatResponse;
    const NAME: &'static str = "model_call";
}

impl Operation for ToolRun {
    type Request = ToolCall;
    type Response = ToolOutcome;
    const NAME: &'static str = "tool_call";
}

/// What follows after `before`.
pub enum LayerDecision<O: Operation> {
    /// The operation goes on with this request.
    Continue(O::Request),
    /// This is the response; the inner layers do not run.
    Respond(O::Response),
}

/// One middleware around one kind of operation.
///
/// The future may be dropped at any time: a turn that is stopped drops its model call.
#[async_trait]
pub trait Middleware<O: Operation>: Send + Sync {
    /// Its name in `agent.middleware`.
    fn name(&self) -> &'static str;

    /// Runs before the operation, in the order of registration. May change the request or respond instead; an error
    /// ends the operation before it begins.
    async fn before(&self, _: &TurnScope<'_>, request: O::Request) -> Result<LayerDecision<O>, TurnError> {
        Ok(LayerDecision::Continue(request))
    }

    /// Runs the inner layers; for middleware that decides whether they run, or measures only them.
    async fn run(
        &self,
        _: &TurnScope<'_>,
        request: O::Request,
        inner: &mut NextLayer<'_, O>,
    ) -> Result<O::Response, TurnError> {
        inner.run(request).await
    }

    /// Runs after the operation, in reverse order. May change the response.
    async fn after(&self, _: &TurnScope<'_>, response: O::Response) -> Result<O::Response, TurnError> {
        Ok(response)
    }

    /// Runs after a failure. May change the error, but not remove it.
    async fn on_error(&self, _: &TurnScope<'_>, error: TurnError) -> TurnError {
        error
    }
}

/// The operation itself.
#[async_trait]
pub trait OperationHandler<O: Operation>: Send {
    async fn handle(&mut self, request: O::Request) -> Result<O::Response, TurnError>;
}

/// The inner layers: the other middleware, and the operation itself.
pub struct NextLayer<'a, O: Operation> {
    pub(super) layers: &'a [std::sync::Arc<dyn Middleware<O>>],
    pub(super) context: &'a TurnScope<'a>,
    pub(super) handler: &'a mut (dyn OperationHandler<O> + 'a),
}

impl<O: Operation> NextLayer<'_, O> {
    pub async fn run(&mut self, request: O::Request) -> Result<O::Response, TurnError> {
        let Some((first, layers)) = self.layers.split_first() else {
            return self.handler.handle(request).await;
        };
        let mut inner = NextLayer { layers, context: self.context, handler: &mut *self.handler };
        first.run(self.context, request, &mut inner).await
    }
}
