//! `process`: looks after the commands that run in the background.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::processes::Processes;
use super::took;
use crate::chat::ToolSpec;
use crate::store::now_ms;
use crate::store::processes::ProcessRow;
use crate::tools::{Replay, Tool, ToolContext, ToolOutcome, ToolResult, tool_spec};

/// Lines of output that are shown unless more are asked for, and at most.
const LINES: u32 = 50;
const MOST_LINES: u32 = 400;
/// Characters of output at most.
const CHARS: usize = 7_000;
/// Processes that a list holds.
const LISTED: u32 = 40;

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Output,
    Kill,
}

#[derive(Deserialize, JsonSchema)]
struct Args {
    action: Action,
    id: Option<String>,
    /// Of the output's end, default 50.
    #[schemars(range(min = 1, max = 400))]
    lines: Option<u32>,
}

/// Lists processes, reads what they print, and ends them.
pub struct ProcessTool {
    spec: ToolSpec,
    processes: Option<Arc<Processes>>,
}

impl ProcessTool {
    /// Absent where no gateway runs.
    pub fn new(processes: Option<Arc<Processes>>) -> Self {
        let description = "Look after commands in the background.";
        Self { spec: tool_spec::<Args>("process", description), processes }
    }

    async fn run(&self, args: Args, context: &ToolContext) -> Result<String, String> {
        let processes = self.processes.as_ref().ok_or("No gateway runs here, so nothing runs in the background")?;
        let id = args.id.as_deref().unwrap_or_default();
        match args.action {
            Action::List => list(processes, context).await,
            Action::Output => {
                let lines = args.lines.unwrap_or(LINES).clamp(1, MOST_LINES);
                output(processes, id, usize::try_from(lines).unwrap_or(usize::MAX), context).await
            }
            Action::Kill => kill(processes, id, context).await,
        }
    }
}

async fn list(processes: &Processes, context: &ToolContext) -> Result<String, String> {
    let listed = processes.list(context, LISTED).await;
    let listed = listed.map_err(|error| format!("The store cannot be read: {error}"))?;
    if listed.is_empty() {
        return Ok("Nothing runs in the background, and nothing did.".to_owned());
    }
    let lines = listed.iter().map(|(row, lives)| {
        let elsewhere = SessionKey::from(row.session.as_str()) != context.session;
        let session = if elsewhere { format!(" [session {}]", row.session) } else { String::new() };
        format!("- {}: {}{session}: {}", named(row), state(row, *lives), row.command)
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

async fn output(processes: &Processes, id: &str, lines: usize, context: &ToolContext) -> Result<String, String> {
    let (row, lives) = processes.find(id, context).await?;
    let head = format!("{}: {}.", named(&row), state(&row, lives));
    let tail = match processes.tail(&row, lines, CHARS).await {
        Ok(tail) => tail,
        Err(error) => return Err(format!("{head} Its output cannot be read any more: {error}")),
    };
    Ok(match (tail.text.is_empty(), tail.is_cut) {
        (true, _) => format!("{head} It has printed nothing."),
        (false, false) => format!("{head} All that it printed:\n{}", tail.text),
        (false, true) => format!("{head} The end of {} ({} bytes):\n{}", tail.path, tail.bytes, tail.text),
    })
}

async fn kill(processes: &Processes, id: &str, context: &ToolContext) -> Result<String, String> {
    let (row, lives) = processes.find(id, context).await?;
    if !lives {
        return Ok(format!("{} runs no more: {}.", named(&row), state(&row, lives)));
    }
    let how = processes.kill(&row, context).await?;
    Ok(format!("{}: {how}.", named(&row)))
}

/// `a1b2c3 "label"`.
fn named(row: &ProcessRow) -> String {
    match &row.label {
        Some(label) => format!("{} {label:?}", row.id),
        None => row.id.clone(),
    }
}

fn state(row: &ProcessRow, lives: bool) -> String {
    let between = |from: i64, to: i64| took(Duration::from_millis(u64::try_from(to - from).unwrap_or(0)));
    let now = now_ms();
    match (row.ended_at, &row.ending) {
        (Some(ended), ending) => {
            let ending = ending.as_deref().unwrap_or("ended");
            format!("{ending}, after {}, {} ago", between(row.started_at, ended), between(ended, now))
        }
        (None, _) if lives => {
            let detached = if row.detached { ", detached" } else { "" };
            let pid = row.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            format!("runs for {}{pid}{detached}", between(row.started_at, now))
        }
        (None, _) => "ended, which is being noted".to_owned(),
    }
}

#[async_trait]
impl Tool for ProcessTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["processes", "background"]
    }

    /// What has ended is not ended again, and its id is never another's.
    fn replay(&self) -> Replay {
        Replay::Idempotent
    }

    fn check(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let action = arguments.get("action").and_then(Value::as_str).unwrap_or_default();
        let id = arguments.get("id").and_then(Value::as_str).unwrap_or_default();
        if action != "list" && id.trim().is_empty() {
            return Err(format!("{action} needs the id of a process; list names them"));
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let done = match serde_json::from_value(arguments) {
            Ok(args) => self.run(args, context).await,
            Err(error) => Err(error.to_string()),
        };
        match done {
            Ok(told) => ToolResult::ok(told).into(),
            Err(error) => ToolResult::failed(error).into(),
        }
    }
}
