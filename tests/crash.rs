//! The process dies at every point of a message's life, and the next start behaves as ARCHITECTURE.md says.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, check, wait_settled};
use crate::support::model::{last_text, user_messages};
use crate::support::processes::unique_sleep;
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

/// A row of the table: the point at which the process dies, and the expected end state.
struct Row {
    point: &'static str,
    /// How often the command may have run: exactly once, or at most once.
    ran: std::ops::RangeInclusive<usize>,
    /// The command's result as the model gets it.
    result: &'static str,
    /// The number of model calls: the answer is stored with the end of the turn, so a model is asked for it again before that.
    calls: usize,
    /// The number of posted callbacks, all under one id.
    posts: usize,
}

const UNKNOWN: &str = "interrupted";
const DONE: &str = "it-is-done";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { point: "accept_before_commit",     ran: 1..=1, result: DONE,    calls: 2, posts: 1 },
    Row { point: "accept_committed",         ran: 1..=1, result: DONE,    calls: 2, posts: 1 },
    Row { point: "turn_started",             ran: 1..=1, result: DONE,    calls: 2, posts: 1 },
    Row { point: "response_committed",       ran: 1..=1, result: DONE,    calls: 2, posts: 1 },
    Row { point: "tool_started",             ran: 0..=0, result: UNKNOWN, calls: 2, posts: 1 },
    Row { point: "tool_finished",            ran: 1..=1, result: UNKNOWN, calls: 2, posts: 1 },
    Row { point: "tool_result_committed",    ran: 1..=1, result: DONE,    calls: 2, posts: 1 },
    Row { point: "final_response_received",  ran: 1..=1, result: DONE,    calls: 3, posts: 1 },
    Row { point: "end_committed",            ran: 1..=1, result: DONE,    calls: 2, posts: 1 },
    Row { point: "sending_committed",        ran: 1..=1, result: DONE,    calls: 2, posts: 1 },
    Row { point: "sent_unmarked",            ran: 1..=1, result: DONE,    calls: 2, posts: 2 },
];

/// Returns how often the user's message occurs in a request.
fn count_occurrences(request: &Value, text: &str) -> usize {
    user_messages(request).into_iter().filter(|message| *message == text).count()
}

async fn check_crash_point(row: &Row) {
    let model = Model::start().await;
    let command = json!({"command": format!("echo x >> effects.txt && echo {DONE}")});
    model.on("work", [Reply::tool("exec", &command), Reply::text("finished")]);
    let sink = Sink::signed().await;
    let mut gateway = Gateway::new(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)));
    gateway.crash_at(row.point).up().await;
    let message = Message::new("work").chat("c").id("m1");
    let first = gateway.try_post("in", "", &message).await;
    gateway.wait_crash().await;
    gateway.recover().await;

    // A sender without an answer repeats its message; a sender with one may repeat it too.
    let again = gateway.post("in", "", &message).await;
    let status = if row.point == "accept_before_commit" { "accepted" } else { "duplicate" };
    assert_eq!((again.status, again.text("status")), (202, status), "{}: {again:?}", row.point);
    let id = again.text("id").to_owned();
    assert!(first.is_none_or(|first| first.text("id") == id), "{}: the id has changed", row.point);

    sink.wait_reply(&id).await;
    wait_settled(&gateway.database()).await;
    let posts = sink.posts();
    assert_eq!(posts.len(), row.posts, "{}: {posts:?}", row.point);
    assert!(posts.iter().all(|post| post.data("content") == "finished"), "{}: {posts:?}", row.point);
    let effects = std::fs::read_to_string(gateway.workspace().join("effects.txt")).unwrap_or_default();
    assert!(row.ran.contains(&effects.lines().count()), "{}: the command ran {effects:?}", row.point);

    let requests = model.requests();
    assert_eq!((requests.len(), model.refused()), (row.calls, Vec::new()), "{}: {requests:?}", row.point);
    let last = last_text(&requests[1]);
    assert!(last.contains(row.result), "{}: {last}", row.point);
    assert!(requests.iter().all(|request| count_occurrences(request, "work") == 1), "{}: {requests:?}", row.point);
    check(&gateway.database(), &Witness { accepted: &[id], sink: Some(&sink), strict_order: true });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_while_accepting_a_message_loses_nothing() {
    if bubblewrap_is_missing() {
        return;
    }
    for row in &TABLE[..2] {
        check_crash_point(row).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_a_turn_resumes_from_its_journal() {
    if bubblewrap_is_missing() {
        return;
    }
    for row in &TABLE[2..8] {
        check_crash_point(row).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_around_delivery_sends_again_under_the_same_id() {
    if bubblewrap_is_missing() {
        return;
    }
    for row in &TABLE[8..] {
        check_crash_point(row).await;
    }
}

/// After a kill during a model call the call is repeated, and the request contains the user's message once.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_a_model_call_repeats_only_that_call() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("think", [Reply::text("thought").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("think").chat("c")).await;
    gate.wait_arrived(1).await;
    let behind = gateway.accept("in", &Message::new("behind").chat("c")).await;
    gateway.restart().await;
    gate.wait_arrived(2).await;
    gate.open();
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "thought");
    assert_eq!(gateway.wait_done("in", &behind).await.text("reply"), "echo: behind");
    assert_eq!((model.count(), count_occurrences(&model.requests()[1], "think")), (3, 1));
    gateway.check_settled(&Witness { accepted: &[id, behind], ..Witness::default() }).await;
}

/// Commands show the turn that a killed gateway left as interrupted, and as running while a gateway continues it.
#[tokio::test(flavor = "multi_thread")]
async fn the_turn_of_a_killed_gateway_is_shown_as_interrupted() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("think", [Reply::text("thought").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("think").chat("c")).await;
    gate.wait_arrived(1).await;
    for (starts, state, other) in [(1, "running", "interrupted"), (2, "interrupted", "running")] {
        if starts == 2 {
            gateway.kill9().await;
        }
        for command in [&["status"][..], &["turns", "list"], &["turns", "show", &id]] {
            let shown = gateway.run(command).await.stdout;
            let line = shown.lines().find(|line| line.contains(&id)).unwrap_or_default();
            assert!(line.contains(state) && !line.contains(other), "{command:?}: {shown}");
        }
    }
}

/// A message that crashes the process each time is given up, its sender is notified, and later messages continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_keeps_crashing_the_gateway_is_given_up() {
    let model = Model::start().await;
    let mut gateway = Gateway::new(Setup::scripted(&model));
    gateway.crash_at("turn_started=poison").up().await;
    let poison = gateway.try_post("in", "", &Message::new("poison").chat("c").id("p")).await;
    gateway.wait_crash().await;
    for _ in 0..2 {
        gateway.crash_at("turn_started=poison").spawn();
        gateway.wait_crash().await;
    }
    gateway.crash_at("turn_started=poison").up().await;
    let id = gateway.post("in", "", &Message::new("poison").chat("c").id("p")).await.text("id").to_owned();
    assert!(poison.is_none_or(|first| first.text("id") == id));
    let state = gateway.wait_done("in", &id).await;
    assert_eq!(state.text("status"), "dead", "{state:?}");
    assert!(state.body["error"]["code"].is_string() && !state.text("reply").is_empty(), "{state:?}");
    assert_eq!(gateway.ask("in", "c", "still there?").await, "echo: still there?");
    gateway.check_settled(&Witness { accepted: &[id], ..Witness::default() }).await;
}

/// SIGTERM: running turns may finish, no message is accepted, and the exit code is 0. Unfinished turns continue later.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_running_turns_and_keeps_the_rest() {
    let model = Model::start().await;
    let (quick, stuck) = (Gate::new(), Gate::new());
    model.on("quick", [Reply::text("quick done").held_by(&quick)]);
    model.on("stuck", [Reply::text("stuck done").held_by(&stuck)]);
    let setup = Setup::scripted(&model).set("gateway.drain_timeout", "4s");
    let mut gateway = Gateway::start(setup).await;
    let finishes = gateway.accept("in", &Message::new("quick").chat("a")).await;
    let stays = gateway.accept("in", &Message::new("stuck").chat("b")).await;
    quick.wait_arrived(1).await;
    stuck.wait_arrived(1).await;
    gateway.sigterm();
    quick.open();
    assert_eq!(gateway.wait_exit().await.code(), Some(0));
    let asked = model.requests_about("quick").len();
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &finishes).await.text("reply"), "quick done");
    assert_eq!(model.requests_about("quick").len(), asked, "what finished while draining is not done again");
    stuck.open();
    assert_eq!(gateway.wait_done("in", &stays).await.text("reply"), "stuck done");
    gateway.check_settled(&Witness { accepted: &[finishes, stays], ..Witness::default() }).await;
}

/// Repeated kills from outside while a message waits for the model do not count against the message, which is answered in the end.
#[tokio::test(flavor = "multi_thread")]
async fn kills_while_waiting_for_the_model_do_not_count_against_a_message() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("at last").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("slow").chat("c")).await;
    for round in 1..=6 {
        gate.wait_arrived(round).await;
        gateway.restart().await;
    }
    gate.open();
    let state = gateway.wait_done("in", &id).await;
    assert_eq!((state.text("status"), state.text("reply")), ("done", "at last"), "{state:?}");
}

/// After a kill during a command, no process of it keeps running, the command is not repeated, and the model learns that
/// its outcome is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_a_command_reports_an_unknown_outcome() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let long = unique_sleep(9879);
    let command = format!("echo begun >> effects.txt; (sleep {long} &) ; sleep {long}; echo ended >> effects.txt");
    model.on("work", [Reply::tool("exec", &json!({"command": command})), Reply::text("finished")]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    let sleeping = format!("sleep\0{long}\0");
    until("the command to run", async || (count_running(&sleeping) >= 2).then_some(())).await;
    gateway.kill9().await;
    until("all of the command to end", async || (count_running(&sleeping) == 0).then_some(())).await;
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "finished");
    let effects = std::fs::read_to_string(gateway.workspace().join("effects.txt")).unwrap();
    assert_eq!(effects, "begun\n", "the command ran once, and not to its end");
    let requests = model.requests();
    let result = last_text(&requests[1]);
    assert!(result.contains(UNKNOWN), "{result}");
    assert_eq!((requests.len(), model.refused()), (2, Vec::new()));
    gateway.check_settled(&Witness { accepted: &[id], ..Witness::default() }).await;
}

/// Counts the processes with this command line, its arguments terminated by zero bytes.
fn count_running(line: &str) -> usize {
    let is_it = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|words| words == line.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is_it).count()
}
