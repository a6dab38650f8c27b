//! Addresses of model services: usual forms of `base_url`, the variables that accompany keys, and errors about wrong addresses.

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{Gateway, Hook, Model, Reply, Setup};

/// Returns the address of a scripted server without its path.
fn root(model: &Model) -> String {
    model.base_url().trim_end_matches("/v1").to_owned()
}

fn setup(model: &Model, kind: &str, base_url: &str) -> Setup {
    let setup = Setup::new().model(model).set("providers.scripted.kind", kind);
    setup.set("providers.scripted.base_url", base_url).set("providers.scripted.retries", 0)
}

/// With each usual form of an address, in each protocol, the message is answered.
#[tokio::test(flavor = "multi_thread")]
async fn every_usual_form_of_a_base_url_reaches_the_service() {
    let model = Model::start().await;
    let forms = [
        ("openai", &["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/chat/completions/", "/v1/models"][..]),
        ("anthropic", &["", "/", "/v1", "/v1/", "/v1/messages", "/v1/messages/", "/v1/models"]),
    ];
    for (kind, forms) in forms {
        for form in forms {
            let gateway = Gateway::new(setup(&model, kind, &format!("{}{form}", root(&model))));
            let ran = gateway.run(&["agent", "-m", "hello"]).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "echo: hello\n"), "{kind} {form:?}: {ran:?}");
        }
    }
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// An invalid base URL is a configuration error that says what to write instead.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_base_url_is_a_configuration_error() {
    let model = Model::start().await;
    let root = root(&model);
    let v1 = format!("would be {root}/v1");
    for (kind, form, words) in [
        ("openai", "/v1/responses", v1.as_str()),
        ("openai", "/v1/completions", &v1),
        ("openai", "/v1/messages", "kind = \"anthropic\""),
        ("openai", "/api/chat", &v1),
        ("openai", "/#/settings", "a page in a browser"),
        ("anthropic", "/v1/chat/completions", "kind = \"openai\""),
    ] {
        let gateway = Gateway::new(setup(&model, kind, &format!("{root}{form}")));
        gateway.write_config();
        let ran = gateway.run(&["config", "check"]).await;
        let output = format!("{}{}", ran.stdout, ran.stderr);
        assert_ne!(ran.code, Some(0), "{kind} {form}: {ran:?}");
        assert!(output.contains("providers.scripted.base_url") && output.contains(words), "{kind} {form}: {output}");
    }
    assert_eq!(model.count(), 0);
}

/// With `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`, the key goes to that address, and a model there answers.
#[tokio::test(flavor = "multi_thread")]
async fn base_url_variables_apply_with_their_api_keys() {
    let model = Model::start().await;
    for (name, path) in [("OPENAI", "/v1"), ("OPENAI", ""), ("ANTHROPIC", ""), ("ANTHROPIC", "/v1/")] {
        let setup = Setup::new().set("agent.model", "auto");
        let setup = setup.env(&format!("{name}_API_KEY"), "a-model-key");
        let gateway = Gateway::new(setup.env(&format!("{name}_BASE_URL"), &format!("{}{path}", root(&model))));
        let ran = gateway.run(&["agent", "-m", "hello"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "echo: hello\n"), "{name} {path:?}: {ran:?}");
    }
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// If the service does not know the address, only the owner reads which address was called and which would work.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_sees_a_wrong_provider_address() {
    let model = Model::start().await;
    let (root, wrong) = (root(&model), format!("{}/proxy", root(&model)));
    let works = format!("providers.scripted.base_url = \"{root}/v1/chat/completions\"");
    let gateway = Gateway::start(setup(&model, "openai", &wrong).hook(Hook::bearer("in"))).await;
    let reply = gateway.ask("in", "c", "hello").await;
    assert!(
        reply.contains("HTTP 404: the service knows no such model or address") && !reply.contains("127.0.0.1"),
        "{reply}"
    );
    let asked = format!("asked {wrong}/chat/completions");
    let ran = gateway.run(&["agent", "-m", "hello"]).await;
    let reply = format!("{}{}", ran.stdout, ran.stderr);
    assert!(reply.contains(&asked) && reply.contains(&works), "{ran:?}");
    let log = gateway.logs().replace("\\\"", "\"");
    assert!(log.contains(&asked) && log.contains(&works), "{log}");
    let status = gateway.run(&["status"]).await.stdout;
    assert!(status.contains(&asked) && status.contains(&works), "{status}");
    let ran = gateway.run(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "provider scripted").unwrap();
    let message = check["message"].as_str().unwrap();
    assert_eq!((ran.code, &check["state"]), (Some(1), &json!("fail")), "{check}");
    assert!(message.contains(&asked) && message.contains(&works), "{message}");
}

/// `/model` with a name unknown to the provider is refused, with the nearest known name.
#[tokio::test(flavor = "multi_thread")]
async fn choosing_an_unknown_model_is_refused_with_the_nearest_name() {
    let model = Model::start().await;
    model.script(|asked| {
        let is_there = matches!(asked.body["model"].as_str(), Some("scripted" | "unlisted"));
        (!is_there).then(|| Reply::status(404).saying("The model does not exist"))
    });
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for (wanted, words) in [("scripte", "similar: scripted/scripted"), ("scripted/nope", "no model \"nope\"")] {
        let reply = gateway.ask("in", "c", &format!("/model {wanted}")).await;
        assert!(reply.contains(words), "{wanted}: {reply}");
        assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello", "the session keeps its model");
    }
    assert!(gateway.ask("in", "c", "/model scripted/unlisted").await.contains("scripted/unlisted"));
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    assert_eq!(model.requests().pop().unwrap()["model"], "unlisted");
}

/// A model server without models says how to get a model, wherever its name is used.
#[tokio::test(flavor = "multi_thread")]
async fn an_ollama_without_models_suggests_ollama_pull() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let list = || async { axum::Json(json!({"object": "list", "data": null})) };
    let tags = || async { axum::Json(json!({"models": []})) };
    let routes = Router::new().route("/v1/models", get(list)).route("/api/tags", get(tags));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let init = Gateway::new(Setup::new()).command(&["init", "--yes"]).env("OLLAMA_HOST", &url).output().await.unwrap();
    let said = String::from_utf8(init.stderr).unwrap();
    assert!(init.status.success() && said.contains("ollama has no models yet: get one with `ollama pull "), "{said}");
    let setup = Setup::new().set("agent.model", "auto").set("providers.ollama.base_url", url);
    let gateway = Gateway::new(setup);
    for arguments in [&["agent", "-m", "hello"][..], &["models"], &["doctor"], &["status"]] {
        let ran = gateway.run(arguments).await;
        let output = format!("{}{}", ran.stdout, ran.stderr);
        assert!(output.contains("ollama pull "), "{arguments:?}: {output}");
    }
}
