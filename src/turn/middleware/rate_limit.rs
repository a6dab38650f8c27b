//! `agent.rate_limit`: delays model calls beyond a number per minute.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::rate_limit::{Quota, RateLimiter, Reservation};
use daoyou_channels::settings::HumanDuration;
use tokio::time::{Instant, sleep_until};

use super::chain::{Middleware, ModelCall, ModelRequest, Operation};
use super::config::RateLimitConfig;
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::turn_loop::TurnScope;

/// The calls of each session, and of all sessions together. They survive a reload.
pub struct CallLimiter {
    sessions: RateLimiter<String>,
    all: RateLimiter,
}

/// The maximum number of sessions whose calls are counted separately.
const SESSIONS: usize = 100_000;

const MINUTE: Duration = Duration::from_secs(60);

impl Default for CallLimiter {
    fn default() -> Self {
        Self { sessions: RateLimiter::new(SESSIONS), all: RateLimiter::new(1) }
    }
}

pub struct RateLimitMiddleware {
    pub config: RateLimitConfig,
    pub limiter: Arc<CallLimiter>,
}

impl RateLimitMiddleware {
    /// Reserves a call of `key` under the limit `name` of `limit` calls, and waits until the call may be made.
    async fn reserve<'a, K: Clone + Eq + Hash>(
        at: &TurnScope<'_>,
        limiter: &'a RateLimiter<K>,
        key: &K,
        name: &str,
        limit: Option<u32>,
    ) -> Result<Option<Reservation<'a, K>>, TurnError> {
        let Some(count) = limit else { return Ok(None) };
        let Some(reserved) = limiter.reserve(key, Quota::Window { count, period: MINUTE }, at.deadline) else {
            return Err(TurnError::new(ErrorCode::RateLimit, ModelCall::NAME).with([format!("{name} = {count}")]));
        };
        let wait = reserved.time.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(turn = %at.turn, session = %at.session, wait = %HumanDuration::from_millis(ms), "a model call waits for the rate limit");
            sleep_until(reserved.time).await;
        }
        Ok(Some(reserved))
    }
}

#[async_trait]
impl Middleware<ModelCall> for RateLimitMiddleware {
    async fn before(&self, at: &TurnScope<'_>, request: ModelRequest) -> Result<ModelRequest, TurnError> {
        let RateLimitConfig { session_per_minute, per_minute } = self.config;
        let CallLimiter { sessions, all } = &*self.limiter;
        let session = at.session.to_string();
        // The session's limit comes first, so that a session that waits for its own limit reserves no global slot.
        let own = Self::reserve(at, sessions, &session, "session_per_minute", session_per_minute).await?;
        let all = Self::reserve(at, all, &(), "per_minute", per_minute).await?;
        // The session's call is made only now, however long ago its slot was reserved.
        own.into_iter().for_each(Reservation::commit);
        all.into_iter().for_each(Reservation::commit);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use daoyou_channels::SessionKey;
    use uuid::Uuid;

    use super::*;
    use crate::llm::{ChatRequest, Images};
    use crate::metrics::TurnMetrics;
    use crate::phrases::Phrases;
    use crate::text::Language;

    fn request() -> ModelRequest {
        let chat = ChatRequest {
            model: String::new(),
            system: "".into(),
            messages: Vec::new(),
            images: Images::default(),
            tools: Arc::default(),
            temperature: None,
            max_tokens: None,
        };
        ModelRequest { provider: String::new(), chat }
    }

    /// Returns the seconds after the start at which a call of `session` was admitted, or the error's code.
    async fn call(limit: &RateLimitMiddleware, session: &str, left: u64, start: Instant) -> Result<u64, &'static str> {
        let (metrics, session) = (TurnMetrics::default(), SessionKey::from(session));
        let meter = metrics.meter();
        let deadline = Instant::now() + Duration::from_secs(left);
        let phrases = Phrases::of(Language::En);
        let at = TurnScope { session: &session, turn: Uuid::nil(), deadline, meter: &meter, phrases };
        match limit.before(&at, request()).await {
            Ok(_) => Ok(start.elapsed().as_secs()),
            Err(error) => Err(error.code.as_str()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_in_order_and_a_wait_past_the_deadline_fails_at_once() {
        let config = RateLimitConfig { session_per_minute: Some(1), per_minute: Some(2) };
        let limit = Arc::new(RateLimitMiddleware { config, limiter: Arc::default() });
        let start = Instant::now();
        let spawn = |session: &'static str| {
            let limit = limit.clone();
            tokio::spawn(async move { call(&limit, session, 600, start).await })
        };
        // Five sessions at the same moment, then the first session once more.
        let calls: Vec<_> = ["a", "b", "c", "d", "e", "a"].map(spawn).into_iter().collect();
        let mut times = Vec::new();
        for call in calls {
            times.push(call.await.unwrap());
        }
        // The second call of `a` is due after a minute, and then waits for the calls that came before it.
        assert_eq!(times, [Ok(0), Ok(0), Ok(60), Ok(60), Ok(120), Ok(120)]);
        assert_eq!(call(&limit, "a", 30, start).await, Err("rate_limit"));
        assert_eq!(start.elapsed().as_secs(), 120, "it did not wait for that");

        // A call that is stopped while it waits uses no slot.
        let stopped = spawn("c");
        tokio::task::yield_now().await;
        stopped.abort();
        stopped.await.unwrap_err();
        assert_eq!(call(&limit, "f", 600, start).await, Ok(180));
    }
}
