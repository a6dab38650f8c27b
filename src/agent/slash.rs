//! Slash commands: answered without a model, on every channel.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use daoyou_channels::{InboundMessage, Trust};
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::error::ErrorCode;
use super::history;
use super::phrases::{Phrases, counted, fill};
use super::skill_names::SkillFolder;
use crate::bus::InboundDraft;
use crate::bus::{CommandAnswer, MessageBus, Order, PastLane};
use crate::cron::{self, JobScope, JobService};
use crate::live::Live;
use crate::llm::Models;
use crate::memory;
use crate::origin::TurnOrigin;
use crate::store::inbox::{InboxRow, State};
use crate::store::points::Point;
use crate::store::processes::ProcessRow;
use crate::store::{Store, StoreError, messages, spawns};
use crate::text::nearest;
use crate::tools::Executor;

/// A command as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slash {
    /// Lower case, without the slash.
    pub name: String,
    pub argument: String,
    /// What stands below its line, without a signature: it is not carried out.
    pub below: String,
}

impl Slash {
    /// Reads `/name argument` in the first line; anything else, such as a path, is for the model. So is a text that only
    /// begins with such a word: one that is no command, with more below it.
    pub fn parse(content: &str) -> Option<Self> {
        let content = content.trim();
        let (line, below) = content.split_once('\n').unwrap_or((content, ""));
        let rest = line.strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_' || c == '-');
        let (name, below) = (name.to_ascii_lowercase(), without_signature(below));
        let is_command = is_name && (below.is_empty() || COMMANDS.contains(&name.as_str()));
        is_command.then(|| Self { name, argument: argument.trim().to_owned(), below: below.to_owned() })
    }

    /// What whoever wrote text below a command is told of it.
    fn of_below(&self, phrases: &Phrases) -> Option<String> {
        let text = Some(&self.below).filter(|below| !below.is_empty())?;
        Some(fill(phrases.below_command, &[&history::shorten(text, MAX_BELOW)]))
    }
}

/// Text up to a signature (RFC 3676, section 4.3; some programs lose the space), trimmed.
fn without_signature(text: &str) -> &str {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "--" {
            break;
        }
        end += line.len();
    }
    text[..end].trim()
}

/// All commands, those of the terminal too.
const COMMANDS: [&str; 15] = [
    "checkpoint",
    "cost",
    "cron",
    "forget",
    "help",
    "history",
    "memory",
    "model",
    "new",
    "restore",
    "session",
    "skills",
    "status",
    "stop",
    "tools",
];
/// Commands that only a terminal has; some of them are carried out there and never arrive here.
const TERMINAL_COMMANDS: [&str; 8] = ["add", "clear", "drop", "exit", "files", "history", "quit", "thinking"];
/// How alike two commands are, from 0 to 1, before one is named in place of the other.
const ALIKE: f64 = 0.75;
/// How much is repeated of a command that is unknown, in characters.
const MAX_NAME: usize = 40;

/// Returns the command that `name` was most likely meant to be.
fn nearest_command(name: &str, in_terminal: bool) -> Option<&'static str> {
    let here = |known: &&str| in_terminal || !TERMINAL_COMMANDS.contains(known);
    let known = COMMANDS.into_iter().filter(here).chain(TERMINAL_COMMANDS.into_iter().filter(here));
    nearest::nearest(name, known.map(|known| (known, known)), nearest::BY_BEGINNING, ALIKE)
}

/// How much is repeated of a text that stood below a command, in characters.
const MAX_BELOW: usize = 200;

/// What a command changes about its session, committed with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    None,
    /// `/new`.
    NewEpoch,
    /// `/model NAME`; `None` is the configured one.
    Model(Option<String>),
    /// `/checkpoint NAME`.
    NamePoint {
        turn: Uuid,
        name: String,
    },
    /// `/restore ID`.
    Restore(Point),
    /// `/forget`: a memory's id.
    Forget(i64),
}

/// What a command is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub reply: String,
    pub change: SessionChange,
    /// A stable word when it could not be done.
    pub error: Option<&'static str>,
}

impl From<String> for Answered {
    fn from(reply: String) -> Self {
        Self { reply, change: SessionChange::None, error: None }
    }
}

/// The channel of the terminal, where there are more commands.
const TERMINAL: &str = "cli";
/// How many sessions `/session` lists.
const LISTED_SESSIONS: u32 = 15;
/// How many sub-agents `/status` names.
const LISTED_SUB_AGENTS: usize = 5;
/// How much of a tool's description `/tools` shows, in characters.
const MAX_DESCRIPTION: usize = 100;
/// Jobs that `/cron` lists.
const LISTED_JOBS: usize = 30;

/// The model that is to answer a message: the one that it asks for itself, else the one that `/model` has `chosen` for
/// its session, else its channel's, else the `configured` one.
pub fn wanted_model(row: &InboxRow, chosen: Option<&str>, configured: &str) -> String {
    let settings = TurnOrigin::parse(&row.origin).settings;
    let requested = settings.requested_model.filter(|model| !model.is_empty());
    let chosen = requested.or_else(|| chosen.map(str::to_owned)).or(settings.model);
    chosen.unwrap_or_else(|| configured.to_owned())
}

/// Answers them.
pub struct SlashCommands {
    pub phrases: &'static Phrases,
    pub models: Arc<Models>,
    pub tools: Arc<Executor>,
    pub store: Store,
    pub jobs: Arc<JobService>,
    pub memory: Arc<memory::MemoryService>,
    pub timezone: TimeZone,
    pub skills: Arc<SkillFolder>,
    /// `agent.model`.
    pub configured: String,
    pub started: Instant,
}

impl SlashCommands {
    /// The answer to a command, which is the message of `row`. A stranger gets the help alone.
    pub async fn answer(&self, command: &Slash, row: &InboxRow) -> Result<Answered, StoreError> {
        if Trust::parse(&row.trust) == Trust::Untrusted {
            let reply = if command.name == "help" { self.phrases.help_strangers } else { self.phrases.trusted_command };
            return Ok(reply.to_owned().into());
        }
        let mut answered = self.carry_out(command, row).await?;
        if let Some(below) = command.of_below(self.phrases) {
            answered.reply = format!("{}\n\n{below}", answered.reply);
        }
        Ok(answered)
    }

    async fn carry_out(&self, command: &Slash, row: &InboxRow) -> Result<Answered, StoreError> {
        let session = row.session.as_str();
        let in_terminal = row.channel == TERMINAL;
        let reply = match command.name.as_str() {
            "new" => {
                let reply = self.phrases.new_session.to_owned();
                return Ok(Answered { reply, change: SessionChange::NewEpoch, error: None });
            }
            "model" => return self.model(&command.argument, row).await,
            "help" => self.help(in_terminal),
            "session" => self.session(session, in_terminal).await?,
            "cost" => self.cost(session).await?,
            "cron" => self.jobs(row).await?,
            "memory" => self.memory(row).await?,
            "forget" => return self.forget(&command.argument, row).await,
            "checkpoint" => return self.checkpoint(&command.argument, row).await,
            "restore" => return self.restore(&command.argument, row).await,
            "tools" => self.tools(),
            "skills" => self.skills().await,
            "history" if in_terminal => self.history(session, &command.argument).await?,
            other => self.unknown(other, in_terminal),
        };
        Ok(reply.into())
    }

    fn unknown(&self, name: &str, in_terminal: bool) -> String {
        let written = format!("`/{}`", history::shorten(name, MAX_NAME));
        match nearest_command(name, in_terminal) {
            Some(near) => fill(self.phrases.unknown_command_near, &[&written, &format!("`/{near}`")]),
            None => fill(self.phrases.unknown_command, &[&written]),
        }
    }

    /// A message that is not in the store, as a row.
    fn row_of(&self, message: &InboundMessage) -> Result<InboxRow, StoreError> {
        let id = daoyou_channels::new_id();
        Ok(InboxRow {
            seq: 0,
            id,
            channel: message.channel.clone(),
            external_id: id.to_string(),
            session: message.session_key().to_string(),
            chat_id: message.chat_id.clone(),
            sender: message.sender.clone(),
            trust: message.trust.as_str().to_owned(),
            content: message.content.clone(),
            attachments: "[]".to_owned(),
            metadata: serde_json::to_string(&message.metadata)?,
            origin: InboundDraft::new(message.clone()).origin.to_column(),
            received_at: message.received_at.as_millisecond(),
            turn: id,
            state: State::Running,
            stalled: 0,
            cancel: false,
        })
    }

    fn help(&self, in_terminal: bool) -> String {
        let more = if in_terminal { self.phrases.help_terminal } else { "" };
        format!("{}{more}", self.phrases.help)
    }

    async fn model(&self, wanted: &str, row: &InboxRow) -> Result<Answered, StoreError> {
        if wanted.is_empty() {
            let key = row.session.clone();
            let head = self.store.read(move |connection| messages::session(connection, &key)).await?;
            let current = wanted_model(row, head.model.as_deref(), &self.configured);
            let current = match self.models.resolve(&current).await {
                Ok(choice) => format!("{}/{}", choice.provider.name(), choice.model),
                Err(error) => format!("{current} ({})", error.to_public()),
            };
            let models = self.models.list().await;
            let name = |(provider, model): &(String, String)| {
                if model.is_empty() || provider == model { provider.clone() } else { format!("{provider}/{model}") }
            };
            let available = models.iter().map(name).collect::<Vec<_>>().join(", ");
            return Ok(fill(self.phrases.model_is, &[&current, &available]).into());
        }
        if wanted == "auto" || wanted == "default" {
            let reply = self.phrases.model_reset.to_owned();
            return Ok(Answered { reply, change: SessionChange::Model(None), error: None });
        }
        Ok(match self.models.choose(wanted).await {
            Ok(choice) => {
                let name = format!("{}/{}", choice.provider.name(), choice.model);
                let reply = fill(self.phrases.model_set, &[&name]);
                Answered { reply, change: SessionChange::Model(Some(name)), error: None }
            }
            Err(error) => {
                let reply = fill(self.phrases.no_model, &[wanted, &error.to_public()]);
                Answered { reply, change: SessionChange::None, error: Some(ErrorCode::NoModel.word()) }
            }
        })
    }

    /// This session; in the terminal, where one can go over to another, the others, too.
    async fn session(&self, session: &str, in_terminal: bool) -> Result<String, StoreError> {
        let key = session.to_owned();
        let (head, list) = self
            .store
            .read(move |connection| {
                Ok((messages::session(connection, &key)?, messages::list(connection, LISTED_SESSIONS)?))
            })
            .await?;
        let count = (head.next_seq - head.first_seq).to_string();
        let mut said = fill(self.phrases.session_is, &[session, &count, &head.epoch.to_string()]);
        let others: Vec<_> = list.into_iter().filter(|other| other.session != session).collect();
        if in_terminal && !others.is_empty() {
            said.push_str(&format!("\n\n{}\n", self.phrases.other_sessions));
            for other in others {
                let at = history::clock(other.updated_at, &self.timezone);
                let count = counted(self.phrases.messages, other.messages.unsigned_abs());
                said.push_str(&fill(self.phrases.session_line, &[&other.session, &count, &at]));
            }
        }
        Ok(said)
    }

    /// The last messages of the session, each on a line.
    async fn history(&self, session: &str, count: &str) -> Result<String, StoreError> {
        let count = count.parse().unwrap_or(history::USUAL_COUNT).clamp(1, history::MAX_COUNT);
        let key = session.to_owned();
        let rows = self
            .store
            .read(move |connection| {
                let head = messages::session(connection, &key)?;
                let from = head.first_seq.max(head.next_seq - history::LOOK_BACK);
                messages::range(connection, &key, from, head.next_seq)
            })
            .await?;
        let lines = history::lines(&rows, count, &self.timezone, self.phrases);
        Ok(if lines.is_empty() { self.phrases.nothing_said.to_owned() } else { lines })
    }

    /// The jobs that the sender may see.
    async fn jobs(&self, row: &InboxRow) -> Result<String, StoreError> {
        let scope = JobScope::of(Trust::parse(&row.trust), &row.channel, &row.chat_id);
        let jobs = self.store.read(move |connection| cron::list(connection, &scope)).await?;
        if jobs.is_empty() {
            return Ok(self.phrases.no_jobs.to_owned());
        }
        let lines = cron::lines_by_name(&jobs, &self.jobs.context.get(), LISTED_JOBS);
        Ok(format!("{}\n{lines}\n\n{}", self.phrases.jobs_are, self.phrases.jobs_use))
    }

    async fn skills(&self) -> String {
        let folder = self.skills.clone();
        // The agent's commands write there: whatever lies there must not hold up the runtime.
        let (skills, faults) = match tokio::task::spawn_blocking(move || folder.list()).await {
            Ok(listed) => listed,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        for error in faults {
            tracing::warn!(%error, "a skill of the workspace is left out");
        }
        if skills.is_empty() {
            return fill(self.phrases.no_skills, &[&self.skills.path().display().to_string()]);
        }
        let lines = skills.iter().map(|skill| format!("- **{}** - {}", skill.name, skill.description));
        format!("{}\n{}", self.phrases.skills_are, lines.collect::<Vec<_>>().join("\n"))
    }

    fn tools(&self) -> String {
        let specs = self.tools.specs();
        let line = |spec: &crate::chat::ToolSpec| {
            let first = spec.description.lines().next().unwrap_or_default();
            let first = first.split_once(". ").map_or(first, |(sentence, _)| sentence).trim_end_matches('.');
            format!("- `{}` - {}", spec.name, history::shorten(first, MAX_DESCRIPTION))
        };
        format!("{}\n{}", self.phrases.tools_are, specs.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// The bus asks whoever answers at the moment.
#[async_trait]
impl PastLane for Live<SlashCommands> {
    fn order(&self, message: &InboundMessage) -> Option<Order> {
        match Slash::parse(&message.content)?.name.as_str() {
            "stop" => Some(Order::Stop),
            // A stranger is told in the lane that this is the owner's.
            "status" if message.trust != Trust::Untrusted => Some(Order::Status),
            // These change what the turns that wait go on from.
            "new" | "checkpoint" | "restore" | "forget" => None,
            name if COMMANDS.contains(&name) && message.trust != Trust::Untrusted => Some(Order::Command),
            _ => None,
        }
    }

    fn unread(&self, message: &InboundMessage) -> Option<String> {
        Slash::parse(&message.content)?.of_below(self.get().phrases)
    }

    fn stopped(
        &self,
        message: &InboundMessage,
        something_ran: bool,
        sub_agents: usize,
        processes: &[ProcessRow],
    ) -> String {
        let phrases = self.get().phrases;
        if message.trust == Trust::Untrusted && !something_ran {
            return phrases.nothing_of_yours.to_owned();
        }
        let mut told = match (something_ran, sub_agents) {
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
            told.push('\n');
            told.push_str(&fill(phrases.still_in_background, &[&names]));
        }
        told
    }

    async fn status(&self, bus: &MessageBus, message: &InboundMessage) -> String {
        let (inbound, outbound) = bus.depths();
        let current = self.get();
        let up = daoyou_channels::settings::Span::from_secs(current.started.elapsed().as_secs()).to_string();
        let version = env!("CARGO_PKG_VERSION");
        let mut status = fill(current.phrases.status_is, &[version, &up, &inbound.to_string(), &outbound.to_string()]);
        let session = message.session_key();
        match bus.store().read(move |connection| spawns::at_work(connection, session.as_str())).await {
            Ok(labels) if labels.is_empty() => {}
            Ok(labels) => {
                let more = if labels.len() > LISTED_SUB_AGENTS { ", …" } else { "" };
                let named = labels.iter().take(LISTED_SUB_AGENTS).map(String::as_str).collect::<Vec<_>>().join(", ");
                let (count, named) = (labels.len().to_string(), format!("{named}{more}"));
                status.push_str(&fill(current.phrases.sub_agents_at_work, &[&count, &named]));
            }
            Err(error) => tracing::warn!(%error, "the sub-agents of a session could not be looked up"),
        }
        for (provider, fault) in bus.services().all() {
            status.push_str(&format!("\n{}", current.phrases.service_words(&fault.code, &provider)));
        }
        status
    }

    async fn command(&self, message: &InboundMessage) -> Result<CommandAnswer, StoreError> {
        let current = self.get();
        let reply = || fill(current.phrases.unknown_command, &[&format!("`{}`", message.content.trim())]);
        let Some(command) = Slash::parse(&message.content) else {
            return Ok(CommandAnswer { reply: reply(), error: None, model: None });
        };
        let row = current.row_of(message)?;
        let Answered { reply, change, error } = current.answer(&command, &row).await?;
        let model = if let SessionChange::Model(model) = change { Some(model) } else { None };
        Ok(CommandAnswer { reply, error, model })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_behind_a_slash_is_a_command() {
        for (content, expected) in [
            ("/help", Some(("help", "", ""))),
            ("  /Model  openai/gpt-4o ", Some(("model", "openai/gpt-4o", ""))),
            ("/new\nand more", Some(("new", "", "and more"))),
            ("/stop\r\n\r\n-- \r\nAnn\r\nACME Ltd.\r\n", Some(("stop", "", ""))),
            ("/model a/b\n--\nAnn", Some(("model", "a/b", ""))),
            ("/status please\n\nthanks\n-- \nAnn", Some(("status", "please", "thanks"))),
            ("/nonsense", Some(("nonsense", "", ""))),
            ("/nonsense\n-- \nAnn", Some(("nonsense", "", ""))),
            ("/todo\n- eggs\n- milk", None),
            ("/etc/hosts is missing", None),
            ("/", None),
            ("/\nhelp", None),
            ("hello /help", None),
            ("hello\n/help", None),
            ("/1st", None),
        ] {
            let parsed = Slash::parse(content);
            let parsed = parsed.as_ref();
            let parsed = parsed.map(|slash| (slash.name.as_str(), slash.argument.as_str(), slash.below.as_str()));
            assert_eq!(parsed, expected, "{content:?}");
        }
    }

    #[test]
    fn an_unknown_command_names_the_nearest() {
        for (name, in_terminal, expected) in [
            ("hepl", false, Some("help")),
            ("modle", false, Some("model")),
            ("stat", false, Some("status")),
            ("checkpiont", false, Some("checkpoint")),
            ("histroy", true, Some("history")),
            ("qiut", true, Some("quit")),
            ("qiut", false, None),
            ("nonsense", true, None),
            ("xyz", true, None),
        ] {
            assert_eq!(nearest_command(name, in_terminal), expected, "{name}");
        }
    }

    #[test]
    fn help_in_the_terminal_names_every_command() {
        let phrases = Phrases::of(crate::agent::Locale::En);
        let help = format!("{}{}", phrases.help, phrases.help_terminal);
        assert!(COMMANDS.iter().all(|name| help.contains(&format!("- `/{name}"))), "{help}");
    }

    #[test]
    fn every_command_that_help_names_is_known() {
        for locale in [crate::agent::Locale::En, crate::agent::Locale::Zh] {
            let named = Phrases::of(locale).help.lines().filter_map(|line| line.trim_start().strip_prefix("- `/"));
            let named: Vec<_> = named.filter_map(|line| line.split([' ', '`']).next()).collect();
            assert!(named.len() >= 10 && named.iter().all(|name| COMMANDS.contains(name)), "{named:?}");
        }
    }
}
