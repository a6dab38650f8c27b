//! Bytes to and from a server. Every wait is bounded, and so is what an answer may weigh: a server that sends more than it
//! was asked for must not fill the memory.

use std::cell::{RefCell, RefMut};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::error::shown;

/// As much as is read at once.
const BUFFER: usize = 16 * 1_024;
/// The longest line that is read without its being asked for.
const MOST_LINE: usize = 64 * 1_024;

/// What one answer may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The most that it may weigh.
    pub bytes: u64,
    /// The longest time without a byte.
    pub silence: Duration,
    /// The longest time until it is complete.
    pub total: Duration,
}

/// Ends a connection from another thread.
#[derive(Clone, Default)]
pub struct Closer(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    socket: Option<TcpStream>,
    closed: bool,
}

impl Closer {
    /// Whatever is read or written now, or from now on, fails.
    pub fn close(&self) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.closed = true;
        shut(held.socket.take());
    }

    /// From now on, it is this socket.
    pub fn hold(&self, socket: TcpStream) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.closed {
            shut(Some(socket));
        } else {
            held.socket = Some(socket);
        }
    }
}

fn shut(socket: Option<TcpStream>) {
    if let Some(socket) = socket {
        // It fails where the other side was faster.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// A socket whose reads and writes end in time.
struct Timed {
    socket: TcpStream,
    silence: Duration,
    until: Instant,
}

impl Timed {
    fn wait(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now()).min(self.silence);
        if left.is_zero() { Err(late()) } else { Ok(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.wait()?))?;
        self.socket.read(into).map_err(on_time)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.wait()?))?;
        self.socket.write(bytes).map_err(on_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time")
}

/// A socket's time out is `WouldBlock` on Linux.
fn on_time(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { late() } else { error }
}

enum Flow {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Flow {
    fn timed(&mut self) -> &mut Timed {
        match self {
            Self::Plain(timed) => timed,
            Self::Tls(tls) => &mut tls.sock,
        }
    }
}

/// A connection, shared by the protocol's implementation and by what reads beside it.
///
/// A read gives at most the rest of a line. So whoever reads whole lines leaves nothing behind in a buffer of its own, and the
/// next one may read on here.
#[derive(Clone)]
pub struct Stream(Rc<RefCell<Wire>>);

struct Wire {
    flow: Flow,
    buffer: Vec<u8>,
    /// How much of the buffer was given out.
    given: usize,
    /// What may still come.
    left: u64,
    /// The line that is being given out, as far as it is shown in errors.
    line: Vec<u8>,
    line_ended: bool,
    /// What the server said when it hung up.
    bye: Option<String>,
    /// What is still to come of a literal: bytes that are no lines of the protocol's.
    literal: u64,
    /// A mail has arrived.
    news: bool,
    /// A line that [`Stream::read_line`] began.
    begun: Vec<u8>,
}

impl Stream {
    pub fn new(socket: TcpStream, limit: Limit) -> Self {
        let timed = Timed { socket, silence: limit.silence, until: Instant::now() + limit.total };
        Self(Rc::new(RefCell::new(Wire {
            flow: Flow::Plain(timed),
            buffer: Vec::with_capacity(BUFFER),
            given: 0,
            left: limit.bytes,
            line: Vec::new(),
            line_ended: true,
            bye: None,
            literal: 0,
            news: false,
            begun: Vec::new(),
        })))
    }

    /// Goes on in TLS. The certificate is checked within.
    ///
    /// # Errors
    /// The name is none, the other side speaks no TLS, or its certificate is not to be trusted. `InvalidData` where the
    /// server had already sent something more: whoever did that wants it to be taken for part of what is protected
    /// (CVE-2011-0411).
    pub fn secure(&self, host: &str, config: Arc<ClientConfig>) -> io::Result<()> {
        let mut wire = self.wire();
        if wire.given < wire.buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server went on in plain after it had agreed to TLS; somebody may be meddling with the connection",
            ));
        }
        let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is no host name")))?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let Flow::Plain(plain) = &wire.flow else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the connection is in TLS already"));
        };
        let timed = Timed { socket: plain.socket.try_clone()?, silence: plain.silence, until: plain.until };
        let mut tls = Box::new(StreamOwned::new(connection, timed));
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        wire.flow = Flow::Tls(tls);
        Ok(())
    }

    /// From now on an answer may cost `limit`.
    pub fn arm(&self, limit: Limit) {
        let mut wire = self.wire();
        (wire.left, wire.bye) = (limit.bytes, None);
        let timed = wire.flow.timed();
        (timed.silence, timed.until) = (limit.silence, Instant::now() + limit.total);
    }

    /// A whole line, with its end.
    ///
    /// # Errors
    /// `TimedOut` after the limit's silence; what came of the line until then is not lost.
    pub fn read_line(&self) -> io::Result<Vec<u8>> {
        let mut wire = self.wire();
        let mut piece = [0; 1_024];
        loop {
            let count = match wire.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            wire.begun.extend_from_slice(&piece[..count]);
            if wire.begun.ends_with(b"\n") {
                return Ok(std::mem::take(&mut wire.begun));
            }
            if wire.begun.len() > MOST_LINE {
                return Err(too_much());
            }
        }
    }

    /// Puts `count` bytes, whatever they are, behind what is in `into`.
    pub fn read_into(&self, count: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let mut wire = self.wire();
        let mut wanted = usize::try_from(count).map_err(|_| too_much())?;
        while wanted > 0 {
            if wire.given == wire.buffer.len() {
                wire.fill_again()?;
            }
            let waiting = &wire.buffer[wire.given..];
            let piece = waiting.len().min(wanted);
            if piece == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into.extend_from_slice(&waiting[..piece]);
            wire.given += piece;
            wire.literal = wire.literal.saturating_sub(piece as u64);
            wanted -= piece;
        }
        Ok(())
    }

    /// Writes a line, with its end.
    pub fn write_line(&self, line: &str) -> io::Result<()> {
        let mut wire = self.wire();
        wire.write_all(format!("{line}\r\n").as_bytes())?;
        wire.flush()
    }

    /// What the server said last, fit to be shown.
    pub fn last_line(&self) -> String {
        shown(&self.wire().line)
    }

    /// What the server's last line says behind its tag and state.
    pub fn explanation(&self) -> String {
        let line = self.last_line();
        let text = line.splitn(3, ' ').nth(2).unwrap_or_default().trim().to_owned();
        if text.is_empty() { "without an explanation".to_owned() } else { text }
    }

    /// What the server said when it hung up.
    pub fn bye(&self) -> Option<String> {
        self.wire().bye.clone()
    }

    /// Whether the server told of a mail since this was last asked, whatever it was answering then.
    pub fn take_news(&self) -> bool {
        std::mem::take(&mut self.wire().news)
    }

    fn wire(&self) -> RefMut<'_, Wire> {
        self.0.borrow_mut()
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wire().read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wire().flush()
    }
}

impl Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.given == self.buffer.len() {
            self.fill()?;
        }
        let waiting = &self.buffer[self.given..];
        let line = waiting.iter().position(|byte| *byte == b'\n').map_or(waiting.len(), |end| end + 1);
        let mut count = line.min(into.len());
        if self.literal > 0 {
            count = count.min(usize::try_from(self.literal).unwrap_or(usize::MAX));
        }
        into[..count].copy_from_slice(&waiting[..count]);
        self.given += count;
        if self.literal > 0 {
            self.literal -= count as u64;
        } else {
            self.remember(&into[..count]);
            // Servers explain themselves in their users' languages, and the crate's parser knows ASCII alone, as RFC 3501 does.
            into[..count].iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        }
        Ok(count)
    }

    fn fill_again(&mut self) -> io::Result<()> {
        loop {
            match self.fill() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                filled => return filled,
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.left == 0 {
            return Err(too_much());
        }
        self.buffer.resize(BUFFER, 0);
        let read = match &mut self.flow {
            Flow::Plain(timed) => timed.read(&mut self.buffer),
            Flow::Tls(tls) => tls.read(&mut self.buffer),
        };
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        self.given = 0;
        self.left = self.left.saturating_sub(self.buffer.len() as u64);
        read.map(|_| ())
    }

    fn remember(&mut self, piece: &[u8]) {
        const MOST: usize = 512;
        if std::mem::replace(&mut self.line_ended, piece.ends_with(b"\n")) {
            self.line.clear();
        }
        let room = MOST.saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        if self.line_ended {
            // A longer line's end is seen in its last piece.
            self.literal = literal(piece).unwrap_or(0);
        }
        if self.line_ended && self.line.starts_with(b"* ") && self.line.trim_ascii_end().ends_with(b" EXISTS") {
            self.news = true;
        }
        if self.line_ended && self.line.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"* BYE ")) {
            self.bye = Some(shown(&self.line[6..]));
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.flow {
            Flow::Plain(timed) => timed.write(bytes),
            Flow::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.flow {
            Flow::Plain(timed) => timed.flush(),
            Flow::Tls(tls) => tls.flush(),
        }
    }
}

/// The size of the literal that a line announces at its end (RFC 3501, section 4.3).
pub fn literal(line: &[u8]) -> Option<u64> {
    let line = line.trim_ascii_end().strip_suffix(b"}")?;
    let from = line.iter().rposition(|byte| *byte == b'{')? + 1;
    std::str::from_utf8(&line[from..]).ok()?.parse().ok()
}

fn too_much() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server sent more than it was asked for")
}
