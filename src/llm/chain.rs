//! The models of a turn: the chosen one, then its fallbacks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::error::FailureScope;
use super::provider::ShownWatch;
use super::{ChatRequest, ChatResponse, DeltaSink, LlmError, ModelChoice, ModelError, Models};

/// A callback for each answer. It gets the models that were asked, the last of which has answered, and the failures of the others.
pub type OnAnswer = Box<dyn Fn(&[ModelChoice], &[LlmError]) + Send + Sync>;

/// A function that wraps each model before it is asked.
pub type ModelWrapper = Box<dyn Fn(ModelChoice) -> ModelChoice + Send + Sync>;

/// The models of one turn. They are asked in order until one answers; the turn then stays with that model.
pub struct FallbackChain {
    models: Arc<Models>,
    chosen: ModelChoice,
    /// Names of the fallbacks, in order; each is resolved when it is needed.
    fallback: Vec<String>,
    on_answer: OnAnswer,
    wrapper: Option<ModelWrapper>,
    state: Mutex<FallbackState>,
    /// True if the last call failed after a part of its answer was shown.
    is_shown: AtomicBool,
}

struct FallbackState {
    current: ModelChoice,
    /// The model that was asked last, whether or not it answered.
    asked: Option<ModelChoice>,
    /// The failure of each member in the last call; empty after an answer.
    failures: Vec<LlmError>,
}

impl FallbackChain {
    /// Creates the chain that begins with `wanted`, or with the member whose provider has `answered` this turn before.
    ///
    /// # Errors
    /// `wanted` names no model. If a service has no models, or does not list them, its model is skipped as long as there is a
    /// fallback.
    pub async fn new(
        models: Arc<Models>,
        wanted: &str,
        fallback: &[String],
        answered: &str,
        on_answer: OnAnswer,
    ) -> Result<Self, ModelError> {
        let chosen = match models.resolve(wanted).await {
            Err(error @ (ModelError::NoModel { .. } | ModelError::NoModelsInstalled { .. })) => {
                let Some(instead) = first_of(&models, fallback).await else { return Err(error) };
                tracing::warn!(%error, model = %instead, "falling back to another model");
                instead
            }
            chosen => chosen?,
        };
        let mut current = chosen.clone();
        let before = fallback.iter().find(|name| provider_of(name) == answered && chosen.provider.name() != answered);
        if let Some(name) = before {
            // If the member was removed meanwhile, the turn continues with the chosen model.
            current = models.resolve(name).await.unwrap_or(current);
        }
        let state = Mutex::new(FallbackState { current, asked: None, failures: Vec::new() });
        let is_shown = AtomicBool::new(false);
        Ok(Self { models, chosen, fallback: fallback.to_vec(), on_answer, wrapper: None, state, is_shown })
    }

    /// Returns the chain with each model wrapped by `wrapper`; names stay the same.
    pub fn wrapped_by(mut self, wrapper: ModelWrapper) -> Self {
        self.wrapper = Some(wrapper);
        self
    }

    /// Returns the model that answered last, or the one that is asked first.
    pub fn current(&self) -> ModelChoice {
        self.state.lock().current.clone()
    }

    /// Returns the names of the members' providers.
    pub fn providers(&self) -> Vec<String> {
        let others = self.fallback.iter().map(|name| provider_of(name).to_owned());
        let names: BTreeSet<String> = std::iter::once(self.chosen.provider.name().to_owned()).chain(others).collect();
        names.into_iter().collect()
    }

    /// Returns true if any member takes images.
    pub async fn takes_images(&self) -> bool {
        for place in 0..self.fallback.len() + 2 {
            if self.member(place).await.is_some_and(|choice| choice.provider.takes_images(&choice.model)) {
                return true;
            }
        }
        false
    }

    /// Asks the members until one answers; sets `request.model` for each. If a failed member has shown a part of an answer,
    /// tells the sink to discard it.
    ///
    /// # Errors
    /// The request itself is at fault, or no member answered. The error is an outage if a service is the cause. It has the time
    /// of the next possible retry, if every service gave one.
    pub async fn chat(&self, request: &mut ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let sink = ShownWatch { sink, is_shown: &self.is_shown };
        self.state.lock().failures.clear();
        let (mut failures, mut asked): (Vec<LlmError>, Vec<ModelChoice>) = (Vec::new(), Vec::new());
        for place in 0..self.fallback.len() + 2 {
            let Some(choice) = self.member(place).await else { continue };
            if asked.iter().any(|before| before.to_string() == choice.to_string()) {
                continue;
            }
            asked.push(choice.clone());
            if let Some(failed) = failures.last() {
                tracing::warn!(%failed, model = %choice, "another model is asked");
            }
            match self.ask(&choice, request, &sink).await {
                Ok(response) => {
                    (self.on_answer)(&asked, &failures);
                    return Ok(response);
                }
                Err(error) if error.may_fall_back() => failures.push(error),
                // The request itself is at fault, so the failures of other members do not matter.
                Err(error) => {
                    failures = vec![error];
                    break;
                }
            }
        }
        self.state.lock().failures.clone_from(&failures);
        Err(join_failures(failures))
    }

    /// Returns `PROVIDER/MODEL` of the model that was asked last, whether or not it answered; empty before the first call.
    pub fn asked_last(&self) -> String {
        let state = self.state.lock();
        state.asked.as_ref().map(|asked| format!("{}/{}", asked.provider.name(), asked.model)).unwrap_or_default()
    }

    /// Returns the joined failure of the last call, if it failed.
    pub fn failure(&self) -> Option<LlmError> {
        Some(self.failures()).filter(|failures| !failures.is_empty()).map(join_failures)
    }

    /// Returns the failure of each model in the last call, if it failed.
    pub fn failures(&self) -> Vec<LlmError> {
        self.state.lock().failures.clone()
    }

    async fn ask(
        &self,
        choice: &ModelChoice,
        request: &mut ChatRequest,
        sink: &ShownWatch<'_>,
    ) -> Result<ChatResponse, LlmError> {
        sink.take_back();
        request.model.clone_from(&choice.model);
        self.state.lock().asked = Some(choice.clone());
        let asked = self.wrapper.as_ref().map_or_else(|| choice.clone(), |wrapper| wrapper(choice.clone()));
        let result = asked.provider.chat(request, sink).await;
        match &result {
            Ok(_) => {
                self.is_shown.store(false, Ordering::Relaxed);
                if choice.to_string() != self.chosen.to_string() {
                    tracing::info!(model = %choice, instead_of = %self.chosen, "another model answered");
                }
                self.state.lock().current = choice.clone();
            }
            Err(error) => {
                let (code, outage) = (error.code(), error.is_outage());
                tracing::debug!(model = %choice, code, outage, %error, "a model did not answer");
            }
        }
        result
    }

    /// Returns the member at `place`: the one that answered last, the chosen one, then the fallbacks.
    async fn member(&self, place: usize) -> Option<ModelChoice> {
        let name = match place {
            0 => return Some(self.current()),
            1 => return Some(self.chosen.clone()),
            place => self.fallback.get(place - 2)?,
        };
        match self.models.resolve(name).await {
            Ok(choice) => Some(choice),
            Err(error) => {
                tracing::warn!(model = name, %error, "a fallback model cannot be used");
                None
            }
        }
    }
}

async fn first_of(models: &Models, names: &[String]) -> Option<ModelChoice> {
    for name in names {
        if let Ok(choice) = models.resolve(name).await {
            return Some(choice);
        }
    }
    None
}

fn provider_of(name: &str) -> &str {
    name.split('/').next().unwrap_or_default().trim()
}

/// Joins the failures of all members into one error with every message. Its kind is that of the first failure that is a
/// condition of a service, because that service may answer when it is back; otherwise the kind of the first failure. Its retry
/// time is the earliest of the members that may answer later.
fn join_failures(failures: Vec<LlmError>) -> LlmError {
    let is_condition = |error: &&LlmError| error.is_service_condition();
    let may_pass = |error: &&LlmError| error.is_service_condition() || error.is_retryable();
    let waits: Option<Vec<_>> = failures.iter().filter(may_pass).map(|error| error.retry_after).collect();
    let condition = failures.iter().find(is_condition).map(|error| error.kind);
    let mut failures = failures.into_iter();
    // The chain always has a first member, so there is a failure.
    let Some(mut error) = failures.next() else {
        return LlmError::new(super::LlmErrorKind::Connection, "llm", "there is no model to ask");
    };
    let others: Vec<LlmError> = failures.collect();
    if others.is_empty() {
        return error;
    }
    let mut public = error.public.unwrap_or_else(|| error.message.clone());
    for other in &others {
        error.message.push_str(&format!("; {other}"));
        public.push_str(&format!("; {}", other.to_public()));
    }
    error.public = Some(public);
    error.retry_after = waits.and_then(|waits| waits.into_iter().min());
    error.kind = condition.unwrap_or(error.kind);
    error.blame = if condition.is_some() { FailureScope::Service } else { FailureScope::Request };
    error
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
