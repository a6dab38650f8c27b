//! How long a model takes: its part of the turn's time, and each call by provider.

use async_trait::async_trait;

use super::around::{Around, Context, Inner, ModelCall, ModelRequest};
use crate::agent::error::TurnError;
use crate::llm::ChatResponse;

pub struct Timing;

#[async_trait]
impl Around<ModelCall> for Timing {
    fn name(&self) -> &'static str {
        "timing"
    }

    /// The waits of a rate limit come before, and are no time of the model's.
    async fn run(
        &self,
        at: &Context<'_>,
        request: ModelRequest,
        inner: &mut Inner<'_, ModelCall>,
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
