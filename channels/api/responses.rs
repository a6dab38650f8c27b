//! The answers to `POST /v1/responses`, whole and as events
//! (<https://platform.openai.com/docs/api-reference/responses>).

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::{AnswerFormat, ApiEvent};
use super::error::ApiFailure;
use super::followed_turn::TurnAnswer;
use super::gateway::TurnReport;
use super::progress::ApiDelta;

/// The prefix of response ids, before the id of the message.
const PREFIX: &str = "resp_";

/// Returns the id of the message that a response id stands for.
pub(super) fn message_of_response(id: &str) -> Option<Uuid> {
    id.strip_prefix(PREFIX)?.parse().ok()
}

/// The answer to one request, without reasoning and tool calls.
pub(super) struct ModelResponse {
    pub id: Uuid,
    pub model: String,
    pub created: Timestamp,
    pub previous: Option<Uuid>,
    sequence: u64,
}

impl ModelResponse {
    pub fn new(id: Uuid, model: String, previous: Option<Uuid>) -> Self {
        Self { id, model, created: Timestamp::now(), previous, sequence: 0 }
    }

    fn response(&self, status: &str, output: &Value, usage: Option<&TurnReport>, error: &Value) -> Value {
        let usage = usage.map(|report| {
            json!({
                "input_tokens": report.input_tokens,
                "input_tokens_details": { "cached_tokens": report.cached_tokens },
                "output_tokens": report.output_tokens,
                "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": report.input_tokens + report.output_tokens,
            })
        });
        json!({
            "id": response_id(self.id),
            "object": "response",
            "created_at": self.created.as_second(),
            "status": status,
            "error": error,
            "incomplete_details": null,
            "instructions": null,
            "metadata": {},
            "model": self.model,
            "output": output,
            "parallel_tool_calls": false,
            "previous_response_id": self.previous.map(response_id),
            "temperature": null,
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "usage": usage,
        })
    }

    fn item_id(&self) -> String {
        format!("msg_{}", self.id.simple())
    }

    fn item(&self, status: &str, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.map(part).into_iter().collect();
        json!({ "id": self.item_id(), "type": "message", "status": status, "role": "assistant", "content": content })
    }

    fn event(&mut self, name: &'static str, mut data: Value) -> ApiEvent {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        ApiEvent { name: Some(name), data: data.to_string() }
    }

    /// Returns an event about the single content part of the single output item.
    fn part_event(&mut self, name: &'static str, key: &str, value: Value) -> ApiEvent {
        let mut data = json!({ "item_id": self.item_id(), "output_index": 0, "content_index": 0 });
        data[key] = value;
        if key != "part" {
            data["logprobs"] = json!([]);
        }
        self.event(name, data)
    }
}

fn response_id(message: Uuid) -> String {
    format!("{PREFIX}{}", message.simple())
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

impl AnswerFormat for ModelResponse {
    fn whole(&self, end: &TurnAnswer, _: &str) -> Value {
        let output = json!([self.item("completed", Some(&end.text))]);
        self.response("completed", &output, Some(&end.report), &Value::Null)
    }

    fn begin(&mut self) -> Vec<ApiEvent> {
        let response = self.response("in_progress", &json!([]), None, &Value::Null);
        let item = self.item("in_progress", None);
        vec![
            self.event("response.created", json!({ "response": response })),
            self.event("response.in_progress", json!({ "response": response })),
            self.event("response.output_item.added", json!({ "output_index": 0, "item": item })),
            self.part_event("response.content_part.added", "part", part("")),
        ]
    }

    fn delta(&mut self, delta: &ApiDelta) -> Vec<ApiEvent> {
        match delta {
            ApiDelta::Reasoning(_) => Vec::new(),
            ApiDelta::Text(text) => vec![self.part_event("response.output_text.delta", "delta", json!(text))],
        }
    }

    fn end(&mut self, end: &TurnAnswer) -> Vec<ApiEvent> {
        // The deltas may contain text of a response that broke off; the reply does not.
        let text = &end.text;
        let item = self.item("completed", Some(text));
        let response = self.response("completed", &json!([item]), Some(&end.report), &Value::Null);
        vec![
            self.part_event("response.output_text.done", "text", json!(text)),
            self.part_event("response.content_part.done", "part", part(text)),
            self.event("response.output_item.done", json!({ "output_index": 0, "item": item })),
            self.event("response.completed", json!({ "response": response })),
        ]
    }

    fn failed(&mut self, failure: &ApiFailure) -> Vec<ApiEvent> {
        let body = failure.body();
        let error = json!({ "code": body["error"]["code"], "message": body["error"]["message"] });
        let response = self.response("failed", &json!([]), None, &error);
        vec![self.event("response.failed", json!({ "response": response }))]
    }
}
