//! The interface of middleware, and the chain that runs it in order.

use std::sync::Arc;

use async_trait::async_trait;

use super::MiddlewareName;
use crate::chat::ToolCall;
use crate::llm::{ChatRequest, ChatResponse};
use crate::tools::ToolOutcome;
use crate::turn::error::TurnError;
use crate::turn::turn_loop::{TurnRunOutcome, TurnScope};

/// An operation that middleware wraps.
pub trait Operation: 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;
    /// The operation's name, as in [`TurnError::operation`].
    const NAME: &'static str;
}

/// A whole turn, from the message to the answer. Turns that failed, were stopped or timed out pass through the middleware as well. A
/// turn that the end of the process interrupted begins here again.
pub struct TurnRun;

/// One model call.
pub struct ModelCall;

/// One tool call. A failed tool is a normal response: its failure is a result for the model. The refusal of a middleware is reported
/// to the model in the same way.
pub struct ToolRun;

/// A request to a provider.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub provider: String,
    pub chat: ChatRequest,
}

impl Operation for TurnRun {
    /// The text of the message as the model reads it. A turn that resumes after a restart keeps the text that the model received
    /// before.
    type Request = String;
    type Response = TurnRunOutcome;
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

/// One middleware around one kind of operation.
///
/// The future may be dropped at any time, since a stopped turn drops its model call.
#[async_trait]
pub trait Middleware<O: Operation>: Send + Sync {
    /// Runs before the operation, in the order of registration. It may change the request; an error ends the operation before it
    /// begins.
    async fn before(&self, _: &TurnScope<'_>, request: O::Request) -> Result<O::Request, TurnError> {
        Ok(request)
    }

    /// Runs after the operation, in reverse order. It may change the response.
    async fn after(&self, _: &TurnScope<'_>, response: O::Response) -> Result<O::Response, TurnError> {
        Ok(response)
    }

    /// Runs after a failure. It may change the error, but not remove it.
    async fn on_error(&self, _: &TurnScope<'_>, error: TurnError) -> TurnError {
        error
    }
}

/// All middleware around one kind of operation, in the order of registration.
pub struct MiddlewareChain<O: Operation> {
    layers: Vec<(MiddlewareName, Arc<dyn Middleware<O>>)>,
}

impl<O: Operation> Default for MiddlewareChain<O> {
    fn default() -> Self {
        Self { layers: Vec::new() }
    }
}

impl<O: Operation> MiddlewareChain<O> {
    /// Adds a middleware inside of the earlier ones.
    pub fn push(&mut self, name: MiddlewareName, layer: Arc<dyn Middleware<O>>) {
        self.layers.push((name, layer));
    }

    /// Runs `operation` within all middleware.
    ///
    /// # Errors
    /// The error of the operation, or of a middleware before or after it. Each middleware that was entered receives the error
    /// once, in order, and may change it.
    pub async fn run<F>(
        &self,
        scope: &TurnScope<'_>,
        mut request: O::Request,
        operation: impl FnOnce(O::Request) -> F,
    ) -> Result<O::Response, TurnError>
    where
        F: Future<Output = Result<O::Response, TurnError>>,
    {
        let mut entered = 0;
        let outcome = async {
            for (name, layer) in &self.layers {
                entered += 1;
                request = layer.before(scope, request).await.inspect_err(|_| ended::<O>(*name))?;
            }
            let mut response = operation(request).await?;
            for (name, layer) in self.layers.iter().rev() {
                response = layer.after(scope, response).await.inspect_err(|_| ended::<O>(*name))?;
            }
            Ok(response)
        };
        let mut error = match outcome.await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        for (_, layer) in &self.layers[..entered] {
            error = layer.on_error(scope, error).await;
        }
        Err(error)
    }
}

/// Logs the name of the middleware that ended the operation; the error contains only the reason.
fn ended<O: Operation>(name: MiddlewareName) {
    tracing::debug!(middleware = name.as_str(), around = O::NAME, "a middleware ended the operation");
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
