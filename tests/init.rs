//! `daoyou init`: the first five minutes, by options and at a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use tokio::process::Command;
use tokio::task::block_in_place;

use crate::support::gateway::CommandOutput;
use crate::support::mail::{ASSISTANT, Dovecot, PASSWORD, Postfix};
use crate::support::pty::Terminal;
use crate::support::{Gateway, Model, Reply, Setup, deadline};

const CANARY: &str = "sk-canary-0123456789";

/// Runs a command in the home, whose config.toml stays as it is.
async fn output_of(gateway: &Gateway, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let mut command: Command = gateway.command(args);
    command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let output = deadline(&format!("daoyou {args:?}"), child.wait_with_output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs a command like [`output_of`]; its output must not contain the key.
async fn run(gateway: &Gateway, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let ran = output_of(gateway, args, env).await;
    assert!(!format!("{ran:?}").contains(CANARY), "{ran:?}");
    ran
}

fn config(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.home().join("config.toml")).unwrap()
}

fn names(gateway: &Gateway) -> Vec<String> {
    let names = fs::read_dir(gateway.home()).into_iter().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(gateway: &Gateway, name: &str) -> u32 {
    fs::metadata(gateway.home().join(name)).unwrap().permissions().mode() & 0o777
}

/// A fresh machine with a key in the environment needs one command.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_the_environment_needs_no_question() {
    let model = Model::start().await;
    let gateway = Gateway::new(Setup::new());
    let env = [("OPENAI_API_KEY", CANARY), ("OPENAI_BASE_URL", &model.base_url())];
    let ran = run(&gateway, &["init", "--yes", "--timezone", "Asia/Shanghai", "--locale", "en"], &env).await;
    assert!(ran.code == Some(0) && ran.stderr.contains("it answers as openai/scripted"), "{ran:?}");
    assert!(ran.stdout.contains("+ model = \"openai/scripted\""), "{ran:?}");
    assert_eq!((names(&gateway), mode(&gateway, "config.toml")), (vec!["config.toml".to_owned()], 0o600));
    let written = config(&gateway);
    for line in ["api_key = \"env:OPENAI_API_KEY\"", "timezone = \"Asia/Shanghai\"", "locale = \"en\"", "# The key: "] {
        assert!(written.contains(line), "{line}: {written}");
    }
    assert_eq!(model.count(), 1, "one real call");
    let check = run(&gateway, &["config", "check"], &env).await;
    assert_eq!((check.code, check.stdout.as_str(), check.stderr.as_str()), (Some(0), "ok\n", ""));
    let ran = run(&gateway, &["agent", "-m", "hello"], &env).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "echo: hello\n"), "{ran:?}");

    // The second run has nothing to do, and the missing key is not an obstacle.
    let ran = run(&gateway, &["init", "--yes"], &[]).await;
    assert!(ran.code == Some(0) && ran.stderr.contains("nothing to change"), "{ran:?}");
    assert_eq!(config(&gateway), written);
    let missing = run(&gateway, &["config", "check"], &[]).await;
    assert!(missing.code == Some(78) && missing.stderr.contains("OPENAI_API_KEY is not set"), "{missing:?}");
}

/// `--locale` is the language of everything that this run writes.
#[tokio::test(flavor = "multi_thread")]
async fn every_comment_has_the_language_of_the_option() {
    let model = Model::start().await;
    let gateway = Gateway::new(Setup::new());
    let env = [("OPENAI_API_KEY", CANARY), ("OPENAI_BASE_URL", &model.base_url())];
    let ran = run(&gateway, &["init", "--yes", "--timezone", "Asia/Shanghai", "--locale", "zh"], &env).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let written = config(&gateway);
    let comments: Vec<_> = written.lines().filter(|line| line.starts_with('#')).collect();
    assert!(comments.len() > 2 && comments.iter().all(|comment| !comment.is_ascii()), "{written}");
}

/// If no model is found, the built-in responder stays, and the gateway says how to connect a model.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_the_gateway_says_how_to_connect_one() {
    let gateway = Gateway::new(Setup::new());
    let ran = run(&gateway, &["init", "--yes"], &[]).await;
    assert!(ran.code == Some(0) && ran.stderr.contains("set a key such as OPENAI_API_KEY"), "{ran:?}");
    let mut gateway = Gateway::new(Setup::new().set("agent.model", "auto"));
    gateway.up().await;
    assert!(gateway.logs().contains("connect one with `daoyou init`"), "{}", gateway.logs());
    gateway.stop().await;
    block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["chat"]);
        terminal.expect("`daoyou init` connects one");
        terminal.expect("You> ");
        terminal.line("/exit");
        assert_eq!(terminal.wait_exit(), Some(0));
    });
    let mut gateway = Gateway::new(Setup::new());
    gateway.up().await;
    assert!(!gateway.logs().contains("daoyou init"), "{}", gateway.logs());
}

/// An unusable option gives one clear error, and nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_option_writes_nothing() {
    let model = Model::start().await;
    model.script(|_| Some(Reply::status(401)));
    let gateway = Gateway::new(Setup::new());
    let (base, unreachable) = (model.base_url(), "http://127.0.0.1:9/v1");
    let mine = |base| ["--provider", "mine", "--base-url", base, "--model", "m"];
    for (args, code, expected) in [
        (&[][..], 2, "there is no terminal: use --yes"),
        (&["--yes", "--api-key-env", CANARY], 2, "NAME of an environment variable"),
        (&["--yes", "--provider", "openai", "--api-key-env", "NONE"], 1, "NONE is not set: export NONE"),
        (&["--yes", "--provider", "deepseek"], 1, "export DEEPSEEK_API_KEY"),
        (&["--yes", "--provider", "mine"], 1, "add its address with --base-url"),
        (&["--yes", "--model", "gpt"], 1, "write --model PROVIDER/MODEL"),
        (&["--yes", "--base-url", unreachable], 1, "add --provider NAME"),
        (&["--yes", "--timezone", "Mars/Olympus"], 78, "--timezone: agent.timezone: \"Mars/Olympus\" is not"),
        (&["--no-test"], 2, "--yes"),
        (&[&["--yes"], &mine("ftp://x")[..]].concat(), 78, "--base-url: providers.mine.base_url: the value is not"),
        (&[&["--yes"], &mine(unreachable)[..]].concat(), 1, "asked: http://127.0.0.1:9/v1/chat/completions"),
        (&[&["--yes"], &mine(&base)[..]].concat(), 1, "it refuses the key"),
    ] {
        let shown = args.join(" ");
        // A key in place of its variable's name is refused. The error for a wrong argument quotes it, since the shell has it already.
        let ran = if shown.contains(CANARY) {
            output_of(&gateway, &[&["init"], args].concat(), &[]).await
        } else {
            run(&gateway, &[&["init"], args].concat(), &[]).await
        };
        assert!(ran.code == Some(code) && ran.stderr.contains(expected), "{shown}: {ran:?}");
        assert_eq!(names(&gateway), [""; 0], "{shown}");
    }
    let saved = [&["init", "--yes", "--no-test"], &mine(unreachable)[..]].concat();
    let ran = run(&gateway, &saved, &[]).await;
    assert_eq!((ran.code, names(&gateway)), (Some(0), vec!["config.toml".to_owned()]), "{ran:?}");
    assert_eq!(run(&gateway, &["config", "check"], &[]).await.code, Some(0));
}

/// A key of config.toml whose environment variable is missing is named, and nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_variable_of_a_configured_key_is_named() {
    let gateway = Gateway::new(Setup::new());
    fs::create_dir(gateway.home()).unwrap();
    let before = "[providers.x]\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key = \"env:NONE\"\n";
    fs::write(gateway.home().join("config.toml"), before).unwrap();
    let ran = run(&gateway, &["init", "--yes", "--provider", "x", "--model", "m"], &[]).await;
    assert_eq!((ran.code, config(&gateway).as_str()), (Some(1), before), "{ran:?}");
    for expected in ["the environment variable NONE is not set", "export NONE='the secret'"] {
        assert!(ran.stderr.contains(expected) && !ran.stderr.contains("it is not set up"), "{ran:?}");
    }
    let ran = run(&gateway, &["init", "--yes", "--timezone", "Mars/Olympus"], &[]).await;
    assert!(ran.code == Some(78) && ran.stderr.contains("--timezone") && !ran.stderr.contains("NONE"), "{ran:?}");
}

/// An existing configuration keeps its comments, its order and its secrets. A broken configuration stays unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn an_existing_configuration_changes_only_where_asked() {
    let model = Model::start().await;
    let gateway = Gateway::new(Setup::new());
    let before = format!(
        "# mine\n[providers.old]\nbase_url = \"{0}\"\napi_key = \"{CANARY}\" # a key\n\n[agent]\n# first\nmodel = \"old/scripted\" # good\nlocale = \"en\"\n",
        model.base_url()
    );
    fs::create_dir(gateway.home()).unwrap();
    let path = gateway.home().join("config.toml");
    fs::write(&path, &before).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let args = ["init", "--yes", "--provider", "new", "--base-url", &model.base_url(), "--model", "scripted"];
    let ran = run(&gateway, &args, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("- model = \"old/scripted\" # good\n+ model = \"new/scripted\" # good"), "{ran:?}");
    let expected = before.replace("old/scripted", "new/scripted");
    let after = config(&gateway);
    assert!(after.contains("[providers.new]"), "{after}");
    let rest: Vec<&str> = after.lines().filter(|line| !expected.lines().any(|old| old == *line)).collect();
    assert_eq!(rest, ["[providers.new]", "# The address of the service."], "{after}");
    assert!(expected.lines().all(|line| after.contains(line)), "{after}");
    assert_eq!(mode(&gateway, "config.toml"), 0o640, "the mode is the owner's choice");

    let broken = "[agent]\nmodle = \"x\"\n";
    fs::write(&path, broken).unwrap();
    let ran = run(&gateway, &args, &[]).await;
    assert!(
        ran.code == Some(78) && ran.stderr.contains("agent.modle") && ran.stderr.contains("correct it first"),
        "{ran:?}"
    );
    assert_eq!(config(&gateway), broken);
}

/// Answers the question that contains `text`.
fn answer(terminal: &mut Terminal, text: &str, answer: &str) {
    terminal.expect(text);
    terminal.keys(&format!("{answer}\r"));
}

/// At a terminal, a custom service: its key is typed, tested, replaced after a refusal, and stored in a file.
#[tokio::test(flavor = "multi_thread")]
async fn questions_lead_to_a_working_gateway() {
    let model = Model::start().await;
    model.nth(1, Reply::status(401));
    let mut gateway = Gateway::new(Setup::new().env("NO_COLOR", "1"));
    let screen = block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["init"]);
        answer(&mut terminal, "Language", "English");
        answer(&mut terminal, "Model service:", "by its address");
        answer(&mut terminal, "A name for it:", "");
        answer(&mut terminal, "Its address", &model.base_url());
        answer(&mut terminal, "It speaks like:", "");
        answer(&mut terminal, "Key of mine", "sk-wrong");
        answer(&mut terminal, "Model:", "");
        terminal.expect("it refuses the key");
        terminal.expect(&format!("asked: {}/chat/completions", model.base_url()));
        answer(&mut terminal, "What now?", "another key");
        answer(&mut terminal, "Key of mine", CANARY);
        answer(&mut terminal, "Model:", "scripted");
        terminal.expect("it answers as mine/scripted");
        answer(&mut terminal, "Set up e-mail?", "n");
        answer(&mut terminal, "Set up a webhook", "y");
        answer(&mut terminal, "Its name:", "");
        terminal.expect("its settings are sound");
        answer(&mut terminal, "Time zone:", "Mars/Olympus");
        terminal.expect("is not a known time zone");
        answer(&mut terminal, "Time zone:", "Europe/Berlin");
        if fs::exists("/run/systemd/system").unwrap() && !rustix::process::geteuid().is_root() {
            answer(&mut terminal, "systemd service", "n");
        }
        answer(&mut terminal, "Write this?", "y");
        terminal.expect("daoyou gateway");
        assert_eq!(terminal.wait_exit(), Some(0));
        assert!(terminal.is_cooked());
        terminal.screen()
    });
    assert!(!screen.contains("sk-"), "{screen}");
    assert_eq!(names(&gateway), ["config.toml", "mine.key", "webhook-inbox.secret"]);
    for name in names(&gateway) {
        assert_eq!(mode(&gateway, &name), 0o600, "{name}");
    }
    assert_eq!(fs::read_to_string(gateway.home().join("mine.key")).unwrap(), CANARY);
    let written = config(&gateway);
    assert!(written.contains("api_key = \"file:mine.key\"") && !written.contains(CANARY), "{written}");
    let check = run(&gateway, &["config", "check"], &[]).await;
    assert_eq!((check.code, check.stdout.as_str(), check.stderr.as_str()), (Some(0), "ok\n", ""));
    assert!(check.code == Some(0) && written.contains("timezone = \"Europe/Berlin\""), "{written}");

    // The webhook accepts the secret in its file.
    let listen = gateway.address();
    gateway.setup().env.insert("DAOYOU_GATEWAY__LISTEN".to_owned(), listen);
    gateway.launch();
    gateway.wait_ready().await;
    let secret = fs::read_to_string(gateway.home().join("webhook-inbox.secret")).unwrap();
    let request = gateway.client.post(gateway.url("/webhook/inbox?wait=30")).bearer_auth(secret);
    let request = request.header("content-type", "application/json").body("{\"content\": \"hello\"}");
    let answered = Gateway::try_send(request).await.unwrap();
    assert_eq!((answered.status, answered.text("reply")), (200, "echo: hello"), "{answered:?}");
    gateway.stop().await;
}

/// Ctrl-C and Esc end the questions, and nothing is written, even while a test waits for its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_set_up_leaves_nothing() {
    let model = Model::start().await;
    model.script(|_| Some(Reply::hang()));
    let base = model.base_url();
    let gateway =
        Gateway::new(Setup::new().env("OPENAI_API_KEY", CANARY).env("OPENAI_BASE_URL", &base).env("NO_COLOR", "1"));
    for place in ["language", "key", "test"] {
        block_in_place(|| {
            let mut terminal = Terminal::start(&gateway, &["init"]);
            terminal.expect("Language");
            if place != "language" {
                terminal.keys("\r");
                answer(&mut terminal, "Model service:", "openai");
                terminal.expect("Use the key in OPENAI_API_KEY?");
            }
            if place == "test" {
                terminal.keys("y\r");
                answer(&mut terminal, "Model:", "");
                terminal.expect("Asking openai/scripted");
            }
            terminal.control('c');
            terminal.expect("cancelled: nothing was written");
            assert_eq!(terminal.wait_exit(), Some(1), "{place}");
            assert!(terminal.is_cooked(), "{place}");
        });
        assert_eq!(names(&gateway), [""; 0], "{place}");
    }
}

/// In a Chinese environment the questions and the written comments are Chinese.
#[tokio::test(flavor = "multi_thread")]
async fn a_chinese_environment_is_asked_in_chinese() {
    let model = Model::start().await;
    let setup = Setup::new().env("DEEPSEEK_API_KEY", CANARY).env("LANG", "zh_CN.UTF-8").env("NO_COLOR", "1");
    let gateway = Gateway::new(setup);
    let screen = block_in_place(|| {
        let mut terminal = Terminal::start(
            &gateway,
            &["init", "--provider", "deepseek", "--base-url", &model.base_url(), "--api-key-env", "DEEPSEEK_API_KEY"],
        );
        answer(&mut terminal, "Language", "");
        answer(&mut terminal, "使用环境变量 DEEPSEEK_API_KEY 中的密钥？", "是");
        answer(&mut terminal, "模型：", "");
        terminal.expect("正常");
        answer(&mut terminal, "设置邮件渠道？", "否");
        answer(&mut terminal, "webhook？", "n");
        answer(&mut terminal, "时区：", "");
        if fs::exists("/run/systemd/system").unwrap() && !rustix::process::geteuid().is_root() {
            answer(&mut terminal, "systemd 服务", "n");
        }
        answer(&mut terminal, "写入以上内容？", "y");
        terminal.expect("接下来");
        assert_eq!(terminal.wait_exit(), Some(0));
        terminal.screen()
    });
    assert!(!screen.contains(CANARY), "{screen}");
    let written = config(&gateway);
    assert!(written.contains("# 道友的配置") && written.contains("locale = \"zh\""), "{written}");
    assert!(written.contains("model = \"deepseek/scripted\""), "{written}");
    let check = run(&gateway, &["config", "check"], &[("DEEPSEEK_API_KEY", CANARY)]).await;
    assert_eq!((check.code, check.stdout.as_str()), (Some(0), "配置正确\n"), "{check:?}");
}

/// E-mail is set up with real servers. A wrong password is reported, and the right one is stored in a file.
#[tokio::test(flavor = "multi_thread")]
async fn e_mail_is_asked_for_and_tested() {
    let Some(dovecot) = Dovecot::start().await else { return };
    let Some(postfix) = Postfix::start(&dovecot).await else { return };
    // The servers of a test have special ports and a special certificate.
    let mail = |key: &str, value: String| (format!("DAOYOU_CHANNELS__EMAIL__{key}"), value);
    let mut setup = Setup::new().env("NO_COLOR", "1");
    setup.env.extend([
        mail("IMAP_PORT", dovecot.imaps_port().to_string()),
        mail("SMTP_PORT", postfix.submission_port().to_string()),
        mail("SMTP_TLS", "starttls".to_owned()),
        mail("CA_FILE", dovecot.ca_file().display().to_string()),
    ]);
    let gateway = Gateway::new(setup);
    let screen = block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["init"]);
        answer(&mut terminal, "Language", "");
        answer(&mut terminal, "Model service:", "none for now");
        answer(&mut terminal, "Set up e-mail?", "y");
        for password in ["a-wrong-secret-word", PASSWORD] {
            answer(&mut terminal, "own mailbox:", ASSISTANT);
            answer(&mut terminal, "IMAP server:", "127.0.0.1");
            answer(&mut terminal, "SMTP server:", "127.0.0.1");
            answer(&mut terminal, "app password:", password);
            answer(&mut terminal, "Your own address", "me@example.test");
            answer(&mut terminal, "Do you agree?", "y");
            if password != PASSWORD {
                answer(&mut terminal, "What now?", "answer the questions again");
            }
        }
        answer(&mut terminal, "Set up a webhook", "n");
        answer(&mut terminal, "Time zone:", "");
        if fs::exists("/run/systemd/system").unwrap() && !rustix::process::geteuid().is_root() {
            answer(&mut terminal, "systemd service", "n");
        }
        answer(&mut terminal, "Write this?", "y");
        assert_eq!(terminal.wait_exit(), Some(0));
        terminal.screen()
    });
    assert!(!screen.contains(PASSWORD) && !screen.contains("a-wrong-secret-word"), "{screen}");
    assert_eq!(fs::read_to_string(gateway.home().join("mail.password")).unwrap(), PASSWORD);
    let written: toml::Table = config(&gateway).parse().unwrap();
    let email = &written["channels"]["email"];
    assert_eq!(email["imap_password"].as_str(), Some("file:mail.password"), "{email}");
    assert_eq!(written["owner"]["identities"][0].as_str(), Some("email:me@example.test"), "{written}");
    assert_eq!(run(&gateway, &["config", "check"], &[]).await.code, Some(0));
}
