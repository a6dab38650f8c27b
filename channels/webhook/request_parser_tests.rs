use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::settings::Secret;
use crate::webhook::Verify;

type Pairs<'a> = &'a [(&'static str, &'a str)];

fn parser(config: WebhookConfig) -> RequestParser {
    RequestParser::new("n", &WebhookConfig { secret: Some(Secret::new("s3cret")), ..config }, true).unwrap()
}

fn bearer() -> WebhookConfig {
    WebhookConfig { verify: Verify::Bearer, ..WebhookConfig::default() }
}

fn of(verify: Verify) -> WebhookConfig {
    WebhookConfig { verify, ..WebhookConfig::default() }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn headers(pairs: Pairs<'_>) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn read(parser: &RequestParser, pairs: Pairs<'_>, body: &Value) -> Result<InboundMessage, HttpError> {
    let uri = Uri::from_static("/webhook/n?wait=1&page=2");
    match parser.read(&headers(pairs), &uri, body.to_string().as_bytes())? {
        ParsedRequest::Message(message) => Ok(*message),
        ParsedRequest::Answer(answer) => panic!("{answer}"),
    }
}

#[test]
fn a_message_is_known_by_the_id_that_its_sender_vouches_for() {
    let native = json!({"content": "hi", "id": "body"});
    let event = json!({"id": "evt_1", "event_id": "Ev1", "event": {"type": "message", "text": "hi"}});
    let anonymous = json!({"content": "hi"});
    let ids = [("webhook-id", "header"), ("idempotency-key", "key")];
    let delivery = [("x-github-delivery", "72D3162E-CC78-11E3-81AB-4C9367DC0958"), ("webhook-id", "other")];
    let by_template = || WebhookConfig { id: some("{{ body.event_id }}"), ..bearer() };
    let null_id = || WebhookConfig { id: some("{{ body.none }}"), content: some("x"), ..bearer() };
    let table: &[(WebhookConfig, Pairs<'_>, &Value, Option<&str>)] = &[
        (bearer(), &[], &anonymous, None),
        (bearer(), &[], &native, Some("body")),
        (bearer(), &ids[1..], &native, Some("key")),
        (bearer(), &[("idempotency-key", " ")], &native, Some("body")),
        (bearer(), &ids, &native, Some("header")),
        (of(Verify::Github), &delivery, &event, Some("72d3162e-cc78-11e3-81ab-4c9367dc0958")),
        (of(Verify::Github), &delivery, &native, Some("72d3162e-cc78-11e3-81ab-4c9367dc0958")),
        (of(Verify::Github), &ids, &native, Some("header")),
        (of(Verify::Github), &[], &event, None),
        // Unsigned headers do not count.
        (of(Verify::Stripe), &ids, &event, Some("evt_1")),
        (of(Verify::Slack), &ids, &event, Some("Ev1")),
        (of(Verify::Slack), &ids, &native, Some("body")),
        (by_template(), &ids, &json!({"content": "hi", "event_id": "own"}), Some("own")),
        (null_id(), &[], &json!({"none": null, "id": "x"}), None),
        (null_id(), &ids, &json!({"none": ""}), Some("header")),
    ];
    for (config, pairs, body, expected) in table {
        let message = read(&parser(config.clone()), pairs, body).unwrap();
        assert_eq!(message.external_id.as_deref(), *expected, "{:?} {pairs:?} {body}", config.verify);
    }
    let long = "x".repeat(300);
    let error = read(&parser(bearer()), &[("webhook-id", &long)], &native).unwrap_err();
    assert_eq!(error.status, 422);
    for name in ["webhook-id", "idempotency-key"] {
        let error = read(&parser(bearer()), &[(name, "a"), (name, "b")], &native).unwrap_err();
        assert!(error.status == 400 && error.message.contains(name), "{error:?}");
    }
}

/// Messages whose names are all empty would otherwise be in one chat, or come from one sender.
#[test]
fn a_template_that_makes_an_empty_name_is_refused() {
    let source = || some("{{ body.x }}");
    let base = || WebhookConfig { content: some("x"), ..bearer() };
    for (key, config) in [
        ("chat_id", WebhookConfig { chat_id: source(), ..base() }),
        ("sender", WebhookConfig { sender: source(), ..base() }),
    ] {
        let parser = parser(config);
        for body in [json!({"x": ""}), json!({"x": null}), json!({"x": " \n"})] {
            let error = read(&parser, &[("webhook-id", "header")], &body).unwrap_err();
            let words = format!("what channels.webhook.n.{key} made is empty");
            assert!(error.status == 422 && error.message == words, "{key} {body}: {error:?}");
        }
        assert!(read(&parser, &[], &json!({"x": "a"})).is_ok(), "{key}");
    }
}

#[test]
fn a_template_makes_no_name_of_an_object_or_a_list() {
    let base = || WebhookConfig { content: some("{{ body.x }}"), ..bearer() };
    let plain = "{{ body.x }}";
    for (key, config) in [
        ("chat_id", WebhookConfig { chat_id: some(plain), ..base() }),
        ("sender", WebhookConfig { sender: some(plain), ..base() }),
        ("id", WebhookConfig { id: some(plain), ..base() }),
        ("session", WebhookConfig { session: some(plain), ..base() }),
        ("chat_id", WebhookConfig { chat_id: some("a-{{ body.x }}"), ..base() }),
    ] {
        let parser = parser(config);
        for (value, kind) in [(json!({"id": 7}), "an object"), (json!({}), "an object"), (json!(["a"]), "a list")] {
            let error = read(&parser, &[], &json!({ "x": value })).unwrap_err();
            let words = format!("this is {kind}; a name is a string or a whole number");
            let is_named = error.message.starts_with(&format!("channels.webhook.n.{key}: "));
            assert!(error.status == 422 && is_named && error.message.contains(&words), "{key} {value}: {error:?}");
        }
        for value in [json!("a"), json!(7)] {
            assert!(read(&parser, &[], &json!({ "x": value })).is_ok(), "{key} {value}");
        }
    }
    let joined = WebhookConfig { chat_id: some("{{ body.x | join('-') }}"), ..base() };
    assert_eq!(read(&parser(joined), &[], &json!({"x": ["a", "b"]})).unwrap().chat_id, "a-b");
}

/// Numbers that JSON's reader rounds are not names, since different ones could become one.
#[test]
fn a_template_makes_no_name_of_a_rounded_number() {
    let with = |id: &str| parser(WebhookConfig { id: some(id), content: some("{{ body.n }}"), ..bearer() });
    let plain = "{{ body.n }}";
    let body = |number: &str| format!(r#"{{"n":{number},"more":[0.1,1e300,-0.0]}}"#);
    let id_of = |id: &str, number: &str| {
        let uri = Uri::from_static("/webhook/n");
        match with(id).read(&HeaderMap::new(), &uri, body(number).as_bytes()) {
            Ok(ParsedRequest::Message(message)) => Ok(message.external_id.unwrap()),
            Ok(ParsedRequest::Answer(answer)) => panic!("{answer}"),
            Err(error) => Err(error),
        }
    };
    for number in ["18446744073709551615", "-9223372036854775808", "9007199254740993", "0"] {
        assert_eq!(id_of(plain, number), Ok(number.to_owned()));
    }
    let rounded = [
        "18446744073709551616", "18446744073709551617", "-9223372036854775809", "1.5", "0.12345678901234567890", "1e2",
        "-0", "1.7976931348623157e308",
    ];
    for number in rounded {
        for source in [plain, "{{ 'order-' ~ body.n }}", "{{ [body.n] | join }}", "{{ body.n | tojson }}"] {
            let error = id_of(source, number).unwrap_err();
            let words = "channels.webhook.n.id made holds a number";
            assert!(error.status == 422 && error.message.contains(words), "{number} {source}: {error:?}");
        }
        // A template that does not show the digits is allowed.
        let compares = "{{ 'high' if body.n > 1 else 'low' }}";
        assert!(id_of(compares, number).is_ok_and(|id| id == "high" || id == "low"), "{number}");
    }
    let other_names = [
        WebhookConfig { chat_id: some(plain), ..bearer() },
        WebhookConfig { sender: some(plain), ..bearer() },
        WebhookConfig { session: some(plain), ..bearer() },
    ];
    for config in other_names {
        let body = json!({"content": "x", "n": 1e20});
        assert_eq!(read(&parser(config), &[], &body).unwrap_err().status, 422);
    }
}

/// Without an id, the signed time and the body serve as the id: the same bytes are the same message.
#[test]
fn a_replay_without_an_id_is_recognized_by_its_signed_bytes() {
    let slack = parser(of(Verify::Slack));
    let id = |time: &str, content: &str| {
        let body = json!({ "content": content });
        let message = read(&slack, &[("x-slack-request-timestamp", time)], &body).unwrap();
        assert!(message.metadata.is_empty(), "no sender's id");
        message.external_id.unwrap()
    };
    assert_eq!(id("1", "a"), id("1", "a"));
    assert_ne!(id("1", "a"), id("2", "a"));
    assert_ne!(id("1", "a"), id("1", "b"));
}

#[test]
fn a_session_stays_below_its_webhook_unless_the_settings_say_otherwise() {
    let trusted_from = || AllowList::new(["*"]);
    let any = || WebhookConfig { any_session: true, trusted_from: trusted_from(), ..bearer() };
    let strangers = || WebhookConfig { any_session: true, ..bearer() };
    let fixed = |session: &str| WebhookConfig { session: some(session), ..bearer() };
    let template = |any_session| WebhookConfig {
        session: some("{{ body.room }}"),
        any_session,
        trusted_from: trusted_from(),
        ..bearer()
    };
    let asks = |key: &str| json!({"content": "x", "session": key});
    let room = |key: &str| json!({"content": "x", "room": key});
    let table = [
        (bearer(), json!({"content": "x", "chat_id": "c"}), Ok("webhook:n:c")),
        (bearer(), asks("a"), Ok("webhook:n:a")),
        (bearer(), asks("webhook:n:a:b"), Ok("webhook:n:a:b")),
        (bearer(), asks("webhook:n:"), Err(403)),
        (bearer(), asks("webhook:other:a"), Err(403)),
        (bearer(), asks("webhook:n2:a"), Err(403)),
        (bearer(), asks("cli:direct"), Err(403)),
        (any(), asks("cli:direct"), Ok("cli:direct")),
        (any(), asks("a"), Ok("webhook:n:a")),
        (strangers(), asks("cli:direct"), Err(403)),
        (strangers(), asks("webhook:n:"), Err(403)),
        (strangers(), asks("webhook:n:a"), Ok("webhook:n:a")),
        (any(), asks("cli:"), Err(422)),
        (any(), asks(":"), Err(422)),
        (fixed("ops"), asks("a"), Ok("webhook:n:ops")),
        (fixed("cli:direct"), asks("cli:other"), Ok("cli:direct")),
        (template(false), room("a"), Ok("webhook:n:a")),
        (template(false), room("cli:direct"), Err(403)),
        (template(true), room("cli:direct"), Ok("cli:direct")),
        (template(true), json!({"content": "x"}), Err(422)),
    ];
    for (config, body, expected) in table {
        let got = read(&parser(config), &[], &body).map(|message| message.session_key());
        let got = got.as_ref().map(SessionKey::as_str).map_err(|error| error.status.as_u16());
        assert_eq!(got, expected, "{body}");
    }
}

#[test]
fn only_senders_on_the_list_are_accepted() {
    let body = json!({"content": "hi", "sender": "ann"});
    for (list, allowed) in
        [(None, true), (Some(&["ann"][..]), true), (Some(&["bob"]), false), (Some(&["*"]), true), (Some(&[]), false)]
    {
        let allow_from = list.map(|names| AllowList::new(names.iter().copied()));
        let outcome = read(&parser(WebhookConfig { allow_from, ..bearer() }), &[], &body);
        assert_eq!(outcome.map_err(|error| error.status.as_u16()).err(), (!allowed).then_some(403), "{list:?}");
    }
    // The list applies to the sender that the template gives, not to the sender in the body.
    let allow_from = Some(AllowList::new(["push"]));
    let by_event = WebhookConfig { sender: some("{{ headers.x_github_event }}"), allow_from, ..bearer() };
    let parser = parser(by_event);
    assert_eq!(read(&parser, &[("x-github-event", "push")], &body).unwrap().sender, "push");
    assert_eq!(read(&parser, &[("x-github-event", "fork")], &body).unwrap_err().status, 403);
}

/// A body's proof counts only on the kind of webhook that it belongs to.
#[test]
fn trust_depends_on_the_proof_of_the_author() {
    let list = |names: &[&str]| AllowList::new(names.iter().copied());
    let with = |verify, trusted: &[&str]| WebhookConfig { verify, trusted_from: list(trusted), ..of(verify) };
    let native = json!({"content": "hi", "sender": "ann"});
    let issue = json!({"sender": {"login": "Ann"}, "issue": {"user": {"login": "ann"}}});
    let event = [("x-github-event", "issues")];
    for (config, pairs, body, expected) in [
        (bearer(), &[][..], &native, "untrusted"),
        (with(Verify::Bearer, &["ann"]), &[], &native, "known"),
        (with(Verify::Bearer, &["bob"]), &[], &native, "untrusted"),
        (with(Verify::Bearer, &["Ann"]), &[], &native, "untrusted"),
        (with(Verify::Bearer, &["*"]), &[], &native, "known"),
        (with(Verify::Github, &["Ann"]), &event, &issue, "known"),
        (with(Verify::Github, &["ann"]), &event, &issue, "untrusted"),
        (of(Verify::Github), &event, &issue, "untrusted"),
        // These settings are faults. A parser with such settings trusts nobody.
        (with(Verify::Github, &["*"]), &event, &issue, "untrusted"),
        (with(Verify::Github, &["ann"]), &event, &native, "untrusted"),
        (WebhookConfig { sender: some("ann"), ..with(Verify::Bearer, &["ann"]) }, &[], &native, "untrusted"),
        (WebhookConfig { content: some("x"), ..with(Verify::Bearer, &["*"]) }, &[], &native, "untrusted"),
    ] {
        let parser = parser(config.clone());
        assert_eq!(read(&parser, pairs, body).unwrap().trust.as_str(), expected, "{config:?}");
        let owners = SenderLists { owners: vec!["ann".to_owned()], trusted: AllowList::default() };
        let owned = parser.trusting(TrustLists::of_one("webhook:n", owners));
        let is_native_hook = matches!(config.verify, Verify::Bearer | Verify::Standard);
        let may_be_owner = is_native_hook && config.sender.is_none() && config.content.is_none();
        let expected = if may_be_owner { "owner" } else { "untrusted" };
        assert_eq!(read(&owned, pairs, body).unwrap().trust.as_str(), expected, "{config:?}");
    }
}

#[test]
fn templates_make_a_message_of_any_json() {
    let config = WebhookConfig {
        content: some("{{ body.issue.title }} ({{ query.page }}, {{ name }})"),
        chat_id: some("{{ body.repo }}"),
        sender: some("{{ body.user.login | lower }}"),
        id: some("{{ body.n }}"),
        model: some("p/m"),
        prompt: some("Be brief."),
        ..bearer()
    };
    let parser = parser(config);
    let body = json!({"issue": {"title": "It breaks"}, "repo": "a/b", "user": {"login": "ANN"}, "n": 7, "turn": {"model": "x"}});
    let message = read(&parser, &[], &body).unwrap();
    assert_eq!((message.content.as_str(), message.chat_id.as_str()), ("It breaks (2, n)", "a/b"));
    assert_eq!((message.sender.as_str(), message.external_id.as_deref()), ("ann", Some("7")));
    assert_eq!(
        Value::Object(message.metadata),
        json!({"external_id": "7"}),
        "what the body says of it counts for nothing"
    );
    let turn = message.settings;
    assert_eq!((turn.model.as_deref(), turn.prompt.as_deref()), (Some("p/m"), Some("Be brief.")));

    let table = [
        (json!({"issue": {}}), "channels.webhook.n.content: `body.issue.title` is missing"),
        (json!([]), "channels.webhook.n.content: `body.issue` is missing"),
        (json!(null), "channels.webhook.n.content: `body.issue` is missing"),
        (
            json!({"issue": {"title": 1}, "repo": "a\nb"}),
            "what channels.webhook.n.chat_id made holds control characters",
        ),
        (json!({"issue": {"title": 1}}), "channels.webhook.n.chat_id: `body.repo` is missing"),
        (json!({"issue": {"title": 1}, "repo": "r".repeat(300)}), "longer than 256"),
    ];
    for (body, words) in table {
        let error = read(&parser, &[], &body).unwrap_err();
        assert!(error.status == 422 && error.message.contains(words), "{error:?} {words}");
    }
}

#[test]
fn a_body_that_is_no_message_is_refused_with_its_reason() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let bodies: &[(&[u8], u16)] =
        &[(b"", 400), (b"{", 400), (b"\xff", 400), (deep.as_bytes(), 400), (b"[]", 422), (b"7", 422)];
    for (body, status) in bodies {
        let outcome = parser(bearer()).read(&HeaderMap::new(), &Uri::from_static("/"), body);
        assert_eq!(outcome.unwrap_err().status.as_u16(), *status);
    }
}

mod any_request {
    use axum::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn parsers() -> Vec<RequestParser> {
        let templates = WebhookConfig {
            content: some("{{ body.a }} {{ headers.x_github_event }}"),
            id: some("{{ body.id }}"),
            session: some("{{ body.session | default('s') }}"),
            ..bearer()
        };
        let mut configs = vec![bearer(), templates];
        configs.extend([Verify::Standard, Verify::Github, Verify::Stripe, Verify::Slack].map(of));
        let secret = Some(Secret::new("whsec_c2VjcmV0"));
        configs
            .into_iter()
            .map(|config| RequestParser::new("n", &WebhookConfig { secret: secret.clone(), ..config }, true).unwrap())
            .collect()
    }

    proptest! {
        /// Any request gives a message within the limits, an answer, or an error with its own status.
        #[test]
        fn ends_well(
            pairs in prop::collection::vec((0_usize..9, ".{0,40}"), 0..5),
            body in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..64),
                "\\{\"(content|a|id|type|event)\":(\"[^\"\\\\]{0,9}\"|[0-9]{1,9}|null|\\{\"bot_id\":\"b\"\\}|\\[\\])\\}".prop_map(String::into_bytes),
            ],
        ) {
            const NAMES: [&str; 9] = [
                "webhook-id", "webhook-timestamp", "webhook-signature", "x-hub-signature-256", "x-github-event",
                "stripe-signature", "x-slack-signature", "content-type", "x-github-delivery",
            ];
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                    headers.append(HeaderName::from_static(NAMES[name]), value);
                }
            }
            for parser in parsers() {
                let uri = Uri::from_static("/webhook/n?a=%ff&b");
                prop_assert!(parser.take(&headers, &uri, &body, None, 0).is_err(), "nothing was proven");
                match parser.read(&headers, &uri, &body) {
                    Ok(ParsedRequest::Message(message)) => {
                        prop_assert!(message.chat_id.chars().count() <= 256 && message.sender.chars().count() <= 256);
                        prop_assert!(message.external_id.is_none_or(|id| !id.is_empty() && id.chars().count() <= 256));
                        prop_assert!(message.session.is_none_or(|key| key.as_str().starts_with("webhook:n:")));
                    }
                    Ok(ParsedRequest::Answer(answer)) => prop_assert!(answer.is_object()),
                    Err(error) => prop_assert!(matches!(error.status.as_u16(), 400 | 403 | 422), "{error:?}"),
                }
            }
        }
    }
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let read = |body: &[u8]| body_text(body).and_then(parse_body);
    let table: &[(&[u8], &str)] = &[
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "line 1 column 1"),
        (b"{\n\"a\": nope}", "line 2 column 7"),
        (b"{\"a\":\"\xff\"}", "byte 7"),
        (b"{\"a\":{\"b\":1,\"b\":1}}", "the key \"b\" stands twice in the object at $[\"a\"]"),
        (deep.as_bytes(), "recursion limit exceeded at line 1 column 128"),
    ];
    for (body, words) in table {
        let error = read(body).unwrap_err();
        assert_eq!(error.status.as_u16(), 400);
        assert!(error.message.contains(words), "{error:?} {words}");
    }
    assert_eq!(read("\u{feff}{}".as_bytes()), Ok(serde_json::json!({})));
}

#[test]
fn json_is_taken_out_of_a_form() {
    let form = HeaderMap::from_iter([(
        header::CONTENT_TYPE,
        "Application/x-www-form-urlencoded; charset=utf-8".parse().unwrap(),
    )]);
    let table: &[(&str, Option<&str>)] = &[
        ("payload=%7B%22a%22%3A%22b+c%2Bd%22%7d", Some(r#"{"a":"b c+d"}"#)),
        ("x=1&payload=%5B%5D&payload=2", Some("[]")),
        ("payload=%E4%BD%A0%zz%2", Some("你%zz%2")),
        (r#"{"content":"a&payload=1"}"#, Some(r#"{"content":"a&payload=1"}"#)),
        ("a=1", None),
        ("", None),
    ];
    for (body, expected) in table {
        let got = without_form(&form, body.as_bytes()).ok();
        assert_eq!(got.as_deref(), expected.map(str::as_bytes), "{body}");
    }
    assert_eq!(without_form(&HeaderMap::new(), b"payload=1").unwrap().as_ref(), b"payload=1");
}

proptest! {
    #[test]
    fn any_bytes_are_encoded_and_come_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let encoded: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
        prop_assert_eq!(percent_decoded(encoded.as_bytes()), bytes.clone());
        prop_assert!(percent_decoded(&bytes).len() <= bytes.len());
    }
}
