//! HEARTBEAT.md: a model gets new, changed and due entries once, and its output is delivered.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, mknodat};
use serde_json::Value;

use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

struct World {
    model: Model,
    sink: Sink,
    gateway: Gateway,
}

impl World {
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
    let mut world = World::start(|setup| setup).await;
    world.model.on("Look at the disk", [Reply::text("The disk is full.")]);
    world.model.on("Look at the mail", [Reply::text("`HEARTBEAT_OK`.")]);
    world.model.on("Look at the sky", [Reply::text("It rains.\n\nHEARTBEAT_OK")]);
    world.wait_rounds().await;
    assert_eq!(world.model.count(), 0, "the template holds no entry");

    world.write("# Mine\n\n<!-- - not this -->\n- [ ] Look at the disk\n- [x] Look at what is done\n");
    world.sink.wait_posts(1).await;
    world.wait_rounds().await;
    assert_eq!(world.model.count(), 1, "asked once");
    let asked = &world.model.requests()[0]["messages"];
    let asked: Vec<&str> = asked.as_array().unwrap().iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(asked.len(), 2, "the system's prompt and the entry: {asked:?}");
    assert!(asked[1].starts_with("Heartbeat:\n- Look at the disk\n"), "{asked:?}");
    assert!(!asked[1].contains("what is done") && asked[1].contains("HEARTBEAT_OK"), "{asked:?}");

    world.write("- [ ] Look at the disk\n- Look at the mail\n");
    world.model.wait_requests(2).await;
    world.wait_rounds().await;
    let second = world.model.requests()[1]["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(second.contains("Look at the mail") && !second.contains("Look at the disk"), "{second}");

    // The state of the heartbeat is in the store.
    world.gateway.restart().await;
    world.wait_rounds().await;
    assert_eq!(world.model.count(), 2);
    world.write("- [ ] Look at the disk\n- Look at the mail\n- Look at the sky");
    world.sink.wait_posts(2).await;
    world.wait_rounds().await;
    assert_eq!(world.delivered(), ["The disk is full.", "It rains."]);

    // The chat's history contains the message that was sent to it.
    world.gateway.ask("in", "me", "what was that?").await;
    let asked = world.model.requests_about("what was that?");
    assert!(asked[0].to_string().contains("The disk is full."), "{asked:?}");
    let status = world.gateway.json(&["status"]).await;
    assert_eq!(status["heartbeat"]["enabled"], Value::Bool(true));
    assert!(status["heartbeat"]["next"].is_string() && status["heartbeat"]["tokens_today"].as_u64().unwrap() > 0);
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_daily_heartbeat_tokens_are_reported_once() {
    let mut world = World::start(|setup| setup.set("heartbeat.tokens_per_day", 100)).await;
    world.model.on("Look at the disk", [Reply::text("The disk is full.").usage(90, 20)]);
    world.write("- Look at the disk");
    world.sink.wait_posts(1).await;
    world.write("- Look at the disk\n- Look at the mail");
    let told = world.sink.wait_posts(2).await;
    assert!(told[1].data("content").contains("100 tokens of today"), "{}", told[1].data("content"));
    world.wait_rounds().await;
    world.write("- Look at the sky");
    world.wait_rounds().await;
    assert_eq!((world.model.count(), world.delivered().len()), (1, 2));
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_heartbeat_turn_is_repeated_and_reported_once() {
    let mut world = World::start(|setup| setup.set("providers.scripted.retries", 0)).await;
    world.model.on("Look at the disk", [Reply::text("The disk is full.")]);
    world.model.nth(1, Reply::status(400));
    world.model.nth(2, Reply::status(400));
    world.write("- Look at the disk");
    let told = world.sink.wait_posts(2).await;
    assert_eq!(told[1].data("content"), "The disk is full.", "{:?}", world.delivered());
    world.wait_rounds().await;
    assert_eq!((world.model.count(), world.delivered().len()), (3, 2));
    world.gateway.stop().await;
}

/// Objects that the agent's commands may put in place of the file: a pipe, and links out of the workspace.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_or_link_in_place_of_the_file_neither_blocks_nor_is_followed() {
    let world = World::start(|setup| setup).await;
    let file = world.gateway.workspace().join("HEARTBEAT.md");
    let secret = world.gateway.home().join("secret.md");
    fs::write(&secret, "- Look at the canary\n").unwrap();
    for trick in 0..4 {
        fs::remove_file(&file).unwrap();
        match trick {
            0 => mknodat(CWD, &file, FileType::Fifo, 0o600.into(), 0).unwrap(),
            1 => symlink("/dev/zero", &file).unwrap(),
            2 => symlink(&secret, &file).unwrap(),
            _ => fs::hard_link(&secret, &file).unwrap(),
        }
        let idle = || world.gateway.logs().matches("the heartbeat is idle").count();
        let before = idle();
        until("two more rounds", async || (idle() >= before + 2).then_some(())).await;
        assert_eq!(world.gateway.ask("in", "x", "hello").await, "echo: hello");
    }
    let asked = serde_json::json!(world.model.requests()).to_string();
    assert!(!asked.contains("canary") && world.delivered().iter().all(|text| text == "echo: hello"), "{asked}");
}
