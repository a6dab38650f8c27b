//! Real clients of npm and PyPI, where they are installed, and requests in the style of other clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::*;
use crate::support::requirements::{find, is_missing};

/// Longer than an attempt of the clients, which takes half a second.
const SLOW: Duration = Duration::from_millis(1_200);

/// Starts a model with the answers that the clients' programs expect.
async fn model_for_clients() -> Model {
    let model = Model::start().await;
    model.script(|asked| {
        let conversation = asked.body["messages"].to_string();
        Some(match asked.user.as_str() {
            "hello" | "hello image" => Reply::text("Hello! I am here.").usage(20, 5),
            "who am I?" if conversation.contains("my name is Ann") => Reply::text("Ann"),
            "fail" => Reply::status(400),
            "slowly" => Reply::text("at last").delay(SLOW),
            _ => return None,
        })
    });
    model
}

/// Runs a client's program and returns its findings.
async fn run_client(mut command: Command) -> Value {
    let output = deadline("a client's program", command.kill_on_drop(true).output()).await.unwrap();
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{shown}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| panic!("{fault}: {output:?}"))
}

fn refusal(class: &str, status: u16, code: &str, kind: &str) -> Value {
    json!({"class": class, "status": status, "code": code, "type": kind})
}

/// Checks the findings of both clients of OpenAI.
fn check_found(found: &Value) {
    const TEXT: &str = "Hello! I am here.";
    let models = found["models"].as_array().unwrap();
    assert!(models.contains(&json!("daoyou")) && models.contains(&json!("scripted/scripted")), "{models:?}");
    for (key, expected) in [
        ("plain", json!([TEXT, "stop", 25])),
        ("stream", json!([TEXT, true, 25])),
        ("helper", json!(TEXT)),
        ("image", json!(TEXT)),
        ("session", json!("Ann")),
        ("response", json!([TEXT, "completed", 25])),
        ("response_helper", json!(TEXT)),
        ("repeated", json!("at last")),
    ] {
        assert_eq!(found[key], expected, "{key}");
    }
    let events = [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.completed",
    ];
    assert_eq!(found["events"], json!(events));
    let refused = &found["refused"];
    let invalid = "invalid_request_error";
    assert_eq!(refused["model"], refusal("NotFoundError", 404, "model_not_found", invalid));
    assert_eq!(refused["tools"], refusal("BadRequestError", 400, "unsupported", invalid));
    assert_eq!(refused["token"], refusal("AuthenticationError", 401, "unauthorized", "authentication_error"));
    assert_eq!(refused["failed"]["class"], "UnprocessableEntityError", "{refused}");
    assert_eq!(refused["failed"]["type"], invalid);
    assert_eq!(refused["failed_stream"]["class"], "APIError", "{refused}");
    assert_eq!(refused["failed_stream"]["code"], refused["failed"]["code"]);
}

/// Checks that repeated attempts and failed turns became one message each.
async fn check_messages(gateway: &Gateway, model: &Model) {
    wait_settled(&gateway.database()).await;
    assert_eq!(model.requests_about("slowly").len(), 1, "one message, whatever a client repeats");
    block_in_place(|| check(&gateway.database(), &Witness::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_client_for_python_works() {
    // The program llm includes OpenAI's client.
    if is_missing("llm", "llm") {
        return;
    }
    let python = find("llm").unwrap().canonicalize().unwrap().with_file_name("python3");
    let model = model_for_clients().await;
    let gateway = Gateway::start(Setup::new().model(&model).set("providers.scripted.images", true)).await;
    let mut command = Command::new(python);
    command.arg(program("client.py")).args([gateway.url("/v1"), gateway.token(), PNG.to_owned()]);
    let found = run_client(command).await;
    check_found(&found);
    assert_eq!(found["event_text"], json!(["Hello! I am here.", "Hello! I am here."]));
    assert_eq!(found["previous"], json!(["Ann", true]));
    let refused = &found["refused"];
    assert_eq!(refused["many"], refusal("BadRequestError", 400, "unsupported", "invalid_request_error"));
    assert_eq!(refused["embeddings"], refusal("NotFoundError", 404, "not_found", "invalid_request_error"));
    assert_eq!(refused["failed_response_stream"], "response.failed");
    check_messages(&gateway, &model).await;
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openai_api").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_client_for_node_works() {
    // The folder into which `cargo xtask test` installs the library.
    let library = "/usr/local/lib/daoyou-test-programs/lib/node_modules/openai/index.mjs";
    if is_missing("node", "npm") || is_missing(library, "openai") {
        return;
    }
    let model = model_for_clients().await;
    let gateway = Gateway::start(Setup::new().model(&model).set("providers.scripted.images", true)).await;
    let mut command = Command::new("node");
    command.arg(program("client.mjs")).arg(library).args([gateway.url("/v1"), gateway.token(), PNG.to_owned()]);
    check_found(&run_client(command).await);
    check_messages(&gateway, &model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_llm_works() {
    if is_missing("llm", "llm") {
        return;
    }
    let model = model_for_clients().await;
    let gateway = Gateway::start(Setup::new().model(&model).set("providers.scripted.images", true)).await;
    let home = tempfile::tempdir().unwrap();
    let entry = format!(
        "- model_id: daoyou\n  model_name: daoyou\n  api_base: {}\n  api_key_name: daoyou\n  vision: true\n",
        gateway.url("/v1")
    );
    std::fs::write(home.path().join("extra-openai-models.yaml"), entry).unwrap();
    let image = home.path().join("dot.png");
    std::fs::write(&image, base64_decode(PNG)).unwrap();
    let llm = async |arguments: &[&str]| {
        let mut command = Command::new("llm");
        command.env("LLM_USER_PATH", home.path()).env("HOME", home.path()).args(arguments).kill_on_drop(true);
        let output = deadline("llm", command.output()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    assert!(llm(&["keys", "set", "daoyou", "--value", &gateway.token()]).await.0);
    let hello = |text: &str| (true, text.to_owned(), String::new());
    assert_eq!(llm(&["-m", "daoyou", "hello"]).await, hello("Hello! I am here."));
    assert_eq!(llm(&["-m", "daoyou", "--no-stream", "hello"]).await, hello("Hello! I am here."));
    let attached = llm(&["-m", "daoyou", "hello image", "-a", image.to_str().unwrap()]).await;
    assert_eq!(attached, hello("Hello! I am here."));
    assert!(model.requests().last().unwrap().to_string().contains(PNG));
    // llm keeps the conversation itself and sends it with each message.
    assert!(llm(&["-m", "daoyou", "my name is Ann"]).await.0);
    assert_eq!(llm(&["-c", "-m", "daoyou", "who am I?"]).await, hello("Ann"));
    let (is_fine, _, error) = llm(&["-m", "daoyou", "fail"]).await;
    assert!(!is_fine && !error.contains("Traceback"), "{error}");
}

fn base64_decode(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

/// Open WebUI sends the chat as a stream, and titles, tags and follow-ups as separate tasks, with its own fields.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_open_webui_are_answered() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let with_headers = |body: &Value| {
        let request = post(&gateway, body).header("x-openwebui-chat-id", "c0ffee").header("accept", "*/*");
        request.header("x-openwebui-user-name", "Ann").header("http-referer", "https://openwebui.com/")
    };
    let chat = json!({
        "stream": true,
        "stream_options": {"include_usage": true},
        "model": "daoyou",
        "messages": [
            {"role": "system", "content": "User Context:\n\n"},
            user("hello"),
            {"role": "assistant", "content": "<details type=\"reasoning\" done=\"true\">\n> hm\n</details>\necho: hello"},
            user("and now?"),
        ],
        "files": [], "features": {"web_search": false}, "params": {}, "chat_id": "c0ffee", "id": "1",
        "session_id": "s", "background_tasks": {"title_generation": true, "tags_generation": true},
        "metadata": {"user_id": "u", "chat_id": "c0ffee"},
    });
    let events = events(with_headers(&chat)).await;
    assert_eq!(joined(&events, "content"), "echo: and now?");
    assert!(events.last().unwrap()["usage"]["total_tokens"].as_u64() > Some(0));
    let task = "### Task:\nGenerate a concise, 3-5 word title.\n### Chat History:\n<chat_history>\nUSER: hello\n</chat_history>";
    for (kind, tokens) in [("title_generation", "max_completion_tokens"), ("tags_generation", "max_tokens")] {
        let mut body = json!({
            "model": "daoyou", "messages": [user(task)], "stream": false,
            "metadata": {"task": kind, "task_body": {"chat_id": "c0ffee"}, "chat_id": "c0ffee"},
        });
        body[tokens] = json!(1000);
        assert_eq!(text(with_headers(&body)).await, format!("echo: {task}"));
    }
    let get = http_client().get(gateway.url("/v1/models")).bearer_auth(gateway.token());
    assert!(answer(get).await.1["data"].as_array().unwrap().iter().all(|model| model["id"].is_string()));
}
