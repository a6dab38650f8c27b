//! OpenTelemetry: a collector gets each turn as one trace, even across a crash, and the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::json;
use uuid::Uuid;

use crate::support::gateway::Message;
use crate::support::{Gateway, Model, Reply, Setup, until};

/// A collector that refuses the first requests of each kind.
#[derive(Default)]
struct Collector {
    refusals: Mutex<BTreeMap<String, u16>>,
    bodies: Mutex<Vec<(String, Bytes)>>,
}

impl Collector {
    async fn start(refusals: &[(&str, u16)]) -> (Arc<Self>, String) {
        let collector = Arc::new(Self::default());
        let refusals = refusals.iter().map(|(kind, count)| ((*kind).to_owned(), *count));
        collector.refusals.lock().extend(refusals);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().route("/otlp/v1/{kind}", post(take)).with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (collector, format!("{address}/otlp/"))
    }

    fn bodies(&self, kind: &str) -> Vec<Bytes> {
        self.bodies.lock().iter().filter(|(of, _)| of == kind).map(|(_, body)| body.clone()).collect()
    }

    /// Returns the spans of all requests, and asserts the gateway's service name.
    fn spans(&self) -> Vec<Span> {
        let requests = self.bodies("traces").into_iter().map(|body| ExportTraceServiceRequest::decode(body).unwrap());
        let resources = requests.flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| {
            assert_eq!(value(&resource.resource.unwrap().attributes, "service.name"), "home gateway");
            resource.scope_spans
        });
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

async fn take(
    State(collector): State<Arc<Collector>>,
    Path(kind): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    if headers.get("x-api-key").is_none_or(|key| key != "canary-collector-key") {
        return StatusCode::UNAUTHORIZED;
    }
    if let Some(left) = collector.refusals.lock().get_mut(&kind).filter(|left| **left > 0) {
        *left -= 1;
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    collector.bodies.lock().push((kind, body));
    StatusCode::OK
}

fn value(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|attribute| attribute.key == key).and_then(|found| found.value.clone()?.value);
    match value {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn setup(model: &Model, endpoint: &str) -> Setup {
    let setup = Setup::scripted(model).set("otel.endpoint", endpoint);
    let setup = setup.set("otel.headers.x-api-key", "env:COLLECTOR_KEY").env("COLLECTOR_KEY", "canary-collector-key");
    setup.set("otel.service_name", "home gateway").set("otel.interval", "1s")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_one_trace_even_after_a_kill() {
    let model = Model::start().await;
    let (collector, endpoint) = Collector::start(&[("traces", 1)]).await;
    let task = json!({"task": "count the sheep", "label": "sheep", "wait": true});
    let steps = [
        Reply::tool("write_file", &json!({"path": "canary-path.txt", "content": "x"})).usage(100, 7),
        Reply::tool("read_file", &json!({"path": "no-such-file"})).usage(200, 8),
        Reply::tool("spawn", &task).usage(300, 9),
        Reply::text("canary-reply").usage(400, 10),
    ];
    model.on("canary-question", steps);
    model.on("count the sheep", [Reply::text("42")]);
    let mut gateway = Gateway::new(setup(&model, &endpoint));
    gateway.crash_at("tool_result_committed=write_file").up().await;
    let id = gateway.accept("in", &Message::new("canary-question").chat("c")).await;
    gateway.wait_crash().await;
    gateway.recover().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "canary-reply");
    let spans = until("the traces of both turns", async || {
        let spans = collector.spans();
        (spans.iter().filter(|span| span.name.starts_with("invoke_agent")).count() == 2).then_some(spans)
    })
    .await;
    let trace = id.parse::<Uuid>().unwrap().as_bytes().to_vec();
    assert!(spans.iter().all(|span| span.trace_id == trace && span.end_time_unix_nano >= span.start_time_unix_nano));
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), spans.len());
    let (roots, parts): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.name.starts_with("invoke_agent"));
    let whole = roots.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    let inner = roots.iter().find(|span| !span.parent_span_id.is_empty()).unwrap();
    assert_eq!(inner.parent_span_id, whole.span_id);
    let about = |span: &Span, keys: &[&str]| keys.iter().map(|key| value(&span.attributes, key)).collect::<Vec<_>>();
    let keys = ["gen_ai.agent.name", "gen_ai.conversation.id", "daoyou.channel", "gen_ai.usage.input_tokens"];
    assert_eq!(about(whole, &keys), ["assistant", "webhook:in:c", "webhook:in", "1000"]);
    let mut own: Vec<_> = parts.iter().filter(|span| span.parent_span_id == whole.span_id).collect();
    own.sort_by_key(|span| span.end_time_unix_nano);
    let names: Vec<_> = own.iter().map(|span| span.name.split(' ').next().unwrap()).collect();
    let pair = ["chat", "execute_tool"];
    assert_eq!(names, [pair, pair, pair].concat().into_iter().chain(["chat"]).collect::<Vec<_>>());
    let failed: Vec<_> = own.iter().filter(|span| span.status.is_some()).map(|span| span.name.as_str()).collect();
    assert_eq!(failed, ["execute_tool read_file"]);
    assert_eq!(about(own[0], &["gen_ai.usage.output_tokens", "gen_ai.operation.name"]), ["7", "chat"]);
    for body in collector.bodies("traces") {
        let exported = String::from_utf8_lossy(&body);
        for text in ["canary-question", "canary-reply", "canary-path"] {
            assert!(!exported.contains(text), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_sent_and_the_last_ones_at_the_end() {
    let model = Model::start().await;
    let (collector, endpoint) = Collector::start(&[]).await;
    let mut gateway = Gateway::start(setup(&model, &endpoint).set("otel.interval", "1h")).await;
    gateway.ask("in", "c", "hello").await;
    gateway.stop().await;
    let bodies = collector.bodies("metrics");
    let [body] = bodies.as_slice() else { panic!("{} requests", bodies.len()) };
    let request = ExportMetricsServiceRequest::decode(body.clone()).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let turns = metrics.iter().find(|metric| metric.name == "daoyou_turns").unwrap();
    let Some(Data::Sum(sum)) = &turns.data else { panic!("{turns:?}") };
    let done = sum.data_points.iter().find(|point| value(&point.attributes, "outcome") == "done").unwrap();
    assert_eq!(format!("{:?}", done.value), "Some(AsDouble(1.0))");
    assert!(done.start_time_unix_nano > 0 && done.time_unix_nano > done.start_time_unix_nano);
    assert_eq!(collector.spans().len(), 2, "the trace of the last turn goes before the end");
    assert!(!gateway.logs().contains("canary-collector-key"));
}

/// If a collector is unreachable or refuses, only traces are lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_collector_affects_no_turn() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(setup(&model, "http://127.0.0.1:9")).await;
    for chat in ["a", "b"] {
        assert_eq!(gateway.ask("in", chat, "hello").await, "echo: hello");
    }
    gateway.stop().await;
    assert!(gateway.logs().contains("127.0.0.1:9/v1/metrics cannot be reached"), "{}", gateway.logs());
}
