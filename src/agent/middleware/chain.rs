//! The order of middleware, and what an error means.

use std::sync::Arc;

use super::around::{Around, Context, Handler, Inner, Operation, Passed};
use crate::agent::error::TurnError;

/// All middleware around one kind of operation, in the order of registration.
pub struct Chain<O: Operation>(Vec<Arc<dyn Around<O>>>);

impl<O: Operation> Default for Chain<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: Operation> Chain<O> {
    /// Adds one further in.
    pub fn push(&mut self, layer: Arc<dyn Around<O>>) {
        self.0.push(layer);
    }

    /// Runs `handler` with all of them around it.
    ///
    /// # Errors
    /// The handler's, or one of a middleware, before or after. Whichever it is, everyone that was entered is told of it
    /// once, in order, and may change it.
    pub async fn run(
        &self,
        context: &Context<'_>,
        request: O::Request,
        handler: &mut (dyn Handler<O> + '_),
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

    /// In and out again; `entered` counts those whose `before` was called.
    async fn pass(
        &self,
        context: &Context<'_>,
        mut request: O::Request,
        handler: &mut (dyn Handler<O> + '_),
        entered: &mut usize,
    ) -> Result<O::Response, TurnError> {
        for layer in &self.0 {
            *entered += 1;
            match layer.before(context, request).await.inspect_err(|_| ended(layer))? {
                Passed::On(changed) => request = changed,
                Passed::Answered(response) => return self.leave(context, response, *entered).await,
            }
        }
        let response = Inner { layers: &self.0, context, handler }.run(request).await?;
        self.leave(context, response, *entered).await
    }

    /// Out again, through those that were entered; one that answered itself is among them.
    async fn leave(
        &self,
        context: &Context<'_>,
        mut response: O::Response,
        entered: usize,
    ) -> Result<O::Response, TurnError> {
        for layer in self.0[..entered].iter().rev() {
            response = layer.after(context, response).await.inspect_err(|_| ended(layer))?;
        }
        Ok(response)
    }
}

/// Which of them ended it, for the log: the error says only why.
fn ended<O: Operation>(layer: &Arc<dyn Around<O>>) {
    tracing::debug!(middleware = layer.name(), around = O::NAME, "ended by a middleware");
}
