//! The tool `apply_patch`, which changes several files by one patch. It changes all files or none.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::delete::{move_to_trash, new_record};
use super::file_tool::WriteTool;
use super::patch_plan::{PatchPlan, PlannedFile, plan};
use super::patch_text::{FileChange, FilePatch, parse_patch};
use super::scope::{ReadScope, WriteScope};
use crate::guard::{Jail, JailWriter};
use crate::tools::trash::{Trash, TrashRecord};
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolDefinition};

#[derive(Deserialize, JsonSchema)]
struct ApplyPatchArgs {
    /// Unified diff, or the `*** Begin Patch` form.
    patch: String,
}

/// Returns the tool `apply_patch`. `reads` determines the sources of the files' content, because an error shows a part of it.
pub fn apply_patch(files: WriteScope, reads: ReadScope, trash: Arc<Trash>) -> Arc<dyn Tool> {
    let description = "Change, add, delete and move files by a patch, all or none.";
    let definition = ToolDefinition::changing::<ApplyPatchArgs>("apply_patch", description, ReplayPolicy::Once);
    let work = move |jail: &Jail, args: &ApplyPatchArgs, context: &ToolContext| {
        let (patch, record, writer) = (parse_patch(&args.patch)?, new_record(context), jail.writer());
        let plan = plan(&patch, &writer)?;
        write_plan(&plan, &writer, &|path| remove_file(jail, &trash, path, &record))?;
        let is_addition = patch.iter().all(|file| matches!(file.change, FileChange::Add { .. }));
        let verb = if is_addition { "Added" } else { "Changed" };
        Ok::<_, String>(format!("{verb} {} files:\n{}", plan.summary.len(), plan.summary.join("\n")))
    };
    let tool = WriteTool::with_paths(definition, files, &["patch"], changed_paths, work);
    let check = |arguments: &Value| patch_of(arguments).map(|_| ());
    Arc::new(WriteTool { reads: Some(reads), check, ..tool })
}

/// Parses the patch of a call.
///
/// # Errors
/// The patch is invalid; the text is for the model.
fn patch_of(arguments: &Value) -> Result<Vec<FilePatch>, String> {
    parse_patch(arguments["patch"].as_str().unwrap_or_default())
}

/// Returns the paths that the patch of a call names; none if it is invalid.
fn changed_paths(arguments: &Value) -> Vec<String> {
    patch_of(arguments).iter().flatten().flat_map(FilePatch::paths).map(str::to_owned).collect()
}

/// Writes the files of a plan: first the files that remain, then the removals. If a write is refused, the files before it get
/// their former content and mode back.
pub(in crate::tools) fn write_plan(
    plan: &PatchPlan,
    writer: &JailWriter<'_>,
    remove: &dyn Fn(&str) -> Result<(), String>,
) -> Result<(), String> {
    let is_changed = |(_, file): &(&String, &PlannedFile)| file.old != file.new || file.mode.is_some();
    let (kept, removed): (Vec<_>, Vec<_>) =
        plan.files.iter().filter(is_changed).partition(|(_, file)| file.new.is_some());
    let mut done: Vec<DoneWrite<'_>> = Vec::new();
    for (path, file) in kept.into_iter().chain(removed) {
        // A mode that cannot be read stays as it is.
        let mode = writer.mode(path).ok().flatten();
        let written = match &file.new {
            Some(bytes) => writer.write(path, bytes, file.mode).map(|_| ()).map_err(|error| error.to_string()),
            None if file.old.is_some() => remove(path),
            None => Ok(()),
        };
        if let Err(error) = written {
            return Err(format!("{error}; {}", undo(&done, writer)));
        }
        done.push(DoneWrite { path, file, mode });
    }
    Ok(())
}

/// A file of a plan that was written or removed, with its former mode.
struct DoneWrite<'a> {
    path: &'a str,
    file: &'a PlannedFile,
    mode: Option<u32>,
}

/// Moves a file to the trash, as a separate entry.
fn remove_file(jail: &Jail, trash: &Trash, path: &str, record: &TrashRecord) -> Result<(), String> {
    let record = TrashRecord { id: daoyou_channels::new_id(), ..record.clone() };
    move_to_trash(jail, trash, path, record).map(|_| ())
}

/// Restores the former content and modes of files. Returns a note about them for the error.
fn undo(done: &[DoneWrite<'_>], writer: &JailWriter<'_>) -> String {
    let mut left = Vec::new();
    for DoneWrite { path, file, mode } in done.iter().rev() {
        let undone = match (&file.old, &file.new) {
            (Some(bytes), _) => writer.write(path, bytes, *mode).map(|_| ()),
            (None, Some(_)) => writer.remove(path).map(|_| ()),
            (None, None) => Ok(()),
        };
        if let Err(error) = undone {
            left.push(error.to_string());
        }
    }
    if left.is_empty() {
        return "nothing was changed".to_owned();
    }
    format!("what was changed before could not be undone: {}", left.join("; "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::json;

    use crate::tools::ToolsConfig;
    use crate::tools::testing::ToolFixture;

    #[tokio::test]
    async fn a_write_that_is_refused_undoes_those_before_it() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        std::fs::write(fixture.path("a"), "one\n").unwrap();
        std::fs::set_permissions(fixture.path("a"), PermissionsExt::from_mode(0o640)).unwrap();
        // The link target does not exist, so nothing can be read, and nothing may be written through the link.
        symlink("../outside", fixture.path("z")).unwrap();
        let patch = "*** Begin Patch\n*** Update File: a\n-one\n+two\n*** Add File: b/new\n+x\n*** Add File: z\n+x\n*** End Patch";
        let rendered = fixture.rendered("apply_patch", json!({ "patch": patch })).await;
        assert!(
            rendered.contains("z: outside the workspace") && rendered.contains("nothing was changed"),
            "{rendered}"
        );
        assert_eq!(std::fs::read_to_string(fixture.path("a")).unwrap(), "one\n");
        assert!(!fixture.path("b/new").exists());
        let mode = || std::fs::metadata(fixture.path("a")).unwrap().permissions().mode() & 0o777;
        let executable = "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n\
                          --- /dev/null\n+++ b/z\n@@ -0,0 +1 @@\n+x\n";
        let rendered = fixture.rendered("apply_patch", json!({ "patch": executable })).await;
        assert!(rendered.contains("nothing was changed") && mode() == 0o640, "{:o}: {rendered}", mode());
        std::fs::remove_file(fixture.path("z")).unwrap();
        let rendered = fixture.rendered("apply_patch", json!({ "patch": patch })).await;
        assert_eq!(rendered, "Changed 3 files:\nM a (+1 -1)\nA b/new (+1)\nA z (+1)");
        assert_eq!((std::fs::read_to_string(fixture.path("a")).unwrap().as_str(), mode()), ("two\n", 0o640));
    }
}
