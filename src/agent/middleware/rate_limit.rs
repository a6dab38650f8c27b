//! So many model calls a minute; who comes too early waits.

use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::settings::Span;
use tokio::time::{Instant, sleep_until};

use super::around::{Around, Context, ModelCall, ModelRequest, Operation, Passed};
use super::config::RateLimitConfig;
use super::windows::{Taken, Windows};
use crate::agent::error::{ErrorCode, TurnError};

pub struct RateLimit {
    pub config: RateLimitConfig,
    pub windows: Arc<Windows>,
}

impl RateLimit {
    /// Returns when a call may be made. First the session's turn, then that of all, so that a session that waits for
    /// itself takes no place from others.
    async fn wait<'a>(
        &'a self,
        at: &Context<'_>,
        session: Option<&'a str>,
        limit: Option<u32>,
    ) -> Result<Option<Taken<'a>>, TurnError> {
        let Some(limit) = limit else { return Ok(None) };
        let Some(taken) = self.windows.take(session, limit, at.deadline) else {
            let key = if session.is_some() { "session_per_minute" } else { "per_minute" };
            return Err(TurnError::new(ErrorCode::RateLimit, ModelCall::NAME).with([format!("{key} = {limit}")]));
        };
        let wait = taken.time.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(turn = %at.turn, session = %at.session, wait = %Span::from_millis(ms), "a model call waits for the rate limit");
            sleep_until(taken.time).await;
        }
        Ok(Some(taken))
    }
}

#[async_trait]
impl Around<ModelCall> for RateLimit {
    fn name(&self) -> &'static str {
        "rate_limit"
    }

    async fn before(&self, at: &Context<'_>, request: ModelRequest) -> Result<Passed<ModelCall>, TurnError> {
        let own = self.wait(at, Some(at.session.as_str()), self.config.session_per_minute).await?;
        let all = self.wait(at, None, self.config.per_minute).await?;
        // The session's call is made only now, however long ago its time was.
        [own, all].into_iter().flatten().for_each(Taken::used);
        Ok(Passed::On(request))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use daoyou_channels::SessionKey;
    use uuid::Uuid;

    use super::*;
    use crate::agent::{Locale, Phrases};
    use crate::llm::{ChatRequest, Images};
    use crate::metrics::TurnMetrics;

    fn request() -> ModelRequest {
        let chat = ChatRequest {
            model: String::new(),
            system: Arc::from(""),
            messages: Vec::new(),
            images: Images::default(),
            tools: Arc::default(),
            temperature: None,
            max_tokens: None,
        };
        ModelRequest { provider: String::new(), chat }
    }

    /// Seconds after the start at which a call of `session` was let through, or the error's code.
    async fn call(limit: &RateLimit, session: &str, left: u64, start: Instant) -> Result<u64, &'static str> {
        let (metrics, session) = (TurnMetrics::default(), SessionKey::from(session));
        let meter = metrics.meter();
        let deadline = Instant::now() + Duration::from_secs(left);
        let phrases = Phrases::of(Locale::En);
        let at = Context { session: &session, turn: Uuid::nil(), deadline, meter: &meter, phrases };
        match limit.before(&at, request()).await {
            Ok(_) => Ok(start.elapsed().as_secs()),
            Err(error) => Err(error.code.word()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_in_order_and_too_long_a_wait_is_an_error_at_once() {
        let config = RateLimitConfig { session_per_minute: Some(1), per_minute: Some(2) };
        let limit = Arc::new(RateLimit { config, windows: Arc::default() });
        let start = Instant::now();
        let spawn = |session: &'static str| {
            let limit = limit.clone();
            tokio::spawn(async move { call(&limit, session, 600, start).await })
        };
        // Five sessions at the same moment, then the first one once more.
        let calls: Vec<_> = ["a", "b", "c", "d", "e", "a"].map(spawn).into_iter().collect();
        let mut times = Vec::new();
        for call in calls {
            times.push(call.await.unwrap());
        }
        // The second call of `a` has its own turn after a minute, and then waits for those who came before it.
        assert_eq!(times, [Ok(0), Ok(0), Ok(60), Ok(60), Ok(120), Ok(120)]);
        assert_eq!(call(&limit, "a", 30, start).await, Err("rate_limit"));
        assert_eq!(start.elapsed().as_secs(), 120, "it did not wait for that");

        // Who is stopped while he waits takes nobody's place.
        let stopped = spawn("c");
        tokio::task::yield_now().await;
        stopped.abort();
        stopped.await.unwrap_err();
        assert_eq!(call(&limit, "f", 600, start).await, Ok(180));
    }
}
