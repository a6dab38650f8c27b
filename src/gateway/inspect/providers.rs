//! Lists and checks the model services and the model in use.

use std::collections::BTreeMap;
use std::time::Duration;

use daoyou_channels::{Finding, Severity};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Inspector;
use crate::llm::{
    CircuitState, KeySource, KnownService, LlmError, LlmErrorKind, ModelChoice, OFFLINE, ProviderProbe, RemoteProvider,
    SERVICES, display_address, is_chat_model, is_same_model, nearest,
};
use crate::query::{InspectError, ProbeScope};
use crate::turn::token_budget::stated_limits;

/// The time limit for a service's list of models.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// The time limit for a model's short answer; a local server may have to load the model first.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The tolerated clock skew, in seconds.
const MAX_SKEW: i64 = 120;

/// Returns the seconds until an open circuit breaker admits a call.
pub(super) fn seconds_open(circuit: CircuitState) -> Option<u64> {
    match circuit {
        CircuitState::Open(left) => Some(left.as_secs() + 1),
        CircuitState::Closed | CircuitState::HalfOpen => None,
    }
}

/// The results of probes, by service.
type ProbeResults = BTreeMap<String, Result<ProviderProbe, LlmError>>;

/// Trial calls of models in order, each with its service.
type TrialCalls = Vec<(String, TrialCall)>;

/// A model and the result of its trial call.
type TrialCall = (String, Result<(), LlmError>);

impl Inspector {
    pub(super) async fn model_rows(&self, scope: ProbeScope) -> Result<Value, InspectError> {
        let mut names: Vec<&str> = self.models.services().map(|(name, _)| name).collect();
        names.extend(
            SERVICES.iter().map(|service| service.name).filter(|name| !names.contains(name)).collect::<Vec<_>>(),
        );
        names.sort_by_key(|name| (!self.config.providers.contains_key(*name), !self.has_key(name)));
        names.push(OFFLINE);
        if let ProbeScope::One(wanted) = &scope {
            names.retain(|name| name == wanted);
            if names.is_empty() {
                let what = format!("there is no provider {wanted:?}; `daoyou models` lists those there are");
                return Err(InspectError::Unknown(what));
            }
        }
        let is_probed = |name: &str| match &scope {
            ProbeScope::None => false,
            ProbeScope::All => true,
            ProbeScope::One(wanted) => name == wanted,
        };
        let resolved = self.models.resolve(&self.config.agent.model).await;
        let named: Vec<String> = names.iter().filter(|name| is_probed(name)).map(|name| (*name).to_owned()).collect();
        let (answers, calls) = tokio::join!(self.probe_services(is_probed), self.call_models(&named));
        let (takes, error) = match &resolved {
            Ok(choice) => (Some(choice.to_string()), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let in_use = resolved.as_ref().map(|choice| choice.provider.name()).unwrap_or_default();
        let rows: Vec<Value> = names
            .iter()
            .map(|name| self.row(name, in_use, (answers.get(*name), calls_of(&calls, name).next())))
            .collect();
        let stated = self.read(stated_limits).await?;
        let lack = self.models.lacking_local_model().await.map(|lack| lack.to_string());
        let model = &self.config.agent.model;
        Ok(
            json!({ "model": model, "takes": takes, "error": error, "lack": lack, "stated_contexts": stated, "providers": rows }),
        )
    }

    fn row(
        &self,
        name: &str,
        in_use: &str,
        (answer, call): (Option<&Result<ProviderProbe, LlmError>>, Option<&TrialCall>),
    ) -> Value {
        let service = KnownService::find(name);
        let provider = self.provider(name);
        // Only a running gateway has made calls.
        let circuit = self.running.as_ref().and(provider).map(|provider| provider.circuit().0);
        let url = provider.map(|provider| display_address(provider.base_url()));
        let (models, error) = match answer {
            None => (None, None),
            Some(Ok(ProviderProbe { models: Ok(models), .. })) => (Some(models), None),
            Some(Ok(ProviderProbe { models: Err(error), .. }) | Err(error)) => (None, Some(error.owner_message())),
        };
        let (answers, call_error) = match call {
            None => (None, None),
            Some((model, Ok(()))) => (Some(model), None),
            Some((_, Err(error))) => (None, Some(error.owner_message())),
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
            "circuit": circuit.map(CircuitState::as_str),
            "circuit_seconds": circuit.and_then(seconds_open),
            "last_failure": self.running.as_ref().and(provider).and_then(RemoteProvider::last_failure),
            "models": models,
            "error": error,
            // The model that answered the trial call.
            "answers": answers,
            "call_error": call_error,
        })
    }

    fn has_key(&self, name: &str) -> bool {
        self.provider(name).is_some_and(RemoteProvider::has_key)
    }

    fn provider(&self, name: &str) -> Option<&RemoteProvider> {
        self.models.services().find(|(other, _)| *other == name).map(|(_, provider)| &**provider)
    }

    /// Probes services concurrently.
    async fn probe_services(&self, wanted: impl Fn(&str) -> bool) -> ProbeResults {
        let probed = self.models.services().filter(|(name, _)| wanted(name));
        let answers = probed.map(async |(name, provider)| (name.to_owned(), provider.probe(PROBE_LIMIT).await));
        join_all(answers).await.into_iter().collect()
    }

    /// Makes a trial call to each of these models, as a turn would. A name is `PROVIDER/MODEL`, or a provider, which means its
    /// default model.
    async fn call_models(&self, wanted: &[String]) -> TrialCalls {
        let called = wanted.iter().map(async |wanted| {
            let choice = self.models.resolve(wanted).await.ok()?;
            let name = choice.provider.name().to_owned();
            let result = self.provider(&name)?.try_out(&choice.model, CALL_LIMIT).await;
            Some((name, (choice.to_string(), result)))
        });
        join_all(called).await.into_iter().flatten().collect()
    }

    /// Returns the chat models that a service lists; none if it lists no models.
    ///
    /// # Errors
    /// The service cannot be reached or refuses the key, as a finding.
    pub async fn listed_models(&self, name: &str) -> Result<Vec<String>, Finding> {
        let Some(provider) = self.provider(name) else {
            return self.missing_secret(name).map_or_else(|| Ok(Vec::new()), Err);
        };
        match provider.probe(PROBE_LIMIT).await {
            Ok(ProviderProbe { models: Ok(models), .. }) => {
                Ok(models.into_iter().filter(|model| is_chat_model(model)).collect())
            }
            Ok(ProviderProbe { models: Err(_), status: 404 | 405, .. }) => Ok(Vec::new()),
            other => Err(service_check(name, &other, None)),
        }
    }

    /// Makes a trial call to `PROVIDER/MODEL`.
    pub async fn trial_call(&self, wanted: &str) -> Finding {
        let name = wanted.split('/').next().unwrap_or_default();
        let called = [wanted.to_owned()];
        let (answers, calls) = tokio::join!(self.probe_services(|other| other == name), self.call_models(&called));
        match answers.get(name) {
            Some(answer) => service_check(name, answer, calls_of(&calls, name).next()),
            None if name == OFFLINE => Finding::ok(OFFLINE, "offline, the built-in responder"),
            None => self
                .missing_secret(name)
                .unwrap_or_else(|| Finding::fail(name, "it is not set up", "`daoyou models` lists what there is")),
        }
    }

    /// Returns a finding if a secret of the service is missing.
    fn missing_secret(&self, name: &str) -> Option<Finding> {
        let keys = format!("providers.{name}.");
        let fault = self.missing.iter().find(|fault| fault.key.starts_with(&keys))?;
        let (message, mend) = fault.wrong.split_once("; ").unwrap_or((&fault.wrong, "daoyou config check"));
        Some(Finding::fail(name, message, mend))
    }

    /// Returns a finding if the key of the model's service is a systemd credential, which only the service can read.
    fn unread_credential(&self) -> Option<Finding> {
        let model = &self.config.agent.model;
        let missing = self.missing_secret(model.split('/').next().unwrap_or_default())?;
        let message = format!("{model} was not asked: {}", missing.message);
        Some(Finding::warn("model", message, "start the service, and run doctor again"))
    }

    /// Returns the address of a service's API.
    pub fn asked_address(&self, name: &str) -> Option<String> {
        self.provider(name).map(|provider| display_address(provider.chat_url()))
    }

    /// Checks the model in use and its fallbacks, each configured service, and the clock.
    pub(super) async fn provider_checks(&self) -> Vec<Finding> {
        let resolved = self.models.resolve(&self.config.agent.model).await;
        let in_use = resolved.as_ref().map(|choice| choice.provider.name().to_owned()).unwrap_or_default();
        let is_set_up = |name: &str| self.config.providers.contains_key(name) || self.has_key(name) || name == in_use;
        // The model in use comes first, so that its call decides about its service.
        let called: Vec<String> =
            [&self.config.agent.model].into_iter().chain(&self.config.agent.fallback).cloned().collect();
        let (answers, calls) = tokio::join!(self.probe_services(is_set_up), self.call_models(&called));
        let mut findings = match &resolved {
            Ok(choice) => vec![self.model_check(choice, answers.get(&in_use)).await],
            Err(_) if let Some(finding) = self.unread_credential() => vec![finding],
            Err(error) => vec![Finding::fail(
                "model",
                error.to_string(),
                "set agent.model in config.toml; `daoyou models` lists what there is",
            )],
        };
        for (name, answer) in &answers {
            let mut calls = calls_of(&calls, name);
            let finding = self.service_finding(name, answer, calls.next());
            // Only a failure of the service in use stops replies.
            let is_worse = finding.state == Severity::Fail && *name != in_use && resolved.is_ok();
            findings.push(if is_worse { finding.with_severity(Severity::Warn) } else { finding });
            for call in calls.filter(|(_, result)| result.is_err()) {
                let finding = self.service_finding(name, answer, Some(call)).with_severity(Severity::Warn);
                findings.push(Finding { name: format!("model {}", call.0), ..finding });
            }
        }
        findings.extend(clock_check(&answers, Timestamp::now()));
        findings
    }

    /// Checks a service, and names the address that was asked.
    fn service_finding(
        &self,
        name: &str,
        answer: &Result<ProviderProbe, LlmError>,
        call: Option<&TrialCall>,
    ) -> Finding {
        let finding = service_check(name, answer, call);
        let names_address = deciding_error(answer, call).is_some_and(|error| !error.for_owner.is_empty());
        let address = |provider: &RemoteProvider| {
            display_address(if call.is_some() { provider.chat_url() } else { provider.models_url() })
        };
        match self.provider(name).filter(|_| !names_address).map(address) {
            Some(address) => Finding { message: format!("{}; asked {address}", finding.message), ..finding },
            None => finding,
        }
    }

    async fn model_check(&self, choice: &ModelChoice, answer: Option<&Result<ProviderProbe, LlmError>>) -> Finding {
        const NAME: &str = "model";
        let configured = &self.config.agent.model;
        let is_auto = matches!(configured.as_str(), "" | "auto");
        if choice.provider.name() == OFFLINE {
            return if let Some(lack) = self.models.lacking_local_model().await.filter(|_| is_auto) {
                Finding::warn(
                    NAME,
                    format!("{lack}; until then auto takes the built-in offline responder"),
                    lack.install_command(),
                )
            } else if is_auto && !self.config.providers.contains_key(OFFLINE) {
                Finding::warn(
                    NAME,
                    "no model service is set up: auto takes the built-in offline responder",
                    "daoyou init connects a model",
                )
            } else {
                Finding::ok(NAME, "offline, the built-in responder")
            };
        }
        let shown = if is_auto { format!("auto takes {choice}") } else { choice.to_string() };
        let Some(Ok(ProviderProbe { models: Ok(listed), .. })) = answer else { return Finding::ok(NAME, shown) };
        if listed.is_empty() || listed.iter().any(|name| is_same_model(name, &choice.model)) {
            return Finding::ok(NAME, shown);
        }
        let provider = choice.provider.name();
        let nearest = nearest(&choice.model, listed);
        let nearest = nearest.first().map(|name| format!("set agent.model = \"{provider}/{name}\"; "));
        Finding::warn(
            NAME,
            format!("{shown}, which is none of the {} models that {provider} lists", listed.len()),
            format!("{}`daoyou models {provider}` lists them", nearest.unwrap_or_default()),
        )
    }
}

/// Returns the trial calls of a service's models.
fn calls_of<'a>(calls: &'a TrialCalls, service: &str) -> impl Iterator<Item = &'a TrialCall> {
    calls.iter().filter(move |(name, _)| name == service).map(|(_, call)| call)
}

/// Returns the failure of a service's trial call, or else of its probe.
fn deciding_error<'a>(probe: &'a Result<ProviderProbe, LlmError>, call: Option<&'a TrialCall>) -> Option<&'a LlmError> {
    match (call, probe) {
        (Some((_, result)), _) => result.as_ref().err(),
        // Some services do not list their models.
        (None, Ok(ProviderProbe { models: Err(_), status: 404 | 405, .. })) => None,
        (None, Ok(ProviderProbe { models, .. })) => models.as_ref().err(),
        (None, Err(error)) => Some(error),
    }
}

/// Checks a service by its probe, or by its trial call if there was one.
fn service_check(name: &str, answer: &Result<ProviderProbe, LlmError>, call: Option<&TrialCall>) -> Finding {
    let check = format!("provider {name}");
    let listed = match answer {
        Ok(ProviderProbe { models: Ok(models), .. }) => format!("lists {} models", models.len()),
        Ok(ProviderProbe { status, .. }) => format!("lists no models (HTTP {status})"),
        Err(_) => "lists no models".to_owned(),
    };
    let Some(error) = deciding_error(answer, call) else {
        let is_listing = matches!(answer, Ok(ProviderProbe { models: Ok(_), .. }));
        let message = match call {
            Some((model, _)) => format!("it answers as {model}, and {listed}"),
            None if is_listing => format!("it can be reached, and {listed}"),
            None => format!("it can be reached and {listed}; only a message can show whether it answers"),
        };
        return Finding::ok(check, message);
    };
    let words = error.owner_message();
    match error.kind {
        LlmErrorKind::Quota => Finding::fail(
            check,
            format!("the account has no credit left: {words}"),
            "top up the account at the service",
        ),
        LlmErrorKind::Auth => {
            let variable = KnownService::find(name).and_then(|service| service.key_variables.first());
            let variable = variable.map(|name| format!(" (or the variable {name})")).unwrap_or_default();
            let mend = format!("set providers.{name}.api_key in config.toml{variable} to a key that is good");
            Finding::fail(check, format!("it refuses the key: {words}"), mend)
        }
        LlmErrorKind::RateLimit => Finding::warn(check, format!("it answers, but not now: {words}"), "try again later"),
        // A turn would wait longer than this call.
        LlmErrorKind::Timeout if !error.is_outage() => Finding::warn(check, words, "try again later"),
        LlmErrorKind::Server => Finding::fail(check, format!("it fails at the moment: {words}"), "try again later"),
        LlmErrorKind::Connection | LlmErrorKind::Timeout => {
            let mend =
                format!("check the network, a proxy (HTTPS_PROXY), and providers.{name}.base_url in config.toml");
            Finding::fail(check, format!("it cannot be reached: {words}"), mend)
        }
        _ => {
            let mend = format!("check providers.{name}.base_url and the model in config.toml; `daoyou models {name}`");
            Finding::fail(check, format!("it refuses a plain message: {words}"), mend)
        }
    }
}

/// Compares the clock of this machine with those of the services.
fn clock_check(answers: &ProbeResults, now: Timestamp) -> Option<Finding> {
    let dates = answers.iter().filter_map(|(name, answer)| Some((name, answer.as_ref().ok()?.date?)));
    let off = |date: Timestamp| now.as_second() - date.as_second();
    let (name, skew) = dates.map(|(name, date)| (name, off(date))).max_by_key(|(_, skew)| skew.abs())?;
    if skew.abs() <= MAX_SKEW {
        return Some(Finding::ok("clock of services", format!("within {} s of {name}'s", skew.abs())));
    }
    let way = if skew > 0 { "ahead of" } else { "behind" };
    Some(Finding::warn(
        "clock of services",
        format!("this machine's clock is {} s {way} {name}'s; signatures and schedules depend on it", skew.abs()),
        "timedatectl set-ntp true",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::FailureScope;

    fn answered(status: u16, models: Option<&[&str]>) -> Result<ProviderProbe, LlmError> {
        let refusal = || LlmError::new(LlmErrorKind::Auth, "p", format!("HTTP {status}"));
        let models = models.map(|names| names.iter().map(|name| (*name).to_owned()).collect()).ok_or_else(refusal);
        Ok(ProviderProbe { status, date: None, models })
    }

    #[test]
    fn a_service_is_checked_by_its_trial_call_or_else_its_list_of_models() {
        let lists = |models: &[&str]| answered(200, Some(models));
        let outage =
            LlmError { blame: FailureScope::Service, ..LlmError::new(LlmErrorKind::Connection, "p", "refused") };
        let called = |result: Result<(), LlmError>| Some(("openai/gpt".to_owned(), result));
        let failed = |kind, words: &str| called(Err(LlmError::new(kind, "p", words)));
        for (answer, call, state, words) in [
            (lists(&["a", "b"]), None, Severity::Ok, "can be reached, and lists 2 models"),
            (lists(&["a", "b"]), called(Ok(())), Severity::Ok, "answers as openai/gpt, and lists 2 models"),
            (
                answered(404, None),
                called(Ok(())),
                Severity::Ok,
                "answers as openai/gpt, and lists no models (HTTP 404)",
            ),
            (lists(&["a"]), failed(LlmErrorKind::BadRequest, "HTTP 404"), Severity::Fail, "refuses a plain"),
            (lists(&["a"]), failed(LlmErrorKind::Auth, "HTTP 401"), Severity::Fail, "refuses the key"),
            (lists(&["a"]), failed(LlmErrorKind::Quota, "HTTP 402: x"), Severity::Fail, "no credit left: HTTP 402: x"),
            (lists(&["a"]), failed(LlmErrorKind::Server, "HTTP 500"), Severity::Fail, "at the moment"),
            (lists(&["a"]), failed(LlmErrorKind::RateLimit, "HTTP 429"), Severity::Warn, "not now"),
            (lists(&["a"]), failed(LlmErrorKind::Timeout, "late"), Severity::Warn, "late"),
            (answered(401, None), None, Severity::Fail, "refuses the key: HTTP 401"),
            (answered(404, None), None, Severity::Ok, "only a message can show"),
            (Err(outage), None, Severity::Fail, "cannot be reached: refused"),
        ] {
            let finding = service_check("openai", &answer, call.as_ref());
            assert_eq!(finding.state, state, "{finding:?}");
            assert_eq!(deciding_error(&answer, call.as_ref()).is_some(), state != Severity::Ok, "{finding:?}");
            assert!(
                finding.message.contains(words) && (finding.mend.is_some() != (state == Severity::Ok)),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn the_largest_clock_skew_is_reported() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for (dates, state) in [
            (&[][..], None),
            (&[0, 100][..], Some(Severity::Ok)),
            (&[0, 121][..], Some(Severity::Warn)),
            (&[-500, 3][..], Some(Severity::Warn)),
        ] {
            let answers: ProbeResults = dates
                .iter()
                .map(|off| {
                    let date = Timestamp::from_second(1_800_000_000 + off).ok();
                    (off.to_string(), Ok(ProviderProbe { status: 200, date, models: Ok(Vec::new()) }))
                })
                .collect();
            assert_eq!(clock_check(&answers, now).map(|finding| finding.state), state, "{dates:?}");
        }
    }
}
