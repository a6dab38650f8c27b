//! `forget`: removes a memory for good.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::caller::{Call, CallError, own, owner};
use crate::chat::ToolSpec;
use crate::memory::{Desk, forget};
use crate::store::{Connection, StoreError};
use crate::tools::{Effect, Replay, Rows, Tool, ToolContext, ToolOutcome, ToolResult, WriteRows, tool_spec};

#[derive(Deserialize, JsonSchema)]
struct Args {
    /// As recall shows it.
    id: i64,
}

pub struct ForgetTool {
    spec: ToolSpec,
    desk: Option<Arc<Desk>>,
}

impl ForgetTool {
    pub fn new(desk: Option<Arc<Desk>>) -> Self {
        let description = "Forget a memory for good, when the user wants it gone.";
        Self { spec: tool_spec::<Args>("forget", description), desk }
    }
}

#[async_trait]
impl Tool for ForgetTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["delete_memory", "remove_memory", "forget_memory"]
    }

    fn replay(&self) -> Replay {
        Replay::Atomic
    }

    /// What a page says must not choose what is forgotten.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &["id"]
    }

    fn hint(&self, _: &str) -> Option<&'static str> {
        Some("id is the number of a memory: recall it first, which shows the id")
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let done = match Call::<Args>::read(self.desk.as_ref(), arguments) {
            Ok(call) => go(call, context).await,
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| ToolResult::from(error).into())
    }
}

async fn go(Call { desk, args }: Call<Args>, context: &ToolContext) -> Result<ToolOutcome, CallError> {
    let owner = owner(&desk, context)?;
    let looked = desk.store.read(move |connection| match own(connection, &owner, args.id) {
        Err(CallError::Store(error)) => Err(error),
        other => Ok(other),
    });
    let id = looked.await??.id;
    // What it was is not said again: it would stand in the log anew.
    let told = format!("Forgotten for good (id {id}). Do not repeat what it was.");
    let rows = Effect::Rows(Rows(Arc::new(Written { desk, id })));
    Ok(ToolOutcome { result: ToolResult::ok(told), effects: vec![rows] })
}

#[derive(Debug)]
struct Written {
    desk: Arc<Desk>,
    id: i64,
}

impl WriteRows for Written {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        forget(connection, &[self.id]).map(|_| ())
    }

    fn written(&self) {
        self.desk.changed();
    }
}
