//! Token estimates: how many tokens of a model's context are left for the history, and each model's ratio of counted
//! to estimated tokens, learned from the usage that services report.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::chat::{ChatMessage, ToolCall, ToolSpec, Usage};
use crate::llm::{ChatRequest, ChatResponse, Models, TokenFactor, estimate_tokens};
use crate::store::{Connection, Durability, Store, StoreError, notes, now_ms};

/// Tokens reserved for an answer of unlimited length, in the model's tokens.
const ANSWER: usize = 8_192;

/// The maximum number of models for which a ratio is stored.
const MODELS: usize = 100;

/// The ratio is learned from the first requests to a model, then from one of `EACH`: counting takes time, and the ratio changes
/// little.
const FIRST: u64 = 4;
const EACH: u64 = 16;

/// A smaller change of a ratio is not stored.
const WORTH_WRITING: f64 = 0.02;

/// Ratios and limits are stored as notes, with the model's name as key.
const CHANNEL: &str = "models";
const KIND: &str = "tokens";
const CONTEXT: &str = "context";

/// How long a limit that a service reported is valid, in milliseconds: servers are reconfigured.
const LIMIT_HOLDS: i64 = 30 * 86_400_000;

/// The phrases before the number in a refusal of OpenAI or vLLM ("This model's maximum context length is 8192 tokens."), llama.cpp
/// ("the request exceeds the available context size (4096 tokens)"), Anthropic ("input length and `max_tokens` exceed context limit:
/// 190000 + 20000 > 200000"), Gemini ("exceeds the maximum number of tokens allowed (1048576)") and DashScope ("Range of input length
/// should be [1, 6000]").
const BEFORE_CONTEXT: [&str; 9] = [
    "context length is ", "context length of ", "context window of ", "context size (", "context size of ", " > ",
    "tokens allowed (", "input length should be [1, ", "context limit of ",
];

/// The minimum number that counts as a context length.
const LEAST_CONTEXT: u32 = 512;

/// The parts of a request besides the history. `context` and `answer` are in the model's tokens, all others are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestParts {
    /// The model's context for request and answer together, or less by configuration.
    pub context: usize,
    /// The longest answer, if it is bounded.
    pub answer: Option<usize>,
    pub system: usize,
    /// The definitions of the tools.
    pub tools: usize,
    /// The long-term memory in the prompt.
    pub memory: usize,
    pub message: usize,
}

/// Returns the estimated tokens that are left for the history. The result is at least a quarter of the context: a conversation needs
/// some history, and a service rejects a request that is too long.
pub fn remaining_for_history(parts: RequestParts, factor: TokenFactor) -> usize {
    let RequestParts { context, answer, system, tools, memory, message } = parts;
    let answer = answer.unwrap_or(ANSWER).min(context / 4);
    // Reserves space for tool results, which follow the message.
    let results = if tools > 0 { context / 4 } else { 0 };
    let all = factor.estimated(context - answer - results);
    let used = system + tools + memory + message;
    all.saturating_sub(used).max(factor.estimated(context / 4))
}

/// Estimates the tokens of tool definitions.
pub fn tokens_of_tools(specs: &[ToolSpec]) -> usize {
    let one = |spec: &ToolSpec| {
        estimate_tokens(&spec.name) + estimate_tokens(&spec.description) + estimate_tokens(&spec.parameters.to_string())
    };
    specs.iter().map(one).sum()
}

/// Approximate tokens of an image.
const IMAGE_TOKENS: usize = 1_500;

/// Tokens that a service adds around each message and call.
const AROUND: usize = 4;

/// Estimates the tokens of a message without its images.
pub fn tokens_of(message: &ChatMessage) -> usize {
    let tokens = match message {
        ChatMessage::User { content, .. } | ChatMessage::Tool { content, .. } => estimate_tokens(content),
        ChatMessage::Assistant { content, tool_calls, .. } => estimate_tokens(content) + tokens_of_calls(tool_calls),
    };
    AROUND + tokens
}

fn tokens_of_calls(calls: &[ToolCall]) -> usize {
    calls.iter().map(|call| AROUND + estimate_tokens(&call.name) + estimate_tokens(&call.arguments)).sum()
}

/// Estimates the usage of a response whose service reports none, so that limits apply nevertheless.
pub fn estimate_usage(request: &ChatRequest, response: &ChatResponse) -> Usage {
    let images = request.images.len() * IMAGE_TOKENS;
    let messages = request.messages.iter().map(|message| tokens_of(message)).sum::<usize>();
    let input = images + estimate_tokens(&request.system) + tokens_of_tools(&request.tools) + messages;
    let thoughts = response.reasoning.as_ref().map_or(0, |reasoning| estimate_tokens(&reasoning.text));
    let output = estimate_tokens(&response.text) + thoughts + tokens_of_calls(&response.tool_calls);
    let count = |tokens| u64::try_from(tokens).unwrap_or(u64::MAX);
    Usage { input_tokens: count(input), output_tokens: count(output), ..Usage::default() }
}

/// The token ratios and context sizes of the models; all turns share it.
pub struct TokenBudget {
    store: Store,
    models: Mutex<HashMap<String, ModelRecord>>,
    /// The definitions that were counted last: most turns have the same definitions.
    tools: Mutex<Option<(Arc<[ToolSpec]>, usize)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ModelRecord {
    factor: TokenFactor,
    /// The ratio that is in the store.
    written: TokenFactor,
    /// The context size that a rejection reported, in tokens.
    context: Option<u32>,
    requests: u64,
}

impl TokenBudget {
    pub fn new(store: Store) -> Self {
        Self { store, models: Mutex::default(), tools: Mutex::default() }
    }

    /// Returns the ratio of counted to estimated tokens of a model (`PROVIDER/MODEL`).
    pub fn factor(&self, model: &str) -> TokenFactor {
        self.known(model).factor
    }

    /// Returns the estimated tokens of these tool definitions.
    pub fn tools(&self, specs: &Arc<[ToolSpec]>) -> usize {
        let counted = self.tools.lock().clone();
        if let Some((_, tokens)) = counted.filter(|(counted, _)| Arc::ptr_eq(counted, specs)) {
            return tokens;
        }
        let tokens = tokens_of_tools(specs);
        *self.tools.lock() = Some((specs.clone(), tokens));
        tokens
    }

    /// Learns from the usage that a service reported for a request to `model`.
    pub fn learn(&self, model: &str, request: &ChatRequest, counted: Usage) {
        let before = self.known(model);
        let is_due = before.requests < FIRST || before.requests.is_multiple_of(EACH);
        let estimated = if is_due && request.images.is_empty() { self.estimate(request) } else { 0 };
        let factor = before.factor.learn(estimated, counted.input_tokens);
        let is_worth_writing = (factor.get() - before.written.get()).abs() >= WORTH_WRITING;
        let written = if is_worth_writing { factor } else { before.written };
        self.remember(model, ModelRecord { factor, written, requests: before.requests + 1, ..before });
        if is_worth_writing {
            tracing::debug!(
                model,
                factor = factor.get(),
                "the ratio of a model's token count to the estimate has changed"
            );
            self.write(model.to_owned(), KIND, format!("{:.3}", factor.get()));
        }
    }

    fn estimate(&self, request: &ChatRequest) -> u64 {
        let messages: usize = request.messages.iter().map(|message| tokens_of(message)).sum();
        let tokens = estimate_tokens(&request.system) + self.tools(&request.tools) + messages;
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    fn known(&self, model: &str) -> ModelRecord {
        if let Some(known) = self.models.lock().get(model) {
            return *known;
        }
        let written = self.store.read_here(|connection| notes::get(connection, CHANNEL, KIND, model));
        let factor = match written {
            Ok(written) => TokenFactor::new(written.and_then(|(value, _)| value.parse().ok()).unwrap_or(1.0)),
            Err(error) => {
                tracing::debug!(%error, "the token factor of a model cannot be read");
                TokenFactor::default()
            }
        };
        let known = ModelRecord { factor, written: factor, context: self.stated_limit(model), requests: 0 };
        self.remember(model, known);
        known
    }

    fn remember(&self, model: &str, known: ModelRecord) {
        let mut models = self.models.lock();
        if models.len() < MODELS || models.contains_key(model) {
            models.insert(model.to_owned(), known);
        }
    }

    /// Returns the context size of the model that `wanted` names, from the catalog and from its service's reports; `None` if it is
    /// unknown.
    pub fn context(&self, models: &Models, wanted: &str) -> Option<u32> {
        let stated = models.known_name(wanted).and_then(|name| self.known(&name).context);
        [models.context_tokens(wanted), stated].into_iter().flatten().min()
    }

    /// Learns and stores the context size of a model (`PROVIDER/MODEL`) from its rejection of a conversation that is too long.
    pub fn learn_limit(&self, model: &str, refusal: &str) {
        let Some(limit) = context_limit_in(refusal) else { return };
        let before = self.known(model);
        if before.context == Some(limit) {
            return;
        }
        self.remember(model, ModelRecord { context: Some(limit), ..before });
        tracing::info!(model, limit, "the service has reported the model's context size; it is kept from now on");
        self.write(model.to_owned(), CONTEXT, limit.to_string());
    }

    fn stated_limit(&self, model: &str) -> Option<u32> {
        match self.store.read_here(|connection| notes::get(connection, CHANNEL, CONTEXT, model)) {
            Ok(stated) => stated.filter(|(_, at)| now_ms() - at < LIMIT_HOLDS)?.0.parse().ok(),
            Err(error) => {
                tracing::debug!(%error, "the context size of a model cannot be read");
                None
            }
        }
    }

    /// Writes in the background: a lost value is learned again.
    fn write(&self, model: String, kind: &'static str, value: String) {
        let store = self.store.clone();
        tokio::spawn(async move {
            let write = move |connection: &Connection| notes::set(connection, CHANNEL, kind, &model, &value);
            match store.write(Durability::Logged, write).await {
                Ok(()) | Err(StoreError::Closed) => {}
                Err(error) => tracing::warn!(%error, "what was learned about a model's tokens could not be stored"),
            }
        });
    }
}

/// Returns the context sizes that rejections have reported, by `PROVIDER/MODEL`, in tokens.
///
/// # Errors
/// The notes cannot be read from the store. A note that is not a number is ignored.
pub fn stated_limits(connection: &Connection) -> Result<BTreeMap<String, u32>, StoreError> {
    let stated = notes::all(connection, CHANNEL, CONTEXT)?.into_iter();
    let held = stated.filter(|(_, _, at)| now_ms() - at < LIMIT_HOLDS);
    Ok(held.filter_map(|(model, limit, _)| Some((model, limit.parse().ok()?))).collect())
}

/// Returns the context length in tokens that a refusal names.
fn context_limit_in(refusal: &str) -> Option<u32> {
    let words = refusal.to_lowercase();
    BEFORE_CONTEXT.iter().find_map(|before| {
        let at = words.find(before)? + before.len();
        let number: String =
            words[at..].chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        number.parse().ok().filter(|limit| *limit >= LEAST_CONTEXT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatMessage;

    #[test]
    fn the_remaining_tokens_account_for_every_part() {
        let parts = |context, answer, (system, tools, memory, message)| RequestParts {
            context,
            answer,
            system,
            tools,
            memory,
            message,
        };
        for (parts, factor, expected) in [
            (parts(100_000, None, (0, 0, 0, 0)), 1.0, 91_808),
            (parts(100_000, Some(1_000), (0, 0, 0, 0)), 1.0, 99_000),
            (parts(100_000, None, (2_000, 6_000, 1_800, 500)), 1.0, 56_508),
            // If a model counts half as much again, less fits.
            (parts(100_000, None, (2_000, 6_000, 1_800, 500)), 1.5, 34_238),
            // A small model: the answer gets at most a quarter, and the conversation at least a quarter.
            (parts(8_000, None, (1_000, 1_000, 0, 0)), 1.0, 2_000),
            (parts(8_000, Some(100_000), (1_000, 0, 0, 0)), 1.0, 5_000),
            (parts(8_000, None, (9_000, 9_000, 0, 9_000)), 1.0, 2_000),
            (parts(0, None, (9, 9, 9, 9)), 1.0, 0),
        ] {
            assert_eq!(remaining_for_history(parts, TokenFactor::new(factor)), expected, "{parts:?} {factor}");
        }
    }

    #[tokio::test]
    async fn learned_token_factors_survive_a_restart() {
        let (_folder, store) = Store::temporary();
        let budget = TokenBudget::new(store.clone());
        let request = ChatRequest {
            model: "m".to_owned(),
            system: "word ".repeat(1_000).into(),
            messages: vec![ChatMessage::user("hello").into()],
            tools: Arc::default(),
            images: crate::llm::Images::default(),
            temperature: None,
            max_tokens: None,
        };
        let counts = |input_tokens| Usage { input_tokens, ..Usage::default() };
        for _ in 0..3 {
            budget.learn("p/m", &request, counts(1_500));
        }
        let learned = budget.factor("p/m");
        assert!((1.2..1.3).contains(&learned.get()), "{learned:?}");
        assert_eq!(budget.factor("p/other"), TokenFactor::default());
        // Writes are done in order, so all earlier ones are done after this one.
        let kept = async || {
            tokio::task::yield_now().await;
            store.write(Durability::Logged, |connection| notes::get(connection, CHANNEL, KIND, "p/m")).await.unwrap()
        };
        while kept().await.is_none_or(|(value, _)| value != format!("{:.3}", learned.get())) {}
        let again = TokenBudget::new(store.clone()).factor("p/m");
        assert!((again.get() - learned.get()).abs() < 0.001, "{again:?}");
    }

    #[test]
    fn an_estimate_counts_tools_and_calls() {
        let tool = |n: usize| ToolSpec {
            name: format!("tool_{n}"),
            description: "does something that takes some words to tell".to_owned(),
            parameters: serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        };
        let request = |tools: usize| ChatRequest {
            model: "m".to_owned(),
            system: "be kind".into(),
            messages: vec![ChatMessage::user("hello").into()],
            images: crate::llm::Images::default(),
            tools: (0..tools).map(tool).collect(),
            temperature: None,
            max_tokens: None,
        };
        let call = ToolCall { id: "1".to_owned(), name: "write_file".to_owned(), arguments: "{}".to_owned() };
        let response = |calls| ChatResponse { tool_calls: vec![call.clone(); calls], ..ChatResponse::default() };
        let (none, some) = (estimate_usage(&request(0), &response(0)), estimate_usage(&request(10), &response(2)));
        assert!(some.input_tokens > none.input_tokens + 200, "{none:?} {some:?}");
        assert!(none.output_tokens == 0 && some.output_tokens >= 2 * 6, "{none:?} {some:?}");
    }

    #[test]
    fn context_lengths_are_read_from_refusals_of_many_services() {
        for (words, limit) in [
            (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001.",
                Some(8_192),
            ),
            ("'max_tokens' is too large: 9000. This model's maximum context length is 4,096 tokens", Some(4_096)),
            ("prompt is too long: 209000 tokens > 200000 maximum", Some(200_000)),
            ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", Some(200_000)),
            ("the request exceeds the available context size (4096 tokens), try increasing it", Some(4_096)),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
            ),
            ("Range of input length should be [1, 6000]", Some(6_000)),
            ("context_length_exceeded: shorten it", None),
            ("maximum context length is 7", None),
        ] {
            assert_eq!(context_limit_in(words), limit, "{words}");
        }
    }
}
