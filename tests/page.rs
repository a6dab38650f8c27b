//! The page in a real browser. Each story is a script in `page/` that drives Chromium against a gateway. For actions that
//! only this side can perform, such as killing the gateway, the script prints a line on its standard output.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::support::requirements::{is_missing, skip_story};
use crate::support::{Gate, Gateway, Model, Reply, Setup, deadline};

/// An answer with all features of Markdown.
const ANSWER: &str = include_str!("page/answer.md");
/// Text that an attacker could make a model write.
const HOSTILE: &str = include_str!("page/hostile.md");
/// The time limit of a story. A browser starts slowly on a busy machine, and some stories visit all views several times.
const STORY_LIMIT: Duration = Duration::from_secs(200);

/// Returns the folder of the packages that npm installed for all users; if a requirement is missing, skips the story.
async fn packages() -> Option<PathBuf> {
    let npm = "playwright-core axe-core";
    let programs = [("node", "nodejs"), ("npm", "npm"), ("chromium", "chromium"), ("playwright-core", npm)];
    if programs.iter().any(|(program, package)| is_missing(program, package)) {
        return None;
    }
    let asked = Command::new("npm").args(["root", "--global"]).output();
    let folder = deadline("npm root", asked).await.expect("npm starts").stdout;
    let folder = PathBuf::from(String::from_utf8_lossy(&folder).trim());
    if !folder.join("axe-core").is_dir() {
        skip_story("there is no axe-core (package axe-core)");
        return None;
    }
    Some(folder)
}

/// Starts a model with the answers that the scripts expect; it echoes all other messages. Answers in steps stand still at `steps`.
async fn scripted_model(steps: &Gate) -> Model {
    let model = Model::start().await;
    let look = Reply::tool("list_dir", &json!({"path": "."})).and_tool("read_file", &json!({"path": "AGENTS.md"}));
    let look = look.saying("Let me look.").reasoning("I will look at two things at once.");
    let streamed = |text: &str| Reply::text(text).chunk_delay(Duration::from_millis(20));
    model.on("look around", [look.clone(), streamed(ANSWER)]);
    model.on("look in steps", [look, streamed(ANSWER).stalls_after(8, steps).stalls_after(20, steps)]);
    let run = Reply::tool("exec", &json!({"command": "echo hello"})).saying("I will run it.");
    model.on("run a command", [run, Reply::text("The command is settled.")]);
    // Blanks that would move the second command out of the card.
    let hidden = format!("echo safe{}; id > evil\u{202e}", "\u{a0}".repeat(3_000));
    model.on("hide it", [Reply::tool("exec", &json!({"command": hidden})), Reply::text("It is settled.")]);
    let numbers = json!({"question": "How many doors?", "options": [3, 1, 2]});
    let twice =
        Reply::tool("ask_user", &numbers).and_tool("ask_user", &json!({"question": "Sure?", "options": ["Yes"]}));
    model.on("ask twice", [twice, Reply::text("Both are answered.")]);
    let options = ["Green", "Blue", "Leave it as it is"];
    let ask = Reply::tool("ask_user", &json!({"question": "Which colour shall the door have?", "options": options}));
    model.on("ask me", [ask, Reply::text("The door is painted.")]);
    let paragraph =
        |number| format!("Paragraph {number}. The quick brown fox jumps over the lazy dog, and rests in the shade.");
    let paragraphs: Vec<_> = (1..=40).map(paragraph).collect();
    let paragraphs = streamed(&paragraphs.join("\n\n"));
    model.on("slow", [paragraphs.clone()]);
    // The steps end within paragraphs 13, 15 and 18.
    let in_steps = paragraphs.stalls_after(66, steps).stalls_after(78, steps).stalls_after(90, steps);
    model.on("slow in steps", [in_steps]);
    model.on("hostile", [Reply::text(HOSTILE).chunk_chars(200)]);
    model
}

/// Runs a script to its end and performs the actions that it requests.
async fn run(script: &str) {
    let Some(packages) = packages().await else { return };
    let steps = Gate::new();
    let model = scripted_model(&steps).await;
    let setup = Setup::new().model(&model).set("approval.tools.exec", "always");
    let mut gateway = Gateway::start(setup).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(format!("{script}.mjs"));
    let mut command = Command::new("node");
    command.arg(file).env("NODE_PATH", packages).env("DAOYOU_PAGE_URL", gateway.url(""));
    command.env("DAOYOU_PAGE_TOKEN", gateway.token()).kill_on_drop(true);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("node starts");
    let mut orders = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let story = async {
        while let Some(order) = lines.next_line().await.expect("text") {
            match order.as_str() {
                "kill" => gateway.kill9().await,
                "start" => gateway.up().await,
                "continue" => steps.release(1),
                other => panic!("{script} asks for {other:?}"),
            }
            orders.write_all(b"done\n").await.expect("the script reads on");
        }
        child.wait_with_output().await.expect("our own child")
    };
    let output = tokio::time::timeout(STORY_LIMIT, story).await;
    let output = output.unwrap_or_else(|_| panic!("{script} did not end within {STORY_LIMIT:?}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_visit_asks_for_the_token() {
    run("login").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_streams_and_can_be_stopped_renamed_forked_and_deleted() {
    run("chat").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_and_questions_are_cards() {
    run("approval").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_by_button_paste_and_drag() {
    run("upload").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_reconnects_and_shows_what_it_missed() {
    run("reconnect").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_view_is_wider_than_a_phone() {
    run("narrow").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_theme_follows_the_system_or_a_choice() {
    run("dark").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_speaks_chinese() {
    run("chinese").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_reaches_everything() {
    run("keyboard").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn axe_finds_nothing_serious() {
    run("axe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_answers_stay_text() {
    run("hostile").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_lags_or_dies_loses_and_repeats_nothing() {
    run("stream").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tabs_show_the_same_conversation() {
    run("tabs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn named_tokens_see_and_do_what_their_scope_allows() {
    run("scopes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_view_shows_its_data_and_performs_its_actions() {
    run("views").await;
}
