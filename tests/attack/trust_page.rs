//! Compares the documentation page with what each level of trust may do in the running program. Also sends the seeds of the
//! control socket's fuzz target to a running gateway.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::support::gateway::HttpAnswer;
use crate::support::model::user_text;
use crate::support::requirements::{bubblewrap_is_missing, is_missing};
use crate::support::web::{Page, Web};
use crate::support::{Gateway, Hook, Model, Reply, Setup, deadline, until, write_file};

const PAGE: &str = "docs/trust.md";
/// The variable that makes the story write the page instead of comparing it.
const WRITE: &str = "DAOYOU_WRITE_TRUST";
const HEAD: &str = "# Who may do what

Written by `cargo xtask trust`; not to be edited by hand. A story (`tests/attack/trust_page.rs`) has a model try everything
below in a turn of each kind, looks at what it got, and fails when this page says otherwise.

- **Owner**: the terminal, the control socket, the API with its token, and the `owner.identities`.
- **Known**: a sender whom a channel's `trusted_from` names, and the holder of a token with the scope `chat`.
- **Untrusted**: every other sender who is let in. A turn has the least trust of its messages.
- **Job**: a turn that a scheduled prompt begins, by whose order the job was made.
- **Sub-agent**: a turn that `spawn` begins, by whose turn it was begun.

An untrusted sender has neither jobs nor sub-agents, as the rows `cron` and `spawn` show. Where a dash below stands for a
change (a command, a file, a job, a message to others), the owner is asked before it is refused, and can approve that one call
(approvals.md); the policy `deny` of `[approval]` refuses it at once. The same holds in every turn that has read the words of an untrusted
sender. `remember` and `forget` of an untrusted sender are refused at once, because such a sender has no memory. Commands of `exec` run in
the sandbox of SECURITY.md; a machine that cannot hold one gives fewer powers than this page.
";
const GO: &str = "try everything";
const ECHO: &str = "echo: ";

/// A working language server, in Python.
const LANGUAGE_SERVER: &str = include_str!("../lsp/server.py");

/// A working MCP server, in Python.
const MCP_SERVER: &str = include_str!("../mcp/server.py");

/// The kinds of turns to compare, in the order of the page's columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sender,
    Job,
    SubAgent,
}

const COLUMNS: [(&str, &str, Kind); 7] = [
    ("Owner", "owner", Kind::Sender),
    ("Known", "known", Kind::Sender),
    ("Untrusted", "untrusted", Kind::Sender),
    ("Owner's job", "owner", Kind::Job),
    ("Known's job", "known", Kind::Job),
    ("Owner's sub-agent", "owner", Kind::SubAgent),
    ("Known's sub-agent", "known", Kind::SubAgent),
];

/// A call that a model tries.
struct Probe {
    tool: &'static str,
    what: &'static str,
    arguments: Value,
    /// The text of a successful result, or `file:` and the file that the call creates. An error never counts as success.
    shows: &'static str,
}

/// The probes that must fail for everybody. Every other probe must succeed for at least one kind of turn, or it would prove nothing.
const NOBODYS: [&str; 1] = ["the configuration"];

fn probe(tool: &'static str, what: &'static str, arguments: Value, shows: &'static str) -> Probe {
    Probe { tool, what, arguments, shows }
}

/// Returns the arguments of a replacement of code.
fn replace_call(dry_run: bool) -> Value {
    json!({"pattern": "old_call()", "rewrite": "new_call()", "lang": "rust", "path": "replace.rs", "dry_run": dry_run})
}

/// Returns the probes of files.
fn file_probes(home: &Path) -> Vec<Probe> {
    vec![
        probe("read_file", "a file of the workspace", json!({"path": "notes.txt"}), "canary-notes"),
        probe("read_file", "a file that came with the message", json!({"path": "mail/one.txt"}), "canary-mail"),
        probe("read_file", "a file below `tools.strangers_read`", json!({"path": "public/a.txt"}), "canary-public"),
        probe("read_file", "the owner's `memory/MEMORY.md`", json!({"path": "memory/MEMORY.md"}), "sings at noon"),
        probe("read_file", "the configuration", json!({"path": home.join("config.toml")}), "providers"),
        probe("list_dir", "the workspace", json!({}), "notes.txt"),
        probe("grep", "the workspace", json!({"pattern": "canary-notes"}), "notes.txt:1: canary-notes"),
        probe("grep", "below `tools.strangers_read`", json!({"pattern": "canary", "path": "public"}), "canary-public"),
        probe(
            "grep",
            "the owner's `memory/`",
            json!({"pattern": "sings at noon", "path": "memory/MEMORY.md"}),
            "sings at noon",
        ),
        probe("glob", "the workspace", json!({"pattern": "*.txt"}), "notes.txt"),
        probe("glob", "below `tools.strangers_read`", json!({"pattern": "*", "path": "public"}), "public/a.txt"),
        probe("repo_map", "the workspace", json!({}), "function canary_code"),
        probe("repo_map", "below `tools.strangers_read`", json!({"path": "public"}), "function canary_public"),
        probe("repo_structure", "the workspace", json!({}), "code.rs"),
        probe("symbols", "a file of the workspace", json!({"path": "code.rs"}), "function canary_code"),
        probe(
            "ast_grep_search",
            "the workspace",
            json!({"pattern": "canary_call()", "lang": "rust"}),
            "code.rs:1: fn canary_code",
        ),
        probe("ast_grep_replace", "shows a change", replace_call(true), "Would change 1 place"),
        probe("ast_grep_replace", "a file of the workspace", replace_call(false), "Changed 1 place"),
        probe("file_info", "a file of the workspace", json!({"path": "notes.txt"}), "notes.txt: file"),
        probe("create_dir", "a folder", json!({"path": "made"}), "file:made"),
        probe("delete_file", "a file of the workspace", json!({"path": "gone.txt"}), "Moved gone.txt"),
        probe("delete_file", "a file in `memory/`", json!({"path": "memory/gone.md"}), "Moved memory/gone.md"),
        probe("write_file", "a new file", json!({"path": "new.txt", "content": "x"}), "file:new.txt"),
        probe("write_file", "a file in `memory/`", json!({"path": "memory/x.md", "content": "x"}), "file:memory/x.md"),
        probe("write_file", "AGENTS.md", json!({"path": "AGENTS.md", "content": "x"}), ""),
        probe(
            "edit_file",
            "a file of the workspace",
            json!({"path": "edit.txt", "old_text": "a", "new_text": "b"}),
            "",
        ),
        probe(
            "apply_patch",
            "a new file",
            json!({"patch": "*** Begin Patch\n*** Add File: patched.txt\n+x\n*** End Patch"}),
            "file:patched.txt",
        ),
    ]
}

/// Returns all probes; `trust` decides which memory belongs to the sender.
fn probes(home: &Path, web: &str, trust: &str) -> Vec<Probe> {
    let own = if trust == "owner" { 3 } else { 2 };
    let elsewhere = json!({"content": "hi", "channel": "webhook:other", "chat_id": "x"});
    let further = vec![
        probe("exec", "a command", json!({"command": "echo canary-exec"}), "canary-exec"),
        probe("exec", "reads `memory/`", json!({"command": "cat memory/MEMORY.md"}), "sings at noon"),
        probe("exec", "in the background", json!({"command": "true", "background": true}), ""),
        probe("run_test", "the tests of a project", json!({"path": "made"}), "canary-test"),
        probe("lsp_diagnostics", "a file of a project", json!({"path": "code/a.go"}), "no diagnostics"),
        probe(
            "lsp_definition",
            "a place in a project",
            json!({"path": "code/a.go", "line": 1, "character": 6}),
            "a.go:1:6: func canary",
        ),
        probe(
            "lsp_references",
            "a place in a project",
            json!({"path": "code/a.go", "line": 1, "character": 6}),
            "a.go:1:6: func canary",
        ),
        probe("lsp_symbols", "a file of a project", json!({"path": "code/a.go"}), "function canary"),
        probe(
            "lsp_code_actions",
            "a place in a project",
            json!({"path": "code/a.go", "line": 1, "character": 6}),
            "Sort",
        ),
        probe(
            "lsp_rename",
            "a symbol of a project",
            json!({"path": "code/b.go", "line": 1, "character": 6, "new_name": "renamed"}),
            "Changed 1 place",
        ),
        probe("git_status", "a repository of the workspace", json!({"repo_path": "repo"}), "On branch main"),
        probe("git_diff", "a repository of the workspace", json!({"repo_path": "repo"}), "+canary-diff"),
        probe("git_log", "a repository of the workspace", json!({"repo_path": "repo"}), "canary-commit"),
        probe("git_commit", "a changed file", json!({"repo_path": "repo", "message": "x"}), "1 file changed"),
        probe("process", "list what runs", json!({"action": "list"}), ""),
        probe("message", "to this chat", json!({"content": "hi"}), ""),
        probe("message", "to this chat, with a file", json!({"content": "hi", "attachments": ["notes.txt"]}), ""),
        probe("message", "with a file of `memory/`", json!({"content": "hi", "attachments": ["memory/MEMORY.md"]}), ""),
        probe("message", "to another chat of the channel", json!({"content": "hi", "chat_id": "other"}), ""),
        probe("message", "to another channel", elsewhere, ""),
        probe("ask_user", "a question to the sender", json!({"question": "canary?"}), "no answer came"),
        probe("cron", "list jobs", json!({"action": "list"}), ""),
        probe("cron", "a job for this chat", json!({"action": "add", "message": "x", "every": "2h"}), ""),
        probe(
            "cron",
            "a job for another chat",
            json!({"action": "add", "message": "x", "every": "3h", "channel": "webhook:other", "chat_id": "x"}),
            "",
        ),
        probe("cron", "remove a job of another chat", json!({"action": "remove", "job_id": "elsewhere"}), ""),
        probe("load_skill", "a skill", json!({"name": "brew"}), "canary-skill"),
        probe("find_skills", "skills for a task", json!({"query": "brew tea"}), "brew"),
        probe("remember", "a fact", json!({"content": "The tide comes at six."}), ""),
        probe("recall", "what is remembered of the sender", json!({"query": ""}), "canary"),
        probe("recall", "what is remembered of the owner", json!({"query": "sings"}), "sings at noon"),
        probe("search_history", "this chat", json!({"query": "lighthouse"}), "the lighthouse here"),
        probe("search_history", "the owner's chats", json!({"query": "submarine"}), "the submarine there"),
        probe("forget", "a memory of the sender", json!({"id": own}), ""),
        probe("forget", "a memory of the owner", json!({"id": 1}), ""),
        probe("spawn", "a sub-agent", json!({"task": "quiet", "wait": true}), "echo: quiet"),
        probe("web_fetch", "a page", json!({"url": format!("{web}/page")}), "canary-page"),
        probe("web_search", "a question", json!({"query": "canaries"}), "canary-hit"),
        probe("find_tools", "tools by what they do", json!({"query": "cron"}), "- cron: "),
        probe(
            "parallel",
            "a plan of calls that are allowed",
            json!({"calls": [{"tool": "read_file", "arguments": {"path": "public/a.txt"}}]}),
            "canary-public",
        ),
        probe(
            "parallel",
            "a plan that writes a file",
            json!({"calls": [{"tool": "write_file", "arguments": {"path": "planned.txt", "content": "x"}}]}),
            "file:planned.txt",
        ),
    ];
    file_probes(home).into_iter().chain(further).chain(mcp_probes()).collect()
}

/// Returns the probes of an MCP server.
fn mcp_probes() -> Vec<Probe> {
    vec![
        probe("notes__echo", "a tool of an MCP server", json!({"text": "canary-echo"}), "echo: canary-echo"),
        probe("mcp_read", "a resource of an MCP server", json!({"uri": "note://one"}), "canary-resource"),
    ]
}

/// The parts of the workspace that a request may contain, with the words that identify each.
const PROMPT: [(&str, &str); 6] = [
    ("AGENTS.md", "canary-agents"),
    ("SOUL.md", "canary-soul"),
    ("USER.md", "canary-user"),
    ("the owner's name", "Canary Owner"),
    ("the owner's memories", "sings at noon"),
    ("the sender's memories", "canary"),
];

/// The results of one kind of turn: for each probe and each part of the prompt.
struct GrantedAccess {
    tools: Vec<bool>,
    prompt: Vec<bool>,
}

struct Harness {
    gateway: Gateway,
    model: Model,
    web: Web,
    trust: &'static str,
}

impl Harness {
    async fn new(trust: &'static str) -> Self {
        let (model, web) = (Model::start().await, Web::start().await);
        web.put("/page", Page::html("<p>canary-page</p>"));
        let hit = json!({"title": "canary-hit", "url": "https://example.org/", "content": ""});
        web.put("/search", Page::new("application/json", json!({"results": [hit]}).to_string()));
        let setup = Setup::new()
            .set("approval.default", "never")
            // Nobody answers the question of `ask_user`.
            .set("approval.expires", "200ms")
            .set("tools.web.allow_private", vec!["127.0.0.1"])
            .set("tools.web.base_url", web.url(""))
            .model(&model)
            .hook(Hook::bearer("in"))
            .hook(Hook::bearer("other"));
        // Callbacks let jobs deliver their output there; no job is due in this test.
        let setup = ["in", "other"].into_iter().fold(setup, |setup, hook| {
            setup.set(&format!("channels.webhook.{hook}.callback_url"), "http://127.0.0.1:9/never")
        });
        let setup = setup.set("owner.name", "Canary Owner").set("tools.strangers_read", vec!["public"]);
        let mut gateway = Gateway::new(setup);
        let server = gateway.workspace().join("code/server.py").display().to_string();
        let command = vec!["/usr/bin/python3".to_owned(), server, "works".to_owned()];
        let mcp = ["/usr/bin/python3", "-c", MCP_SERVER, "works"].map(str::to_owned).to_vec();
        let setup = std::mem::take(gateway.setup()).set("tools.lsp.servers.go", command).set("mcp.notes.command", mcp);
        let setup = setup.set("mcp.notes.tools", vec!["echo"]);
        *gateway.setup() = setup;
        gateway.up().await;
        until("the tools of the MCP server", async || {
            let tools = gateway.json(&["tools", "list"]).await;
            tools.as_array()?.iter().any(|tool| tool["name"] == "notes__echo").then_some(())
        })
        .await;
        let harness = Self { gateway, model, web, trust };
        harness.seed_data().await;
        harness
    }

    /// Creates files, memories, conversations and a job, each with an identifying word.
    async fn seed_data(&self) {
        let workspace = self.gateway.workspace();
        for (name, text) in [
            ("notes.txt", "canary-notes"),
            ("edit.txt", "a"),
            ("gone.txt", "gone"),
            ("memory/gone.md", "gone"),
            ("mail/one.txt", "canary-mail"),
            ("public/a.txt", "canary-public"),
            ("public/code.rs", "fn canary_public() {}\n"),
            ("code.rs", "fn canary_code() { canary_call() }\n"),
            ("replace.rs", "fn f() { old_call() }\n"),
            ("AGENTS.md", "canary-agents"),
            ("SOUL.md", "canary-soul"),
            ("USER.md", "canary-user"),
            ("made/Makefile", "test:\n\t@echo canary-test\n"),
            ("repo/a.txt", "x\n"),
            ("code/go.mod", ""),
            ("code/a.go", "func canary() {}\n"),
            ("skills/brew/SKILL.md", "---\nname: brew\ndescription: Brews tea.\n---\ncanary-skill\n"),
            ("code/b.go", "func bird() {}\n"),
            ("code/server.py", LANGUAGE_SERVER),
        ] {
            write_file(workspace.join(name), text);
        }
        create_repository(&workspace.join("repo"));
        for (owner, text) in [
            ("owner", "The canary sings at noon."),
            ("webhook:in:ann", "The canary of Ann is green."),
            ("owner", "The canary sleeps at night."),
        ] {
            self.api("/api/memory", &json!({"text": text, "owner": owner})).await;
        }
        let page = workspace.join("memory/MEMORY.md");
        until("MEMORY.md to tell of the owner", async || {
            std::fs::read_to_string(&page).is_ok_and(|text| text.contains("sings at noon")).then_some(())
        })
        .await;
        let job =
            json!({"name": "elsewhere", "message": "x", "every": "5h", "channel": "webhook:other", "chat_id": "x"});
        self.api("/api/cron", &job).await;
        self.say("owner", "cli", "direct", "the submarine there").await;
        let (channel, chat) = self.place();
        self.say(self.trust, channel, chat, "the lighthouse here").await;
        // Stored messages and memories become searchable a moment later.
        for (path, word) in [
            ("/api/search?q=submarine", "the submarine there"),
            ("/api/search?q=lighthouse", "the lighthouse here"),
            ("/api/memory/search?q=sings", "sings at noon"),
        ] {
            until(path, async || {
                let request = self.gateway.client.get(self.gateway.url(path)).bearer_auth(self.gateway.token());
                Gateway::try_send(request).await?.body.to_string().contains(word).then_some(())
            })
            .await;
        }
    }

    fn place(&self) -> (&'static str, &'static str) {
        if self.trust == "owner" { ("cli", "direct") } else { ("webhook:in", "c") }
    }

    async fn api(&self, path: &str, body: &Value) -> HttpAnswer {
        let request = self.gateway.client.post(self.gateway.url(path)).bearer_auth(self.gateway.token()).json(body);
        let answered = deadline(path, Gateway::try_send(request)).await.expect("the gateway answers");
        assert!(answered.status < 300, "{path}: {answered:?}");
        answered
    }

    /// Delivers a message as a channel with this level of trust does; returns the reply.
    async fn say(&self, trust: &str, channel: &str, chat: &str, content: &str) -> String {
        let sender = if trust == "owner" { "owner" } else { "ann" };
        let file = json!({"name": "one.txt", "path": "mail/one.txt", "media_type": "text/plain", "size": 11});
        let message = json!({
            "channel": channel, "chat_id": chat, "sender": sender, "trust": trust, "content": content,
            "attachments": [file], "reply": {"is_picked_up": true}, "received_at": jiff::Timestamp::now(),
        });
        let id = self.api("/api/messages", &message).await.text("id").to_owned();
        until(&format!("the reply to {content}"), async || {
            let url = self.gateway.url(&format!("/api/messages/{id}?wait=20"));
            let asked = self.gateway.client.get(url).bearer_auth(self.gateway.token());
            let state = Gateway::try_send(asked).await?.body;
            matches!(state["status"].as_str(), Some("done" | "dead"))
                .then(|| state["reply"]["content"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// Lets a turn of this kind try everything.
    async fn granted_access(&self, kind: Kind) -> GrantedAccess {
        let probes = probes(&self.gateway.home(), &self.web.url(""), self.trust);
        let (first, rest) = probes.split_first().expect("there are some");
        let call = |reply: Reply, probe: &Probe| reply.and_tool(probe.tool, &probe.arguments);
        let all = rest.iter().fold(Reply::tool(first.tool, &first.arguments), call);
        self.model.on(GO, [all, Reply::text("done")]);
        let (channel, chat) = self.place();
        match kind {
            Kind::Sender => drop(self.say(self.trust, channel, chat, GO).await),
            Kind::Job => {
                let add = json!({"action": "add", "message": GO, "every": "9h", "name": "tries"});
                self.model.on("make the job", [Reply::tool("cron", &add), Reply::text("made")]);
                self.say(self.trust, channel, chat, "make the job").await;
                self.api("/api/cron/tries/run", &json!({})).await;
            }
            Kind::SubAgent => {
                let spawn = json!({"task": GO, "wait": true});
                self.model.on("begin one", [Reply::tool("spawn", &spawn), Reply::text("begun")]);
                self.say(self.trust, channel, chat, "begin one").await;
            }
        }
        let (request, results) = self.tried(probes.len()).await;
        let tools = probes.iter().zip(&results);
        let workspace = self.gateway.workspace();
        let did = |probe: &Probe, result: &str| match probe.shows.strip_prefix("file:") {
            Some(file) => workspace.join(file).exists(),
            None => result.contains(probe.shows),
        };
        let tools = tools.map(|(probe, result)| !result.starts_with("Error: ") && did(probe, result)).collect();
        let is_own = |what: &str| what != "the sender's memories";
        let asked = request.to_string();
        let prompt = PROMPT.iter().map(|(what, word)| match is_own(what) {
            true => asked.contains(word),
            false => asked.contains(if self.trust == "owner" { "sleeps at night" } else { "of Ann is green" }),
        });
        GrantedAccess { tools, prompt: prompt.collect() }
    }

    /// Returns the first request of the turn that tried everything, and the results of its calls.
    async fn tried(&self, count: usize) -> (Value, Vec<String>) {
        let messages = |request: &Value| request["messages"].as_array().cloned().unwrap_or_default();
        let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        let is_tried = |request: &Value| {
            let last = messages(request).iter().rfind(|message| message["role"] == "user").map(text);
            last.is_some_and(|result| user_text(&result).contains(GO))
        };
        until("everything to be tried", async || {
            let requests: Vec<Value> = self.model.requests().into_iter().filter(is_tried).collect();
            let results: Vec<String> = messages(requests.last()?)
                .iter()
                .rev()
                .take_while(|message| message["role"] != "user")
                .filter(|message| message["role"] == "tool")
                .map(text)
                .collect();
            (results.len() == count).then(|| (requests[0].clone(), results.into_iter().rev().collect()))
        })
        .await
    }

    /// Returns for each command whether a sender with this trust gets an answer.
    async fn commands(&self, names: &[String]) -> Vec<bool> {
        let (channel, chat) = self.place();
        let mut answered = Vec::new();
        for name in names {
            let reply = self.say(self.trust, channel, chat, &format!("/{name}")).await;
            assert!(!reply.is_empty() && !reply.starts_with(ECHO), "/{name}: {reply:?}");
            let is_refused = reply.lines().count() == 1 && reply.contains("owner");
            let is_unknown =
                reply.starts_with("Unknown command") || reply.contains("command of the interactive terminal");
            answered.push(!is_refused && !is_unknown);
        }
        answered
    }

    /// Returns the commands that the gateway answers, from its list in the terminal, without the terminal's own commands.
    async fn command_names(&self) -> Vec<String> {
        const OF_THE_TERMINAL: [&str; 6] = ["add", "clear", "drop", "exit", "files", "quit"];
        let help = self.say("owner", "cli", "direct", "/help").await;
        let lines = help.lines().filter_map(|line| line.trim_start().strip_prefix("- `/"));
        let names: BTreeSet<String> = lines
            .filter_map(|line| line.split([' ', '`']).next().map(str::to_owned))
            .filter(|name| !OF_THE_TERMINAL.contains(&name.as_str()))
            .collect();
        assert!(names.len() >= 10, "{help}");
        names.into_iter().collect()
    }
}

/// Creates a repository with one commit and one changed file.
fn create_repository(folder: &Path) {
    for arguments in [
        &["init", "-q", "-b", "main"][..],
        &["add", "a.txt"],
        &["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "canary-commit"],
    ] {
        let mut git = std::process::Command::new("git");
        git.args(arguments).current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.status().unwrap().success(), "{arguments:?}");
    }
    std::fs::write(folder.join("a.txt"), "canary-diff\n").unwrap();
}

/// Appends a table with a column for each kind of turn.
fn table(page: &mut String, head: &[&str], rows: &[(Vec<String>, Vec<bool>)]) {
    writeln!(page, "| {} |", head.join(" | ")).unwrap();
    writeln!(page, "|{}", "---|".repeat(head.len())).unwrap();
    for (names, may) in rows {
        let may = may.iter().map(|may| if *may { "yes" } else { "–" }.to_owned());
        let cells: Vec<String> = names.iter().cloned().chain(may).collect();
        writeln!(page, "| {} |", cells.join(" | ")).unwrap();
    }
}

/// Renders the page from the program's behaviour.
async fn trust_page() -> String {
    let mut granted = Vec::new();
    for (_, trust, kind) in COLUMNS {
        granted.push(Harness::new(trust).await.granted_access(kind).await);
    }
    let (mut names, mut commands) = (Vec::new(), Vec::new());
    for (_, trust, _) in COLUMNS.iter().filter(|(_, _, kind)| *kind == Kind::Sender) {
        let harness = Harness::new(trust).await;
        if names.is_empty() {
            names = harness.command_names().await;
            check_tools(&harness).await;
        }
        commands.push(harness.commands(&names).await);
    }
    let columns: Vec<&str> = COLUMNS.iter().map(|(name, _, _)| *name).collect();
    let mut page = format!("{HEAD}\n## Tools\n\n");
    for (at, probe) in probes(Path::new("/"), "", "owner").iter().enumerate() {
        let works = granted.iter().any(|access| access.tools[at]);
        assert_eq!(works, !NOBODYS.contains(&probe.what), "{} {}", probe.tool, probe.what);
    }
    let probes = probes(Path::new("/"), "", "owner");
    let rows: Vec<_> = probes
        .iter()
        .enumerate()
        .map(|(at, probe)| {
            let name = vec![format!("`{}`", probe.tool), probe.what.to_owned()];
            (name, granted.iter().map(|access| access.tools[at]).collect())
        })
        .collect();
    table(&mut page, &[&["tool", "what"], columns.as_slice()].concat(), &rows);
    page.push_str("\n## What the prompt holds\n\n");
    let rows: Vec<_> = PROMPT
        .iter()
        .enumerate()
        .map(|(at, (what, _))| (vec![(*what).to_owned()], granted.iter().map(|access| access.prompt[at]).collect()))
        .collect();
    table(&mut page, &[&["part"], columns.as_slice()].concat(), &rows);
    page.push_str("\n## Slash commands\n\nJobs and sub-agents give none. `/history` is for the terminal.\n\n");
    let rows: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (vec![format!("`/{name}`")], commands.iter().map(|may| may[at]).collect()))
        .collect();
    table(&mut page, &["command", "Owner", "Known", "Untrusted"], &rows);
    page
}

/// Asserts that each tool has a row.
async fn check_tools(harness: &Harness) {
    let listed = harness.gateway.json(&["tools", "list"]).await;
    let listed = listed.as_array().or_else(|| listed["tools"].as_array()).expect("a list of tools").clone();
    let there: BTreeSet<_> = listed.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let probes = probes(Path::new("/"), "", "owner");
    let tried: BTreeSet<_> = probes.iter().map(|probe| probe.tool).collect();
    assert_eq!(tried, there, "each tool has a row in {PAGE}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trust_page_matches_the_program() {
    if bubblewrap_is_missing() || is_missing("git", "git") || is_missing("make", "make") {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = trust_page().await;
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    for (now, before) in page.lines().zip(written.lines()) {
        assert_eq!(
            now, before,
            "{PAGE} is not true any more; `cargo xtask trust` writes it anew, if the change is meant"
        );
    }
    assert_eq!(page, written);
}

/// The gateway answers each seed of the fuzz target, whatever it contains.
#[tokio::test(flavor = "multi_thread")]
async fn every_control_socket_fuzz_seed_is_answered() {
    let gateway = Gateway::start(Setup::new().set("approval.default", "never")).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/control_socket");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let (line, body) = seed.split_once('\n').unwrap();
        let mut stream = UnixStream::connect(gateway.home().join("daoyou.sock")).await.unwrap();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: daoyou\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        deadline(line, stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 ") && !answer.starts_with("HTTP/1.1 500"), "{line}: {answer}");
        count += 1;
    }
    assert!(count >= 3);
}
