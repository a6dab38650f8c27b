//! Errors of an IMAP connection, grouped by how the caller must react.

use std::io;

/// The longest server text in an error, in characters.
const MAX_DISPLAYED: usize = 200;

/// An error of an IMAP connection, as a sentence without the server's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImapError {
    /// There is no connection, or it was lost.
    #[error("{0}")]
    Disconnected(String),
    /// A response is too large or cannot be parsed; the connection is unusable.
    #[error("{0}")]
    Protocol(String),
    /// The server refused a command; the connection stays usable.
    #[error("{0}")]
    Rejected(String),
    /// The server refused the credentials, or no credentials are configured.
    #[error("{0}")]
    Login(String),
}

impl From<&io::Error> for ImapError {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Protocol(error.to_string()),
            io::ErrorKind::UnexpectedEof => Self::Disconnected("the server closed the connection".to_owned()),
            _ => Self::Disconnected(error.to_string()),
        }
    }
}

/// Makes text from a server displayable: one line of limited length.
pub fn display_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let clean: String =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_DISPLAYED + 1).collect();
    match clean.char_indices().nth(MAX_DISPLAYED) {
        Some((cut, _)) => format!("{}…", &clean[..cut]),
        None => clean,
    }
}
