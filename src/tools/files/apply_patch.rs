//! The tool `apply_patch`, which changes several files by one patch. It changes all files or none.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::delete::{move_to_trash, new_record};
use super::patch_plan::{PatchPlan, PatchedFiles, PlannedFile, plan};
use super::patch_text::{FileChange, FilePatch, parse_patch};
use super::scope::{ReadScope, WriteScope, run_on_jail};
use crate::guard::{FileContent, Jail, JailError, JailWriter, Taint};
use crate::tools::trash::{Trash, TrashRecord};
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolOutcome};

#[derive(Deserialize, JsonSchema)]
struct ApplyPatchArgs {
    /// Unified diff, or the `*** Begin Patch` form.
    patch: String,
}

/// The tool `apply_patch`.
pub struct ApplyPatch {
    definition: ToolDefinition,
    files: WriteScope,
    scope: ReadScope,
    trash: Arc<Trash>,
}

impl ApplyPatch {
    /// Creates the tool. `scope` determines the sources of the files' content, because an error shows a part of it.
    pub fn new(files: WriteScope, scope: ReadScope, trash: Arc<Trash>) -> Self {
        let description = "Change, add, delete and move files by a patch, all or none.";
        let definition = ToolDefinition {
            // Text from a file or page must not determine which files are changed.
            literal_arguments: &["patch"],
            ..ToolDefinition::changing::<ApplyPatchArgs>("apply_patch", description, ReplayPolicy::Once)
        };
        Self { definition, files, scope, trash }
    }

    fn sources(&self, arguments: &Value, context: &ToolContext) -> Taint {
        let patch = parse_patch(arguments["patch"].as_str().unwrap_or_default()).unwrap_or_default();
        patch.iter().flat_map(FilePatch::paths).flat_map(|path| self.scope.sources_of(path, context)).collect()
    }
}

#[async_trait]
impl Tool for ApplyPatch {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        parse_patch(arguments["patch"].as_str().unwrap_or_default()).map(|_| ())
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        !self.sources(arguments, context).is_empty()
    }

    fn is_restricted(&self, arguments: &Value, context: &ToolContext) -> bool {
        let patch = parse_patch(arguments["patch"].as_str().unwrap_or_default()).unwrap_or_default();
        let paths = patch.iter().flat_map(FilePatch::paths);
        patch.is_empty() || self.files.is_restricted(paths, context)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let sources = self.sources(&arguments, context);
        let (trash, record) = (Arc::clone(&self.trash), new_record(context));
        let mut outcome = run_on_jail(self.files.for_turn(context), arguments, move |jail, args: ApplyPatchArgs| {
            let patch = parse_patch(&args.patch)?;
            let writer = jail.writer();
            let plan = plan(&patch, &WorkspaceFiles(&writer))?;
            write_plan(&plan, &writer, &|path| remove_file(jail, &trash, path, &record))?;
            let is_addition = patch.iter().all(|file| matches!(file.change, FileChange::Add { .. }));
            let verb = if is_addition { "Added" } else { "Changed" };
            Ok::<_, String>(format!("{verb} {} files:\n{}", plan.summary.len(), plan.summary.join("\n")))
        })
        .await;
        outcome.result.add_sources(sources);
        outcome
    }
}

/// The current files of the workspace.
struct WorkspaceFiles<'a>(&'a JailWriter<'a>);

impl PatchedFiles for WorkspaceFiles<'_> {
    fn read(&self, path: &str) -> Result<Option<FileContent>, String> {
        match self.0.read(path) {
            Ok(opened) => Ok(Some(opened)),
            Err(JailError::Missing(_)) => Ok(None),
            Err(error) => Err(format!("{error}; nothing was changed")),
        }
    }

    fn mode(&self, path: &str) -> Result<Option<u32>, String> {
        self.0.mode(path).map_err(|error| format!("{error}; nothing was changed"))
    }
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
