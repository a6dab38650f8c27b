//! Mailboxes by IMAP. In reading order: bytes and their bounds, a connection, what is asked on it, then what is done with a
//! mailbox's mails.

mod error;

mod connect;
mod stream;

mod enter;
mod fetch_part;
mod login;
mod mailbox_name;
mod session;

mod settings;

mod catchup;
mod reader;
mod watch;

mod find;
mod probe;
mod sent;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use find::find;
pub use probe::probe;
pub use sent::append;
pub use settings::{SKIPPED_CHINESE, SKIPPED_ENGLISH, WatchSettings};
pub use watch::watch;
