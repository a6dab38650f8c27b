//! Several tool calls in one answer of the model: which of them run concurrently, which wait, and the results for the model.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Journal, Witness, check};
use crate::support::model::results_of;
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({"path": path}))
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write_file", json!({"path": path, "content": content}))
}

fn exec(command: &str) -> (&'static str, Value) {
    ("exec", json!({"command": command}))
}

/// Returns one answer with these calls, whose ids are `c0`, `c1` and so on.
fn reply_with_calls(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Reply {
    let one = |reply: Reply, (n, (name, arguments)): (usize, (&str, Value))| {
        reply.and_tool(name, &arguments).call_id(&format!("c{n}"))
    };
    calls.into_iter().enumerate().fold(Reply::default(), one)
}

/// One call of `parallel`.
fn plan_call(on_error: &str, calls: &[(&str, (&str, Value), &[&str])]) -> Reply {
    let call = |(id, (tool, arguments), needs): &(&str, (&str, Value), &[&str])| json!({"id": id, "tool": tool, "arguments": arguments, "needs": needs});
    let calls: Vec<_> = calls.iter().map(call).collect();
    Reply::tool("parallel", &json!({"calls": calls, "on_error": on_error}))
}

/// Returns the ids of the calls in the order in which their steps of this kind were written.
fn order_of_steps(journal: &Journal, kind: &str) -> Vec<String> {
    let steps = journal.steps.iter().filter(|step| step.kind == kind);
    steps.map(|step| step.body["call_id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Two reads that never end do not delay the others, and the model gets the results in the requested order.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_calls_run_concurrently_and_report_in_order() {
    let model = Model::start().await;
    let looks = [read("stuck-1"), read("a.txt"), read("stuck-2"), ("list_dir", json!({"path": "folder"}))];
    model.on("look", [reply_with_calls(looks), Reply::text("seen")]);
    let setup = Setup::scripted(&model).set("tools.timeout", "4s").env("DAOYOU_STALL_AT", "file_work=stuck");
    let mut gateway = Gateway::new(setup);
    std::fs::create_dir_all(gateway.workspace().join("folder")).unwrap();
    std::fs::write(gateway.workspace().join("a.txt"), "alpha").unwrap();
    std::fs::write(gateway.workspace().join("folder/b.txt"), "").unwrap();
    gateway.up().await;
    assert_eq!(gateway.ask("in", "c", "look").await, "seen");
    let results = results_of(&model.requests()[1]);
    assert!(results[0].contains("timed out after 4 seconds") && results[2].contains("timed out"), "{results:?}");
    assert_eq!((results.len(), results[1].as_str(), results[3].as_str()), (4, "1\talpha", "b.txt (0 B)"));
    assert_eq!(model.refused(), Vec::<String>::new());
    let ended = order_of_steps(&gateway.check_settled(&Witness::default()).await, "tool_result");
    let first: Vec<_> = ended[..2].iter().map(String::as_str).collect();
    assert!(["c1", "c3"].iter().all(|id| first.contains(id)), "{ended:?}");
}

/// A writing call runs alone and in order: an earlier read does not see its effect, and a later read does.
#[tokio::test(flavor = "multi_thread")]
async fn writing_calls_run_alone_and_in_order() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let edit = ("edit_file", json!({"path": "a.txt", "old_text": "one", "new_text": "two"}));
    let mixed = [
        read("a.txt"),
        write("a.txt", "one"),
        read("a.txt"),
        edit,
        read("a.txt"),
        exec("cat a.txt >b.txt"),
        read("b.txt"),
    ];
    model.on("mixed", [reply_with_calls(mixed), Reply::text("done")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    assert_eq!(gateway.ask("in", "c", "mixed").await, "done");
    let results = results_of(&model.requests()[1]);
    let expected =
        ["no such file", "1 line, 3 bytes", "1\tone", "Replaced 1 occurrence", "1\ttwo", "(done, no output)", "1\ttwo"];
    assert!(
        results.len() == 7 && results.iter().zip(expected).all(|(results, part)| results.contains(part)),
        "{results:?}"
    );
    let journal = gateway.check_settled(&Witness::default()).await;
    assert_eq!(order_of_steps(&journal, "tool_result"), ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]);
    assert_eq!(order_of_steps(&journal, "tool_started"), ["c3", "c5"]);
}

/// The process dies when some of the calls are done. These calls are not repeated, the others run, and a command that had
/// begun is "interrupted".
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_among_calls_resumes_with_the_remaining_ones() {
    if bubblewrap_is_missing() {
        return;
    }
    for (point, ran, told_of_exec) in [
        ("tool_result_committed:2", 1, "ran"),
        ("tool_started=exec", 0, "interrupted"),
        ("tool_finished=exec", 1, "interrupted"),
        ("tool_result_committed=exec", 1, "ran"),
    ] {
        let model = Model::start().await;
        let command = exec("echo x >>effects.txt; echo ran");
        let all =
            [read("0.txt"), read("1.txt"), read("2.txt"), command, read("0.txt"), write("3.txt", "3"), read("3.txt")];
        model.on("work", [reply_with_calls(all), Reply::text("done")]);
        let mut gateway = Gateway::new(Setup::scripted(&model));
        std::fs::create_dir_all(gateway.workspace()).unwrap();
        for n in 0..3 {
            std::fs::write(gateway.workspace().join(format!("{n}.txt")), format!("number {n}")).unwrap();
        }
        gateway.crash_at(point).up().await;
        let id = gateway.accept("in", &Message::new("work").chat("c")).await;
        gateway.wait_crash().await;
        gateway.recover().await;
        assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "done", "{point}");
        assert_eq!((model.count(), model.refused()), (2, Vec::new()), "{point}");
        let results = results_of(&model.requests()[1]);
        let expected = ["number 0", "number 1", "number 2", told_of_exec, "number 0", "1 line, 1 bytes", "3"];
        assert!(
            results.len() == 7 && results.iter().zip(expected).all(|(results, part)| results.contains(part)),
            "{point}: {results:?}"
        );
        let effects = std::fs::read_to_string(gateway.workspace().join("effects.txt")).unwrap_or_default();
        assert_eq!(effects.lines().count(), ran, "{point}");
        let journal = check(&gateway.database(), &Witness { accepted: &[id], ..Witness::default() });
        assert_eq!(order_of_steps(&journal, "tool_result").len(), 7, "{point}");
    }
}

/// More reads than may run at once are all answered, in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_read_only_calls_are_answered_in_order() {
    let model = Model::start().await;
    let path = |n: usize| if n.is_multiple_of(3) { "absent".to_owned() } else { format!("{n}.txt") };
    let looks: Vec<_> = (0..100).map(|n| ("read_file", json!({"path": path(n)}))).collect();
    model.on("many", [reply_with_calls(looks), Reply::text("all read")]);
    let gateway = Gateway::start(Setup::scripted(&model).set("tools.parallel", 3)).await;
    for n in 0..100 {
        std::fs::write(gateway.workspace().join(format!("{n}.txt")), format!("number {n}")).unwrap();
    }
    assert_eq!(gateway.ask("in", "c", "many").await, "all read");
    let results = results_of(&model.requests()[1]);
    assert_eq!((results.len(), model.refused()), (100, Vec::new()));
    for (n, result) in results.iter().enumerate() {
        let expected = if n.is_multiple_of(3) { "absent: no such file".to_owned() } else { format!("number {n}") };
        assert!(result.contains(&expected), "{n}: {result}");
    }
    gateway.check_settled(&Witness::default()).await;
}

/// A plan through the whole gateway. Two commands that wait for each other must run concurrently; a step that needs a
/// failed call is skipped; a cyclic plan does not start.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_runs_independent_steps_concurrently_and_skips_blocked_ones() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let meet = |own: &str, other: &str| {
        exec(&format!("touch {own}; for i in $(seq 2000); do [ -e {other} ] && exit 0; sleep 0.01; done; exit 1"))
    };
    let good = plan_call(
        "go_on",
        &[
            ("left", meet("l", "r"), &[]),
            ("right", meet("r", "l"), &[]),
            ("both", exec("ls l r"), &["left", "right"]),
            ("bad", exec("exit 3"), &[]),
            ("after", write("after.txt", "{{bad}}"), &["bad"]),
            ("say", ("message", json!({"content": "met: {{both}}"})), &["both"]),
        ],
    );
    let circle = plan_call("go_on", &[("a", write("a", ""), &["b"]), ("b", write("b", ""), &["a"])]);
    model.on("plan", [good, circle, Reply::text("planned")]);
    let sink = Sink::signed().await;
    let gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink))).await;
    assert_eq!(gateway.ask("in", "c", "plan").await, "planned");
    let requests = model.requests();
    assert_eq!(
        results_of(&requests[1]),
        ["Error: 2 of 6 calls did not succeed: bad, after\n[left] exec: done\n(done, no output)\n\n\
          [right] exec: done\n(done, no output)\n\n[both] exec: done\nl\nr\n\n[bad] exec: failed\nError: Exit code: 3\n\n\
          [after] write_file: skipped: a step that it needs failed (bad)\n\n\
          [say] message: done\nThe message goes to webhook:in, chat c."]
    );
    let results = results_of(&requests[2]);
    assert!(results[0].contains("so that none can start: a needs b needs a"), "{results:?}");
    assert!(!gateway.workspace().join("after.txt").exists() && !gateway.workspace().join("a").exists());
    assert_eq!(model.refused(), Vec::<String>::new());
    let journal = gateway.check_settled(&Witness::default()).await;
    let sent = journal.outbox.iter().filter(|row| row.slot.starts_with("tool:"));
    assert_eq!(sent.map(|row| row.body["content"].clone()).collect::<Vec<_>>(), ["met: l\nr\n"]);
    assert_eq!(
        order_of_steps(&journal, "tool_started").len(),
        1,
        "a plan is one call to the journal, careful when it must be"
    );
}

/// A plan with a command that had begun does not run twice: its outcome is unknown, as that of a single command is.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_with_a_started_command_is_not_run_twice() {
    if bubblewrap_is_missing() {
        return;
    }
    let command = || exec("echo x >>effects.txt");
    for (point, ran, reply, calls) in [
        ("tool_finished=parallel", 1, "interrupted", [("a", command(), &[][..]), ("b", read("a.txt"), &["a"][..])]),
        (
            "tool_finished=parallel",
            0,
            "[b] read_file: done\n1\tfine",
            [("a", read("a.txt"), &[]), ("b", read("a.txt"), &["a"])],
        ),
    ] {
        let model = Model::start().await;
        model.on("work", [plan_call("stop_others", &calls), Reply::text("done")]);
        let mut gateway = Gateway::new(Setup::scripted(&model));
        std::fs::create_dir_all(gateway.workspace()).unwrap();
        std::fs::write(gateway.workspace().join("a.txt"), "fine").unwrap();
        gateway.crash_at(point).up().await;
        let id = gateway.accept("in", &Message::new("work").chat("c")).await;
        gateway.wait_crash().await;
        gateway.recover().await;
        let result = results_of(&model.requests()[1]);
        assert!(result.len() == 1 && result[0].contains(reply), "{result:?}");
        let effects = std::fs::read_to_string(gateway.workspace().join("effects.txt")).unwrap_or_default();
        assert_eq!((effects.lines().count(), model.refused()), (ran, Vec::new()));
        check(&gateway.database(), &Witness { accepted: &[id], ..Witness::default() });
    }
}

/// `/stop` ends all running calls. Each call reports its progress, and calls that had not begun are closed with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_every_running_call() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let sleep = |name: &str| exec(&format!("echo begun-{name}; touch {name}; sleep 1000"));
    let never = write("never.txt", "{{one}}");
    let work =
        plan_call("go_on", &[("one", sleep("one"), &[]), ("two", sleep("two"), &[]), ("three", never, &["one"])]);
    model.on("work", [work.and_tool("write_file", &json!({"path": "never.txt", "content": ""}))]);
    let looks = [read("stuck"), read("a.txt"), write("never.txt", "")];
    model.on("look", [reply_with_calls(looks)]);
    let gateway = Gateway::start(Setup::scripted(&model).env("DAOYOU_STALL_AT", "file_work=stuck")).await;
    std::fs::write(gateway.workspace().join("a.txt"), "alpha").unwrap();

    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    let begun = |name: &str| gateway.workspace().join(name).exists();
    until("both commands to run", async || (begun("one") && begun("two")).then_some(())).await;
    gateway.ask("in", "c", "/stop").await;
    assert_eq!(gateway.wait_done("in", &id).await.body["error"]["code"], "stopped");

    let id = gateway.accept("in", &Message::new("look").chat("d")).await;
    until("the other look to end", async || {
        gateway.json(&["turns", "show", &id]).await.to_string().contains("alpha").then_some(())
    })
    .await;
    gateway.ask("in", "d", "/stop").await;
    assert_eq!(gateway.wait_done("in", &id).await.body["error"]["code"], "stopped");

    for (chat, expected) in [
        ("c", vec!["begun-one", "stopped by the user"]),
        ("d", vec!["Cancelled while it ran", "alpha", "stopped by the user"]),
    ] {
        assert_eq!(gateway.ask("in", chat, "and now").await, "echo: and now");
        let request = model.requests_about("and now").pop().expect("it was asked");
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let results: Vec<_> =
            messages.iter().filter(|m| m["role"] == "tool").map(|m| m["content"].to_string()).collect();
        let fits =
            results.len() == expected.len() && results.iter().zip(&expected).all(|(text, part)| text.contains(part));
        assert!(fits, "{chat}: {results:?}");
        if chat == "c" {
            let parts = [
                "[one] exec: failed\\nError: Cancelled; the command was killed\\nbegun-one",
                "begun-two",
                "[three] write_file: ",
            ];
            assert!(parts.iter().all(|part| results[0].contains(part)), "{results:?}");
        }
    }
    assert!(!gateway.workspace().join("never.txt").exists());
    assert_eq!(model.refused(), Vec::<String>::new());
}
