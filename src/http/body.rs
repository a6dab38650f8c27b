//! Request bodies with limits of size and time, and of the memory that all bodies share.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use daoyou_channels::settings::ByteSize;
use daoyou_channels::{BodyShare, HttpError};

use super::connections::Connection;
use super::error;
use super::limits::{AUTHENTICATED_BODY_RATE, ServerLimits};

/// A request body with its limits. When the body exceeds a limit, the connection stores the error, which becomes the response.
pub struct BoundedBody {
    inner: Incoming,
    /// The number of bytes that may still arrive.
    left: u64,
    limit: u64,
    /// The memory of all bodies.
    budget: ByteSize,
    /// The body's share of the memory of all bodies.
    share: BodyShare,
    since: Instant,
    allowed: Duration,
    /// Created at the first wait for the body: most bodies have already arrived.
    timer: Option<Pin<Box<Sleep>>>,
    connection: Arc<Connection>,
    /// Set once the body was read to its end.
    has_ended: Arc<AtomicBool>,
}

impl BoundedBody {
    pub fn new(inner: Incoming, limits: &ServerLimits, share: BodyShare, connection: Arc<Connection>) -> Self {
        let (limit, budget) = (limits.body_bytes, limits.body_budget);
        let (since, has_ended) = (Instant::now(), Arc::default());
        let (left, allowed) = (limit, limits.body);
        Self { inner, left, limit, budget, share, since, allowed, timer: None, connection, has_ended }
    }

    /// Returns a flag that is set once the body was read to its end.
    pub fn end(&self) -> Arc<AtomicBool> {
        self.has_ended.clone()
    }

    /// Checks the bytes that have arrived and `more` that will: a body larger than the memory of all bodies never fits.
    fn check_budget(&self, more: u64) -> Result<(), HttpError> {
        if (self.limit - self.left).saturating_add(more) <= self.budget.0 {
            return Ok(());
        }
        let message = format!("the body is larger than gateway.body_budget ({})", self.budget);
        Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message))
    }

    /// Returns the time for the whole body. A slow line must not end the upload of an authenticated client, so that what has
    /// arrived earns more time.
    fn time(&self) -> Duration {
        let earned = if self.share.is_authenticated() { (self.limit - self.left) / AUTHENTICATED_BODY_RATE } else { 0 };
        self.allowed + Duration::from_secs(earned)
    }

    fn fail(&self, error: HttpError) -> Box<dyn Error + Send + Sync> {
        let message = error.message.clone().into();
        self.connection.set_body_error(error);
        message
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // Without Content-Length, the lower bound is zero.
        if let Err(error) = self.check_budget(self.inner.size_hint().lower()) {
            return Poll::Ready(Some(Err(self.fail(error))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) else {
            if let Poll::Ready(error) = self.share.poll_ended(context) {
                return Poll::Ready(Some(Err(self.fail(error))));
            }
            let deadline = self.since + self.time();
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if timer.deadline() < deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(context));
            return Poll::Ready(Some(Err(self.fail(error::late("the body", self.time())))));
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => {
                self.has_ended.store(true, Ordering::Relaxed);
                return Poll::Ready(None);
            }
        };
        let size = frame.data_ref().map_or(0, Bytes::len);
        if let Err(error) = self.share.take(size) {
            let error = self.check_budget(size as u64).err().unwrap_or(error);
            return Poll::Ready(Some(Err(self.fail(error))));
        }
        match self.left.checked_sub(size as u64) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Some(Err(self.fail(HttpError::too_large(ByteSize(self.limit)))))),
        }
        if self.inner.is_end_stream() {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
