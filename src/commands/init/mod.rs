//! `daoyou init`: sets up a model, channels and the service, and writes config.toml.

mod channels;
mod edit;
mod model;
mod prompts;

use std::collections::BTreeMap;
use std::time::Duration;

use daoyou_channels::settings::Secret;
use daoyou_channels::text::Language;
use daoyou_channels::{Finding, Severity};
use jiff::tz::TimeZone;
use tokio::signal::unix::{SignalKind, signal};

use self::edit::{ConfigEdit, SecretValue};
use self::prompts::{Cancelled, Prompts};
use super::doctor::print_findings;
use super::output::{print_note, tr};
use super::{CommandExit, output, service};
use crate::cli::{Globals, InitArgs, ServiceCommand, ServiceInstallArgs, ServiceScope};
use crate::config::{self, ConfigFaults, ConfigSource, LoadedConfig, SettingOrigin};
use crate::control::ControlClient;
use crate::gateway::{self, LocaleSetting};
use crate::home::Home;

/// Sets up the home.
///
/// # Errors
/// There is no terminal to ask at, a test fails with `--yes`, or a file cannot be written.
pub async fn run(args: &InitArgs, globals: &Globals) -> anyhow::Result<CommandExit> {
    let home = Home::locate(globals.home.clone())?;
    let env = config::environment();
    let draft = super::config::read(globals, &home, &env);
    let readable = draft.loaded.config.clone();
    let loaded = match draft.without_secrets() {
        Ok(loaded) => loaded,
        Err(faults) => {
            output::set_locale(&readable);
            let exit = super::config::report(&faults, output::stderr())?;
            print_note(tr(
                "init changes a valid configuration only: correct it first",
                "init 只修改有效的配置：请先改正以上问题",
            ));
            return Ok(exit);
        }
    };
    let prompts = if args.yes { None } else { Prompts::open()? };
    if prompts.is_none() && !args.yes {
        output::set_locale(&loaded.config);
        let [en, zh] = NO_TERMINAL;
        print_note(tr(en, zh));
        return Ok(CommandExit::Usage);
    }
    let path = loaded.file.clone().unwrap_or_else(|| super::config::path_of(globals, &home, &env));
    let edit = ConfigEdit::open(&path)?;
    let setup = Setup { home, env, globals, args, loaded, edit };
    let done = match &prompts {
        Some(prompts) => Box::pin(setup.ask(prompts)).await,
        None => Box::pin(setup.apply_options()).await,
    };
    drop(prompts);
    match done {
        Err(error) if error.is::<Cancelled>() => {
            print_note(tr("\ncancelled: nothing was written", "\n已取消：没有写入任何内容"));
            Ok(CommandExit::Failed)
        }
        done => done,
    }
}

/// The time limit for a running gateway's answer.
const HEALTH_LIMIT: Duration = Duration::from_secs(2);

const NO_TERMINAL: [&str; 2] = [
    "daoyou: init asks questions, and there is no terminal: use --yes, which takes a key from the environment or \
     a local Ollama, or names them: --provider openai --api-key-env OPENAI_API_KEY --model MODEL",
    "daoyou：init 需要在终端中提问，而这里没有终端：请使用 --yes，它会采用环境变量中的密钥或本机的 Ollama；\
     也可以直接指定：--provider openai --api-key-env OPENAI_API_KEY --model 模型",
];

/// The setup in progress, with its inputs.
struct Setup<'a> {
    home: Home,
    env: BTreeMap<String, String>,
    globals: &'a Globals,
    args: &'a InitArgs,
    /// The previous configuration.
    loaded: LoadedConfig,
    edit: ConfigEdit,
}

impl Setup<'_> {
    /// Asks all questions.
    async fn ask(mut self, prompts: &Prompts) -> anyhow::Result<CommandExit> {
        let questions = async {
            self.ask_language(prompts)?;
            self.ask_model(prompts).await?;
            self.ask_email(prompts).await?;
            self.ask_webhook(prompts).await?;
            self.ask_timezone(prompts)?;
            self.ask_service(prompts)
        };
        let scope = until_interrupted(Box::pin(questions)).await?;
        if !self.show(tr("nothing has changed", "没有改动"))? {
            // An existing configuration may still need a service.
        } else if prompts.confirm(tr("Write this?", "写入以上内容？"), true)? {
            self.save()?;
        } else {
            return Err(Cancelled.into());
        }
        let exit = match scope {
            Some(scope) => {
                let install = ServiceCommand::Install(ServiceInstallArgs { scope, dry_run: false });
                service::run(&install, self.globals)?
            }
            None => CommandExit::Ok,
        };
        self.print_next_steps(scope.is_some()).await;
        Ok(exit)
    }

    /// Uses the options, and chooses everything else from what the machine offers.
    async fn apply_options(mut self) -> anyhow::Result<CommandExit> {
        // The comments that `edit` writes have the language of the output, so the language comes first.
        match &self.args.locale {
            Some(locale) => {
                self.set_language(locale);
                self.edit.set(&["agent", "locale"], locale.as_str(), LOCALE.text());
            }
            None => output::set_locale(&self.loaded.config),
        }
        if let Some(zone) = &self.args.timezone {
            self.edit.set(&["agent", "timezone"], zone.as_str(), TIMEZONE.text());
        }
        until_interrupted(Box::pin(self.choose_model())).await?;
        self.candidate()?;
        if self.show(tr("nothing to change", "没有需要修改的内容"))? {
            self.save()?;
        }
        self.print_next_steps(false).await;
        Ok(CommandExit::Ok)
    }

    /// Returns the configuration that the changes would result in.
    fn candidate(&self) -> Result<LoadedConfig, ConfigFaults> {
        let text = self.edit.trial_text();
        let draft = config::read(ConfigSource::Draft { path: self.edit.path(), text: &text }, &self.env);
        let checked = draft.checked(|loaded| gateway::check(loaded, &self.home, &self.env));
        let missing = checked.loaded.missing.clone();
        // A secret that is missing now may exist when the gateway starts.
        checked.without_secrets().map_err(|mut faults| {
            faults.retain(|fault| !missing.contains(fault));
            for fault in &mut faults {
                // The file has no such line yet.
                if let SettingOrigin::File { line, .. } = &mut fault.origin {
                    *line = None;
                    fault.origin = self.option_of(&fault.key).map_or(fault.origin.clone(), SettingOrigin::Option);
                }
            }
            ConfigFaults(faults)
        })
    }

    /// Returns the option from which a setting comes. The file was valid before, so a fault is in a setting that changes.
    fn option_of(&self, key: &str) -> Option<&'static str> {
        let InitArgs { provider, api_key_env, model, base_url, timezone, .. } = self.args;
        let (option, value) = match (key, key.rsplit('.').next()) {
            ("agent.timezone", _) => ("--timezone", timezone),
            ("agent.model", _) => ("--model", model),
            (_, Some("base_url")) => ("--base-url", base_url),
            (_, Some("api_key")) => ("--api-key-env", api_key_env),
            _ => ("--provider", provider),
        };
        (value.is_some() && (key.starts_with("agent.") || key.starts_with("providers."))).then_some(option)
    }

    fn ask_language(&mut self, prompts: &Prompts) -> anyhow::Result<()> {
        let before = self.loaded.config.agent.locale;
        let chosen = match &self.args.locale {
            Some(locale) => locale.clone(),
            None => {
                let languages = ["English", "中文"].map(str::to_owned);
                let first = usize::from(gateway::language(&self.loaded.config) == Language::Zh);
                let question = "Language / 语言:";
                ["en", "zh"][prompts.select(question, &languages, first)?].to_owned()
            }
        };
        if self.set_language(&chosen) != before {
            self.edit.set(&["agent", "locale"], chosen, LOCALE.text());
        }
        Ok(())
    }

    /// Switches the output to the language `locale`, and returns its setting.
    fn set_language(&self, locale: &str) -> LocaleSetting {
        let setting = match locale {
            "en" => LocaleSetting::En,
            "zh" => LocaleSetting::Zh,
            _ => LocaleSetting::Auto,
        };
        let mut shown = self.loaded.config.clone();
        shown.agent.locale = setting;
        output::set_locale(&shown);
        setting
    }

    fn ask_timezone(&mut self, prompts: &Prompts) -> anyhow::Result<()> {
        let before = self.loaded.config.agent.timezone.as_str();
        let machine = gateway::zone_name(&gateway::machine_zone());
        let machine = machine.as_str();
        let check = |zone: &str| {
            let wrong = tr("is not a known time zone; such as Europe/Berlin", "不是已知的时区；例如 Asia/Shanghai");
            // The machine's own zone may be an offset. It is not written unless another zone was.
            if zone == machine && before.is_empty() {
                Ok(())
            } else {
                TimeZone::get(zone).map(drop).map_err(|_| format!("{zone:?} {wrong}"))
            }
        };
        let default = [self.args.timezone.as_deref().unwrap_or_default(), before, machine];
        let default = default.into_iter().find(|zone| !zone.is_empty()).unwrap_or_default();
        let zone = prompts.text(tr("Time zone:", "时区："), default, check)?;
        let is_default = before.is_empty() && zone == machine;
        if zone != before && !is_default {
            self.edit.set(&["agent", "timezone"], zone, TIMEZONE.text());
        }
        Ok(())
    }

    /// Returns the systemd instance for the service, if the user wants one.
    fn ask_service(&mut self, prompts: &Prompts) -> anyhow::Result<Option<ServiceScope>> {
        let Some(scope) = service::scope_for(&self.home) else { return Ok(None) };
        let question = tr(
            "Run the gateway as a systemd service (start it now and at boot)?",
            "将网关作为 systemd 服务运行（立即启动，并随系统启动）？",
        );
        if !prompts.confirm(question, false)? {
            return Ok(None);
        }
        // A service does not have the environment of this shell.
        for (path, variable) in self.edit.variables.clone() {
            let Some(value) = self.env.get(&variable).cloned() else { continue };
            let question = match tr(true, false) {
                true => format!(
                    "The service does not see {variable} of this shell. Copy the key to a file that only you can read?"
                ),
                false => format!("服务看不到当前终端的 {variable}。把密钥复制到仅自己可读的文件中？"),
            };
            if prompts.confirm(&question, true)? {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                let name = format!("{}.key", path[path.len().saturating_sub(2)]);
                self.edit.set_secret(&path, SecretValue::file(name, Secret::new(value)), "");
            }
        }
        Ok(Some(scope))
    }

    /// Shows the change. If there is none, prints the note `unchanged` and returns false.
    fn show(&self, unchanged: &str) -> anyhow::Result<bool> {
        if self.edit.is_unchanged() {
            print_note(format_args!("{}: {unchanged}", self.edit.path().display()));
            return Ok(false);
        }
        let literal = self.loaded.secrets().filter(|(_, secret)| secret.is_literal);
        let secrets: Vec<_> = literal.map(|(_, secret)| secret.value.clone()).collect();
        self.edit.show(&secrets, &mut output::stdout())?;
        Ok(true)
    }

    fn save(&self) -> anyhow::Result<()> {
        // The folder is private from its creation.
        Home::open(self.globals.home.clone())?;
        self.edit.save()?;
        print_note(format_args!("{}: {}", tr("written", "已写入"), self.edit.path().display()));
        Ok(())
    }

    async fn print_next_steps(&self, is_service: bool) {
        let overrides = |key: &str| match self.candidate().map(|loaded| loaded.origin(key)) {
            Ok(config::SettingOrigin::Env(variable)) => Some(variable),
            _ => None,
        };
        for (key, variable) in
            ["agent.model", "agent.locale", "agent.timezone"].into_iter().filter_map(|key| Some((key, overrides(key)?)))
        {
            let overridden = tr("is overridden by the environment variable", "被环境变量覆盖：");
            print_note(format_args!("{key} {overridden} {variable}"));
        }
        if is_service {
            return;
        }
        let runs = match ControlClient::new(&self.home.socket()) {
            // A gateway that does not answer holds the home nevertheless.
            Ok(client) => !matches!(tokio::time::timeout(HEALTH_LIMIT, client.get("/healthz")).await, Ok(Err(_))),
            Err(_) => false,
        };
        if runs {
            print_note(tr(
                "A gateway runs in this home: restart it, and it takes the new settings.",
                "这个主目录中已有网关在运行：重启后新设置生效。",
            ));
            return;
        }
        print_note(tr(
            "Next:\n  daoyou gateway                        chat here, and run all channels\n  \
             daoyou agent -m 'What can you do?'    send one message\n  daoyou doctor                         check everything",
            "接下来：\n  daoyou gateway                 在此聊天，并运行所有渠道\n  \
             daoyou agent -m '你能做什么？'    发送一条消息\n  daoyou doctor                  检查全部设置",
        ));
    }
}

/// Does the work, unless Ctrl-C ends it during a test.
async fn until_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err(Cancelled.into()),
    }
}

/// A comment in both languages.
struct Comment(&'static str, &'static str);

impl Comment {
    fn text(&self) -> &'static str {
        tr(self.0, self.1)
    }
}

const LOCALE: Comment = Comment(
    "The language of daoyou's own messages: \"en\", \"zh\" or \"auto\".",
    "道友自身消息的语言：\"en\"、\"zh\" 或 \"auto\"。",
);
const TIMEZONE: Comment = Comment("The time zone of reminders and dates.", "提醒和日期所用的时区。");

/// Prints findings. Returns true if none failed.
fn report(findings: &[Finding]) -> anyhow::Result<bool> {
    print_findings(findings, &mut output::stderr())?;
    Ok(findings.iter().all(|finding| finding.state != Severity::Fail))
}

/// Prints configuration faults.
fn print_faults(faults: &ConfigFaults) {
    for fault in &faults.0 {
        let (wrong, allowed) =
            (super::translation::translate(&fault.wrong), super::translation::translate(&fault.allowed));
        let allowed = if allowed.is_empty() { String::new() } else { format!("; {allowed}") };
        print_note(format_args!("  {}: {wrong}{allowed}", fault.key));
    }
}
