//! The tool `lsp_rename`: the server says what to change, and all of it is written, or nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lsp_types::TextEdit;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use similar::TextDiff;

use super::connection::LspError;
use super::edits::{apply_edits, file_edits};
use super::positions::PositionEncoding;
use super::project_files::DiskStamp;
use super::query::joined;
use super::server::ServerFileState;
use super::service::{LspService, ProjectView};
use crate::chat::ToolSpec;
use crate::guard::{Jail, JailWriter};
use crate::tools::files::{PatchPlan, PlannedFile, TextFile, WriteScope, write_plan};
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolOutcome, ToolResult, tool_spec};

/// The longest name, in characters.
const NAME_CHARS: usize = 200;
/// The bytes of all changed files together, old and new.
const MAX_BYTES: usize = 64_000_000;
/// How long the smallest difference of a file is looked for; then a larger one is shown.
const DIFF_TIME: Duration = Duration::from_millis(200);

#[derive(Deserialize, JsonSchema)]
struct RenameArgs {
    path: String,
    /// From 1.
    #[schemars(range(min = 1))]
    line: u32,
    /// Of the line, from 1.
    #[schemars(range(min = 1))]
    character: u32,
    new_name: String,
}

/// Renames a symbol in all files of its project.
pub struct LspRename {
    spec: ToolSpec,
    service: Arc<LspService>,
    files: WriteScope,
}

/// A file to change.
struct PlannedEdit {
    /// Relative to the workspace.
    path: String,
    edits: Vec<TextEdit>,
    /// What the server knows of the file.
    known: ServerFileState,
    real: PathBuf,
}

impl LspRename {
    pub fn new(service: Arc<LspService>, files: WriteScope) -> Self {
        let description = "Rename a symbol in all files of its project.";
        Self { spec: tool_spec::<RenameArgs>("lsp_rename", description), service, files }
    }

    async fn rename(&self, args: RenameArgs, context: &ToolContext) -> Result<String, LspError> {
        let target = self.service.open(&args.path, context).await?;
        target.server().require("renameProvider", "it renames nothing")?;
        if !target.is_ready {
            let name = &target.server().connection.name;
            let text = format!(
                "{name} still reads the project, so it may not know all places; nothing was changed. Try again later"
            );
            return Err(LspError::for_now(text));
        }
        let mut params = target.place(args.line, args.character)?;
        params["newName"] = json!(args.new_name);
        let answer = target.ask("textDocument/rename", params).await?;
        let unchanged = |error: String| LspError::from(format!("{error}; nothing was changed"));
        let files = file_edits(answer).map_err(unchanged)?;
        if files.is_empty() {
            let RenameArgs { line, character, .. } = args;
            return Err(unchanged(format!("nothing to rename is at line {line}, character {character}")));
        }
        let mut planned = Vec::new();
        for file in files {
            let real = file.url.to_file_path().map_err(|()| unchanged(format!("{} is no file", file.url)))?;
            let path = path_to_change(&target.view, &real).map_err(unchanged)?;
            let known = target.server().known(&real).await;
            planned.push(PlannedEdit { path, edits: file.edits, known, real });
        }
        let (jail, encoding) = (self.files.for_turn(context), target.server().encoding);
        if target.cancel.is_cancelled() {
            return Err(unchanged("Cancelled".to_owned()));
        }
        let written = tokio::task::spawn_blocking(move || write(&jail, planned, encoding)).await;
        let diff = written.map_err(|error| error.to_string())??;
        Ok(joined(vec![diff], &target))
    }
}

/// Returns the path relative to the workspace of a file that the server would change.
fn path_to_change(view: &ProjectView, real: &Path) -> Result<String, String> {
    let relative = view.relative(real).filter(|_| !view.is_hidden(real));
    let path = relative.and_then(Path::to_str);
    path.map(str::to_owned).ok_or_else(|| format!("the server would change {}, which is not for it", real.display()))
}

/// Writes all changes, or nothing. Returns what was changed, as a unified diff.
fn write(jail: &Jail, files: Vec<PlannedEdit>, encoding: PositionEncoding) -> Result<String, String> {
    let writer = jail.writer();
    let (mut plan, mut diffs, mut bytes) = (PatchPlan::default(), String::new(), 0);
    let places = files.iter().map(|file| file.edits.len()).sum::<usize>();
    let count = files.len();
    for file in files {
        let changed = plan_file(&writer, &file, encoding).map_err(|error| {
            let error = error.trim_end_matches("; nothing was changed");
            format!("{error}; nothing was changed")
        })?;
        let (planned, diff) = changed;
        bytes += planned.old.as_ref().map_or(0, Vec::len) + planned.new.as_ref().map_or(0, Vec::len);
        if bytes > MAX_BYTES {
            let most = MAX_BYTES / 1_000_000;
            return Err(format!("the files have more than {most} MB together; nothing was changed"));
        }
        diffs.push_str(&diff);
        plan.files.insert(file.path, planned);
    }
    write_plan(&plan, &writer, &|path| Err(format!("{path}: no file is removed")))?;
    let (places_word, files_word) = (plural(places, "place"), plural(count, "file"));
    Ok(format!("Changed {places_word} in {files_word}:\n{}", diffs.trim_end()))
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn plan_file(
    writer: &JailWriter<'_>,
    file: &PlannedEdit,
    encoding: PositionEncoding,
) -> Result<(PlannedFile, String), String> {
    let path = &file.path;
    let opened = writer.read(path).map_err(|error| error.to_string())?;
    let text = TextFile::decode(&opened)?;
    let is_known = match &file.known {
        ServerFileState::Open(known) => **known == *text.text,
        ServerFileState::Closed(stamp) => DiskStamp::of(&file.real) == Some(*stamp),
        ServerFileState::Unknown => true,
    };
    if !is_known {
        return Err(format!("{path} changed meanwhile; try again"));
    }
    let edits: Vec<TextEdit> = file
        .edits
        .iter()
        .map(|edit| TextEdit { range: edit.range, new_text: text.normalize(&edit.new_text) })
        .collect();
    let new = apply_edits(&text.text, &edits, encoding).map_err(|error| format!("{path}: {error}"))?;
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(&text.text, &new);
    let (before, after) = (format!("a/{path}"), format!("b/{path}"));
    let diff = diff.unified_diff().context_radius(1).header(&before, &after).to_string();
    let bytes = text.encode(&new)?;
    Ok((PlannedFile { new: Some(bytes), old: Some(opened.bytes.clone()), mode: None }, diff))
}

#[async_trait]
impl Tool for LspRename {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Once
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.service.limit())
    }

    /// Text from a file or page must choose neither the code that a server runs nor what is written.
    fn literal_arguments(&self) -> &'static [&'static str] {
        &["path", "new_name"]
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let name = arguments["new_name"].as_str().unwrap_or_default();
        if name.trim().is_empty() || name.chars().count() > NAME_CHARS || name.contains(char::is_control) {
            return Err(format!("new_name: a name of 1 to {NAME_CHARS} characters on one line is needed"));
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let args: RenameArgs = match serde_json::from_value(arguments) {
            Ok(args) => args,
            Err(error) => return ToolResult::failed(error.to_string()).into(),
        };
        self.rename(args, context).await.map_or_else(ToolResult::from, ToolResult::ok).into()
    }
}
