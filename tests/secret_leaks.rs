//! Fault 33: canary secrets. In every case they stay where the owner put them and go only to their services. They never
//! reach logs, the database, model requests, commands' environments, or replies.

use std::fs;

use daoyou::guard;
use serde_json::json;

use crate::support::config::HookCredentials;
use crate::support::gateway::Message;
use crate::support::invariants::wait_settled;
use crate::support::requirements::{bubblewrap_is_missing, skip_story};
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, files_below, signing, until};

/// The prefix of every canary.
const MARK: &str = "canary-";
const LITERAL: &str = "canary-literal-0f1e2d3c4b5a69788796a5b4c3d2e1f0";
const FROM_ENV: &str = "canary-env-11223344556677889900";
const FROM_FILE: &str = "canary-file-aabbccddeeff00112233";
const HEADER: &str = "canary-header-99887766554433221100";
const PASSWORD: &str = "canary-password-5566";
const QUERY: &str = "canary-query-7788";

struct Harness {
    model: Model,
    sink: Sink,
    gateway: Gateway,
    /// Holds an answer back, no part of which may appear.
    gate: Gate,
    /// The strings that must not occur anywhere, including the mark.
    needles: Vec<String>,
}

impl Harness {
    async fn start() -> Self {
        let model = Model::start().await;
        let signing_key = signing::secret(b"canary-cred-a key of 32 bytes.. ");
        let sink = Sink::start(Some(&signing_key)).await;
        let gate = Gate::new();
        script(&model, &gate);
        let callback = sink.url().replacen("http://", &format!("http://hook:{PASSWORD}@"), 1);
        let mut hook = Hook::bearer("in").set("secret", "file:hook-secret").set("retry", vec!["10ms"]);
        hook.credentials = HookCredentials::Bearer(FROM_FILE.to_owned());
        let hook = hook.set("callback_url", format!("{callback}?key={QUERY}")).set("callback_secret", "cred:callback");
        let setup = Setup::new()
            .model(&model)
            .set("providers.scripted.api_key", LITERAL)
            .set("providers.scripted.headers.X-From-Env", "env:WATCHED")
            .set("providers.scripted.headers.X-Literal", HEADER)
            .set("providers.scripted.retries", 1)
            .hook(hook)
            .env("WATCHED", FROM_ENV)
            .arg("--log")
            .arg("trace");
        let mut gateway = Gateway::new(setup);
        let credentials = gateway.home().join("credentials");
        gateway.setup().env.insert("CREDENTIALS_DIRECTORY".to_owned(), credentials.display().to_string());
        fs::create_dir_all(&credentials).unwrap();
        fs::write(credentials.join("callback"), &signing_key).unwrap();
        fs::write(gateway.home().join("hook-secret"), FROM_FILE).unwrap();
        gateway.up().await;
        let key = signing_key.trim_start_matches("whsec_").to_owned();
        let needles = vec![MARK.to_owned(), key, gateway.token()];
        Self { model, sink, gateway, gate, needles }
    }

    fn assert_clean(&self, place: &str, bytes: &[u8]) {
        for needle in &self.needles {
            let at = bytes.windows(needle.len()).position(|window| window == needle.as_bytes());
            if let Some(at) = at {
                let around = &bytes[at.saturating_sub(200)..(at + 80).min(bytes.len())];
                panic!("{place}: {}", String::from_utf8_lossy(around));
            }
        }
    }

    /// Asserts that no file below the test's folder contains a canary, except the files in which the owner keeps secrets.
    fn assert_files_clean(&self) -> usize {
        let root = self.gateway.home().parent().unwrap().to_owned();
        let kept = ["config.toml", "token", "hook-secret", "callback"];
        // A link into the home has no content itself; other stories test reading through it.
        let files = files_below(&root);
        for path in files.iter().filter(|path| !kept.iter().any(|name| path.ends_with(name))) {
            self.assert_clean(&path.display().to_string(), &fs::read(path).unwrap());
        }
        files.len()
    }
}

/// Scripts a curious or hostile model, and services that repeat the requests they get.
fn script(model: &Model, gate: &Gate) {
    let echo = format!("Incorrect API key provided: {LITERAL}, with {FROM_ENV} and {HEADER}");
    model.on("refused", [Reply::status(401).saying(&echo)]);
    model.on("flaky", [Reply::status(500).saying(&echo)]);
    for (word, before) in [("cut-a", 460), ("cut-b", 480)] {
        let long = format!("{} {LITERAL} {LITERAL}", "x".repeat(before));
        model.on(word, [Reply::status(400).saying(&long)]);
    }
    let inside = json!({"error": {"message": echo, "code": 503}});
    model.on("midway", [Reply::raw(format!("data: {inside}\n\n"))]);
    model.on("garbage", [Reply::raw(format!("data: {{{echo}\n\n"))]);
    model.on("held", [Reply::text("so far").held_by(gate)]);
    let exec = |command: &str| json!({ "command": command });
    let snoop = Reply::tool("exec", &exec("env; set; cat /proc/self/environ"))
        .and_tool("exec", &exec("cat ../token ../config.toml ../hook-secret ../credentials/callback ../daoyou.db"))
        .and_tool("exec", &exec("cat /proc/$PPID/environ /proc/[0-9]*/environ /proc/[0-9]*/cmdline"))
        .and_tool("exec", &exec("seq 1 9000; env"))
        .and_tool("read_file", &json!({"path": "../config.toml"}))
        .and_tool("read_file", &json!({"path": "/proc/self/environ"}))
        .and_tool("list_dir", &json!({"path": ".."}));
    model.on("snoop", [snoop, Reply::text("that is all I could find")]);
    // Covers the tools that search, patch, run projects and use git.
    let makefile =
        json!({"path": "Makefile", "content": "test:\n\tenv; cat ../token ../config.toml ../hook-secret; false\n"});
    let patch = "*** Begin Patch\n*** Update File: ../token\n-x\n+y\n*** End Patch";
    let search = Reply::tool("write_file", &makefile)
        .and_tool("run_test", &json!({}))
        .and_tool("grep", &json!({"pattern": ".", "path": ".."}))
        .and_tool("grep", &json!({"pattern": "."}))
        .and_tool("glob", &json!({"pattern": "**/*", "path": ".."}))
        .and_tool("repo_structure", &json!({"path": ".."}))
        .and_tool("repo_map", &json!({"path": ".."}))
        .and_tool("symbols", &json!({"path": "../config.toml"}))
        .and_tool("ast_grep_search", &json!({"pattern": "$A", "lang": "python", "path": ".."}))
        .and_tool("file_info", &json!({"path": "link-token"}))
        .and_tool("delete_file", &json!({"path": "../token"}))
        .and_tool("apply_patch", &json!({"patch": patch}))
        .and_tool("git_status", &json!({"repo_path": ".."}))
        .and_tool("git_diff", &json!({"path": "../config.toml"}))
        .and_tool("web_fetch", &json!({"url": "http://127.0.0.1:1/steal"}));
    model.on("search", [search, Reply::text("that is all I could search")]);
    // Findings are written to files, and the files are attached to messages.
    let gather = "(env; set; cat /proc/*/environ ../token ../config.toml ../hook-secret) > found.txt 2>&1; \
        for name in token config.toml hook-secret daoyou.db; do ln -sf ../$name link-$name; ln ../$name hard-$name; done";
    let attach = |path: &str| json!({"content": "look", "attachments": [path]});
    let carry = ["found.txt", "link-token", "hard-token", "link-config.toml", "../hook-secret", "link-daoyou.db"];
    let send = carry.iter().fold(Reply::text(""), |reply, path| reply.and_tool("message", &attach(path)));
    model.on("carry", [Reply::tool("exec", &exec(gather)), send, Reply::text("that is all I could send")]);
    // Taints the conversation: what follows uses no tools.
    let stored = Reply::tool("exec", &exec("cat .daoyou/*/* .daoyou/*/*/*/*"));
    model.on("stored", [stored, Reply::text("that is all that is stored")]);
}

/// Commands that show the gateway's data.
const COMMANDS: [&str; 12] = [
    "config show",
    "config show --json",
    "config check --log trace",
    "status",
    "status --json",
    "prompt --session webhook:in:c",
    "prompt --session webhook:in:c --json",
    "tools run exec {\"command\":\"env\"} --json",
    "queue list --json",
    "turns list --json",
    "sessions list --json",
    "sessions show webhook:in:c --json",
];

#[tokio::test(flavor = "multi_thread")]
async fn canary_secrets_never_leak() {
    if bubblewrap_is_missing() {
        return;
    }
    if !guard::status().is_enough() {
        skip_story("commands are off without Landlock: what they see");
    }
    let mut harness = Harness::start().await;
    let mut accepted = Vec::new();
    for text in [
        "hello", "snoop", "carry", "search", "stored", "refused", "flaky", "cut-a", "cut-b", "midway", "garbage",
        "/status", "/model",
    ] {
        // These messages wait for the service until they are stopped. Their notices are in the outbox, which is checked.
        let waits = ["refused", "flaky", "midway"].contains(&text);
        let wait = if waits { "" } else { "?wait=30" };
        let mut answered = harness.gateway.post("in", wait, &Message::new(text).chat("c")).await;
        if waits {
            let id = answered.text("id").to_owned();
            until("the wait", async || {
                (harness.gateway.state("in", &id).await.text("status") == "waiting").then_some(())
            })
            .await;
            let ran = harness.gateway.run(&["status"]).await;
            harness.assert_clean(text, format!("{ran:?}").as_bytes());
            harness.gateway.accept("in", &Message::new("/stop").chat("c")).await;
            answered = harness.gateway.wait_done("in", &id).await;
            // A refused key is tried again on request.
            assert_eq!(harness.gateway.run(&["queue", "retry", "--outcome", "waiting"]).await.code, Some(0));
        }
        assert_eq!(answered.status, 200, "{text}: {answered:?}");
        harness.assert_clean(text, answered.body.to_string().as_bytes());
        accepted.push(answered.text("id").to_owned());
    }
    let held = harness.gateway.accept("in", &Message::new("held").chat("d")).await;
    harness.gate.wait_arrived(1).await;
    harness.gateway.accept("in", &Message::new("/stop").chat("d")).await;
    harness.gateway.wait_done("in", &held).await;
    // One callback is unreachable, and one refuses.
    harness.sink.down();
    harness.gateway.accept("in", &Message::new("unheard").chat("e")).await;
    wait_settled(&harness.gateway.database()).await;
    harness.sink.up().await;

    let ran = harness.gateway.run(&["agent", "-m", "refused", "--timeout", "2s"]).await;
    harness.assert_clean("agent -m", format!("{ran:?}").as_bytes());
    for command in COMMANDS {
        let ran = harness.gateway.run(&command.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(ran.code, Some(0), "{command}: {ran:?}");
        harness.assert_clean(command, format!("{ran:?}").as_bytes());
    }
    for path in ["/metrics", "/healthz", "/readyz", "/api/sessions", "/api/openapi.json"] {
        let request = harness.gateway.client.get(harness.gateway.url(path)).bearer_auth(harness.gateway.token());
        let answer = request.send().await.unwrap();
        harness.assert_clean(path, format!("{:?}", answer.headers()).as_bytes());
        harness.assert_clean(path, &answer.bytes().await.unwrap());
    }
    for id in &accepted {
        let ran = harness.gateway.run(&["turns", "show", id]).await;
        harness.assert_clean("turns show", format!("{ran:?}").as_bytes());
    }

    let requests = serde_json::to_vec(&harness.model.requests()).unwrap();
    harness.assert_clean("what the model was told", &requests);
    let posts = harness.sink.posts();
    assert!(posts.iter().all(|post| post.faults.is_empty()), "{posts:?}");
    // Each secret goes to its own service: the key in the query, the password in the header.
    assert!(posts.iter().all(|post| post.headers[":request"].contains(QUERY)), "{posts:?}");
    for post in posts {
        harness.assert_clean("a callback", &post.raw);
    }
    assert!(harness.assert_files_clean() > 8, "the database, its log, the workspace, the gateway's log");
    let spills = files_below(&harness.gateway.workspace().join(".daoyou"));
    assert!(!spills.is_empty(), "a long output went into a file, which was looked at with the others");
    harness.gateway.stop().await;
    harness.assert_files_clean();
    let logs = harness.gateway.logs();
    assert!(logs.contains("TRACE") && logs.contains("(hidden)"), "the log was at its loudest");
}

/// Configuration errors do not repeat text that may be a secret.
#[tokio::test(flavor = "multi_thread")]
async fn configuration_errors_never_repeat_secrets() {
    let mut gateway = Gateway::new(Setup::new());
    fs::create_dir_all(gateway.home()).unwrap();
    fs::write(gateway.home().join("callback"), "canary-file").unwrap();
    let wrong = [
        "[providers.p]\nkind = \"openai\"\napi_kye = \"canary-a\"\nbase_url = \"ftp://u:canary-b@h/?k=canary-c\"\n",
        "[providers.p]\nkind = \"openai\"\nbase_url = \"https://h/v1\"\napi_key = \"canary-d\\n\"\n",
        "[providers.p]\nkind = \"openai\"\nbase_url = \"https://h/v1\"\nheaders.\"X Y\" = \"canary-e\"\n",
        "[providers.p]\nkind = \"openai\"\nbase_url = \"https://h/v1\"\nheaders.X = \"canary-\\u0001f\"\n",
        "[providers.p]\napi_key = [\"canary-g\"]\n",
        "[providers.p]\napi_key = \"canary-syntax\n",
        "[channels.webhook.in]\nverify = \"standard\"\nsecret = \"canary-h\"\n",
        "[channels.webhook.in]\nverify = \"bearer\"\nsecret = \"x\"\ncallback_secret = \"canary-i\"\ncallback_url = \"https://h/\"\n",
        "[channels.webhook.in]\nverify = \"bearer\"\nsecret = \"a-secret\"\ncallback_url = \"ftp://h/?k=canary-j\"\n",
        "[channels.webhook.in]\nverify = \"bearer\"\nsecret = \"a-secret\"\ncallback_url = \"//u:canary-k@h\"\n",
        "[channels.webhook.in]\nverify = \"standard\"\nsecret = \"file:callback\"\n",
    ];
    for (n, text) in wrong.into_iter().enumerate() {
        let path = gateway.home().join(format!("wrong-{n}.toml"));
        fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        for command in [&["config", "check"][..], &["gateway", "--no-cli"]] {
            let ran = gateway.run(&[command, &["--config", &path, "--log", "trace"]].concat()).await;
            assert!(ran.code != Some(0) && !ran.stderr.is_empty(), "{command:?} {text}: {ran:?}");
            assert!(!format!("{ran:?}").contains(MARK), "{command:?} {text}: {}", ran.stderr);
        }
    }
    gateway.setup().env.insert("DAOYOU_PROVIDERS__P__API_KYE".to_owned(), FROM_ENV.to_owned());
    let ran = gateway.run(&["config", "check"]).await;
    assert!(ran.code != Some(0) && !format!("{ran:?}").contains(MARK), "{ran:?}");
}
