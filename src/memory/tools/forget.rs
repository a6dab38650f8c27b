//! `forget`: removes a memory for good.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::caller::{MemoryCall, MemoryCallError, changeable_memory, owner};
use crate::chat::ToolSpec;
use crate::memory::{MemoryService, forget};
use crate::store::{Connection, StoreError};
use crate::tools::{
    ReplayPolicy, RowEffect, Tool, ToolContext, ToolEffect, ToolOutcome, ToolResult, WriteRows, tool_spec,
};

#[derive(Deserialize, JsonSchema)]
struct ForgetArgs {
    /// As recall shows it.
    id: i64,
}

pub struct ForgetTool {
    spec: ToolSpec,
    service: Option<Arc<MemoryService>>,
}

impl ForgetTool {
    pub fn new(service: Option<Arc<MemoryService>>) -> Self {
        let description = "Forget a memory for good, when the user wants it gone.";
        Self { spec: tool_spec::<ForgetArgs>("forget", description), service }
    }
}

#[async_trait]
impl Tool for ForgetTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Atomic
    }

    /// Returns the arguments that the text of a page must not choose.
    fn literal_arguments(&self) -> &'static [&'static str] {
        &["id"]
    }

    fn hint(&self, _: &str) -> Option<&'static str> {
        Some("id is the number of a memory: recall it first, which shows the id")
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let done = match MemoryCall::<ForgetArgs>::read(self.service.as_ref(), arguments) {
            Ok(call) => plan_forget(call, context).await,
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| ToolResult::from(error).into())
    }
}

async fn plan_forget(
    MemoryCall { service, args }: MemoryCall<ForgetArgs>,
    context: &ToolContext,
) -> Result<ToolOutcome, MemoryCallError> {
    let owner = owner(&service, context)?;
    let found = service.store.read(move |connection| match changeable_memory(connection, &owner, args.id) {
        Err(MemoryCallError::Store(error)) => Err(error),
        other => Ok(other),
    });
    let id = found.await??.id;
    // The text is not repeated, since the log would then contain it again.
    let text = format!("Forgotten for good (id {id}). Do not repeat what it was.");
    let rows = ToolEffect::Rows(RowEffect(Arc::new(ForgetWrite { service, id })));
    Ok(ToolOutcome { result: ToolResult::ok(text), effects: vec![rows] })
}

#[derive(Debug)]
struct ForgetWrite {
    service: Arc<MemoryService>,
    id: i64,
}

impl WriteRows for ForgetWrite {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        forget(connection, &[self.id]).map(|_| ())
    }

    fn committed(&self) {
        self.service.notify_changes();
    }
}
