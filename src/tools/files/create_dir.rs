//! The tool `create_dir`.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::scope::{WriteScope, run_on_jail};
use crate::chat::ToolSpec;
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolOutcome, tool_spec};

#[derive(Deserialize, JsonSchema)]
struct CreateDirArgs {
    path: String,
}

/// Creates a folder and those above it.
pub struct CreateDir {
    spec: ToolSpec,
    files: WriteScope,
}

impl CreateDir {
    pub fn new(files: WriteScope) -> Self {
        Self { spec: tool_spec::<CreateDirArgs>("create_dir", "Create a folder and those above it."), files }
    }
}

#[async_trait]
impl Tool for CreateDir {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Idempotent
    }

    /// Text from a file or page must not choose the folder.
    fn literal_arguments(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn is_restricted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.files.is_path_restricted(arguments, context)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        run_on_jail(self.files.for_turn(context), arguments, |jail, args: CreateDirArgs| {
            match jail.create_folder(&args.path) {
                Ok((shown, true)) => Ok(format!("Created {shown}/")),
                Ok((shown, false)) => Ok(format!("{shown}/ exists already")),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use crate::tools::testing::ToolWorld;
    use crate::tools::{PrivateFolders, ToolsConfig};

    #[tokio::test]
    async fn folders_are_created_with_those_above_them() {
        let world = ToolWorld::with_private(&ToolsConfig::default(), PrivateFolders::new(&["memory"]));
        fs::write(world.path("file"), "x").unwrap();
        std::os::unix::fs::symlink(world.home.path(), world.path("out")).unwrap();
        for (path, expected) in [
            ("a/b/c", "Created a/b/c/"),
            ("./a/b/", "a/b/ exists already"),
            (".", "./ exists already"),
            ("a/../d", "Created a/../d/"),
            ("file", "Error: file: is not a folder"),
            ("file/x", "Error: file/x: is not a folder"),
            ("../x", "Error: ../x: outside the workspace"),
            ("out/x", "Error: out/x: outside the workspace"),
            (".daoyou/x", "Error: .daoyou/x: off limits"),
            ("", "Error: the path is empty"),
        ] {
            let said = world.says("create_dir", json!({ "path": path })).await;
            assert!(said.starts_with(expected), "{path}: {said}");
        }
        assert!(world.path("a/b/c").is_dir() && world.path("d").is_dir() && !world.path(".daoyou/x").exists());
        assert!(!world.home.path().join("x").exists());
    }
}
