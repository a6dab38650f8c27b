use super::*;

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "exec".to_owned(), arguments: "{}".to_owned() }
}

fn response(calls: &[&str]) -> StepBody {
    let tool_calls = calls.iter().map(|id| call(id)).collect();
    StepBody::Response { response: ChatResponse { tool_calls, ..ChatResponse::default() }, active_ms: 5 }
}

fn result(id: &str) -> StepBody {
    let result = ToolResult::ok("fine");
    StepBody::ToolResult { call_id: id.to_owned(), name: "exec".to_owned(), result, active_ms: 9 }
}

fn started(id: &str) -> StepBody {
    StepBody::ToolStarted { call_id: id.to_owned(), name: "exec".to_owned() }
}

fn rows(bodies: &[StepBody]) -> Vec<TurnStepRow> {
    let mut before = String::new();
    (0..)
        .zip(bodies)
        .map(|(seq, body)| {
            let text = serde_json::to_string(body).unwrap();
            before = turn_steps::chain_hash(&before, &text);
            TurnStepRow {
                seq,
                kind: body.kind().to_owned(),
                version: turn_steps::VERSION,
                body: text,
                hash: before.clone(),
                at: 0,
            }
        })
        .collect()
}

fn open(progress: &TurnProgress) -> Vec<(&str, bool)> {
    progress.open_calls.iter().map(|open| (open.call.id.as_str(), open.interrupted)).collect()
}

#[test]
fn a_journal_yields_the_open_calls() {
    type Row<'a> = (&'a [StepBody], &'a [(&'a str, bool)], usize);
    let table: &[Row<'_>] = &[
        (&[], &[], 0),
        (&[response(&["a", "b"])], &[("a", false), ("b", false)], 1),
        (&[response(&["a", "b"]), started("a")], &[("a", true), ("b", false)], 1),
        (&[response(&["a", "b"]), started("b"), result("b")], &[("a", false)], 2),
        (&[response(&["a"]), result("a"), response(&[])], &[], 2),
    ];
    for (steps, calls, messages) in table {
        let progress = TurnProgress::read(&rows(steps)).unwrap();
        assert_eq!((open(&progress).as_slice(), progress.messages.len()), (*calls, *messages), "{steps:?}");
    }
    let done = TurnProgress::read(&rows(&[response(&[])])).unwrap();
    assert!(done.answer.is_some() && done.active == Duration::from_millis(5));
}

fn answered(progress: &TurnProgress) -> String {
    let ids = progress.messages.iter().filter_map(|message| match message {
        ChatMessage::Tool { call_id, .. } => Some(call_id.as_str()),
        _ => None,
    });
    ids.collect::<Vec<_>>().join(" ")
}

#[test]
fn parallel_results_are_kept_in_the_order_of_their_calls() {
    for ended in ["a b c", "c b a", "b c a", "c a", "b", ""] {
        let mut steps = vec![response(&["x"]), result("x"), response(&["a", "b", "c"])];
        steps.extend(ended.split_whitespace().map(result));
        let mut progress = TurnProgress::read(&rows(&steps)).unwrap();
        let expected: Vec<_> = ["a", "b", "c"].into_iter().filter(|id| ended.contains(id)).collect();
        assert_eq!(answered(&progress), format!("x {}", expected.join(" ")).trim_end(), "{ended}");
        progress.close_calls("stopped");
        assert_eq!(answered(&progress), "x a b c", "{ended}");
    }
}

#[test]
fn results_in_any_order_are_kept_in_the_order_of_their_calls() {
    let unreadable = |at: usize, bodies: &[StepBody]| {
        let mut steps = rows(bodies);
        steps[at].version = 99;
        TurnProgress::read(&steps).unwrap()
    };
    let answered = |progress: &TurnProgress| {
        let id = |message: &ChatMessage| match message {
            ChatMessage::Tool { call_id, content, .. } if content.contains("unknown") => format!("{call_id}?"),
            ChatMessage::Tool { call_id, .. } => call_id.clone(),
            other => other.role().to_owned(),
        };
        progress.messages.iter().map(id).collect::<Vec<_>>().join(" ")
    };
    let three = [response(&["a", "b", "c"]), result("c"), result("a"), result("x"), result("a"), result("b")];
    assert_eq!(answered(&TurnProgress::read(&rows(&three)).unwrap()), "assistant a b c");

    let mut lost = unreadable(1, &[response(&["a", "b"]), result("a"), result("b")]);
    assert_eq!((answered(&lost).as_str(), open(&lost)), ("assistant b", vec![("a", true)]));
    lost.close_calls("stopped");
    assert_eq!(answered(&lost), "assistant a? b");

    let gone_on = unreadable(1, &[response(&["a"]), result("a"), response(&["b"]), result("b")]);
    assert_eq!((answered(&gone_on).as_str(), open(&gone_on)), ("assistant a? assistant b", vec![]));
    let ended = unreadable(1, &[response(&["a"]), result("a"), response(&[])]);
    assert_eq!((answered(&ended).as_str(), ended.answer.is_some()), ("assistant a?", true));
}

#[test]
fn closing_leaves_a_conversation_where_every_call_is_answered_once() {
    let mut progress = TurnProgress::read(&rows(&[response(&["a", "b"]), started("a")])).unwrap();
    progress.close_calls("stopped");
    let tools: Vec<_> = progress.messages[1..]
        .iter()
        .map(|message| match message {
            ChatMessage::Tool { call_id, content, .. } => (call_id.as_str(), content.contains("unknown")),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tools, [("a", true), ("b", false)]);
}

#[test]
fn a_retried_turn_resumes_from_its_finished_steps() {
    let answer = StepBody::Response { response: ChatResponse::default(), active_ms: 600_000 };
    let mut steps = rows(&[response(&["a"]), result("a"), answer, StepBody::Waiting { since: 7 }]);
    assert_eq!(TurnProgress::read(&steps).unwrap().active.as_secs(), 600);
    let hash = turn_steps::chain_hash(&steps[3].hash, turn_steps::RETRIED);
    let (kind, body) = ("note".to_owned(), turn_steps::RETRIED.to_owned());
    steps.push(TurnStepRow { seq: 4, kind, version: turn_steps::VERSION, body, hash, at: 0 });
    let progress = TurnProgress::read(&steps).unwrap();
    assert!(progress.answer.is_none() && progress.active.is_zero() && progress.waiting_since.is_none());
    assert_eq!((answered(&progress).as_str(), progress.messages.len()), ("a", 2));
}

#[test]
fn contexts_under_earlier_names_are_read() {
    let earlier = r#"{"step":"context","system":"","from":1,"to":2,"user":"u","said":"s","model":"a/b",
        "squeezed":2,"is_tight":true,"forgets":3}"#;
    let expected = ContextStep {
        from: 1,
        to: 2,
        user: "u".to_owned(),
        stored_text: Some("s".to_owned()),
        model: "a/b".to_owned(),
        compactions: 2,
        is_context_full: true,
        forget_count: 3,
        ..ContextStep::default()
    };
    assert_eq!(serde_json::from_str::<StepBody>(earlier).unwrap(), StepBody::Context(expected));
}

#[test]
fn a_damaged_journal_is_an_error_and_an_unreadable_result_counts_as_interrupted() {
    let mut damaged = rows(&[response(&["a"]), result("a")]);
    damaged[0].body.push(' ');
    assert!(TurnProgress::read(&damaged).is_err());

    let mut newer = rows(&[response(&["a"]), result("a")]);
    newer[1].version = 99;
    assert_eq!(open(&TurnProgress::read(&newer).unwrap()), [("a", true)]);
    newer[0].version = 99;
    assert!(TurnProgress::read(&newer).is_err());
}

#[test]
fn only_repeated_calls_with_the_same_result_get_a_note() {
    let mut repeats = RepeatedCalls::default();
    for (name, arguments, result, expected) in [
        ("list_dir", "{}", "a", None),
        ("list_dir", "{}", "a", None),
        ("list_dir", "{}", "a", Some("3 times")),
        ("list_dir", "{}", "a", Some("4 times")),
        ("list_dir", "{}", "b", None),
        ("list_dir", "{}", "a", None),
        ("list_dir", "{\"path\":\".\"}", "a", None),
        ("read_file", "{\"path\":\".\"}", "a", None),
        ("read_file", "{\"path\":\".\"}", "a", None),
        ("read_file", "{\"path\":\".\"}", "a", Some("3 times")),
    ] {
        let call = ToolCall { id: "x".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        let note = repeats.note(&call, result);
        let fits =
            note.as_deref().map_or(expected.is_none(), |note| expected.is_some_and(|expected| note.contains(expected)));
        assert!(fits, "{name} {arguments} {result}: {note:?}");
    }
}

#[test]
fn each_response_is_charged_to_the_model_that_gave_it() {
    let response = |answered_by: &str, tokens: u64, cost: Option<(u64, &str)>| ChatResponse {
        answered_by: answered_by.to_owned(),
        usage: Usage { input_tokens: tokens, ..Usage::default() },
        cost: cost.map(|(micros, currency)| Cost { micros, currency: currency.to_owned() }),
        ..ChatResponse::default()
    };
    let mut spending = Spending::default();
    for one in [
        // The format of an older program.
        response("", 1, None),
        response("a/m", 2, Some((10, "USD"))),
        response("b/n", 4, Some((5, "CNY"))),
        response("a/m", 8, Some((20, "USD"))),
        response("a/m", 16, Some((99, "EUR"))),
    ] {
        spending.count(&one, "a/m");
    }
    let models: Vec<_> = spending.models().map(|(model, one)| (model, one.usage.input_tokens)).collect();
    assert_eq!(models, [("a/m", 27), ("b/n", 4)]);
    assert_eq!(spending.costs(), Costs::from([("CNY".to_owned(), 5), ("USD".to_owned(), 30)]));
}
