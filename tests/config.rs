//! Configuration errors as the owner sees them: one line each, exit code 78, nothing started.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::gateway::binary;
use crate::support::requirements::skip_story;

/// Runs the program in `home`, with only PATH from this environment.
fn daoyou(home: &Path, env: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home).env("DAOYOU_HOME", home);
    command.envs(env.iter().copied()).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Creates a new home with this configuration.
fn home_with(config: &[u8]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("config.toml"), config).unwrap();
    home
}

/// The configuration, the environment, and the error, in which `C` stands for the file.
type Row = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const WRONG: &[Row] = &[
    // Keys.
    ("colour = 1", &[], "C:1: colour: unknown key; the nearest known key is "),
    (
        "[agnet]",
        &[],
        "C:1: agnet: unknown key; the nearest known key is agent; allowed: agent, agents, approval, channels, ",
    ),
    ("[agent]\nmodle = \"x\"", &[], "C:2: agent.modle: unknown key; the nearest known key is agent.model; allowed: "),
    (
        "[tools.exec]\ntimout = 1",
        &[],
        "C:2: tools.exec.timout: unknown key; the nearest known key is tools.exec.timeout",
    ),
    ("[channels.webhok.x]", &[], "C:1: channels.webhok: unknown key; the nearest known key is channels.webhook"),
    ("[agent]\nmodel = \"auto\"\nmodel = \"auto\"", &[], "C:3: agent.model: not TOML: duplicate key"),
    // Folders.
    ("[agent]\n\nworkspace = \".\"", &[], "C:3: agent.workspace: /"),
    // Syntax.
    ("[agent\nmodel = \"auto\"", &[], "C:1: not TOML: unclosed table"),
    ("[agent]\nmodel = auto", &[], "C:2: not TOML: string values must be quoted"),
    // Kinds and ranges.
    (
        "[agent]\nmax_iterations = \"40\"",
        &[],
        "C:2: agent.max_iterations: the value is a text; allowed: a whole number from 1 to 1000",
    ),
    (
        "[agent]\nmax_iterations = 0",
        &[],
        "C:2: agent.max_iterations: 0 is out of range; allowed: a whole number from 1 to 1000",
    ),
    (
        "[agent]\ntemperature = 3",
        &[],
        "C:2: agent.temperature: the number is out of range; allowed: a number from 0 to 2",
    ),
    (
        "[agent]\nturn_timeout = \"10 minutes\"",
        &[],
        "C:2: agent.turn_timeout: \"10 minutes\" is not a duration; allowed: a duration such as \"90s\"",
    ),
    (
        "[store]\nreserve = \"lots\"",
        &[],
        "C:2: store.reserve: \"lots\" is not a size; allowed: a whole number with B, KB, MB, GB, TB, KiB",
    ),
    ("[agent]\nqueue = \"join\"", &[], "C:2: agent.queue: \"join\" is not known; allowed: \"followup\", \"collect\""),
    (
        "[[channels.webhook]]\nname = \"a\"",
        &[],
        "C:1: channels.webhook: the value is a list; allowed: a table with a name",
    ),
    ("tools = 3", &[], "C:1: tools: the value is a whole number; allowed: a table with the keys "),
    // Secrets.
    (
        "[providers.p]\napi_key = \"env:NONE\"\nbase_url = \"https://example.org\"",
        &[],
        "C:2: providers.p.api_key: the environment variable NONE is not set; set it where the gateway starts, ",
    ),
    (
        "[providers.p]\napi_key = \"file:/none\"\nbase_url = \"https://example.org\"",
        &[],
        "C:2: providers.p.api_key: cannot read the file /none: No such file",
    ),
    (
        "[providers.p]\napi_key = \"cred:k\"\nbase_url = \"https://example.org\"",
        &[],
        "C:2: providers.p.api_key: a systemd credential can be read only in the service: CREDENTIALS_DIRECTORY is not set here",
    ),
    (
        "[providers.p]\napi_key = \"cred:k\"\nbase_url = \"https://example.org\"",
        &[("CREDENTIALS_DIRECTORY", "/none")],
        "C:2: providers.p.api_key: cannot read the file /none/k",
    ),
    // Conflicts.
    (
        "[gateway]\nlisten = \"18790\"",
        &[],
        "C:2: gateway.listen: \"18790\" is not an address with a port; allowed: an IP address and a port such as",
    ),
    (
        "[gateway]\nlisten = \"0.0.0.0:1\"",
        &[],
        "C:2: gateway.listen: 0.0.0.0:1 can be reached from other machines, and gateway.token is not set",
    ),
    ("[channels.webhook.h]", &[], "C:1: channels.webhook.h.secret: it is not set, and verify = \"standard\" needs it"),
    (
        "[channels.webhook.h]\nverify = \"none\"",
        &[],
        "C:1: channels.webhook.h.allow_from: it is not set, and verify = \"none\" needs it",
    ),
    (
        "[gateway]\nlisten = \"[::]:1\"\ntoken = \"t-of-16-letters-\"\n[channels.webhook.h]\nverify = \"none\"\nallow_from = [\"*\"]",
        &[],
        "C:5: channels.webhook.h.verify: \"none\" is for callers on this machine, and gateway.listen is [::]:1",
    ),
    ("[agent]\nmodel = \"gpt\"", &[], "C:2: agent.model: \"gpt\" names no provider and model; allowed: \"auto\", or"),
    ("[agent]\nmodel = \"nowhere/x\"", &[], "C:2: agent.model: unknown provider \"nowhere\"; available: "),
    (
        "[agent]\nmodel = \"openai/x\"",
        &[],
        "C:2: agent.model: openai has no key: set providers.openai.api_key, or the environment variable OPENAI_API_KEY",
    ),
    (
        "[agent]\ntimezone = \"Mars/Olympus\"",
        &[],
        "C:2: agent.timezone: \"Mars/Olympus\" is not a known time zone; allowed: an IANA name",
    ),
    ("[owner]\nnotify = \"me\"", &[], "C:2: owner.notify: \"me\" names no channel and chat; allowed: \"CHANNEL:CHAT\""),
    ("[owner]\nidentities = [\"ann\"]", &[], "C:2: owner.identities: entry 1 is \"ann\"; allowed: \"CHANNEL:SENDER\""),
    (
        "[agent]\ntimezone = \"Europe/Berln\"",
        &[],
        "C:2: agent.timezone: \"Europe/Berln\" is not a known time zone; did you mean \"Europe/Berlin\"?; allowed: ",
    ),
    (
        "[approval.tools]\nrun_comand = \"deny\"",
        &[],
        "C:2: approval.tools.run_comand: \"run_comand\" is not a tool; the nearest is \"exec\"; allowed: read_file, ",
    ),
    (
        "[approval.tools]\n\"gthub__*\" = \"deny\"",
        &[],
        "C:2: approval.tools.\"gthub__*\": no tool's name begins with \"gthub__\", and no server in [mcp] has such tools",
    ),
    (
        "[approval.channels]\nemial = \"deny\"",
        &[],
        "C:2: approval.channels.emial: \"emial\" is not a channel; allowed: cli, webhook, email, api, page, mcp, or \
         webhook:NAME",
    ),
    (
        "[tools]\nstrangers_read = [\"../..\"]",
        &[],
        "C:2: tools.strangers_read: \"../..\" is not a path in the workspace; allowed: ",
    ),
    (
        "[tools.exec]\nenv = [\"FOO=bar\"]",
        &[],
        "C:2: tools.exec.env: \"FOO=bar\" is not the name of an environment variable; allowed: names such as",
    ),
    (
        "[tools.postprocess.semantic]\nmodel = \"auto\"",
        &[],
        "C:2: tools.postprocess.semantic.model: \"auto\" does not support embeddings; allowed: \"PROVIDER/MODEL\" such as",
    ),
    (
        "[agent.budget]\nturn_cost = 0",
        &[],
        "C:2: agent.budget.turn_cost: the number is out of range; allowed: a number from 0.000001",
    ),
    ("[[routes]]\nchannel = \"webhook:*\"", &[], "C:1: routes[0].agent: it is not set; allowed: "),
    ("[log]\n\n[[routes]]\nagent = \"assistant\"\n[[routes]]\n", &[], "C:5: routes[1].agent: it is not set; allowed: "),
    (
        "[tools]\ndisabled = [\"bash\", \"exce\"]",
        &[],
        "C:2: tools.disabled: \"exce\" is not a tool; the nearest is \"exec\"; allowed: read_file, write_file, ",
    ),
    (
        "\n[providers.openai]\napi_key = \"k\"\n[providers.openai.price]\ninput = 3",
        &[],
        "C:4: providers.openai.price.output: it is not set, and [providers.openai.price] needs it; allowed: a number",
    ),
    (
        "[agent]\nmodel = \"openai/x\"\n[providers.openai]\napi_key = \"env:NONE\"",
        &[],
        "C:4: providers.openai.api_key: the environment variable NONE is not set",
    ),
    ("[log]\nlevel = \"loud\"", &[], "C:2: log.level: \"loud\" is not a level; allowed: \"error\", "),
    // The environment.
    (
        "",
        &[("DAOYOU_AGENT__MODLE", "x")],
        "DAOYOU_AGENT__MODLE: agent.modle: unknown key; the nearest known key is agent.model",
    ),
    (
        "",
        &[("DAOYOU_AGENT__MAX_TOKENS", "many")],
        "DAOYOU_AGENT__MAX_TOKENS: agent.max_tokens: \"many\" is not a valid value; allowed: a whole number",
    ),
    (
        "[providers.x]\nbase_url = \"https://x.example/v1\"\nheaders = { \"bad header\" = \"x\" }",
        &[],
        "C:3: providers.x.headers.\"bad header\": \"bad header\" is not the name of a header; allowed: a name such \
         as X-Title",
    ),
    (
        "",
        &[("DAOYOU_APPROVAL", "deny")],
        "DAOYOU_APPROVAL: approval: approval is a table; name one of its keys, after DAOYOU_APPROVAL__; allowed: a table",
    ),
    (
        "",
        &[("DAOYOU_TOOLS__EXEC", "on")],
        "DAOYOU_TOOLS__EXEC: tools.exec: tools.exec is a table; name one of its keys",
    ),
];

#[test]
fn each_configuration_error_is_one_line_and_nothing_starts() {
    for (config, env, expected) in WRONG {
        let home = home_with(config.as_bytes());
        let file = home.path().join("config.toml").display().to_string();
        let expected = expected.strip_prefix('C').map_or((*expected).to_owned(), |rest| format!("{file}{rest}"));
        let ran = daoyou(home.path(), env, &["gateway", "--no-cli", "--log", "off"]);
        let errors = stderr(&ran);
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(78), 0), "{config}\n{errors}");
        assert_eq!(errors.lines().count(), 1, "{config}\n{errors}");
        assert!(errors.starts_with(&expected), "{config}\nexpected {expected}\ngot      {errors}");
        let made = fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.file_name());
        let made: Vec<_> = made.filter(|name| *name != "config.toml" && *name != "daoyou.lock").collect();
        assert!(made.is_empty(), "{config}: {made:?}");
    }
}

#[test]
fn all_configuration_errors_are_reported_at_once_in_order() {
    let home = home_with(b"[agent]\nmodle = 1\nlocale = \"de\"\n[log]\nformat = 1\n");
    let ran = daoyou(home.path(), &[("DAOYOU_STORE__RESERVE", "x")], &["config", "check", "--json"]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let keys: Vec<_> =
        report["faults"].as_array().unwrap().iter().map(|fault| fault["key"].as_str().unwrap()).collect();
    assert_eq!(
        (ran.status.code(), keys),
        (Some(78), vec!["agent.modle", "agent.locale", "log.format", "store.reserve"])
    );
}

/// Errors of single areas, independent errors and missing keys of nested tables are all reported together, each with its line.
#[test]
fn errors_of_every_area_are_reported_in_one_run() {
    let config = r#"[agent]
model = "nope/x"
modle = "x"
timezone = "Europe/Berln"
[agent.cache]
ttl = "0s"
[agent.session]
daily_reset = "25:99"
[memory]
model = "gone/y"
[tools]
disabled = ["exce"]
[tools.exec]
timeout = "0s"
[gateway.tls]
cert = "/nope/cert.pem"
[channels.webhook.in]
verify = "bearer"
model = "lost/z"
[channels.webhook.two]
secret = "env:NONE"
[providers.x]
price = { input = 1 }
[providers.y.price]
input = "a"
output = 1
"#;
    let home = home_with(config.as_bytes());
    let expected = [
        (2, "agent.model"),
        (3, "agent.modle"),
        (4, "agent.timezone"),
        (6, "agent.cache.ttl"),
        (8, "agent.session.daily_reset"),
        (10, "memory.model"),
        (12, "tools.disabled"),
        (14, "tools.exec.timeout"),
        (15, "gateway.tls.key"),
        (17, "channels.webhook.in.secret"),
        (19, "channels.webhook.in.model"),
        (21, "channels.webhook.two.secret"),
        (22, "providers.x.base_url"),
        (23, "providers.x.price.output"),
        (24, "providers.y.base_url"),
        (25, "providers.y.price.input"),
    ];
    let ran = daoyou(home.path(), &[], &["config", "check", "--json"]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let faults = report["faults"].as_array().unwrap().iter();
    let found: Vec<_> =
        faults.map(|fault| (fault["line"].as_u64().unwrap_or(0), fault["key"].as_str().unwrap())).collect();
    assert_eq!(found, expected, "{report:#}");
    // A start and a reload report the same errors.
    let ran = daoyou(home.path(), &[], &["gateway", "--no-cli"]);
    assert_eq!((ran.status.code(), stderr(&ran).lines().count()), (Some(78), expected.len()), "{}", stderr(&ran));
}

/// A credential that only the service can read is named, and is not a fault of the configuration.
#[test]
fn a_systemd_credential_is_not_checked_outside_of_the_service() {
    let config = "[agent]\nmodel = \"p/m\"\n[providers.p]\nbase_url = \"http://127.0.0.1:9\"\napi_key = \"cred:k\"\n\
                  [channels.webhook.in]\nverify = \"bearer\"\nsecret = \"cred:hook\"\n";
    let home = home_with(config.as_bytes());
    let warning = "config.toml:5: providers.p.api_key: a systemd credential can be read only in the service: \
                   CREDENTIALS_DIRECTORY is not set here\n";
    let ran = daoyou(home.path(), &[], &["config", "check"]);
    let errors = stderr(&ran);
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), &b"ok\n"[..]), "{errors}");
    assert!(errors.contains(warning) && errors.lines().count() == 2, "{errors}");
    let ran = daoyou(home.path(), &[], &["config", "check", "--json"]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&report["ok"], report["warnings"].as_array().unwrap().len()), (&Value::Bool(true), 2), "{report}");

    let ran = daoyou(home.path(), &[], &["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let about = |name: &str| checks.clone().filter(move |check| check["name"] == name).collect::<Vec<_>>();
    for name in ["model", "channel webhook:in"] {
        assert!(about(name).iter().all(|check| check["state"] == "warn"), "{report:#}");
    }
    assert!(about("config").iter().all(|check| check["state"] != "fail") && about("config").len() >= 3, "{report:#}");

    let config = config.replace("cred:hook", "env:NONE");
    let home = home_with(config.as_bytes());
    let ran = daoyou(home.path(), &[], &["config", "check"]);
    let errors = stderr(&ran);
    assert_eq!((ran.status.code(), errors.lines().count()), (Some(78), 1), "{errors}");
    assert!(errors.contains("the environment variable NONE is not set"), "{errors}");
}

/// Commands that need no secret work while one is missing. Commands that need it name it, and nothing starts.
#[test]
fn a_missing_secret_fails_only_commands_that_need_it() {
    let config = "[agent]\nmodel = \"offline\"\n[channels.webhook.in]\nverify = \"bearer\"\nsecret = \"env:NONE\"\n\
                  [providers.p]\nbase_url = \"http://127.0.0.1:9\"\napi_key = \"file:/none\"\n";
    let home = home_with(config.as_bytes());
    let backup = home.path().join("b.tar").display().to_string();
    let missing = "config.toml:5: channels.webhook.in.secret: the environment variable NONE is not set";
    for line in [
        "status",
        "status --json",
        "sessions list",
        "sessions search hello",
        "turns list",
        "queue list",
        "cron add --name tea --every 1h --message tea",
        "cron list",
        "cron run tea",
        "memory add tea",
        "memory show",
        "memory stats",
        "tools list",
        "models",
        "channels list",
        "config path",
        "config show",
        "config show --json",
        &format!("backup {backup}"),
    ] {
        let ran = daoyou(home.path(), &[], &line.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.status.code(), Some(0), "{line}: {}", stderr(&ran));
    }
    let ran = daoyou(home.path(), &[], &["status"]);
    let status = String::from_utf8_lossy(&ran.stdout);
    assert!(status.contains(&format!("it cannot start: {}/{missing}", home.path().display())), "{status}");
    assert!(status.contains("webhook:in failed: the environment variable NONE is not set"), "{status}");
    let ran = daoyou(home.path(), &[], &["config", "show"]);
    assert!(stderr(&ran).contains(missing), "{}", stderr(&ran));
    for line in ["gateway --no-cli", "agent -m hello", "chat", "config check", "channels test in", "models p"] {
        let ran = daoyou(home.path(), &[], &line.split(' ').collect::<Vec<_>>());
        let errors = stderr(&ran);
        assert_eq!((ran.status.code(), ran.stdout.len(), errors.lines().count()), (Some(78), 0, 2), "{line}: {errors}");
        assert!(
            errors.contains(missing) && errors.contains("config.toml:8: providers.p.api_key: cannot read"),
            "{errors}"
        );
    }
}

#[test]
fn an_unreadable_configuration_file_is_reported() {
    let run = |home: &TempDir| daoyou(home.path(), &[], &["gateway", "--no-cli"]);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("config.toml")).unwrap();
    let pipe = tempfile::tempdir().unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, pipe.path().join("config.toml"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let looped = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("config.toml", looped.path().join("config.toml")).unwrap();
    for (home, expected) in [
        (&folder, ": is a folder"),
        (&pipe, ": is not a file"),
        (&looped, ": cannot be read: Too many levels of symbolic links"),
        (&home_with(b"[agent]\nlocale = \"\xff\"\n"), ":2: the text is not UTF-8"),
    ] {
        let ran = run(home);
        let errors = stderr(&ran);
        let start = format!("{}{expected}", home.path().join("config.toml").display());
        assert_eq!((ran.status.code(), errors.lines().count()), (Some(78), 1), "{errors}");
        assert!(errors.starts_with(&start), "{errors}");
    }
    let ran = daoyou(folder.path(), &[], &["--config", "/nowhere/config.toml", "config", "check"]);
    assert_eq!((ran.status.code(), stderr(&ran).as_str()), (Some(78), "/nowhere/config.toml: there is no such file\n"));
}

#[test]
fn config_show_names_sources_and_hides_secrets() {
    let config = "[agent]\nlocale = \"zh\"\n[gateway]\ntoken = \"canary-1\"\n[providers.p]\nkind = \"openai\"\napi_key = \"env:KEY\"\n\
                  base_url = \"https://me:canary-2@example.org/v1\"\nheaders = { X = \"canary-3\" }\n";
    let home = home_with(config.as_bytes());
    let file = home.path().join("config.toml").display().to_string();
    let env = [("KEY", "canary-4"), ("DAOYOU_AGENT__MAX_ITERATIONS", "7"), ("DAOYOU_AGENT_MODEL", "auto")];
    let ran = daoyou(home.path(), &env, &["--log", "debug", "config", "show"]);
    let (shown, warned) = (String::from_utf8_lossy(&ran.stdout), stderr(&ran));
    for line in [
        format!("agent.locale = \"zh\"  # from {file}:2"),
        "agent.max_iterations = 7  # from DAOYOU_AGENT__MAX_ITERATIONS".to_owned(),
        "agent.memory_window = 100  # from default".to_owned(),
        format!("gateway.token = \"(hidden)\"  # from {file}:4"),
        format!("providers.p.api_key = \"(hidden)\"  # from {file}:7"),
        "log.level = \"debug\"  # from --log".to_owned(),
    ] {
        assert!(shown.lines().any(|one| one == line), "{line}\n{shown}");
    }
    assert!(warned.contains("DAOYOU_AGENT_MODEL sets nothing"), "{warned}");
    assert!(!shown.contains("canary") && !warned.contains("canary"), "{shown}{warned}");
    let ran = daoyou(home.path(), &env, &["config", "show", "--json"]);
    assert!(!String::from_utf8_lossy(&ran.stdout).contains("canary"));
}

/// An unusable home or port gives one line that says what to do, and nothing is half started.
#[test]
fn an_unusable_home_or_port_is_one_error_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let home = folder.path().join("home");
    for (home, errors) in [
        (home.as_path(), format!("gateway.listen: cannot listen on {listen}: Address already in use")),
        (file.as_path(), "it is not a folder; choose another with --home".to_owned()),
        (&file.join("home"), "cannot be made: Not a directory".to_owned()),
        (Path::new("/proc/daoyou"), "cannot be made: ".to_owned()),
    ] {
        let ran = daoyou(home, &[("DAOYOU_GATEWAY__LISTEN", &listen)], &["gateway", "--no-cli", "--log", "off"]);
        let text = stderr(&ran);
        assert_eq!((ran.status.code(), ran.stdout.len(), text.lines().count()), (Some(1), 0, 1), "{text}");
        assert!(text.starts_with("daoyou: ") && text.contains(&errors), "{errors}: {text}");
    }
    let left: Vec<_> = fs::read_dir(&home).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["daoyou.lock"], "nothing but the lock's file was made");
}

/// Runs command lines in a home that is mounted read-only, until one fails; `None` if this machine cannot mount it.
fn in_read_only_home(home: &Path, lines: &[&str]) -> Option<Output> {
    let path = home.display();
    let commands: String = lines.iter().map(|line| format!(" && {} {line}", binary().display())).collect();
    let script = format!("mount --bind {path} {path} && mount -o remount,bind,ro {path}{commands}");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    match command.env("DAOYOU_HOME", home).env("LANG", "C").stdin(Stdio::null()).output() {
        Ok(ran) if !stderr(&ran).contains("unshare:") && !stderr(&ran).contains("mount:") => Some(ran),
        other => {
            skip_story(&format!("this machine mounts nothing for us: {other:?}"));
            None
        }
    }
}

/// Commands that only read answer in a home that cannot be written, with or without a log of the database.
#[test]
fn commands_that_read_need_no_writable_home() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let asked = daoyou(home.path(), &[], &["agent", "-m", "what time is it?"]);
    assert_eq!(asked.status.code(), Some(0), "{}", stderr(&asked));
    let lines = [
        "sessions list", "sessions show cli:direct", "turns list", "memory show", "status", "queue list", "cron list",
        "channels list",
    ];
    for has_log in [false, true] {
        if has_log {
            fs::write(home.path().join("daoyou.db-wal"), "").unwrap();
        }
        let Some(ran) = in_read_only_home(home.path(), &lines) else { return };
        let shown = String::from_utf8_lossy(&ran.stdout);
        assert_eq!((ran.status.code(), stderr(&ran).as_str()), (Some(0), ""), "{shown}");
        assert!(shown.contains("cli:direct") && shown.contains("what time is it?"), "{shown}");
        let archives = tempfile::tempdir().unwrap();
        let line = format!("backup {}/b.tar", archives.path().display());
        let Some(ran) = in_read_only_home(home.path(), &[&line]) else { return };
        let shown = String::from_utf8_lossy(&ran.stdout);
        assert_eq!((ran.status.code(), stderr(&ran).as_str()), (Some(0), ""), "{shown}");
        assert!(shown.contains("messages accepted so far: 1"), "{shown}");
        let Some(ran) = in_read_only_home(home.path(), &["doctor"]) else { return };
        let shown = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(stderr(&ran), "");
        // The sandbox cannot be tried there, either.
        for (name, folder) in [("home", ""), ("workspace", "/workspace")] {
            let expected = format!("{folder}: it is on a read-only file system");
            assert!(
                shown.lines().any(|line| line.starts_with(&format!("fail  {name} ")) && line.contains(&expected)),
                "{shown}"
            );
        }
        for name in ["gateway", "database", "index", "outbound"] {
            assert!(shown.lines().any(|line| line.starts_with(&format!("ok    {name} "))), "{name}: {shown}");
        }
    }
}

/// On a read-only file system the same holds for commands that write, even for root. The gateway waits there (`attack::storage`).
#[test]
fn a_read_only_home_is_one_error_line_for_commands_that_write() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let Some(ran) = in_read_only_home(home.path(), &["cron run x"]) else { return };
    let text = stderr(&ran);
    assert_eq!((ran.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(
        text.contains("cannot be used: Read-only file system") && text.contains("choose another with --home"),
        "{text}"
    );
}
