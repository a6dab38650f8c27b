//! The byte stream of a connection. Every wait and the size of every response are limited, so that a server cannot exhaust memory.

use std::cell::{RefCell, RefMut};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::error::{ImapError, display_line};
use crate::email::certificate::MailTls;

/// The number of bytes per read.
const BUFFER: usize = 16 * 1_024;
/// Longest unsolicited line, in bytes.
const MAX_LINE: usize = 64 * 1_024;

/// The limits of one response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLimit {
    /// Largest size.
    pub bytes: u64,
    /// Longest time without a byte.
    pub silence: Duration,
    /// Longest time until the response is complete.
    pub total: Duration,
}

/// Closes a connection from another thread.
#[derive(Clone, Default)]
pub struct ConnectionCloser(Arc<Mutex<CloserState>>);

#[derive(Default)]
struct CloserState {
    socket: Option<TcpStream>,
    closed: bool,
}

impl ConnectionCloser {
    /// Closes the connection: all current and future reads and writes fail.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        shutdown(state.socket.take());
    }

    /// Sets `socket` as the connection to close.
    pub fn attach(&self, socket: TcpStream) {
        let mut state = self.0.lock();
        if state.closed {
            shutdown(Some(socket));
        } else {
            state.socket = Some(socket);
        }
    }
}

fn shutdown(socket: Option<TcpStream>) {
    if let Some(socket) = socket {
        // The call fails if the other side closed first.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// A socket whose reads and writes time out.
struct TimedSocket {
    socket: TcpStream,
    silence: Duration,
    deadline: Instant,
}

impl TimedSocket {
    fn remaining(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now()).min(self.silence);
        if left.is_zero() { Err(timed_out()) } else { Ok(left) }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.remaining()?))?;
        self.socket.read(into).map_err(normalize_timeout)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.remaining()?))?;
        self.socket.write(bytes).map_err(normalize_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time")
}

/// Converts the error of a socket timeout, which is `WouldBlock` on Linux.
fn normalize_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { timed_out() } else { error }
}

enum Transport {
    Plain(TimedSocket),
    Tls(Box<StreamOwned<ClientConnection, TimedSocket>>),
}

/// Reads and writes of any transport.
trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

impl Transport {
    fn stream(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Plain(timed) => timed,
            Self::Tls(tls) => tls,
        }
    }

    fn socket(&mut self) -> &mut TimedSocket {
        match self {
            Self::Plain(timed) => timed,
            Self::Tls(tls) => &mut tls.sock,
        }
    }
}

/// A connection that the `imap` crate and our own readers share.
///
/// A read returns at most the rest of a line. A reader of whole lines therefore keeps nothing in its own buffer, and the
/// next reader can continue at the right byte.
#[derive(Clone)]
pub struct ImapStream(Rc<RefCell<StreamState>>);

struct StreamState {
    transport: Transport,
    buffer: Vec<u8>,
    /// The number of buffered bytes that were read.
    consumed: usize,
    /// The number of bytes that the response may still have.
    bytes_left: u64,
    /// The beginning of the current line, for error messages.
    line: Vec<u8>,
    line_ended: bool,
    /// The text of an untagged BYE.
    bye: Option<String>,
    /// The number of remaining bytes of a literal. These bytes are not protocol lines.
    literal_left: u64,
    /// True if the server announced a mail.
    has_new_mail: bool,
    /// The incomplete line of [`ImapStream::read_line`].
    partial_line: Vec<u8>,
}

impl ImapStream {
    pub fn new(socket: TcpStream, limit: ResponseLimit) -> Self {
        let timed = TimedSocket { socket, silence: limit.silence, deadline: Instant::now() + limit.total };
        Self(Rc::new(RefCell::new(StreamState {
            transport: Transport::Plain(timed),
            buffer: Vec::with_capacity(BUFFER),
            consumed: 0,
            bytes_left: limit.bytes,
            line: Vec::new(),
            line_ended: true,
            bye: None,
            literal_left: 0,
            has_new_mail: false,
            partial_line: Vec::new(),
        })))
    }

    /// Starts TLS and checks the certificate.
    ///
    /// # Errors
    /// The host name is invalid, the other side does not speak TLS, or its certificate is not trusted. `InvalidData` if
    /// plain text arrived before the handshake, since an attacker may have injected it (CVE-2011-0411).
    pub fn start_tls(&self, host: &str, settings: &MailTls) -> io::Result<()> {
        let mut state = self.state();
        if state.consumed < state.buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server went on in plain text after it had agreed to TLS; somebody may be tampering with the connection",
            ));
        }
        let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is not a host name")))?;
        let config = Arc::clone(&settings.config);
        let connection = ClientConnection::new(config, name.clone()).map_err(io::Error::other)?;
        let Transport::Plain(plain) = &state.transport else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the connection uses TLS already"));
        };
        let timed = TimedSocket { socket: plain.socket.try_clone()?, silence: plain.silence, deadline: plain.deadline };
        let mut tls = Box::new(StreamOwned::new(connection, timed));
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        settings.expiries.record(&name, &tls.conn);
        state.transport = Transport::Tls(tls);
        Ok(())
    }

    /// Sets the limits of the next response.
    pub fn set_limit(&self, limit: ResponseLimit) {
        let mut state = self.state();
        (state.bytes_left, state.bye) = (limit.bytes, None);
        let timed = state.transport.socket();
        (timed.silence, timed.deadline) = (limit.silence, Instant::now() + limit.total);
    }

    /// Reads a whole line with its line break.
    ///
    /// # Errors
    /// `TimedOut` after the limit's silence; the next call continues the incomplete line.
    pub fn read_line(&self) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let mut piece = [0; 1_024];
        loop {
            let count = state.read(&mut piece)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            state.partial_line.extend_from_slice(&piece[..count]);
            if state.partial_line.ends_with(b"\n") {
                return Ok(std::mem::take(&mut state.partial_line));
            }
            if state.partial_line.len() > MAX_LINE {
                return Err(response_too_large());
            }
        }
    }

    /// Appends the next `count` bytes to `into`.
    pub fn read_into(&self, count: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let mut state = self.state();
        let mut wanted = usize::try_from(count).map_err(|_| response_too_large())?;
        while wanted > 0 {
            if state.consumed == state.buffer.len() {
                state.fill()?;
            }
            let waiting = &state.buffer[state.consumed..];
            let piece = waiting.len().min(wanted);
            if piece == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into.extend_from_slice(&waiting[..piece]);
            state.consumed += piece;
            state.literal_left = state.literal_left.saturating_sub(piece as u64);
            wanted -= piece;
        }
        Ok(())
    }

    /// Writes a line and its line break.
    pub fn write_line(&self, line: &str) -> io::Result<()> {
        let mut state = self.state();
        let stream = state.transport.stream();
        stream.write_all(format!("{line}\r\n").as_bytes())?;
        stream.flush()
    }

    /// Returns the server's last line for display.
    pub fn last_line(&self) -> String {
        display_line(&self.state().line)
    }

    /// Returns the text of the server's last line after tag and status.
    pub fn explanation(&self) -> String {
        let line = self.last_line();
        let text = line.splitn(3, ' ').nth(2).unwrap_or_default().trim().to_owned();
        if text.is_empty() { "without an explanation".to_owned() } else { text }
    }

    /// Returns true if the server announced a mail since the last call, in any response.
    pub fn take_new_mail(&self) -> bool {
        std::mem::take(&mut self.state().has_new_mail)
    }

    /// Converts an error of the `imap` crate.
    pub fn imap_error(&self, error: &imap::Error) -> ImapError {
        match error {
            imap::Error::No(_) | imap::Error::Bad(_) | imap::Error::Append => ImapError::Rejected(self.explanation()),
            imap::Error::Validate(error) => ImapError::Rejected(error.to_string()),
            imap::Error::Io(error) => self.io_error(error),
            imap::Error::ConnectionLost => self.disconnected(),
            _ if self.state().bye.is_some() => self.disconnected(),
            // This includes `Bye` without a BYE, by which the crate reports a line that it cannot parse.
            _ => ImapError::Protocol(format!("the server's answer cannot be understood, at: {}", self.last_line())),
        }
    }

    /// Converts an I/O error; prefers the text of a BYE.
    pub fn io_error(&self, error: &io::Error) -> ImapError {
        if self.state().bye.is_some() { self.disconnected() } else { ImapError::from(error) }
    }

    /// Returns the error for a connection that the server closed.
    pub fn disconnected(&self) -> ImapError {
        ImapError::Disconnected(match &self.state().bye {
            Some(bye) => format!("the server hung up: {bye}"),
            None => "the server closed the connection".to_owned(),
        })
    }

    fn state(&self) -> RefMut<'_, StreamState> {
        self.0.borrow_mut()
    }
}

impl Read for ImapStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.state().read(into)
    }
}

impl Write for ImapStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.state().transport.stream().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.state().transport.stream().flush()
    }
}

impl StreamState {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.consumed == self.buffer.len() {
            self.fill()?;
        }
        let waiting = &self.buffer[self.consumed..];
        let line = waiting.iter().position(|byte| *byte == b'\n').map_or(waiting.len(), |end| end + 1);
        let mut count = line.min(into.len());
        if self.literal_left > 0 {
            count = count.min(usize::try_from(self.literal_left).unwrap_or(usize::MAX));
        }
        into[..count].copy_from_slice(&waiting[..count]);
        self.consumed += count;
        if self.literal_left > 0 {
            self.literal_left -= count as u64;
        } else {
            self.track_line(&into[..count]);
            // Servers send explanations in any language, but the crate's parser accepts only ASCII, as RFC 3501 does.
            into[..count].iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        }
        Ok(count)
    }

    /// Reads the next bytes into the empty buffer. A signal does not end the read.
    fn fill(&mut self) -> io::Result<()> {
        if self.bytes_left == 0 {
            return Err(response_too_large());
        }
        self.buffer.resize(BUFFER, 0);
        let read = loop {
            let read = self.transport.stream().read(&mut self.buffer);
            if !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                break read;
            }
        };
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        self.consumed = 0;
        self.bytes_left = self.bytes_left.saturating_sub(self.buffer.len() as u64);
        read.map(|_| ())
    }

    /// Follows the protocol lines to detect literals, announced mails and BYE.
    fn track_line(&mut self, piece: &[u8]) {
        const MAX_TRACKED: usize = 512;
        if std::mem::replace(&mut self.line_ended, piece.ends_with(b"\n")) {
            self.line.clear();
        }
        let room = MAX_TRACKED.saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        if self.line_ended {
            // A read may end within the announcement of a literal. Of a long line, only the last piece is at hand.
            let end = if self.line.len() < MAX_TRACKED { &self.line } else { piece };
            self.literal_left = literal(end).unwrap_or(0);
        }
        if self.line_ended && self.line.starts_with(b"* ") && self.line.trim_ascii_end().ends_with(b" EXISTS") {
            self.has_new_mail = true;
        }
        if self.line_ended && self.line.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"* BYE ")) {
            self.bye = Some(display_line(&self.line[6..]));
        }
    }
}

/// Parses the size of the literal announced at the end of a line (RFC 3501, section 4.3).
pub fn literal(line: &[u8]) -> Option<u64> {
    let line = line.trim_ascii_end().strip_suffix(b"}")?;
    let from = line.iter().rposition(|byte| *byte == b'{')? + 1;
    std::str::from_utf8(&line[from..]).ok()?.parse().ok()
}

fn response_too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server sent more than it was asked for")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_literal_is_unchanged_however_its_announcement_is_split() {
        const RESPONSE: &str = "* 1 FETCH (BODY[HEADER] {11}\r\n* BYE é!\r\n)\r\n* OK é\r\n";
        let wait = Duration::from_secs(5);
        for size in 1..RESPONSE.len() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            listener.accept().unwrap().0.write_all(RESPONSE.as_bytes()).unwrap();
            let mut stream = ImapStream::new(socket, ResponseLimit { bytes: 1_000, silence: wait, total: wait });
            let (mut got, mut piece) = (Vec::new(), vec![0; size]);
            while let count @ 1.. = stream.read(&mut piece).unwrap() {
                got.extend_from_slice(&piece[..count]);
            }
            let expected = RESPONSE.replace("OK é", "OK ??");
            assert_eq!(String::from_utf8(got).unwrap(), expected, "{size} bytes a read");
            assert_eq!(stream.state().bye, None, "{size} bytes a read");
        }
    }
}
