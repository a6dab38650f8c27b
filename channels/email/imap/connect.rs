//! Connects to an IMAP server and encrypts the connection before any command.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::error::{ImapError, display_line};
use super::stream::{ConnectionCloser, ImapStream, ResponseLimit};
use crate::email::account::MailServer;
use crate::email::certificate::{MailTls, describe_certificate_error};
use crate::email::config::Tls;

/// Timeout of a connection attempt to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a server before its greeting and during the TLS handshake.
const GREETING_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of a host's addresses to try.
const MAX_ADDRESSES: usize = 4;

/// Connects to `server` and reads its greeting.
///
/// # Errors
/// The server cannot be reached, the connection cannot be encrypted, or the server's greeting refuses it.
pub fn connect(
    server: &MailServer,
    tls: &MailTls,
    limit: ResponseLimit,
    closer: &ConnectionCloser,
) -> Result<ImapStream, ImapError> {
    let socket = connect_socket(server)?;
    closer.attach(socket.try_clone().map_err(|error| ImapError::from(&error))?);
    let stream = ImapStream::new(socket, ResponseLimit { silence: limit.silence.min(GREETING_TIMEOUT), ..limit });
    match server.tls {
        Tls::Implicit => {
            start_tls_session(&stream, server, tls)?;
            read_greeting(&stream, server)?;
        }
        Tls::Starttls => {
            read_greeting(&stream, server)?;
            request_starttls(&stream)?;
            start_tls_session(&stream, server, tls)?;
        }
        Tls::None => read_greeting(&stream, server)?,
    }
    Ok(stream)
}

fn connect_socket(server: &MailServer) -> Result<TcpStream, ImapError> {
    let host = server.host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (host, server.port)
        .to_socket_addrs()
        .map_err(|error| ImapError::Disconnected(format!("the host name cannot be resolved: {error}")))?;
    let mut reason = "the host name has no address".to_owned();
    for address in addresses.take(MAX_ADDRESSES) {
        if server.tls == Tls::None && !address.ip().is_loopback() {
            reason = format!("{} is another machine, and without TLS only this machine is allowed", address.ip());
            continue;
        }
        let opened = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        match opened.and_then(|socket| socket.set_nodelay(true).map(|()| socket)) {
            Ok(socket) => return Ok(socket),
            Err(error) => reason = format!("no connection to {address}: {error}"),
        }
    }
    Err(ImapError::Disconnected(reason))
}

fn read_greeting(stream: &ImapStream, server: &MailServer) -> Result<(), ImapError> {
    let line = stream.read_line().map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut if server.tls != Tls::Implicit => ImapError::Disconnected(
            "the server sends no greeting; on port 993 it waits for TLS, which is imap_tls = \"implicit\"".to_owned(),
        ),
        _ => ImapError::from(&error),
    })?;
    let text = String::from_utf8_lossy(&line).to_ascii_uppercase();
    match text.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
        ["*", "OK", ..] => Ok(()),
        ["*", "BYE", ..] => {
            Err(ImapError::Disconnected(format!("the server refuses the connection: {}", display_line(&line[5..]))))
        }
        // An authenticated connection can no longer start TLS (RFC 3501, section 7.1.4).
        ["*", "PREAUTH", ..] => {
            Err(ImapError::Protocol("the greeting says that the client is logged in already (PREAUTH)".to_owned()))
        }
        _ => {
            let greeting = display_line(&line);
            Err(ImapError::Protocol(format!("this is not an IMAP server; its first line is: {greeting}")))
        }
    }
}

/// Requests TLS (RFC 3501, section 6.2.1). Ignores the capabilities announced in plain text, which anybody can forge.
fn request_starttls(stream: &ImapStream) -> Result<(), ImapError> {
    const MAX_LINES: usize = 20;
    const TAG: &str = "s1";
    stream.write_line(&format!("{TAG} STARTTLS")).map_err(|error| ImapError::from(&error))?;
    for _ in 0..MAX_LINES {
        let line = stream.read_line().map_err(|error| ImapError::from(&error))?;
        let text = String::from_utf8_lossy(&line).into_owned();
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some(TAG) {
            continue;
        }
        return match words.next() {
            Some(word) if word.eq_ignore_ascii_case("OK") => Ok(()),
            _ => Err(ImapError::Disconnected(format!(
                "the server offers no STARTTLS ({}), and nothing is sent without TLS",
                display_line(&line)
            ))),
        };
    }
    Err(ImapError::Protocol("the server did not answer STARTTLS".to_owned()))
}

fn start_tls_session(stream: &ImapStream, server: &MailServer, tls: &MailTls) -> Result<(), ImapError> {
    stream.start_tls(&server.host, tls).map_err(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(fault)) => {
                ImapError::Disconnected(describe_certificate_error(fault, &server.host))
            }
            Some(rustls::Error::InvalidMessage(_)) => ImapError::Disconnected(
                "the server speaks no TLS on this port; port 993 wants imap_tls = \"implicit\", port 143 \"starttls\""
                    .to_owned(),
            ),
            _ if error.kind() == io::ErrorKind::InvalidData => ImapError::Protocol(error.to_string()),
            _ => ImapError::Disconnected(format!("no TLS: {error}")),
        }
    })
}
