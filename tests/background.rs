//! Commands in the background, through the real program, the real supervisor, and a scripted model.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, open, wait_settled};
use crate::support::model::last_text;
use crate::support::processes::{is_running, unique_sleep};
use crate::support::requirements::{bubblewrap_is_missing, has_namespaces, skip_story};
use crate::support::sink::Post;
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

/// The beginning of an announcement.
const ENDED: &str = "[background process ";

struct Harness {
    model: Model,
    sink: Sink,
    gateway: Gateway,
}

impl Harness {
    /// Starts a gateway whose owner writes as `ann`. Commands run without a sandbox, so that all kernels behave alike.
    async fn start(change: impl FnOnce(Setup) -> Setup) -> Self {
        let (model, sink) = (Model::start().await, Sink::signed().await);
        let setup = Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink));
        let setup = setup.set("tools.exec.sandbox", "off").set("owner.identities", vec!["webhook:in:ann"]);
        let gateway = Gateway::start(change(setup)).await;
        Self { model, sink, gateway }
    }

    /// Sends a message as `sender` in `chat`, to which the agent responds with this call. Returns the result of the call.
    async fn call(&self, (sender, chat): (&str, &str), tool: &str, arguments: &Value) -> String {
        let word = format!("please {}", self.model.count());
        self.model.on(&word, [Reply::tool(tool, arguments), Reply::text("done")]);
        let id = self.gateway.accept("in", &Message::new(&word).chat(chat).sender(sender)).await;
        self.sink.wait_reply(&id).await;
        let requests = self.model.requests_about(&word);
        last_text(requests.last().expect("a request about the command")).to_owned()
    }

    async fn exec(&self, arguments: &Value) -> String {
        self.call(("ann", "c"), "exec", arguments).await
    }

    async fn process(&self, arguments: &Value) -> String {
        self.call(("ann", "c"), "process", arguments).await
    }

    /// Starts a command in the background and returns its id.
    async fn start_command(&self, command: &str) -> String {
        let result = self.exec(&json!({ "command": command, "background": true })).await;
        assert!(result.starts_with("Started in background (id: "), "{result}");
        id_in(&result)
    }

    fn announcements(&self) -> Vec<Post> {
        let posts = self.sink.posts().into_iter();
        posts.filter(|post| post.data("content").starts_with(&format!("echo: {ENDED}"))).collect()
    }

    /// Waits for `count` announcements that were answered in the chat; returns their texts.
    async fn wait_announcements(&self, count: usize) -> Vec<String> {
        let what = format!("{count} announcements");
        let enough = async || (self.announcements().len() >= count).then(|| self.announcements());
        let found = until(&what, enough).await;
        wait_settled(&self.gateway.database()).await;
        assert_eq!(self.announcements().len(), count, "each is announced once: {:?}", self.announcements());
        found.iter().map(|post| post.data("content").trim_start_matches("echo: ").to_owned()).collect()
    }

    /// Checks all invariants.
    async fn check(&self) {
        self.gateway.check_settled(&Witness::default()).await;
        assert_eq!(self.model.refused(), Vec::<String>::new());
    }
}

/// Returns the id in the result of a start.
fn id_in(text: &str) -> String {
    let rest = text.split_once("(id: ").or_else(|| text.split_once("id is ")).map_or("", |(_, rest)| rest);
    rest.chars().take_while(char::is_ascii_alphanumeric).collect()
}

fn pid_in(text: &str) -> String {
    let rest = text.split_once("pid: ").map_or("", |(_, rest)| rest);
    rest.chars().take_while(char::is_ascii_digit).collect()
}

async fn wait_running(mark: &str, expected: bool) {
    until("a process to come or go", async || (is_running(mark) == expected).then_some(())).await;
}

/// The start returns at once. The command is listed, readable, and announced in its chat when it ends, without secrets.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_background_command_is_announced_in_its_chat() {
    let harness = Harness::start(|setup| setup).await;
    let command = "echo one; cat ../token; while [ ! -e go ]; do sleep 0.02; done; echo two >&2; exit 3";
    let result = harness.exec(&json!({ "command": command, "background": true, "label": "build it" })).await;
    let (id, pid) = (id_in(&result), pid_in(&result));
    assert_eq!(result, format!("Started in background (id: {id}, pid: {pid}), build it. Its end is announced."));
    assert_eq!(id.len(), 6);
    assert_eq!(harness.announcements().len(), 0);

    let listed = harness.process(&json!({ "action": "list" })).await;
    assert!(listed.starts_with(&format!("- {id} \"build it\": runs for ")), "{listed}");
    assert!(listed.contains(&format!("pid {pid}: echo one; cat ../token")), "{listed}");
    let printed = until("the first lines", async || {
        let printed = harness.process(&json!({ "action": "output", "id": id })).await;
        printed.contains("All that it printed:\none\n").then_some(printed)
    });
    let token = harness.gateway.token();
    assert!(!printed.await.contains(&token));
    let status = harness.gateway.json(&["status"]).await;
    assert_eq!(
        (status["processes"][0]["id"].as_str(), status["processes"].as_array().unwrap().len()),
        (Some(id.as_str()), 1)
    );
    let shown = harness.gateway.run(&["status"]).await.stdout;
    assert!(shown.contains(&format!("runs      {id} build it, ")), "{shown}");

    fs::write(harness.gateway.workspace().join("go"), "").unwrap();
    let announced = harness.wait_announcements(1).await;
    let (head, rest) = announced[0].split_once('\n').unwrap();
    assert!(head.starts_with(&format!("{ENDED}{id} \"build it\" ended: exit 3 after ")), "{head}");
    assert!(rest.contains(&format!("-owner/background/{id}.txt):\none\n")) && rest.ends_with("two"), "{rest}");
    assert!(!rest.contains(&token), "{rest}");
    let post = harness.announcements().remove(0);
    assert_eq!((post.data("chat_id"), post.data("session"), post.faults.len()), ("c", "webhook:in:c", 0));
    let listed = harness.process(&json!({ "action": "list" })).await;
    assert!(listed.starts_with(&format!("- {id} \"build it\": exit 3, after ")), "{listed}");
    assert_eq!(harness.gateway.json(&["status"]).await["processes"], json!([]));
    harness.check().await;
}

/// Without a callback, the end of a command is fetched with the state of the message whose turn started it.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_command_is_fetched_with_the_message_that_started_it() {
    let model = Model::start().await;
    model.on(
        "make it",
        [Reply::tool("exec", &json!({"command": "echo made", "background": true})), Reply::text("soon")],
    );
    let gateway = Gateway::start(Setup::owned_by_boss(&model).set("tools.exec.sandbox", "off")).await;
    let id = gateway.accept("in", &Message::new("make it").chat("c").sender("boss")).await;
    let state = until("the end of the command", async || {
        let state = gateway.state("in", &id).await.body;
        (state["follow_ups"][0]["status"] == "done").then_some(state)
    })
    .await;
    let later = state["follow_ups"][0]["reply"].as_str().unwrap();
    assert!(later.starts_with(&format!("echo: {ENDED}")) && later.ends_with("made"), "{later}");
}

/// A command killed by the tool is not announced; a command that times out is.
#[tokio::test(flavor = "multi_thread")]
async fn a_background_command_is_killed_on_request_and_at_its_timeout() {
    let harness = Harness::start(|setup| setup.set("tools.exec.background_timeout", "1s")).await;
    let mark = unique_sleep(8871);
    let id = harness.start_command(&format!("sleep {mark}; echo never")).await;
    let announced = harness.wait_announcements(1).await;
    assert!(
        announced[0].starts_with(&format!("{ENDED}{id} ended: killed, as its time of 1s was up]")),
        "{announced:?}"
    );
    assert!(!is_running(&mark));

    harness.check().await;
    let harness = Harness::start(|setup| setup).await;
    let stubborn = format!("trap '' TERM; setsid sleep {mark} & while :; do sleep 0.02; done");
    for (command, how) in [
        (stubborn.as_str(), "killed on request (signal 9)"),
        ("trap 'echo bye; exit 0' TERM; touch ready; while :; do sleep 0.02; done", "ended on request (exit 0)"),
    ] {
        let id = harness.start_command(command).await;
        if command == stubborn {
            wait_running(&mark, true).await;
        } else {
            until("its trap", async || harness.gateway.workspace().join("ready").exists().then_some(())).await;
        }
        assert_eq!(harness.process(&json!({ "action": "kill", "id": id })).await, format!("{id}: {how}."));
        assert!(!is_running(&mark));
        let again = harness.process(&json!({ "action": "kill", "id": id })).await;
        assert!(again.starts_with(&format!("{id} runs no more: {how}, after ")), "{again}");
        let printed = harness.process(&json!({ "action": "output", "id": id, "lines": 1 })).await;
        assert_eq!(printed.contains("bye"), command != stubborn, "{printed}");
    }
    let wrong = harness.process(&json!({ "action": "kill", "id": "nobody" })).await;
    assert!(wrong.contains("There is no background process \"nobody\""), "{wrong}");
    assert_eq!(harness.announcements().len(), 0);
    harness.check().await;
}

/// After a kill or a stop, no command outlives the gateway, and the next gateway tells the session once.
#[tokio::test(flavor = "multi_thread")]
async fn background_commands_end_with_the_gateway_and_the_next_start_reports_it() {
    for (number, way) in ["killed", "stopped", "crashed"].into_iter().enumerate() {
        let mut harness = Harness::start(|setup| setup).await;
        let mark = unique_sleep(8880 + u32::try_from(number).unwrap());
        let command = format!("trap '' HUP; echo begun; setsid sleep {mark} & sleep {mark}");
        let id = if way == "crashed" {
            harness.gateway.stop().await;
            harness.gateway.crash_at("tool_finished=exec").up().await;
            let arguments = json!({ "command": command, "background": true });
            harness.model.on("start", [Reply::tool("exec", &arguments), Reply::text("I do not know")]);
            harness.gateway.accept("in", &Message::new("start").chat("c").sender("ann")).await;
            harness.gateway.wait_crash().await;
            let sql = "SELECT id FROM processes";
            open(&harness.gateway.database()).unwrap().query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
        } else {
            let id = harness.start_command(&command).await;
            wait_running(&mark, true).await;
            if way == "killed" {
                harness.gateway.kill9().await;
            } else {
                harness.gateway.stop().await;
                assert!(!is_running(&mark), "an orderly stop waits for it");
            }
            id
        };
        wait_running(&mark, false).await;
        harness.gateway.up().await;
        let announced = harness.wait_announcements(1).await;
        let expected = format!("{ENDED}{id} ended: interrupted: the gateway stopped while it ran]");
        assert!(announced[0].starts_with(&expected), "{way}: {announced:?}");
        harness.gateway.restart().await;
        let listed = harness.process(&json!({ "action": "list" })).await;
        assert!(listed.contains("interrupted"), "{way}: {listed}");
        assert_eq!(harness.wait_announcements(1).await.len(), 1, "{way}");
        harness.check().await;
    }
}

/// If the supervisor is killed too, the next gateway ends the command.
#[tokio::test(flavor = "multi_thread")]
async fn orphaned_background_commands_are_ended_at_the_next_start() {
    let mut harness = Harness::start(|setup| setup).await;
    let mark = unique_sleep(8890);
    let command = format!("trap '' TERM HUP; sleep {mark}; sleep {mark}");
    let result = harness.exec(&json!({ "command": command, "background": true })).await;
    wait_running(&mark, true).await;
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid_in(&result))).unwrap();
    let parent: i32 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    harness.gateway.kill9().await;
    kill_process(Pid::from_raw(parent).unwrap(), Signal::KILL).unwrap();
    assert!(is_running(&mark));
    harness.gateway.up().await;
    let announced = harness.wait_announcements(1).await;
    assert!(announced[0].contains(&format!("{} ended: interrupted", id_in(&result))), "{announced:?}");
    assert!(!is_running(&mark));
    harness.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn background_commands_are_limited_in_number_and_output() {
    let harness =
        Harness::start(|setup| setup.set("tools.exec.background", 1).set("tools.exec.background_output", "200KB"));
    let harness = harness.await;
    let id = harness.start_command("yes | head -c 5000000; echo last; while [ ! -e go ]; do sleep 0.02; done").await;
    let refused = harness.exec(&json!({ "command": "true", "background": true })).await;
    let expected = format!("1 processes run in the background, and the maximum is 1: {id} (yes | head");
    assert!(refused.contains(&expected) && refused.contains("process kill"), "{refused}");
    let printed = until("the end of the output", async || {
        let printed = harness.process(&json!({ "action": "output", "id": id, "lines": 2 })).await;
        printed.ends_with("y\nlast").then_some(printed)
    });
    let printed = printed.await;
    let path = printed.split_once("The end of ").and_then(|(_, rest)| rest.split_once(" (")).expect("its path").0;
    assert!(
        path.starts_with(".daoyou/conversations/") && path.ends_with(&format!("/background/{id}.txt")),
        "{printed}"
    );
    let file = fs::read_to_string(harness.gateway.workspace().join(path)).unwrap();
    assert!(file.len() <= 200_000 && file.len() > 190_000, "{}", file.len());
    assert!(file.starts_with("y\ny\n") && file.contains(" bytes left out ...]\n"));
    fs::write(harness.gateway.workspace().join("go"), "").unwrap();
    let announced = harness.wait_announcements(1).await;
    assert!(announced[0].ends_with("y\ny\nlast") && announced[0].len() < 500, "{announced:?}");
    harness.start_command("true").await;
    harness.wait_announcements(2).await;
    harness.check().await;
}

/// Only the owner can detach commands. A detached command outlives the gateway and is known to the next one. Its end on request
/// of its own session is not announced.
#[tokio::test(flavor = "multi_thread")]
async fn detached_commands_outlive_the_gateway() {
    let mut harness = Harness::start(|setup| setup).await;
    let mark = unique_sleep(8895);
    let arguments = json!({ "command": format!("echo free; sleep {mark}"), "label": "server", "detach": true });
    let refused = harness.call(("bob", "b"), "exec", &arguments).await;
    assert!(refused.contains("only the owner can detach"), "{refused}");
    let result = harness.exec(&arguments).await;
    let (id, pid) = (id_in(&result), pid_in(&result));
    let expected =
        format!("Spawned in background (pid: {pid}) [server]. Process will run independently. Its id is {id}.");
    assert_eq!(result, expected);
    wait_running(&mark, true).await;
    for way in ["stopped", "killed"] {
        match way {
            "stopped" => harness.gateway.stop().await,
            _ => harness.gateway.kill9().await,
        }
        harness.gateway.up().await;
        assert!(is_running(&mark), "{way}");
        let listed = harness.process(&json!({ "action": "list" })).await;
        assert!(listed.contains(&format!("- {id} \"server\": runs for ")) && listed.contains("detached"), "{listed}");
        assert_eq!(harness.gateway.json(&["status"]).await["processes"][0]["detached"], true);
    }
    let printed = harness.process(&json!({ "action": "output", "id": id })).await;
    assert!(printed.ends_with("All that it printed:\nfree"), "{printed}");
    assert_eq!(
        harness.process(&json!({ "action": "kill", "id": id })).await,
        format!("{id} \"server\": killed on request.")
    );
    wait_running(&mark, false).await;
    assert_eq!(harness.announcements().len(), 0);
    harness.check().await;
}

/// The end of a detached command is announced by a later gateway, whether that one runs by then or starts after it. How long the
/// command ran is not known.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_detached_command_is_announced_after_a_restart() {
    let mut harness = Harness::start(|setup| setup).await;
    let mut ids = Vec::new();
    for file in ["first", "second"] {
        let mark = format!("while [ ! -e {file} ]; do sleep 0.02; done; echo {file} is done");
        ids.push(id_in(&harness.exec(&json!({ "command": mark, "detach": true })).await));
    }
    harness.gateway.stop().await;
    harness.gateway.up().await;
    fs::write(harness.gateway.workspace().join("first"), "").unwrap();
    harness.wait_announcements(1).await;
    harness.gateway.stop().await;
    fs::write(harness.gateway.workspace().join("second"), "").unwrap();
    harness.gateway.up().await;
    let announced = harness.wait_announcements(2).await;
    for (id, (text, file)) in ids.iter().zip(announced.iter().zip(["first", "second"])) {
        assert!(text.contains(&format!("{ENDED}{id} ended: its exit code is not known")), "{announced:?}");
        assert!(text.ends_with(&format!("{file} is done")) && !text.contains(" after "), "{announced:?}");
    }
    let listed = harness.process(&json!({ "action": "list" })).await;
    assert_eq!(listed.matches("ended; its exit code is not known; this was noticed ").count(), 2, "{listed}");
    harness.check().await;
}

/// No call waits for the command, but it runs in the sandbox too.
#[tokio::test(flavor = "multi_thread")]
async fn background_commands_run_in_the_sandbox() {
    if bubblewrap_is_missing() {
        return;
    }
    if !daoyou::guard::status().is_enough() {
        return skip_story(&daoyou::guard::status().to_string());
    }
    let harness = Harness::start(|setup| setup.set("tools.exec.sandbox", "auto")).await;
    let command = "cat ../token; echo x > ../escaped; echo kept > inside; cat inside; echo end";
    for (number, how) in ["background", "detach"].into_iter().enumerate() {
        let result = harness.exec(&json!({ "command": command, how: true })).await;
        let printed = harness.wait_announcements(number + 1).await;
        assert!(printed[number].contains(&format!("{ENDED}{} ended: exit 0 after", id_in(&result))), "{printed:?}");
        assert!(printed[number].ends_with("kept\nend"), "{printed:?}");
        let refused =
            ["Permission denied", "No such file", "Read-only"].map(|why| printed[number].matches(why).count());
        assert_eq!(refused.iter().sum::<usize>(), 2, "{how}: {printed:?}");
        assert!(!harness.gateway.home().join("escaped").exists(), "{how}");
    }
    harness.check().await;
}

/// A known sender sees the processes of their own conversation; the owner sees all.
#[tokio::test(flavor = "multi_thread")]
async fn each_sender_sees_only_processes_of_their_conversation() {
    if !has_namespaces() {
        return;
    }
    let setting = |setup: Setup| setup.set("tools.exec.background", 2).set("tools.exec.sandbox", "auto");
    let harness = Harness::start(setting).await;
    let wait = json!({ "command": "while [ ! -e go ]; do sleep 0.02; done", "background": true, "label": "hers" });
    let (hers, his) = (id_in(&harness.exec(&wait).await), id_in(&harness.call(("bob", "b"), "exec", &wait).await));
    let list = json!({ "action": "list" });
    let (all, own) = (harness.process(&list).await, harness.call(("bob", "b"), "process", &list).await);
    assert!(all.find(&hers) < all.find(&his) && all.contains("[session webhook:in:b]"), "{all}");
    assert!(own.contains(&his) && !own.contains(&hers), "{own}");
    let kill = harness.call(("bob", "b"), "process", &json!({ "action": "kill", "id": hers })).await;
    assert!(kill.contains("There is no background process"), "{kill}");
    let refused = harness.call(("bob", "b"), "exec", &wait).await;
    assert!(refused.contains(&his) && refused.contains("1 of other sessions") && !refused.contains(&hers), "{refused}");
    let killed = harness.process(&json!({ "action": "kill", "id": his })).await;
    assert!(killed.contains(&format!("{his} \"hers\": ended on request (exit 143)")), "{killed}");
    let posts = harness.wait_announcements(1).await;
    assert!(posts[0].starts_with(&format!("{ENDED}{his} \"hers\" ended: killed on request from another")), "{posts:?}");
    fs::write(harness.gateway.workspace().join("go"), "").unwrap();
    harness.wait_announcements(2).await;
    let chats: Vec<_> = harness.announcements().iter().map(|post| post.data("chat_id").to_owned()).collect();
    assert!(chats.contains(&"b".to_owned()) && chats.contains(&"c".to_owned()), "{chats:?}");
    harness.check().await;
}

/// Memories are the owner's files in the workspace. Commands of other senders can neither find nor write them.
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_is_hidden_from_commands_of_others() {
    if !has_namespaces() {
        return;
    }
    let harness = Harness::start(|setup| setup.set("tools.exec.sandbox", "auto")).await;
    let memory = harness.gateway.workspace().join("memory/MEMORY.md");
    until("MEMORY.md", async || memory.exists().then_some(())).await;
    fs::write(&memory, "# Memory\n\n- the door is green\n\n## Private\n\n- the PIN is 4711\n").unwrap();
    let ways = "cat memory/*; ls -A memory; echo '- all is free' > memory/MEMORY.md; rm -rf memory; mv memory other; \
                ln memory/MEMORY.md here; umount memory; cat memory/MEMORY.md; mkdir memory; echo tried > trace; cat trace";
    let command = json!({ "command": ways });
    for arguments in [command.clone(), json!({ "command": ways, "background": true })] {
        let answer = harness.call(("bob", "b"), "exec", &arguments).await;
        assert!(!answer.contains("4711") && !answer.contains("green"), "{answer}");
        assert!(answer.contains("tried") || answer.starts_with("Started"), "{answer}");
    }
    let answer = harness.wait_announcements(1).await;
    assert!(!answer[0].contains("4711") && answer[0].contains("tried"), "{answer:?}");
    let own = harness.exec(&json!({ "command": "cat memory/MEMORY.md trace" })).await;
    assert!(
        own.contains("4711") && own.contains("green") && own.contains("tried") && !own.contains("all is free"),
        "{own}"
    );
    harness.check().await;
}
