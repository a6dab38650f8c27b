//! Tests that read configuration files and environments.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use daoyou_channels::settings::join_key;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, mknodat};

use super::load::read_pipe;
use super::shape::SettingShape;
use super::*;

const EXAMPLE: &str = include_str!("../../config.example.toml");

/// Reads `text` as `config.toml`; returns faults as their lines, without the folder.
fn read(text: &[u8], env: &[(&str, &str)]) -> Result<LoadedConfig, Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, text).unwrap();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let folder = format!("{}/", dir.path().display());
    load(ConfigSource::Required(&file), &env)
        .map_err(|faults| faults.iter().map(|fault| fault.to_string().replace(&folder, "")).collect())
}

/// Returns the example with its commented settings enabled.
fn uncommented() -> String {
    let on = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting.to_owned(),
        _ => line.to_owned(),
    };
    EXAMPLE.lines().map(on).collect::<Vec<_>>().join("\n")
}

/// Collects the paths of all keys, with `NAME` for names that the user chooses.
fn keys(shape: &SettingShape, path: &str, into: &mut BTreeSet<String>) {
    match shape {
        SettingShape::Table(table, _) => {
            table.iter().for_each(|(name, inner)| keys(inner, &join_key(path, name), into));
        }
        SettingShape::Map(each) if matches!(**each, SettingShape::Table(..)) => {
            keys(each, &join_key(path, "NAME"), into);
        }
        _ => drop(into.insert(path.to_owned())),
    }
}

#[test]
fn the_example_is_exactly_the_defaults() {
    let loaded = read(EXAMPLE.as_bytes(), &[]).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(read(b"", &[]).unwrap().config, Config::default());
}

#[test]
fn the_example_explains_each_table_in_a_comment_above_it() {
    for (comment, table) in [("# Scheduled prompts.", "[cron]"), ("# Senders who are one and the same", "[identities]")]
    {
        let lines: Vec<&str> = EXAMPLE.lines().collect();
        let at = lines.iter().position(|line| *line == table).unwrap();
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with("# ")).last();
        assert!(above.is_some_and(|line| line.starts_with(comment)), "{table}: {above:?}");
    }
}

#[test]
fn the_example_shows_every_key_and_each_commented_one_is_right() {
    let text = uncommented();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let env = ["NAME_API_KEY", "DAOYOU_TOKEN", "WEBHOOK_SECRET", "CALLBACK_SECRET", "MAIL_PASSWORD", "SEARCH_API_KEY"];
    let env = env.map(|name| (name, secret));
    let loaded = read(text.as_bytes(), &env).unwrap();
    let mut all = BTreeSet::new();
    keys(SettingShape::config(), "", &mut all);
    let shown = all.iter().filter(|key| {
        let table = loaded.origin(key) != SettingOrigin::Default;
        assert!(table, "config.example.toml does not show {key}");
        table
    });
    assert!(shown.count() > 50);
    // A commented key shows its default if it has one, and an example value otherwise.
    let hook = &loaded.config.channels.webhook["NAME"];
    let plain = daoyou_channels::webhook::WebhookConfig::default();
    assert_eq!((hook.enabled, hook.verify, &hook.retry), (plain.enabled, plain.verify, &plain.retry));
    let provider = loaded.config.providers["NAME"].clone();
    let unset = crate::llm::ProviderConfig {
        kind: None,
        api_key: None,
        base_url: None,
        headers: [].into(),
        images: None,
        context_tokens: None,
        price: None,
        ..provider
    };
    assert_eq!(unset, crate::llm::ProviderConfig::default());
}

#[test]
fn every_setting_of_the_example_is_explained() {
    let mut before = "";
    for line in EXAMPLE.lines() {
        let setting = line.strip_prefix('#').unwrap_or(line);
        if setting.starts_with(|c: char| c.is_ascii_lowercase()) && setting.contains(" = ") {
            assert!(before.starts_with("# "), "no explanation above {line:?}");
        }
        before = line;
    }
}

#[test]
fn values_are_read_with_their_origins() {
    let text = "[agent]\nlocale = \"zh\"\ntemperature = 1\n[providers.my-llm]\napi_key = \"env:KEY\"\nheaders.\"X-A\" = \"b\"\n";
    let env = [
        ("KEY", "sk-1"),
        ("DAOYOU_AGENT__MODEL", "my-llm/large"),
        ("DAOYOU_agent__Turn_Timeout", "5m"),
        ("DAOYOU_AGENT__MAX_TOKENS", " 100 "),
        ("DAOYOU_PROVIDERS__MY_LLM__STREAM", "false"),
        ("DAOYOU_PROVIDERS__DEEPSEEK__API_KEY", "sk-2"),
        ("DAOYOU_TOOLS__DISABLED", "exec, message"),
        ("DAOYOU_TOOLS__EXEC__ENV", "[\"A\", \"B\"]"),
        ("DAOYOU_CHANNELS__EMAIL__ALLOW_FROM", "ann@example.org, @example.net"),
        ("DAOYOU_CHANNELS__EMAIL__MAILBOX", "INBOX, Work"),
        ("DAOYOU_CHANNELS__EMAIL__IMAP_PORT", "1993"),
        ("DAOYOU_CHANNELS__EMAIL__IMAP_PASSWORD", "env:KEY"),
        ("DAOYOU_LOG", "debug"),
        ("DAOYOU_HOME", "/nowhere"),
        ("DAOYOU_CRASH_AT", "accept"),
        ("OTHER__THING", "x"),
    ];
    let loaded = read(text.as_bytes(), &env[..1]).unwrap();
    assert_eq!(loaded.config.agent.temperature, Some(1.0));
    assert!(loaded.origin("agent.locale").to_string().ends_with("config.toml:2"));
    assert_eq!(loaded.origin("agent.model"), SettingOrigin::Default);

    let loaded = read(text.as_bytes(), &env).unwrap();
    let config = &loaded.config;
    assert_eq!((config.agent.model.as_str(), config.agent.max_tokens), ("my-llm/large", Some(100)));
    let mine = &config.providers["my-llm"];
    assert_eq!((mine.api_key.as_ref().unwrap().expose(), mine.stream), ("sk-1", false));
    assert_eq!(mine.headers["X-A"].expose(), "b");
    assert_eq!(config.providers["deepseek"].api_key.as_ref().unwrap().expose(), "sk-2");
    assert_eq!(config.tools.disabled, ["exec", "message"]);
    assert_eq!(config.tools.exec.env, ["A", "B"]);
    let email = &config.channels.email;
    assert_eq!(email.allow_from.entries().collect::<Vec<_>>(), ["ann@example.org", "@example.net"]);
    assert_eq!((email.mailbox.names(), email.imap_port), (&["INBOX".to_owned(), "Work".to_owned()][..], Some(1993)));
    assert_eq!(email.imap_password.as_ref().unwrap().expose(), "sk-1");
    assert!(loaded.secrets().any(|(key, _)| key == "channels.email.imap_password"), "it is redacted from output");
    assert_eq!(config.log.level, "debug");
    assert_eq!(config.agent.turn_timeout.to_string(), "5m");
    assert_eq!(loaded.origin("log.level"), SettingOrigin::Env("DAOYOU_LOG".into()));
    assert_eq!(loaded.origin("providers.my-llm.stream"), SettingOrigin::Env("DAOYOU_PROVIDERS__MY_LLM__STREAM".into()));
}

#[test]
fn tables_and_lists_of_the_environment_are_toml() {
    let text = "[store]\nretain = { sessions = \"1d\" }\n[[routes]]\nchannel = \"email\"\nagent = \"coder\"\n\
                [mcp.notes.env]\nKEY = \"env:NONE\"\n";
    let env = [
        ("DAOYOU_STORE__RETAIN", " { turns = \"5d\" }"),
        ("DAOYOU_STORE__RETAIN__OUTBOX", "6d"),
        ("DAOYOU_APPROVAL__TOOLS", "{ exec = \"always\" }"),
        ("DAOYOU_PROVIDERS__X__API_KEY", "k"),
        ("DAOYOU_PROVIDERS__X__PRICE", "{ input = 1, output = 2.5, currency = \"EUR\" }"),
        ("DAOYOU_MCP__NOTES__COMMAND", "[\"notes\"]"),
        ("DAOYOU_MCP__NOTES__ENV", "{ KEY = \"env:SECRET\" }"),
        ("DAOYOU_ROUTES", "[{ channel = \"cli\", agent = \"explorer\" }]"),
        ("SECRET", "canary"),
    ];
    let loaded = read(text.as_bytes(), &env).unwrap();
    let config = &loaded.config;
    let retain = [&config.store.retain.sessions, &config.store.retain.turns, &config.store.retain.outbox];
    let retain = retain.map(|span| span.as_ref().map(ToString::to_string));
    assert_eq!(retain, [None, Some("5d".to_owned()), Some("6d".to_owned())], "the table replaces that of the file");
    assert_eq!(loaded.origin("store.retain.sessions"), SettingOrigin::Default);
    assert_eq!(loaded.origin("store.retain.turns"), SettingOrigin::Env("DAOYOU_STORE__RETAIN".into()));
    assert!(config.approval.tools.contains_key("exec"));
    assert_eq!(config.providers["x"].price.as_ref().map(|price| price.output), Some(2.5));
    assert_eq!(config.mcp["notes"].env["KEY"].expose(), "canary");
    let routes: Vec<_> = config.routes.iter().map(|route| (route.channel.as_str(), route.agent.as_str())).collect();
    assert_eq!(routes, [("cli", "explorer")]);
    assert!(!loaded.warnings.iter().any(|warning| warning.contains("ROUTES")), "{:?}", loaded.warnings);
}

/// Checks each block of `faults.txt`: a file, variables after `$ `, the faults after `=> `. A final `…` matches any rest.
#[test]
fn every_fault_is_one_line_with_the_allowed_values() {
    let blocks: Vec<&str> = include_str!("faults.txt").split("\n\n").skip(1).collect();
    assert!(blocks.len() > 40);
    for block in blocks {
        let written: Vec<&str> =
            block.lines().filter(|line| !line.starts_with("=> ") && !line.starts_with("$ ")).collect();
        let env: Vec<_> = block.lines().filter_map(|line| line.strip_prefix("$ ")?.split_once('=')).collect();
        let expected: Vec<_> = block.lines().filter_map(|line| line.strip_prefix("=> ")).collect();
        let got = read(written.join("\n").as_bytes(), &env).expect_err(block);
        assert_eq!(got.len(), expected.len(), "{block}\n{got:#?}");
        for (got, expected) in got.iter().zip(expected) {
            let right = expected.strip_suffix('…').map_or(got == expected, |start| got.starts_with(start));
            assert!(right, "{block}\nexpected {expected}\ngot {got}");
            assert!(!got.contains('\n') && !got.contains("canary"), "{got}");
        }
    }
    let got = read(b"[agent]\nmodel = \"\xff\"\n", &[]).unwrap_err();
    assert_eq!(got, ["config.toml:2: the text is not UTF-8"]);
}

/// `auto` uses the first provider of the file, so the order of the file is kept; providers of the environment follow.
#[test]
fn providers_keep_the_order_of_the_file() {
    let text = "[providers.zeta]\napi_key = \"k\"\n[agent]\nlocale = \"en\"\n[providers.alpha]\napi_key = \"k\"\n";
    let loaded = read(text.as_bytes(), &[("DAOYOU_PROVIDERS__BETA__API_KEY", "k")]).unwrap();
    assert_eq!(loaded.config.providers.keys().collect::<Vec<_>>(), ["zeta", "alpha", "beta"]);
}

#[test]
fn only_a_file_that_the_user_named_must_exist() {
    let none = Path::new("/nowhere/config.toml");
    let loaded = load(ConfigSource::IfPresent(none), &[].into()).unwrap();
    assert_eq!((&loaded.config, &loaded.file), (&Config::default(), &None));
    let faults = load(ConfigSource::Required(none), &[].into()).unwrap_err();
    assert_eq!(faults[0].to_string(), "/nowhere/config.toml: there is no such file");
    let dir = tempfile::tempdir().unwrap();
    let faults = load(ConfigSource::IfPresent(dir.path()), &[].into()).unwrap_err();
    assert!(faults[0].to_string().ends_with(": is a folder"), "{}", faults[0]);
}

#[test]
fn a_pipe_is_read_to_its_end_unless_nobody_writes_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
    let error = read_pipe(&pipe, Duration::ZERO).unwrap_err();
    assert_eq!(error.to_string(), "nobody writes to this pipe");
    // Open for both, so that it does not wait for a reader.
    let writer = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let error = read_pipe(&pipe, Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.to_string(), "its writer does not close this pipe");
    drop(writer);
    let to = pipe.clone();
    // Waits for the reader.
    let writing = thread::spawn(move || fs::write(to, "[log]\n").unwrap());
    assert_eq!(read_pipe(&pipe, Duration::from_secs(60)).unwrap(), b"[log]\n");
    writing.join().unwrap();
}

#[test]
fn a_warning_names_a_variable_with_too_few_underscores() {
    let env = [("DAOYOU_AGENT_MAX_TOKENS", "1"), ("DAOYOU_TOOLS_EXEC_SANDBOX", "1"), ("DAOYOU_TOKEN", "t")];
    let loaded = read(b"", &env).unwrap();
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    assert!(loaded.warnings[0].contains("agent.max_tokens is set by DAOYOU_AGENT__MAX_TOKENS"));
}

#[test]
fn a_warning_names_a_webhook_secret_that_can_be_guessed() {
    for (verify, secret, expected) in [
        (
            "bearer",
            "s",
            "config.toml:4: channels.webhook.h.secret: so short a secret can be guessed; use 16 characters",
        ),
        ("bearer", "16-characters-ok", ""),
        (
            "standard",
            "abc",
            "config.toml:4: channels.webhook.h.secret: so short a secret can be guessed; use \"whsec_\"",
        ),
        ("standard", "whsec_MjQgYnl0ZXMgYXJlIGp1c3QgZW5vdWdo", ""),
        ("github", "s", ""),
    ] {
        let text = format!("[gateway]\n[channels.webhook.h]\nverify = {verify:?}\nsecret = {secret:?}\n");
        let loaded = read(text.as_bytes(), &[]).unwrap();
        let warnings: Vec<_> = loaded.warnings.iter().filter(|warning| !warning.contains("chmod")).collect();
        let is_right = warnings.iter().all(|warning| warning.contains(expected) && !expected.is_empty());
        assert!(is_right && warnings.is_empty() == expected.is_empty(), "{verify} {secret}: {warnings:?}");
    }
}

#[test]
fn an_empty_variable_of_the_log_counts_as_unset() {
    let loaded = read(b"[log]\nlevel = \"debug\"\n", &[("DAOYOU_LOG", "")]).unwrap();
    assert_eq!(loaded.config.log.level, "debug");
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn changes_are_listed_without_secrets() {
    let before = "[agent]\nmax_iterations = 3\ntemperature = 1\n[providers.p]\napi_key = \"canary-1\"\n[providers.q]\n\
                  [log]\nlevel = \"info\"\n";
    let after = "[agent]\nmax_iterations = 4\nturn_timeout = \"600s\"\n[providers.p]\napi_key = \"canary-2\"\n\
                 [providers.r]\nmodel = \"m\"\n";
    let (before, after) = (read(before.as_bytes(), &[]).unwrap(), read(after.as_bytes(), &[]).unwrap());
    let changes: Vec<_> = before.changes(&after).iter().map(ToString::to_string).collect();
    let of = |start: &str| changes.iter().filter(|change| change.starts_with(start)).count();
    for expected in [
        "agent.max_iterations 3 → 4",
        "agent.temperature 1.0 → (not set)",
        "providers.p.api_key (another secret)",
        "providers.r.model (not set) → \"m\"",
        "providers.q.model \"\" → (not set)",
    ] {
        assert!(changes.iter().any(|change| change == expected), "{expected}: {changes:#?}");
    }
    assert_eq!((of("agent."), of("providers.p"), of("log.")), (2, 1, 0), "{changes:#?}");
    assert!(!changes.concat().contains("canary"));
    assert!(before.changes(&before).is_empty());
}

#[test]
fn a_warning_names_a_secret_that_others_can_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "[providers.p]\napi_key = \"sk-canary\"\n").unwrap();
    for (mode, warnings) in [(0o600, 0), (0o640, 0), (0o644, 1)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let loaded = load(ConfigSource::Required(&file), &[].into()).unwrap();
        assert_eq!(loaded.warnings.len(), warnings, "{mode:o} {:?}", loaded.warnings);
        assert!(!format!("{loaded:?}").contains("canary"));
    }
}

#[test]
fn a_warning_names_mail_that_will_not_be_answered() {
    let text = "[channels.email]\nenabled = true\naddress = \"a@gmail.com\"\nimap_password = \"canary\"\n\
                authserv_id = \"mx.google.com\"\nallow_from = [\"ann@example.org\"]\n\
                [owner]\nidentities = [\"email:me@example.org\"]\n";
    let loaded = read(text.as_bytes(), &[]).unwrap();
    let warnings = loaded.warnings.iter().filter(|warning| !warning.contains("chmod")).collect::<Vec<_>>();
    assert!(
        warnings[0].contains("config.toml:1: channels.email.consent_granted: the channel is inactive"),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("config.toml:6: channels.email.allow_from: \"me@example.org\" is in"), "{warnings:?}");
    assert_eq!(warnings.len(), 2);
}

#[test]
fn the_path_of_own_certificates_starts_at_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "[channels.email]\nca_file = \"ca.pem\"\n").unwrap();
    let loaded = load(ConfigSource::Required(&file), &[].into()).unwrap();
    assert_eq!(loaded.config.channels.email.ca_file, Some(dir.path().join("ca.pem")));
}

#[test]
fn the_list_of_settings_contains_no_secret() {
    let text = "[gateway]\ntoken = \"canary\"\n[providers.p]\napi_key = \"canary\"\nheaders = { X = \"canary\" }\n\
                base_url = \"https://user:canary@example.org/v1\"\n[channels.email]\nimap_password = \"canary\"\n\
                smtp_password = \"canary\"\n";
    let loaded = read(text.as_bytes(), &[]).unwrap();
    let settings = loaded.settings();
    let all = format!("{settings:?} {} {loaded:?}", loaded.masked());
    assert!(!format!("{settings:?} {}", loaded.masked()).contains("canary"), "{all}");
    let of = |key: &str| settings.iter().find(|one| one.key == key).unwrap();
    assert_eq!(of("providers.p.headers.X").value, Some("(hidden)".into()));
    assert_eq!(of("providers.p.base_url").value, Some("https://(hidden)@example.org/v1".into()));
    assert_eq!(of("channels.email.imap_password").value, Some("(hidden)".into()));
    assert_eq!((&of("agent.temperature").value, &of("agent.model").origin), (&None, &SettingOrigin::Default));
}

proptest! {
    #[test]
    fn no_input_causes_a_panic(text in "(\\[[a-z.]{0,12}\\]\n|[a-z_.\"]{1,9} = [\\[\\]{}\"a-z0-9,.'#-]{0,9}\n|\\PC{0,20}\n){0,8}") {
        if let Err(faults) = read(text.as_bytes(), &[]) {
            prop_assert!(!faults.is_empty());
            prop_assert!(faults.iter().all(|fault| !fault.contains('\n')));
        }
    }
}
