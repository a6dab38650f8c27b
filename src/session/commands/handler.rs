//! Answers slash commands.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use daoyou_channels::{InboundMessage, Trust};
use jiff::Timestamp;

use super::slash_command::{
    COMMANDS, CommandContext, CommandReply, SessionChange, SlashCommand, TERMINAL_COMMANDS, nearest_command,
};
use super::{approvals, checkpoints, history, mcp, memories};
use crate::bus::{CommandAnswer, ControlCommand, ControlCommands, InboundDraft, MessageBus};
use crate::cron::{self, JobScope, JobService};
use crate::llm::{Models, costs_in_words};
use crate::mcp::McpServers;
use crate::memory::sender_of;
use crate::origin::TurnOrigin;
use crate::phrases::{Phrases, counted, fill};
use crate::profiles::{AgentDirectory, AgentProfile};
use crate::skills::{SkillCatalog, skill_names};
use crate::store::inbox::InboxRow;
use crate::store::processes::ProcessRow;
use crate::store::usage::{self, Costs, TokenCounts, UsageScope, UsageTotal};
use crate::store::{StoreError, messages, spawns};
use crate::tools::ToolExecutor;
use crate::turn::context::conversation_context::wanted_model;
use crate::turn::error::ErrorCode;

/// The maximum number of characters of an unknown command that the reply repeats.
const MAX_NAME: usize = 40;
/// The error code of a command that does not exist.
const UNKNOWN_COMMAND: &str = "unknown_command";

/// The channel of the terminal, which has more commands.
const TERMINAL: &str = "cli";
/// The maximum number of sessions that `/session` lists.
const LISTED_SESSIONS: u32 = 15;
/// The maximum number of sub-agents that `/status` names.
const LISTED_SUB_AGENTS: usize = 5;
/// The maximum number of characters of a tool's description in `/tools`.
const MAX_DESCRIPTION: usize = 100;
/// The maximum number of jobs that `/cron` lists.
const LISTED_JOBS: usize = 30;

/// Answers slash commands.
pub struct CommandHandler {
    pub context: CommandContext,
    pub models: Arc<Models>,
    pub tools: Arc<ToolExecutor>,
    pub jobs: Arc<JobService>,
    pub skills: Arc<SkillCatalog>,
    pub agents: Arc<AgentDirectory>,
    pub mcp: Arc<McpServers>,
    /// `agent.model`.
    pub configured: String,
    pub started: Instant,
}

impl CommandHandler {
    /// Answers a command; `row` is the message with the command. An untrusted sender gets only the help, and learns that a command
    /// is unknown.
    ///
    /// # Errors
    /// The store cannot be read or written. A wrong command or argument is not an error: the reply says so.
    pub async fn answer(&self, command: &SlashCommand, row: &InboxRow) -> Result<CommandReply, StoreError> {
        if Trust::parse(&row.trust) == Trust::Untrusted {
            let reply = match command.name.as_str() {
                "help" => self.context.phrases.help_strangers.to_owned(),
                name if COMMANDS.contains(&name) => self.context.phrases.trusted_command.to_owned(),
                name => return Ok(self.unknown(name, row.channel == TERMINAL)),
            };
            return Ok(reply.into());
        }
        let mut answered = self.run(command, row).await?;
        if let Some(below) = command.ignored_text_remark(self.context.phrases) {
            answered.reply = format!("{}\n\n{below}", answered.reply);
        }
        Ok(answered)
    }

    async fn run(&self, command: &SlashCommand, row: &InboxRow) -> Result<CommandReply, StoreError> {
        let session = row.session.as_str();
        let in_terminal = row.channel == TERMINAL;
        let reply = match command.name.as_str() {
            "new" => {
                let reply = self.context.phrases.new_session.to_owned();
                return Ok(CommandReply::changing(reply, SessionChange::NewEpoch));
            }
            "model" => return self.model(&command.argument, row).await,
            "agent" => return self.agent(&command.argument, row).await,
            "help" => self.help(in_terminal),
            "session" => self.session(session, in_terminal).await?,
            "cost" => describe_cost(&self.context, session).await?,
            "cron" => self.jobs(row).await?,
            "memory" => memories::list(&self.context, row).await?,
            "approve" => return approvals::answer(&self.context, &command.argument, row, true).await,
            "deny" => return approvals::answer(&self.context, &command.argument, row, false).await,
            "forget" => return memories::forget(&self.context, &command.argument, row).await,
            "checkpoint" => return checkpoints::checkpoint(&self.context, &command.argument, row).await,
            "restore" => return checkpoints::restore(&self.context, &command.argument, row).await,
            "tools" => self.tools(),
            "skills" => self.skills().await,
            "mcp" => return Ok(mcp::answer(&self.mcp, &command.argument, self.context.phrases).await),
            "history" if in_terminal => self.history(session, &command.argument).await?,
            other => return Ok(self.unknown(other, in_terminal)),
        };
        Ok(reply.into())
    }

    fn unknown(&self, name: &str, in_terminal: bool) -> CommandReply {
        let written = format!("`/{}`", history::shorten(name, MAX_NAME));
        let reply = match nearest_command(name, in_terminal) {
            _ if TERMINAL_COMMANDS.contains(&name) => fill(self.context.phrases.terminal_command, &[&written]),
            Some(near) => fill(self.context.phrases.unknown_command_near, &[&written, &format!("`/{near}`")]),
            None => fill(self.context.phrases.unknown_command, &[&written]),
        };
        CommandReply::failed(reply, UNKNOWN_COMMAND)
    }

    /// Converts a message that is not in the store to a row.
    fn row_of(&self, message: &InboundMessage) -> Result<InboxRow, StoreError> {
        Ok(InboxRow {
            channel: message.channel.clone(),
            session: message.session_key().to_string(),
            chat_id: message.chat_id.clone(),
            sender: message.sender.clone(),
            content: message.content.clone(),
            metadata: serde_json::to_string(&message.metadata)?,
            origin: InboundDraft::new(message.clone()).origin.to_column(),
            received_at: message.received_at.as_millisecond(),
            ..InboxRow::unstored(message.trust)
        })
    }

    fn help(&self, in_terminal: bool) -> String {
        let more = if in_terminal { self.context.phrases.help_terminal } else { "" };
        format!("{}{more}", self.context.phrases.help)
    }

    async fn model(&self, wanted: &str, row: &InboxRow) -> Result<CommandReply, StoreError> {
        if !wanted.is_empty() && is_token_holder(row) {
            return Ok(self.context.phrases.model_by_owner.to_owned().into());
        }
        if wanted.is_empty() {
            let key = row.session.clone();
            let head = self.context.store.read(move |connection| messages::session(connection, &key)).await?;
            let settings = TurnOrigin::parse(&row.origin).settings;
            let current = wanted_model(&settings, head.model.as_deref(), &self.configured);
            let current = match self.models.resolve(&current).await {
                Ok(choice) => format!("{}/{}", choice.provider.name(), choice.model),
                Err(error) => format!("{current} ({})", error.to_public(self.context.phrases)),
            };
            let models = self.models.list().await;
            let name = |(provider, model): &(String, String)| {
                if model.is_empty() || provider == model { provider.clone() } else { format!("{provider}/{model}") }
            };
            let available = models.iter().map(name).collect::<Vec<_>>().join(", ");
            return Ok(fill(self.context.phrases.model_is, &[&current, &available]).into());
        }
        if wanted == "auto" || wanted == "default" {
            let reply = self.context.phrases.model_reset.to_owned();
            return Ok(CommandReply::changing(reply, SessionChange::Model(None)));
        }
        Ok(match self.models.choose(wanted).await {
            Ok(choice) => {
                let name = format!("{}/{}", choice.provider.name(), choice.model);
                let reply = fill(self.context.phrases.model_set, &[&name]);
                CommandReply::changing(reply, SessionChange::Model(Some(name)))
            }
            Err(error) => {
                let reply = fill(self.context.phrases.no_model, &[wanted, &error.to_public(self.context.phrases)]);
                CommandReply::failed(reply, ErrorCode::NoModel.as_str())
            }
        })
    }

    /// Shows or chooses the agent of the session.
    async fn agent(&self, wanted: &str, row: &InboxRow) -> Result<CommandReply, StoreError> {
        if wanted.is_empty() {
            let key = row.session.clone();
            let chosen = self.context.store.read(move |connection| messages::session(connection, &key)).await?.agent;
            let usual = || self.agents.route(&row.channel, &row.chat_id, &sender_of(row)).name.clone();
            let line = |agent: &Arc<AgentProfile>| {
                let name = format!("- `{}`", agent.name);
                match history::shorten(&agent.description, MAX_DESCRIPTION) {
                    description if description.is_empty() => name,
                    description => format!("{name} - {description}"),
                }
            };
            let all = self.agents.all().map(line).collect::<Vec<_>>().join("\n");
            return Ok(fill(self.context.phrases.agent_is, &[&chosen.unwrap_or_else(usual), &all]).into());
        }
        if is_token_holder(row) {
            let agent = self.agents.route(&row.channel, &row.chat_id, &sender_of(row));
            return Ok(fill(self.context.phrases.agent_by_route, &[&agent.name]).into());
        }
        let routed = self.agents.routed(&row.channel, &row.chat_id, &sender_of(row));
        if let Some(agent) = routed.filter(|_| Trust::parse(&row.trust) != Trust::Owner) {
            return Ok(fill(self.context.phrases.agent_by_route, &[&agent.name]).into());
        }
        if matches!(wanted, "default" | "auto") {
            let reply = self.context.phrases.agent_reset.to_owned();
            return Ok(CommandReply::changing(reply, SessionChange::Agent(None)));
        }
        Ok(match self.agents.find(wanted) {
            Some(agent) => {
                let phrases = self.context.phrases;
                let reply = match history::shorten(&agent.description, MAX_DESCRIPTION) {
                    description if description.is_empty() => fill(phrases.agent_set, &[&agent.name]),
                    description => fill(phrases.agent_set_described, &[&agent.name, &description]),
                };
                CommandReply::changing(reply, SessionChange::Agent(Some(agent.name.clone())))
            }
            None => {
                let reply = self.agents.unknown_in(wanted, self.context.phrases);
                CommandReply::failed(reply, ErrorCode::NoAgent.as_str())
            }
        })
    }

    /// Describes this session; in the terminal, where one can switch sessions, the others as well.
    async fn session(&self, session: &str, in_terminal: bool) -> Result<String, StoreError> {
        let key = session.to_owned();
        let (head, list) = self
            .context
            .store
            .read(move |connection| {
                Ok((messages::session(connection, &key)?, messages::list(connection, LISTED_SESSIONS)?))
            })
            .await?;
        let count = (head.next_seq - head.first_seq).to_string();
        let mut text = fill(self.context.phrases.session_is, &[session, &count, &head.epoch.to_string()]);
        let others: Vec<_> = list.into_iter().filter(|other| other.session != session).collect();
        if in_terminal && !others.is_empty() {
            text.push_str(&format!("\n\n{}\n", self.context.phrases.other_sessions));
            for other in others {
                let at = history::clock(other.updated_at, &self.context.timezone);
                let count = counted(self.context.phrases.messages, other.messages.unsigned_abs());
                text.push_str(&fill(self.context.phrases.session_line, &[&other.session, &count, &at]));
            }
        }
        Ok(text)
    }

    /// Lists the last messages of the session.
    async fn history(&self, session: &str, count: &str) -> Result<String, StoreError> {
        let count = match count.parse() {
            _ if count.is_empty() => history::DEFAULT_COUNT,
            Ok(count @ 1..) => usize::min(count, history::MAX_COUNT),
            _ => return Ok(fill(self.context.phrases.history_usage, &[&history::shorten(count, MAX_NAME)])),
        };
        let key = session.to_owned();
        let rows = self
            .context
            .store
            .read(move |connection| {
                let head = messages::session(connection, &key)?;
                let from = head.first_seq.max(head.next_seq - history::MAX_SEARCHED);
                messages::range(connection, &key, from, head.next_seq)
            })
            .await?;
        let lines = history::lines(&rows, count, &self.context.timezone, self.context.phrases);
        Ok(if lines.is_empty() { self.context.phrases.nothing_said.to_owned() } else { lines })
    }

    /// Lists the jobs that the sender may see.
    async fn jobs(&self, row: &InboxRow) -> Result<String, StoreError> {
        let scope = JobScope::of(Trust::parse(&row.trust), &row.channel, &row.chat_id, &sender_of(row));
        let jobs = self.context.store.read(move |connection| cron::list(connection, &scope)).await?;
        if jobs.is_empty() {
            return Ok(self.context.phrases.no_jobs.to_owned());
        }
        let lines = cron::lines_by_name(&jobs, &self.jobs.context, LISTED_JOBS);
        Ok(format!("{}\n{lines}\n\n{}", self.context.phrases.jobs_are, self.context.phrases.jobs_use))
    }

    async fn skills(&self) -> String {
        let catalog = self.skills.clone();
        // Runs on a blocking thread: the agent's commands write to the skill folders, so reading may block.
        let list = match tokio::task::spawn_blocking(move || catalog.scan()).await {
            Ok(list) => list,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        if list.skills.is_empty() {
            return self.context.phrases.no_skills.to_owned();
        }
        format!("{}\n{}", self.context.phrases.skills_are, skill_names(&list).join("\n"))
    }

    fn tools(&self) -> String {
        let tools = self.tools.registry().all().filter(|(_, is_enabled)| *is_enabled);
        let line = |spec: &crate::chat::ToolSpec| {
            let first = spec.description.lines().next().unwrap_or_default();
            let first = first.split_once(". ").map_or(first, |(sentence, _)| sentence).trim_end_matches('.');
            format!("- `{}` - {}", spec.name, history::shorten(first, MAX_DESCRIPTION))
        };
        format!(
            "{}\n{}",
            self.context.phrases.tools_are,
            tools.map(|(tool, _)| line(tool.spec())).collect::<Vec<_>>().join("\n")
        )
    }
}

#[async_trait]
impl ControlCommands for CommandHandler {
    fn control_command(&self, message: &InboundMessage) -> Option<ControlCommand> {
        control_command(&SlashCommand::parse(&message.content)?, message.trust)
    }

    fn is_command(&self, message: &InboundMessage) -> bool {
        SlashCommand::parse(&message.content).is_some()
    }

    fn unread_remark(&self, message: &InboundMessage) -> Option<String> {
        SlashCommand::parse(&message.content)?.ignored_text_remark(self.context.phrases)
    }

    fn stop_reply(
        &self,
        message: &InboundMessage,
        something_ran: bool,
        sub_agents: usize,
        processes: &[ProcessRow],
    ) -> String {
        let phrases = self.context.phrases;
        if message.trust == Trust::Untrusted && !something_ran {
            return phrases.nothing_of_yours.to_owned();
        }
        let mut reply = match (something_ran, sub_agents) {
            (true, 0) => phrases.stopped.to_owned(),
            (false, 0) => phrases.nothing_to_stop.to_owned(),
            (true, count) => fill(phrases.stopped_with, &[&count.to_string()]),
            (false, count) => fill(phrases.stopped_sub_agents, &[&count.to_string()]),
        };
        if !processes.is_empty() {
            let name = |row: &ProcessRow| {
                let name = history::shorten(row.label.as_deref().unwrap_or(&row.command), MAX_DESCRIPTION);
                format!("`{}` ({})", name.replace('`', "'"), row.id)
            };
            let names = processes.iter().map(name).collect::<Vec<_>>().join(", ");
            reply.push('\n');
            reply.push_str(&fill(phrases.still_in_background, &[&names]));
        }
        reply
    }

    async fn status_reply(&self, bus: &MessageBus, message: &InboundMessage) -> String {
        let (inbound, outbound) = bus.depths();
        let up = daoyou_channels::settings::HumanDuration::from_secs(self.started.elapsed().as_secs()).to_string();
        let version = env!("CARGO_PKG_VERSION");
        let mut status =
            fill(self.context.phrases.status_is, &[version, &up, &inbound.to_string(), &outbound.to_string()]);
        let session = message.session_key();
        match bus.store().read(move |connection| spawns::unfinished_labels(connection, session.as_str())).await {
            Ok(labels) if labels.is_empty() => {}
            Ok(labels) => {
                let more = if labels.len() > LISTED_SUB_AGENTS { ", …" } else { "" };
                let named = labels.iter().take(LISTED_SUB_AGENTS).map(String::as_str).collect::<Vec<_>>().join(", ");
                let (count, named) = (labels.len().to_string(), format!("{named}{more}"));
                status.push_str(&fill(self.context.phrases.sub_agents_at_work, &[&count, &named]));
            }
            Err(error) => tracing::warn!(%error, "the sub-agents of a session could not be looked up"),
        }
        for (provider, fault) in bus.services().all() {
            status.push_str(&format!("\n{}", self.context.phrases.service_message(&fault.code, &provider)));
        }
        status
    }

    async fn answer_command(&self, message: &InboundMessage) -> Result<CommandAnswer, StoreError> {
        let Some(command) = SlashCommand::parse(&message.content) else {
            let reply = fill(self.context.phrases.unknown_command, &[&format!("`{}`", message.content.trim())]);
            return Ok(CommandAnswer { reply, error: None, model: None });
        };
        let row = self.row_of(message)?;
        let CommandReply { reply, change, error } = self.answer(&command, &row).await?;
        let model = if let SessionChange::Model(model) = change { Some(model) } else { None };
        Ok(CommandAnswer { reply, error, model })
    }
}

/// Returns how a command bypasses its lane; `None` if the lane runs it.
fn control_command(command: &SlashCommand, trust: Trust) -> Option<ControlCommand> {
    match command.name.as_str() {
        // The text of an MCP prompt is for the model, so the lane runs a turn.
        "mcp" if mcp::is_prompt(&command.argument) => None,
        "stop" => Some(ControlCommand::Stop),
        // The lane refuses an untrusted sender.
        "status" if trust != Trust::Untrusted => Some(ControlCommand::Status),
        // These commands change the state from which waiting turns resume.
        "new" | "checkpoint" | "restore" | "forget" => None,
        // Outside its lane, a command changes at most the session's model.
        "agent" if !command.argument.is_empty() => None,
        name if COMMANDS.contains(&name) && trust != Trust::Untrusted => Some(ControlCommand::Command),
        _ => None,
    }
}

/// Returns the usage and cost of this session, and of all sessions today; by model if there are several models, or a cost.
async fn describe_cost(context: &CommandContext, session: &str) -> Result<String, StoreError> {
    let now = Timestamp::now().to_zoned(context.timezone.clone());
    let midnight = now.start_of_day().map_or(0, |day| day.timestamp().as_millisecond());
    let key = session.to_owned();
    let (of_session, of_today) = context
        .store
        .read(move |connection| {
            let total = |scope| usage::total(connection, scope);
            Ok((total(UsageScope::Session(&key))?, total(UsageScope::Since(midnight))?))
        })
        .await?;
    let phrases = context.phrases;
    Ok([cost_line(phrases, phrases.cost_session, &of_session), cost_line(phrases, phrases.cost_today, &of_today)]
        .join("\n\n"))
}

fn cost_line(phrases: &Phrases, heading: &str, spent: &UsageTotal) -> String {
    let turns = counted(phrases.turns, spent.tokens.turns);
    let mut text = fill(heading, &[&turns, &usage_text(phrases, spent.tokens, &spent.costs)]);
    if spent.models.len() > 1 || !spent.costs.is_empty() {
        for model in &spent.models {
            text.push_str(&format!("\n- `{}`: {}", model.model, usage_text(phrases, model.tokens, &model.costs)));
        }
    }
    text
}

fn usage_text(phrases: &Phrases, used: TokenCounts, costs: &Costs) -> String {
    let numbers = [used.input, used.cached, used.output].map(|number| number.to_string());
    let tokens = fill(phrases.cost_tokens, &numbers.each_ref().map(String::as_str));
    match costs_in_words(costs) {
        Some(costs) => format!("{tokens}, **{costs}**"),
        None => tokens,
    }
}

/// Returns true for the holder of a token with the scope `chat`. The owner chooses such a sender's agent and model.
fn is_token_holder(row: &InboxRow) -> bool {
    row.sender.starts_with("token:") && Trust::parse(&row.trust) != Trust::Owner
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that is answered while the turn of its session waits must not lose a change.
    #[test]
    fn commands_that_change_more_than_the_model_run_in_their_lane() {
        let of = |content: &str, trust| control_command(&SlashCommand::parse(content).unwrap(), trust);
        for (content, expected) in [
            ("/agent", Some(ControlCommand::Command)),
            ("/agent coder", None),
            ("/model openai/gpt", Some(ControlCommand::Command)),
            ("/approve a1", Some(ControlCommand::Command)),
            ("/mcp files", Some(ControlCommand::Command)),
            ("/mcp files prompt", None),
            ("/new", None),
            ("/checkpoint", None),
            ("/restore a1", None),
            ("/forget 1", None),
            ("/stop", Some(ControlCommand::Stop)),
            ("/status", Some(ControlCommand::Status)),
            ("/unknown", None),
        ] {
            assert_eq!(of(content, Trust::Known), expected, "{content}");
            let of_untrusted = expected.filter(|command| *command == ControlCommand::Stop);
            assert_eq!(of(content, Trust::Untrusted), of_untrusted, "{content}");
        }
    }
}
