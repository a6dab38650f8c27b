//! The gateway as a service: notifications to the service manager, the units, and the commands that install them.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;
use tokio::net::UnixDatagram;

use crate::support::gateway::{Message, binary};
use crate::support::recorded::assert_recorded;
use crate::support::requirements::skip_story;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, deadline, until};

/// A socket that replaces the service manager's, and all notifications received.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
    messages: Mutex<Vec<String>>,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        Self { socket, folder, messages: Mutex::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// Returns the next message that contains `word`; keeps earlier messages.
    async fn expect_message(&self, word: &str) -> String {
        deadline(&format!("{word:?} for the service manager"), async {
            loop {
                let mut bytes = vec![0; 4_096];
                let length = self.socket.recv(&mut bytes).await.unwrap();
                let message = String::from_utf8(bytes[..length].to_vec()).unwrap();
                self.messages.lock().unwrap().push(message.clone());
                if message.contains(word) {
                    return message;
                }
            }
        })
        .await
    }

    /// Returns and removes all messages so far.
    fn drain_messages(&self) -> Vec<String> {
        let mut bytes = vec![0; 4_096];
        while let Ok(length) = self.socket.try_recv(&mut bytes) {
            self.messages.lock().unwrap().push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        std::mem::take(&mut *self.messages.lock().unwrap())
    }
}

fn served(setup: Setup, manager: &Manager) -> Setup {
    setup.env("NOTIFY_SOCKET", manager.path().to_str().unwrap()).env("WATCHDOG_USEC", "4000000")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_is_notified_of_each_step() {
    let (manager, model, gate) = (Manager::new(), Model::start().await, Gate::new());
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    let setup = Setup::scripted(&model).set("gateway.drain_timeout", "20s");
    let mut gateway = Gateway::start(served(setup.clone(), &manager)).await;
    assert_eq!(manager.expect_message("READY=1").await, "READY=1\nSTATUS=ready\n");
    for _ in 0..3 {
        assert_eq!(manager.expect_message("WATCHDOG=1").await, "WATCHDOG=1\n");
    }
    *gateway.setup() = served(setup.clone().set("log.format", "json"), &manager);
    gateway.write_config();
    gateway.sighup();
    let reloading = manager.expect_message("RELOADING=1").await;
    let at = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    assert!(at.parse::<u64>().unwrap() > 0, "{reloading}");
    assert_eq!(manager.expect_message("READY=1").await, "READY=1\nSTATUS=ready; a restart is needed for log.format\n");

    let id = gateway.accept("in", &Message::new("slow").chat("a")).await;
    gate.wait_arrived(1).await;
    gateway.sigterm();
    let stopping = manager.expect_message("STOPPING=1").await;
    assert!(
        stopping.contains("finishing the turns") && stopping.contains("EXTEND_TIMEOUT_USEC=35000000"),
        "{stopping}"
    );
    manager.expect_message("WATCHDOG=1").await;
    manager.expect_message("WATCHDOG=1").await;
    gate.open();
    assert!(manager.expect_message("delivering").await.contains("EXTEND_TIMEOUT_USEC="));
    assert_eq!(gateway.wait_exit().await.code(), Some(0));
    assert!(!gateway.logs().contains("ERROR"), "{}", gateway.logs());
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "slow done");
}

/// If the store's writer stalls, the watchdog is not notified, and the log names the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_store_stops_the_watchdog_notifications() {
    let manager = Manager::new();
    let setup = served(Setup::new().hook(Hook::bearer("in")), &manager);
    let mut gateway = Gateway::start(setup.env("DAOYOU_STALL_AT", "accept_before_commit=stand still")).await;
    manager.expect_message("WATCHDOG=1").await;
    let message = Message::new("stand still");
    let answered = gateway.try_post("in", "", &message);
    let stuck = until("the watchdog to notice", async || {
        gateway.logs().contains("the store's writer has not answered for 1s").then_some(())
    });
    tokio::select! {
        answered = answered => panic!("the store took it: {answered:?}"),
        () = stuck => {}
    }
    manager.drain_messages();
    let complaints = || gateway.logs().matches("watchdog is not notified").count();
    let before = complaints();
    until("more complaints", async || (complaints() >= before + 3).then_some(())).await;
    assert_eq!(manager.drain_messages(), Vec::<String>::new(), "it was fed all the same");
    gateway.kill9().await;
}

/// In the journal, lines have no time and no colour and begin with their priority; elsewhere nothing changes.
#[test]
fn journal_lines_carry_their_priority() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(home.path().join("config.toml"), "[agent]\nmodel = \"nowhere/x\"\n").unwrap();
    let logged = |name: &str, named_rightly: bool, args: &[&str]| {
        let path = home.path().join(name);
        let file = fs::File::create(&path).unwrap();
        let stat = rustix::fs::fstat(file.as_fd()).unwrap();
        let inode = if named_rightly { stat.st_ino } else { stat.st_ino + 1 };
        let mut command = Command::new(binary());
        command.env("JOURNAL_STREAM", format!("{}:{inode}", stat.st_dev)).env("DAOYOU_HOME", home.path()).args(args);
        command.env("DAOYOU_LOG_LEVEL", "debug");
        command.stdin(Stdio::null()).stderr(file).stdout(Stdio::null()).status().unwrap();
        fs::read_to_string(path).unwrap()
    };
    let gateway = ["gateway", "--no-cli"];
    let journal = logged("journal", true, &gateway);
    let (warning, fault) = journal.split_once('\n').unwrap();
    assert!(warning.starts_with("<4> WARN daoyou::commands::environment: DAOYOU_LOG_LEVEL sets nothing"), "{journal}");
    assert!(fault.starts_with("<3>") && fault.contains("agent.model: unknown provider"), "{journal}");
    let json = logged("json", true, &["gateway", "--no-cli", "--log-format", "json"]);
    assert!(json.starts_with("<4>{\"timestamp\":"), "{json}");
    let elsewhere = logged("elsewhere", false, &gateway);
    assert!(elsewhere.starts_with("20") && !elsewhere.contains('<'), "{elsewhere}");
}

/// Checks the units as installed, except for the program, which this machine may not have.
#[test]
fn the_systemd_units_are_valid_and_hardened() {
    let folder = tempfile::tempdir().unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let analyze = |args: &[&str]| {
        let ran = Command::new("systemd-analyze").args(args).env("XDG_RUNTIME_DIR", folder.path()).output();
        ran.ok()
            .map(|ran| (ran.status.success(), String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()))
    };
    if analyze(&["--version"]).is_none() {
        return skip_story("there is no systemd-analyze (package systemd)");
    }
    for (name, args) in [
        ("daoyou.service", &["verify"][..]),
        ("daoyou.service", &["security", "--offline=true", "--threshold=20"]),
        ("daoyou-user.service", &["verify", "--user"]),
    ] {
        let text = fs::read_to_string(units.join(name)).unwrap();
        let path = folder.path().join(name);
        let lines = text.lines().map(|line| if line.starts_with("ExecStart=") { "ExecStart=/bin/true" } else { line });
        fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
        let (good, report) = analyze(&[args, &[path.to_str().unwrap()]].concat()).unwrap();
        assert!(good && (args[0] != "verify" || report.is_empty()), "{name} {args:?}\n{report}");
    }
}

/// A `systemctl` that records its arguments and always reports success.
struct FakeSystemctl {
    folder: TempDir,
}

impl FakeSystemctl {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        if !script.is_empty() {
            let path = bin.join("systemctl");
            let notes = folder.path().join("notes");
            fs::write(&path, format!("#!/bin/sh\necho \"$*\" >> {}\n{script}\n", notes.display())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder }
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(binary());
        command.env_clear().env("PATH", self.folder.path().join("bin")).env("HOME", self.folder.path().join("me"));
        command.env("MY_KEY", "canary").env("DAOYOU_LOG", "");
        let ran = command.arg("service").args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    }

    fn notes(&self) -> Vec<String> {
        let notes = fs::read_to_string(self.folder.path().join("notes")).unwrap_or_default();
        notes.lines().filter(|line| !line.contains("Version")).map(str::to_owned).collect()
    }

    fn unit(&self) -> PathBuf {
        self.folder.path().join("me/.config/systemd/user/daoyou.service")
    }
}

#[test]
fn a_user_service_is_installed_queried_and_removed() {
    let fake = FakeSystemctl::new(
        "case \"$*\" in *Version*) echo 257.9-1;; \
         *show*) echo ActiveState=active; echo MainPID=42; echo 'StatusText=ready'; echo UnitFileState=enabled;; esac",
    );
    let (code, out, _) = fake.run(&["install", "--user", "--dry-run"]);
    assert!(code == Some(0) && out.contains("    [Service]\n") && !fake.unit().exists(), "{out}");
    assert!(fake.notes().is_empty(), "{:?}", fake.notes());

    let (code, out, error) = fake.run(&["install", "--user"]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with(&format!("write {}\n", fake.unit().display())) && out.contains("enable-linger"), "{out}");
    let unit = fs::read_to_string(fake.unit()).unwrap();
    assert!(unit.contains(&format!("\nExecStart={} gateway --no-cli\n", binary().display())), "{unit}");
    assert!(unit.contains("\nRestartSteps=") && unit.contains("\nEnvironment=DAOYOU_HOME=%h/.daoyou\n"), "{unit}");
    let commands = ["daemon-reload", "enable daoyou.service", "restart daoyou.service"];
    assert_eq!(fake.notes(), commands.map(|words| format!("--user {words}")));
    assert!(!fake.folder.path().join("me/.daoyou").exists(), "installing touches no home");

    let (code, out, _) = fake.run(&["status", "--user", "--json"]);
    assert_eq!(code, Some(0), "{out}");
    assert_recorded("service_status.txt", &out.replace(&fake.folder.path().display().to_string(), "<folder>"));

    let (code, ..) = fake.run(&["uninstall", "--user"]);
    assert!(code == Some(0) && !fake.unit().exists());
    assert!(fake.notes().iter().any(|note| note == "--user disable --now daoyou.service"));
    let (code, out, _) = fake.run(&["uninstall", "--user"]);
    assert!(code == Some(0) && out.starts_with("nothing is installed"), "{out}");
}

/// A service without the variables that its secrets need could not start: the installation says so, and is not begun.
#[test]
fn a_service_that_lacks_a_variable_is_not_installed() {
    let fake =
        FakeSystemctl::new("case \"$*\" in *Version*) echo 257;; *show-environment*) echo FROM_MANAGER=x;; esac");
    let home = fake.folder.path().join("me/.daoyou");
    fs::create_dir_all(&home).unwrap();
    let config = |key: &str| {
        let text = format!("[agent]\nmodel = \"offline\"\n[providers.openai]\napi_key = \"env:{key}\"\n");
        fs::write(home.join("config.toml"), text).unwrap();
    };
    config("MY_KEY");
    let fault = "config.toml:4: providers.openai.api_key: the environment variable MY_KEY is not set";
    let (code, out, error) = fake.run(&["install", "--user"]);
    assert!(code == Some(1) && out.is_empty() && !fake.unit().exists(), "{out}");
    assert!(error.contains(fault) && error.contains("daoyou.service.d/environment.conf:\n  [Service]\n"), "{error}");
    assert!(!error.contains("canary"), "{error}");
    let (code, out, error) = fake.run(&["install", "--user", "--dry-run"]);
    assert!(code == Some(0) && out.contains("    [Service]\n") && error.contains(fault), "{out}{error}");

    config("FROM_MANAGER");
    let (code, _, error) = fake.run(&["install", "--user"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    config("MY_KEY");
    let drop_ins = fake.unit().with_file_name("daoyou.service.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("environment.conf"), "[Service]\nEnvironment = A=1 \\\n  MY_KEY=x\n").unwrap();
    let (code, _, error) = fake.run(&["install", "--user"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));

    // An installed service may have its variables from elsewhere.
    fs::remove_dir_all(&drop_ins).unwrap();
    let (code, _, error) = fake.run(&["install", "--user"]);
    assert!(code == Some(0) && error.contains(fault) && !error.contains("nothing was changed"), "{error}");
}

#[test]
fn without_systemd_service_commands_change_nothing() {
    for (script, why) in [
        ("", "there is no program systemctl here"),
        ("echo 'Failed to connect to bus' >&2; exit 1", "Failed to connect to bus"),
    ] {
        let fake = FakeSystemctl::new(script);
        let (code, out, error) = fake.run(&["install", "--user"]);
        assert!(code == Some(1) && out.is_empty() && error.contains(why), "{error}");
        assert!(error.starts_with("daoyou: systemd cannot be reached, and nothing was changed: "), "{error}");
        assert!(!fake.folder.path().join("me").exists(), "nothing was written");
        let (code, out, _) = fake.run(&["install", "--user", "--dry-run"]);
        assert!(code == Some(0) && out.contains("systemctl --user daemon-reload"), "{out}");
        let (code, out, _) = fake.run(&["status", "--user"]);
        assert!(code == Some(1) && out.contains("error: systemd cannot be asked") && !out.contains("active"), "{out}");
    }
}

/// If a step fails, the owner must perform the remaining ones.
#[test]
fn a_failed_service_step_reports_the_remaining_steps() {
    let fake =
        FakeSystemctl::new("case \"$*\" in *Version*) echo 257;; *daemon-reload*) echo 'no bus' >&2; exit 1;; esac");
    let (code, _, error) = fake.run(&["install", "--user"]);
    assert!(code == Some(1) && error.starts_with("daoyou: ") && error.contains("no bus"), "{error}");
    for left in ["daemon-reload", "enable daoyou.service", "restart daoyou.service"] {
        assert!(error.contains(&format!("\n  systemctl --user {left}\n")), "{error}");
    }
    assert!(!error.contains("  write "), "that was done: {error}");
}

#[test]
fn a_system_service_is_planned_with_its_user_and_home() {
    let fake = FakeSystemctl::new("exit 0");
    let (code, out, error) = fake.run(&["install", "--system", "--dry-run"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let steps: Vec<_> = out.lines().filter(|line| !line.starts_with(' ')).collect();
    for step in [
        "useradd --system --user-group --home-dir /var/lib/daoyou --no-create-home --shell /usr/sbin/nologin daoyou",
        "install -d -m 0700 -o daoyou -g daoyou /var/lib/daoyou",
        "write /etc/systemd/system/daoyou.service",
        "systemctl daemon-reload",
        "systemctl enable daoyou.service",
        "systemctl restart daoyou.service",
    ] {
        assert!(steps.contains(&step), "{step}\n{out}");
    }
    let mut command = Command::new(binary());
    let ran = command.args(["--home", "/srv/x", "service", "install", "--system", "--dry-run"]).output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stderr).contains("keeps its home in /var/lib/daoyou"), "{ran:?}");
}
