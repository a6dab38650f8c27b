//! Workspace content that leads elsewhere: links, pipes, devices and mounts in place of files that the gateway reads, files
//! that change while they are sent, and folders of other conversations. Also: who may use the home.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, mknodat};
use serde_json::{Value, json};

use crate::support::mail::{Dovecot, Smtp};
use crate::support::requirements::{bubblewrap_is_missing, find, is_root, skip_story};
use crate::support::swapper::Swapper;
use crate::support::{Gateway, Hook, Model, Setup, until};

const CANARY: &str = "canary-5c1e";
/// The time limit of a turn, whatever the workspace contains, and however busy the machine is.
const LIMIT: Duration = Duration::from_secs(30);
/// The files that the gateway reads for every sender.
const READ: [&str; 5] = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "skills/brew/SKILL.md"];
/// The id of another user of this machine; no such account needs to exist.
const OTHER_USER: u32 = 1001;

/// A gateway whose model calls the tools that a message names, one at a time, and repeats their results.
struct Harness {
    model: Model,
    gateway: Gateway,
}

impl Harness {
    async fn start(setup: Setup) -> Self {
        let model = Model::start().await;
        model.call_named_tools();
        let gateway = Gateway::start(setup.model(&model).hook(Hook::bearer("in"))).await;
        let memory = gateway.workspace().join("memory");
        // Not a bullet: a bullet would be a fact, which other senders may learn.
        fs::write(memory.join("MEMORY.md"), format!("# Memory\n\nThe PIN is {CANARY}.\n")).unwrap();
        Self { model, gateway }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.gateway.workspace().join(path)
    }

    /// Returns the reply to a message of this trust in this chat.
    async fn reply_to(&self, trust: &str, chat: &str, content: &str) -> String {
        let message = json!({
            "channel": "webhook:in", "external_id": uuid::Uuid::new_v4(), "chat_id": chat, "sender": trust, "trust": trust,
            "content": content, "attachments": [], "received_at": jiff::Timestamp::now(),
        });
        let gateway = &self.gateway;
        let begun = Instant::now();
        let id = gateway.deliver(&message).await;
        let done = gateway.wait_done("in", &id).await;
        assert!(begun.elapsed() < LIMIT, "{content} took {:?}", begun.elapsed());
        done.text("reply").to_owned()
    }

    /// Returns the results of the calls of one turn.
    async fn calls(&self, trust: &str, chat: &str, calls: &[(&str, Value)]) -> Vec<String> {
        let reply = self.reply_to(trust, chat, &json!(calls).to_string()).await;
        serde_json::from_str(&reply).unwrap_or_else(|_| panic!("{calls:?}: {reply}"))
    }

    /// Asserts that no request contained any text of the memory.
    fn assert_kept(&self, after: &str) {
        let asked = json!(self.model.requests()).to_string();
        assert!(!asked.contains(CANARY), "{after}: the memory was sent to the model");
    }

    async fn doctor(&self) -> String {
        self.gateway.run(&["doctor", "--json"]).await.stdout
    }
}

/// An attack: replaces a file with something that leads to the memory, hangs, or has no end.
type FileAttack = (&'static str, fn(&Path, &Path));

const FILE_ATTACKS: [FileAttack; 8] = [
    ("a link to the memory", |path, memory| symlink(memory, path).unwrap()),
    ("a hard link to the memory", |path, memory| fs::hard_link(memory, path).unwrap()),
    ("a link to /dev/zero", |path, _| symlink("/dev/zero", path).unwrap()),
    ("a pipe", |path, _| mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap()),
    ("a folder", |path, _| fs::create_dir(path).unwrap()),
    ("10 GB", |path, _| fs::File::create(path).unwrap().set_len(10_000_000_000).unwrap()),
    ("a link to itself", |path, _| symlink(path.file_name().unwrap(), path).unwrap()),
    ("a link to nowhere", |path, _| symlink("/nowhere/at/all", path).unwrap()),
];

/// Whatever replaces the files of the prompt, turns of untrusted and known senders are answered at once and without the
/// memory. Log and doctor name the file.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_prompt_files_neither_leak_memory_nor_hang() {
    let harness = Harness::start(Setup::new()).await;
    let memory = fs::canonicalize(harness.at("memory/MEMORY.md")).unwrap();
    for (attack, lay) in FILE_ATTACKS {
        fs::create_dir_all(harness.at("skills/brew")).unwrap();
        for name in READ {
            let path = harness.at(name);
            match path.symlink_metadata() {
                Ok(found) if found.is_dir() => fs::remove_dir(&path).unwrap(),
                Ok(_) => fs::remove_file(&path).unwrap(),
                Err(_) => {}
            }
            lay(&path, &memory);
        }
        for trust in ["untrusted", "known"] {
            harness.reply_to(trust, trust, &format!("hello with {attack}")).await;
            harness.reply_to(trust, trust, "/skills").await;
            harness.assert_kept(attack);
        }
        let doctor = harness.doctor().await;
        for name in READ {
            let is_skill = name.ends_with("SKILL.md");
            let text = if is_skill { format!("{name}: ") } else { format!("it is not read: {name}") };
            assert!(doctor.contains(&text), "{attack}, {name}: {doctor}");
        }
    }
    let logs = harness.gateway.logs();
    for words in ["AGENTS.md: is a link", "AGENTS.md: has more than one name", "AGENTS.md: is not a regular file"] {
        assert!(logs.contains(words), "{words}: {logs}");
    }
    assert!(logs.contains("is left out of the system prompt") && logs.contains("a skill has a problem"));
}

/// Pipes replace other files and folders that the gateway reads or writes: the memory files, the skills folder, ignore
/// rules. Nothing waits for the other end of a pipe.
#[tokio::test(flavor = "multi_thread")]
async fn pipes_in_place_of_memory_skills_and_ignore_rules_never_block() {
    let mut harness = Harness::start(Setup::new()).await;
    let names = ["memory/MEMORY.md", "memory/HISTORY.md", "skills", ".gitignore", ".ignore", ".daoyou-template"];
    for round in ["running", "restarted"] {
        for name in names {
            let path = harness.at(name);
            if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                fs::remove_dir_all(&path).unwrap();
            } else if path.symlink_metadata().is_ok() {
                fs::remove_file(&path).unwrap();
            }
            mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        }
        if round == "restarted" {
            harness.gateway.stop().await;
            harness.gateway.up().await;
        }
        for trust in ["owner", "known", "untrusted"] {
            harness.reply_to(trust, trust, "hello").await;
            harness.reply_to(trust, trust, "/skills").await;
        }
        let calls = [
            ("remember", json!({"content": format!("The gate is {round}.")})),
            ("grep", json!({"pattern": "."})),
            ("glob", json!({"pattern": "**"})),
            ("list_dir", json!({})),
            ("repo_structure", json!({})),
            ("repo_map", json!({})),
        ];
        let results = harness.calls("owner", "mine", &calls).await;
        assert!(results[0].contains("The gate is") && results[1].contains("special"), "{results:?}");
        assert!(harness.doctor().await.contains("memory"), "{round}");
        for name in names {
            let found = harness.at(name).symlink_metadata().unwrap().file_type();
            assert!(FileTypeExt::is_fifo(&found), "{round}: {name} was replaced");
        }
    }
}

/// A link behind a link: the folder of skills or of the memory leads elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn symlinked_skill_and_memory_folders_are_ignored() {
    let harness = Harness::start(Setup::new()).await;
    fs::remove_dir_all(harness.at("skills")).unwrap();
    fs::create_dir(harness.at("memory/brew")).unwrap();
    fs::write(harness.at("memory/brew/SKILL.md"), format!("---\nname: {CANARY}\n---\n")).unwrap();
    symlink("memory", harness.at("skills")).unwrap();
    let listed = harness.reply_to("known", "c", "/skills").await;
    assert!(!listed.contains(CANARY), "{listed}");
    fs::rename(harness.at("memory"), harness.at("notes")).unwrap();
    symlink("notes", harness.at("memory")).unwrap();
    let results = harness.calls("known", "c", &[("read_file", json!({"path": "memory/MEMORY.md"}))]).await;
    assert!(results[0].contains("off limits"), "{results:?}");
    let results = harness.calls("known", "c", &[("read_file", json!({"path": "notes/MEMORY.md"}))]).await;
    assert!(results[0].contains("off limits"), "{results:?}");
    assert!(harness.doctor().await.contains("memory is a link"), "{}", harness.doctor().await);
    harness.assert_kept("links to folders");
}

/// A mount that is removed when dropped.
struct Mount(PathBuf);

impl Mount {
    fn bind(from: &Path, to: &Path) -> Option<Self> {
        let done = Command::new("mount").arg("--bind").args([from, to]).output().ok()?;
        done.status.success().then(|| Self(to.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// The memory is mounted under another name: the whole folder, a part of it, and a single file.
#[tokio::test(flavor = "multi_thread")]
async fn mounting_the_memory_elsewhere_does_not_expose_it() {
    let harness = Harness::start(Setup::new()).await;
    fs::create_dir(harness.at("memory/old")).unwrap();
    fs::write(harness.at("memory/old/a.md"), CANARY).unwrap();
    for folder in ["pub", "part"] {
        fs::create_dir(harness.at(folder)).unwrap();
    }
    fs::write(harness.at("one.md"), "").unwrap();
    let binds =
        [("memory", "pub"), ("memory/old", "part"), ("memory/MEMORY.md", "one.md"), ("memory/MEMORY.md", "AGENTS.md")];
    let mounts: Option<Vec<_>> =
        binds.iter().map(|(from, to)| Mount::bind(&harness.at(from), &harness.at(to))).collect();
    let Some(_mounts) = mounts else {
        return skip_story("mounts over the workspace, which only root may make");
    };
    let calls = [
        ("read_file", json!({"path": "pub/MEMORY.md"})),
        ("list_dir", json!({"path": "pub"})),
        ("read_file", json!({"path": "part/a.md"})),
        ("list_dir", json!({"path": "part"})),
        ("read_file", json!({"path": "one.md"})),
        ("message", json!({"content": "here", "channel": "cli", "chat_id": "direct", "attachments": ["one.md"]})),
        ("write_file", json!({"path": "pub/new.md", "content": "mine"})),
    ];
    for (call, result) in calls.iter().zip(harness.calls("known", "c", &calls).await) {
        assert!(result.contains("off limits") || result.contains("on another mount"), "{call:?}: {result}");
    }
    assert!(!harness.at("memory/new.md").exists());
    harness.assert_kept("mounts");
    assert!(harness.gateway.logs().contains("AGENTS.md: lies on another mount"), "{}", harness.gateway.logs());
    // The owner's own turn may read it.
    let results = harness.calls("owner", "mine", &[("read_file", json!({"path": "pub/MEMORY.md"}))]).await;
    assert!(results[0].contains(CANARY), "{results:?}");
}

/// A file alternates between a harmless file and a link to the memory. Only the checked content is sent.
#[tokio::test(flavor = "multi_thread")]
async fn swapping_an_attachment_for_a_link_never_sends_the_memory() {
    const TIMES: usize = 50;
    let Some(dovecot) = Dovecot::start().await else { return };
    let smtp = Smtp::start().await;
    let harness = Harness::start(Setup::new().email(&dovecot, &smtp)).await;
    fs::write(harness.at("a.txt"), "innocent").unwrap();
    symlink("memory/MEMORY.md", harness.at("b.txt")).unwrap();
    let swapper = Swapper::start(harness.at("a.txt"), harness.at("b.txt"));
    let send = json!({"content": "here", "channel": "email", "chat_id": "ann@example.test", "attachments": ["a.txt"]});
    let calls: Vec<_> = (0..10).map(|_| ("message", send.clone())).collect();
    let mut sent = 0;
    for round in 0..TIMES / calls.len() {
        for text in harness.calls("known", &format!("c{round}"), &calls).await {
            assert!(!text.contains(CANARY), "{text}");
            sent += usize::from(text.contains("The message goes to"));
        }
    }
    let mails = smtp.wait_taken(sent).await;
    assert!(swapper.stop() > 1_000, "the race was none");
    assert!(sent > 0, "none went through");
    for taken in &mails {
        let files = taken.mail.attachments();
        assert_eq!(files, [("a.txt".to_owned(), b"innocent".to_vec())], "another file than was checked was sent");
    }
    // Sent files are copied to a place that commands cannot reach.
    let copies: Vec<_> =
        fs::read_dir(harness.gateway.home().join("outgoing")).unwrap().map(|copy| copy.unwrap().path()).collect();
    assert_eq!(copies.len(), 1);
    assert_eq!(fs::read(&copies[0]).unwrap(), b"innocent");
}

/// Returns the path of the file that a truncated output names.
fn spill_of(text: &str) -> String {
    let at = text.find(".daoyou/conversations/").unwrap_or_else(|| panic!("no spill: {text}"));
    text[at..].split([' ', ']', '\n']).next().unwrap_or_default().to_owned()
}

/// Long outputs belong to the conversation that produced them. The owner's outputs belong to the owner's turns, even in a shared chat.
#[tokio::test(flavor = "multi_thread")]
async fn spilled_outputs_are_readable_only_by_their_conversation() {
    if bubblewrap_is_missing() {
        return;
    }
    let harness = Harness::start(Setup::new()).await;
    let print = |what: &str| ("exec", json!({"command": format!("for i in $(seq 30000); do echo {what} $i; done")}));
    let own = spill_of(&harness.calls("known", "a", &[print("mine")]).await[0]);
    let other = spill_of(&harness.calls("known", "b", &[print("theirs")]).await[0]);
    let owners = spill_of(&harness.calls("owner", "a", &[print("owners")]).await[0]);
    let folder = |path: &str| Path::new(path).parent().unwrap().display().to_string();
    symlink(&other, harness.at("link.txt")).unwrap();
    let (owners_folder, other_folder) = (folder(&owners), folder(&other));
    let closed = [
        ("read_file", json!({"path": other})),
        ("read_file", json!({"path": owners})),
        ("read_file", json!({"path": "link.txt"})),
        (
            "read_file",
            json!({"path": format!("{}/../../../x/../{}", folder(&own), &other[".daoyou/conversations/".len()..])}),
        ),
        ("list_dir", json!({"path": other_folder})),
        ("list_dir", json!({"path": owners_folder})),
        ("list_dir", json!({"path": ".daoyou"})),
        ("list_dir", json!({"path": ".daoyou/conversations"})),
        ("list_dir", json!({"path": "memory"})),
        ("read_file", json!({"path": "memory/MEMORY.md"})),
        ("write_file", json!({"path": other, "content": "changed"})),
        ("edit_file", json!({"path": other, "old_text": "theirs 1\n", "new_text": "x"})),
        ("message", json!({"content": "here", "channel": "cli", "chat_id": "direct", "attachments": [other]})),
    ];
    // A command that names `.daoyou` taints its conversation, so it has one of its own.
    let command = ("exec", json!({"command": format!("cat {other} {owners} memory/MEMORY.md link.txt | head -c 100")}));
    let results =
        [harness.calls("known", "a", &closed).await, harness.calls("known", "c", std::slice::from_ref(&command)).await];
    for (call, result) in closed.iter().chain([&command]).zip(results.concat()) {
        let is_refused =
            ["off limits", "no such file", "No such file", "Exit code"].iter().any(|word| result.contains(word));
        assert!(is_refused, "{call:?}: {result}");
        assert!(["theirs", "owners 1", CANARY].iter().all(|word| !result.contains(word)), "{call:?}: {result}");
    }
    let open = [("read_file", json!({"path": own})), ("list_dir", json!({"path": folder(&own)}))];
    let results = harness.calls("known", "a", &open).await;
    assert!(results[0].contains("mine 1") && results[1].contains(".txt"), "{results:?}");
    let results = harness.calls("owner", "a", &[open[0].clone(), ("read_file", json!({"path": owners}))]).await;
    assert!(results[0].contains("mine 1") && results[1].contains("owners 1"), "{results:?}");
    assert!(!fs::read_to_string(harness.at(&other)).unwrap().contains("changed"));
    // A link in place of the folder is not followed; the output is truncated and not spilled.
    fs::remove_dir_all(harness.at(".daoyou")).unwrap();
    fs::create_dir(harness.at("elsewhere")).unwrap();
    symlink("elsewhere", harness.at(".daoyou")).unwrap();
    let results = harness.calls("known", "a", &[print("mine")]).await;
    assert!(results[0].contains("mine 1") && !results[0].contains(".daoyou/"), "{results:?}");
    assert_eq!(fs::read_dir(harness.at("elsewhere")).unwrap().count(), 0);
    assert!(harness.doctor().await.contains(".daoyou is a link"));
}

/// Sends a request to the control socket as another user, whatever the socket's mode.
fn ask_as(user: u32, socket: &Path) -> std::process::Output {
    use std::os::unix::process::CommandExt;

    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "10", "--unix-socket"])
        .arg(socket)
        .arg("http://localhost/api/sessions");
    curl.current_dir("/").env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    curl.uid(user).gid(user).output().expect("curl runs")
}

/// The kernel identifies the peer. Another user is refused although home and socket are open to all, and the log reports it.
#[tokio::test(flavor = "multi_thread")]
async fn the_control_socket_refuses_other_users() {
    if !is_root() || find("curl").is_none() {
        return skip_story("another user at the control socket, which needs root and curl");
    }
    let harness = Harness::start(Setup::new()).await;
    let (home, socket) = (harness.gateway.home(), harness.gateway.home().join("daoyou.sock"));
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(home.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let own = ask_as(0, &socket);
    assert!(own.status.success() && own.stdout.starts_with(b"["), "{own:?}");
    for _ in 0..5 {
        let other = ask_as(OTHER_USER, &socket);
        assert!(!other.status.success() && other.stdout.is_empty(), "{other:?}");
    }
    // File modes did not cause the refusal.
    let logs = harness.gateway.logs();
    assert_eq!(logs.matches("a connection to the control socket was closed").count(), 1, "{logs}");
    assert!(ask_as(0, &socket).status.success());
}

/// Returns the modes of everything in the home except the workspace.
fn modes(home: &Path) -> Vec<(String, u32)> {
    let mut modes = vec![(".".to_owned(), home.symlink_metadata().unwrap())];
    for entry in fs::read_dir(home).unwrap().flatten() {
        modes.push((entry.file_name().to_string_lossy().into_owned(), entry.path().symlink_metadata().unwrap()));
    }
    let open = |(name, found): (String, fs::Metadata)| (name, found.permissions().mode() & 0o077);
    modes.into_iter().map(open).filter(|(name, open)| name != "workspace" && *open != 0).collect()
}

/// A home that was opened to all is closed again, at startup and while the gateway runs. The log names each file.
#[tokio::test(flavor = "multi_thread")]
async fn permissive_modes_of_the_home_are_repaired() {
    let mut harness = Harness::start(Setup::new()).await;
    let home = harness.gateway.home();
    harness.reply_to("known", "c", "hello").await;
    assert_eq!(modes(&home), []);
    let open_all = || {
        let done = Command::new("chmod").args(["-R", "777"]).arg(&home).status().unwrap();
        assert!(done.success() && modes(&home).len() > 5);
    };
    let names = ["", "token", "config.toml", "daoyou.db", "daoyou.lock", "daoyou.mark"];
    let assert_reported = |logs: &str| {
        for name in names {
            let path = if name.is_empty() { home.clone() } else { home.join(name) };
            let line = logs
                .lines()
                .find(|line| line.contains("repaired") && line.contains(&format!("path={}", path.display())));
            assert!(line.is_some(), "{name}: {logs}");
        }
    };
    open_all();
    let doctor = harness.doctor().await;
    assert!(doctor.contains("other users of this machine"), "{doctor}");
    let before = harness.gateway.logs().len();
    harness.gateway.sighup();
    until("the modes to be repaired", async || modes(&home).is_empty().then_some(())).await;
    until("the log to say so", async || harness.gateway.logs()[before..].contains("daoyou.mark").then_some(())).await;
    assert_reported(&harness.gateway.logs()[before..]);

    harness.gateway.stop().await;
    open_all();
    let before = harness.gateway.logs().len();
    harness.gateway.up().await;
    assert_eq!(modes(&home), []);
    assert_reported(&harness.gateway.logs()[before..]);

    // Without a gateway, doctor repairs it.
    harness.gateway.stop().await;
    open_all();
    let fixed = harness.gateway.run(&["doctor", "--fix"]).await;
    assert_eq!(modes(&home), [], "{fixed:?}");
    // A link there is reported, and its target stays unchanged.
    let outside = home.parent().unwrap().join("outside");
    fs::write(&outside, "").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o644)).unwrap();
    symlink(&outside, home.join("daoyou.trap")).unwrap();
    harness.gateway.up().await;
    assert!(
        harness.gateway.logs().contains("it is a link, whose target is not protected"),
        "{}",
        harness.gateway.logs()
    );
    assert_eq!(outside.metadata().unwrap().permissions().mode() & 0o777, 0o644);
}
