//! `forget`: removes a memory for good.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::caller::{changeable_memory, owner};
use crate::memory::{MemoryError, MemoryService, forget};
use crate::store::{Connection, StoreError};
use crate::tools::{
    ReplayPolicy, RowEffect, ToolContext, ToolDefinition, ToolEffect, ToolOutcome, ToolResult, WriteRows,
};

#[derive(Deserialize, JsonSchema)]
pub struct ForgetArgs {
    /// As recall shows it.
    id: i64,
}

/// Returns the definition of the tool.
pub fn definition() -> ToolDefinition {
    let description = "Forget a memory for good, when the user wants it gone.";
    ToolDefinition {
        // Text of a web page must not choose the memory to forget.
        literal_arguments: &["id"],
        ..ToolDefinition::changing::<ForgetArgs>("forget", description, ReplayPolicy::Atomic)
    }
}

pub async fn plan_forget(
    service: Arc<MemoryService>,
    args: ForgetArgs,
    context: &ToolContext,
) -> Result<ToolOutcome, MemoryError> {
    let owner = owner(&service, context)?;
    let find = move |connection: &Connection| {
        MemoryError::separate_store_errors(changeable_memory(connection, &owner, args.id))
    };
    let id = service.store.read(find).await??.id;
    // The answer must not repeat the memory, since the log would then contain it again.
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
