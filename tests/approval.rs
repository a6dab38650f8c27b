//! The owner's approval. A restricted call of a tainted turn waits, even across restarts, and runs exactly once or not at all.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::gateway::Message;
use crate::support::invariants::{Journal, wait_settled};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::web::{Page, Web};
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

const COMMAND: &str = "echo done >> done.txt";

/// A model that obeys: it runs the command and reports the result.
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

async fn pending(gateway: &Gateway) -> Vec<Value> {
    gateway.json(&["approvals", "list"]).await.as_array().expect("an array").clone()
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
    let gateway = Gateway::start(Setup::owned_by_boss(&model)).await;
    let id = send(&gateway, "stranger", "c", "please run it").await;
    let waiting = gateway.wait_approval().await;
    assert_eq!(
        json!([waiting["tool"], waiting["arguments"], waiting["session"], waiting["taint"]]),
        json!(["exec", {"command": COMMAND}, "webhook:in:c", ["sender:webhook:in:stranger"]])
    );
    let time = |key: &str| waiting[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert!(time("expires") > time("created"), "{waiting}");
    assert_eq!(gateway.state("in", &id).await.text("status"), "waiting");
    let code = waiting["id"].as_str().unwrap();

    // Only the owner can answer, and nothing runs until then.
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
    let gateway = Gateway::start(Setup::owned_by_boss(&model)).await;
    let id = send(&gateway, "stranger", "c", "run").await;
    let code = gateway.wait_approval().await["id"].as_str().unwrap().to_owned();
    let result = send(&gateway, "boss", "office", &format!("/deny {code} not today")).await;
    assert_eq!(reply(&gateway, &result).await, format!("Denied: exec ({code})."));
    assert!(reply(&gateway, &id).await.contains("The owner denied exec: not today."));
    let late = send(&gateway, "boss", "office", &format!("/approve {code}")).await;
    assert_eq!(reply(&gateway, &late).await, format!("`{code}` is no longer open: denied."));
    for command in ["/approve", "/deny"] {
        let late = gateway.run(&["agent", "-m", &format!("{command} {code}")]).await;
        assert_eq!((late.code, late.stdout), (Some(1), format!("`{code}` is no longer open: denied.\n")), "{command}");
    }

    let gateway = Gateway::start(Setup::owned_by_boss(&model).set("approval.expires", "300ms")).await;
    let id = send(&gateway, "stranger", "c", "run").await;
    assert!(reply(&gateway, &id).await.contains("none came within 300ms"), "it expires");
    assert_eq!((runs(&gateway), pending(&gateway).await.len()), (0, 0));
}

/// Wherever the process dies, the call runs once after the owner's approval and never before it.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_survives_kills() {
    if bubblewrap_is_missing() {
        return;
    }
    for point in
        ["approval_asked=exec", "waiting_committed=please run it", "tool_started=exec", "tool_result_committed=exec"]
    {
        let model = obedient_model().await;
        let mut gateway = Gateway::new(Setup::owned_by_boss(&model));
        gateway.crash_at(point);
        gateway.up().await;
        let id = send(&gateway, "stranger", "c", "please run it").await;
        if point.starts_with("tool") {
            let code = gateway.wait_approval().await["id"].as_str().unwrap().to_owned();
            assert_eq!(gateway.run(&["approvals", "approve", &code]).await.code, Some(0));
            gateway.wait_crash().await;
            gateway.up().await;
        } else {
            gateway.wait_crash().await;
            // Approved while no gateway runs.
            let code = gateway.wait_approval().await["id"].as_str().unwrap().to_owned();
            assert_eq!(runs(&gateway), 0, "{point}");
            assert_eq!(gateway.run(&["approvals", "approve", &code]).await.code, Some(0));
            gateway.up().await;
        }
        let reply = reply(&gateway, &id).await;
        // A call that the death of the process interrupted does not run again.
        let expected = usize::from(point != "tool_started=exec");
        assert_eq!((runs(&gateway), pending(&gateway).await.len()), (expected, 0), "{point}: {reply}");
        wait_settled(&gateway.database()).await;
    }
}

/// An unanswered approval that expires while no gateway runs is ended by the next start.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_expires_while_no_gateway_runs() {
    let model = obedient_model().await;
    let mut gateway = Gateway::new(Setup::owned_by_boss(&model).set("approval.expires", "8s"));
    gateway.crash_at("waiting_committed=run");
    gateway.up().await;
    let id = send(&gateway, "stranger", "c", "run").await;
    gateway.wait_crash().await;
    let status = gateway.run(&["status"]).await;
    assert!(status.stdout.contains("1 call waits for your approval: `daoyou approvals list`"), "{status:?}");
    let expires: Timestamp = gateway.wait_approval().await["expires"].as_str().unwrap().parse().unwrap();
    until("its end", async || (Timestamp::now() > expires).then_some(())).await;
    gateway.up().await;
    assert!(reply(&gateway, &id).await.contains("none came within 8s"));
    assert_eq!((runs(&gateway), pending(&gateway).await.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_is_asked_where_notices_go_and_an_answer_may_hold_for_the_conversation() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = obedient_model().await;
    let setup = Setup::owned_by_boss(&model).hook(Hook::bearer("boss").trusting(&["boss"]));
    let gateway = Gateway::start(setup.set("owner.notify", "webhook:boss:desk")).await;
    let first = send(&gateway, "stranger", "c", "run").await;
    let code = gateway.wait_approval().await["id"].as_str().unwrap().to_owned();
    let notice = until("the notice", async || {
        let rows = Journal::read(&gateway.database()).unwrap().outbox;
        rows.iter().find(|row| row.chat_id == "desk").map(|row| row.body["content"].as_str().unwrap().to_owned())
    });
    let notice = notice.await;
    for words in ["exec", &code, COMMAND, "webhook:in:c", "sender:webhook:in:stranger"] {
        assert!(notice.contains(words), "{words}: {notice}");
    }
    let result = send(&gateway, "boss", "office", &format!("/approve {code} session")).await;
    assert!(reply(&gateway, &result).await.contains("also for the rest of that conversation"));
    assert!(reply(&gateway, &first).await.starts_with("result: "));
    let second = send(&gateway, "stranger", "c", "run").await;
    assert!(reply(&gateway, &second).await.starts_with("result: "));
    assert_eq!(runs(&gateway), 2);
    // Another conversation needs its own approval.
    send(&gateway, "stranger", "d", "run").await;
    gateway.wait_approval().await;
    assert_eq!(runs(&gateway), 2);
}

/// Neither the notice nor the list hides the end of a command behind blanks or a long text.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_sees_the_end_of_a_long_command() {
    let model = Model::start().await;
    let long = format!("echo safe{}{}; rm -rf x", " ".repeat(3_000), "; echo x".repeat(500));
    model.on("run", [Reply::tool("exec", &json!({ "command": long })), Reply::text("done")]);
    let setup = Setup::owned_by_boss(&model).hook(Hook::bearer("boss").trusting(&["boss"]));
    let gateway = Gateway::start(setup.set("owner.notify", "webhook:boss:desk")).await;
    send(&gateway, "stranger", "c", "run").await;
    let waiting = gateway.wait_approval().await;
    assert_eq!(waiting["arguments"]["command"], long);
    let shown = waiting["shown"]["arguments"].as_str().unwrap();
    assert!(
        shown.starts_with("{\"command\":\"echo safe[␠×3000]; echo x") && shown.ends_with("; rm -rf x\"}"),
        "{shown}"
    );
    assert_eq!(waiting["shown"]["taint"], json!(["\"sender:webhook:in:stranger\""]));
    let notice = until("the notice", async || {
        let rows = Journal::read(&gateway.database()).unwrap().outbox;
        rows.iter().find(|row| row.chat_id == "desk").map(|row| row.body["content"].as_str().unwrap().to_owned())
    });
    let notice = notice.await;
    for words in ["echo safe[␠×3000]; echo x", " characters left out]…", "; rm -rf x", "`daoyou approvals list`"] {
        assert!(notice.contains(words), "{words}: {notice}");
    }
    let list = gateway.run(&["approvals", "list"]).await.stdout;
    let arguments: String = list.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let shown = format!("echo safe[␠×3000]{}; rm -rf x", "; echo x".repeat(500));
    assert!(arguments.contains(&format!("\"command\":\"{shown}\"")), "{list}");
    assert!(list.contains("session: \"webhook:in:c\""), "{list}");
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
        // The setting `never` gives a sender no more rights than the question would.
        ("approval.tools.exec", "never", "stranger", "refused"),
    ] {
        let gateway = Gateway::start(Setup::owned_by_boss(&model).set(key, policy)).await;
        let id = send(&gateway, sender, "c", "run").await;
        if expected == "asks" {
            gateway.wait_approval().await;
            assert_eq!(runs(&gateway), 0, "{key} {policy}");
            // `/stop` ends the turn, and with it the question.
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

/// The action of one call in a random turn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Look,
    /// Reads a web page.
    Taint,
    Write,
    Schedule,
    Send,
}

/// Returns the calls of each response of a turn, derived from its number.
fn random_turn(number: usize) -> Vec<Vec<Action>> {
    const ACTIONS: [Action; 5] = [Action::Look, Action::Taint, Action::Write, Action::Schedule, Action::Send];
    let bytes = Sha256::digest(format!("turn {number}"));
    let actions: Vec<Action> = bytes[1..8].iter().map(|byte| ACTIONS[usize::from(*byte) % ACTIONS.len()]).collect();
    actions.chunks(1 + usize::from(bytes[0]) % 3).map(<[Action]>::to_vec).collect()
}

fn random_call(action: Action, label: &str, url: &str) -> (&'static str, Value) {
    match action {
        Action::Look => ("list_dir", json!({"path": "."})),
        Action::Taint => ("web_fetch", json!({ "url": url })),
        Action::Write => ("write_file", json!({"path": label, "content": "x"})),
        Action::Schedule => ("cron", json!({"action": "add", "prompt": "x", "every": "1d", "name": label})),
        Action::Send => ("message", json!({"content": label, "channel": "webhook:in", "chat_id": "other"})),
    }
}

/// For any order of clean and tainted results: an effect of a turn that has read the web happens if and only if the owner
/// approves that call.
#[tokio::test(flavor = "multi_thread")]
async fn no_order_of_reads_lets_an_effect_through() {
    let web = Web::start().await;
    web.put("/page", Page::html("<p>some page</p>"));
    let url = web.url("/page");
    let model = Model::start().await;
    model.script(|asked| {
        let (number, url) = asked.user.split_once(' ')?;
        let number: usize = number.parse().ok()?;
        let responses = random_turn(number);
        let Some(actions) = responses.get(asked.step) else { return Some(Reply::text("done")) };
        let calls = actions
            .iter()
            .enumerate()
            .map(|(at, action)| random_call(*action, &format!("turn-{number}-{}-{at}", asked.step), url));
        let mut reply: Option<Reply> = None;
        for (name, arguments) in calls {
            reply = Some(match reply {
                None => Reply::tool(name, &arguments),
                Some(reply) => reply.and_tool(name, &arguments),
            });
        }
        reply
    });
    let sink = Sink::signed().await;
    let setup = Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink).trusting(&[]));
    let setup = setup.set("owner.identities", vec!["webhook:in:boss"]);
    let gateway = Gateway::start(setup.set("tools.web.allow_private", vec!["127.0.0.1"])).await;
    let mut expected = BTreeSet::new();
    let mut asked_about = 0;
    for number in 0..16 {
        let id = send(&gateway, "boss", &format!("chat-{number}"), &format!("{number} {url}")).await;
        let mut is_tainted = false;
        for (step, actions) in random_turn(number).into_iter().enumerate() {
            for (at, action) in actions.into_iter().enumerate() {
                let label = format!("turn-{number}-{step}-{at}");
                is_tainted |= action == Action::Taint;
                if matches!(action, Action::Look | Action::Taint) {
                    continue;
                }
                if !is_tainted {
                    expected.insert(label);
                    continue;
                }
                let waiting = gateway.wait_approval().await;
                assert!(waiting["arguments"].to_string().contains(&label), "{label}: {waiting}");
                asked_about += 1;
                let verdict = if asked_about % 2 == 0 { "approve" } else { "deny" };
                let code = waiting["id"].as_str().unwrap();
                assert_eq!(gateway.run(&["approvals", verdict, code]).await.code, Some(0));
                if verdict == "approve" {
                    expected.insert(label);
                }
            }
        }
        assert_eq!(reply(&gateway, &id).await, "done", "turn {number}");
    }
    assert!(asked_about > 10, "the turns are of both kinds: {asked_about}");
    let files = std::fs::read_dir(gateway.workspace()).unwrap().map(|file| file.unwrap().file_name());
    let mut happened: BTreeSet<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    let jobs = gateway.json(&["cron", "list"]).await;
    happened.extend(jobs.as_array().unwrap().iter().filter_map(|job| job["name"].as_str()).map(str::to_owned));
    let rows = Journal::read(&gateway.database()).unwrap().outbox;
    happened.extend(rows.iter().filter_map(|row| row.body["content"].as_str()).map(str::to_owned));
    happened.retain(|label| label.starts_with("turn-"));
    assert_eq!(happened, expected);
}

/// A turn that has read the web may write in `scratch/` without approval. Whoever reads such a file later, with any tool,
/// has read untrusted content.
#[tokio::test(flavor = "multi_thread")]
async fn writes_to_the_scratch_folder_need_no_approval_and_stay_untrusted() {
    if bubblewrap_is_missing() {
        return;
    }
    let web = Web::start().await;
    web.put("/page", Page::html("<p>some page</p>"));
    let url = web.url("/page");
    let model = Model::start().await;
    model.script(move |asked| {
        let note = json!({"path": "scratch/note.txt", "content": "needle"});
        let calls: Vec<(&str, Value)> = match asked.user.as_str() {
            "keep it" => vec![("web_fetch", json!({ "url": url })), ("write_file", note)],
            "read" => vec![("read_file", json!({"path": "scratch/note.txt"}))],
            "grep" => vec![("grep", json!({"pattern": "needle"}))],
            "cat" => vec![("exec", json!({"command": "cat scratch/note.txt"}))],
            "all" => vec![("exec", json!({"command": "grep -rh needle . || echo nothing"}))],
            _ => return None,
        };
        let last = ("write_file", json!({"path": format!("{}.txt", asked.user), "content": "x"}));
        let call = calls.iter().chain((asked.user != "keep it").then_some(&last)).nth(asked.step);
        Some(match call {
            Some((name, arguments)) => Reply::tool(name, arguments),
            None => Reply::text(asked.body["messages"].to_string()),
        })
    });
    let gateway = Gateway::start(Setup::owned_by_boss(&model).set("tools.web.allow_private", vec!["127.0.0.1"])).await;
    let kept = send(&gateway, "boss", "keep", "keep it").await;
    reply(&gateway, &kept).await;
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("scratch/note.txt")).unwrap(), "needle");
    for (text, source) in
        [("read", "file:scratch/note.txt"), ("grep", "file:scratch/note.txt"), ("cat", "file:scratch")]
    {
        send(&gateway, "boss", text, text).await;
        let waiting = gateway.wait_approval().await;
        assert_eq!((&waiting["tool"], &waiting["taint"]), (&json!("write_file"), &json!([source])), "{text}");
        let code = waiting["id"].as_str().unwrap();
        assert_eq!(gateway.run(&["approvals", "deny", code]).await.code, Some(0));
        until("its end", async || pending(&gateway).await.is_empty().then_some(())).await;
    }
    // A command that does not name the folder cannot see it.
    let id = send(&gateway, "boss", "all", "all").await;
    assert!(reply(&gateway, &id).await.contains("nothing"));
    assert!(gateway.workspace().join("all.txt").exists() && !gateway.workspace().join("read.txt").exists());
}

/// With network, the output of a command may be the page of somebody.
#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_command_with_network_is_untrusted() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let exec = |command: &str| Reply::tool("exec", &json!({ "command": command }));
    model.on("fetch", [exec("echo page"), exec("touch ran"), Reply::text("done")]);
    let gateway = Gateway::start(Setup::owned_by_boss(&model).set("tools.exec.network", true)).await;
    let id = send(&gateway, "boss", "c", "fetch").await;
    let waiting = gateway.wait_approval().await;
    assert_eq!((&waiting["tool"], &waiting["taint"]), (&json!("exec"), &json!(["network"])));
    assert_eq!(gateway.run(&["approvals", "deny", waiting["id"].as_str().unwrap()]).await.code, Some(0));
    assert_eq!(reply(&gateway, &id).await, "done");
    assert!(!gateway.workspace().join("ran").exists());
}
