//! The stream below lettre, with the gateway's own TLS. It reports whether the whole mail was written.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

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
#[derive(Debug)]
pub enum SmtpTransport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl SmtpTransport {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

/// A stream that begins with an artificial greeting if the server's greeting was read before.
#[derive(Debug)]
pub struct SmtpStream {
    transport: SmtpTransport,
    greeting: &'static [u8],
    data_end: DataEnd,
    /// The last written bytes.
    tail: [u8; END_OF_DATA.len()],
}

impl SmtpStream {
    pub fn new(transport: SmtpTransport, greeting: &'static [u8]) -> Self {
        Self { transport, greeting, data_end: DataEnd::default(), tail: [0; END_OF_DATA.len()] }
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
        self.transport.tcp().peer_addr()
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
        match &mut self.transport {
            SmtpTransport::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            SmtpTransport::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(match &mut self.transport {
            SmtpTransport::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            SmtpTransport::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        })?;
        self.record(buf.get(..written).unwrap_or(buf));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            SmtpTransport::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            SmtpTransport::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            SmtpTransport::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            SmtpTransport::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
