//! Opens a session: TCP, TLS, greeting, login. Own code because lettre's connection would use its own TLS settings and
//! would not report how much of a mail was written.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::Ehlo;
use lettre::transport::smtp::extension::ClientId;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::failure::{SmtpFailure, SmtpOutcome, SmtpStage};
use super::stream::{DataEnd, Duplex, SmtpStream};
use crate::email::account::{Login, MailServer, xoauth2_response};
use crate::email::certificate::MailTls;
use crate::email::config::Tls;
use crate::settings::Secret;

/// The time limits of each step. RFC 5321, section 4.5.3.2 grants minutes, for servers slower than today's.
#[derive(Clone, Copy, Debug)]
pub struct SmtpTimeouts {
    /// The limit for connecting and for the TLS handshake.
    pub connect: Duration,
    /// The limit for each command, and for the greeting, which some servers delay against spammers.
    pub command: Duration,
    /// The limit for the login, which does not depend on the size of a mail.
    pub login: Duration,
    /// The limit between the end of the mail and the reply to it.
    pub reply: Duration,
    /// How long an idle connection is kept for the next mail.
    pub idle: Duration,
}

impl Default for SmtpTimeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { connect: secs(30), command: secs(120), login: secs(20), reply: secs(300), idle: secs(30) }
    }
}

/// A session with a completed login.
pub struct SmtpSession {
    pub smtp: AsyncSmtpConnection,
    pub data_end: DataEnd,
    /// The largest mail that the server accepts, in bytes (RFC 1870); absent if the server states none.
    pub size_limit: Option<u64>,
}

/// Connects and logs in. After a refused token, retries once with a new token.
///
/// # Errors
/// The server cannot be reached, offers no private connection, or refuses the login, also with a new token.
pub async fn open(server: &MailServer, tls: &MailTls, limits: &SmtpTimeouts) -> Result<SmtpSession, SmtpFailure> {
    match (try_open(server, tls, limits).await, &server.login) {
        (Err(failure), Login::Token(command)) if failure.is_refused_login() => {
            command.forget().await;
            try_open(server, tls, limits).await
        }
        (opened, _) => opened,
    }
}

async fn try_open(server: &MailServer, tls: &MailTls, limits: &SmtpTimeouts) -> Result<SmtpSession, SmtpFailure> {
    let mut session = open_session(server, tls, limits).await?;
    log_in(&mut session.smtp, server, limits).await?;
    Ok(session)
}

/// Runs one exchange with the server within a time limit.
///
/// # Errors
/// The error of `work`, or its silence after `limit`. It states whether the mail may have been sent.
pub async fn run_step<T>(
    stage: SmtpStage,
    limit: Duration,
    data_end: &DataEnd,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, SmtpFailure> {
    let is_ended = || stage == SmtpStage::Content && data_end.is_written();
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(SmtpFailure::of(stage, &error, is_ended())),
        Err(_) => Err(SmtpFailure::of_silence(stage, limit.as_secs_f64(), is_ended())),
    }
}

async fn open_session(server: &MailServer, tls: &MailTls, limits: &SmtpTimeouts) -> Result<SmtpSession, SmtpFailure> {
    let host = server.host.trim_matches(['[', ']']);
    let mut tcp =
        with_timeout(SmtpStage::Connect, limits.connect, connect_tcp(host, server.port, limits.connect / 3)).await?;
    tcp.set_nodelay(true).map_err(|error| SmtpFailure::of_io(SmtpStage::Connect, &error))?;
    let addresses = tcp.local_addr().and_then(|local| Ok((local.ip(), tcp.peer_addr()?)));
    let (local, peer) = addresses.map_err(|error| SmtpFailure::of_io(SmtpStage::Connect, &error))?;
    let hello = hello_name(local);
    let (transport, greeting): (Box<dyn Duplex>, &'static [u8]) = match server.tls {
        Tls::None if peer.ip().is_loopback() => (Box::new(tcp), b""),
        Tls::None => {
            let reason = "smtp_tls = \"none\" is for servers on this machine; use \"starttls\" or \"implicit\"";
            return Err(SmtpFailure::new(SmtpStage::Tls, SmtpOutcome::Retry, reason));
        }
        Tls::Implicit => (tls_handshake(tcp, host, tls, limits).await?, b""),
        Tls::Starttls => {
            with_timeout(SmtpStage::Tls, limits.command, request_starttls(&mut tcp, &hello)).await?;
            // After TLS the server waits for EHLO (RFC 3207, section 4.2), but lettre waits for a greeting.
            (tls_handshake(tcp, host, tls, limits).await?, b"220 TLS\r\n")
        }
    };
    let wire = SmtpStream::new(transport, peer, greeting);
    let data_end = wire.data_end();
    let greeted = AsyncSmtpConnection::connect_with_transport(Box::new(wire), &hello);
    let mut smtp = run_step(SmtpStage::Hello, limits.command, &data_end, greeted).await?;
    // lettre does not keep the SIZE value of the server's reply.
    let offers = run_step(SmtpStage::Hello, limits.command, &data_end, smtp.command(Ehlo::new(hello))).await?;
    let size_limit = offers.message().find_map(size_of);
    Ok(SmtpSession { smtp, data_end, size_limit })
}

/// Tries the addresses of the host in turn, each for a limited time, because an unresponsive address must not hide the next.
async fn connect_tcp(host: &str, port: u16, each: Duration) -> std::io::Result<TcpStream> {
    let mut failed = std::io::Error::other("the name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match tokio::time::timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = std::io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

/// Starts TLS by a command in plain text (RFC 3207). Text that arrives before TLS would later count as encrypted, so the
/// function fails if any is left.
async fn request_starttls(tcp: &mut TcpStream, hello: &ClientId) -> std::io::Result<()> {
    let fail = |reason: &str| Err(std::io::Error::other(reason));
    let mut stream = BufReader::new(tcp);
    let greeting = reply(&mut stream).await?;
    if !greeting.starts_with("220") {
        return fail(&greeting);
    }
    stream.write_all(format!("EHLO {hello}\r\n").as_bytes()).await?;
    let offers = reply(&mut stream).await?;
    let offers_tls = |line: &str| line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"));
    if !offers.lines().any(offers_tls) {
        return fail("the server offers no STARTTLS; nothing is said to it in plain");
    }
    stream.write_all(b"STARTTLS\r\n").await?;
    let ready = reply(&mut stream).await?;
    match ready.starts_with("220") {
        true if stream.buffer().is_empty() => Ok(()),
        true => fail("the server, or somebody before it, said more in plain after STARTTLS"),
        false => fail(&ready),
    }
}

/// Reads a whole reply (RFC 5321, section 4.2). All its lines but the last begin with a code and a hyphen, e.g. `250-`.
async fn reply(stream: &mut BufReader<&mut TcpStream>) -> std::io::Result<String> {
    const MAX_BYTES: usize = 64 << 10;
    let mut whole = String::new();
    loop {
        let mut line = String::new();
        let room = u64::try_from(MAX_BYTES.saturating_sub(whole.len())).unwrap_or(0);
        (&mut *stream).take(room).read_line(&mut line).await?;
        if !line.ends_with('\n') {
            return Err(std::io::Error::other("the server closed the connection, or said too much"));
        }
        whole.push_str(&line);
        if line.as_bytes().get(3) != Some(&b'-') {
            return Ok(whole);
        }
    }
}

async fn tls_handshake(
    tcp: TcpStream,
    host: &str,
    tls: &MailTls,
    limits: &SmtpTimeouts,
) -> Result<Box<dyn Duplex>, SmtpFailure> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        let reason = format!("{host} is not a name that a certificate can have");
        SmtpFailure::new(SmtpStage::Tls, SmtpOutcome::Retry, reason)
    })?;
    let shaking = TlsConnector::from(Arc::clone(&tls.config)).connect(name.clone(), tcp);
    let stream = with_timeout(SmtpStage::Tls, limits.connect, shaking).await?;
    tls.expiries.record(&name, stream.get_ref().1);
    Ok(Box::new(stream))
}

async fn with_timeout<T>(
    stage: SmtpStage,
    limit: Duration,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, SmtpFailure> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|error| SmtpFailure::of_io(stage, &error)),
        Err(_) => Err(SmtpFailure::of_silence(stage, limit.as_secs_f64(), false)),
    }
}

async fn log_in(smtp: &mut AsyncSmtpConnection, server: &MailServer, limits: &SmtpTimeouts) -> Result<(), SmtpFailure> {
    let nothing_sent = DataEnd::default();
    match &server.login {
        Login::None => Ok(()),
        Login::Password(secret) => {
            const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];
            if smtp.server_info().get_auth_mechanism(&MECHANISMS).is_none() {
                return Err(no_mechanism("PLAIN or LOGIN"));
            }
            let credentials = Credentials::new(server.username.clone(), secret.expose().to_owned());
            let login = smtp.auth(&MECHANISMS, &credentials);
            let reply = run_step(SmtpStage::Login, limits.login, &nothing_sent, login).await;
            reply.map(|_| ()).map_err(|failure| failure.redacted(&server.username, secret))
        }
        Login::Token(command) => {
            if !smtp.server_info().supports_auth_mechanism(Mechanism::Xoauth2) {
                return Err(no_mechanism("XOAUTH2"));
            }
            let token = command
                .token()
                .await
                .map_err(|reason| SmtpFailure::new(SmtpStage::Login, SmtpOutcome::Retry, reason))?;
            let login = log_in_xoauth2(smtp, &server.username, &token);
            let reply = run_step(SmtpStage::Login, limits.login, &nothing_sent, login).await;
            reply.map_err(|failure| failure.redacted(&server.username, &token))
        }
    }
}

fn no_mechanism(wanted: &str) -> SmtpFailure {
    SmtpFailure::new(SmtpStage::Login, SmtpOutcome::Retry, format!("the server does not offer the login {wanted}"))
}

/// Logs in by XOAUTH2. A refusal comes as a challenge, which needs an empty answer before the server refuses. Own code
/// because lettre's `auth` stops at the challenge.
async fn log_in_xoauth2(smtp: &mut AsyncSmtpConnection, username: &str, token: &Secret) -> Result<(), Error> {
    let answer = STANDARD.encode(xoauth2_response(username, token));
    let reply = smtp.command(format!("AUTH XOAUTH2 {answer}\r\n")).await?;
    if reply.has_code(334) {
        smtp.command("\r\n").await?;
    }
    Ok(())
}

/// Returns the client's name: the name of this machine if it is fully qualified, otherwise its address (RFC 5321, section 4.1.4).
fn hello_name(local: IpAddr) -> ClientId {
    match ClientId::default() {
        ClientId::Domain(name) if is_whole_name(&name) => ClientId::Domain(name),
        _ => match local {
            IpAddr::V4(address) => ClientId::Ipv4(address),
            IpAddr::V6(address) => ClientId::Ipv6(address),
        },
    }
}

fn is_whole_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.len() < 64 && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    name.len() < 254 && name.contains('.') && name.split('.').all(is_label) && !name.ends_with(".local")
}

/// Parses `SIZE 35882577`. Without a number, or with 0, there is no fixed limit (RFC 1870, section 4).
fn size_of(line: &str) -> Option<u64> {
    let (word, number) = line.trim().split_once(' ')?;
    let size = number.trim().parse().ok()?;
    (word.eq_ignore_ascii_case("SIZE") && size > 0).then_some(size)
}
