//! The tools `write_file` and `create_dir`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::WriteTool;
use super::scope::WriteScope;
use crate::guard::JailError;
use crate::text::plural;
use crate::tools::{ReplayPolicy, Tool, ToolDefinition};

#[derive(Deserialize, JsonSchema)]
struct WriteFileArgs {
    path: String,
    content: String,
}

#[derive(Deserialize, JsonSchema)]
struct CreateDirArgs {
    path: String,
    /// False if the folder above must exist; tools of other systems have it.
    #[schemars(skip)]
    parents: Option<bool>,
}

/// Returns the tool `write_file`, which writes a whole file.
pub fn write_file(scope: WriteScope) -> Arc<dyn Tool> {
    let description = "Write a whole file; makes its folders.";
    let definition = ToolDefinition::changing::<WriteFileArgs>("write_file", description, ReplayPolicy::Overwrites);
    Arc::new(WriteTool::new(definition, scope, |jail, WriteFileArgs { path, content }: &WriteFileArgs, _| {
        let written = jail.writer().write(path, content.as_bytes(), None).map_err(|error| error.to_string())?;
        let verb = if written.is_new { "Created" } else { "Replaced" };
        let (lines, bytes) = (plural(content.lines().count(), "line"), content.len());
        Ok::<_, String>(format!("{verb} {}: {lines}, {bytes} bytes", written.shown))
    }))
}

/// Returns the tool `create_dir`, which creates a folder and the folders above it.
pub fn create_dir(scope: WriteScope) -> Arc<dyn Tool> {
    let description = "Create a folder and those above it.";
    let definition = ToolDefinition::changing::<CreateDirArgs>("create_dir", description, ReplayPolicy::Idempotent);
    Arc::new(WriteTool::new(definition, scope, |jail, args: &CreateDirArgs, _| {
        if args.parents == Some(false)
            && let Err(error @ JailError::Missing(_)) = jail.entry(&args.path)
        {
            return Err(format!("{error}; parents = true creates it too"));
        }
        let (shown, is_new) = jail.create_folder(&args.path).map_err(|error| error.to_string())?;
        Ok::<_, String>(if is_new { format!("Created {shown}/") } else { format!("{shown}/ exists already") })
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

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
        for (arguments, expected) in [
            (
                json!({"path": "n/o", "parents": false}),
                "Error: n: no such file or folder; parents = true creates it too",
            ),
            (json!({"path": "n/o", "recursive": "false"}), "Error: n: no such file or folder"),
            (json!({"path": "a/e", "parents": false, "exist_ok": true}), "Created a/e/"),
            (json!({"path": "n/o", "parents": true}), "Created n/o/"),
            (
                json!({"path": "n/o", "exist_ok": false}),
                "Error: Invalid params for tool \"create_dir\": exist_ok: only true is possible: an existing folder is never an error",
            ),
        ] {
            let rendered = fixture.rendered("create_directory", arguments.clone()).await;
            assert!(rendered.starts_with(expected), "{arguments}: {rendered}");
        }
    }

    #[tokio::test]
    async fn a_refused_path_gets_its_true_reason() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.write(&[("sub/a.txt", "kept")]);
        let slash = "the path is not valid: it names a folder; give the path of a file";
        let dangling = "is a link whose target does not exist, or lies behind one; use the path of the target";
        let absolute = "is an absolute link, or lies behind one, and daoyou follows only relative ones; use ./sub";
        let outside = "outside the workspace";
        for (name, target) in [
            ("dangling", "nowhere".into()),
            ("abs_file", fixture.path("sub/a.txt")),
            ("abs_folder", fixture.path("sub")),
            ("abs_new", fixture.path("sub/new.txt")),
            ("abs_out", fixture.home.path().join("x")),
            ("abs_up", fixture.path("../x")),
        ] {
            symlink(target, fixture.path(name)).unwrap();
        }
        for (path, name, reason) in [
            ("w4/", "", slash),
            ("sub/", "", slash),
            ("w4/.", "", slash),
            ("dangling", "dangling: ", dangling),
            ("dangling/x", "dangling/x: ", dangling),
            ("abs_file", "abs_file: ", &format!("{absolute}/a.txt")),
            ("abs_folder/x", "abs_folder/x: ", &format!("{absolute}/x")),
            ("abs_new", "abs_new: ", &format!("{absolute}/new.txt")),
            ("abs_out", "abs_out: ", outside),
            ("abs_up", "abs_up: ", outside),
            ("sub", "sub: ", "is a folder"),
            ("sub/a.txt/b", "sub/a.txt/b: ", "is not a folder"),
        ] {
            let rendered = fixture.rendered("write_file", json!({ "path": path, "content": "x" })).await;
            assert!(rendered.starts_with(&format!("Error: {name}{reason}")), "{path}: {rendered}");
        }
        let rendered = fixture.rendered("read_file", json!({ "path": "abs_file" })).await;
        assert!(rendered.starts_with(&format!("Error: abs_file: {absolute}/a.txt")), "{rendered}");
        assert_eq!(fs::read_to_string(fixture.path("sub/a.txt")).unwrap(), "kept");
        assert_eq!(fs::read_dir(fixture.path("sub")).unwrap().count(), 1);
        let free = ToolFixture::new(&ToolsConfig { restrict_to_workspace: false, ..ToolsConfig::default() });
        symlink("nowhere", free.path("dangling")).unwrap();
        let rendered = free.rendered("write_file", json!({ "path": "dangling", "content": "x" })).await;
        assert!(rendered.starts_with(&format!("Error: dangling: {dangling}")), "{rendered}");
        let rendered = free.rendered("write_file", json!({ "path": "missing/../a.txt", "content": "x" })).await;
        assert!(!rendered.contains("link"), "{rendered}");
    }

    #[tokio::test]
    async fn write_file_takes_arguments_that_change_nothing() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        for (arguments, expected) in [
            (json!({"file_path": "a/b", "content": "x", "encoding": "UTF-8", "create_dirs": true}), "Created a/b: "),
            (
                json!({"file_path": "a/c", "content": "x", "encoding": "gbk", "create_dirs": false}),
                "Error: Invalid params for tool \"write_file\": encoding: only utf-8 is possible: edit_file keeps the \
                 encoding of a file; create_dirs: only true is possible: missing folders are always created",
            ),
        ] {
            let rendered = fixture.rendered("write_file", arguments.clone()).await;
            assert!(rendered.starts_with(expected), "{arguments}: {rendered}");
        }
        assert!(fixture.rendered("read_file", json!({"path": "a/b", "encoding": "utf-8"})).await.contains("x"));
    }
}
