//! The chats of the page, and the events that keep open pages current.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::page::{PageClient, ServerEvent, text_of};
use crate::support::{Gate, Gateway, Model, Reply, Setup, until};

/// A chat of the page.
const SESSION: &str = "page:chat";

/// Returns the content of events, without their ids.
fn facts(events: &[ServerEvent]) -> Vec<(String, Value)> {
    events.iter().filter(|event| event.kind == "turn").map(|event| (event.id.clone(), event.data.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_readers_see_the_same_and_one_that_reconnects_loses_nothing() {
    let model = Model::start().await;
    let gate = Gate::new();
    let long: String = (0..200).map(|n| format!("word{n} ")).collect();
    model.on("count", [Reply::text(&long).chunk_chars(6).stalls_after(60, &gate)]);
    model.on("other", [Reply::text("other done")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let mut readers = [page.events("", None).await, page.events("", None).await, page.events("", None).await];
    let session = page.say(None, "count").await;
    let mut one = page.events(&format!("?session={session}"), None).await;
    // The first reader disconnects in the middle of the text, and reconnects with the last id that it received.
    let [ref mut first, ref mut second, ref mut third] = readers;
    // Ten words of five letters and a space.
    let delta = |event: &ServerEvent| event.data["event"]["delta"].as_str().unwrap_or_default().to_owned();
    let before = first.until(|event| delta(event).contains("word9 ")).await;
    let last = before.last().unwrap().id.clone();
    *first = page.events("", Some(&last)).await;
    gateway.ask("in", "c", "other").await;
    gate.open();
    let mut resumed =
        first.until(|event| event.data["event"]["type"] == "done" && event.data["session"] == session.as_str()).await;
    assert_eq!((resumed[0].kind.as_str(), resumed[0].id.as_str()), ("hello", last.as_str()));
    assert!(resumed.iter().all(|event| event.kind != "resync"), "{resumed:?}");
    let mut joined = before;
    joined.append(&mut resumed);
    let is_end =
        |event: &ServerEvent| event.data["event"]["type"] == "done" && event.data["session"] == session.as_str();
    let (second, third) = (second.until(is_end).await, third.until(is_end).await);
    assert_eq!(facts(&second), facts(&third));
    assert_eq!(facts(&joined), facts(&second), "without loss or doubling");
    let of_session: Vec<_> = second.iter().filter(|event| event.data["session"] == session.as_str()).cloned().collect();
    assert_eq!(text_of(&of_session), long);
    assert!(second.iter().any(|event| event.data["event"]["reply"] == "other done"), "all sessions are followed");
    let seen = one.turn().await;
    assert!(seen.iter().filter(|event| event.kind == "turn").all(|event| event.data["session"] == session.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_opens_late_has_the_whole_running_turn() {
    let model = Model::start().await;
    let (tool, gate) = (Gate::new(), Gate::new());
    let listing = Reply::tool("list_dir", &json!({"path": "."})).call_id("a").saying("I look.").reasoning("Where?");
    let answer = Reply::text("one two three four five six").chunk_chars(4).stalls_after(5, &gate);
    model.on("look", [listing, answer.held_by(&tool)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let session = page.say(None, "look").await;
    tool.wait_arrived(1).await;
    let live = page.get(&format!("/api/sessions/{session}/live")).await;
    let turn = &live["turns"][0];
    assert_eq!((&turn["state"], &turn["content"]), (&json!("running"), &json!("look")), "{live}");
    let kinds = |turn: &Value| -> Vec<String> {
        turn["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(turn), ["started", "thinking", "text", "tool_call", "usage", "tool_result"], "{live}");
    // The text arrives while no client reads the stream, and is joined.
    tool.open();
    let live = until("some text of the answer", async || {
        let live = page.get(&format!("/api/sessions/{session}/live")).await;
        let events = live["turns"][0]["events"].as_array().unwrap().clone();
        let last = events.last().unwrap();
        (last["type"] == "text" && last["delta"].as_str().unwrap().len() >= 16).then_some(live)
    })
    .await;
    assert_eq!(kinds(&live["turns"][0])[6..], ["text"], "{live}");
    let begun = live["turns"][0]["events"][6]["delta"].as_str().unwrap().to_owned();
    let mut events = page.events(&format!("?last_event_id={}", live["event"].as_str().unwrap()), None).await;
    gate.open();
    let seen = events.turn().await;
    assert!(seen.iter().all(|event| event.kind != "resync"), "{seen:?}");
    assert_eq!(begun + &text_of(&seen), "one two three four five six");
    let done = until("an empty live state", async || {
        let live = page.get(&format!("/api/sessions/{session}/live")).await;
        (live["turns"] == json!([])).then_some(live)
    });
    done.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_a_page_loads_everything_again() {
    let mut gateway = Gateway::start(Setup::new()).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let mut events = page.events("", None).await;
    page.say(None, "what time is it?").await;
    let last = events.turn().await.last().unwrap().id.clone();
    gateway.restart().await;
    assert_eq!(events.try_next().await.map(|event| event.kind).filter(|kind| kind != "changed"), None);
    let mut events = page.events("", Some(&last)).await;
    let kinds = [events.next().await.kind, events.next().await.kind];
    assert_eq!(kinds, ["hello", "resync"]);
    let own = page.say(None, "what time is it?").await;
    // The end of the first turn may be reported once more, if the gateway stopped before that was stored.
    let seen = events.until(|event| event.data["session"] == own && event.data["event"]["type"] == "done").await;
    assert!(text_of(&seen).starts_with("It is"), "{seen:?}");
    for garbage in ["x", "-", "1-1", "0-99999999999999999999", ""] {
        let mut events = page.events("", Some(garbage)).await;
        assert_eq!([events.next().await.kind, events.next().await.kind], ["hello", "resync"], "{garbage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_has_titles_previews_files_commands_and_a_stop() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("wait", [Reply::text("never").held_by(&gate)]);
    model.on("see the file", [Reply::text("seen")]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let upload = page
        .request(Method::POST, "/api/files?name=../n%C3%B6te.txt")
        .header("content-type", "text/plain; charset=utf-8");
    let file: Value = upload.body("words").send().await.unwrap().json().await.unwrap();
    assert_eq!((&file["name"], &file["size"], &file["mime"]), (&json!("nöte.txt"), &json!(5), &json!("text/plain")));
    let body = json!({"content": "see the file", "files": [file["id"]], "id": "7b0c1fa0-0000-4000-8000-000000000009"});
    let accepted = page.post("/api/chat", &body).await;
    let key = accepted["session"].as_str().unwrap();
    let shown = until("the reply", async || {
        let answer = page.request(Method::GET, &format!("/api/sessions/{key}")).send().await.unwrap();
        let shown: Value = answer.json().await.unwrap();
        (shown["messages"].as_array().is_some_and(|messages| messages.len() == 2)).then_some(shown)
    })
    .await;
    let asked = &shown["messages"][0];
    assert_eq!(asked["text"], "see the file");
    assert!(asked["message"]["content"].as_str().unwrap().contains("[Runtime Context]"));
    let attached = &asked["attachments"][0];
    assert_eq!((&attached["name"], &attached["mime"]), (&json!("nöte.txt"), &json!("text/plain")));
    let path = format!("/api/files/{}", attached["id"].as_str().unwrap());
    let bytes = page.request(Method::GET, &path).send().await.unwrap();
    assert!(bytes.headers()["content-disposition"].to_str().unwrap().starts_with("attachment;"));
    assert!(bytes.headers()["content-security-policy"].to_str().unwrap().starts_with("sandbox"));
    assert_eq!(bytes.text().await.unwrap(), "words");
    // Titles, previews, and running turns.
    let named =
        page.request(Method::PATCH, &format!("/api/sessions/{key}")).json(&json!({"title": "Notes"})).send().await;
    assert_eq!(named.unwrap().status(), 200);
    let listed = page.get("/api/sessions").await;
    let fields = ["title", "channel", "preview", "running"].map(|field| listed[0][field].clone());
    assert_eq!(fields, [json!("Notes"), json!("page"), json!("seen"), json!(false)]);
    let waiting = page.say(None, "wait").await;
    gate.wait_arrived(1).await;
    let listed = page.get("/api/sessions").await;
    assert_eq!(
        (&listed[0]["session"], &listed[0]["running"], &listed[0]["preview"]),
        (&json!(waiting), &json!(true), &json!("wait"))
    );
    let stopped = page.request(Method::POST, &format!("/api/sessions/{waiting}/stop")).send().await.unwrap();
    assert_eq!(stopped.status(), 202);
    until("the turn to stop", async || (!page.get("/api/sessions").await[0]["running"].as_bool()?).then_some(())).await;
    // A command is answered, and its answer stays in the chat.
    page.say(Some(key), "/cost").await;
    let delivered = until("the answer to the command", async || {
        let shown = page.get(&format!("/api/sessions/{key}")).await;
        shown["deliveries"].as_array().filter(|all| !all.is_empty()).cloned()
    })
    .await;
    assert_eq!(
        (&delivered[0]["kind"], &delivered[0]["in_reply_to"]),
        (&json!("reply"), &json!("/cost")),
        "{delivered:?}"
    );
    let commands = page.get("/api/commands").await;
    assert!(commands.as_array().unwrap().iter().any(|one| one["name"] == "/cost"), "{commands}");
    for (body, status) in [
        (json!({"content": " "}), 422),
        (json!({"content": "x", "session": "nowhere"}), 422),
        (json!({"content": "x", "agent": "nobody"}), 422),
        (json!({"content": "x", "model": "none/such"}), 422),
        (json!({"content": "x", "files": ["7b0c1fa0-0000-4000-8000-000000000000"]}), 404),
        (json!({"content": "x", "id": "1"}), 422),
        (json!({"content": "x", "colour": "red"}), 422),
        (json!({"text": "x"}), 422),
    ] {
        let answer = page.request(Method::POST, "/api/chat").json(&body).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{body}");
    }
    let title = json!({"title": "x".repeat(121)});
    let answer = page.request(Method::PATCH, &format!("/api/sessions/{key}")).json(&title).send().await.unwrap();
    assert_eq!(answer.status(), 422);
}

/// A message that a job or a tool sends to a chat of the page is stored, and open pages are notified.
#[tokio::test(flavor = "multi_thread")]
async fn unrequested_messages_arrive_in_their_chat() {
    let model = Model::start().await;
    model.on(
        "tell the page",
        [
            Reply::tool("message", &json!({"content": "from the tool", "channel": "page", "chat_id": "news"})),
            Reply::text("told"),
        ],
    );
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let mut events = page.events("", None).await;
    let added = [
        "cron", "add", "--name", "tea", "--message", "tea is ready", "--at", "in 1h", "--channel", "page", "--chat",
        "news",
    ];
    assert_eq!(gateway.run(&added).await.code, Some(0));
    let changed = |what: &'static str, session: Option<&'static str>| {
        move |event: &ServerEvent| {
            let is_named = event.data["what"].as_array().is_some_and(|all| all.iter().any(|one| one == what));
            event.kind == "changed" && is_named && event.data["session"].as_str() == session
        }
    };
    events.until(changed("cron", None)).await;
    assert_eq!(gateway.run(&["cron", "run", "tea"]).await.code, Some(0));
    events.until(changed("sessions", Some("page:news"))).await;
    let output = gateway.run(&["agent", "-m", "tell the page"]).await;
    assert_eq!(output.stdout, "told\n", "{output:?}");
    let shown = until("both messages", async || {
        let answer = page.request(Method::GET, "/api/sessions/page:news").send().await.unwrap();
        let shown: Value = answer.json().await.unwrap();
        let text = shown.to_string();
        (text.contains("tea is ready") && text.contains("from the tool")).then_some(shown)
    })
    .await;
    let sent = shown["deliveries"].as_array().unwrap();
    let from_tool = sent.iter().find(|one| one["text"] == "from the tool").unwrap();
    assert_eq!(from_tool["kind"], "message");
    let listed = page.get("/api/sessions").await;
    assert!(listed.as_array().unwrap().iter().any(|one| one["session"] == "page:news"), "{listed}");
    // All replies count as delivered, perhaps a moment after they are shown.
    until("an empty queue", async || (gateway.json(&["queue", "list"]).await == json!([])).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_settings_previews_and_memories_are_served() {
    let model = Model::start().await;
    model.on("spend", [Reply::text("spent").usage(1_000, 100)]);
    let setup = Setup::scripted(&model).set("agent.budget.day_cost", 5.0);
    let setup = setup.set("providers.scripted.price.input", 2.0).set("providers.scripted.price.output", 10.0);
    let gateway = Gateway::start(setup).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    gateway.post("in", "?wait=30", &Message::new("spend")).await;
    let cost = page.get("/api/cost").await;
    let spent = &cost["days"][0]["models"][0];
    assert_eq!((&spent["turns"], &spent["input"], &spent["output"]), (&json!(1), &json!(1_000), &json!(100)), "{cost}");
    assert_eq!((&spent["cost"], &spent["currency"]), (&json!("0.0030"), &json!("USD")), "{cost}");
    assert_eq!((&cost["budget"]["used"], &cost["budget"]["limit"]), (&json!("0.0030"), &json!("5")), "{cost}");
    assert_eq!(cost["sessions"][0]["turns"], 1);
    for wrong in ["from=now", "from=9999-12-31&to=9999-12-31"] {
        let answer = page.request(Method::GET, &format!("/api/cost?{wrong}")).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{wrong}");
    }
    let settings = page.get("/api/config").await;
    let row = |section: &str, key: &str| {
        settings.as_array().unwrap().iter().find(|row| row["section"] == section && row["key"] == key).cloned().unwrap()
    };
    assert_eq!(row("providers.scripted", "api_key")["value"], "(hidden)");
    assert_eq!(
        (&row("agent.budget", "day_cost")["source"], &row("agent", "max_iterations")["source"]),
        (&json!("file"), &json!("default"))
    );
    // Jobs are created from natural language.
    let preview = page
        .post("/api/cron/preview", &json!({"text": "every Monday at 9: read me the news", "tz": "Asia/Shanghai"}))
        .await;
    assert_eq!(
        (&preview["job"]["cron"], &preview["job"]["prompt"]),
        (&json!("0 9 * * 1"), &json!("read me the news")),
        "{preview}"
    );
    let next = preview["next"].as_array().unwrap();
    assert!(next.len() == 5 && next[0].as_str().unwrap().ends_with("T01:00:00Z"), "{preview}");
    let made = page.post("/api/cron", &preview["job"]).await;
    assert_eq!(made["schedule"], json!({"cron": "0 9 * * 1", "tz": "Asia/Shanghai"}));
    let by_field = page.post("/api/cron/preview", &json!({"every": "2h"})).await;
    assert_eq!(by_field["next"].as_array().unwrap().len(), 5);
    let chinese = page.post("/api/cron/preview", &json!({"text": "每天早上8点提醒我喝水"})).await;
    assert_eq!(
        (&chinese["job"]["cron"], &chinese["job"]["message"]),
        (&json!("0 8 * * *"), &json!("喝水")),
        "{chinese}"
    );
    let reminder = page.post("/api/cron/preview", &json!({"text": "remind me in 20 minutes to make tea"})).await;
    assert_eq!(
        (&reminder["job"]["message"], reminder["next"].as_array().unwrap().len()),
        (&json!("make tea"), 1),
        "{reminder}"
    );
    // An edited job keeps its id.
    let path = format!("/api/cron/{}", made["id"].as_str().unwrap());
    let fields = json!({"prompt": "the news", "every": "3h", "tz": "UTC"});
    let edited = page.request(Method::PATCH, &path).json(&fields).send().await.unwrap();
    let edited: Value = edited.json().await.unwrap();
    assert_eq!(
        (&edited["id"], &edited["name"], &edited["text"]),
        (&made["id"], &made["name"], &json!("the news")),
        "{edited}"
    );
    for (path, fields, status) in [(path.as_str(), json!({"prompt": ""}), 422), ("/api/cron/nothing", fields, 404)] {
        let refused = page.request(Method::PATCH, path).json(&fields).send().await.unwrap();
        assert_eq!(refused.status(), status, "{path} {fields}");
    }
    for text in ["read me the news", "every banana at 9 read", "every Monday at 25:00: news", "", "every Monday at 9"] {
        let answer = page.request(Method::POST, "/api/cron/preview").json(&json!({"text": text})).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{text}");
    }
    // After an edit of a memory, the former text is in its history.
    let fact = page.post("/api/memory", &json!({"text": "The cat is called Miso."})).await;
    let path = format!("/api/memory/{}", fact["id"]);
    let edited =
        page.request(Method::PATCH, &path).json(&json!({"content": "The cat is called Mochi."})).send().await.unwrap();
    let edited: Value = edited.json().await.unwrap();
    assert_eq!((&edited["text"], &edited["replaced"]), (&json!("The cat is called Mochi."), &fact["id"]), "{edited}");
    let shown = page.get(&format!("/api/memory/{}", edited["id"])).await;
    assert_eq!(shown["before"][0]["text"], "The cat is called Miso.");
    let stale = page.request(Method::PATCH, &path).json(&json!({"content": "x"})).send().await.unwrap();
    assert_eq!(stale.status(), 422);
}

/// A chat is deleted once its running turn has ended, also the first one, and shows nothing of its former conversation then.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_is_deleted_during_its_first_turn_is_empty() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("hold", [Reply::text("held").held_by(&gate)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let session = page.say(None, "hold").await;
    gate.wait_arrived(1).await;
    let path = format!("/api/sessions/{session}");
    let delete = async || {
        let answer = page.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json::<Value>().await.unwrap()
    };
    let release = async {
        until("the message that deletes the chat", async || {
            let turns = page.get(&format!("/api/turns?session={session}")).await;
            (turns.as_array()?.len() == 2).then_some(())
        })
        .await;
        gate.open();
    };
    let (deleted, ()) = tokio::join!(delete(), release);
    assert_eq!(deleted, json!({"session": session, "cleared": true}));
    let is_empty = async || {
        let shown = page.get(&path).await;
        assert_eq!((&shown["messages"], &shown["deliveries"]), (&json!([]), &json!([])), "{shown}");
    };
    is_empty().await;
    // Answers to commands are not in the history, and belong to it all the same.
    for content in ["/cost", "/help"] {
        page.say(Some(&session), content).await;
    }
    until("the answers to the commands", async || {
        (page.get(&path).await["deliveries"].as_array()?.len() == 2).then_some(())
    })
    .await;
    assert_eq!(delete().await["cleared"], true);
    is_empty().await;
    // So does a chat that never had a message for the model.
    let other = page.say(None, "/help").await;
    let path = format!("/api/sessions/{other}");
    until("the answer to the command", async || {
        (page.get(&path).await["deliveries"].as_array()?.len() == 1).then_some(())
    })
    .await;
    let answer = page.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap()["cleared"], true);
    assert_eq!(page.get(&path).await["deliveries"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_mean_no_known_chat_or_another_message_are_refused() {
    let gateway = Gateway::start(Setup::new()).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let send = async |path: &str, body: String| {
        let request = page.request(Method::POST, path).header("content-type", "application/json").body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    // A stop of an unknown chat does not create it.
    for key in ["page:nothing", "cli:nothing"] {
        let (status, refused) = send(&format!("/api/sessions/{key}/stop"), String::new()).await;
        assert_eq!((status, &refused["error"]["code"]), (404, &json!("not_found")), "{refused}");
    }
    assert_eq!(page.get("/api/sessions").await, json!([]));

    // An id belongs to one message.
    let id = "7b0c1fa0-0000-4000-8000-000000000001";
    let (status, first) = send("/api/chat", json!({"content": "one", "id": id}).to_string()).await;
    assert_eq!((status, &first["status"]), (202, &json!("accepted")));
    let (session, other) = (first["session"].as_str().unwrap(), "page:other");
    for (body, expected) in [
        (json!({"content": " one ", "id": id}), 202),
        (json!({"content": "one", "id": id, "session": session}), 202),
        (json!({"content": "two", "id": id}), 422),
        (json!({"content": "one", "id": id, "session": other}), 202),
    ] {
        let (status, answer) = send("/api/chat", body.to_string()).await;
        assert_eq!(status, expected, "{body}: {answer}");
        match status {
            202 => assert_eq!((&answer["status"], &answer["id"]), (&json!("duplicate"), &first["id"])),
            _ => assert!(answer["error"]["message"].as_str().unwrap().contains("new id"), "{answer}"),
        }
    }

    // The limit of a body is named, by each route its own.
    for (path, mib, limit) in
        [("/api/chat", 2, "2MiB"), ("/api/tools/list_dir/run", 16, "16MiB"), ("/api/files?name=a", 25, "25MiB")]
    {
        let (status, refused) = send(path, " ".repeat((mib << 20) + 1)).await;
        let expected = json!({"code": "too_large", "message": format!("the body is larger than {limit}")});
        assert_eq!((status, &refused["error"]), (413, &expected), "{path}");
    }
}

/// A turn is asked again with its file: its session goes back to the end of the turn before, or to the beginning, and only if the new
/// message can be accepted.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_replaces_the_last_turn_goes_back_before_it() {
    let gateway = Gateway::start(Setup::new()).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let send = async |body: Value| {
        let answer = page.request(Method::POST, "/api/chat").json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let path = format!("/api/sessions/{SESSION}");
    // Returns the person's texts in the history, once it ends with a reply to the turn.
    let texts = async |turn: &Value| {
        until("the turn in the history", async || {
            let answer = page.request(Method::GET, &path).send().await.unwrap();
            let shown: Value = answer.json().await.unwrap();
            let messages = shown["messages"].as_array()?.clone();
            let of_users = messages.iter().filter(|message| message["role"] == "user");
            (messages.last()?["turn"] == *turn).then(|| of_users.map(|one| one["text"].clone()).collect::<Vec<_>>())
        })
        .await
    };
    let file = page.request(Method::POST, "/api/files?name=a.txt").body("text").send().await.unwrap();
    let file: Value = file.json().await.unwrap();
    let one = send(json!({"session": SESSION, "content": "one"})).await.1["id"].clone();
    texts(&one).await;
    let two = send(json!({"session": SESSION, "content": "two", "files": [file["id"]]})).await.1["id"].clone();
    assert_eq!(texts(&two).await, ["one", "two"]);
    let files = json!([page.get(&path).await["messages"][2]["attachments"][0]["id"]]);
    let unknown = "7b0c1fa0-0000-4000-8000-000000000009";
    for (body, status, code) in [
        (json!({"content": "two", "replaces": two, "files": [format!("in.{unknown}.0")]}), 404, "not_found"),
        (json!({"content": "two", "replaces": two, "files": ["x"]}), 404, "not_found"),
        (json!({"content": "two", "replaces": two, "model": "none/such"}), 422, "invalid"),
        (json!({"content": "two", "replaces": one}), 409, "not_last"),
        (json!({"content": "two", "replaces": unknown}), 404, "not_found"),
    ] {
        let mut body = body;
        body["session"] = json!(SESSION);
        let (got, answer) = send(body.clone()).await;
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{body}: {answer}");
    }
    assert_eq!(texts(&two).await, ["one", "two"], "nothing was taken back");
    let again = json!({"session": SESSION, "content": "two", "files": files, "replaces": two, "id": unknown});
    let replaced = send(again.clone()).await.1["id"].clone();
    assert_eq!(texts(&replaced).await, ["one", "two"]);
    assert_eq!(page.get(&path).await["messages"][2]["attachments"][0]["name"], "a.txt");
    assert_eq!(send(again).await.1["status"], "duplicate");
    assert_eq!(texts(&replaced).await, ["one", "two"]);
    // The first turn of a conversation.
    let other = json!({"session": "page:other", "content": "first"});
    let first = send(other.clone()).await.1["id"].clone();
    until("the first turn", async || {
        page.get("/api/turns?session=page:other")
            .await
            .as_array()?
            .iter()
            .all(|turn| turn["state"] == "done")
            .then_some(())
    })
    .await;
    let mut body = other;
    body["replaces"] = first;
    let new = send(body).await.1["id"].clone();
    until("the first turn anew", async || {
        let shown = page.get("/api/sessions/page:other").await;
        let messages = shown["messages"].as_array()?;
        (messages.len() == 2 && messages.iter().all(|message| message["turn"] == new)).then_some(())
    })
    .await;
}

/// A turn that waits for its user delays neither the deletion of its chat nor the way back to an earlier turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_turn_ends_with_its_chat_and_a_fork_has_a_chat() {
    let model = Model::start().await;
    let ask = || Reply::tool("ask_user", &json!({"question": "Which one?"}));
    model.on("ask", [ask(), ask()]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let path = format!("/api/sessions/{SESSION}");
    let question = async || {
        page.say(Some(SESSION), "ask").await;
        until("the question", async || (page.get("/api/queue").await[0]["state"] == "waiting").then_some(())).await;
    };
    page.say(Some(SESSION), "hello").await;
    let turns = until("the first turn", async || {
        let turns = page.get(&format!("/api/turns?session={SESSION}")).await;
        (turns[0]["state"] == "done").then_some(turns)
    })
    .await;
    let first = format!("/api/turns/{}", turns[0]["turn"].as_str().unwrap());
    question().await;
    let restored = page.post(&format!("{first}/restore"), &Value::Null).await;
    assert_eq!((&restored["restored"], &restored["messages"]), (&json!(true), &json!(2)), "{restored}");
    for (session, status) in [("page:", 400), ("abc", 400), (":abc", 400), ("page:copy", 200)] {
        let path = format!("{first}/fork?session={session}");
        assert_eq!(page.request(Method::POST, &path).send().await.unwrap().status().as_u16(), status, "{session}");
    }
    question().await;
    let deleted = page.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(deleted.json::<Value>().await.unwrap()["cleared"], true);
    assert_eq!(page.get(&path).await["messages"], json!([]));
    // The answer to the deletion may still be on its way.
    until("the queue to be empty", async || (page.get("/api/queue").await == json!([])).then_some(())).await;
}
