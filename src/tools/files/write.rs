//! The tools `write_file` and `create_dir`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::WriteTool;
use super::scope::WriteScope;
use crate::guard::JailError;
use crate::tools::{ReplayPolicy, Tool, ToolDefinition};

#[derive(Deserialize, JsonSchema)]
struct WriteFileArgs {
    path: String,
    content: String,
}

#[derive(Deserialize, JsonSchema)]
struct CreateDirArgs {
    path: String,
}

/// Returns the tool `write_file`, which writes a whole file.
pub fn write_file(scope: WriteScope) -> Arc<dyn Tool> {
    let description = "Write a whole file; makes its folders.";
    let definition = ToolDefinition::changing::<WriteFileArgs>("write_file", description, ReplayPolicy::Idempotent);
    Arc::new(WriteTool::new(definition, scope, |jail, WriteFileArgs { path, content }, _| {
        let written = jail.writer().write(&path, content.as_bytes(), None).map_err(|error| error.to_string())?;
        let verb = if written.is_new { "Created" } else { "Replaced" };
        let (lines, bytes) = (content.lines().count(), content.len());
        let unit = if lines == 1 { "line" } else { "lines" };
        Ok::<_, String>(format!("{verb} {}: {lines} {unit}, {bytes} bytes", written.shown))
    }))
}

/// Returns the tool `create_dir`, which creates a folder and the folders above it.
pub fn create_dir(scope: WriteScope) -> Arc<dyn Tool> {
    let description = "Create a folder and those above it.";
    let definition = ToolDefinition::changing::<CreateDirArgs>("create_dir", description, ReplayPolicy::Idempotent);
    Arc::new(WriteTool::new(definition, scope, |jail, args: CreateDirArgs, _| {
        let (shown, is_new) = jail.create_folder(&args.path)?;
        Ok::<_, JailError>(if is_new { format!("Created {shown}/") } else { format!("{shown}/ exists already") })
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use crate::tools::testing::ToolFixture;
    use crate::tools::{PrivateFolders, ToolsConfig};

    #[tokio::test]
    async fn folders_are_created_with_those_above_them() {
        let fixture = ToolFixture::with_private(&ToolsConfig::default(), PrivateFolders::new(&["memory"]));
        fs::write(fixture.path("file"), "x").unwrap();
        std::os::unix::fs::symlink(fixture.home.path(), fixture.path("out")).unwrap();
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
            let rendered = fixture.rendered("create_dir", json!({ "path": path })).await;
            assert!(rendered.starts_with(expected), "{path}: {rendered}");
        }
        assert!(fixture.path("a/b/c").is_dir() && fixture.path("d").is_dir() && !fixture.path(".daoyou/x").exists());
        assert!(!fixture.home.path().join("x").exists());
    }
}
