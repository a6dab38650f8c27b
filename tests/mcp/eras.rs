//! Servers of both eras of the protocol.

use super::*;

/// Returns the methods that the scripted server `notes` received, in order.
fn methods(gateway: &Gateway) -> Vec<String> {
    let text = std::fs::read_to_string(gateway.home().join("mcp/notes/methods.txt")).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn count(methods: &[String], method: &str) -> usize {
    methods.iter().filter(|known| *known == method).count()
}

/// A server that does not know `server/discover` may answer it in any way, so it never receives it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_initialize_gets_no_newer_method() {
    if no_servers() {
        return;
    }
    for mode in ["unknown-empty", "unknown-null", "unknown-exits", "unknown-silent"] {
        let gateway = gateway(mode).await;
        listed(&gateway, "notes").await;
        assert_eq!(says(&gateway, "notes__echo", &json!({"text": "x"})).await, "echo: x", "{mode}");
        let methods = methods(&gateway);
        assert_eq!((methods[0].as_str(), count(&methods, "server/discover")), ("initialize", 0), "{mode}: {methods:?}");
        assert_eq!(lines(&gateway, "starts.txt"), 1, "{mode}");
    }
}

/// The scripted server ends after each call, so the second call starts it again, in the era that the gateway remembers.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_rejects_initialize_is_started_in_the_newest_era() {
    if no_servers() {
        return;
    }
    let gateway = gateway("newest").await;
    listed(&gateway, "notes").await;
    assert_eq!(methods(&gateway)[..2], ["initialize", "server/discover"]);
    for text in ["one", "two"] {
        assert_eq!(says(&gateway, "notes__echo", &json!({ "text": text })).await, format!("echo: {text}"));
        until("the end of the server", async || {
            (gateway.json(&["mcp", "list"]).await[0]["state"] == "failed").then_some(())
        })
        .await;
    }
    let methods = methods(&gateway);
    assert_eq!((count(&methods, "initialize"), count(&methods, "server/discover")), (1, 2), "{methods:?}");
    assert_eq!(lines(&gateway, "starts.txt"), 3);
}

/// The scripted server holds a lock, rejects `initialize`, and then ends only by SIGKILL. Outside the sandbox, its folder is HOME.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_rejects_initialize_is_gone_before_its_next_start() {
    if no_servers() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let setup = with_server(Setup::new(), "notes", "newest-lingers").set("mcp.notes.sandbox", false);
    let gateway = Gateway::start(setup.set("mcp.notes.env.HOME", folder.path().to_str().unwrap())).await;
    listed(&gateway, "notes").await;
    let trace = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap_or_default();
    assert_eq!(trace("methods.txt").lines().take(2).collect::<Vec<_>>(), ["initialize", "server/discover"]);
    assert_eq!((trace("starts.txt").lines().count(), trace("overlaps.txt")), (2, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_eras_are_reached_by_http() {
    if no_servers() {
        return;
    }
    let server = HttpServer::start();
    let names = ["empty", "null", "newest"];
    let setup = names.iter().fold(Setup::new(), |setup, name| {
        setup.set(&format!("mcp.{name}.url"), format!("http://127.0.0.1:{}/{name}", server.1))
    });
    let gateway = Gateway::start(setup).await;
    for name in names {
        let (protocol, begin) = match name {
            "newest" => ("2026-07-28", "initialize server/discover tools/list"),
            _ => ("2025-11-25", "initialize notifications/initialized tools/list"),
        };
        let tested = gateway.json(&["mcp", "test", name]).await;
        assert_eq!(json!([tested["protocol"], tested["transport"]]), json!([protocol, "http"]), "{tested}");
        let tool = format!("{name}__methods");
        has_tool(&gateway, &tool).await;
        let methods = says(&gateway, &tool, &json!({})).await;
        assert!(methods.starts_with(begin), "{name}: {methods}");
        assert_eq!(methods.contains("server/discover"), name == "newest", "{methods}");
    }
}

/// An entry of `tools` that fits no tool of the server is a problem that commands and the log name.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_tools_that_fits_nothing_is_named() {
    if no_servers() {
        return;
    }
    let tools = vec!["echo", "gone*"];
    let gateway = Gateway::start(with_server(Setup::new(), "notes", "").set("mcp.notes.tools", tools)).await;
    listed(&gateway, "notes").await;
    let expected = "mcp.notes.tools: \"gone*\" matches none of the server's tools";
    assert_eq!(gateway.json(&["mcp", "list"]).await[0]["problems"], json!([expected]));
    let doctor = gateway.run(&["doctor"]).await.stdout;
    assert!(doctor.contains(expected), "{doctor}");
    assert!(gateway.logs().contains("matches none of the server's tools"), "{}", gateway.logs());
}
