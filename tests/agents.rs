//! Agents: which agent answers which message, with which prompt, tools and limits, also after crashes and changes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::model::{last_text, system_of, tools_of};
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, until, write_file};

/// Returns a table of these keys and values.
fn table(pairs: &[(&str, &str)]) -> toml::Value {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), toml::Value::from(*value)));
    toml::Value::Table(pairs.collect())
}

/// Returns `[[routes]]` tables from pairs of key and value.
fn routes(each: &[&[(&str, &str)]]) -> toml::Value {
    toml::Value::Array(each.iter().map(|pairs| table(pairs)).collect())
}

fn write(gateway: &Gateway, path: &str, text: &str) {
    write_file(gateway.home().join(path), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_chooses_the_agent_with_its_prompt_tools_and_model() {
    let (model, other) = (Model::start().await, Model::start().await);
    let setup = Setup::scripted(&model)
        .hook(Hook::bearer("docs"))
        .provider("other", other.base_url())
        .set("agents.scribe.prompt", "You write documents.")
        .set("agents.scribe.model", "other/large")
        .set("agents.scribe.tools", vec!["read_file", "edit"])
        .set("agents.scribe.temperature", 0.25)
        .set("agents.scribe.max_tokens", 321)
        .set("routes", routes(&[&[("channel", "webhook:d*"), ("sender", "ann"), ("agent", "scribe")]]));
    let gateway = Gateway::start(setup).await;
    let message = Message::new("hello").chat("c").sender("ann");
    gateway.wait_done("docs", &gateway.accept("docs", &message).await).await;
    gateway.ask("in", "c", "hello").await;
    let of_scribe = &other.requests()[0];
    assert!(system_of(of_scribe).starts_with("You write documents.\nYour workspace is "), "{}", system_of(of_scribe));
    assert!(!system_of(of_scribe).contains("You are daoyou"));
    assert_eq!(tools_of(of_scribe), ["read_file", "edit_file"]);
    assert_eq!((&of_scribe["model"], &of_scribe["temperature"]), (&json!("large"), &json!(0.25)));
    assert_eq!(of_scribe["max_tokens"], 321);
    let of_assistant = &model.requests()[0];
    assert!(system_of(of_assistant).starts_with("You are daoyou") && tools_of(of_assistant).contains(&"exec"));
    assert!(of_assistant.get("temperature").is_none());
    let turns = gateway.json(&["turns", "list"]).await;
    let turn = turns.as_array().unwrap().iter().find(|turn| turn["session"] == "webhook:docs:c").unwrap();
    let shown =
        gateway.run(&["turns", "show", turn["turn"].as_str().unwrap_or_else(|| turn["id"].as_str().unwrap())]).await;
    assert!(shown.stdout.contains("agent scribe, model other/large"), "{shown:?}");
    let prompt = gateway.json(&["prompt", "--session", "webhook:docs:c"]).await;
    assert_eq!((&prompt["agent"], &prompt["model"]), (&json!("scribe"), &json!("other/large")));
    assert_eq!(model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_of_a_session_is_chosen_and_survives_a_restart() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    assert!(gateway.ask("in", "c", "/agent").await.starts_with("Agent: assistant\n"));
    let unknown = gateway.ask("in", "c", "/agent explore").await;
    assert!(unknown.contains("Agent 'explore' not found. Did you mean explorer?"), "{unknown}");
    assert!(gateway.ask("in", "c", "/agent explorer").await.contains("explorer"));
    gateway.restart().await;
    gateway.ask("in", "c", "hello").await;
    gateway.ask("in", "other", "hello").await;
    let requests = model.requests();
    assert!(system_of(&requests[0]).starts_with("You explore code"), "{}", system_of(&requests[0]));
    let offered = tools_of(&requests[0]);
    assert!(offered.contains(&"grep") && offered.contains(&"repo_map") && offered.contains(&"git_log"), "{offered:?}");
    for tool in ["write_file", "edit_file", "exec", "message", "spawn", "remember", "cron", "find_tools"] {
        assert!(!offered.contains(&tool), "{tool}");
    }
    assert!(system_of(&requests[1]).starts_with("You are daoyou"));
    // A tool that the agent lacks cannot be called either.
    let call = Reply::tool("bash", &json!({"command": "touch x"}));
    model.on("try it", [call, Reply::text("no")]);
    gateway.ask("in", "c", "try it").await;
    let result = last_text(model.requests().last().unwrap()).to_owned();
    assert!(result.contains("\"bash\" is not available in this turn"), "{result}");
    assert!(gateway.ask("in", "c", "/agent default").await.contains("usual agent"));
    gateway.ask("in", "c", "hello").await;
    assert!(system_of(model.requests().last().unwrap()).starts_with("You are daoyou"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_may_leave_the_agent_of_a_route() {
    let model = Model::start().await;
    let hook = Hook::bearer("out").trusting(&["ann"]);
    let setup = Setup::new()
        .model(&model)
        .hook(hook)
        .set("agents.desk.prompt", "You are the front desk.")
        .set("agents.desk.tools", Vec::<String>::new())
        .set("owner.identities", vec!["webhook:out:boss"])
        .set("routes", routes(&[&[("channel", "webhook:out"), ("agent", "desk")]]));
    let gateway = Gateway::start(setup).await;
    let say = async |sender: &str, text: &str| {
        let message = Message::new(text).chat("c").sender(sender);
        gateway.wait_done("out", &gateway.accept("out", &message).await).await.text("reply").to_owned()
    };
    let refused = say("eve", "/agent coder").await;
    assert!(refused.contains("trusted senders"), "{refused}");
    say("eve", "hello").await;
    let kept = say("ann", "/agent coder").await;
    assert!(kept.contains("`desk`") && kept.contains("owner"), "{kept}");
    assert!(say("boss", "/agent coder").await.contains("coder"));
    say("eve", "hello again").await;
    say("ann", "hello").await;
    say("boss", "hello").await;
    let requests = model.requests();
    for request in &requests[..3] {
        assert!(system_of(request).starts_with("You are the front desk.") && tools_of(request).is_empty());
    }
    assert!(system_of(&requests[3]).starts_with("You are a software engineer."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_agent_runs_as_the_named_agent_within_its_parents_limits() {
    let model = Model::start().await;
    let spawn = |task: &str, agent: &str| Reply::tool("spawn", &json!({"task": task, "agent": agent, "wait": true}));
    model.on("look around", [spawn("find the door", "explorer"), Reply::text("done")]);
    model.on("find the door", [Reply::text("there")]);
    model.on("as the lead", [spawn("build the door", "coder"), Reply::text("done")]);
    model.on("build the door", [Reply::text("built")]);
    model.on("ask nobody", [spawn("x", "nobody"), Reply::text("done")]);
    let gateway = Gateway::start(
        Setup::scripted(&model)
            .set("agents.lead.prompt", "You lead.")
            .set("agents.lead.tools", vec!["spawn", "read_file", "exec"]),
    )
    .await;
    assert_eq!(gateway.ask("in", "c", "look around").await, "done");
    let request = &model.requests_about("find the door")[0];
    assert!(system_of(request).starts_with("You explore code"));
    assert!(!tools_of(request).contains(&"write_file") && tools_of(request).contains(&"grep"));
    gateway.ask("in", "c", "/agent lead").await;
    gateway.ask("in", "c", "as the lead").await;
    let request = &model.requests_about("build the door")[0];
    assert!(system_of(request).starts_with("You are a software engineer."));
    // At depth 1 of 2, it may have sub-agents too.
    let mut offered = tools_of(request);
    offered.sort_unstable();
    assert_eq!(offered, ["exec", "read_file", "spawn"], "no more than the lead has");
    gateway.ask("in", "c", "ask nobody").await;
    let result = last_text(model.requests().last().unwrap()).to_owned();
    assert!(result.contains("Nothing was started: Agent 'nobody' not found"), "{result}");
}

/// The assistant can be restricted too, and its sub-agents stay within the restriction. MCP servers give no way around the
/// rules for files.
#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_assistant_starts_no_agent_with_more_rights() {
    let model = Model::start().await;
    let spawn = Reply::tool("spawn", &json!({"task": "build the door", "agent": "coder", "wait": true}));
    model.on("as the assistant", [spawn, Reply::text("done")]);
    model.on("build the door", [Reply::text("built")]);
    let narrowed = Setup::scripted(&model).set("agents.assistant.tools", vec!["spawn", "read_file"]);
    let gateway = Gateway::start(narrowed).await;
    assert_eq!(gateway.ask("in", "c", "as the assistant").await, "done");
    let request = &model.requests_about("build the door")[0];
    let mut offered = tools_of(request);
    offered.sort_unstable();
    assert_eq!(offered, ["read_file", "spawn"]);

    let model = Model::start().await;
    let rules: toml::Value = toml::from_str("x = [{ pattern = \"*.env\", permission = \"deny\" }]").unwrap();
    let bound = Setup::scripted(&model)
        .set("agents.assistant.permissions.read", rules["x"].clone())
        .set("mcp.fs.command", vec!["true"]);
    let gateway = Gateway::start(bound).await;
    for (call, arguments) in [
        ("mcp_read", json!({})),
        ("run_test", json!({})),
        ("git_diff", json!({})),
        ("exec", json!({"command": "cat .env"})),
    ] {
        model.on(call, [Reply::tool(call, &arguments), Reply::text("no")]);
        gateway.ask("in", "c", call).await;
        let result = last_text(model.requests().last().unwrap()).to_owned();
        assert!(result.contains("is not available in this turn"), "{call}: {result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_answered_by_their_agent() {
    let model = Model::start().await;
    model.on(
        "schedule it",
        [
            Reply::tool("cron", &json!({"action": "add", "message": "tool job", "every": "24h", "agent": "reviewer"})),
            Reply::text("scheduled"),
        ],
    );
    let sink = Sink::signed().await;
    let setup = Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink));
    let gateway = Gateway::start(setup).await;
    let add = ["cron", "add", "--name", "n", "--every", "12h", "--prompt", "review all", "--agent"];
    let unknown = gateway.run(&[&add[..], &["nobody"]].concat()).await;
    assert!(
        unknown.code == Some(1) && unknown.stderr.contains("Agent 'nobody' not found; agents: assistant, coder"),
        "{unknown:?}"
    );
    assert_eq!(gateway.run(&[&add[..], &["Translator"]].concat()).await.code, Some(0));
    assert_eq!(gateway.json(&["cron", "show", "n"]).await["agent"], "translator");
    assert_eq!(gateway.run(&["cron", "run", "n"]).await.code, Some(0));
    model.wait_requests(1).await;
    assert!(
        system_of(&model.requests()[0]).starts_with("You are a translator.")
            && tools_of(&model.requests()[0]).is_empty()
    );
    gateway.ask("in", "c", "schedule it").await;
    let jobs = gateway.json(&["cron", "list"]).await;
    let job = jobs.as_array().unwrap().iter().find(|job| job["agent"] == "reviewer").unwrap();
    gateway.run(&["cron", "run", job["id"].as_str().unwrap()]).await;
    until("the job's request", async || (!model.requests_about("tool job").is_empty()).then_some(())).await;
    assert!(system_of(&model.requests_about("tool job")[0]).starts_with("You review code."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_profile_is_rejected_alone_and_others_answer() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let good = "name: poet\nversion: 1\ndescription: Rhymes\nprompt:\n  file: poet.md\ntools: [list_files]\n";
    write(&gateway, "workspace/skills/poet/skill.yaml", good);
    write(&gateway, "workspace/skills/poet/poet.md", "You rhyme.");
    write(&gateway, "workspace/skills/broken/skill.yaml", "name: broken\nversion: 1\n");
    let far = "name: far\nversion: 1\ndescription: x\nprompt:\n  use_agent_default: true\nllm:\n  model: nowhere/x\n";
    write(&gateway, "workspace/skills/far/skill.yaml", far);
    gateway.restart().await;
    let list = gateway.run(&["agents", "list"]).await;
    assert!(list.stderr.contains("the model nowhere/x of the agent far cannot be asked: "), "{list:?}");
    assert!(list.stdout.contains("poet") && !list.stdout.contains("broken"), "{list:?}");
    assert!(list.stderr.contains("skills/broken/skill.yaml: has no description"), "{list:?}");
    assert!(gateway.logs().contains("has no description"));
    let shown = gateway.json(&["agents", "show", "poet"]).await;
    assert_eq!((&shown["prompt"], &shown["tools"]), (&json!("You rhyme."), &json!(["list_dir"])));
    gateway.ask("in", "c", "/agent poet").await;
    gateway.ask("in", "c", "hello").await;
    assert!(
        system_of(&model.requests()[0]).starts_with("You rhyme.") && tools_of(&model.requests()[0]) == ["list_dir"]
    );
    // An agent of the configuration does not start without its profile if the profile is broken.
    gateway.stop().await;
    gateway.setup().clone_from(&Setup::scripted(&model).set("agents.broken.description", "x"));
    let check = gateway.run(&["config", "check"]).await;
    assert!(
        check.code == Some(78) && check.stderr.contains("agents.broken") && check.stderr.contains("no description"),
        "{check:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_an_agent_are_reported_at_the_start() {
    let model = Model::start().await;
    for (key, value, expected) in [
        (
            "agents.a.prompt",
            "Hi {{ weather }}",
            "agents.a.prompt: the prompt has no name \"weather\"; there are user_input,",
        ),
        ("agents.a.prompt", "file:no-such.md", "agents.a.prompt: "),
        ("agents.a.profile", "nobody", "agents.a.profile: Skill 'nobody' not found"),
        ("agents.a.orchestrator", "magic", "agents.a.orchestrator: \"magic\" is not known"),
        ("agents.a.model", "nowhere/x", "agents.a.model: "),
        ("agents.a.workspace", "../x", "agents.a.workspace: \"../x\" leaves the workspace"),
    ] {
        let mut gateway = Gateway::new(Setup::scripted(&model).set(key, value));
        let check = gateway.run(&["config", "check"]).await;
        assert!(check.code == Some(78) && check.stderr.contains(expected), "{key} {value}: {check:?}");
        assert!(check.stderr.contains("config.toml:"), "the line: {check:?}");
        gateway.spawn();
        assert_eq!(gateway.wait_exit().await.code(), Some(78), "{key} {value}");
    }
    let gateway = Gateway::new(Setup::scripted(&model).set("routes", routes(&[&[("agent", "nobody")]])));
    let check = gateway.run(&["config", "check"]).await;
    assert!(check.code == Some(78) && check.stderr.contains("routes[0].agent: Agent 'nobody' not found"), "{check:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_resumes_keeps_its_agent() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("work", [Reply::tool("list_dir", &json!({"path": "."})), Reply::text("found").held_by(&gate)]);
    let explores = Setup::scripted(&model).set("routes", routes(&[&[("agent", "explorer")]]));
    let mut gateway = Gateway::start(explores).await;
    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    // The route of the chat changes while the turn waits.
    gateway.setup().clone_from(&Setup::scripted(&model).set("routes", routes(&[&[("agent", "translator")]])));
    gate.open();
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "found");
    let requests = model.requests_about("work");
    assert!(requests.len() >= 3 && requests.iter().all(|request| system_of(request) == system_of(&requests[0])));
    assert!(system_of(&requests[0]).starts_with("You explore code"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_agent_gives_one_clear_answer() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model).set("agents.temp.prompt", "You help.")).await;
    gateway.ask("in", "c", "/agent temp").await;
    gateway.stop().await;
    gateway.setup().clone_from(&Setup::scripted(&model));
    gateway.up().await;
    let reply = gateway.ask("in", "c", "hello").await;
    assert!(reply.contains("Agent 'temp' not found.") && reply.contains("/agent default"), "{reply}");
    assert_eq!(model.count(), 0);
    gateway.ask("in", "c", "/agent default").await;
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_replaces_the_message() {
    let model = Model::start().await;
    let template = "Files: {{ files | length }}. Before: {% for m in conversation_history %}[{{ m.role }}: {{ m.content }}]{% endfor %}\n\
                    Asked: {{ user_input }}";
    let gateway = Gateway::start(
        Setup::scripted(&model)
            .set("agents.form.prompt", template)
            .set("agents.form.rounds", 1)
            .set("routes", routes(&[&[("agent", "form")]])),
    )
    .await;
    for text in ["one {{ x }}", "two", "three"] {
        gateway.ask("in", "c", text).await;
    }
    let requests = model.requests();
    assert!(
        last_text(&requests[0]).starts_with("Files: 0. Before: \nAsked: one {{ x }}\n\n[Runtime Context]\n"),
        "{}",
        last_text(&requests[0])
    );
    assert!(!system_of(&requests[0]).contains("Files:") && !system_of(&requests[0]).contains("You are daoyou"));
    assert!(
        last_text(&requests[2]).contains("Asked: two]") && last_text(&requests[2]).contains("\nAsked: three\n\n"),
        "{}",
        last_text(&requests[2])
    );
    // One round: the previous message, its answer, and this message.
    let roles: Vec<_> =
        requests[2]["messages"].as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert_eq!(system_of(&requests[0]), system_of(&requests[2]), "what changes is behind what stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_narrow_files_and_commands() {
    let model = Model::start().await;
    let read = |path: &str| Reply::tool("read_file", &json!({ "path": path }));
    let put = |path: &str| Reply::tool("write_file", &json!({"path": path, "content": "x"}));
    let grep = Reply::tool("grep", &json!({"pattern": "canary"}));
    model.on("work", [read("a.env"), read("docs/a.md"), put("src/x"), put("docs/x.md"), grep, Reply::text("done")]);
    let rule = |pattern, permission| table(&[("pattern", pattern), ("permission", permission)]);
    let setup = Setup::scripted(&model)
        .set("agents.docs.profile", "coder")
        .set("agents.docs.permissions.read", vec![rule("*.env", "deny")])
        .set("agents.docs.permissions.write", vec![rule("docs/**", "allow")])
        .set("routes", routes(&[&[("agent", "docs")]]));
    let gateway = Gateway::start(setup).await;
    write(&gateway, "workspace/a.env", "canary one");
    write(&gateway, "workspace/docs/a.md", "canary two");
    assert_eq!(gateway.ask("in", "c", "work").await, "done");
    let requests = model.requests();
    let sent = tools_of(&requests[0]);
    assert!(sent.contains(&"grep") && !sent.contains(&"exec"), "a command would obey no pattern: {sent:?}");
    let shown = gateway.json(&["agents", "show", "docs"]).await;
    let tools: BTreeSet<_> = shown["tools"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!((tools, &shown["source"]), (sent.into_iter().collect(), &json!("configuration")));
    let results: Vec<_> = requests[1..].iter().map(last_text).collect();
    for (result, expected) in results
        .iter()
        .zip(["permissions do not allow it", "canary two", "permissions do not allow it", "x.md", "docs/a.md"])
    {
        assert!(result.contains(expected), "{result}");
    }
    assert!(!results[4].contains("a.env"), "{}", results[4]);
    assert!(!gateway.workspace().join("src/x").exists() && gateway.workspace().join("docs/x.md").exists());
}

/// A command obeys no pattern for paths, so rules that let unnamed commands run leave an agent with such patterns no commands.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_patterns_for_paths_runs_only_commands_that_its_rules_name() {
    let model = Model::start().await;
    let rule = |pattern, permission| table(&[("pattern", pattern), ("permission", permission)]);
    let lists = [
        ("denied", vec![rule("rm *", "deny")], false),
        ("open", vec![rule("git push*", "ask"), rule("*", "allow")], false),
        ("asked", vec![rule("git push*", "ask")], true),
        ("named", vec![rule("git *", "allow")], true),
    ];
    let each = lists.each_ref().map(|(name, _, _)| [("chat", *name), ("agent", *name)]);
    let mut setup = Setup::scripted(&model).set("routes", routes(&each.each_ref().map(|pairs| &pairs[..])));
    for (name, rules, _) in &lists {
        setup = setup
            .set(&format!("agents.{name}.permissions.read"), vec![rule("*.env", "deny")])
            .set(&format!("agents.{name}.permissions.execute"), rules.clone());
    }
    let gateway = Gateway::start(setup).await;
    for (at, (name, _, has_commands)) in lists.iter().enumerate() {
        gateway.ask("in", name, "hello").await;
        assert_eq!(tools_of(&model.requests()[at]).contains(&"exec"), *has_commands, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_its_own_folder_works_there() {
    let model = Model::start().await;
    let put = Reply::tool("write_file", &json!({"path": "x.txt", "content": "x"}));
    let up = Reply::tool("read_file", &json!({"path": "../a.txt"}));
    model.on("work", [put, up, Reply::text("done")]);
    let setup =
        Setup::scripted(&model).set("agents.lab.workspace", "lab").set("routes", routes(&[&[("agent", "lab")]]));
    let gateway = Gateway::start(setup).await;
    write(&gateway, "workspace/a.txt", "canary");
    assert_eq!(gateway.ask("in", "c", "work").await, "done");
    assert!(gateway.workspace().join("lab/x.txt").exists());
    let requests = model.requests();
    assert!(system_of(&requests[0]).contains("workspace/lab."), "{}", system_of(&requests[0]));
    assert!(last_text(&requests[2]).contains("outside the workspace"), "{}", last_text(&requests[2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_knows_what_its_memory_allows() {
    let model = Model::start().await;
    let remember = Reply::tool("remember", &json!({"content": "the code word is heron"}));
    let own = Reply::tool("remember", &json!({"content": "the code word is otter"}));
    model.on("keep the first", [remember, Reply::text("kept")]);
    model.on("keep the second", [own, Reply::text("kept")]);
    let gateway = Gateway::start(
        Setup::scripted(&model)
            .set("owner.identities", vec!["webhook:in:me"])
            .set("agents.own.memory", "own")
            .set("agents.none.memory", "none")
            .set("routes", routes(&[&[("chat", "own*"), ("agent", "own")], &[("chat", "none"), ("agent", "none")]])),
    )
    .await;
    let say = async |chat: &str, text: &str| {
        let message = Message::new(text).chat(chat).sender("me");
        gateway.wait_done("in", &gateway.accept("in", &message).await).await;
    };
    say("a", "keep the first").await;
    say("own1", "keep the second").await;
    for (chat, heron, otter) in [("b", true, false), ("own2", false, true), ("none", false, false)] {
        say(chat, "what is the code word?").await;
        let request = model.requests().last().unwrap().clone();
        let text = request["messages"].to_string();
        assert_eq!((text.contains("heron"), text.contains("otter")), (heron, otter), "{chat}: {text}");
        assert_eq!(tools_of(&request).contains(&"remember"), chat != "none", "{chat}");
    }
}

/// A lead gives tasks to its agents and gathers their answers in one turn, even after a kill.
#[tokio::test(flavor = "multi_thread")]
async fn a_lead_gathers_the_answers_of_its_team() {
    let model = Model::start().await;
    let gate = Gate::new();
    let task = |task: &str, agent: &str| json!({ "task": task, "agent": agent });
    let both = Reply::tool("spawn", &task("find the door", "explorer")).call_id("a");
    let both = both.and_tool("spawn", &task("paint the door", "coder")).call_id("b");
    model.on("the door", [both, Reply::text("all is done")]);
    model.on("find the door", [Reply::text("it is north").held_by(&gate)]);
    model.on("paint the door", [Reply::text("it is red").held_by(&gate)]);
    let team = |setup: Setup| {
        setup
            .set("agents.lead.orchestrator", "multi_agent")
            .set("agents.lead.agents", vec!["explorer", "coder"])
            .set("agents.lead.tools", vec!["read_file"])
            .set("routes", routes(&[&[("agent", "lead")]]))
    };
    let mut gateway = Gateway::start(team(Setup::scripted(&model))).await;
    let id = gateway.accept("in", &Message::new("open the door").chat("c")).await;
    gate.wait_arrived(2).await;
    gateway.kill9().await;
    gate.open();
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "all is done");
    let lead = &model.requests_about("open the door")[0];
    assert!(
        system_of(lead).contains("You lead the agents below")
            && system_of(lead).contains("\n- explorer: Explores code")
    );
    assert_eq!(tools_of(lead), ["read_file", "spawn"]);
    let end = model.requests_about("open the door").last().unwrap()["messages"].to_string();
    assert!(end.contains("it is north") && end.contains("it is red"), "{end}");
    let painter = &model.requests_about("paint the door")[0];
    assert!(
        system_of(painter).starts_with("You are a software engineer.") && tools_of(painter).contains(&"write_file")
    );
    // It cannot ask agents other than its own.
    let other = Reply::tool("spawn", &task("x", "tester"));
    model.on("ask the tester", [other, Reply::text("no")]);
    gateway.ask("in", "d", "ask the tester").await;
    let result = last_text(model.requests().last().unwrap()).to_owned();
    assert!(result.contains("name the agent, one of explorer, coder"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_agent_chooses_by_the_message() {
    let model = Model::start().await;
    let branches = vec![
        table(&[("when", "'translate' in user_input | lower"), ("agent", "translator")]),
        table(&[("when", "sender == 'dev' and channel == 'webhook:in'"), ("agent", "coder")]),
        table(&[("agent", "assistant")]),
    ];
    let setup = Setup::scripted(&model)
        .set("agents.gate.orchestrator", "conditional")
        .set("agents.gate.branches", branches)
        .set("routes", routes(&[&[("agent", "gate")]]));
    let gateway = Gateway::start(setup).await;
    for (sender, text, expected) in [
        ("ann", "Translate this", "You are a translator."),
        ("dev", "fix it", "You are a software engineer."),
        ("ann", "hello", "You are daoyou"),
    ] {
        let message = Message::new(text).chat("c").sender(sender);
        gateway.wait_done("in", &gateway.accept("in", &message).await).await;
        assert!(system_of(model.requests().last().unwrap()).starts_with(expected), "{sender} {text}");
    }
}

/// One model call chooses the agent. The choice and its usage survive a kill.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_chooses_the_agent_by_what_the_message_is_about() {
    let (model, cheap) = (Model::start().await, Model::start().await);
    let gate = Gate::new();
    cheap.on("mend the program", [Reply::text("1").usage(10, 1)]);
    cheap.on("put it into French", [Reply::text("<think>hm</think>2.").usage(10, 1)]);
    cheap.on("no idea", [Reply::text("the coder, I think").usage(10, 1)]);
    cheap.on("slow one", [Reply::text("2").usage(70, 1)]);
    model.on("slow one", [Reply::text("lent").held_by(&gate)]);
    let branches = vec![
        table(&[("about", "questions about code"), ("agent", "coder")]),
        table(&[("when", "user_input == 'review'"), ("agent", "reviewer")]),
        table(&[("about", "translations"), ("agent", "translator")]),
        table(&[("agent", "assistant")]),
    ];
    let setup = Setup::scripted(&model)
        .provider("cheap", cheap.base_url())
        .set("agents.gate.orchestrator", "conditional")
        .set("agents.gate.model", "cheap/small")
        .set("agents.gate.branches", branches)
        .set("routes", routes(&[&[("agent", "gate")]]));
    let mut gateway = Gateway::start(setup).await;
    for (text, asked, expected) in [
        ("mend the program", 1, "You are a software engineer."),
        ("put it into French", 2, "You are a translator."),
        ("no idea", 3, "You are daoyou"),
        ("review", 3, "You review code."),
    ] {
        gateway.ask("in", "c", text).await;
        assert!(system_of(model.requests().last().unwrap()).starts_with(expected), "{text}");
        assert_eq!(cheap.requests().len(), asked, "{text}");
    }
    let asked = &cheap.requests()[0];
    assert!(tools_of(asked).is_empty() && system_of(asked).starts_with("You choose who answers a message."), "{asked}");
    assert_eq!(
        last_text(asked),
        "1. questions about code\n2. translations\n3. anything else\n\nThe message:\nmend the program"
    );
    assert!(gateway.logs().contains("the model named no branch; the last one answers"));
    let id = gateway.accept("in", &Message::new("slow one").chat("c")).await;
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    gate.open();
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "lent");
    assert_eq!((cheap.requests_about("slow one").len(), model.requests_about("slow one").len()), (1, 2));
    assert!(system_of(model.requests().last().unwrap()).starts_with("You are a translator."));
    let shown = gateway.run(&["turns", "show", &id]).await;
    assert!(shown.stdout.contains("agent translator"), "{shown:?}");
    let cost = gateway.ask("in", "c", "/cost").await;
    assert!(cost.contains("`cheap/small`: 100 tokens in"), "of the last choice, and of those before: {cost}");
}
