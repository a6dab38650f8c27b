//! The model services: which there are, whether they answer, and which model is in use.

use std::collections::BTreeMap;
use std::time::Duration;

use daoyou_channels::{Finding, Verdict};
use futures_util::future::join_all;
use jiff::Timestamp;
use reqwest::Url;
use serde_json::{Value, json};

use super::Inspector;
use crate::control::{Ask, InspectError};
use crate::llm::{CircuitState, KeySource, LlmError, ModelChoice, OFFLINE, Probe, SERVICES, Service};

/// How long a service may take to list its models.
const DEADLINE: Duration = Duration::from_secs(5);
/// How far a clock may be off, in seconds.
const SKEW: i64 = 120;

/// The seconds until a provider that is left alone is tried again.
pub(super) fn seconds(circuit: CircuitState) -> Option<u64> {
    match circuit {
        CircuitState::Open(left) => Some(left.as_secs() + 1),
        CircuitState::Closed | CircuitState::HalfOpen => None,
    }
}

/// What each service that was asked answered.
type Answers = BTreeMap<String, Result<Probe, LlmError>>;

impl Inspector {
    pub(super) async fn model_rows(&self, ask: Ask) -> Result<Value, InspectError> {
        let mut names: Vec<&str> = self.models.services().map(|(name, _)| name).collect();
        names.extend(
            SERVICES.iter().map(|service| service.name).filter(|name| !names.contains(name)).collect::<Vec<_>>(),
        );
        names.sort_by_key(|name| (!self.config.providers.contains_key(*name), !self.has_key(name)));
        names.push(OFFLINE);
        if let Ask::Only(wanted) = &ask {
            names.retain(|name| name == wanted);
            if names.is_empty() {
                let what = format!("there is no provider {wanted:?}; `daoyou models` lists those there are");
                return Err(InspectError::Unknown(what));
            }
        }
        let asked = |name: &str| match &ask {
            Ask::Nobody => false,
            Ask::Everybody => true,
            Ask::Only(wanted) => name == wanted,
        };
        let answers = self.ask(asked).await;
        let resolved = self.models.resolve(&self.config.agent.model).await;
        let (takes, error) = match &resolved {
            Ok(choice) => (Some(choice.to_string()), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let in_use = resolved.as_ref().map(|choice| choice.provider.name()).unwrap_or_default();
        let rows: Vec<Value> = names.iter().map(|name| self.row(name, in_use, answers.get(*name))).collect();
        Ok(json!({ "model": self.config.agent.model, "takes": takes, "error": error, "providers": rows }))
    }

    fn row(&self, name: &str, in_use: &str, answer: Option<&Result<Probe, LlmError>>) -> Value {
        let service = Service::find(name);
        let provider = self.models.services().find(|(other, _)| *other == name).map(|(_, provider)| provider);
        // Only a gateway that runs has asked anybody.
        let asked = self.live.as_ref().and(provider).map(|provider| provider.circuit().0);
        let url = provider.map(|provider| place(provider.base_url()));
        let (models, error) = match answer {
            None => (None, None),
            Some(Ok(Probe { models: Ok(models), .. })) => (Some(models), None),
            Some(Ok(Probe { models: Err(error), .. }) | Err(error)) => (None, Some(error.message.clone())),
        };
        let model = match self.models.usual_model(name) {
            "" if name == OFFLINE => OFFLINE,
            "" => service.map_or("", |service| service.model),
            model => model,
        };
        let facts = self.models.facts(name, model);
        json!({
            "name": name,
            "configured": self.config.providers.contains_key(name),
            "key": self.has_key(name),
            "key_from": match self.models.key_source(name) {
                KeySource::None => None,
                KeySource::Config => Some(format!("providers.{name}.api_key")),
                KeySource::Variable(variable) => Some(variable.to_owned()),
            },
            "key_variables": service.map_or(&[][..], |service| service.key_variables),
            "needs_key": service.is_some_and(|service| !service.is_local()),
            "base_url": url.or_else(|| service.map(|service| service.base_url.to_owned())),
            "model": model,
            "context_tokens": facts.context_tokens,
            "max_output_tokens": facts.max_output_tokens,
            "price": facts.price,
            "abilities": facts.abilities,
            "in_use": name == in_use,
            "circuit": asked.map(CircuitState::as_str),
            "circuit_seconds": asked.and_then(seconds),
            "models": models,
            "error": error,
        })
    }

    fn has_key(&self, name: &str) -> bool {
        self.models.services().any(|(other, provider)| other == name && provider.has_key())
    }

    /// Asks those services side by side.
    async fn ask(&self, wanted: impl Fn(&str) -> bool) -> Answers {
        let asked = self.models.services().filter(|(name, _)| wanted(name));
        let answers = asked.map(async |(name, provider)| (name.to_owned(), provider.probe(DEADLINE).await));
        join_all(answers).await.into_iter().collect()
    }

    /// The model in use, each service that is set up, and the clocks of those that told.
    pub(super) async fn provider_checks(&self) -> Vec<Finding> {
        let resolved = self.models.resolve(&self.config.agent.model).await;
        let in_use = resolved.as_ref().map(|choice| choice.provider.name().to_owned()).unwrap_or_default();
        let is_set_up = |name: &str| self.config.providers.contains_key(name) || self.has_key(name) || name == in_use;
        let answers = self.ask(is_set_up).await;
        let mut findings = match &resolved {
            Ok(choice) => vec![self.model_check(choice, answers.get(&in_use))],
            Err(error) => vec![Finding::fail(
                "model",
                error.to_string(),
                "set agent.model in config.toml; `daoyou models` lists what there is",
            )],
        };
        for (name, answer) in &answers {
            let finding = service_check(name, answer);
            // Only the one in use stops the answers.
            let is_worse = finding.state == Verdict::Fail && *name != in_use && resolved.is_ok();
            findings.push(if is_worse { finding.as_bad_as(Verdict::Warn) } else { finding });
        }
        findings.extend(clock_check(&answers, Timestamp::now()));
        findings
    }

    fn model_check(&self, choice: &ModelChoice, answer: Option<&Result<Probe, LlmError>>) -> Finding {
        const NAME: &str = "model";
        let configured = &self.config.agent.model;
        let is_auto = matches!(configured.as_str(), "" | "auto");
        if choice.provider.name() == OFFLINE {
            return if is_auto && !self.config.providers.contains_key(OFFLINE) {
                Finding::warn(
                    NAME,
                    "no model service is set up: auto takes the built-in offline responder",
                    "start the gateway with a key such as OPENAI_API_KEY in its environment, or add [providers.NAME] to config.toml",
                )
            } else {
                Finding::ok(NAME, "offline, the built-in responder")
            };
        }
        let shown = if is_auto { format!("auto takes {choice}") } else { choice.to_string() };
        let Some(Ok(Probe { models: Ok(listed), .. })) = answer else { return Finding::ok(NAME, shown) };
        if listed.is_empty() || listed.iter().any(|name| is_same_model(name, &choice.model)) {
            return Finding::ok(NAME, shown);
        }
        let provider = choice.provider.name();
        let nearest = nearest(&choice.model, listed).map(|name| format!("set agent.model = \"{provider}/{name}\"; "));
        Finding::warn(
            NAME,
            format!("{shown}, which is none of the {} models that {provider} lists", listed.len()),
            format!("{}`daoyou models {provider}` lists them", nearest.unwrap_or_default()),
        )
    }
}

fn service_check(name: &str, answer: &Result<Probe, LlmError>) -> Finding {
    let check = format!("provider {name}");
    let probe = match answer {
        Ok(probe) => probe,
        Err(error) => {
            let mend =
                format!("check the network, a proxy (HTTPS_PROXY), and providers.{name}.base_url in config.toml");
            return Finding::fail(check, format!("it cannot be reached: {}", error.message), mend);
        }
    };
    match (&probe.models, probe.status) {
        (Ok(models), _) => Finding::ok(check, format!("it answers, and lists {} models", models.len())),
        (Err(error), 401 | 403) => {
            let variable = Service::find(name).and_then(|service| service.key_variables.first());
            let variable = variable.map(|name| format!(" (or the variable {name})")).unwrap_or_default();
            let mend = format!("set providers.{name}.api_key in config.toml{variable} to a key that is good");
            Finding::fail(check, format!("it refuses the key: {}", error.message), mend)
        }
        (Err(error), 402) => Finding::fail(check, error.message.clone(), "top up the account at the service"),
        (Err(error), 408 | 429 | 500..) => {
            Finding::warn(check, format!("it answers, but not now: {}", error.message), "try again later")
        }
        (Err(_), status) => Finding::ok(
            check,
            format!(
                "it answers, but lists no models (HTTP {status}), so whether it takes the key only a message tells"
            ),
        ),
    }
}

/// This machine's clock against those of the services.
fn clock_check(answers: &Answers, now: Timestamp) -> Option<Finding> {
    let told = answers.iter().filter_map(|(name, answer)| Some((name, answer.as_ref().ok()?.date?)));
    let off = |date: Timestamp| now.as_second() - date.as_second();
    let (name, skew) = told.map(|(name, date)| (name, off(date))).max_by_key(|(_, skew)| skew.abs())?;
    if skew.abs() <= SKEW {
        return Some(Finding::ok("clock of services", format!("within {} s of {name}'s", skew.abs())));
    }
    let way = if skew > 0 { "ahead of" } else { "behind" };
    Some(Finding::warn(
        "clock of services",
        format!("this machine's clock is {} s {way} {name}'s; signatures and schedules depend on it", skew.abs()),
        "timedatectl set-ntp true",
    ))
}

/// Some services list `models/NAME`, and some `NAME:latest`.
fn is_same_model(listed: &str, wanted: &str) -> bool {
    let listed = listed.strip_prefix("models/").unwrap_or(listed);
    listed == wanted || listed.strip_suffix(":latest") == Some(wanted)
}

fn nearest<'a>(wanted: &str, listed: &'a [String]) -> Option<&'a String> {
    let scored = listed.iter().map(|name| (strsim::jaro_winkler(wanted, name), name));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 > 0.75).then_some(best.1)
}

/// The address without what may be secret in it.
fn place(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path().trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::LlmErrorKind;

    fn answered(status: u16, models: Option<&[&str]>) -> Result<Probe, LlmError> {
        let refusal = || LlmError::new(LlmErrorKind::Auth, "p", format!("HTTP {status}"));
        let models = models.map(|names| names.iter().map(|name| (*name).to_owned()).collect()).ok_or_else(refusal);
        Ok(Probe { status, date: None, models })
    }

    #[test]
    fn what_a_service_answers_is_judged() {
        let gone = Err(LlmError::new(LlmErrorKind::Connection, "p", "refused"));
        for (answer, state, words) in [
            (answered(200, Some(&["a", "b"])), Verdict::Ok, "lists 2 models"),
            (answered(401, None), Verdict::Fail, "refuses the key: HTTP 401"),
            (answered(403, None), Verdict::Fail, "refuses the key"),
            (answered(402, None), Verdict::Fail, "HTTP 402"),
            (answered(404, None), Verdict::Ok, "only a message tells"),
            (answered(429, None), Verdict::Warn, "not now"),
            (answered(503, None), Verdict::Warn, "not now"),
            (gone, Verdict::Fail, "cannot be reached: refused"),
        ] {
            let finding = service_check("openai", &answer);
            assert_eq!(finding.state, state, "{finding:?}");
            assert!(
                finding.message.contains(words) && (finding.mend.is_some() != (state == Verdict::Ok)),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn the_farthest_clock_counts() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for (dates, state) in [
            (&[][..], None),
            (&[0, 100][..], Some(Verdict::Ok)),
            (&[0, 121][..], Some(Verdict::Warn)),
            (&[-500, 3][..], Some(Verdict::Warn)),
        ] {
            let answers: Answers = dates
                .iter()
                .map(|off| {
                    let date = Timestamp::from_second(1_800_000_000 + off).ok();
                    (off.to_string(), Ok(Probe { status: 200, date, models: Ok(Vec::new()) }))
                })
                .collect();
            assert_eq!(clock_check(&answers, now).map(|finding| finding.state), state, "{dates:?}");
        }
    }

    #[test]
    fn a_model_is_known_by_any_of_its_names() {
        let listed: Vec<String> = ["models/gemini-flash", "llama3:latest", "gpt-6"].map(str::to_owned).into();
        for (wanted, known, near) in [
            ("gemini-flash", true, None),
            ("llama3", true, None),
            ("gpt-6", true, None),
            ("gpt-66", false, Some("gpt-6")),
            ("qwen", false, None),
        ] {
            assert_eq!(listed.iter().any(|name| is_same_model(name, wanted)), known, "{wanted}");
            if !known {
                assert_eq!(nearest(wanted, &listed).map(String::as_str), near, "{wanted}");
            }
        }
    }
}
