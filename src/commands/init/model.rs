//! The model step of `daoyou init`: the service, its key, and a test call.

use anyhow::bail;
use daoyou_channels::text::Language;
use daoyou_channels::{Finding, Severity};

use super::edit::{ConfigEdit, SecretValue};
use super::prompts::{Cancelled, Prompts, check_name, require};
use super::{Comment, Setup, print_faults, report};
use crate::cli::InitArgs;
use crate::commands::output::{print_note, tr};
use crate::commands::translation::tr_fill;
use crate::gateway::{Inspector, ProviderOffer, service_offers};

const MODEL: Comment = Comment(
    "The model that answers: \"PROVIDER/MODEL\"; `daoyou models` lists what there is.",
    "回答消息的模型：\"服务名/模型名\"；`daoyou models` 列出可用的服务和模型。",
);
const KEY: Comment = Comment(
    "The key: \"env:NAME\" is an environment variable, \"file:PATH\" a file beside this one.",
    "密钥：\"env:变量名\" 取自环境变量，\"file:路径\" 取自本文件旁的文件。",
);
const ADDRESS: Comment = Comment("The address of the service.", "服务的地址。");
const KIND: Comment =
    Comment("What it speaks: \"openai\" or \"anthropic\".", "服务的协议：\"openai\" 或 \"anthropic\"。");

/// The answers about a model service, as they will be written.
#[derive(Clone, Default)]
struct ProviderAnswers {
    name: String,
    /// The address, unless it is the known one.
    base_url: Option<String>,
    /// The protocol, unless it is the default.
    kind: Option<&'static str>,
    /// `None` leaves the key as it is.
    key: Option<SecretValue>,
    /// The service is known and rejects calls without a key.
    needs_key: bool,
    /// The variables that usually contain its key.
    key_variables: &'static [&'static str],
    /// The suggested model; empty if none is known.
    model: String,
    /// The service has another address, and may not have the suggested model.
    has_custom_address: bool,
}

impl ProviderAnswers {
    fn of(offer: &ProviderOffer) -> Self {
        let first = || offer.installed.as_ref().and_then(|models| models.first().cloned()).unwrap_or_default();
        Self {
            name: offer.name.to_owned(),
            base_url: offer.has_custom_address.then(|| offer.base_url.clone()),
            kind: None,
            key: offer.key_variable.map(|variable| SecretValue::Variable(variable.to_owned())),
            needs_key: !offer.is_local(),
            key_variables: offer.key_variables,
            model: if offer.usual_model.is_empty() { first() } else { offer.usual_model.to_owned() },
            has_custom_address: offer.has_custom_address,
        }
    }

    /// Returns the answer for a service that is not known.
    fn other(name: &str, base_url: &str) -> Self {
        Self { name: name.to_owned(), base_url: Some(base_url.to_owned()), ..Self::default() }
    }

    fn write(&self, edit: &mut ConfigEdit) {
        let table = ["providers", self.name.as_str()];
        if let Some(kind) = self.kind {
            edit.set(&[table[0], table[1], "kind"], kind, KIND.text());
        }
        if let Some(base_url) = &self.base_url {
            edit.set(&[table[0], table[1], "base_url"], base_url.as_str(), ADDRESS.text());
        }
        if let Some(key) = &self.key {
            edit.set_secret(&[table[0], table[1], "api_key"], key.clone(), KEY.text());
        }
        if !self.model.is_empty() {
            edit.set(&["agent", "model"], self.provider_model(), MODEL.text());
        }
    }

    fn provider_model(&self) -> String {
        format!("{}/{}", self.name, self.model)
    }
}

/// The next question about the model.
#[derive(Clone, Copy)]
enum ModelStep {
    Service,
    Key,
    Model,
    Test,
    Done,
}

impl Setup<'_> {
    /// Asks for service, key and model until a test call succeeds or the user continues without one.
    pub(super) async fn ask_model(&mut self, prompts: &Prompts) -> anyhow::Result<()> {
        let before = self.loaded.config.agent.model.clone();
        if !self.names_model() && !matches!(before.as_str(), "" | "auto") {
            let question = format!("{}: {before}. {}", tr("The model is", "当前模型"), tr("Change it?", "要更换吗？"));
            if !prompts.confirm(&question, false)? {
                return Ok(());
            }
        }
        let offers = service_offers(&self.env).await;
        let original = self.edit.clone();
        let (mut step, mut answer) = (ModelStep::Service, ProviderAnswers::default());
        loop {
            step = match step {
                ModelStep::Service => {
                    self.edit = original.clone();
                    match self.ask_service_name(prompts, &offers)? {
                        Some(chosen) => answer = chosen,
                        None => return Ok(()),
                    }
                    ModelStep::Key
                }
                ModelStep::Key => {
                    // Removes all traces of a rejected key.
                    self.edit = original.clone();
                    self.ask_key(prompts, &mut answer)?;
                    ModelStep::Model
                }
                ModelStep::Model => self.ask_model_name(prompts, &mut answer).await?,
                ModelStep::Test => self.ask_after_test(prompts, &answer).await?,
                ModelStep::Done => return Ok(()),
            };
        }
    }

    fn names_model(&self) -> bool {
        let InitArgs { provider, api_key_env, model, base_url, .. } = self.args;
        [provider, api_key_env, model, base_url].into_iter().any(Option::is_some)
    }

    /// Returns the service; `None` to continue without a model.
    fn ask_service_name(&self, prompts: &Prompts, offers: &[ProviderOffer]) -> anyhow::Result<Option<ProviderAnswers>> {
        if self.names_model() {
            return Ok(Some(self.named_service(offers)?));
        }
        let mut entries: Vec<String> = offers.iter().map(describe).collect();
        entries.push(tr("another service, by its address", "其他服务（输入地址）").to_owned());
        entries.push(
            tr(
                "none for now: the built-in responder, which is not a language model",
                "暂不设置：使用内置应答器（不是语言模型）",
            )
            .to_owned(),
        );
        let chosen = prompts.select(tr("Model service:", "模型服务："), &entries, 0)?;
        if let Some(offer) = offers.get(chosen) {
            return Ok(Some(ProviderAnswers::of(offer)));
        }
        if chosen > offers.len() {
            return Ok(None);
        }
        let named = |text: &str| check_name(text, !matches!(text, "auto" | "offline"));
        let name = prompts.text(tr("A name for it:", "给它起个名字："), "mine", named)?;
        let address = |text: &str| {
            let is_url = text.starts_with("http://") || text.starts_with("https://");
            require(is_url, "it begins with http:// or https://", "以 http:// 或 https:// 开头")
        };
        let base_url = prompts.text(
            tr("Its address, such as http://127.0.0.1:8000/v1:", "地址，例如 http://127.0.0.1:8000/v1："),
            "",
            address,
        )?;
        let kinds = [
            tr("OpenAI (chat completions)", "OpenAI（chat completions）"),
            tr("Anthropic (Messages)", "Anthropic（Messages）"),
        ];
        let kind = prompts.select(tr("It speaks like:", "协议："), &kinds.map(str::to_owned), 0)?;
        Ok(Some(ProviderAnswers {
            kind: Some(["openai", "anthropic"][kind]),
            ..ProviderAnswers::other(&name, &base_url)
        }))
    }

    /// Asks for the key, unless it is in the environment.
    fn ask_key(&self, prompts: &Prompts, answer: &mut ProviderAnswers) -> anyhow::Result<()> {
        if let Some(SecretValue::Variable(variable)) = &answer.key {
            let question = format!("{} {variable}{}", tr("Use the key in", "使用环境变量"), tr("?", " 中的密钥？"));
            if prompts.confirm(&question, true)? {
                return Ok(());
            }
        }
        answer.key = None;
        if self.has_key(&answer.name)
            && prompts.confirm(tr("Keep the key of config.toml?", "保留 config.toml 中的密钥？"), true)?
        {
            return Ok(());
        }
        if !answer.needs_key && answer.base_url.is_none() {
            return Ok(());
        }
        let optional = if answer.needs_key { "" } else { tr(" (empty: none)", "（可留空）") };
        let question = format!("{} {}{optional}:", tr("Key of", "密钥："), answer.name);
        loop {
            match prompts.secret(&question)? {
                Some(key) => answer.key = Some(SecretValue::typed(format!("{}.key", answer.name), key)),
                None if answer.needs_key => continue,
                None => {}
            }
            return Ok(());
        }
    }

    /// Lists the models of the service, and asks for one.
    async fn ask_model_name(&mut self, prompts: &Prompts, answer: &mut ProviderAnswers) -> anyhow::Result<ModelStep> {
        answer.write(&mut self.edit);
        let loaded = match self.candidate() {
            Ok(loaded) => loaded,
            Err(faults) => {
                print_faults(&faults);
                return if self.names_model() { Err(faults.into()) } else { Ok(ModelStep::Service) };
            }
        };
        if let Some(model) = self.args.model.as_deref().filter(|_| self.args.provider.is_some()) {
            model.clone_into(&mut answer.model);
        } else {
            let inspector = Inspector::offline(self.home.clone(), &loaded)?;
            let listed = match inspector.listed_models(&answer.name).await {
                Ok(listed) => listed,
                Err(finding) => {
                    print_failure(&finding, inspector.asked_address(&answer.name))?;
                    let choices = [
                        (tr("try again", "重试"), ModelStep::Model),
                        (tr("another key", "换一个密钥"), ModelStep::Key),
                        (tr("another service", "换一个服务"), ModelStep::Service),
                        (tr("go on, and type the name of the model", "继续，手动输入模型名"), ModelStep::Test),
                    ];
                    match choose(prompts, &choices)? {
                        ModelStep::Test => Vec::new(),
                        other => return Ok(other),
                    }
                }
            };
            answer.model = ask_listed(prompts, listed, &answer.model)?;
        }
        answer.write(&mut self.edit);
        Ok(ModelStep::Test)
    }

    /// Makes a test call, and asks for the next step after a failure.
    async fn ask_after_test(&mut self, prompts: &Prompts, answer: &ProviderAnswers) -> anyhow::Result<ModelStep> {
        print_note(format_args!("{} {} …", tr("Asking", "正在测试"), answer.provider_model()));
        let inspector = Inspector::offline(self.home.clone(), &self.candidate()?)?;
        let finding = inspector.trial_call(&answer.provider_model()).await;
        if finding.state != Severity::Fail {
            report(&[finding])?;
            return Ok(ModelStep::Done);
        }
        print_failure(&finding, inspector.asked_address(&answer.name))?;
        let choices = [
            (tr("try again", "重试"), ModelStep::Test),
            (tr("another model", "换一个模型"), ModelStep::Model),
            (tr("another key", "换一个密钥"), ModelStep::Key),
            (tr("another service", "换一个服务"), ModelStep::Service),
            (tr("keep it anyway", "仍然保存"), ModelStep::Done),
        ];
        choose(prompts, &choices)
    }

    /// Uses the model of the options, or the first that is found.
    pub(super) async fn choose_model(&mut self) -> anyhow::Result<()> {
        let before = &self.loaded.config;
        let is_set = !matches!(before.agent.model.as_str(), "" | "auto") || !before.providers.is_empty();
        if is_set && !self.names_model() {
            return Ok(());
        }
        let offers = service_offers(&self.env).await;
        let ready = offers.iter().find(|offer| offer.is_ready());
        let mut answer = match (self.names_model(), ready) {
            (true, _) => self.named_service(&offers)?,
            (false, Some(offer)) => ProviderAnswers::of(offer),
            (false, None) => {
                print_note(no_model(&offers));
                return Ok(());
            }
        };
        if answer.needs_key && answer.key.is_none() && !self.has_key(&answer.name) {
            let variable = answer.key_variables.first().copied().unwrap_or_default();
            let name = &answer.name;
            bail!(tr(
                format!("{name} needs a key: export {variable}, or name another variable with --api-key-env"),
                format!("{name} 需要密钥：请先 export {variable}，或用 --api-key-env 指定其他变量")
            ));
        }
        answer.write(&mut self.edit);
        let mut inspector = Inspector::offline(self.home.clone(), &self.candidate()?)?;
        if let Some(model) = self.args.model.as_deref().filter(|_| self.args.provider.is_some()) {
            model.clone_into(&mut answer.model);
        } else if self.args.model.is_none() && (answer.model.is_empty() || answer.has_custom_address) {
            match inspector.listed_models(&answer.name).await {
                Ok(listed) if listed.contains(&answer.model) => {}
                Ok(listed) if !listed.is_empty() => listed[0].clone_into(&mut answer.model),
                Ok(_) if !answer.model.is_empty() => {}
                Ok(_) => bail!(tr(
                    format!("{} lists no models: name one with --model", answer.name),
                    format!("{} 没有列出模型：请用 --model 指定", answer.name)
                )),
                Err(_) if self.args.no_test && !answer.model.is_empty() => {}
                Err(_) if self.args.no_test => bail!(tr(
                    format!("{} cannot be asked for its models: name one with --model", answer.name),
                    format!("无法向 {} 查询模型：请用 --model 指定", answer.name)
                )),
                Err(finding) => return failed(&finding, inspector.asked_address(&answer.name)),
            }
        }
        answer.write(&mut self.edit);
        inspector = Inspector::offline(self.home.clone(), &self.candidate()?)?;
        if self.args.no_test {
            return Ok(());
        }
        let finding = inspector.trial_call(&answer.provider_model()).await;
        if finding.state == Severity::Fail {
            return failed(&finding, inspector.asked_address(&answer.name));
        }
        report(&[finding]).map(drop)
    }

    fn has_key(&self, provider: &str) -> bool {
        self.loaded.secrets().any(|(key, _)| key == format!("providers.{provider}.api_key"))
    }

    /// Returns the service that the options name.
    ///
    /// # Errors
    /// The options name no service, or a variable that is not set.
    fn named_service(&self, offers: &[ProviderOffer]) -> anyhow::Result<ProviderAnswers> {
        let (provider, model) = match (self.args.provider.as_deref(), self.args.model.as_deref()) {
            (Some(provider), model) => (provider, model),
            (None, Some(model)) => match model.split_once('/') {
                Some((provider, model)) if !model.is_empty() => (provider, Some(model)),
                _ => bail!(tr(
                    format!("--model {model:?} names no service: write --model PROVIDER/MODEL, or add --provider NAME"),
                    format!("--model {model:?} 没有写明服务：请写成 --model 服务/模型，或加上 --provider 名称")
                )),
            },
            (None, None) => {
                let by_variable = |offer: &&ProviderOffer| {
                    self.args.api_key_env.as_deref().is_some_and(|variable| offer.key_variables.contains(&variable))
                };
                match offers.iter().find(by_variable) {
                    Some(offer) if self.args.base_url.is_none() => (offer.name, None),
                    _ => bail!(tr(
                        "the service has no name: add --provider NAME",
                        "没有写明服务：请加上 --provider 名称"
                    )),
                }
            }
        };
        let known = offers.iter().find(|offer| offer.name == provider);
        let mut answer = match (known, &self.args.base_url) {
            (Some(offer), _) => ProviderAnswers::of(offer),
            (None, Some(base_url)) => ProviderAnswers::other(provider, base_url),
            (None, None) if self.loaded.config.providers.contains_key(provider) => {
                ProviderAnswers { name: provider.to_owned(), ..ProviderAnswers::default() }
            }
            (None, None) => bail!(tr(
                format!(
                    "{provider:?} is none of the known services, which `daoyou models` lists: add its address with --base-url URL"
                ),
                format!("{provider:?} 不在已知服务之列（`daoyou models` 可查看）：请用 --base-url URL 给出地址"),
            )),
        };
        if let Some(base_url) = &self.args.base_url {
            answer.base_url = Some(base_url.clone());
            answer.has_custom_address = true;
            // The key in the environment is for the usual address.
            answer.needs_key = false;
            answer.key = None;
        }
        if let Some(model) = model {
            model.clone_into(&mut answer.model);
        }
        if let Some(variable) = &self.args.api_key_env {
            if self.env.get(variable).is_none_or(|value| value.trim().is_empty()) {
                bail!(tr(
                    format!("the environment variable {variable} is not set: export {variable}=… first"),
                    format!("环境变量 {variable} 未设置：请先 export {variable}=…")
                ));
            }
            answer.key = Some(SecretValue::Variable(variable.clone()));
        }
        Ok(answer)
    }
}

/// Returns what is missing for a model.
fn no_model(offers: &[ProviderOffer]) -> String {
    let language = tr(Language::En, Language::Zh);
    let no_models = offers.iter().find_map(|offer| offer.missing_models(language));
    let wanted = no_models.unwrap_or_else(|| {
        tr(
            "no model was found: set a key such as OPENAI_API_KEY, or start Ollama",
            "没有找到模型：请设置密钥（如 OPENAI_API_KEY）或启动 Ollama",
        )
        .to_owned()
    });
    let (en, zh) = (
        "{}, and run init again; until then the built-in responder answers, which is not a language model",
        "{}，然后再次运行 init；在此之前由内置应答器回答，它不是语言模型",
    );
    tr_fill(en, zh, &[&wanted])
}

/// Asks for one of the listed models, or for another name.
fn ask_listed(prompts: &Prompts, mut listed: Vec<String>, usual: &str) -> anyhow::Result<String> {
    let question = tr("Model:", "模型：");
    let named = |text: &str| {
        let is_name = !text.is_empty() && !text.contains(char::is_whitespace);
        require(is_name, "a name without spaces", "模型名不能为空，也不能有空格")
    };
    if listed.is_empty() {
        return prompts.text(question, usual, named);
    }
    let first = listed.iter().position(|model| model == usual).unwrap_or_default();
    listed.push(tr("another one, by its name", "其他（输入模型名）").to_owned());
    let chosen = prompts.select(question, &listed, first)?;
    if chosen + 1 == listed.len() { prompts.text(question, usual, named) } else { Ok(listed.swap_remove(chosen)) }
}

/// Describes a service in one line.
fn describe(offer: &ProviderOffer) -> String {
    let about = match (offer.key_variable, &offer.installed) {
        (Some(variable), _) => format!("{} {variable}", tr("key found in", "密钥在环境变量")),
        (None, Some(models)) if models.is_empty() => tr("runs here, without models", "在本机运行，尚无模型").to_owned(),
        (None, Some(models)) => format!("{} ({})", tr("runs here", "在本机运行"), models.len()),
        (None, None) if offer.is_local() => format!("{} {}", tr("local server at", "本地服务"), offer.base_url),
        (None, None) => tr("needs a key", "需要密钥").to_owned(),
    };
    format!("{} – {about}", offer.name)
}

fn choose(prompts: &Prompts, choices: &[(&str, ModelStep)]) -> anyhow::Result<ModelStep> {
    let mut entries: Vec<String> = choices.iter().map(|(label, _)| (*label).to_owned()).collect();
    entries.push(tr("stop; nothing is written", "退出，不写入").to_owned());
    let chosen = prompts.select(tr("What now?", "接下来："), &entries, 0)?;
    choices.get(chosen).map(|(_, step)| *step).ok_or_else(|| Cancelled.into())
}

/// Prints a failed test, with the address of the call.
fn print_failure(finding: &Finding, asked: Option<String>) -> anyhow::Result<()> {
    report(std::slice::from_ref(finding))?;
    if let Some(address) = asked {
        print_note(format_args!("      {}: {address}", tr("asked", "请求地址")));
    }
    Ok(())
}

fn failed(finding: &Finding, asked: Option<String>) -> anyhow::Result<()> {
    print_failure(finding, asked)?;
    bail!(tr(
        "the model did not answer, so nothing was written; --no-test writes it anyway",
        "模型没有应答，未写入任何内容；加上 --no-test 可跳过测试直接写入",
    ))
}
