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
