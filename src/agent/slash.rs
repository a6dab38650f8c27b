//! Slash commands: answered without a model, on every channel.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use daoyou_channels::InboundMessage;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::phrases::{Phrases, fill};
use crate::bus::{MessageBus, Order, PastLane};
use crate::live::Live;
use crate::llm::Models;
use crate::store::{Store, StoreError, messages, usage};
use crate::tools::Executor;

/// A command as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slash {
    /// Lower case, without the slash.
    pub name: String,
    pub argument: String,
}

impl Slash {
    /// Reads `/name argument`; anything else, such as a path, is for the model.
    pub fn parse(content: &str) -> Option<Self> {
        let line = content.trim();
        let rest = line.strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_' || c == '-');
        is_name.then(|| Self { name: name.to_ascii_lowercase(), argument: argument.trim().to_owned() })
    }
}

/// What a command changes about its session, committed with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    None,
    /// `/new`.
    NewEpoch,
    /// `/model NAME`; `None` is the configured one.
    Model(Option<String>),
}

/// Answers them.
pub struct SlashCommands {
    pub phrases: &'static Phrases,
    pub models: Arc<Models>,
    pub tools: Arc<Executor>,
    pub store: Store,
    pub timezone: TimeZone,
    pub started: Instant,
}

impl SlashCommands {
    /// The answer to a command of `session`, and what it changes; `usual_model` is the one where none was chosen.
    pub async fn answer(
        &self,
        command: &Slash,
        session: &str,
        usual_model: &str,
    ) -> Result<(String, SessionChange), StoreError> {
        let reply = match command.name.as_str() {
            "new" => return Ok((self.phrases.new_session.to_owned(), SessionChange::NewEpoch)),
            "model" => return self.model(&command.argument, session, usual_model).await,
            "help" => self.phrases.help.to_owned(),
            "session" => self.session(session).await?,
            "cost" => self.cost(session).await?,
            "tools" => self.tool_names(),
            other => {
                let unknown = fill(self.phrases.unknown_command, &[&format!("`/{other}`")]);
                format!("{unknown}\n\n{}", self.phrases.help)
            }
        };
        Ok((reply, SessionChange::None))
    }

    async fn model(
        &self,
        wanted: &str,
        session: &str,
        usual_model: &str,
    ) -> Result<(String, SessionChange), StoreError> {
        if wanted.is_empty() {
            let key = session.to_owned();
            let head = self.store.read(move |connection| messages::session(connection, &key)).await?;
            let current = head.model.unwrap_or_else(|| usual_model.to_owned());
            let current = match self.models.resolve(&current).await {
                Ok(choice) => format!("{}/{}", choice.provider.name(), choice.model),
                Err(error) => format!("{current} ({error})"),
            };
            let models = self.models.list().await;
            let name = |(provider, model): &(String, String)| {
                if model.is_empty() || provider == model { provider.clone() } else { format!("{provider}/{model}") }
            };
            let available = models.iter().map(name).collect::<Vec<_>>().join(", ");
            return Ok((fill(self.phrases.model_is, &[&current, &available]), SessionChange::None));
        }
        if wanted == "auto" || wanted == "default" {
            return Ok((self.phrases.model_reset.to_owned(), SessionChange::Model(None)));
        }
        Ok(match self.models.resolve(wanted).await {
            Ok(choice) => {
                let name = format!("{}/{}", choice.provider.name(), choice.model);
                (fill(self.phrases.model_set, &[&name]), SessionChange::Model(Some(name)))
            }
            Err(error) => (fill(self.phrases.no_model, &[wanted, &error.to_string()]), SessionChange::None),
        })
    }

    async fn session(&self, session: &str) -> Result<String, StoreError> {
        let key = session.to_owned();
        let head = self.store.read(move |connection| messages::session(connection, &key)).await?;
        let count = (head.next_seq - head.first_seq).to_string();
        Ok(fill(self.phrases.session_is, &[session, &count, &head.epoch.to_string()]))
    }

    async fn cost(&self, session: &str) -> Result<String, StoreError> {
        let now = Timestamp::now().to_zoned(self.timezone.clone());
        let midnight = now.start_of_day().map_or(0, |day| day.timestamp().as_millisecond());
        let key = session.to_owned();
        let (mine, all) = self
            .store
            .read(move |connection| Ok((usage::of_session(connection, &key)?, usage::since(connection, midnight)?)))
            .await?;
        let numbers = [mine.turns, mine.input, mine.cached, mine.output, all.turns, all.input, all.output];
        let words = numbers.map(|number| number.to_string());
        Ok(fill(self.phrases.cost_is, &words.each_ref().map(String::as_str)))
    }

    fn tool_names(&self) -> String {
        let specs = self.tools.specs();
        let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        fill(self.phrases.tools_are, &[&names.join(", ")])
    }
}

/// The bus asks whoever answers at the moment.
#[async_trait]
impl PastLane for Live<SlashCommands> {
    fn order(&self, message: &InboundMessage) -> Option<Order> {
        match Slash::parse(&message.content)?.name.as_str() {
            "stop" => Some(Order::Stop),
            "status" => Some(Order::Status),
            _ => None,
        }
    }

    fn stopped(&self, something_ran: bool) -> String {
        let phrases = self.get().phrases;
        if something_ran { phrases.stopped } else { phrases.nothing_to_stop }.to_owned()
    }

    async fn status(&self, bus: &MessageBus) -> String {
        let (inbound, outbound) = bus.depths();
        let current = self.get();
        let up = daoyou_channels::settings::Span::from_secs(current.started.elapsed().as_secs()).to_string();
        let version = env!("CARGO_PKG_VERSION");
        fill(current.phrases.status_is, &[version, &up, &inbound.to_string(), &outbound.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_behind_a_slash_is_a_command() {
        for (content, expected) in [
            ("/help", Some(("help", ""))),
            ("  /Model  openai/gpt-4o ", Some(("model", "openai/gpt-4o"))),
            ("/new\nand more", Some(("new", "and more"))),
            ("/etc/hosts is missing", None),
            ("/", None),
            ("hello /help", None),
            ("/1st", None),
        ] {
            let parsed = Slash::parse(content);
            let parsed = parsed.as_ref().map(|slash| (slash.name.as_str(), slash.argument.as_str()));
            assert_eq!(parsed, expected, "{content:?}");
        }
    }
}
