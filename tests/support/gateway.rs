//! Drives the real program: starts it in a separate home, talks to it from outside, kills it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::{Client, RequestBuilder};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::config::{HookCredentials, Setup};
use super::invariants::{self, Journal, Witness, wait_settled};
use super::port::Port;
use super::{deadline, signing, until};

/// Returns a client without proxies.
pub fn http_client() -> Client {
    // A provider may be installed already, which does no harm.
    rustls::crypto::ring::default_provider().install_default().ok();
    Client::builder().no_proxy().build().expect("a client without files or proxies")
}

/// A message to a webhook. Unset fields are not sent.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub content: String,
    pub chat_id: Option<String>,
    pub sender: Option<String>,
    pub id: Option<String>,
    pub session: Option<String>,
}

impl Message {
    pub fn new(content: &str) -> Self {
        Self { content: content.to_owned(), ..Self::default() }
    }

    pub fn chat(mut self, chat: &str) -> Self {
        self.chat_id = Some(chat.to_owned());
        self
    }

    pub fn sender(mut self, sender: &str) -> Self {
        self.sender = Some(sender.to_owned());
        self
    }

    pub fn id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    pub fn session(mut self, session: &str) -> Self {
        self.session = Some(session.to_owned());
        self
    }

    /// Returns the message in the webhook's native format.
    pub fn body(&self) -> Value {
        let mut body = json!({"content": self.content});
        for (key, value) in
            [("chat_id", &self.chat_id), ("sender", &self.sender), ("id", &self.id), ("session", &self.session)]
        {
            if let Some(value) = value {
                body[key] = json!(value);
            }
        }
        body
    }
}

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub retry_after: Option<String>,
    pub body: Value,
}

impl HttpAnswer {
    /// Returns a string field of the body; empty if it is missing.
    pub fn text(&self, key: &str) -> &str {
        self.body[key].as_str().unwrap_or_default()
    }
}

/// The output of a command.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl CommandOutput {
    /// Asserts that the command failed and printed only an error that contains `expected`.
    pub fn assert_refused(&self, expected: &str) {
        let is_refused = self.code == Some(1) && self.stdout.is_empty() && self.stderr.contains(expected);
        assert!(is_refused, "{expected}: {self:?}");
    }
}

/// A home with its gateway, which may be running or not.
pub struct Gateway {
    setup: Setup,
    directory: TempDir,
    port: Port,
    pub client: Client,
    child: Option<Child>,
    starts: usize,
    crash_at: Option<String>,
    /// The gateway was started with a fail point.
    may_crash: bool,
}

impl Drop for Gateway {
    #[expect(clippy::print_stderr, reason = "what a failed test shows")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

/// A value for `OLLAMA_HOST` without a model server behind it, so that a server that happens to run on this machine is not used.
pub const NO_OLLAMA: &str = "127.0.0.1:9";

/// Returns the path of the program under test: `DAOYOU_BIN`, or else the program that cargo built with this test.
pub fn binary() -> PathBuf {
    std::env::var_os("DAOYOU_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_daoyou")), PathBuf::from)
}

impl Gateway {
    /// Creates an empty home without a running gateway.
    pub fn new(setup: Setup) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let (port, client) = (Port::claim(), http_client());
        Self { setup, directory, port, client, child: None, starts: 0, crash_at: None, may_crash: false }
    }

    /// Creates an empty home with a gateway that is ready.
    pub async fn start(setup: Setup) -> Self {
        let mut gateway = Self::new(setup);
        gateway.up().await;
        gateway
    }

    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub fn database(&self) -> PathBuf {
        self.home().join("daoyou.db")
    }

    pub fn workspace(&self) -> PathBuf {
        self.home().join("workspace")
    }

    /// Returns the settings; changes apply from the next start.
    pub fn setup(&mut self) -> &mut Setup {
        &mut self.setup
    }

    /// Kills the next start, and only that one, at a fail point: `NAME`, `NAME:N` for its N-th hit, or `NAME=TEXT`
    /// where its detail contains TEXT.
    pub fn crash_at(&mut self, point: &str) -> &mut Self {
        self.crash_at = Some(point.to_owned());
        self
    }

    /// Returns the program with this home and a minimal environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.setup.program.clone().unwrap_or_else(binary));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.directory.path()).env("TZ", "UTC").env("LANG", "C.UTF-8").env("RUST_BACKTRACE", "1");
        command.env("OLLAMA_HOST", NO_OLLAMA).env("DAOYOU_HOME", self.home()).envs(&self.setup.env).args(args);
        command.current_dir(self.directory.path()).kill_on_drop(true);
        if let Some(user) = self.setup.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Writes `config.toml`; every start and every [`Gateway::run`] does so.
    pub fn write_config(&self) {
        std::fs::create_dir_all(self.home()).expect("the temporary folder is ours");
        // The new file replaces the old one atomically, because a running gateway may read its configuration at any moment.
        let (draft, config) = (self.home().join(".config.toml.new"), self.home().join("config.toml"));
        std::fs::write(&draft, self.setup.render(self.port.number)).expect("the home is ours");
        if let Ok(before) = std::fs::metadata(&config) {
            std::fs::set_permissions(&draft, before.permissions()).expect("the draft is ours");
        }
        std::fs::rename(draft, config).expect("config.toml is ours");
        if self.setup.user.is_some() {
            for path in [self.directory.path().to_owned(), self.home(), self.home().join("config.toml")] {
                std::os::unix::fs::chown(path, self.setup.user, self.setup.user).expect("the tests run as root");
            }
        }
    }

    /// Starts the gateway without waiting for it.
    pub fn spawn(&mut self) {
        self.write_config();
        self.launch();
    }

    /// Starts the gateway with the existing `config.toml` and does not wait for it.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "a gateway already runs in this home");
        self.starts += 1;
        let log = File::create(self.log_path(self.starts)).expect("the temporary folder is ours");
        let mut command = self.command(&["gateway", "--no-cli"]);
        command.args(&self.setup.args);
        self.may_crash = self.crash_at.is_some();
        if let Some(point) = self.crash_at.take() {
            command.env("DAOYOU_CRASH_AT", point);
        }
        let error_log = log.try_clone().expect("a file can be cloned");
        command.stdin(Stdio::null()).stdout(log).stderr(error_log);
        self.child = Some(command.spawn().expect("the program starts"));
    }

    /// Starts the gateway and returns when it is ready.
    pub async fn up(&mut self) {
        self.spawn();
        self.wait_ready().await;
    }

    /// Returns when `/readyz` answers 200; panics if the gateway exits instead.
    pub async fn wait_ready(&mut self) {
        self.wait_answer("/readyz").await;
    }

    /// Returns when the gateway is alive, even if parts of it do not work; panics if it exits instead.
    pub async fn wait_alive(&mut self) {
        self.wait_answer("/healthz").await;
    }

    async fn wait_answer(&mut self, path: &str) {
        let url = self.url(path);
        let (client, child) = (self.client.clone(), self.child.as_mut().expect("a gateway was started"));
        let exited = until("the gateway to be ready", async || {
            if let Some(status) = child.try_wait().expect("our own child") {
                return Some(Some(status));
            }
            let ready = client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success());
            ready.then_some(None)
        });
        let exited = exited.await;
        assert!(exited.is_none(), "the gateway exited instead of getting ready: {exited:?}");
    }

    /// Waits for the gateway to exit and returns its status.
    pub async fn wait_exit(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a gateway was started");
        deadline("the gateway to exit", child.wait()).await.expect("our own child")
    }

    /// Returns the exit status, if the gateway has ended.
    pub fn try_exit(&mut self) -> Option<ExitStatus> {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("our own child"));
        if ended.is_some() {
            self.child = None;
        }
        ended
    }

    /// Waits until the fail point set by [`Gateway::crash_at`] has killed the gateway.
    pub async fn wait_crash(&mut self) {
        use std::os::unix::process::ExitStatusExt;
        let status = self.wait_exit().await;
        assert_eq!(status.signal(), Some(9), "the gateway ended otherwise than by its fail point: {status}");
    }

    /// Starts the gateway again and waits until all work is done.
    pub async fn recover(&mut self) {
        self.up().await;
        wait_settled(&self.database()).await;
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().and_then(Child::id).expect("a gateway runs")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("our own child");
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub async fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.wait_exit().await;
    }

    /// Sends SIGTERM; does not wait.
    pub fn sigterm(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGHUP; does not wait.
    pub fn sighup(&self) {
        self.signal(Signal::HUP);
    }

    /// Sends SIGINT; does not wait.
    pub fn sigint(&self) {
        self.signal(Signal::INT);
    }

    /// Sends SIGTERM; the exit code must be 0.
    pub async fn stop(&mut self) {
        self.sigterm();
        let status = self.wait_exit().await;
        assert_eq!(status.code(), Some(0), "a drained gateway exits 0");
    }

    /// Sends SIGKILL and starts again.
    pub async fn restart(&mut self) {
        self.kill9().await;
        self.up().await;
    }

    fn log_path(&self, start: usize) -> PathBuf {
        self.directory.path().join(format!("gateway-{start}.log"))
    }

    /// Returns everything that all starts so far have written to stdout and stderr.
    pub fn logs(&self) -> String {
        let read = |start: usize| {
            let text = std::fs::read_to_string(self.log_path(start)).unwrap_or_default();
            format!("---- log of start {start}\n{text}")
        };
        (1..=self.starts).map(read).collect()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port.number)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number)
    }

    /// Returns the bearer token of the API.
    pub fn token(&self) -> String {
        let token = std::fs::read_to_string(self.home().join("token")).expect("a started gateway has a token");
        token.trim().to_owned()
    }

    fn authenticate(&self, hook: &str, request: RequestBuilder, id: Option<&str>, body: &[u8]) -> RequestBuilder {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        match &self.setup.hooks.get(hook).expect("a hook of this setup").credentials {
            HookCredentials::None => request,
            HookCredentials::Bearer(secret) => request.bearer_auth(secret),
            HookCredentials::Standard(secret) => {
                let fresh = || format!("msg_{}", NEXT.fetch_add(1, Ordering::Relaxed));
                let id = id.map_or_else(fresh, str::to_owned);
                let now = jiff::Timestamp::now().as_second();
                let signature = signing::sign(secret, &id, now, body);
                let request = request.header("webhook-id", id).header("webhook-timestamp", now);
                request.header("webhook-signature", signature)
            }
        }
    }

    /// Sends `request`; returns `None` without a complete answer.
    pub async fn try_send(request: RequestBuilder) -> Option<HttpAnswer> {
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").and_then(|v| v.to_str().ok()).map(str::to_owned);
        let bytes = response.bytes().await.ok()?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Some(HttpAnswer { status, retry_after, body })
    }

    /// Posts `message` to `hook` with its credentials. `query` is e.g. `?wait=30`. Returns `None` if there is no answer.
    pub async fn try_post(&self, hook: &str, query: &str, message: &Message) -> Option<HttpAnswer> {
        let body = message.body().to_string();
        let request = self.client.post(self.url(&format!("/webhook/{hook}{query}")));
        let request = self.authenticate(hook, request, message.id.as_deref(), body.as_bytes());
        Self::try_send(request.header("content-type", "application/json").body(body)).await
    }

    /// Posts `message`. The gateway must answer, with any status.
    pub async fn post(&self, hook: &str, query: &str, message: &Message) -> HttpAnswer {
        deadline("the answer to a post", self.try_post(hook, query, message)).await.expect("an answer to a post")
    }

    /// Posts `message`, which must be accepted, and returns its id. The answer may be lost if a fail point is set, because the turn
    /// begins before the answer is sent.
    pub async fn accept(&self, hook: &str, message: &Message) -> String {
        let answered = deadline("the answer to a post", self.try_post(hook, "", message)).await;
        let Some(answered) = answered else {
            assert!(self.may_crash, "no answer to a post");
            let id = invariants::open(&self.database()).and_then(|database| {
                let newest = "SELECT id FROM inbox WHERE content = ?1 ORDER BY seq DESC LIMIT 1";
                database.query_row(newest, [&message.content], |row| row.get(0))
            });
            return id.expect("the message was accepted before the crash");
        };
        assert_eq!((answered.status, answered.text("status")), (202, "accepted"), "{answered:?}");
        answered.text("id").to_owned()
    }

    /// Delivers `message`, given as the fields of a stored message, the way its channel does. Returns its id.
    pub async fn deliver(&self, message: &Value) -> String {
        let request = self.client.post(self.url("/api/messages")).bearer_auth(self.token()).json(message);
        let answered = Self::try_send(request).await.expect("the gateway answers");
        assert_eq!(answered.status, 202, "{answered:?}");
        answered.text("id").to_owned()
    }

    /// Posts text to chat `chat` and returns the reply, using `?wait`.
    pub async fn ask(&self, hook: &str, chat: &str, text: &str) -> String {
        let answered = self.post(hook, "?wait=30", &Message::new(text).chat(chat)).await;
        assert_eq!(answered.status, 200, "{answered:?}");
        answered.text("reply").to_owned()
    }

    /// Asks like [`Gateway::ask`], as another sender.
    pub async fn ask_as(&self, hook: &str, sender: &str, chat: &str, text: &str) -> String {
        let answered = self.post(hook, "?wait=30", &Message::new(text).sender(sender).chat(chat)).await;
        assert_eq!(answered.status, 200, "{answered:?}");
        answered.text("reply").to_owned()
    }

    /// Calls a tool through a model of [`Model::call_named_tools`](super::Model::call_named_tools) and returns the result.
    pub async fn call_tool(&self, tool: &str, arguments: &Value) -> String {
        let reply = self.ask("in", "c", &json!([[tool, arguments]]).to_string()).await;
        let results: Vec<String> = serde_json::from_str(&reply).unwrap_or_else(|_| panic!("{tool}: {reply}"));
        results.into_iter().next().expect("one result for each call")
    }

    /// Returns the reply to `text` in a new chat, and its error code.
    pub async fn reply_and_error_code(&self, text: &str) -> (String, Value) {
        let id = self.accept("in", &Message::new(text).chat(text)).await;
        let state = self.wait_done("in", &id).await;
        (state.text("reply").to_owned(), state.body["error"]["code"].clone())
    }

    /// Sends `text` unchanged, and reads until the server closes.
    pub async fn exchange(&self, text: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address()).await.expect("the gateway listens");
        stream.write_all(text).await.expect("the gateway reads");
        let mut bytes = Vec::new();
        deadline("the server to close", stream.read_to_end(&mut bytes)).await.expect("an answer");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Requests `GET /webhook/NAME/messages/ID`. The request has no body to sign, so it carries the secret.
    pub async fn state(&self, hook: &str, id: &str) -> HttpAnswer {
        let request = self.client.get(self.url(&format!("/webhook/{hook}/messages/{id}")));
        let request = match &self.setup.hooks.get(hook).expect("a hook of this setup").credentials {
            HookCredentials::None => request,
            HookCredentials::Bearer(secret) | HookCredentials::Standard(secret) => request.bearer_auth(secret),
        };
        deadline("a message's state", Self::try_send(request)).await.expect("an answer to a question for a state")
    }

    /// Waits until the message is `done` or `dead`, and returns its state.
    pub async fn wait_done(&self, hook: &str, id: &str) -> HttpAnswer {
        until(&format!("message {id} to be done"), async || {
            let state = self.state(hook, id).await;
            matches!(state.text("status"), "done" | "dead").then_some(state)
        })
        .await
    }

    /// Waits until a message to the hook `in` has this status.
    pub async fn wait_status(&self, id: &str, status: &str) {
        until(&format!("message {id} to be {status}"), async || {
            (self.state("in", id).await.text("status") == status).then_some(())
        })
        .await;
    }

    /// Waits until a call waits for the owner's approval, and returns the first one.
    pub async fn wait_approval(&self) -> Value {
        until("a call that waits for the owner", async || {
            self.json(&["approvals", "list"]).await.as_array().expect("a list").first().cloned()
        })
        .await
    }

    /// Waits until all work is done, and checks all invariants.
    pub async fn check_settled(&self, witness: &Witness<'_>) -> Journal {
        wait_settled(&self.database()).await;
        invariants::check(&self.database(), witness)
    }

    /// Runs `daoyou ARGS` in this home to its end.
    pub async fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with_input(args, "").await
    }

    /// Runs `daoyou ARGS` with `input` as stdin.
    pub async fn run_with_input(&self, args: &[&str], input: &str) -> CommandOutput {
        self.write_config();
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("stdin is a pipe");
        let input = input.to_owned();
        // A program that does not read its input closes the pipe, which is not an error.
        let writer = tokio::spawn(async move { stdin.write_all(input.as_bytes()).await.ok() });
        let output = deadline(&format!("daoyou {args:?}"), child.wait_with_output()).await.expect("our own child");
        writer.abort();
        output.into()
    }

    /// Runs `daoyou tools run TOOL ARGUMENTS --json`, which may fail, and parses its output.
    pub async fn run_tool(&self, tool: &str, arguments: &Value) -> Value {
        let ran = self.run(&["tools", "run", tool, &arguments.to_string(), "--json"]).await;
        serde_json::from_str(&ran.stdout).unwrap_or_else(|fault| panic!("{fault}: {ran:?}"))
    }

    /// Runs a command with `--json`, which must succeed, and parses its output.
    pub async fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--json"]].concat()).await;
        assert_eq!(ran.code, Some(0), "daoyou {args:?}: {ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|fault| panic!("daoyou {args:?}: {fault}: {}", ran.stdout))
    }
}
