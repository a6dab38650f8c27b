//! `write_file`.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Doors, on_disk};
use crate::chat::ToolSpec;
use crate::tools::{Replay, Tool, ToolContext, ToolOutcome, tool_spec};

#[derive(Deserialize, JsonSchema)]
struct Args {
    path: String,
    content: String,
}

/// Replaces a file whole, or makes it.
pub struct WriteFile {
    spec: ToolSpec,
    doors: Doors,
}

impl WriteFile {
    pub fn new(doors: Doors) -> Self {
        let description = "Write a whole file, replacing what was there. Makes missing folders.";
        Self { spec: tool_spec::<Args>("write_file", description), doors }
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["write", "create_file", "save_file"]
    }

    fn replay(&self) -> Replay {
        Replay::Idempotent
    }

    /// What a file or a page says must not choose what is overwritten.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &["path"]
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        on_disk(self.doors.of(context), arguments, |jail, args: Args| {
            let shown = jail.write(&args.path, args.content.as_bytes()).map_err(|error| error.to_string())?;
            Ok(format!("Wrote {} bytes to {shown}", args.content.len()))
        })
        .await
    }
}
