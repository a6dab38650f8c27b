//! The trace of a turn, built from its journal, with the names of the semantic conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-agent-spans/>). No span contains the text of a message, of a tool's
//! arguments or of a tool's result.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::client::{number, scope, text};
use crate::bus::TurnEndNotice;
use crate::llm::ChatResponse;
use crate::store::turn_steps::TurnStepRow;
use crate::store::{Connection, StoreError, inbox, spawns, turn_steps};
use crate::text::truncate;
use crate::turn::progress::StepBody;

/// The maximum number of ancestors of a sub-agent that are followed.
const MAX_DEPTH: usize = 16;
/// The longest name of a tool, and the longest id of a call, in characters: a model chooses both.
const MAX_NAME: usize = 64;
/// The name of the agent that answers if no other is chosen.
const DEFAULT_AGENT: &str = "assistant";

/// Returns a request with these spans.
pub(super) fn request(spans: Vec<Span>, resource: Resource) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
    let resource = Some(resource);
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
    }
}

/// Returns the spans of an ended turn: one for the whole turn, and within it one for each model response and each tool call. The id
/// of the trace is that of the turn; sub-agents belong to the trace of the turn that started them.
///
/// # Errors
/// The store cannot be read.
pub(super) fn spans_of_turn(connection: &Connection, ended: &TurnEndNotice) -> Result<Vec<Span>, StoreError> {
    let turn = ended.turn;
    let rows = inbox::of_turn(connection, turn)?;
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (trace, parent) = place(connection, turn)?;
    let steps: Vec<(TurnStepRow, StepBody)> = turn_steps::of_turn(connection, turn)?
        .into_iter()
        .filter_map(|row| serde_json::from_str(&row.body).ok().map(|body| (row, body)))
        .collect();
    let mut whole = TraceTotals::default();
    let mut spans: Vec<Span> = steps.iter().filter_map(|(row, body)| whole.span(turn, row, body)).collect();
    let agent = whole.agent.as_deref().unwrap_or(DEFAULT_AGENT).to_owned();
    let mut attributes = vec![
        text("gen_ai.operation.name", "invoke_agent"),
        text("gen_ai.agent.name", agent.as_str()),
        text("gen_ai.conversation.id", first.session.as_str()),
        text("daoyou.turn", turn.to_string()),
        text("daoyou.channel", first.channel.as_str()),
        number("gen_ai.usage.input_tokens", whole.input),
        number("gen_ai.usage.output_tokens", whole.output),
    ];
    attributes.extend(ended.error.map(|code| text("error.type", code)));
    let root = Span {
        span_id: span_id(turn),
        name: format!("invoke_agent {agent}"),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanos(first.received_at),
        end_time_unix_nano: nanos(ended.at.max(first.received_at)),
        attributes,
        status: status(ended.error.is_some()),
        ..Span::default()
    };
    for span in &mut spans {
        span.parent_span_id.clone_from(&root.span_id);
    }
    spans.insert(0, Span { parent_span_id: parent.map(span_id).unwrap_or_default(), ..root });
    for span in &mut spans {
        span.trace_id = trace.as_bytes().to_vec();
    }
    Ok(spans)
}

/// Returns the turn at the root of the trace, and the turn that started this one.
fn place(connection: &Connection, turn: Uuid) -> Result<(Uuid, Option<Uuid>), StoreError> {
    let started_by = |turn: Uuid| -> Result<Option<Uuid>, StoreError> {
        Ok(spawns::find(connection, turn)?.and_then(|spawn| spawn.turn.parse().ok()))
    };
    let parent = started_by(turn)?;
    let mut root = parent.unwrap_or(turn);
    for _ in 0..MAX_DEPTH {
        match started_by(root)? {
            Some(above) => root = above,
            None => break,
        }
    }
    Ok((root, parent))
}

/// Totals of all spans, which the root span contains.
#[derive(Default)]
struct TraceTotals {
    agent: Option<String>,
    input: u64,
    output: u64,
}

impl TraceTotals {
    /// Counts a step, and returns its span if it has one.
    fn span(&mut self, turn: Uuid, row: &TurnStepRow, body: &StepBody) -> Option<Span> {
        let (name, kind, took_ms, attributes, has_failed) = match body {
            StepBody::Context(context) => {
                self.agent.clone_from(&context.agent);
                return None;
            }
            StepBody::Response { response, .. } => {
                self.input += response.usage.input_tokens;
                self.output += response.usage.output_tokens;
                let name = format!("chat {}", response.model);
                (name, SpanKind::Client, response.latency_ms, of_response(response), false)
            }
            StepBody::ToolResult { call_id, name, result, .. } => {
                let mut attributes = vec![
                    text("gen_ai.operation.name", "execute_tool"),
                    // A model may call a tool that does not exist.
                    text("gen_ai.tool.name", truncate(name, MAX_NAME)),
                    text("gen_ai.tool.call.id", truncate(call_id, MAX_NAME)),
                ];
                attributes.extend((!result.success).then(|| text("error.type", "tool_error")));
                (
                    format!("execute_tool {}", truncate(name, MAX_NAME)),
                    SpanKind::Internal,
                    result.duration_ms,
                    attributes,
                    !result.success,
                )
            }
            StepBody::ToolStarted { .. } | StepBody::Note { .. } | StepBody::Waiting { .. } | StepBody::Retried => {
                return None;
            }
        };
        let took = i64::try_from(took_ms).unwrap_or(i64::MAX);
        Some(Span {
            span_id: Sha256::digest(format!("{turn}:{}", row.seq))[..8].to_vec(),
            name,
            kind: kind.into(),
            // A step is written when it ends.
            start_time_unix_nano: nanos(row.at.saturating_sub(took)),
            end_time_unix_nano: nanos(row.at),
            attributes,
            status: status(has_failed),
            ..Span::default()
        })
    }
}

fn of_response(response: &ChatResponse) -> Vec<KeyValue> {
    let (provider, model) = response.answered_by.split_once('/').unwrap_or(("", &response.answered_by));
    let mut attributes = vec![
        text("gen_ai.operation.name", "chat"),
        text("gen_ai.provider.name", provider),
        text("gen_ai.request.model", model),
        text("gen_ai.response.model", response.model.as_str()),
        number("gen_ai.usage.input_tokens", response.usage.input_tokens),
        number("gen_ai.usage.output_tokens", response.usage.output_tokens),
        number("gen_ai.usage.cache_read.input_tokens", response.usage.cached_tokens),
    ];
    attributes.extend(response.cost.as_ref().map(|cost| text("daoyou.cost", cost.to_string())));
    attributes
}

/// Returns the id of the span of a whole turn: the random part of the turn's id.
fn span_id(turn: Uuid) -> Vec<u8> {
    turn.as_bytes()[8..].to_vec()
}

fn status(has_failed: bool) -> Option<Status> {
    has_failed.then(|| Status { code: StatusCode::Error.into(), ..Status::default() })
}

fn nanos(at_ms: i64) -> u64 {
    u64::try_from(at_ms).unwrap_or(0).saturating_mul(1_000_000)
}
