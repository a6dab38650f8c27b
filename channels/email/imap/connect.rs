//! From an address to a connection that is private, before anything is said on it.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::error::{Trouble, shown};
use super::stream::{Closer, Limit, Stream};
use crate::email::account::Server;
use crate::email::certificate::fault_in_words;
use crate::email::config::Tls;

/// How long one address is tried.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may think before it greets, and before it has agreed on TLS.
const GREETING: Duration = Duration::from_secs(20);
/// A host's addresses that are tried.
const MOST_ADDRESSES: usize = 4;

/// Connects, and reads the server's greeting.
///
/// # Errors
/// Nobody is there, the connection cannot be made private, or the server wants no one.
pub fn dial(server: &Server, config: Arc<ClientConfig>, limit: Limit, closer: &Closer) -> Result<Stream, Trouble> {
    let socket = connect(server)?;
    closer.hold(socket.try_clone().map_err(|error| lost(&error))?);
    let stream = Stream::new(socket, Limit { silence: limit.silence.min(GREETING), ..limit });
    match server.tls {
        Tls::Implicit => {
            secure(&stream, server, config)?;
            greeting(&stream, server)?;
        }
        Tls::Starttls => {
            greeting(&stream, server)?;
            starttls(&stream)?;
            secure(&stream, server, config)?;
        }
        Tls::None => greeting(&stream, server)?,
    }
    Ok(stream)
}

fn connect(server: &Server) -> Result<TcpStream, Trouble> {
    let host = server.host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (host, server.port)
        .to_socket_addrs()
        .map_err(|error| Trouble::Lost(format!("the name cannot be resolved: {error}")))?;
    let mut failed = "the name has no address".to_owned();
    for address in addresses.take(MOST_ADDRESSES) {
        if server.tls == Tls::None && !address.ip().is_loopback() {
            failed = format!("{} is not this machine, and without TLS nothing is said to another", address.ip());
            continue;
        }
        match open(&address) {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = format!("no connection to {address}: {error}"),
        }
    }
    Err(Trouble::Lost(failed))
}

fn open(address: &SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(address, CONNECT)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn greeting(stream: &Stream, server: &Server) -> Result<(), Trouble> {
    let line = stream.read_line().map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut if server.tls != Tls::Implicit => Trouble::Lost(
            "the server says nothing; on port 993 it waits for TLS, which is imap_tls = \"implicit\"".to_owned(),
        ),
        _ => lost(&error),
    })?;
    let text = String::from_utf8_lossy(&line).to_ascii_uppercase();
    match text.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
        ["*", "OK", ..] => Ok(()),
        ["*", "BYE", ..] => Err(Trouble::Lost(format!("the server takes no connection: {}", shown(&line[5..])))),
        // Whoever is logged in already can no longer ask for TLS (RFC 3501, section 7.1.4).
        ["*", "PREAUTH", ..] => {
            Err(Trouble::Garbled("the server says that one is logged in already, before anything was said".to_owned()))
        }
        _ => Err(Trouble::Garbled(format!("this is no IMAP server; it begins with: {}", shown(&line)))),
    }
}

/// Asks for TLS (RFC 3501, section 6.2.1) without asking first whether it is there: what is said in plain may be anybody's
/// word.
fn starttls(stream: &Stream) -> Result<(), Trouble> {
    const MOST_LINES: usize = 20;
    const TAG: &str = "s1";
    stream.write_line(&format!("{TAG} STARTTLS")).map_err(|error| lost(&error))?;
    for _ in 0..MOST_LINES {
        let line = stream.read_line().map_err(|error| lost(&error))?;
        let text = String::from_utf8_lossy(&line).into_owned();
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some(TAG) {
            continue;
        }
        return match words.next() {
            Some(word) if word.eq_ignore_ascii_case("OK") => Ok(()),
            _ => Err(Trouble::Lost(format!(
                "the server offers no STARTTLS ({}), and nothing is said in plain",
                shown(&line)
            ))),
        };
    }
    Err(Trouble::Garbled("the server did not answer STARTTLS".to_owned()))
}

fn secure(stream: &Stream, server: &Server, config: Arc<ClientConfig>) -> Result<(), Trouble> {
    stream.secure(&server.host, config).map_err(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(fault)) => Trouble::Lost(fault_in_words(fault, &server.host)),
            Some(rustls::Error::InvalidMessage(_)) => Trouble::Lost(
                "the server speaks no TLS on this port; port 993 wants imap_tls = \"implicit\", port 143 \"starttls\""
                    .to_owned(),
            ),
            _ if error.kind() == io::ErrorKind::InvalidData => Trouble::Garbled(error.to_string()),
            _ => Trouble::Lost(format!("no TLS: {error}")),
        }
    })
}

pub fn lost(error: &io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::InvalidData => Trouble::Garbled(error.to_string()),
        io::ErrorKind::UnexpectedEof => Trouble::Lost("the server closed the connection".to_owned()),
        _ => Trouble::Lost(error.to_string()),
    }
}
