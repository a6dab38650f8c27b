//! The tool `delete_file`.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use super::file_tool::WriteTool;
use super::scope::WriteScope;
use crate::guard::{Jail, JailEntry, JailError};
use crate::tools::trash::{Trash, TrashRecord};
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolDefinition};

/// The paths that daoyou itself reads, or writes from its database, relative to the workspace.
const UNDELETABLE: [&str; 8] =
    ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", "memory", "memory/MEMORY.md", "memory/HISTORY.md"];
/// The folders that no deletion may touch, for any sender.
const CLOSED: [&str; 2] = [".daoyou", ".daoyou-own"];

#[derive(Deserialize, JsonSchema)]
struct DeleteFileArgs {
    path: String,
    /// False if only an empty folder may be deleted; tools of other systems have it.
    #[schemars(skip)]
    recursive: Option<bool>,
}

/// Returns the tool `delete_file`, which moves a file or folder into the trash.
pub fn delete_file(scope: WriteScope, trash: Arc<Trash>) -> Arc<dyn Tool> {
    let description = "Move a file or folder to the trash.";
    // A second run finds the entry that the first run created.
    let definition = ToolDefinition::changing::<DeleteFileArgs>("delete_file", description, ReplayPolicy::Overwrites);
    Arc::new(WriteTool::new(definition, scope, move |jail, args: &DeleteFileArgs, context| {
        if args.recursive == Some(false) && is_filled_folder(jail, &args.path) {
            return Err(format!("{}: a folder that is not empty; recursive = true moves all of it", args.path));
        }
        let (shown, id) = move_to_trash(jail, &trash, &args.path, new_record(context))?;
        Ok::<_, String>(format!("Moved {shown} to the trash. The owner restores it with: daoyou trash restore {id}"))
    }))
}

fn is_filled_folder(jail: &Jail, path: &str) -> bool {
    let is_folder = jail.facts(path).is_ok_and(|facts| facts.kind == FileType::Directory);
    let entries = || jail.folder(path).ok()?.0.entries().ok();
    is_folder && entries().is_some_and(|mut entries| entries.next().is_some())
}

/// Creates the trash record for a file that a call deletes.
pub(super) fn new_record(context: &ToolContext) -> TrashRecord {
    TrashRecord {
        id: daoyou_channels::new_id(),
        path: String::new(),
        kind: String::new(),
        size: None,
        deleted_at: Timestamp::now(),
        session: context.session.to_string(),
        turn: context.turn,
        call: context.call_id.clone(),
    }
}

/// Moves the entry that `path` names into the trash. Returns the path as shown to the model, and the id of the trash entry.
///
/// # Errors
/// The entry does not exist, may not be deleted, or cannot be moved.
pub(super) fn move_to_trash(
    jail: &Jail,
    trash: &Trash,
    path: &str,
    mut record: TrashRecord,
) -> Result<(String, Uuid), String> {
    let entry = jail.entry(path).map_err(|error| error.to_string())?;
    record.path = deletable(jail, &entry)?;
    let facts = match entry.facts() {
        Ok(facts) => facts,
        Err(error) => {
            let before = trash.entry_of_call(&record).filter(|_| matches!(error, JailError::Missing(_)));
            return before.map(|before| (entry.shown, before.id)).ok_or_else(|| error.to_string());
        }
    };
    record.kind = match facts.kind {
        FileType::RegularFile => "file",
        FileType::Directory => "folder",
        FileType::Symlink => "link",
        _ => "special",
    }
    .to_owned();
    record.size = (facts.kind == FileType::RegularFile).then_some(facts.size);
    trash.take(&entry, &record).map_err(|error| error.to_string())?;
    Ok((entry.shown, record.id))
}

/// Returns the path of an entry relative to the workspace, if the entry may be deleted.
fn deletable(jail: &Jail, entry: &JailEntry) -> Result<String, String> {
    let shown = &entry.shown;
    let Ok(relative) = entry.real.strip_prefix(jail.root()) else {
        return Err(format!("{shown}: outside the workspace; only files in it can be moved to its trash"));
    };
    if relative.as_os_str().is_empty() || CLOSED.iter().any(|closed| relative.starts_with(closed)) {
        return Err(format!("{shown}: off limits, it holds keys or daoyou's own data"));
    }
    if UNDELETABLE.iter().any(|path| relative == Path::new(path)) {
        return Err(format!("{shown}: daoyou itself uses it, so it is not deleted; change its content instead"));
    }
    if jail.holds_protected(entry) {
        return Err(format!("{shown}: holds something that is off limits"));
    }
    let relative = relative.to_str().ok_or_else(|| format!("{shown}: the name is not UTF-8; use exec"))?;
    Ok(relative.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};
    use serde_json::json;

    use crate::tools::testing::ToolFixture;
    use crate::tools::{PrivateFolders, ToolsConfig};

    #[tokio::test]
    async fn deleted_files_are_in_the_trash() {
        let fixture = ToolFixture::with_private(&ToolsConfig::default(), PrivateFolders::new(&["memory"]));
        fs::create_dir_all(fixture.path(".daoyou/conversations")).unwrap();
        let files = ["file", "folder/inner/a", "memory/MEMORY.md", "memory/note.md", "AGENTS.md"];
        fixture.write(&files.map(|file| (file, file)));
        symlink("memory", fixture.path("way")).unwrap();
        symlink("/etc", fixture.path("link")).unwrap();
        symlink("nowhere", fixture.path("dangling")).unwrap();
        fs::hard_link(fixture.path("file"), fixture.path("hard")).unwrap();
        mknodat(CWD, fixture.path("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        for (call, (path, expected)) in [
            ("file", "Moved file to the trash. The owner restores it with: daoyou trash restore 0"),
            ("./hard", "Moved hard to the trash"),
            ("folder/", "Moved folder to the trash"),
            ("link", "Moved link to the trash"),
            ("dangling", "Moved dangling to the trash"),
            ("pipe", "Moved pipe to the trash"),
            ("memory/note.md", "Moved memory/note.md to the trash"),
            ("file", "Error: file: no such file or folder"),
            ("link/passwd", "Error: link: no such file or folder"),
            ("memory/MEMORY.md", "Error: memory/MEMORY.md: daoyou itself uses it"),
            ("way/MEMORY.md", "Error: way/MEMORY.md: daoyou itself uses it"),
            ("memory", "Error: memory: daoyou itself uses it"),
            ("AGENTS.md", "Error: AGENTS.md: daoyou itself uses it"),
            (".daoyou", "Error: .daoyou: off limits"),
            (".daoyou/conversations", "Error: .daoyou: off limits"),
            (".", "Error: the path is not valid: it names no entry"),
            ("memory/..", "Error: the path is not valid: it names no entry"),
            ("../workspace", "Error: ../workspace: outside the workspace"),
            ("/etc/passwd", "Error: /etc/passwd: outside the workspace"),
            ("", "Error: the path is empty"),
        ]
        .into_iter()
        .enumerate()
        {
            let rendered = fixture.rendered_in_call(&call.to_string(), "delete_file", json!({ "path": path })).await;
            assert!(rendered.starts_with(expected), "{path}: {rendered}");
        }
        assert!(fixture.path("memory/MEMORY.md").exists() && fixture.path("way/MEMORY.md").exists());
        assert_eq!(fs::read_dir(fixture.path(".daoyou/trash")).unwrap().count(), 7);
        for (tool, arguments) in [
            ("list_dir", json!({"path": ".daoyou/trash"})),
            ("glob", json!({"pattern": "**", "path": ".daoyou/trash"})),
            ("grep", json!({"pattern": ".", "path": ".daoyou/trash"})),
        ] {
            let rendered = fixture.rendered(tool, arguments).await;
            assert!(rendered.contains("off limits"), "{tool}: {rendered}");
        }
    }

    #[tokio::test]
    async fn without_recursive_a_filled_folder_stays() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.write(&[("full/a", "x"), ("one", "x")]);
        fs::create_dir(fixture.path("empty")).unwrap();
        symlink("full", fixture.path("link")).unwrap();
        for (call, (path, recursive, expected)) in [
            ("full", json!(false), "Error: full: a folder that is not empty; recursive = true moves all of it"),
            ("one", json!(false), "Moved one"),
            ("empty", json!("false"), "Moved empty"),
            ("link", json!(false), "Moved link"),
            (
                "full",
                json!("maybe"),
                "Error: Invalid params for tool \"delete_file\": recursive: expected boolean, got string",
            ),
            ("full", json!(true), "Moved full"),
        ]
        .into_iter()
        .enumerate()
        {
            let arguments = json!({ "path": path, "recursive": recursive });
            let rendered = fixture.rendered_in_call(&call.to_string(), "delete_file", arguments).await;
            assert!(rendered.starts_with(expected), "{path}: {rendered}");
        }
    }

    #[tokio::test]
    async fn a_repeated_call_succeeds_and_deletes_nothing_more() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fs::write(fixture.path("file"), "x").unwrap();
        let first = fixture.rendered_in_call("one", "delete_file", json!({ "path": "file" })).await;
        let again = fixture.rendered_in_call("one", "delete_file", json!({ "path": "file" })).await;
        assert!(first.starts_with("Moved file"), "{first}");
        assert_eq!(first, again);
        let other = fixture.rendered_in_call("two", "delete_file", json!({ "path": "file" })).await;
        assert!(other.starts_with("Error: file: no such file"), "{other}");
    }
}
