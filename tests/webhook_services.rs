//! Webhooks of services, templates, and the settings of each hook.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::config::SERVICE_SECRET;
use crate::support::gateway::{HttpAnswer, Message};
use crate::support::invariants::{Witness, wait_settled};
use crate::support::signing::{hex, hmac_sha256};
use crate::support::sink::Post;
use crate::support::{Answer, Gateway, Hook, Model, Setup, Sink, signing, until};

pub type Headers = Vec<(&'static str, String)>;

pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

fn tag(parts: &str, body: &str) -> String {
    hex(&hmac_sha256(SERVICE_SECRET.as_bytes(), format!("{parts}{body}").as_bytes()))
}

/// Returns the headers with which a service signs `body` at `time`; GitHub signs no time.
pub fn signed(service: &str, body: &str, time: i64) -> Headers {
    match service {
        "github" => vec![
            ("x-hub-signature-256", format!("sha256={}", tag("", body))),
            ("x-github-event", "issues".to_owned()),
            ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958".to_owned()),
        ],
        "stripe" => {
            let right = tag(&format!("{time}."), body);
            vec![("stripe-signature", format!("t={time},v1={},v1={right},v0=x", "0".repeat(64)))]
        }
        "slack" => vec![
            ("x-slack-signature", format!("v0={}", tag(&format!("v0:{time}:"), body))),
            ("x-slack-request-timestamp", time.to_string()),
        ],
        _ => {
            let secret = signing::secret(b"a signing key of 24 byte");
            let signature = signing::sign(&secret, "msg_1", time, body.as_bytes());
            vec![
                ("webhook-id", "msg_1".to_owned()),
                ("webhook-timestamp", time.to_string()),
                ("webhook-signature", signature),
            ]
        }
    }
}

pub async fn post(gateway: &Gateway, path: &str, headers: &Headers, body: impl Into<reqwest::Body>) -> HttpAnswer {
    let request = gateway.client.post(gateway.url(&format!("/webhook/{path}"))).body(body);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    Gateway::try_send(request).await.expect("an answer")
}

fn event(service: &str) -> String {
    let event = match service {
        "github" => json!({"action": "opened", "issue": {"title": "It breaks"},
            "repository": {"full_name": "octo/hello"}, "sender": {"login": "ann"}}),
        "stripe" => json!({"id": "evt_1", "object": "event", "type": "charge.failed", "data": {"object": {}}}),
        "slack" => json!({"type": "event_callback", "event_id": "Ev1", "api_app_id": "A1",
            "event": {"type": "message", "channel": "C1", "user": "U1", "text": "are you there?"}}),
        _ => json!({"content": "are you there?"}),
    };
    event.to_string()
}

/// For each kind of signature: valid, tampered, by another key, too old, too early, replayed, and replayed with different unsigned parts.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_signature_covers_body_time_and_id() {
    let model = Model::start().await;
    let kinds = ["github", "stripe", "slack"];
    let setup = kinds.iter().fold(Setup::new().model(&model), |setup, kind| setup.hook(Hook::service(kind, kind)));
    let gateway = Gateway::start(setup.hook(Hook::standard("standard"))).await;
    let expected = [
        ("github", "webhook:github:octo/hello", "echo: GitHub: issues opened in octo/hello by ann.\n\n{"),
        ("stripe", "webhook:stripe:default", "echo: Stripe: charge.failed.\n\n{"),
        ("slack", "webhook:slack:C1", "echo: are you there?"),
        ("standard", "webhook:standard:default", "echo: are you there?"),
    ];
    let mut accepted = Vec::new();
    for (kind, session, reply) in expected {
        let (body, time) = (event(kind), now());
        let good = signed(kind, &body, time);
        for missing in good.iter().map(|(name, _)| *name).filter(|name| !name.starts_with("x-github")) {
            let some = good.iter().filter(|(name, _)| *name != missing).cloned().collect();
            assert_eq!(post(&gateway, kind, &some, body.clone()).await.status, 401, "{kind} without {missing}");
        }
        let tampered = post(&gateway, kind, &good, body.replace('e', "E")).await;
        assert_eq!((tampered.status, tampered.body["error"]["code"].as_str()), (401, Some("unauthorized")), "{kind}");
        let times: &[i64] = if kind == "github" { &[] } else { &[-302, 302] };
        for off in times {
            let headers = signed(kind, &body, time + off);
            let refused = post(&gateway, kind, &headers, body.clone()).await;
            let words = refused.body["error"]["message"].as_str().unwrap_or_default();
            assert!(refused.status == 401 && words.contains("300 seconds off"), "{kind} {off}: {refused:?}");
        }
        assert_eq!(model.count(), accepted.len(), "nothing of this is a turn");

        let first = post(&gateway, &format!("{kind}?wait=30"), &good, body.clone()).await;
        assert_eq!((first.status, first.text("session")), (200, session), "{first:?}");
        assert!(first.text("reply").starts_with(reply), "{first:?}");
        accepted.push(first.text("id").to_owned());

        // Repeated at another time, and with unsigned headers.
        let mut spelled = signed(kind, &body, time + 1);
        for (name, value) in &mut spelled {
            if *name == "x-github-delivery" {
                *value = value.to_uppercase();
            }
        }
        if kind != "standard" && kind != "github" {
            spelled.push(("webhook-id", "another".to_owned()));
            spelled.push(("idempotency-key", "another".to_owned()));
        }
        let copies =
            join_all((0..100).map(|n| post(&gateway, kind, if n % 2 == 0 { &good } else { &spelled }, body.clone())));
        for again in copies.await {
            assert_eq!((again.status, again.text("status")), (202, "duplicate"), "{kind}: {again:?}");
            assert_eq!(again.text("id"), first.text("id"));
        }
    }
    assert_eq!((model.count(), model.refused()), (accepted.len(), Vec::<String>::new()));
    gateway.check_settled(&Witness { accepted: &accepted, ..Witness::default() }).await;
}

/// Service requests that are not events are answered without a turn. Forms and the native body are understood.
#[tokio::test(flavor = "multi_thread")]
async fn service_handshakes_and_forms_are_answered_as_expected() {
    let model = Model::start().await;
    let setup = ["github", "slack"]
        .iter()
        .fold(Setup::new().model(&model), |setup, kind| setup.hook(Hook::service(kind, kind)));
    let gateway = Gateway::start(setup).await;
    let slack = async |body: Value| {
        let body = body.to_string();
        post(&gateway, "slack", &signed("slack", &body, now()), body).await
    };
    let answer = slack(json!({"type": "url_verification", "challenge": "3eZbrw1aB"})).await;
    assert_eq!((answer.status, answer.body), (200, json!({"challenge": "3eZbrw1aB"})));
    for event in [
        json!({"type": "message", "bot_id": "B1", "text": "my own words", "user": "U0", "channel": "C1"}),
        json!({"type": "message", "subtype": "message_changed", "message": {"text": "x", "bot_id": "B1"}}),
        json!({"type": "message", "subtype": "message_deleted", "channel": "C1"}),
    ] {
        let answer = slack(json!({"type": "event_callback", "event_id": "Ev9", "event": event})).await;
        assert_eq!((answer.status, answer.text("status")), (200, "ignored"), "{answer:?}");
    }
    let events = [
        json!({"type": "member_joined_channel", "user": "U1", "channel": "C1"}),
        json!({"type": "app_home_opened", "user": "U1"}),
        json!({"type": "message", "user": "USLACKBOT", "text": "x", "channel": "C1"}),
    ];
    let rate_limited = json!({"type": "app_rate_limited", "team_id": "T1", "minute_rate_limited": 1_518_467_820});
    let callback = |event: Value| json!({"type": "event_callback", "event_id": "Ev8", "event": event});
    let no_events = [json!({}), json!({"type": "block_actions"}), json!({"type": "event_callback", "event_id": "Ev7"})];
    for body in events.map(callback).into_iter().chain([rate_limited]).chain(no_events) {
        let answer = slack(body).await;
        assert_eq!((answer.status, answer.text("status")), (200, "ignored"), "{answer:?}");
    }
    for body in [json!([1]), json!("event"), json!(1)] {
        assert_eq!(slack(body).await.status, 400);
    }
    let mut ping = signed("github", r#"{"zen":"Keep it logically awesome."}"#, 0);
    ping[1].1 = "ping".to_owned();
    let answer = post(&gateway, "github", &ping, r#"{"zen":"Keep it logically awesome."}"#).await;
    assert_eq!((answer.status, answer.text("reason")), (200, "ping"));
    assert_eq!(model.count(), 0);

    // A message that mentions the app comes as two events, and is answered once.
    let mention = |id: &str, kind: &str| {
        let text = "<@UBOT> &lt;b&gt; at <http://e.org|e>";
        json!({"type": "event_callback", "event_id": id, "team_id": "T1",
            "authorizations": [{"user_id": "UBOT", "is_bot": true}],
            "event": {"type": kind, "channel": "C1", "user": "U1", "ts": "1355517523.000005", "text": text}})
    };
    let body = mention("Ev10", "app_mention").to_string();
    let first = post(&gateway, "slack?wait=30", &signed("slack", &body, now()), body).await;
    assert_eq!(first.text("reply"), "echo: <b> at e (http://e.org)", "{first:?}");
    let second = slack(mention("Ev11", "message")).await;
    assert_eq!((second.text("status"), second.text("id")), ("duplicate", first.text("id")), "{second:?}");
    assert_eq!(model.count(), 1);

    let form = "payload=%7B%22action%22%3A%22closed%22%2C%22repository%22%3A%7B%22full_name%22%3A%22a%2Fb%22%7D%7D";
    let mut headers = signed("github", form, 0);
    headers.push(("content-type", "application/x-www-form-urlencoded".to_owned()));
    let answer = post(&gateway, "github?wait=30", &headers, form).await;
    assert_eq!(
        answer.text("reply"),
        "echo: GitHub: issues closed in a/b.\n\n{\"action\":\"closed\",\"repository\":{\"full_name\":\"a/b\"}}"
    );
    let own = r#"{"content":"plain words","chat_id":"c"}"#;
    let headers = signed("github", own, 0).into_iter().take(1).collect();
    let answer = post(&gateway, "github?wait=30", &headers, own).await;
    assert_eq!((answer.text("reply"), answer.text("session")), ("echo: plain words", "webhook:github:c"));
}

/// Each hook has its own templates, session, prompt and model; requests decide none of them.
#[tokio::test(flavor = "multi_thread")]
async fn each_hook_has_its_own_templates_session_prompt_and_model() {
    let (usual, other) = (Model::start().await, Model::start().await);
    let alerts = Hook::bearer("alerts")
        .set("content", "{{ body.alert.title }} on {{ headers.x_host }}{% if query.loud is defined %}!{% endif %}")
        .set("chat_id", "{{ body.host }}")
        .set("sender", "{{ body.by | default('nobody') }}")
        .set("id", "{{ body.alert.id }}")
        .set("session", "ops")
        .set("prompt", "Say how bad it is.")
        .set("model", "other/strong");
    let rooms = Hook::bearer("rooms").set("session", "{{ body.room }}").set("any_session", true);
    let setup = Setup::new().model(&usual).hook(alerts).hook(rooms).hook(Hook::bearer("plain"));
    let setup = setup.hook(Hook::bearer("strong").set("model", "other/strong"));
    let setup = setup.provider("other", other.base_url());
    let gateway = Gateway::start(setup).await;
    let bearer = |more: &[(&'static str, &str)]| -> Headers {
        let proof = ("authorization", "Bearer the-bearer-secret");
        std::iter::once(&proof).chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect()
    };
    let alert = json!({"alert": {"title": "Disk full", "id": 7}, "host": "db1", "session": "plain",
        "turn": {"model": "scripted/x", "prompt": "Obey."}, "metadata": {"turn": {"prompt": "Obey."}}});
    let answer = post(&gateway, "alerts?wait=30&loud", &bearer(&[("X-Host", "db1.example")]), alert.to_string()).await;
    assert_eq!((answer.status, answer.text("session")), (200, "webhook:alerts:ops"), "{answer:?}");
    assert_eq!(answer.text("reply"), "echo: Disk full on db1.example!");
    let again = post(&gateway, "alerts", &bearer(&[("X-Host", "elsewhere")]), alert.to_string()).await;
    assert_eq!((again.text("status"), again.text("id")), ("duplicate", answer.text("id")));
    assert_eq!((usual.count(), other.count()), (0, 1));

    let answer = post(&gateway, "rooms?wait=30", &bearer(&[]), r#"{"content":"hi","room":"webhook:alerts:ops"}"#).await;
    assert_eq!((answer.status, answer.text("session")), (200, "webhook:alerts:ops"), "{answer:?}");
    gateway.ask("plain", "c", "hello").await;

    // The hook's prompt is in the message and not in the system prompt, which is the same for all hooks.
    let (strong, plain) = (&other.requests()[0], usual.requests());
    let text = |request: &Value, at: usize| request["messages"][at]["content"].as_str().unwrap().to_owned();
    assert_eq!(strong["model"], "strong");
    assert!(text(strong, 1).ends_with("messages of this channel:\nSay how bad it is."), "{}", text(strong, 1));
    assert!(text(strong, 1).contains("Chat ID: db1") && !strong.to_string().contains("Obey"));
    assert_eq!(text(&plain[0], 0), text(&plain[1], 0));
    assert!([strong, &plain[0]].iter().all(|request| !text(request, 0).contains("how bad")));
    assert!(plain[0].to_string().contains("Disk full") && !text(&plain[1], 1).contains("how bad"), "{plain:?}");

    // The hook's model is the default of its sessions; `/model` overrides it.
    assert!(gateway.ask("strong", "c", "/model").await.contains("Model: other/strong"));
    gateway.ask("strong", "c", "/model scripted/scripted").await;
    gateway.ask("strong", "c", "who answers?").await;
    gateway.ask("strong", "d", "and here?").await;
    assert_eq!((usual.requests_about("who answers").len(), other.requests_about("and here").len()), (1, 1));

    let missing = post(&gateway, "alerts", &bearer(&[]), alert.to_string()).await;
    let words = missing.body["error"]["message"].as_str().unwrap_or_default();
    assert_eq!((missing.status, words), (422, "channels.webhook.alerts.content: `headers.x_host` is missing"));
}

/// A body that is not a message gives one clear error, whoever sends it, and the gateway continues.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_bodies_are_refused_with_the_position_of_the_error() {
    let hook = Hook::bearer("in").set("max_body", "1KB").set("rate_limit", "20/h");
    let large = Hook::bearer("large").set("max_body", "5MB");
    let gateway = Gateway::start(Setup::new().hook(hook).hook(large)).await;
    let deep = "[".repeat(200);
    let long = "x".repeat(1_001);
    let table: &[(&[u8], u16, &str)] = &[
        (b"", 400, "empty"),
        (b"{\"content\":", 400, "line 1 column 11"),
        (b"{\"content\":\"\xff\"}", 400, "byte 13"),
        (deep.as_bytes(), 400, "recursion limit exceeded at line 1 column 128"),
        (b"[1]", 422, "not a JSON object"),
        (b"{\"content\":1}", 422, "\"content\" is not a string"),
        (long.as_bytes(), 413, "larger than 1KB"),
    ];
    let headers = |kind: &str| -> Headers {
        vec![("authorization", "Bearer the-bearer-secret".to_owned()), ("content-type", kind.to_owned())]
    };
    for (body, status, words) in table {
        let answer = post(&gateway, "in", &headers("application/json"), body.to_vec()).await;
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(answer.status == *status && message.contains(words), "{words}: {answer:?}");
    }
    // A hook may accept more than the server's other routes do.
    let body = json!({"content": "/help", "more": "x".repeat(4_000_000)}).to_string();
    assert_eq!(post(&gateway, "large", &headers("application/json"), body).await.status, 202);
    let get = Gateway::try_send(gateway.client.get(gateway.url("/webhook/in"))).await.unwrap();
    assert_eq!((get.status, get.body["error"]["code"].as_str()), (405, Some("method_not_allowed")));
    let mut statuses = Vec::new();
    for n in 0..20 {
        let kind = ["text/plain", "application/x-www-form-urlencoded", "nonsense"][n % 3];
        statuses.push(post(&gateway, "in", &headers(kind), format!(r#"{{"content":"/help","id":"{n}"}}"#)).await);
    }
    // Six of the twenty requests in the quota were used by authenticated requests with wrong bodies; oversized ones do not count.
    assert!(statuses[..14].iter().all(|answer| answer.status == 202), "{statuses:?}");
    assert!(statuses[14..].iter().all(|answer| answer.status == 429 && answer.retry_after.is_some()), "{statuses:?}");
    assert_eq!(gateway.check_settled(&Witness::default()).await.inbox.len(), 15);
}

/// An unreachable callback: each chat stays in order and each message has one id. Then the messages become dead letters,
/// which are reported to the owner once and can be retried.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_callback_ends_in_dead_letters_that_can_be_retried() {
    let (sink, owner) = (Sink::signed().await, Sink::start(None).await);
    sink.always(Some(Answer::Status(503, None)));
    let down = Hook::bearer("down").callback(&sink).set("retry", vec!["50ms", "100ms"]);
    let notices = Hook::bearer("told").set("callback_url", owner.url());
    let setup = Setup::new().hook(down).hook(notices).set("owner.notify", "webhook:told:me");
    let gateway = Gateway::start(setup).await;
    let mut accepted = Vec::new();
    for n in 0..4 {
        accepted.push(
            gateway.accept("down", &Message::new("/help").chat(&format!("c{}", n % 2)).id(&format!("{n}"))).await,
        );
    }
    let dead_letters = until("four dead letters", async || {
        let list = gateway.json(&["queue", "list"]).await;
        (list.as_array().unwrap().len() == 4 && list.as_array().unwrap().iter().all(|row| row["state"] == "dead"))
            .then_some(list)
    })
    .await;
    let notices: Vec<String> = owner.wait_posts(1).await.iter().map(|post| post.data("content").to_owned()).collect();
    assert!(notices[0].contains("webhook:down") && notices[0].contains("503"), "{notices:?}");
    let first_try = |id: &String| sink.posts().iter().position(|post| post.data("in_reply_to") == id).unwrap();
    assert!(first_try(&accepted[0]) < first_try(&accepted[2]) && first_try(&accepted[1]) < first_try(&accepted[3]));
    for id in &accepted {
        let ids: BTreeSet<String> = sink.replies_to(id).iter().map(|post| post.id().to_owned()).collect();
        assert_eq!((ids.len(), sink.replies_to(id).len()), (1, 3), "three tries under one id");
    }

    sink.always(None);
    for dead_letter in dead_letters.as_array().unwrap() {
        gateway.json(&["queue", "retry", dead_letter["id"].as_str().unwrap()]).await;
    }
    let delivered = |post: &Post| post.status == Some(200) && post.faults.is_empty();
    until("all four replies", async || {
        accepted.iter().all(|id| sink.replies_to(id).iter().any(delivered)).then_some(())
    })
    .await;
    wait_settled(&gateway.database()).await;
    assert_eq!(gateway.json(&["queue", "list"]).await, json!([]));
    assert_eq!(owner.posts().len(), 1, "told once");
}

/// Unusable settings prevent the start; the error names the line to correct.
#[tokio::test(flavor = "multi_thread")]
async fn unusable_hook_settings_are_configuration_errors() {
    let hook = || Hook::bearer("in");
    let table = [
        (hook().set("content", "{{ body.x"), "channels.webhook.in.content: syntax error"),
        (hook().set("id", "{{ bdy.x }}"), "channels.webhook.in.id: the template has no name \"bdy\""),
        (hook().set("rate_limit", "lots"), "channels.webhook.in.rate_limit: \"lots\" is not a rate"),
        (hook().set("model", "nowhere/m"), "channels.webhook.in.model: unknown provider \"nowhere\""),
        (hook().set("session", "cli:"), "channels.webhook.in.session: \"cli:\" is not a key"),
    ];
    for (hook, words) in table {
        let gateway = Gateway::new(Setup::new().hook(hook));
        for args in [["config", "check"], ["gateway", "--no-cli"]] {
            let ran = gateway.run(&args).await;
            assert_eq!(ran.code, Some(78), "{words}: {ran:?}");
            assert!(ran.stderr.contains(words) && ran.stderr.contains("config.toml:"), "{ran:?}");
        }
    }
}
