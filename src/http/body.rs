//! Request bodies with limits of size and time, and of the memory that all bodies share.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use daoyou_channels::settings::ByteSize;
use daoyou_channels::{BodyShare, HttpError};

use super::connections::Connection;
use super::error;
use super::limits::ServerLimits;

/// A request body with its limits. When the body exceeds a limit, the connection stores the error, which becomes the response.
pub struct BoundedBody {
    inner: Incoming,
    /// The number of bytes that may still arrive.
    left: u64,
    limit: u64,
    /// The body's share of the memory of all bodies.
    share: BodyShare,
    deadline: Instant,
    allowed: Duration,
    /// Created at the first wait for the body: most bodies have already arrived.
    timer: Option<Pin<Box<Sleep>>>,
    connection: Arc<Connection>,
    /// Set once the body was read to its end.
    has_ended: Arc<AtomicBool>,
}

impl BoundedBody {
    pub fn new(inner: Incoming, limits: &ServerLimits, share: BodyShare, connection: Arc<Connection>) -> Self {
        let limit = limits.body_bytes;
        let deadline = Instant::now() + limits.body;
        let has_ended = Arc::default();
        Self { inner, left: limit, limit, share, deadline, allowed: limits.body, timer: None, connection, has_ended }
    }

    /// Returns a flag that is set once the body was read to its end.
    pub fn end(&self) -> Arc<AtomicBool> {
        self.has_ended.clone()
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
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) else {
            if let Poll::Ready(error) = self.share.poll_ended(context) {
                return Poll::Ready(Some(Err(self.fail(error))));
            }
            let deadline = self.deadline;
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            ready!(timer.as_mut().poll(context));
            return Poll::Ready(Some(Err(self.fail(error::late("the body", self.allowed)))));
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
