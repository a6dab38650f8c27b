//! Reads mailboxes by IMAP. In reading order: errors, the bounded stream, a connection and its commands, then the mails of a mailbox.

mod error;

mod connect;
mod stream;

mod fetch_part;
mod login;
mod mailbox_name;
mod session;

mod settings;

mod catchup;
mod reader;
mod watch;

mod one_shot;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use one_shot::{append, ensure_mailbox, find, probe};
pub use reader::ReportState;
pub use settings::WatchSettings;
pub use watch::watch;
