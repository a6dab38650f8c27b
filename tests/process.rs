//! The process: signals, exit codes, the log, and secrets.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, wait_settled};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, deadline, files_below, until};

/// Both signals drain: running turns finish, new messages are refused temporarily, and the exit code is 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_drains_the_gateway() {
    for stop in [Gateway::sigterm, Gateway::sigint] {
        let model = Model::start().await;
        let gate = Gate::new();
        model.on("slow", [Reply::text("slow done").held_by(&gate)]);
        let sink = Sink::start(None).await;
        let mut gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink))).await;
        let id = gateway.accept("in", &Message::new("slow").chat("a")).await;
        gate.wait_arrived(1).await;
        let behind = gateway.accept("in", &Message::new("behind").chat("a")).await;
        stop(&gateway);
        let refused = until("a refusal", async || {
            let answered = gateway.post("in", "", &Message::new("late").chat("b").id("late")).await;
            (answered.status != 202).then_some(answered)
        });
        let refused = refused.await;
        assert_eq!((refused.status, &refused.body["error"]["code"]), (503, &json!("draining")), "{refused:?}");
        assert!(refused.retry_after.is_some_and(|after| after.parse::<u64>().unwrap() > 0));
        let ready = Gateway::try_send(gateway.client.get(gateway.url("/readyz"))).await.unwrap();
        assert_eq!((ready.status, &ready.body["status"]), (503, &json!("degraded")), "{ready:?}");
        assert_eq!(gateway.state("in", &id).await.text("status"), "running", "it can still be asked");
        gate.open();
        assert_eq!(gateway.wait_exit().await.code(), Some(0));
        assert_eq!(sink.replies_to(&id).len(), 1, "what was finished went out");
        assert!(!gateway.home().join("daoyou.sock").exists());
        gateway.up().await;
        assert_eq!(gateway.wait_done("in", &behind).await.text("reply"), "echo: behind");
        gateway.check_settled(&Witness { accepted: &[id, behind], ..Witness::default() }).await;
    }
}

/// A second signal ends the gateway at once; the running turn continues at the next start.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_gateway_at_once() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("slow").chat("a")).await;
    gate.wait_arrived(1).await;
    gateway.sigterm();
    until("the drain", async || gateway.logs().contains("stopping").then_some(())).await;
    let begun = Instant::now();
    gateway.sigint();
    assert_eq!(gateway.wait_exit().await.code(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(10));
    gate.open();
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "slow done");
}

/// Each configuration error is one line, all are reported at once, and nothing starts.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_configuration_starts_nothing() {
    let faulty = Setup::new()
        .set("gateway.listne", "127.0.0.1:1")
        .set("agent.max_iterations", "many")
        .set("gateway.drain_timeout", "soon");
    let keyless = Setup::new().set("providers.openai.kind", "openai").set("agent.model", "openai/gpt-x");
    let hook = Setup::new().set("channels.webhook.in.verify", "bearer");
    let table: [(Setup, &[&str]); 3] = [
        (faulty, &["gateway.listne", "agent.max_iterations", "gateway.drain_timeout"]),
        (keyless, &["providers.openai.api_key"]),
        (hook, &["channels.webhook.in"]),
    ];
    for (setup, keys) in table {
        let gateway = Gateway::new(setup);
        for args in [&["gateway", "--no-cli", "--log", "off"][..], &["agent", "-m", "hi"]] {
            let ran = gateway.run(args).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(78), ""), "{keys:?} {args:?}: {ran:?}");
            assert_eq!(ran.stderr.lines().count(), keys.len(), "{keys:?} {args:?}: {ran:?}");
            for key in keys {
                let names = |line: &str| line.contains(key) && line.contains("config.toml");
                assert!(ran.stderr.lines().any(names), "{key} {args:?}: {ran:?}");
            }
        }
        assert!(!gateway.home().join("daoyou.sock").exists(), "{keys:?}");
        assert!(!gateway.home().join("daoyou.db").exists(), "{keys:?}: a database was made");
    }
}

/// `daoyou agent -m` leaves its home to the gateway that is restarted, and a gateway that starts waits for the reply of an `agent -m`
/// that holds the home.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_starts_beside_a_waiting_agent_command_gets_the_home() {
    let (model, gate, later) = (Model::start().await, Gate::new(), Gate::new());
    model.on("slow", [Reply::text("at last").held_by(&gate), Reply::text("at last").held_by(&gate)]);
    model.on("alone", [Reply::text("without a gateway").held_by(&later)]);
    let mut gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in"))).await;
    let ask = |gateway: &Gateway, text: &str| {
        let mut command = gateway.command(&["agent", "-m", text]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let waiting = ask(&gateway, "slow");
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    gateway.up().await;
    assert_eq!(gateway.ask("in", "other", "hello").await, "echo: hello", "the gateway has the home, not the command");
    gate.wait_arrived(2).await;
    gate.open();
    let asked = deadline("the reply", waiting.wait_with_output()).await.unwrap();
    assert_eq!((asked.status.code(), asked.stdout.as_slice()), (Some(0), &b"at last\n"[..]), "{asked:?}");
    gateway.stop().await;

    let alone = ask(&gateway, "alone");
    later.wait_arrived(1).await;
    gateway.spawn();
    let wait = format!("a daoyou command (pid {}) uses the home; this gateway starts after it", alone.id().unwrap());
    until("the wait", async || gateway.logs().contains(&wait).then_some(())).await;
    later.open();
    let asked = deadline("the reply", alone.wait_with_output()).await.unwrap();
    assert_eq!(asked.stdout, b"without a gateway\n", "{asked:?}");
    gateway.wait_ready().await;
    gateway.stop().await;
}

/// Another command takes the home of `agent -m` as soon as that releases it: the reply and the tokens are shown nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_command_whose_home_is_taken_at_its_end_shows_its_reply() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("alone", [Reply::text("here it is").held_by(&gate)]);
    let gateway = Gateway::new(Setup::new().model(&model));
    gateway.write_config();
    let mut command = gateway.command(&["agent", "-m", "alone", "--json"]);
    let asked = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    gate.wait_arrived(1).await;
    // This lock fails each later attempt of the command to lock its home.
    let lock = gateway.home().join("daoyou.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, format!("{}\ntemporary", std::process::id())).unwrap();
    let next = std::fs::File::open(&lock).unwrap();
    next.lock().unwrap();
    gate.open();
    let asked = deadline("the reply", asked.wait_with_output()).await.unwrap();
    let answer: Value = serde_json::from_slice(&asked.stdout).unwrap_or_else(|error| panic!("{error}: {asked:?}"));
    assert_eq!((asked.status.code(), &answer["reply"]), (Some(0), &json!("here it is")), "{asked:?}");
    assert!(answer["tokens"]["input"].is_u64(), "{answer}");
}

/// A command waits for the end of another that uses the home, and says so. Commands that need a gateway do not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_waits_for_another_command_on_its_home() {
    let gateway = Gateway::new(Setup::new());
    assert_eq!(gateway.run(&["sessions", "list"]).await.code, Some(0));
    // As another command holds it.
    let folder = std::fs::File::open(gateway.home()).unwrap();
    folder.lock().unwrap();
    let pid = std::process::id();
    std::fs::write(gateway.home().join("daoyou.lock"), format!("{pid}\ntemporary")).unwrap();
    let mut command = gateway.command(&["sessions", "list"]);
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut note = String::new();
    let mut stderr = BufReader::new(waiting.stderr.take().unwrap());
    deadline("the note", stderr.read_line(&mut note)).await.unwrap();
    assert!(
        note.starts_with(&format!("daoyou: waiting for another daoyou command (pid {pid}), which uses ")),
        "{note}"
    );
    let late = gateway.run(&["agent", "-m", "hello", "--timeout", "1ms"]).await;
    assert!(late.code == Some(75) && late.stderr.contains(&format!("(pid {pid})")), "{late:?}");
    for needing in [&["open"][..], &["mcp", "serve"]] {
        gateway.run(needing).await.assert_refused("no gateway runs");
    }
    gateway.run(&["backup", "b.tar"]).await.assert_refused(&format!("a daoyou command (pid {pid}) uses the home"));
    drop(folder);
    assert_eq!(deadline("the end", waiting.wait()).await.unwrap().code(), Some(0));
}

/// Below its disk reserve the gateway accepts nothing and says so, but it stays alive.
#[tokio::test(flavor = "multi_thread")]
async fn below_the_disk_reserve_nothing_is_accepted() {
    let setup = Setup::new().hook(Hook::bearer("in")).set("store.reserve", "1000000GB");
    let mut gateway = Gateway::new(setup);
    gateway.spawn();
    let ready = until("an answer", async || Gateway::try_send(gateway.client.get(gateway.url("/readyz"))).await).await;
    assert_eq!((ready.status, &ready.body["status"]), (503, &json!("degraded")), "{ready:?}");
    assert!(ready.body["parts"]["intake"].as_str().unwrap().contains("reserve"), "{ready:?}");
    let alive = Gateway::try_send(gateway.client.get(gateway.url("/healthz"))).await.unwrap();
    assert_eq!(alive.status, 200);
    let refused = gateway.post("in", "", &Message::new("hi")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.retry_after.is_some_and(|after| after.parse::<u64>().unwrap() > 0));
    assert_eq!(gateway.json(&["status"]).await["ready"], false);
    gateway.stop().await;
}

/// Canaries are in every place that holds a secret. None appears in the log at its most verbose level, in the database, in
/// model requests, in commands' environments, or in output to the owner. The log is JSON, with turn and session as fields.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_never_reach_logs_models_or_commands() {
    if bubblewrap_is_missing() {
        return;
    }
    const WORD: &str = "canary";
    let model = Model::start().await;
    let look = "env; set; cat /proc/*/environ ../config.toml ../token $HOME/home/config.toml; ls /proc/self/fd; true";
    model.on(
        "look around",
        [
            Reply::tool("exec", &json!({"command": look})),
            Reply::tool("read_file", &json!({"path": "../token"})),
            Reply::text("nothing found"),
        ],
    );
    model.on("fail", [Reply::status(400)]);
    let sink = Sink::start(None).await;
    let callback_key = "whsec_Y2FuYXJ5LWNhbGxiYWNrLWNhbmFyeQ==";
    let hook = Hook::bearer("in").callback(&sink).set("callback_secret", callback_key);
    let setup = Setup::new()
        .model(&model)
        .hook(hook)
        .set("channels.webhook.other.verify", "bearer")
        .set("channels.webhook.other.secret", "env:HOOK_SECRET")
        .set("channels.webhook.other.trusted_from", vec!["*"])
        .set("channels.webhook.other.callback_url", format!("{}?token=url-token-7", sink.url()))
        .set("providers.scripted.api_key", "canary-api-key")
        .set("providers.scripted.headers.X-Extra", "canary-header")
        .set("gateway.token", "canary-token")
        .set("gateway.drain_timeout", "1s")
        .env("HOOK_SECRET", "canary-hook-secret")
        .env("OPENAI_API_KEY", "canary-openai-key")
        .arg("--log-format=json")
        .arg("--log=trace");
    let mut gateway = Gateway::start(setup).await;
    sink.then([crate::support::Answer::Status(500, None)]);
    let id = gateway.accept("in", &Message::new("look around").chat("c")).await;
    gateway.wait_done("in", &id).await;
    gateway.ask("in", "c", "fail").await;
    let other = gateway.client.post(gateway.url("/webhook/other")).bearer_auth("canary-hook-secret");
    let accepted = Gateway::try_send(other.json(&json!({"content": "look around"}))).await.unwrap();
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let wrong = gateway.client.post(gateway.url("/webhook/other")).bearer_auth("canary-wrong");
    assert_eq!(Gateway::try_send(wrong.json(&json!({"content": "hi"}))).await.unwrap().status, 401);
    wait_settled(&gateway.database()).await;
    let saw = model.requests_about("look around").pop().unwrap().to_string();
    assert!(saw.contains("PATH="), "the command looked around: {saw}");

    let mut shown = Vec::new();
    for args in [&["status"][..], &["config", "show"], &["config", "check"], &["queue", "list"], &["turns", "list"]] {
        let ran = gateway.run(args).await;
        shown.push((format!("{args:?}"), format!("{}{}", ran.stdout, ran.stderr).into_bytes()));
    }
    let turn = gateway.run(&["turns", "show", &id]).await;
    shown.push(("turns show".to_owned(), turn.stdout.into_bytes()));
    gateway.stop().await;
    shown.push(("log".to_owned(), gateway.logs().into_bytes()));
    shown.push(("model".to_owned(), serde_json::to_vec(&model.requests()).unwrap()));
    let posted = sink.posts().into_iter().flat_map(|post| post.raw).collect();
    shown.push(("callbacks".to_owned(), posted));
    // Two files exist to hold secrets.
    let files = files_below(&gateway.home()).into_iter();
    let files = files.filter(|path| !path.ends_with("config.toml") && !path.ends_with("token"));
    shown.extend(files.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())));
    let token = std::fs::read_to_string(gateway.home().join("token")).unwrap();
    let secrets = [WORD, &callback_key[6..], "the-bearer-secret", token.trim()];
    for (name, bytes) in &shown {
        let text = String::from_utf8_lossy(bytes);
        // A URL is an ordinary setting and shown as such, but errors and the log omit it.
        let secrets = secrets.iter().chain((!name.contains("config")).then_some(&"url-token-7"));
        for secret in secrets {
            let at = text.find(*secret).map(|at| text[..at].chars().rev().take(200).collect::<String>());
            let before = at.map(|before| before.chars().rev().collect::<String>());
            assert_eq!(before, None, "{secret} shows up in {name}, behind this");
        }
    }

    let mut of_turn = 0;
    for line in gateway.logs().lines().filter(|line| !line.starts_with("----")) {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}"));
        assert!(["timestamp", "level", "target", "message"].iter().all(|key| event[key].is_string()), "{line}");
        of_turn += usize::from(event["turn"] == id.as_str() && event["session"] == "webhook:in:c");
    }
    assert!(of_turn >= 3, "accepted, ended and sent name their turn and session: {}", gateway.logs());
}

/// A control socket and a folder of temporary files that somebody deletes are made again by the running gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_control_socket_and_a_deleted_tmp_are_made_again() {
    // The gateway looks at the folder as often as at its heartbeat.
    let mut gateway = Gateway::start(Setup::new().set("heartbeat.every", "1s")).await;
    let [socket, tmp] = ["daoyou.sock", "tmp"].map(|name| gateway.home().join(name));
    std::fs::remove_dir_all(&tmp).unwrap();
    let missing = format!("process {} holds this home, but: its control socket", gateway.pid());
    // The socket may be there again before a slow `doctor` looks at it.
    let doctor = until("the socket to be missed", async || {
        std::fs::remove_file(&socket).ok();
        Some(gateway.run(&["doctor"]).await.stdout).filter(|doctor| doctor.contains(&missing))
    });
    let doctor = doctor.await;
    assert!(doctor.contains("run doctor again in a minute"), "{doctor}");
    until("the socket", async || socket.exists().then_some(())).await;
    assert_eq!(gateway.json(&["status"]).await["gateway"], "up");
    until("the folder", async || tmp.exists().then_some(())).await;
    gateway.stop().await;
    assert!(!socket.exists());
}

/// A message whose gateway was killed is neither called delivered nor running.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_message_is_shown_as_such() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    gateway.accept("in", &Message::new("slow").chat("a")).await;
    gate.wait_arrived(1).await;
    assert!(gateway.run(&["status"]).await.stdout.contains("1 running;"));
    gateway.kill9().await;
    let status = gateway.run(&["status"]).await.stdout;
    assert!(status.contains("1 interrupted;") && !status.contains("running"), "{status}");
    let queue = gateway.run(&["queue", "list"]).await.stdout;
    assert!(queue.contains("`daoyou status` counts the messages that have no reply yet"), "{queue}");
}
