//! The loop with a scripted model, scripted tools and a journal in memory.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bus::EventHub;
use crate::chat::{ToolCall, ToolSpec, Usage};
use crate::llm::{ChatRequest, DeltaSink, LlmError, LlmErrorKind};
use crate::metrics::TurnMetrics;
use crate::phrases::Phrases;
use crate::text::Language;
use crate::tools::testing::context;
use crate::tools::{ReplayPolicy, Restriction, ToolAccess, ToolEffect, ToolOutcome, ToolResult};
use crate::turn::flight_recorder::FlightRecorder;

type Response = Result<ChatResponse, TurnError>;

/// Answers with the next response of its script; records the number of messages and tools of each request.
struct ScriptedModel {
    script: Mutex<VecDeque<Response>>,
    asked: Mutex<Vec<(usize, usize)>>,
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> String {
        "scripted".to_owned()
    }

    async fn takes_images(&self) -> bool {
        false
    }

    async fn chat(&self, request: ChatRequest, _: &dyn DeltaSink) -> Response {
        self.asked.lock().unwrap().push((request.messages.len(), request.tools.len()));
        self.script.lock().unwrap().pop_front().expect("the script has a response")
    }
}

/// `look` only reads and may run again, `send` runs once; each returns its arguments. The argument `stop` cancels the turn.
struct ScriptedTools(CancellationToken);

/// Asks about calls with the argument `ask`, and allows all others.
struct ScriptedApprovals;

#[async_trait]
impl Approvals for ScriptedApprovals {
    async fn decide(&self, call: &ToolCall, _: &Restriction, _: &ToolContext) -> ApprovalDecision {
        if call.arguments.contains("ask") {
            return ApprovalDecision::Asked(Box::new(ToolOutcome::asked(Uuid::from_u128(5), Vec::new())));
        }
        ApprovalDecision::Allowed
    }
}

#[async_trait]
impl Tools for ScriptedTools {
    fn specs(&self, _: &BTreeSet<String>) -> Arc<[ToolSpec]> {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
        };
        [spec("look"), spec("send")].into()
    }

    fn canonical_name(&self, name: &str) -> Option<String> {
        match name {
            "look" | "view" => Some("look".to_owned()),
            "send" => Some("send".to_owned()),
            _ => None,
        }
    }

    fn canonicalize(&self, call: &mut ToolCall) {
        if let Some(name) = self.canonical_name(&call.name) {
            call.name = name;
        }
    }

    fn access_of(&self, name: &str) -> Option<ToolAccess> {
        Some(if self.canonical_name(name)? == "look" { ToolAccess::Reads } else { ToolAccess::Changes })
    }

    fn restriction(&self, call: &ToolCall, _: &ToolContext) -> Option<Restriction> {
        let name = self.canonical_name(&call.name).filter(|name| name == "send")?;
        Some(Restriction { tools: vec![name], ..Restriction::default() })
    }

    fn replay_of(&self, call: &ToolCall) -> Option<ReplayPolicy> {
        Some(if self.canonical_name(&call.name)? == "look" { ReplayPolicy::Idempotent } else { ReplayPolicy::Once })
    }

    fn refusal(&self, call: &ToolCall, _: &ToolContext) -> Option<String> {
        (call.arguments == "forbidden").then(|| "refused".to_owned())
    }

    fn parallelism(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    async fn run(&self, call: &ToolCall, _: &ToolContext) -> ToolOutcome {
        match call.arguments.as_str() {
            "stop" => self.0.cancel(),
            "later" => return ToolOutcome::pending(Uuid::max(), Vec::new()),
            _ => {}
        }
        ToolResult::ok(&call.arguments).into()
    }
}

/// Records the kinds of the steps.
#[derive(Default)]
struct ScriptedJournal(Mutex<Vec<&'static str>>);

#[async_trait]
impl Journal for ScriptedJournal {
    async fn record_with_effects(&self, step: &StepBody, _: &[ToolEffect]) {
        self.0.lock().unwrap().push(step.kind());
    }

    async fn record_begun(&self, _: &[ToolEffect]) {
        self.0.lock().unwrap().push("begun");
    }
}

fn calls(calls: &[(&str, &str)]) -> ChatResponse {
    let call = |(at, (name, arguments)): (usize, &(&str, &str))| ToolCall {
        id: at.to_string(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    let usage = Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() };
    ChatResponse { tool_calls: calls.iter().enumerate().map(call).collect(), usage, ..ChatResponse::default() }
}

fn says(text: &str) -> Response {
    Ok(ChatResponse { text: text.to_owned(), ..ChatResponse::default() })
}

struct Ran {
    /// The reply, the error's word, or how the loop paused.
    end: String,
    steps: Vec<&'static str>,
    /// The number of messages and tools of each request.
    asked: Vec<(usize, usize)>,
    progress: TurnProgress,
}

/// Runs a turn from `progress` on, with at most two iterations and 30 tokens.
async fn run(script: Vec<Response>, mut progress: TurnProgress) -> Ran {
    let (session, folder) = (SessionKey::from("s"), tempfile::tempdir().unwrap());
    let cancel = CancellationToken::new();
    let (metrics, recorder) = (TurnMetrics::default(), FlightRecorder::none());
    let (meter, flight) = (metrics.meter(), recorder.take_slot(Uuid::nil()));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let phrases = Phrases::of(Language::En);
    let model = ScriptedModel { script: Mutex::new(script.into()), asked: Mutex::default() };
    let (tools, journal) = (ScriptedTools(cancel.clone()), ScriptedJournal::default());
    let events = EventEmitter::new(Arc::new(EventHub::default()), session.clone(), Uuid::nil(), "cli", "direct");
    let image_loader = ImageLoader::open(folder.path(), &[]).unwrap();
    let turn = Turn {
        scope: TurnScope { session: &session, turn: Uuid::nil(), deadline, meter: &meter, phrases },
        system: "Be kind.".into(),
        conversation: vec![ChatMessage::user("hello").into()],
        source: ResponseSource::Model(&model),
        tools: &tools,
        tool_context: ToolContext { cancel, ..context() },
        image_loader: &image_loader,
        images: LoadedImages::default(),
        temperature: None,
        max_tokens: None,
        limits: TurnLimits { iterations: 2, tokens: 30, time: Duration::from_secs(60) },
        journal: &journal,
        approvals: &ScriptedApprovals,
        events: &events,
        flight: &flight,
    };
    let end = match turn.run(&mut progress).await {
        None => "cancelled".to_owned(),
        Some(Ok(LoopOutcome::Answered(reply))) => reply,
        Some(Ok(LoopOutcome::AwaitsTurns(turns))) => format!("awaits {}", turns.len()),
        Some(Err(error)) => error.code.as_str().to_owned(),
    };
    let steps = journal.0.lock().unwrap().clone();
    let asked = model.asked.lock().unwrap().clone();
    Ran { end, steps, asked, progress }
}

#[tokio::test]
async fn a_turn_is_a_function_of_its_model_tools_and_journal() {
    let failure = || Err(LlmError::new(LlmErrorKind::Server, "scripted", "no").into());
    type Case<'a> = (Vec<Response>, &'a str, &'a [&'a str], &'a [(usize, usize)]);
    let phrases = Phrases::of(Language::En);
    let [at_length, by_filter] = [phrases.cut_at_length, phrases.cut_by_filter].map(|cut| format!("so far\n\n{cut}"));
    let cut = |truncated, filtered| Ok(ChatResponse { truncated, filtered, ..says("so far").unwrap() });
    let table: Vec<Case<'_>> = vec![
        (vec![cut(true, false)], &at_length, &["response"], &[(1, 2)]),
        (vec![cut(false, true)], &by_filter, &["response"], &[(1, 2)]),
        (vec![says("hi")], "hi", &["response"], &[(1, 2)]),
        (vec![says("<think>hm</think>hi")], "hi", &["response"], &[(1, 2)]),
        (vec![says("")], "empty_answer", &["response"], &[(1, 2)]),
        (vec![failure()], "llm_server_error", &[], &[(1, 2)]),
        // Only a call that is not idempotent is recorded before it runs.
        (
            vec![Ok(calls(&[("view", "a"), ("send", "b")])), says("done")],
            "done",
            &["response", "tool_result", "tool_started", "tool_result", "response"],
            &[(1, 2), (4, 2)],
        ),
        // After tools that did the task, a model may have nothing more to say.
        (
            vec![Ok(calls(&[("look", "a")])), says("")],
            "Done.",
            &["response", "tool_result", "response"],
            &[(1, 2), (3, 2)],
        ),
        // A refused call is not started.
        (
            vec![Ok(calls(&[("send", "forbidden")])), says("no")],
            "no",
            &["response", "tool_result", "response"],
            &[(1, 2), (3, 2)],
        ),
        (
            vec![Ok(calls(&[("send", "stop"), ("send", "b")]))],
            "cancelled",
            &["response", "tool_started", "tool_result"],
            &[(1, 2)],
        ),
        (
            vec![Ok(calls(&[("look", "later"), ("look", "a")]))],
            "awaits 1",
            &["response", "begun", "tool_result"],
            &[(1, 2)],
        ),
    ];
    for (script, end, steps, asked) in table {
        let ran = run(script, TurnProgress::default()).await;
        assert_eq!((ran.end.as_str(), ran.steps.as_slice(), ran.asked.as_slice()), (end, steps, asked));
    }
}

#[tokio::test]
async fn a_turn_goes_on_from_its_progress_and_ends_at_its_limits() {
    // The last allowed call has no tools, and the reply says so.
    let look = || Ok(calls(&[("look", "a")]));
    let capped = run(vec![look(), look(), says("enough")], TurnProgress::default()).await;
    assert!(capped.end.starts_with("enough\n\n") && capped.end.contains('2'), "{}", capped.end);
    assert_eq!(capped.asked, [(1, 2), (3, 2), (5, 0)]);

    let mut spent = capped.progress;
    spent.answer = None;
    spent.usage = Usage { input_tokens: 30, ..Usage::default() };
    assert_eq!(run(Vec::new(), spent).await.end, "token_cap");

    // An interrupted call that may not run again gets a result without running; a final answer needs no model.
    let mut progress = TurnProgress::default();
    progress.apply(StepBody::Response { response: calls(&[("send", "a")]), active_ms: 1 });
    progress.apply(StepBody::ToolStarted { call_id: "0".to_owned(), name: "send".to_owned() });
    let resumed = run(vec![says("ok")], progress).await;
    assert_eq!((resumed.end.as_str(), resumed.steps.as_slice()), ("ok", ["tool_result", "response"].as_slice()));
    assert!(format!("{:?}", resumed.progress.messages).contains("whether it took effect is unknown"));
    let again = run(Vec::new(), resumed.progress).await;
    assert_eq!((again.end.as_str(), again.steps.len(), again.asked.len()), ("ok", 0, 0));
}

fn ids(sent: [&str; 4], settle: impl FnOnce(&mut [ToolCall])) -> [String; 4] {
    let mut calls = sent.map(|id| ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: String::new() });
    settle(&mut calls);
    calls.map(|call| call.id)
}

#[test]
fn each_id_means_one_call() {
    let before = [ChatMessage::Tool {
        call_id: "a".to_owned(),
        name: "x".to_owned(),
        content: String::new(),
        images: Vec::new(),
    }];
    let expected = ["a_2", "b", "b_2", "call"];
    let fresh = CallIds::after(before.iter());
    assert_eq!(ids(["a", "b", "b", ""], |calls| fresh.settle(calls)), expected);
    // Shown in another order than in the response, and after a discarded attempt.
    let shown = CallIds::after(before.iter());
    assert_eq!((shown.show("b"), shown.show("a")), ("b".to_owned(), "a_2".to_owned()));
    shown.restart();
    assert_eq!((shown.show("b"), shown.show("a")), ("b".to_owned(), "a_2".to_owned()));
    assert_eq!(ids(["a", "b", "b", ""], |calls| shown.settle(calls)), expected);
}
