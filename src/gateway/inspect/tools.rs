//! The tools of a gateway, manual tool calls, and the next request to the model.

use std::sync::Arc;

use daoyou_channels::{SessionKey, Trust};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::inspector::Inspector;
use crate::agent::{commit_effects, prepare_workspace};
use crate::bus::WeakBus;
use crate::chat::{ToolCall, without_notes};
use crate::gateway::runtime::{build_tools, skill_catalog, tool_deps};
use crate::origin::{FollowUpCount, TurnOrigin};
use crate::postprocess::Question;
use crate::profiles::{AgentProfile, AgentPrompt};
use crate::query::{InspectError, ManualToolRun};
use crate::skills::{Skill, SkillList, problems_of_all, render_skill};
use crate::store::inbox::{self, InboxRow, MessageStatus};
use crate::store::now_ms;
use crate::tools::{
    OutputRule, ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolExecutor, ToolResult, canonical_name,
};

/// The channel, the chat and the sender of the terminal.
const CHANNEL: &str = "cli";
const CHAT: &str = "direct";
const SENDER: &str = "owner";
/// The example message of a request preview without a message.
const EXAMPLE: &str = "hello";

impl Inspector {
    /// Returns the gateway's tools, or those that a gateway would have; the workspace must exist.
    pub(super) fn tools(&self) -> Result<Arc<ToolExecutor>, String> {
        if let Some(runtime) = &self.runtime {
            return Ok(runtime.runner().conversations.tools.all.clone());
        }
        let workspace = self.home.workspace(&self.config.agent.workspace);
        let skills = skill_catalog(&self.config, &workspace, self.home.dir());
        let (bus, agents) = (WeakBus::default(), Arc::default());
        let mcp = self.mcp()?;
        let deps = tool_deps(&self.config, &bus, &skills, &agents, &mcp, None);
        build_tools(&self.config, &workspace, &self.home, deps).map_err(|error| error.to_string())
    }

    /// Returns the skills, and the problems of these and of rejected skills.
    pub(super) async fn skill_rows(&self) -> Result<Value, InspectError> {
        let list = self.skills().await?;
        let row = |skill: &Skill| {
            let mut row = json!({
                "name": skill.name(),
                "description": skill.manifest.description,
                "path": skill.path(),
                "source": &*skill.source,
                "available": skill.is_available(),
            });
            if let Some(reason) = &skill.unavailable {
                row["reason"] = json!(reason);
            }
            row
        };
        Ok(json!({
            "skills": list.skills.iter().map(row).collect::<Vec<_>>(),
            "problems": problems_of_all(&list),
        }))
    }

    /// Returns a skill in the form in which `load_skill` returns it.
    pub(super) async fn skill_text(&self, name: &str) -> Result<Value, InspectError> {
        let list = self.skills().await?;
        let Some(skill) = list.find(name) else {
            let names: Vec<&str> = list.skills.iter().map(Skill::name).collect();
            return Err(InspectError::Unknown(format!("there is no skill {name:?}; there are: {}", names.join(", "))));
        };
        let text = render_skill(skill, None).map_err(InspectError::Failed)?;
        Ok(json!({"name": skill.name(), "path": skill.path(), "reason": skill.unavailable, "text": text}))
    }

    /// Returns the agents, the problems of profiles, and the agents that are assigned to chats.
    pub(super) fn agent_rows(&self) -> Value {
        let row = |agent: &Arc<AgentProfile>| {
            let mut row = agent.to_json();
            row["tool_count"] = agent.own_tools().map_or(json!("all"), |tools| json!(tools.len()));
            row
        };
        json!({ "agents": self.agents.all().map(row).collect::<Vec<_>>(), "problems": self.agents.problems })
    }

    /// Returns an agent with its prompt.
    pub(super) fn agent(&self, name: &str) -> Result<Value, InspectError> {
        let agent = self.agents.find(name).ok_or_else(|| InspectError::Unknown(self.agents.unknown(name)))?;
        let mut shown = agent.to_json();
        shown["prompt"] = json!(agent.prompt.as_ref().map(AgentPrompt::source));
        Ok(shown)
    }

    /// Reads the skills on a thread that may block.
    async fn skills(&self) -> Result<Arc<SkillList>, InspectError> {
        let catalog = match &self.runtime {
            Some(runtime) => runtime.skills().clone(),
            None => skill_catalog(&self.config, &self.home.workspace(&self.config.agent.workspace), self.home.dir()),
        };
        let scan = tokio::task::spawn_blocking(move || catalog.scan()).await;
        scan.map_err(|error| InspectError::Failed(error.to_string()))
    }

    pub(super) fn tool_rows(&self) -> Result<Value, InspectError> {
        let failed = |error: String| InspectError::Failed(error);
        if self.running.is_none() {
            let workspace = self.home.workspace(&self.config.agent.workspace);
            prepare_workspace(&workspace).map_err(|error| failed(error.to_string()))?;
        }
        let tools = self.tools().map_err(failed)?;
        Ok(tools.registry().all().map(|(tool, enabled)| self.tool_row(&tools, tool.as_ref(), enabled)).collect())
    }

    fn tool_row(&self, tools: &ToolExecutor, tool: &dyn Tool, is_enabled: bool) -> Value {
        let ToolDefinition { spec, aliases, is_offered, replay, timeout, .. } = tool.definition();
        let OutputRule { limit, strategy } = tools.output_rule(tool);
        let timeout = timeout.unwrap_or(tools.limits().timeout);
        // The decision for a turn that has read content from others.
        let approval = self.config.approval.with_canonical_names(canonical_name);
        let approval = approval.policy([spec.name.as_str()], CHANNEL, true);
        let lines = (limit.lines != usize::MAX).then_some(limit.lines);
        json!({
            "name": spec.name,
            "description": spec.description,
            "enabled": is_enabled,
            // A tool that is not offered can be found by find_tools.
            "offered": is_enabled && *is_offered,
            // Whether a tool that runs others is idempotent depends on those tools.
            "idempotent": *replay != ReplayPolicy::Once && tool.nested_calls(&Value::Null).is_empty(),
            "approval": approval,
            "timeout_s": timeout.as_secs(),
            "output": { "chars": limit.chars, "lines": lines, "strategy": strategy },
            "aliases": aliases,
            "schema": spec.parameters,
        })
    }

    /// Runs a tool as the owner at the terminal, within the limits of a turn's call.
    pub(super) async fn run_by_hand(
        &self,
        run: ManualToolRun,
        cancel: CancellationToken,
    ) -> Result<Value, InspectError> {
        let (Some(runtime), Some(running)) = (&self.runtime, &self.running) else {
            return Err(InspectError::Failed("no gateway was built".to_owned()));
        };
        let tools = &runtime.runner().conversations.tools.all;
        let question = Arc::new(Question::new(run.question));
        let context = ToolContext { question, cancel, ..owner_context(CHAT, "call_1") };
        let call = ToolCall { id: context.call_id.clone(), name: run.name, arguments: run.arguments };
        tracing::info!(tool = call.name, "a tool is run by hand");
        let mut outcome = match run.is_whole {
            true => tools.run_whole(&call, &context).await,
            false => tools.run(&call, &context).await,
        };
        if outcome.is_pending() {
            let waits = "this call waits for an answer or for a sub-agent, which only a turn of a conversation can do";
            outcome = ToolResult::failed(waits).into();
        }
        let committed = commit_effects(&running.bus, context.turn, &context.session, &outcome.effects).await;
        committed.map_err(|error| InspectError::Failed(format!("what the tool did could not be stored: {error}")))?;
        let metadata = outcome.result.shown_metadata();
        let ToolResult { success, content, error, .. } = outcome.result;
        let error = error.as_deref().map(without_notes);
        Ok(json!({ "success": success, "content": content, "error": error, "metadata": metadata }))
    }

    /// Returns the next request to the model: its bytes and tokens, in total and by part, and the request itself.
    pub(super) async fn prompt(&self, session: Option<String>, message: Option<String>) -> Result<Value, InspectError> {
        let Some(runtime) = &self.runtime else {
            return Err(InspectError::Failed("no gateway was built".to_owned()));
        };
        let key = session.unwrap_or_else(|| SessionKey::of_chat(CHANNEL, CHAT).to_string());
        let wanted = key.clone();
        let last = self.read(move |connection| inbox::newest_of_session(connection, &wanted, 1)).await?.pop();
        let row = example_row(key, message.unwrap_or_else(|| EXAMPLE.to_owned()), last);
        let preview = runtime.runner().preview(row).await;
        let preview = preview.map_err(|error| InspectError::Failed(error.user_text(runtime.runner().phrases)))?;
        let parts = preview.parts.iter();
        let parts: Vec<Value> =
            parts.map(|part| json!({ "name": part.name, "bytes": part.bytes, "tokens": part.tokens })).collect();
        let tokens: usize = preview.parts.iter().map(|part| part.tokens).sum();
        Ok(json!({
            "agent": preview.agent,
            "model": preview.model,
            "bytes": preview.bytes,
            "tokens": tokens,
            "parts": parts,
            "request": preview.body,
        }))
    }
}

/// Returns the context of a call that the owner makes at the terminal.
pub(super) fn owner_context(chat: &str, call: &str) -> ToolContext {
    ToolContext { sender: SENDER.to_owned(), ..ToolContext::of_owner(CHANNEL, chat, call) }
}

/// Returns a message that is not stored. Its sender is that of the session's newest message, or the terminal.
fn example_row(session: String, content: String, last: Option<InboxRow>) -> InboxRow {
    let (id, own) = (daoyou_channels::new_id(), str::to_owned);
    let sender = match last {
        Some(row) => {
            let asked = TurnOrigin::parse(&row.origin);
            let mut origin = TurnOrigin { follow_ups: FollowUpCount::default(), ..asked.for_follow_up() };
            // A person's choice of a model is for one message. The next run of a job has the job's model.
            if !asked.runs_for_job_or_agent() {
                origin.settings.requested_model = None;
            }
            InboxRow { origin: origin.to_column(), ..row }
        }
        None => InboxRow {
            channel: own(CHANNEL),
            chat_id: session.strip_prefix("cli:").unwrap_or(CHAT).to_owned(),
            session,
            sender: own(SENDER),
            ..InboxRow::unstored(Trust::Owner)
        },
    };
    InboxRow {
        id,
        external_id: id.to_string(),
        turn: id,
        content,
        attachments: own("[]"),
        received_at: now_ms(),
        state: MessageStatus::Running,
        cancel: false,
        ..sender
    }
}
