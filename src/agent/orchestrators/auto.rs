//! Tools where the model takes them, ReAct where it does not.

use std::sync::Arc;

use async_trait::async_trait;

use super::react::ReactModel;
use crate::llm::{ChatRequest, ChatResponse, DeltaSink, LlmError, Provider};

/// Offers the model its tools, and falls back on ReAct where it refuses them, or is known to take none.
pub struct AutoModel {
    native: Arc<dyn Provider>,
    react: ReactModel,
}

impl AutoModel {
    pub fn new(native: Arc<dyn Provider>) -> Self {
        let react = ReactModel::new(native.clone());
        Self { native, react }
    }
}

#[async_trait]
impl Provider for AutoModel {
    fn name(&self) -> &str {
        self.native.name()
    }

    fn takes_tools(&self, _: &str) -> bool {
        true
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let takes_tools = || self.native.takes_tools(&request.model);
        if !takes_tools() {
            return self.react.chat(request, sink).await;
        }
        match self.native.chat(request, sink).await {
            // Its provider has learned from the refusal.
            Err(error) if !request.tools.is_empty() && !takes_tools() => {
                let (provider, model) = (self.native.name(), &request.model);
                tracing::info!(provider, model, %error, "the model takes no tools; it is asked in the ReAct format from now on");
                self.react.chat(request, sink).await
            }
            other => other,
        }
    }
}
