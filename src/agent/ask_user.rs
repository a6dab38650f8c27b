//! `ask_user`: asks the person whose message the turn answers. The next message of that person in the session is the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use daoyou_channels::Trust;
use daoyou_channels::settings::HumanDuration;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::person_requests::{draft_to_sender, expiry_after};
use crate::bus::{MessageBus, OutboundDraft, OutboxSlot, WeakBus};
use crate::crash;
use crate::guard::KnownSecrets;
use crate::store::inbox::{self, InboxRow};
use crate::store::questions::{self, NewQuestion, QuestionRow, QuestionState};
use crate::store::{Connection, StoreError};
use crate::text::one_line;
use crate::tools::{
    ReplayPolicy, RowEffect, Tool, ToolContext, ToolDefinition, ToolEffect, ToolOutcome, ToolResult, WriteRows,
    with_arguments,
};
use crate::turn::context::attachments;

/// The tool's name.
const NAME: &str = "ask_user";
/// The longest question, and the longest option, in characters.
const MAX_QUESTION: usize = 4_000;
const MAX_OPTION: usize = 200;
/// The maximum number of options.
const MAX_OPTIONS: usize = 20;

#[derive(Deserialize, JsonSchema)]
struct AskUserArgs {
    question: String,
    /// Shown numbered; other answers are possible.
    options: Option<Vec<String>>,
}

/// Asks questions in the chat of the turn. A repeated call finds the question that the first call asked.
pub struct AskUserTool {
    definition: ToolDefinition,
    bus: WeakBus,
    /// The time in which a person may answer.
    expires: HumanDuration,
    /// Secrets that are removed from questions.
    secrets: KnownSecrets,
}

/// The state of a question in the store.
enum StoredQuestion {
    New,
    Known(QuestionRow),
    /// The message that answered the question.
    Answered(Box<InboxRow>),
    /// Another question of the session is open and must be answered first.
    Behind(QuestionRow),
}

impl AskUserTool {
    /// Creates the tool. `bus` may be set later; without a bus no question can be asked.
    pub fn new(bus: WeakBus, expires: HumanDuration, secrets: KnownSecrets) -> Self {
        let description = "Ask the user, and wait for the answer.";
        // The same call is the same question. Later calls of the same response may depend on the answer.
        let definition = ToolDefinition::changing::<AskUserArgs>(NAME, description, ReplayPolicy::Idempotent);
        Self { definition, bus, expires, secrets }
    }

    async fn ask(&self, args: AskUserArgs, context: &ToolContext) -> Result<ToolOutcome, String> {
        let bus = self.bus.get().ok_or("Nobody can be asked: the gateway does not run")?;
        let (id, session) = (questions::id_of(context.turn, &context.call_id), context.session.to_string());
        let stored = bus.store().read(move |connection| look_up(connection, id, &session)).await;
        let options = args.options.clone().unwrap_or_default();
        match stored.map_err(|error| error.to_string())? {
            StoredQuestion::New => self.begin(args, context, bus).map_err(|error| error.to_string()),
            StoredQuestion::Answered(row) => Ok(answer_of(&row, &options).into()),
            StoredQuestion::Behind(first) => Ok(self.wait_for(&first, &bus)),
            StoredQuestion::Known(row) => match row.state {
                QuestionState::Pending => Ok(self.wait_for(&row, &bus)),
                QuestionState::Expired => Ok(ToolResult::ok(format!(
                    "(no answer came within {}; go on without it, or say what you need)",
                    self.expires
                ))
                .into()),
                QuestionState::Answered => Err("the answer is no longer kept".to_owned()),
                QuestionState::Cancelled => Err("the question was withdrawn: the turn had ended".to_owned()),
            },
        }
    }

    fn wait_for(&self, row: &QuestionRow, bus: &Arc<MessageBus>) -> ToolOutcome {
        bus.expire_requests_at(row.expires_at);
        ToolOutcome::asked(row.id, Vec::new())
    }

    fn begin(&self, args: AskUserArgs, context: &ToolContext, bus: Arc<MessageBus>) -> Result<ToolOutcome, StoreError> {
        let id = questions::id_of(context.turn, &context.call_id);
        let mut content = text_of(&args.question, &args.options.unwrap_or_default());
        self.secrets.redact(&mut content);
        let mut message = draft_to_sender(context, OutboxSlot::Question { id }, content)?;
        message.body.context.is_question = true;
        let request = QuestionRequest {
            new: NewQuestion {
                id,
                turn: context.turn,
                session: context.session.to_string(),
                channel: context.channel.clone(),
                sender: context.sender.clone(),
                trust: context.trust.as_str(),
                expires_at: expiry_after(self.expires),
            },
            message,
            bus,
            is_written: AtomicBool::new(false),
        };
        Ok(ToolOutcome::asked(id, vec![ToolEffect::Rows(RowEffect(Arc::new(request)))]))
    }
}

#[async_trait]
impl Tool for AskUserTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns false: the question goes to the chat of the turn.
    fn is_restricted(&self, _: &Value, _: &ToolContext) -> bool {
        false
    }

    /// Returns true: the question goes to the untrusted sender alone.
    fn allows_untrusted(&self, _: &Value, _: &ToolContext) -> bool {
        true
    }

    /// Returns whether the answer taints the turn: it has the trust of its sender.
    fn may_taint(&self, _: &Value, context: &ToolContext) -> bool {
        context.trust == Trust::Untrusted
    }

    fn may_wait(&self, _: &Value, _: &ToolContext) -> bool {
        true
    }

    fn validate(&self, arguments: &Value, context: &ToolContext) -> Result<(), String> {
        if !context.origin.is_from_person() {
            return Err(
                "nobody can answer in this turn: no person wrote the message that it answers. Decide yourself, or put \
                        the question into your answer"
                    .to_owned(),
            );
        }
        let question = arguments.get("question").and_then(Value::as_str).unwrap_or_default();
        if question.trim().is_empty() {
            return Err("question is empty".to_owned());
        }
        if question.chars().count() > MAX_QUESTION {
            return Err(format!("question is longer than {MAX_QUESTION} characters; ask for one thing"));
        }
        let options = arguments.get("options").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if options.len() > MAX_OPTIONS {
            return Err(format!("{} options, at most {MAX_OPTIONS} are possible", options.len()));
        }
        for option in options.iter().filter_map(Value::as_str) {
            if option.trim().is_empty() || option.chars().count() > MAX_OPTION {
                return Err(format!(
                    "an option is empty or longer than {MAX_OPTION} characters: {:?}",
                    one_line(option)
                ));
            }
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        with_arguments(arguments, |args| self.ask(args, context)).await
    }
}

fn look_up(connection: &Connection, id: uuid::Uuid, session: &str) -> Result<StoredQuestion, StoreError> {
    let Some(row) = questions::find(connection, id)? else {
        let first = questions::pending(connection, session)?;
        return Ok(first.map_or(StoredQuestion::New, StoredQuestion::Behind));
    };
    let answer = row.answer.filter(|_| row.state == QuestionState::Answered);
    let answer = answer.map(|message| inbox::find(connection, message)).transpose()?.flatten();
    Ok(answer.map_or(StoredQuestion::Known(row), |answer| StoredQuestion::Answered(Box::new(answer))))
}

/// Returns the message to the person: the question, and the numbered options.
fn text_of(question: &str, options: &[String]) -> String {
    let mut text = question.trim().to_owned();
    for (number, option) in (1..).zip(options) {
        text.push_str(&format!("{}{number}. {}", if number == 1 { "\n\n" } else { "\n" }, one_line(option)));
    }
    text
}

/// Returns the result of a call whose question has an answer.
fn answer_of(row: &InboxRow, options: &[String]) -> ToolResult {
    let written = row.content.trim();
    let mut answer = chosen(written, options).unwrap_or(written).to_owned();
    answer.push_str(&attachments::describe(std::slice::from_ref(row)));
    let mut result = ToolResult::ok(answer.trim_start());
    if Trust::parse(&row.trust) == Trust::Untrusted {
        result.add_sources([format!("sender:{}:{}", row.channel, row.sender)].into());
    }
    result
}

/// Returns the option that an answer names by its number or its text. The number that is shown before an option comes first, since
/// an option may itself be a number.
fn chosen<'a>(answer: &str, options: &'a [String]) -> Option<&'a str> {
    let plain = answer.trim_end_matches(['.', ')', '。', '、', '）', '．']).trim();
    let number: String = plain.chars().map(half_width_digit).collect();
    let by_number = number.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
    let is_it = |option: &&String| {
        let option = one_line(option).to_lowercase();
        option == answer.to_lowercase() || option == plain.to_lowercase() || option == number
    };
    by_number.or_else(|| options.iter().find(is_it)).map(String::as_str)
}

/// Returns the ASCII digit of a full-width digit such as `２`; any other character as it is.
fn half_width_digit(c: char) -> char {
    ('０'..='９').zip('0'..='9').find(|(wide, _)| *wide == c).map_or(c, |(_, digit)| digit)
}

/// The rows of a question, which the asking turn commits.
struct QuestionRequest {
    new: NewQuestion,
    message: OutboundDraft,
    bus: Arc<MessageBus>,
    is_written: AtomicBool,
}

impl WriteRows for QuestionRequest {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        // A turn that was stopped meanwhile asks no question.
        if inbox::is_cancelled(connection, self.new.turn)? {
            self.is_written.store(false, Ordering::Relaxed);
            return Ok(());
        }
        if questions::insert(connection, &self.new)? {
            self.message.insert(connection)?;
            self.is_written.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn committed(&self) {
        crash::point("question_asked", &self.message.body.content);
        if self.is_written.swap(false, Ordering::Relaxed) {
            let NewQuestion { turn, session, .. } = &self.new;
            tracing::info!(%turn, session, "the turn asks its user");
            self.bus.outbound_written(&self.message.channel, 1);
            self.bus.expire_requests_at(self.new.expires_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::origin::TurnOrigin;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::{ToolFixture, context};

    #[tokio::test]
    async fn a_question_that_cannot_be_asked_says_why() {
        let mut fixture = ToolFixture::new(&ToolsConfig::default());
        let tool = AskUserTool::new(WeakBus::default(), HumanDuration::from_secs(60), KnownSecrets::default());
        fixture.executor.register(Arc::new(tool)).unwrap();
        let origin = |column: &str| ToolContext { origin: Arc::new(TurnOrigin::parse(column)), ..context() };
        let (person, good) = (context(), json!({"question": "Which one?"}));
        for (context, arguments, expected) in [
            (&person, json!({"question": " "}), "question is empty"),
            (&person, json!({"question": "x".repeat(4_001)}), "longer than 4000 characters"),
            (&person, json!({"question": "x", "options": vec!["y"; 21]}), "21 options, at most 20"),
            (&person, json!({"question": "x", "options": ["a", " "]}), "an option is empty"),
            (&person, json!({"question": "x", "options": "a"}), "options"),
            (&person, good.clone(), "the gateway does not run"),
            (&origin(r#"{"cause":{"kind":"heartbeat"}}"#), good.clone(), "nobody can answer in this turn"),
            (&origin(r#"{"follow_ups":1}"#), good, "nobody can answer in this turn"),
        ] {
            let call = ToolCall { id: "c".to_owned(), name: NAME.to_owned(), arguments: arguments.to_string() };
            let rendered = fixture.executor.run(&call, context).await.result.render();
            assert!(rendered.contains(expected), "{arguments}: {rendered}");
        }
    }

    #[test]
    fn options_are_numbered_and_chosen_by_number_or_text() {
        let options = ["Blue", "Dark green", "7"].map(str::to_owned);
        assert_eq!(text_of(" Which? ", &options), "Which?\n\n1. Blue\n2. Dark green\n3. 7");
        assert_eq!(text_of("Why?", &[]), "Why?");
        for (answer, expected) in [
            ("1", Some("Blue")),
            ("2.", Some("Dark green")),
            ("dark GREEN", Some("Dark green")),
            ("blue.", Some("Blue")),
            ("7", Some("7")),
            ("3)", Some("7")),
            ("0", None),
            ("4", None),
            ("1 or 2", None),
            ("red", None),
            ("", None),
        ] {
            assert_eq!(chosen(answer, &options), expected, "{answer}");
        }
        // The number that is shown counts, not an option that is the same number.
        let numbers = ["2", "1", "3", "12"].map(str::to_owned);
        for (answer, expected) in
            [("1", "2"), ("2.", "1"), ("３", "3"), ("２。", "1"), ("4", "12"), ("12", "12"), ("１２", "12")]
        {
            assert_eq!(chosen(answer, &numbers).map(str::to_owned), Some(expected.to_owned()), "{answer}");
        }
    }
}
