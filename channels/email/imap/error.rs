//! What goes wrong with a mail server, by what is to be done about it.

/// The longest text of a server's that is shown.
const MOST_SHOWN: usize = 200;

/// What went wrong, as a sentence without the server's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// There is no connection, or no more.
    #[error("{0}")]
    Lost(String),
    /// What came was too much, or cannot be understood; the connection is of no use any more.
    #[error("{0}")]
    Garbled(String),
    /// The server said no; the connection is as good as before.
    #[error("{0}")]
    Denied(String),
    /// Nobody can log in like this.
    #[error("{0}")]
    Login(String),
}

/// Text of a server's, fit to be shown: one line, and not a long one.
pub fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let clean: String =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_SHOWN + 1).collect();
    match clean.char_indices().nth(MOST_SHOWN) {
        Some((cut, _)) => format!("{}…", &clean[..cut]),
        None => clean,
    }
}
