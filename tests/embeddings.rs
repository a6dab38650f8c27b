//! Vectors of memories are computed in the background, across crashes and changes, without delaying anything else.

use serde_json::json;

use crate::support::exposition::scrape;
use crate::support::invariants::{open, open_to_change};
use crate::support::model::ModelRequest;
use crate::support::{Embeddings, Gateway, Hook, Model, Reply, Setup, until};

fn setup(server: &Embeddings, model: &str) -> Setup {
    Setup::new()
        .hook(Hook::bearer("in"))
        .set("providers.numbers.api_key", "a-key-of-numbers")
        .set("providers.numbers.base_url", server.base_url())
        .set("providers.numbers.retries", 0)
        .set("memory.embeddings.model", model)
        .set("memory.embeddings.batch", 4)
}

/// Adds memories that date from before vectors existed.
fn add_memories(gateway: &Gateway, texts: &[String]) {
    let connection = open_to_change(&gateway.database());
    for text in texts {
        let insert = "INSERT INTO memories (owner, kind, text, origin, confidence, created_at)
            VALUES ('owner', 'fact', ?, 'told', 1.0, 1)";
        connection.execute(insert, [text]).unwrap();
    }
}

/// Returns how many memories have a vector, and the model of these vectors.
fn vector_counts(gateway: &Gateway) -> (usize, String) {
    let connection = open(&gateway.database()).unwrap();
    let count = connection.query_row("SELECT count(*) FROM memory_vectors", [], |row| row.get(0)).unwrap();
    let model = connection.query_row("SELECT value FROM meta WHERE key = 'vectors'", [], |row| row.get(0));
    (count, model.unwrap_or_default())
}

async fn wait_vectors(gateway: &Gateway, count: usize, model: &str) {
    let expected = (count, model.to_owned());
    until("the vectors", async || (vector_counts(gateway) == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_are_computed_once_and_again_for_another_model() {
    let server = Embeddings::start().await;
    let mut gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    gateway.stop().await;
    let texts: Vec<_> = (0..10).map(|number| format!("fact number {number}")).collect();
    add_memories(&gateway, &texts);
    *gateway.setup() = setup(&server, "numbers/small");
    for (point, made) in [("vectors_answered", 0), ("vectors_written", 4), ("vectors_answered:2", 8)] {
        gateway.crash_at(point).spawn();
        gateway.wait_crash().await;
        assert_eq!(vector_counts(&gateway), (made, "numbers/small".to_owned()), "{point}");
    }
    gateway.up().await;
    wait_vectors(&gateway, 10, "numbers/small").await;
    let requests = server.requests();
    assert!(requests.iter().all(|asked| asked.texts.len() <= 4 && asked.model == "small"), "{requests:?}");
    // Only requests that were answered but not yet written at the crash are repeated: the first four, and the last two.
    let mut asked: Vec<_> = server.texts().into_iter().filter(|text| text.starts_with("fact")).collect();
    asked.sort_unstable();
    let all: Vec<_> =
        texts.iter().enumerate().flat_map(|(at, text)| vec![text; 1 + usize::from(!(4..=7).contains(&at))]).collect();
    assert_eq!(asked.iter().collect::<Vec<_>>(), all);

    // A server that does not answer delays nothing.
    server.hold(true);
    *gateway.setup() = setup(&server, "numbers/large").set("memory.embeddings.dimensions", 32);
    gateway.write_config();
    gateway.sighup();
    until("the larger model to be asked", async || {
        server.requests().iter().any(|asked| asked.model == "large" && asked.dimensions == Some(32)).then_some(())
    })
    .await;
    assert_eq!(vector_counts(&gateway), (0, "numbers/large@32".to_owned()));
    assert!(!gateway.ask("in", "c", "hello").await.is_empty());
    server.hold(false);
    wait_vectors(&gateway, 10, "numbers/large@32").await;
    assert!(gateway.logs().contains("all embeddings are rebuilt"), "{}", gateway.logs());
    let page = scrape(&gateway).await;
    let labels = [("provider", "numbers"), ("model", "large"), ("kind", "input")];
    let tokens = page.value("daoyou_model_tokens_total", &labels);
    assert!(tokens > Some(30.0), "three words a fact, and what is asked for first: {tokens:?}");
    assert!(!gateway.logs().contains("a-key-of-numbers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_embeddings_is_a_configuration_error() {
    let server = Embeddings::start().await;
    for (model, expected) in [
        ("numbers", "memory.embeddings.model: \"numbers\" names no provider and model"),
        ("auto", "memory.embeddings.model: \"auto\" does not support embeddings"),
        ("nowhere/m", "memory.embeddings.model: unknown provider \"nowhere\""),
        ("openai/m", "memory.embeddings.model: openai has no key: set providers.openai.api_key"),
        ("offline/m", "memory.embeddings.model: offline does not support embeddings"),
        (
            "claude/m",
            "memory.embeddings.model: claude does not support embeddings: use a provider of kind = \"openai\"",
        ),
    ] {
        let setup = setup(&server, model)
            .set("providers.claude.kind", "anthropic")
            .set("providers.claude.base_url", server.base_url());
        let gateway = Gateway::new(setup);
        let ran = gateway.run(&["config", "check"]).await;
        assert!(ran.code != Some(0) && ran.stderr.contains(expected), "{model}: {ran:?}");
    }
    let ran = Gateway::new(setup(&server, "numbers/m")).run(&["config", "check"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// Returns the tool results at the end of a request.
fn results(model: &Model, about: &str) -> String {
    let requests = model.requests_about(about);
    let last = requests.last().expect("it was asked");
    ModelRequest::new(0, last).results.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_is_found_by_meaning() {
    let (server, model) = (Embeddings::start().await, Model::start().await);
    server.alike(&["car", "automobile"]);
    let fact = "Our automobile stands in the northern garage.";
    model.on("keep this", [Reply::tool("remember", &json!({"content": fact})), Reply::text("kept")]);
    for word in ["car", "garage", "piano"] {
        let look = Reply::tool("recall", &json!({"query": word}));
        model.on(&format!("look for {word}"), [look, Reply::text("looked")]);
    }
    let gateway = Gateway::start(setup(&server, "numbers/small").model(&model)).await;
    let chat = async |text: &str| gateway.run(&["agent", "-m", text]).await;
    chat("keep this").await;
    wait_vectors(&gateway, 1, "numbers/small").await;
    for (word, is_found) in [("car", true), ("garage", true), ("piano", false)] {
        chat(&format!("look for {word}")).await;
        let found = results(&model, &format!("look for {word}"));
        assert_eq!(found.contains(fact), is_found, "{word}: {found}");
    }
    // Without the server, words suffice.
    drop(server);
    let look = Reply::tool("recall", &json!({"query": "northern"}));
    model.on("once more", [look, Reply::text("looked")]);
    chat("once more").await;
    assert!(results(&model, "once more").contains(fact));
    assert_eq!(model.refused(), Vec::<String>::new());
}
