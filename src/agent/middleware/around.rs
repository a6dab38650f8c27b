//! What a middleware may do.

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::conversing::TurnEnd;
use crate::agent::error::TurnError;
use crate::agent::phrases::Phrases;
use crate::chat::ToolCall;
use crate::llm::{ChatRequest, ChatResponse};
use crate::metrics::TurnMeter;
use crate::tools::ToolOutcome;

/// Something that middleware stands around.
pub trait Operation: 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;
    /// As in [`TurnError::operation`].
    const NAME: &'static str;
}

/// A whole turn, from the message to the answer. Its end as well as a turn that failed, was stopped or timed out passes
/// here; one that was cut off by the end of the process begins here again.
pub struct TurnRun;

/// One model call.
pub struct ModelCall;

/// One tool call. A tool that fails has answered: failure is data, for the model to read. What a middleware refuses is
/// told to the model in the same way.
pub struct ToolRun;

/// The message that a turn answers.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRequest {
    /// As the model reads it. Of a turn that goes on after a restart it is what the model was given before, and stays so.
    pub text: String,
}

/// What a provider is asked.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub provider: String,
    pub chat: ChatRequest,
}

impl Operation for TurnRun {
    type Request = TurnRequest;
    type Response = TurnEnd;
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

/// For which turn.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub session: &'a SessionKey,
    pub turn: Uuid,
    /// When the turn's time is up.
    pub deadline: Instant,
    pub meter: &'a TurnMeter<'a>,
    pub phrases: &'static Phrases,
}

/// What `before` says.
pub enum Passed<O: Operation> {
    /// Go on, with this request.
    On(O::Request),
    /// This is the response; nothing further in is asked.
    Answered(O::Response),
}

/// One middleware around one kind of operation.
///
/// Whoever is dropped in the middle has nothing more to say: a turn that is stopped drops its model call.
#[async_trait]
pub trait Around<O: Operation>: Send + Sync {
    /// Its name in `agent.middleware`.
    fn name(&self) -> &'static str;

    /// Before the operation, in the order of registration. May change the request or answer in its stead; an error ends
    /// the operation before it begins.
    async fn before(&self, _: &Context<'_>, request: O::Request) -> Result<Passed<O>, TurnError> {
        Ok(Passed::On(request))
    }

    /// Runs what is further in; for those that decide whether it runs, or measure it alone.
    async fn run(
        &self,
        _: &Context<'_>,
        request: O::Request,
        inner: &mut Inner<'_, O>,
    ) -> Result<O::Response, TurnError> {
        inner.run(request).await
    }

    /// After the operation, in the reverse order. May change the response.
    async fn after(&self, _: &Context<'_>, response: O::Response) -> Result<O::Response, TurnError> {
        Ok(response)
    }

    /// The operation failed. May change the error, and cannot make it disappear.
    async fn on_error(&self, _: &Context<'_>, error: TurnError) -> TurnError {
        error
    }
}

/// The operation itself.
#[async_trait]
pub trait Handler<O: Operation>: Send {
    async fn handle(&mut self, request: O::Request) -> Result<O::Response, TurnError>;
}

/// What is further in: the other middleware, and the operation itself.
pub struct Inner<'a, O: Operation> {
    pub(super) layers: &'a [std::sync::Arc<dyn Around<O>>],
    pub(super) context: &'a Context<'a>,
    pub(super) handler: &'a mut (dyn Handler<O> + 'a),
}

impl<O: Operation> Inner<'_, O> {
    pub async fn run(&mut self, request: O::Request) -> Result<O::Response, TurnError> {
        let Some((first, layers)) = self.layers.split_first() else {
            return self.handler.handle(request).await;
        };
        let mut inner = Inner { layers, context: self.context, handler: &mut *self.handler };
        first.run(self.context, request, &mut inner).await
    }
}
