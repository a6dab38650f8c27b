use std::collections::VecDeque;

use serde_json::json;

use super::*;
use crate::chat::ToolCall;
use crate::llm::Images;

/// Answers as scripted, in pieces of `size` characters, and records the requests.
struct Scripted {
    answers: Mutex<VecDeque<&'static str>>,
    size: usize,
    /// Continues for ever after its answer.
    endless: bool,
    filtered: bool,
    asked: Mutex<Vec<ChatRequest>>,
}

impl Scripted {
    fn new(answers: &[&'static str], size: usize) -> Arc<Self> {
        let answers = Mutex::new(answers.iter().copied().collect());
        Arc::new(Self { answers, size, endless: false, filtered: false, asked: Mutex::default() })
    }
}

#[async_trait]
impl Provider for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        self.asked.lock().push(request.clone());
        let text = self.answers.lock().pop_front().unwrap_or("Final Answer: done");
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(self.size.max(1)).filter(|_| self.size > 0) {
            sink.delta(Delta::Text(&piece.iter().collect::<String>()));
        }
        if self.endless {
            return std::future::pending().await;
        }
        Ok(ChatResponse { text: text.to_owned(), filtered: self.filtered, ..ChatResponse::default() })
    }
}

#[derive(Default)]
struct Seen(Mutex<String>);

impl DeltaSink for Seen {
    fn delta(&self, delta: Delta<'_>) {
        let mut seen = self.0.lock();
        match delta {
            Delta::Reasoning(text) => seen.push_str(&format!("({})", text.trim())),
            Delta::Text(text) => seen.push_str(text),
            Delta::ToolCall { name, .. } => seen.push_str(&format!("<{name}>")),
            Delta::Restart => seen.clear(),
        }
    }
}

fn request(messages: Vec<ChatMessage>) -> ChatRequest {
    let parameters = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let tool = ToolSpec { name: "read_file".to_owned(), description: "Reads.".to_owned(), parameters };
    ChatRequest {
        model: "small".to_owned(),
        system: "Be kind.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        images: Images::default(),
        tools: vec![tool].into(),
        temperature: None,
        max_tokens: None,
    }
}

#[tokio::test]
async fn text_becomes_calls_and_an_answer_however_it_is_streamed() {
    for size in [0, 1, 1_000] {
        let inner = Scripted::new(
            &[
                "<think>Action: none?</think>Thought: I read it.\nAction: read_file\nAction Input: notes.txt",
                "Thought: I know.\nFinal Answer: It says hello.\nTwice.",
            ],
            size,
        );
        let model = ReactModel(inner.clone());
        let seen = Seen::default();
        let mut asked = request(vec![ChatMessage::user("what does it say?")]);
        let first = model.chat(&asked, &seen).await.unwrap();
        let [ToolCall { id, name, arguments }] = first.tool_calls.as_slice() else { panic!("{first:?}") };
        assert_eq!(
            (first.text.as_str(), name.as_str(), arguments.as_str()),
            ("I read it.", "read_file", r#"{"path":"notes.txt"}"#)
        );
        let shown = seen.0.lock().replace(")(", "");
        assert!(shown.starts_with("(Action:") && shown.ends_with("<read_file>"), "{shown}");
        let (content, tool_calls) = (first.text.clone(), first.tool_calls.clone());
        asked.messages.push(ChatMessage::Assistant { content, reasoning: None, tool_calls }.into());
        asked.messages.push(ChatMessage::tool(id, name, "hello hello").into());

        let seen = Seen::default();
        let second = model.chat(&asked, &seen).await.unwrap();
        assert_eq!((second.text.as_str(), second.tool_calls.len()), ("It says hello.\nTwice.", 0));
        assert!(second.reasoning.is_some_and(|thought| thought.text == "I know." && thought.provider.is_empty()));
        assert!(seen.0.lock().ends_with("It says hello.\nTwice."));
        let asked = inner.asked.lock();
        assert!(asked.iter().all(|request| request.tools.is_empty() && request.system.contains("## read_file")));
        let last = asked[1].messages.last().map(Arc::as_ref);
        assert_eq!(last, Some(&ChatMessage::user("Observation: hello hello")));
    }
}

/// The template opens the think block, so that the answer contains only the closing tag.
#[tokio::test]
async fn thinking_that_the_template_opens_is_no_answer() {
    for size in [0, 3] {
        let inner = Scripted::new(&["I know it.\n</think>\n\nThought: Sure.\nFinal Answer: Hello."], size);
        let seen = Seen::default();
        let response = ReactModel(inner).chat(&request(vec![ChatMessage::user("hi")]), &seen).await.unwrap();
        assert_eq!((response.text.as_str(), seen.0.lock().as_str()), ("Hello.", "(Sure.)Hello."));
    }
}

#[tokio::test]
async fn a_made_up_observation_ends_the_request_at_once() {
    let text = "Action: read_file\nAction Input: a\nObservation: surely this";
    let inner = Arc::new(Scripted { endless: true, ..Arc::into_inner(Scripted::new(&[text], 3)).unwrap() });
    let seen = Seen::default();
    let response = ReactModel(inner).chat(&request(vec![ChatMessage::user("read")]), &seen).await.unwrap();
    assert_eq!((response.tool_calls.len(), response.model.as_str()), (1, "small"));
    assert_eq!(*seen.0.lock(), "<read_file>");
}

#[tokio::test]
async fn an_answer_cut_by_the_content_filter_runs_no_calls() {
    let mut inner = Scripted::new(&["Thought: I read it.\nAction: read_file\nAction Input: notes.txt"], 0);
    Arc::get_mut(&mut inner).unwrap().filtered = true;
    let response = ReactModel(inner).chat(&request(vec![ChatMessage::user("read")]), &Seen::default()).await.unwrap();
    assert!(response.filtered && response.tool_calls.is_empty(), "{response:?}");
}

#[tokio::test]
async fn the_last_call_asks_for_the_answer() {
    let inner = Scripted::new(&["Final Answer: all I know"], 4);
    let call = ToolCall { id: "1".to_owned(), name: "read_file".to_owned(), arguments: "{}".to_owned() };
    let mut asked = request(vec![
        ChatMessage::user("read"),
        ChatMessage::Assistant { content: String::new(), reasoning: None, tool_calls: vec![call] },
        ChatMessage::Tool {
            call_id: "1".to_owned(),
            name: "read_file".to_owned(),
            content: "hello".to_owned(),
            images: Vec::new(),
        },
    ]);
    asked.tools = Arc::default();
    let response = ReactModel(inner.clone()).chat(&asked, &Seen::default()).await.unwrap();
    assert_eq!(response.text, "all I know");
    let asked = inner.asked.lock();
    assert_eq!(
        asked[0].messages.last().map(Arc::as_ref),
        Some(&ChatMessage::user(format!("Observation: hello\n\n{FINAL_ANSWER_NOTE}")))
    );
    assert_eq!(&*asked[0].system, "Be kind.");
}
