//! The tool `process`, which manages background commands.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::processes::{ProcessStatus, Processes};
use super::{ProcessEnd, format_elapsed};
use crate::origin::TurnOrigin;
use crate::store::now_ms;
use crate::store::processes::ProcessRow;
use crate::tools::names::PROCESS;
use crate::tools::{ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments};

/// The default and the maximum number of output lines.
const DEFAULT_LINES: u32 = 50;
const MAX_LINES: u32 = 400;
/// The maximum number of output characters.
const MAX_CHARS: usize = 7_000;
/// The maximum number of listed processes.
const MAX_LISTED: u32 = 40;

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ProcessAction {
    List,
    Output,
    Kill,
}

#[derive(Deserialize, JsonSchema)]
struct ProcessArgs {
    action: ProcessAction,
    id: Option<String>,
    /// Of the output's end, default 50.
    #[schemars(range(min = 1, max = 400))]
    lines: Option<u32>,
}

/// The tool `process`, which lists background commands, reads their output, and ends them.
pub struct ProcessTool {
    definition: ToolDefinition,
    processes: Option<Arc<Processes>>,
}

impl ProcessTool {
    /// Creates the tool. `processes` is `None` if no gateway runs.
    pub fn new(processes: Option<Arc<Processes>>) -> Self {
        let description = "Look after commands in the background.";
        // Killing an ended process has no effect, and ids are never reused.
        let definition = ToolDefinition::changing::<ProcessArgs>(PROCESS, description, ReplayPolicy::Idempotent);
        // The action decides whether the call needs an approval.
        Self { definition: ToolDefinition { literal_arguments: &["action", "id"], ..definition }, processes }
    }

    async fn run(&self, args: ProcessArgs, context: &ToolContext) -> Result<ToolResult, String> {
        let processes = self.processes.as_ref().ok_or("No gateway runs here, so nothing runs in the background")?;
        let id = args.id.as_deref().unwrap_or_default();
        match args.action {
            ProcessAction::List => list(processes, context).await.map(ToolResult::ok),
            ProcessAction::Output => {
                let lines = args.lines.unwrap_or(DEFAULT_LINES).clamp(1, MAX_LINES);
                output(processes, id, usize::try_from(lines).unwrap_or(usize::MAX), context).await
            }
            ProcessAction::Kill => kill(processes, id, context).await.map(ToolResult::ok),
        }
    }
}

async fn list(processes: &Processes, context: &ToolContext) -> Result<String, String> {
    let listed = processes.list(context, MAX_LISTED).await;
    let listed = listed.map_err(|error| format!("The store cannot be read: {error}"))?;
    if listed.is_empty() {
        return Ok("Nothing runs in the background, and nothing did.".to_owned());
    }
    let lines = listed.iter().map(|process| {
        let row = &process.row;
        let elsewhere = SessionKey::from(row.session.as_str()) != context.session;
        let session = if elsewhere { format!(" [session {}]", row.session) } else { String::new() };
        format!("- {}: {}{session}: {}", describe(row), state(process), row.command)
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

async fn output(processes: &Processes, id: &str, lines: usize, context: &ToolContext) -> Result<ToolResult, String> {
    let process = processes.find(id, context).await?;
    let head = format!("{}: {}.", describe(&process.row), state(&process));
    let tail = match processes.tail(&process.row, lines, MAX_CHARS).await {
        Ok(tail) => tail,
        Err(error) => return Err(format!("{head} Its output cannot be read any more: {error}")),
    };
    let text = match (tail.text.is_empty(), tail.is_cut) {
        (true, _) => format!("{head} It has printed nothing."),
        (false, false) => format!("{head} All that it printed:\n{}", tail.text),
        (false, true) => format!("{head} The end of {} ({} bytes):\n{}", tail.path, tail.bytes, tail.text),
    };
    let mut result = ToolResult::ok(text);
    // The command may have read foreign content, or contain it.
    result.add_sources(TurnOrigin::parse(&process.row.origin).taint);
    Ok(result)
}

async fn kill(processes: &Processes, id: &str, context: &ToolContext) -> Result<String, String> {
    let process = processes.find(id, context).await?;
    let name = describe(&process.row);
    if !process.lives {
        return Ok(format!("{name} runs no more: {}.", state(&process)));
    }
    let how = processes.kill(&process.row, context).await?;
    Ok(format!("{name}: {how}."))
}

/// Formats a process as `a1b2c3 "label"`.
fn describe(row: &ProcessRow) -> String {
    match &row.label {
        Some(label) => format!("{} {label:?}", row.id),
        None => row.id.clone(),
    }
}

fn state(ProcessStatus { row, lives }: &ProcessStatus) -> String {
    let between = |from: i64, to: i64| format_elapsed(Duration::from_millis(u64::try_from(to - from).unwrap_or(0)));
    let now = now_ms();
    match (row.ended_at, &row.outcome) {
        (Some(ended), outcome) => {
            let outcome = outcome.as_deref().unwrap_or("ended");
            let ago = between(ended, now);
            // The end was noticed later, so the duration is not known.
            if outcome == ProcessEnd::Unwatched.to_string() {
                return format!("{outcome}; this was noticed {ago} ago");
            }
            format!("{outcome}, after {}, {ago} ago", between(row.started_at, ended))
        }
        (None, _) if *lives => {
            let detached = if row.detached { ", detached" } else { "" };
            let pid = row.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            format!("runs for {}{pid}{detached}", between(row.started_at, now))
        }
        (None, _) => "ended, which is being noted".to_owned(),
    }
}

#[async_trait]
impl Tool for ProcessTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn may_taint(&self, arguments: &Value, _: &ToolContext) -> bool {
        arguments["action"] == "output"
    }

    fn is_restricted(&self, arguments: &Value, _: &ToolContext) -> bool {
        arguments["action"] == "kill"
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let action = arguments.get("action").and_then(Value::as_str).unwrap_or_default();
        let id = arguments.get("id").and_then(Value::as_str).unwrap_or_default();
        if action != "list" && id.trim().is_empty() {
            return Err(format!("{action} needs the id of a process; list names them"));
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        with_arguments(arguments, |args| self.run(args, context)).await
    }
}
