//! The tool `lsp_rename`: the server proposes the changes, and the tool writes all of them or none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use lsp_types::TextEdit;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client_state::ServerHealth;
use super::edits::{ProposedEdits, apply_edits, file_edits};
use super::languages::ServerKind;
use super::positions::PositionEncoding;
use super::project_files::DiskStamp;
use super::query::joined;
use super::server::ServerFileState;
use super::service::{LspService, OpenTarget, ProjectView};
use crate::guard::{Jail, JailWriter};
use crate::text::plural;
use crate::tools::files::{
    DIFFS_OF_MANY_FILES, FileDiff, PatchPlan, PlannedFile, TextFile, WriteScope, render_diffs, write_plan,
};
use crate::tools::{
    ReplayPolicy, ServerError, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments,
};

/// The maximum length of a name, in characters.
const NAME_CHARS: usize = 200;
const UNCHANGED: &str = "; nothing was changed";
/// The maximum size of all changed files together, old and new, in bytes.
const MAX_BYTES: usize = 64_000_000;

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

/// The tool `lsp_rename`, which renames a symbol in all files of its project.
pub struct LspRename {
    definition: ToolDefinition,
    service: Arc<LspService>,
    files: WriteScope,
}

/// A file with its edits.
struct PlannedEdit {
    real: PathBuf,
    edits: Vec<TextEdit>,
    /// The version of the file that the server knows.
    known: ServerFileState,
}

impl LspRename {
    pub fn new(service: Arc<LspService>, files: WriteScope) -> Self {
        let description = "Rename a symbol in all files of its project.";
        let definition = ToolDefinition {
            timeout: Some(service.limit()),
            // Text from a file or page must determine neither the code that a server runs nor the text that is written.
            literal_arguments: &["path", "new_name"],
            ..ToolDefinition::changing::<RenameArgs>("lsp_rename", description, ReplayPolicy::Once)
        };
        Self { definition, service, files }
    }

    async fn rename(&self, args: RenameArgs, context: &ToolContext) -> Result<String, ServerError> {
        let target = self.service.open(&args.path, context).await?;
        target.server().require("renameProvider", "it renames nothing")?;
        let is_loaded = target.is_ready && target.server().connection.state.health() != ServerHealth::Error;
        if let Some(why) = target.why_incomplete().filter(|_| !is_loaded) {
            let name = &target.server().connection.name;
            let text = format!("{name} {why}, so it may not know all places; nothing was changed. Try again later");
            return Err(ServerError { is_temporary: !target.is_ready, text });
        }
        let mut params = target.place(args.line, args.character)?;
        params["newName"] = json!(args.new_name);
        let edits = async || {
            let located = located_edits(&target, &params).await?;
            if located.is_empty() {
                let RenameArgs { line, character, .. } = args;
                let text = format!("nothing to rename is at line {line}, character {character}{UNCHANGED}");
                return Err(ServerError::lasting(text));
            }
            Ok::<_, ServerError>(located)
        };
        let mut located = edits().await?;
        let server = target.server();
        let paths: Vec<PathBuf> = located.keys().cloned().collect();
        let before = target.document.generation;
        let now = server.open_unknown(before, &paths, target.view.reader()).await;
        let now = now.map_err(unchanged)?.ok_or_else(changed_meanwhile)?;
        if now != before {
            // The server has just learned of changed files, so its first answer may be based on older texts.
            located = edits().await?;
        }
        let paths: Vec<PathBuf> = located.keys().cloned().collect();
        let known = server.known_since(now, &paths).await.ok_or_else(changed_meanwhile)?;
        let planned: Vec<_> =
            located.into_iter().zip(known).map(|((real, edits), known)| PlannedEdit { real, edits, known }).collect();
        let (jail, encoding) = (self.files.for_turn(context), server.encoding);
        if target.cancel.is_cancelled() {
            return Err(ServerError::lasting(format!("Cancelled{UNCHANGED}")));
        }
        let written = tokio::task::spawn_blocking(move || write(&jail, planned, encoding)).await;
        let written = written.unwrap_or_else(|error| Err(error.to_string()));
        Ok(joined(vec![written.map_err(ServerError::lasting)?], &target))
    }
}

/// Returns the error of a rename that ends before it writes.
fn unchanged(mut error: ServerError) -> ServerError {
    error.text.push_str(UNCHANGED);
    error
}

fn changed_meanwhile() -> ServerError {
    ServerError::for_now(format!("files changed meanwhile{UNCHANGED}. Try again"))
}

/// Requests the edits of a rename. Returns them by real path.
async fn located_edits(target: &OpenTarget, params: &Value) -> Result<BTreeMap<PathBuf, Vec<TextEdit>>, ServerError> {
    let answer = target.ask("textDocument/rename", params.clone()).await?;
    let files = file_edits(answer).map_err(|error| unchanged(ServerError::lasting(error)))?;
    let (view, kind) = (target.view.clone(), target.server().kind);
    let boundary = target.server().project.clone();
    let located = tokio::task::spawn_blocking(move || locate_edits(files, &view, &boundary, kind)).await;
    let located = located.map_err(|error| ServerError::lasting(error.to_string()))?;
    located.map_err(|error| unchanged(ServerError::lasting(error)))
}

/// Returns the edits by real path. A server may change only source files of its own language below `boundary`: it runs code of
/// the project, and that code must not select other files.
fn locate_edits(
    files: ProposedEdits,
    view: &ProjectView,
    boundary: &Path,
    kind: &ServerKind,
) -> Result<BTreeMap<PathBuf, Vec<TextEdit>>, String> {
    let mut located: BTreeMap<PathBuf, Vec<TextEdit>> = BTreeMap::new();
    for (url, edits) in files {
        let named = url.to_file_path().map_err(|()| format!("{url} is not a file"))?;
        let is_source = |real: &PathBuf| real.starts_with(boundary) && kind.language_id(real).is_some();
        let real = view.resolve(&named).ok().filter(is_source);
        let real = real.ok_or_else(|| format!("the server would change {}, which is not for it", named.display()))?;
        located.entry(real).or_default().extend(edits);
    }
    Ok(located)
}

/// Writes all changes or none. Returns the changes as a unified diff.
fn write(jail: &Jail, files: Vec<PlannedEdit>, encoding: PositionEncoding) -> Result<String, String> {
    let writer = jail.writer();
    let (mut plan, mut changes, mut bytes) = (PatchPlan::default(), Vec::new(), 0);
    let places = files.iter().map(|file| file.edits.len()).sum::<usize>();
    let count = files.len();
    for file in files {
        let (planned, change) = plan_file(&writer, &file, encoding).map_err(|error| {
            let error = error.trim_end_matches(UNCHANGED);
            format!("{error}{UNCHANGED}")
        })?;
        bytes += planned.old.as_ref().map_or(0, Vec::len) + planned.new.as_ref().map_or(0, Vec::len);
        if bytes > MAX_BYTES {
            let most = MAX_BYTES / 1_000_000;
            return Err(format!("the files have more than {most} MB together; nothing was changed"));
        }
        plan.files.insert(file.real.to_string_lossy().into_owned(), planned);
        changes.push(change);
    }
    write_plan(&plan, &writer, &|path| Err(format!("{path}: no file is removed")))?;
    let diff = render_diffs(changes.into_iter(), DIFFS_OF_MANY_FILES).join("\n");
    let (places_word, files_word) = (plural(places, "place"), plural(count, "file"));
    Ok(format!("Changed {places_word} in {files_word}:\n{diff}"))
}

fn plan_file(
    writer: &JailWriter<'_>,
    file: &PlannedEdit,
    encoding: PositionEncoding,
) -> Result<(PlannedFile, FileDiff<'static>), String> {
    let opened = writer.read(&file.real.to_string_lossy()).map_err(|error| error.to_string())?;
    let path = &opened.shown;
    let text = TextFile::decode(&opened)?;
    let is_known = match &file.known {
        ServerFileState::Open(known) => **known == *text.text,
        ServerFileState::Closed(stamp) => DiskStamp::of(&file.real) == Some(*stamp),
        ServerFileState::Unknown => {
            return Err(format!("{path}: whether the server knows its present text is not certain"));
        }
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
    let bytes = text.encode(&new)?;
    let diff = FileDiff { shown: Some(path.clone().into()), old: text.text.into(), new: new.into() };
    Ok((PlannedFile { new: Some(bytes), old: Some(opened.bytes.clone()), mode: None }, diff))
}

#[async_trait]
impl Tool for LspRename {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        // What a name is depends on the language, so the server decides the rest.
        let name = arguments["new_name"].as_str().unwrap_or_default();
        if name.trim().is_empty() || name.chars().count() > NAME_CHARS || name.contains(char::is_control) {
            return Err(format!("new_name: a name of 1 to {NAME_CHARS} characters on one line is needed"));
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let rename = async |args| self.rename(args, context).await.map_or_else(ToolResult::from, ToolResult::ok);
        with_arguments(arguments, rename).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::ToolsConfig;
    use crate::tools::testing::{ToolFixture, context};

    #[test]
    fn the_server_decides_what_a_name_is() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        let tool = fixture.executor.registry().get("lsp_rename").unwrap();
        let validate = |name: &str| tool.validate(&json!({ "new_name": name }), &context());
        for name in
            ["a", "a1_b", "$x", "r#type", "'a", "#private", "empty?", "名称", "a-b", "--main-color", "`two words`"]
        {
            assert_eq!(validate(name), Ok(()), "{name}");
        }
        for name in ["", "  ", "a\nb", "a\u{0}", "a\u{1b}[0m", &"a".repeat(201)] {
            assert!(validate(name).unwrap_err().contains("on one line is needed"), "{name}");
        }
    }
}
