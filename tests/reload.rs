//! SIGHUP: the configuration is reloaded while the gateway runs.

use std::fs;

use serde_json::json;

use crate::support::gateway::Message;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, until};

/// Writes the settings, sends SIGHUP, and waits for a log line.
async fn reload(gateway: &Gateway, expected: &str) {
    let before = gateway.logs().len();
    gateway.write_config();
    send_sighup(gateway, before, expected).await;
}

async fn send_sighup(gateway: &Gateway, before: usize, expected: &str) {
    gateway.sighup();
    until(expected, async || gateway.logs()[before..].contains(expected).then_some(())).await;
}

/// Changed settings apply to turns that begin later; a running turn keeps its settings.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_applies_to_later_turns() {
    let (model, other) = (Model::start().await, Model::start().await);
    let gate = Gate::new();
    model.on("slow", [Reply::tool("list_dir", &json!({"path": "."})).held_by(&gate), Reply::text("slow done")]);
    other.on("who", [Reply::text("the other one")]);
    let setup = Setup::scripted(&model).set("log.level", "warn");
    let mut gateway = Gateway::start(setup.clone()).await;
    let slow = gateway.accept("in", &Message::new("slow").chat("a")).await;
    gate.wait_arrived(1).await;

    let setup = setup
        .set("providers.scripted.base_url", other.base_url())
        .set("agent.max_iterations", 1)
        .set("gateway.session_capacity", 1)
        .set("owner.name", "Ann")
        .set("log.level", "info");
    *gateway.setup() = setup.clone();
    gateway.write_config();
    gateway.sighup();
    // The old level logged no such line; the new level logs later events.
    until("the capacity of after", async || {
        let answered = gateway.post("in", "", &Message::new("more").chat("a")).await;
        (answered.status == 429).then_some(())
    })
    .await;
    assert_eq!(gateway.ask("in", "b", "who").await, "the other one");
    let asked = other.requests_about("who");
    assert!(asked[0]["messages"][0]["content"].as_str().unwrap().contains("Your owner is Ann."), "{asked:?}");
    until("the new level", async || gateway.logs().contains("turn ended").then_some(())).await;
    gate.open();
    assert_eq!(gateway.wait_done("in", &slow).await.text("reply"), "slow done", "it went on as it had begun");

    // The limit of one round with tools applies to turns that begin now.
    other.on("tools", [Reply::tool("list_dir", &json!({"path": "."})), Reply::text("last word")]);
    let reply = gateway.ask("in", "c", "tools").await;
    assert!(reply.starts_with("last word") && reply.contains('1'), "{reply}");
    gateway.stop().await;
}

/// An invalid file changes nothing, and its errors are reported line by line. Changed settings that need a restart are named.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_reload_changes_nothing_and_restart_settings_are_named() {
    let model = Model::start().await;
    let setup = Setup::scripted(&model);
    let mut gateway = Gateway::start(setup.clone()).await;
    let file = gateway.home().join("config.toml");
    let good = fs::read_to_string(&file).unwrap();

    let before = gateway.logs().len();
    fs::write(&file, format!("{good}\n[agnet]\n[log]\nlevel = \"loud\"\n")).unwrap();
    send_sighup(&gateway, before, "the previous one stays in force").await;
    let logs = gateway.logs();
    assert!(logs.contains("config.toml:") && logs.contains("agnet: unknown key"), "{logs}");
    assert!(logs.contains("log.level: \"loud\" is not a level"), "{logs}");
    *gateway.setup() = setup.clone().set("agent.model", "nowhere/x");
    reload(&gateway, "the previous one stays in force").await;
    assert!(gateway.logs().contains("agent.model: unknown provider \"nowhere\""));
    assert_eq!(gateway.ask("in", "a", "hi").await, "echo: hi");

    let changed = setup.clone().set("agent.max_iterations", 7).set("channels.webhook.in.secret", "another-secret");
    *gateway.setup() = changed;
    reload(&gateway, "a restart is needed for channels.webhook.in.secret").await;
    let logs = gateway.logs();
    assert!(logs.contains("configuration reloaded: agent.max_iterations 40 → 7"), "{logs}");
    assert!(!logs.contains("another-secret"), "{logs}");
    *gateway.setup() = setup.clone();
    reload(&gateway, "configuration reloaded: agent.max_iterations 7 → 40").await;
    reload(&gateway, "configuration reloaded: nothing has changed").await;
    assert_eq!(gateway.ask("in", "a", "still here").await, "echo: still here", "the old secret holds");
    gateway.stop().await;
}

/// After a reload, `status` reports the actual state: the gateway's address, and the running channels.
#[tokio::test(flavor = "multi_thread")]
async fn status_reports_the_running_configuration() {
    let setup = || Setup::new().hook(Hook::bearer("stays"));
    let mut gateway = Gateway::start(setup().hook(Hook::bearer("goes"))).await;
    let address = gateway.address().to_string();
    *gateway.setup() = setup().hook(Hook::bearer("comes"));
    gateway.write_config();
    let file = gateway.home().join("config.toml");
    let moved = fs::read_to_string(&file).unwrap().replace(&address, "127.0.0.1:9");
    fs::write(&file, moved).unwrap();
    send_sighup(&gateway, gateway.logs().len(), "a restart is needed for ").await;
    let status = gateway.json(&["status"]).await;
    assert_eq!(status["listen"], address.as_str(), "{status}");
    let needed = json!(["channels.webhook.comes", "channels.webhook.goes", "gateway.listen"]);
    assert_eq!(status["restart_needed"], needed);
    let rows = gateway.json(&["channels", "list"]).await;
    let channel = |name: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{rows}"));
        (row["state"].as_str().unwrap().to_owned(), row["note"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(channel("webhook:stays"), ("running".to_owned(), String::new()));
    let (state, note) = channel("webhook:goes");
    assert!(state == "running" && note.contains("runs until the gateway is restarted"), "{state} {note}");
    let (state, note) = channel("webhook:comes");
    assert!(state == "off" && note.contains("starts when the gateway is restarted"), "{state} {note}");
    *gateway.setup() = setup().hook(Hook::bearer("goes"));
    let sent = gateway.post("goes", "", &Message::new("/help")).await;
    assert_eq!(sent.status, 202, "it does run: {sent:?}");
    let shown = gateway.run(&["status"]).await.stdout;
    assert!(shown.contains(&format!("listen    {address}\n")) && shown.contains("a restart is needed for "), "{shown}");

    *gateway.setup() = setup().hook(Hook::bearer("comes"));
    gateway.restart().await;
    let rows = gateway.json(&["channels", "list"]).await;
    let rows: Vec<_> = rows.as_array().unwrap().iter().map(|row| (&row["name"], &row["state"], &row["note"])).collect();
    let running = |name| json!([name, "running", null]);
    assert_eq!(json!(rows), json!(["cli", "webhook:comes", "webhook:stays"].map(running)));
}

/// A reload is one step: a turn that began earlier ends with all of its settings, including those of its tools.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_never_sees_half_of_a_reload() {
    let (model, gate) = (Model::start().await, Gate::new());
    let add = |name: &str| {
        let job = json!({"action": "add", "message": "tea", "at": "in 2h", "name": name, "channel": "cli", "chat_id": "direct"});
        Reply::tool("cron", &job)
    };
    model.on("slow", [add("one").held_by(&gate), add("two"), Reply::text("slow done")]);
    model.on("later", [add("two"), Reply::text("later done")]);
    let setup = Setup::scripted(&model).set("cron.max_jobs", 1);
    let setup = setup.set("owner.identities", vec!["webhook:in:me"]);
    let mut gateway = Gateway::start(setup.clone()).await;
    let slow = gateway.accept("in", &Message::new("slow").sender("me").chat("a")).await;
    gate.wait_arrived(1).await;
    *gateway.setup() = setup.set("cron.max_jobs", 5);
    reload(&gateway, "configuration reloaded: cron.max_jobs 1 → 5").await;
    gate.open();
    assert_eq!(gateway.wait_done("in", &slow).await.text("reply"), "slow done");
    let asked = model.requests_about("slow").pop().unwrap().to_string();
    assert!(asked.contains("as many as cron.max_jobs allows"), "{asked}");
    let later = gateway.accept("in", &Message::new("later").sender("me").chat("b")).await;
    assert_eq!(gateway.wait_done("in", &later).await.text("reply"), "later done");
    let jobs = gateway.json(&["cron", "list"]).await;
    let mut names: Vec<_> = jobs.as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two"]);
    gateway.stop().await;
}
