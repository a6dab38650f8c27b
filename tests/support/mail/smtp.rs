//! A scripted SMTP server that records the mails it receives, and misbehaves as real servers do.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Mail, PASSWORD};
use crate::support::{deadline, signing};

/// The server's reaction to one mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpAnswer {
    /// Accepts the mail.
    Well,
    /// Answers RCPT with this, e.g. `450 4.2.0 greylisted`.
    Recipient(&'static str),
    /// Answers the end of DATA with this.
    Data(&'static str),
    /// Reads the whole mail, and closes the connection before it confirms.
    Drop,
    /// Reads the whole mail, and never confirms.
    Hang,
}

/// A mail that was read to its last line, whatever the answer.
#[derive(Clone, Debug)]
pub struct ReceivedMail {
    pub from: String,
    pub to: Vec<String>,
    pub mail: Mail,
    pub how: SmtpAnswer,
}

#[derive(Default)]
struct Record {
    taken: Vec<ReceivedMail>,
    script: VecDeque<SmtpAnswer>,
    /// The number of RCPT commands, including refused ones.
    asked: usize,
    refuses_login: bool,
    is_silent: bool,
}

struct Shared {
    tls: Option<TlsAcceptor>,
    record: Mutex<Record>,
    changed: watch::Sender<usize>,
}

/// The running server; it stops when dropped.
pub struct Smtp {
    shared: Arc<Shared>,
    port: u16,
    server: AbortHandle,
}

impl Drop for Smtp {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Smtp {
    /// Starts without TLS, but with AUTH.
    pub async fn start() -> Self {
        Self::listen(None).await
    }

    /// Starts with TLS from the first byte, with this certificate and key.
    pub async fn with_certificate(certificate: &(String, String)) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(certificate.0.as_bytes()).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(certificate.1.as_bytes()).expect("a key");
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("ring knows them").with_no_client_auth().with_single_cert(chain, key);
        Self::listen(Some(TlsAcceptor::from(Arc::new(config.expect("the key is the certificate's"))))).await
    }

    async fn listen(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared { tls, record: Mutex::default(), changed: watch::Sender::new(0) });
        let serving = Arc::clone(&shared);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A broken connection concerns only the client.
                tokio::spawn(connection(stream, Arc::clone(&serving)));
            }
        });
        Self { shared, port, server: server.abort_handle() }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the reactions to the next mails, one each; later mails are accepted.
    pub fn then(&self, script: impl IntoIterator<Item = SmtpAnswer>) {
        self.shared.record.lock().script.extend(script);
    }

    /// Refuses all passwords from now on, or accepts them again.
    pub fn refuse_login(&self, refuses: bool) {
        self.shared.record.lock().refuses_login = refuses;
    }

    /// Stops answering logins from now on, or resumes.
    pub fn set_silent(&self, silent: bool) {
        self.shared.record.lock().is_silent = silent;
    }

    /// Returns every mail that was read to its last line.
    pub fn taken(&self) -> Vec<ReceivedMail> {
        self.shared.record.lock().taken.clone()
    }

    /// Returns the number of named recipients, including refused ones.
    pub fn asked(&self) -> usize {
        self.shared.record.lock().asked
    }

    /// Waits until `count` mails have been read to their last line.
    pub async fn wait_taken(&self, count: usize) -> Vec<ReceivedMail> {
        self.wait(&format!("{count} mails sent"), |record| (record.taken.len() >= count).then(|| record.taken.clone()))
            .await
    }

    async fn wait<T>(&self, what: &str, probe: impl Fn(&Record) -> Option<T>) -> T {
        let mut changed = self.shared.changed.subscribe();
        let found = async {
            loop {
                if let Some(found) = probe(&self.shared.record.lock()) {
                    return found;
                }
                changed.changed().await.expect("the server lives");
            }
        };
        deadline(what, found).await
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    match &shared.tls {
        Some(tls) => speak(tls.accept(stream).await?, &shared).await,
        None => speak(stream, &shared).await,
    }
}

const EXTENSIONS: &str = "250-scripted\r\n250-8BITMIME\r\n250-SIZE 52428800\r\n250 AUTH PLAIN LOGIN";

/// The envelope of the mail that a client is about to send.
#[derive(Default)]
struct Envelope {
    from: String,
    to: Vec<String>,
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    say(&mut stream, "220 scripted ESMTP").await?;
    let mut envelope = Envelope::default();
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let command = line.trim_end();
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => say(&mut stream, EXTENSIONS).await?,
            "AUTH" if shared.record.lock().is_silent => {}
            "AUTH" => {
                let answer = login(&mut stream, rest, shared).await?;
                say(&mut stream, answer).await?;
            }
            "MAIL" => {
                envelope = Envelope { from: address(rest), to: Vec::new() };
                say(&mut stream, "250 2.1.0 ok").await?;
            }
            "RCPT" => {
                let answer = recipient(shared, &mut envelope, rest);
                say(&mut stream, answer).await?;
            }
            "DATA" => {
                say(&mut stream, "354 go on").await?;
                let raw = data(&mut stream).await?;
                if !answer_data(&mut stream, shared, std::mem::take(&mut envelope), raw).await? {
                    return Ok(());
                }
            }
            "QUIT" => return say(&mut stream, "221 2.0.0 bye").await,
            // Clients that are already logged in are refused too.
            "NOOP" if shared.record.lock().refuses_login => return say(&mut stream, "421 4.3.2 log in again").await,
            "RSET" | "NOOP" | "HELO" => say(&mut stream, "250 2.0.0 ok").await?,
            _ => say(&mut stream, "500 5.5.2 what?").await?,
        }
    }
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), line: &str) -> std::io::Result<()> {
    stream.write_all(format!("{line}\r\n").as_bytes()).await?;
    stream.flush().await
}

/// Returns the text between the angle brackets.
fn address(argument: &str) -> String {
    let inner = argument.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or("", |(address, _)| address).to_owned()
}

/// Handles AUTH PLAIN in one or two lines (RFC 4954, section 4); other mechanisms are unsupported.
async fn login<S>(stream: &mut BufReader<S>, argument: &str, shared: &Shared) -> std::io::Result<&'static str>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut words = argument.split(' ');
    if !words.next().is_some_and(|way| way.eq_ignore_ascii_case("PLAIN")) {
        return Ok("504 5.5.4 PLAIN only");
    }
    let mut given = words.next().unwrap_or_default().to_owned();
    if given.is_empty() {
        say(stream, "334 ").await?;
        stream.read_line(&mut given).await?;
    }
    let right = signing::base64(format!("\0{}\0{PASSWORD}", super::ASSISTANT).as_bytes());
    let refuses = shared.record.lock().refuses_login || given.trim_end() != right;
    Ok(if refuses { "535 5.7.8 wrong user or password" } else { "235 2.7.0 welcome" })
}

fn recipient(shared: &Shared, envelope: &mut Envelope, argument: &str) -> &'static str {
    let mut record = shared.record.lock();
    record.asked += 1;
    let answer = match record.script.front() {
        Some(SmtpAnswer::Recipient(answer)) => {
            let answer = *answer;
            record.script.pop_front();
            answer
        }
        _ => {
            envelope.to.push(address(argument));
            "250 2.1.5 ok"
        }
    };
    drop(record);
    shared.changed.send_modify(|count| *count += 1);
    answer
}

/// Reads a mail up to its last line and removes dot-stuffing (RFC 5321, section 4.5.2).
async fn data(stream: &mut (impl AsyncBufReadExt + Unpin)) -> std::io::Result<Vec<u8>> {
    let (mut raw, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if line == b".\r\n" {
            return Ok(raw);
        }
        raw.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
    }
}

/// Answers a mail; returns true if the connection continues.
async fn answer_data<S>(stream: &mut S, shared: &Shared, envelope: Envelope, raw: Vec<u8>) -> std::io::Result<bool>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let how = {
        let mut record = shared.record.lock();
        let how = record.script.pop_front().unwrap_or(SmtpAnswer::Well);
        record.taken.push(ReceivedMail { from: envelope.from, to: envelope.to, mail: Mail::new(raw), how });
        how
    };
    shared.changed.send_modify(|count| *count += 1);
    match how {
        SmtpAnswer::Well | SmtpAnswer::Recipient(_) => say(stream, "250 2.0.0 taken").await?,
        SmtpAnswer::Data(answer) => say(stream, answer).await?,
        SmtpAnswer::Drop => return Ok(false),
        SmtpAnswer::Hang => {
            // Waits until the client gives up.
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await?;
            return Ok(false);
        }
    }
    Ok(true)
}
