//! The tool `write_file`.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::scope::{WriteScope, run_on_jail};
use crate::chat::ToolSpec;
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolOutcome, tool_spec};

#[derive(Deserialize, JsonSchema)]
struct WriteFileArgs {
    path: String,
    content: String,
}

/// Writes a whole file.
pub struct WriteFile {
    spec: ToolSpec,
    files: WriteScope,
}

impl WriteFile {
    pub fn new(files: WriteScope) -> Self {
        let description = "Write a whole file; makes its folders.";
        Self { spec: tool_spec::<WriteFileArgs>("write_file", description), files }
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Idempotent
    }

    /// Text from a file or page must not choose the file that is overwritten.
    fn literal_arguments(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn is_restricted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.files.is_path_restricted(arguments, context)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        run_on_jail(self.files.for_turn(context), arguments, |jail, args: WriteFileArgs| {
            let WriteFileArgs { path, content } = args;
            let written = jail.writer().write(&path, content.as_bytes(), None).map_err(|error| error.to_string())?;
            let verb = if written.is_new { "Created" } else { "Replaced" };
            let (lines, bytes) = (content.lines().count(), content.len());
            let unit = if lines == 1 { "line" } else { "lines" };
            Ok(format!("{verb} {}: {lines} {unit}, {bytes} bytes", written.shown))
        })
        .await
    }
}
