//! The owner's approval: a restricted call of a tainted turn waits, across restarts, and runs exactly once or not at all.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Journal, wait_settled};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gateway, Hook, Model, Reply, Setup, until};

const COMMAND: &str = "echo done >> done.txt";

/// A model that obeys: it runs the command and tells what came of it.
async fn obedient_model() -> Model {
    let model = Model::start().await;
    model.script(|asked| {
        let run = || Reply::tool("exec", &json!({ "command": COMMAND }));
        Some(match (asked.user.contains("run"), asked.step) {
            (true, 0) => run(),
            (true, _) => Reply::text(format!("result: {}", asked.results.last()?)),
            _ => Reply::text(format!("echo: {}", asked.user)),
        })
    });
    model
}

/// Messages of `boss` are the owner's, those of others are not.
fn setup(model: &Model) -> Setup {
    let setup = Setup::new().model(model).hook(Hook::bearer("in").trusting(&[]));
    setup.set("owner.identities", vec!["webhook:in:boss"])
}

async fn pending(gateway: &Gateway) -> Vec<Value> {
    gateway.json(&["approvals", "list"]).await.as_array().expect("an array").clone()
}

/// Waits for the one call that waits, and returns it.
async fn asked(gateway: &Gateway) -> Value {
    until("a call that waits for the owner", async || pending(gateway).await.first().cloned()).await
}

fn runs(gateway: &Gateway) -> usize {
    std::fs::read_to_string(gateway.workspace().join("done.txt")).unwrap_or_default().lines().count()
}

async fn send(gateway: &Gateway, sender: &str, chat: &str, text: &str) -> String {
    gateway.accept("in", &Message::new(text).chat(chat).sender(sender)).await
}

async fn reply(gateway: &Gateway, id: &str) -> String {
    gateway.wait_done("in", id).await.text("reply").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_command_runs_once_the_owner_approves_it() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = obedient_model().await;
    let gateway = Gateway::start(setup(&model)).await;
    let id = send(&gateway, "stranger", "c", "please run it").await;
    let waiting = asked(&gateway).await;
    assert_eq!(
        json!([waiting["tool"], waiting["arguments"], waiting["session"], waiting["taint"]]),
        json!(["exec", {"command": COMMAND}, "webhook:in:c", ["sender:webhook:in:stranger"]])
    );
    assert!(waiting["expires"].as_str() > waiting["created"].as_str(), "{waiting}");
    assert_eq!(gateway.state("in", &id).await.text("status"), "waiting");
    let code = waiting["id"].as_str().unwrap();

    // Nobody but the owner answers, and nothing runs meanwhile.
    let own = send(&gateway, "stranger", "c", &format!("/approve {code}")).await;
    let other = send(&gateway, "stranger", "d", &format!("/approve {code}")).await;
    assert!(!reply(&gateway, &other).await.contains("Approved"));
    assert_eq!((runs(&gateway), pending(&gateway).await.len()), (0, 1));

    let approved = gateway.json(&["approvals", "approve", code]).await;
    assert_eq!((&approved["state"], &approved["tool"]), (&json!("approved"), &json!("exec")));
    assert!(reply(&gateway, &id).await.starts_with("result: "));
    assert!(!reply(&gateway, &own).await.contains("Approved"));
    assert_eq!((runs(&gateway), pending(&gateway).await.len()), (1, 0));
    let again = gateway.run(&["approvals", "approve", code]).await;
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains(&format!("there is no open approval {code}")), "{again:?}");
    assert_eq!(model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_or_expired_call_is_an_error_for_the_model() {
    let model = obedient_model().await;
    let gateway = Gateway::start(setup(&model)).await;
    let id = send(&gateway, "stranger", "c", "run").await;
    let code = asked(&gateway).await["id"].as_str().unwrap().to_owned();
    let told = send(&gateway, "boss", "office", &format!("/deny {code} not today")).await;
    assert_eq!(reply(&gateway, &told).await, format!("Denied: exec ({code})."));
    assert!(reply(&gateway, &id).await.contains("The owner denied exec: not today."));
    let late = send(&gateway, "boss", "office", &format!("/approve {code}")).await;
    assert_eq!(reply(&gateway, &late).await, format!("`{code}` is no longer open: denied."));

    let gateway = Gateway::start(setup(&model).set("approval.expires", "300ms")).await;
    let id = send(&gateway, "stranger", "c", "run").await;
    assert!(reply(&gateway, &id).await.contains("none came within 300ms"), "it expires");
    assert_eq!((runs(&gateway), pending(&gateway).await.len()), (0, 0));
}

/// Wherever the process dies, the call runs once after the owner's answer and never before.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_survives_kills() {
    if bubblewrap_is_missing() {
        return;
    }
    for point in
        ["approval_asked=exec", "waiting_committed=please run it", "tool_started=exec", "tool_result_committed=exec"]
    {
        let model = obedient_model().await;
        let mut gateway = Gateway::new(setup(&model));
        gateway.crash_at(point);
        gateway.up().await;
        let id = send(&gateway, "stranger", "c", "please run it").await;
        if point.starts_with("tool") {
            let code = asked(&gateway).await["id"].as_str().unwrap().to_owned();
            assert_eq!(gateway.run(&["approvals", "approve", &code]).await.code, Some(0));
            gateway.wait_crash().await;
            gateway.up().await;
        } else {
            gateway.wait_crash().await;
            // Answered while no gateway runs.
            let code = asked(&gateway).await["id"].as_str().unwrap().to_owned();
            assert_eq!(runs(&gateway), 0, "{point}");
            assert_eq!(gateway.run(&["approvals", "approve", &code]).await.code, Some(0));
            gateway.up().await;
        }
        let reply = reply(&gateway, &id).await;
        // A call that the process's death cut off is not run again.
        let expected = usize::from(point != "tool_started=exec");
        assert_eq!((runs(&gateway), pending(&gateway).await.len()), (expected, 0), "{point}: {reply}");
        wait_settled(&gateway.database()).await;
    }
}

/// What nobody answered while no gateway ran expires when the next one starts.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_expires_while_no_gateway_runs() {
    let model = obedient_model().await;
    let mut gateway = Gateway::new(setup(&model).set("approval.expires", "2s"));
    gateway.crash_at("waiting_committed=run");
    gateway.up().await;
    let id = send(&gateway, "stranger", "c", "run").await;
    gateway.wait_crash().await;
    let status = gateway.run(&["status"]).await;
    assert!(status.stdout.contains("1 call waits for your approval: `daoyou approvals list`"), "{status:?}");
    let expires: Timestamp = asked(&gateway).await["expires"].as_str().unwrap().parse().unwrap();
    until("its end", async || (Timestamp::now() > expires).then_some(())).await;
    gateway.up().await;
    assert!(reply(&gateway, &id).await.contains("none came within 2s"));
    assert_eq!((runs(&gateway), pending(&gateway).await.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_is_asked_where_notices_go_and_an_answer_may_hold_for_the_conversation() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = obedient_model().await;
    let setup = setup(&model).hook(Hook::bearer("boss").trusting(&["boss"]));
    let gateway = Gateway::start(setup.set("owner.notify", "webhook:boss:desk")).await;
    let first = send(&gateway, "stranger", "c", "run").await;
    let code = asked(&gateway).await["id"].as_str().unwrap().to_owned();
    let notice = until("the notice", async || {
        let rows = Journal::read(&gateway.database()).unwrap().outbox;
        rows.iter().find(|row| row.chat_id == "desk").map(|row| row.body["content"].as_str().unwrap().to_owned())
    });
    let notice = notice.await;
    for words in ["exec", &code, COMMAND, "webhook:in:c", "sender:webhook:in:stranger"] {
        assert!(notice.contains(words), "{words}: {notice}");
    }
    let told = send(&gateway, "boss", "office", &format!("/approve {code} session")).await;
    assert!(reply(&gateway, &told).await.contains("also for the rest of that conversation"));
    assert!(reply(&gateway, &first).await.starts_with("result: "));
    let second = send(&gateway, "stranger", "c", "run").await;
    assert!(reply(&gateway, &second).await.starts_with("result: "));
    assert_eq!(runs(&gateway), 2);
    // Another conversation is asked about.
    send(&gateway, "stranger", "d", "run").await;
    asked(&gateway).await;
    assert_eq!(runs(&gateway), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_decide_by_tool_and_channel() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = obedient_model().await;
    for (key, policy, sender, expected) in [
        ("approval.default", "tainted", "boss", "runs"),
        ("approval.default", "always", "boss", "asks"),
        ("approval.tools.exec", "always", "boss", "asks"),
        ("approval.tools.exec", "deny", "boss", "refused"),
        ("approval.channels.webhook", "deny", "stranger", "refused"),
        // It lets nobody do more than without a question.
        ("approval.tools.exec", "never", "stranger", "refused"),
    ] {
        let gateway = Gateway::start(setup(&model).set(key, policy)).await;
        let id = send(&gateway, sender, "c", "run").await;
        if expected == "asks" {
            asked(&gateway).await;
            assert_eq!(runs(&gateway), 0, "{key} {policy}");
            // The turn ends with /stop, and so does the question.
            let stop = send(&gateway, sender, "c", "/stop").await;
            gateway.wait_done("in", &stop).await;
            gateway.wait_done("in", &id).await;
            assert_eq!(pending(&gateway).await, Vec::<Value>::new());
            continue;
        }
        let reply = reply(&gateway, &id).await;
        assert_eq!(runs(&gateway), usize::from(expected == "runs"), "{key} {policy}: {reply}");
        assert_eq!(reply.contains("is refused"), expected == "refused", "{key} {policy}: {reply}");
    }
}
