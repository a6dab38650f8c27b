//! The stream below lettre, with the gateway's own TLS. It reports whether the whole mail was written.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The end of a mail's data (RFC 5321, section 4.1.1.4).
const END_OF_DATA: &[u8; 5] = b"\r\n.\r\n";

/// Tells whether the last written bytes are the end of a mail's data. From then on, the server may have accepted the mail.
#[derive(Clone, Debug, Default)]
pub struct DataEnd(Arc<AtomicBool>);

impl DataEnd {
    pub fn is_written(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A connection with or without TLS.
pub trait Duplex: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin> Duplex for T {}

/// A stream that begins with an artificial greeting if the server's greeting was read before.
#[derive(Debug)]
pub struct SmtpStream {
    transport: Box<dyn Duplex>,
    peer: SocketAddr,
    greeting: &'static [u8],
    data_end: DataEnd,
    /// The last written bytes.
    tail: [u8; END_OF_DATA.len()],
}

impl SmtpStream {
    pub fn new(transport: Box<dyn Duplex>, peer: SocketAddr, greeting: &'static [u8]) -> Self {
        Self { transport, peer, greeting, data_end: DataEnd::default(), tail: [0; END_OF_DATA.len()] }
    }

    pub fn data_end(&self) -> DataEnd {
        self.data_end.clone()
    }

    fn record(&mut self, written: &[u8]) {
        let kept = written.len().min(self.tail.len());
        self.tail.rotate_left(kept);
        let from = self.tail.len() - kept;
        self.tail[from..].copy_from_slice(&written[written.len() - kept..]);
        self.data_end.0.store(self.tail == *END_OF_DATA, Ordering::Release);
    }
}

impl AsyncTokioStream for SmtpStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl AsyncRead for SmtpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.greeting.is_empty() {
            let (now, later) = self.greeting.split_at(self.greeting.len().min(buf.remaining()));
            buf.put_slice(now);
            self.greeting = later;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.transport).poll_read(cx, buf)
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.transport).poll_write(cx, buf))?;
        self.record(buf.get(..written).unwrap_or(buf));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
