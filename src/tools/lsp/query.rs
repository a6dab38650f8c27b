//! The tools that query a language server and change nothing.

use std::sync::Arc;

use async_trait::async_trait;
use lsp_types::{Diagnostic, Range};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::diagnostics::{diagnostics_of, render_diagnostics};
use super::locations::{ServerLocation, places_of, render_places};
use super::service::{LspService, OpenTarget};
use super::symbols::{project_symbols, render_file_symbols};
use crate::text::{one_line, truncate};
use crate::tools::{ServerError, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, read_arguments};

/// The maximum number of code actions that are listed, and of characters of a title.
const MAX_ACTIONS: usize = 50;
const TITLE_CHARS: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct FileArgs {
    path: String,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct PositionArgs {
    pub(super) path: String,
    /// From 1.
    #[schemars(range(min = 1))]
    pub(super) line: u32,
    /// Of the line, from 1.
    #[schemars(range(min = 1))]
    pub(super) character: u32,
}

#[derive(Deserialize, JsonSchema)]
struct ReferencesArgs {
    #[serde(flatten)]
    position: PositionArgs,
    include_declaration: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
struct LspSymbolsArgs {
    /// A file, or a folder for its project.
    path: String,
    query: Option<String>,
}

/// The kind of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LspQuestion {
    Diagnostics,
    Definition,
    References,
    Symbols,
    CodeActions,
}

/// A tool that queries a language server.
pub struct LspQuery {
    definition: ToolDefinition,
    service: Arc<LspService>,
    question: LspQuestion,
}

impl LspQuery {
    /// Returns one tool for each kind of query.
    pub fn all(service: &Arc<LspService>) -> [Self; 5] {
        fn tool<Args: JsonSchema>(name: &str, description: &str) -> ToolDefinition {
            ToolDefinition::reading::<Args>(name, description)
        }
        let tools = [
            (
                LspQuestion::Diagnostics,
                tool::<FileArgs>("lsp_diagnostics", "Show errors and warnings in a source file."),
            ),
            (LspQuestion::Definition, tool::<PositionArgs>("lsp_definition", "Find where a symbol is defined.")),
            (LspQuestion::References, tool::<ReferencesArgs>("lsp_references", "Find where a symbol is used.")),
            (LspQuestion::Symbols, tool::<LspSymbolsArgs>("lsp_symbols", "List the symbols of a file or project.")),
            (
                LspQuestion::CodeActions,
                tool::<PositionArgs>("lsp_code_actions", "List the fixes that are proposed at a place."),
            ),
        ];
        tools.map(|(question, definition)| {
            let definition = ToolDefinition {
                timeout: Some(service.limit()),
                // Text from a file or page must not determine the project whose code a server runs.
                literal_arguments: &["path"],
                ..definition
            };
            Self { definition, service: Arc::clone(service), question }
        })
    }

    async fn ask(&self, arguments: Value, context: &ToolContext) -> Result<String, ServerError> {
        let service = &self.service;
        match self.question {
            LspQuestion::Diagnostics => {
                let args: FileArgs = read(&arguments)?;
                diagnostics(&service.open(&args.path, context).await?).await
            }
            LspQuestion::Definition => {
                let PositionArgs { path, line, character } = read(&arguments)?;
                let target = service.open(&path, context).await?;
                target.server().require("definitionProvider", "it finds no definitions")?;
                let params = target.place(line, character)?;
                places(&target, "textDocument/definition", params, "No definition found.").await
            }
            LspQuestion::References => {
                let ReferencesArgs { position, include_declaration } = read(&arguments)?;
                let PositionArgs { path, line, character } = position;
                let target = service.open(&path, context).await?;
                target.server().require("referencesProvider", "it finds no references")?;
                let mut params = target.place(line, character)?;
                params["context"] = json!({"includeDeclaration": include_declaration.unwrap_or(true)});
                places(&target, "textDocument/references", params, "No reference found.").await
            }
            LspQuestion::Symbols => symbols(service, read(&arguments)?, context).await,
            LspQuestion::CodeActions => {
                let PositionArgs { path, line, character } = read(&arguments)?;
                code_actions(&service.open(&path, context).await?, line, character).await
            }
        }
    }
}

/// Parses the arguments of a call.
fn read<Args: DeserializeOwned>(arguments: &Value) -> Result<Args, ServerError> {
    read_arguments(arguments).map_err(ServerError::lasting)
}

/// Joins the lines of a result, and adds the note that something may be missing.
pub(super) fn joined(mut lines: Vec<String>, target: &OpenTarget) -> String {
    lines.extend(target.note());
    lines.join("\n")
}

async fn diagnostics(target: &OpenTarget) -> Result<String, ServerError> {
    let found = diagnostics_of(target).await?;
    let encoding = target.server().encoding;
    let mut lines = render_diagnostics(found.all, &target.shown(), &target.document.text, encoding);
    if found.is_partial && target.is_ready {
        lines.push(format!("[{} still checks: something may be missing]", target.server().connection.name));
    }
    Ok(joined(lines, target))
}

/// Requests places, and formats them.
async fn places(target: &OpenTarget, method: &str, params: Value, none: &str) -> Result<String, ServerError> {
    let answer = target.ask(method, params).await?;
    let found = places_of(answer).ok_or_else(|| target.invalid("places"))?;
    render(found, target, none).await
}

async fn render(found: Vec<ServerLocation>, target: &OpenTarget, none: &str) -> Result<String, ServerError> {
    let (view, encoding) = (target.view.clone(), target.server().encoding);
    let lines = tokio::task::spawn_blocking(move || render_places(found, &view, encoding)).await;
    let mut lines = lines.map_err(|error| ServerError::lasting(error.to_string()))?;
    if lines.is_empty() {
        lines.push(none.to_owned());
    }
    Ok(joined(lines, target))
}

async fn symbols(service: &LspService, args: LspSymbolsArgs, context: &ToolContext) -> Result<String, ServerError> {
    const NONE: &str = "No symbol found.";
    let query = args.query.as_deref().unwrap_or_default().trim().to_owned();
    let (target, is_folder) = service.open_project(&args.path, context).await?;
    if is_folder {
        if query.is_empty() {
            return Err(ServerError::lasting("the symbols of a project are found by name: query is missing"));
        }
        target.server().require("workspaceSymbolProvider", "it finds symbols in single files alone")?;
        let answer = target.ask("workspace/symbol", json!({ "query": query })).await?;
        let found = project_symbols(answer).ok_or_else(|| target.invalid("symbols"))?;
        return render(found, &target, NONE).await;
    }
    target.server().require("documentSymbolProvider", "it lists no symbols")?;
    let answer =
        target.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": target.document.url}})).await?;
    let mut lines = render_file_symbols(answer, &query).ok_or_else(|| target.invalid("symbols"))?;
    if lines.is_empty() {
        lines.push(NONE.to_owned());
    }
    Ok(joined(lines, &target))
}

async fn code_actions(target: &OpenTarget, line: u32, character: u32) -> Result<String, ServerError> {
    target.server().require("codeActionProvider", "it proposes no code actions")?;
    let position = target.position(line, character)?;
    // Quick fixes need the diagnostics. If the server has none in time, it may still propose other changes.
    let found = diagnostics_of(target).await.map(|found| found.all).unwrap_or_default();
    let is_here = |one: &Diagnostic| one.range.start.line <= position.line && position.line <= one.range.end.line;
    let here: Vec<_> = found.into_iter().filter(is_here).collect();
    let params = json!({
        "textDocument": {"uri": target.document.url},
        "range": Range::new(position, position),
        "context": {"diagnostics": here, "triggerKind": 1},
    });
    let answer = target.ask("textDocument/codeAction", params).await?;
    let lines = render_actions(&answer).ok_or_else(|| target.invalid("code actions"))?;
    Ok(joined(lines, target))
}

/// Formats code actions as numbered lines; `None` if the answer is invalid.
fn render_actions(answer: &Value) -> Option<Vec<String>> {
    let actions = match answer {
        Value::Null => &[][..],
        Value::Array(actions) => actions,
        _ => return None,
    };
    let mut lines: Vec<_> = actions
        .iter()
        .filter_map(|action| action["title"].as_str().map(|title| (action, title)))
        .take(MAX_ACTIONS)
        .enumerate()
        .map(|(at, (action, title))| {
            let kind = action["kind"].as_str().filter(|kind| !kind.is_empty());
            let kind = kind.map(|kind| format!(" [{}]", truncate(&one_line(kind), TITLE_CHARS))).unwrap_or_default();
            let reason = action["disabled"]["reason"].as_str();
            let reason = reason.map(|reason| format!(" (not now: {})", one_line(reason))).unwrap_or_default();
            let preferred = if action["isPreferred"] == true { " (preferred)" } else { "" };
            format!(
                "{}.{kind} {}{preferred}{}",
                at + 1,
                truncate(&one_line(title), TITLE_CHARS),
                truncate(&reason, TITLE_CHARS)
            )
        })
        .collect();
    if lines.is_empty() {
        lines.push("No code action is proposed here.".to_owned());
    } else if actions.len() > MAX_ACTIONS {
        lines.push(format!("[the first {MAX_ACTIONS} of {}]", actions.len()));
    }
    Some(lines)
}

#[async_trait]
impl Tool for LspQuery {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Always true: a server runs code of the project, as a command does.
    fn is_restricted(&self, _: &Value, _: &ToolContext) -> bool {
        true
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        self.ask(arguments, context).await.map_or_else(ToolResult::from, ToolResult::ok).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_actions_are_numbered() {
        let actions = json!([
            {"title": "Import x", "kind": "quickfix", "isPreferred": true},
            {"title": "Old\ncommand", "command": "x"},
            {"title": "Extract", "kind": "refactor.extract", "disabled": {"reason": "no selection"}},
            {"kind": "quickfix"},
        ]);
        let expected = [
            "1. [quickfix] Import x (preferred)",
            "2. Old command",
            "3. [refactor.extract] Extract (not now: no selection)",
        ];
        assert_eq!(render_actions(&actions).unwrap(), expected);
        assert_eq!(render_actions(&Value::Null).unwrap(), ["No code action is proposed here."]);
        assert!(render_actions(&json!({})).is_none());
        let many: Vec<_> = (0..60).map(|at| json!({"title": at.to_string()})).collect();
        assert_eq!(render_actions(&json!(many)).unwrap().last().unwrap(), "[the first 50 of 60]");
    }
}
