use proptest::prelude::*;

use super::*;
use crate::llm::provider::DeltaRecorder;
use crate::sse::SseReader;

const LIMIT: usize = 10_000;

fn assemble(events: &[Value]) -> Result<ChatResponse, AttemptError> {
    noted(events).1
}

fn noted(events: &[Value]) -> (Vec<String>, Result<ChatResponse, AttemptError>) {
    let names = ToolNames::default();
    let notes = DeltaRecorder::default();
    let mut assembler = AnthropicAssembler::new(&names, LIMIT, &notes);
    let pushed = events.iter().try_for_each(|event| assembler.push(&event.to_string()));
    let result = pushed.and_then(|()| Box::new(assembler).into_response("asked"));
    (notes.0.into_inner(), result)
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"model": "claude-x", "content": [], "usage":
        {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 1}}})
}

fn begin(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn call(index: u64, id: &str, name: &str) -> Value {
    begin(index, &json!({"type": "tool_use", "id": id, "name": name, "input": {}}))
}

fn delta(index: u64, kind: &str, field: &str, piece: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}})
}

fn text(index: u64, piece: &str) -> Value {
    delta(index, "text_delta", "text", piece)
}

fn input(index: u64, piece: &str) -> Value {
    delta(index, "input_json_delta", "partial_json", piece)
}

fn end(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 55}})
}

fn last() -> Value {
    json!({"type": "message_stop"})
}

fn text_block() -> Value {
    json!({"type": "text", "text": ""})
}

/// Formats each call as `name(arguments)#id`.
fn shown(response: &ChatResponse) -> Vec<String> {
    response.tool_calls.iter().map(|call| format!("{}({})#{}", call.name, call.arguments, call.id)).collect()
}

/// The deltas of [`full`].
const FULL_DELTAS: [&str; 6] = ["(Hm, )", "(世界)", "Hel", "lo", "<read toolu_1>", "<list toolu_2>"];

/// An answer with every kind of block.
fn full() -> Vec<Value> {
    vec![
        start(),
        json!({"type": "ping"}),
        begin(0, &json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, "thinking_delta", "thinking", "Hm, "),
        delta(0, "thinking_delta", "thinking", "世界"),
        delta(0, "signature_delta", "signature", "Eq"),
        delta(0, "signature_delta", "signature", "Q="),
        end(0),
        begin(1, &json!({"type": "redacted_thinking", "data": "sealed"})),
        end(1),
        begin(2, &text_block()),
        text(2, "Hel"),
        text(2, "lo"),
        delta(2, "citations_delta", "citation", "x"),
        end(2),
        json!({"type": "a_new_event", "delta": 7}),
        begin(3, &json!({"type": "a_new_block", "text": "unasked"})),
        delta(3, "a_new_delta", "text", "unasked"),
        end(3),
        call(4, "toolu_1", "read"),
        call(5, "toolu_2", "list"),
        input(4, ""),
        input(5, ""),
        input(4, "{\"path\": \"a"),
        input(4, "b\"}"),
        end(5),
        end(4),
        stop("tool_use"),
        last(),
    ]
}

fn full_response() -> ChatResponse {
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    ChatResponse {
        text: "Hello".to_owned(),
        reasoning: Some(Reasoning {
            field: "thinking".to_owned(),
            text: "Hm, 世界".to_owned(),
            blocks: vec![
                json!({"type": "thinking", "thinking": "Hm, 世界", "signature": "EqQ="}),
                json!({"type": "redacted_thinking", "data": "sealed"}),
            ],
            provider: String::new(),
        }),
        tool_calls: vec![call("toolu_1", "read", "{\"path\": \"ab\"}"), call("toolu_2", "list", "{}")],
        model: "claude-x".to_owned(),
        usage: Usage {
            input_tokens: 240,
            output_tokens: 55,
            cached_tokens: 200,
            written_tokens: 30,
            ..Usage::default()
        },
        ..ChatResponse::default()
    }
}

#[test]
fn an_answer_with_all_that_there_is() {
    let (notes, response) = noted(&full());
    assert_eq!(response.unwrap(), full_response());
    assert_eq!(notes, FULL_DELTAS);
}

#[test]
fn a_whole_answer_is_the_same() {
    let body = json!({"type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "Hm, 世界", "signature": "EqQ="},
            {"type": "redacted_thinking", "data": "sealed"},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "ab"}},
            {"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}},
        ],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 55}});
    let names = ToolNames::default();
    let notes = DeltaRecorder::default();
    let mut assembler = AnthropicAssembler::new(&names, LIMIT, &notes);
    assembler.push(&body.to_string()).unwrap();
    assembler.set_done();
    let mut expected = full_response();
    expected.tool_calls[0].arguments = "{\"path\":\"ab\"}".to_owned();
    assert_eq!(Box::new(assembler).into_response("asked").unwrap(), expected);
    assert_eq!(notes.0.into_inner(), ["(Hm, 世界)", "Hello", "<read toolu_1>", "<list toolu_2>"]);
}

#[test]
fn reasons_to_stop_and_their_meaning() {
    let stopped_by =
        |reason: &str| assemble(&[start(), begin(0, &text_block()), text(0, "a"), end(0), stop(reason), last()]);
    for (reason, truncated) in [
        ("end_turn", false),
        ("tool_use", false),
        ("stop_sequence", false),
        ("pause_turn", false),
        ("a_new_reason", false),
        ("max_tokens", true),
        ("model_context_window_exceeded", true),
    ] {
        assert_eq!(stopped_by(reason).unwrap().truncated, truncated, "{reason}");
    }
    let refused = stopped_by("refusal").unwrap_err();
    assert_eq!((refused.kind, refused.message.as_str()), (LlmErrorKind::Refused, "the service withheld the answer"));
    let mut explained = stop("refusal");
    explained["delta"]["stop_details"] = json!({"type": "refusal", "category": "bio", "explanation": "It may harm."});
    let refused = assemble(&[start(), explained, last()]).unwrap_err();
    assert_eq!(refused.message, "the service withheld the answer: It may harm.");
}

#[test]
fn incomplete_answers_are_errors() {
    use LlmErrorKind::*;
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "No"}});
    let half = || vec![start(), begin(0, &text_block()), text(0, "half")];
    let with = |event: Value| [half(), vec![event]].concat();
    let table = [
        (vec![], Connection),
        (vec![start()], Connection),
        (half(), Connection),
        (with(end(0)), Connection),
        (vec![start(), call(0, "a", "read"), input(0, "{\"path\": \"/\"}"), end(0)], Connection),
        (vec![start(), last()], Parse),
        (vec![last()], Parse),
        (with(json!({"type": "content_block_delta", "index": 0, "delta": {"text": 7}})), Parse),
        (with(text(9, "of no block")), Parse),
        (vec![start(), call(0, "a", ""), stop("tool_use")], Parse),
        (with(text(0, &"x".repeat(LIMIT))), Parse),
        ((0..=512).map(|index| begin(index, &text_block())).collect(), Parse),
        (with(error("overloaded_error")), Server),
        (with(error("api_error")), Server),
        (with(error("rate_limit_error")), RateLimit),
        (with(error("authentication_error")), Auth),
        (with(error("billing_error")), Quota),
        (with(error("invalid_request_error")), BadRequest),
        (with(error("request_too_large")), ContextTooLong),
        (with(error("timeout_error")), Timeout),
        (vec![json!({"error": {"message": "No"}})], Server),
    ];
    for (events, kind) in table {
        assert_eq!(assemble(&events).map_err(|fault| fault.kind), Err(kind), "{:?}", events.last());
    }
    assert_eq!(assemble(&[Value::String("<html>".to_owned())]).unwrap_err().kind, Parse);
}

#[test]
fn a_call_cut_at_the_length_limit_is_dropped() {
    let whole = || vec![start(), call(0, "a", "x"), end(0)];
    for (pieces, left) in [
        (&["{\"path\": \"/"][..], &["x({})#a"][..]),
        (&[], &["x({})#a"]),
        (&["", ""], &["x({})#a"]),
        (&["{\"path\":", " 1}"], &["x({})#a", "x({\"path\": 1})#b"]),
    ] {
        let mut events = whole();
        events.push(call(1, "b", "x"));
        events.extend(pieces.iter().map(|piece| input(1, piece)));
        events.extend([end(1), stop("max_tokens"), last()]);
        let response = assemble(&events).unwrap();
        assert_eq!(shown(&response), left, "{pieces:?}");
        assert!(response.truncated);
    }
    let body = json!({"type": "message", "content": [{"type": "text", "text": "so"},
        {"type": "tool_use", "id": "a", "name": "x", "input": {"path": "/"}}], "stop_reason": "max_tokens"});
    let response = assemble(&[body]).unwrap();
    assert_eq!((response.text.as_str(), shown(&response), response.truncated), ("so", vec![], true));
}

#[test]
fn those_that_speak_nearly_the_same_are_understood() {
    // Events without indexes and ends, the input at the beginning of the block, the same id twice or no id, counts in the last
    // event.
    let tool = |id: &str| json!({"type": "content_block_start", "content_block": {"type": "tool_use", "id": id, "name": "x", "input": {"k": 1}}});
    let events = [
        json!({"type": "message_start"}),
        json!({"type": "content_block_start", "content_block": {"type": "text"}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}),
        tool("call_2"),
        tool("call_2"),
        tool(""),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"input_tokens": 7, "output_tokens": 5}}),
        json!({"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": null}}),
    ];
    let response = assemble(&events).unwrap();
    assert_eq!((response.text.as_str(), response.model.as_str()), ("Hi", "asked"));
    assert_eq!(shown(&response), ["x({\"k\":1})#call_2", "x({\"k\":1})#call_3", "x({\"k\":1})#call_4"]);
    assert_eq!(response.usage, Usage { input_tokens: 7, output_tokens: 5, ..Usage::default() });
    // Arguments that are not JSON are kept; the caller refuses them.
    let response = assemble(&[start(), call(0, "a", "x"), input(0, "{\"city\": \"Par"), stop("tool_use")]).unwrap();
    assert_eq!(shown(&response), ["x({\"city\": \"Par)#a"]);
}

#[test]
fn pings_are_no_news() {
    let names = ToolNames::default();
    let assembler = AnthropicAssembler::new(&names, LIMIT, &crate::llm::NoDeltas);
    for (piece, has_data) in [
        (r#"{"type": "ping"}"#, false),
        (r#"{"ping": 1, "type":"ping"}"#, false),
        (r#"{"type":"message_stop"}"#, true),
        (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ping"}}"#, true),
        ("ping", true),
    ] {
        assert_eq!(assembler.has_data(piece), has_data, "{piece}");
    }
}

/// Events of any kind, in any order, most of them wrong in some way.
fn any_event() -> impl Strategy<Value = Value> {
    let index = 0u64..3;
    let block = prop_oneof![
        Just(text_block()),
        Just(json!({"type": "thinking"})),
        Just(json!({"type": "tool_use", "id": "a", "name": "x"})),
        Just(json!({"type": "tool_use", "name": "y", "input": {"k": 1}})),
        Just(json!({"type": "other", "text": "t"})),
    ];
    let piece = prop_oneof![Just("{"), Just("}"), Just(""), Just("t")];
    prop_oneof![
        3 => (index.clone(), block).prop_map(|(index, block)| begin(index, &block)),
        3 => (index.clone(), piece.clone()).prop_map(|(index, piece)| input(index, piece)),
        2 => (index.clone(), piece).prop_map(|(index, piece)| text(index, piece)),
        1 => index.prop_map(end),
        1 => Just(start()),
    ]
}

proptest! {
    #[test]
    fn arbitrary_events_give_unique_ids_and_no_unfinished_calls(mut events in proptest::collection::vec(any_event(), 0..30)) {
        prop_assert!(assemble(&events).is_err());
        events.push(stop("max_tokens"));
        if let Ok(response) = assemble(&events) {
            let mut ids: Vec<_> = response.tool_calls.iter().map(|call| call.id.as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), response.tool_calls.len());
            prop_assert!(response.tool_calls.iter().all(|call| is_json_object(&call.arguments)));
        }
    }

    #[test]
    fn any_split_of_the_stream_gives_the_same_answer(cuts in proptest::collection::vec(0usize..4_000, 0..40), crlf in any::<bool>()) {
        let newline = if crlf { "\r\n" } else { "\n" };
        let stream: String = full()
            .iter()
            .map(|event| format!("event: {}{newline}data: {event}{newline}{newline}", event["type"].as_str().unwrap()))
            .collect();
        let bytes = stream.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let names = ToolNames::default();
        let notes = DeltaRecorder::default();
        let mut assembler = AnthropicAssembler::new(&names, LIMIT, &notes);
        let mut reader = SseReader::new(LIMIT);
        for pair in cuts.windows(2) {
            reader.push(&bytes[pair[0]..pair[1]]);
            while let Some(piece) = reader.next_event().unwrap() {
                assembler.push(&piece).unwrap();
            }
        }
        prop_assert!(assembler.is_done());
        prop_assert_eq!(Box::new(assembler).into_response("asked").unwrap(), full_response());
        prop_assert_eq!(notes.0.into_inner(), FULL_DELTAS);
    }
}

#[test]
fn a_negative_token_count_fails_no_answer_and_is_impossible() {
    let response = assemble(&[
        start(),
        json!({"type": "content_block_start", "content_block": {"type": "text"}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": -5}}),
    ]);
    let response = response.unwrap();
    assert_eq!((response.text.as_str(), response.usage.is_possible()), ("Hi", false));
}
