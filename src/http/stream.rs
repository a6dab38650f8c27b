//! A connection's stream, which passes only valid requests to hyper.
//!
//! hyper's own limits do not serve: it repairs ambiguous heads (see [`head`](super::head)), its refusals have no JSON body, its
//! header timeout closes without a response and counts idle time, and it does not notice a client that stops reading. So this stream
//! holds each head back until it is complete and valid. For an invalid or late head, hyper receives [`PLACEHOLDER_REQUEST`], which
//! the service answers with the error. The stream also follows each body to its end, so that it finds every head, however the
//! requests are split into packets.
//!
//! Some clients close their half of the connection after a complete request (`nc -N`). A stream cannot distinguish them from clients
//! that leave, and hyper drops the request of either. So this stream hides the end from hyper until the response is written or has
//! begun to stream, for [`ServerLimits::half_close`] at most. hyper's `half_close(true)` does not serve: it would never notice a client
//! that leaves.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use daoyou_channels::HttpError;

use super::connections::Connection;
use super::error;
use super::head::{BodyFraming, find_end, validate_head};
use super::limits::ServerLimits;

/// The request that hyper receives instead of an invalid one.
const PLACEHOLDER_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// The maximum size, in bytes, of one read.
const READ_SIZE: usize = 8 << 10;

/// A stream of complete, valid requests, with deadlines for heads, idle time and writes.
pub struct ValidatedStream<Io> {
    io: Io,
    connection: Arc<Connection>,
    limits: ServerLimits,
    /// The received bytes; hyper has not read those from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// The position up to which the head was scanned for its end.
    scanned: usize,
    /// The first byte of the next head has arrived.
    is_in_head: bool,
    state: ReadState,
    /// The client has closed its half of the connection after a complete request; the timer limits the time for the response.
    half_close: Option<Pin<Box<Sleep>>>,
    response: ResponseState,
    /// The time when the first byte of the head arrived; for the first head, when the connection began.
    head_since: Instant,
    has_served: bool,
    timer: Pin<Box<Sleep>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    /// The rejected part of a request; nothing is read after it.
    refused: Option<RefusedPart>,
    close: CloseState,
}

enum ReadState {
    /// Waiting for the next head, or the rest of it.
    Head,
    /// hyper must read `head` more bytes of a valid head, then this body.
    Message { head: usize, body: BodyFraming },
    /// Nothing more is read.
    Ended,
}

/// The response to the last complete request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResponseState {
    Pending,
    /// Bytes were written and not yet flushed.
    Writing,
    /// Its first part was sent, and the rest does not exist yet.
    Streaming,
    /// It was written to its end.
    Complete,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RefusedPart {
    Head,
    Body,
}

#[derive(Clone, Copy)]
enum CloseState {
    Open,
    /// Closed for writing; at most this many bytes are still read and discarded.
    Lingering {
        bytes: u64,
    },
    Closed,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> ValidatedStream<Io> {
    pub fn new(io: Io, connection: Arc<Connection>, limits: ServerLimits) -> Self {
        let now = Instant::now();
        Self {
            io,
            connection,
            limits,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            is_in_head: false,
            state: ReadState::Head,
            half_close: None,
            response: ResponseState::Complete,
            head_since: now,
            has_served: false,
            timer: Box::pin(tokio::time::sleep_until(now + limits.header)),
            write_timer: None,
            refused: None,
            close: CloseState::Open,
        }
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn skip(&mut self, count: usize) {
        self.start += count;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }

    /// Reads until a head is complete and validated. Returns false if no head will arrive.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            if self.take_head() {
                return Poll::Ready(Ok(true));
            }
            if self.half_close.is_some() {
                ready!(self.poll_half_close(context));
                return Poll::Ready(Ok(false));
            }
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            self.buffer.reserve(READ_SIZE);
            match poll_read_buf(Pin::new(&mut self.io), context, &mut self.buffer) {
                Poll::Ready(Ok(0)) if self.is_between() && self.response != ResponseState::Complete => {
                    self.half_close = Some(Box::pin(tokio::time::sleep(self.limits.half_close)));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(_)) => self.skip_empty_lines(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(self.poll_deadline(context));
                    if self.is_between() {
                        self.state = ReadState::Ended;
                        return Poll::Ready(Ok(false));
                    }
                    self.refuse_head(error::late("the head of the request", self.limits.header));
                    return Poll::Ready(Ok(true));
                }
            }
        }
    }

    /// Completes when hyper may see the end of a connection whose client has closed its half.
    fn poll_half_close(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.response, ResponseState::Streaming | ResponseState::Complete) {
            return Poll::Ready(());
        }
        if !self.connection.allows_half_close() && self.connection.is_answering() {
            return Poll::Ready(());
        }
        if !self.connection.has_unanswered() {
            // hyper has the whole response. `flushed` wakes this task, and `poll_stall` limits the time.
            return Poll::Pending;
        }
        self.half_close.as_mut().map_or(Poll::Ready(()), |timer| timer.as_mut().poll(context))
    }

    /// Records that all bytes which hyper has written are sent. hyper flushes a body of one piece, as all JSON is, only after it has
    /// written the whole response. A body of several pieces counts as a stream from its first flush on.
    fn flushed(&mut self, context: &Context<'_>) {
        let before = self.response;
        if !self.connection.has_unanswered() {
            self.response = ResponseState::Complete;
        } else if self.response == ResponseState::Writing {
            let is_streaming = self.connection.is_answering();
            self.response = if is_streaming { ResponseState::Streaming } else { ResponseState::Pending };
        }
        if self.half_close.is_some() && self.response != before {
            // hyper reads the end only when it is polled again.
            context.waker().wake_by_ref();
        }
    }

    /// Skips empty lines before a request, which some clients send after a body (RFC 9112, section 2.2).
    fn skip_empty_lines(&mut self) {
        while self.unread().starts_with(b"\r\n") {
            self.skip(2);
            self.scanned = 0;
        }
        if !self.is_in_head && !self.is_between() {
            self.is_in_head = true;
            if self.has_served {
                self.head_since = Instant::now();
            }
            self.connection.first_byte();
        }
    }

    /// Returns true if no byte of the next head has arrived; half an empty line does not count.
    fn is_between(&self) -> bool {
        matches!(self.unread(), [] | [b'\r'])
    }

    /// Validates the head if it is complete. Returns true if hyper can read the head or a placeholder.
    fn take_head(&mut self) -> bool {
        if self.unread().is_empty() {
            return false;
        }
        let mut scanned = self.scanned;
        let end = find_end(self.unread(), &mut scanned);
        self.scanned = scanned;
        let size = end.unwrap_or(self.unread().len());
        if size > self.limits.head_bytes {
            let limit = self.limits.head_bytes;
            self.refuse_head(error::too_many_headers(format!("the head of the request is larger than {limit} bytes")));
            return true;
        }
        let Some(end) = end else { return false };
        (self.scanned, self.is_in_head) = (0, false);
        match validate_head(&self.unread()[..end]) {
            Ok(body) => {
                self.has_served = true;
                self.connection.pass_head();
                if !body.is_done() {
                    self.connection.receiving();
                }
                self.state = ReadState::Message { head: end, body };
            }
            Err(error) => self.refuse_head(error),
        }
        true
    }

    /// Replaces the buffered bytes by [`PLACEHOLDER_REQUEST`].
    fn refuse_head(&mut self, error: HttpError) {
        tracing::debug!(code = error.code, reason = %error.message, "the head of a request is refused");
        self.buffer.clear();
        self.buffer.extend_from_slice(PLACEHOLDER_REQUEST);
        self.start = 0;
        self.refused = Some(RefusedPart::Head);
        self.connection.pass_invalid_head(error);
        self.state = ReadState::Message { head: PLACEHOLDER_REQUEST.len(), body: BodyFraming::length(0) };
    }

    /// Copies buffered bytes of the current message to hyper. Returns false if there are none.
    fn copy_buffered(&mut self, out: &mut ReadBuf<'_>) -> bool {
        let before = out.filled().len();
        while out.remaining() > 0 && !self.unread().is_empty() {
            let ReadState::Message { head, body } = &mut self.state else { break };
            let offered = &self.buffer[self.start..];
            let offered = &offered[..offered.len().min(out.remaining())];
            let taken = if *head > 0 {
                let taken = offered.len().min(*head);
                *head -= taken;
                taken
            } else if let Ok(taken) = body.consume(offered) {
                taken
            } else {
                self.refuse_body();
                break;
            };
            out.put_slice(&offered[..taken]);
            self.skip(taken);
            self.end_message();
        }
        out.filled().len() > before
    }

    /// Moves to the next head if hyper has read this message to its end.
    fn end_message(&mut self) {
        match &self.state {
            ReadState::Message { head: 0, body } if body.is_done() => {}
            _ => return,
        }
        self.connection.received();
        self.response = ResponseState::Pending;
        self.state = if self.refused.is_some() { ReadState::Ended } else { ReadState::Head };
        self.skip_empty_lines();
    }

    /// Reads more of a body directly into hyper's buffer.
    fn poll_body(&mut self, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.buffer.is_empty() {
            // A body may take a long time to arrive, and this buffer is only for heads.
            self.buffer = Vec::new();
        }
        let before = out.filled().len();
        // hyper enlarges its buffer for a stream that fills it, and keeps the buffer large.
        let size = out.remaining().min(READ_SIZE);
        let mut part = ReadBuf::new(out.initialize_unfilled_to(size));
        ready!(Pin::new(&mut self.io).poll_read(context, &mut part))?;
        let count = part.filled().len();
        out.advance(count);
        let ReadState::Message { body, .. } = &mut self.state else { return Poll::Ready(Ok(())) };
        let fresh = &out.filled()[before..];
        let Ok(taken) = body.consume(fresh) else {
            out.set_filled(before);
            self.refuse_body();
            return Poll::Ready(Ok(()));
        };
        self.buffer.extend_from_slice(&fresh[taken..]);
        out.set_filled(before + taken);
        self.end_message();
        Poll::Ready(Ok(()))
    }

    /// Ends the body at an invalid chunk.
    fn refuse_body(&mut self) {
        self.connection.set_body_error(HttpError::bad_request("the chunks of the body are invalid"));
        self.refused = Some(RefusedPart::Body);
        self.state = ReadState::Ended;
    }

    /// Completes when the client is too slow. A postponed deadline is noticed only when the old one is reached, so that a busy
    /// connection does not reset its timer with each request.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let due = self.due();
        if due < self.timer.deadline() {
            self.timer.as_mut().reset(due);
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            let due = self.due();
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }

    fn due(&self) -> Instant {
        if self.has_served && self.is_between() {
            // A client need not send anything while it waits for a response.
            self.connection.idle_since().unwrap_or_else(Instant::now) + self.limits.idle
        } else {
            self.head_since + self.limits.header
        }
    }

    /// Fails when the client has not read for too long.
    fn poll_stall(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let limit = self.limits.write;
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer"))
    }

    fn check_write(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) && self.response == ResponseState::Pending {
            self.response = ResponseState::Writing;
        }
        self.check_stall(context, written)
    }

    fn check_stall<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match written {
            Poll::Pending => self.poll_stall(context).map(Err),
            Poll::Ready(result) => {
                self.write_timer = None;
                Poll::Ready(result)
            }
        }
    }

    /// Reads and discards the rest of the client's data, within the limits.
    fn poll_linger(&mut self, context: &mut Context<'_>, mut bytes: u64) -> Poll<()> {
        let mut scratch = [0_u8; READ_SIZE];
        loop {
            let mut out = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.io).poll_read(context, &mut out) {
                Poll::Ready(Ok(())) if !out.filled().is_empty() => {
                    bytes = bytes.saturating_sub(out.filled().len() as u64);
                    self.close = CloseState::Lingering { bytes };
                    if bytes == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.timer.as_mut().poll(context),
            }
        }
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for ValidatedStream<Io> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &this.state {
                ReadState::Head => {
                    if !ready!(this.poll_head(context))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                ReadState::Message { .. } => {
                    if this.copy_buffered(out) {
                        return Poll::Ready(Ok(()));
                    }
                    if let ReadState::Message { .. } = this.state {
                        return this.poll_body(context, out);
                    }
                }
                // An end of the stream would cut off the response to a rejected head. A rejected body has to end.
                ReadState::Ended if this.refused == Some(RefusedPart::Head) => return Poll::Pending,
                ReadState::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ValidatedStream<Io> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.check_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.check_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.flushed(context);
        }
        self.check_stall(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match this.close {
                CloseState::Open => {
                    let shut = Pin::new(&mut this.io).poll_shutdown(context);
                    ready!(this.check_stall(context, shut))?;
                    this.close = if this.refused.is_some() || matches!(this.state, ReadState::Message { .. }) {
                        this.timer.as_mut().reset(Instant::now() + this.limits.linger);
                        CloseState::Lingering { bytes: this.limits.linger_bytes }
                    } else {
                        CloseState::Closed
                    };
                }
                CloseState::Lingering { bytes } => {
                    ready!(this.poll_linger(context, bytes));
                    this.close = CloseState::Closed;
                }
                CloseState::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}
