use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::llm::NoDeltas;
use crate::llm::provider::DeltaRecorder;

const LIMIT: usize = 10_000;

fn assemble(pieces: &[String]) -> Result<ChatResponse, AttemptError> {
    let names = ToolNames::default();
    let mut assembler = OpenaiAssembler::new(&names, LIMIT, &NoDeltas);
    for piece in pieces {
        assembler.push(piece)?;
    }
    Box::new(assembler).into_response("asked")
}

fn delta(delta: &Value) -> String {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }).to_string()
}

fn calls(list: &Value) -> String {
    delta(&json!({ "tool_calls": list }))
}

fn finish(reason: &str) -> String {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }).to_string()
}

fn done() -> String {
    "[DONE]".to_owned()
}

/// Formats each call as `name(arguments)#id`.
fn shown(response: &ChatResponse) -> Vec<String> {
    response.tool_calls.iter().map(|call| format!("{}({})#{}", call.name, call.arguments, call.id)).collect()
}

#[test]
fn text_reasoning_model_and_usage_come_together() {
    let pieces = [
        json!({"model": "m-1", "choices": []}).to_string(),
        delta(&json!({"role": "assistant", "content": null, "reasoning": "hm "})),
        delta(&json!({"reasoning": "yes", "reasoning_content": "twice"})),
        delta(&json!({"content": "Hel"})),
        json!({"choices": [{"delta": {"content": "lo"}}], "usage": {}}).to_string(),
        json!({"choices": [{"index": 1, "delta": {"content": "another"}}]}).to_string(),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2,
               "prompt_tokens_details": {"cached_tokens": 4}}})
        .to_string(),
        json!({"choices": [], "usage": null}).to_string(),
        done(),
    ];
    let response = assemble(&pieces).unwrap();
    assert_eq!(
        response,
        ChatResponse {
            text: "Hello".to_owned(),
            reasoning: Some(Reasoning {
                field: "reasoning".to_owned(),
                text: "hm yes".to_owned(),
                ..Reasoning::default()
            }),
            model: "m-1".to_owned(),
            usage: Usage { input_tokens: 10, output_tokens: 2, cached_tokens: 4, ..Usage::default() },
            ..ChatResponse::default()
        }
    );
}

/// The form of calls from some service: the case, its pieces, the calls.
type CallForm = (&'static str, Vec<String>, &'static [&'static str]);

fn f(name: &str, arguments: &str) -> Value {
    json!({"name": name, "arguments": arguments})
}

fn check_forms(table: Vec<CallForm>) {
    for (case, mut pieces, expected) in table {
        pieces.extend([finish("tool_calls"), done()]);
        assert_eq!(shown(&assemble(&pieces).unwrap()), expected, "{case}");
    }
}

#[test]
fn calls_are_gathered_in_each_form() {
    check_forms(vec![
        (
            "interleaved by index",
            vec![
                calls(&json!([{"index": 0, "id": "a", "function": f("x", "")}])),
                calls(&json!([{"index": 1, "id": "b", "function": f("y", "")}])),
                calls(
                    &json!([{"index": 0, "function": {"arguments": "{\"n\""}}, {"index": 1, "function": {"arguments": "{"}}]),
                ),
                calls(
                    &json!([{"index": 0, "id": "", "function": f("", ":1}")}, {"index": 1, "id": null, "function": f("", "}")}]),
                ),
            ],
            &["x({\"n\":1})#a", "y({})#b"],
        ),
        (
            "id and name in each piece",
            vec![
                calls(&json!([{"index": 0, "id": "a", "function": f("x", "{")}])),
                calls(&json!([{"index": 0, "id": "a", "function": f("x", "}")}])),
            ],
            &["x({})#a"],
        ),
        (
            "no index, by id",
            vec![
                calls(&json!([{"id": "a", "function": f("x", "{}")}, {"id": "b", "function": f("x", "{\"k\":")}])),
                calls(&json!([{"function": {"arguments": "2}"}}])),
            ],
            &["x({})#a", "x({\"k\":2})#b"],
        ),
        (
            "neither index nor id",
            vec![calls(&json!([{"function": f("x", "{}")}])), calls(&json!([{"function": f("x", "{}")}]))],
            &["x({})#call_1", "x({})#call_2"],
        ),
    ]);
}

#[test]
fn calls_are_separated_where_index_and_id_do_not_help() {
    check_forms(vec![
        (
            "the same index for all",
            vec![
                calls(&json!([{"index": 0, "id": "a", "function": f("x", "{}")}])),
                calls(&json!([{"index": 0, "id": "b", "function": f("x", "{}")}])),
                calls(&json!([{"index": 0, "id": "", "function": f("y", "{}")}])),
            ],
            &["x({})#a", "x({})#b", "y({})#call_3"],
        ),
        (
            "the same id twice, and one that is ours",
            vec![calls(&json!([
                {"index": 0, "id": "call_2", "function": f("x", "{}")},
                {"index": 1, "id": "call_2", "function": f("y", "{}")},
            ]))],
            &["x({})#call_2", "y({})#call_3"],
        ),
        (
            "a name repeated after the end",
            vec![
                calls(&json!([{"index": 0, "id": "a", "function": f("x", "{}")}])),
                calls(&json!([{"index": 0, "id": "a", "function": f("x", "")}])),
            ],
            &["x({})#a"],
        ),
        (
            "arguments as an object, or none",
            vec![calls(&json!([
                {"index": 0, "id": "a", "function": {"name": "x", "arguments": {"k": [1]}}},
                {"index": 1, "id": "b", "function": {"name": "y", "arguments": null}},
            ]))],
            &["x({\"k\":[1]})#a", "y({})#b"],
        ),
        (
            "arguments that are not JSON are the caller's to refuse",
            vec![calls(&json!([{"index": 0, "id": "a", "function": f("x", "{\"city\": \"Par")}]))],
            &["x({\"city\": \"Par)#a"],
        ),
    ]);
}

#[test]
fn incomplete_answers_are_errors() {
    use LlmErrorKind::*;
    let text = || delta(&json!({"content": "half"}));
    let call = || calls(&json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"path\": \"/"}}]));
    let nameless = || calls(&json!([{"index": 0, "id": "a", "function": {"arguments": "{}"}}]));
    let table = [
        (vec![], Connection),
        (vec![text()], Connection),
        (vec![text(), call()], Connection),
        (vec![done()], Parse),
        (vec![nameless(), finish("stop")], Parse),
        (vec![text(), "{\"choices\":".to_owned()], Parse),
        (vec![text(), "<html>".to_owned()], Parse),
        (vec![text(), json!({"error": {"message": "overloaded", "code": 503}}).to_string()], Server),
        (vec![text(), json!({"object": "error", "message": "too long", "code": 400}).to_string()], BadRequest),
        (vec![text(), finish("network_error")], Server),
        (vec![finish("content_filter")], Refused),
        (vec![call(), finish("content_filter")], Refused),
        (vec![delta(&json!({"content": "x".repeat(LIMIT + 1)})), finish("stop")], Parse),
        (vec![calls(&Value::Array((0..=CALLS_LIMIT).map(|n| json!({"index": n})).collect()))], Parse),
    ];
    for (pieces, kind) in table {
        assert_eq!(assemble(&pieces).map_err(|fault| fault.kind), Err(kind), "{:?}", pieces.last());
    }
}

#[test]
fn a_call_cut_at_the_length_limit_is_dropped() {
    let pieces = [
        calls(&json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}])),
        calls(&json!([{"index": 1, "id": "b", "function": {"name": "x", "arguments": "{\"path\": \"/"}}])),
        finish("length"),
    ];
    let response = assemble(&pieces).unwrap();
    assert_eq!((shown(&response), response.truncated), (vec!["x({})#a".to_owned()], true));
}

#[test]
fn an_answer_cut_by_the_content_filter_keeps_its_text_and_no_calls() {
    let call = || calls(&json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]));
    for reason in ["content_filter", "sensitive"] {
        let response = assemble(&[delta(&json!({"content": "so far"})), call(), finish(reason)]).unwrap();
        assert_eq!((response.text.as_str(), shown(&response), response.filtered), ("so far", vec![], true), "{reason}");
    }
    assert!(!assemble(&[delta(&json!({"content": "all"})), finish("stop")]).unwrap().filtered);
}

#[test]
fn either_end_is_enough() {
    let text = || delta(&json!({"content": "all"}));
    for pieces in [vec![text(), done()], vec![text(), finish("stop")]] {
        let response = assemble(&pieces).unwrap();
        assert_eq!((response.text.as_str(), response.model.as_str()), ("all", "asked"));
    }
}

#[test]
fn a_whole_answer_goes_the_same_way_and_the_sink_hears_it() {
    let body = json!({"model": "m", "choices": [{"message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}],
        "reasoning_content": "hm", "tool_calls": [{"id": "a", "function": {"name": "x", "arguments": "{}"}},
                       {"id": "a", "function": {"name": "x", "arguments": ""}}]},
        "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_cache_hit_tokens": 1}});
    let names = ToolNames::default();
    let notes = DeltaRecorder::default();
    let mut assembler = OpenaiAssembler::new(&names, LIMIT, &notes);
    assembler.push(&body.to_string()).unwrap();
    assembler.set_done();
    let response = Box::new(assembler).into_response("asked").unwrap();
    assert_eq!(
        (response.text.as_str(), shown(&response)),
        ("Hi", vec!["x({})#a".to_owned(), "x({})#call_2".to_owned()])
    );
    assert_eq!(response.usage, Usage { input_tokens: 1, output_tokens: 2, cached_tokens: 1, ..Usage::default() });
    assert_eq!(notes.0.into_inner(), ["(hm)", "Hi", "<x a>", "<x call_2>"]);
}

/// Deltas of any kind, in any order, most of them wrong in some way.
fn any_piece() -> impl Strategy<Value = String> {
    let index = prop_oneof![Just(Value::Null), (0u64..3).prop_map(Value::from), Just(json!(-1))];
    let id = prop_oneof![Just(Value::Null), Just(json!("")), Just(json!("a")), Just(json!("call_1"))];
    let name = prop_oneof![Just(Value::Null), Just(json!("")), Just(json!("x")), Just(json!("y"))];
    let arguments = prop_oneof![Just(Value::Null), Just(json!("{")), Just(json!("}")), Just(json!({"k": 1}))];
    let call = (index, id, name, arguments).prop_map(|(index, id, name, arguments)| {
        calls(&json!([{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]))
    });
    prop_oneof![
        6 => call,
        2 => Just(delta(&json!({"content": "t", "reasoning": "r"}))),
        1 => Just(json!({"choices": [], "usage": {"prompt_tokens": 1}}).to_string()),
        1 => "\\PC{0,20}",
    ]
}

proptest! {
    #[test]
    fn arbitrary_events_give_unique_ids_and_no_unfinished_calls(pieces in proptest::collection::vec(any_piece(), 0..30)) {
        let unfinished = assemble(&pieces);
        prop_assert!(unfinished.is_err());
        let mut pieces = pieces;
        pieces.push(finish("tool_calls"));
        if let Ok(response) = assemble(&pieces) {
            let mut ids: Vec<_> = response.tool_calls.iter().map(|call| call.id.as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), response.tool_calls.len());
            prop_assert!(response.tool_calls.iter().all(|call| !call.id.is_empty() && !call.name.is_empty()));
        }
    }

    #[test]
    fn text_and_arguments_survive_any_cutting(text in "\\PC{0,40}", key in "\\PC{0,20}", cuts in 1usize..7) {
        let arguments = json!({"k": key}).to_string();
        let cut = |whole: &str| -> Vec<String> {
            let chars: Vec<char> = whole.chars().collect();
            chars.chunks(cuts).map(|piece| piece.iter().collect()).collect()
        };
        let mut pieces: Vec<String> = cut(&text).iter().map(|piece| delta(&json!({"content": piece}))).collect();
        pieces.push(calls(&json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": ""}}])));
        pieces.extend(cut(&arguments).iter().map(|piece| calls(&json!([{"index": 0, "function": {"arguments": piece}}]))));
        pieces.push(finish("tool_calls"));
        let response = assemble(&pieces).unwrap();
        prop_assert_eq!(&response.text, &text);
        prop_assert_eq!(&response.tool_calls[0].arguments, &arguments);
    }
}

#[test]
fn the_one_call_of_an_old_server_is_a_call() {
    let piece = |call: &Value| delta(&json!({ "function_call": call }));
    let whole = json!({"choices": [{"message": {"content": null, "function_call": f("x", "{}")}, "finish_reason": "function_call"}]});
    for (pieces, expected) in [
        (
            vec![
                piece(&json!({"name": "x"})),
                piece(&json!({"arguments": "{\"n\""})),
                piece(&json!({"arguments": ":1}"})),
            ],
            "x({\"n\":1})#call_1",
        ),
        (vec![piece(&f("x", "{")), piece(&f("x", "}"))], "x({})#call_1"),
        (vec![whole.to_string()], "x({})#call_1"),
    ] {
        let pieces = [pieces, vec![finish("function_call"), done()]].concat();
        assert_eq!(shown(&assemble(&pieces).unwrap()), [expected]);
    }
    let null = [piece(&Value::Null), piece(&json!({"name": "", "arguments": ""})), finish("stop")];
    assert_eq!(shown(&assemble(&null).unwrap()), Vec::<String>::new());
}

#[test]
fn blocks_of_reasoning_are_kept_unchanged() {
    let details = |list: &Value| delta(&json!({ "reasoning_details": list }));
    let text = |text: &str| json!({"type": "reasoning.text", "index": 0, "text": text, "signature": null});
    let sealed = json!({"type": "reasoning.encrypted", "index": 1, "data": "abc", "id": "r1"});
    let pieces = [
        details(&json!([text("I ")])),
        details(&json!([text("think")])),
        details(&json!([{"type": "reasoning.text", "index": 0, "signature": "sig"}])),
        details(&json!([sealed])),
        details(&json!([sealed])),
        finish("stop"),
    ];
    let reasoning = assemble(&pieces).unwrap().reasoning.unwrap();
    assert_eq!((reasoning.field.as_str(), reasoning.text.as_str()), ("reasoning_details", "I think"));
    let whole = json!({"type": "reasoning.text", "index": 0, "text": "I think", "signature": "sig"});
    assert_eq!(reasoning.blocks, [whole, sealed.clone(), sealed]);
    // Reasoning that a text field repeats is kept once.
    let both = delta(&json!({"reasoning": "hm", "reasoning_details": [text("hm")]}));
    let reasoning = assemble(&[both, finish("stop")]).unwrap().reasoning.unwrap();
    assert_eq!(
        (reasoning.field.as_str(), reasoning.text.as_str(), reasoning.blocks),
        ("reasoning", "hm", vec![text("hm")])
    );
}

#[test]
fn the_signature_of_a_call_is_kept_by_its_index() {
    let signature = json!({"google": {"thought_signature": "s"}});
    let signed = json!({"index": 0, "id": "b", "function": f("y", "{}"), "extra_content": signature});
    let pieces =
        [calls(&json!([{"index": 0, "id": "a", "function": f("x", "{}")}])), calls(&json!([signed])), finish("stop")];
    let response = assemble(&pieces).unwrap();
    assert_eq!(shown(&response), ["x({})#a", "y({})#b"]);
    assert_eq!(response.reasoning.unwrap().blocks, [json!({"call": 1, "extra_content": signature})]);
}
