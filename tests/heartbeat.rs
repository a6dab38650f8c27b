//! HEARTBEAT.md: a model gets new, changed and due entries once, and its output is delivered.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, mknodat};
use serde_json::Value;

use crate::support::model::last_text;
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

struct Harness {
    model: Model,
    sink: Sink,
    gateway: Gateway,
}

impl Harness {
    /// Starts a gateway that checks every second.
    async fn start(set: impl FnOnce(Setup) -> Setup) -> Self {
        let (model, sink) = (Model::start().await, Sink::signed().await);
        let setup = Setup::new()
            .model(&model)
            .hook(Hook::bearer("in").callback(&sink))
            .set("log.level", "info,daoyou::cron=debug")
            .set("heartbeat.enabled", true)
            .set("heartbeat.every", "1s")
            .set("heartbeat.active_hours", "")
            .set("heartbeat.deliver_to", "webhook:in:me");
        let gateway = Gateway::start(set(setup)).await;
        Self { model, sink, gateway }
    }

    fn write(&self, text: &str) {
        let file = self.gateway.workspace().join("HEARTBEAT.md");
        fs::write(file.with_extension("new"), text).unwrap();
        fs::rename(file.with_extension("new"), file).unwrap();
    }

    fn round_count(&self) -> usize {
        self.gateway.logs().matches("checking HEARTBEAT.md").count()
    }

    /// Waits for two more rounds, the second of which began after this call.
    async fn wait_rounds(&self) {
        let before = self.round_count();
        until("two more looks", async || (self.round_count() >= before + 2).then_some(())).await;
    }

    fn delivered(&self) -> Vec<String> {
        self.sink.posts().iter().map(|post| post.data("content").to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_heartbeat_entries_are_run_and_only_news_is_delivered() {
    let mut harness = Harness::start(|setup| setup).await;
    harness.model.on("Look at the disk", [Reply::text("The disk is full.")]);
    harness.model.on("Look at the mail", [Reply::text("`HEARTBEAT_OK`.")]);
    harness.model.on("Look at the sky", [Reply::text("It rains.\n\nHEARTBEAT_OK")]);
    harness.wait_rounds().await;
    assert_eq!(harness.model.count(), 0, "the template holds no entry");

    harness.write("# Mine\n\n<!-- - not this -->\n- [ ] Look at the disk\n- [x] Look at what is done\n");
    harness.sink.wait_posts(1).await;
    harness.wait_rounds().await;
    assert_eq!(harness.model.count(), 1, "asked once");
    let asked = &harness.model.requests()[0]["messages"];
    let asked: Vec<&str> = asked.as_array().unwrap().iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(asked.len(), 2, "the system's prompt and the entry: {asked:?}");
    assert!(asked[1].starts_with("Heartbeat:\n- Look at the disk\n"), "{asked:?}");
    assert!(!asked[1].contains("what is done") && asked[1].contains("HEARTBEAT_OK"), "{asked:?}");

    harness.write("- [ ] Look at the disk\n- Look at the mail\n");
    harness.model.wait_requests(2).await;
    harness.wait_rounds().await;
    let second = last_text(&harness.model.requests()[1]).to_owned();
    assert!(second.contains("Look at the mail") && !second.contains("Look at the disk"), "{second}");

    // The state of the heartbeat is in the store.
    harness.gateway.restart().await;
    harness.wait_rounds().await;
    assert_eq!(harness.model.count(), 2);
    harness.write("- [ ] Look at the disk\n- Look at the mail\n- Look at the sky");
    harness.sink.wait_posts(2).await;
    harness.wait_rounds().await;
    assert_eq!(harness.delivered(), ["The disk is full.", "It rains."]);

    // The chat's history contains the message that was sent to it.
    harness.gateway.ask("in", "me", "what was that?").await;
    let asked = harness.model.requests_about("what was that?");
    assert!(asked[0].to_string().contains("The disk is full."), "{asked:?}");
    let status = harness.gateway.json(&["status"]).await;
    assert_eq!(status["heartbeat"]["enabled"], Value::Bool(true));
    assert!(status["heartbeat"]["next"].is_string() && status["heartbeat"]["tokens_today"].as_u64().unwrap() > 0);
    harness.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_shortens_the_interval_of_the_checks() {
    let mut harness = Harness::start(|setup| setup.set("heartbeat.every", "1h")).await;
    let setup = harness.gateway.setup();
    *setup = setup.clone().set("heartbeat.every", "1s");
    harness.gateway.write_config();
    harness.gateway.sighup();
    harness.wait_rounds().await;
    harness.gateway.stop().await;
}

/// An entry whose schedule is not understood does not run; the log names it once. Fenced code is not a task.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_with_a_misread_schedule_does_not_run_and_is_reported_once() {
    let mut harness = Harness::start(|setup| setup).await;
    harness.write("- every month: Look at the rent\n- 25:00: Look at the clock\n\n```\n- Look at the code\n```\n");
    harness.wait_rounds().await;
    harness.wait_rounds().await;
    assert_eq!(harness.model.count(), 0, "{:?}", harness.model.requests());
    let logs = harness.gateway.logs();
    assert_eq!(logs.matches("its schedule is not understood").count(), 2, "{logs}");
    assert!(logs.contains("every month") && logs.contains("25:00"), "{logs}");
    let doctor = harness.gateway.run(&["doctor"]).await.stdout;
    for expected in [
        "HEARTBEAT.md:1: the schedule \"every month\" is not understood: understood \"every month\", but say on which day",
        "HEARTBEAT.md:2: the schedule \"25:00\" is not understood: not understood: \"25:00\"",
    ] {
        assert!(doctor.contains(expected), "{doctor}");
    }
    harness.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_daily_heartbeat_tokens_are_reported_once() {
    let mut harness = Harness::start(|setup| setup.set("heartbeat.tokens_per_day", 100)).await;
    harness.model.on("Look at the disk", [Reply::text("The disk is full.").usage(90, 20)]);
    harness.write("- Look at the disk");
    harness.sink.wait_posts(1).await;
    harness.write("- Look at the disk\n- Look at the mail");
    let posts = harness.sink.wait_posts(2).await;
    assert!(posts[1].data("content").contains("100 tokens of today"), "{}", posts[1].data("content"));
    harness.wait_rounds().await;
    harness.write("- Look at the sky");
    harness.wait_rounds().await;
    assert_eq!((harness.model.count(), harness.delivered().len()), (1, 2));
    harness.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_heartbeat_turn_is_repeated_and_reported_once() {
    let mut harness = Harness::start(|setup| setup.set("providers.scripted.retries", 0)).await;
    harness.model.on("Look at the disk", [Reply::text("The disk is full.")]);
    harness.model.nth(1, Reply::status(400));
    harness.model.nth(2, Reply::status(400));
    harness.write("- Look at the disk");
    let posts = harness.sink.wait_posts(2).await;
    assert_eq!(posts[1].data("content"), "The disk is full.", "{:?}", harness.delivered());
    harness.wait_rounds().await;
    assert_eq!((harness.model.count(), harness.delivered().len()), (3, 2));
    harness.gateway.stop().await;
}

/// Objects that the agent's commands may put in place of the file: a pipe, and links out of the workspace.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_or_link_in_place_of_the_file_neither_blocks_nor_is_followed() {
    let harness = Harness::start(|setup| setup).await;
    let file = harness.gateway.workspace().join("HEARTBEAT.md");
    let secret = harness.gateway.home().join("secret.md");
    fs::write(&secret, "- Look at the canary\n").unwrap();
    for trick in 0..4 {
        fs::remove_file(&file).unwrap();
        match trick {
            0 => mknodat(CWD, &file, FileType::Fifo, 0o600.into(), 0).unwrap(),
            1 => symlink("/dev/zero", &file).unwrap(),
            2 => symlink(&secret, &file).unwrap(),
            _ => fs::hard_link(&secret, &file).unwrap(),
        }
        let idle = || harness.gateway.logs().matches("the heartbeat is idle").count();
        let before = idle();
        until("two more rounds", async || (idle() >= before + 2).then_some(())).await;
        assert_eq!(harness.gateway.ask("in", "x", "hello").await, "echo: hello");
    }
    let asked = serde_json::json!(harness.model.requests()).to_string();
    assert!(!asked.contains("canary") && harness.delivered().iter().all(|text| text == "echo: hello"), "{asked}");
}
