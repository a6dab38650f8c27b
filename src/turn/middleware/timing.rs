//! Measures model calls: their share of the turn's time, and each call by provider.

use async_trait::async_trait;

use super::around::{Middleware, ModelCall, ModelRequest, NextLayer};
use crate::llm::ChatResponse;
use crate::turn::error::TurnError;
use crate::turn::scope::TurnScope;

pub struct TimingMiddleware;

#[async_trait]
impl Middleware<ModelCall> for TimingMiddleware {
    fn name(&self) -> &'static str {
        "timing"
    }

    /// Measures without the waits of a rate limit, which come before.
    async fn run(
        &self,
        at: &TurnScope<'_>,
        request: ModelRequest,
        inner: &mut NextLayer<'_, ModelCall>,
    ) -> Result<ChatResponse, TurnError> {
        let asking = at.meter.ask_model(&request.provider);
        let response = inner.run(request).await;
        match &response {
            Ok(response) if response.cached => asking.forget(),
            response => asking.ended(response.is_ok()),
        }
        response
    }
}
