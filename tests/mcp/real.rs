//! Real servers of npm and PyPI, where they are installed.

use super::*;

/// Skips the story and returns true if one of the programs is missing.
fn lacks(programs: &[(&str, &str)]) -> bool {
    no_servers() || programs.iter().any(|(program, package)| is_missing(program, package))
}

const EVERYTHING: (&str, &str) = ("mcp-server-everything", "@modelcontextprotocol/server-everything");

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_servers_work_in_the_sandbox() {
    let programs = [
        EVERYTHING,
        ("mcp-server-filesystem", "@modelcontextprotocol/server-filesystem"),
        ("mcp-server-time", "mcp-server-time"),
        ("mcp-server-git", "mcp-server-git"),
        ("mcp-server-fetch", "mcp-server-fetch"),
        ("git", "git"),
    ];
    if lacks(&programs) {
        return;
    }
    let server = |setup: Setup, name: &str, words: &[&str]| setup.set(&format!("mcp.{name}.command"), words.to_vec());
    let setup = server(Setup::new(), "all", &["mcp-server-everything"]);
    let setup = server(setup, "files", &["mcp-server-filesystem", "."]);
    let setup = server(setup, "time", &["mcp-server-time", "--local-timezone", "UTC"]);
    let setup = server(setup, "git", &["mcp-server-git"]);
    let setup = server(setup, "fetch", &["mcp-server-fetch"]);
    let gateway = Gateway::start(setup).await;
    let mut eras = BTreeSet::new();
    for (name, least) in [("all", 10), ("files", 10), ("time", 2), ("git", 8), ("fetch", 1)] {
        let tested = gateway.json(&["mcp", "test", name]).await;
        assert!(tested["tools"].as_u64() >= Some(least) && tested["problems"] == json!([]), "{tested}");
        eras.insert(tested["protocol"].as_str().unwrap().to_owned());
    }
    assert!(eras.iter().all(|era| era.as_str() >= "2025"), "{eras:?}");
    until("the tools of all", async || {
        let tools = gateway.json(&["tools", "list"]).await;
        let has = |name: &str| tools.as_array().unwrap().iter().any(|tool| tool["name"] == name);
        (has("all__echo") && has("fetch__fetch") && has("git__git_status") && has("files__read_text_file"))
            .then_some(())
    })
    .await;
    std::fs::write(gateway.workspace().join("seen.txt"), "canary-seen").unwrap();
    for (tool, arguments, expected) in [
        ("all__echo", json!({"message": "hi"}), "Echo: hi"),
        ("all__get-sum", json!({"a": 2, "b": 40}), "42"),
        ("all__get-tiny-image", json!({}), "[image .daoyou/conversations/"),
        ("all__get-structured-content", json!({"location": "Chicago"}), "\"conditions\""),
        ("all__get-resource-links", json!({}), "mcp_read reads it"),
        ("all__get-roots-list", json!({}), "/workspace"),
        ("files__read_text_file", json!({"path": "seen.txt"}), "canary-seen"),
        ("files__read_text_file", json!({"path": "/etc/hostname"}), "Error: "),
        ("time__get_current_time", json!({"timezone": "Asia/Shanghai"}), "+08:00"),
        ("time__get_current_time", json!({"timezone": "Nowhere/Land"}), "Error: "),
        ("git__git_status", json!({"repo_path": "."}), ""),
        ("fetch__fetch", json!({"url": "http://127.0.0.1:9/nothing"}), "Error: "),
    ] {
        let result = says(&gateway, tool, &arguments).await;
        assert!(result.contains(expected), "{tool} {arguments}: {result}");
    }
    let read = says(&gateway, "mcp_read", &json!({"server": "all", "uri": "demo://resource/dynamic/text/7"})).await;
    assert!(read.contains("demo://resource/dynamic/text/7") && !read.starts_with("Error"), "{read}");
    let prompt = gateway.run(&["agent", "-m", "/mcp all"]).await.stdout;
    assert!(prompt.contains("/mcp all simple-prompt"), "{prompt}");
}

/// A server on this machine that is reached by HTTP.
struct Listening(Child, u16);

impl Listening {
    async fn start(transport: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("mcp-server-everything");
        command.arg(transport).env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self(command.spawn().unwrap(), port);
        until("the server to listen", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok().then_some(())
        })
        .await;
        server
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_reached_by_streamable_http_and_by_sse() {
    if lacks(&[EVERYTHING]) {
        return;
    }
    let (new, old) = (Listening::start("streamableHttp").await, Listening::start("sse").await);
    let setup = Setup::new().set("mcp.new.url", format!("http://127.0.0.1:{}/mcp", new.1));
    let setup = setup.set("mcp.old.url", format!("http://127.0.0.1:{}/sse", old.1));
    let gateway = Gateway::start(setup.set("mcp.gone.url", "http://127.0.0.1:9/mcp")).await;
    for (name, transport) in [("new", "http"), ("old", "sse")] {
        let tested = gateway.json(&["mcp", "test", name]).await;
        assert_eq!(tested["transport"], transport, "{tested}");
        let tool = format!("{name}__echo");
        has_tool(&gateway, &tool).await;
        assert_eq!(says(&gateway, &tool, &json!({"message": name})).await, format!("Echo: {name}"));
    }
    let gone = gateway.run(&["mcp", "test", "gone"]).await.stderr;
    assert!(gone.contains("gone cannot be reached: ") && gone.contains("refused"), "{gone}");
    // The server starts again on the same port. The session is new, and the next call works.
    let port = new.1;
    drop(new);
    let mut again = Command::new("mcp-server-everything");
    again.arg("streamableHttp").env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    let _again = Listening(again.spawn().unwrap(), port);
    until("the server to answer again", async || {
        (says(&gateway, "new__echo", &json!({"message": "again"})).await == "Echo: again").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_with_the_other_server_when_one_dies() {
    if lacks(&[EVERYTHING, ("mcp-server-time", "mcp-server-time")]) {
        return;
    }
    let model = Model::start().await;
    let dying = Listening::start("streamableHttp").await;
    let setup = Setup::owned_by_boss(&model);
    let setup = setup.set("mcp.all.url", format!("http://127.0.0.1:{}/mcp", dying.1)).set("mcp.all.trusted", true);
    let setup = setup.set("mcp.time.command", vec!["mcp-server-time", "--local-timezone", "UTC"]);
    let gateway = Gateway::start(setup.set("mcp.time.trusted", true)).await;
    for (server, tool) in [("all", "all__echo"), ("time", "time__get_current_time")] {
        assert_eq!(gateway.run(&["mcp", "test", server]).await.code, Some(0));
        has_tool(&gateway, tool).await;
    }
    let long = "all__trigger-long-running-operation";
    has_tool(&gateway, long).await;
    let steps = [
        Reply::tool(long, &json!({"duration": 300, "steps": 300})),
        Reply::tool("time__get_current_time", &json!({"timezone": "Asia/Shanghai"})),
        Reply::tool("all__echo", &json!({"message": "still there?"})),
        Reply::text("One of two has answered."),
    ];
    model.on("ask both", steps);
    let id = gateway.accept("in", &Message::new("ask both").chat("c").sender("boss")).await;
    until("the call to run", async || {
        let turn = gateway.json(&["turns", "show", &id]).await;
        let steps = turn["steps"].as_array()?;
        steps.iter().any(|step| step["kind"] == "tool_started").then_some(())
    })
    .await;
    drop(dying);
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "One of two has answered.");
    let last = model.requests().last().unwrap()["messages"].clone();
    let is_result = |message: &&Value| message["role"] == "tool";
    let results: Vec<_> = last.as_array().unwrap().iter().filter(is_result).map(|one| one["content"].clone()).collect();
    let [lost, result, gone] = results.as_slice() else { panic!("{results:?}") };
    // The connection may end before the server has begun its response.
    let losses = ["Error: the connection to all has ended", "Error: all: client error"];
    assert!(losses.iter().any(|start| lost.as_str().unwrap().starts_with(start)), "{lost}");
    assert!(result.as_str().unwrap().contains("+08:00"), "{result}");
    assert!(gone.as_str().unwrap().contains("cannot be reached"), "{gone}");
}
