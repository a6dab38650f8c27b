//! Runs middleware in order, and defines what an error means.

use std::sync::Arc;

use super::around::{LayerDecision, Middleware, NextLayer, Operation, OperationHandler};
use crate::turn::error::TurnError;
use crate::turn::scope::TurnScope;

/// All middleware around one kind of operation, in the order of registration.
pub struct MiddlewareChain<O: Operation>(Vec<Arc<dyn Middleware<O>>>);

impl<O: Operation> Default for MiddlewareChain<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: Operation> MiddlewareChain<O> {
    /// Adds a middleware inside of those before.
    pub fn push(&mut self, layer: Arc<dyn Middleware<O>>) {
        self.0.push(layer);
    }

    /// Runs `handler` within all middleware.
    ///
    /// # Errors
    /// The handler's, or that of a middleware before or after it. Each middleware that was entered gets the error
    /// once, in order, and may change it.
    pub async fn run(
        &self,
        context: &TurnScope<'_>,
        request: O::Request,
        handler: &mut (dyn OperationHandler<O> + '_),
    ) -> Result<O::Response, TurnError> {
        let mut entered = 0;
        let mut error = match self.pass(context, request, handler, &mut entered).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        for layer in &self.0[..entered] {
            error = layer.on_error(context, error).await;
        }
        Err(error)
    }

    /// Runs all stages; `entered` counts the middleware whose `before` was called.
    async fn pass(
        &self,
        context: &TurnScope<'_>,
        mut request: O::Request,
        handler: &mut (dyn OperationHandler<O> + '_),
        entered: &mut usize,
    ) -> Result<O::Response, TurnError> {
        for layer in &self.0 {
            *entered += 1;
            match layer.before(context, request).await.inspect_err(|_| ended(layer))? {
                LayerDecision::Continue(changed) => request = changed,
                LayerDecision::Respond(response) => return self.leave(context, response, *entered).await,
            }
        }
        let response = NextLayer { layers: &self.0, context, handler }.run(request).await?;
        self.leave(context, response, *entered).await
    }

    /// Runs `after` of the entered middleware, including one that responded itself.
    async fn leave(
        &self,
        context: &TurnScope<'_>,
        mut response: O::Response,
        entered: usize,
    ) -> Result<O::Response, TurnError> {
        for layer in self.0[..entered].iter().rev() {
            response = layer.after(context, response).await.inspect_err(|_| ended(layer))?;
        }
        Ok(response)
    }
}

/// Logs which middleware ended the operation; the error says only why.
fn ended<O: Operation>(layer: &Arc<dyn Middleware<O>>) {
    tracing::debug!(middleware = layer.name(), around = O::NAME, "a middleware ended the operation");
}
