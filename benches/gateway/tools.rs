//! Measures tools that a scripted model calls in a turn: a search of a large tree compared with `rg`, a map of code, a page
//! of a large file, a web page, and the first request by its parts. The times are those of the whole turn.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::processes::peak_bytes;
use super::support::web::{Page, Web};
use super::support::{Gateway, Model, Reply, Setup};

const RUNS: usize = 5;
const FOLDERS: usize = 1_000;
const FILES_A_FOLDER: usize = 100;
/// Lines of each file of the tree, and how many files have a match.
const LINES: usize = 20;
const MATCHES: usize = 20;
/// The lines of the large file, 100 bytes each.
const LARGE_LINES: usize = 10_000_000;
/// The modules of the code base, their folders, and the classes of each.
const CODE_FILES: usize = 5_000;
const CODE_FOLDERS: usize = 50;
const CODE_PARTS: usize = 12;
const PAGE_BYTES: usize = 1_000_000;
const PATTERN: &str = "needle_[0-9]+";

/// Prints a section of Markdown.
#[expect(clippy::print_stdout, reason = "the bench's output")]
pub async fn tools() {
    let web = Web::start().await;
    let model = Model::start().await;
    model.script(|asked| {
        Some(match asked.results.last() {
            None => asked.user.split_once('|').map_or_else(
                || Reply::text("echo"),
                |(name, arguments)| {
                    let arguments = arguments.lines().next().unwrap_or_default();
                    Reply::tool(name, &serde_json::from_str(arguments).expect("a call of the bench"))
                },
            ),
            Some(result) => Reply::text(result.as_str()),
        })
    });
    let setup = Setup::scripted(&model).set("log.level", "warn");
    let gateway = Gateway::start(setup.set("tools.web.allow_private", vec!["127.0.0.1"])).await;
    let workspace = gateway.workspace();
    make_tree(&workspace.join("tree"));
    make_large(&workspace.join("large.txt"));
    println!("A turn that calls one tool, {RUNS} runs, median (least–most); the page cache is warm.\n");
    println!("| what | this | beside it | resident at most |\n|---|---|---|---|");
    let bench = ToolBench { gateway: &gateway, chats: std::cell::Cell::new(0) };
    let files = FOLDERS * FILES_A_FOLDER;
    let search = json!({"pattern": PATTERN, "path": "tree"});
    let rg = ["--line-number", "--no-heading", PATTERN, "tree"];
    bench.row("a turn without a tool", "", &Value::Null, &[], &workspace, "").await;
    bench.row(&format!("grep, {files} files"), "grep", &search, &rg, &workspace, "needle_7").await;
    let list = json!({"pattern": "**/*_7.txt", "path": "tree"});
    let rg = ["--files", "--glob", "**/*_7.txt", "tree"];
    bench.row(&format!("glob, {files} files"), "glob", &list, &rg, &workspace, "_7.txt").await;
    code_maps(&bench, &workspace).await;
    let first = json!({"path": "large.txt", "offset": 1});
    bench.row("read_file, the first page of 1 GB", "read_file", &first, &[], &workspace, "line 1 ").await;
    let middle = json!({"path": "large.txt", "offset": LARGE_LINES / 2});
    bench.row("read_file, a page in the middle of 1 GB", "read_file", &middle, &[], &workspace, "line 5000").await;
    for run in 0..=RUNS {
        web.put(&format!("/page-{run}"), Page::html(&html()).header("cache-control", "no-store"));
    }
    let url = json!({"url": web.url("/page-0")});
    bench.row("web_fetch, 1 MB of HTML", "web_fetch", &url, &[], &workspace, "paragraph").await;
    println!("\n{}", first_request(&gateway).await);
}

/// Prints the rows of `repo_map`. Each run of the first row is without a cache.
#[expect(clippy::print_stdout, reason = "the bench's output")]
async fn code_maps(bench: &ToolBench<'_>, workspace: &Path) {
    make_code(&workspace.join("code"));
    let map = json!({"path": "code", "files": ["package_1/module_7.py"]});
    let text = format!("repo_map|{map}");
    let mut cold = Vec::new();
    for run in 0..RUNS {
        // The cache has a file for each version of a content, so the files differ in each run.
        for file in 0..CODE_FILES {
            let mut module =
                fs::File::options().append(true).open(code_path(&workspace.join("code"), file)).expect("a module");
            writeln!(module, "# {run}").expect("a module");
        }
        let begun = Instant::now();
        let reply = bench.gateway.ask("in", &format!("map-{run}"), &text).await;
        cold.push(begun.elapsed());
        assert!(reply.contains("# Code map"), "{reply}");
    }
    let peak = peak_bytes(bench.gateway.pid()) as f64 / 1e6;
    println!("| repo_map, {CODE_FILES} files, none in the cache | {} | | {peak:.1} MB |", spread(&mut cold));
    bench
        .row(&format!("repo_map, {CODE_FILES} files, all in the cache"), "repo_map", &map, &[], workspace, "# Code map")
        .await;
    let search = json!({"pattern": "handle_7($A)", "lang": "python", "path": "code"});
    bench
        .row(&format!("ast_grep_search, {CODE_FILES} files"), "ast_grep_search", &search, &[], workspace, "handle_7(")
        .await;
}

fn code_path(code: &Path, file: usize) -> std::path::PathBuf {
    code.join(format!("package_{}/module_{file}.py", file % CODE_FOLDERS))
}

/// Writes Python modules that use each other.
fn make_code(code: &Path) {
    for folder in 0..CODE_FOLDERS {
        fs::create_dir_all(code.join(format!("package_{folder}"))).expect("a folder of code");
    }
    for file in 0..CODE_FILES {
        let used = file * 7 % CODE_FILES;
        let mut module = format!("from module_{used} import Service{used}, handle_{used}\n\n\n");
        for part in 0..CODE_PARTS {
            module.push_str(&format!(
                "class Service{file}Part{part}(Service{used}):\n    def run_{part}(self, request):\n        \
                 value = handle_{used}(request)\n        return self.finish_{part}(value, {part})\n\n\n"
            ));
        }
        module.push_str(&format!(
            "class Service{file}:\n    pass\n\n\ndef handle_{file}(request):\n    return request\n"
        ));
        fs::write(code_path(code, file), module).expect("a module");
    }
}

/// Calls tools through turns of one gateway.
struct ToolBench<'a> {
    gateway: &'a Gateway,
    chats: std::cell::Cell<usize>,
}

impl ToolBench<'_> {
    /// Prints the row of one call, which alternates with an equivalent `rg` command if there is one. Each result must contain `expected`.
    #[expect(clippy::print_stdout, reason = "the bench's output")]
    async fn row(&self, what: &str, tool: &str, arguments: &Value, rg: &[&str], folder: &Path, expected: &str) {
        let text = if tool.is_empty() { "hello".to_owned() } else { format!("{tool}|{arguments}") };
        let (mut measured, mut references) = (Vec::new(), Vec::new());
        // The first run warms the page cache.
        for run in 0..=RUNS {
            let chat = format!("chat-{}", self.chats.replace(self.chats.get() + 1));
            let begun = Instant::now();
            let reply = self.gateway.ask("in", &chat, &text).await;
            let took = begun.elapsed();
            assert!(reply.contains(expected), "{what}: {reply}");
            let reference = if rg.is_empty() { None } else { time_rg(rg, folder) };
            if run > 0 {
                measured.push(took);
                references.extend(reference);
            }
        }
        let peak = peak_bytes(self.gateway.pid()) as f64 / 1e6;
        let reference = if references.is_empty() { String::new() } else { format!("rg {}", spread(&mut references)) };
        println!("| {what} | {} | {reference} | {peak:.1} MB |", spread(&mut measured));
    }
}

/// Returns how long `rg` takes; `None` if it is not installed.
fn time_rg(arguments: &[&str], folder: &Path) -> Option<Duration> {
    let begun = Instant::now();
    let output = Command::new("rg").args(arguments).current_dir(folder).output().ok()?;
    assert!(output.status.success(), "rg finds the same");
    Some(begun.elapsed())
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    let (least, median, most) = (times.first(), times.get(times.len() / 2), times.last());
    let [least, median, most] = [least, median, most].map(|time| time.map_or(0.0, ms));
    format!("{median:.1} ms ({least:.1}–{most:.1})")
}

fn make_tree(tree: &Path) {
    let mut made = 0;
    for folder in 0..FOLDERS {
        let folder = tree.join(format!("folder_{folder}"));
        fs::create_dir_all(&folder).expect("a folder of the tree");
        for file in 0..FILES_A_FOLDER {
            let mut text: String =
                (0..LINES).map(|line| format!("line {line} of a file without what is wanted\n")).collect();
            if made % (FOLDERS * FILES_A_FOLDER / MATCHES) == 7 {
                text.push_str(&format!("needle_{made}\n"));
            }
            fs::write(folder.join(format!("file_{file}.txt")), text).expect("a file of the tree");
            made += 1;
        }
    }
}

fn make_large(path: &Path) {
    let mut file = BufWriter::new(fs::File::create(path).expect("the large file"));
    for line in 1..=LARGE_LINES {
        writeln!(file, "{:-<99}", format!("line {line} ")).expect("the large file");
    }
    file.flush().expect("the large file");
}

fn html() -> String {
    let paragraph = "<p>A <b>paragraph</b> of some text with <a href=\"/else\">a link</a>, as a page has them.</p>\n";
    format!(
        "<html><head><title>T</title></head><body><article>{}</article></body></html>",
        paragraph.repeat(PAGE_BYTES / paragraph.len())
    )
}

/// Returns the table with the parts of a new agent's first request.
async fn first_request(gateway: &Gateway) -> String {
    let prompt = gateway.json(&["prompt", "--session", "cli:new"]).await;
    let mut table = format!(
        "The first request of a new conversation: {} bytes, {} tokens.\n\n| part | bytes | tokens |\n|---|---|---|\n",
        prompt["bytes"], prompt["tokens"]
    );
    for part in prompt["parts"].as_array().into_iter().flatten() {
        table.push_str(&format!(
            "| {} | {} | {} |\n",
            part["name"].as_str().unwrap_or_default(),
            part["bytes"],
            part["tokens"]
        ));
    }
    table
}
