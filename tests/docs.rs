//! Tests the documentation: its commands work, its settings are valid, and its links lead somewhere.
//!
//! A fenced block whose language is followed by `test` runs, in the order of its chapter, in one home without a model: `sh
//! test` runs in bash, `sh test gateway` runs while a gateway runs, and `toml test` is appended to config.toml. `toml
//! check` is only checked. A line `# → TEXT` gives the expected output of the block.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::support::gateway::binary;
use crate::support::requirements::is_missing;
use crate::support::{Gateway, Setup, deadline};

/// The address that the documentation uses.
const DOCUMENTED: &str = "127.0.0.1:18790";

/// A block of code that is tested.
struct CodeBlock {
    /// The language line, such as `sh test gateway`.
    kind: String,
    text: String,
    line: usize,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the Markdown files of a folder, by name.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    files.sort();
    files
}

fn blocks(text: &str) -> Vec<CodeBlock> {
    let mut found: Vec<CodeBlock> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), is_open) {
            (Some(kind), false) => {
                found.push(CodeBlock { kind: kind.trim().to_owned(), text: String::new(), line: at + 1 });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => found.last_mut().unwrap().text += &format!("{line}\n"),
            (None, false) => {}
        }
    }
    assert!(!is_open, "a block without an end");
    found
}

/// The home in which a chapter runs.
struct Chapter {
    gateway: Gateway,
    /// True if the running gateway has another configuration.
    is_stale: bool,
    runs: bool,
}

impl Chapter {
    fn new(language: &str) -> Self {
        let mut gateway = Gateway::new(Setup::new().env("LANG", language).env("TZ", "Europe/Berlin"));
        let address = gateway.address();
        gateway.setup().env.insert("DAOYOU_GATEWAY__LISTEN".to_owned(), address);
        let home = gateway.home();
        fs::create_dir(&home).unwrap();
        fs::write(home.join("config.toml"), "").unwrap();
        // The documentation assumes the usual home, and the program in the PATH.
        let user = home.parent().unwrap();
        symlink(&home, user.join(".daoyou")).unwrap();
        fs::create_dir(user.join("bin")).unwrap();
        symlink(binary(), user.join("bin/daoyou")).unwrap();
        Self { gateway, is_stale: false, runs: false }
    }

    async fn run(&mut self, block: &CodeBlock) {
        match block.kind.as_str() {
            "toml test" => self.add(&block.text),
            "toml check" => check(&block.text).await,
            "sh test" => self.shell(&block.text).await,
            "sh test gateway" => {
                self.start().await;
                self.shell(&block.text).await;
            }
            other => assert!(!other.contains(" test") && !other.contains(" check"), "{other:?} is not known"),
        }
    }

    fn add(&mut self, settings: &str) {
        let path = self.gateway.home().join("config.toml");
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{before}{settings}\n")).unwrap();
        self.is_stale = true;
    }

    async fn start(&mut self) {
        if self.runs && self.is_stale {
            self.stop().await;
        }
        if !self.runs {
            self.gateway.launch();
            self.gateway.wait_ready().await;
            (self.runs, self.is_stale) = (true, false);
        }
    }

    async fn stop(&mut self) {
        if self.runs {
            self.gateway.stop().await;
            self.runs = false;
        }
    }

    async fn shell(&self, script: &str) {
        let mut command = Command::new("bash");
        let shaped = self.gateway.command(&[]);
        command.env_clear();
        for (name, value) in shaped.as_std().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let user = self.gateway.home().parent().unwrap().to_owned();
        let path = std::env::var("PATH").unwrap();
        command.env_remove("DAOYOU_HOME").env("PATH", format!("{}:{path}", user.join("bin").display()));
        let text = script.replace(DOCUMENTED, &self.gateway.address());
        command.args(["-euo", "pipefail", "-c", &text]).current_dir(user).kill_on_drop(true);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = deadline(script, child.wait_with_output()).await.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}\n{printed}{}", String::from_utf8_lossy(&output.stderr));
        for expected in script.lines().filter_map(|line| line.strip_prefix("# → ")) {
            assert!(printed.contains(expected), "{script}\nprinted no {expected:?}:\n{printed}");
        }
    }
}

/// Checks settings in a separate home that has all of their secrets.
async fn check(settings: &str) {
    let gateway = Gateway::new(Setup::new());
    fs::create_dir(gateway.home()).unwrap();
    for file in settings.split("\"file:").skip(1).filter_map(|rest| rest.split('"').next()) {
        fs::write(gateway.home().join(file), "a secret").unwrap();
    }
    fs::write(gateway.home().join("config.toml"), settings).unwrap();
    let output = gateway.command(&["config", "check"]).output().await.unwrap();
    assert!(output.status.success(), "{settings}\n{}", String::from_utf8_lossy(&output.stderr));
}

async fn try_chapters(folder: &str, language: &str) {
    if is_missing("curl", "curl") || is_missing("openssl", "openssl") {
        return;
    }
    let mut tried = 0;
    for path in markdown(folder) {
        let blocks = blocks(&fs::read_to_string(&path).unwrap());
        let mut chapter = Chapter::new(language);
        for block in &blocks {
            let is_tested = block.kind.contains(" test") || block.kind.contains(" check");
            println!("{}:{}: {}", path.display(), block.line, block.kind);
            chapter.run(block).await;
            tried += usize::from(is_tested);
        }
        chapter.stop().await;
    }
    assert!(tried >= 10, "{folder}: {tried} blocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_chapters_work() {
    try_chapters("docs", "C.UTF-8").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_chinese_chapters_work() {
    try_chapters("docs/zh-CN", "zh_CN.UTF-8").await;
}

/// Returns the text without code blocks, in which brackets are not links.
fn prose(text: &str) -> String {
    let mut is_open = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_open ^= is_fence;
        !is_open && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    links.map(|(link, _)| link.to_owned()).filter(|link| !link.contains("://") && !link.contains(' ')).collect()
}

/// Returns the anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for path in [".", "docs", "docs/zh-CN", "systemd"].into_iter().flat_map(markdown) {
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let is_good = match fs::read_to_string(&target) {
                Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                Err(_) => target.is_dir() && anchor.is_empty(),
            };
            if !is_good {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_summary_has_every_chapter_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    listed.sort();
    let chapters = ["docs", "docs/zh-CN"].into_iter().flat_map(markdown);
    let chapters = chapters.map(|path| path.strip_prefix(root().join("docs")).unwrap().display().to_string());
    let mut chapters: Vec<_> = chapters.filter(|name| name != "SUMMARY.md").collect();
    chapters.sort();
    assert_eq!(listed, chapters);
}
