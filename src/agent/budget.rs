//! How many tokens of a model's context are left for what was said before, once all else has its room; and what each
//! model's own count is worth in estimated tokens, learned from what its service says.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daoyou_channels::Trust;

use super::asking::tokens_of;
use super::lane::LaneRunner;
use crate::chat::{ToolSpec, Usage};
use crate::llm::{ChatRequest, Models, TokenFactor, estimate_tokens, limit_in_words};
use crate::store::inbox::InboxRow;
use crate::store::{Commit, Connection, Store, StoreError, notes, now_ms};
use crate::tools::Executor;

/// The room of an answer whose length nobody bounds, in the model's tokens.
const ANSWER: usize = 8_192;

/// Models whose counts are kept at hand; more are not learned of.
const MODELS: usize = 100;

/// The first requests to a model are learned from, and then each of so many: counting takes time, and little changes.
const FIRST: u64 = 4;
const EACH: u64 = 16;

/// A factor that moved by less is not written.
const WORTH_WRITING: f64 = 0.02;

/// Where factors and limits are kept: as notes, with the model's name as their key.
const CHANNEL: &str = "models";
const KIND: &str = "tokens";
const CONTEXT: &str = "context";

/// A limit that a service told is believed for so long, in milliseconds: servers are set up anew.
const LIMIT_HOLDS: i64 = 30 * 86_400_000;

/// What a request holds beside the conversation: `context` and `answer` in the model's tokens, all others estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// What the model takes, question and answer together, or less where the owner says so.
    pub context: usize,
    /// The longest answer, where it is bounded.
    pub answer: Option<usize>,
    pub system: usize,
    /// The definitions of the tools.
    pub tools: usize,
    /// What is told of long-term memory.
    pub memory: usize,
    pub message: usize,
}

/// The estimated tokens that are left for what was said before. Never less than a quarter of the context: without any of it
/// nobody can talk, and a service that is told too much says so.
pub fn left(parts: Parts, factor: TokenFactor) -> usize {
    let Parts { context, answer, system, tools, memory, message } = parts;
    let answer = answer.unwrap_or(ANSWER).min(context / 4);
    // What tools answer stands behind the message.
    let results = if tools > 0 { context / 4 } else { 0 };
    let all = factor.estimated(context - answer - results);
    let used = system + tools + memory + message;
    all.saturating_sub(used).max(factor.estimated(context / 4))
}

/// What the definitions of these tools cost, estimated.
pub fn tokens_of_tools(specs: &[ToolSpec]) -> usize {
    let one = |spec: &ToolSpec| {
        estimate_tokens(&spec.name) + estimate_tokens(&spec.description) + estimate_tokens(&spec.parameters.to_string())
    };
    specs.iter().map(one).sum()
}

/// What models count, and what tools cost; shared by all turns.
pub struct Budget {
    store: Store,
    models: Mutex<HashMap<String, Known>>,
    /// Those that were counted last, as most turns have the same.
    tools: Mutex<Option<(Arc<[ToolSpec]>, usize)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    factor: TokenFactor,
    /// As it stands in the store.
    written: TokenFactor,
    /// What a refusal said of its context, in tokens.
    context: Option<u32>,
    requests: u64,
}

impl Budget {
    pub fn new(store: Store) -> Self {
        Self { store, models: Mutex::default(), tools: Mutex::default() }
    }

    /// What a model (`PROVIDER/MODEL`) makes of an estimated token, as far as is known.
    pub fn factor(&self, model: &str) -> TokenFactor {
        self.known(model).factor
    }

    /// What the definitions of these tools cost.
    pub fn tools(&self, specs: &Arc<[ToolSpec]>) -> usize {
        let counted = self.lock_tools().clone();
        if let Some((_, tokens)) = counted.filter(|(counted, _)| Arc::ptr_eq(counted, specs)) {
            return tokens;
        }
        let tokens = tokens_of_tools(specs);
        *self.lock_tools() = Some((specs.clone(), tokens));
        tokens
    }

    /// Learns from what a service counted of a request to `model`.
    pub fn learn(&self, model: &str, request: &ChatRequest, counted: Usage) {
        let before = self.known(model);
        let is_due = before.requests < FIRST || before.requests.is_multiple_of(EACH);
        let estimated = if is_due && request.images.is_empty() { self.estimate(request) } else { 0 };
        let factor = before.factor.learn(estimated, counted.input_tokens);
        let is_worth_writing = (factor.get() - before.written.get()).abs() >= WORTH_WRITING;
        let written = if is_worth_writing { factor } else { before.written };
        self.remember(model, Known { factor, written, requests: before.requests + 1, ..before });
        if is_worth_writing {
            tracing::debug!(model, factor = factor.get(), "how a model counts tokens, against the estimate");
            self.write(model.to_owned(), KIND, format!("{:.3}", factor.get()));
        }
    }

    fn estimate(&self, request: &ChatRequest) -> u64 {
        let messages: usize = request.messages.iter().map(tokens_of).sum();
        let tokens = estimate_tokens(&request.system) + self.tools(&request.tools) + messages;
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    fn known(&self, model: &str) -> Known {
        if let Some(known) = self.lock_models().get(model) {
            return *known;
        }
        let written = self.store.read_here(|connection| notes::get(connection, CHANNEL, KIND, model));
        let factor = match written {
            Ok(written) => TokenFactor::new(written.and_then(|(value, _)| value.parse().ok()).unwrap_or(1.0)),
            Err(error) => {
                tracing::debug!(%error, "what is known of a model's count of tokens cannot be read");
                TokenFactor::default()
            }
        };
        let known = Known { factor, written: factor, context: self.told_limit(model), requests: 0 };
        self.remember(model, known);
        known
    }

    fn remember(&self, model: &str, known: Known) {
        let mut models = self.lock_models();
        if models.len() < MODELS || models.contains_key(model) {
            models.insert(model.to_owned(), known);
        }
    }

    /// How many tokens the model that `wanted` means holds, by what is known of it and what its service has said; `None` where
    /// that is not known without asking anybody.
    pub fn context(&self, models: &Models, wanted: &str) -> Option<u32> {
        let told = models.known_name(wanted).and_then(|name| self.known(&name).context);
        [models.context_tokens(wanted), told].into_iter().flatten().min()
    }

    /// Learns how many tokens a model (`PROVIDER/MODEL`) holds from the words of its refusal of a conversation that is too
    /// long, and keeps it.
    pub fn learn_limit(&self, model: &str, refusal: &str) {
        let Some(limit) = limit_in_words(refusal) else { return };
        let before = self.known(model);
        if before.context == Some(limit) {
            return;
        }
        self.remember(model, Known { context: Some(limit), ..before });
        tracing::info!(model, limit, "the service says how many tokens the model holds; kept from now on");
        self.write(model.to_owned(), CONTEXT, limit.to_string());
    }

    fn told_limit(&self, model: &str) -> Option<u32> {
        match self.store.read_here(|connection| notes::get(connection, CHANNEL, CONTEXT, model)) {
            Ok(told) => told.filter(|(_, at)| now_ms() - at < LIMIT_HOLDS)?.0.parse().ok(),
            Err(error) => {
                tracing::debug!(%error, "what is known of a model's context cannot be read");
                None
            }
        }
    }

    /// Nobody waits for it: what is lost is learned again.
    fn write(&self, model: String, kind: &'static str, value: String) {
        let store = self.store.clone();
        tokio::spawn(async move {
            let write = move |connection: &Connection| notes::set(connection, CHANNEL, kind, &model, &value);
            match store.write(Commit::Logged, write).await {
                Ok(()) | Err(StoreError::Closed) => {}
                Err(error) => tracing::warn!(%error, "how a model counts tokens could not be kept"),
            }
        });
    }

    fn lock_models(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tools(&self) -> MutexGuard<'_, Option<(Arc<[ToolSpec]>, usize)>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What refusals have said of the contexts of models, by `PROVIDER/MODEL`, in tokens.
pub fn told_limits(connection: &Connection) -> Result<BTreeMap<String, u32>, StoreError> {
    let told = notes::all(connection, CHANNEL, CONTEXT)?.into_iter();
    let held = told.filter(|(_, _, at)| now_ms() - at < LIMIT_HOLDS);
    Ok(held.filter_map(|(model, limit, _)| Some((model, limit.parse().ok()?))).collect())
}

impl LaneRunner {
    /// How many estimated tokens of what was said before may be given to the model that `wanted` means, along with the
    /// message `last` and so many tokens of long-term memory.
    pub(super) fn tokens_left(&self, wanted: &str, last: &InboxRow, memory: usize) -> usize {
        let whole = |tokens: u32| usize::try_from(tokens).unwrap_or(usize::MAX);
        let most = whole(self.config.context_tokens);
        let tools: Arc<Executor> = self.tools_for(last);
        let parts = Parts {
            context: self.budget.context(&self.models, wanted).map_or(most, |held| whole(held).min(most)),
            answer: self.config.max_tokens.map(whole),
            system: estimate_tokens(&self.system.current(Trust::parse(&last.trust)).0),
            tools: self.budget.tools(&tools.specs()),
            memory,
            message: estimate_tokens(&last.content),
        };
        left(parts, self.models.known_name(wanted).map_or_else(TokenFactor::default, |name| self.budget.factor(&name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatMessage;

    #[test]
    fn what_is_left_counts_everything() {
        let parts = |context, answer, (system, tools, memory, message)| Parts {
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
            // Of a model that counts half as much again less fits.
            (parts(100_000, None, (2_000, 6_000, 1_800, 500)), 1.5, 34_238),
            // A small model: the answer has no more than a quarter, and the conversation no less.
            (parts(8_000, None, (1_000, 1_000, 0, 0)), 1.0, 2_000),
            (parts(8_000, Some(100_000), (1_000, 0, 0, 0)), 1.0, 5_000),
            (parts(8_000, None, (9_000, 9_000, 0, 9_000)), 1.0, 2_000),
            (parts(0, None, (9, 9, 9, 9)), 1.0, 0),
        ] {
            assert_eq!(left(parts, TokenFactor::new(factor)), expected, "{parts:?} {factor}");
        }
    }

    #[tokio::test]
    async fn what_a_service_counts_is_kept_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let budget = Budget::new(store.clone());
        let request = ChatRequest {
            model: "m".to_owned(),
            system: "word ".repeat(1_000).into(),
            messages: vec![ChatMessage::user("hello")],
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
        // Writes are done in order: behind this one all stand.
        let kept = async || {
            tokio::task::yield_now().await;
            store.write(Commit::Logged, |connection| notes::get(connection, CHANNEL, KIND, "p/m")).await.unwrap()
        };
        while kept().await.is_none_or(|(value, _)| value != format!("{:.3}", learned.get())) {}
        let again = Budget::new(store.clone()).factor("p/m");
        assert!((again.get() - learned.get()).abs() < 0.001, "{again:?}");
    }
}
