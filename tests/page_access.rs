//! Access to the page: logins, cookies, one-time codes, and tokens with a scope.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::{Method, redirect};
use serde_json::{Value, json};

use crate::support::gateway::http_client;
use crate::support::invariants::wait_settled;
use crate::support::page::PageClient;
use crate::support::{Gate, Gateway, Model, Reply, Setup, files_below, until};

async fn code_of(answer: reqwest::Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap_or_default();
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// Adds a token and returns it.
async fn token(gateway: &Gateway, name: &str, scope: &str) -> String {
    let added = gateway.run(&["tokens", "add", name, "--scope", scope]).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    added.stdout.trim().to_owned()
}

/// A command of the agent can replace an upload in the workspace. The page shows the file that was uploaded, or none.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_leads_to_no_other_file() {
    let gateway = Gateway::start(Setup::new()).await;
    let page = PageClient::login(&gateway, &token(&gateway, "ann", "chat").await).await;
    let memory = gateway.workspace().join("memory");
    std::fs::create_dir_all(&memory).unwrap();
    std::fs::write(memory.join("MEMORY.md"), "private").unwrap();
    for change in ["none", "text", "link", "folder", "second name"] {
        let upload = page.request(Method::POST, "/api/files?name=MEMORY.md").body(change.to_owned()).send();
        let id = upload.await.unwrap().json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
        let file = find_file(&gateway.workspace().join("page"), change);
        let folder = file.parent().unwrap();
        match change {
            "text" => std::fs::write(&file, "changed").unwrap(),
            "link" | "second name" => {
                std::fs::remove_file(&file).unwrap();
                // A relative link stays in the workspace, so that nothing else refuses it.
                let made = match change {
                    "link" => symlink("../../../memory/MEMORY.md", &file),
                    _ => std::fs::hard_link(memory.join("MEMORY.md"), &file),
                };
                made.unwrap();
            }
            "folder" => {
                std::fs::remove_dir_all(folder).unwrap();
                symlink("../../memory", folder).unwrap();
            }
            _ => {}
        }
        let answer = page.request(Method::GET, &format!("/api/files/{id}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), if change == "none" { 200 } else { 410 }, "{change}");
        assert!(!answer.text().await.unwrap().contains("private"), "{change}");
    }
}

/// Returns the file below `folder` that contains `text` alone.
fn find_file(folder: &Path, text: &str) -> PathBuf {
    let find = |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|found| found == text);
    files_below(folder).into_iter().find(find).expect("the upload")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_the_page_are_confined_and_cached() {
    let gateway = Gateway::start(Setup::new()).await;
    let get = |path: &str| http_client().get(gateway.url(path));
    let page = get("/").header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(
        (page.status().as_u16(), page.headers()["content-type"].to_str().unwrap()),
        (200, "text/html; charset=utf-8")
    );
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    for rule in
        ["default-src 'self'", "script-src 'self'", "object-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"]
    {
        assert!(policy.contains(rule), "{policy}");
    }
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert_eq!(page.headers()["referrer-policy"], "no-referrer");
    assert_eq!(
        (&page.headers()["content-encoding"], &page.headers()["cache-control"]),
        (&"gzip".parse().unwrap(), &"no-cache".parse().unwrap())
    );
    let tag = page.headers()["etag"].to_str().unwrap().to_owned();
    let again = get("/").header("accept-encoding", "gzip").header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(again.status(), 304);
    let plain = get("/").header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(
        (plain.status().as_u16(), plain.headers().contains_key("content-encoding")),
        (200, false),
        "another form"
    );
    assert!(plain.text().await.unwrap().contains("<html"));
    for path in ["/assets/nothing.js", "/assets/../mod.rs", "/assets/%2e%2e/mod.rs", "/assets/"] {
        assert_eq!(get(path).send().await.unwrap().status(), 404, "{path}");
    }
    // Errors and the API have the restrictions too.
    let refused = get("/api/me").send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["x-content-type-options"]),
        (401, &"nosniff".parse().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_lasts_over_a_restart_and_changes_only_from_the_page() {
    let mut gateway = Gateway::start(Setup::new()).await;
    let mut page = PageClient::new(&gateway);
    assert_eq!(code_of(page.post_login("wrong").await).await, (401, "unauthorized".to_owned()));
    let login = page.post_login(&gateway.token()).await;
    let cookie = login.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=2592000"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains(&gateway.token()), "{cookie}");
    page.take_cookie(&login);
    let me = page.get("/api/me").await;
    assert_eq!((&me["name"], &me["scope"], &me["locale"]), (&json!("owner"), &json!("admin"), &json!("en")));
    // The store has only a hash.
    let id = page.cookie.clone().unwrap().split_once('=').unwrap().1.to_owned();
    gateway.restart().await;
    assert_eq!(page.get("/api/me").await["scope"], "admin");
    let body = json!({"content": "what time is it?"});
    let chat = |request: reqwest::RequestBuilder| async { code_of(request.json(&body).send().await.unwrap()).await };
    let foreign =
        page.bare(Method::POST, "/api/chat").header("x-daoyou", "page").header("origin", "https://evil.example");
    for (request, expected) in [
        (page.bare(Method::POST, "/api/chat"), (403, "csrf")),
        (page.bare(Method::POST, "/api/chat").header("x-daoyou", "page"), (403, "csrf")),
        (page.bare(Method::POST, "/api/chat").header("origin", &page.base), (403, "csrf")),
        (page.bare(Method::POST, "/api/chat").header("origin", &page.base).header("x-daoyou", "1"), (403, "csrf")),
        (page.bare(Method::DELETE, "/api/sessions/cli:direct"), (403, "csrf")),
        (foreign, (403, "forbidden")),
        (page.request(Method::POST, "/api/chat"), (202, "")),
        // A token in a header is not a cookie: no other site has it.
        (http_client().post(gateway.url("/api/chat")).bearer_auth(gateway.token()), (202, "")),
        (page.bare(Method::POST, "/api/chat").bearer_auth("wrong"), (401, "unauthorized")),
    ] {
        let shown = format!("{request:?}");
        assert_eq!(chat(request).await, (expected.0, expected.1.to_owned()), "{shown}");
    }
    // Other ports of this machine are the same site and get the cookie. A proxy may require a separate password.
    let get = |path: &str| page.bare(Method::GET, path);
    for (request, expected) in [
        (get("/api/models").header("sec-fetch-site", "same-site"), (403, "csrf")),
        (get("/api/models").header("sec-fetch-site", "cross-site"), (403, "csrf")),
        (get("/api/attach?chat_id=direct"), (403, "csrf")),
        (get("/api/models").header("sec-fetch-site", "same-origin"), (200, "")),
        (get("/api/models").basic_auth("proxy", Some("password")), (200, "")),
    ] {
        let shown = format!("{request:?}");
        let answer = code_of(request.send().await.unwrap()).await;
        assert_eq!(answer, (expected.0, expected.1.to_owned()), "{shown}");
    }
    let database = std::fs::read(gateway.database()).unwrap();
    assert!(!database.windows(id.len()).any(|bytes| bytes == id.as_bytes()), "only its hash is stored");
    assert!(!gateway.logs().contains(&id));
    let gone = page.request(Method::POST, "/api/logout").send().await.unwrap();
    assert_eq!(gone.status(), 204);
    assert!(gone.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(
        code_of(page.request(Method::GET, "/api/me").send().await.unwrap()).await,
        (401, "unauthorized".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_wrong_tokens_are_refused_and_the_right_one_still_works() {
    let gateway = Gateway::start(Setup::new()).await;
    let page = PageClient::new(&gateway);
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(page.post_login("guess").await.status().as_u16());
    }
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10..], [429; 2]);
    let late = page.post_login("guess").await;
    assert!(late.headers().contains_key("retry-after"));
    assert_eq!(code_of(late).await.1, "too_many_attempts");
    assert_eq!(page.post_login(&gateway.token()).await.status(), 204);
    for body in ["{}", "{\"token\":1}", "x", "{\"token\":\"a\",\"token\":\"b\"}"] {
        let request = http_client().post(gateway.url("/api/login")).header("content-type", "application/json");
        let status = request.body(body).send().await.unwrap().status().as_u16();
        assert!([400, 422].contains(&status), "{body}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn daoyou_open_prints_a_link_that_logs_in_once() {
    let mut gateway = Gateway::start(Setup::new()).await;
    let opened = gateway.run(&["open", "--no-browser"]).await;
    let link = opened.stdout.trim().to_owned();
    assert!(link.starts_with(&gateway.url("/login?code=")), "{opened:?}");
    assert!(!link.contains(&gateway.token()));
    let client = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).build().unwrap();
    assert!(!client.head(&link).send().await.unwrap().headers().contains_key("set-cookie"));
    let first = client.get(&link).send().await.unwrap();
    assert_eq!((first.status().as_u16(), first.headers()["location"].to_str().unwrap()), (303, "/"));
    let mut page = PageClient::new(&gateway);
    page.take_cookie(&first);
    assert_eq!(page.get("/api/me").await["scope"], "admin");
    let second = client.get(&link).send().await.unwrap();
    assert_eq!((second.status().as_u16(), second.headers()["location"].to_str().unwrap()), (303, "/?login=expired"));
    assert!(!second.headers().contains_key("set-cookie"));
    let json = gateway.json(&["open"]).await;
    assert_eq!(json["expires_in"], 60);
    // A code becomes invalid with its gateway, and only the control socket issues codes.
    gateway.restart().await;
    let stale = client.get(json["url"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(stale.headers()["location"].to_str().unwrap(), "/?login=expired");
    let asked = http_client().post(gateway.url("/api/page/code")).bearer_auth(gateway.token()).send().await.unwrap();
    assert_eq!(asked.status(), 404);
    let code = link.split_once("code=").unwrap().1;
    assert!(!gateway.logs().contains(code), "a code is not logged");
    let status = gateway.run(&["status"]).await.stdout;
    let printed = status.split_whitespace().find(|word| word.starts_with(&gateway.url("/login?code="))).unwrap();
    let login = gateway.json(&["status"]).await["login"].clone();
    assert!(login["url"].as_str().unwrap().ends_with(login["code"].as_str().unwrap()), "{login}");
    assert_eq!(login["url"], printed, "an unused link is shown again");
    assert!((1..=60).contains(&login["expires_in"].as_u64().unwrap()), "{login}");
    let leads_to =
        async |link: &str| client.get(link).send().await.unwrap().headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(leads_to(printed).await, "/", "{status}");
    let next = gateway.json(&["status"]).await["login"].clone();
    assert_ne!(next["url"], printed, "a used link is not shown again");
    assert_eq!(leads_to(next["url"].as_str().unwrap()).await, "/");
    gateway.stop().await;
    assert!(!gateway.run(&["status"]).await.stdout.contains("/login"), "without a gateway there is no page");
    assert_eq!(gateway.json(&["status"]).await["login"], Value::Null);
    let down = gateway.run(&["open"]).await;
    assert!(down.code == Some(1) && down.stderr.contains("daoyou gateway"), "{down:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_added_listed_and_revoked_with_and_without_a_gateway() {
    let mut gateway = Gateway::start(Setup::new()).await;
    let reader = token(&gateway, "reader", "read").await;
    let get = async |token: &str, path: &str| {
        code_of(http_client().get(gateway.url(path)).bearer_auth(token).send().await.unwrap()).await
    };
    assert_eq!(get(&reader, "/api/sessions").await.0, 200);
    assert_eq!(get(&reader, "/api/config").await, (403, "scope".to_owned()));
    let listed = gateway.json(&["tokens", "list"]).await;
    assert_eq!((&listed[0]["name"], &listed[0]["scope"]), (&json!("reader"), &json!("read")));
    until("the use to be stored", async || {
        gateway.json(&["tokens", "list"]).await[0]["used_at"].is_string().then_some(())
    })
    .await;
    for (args, wrong) in [
        (&["tokens", "add", "reader", "--scope", "chat"][..], "already"),
        (&["tokens", "add", "A B", "--scope", "chat"], "lower-case"),
        (&["tokens", "revoke", "nobody"], "no token"),
    ] {
        let refused = gateway.run(args).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(wrong), "{refused:?}");
    }
    // A login with a token ends with the token.
    let page = PageClient::login(&gateway, &reader).await;
    assert_eq!(page.get("/api/me").await["name"], "reader");
    assert_eq!(gateway.run(&["tokens", "revoke", "reader"]).await.code, Some(0));
    assert_eq!(get(&reader, "/api/sessions").await.0, 401);
    assert_eq!(page.request(Method::GET, "/api/me").send().await.unwrap().status(), 401);
    // A new token of the same name does not get the data of the revoked token without confirmation.
    let again = gateway.run(&["tokens", "add", "reader", "--scope", "read"]).await;
    assert!(again.code == Some(1) && again.stderr.contains("was revoked"), "{again:?}");
    let again = gateway.run(&["tokens", "add", "reader", "--scope", "chat", "--reuse"]).await;
    assert_eq!((again.code, get(again.stdout.trim(), "/api/sessions").await.0), (Some(0), 200), "{again:?}");
    assert_eq!(get(&reader, "/api/sessions").await.0, 401);
    assert_eq!(
        page.request(Method::GET, "/api/me").send().await.unwrap().status(),
        401,
        "the login was of the old one"
    );
    gateway.stop().await;
    let other = token(&gateway, "other", "admin").await;
    gateway.up().await;
    let mine = http_client().get(gateway.url("/api/config")).bearer_auth(&other).send().await.unwrap();
    assert_eq!(mine.status(), 200);
    let shown = format!("{}{}", gateway.logs(), gateway.json(&["tokens", "list"]).await);
    assert!(!shown.contains(&other) && !shown.contains(&reader));
}

/// A holder of a token can fill the table of logins only with own ones.
#[tokio::test(flavor = "multi_thread")]
async fn the_logins_of_a_token_end_no_login_of_the_owner() {
    let gateway = Gateway::start(Setup::new()).await;
    let bob = token(&gateway, "bob", "chat").await;
    let owner = PageClient::login(&gateway, &gateway.token()).await;
    let first = PageClient::login(&gateway, &bob).await;
    for _ in 0..110 {
        assert_eq!(first.post_login(&bob).await.status(), 204);
    }
    assert_eq!(owner.get("/api/me").await["name"], "owner");
    let ended = first.request(Method::GET, "/api/me").send().await.unwrap();
    assert_eq!(ended.status(), 401, "the oldest login of the same token");
}

/// Only one reading of a request is accepted: one token, and an object as the body.
#[tokio::test(flavor = "multi_thread")]
async fn two_tokens_and_arrays_in_place_of_objects_are_refused() {
    let gateway = Gateway::start(Setup::new()).await;
    let owner = gateway.token();
    let bob = token(&gateway, "bob", "chat").await;
    for (first, second) in [(&owner, &bob), (&bob, &owner)] {
        let request = http_client().get(gateway.url("/api/me")).bearer_auth(first).bearer_auth(second);
        assert_eq!(code_of(request.send().await.unwrap()).await, (401, "unauthorized".to_owned()));
    }
    let sent = json!(["page:arr", "array content", [], null, null, null]);
    for (method, path, body) in [
        (Method::POST, "/api/chat", sent),
        (Method::POST, "/api/login", json!([owner])),
        (Method::POST, "/api/tokens", json!(["ann", "admin", false])),
        (Method::PATCH, "/api/sessions/page:arr", json!(["title"])),
        (Method::POST, "/api/memory", json!(["The cat is called Miso."])),
        (Method::POST, "/api/memory/forget", json!([[1]])),
        (Method::POST, "/api/cron", json!(["tea", "1h"])),
        (Method::POST, "/api/cron/preview", json!(["every Monday at 9: tea"])),
    ] {
        let request = http_client().request(method, gateway.url(path)).bearer_auth(&owner).json(&body);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        assert!(status == 400 && text.contains("not a JSON object"), "{path}: {status} {text}");
    }
    assert_eq!(gateway.json(&["tokens", "list"]).await.as_array().unwrap().len(), 1);
}

/// The holder of a chat token reads its chats, whoever writes there first.
#[tokio::test(flavor = "multi_thread")]
async fn private_memory_is_not_used_in_the_chats_of_a_token() {
    let model = Model::start().await;
    model.on("hello in", [Reply::tool("recall", &json!({"query": "submarine"})), Reply::text("done")]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    assert_eq!(gateway.run(&["memory", "add", "The submarine is yellow"]).await.code, Some(0));
    token(&gateway, "bob", "chat").await;
    let owner = PageClient::login(&gateway, &gateway.token()).await;
    for (session, is_used) in [("page:mine", true), ("page:bob.1", false)] {
        let content = format!("hello in {session}");
        owner.say(Some(session), &content).await;
        let asked = until("the turn to end", async || {
            let asked = model.requests_about(&content);
            (asked.len() == 2).then_some(asked)
        })
        .await;
        assert_eq!(json!(asked).to_string().contains("yellow"), is_used, "{session}: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_revoked_token_end_at_once() {
    let gateway = Gateway::start(Setup::new()).await;
    let reader = token(&gateway, "reader", "read").await;
    let page = PageClient::login(&gateway, &reader).await;
    let mut events = page.events("", None).await;
    assert_eq!(events.next().await.kind, "hello");
    assert_eq!(gateway.run(&["tokens", "revoke", "reader"]).await.code, Some(0));
    let revoked = Instant::now();
    while events.try_next().await.is_some() {}
    assert!(revoked.elapsed() < Duration::from_secs(10), "the stream ended after {:?}", revoked.elapsed());
}

/// An upload whose message was refused is deleted after a day like every other unused one.
#[tokio::test(flavor = "multi_thread")]
async fn the_upload_of_a_refused_message_stays_unused() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("hold", [Reply::text("held").held_by(&gate)]);
    let gateway = Gateway::start(Setup::new().model(&model).set("gateway.session_capacity", 1)).await;
    let page = PageClient::login(&gateway, &gateway.token()).await;
    let file = page.request(Method::POST, "/api/files?name=a.txt").body("text").send().await.unwrap();
    let file: Value = file.json().await.unwrap();
    let store = rusqlite::Connection::open(gateway.database()).unwrap();
    let is_used = || {
        let sql = "SELECT used_at IS NOT NULL FROM page_files";
        store.query_row(sql, [], |row| row.get::<_, bool>(0)).unwrap()
    };
    let session = page.say(None, "hold").await;
    gate.wait_arrived(1).await;
    let more = json!({"session": session, "content": "more", "files": [file["id"]]});
    let refused = page.request(Method::POST, "/api/chat").json(&more).send().await.unwrap();
    assert_eq!(code_of(refused).await, (429, "session_full".to_owned()));
    assert!(!is_used(), "the message was refused");
    let accepted = json!({"session": "page:other", "content": "more", "files": [file["id"]]});
    assert_eq!(page.post("/api/chat", &accepted).await["status"], "accepted");
    assert!(is_used());
    let refused = page.request(Method::POST, "/api/chat").json(&more).send().await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(is_used(), "an accepted message still needs it");
    gate.open();
}

/// Asserts that the client cannot choose an agent: a route may restrict a token's holder to one, and the owner pays for the model.
async fn chooses_no_agent(page: &PageClient) {
    for (field, value) in [("agent", "coder"), ("model", "test/large")] {
        let chosen = json!({"content": "mine", field: value});
        let answer = page.request(Method::POST, "/api/chat").json(&chosen).send().await.unwrap();
        assert_eq!(code_of(answer).await, (403, "scope".to_owned()), "{field}");
    }
}

/// A token for chats sees the chats that it began, and nothing of the owner or of another token.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_token_sees_only_its_own() {
    let model = Model::start().await;
    for text in ["mine", "yours", "owners"] {
        model.on(text, [Reply::text(format!("{text} done")), Reply::text("again")]);
    }
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let (bob, ann) = (token(&gateway, "bob", "chat").await, token(&gateway, "ann", "chat").await);
    let [bob, ann] = [PageClient::login(&gateway, &bob).await, PageClient::login(&gateway, &ann).await];
    let owner = PageClient::login(&gateway, &gateway.token()).await;
    let mut events = bob.events("", None).await;
    assert_eq!(events.next().await.kind, "hello");
    let others = [ann.say(None, "yours").await, owner.say(None, "owners").await];
    // Events of the others would come before the own ones.
    wait_settled(&gateway.database()).await;
    let own = bob.say(None, "mine").await;
    assert!(own.starts_with("page:bob."), "{own}");
    let seen = events.turn().await;
    assert!(seen.iter().all(|event| event.data["session"] == own.as_str()), "{seen:?}");
    let listed = until("the session of the turn", async || {
        let listed = bob.get("/api/sessions").await;
        (listed[0]["messages"] == 2).then_some(listed)
    })
    .await;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["session"]), (1, &json!(own)), "{listed}");
    assert_eq!(owner.get(&format!("/api/turns?session={own}")).await[0]["sender"], "token:bob");
    chooses_no_agent(&bob).await;
    let file = bob.request(Method::POST, "/api/files?name=a.txt").body("secret of bob").send().await.unwrap();
    let file: Value = file.json().await.unwrap();
    let file = file["id"].as_str().unwrap();
    assert_eq!(
        bob.request(Method::GET, &format!("/api/files/{file}")).send().await.unwrap().text().await.unwrap(),
        "secret of bob"
    );
    assert_eq!(ann.request(Method::GET, &format!("/api/files/{file}")).send().await.unwrap().status(), 404);
    let turn = owner.get(&format!("/api/turns?session={}", others[1])).await[0]["turn"].as_str().unwrap().to_owned();
    let own_turn = bob.get(&format!("/api/turns?session={own}")).await[0]["turn"].as_str().unwrap().to_owned();
    assert_eq!(bob.get(&format!("/api/turns/{own_turn}")).await["session"], own.as_str());
    let mut refused = vec![
        (Method::GET, format!("/api/turns/{turn}")),
        (Method::GET, "/api/turns".to_owned()),
        (Method::POST, format!("/api/turns/{own_turn}/fork?session=page:bob.copy")),
        (Method::POST, format!("/api/turns/{own_turn}/restore")),
        (Method::GET, "/api/memory".to_owned()),
        (Method::GET, "/api/search?q=x".to_owned()),
        (Method::GET, "/api/approvals".to_owned()),
        (Method::GET, "/api/status".to_owned()),
        (Method::GET, "/api/config".to_owned()),
        (Method::GET, "/api/tokens".to_owned()),
        (Method::POST, "/api/messages".to_owned()),
        (Method::POST, "/api/tools/exec/run".to_owned()),
        (Method::POST, "/mcp".to_owned()),
        (Method::GET, "/metrics".to_owned()),
        (Method::GET, format!("/api/events?session={}", others[0])),
    ];
    for other in others.iter().map(String::as_str).chain(["cli:direct", "page:bob", "page:bobby.1"]) {
        for (method, rest) in [
            (Method::GET, ""),
            (Method::PATCH, ""),
            (Method::DELETE, ""),
            (Method::GET, "/transcript"),
            (Method::GET, "/live"),
            (Method::POST, "/stop"),
        ] {
            refused.push((method, format!("/api/sessions/{}{rest}", other.replace(':', "%3A"))));
        }
    }
    for (method, path) in refused {
        let answer = bob.request(method.clone(), &path).json(&json!({"title": "x"})).send().await.unwrap();
        assert_eq!(code_of(answer).await, (403, "scope".to_owned()), "{method} {path}");
    }
    for body in [json!({"session": others[0], "content": "hi"}), json!({"session": "cli:direct", "content": "hi"})] {
        let answer = bob.request(Method::POST, "/api/chat").json(&body).send().await.unwrap();
        assert_eq!(code_of(answer).await.0, 403, "{body}");
    }
    // The same id of two clients means two messages.
    let id = "7b0c1fa0-0000-4000-8000-000000000001";
    let say = async |page: &PageClient, session: &str| {
        page.post("/api/chat", &json!({"session": session, "content": "/cost", "id": id})).await["status"].clone()
    };
    assert_eq!(
        [say(&ann, &others[0]).await, say(&bob, &own).await, say(&bob, &own).await],
        ["accepted", "accepted", "duplicate"]
    );
}

/// A client of the OpenAI-compatible API with a token for chats acts as the token's holder, in separate sessions.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_token_has_its_own_sessions_at_v1() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let (bob, ann) = (token(&gateway, "bob", "chat").await, token(&gateway, "ann", "chat").await);
    let send = async |token: &str, path: &str, body: Value, session: Option<&str>| {
        let mut request = http_client().post(gateway.url(path)).bearer_auth(token).json(&body);
        if let Some(session) = session {
            request = request.header("x-session-id", session);
        }
        let answer = request.send().await.unwrap();
        let named = answer.headers().get("x-session-id").map(|name| name.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap(), named.unwrap_or_default())
    };
    let chat = |text: &str, model: &str| json!({"model": model, "messages": [{"role": "user", "content": text}]});
    let list = http_client().get(gateway.url("/v1/models")).bearer_auth(&bob).send().await.unwrap();
    let list: Value = list.json().await.unwrap();
    assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
    // The same name means a separate session for each client.
    for (who, text) in [(&bob, "of bob"), (&ann, "of ann"), (&gateway.token(), "of the owner")] {
        let (status, body, session) = send(who, "/v1/chat/completions", chat(text, "daoyou"), Some("work")).await;
        let answer = &body["choices"][0]["message"]["content"];
        assert_eq!((status, session.as_str(), answer), (200, "work", &json!(format!("echo: {text}"))), "{body}");
    }
    let sessions = gateway.json(&["sessions", "list"]).await.to_string();
    for session in ["api:token:bob:work", "api:token:ann:work", "api:work"] {
        assert!(sessions.contains(&format!("\"{session}\"")), "{sessions}");
    }
    let turns = gateway.json(&["turns", "list", "--session", "api:token:bob:work"]).await;
    assert_eq!((&turns[0]["sender"], turns.as_array().unwrap().len()), (&json!("token:bob"), 1), "{turns}");
    // Only the client of a response can continue it.
    let (status, first, _) = send(&bob, "/v1/responses", json!({"input": "one"}), None).await;
    assert_eq!(status, 200, "{first}");
    let next = |input: &str| json!({"input": input, "previous_response_id": first["id"]});
    assert_eq!(send(&bob, "/v1/responses", next("two"), None).await.0, 200);
    let (status, refused, _) = send(&ann, "/v1/responses", next("three"), None).await;
    assert_eq!((status, &refused["error"]["code"]), (404, &json!("previous_response_not_found")), "{refused}");
    // A client's instructions do not count as the owner's, and its commands choose nothing either.
    let asked = json!({"model": "daoyou", "messages": [{"role": "system", "content": "Bob rules"}, {"role": "user", "content": "three"}]});
    let (_, body, _) = send(&bob, "/v1/chat/completions", asked, None).await;
    assert_eq!(body["choices"][0]["message"]["content"], "echo: three");
    let request = model.requests().last().unwrap().to_string();
    assert!(
        request.contains("Instructions of the sender's program, with the sender's trust:\\nBob rules"),
        "{request}"
    );
    assert!(!request.contains("Instructions of the owner"), "{request}");
    for command in ["/model test/large", "/agent coder"] {
        let system = json!({"role": "system", "content": "Be brief."});
        let asked = json!({"model": "daoyou", "messages": [system, {"role": "user", "content": command}]});
        let (_, body, _) = send(&bob, "/v1/chat/completions", asked, None).await;
        let answer = body["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(answer.contains("The owner chooses") || answer.contains("the owner has set"), "{command}: {answer}");
    }
    for model in ["coder", "test/large", "nothing"] {
        let (status, refused, _) = send(&bob, "/v1/chat/completions", chat("x", model), None).await;
        assert_eq!((status, &refused["error"]["code"]), (403, &json!("scope")), "{refused}");
    }
}

/// The holder of one token cannot use up all streams of events, nor the streams of others.
#[tokio::test(flavor = "multi_thread")]
async fn the_event_streams_of_a_token_are_limited() {
    let gateway = Gateway::start(Setup::new()).await;
    let bob = token(&gateway, "bob", "chat").await;
    let open =
        async |token: &str| http_client().get(gateway.url("/api/events")).bearer_auth(token).send().await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..16 {
        let stream = open(&bob).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    assert_eq!(code_of(open(&bob).await).await, (503, "too_many_pages".to_owned()));
    for _ in 0..20 {
        let stream = open(&gateway.token()).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    drop(streams);
    until("room for another stream", async || (open(&bob).await.status() == 200).then_some(())).await;
}
