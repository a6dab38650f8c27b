//! Differences between services: reasoning is returned as each service expects, refused parameters are dropped, old servers
//! get functions, and `daoyou models` lists known facts.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::model::messages_of;
use crate::support::{Gateway, Model, Reply, Setup};

/// Returns the reasoning in the assistant's messages with calls, from the last request.
fn returned_reasoning(model: &Model) -> Vec<Value> {
    let request = model.requests().pop().unwrap();
    let messages = messages_of(&request).iter();
    let with_calls = messages.filter(|message| message["role"] == "assistant" && message.get("tool_calls").is_some());
    with_calls.map(|message| message["reasoning_content"].clone()).collect()
}

/// Returns true if an assistant's message with calls in this request has reasoning; `None` if there is no such message.
fn holds_reasoning(body: &Value) -> Option<bool> {
    let messages = body["messages"].as_array()?.iter();
    let with_calls = messages.filter(|message| message["role"] == "assistant" && message.get("tool_calls").is_some());
    with_calls
        .map(|message| message["reasoning_content"].as_str().is_some_and(|text| !text.is_empty()))
        .reduce(|a, b| a && b)
}

fn list_dir_call() -> Reply {
    Reply::tool("list_dir", &json!({"path": "."}))
}

/// A service that needs reasoning gets it: within the turn and in later turns, and an empty text if the model produced none.
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_returned_to_services_that_need_it() {
    let model = Model::start().await;
    model.on(
        "first",
        [list_dir_call().reasoning("I look."), list_dir_call().reasoning("I look again."), Reply::text("seen")],
    );
    model.on("second", [list_dir_call(), Reply::text("seen too")]);
    let missing = "Missing `reasoning_content` field in the assistant message at message index 2.";
    model.script(move |asked| (holds_reasoning(asked.body) == Some(false)).then(|| Reply::status(400).saying(missing)));
    let gateway = Gateway::start(Setup::scripted(&model).set("providers.scripted.retries", 0)).await;
    assert_eq!(gateway.ask("in", "c", "first").await, "seen");
    assert_eq!((returned_reasoning(&model), model.count()), (vec![json!("I look."), json!("I look again.")], 3));
    assert_eq!(gateway.ask("in", "c", "second").await, "seen too");
    let blank = json!(" ");
    assert_eq!(returned_reasoning(&model), [json!("I look."), json!("I look again."), blank]);
    assert_eq!((model.count(), model.refused()), (6, Vec::new()), "refused once, then known");
    assert_eq!(gateway.ask("in", "c", "third").await, "echo: third");
    assert_eq!((returned_reasoning(&model).len(), model.count()), (3, 7));
}

/// A service that refuses reasoning is called again at once without it, and so are later requests. `omit` avoids the first attempt.
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_withheld_from_services_that_refuse_it() {
    for (mode, asked) in [("auto", 5), ("omit", 4)] {
        let model = Model::start().await;
        model.on("look", [list_dir_call().reasoning("I look."), Reply::text("seen")]);
        let words = "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property \
            'reasoning_content' is unsupported)]";
        model
            .script(move |asked| (holds_reasoning(asked.body) == Some(true)).then(|| Reply::status(400).saying(words)));
        let setup =
            Setup::scripted(&model).set("providers.scripted.retries", 0).set("providers.scripted.reasoning", mode);
        let gateway = Gateway::start(setup).await;
        for _ in 0..2 {
            assert_eq!(gateway.ask("in", "c", "look").await, "seen");
        }
        assert_eq!((model.count(), model.refused()), (asked, Vec::new()), "{mode}");
    }
}

/// A refused parameter costs one additional request, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_parameter_is_dropped() {
    let model = Model::start().await;
    model.script(|asked| {
        let refused = asked.body.get("temperature").is_some();
        refused.then(|| {
            Reply::status(400).saying("Unsupported value: 'temperature' does not support 0.3 with this model.")
        })
    });
    let setup = Setup::scripted(&model).set("providers.scripted.retries", 0).set("agent.temperature", 0.3);
    let gateway = Gateway::start(setup).await;
    for text in ["one", "two"] {
        assert_eq!(gateway.ask("in", "c", text).await, format!("echo: {text}"));
    }
    let sent = model.requests().iter().map(|body| body.get("temperature").is_some()).collect::<Vec<_>>();
    assert_eq!(sent, [true, false, false]);
    let log = gateway.logs();
    assert_eq!(log.matches("without temperature").count(), 1, "{log}");
}

/// A server without tools gets functions, by configuration or after its refusal.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_server_is_offered_functions_instead_of_tools() {
    for (mode, asked) in [("functions", 3), ("auto", 4)] {
        let model = Model::start().await;
        model.on(
            "write",
            [
                Reply::tool("write_file", &json!({"path": "a.txt", "content": "old"})).in_function_call_form(),
                Reply::tool("read_file", &json!({"path": "a.txt"})).in_function_call_form(),
                Reply::text("written"),
            ],
        );
        model.script(|asked| {
            let refused = asked.body.get("tools").is_some();
            refused.then(|| Reply::status(400).saying("Unrecognized request argument supplied: tools"))
        });
        let setup = Setup::scripted(&model).set("providers.scripted.retries", 0).set("providers.scripted.tools", mode);
        let gateway = Gateway::start(setup).await;
        assert_eq!(gateway.ask("in", "c", "write").await, "written");
        assert_eq!(std::fs::read_to_string(gateway.workspace().join("a.txt")).unwrap(), "old");
        let last = model.requests().pop().unwrap();
        let messages = last["messages"].as_array().unwrap();
        let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "function", "assistant", "function"]);
        assert_eq!(messages[2]["function_call"]["name"], "write_file");
        assert!(messages[5]["content"].as_str().is_some_and(|content| content.contains("old")), "{}", messages[5]);
        assert_eq!((model.count(), model.refused()), (asked, Vec::new()), "{mode}");
    }
}

/// A model that accepts no tools answers without them, even if earlier turns used some.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_tools_still_answers() {
    let model = Model::start().await;
    model.on("look", [list_dir_call(), Reply::text("seen")]);
    let gateway = Gateway::start(Setup::scripted(&model).set("providers.scripted.retries", 0)).await;
    assert_eq!(gateway.ask("in", "c", "look").await, "seen");
    model.script(|asked| {
        let refused = asked.body.get("tools").is_some();
        refused.then(|| Reply::status(400).saying("registry.ollama.ai/library/gemma3:4b does not support tools"))
    });
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    let id = gateway.accept("in", &Message::new("again").chat("c")).await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "echo: again");
    assert_eq!((model.count(), model.refused()), (5, Vec::new()));
}

/// `daoyou models` shows the source of each key but never the key, the context size, and the price.
#[tokio::test(flavor = "multi_thread")]
async fn models_lists_the_known_facts_of_each_service() {
    let model = Model::start().await;
    let setup = Setup::scripted(&model)
        .set("providers.scripted.context_tokens", 32_000)
        .set("providers.qwen.api_key", "sk-canary-qwen")
        .env("OPENAI_API_KEY", "sk-canary-openai");
    let gateway = Gateway::new(setup);
    let ran = gateway.run(&["models", "--json"]).await;
    assert!(!ran.stdout.contains("sk-canary"), "{ran:?}");
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    let row =
        |name: &str| found["providers"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!(row("openai")["key_from"], "OPENAI_API_KEY");
    assert_eq!(
        (&row("openai")["context_tokens"], &row("openai")["price"]["currency"]),
        (&json!(1_050_000), &json!("USD"))
    );
    assert_eq!(
        (&row("qwen")["key_from"], &row("qwen")["price"]["currency"]),
        (&json!("providers.qwen.api_key"), &json!("CNY"))
    );
    assert_eq!((&row("groq")["key_from"], &row("groq")["key"]), (&Value::Null, &json!(false)));
    assert_eq!(row("scripted")["context_tokens"], 32_000);
    let ran = gateway.run(&["models"]).await;
    for words in ["OPENAI_API_KEY is set", "in the configuration", "needs GROQ_API_KEY", "0.8 in, 2 out CNY", "1.05M"] {
        assert!(ran.stdout.contains(words), "{words}\n{}", ran.stdout);
    }
    let ran = gateway.run(&["models", "scripted"]).await;
    let end = "\nscripted answers as scripted\n\nscripted lists 1 models\n  scripted/scripted\n";
    assert!(ran.stdout.ends_with(end), "{}", ran.stdout);
    model.script(|_| Some(Reply::status(401).saying("no such key")));
    let ran = gateway.run(&["models", "scripted"]).await;
    let said = "\nscripted does not answer: HTTP 401: no such key; asked http://127.0.0.1:";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    assert!(!ran.stdout.contains("answers"), "{}", ran.stdout);
    assert_eq!(ran.code, Some(1), "{ran:?}");
}
