//! Errors of a turn. The code decides the log level, the HTTP status, whether a retry may help, and the text for the
//! user.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use daoyou_channels::SessionKey;
use tracing::Level;
use uuid::Uuid;

use crate::llm::{LlmError, LlmErrorKind};
use crate::phrases::{Phrases, fill};
use crate::store::StoreError;
use crate::text::error_chain;

/// The error of a turn, or of a part of it.
#[derive(Clone, Debug)]
pub struct TurnError {
    pub code: ErrorCode,
    /// The operation that failed, such as `turn`, `model_call`, `command` or `store`.
    pub operation: &'static str,
    /// The underlying error, for the log.
    pub cause: Option<Arc<dyn Error + Send + Sync>>,
    /// The text that the model had written until then; the user sees it before the error.
    partial: String,
    /// The values for the placeholders of the error's text.
    values: Vec<String>,
    /// The value in place of all others in the text for the owner: the model's failure with the service's own words and the
    /// address that was asked.
    owner_value: Option<Box<str>>,
    /// A notice that follows the error's text.
    notice: Option<&'static str>,
}

/// Stable error codes for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The model call failed, after its retries.
    Model(LlmErrorKind),
    /// No provider answers to the wanted name.
    NoModel,
    /// The chosen agent no longer exists.
    NoAgent,
    /// The message lacks an input of the workflow.
    WorkflowInput,
    /// A step of the workflow failed, or the workflow has changed since the turn began.
    Workflow,
    /// The model returned an empty answer.
    EmptyAnswer,
    /// The turn has used `agent.max_turn_tokens`.
    TokenCap,
    /// The turn has used `agent.budget.turn_cost`.
    TurnBudget,
    /// A limit of `agent.budget` is reached: that of the session, or that of the day.
    SessionBudget,
    DayBudget,
    /// `agent.rate_limit` would admit the call only after the turn's deadline.
    RateLimit,
    TurnTimeout,
    /// No model was available for the whole of `agent.wait_for_model`.
    Unavailable,
    /// The user stopped the turn.
    Stopped,
    StateCorrupted,
    /// The message crashed the gateway each time it ran.
    Poison,
    /// A bug in daoyou.
    Internal,
}

/// The class of an error, which decides how it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorClass {
    /// The request itself is wrong.
    Validation,
    NotFound,
    /// The service rejects daoyou's key; the owner must act.
    Auth,
    RateLimit,
    Timeout,
    /// The service failed or gave an unusable answer.
    Upstream,
    Cancelled,
    /// Everything else; the cause is in the log.
    Internal,
}

/// Chooses the text of an error in the user's language.
type UserPhrase = fn(&Phrases) -> &'static str;

impl TurnError {
    pub fn new(code: ErrorCode, operation: &'static str) -> Self {
        let (partial, values) = (String::new(), Vec::new());
        Self { code, operation, cause: None, partial, values, owner_value: None, notice: None }
    }

    /// Returns the error for a bug in daoyou.
    pub fn internal(operation: &'static str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(ErrorCode::Internal, operation).caused_by(cause)
    }

    /// Adds values for the placeholders of the user's text, in order.
    pub fn with(mut self, values: impl IntoIterator<Item = String>) -> Self {
        self.values.extend(values);
        self
    }

    pub fn caused_by(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// Sets the text that the model had written before the error.
    pub fn with_partial(mut self, partial: &str) -> Self {
        partial.trim().clone_into(&mut self.partial);
        self
    }

    /// Adds a notice for the user.
    pub fn with_notice(mut self, notice: &'static str) -> Self {
        self.notice = Some(notice);
        self
    }

    /// Returns the error whose text is for the owner alone.
    pub fn for_owner(mut self) -> Self {
        if let Some(value) = self.owner_value.take() {
            self.values = vec![value.into()];
        }
        self
    }

    /// Returns the text for the user.
    pub fn user_text(&self, phrases: &Phrases) -> String {
        let values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        let words = fill(self.code.facts().3(phrases), &values);
        let parts = [self.partial.as_str(), &words, self.notice.unwrap_or_default()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// Applies `change` to every text that comes from outside.
    pub fn map_texts(mut self, change: impl Fn(&mut String)) -> Self {
        change(&mut self.partial);
        self.values.iter_mut().for_each(&change);
        self.owner_value = self.owner_value.map(|value| {
            let mut value = String::from(value);
            change(&mut value);
            value.into()
        });
        self
    }

    /// Writes the only log line of a failed turn.
    pub fn log(&self, turn: Uuid, session: &SessionKey) {
        let ((code, class, retryable, _), operation) = (self.code.facts(), self.operation);
        let status = class.http_status();
        let cause = self.source().map(error_chain).unwrap_or_default();
        macro_rules! line {
            ($level:expr) => {
                tracing::event!($level, %turn, %session, code, operation, status, retryable, cause, "a turn failed")
            };
        }
        match class.level() {
            Level::ERROR => line!(Level::ERROR),
            Level::WARN => line!(Level::WARN),
            _ => line!(Level::INFO),
        }
    }
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.code.as_str(), self.operation)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl Error for TurnError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}

impl From<LlmError> for TurnError {
    fn from(error: LlmError) -> Self {
        let owner_value = Some(format!("{}: {}", error.provider, error.owner_message()).into());
        let public = Self::new(ErrorCode::Model(error.kind), "model_call").with([error.to_public()]);
        Self { owner_value, ..public }.caused_by(error)
    }
}

impl From<StoreError> for TurnError {
    fn from(error: StoreError) -> Self {
        Self::internal("store", error)
    }
}

impl ErrorCode {
    /// Returns the value of a reply's `error.code`, which never changes.
    pub fn as_str(self) -> &'static str {
        self.facts().0
    }

    /// Returns the code's word, its class, whether the same message may succeed soon, and its text for the user.
    fn facts(self) -> (&'static str, ErrorClass, bool, UserPhrase) {
        use ErrorClass as Class;
        match self {
            Self::Model(kind) => (kind.code(), Class::of_model(kind), kind.is_retryable(), |p| p.model_failed),
            Self::NoModel => ("no_model", Class::NotFound, false, |p| p.no_model),
            Self::NoAgent => ("no_agent", Class::NotFound, false, |p| p.no_agent),
            Self::WorkflowInput => ("workflow_input", Class::Validation, false, |p| p.workflow_input),
            Self::Workflow => ("workflow", Class::Upstream, false, |p| p.workflow_failed),
            Self::EmptyAnswer => ("empty_answer", Class::Upstream, true, |p| p.empty_answer),
            Self::TokenCap => ("token_cap", Class::RateLimit, false, |p| p.token_cap),
            Self::TurnBudget => ("budget", Class::RateLimit, false, |p| p.turn_budget),
            Self::SessionBudget => ("budget", Class::RateLimit, false, |p| p.session_budget),
            // A day's budget is available again only at midnight.
            Self::DayBudget => ("budget", Class::RateLimit, false, |p| p.day_budget),
            Self::RateLimit => ("rate_limit", Class::RateLimit, true, |p| p.rate_limit),
            Self::TurnTimeout => ("turn_timeout", Class::Timeout, true, |p| p.turn_timeout),
            Self::Unavailable => ("llm_unavailable", Class::Upstream, true, |p| p.unavailable),
            Self::Stopped => ("stopped", Class::Cancelled, false, |p| p.stopped_mark),
            Self::StateCorrupted => ("state_corrupted", Class::Internal, false, |p| p.state_corrupted),
            Self::Poison => ("poison", Class::Internal, false, |p| p.poison),
            Self::Internal => ("internal", Class::Internal, false, |p| p.internal),
        }
    }

    /// Returns the reason why a tool call that was open when the turn ended has no result.
    pub fn open_calls_reason(self) -> &'static str {
        match self {
            Self::Stopped => "stopped by the user",
            Self::TurnTimeout => "stopped: the turn's time was up",
            Self::Internal => "not run: the turn had failed",
            _ => "not run: the turn had ended",
        }
    }
}

impl ErrorClass {
    fn of_model(kind: LlmErrorKind) -> Self {
        use LlmErrorKind as Kind;
        match kind {
            Kind::BadRequest | Kind::ContextTooLong | Kind::Refused => Self::Validation,
            Kind::Auth | Kind::Quota => Self::Auth,
            Kind::RateLimit => Self::RateLimit,
            Kind::Timeout => Self::Timeout,
            Kind::Connection | Kind::Server | Kind::Parse => Self::Upstream,
            Kind::Cancelled => Self::Cancelled,
        }
    }

    /// Returns the log level.
    fn level(self) -> Level {
        match self {
            Self::NotFound | Self::Cancelled => Level::INFO,
            Self::Validation | Self::RateLimit | Self::Timeout | Self::Upstream => Level::WARN,
            Self::Auth | Self::Internal => Level::ERROR,
        }
    }

    /// Returns the HTTP status, by RFC 9110 and RFC 6585; 499 is nginx's status for a client that left. A key that the
    /// model service rejects is not the caller's fault, so the status is 502, not 401.
    fn http_status(self) -> u16 {
        match self {
            Self::Validation => 400,
            Self::NotFound => 404,
            Self::RateLimit => 429,
            Self::Cancelled => 499,
            Self::Internal => 500,
            Self::Auth | Self::Upstream => 502,
            Self::Timeout => 504,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn the_class_decides_level_status_and_retry() {
        use ErrorCode as Code;
        use LlmErrorKind as Kind;
        for (code, word, level, status, retryable) in [
            (Code::Model(Kind::BadRequest), "llm_bad_request", Level::WARN, 400, false),
            (Code::NoModel, "no_model", Level::INFO, 404, false),
            (Code::NoAgent, "no_agent", Level::INFO, 404, false),
            (Code::WorkflowInput, "workflow_input", Level::WARN, 400, false),
            (Code::Workflow, "workflow", Level::WARN, 502, false),
            (Code::Model(Kind::RateLimit), "llm_rate_limit", Level::WARN, 429, true),
            (Code::RateLimit, "rate_limit", Level::WARN, 429, true),
            (Code::SessionBudget, "budget", Level::WARN, 429, false),
            (Code::TurnBudget, "budget", Level::WARN, 429, false),
            (Code::DayBudget, "budget", Level::WARN, 429, false),
            (Code::TokenCap, "token_cap", Level::WARN, 429, false),
            (Code::Model(Kind::Timeout), "llm_timeout", Level::WARN, 504, true),
            (Code::TurnTimeout, "turn_timeout", Level::WARN, 504, true),
            (Code::Model(Kind::Auth), "llm_auth", Level::ERROR, 502, false),
            (Code::Model(Kind::Server), "llm_server_error", Level::WARN, 502, true),
            (Code::EmptyAnswer, "empty_answer", Level::WARN, 502, true),
            (Code::Stopped, "stopped", Level::INFO, 499, false),
            (Code::StateCorrupted, "state_corrupted", Level::ERROR, 500, false),
            (Code::Internal, "internal", Level::ERROR, 500, false),
        ] {
            let (name, class, may_succeed, _) = code.facts();
            assert_eq!((name, class.level(), class.http_status(), may_succeed), (word, level, status, retryable));
        }
    }

    #[test]
    fn errors_are_worded_in_the_users_language_and_keep_their_cause() {
        let (en, zh) = (Phrases::of(Language::En), Phrases::of(Language::Zh));
        let error = TurnError::new(ErrorCode::TurnTimeout, "turn").with(["10m".to_owned()]);
        assert_eq!(error.user_text(en), "I stopped because this took longer than 10m.");
        assert_eq!(error.user_text(zh), "处理时间超过 10m，我已停止。");
        let stopped = TurnError::new(ErrorCode::Stopped, "turn");
        assert_eq!(stopped.clone().with_partial("").user_text(en), "(stopped)");
        assert_eq!(stopped.with_partial(" So far \n").user_text(en), "So far\n\n(stopped)");
        let empty = TurnError::new(ErrorCode::EmptyAnswer, "turn").with_notice(en.cut_at_length);
        assert_eq!(empty.user_text(en), format!("{}\n\n{}", en.empty_answer, en.cut_at_length));

        let failure = LlmError {
            public: Some("HTTP 404".to_owned()),
            for_owner: "asked http://192.168.0.7/v1".to_owned(),
            ..LlmError::new(LlmErrorKind::BadRequest, "p", "HTTP 404: no such path")
        };
        let failed = TurnError::from(failure);
        assert_eq!(failed.user_text(en), "I could not get an answer from the model: p: HTTP 404");
        assert_eq!(
            failed.for_owner().user_text(en),
            "I could not get an answer from the model: p: HTTP 404: no such path; asked http://192.168.0.7/v1"
        );
        let internal = TurnError::new(ErrorCode::TurnTimeout, "turn").with(["10m".to_owned()]).for_owner();
        assert_eq!(internal.user_text(en), "I stopped because this took longer than 10m.");

        let unknown = TurnError::from(StoreError::Row("a strange row".to_owned()));
        assert_eq!((unknown.code.as_str(), unknown.user_text(en)), ("internal", en.internal.to_owned()));
        let cause = unknown.source().expect("the cause").to_string();
        assert!(cause.contains("a strange row") && unknown.to_string().contains(&cause), "{unknown}");
    }
}
