//! `ask_user`: the next message of the asked person is the answer, exactly once, even after a restart.

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::gateway::{HttpAnswer, Message};
use crate::support::invariants::{Journal, Witness, check, wait_settled};
use crate::support::model::last_text;
use crate::support::pty::Terminal;
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

const QUESTION: &str = "Which colour?";

/// Starts a model that asks when the message is "paint" or "paint twice", and repeats the answer.
async fn asking_model() -> Model {
    let model = Model::start().await;
    model.script(|asked| {
        let colour = json!({"question": QUESTION, "options": ["Blue", "Dark green"]});
        let painted = || Reply::text(format!("painted: {}", asked.results.join(" + ")));
        Some(match (asked.user.as_str(), asked.step) {
            ("paint", 0) => Reply::tool("ask_user", &colour),
            ("paint twice", 0) => {
                Reply::tool("ask_user", &colour).and_tool("ask_user", &json!({"question": "How large?"}))
            }
            ("paint" | "paint twice", _) => painted(),
            _ => Reply::text(format!("echo: {}", asked.user)),
        })
    });
    model
}

fn setup(model: &Model) -> Setup {
    Setup::new().model(model).hook(Hook::bearer("in").trusting(&["ann", "bob"]))
}

async fn send(gateway: &Gateway, sender: &str, text: &str) -> String {
    gateway.accept("in", &Message::new(text).chat("c").sender(sender)).await
}

/// Waits until the message's turn asks, and returns the question.
async fn question(gateway: &Gateway, id: &str) -> String {
    until("a question", async || {
        let state = gateway.state("in", id).await;
        let is_asked = state.text("status") == "waiting" && !state.text("question").is_empty();
        is_asked.then(|| state.text("question").to_owned())
    })
    .await
}

async fn reply(gateway: &Gateway, id: &str) -> String {
    let end = async || {
        let state = gateway.wait_done("in", id).await;
        (!state.text("reply").is_empty()).then(|| state.text("reply").to_owned())
    };
    until("the reply", end).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_of_the_asked_person_is_the_answer() {
    let model = asking_model().await;
    let sink = Sink::signed().await;
    let gateway =
        Gateway::start(setup(&model).hook(Hook::bearer("in").trusting(&["ann", "bob"]).callback(&sink))).await;
    let id = send(&gateway, "ann", "paint").await;
    assert_eq!(question(&gateway, &id).await, format!("{QUESTION}\n\n1. Blue\n2. Dark green"));
    let posted = sink.wait_posts(1).await;
    assert!(posted[0].data("content").starts_with(QUESTION), "{posted:?}");
    assert_eq!((posted[0].data("in_reply_to"), &posted[0].body["data"]["question"]), (id.as_str(), &json!(true)));

    // Another person's message, or a command, is not an answer.
    let other = send(&gateway, "bob", "2").await;
    let status = send(&gateway, "ann", "/status").await;
    assert!(reply(&gateway, &status).await.contains("daoyou"));
    assert_eq!(gateway.state("in", &id).await.text("status"), "waiting");
    let answer = Message::new("2").chat("c").sender("ann").id("a1");
    let first = gateway.post("in", "", &answer).await;
    let again = gateway.post("in", "", &answer).await;
    assert_eq!((first.text("status"), again.text("status")), ("accepted", "duplicate"));
    assert_eq!((first.text("id"), first.status), (again.text("id"), 202));
    assert_eq!(gateway.state("in", first.text("id")).await.text("status"), "done");
    assert_eq!(reply(&gateway, &id).await, "painted: Dark green");
    assert_eq!(reply(&gateway, &other).await, "echo: 2", "it had its turn behind the other");
    assert_eq!(gateway.ask("in", "c", "next").await, "echo: next");
    wait_settled(&gateway.database()).await;
    assert_eq!(model.refused(), Vec::<String>::new());
    let accepted = [id, other, first.text("id").to_owned()];
    check(&gateway.database(), &Witness { accepted: &accepted[..2], sink: Some(&sink), ..Witness::default() });
}

/// `?wait` shows the question, and for an answer waits for the reply of the turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_gets_the_question_and_then_the_reply() {
    let model = asking_model().await;
    let gateway = Gateway::start(setup(&model)).await;
    let post = async |text: &str| -> HttpAnswer {
        gateway.post("in", "?wait=30", &Message::new(text).chat("c").sender("ann")).await
    };
    let asked = post("paint twice").await;
    assert_eq!((asked.status, asked.text("status")), (202, "waiting"), "{asked:?}");
    assert!(asked.text("question").starts_with(QUESTION), "{asked:?}");
    let second = post("something else, 红").await;
    assert_eq!((second.text("status"), second.text("question")), ("waiting", "How large?"), "{second:?}");
    let done = post("huge").await;
    assert_eq!((done.status, done.text("reply")), (200, "painted: something else, 红 + huge"), "{done:?}");
    let rows = Journal::read(&gateway.database()).unwrap();
    let questions = rows.outbox.iter().filter(|row| row.slot.starts_with("question:")).count();
    assert_eq!((questions, rows.outbox.iter().filter(|row| row.slot == "reply").count()), (2, 1));
    gateway.check_settled(&Witness::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_ends_with_stop_or_expires() {
    let model = asking_model().await;
    let gateway = Gateway::start(setup(&model)).await;
    let id = send(&gateway, "ann", "paint").await;
    question(&gateway, &id).await;
    let stop = send(&gateway, "ann", "/stop").await;
    // The next message right after the answer is a separate message.
    let next = send(&gateway, "ann", "2").await;
    assert_eq!(reply(&gateway, &next).await, "echo: 2");
    assert!(!reply(&gateway, &stop).await.is_empty());
    assert_eq!(gateway.wait_done("in", &id).await.body["error"]["code"], "stopped");

    let gateway = Gateway::start(setup(&model).set("approval.expires", "300ms")).await;
    let id = send(&gateway, "ann", "paint").await;
    assert!(reply(&gateway, &id).await.contains("no answer came within 300ms"));
    assert_eq!(gateway.ask("in", "c", "2").await, "echo: 2");
}

/// Wherever the process dies, the question is sent once, and the answer is used once.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_survives_kills() {
    for point in [
        "response_committed",
        "question_asked=Which",
        "waiting_committed=paint",
        "sending_committed",
        "accept_before_commit=blue",
        "answer_committed=blue",
        "tool_finished=ask_user",
        "tool_result_committed=ask_user",
    ] {
        let model = asking_model().await;
        let mut gateway = Gateway::new(setup(&model));
        gateway.crash_at(point).up().await;
        let answer = Message::new("blue").chat("c").sender("ann").id("a1");
        let id = send(&gateway, "ann", "paint").await;
        if ["response", "question", "waiting", "sending"].iter().any(|begin| point.starts_with(begin)) {
            gateway.wait_crash().await;
            gateway.up().await;
        }
        assert!(question(&gateway, &id).await.starts_with(QUESTION), "{point}");
        let first = gateway.try_post("in", "", &answer).await;
        if ["accept", "answer", "tool"].iter().any(|begin| point.starts_with(begin)) {
            gateway.wait_crash().await;
            gateway.up().await;
        }
        let again = gateway.post("in", "", &answer).await;
        let expected = if point.starts_with("accept") { "accepted" } else { "duplicate" };
        assert_eq!((again.status, again.text("status")), (202, expected), "{point}");
        assert!(first.is_none_or(|first| first.text("id") == again.text("id")), "{point}");
        assert_eq!(reply(&gateway, &id).await, "painted: Blue", "{point}");
        wait_settled(&gateway.database()).await;
        let asked = Journal::read(&gateway.database()).unwrap().outbox;
        assert_eq!(asked.iter().filter(|row| row.slot.starts_with("question:")).count(), 1, "{point}");
        assert_eq!((model.count(), model.refused()), (2, Vec::new()), "{point}");
        check(&gateway.database(), &Witness { accepted: &[id], ..Witness::default() });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_nobody_can_answer_does_not_wait() {
    let model = asking_model().await;
    let sink = Sink::signed().await;
    let setup = Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink).trusting(&["*"]));
    let gateway = Gateway::start(setup).await;
    let add = ["cron", "add", "--name", "n", "--every", "12h", "--prompt", "paint", "--channel", "webhook:in"];
    assert_eq!(gateway.run(&[&add[..], &["--chat", "c"]].concat()).await.code, Some(0));
    assert_eq!(gateway.run(&["cron", "run", "n"]).await.code, Some(0));
    let text = until("the result of the job's call", async || {
        let last = model.requests_about("paint").last().cloned()?;
        let result = last_text(&last).to_owned();
        result.starts_with("Error").then_some(result)
    });
    let text: String = text.await;
    assert!(text.contains("nobody can answer in this turn"), "{text}");
}

/// The answer of an untrusted sender is untrusted text and taints the turn, as the message itself did.
#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_sender_may_be_asked() {
    let model = asking_model().await;
    let gateway = Gateway::start(setup(&model)).await;
    let id = send(&gateway, "stranger", "paint").await;
    question(&gateway, &id).await;
    send(&gateway, "stranger", "1").await;
    assert_eq!(reply(&gateway, &id).await, "painted: Blue");
    let turn = gateway.json(&["turns", "show", &id]).await;
    let result = turn["steps"].as_array().unwrap().iter().find(|step| step["kind"] == "tool_result").unwrap();
    assert_eq!(result["body"]["result"]["metadata"]["taint"], json!(["sender:webhook:in:stranger"]), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_asks_and_takes_the_next_line() {
    let model = asking_model().await;
    let gateway = Gateway::start(Setup::new().model(&model).env("NO_COLOR", "1")).await;
    block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("paint");
        terminal.expect(QUESTION);
        terminal.expect("2. Dark green");
        terminal.expect("You> ");
        terminal.line("2");
        terminal.expect("painted: Dark green");
        terminal.expect("You> ");
        terminal.line("/exit");
        terminal.wait_exit();
    });
    // Without a terminal, each line is a message.
    let piped = gateway.run_with_input(&["chat", "--session", "cli:pipe"], "paint\nblue\nnext\n").await;
    assert_eq!(piped.code, Some(0), "{piped:?}");
    let lines: Vec<_> = piped.stdout.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(lines.join("|").ends_with("painted: Blue|echo: next"), "{piped:?}");
}

/// Each process sends one message, with and without a gateway.
#[tokio::test(flavor = "multi_thread")]
async fn one_shot_messages_ask_and_answer() {
    let model = asking_model().await;
    let mut gateway = Gateway::start(Setup::new().model(&model)).await;
    for is_running in [true, false] {
        let asked = gateway.run(&["agent", "-m", "paint"]).await;
        assert_eq!(asked.code, Some(76), "{asked:?}");
        assert_eq!(asked.stdout, format!("{QUESTION}\n\n1. Blue\n2. Dark green\n"));
        let answered: Value = gateway.json(&["agent", "-m", "1"]).await;
        assert_eq!(answered["reply"], "painted: Blue", "{answered}");
        if is_running {
            gateway.stop().await;
        }
    }
}
