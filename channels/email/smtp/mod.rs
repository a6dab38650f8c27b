//! Sends mails. In reading order: the two forms of the text, the header, the whole mail; then the connection to the server,
//! and its failures.

mod flowed;
mod html;
mod markdown;
mod plain;

mod address;
mod references;

mod compose;
#[cfg(test)]
mod compose_tests;

mod connect;
mod failure;
mod mailer;
#[cfg(test)]
mod mailer_tests;
mod pool;
#[cfg(test)]
mod script_tests;
mod stream;

pub use address::{check_chat, mailbox};
pub use mailer::{Mailer, SentMail};
pub use pool::RecipientPolicy;
