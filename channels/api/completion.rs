//! The answers to `POST /v1/chat/completions`, whole and as chunks of a stream.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::{AnswerFormat, ApiEvent};
use super::error::ApiFailure;
use super::followed_turn::TurnAnswer;
use super::gateway::TurnReport;
use super::progress::ApiDelta;

/// The answer to one request.
pub(super) struct ChatCompletion {
    pub id: Uuid,
    pub model: String,
    pub created: Timestamp,
    /// The client wants the token usage at the end of the stream.
    pub wants_usage: bool,
}

impl ChatCompletion {
    fn envelope(&self, object: &str, choices: &Value) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.id.simple()),
            "object": object,
            "created": self.created.as_second(),
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> ApiEvent {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.event(&json!([choice]), None)
    }

    fn event(&self, choices: &Value, usage: Option<&TurnReport>) -> ApiEvent {
        let mut chunk = self.envelope("chat.completion.chunk", choices);
        if self.wants_usage {
            chunk["usage"] = usage.map_or(Value::Null, usage_of);
        }
        ApiEvent { name: None, data: chunk.to_string() }
    }
}

fn usage_of(report: &TurnReport) -> Value {
    json!({
        "prompt_tokens": report.input_tokens,
        "completion_tokens": report.output_tokens,
        "total_tokens": report.input_tokens + report.output_tokens,
        "prompt_tokens_details": { "cached_tokens": report.cached_tokens },
    })
}

impl AnswerFormat for ChatCompletion {
    fn whole(&self, end: &TurnAnswer, reasoning: &str) -> Value {
        let mut message = json!({ "role": "assistant", "content": end.text, "refusal": null });
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": "stop" });
        let mut answer = self.envelope("chat.completion", &json!([choice]));
        answer["usage"] = usage_of(&end.report);
        answer
    }

    fn begin(&mut self) -> Vec<ApiEvent> {
        vec![self.chunk(&json!({ "role": "assistant", "content": "" }), None)]
    }

    fn delta(&mut self, delta: &ApiDelta) -> Vec<ApiEvent> {
        vec![match delta {
            ApiDelta::Text(text) => self.chunk(&json!({ "content": text }), None),
            ApiDelta::Reasoning(text) => self.chunk(&json!({ "reasoning_content": text }), None),
        }]
    }

    fn end(&mut self, end: &TurnAnswer) -> Vec<ApiEvent> {
        let mut events = vec![self.chunk(&json!({}), Some("stop"))];
        if self.wants_usage {
            events.push(self.event(&json!([]), Some(&end.report)));
        }
        events.push(ApiEvent { name: None, data: "[DONE]".to_owned() });
        events
    }

    fn failed(&mut self, failure: &ApiFailure) -> Vec<ApiEvent> {
        vec![
            ApiEvent { name: None, data: failure.body().to_string() },
            ApiEvent { name: None, data: "[DONE]".to_owned() },
        ]
    }
}
