//! One configured service: its connections, deadlines and retries. Its dialect defines requests and answers.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::settings::{Secret, join_key};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, Method, Request, Response, Url};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::ToolNames;
use super::address::{self, below, display_address};
use super::attempt_error::{AttemptError, shorten};
use super::client::{ClientProfile, HttpClients};
use super::dialect::{AnswerBody, Dialect, read_capped};
use super::image_support::ImageSupport;
use crate::chat::{ChatMessage, Usage};
use crate::llm::anthropic::AnthropicDialect;
use crate::llm::circuit::{CallPermit, CircuitBreaker};
use crate::llm::openai::OpenaiDialect;
use crate::llm::provider::ShownWatch;
use crate::llm::retry::{FailedAttempt, Retry, random_fraction};
use crate::llm::{
    ChatRequest, ChatResponse, CircuitState, DeltaSink, Images, LlmError, LlmErrorKind, NoDeltas, Provider,
    ProviderConfig, ProviderKind,
};
use crate::text::innermost_cause;

/// The maximum size, in bytes, of one whole answer.
const ANSWER_LIMIT: usize = 16 * 1024 * 1024;
/// The maximum number of bytes that are read of an error's body.
const ERROR_LIMIT: usize = 64 * 1024;
/// The maximum size, in bytes, of a list of models: OpenRouter's is over one megabyte.
const MODELS_LIMIT: usize = 8 * 1024 * 1024;
/// The longest wait for the end of the body after the answer, so that the connection can be used again.
const DRAIN: Duration = Duration::from_millis(20);
/// Deadline of the search for an address that works.
const ADVICE_DEADLINE: Duration = Duration::from_secs(3);
/// The longest answer to a trial call, in tokens.
const TRY_OUT_TOKENS: u32 = 16;
/// The longest wait for the token count after the end of an answer.
const USAGE_GRACE: Duration = Duration::from_secs(2);
/// The maximum number of changes of one call after refusals; each refusal names one part of the request.
const CHANGES_LIMIT: u32 = 6;
/// The maximum number of pages of a list of models.
const PAGES_LIMIT: usize = 50;

/// One configured service. All services share their connections through [`HttpClients`].
pub struct RemoteProvider {
    name: String,
    base_url: Url,
    chat_url: Url,
    models_url: Url,
    /// The address for embeddings; `None` if the protocol has none.
    pub(super) vectors_url: Option<Url>,
    pub(super) headers: HeaderMap,
    /// The settings, with the secrets, which must not appear in an error.
    pub(super) config: ProviderConfig,
    clients: Arc<HttpClients>,
    /// The client. The first request creates it, so that an unused service costs nothing.
    client: OnceLock<Client>,
    reach: ClientProfile,
    pub(super) dialect: Box<dyn Dialect>,
    pub(super) image_support: ImageSupport,
    pub(super) retry: Retry,
    circuit: CircuitBreaker,
    /// The failure of the last call, for the owner; `None` if the request was at fault.
    last_failure: Mutex<Option<String>>,
    /// The log names the first impossible token count.
    is_usage_fault_logged: AtomicBool,
}

/// A service's answer to a request for its models.
#[derive(Clone, Debug)]
pub struct ProviderProbe {
    /// The HTTP status.
    pub status: u16,
    /// The time by the service's clock.
    pub date: Option<Timestamp>,
    /// The service's models, or its refusal.
    pub models: Result<Vec<String>, LlmError>,
}

impl RemoteProvider {
    /// Creates a provider from a resolved `config`: its `base_url` is set, and so is `api_key`, unless the service needs no
    /// key.
    ///
    /// # Errors
    /// The text names the invalid setting and its fault, e.g. `base_url: …`.
    pub fn new(name: &str, config: &ProviderConfig, clients: Arc<HttpClients>) -> Result<Self, String> {
        let kind = config.kind.unwrap_or_default();
        let base = address::base(config.base_url.as_deref().unwrap_or_default(), kind);
        let base = base.map_err(|error| format!("base_url: {error}"))?;
        let dialect: Box<dyn Dialect> = match kind {
            ProviderKind::Anthropic => Box::new(AnthropicDialect::new(name, config.thinking)?),
            ProviderKind::Openai | ProviderKind::Offline if config.thinking > 0 => {
                return Err("thinking: is a setting of kind = \"anthropic\"".to_owned());
            }
            ProviderKind::Openai | ProviderKind::Offline => Box::new(OpenaiDialect::new(name, &base, config)),
        };
        Ok(Self {
            name: name.to_owned(),
            chat_url: below(&base, dialect.chat_path()),
            models_url: below(&base, &["models"]),
            vectors_url: (kind == ProviderKind::Openai).then(|| below(&base, &["embeddings"])),
            reach: ClientProfile::of(&base, config.connect_timeout.0),
            base_url: base,
            headers: headers(config, dialect.as_ref())?,
            config: config.clone(),
            clients,
            client: OnceLock::new(),
            dialect,
            image_support: ImageSupport::new(config.images),
            retry: Retry::new(config.retries),
            circuit: CircuitBreaker::default(),
            last_failure: Mutex::default(),
            is_usage_fault_logged: AtomicBool::new(false),
        })
    }

    /// Returns the settings.
    pub fn config(&self) -> &ProviderConfig {
        &self.config
    }

    pub fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// Returns the address of chats.
    pub fn chat_url(&self) -> &Url {
        &self.chat_url
    }

    /// Returns the address of the list of models.
    pub fn models_url(&self) -> &Url {
        &self.models_url
    }

    /// Returns the names of the service's models within `deadline`; asked once, without retries.
    ///
    /// # Errors
    /// The service cannot be reached within `deadline`, refuses the request, or answers with something else than a
    /// list.
    pub async fn models(&self, deadline: Duration) -> Result<Vec<String>, LlmError> {
        let until = Instant::now() + deadline;
        let listed = async { self.read_models(self.ask_models(&self.models_url, until).await?, until).await };
        listed.await.map_err(|fault| self.error(fault))
    }

    /// Returns the names of the service's models, as [`models`](Self::models) does, for a turn that must choose a model. An
    /// open breaker refuses the call, and a refused key or an empty account opens it.
    ///
    /// # Errors
    /// Those of [`models`](Self::models), or the breaker is open.
    pub async fn models_for_turn(&self, deadline: Duration) -> Result<Vec<String>, LlmError> {
        let permit = self.circuit.enter(&self.name, None)?;
        let result = self.models(deadline).await;
        if result.as_ref().is_err_and(|error| error.kind.needs_owner()) {
            return self.end(permit, result);
        }
        // A list of models says nothing about chats, so the breaker does not count it.
        result
    }

    /// Asks the service for its models, to learn whether it is reachable and accepts the key. Asks once, without retries.
    ///
    /// # Errors
    /// The service cannot be reached within `deadline`.
    pub async fn probe(&self, deadline: Duration) -> Result<ProviderProbe, LlmError> {
        let until = Instant::now() + deadline;
        let response = self.ask_models(&self.models_url, until).await.map_err(|fault| self.error(fault))?;
        let status = response.status().as_u16();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let models = self.read_models(response, until).await.map_err(|fault| self.error(fault));
        Ok(ProviderProbe { status, date, models })
    }

    /// Asks `model` for a few words as a turn would, to learn whether calls succeed. Asks once, without retries.
    ///
    /// # Errors
    /// The errors of a turn's call, or no answer came within `deadline`.
    pub async fn try_out(&self, model: &str, deadline: Duration) -> Result<(), LlmError> {
        let request = ChatRequest {
            model: model.to_owned(),
            messages: vec![ChatMessage::user("ping").into()],
            max_tokens: Some(TRY_OUT_TOKENS),
            ..ChatRequest::default()
        };
        match timeout(deadline, self.try_chat(&request, &NoDeltas, Retry::new(0))).await {
            Ok(result) => result.map(drop),
            Err(_) => {
                let late = format!("no answer to a message of one word within {deadline:?}");
                Err(self.error(AttemptError::new(LlmErrorKind::Timeout, late).asked(&self.chat_url)))
            }
        }
    }

    /// Returns the failure of the last call, for the owner; `None` after an answer, or if the request was at fault.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().clone()
    }

    /// Returns the state of the breaker, and how often it has opened.
    pub fn circuit(&self) -> (CircuitState, u64) {
        self.circuit.state()
    }

    /// Closes the breaker, so that the next call goes through.
    pub fn reset_circuit(&self) {
        self.circuit.reset();
    }

    /// Returns true if a key, or a header in place of one, is sent.
    pub fn has_key(&self) -> bool {
        self.secrets().next().is_some()
    }

    async fn ask_models(&self, url: &Url, until: Instant) -> Result<Response, AttemptError> {
        let mut request = Request::new(Method::GET, url.clone());
        request.headers_mut().clone_from(&self.headers);
        let response = timeout_at(until, self.client()?.execute(request)).await.map_err(|_| late_list().asked(url))?;
        response.map_err(|error| self.connection_fault(error).asked(url))
    }

    async fn read_models(&self, mut response: Response, until: Instant) -> Result<Vec<String>, AttemptError> {
        let mut names = Vec::new();
        for _ in 0..PAGES_LIMIT {
            response = self.check_status(response, until).await?;
            let body = timeout_at(until, read_capped(response, MODELS_LIMIT)).await.map_err(|_| late_list())?;
            let list: Value = serde_json::from_slice(&body).unwrap_or_default();
            let models = match &list["data"] {
                Value::Array(models) => models.as_slice(),
                // Ollama writes an empty list like this.
                Value::Null if list["object"] == "list" => &[],
                _ => return Err(AttemptError::unusable("the list of models could not be read")),
            };
            names.extend(models.iter().filter_map(|model| model["id"].as_str()).map(str::to_owned));
            let Some((name, value)) = self.dialect.next_models(&list) else { break };
            let mut next = self.models_url.clone();
            next.query_pairs_mut().append_pair(name, &value);
            response = self.ask_models(&next, until).await?;
        }
        Ok(names)
    }

    pub(super) fn prepare(&self, chat: &ChatRequest, names: &ToolNames) -> Result<Request, AttemptError> {
        let chat = if chat.images.is_empty() || self.image_support.takes_images(&chat.model) {
            Cow::Borrowed(chat)
        } else {
            Cow::Owned(ChatRequest { images: Images::default(), ..chat.clone() })
        };
        let body = self.dialect.body(&chat, names, self.streams(&chat.model)).map_err(|error| {
            AttemptError::new(LlmErrorKind::BadRequest, format!("the request cannot be written: {error}"))
        })?;
        Ok(self.post(&self.chat_url, body))
    }

    /// Returns a request that sends JSON.
    pub(super) fn post(&self, url: &Url, body: Vec<u8>) -> Request {
        let mut request = Request::new(Method::POST, url.clone());
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(body.into());
        request
    }

    fn streams(&self, model: &str) -> bool {
        self.config.stream && self.dialect.streams(model)
    }

    /// Makes one request and reads its answer, within the deadlines.
    async fn attempt(
        &self,
        request: Request,
        asked: &str,
        names: &ToolNames,
        sink: &dyn DeltaSink,
    ) -> Result<ChatResponse, AttemptError> {
        let client = self.client()?;
        let mut deadlines = AttemptDeadlines::new(&self.config, self.streams(asked));
        let response = match timeout_at(deadlines.until(), client.execute(request)).await {
            Err(_) => return Err(deadlines.fault()),
            Ok(Err(error)) => return Err(self.connection_fault(error)),
            Ok(Ok(response)) => response,
        };
        let mut response = self.check_status(response, deadlines.until()).await?;
        let mut assembler = self.dialect.assembler(names, ANSWER_LIMIT, sink);
        let mut body = AnswerBody::new(ANSWER_LIMIT);
        while !assembler.is_done() {
            match timeout_at(deadlines.until(), response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    if body.push(&bytes, assembler.as_mut())? {
                        deadlines.restart_idle(assembler.is_complete());
                    }
                }
                Ok(Ok(None)) => {
                    body.end(assembler.as_mut())?;
                    break;
                }
                // The answer is complete; only its token count is missing.
                _ if assembler.is_complete() => break,
                Ok(Err(error)) => return Err(self.connection_fault(error)),
                Err(_) => return Err(deadlines.fault()),
            }
        }
        if assembler.is_done() {
            drain(&mut response).await;
        }
        assembler.into_response(asked)
    }

    pub(super) async fn check_status(&self, response: Response, until: Instant) -> Result<Response, AttemptError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers().clone();
        let asked = response.url().clone();
        // The status of a refusal is enough if its body does not arrive.
        let body = timeout_at(until, read_capped(response, ERROR_LIMIT)).await.unwrap_or_default();
        let mut fault = AttemptError::from_status(status.as_u16(), &headers, &body, jiff::Timestamp::now());
        fault.is_unknown_address = matches!(status.as_u16(), 404 | 405);
        Err(fault.asked(&asked))
    }

    pub(super) fn client(&self) -> Result<&Client, AttemptError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let made = self.clients.get(self.reach).map_err(|error| {
            AttemptError::new(LlmErrorKind::Connection, format!("cannot set up TLS: {}", cause(&error.without_url())))
        })?;
        Ok(self.client.get_or_init(|| made))
    }

    fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.config.api_key.iter().chain(self.config.headers.values())
    }

    pub(super) fn connection_fault(&self, error: reqwest::Error) -> AttemptError {
        let host = self.chat_url.host_str().unwrap_or_default();
        let place = self.chat_url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
        if error.is_timeout() {
            let within = self.config.connect_timeout.0;
            let message = format!("no connection to {place} within {within:?} (connect_timeout)");
            let public = format!("no connection within {within:?}");
            return AttemptError::outage(LlmErrorKind::Timeout, message).publicly(public);
        }
        // Connecting includes name resolution and TLS.
        if error.is_connect() {
            let message = format!("cannot connect to {place}: {}", cause(&error.without_url()));
            return AttemptError::outage(LlmErrorKind::Connection, message).publicly("it cannot be reached");
        }
        let message = format!("the connection broke to {place}: {}", cause(&error.without_url()));
        AttemptError::new(LlmErrorKind::Connection, message).publicly("the connection broke")
    }

    pub(super) fn error(&self, fault: AttemptError) -> LlmError {
        fault.into_error(&self.name, self.secrets().map(Secret::expose))
    }
}

#[async_trait]
impl Provider for RemoteProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn takes_tools(&self, model: &str) -> bool {
        self.dialect.takes_tools(model)
    }

    fn takes_images(&self, model: &str) -> bool {
        self.image_support.takes_images(model)
    }

    fn body(&self, request: &ChatRequest) -> Result<Vec<u8>, LlmError> {
        let prepared = self.prepare(request, &ToolNames::of(&request.tools)).map_err(|fault| self.error(fault))?;
        Ok(prepared.body().and_then(Body::as_bytes).unwrap_or_default().to_vec())
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let permit = self.circuit.enter(&self.name, Some(request))?;
        let result = self.try_chat(request, sink, self.retry).await;
        self.end(permit, result)
    }
}

impl RemoteProvider {
    /// Reports the outcome of a call to the breaker. The error of a refused key or an empty account, which opens the breaker,
    /// gets the time until the next call may go through.
    fn end<T>(&self, permit: CallPermit<'_>, mut result: Result<T, LlmError>) -> Result<T, LlmError> {
        if permit.end(result.as_ref().err()) {
            let failure = result.as_ref().err().filter(|error| error.may_fall_back());
            *self.last_failure.lock() = failure.map(LlmError::owner_message);
        }
        if let Err(error) = &mut result
            && error.kind.needs_owner()
        {
            error.retry_after = self.circuit.remaining();
        }
        result
    }

    async fn try_chat(
        &self,
        request: &ChatRequest,
        sink: &dyn DeltaSink,
        retry: Retry,
    ) -> Result<ChatResponse, LlmError> {
        let started = Instant::now();
        let names = ToolNames::of(&request.tools);
        let mut request = Cow::Borrowed(request);
        let mut prepared = self.prepare(&request, &names).map_err(|fault| self.error(fault))?;
        let (mut retries, mut changes) = (0, 0);
        let sink = ShownWatch { sink, is_shown: &AtomicBool::new(false) };
        loop {
            // A body of bytes can always be cloned; the copies share the bytes.
            let Some(again) = prepared.try_clone() else {
                return Err(self.error(AttemptError::new(LlmErrorKind::BadRequest, "the request cannot be sent twice")));
            };
            let mut fault = match self.attempt(again, &request.model, &names, &sink).await {
                Ok(mut response) => {
                    if let Some(reasoning) = &mut response.reasoning {
                        reasoning.provider.clone_from(&self.name);
                    }
                    response.latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    self.correct_usage(&mut response.usage);
                    return Ok(response);
                }
                Err(fault) if matches!(fault.kind, LlmErrorKind::Connection | LlmErrorKind::Timeout) => {
                    fault.asked(&self.chat_url)
                }
                Err(fault) => fault,
            };
            if changes < CHANGES_LIMIT
                && let Some(again) = self.adapted(&mut request, &names, &prepared, &fault)
            {
                (prepared, changes) = (again, changes + 1);
                sink.take_back();
                continue;
            }
            let tried = FailedAttempt { kind: fault.kind, retry_after: fault.retry_after, retries };
            let Some(wait) = retry.wait(tried, random_fraction()) else {
                fault.append(&tried.why_given_up());
                let is_unknown_address = fault.is_unknown_address;
                let error = self.error(fault);
                return Err(if is_unknown_address { self.with_advice(error).await } else { error });
            };
            sink.take_back();
            retries += 1;
            let error = self.error(fault);
            tracing::warn!(provider = self.name, code = error.code(), retries, wait_ms = wait.as_millis() as u64, %error, "model call failed, trying again");
            sleep(wait).await;
        }
    }

    /// Discards token counts that cannot be true, so that they are estimated, as if the service reported none. The cached tokens are a
    /// part of the input.
    fn correct_usage(&self, usage: &mut Usage) {
        if usage.is_possible() {
            usage.cached_tokens = usage.cached_tokens.min(usage.input_tokens);
            return;
        }
        if !self.is_usage_fault_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                provider = self.name,
                ?usage,
                "the service reports impossible token counts, which are estimated instead"
            );
        }
        *usage = Usage::default();
    }

    /// Adds the address that works to the error about an unknown address, if one is found.
    async fn with_advice(&self, mut error: LlmError) -> LlmError {
        if let Some(works) = self.working_base().await {
            // The configuration also accepts the whole path of a request.
            let works = display_address(&below(&works, self.dialect.chat_path()));
            error.for_owner +=
                &format!("; set providers.{}.base_url = \"{works}\", where the service answers", self.name);
        }
        tracing::warn!(provider = self.name, address = error.for_owner, %error, "the service knows no such address or model");
        error
    }

    /// Returns another base at which the service lists its models, if it does not list them at the configured one.
    async fn working_base(&self) -> Option<Url> {
        let until = Instant::now() + ADVICE_DEADLINE;
        let answers = async |base: &Url| {
            let response = self.ask_models(&below(base, &["models"]), until).await;
            // A service that only misses a key knows the address.
            response.is_ok_and(|response| response.status().is_success() || response.status() == 401)
        };
        if answers(&self.base_url).await {
            return None;
        }
        for base in address::alternatives(&self.base_url) {
            if answers(&base).await {
                return Some(base);
            }
        }
        None
    }
}

fn late_list() -> AttemptError {
    AttemptError::new(LlmErrorKind::Timeout, "the list of models did not come in time")
}

/// The deadlines of one attempt.
struct AttemptDeadlines {
    idle: Duration,
    timeout: Duration,
    total: Instant,
    idle_until: Instant,
}

impl AttemptDeadlines {
    /// Starts the deadlines now. Without streaming, no data comes before the answer is written, so only the total deadline
    /// applies until then.
    fn new(config: &ProviderConfig, stream: bool) -> Self {
        let (idle, timeout, now) = (config.idle_timeout.0, config.timeout.0, Instant::now());
        let total = now + timeout;
        Self { idle, timeout, total, idle_until: if stream { now + idle } else { total } }
    }

    fn until(&self) -> Instant {
        self.idle_until.min(self.total)
    }

    /// Restarts the idle deadline after data.
    fn restart_idle(&mut self, answer_is_complete: bool) {
        let next = if answer_is_complete { self.idle.min(USAGE_GRACE) } else { self.idle };
        self.idle_until = Instant::now() + next;
    }

    fn fault(&self) -> AttemptError {
        let message = if self.idle_until < self.total {
            format!("the service sent no data for {:?} (idle_timeout)", self.idle)
        } else {
            format!("the answer was not complete within {:?} (timeout)", self.timeout)
        };
        AttemptError::new(LlmErrorKind::Timeout, message)
    }
}

/// Reads the rest of the body after the answer, so that the connection can be used again.
async fn drain(response: &mut Response) {
    let until = Instant::now() + DRAIN;
    while let Ok(Ok(Some(_))) = timeout_at(until, response.chunk()).await {}
}

fn headers(config: &ProviderConfig, dialect: &dyn Dialect) -> Result<HeaderMap, String> {
    let mut headers: HeaderMap = dialect.headers().iter().cloned().collect();
    let mut insert = |key: &str, name: HeaderName, value: String| {
        let mut value =
            HeaderValue::try_from(value).map_err(|_| format!("{key}: holds characters that no header may hold"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok::<(), String>(())
    };
    if let Some(key) = &config.api_key {
        let (name, value) = dialect.key_header(key.expose());
        insert("api_key", name, value)?;
    }
    for (name, value) in &config.headers {
        let key = join_key("headers", name);
        let name = HeaderName::try_from(name.as_str()).map_err(|_| format!("{key}: is not the name of a header"))?;
        insert(&key, name, value.expose().to_owned())?;
    }
    Ok(headers)
}

fn cause(error: &reqwest::Error) -> String {
    shorten(&innermost_cause(error))
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
