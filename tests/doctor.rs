//! `daoyou doctor` on healthy homes, and on homes broken in each known way.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::gateway::{Message, binary};
use crate::support::requirements::{bubblewrap_is_missing, executable_by_all, is_root, skip_story};
use crate::support::{Answer, Gateway, Hook, Model, Setup, Sink};

/// The output of doctor and its exit code.
struct Examined {
    code: Option<i32>,
    report: Value,
}

impl Examined {
    fn checks(&self) -> &[Value] {
        self.report["checks"].as_array().unwrap()
    }

    /// Returns the first check of this name in this state.
    fn check(&self, name: &str, state: &str) -> &Value {
        let found = self.checks().iter().find(|check| check["name"] == name && check["state"] == state);
        found.unwrap_or_else(|| panic!("no {name} that is {state}: {:#}", self.report))
    }

    /// Returns the names of the checks that are not ok.
    fn failed_checks(&self) -> Vec<&str> {
        self.checks().iter().filter(|check| check["state"] != "ok").filter_map(|check| check["name"].as_str()).collect()
    }
}

/// Returns the texts of doctor that are English in a Chinese environment.
async fn untranslated_texts(gateway: &Gateway, checks: &[Value]) -> Vec<String> {
    // Paths, commands and service names contain none of these words.
    const ENGLISH: [&str; 10] = [" the ", " is ", " are ", " and ", " or ", " to ", " it ", " not ", " of ", " no "];
    let output = gateway.command(&["doctor"]).env("LANG", "zh_CN.UTF-8").output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    // Times and sizes differ between runs.
    let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let printed = plain(&printed);
    // The message of a channel joins those of several checks.
    let is_channel = |check: &&Value| check["name"].as_str().is_some_and(|name| name.starts_with("channel "));
    let joined = checks.iter().filter(is_channel).filter_map(|check| check["message"].as_str());
    let texts = checks.iter().flat_map(|check| [&check["message"], &check["mend"]]).filter_map(Value::as_str);
    let texts = texts.chain(joined.flat_map(|text| text.split("; ")));
    let is_english = |text: &&str| ENGLISH.iter().any(|word| format!(" {text} ").contains(word));
    let texts = texts.filter(is_english).filter(|text| printed.contains(&plain(text)));
    // Keys of the configuration are the same in every language.
    let names = checks.iter().filter_map(|check| check["name"].as_str()).filter(|name| !name.contains('.'));
    let names = names.filter(|name| printed.contains(&format!("  {} ", plain(name))));
    texts.chain(names).map(str::to_owned).collect()
}

/// Runs doctor in this home without rewriting the configuration.
async fn run_doctor(gateway: &Gateway, more: &[&str]) -> Examined {
    let output = gateway.command(&[&["doctor", "--json"], more].concat()).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let report = serde_json::from_str(&text).unwrap_or_else(|fault| {
        panic!("{fault}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    });
    let examined = Examined { code: output.status.code(), report };
    let failed = examined.checks().iter().any(|check| check["state"] == "fail");
    assert_eq!((examined.code, &examined.report["ok"]), (Some(i32::from(failed)), &json!(!failed)));
    for check in examined.checks() {
        assert_eq!(check["state"] == "ok", check["mend"].is_null(), "what is wrong says how to mend it: {check}");
        assert!(check["message"].as_str().is_some_and(|text| !text.is_empty() && !text.contains('\n')), "{check}");
    }
    if more.is_empty() {
        assert_eq!(
            untranslated_texts(gateway, examined.checks()).await,
            Vec::<String>::new(),
            "src/commands/chinese.txt lacks these"
        );
    }
    examined
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A healthy home gets the same report with and without a running gateway, and checking changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_passes_a_healthy_home_and_changes_nothing() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let sink = Sink::start(None).await;
    let mut gateway = Gateway::new(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)));
    gateway.write_config();
    chmod(&gateway.home(), 0o700);
    chmod(&gateway.home().join("config.toml"), 0o600);
    gateway.up().await;
    let id = gateway.accept("in", &Message::new("hi").chat("c")).await;
    sink.wait_posts(1).await;

    let running = run_doctor(&gateway, &[]).await;
    // As root, doctor reports the user.
    let expected = if is_root() { vec!["user"] } else { Vec::new() };
    assert_eq!(running.failed_checks(), expected, "{:#}", running.report);
    for (name, words) in [
        ("gateway", format!("pid {}", gateway.pid())),
        ("database", "tables read".to_owned()),
        ("model", "scripted".to_owned()),
        ("provider scripted", "lists 1 models".to_owned()),
        ("port", gateway.address()),
        ("channel webhook:in", "/webhook/in answers".to_owned()),
        ("time zone", "UTC".to_owned()),
    ] {
        let message = running.check(name, "ok")["message"].as_str().unwrap();
        assert!(message.contains(&words), "{name}: {message}");
    }
    assert_eq!(sink.replies_to(&id).len(), 1, "nobody is sent anything");
    assert_eq!(model.count(), 3, "each of the two examinations asked the model for one word");

    gateway.stop().await;
    let before = fs::read(gateway.database()).unwrap();
    let resting = run_doctor(&gateway, &[]).await;
    assert_eq!(resting.failed_checks(), expected, "{:#}", resting.report);
    let names = |examined: &Examined| examined.checks().iter().map(|check| check["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&resting), names(&running));
    assert!(fs::read(gateway.database()).unwrap() == before);
    let text = gateway.run(&["doctor"]).await;
    assert_eq!(text.code, Some(0), "{text:?}");
    let end = if expected.is_empty() { ", all is well\n" } else { ", 1 to look at\n" };
    assert!(text.stdout.ends_with(end) && text.stdout.starts_with("ok    config"), "{}", text.stdout);
}

type Break = fn(&Path);

/// How the home is broken, the name of the check that reports it, its state, a part of the text, a part of the remedy, and
/// whether `--fix` repairs it.
type Row = (&'static str, Break, &'static str, &'static str, &'static str, &'static str, bool);

const BROKEN: &[Row] = &[
    ("0777", |home| chmod(home, 0o777), "home", "fail", "can change it", "chmod 700 ", true),
    ("0755", |home| chmod(home, 0o755), "home", "warn", "can look into it", "chmod 700 ", true),
    ("token of all", |home| chmod(&home.join("token"), 0o644), "token", "fail", "may read it", "chmod 600 ", true),
    ("no token", |home| fs::remove_file(home.join("token")).unwrap(), "token", "warn", "none yet", "--fix", true),
    ("empty token", |home| fs::write(home.join("token"), " ").unwrap(), "token", "fail", "no token", "rm ", true),
    ("database of all", |home| chmod(&home.join("daoyou.db"), 0o666), "database", "fail", "may use", "chmod 600", true),
    (
        "stale socket",
        |home| drop(UnixListener::bind(home.join("daoyou.sock")).unwrap()),
        "socket",
        "warn",
        "left over",
        "rm ",
        true,
    ),
    (
        "no workspace",
        |home| fs::remove_dir_all(home.join("workspace")).unwrap(),
        "workspace",
        "warn",
        "there is none",
        "--fix",
        true,
    ),
    (
        "a closed workspace",
        |home| chmod(&home.join("workspace"), 0o000),
        "workspace",
        "fail",
        "cannot be written",
        "chmod u+rwx ",
        true,
    ),
    (
        "leftovers",
        |home| {
            let draft = File::create(home.join("token.0123456789abcdef")).unwrap();
            draft.set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
        },
        "leftovers",
        "warn",
        "1 temporary",
        "--fix",
        true,
    ),
    (
        "a killed restore",
        |home| {
            fs::create_dir(home.join("daoyou.restoring-7")).unwrap();
            chmod(&home.join("daoyou.restoring-7"), 0o700);
            fs::write(home.join("daoyou.restoring-7/token"), "secret").unwrap();
        },
        "leftovers",
        "warn",
        "daoyou.restoring-7",
        "--fix",
        true,
    ),
    (
        "a file for a workspace",
        |home| {
            fs::remove_dir_all(home.join("workspace")).unwrap();
            fs::write(home.join("workspace"), "").unwrap();
        },
        "workspace",
        "fail",
        "not a folder",
        "mv ",
        false,
    ),
    (
        "garbage for settings",
        |home| fs::write(home.join("config.toml"), [0xff, 0, b'[']).unwrap(),
        "config",
        "fail",
        "config.toml",
        "edit ",
        false,
    ),
    (
        "a wrong setting",
        |home| fs::write(home.join("config.toml"), "[agent]\nmodle = 1\n").unwrap(),
        "config",
        "fail",
        "agent.modle",
        "line 2",
        false,
    ),
    (
        "garbage for a database",
        |home| fs::write(home.join("daoyou.db"), "a diary").unwrap(),
        "database",
        "fail",
        "not a database",
        "takes over what can be read",
        false,
    ),
    (
        "a damaged database",
        |home| {
            let mut bytes = fs::read(home.join("daoyou.db")).unwrap();
            let length = bytes.len();
            bytes[4_096..length.min(40_960)].fill(0x5a);
            fs::write(home.join("daoyou.db"), bytes).unwrap();
        },
        "database",
        "fail",
        "",
        "daoyou doctor --fix",
        true,
    ),
    (
        "a newer database",
        |home| {
            Connection::open(home.join("daoyou.db")).unwrap().pragma_update(None, "user_version", 999).unwrap();
        },
        "database",
        "fail",
        "newer daoyou (format 999",
        "update daoyou",
        false,
    ),
    (
        "a message from the future",
        |home| {
            let sql = "UPDATE inbox SET received_at = received_at + 600000";
            Connection::open(home.join("daoyou.db")).unwrap().execute(sql, []).unwrap();
        },
        "clock of the store",
        "warn",
        "went back",
        "timedatectl",
        false,
    ),
    (
        "old work and dead letters",
        |home| {
            let sql = "UPDATE inbox SET received_at = received_at - 86400000, state = 'queued'; UPDATE outbox SET state = 'dead'";
            Connection::open(home.join("daoyou.db")).unwrap().execute_batch(sql).unwrap();
        },
        "dead letters",
        "warn",
        "could not be delivered",
        "queue retry",
        false,
    ),
];

/// The report on each broken home names the problem. `--fix` repairs what it can and touches nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_and_repairs_each_broken_home() {
    if bubblewrap_is_missing() {
        return;
    }
    let sink = Sink::start(None).await;
    let mut gateway = Gateway::start(Setup::new().hook(Hook::bearer("in").callback(&sink))).await;
    gateway.accept("in", &Message::new("hi").chat("c")).await;
    sink.wait_posts(1).await;
    gateway.stop().await;
    chmod(&gateway.home(), 0o700);
    chmod(&gateway.home().join("config.toml"), 0o600);
    let whole = tempfile::tempdir().unwrap();
    let kept = whole.path().join("home");
    copy_folder(&gateway.home(), &kept);

    for (what, damage, name, state, words, mend, is_fixed) in BROKEN {
        fs::remove_dir_all(gateway.home()).unwrap();
        copy_folder(&kept, &gateway.home());
        damage(&gateway.home());
        let found = run_doctor(&gateway, &[]).await;
        let check = found.check(name, state);
        assert!(check["message"].as_str().unwrap().contains(words), "{what}: {check}");
        assert!(check["mend"].as_str().unwrap().contains(mend), "{what}: {check}");
        assert_eq!(found.report["fixable"], u32::from(*is_fixed), "{what}: {:#}", found.report);
        let fixed = run_doctor(&gateway, &["--fix"]).await;
        let done: Vec<_> = fixed.checks().iter().filter(|check| !check["fixed"].is_null()).collect();
        assert_eq!(
            (done.len(), done.iter().all(|check| check["name"] == *name)),
            (usize::from(*is_fixed), true),
            "{what}"
        );
        let after = run_doctor(&gateway, &[]).await;
        assert_eq!(after.failed_checks().contains(name), !is_fixed, "{what}: {:#}", after.report);
        if *is_fixed {
            assert_eq!(after.code, Some(0), "{what}: {:#}", after.report);
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
    chmod(to, mode(from));
}

/// A missing home, or a file in its place, is reported, and created only on request.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_a_missing_home() {
    if bubblewrap_is_missing() {
        return;
    }
    let gateway = Gateway::new(Setup::new());
    let found = run_doctor(&gateway, &[]).await;
    assert_eq!(found.check("home", "warn")["mend"], "daoyou gateway");
    assert!(!gateway.home().exists(), "looking makes nothing");
    let fixed = run_doctor(&gateway, &["--fix"]).await;
    assert_eq!(fixed.code, Some(0), "{:#}", fixed.report);
    let made = ["token", "workspace/AGENTS.md"].map(|file| gateway.home().join(file).exists());
    assert_eq!((mode(&gateway.home()), made), (0o700, [true, true]));

    fs::remove_dir_all(gateway.home()).unwrap();
    fs::write(gateway.home(), "a file").unwrap();
    let found = run_doctor(&gateway, &["--fix"]).await;
    assert!(found.check("home", "fail")["message"].as_str().unwrap().contains("not a folder"));
    // Without these variables the system would supply a user's folder. This user has none, so no real folder is used.
    if !is_root() {
        return skip_story("a user without a home, whom only root can be");
    }
    const UNKNOWN: u32 = 61_234;
    let elsewhere = Gateway::new(Setup::new().program(Some(executable_by_all(binary()))));
    let mut command = elsewhere.command(&["doctor"]);
    let nowhere = command.env_remove("HOME").env("DAOYOU_HOME", "").current_dir("/").uid(UNKNOWN).gid(UNKNOWN);
    let nowhere = nowhere.output().await.unwrap();
    let text = String::from_utf8_lossy(&nowhere.stdout);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert!(text.contains("there is no home: neither --home, nor DAOYOU_HOME, nor HOME is set"), "{text}");
}

/// In a sandbox with a `/tmp` of its own a command can write below it; that reaches no home there.
#[test]
fn a_home_below_tmp_raises_no_false_alarm_about_the_sandbox() {
    const OTHER: u32 = 61_234;
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let mut command = Command::new(executable_by_all(binary()));
    if is_root() {
        chown(folder.path(), Some(OTHER), Some(OTHER)).unwrap();
        command.uid(OTHER).gid(OTHER);
    }
    command.env("HOME", folder.path()).env("DAOYOU_HOME", folder.path().join("home")).current_dir(folder.path());
    let ran = command.args(["doctor", "--fix", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let sandbox = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "sandbox").unwrap();
    assert!(!sandbox["message"].as_str().unwrap().contains("a command could"), "{sandbox}");
}

/// Starts a service that answers its list of models and calls with the given statuses; returns its address.
async fn service((list, calls): (u16, u16), date: &'static str) -> String {
    let [list, calls] = [list, calls].map(|status| StatusCode::from_u16(status).unwrap());
    let body = json!({ "error": { "message": "not with a-model-key" }, "data": [{ "id": "scripted-2" }] });
    let answer = move || async move { (list, [("date", date)], axum::Json(body)) };
    let texts = if calls.is_success() {
        json!({ "choices": [{ "message": { "content": "pong" }, "finish_reason": "stop" }] })
    } else {
        json!({ "error": { "message": "not with a-model-key" } })
    };
    let call = move || async move { (calls, axum::Json(texts)) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let routes = Router::new().route("/v1/models", get(answer)).route("/v1/chat/completions", post(call));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

/// Covers model services that refuse the key, are unreachable, do not know the model, or have a different date.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_explains_model_services_that_fail() {
    const OLD: &str = "Tue, 03 Mar 2026 10:00:00 GMT";
    let model = Model::start().await;
    let closed = "http://127.0.0.1:9/v1".to_owned();
    for (url, name, state, words, mend) in [
        (
            service((401, 401), OLD).await,
            "provider scripted",
            "fail",
            "refuses the key: HTTP 401",
            "providers.scripted.api_key",
        ),
        (service((403, 403), OLD).await, "provider scripted", "fail", "refuses the key", "providers.scripted.api_key"),
        (service((404, 200), OLD).await, "provider scripted", "ok", "answers as scripted, and lists no", ""),
        (service((200, 401), OLD).await, "provider scripted", "fail", "refuses the key", "providers.scripted.api_key"),
        (service((200, 404), OLD).await, "provider scripted", "fail", "/v1/chat/completions", "scripted.base_url"),
        (service((503, 503), OLD).await, "provider scripted", "fail", "at the moment", "later"),
        (service((200, 429), OLD).await, "provider scripted", "warn", "not now", "later"),
        (closed, "provider scripted", "fail", "cannot be reached", "providers.scripted.base_url"),
        (service((200, 200), OLD).await, "model", "warn", "none of the 1 models", "scripted/scripted-2"),
        (service((200, 200), OLD).await, "clock of services", "warn", "ahead of scripted's", "timedatectl"),
    ] {
        let gateway = Gateway::new(Setup::new().model(&model).set("providers.scripted.base_url", url));
        gateway.write_config();
        let found = run_doctor(&gateway, &[]).await;
        let check = found.check(name, state);
        let message = check["message"].as_str().unwrap();
        assert!(message.contains(words), "{check}");
        let is_asked = message.contains("; asked http://127.0.0.1:");
        assert_eq!(is_asked, name == "provider scripted", "the address that was asked: {check}");
        assert!(mend.is_empty() || check["mend"].as_str().unwrap().contains(mend), "{check}");
        assert!(!found.report.to_string().contains("a-model-key"), "a key is never shown: {:#}", found.report);
    }
}

/// Covers a used-up reserve, an occupied port, an unreachable receiver, and a home that an unresponsive process holds.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_problems_of_the_machine() {
    let sink = Sink::start(None).await;
    sink.always(Some(Answer::Status(500, None)));
    let hook = Hook::bearer("in")
        .set("callback_url", "http://127.0.0.1:9/secret-path")
        .set("callback_secret", "whsec_c2VjcmV0");
    let gateway = Gateway::new(
        Setup::new().set("store.reserve", "100000000GB").hook(hook).hook(Hook::bearer("sick").callback(&sink)),
    );
    gateway.write_config();
    let _taken = TcpListener::bind(gateway.address()).await.unwrap();
    let found = run_doctor(&gateway, &[]).await;
    assert!(found.check("disk", "fail")["message"].as_str().unwrap().contains("store.reserve"));
    assert!(found.check("port", "fail")["mend"].as_str().unwrap().contains("gateway.listen"));
    assert!(found.check("channel webhook:in", "fail")["mend"].as_str().unwrap().contains("callback_url"));
    assert!(found.check("channel webhook:sick", "warn")["message"].as_str().unwrap().contains("500"));
    assert!(!found.report.to_string().contains("secret-path"), "an address may hold a token");

    let mut lock = File::create(gateway.home().join("daoyou.lock")).unwrap();
    lock.lock().unwrap();
    writeln!(lock, "{}", std::process::id()).unwrap();
    let found = run_doctor(&gateway, &["--fix"]).await;
    let check = found.check("gateway", "fail");
    let pid = std::process::id().to_string();
    assert!(check["message"].as_str().unwrap().contains(&pid) && check["mend"].as_str().unwrap().contains(&pid));
    found.check("parts", "warn");

    writeln!(lock, "temporary").unwrap();
    let found = run_doctor(&gateway, &[]).await;
    let check = found.check("gateway", "warn");
    assert!(check["message"].as_str().unwrap().contains(&pid), "{check}");
    assert_eq!(check["mend"], "run doctor after its end");
}

/// A stopped home whose database was deleted or emptied has lost what `daoyou.mark` counts. No backup hides that.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_fails_a_home_that_lost_its_database() {
    let mut gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    for n in 0..2 {
        gateway.accept("in", &Message::new("/help").id(&format!("m{n}"))).await;
    }
    gateway.stop().await;
    File::create(gateway.database()).unwrap();
    let emptied = run_doctor(&gateway, &[]).await;
    gateway.run(&["backup", "b.tar"]).await.assert_refused("2 messages were accepted: no backup was written");
    fs::remove_file(gateway.database()).unwrap();
    let deleted = run_doctor(&gateway, &[]).await;
    for found in [emptied, deleted] {
        let checks = found.checks().iter().filter(|check| check["name"] == "database" && check["state"] == "fail");
        let messages: Vec<_> = checks.filter_map(|check| check["message"].as_str()).collect();
        assert!(messages[0].starts_with("2 accepted messages are missing from it: "), "{messages:?}");
    }
    gateway.run(&["backup", "b.tar"]).await.assert_refused("2 messages were accepted: no backup was written");
    assert!(!gateway.home().with_file_name("b.tar").exists());
}

/// Routes and disabled skills that fit nothing are probably mistakes, so `doctor` and the log name them; `config check` names routes.
#[tokio::test(flavor = "multi_thread")]
async fn names_in_the_configuration_that_fit_nothing_are_named() {
    let route = |channel: &str| {
        toml::Value::from(toml::Table::from_iter([
            ("channel".to_owned(), channel.into()),
            ("agent".to_owned(), "assistant".into()),
        ]))
    };
    let routes = vec![route("webhook:i*"), route("emial")];
    let setup = Setup::new().hook(Hook::bearer("in")).set("routes", routes).set("skills.disabled", vec!["wether"]);
    let gateway = Gateway::start(setup).await;
    let route = "routes[1].channel: \"emial\" fits no channel; there are cli, email, api, page, mcp, webhook:in";
    let skill = "names \"wether\", which is not a skill";
    let doctor = run_doctor(&gateway, &[]).await;
    let messages: Vec<_> = doctor.checks().iter().filter_map(|check| check["message"].as_str()).collect();
    for expected in [route, skill] {
        assert_eq!(messages.iter().filter(|message| message.contains(expected)).count(), 1, "{messages:?}");
    }
    let checked = gateway.run(&["config", "check"]).await;
    assert!(checked.code == Some(0) && checked.stderr.contains(route), "{checked:?}");
    // The first turn reads the skills.
    gateway.ask("in", "c", "hello").await;
    let logs = gateway.logs();
    assert!(logs.contains("fits no channel") && logs.contains("which is not a skill"), "{logs}");
}
