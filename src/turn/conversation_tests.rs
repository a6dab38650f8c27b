//! Property test: whatever happens to the turns of a session, every service accepts the resulting requests.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use super::context::window::{HistoryCache, HistorySlice, HistoryWindow, choose, choose_again};
use super::orchestrators::Orchestrator;
use super::progress::{ContextStep, OpenCall, StepBody, TurnProgress, session_messages};
use super::turn_loop::CallIds;
use crate::chat::{ChatMessage, ToolCall, ToolSpec};
use crate::llm::{
    ChatRequest, ChatResponse, DeltaSink, Images, LlmError, ModelChoice, NoDeltas, Provider, check_messages,
    openai_request, repair_messages,
};
use crate::store::turn_steps::{self, TurnStepRow};
use crate::store::{Durability, Store, messages};
use crate::tools::ToolResult;

#[path = "../../tests/support/strict.rs"]
mod strict;

/// Ids in the forms that services use: the same in each response, empty, too long.
const IDS: [&str; 5] =
    ["call_0", "a", "b", "", "a-very-long-id-that-no-service-takes-back-as-it-came-because-it-is-too-long"];

/// The events of one turn.
#[derive(Clone, Debug)]
struct Plan {
    /// `/new` precedes the turn.
    is_new: bool,
    /// The window by which the turn's history is chosen.
    window: (u32, usize),
    /// The calls of each response, by index into `IDS`, and whether the response has text as well.
    rounds: Vec<(Vec<usize>, bool)>,
    /// The order of the results, one bit each.
    order: u8,
    /// The number of steps after which the process dies, and the step of the journal that is unreadable then.
    dies: Option<(usize, usize)>,
    /// The number of steps after which the turn is stopped.
    stops: Option<usize>,
    user_bytes: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    let round = (prop::collection::vec(0..IDS.len(), 1..4), any::<bool>());
    (
        prop::bool::weighted(0.1),
        (1u32..14, prop::sample::select(vec![20_usize, 60, 200, 10_000])),
        prop::collection::vec(round, 0..4),
        any::<u8>(),
        prop::option::of((0usize..12, 0usize..12)),
        prop::option::weighted(0.3, 0usize..12),
        prop::sample::select(vec![3_usize, 40, 400]),
    )
        .prop_map(|(is_new, window, rounds, order, dies, stops, user_bytes)| Plan {
            is_new,
            window,
            rounds,
            order,
            dies,
            stops,
            user_bytes,
        })
}

/// A turn under way.
struct Running {
    conversation: Vec<ChatMessage>,
    steps: Vec<StepBody>,
    progress: TurnProgress,
    plan: Plan,
    /// The step that cannot be read any more.
    lost: Option<usize>,
}

impl Running {
    /// Records a step; returns true if the turn is stopped then.
    fn keep(&mut self, step: StepBody) -> bool {
        self.steps.push(step.clone());
        self.progress.apply(step);
        if let Some((at, lost)) = self.plan.dies
            && at == self.steps.len()
        {
            self.lost = Some(lost).filter(|lost| *lost < at);
            self.progress = TurnProgress::read(&self.journal()).unwrap();
        }
        assert_eq!(TurnProgress::read(&self.journal()).as_ref(), Ok(&self.progress), "the journal is what was done");
        self.plan.stops == Some(self.steps.len())
    }

    fn journal(&self) -> Vec<TurnStepRow> {
        let mut rows = rows(&self.steps);
        let lost = self.lost.and_then(|lost| rows.get_mut(lost));
        if let Some(row) = lost.filter(|row| row.kind.starts_with("tool")) {
            row.version = 99;
        }
        rows
    }

    fn request(&self) -> Vec<ChatMessage> {
        self.conversation.iter().chain(&self.progress.messages).cloned().collect()
    }

    /// Runs the open calls in any order; returns true if the turn was stopped.
    fn run_calls(&mut self) -> bool {
        while !self.progress.open_calls.is_empty() {
            let at = usize::from(self.plan.order) % self.progress.open_calls.len();
            self.plan.order = self.plan.order.rotate_right(1);
            let OpenCall { call, interrupted } = self.progress.open_calls[at].clone();
            let ToolCall { id, name, .. } = call;
            let started = StepBody::ToolStarted { call_id: id.clone(), name: name.clone() };
            if !interrupted && self.plan.order.is_multiple_of(2) && self.keep(started) {
                return true;
            }
            let result = if interrupted { ToolResult::failed("interrupted") } else { ToolResult::ok("  ") };
            if self.keep(StepBody::ToolResult { call_id: id, name, result, active_ms: 1 }) {
                return true;
            }
        }
        false
    }

    /// Runs the turn to its answer, or until it is stopped; `ask` sees each request.
    fn run(&mut self, ask: &mut dyn FnMut(Vec<ChatMessage>)) {
        for (ids, speaks) in self.plan.rounds.clone() {
            if self.run_calls() {
                return;
            }
            let request = self.request();
            ask(request.clone());
            let mut tool_calls: Vec<_> = ids
                .iter()
                .map(|id| ToolCall { id: IDS[*id].to_owned(), name: "x".to_owned(), arguments: "{}".to_owned() })
                .collect();
            CallIds::after(request.iter()).settle(&mut tool_calls);
            let text = if speaks { "I look." } else { "<think>hm</think> " }.to_owned();
            let response = ChatResponse { text, tool_calls, ..ChatResponse::default() };
            if self.keep(StepBody::Response { response, active_ms: 1 }) {
                return;
            }
        }
        if !self.run_calls() {
            ask(self.request());
        }
    }
}

fn rows(bodies: &[StepBody]) -> Vec<TurnStepRow> {
    let mut hash = String::new();
    let row = |(seq, body): (i64, &StepBody)| {
        let text = serde_json::to_string(body).unwrap();
        hash = turn_steps::chain_hash(&hash, &text);
        let (kind, hash) = (body.kind().to_owned(), hash.clone());
        TurnStepRow { seq, kind, version: turn_steps::VERSION, body: text, hash, at: 0 }
    };
    (0..).zip(bodies).map(row).collect()
}

fn request(messages: Vec<Arc<ChatMessage>>) -> ChatRequest {
    let parameters = serde_json::json!({"type": "object", "properties": {}});
    let tool = ToolSpec { name: "x".to_owned(), description: "Does it.".to_owned(), parameters };
    ChatRequest {
        model: "m".to_owned(),
        system: "Be kind.".into(),
        messages,
        images: Images::default(),
        tools: vec![tool].into(),
        temperature: None,
        max_tokens: None,
    }
}

/// Checks Anthropic's rules: consecutive messages of one side are one message; the sides alternate and the user begins; the first
/// parts of the next message answer all calls of a message; no id is used twice.
fn anthropic_takes(messages: &[Arc<ChatMessage>]) -> Result<(), String> {
    let side = |message: &ChatMessage| matches!(message, ChatMessage::Assistant { .. });
    let mut ids = HashSet::new();
    let mut open: HashSet<&str> = HashSet::new();
    let chunks: Vec<_> = messages.chunk_by(|one, other| side(one) == side(other)).collect();
    if chunks.first().is_none_or(|first| side(&first[0])) || chunks.last().is_none_or(|last| side(&last[0])) {
        return Err("it begins or ends with the model".to_owned());
    }
    for chunk in chunks {
        let mut has_text = false;
        for message in chunk {
            match &**message {
                ChatMessage::User { content, .. } if content.trim().is_empty() => return Err("no text".to_owned()),
                ChatMessage::User { .. } => has_text = true,
                ChatMessage::Tool { .. } if has_text => return Err("a result behind text".to_owned()),
                ChatMessage::Tool { call_id, .. } if !open.remove(call_id.as_str()) => {
                    return Err(format!("{call_id:?} is not an open call"));
                }
                ChatMessage::Tool { .. } => {}
                ChatMessage::Assistant { content, tool_calls, .. } => {
                    if content.trim().is_empty() && tool_calls.is_empty() {
                        return Err("the model says nothing".to_owned());
                    }
                    for call in tool_calls {
                        if !ids.insert(call.id.as_str()) {
                            return Err(format!("{:?} twice", call.id));
                        }
                        open.insert(&call.id);
                    }
                }
            }
        }
        if !side(&chunk[0]) && !open.is_empty() {
            return Err(format!("without a result: {open:?}"));
        }
    }
    Ok(())
}

/// Records the request.
#[derive(Default)]
struct Recorder(Mutex<Option<ChatRequest>>);

#[async_trait]
impl Provider for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    async fn chat(&self, request: &ChatRequest, _: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        *self.0.lock().unwrap() = Some(request.clone());
        Ok(ChatResponse::default())
    }
}

/// Asserts that both protocols accept the conversation, with each orchestrator, and also the rest of it after a cut.
async fn assert_taken(messages: Vec<ChatMessage>) {
    assert_eq!(check_messages(&messages), Ok(()), "{messages:#?}");
    let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
    let mut halved = messages[messages.len() / 2..].to_vec();
    repair_messages(&mut halved);
    let asked = request(messages);
    let mut all = vec![asked.clone(), request(halved)];
    for orchestrator in [Orchestrator::React, Orchestrator::Plain] {
        let recorder = Arc::new(Recorder::default());
        let choice = ModelChoice { provider: recorder.clone(), model: "m".to_owned() };
        let provider = orchestrator.over(choice).provider;
        provider.chat(&asked, &NoDeltas).await.unwrap();
        let sent = recorder.0.lock().unwrap().take().unwrap();
        let has_calls = |message: &Arc<ChatMessage>| matches!(**message, ChatMessage::Tool { .. });
        assert!(sent.tools.is_empty() && !sent.messages.iter().any(has_calls), "{sent:#?}");
        all.push(sent);
    }
    for request in all {
        assert_eq!(strict::check(&openai_request(&request)), Ok(()), "{:#?}", request.messages);
        assert_eq!(anthropic_takes(&request.messages), Ok(()), "{:#?}", request.messages);
    }
}

/// Runs a session through its turns. The window stays the same: with a larger window, ids that were assigned without knowledge of
/// older messages may occur twice, and are repaired when the request is made.
async fn run_session(store: &Store, session: &str, plans: Vec<Plan>) {
    let (most, tokens) = plans.first().map_or((1, 1), |plan| plan.window);
    let window = HistoryWindow { messages: most, tokens, rounds: None };
    let cache = Arc::new(HistoryCache::default());
    for (number, plan) in plans.into_iter().enumerate() {
        let user = format!("{number} {}", "u".repeat(plan.user_bytes));
        let (key, is_new) = (session.to_owned(), plan.is_new);
        let (question, cache) = (user.clone(), cache.clone());
        let (given, context) = store
            .write(Durability::Logged, move |connection| {
                if is_new {
                    messages::new_epoch(connection, &key)?;
                }
                let head = messages::session(connection, &key)?;
                let HistorySlice { from, messages: log, .. } = choose(&cache, connection, &key, &head, window)?;
                let (to, system, model) = (head.next_seq, String::new(), String::new());
                let user = question.clone();
                let context = ContextStep { system, from, to, user, model, ..ContextStep::default() };
                assert_eq!(log, choose_again(connection, &key, &context)?, "a restart gives the same");
                assert!(log.len() <= window.messages as usize, "{} of {window:?}", log.len());
                Ok((log.iter().map(|logged| ChatMessage::clone(&logged.message)).collect::<Vec<_>>(), context))
            })
            .await
            .unwrap();
        let mut conversation = given;
        conversation.push(ChatMessage::user(user.as_str()));
        let mut running =
            Running { conversation, steps: Vec::new(), progress: TurnProgress::default(), plan, lost: None };
        let mut asked = Vec::new();
        if !running.keep(StepBody::Context(context)) {
            running.run(&mut |request| asked.push(request));
        }
        for request in asked {
            assert_taken(request).await;
        }
        let progress = TurnProgress::read(&running.journal()).unwrap();
        let key = session.to_owned();
        let added = session_messages(&ChatMessage::user(user), progress, "stopped", "the reply");
        store
            .write(Durability::Logged, move |connection| {
                let bodies = added.iter().map(|message| (message.role(), serde_json::to_string(message).unwrap()));
                messages::append(connection, &key, Uuid::now_v7(), bodies)
            })
            .await
            .unwrap();
    }
}

#[test]
fn every_request_is_valid_for_every_service() {
    let (_folder, store) = Store::temporary();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: 128, failure_persistence: None, ..Config::default() };
    let sessions = prop::collection::vec(plan(), 1..7);
    let done = TestRunner::new(config).run(&sessions, |plans| {
        runtime.block_on(run_session(&store, &Uuid::now_v7().to_string(), plans));
        Ok(())
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}
